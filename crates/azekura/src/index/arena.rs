//! The allocator of chunks: one reservation of address space, allocated as runs of buckets (lines of 64 bytes).
//!
//! A run that is freed is joined with its free neighbours. An allocation takes a run from the free list of the shortest
//! length that fits; long runs share one list, and the first that fits is taken. A chunk that another one replaced is retired
//! here, and its run is free when its grace period has elapsed. The skewed hash keeps chunks of all sizes in use at all times,
//! so little memory stays free. After the first two mebibytes the memory is in huge pages: a cache miss in a large index costs
//! a third less with them. It does not know what buckets hold.
//!
//! A free run describes itself in its own lines, so that freeing and allocating take a constant number of steps
//! (boundary tags: Knuth, The Art of Computer Programming, 2.5):
//!
//! | word of 32 bits | in the first line of a free run | in the last |
//! |---|---|---|
//! | 0 | lines of the run | |
//! | 1, 2 | the previous and the next run in the list of its length, 0: none | |
//! | 3 | | the first line |
//!
//! A separate bit for each line states whether the line is the first or last of a free run.

#![expect(unsafe_code, reason = "buckets in raw memory")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::bucket::Bucket;
use crate::epoch::{Domain, RetireList};
use crate::error::{Error, Kind, Result};
use crate::explore::Mutex;
use crate::io::Map;

/// Addresses reserved; memory is taken as it is touched.
const RESERVED_BYTES: u64 = 1 << 36;
const SMALL_BYTES: u64 = 2 << 20;
/// Retired chunks are sealed together, as a seal costs microseconds: so many lines, and a 64th of what is in use.
const BATCH_LINES: u64 = if cfg!(azekura_explore) { 0 } else { 16 };
const BATCH_SHARE: u64 = 64;

/// Runs of so many lines or more share a list.
const LONG: usize = 128;
const LEN: usize = 0;
const PREVIOUS: usize = 1;
const NEXT: usize = 2;
const FIRST: usize = 3;

pub(super) struct Arena {
    memory: Arc<Map>,
    /// A bit a line: whether a free run begins or ends there.
    edges: Arc<Map>,
    state: Mutex<State>,
}

/// First line and number of lines.
type Run = (u32, u32);

/// The first free run of each length below [`LONG`], of all others, and which lists are not empty.
struct Lists {
    first: [u32; LONG + 1],
    filled: u128,
}

impl Default for Lists {
    fn default() -> Self {
        Self {
            first: [0; LONG + 1],
            filled: 0,
        }
    }
}

struct State {
    /// Lines handed out so far; line 0 is never used, so that no chunk's word is zero.
    end: u32,
    /// The first free run of each length; the last list has all long ones.
    lists: Lists,
    /// Its weight is lines.
    retired: RetireList<Run>,
}

impl Arena {
    pub(super) fn new(domain: Domain) -> Result<Self> {
        let memory = Map::anonymous(RESERVED_BYTES, None)?;
        memory.advise_huge(SMALL_BYTES, RESERVED_BYTES - SMALL_BYTES);
        Ok(Self {
            memory,
            edges: Map::anonymous(RESERVED_BYTES / 64 / 8, None)?,
            state: Mutex::new(State {
                end: 1,
                lists: Lists::default(),
                retired: RetireList::new(domain),
            }),
        })
    }

    pub(super) fn used_bytes(&self) -> u64 {
        u64::from(self.state.lock().end) * 64
    }

