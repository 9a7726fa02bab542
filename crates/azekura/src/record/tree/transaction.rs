//! Transactions: reads at a snapshot, writes that are kept until the end, and then all of them or none, if nothing that they rest on has
//! changed.
//!
//! | step of a commit | a crash here leaves |
//! |---|---|
//! | 1 the keys that are written, and the keys and ranges that were read, in order | nothing |
//! | 2 lock their leaves, by rising keys | nothing |
//! | 3 compare what is there with what the snapshot has: a difference is a `Conflict` | nothing |
//! | 4 divide, append one batch, change the leaves (`update`) | all of it, or nothing |
//! | 5 unlock | all of it |
//!
//! 1. *Serializable*: what was read is as it was read, from step 2 to step 5, and so are the gaps in ranges. So each transaction that
//!    commits is as if it had run alone between two others, in the order of their batches in the journal; every snapshot and every
//!    recovered store shows a beginning of that order.
//! 2. *Snapshot isolation*, by option: only what is written is compared. No update is lost; but two transactions may each read what
//!    the other writes.
//! 3. A transaction without writes commits at once: all that it read is of one moment.
//! 4. Values are compared: a record that is as it was is no conflict, whatever it was in between.
//!
//! Leaves are locked by rising keys, and nothing else is waited for meanwhile but pages that come into memory, so no two commits wait
//! for each other. It does not know how a change is stored.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::time::Duration;

use super::cluster::{is_long, stem_of, value_beyond};
use super::snapshot::Snapshot;
use super::update::MANY_LEN;
use super::view::View;
use super::walk::{Beginning, RecordCursor, show_copied};
use super::{Core, TreeDb};
use crate::engine::Cursor;
use crate::error::{Error, Kind, Result};
use crate::explore::{self, Mutex};
use crate::log::AllocationClass;
use crate::node::tree::{Buffer, Held, LeafCopy, Seen, To};
use crate::node::{Key, Node};
use crate::order::Order;
use crate::range::Range;
use crate::record::gate;
use crate::room;

/// Keys and ranges that a transaction may read.
const READS_MAX: usize = 1 << 20;
/// How often [`TreeDb::transact`] tries.
const TRIES: u32 = 16;
/// How long it waits at first before it tries again, at most; each time twice as long.
const PAUSE: Duration = Duration::from_micros(50);

/// What concurrent transactions may see of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Nothing: each is as if it had run alone.
    #[default]
    Serializable,
    /// Two may each read what the other writes; no update is lost.
    Snapshot,
}

/// A key, in an order.
#[derive(Debug)]
struct InOrder {
    order: Order,
    key: Vec<u8>,
}

impl PartialEq for InOrder {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for InOrder {}

impl PartialOrd for InOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.compare(&self.key, &other.key)
    }
}

/// From one key, which is in it, to another; `None`: from the first, to the last of all.
#[derive(Clone, Debug, Default)]
struct Span {
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    /// Whether the key to which it goes is not in it.
    is_open: bool,
}

impl Span {
    fn point(key: &[u8]) -> Result<Self> {
        Ok(Self {
            from: Some(room::copy(key)?),
            to: Some(room::copy(key)?),
            is_open: false,
        })
    }

    /// What both cover; if that is nothing, it ends before it begins.
    fn clipped(mut self, within: &Self, order: Order) -> Self {
        if let Some(least) = &within.from
            && (self.from.as_ref()).is_none_or(|from| order.compare(from, least).is_lt())
        {
            self.from = Some(least.clone());
        }
        if self.reaches(within, order) {
            self.to.clone_from(&within.to);
            self.is_open = within.is_open;
        }
        self
    }

    /// Whether it ends before it begins.
    fn is_empty(&self, order: Order) -> bool {
        (self.from.as_ref()).is_some_and(|from| self.ends_before(from, order))
    }

    /// Whether it goes at least as far as another.
    fn reaches(&self, other: &Self, order: Order) -> bool {
        match (&self.to, &other.to) {
            (None, _) => true,
            (_, None) => false,
            (Some(own), Some(other_to)) => match order.compare(own, other_to) {
                Ordering::Greater => true,
                Ordering::Equal => !self.is_open || other.is_open,
                Ordering::Less => false,
            },
        }
    }

