//! The contract of the record engines: what every store of byte keys and byte values promises.
//!
//! Keys and values are byte slices and may be empty. Methods take `&self`; engines are shared between
//! threads. An open engine is usable: there is no "not opened" state. What an engine cannot do is
//! absent (another trait), never a run-time "not supported".
//!
//! ```text
//!   Reader      read  read_many  scan  count  stats  promise          lock-free where the engine can
//!     ^   `---- Ordered     cursor  order_name  count_between         engines with an order
//!     |   `---- Persistent  sync  checkpoint  check  copy_to  path    engines with a file
//!   Engine      update  update_many  put_many  clear                  one primitive, verbs derived
//!     ^   `---- OrderedEngine  remove_between
//!     ^-------- Expiring    put_for  scan_with_time_left              engines whose records may expire
//! ```
//!
//! Everything a user calls (`get`, `append`, `increment`, ...) is written once above these, in
//! `verbs`. The only upward calls are the closures handed to `read`, `scan` and `update`, and those that
//! report progress or what a cache drops.
//! This module knows no engine and no file.

use std::borrow::Cow;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::time::Duration;

use crate::damage::Damage;
use crate::error::{Error, Kind, Result};
use crate::order::{KeyBounds, Order, check_range, is_from, is_up_to};
use crate::room;

/// What an update does with a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Edit<'a> {
    /// Leave it as it is; nothing is written.
    Keep,
    /// Give it this value, inserting it if absent.
    Put(Cow<'a, [u8]>),
    /// Remove it; nothing is written if it is absent.
    Remove,
}

impl<'a> Edit<'a> {
    /// Puts borrowed bytes.
    pub fn put(value: &'a [u8]) -> Self {
        Self::Put(Cow::Borrowed(value))
    }
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Durability {
    /// The death of the process, `kill -9` included: the bytes are in the system's page cache.
    #[default]
    Process,
    /// Loss of power: the bytes, and the file's directory entry, are on the device.
    Power,
}

impl Durability {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Power => "power",
        }
    }

    /// The one of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Process, Self::Power]
            .into_iter()
            .find(|of| of.word() == word)
    }
}

/// A place in an engine's scan order: plain bytes, to be kept or sent and handed back later.
///
/// It stays valid while the store grows and changes, and after a reopen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bookmark(Vec<u8>);

impl Bookmark {
    /// A bookmark from the bytes of an earlier one; the engine that is given it checks them.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// A bookmark of these bytes, one after the other. Errors: `Full`.
    pub(crate) fn of(parts: &[&[u8]]) -> Result<Self> {
        room::concat(parts).map(Self)
    }

    /// The bytes to keep.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What an engine promises; the conformance suite tests exactly this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The engine's word, as in `--engine hash`.
    pub engine: &'static str,
    /// Whether an acknowledged record may be dropped by the engine itself (a cache).
    pub evicts: bool,
    /// What an acknowledged write survives without a further call; `None`: nothing, memory only.
    pub durability: Option<Durability>,
    /// Whether `update_many` is all or nothing across a crash.
    pub update_many_is_crash_atomic: bool,
    /// Longest key, in bytes.
    pub key_len_max: u64,
    /// Longest value, in bytes.
    pub value_len_max: u64,
}

/// Figures about a store, for people and monitoring. Zero where they do not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records present.
    pub count: u64,
    /// Bytes on storage that hold present records, with their frames.
    pub live_bytes: u64,
    /// Size of the file.
    pub file_bytes: u64,
    /// Private memory the engine holds.
    pub memory_bytes: u64,
    /// Further figures of the engine: name and value, in a fixed order.
    pub more: Vec<(&'static str, String)>,
}

/// What `scan` and `read` lend to: called with a key and its value.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// Receives the error of each damaged record of a scan, `Corrupted`, and of each part of the index that does not verify or cannot be
/// read, `Corrupted` or `Io`; with `Ok` the scan continues.
pub type Damaged<'d> = dyn FnMut(Error) -> Result<()> + 'd;

/// Reading. None of these waits for a writer where the engine's doc states it.
pub trait Reader: Send + Sync {
    /// Lends the present value of `key`, or `None`, to `visit`, exactly once, without a copy.
    ///
    /// `visit` may call the engine again. It should be short: it delays the reuse of memory.
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;

