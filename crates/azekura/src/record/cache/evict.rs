//! Dropping: what is too much, and what is expired.
//!
//! A candidate is looked at under its bucket's lock, and dropped there or kept. So that one call never looks at all of
//! them when all are in use, it drops what it looked at last after [`LOOKS_MAX`]. What has a time to live is found by
//! walking the index: a step every [`STEP`] updates, as long as there may be any. Entries of the queues that have no
//! record any more, or are one of several that a record has, since it was removed and put again, are sifted out a chunk at
//! a time, when they are three times as many as the others.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::policy::{Candidate, Policy, There, Verdict};
use super::{CacheDb, Reason, charge_of};
use crate::epoch::{self, Pin};
use crate::error::Result;
use crate::index::hash::Hash;
use crate::index::{Locked, Place};
use crate::record::table::Present;
use crate::slab::Record;

/// Candidates that are looked at to drop one.
const LOOKS_MAX: u32 = 128;
/// Updates for each step of the walk for what is expired; a step is a chunk, some hundred records.
const STEP: u64 = 256;
/// Memory beyond the bytes that records are charged: one part in so many, and so much.
const MEMORY_PART: u64 = 8;
const MEMORY_SLACK: u64 = 8 << 20;
/// Rounds of making room before a put continues without it.
const ROUNDS_MAX: u32 = 64;
/// Times that readers are waited for; and, before a long record or where there is too much by one part in so many, so often
/// more and for so long each: one may have been interrupted where it reads.
const WAITS_MAX: u32 = if cfg!(azekura_explore) { 0 } else { 16 };
const NAPS_MAX: u32 = if cfg!(azekura_explore) { 0 } else { 40 };
const NAP: Duration = Duration::from_micros(500);
const MUCH_PART: u64 = 16;
/// Blocks emptied in one round, and by one call that gives memory back.
const EMPTIED_MAX: u32 = 16;
const GIVEN_BACK_MAX: u32 = 256;
/// Bytes of records dropped in one round, at least.
const DROPPED_MIN: u64 = 64 << 10;
/// One candidate in so many has the goal for memory looked at.
const GOAL_EVERY: u64 = 1024;
/// A record of so many bytes is put when there is room for it, not before, and with nothing pinned.
const LONG: u64 = 64 << 10;
/// Entries without a record that are not worth sifting.
const STALE: u64 = 8192;

/// How far the walk for what is expired has come.
#[derive(Default)]
pub(super) struct Sweep {
    /// Counts updates until the next step.
    updates: u64,
    /// The hash it resumes from.
    at: u64,
    /// Whether this round met a record with a time to live.
    met: bool,
    /// Puts of such records when this round began.
    timed_before: u64,
    /// So many puts of such records are known to have gone.
    gone: u64,
}

impl CacheDb {
    /// Drops records until the bounds hold.
    #[inline(always)]
    pub(super) fn keep_within_limit(&self, pin: &Pin) {
        if self.held.is_over() {
            self.drop_some(pin);
        }
    }

    #[inline(never)]
    fn drop_some(&self, pin: &Pin) {
        let mut looks = 0;
        while self.held.is_over() {
            // Who holds the entries there are is over as well, and looks again.
            let Some(candidate) = self.policy.next() else {
                return;
            };
            if let Some(soon) = candidate.soon {
                self.table.index.prefetch(pin, soon.hash());
            }
            looks += 1;
            if self.look_at(pin, &candidate, looks >= LOOKS_MAX) > 0 {
                looks = 0;
            }
            if candidate.entry.hash().known() % GOAL_EVERY == 0 {
                self.set_goal();
            }
        }
    }

    /// Drops one record, for its memory; what it was charged, 0 if there was none.
    pub(super) fn drop_one(&self, pin: &Pin) -> u64 {
        let mut looks = 0;
        while let Some(candidate) = self.policy.next() {
            looks += 1;
            let dropped = self.look_at(pin, &candidate, looks >= LOOKS_MAX);
            if dropped > 0 {
                return dropped;
            }
        }
        0
    }

