//! Updating: lock the leaf, append, change the leaf.
//!
//! | step of a put | a crash here leaves |
//! |---|---|
//! | 1 write a long value to a run of its own | nothing |
//! | 2 enter the gate; go down without locks; lock the leaf | nothing |
//! | 3 divide it while there is no room, each time as a change of its own | nothing: which leaf a record is in does not matter |
//! | 4 append the record: the position of the change | the new record |
//! | 5 keep what a cut needs of the leaf; change it; count | the new record |
//! | 6 unlock; end the critical section; join a leaf that is sparse | the new record |
//!
//! The closure of an update runs between 2 and 3, once. Updates of many lock all leaves by rising keys, show all values, divide what
//! needs it, and append one batch: whenever the process dies, all of it happened or none.

use super::Core;
use super::LIMITS;
use super::cache::AppendedAt;
use super::layout::{CLEAR, PUT, REMOVE, REMOVE_RANGE, UNIT, decode_bounds};
use super::run::NewRun;
use crate::engine::{DecideMany, Durability, Edit};
use crate::epoch;
use crate::error::{Error, Kind, Result};
use crate::format::frame::FrameKind;
use crate::log::{AllocationClass, Entry};
use crate::node::tree::{Buffer, Frame, Held, NodeStore, ROOT, Seen, To, is_sparse};
use crate::node::{Found, Node, Value};
use crate::order::check_range;
use crate::record::gate::Inside;
use crate::record::many::Distinct;
use crate::room;

/// Of removals that were decided on, for which room was made before: others may have taken it since.
const DECIDED: AllocationClass = AllocationClass::Cleaning;
/// A batch of less than such a part of a segment is not looked at twice in a full store.
const PART_KEPT: u64 = 4;
/// Bytes that a removal takes in a batch besides its key, at most.
pub(super) const MANY_LEN: usize = 24;

/// What becomes of a record, with the run that was made for it.
pub(super) struct Change<'v, 'c> {
    key: &'v [u8],
    /// As it is appended; `None`: it is removed.
    bytes: Option<&'v [u8]>,
    value: Option<Value<'v>>,
    run: Option<NewRun<'c>>,
}

impl<'v> Change<'v, '_> {
    fn entry(&self) -> Entry<'v> {
        let kind = if self.bytes.is_some() { PUT } else { REMOVE };
        Entry {
            kind,
            flags: 0,
            key: self.key,
            value: self.bytes.unwrap_or_default(),
        }
    }

    /// Bytes that its leaf must have room for, at most.
    fn len(&self, node: Node<'_>) -> usize {
        let Some(value) = self.value else { return 0 };
        let len = value.stored_len();
        let (at, is_present) = node.find(self.key);
        match is_present.then(|| node.value(at)) {
            Some(Found::Inside(before, _)) if before == len => 0,
            Some(Found::Outside(_)) if len == 8 => 0,
            _ => 8 + self.key.len() + len,
        }
    }
}

fn put_entry<'v>(key: &'v [u8], value: &'v [u8]) -> Entry<'v> {
    Entry {
        kind: PUT,
        flags: 0,
        key,
        value,
    }
}

