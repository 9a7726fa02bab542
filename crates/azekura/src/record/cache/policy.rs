//! The order in which records are looked at, to be kept or dropped: two queues, and the memory of what was dropped.
//!
//! An entry is 36 bits of hash, all that the index knows, and a grade of 4 bits. Queues are chunks of entries, so that a
//! long one never has to be moved. The caller finds whether an entry was seen, not seen or is gone;
//! what follows from it is decided here, once.
//!
//! | taken from | finding | what becomes of it |
//! |---|---|---|
//! | small | seen | main, grade 0 |
//! | small | not seen | dropped, and remembered |
//! | main | seen | main, one grade up, at most 3 |
//! | main | not seen, grade above 0 | main, one grade down |
//! | main | not seen, grade 0 | dropped |
//! | any | no such record, or expired | forgotten |
//!
//! The small queue is looked at while it is longer than a tenth of both. Grades distinguish what is read often from what is
//! read twice, at no cost to readers. Memory of what was dropped: 32 bits a hash, in sets of 8 that are queues, as many as
//! there are records. It does not know records, time or bounds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::met::Met;
use crate::epoch::Pin;
use crate::error::{Error, Kind, Result};
use crate::explore::{self, Mutex};
use crate::index::hash::{Hash, KNOWN_BITS};

/// Entries of a chunk.
const CHUNK: usize = 1024;
/// The small queue is one in so many.
const SMALL: usize = 10;
const GRADE_MAX: u8 = 3;
/// Groups of threads whose new records wait together.
const GROUPS: usize = 16;
/// New records that wait together.
const WAITING: usize = 64;
/// Shorter queues are not batched: too many of their records would wait.
const SHORT: usize = 4 * GROUPS * WAITING;
/// Remembered hashes of a set.
const WAYS: usize = 8;

/// An entry of a queue: known bits of a hash, and a grade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry([u8; 5]);

const _: () = assert!(KNOWN_BITS + 4 == 5 * 8);

impl Entry {
    fn new(known: u64, grade: u8) -> Self {
        let [a, b, c, d, e, ..] = (known << 4 | u64::from(grade)).to_le_bytes();
        Self([a, b, c, d, e])
    }

    fn bits(self) -> u64 {
        let [a, b, c, d, e] = self.0;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
    }

    fn known(self) -> u64 {
        self.bits() >> 4
    }

    fn grade(self) -> u8 {
        (self.bits() & 15) as u8
    }

    /// A hash with its known bits: it leads to the same bucket and tag.
    pub(super) fn hash(self) -> Hash {
        Hash(self.known() << (64 - KNOWN_BITS))
    }
}

/// Where an entry was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Small,
    Main,
}

/// What is to become of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    Drop,
}

/// Entries, first in, first out.
#[derive(Default)]
struct Queue {
    chunks: VecDeque<Vec<Entry>>,
    /// Entries of the first chunk that were taken.
    taken: usize,
    len: usize,
}

