//! Sockets and threads: the only files of the crate that know them.
//!
//! One thread accepts, the others own connections and run the engine inline: a request is read, served and answered by
//! one thread, and the answers of one read leave in one write.
//!
//! ```text
//!   listen (sockets) --> accept (one thread) --> worker (a thread each) --> connection --> azekura_wire::Stream
//!                                                   ^   ^                      `--> memcached::Session
//!                        control (stop, limits) ----'   `-- syncs (one thread)   meter   datagram (one thread, for UDP)
//! ```
//!
//! No client makes another wait for longer than a turn, nor memory grow beyond `Limits`. It knows of the protocol only that
//! a session consumes bytes and answers with bytes, and that some answers wait for a sync.

mod accept;
mod connection;
mod control;
mod datagram;
mod listen;
mod meter;
mod syncs;
pub(crate) mod tls;
pub(crate) mod validity;
mod worker;

use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

use azekura::error::{Error, Kind, Result};

use crate::memcached::Service;

pub use control::{Connections, Control, Dropped, Limits};
pub(crate) use listen::BACKLOG;
pub use listen::Listeners;

use meter::Meter;
use syncs::Syncs;
use worker::{Inbox, Worker};

/// Serves the clients of `listeners` by `threads` threads until `control` stops it, and answers what has arrived by then.
///
/// An answer that must wait for a sync leaves after one that began when its request was done. All waiting connections share it, and
/// others are served meanwhile. Errors: `Invalid` (no thread, or nothing to listen on), `Io`: then the server has ended.
pub(crate) fn serve(
    service: &Arc<Service>,
    listeners: &Listeners,
    threads: usize,
    control: &Arc<Control>,
) -> Result<()> {
    if threads == 0 || (listeners.streams.is_empty() && listeners.datagrams.is_empty()) {
        return Err(Error::new(
            Kind::Invalid,
            "a server of no thread or no address",
        ));
    }
    let inboxes: Vec<Inbox> = (0..threads).map(|_| Inbox::new()).collect::<Result<_>>()?;
    let syncs = &Syncs::default();
    let workers: Vec<Worker<'_>> = (0..)
        .zip(&inboxes)
        .map(|(index, inbox)| {
            let inbox = (index, inbox);
            Worker::new(control, inbox, syncs, threads, service)
        })
        .collect::<Result<_>>()?;
    std::thread::scope(|scope| {
        let inboxes = &inboxes;
        let ring = move |worker: usize| {
            if let Some(inbox) = inboxes.get(worker) {
                inbox.waker.wake();
            }
        };
        let meter = Meter::new(service, Arc::clone(&control.slow_requests));
        let syncing = start(scope, control, "syncs".into(), move || {
            syncs.run(service, meter, ring);
            Ok(())
        });
        let mut started = Vec::new();
        for (worker, index) in workers.into_iter().zip(1..) {
            started.push(start(
                scope,
                control,
                format!("worker {index}"),
                move || worker.run(),
            ));
        }
        if !listeners.datagrams.is_empty() {
            started.push(start(scope, control, "datagrams".into(), move || {
                datagram::serve(&listeners.datagrams, service, control)
            }));
        }
        let accepted = accept::accept(&listeners.streams, inboxes, service, control);
        control.stop();
        for inbox in inboxes {
            inbox.waker.wake();
        }
        let join = |outcome: Result<()>, thread: Result<ScopedJoinHandle<'_, Result<()>>>| {
            let panicked = || Error::new(Kind::Poisoned, "a thread of the server panicked");
            outcome.and(thread.and_then(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))))
        };
        let served = started.into_iter().fold(accepted, join);
        // No connection is left that waits for one.
        syncs.end();
        join(served, syncing)
    })
}

/// Starts a thread whose end, for whatever reason, ends the server.
fn start<'s>(
    scope: &'s Scope<'s, '_>,
    control: &'s Control,
    name: String,
    run: impl FnOnce() -> Result<()> + Send + 's,
) -> Result<ScopedJoinHandle<'s, Result<()>>> {
    let ends = Ends(control);
    std::thread::Builder::new()
        .name(name)
        .spawn_scoped(scope, move || {
            let _ends = ends;
            run()
        })
        .map_err(no_thread)
}

/// The system refused a thread.
pub(crate) fn no_thread(error: std::io::Error) -> Error {
    Error::io("cannot start a thread", error)
        .remedy("raise the limit of processes and threads of this user (ulimit -u), or start fewer by --threads")
}

/// Stops the server when the thread that holds it ends, by a panic too.
struct Ends<'c>(&'c Control);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
