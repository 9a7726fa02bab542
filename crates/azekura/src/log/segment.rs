//! The segments of a log: which exist, what each holds, which are free.
//!
//! The *table* answers the read path with one load: the seed of a segment's frames and its room. The
//! *space* hands out free segments, lowest first, grows the storage when there are none, and takes
//! segments back in three steps:
//!
//! ```text
//!   in use --retire--> retired --a checkpoint is durable--> aging --readers gone--> free
//! ```
//!
//! 1. A retired segment keeps its bytes: the last checkpoint may still point into it.
//! 2. An aging one is pointed to by no checkpoint, but perhaps by a reader that is pinned.
//! 3. A free one is zeroed before it is used: in a segment in use, a zero word where a frame would
//!    begin is a hole, and anything else that is not a frame is damage.
//!
//! It does not know what frames mean, nor which are live: callers report the counts that it keeps.

mod geometry;
mod patience;
mod space;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::layout::{DATA_OFFSET, FIRST_FRAME, segment_seed};
use crate::epoch::{self, Domain, RetireList};
use crate::error::{Error, Kind, Result};
use crate::explore::{Mutex, MutexGuard};
use crate::io::{Map, Storage};

pub use geometry::Geometry;
pub use patience::Patience;
pub use space::{AllocationClass, REMEDY, left_by_growth, whole_step};

/// In the table, the mark of a unit after the first of its segment; below it stands how far.
const FOLLOWING: u64 = 1 << 63;

/// An alarm: an earlier write or sync failed, nothing more is accepted. Never cleared.
pub(super) const POISONED: u8 = 1;
/// An alarm: the store is damaged, and no write is accepted. Never cleared.
pub(super) const REFUSED: u8 = 4;
/// An alarm: the path does not lead to the file any more, and no update is accepted until it does.
pub(super) const DISPLACED: u8 = 8;
/// An alarm: there is no room for new records but what the storage may grow by.
const FULL: u8 = 2;

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Frames of the log.
    Log,
    /// What a checkpoint of the engine keeps in segments next to the log (`parts`).
    Other,
    /// Anything else of the engine's, which it alone takes and gives back.
    Pages,
}

/// A segment in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its place in the file.
    pub index: u32,
    /// How many segments' room it takes.
    pub units: u32,
    /// Its sequence; 0 where it is not the log's.
    pub sequence: u64,
    /// Bytes in it that are known to be dead.
    pub dead: u64,
    /// Of these, bytes after its last frame, which a copy of its live frames may waste again.
    pub waste: u64,
}

impl Segment {
    /// One of which nothing is known to be dead.
    pub fn new(index: u32, units: u32, sequence: u64) -> Self {
        Self {
            index,
            units,
            sequence,
            dead: 0,
            waste: 0,
        }
    }

    /// Whether it lies within the first `count` segments.
    pub fn is_within(&self, count: u64) -> bool {
        self.units > 0 && u64::from(self.index) + u64::from(self.units) <= count
    }

    /// Whether it takes this place.
    pub fn covers(&self, index: u32) -> bool {
        (self.index..self.index + self.units).contains(&index)
    }

    /// Bytes that cleaning it gives back.
    pub fn reclaimable(&self) -> u64 {
        self.dead.saturating_sub(self.waste)
    }
}

/// Bytes of segments, by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// In use by the log.
    pub log: u64,
    /// In use by checkpoints.
    pub other: u64,
    /// In use by what else the engine keeps.
    pub pages: u64,
    /// Retired or aging.
    pub leaving: u64,
    /// Free.
    pub free: u64,
}

/// What everything but growth leaves of the free segments, so that a full store can continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Segments that a checkpoint may need.
    pub checkpoint: u32,
    /// As many more as it may need when growth has gone on for a while.
    pub coming: u32,
    /// Segments between one class and the next.
    pub step: u32,
    /// Segments that are to be free or dead, so that cleaning has something to give back.
    pub slack: u32,
    /// Dead bytes that cleaning gives back, in segments.
    pub reclaimable: u32,
}

/// In the table's second word: the lower bits count dead bytes, the upper ones wasted words.
pub(super) const DEAD_BITS: u32 = 40;

