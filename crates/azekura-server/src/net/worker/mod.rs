//! A thread that owns connections: it waits for all of them at once and serves those that are ready.
//!
//! A request is served by one thread from its first byte to its answer. Of the connections that are ready together, those
//! that are expected to send little are read first; their keys are prefetched together, so that cache misses overlap; then
//! each is served. A connection arrives by the inbox, and stays until it ends.
//! Sockets are registered once, for edges. Where writes must survive loss of power before they are answered, connections
//! wait for a sync by another thread, and the others are served meanwhile.
//!
//! It knows no protocol and no engine: a session states whether its answer must wait.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use azekura::error::{Error, Result};
use azekura_wire::Stream;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::Timespec;

use crate::memcached::{CloseReason, Service, Session, probable_key};

use super::connection::{Action, Connection, EARLY_LEN, Overdue, Turn};
use super::control::{Control, Counted, Dropped, Waker};
use super::meter::Meter;
use super::syncs::{Syncs, Ticket};

/// Bytes read at once.
const READ_LEN: usize = 64 << 10;

/// Events taken at once.
const EVENTS_MAX: usize = 256;

/// Connections that are read before they are served: as many as engines look up at once.
const EARLY_MAX: usize = 32;

/// How often limits are applied.
const TICK: Duration = Duration::from_secs(1);

/// Bytes by which buffers change before other workers see it.
const PUBLISH_STEP: usize = 256 << 10;

/// The epoll key of the waker.
const WAKER: u64 = u64::MAX;

/// A connection on its way to its thread.
pub(super) struct Arrival {
    pub(super) stream: Stream,
    pub(super) session: Session,
    pub(super) counted: Counted,
}

/// Connections on their way from the accepting thread to a worker.
pub(super) struct Inbox {
    arrivals: Mutex<Vec<Arrival>>,
    pub(super) waker: Waker,
}

impl Inbox {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            arrivals: Mutex::new(Vec::new()),
            waker: Waker::new()?,
        })
    }

    /// Sends a connection to the worker.
    pub(super) fn send(&self, arrival: Arrival) {
        self.arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(arrival);
        self.waker.wake();
    }

    fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut self.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What was read of a connection before its turn.
struct EarlyRead {
    number: usize,
    bytes: Vec<u8>,
}

/// A connection that the thread owns.
struct Slot {
    connection: Connection,
    /// Whether it is among those that have more to do.
    queued: bool,
    /// When it has more to send, if it sleeps.
    due: Option<Instant>,
    _counted: Counted,
}

/// The thread's own: its connections, by number.
pub(super) struct Worker<'w> {
    control: Arc<Control>,
    /// Which of the workers it is.
    index: usize,
    inbox: &'w Inbox,
    syncs: &'w Syncs,
    epoll: OwnedFd,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    turn: Turn,
    /// Room for what is read before turns, and how much of it is in use.
    early_reads: Vec<EarlyRead>,
    early: usize,
    /// The bytes that connections hold, as other workers see them.
    published: usize,
    /// Connections that have more to do, each once.
    again: Vec<usize>,
    /// Those of them that have their turn in this round.
    going: Vec<usize>,
    /// Connections whose answers are to wait for a sync that was not requested yet.
    committing: Vec<usize>,
    /// How many these were when others were last looked for.
    looked: usize,
    /// Those that wait, by their tickets.
    waiting: VecDeque<(Ticket, usize)>,
    /// Connections that have more to send, and when.
    sleeping: BTreeSet<(Instant, usize)>,
    threads: usize,
    start: Instant,
    service: Arc<Service>,
}

