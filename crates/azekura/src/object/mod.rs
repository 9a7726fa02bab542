//! Objects: large values under 128-bit ids, on a file, a raw device, or two.
//!
//! Each operation takes one access to the device, so latency stays flat:
//!
//! | operation | data device | journal |
//! |---|---|---|
//! | put | one aligned write, forward in the open allocation extent | 48 bytes, batched, at the latest with the next sync |
//! | put of a small object | none; later, many at once into a packed extent | one frame with the value |
//! | get, of all or a part | one read, of the chunks that hold it | none |
//! | head | none | none |
//! | remove, of one or a range | none | one frame |
//! | sync, or [`Durability::Power`] | one flush, shared by all threads that wait for one | the same |
//! | snapshot | none | none |
//!
//! A value longer than 2 MiB moves in pieces, as one run of accesses (`place::long`).
//!
//! ```text
//!   put:  lock the id -> reserve space + sequence -> write the extent -> index -> (journal, batched)
//!                          |                           |                  `-> the old extent enters limbo
//!                          |                           `-- certifies itself: id, sequence, length, checksums
//!                          `-- a new allocation extent is recorded in the journal first
//!
//!   [superblock | control | journal: segments, images of leaves and lists, root | data: groups of extents ... ]
//! ```
//!
//! Promises:
//! 1. Reachable bytes are never overwritten: an update writes forward, and its old extent is free only after the record that frees
//!    it is durable (`place::limbo`).
//! 2. Every byte that is returned was verified: checksums cover the store, the place, the object, and the put.
//! 3. An acknowledged change survives a crash of the process (`Process`), or loss of power (`Power`). A change that was not
//!    acknowledged is present as a whole or not at all.
//! 4. A put that fails leaves the old object. A removal succeeds in a full store: space in the journal is reserved for it.
//! 5. Damage costs only what it hits: everything else stays readable; where a newer value may be lost, reading is an error
//!    (`recover::degraded`). A store with a damaged journal refuses changes until it was repaired.
//! 6. An idle store does no I/O, except for syncs at the interval that was asked for. Only small objects are ever moved, at
//!    checkpoints (`write::small`).
//!
//! Invariants:
//! 1. One change of an object at a time (`write::locks`), so its sequences rise in the order of its changes.
//! 2. Every put with a sequence below the last `LowWater` record is recorded in the journal before that record, and every sync
//!    ends with one. So recovery reads the journal, and scans only the few allocation extents after it.
//! 3. A change ends with the gate shared: the moment of a checkpoint is exact.
//! 4. Lock order: object locks, gate, batch, allocator, leaf.
//!
//! Extents that certify themselves are Haystack's needles; next-fit over emptied groups is what a log-structured file system does
//! that never cleans; the exact index in memory over a journal is `CannyLS`'s.
//!
//! [`Snapshot`] reads all objects as of one moment, while others change them. `served` takes many requests with deadlines at once,
//! in the order that the crate's `queue` gives. Nothing here knows records or blocks.

pub mod id;
#[doc(hidden)]
pub mod index;
pub mod served;

mod care;
mod checkpoint;
mod journal;
mod place;
mod read;
mod recover;
mod stats;
mod times;
mod write;

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Durability;
use crate::error::{Error, Kind, Result, size};
use crate::explore::{Mutex, RwLock};
use crate::io::Storage;
use crate::io::counted::Counts;
use crate::kernel::Handle;
use crate::log::Log;
use crate::worker::Notify;

use checkpoint::Checkpoint;
use checkpoint::images::CorrectedBits;
use checkpoint::root::PutInProgress;
use index::{Entry, Index};
use journal::Batch;
use place::buffers::Buffers;
use place::long::Flights;
use place::space::Space;
use place::span::Span;
use recover::degraded::Flaws;
use write::locks::ObjectLocks;
use write::small::PackedExtents;

#[doc(hidden)]
pub use crate::queue;
pub use care::check::{CheckReport, Finding};
pub use care::report::{Doubt, Doubted, Repaired};
pub use care::scrub::{Scrubbed, Step};
pub use id::ObjectId;
#[doc(hidden)]
pub use place::extent;
pub use read::list::{List, Listed, Usage};
pub use read::reader::StoreReader;
pub use read::snapshot::Snapshot;
pub use read::value::Value;
pub use served::Served;
pub use stats::Stats;
pub use times::{Times, Took};
pub use write::draft::Draft;
pub use write::put::Change;