impl Queue {
    fn push(&mut self, entry: Entry) -> Result<()> {
        let has_room = |chunk: &&mut Vec<Entry>| chunk.len() < CHUNK;
        if let Some(chunk) = self.chunks.back_mut().filter(has_room) {
            // Short queues grow gently, in powers of two.
            chunk.try_reserve(1).map_err(|_| no_memory())?;
            chunk.push(entry);
        } else {
            let capacity = if self.chunks.is_empty() { 16 } else { CHUNK };
            let mut chunk = Vec::new();
            chunk.try_reserve_exact(capacity).map_err(|_| no_memory())?;
            self.chunks.try_reserve(1).map_err(|_| no_memory())?;
            chunk.push(entry);
            self.chunks.push_back(chunk);
        }
        self.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<Entry> {
        loop {
            let first = self.chunks.front()?;
            if let Some(entry) = first.get(self.taken) {
                self.taken += 1;
                self.len -= 1;
                return Some(*entry);
            }
            self.chunks.pop_front();
            self.taken = 0;
        }
    }

    /// The entry `ahead` after the first, if it is near.
    fn peek(&self, ahead: usize) -> Option<Entry> {
        self.chunks.front()?.get(self.taken + ahead).copied()
    }

    /// Takes the entries of a chunk out of their place.
    fn take_chunk(&mut self, at: usize) -> Option<Vec<Entry>> {
        let mut chunk = self.chunks.remove(at)?;
        if at == 0 {
            chunk.drain(..std::mem::take(&mut self.taken));
        }
        self.len -= chunk.len();
        Some(chunk)
    }

    /// Puts entries back in their place, together with those before if there is room; the place after them.
    fn put_chunk(&mut self, at: usize, chunk: Vec<Entry>) -> usize {
        let at = at.min(self.chunks.len());
        self.len += chunk.len();
        let before = at.checked_sub(1).and_then(|at| self.chunks.get_mut(at));
        match before {
            _ if chunk.is_empty() => at,
            Some(before) if before.len() + chunk.len() <= CHUNK => {
                before.extend(chunk);
                at
            }
            _ => {
                if at == 0 && self.taken > 0 {
                    // The first chunk lost entries; it is not the first any more.
                    if let Some(first) = self.chunks.front_mut() {
                        first.drain(..self.taken);
                    }
                    self.taken = 0;
                }
                self.chunks.insert(at, chunk);
                at + 1
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(Vec::capacity).sum();
        chunks * size_of::<Entry>() + self.chunks.capacity() * size_of::<Vec<Entry>>()
    }
}

#[cold]
fn no_memory() -> Error {
    Error::new(Kind::Full, "no memory for the queues of the cache")
}

/// What was dropped lately: sets of marks, each first in, first out.
#[derive(Default)]
struct Past(Vec<[u32; WAYS]>);

impl Past {
    fn place(&self, known: u64) -> (usize, u32) {
        let mixed = known.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = (u128::from(mixed) * self.0.len() as u128) >> 64;
        // The lower half of the known bits' mixture: nearly independent of the set.
        (set as usize, (mixed >> 4) as u32 | 1)
    }

    /// Whether it was dropped lately; then it is forgotten.
    fn recall(&mut self, known: u64) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let (set, mark) = self.place(known);
        let found = self.0[set].iter_mut().find(|other| **other == mark);
        found.map(|mark| *mark = 0).is_some()
    }

    fn remember(&mut self, known: u64, records: usize) {
        let sets = (records / WAYS).max(1);
        if sets > 2 * self.0.len() || sets < self.0.len() / 4 {
            let mut fresh = Vec::new();
            // Without memory for it the cache only chooses less well.
            if fresh.try_reserve_exact(sets).is_ok() {
                fresh.resize(sets, [0; WAYS]);
                self.0 = fresh;
            }
        }
        if self.0.is_empty() {
            return;
        }
        let (set, mark) = self.place(known);
        let set = &mut self.0[set];
        set.copy_within(..WAYS - 1, 1);
        set[0] = mark;
    }
}

#[derive(Default)]
struct State {
    small: Queue,
    main: Queue,
    past: Past,
    /// Which queue is sifted, and where.
    sifts_main: bool,
    sifted: usize,
    /// A chunk is out to be sifted.
    is_sifting: bool,
    /// A round over both queues was begun.
    is_round: bool,
    /// Of the entries in queues that were sifted in this round, and kept.
    met: Met,
}

impl State {
    fn queue(&mut self, from: From) -> &mut Queue {
        match from {
            From::Small => &mut self.small,
            From::Main => &mut self.main,
        }
    }
}

/// New records of some threads on their way to the queues.
#[derive(Default)]
#[repr(align(128))]
struct Waiting {
    /// What is known of their hashes.
    known: Mutex<Vec<u64>>,
    len: AtomicUsize,
}

/// See the module's text. The queues are behind one lock, held for some nanoseconds; new records come to them by the
/// dozen, so that threads which put do not meet there.
#[derive(Default)]
pub(super) struct Policy {
    state: Mutex<State>,
    /// Entries in both queues, for those who do not hold the lock.
    len: AtomicUsize,
    waiting: [Waiting; GROUPS],
}

/// An entry to look at, and one that will be looked at soon.
pub(super) struct Candidate {
    pub(super) entry: Entry,
    pub(super) from: From,
    pub(super) soon: Option<Entry>,
}

/// What a record of an entry was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum There {
    No,
    /// There is one record of its hash.
    One,
    /// There may be several.
    Some,
}

/// Entries taken out to be sifted, each with what the caller finds.
pub(super) struct Sieve {
    pub(super) entries: Vec<Entry>,
    pub(super) found: Vec<There>,
    from: From,
    at: usize,
}

impl Policy {
    fn note(&self, state: &State) {
        let len = state.small.len + state.main.len;
        self.len.store(len, Ordering::Relaxed);
    }

    /// Entries in queues.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        explore::yield_point();
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let state = self.state.lock();
        let past = state.past.0.len() * size_of::<[u32; WAYS]>() + state.met.memory_bytes();
        (state.small.memory_bytes() + state.main.memory_bytes() + past) as u64
    }

