//! Background workers under schedule exploration: each task is a thread of the schedule.
//!
//! The same interface as the pool's, and the same promises to a task and its notifiers: the schedule decides when the task's thread
//! runs, so it meets the store's other threads everywhere. Time does not pass there: a wait for a time ends after a turn of another
//! thread.
//!
//! A store is not closed within its own task's step there.

use std::path::Path;
use std::sync::Arc;

use super::{Next, Task, no_thread};
use crate::error::Result;
use crate::explore::{self, Condvar, Mutex, Thread};

/// Makes a task due.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_notified: bool,
    is_stopped: bool,
}

impl Notify {
    /// Makes the task due at once.
    pub(crate) fn notify(&self) {
        let mut state = self.state.lock();
        if !state.is_notified {
            state.is_notified = true;
            self.changed.notify_one();
        }
    }

    /// Whether a notification waits for the next step.
    #[cfg(test)]
    pub(crate) fn is_notified(&self) -> bool {
        self.state.lock().is_notified
    }

    /// As a step takes it.
    #[cfg(test)]
    pub(crate) fn take(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_notified)
    }

    fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_one();
    }

    /// Waits until a step is due; whether a notification came, or `None` if the task was stopped.
    fn wait(&self, next: Next) -> Option<bool> {
        let mut state = self.state.lock();
        if !state.is_notified && !state.is_stopped {
            match next {
                Next::Now => {}
                Next::After(longest) => _ = self.changed.wait_for(&mut state, longest),
                Next::Idle => self.changed.wait(&mut state),
                Next::Done => return None,
            }
        }
        let woken = std::mem::take(&mut state.is_notified);
        (!state.is_stopped).then_some(woken)
    }
}

/// A registered task. Dropping it stops the task.
#[derive(Debug)]
pub(crate) struct Worker {
    notify: Arc<Notify>,
    thread: Option<Thread>,
}

impl Worker {
    /// Registers a task, whose first step is due at once. `Io` if the system gives no thread.
    pub(crate) fn start(
        name: &'static str,
        path: &Path,
        notify: &Arc<Notify>,
        mut task: impl Task + 'static,
    ) -> Result<Self> {
        let own = Arc::clone(notify);
        let work = move || {
            let mut next = Next::Now;
            while next != Next::Done
                && let Some(woken) = own.wait(next)
            {
                next = task.step(woken);
            }
        };
        let thread = explore::spawn(name, work).map_err(|error| no_thread(error, path))?;
        Ok(Self {
            notify: Arc::clone(notify),
            thread: Some(thread),
        })
    }

    /// Returns when the running step has ended; no other follows.
    pub(crate) fn stop(self) {
        drop(self);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.notify.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the background worker panicked");
        }
    }
}
