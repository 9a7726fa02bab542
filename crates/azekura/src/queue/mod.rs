//! The order in which requests go to a device, and which are refused.
//!
//! [`push`](Queue::push) adds a request, [`pop`](Queue::pop) takes the next one, and [`done`](Queue::done) ends it. A [`Queue`] has no
//! threads, no clock and no device: its caller passes the time, a duration since any moment. Each operation costs the logarithm of
//! the number of waiting requests, and `breadth` steps for each pop.
//!
//! 1. Immediate requests come before those with deadlines, and these before those without; of two deadlines the earlier comes first.
//!    So A precedes B if A was pushed first and its deadline is not later. This is the *due order*.
//! 2. Of the first `breadth` requests in it, of one class and with deadlines within a `window`, the next by place is taken: one sweep
//!    upwards, and again from the lowest. No request is overtaken in this way more than `overtakes_max` times. With a breadth of 1
//!    there are no sweeps.
//! 3. Requests that touch the same object keep the order in which they were pushed, and are not in flight at once, unless all of them
//!    read. A request that waits for this may be overtaken any number of times.
//! 4. A request for which a more urgent one waits is as urgent: it takes the place of the urgent one.
//! 5. `overload` decides about too many requests for too long.
//! 6. A request whose deadline has passed is executed all the same, or fails at once if `fail_late` is set: also one that waits for
//!    another, and also while the device accepts nothing.
//! 7. Every request that is accepted comes out once, unless it is cancelled while it waits ([`cancel`](Queue::cancel)). A stopped queue fails waiting requests, and refuses new ones.
//! 8. While the device accepts nothing, a request that needs no device may be taken ([`pop_at_once`](Queue::pop_at_once)), by rules 1,
//!    3 and 4 among its kind. It overtakes no request that could have been taken.
//!
//! It knows nothing of what requests do; `io::flight` carries them. The classes and the policies are `CannyLS`'s; the sweep is the
//! elevator of every disk.

mod conflict;
mod failing;
mod histogram;
mod overload;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::error::{Error, Kind, Result};
use conflict::Conflicts;
pub use conflict::Touches;
pub use failing::{Detector, Health, Remedy, Signs};
pub use histogram::{Histogram, Tally};
pub use overload::{Limits, Policy};
use overload::{Overload, Verdict};

/// The deadline of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deadline {
    /// Before all other requests.
    Immediate,
    /// This long after it was pushed.
    Within(Duration),
    /// After all other requests.
    #[default]
    Infinity,
}

/// The properties of a request that the queue uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The objects.
    pub touches: Touches,
    /// Whether it changes them.
    pub writes: bool,
    /// Where on the device it begins, in any unit.
    pub place: u64,
    /// Its deadline.
    pub deadline: Deadline,
    /// Bytes of values that it holds while it waits.
    pub bytes: u64,
    /// Whether it needs no device.
    pub at_once: bool,
    /// Exempt from the policy of long queues, not from their limit.
    pub prioritized: bool,
}

/// Options of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Limits of its length.
    pub limits: Limits,
    /// When the device is failing.
    pub signs: Signs,
    /// How many of the next requests a sweep considers; at least 1.
    pub breadth: usize,
    /// Greatest difference of deadlines within a sweep.
    pub window: Duration,
    /// How often a request may be overtaken by later ones of the due order.
    pub overtakes_max: u32,
    /// Whether requests fail that waited beyond their deadline.
    pub fail_late: bool,
}

impl Default for Options {
    /// Sweeps over 32 requests within 50 ms, each overtaken 64 times at most; late ones are done.
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            signs: Signs::default(),
            breadth: 32,
            window: Duration::from_millis(50),
            overtakes_max: 64,
            fail_late: false,
        }
    }
}

/// Why a request is refused or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Too many requests wait.
    TooLong,
    /// Waiting requests hold too many bytes.
    TooLarge,
    /// Refused by the policy of long queues, when it was pushed.
    Refused,
    /// Dropped by the policy of long queues, when it was taken.
    Dropped,
    /// Its deadline passed before it was taken.
    Late,
    /// The queue was stopped.
    Stopped,
}