    /// A new record is about to come. `Full` without memory.
    #[inline(always)]
    pub(super) fn admit(&self, pin: &Pin, hash: Hash) -> Result<()> {
        let waiting = &self.waiting[pin.thread_number() % GROUPS];
        let mut known = waiting.known.lock();
        if known.len() == known.capacity() {
            self.take_in(&mut known)?;
        }
        known.push(hash.known());
        waiting.len.store(known.len(), Ordering::Relaxed);
        Ok(())
    }

    /// As `admit`, if that takes no other lock and no memory; whether it was done.
    #[inline(always)]
    pub(super) fn admits_at_once(&self, pin: &Pin, hash: Hash) -> bool {
        let waiting = &self.waiting[pin.thread_number() % GROUPS];
        let Some(mut known) = waiting.known.try_lock() else {
            return false;
        };
        if known.len() == known.capacity() {
            return false;
        }
        known.push(hash.known());
        waiting.len.store(known.len(), Ordering::Relaxed);
        true
    }

    /// Brings those that wait to the queues, and leaves room for others. `Full` without memory: then records that
    /// are not queued yet continue to wait.
    #[cold]
    fn take_in(&self, known: &mut Vec<u64>) -> Result<()> {
        let state = &mut *self.state.lock();
        let mut done = 0;
        let mut pushed = Ok(());
        for known in known.iter() {
            let queue = if state.past.recall(*known) {
                &mut state.main
            } else {
                &mut state.small
            };
            pushed = queue.push(Entry::new(*known, 0));
            if pushed.is_err() {
                break;
            }
            done += 1;
        }
        known.drain(..done);
        self.note(state);
        pushed?;
        known.try_reserve_exact(WAITING).map_err(|_| no_memory())
    }

    fn take_in_all(&self) {
        for waiting in &self.waiting {
            explore::yield_point();
            if waiting.len.load(Ordering::Relaxed) != 0 {
                let mut known = waiting.known.lock();
                if let Err(error) = self.take_in(&mut known) {
                    tracing::debug!(%error, "new records continue to wait");
                }
                waiting.len.store(known.len(), Ordering::Relaxed);
            }
        }
    }

    /// The next entry to examine, which the caller then owns. `None`: there is none.
    pub(super) fn next(&self) -> Option<Candidate> {
        const AHEAD: usize = 4;
        if self.len() < SHORT {
            self.take_in_all();
        }
        let state = &mut *self.state.lock();
        let (small, both) = (state.small.len, state.small.len + state.main.len);
        let from = if small * SMALL > both || state.main.len == 0 {
            From::Small
        } else {
            From::Main
        };
        let queue = state.queue(from);
        let entry = queue.pop()?;
        let soon = queue.peek(AHEAD);
        // Of those left, one is to be kept.
        state.met.forget(entry.known());
        self.note(state);
        Some(Candidate { entry, from, soon })
    }

    /// What is to become of the record of a candidate that was seen or not.
    pub(super) fn judge(candidate: &Candidate, seen: bool) -> Verdict {
        match candidate.from {
            _ if seen => Verdict::Keep,
            From::Main if candidate.entry.grade() > 0 => Verdict::Keep,
            _ => Verdict::Drop,
        }
    }

    /// The candidate's record stays. `Full` without memory: then it cannot.
    pub(super) fn keep(&self, candidate: &Candidate, seen: bool) -> Result<()> {
        let grade = match (candidate.from, candidate.entry.grade()) {
            (From::Small, _) => 0,
            (From::Main, grade) if seen => GRADE_MAX.min(grade + 1),
            (From::Main, grade) => grade.saturating_sub(1),
        };
        let state = &mut *self.state.lock();
        let entry = Entry::new(candidate.entry.known(), grade);
        state.main.push(entry)?;
        self.note(state);
        Ok(())
    }

    /// The candidate's record was dropped for want of room.
    pub(super) fn dropped(&self, candidate: &Candidate) {
        if candidate.from == From::Small {
            let state = &mut *self.state.lock();
            let records = state.small.len + state.main.len;
            state.past.remember(candidate.entry.known(), records);
        }
    }

    /// Some entries, in turn, to be sifted, of `records` records. They are the caller's meanwhile. `None`: there are none, or
    /// another thread sifts.
    pub(super) fn take_some(&self, records: u64) -> Option<Sieve> {
        let state = &mut *self.state.lock();
        if state.is_sifting {
            return None;
        }
        let from = if state.sifts_main {
            From::Main
        } else {
            From::Small
        };
        let at = state.sifted;
        if !state.is_round {
            state.is_round = true;
            state.met.begin(records as usize);
        }
        let Some(entries) = state.queue(from).take_chunk(at) else {
            if state.sifts_main {
                state.is_round = false;
                state.met.end();
            }
            state.sifts_main = !state.sifts_main;
            state.sifted = 0;
            return None;
        };
        state.is_sifting = true;
        self.note(state);
        let found = Vec::new();
        Some(Sieve {
            entries,
            found,
            from,
            at,
        })
    }