    /// Whether it ends before a key.
    fn ends_before(&self, key: &[u8], order: Order) -> bool {
        self.to
            .as_ref()
            .is_some_and(|to| match order.compare(to, key) {
                Ordering::Less => true,
                Ordering::Equal => self.is_open,
                Ordering::Greater => false,
            })
    }
}

/// What was written; `None`: removed.
type Writes = BTreeMap<InOrder, Option<Vec<u8>>>;

#[derive(Debug, Default)]
struct State {
    writes: Writes,
    reads: Vec<Span>,
}

/// Reads at one moment, and writes that happen together at its end, or not at all. Its own writes are seen by its reads.
///
/// Nothing is locked before it [`commit`](Self::commit)s; dropped, it has done nothing. Costs a [`Snapshot`] while it lives, and memory
/// for its writes, and for the keys that it read.
#[derive(Debug)]
pub struct Transaction<'d> {
    snapshot: Snapshot<'d>,
    isolation: Isolation,
    state: Mutex<State>,
}

impl TreeDb {
    /// Begins a transaction, which is [`Serializable`](Isolation::Serializable). `Invalid` inside the closure of an update.
    pub fn transaction(&self) -> Result<Transaction<'_>> {
        self.transaction_with(Isolation::Serializable)
    }

    /// Begins a transaction with this isolation. `Invalid` inside the closure of an update.
    pub fn transaction_with(&self, isolation: Isolation) -> Result<Transaction<'_>> {
        Ok(Transaction {
            snapshot: self.snapshot()?,
            isolation,
            state: Mutex::default(),
        })
    }

    /// Calls `work` with a transaction, and commits that; again from the beginning, up to 16 times, where others came before it. Returns
    /// what `work` returned last. Errors: those of `work`, with which nothing is changed, and of
    /// [`commit`](Transaction::commit); a `Conflict` or `TooOld` of `work` is tried again, too.
    pub fn transact<T>(
        &self,
        mut work: impl FnMut(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        for tries in 0.. {
            let mut transaction = self.transaction()?;
            let done =
                work(&mut transaction).and_then(|answer| transaction.commit().map(|()| answer));
            match done {
                Err(error)
                    if matches!(error.kind(), Kind::Conflict | Kind::TooOld)
                        && tries + 1 < TRIES => {}
                done => return done,
            }
            if !explore::wait() {
                let longest = PAUSE * (1 << tries);
                // Keys of hashes differ from call to call.
                let part = RandomState::new().build_hasher().finish() as u32;
                std::thread::sleep(longest.mul_f64(f64::from(part) / f64::from(u32::MAX)));
            }
        }
        unreachable!("the tries have no end")
    }
}

