//! Requests carried by threads that wait, for any storage.
//!
//! A thread is made when a request comes and no thread is idle, up to the depth; all of them end with the flight. A
//! storage that panics fails the request, not the flight. It does not know what kind of storage it is.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Flight, Gate, Landed, Request, Work};
use crate::error::{Error, Kind, Result};
use crate::io::Storage;
use crate::room;

/// Most threads of a flight: beyond it they cost more than they wait for.
const THREADS_MAX: usize = 64;

/// What a thread needs of stack: a call of the system, and an error's text.
const STACK_SIZE: usize = 128 << 10;

/// A flight on threads.
#[derive(Debug)]
pub(super) struct Threads {
    gate: Gate,
    shared: Arc<Shared>,
    hands: Vec<JoinHandle<()>>,
    in_flight: usize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// A request came, or the end.
    launched: Condvar,
    /// A request is done, or the waker woke.
    landed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Request>,
    landed: Vec<Landed>,
    idle: usize,
    woken: bool,
    ended: bool,
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.state.lock().woken = true;
        self.landed.notify_one();
    }
}

impl Threads {
    pub(super) fn new(storage: &Arc<dyn Storage>, depth: usize) -> Result<Self> {
        let depth = depth.min(THREADS_MAX);
        let shared = Arc::new(Shared::default());
        {
            let mut state = shared.state.lock();
            state.landed = room::vec(depth)?;
            state.waiting = room::vec(depth)?.into();
        }
        Ok(Self {
            gate: Gate::new(storage, depth)?,
            shared,
            hands: room::vec(depth)?,
            in_flight: 0,
        })
    }

    /// One thread more. Without it requests wait for those there are.
    fn hire(&mut self) -> Result<()> {
        let (shared, storage) = (Arc::clone(&self.shared), Arc::clone(&self.gate.storage));
        let hired = std::thread::Builder::new()
            .name("azekura-flight".into())
            .stack_size(STACK_SIZE)
            .spawn(move || shared.serve(&*storage));
        match hired {
            Ok(thread) => self.hands.push(thread),
            Err(error) if self.hands.is_empty() => {
                return Err(Error::new(Kind::Full, "cannot make a thread for requests")
                    .at(self.gate.storage.path())
                    .detail(error.to_string()));
            }
            Err(error) => tracing::debug!(%error, "requests wait for the threads there are"),
        }
        Ok(())
    }
}

impl Flight for Threads {
    fn depth_max(&self) -> usize {
        self.gate.depth
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn means(&self) -> &'static str {
        "threads"
    }

    fn launch(&mut self, request: Request) -> Result<()> {
        self.gate.admit(self.in_flight, &request.work)?;
        let idle = {
            let state = self.shared.state.lock();
            state.idle > state.waiting.len()
        };
        // Threads only become idle meanwhile: at worst there is one more than was needed.
        if !idle && self.hands.len() < self.gate.depth {
            self.hire()?;
        }
        self.shared.state.lock().waiting.push_back(request);
        self.shared.launched.notify_one();
        self.in_flight += 1;
        Ok(())
    }

    fn land(&mut self, landed: &mut Vec<Landed>, wait: Option<Duration>) -> Result<()> {
        room::more(landed, self.in_flight)?;
        let until = wait.and_then(|wait| Instant::now().checked_add(wait));
        let mut state = self.shared.state.lock();
        while state.landed.is_empty() && !state.woken {
            match until {
                None => self.shared.landed.wait(&mut state),
                Some(until) => {
                    if self.shared.landed.wait_until(&mut state, until).timed_out() {
                        break;
                    }
                }
            }
        }
        state.woken = false;
        self.in_flight -= state.landed.len();
        landed.append(&mut state.landed);
        Ok(())
    }

    fn waker(&self) -> Waker {
        Arc::clone(&self.shared).into()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.state.lock().ended = true;
        self.shared.launched.notify_all();
        for thread in self.hands.drain(..) {
            // It catches the panics of requests; there is nothing else to report.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The life of a thread: it ends when the flight has, and nothing waits.
    fn serve(&self, storage: &dyn Storage) {
        let mut state = self.state.lock();
        loop {
            let Some(Request { token, mut work }) = state.waiting.pop_front() else {
                if state.ended {
                    return;
                }
                state.idle += 1;
                self.launched.wait(&mut state);
                state.idle -= 1;
                continue;
            };
            drop(state);
            let begun = Instant::now();
            let result = catch_unwind(AssertUnwindSafe(|| perform(storage, &mut work)));
            let result = result.unwrap_or_else(|_| {
                Err(Error::new(Kind::Poisoned, "the storage panicked").at(storage.path()))
            });
            let took = begun.elapsed();
            state = self.state.lock();
            // Its room was taken when the flight was opened.
            state.landed.push(Landed {
                token,
                work,
                result,
                took,
            });
            self.landed.notify_one();
        }
    }
}

fn perform(storage: &dyn Storage, work: &mut Work) -> Result<()> {
    match work {
        Work::Read { offset, buf } => storage.read_at(*offset, buf),
        Work::Write { offset, buf } => storage.write_at(*offset, buf),
        Work::WriteDurably { offset, buf } => storage.write_durably(*offset, buf),
        Work::Sync => storage.sync(),
    }
}
