//! One spinning disk in virtual time: what it would take for a sequence of accesses, without a disk.
//!
//! ```text
//!   submit(arrival, command) -> waiting -- writes --> bus -> cache --idle or full, by the elevator--> platters
//!                                  `------ reads, shortest access first ----------------------------> platters
//!   next_completion() <- completions in order of time
//! ```
//!
//! 1. Time is a number of nanoseconds that only requests move; equal requests give equal times on every machine.
//! 2. Reads go before what waits in the cache, unless a write waits for room there: then they take turns.
//! 3. A flush waits for all that was submitted before it, and what comes later waits for it, as with SATA's.
//! 4. No request starves: one that waits longer than the drive's bound is served first, in order of arrival.
//!
//! A range wholly in the write cache is read from there; one partly there costs what the platters cost. A read that
//! continues where the last one ended is served by what the drive read ahead. It moves no bytes and knows no errors:
//! [`Clocked`] puts it below a storage, which may be [`Sparse`] where it is large.

mod cache;
mod clocked;
mod parameters;
mod sparse;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

use cache::Dirty;

pub use clocked::{Clocked, Machine};
pub use parameters::{Parameters, Seek, WriteCache};
pub use sparse::Sparse;

/// A command to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The bytes of a range.
    Read,
    /// Takes the bytes of a range.
    Write,
    /// Returns when all that was taken before survives loss of power; offset and length are ignored.
    Flush,
}

/// The identity of a request of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Completion {
    /// When, in nanoseconds.
    pub at: u64,
    /// Which.
    pub ticket: Ticket,
    /// When it came.
    pub arrival: u64,
}

/// How many commands a drive was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    ticket: Ticket,
    command: Command,
    offset: u64,
    len: u64,
    arrival: u64,
}

/// What happens next, and to which of the waiting.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Between host and cache.
    Bus(usize),
    /// Between host and platters.
    Platters,
    /// From cache to platters.
    Drain,
    /// The flush in front.
    Flush,
}

/// A drive.
#[derive(Clone, Debug)]
pub struct Drive {
    parameters: Parameters,
    /// Not begun, by arrival.
    waiting: VecDeque<Request>,
    /// Ended, not reported yet.
    done: BTreeSet<Completion>,
    /// When the last of all that was begun ends.
    ended: u64,
    /// The last time that was reported.
    reported: u64,
    /// When the last step began, and when the last flush ended: nothing of the host begins before.
    clock: u64,
    flushed_at: u64,
    tickets: u64,
    counts: Counts,
    dirty: Dirty,
    /// When the cache ceased to be empty.
    dirty_since: u64,
    /// Bytes on the way from the cache to the platters until `free_at`.
    draining: u64,
    head: u64,
    /// When the platters are free.
    free_at: u64,
    bus_free_at: u64,
    /// When `head` was passed, if the drive reads ahead from there.
    ahead: Option<u64>,
    /// Whether the platters served the host last, not the cache.
    served: bool,
}

impl Drive {
    /// A drive at rest, the arm at the outer edge, at time 0.
    pub fn new(parameters: Parameters) -> Self {
        Self {
            parameters,
            waiting: VecDeque::new(),
            done: BTreeSet::new(),
            ended: 0,
            reported: 0,
            clock: 0,
            flushed_at: 0,
            tickets: 0,
            counts: Counts::default(),
            dirty: Dirty::default(),
            dirty_since: 0,
            draining: 0,
            head: 0,
            free_at: 0,
            bus_free_at: 0,
            ahead: None,
            served: false,
        }
    }

    /// What it was made of.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Commands so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes in the write cache.
    pub const fn dirty_bytes(&self) -> u64 {
        self.dirty.bytes()
    }

    /// Gives the drive a request that comes at `arrival` nanoseconds (or, if that was reported already, at the last time
    /// that was reported), for `len` bytes at `offset`, widened to sectors.
    ///
    /// Panics if the range ends beyond the capacity.
    pub fn submit(&mut self, arrival: u64, command: Command, offset: u64, len: u64) -> Ticket {
        let sector = self.parameters.sector_size.max(1);
        let start = offset / sector * sector;
        let end = offset.saturating_add(len).next_multiple_of(sector);
        let (offset, len) = if command == Command::Flush {
            (0, 0)
        } else {
            (start, end - start)
        };
        assert!(
            offset + len <= self.parameters.capacity,
            "an access to {offset:#x}+{len:#x} of a drive of {:#x} bytes",
            self.parameters.capacity
        );
        match command {
            Command::Read => self.counts.reads += 1,
            Command::Write => self.counts.writes += 1,
            Command::Flush => self.counts.flushes += 1,
        }
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        let request = Request {
            ticket,
            command,
            offset,
            len,
            arrival: arrival.max(self.reported),
        };
        let place = self
            .waiting
            .partition_point(|other| other.arrival <= request.arrival);
        self.waiting.insert(place, request);
        ticket
    }