/// The formats on storage, for tools and checks: superblock, root, records of the journal.
#[doc(hidden)]
pub mod layout {
    pub use crate::object::checkpoint::root::{
        LEAF_SEED, LIST_SEED, PackedExtent, PutInProgress, ROOT_SEED, Root,
    };
    pub use crate::object::checkpoint::superblock::{
        DATA, ENGINE, SHIFTS, Super, decode_label, encode_label,
    };
    pub use crate::object::journal::record::Record;
    pub use crate::object::place::list::{decode_runs, encode_runs};
    pub use crate::object::place::space::GroupState;
    pub use crate::object::place::span::{AllocationExtent, Span};
}

/// How a store is created. Only `opening` can be chosen anew when it is opened again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CreateOptions {
    /// Bytes of the file, journal and data together; of a store on two places, of the data. A device is used whole. 1 GiB.
    pub capacity: u64,
    /// Bytes of the journal; `None`: a 64th of the capacity, at least 4 MiB. It needs 80 bytes for each object, 90 below 4 MiB, 250
    /// near the least, 144 KiB. None.
    pub journal_size: Option<u64>,
    /// Bytes of an allocation group, a power of two; `None`: a 16th of the capacity or less, 64 MiB at least and 1 GiB at most. No
    /// object is larger than a group. None.
    pub group_size: Option<u64>,
    /// Whether the whole data area is written once. The first direct write into space that a file system only preallocated costs
    /// twice as much, or more. False.
    pub fill: bool,
    /// Whether a device is used that is not blank. Its contents are lost. False.
    pub overwrite: bool,
    /// How the new store is opened.
    pub opening: OpenOptions,
}

/// How a store is opened; no property of the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Durability of an acknowledged change. `Process`.
    pub durability: Durability,
    /// Objects of at most this many bytes go to the journal first, and then into packed extents; 0: none. At most 64 KiB less 72
    /// bytes, and half a segment of the journal (a 64th of it, of 4 KiB to 1 MiB) less 64 bytes. 2 KiB.
    pub small_max: u64,
    /// Interval of background syncs. None.
    pub sync_interval: Option<Duration>,
    /// Number of unsynced changes after which the next one syncs: the most that loss of power can lose. None.
    pub sync_every: Option<u64>,
    /// Whether the page cache is bypassed, where the file system allows it. True.
    pub direct: bool,
    /// Checkpoints and the interval's syncs by a background worker; otherwise checkpoints by the thread that changes something. True.
    pub background: bool,
}

setters! {
    OpenOptions {
        durability: Durability,
        small_max: u64,
        sync_interval: impl Into<Option<Duration>>,
        sync_every: impl Into<Option<u64>>,
        direct: bool,
        background: bool,
    }
    CreateOptions {
        capacity: u64,
        journal_size: impl Into<Option<u64>>,
        group_size: impl Into<Option<u64>>,
        fill: bool,
        overwrite: bool,
        opening: OpenOptions,
    }
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            capacity: 1 << 30,
            journal_size: None,
            group_size: None,
            fill: false,
            overwrite: false,
            opening: OpenOptions::default(),
        }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Process,
            small_max: 2048,
            sync_interval: None,
            sync_every: None,
            direct: true,
            background: true,
        }
    }
}

/// Result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its sequence: grows with every change of the store.
    pub sequence: u64,
    /// Whether the object existed before.
    pub replaced: bool,
}

/// An open store. Threads share it.
///
/// Every verb that changes objects has two forms: the plain one with the durability that the store was opened with, and one with the
/// ending `_with` that takes a [`Durability`] of its own as its last argument.
#[derive(Debug)]
pub struct Store {
    core: Handle<Core>,
}

/// Free space and the order of changes, under one lock, so that an allocation extent holds no sequence below its own.
#[derive(Debug)]
pub(crate) struct Allocator {
    space: Space,
    /// Sequence of the next change.
    sequence: u64,
    /// Puts that have reserved space and have not ended, by sequence.
    in_progress: std::collections::BTreeMap<u64, Span>,
    packed_extents: PackedExtents,
}