#[derive(Debug)]
struct Free {
    /// How many segments the storage has room for.
    total: u32,
    /// Bytes that growth may fill.
    capacity: u64,
    /// How many segments the storage may have for what is more urgent, if that is more.
    total_max: u32,
    /// Free to hand out.
    available: BTreeSet<u32>,
    /// Free segments that read as zeros: new ones, and prepared ones.
    zeroed: BTreeSet<u32>,
    /// Free segments that are zeroed and in memory.
    prepared: BTreeSet<u32>,
    /// Taken out of the free ones while they are zeroed; the storage is not cut before them.
    preparing: BTreeSet<u32>,
    /// No longer needed by anything written after; the last checkpoint may need them.
    retired: Vec<(u32, u32)>,
    /// Needed by no checkpoint; pinned readers may still look. Its weight is segments.
    aging: RetireList<(u32, u32)>,
    /// In use, by index.
    used: BTreeMap<u32, (u32, u64, Use)>,
    /// What is left for what is more urgent.
    reserve: Reserve,
    /// The storage could not be grown when it last should.
    was_full: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Segments {
    /// Whose readers hold what was released.
    pub(super) domain: Domain,
    storage: Arc<dyn Storage>,
    map: Arc<Map>,
    geometry: Geometry,
    /// Segments that have addresses.
    limit: u32,
    /// Two words per segment: seed and units (0: not the log's; or `FOLLOWING`), dead bytes and wasted words.
    table: Arc<Map>,
    /// A word per segment: its sequence, if it is the log's.
    sequences: Arc<Map>,
    space: Mutex<Free>,
    /// Why updates may not take the fast path. Relaxed: a thread that sees one late meets it where it takes room.
    alarms: AtomicU8,
}

/// Held while segments are handed out, so that the log's chain and its segments change together.
pub struct Space<'s> {
    segments: &'s Segments,
    free: MutexGuard<'s, Free>,
}

impl Segments {
    /// Knows of no segment yet; `used` in the order of the caller's choice are added with [`Segments::adopt`].
    pub fn new(storage: Arc<dyn Storage>, map: Arc<Map>, geometry: Geometry) -> Result<Self> {
        let limit = geometry.fitting(map.capacity());
        let table = Map::anonymous(
            (u64::from(limit) * 16).next_multiple_of(4096).max(4096),
            None,
        )?;
        let sequences = Map::anonymous(
            (u64::from(limit) * 8).next_multiple_of(4096).max(4096),
            None,
        )?;
        let domain = Domain::new();
        let space = Mutex::new(Free {
            total: 0,
            capacity: map.capacity(),
            total_max: 0,
            available: BTreeSet::new(),
            zeroed: BTreeSet::new(),
            prepared: BTreeSet::new(),
            preparing: BTreeSet::new(),
            retired: Vec::new(),
            aging: RetireList::new(domain.clone()),
            used: BTreeMap::new(),
            reserve: Reserve::default(),
            was_full: false,
        });
        Ok(Self {
            storage,
            map,
            geometry,
            limit,
            table,
            sequences,
            space,
            domain,
            alarms: AtomicU8::new(0),
        })
    }

    /// Whether there is any alarm.
    #[inline(always)]
    pub(super) fn is_alarmed(&self) -> bool {
        self.alarms.load(Ordering::Relaxed) != 0
    }

    #[inline(always)]
    pub(super) fn has_alarm(&self, alarm: u8) -> bool {
        self.alarms.load(Ordering::Relaxed) & alarm != 0
    }

    pub(super) fn raise(&self, alarm: u8) {
        self.alarms.fetch_or(alarm, Ordering::Relaxed);
    }

    pub(super) fn clear_alarm(&self, alarm: u8) {
        self.alarms.fetch_and(!alarm, Ordering::Relaxed);
    }

    /// Whether growth was refused, and there is no room for it yet.
    pub fn is_full(&self) -> bool {
        self.has_alarm(FULL)
    }

    /// States what is to be kept free.
    pub fn keep(&self, reserve: Reserve) {
        let mut space = self.space();
        space.free.reserve = reserve;
        self.alarm_if_full(&space);
    }

    /// What is kept free.
    pub fn reserve(&self) -> Reserve {
        self.space.lock().reserve
    }

    /// How many segments the storage has room for now.
    pub fn total(&self) -> u32 {
        self.space.lock().total
    }

    /// How many segments growth may make of the storage.
    pub fn limit(&self) -> u32 {
        self.geometry.fitting(self.space.lock().capacity)
    }

    /// In how many segments a full store has to continue: all there are; of a store that is larger than its capacity those in use,
    /// or as many as growth may fill.
    pub fn span(&self) -> u32 {
        let space = self.space();
        let limit = self.geometry.fitting(space.free.capacity);
        let total = space.free.total;
        total.min(limit.max(total - space.count()))
    }