impl<'w> Worker<'w> {
    /// `Io` if the system gives nothing to wait with.
    pub(super) fn new(
        control: &Arc<Control>,
        (index, inbox): (usize, &'w Inbox),
        syncs: &'w Syncs,
        threads: usize,
        service: &Arc<Service>,
    ) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(cannot_wait)?;
        epoll::add(
            &epoll,
            &inbox.waker,
            EventData::new_u64(WAKER),
            EventFlags::IN,
        )
        .map_err(cannot_wait)?;
        Ok(Self {
            control: Arc::clone(control),
            index,
            inbox,
            syncs,
            epoll,
            slots: Vec::new(),
            free: Vec::new(),
            turn: Turn {
                input: Vec::with_capacity(READ_LEN),
                is_fed: false,
                output: Vec::new(),
                scratch: Vec::new(),
                now_s: 0,
                held: 0,
                held_max: 0,
                meter: Meter::new(service, Arc::clone(&control.slow_requests)),
            },
            early_reads: (0..EARLY_MAX)
                .map(|_| EarlyRead {
                    number: 0,
                    bytes: Vec::with_capacity(EARLY_LEN),
                })
                .collect(),
            early: 0,
            published: 0,
            again: Vec::new(),
            going: Vec::new(),
            committing: Vec::new(),
            looked: 0,
            waiting: VecDeque::new(),
            sleeping: BTreeSet::new(),
            threads,
            start: Instant::now(),
            service: Arc::clone(service),
        })
    }

