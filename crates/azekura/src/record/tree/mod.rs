//! Records in a file in the order of their keys: a B+ tree in a page cache, with a journal.
//!
//! Promises:
//! 1. An acknowledged update survives `kill -9`; with `Durability::Power`, or after `sync`, loss of power. After a power cut the
//!    store is what a prefix of its updates made, up to a sync at least; an `update_many` is in it wholly or not at all.
//! 2. A lookup takes no lock and stores nothing where its pages are in the cache; each page that is not costs one read of it, and
//!    inner pages are 0.6 % of all. An update locks its leaf, appends its record to the journal, and changes the leaf in memory. A put of up to
//!    255 bytes each of key and value whose leaf is not there waits for it in up to three eighths of the cache (`change_buffer`).
//! 3. A page is never written over: it goes to a new place, and its old one is used again when a later checkpoint is durable. So no
//!    torn page can matter. An open reads the journal since the last checkpoint, whatever the number of records.
//! 4. A checkpoint is of one moment, and stops no thread: who changes a page that it still has to write keeps a copy of that.
//! 5. Memory: the cache, 16 bytes for each page that was looked at, and while a checkpoint is written or a snapshot lives, copies of pages
//!    that are changed meanwhile, or some 400 bytes for each that was on storage. A cache full of changed pages slows writers, who write some themselves.
//! 6. A scan, and a cursor, shows what was there all along once, and resumes from any bookmark. That of a snapshot is of one moment,
//!    while writers continue, and so are all reads of it.
//! 7. Ascending keys leave full leaves; random ones are two thirds full, until they are compacted. Values of more than 510 bytes, and in lexical order keys of more
//!    than that, up to 8 MiB, stand outside of their leaf, in units of 4 KiB, and cost a read each; other orders have no longer keys.
//!
//! ```text
//!   update, read, walk     one record, many, in order          -- node::tree: ways, locks, division, joining
//!   view, snapshot         reading the store as it is, as it was at a cut      transaction  writes that rest on that
//!   ahead                  many keys at once, and the leaves next to come: reads of the device that overlap
//!   load                   ascending records into an empty store
//!   range, pop             ranges counted and removed; the first and the last record taken out
//!   change_buffer, buffered_puts, merge   puts that wait for their leaf     counts   records, now and at cuts
//!   cache, nodes           frames of pages, and their changes     resize  their number     table  where each page is     cut  moments, and what they need
//!   image                  pages as they are written, plain or compressed
//!   write_back             pages to new places       space, group, bitmap  units, and when they are free again     run  values outside, cluster  long keys
//!   check, repair, copy, compact    of the whole file
//!   checkpoint, open       the cut that the superblock names, and what follows it in the journal   -- kernel, log
//! ```
//!
//! What damage of a page costs is that page's records: reading one is an error, a scan may pass them. Where the journal changes
//! such a record, the file opens for reading: what is written would rest on what is lost. Lock order: compaction; the checkpoint; the gate; the taking of
//! cuts; latches as in `node::tree`, or in any order while no update is under way; the writer of the cache; the list of snapshots, a shard
//! of versions; the room; the log. A snapshot that is dropped in an update's closure takes hold of the cuts under a latch: who has them waits
//! for latches in `clear` and the removal of a range only, alone. The partition of a page in the change buffer is taken under its latch, or under
//! none; under it versions, the room, the counts, blocks and free frames, and the log.

mod ahead;
mod background;
mod bitmap;
mod buffered_puts;
mod cache;
mod change_buffer;
mod check;
mod checkpoint;
mod cluster;
mod compact;
mod copy;
mod count;
mod counts;
mod cut;
mod group;
mod image;
pub mod layout;
mod limbo;
mod load;
mod merge;
mod nodes;
mod open;
mod pop;
mod range;
mod read;
mod repair;
mod resize;
mod run;
mod salvage;
mod snapshot;
mod space;
mod sums;
mod table;
#[cfg(test)]
mod tests;
mod transaction;
mod update;
mod view;
mod walk;
mod write_back;

