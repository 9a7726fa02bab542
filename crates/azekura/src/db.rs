//! One store of records in a file, with everything that it does as a method.
//!
//! [`create`](crate::create) and [`open`](fn@crate::open) give a [`Db`]; nothing else has to be imported. Keys and values are anything
//! that is bytes. An engine of [`record`](crate::record) is for programs that choose one, or are generic over them; a `Db` lends
//! its engine ([`Db::engine`]).
//!
//! Options of creating a file, which stay with it, and of an opening, which do not, are those of the engine: [`CreateOptions`] and
//! [`OpenOptions`].
//!
//! It adds nothing to what the engine promises.

use std::path::Path;

use crate::damage::Damage;
use crate::engine::{Bookmark, CheckReport, Durability, Edit, Engine, Persistent, Reader, Stats};
use crate::error::{Error, Result};
use crate::record::hash::{CreateOptions, HashDb, OpenOptions};
use crate::verbs::{Desired, Exchange, Expected, Rekeyed, Search, Verbs};

/// Records that an iterator takes from the store at once.
const BATCH: usize = 256;
/// Bytes of keys and values after which it takes no more at once.
const BATCH_BYTES: usize = 1 << 20;

/// Makes a store of records in a new file, with default options, and opens it. Costs two syncs.
///
/// `Invalid` if there is something of that name; `Io` if the system refuses.
pub fn create(path: impl AsRef<Path>) -> Result<Db> {
    Db::create(path, &CreateOptions::new())
}

/// Opens a store of records for reading and writing, with default options; after a crash it recovers.
///
/// `Mismatch` if the file is no store of records, or of a newer version; `Locked` if it is open for writing; `Io`.
pub fn open(path: impl AsRef<Path>) -> Result<Db> {
    Db::open(path, &OpenOptions::new())
}

/// An open store of records. See the module's text; what it promises is stated at [`HashDb`].
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
pub struct Db(HashDb);

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
    /// As [`create`](crate::create), with options. `Invalid` also for one that is out of range.
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<Self> {
        HashDb::create(path, options).map(Self)
    }

    /// As [`open`](fn@crate::open), with options. `Invalid` for one that is out of range.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        HashDb::open(path, options).map(Self)
    }
}

/// Reading.
impl Db {
    /// A copy of the value, or `None`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.0.get(key.as_ref())
    }

    /// Lends the value, or its absence, to `visit`: no copy, no lock.
    pub fn read<R>(
        &self,
        key: impl AsRef<[u8]>,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        self.0.read_with(key.as_ref(), visit)
    }

    /// A copy of the value of each key, in the order of `keys`; not of one moment.
    pub fn get_many(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Vec<u8>>>> {
        Verbs::get_many(&self.0, &slices(keys))
    }

    /// Whether there is a record.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Verbs::contains(&self.0, key.as_ref())
    }

    /// The number that [`increment`](Self::increment) wrote, or `None`. `Invalid` if the value has another length than 8.
    pub fn counter(&self, key: impl AsRef<[u8]>) -> Result<Option<i64>> {
        Verbs::counter(&self.0, key.as_ref())
    }

    /// The number that [`increment_float`](Self::increment_float) wrote, or `None`. `Invalid` if the value has another length
    /// than 8.
    pub fn counter_float(&self, key: impl AsRef<[u8]>) -> Result<Option<f64>> {
        Verbs::counter_float(&self.0, key.as_ref())
    }

    /// All records, in no particular order, each a copy; not of one moment: a record that stays is shown once. Costs a scan.
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
        Verbs::search(&self.0, search, limit, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// How many records there are.
    pub fn count(&self) -> u64 {
        Reader::count(&self.0)
    }

    /// Sizes and counts.
    pub fn stats(&self) -> Stats {
        Reader::stats(&self.0)
    }
}