    /// The next completion, in order of time; `None` if all that was submitted has been reported. A caller with more
    /// in flight first submits what arrives before it.
    pub fn next_completion(&mut self) -> Option<Completion> {
        loop {
            let step = if self.waiting.is_empty() {
                None
            } else {
                self.step()
            };
            if let Some(first) = self.done.first().copied()
                && step.is_none_or(|(start, _)| first.at <= start)
            {
                self.done.remove(&first);
                self.reported = first.at;
                return Some(first);
            }
            let (start, step) = step?;
            self.clock = self.clock.max(start);
            match step {
                Step::Bus(index) => self.by_bus(start, index),
                Step::Platters => self.by_platters(start),
                Step::Drain => self.drain(start),
                Step::Flush => self.flush(start),
            }
        }
    }

    /// Submits one request and returns when it is done. For one request at a time: completions of others are dropped.
    pub fn run(&mut self, arrival: u64, command: Command, offset: u64, len: u64) -> u64 {
        let ticket = self.submit(arrival, command, offset, len);
        while let Some(done) = self.next_completion() {
            if done.ticket == ticket {
                return done.at;
            }
        }
        unreachable!("a request that was submitted ends");
    }

    /// How many requests the drive sees: those before the first flush, up to its depth.
    fn seen(&self) -> usize {
        let depth = self.parameters.depth.max(1);
        let before_flush = self.waiting.iter().take(depth);
        before_flush
            .take_while(|request| request.command != Command::Flush)
            .count()
    }

    /// The earliest a request may begin.
    fn begins(&self, request: &Request) -> u64 {
        request.arrival.max(self.clock).max(self.flushed_at)
    }

    /// When the drive has decoded the command.
    fn understood(&self, request: &Request) -> u64 {
        request.arrival.max(self.flushed_at) + self.parameters.command_ns
    }

    /// Whether a request is between host and cache only.
    fn is_cached(&self, request: &Request) -> bool {
        let Request { offset, len, .. } = *request;
        match request.command {
            Command::Read => len > 0 && self.dirty.overlap(offset, len) == len,
            Command::Write => len <= self.parameters.cache.bytes,
            Command::Flush => false,
        }
    }

    /// The step that begins first, and when.
    fn step(&self) -> Option<(u64, Step)> {
        let seen = self.seen();
        let mut bus: Option<(u64, Step)> = None;
        let mut ready: Option<u64> = None;
        let mut blocked = false;
        let mut written = false;
        for (index, request) in self.waiting.iter().take(seen).enumerate() {
            if !self.is_cached(request) {
                let at = self.understood(request).max(self.clock);
                ready = Some(ready.map_or(at, |ready| ready.min(at)));
                continue;
            }
            let start = if request.command == Command::Read {
                Some(self.begins(request).max(self.bus_free_at))
            } else if written {
                None
            } else {
                written = true;
                let start = self.room_at(request);
                blocked = start.is_none();
                start
            };
            if let Some(start) = start
                && bus.is_none_or(|(first, _)| start < first)
            {
                bus = Some((start, Step::Bus(index)));
            }
        }
        let platters = ready.map(|ready| (ready.max(self.free_at), Step::Platters));
        let drain =
            (self.dirty.bytes() > 0).then(|| (self.free_at.max(self.dirty_since), Step::Drain));
        let volatile = self.parameters.cache.volatile;
        let flush = self.waiting.front().filter(|first| {
            first.command == Command::Flush && !(volatile && self.dirty.bytes() > 0)
        });
        let flush = flush.map(|first| (first.arrival.max(self.ended), Step::Flush));
        let steps = if blocked && self.served {
            [bus, drain, platters, flush]
        } else {
            [bus, platters, drain, flush]
        };
        // Of equal times the first of the list.
        steps.into_iter().flatten().min_by_key(|(start, _)| *start)
    }

