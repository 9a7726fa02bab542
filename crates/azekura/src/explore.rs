//! Schedule exploration: the yield points at which a test decides which thread runs next.
//!
//! Code that shares memory without a lock calls `yield_point` before each load and store that matters, and `wait`
//! where it would wait for another thread. In an ordinary build both do nothing, and the locks are `parking_lot`'s. Built
//! with `--cfg azekura_explore`, each passes control to the thread that `Turns` chooses: a test decides how threads
//! interleave (`testkit::schedule`) and reproduces by a seed what a machine shows once a month. One thread runs at a time
//! then: exploration covers the order of accesses, not the reordering of a weak memory model.
//!
//! A thread that is started with `spawn` joins the schedule of the thread that starts it.
//!
//! It does not choose the schedule, and does not know what is shared. `mutants/*.patch` plant the faults that the tests
//! must detect.

#[cfg(not(azekura_explore))]
mod plain {
    pub(crate) use parking_lot::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };

    /// A yield point: another thread may run here.
    #[inline(always)]
    pub(crate) fn yield_point() {}

    /// Lets other threads run; `false` if no schedule is explored, and the caller waits in the usual way.
    #[inline(always)]
    pub(crate) fn wait() -> bool {
        false
    }

    /// The fixed seed of hashes that makes a run reproducible, where a schedule is explored.
    #[inline(always)]
    pub(crate) fn hash_seed() -> Option<u64> {
        None
    }

    /// A thread that was started.
    pub(crate) type Thread = std::thread::JoinHandle<()>;

    /// Starts a thread. The error is the system's, if it refuses a thread.
    pub(crate) fn spawn(
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Thread> {
        std::thread::Builder::new().name(name.into()).spawn(work)
    }
}

#[cfg(azekura_explore)]
mod explored {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    pub(crate) use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    /// The work of a thread, from its start to its end.
    pub type Work = Box<dyn FnOnce() + Send>;

    /// The scheduler: chooses the thread that runs next.
    pub trait Turns {
        /// A yield point of the calling thread.
        fn yield_point(&self);
        /// The thread cannot continue before another one has run.
        fn wait(&self);
        /// The thread cannot continue before another one calls `wake` with the same number.
        fn sleep(&self, on: usize);
        /// Ends each `sleep` with this number.
        fn wake(&self, on: usize);
        /// Adds a thread, which this one is about to start and which has to run its work by what this returns.
        fn add(&self) -> Box<dyn FnOnce(Work) + Send>;
    }

    thread_local! {
        static TURNS: RefCell<Option<Arc<dyn Turns>>> = const { RefCell::new(None) };
    }

    /// `turns` schedules this thread from now on; `None`: the operating system does.
    pub fn take_turns(turns: Option<Arc<dyn Turns>>) {
        TURNS.set(turns);
    }

    fn turns() -> Option<Arc<dyn Turns>> {
        // A thread that ends leaves the schedule.
        TURNS
            .try_with(|turns| turns.borrow().clone())
            .ok()
            .flatten()
    }

    /// A yield point: another thread may run here.
    pub(crate) fn yield_point() {
        if let Some(turns) = turns() {
            turns.yield_point();
        }
    }

    /// Lets other threads run; `false` if no schedule is explored, and the caller waits in the usual way.
    pub(crate) fn wait() -> bool {
        let turns = turns();
        if let Some(turns) = &turns {
            turns.wait();
        }
        turns.is_some()
    }

    /// The fixed seed of hashes that makes a run reproducible, where a schedule is explored.
    #[expect(clippy::unnecessary_wraps, reason = "an ordinary build has none")]
    pub(crate) fn hash_seed() -> Option<u64> {
        Some(0)
    }

    /// A thread that was started.
    #[derive(Debug)]
    pub(crate) struct Thread {
        handle: std::thread::JoinHandle<()>,
        /// Set when its work has ended; `None` if it is in no schedule.
        has_ended: Option<Arc<AtomicBool>>,
    }

