//! The counters: requests and their outcomes, counted without a cache line that threads share.
//!
//! A session counts for itself and adds its sums, when a call of `serve` ends, to the shard of its thread; a reader adds the
//! shards up. So a count is exact once all calls have returned. It knows no sockets.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::memcached::operate::latency::WorkCounts;

/// Names every figure once, as an item of an enumeration and as the word that is shown: `WORDS` has its order.
macro_rules! figures {
    ($figure:ident: $($name:ident $word:literal)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $figure { $($name),* }

        pub(crate) const WORDS: &[&str] = &[$($word),*];
    };
}
pub(crate) use figures;

figures! { Count:
    CmdGet "cmd_get"
    CmdSet "cmd_set"
    CmdFlush "cmd_flush"
    CmdTouch "cmd_touch"
    CmdMeta "cmd_meta"
    GetHits "get_hits"
    GetMisses "get_misses"
    GetExpired "get_expired"
    DeleteMisses "delete_misses"
    DeleteHits "delete_hits"
    IncrMisses "incr_misses"
    IncrHits "incr_hits"
    DecrMisses "decr_misses"
    DecrHits "decr_hits"
    CasMisses "cas_misses"
    CasHits "cas_hits"
    CasBadval "cas_badval"
    TouchHits "touch_hits"
    TouchMisses "touch_misses"
    StoreTooLarge "store_too_large"
    StoreNoMemory "store_no_memory"
    AuthCmds "auth_cmds"
    AuthErrors "auth_errors"
    BytesRead "bytes_read"
    BytesWritten "bytes_written"
    ConnYields "conn_yields"
    TotalItems "total_items"
}

const COUNTS: usize = WORDS.len();
/// Power of two.
const SHARDS: usize = 32;

/// The figures of one session since it handed them over last.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    sums: [u32; COUNTS],
    /// Bit by bit, which sums are not zero.
    touched: u32,
}

impl Tally {
    #[inline(always)]
    pub(crate) fn one(&mut self, count: Count) {
        self.add(count, 1);
    }

    #[inline(always)]
    pub(crate) fn add(&mut self, count: Count, more: u32) {
        if let Some(sum) = self.sums.get_mut(count as usize) {
            *sum = sum.wrapping_add(more);
        }
        self.touched |= 1 << count as u32;
    }

    /// Counts a key that was read: whether there was an item, and whether it had not expired.
    #[inline]
    pub(crate) fn read(&mut self, is_there: bool, is_live: bool) {
        self.one(Count::CmdGet);
        if is_live {
            self.one(Count::GetHits);
        } else {
            self.one(Count::GetMisses);
            if is_there {
                self.one(Count::GetExpired);
            }
        }
    }

    /// What was done since the sums were taken; `has_answered`: whether there was any output.
    #[inline]
    pub(crate) fn did(&self, has_answered: bool) -> WorkCounts {
        let of = |count: Count| self.sums.get(count as usize).copied().unwrap_or(0);
        let mut did = WorkCounts([
            of(Count::CmdGet),
            of(Count::CmdSet),
            of(Count::DeleteHits) + of(Count::DeleteMisses),
            of(Count::IncrHits)
                + of(Count::IncrMisses)
                + of(Count::DecrHits)
                + of(Count::DecrMisses),
            of(Count::CmdTouch),
            0,
        ]);
        if has_answered && did.is_nothing() {
            did.0[5] = 1;
        }
        did
    }
}

#[repr(align(128))]
#[derive(Debug)]
struct Shard([AtomicU64; COUNTS]);

/// The figures of a service.
#[derive(Debug)]
pub struct Counters {
    shards: Box<[Shard]>,
}

impl Default for Counters {
    fn default() -> Self {
        let shard = || Shard([const { AtomicU64::new(0) }; COUNTS]);
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
        }
    }
}

/// The shard of this thread: threads take them in turn.
fn shard_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    OWN.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        own.get()
    })
}

impl Counters {
    /// Takes over what a session counted.
    pub(crate) fn take(&self, tally: &mut Tally) {
        let Some(shard) = self.shards.get(shard_index()) else {
            return;
        };
        while tally.touched != 0 {
            let index = tally.touched.trailing_zeros() as usize;
            tally.touched &= tally.touched - 1;
            if let (Some(sum), Some(total)) = (tally.sums.get_mut(index), shard.0.get(index)) {
                total.fetch_add(u64::from(*sum), Ordering::Relaxed);
                *sum = 0;
            }
        }
    }

    fn sum(&self, index: usize) -> u64 {
        let of = |shard: &Shard| shard.0.get(index).map_or(0, |n| n.load(Ordering::Relaxed));
        self.shards.iter().map(of).fold(0, u64::wrapping_add)
    }

    /// The figure of this name, as `stats` shows it (`get_hits`, `cmd_set`, ...); `None`: it is not counted here.
    pub fn figure(&self, name: &str) -> Option<u64> {
        let index = WORDS.iter().position(|word| *word == name)?;
        Some(self.sum(index))
    }

    /// Sets all figures to zero. What others count at the same time may or may not be in them afterwards.
    pub fn reset(&self) {
        for shard in &self.shards {
            for total in &shard.0 {
                total.store(0, Ordering::Relaxed);
            }
        }
    }
}

const _: () = assert!(COUNTS <= 32, "a bit of `touched` for each");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sessions_count_is_added_up_and_reset() {
        let counters = Counters::default();
        let mut tally = Tally::default();
        tally.one(Count::CmdGet);
        tally.add(Count::TotalItems, 7);
        counters.take(&mut tally);
        counters.take(&mut tally);
        tally.one(Count::CmdGet);
        counters.take(&mut tally);
        assert_eq!(counters.figure("cmd_get"), Some(2));
        assert_eq!(counters.figure("total_items"), Some(7));
        assert_eq!(counters.figure("nothing"), None);
        counters.reset();
        assert_eq!(counters.figure("cmd_get"), Some(0));
    }
}