impl Failure {
    /// As an error: `Poisoned` if stopped, else `Full`.
    pub fn error(self) -> Error {
        let (kind, what, remedy) = match self {
            Self::TooLong => (Kind::Full, "too many requests wait", "ask again later"),
            Self::TooLarge => (
                Kind::Full,
                "the requests that wait hold too many bytes of values",
                "ask again later, or raise bytes_max of the queue's limits",
            ),
            Self::Refused => (
                Kind::Full,
                "the device is overloaded, and refused the request",
                "ask again later, or prioritize it",
            ),
            Self::Dropped => (
                Kind::Full,
                "the device is overloaded, and dropped the request",
                "ask again later, or prioritize it",
            ),
            Self::Late => (
                Kind::Full,
                "the deadline passed before it was the request's turn",
                "give it more time, or ask for less at once",
            ),
            Self::Stopped => (
                Kind::Poisoned,
                "the device was stopped",
                "look after the device, then reopen",
            ),
        };
        Error::new(kind, what).remedy(remedy)
    }
}

/// Identifies a request that was taken, until it is done.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// The next request of a queue.
#[derive(Debug)]
pub enum Next<T> {
    /// To be executed; its ticket is passed to [`Queue::done`] afterwards.
    Run(Ticket, T),
    /// Failed.
    Fails(Failure, T),
}

/// Counts of a queue. Every accepted request was taken, failed, was cancelled, or waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Accepted.
    pub enqueued: u64,
    /// Taken for execution.
    pub dequeued: u64,
    /// Refused, for any reason.
    pub refused: u64,
    /// Accepted, then dropped by policy.
    pub dropped: u64,
    /// Accepted, then too late.
    pub late: u64,
    /// Accepted, then failed as the queue had stopped.
    pub stopped: u64,
    /// Accepted, then cancelled before they were taken.
    pub cancelled: u64,
    /// Done.
    pub done: u64,
    /// Of these, those with an error of the device.
    pub failed: u64,
}

/// The due order: class, deadline, number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    class: u8,
    deadline: Duration,
    number: u64,
}

/// A request that may be taken.
#[derive(Clone, Copy, Debug)]
struct Turn {
    place: u64,
    overtaken: u32,
    at_once: bool,
}

/// Requests that wait for no other.
#[derive(Debug, Default)]
struct Ready {
    turns: BTreeMap<Due, Turn>,
    /// Of these, those that need no device.
    at_once: BTreeSet<Due>,
}

impl Ready {
    fn insert(&mut self, due: Due, turn: Turn) {
        if turn.at_once {
            self.at_once.insert(due);
        }
        self.turns.insert(due, turn);
    }

    fn remove(&mut self, due: Due) -> Option<Turn> {
        self.at_once.remove(&due);
        self.turns.remove(&due)
    }
}

/// A request that waits.
#[derive(Debug)]
struct Waiting<T> {
    request: T,
    due: Due,
    /// Its own deadline, if it has one.
    deadline: Option<Duration>,
    came: Duration,
    place: u64,
    bytes: u64,
    at_once: bool,
    prioritized: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Queue<T> {
    options: Options,
    /// Bytes of values of all waiting requests.
    bytes: u64,
    /// All of them, by number: in the order in which they were pushed.
    waiting: BTreeMap<u64, Waiting<T>>,
    ready: Ready,
    /// Own deadlines of waiting requests, where late ones fail.
    dated: BTreeSet<(Duration, u64)>,
    conflicts: Conflicts,
    /// The place of the last one taken.
    head: u64,
    next_number: u64,
    in_flight: usize,
    is_stopped: bool,
    overload: Overload,
    detector: Detector,
    counters: Counters,
    waits: Histogram,
    times: Histogram,
}

impl<T> Queue<T> {
    /// An empty queue. Errors: `Full`.
    pub fn new(options: Options) -> Result<Self> {
        Ok(Self {
            options: Options {
                breadth: options.breadth.max(1),
                ..options
            },
            bytes: 0,
            waiting: BTreeMap::new(),
            ready: Ready::default(),
            dated: BTreeSet::new(),
            conflicts: Conflicts::default(),
            head: 0,
            next_number: 0,
            in_flight: 0,
            is_stopped: false,
            overload: Overload::new(options.limits),
            detector: Detector::new(options.signs)?,
            counters: Counters::default(),
            waits: Histogram::new()?,
            times: Histogram::new()?,
        })
    }

