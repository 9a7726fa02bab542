//! One store of records in a file, with everything that it does as a method.
//!
//! [`create`](crate::create) and [`open`](fn@crate::open) give a [`Db`]; nothing else has to be imported. Keys and values are anything
//! that is bytes. Its engine is a hash file, the fastest to find one record, or a tree file, whose records are in the order of
//! their keys: a new file is a tree if its name ends with `.azt`, an old one is what it is.
//!
//! With `?shards=8` after the path it is 8 such files, each for a part of the keys, as one store ([`Sharded`]): what one waits for, the
//! others do not.
//!
//! Options of creating a file, which stay with it, and of an opening, which do not, are those of the engine. They stand after the
//! path, as in `users.azt?cache=1GiB&order=decimal` ([`parameters`](crate::parameters)), or a `Db` is made of an engine that a program
//! has opened itself: `Db::from(TreeDb::open(..)?)`.
//!
//! It adds nothing to what the engine promises ([`HashDb`], [`TreeDb`], [`Sharded`]).

mod copies;

use std::ops::{ControlFlow, RangeBounds};
use std::path::Path;

use crate::damage::Damage;
use crate::engine::{
    Bookmark, CheckReport, Cursor, Durability, Edit, Engine, Ordered as _, OrderedEngine as _,
    Persistent, Reader, Stats,
};
use crate::error::{Error, Kind, Result};
use crate::open::{is_tree, names_a_tree};
use crate::order::{Order, bounds_of};
use crate::parameters::PathParameters;
use crate::range::Range;
use crate::record::hash::{CreateOptions, HashDb, OpenOptions};
use crate::record::tree::{self, Snapshot, Transaction, TreeDb};
use crate::shard::{ShardEngine, Sharded, shards_at};
use crate::verbs::{Desired, Exchange, Expected, Rekeyed, Search, Verbs};

/// Records that an iterator takes from the store at once.
const BATCH: usize = 256;
/// Bytes of keys and values after which it takes no more at once.
const BATCH_BYTES: usize = 1 << 20;

/// Makes a store of records in a new file, and opens it. Options may stand after the path ([`parameters`](crate::parameters)); without
/// any it is a tree if its name ends with `.azt`, else a hash file. Costs two syncs.
///
/// `Invalid` if there is something of that name, and for parameters that there are not; `Io` if the system refuses.
pub fn create(path: impl AsRef<Path>) -> Result<Db> {
    let given = PathParameters::of(path.as_ref())?;
    let is_tree = given.is_tree()?.unwrap_or(names_a_tree(given.path));
    match (is_tree, given.shards()?) {
        (true, None) => TreeDb::create(given.path, &given.of_tree(true)?).map(Db::from),
        (false, None) => Db::create(given.path, &given.of_hash(true)?),
        (true, Some(shards)) => {
            Sharded::<TreeDb>::create(given.path, shards, &given.of_tree(true)?).map(Db::from)
        }
        (false, Some(shards)) => {
            Sharded::<HashDb>::create(given.path, shards, &given.of_hash(true)?).map(Db::from)
        }
    }
}

/// Opens a store of records for reading and writing; after a crash it recovers. Options may stand after the path
/// ([`parameters`](crate::parameters)).
///
/// `Mismatch` if the file is no store of records, of a newer version, of another order or number of shards than is stated, or one of its
/// shards is missing; `Locked` if it is open for
/// writing; `Invalid` for parameters that there are not; `Io`.
pub fn open(path: impl AsRef<Path>) -> Result<Db> {
    let given = PathParameters::of(path.as_ref())?;
    let of_shards = shards_at(given.path)?;
    given.expect_shards(of_shards.map(|(_, shards)| shards))?;
    match of_shards {
        Some((ShardEngine::Tree, _)) => {
            let options = given.of_tree(false)?.opening;
            return Sharded::<TreeDb>::open(given.path, &options).map(Db::from);
        }
        Some((ShardEngine::Hash, _)) => {
            let options = given.of_hash(false)?.opening;
            return Sharded::<HashDb>::open(given.path, &options).map(Db::from);
        }
        None => {}
    }
    if !is_tree(given.path)? {
        return Db::open(given.path, &given.of_hash(false)?.opening);
    }
    TreeDb::open(given.path, &given.of_tree(false)?.opening).map(Db::from)
}