    /// Those with a record go back to where they were, but for those whose hash was met before in this round and has one
    /// record only: there is another entry of it in a queue, or there was and it was taken out since, and not met.
    pub(super) fn put_back(&self, mut sieve: Sieve) {
        let state = &mut *self.state.lock();
        let mut found = sieve.found.iter();
        sieve.entries.retain(|entry| match found.next() {
            Some(There::No) => false,
            Some(There::One) => !state.met.meet(entry.known()),
            Some(There::Some) | None => true,
        });
        sieve.entries.shrink_to_fit();
        let next = state.queue(sieve.from).put_chunk(sieve.at, sieve.entries);
        state.sifted = next;
        state.is_sifting = false;
        self.note(state);
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        for waiting in &self.waiting {
            waiting.known.lock().clear();
            waiting.len.store(0, Ordering::Relaxed);
        }
        let state = &mut *self.state.lock();
        *state = State::default();
        self.note(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> Hash {
        Hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn an_entry_leads_to_the_same_stripe_and_tag() {
        for number in 0..1000 {
            let (hash, grade) = (hash(number), (number % 16) as u8);
            let entry = Entry::new(hash.known(), grade);
            assert_eq!(entry.hash().known(), hash.known());
            assert_eq!(entry.grade(), grade);
        }
    }

    #[test]
    fn a_queue_keeps_its_order_over_chunks_and_sifting() {
        let mut queue = Queue::default();
        let count = 10 * CHUNK as u64 + 7;
        for number in 0..count {
            queue.push(Entry::new(number, 0)).unwrap();
        }
        assert_eq!(queue.pop(), Some(Entry::new(0, 0)));
        let mut at = 0;
        while let Some(mut chunk) = queue.take_chunk(at) {
            chunk.retain(|entry| entry.known() % 3 == 0);
            at = queue.put_chunk(at, chunk);
        }
        let mut expected = (1..count).filter(|number| number % 3 == 0);
        assert_eq!(queue.len, expected.clone().count());
        assert!(queue.chunks.len() <= 7, "{} chunks", queue.chunks.len());
        while let Some(entry) = queue.pop() {
            assert_eq!(Some(entry.known()), expected.next());
        }
        assert_eq!((expected.next(), queue.len), (None, 0));
    }

    #[test]
    fn a_chunk_that_was_begun_is_put_back_whole() {
        let mut queue = Queue::default();
        for number in 0..2 * CHUNK as u64 {
            queue.push(Entry::new(number, 0)).unwrap();
        }
        let first = queue.take_chunk(0).unwrap();
        assert_eq!(queue.pop().map(Entry::known), Some(CHUNK as u64));
        assert_eq!(queue.put_chunk(0, first), 1);
        assert_eq!(queue.len, 2 * CHUNK - 1);
        let rest: Vec<u64> = std::iter::from_fn(|| queue.pop().map(Entry::known)).collect();
        let expected: Vec<u64> = (0..2 * CHUNK as u64)
            .filter(|n| *n != CHUNK as u64)
            .collect();
        assert_eq!(rest, expected);
    }

    #[test]
    fn what_was_dropped_lately_is_remembered_once_and_not_for_ever() {
        let mut past = Past::default();
        assert!(!past.recall(5));
        past.remember(5, 1000);
        assert!(past.recall(5));
        assert!(!past.recall(5));
        past.remember(5, 1000);
        for number in 100..20_000u64 {
            past.remember(hash(number).known(), 1000);
        }
        assert!(!past.recall(5));
    }

    #[test]
    fn a_scan_passes_through_the_small_queue() {
        let policy = Policy::default();
        let pin = crate::epoch::Domain::new().pin();
        for number in 0..100 {
            policy.admit(&pin, hash(number)).unwrap();
        }
        // The first hundred are asked for, what comes later is not.
        let is_hot = |entry: Entry| (0..100).any(|number| hash(number).known() == entry.known());
        for number in 100..2000 {
            policy.admit(&pin, hash(number)).unwrap();
            while policy.len() > 120 {
                let candidate = policy.next().unwrap();
                match Policy::judge(&candidate, is_hot(candidate.entry)) {
                    Verdict::Keep => policy.keep(&candidate, is_hot(candidate.entry)).unwrap(),
                    Verdict::Drop => policy.dropped(&candidate),
                }
            }
        }
        let hot = std::iter::from_fn(|| policy.next()).filter(|candidate| is_hot(candidate.entry));
        assert_eq!(hot.count(), 100);
    }
}
