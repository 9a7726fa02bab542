//! A store behind a queue: requests with deadlines, many in flight, and answers that are futures.
//!
//! ```text
//!   callers --> queue --pop--> thread --> flight ==> the data device       puts and gets, `depth` at once
//!     ^         (order,          |  |---> the store, inline                what needs no data access, and small objects
//!     |          overload,       |  |---> syncer: one sync for many        changes with durability `Power`
//!     `--answer-- failing) <-----'  `---> another one for checkpoints
//! ```
//! 1. Requests that touch one object execute in the order in which they were sent; otherwise the queue decides the order (`queue`).
//! 2. A put takes the store's own steps, so requests and direct calls may be mixed. A failed write leaves the old object, and of a
//!    batch all of them. A put holds its object's lock from its first step to its last; while a direct call holds it, the thread waits.
//! 3. A change is acknowledged when it has the durability it asked for. Changes that complete during a sync share the next one.
//! 4. Every request is answered once, also if the device fails, the queue is stopped, or a thread panics. A request whose [`Pending`]
//!    is dropped before it begins is cancelled: it takes no place in the queue, and nothing of it happens.
//! 5. Without requests nothing runs: no polling, and no timer except for late requests, where they fail.
//! 6. A request that needs no data access does not wait for one, even while the device is slow and the flight is full.
//!
//! | stopped by | waiting requests | requests in flight |
//! |---|---|---|
//! | [`stop`](Served::stop), or dropping it | fail, `Poisoned` | complete and are answered, with their sync |
//! | a failing device, or overload, by the queue's rules | fail, `Poisoned` | complete and are answered |
//!
//! Then every new request fails, too; the store stays open for direct calls. A request costs, beyond the store's own call, a passage
//! through the queue, and one copy of a put's value on the thread. It knows no runtime and no network.

mod ask;
mod crew;
mod pending;
mod syncer;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::io::flight;
#[doc(inline)]
pub use crate::io::flight::Means;
use crate::object::Store;
use crate::object::index::JOURNAL;
use crate::queue::{self, Ask, Next, Queue, Ticket};
#[doc(inline)]
pub use crate::queue::{
    Counters, Deadline, Failure, Health, Histogram, Limits, Policy, Remedy, Signs,
};
pub use ask::{Asked, AskedChange, AskedRead};
use ask::{Job, Verb};
use crew::Crew;
pub use pending::Pending;

/// How a store is served.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Puts and gets in flight at once, at least 1, at most what the means supports.
    pub depth: usize,
    /// How they reach the device.
    pub means: Means,
    /// Options of the queue: order, overload, late requests, and a failing device.
    pub queue: queue::Options,
}

impl Default for Options {
    /// 16 in flight, by a ring where the system has it, and the queue's defaults.
    fn default() -> Self {
        Self {
            depth: 16,
            means: Means::Best,
            queue: queue::Options::default(),
        }
    }
}

setters! { Options { depth: usize, means: Means, queue: queue::Options } }

/// Counts since the start, and the present state.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Outcomes of requests.
    pub counters: Counters,
    /// Times that requests waited in the queue before they began.
    pub waits: Histogram,
    /// Device times, of requests that needed the device.
    pub times: Histogram,
    /// Times the device was found failing.
    pub findings: u64,
    /// Waiting requests.
    pub len: usize,
    /// Requests that have begun and not ended.
    pub in_flight: usize,
    /// Most puts and gets that were in flight at once.
    pub in_flight_max: usize,
    /// Time for which the queue has been busy, if it is.
    pub busy_for: Option<Duration>,
}

/// A served store. Threads share it; the verbs are in its other block.
#[derive(Debug)]
pub struct Served {
    store: Arc<Store>,
    shared: Arc<Shared>,
    means: &'static str,
    thread: Option<JoinHandle<()>>,
}

/// State that callers and the threads share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Of the flight.
    waker: Waker,
    /// Origin of its times.
    origin: Instant,
}

#[derive(Debug)]
struct State {
    queue: Queue<Job>,
    /// The thread waits, and a new request must wake it.
    asleep: bool,
    /// The thread is to end.
    leaving: bool,
    /// Places of the last request and the last put that were submitted, in pieces.
    head: u64,
    last_put: u64,
    in_flight_max: usize,
}

