//! Allocation of long records: runs of 1 KiB units in a reservation of their own, whose unused pages return to the system.
//!
//! Next fit: a run is the first free one that is long enough after the last one taken. Addresses are plentiful, so holes
//! between runs cost no memory; pages that no run touches are free. Some free pages keep their memory, so that the next run
//! takes no page fault; the rest is returned at once. So the memory that is held is known exactly, unlike that of the
//! system's allocator.
//!
//! It does not know what a run holds, nor which threads still read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::explore::Mutex;
use crate::io::mmap::Map;
use crate::room;

/// Bytes of a unit: lengths are rounded up to it.
pub(super) const UNIT: u64 = 1 << 10;
/// Bytes of a page of the system.
const PAGE: u64 = 4096;
const UNITS_OF_PAGE: u64 = PAGE / UNIT;
/// Free pages that keep their memory, in addition to an eighth of those in use.
const READY: u64 = 256;
/// Units that are searched for a run before new addresses are used.
const LOOK: u64 = 1 << 20;

/// Bytes that a record of `bytes` takes, rounded up to units.
#[inline]
pub(super) const fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(UNIT)
}

/// Runs of units. See the module's text.
pub(super) struct Long {
    memory: Arc<Map>,
    state: Mutex<State>,
    /// Bytes of pages that may have memory.
    held: AtomicU64,
}

#[derive(Default)]
struct State {
    /// A bit for each unit: a run contains it.
    used: Vec<u64>,
    /// A bit for each page: it is free, and may have memory.
    ready: Vec<u64>,
    /// Units from here on were never used.
    end: u64,
    /// The unit at which the next search begins.
    next: u64,
    /// Pages that runs touch.
    pages: u64,
    /// Set bits of `ready`.
    readies: u64,
}

impl Long {
    /// An empty allocator over `capacity` bytes of addresses.
    pub(super) fn new(capacity: u64) -> Result<Self> {
        Ok(Self {
            memory: Map::anonymous(capacity.next_multiple_of(PAGE), None)?,
            state: Mutex::default(),
            held: AtomicU64::new(0),
        })
    }

    /// Bytes of memory that are held, in use or ready.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// A run of `bytes`, exclusive to the caller. `None`: out of addresses, or no memory for the bitmap.
    pub(super) fn take(&self, bytes: u64) -> Option<*mut u8> {
        let need = bytes.div_ceil(UNIT);
        let state = &mut *self.state.lock();
        let from = state.place(need, self.memory.capacity() / UNIT)?;
        state.next = from + need;
        let (first, last) = pages_of(from, need);
        for page in first..=last {
            if state.is_page_free(page) {
                state.pages += 1;
                if clear(&mut state.ready, page) {
                    state.readies -= 1;
                }
            }
        }
        set_all(&mut state.used, from, need, true);
        self.note(state);
        Some(self.memory.at(from * UNIT))
    }

    /// Gives a run of `bytes` back, at an address that [`take`](Self::take) returned. No thread reads it any more.
    pub(super) fn give_back(&self, at: *mut u8, bytes: u64) {
        let from = (at.addr() - self.memory.at(0).addr()) as u64 / UNIT;
        let state = &mut *self.state.lock();
        let len = bytes.div_ceil(UNIT);
        set_all(&mut state.used, from, len, false);
        let (first, last) = pages_of(from, len);
        for page in first..=last {
            if state.is_page_free(page) {
                state.pages -= 1;
                state.readies += u64::from(set(&mut state.ready, page));
            }
        }
        let most = state.pages / 8 + READY;
        if state.readies > most {
            self.discard(state, most / 2);
        }
        self.note(state);
    }

    /// Returns the memory of free pages to the system, except `bytes` of it.
    pub(super) fn shed(&self, bytes: u64) {
        let state = &mut *self.state.lock();
        self.discard(state, bytes / PAGE);
        self.note(state);
    }

    /// Returns the memory of free pages, except `most` of them.
    fn discard(&self, state: &mut State, most: u64) {
        let mut page = 0;
        let end = state.ready.len() as u64 * 64;
        while page < end && state.readies > most {
            let Some(from) = next_set(&state.ready, page, end) else {
                break;
            };
            let mut to = from;
            while to < end && state.readies > most && clear(&mut state.ready, to) {
                state.readies -= 1;
                to += 1;
            }
            self.memory.discard(from * PAGE, (to - from) * PAGE);
            page = to;
        }
    }

    fn note(&self, state: &State) {
        let bytes = (state.pages + state.readies) * PAGE;
        self.held.store(bytes, Ordering::Relaxed);
    }
}

impl State {
    /// The first unit of a free run of `need` units, below `most`.
    fn place(&mut self, need: u64, most: u64) -> Option<u64> {
        let next = self.next.min(self.end);
        let found = self
            .free_run(next, self.end.min(next + LOOK), need)
            .or_else(|| self.free_run(0, next.min(LOOK), need))
            .or_else(|| (self.end + need <= most).then_some(self.end))
            .or_else(|| self.free_run(0, self.end, need))?;
        let end = found + need;
        if end > self.end {
            let words = end.div_ceil(64) as usize;
            let page_words = end.div_ceil(UNITS_OF_PAGE).div_ceil(64) as usize;
            grow(&mut self.used, words).ok()?;
            grow(&mut self.ready, page_words).ok()?;
            self.end = end;
        }
        Some(found)
    }

