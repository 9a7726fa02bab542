//! Threads that the system may refuse, and a gate before which they wait for one another.
//!
//! Promises: a thread that cannot be started is an error that says what to do, and a gate lets the threads end that were
//! started before it. It does not know what threads do.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use azekura::error::{Error, Result};

/// Starts a thread that ends before `scope` does. `Io` if the system refuses.
pub fn start_in<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> Result<ScopedJoinHandle<'s, T>> {
    Builder::new().spawn_scoped(scope, work).map_err(refused)
}

/// Starts a thread. `Io` if the system refuses.
pub fn start(work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    Builder::new().spawn(work).map_err(refused)
}

fn refused(error: std::io::Error) -> Error {
    Error::io("cannot start a thread", error)
        .remedy("raise the limit of processes and threads of this user (ulimit -u)")
}

/// Threads wait here until all are ready, so that a clock can start between.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: u64,
    /// Whether to begin, once that is decided.
    begins: Option<bool>,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics in a gate")
    }

    /// A thread is ready: waits until all are, and returns whether it is to begin.
    pub(crate) fn pass(&self) -> bool {
        let mut state = self.state();
        state.ready += 1;
        self.changed.notify_all();
        loop {
            if let Some(begins) = state.begins {
                return begins;
            }
            state = self.changed.wait(state).expect("no thread panics here");
        }
    }

    /// Waits until so many threads are ready.
    pub(crate) fn wait_for(&self, count: u64) {
        let mut state = self.state();
        while state.ready < count {
            state = self.changed.wait(state).expect("no thread panics here");
        }
    }

    /// Has the threads begin, or end.
    pub(crate) fn open(&self, begins: bool) {
        self.state().begins = Some(begins);
        self.changed.notify_all();
    }
}
