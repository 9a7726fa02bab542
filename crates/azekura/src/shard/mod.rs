//! Several stores as one: each record is in the shard that the hash of its key states. In memory over any engine, in files over
//! hash files or tree files.
//!
//! 1. It implements what its shards do: `Reader`, `Engine`, `Ordered` with the shards merged, `Persistent`.
//! 2. An update is one of its shard: as isolated, durable and whole after a crash. What waits in one shard, a lock, a checkpoint, a
//!    sync, holds up no thread in another.
//! 3. `update_many` over several shards is isolated from every other update: no lock is released before all records are decided
//!    about. After a crash each shard's part is there wholly or not at all, and one may be there without another: it is atomic
//!    across a crash only where there is one shard, as the `Promise` states. If a shard refuses its part, those of others are taken back,
//!    unless others have changed those records meanwhile; then the error states it. Where a comparator of the program's own panics, some
//!    parts may be done.
//! 4. After a loss of power each shard is what a prefix of its updates made, up to the last sync at least.
//! 5. `clear` of a store in files is atomic across a crash; a shard at a time for those who read or write meanwhile.
//! 6. Records in order are merged from all shards, a few taken from each at once. A bookmark stays valid after reopening.
//!
//! ```text
//!   mod     reading and writing, by shard      many     update_many, the locks of several shards in their order
//!   merged  scans and cursors in order         files    create, open, check      layout  the manifest
//!   load    sorted records into tree files     copy     copies, and what changed since
//! ```
//!
//! It has no snapshots and no transactions, which would need one moment of all shards. It does not know what a shard does.

mod copy;
mod files;
#[doc(hidden)]
pub mod layout;
mod load;
mod many;
mod merged;

use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use layout::{KeyHash, ManifestFile};

pub use files::{CreateShard, ShardFile, files_of};
pub(crate) use files::{ShardEngine, shards_at};
pub use layout::{ENGINE, SHARDS_MAX};

use crate::engine::{
    Bookmark, Cursor, Damaged, DecideMany, Durability, Edit, Engine, Ordered, OrderedEngine,
    Persistent, Promise, Reader, Stats, Visit,
};
use crate::error::{Error, Kind, Result, quote};
use crate::explore::{Mutex, RwLock};
use crate::io::Storage;
use crate::order::Order;
use crate::range::Range;
use crate::record::gate;
use crate::room;

/// Keys whose records are prefetched at once.
const AHEAD: usize = 32;

/// A store of several shards. See the module's text.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("users.azt");
/// use azekura::record::tree::{CreateOptions, OpenOptions, TreeDb};
/// use azekura::shard::Sharded;
/// use azekura::{Reader as _, Verbs as _};
///
/// // The same as `azekura::create("users.azt?shards=4&cache=64MiB")` gives as a `Db`.
/// let options = CreateOptions::new().cache(64u64 << 20);
/// let users = Sharded::<TreeDb>::create(&path, 4, &options)?;
/// users.put_all(&[(b"alice", b"1"), (b"carol", b"3")])?;
/// users.close()?;
/// let users = Sharded::<TreeDb>::open(&path, &OpenOptions::new())?;
/// assert_eq!((users.shards().len(), users.count()), (4, 2));
/// let first = users.range::<&[u8]>(..)?.next().transpose()?;
/// assert_eq!(first, Some((b"alice".to_vec(), b"1".to_vec())));
/// # azekura::Result::Ok(())
/// ```
pub struct Sharded<E> {
    shards: Vec<E>,
    hash: KeyHash,
    order: Option<Order>,
    ordered: Option<fn(&Self) -> &dyn OrderedEngine>,
    persistent: Option<fn(&Self) -> &dyn Persistent>,
    /// Shared by updates of several shards and by copies; exclusive to a clear.
    whole: RwLock<()>,
    /// Set where a clear of a store in files has failed: the next opening completes it, and would remove what is put now.
    is_cleared_in_part: AtomicBool,
    manifest: Option<Mutex<ManifestFile>>,
    /// That of the manifest.
    storage: Option<Arc<dyn Storage>>,
}

/// Dropped where a clear fails: it is marked as such.
struct Unfinished<'s>(&'s AtomicBool);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A store over shards that have an order.
fn as_ordered<E: OrderedEngine>(store: &Sharded<E>) -> &dyn OrderedEngine {
    store
}

