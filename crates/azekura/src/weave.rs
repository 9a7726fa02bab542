//! Where threads may be interleaved: the moments just before memory that they share is touched.
//!
//! Parts that share memory without a lock say `point` before each load and store that matters, and `wait` where they
//! would wait for another thread. In an ordinary build both are nothing, and `Mutex` is `parking_lot`'s. Built with
//! `--cfg azekura_weave`, they hand a thread's turn to whoever `Turns` chooses next: so a test decides how threads meet
//! (`testkit::schedule`), and finds by a seed what machines show once a month. Only one thread runs at a time then: what
//! is explored is the order of accesses, not what a weak memory model may make of them.
//!
//! `has` plants a bug where a test proves that it would be found; an ordinary build has none of them. It does not know
//! who chooses, nor what is shared.

#[cfg(not(azekura_weave))]
mod plain {
    use crate::weave::Bug;

    pub(crate) use parking_lot::{Mutex, MutexGuard};

    /// Another thread may come in between here.
    #[inline(always)]
    pub(crate) fn point() {}

    /// Waits for another thread; `false` if that is to be done in the usual way.
    #[inline(always)]
    pub(crate) fn wait() -> bool {
        false
    }

    /// Whether this bug is planted.
    #[inline(always)]
    pub(crate) fn has(_bug: Bug) -> bool {
        false
    }

    /// The seed of hashes that makes a run the same again, if there is to be one.
    #[inline(always)]
    pub(crate) fn hash_seed() -> Option<u64> {
        None
    }
}

#[cfg(azekura_weave)]
mod woven {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU8, Ordering};

    use crate::weave::Bug;

    pub(crate) use parking_lot::MutexGuard;

    /// Chooses whose turn it is.
    pub trait Turns {
        /// The thread is about to touch what others may touch.
        fn point(&self);
        /// The thread cannot go on before another one did something.
        fn wait(&self);
    }

    thread_local! {
        static TURNS: RefCell<Option<Arc<dyn Turns>>> = const { RefCell::new(None) };
    }

    static PLANTED: AtomicU8 = AtomicU8::new(u8::MAX);

    /// This thread asks `turns` from now on; nobody at `None`.
    pub fn take_turns(turns: Option<Arc<dyn Turns>>) {
        TURNS.set(turns);
    }

    /// Plants one bug, or none, in the whole process.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(u8::MAX, |bug| bug as u8), Ordering::SeqCst);
    }

    fn turns() -> Option<Arc<dyn Turns>> {
        // A thread that is ending takes no turns any more.
        TURNS
            .try_with(|turns| turns.borrow().clone())
            .ok()
            .flatten()
    }

    /// Another thread may come in between here.
    pub(crate) fn point() {
        if let Some(turns) = turns() {
            turns.point();
        }
    }

    /// Waits for another thread; `false` if that is to be done in the usual way.
    pub(crate) fn wait() -> bool {
        let turns = turns();
        if let Some(turns) = &turns {
            turns.wait();
        }
        turns.is_some()
    }

    /// Whether this bug is planted.
    pub(crate) fn has(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8
    }

    /// The seed of hashes that makes a run the same again, if there is to be one.
    #[expect(clippy::unnecessary_wraps, reason = "an ordinary build has none")]
    pub(crate) fn hash_seed() -> Option<u64> {
        Some(0)
    }

    /// `parking_lot`'s, whose waiters hand their turn on.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            point();
            loop {
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
                if !wait() {
                    return self.0.lock();
                }
            }
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            point();
            self.0.try_lock()
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }
}

#[cfg(not(azekura_weave))]
pub(crate) use plain::{Mutex, MutexGuard, has, hash_seed, point, wait};
#[cfg(azekura_weave)]
pub(crate) use woven::{Mutex, MutexGuard, has, hash_seed, point, wait};
#[cfg(azekura_weave)]
pub use woven::{Turns, plant, take_turns};

/// Bugs that can be planted: each breaks one rule on which readers without locks rely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// Freed slots are used again at once.
    SlotsWithoutWaiting,
    /// Retired chunks are used again at once.
    ChunksWithoutWaiting,
    /// A thread's pin is not seen by others.
    PinUnseen,
    /// A chunk is published before it is filled.
    ChunkBeforeEntries,
    /// Who locked a bucket does not look whether its chunk has a successor.
    MovedUnseen,
    /// A chunk grows without its buckets being locked.
    GrowthWithoutLocks,
    /// A free slot is taken without an exchange.
    ClaimWithoutExchange,
    /// Several buckets are locked in the order asked for.
    LocksAsAsked,
    /// `clear` does not wait for the updates that are under way.
    GateWithoutWaiting,
    /// `clear` does not wait for the updates that came from inside another store's closure.
    NestedWithoutWaiting,
    /// A record's slot is freed before its entry is gone.
    FreedBeforeGone,
    /// What a reader took from a node counts, whatever became of the node meanwhile.
    VersionUnasked,
    /// Who locked a node does not look whether its way still leads there.
    WayUnasked,
    /// Retired values of a tree are freed at once.
    ValuesWithoutWaiting,
    /// Nodes that hold nothing are returned to the system at once, and forget their versions.
    NodesWithoutWaiting,
}