impl Transaction<'_> {
    fn order(&self) -> Order {
        self.snapshot.order()
    }

    fn in_order(&self, key: &[u8]) -> Result<InOrder> {
        Ok(InOrder {
            order: self.order(),
            key: room::copy(key)?,
        })
    }

    /// Notes what was read.
    fn note(&self, span: Span) -> Result<()> {
        if self.isolation == Isolation::Snapshot {
            return Ok(());
        }
        let order = self.order();
        if span.is_empty(order) {
            // All of it is beyond what was asked for.
            return Ok(());
        }
        let reads = &mut self.state.lock().reads;
        if let Some(last) = reads.last_mut() {
            let is_same = |a: &Option<Vec<u8>>, b: &Option<Vec<u8>>| a.is_some() && a == b;
            if is_same(&last.to, &span.from) {
                (last.to, last.is_open) = (span.to, span.is_open);
                return Ok(());
            }
            if is_same(&last.from, &span.to) {
                last.from = span.from;
                return Ok(());
            }
        }
        if reads.len() >= READS_MAX {
            *reads = merged(std::mem::take(reads), order);
            if reads.len() > READS_MAX / 2 {
                return Err(self.too_large(reads.len()));
            }
        }
        room::more(reads, 1)?;
        reads.push(span);
        Ok(())
    }

    fn too_large(&self, found: usize) -> Error {
        Error::new(Kind::TooLarge, "a transaction reads too many keys")
            .at(self.snapshot.core.log.storage().path())
            .found(found, format!("at most {}", READS_MAX / 2))
            .remedy("read less in it, or with `Isolation::Snapshot`, or a snapshot")
    }

    /// The value of `key`: as it was written here, or else at the transaction's beginning. Errors: as of
    /// [`Snapshot::get`]; `TooLarge` if it has read a million keys and ranges, and more than half of them do not meet.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        self.snapshot.core.limits.check(key, &[])?;
        let sought = self.in_order(key)?;
        if let Some(written) = self.state.lock().writes.get(&sought) {
            return Ok(written.clone());
        }
        self.note(Span::point(key)?)?;
        self.snapshot.get(key)
    }

    /// Records whose keys are in a range, each a copy, in order, from either end, with what was written here. What it was not asked for
    /// was not read, but the key of an excluded beginning counts as read. `Invalid` where the range ends before it begins.
    pub fn range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<Range<'_>> {
        let key_of = |bound: Bound<&K>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        let within = Span {
            from: key_of(keys.start_bound()),
            to: key_of(keys.end_bound()),
            is_open: matches!(keys.end_bound(), Bound::Excluded(_)),
        };
        let cursors = [
            Box::new(MergedCursor::new(self, within.clone())) as Box<dyn Cursor + '_>,
            Box::new(MergedCursor::new(self, within)),
        ];
        Range::new(cursors, self.order(), keys)
            .map_err(|error| error.at(self.snapshot.core.log.storage().path()))
    }

    /// Sets the value of `key`, when it commits. Errors: `TooLarge`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.snapshot
            .core
            .limits
            .check(key.as_ref(), value.as_ref())?;
        let value = room::copy(value.as_ref())?;
        self.write(key.as_ref(), Some(value))
    }

    /// Removes `key`, when it commits. Errors: `TooLarge`.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.snapshot.core.limits.check(key.as_ref(), &[])?;
        self.write(key.as_ref(), None)
    }

    fn write(&self, key: &[u8], value: Option<Vec<u8>>) -> Result<()> {
        let key = self.in_order(key)?;
        self.state.lock().writes.insert(key, value);
        Ok(())
    }

    /// Does all that was written, as one change: isolated from all others, and whole or absent after a crash. Then it survives what the
    /// store's durability states.
    ///
    /// Errors, with which nothing is changed: `Invalid` inside the closure of an update; `Conflict` if something that was written, or read in a serializable one, is not as it was
    /// at the beginning; `TooOld` if its snapshot was ended; `TooLarge` if that is in more leaves than an eighth of the cache has;
    /// and as of an update.
    pub fn commit(self) -> Result<()> {
        gate::outside_updates()?;
        let Self {
            snapshot, state, ..
        } = self;
        let State { writes, reads } = std::mem::take(&mut *state.lock());
        if writes.is_empty() {
            return Ok(());
        }
        snapshot.commits()?;
        snapshot.core.commit(&snapshot, &writes, reads)
    }
}

