//! A sorted file that is edited: edits are journalled and visible at once, and a merge writes them into the file.
//!
//! Promises:
//! 1. An acknowledged edit is visible to every reader of this store, and survives the death of the process; loss of power after a
//!    `sync`, which all threads that wait share, or at once on request.
//! 2. The file is whole and durable at every moment. A merge writes another and replaces it by its name; readers continue, and keep
//!    what they have; no edit is lost, and none counts twice, whenever it is cut (`merge`).
//! 3. Edits that are pending take a stated memory; the edit that goes beyond merges first. `revert` takes back those since the last
//!    merge, all or none.
//! 4. What a key amounts to does not depend on when edits are merged: so not every [`Reducer`] is taken.
//! 5. `update_many` is isolated, and whole after a crash or absent.
//! 6. The sorted file is readable by itself, by any number of processes ([`SkipReader`]), as of the last merge, whatever became of
//!    the pending edits.
//!
//! ```text
//!   words.azs           the sorted file             read by: base
//!   words.azs.pending   a log of edits since        read by: layers, frozen and active, in memory
//!
//!   mod     what users call       edit    the edits            walk    records in order
//!   open    create, open, replay  merge   cut, write, replace  check   both files
//!                 layers  what a reader looks at       layout  the pending file          pending  what is pending, read only
//! ```
//!
//! | | the map, [`SkipDb`] | the reducing store, [`ReducingSkipDb`] |
//! |---|---|---|
//! | an edit of a present key | replaces its value, or what a closure decides | `add`: its value and this one are reduced |
//! | contract | `Engine` | `Reader`, `Ordered`, `Persistent` |
//!
//! Lock order: the merge's lock, the gate, then as in the tree of a layer. Readers take none of them.

mod check;
mod edit;
mod layers;
mod layout;
mod merge;
mod open;
mod pending;
mod walk;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use layers::View;
use merge::Merging;

pub use pending::PendingEdits;

use super::reader::SkipReader;
use super::reduce::Reducer;
use crate::counter::Counter;
use crate::damage::Damage;
use crate::engine::{
    Bookmark, CheckReport, Cursor, Damaged, DecideMany, Durability, Edit, Engine, Ordered,
    OrderedEngine, Persistent, Promise, Reader, Stats, Visit,
};
use crate::epoch::Published;
use crate::error::Result;
use crate::explore::Mutex;
use crate::io::Directory;
use crate::kernel::Handle;
use crate::log::Log;
use crate::order::Order;
use crate::record::gate::Gate;
use crate::record::key_bookmark;
use crate::room;

/// How a sorted file is edited.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EditOptions {
    /// The order of keys of a file that is made; one that is opened has its own.
    pub order: Order,
    /// Bytes of pending edits, 4 KiB or more, each with 32 bytes besides, also of those that were replaced since; 64 MiB by default.
    /// The edit that comes when there are more merges first. While another thread merges, or after a merge that failed, edits
    /// continue up to twice as many, besides those that are to be merged, and then wait for it, or are refused with its error. The
    /// pending file, and so a replay at the next opening, takes about as much.
    pub memory: u64,
    /// What an acknowledged edit survives without a further call.
    pub durability: Durability,
}

impl Default for EditOptions {
    fn default() -> Self {
        Self {
            order: Order::default(),
            memory: 64 << 20,
            durability: Durability::default(),
        }
    }
}

setters! {
    EditOptions {
        order: Order,
        memory: u64,
        durability: Durability,
    }
}

/// How edits of a key are taken together: its value is replaced.
#[derive(Clone, Copy, Debug)]
pub struct Replacing;

/// How edits of a key are taken together: they are reduced to one.
#[derive(Clone, Copy, Debug)]
pub struct Reducing;

/// A sorted file with pending edits. See the module's text.
///
/// ```
/// # fn main() -> azekura::Result<()> {
/// use azekura::Verbs;
/// use azekura::record::skip::{EditOptions, SkipDb, SkipReader};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("words.azs");
/// let db = SkipDb::create(&path, &EditOptions::new())?;
/// db.put(b"apple", b"1")?;
/// assert_eq!(db.get(b"apple")?, Some(b"1".to_vec()));
/// db.merge(&mut |_, _| {})?;
/// assert_eq!(SkipReader::open(&path)?.get(b"apple")?, Some(b"1".to_vec()));
/// db.put(b"apple", b"2")?;
/// db.revert()?;
/// assert_eq!(db.get(b"apple")?, Some(b"1".to_vec()));
/// # Ok(())
/// # }
/// ```
pub struct SkipDb<K = Replacing> {
    core: Handle<Core>,
    kind: PhantomData<K>,
}

