//! The file hash: a log of records, and an index in memory that is checkpointed to the same file.
//!
//! ```text
//!   put    hash key -> lock bucket -> append frame to the log -> entry = its address -> unlock
//!   get    hash key -> bucket -> address -> frame: verify, compare key, lend value
//!
//!   file   | superblock x 2 | mark | segment | segment | segment | ...
//!             |                        log       log      images of index partitions, root
//!             `-- where replay begins, where the root is
//! ```
//!
//! What it promises:
//!
//! 1. An acknowledged write survives the death of the process (`Durability::Process`), and after a
//!    `sync(Power)` or with `OpenOptions::durability` the loss of power. A power cut leaves a prefix of the history,
//!    with everything synced in it; `update_many` and `clear` are in it whole or not at all.
//! 2. Reads take no lock and store to no shared line; they see the newest value that was stored before they
//!    began, or a newer one. Every record is verified against its checksum whenever it is read.
//! 3. Opening reads the log after the last checkpoint, nothing else; partitions of the index are loaded when
//!    they are first needed, and in the background.
//! 4. The log takes at most `space_ratio` times the live bytes, and what one interval between checkpoints adds
//!    (as much as is live, but 16 to 128 segments; or 4 bytes per record), unless records were removed. Where writers
//!    outrun the background worker, it takes twice the first and one interval at most, and they clean: `clean`.
//!    An open file holds 6 more segments ready, and a reserve: what a checkpoint may take and a quarter of it, three steps
//!    of a 128th of the file each (2 to 16 segments), and a sixteenth of the file less what is dead (`log::segment`).
//! 5. A full device or capacity refuses new records (`Full`) and nothing else: removals, shorter values, `clear`,
//!    `compact` and checkpoints continue in the reserve, and what they free is used: `emergency`. A file that is closed
//!    keeps its reserve if it was full, and has none if the device was filled by others meanwhile.
//!
//! 6. Damage costs what is damaged: a file with damage opens, `damage()` states where it is and what it may affect, and all
//!    other records are read. No read returns a value older than the newest acknowledged one, nor absence, where damage
//!    may be the reason: it is an error. Writes are accepted where that is safe, else they are refused: `recover` decides, and of a
//!    damaged root of the checkpoint `lost_root`. Only damage of both superblock slots keeps a file from being opened.
//!
//! State of a handle: *open* -> (a write or sync fails) -> *poisoned*: reads continue, writes are refused, a
//! new open recovers. Or it was opened *read-only* because of damage. Costs in storage accesses when nothing is cached: `get` 1, absent 0, `put` 0 and one
//! write shared with its neighbours, `remove` 1 (to verify the record).
//!
//! Lock order: cleaning, checkpoint, gate, then the index's, then the log's. No lock is held while a user's closure
//! runs but the buckets of its keys, and cleaning's where it is called with progress. Ideas: Bitcask (log and hash in memory), FASTER (tagged buckets
//! of a cache line), LFS (segments and cleaning).

mod background;
mod check;
mod checkpoint;
mod clean;
mod compact;
mod copy;
mod emergency;
#[doc(hidden)]
pub mod image;
#[doc(hidden)]
pub mod layout;
mod lost_root;
mod mark;
mod open;
mod read;
mod reader;
mod recover;
mod repair;
mod report;
mod salvage;
mod update;
mod value;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use rapidhash::v3::RapidSecrets;

use crate::counter::Counter;
use crate::damage::Damage;
use crate::engine::{
    Bookmark, CheckReport, Damaged, DecideMany, Durability, Edit, Engine, Persistent, Promise,
    Reader, Stats, Visit,
};
use crate::error::Result;
use crate::explore::Mutex;
use crate::format::frame::Frame;
use crate::format::superblock;
use crate::index::Index;
use crate::index::hash::Hash;
use crate::kernel::Handle;
use crate::log::{End, Log, Segment, Use};
use crate::record::gate::{self, Gate};
use crate::record::scan;
use crate::worker::Notify;

use recover::Known;

#[doc(inline)]
pub use crate::log::{LogPosition, Retention};
pub use crate::record::compression::Compression;
pub use reader::HashReader;
pub use repair::{repair, repair_storage};
pub use report::{Doubt, Doubted, RepairReport};