use std::collections::VecDeque;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cache::PageCache;
use sums::Sums;

pub use crate::kernel::changes::CheckpointId;
pub use crate::record::compression::Compression;
pub use repair::{TreeRepairReport, repair};
pub use snapshot::Snapshot;
pub use transaction::{Isolation, Transaction};

use crate::damage::Damage;
use crate::engine::{
    Bookmark, CheckReport, Cursor, Damaged, DecideMany, Durability, Edit, Engine, Ordered,
    OrderedEngine, Persistent, Promise, Reader, Stats, Visit,
};
use crate::error::{Error, Kind, Result};
use crate::explore::Mutex;
use crate::format::superblock;
use crate::kernel::Handle;
use crate::kernel::changes::CheckpointNumber;
use crate::log::{Log, LogPosition};
use crate::node;
use crate::node::tree::Tree;
use crate::order::{KeyBounds, Order, bounds_of};
use crate::record::gate::{self, Gate};
use crate::record::key_bookmark;
use crate::record::limits::Limits;
use crate::worker::Notify;

/// Longest key in lexical order.
pub const KEY_LEN_MAX: u64 = (8 << 20) - 1;
/// Longest key in other orders.
pub const OTHER_KEY_LEN_MAX: u64 = node::KEY_LEN_MAX as u64;
/// Longest value.
pub const VALUE_LEN_MAX: u64 = (2 << 30) - 4096;
/// Least bytes of a cache.
pub const CACHE_MIN: u64 = 256 << 10;

const LIMITS: Limits = Limits {
    key: KEY_LEN_MAX,
    value: VALUE_LEN_MAX,
    whose: "a tree file",
};
const OTHER_LIMITS: Limits = Limits {
    key: OTHER_KEY_LEN_MAX,
    value: VALUE_LEN_MAX,
    whose: "a tree file in another order than the lexical one",
};

/// How a tree file is created. The defaults fit a file of any size. Only `opening` can be chosen anew when it is opened again.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CreateOptions {
    /// The order of its keys. Lexical.
    pub order: Order,
    /// Bytes of a segment: a power of two from 64 KiB to 64 MiB; 0: the largest to 1 MiB of which the capacity, and the room that the
    /// device has left, hold 512, but 64 KiB at least. 0.
    pub segment_size: u64,
    /// How pages are stored; values outside of leaves are stored as they are. A compressed page is decompressed when it comes into the
    /// cache, which holds as many as without. None.
    pub compression: Compression,
    /// Bytes of a page in memory: 4, 8 or 16 KiB, more than 4 with compression; 0: 16 KiB with it, 4 without. A random read or write
    /// costs one; compressed, a part of one, in units of 4 KiB. 0.
    pub page_size: u64,
    /// How the new file is opened.
    pub opening: OpenOptions,
}

/// How a tree file is opened; no property of the file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Bytes of pages that are kept in memory, 256 KiB at least; 64 pages, if they are larger than 4 KiB and these are more. Memory is
    /// taken as it is needed. 256 MiB.
    pub cache: u64,
    /// The order that the file must be in; any, if none is stated. None.
    pub expected_order: Option<Order>,
    /// What every acknowledged write survives without a further call. `Process`.
    pub durability: Durability,
    /// If set, everything is synced to survive loss of power this often, in the background; more than zero. None.
    pub sync_interval: Option<Duration>,
    /// Whether a background worker writes pages and checkpoints. Without it, writers do what must be done, and `maintain` the
    /// rest. True.
    pub background: bool,
    /// How large the file may become; only addresses are reserved. 1 TiB.
    pub capacity: u64,
    /// Bytes of the file that snapshots may hold before the oldest is ended; a quarter of the file, if that is more. 1 GiB.
    pub snapshot_room: u64,
}