    /// Accepts a request at `now`, and returns its number; or returns it with the reason.
    pub fn push(
        &mut self,
        now: Duration,
        ask: Ask,
        request: T,
    ) -> std::result::Result<u64, (Failure, T)> {
        if let Err(failure) = self.admit(now, &ask) {
            self.counters.refused += 1;
            return Err((failure, request));
        }
        let number = self.next_number;
        self.next_number += 1;
        self.counters.enqueued += 1;
        let (class, deadline) = match ask.deadline {
            Deadline::Immediate => (0, Duration::ZERO),
            Deadline::Within(time) => (1, now.saturating_add(time)),
            Deadline::Infinity => (2, Duration::MAX),
        };
        let due = Due {
            class,
            deadline,
            number,
        };
        let waiting = Waiting {
            request,
            due,
            deadline: (class == 1).then_some(deadline),
            came: now,
            place: ask.place,
            bytes: ask.bytes,
            at_once: ask.at_once,
            prioritized: ask.prioritized,
        };
        if self.options.fail_late && class == 1 {
            self.dated.insert((deadline, number));
        }
        if self.conflicts.add(number, ask.touches, ask.writes) {
            self.ready.insert(due, waiting.turn());
        } else {
            self.lift_before(due);
        }
        self.bytes = self.bytes.saturating_add(waiting.bytes);
        self.waiting.insert(number, waiting);
        Ok(number)
    }

    fn admit(&mut self, now: Duration, ask: &Ask) -> std::result::Result<(), Failure> {
        if self.is_stopped {
            return Err(Failure::Stopped);
        }
        let bytes = self.bytes.saturating_add(ask.bytes);
        if self.bytes > 0 && ask.bytes > 0 && bytes > self.options.limits.bytes_max {
            return Err(Failure::TooLarge);
        }
        let len = self.waiting.len();
        match self.overload.at_enqueue(now, len, ask.prioritized) {
            Verdict::Pass => Ok(()),
            Verdict::Hit if len >= self.options.limits.len_max => Err(Failure::TooLong),
            Verdict::Hit => Err(Failure::Refused),
            Verdict::Stop => {
                self.is_stopped = true;
                Err(Failure::Stopped)
            }
        }
    }

    /// Makes all requests for which a request waits as urgent as it is.
    fn lift_before(&mut self, due: Due) {
        let mut lifted = vec![due.number];
        while let Some(number) = lifted.pop() {
            for before in self.conflicts.before(number) {
                let wanted = Due {
                    number: *before,
                    ..due
                };
                match self.waiting.get_mut(before) {
                    Some(waiting) if waiting.due <= wanted => continue,
                    Some(waiting) => {
                        if let Some(turn) = self.ready.remove(waiting.due) {
                            self.ready.insert(wanted, turn);
                        }
                        waiting.due = wanted;
                    }
                    // In flight, or abandoned while others wait through it.
                    None => {}
                }
                lifted.push(*before);
            }
        }
    }

    /// The next request at `now`; `None` if none waits, or all wait for requests in flight.
    pub fn pop(&mut self, now: Duration) -> Option<Next<T>> {
        self.next(now, Self::choose)
    }

    /// The next request at `now` while the device accepts nothing: one that fails, or one that needs no device.
    pub fn pop_at_once(&mut self, now: Duration) -> Option<Next<T>> {
        self.next(now, |queue| queue.ready.at_once.first().copied())
    }

    fn next(
        &mut self,
        now: Duration,
        choose: impl FnOnce(&mut Self) -> Option<Due>,
    ) -> Option<Next<T>> {
        if self.is_stopped {
            let (number, _) = self.waiting.first_key_value()?;
            return self.fail(*number, Failure::Stopped);
        }
        let earliest = self.dated.first().copied();
        if let Some((_, number)) = earliest.filter(|(deadline, _)| *deadline < now) {
            return self.fail(number, Failure::Late);
        }
        let number = choose(self)?.number;
        let prioritized = self.waiting.get(&number)?.prioritized;
        let others = self.waiting.len() - 1;
        match self.overload.at_dequeue(now, others, prioritized) {
            Verdict::Pass => {}
            Verdict::Hit => return self.fail(number, Failure::Dropped),
            Verdict::Stop => {
                self.is_stopped = true;
                return self.fail(number, Failure::Stopped);
            }
        }
        let waiting = self.take(number)?;
        if !waiting.at_once {
            self.head = waiting.place;
        }
        self.in_flight += 1;
        self.counters.dequeued += 1;
        self.waits.record(now.saturating_sub(waiting.came));
        Some(Next::Run(Ticket(number), waiting.request))
    }

