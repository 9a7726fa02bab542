//! What the keeper of an open file does.
//!
//! It wakes when a segment was filled, and for the sync interval: prepares the next segments, checkpoints
//! when the log behind the last checkpoint has grown long, cleans when the log has outgrown its
//! bound (`clean` has the pace). Each step is bounded; a writer that gets far ahead does a step itself, and if that is not
//! enough, writers wait for each other's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Core;
use super::checkpoint::look_ahead_each;
use crate::epoch;
use crate::error::{Kind, Result};
use crate::index::hash::Hash;
use crate::log::{Address, Patience};
use crate::weave::Mutex;
use crate::worker::Worker;

/// Segments kept ready for appenders.
const PREPARED: usize = 6;
/// Bytes of log between two checkpoints for each record of a large store: about what its entry takes in an image,
/// so a checkpoint writes about as much as was appended.
const INTERVAL_PER_RECORD: u64 = 4;
/// Without an append for so long, what the pace of cleaning put off is done.
const IDLE: Duration = Duration::from_millis(50);

/// How long a writer waits for a thread that cleans, and for one that makes a checkpoint, where the log is out of hand.
const HELD_BACK: Duration = Duration::from_millis(500);
const CHECKPOINT: Duration = Duration::from_secs(10);
/// Steps that it tries in a row of which none does anything.
const IN_VAIN_MAX: u32 = 20;

/// `Io` if the system gives no thread.
pub(super) fn start(core: &Arc<Core>) -> Result<Worker> {
    let own = Arc::clone(core);
    let path = core.log.storage().path();
    Worker::start("azekura-keeper", path, &core.wakeup, move || own.keep())
}

impl Core {
    fn keep(&self) {
        let mut stripe = 0;
        let (mut woken, mut idle) = (false, false);
        let mut synced = Instant::now();
        loop {
            if self.wakeup.pending().stop {
                return;
            }
            let debt = match self.keeper_step(woken, idle) {
                Ok(debt) => debt,
                Err(error) => {
                    tracing::error!(%error, "background work failed");
                    if self.log.healthy().is_err() {
                        return;
                    }
                    false
                }
            };
            // Whatever is left of the index comes in while nothing else is to be done.
            let warming = stripe < crate::index::hash::STRIPES;
            if warming {
                let end = (stripe + 8).min(crate::index::hash::STRIPES);
                for stripe in stripe..end {
                    if let Err(error) = self.index.warm(stripe) {
                        tracing::error!(%error, "a part of the index cannot be read");
                    }
                }
                stripe = end;
            }
            let left = self.options.sync_interval.map(|interval| {
                if synced.elapsed() >= interval {
                    if let Err(error) = self.log.sync() {
                        tracing::error!(%error, "the interval's sync failed");
                    }
                    synced = Instant::now();
                }
                interval.saturating_sub(synced.elapsed())
            });
            let left = match (warming, left, debt) {
                (true, ..) => Some(Duration::ZERO),
                (_, None, false) => None,
                (_, None, true) => Some(IDLE),
                (_, Some(left), debt) => Some(if debt { left.min(IDLE) } else { left }),
            };
            woken = self.wakeup.wait(left).work;
            idle = debt && !woken;
        }
    }

    /// Does what is due; `idle`: also what the pace put off, until the wakeup rings. Returns whether the pace
    /// put something off.
    fn keeper_step(&self, woken: bool, idle: bool) -> Result<bool> {
        self.log.segments().reap();
        // Only for writers: what `compact` cut off is not to come back by itself.
        if woken {
            self.look_ahead();
            self.log.segments().prepare(PREPARED)?;
        }
        let mut paced = !idle;
        loop {
            if !self.step(paced, Duration::ZERO)? {
                return Ok(paced && self.is_over_bound());
            }
            let pending = self.wakeup.pending();
            if pending.stop {
                return Ok(false);
            }
            paced |= pending.work;
            if woken {
                self.log.segments().prepare(PREPARED)?;
            }
        }
    }

    /// Wakes the keeper, if there is one.
    pub(super) fn wake(&self) {
        if self.options.background {
            self.wakeup.wake();
        }
    }