impl<E: Reader> Sharded<E> {
    fn of(shards: Vec<E>, seed: u64) -> Result<Self> {
        check_count(shards.len())?;
        Ok(Self {
            shards,
            hash: KeyHash::new(seed),
            order: None,
            ordered: None,
            persistent: None,
            whole: RwLock::new(()),
            is_cleared_in_part: AtomicBool::new(false),
            manifest: None,
            storage: None,
        })
    }

    /// A store over these, which are in memory, and empty or were shards under the same seed, in the same order. `Invalid` unless
    /// there are 1 to 256. `seed`: who chooses keys should not be able to guess it.
    pub fn over(shards: Vec<E>, seed: u64) -> Result<Self>
    where
        E: Engine,
    {
        Self::of(shards, seed)
    }

    /// As [`over`](Self::over), of shards with an order of keys, which it has then, too. `Invalid` also if their orders differ, or one is
    /// not registered ([`Order::register`]).
    pub fn over_ordered(shards: Vec<E>, seed: u64) -> Result<Self>
    where
        E: OrderedEngine,
    {
        let mut store = Self::of(shards, seed)?;
        store.set_ordered(as_ordered)?;
        Ok(store)
    }

    fn set_ordered(&mut self, door: fn(&Self) -> &dyn OrderedEngine) -> Result<()> {
        let mut names = self.shards.iter().filter_map(Reader::as_ordered);
        let first = names.next().map_or("", Ordered::order_name);
        if let Some(other) = names.map(Ordered::order_name).find(|name| *name != first) {
            return Err(Error::new(Kind::Invalid, "the orders of the shards differ")
                .found(other, first)
                .remedy("make all shards with the same order"));
        }
        self.order = Order::from_name(first);
        if self.order.is_none() {
            return Err(
                Error::new(Kind::Invalid, "the order of the shards is not known")
                    .found(quote(first.as_bytes()), "the name of an order"),
            );
        }
        self.ordered = Some(door);
        Ok(())
    }

    /// The shards.
    pub fn shards(&self) -> &[E] {
        &self.shards
    }

    /// Which of the shards has the record of this key.
    #[inline]
    pub fn shard_of(&self, key: &[u8]) -> usize {
        self.hash.shard_of(key, self.shards.len())
    }

    /// The order of keys, if it has one.
    pub fn order(&self) -> Option<Order> {
        self.order
    }

