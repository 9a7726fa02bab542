//! How many records there are, now and at cuts.
//!
//! Changes before and after the last cut are counted by two counters, so that a cut knows its number without a stop. What waits in the change
//! buffer is counted when it is merged: by the counter of its side of the last cut, or, if that is older, in all numbers of cuts after
//! it. So the number of a cut is exact when all puts before it are merged. It does not know when that is.

use super::cut::Newest;
use crate::counter::Counter;
use crate::epoch::Pin;
use crate::error::Result;
use crate::explore::Mutex;

/// Records at moments in the past.
#[derive(Debug)]
struct Past {
    /// Before the last cut but one was over.
    count: i64,
    /// At the cuts that live.
    cuts: Vec<(u64, i64)>,
}

/// See the module's text.
pub(super) struct Counts {
    past: Mutex<Past>,
    /// By the number that a cut gives.
    since: [Counter; 2],
}

impl Counts {
    pub(super) fn new(count: u64) -> Result<Self> {
        let past = Past {
            count: count.cast_signed(),
            cuts: Vec::new(),
        };
        Ok(Self {
            past: Mutex::new(past),
            since: [Counter::new(0)?, Counter::new(0)?],
        })
    }

    /// Adds to one of two counters, that of a change's side of the last cut.
    #[inline(always)]
    pub(super) fn add(&self, pin: &Pin, counter: usize, by: i64) {
        self.since[counter].add(pin, by);
    }

    /// A put that waited since a position was of one record more. The caller is in a critical section, in which it looked for the newest cut.
    pub(super) fn add_merged(&self, pin: &Pin, position: u64, newest: Newest) {
        if position >= newest.at() {
            self.add(pin, newest.counter(position), 1);
            return;
        }
        let mut past = self.past.lock();
        past.count += 1;
        let after = |(cut, _): &&mut (u64, i64)| *cut > position;
        for (_, count) in past.cuts.iter_mut().filter(after) {
            *count += 1;
        }
    }

    pub(super) fn sum(&self) -> u64 {
        let past = self.past.lock();
        let since: i64 = self.since.iter().map(Counter::signed_sum).sum();
        (past.count + since).max(0).cast_unsigned()
    }

    /// None, while nothing is counted.
    pub(super) fn reset(&self) {
        self.past.lock().count = 0;
        self.since.iter().for_each(Counter::reset);
    }

    /// Begins to know the number at a cut, after which changes are counted by another counter than this, while none is counted by this any
    /// more.
    pub(super) fn begin_cut(&self, cut: u64, counter: usize) {
        let mut past = self.past.lock();
        past.count += self.since[counter].signed_sum();
        self.since[counter].reset();
        let count = past.count;
        past.cuts.push((cut, count));
    }

    /// The number at a cut that lives.
    pub(super) fn at_cut(&self, cut: u64) -> u64 {
        let past = self.past.lock();
        let of = past.cuts.iter().find(|(at, _)| *at == cut);
        of.map_or(0, |(_, count)| (*count).max(0).cast_unsigned())
    }

    /// The number at a cut is not needed any more, once.
    pub(super) fn end_cut(&self, cut: u64) {
        let mut past = self.past.lock();
        if let Some(at) = past.cuts.iter().position(|(of, _)| *of == cut) {
            past.cuts.swap_remove(at);
        }
    }
}

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counts")
            .field("sum", &self.sum())
            .finish_non_exhaustive()
    }
}