    /// Sets what records may take of memory in addition to the index and the queues.
    pub(super) fn set_goal(&self) {
        let max = self.held.bytes_max.load(Ordering::Relaxed);
        if max == u64::MAX {
            return self.table.slab.set_goal(u64::MAX);
        }
        let all = max.saturating_add(max / MEMORY_PART + MEMORY_SLACK);
        let overhead = self.table.index.memory_bytes() + self.policy.memory_bytes();
        self.table
            .slab
            .set_goal(all.saturating_sub(overhead).max(max / 4));
    }

    /// Sees to it that records take no more memory than they may. Called outside the gate; by a thread that is
    /// pinned, it does not wait.
    #[inline(always)]
    pub(super) fn keep_within_memory(&self) {
        if self.table.slab.is_over() {
            self.make_room(0);
        }
    }

    /// As [`keep_within_memory`](Self::keep_within_memory), before a record that takes so many `bytes`: a long one is not
    /// put before there is room for it.
    #[inline(always)]
    pub(super) fn make_way(&self, bytes: u64) {
        if bytes >= LONG {
            self.make_way_for_long(bytes);
        } else {
            self.keep_within_memory();
        }
    }

    #[cold]
    #[inline(never)]
    fn make_way_for_long(&self, bytes: u64) {
        if self.table.slab.excess(bytes, false) > 0 {
            self.make_room(bytes);
        }
    }

    /// Gives memory back, so that `more` bytes have room: what is kept ready; then sparse blocks, whose records are moved; then
    /// records, as they would be dropped anyway; and where those stand among others, a block with all its records.
    #[cold]
    #[inline(never)]
    fn make_room(&self, more: u64) {
        // What a pinned thread freed does not come back before it has ended, and the thread that makes room may wait for it.
        let (one, rounds) = if epoch::is_pinned() {
            (self.making_room.try_lock(), 1)
        } else {
            (Some(self.making_room.lock()), ROUNDS_MAX)
        };
        let Some(mut one) = one else { return };
        let slab = &self.table.slab;
        let excess = slab.excess(more, false);
        // Another thread may have made it meanwhile.
        if excess == 0 {
            return;
        }
        let much = self.held.bytes_max.load(Ordering::Relaxed) / MUCH_PART;
        let (mut waits, mut naps) = (WAITS_MAX, u32::from(more > 0 || excess > much) * NAPS_MAX);
        for _ in 0..rounds {
            slab.reclaim();
            slab.shed(true);
            if slab.excess(more, true) > 0 {
                slab.shed(false);
            }
            let excess = slab.excess(more, true);
            if excess == 0 {
                return;
            }
            // What readers keep comes back when they have ended: most do at once.
            if excess <= slab.waiting_bytes() {
                if waits > 0 {
                    waits -= 1;
                    std::thread::yield_now();
                } else if naps > 0 {
                    // Each that continued without room would take as much again.
                    naps -= 1;
                    drop(one);
                    std::thread::sleep(NAP);
                    one = self.making_room.lock();
                } else {
                    return;
                }
                continue;
            }
            if self.empty_some(EMPTIED_MAX, Some(more)) {
                continue;
            }
            let dropped = self.drop_bytes(excess.max(DROPPED_MIN));
            let emptied = slab.excess(more, true) > excess / 2 && self.drop_block();
            if !dropped && !emptied {
                break;
            }
        }
        let excess = slab.excess(more, false);
        tracing::debug!(excess, "records take more memory than they may");
    }

    /// Moves the records of sparse blocks together, as long as records take more memory than they may once so many bytes
    /// have come, or, without a number of bytes, as long as blocks take much more than records. Whether any was moved.
    fn empty_some(&self, most: u32, for_room: Option<u64>) -> bool {
        let slab = &self.table.slab;
        let mut emptied = 0;
        while emptied < most {
            let is_due = match for_room {
                Some(more) => slab.excess(more, true) > 0,
                None => slab.is_sparse(),
            };
            if !is_due {
                break;
            }
            let _inside = self.gate.enter();
            let mut move_away = |pin: &Pin, place| self.table.move_away(pin, place);
            match slab.empty_one(true, &mut move_away) {
                Ok(true) => emptied += 1,
                Ok(false) => break,
                Err(error) => {
                    tracing::debug!(%error, "records could not be moved together");
                    break;
                }
            }
            if emptied % 4 == 0 {
                slab.reclaim();
            }
        }
        slab.reclaim();
        emptied > 0
    }