    /// Called by a writer when a segment was filled since the last call, and on every update of a full store; `grows`:
    /// by one that may store more than was there. An update from inside another store's closure leaves the work to others: who
    /// does it may wait for that closure to end.
    #[cold]
    pub(super) fn work_is_due(
        &self,
        grows: bool,
        key: Option<(&[u8], Hash)>,
        surely: bool,
    ) -> Result<()> {
        self.log.placed()?;
        if epoch::is_within_update() {
            self.wake();
            return Ok(());
        }
        if self.log.appended() >= self.wake_at.load(Ordering::Relaxed) {
            // That there is no room for the work is no reason to refuse an update that needs none.
            match self.segment_is_filled() {
                Err(error) if error.kind() == Kind::Full => {}
                other => other?,
            }
        }
        if self.log.segments().is_full() {
            let present = key
                .filter(|_| grows)
                .and_then(|(key, hash)| self.place_of(key, hash));
            // Who is not sure of it waits where it is refused.
            let mut patience = if surely {
                Patience::default()
            } else {
                Patience::short()
            };
            self.relieve(grows, present, None, surely, &mut patience)?;
        }
        Ok(())
    }

    /// Looks ahead, if it is time since `before` bytes were appended.
    fn look_ahead_in_time(&self, before: u64) {
        let each = look_ahead_each(self.log.segments().total());
        let times = |appended: u64| (appended >> self.log.geometry().shift) / each;
        if times(self.log.appended()) != times(before) {
            self.look_ahead();
        }
    }

    /// Where the record of `key` stands.
    pub(super) fn place_of(&self, key: &[u8], hash: Hash) -> Option<Address> {
        let pin = self.index.pin();
        let here = |place| Ok(self.matching(&pin, place, key)?.map(|_| Address(place)));
        self.index.find(&pin, hash, here).ok().flatten()
    }

    fn segment_is_filled(&self) -> Result<()> {
        let size = self.log.geometry().segment_size();
        let next = self.log.appended() + size;
        let last = self.wake_at.swap(next, Ordering::Relaxed);
        self.look_ahead_in_time(last.saturating_sub(size));
        if self.options.background {
            self.wakeup.wake();
            if self.is_far_behind() {
                self.step(true, Duration::ZERO)?;
            }
            // Also where it is what a checkpoint did not free yet: one that waits for a slow device.
            return self.hold_back();
        }
        self.step(true, Duration::ZERO).map(|_| ())
    }

    /// Writers that together outrun cleaning do it themselves, one after the other, whenever one has filled a segment, until
    /// the log is within its bound, and wait for each other's steps. Where a copy, a check or a follower keeps cleaning from
    /// going on, none waits for that: they hold `cleaning`, too, which a checkpoint alone does not.
    fn hold_back(&self) -> Result<()> {
        let mut in_vain = 0;
        while self.is_out_of_hand() && in_vain < IN_VAIN_MAX {
            let is_free =
                comes_free(&self.cleaning, HELD_BACK) && comes_free(&self.checkpoint, CHECKPOINT);
            if !is_free {
                return Ok(());
            }
            let is_won = self.step(false, HELD_BACK)?;
            in_vain = if is_won { 0 } else { in_vain + 1 };
        }
        Ok(())
    }

    pub(super) fn maintain(&self) -> Result<()> {
        self.log.healthy()?;
        self.log.segments().reap();
        self.step(false, Duration::ZERO).map(|_| ())
    }

    /// One bounded step of background work, where a thread that cleans is waited for so long; whether there may be more to do.
    fn step(&self, paced: bool, wait: Duration) -> Result<bool> {
        if self.is_checkpoint_due() {
            self.checkpoint()?;
            return Ok(true);
        }
        self.clean_one(paced, wait)
    }

    /// Log between two checkpoints, in bytes: what an open after a crash reads, and what waits to be free
    /// again. As much as is live, 16 segments at least and 128 at most; or 4 bytes a record, where that is
    /// more.
    pub(super) fn interval(&self) -> u64 {
        let (_, live) = self.log_load();
        let segment = self.log.geometry().segment_size();
        live.clamp(16 * segment, 128 * segment)
            .max(self.count() * INTERVAL_PER_RECORD)
    }

    fn is_checkpoint_due(&self) -> bool {
        let Some(state) = self.checkpoint.try_lock() else {
            return false;
        };
        self.log.appended() - state.committed.appended >= self.interval()
    }
}

/// Whether a lock is free within this time.
fn comes_free<T>(lock: &Mutex<T>, within: Duration) -> bool {
    lock.try_lock_for(within).is_some()
}