    /// Lends the value of `key`, or its absence, to `visit`, as the shard does.
    pub fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let (mut visit, mut answer) = (Some(visit), None);
        self.read(key, &mut |value| {
            answer = visit.take().map(|visit| visit(value));
        })?;
        answer.ok_or_else(|| {
            let error = Error::new(Kind::Corrupted, "a shard read a record without showing it");
            self.named(self.shard_of(key), error)
        })
    }

    /// Records whose keys are in a range, each a copy, in order, from either end; not of one moment: what stays is shown once, what
    /// others remove before its turn is not shown. `Invalid` where the range ends before it begins. Costs two searches a record, and
    /// memory for a record of each shard.
    pub fn range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<Range<'_>>
    where
        E: Ordered,
    {
        let cursors = [(); 2]
            .map(|()| -> Box<dyn Cursor + '_> { Box::new(merged::MergedCursor::new(self, false)) });
        Range::new(cursors, self.order_of_keys(), keys)
    }

    fn order_of_keys(&self) -> Order {
        self.order.unwrap_or_default()
    }

    /// The error of a shard: with its file, or its number.
    #[cold]
    fn named(&self, shard: usize, error: Error) -> Error {
        match self.shards.get(shard).and_then(Reader::as_persistent) {
            Some(file) => error.at(file.path()),
            None => error.of(format!("shard {shard}")),
        }
    }

    /// The indices of these keys, by shard: those of shard `n` from place `n` of the second list to place `n + 1`.
    fn by_shard(&self, keys: &[&[u8]]) -> Result<(Vec<usize>, Vec<usize>)> {
        let mut ends: Vec<usize> = room::vec(self.shards.len() + 1)?;
        ends.resize(self.shards.len() + 1, 0);
        let of = room::collect(keys.iter().map(|key| self.shard_of(key)))?;
        for shard in &of {
            ends[shard + 1] += 1;
        }
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        let mut next = room::collect(ends.iter().copied())?;
        let mut indices = room::collect(keys.iter().map(|_| 0))?;
        for (index, shard) in of.into_iter().enumerate() {
            indices[next[shard]] = index;
            next[shard] += 1;
        }
        Ok((indices, ends))
    }

    /// Calls `work` for each shard that has some of these keys, with them and their indices in `keys`.
    fn each_shard<'k>(
        &self,
        keys: &[&'k [u8]],
        mut work: impl FnMut(usize, &[&'k [u8]], &[usize]) -> Result<()>,
    ) -> Result<()> {
        let (indices, ends) = self.by_shard(keys)?;
        for shard in 0..self.shards.len() {
            let own = &indices[ends[shard]..ends[shard + 1]];
            if own.is_empty() {
                continue;
            }
            let keys = room::collect(own.iter().map(|index| keys[*index]))?;
            work(shard, &keys, own)?;
        }
        Ok(())
    }

    /// Shard by shard: a bookmark is the number of one and a place in it, or none, which is its beginning.
    fn scan_in_turn(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let (first, mut place) = match from {
            None => (0, None),
            Some(bookmark) => self.place_in_turn(bookmark)?,
        };
        for shard in first..self.shards.len() {
            let mut is_broken = false;
            let next = self.shards[shard].scan_past(
                place.take().as_ref(),
                &mut |key, value| {
                    let flow = visit(key, value);
                    is_broken = flow.is_break();
                    flow
                },
                &mut |error| damaged(self.named(shard, error)),
            );
            match next.map_err(|error| self.named(shard, error))? {
                Some(next) => return in_turn(shard, next.as_bytes()).map(Some),
                None if is_broken && shard + 1 < self.shards.len() => {
                    return in_turn(shard + 1, &[]).map(Some);
                }
                None if is_broken => return Ok(None),
                None => {}
            }
        }
        Ok(None)
    }

    fn place_in_turn(&self, bookmark: &Bookmark) -> Result<(usize, Option<Bookmark>)> {
        let parts = bookmark.as_bytes().split_first_chunk::<2>();
        let place = parts.map(|(shard, rest)| {
            let inner = (!rest.is_empty()).then(|| Bookmark::from_bytes(rest));
            (usize::from(u16::from_le_bytes(*shard)), inner)
        });
        place
            .filter(|(shard, _)| *shard < self.shards.len())
            .ok_or_else(|| {
                Error::new(Kind::Invalid, "not a bookmark of a store of so many shards")
                    .found(quote(bookmark.as_bytes()), "one that this store gave")
            })
    }
}

/// A place in a shard. Errors: `Full`.
fn in_turn(shard: usize, inner: &[u8]) -> Result<Bookmark> {
    Bookmark::of(&[&(shard as u16).to_le_bytes(), inner])
}

/// `Invalid` unless a store may have so many shards.
fn check_count(shards: usize) -> Result<()> {
    if (1..=SHARDS_MAX).contains(&shards) {
        return Ok(());
    }
    Err(Error::new(Kind::Invalid, "no store has so many shards")
        .found(shards, format!("1 to {SHARDS_MAX}")))
}

impl<E: Reader> Reader for Sharded<E> {
    #[inline]
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let shard = self.shard_of(key);
        let read = self.shards[shard].read(key, visit);
        read.map_err(|error| self.named(shard, error))
    }

    fn read_many(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.each_shard(keys, |shard, keys, indices| {
            let read =
                self.shards[shard].read_many(keys, &mut |at, value| visit(indices[at], value));
            read.map_err(|error| self.named(shard, error))
        })
    }

    fn prefetch_keys(&self, keys: &[&[u8]]) {
        // A hint: without memory for it, nothing is prefetched.
        let _ = self.each_shard(keys, |shard, keys, _| {
            self.shards[shard].prefetch_keys(keys);
            Ok(())
        });
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        match self.order {
            Some(order) => merged::scan(self, order, from, visit, damaged),
            None => self.scan_in_turn(from, visit, damaged),
        }
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        if self.order.is_some() {
            return crate::record::key_bookmark::at(key);
        }
        let shard = self.shard_of(key);
        let inner = self.shards[shard].bookmark_at(key);
        Bookmark::from_bytes(&[&(shard as u16).to_le_bytes(), inner.as_bytes()].concat())
    }

    fn count(&self) -> u64 {
        self.shards.iter().map(Reader::count).sum()
    }

    /// Sums; besides, how many shards there are, and the records of the least and the most filled one.
    fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        let (mut least, mut most) = (u64::MAX, 0);
        for shard in &self.shards {
            let own = shard.stats();
            sum.count += own.count;
            sum.live_bytes += own.live_bytes;
            sum.file_bytes += own.file_bytes;
            sum.memory_bytes += own.memory_bytes;
            (least, most) = (least.min(own.count), most.max(own.count));
        }
        sum.more = vec![
            ("shards", self.shards.len().to_string()),
            ("least_in_a_shard", least.to_string()),
            ("most_in_a_shard", most.to_string()),
        ];
        if let Some(order) = self.order {
            sum.more.insert(0, ("order", order.name().to_owned()));
        }
        sum
    }

    /// What each shard promises, but that an `update_many` is atomic across a crash only where there is one shard.
    fn promise(&self) -> Promise {
        let promises = self.shards.iter().map(Reader::promise);
        let least = promises.reduce(|a, b| Promise {
            engine: a.engine,
            evicts: a.evicts || b.evicts,
            durability: a.durability.min(b.durability),
            update_many_is_crash_atomic: false,
            key_len_max: a.key_len_max.min(b.key_len_max),
            value_len_max: a.value_len_max.min(b.value_len_max),
        });
        least.unwrap_or_else(|| unreachable!("a store has a shard"))
    }

    fn as_ordered(&self) -> Option<&dyn Ordered> {
        self.ordered.map(|door| door(self) as &dyn Ordered)
    }

    fn as_persistent(&self) -> Option<&dyn Persistent> {
        self.persistent.map(|door| door(self))
    }
}

