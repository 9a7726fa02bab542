//! Objects: large values under 128-bit ids, on a file, a raw device, or two.
//!
//! One access to the device for each operation, and latency that stays flat:
//!
//! | operation | the device's data | the journal |
//! |---|---|---|
//! | put | one aligned write, forward in the open stride | 48 bytes, with the next sync or many at once |
//! | put of a small object | | one frame with the value; packs, later, many at once |
//! | get, of all or a part | one read, of the chunks that hold it | |
//! | head | | |
//! | remove, of one or a range | | one frame, no access |
//! | sync, or [`Durability::Power`] | one flush, shared by all who wait | |
//! | snapshot | | |
//!
//! What is longer than 2 MiB moves in pieces, in one run of accesses (`long`).
//!
//! ```text
//!   put:  id's turn -> room + sequence -> write the extent -> index -> (journal, batched)
//!                       |                   |                   `-> the old extent goes to limbo
//!                       |                   `-- certifies itself: id, sequence, length, checksums
//!                       `-- a new stride is told to the journal first
//!
//!   [superblock | control | journal: segments, images of leaves and lists, root | data: groups of extents ... ]
//! ```
//!
//! Promises:
//! 1. What can be reached is never written over: an update goes forward, and its old extent is free only after what freed
//!    it is durable (`limbo`).
//! 2. Every byte that is returned was verified: checksums are of the store, the place, the object, and the put.
//! 3. An acknowledged change survives the death of the process (`Process`), or loss of power (`Power`). One that was not is
//!    there whole or not at all.
//! 4. A put that fails leaves the old object. A removal finds room in a full store: it is kept for it.
//! 5. Damage costs what it hits: the rest is read, whatever cannot be read any more; what may have been newer is an error
//!    (`degraded`). A store whose journal is damaged is not changed before it was repaired.
//! 6. Nothing runs while no call is made but what was promised: an idle store does no I/O. Nothing is ever moved but small
//!    objects, at checkpoints (`small`).
//!
//! Invariants:
//! 1. One change of an object at a time (`turns`), so its sequences rise in the order of its changes.
//! 2. Everything with a sequence before the last `Settled` note is in the journal before that note, and every sync ends with
//!    one. So a recovery reads the journal, and scans the few strides behind.
//! 3. A change ends with the gate shared: the moment of a checkpoint is exact.
//! 4. Lock order: turn, gate, journal's batch, room, leaf.
//!
//! The ideas: extents that certify themselves are Haystack's needles; next-fit over emptied groups is what a log-structured file
//! system would do that never cleans; the exact index in memory over a journal is `CannyLS`'s.
//!
//! All objects as at one moment, while others change them: [`Snapshot`].
//!
//! It knows nothing of records and blocks. Requests with deadlines, many at once: `served`, by the order that `queue` gives.

pub mod id;
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
use crate::io::Storage;
use crate::io::counted::Counts;
use crate::keeper::{Bell, Keeper};
use crate::log::Log;
use crate::weave::{Mutex, RwLock};

use checkpoint::Checkpoint;
use checkpoint::images::CorrectedBits;
use checkpoint::root::UnderWay;
use index::{Entry, Index};
use journal::Batch;
use place::buffers::Buffers;
use place::long::Flights;
use place::space::Space;
use place::span::Span;
use recover::degraded::Flaws;
use write::commit::Commit;
use write::small::Packs;
use write::turns::Turns;

pub use crate::queue;
pub use care::check::{CheckReport, Finding};
pub use care::report::{Doubt, Doubted, Repaired};
pub use care::scrub::{Scrubbed, Step};
pub use id::ObjectId;
pub use place::extent;
pub use read::get::{Listed, Usage};
pub use read::reader::StoreReader;
pub use read::snapshot::Snapshot;
pub use read::value::Value;
pub use served::Served;
pub use times::{Times, Took};
pub use write::draft::Draft;
pub use write::put::Change;

/// What stands on storage: superblock, root, records of the journal. For tools and checks.
pub mod layout {
    pub use crate::object::checkpoint::root::{
        LEAF_SEED, LIST_SEED, Pack, ROOT_SEED, Root, UnderWay,
    };
    pub use crate::object::checkpoint::superblock::{
        DATA, ENGINE, SHIFTS, Super, decode_label, encode_label,
    };
    pub use crate::object::journal::record::Record;
    pub use crate::object::place::list::{decode_runs, encode_runs};
    pub use crate::object::place::space::Told;
    pub use crate::object::place::span::{Span, Stride};
}