/// An open store of records. See the module's text; what it promises is stated at [`HashDb`] and [`TreeDb`].
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # std::env::set_current_dir(&folder).unwrap();
/// let db = azekura::create("fruit.azh")?;
/// db.put("apple", "red")?;
/// assert_eq!(db.get("apple")?.as_deref(), Some(&b"red"[..]));
/// assert_eq!(db.increment("visits", 1, 0)?, 1);
/// db.sync()?;
/// db.close()
/// # ?; azekura::Result::Ok(())
/// ```
pub struct Db(Store);

/// Its engine.
enum Store {
    Hash(HashDb),
    Tree(TreeDb),
    HashShards(Sharded<HashDb>),
    TreeShards(Sharded<TreeDb>),
}

impl From<HashDb> for Db {
    fn from(db: HashDb) -> Self {
        Self(Store::Hash(db))
    }
}

impl From<TreeDb> for Db {
    fn from(db: TreeDb) -> Self {
        Self(Store::Tree(db))
    }
}

impl From<Sharded<HashDb>> for Db {
    fn from(db: Sharded<HashDb>) -> Self {
        Self(Store::HashShards(db))
    }
}

impl From<Sharded<TreeDb>> for Db {
    fn from(db: Sharded<TreeDb>) -> Self {
        Self(Store::TreeShards(db))
    }
}

/// Evaluates an expression of the engine, whichever it is.
macro_rules! of_engine {
    ($db:expr, $store:ident => $call:expr) => {
        match $db {
            Store::Hash($store) => $call,
            Store::Tree($store) => $call,
            Store::HashShards($store) => $call,
            Store::TreeShards($store) => $call,
        }
    };
}

/// Lends keys or records as slices.
fn slices<'a, B: AsRef<[u8]> + 'a>(all: impl IntoIterator<Item = &'a B>) -> Vec<&'a [u8]> {
    all.into_iter().map(AsRef::as_ref).collect()
}

fn records<K: AsRef<[u8]>, V: AsRef<[u8]>>(all: &[(K, V)]) -> Vec<(&[u8], &[u8])> {
    all.iter()
        .map(|(key, value)| (key.as_ref(), value.as_ref()))
        .collect()
}

/// Making and opening.
impl Db {
    /// As [`create`](crate::create), a hash file at this path, with options. `Invalid` also for one that is out of range.
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<Self> {
        HashDb::create(path, options).map(Self::from)
    }

    /// As [`open`](fn@crate::open), a hash file at this path, with options. `Invalid` for one that is out of range.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        HashDb::open(path, options).map(Self::from)
    }

    /// As [`open`](fn@crate::open), whatever is at this path, with options of either engine. `Invalid` for one that is out of range.
    pub fn open_with(
        path: impl AsRef<Path>,
        of_hash: &OpenOptions,
        of_tree: &tree::OpenOptions,
    ) -> Result<Self> {
        let path = path.as_ref();
        match shards_at(path)? {
            Some((ShardEngine::Tree, _)) => Sharded::<TreeDb>::open(path, of_tree).map(Self::from),
            Some((ShardEngine::Hash, _)) => Sharded::<HashDb>::open(path, of_hash).map(Self::from),
            None if is_tree(path)? => TreeDb::open(path, of_tree).map(Self::from),
            None => HashDb::open(path, of_hash).map(Self::from),
        }
    }
}

/// Reading.
impl Db {
    /// A copy of the value, or `None`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        of_engine!(&self.0, db => db.get(key.as_ref()))
    }

    /// Lends the value, or its absence, to `visit`: no copy, no lock.
    pub fn read<R>(
        &self,
        key: impl AsRef<[u8]>,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        of_engine!(&self.0, db => db.read_with(key.as_ref(), visit))
    }

    /// A copy of the value of each key, in the order of `keys`; not of one moment.
    pub fn get_many(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Vec<u8>>>> {
        of_engine!(&self.0, db => Verbs::get_many(db, &slices(keys)))
    }

    /// Whether there is a record.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        of_engine!(&self.0, db => Verbs::contains(db, key.as_ref()))
    }

    /// The number that [`increment`](Self::increment) wrote, or `None`. `Invalid` if the value has another length than 8.
    pub fn counter(&self, key: impl AsRef<[u8]>) -> Result<Option<i64>> {
        of_engine!(&self.0, db => Verbs::counter(db, key.as_ref()))
    }

    /// The number that [`increment_float`](Self::increment_float) wrote, or `None`. `Invalid` if the value has another length
    /// than 8.
    pub fn counter_float(&self, key: impl AsRef<[u8]>) -> Result<Option<f64>> {
        of_engine!(&self.0, db => Verbs::counter_float(db, key.as_ref()))
    }

    /// All records, of a tree file in order, else in none, each a copy; not of one moment: a record that stays is shown once. Costs a
    /// scan.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            db: self,
            from: None,
            is_at_end: false,
            batch: Vec::new().into_iter(),
            failed: None,
        }
    }

    /// Records whose keys match, at most `limit`. Costs a scan.
    pub fn search(&self, search: &Search, limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        of_engine!(&self.0, db => Verbs::search(db, search, limit, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        }))?;
        Ok(found)
    }

    /// How many records there are.
    pub fn count(&self) -> u64 {
        of_engine!(&self.0, db => Reader::count(db))
    }

    /// Sizes and counts.
    pub fn stats(&self) -> Stats {
        of_engine!(&self.0, db => Reader::stats(db))
    }
}