setters! {
    OpenOptions {
        cache: u64,
        expected_order: impl Into<Option<Order>>,
        durability: Durability,
        sync_interval: impl Into<Option<Duration>>,
        background: bool,
        capacity: u64,
        snapshot_room: u64,
    }
    CreateOptions {
        order: Order,
        segment_size: u64,
        compression: Compression,
        page_size: u64,
        opening: OpenOptions,
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            cache: 256 << 20,
            expected_order: None,
            durability: Durability::Process,
            sync_interval: None,
            background: true,
            capacity: 1 << 40,
            snapshot_room: 1 << 30,
        }
    }
}

/// An open tree file. See the module's text.
pub struct TreeDb {
    core: Handle<Core>,
}

/// What the threads of a process share of an open file.
struct Core {
    tree: Tree<PageCache>,
    limits: &'static Limits,
    log: Arc<Log>,
    options: OpenOptions,
    /// Lets updates pass; closed while everything is removed.
    gate: Gate,
    /// Until when it is known how many records lie below pages.
    sums: Sums,
    /// Those that live, in the order in which they were taken.
    snapshots: Mutex<VecDeque<Arc<snapshot::Live>>>,
    /// Under its lock: the last checkpoint.
    checkpoint: Mutex<checkpoint::Checkpoint>,
    /// Held while the file is compacted.
    compacting: Mutex<()>,
    /// What replay found damaged.
    known: Mutex<Vec<Damage>>,
    /// Where replay would begin.
    replay_from: Mutex<LogPosition>,
    /// The last checkpoint.
    moment: Mutex<CheckpointNumber>,
    /// `Log::appended` at the last checkpoint, less what was replayed before. Relaxed: a bound on waiting.
    journal_from: AtomicU64,
    /// When `Log::appended` reaches this, the background worker is woken. Relaxed: a late wake is harmless.
    wake_at: AtomicU64,
    notify: Arc<Notify>,
}

/// Whether an error is that of damage: all else may be right.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupted | Kind::Io)
}

fn is_damage_or_full(error: &Error) -> bool {
    is_damage(error) || error.kind() == Kind::Full
}

/// Whether what was done found no room.
fn is_full<T>(done: &Result<T>) -> bool {
    done.as_ref().is_err_and(|error| error.kind() == Kind::Full)
}

impl Core {
    fn promise(&self) -> Promise {
        Promise {
            engine: "tree",
            evicts: false,
            durability: Some(self.options.durability),
            update_many_is_crash_atomic: true,
            key_len_max: self.limits.key,
            value_len_max: VALUE_LEN_MAX,
        }
    }
}