/// A sorted file in which the values that are added to a key are reduced to one.
pub type ReducingSkipDb = SkipDb<Reducing>;

impl<K> std::fmt::Debug for SkipDb<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkipDb")
            .field("path", &self.core.path)
            .field("reducer", &self.core.reducer)
            .finish_non_exhaustive()
    }
}

struct Core {
    // Set by the opener.
    directory: Box<dyn Directory>,
    /// Of the sorted file in the directory, and for messages.
    name: PathBuf,
    path: PathBuf,
    reducer: Reducer,
    options: EditOptions,
    /// Of the pending file; never 0.
    identity: u64,
    log: Log,
    /// What readers look at. Replaced under the gate where the active layer changes; else by the holder of the merge's lock.
    view: Published<View>,
    /// Lets edits pass; closed while layers are cut, cleared or reverted.
    gate: Gate,
    count: Counter,
    /// Bytes of edits in the active layer. Relaxed: a bound.
    pending: AtomicU64,
    /// After a merge that failed: no edit merges before there are so many. Relaxed, as `pending`.
    retry_at: AtomicU64,
    merging: Mutex<Merging>,
}

impl Core {
    fn order(&self) -> Order {
        let pin = self.log.pin();
        self.view.get(&pin).base.order()
    }

    /// The view of this moment, to hold for long.
    fn current(&self) -> View {
        let pin = self.log.pin();
        self.view.get(&pin).clone()
    }
}

impl<K> SkipDb<K> {
    /// The value of `key`, copied. `Full` if there is no memory for it.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read_with(key, |value| value.map(room::copy).transpose())?
    }

    /// Lends the value of `key`, or its absence, to `visit`: no lock. Costs a lookup in memory, and one in the sorted file if the
    /// key has no pending edit. Errors: `Corrupted` or `Io` if what the file has of it cannot be read.
    pub fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let core = &*self.core;
        let pin = core.log.pin();
        core.view.get(&pin).read(&core.reducer, key, visit)
    }

    /// The order of its keys.
    pub fn order(&self) -> Order {
        self.core.order()
    }

    /// The sorted file as of the last merge: what has numbers in order, and so counts ranges and finds by index. Edits that are
    /// pending are not in it. It stays as it is while it is held.
    pub fn base(&self) -> Arc<SkipReader> {
        self.core.current().base
    }

    /// Whether there are edits that the sorted file does not have.
    pub fn has_pending(&self) -> bool {
        let view = self.core.current();
        view.frozen.is_some() || !view.active.is_empty()
    }

    /// How many edits the sorted file does not have: keys with edits, and one if all records were removed. [`PendingEdits`] states it
    /// without opening the file. While a merge is under way, a key that is edited again counts twice.
    pub fn pending_edits(&self) -> u64 {
        self.core.current().edits()
    }

    /// Writes all pending edits into the sorted file: another one with all records replaces it. Durable when it returns; readers and
    /// edits continue meanwhile. `progress` is called with (done, total) of records, about, and does not edit this store. Syncs if nothing
    /// is pending.
    ///
    /// Errors: `Full`, `Io`, `Corrupted` if a record of the file cannot be read, and then the edits stay pending; `Poisoned` after an
    /// error that leaves unknown what the device has: what was acknowledged is found by the next open; `Invalid` inside the closure
    /// of another store's update.
    pub fn merge(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.core.merge(progress)
    }

    /// Takes back all pending edits, those since the last merge, which may have been made by an edit beyond the memory: all or none,
    /// also across a crash, and as durable as an edit. It waits for a merge that is under way, after which there are fewer. Errors as
    /// an edit's; `Invalid` inside the closure of another store's update.
    pub fn revert(&self) -> Result<()> {
        self.core.revert()
    }

    /// Closes the store: everything is durable afterwards, and what is pending stays so. Dropping does the same, but can only trace
    /// an error.
    pub fn close(mut self) -> Result<()> {
        self.core.close()
    }
}