    /// The next request by rules 1 and 2. Counts the ones it overtakes.
    fn choose(&mut self) -> Option<Due> {
        let (first, _) = self.ready.turns.first_key_value()?;
        let (class, until) = (
            first.class,
            first.deadline.saturating_add(self.options.window),
        );
        let near = |due: &Due| due.class == class && due.deadline <= until;
        let (mut above, mut lowest) = (None, None);
        let nearer = |best: Option<(u64, Due)>, place| best.is_none_or(|(other, _)| place < other);
        for (due, turn) in self.ready.turns.iter().take(self.options.breadth) {
            if !near(due) {
                break;
            }
            if turn.place >= self.head && nearer(above, turn.place) {
                above = Some((turn.place, *due));
            }
            if nearer(lowest, turn.place) {
                lowest = Some((turn.place, *due));
            }
            // It was overtaken as often as allowed: no later one precedes it.
            if turn.overtaken >= self.options.overtakes_max {
                break;
            }
        }
        let (_, chosen) = above.or(lowest)?;
        for (_, turn) in self.ready.turns.range_mut(..chosen) {
            turn.overtaken += 1;
        }
        Some(chosen)
    }

    /// Removes a request from the waiting ones.
    fn take(&mut self, number: u64) -> Option<Waiting<T>> {
        let waiting = self.waiting.remove(&number)?;
        self.bytes -= waiting.bytes;
        self.ready.remove(waiting.due);
        if let Some(deadline) = waiting.deadline {
            self.dated.remove(&(deadline, number));
        }
        Some(waiting)
    }

    /// Takes out a request that waits, by its number; its place is free for another. `None`: it was taken, failed or cancelled.
    pub fn cancel(&mut self, number: u64) -> Option<T> {
        let request = self.withdraw(number)?;
        self.counters.cancelled += 1;
        Some(request)
    }

    /// Ends a request that waits.
    fn withdraw(&mut self, number: u64) -> Option<T> {
        let waiting = self.take(number)?;
        self.end(number);
        Some(waiting.request)
    }

    fn fail(&mut self, number: u64, failure: Failure) -> Option<Next<T>> {
        let request = self.withdraw(number)?;
        let counter = match failure {
            Failure::Dropped => &mut self.counters.dropped,
            Failure::Late => &mut self.counters.late,
            _ => &mut self.counters.stopped,
        };
        *counter += 1;
        Some(Next::Fails(failure, request))
    }

    /// Releases the requests that waited for it.
    fn end(&mut self, number: u64) {
        let mut freed = Vec::new();
        self.conflicts.end(number, &mut freed);
        for number in freed {
            if let Some(waiting) = self.waiting.get(&number) {
                self.ready.insert(waiting.due, waiting.turn());
            }
        }
    }

    /// Ends a request at `now`, with its device time, and whether the device failed it. Requests that waited for it may be taken.
    /// A device to be stopped stops the queue.
    pub fn done(&mut self, now: Duration, ticket: Ticket, took: Duration, failed: bool) -> Health {
        self.done_without(ticket);
        self.counters.failed += u64::from(failed);
        self.times.record(took);
        let health = self.detector.observe(now, took, failed);
        self.is_stopped |= health == Health::Stop;
        health
    }

    /// Ends a request that needed no device, which shows nothing of its health.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used up")]
    pub fn done_without(&mut self, ticket: Ticket) {
        self.end(ticket.0);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.counters.done += 1;
    }

    /// Stops: waiting and new requests fail.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Whether it was stopped, by any cause.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many requests were taken and are not done.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// When the next request fails as late, if late ones fail.
    pub fn next_late(&self) -> Option<Duration> {
        self.dated.first().map(|(deadline, _)| *deadline)
    }

    /// Time for which it has been busy, if it is.
    pub fn busy_for(&self, now: Duration) -> Option<Duration> {
        self.overload.busy_for(now)
    }

    /// Counts so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Times that requests waited before they were taken.
    pub fn waits(&self) -> &Histogram {
        &self.waits
    }

    /// Device times.
    pub fn times(&self) -> &Histogram {
        &self.times
    }

    /// Times the device was found failing.
    pub fn findings(&self) -> u64 {
        self.detector.findings()
    }
}

impl<T> Waiting<T> {
    fn turn(&self) -> Turn {
        Turn {
            place: self.place,
            overtaken: 0,
            at_once: self.at_once,
        }
    }
}