    /// Before segments are adopted: how large growth may make the storage, in bytes, if there are addresses for so many.
    pub fn allow(&self, capacity: u64) {
        self.space.lock().capacity = capacity.min(self.map.capacity());
    }

    fn alarm_if_full(&self, space: &Space<'_>) {
        // Who comes next sees to it, before it finds no room. A storage that can be grown is, when a segment is taken.
        if space.left_for(AllocationClass::Growth) == 0 && !space.can_be_grown() {
            self.raise(FULL);
        }
    }

    /// Seed and room in bytes of segment `index`; `None`: not a segment of the log.
    #[inline(always)]
    pub fn seed(&self, index: u32) -> Option<(u32, u64)> {
        if index >= self.limit {
            return None;
        }
        let word = self.table.load_u64(u64::from(index) * 16);
        let units = word >> 32;
        (word < FOLLOWING && units != 0).then(|| (word as u32, units << self.geometry.shift))
    }

    /// The seed of segment `index` if it takes one unit.
    #[inline(always)]
    #[expect(unsafe_code, reason = "on the way of every lookup")]
    pub fn seed_of_unit(&self, index: u64) -> Option<u32> {
        if index >= u64::from(self.limit) {
            return None;
        }
        // SAFETY: the table has two words for each of `limit` segments (`new`).
        let word = unsafe { self.table.load_within(index * 16) };
        (word >> 32 == 1).then_some(word as u32)
    }

    /// As `seed`, for offset `at` of any unit of a segment: also the offset in the segment.
    #[inline(always)]
    pub fn place(&self, index: u32, at: u32) -> Option<(u32, u64, u32)> {
        match self.seed(index) {
            Some((seed, room)) => Some((seed, room, at)),
            None => self.place_after(index, at),
        }
    }

    #[cold]
    fn place_after(&self, index: u32, at: u32) -> Option<(u32, u64, u32)> {
        let first = self.first_of(index);
        let (seed, room) = self.seed(first)?;
        let at = (u64::from(index - first) << self.geometry.shift) + u64::from(at);
        Some((seed, room, u32::try_from(at).ok()?))
    }

    /// The first unit of the segment that unit `index` belongs to.
    #[inline(always)]
    pub fn first_of(&self, index: u32) -> u32 {
        if index >= self.limit {
            return index;
        }
        let word = self.table.load_u64(u64::from(index) * 16);
        if word < FOLLOWING {
            index
        } else {
            index - word as u32
        }
    }

    /// The unit at which the dead bytes of the segment of unit `index` are counted.
    #[inline(always)]
    pub(super) fn counted(&self, index: u32) -> Option<u32> {
        (index < self.limit).then(|| self.first_of(index))
    }

    /// Counts `len` bytes of segment `index` as dead.
    #[inline(always)]
    pub fn mark_dead(&self, index: u32, len: u64) {
        if index < self.limit {
            self.table.fetch_add_u64(u64::from(index) * 16 + 8, len);
        }
    }

    /// As `mark_dead`, of a segment that `seed_of_unit` knew, or `counted`.
    #[inline(always)]
    #[expect(unsafe_code, reason = "on the way of every update")]
    pub(super) fn mark_unit_dead(&self, index: u32, len: u64) {
        debug_assert!(index < self.limit);
        // SAFETY: the table has two words for each of `limit` segments (`new`), and this is one (`seed_of_unit`, `counted`).
        let dead = unsafe { self.table.word_within(u64::from(index) * 16 + 8) };
        dead.fetch_add(len, std::sync::atomic::Ordering::Relaxed);
    }

    /// Counts `len` bytes after the last frame of segment `index` as dead.
    pub(super) fn waste(&self, index: u32, len: u64) {
        self.mark_dead(index, len | (len / 8) << DEAD_BITS);
    }

    /// Counts `len` of the bytes after the last frame, a multiple of 8, as ones that cleaning gives back.
    pub(super) fn regain(&self, index: u32, len: u64) {
        if index < self.limit {
            let wasted = (len / 8) << DEAD_BITS;
            self.table
                .fetch_add_u64(u64::from(index) * 16 + 8, wasted.wrapping_neg());
        }
    }

    /// Dead and wasted bytes.
    fn dead(&self, index: u32) -> (u64, u64) {
        let word = self.table.load_u64(u64::from(index) * 16 + 8);
        (word & ((1 << DEAD_BITS) - 1), (word >> DEAD_BITS) * 8)
    }