impl<E: Engine> Engine for Sharded<E> {
    #[inline]
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.is_cleared()?;
        let shard = self.shard_of(key);
        let updated = self.shards[shard].update(key, decide);
        updated.map_err(|error| self.named(shard, error))
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        self.is_cleared()?;
        self.edit_many(keys, decide)
    }

    fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut keys: Vec<&[u8]> = Vec::with_capacity(AHEAD);
        for some in records.chunks(AHEAD) {
            keys.clear();
            keys.extend(some.iter().map(|(key, _)| *key));
            self.prefetch_keys(&keys);
            for (key, value) in some {
                self.update(key, &mut |_| Edit::put(value))?;
            }
        }
        Ok(())
    }

    fn as_ordered_engine(&self) -> Option<&dyn OrderedEngine> {
        self.ordered.map(|door| door(self))
    }

    /// Removes every record, of one shard after the other: others may see, and change, what is left meanwhile. Of a store in files it is
    /// atomic across a crash, and costs a sync of each shard and three of the manifest. If it fails there, updates are refused until the
    /// store is opened again, which completes it.
    fn clear(&self) -> Result<()> {
        gate::outside_updates()?;
        self.is_cleared()?;
        let _alone = self.whole.write();
        self.cleared_if_cut_short(|| self.clear_all())
    }
}

impl<E: Engine> Sharded<E> {
    /// Removes the records of each shard, and syncs those in files.
    fn clear_all(&self) -> Result<()> {
        for (shard, store) in self.shards.iter().enumerate() {
            let cleared = store.clear();
            cleared.map_err(|error| self.named(shard, error))?;
        }
        for (shard, store) in self.shards.iter().enumerate() {
            if let Some(file) = store.as_persistent() {
                let synced = file.sync(Durability::Power);
                synced.map_err(|error| self.named(shard, error))?;
            }
        }
        Ok(())
    }
}

impl<E> Sharded<E> {
    /// Does work that leaves no records where it is cut short: the next opening removes all. If it fails, updates are refused until then.
    fn cleared_if_cut_short<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(manifest) = &self.manifest else {
            return work();
        };
        let mut manifest = manifest.lock();
        let unfinished = Unfinished(&self.is_cleared_in_part);
        manifest.begin_clear()?;
        let done = work()?;
        manifest.end_clear()?;
        std::mem::forget(unfinished);
        Ok(done)
    }

    /// `Poisoned` after a clear that failed.
    #[inline(always)]
    fn is_cleared(&self) -> Result<()> {
        if self.is_cleared_in_part.load(Ordering::Relaxed) {
            return Err(self.cleared_in_part());
        }
        Ok(())
    }

    #[cold]
    fn cleared_in_part(&self) -> Error {
        let error = Error::new(
            Kind::Poisoned,
            "a clear has failed, and is completed by the next opening",
        );
        let error = error.remedy("open the store again; what is put before that would be removed");
        match &self.storage {
            Some(storage) => error.at(storage.path()),
            None => error,
        }
    }
}

impl<E> std::fmt::Debug for Sharded<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharded")
            .field("shards", &self.shards.len())
            .field("order", &self.order)
            .field("path", &self.storage.as_ref().map(|storage| storage.path()))
            .finish_non_exhaustive()
    }
}