/// The order of keys, of a tree file; of another one, `Invalid`.
impl Db {
    /// The order of its keys; `None` of a hash file.
    pub fn order(&self) -> Option<Order> {
        match &self.0 {
            Store::Tree(db) => Some(db.order()),
            Store::TreeShards(db) => db.order(),
            Store::Hash(_) | Store::HashShards(_) => None,
        }
    }

    #[cold]
    fn has_no_order(&self) -> Error {
        Error::new(Kind::Invalid, "a hash file has no order of keys")
            .at(self.path())
            .remedy("make a tree file, with a name that ends with .azt, and copy the records")
    }

    /// The tree file, of which snapshots are taken.
    fn one_tree(&self) -> Result<&TreeDb> {
        match &self.0 {
            Store::Tree(db) => Ok(db),
            Store::TreeShards(_) => {
                let what = "a store of several shards has no snapshots and no transactions";
                Err(Error::new(Kind::Invalid, what)
                    .at(self.path())
                    .remedy("make a tree file without `shards`, and copy the records"))
            }
            Store::Hash(_) | Store::HashShards(_) => Err(self.has_no_order()),
        }
    }

    /// Changes how many bytes of pages a tree file keeps in memory, while others use it ([`TreeDb::set_cache`]); of several shards, each
    /// keeps its share. `Invalid` of a hash file, which has no pages.
    pub fn set_cache(&self, bytes: u64) -> Result<()> {
        match &self.0 {
            Store::Tree(db) => db.set_cache(bytes),
            Store::TreeShards(db) => {
                let each = bytes / db.shards().len() as u64;
                (db.shards().iter()).try_for_each(|shard| shard.set_cache(each))
            }
            Store::Hash(_) | Store::HashShards(_) => {
                let error = Error::new(Kind::Invalid, "a hash file has no cache of pages");
                Err(error.at(self.path()))
            }
        }
    }