    /// Everything of segment `index` is dead.
    pub fn mark_all_dead(&self, index: u32) {
        self.table
            .store_u64(u64::from(index) * 16 + 8, u64::from(u32::MAX));
    }

    /// Takes a segment found on storage into use. `Corrupted` if it overlaps another or lies outside.
    pub fn adopt(&self, segment: Segment, usage: Use) -> Result<()> {
        let mut space = self.space.lock();
        let end = segment
            .index
            .checked_add(segment.units)
            .filter(|end| *end <= self.limit);
        let overlaps = space
            .used
            .range(..segment.index.saturating_add(segment.units))
            .next_back()
            .is_some_and(|(index, (units, ..))| index + units > segment.index);
        let is_room = usage != Use::Log || self.geometry.is_room(segment.units);
        if end.is_none() || segment.units == 0 || overlaps || !is_room {
            return Err(Error::new(
                Kind::Corrupted,
                "a segment overlaps another, lies outside or is too long",
            )
            .offset(self.geometry.offset_of(segment.index))
            .at(self.storage.path()));
        }
        self.enter(&mut space, segment, usage);
        Ok(())
    }

    fn enter(&self, space: &mut Free, segment: Segment, usage: Use) {
        let Segment {
            index,
            units,
            sequence,
            dead,
            waste,
        } = segment;
        space.used.insert(index, (units, sequence, usage));
        let counted = dead | (waste / 8) << DEAD_BITS;
        self.table.store_u64(u64::from(index) * 16 + 8, counted);
        let seed = segment_seed(self.geometry.salt, sequence);
        self.sequences.store_u64(u64::from(index) * 8, sequence);
        let word = if usage == Use::Log {
            u64::from(seed) | u64::from(units) << 32
        } else {
            0
        };
        for after in 1..units {
            let word = if usage == Use::Log {
                FOLLOWING | u64::from(after)
            } else {
                0
            };
            self.table.store_u64(u64::from(index + after) * 16, word);
        }
        self.table.store_u64(u64::from(index) * 16, word);
    }

    /// Before segments are adopted: how many the storage has.
    pub fn begin_adoption(&self, total: u32) {
        self.space().free.total = total;
    }

    /// After all segments in use are adopted: what lies between them is free; of what lies after them the reserve is
    /// kept, if a full store left one, and the rest is cut off. A free range that has no room on the device (a
    /// copy has holes there) is given it, so that a full device is an error now and not a signal later.
    pub fn finish_adoption(&self) -> Result<()> {
        let size = |units| u64::from(units) << self.geometry.shift;
        let log = self.in_use(Use::Log).into_iter();
        let empty = log.filter(|s| s.dead + u64::from(FIRST_FRAME) >= size(s.units));
        let empty = empty.map(|s| s.units).sum();
        let mut space = self.space();
        let used = space.free.used.iter();
        let used: Vec<(u32, u32)> = used.map(|(i, (u, ..))| (*i, *u)).collect();
        let allocate = |from: u32, to: u32| {
            let offset = self.geometry.offset_of(from);
            self.storage
                .allocate(offset, self.geometry.offset_of(to) - offset)
        };
        let mut at = 0;
        for (index, units) in used {
            if at < index {
                allocate(at, index)?;
                space.free.available.extend(at..index);
            }
            at = index + units;
        }
        let after = self.storage.size()?.saturating_sub(DATA_OFFSET) >> self.geometry.shift;
        let kept = (after as u32).min(at + space.left_by(AllocationClass::Growth));
        if kept > at {
            match allocate(at, kept) {
                Ok(()) => {
                    space.free.available.extend(at..kept);
                    at = kept;
                }
                Err(error) if error.kind() == Kind::Full => {}
                Err(error) => return Err(error),
            }
        }
        space.free.total = at;
        space.allow_what_is_urgent(empty);
        self.storage.resize(self.geometry.offset_of(at))
    }

    /// The sequence of the log's segment at `index`, whatever its header on storage states by now.
    #[inline(always)]
    pub fn sequence_of(&self, index: u32) -> Option<u64> {
        self.seed(index)?;
        Some(self.sequences.load_u64(u64::from(index) * 8))
    }

