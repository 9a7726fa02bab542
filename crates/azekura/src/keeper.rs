//! Keepers: one thread per open file or store, for what need not be done by whoever changes something.
//!
//! [`Keeper`] is the thread, from its start until it is joined; [`Bell`] wakes it. Who rings waits for nobody, and a bell that
//! is rung before the keeper listens is not lost: it is heard once, however often it was rung.
//!
//! Where a schedule decides how threads meet (`weave`), a keeper is one of its threads.
//!
//! It does not know what the work is, nor when it is due.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::weave::{self, Condvar, Mutex, Thread};

/// Wakes a keeper.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rang: Mutex<Rang>,
    changed: Condvar,
}

/// What a keeper hears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rang {
    /// Something may be due.
    pub(crate) work: bool,
    /// It is to end; this stays.
    pub(crate) stop: bool,
}

impl Bell {
    /// Something may be due.
    pub(crate) fn ring(&self) {
        let mut rang = self.rang.lock();
        if !rang.work {
            rang.work = true;
            self.changed.notify_one();
        }
    }

    /// The keeper is to end.
    pub(crate) fn stop(&self) {
        self.rang.lock().stop = true;
        self.changed.notify_one();
    }

    /// What was rung since the last `wait`.
    pub(crate) fn rang(&self) -> Rang {
        *self.rang.lock()
    }

    /// Waits until it rings, but no longer than that; what was rung is heard with this.
    pub(crate) fn wait(&self, longest: Option<Duration>) -> Rang {
        let mut rang = self.rang.lock();
        if *rang == Rang::default() {
            match longest {
                None => self.changed.wait(&mut rang),
                Some(longest) => _ = self.changed.wait_for(&mut rang, longest),
            }
        }
        let heard = *rang;
        rang.work = false;
        heard
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Keeper {
    bell: Arc<Bell>,
    thread: Thread,
}

impl Keeper {
    /// A thread of this name that does `work`, which ends when the bell says so. `Io` if the system gives none; `path`: whose
    /// work it is.
    pub(crate) fn start(
        name: &str,
        path: &Path,
        bell: &Arc<Bell>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let thread = weave::spawn(name, work).map_err(|error| {
            Error::io("cannot start the background worker", error)
                .at(path)
                .remedy("raise the limit of processes and threads of this user (ulimit -u); a program may also open it with the option `background` off")
        })?;
        let bell = Arc::clone(bell);
        Ok(Self { bell, thread })
    }

    /// Returns when the work has ended. That it panicked is traced.
    pub(crate) fn stop(self) {
        self.bell.stop();
        if self.thread.join().is_err() {
            tracing::error!("the keeper panicked");
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_was_rung_before_it_listens_is_heard_once() {
        let bell = Bell::default();
        bell.ring();
        bell.ring();
        let work = Rang {
            work: true,
            stop: false,
        };
        assert_eq!((bell.rang(), bell.wait(None)), (work, work));
        assert_eq!(bell.wait(Some(Duration::ZERO)), Rang::default());
    }

    #[test]
    fn a_keeper_works_until_it_is_stopped() {
        let bell = Arc::new(Bell::default());
        let (own, (done, heard)) = (Arc::clone(&bell), std::sync::mpsc::channel());
        let work = move || {
            while !own.wait(None).stop {
                done.send(()).unwrap();
            }
        };
        let keeper = Keeper::start("a-keeper", Path::new("a"), &bell, work).unwrap();
        for _ in 0..2 {
            bell.ring();
            heard.recv().unwrap();
        }
        keeper.stop();
        assert!(bell.rang().stop && heard.recv().is_err());
    }
}
