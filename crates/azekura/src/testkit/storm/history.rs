//! What the threads of a storm did, and whether a state of the store fits it.
//!
//! Promises: each key's changes are known in order, with the moments between which each was made, so that a state is judged by
//! what may and what must be in it. It does not know how threads are scheduled, nor how a crash comes about.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Answers, Promise, Shape};
use crate::error::{Kind, Result};
use crate::io::sim::SimDisk;
use crate::testkit::Random;
use crate::testkit::crash::End;

/// A moment: how many were before it, and how many events of the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick {
    pub(super) tick: u64,
    pub(super) events: usize,
}

/// One thing that was done: its beginning, and when it was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) began: Tick,
    pub(super) ended: Tick,
}

impl Interval {
    fn begun_by(&self, events: usize) -> bool {
        self.began.events <= events
    }

    fn ended_by(&self, events: usize) -> bool {
        self.ended.events <= events
    }

    /// Surely over before `other` began.
    fn is_before(&self, other: &Self) -> bool {
        self.ended.tick < other.began.tick
    }
}

/// A change of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Did {
    pub(super) span: Interval,
    /// Length of the value that was put under this version; `None`: removed.
    pub(super) put: Option<(u32, usize)>,
    pub(super) batch: Option<u32>,
}

/// What all threads did.
pub(super) struct History {
    disk: SimDisk,
    promise: Promise,
    clock: AtomicU64,
    pub(super) keys: Vec<Mutex<Vec<Did>>>,
    pub(super) clears: Mutex<Vec<Interval>>,
    pub(super) syncs: Mutex<Vec<Interval>>,
    batches: AtomicU64,
    /// Nothing may be refused.
    pub(super) is_ample: bool,
    /// Clears that were begun: what they remove is not there to be replaced.
    pub(super) clears_begun: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
}