impl TreeDb {
    /// The value of `key`, copied.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.core.read(key, |value| value.map(<[u8]>::to_vec))
    }

    /// Lends the value of `key`, or its absence, to `visit`: no lock, and no allocation up to 64 bytes.
    #[inline]
    pub fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        self.core.read(key, visit)
    }

    /// Sets the value of `key`. Where its leaf is not in memory, it may wait for that, in memory and in the journal, and read and write nothing.
    /// Errors: `TooLarge`; `Full`, `Io`, `Corrupted`, `Poisoned`, and then nothing is changed; but where the sync of `Durability::Power` failed, it
    /// may be there.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.core.put(key, value)
    }

    /// Removes `key`; whether it was there. Where it leaves its leaf sparse, the leaves next to it are read, to be joined with it. Errors
    /// as for [`put`](Self::put).
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.core.remove(key)
    }

    /// Removes each of `keys`; how many were there.
    pub fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        let mut removed = 0;
        for key in keys {
            removed += u64::from(self.remove(key)?);
        }
        Ok(removed)
    }

    /// Removes the records whose keys are in a range, as one change; how many there were.
    ///
    /// A reader sees all of them or none, a snapshot and a cut of the power too; updates wait meanwhile. It costs a read of each leaf of
    /// the range that is not in memory, before updates have to wait, and then some hundred nanoseconds a leaf; without ends, only of those for
    /// which puts wait. A full store takes it. `Invalid` where the range ends before it begins, and inside the closure of an update; `TooLarge` for an
    /// end longer than a key; `Corrupted` if a page of the range cannot be read, `Full`, `Io`, `Poisoned`, and then nothing is removed.
    pub fn remove_range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<u64> {
        self.remove_between(bounds_of(&keys))
    }

    /// How many records there are whose keys are in a range; of each that comes or goes meanwhile it may know or not. `Invalid` where that
    /// ends before it begins; `Corrupted` where a leaf at an end, or an inner page, cannot be read.
    ///
    /// It costs a look at the leaves at both ends, and the sums of what lies between, of which two rows of neighbours on each level are looked at.
    /// A sum is unknown where it was never made, and where records came or went below it since: then it costs some nanoseconds for each leaf there, and a
    /// read of inner pages that are not in memory, and of lists of keys of 510 bytes and more; no other leaf is read, and no value. From the first
    /// count on, an update that adds or removes a record looks for what lies above its leaf, until there is no count between two checkpoints. In an
    /// order of the program's own, sums are made each time.
    pub fn count_range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<u64> {
        self.core.count_between(bounds_of(&keys))
    }

    /// Takes out the first record in order; `None`: there is none. No other call takes the same, and at that moment none is before it. With
    /// [`push_last`](crate::verbs::Verbs::push_last) that is a queue. Costs and errors as of [`remove`](Self::remove).
    pub fn pop_first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.core.pop(true)
    }

    /// As [`pop_first`](Self::pop_first), of the last record.
    pub fn pop_last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.core.pop(false)
    }

    /// The order of its keys.
    pub fn order(&self) -> Order {
        self.core.tree.order
    }

    /// Writes all changed pages and makes the journal before this moment unnecessary. `Invalid` inside the closure of another
    /// store's update.
    pub fn checkpoint(&self) -> Result<()> {
        gate::outside_updates()?;
        self.core.checkpoint()
    }

    /// Fills leaves that random keys left in part empty, moves what stands at the file's end to free room before it, and cuts the file, while
    /// it is used; `progress` gets (done, total) of steps, roughly. Afterwards, random keys take as much room as ascending ones do.
    ///
    /// Costs a read of all leaves, and a write of those that are less than fifteen sixteenths full and of what moves. Each change is one of
    /// whole pages: a crash at any moment loses nothing. What snapshots that live need stays; without enough room it ends with what could
    /// be done. Lists of keys of more than 510 bytes stay where they are. `Invalid` inside the closure of an update; `Corrupted` and
    /// `Io` for what cannot be read, after all else is done; `Poisoned`.
    pub fn compact(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        gate::outside_updates()?;
        self.core.compact(progress)
    }

    /// One bounded step of background work. `Invalid` as for [`checkpoint`](Self::checkpoint).
    pub fn maintain(&self) -> Result<()> {
        gate::outside_updates()?;
        self.core.maintain()
    }

    /// Properties of the file, by name, in a fixed order.
    pub fn inspect(&self) -> Vec<(&'static str, String)> {
        let core = &*self.core;
        let pages = &core.tree.nodes;
        let storage = core.log.storage();
        let sizes = core.log.segments().sizes();
        let room = pages.space.room().sizes();
        let snapshots = core.snapshots.lock().len();
        vec![
            ("path", storage.path().display().to_string()),
            ("engine", "tree".into()),
            ("format_version", superblock::VERSION.to_string()),
            ("checkpoint", core.checkpoint_id().to_string()),
            ("count", core.tree.nodes.counts.sum().to_string()),
            ("order", core.tree.order.name().to_owned()),
            ("levels", core.levels().to_string()),
            ("pages", room.pages.to_string()),
            ("page_bytes", pages.shape.bytes().to_string()),
            ("compression", pages.shape.compression.word().to_owned()),
            ("used_bytes", (room.used * layout::UNIT).to_string()),
            ("waiting_bytes", (room.waiting * layout::UNIT).to_string()),
            ("file_bytes", storage.size().unwrap_or(0).to_string()),
            (
                "allocated_bytes",
                storage.allocated().unwrap_or(0).to_string(),
            ),
            ("log_bytes", sizes.log.to_string()),
            ("checkpoint_bytes", sizes.other.to_string()),
            ("free_bytes", sizes.free.to_string()),
            (
                "segment_size",
                core.log.geometry().segment_size().to_string(),
            ),
            ("cache_bytes", pages.bytes_max().to_string()),
            ("dirty_pages", pages.dirty().to_string()),
            ("buffered_pages", pages.buffer.pages().to_string()),
            (
                "buffered_puts",
                pages.buffer.added.load(Ordering::Relaxed).to_string(),
            ),
            ("snapshots", snapshots.to_string()),
            ("held_bytes", (room.held * layout::UNIT).to_string()),
            ("versions_in_memory", pages.cuts.in_memory().to_string()),
            (
                "page_reads",
                pages.reads.load(Ordering::Relaxed).to_string(),
            ),
            (
                "page_writes",
                pages.writes.load(Ordering::Relaxed).to_string(),
            ),
            ("position", core.log.end().position().to_string()),
            ("durable", core.log.durable().to_string()),
            ("replay_from", core.replay_from.lock().to_string()),
            ("syncs", core.log.syncs().to_string()),
        ]
    }
}

