//! The background work of an open file.
//!
//! A step is due when a segment was filled, at the sync interval, and while there is more to do: it prepares the next segments,
//! checkpoints when the log past the last checkpoint has grown long, cleans when the log has outgrown its
//! bound (`clean` has the pace). Each step is bounded; a writer that gets far ahead does a step itself, and if that is not
//! enough, writers wait for each other's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Core;
use super::checkpoint::look_ahead_each;
use crate::epoch;
use crate::error::{Kind, Result};
use crate::explore::Mutex;
use crate::index::hash::{Hash, PARTITIONS};
use crate::log::{Address, Patience};
use crate::worker::maintenance::{Maintain, Maintenance};
use crate::worker::{Next, Worker};

/// Segments kept ready for appenders, at most: one at first, and twice as many with each that was filled, so a store of few
/// records takes little.
const PREPARED: usize = 6;
/// Bytes of log between two checkpoints for each record of a large store: about what its entry takes in an image,
/// so a checkpoint writes about as much as was appended.
const INTERVAL_PER_RECORD: u64 = 4;
/// Without an append for so long, cleaning that its pace put off is done.
const IDLE: Duration = Duration::from_millis(50);
/// Partitions of the index that a step loads.
const LOADED: usize = 8;

/// How long a writer waits for a thread that cleans, and for one that makes a checkpoint, where the log is out of hand.
const HELD_BACK: Duration = Duration::from_millis(500);
const CHECKPOINT: Duration = Duration::from_secs(10);
/// Steps that it tries in a row of which none does anything.
const IN_VAIN_MAX: u32 = 20;

/// `Io` if the system gives no thread.
pub(super) fn start(core: &Arc<Core>) -> Result<Worker> {
    let background = Background {
        core: Arc::clone(core),
        prepares: false,
        prepared: 0,
        is_paced: true,
        loaded: 0,
    };
    let task = Maintenance::new(background, core.options.sync_interval);
    Worker::start("hash", core.log.storage().path(), &core.notify, task)
}

/// What is kept from step to step.
struct Background {
    core: Arc<Core>,
    /// Whether writers notified since there was last nothing to do. What `compact` cut off is not to come back without them.
    prepares: bool,
    /// Segments kept ready.
    prepared: usize,
    /// Whether cleaning keeps its pace.
    is_paced: bool,
    /// Partitions of the index that are loaded.
    loaded: usize,
}

impl Maintain for Background {
    fn owes_sync(&self) -> bool {
        true
    }

    fn sync(&mut self) -> Result<()> {
        self.core.log.sync()
    }

    fn work(&mut self, woken: bool) -> Result<Next> {
        let core = &*self.core;
        let prepares = std::mem::take(&mut self.prepares) || woken;
        let is_paced = std::mem::replace(&mut self.is_paced, true) || woken;
        core.log.segments().reap();
        if woken {
            core.look_ahead();
            self.prepared = (2 * self.prepared).clamp(1, PREPARED);
        }
        if prepares {
            core.log.segments().prepare(self.prepared)?;
        }
        if core.step(is_paced, Duration::ZERO)? {
            (self.prepares, self.is_paced) = (prepares, is_paced);
            return Ok(Next::Now);
        }
        if is_paced && core.is_over_bound() {
            self.is_paced = false;
            return Ok(Next::After(IDLE));
        }
        Ok(Next::Idle)
    }

    fn load(&mut self) -> bool {
        let end = (self.loaded + LOADED).min(PARTITIONS);
        for partition in self.loaded..end {
            if let Err(error) = self.core.index.load(partition) {
                tracing::error!(%error, "a part of the index cannot be read");
            }
        }
        self.loaded = end;
        end < PARTITIONS
    }

    fn is_healthy(&self) -> bool {
        self.core.log.healthy().is_ok()
    }
}

impl Core {
    /// Wakes the background worker, if there is one.
    pub(super) fn wake(&self) {
        if self.options.background {
            self.notify.notify();
        }
    }

    /// Called by a writer when a segment was filled since the last call, and on every update of a full store; `grows`:
    /// by one that may store more than was there. An update from inside another store's closure leaves the work to others: the
    /// thread that does it may wait for that closure to end.
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
            // An update that is not sure of it waits where it is refused.
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
            self.notify.notify();
            if self.is_far_behind() {
                self.step(true, Duration::ZERO)?;
            }
            // Also where it is what a checkpoint did not free yet: one that waits for a slow device.
            return self.hold_back();
        }
        self.step(true, Duration::ZERO).map(|_| ())
    }

    /// Writers that together outrun cleaning do it themselves, one after the other, whenever one has filled a segment, until
    /// the log is within its bound, and wait for each other's steps. Where a copy, a check or a follower stops
    /// cleaning, none waits for that: they hold `cleaning`, too, which a checkpoint alone does not.
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