impl Served {
    /// Begins to serve `store`, with three threads of its own. `Invalid` if the depth is 0, or the means is not available;
    /// `Io` or `Full` if there are no threads or no memory.
    pub fn start(store: Arc<Store>, options: &Options) -> Result<Self> {
        let data = &store.core.data;
        let flight = flight::open(data, options.depth, options.means)
            .map_err(|error| error.at(data.path()))?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                queue: Queue::new(options.queue)?,
                asleep: false,
                leaving: false,
                head: 0,
                last_put: 0,
                in_flight_max: 0,
            }),
            waker: flight.waker(),
            origin: Instant::now(),
        });
        let means = flight.means();
        let crew = Crew::new(&store, &shared, flight, options.depth)?;
        let thread = std::thread::Builder::new()
            .name("azekura-queue".into())
            .spawn(move || crew.serve())
            .map_err(|error| no_thread(error, "cannot start the thread for requests"))?;
        Ok(Self {
            store,
            shared,
            means,
            thread: Some(thread),
        })
    }

    /// The store, for direct calls.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The means by which requests reach the device: `ring` or `threads`.
    pub fn means(&self) -> &'static str {
        self.means
    }

    /// Counts so far. Copies two histograms.
    pub fn metrics(&self) -> Metrics {
        let state = self.shared.state.lock();
        let queue = &state.queue;
        Metrics {
            counters: queue.counters(),
            waits: queue.waits().clone(),
            times: queue.times().clone(),
            findings: queue.findings(),
            len: queue.len(),
            in_flight: queue.in_flight(),
            in_flight_max: state.in_flight_max,
            busy_for: queue.busy_for(self.shared.now()),
        }
    }

    /// Whether it accepts no more requests: it was stopped, by a caller, a failing device, or overload.
    pub fn is_stopped(&self) -> bool {
        self.shared.state.lock().queue.is_stopped()
    }

    /// Accepts no more requests, and fails those that wait; those in flight complete and are answered. Does not wait for that:
    /// dropping does.
    pub fn stop(&self) {
        let mut state = self.shared.state.lock();
        state.queue.stop();
        state.leaving = true;
        drop(state);
        self.shared.waker.wake_by_ref();
    }

    /// Returns the request's number in the queue; `None`: it was refused, and answered.
    fn enqueue(&self, mut ask: Ask, job: Job) -> Option<u64> {
        let glanced = match &job.verb {
            Verb::Get(id, ..) | Verb::Sequence(id, _) => self
                .store
                .core
                .index
                .probe(*id)
                .filter(|entry| entry.kind != JOURNAL),
            _ => None,
        };
        let mut state = self.shared.state.lock();
        ask.place = match &job.verb {
            Verb::Put(..) | Verb::Apply(..) => state.last_put,
            _ => glanced.map_or(state.head, |entry| entry.place),
        };
        let now = self.shared.now();
        let number = match state.queue.push(now, ask, job) {
            Ok(number) => number,
            Err((failure, job)) => {
                drop(state);
                job.verb.fail(failure.error());
                return None;
            }
        };
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        if wake {
            self.shared.waker.wake_by_ref();
        }
        Some(number)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the thread for requests panicked");
        }
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Takes a request out of the queue, if it has not begun. Requests that waited for it wait for those before it.
    fn cancel(&self, number: u64) {
        let mut state = self.state.lock();
        let Some(job) = state.queue.cancel(number) else {
            return;
        };
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        drop(job);
        if wake {
            self.waker.wake_by_ref();
        }
    }

    /// Ends a request that needed the device.
    fn done(&self, ticket: Ticket, took: Duration, failed: bool) {
        let mut state = self.state.lock();
        let health = state.queue.done(self.now(), ticket, took, failed);
        let findings = state.queue.findings();
        drop(state);
        match health {
            Health::Good => {}
            Health::Failing => tracing::warn!(findings, "the device is failing"),
            Health::Stop => tracing::error!(findings, "the device is failing; requests stop"),
        }
    }

    /// Ends a request that did not.
    fn done_without(&self, ticket: Ticket) {
        self.state.lock().queue.done_without(ticket);
    }

    /// Records that an access begins at `place` of the device, in pieces.
    fn launches(&self, place: u64, is_put: bool, in_flight: usize) {
        let mut state = self.state.lock();
        state.head = place;
        if is_put {
            state.last_put = place;
        }
        state.in_flight_max = state.in_flight_max.max(in_flight);
    }

    /// Fails all waiting and new requests.
    fn close(&self) {
        self.state.lock().queue.stop();
        loop {
            let next = self.state.lock().queue.pop(self.now());
            match next {
                Some(Next::Fails(failure, job)) => job.verb.fail(failure.error()),
                // A stopped queue hands out no requests.
                Some(Next::Run(_, job)) => drop(job),
                None => return,
            }
        }
    }
}

fn no_thread(error: std::io::Error, what: &str) -> Error {
    Error::io(what, error).remedy("allow this user more processes, or call the store directly")
}
