//! A thread that owns connections: it waits for all of them at once and serves those that are ready.
//!
//! Nothing is handed to another thread on the way of a request. A connection comes by the inbox, and stays until it ends.
//! Sockets are registered once, for edges. Where writes must survive loss of power before they are answered, the answers
//! of all connections that were ready together wait for one sync.
//!
//! It knows no protocol and no engine: a session says whether its answer must wait, and the service syncs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use azekura::error::{Error, Result};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::Timespec;

use crate::memcached::{Service, Session};

use super::connection::{Connection, Fate, Turn};
use super::control::{Bell, Control, Counted};
use super::meter::Meter;
use super::stream::Stream;

/// Bytes read at once.
const READ_LEN: usize = 64 << 10;

/// Connections told of at once.
const EVENTS_MAX: usize = 256;

/// How often limits are looked at.
const TICK: Duration = Duration::from_secs(1);

/// How long clients may take to read their last answers when the server ends.
const DRAIN: Duration = Duration::from_secs(5);

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

/// The thread's own: its connections, by number.
pub(super) struct Worker<'w> {
    control: Arc<Control>,
    post: &'w Post,
    epoll: OwnedFd,
    slots: Vec<Option<(Connection, Counted)>>,
    free: Vec<usize>,
    turn: Turn,
    /// Connections that have more to do.
    again: Vec<usize>,
    /// Connections whose answers wait for a sync.
    committing: Vec<usize>,
    /// Connections that have more to say, and when.
    sleeping: BinaryHeap<Reverse<(Instant, usize)>>,
    threads: usize,
    start: Instant,
    service: Arc<Service>,
}

impl<'w> Worker<'w> {
    /// `Io` if the system gives nothing to wait with.
    pub(super) fn new(
        control: &Arc<Control>,
        post: &'w Post,
        threads: usize,
        service: &Arc<Service>,
    ) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(waiting)?;
        epoll::add(&epoll, &post.bell, EventData::new_u64(BELL), EventFlags::IN)
            .map_err(waiting)?;
        Ok(Self {
            control: Arc::clone(control),
            post,
            epoll,
            slots: Vec::new(),
            free: Vec::new(),
            turn: Turn {
                input: Vec::with_capacity(READ_LEN),
                output: Vec::new(),
                now_s: 0,
                held: 0,
                held_max: 0,
                meter: Meter::new(service, Arc::clone(&control.told)),
            },
            again: Vec::new(),
            committing: Vec::new(),
            sleeping: BinaryHeap::new(),
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
            let timeout = if !self.again.is_empty() {
                Duration::ZERO
            } else if ending.is_some() {
                Duration::from_millis(20)
            } else if let Some(Reverse((due, _))) = self.sleeping.peek() {
                due.saturating_duration_since(Instant::now()).min(TICK)
            } else {
                TICK
            };
            self.wait(&mut events, timeout)?;
            self.turn.meter.wake();
            for event in &events {
                let (flags, number) = (event.flags, event.data.u64());
                if number == BELL {
                    self.post.bell.hush();
                    self.welcome();
                    continue;
                }
                let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
                let number = number as usize;
                if let Some(Some((connection, _))) = self.slots.get_mut(number) {
                    let ending = flags.intersects(ends);
                    connection.changed(flags.contains(EventFlags::IN) || ending, ending);
                    self.advance(number);
                }
            }
            for number in std::mem::take(&mut self.again) {
                self.advance(number);
            }
            self.wake();
            self.commit();
            if events.is_empty() || tick.elapsed() >= TICK {
                tick = Instant::now();
                self.look();
            }
            if self.control.is_stopping() {
                let since = *ending.get_or_insert_with(Instant::now);
                if self.drain(since.elapsed() > DRAIN) {
                    return Ok(());
                }
            }
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
            self.slots[number] = Some((connection, arrival.counted));
        }
    }

    fn advance(&mut self, number: usize) {
        let Some(Some((connection, _))) = self.slots.get_mut(number) else {
            return;
        };
        match connection.advance(&mut self.turn) {
            Fate::Rest => {}
            Fate::Again => self.again.push(number),
            Fate::Sleep(long) => self.sleeping.push(Reverse((Instant::now() + long, number))),
            Fate::Commit => self.committing.push(number),
            Fate::Close => self.drop_connection(number),
        }
    }

    fn drop_connection(&mut self, number: usize) {
        if let Some((connection, _)) = self.slots[number].take() {
            self.turn.held -= connection.held();
            self.free.push(number);
        }
    }

    /// Goes on with those that slept long enough. One that left meanwhile is another by now, and not harmed by it.
    fn wake(&mut self) {
        while let Some(Reverse((due, number))) = self.sleeping.peek().copied()
            && due <= Instant::now()
        {
            self.sleeping.pop();
            if let Some((connection, _)) = &mut self.slots[number] {
                connection.wake();
            }
            self.advance(number);
        }
    }

    /// One sync for all whose answers wait, and their answers. Who was not told survives nothing: it is dropped.
    fn commit(&mut self) {
        if self.committing.is_empty() {
            return;
        }
        let from = Instant::now();
        let synced = self.service.sync().is_ok();
        self.turn.meter.sync(from);
        let waited = self.committing.len() as u64;
        self.control
            .counts
            .waited
            .fetch_add(waited, Ordering::Relaxed);
        for number in std::mem::take(&mut self.committing) {
            if synced {
                if let Some((connection, _)) = &mut self.slots[number] {
                    connection.synced();
                }
                self.advance(number);
            } else {
                self.drop_connection(number);
            }
        }
    }

    /// Applies the limits.
    fn look(&mut self) {
        let limits = self.control.limits();
        self.turn.now_s = self.start.elapsed().as_secs() as u32;
        self.turn.held_max = limits.buffers_max / self.threads;
        self.turn.meter.slow = limits.slow();
        // A thread that once built a large answer does not keep the room for it.
        if self.turn.output.capacity() > 4 * READ_LEN {
            self.turn.output = Vec::new();
        }
        for number in 0..self.slots.len() {
            let Some((connection, _)) = &self.slots[number] else {
                continue;
            };
            let overdue = connection.overdue(self.turn.now_s, limits.idle_s, limits.stall_s);
            if let Some(why) = overdue {
                tracing::debug!(?why, "a connection was dropped");
                self.control.counts.dropped.fetch_add(1, Ordering::Relaxed);
                self.drop_connection(number);
            }
        }
    }

    /// Drops who has been answered; if `late`, everybody. Returns whether nobody is left.
    fn drain(&mut self, late: bool) -> bool {
        self.welcome();
        for number in 0..self.slots.len() {
            // What has arrived before is answered.
            if let Some((connection, _)) = &mut self.slots[number] {
                connection.changed(true, false);
            }
            self.advance(number);
            if let Some((connection, _)) = &self.slots[number]
                && (late || (connection.is_at_rest() && !self.committing.contains(&number)))
            {
                self.drop_connection(number);
            }
        }
        self.free.len() == self.slots.len()
    }
}

fn waiting(error: rustix::io::Errno) -> Error {
    Error::io("cannot wait for connections", error)
}