    /// `read` for each key, in any order; `visit` gets the index of the key in `keys`.
    ///
    /// Each value is the one at some moment of the call; they need not be of one moment. Engines
    /// overlap the memory accesses of neighbouring keys: 16 and more at once are worth it.
    fn read_many(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            self.read(key, &mut |value| visit(index, value))?;
        }
        Ok(())
    }

    /// A hint that these keys will be asked for or changed soon, each by a call of its own, whose memory accesses then do not
    /// wait: records are prefetched, where the engine can. No more than some 32 stay in the processor's cache. It changes
    /// nothing.
    fn prefetch_keys(&self, _keys: &[&[u8]]) {}

    /// Lends records in the engine's order, from `from` (`None`: from the first) until `visit`
    /// breaks or the last was shown.
    ///
    /// Returns where to resume after the record at which `visit` broke, or `None` at the end. A
    /// record that is present during the whole of a scan, even one continued by bookmarks, is shown
    /// exactly once; one that comes or goes meanwhile is shown at most once. Takes no exclusive lock.
    /// Ends with `Corrupted` at the first damaged record.
    fn scan(&self, from: Option<&Bookmark>, visit: &mut Visit<'_>) -> Result<Option<Bookmark>> {
        self.scan_past(from, visit, &mut Err)
    }

    /// As `scan`, but `damaged` is called for each damaged record: with `Ok` the scan continues past it, with an error it
    /// ends. A scan that is continued by a bookmark may report one again. A part of the index that cannot be read is
    /// reported once, and its records are not shown.
    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>>;

    /// The bookmark from which a scan shows `key` first, if it is present.
    fn bookmark_at(&self, key: &[u8]) -> Bookmark;

    /// Records present; exact when no update is running.
    fn count(&self) -> u64;

    /// Figures for people and monitoring.
    fn stats(&self) -> Stats;

    /// What this engine promises.
    fn promise(&self) -> Promise;

    /// The door to ordered access, if this engine has an order.
    fn as_ordered(&self) -> Option<&dyn Ordered> {
        None
    }

    /// The door to the file, if this engine has one.
    fn as_persistent(&self) -> Option<&dyn Persistent> {
        None
    }

    /// The door to times to live, if records of this engine may have one.
    fn as_expiring(&self) -> Option<&dyn Expiring> {
        None
    }
}

/// Answers the present values of many records with one edit for each.
pub type DecideMany<'d, 'a> = &'d mut (dyn FnMut(&[Option<&[u8]>]) -> Vec<Edit<'a>> + 'd);

/// Reading and writing.
pub trait Engine: Reader {
    /// Calls `decide` exactly once, under the record's lock, with the present value or `None`, and
    /// applies its answer before the lock is released.
    ///
    /// `decide` must not call the engine: the record's lock also guards some other records.
    /// If it panics, nothing is changed and the lock is released.
    /// Errors: `TooLarge` (a key or value over the limit of the promise; nothing is changed),
    /// `Full`, `Io`, `Poisoned`, `Corrupted` (the present record fails its checksum).
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()>;

    /// Shows all present values at once and takes one edit per key, isolated from every other
    /// update, and all or nothing across a crash where promised.
    ///
    /// `decide` is called exactly once with one value per key, in order, and answers with as many
    /// edits. A repeated key is shown its present value each time; its last edit that is not
    /// `Keep` counts. Errors as [`update`](Engine::update), and then nothing is changed.
    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()>;

    /// Puts each record, in order; each is atomic for itself. Engines overlap memory accesses.
    ///
    /// On an error the records before the failed one are stored.
    fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        for (key, value) in records {
            self.update(key, &mut |_| Edit::put(value))?;
        }
        Ok(())
    }

    /// The door to changes of ranges, if this engine has an order.
    fn as_ordered_engine(&self) -> Option<&dyn OrderedEngine> {
        None
    }

    /// Removes every record; atomic, also across a crash. It waits for updates that are under way; `Invalid` inside the closure of
    /// one, of another store.
    fn clear(&self) -> Result<()>;
}

/// What a scan of records that may expire lends to: key, value, and the time the record has left (`None`: it
/// does not expire).
pub type VisitWithTimeLeft<'v> = dyn FnMut(&[u8], &[u8], Option<Duration>) -> ControlFlow<()> + 'v;

