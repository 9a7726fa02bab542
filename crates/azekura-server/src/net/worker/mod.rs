//! A thread that owns connections: it waits for all of them at once and serves those that are ready.
//!
//! Nothing is handed to another thread on the way of a request. Of the connections that are ready together, those that are
//! expected to ask for little are read first; what they ask for is brought near in one go, so that the misses of memory
//! overlap; then each is served. A connection comes by the inbox, and stays until it ends.
//! Sockets are registered once, for edges. Where writes must survive loss of power before they are answered, connections
//! wait for a sync by another thread, and those that do not are served meanwhile.
//!
//! It knows no protocol and no engine: a session says whether its answer must wait.

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

use crate::memcached::{CloseReason, Service, Session, likely_key};

use super::connection::{Connection, EARLY_LEN, Fate, Overdue, Turn};
use super::control::{Bell, Control, Counted, Dropped};
use super::meter::Meter;
use super::syncs::{Syncs, Ticket};

/// Bytes read at once.
const READ_LEN: usize = 64 << 10;

/// Connections told of at once.
const EVENTS_MAX: usize = 256;

/// Connections that are read before they are served: as many as engines look up at once.
const EARLY_MAX: usize = 32;

/// How often limits are looked at.
const TICK: Duration = Duration::from_secs(1);

/// Bytes by which buffers change before other workers see it.
const TOLD: usize = 256 << 10;

/// The word of the bell among those of connections.
const BELL: u64 = u64::MAX;

/// A connection on its way to its thread.
pub(super) struct Arrival {
    pub(super) stream: Stream,
    pub(super) session: Session,
    pub(super) counted: Counted,
}

/// What the accepting thread and a worker share.
pub(super) struct Post {
    arrivals: Mutex<Vec<Arrival>>,
    pub(super) bell: Bell,
}

impl Post {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            arrivals: Mutex::new(Vec::new()),
            bell: Bell::new()?,
        })
    }

    /// Hands over a connection.
    pub(super) fn send(&self, arrival: Arrival) {
        self.arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(arrival);
        self.bell.ring();
    }

    fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut self.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What was read of a connection before its turn.
struct Piece {
    number: usize,
    bytes: Vec<u8>,
}

/// A connection that the thread owns.
struct Slot {
    connection: Connection,
    /// Whether it is among those that have more to do.
    queued: bool,
    /// When it has more to say, if it sleeps.
    due: Option<Instant>,
    _counted: Counted,
}

/// The thread's own: its connections, by number.
pub(super) struct Worker<'w> {
    control: Arc<Control>,
    /// Which of the workers it is.
    index: usize,
    post: &'w Post,
    syncs: &'w Syncs,
    epoll: OwnedFd,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    turn: Turn,
    /// Room for what is read before turns, and how much of it is in use.
    pieces: Vec<Piece>,
    early: usize,
    /// The bytes that connections hold, as other workers see them.
    told: usize,
    /// Connections that have more to do, each once.
    again: Vec<usize>,
    /// Those of them that have their turn in this round.
    going: Vec<usize>,
    /// Connections whose answers are to wait for a sync that nobody has asked for yet.
    committing: Vec<usize>,
    /// How many these were when others were last looked for.
    looked: usize,
    /// Those that wait, by their tickets.
    waiting: VecDeque<(Ticket, usize)>,
    /// Connections that have more to say, and when.
    sleeping: BTreeSet<(Instant, usize)>,
    threads: usize,
    start: Instant,
    service: Arc<Service>,
}

