//! The threads of background workers, shared by all stores of the process.
//!
//! [`schedule`](super::schedule) decides, under one lock; a thread does what it answers, with the lock released. [`Notify`] is a
//! flag in front of the lock: to notify a task that is notified already costs a fence and a load.
//!
//! Why no wake-up is lost: a notifier stores what it has to report, passes a fence and reads the flag; a thread clears the flag,
//! passes a fence and runs the step, which reads what was stored. If the notifier found the flag set by another, and not yet
//! cleared, its fence comes first, and the step sees its stores. If it set the flag itself, it takes the lock next: the task waits,
//! and is made due, or it runs, and the flag is found set under the same lock when the step has ended.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use super::schedule::{Call, Limits, Schedule, Stopped, TaskId, ThreadIndex, Turn};
use super::{Next, Task, no_thread};
use crate::error::Result;
use crate::explore::{self, Condvar, Mutex};

/// See invariants 4 to 6 of the module around.
const AT_ONCE_MIN: usize = 2;
const AT_ONCE_MAX: usize = 16;
const PATIENCE: Duration = Duration::from_millis(5);
const THREADS_MAX: usize = 64;
const IDLE: Duration = Duration::from_secs(5);

static POOL: LazyLock<Pool> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let limits = Limits {
        at_once: processors.clamp(AT_ONCE_MIN, AT_ONCE_MAX),
        patience: PATIENCE,
        threads_max: THREADS_MAX,
        idle: IDLE,
    };
    Pool::new(limits, spawn)
});

/// Starts a thread, which ends by itself: no thread waits for it.
pub(super) fn spawn(pool: &'static Pool, thread: ThreadIndex) -> std::io::Result<()> {
    explore::spawn("azekura-worker", move || pool.run(thread)).map(|_| ())
}

thread_local! {
    /// The task whose step this thread runs.
    static RUNNING: Cell<Option<Target>> = const { Cell::new(None) };
}

/// A task that was registered with a pool.
#[derive(Clone, Copy, Debug)]
struct Target {
    pool: &'static Pool,
    id: TaskId,
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.pool, other.pool) && self.id == other.id
    }
}

/// Makes a task due. It may be used before the task is registered and after it was stopped.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    is_notified: AtomicBool,
    target: OnceLock<Target>,
}

impl Notify {
    /// Makes the task due at once. Does not wait.
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.is_notified.load(Ordering::Relaxed) {
            return;
        }
        if !self.is_notified.swap(true, Ordering::AcqRel)
            && let Some(target) = self.target.get()
            && !target.pool.notified(target.id)
        {
            // No thread can be had: the next notification tries again.
            self.is_notified.store(false, Ordering::Release);
        }
    }

    /// Whether a notification waits for the next step.
    pub(crate) fn is_notified(&self) -> bool {
        self.is_notified.load(Ordering::Acquire)
    }

    /// As a step takes it.
    pub(crate) fn take(&self) -> bool {
        let woken = self.is_notified.swap(false, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        woken
    }
}

/// A registered task. Dropping it stops the task.
#[derive(Debug)]
pub(crate) struct Worker {
    target: Target,
}

impl Worker {
    /// Registers a task, whose first step is due at once. `name` and `path` are for traces and errors. `Io` if there is no thread
    /// and the system gives none.
    pub(crate) fn start(
        name: &'static str,
        path: &Path,
        notify: &Arc<Notify>,
        task: impl Task + 'static,
    ) -> Result<Self> {
        POOL.start(name, path, notify, Box::new(task))
    }

    /// Returns when the running step has ended and the task is dropped; no other step follows.
    pub(crate) fn stop(self) {
        drop(self);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.target.pool.stop(self.target.id);
    }
}