    /// When a write fits into the cache; `None` if more must be drained first.
    fn room_at(&self, request: &Request) -> Option<u64> {
        let new = request.len - self.dirty.overlap(request.offset, request.len);
        let needed = self.dirty.bytes() + new;
        let start = self.begins(request).max(self.bus_free_at);
        let room = self.parameters.cache.bytes;
        if needed + self.draining <= room || (needed <= room && self.free_at <= start) {
            Some(start)
        } else if needed <= room {
            Some(self.free_at)
        } else {
            None
        }
    }

    fn end(&mut self, request: &Request, at: u64) {
        self.ended = self.ended.max(at);
        self.done.insert(Completion {
            at,
            ticket: request.ticket,
            arrival: request.arrival,
        });
    }

    fn by_bus(&mut self, start: u64, index: usize) {
        let Some(request) = self.waiting.remove(index) else {
            return;
        };
        let moved = Parameters::time_at(request.len, self.parameters.bus_rate);
        let at = start + self.parameters.command_ns + moved;
        self.bus_free_at = at;
        if request.command == Command::Write && request.len > 0 {
            if self.dirty.bytes() == 0 {
                self.dirty_since = at;
            }
            self.dirty.insert(request.offset, request.len);
        }
        self.end(&request, at);
    }

    /// How long until the head is over a place, from `start` on.
    fn position_ns(&self, start: u64, offset: u64) -> u64 {
        if offset == self.head && start == self.free_at {
            return 0;
        }
        self.parameters.access_ns(start, self.head, offset)
    }

    /// Of what may begin at `start`: what has waited too long, else what is nearest in time.
    fn choose(&self, start: u64) -> Option<usize> {
        let seen = self.waiting.iter().take(self.seen()).enumerate();
        let may = seen
            .filter(|(_, request)| self.understood(request) <= start && !self.is_cached(request));
        let mut best: Option<(u64, usize)> = None;
        for (index, request) in may {
            if start - request.arrival > self.parameters.age_max_ns {
                return Some(index);
            }
            let streamed = self.ahead.is_some() && request.offset == self.head;
            let takes = if streamed {
                0
            } else {
                self.position_ns(start, request.offset)
            };
            if best.is_none_or(|(least, _)| takes < least) {
                best = Some((takes, index));
            }
        }
        best.map(|(_, index)| index)
    }

    fn by_platters(&mut self, start: u64) {
        let Some(request) = self
            .choose(start)
            .and_then(|index| self.waiting.remove(index))
        else {
            return;
        };
        let Request { offset, len, .. } = request;
        let reads = request.command == Command::Read;
        let moved = self.parameters.transfer_ns(offset, len, !reads);
        let by_bus = start + Parameters::time_at(len, self.parameters.bus_rate);
        let at = if let Some(passed) = self.ahead.filter(|_| reads && offset == self.head) {
            let at = by_bus.max(passed + moved);
            // It stops when its buffer is full; to start again is hidden by what is in it.
            let most = self
                .parameters
                .transfer_ns(offset, self.parameters.ahead_bytes, false);
            self.ahead = Some((passed + moved).max(at.saturating_sub(most)));
            at
        } else {
            let at = (start + self.position_ns(start, offset) + moved).max(by_bus);
            self.ahead = (reads && self.parameters.ahead_bytes > 0).then_some(at);
            at
        };
        if !reads {
            self.dirty.cut(offset, len);
        }
        self.draining = 0;
        self.head = offset + len;
        self.free_at = at;
        self.served = true;
        self.end(&request, at);
    }

    fn drain(&mut self, start: u64) {
        // Of the next of the sweep the one that is under the head first.
        let sweep = self.dirty.ahead(self.head, self.parameters.depth.max(1));
        let next = sweep.min_by_key(|offset| self.position_ns(start, *offset));
        let Some(offset) = next else { return };
        let position = self.position_ns(start, offset);
        let len = self.dirty.take(offset);
        self.free_at = start + position + self.parameters.transfer_ns(offset, len, true);
        self.head = offset + len;
        self.draining = len;
        self.ahead = None;
        self.served = false;
    }

    fn flush(&mut self, start: u64) {
        let Some(request) = self.waiting.pop_front() else {
            return;
        };
        let ready = start + self.parameters.command_ns;
        let drained = if self.parameters.cache.volatile && self.draining > 0 {
            self.free_at
        } else {
            0
        };
        self.flushed_at = ready.max(drained) + self.parameters.flush_ns;
        self.end(&request, self.flushed_at);
    }
}