impl ReducingSkipDb {
    /// Adds a value to `key`: a new record, or one whose values are reduced. Errors: `TooLarge`, also of what a reducer makes of the
    /// values; `Full`, `Io`, `Poisoned`; `Corrupted` if what the file has of it cannot be read; and then nothing is changed.
    pub fn add(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.core.add(key, value)
    }

    /// Removes the record of `key` with all that was added to it; whether there was one.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        let mut is_present = false;
        self.core.update(key, &mut |value| {
            is_present = value.is_some();
            Edit::Remove
        })?;
        Ok(is_present)
    }

    /// Removes every record; atomic, also across a crash.
    pub fn clear(&self) -> Result<()> {
        self.core.clear()
    }
}

impl<K: Send + Sync> Reader for SkipDb<K> {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.read_with(key, visit)
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let from = from.map(key_bookmark::decode).transpose()?;
        let mut last = None;
        let mut show = |key: &[u8], value: &[u8]| {
            let flow = visit(key, value);
            if flow.is_break() {
                last = Some(key_bookmark::after(key));
            }
            flow
        };
        let view = self.core.current();
        view.walk(&self.core.reducer, from, &mut show, damaged)?;
        last.transpose()
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        key_bookmark::at(key)
    }

    fn count(&self) -> u64 {
        self.core.count.sum()
    }

    fn stats(&self) -> Stats {
        self.core.stats()
    }

    fn promise(&self) -> Promise {
        let limits = edit::limits(self.order());
        Promise {
            engine: "skip",
            evicts: false,
            durability: Some(self.core.options.durability),
            update_many_is_crash_atomic: true,
            key_len_max: limits.key,
            value_len_max: limits.value,
        }
    }

    fn as_ordered(&self) -> Option<&dyn Ordered> {
        Some(self)
    }

    fn as_persistent(&self) -> Option<&dyn Persistent> {
        Some(self)
    }
}

impl Engine for SkipDb {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.core.update(key, decide)
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        self.core.update_many(keys, decide)
    }

    fn clear(&self) -> Result<()> {
        self.core.clear()
    }

    fn as_ordered_engine(&self) -> Option<&dyn OrderedEngine> {
        Some(self)
    }
}

impl OrderedEngine for SkipDb {}

impl<K: Send + Sync> Ordered for SkipDb<K> {
    fn order_name(&self) -> &str {
        self.order().name()
    }

    fn cursor(&self) -> Box<dyn Cursor + '_> {
        Box::new(walk::PendingCursor::new(&self.core))
    }
}

impl<K: Send + Sync> Persistent for SkipDb<K> {
    fn sync(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Process => self.core.log.healthy(),
            Durability::Power => self.core.log.sync(),
        }
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        self.core.check(progress)
    }

    /// Merges, and copies the sorted file: the copy has no pending edits.
    fn copy_to(&self, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.core.merge(&mut |_, _| {})?;
        self.base().copy_to(target, progress)
    }

    fn path(&self) -> &Path {
        &self.core.path
    }

    fn damage(&self) -> Vec<Damage> {
        let mut damage = self.base().damage();
        damage.extend(self.core.log.unreadable());
        damage
    }

    fn verify_path(&self) -> Result<()> {
        self.core.verify_base()?;
        self.core.log.verify_path()
    }
}

impl Core {
    fn stats(&self) -> Stats {
        let view = self.current();
        let base = view.base.stats();
        let layers = [Some(&view.active), view.frozen.as_ref()];
        let in_memory = layers.into_iter().flatten();
        let layers_bytes: u64 = in_memory
            .map(|layer| layer.entries.stats().memory_bytes)
            .sum();
        let sizes = self.log.segments().sizes();
        let pending_bytes = self.pending.load(std::sync::atomic::Ordering::Relaxed);
        Stats {
            count: self.count.sum(),
            live_bytes: base.live_bytes + sizes.log,
            file_bytes: base.file_bytes + self.log.storage().size().unwrap_or(0),
            memory_bytes: base.memory_bytes + layers_bytes,
            more: vec![
                ("order", self.order().name().to_owned()),
                ("merged_records", view.base.count().to_string()),
                ("pending_edits", view.edits().to_string()),
                ("pending_bytes", pending_bytes.to_string()),
            ],
        }
    }
}