/// Longest key.
pub const KEY_LEN_MAX: u64 = (8 << 20) - 1;
/// Longest value.
pub const VALUE_LEN_MAX: u64 = (2 << 30) - 1;

/// How a hash file is created. The defaults fit a file of any size. Only `opening` can be chosen anew when it is opened again.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CreateOptions {
    /// Bytes of a segment: a power of two from 4 KiB to 64 MiB; 0: the largest to 1 MiB of which the capacity, and the room that
    /// the device has left, hold 512, but 16 KiB at least where a store of these fits. 0.
    pub segment_size: u64,
    /// How values are stored. None.
    pub compression: Compression,
    /// How the new file is opened.
    pub opening: OpenOptions,
}

/// How a hash file is opened; no property of the file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// How many times the live bytes the log may take, at least 1.1. Less costs copies: overwriting at
    /// random, about one byte for each byte written at 1.3, half of one at 1.5, a fifth at 2.0. 1.6.
    pub space_ratio: f64,
    /// What every acknowledged write survives without a further call. `Process`.
    pub durability: Durability,
    /// Whether syncs are frequent: then the file is mapped by plain pages. The system writes whole pages, so where
    /// the file system has huge ones, a sync after one small put writes 2 MiB; a lookup costs a walk of page tables
    /// instead. False; as good as true if `durability` is `Power`.
    pub syncs_often: bool,
    /// If set, everything is synced to survive loss of power this often, in the background; more than zero. None.
    pub sync_interval: Option<Duration>,
    /// Whether a background worker cleans, checkpoints and allocates ahead. Without it, writers do what must be done,
    /// and `maintain` the rest. True.
    pub background: bool,
    /// How large the file may become; only addresses are reserved. `HashDb::least_capacity` at least. A file that is
    /// larger already, or nearly, is full from the start, and may exceed it by what a full store keeps free, lest removals be
    /// refused. 1 TiB.
    pub capacity: u64,
    /// Whether records of a damaged file may be read of which a newer version may be lost. Without it, reading one
    /// is an error; so is reading a record that seems absent. `damage()` states what is damaged. False.
    pub reads_doubtful: bool,
    /// Whether the log is kept for followers that are still to come, from before the first step of background work on. What
    /// is kept counts as needed, also in a full store. None.
    pub retention: Option<Retention>,
}

setters! {
    OpenOptions {
        space_ratio: f64,
        durability: Durability,
        syncs_often: bool,
        sync_interval: impl Into<Option<Duration>>,
        background: bool,
        capacity: u64,
        reads_doubtful: bool,
        retention: impl Into<Option<Retention>>,
    }
    CreateOptions {
        segment_size: u64,
        compression: Compression,
        opening: OpenOptions,
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            space_ratio: 1.6,
            durability: Durability::Process,
            syncs_often: false,
            sync_interval: None,
            background: true,
            capacity: 1 << 40,
            reads_doubtful: false,
            retention: None,
        }
    }
}

/// An open hash file. See the module's text.
pub struct HashDb {
    core: Handle<Core>,
}

/// What the threads of a process share of an open file.
struct Core {
    // Set by the opener.
    log: Arc<Log>,
    index: Index,
    options: OpenOptions,
    secrets: RapidSecrets,
    compression: Compression,
    /// Values shorter than this are stored as they are.
    plain_below: usize,
    epoch: u32,
    /// Lets updates pass; closed for moments in which none may be under way.
    gate: Gate,
    /// Records present.
    count: Counter,
    /// An estimate of the length of frames that are read: how much of each a group of reads prefetches. A wrong one costs a
    /// miss.
    frame_len: AtomicUsize,
    /// Under its lock: the last checkpoint.
    checkpoint: Mutex<checkpoint::Checkpoint>,
    /// When `Log::appended` reaches this, the background worker is woken. Relaxed: a late wake is harmless.
    wake_at: AtomicU64,
    notify: Arc<Notify>,
    /// One thread cleans at a time.
    cleaning: Mutex<clean::Pace>,
    /// Where replay would begin; segments before may be cleaned.
    replay_from: Mutex<End>,
    /// The state after the last emergency cleaning.
    last_emergency: Mutex<emergency::Left>,
    /// Of the last checkpoint, what the next one's need is computed from.
    previous: Mutex<checkpoint::Previous>,
    /// Live bytes, or more if they were removed lately: see `clean`. Relaxed: a bound on waiting.
    recent_live: AtomicU64,
    /// How often updates tried emergency cleaning. Relaxed: a count.
    emergency_attempts: AtomicUsize,
    /// Segments in which a frame that should be live is damaged: never cleaned, so never lost.
    suspect: Mutex<Vec<u32>>,
    /// The last mark; empty: there is none. Held while one is appended, so that the last one is the log's last.
    mark: Mutex<Vec<u8>>,
    /// What is known to be damaged.
    known: Arc<Known>,
    /// Whether each read has to ask if its record is in doubt.
    asks_doubt: bool,
}