    /// Drops all records of the emptiest block; whether there was one.
    fn drop_block(&self) -> bool {
        let dropped = {
            let _inside = self.gate.enter();
            let mut drop_away = |pin: &Pin, place| match self.table.record(pin, place) {
                Some(record) => self.drop_at(pin, place, &record).map(drop),
                None => Ok(()),
            };
            self.table.slab.empty_one(false, &mut drop_away)
        };
        self.table.slab.reclaim();
        matches!(dropped, Ok(true))
    }

    /// Drops the record that stands at `place`; whether it could be found.
    fn drop_at(&self, pin: &Pin, place: Place, record: &Record<'_>) -> Result<bool> {
        let locked = self.table.index.lock(pin, self.table.hash(record.key))?;
        let here = self.table.first(pin, &locked, |found, _| found == place)?;
        let is_there = here.is_some();
        if let Some(present) = here {
            self.discard(pin, locked, &present);
        }
        Ok(is_there)
    }

    /// Drops records of so many bytes; whether there were any.
    fn drop_bytes(&self, bytes: u64) -> bool {
        let mut dropped = 0;
        {
            let _inside = self.gate.enter();
            let pin = self.table.pin();
            while dropped < bytes {
                match self.drop_one(&pin) {
                    0 => break,
                    one => dropped += one,
                }
            }
        }
        self.table.slab.reclaim();
        dropped > 0
    }

    /// Gives memory that no record needs back to the system: what was freed, what sparse blocks take, what is kept ready
    /// beyond an eighth of what is in use. Needed where the cache became emptier and no thread puts; its owner calls it
    /// now and then. Costs nothing worth mentioning where there is nothing to give.
    pub fn give_back(&self) {
        let slab = &self.table.slab;
        // Not what the slab calls live: long records that wait for readers are among that.
        let needed = self.held.bytes.load(Ordering::Relaxed);
        if slab.memory_bytes() > needed + needed / MEMORY_PART + MEMORY_SLACK / 4 {
            slab.reclaim();
            self.empty_some(GIVEN_BACK_MAX, None);
            slab.shed(true);
        }
        self.set_goal();
        self.keep_within_memory();
    }

    /// Keeps or drops the record of a candidate; what a dropped one was charged, else 0.
    fn look_at(&self, pin: &Pin, candidate: &Candidate, at_any_rate: bool) -> u64 {
        let hash = candidate.entry.hash();
        let Ok(locked) = self.table.index.lock(pin, hash) else {
            // Without memory for the first chunk of a part of the index there is no record in it.
            return 0;
        };
        // The first record of the hash.
        let Ok(Some(present)) = self.table.first(pin, &locked, |_, _| true) else {
            return 0;
        };
        let record = &present.record;
        let is_expired = !self.is_live(record);
        if !is_expired && !at_any_rate {
            let seen = record.was_seen();
            if Policy::judge(candidate, seen) == Verdict::Keep
                && self.policy.keep(candidate, seen).is_ok()
            {
                record.unsee();
                return 0;
            }
        }
        if !is_expired {
            self.policy.dropped(candidate);
        }
        self.discard(pin, locked, &present);
        charge_of(&present.record)
    }

    /// Removes a record and reports it.
    fn discard(&self, pin: &Pin, locked: Locked<'_>, present: &Present<'_>) {
        locked.remove(present.slot);
        self.held.take(charge_of(&present.record));
        drop(locked);
        self.table.free(pin, present.place);
        // It can be read as long as the pin lives.
        self.report(&present.record);
    }

    /// Reports a record that was dropped, after it can no longer be found, with no lock held.
    pub(super) fn report(&self, record: &Record<'_>) {
        if let Some(dropped) = &self.dropped {
            let reason = if self.is_live(record) {
                Reason::Capacity
            } else {
                Reason::Expired
            };
            dropped(record.key, record.value, reason);
        }
    }

