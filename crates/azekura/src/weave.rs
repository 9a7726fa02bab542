//! Where threads may be interleaved: the moments just before memory that they share is touched.
//!
//! Parts that share memory without a lock say `point` before each load and store that matters, and `wait` where they
//! would wait for another thread. In an ordinary build both are nothing, and the locks are `parking_lot`'s. Built with
//! `--cfg azekura_weave`, they hand a thread's turn to whoever `Turns` chooses next: so a test decides how threads meet
//! (`testkit::schedule`), and finds by a seed what machines show once a month. Only one thread runs at a time then: what
//! is explored is the order of accesses, not what a weak memory model may make of them.
//!
//! It does not know who chooses, nor what is shared. Faults that the tests must see are planted by `mutants/*.patch`.

#[cfg(not(azekura_weave))]
mod plain {
    pub(crate) use parking_lot::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };

    /// Another thread may come in between here.
    #[inline(always)]
    pub(crate) fn point() {}

    /// Waits for another thread; `false` if that is to be done in the usual way.
    #[inline(always)]
    pub(crate) fn wait() -> bool {
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
    use std::time::Duration;

    pub(crate) use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

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

    /// This thread asks `turns` from now on; nobody at `None`.
    pub fn take_turns(turns: Option<Arc<dyn Turns>>) {
        TURNS.set(turns);
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

        /// Time does not pass where turns are taken: it waits for some turns instead.
        pub(crate) fn try_lock_for(&self, longest: Duration) -> Option<MutexGuard<'_, T>> {
            for _ in 0..8 {
                if let Some(guard) = self.try_lock() {
                    return Some(guard);
                }
                if !wait() {
                    return self.0.try_lock_for(longest);
                }
            }
            None
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    /// `parking_lot`'s, whose waiters hand their turn on.
    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(parking_lot::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            point();
            loop {
                if let Some(guard) = self.0.try_read() {
                    return guard;
                }
                if !wait() {
                    return self.0.read();
                }
            }
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            point();
            loop {
                if let Some(guard) = self.0.try_write() {
                    return guard;
                }
                if !wait() {
                    return self.0.write();
                }
            }
        }

        pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            point();
            self.0.try_read()
        }

        pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            point();
            self.0.try_write()
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    /// `parking_lot`'s, whose waiters hand their turn on: to them each turn looks like a spurious wake, which callers of
    /// a condition variable allow for.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            if turns().is_none() {
                return self.0.wait(guard);
            }
            // Only one thread runs at a time: what is free now is still free when `unlocked` takes it again.
            let mutex = MutexGuard::mutex(guard);
            MutexGuard::unlocked(guard, || {
                wait();
                while mutex.is_locked() {
                    wait();
                }
            });
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(not(azekura_weave))]
pub(crate) use plain::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, hash_seed, point, wait,
};
#[cfg(azekura_weave)]
pub(crate) use woven::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, hash_seed, point, wait,
};
#[cfg(azekura_weave)]
pub use woven::{Turns, take_turns};