impl Reader for TreeDb {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.core.read(key, visit)
    }

    /// As the contract states; pages that are not in memory are read up to 32 at once. Where a page is damaged, or cannot be read, the other
    /// keys are shown all the same, and the first error is returned.
    fn read_many(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.core.read_many(keys, visit)
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        walk::walk(&**self.core, from, visit, damaged)
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        key_bookmark::at(key)
    }

    /// Exactly, when no update is under way. It reads the leaves first for which puts wait in memory; where one cannot be read, or the store is
    /// poisoned, new records that wait are not counted.
    fn count(&self) -> u64 {
        self.core.count_all()
    }

    /// As the contract states; `count` is without those of the puts that wait for their leaf.
    fn stats(&self) -> Stats {
        let core = &*self.core;
        let pages = &core.tree.nodes;
        let room = pages.space.room().sizes();
        Stats {
            count: core.tree.nodes.counts.sum(),
            live_bytes: room.live() * layout::UNIT,
            file_bytes: core.log.storage().size().unwrap_or(0),
            memory_bytes: pages.memory_bytes(),
            more: vec![
                ("order", core.tree.order.name().to_owned()),
                ("levels", core.levels().to_string()),
                ("pages", room.pages.to_string()),
                ("dirty_pages", pages.dirty().to_string()),
            ],
        }
    }

    fn promise(&self) -> Promise {
        self.core.promise()
    }

    fn as_ordered(&self) -> Option<&dyn Ordered> {
        Some(self)
    }

    fn as_persistent(&self) -> Option<&dyn Persistent> {
        Some(self)
    }
}

impl Engine for TreeDb {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.core.edit(key, decide)
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        self.core.edit_many(keys, decide)
    }

    fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        for (key, value) in records {
            self.put(key, value)?;
        }
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        gate::outside_updates()?;
        self.core.clear()
    }

    fn as_ordered_engine(&self) -> Option<&dyn OrderedEngine> {
        Some(self)
    }
}

impl Ordered for TreeDb {
    fn order_name(&self) -> &str {
        self.core.tree.order.name()
    }

    fn cursor(&self) -> Box<dyn Cursor + '_> {
        Box::new(walk::RecordCursor::new(&**self.core))
    }

    fn count_between(&self, keys: KeyBounds<'_>) -> Result<u64> {
        self.core.count_between(keys)
    }
}

impl OrderedEngine for TreeDb {
    /// As [`remove_range`](Self::remove_range).
    fn remove_between(&self, keys: KeyBounds<'_>) -> Result<u64> {
        gate::outside_updates()?;
        self.core.remove_range(keys)
    }
}

impl Persistent for TreeDb {
    fn sync(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Process => self.core.log.healthy(),
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
        let mut damage = self.core.known.lock().clone();
        damage.extend(self.core.log.unreadable());
        damage
    }

    fn verify_path(&self) -> Result<()> {
        self.core.log.verify_path()
    }
}

impl std::fmt::Debug for TreeDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeDb")
            .field("path", &self.core.log.storage().path())
            .finish_non_exhaustive()
    }
}