    /// All segments in use for `usage`, by index.
    pub fn in_use(&self, usage: Use) -> Vec<Segment> {
        let space = self.space.lock();
        let of_use = space.used.iter().filter(|(_, (_, _, of))| *of == usage);
        of_use
            .map(|(&index, &(units, sequence, _))| {
                let (dead, waste) = self.dead(index);
                Segment {
                    index,
                    units,
                    sequence,
                    dead: dead.min(u64::from(units) << self.geometry.shift),
                    waste,
                }
            })
            .collect()
    }

    /// Bytes of the segments, by what they are, at one moment.
    pub fn sizes(&self) -> Sizes {
        let space = self.space.lock();
        let units = |n: u32| u64::from(n) << self.geometry.shift;
        let leaving: u32 =
            space.retired.iter().map(|(_, u)| u).sum::<u32>() + space.aging.aging_weight() as u32;
        let used = |usage| {
            let of_use = space.used.values().filter(|(.., of)| *of == usage);
            units(of_use.map(|(u, ..)| u).sum())
        };
        Sizes {
            log: used(Use::Log),
            other: used(Use::Other),
            pages: used(Use::Pages),
            leaving: units(leaving),
            free: units(space.available.len() as u32),
        }
    }

    /// The free segment nearest to the front.
    pub fn first_free(&self) -> Option<u32> {
        self.space.lock().available.first().copied()
    }

    /// The first of as many neighbouring free segments, nearest to the front.
    pub fn first_free_run(&self, units: u32) -> Option<u32> {
        let space = self.space.lock();
        let mut run: Option<(u32, u32)> = None;
        for &index in &space.available {
            let (first, len) = match run {
                Some((first, len)) if first + len == index => (first, len + 1),
                _ => (index, 1),
            };
            if len >= units {
                return Some(first);
            }
            run = Some((first, len));
        }
        None
    }