impl<'w> Worker<'w> {
    /// `Io` if the system gives nothing to wait with.
    pub(super) fn new(
        control: &Arc<Control>,
        (index, post): (usize, &'w Post),
        syncs: &'w Syncs,
        threads: usize,
        service: &Arc<Service>,
    ) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(waiting)?;
        epoll::add(&epoll, &post.bell, EventData::new_u64(BELL), EventFlags::IN)
            .map_err(waiting)?;
        Ok(Self {
            control: Arc::clone(control),
            index,
            post,
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
                meter: Meter::new(service, Arc::clone(&control.told)),
            },
            pieces: (0..EARLY_MAX)
                .map(|_| Piece {
                    number: 0,
                    bytes: Vec::with_capacity(EARLY_LEN),
                })
                .collect(),
            early: 0,
            told: 0,
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
        self.look();
        loop {
            self.wait(&mut events, self.timeout(ending.is_some()))?;
            self.turn.meter.wake();
            // Who has a turn now and wants another has it in the next round, as the others.
            std::mem::swap(&mut self.again, &mut self.going);
            for event in &events {
                let (flags, number) = (event.flags, event.data.u64());
                if number == BELL {
                    self.post.bell.hush();
                    self.welcome();
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
            self.go_on();
            self.wake();
            self.commit();
            if events.is_empty() || tick.elapsed() >= TICK {
                tick = Instant::now();
                self.look();
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
            Err(e) => Err(waiting(e)),
        }
    }

    /// Takes in what has arrived.
    fn welcome(&mut self) {
        for arrival in self.post.take() {
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

    /// Gives those that wanted another turn theirs.
    fn go_on(&mut self) {
        while let Some(number) = self.going.pop() {
            if let Some(slot) = &mut self.slots[number] {
                slot.queued = false;
            }
            self.advance(number);
        }
    }

    /// Reads a connection before its turn, if it is one for that.
    fn read_early(&mut self, number: usize) -> bool {
        let (Some(piece), Some(Some(slot))) =
            (self.pieces.get_mut(self.early), self.slots.get_mut(number))
        else {
            return false;
        };
        if !slot
            .connection
            .read_early(&mut piece.bytes, self.turn.now_s)
        {
            return false;
        }
        piece.number = number;
        self.early += 1;
        if self.early == self.pieces.len() {
            self.serve_early();
        }
        true
    }

    /// Brings near what those ask for that were read before their turns, and gives them their turns.
    fn serve_early(&mut self) {
        if self.early > 1 {
            let mut keys: [&[u8]; EARLY_MAX] = [b""; EARLY_MAX];
            let asked = self.pieces[..self.early].iter();
            let mut count = 0;
            for key in asked.filter_map(|piece| likely_key(&piece.bytes)) {
                keys[count] = key;
                count += 1;
            }
            self.service.bring_near(&keys[..count]);
        }
        for at in 0..self.early {
            let piece = &mut self.pieces[at];
            // It may have been dropped meanwhile.
            if !piece.bytes.is_empty() {
                self.turn.input.clear();
                self.turn.input.extend_from_slice(&piece.bytes);
                piece.bytes.clear();
                self.turn.is_fed = true;
                let number = piece.number;
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
            Fate::Rest => {}
            Fate::Again => {
                if !std::mem::replace(&mut slot.queued, true) {
                    self.again.push(number);
                }
            }
            Fate::Sleep(long) => {
                let due = Instant::now() + long;
                slot.due = Some(due);
                self.sleeping.insert((due, number));
            }
            Fate::Commit => self.committing.push(number),
            Fate::Close => {
                if slot.connection.is_greeting() {
                    let failed = &self.control.counts.handshakes_failed;
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                self.drop_connection(number);
            }
        }
        if self.turn.held > self.turn.held_max {
            self.relieve();
        }
        if self.turn.held.abs_diff(self.told) >= TOLD {
            self.tell();
        }
    }

    /// Tells others what connections hold.
    #[cold]
    fn tell(&mut self) {
        self.control.counts.hold(self.told, self.turn.held);
        self.told = self.turn.held;
    }

    /// Drops those that hold most until all together hold no more than they may: who holds little does not pay for them.
    #[cold]
    fn relieve(&mut self) {
        let held = |slot: &Option<Slot>| slot.as_ref().map_or(0, |slot| slot.connection.held());
        while self.turn.held > self.turn.held_max
            && let Some(most) = (0..self.slots.len()).max_by_key(|n| held(&self.slots[*n]))
            && let Some(slot) = &mut self.slots[most]
        {
            // A cipher may hold what is said.
            let before = slot.connection.held();
            slot.connection.refuse();
            slot.connection.goes(CloseReason::Error);
            self.turn.held = self.turn.held + slot.connection.held() - before;
            tracing::debug!(reason = "buffers-max", "connection dropped");
            self.control.counts.drop_for(Dropped::Buffers);
            self.drop_connection(most);
        }
    }

    fn drop_for(&mut self, number: usize, reason: CloseReason) {
        if let Some(slot) = &mut self.slots[number] {
            slot.connection.goes(reason);
        }
        self.drop_connection(number);
    }

    fn drop_connection(&mut self, number: usize) {
        let Some(slot) = self.slots[number].take() else {
            return;
        };
        self.turn.held -= slot.connection.held();
        self.free.push(number);
        // Nothing of it is left for whoever has the number next.
        let pieces = self.pieces.iter_mut().take(self.early);
        for piece in pieces.filter(|piece| piece.number == number) {
            piece.bytes.clear();
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

    /// Goes on with those that slept long enough.
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

    /// Asks for a sync for all whose answers are to wait for one, once a look found no more of them.
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

    /// Answers those whose syncs have ended. Who was not told survives nothing: it is dropped.
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
    fn look(&mut self) {
        let limits = self.control.limits();
        self.turn.now_s = self.start.elapsed().as_secs() as u32;
        self.turn.held_max = limits.buffers_max / self.threads;
        self.turn.meter.slow = limits.slow();
        self.tell();
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

    /// Drops who has been answered; if `late`, everybody. Returns whether nobody is left.
    fn drain(&mut self, late: bool) -> bool {
        self.welcome();
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

fn waiting(error: rustix::io::Errno) -> Error {
    Error::io("cannot wait for connections", error)
}
