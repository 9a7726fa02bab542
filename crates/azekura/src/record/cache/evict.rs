//! Dropping: what is too much, and what is expired.
//!
//! A candidate is looked at under its bucket's lock, and dropped there or kept. So that one call never looks at all of
//! them when all are in use, it drops what it looked at last after [`LOOKS_MAX`]. What has a time to live is found by
//! walking the index: a step every [`STEP`] updates, as long as there may be any. Entries of the queues that have no
//! record any more, or are one of several that a record has, since it was removed and put again, are sifted out a chunk at
//! a time, when they are three times as many as the others.

use std::sync::atomic::Ordering;

use super::policy::{Candidate, Policy, There, Verdict};
use super::{CacheDb, Reason, charge_of};
use crate::epoch::{self, Pin};
use crate::error::Result;
use crate::index::hash::Hash;
use crate::index::{Locked, Place, Slot};
use crate::slab::Record;

/// Candidates that are looked at to drop one.
const LOOKS_MAX: u32 = 128;
/// Updates for each step of the walk for what is expired; a step is a chunk, some hundred records.
const STEP: u64 = 256;
/// Entries without a record that are not worth sifting.
const STALE: u64 = 8192;

/// How far the walk for what is expired has come.
#[derive(Default)]
pub(super) struct Sweep {
    /// Counts updates until the next step.
    updates: u64,
    /// The hash it goes on from.
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
    pub(super) fn settle(&self, pin: &Pin) {
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
                self.shelf.index.prefetch(pin, soon.hash());
            }
            looks += 1;
            if self.look_at(pin, &candidate, looks >= LOOKS_MAX) {
                looks = 0;
            }
        }
    }

    /// Drops one record, for its memory; whether there was one.
    pub(super) fn drop_one(&self, pin: &Pin) -> bool {
        let mut looks = 0;
        while let Some(candidate) = self.policy.next() {
            looks += 1;
            if self.look_at(pin, &candidate, looks >= LOOKS_MAX) {
                return true;
            }
        }
        false
    }

    /// Keeps or drops the record of a candidate; whether one was dropped.
    fn look_at(&self, pin: &Pin, candidate: &Candidate, at_any_rate: bool) -> bool {
        let hash = candidate.entry.hash();
        let Ok(locked) = self.shelf.index.lock(pin, hash) else {
            // Without memory for the first chunk of a part of the index there is no record in it.
            return false;
        };
        let Some((slot, place, record)) = self.any(pin, &locked) else {
            return false;
        };
        let is_expired = !self.is_live(&record);
        if !is_expired && !at_any_rate {
            let seen = record.was_seen();
            if Policy::judge(candidate, seen) == Verdict::Keep
                && self.policy.keep(candidate, seen).is_ok()
            {
                record.unsee();
                return false;
            }
        }
        if !is_expired {
            self.policy.dropped(candidate);
        }
        self.discard(pin, locked, slot, place, &record);
        true
    }

    /// The first record of the hash that is locked.
    fn any<'p>(
        &'p self,
        pin: &'p Pin,
        locked: &Locked<'p>,
    ) -> Option<(Slot<'p>, Place, Record<'p>)> {
        let here = |place| Ok(self.shelf.record(pin, place).map(|record| (place, record)));
        let (slot, (place, record)) = locked.find(here).ok().flatten()?;
        Some((slot, place, record))
    }

    /// Takes a record away and tells of it.
    fn discard(
        &self,
        pin: &Pin,
        locked: Locked<'_>,
        slot: Slot<'_>,
        place: Place,
        record: &Record<'_>,
    ) {
        locked.remove(slot);
        self.held.take(charge_of(record));
        drop(locked);
        self.shelf.slab.free(pin, place);
        // It can be read as long as the pin lives.
        self.tell(record);
    }

    /// Tells of a record that was dropped, after it can no longer be found, with no lock held.
    pub(super) fn tell(&self, record: &Record<'_>) {
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
        self.shelf.keep_dense(pin);
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

    /// Drops all records that are expired now; how many. Costs a scan; updates and reads go on meanwhile.
    ///
    /// Not needed for correctness: they are not found anyway, and go one by one as updates come.
    pub fn drop_expired(&self) -> Result<u64> {
        let mut dropped = 0;
        let mut at = Some(Hash(0));
        while let Some(hash) = at {
            let _inside = self.gate.enter();
            let (here, _, next) = self.sweep_chunk(&epoch::pin(), hash)?;
            dropped += here;
            at = next;
        }
        Ok(dropped)
    }

    /// Drops what is expired in the chunk that `from` falls into: how many, whether any record there has a time to live,
    /// and where the next chunk begins.
    fn sweep_chunk(&self, pin: &Pin, from: Hash) -> Result<(u64, bool, Option<Hash>)> {
        let (entries, next) = self.shelf.index.scan_chunk(pin, from)?;
        let (mut dropped, mut met) = (0, false);
        for (_, place) in &entries {
            let Some(record) = self
                .shelf
                .record(pin, *place)
                .filter(|r| r.expires.is_some())
            else {
                continue;
            };
            if self.is_live(&record) {
                met = true;
                continue;
            }
            let locked = self.shelf.index.lock(pin, self.shelf.hash(record.key))?;
            let here = |found| Ok((found == *place).then_some(()));
            if let Some((slot, ())) = locked.find(here)? {
                self.discard(pin, locked, slot, *place, &record);
                dropped += 1;
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
                    self.shelf.index.prefetch(pin, soon.hash());
                }
                // Under its lock: the record of an entry may be about to come.
                found.push(match self.shelf.index.lock(pin, entry.hash()) {
                    Ok(locked) => self.there(pin, &locked),
                    Err(_) => There::Some,
                });
            }
        }
        self.policy.put_back(sieve);
        // What was out meanwhile could not be dropped by others.
        self.settle(pin);
    }

    /// How many records there are of the hash that is locked.
    fn there(&self, pin: &Pin, locked: &Locked<'_>) -> There {
        let mut count = 0;
        let counted = locked.find(|place| {
            count += u32::from(self.shelf.record(pin, place).is_some());
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