/// How a store is made and opened. What was decided when it was made is not asked again.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says yes or no to a thing of its own"
)]
pub struct Options {
    /// When made: bytes of file, journal and data together; of a store on two places, of the data. A device is taken whole.
    pub capacity: u64,
    /// When made: bytes of the journal; `None`: a 64th of the capacity, at least 4 MiB. It has to hold 80 bytes an object,
    /// 90 below 4 MiB, 250 near the least, 144 KiB.
    pub journal_size: Option<u64>,
    /// When made: bytes of an allocation group, a power of two; `None`: a 16th of the capacity or less, 64 MiB at least and
    /// 1 GiB at most. No object is larger than a group.
    pub group_size: Option<u64>,
    /// When made: write all of the room once. Direct writes into room that a file system has merely set aside cost twice as
    /// much and more, the first time.
    pub fill: bool,
    /// When made: take a device that is not blank. What is on it is lost.
    pub overwrite: bool,
    /// What an acknowledged change survives.
    pub durability: Durability,
    /// Objects of so many bytes at most go to the journal first, and then into packs; 0: none. At most 64 KiB less 72 bytes.
    pub small_max: u64,
    /// Sync in the background so often.
    pub sync_interval: Option<Duration>,
    /// Sync with every so many changes and one: what a power cut loses at most.
    pub sync_every: Option<u64>,
    /// Past the page cache, where the file system allows it.
    pub direct: bool,
    /// Checkpoints by a thread of the store's own; otherwise by whoever changes something.
    pub background: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capacity: 1 << 30,
            journal_size: None,
            group_size: None,
            fill: false,
            overwrite: false,
            durability: Durability::Process,
            small_max: 2048,
            sync_interval: None,
            sync_every: None,
            direct: true,
            background: true,
        }
    }
}

/// A change that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its sequence: grows with every change of the store.
    pub sequence: u64,
    /// Whether there was such an object before.
    pub replaced: bool,
}

/// An open store. Threads share it.
#[derive(Debug)]
pub struct Store {
    core: Arc<Core>,
    keeper: Option<Keeper>,
}

/// Room and order: under one lock, so that a stride holds no sequence before its own.
#[derive(Debug)]
pub(crate) struct Room {
    space: Space,
    /// The next change's.
    sequence: u64,
    /// Puts that have room and have not ended, in order.
    under_way: std::collections::BTreeMap<u64, Span>,
    packs: Packs,
}

impl Room {
    fn next(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    /// Every put before it has ended.
    fn floor(&self) -> u64 {
        self.under_way
            .first_key_value()
            .map_or(self.sequence, |(first, _)| *first)
    }

    fn puts(&self) -> Vec<UnderWay> {
        let puts = self.under_way.iter();
        puts.map(|(&sequence, &span)| UnderWay { sequence, span })
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
    options: Options,
    counts: Arc<Counts>,
    times: times::Clocks,
    // Each with its own rules.
    index: Index,
    turns: Arc<Turns>,
    buffers: Arc<Buffers>,
    flights: Flights,
    commit: Commit,
    bell: Arc<Bell>,
    /// Shared by whatever ends a change; alone by the moment of a checkpoint or snapshot.
    gate: RwLock<()>,
    batch: Mutex<Batch>,
    room: Mutex<Room>,
    checkpoint: Mutex<Checkpoint>,
    /// What is known to be damaged; set by the opener.
    flaws: std::sync::OnceLock<Flaws>,
    /// Where an image of the checkpoint was read with a corrected bit.
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

    /// Bytes of room that is free for objects, in all; what is in limbo is free after the next sync.
    pub fn free(&self) -> u64 {
        self.core.room.lock().space.free() * extent::UNIT
    }

    /// Returns when every change that was acknowledged before survives loss of power. One flush of each device, shared with
    /// all who ask meanwhile.
    pub fn sync(&self) -> Result<()> {
        self.core.sync_told()
    }

    /// Makes a checkpoint now: the next open replays nothing. Costs a write of all changed leaves, and two syncs.
    pub fn checkpoint(&self) -> Result<()> {
        let made = self.core.make_checkpoint();
        made.map_err(|error| self.core.of_journal(error))
    }

    /// The longest value that fits, in bytes: 512 MiB, or what an allocation group holds, or an empty store.
    pub fn len_max(&self) -> u64 {
        self.core.len_max()
    }
}

impl Core {
    fn len_max(&self) -> u64 {
        let units = self.room.lock().space.units();
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
        let synced = self.commit.share(|| {
            // Whoever waited while another's sync failed asks no device for more.
            self.log.healthy()?;
            self.tell_before_flush()?;
            let begun = self.room.lock().space.begin_sync();
            let flushed = watch.device(|| self.flush_devices());
            flushed.inspect_err(|_| self.log.poison())?;
            self.room.lock().space.end_sync(begun)
        });
        self.times.sync.record(&watch);
        synced
    }

    /// Data first: what the journal says up to its mark is then true of it. A put that ends between the two flushes is not
    /// before the mark: recovery looks whether its extent is there.
    fn flush_devices(&self) -> Result<()> {
        self.log.sync_now_after(&|| match self.devices {
            2 => self.data.sync(),
            _ => Ok(()),
        })
    }

    #[cold]
    fn full(&self, whom: impl std::fmt::Display, units: u64) -> Error {
        let mut room = self.room.lock();
        let free = size(room.space.free() * extent::UNIT);
        let found = match room.space.fragments() {
            Ok((longest, _)) => {
                let longest = size(u64::from(longest) * extent::UNIT);
                format!("{free} free in all, {longest} of it in a row")
            }
            // A list that cannot be read has its own error, where it is needed.
            Err(_) => format!("{free} free in all"),
        };
        Error::new(Kind::Full, format!("no room for {whom} in one piece"))
            .at(self.data.path())
            .found(found, format!("{} in a row", size(units * extent::UNIT)))
            .remedy("remove objects, or grow the store")
    }
}