    /// Takes hold of the space.
    pub fn space(&self) -> Space<'_> {
        Space {
            segments: self,
            free: self.space.lock(),
        }
    }

    /// Segment `index` is not needed by anything written from now on.
    pub fn retire(&self, index: u32) {
        let mut space = self.space.lock();
        if let Some((units, ..)) = space.used.remove(&index) {
            space.retired.push((index, units));
            drop(space);
            self.forget(index, units);
        }
    }

    /// What is not looked at any more need not be held in memory.
    fn forget(&self, index: u32, units: u32) {
        let len = u64::from(units) << self.geometry.shift;
        self.map.forget(self.geometry.offset_of(index), len);
    }

    /// What is retired now: to be given to [`release`](Self::release) once a checkpoint begun after this
    /// call is durable.
    pub fn retired(&self) -> Vec<(u32, u32)> {
        self.space.lock().retired.clone()
    }

    /// A checkpoint that needs none of `retired` is durable. Returns at once; readers may still look.
    pub fn release(&self, retired: &[(u32, u32)]) {
        if retired.is_empty() {
            return;
        }
        let mut space = self.space.lock();
        // Without memory for the note, they stay retired until the next checkpoint.
        if !space.aging.reserve_all(retired.len()) {
            return;
        }
        // What another thread has released meanwhile is not released again: it may have been taken since.
        let Free {
            retired: waiting,
            aging,
            ..
        } = &mut *space;
        waiting
            .retain(|run| !retired.contains(run) || aging.retire(*run, u64::from(run.1)).is_err());
        space.aging.seal();
        drop(space);
        self.reap();
    }

    /// Retires and releases, as one step, what no checkpoint needs, durable or being made: between the two, another thread would find
    /// it retired, and release it, too.
    pub fn release_at_once(&self, runs: &[(u32, u32)]) {
        if runs.is_empty() {
            return;
        }
        let mut space = self.space.lock();
        let has_memory = space.aging.reserve_all(runs.len());
        for (index, _) in runs {
            if let Some((units, ..)) = space.used.remove(index) {
                let run = (*index, units);
                if !has_memory || space.aging.retire(run, u64::from(units)).is_err() {
                    space.retired.push(run);
                }
            }
        }
        space.aging.seal();
        drop(space);
        self.reap();
    }

    /// As `reap`, but gives readers that are just being held up some milliseconds to go, if `bytes` or more
    /// wait for them: better a short wait than a longer file.
    pub fn reap_patiently(&self, bytes: u64) {
        self.reap_within(bytes, Patience::short());
    }

    /// As `reap_patiently`, for a caller that would fail otherwise: a reader that the system does not run for a while, of this
    /// store or another one of the process, is no reason to refuse.
    pub fn reap_to_the_last(&self) {
        self.reap_within(1, Patience::default());
    }

    fn reap_within(&self, bytes: u64, mut patience: Patience) {
        // What this thread holds itself is not let go of while it waits.
        if epoch::is_pinned() {
            patience = Patience::once();
        }
        while !patience.is_over() {
            self.reap();
            let aging = self.space.lock().aging.aging_weight();
            if aging << self.geometry.shift < bytes {
                return;
            }
            patience.wait();
        }
    }

    /// Segments that will be free without anybody's doing: released ones that readers may still look at, and those that are
    /// being prepared.
    fn coming(&self) -> u32 {
        let space = self.space.lock();
        space.aging.aging_weight() as u32 + space.preparing.len() as u32
    }

    /// Takes room by `take`. Where it is refused as `Full` while readers hold released segments, it is tried again whenever
    /// they let go of some, as long as `patience` lasts. A thread that is pinned would wait for itself: it tries once, with what
    /// others have let go of.
    pub fn patiently<T>(
        &self,
        patience: &mut Patience,
        mut take: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        if epoch::is_pinned() {
            self.reap();
            return take();
        }
        let mut held = u32::MAX;
        while !patience.is_over() {
            // Read before the attempt: the next round sees what is released in between.
            let coming = self.coming();
            if coming < held {
                held = coming;
                match take() {
                    Err(error) if error.kind() == Kind::Full && coming.max(self.coming()) > 0 => {}
                    other => return other,
                }
            }
            patience.wait();
            self.reap();
        }
        take()
    }

    /// Frees aging segments that no reader can hold any more.
    pub fn reap(&self) {
        let mut held = self.space();
        let space = &mut *held.free;
        while let Some(batch) = space.aging.next_elapsed() {
            for (index, units) in batch.items {
                for unit in index..index + units {
                    self.table.store_u64(u64::from(unit) * 16, 0);
                }
                space.available.extend(index..index + units);
                // Again: a neighbour's fault may have brought it back.
                self.forget(index, units);
            }
        }
        held.ease();
    }

    /// Sees to it that `count` free segments are zeroed and in memory, so that appends do not wait for it. Called by
    /// the background worker; growing included, as far as there is room.
    pub fn prepare(&self, count: usize) -> Result<()> {
        let mut space = self.space();
        if (space.left_for(AllocationClass::Growth) as usize) < count {
            match space.grow(count as u32, AllocationClass::Growth) {
                Err(error) if error.kind() != Kind::Full => return Err(error),
                _ => {}
            }
        }
        let more = count.saturating_sub(space.free.prepared.len());
        let next: Vec<u32> = space.others().take(more).collect();
        for index in next {
            // Another thread may have taken it while the lock was not held: then it is not ours to touch.
            if space.free.prepared.contains(&index) || !space.free.available.remove(&index) {
                continue;
            }
            let zeroed = space.free.zeroed.contains(&index);
            space.free.preparing.insert(index);
            drop(space);
            let offset = self.geometry.offset_of(index);
            self.map.populate(offset, self.geometry.segment_size());
            if !zeroed {
                self.map.zero(offset, self.geometry.segment_size());
            }
            space = self.space();
            space.free.preparing.remove(&index);
            space.free.available.insert(index);
            space.free.zeroed.insert(index);
            space.free.prepared.insert(index);
        }
        Ok(())
    }

    /// Gives the free segments at the storage's end back. If it could not be grown any more, the reserve stays: others
    /// might take its room.
    pub fn trim(&self) -> Result<()> {
        self.reap();
        let mut held = self.space();
        let reserve = if held.free.was_full {
            held.left_by(AllocationClass::Growth)
        } else {
            0
        };
        let space = &mut *held.free;
        let used = space
            .used
            .iter()
            .map(|(index, (units, ..))| index + units)
            .max()
            .unwrap_or(0);
        let leaving = space
            .retired
            .iter()
            .map(|(i, u)| i + u)
            .chain(space.aging.aging().map(|(i, u)| i + u))
            .chain(space.preparing.iter().map(|i| i + 1))
            .max()
            .unwrap_or(0);
        let end = used.max(leaving);
        let before = space.available.range(..end).count() as u32;
        let end = end + reserve.saturating_sub(before);
        if end < space.total {
            self.storage.resize(self.geometry.offset_of(end))?;
            space.total = end;
            space.available.split_off(&end);
            space.zeroed.split_off(&end);
            space.prepared.split_off(&end);
        }
        Ok(())
    }
}