    /// The bucket at a line.
    ///
    /// # Safety
    /// - `take` has handed the line out.
    #[inline(always)]
    #[expect(
        clippy::cast_ptr_alignment,
        reason = "a line is 64 bytes of a page, as a bucket is"
    )]
    pub(super) unsafe fn bucket(&self, line: u32) -> &Bucket {
        // SAFETY: only lines below `end` are handed out, all within the reservation; zeroed memory is a
        // valid bucket, all of whose parts are atomics.
        unsafe { &*self.memory.at(u64::from(line) * 64).cast::<Bucket>() }
    }

    /// The first of `lines` empty lines, which are the caller's.
    pub(super) fn take(&self, lines: u32) -> Result<u32> {
        let mut state = self.state.lock();
        if let Some(line) = self.reuse(&mut state, lines) {
            drop(state);
            let at = self.memory.at(u64::from(line) * 64);
            // SAFETY: a run of lines of the reservation that no other thread has; zeros are empty buckets.
            unsafe { at.write_bytes(0, lines as usize * 64) };
            return Ok(line);
        }
        let line = state.end;
        let end = u64::from(line) + u64::from(lines);
        if end * 64 > RESERVED_BYTES {
            return Err(Error::new(
                Kind::Full,
                "the index has used up its address space",
            ));
        }
        state.end = end as u32;
        Ok(line)
    }

    /// Takes back lines that no reader saw.
    pub(super) fn give_back(&self, run: Run) {
        self.join(&mut self.state.lock(), run);
    }

    /// Takes back lines that can no longer be found, but may still be read.
    pub(super) fn retire(&self, run: Run) {
        let mut state = self.state.lock();
        // Without memory for the note, it is not used again.
        let _ = state.retired.retire(run, u64::from(run.1));
        if state.retired.fresh_weight() >= BATCH_LINES + u64::from(state.end) / BATCH_SHARE {
            state.retired.seal();
        }
    }

    /// The smallest free run of `lines` lines or more; what is left of it stays free.
    fn reuse(&self, state: &mut State, lines: u32) -> Option<u32> {
        while let Some(batch) = state.retired.next_elapsed() {
            for run in batch.items {
                self.join(state, run);
            }
        }
        let shortest = (lines as usize).min(LONG);
        let filled = state.lists.filled.unbounded_shr(shortest as u32);
        let list = if filled == 0 {
            LONG
        } else {
            shortest + filled.trailing_zeros() as usize
        };
        let mut line = state.lists.first[list];
        while line != 0 && self.word(line, LEN).load(Ordering::Relaxed) < lines {
            line = self.word(line, NEXT).load(Ordering::Relaxed);
        }
        if line == 0 {
            return None;
        }
        let len = self.remove(&mut state.lists, line);
        if len > lines {
            self.insert(&mut state.lists, (line + lines, len - lines));
        }
        Some(line)
    }

    /// Makes a run free, together with its free neighbours.
    fn join(&self, state: &mut State, (mut line, mut len): Run) {
        if self.is_edge(line - 1) {
            line = self.word(line - 1, FIRST).load(Ordering::Relaxed);
            len += self.remove(&mut state.lists, line);
        }
        if line + len < state.end && self.is_edge(line + len) {
            len += self.remove(&mut state.lists, line + len);
        }
        self.insert(&mut state.lists, (line, len));
    }

    /// Notes a free run.
    fn insert(&self, lists: &mut Lists, (line, len): Run) {
        let list = (len as usize).min(LONG);
        let next = std::mem::replace(&mut lists.first[list], line);
        if list < LONG {
            lists.filled |= 1 << list;
        }
        if next != 0 {
            self.word(next, PREVIOUS).store(line, Ordering::Relaxed);
        }
        self.word(line, LEN).store(len, Ordering::Relaxed);
        self.word(line, PREVIOUS).store(0, Ordering::Relaxed);
        self.word(line, NEXT).store(next, Ordering::Relaxed);
        let last = line + len - 1;
        self.word(last, FIRST).store(line, Ordering::Relaxed);
        self.set_edge(line, true);
        self.set_edge(last, true);
    }

    /// Forgets the free run that begins at `line`; its length.
    fn remove(&self, lists: &mut Lists, line: u32) -> u32 {
        let read = |word| self.word(line, word).load(Ordering::Relaxed);
        let (len, before, next) = (read(LEN), read(PREVIOUS), read(NEXT));
        let list = (len as usize).min(LONG);
        if next != 0 {
            self.word(next, PREVIOUS).store(before, Ordering::Relaxed);
        }
        if before != 0 {
            self.word(before, NEXT).store(next, Ordering::Relaxed);
        } else {
            lists.first[list] = next;
            if next == 0 && list < LONG {
                lists.filled &= !(1 << list);
            }
        }
        self.set_edge(line, false);
        self.set_edge(line + len - 1, false);
        len
    }

    /// A word of a free line.
    #[expect(clippy::cast_ptr_alignment, reason = "a line begins at 64 bytes")]
    fn word(&self, line: u32, word: usize) -> &AtomicU32 {
        let at = u64::from(line) * 64 + word as u64 * 4;
        // SAFETY: only lines below `end` are accessed, all within the reservation; only the holder of the lock of the
        // state accesses a free line, and buckets are atomics as well.
        unsafe { &*self.memory.at(at).cast::<AtomicU32>() }
    }

    /// The word with a line's bit, and the bit.
    #[expect(clippy::cast_ptr_alignment, reason = "words of four bytes")]
    fn edge(&self, line: u32) -> (&AtomicU32, u32) {
        let at = u64::from(line / 32) * 4;
        // SAFETY: a bit for every line of the reservation; zeros are valid, and all parts are atomics.
        let word = unsafe { &*self.edges.at(at).cast::<AtomicU32>() };
        (word, 1 << (line % 32))
    }

    fn is_edge(&self, line: u32) -> bool {
        let (word, bit) = self.edge(line);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Called under the lock of the state.
    fn set_edge(&self, line: u32, is_edge: bool) {
        let (word, bit) = self.edge(line);
        let others = word.load(Ordering::Relaxed) & !bit;
        let mine = if is_edge { bit } else { 0 };
        word.store(others | mine, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::random::Random;

    /// Free runs as their own lines state them, in order of place.
    fn free_runs(arena: &Arena) -> Vec<Run> {
        let state = arena.state.lock();
        let mut runs = Vec::new();
        for (list, first) in state.lists.first.iter().enumerate() {
            let (mut line, mut before) = (*first, 0);
            if list < LONG {
                assert_eq!(state.lists.filled >> list & 1 == 1, line != 0);
            }
            while line != 0 {
                let read = |word| arena.word(line, word).load(Ordering::Relaxed);
                let len = read(LEN);
                assert_eq!((list, before), ((len as usize).min(LONG), read(PREVIOUS)));
                assert!(arena.is_edge(line) && arena.is_edge(line + len - 1));
                let last = arena.word(line + len - 1, FIRST);
                assert_eq!(last.load(Ordering::Relaxed), line);
                runs.push((line, len));
                (before, line) = (line, read(NEXT));
            }
        }
        runs.sort_unstable();
        runs
    }

    #[test]
    fn runs_do_not_overlap_and_free_neighbours_are_one() {
        let arena = Arena::new(Domain::new()).unwrap();
        let mut random = Random::new(1);
        let mut taken: Vec<Run> = Vec::new();
        for step in 0..20_000u64 {
            // It grows, shrinks, and grows again.
            let grows = step / 2000 % 2 == 0;
            if taken.is_empty() || random.below(3) < if grows { 2 } else { 1 } {
                let len = 8 + random.below(150) as u32;
                let line = arena.take(len).unwrap();
                let run = (line, len);
                for at in line..line + len {
                    // SAFETY: the run was taken above.
                    let slots = unsafe { arena.bucket(at) }.slots();
                    assert!(slots.iter().all(|slot| slot.load(Ordering::Relaxed) == 0));
                    slots[0].store(u64::MAX, Ordering::Relaxed);
                }
                taken.push(run);
            } else {
                let at = random.below(taken.len() as u64) as usize;
                let (line, len) = taken.swap_remove(at);
                arena.give_back((line, len));
            }
            if step % 100 != 0 {
                continue;
            }
            let free = free_runs(&arena);
            let touch = |pair: &[Run]| pair[0].0 + pair[0].1 == pair[1].0;
            assert!(!free.windows(2).any(touch), "neighbours are joined");
            let mut all: Vec<Run> = free.into_iter().chain(taken.iter().copied()).collect();
            all.sort_unstable();
            let mut end = 1;
            for (line, len) in all {
                assert_eq!(line, end, "no line is lost, and none is in two runs");
                end = line + len;
            }
            assert_eq!(end, arena.state.lock().end);
        }
        for (line, len) in taken {
            arena.give_back((line, len));
        }
        assert_eq!(free_runs(&arena), [(1, arena.state.lock().end - 1)]);
    }
}