/// Spans in order, those that meet as one.
fn merged(mut spans: Vec<Span>, order: Order) -> Vec<Span> {
    spans.sort_by(|a, b| match (&a.from, &b.from) {
        (Some(a), Some(b)) => order.compare(a, b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    });
    spans.dedup_by(|next, last| {
        // The one before reaches to where this begins, or beyond.
        let meets = next
            .from
            .as_ref()
            .is_none_or(|from| !last.ends_before(from, order));
        if meets && !last.reaches(next, order) {
            (last.to, last.is_open) = (next.to.take(), next.is_open);
        }
        meets
    });
    spans
}

impl Core {
    fn commit(&self, snapshot: &Snapshot<'_>, writes: &Writes, reads: Vec<Span>) -> Result<()> {
        let mut spans = reads;
        room::more(&mut spans, writes.len())?;
        let mut len = 0;
        for (InOrder { key, .. }, value) in writes {
            spans.push(Span::point(key)?);
            len += key.len() + MANY_LEN + value.as_ref().map_or(0, Vec::len);
        }
        let spans = merged(spans, self.tree.order);
        self.win_room_for(len)?;
        let class = if writes.values().all(Option::is_none) {
            AllocationClass::Removal
        } else {
            AllocationClass::Growth
        };
        self.with_room(class, || {
            let _inside = self.begin(AllocationClass::Removal, len)?;
            let mut held = Vec::new();
            if let Err(error) = self.lock_spans(&spans, &mut held) {
                self.verify_some(snapshot, &held, &spans)?;
                return Err(error);
            }
            self.verify(snapshot, &held, &spans)?;
            let written = writes.iter();
            let written = written.map(|(key, value)| (&key.key[..], value.as_deref()));
            let changes = self.changes(&held, &room::collect(written)?)?;
            self.change_many(held, changes)
        })?;
        self.end()
    }

    /// Locks the leaves that spans, which are in order, cover.
    fn lock_spans<'t>(&'t self, spans: &[Span], held: &mut Vec<Held<'t>>) -> Result<()> {
        let order = self.tree.order;
        let mut fence = Key::default();
        for span in spans {
            let is_covered = |held: &Held<'_>| match &span.from {
                Some(from) => self.node_of(held.frame).covers(from),
                None => true,
            };
            if !held.last().is_some_and(is_covered) {
                // As it is, whatever its length: in orders but the lexical its stem may be elsewhere.
                let way = (span.from.as_ref()).map_or(To::First, |from| To::Key(from));
                self.lock_more(held, way)?;
            }
            loop {
                let last = held.last().map(|last| self.node_of(last.frame));
                if last.is_none_or(|last| last.upper(&mut fence).is_none()) {
                    // No leaf is after it, and none of the spans.
                    return Ok(());
                }
                let upper = fence.bytes();
                if span.ends_before(upper, order) {
                    break;
                }
                self.lock_more(held, To::Key(upper))?;
            }
        }
        Ok(())
    }

    fn lock_more<'t>(&'t self, held: &mut Vec<Held<'t>>, way: To<'_>) -> Result<()> {
        self.check_leaves(held.len())?;
        room::more(held, 1)?;
        let leaf = match way {
            To::Key(key) if held.is_empty() => self.tree.lock_leaf(key)?,
            way => self.tree.lock_next_leaf(way)?,
        };
        held.push(leaf);
        Ok(())
    }

    /// `Conflict` if something in these spans, of which all leaves are held, is not as a snapshot has it.
    fn verify(&self, snapshot: &Snapshot<'_>, held: &[Held<'_>], spans: &[Span]) -> Result<()> {
        let _pin = self.log.pin();
        let mut leaves = held.iter().map(|leaf| self.node_of(leaf.frame)).peekable();
        for span in spans {
            if let Some(from) = &span.from {
                // Of the leaves, the first that has something of it.
                while leaves.next_if(|leaf| !leaf.covers(from)).is_some() {}
            }
            match span {
                Span {
                    from: Some(from),
                    to: Some(to),
                    is_open: false,
                } if from == to => {
                    if let Some(leaf) = leaves.peek() {
                        self.verify_key(snapshot, *leaf, from)?;
                    }
                }
                _ => self.verify_span(snapshot, leaves.clone(), span)?,
            }
        }
        Ok(())
    }

    /// As `verify`, as far as leaves are held, where not all of them could be: what others put there may be why.
    fn verify_some(
        &self,
        snapshot: &Snapshot<'_>,
        held: &[Held<'_>],
        spans: &[Span],
    ) -> Result<()> {
        let mut fence = Key::default();
        let last = held.last().map(|last| self.node_of(last.frame));
        if last.is_none_or(|last| last.upper(&mut fence).is_none()) {
            return Ok(());
        }
        let within = Span {
            from: None,
            to: Some(fence.bytes().to_vec()),
            is_open: true,
        };
        let order = self.tree.order;
        let clipped = spans
            .iter()
            .map(|span| span.clone().clipped(&within, order));
        let some: Vec<Span> = clipped.filter(|span| !span.is_empty(order)).collect();
        self.verify(snapshot, held, &some)
    }

    fn verify_key(&self, snapshot: &Snapshot<'_>, leaf: Node<'_>, key: &[u8]) -> Result<()> {
        let stem = stem_of(key);
        let (mut now, mut then) = (Buffer::default(), Buffer::default());
        let is_same = match (
            Seen::in_leaf(leaf, stem, &mut now),
            snapshot.see(stem, &mut then)?,
        ) {
            (Seen::Outside(now), Seen::Outside(then)) if now == then => true,
            (now_seen, then_seen) if is_long(self.tree.order, key) => {
                value_beyond(self, key, now_seen, &now)?
                    == value_beyond(snapshot, key, then_seen, &then)?
            }
            (Seen::Absent, Seen::Absent) => true,
            (Seen::Copied(now_len), Seen::Copied(then_len)) => {
                now_len == then_len && now.bytes(now_len) == then.bytes(then_len)
            }
            (Seen::Outside(now), Seen::Outside(then)) => {
                self.read_run(now)? == snapshot.value_outside(then)?
            }
            _ => false,
        };
        if is_same {
            Ok(())
        } else {
            Err(self.conflict(key))
        }
    }

    /// As it is, in leaves that are held, and as it was.
    fn verify_span<'n>(
        &self,
        snapshot: &Snapshot<'_>,
        leaves: impl Iterator<Item = Node<'n>>,
        span: &Span,
    ) -> Result<()> {
        let order = self.tree.order;
        let mut then = RecordCursor::new(snapshot);
        let mut is_there = match &span.from {
            Some(from) => then.seek(from)?,
            None => then.first()?,
        };
        let mut copy = LeafCopy::default();
        // In the first of them; of the others, all.
        let mut beginning = match &span.from {
            Some(from) => Beginning::of(order, from, false)?,
            None => Beginning::first(),
        };
        let mut compare = |key: &[u8], value: Result<&[u8]>| {
            if span.ends_before(key, order) {
                return Ok(ControlFlow::Break(()));
            }
            let value = value?;
            if !is_there || then.record() != Some((key, value)) {
                return Err(self.conflict(key));
            }
            is_there = then.next()?;
            Ok(ControlFlow::Continue(()))
        };
        for leaf in leaves {
            copy.take_from(leaf, &beginning.from, usize::MAX)?;
            if show_copied(self, &copy, &beginning, &mut compare)?.is_break() {
                break;
            }
            beginning = Beginning::first();
        }
        match then.record() {
            Some((key, _)) if is_there && !span.ends_before(key, order) => Err(self.conflict(key)),
            _ => Ok(()),
        }
    }

    fn conflict(&self, key: &[u8]) -> Error {
        let what = "another update came before the transaction, and changed what it rests on";
        Error::new(Kind::Conflict, what)
            .at(self.log.storage().path())
            .key(key)
            .remedy("begin it again, as `transact` does")
    }
}

