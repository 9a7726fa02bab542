//! Edits: decide under the lock of the key's leaf, append, change the entry of the active layer.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 merge first, if there are too many pending edits; enter the gate | nothing |
//! | 2 lock the key's leaf in the active layer; find its value in the layers and the sorted file | nothing |
//! | 3 the closure decides; append the frame | nothing; after the append, the edit: replay finds its frame |
//! | 4 change the entry, unlock, count | the edit |
//!
//! The frame is appended under the lock, so one key's frames lie in the log in the order of its updates; and inside the gate, so a cut
//! has both the frame and the entry on one side. The edits of `update_many` are one frame. `clear` and `revert` append theirs alone in
//! the store, and replace the layers.
//!
//! An entry that cannot be changed for want of memory, after its frame was appended, poisons the store: the next open has the edit.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Core;
use super::layers::{Layer, PendingEdit, View};
use super::layout::{ADD, CLEAR, INSERT, PUT, REMOVE, REVERT};
use crate::engine::{DecideMany, Durability, Edit, Engine as _, Reader as _};
use crate::epoch::{self, Pin};
use crate::error::{Error, Result};
use crate::format::frame::FrameKind;
use crate::log::{AllocationClass, Entry, Log};
use crate::order::Order;
use crate::record::gate;
use crate::record::limits::Limits;
use crate::record::many::Distinct;
use crate::record::skip::reduce::Reducer;
use crate::record::skip::{LIMITS, LIMITS_OF_WHOLE_KEYS};
use crate::room;

/// Bytes that an edit counts for besides its key and value: about what it takes in the log and in a layer.
pub(super) const EDIT_BYTES: u64 = 32;
/// The longest records: an entry has a byte besides its value.
const PENDING_LIMITS: Limits = Limits {
    key: LIMITS.key,
    value: LIMITS.value - 1,
    whose: "a sorted file that is edited",
};
/// The same where keys are compared as a whole.
const PENDING_LIMITS_OF_WHOLE_KEYS: Limits = Limits {
    key: LIMITS_OF_WHOLE_KEYS.key,
    value: PENDING_LIMITS.value,
    whose: "a sorted file in this order",
};

/// How long records may be.
pub(super) fn limits(order: Order) -> &'static Limits {
    match order {
        Order::Lexical => &PENDING_LIMITS,
        _ => &PENDING_LIMITS_OF_WHOLE_KEYS,
    }
}

/// A frame that is to be appended, and the entry that its edit leaves.
struct Change<'v> {
    kind: FrameKind,
    value: Cow<'v, [u8]>,
    entry: Vec<u8>,
}

impl Change<'_> {
    /// By how many there are more records.
    fn count(&self) -> i64 {
        match self.kind {
            INSERT => 1,
            REMOVE => -1,
            _ => 0,
        }
    }

    fn class(&self) -> AllocationClass {
        match self.kind {
            REMOVE => AllocationClass::Removal,
            _ => AllocationClass::Growth,
        }
    }
}

/// Whether an edit was appended: where a comparator panics before the layer has it, the log has what no reader sees, and the store is
/// poisoned.
struct Appended<'c> {
    log: &'c Log,
    is_set: Cell<bool>,
}

impl<'c> Appended<'c> {
    fn new(log: &'c Log) -> Self {
        let is_set = Cell::new(false);
        Self { log, is_set }
    }

    fn set(&self) {
        self.is_set.set(true);
    }

    fn is_set(&self) -> bool {
        self.is_set.get()
    }
}

impl Drop for Appended<'_> {
    fn drop(&mut self) {
        if self.is_set() && std::thread::panicking() {
            self.log.poison();
        }
    }
}

/// What an edit by one thread came to.
#[derive(Default)]
struct Outcome {
    failed: Option<Error>,
    is_appended: bool,
    count: i64,
    bytes: u64,
}

impl Core {
    /// What every edit begins with.
    fn begin_edit(&self) -> Result<()> {
        self.log.healthy()?;
        if self.log.is_alarmed() {
            self.log.placed()?;
        }
        if self.pending.load(Ordering::Relaxed) < self.options.memory || epoch::is_within_update() {
            return Ok(());
        }
        self.merge_for_room()
    }

    fn end_edit(&self) -> Result<()> {
        match self.options.durability {
            Durability::Process => Ok(()),
            Durability::Power => self.log.sync(),
        }
    }