    /// The first run of `need` free units within a range.
    fn free_run(&self, from: u64, to: u64, need: u64) -> Option<u64> {
        let (mut at, mut start) = (from, from);
        while at < to {
            let word = self.used.get((at / 64) as usize).copied()? >> (at % 64);
            let left = 64 - at % 64;
            if word & 1 == 1 {
                at += left.min(u64::from(word.trailing_ones()));
                start = at;
            } else {
                at += left.min(u64::from(word.trailing_zeros()));
                if at.min(to) - start >= need {
                    return Some(start);
                }
            }
        }
        None
    }

    fn is_page_free(&self, page: u64) -> bool {
        let unit = page * UNITS_OF_PAGE;
        let word = self.used.get((unit / 64) as usize).copied().unwrap_or(0);
        word >> (unit % 64) & ((1 << UNITS_OF_PAGE) - 1) == 0
    }
}

/// The first and the last page of a run.
fn pages_of(from: u64, units: u64) -> (u64, u64) {
    (from / UNITS_OF_PAGE, (from + units - 1) / UNITS_OF_PAGE)
}

fn grow(bits: &mut Vec<u64>, words: usize) -> Result<()> {
    if bits.len() < words {
        room::more(bits, words - bits.len())?;
        bits.resize(words, 0);
    }
    Ok(())
}

/// Sets a bit; returns whether it was clear.
fn set(bits: &mut [u64], at: u64) -> bool {
    bits.get_mut((at / 64) as usize).is_some_and(|word| {
        let before = *word;
        *word |= 1 << (at % 64);
        *word != before
    })
}

/// Clears a bit; returns whether it was set.
fn clear(bits: &mut [u64], at: u64) -> bool {
    bits.get_mut((at / 64) as usize).is_some_and(|word| {
        let before = *word;
        *word &= !(1 << (at % 64));
        *word != before
    })
}

fn set_all(bits: &mut [u64], from: u64, count: u64, to: bool) {
    let (mut at, end) = (from, from + count);
    while at < end {
        let len = (64 - at % 64).min(end - at);
        let mask = (u64::MAX >> (64 - len)) << (at % 64);
        if let Some(word) = bits.get_mut((at / 64) as usize) {
            *word = if to { *word | mask } else { *word & !mask };
        }
        at += len;
    }
}

/// The first set bit of a range.
fn next_set(bits: &[u64], from: u64, to: u64) -> Option<u64> {
    let mut at = from;
    while at < to {
        let word = bits.get((at / 64) as usize).copied()? >> (at % 64);
        if word != 0 {
            return Some(at + u64::from(word.trailing_zeros()));
        }
        at += 64 - at % 64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::random::Random;

    #[test]
    fn runs_do_not_overlap_and_memory_is_counted_by_the_page() {
        let long = Long::new(64 << 20).unwrap();
        let base = long.memory.at(0).addr() as u64;
        let mut random = Random::new(1);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for _ in 0..20_000 {
            let bytes = runs.iter().map(|(_, len)| len).sum::<u64>();
            if bytes < 16 << 20 && random.below(3) > 0 {
                let bits = 10 + random.below(9);
                let len = 1 + random.below(1 << bits);
                let at = long.take(len).unwrap().addr() as u64 - base;
                assert!(runs.iter().all(|(other, size)| {
                    at + rounded(len) <= *other || other + rounded(*size) <= at
                }));
                runs.push((at, len));
            } else if !runs.is_empty() {
                let (at, len) = runs.swap_remove(random.below(runs.len() as u64) as usize);
                long.give_back(long.memory.at(at), len);
            }
            let mut pages: Vec<u64> = runs
                .iter()
                .flat_map(|(at, len)| {
                    let (first, last) = pages_of(at / UNIT, len.div_ceil(UNIT));
                    first..=last
                })
                .collect();
            if random.below(50) == 0 {
                pages.sort_unstable();
                pages.dedup();
                let state = long.state.lock();
                assert_eq!(state.pages, pages.len() as u64);
                let readies: u32 = state.ready.iter().map(|word| word.count_ones()).sum();
                assert_eq!(state.readies, u64::from(readies));
                assert!(state.readies <= state.pages / 8 + READY);
            }
        }
        for (at, len) in runs {
            long.give_back(long.memory.at(at), len);
        }
        long.shed(0);
        assert_eq!(long.held_bytes(), 0);
    }

    #[test]
    fn a_run_beyond_the_reservation_is_refused() {
        let long = Long::new(1 << 20).unwrap();
        let at = long.take(1 << 19).unwrap();
        assert!(long.take((1 << 19) + 1).is_none());
        assert!(long.take(1 << 19).is_some());
        assert!(long.take(1).is_none());
        long.give_back(at, 1 << 19);
        assert!(long.take(1 << 19).is_some());
    }
}