    /// A place among the records, on none of them. A step costs no access where its leaf is in memory; of several shards, a search in
    /// each.
    pub fn cursor(&self) -> Result<Box<dyn Cursor + '_>> {
        match &self.0 {
            Store::Tree(db) => Ok(db.cursor()),
            Store::TreeShards(db) => Ok(db.cursor()),
            Store::Hash(_) | Store::HashShards(_) => Err(self.has_no_order()),
        }
    }

    /// Records whose keys are in a range, each a copy, in order, from either end; not of one moment. `Invalid` also where the range
    /// ends before it begins.
    pub fn range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<Range<'_>> {
        let range = match &self.0 {
            Store::Tree(db) => Range::new([db.cursor(), db.cursor()], db.order(), keys),
            Store::TreeShards(db) => db.range(keys),
            Store::Hash(_) | Store::HashShards(_) => return Err(self.has_no_order()),
        };
        range.map_err(|error| error.at(self.path()))
    }

    /// How many records there are whose keys are in a range. `Invalid` also where that ends before it begins. Costs what it does in each file
    /// ([`TreeDb::count_range`]).
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # std::env::set_current_dir(&folder).unwrap();
    /// let db = azekura::create("fruit.azt")?;
    /// db.put_many(&[("apple", "red"), ("lemon", "yellow"), ("plum", "blue")])?;
    /// assert_eq!(db.count_range("b"..)?, 2);
    /// assert_eq!(db.remove_range("apple"..="lemon")?, 2);
    /// assert_eq!(db.pop_last()?, Some((b"plum".to_vec(), b"blue".to_vec())));
    /// # azekura::Result::Ok(())
    /// ```
    pub fn count_range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<u64> {
        let keys = bounds_of(&keys);
        let count = match &self.0 {
            Store::Tree(db) => db.count_between(keys),
            Store::TreeShards(db) => db.count_between(keys),
            Store::Hash(_) | Store::HashShards(_) => return Err(self.has_no_order()),
        };
        count.map_err(|error| error.at(self.path()))
    }

    /// All records as they are now, to be read while others change them, for as long as it lives. `Invalid` of several shards, as is a
    /// transaction.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # std::env::set_current_dir(&folder).unwrap();
    /// let db = azekura::create("fruit.azt")?;
    /// db.put("apple", "red")?;
    /// let before = db.snapshot()?;
    /// db.put("apple", "green")?;
    /// assert_eq!(before.get("apple")?.as_deref(), Some(&b"red"[..]));
    /// # azekura::Result::Ok(())
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        self.one_tree()?.snapshot()
    }

    /// Begins a transaction: reads at this moment, and writes that happen together when it commits, or not at all.
    pub fn transaction(&self) -> Result<Transaction<'_>> {
        self.one_tree()?.transaction()
    }

    /// Calls `work` with a transaction, and commits that; again from the beginning, up to 16 times, where others came before it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # std::env::set_current_dir(&folder).unwrap();
    /// let db = azekura::create("fruit.azt")?;
    /// db.put("basket", "apple")?;
    /// let moved = db.transact(|transaction| {
    ///     let Some(fruit) = transaction.get("basket")? else {
    ///         return Ok(false);
    ///     };
    ///     transaction.put("bowl", fruit)?;
    ///     transaction.remove("basket")?;
    ///     Ok(true)
    /// })?;
    /// assert!(moved && !db.contains("basket")? && db.contains("bowl")?);
    /// # azekura::Result::Ok(())
    /// ```
    pub fn transact<T>(&self, work: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        self.one_tree()?.transact(work)
    }

    /// Puts records, in the ascending order of their keys, into an empty store: all of them or none, also across a crash, and durable when
    /// it returns. How many they were. Errors and costs are those of [`TreeDb::load_sorted`]; several shards are loaded at once
    /// ([`Sharded::load_sorted`]).
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # std::env::set_current_dir(&folder).unwrap();
    /// let mut db = azekura::create("squares.azt?shards=4")?;
    /// let squares = (0..1000).map(|n| Ok((format!("{n:04}"), (n * n).to_string())));
    /// assert_eq!(db.load_sorted(squares)?, 1000);
    /// assert_eq!(db.get("0012")?.as_deref(), Some(&b"144"[..]));
    /// # azekura::Result::Ok(())
    /// ```
    pub fn load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        records: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<u64> {
        match &mut self.0 {
            Store::Tree(db) => db.load_sorted(records),
            Store::TreeShards(db) => db.load_sorted(records),
            Store::Hash(_) | Store::HashShards(_) => Err(self.has_no_order()),
        }
    }

    /// The first record in order.
    pub fn first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.range::<&[u8]>(..)?.next().transpose()
    }

    /// The last record in order.
    pub fn last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.range::<&[u8]>(..)?.next_back().transpose()
    }

    /// Takes out the last record in order; `None` if there is none.
    pub fn pop_last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match &self.0 {
            Store::Tree(db) => db.pop_last(),
            Store::TreeShards(db) => db.pop_last(),
            Store::Hash(_) | Store::HashShards(_) => Err(self.has_no_order()),
        }
    }

    /// Removes the records whose keys are in a range, as one change, of several shards one after the other; how many there were.
    /// `Invalid` also where the range ends before it begins.
    /// What it costs is stated at [`TreeDb::remove_range`].
    pub fn remove_range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<u64> {
        let keys = bounds_of(&keys);
        match &self.0 {
            Store::Tree(db) => db.remove_between(keys),
            Store::TreeShards(db) => db.remove_between(keys),
            Store::Hash(_) | Store::HashShards(_) => Err(self.has_no_order()),
        }
    }
}