impl Core {
    #[inline(always)]
    fn hash(&self, key: &[u8]) -> Hash {
        Hash::of_key(key, &self.secrets)
    }

    fn count(&self) -> u64 {
        self.count.sum()
    }

    /// Bytes of log segments in use, and of them those that cleaning does not give back: live ones, and those after the
    /// last frame of a segment.
    fn log_load(&self) -> (u64, u64) {
        let segments = self.log.segments().in_use(Use::Log);
        let wasted: u64 = segments.iter().map(|s| s.waste).sum();
        let (used, live) = self.bytes_of(&segments);
        (used, (live + wasted).min(used))
    }

    /// Bytes of log segments in use, and of them those known to be live.
    fn log_bytes(&self) -> (u64, u64) {
        self.bytes_of(&self.log.segments().in_use(Use::Log))
    }

    fn bytes_of(&self, segments: &[Segment]) -> (u64, u64) {
        let geometry = self.log.geometry();
        let used: u64 = segments
            .iter()
            .map(|s| u64::from(s.units) << geometry.shift)
            .sum();
        let dead: u64 = segments.iter().map(|s| s.dead).sum();
        let unused = match self.log.end().offset() {
            Some(offset) => geometry.segment_size().saturating_sub(offset.into()),
            None => 0,
        };
        (used, used.saturating_sub(dead).saturating_sub(unused))
    }
}

impl HashDb {
    /// The value of `key`, copied.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.core.read(key, |value| value.map(<[u8]>::to_vec))
    }

    /// Lends the value of `key`, or its absence, to `visit`: no copy, no lock.
    #[inline]
    pub fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        self.core.read(key, visit)
    }

    /// Sets the value of `key`.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.core.put(key, value)
    }

    /// Removes `key`; whether it was there.
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.core.remove(key)
    }

    /// Removes each of `keys`, overlapping their memory accesses; how many were there.
    pub fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        self.core.remove_many(keys)
    }

    /// Writes the changed parts of the index, so that the next open reads only the log from here on. `Invalid` inside
    /// the closure of another store's update.
    pub fn checkpoint(&self) -> Result<()> {
        gate::outside_updates()?;
        self.core.checkpoint()
    }

    /// One bounded step of background work: checkpoint, clean, allocate. `Invalid` as for
    /// [`checkpoint`](Self::checkpoint).
    pub fn maintain(&self) -> Result<()> {
        gate::outside_updates()?;
        self.core.maintain()
    }

    /// Gives space back: cleans every segment that holds dead bytes, moves what lies at the file's end
    /// forward, and cuts the file. Readers and writers continue, but for those that need space of a full store; `progress` is
    /// called with (done, total), and does not update this store. `Invalid` as for [`checkpoint`](Self::checkpoint).
    pub fn compact(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        gate::outside_updates()?;
        self.core.compact(progress)
    }

    /// What is known to be damaged; empty if nothing is. [`Affects`](crate::damage::Affects) states which reads are errors because of it.
    pub fn damage(&self) -> Vec<Damage> {
        let mut damage = self.core.known.list();
        damage.extend(self.core.log.unreadable());
        damage
    }

    /// Where the log ends: follow it from here to see every later change.
    pub fn position(&self) -> LogPosition {
        self.core.log.end().position()
    }

    /// Keeps the log for followers that are still to come, from now on as this states (`OpenOptions::retention`).
    pub fn retain(&self, retention: Option<Retention>) {
        self.core.log.retain(retention);
    }

    /// The log, to follow it (`log::follow`) or to look at its figures.
    pub fn log(&self) -> &Log {
        &self.core.log
    }

    /// The value of a frame that a follower of the log was shown, decompressed if it is stored compressed.
    pub fn value_of<'f>(&self, frame: &Frame<'f>) -> Result<Cow<'f, [u8]>> {
        value::decode(self.core.compression, frame)
    }

    /// Properties of the file, by name, in a fixed order.
    pub fn inspect(&self) -> Vec<(&'static str, String)> {
        let core = &*self.core;
        let (_, live) = core.log_bytes();
        let sizes = core.log.segments().sizes();
        let storage = core.log.storage();
        let allocated = storage.allocated().unwrap_or(0);
        let segment_size = core.log.geometry().segment_size();
        let replay_from = core.replay_from.lock().position();
        vec![
            ("path", storage.path().display().to_string()),
            ("engine", "hash".into()),
            ("format_version", superblock::VERSION.to_string()),
            ("count", core.count().to_string()),
            ("file_bytes", storage.size().unwrap_or(0).to_string()),
            ("allocated_bytes", allocated.to_string()),
            ("log_bytes", sizes.log.to_string()),
            ("live_bytes", live.to_string()),
            ("checkpoint_bytes", sizes.other.to_string()),
            ("leaving_bytes", sizes.leaving.to_string()),
            ("free_bytes", sizes.free.to_string()),
            ("segment_size", segment_size.to_string()),
            ("compression", core.compression.word().into()),
            ("epoch", core.epoch.to_string()),
            ("position", core.log.end().position().to_string()),
            ("durable", core.log.durable().to_string()),
            ("replay_from", replay_from.to_string()),
            ("index_memory_bytes", core.index.memory_bytes().to_string()),
            ("syncs", core.log.syncs().to_string()),
            ("damaged_places", self.damage().len().to_string()),
            ("read_only", core.log.is_refused().to_string()),
        ]
    }
}