/// A cursor over a snapshot and what a transaction has written. It notes what it shows, and the gaps.
struct MergedCursor<'t> {
    transaction: &'t Transaction<'t>,
    then: RecordCursor<&'t Snapshot<'t>>,
    /// The direction in which `then` is on the next record after this one, or on none if there is no more.
    ahead: Option<bool>,
    /// Where it is.
    record: Option<(Vec<u8>, Vec<u8>)>,
    /// What is noted lies within this.
    within: Span,
}

/// A record that was written, and its value; `None`: it was removed.
type Written = (Vec<u8>, Option<Vec<u8>>);

/// Where a step begins.
#[derive(Clone, Copy)]
enum Start<'k> {
    /// At the end in whose direction it does not go.
    Edge,
    /// At a key, which counts.
    At(&'k [u8]),
    /// At a key, which does not.
    Beyond(&'k [u8]),
}

impl<'t> MergedCursor<'t> {
    fn new(transaction: &'t Transaction<'_>, within: Span) -> Self {
        Self {
            transaction,
            then: RecordCursor::new(&transaction.snapshot),
            ahead: None,
            record: None,
            within,
        }
    }

    /// Places the snapshot's cursor on the first record from a start.
    fn place(&mut self, start: Start<'_>, is_rising: bool) -> Result<()> {
        let order = self.transaction.order();
        let then = &mut self.then;
        match (start, is_rising) {
            (Start::Edge, true) => then.first()?,
            (Start::Edge, false) => then.last()?,
            (Start::At(key) | Start::Beyond(key), true) => {
                let found = then.seek(key)?;
                let is_at = then.record().is_some_and(|of| of.0 == key);
                if found && is_at && matches!(start, Start::Beyond(_)) {
                    then.next()?
                } else {
                    found
                }
            }
            (Start::At(key) | Start::Beyond(key), false) => {
                if then.seek(key)? {
                    let is_before = then.record().is_some_and(|of| {
                        let compared = order.compare(of.0, key);
                        compared.is_lt() || compared.is_eq() && matches!(start, Start::At(_))
                    });
                    is_before || then.previous()?
                } else {
                    then.last()?
                }
            }
        };
        Ok(())
    }

    /// The next of the records that were written here, and its value.
    fn written(&self, start: Start<'_>, is_rising: bool) -> Result<Option<Written>> {
        let of = |key: &[u8]| self.transaction.in_order(key);
        let bound = match start {
            Start::Edge => Bound::Unbounded,
            Start::At(key) => Bound::Included(of(key)?),
            Start::Beyond(key) => Bound::Excluded(of(key)?),
        };
        let state = self.transaction.state.lock();
        let found = if is_rising {
            state.writes.range((bound, Bound::Unbounded)).next()
        } else {
            state.writes.range((Bound::Unbounded, bound)).next_back()
        };
        Ok(found.map(|(key, value)| (key.key.clone(), value.clone())))
    }

    /// Moves to the next record from a start.
    fn go(&mut self, start: Start<'_>, is_rising: bool) -> Result<bool> {
        let begin = match start {
            Start::Edge => None,
            Start::At(key) | Start::Beyond(key) => Some(key.to_vec()),
        };
        let is_ahead = self.ahead == Some(is_rising) && matches!(start, Start::Beyond(_));
        self.ahead = None;
        self.record = None;
        if !is_ahead {
            self.place(start, is_rising)?;
        }
        let found = self.merge(start, is_rising)?;
        let end = found.as_ref().map(|(key, _)| key.clone());
        let (from, to) = if is_rising {
            (begin, end)
        } else {
            (end, begin)
        };
        let span = Span {
            from,
            to,
            is_open: false,
        };
        let order = self.transaction.order();
        self.transaction.note(span.clipped(&self.within, order))?;
        self.ahead = Some(is_rising);
        self.record = found;
        Ok(self.record.is_some())
    }

    fn merge(&mut self, start: Start<'_>, is_rising: bool) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let order = self.transaction.order();
        let mut written = self.written(start, is_rising)?;
        loop {
            let then = self.then.record();
            let compared = match (&then, &written) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((then, _)), Some((written, _))) if is_rising => order.compare(then, written),
                (Some((then, _)), Some((written, _))) => order.compare(written, then),
            };
            let record = then.map(|(key, value)| (key.to_vec(), value.to_vec()));
            if compared.is_le() {
                // Not on another one from now on.
                if is_rising {
                    self.then.next()?;
                } else {
                    self.then.previous()?;
                }
            }
            if compared.is_lt() {
                return Ok(record);
            }
            match written.take() {
                Some((key, Some(value))) => return Ok(Some((key, value))),
                Some((key, None)) => written = self.written(Start::Beyond(&key), is_rising)?,
                None => return Ok(None),
            }
        }
    }
}

impl Cursor for MergedCursor<'_> {
    fn first(&mut self) -> Result<bool> {
        self.go(Start::Edge, true)
    }

    fn last(&mut self) -> Result<bool> {
        self.go(Start::Edge, false)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.go(Start::At(key), true)
    }

    fn next(&mut self) -> Result<bool> {
        match self.record.take() {
            Some((key, _)) => self.go(Start::Beyond(&key), true),
            None => self.first(),
        }
    }

    fn previous(&mut self) -> Result<bool> {
        match self.record.take() {
            Some((key, _)) => self.go(Start::Beyond(&key), false),
            None => self.last(),
        }
    }

    fn record(&self) -> Option<(&[u8], &[u8])> {
        self.record
            .as_ref()
            .map(|(key, value)| (&key[..], &value[..]))
    }
}