/// Changing one record; each method is one atomic step.
impl Db {
    /// Sets the value of `key`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        of_engine!(&self.0, db => db.put(key.as_ref(), value.as_ref()))
    }

    /// Sets the value if there is no record; whether there was none.
    pub fn put_new(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        of_engine!(&self.0, db => Verbs::put_new(db, key.as_ref(), value.as_ref()))
    }

    /// Sets the value if there is a record; whether there was one.
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        of_engine!(&self.0, db => Verbs::replace(db, key.as_ref(), value.as_ref()))
    }

    /// Sets the value, and returns the one before.
    pub fn swap(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        of_engine!(&self.0, db => Verbs::swap(db, key.as_ref(), value.as_ref()))
    }

    /// Removes the record; whether there was one.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        of_engine!(&self.0, db => db.remove(key.as_ref()))
    }

    /// Removes the record, and returns its value.
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        of_engine!(&self.0, db => Verbs::take(db, key.as_ref()))
    }

    /// Appends to the value, after `delimiter` if there is one already.
    pub fn append(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        delimiter: impl AsRef<[u8]>,
    ) -> Result<()> {
        of_engine!(&self.0, db => Verbs::append(db, key.as_ref(), value.as_ref(), delimiter.as_ref()))
    }

    /// Adds to the number under `key`, which begins at `initial`; returns the sum. `Invalid` if the value is no such number or the
    /// sum is out of range.
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64, initial: i64) -> Result<i64> {
        of_engine!(&self.0, db => Verbs::increment(db, key.as_ref(), by, initial))
    }

    /// As [`increment`](Self::increment), of a floating-point number.
    pub fn increment_float(&self, key: impl AsRef<[u8]>, by: f64, initial: f64) -> Result<f64> {
        of_engine!(&self.0, db => Verbs::increment_float(db, key.as_ref(), by, initial))
    }

    /// Does what is `desired` if the record is as `expected`. A difference is an outcome, not an error.
    pub fn compare_exchange(
        &self,
        key: impl AsRef<[u8]>,
        expected: Expected<'_>,
        desired: Desired<'_>,
    ) -> Result<Exchange> {
        of_engine!(&self.0, db => Verbs::compare_exchange(db, key.as_ref(), expected, desired))
    }

    /// Calls `decide` once, under the record's lock, with the value or its absence, and applies its answer. `decide` must not call
    /// this store.
    pub fn update<'a>(
        &self,
        key: impl AsRef<[u8]>,
        mut decide: impl FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        of_engine!(&self.0, db => Engine::update(db, key.as_ref(), &mut decide))
    }

    /// Moves the value of `old` to the key `new`; with `copying` the old record stays. Without `overwrite` a record under `new`
    /// stops it.
    pub fn rekey(
        &self,
        old: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
        overwrite: bool,
        copying: bool,
    ) -> Result<Rekeyed> {
        of_engine!(&self.0, db => Verbs::rekey(db, old.as_ref(), new.as_ref(), overwrite, copying))
    }

    /// Takes out a record, the first of a scan: of a tree file, the first in order. `None` if there is none.
    pub fn pop_first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        of_engine!(&self.0, db => db.pop_first())
    }

    /// Puts a record under a key that is later than those given before, and returns the key; `now`: seconds since 1970, else the
    /// clock's.
    pub fn push_last(&self, value: impl AsRef<[u8]>, now: Option<f64>) -> Result<Vec<u8>> {
        of_engine!(&self.0, db => Verbs::push_last(db, value.as_ref(), now))
    }
}

/// Changing many records.
impl Db {
    /// Puts each record, in order; each is atomic by itself. Faster than one call for each.
    pub fn put_many(&self, all: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Result<()> {
        of_engine!(&self.0, db => Engine::put_many(db, &records(all)))
    }

    /// Puts all records as one change: after a crash all are there or none is, of several shards those of each shard.
    pub fn put_all(&self, all: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Result<()> {
        of_engine!(&self.0, db => Verbs::put_all(db, &records(all)))
    }

    /// Puts each record that is not there; how many were not.
    pub fn put_many_new(&self, all: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Result<u64> {
        of_engine!(&self.0, db => Verbs::put_many_new(db, &records(all)))
    }

    /// Appends to each record, in order.
    pub fn append_many(
        &self,
        all: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)],
        delimiter: impl AsRef<[u8]>,
    ) -> Result<()> {
        of_engine!(&self.0, db => Verbs::append_many(db, &records(all), delimiter.as_ref()))
    }

    /// Removes each record; how many there were.
    pub fn remove_many(&self, keys: &[impl AsRef<[u8]>]) -> Result<u64> {
        of_engine!(&self.0, db => db.remove_many(&slices(keys)))
    }

    /// Removes all of these as one change, as [`put_all`](Self::put_all); how many there were.
    pub fn remove_all(&self, keys: &[impl AsRef<[u8]>]) -> Result<u64> {
        of_engine!(&self.0, db => Verbs::remove_all(db, &slices(keys)))
    }

    /// Shows all values at once to `decide`, which answers one edit for each key: one change, isolated from all others, and whole
    /// or absent after a crash; of several shards, that of each shard is.
    pub fn update_many<'a>(
        &self,
        keys: &[impl AsRef<[u8]>],
        mut decide: impl FnMut(&[Option<&[u8]>]) -> Vec<Edit<'a>>,
    ) -> Result<()> {
        of_engine!(&self.0, db => Engine::update_many(db, &slices(keys), &mut decide))
    }

