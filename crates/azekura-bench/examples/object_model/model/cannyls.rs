//! What `CannyLS` asks of its disk, operation by operation, without its code.
//!
//! | on the disk | size |
//! |---|---|
//! | header, journal header | a block of 512 bytes each |
//! | ring of the journal | 1 % of the capacity; a record is 28 bytes, of a removal 21 |
//! | values | the rest, in blocks; a value, padding and two bytes |
//!
//! PUT writes the value where the smallest free place is that takes it, lowest first: behind all others in a new
//! store, and over its own old value when it is replaced. GET reads the whole place, DELETE touches no value. Journal
//! records stay in memory until `interval + 1` of them were appended; then they are written, and synced. The tool of
//! the published run asks every 100 us (plus what a sleep takes) whether an operation has ended.
//!
//! Left out, since none of it happens in the published run: collection of the journal (below half of the ring), the
//! joining of free neighbours, values in the journal. The processor's work is none.

use std::collections::{BTreeSet, HashMap};

use azekura::error::Result;
use azekura::io::sim::drive::{Command, Counts, Parameters};

use super::host::Host;
use super::{Pattern, call_ns};
use azekura::Durability;

const BLOCK: u64 = 512;
/// The capacity of the published run.
pub(crate) const CAPACITY: u64 = 2048 << 30;
/// Where the ring begins: behind the header and the ring's own.
const RING: u64 = 2 * BLOCK;
const PUT_RECORD: u64 = 28;
const DELETE_RECORD: u64 = 21;
/// The mark behind the newest record.
const END_OF_RECORDS: u64 = 5;
/// How often the tool looks: its fastest operation, which needs no disk, took 0.167 to 0.169 ms.
const TICK_NS: u64 = 167_000;

/// Objects that lie one behind the other, by key.
#[derive(Debug, Default)]
struct Filled {
    first: u64,
    count: u64,
    /// Blocks of each, and where the first begins.
    blocks: u64,
    start: u64,
}

/// `CannyLS` on a disk.
#[derive(Debug)]
pub(crate) struct Cannyls {
    host: Host,
    capacity: u64,
    tick_ns: u64,
    interval: u64,
    countdown: u64,
    /// Where in the ring the next record goes, and what of it is on the disk.
    tail: u64,
    written: u64,
    /// Where the space behind all values begins, in blocks of the value region.
    fresh: u64,
    /// Length and start of free places before that.
    holes: BTreeSet<(u64, u64)>,
    /// Objects that were laid out at once.
    filled: Filled,
    /// Start and blocks of those put or removed since.
    moved: HashMap<u64, Option<(u64, u64)>>,
}

impl Cannyls {
    /// An empty store of 2 TiB that syncs its journal after every `interval + 1` records.
    pub(crate) fn new(parameters: Parameters, interval: u64) -> Self {
        Self {
            host: Host::new(parameters),
            capacity: CAPACITY,
            tick_ns: TICK_NS,
            interval,
            countdown: interval,
            tail: 0,
            written: 0,
            fresh: 0,
            holes: BTreeSet::new(),
            filled: Filled::default(),
            moved: HashMap::new(),
        }
    }

    /// The same store with another capacity, and called directly: nobody polls, and the processor takes its part, as for
    /// azekura's own.
    #[must_use]
    pub(crate) fn direct(mut self, capacity: u64) -> Self {
        self.capacity = capacity;
        self.tick_ns = 0;
        self
    }

    /// The caller has its answer for what began at `start`.
    const fn answer(&mut self, start: u64, len: u64) {
        if self.tick_ns == 0 {
            self.host.pass(call_ns(len));
        }
        self.host.poll(start, self.tick_ns);
    }

    const fn blocks(len: u64) -> u64 {
        (len + 2).div_ceil(BLOCK)
    }

    /// Where the values begin, in bytes.
    const fn values(&self) -> u64 {
        (RING + (self.capacity - BLOCK) / 100).next_multiple_of(BLOCK)
    }

    fn place(&self, key: u64) -> Option<(u64, u64)> {
        let Filled {
            first,
            count,
            blocks,
            start,
        } = self.filled;
        let index = key.checked_sub(first).filter(|index| *index < count);
        let laid = || index.map(|index| (start + index * blocks, blocks));
        self.moved.get(&key).copied().unwrap_or_else(laid)
    }

    fn allocate(&mut self, blocks: u64) -> u64 {
        let Some(&(len, start)) = self.holes.range((blocks, 0)..).next() else {
            self.fresh += blocks;
            return self.fresh - blocks;
        };
        self.holes.remove(&(len, start));
        if len > blocks {
            self.holes.insert((len - blocks, start + blocks));
        }
        start
    }

    /// Appends a record. To sync a file that `grew` takes a write of the file system's own journal between two flushes.
    fn append(&mut self, record: u64, grew: bool) {
        self.tail += record;
        if self.countdown > 0 {
            self.countdown -= 1;
            return;
        }
        self.countdown = self.interval;
        let start = (RING + self.written) / BLOCK * BLOCK;
        let end = RING + self.tail + END_OF_RECORDS;
        self.host.wait(Command::Write, start, end - start);
        if grew {
            self.host.wait(Command::Flush, 0, 0);
            // The file system's own journal: in the middle of its space, a block further each time.
            let journal =
                self.host.parameters().capacity / 2 + self.tail % (1 << 30) / PUT_RECORD * 4096;
            self.host.wait(Command::Write, journal, 4096);
        }
        self.host.wait(Command::Flush, 0, 0);
        self.written = self.tail;
    }
}

impl Pattern for Cannyls {
    fn name(&self) -> &'static str {
        if self.interval == 0 {
            "cannyls(sync)"
        } else {
            "cannyls"
        }
    }

    fn survives(&self) -> Durability {
        // Of the buffered class even less: a crash forgets up to `interval` records.
        if self.interval == 0 {
            Durability::Power
        } else {
            Durability::Process
        }
    }

    fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    fn pass(&mut self, ns: u64) -> Result<()> {
        self.host.pass(ns);
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.host.counts()
    }

    fn fill(&mut self, first: u64, count: u64, len: u64) -> Result<()> {
        let blocks = Self::blocks(len);
        self.filled = Filled {
            first,
            count,
            blocks,
            start: self.fresh,
        };
        self.fresh += count * blocks;
        self.tail += count * PUT_RECORD;
        self.written = self.tail;
        Ok(())
    }

    fn put(&mut self, key: u64, len: u64) -> Result<()> {
        let start = self.host.now_ns();
        let grew = match self.place(key) {
            Some((old, blocks)) => {
                self.holes.insert((blocks, old));
                false
            }
            None => true,
        };
        let blocks = Self::blocks(len);
        let place = self.allocate(blocks);
        self.host.wait(
            Command::Write,
            self.values() + place * BLOCK,
            blocks * BLOCK,
        );
        self.append(PUT_RECORD, grew);
        self.moved.insert(key, Some((place, blocks)));
        self.answer(start, len);
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<()> {
        let (start, mut len) = (self.host.now_ns(), 0);
        if let Some((place, blocks)) = self.place(key) {
            let offset = self.values() + place * BLOCK;
            len = blocks * BLOCK;
            self.host.wait(Command::Read, offset, len);
        }
        self.answer(start, len);
        Ok(())
    }

    fn remove(&mut self, key: u64) -> Result<()> {
        let start = self.host.now_ns();
        if let Some((place, blocks)) = self.place(key) {
            self.append(DELETE_RECORD, false);
            self.holes.insert((blocks, place));
            self.moved.insert(key, None);
        }
        self.answer(start, 0);
        Ok(())
    }
}
