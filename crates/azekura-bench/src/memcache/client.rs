//! One thread's connections: requests go out as they are due, answers are read as they come.
//!
//! One wait for all connections, one read and one write per connection that is ready. A request's latency counts from
//! when it was due: in the closed loop that is when it was made, at a fixed rate it is by the plan, even if its
//! connection had no room for it yet. It knows no protocol.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use azekura::error::{Error, Kind, Result};
use azekura_wire::Stream;
use indicatif::ProgressBar;
use rustix::event::epoll;
use rustix::fs::Timespec;

use super::wire::{Ask, Keys, Wire};
use super::{Done, Load, MemcachePlan, Operation, due};
use crate::generate::{self, Choice, Source, mix};

/// After so long without any answer the server is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request that is due earlier than this from now is waited for without sleeping: sleep ends late.
const AWAKE: Duration = Duration::from_micros(60);

/// Bytes read at once.
const READ_LEN: usize = 1 << 18;

/// A request in flight.
struct Asked {
    ask: Ask,
    numbers: Vec<u64>,
    due: Instant,
}

struct Connection {
    stream: Stream,
    asked: VecDeque<Asked>,
    /// Due, but `--depth` requests are in flight.
    waiting: VecDeque<Instant>,
    /// What has arrived of an answer that is not whole.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Whether the wait includes room to write.
    full: bool,
}

fn no_wait(error: rustix::io::Errno) -> Error {
    Error::io("cannot wait for connections", error)
}

/// The connections of a thread, and what is left to do on them.
pub(super) struct Client<'p> {
    plan: &'p MemcachePlan,
    operation: Operation,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    wire: Wire<'p>,
    numbers: generate::Keys,
    choice: Choice,
    /// Records yet to be requested.
    left: u64,
    /// Records in requests in flight.
    out: u64,
    /// Lists of numbers to use again.
    spare: Vec<Vec<u64>>,
    buffer: Vec<u8>,
    done: Done,
}