impl Core {
    /// What every update begins with, of so many bytes, for which room is made in a full store.
    #[inline(always)]
    pub(super) fn begin(&self, class: AllocationClass, len: usize) -> Result<Inside<'_>> {
        self.log.healthy()?;
        if self.is_attention_due() {
            self.attend(class, len)?;
        }
        Ok(self.gate.enter())
    }

    #[inline(always)]
    pub(super) fn end(&self) -> Result<()> {
        if self.options.durability == Durability::Power {
            self.log.sync()
        } else {
            Ok(())
        }
    }

    #[inline(always)]
    pub(super) fn node_of<'f>(&self, frame: &'f Frame) -> Node<'f> {
        self.tree.node(frame)
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        LIMITS.check(key, value)?;
        let class = AllocationClass::Growth;
        let entry = put_entry(key, value);
        self.with_room(|| {
            let _inside = self.begin(class, entry.frame_len())?;
            self.put_inside(key, value, class)
        })?;
        self.end()
    }

    /// A put, inside the gate.
    pub(super) fn put_inside(
        &self,
        key: &[u8],
        value: &[u8],
        class: AllocationClass,
    ) -> Result<()> {
        let (form, run) = self.value(value, class)?;
        let held = self.tree.lock_leaf(key)?;
        self.store(held, key, (value, form, run), class)
    }

    /// Gives `key` a value, in its leaf, which is held.
    #[inline(always)]
    fn store<'t>(
        &'t self,
        mut held: Held<'t>,
        key: &[u8],
        (bytes, value, run): (&[u8], Value<'_>, Option<NewRun<'_>>),
        class: AllocationClass,
    ) -> Result<()> {
        let mut node = self.node_of(held.frame);
        let (mut at, mut is_present) = node.find(key);
        while !node.could_set(at, is_present, key, value) {
            let (left, right) = self.tree.divide(held, key, ())?;
            held = if self.node_of(right.frame).covers(key) {
                right
            } else {
                left
            };
            node = self.node_of(held.frame);
            (at, is_present) = node.find(key);
        }
        let before = is_present.then(|| node.value(at));
        let entry = put_entry(key, bytes);
        let moment = self.tree.nodes.append(self.log.pin(), &entry, class)?;
        self.tree.nodes.change(&held, &moment);
        let is_set = node.set(at, is_present, key, value);
        debug_assert!(is_set, "it fits");
        self.finish(&moment, i64::from(!is_present), before, run);
        drop(held);
        Ok(())
    }

    /// What the moment of a change covers besides the leaf.
    #[inline(always)]
    fn finish(
        &self,
        moment: &AppendedAt,
        count: i64,
        before: Option<Found>,
        run: Option<NewRun<'_>>,
    ) {
        if count != 0 {
            self.counts.since[moment.counter()].add(moment.pin(), count);
        }
        self.supersede(before, moment.at);
        if let Some(run) = run {
            run.name(moment.at);
        }
    }

    pub(super) fn remove(&self, key: &[u8]) -> Result<bool> {
        let class = AllocationClass::Removal;
        let is_removed = self.with_room(|| {
            let _inside = self.begin(class, 0)?;
            let held = self.tree.lock_leaf(key)?;
            self.erase(held, key, class)
        })?;
        self.end()?;
        Ok(is_removed)
    }

    /// Removes `key` from its leaf, which is held; whether it was there.
    fn erase(&self, held: Held<'_>, key: &[u8], class: AllocationClass) -> Result<bool> {
        let Some(is_sparse) = self.erase_held(&held, key, class)? else {
            return Ok(false);
        };
        drop(held);
        if is_sparse {
            self.join_leaf(key);
        }
        Ok(true)
    }

    /// As `erase`, and the leaf stays held; whether it is sparse now, or `None`: the key was not there.
    pub(super) fn erase_held(
        &self,
        held: &Held<'_>,
        key: &[u8],
        class: AllocationClass,
    ) -> Result<Option<bool>> {
        let node = self.node_of(held.frame);
        let (at, is_present) = node.find(key);
        if !is_present {
            return Ok(None);
        }
        let before = node.value(at);
        let entry = Entry {
            kind: REMOVE,
            flags: 0,
            key,
            value: &[],
        };
        let moment = self.tree.nodes.append(self.log.pin(), &entry, class)?;
        self.tree.nodes.change(held, &moment);
        node.remove(at);
        self.finish(&moment, -1, Some(before), None);
        drop(moment);
        Ok(Some(is_sparse(node)))
    }

    /// One update.
    pub(super) fn edit<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        LIMITS.check(key, &[])?;
        let class = AllocationClass::Growth;
        {
            self.win_room_for(key.len())?;
            let _inside = self.begin(AllocationClass::Removal, 0)?;
            let pin = self.log.pin();
            let held = self.tree.lock_leaf(key)?;
            let node = self.node_of(held.frame);
            let mut buffer = Buffer::default();
            let edit = self.show(node, key, &mut buffer, decide)?;
            drop(pin);
            match edit {
                Edit::Put(value) => {
                    LIMITS.check(key, &value)?;
                    self.log.admit(class, put_entry(key, &value).frame_len())?;
                    let (form, run) = self.value(&value, class)?;
                    self.store(held, key, (&value, form, run), class)?;
                }
                Edit::Remove => {
                    self.erase(held, key, DECIDED)?;
                }
                Edit::Keep => {}
            }
        }
        self.end()
    }

    fn show<'a>(
        &self,
        node: Node<'_>,
        key: &[u8],
        buffer: &mut Buffer,
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<Edit<'a>> {
        Ok(match Seen::in_leaf(node, key, buffer) {
            Seen::Absent => decide(None),
            Seen::Copied(len) => decide(Some(buffer.bytes(len))),
            Seen::Outside(word) => {
                let value = self.read_run(word).map_err(|error| error.key(key))?;
                decide(Some(&value))
            }
        })
    }

    /// All leaves locked, all values shown, then all edits: isolated, and one frame.
    pub(super) fn edit_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        for key in keys {
            LIMITS.check(key, &[])?;
        }
        // Room for the removal of all of them.
        let len = keys.iter().map(|key| key.len() + MANY_LEN).sum();
        self.win_room_for(len)?;
        let done = {
            let _inside = self.begin(AllocationClass::Removal, len)?;
            self.edit_many_inside(keys, decide)
        };
        match done {
            // It is not decided on twice; the next one finds what can be won.
            Err(error) if error.kind() == Kind::Full && !epoch::is_within_update() => {
                Self::unless_full(self.win_room())?;
                Err(error)
            }
            Err(error) => Err(error),
            Ok(()) => self.end(),
        }
    }

    fn edit_many_inside(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        let distinct = Distinct::of(keys)?;
        let records = &distinct.records;
        let mut sorted = room::collect(0..records.len())?;
        sorted.sort_unstable_by(|a, b| self.tree.order.compare(records[*a], records[*b]));
        let pin = self.log.pin();
        let mut held: Vec<Held<'_>> = room::vec(records.len())?;
        let mut values: Vec<Option<Vec<u8>>> = room::collect(records.iter().map(|_| None))?;
        for at in &sorted {
            let key = records[*at];
            let covers = |held: &Held<'_>| self.node_of(held.frame).covers(key);
            if !held.last().is_some_and(covers) {
                self.check_leaves(held.len())?;
                held.push(if held.is_empty() {
                    self.tree.lock_leaf(key)?
                } else {
                    self.tree.lock_next_leaf(To::Key(key))?
                });
            }
            if let Some(leaf) = held.last() {
                values[*at] = self.value_in(self.node_of(leaf.frame), key)?;
            }
        }
        drop(pin);
        let shown = room::collect(values.iter().map(Option::as_deref))?;
        let edits = distinct.decide(&shown, decide)?;
        let mut changes: Vec<Change<'_, '_>> = room::vec(records.len())?;
        for at in &sorted {
            let (key, value) = (records[*at], &edits[*at]);
            let bytes = match value {
                Edit::Put(value) => Some(&value[..]),
                Edit::Remove if values[*at].is_some() => None,
                Edit::Remove | Edit::Keep => continue,
            };
            if let Some(bytes) = bytes {
                LIMITS.check(key, bytes)?;
            }
            changes.push(self.change(key, bytes)?);
        }
        self.change_many(held, changes)
    }

    /// The change of a record to a value, or to its absence.
    pub(super) fn change<'v>(
        &self,
        key: &'v [u8],
        bytes: Option<&'v [u8]>,
    ) -> Result<Change<'v, '_>> {
        let (mut value, mut run) = (None, None);
        if let Some(bytes) = bytes {
            let (form, made) = self.value(bytes, AllocationClass::Growth)?;
            (value, run) = (Some(form), made);
        }
        Ok(Change {
            key,
            bytes,
            value,
            run,
        })
    }

    /// Makes changes, in the order of their keys, of which the leaves are held: all of them, or none.
    pub(super) fn change_many(
        &self,
        held: Vec<Held<'_>>,
        changes: Vec<Change<'_, '_>>,
    ) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let entries = room::collect(changes.iter().map(Change::entry))?;
        let class = if changes.iter().all(|change| change.value.is_none()) {
            DECIDED
        } else {
            AllocationClass::Growth
        };
        let len = Entry::batch_len(&entries);
        self.log.admit(class, len)?;
        // What a part of a segment may add is kept anyway.
        if len as u64 > self.log.geometry().segment_size() / PART_KEPT {
            self.admit_many(&changes, len, class)?;
        }
        let leaves = self.make_room(held, &changes)?;
        self.apply(leaves, changes, &entries, class)
    }

    /// Refuses a batch of so many bytes before a leaf is divided for it. `TooLarge` if it fills more leaves than it may hold; `Full` if
    /// the journal, the pages that come in, and as much again for the checkpoint after the one that writes them, leave too little for
    /// a checkpoint: a store that took it could not remove anything any more.
    fn admit_many(
        &self,
        changes: &[Change<'_, '_>],
        len: usize,
        class: AllocationClass,
    ) -> Result<()> {
        let len_of = |change: &Change<'_, '_>| {
            let value = change.value.map(Value::stored_len);
            value.map_or(0, |value| 8 + change.key.len() + value)
        };
        let in_leaves: usize = changes.iter().map(len_of).sum();
        self.check_leaves(in_leaves / UNIT as usize)?;
        // A leaf that was divided is half full, at least.
        let pages = in_leaves.div_ceil(UNIT as usize / 2);
        let journal = len.div_ceil(UNIT as usize);
        let mut room = self.tree.nodes.space.room();
        room.admit((2 * pages + journal) as u64, class)
    }

    /// `TooLarge` if an update of many would hold so many leaves that the cache could be full of them.
    pub(super) fn check_leaves(&self, held: usize) -> Result<()> {
        let most = self.tree.nodes.limit() as usize / 8;
        if held < most {
            return Ok(());
        }
        Err(Error::new(
            Kind::TooLarge,
            "an update of many records touches too many pages at once",
        )
        .at(self.log.storage().path())
        .found(format!("more than {most} pages"), format!("{most} or less"))
        .remedy("read and update fewer at once, or open the store with a larger cache"))
    }

    /// Divides leaves, which are held, until each has room for all changes in it; those with changes, and the others.
    fn make_room<'t>(
        &'t self,
        held: Vec<Held<'t>>,
        changes: &[Change<'_, '_>],
    ) -> Result<(Vec<Held<'t>>, Vec<Held<'t>>)> {
        let mut ready: Vec<Held<'t>> = room::vec(held.len())?;
        let mut unchanged: Vec<Held<'t>> = room::vec(held.len())?;
        let mut waiting = held;
        waiting.reverse();
        let mut next = 0;
        while let Some(leaf) = waiting.pop() {
            let node = self.node_of(leaf.frame);
            let here = changes[next..]
                .iter()
                .take_while(|change| node.covers(change.key))
                .count();
            let mine = &changes[next..next + here];
            let needed: usize = mine.iter().map(|change| change.len(node)).sum();
            let fits = match mine {
                [one] => one.value.is_none_or(|value| {
                    let (at, is_present) = node.find(one.key);
                    node.could_set(at, is_present, one.key, value)
                }),
                _ => needed == 0 || node.fits(0, needed - 8),
            };
            if fits {
                next += here;
                if here > 0 {
                    ready.push(leaf);
                } else {
                    room::more(&mut unchanged, 1)?;
                    unchanged.push(leaf);
                }
                continue;
            }
            let key = mine[here / 2].key;
            let (left, right) = if node.count() >= 2 {
                self.tree.divide(leaf, key, ())?
            } else {
                // Between the new records: one of them has room next to one that is there.
                debug_assert!(here > 1);
                let (at, _) = node.find(key);
                self.tree.divide_at(leaf, at, key, ())?
            };
            self.check_leaves(ready.len() + unchanged.len() + waiting.len())?;
            room::more(&mut waiting, 2)?;
            waiting.push(right);
            waiting.push(left);
        }
        Ok((ready, unchanged))
    }

    /// Appends and applies changes whose leaves are held and have room. The others are as they are until that is done: no cut has a
    /// later change of one of them, and not these.
    fn apply(
        &self,
        (held, unchanged): (Vec<Held<'_>>, Vec<Held<'_>>),
        changes: Vec<Change<'_, '_>>,
        entries: &[Entry<'_>],
        class: AllocationClass,
    ) -> Result<()> {
        let mut sparse = room::vec(changes.len())?;
        let pages = &self.tree.nodes;
        let moment = match entries {
            [one] => pages.append(self.log.pin(), one, class)?,
            _ => pages.append_batch(self.log.pin(), entries, class)?,
        };
        // Before the first edit is seen, readers of the others wait.
        for leaf in &held {
            pages.change(leaf, &moment);
        }
        let mut leaf = 0;
        for change in changes {
            while !self.node_of(held[leaf].frame).covers(change.key) {
                leaf += 1;
            }
            let node = self.node_of(held[leaf].frame);
            let (at, is_present) = node.find(change.key);
            let before = is_present.then(|| node.value(at));
            if let Some(value) = change.value {
                let is_set = node.set(at, is_present, change.key, value);
                debug_assert!(is_set, "room was made");
                self.finish(&moment, i64::from(!is_present), before, change.run);
            } else if is_present {
                node.remove(at);
                self.finish(&moment, -1, before, None);
                if is_sparse(node) {
                    sparse.push(change.key);
                }
            }
        }
        drop((held, unchanged));
        drop(moment);
        for key in sparse {
            self.join_leaf(key);
        }
        Ok(())
    }

    /// Joins the leaf of `key`, which became sparse, with a neighbour.
    pub(super) fn join_leaf(&self, key: &[u8]) {
        if let Err(error) = self.tree.join_leaf(key) {
            // It may be joined another time; what was asked for is done.
            tracing::debug!(%error, "a leaf is not joined");
        }
    }

    /// Removes everything, while no other update is under way. A reader sees all of it or nothing.
    pub(super) fn clear(&self) -> Result<()> {
        self.log.healthy()?;
        self.with_room(|| {
            // No cut comes between the journal's frame and the pages.
            let _checkpoint = self.checkpoint.lock();
            let _alone = self.gate.alone();
            let _taking = self.tree.nodes.cuts.taking();
            self.clear_alone()
        })?;
        self.end()
    }

    /// As `clear`, alone.
    pub(super) fn clear_alone(&self) -> Result<()> {
        let pages = &self.tree.nodes;
        // Its chunks are read first: what cannot be read must not end it half way.
        let given_out = pages.space.room().pages();
        for page in (0..given_out).step_by(super::layout::CHUNK) {
            pages.load_chunk(page)?;
        }
        let root = self.tree.lock_root()?;
        let entry = Entry {
            kind: CLEAR,
            flags: 0,
            key: &[],
            value: &[],
        };
        let moment = pages.append(self.log.pin(), &entry, AllocationClass::Removal)?;
        pages.change(&root, &moment);
        pages.retire_all(&root, moment.at);
        self.node_of(root.frame).init(0, None, None);
        self.counts.reset();
        debug_assert_eq!(root.number, ROOT);
        Ok(())
    }

    /// One record of the journal, again.
    pub(super) fn replay(&self, kind: FrameKind, key: &[u8], value: &[u8]) -> Result<()> {
        let impossible = |detail: &str| {
            Error::new(
                Kind::Corrupted,
                "the journal has a record that no tree file takes",
            )
            .at(self.log.storage().path())
            .detail(detail)
        };
        LIMITS
            .check(key, value)
            .map_err(|error| impossible(error.what()))?;
        match kind {
            PUT => self.put_inside(key, value, AllocationClass::Checkpoint),
            REMOVE => {
                let held = self.tree.lock_leaf(key)?;
                self.erase(held, key, AllocationClass::Checkpoint)
                    .map(|_| ())
            }
            CLEAR => self.clear_alone(),
            REMOVE_RANGE => {
                let keys = decode_bounds(value);
                let keys = keys.filter(|keys| check_range(*keys, self.tree.order).is_ok());
                self.remove_range_again(keys.ok_or_else(|| impossible("no range of keys"))?)
            }
            _ => Ok(()),
        }
    }
}
