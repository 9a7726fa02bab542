//! Background workers: what the thread that changes something need not do itself.
//!
//! A store registers a [`Task`] with [`Worker::start`]. Each step of it does a bounded piece of work and answers when the next one
//! is due ([`Next`]); [`Notify`] makes it due at once. All stores of a process share one pool of threads, so an idle store costs
//! no thread, though a hash file with an interval of syncs takes a short step in each.
//! [`Maintenance`](maintenance::Maintenance) is the task that engines are clients of: interval of syncs, errors, end.
//!
//! ```text
//!   notify() ---> flag ---> queue, by instant ---> thread ---> step ---> Idle | After | Now ---> queue
//!                             |                                  |
//!                        stop() takes it out                Done, a panic, stop(): dropped, never again
//! ```
//!
//! Invariants:
//! 1. A task is owned by the queue or by the thread that runs its step: no two threads run it at once.
//! 2. A notification that is sent during a step makes the next one due: the flag is cleared before a step, and read under the
//!    lock when it has ended. Several are one. A step sees what its notifiers stored before.
//! 3. While a task has a time at which it is due, a thread waits for that time, unless all threads that there may be run steps or
//!    the system refuses another. A thread that ends a step continues with the task that has been due for longest, so a task
//!    that always answers `Now` delays each other one by a step.
//! 4. As many steps run at once as there are processors (at least 2, at most 16). One more begins whenever a task is due and
//!    no step has begun for 5 ms: then those that run wait for a device, and do not delay other stores.
//! 5. At most 64 threads. A device answers no faster for more requests at once than that, and 64 blocked threads cost about
//!    2 MiB. What remains: 64 stores of devices that do not answer at all delay the background work of all others.
//! 6. A thread without work ends after 5 s; with no store open, or nothing due for so long, there is none.
//! 7. `stop` returns when the running step has ended and the task is dropped; within the task's own step it returns at once, and
//!    the task is dropped after that step. No lock of the pool is held while a task runs or is dropped: it may open, notify
//!    and close stores.
//!
//! A panic ends the task, is traced, and leaves the pool as it is. Threads inherit their processors and priority from the thread
//! that needed them first. When the process exits, steps are cut off, as by a crash. The child of a `fork` has no threads:
//! stores are not usable there.
//!
//! Under schedule exploration (`explore`) each task has a thread of its own, which is a thread of the schedule, after the same
//! interface: the schedule decides what the pool would.
//!
//! It does not know what the work is.

use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Kind, Result};

#[cfg(azekura_explore)]
mod explored;
pub(crate) mod maintenance;
#[cfg(not(azekura_explore))]
mod pool;
#[cfg(not(azekura_explore))]
mod schedule;
#[cfg(all(test, not(azekura_explore)))]
mod tests;

#[cfg(azekura_explore)]
pub(crate) use explored::{Notify, Worker};
#[cfg(not(azekura_explore))]
pub(crate) use pool::{Notify, Worker};

/// What is done step by step.
pub(crate) trait Task: Send {
    /// Does a bounded piece of work; `woken`: a notification came since the last step began.
    fn step(&mut self, woken: bool) -> Next;
}

/// When a task's next step is due; a notification makes it due at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// At a notification.
    Idle,
    /// After so long.
    After(Duration),
    /// There is more to do; what is due already comes first.
    Now,
    /// Never.
    Done,
}

impl Next {
    /// The same, but no later than that.
    pub(crate) fn within(self, limit: Option<Duration>) -> Self {
        match (self, limit) {
            (Self::Idle, Some(limit)) => Self::After(limit),
            (Self::After(time), Some(limit)) => Self::After(time.min(limit)),
            _ => self,
        }
    }
}

/// `Invalid` for an interval of syncs that is none.
pub(crate) fn check_interval(every: Option<Duration>) -> Result<()> {
    if every.is_some_and(|every| every.is_zero()) {
        return Err(Error::new(Kind::Invalid, "the sync interval is zero")
            .remedy("leave it out for none; to sync each change, open with `Durability::Power`"));
    }
    Ok(())
}

/// The system gives no thread for the task of this path.
fn no_thread(error: std::io::Error, path: &Path) -> Error {
    Error::io("cannot start the background worker", error)
        .at(path)
        .remedy("raise the limit of processes and threads of this user (ulimit -u); a program may also open it with the option `background` off")
}