    /// Step 3 of an edit that was decided, without the append. `None`: nothing changes.
    fn change<'v>(
        view: &View,
        key: &[u8],
        is_present: bool,
        edit: Edit<'v>,
    ) -> Result<Option<Change<'v>>> {
        Ok(match edit {
            Edit::Put(value) => {
                limits(view.base.order()).check(key, &value)?;
                let kind = if is_present { PUT } else { INSERT };
                let entry = PendingEdit::Replaces(Cow::Borrowed(&value)).encode()?;
                Some(Change { kind, value, entry })
            }
            Edit::Remove if is_present => Some(Change {
                kind: REMOVE,
                value: Cow::default(),
                entry: PendingEdit::Removed.encode()?,
            }),
            Edit::Remove | Edit::Keep => None,
        })
    }

    fn append(&self, pin: &Pin, key: &[u8], change: &Change<'_>) -> Result<()> {
        let entry = Entry {
            kind: change.kind,
            flags: 0,
            key,
            value: &change.value,
        };
        let class = change.class();
        self.log.admit(class, entry.frame_len())?;
        self.log.append(&pin.critical_section(), &entry, class)?;
        Ok(())
    }

    /// Has `make` decide on the record of `key`, and does it.
    fn edit<'a>(
        &self,
        key: &[u8],
        mut make: impl FnMut(&View, Option<&[u8]>, Option<&[u8]>) -> Result<Option<Change<'a>>>,
    ) -> Result<()> {
        self.begin_edit()?;
        let mut outcome = Outcome::default();
        let appended = Appended::new(&self.log);
        {
            let _inside = self.gate.enter();
            let pin = self.log.pin();
            let view = self.view.get(&pin);
            limits(view.base.order()).check(key, &[])?;
            let applied = view.active.entries.update(key, &mut |entry| {
                let made = view.read_over(&self.reducer, key, entry, |present| {
                    let change = make(view, entry, present)?;
                    if let Some(change) = &change {
                        self.append(&pin, key, change)?;
                        appended.set();
                    }
                    Ok(change)
                });
                match made.and_then(|made| made) {
                    Ok(None) => Edit::Keep,
                    Ok(Some(change)) => {
                        outcome.count = change.count();
                        outcome.bytes = (key.len() + change.value.len()) as u64 + EDIT_BYTES;
                        Edit::Put(change.entry.into())
                    }
                    Err(error) => {
                        outcome.failed = Some(error);
                        Edit::Keep
                    }
                }
            });
            outcome.is_appended = appended.is_set();
            self.finish_edit(&pin, applied, outcome)?;
        }
        self.end_edit()
    }

    /// Step 4: what the layer answered.
    fn finish_edit(&self, pin: &Pin, applied: Result<()>, outcome: Outcome) -> Result<()> {
        // Also where the device took back what the closure was shown of the file.
        if outcome.is_appended && (applied.is_err() || outcome.failed.is_some()) {
            self.log.poison();
        }
        applied?;
        if let Some(error) = outcome.failed {
            return Err(error);
        }
        if outcome.count != 0 {
            let _section = pin.critical_section();
            self.count.add(pin, outcome.count);
        }
        self.pending.fetch_add(outcome.bytes, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.edit(key, |view, _, present| {
            Self::change(view, key, present.is_some(), decide(present))
        })
    }

    /// Reduces `value` with what `key` has.
    pub(super) fn add(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.edit(key, |view, entry, present| {
            let limits = limits(view.base.order());
            let Some(present) = present else {
                return Self::change(view, key, false, Edit::put(value));
            };
            if let Reducer::Concat(between) = &self.reducer {
                // Nothing of it is made before its length is known to be one.
                limits.check_len(key, present.len() + between.len() + value.len())?;
            }
            limits.check(key, value)?;
            let below = entry.map(PendingEdit::decode);
            let added = PendingEdit::Adds(value.into()).over(below, &self.reducer)?;
            Ok(Some(Change {
                kind: ADD,
                value: value.into(),
                entry: added.encode()?,
            }))
        })
    }

    pub(super) fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        self.begin_edit()?;
        let distinct = Distinct::of(keys)?;
        let mut outcome = Outcome::default();
        let appended = Appended::new(&self.log);
        {
            let _inside = self.gate.enter();
            let pin = self.log.pin();
            let view = self.view.get(&pin);
            let order_limits = limits(view.base.order());
            for key in keys {
                order_limits.check(key, &[])?;
            }
            let keys = &distinct.records;
            let mut decide = Some(decide);
            let applied = view.active.entries.update_many(keys, &mut |entries| {
                let Some(decide) = decide.take() else {
                    return Vec::new();
                };
                let made = self.change_many(&pin, view, (&distinct, entries), decide, &mut outcome);
                if outcome.is_appended {
                    appended.set();
                }
                made.unwrap_or_else(|error| {
                    outcome.failed = Some(error);
                    entries.iter().map(|_| Edit::Keep).collect()
                })
            });
            self.finish_edit(&pin, applied, outcome)?;
        }
        self.end_edit()
    }

    /// Steps 2 and 3 of `update_many`: the edits of the layer.
    fn change_many(
        &self,
        pin: &Pin,
        view: &View,
        (distinct, entries): (&Distinct<'_>, &[Option<&[u8]>]),
        decide: DecideMany<'_, '_>,
        outcome: &mut Outcome,
    ) -> Result<Vec<Edit<'static>>> {
        let keys = &distinct.records;
        let mut values: Vec<Option<Vec<u8>>> = room::vec(keys.len())?;
        for (key, entry) in keys.iter().zip(entries) {
            let copy = |value: Option<&[u8]>| value.map(room::copy).transpose();
            values.push(view.read_over(&self.reducer, key, *entry, copy)??);
        }
        let shown = room::collect(values.iter().map(Option::as_deref))?;
        let edits = distinct.decide(&shown, decide)?;
        let mut changes = room::vec(keys.len())?;
        for ((key, value), edit) in keys.iter().zip(&values).zip(edits) {
            changes.push(Self::change(view, key, value.is_some(), edit)?);
        }
        let mut frames = room::vec(keys.len())?;
        let mut class = AllocationClass::Removal;
        for (key, change) in keys.iter().zip(&changes) {
            let Some(change) = change else { continue };
            frames.push(Entry {
                kind: change.kind,
                flags: 0,
                key,
                value: &change.value,
            });
            if change.kind != REMOVE {
                class = AllocationClass::Growth;
            }
            outcome.count += change.count();
            outcome.bytes += (key.len() + change.value.len()) as u64 + EDIT_BYTES;
        }
        let mut layer_edits = room::vec(keys.len())?;
        if !frames.is_empty() {
            self.log.admit(class, Entry::batch_len(&frames))?;
            let section = pin.critical_section();
            match &frames[..] {
                [entry] => self.log.append(&section, entry, class).map(drop)?,
                _ => self.log.append_batch(&section, &frames, class, |_, _| {})?,
            }
            outcome.is_appended = true;
        }
        drop(frames);
        for change in changes {
            layer_edits.push(change.map_or(Edit::Keep, |change| Edit::Put(change.entry.into())));
        }
        Ok(layer_edits)
    }

    pub(super) fn clear(&self) -> Result<()> {
        gate::outside_updates()?;
        self.log.healthy()?;
        self.log.placed()?;
        let next = Layer::new(self.order(), true)?;
        {
            let _alone = self.gate.alone();
            self.append_alone(CLEAR)?;
            self.count.reset();
            self.replace_view(|view| View {
                active: next,
                ..view.clone()
            });
            self.pending.fetch_add(EDIT_BYTES, Ordering::Relaxed);
        }
        self.end_edit()
    }

    pub(super) fn revert(&self) -> Result<()> {
        gate::outside_updates()?;
        self.log.healthy()?;
        self.log.placed()?;
        let next = Layer::new(self.order(), false)?;
        {
            // A merge that is under way ends first: what it writes is merged. One that failed is not.
            let mut merging = self.merging.lock();
            let _alone = self.gate.alone();
            self.append_alone(REVERT)?;
            merging.forget_cut();
            self.replace_view(|view| View {
                base: Arc::clone(&view.base),
                frozen: None,
                active: next,
            });
            let pin = self.log.pin();
            let base_count = self.view.get(&pin).base.count();
            self.count.reset();
            let _section = pin.critical_section();
            self.count.add(&pin, base_count.cast_signed());
            self.pending.fetch_add(EDIT_BYTES, Ordering::Relaxed);
        }
        self.end_edit()
    }

    /// Appends a frame without key and value, by the holder of the gate.
    fn append_alone(&self, kind: FrameKind) -> Result<()> {
        let entry = Entry {
            kind,
            flags: 0,
            key: &[],
            value: &[],
        };
        let pin = self.log.pin();
        let class = AllocationClass::Removal;
        self.log.append(&pin.critical_section(), &entry, class)?;
        Ok(())
    }

    /// Publishes another view, made of the one before.
    pub(super) fn replace_view(&self, next: impl FnOnce(&View) -> View) {
        let replaced: std::result::Result<(), std::convert::Infallible> =
            self.view.replace(|view| Ok(Some(next(view))));
        let Ok(()) = replaced;
    }
}