impl<'p> Client<'p> {
    /// Opens the connections of `thread`.
    pub(super) fn connect(
        load: &'p Load<'_>,
        operation: Operation,
        thread: u64,
        source: &Source,
    ) -> Result<Self> {
        let plan = load.plan;
        let share = |all: u64| all / plan.threads + u64::from(thread < all % plan.threads);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(no_wait)?;
        let mut connections = Vec::new();
        for index in 0..share(plan.connections) {
            let stream = Stream::connect(&plan.address, load.trust.as_ref())?;
            let data = epoll::EventData::new_u64(index);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN).map_err(no_wait)?;
            connections.push(Connection {
                stream,
                asked: VecDeque::new(),
                waiting: VecDeque::new(),
                input: Vec::new(),
                output: Vec::new(),
                full: false,
            });
        }
        let left = share(plan.count());
        let keys = Keys::new(&plan.key_prefix, plan.key_size);
        Ok(Self {
            plan,
            operation,
            epoll,
            connections,
            wire: Wire::new(plan.protocol, keys, &load.values, !plan.no_verify),
            // Threads of other seeds draw other keys.
            numbers: source.keys(left, plan.threads, thread, mix(plan.seed)),
            choice: Choice::new(!plan.seed ^ thread),
            left,
            out: 0,
            spare: Vec::new(),
            buffer: Vec::with_capacity(READ_LEN),
            done: Done::default(),
        })
    }

    /// Does everything, and returns when the last answer has come.
    pub(super) fn run(mut self, bar: &ProgressBar) -> Result<Done> {
        let start = Instant::now();
        let rate = self
            .plan
            .rate
            .map(|rate| rate as f64 / self.plan.threads as f64);
        let mut sent = 0;
        let mut shown = 0;
        if rate.is_none() {
            for index in 0..self.connections.len() {
                self.fill(index, start)?;
            }
        }
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        let mut heard = start;
        while self.left + self.out > 0 {
            let mut timeout = PATIENCE;
            if let Some(rate) = rate {
                let now = Instant::now();
                // A get of many counts as one request.
                while self.left > 0 && due(start, sent, rate) <= now {
                    let index = sent as usize % self.connections.len();
                    self.connections[index]
                        .waiting
                        .push_back(due(start, sent, rate));
                    sent += 1;
                    self.fill(index, now)?;
                }
                if self.left > 0 {
                    let ahead = due(start, sent, rate).saturating_duration_since(now);
                    timeout = if ahead < AWAKE {
                        Duration::ZERO
                    } else {
                        ahead.min(PATIENCE)
                    };
                }
            }
            self.wait(&mut events, timeout)?;
            let now = Instant::now();
            if !events.is_empty() {
                heard = now;
            } else if self.out > 0 && now - heard > PATIENCE {
                return Err(Error::new(Kind::Io, "the server does not answer")
                    .found("no answer for a minute", "one to each request"));
            }
            for event in &events {
                let (flags, index) = (event.flags, event.data.u64() as usize);
                if flags.contains(epoll::EventFlags::OUT) {
                    self.flush(index)?;
                }
                if flags.intersects(
                    epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR,
                ) {
                    while self.read(index)? {}
                    self.fill(index, Instant::now())?;
                }
            }
            let answered = self.done.latency.count();
            if answered >= shown + 10_000 {
                bar.inc((answered - shown) * self.plan.batch as u64);
                shown = answered;
            }
        }
        Ok(self.done)
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Duration) -> Result<()> {
        events.clear();
        let timeout = Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(events),
            Some(&timeout),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(no_wait(e)),
        }
    }

    /// Sends as many requests as there is room for on a connection, and are due.
    fn fill(&mut self, index: usize, now: Instant) -> Result<()> {
        let connection = &mut self.connections[index];
        let before = connection.output.len();
        while connection.asked.len() < self.plan.depth && self.left > 0 {
            let due = if self.plan.rate.is_some() {
                let Some(due) = connection.waiting.pop_front() else {
                    break;
                };
                due
            } else {
                now
            };
            let ask = match self.operation {
                Operation::Set => Ask::Set,
                Operation::Remove => Ask::Remove,
                Operation::Mix if self.choice.below(100) < self.plan.sets => Ask::Set,
                Operation::Get | Operation::Mix => Ask::Get,
            };
            let most = if ask == Ask::Get {
                self.plan.batch as u64
            } else {
                1
            };
            let count = most.min(self.left);
            let mut numbers = self.spare.pop().unwrap_or_default();
            self.numbers.draw(count as usize, &mut numbers);
            // There may be more requests than keys.
            let wrap = |number: &mut u64| *number %= self.plan.records;
            numbers.iter_mut().for_each(wrap);
            self.wire.request(ask, &numbers, &mut connection.output);
            connection.asked.push_back(Asked { ask, numbers, due });
            self.left -= count;
            self.out += count;
        }
        // What was there before waits for the system to take it.
        if connection.output.len() > before && before == 0 {
            self.flush(index)?;
        }
        Ok(())
    }

    fn flush(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        match connection.stream.write(&connection.output) {
            Ok(len) => {
                self.done.bytes += len as u64;
                connection.output.drain(..len);
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(Error::io("cannot send to the server", e)),
        }
        let full = !connection.output.is_empty() || connection.stream.held() > 0;
        if full != connection.full {
            connection.full = full;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, full);
            let data = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.stream, data, flags).map_err(no_wait)?;
        }
        Ok(())
    }

    /// Reads once, and takes every answer that is whole. Returns whether there may be more to read.
    fn read(&mut self, index: usize) -> Result<bool> {
        let connection = &mut self.connections[index];
        self.buffer.clear();
        let empty = match connection.stream.read(&mut self.buffer) {
            Ok((0, _)) => {
                return Err(Error::new(Kind::Io, "the server closed a connection")
                    .remedy("see its messages, and its limit of connections"));
            }
            Ok((_, empty)) => empty,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(e) => return Err(Error::io("cannot read from the server", e)),
        };
        let arrived = &self.buffer[..];
        self.done.bytes += arrived.len() as u64;
        let joined = !connection.input.is_empty();
        if joined {
            connection.input.extend_from_slice(arrived);
        }
        let input = if joined { &connection.input } else { arrived };
        let now = Instant::now();
        let mut at = 0;
        while at < input.len() {
            let Some(asked) = connection.asked.front() else {
                return Err(Error::new(Kind::Corrupted, "an answer without a request"));
            };
            let Some(answer) = self.wire.answer(asked.ask, &asked.numbers, &input[at..])? else {
                break;
            };
            at += answer.len;
            self.done.hits += answer.hits;
            self.done
                .latency
                .record(now.saturating_duration_since(asked.due));
            self.out -= asked.numbers.len() as u64;
            if let Some(asked) = connection.asked.pop_front() {
                self.spare.push(asked.numbers);
            }
        }
        if joined {
            connection.input.drain(..at);
        } else {
            connection.input.extend_from_slice(&arrived[at..]);
        }
        Ok(!empty)
    }
}