    /// Starts a thread, which joins the schedule of this one, if there is one. The error is the system's, if it refuses a thread.
    pub(crate) fn spawn(
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Thread> {
        let named = std::thread::Builder::new().name(name.into());
        let Some(turns) = turns() else {
            let handle = named.spawn(work)?;
            return Ok(Thread {
                handle,
                has_ended: None,
            });
        };
        let (run, has_ended) = (turns.add(), Arc::new(AtomicBool::new(false)));
        let ending = Ending(Arc::clone(&has_ended));
        let work = Box::new(move || {
            let _ending = ending;
            work();
        });
        let handle = named.spawn(move || run(work))?;
        Ok(Thread {
            handle,
            has_ended: Some(has_ended),
        })
    }

    impl Thread {
        /// Waits for its end, and lets other threads run meanwhile.
        pub(crate) fn join(self) -> std::thread::Result<()> {
            if let Some(has_ended) = &self.has_ended {
                while !has_ended.load(Ordering::SeqCst) && wait() {}
            }
            self.handle.join()
        }
    }

    /// Dropped when the work of a thread ends, by a panic too.
    struct Ending(Arc<AtomicBool>);

    impl Drop for Ending {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Tries until it has the lock, and lets other threads run meanwhile; in no schedule it blocks.
    fn locked<G>(tries: impl Fn() -> Option<G>, blocks: impl FnOnce() -> G) -> G {
        yield_point();
        loop {
            if let Some(guard) = tries() {
                return guard;
            }
            if !wait() {
                return blocks();
            }
        }
    }

    /// `parking_lot`'s, whose waiters let other threads run.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            locked(|| self.0.try_lock(), || self.0.lock())
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            yield_point();
            self.0.try_lock()
        }

        /// Time does not pass under a schedule: it waits for some steps of other threads instead.
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
    }

    /// `parking_lot`'s, whose waiters let other threads run.
    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(parking_lot::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            locked(|| self.0.try_read(), || self.0.read())
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            locked(|| self.0.try_write(), || self.0.write())
        }

        pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            yield_point();
            self.0.try_read()
        }

        pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            yield_point();
            self.0.try_write()
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    /// `parking_lot`'s, whose waiters let other threads run until they are notified.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            match turns() {
                Some(turns) => unlocked(guard, || turns.sleep(self.number())),
                None => self.0.wait(guard),
            }
        }

        /// Time does not pass under a schedule: this ends after a step of another thread. Whether the time is over.
        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, longest: Duration) -> bool {
            let Some(turns) = turns() else {
                return self.0.wait_for(guard, longest).timed_out();
            };
            unlocked(guard, || turns.wait());
            true
        }

        /// Wakes one, or several: callers of a condition variable allow for spurious wakes.
        pub(crate) fn notify_one(&self) {
            self.notify_all();
        }

        pub(crate) fn notify_all(&self) {
            if let Some(turns) = turns() {
                turns.wake(self.number());
            }
            self.0.notify_all();
        }

        fn number(&self) -> usize {
            std::ptr::from_ref(self).addr()
        }
    }

    /// Waits with the mutex unlocked. Only one thread runs at a time: a mutex that is free now is still free when
    /// `MutexGuard::unlocked` locks it again.
    fn unlocked<T>(guard: &mut MutexGuard<'_, T>, waits: impl FnOnce()) {
        let mutex = MutexGuard::mutex(guard);
        MutexGuard::unlocked(guard, || {
            waits();
            while mutex.is_locked() {
                wait();
            }
        });
    }
}

#[cfg(azekura_explore)]
pub(crate) use explored::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Thread, hash_seed,
    spawn, wait, yield_point,
};
#[cfg(azekura_explore)]
pub use explored::{Turns, Work, take_turns};
#[cfg(not(azekura_explore))]
pub(crate) use plain::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, hash_seed, spawn, wait,
    yield_point,
};