    /// What every update does a little of: looks for what is expired, sifts the queues, moves records together.
    #[inline(always)]
    pub(super) fn tend(&self, pin: &Pin) {
        if self.timed.load(Ordering::Relaxed) != 0 {
            self.step(pin);
        }
        if self.is_sifting_due() {
            self.sift(pin);
        }
        self.table.keep_dense(pin);
    }

    /// Whether too many entries of the queues have no record.
    #[inline(always)]
    pub(super) fn is_sifting_due(&self) -> bool {
        self.policy.len() as u64 > 4 * self.held.records.load(Ordering::Relaxed) + STALE
    }

    #[cold]
    #[inline(never)]
    fn step(&self, pin: &Pin) {
        let Some(mut sweep) = self.sweep.try_lock() else {
            return;
        };
        sweep.updates += 1;
        let timed = self.timed.load(Ordering::Relaxed);
        if sweep.updates % STEP != 0 || sweep.gone == timed {
            return;
        }
        if sweep.at == 0 {
            (sweep.met, sweep.timed_before) = (false, timed);
        }
        match self.sweep_chunk(pin, Hash(sweep.at)) {
            Ok((_, met, next)) => {
                sweep.met |= met;
                sweep.at = next.map_or(0, |hash| hash.0);
                if next.is_none() && !sweep.met {
                    sweep.gone = sweep.timed_before;
                }
            }
            Err(error) => tracing::debug!(%error, "expired records could not be looked for"),
        }
    }

    /// Drops all records that are expired now; how many. Costs a scan; updates and reads continue meanwhile.
    ///
    /// Not needed for correctness: they are not found anyway, and go one by one as updates come.
    pub fn drop_expired(&self) -> Result<u64> {
        let mut dropped = 0;
        let mut at = Some(Hash(0));
        while let Some(hash) = at {
            let _inside = self.gate.enter();
            let (here, _, next) = self.sweep_chunk(&self.table.pin(), hash)?;
            dropped += here;
            at = next;
        }
        Ok(dropped)
    }

    /// Drops what is expired in the chunk that `from` falls into: how many, whether any record there has a time to live,
    /// and where the next chunk begins.
    fn sweep_chunk(&self, pin: &Pin, from: Hash) -> Result<(u64, bool, Option<Hash>)> {
        let (entries, next) = self.table.index.scan_chunk(pin, from)?;
        let (mut dropped, mut met) = (0, false);
        for (_, place) in &entries {
            let record = self.table.record(pin, *place);
            let Some(record) = record.filter(|record| record.expires.is_some()) else {
                continue;
            };
            if self.is_live(&record) {
                met = true;
            } else {
                dropped += u64::from(self.drop_at(pin, *place, &record)?);
            }
        }
        Ok((dropped, met, next))
    }

    /// Takes entries that are one too many out of a chunk of a queue.
    #[cold]
    #[inline(never)]
    fn sift(&self, pin: &Pin) {
        const AHEAD: usize = 8;
        let records = self.held.records.load(Ordering::Relaxed);
        let Some(mut sieve) = self.policy.take_some(records) else {
            return;
        };
        let (entries, found) = (&sieve.entries, &mut sieve.found);
        // Without memory to note what is found, all stay.
        if found.try_reserve_exact(entries.len()).is_ok() {
            for (at, entry) in entries.iter().enumerate() {
                if let Some(soon) = entries.get(at + AHEAD) {
                    self.table.index.prefetch(pin, soon.hash());
                }
                // Under its lock: the record of an entry may be about to come.
                found.push(match self.table.index.lock(pin, entry.hash()) {
                    Ok(locked) => self.there(pin, &locked),
                    Err(_) => There::Some,
                });
            }
        }
        self.policy.put_back(sieve);
        // What was out meanwhile could not be dropped by others.
        self.keep_within_limit(pin);
    }

    /// How many records there are of the hash that is locked.
    fn there(&self, pin: &Pin, locked: &Locked<'_>) -> There {
        let mut count = 0;
        let counted = locked.find(|place| {
            count += u32::from(self.table.record(pin, place).is_some());
            Ok(None::<()>)
        });
        match count {
            _ if counted.is_err() => There::Some,
            0 => There::No,
            1 => There::One,
            _ => There::Some,
        }
    }
}