    /// If all of `expected` are met, does all that is `desired`, as one change; whether they were.
    pub fn compare_exchange_many(
        &self,
        expected: &[(&[u8], Expected<'_>)],
        desired: &[(&[u8], Desired<'_>)],
    ) -> Result<bool> {
        of_engine!(&self.0, db => Verbs::compare_exchange_many(db, expected, desired))
    }

    /// Removes every record, as one change.
    pub fn clear(&self) -> Result<()> {
        of_engine!(&self.0, db => Engine::clear(db))
    }
}

/// The file.
impl Db {
    /// Returns when everything acknowledged survives loss of power. One sync of the device, shared by all callers that wait.
    pub fn sync(&self) -> Result<()> {
        of_engine!(&self.0, db => Persistent::sync(db, Durability::Power))
    }

    /// Verifies everything; `progress` gets (done, total). Costs a read of the file.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport> {
        of_engine!(&self.0, db => Persistent::check(db, &mut progress))
    }

    /// Known damage; empty if there is none.
    pub fn damage(&self) -> Vec<Damage> {
        of_engine!(&self.0, db => db.damage())
    }

    /// Copies the store to a new file while it is used.
    pub fn copy_to(
        &self,
        target: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<()> {
        of_engine!(&self.0, db => Persistent::copy_to(db, target.as_ref(), &mut progress))
    }

    /// Gives unused space back to the file system while the store is used.
    pub fn compact(&self, mut progress: impl FnMut(u64, u64)) -> Result<()> {
        of_engine!(&self.0, db => db.compact(&mut progress))
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        of_engine!(&self.0, db => Persistent::path(db))
    }

    /// Properties of the file, by name, in a fixed order.
    pub fn inspect(&self) -> Vec<(&'static str, String)> {
        of_engine!(&self.0, db => db.inspect())
    }

    /// The engine, for programs that are generic over them.
    pub fn engine(&self) -> &dyn Engine {
        of_engine!(&self.0, db => db)
    }

    /// The hash file, for what only it can do; `None` of a tree file, and of several.
    pub fn as_hash(&self) -> Option<&HashDb> {
        match &self.0 {
            Store::Hash(db) => Some(db),
            _ => None,
        }
    }

    /// The tree file, for what only it can do; `None` of a hash file, and of several.
    pub fn as_tree(&self) -> Option<&TreeDb> {
        match &self.0 {
            Store::Tree(db) => Some(db),
            _ => None,
        }
    }

    /// Closes the store: everything is durable, and the next open is quick. Dropping does the same, but can only trace an error.
    pub fn close(self) -> Result<()> {
        of_engine!(self.0, db => db.close())
    }
}

/// Copies of all records of a store, taken from it some hundred, or about a megabyte, at a time. An error ends it, after the
/// records that come before it.
pub struct Iter<'d> {
    db: &'d Db,
    from: Option<Bookmark>,
    is_at_end: bool,
    batch: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    /// What ended the scan, to be returned after the batch.
    failed: Option<Error>,
}

impl Iterator for Iter<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.batch.next() {
                return Some(Ok(record));
            }
            if self.is_at_end {
                return self.failed.take().map(Err);
            }
            let (mut batch, mut bytes) = (Vec::new(), 0);
            let scanned = self
                .db
                .engine()
                .scan(self.from.as_ref(), &mut |key, value| {
                    batch.push((key.to_vec(), value.to_vec()));
                    bytes += key.len() + value.len();
                    if batch.len() < BATCH && bytes < BATCH_BYTES {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                });
            self.batch = batch.into_iter();
            match scanned {
                Ok(from) => {
                    self.is_at_end = from.is_none();
                    self.from = from;
                }
                Err(error) => {
                    self.is_at_end = true;
                    self.failed = Some(error);
                }
            }
        }
    }
}

impl<'d> IntoIterator for &'d Db {
    type Item = Result<(Vec<u8>, Vec<u8>)>;
    type IntoIter = Iter<'d>;

    fn into_iter(self) -> Iter<'d> {
        self.iter()
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Db").field(&self.path()).finish()
    }
}
