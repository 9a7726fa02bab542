//! Threads that the system may refuse, and threads that are timed together.
//!
//! Promises: a thread that cannot be started is an error with a remedy, and threads that were started before it end. No
//! thread of `together` works before all are prepared. It does not know what threads do.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::Instant;

use azekura::error::{Error, Result};

use crate::measure::cpu_seconds;

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

/// What threads did together, and in which time.
#[derive(Debug)]
pub(crate) struct Together<T, C> {
    /// The result of each thread.
    pub(crate) results: Vec<T>,
    /// Wall time from when all were prepared until the end.
    pub(crate) seconds: f64,
    /// Processor time of this process in that time.
    pub(crate) cpu: f64,
    /// What `clock` read at the beginning and at the end.
    pub(crate) clock: (C, C),
}

/// Runs `count` threads: each prepares by its number, waits until all are prepared, and works. The time ends when all have
/// ended and `finish` has returned. `clock` reads another clock at the beginning and at the end.
///
/// Errors: those of `prepare`, `work` and `finish`; `Io` if the system refuses a thread.
pub(crate) fn together<W, T: Send, C>(
    count: u64,
    prepare: impl Fn(u64) -> Result<W> + Sync,
    work: impl Fn(W) -> Result<T> + Sync,
    finish: impl FnOnce() -> Result<()>,
    clock: impl Fn() -> C,
) -> Result<Together<T, C>> {
    let (gate, prepare, work) = (&Gate::default(), &prepare, &work);
    std::thread::scope(|scope| {
        let threads: Result<Vec<_>> = (0..count)
            .map(|thread| {
                start_in(scope, move || {
                    let prepared = prepare(thread);
                    if gate.pass() {
                        work(prepared?).map(Some)
                    } else {
                        Ok(None)
                    }
                })
            })
            .collect();
        let threads = threads.inspect_err(|_| gate.open(false))?;
        gate.wait_for(count);
        let (before, cpu, start) = (clock(), cpu_seconds(), Instant::now());
        gate.open(true);
        let ended: Vec<Result<Option<T>>> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread of a phase does not panic"))
            .collect();
        let results: Result<Vec<Option<T>>> = ended.into_iter().collect();
        let results = results?.into_iter().flatten().collect();
        finish()?;
        Ok(Together {
            results,
            seconds: start.elapsed().as_secs_f64().max(1e-9),
            cpu: cpu_seconds() - cpu,
            clock: (before, clock()),
        })
    })
}

/// Threads wait here until all are ready, so that a clock can start between.
#[derive(Debug, Default)]
struct Gate {
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
    fn pass(&self) -> bool {
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
    fn wait_for(&self, count: u64) {
        let mut state = self.state();
        while state.ready < count {
            state = self.changed.wait(state).expect("no thread panics here");
        }
    }

    /// Has the threads begin, or end.
    fn open(&self, begins: bool) {
        self.state().begins = Some(begins);
        self.changed.notify_all();
    }
}