/// Starts a thread of a pool, or has the system's error.
type Spawn = fn(&'static Pool, ThreadIndex) -> std::io::Result<()>;

/// What a task is to the pool.
struct Job {
    task: Box<dyn Task>,
    notify: Arc<Notify>,
    name: &'static str,
    path: PathBuf,
}

impl Job {
    fn step(&mut self) -> Next {
        let woken = self.notify.take();
        let step = AssertUnwindSafe(|| self.task.step(woken));
        catch_unwind(step).unwrap_or_else(|panic| {
            self.trace(&*panic);
            Next::Done
        })
    }

    fn trace(&self, panic: &(dyn Any + Send)) {
        let (name, path) = (self.name, self.path.display());
        let what = panic.downcast_ref::<&str>().copied();
        let what = what.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let what = what.unwrap_or_default();
        tracing::error!(name, %path, what, "the background worker panicked");
    }
}

/// See the module's text.
pub(super) struct Pool {
    schedule: Mutex<Schedule<Job>>,
    spawn: Spawn,
    /// A task was removed after its last step.
    removed: Condvar,
    /// One for each thread.
    wakes: Box<[Condvar]>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(limits: Limits, spawn: Spawn) -> Self {
        Self {
            schedule: Mutex::new(Schedule::new(limits)),
            spawn,
            removed: Condvar::default(),
            wakes: (0..limits.threads_max)
                .map(|_| Condvar::default())
                .collect(),
        }
    }

    pub(super) fn start(
        &'static self,
        name: &'static str,
        path: &Path,
        notify: &Arc<Notify>,
        task: Box<dyn Task>,
    ) -> Result<Worker> {
        let mut schedule = self.schedule.lock();
        let id = schedule.new_id();
        let target = Target { pool: self, id };
        let is_first = notify.target.set(target).is_ok();
        debug_assert!(is_first, "a notify is of one task");
        let job = Job {
            task,
            notify: Arc::clone(notify),
            name,
            path: path.into(),
        };
        let call = schedule.add(id, job, Instant::now());
        drop(schedule);
        let worker = Worker { target };
        match self.follow(call) {
            Some((error, false)) => Err(no_thread(error, path)),
            _ => Ok(worker),
        }
    }

    /// Makes a task due; `false` if there is no thread for it.
    fn notified(&'static self, id: TaskId) -> bool {
        let call = self.schedule.lock().notified(id, Instant::now());
        match self.follow(call) {
            Some((error, false)) => {
                tracing::warn!(%error, "the system gives no thread for background work");
                false
            }
            _ => true,
        }
    }

    /// Does what the schedule called for. If it starts no thread: why, and whether there is another.
    fn follow(&'static self, call: Call) -> Option<(std::io::Error, bool)> {
        match call {
            Call::Nothing => None,
            Call::Wake(thread) => {
                self.wakes[thread].notify_one();
                None
            }
            Call::Start(thread) => {
                let error = (self.spawn)(self, thread).err()?;
                Some((error, self.schedule.lock().refused(thread)))
            }
        }
    }

    /// Threads that there are.
    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.schedule.lock().threads()
    }

    /// A thread, until it ends.
    fn run(&'static self, thread: ThreadIndex) {
        let mut schedule = self.schedule.lock();
        schedule.started();
        loop {
            match schedule.turn(thread, Instant::now()) {
                Turn::Run(id, job, call) => {
                    drop(schedule);
                    // Refused: this thread does what the other would have done, after this step.
                    _ = self.follow(call);
                    self.step(id, job);
                    schedule = self.schedule.lock();
                }
                Turn::Wait(until) => {
                    _ = self.wakes[thread].wait_until(&mut schedule, until);
                }
                Turn::End(call) => {
                    drop(schedule);
                    _ = self.follow(call);
                    return;
                }
            }
        }
    }

    fn step(&'static self, id: TaskId, mut job: Job) {
        RUNNING.set(Some(Target { pool: self, id }));
        let next = job.step();
        let notify = Arc::clone(&job.notify);
        let mut schedule = self.schedule.lock();
        let ended = schedule.ended(id, job, next, notify.is_notified(), Instant::now());
        drop(schedule);
        if let Some(job) = ended {
            // It may hold the last of a store.
            if catch_unwind(AssertUnwindSafe(|| drop(job))).is_err() {
                tracing::error!("the end of a background worker panicked");
            }
            self.schedule.lock().removed(id);
            self.removed.notify_all();
        }
        RUNNING.set(None);
    }

    fn stop(&'static self, id: TaskId) {
        let mut schedule = self.schedule.lock();
        match schedule.stop(id) {
            Stopped::Now(job) => {
                drop(schedule);
                drop(job);
            }
            Stopped::Before => {}
            Stopped::AfterStep => {
                let own = Target { pool: self, id };
                if RUNNING.get() == Some(own) {
                    return;
                }
                while schedule.contains(id) {
                    self.removed.wait(&mut schedule);
                }
            }
        }
    }
}