/// The bytes of a version of a key: short ones state nothing, and may be of several.
pub(super) fn value(key: u32, version: u32, len: usize) -> Vec<u8> {
    if (key ^ version).is_multiple_of(2) {
        return Random::new(u64::from(key) << 32 | u64::from(version)).bytes(len);
    }
    let word = (u64::from(key) << 32 | u64::from(version)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    word.to_le_bytes().into_iter().cycle().take(len).collect()
}

impl History {
    pub(super) fn new(disk: &SimDisk, shape: &Shape, promise: Promise, is_ample: bool) -> Self {
        Self {
            disk: disk.clone(),
            promise,
            clock: AtomicU64::new(0),
            keys: (0..shape.keys).map(|_| Mutex::default()).collect(),
            clears: Mutex::default(),
            syncs: Mutex::default(),
            batches: AtomicU64::new(0),
            is_ample,
            clears_begun: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    pub(super) fn answers(&self) -> Answers {
        Answers {
            taken: self.taken.load(Ordering::SeqCst),
            refused: self.refused.load(Ordering::SeqCst),
        }
    }

    pub(super) fn now(&self) -> Tick {
        Tick {
            tick: self.clock.fetch_add(1, Ordering::SeqCst),
            events: self.disk.events(),
        }
    }

    /// Does something that no store refuses; its span.
    pub(super) fn span(&self, what: &str, act: impl FnOnce() -> Result<()>) -> Interval {
        let began = self.now();
        if let Err(error) = act() {
            panic!("{what} is refused: {error}");
        }
        let ended = self.now();
        Interval { began, ended }
    }

    /// Whether not even a full store may refuse these changes, which were just asked for: they remove, or replace what was there
    /// by no more.
    fn is_owed(&self, changes: &[(u32, Option<(u32, usize)>)]) -> bool {
        if changes.iter().all(|(_, put)| put.is_none()) {
            return true;
        }
        let [(key, Some((_, len)))] = changes else {
            return false;
        };
        let present = self.keys[*key as usize]
            .lock()
            .last()
            .and_then(|did| did.put);
        let replaced = present.is_some_and(|(_, present)| *len <= present);
        self.promise.replaces && replaced && self.clears_begun.load(Ordering::SeqCst) == 0
    }

    /// Makes changes of one writer's keys, and notes them.
    pub(super) fn changes(
        &self,
        changes: &[(u32, Option<(u32, usize)>)],
        act: impl FnOnce(&[(u32, Option<Vec<u8>>)]) -> Result<()>,
    ) {
        let made: Vec<(u32, Option<Vec<u8>>)> = changes
            .iter()
            .map(|(key, put)| (*key, put.map(|(version, len)| value(*key, version, len))))
            .collect();
        let batch = (changes.len() > 1).then(|| self.batches.fetch_add(1, Ordering::SeqCst) as u32);
        let began = self.now();
        let done = act(&made);
        let ended = self.now();
        match done {
            Ok(()) => self.taken.fetch_add(1, Ordering::SeqCst),
            // It is not tried again, and no state may show it.
            Err(error) if error.kind() == Kind::Full => {
                assert!(
                    !self.is_ample,
                    "{changes:?} refused with room left: {error}"
                );
                let is_owed = self.is_owed(changes);
                assert!(
                    !is_owed,
                    "{changes:?} refused, which takes no room: {error}"
                );
                self.refused.fetch_add(1, Ordering::SeqCst);
                return;
            }
            Err(error) => panic!("{changes:?} refused: {error}"),
        };
        let span = Interval { began, ended };
        for (key, put) in changes {
            let put = *put;
            self.keys[*key as usize]
                .lock()
                .push(Did { span, put, batch });
        }
    }

    /// Whether it must have lasted.
    fn must(&self, span: &Interval, events: usize, end: End, horizon: u64) -> bool {
        match end {
            End::Process => span.ended_by(events),
            End::Power => {
                let synced = span.ended.tick < horizon;
                synced || self.promise.durable && span.ended_by(events)
            }
        }
    }

    /// Judges what `found` answers after so many events; a digest of it.
    pub(super) fn judge(
        &self,
        events: usize,
        end: End,
        found: &dyn Fn(u32) -> Result<Option<Vec<u8>>>,
    ) -> std::result::Result<u64, String> {
        let clears: Vec<Interval> = self.clears.lock().clone();
        let begun_clears: Vec<&Interval> = clears.iter().filter(|c| c.begun_by(events)).collect();
        let synced = self.syncs.lock();
        let synced = synced.iter().filter(|sync| sync.ended_by(events));
        let mut horizon = synced.map(|sync| sync.began.tick).max().unwrap_or(0);
        // What each key shows, and by which of its changes.
        let mut seen = Vec::new();
        let mut digest = 1u64;
        for key in 0..self.keys.len() as u32 {
            let shown = found(key).map_err(|error| format!("key {key}: {error}"))?;
            let history = self.keys[key as usize].lock();
            let fits: Vec<usize> = history
                .iter()
                .enumerate()
                .filter(|(_, did)| did.span.begun_by(events))
                .filter(|(_, did)| match (did.put, &shown) {
                    (Some((version, len)), Some(shown)) => {
                        len == shown.len() && value(key, version, len) == *shown
                    }
                    (None, None) => true,
                    _ => false,
                })
                .map(|(at, _)| at)
                .collect();
            for byte in shown.iter().flatten().take(64).chain(&[9]) {
                digest = (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
            if self.promise.one_history
                && end == End::Power
                && shown.is_some()
                && let Some(first) = fits.first()
            {
                horizon = horizon.max(history[*first].span.began.tick);
            }
            seen.push((shown.map(|shown| shown.len()), fits));
        }
        let mut legal = BTreeMap::new();
        for (key, (shown, fits)) in (0u32..).zip(&seen) {
            let history = self.keys[key as usize].lock();
            let least = history
                .iter()
                .rposition(|did| self.must(&did.span, events, end, horizon));
            let fits: Vec<usize> = fits
                .iter()
                .copied()
                .filter(|at| least.is_none_or(|least| *at >= least))
                .collect();
            let is_right = if shown.is_some() {
                let returned = |at: &usize| {
                    let cleared = |clear: &&&Interval| history[*at].span.is_before(clear);
                    let must = |clear: &&Interval| self.must(clear, events, end, horizon);
                    begun_clears.iter().filter(cleared).any(must)
                };
                !fits.is_empty() && !fits.iter().all(returned)
            } else {
                let since = |clear: &&Interval| {
                    least.is_none_or(|least| !clear.is_before(&history[least].span))
                };
                least.is_none() || !fits.is_empty() || begun_clears.iter().any(since)
            };
            if !is_right {
                let of: Vec<_> = history
                    .iter()
                    .map(|did| (did.put, did.span.ended_by(events)))
                    .collect();
                return Err(format!(
                    "key {key} has {shown:?} bytes, version {:?}, and must show change {least:?} or a later one of \
                     {of:?}; clears {begun_clears:?}",
                    fits.iter().map(|at| history[*at].put).collect::<Vec<_>>()
                ));
            }
            for (at, did) in history.iter().enumerate() {
                let Some(batch) = did.batch.filter(|_| did.span.begun_by(events)) else {
                    continue;
                };
                let cleared = begun_clears.iter().any(|clear| !clear.is_before(&did.span));
                // Where each key has a history of its own, a later change states nothing of the batch.
                let shows = |fit: &usize| *fit == at || *fit > at && self.promise.one_history;
                let (surely, surely_not) = if shown.is_some() {
                    (fits.iter().all(shows), fits.iter().all(|fit| *fit < at))
                } else {
                    let removed = fits.iter().any(|fit| *fit >= at);
                    (false, !removed && !cleared)
                };
                let of: &mut (Option<u32>, Option<u32>) = legal.entry(batch).or_default();
                of.0 = of.0.or(surely.then_some(key));
                of.1 = of.1.or(surely_not.then_some(key));
            }
        }
        for (batch, of) in legal {
            if let (Some(there), Some(not)) = of {
                return Err(format!(
                    "batch {batch} is there in part: key {there} has it, key {not} has not"
                ));
            }
        }
        Ok(digest)
    }
}