impl Allocator {
    fn next(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    /// The low-water mark: every put with a smaller sequence has ended.
    fn low_water(&self) -> u64 {
        self.in_progress
            .first_key_value()
            .map_or(self.sequence, |(first, _)| *first)
    }

    fn puts(&self) -> Vec<PutInProgress> {
        let puts = self.in_progress.iter();
        puts.map(|(&sequence, &span)| PutInProgress { sequence, span })
            .collect()
    }
}

pub(crate) struct Core {
    // Set by the opener.
    log: Log,
    data: Arc<dyn Storage>,
    salt: u32,
    data_offset: u64,
    group_units: u32,
    devices: u8,
    options: OpenOptions,
    counts: Arc<Counts>,
    times: times::Clocks,
    // Each has a lock of its own; the module's text has their order.
    index: Index,
    locks: Arc<ObjectLocks>,
    buffers: Arc<Buffers>,
    flights: Flights,
    notify: Arc<Notify>,
    /// Held shared where a change ends, exclusively at the moment of a checkpoint or snapshot.
    gate: RwLock<()>,
    batch: Mutex<Batch>,
    allocator: Mutex<Allocator>,
    checkpoint: Mutex<Checkpoint>,
    /// Known damage; set by the opener.
    flaws: std::sync::OnceLock<Flaws>,
    /// Images of the checkpoint that were read with a corrected bit.
    corrected: Arc<CorrectedBits>,
    /// Changes since the last sync; relaxed: a bound, not an order.
    unsynced: std::sync::atomic::AtomicU64,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("path", &self.data.path())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// How many objects there are.
    pub fn count(&self) -> u64 {
        self.core.index.count()
    }

    /// Bytes that are free for objects; bytes in limbo are free after the next sync.
    pub fn free(&self) -> u64 {
        self.core.allocator.lock().space.free() * extent::UNIT
    }

    /// Returns when every change that was acknowledged before the call survives loss of power. One flush of each device, shared
    /// with all threads that call it meanwhile.
    pub fn sync(&self) -> Result<()> {
        self.core.sync_all()
    }

    /// Makes a checkpoint now, so that the next open replays nothing. Costs a write of all changed leaves, and two syncs.
    pub fn checkpoint(&self) -> Result<()> {
        let made = self.core.make_checkpoint();
        made.map_err(|error| self.core.of_journal(error))
    }

    /// Longest value in bytes: 512 MiB, or what an allocation group or an empty store holds, if that is less.
    pub fn len_max(&self) -> u64 {
        self.core.len_max()
    }
}

impl Core {
    fn len_max(&self) -> u64 {
        let units = self.allocator.lock().space.units();
        // Each chunk has a header or a trailer of less than 128 bytes.
        let group = units.min(u64::from(self.group_units)) * extent::UNIT;
        let chunks = group / extent::CHUNK as u64 + 1;
        (group - group.min(chunks * 8 + 64)).min(extent::LEN_MAX)
    }

    /// The units of an object's own extent.
    fn span_of(entry: Entry) -> Span {
        Span {
            unit: entry.place * extent::PIECE / extent::UNIT,
            units: extent::units(u64::from(entry.len)) as u32,
        }
    }

    fn offset_of(&self, span: Span) -> u64 {
        self.data_offset + span.unit * extent::UNIT
    }

    /// As [`Store::sync`].
    fn sync(&self) -> Result<()> {
        self.log.healthy()?;
        self.unsynced.store(0, std::sync::atomic::Ordering::Relaxed);
        let mut watch = times::Watch::start();
        let synced = self.log.sync_now_by(|| {
            self.flush_batch_before_sync()?;
            let begun = self.allocator.lock().space.begin_sync();
            watch.device(|| self.flush())?;
            self.allocator.lock().space.end_sync(begun)
        });
        self.times.sync.record(&watch);
        synced
    }

    /// Makes durable everything that was written, for a caller that has nothing to append before.
    fn flush_devices(&self) -> Result<()> {
        self.log.sync_alone(|| self.flush())
    }

    /// Flushes the data first, so that every record before the durable mark is true of the data. A put that ends between the two
    /// flushes is not before the mark: recovery checks whether its extent is there.
    fn flush(&self) -> Result<()> {
        self.log.flush(&|| match self.devices {
            2 => self.data.sync(),
            _ => Ok(()),
        })
    }

    #[cold]
    fn full(&self, whom: impl std::fmt::Display, units: u64) -> Error {
        let mut allocator = self.allocator.lock();
        let free = size(allocator.space.free() * extent::UNIT);
        let found = match allocator.space.fragments() {
            Ok((longest, _)) => {
                let longest = size(u64::from(longest) * extent::UNIT);
                format!("{free} free, longest run {longest}")
            }
            // A list that cannot be read is reported where it is needed.
            Err(_) => format!("{free} free"),
        };
        Error::new(Kind::Full, format!("no contiguous space for {whom}"))
            .at(self.data.path())
            .found(found, format!("{} contiguous", size(units * extent::UNIT)))
            .remedy("remove objects, or grow the store")
    }
}