/// Changing one record; each method is one atomic step.
impl Db {
    /// Sets the value of `key`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.0.put(key.as_ref(), value.as_ref())
    }

    /// Sets the value if there is no record; whether there was none.
    pub fn put_new(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        Verbs::put_new(&self.0, key.as_ref(), value.as_ref())
    }

    /// Sets the value if there is a record; whether there was one.
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        Verbs::replace(&self.0, key.as_ref(), value.as_ref())
    }

    /// Sets the value, and returns the one before.
    pub fn swap(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Verbs::swap(&self.0, key.as_ref(), value.as_ref())
    }

    /// Removes the record; whether there was one.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.0.remove(key.as_ref())
    }

    /// Removes the record, and returns its value.
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Verbs::take(&self.0, key.as_ref())
    }

    /// Appends to the value, after `delimiter` if there is one already.
    pub fn append(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        delimiter: impl AsRef<[u8]>,
    ) -> Result<()> {
        Verbs::append(&self.0, key.as_ref(), value.as_ref(), delimiter.as_ref())
    }

    /// Adds to the number under `key`, which begins at `initial`; returns the sum. `Invalid` if the value is no such number or the
    /// sum is out of range.
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64, initial: i64) -> Result<i64> {
        Verbs::increment(&self.0, key.as_ref(), by, initial)
    }

    /// As [`increment`](Self::increment), of a floating-point number.
    pub fn increment_float(&self, key: impl AsRef<[u8]>, by: f64, initial: f64) -> Result<f64> {
        Verbs::increment_float(&self.0, key.as_ref(), by, initial)
    }

    /// Does what is `desired` if the record is as `expected`. A difference is an outcome, not an error.
    pub fn compare_exchange(
        &self,
        key: impl AsRef<[u8]>,
        expected: Expected<'_>,
        desired: Desired<'_>,
    ) -> Result<Exchange> {
        Verbs::compare_exchange(&self.0, key.as_ref(), expected, desired)
    }

    /// Calls `decide` once, under the record's lock, with the value or its absence, and applies its answer. `decide` must not call
    /// this store.
    pub fn update<'a>(
        &self,
        key: impl AsRef<[u8]>,
        mut decide: impl FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        Engine::update(&self.0, key.as_ref(), &mut decide)
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
        Verbs::rekey(&self.0, old.as_ref(), new.as_ref(), overwrite, copying)
    }

    /// Takes out a record, the first of a scan; `None` if there is none.
    pub fn pop_first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        Verbs::pop_first(&self.0)
    }

    /// Puts a record under a key that is later than those given before, and returns the key; `now`: seconds since 1970, else the
    /// clock's.
    pub fn push_last(&self, value: impl AsRef<[u8]>, now: Option<f64>) -> Result<Vec<u8>> {
        Verbs::push_last(&self.0, value.as_ref(), now)
    }
}

/// Changing many records.
impl Db {
    /// Puts each record, in order; each is atomic by itself. Faster than one call for each.
    pub fn put_many(&self, all: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Result<()> {
        Engine::put_many(&self.0, &records(all))
    }

    /// Puts all records as one change: after a crash all are there or none is.
    pub fn put_all(&self, all: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Result<()> {
        Verbs::put_all(&self.0, &records(all))
    }

    /// Puts each record that is not there; how many were not.
    pub fn put_many_new(&self, all: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Result<u64> {
        Verbs::put_many_new(&self.0, &records(all))
    }

    /// Appends to each record, in order.
    pub fn append_many(
        &self,
        all: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)],
        delimiter: impl AsRef<[u8]>,
    ) -> Result<()> {
        Verbs::append_many(&self.0, &records(all), delimiter.as_ref())
    }

    /// Removes each record; how many there were.
    pub fn remove_many(&self, keys: &[impl AsRef<[u8]>]) -> Result<u64> {
        self.0.remove_many(&slices(keys))
    }

    /// Removes all of these as one change; how many there were.
    pub fn remove_all(&self, keys: &[impl AsRef<[u8]>]) -> Result<u64> {
        Verbs::remove_all(&self.0, &slices(keys))
    }

    /// Shows all values at once to `decide`, which answers one edit for each key: one change, isolated from all others, and whole
    /// or absent after a crash.
    pub fn update_many<'a>(
        &self,
        keys: &[impl AsRef<[u8]>],
        mut decide: impl FnMut(&[Option<&[u8]>]) -> Vec<Edit<'a>>,
    ) -> Result<()> {
        Engine::update_many(&self.0, &slices(keys), &mut decide)
    }

    /// If all of `expected` are met, does all that is `desired`, as one change; whether they were.
    pub fn compare_exchange_many(
        &self,
        expected: &[(&[u8], Expected<'_>)],
        desired: &[(&[u8], Desired<'_>)],
    ) -> Result<bool> {
        Verbs::compare_exchange_many(&self.0, expected, desired)
    }

    /// Removes every record, as one change.
    pub fn clear(&self) -> Result<()> {
        Engine::clear(&self.0)
    }
}

/// The file.
impl Db {
    /// Returns when everything acknowledged survives loss of power. One sync of the device, shared by all callers that wait.
    pub fn sync(&self) -> Result<()> {
        Persistent::sync(&self.0, Durability::Power)
    }

    /// Verifies everything; `progress` gets (done, total). Costs a read of the file.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport> {
        Persistent::check(&self.0, &mut progress)
    }

    /// Known damage; empty if there is none.
    pub fn damage(&self) -> Vec<Damage> {
        self.0.damage()
    }

    /// Copies the store to a new file while it is used.
    pub fn copy_to(
        &self,
        target: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<()> {
        Persistent::copy_to(&self.0, target.as_ref(), &mut progress)
    }

    /// Gives unused space back to the file system while the store is used.
    pub fn compact(&self, mut progress: impl FnMut(u64, u64)) -> Result<()> {
        self.0.compact(&mut progress)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        Persistent::path(&self.0)
    }

    /// The engine, for what only it can do.
    pub fn engine(&self) -> &HashDb {
        &self.0
    }

    /// Closes the store: everything is durable, and the next open is quick. Dropping does the same, but can only trace an error.
    pub fn close(self) -> Result<()> {
        self.0.close()
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
            let scanned = Reader::scan(&self.db.0, self.from.as_ref(), &mut |key, value| {
                batch.push((key.to_vec(), value.to_vec()));
                bytes += key.len() + value.len();
                if batch.len() < BATCH && bytes < BATCH_BYTES {
                    std::ops::ControlFlow::Continue(())
                } else {
                    std::ops::ControlFlow::Break(())
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