/// Engines whose records may have a time to live. A record whose time has passed is absent.
pub trait Expiring: Engine {
    /// Puts a record that is absent once `time` has passed. A record put in any other way does not expire. Errors as
    /// `update`.
    fn put_for(&self, key: &[u8], value: &[u8], time: Duration) -> Result<()>;

    /// As [`scan`](Reader::scan), and reports the time each record has left.
    fn scan_with_time_left(
        &self,
        from: Option<&Bookmark>,
        visit: &mut VisitWithTimeLeft<'_>,
    ) -> Result<Option<Bookmark>>;
}

/// Records that are removed between two looks at a range.
const REMOVED_AT_ONCE: usize = 256;

/// Engines with an order of keys.
pub trait Ordered: Reader {
    /// The name of the order, the same for equal orders in every version: `lexical` if keys are compared as
    /// bytes. At most 255 bytes.
    fn order_name(&self) -> &str;

    /// A cursor over the whole store, not yet placed.
    fn cursor(&self) -> Box<dyn Cursor + '_>;

    /// How many records there are whose keys are in a range; of each that comes or goes meanwhile it may know or not. `Invalid` where
    /// the range ends before it begins. Costs a scan of the range; engines whose doc states it do better.
    fn count_between(&self, keys: KeyBounds<'_>) -> Result<u64> {
        let mut count = 0;
        scan_between(self, keys, None, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }
}

/// Engines with an order of keys whose records can be changed.
pub trait OrderedEngine: Engine + Ordered {
    /// Removes the records whose keys are in a range; how many there were.
    ///
    /// Whether that is one change, which readers and crashes see wholly or not at all, the engine's doc states. By default records are
    /// removed one by one, in order: one that comes meanwhile may stay, and on an error those before it are gone. Errors: `Invalid` where
    /// the range ends before it begins, and as [`update`](Engine::update).
    fn remove_between(&self, keys: KeyBounds<'_>) -> Result<u64> {
        let (mut removed, mut from) = (0, None);
        loop {
            let mut batch = Vec::new();
            from = scan_between(self, keys, from.as_ref(), &mut |key| {
                batch.push(key.to_vec());
                if batch.len() < REMOVED_AT_ONCE {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
            for key in batch {
                self.update(&key, &mut |present| {
                    removed += u64::from(present.is_some());
                    Edit::Remove
                })?;
            }
            if from.is_none() {
                return Ok(removed);
            }
        }
    }
}

/// Shows the keys of a range in order, from a bookmark on, or from its beginning; where to continue if `visit` broke.
fn scan_between<O: Ordered + ?Sized>(
    ordered: &O,
    keys: KeyBounds<'_>,
    from: Option<&Bookmark>,
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<Option<Bookmark>> {
    let name = ordered.order_name();
    let order = Order::from_name(name)
        .ok_or_else(|| Error::new(Kind::Invalid, format!("no order is named {name:?}")))?;
    check_range(keys, order)?;
    let first = match keys.0 {
        Bound::Included(key) | Bound::Excluded(key) => Some(ordered.bookmark_at(key)),
        Bound::Unbounded => None,
    };
    let mut is_over = false;
    let next = ordered.scan(from.or(first.as_ref()), &mut |key, _| {
        is_over = !is_up_to(keys, order, key);
        if is_over {
            ControlFlow::Break(())
        } else if is_from(keys, order, key) {
            visit(key)
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(next.filter(|_| !is_over))
}

/// A place among ordered records. It remembers its key, and survives changes by others.
///
/// A call that finds no record, or fails, leaves it on none, as it was made: from there `next` goes to the first, `previous` to
/// the last.
pub trait Cursor {
    /// Moves to the first record; `false`: there is none.
    fn first(&mut self) -> Result<bool>;
    /// Moves to the last record; `false`: there is none.
    fn last(&mut self) -> Result<bool>;
    /// Moves to the first record at or after `key`; `false`: there is none.
    fn seek(&mut self, key: &[u8]) -> Result<bool>;
    /// Moves to the next record; `false`: the cursor was on the last.
    fn next(&mut self) -> Result<bool>;
    /// Moves to the previous record; `false`: the cursor was on the first.
    fn previous(&mut self) -> Result<bool>;
    /// The key and value the cursor is on.
    fn record(&self) -> Option<(&[u8], &[u8])>;
}

/// Engines with a file.
pub trait Persistent: Reader {
    /// Makes everything acknowledged before the call survive what `durability` states.
    ///
    /// `Process` costs nothing. `Power`: one sync of the device, shared by all threads that wait.
    fn sync(&self, durability: Durability) -> Result<()>;

    /// Verifies the whole file against its checksums and invariants; read-only.
    ///
    /// Damage is reported in the [`CheckReport`], not as an error. `progress` is called with (done, total); it does not
    /// update this store, which may wait for the check to end. `Invalid` inside the closure of another store's update.
    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport>;

    /// Writes a consistent copy of the store to a new file, while it is being used.
    ///
    /// The copy holds everything acknowledged before the call; one made by a reader in another process holds what that
    /// reader can see. `Invalid` if `target` exists. `progress` is as for `check`, and so is the closure of
    /// another store's update.
    fn copy_to(&self, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()>;

    /// The file.
    fn path(&self) -> &Path;

    /// What is known to be damaged; empty if nothing is. A look at memory: `check` reads the file.
    fn damage(&self) -> Vec<Damage> {
        Vec::new()
    }

    /// Looks whether the path still leads to the open file. `Io`, with what saves the contents, if that was removed, moved or
    /// replaced: then the next open of the path does not find what is written. From then on updates are refused with the
    /// same error, until a call finds the file there again, one of these or an update; reads continue. A store does not look by
    /// itself, as a file without a name has its uses; a program that runs for long calls this once a second, and
    /// after a `sync` that it acknowledges. Costs two system calls.
    fn verify_path(&self) -> Result<()> {
        Ok(())
    }
}

/// Most damage that a check lists.
const DAMAGE_MAX: usize = 1000;

/// What `check` found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Records verified.
    pub records: u64,
    /// Bytes verified.
    pub bytes: u64,
    /// One line per damage: what, and where.
    pub damage: Vec<String>,
    /// How much of it costs nothing and is written again when the file is opened for writing.
    pub rewritable: u64,
}

impl CheckReport {
    /// Whether nothing was found.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }

    /// Notes one damage. Up to 1000 are listed: then it is clear that a repair is due.
    pub(crate) fn note(&mut self, damage: String) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(damage);
        }
    }

    /// Notes what is damaged, without a remedy: the errors advise to check, which is done here, or to repair, which the whole report
    /// decides.
    pub(crate) fn note_error(&mut self, error: Error) {
        self.note(error.without_remedy().to_string());
    }

    /// Whether anything was found that opening the file for writing does not write again.
    pub fn needs_repair(&self) -> bool {
        self.damage.len() as u64 > self.rewritable
    }
}

/// An engine whose every acknowledged write survives loss of power: each update is followed by a
/// sync, shared with the other threads that wait at that moment (group commit).
#[derive(Clone, Copy, Debug)]
pub struct Powered<'e, E: ?Sized>(pub &'e E);

impl<E: Engine + Persistent + ?Sized> Reader for Powered<'_, E> {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.0.read(key, visit)
    }
    fn read_many(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.0.read_many(keys, visit)
    }
    fn prefetch_keys(&self, keys: &[&[u8]]) {
        self.0.prefetch_keys(keys);
    }
    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        self.0.scan_past(from, visit, damaged)
    }
    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        self.0.bookmark_at(key)
    }
    fn count(&self) -> u64 {
        self.0.count()
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
    fn promise(&self) -> Promise {
        Promise {
            durability: Some(Durability::Power),
            ..self.0.promise()
        }
    }
    fn as_persistent(&self) -> Option<&dyn Persistent> {
        self.0.as_persistent()
    }
}

impl<E: Engine + Persistent + ?Sized> Engine for Powered<'_, E> {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.0.update(key, decide)?;
        self.0.sync(Durability::Power)
    }
    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        self.0.update_many(keys, decide)?;
        self.0.sync(Durability::Power)
    }
    fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.0.put_many(records)?;
        self.0.sync(Durability::Power)
    }
    fn clear(&self) -> Result<()> {
        self.0.clear()?;
        self.0.sync(Durability::Power)
    }
}
