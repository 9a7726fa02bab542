//! Syncs and checkpoints for many requests: a thread that makes one for all requests that wait for one.
//!
//! A sync is more than a request to the device: the journal's durable mark moves, and limbo is freed. So it is the store's own, shared
//! with direct callers, and runs concurrently with the flight. Without requests none is made. A checkpoint takes longer, and has a
//! thread of its own, so that syncs do not wait for it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::{Shared, no_thread};
use crate::error::{Error, Result};
use crate::object::Store;
use crate::queue::Ticket;

/// A request that waits for one.
pub(super) struct Owed {
    /// The ticket, if the request itself is a sync, whose time is device time.
    pub(super) ticket: Option<Ticket>,
    /// Receives the result.
    pub(super) report: Box<dyn FnOnce(Result<()>) + Send>,
}

#[derive(Default)]
struct State {
    owed: Vec<Owed>,
    ended: bool,
}

struct Desk {
    /// The name of the work.
    what: &'static str,
    make: fn(&Store) -> Result<()>,
    state: Mutex<State>,
    came: Condvar,
}

/// See the module's text. Dropping it serves the waiting requests first.
pub(super) struct Syncer {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts a thread that makes a `what`, by `make`. `Io` if there is no thread.
    pub(super) fn start(
        what: &'static str,
        store: &Arc<Store>,
        shared: &Arc<Shared>,
        make: fn(&Store) -> Result<()>,
    ) -> Result<Self> {
        let desk = Arc::new(Desk {
            what,
            make,
            state: Mutex::default(),
            came: Condvar::new(),
        });
        let (own, store, shared) = (Arc::clone(&desk), Arc::clone(store), Arc::clone(shared));
        let thread = std::thread::Builder::new()
            .name(format!("azekura-{what}"))
            .spawn(move || {
                let closing = Closing(&own);
                closing.0.serve(&store, &shared);
            });
        let thread = thread
            .map_err(|error| no_thread(error, &format!("cannot start the thread for {what}s")))?;
        Ok(Self {
            desk,
            thread: Some(thread),
        })
    }

    /// Adds a request, for one that begins from now on. If the thread has ended, the request is dropped.
    pub(super) fn owe(&self, owed: Owed) {
        let mut state = self.desk.state.lock();
        if !state.ended {
            state.owed.push(owed);
            self.desk.came.notify_one();
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.desk.state.lock().ended = true;
        self.desk.came.notify_one();
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the thread for {}s panicked", self.desk.what);
        }
    }
}

/// Refuses further requests when the thread ends, by a panic, too.
struct Closing<'d>(&'d Desk);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.ended = true;
        let left = std::mem::take(&mut state.owed);
        drop(state);
        drop(left);
    }
}

impl Desk {
    fn serve(&self, store: &Store, shared: &Shared) {
        loop {
            let mut state = self.state.lock();
            while state.owed.is_empty() && !state.ended {
                self.came.wait(&mut state);
            }
            let owed = std::mem::take(&mut state.owed);
            drop(state);
            if owed.is_empty() {
                return;
            }
            let begun = Instant::now();
            let mut result = (self.make)(store);
            let took = begun.elapsed();
            for Owed { ticket, report } in owed {
                if let Some(ticket) = ticket {
                    shared.done(ticket, took, result.is_err());
                }
                let next = self.again(&result);
                report(std::mem::replace(&mut result, next));
            }
        }
    }

    /// Copies a result for the next request.
    fn again(&self, result: &Result<()>) -> Result<()> {
        let Err(error) = result else {
            return Ok(());
        };
        let what = format!("the {} failed that many shared", self.what);
        Err(Error::new(error.kind(), what).detail(error.to_string()))
    }
}