    /// Serves until the server ends. Errors: `Io` (waiting failed).
    pub(super) fn run(mut self) -> Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        let mut tick = Instant::now();
        let mut ending: Option<Instant> = None;
        self.apply_limits();
        loop {
            self.wait(&mut events, self.timeout(ending.is_some()))?;
            self.turn.meter.wake();
            // A connection that wants another turn after this one has it in the next round.
            std::mem::swap(&mut self.again, &mut self.going);
            for event in &events {
                let (flags, number) = (event.flags, event.data.u64());
                if number == WAKER {
                    self.inbox.waker.clear();
                    self.accept_arrivals();
                    self.release();
                    continue;
                }
                let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
                let number = number as usize;
                if let Some(Some(slot)) = self.slots.get_mut(number) {
                    let ending = flags.intersects(ends);
                    let readable = flags.contains(EventFlags::IN) || ending;
                    slot.connection.changed(readable, ending);
                    if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                        slot.connection.hung_up();
                    }
                    if !slot.queued && (events.len() == 1 || !self.read_early(number)) {
                        self.advance(number);
                    }
                }
            }
            self.serve_early();
            self.run_queued();
            self.wake();
            self.commit();
            if events.is_empty() || tick.elapsed() >= TICK {
                tick = Instant::now();
                self.apply_limits();
            }
            if self.control.is_stopping() {
                let since = *ending.get_or_insert_with(Instant::now);
                let grace = Duration::from_secs(self.control.limits().grace_s.into());
                if self.drain(since.elapsed() > grace) {
                    return Ok(());
                }
            }
        }
    }

    /// How long to wait for something to happen: not at all if something is to be done.
    fn timeout(&self, is_ending: bool) -> Duration {
        if !self.again.is_empty() || !self.committing.is_empty() {
            Duration::ZERO
        } else if is_ending {
            Duration::from_millis(20)
        } else if let Some((due, _)) = self.sleeping.first() {
            due.saturating_duration_since(Instant::now()).min(TICK)
        } else {
            TICK
        }
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Duration) -> Result<()> {
        events.clear();
        let timeout = Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, room, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(cannot_wait(e)),
        }
    }

    /// Takes the connections that have arrived.
    fn accept_arrivals(&mut self) {
        for arrival in self.inbox.take() {
            let connection = Connection::new(arrival.stream, arrival.session, self.turn.now_s);
            let number = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            let data = EventData::new_u64(number as u64);
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            if epoll::add(&self.epoll, connection.stream(), data, flags).is_err() {
                self.free.push(number);
                continue;
            }
            self.slots[number] = Some(Slot {
                connection,
                queued: false,
                due: None,
                _counted: arrival.counted,
            });
        }
    }

    /// Runs the connections that are queued for another turn.
    fn run_queued(&mut self) {
        while let Some(number) = self.going.pop() {
            if let Some(slot) = &mut self.slots[number] {
                slot.queued = false;
            }
            self.advance(number);
        }
    }

    /// Reads a connection before its turn, if it is one for that.
    fn read_early(&mut self, number: usize) -> bool {
        let (Some(early_read), Some(Some(slot))) = (
            self.early_reads.get_mut(self.early),
            self.slots.get_mut(number),
        ) else {
            return false;
        };
        if !slot
            .connection
            .read_early(&mut early_read.bytes, self.turn.now_s)
        {
            return false;
        }
        early_read.number = number;
        self.early += 1;
        if self.early == self.early_reads.len() {
            self.serve_early();
        }
        true
    }

    /// Prefetches the keys of the connections that were read before their turns, and gives them their turns.
    fn serve_early(&mut self) {
        if self.early > 1 {
            let mut keys: [&[u8]; EARLY_MAX] = [b""; EARLY_MAX];
            let asked = self.early_reads[..self.early].iter();
            let mut count = 0;
            for key in asked.filter_map(|early_read| probable_key(&early_read.bytes)) {
                keys[count] = key;
                count += 1;
            }
            self.service.prefetch(&keys[..count]);
        }
        for at in 0..self.early {
            let early_read = &mut self.early_reads[at];
            // It may have been dropped meanwhile.
            if !early_read.bytes.is_empty() {
                self.turn.input.clear();
                self.turn.input.extend_from_slice(&early_read.bytes);
                early_read.bytes.clear();
                self.turn.is_fed = true;
                let number = early_read.number;
                self.advance(number);
                self.turn.is_fed = false;
            }
        }
        self.early = 0;
    }

    fn advance(&mut self, number: usize) {
        let Some(Some(slot)) = self.slots.get_mut(number) else {
            return;
        };
        match slot.connection.advance(&mut self.turn) {
            Action::Rest => {}
            Action::Again => {
                if !std::mem::replace(&mut slot.queued, true) {
                    self.again.push(number);
                }
            }
            Action::Sleep(long) => {
                let due = Instant::now() + long;
                slot.due = Some(due);
                self.sleeping.insert((due, number));
            }
            Action::Commit => self.committing.push(number),
            Action::Close => {
                if slot.connection.is_greeting() {
                    let failed = &self.control.counts.handshakes_failed;
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                self.drop_connection(number);
            }
        }
        if self.turn.held > self.turn.held_max {
            self.enforce_buffers_max();
        }
        if self.turn.held.abs_diff(self.published) >= PUBLISH_STEP {
            self.publish_held();
        }
    }

    /// Publishes what connections hold to the other workers.
    #[cold]
    fn publish_held(&mut self) {
        self.control.counts.hold(self.published, self.turn.held);
        self.published = self.turn.held;
    }

    /// Drops the connections that hold most until all together hold no more than `buffers-max`.
    #[cold]
    fn enforce_buffers_max(&mut self) {
        let held = |slot: &Option<Slot>| slot.as_ref().map_or(0, |slot| slot.connection.held());
        while self.turn.held > self.turn.held_max
            && let Some(most) = (0..self.slots.len()).max_by_key(|n| held(&self.slots[*n]))
            && let Some(slot) = &mut self.slots[most]
        {
            // TLS may hold the answer back.
            let before = slot.connection.held();
            slot.connection.refuse();
            slot.connection.set_close_reason(CloseReason::Error);
            self.turn.held = self.turn.held + slot.connection.held() - before;
            tracing::debug!(reason = "buffers-max", "connection dropped");
            self.control.counts.drop_for(Dropped::Buffers);
            self.drop_connection(most);
        }
    }

    fn drop_for(&mut self, number: usize, reason: CloseReason) {
        if let Some(slot) = &mut self.slots[number] {
            slot.connection.set_close_reason(reason);
        }
        self.drop_connection(number);
    }

    fn drop_connection(&mut self, number: usize) {
        let Some(slot) = self.slots[number].take() else {
            return;
        };
        self.turn.held -= slot.connection.held();
        self.free.push(number);
        // The next connection of this number finds nothing of it.
        let early_reads = self.early_reads.iter_mut().take(self.early);
        for early_read in early_reads.filter(|early_read| early_read.number == number) {
            early_read.bytes.clear();
        }
        if slot.queued {
            self.again.retain(|queued| *queued != number);
            self.going.retain(|queued| *queued != number);
        }
        self.committing.retain(|waits| *waits != number);
        self.waiting.retain(|(_, waits)| *waits != number);
        if let Some(due) = slot.due {
            self.sleeping.remove(&(due, number));
        }
    }

    /// Resumes those whose pauses have ended.
    fn wake(&mut self) {
        while let Some((due, number)) = self.sleeping.first().copied()
            && due <= Instant::now()
        {
            self.sleeping.pop_first();
            if let Some(slot) = &mut self.slots[number] {
                slot.due = None;
                slot.connection.wake();
            }
            self.advance(number);
        }
    }

    /// Requests a sync for all connections whose answers wait for one, once no more of them are ready.
    fn commit(&mut self) {
        let count = self.committing.len();
        if std::mem::replace(&mut self.looked, count) != count || count == 0 {
            return;
        }
        self.looked = 0;
        let ticket = self.syncs.ask(self.index, count);
        let waited = &self.control.counts.waited;
        waited.fetch_add(count as u64, Ordering::Relaxed);
        let numbers = self.committing.drain(..);
        self.waiting.extend(numbers.map(|number| (ticket, number)));
    }

    /// Sends the answers whose syncs have ended. After a failed sync the connection is dropped instead.
    fn release(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let ended = self.syncs.ended();
        while let Some((ticket, number)) = self.waiting.front().copied()
            && let Some(synced) = ended.of(ticket)
        {
            self.waiting.pop_front();
            if synced {
                if let Some(slot) = &mut self.slots[number] {
                    slot.connection.synced();
                }
                self.advance(number);
            } else {
                self.control.counts.drop_for(Dropped::Sync);
                self.drop_for(number, CloseReason::Error);
            }
        }
    }

    /// Applies the limits.
    fn apply_limits(&mut self) {
        let limits = self.control.limits();
        self.turn.now_s = self.start.elapsed().as_secs() as u32;
        self.turn.held_max = limits.buffers_max / self.threads;
        self.turn.meter.slow = limits.slow();
        self.publish_held();
        // A thread that once built a large answer does not keep the room for it.
        if self.turn.output.capacity() > 4 * READ_LEN {
            self.turn.output = Vec::new();
        }
        if self.turn.scratch.capacity() > 4 * READ_LEN {
            self.turn.scratch = Vec::new();
        }
        for number in 0..self.slots.len() {
            let Some(slot) = &self.slots[number] else {
                continue;
            };
            let overdue = slot
                .connection
                .overdue(self.turn.now_s, limits.idle_s, limits.stall_s);
            if let Some(why) = overdue {
                tracing::debug!(reason = ?why, "connection dropped");
                let (count, reason) = match why {
                    Overdue::Idle => (Dropped::Idle, CloseReason::Idle),
                    Overdue::Request => (Dropped::Request, CloseReason::Error),
                    Overdue::Answer => (Dropped::Answer, CloseReason::Error),
                };
                self.control.counts.drop_for(count);
                self.drop_for(number, reason);
            }
        }
    }

    /// Drops the connections that were answered; if `late`, all. Returns whether none is left.
    fn drain(&mut self, late: bool) -> bool {
        self.accept_arrivals();
        for number in 0..self.slots.len() {
            // What has arrived before is answered.
            if let Some(slot) = &mut self.slots[number] {
                slot.connection.changed(true, false);
            }
            self.advance(number);
            if let Some(slot) = &self.slots[number]
                && (late || slot.connection.is_done())
            {
                self.drop_for(number, CloseReason::ShutDown);
            }
        }
        self.free.len() == self.slots.len()
    }
}

fn cannot_wait(error: rustix::io::Errno) -> Error {
    Error::io("cannot wait for connections", error)
}