impl Reader for HashDb {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.core.read(key, visit)
    }

    fn read_many(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.core.read_many(keys, visit)
    }

    fn prefetch_keys(&self, keys: &[&[u8]]) {
        self.core.prefetch_keys(keys);
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        self.core.scan(from, visit, damaged)
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        scan::bookmark(self.core.hash(key), key)
    }

    fn count(&self) -> u64 {
        self.core.count()
    }

    fn stats(&self) -> Stats {
        let (used, live) = self.core.log_bytes();
        Stats {
            count: self.core.count(),
            live_bytes: live,
            file_bytes: self.core.log.storage().size().unwrap_or(0),
            memory_bytes: self.core.index.memory_bytes(),
            more: vec![
                ("log_bytes", used.to_string()),
                ("syncs", self.core.log.syncs().to_string()),
                ("damaged_places", self.damage().len().to_string()),
            ],
        }
    }

    fn promise(&self) -> Promise {
        promise(self.core.options.durability)
    }

    fn as_persistent(&self) -> Option<&dyn Persistent> {
        Some(self)
    }
}

fn promise(durability: Durability) -> Promise {
    Promise {
        engine: "hash",
        evicts: false,
        durability: Some(durability),
        update_many_is_crash_atomic: true,
        key_len_max: KEY_LEN_MAX,
        value_len_max: VALUE_LEN_MAX,
    }
}

impl Engine for HashDb {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.core.update(key, decide)
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        self.core.update_many(keys, decide, None)
    }

    fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.core.put_many(records)
    }

    fn clear(&self) -> Result<()> {
        self.core.clear(None)
    }
}

impl Persistent for HashDb {
    fn sync(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Process => Ok(()),
            // Nothing was written, and nothing will be.
            Durability::Power if self.core.known.is_read_only() => Ok(()),
            Durability::Power => self.core.log.sync(),
        }
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        gate::outside_updates()?;
        self.core.check(progress)
    }

    fn copy_to(&self, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        gate::outside_updates()?;
        self.core.copy_to(target, progress)
    }

    fn path(&self) -> &Path {
        self.core.log.storage().path()
    }

    fn damage(&self) -> Vec<Damage> {
        HashDb::damage(self)
    }

    fn verify_path(&self) -> Result<()> {
        self.core.log.verify_path()
    }
}

#[cfg(test)]
mod tests;
