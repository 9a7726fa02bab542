//! Threads that the system may refuse, and threads that are timed together.
//!
//! Promises: a thread that cannot be started is an error with a remedy, and threads that were started before it end. No
//! thread of `together` works before all are prepared. It does not know what threads do.

use std::sync::RwLock;
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
    let (prepare, work) = (&prepare, &work);
    // Threads that are prepared wait for the lock; they begin if it is true by then.
    let gate = &RwLock::new(false);
    let (ready, all_ready) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let mut closed = gate.write().expect("no thread panics in a gate");
        let threads: Result<Vec<_>> = (0..count)
            .map(|thread| {
                let ready = ready.clone();
                start_in(scope, move || {
                    let prepared = prepare(thread);
                    // All are waited for, unless one could not be started.
                    let _ = ready.send(());
                    let begins = *gate.read().expect("no thread panics in a gate");
                    begins.then(|| work(prepared?)).transpose()
                })
            })
            .collect();
        let threads = threads?;
        drop(ready);
        all_ready.iter().take(count as usize).for_each(drop);
        let (before, cpu, start) = (clock(), cpu_seconds(), Instant::now());
        *closed = true;
        drop(closed);
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
