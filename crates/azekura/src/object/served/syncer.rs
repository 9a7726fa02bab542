//! Syncs and checkpoints for many: a thread that makes one for all who ask for it meanwhile.
//!
//! A sync is more than a request to the device: the journal's mark moves, and room comes out of limbo. So it is the store's
//! own, shared with its direct callers, and made beside the flight: other requests go on. While nobody asks, none is made.
//! A checkpoint takes longer, and has a thread of its own: who waits for a sync does not wait for it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::{Shared, no_thread};
use crate::error::{Error, Result};
use crate::object::Store;
use crate::queue::Ticket;

/// Who waits for one.
pub(super) struct Owed {
    /// Of a request that is one, whose time tells of the device.
    pub(super) ticket: Option<Ticket>,
    /// Is told how it went.
    pub(super) tell: Box<dyn FnOnce(Result<()>) + Send>,
}

#[derive(Default)]
struct State {
    owed: Vec<Owed>,
    ended: bool,
}

struct Desk {
    /// What is made here, in one word.
    what: &'static str,
    make: fn(&Store) -> Result<()>,
    state: Mutex<State>,
    came: Condvar,
}

/// See the module's text. When it is dropped, what is owed is made first.
pub(super) struct Syncer {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// What is made is a `what`, by `make`. `Io` if the system gives no thread.
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

    /// Somebody waits for one that begins from now on. If there can be none, nobody is told.
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

/// Closes the desk when its thread ends, however that may be.
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
            for Owed { ticket, tell } in owed {
                if let Some(ticket) = ticket {
                    shared.done(ticket, took, result.is_err());
                }
                let next = self.again(&result);
                tell(std::mem::replace(&mut result, next));
            }
        }
    }

    /// The same result for the next one.
    fn again(&self, result: &Result<()>) -> Result<()> {
        let Err(error) = result else {
            return Ok(());
        };
        let what = format!("the {} failed that many shared", self.what);
        Err(Error::new(error.kind(), what).detail(error.to_string()))
    }
}
