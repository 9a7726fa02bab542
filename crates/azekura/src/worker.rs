//! Background workers: one thread for each open file or store, for work that a caller need not wait for.
//!
//! [`Worker`] is the thread, from its start until it is joined; [`Wakeup`] wakes it. Waking never blocks, and a wake before the
//! worker waits is not lost: the next wait returns at once, however often it was woken.
//!
//! Where a test explores schedules (`weave`), a worker is one of the threads that the schedule controls.
//!
//! It does not know what the work is, nor when it is due.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::weave::{self, Condvar, Mutex, Thread};

/// Wakes a worker.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    state: Mutex<Woken>,
    changed: Condvar,
}

/// Why a worker was woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Woken {
    /// Something may be due.
    pub(crate) work: bool,
    /// The worker must end; this stays set.
    pub(crate) stop: bool,
}

impl Wakeup {
    /// Wakes the worker: something may be due.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        if !state.work {
            state.work = true;
            self.changed.notify_one();
        }
    }

    /// Ends the worker.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    /// The wakes since the last `wait`.
    pub(crate) fn pending(&self) -> Woken {
        *self.state.lock()
    }

    /// Waits until it is woken, for at most `longest`; returns and clears the wakes.
    pub(crate) fn wait(&self, longest: Option<Duration>) -> Woken {
        let mut state = self.state.lock();
        if *state == Woken::default() {
            match longest {
                None => self.changed.wait(&mut state),
                Some(longest) => _ = self.changed.wait_for(&mut state, longest),
            }
        }
        let woken = *state;
        state.work = false;
        woken
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Worker {
    wakeup: Arc<Wakeup>,
    thread: Thread,
}

impl Worker {
    /// Starts a thread of this name that runs `work`, which returns after [`Wakeup::stop`]. `Io` if there is no thread; `path`: the
    /// file it works on.
    pub(crate) fn start(
        name: &str,
        path: &Path,
        wakeup: &Arc<Wakeup>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let thread = weave::spawn(name, work).map_err(|error| {
            Error::io("cannot start the background worker", error)
                .at(path)
                .remedy("raise the limit of processes and threads of this user (ulimit -u); a program may also open it with the option `background` off")
        })?;
        let wakeup = Arc::clone(wakeup);
        Ok(Self { wakeup, thread })
    }

    /// Stops the worker, and returns when it has ended. A panic is traced.
    pub(crate) fn stop(self) {
        self.wakeup.stop();
        if self.thread.join().is_err() {
            tracing::error!("the background worker panicked");
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_a_wait_is_seen_once() {
        let wakeup = Wakeup::default();
        wakeup.wake();
        wakeup.wake();
        let work = Woken {
            work: true,
            stop: false,
        };
        assert_eq!((wakeup.pending(), wakeup.wait(None)), (work, work));
        assert_eq!(wakeup.wait(Some(Duration::ZERO)), Woken::default());
    }

    #[test]
    fn a_worker_works_until_it_is_stopped() {
        let wakeup = Arc::new(Wakeup::default());
        let (own, (done, heard)) = (Arc::clone(&wakeup), std::sync::mpsc::channel());
        let work = move || {
            while !own.wait(None).stop {
                done.send(()).unwrap();
            }
        };
        let worker = Worker::start("a-worker", Path::new("a"), &wakeup, work).unwrap();
        for _ in 0..2 {
            wakeup.wake();
            heard.recv().unwrap();
        }
        worker.stop();
        assert!(wakeup.pending().stop && heard.recv().is_err());
    }
}
