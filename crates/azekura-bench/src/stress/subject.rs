//! What is put under stress: the calls that users make, of records and of objects.
//!
//! Keys are numbers here; each family makes its own of them. Where there are two ways to the same end (an engine's own
//! call, a verb behind `dyn`, a batch of one), `way` chooses, so that every one of them is tried.
//! It knows engines by their public calls alone.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use azekura::engine::{Engine as Records, Reader};
use azekura::error::{Error, Kind, Result};
use azekura::object::{Change, ObjectId, Store};
use azekura::record::hash::{HashDb, HashReader};
use azekura::verbs::{Desired, Expected};
use azekura::{Durability, Edit, Persistent, Verbs};
use clap::ValueEnum;

use super::shape::{Opening, Shape};
use crate::engines::direct::Direct;
use crate::words::word;

/// What is done to a whole store while threads change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Chore {
    Sync,
    Checkpoint,
    #[value(name = "compaction")]
    Compact,
    #[value(name = "maintenance")]
    Maintain,
    Check,
    /// Remove all.
    Clear,
    /// Remove all of a part of the key space.
    #[value(name = "removal of a range")]
    ClearPart,
    /// Look at every record.
    Scan,
    /// Copy the store, and look at every record of the copy.
    Copy,
    /// Look at every record as another process does.
    #[value(name = "scan by a reader")]
    Reader,
    /// Look at every object of a moment, twice.
    Snapshot,
}

impl Chore {
    pub(super) const COUNT: usize = Self::Snapshot as usize + 1;

    pub(super) fn word(self) -> String {
        word(&self)
    }
}

/// A key, and what it is to hold; `None`: nothing.
pub(super) type Wish = (u64, Option<Vec<u8>>);
/// Is shown a key and its value.
pub(super) type Show<'s> = &'s mut dyn FnMut(u64, &[u8]) -> Result<()>;

/// A store under stress. Threads share it.
pub(super) trait Subject: Sync + Sized {
    /// Whether it holds objects.
    const OBJECTS: bool = false;
    /// Whether what is acknowledged survives the process.
    const IN_FILE: bool = false;
    /// Whether a full store takes a value that is shorter than the one before.
    const TAKES_SHORTER: bool = false;
    /// What can be done to the whole.
    const CHORES: &'static [Chore] = &[Chore::Clear, Chore::Scan, Chore::Scan];

    /// Makes the store in `folder` if there is none, or opens it.
    fn open(shape: &Shape, opening: &Opening, folder: &Path) -> Result<Self>;
    fn close(self) -> Result<()>;
    fn read(&self, key: u64, way: u64, visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;
    /// Whether a part of a value is `expected`; `None`: this store has no such call.
    fn reads_part(&self, _key: u64, _range: Range<u64>, _expected: &[u8]) -> Result<Option<bool>> {
        Ok(None)
    }
    fn read_many(&self, keys: &[u64], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            self.read(*key, 0, &mut |value| visit(index, value))?;
        }
        Ok(())
    }
    fn put(&self, key: u64, value: &[u8], way: u64) -> Result<()>;
    fn put_new(&self, key: u64, value: &[u8]) -> Result<bool>;
    /// `false`: this store has no such call.
    fn append(&self, _key: u64, _suffix: &[u8], _way: u64) -> Result<bool> {
        Ok(false)
    }
    fn remove(&self, key: u64, way: u64) -> Result<bool>;
    /// Stores `desired` if the present value is `expected`.
    fn exchange(&self, key: u64, expected: &[u8], desired: Option<&[u8]>) -> Result<bool>;
    /// All or nothing.
    fn batch(&self, wishes: &[Wish]) -> Result<()>;
    /// Each for itself.
    fn many(&self, wishes: &[Wish]) -> Result<()>;
    /// Removes all keys of a range, or all.
    fn sweep(&self, range: Option<(u64, u64)>) -> Result<()>;
    /// Shows every record in the way of a chore.
    fn view(&self, chore: Chore, scratch: &Path, show: Show<'_>) -> Result<()>;
    fn tend(&self, _chore: Chore) -> Result<()> {
        Ok(())
    }
    fn count(&self) -> u64;
    /// What is damaged.
    fn check(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// The key of a number: eight digits, and of some keys many bytes after them.
pub(super) fn key_of(number: u64) -> Vec<u8> {
    let mut key = format!("{number:08}").into_bytes();
    let more = match number % 64 {
        0 => 300,
        1..4 => number as usize % 97,
        _ => 0,
    };
    key.resize(key.len() + more, b'-');
    key
}

fn number_of(key: &[u8]) -> Result<u64> {
    let digits = key.get(..8).and_then(|key| std::str::from_utf8(key).ok());
    let number = digits.and_then(|digits| digits.parse().ok());
    let number = number.filter(|number| key_of(*number) == key);
    number.ok_or_else(|| {
        Error::new(Kind::Corrupted, "a key was found that was never stored").key(key)
    })
}

/// Shows every record of `reader`.
fn scan(reader: &dyn Reader, show: Show<'_>) -> Result<()> {
    let mut outcome = Ok(());
    reader.scan(None, &mut |key, value| {
        outcome = number_of(key).and_then(|number| show(number, value));
        if outcome.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    outcome
}

/// What an engine of records adds to its calls.
pub(super) trait Stressed: Direct {
    const CHORES: &'static [Chore] = &[Chore::Clear, Chore::Scan, Chore::Scan];
    fn open_shaped(shape: &Shape, opening: &Opening, folder: &Path) -> Result<Self>;
    fn view(&self, _chore: Chore, _scratch: &Path, show: Show<'_>) -> Result<()> {
        scan(self, show)
    }
    fn tend_whole(&self, _chore: Chore) -> Result<()> {
        Ok(())
    }
    fn damage(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// An engine of records under stress.
pub(super) struct OfRecords<E>(pub(super) E);

impl<E: Stressed> Subject for OfRecords<E> {
    const IN_FILE: bool = E::PERSISTENT;
    const TAKES_SHORTER: bool = E::PERSISTENT;
    const CHORES: &'static [Chore] = <E as Stressed>::CHORES;

    fn open(shape: &Shape, opening: &Opening, folder: &Path) -> Result<Self> {
        E::open_shaped(shape, opening, folder).map(Self)
    }
    fn close(self) -> Result<()> {
        self.0.close()
    }
    fn read(&self, key: u64, way: u64, visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let key = key_of(key);
        match way % 4 {
            0 => self.0.read_directly(&key, visit),
            1 => (&self.0 as &dyn Reader).read(&key, visit),
            2 => {
                visit(Verbs::get(&self.0, &key)?.as_deref());
                Ok(())
            }
            _ => {
                // The record at which a scan begins; one that is absent is no reason to begin there.
                let (from, mut seen) = (self.0.bookmark_at(&key), None);
                self.0.scan(Some(&from), &mut |at, value| {
                    seen = (at == key).then(|| value.to_vec());
                    ControlFlow::Break(())
                })?;
                visit(seen.as_deref());
                Ok(())
            }
        }
    }
    fn read_many(&self, keys: &[u64], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key_of(*key)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        self.0.read_many(&keys, visit)
    }
    fn put(&self, key: u64, value: &[u8], way: u64) -> Result<()> {
        let key = key_of(key);
        match way % 4 {
            0 => self.0.put_directly(&key, value),
            1 => (&self.0 as &dyn Records).put(&key, value),
            2 => self.0.put_many(&[(&key, value)]),
            _ => self.0.update(&key, &mut |_| Edit::put(value)),
        }
    }
    fn put_new(&self, key: u64, value: &[u8]) -> Result<bool> {
        Verbs::put_new(&self.0, &key_of(key), value)
    }
    fn append(&self, key: u64, suffix: &[u8], way: u64) -> Result<bool> {
        let key = key_of(key);
        match way % 2 {
            0 => Verbs::append(&self.0, &key, suffix, b"")?,
            _ => (&self.0 as &dyn Records).append_many(&[(&key, suffix)], b"")?,
        }
        Ok(true)
    }
    fn remove(&self, key: u64, way: u64) -> Result<bool> {
        let key = key_of(key);
        match way % 4 {
            0 => self.0.remove_directly(&key),
            1 => (&self.0 as &dyn Records).remove(&key),
            2 => Ok(self.0.remove_many_directly(&[&key])? == 1),
            _ => Ok((&self.0 as &dyn Records).take(&key)?.is_some()),
        }
    }
    fn exchange(&self, key: u64, expected: &[u8], desired: Option<&[u8]>) -> Result<bool> {
        let desired = desired.map_or(Desired::Remove, Desired::Put);
        let expected = Expected::Value(expected);
        let exchange = self.0.compare_exchange(&key_of(key), expected, desired)?;
        Ok(exchange.done)
    }
    fn batch(&self, wishes: &[Wish]) -> Result<()> {
        let keys: Vec<Vec<u8>> = wishes.iter().map(|(key, _)| key_of(*key)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        self.0.update_many(&keys, &mut |_| {
            let wished = wishes.iter().map(|(_, value)| match value {
                Some(value) => Edit::put(value),
                None => Edit::Remove,
            });
            wished.collect()
        })
    }
    fn many(&self, wishes: &[Wish]) -> Result<()> {
        let keys = wishes.iter().map(|(key, value)| (key_of(*key), value));
        let (puts, removals): (Vec<_>, Vec<_>) = keys.partition(|(_, value)| value.is_some());
        let puts: Vec<(&[u8], &[u8])> = puts
            .iter()
            .filter_map(|(key, value)| Some((key.as_slice(), value.as_deref()?)))
            .collect();
        self.0.put_many(&puts)?;
        let removals: Vec<&[u8]> = removals.iter().map(|(key, _)| key.as_slice()).collect();
        self.0.remove_many_directly(&removals).map(|_| ())
    }
    fn sweep(&self, _: Option<(u64, u64)>) -> Result<()> {
        self.0.clear()
    }
    fn view(&self, chore: Chore, scratch: &Path, show: Show<'_>) -> Result<()> {
        Stressed::view(&self.0, chore, scratch, show)
    }
    fn tend(&self, chore: Chore) -> Result<()> {
        self.0.tend_whole(chore)
    }
    fn count(&self) -> u64 {
        self.0.count()
    }
    fn check(&self) -> Result<Vec<String>> {
        self.0.damage()
    }
}

impl Stressed for HashDb {
    const CHORES: &'static [Chore] = &[
        Chore::Sync,
        Chore::Checkpoint,
        Chore::Compact,
        Chore::Maintain,
        Chore::Check,
        Chore::Clear,
        Chore::Scan,
        Chore::Copy,
        Chore::Reader,
    ];

    fn open_shaped(shape: &Shape, opening: &Opening, folder: &Path) -> Result<Self> {
        let options = azekura::record::hash::CreateOptions::new()
            .segment_size(shape.segment_size)
            .compression(shape.compression)
            .capacity(shape.capacity)
            .space_ratio(opening.space_ratio)
            .background(opening.background)
            .syncs_often(opening.syncs_often)
            .durability(opening.durability)
            .sync_interval(opening.sync_interval);
        Self::open_or_create(folder.join("store.azh"), &options)
    }
    fn view(&self, chore: Chore, scratch: &Path, show: Show<'_>) -> Result<()> {
        match chore {
            Chore::Copy => {
                self.copy_to(scratch, &mut |_, _| ())?;
                let copy = HashReader::open(scratch)?;
                sound("the copy", &copy.check(&mut |_, _| ())?.damage)?;
                scan(&copy, show)
            }
            Chore::Reader => scan(&HashReader::open(self.path())?, show),
            _ => scan(self, show),
        }
    }
    fn tend_whole(&self, chore: Chore) -> Result<()> {
        match chore {
            Chore::Sync => Persistent::sync(self, Durability::Power),
            Chore::Checkpoint => self.checkpoint(),
            Chore::Compact => self.compact(&mut |_, _| ()),
            _ => self.maintain(),
        }
    }
    fn damage(&self) -> Result<Vec<String>> {
        Ok(Persistent::check(self, &mut |_, _| ())?.damage)
    }
}

/// `Corrupted` if there is damage.
pub(super) fn sound(of: &str, damage: &[String]) -> Result<()> {
    let Some(first) = damage.first() else {
        return Ok(());
    };
    let more = damage.len() - 1;
    Err(
        Error::new(Kind::Corrupted, format!("check finds damage in {of}"))
            .detail(format!("{first}; and {more} more")),
    )
}

/// The object store.
pub(super) struct OfObjects(Store);

fn id_of(key: u64) -> ObjectId {
    ObjectId(u128::from(key) << 40)
}

fn key_of_id(id: ObjectId) -> u64 {
    (id.0 >> 40) as u64
}

fn findings(report: &azekura::object::CheckReport) -> Vec<String> {
    let findings = report.findings.iter();
    findings.map(|finding| finding.what.clone()).collect()
}

impl Subject for OfObjects {
    const OBJECTS: bool = true;
    const IN_FILE: bool = true;
    const CHORES: &'static [Chore] = &[
        Chore::Sync,
        Chore::Checkpoint,
        Chore::Check,
        Chore::Clear,
        Chore::ClearPart,
        Chore::ClearPart,
        Chore::Scan,
        Chore::Copy,
        Chore::Snapshot,
        Chore::Snapshot,
    ];

    fn open(shape: &Shape, opening: &Opening, folder: &Path) -> Result<Self> {
        let options = azekura::object::CreateOptions::new()
            .capacity(shape.capacity)
            .journal_size(shape.journal_size)
            .group_size(shape.group_size)
            .small_max(shape.small_max)
            .direct(opening.direct)
            .durability(opening.durability)
            .sync_interval(opening.sync_interval)
            .sync_every(opening.sync_every)
            .background(opening.background);
        let (path, data) = (folder.join("store.azo"), folder.join("store.data"));
        let data = (shape.devices == 2).then_some(data.as_path());
        if path.exists() {
            Store::open_with_data(path, data, &options.opening).map(Self)
        } else {
            // A kill between the two names of a store on two files leaves the first one made: no store yet.
            if let Some(data) = data.filter(|data| data.exists()) {
                std::fs::remove_file(data).map_err(|e| Error::io("cannot remove", e).at(data))?;
            }
            Store::create_with_data(path, data, &options, &mut |_, _| ()).map(Self)
        }
    }
    fn close(self) -> Result<()> {
        self.0.close()
    }
    fn read(&self, key: u64, way: u64, visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let found = match way % 2 {
            0 => self.0.get(id_of(key))?,
            _ => self.0.get_range(id_of(key), 0..1 << 30)?,
        };
        visit(found.as_deref());
        Ok(())
    }
    fn reads_part(&self, key: u64, range: Range<u64>, expected: &[u8]) -> Result<Option<bool>> {
        let part = self.0.get_range(id_of(key), range)?;
        Ok(Some(part.as_deref() == Some(expected)))
    }
    fn put(&self, key: u64, value: &[u8], way: u64) -> Result<()> {
        match way % 4 {
            0 => self.0.apply(&[Change::Put(id_of(key), value)]).map(|_| ()),
            _ => self.0.put(id_of(key), value).map(|_| ()),
        }
    }
    fn put_new(&self, key: u64, value: &[u8]) -> Result<bool> {
        Ok(self.0.compare_and_put(id_of(key), None, value)?.is_some())
    }
    fn remove(&self, key: u64, _: u64) -> Result<bool> {
        self.0.remove(id_of(key))
    }
    fn exchange(&self, key: u64, expected: &[u8], desired: Option<&[u8]>) -> Result<bool> {
        let id = id_of(key);
        let Some(sequence) = self.0.sequence(id)? else {
            return Ok(false);
        };
        if self.0.get(id)?.as_deref() != Some(expected) {
            return Ok(false);
        }
        match desired {
            Some(value) => Ok(self.0.compare_and_put(id, Some(sequence), value)?.is_some()),
            None => self.0.remove(id),
        }
    }
    fn batch(&self, wishes: &[Wish]) -> Result<()> {
        let changes = wishes.iter().map(|(key, value)| match value {
            Some(value) => Change::Put(id_of(*key), value),
            None => Change::Remove(id_of(*key)),
        });
        self.0.apply(&changes.collect::<Vec<_>>()).map(|_| ())
    }
    fn many(&self, wishes: &[Wish]) -> Result<()> {
        for (key, value) in wishes {
            match value {
                Some(value) => self.0.put(id_of(*key), value).map(|_| ())?,
                None => self.0.remove(id_of(*key)).map(|_| ())?,
            }
        }
        Ok(())
    }
    fn sweep(&self, range: Option<(u64, u64)>) -> Result<()> {
        let removed = match range {
            Some((first, end)) => self.0.remove_range(id_of(first)..id_of(end)),
            None => self.0.remove_range(..),
        };
        removed.map(|_| ())
    }
    fn view(&self, chore: Chore, scratch: &Path, show: Show<'_>) -> Result<()> {
        match chore {
            Chore::Copy => {
                self.0.copy_to(scratch, &mut |_, _| ())?;
                let copy = Store::open(scratch, &azekura::object::OpenOptions::default())?;
                sound("the copy", &findings(&copy.check(true, &mut |_, _| ())?))?;
                show_listed(&copy, show)?;
                copy.close()
            }
            Chore::Snapshot => {
                let snapshot = self.0.snapshot()?;
                let mut first = Vec::new();
                for object in snapshot.values(..) {
                    let (id, value) = object?;
                    first.push((id, crate::generate::fold(&value)));
                    show(key_of_id(id), &value)?;
                }
                for (id, fold) in first {
                    let again = snapshot.get(id)?.map(|value| crate::generate::fold(&value));
                    if again != Some(fold) {
                        let what = "an object of a snapshot changed while the snapshot was held";
                        let error = Error::new(Kind::Corrupted, what);
                        return Err(error.key(id.to_string().as_bytes()));
                    }
                }
                Ok(())
            }
            _ => show_listed(&self.0, show),
        }
    }
    fn tend(&self, chore: Chore) -> Result<()> {
        match chore {
            Chore::Sync => self.0.sync(),
            _ => self.0.checkpoint(),
        }
    }
    fn count(&self) -> u64 {
        self.0.count()
    }
    fn check(&self) -> Result<Vec<String>> {
        Ok(findings(&self.0.check(true, &mut |_, _| ())?))
    }
}

/// Shows every object that is listed; one that went meanwhile is not shown.
fn show_listed(store: &Store, show: Show<'_>) -> Result<()> {
    for listed in store.list(..) {
        let id = listed?.id;
        if let Some(value) = store.get(id)? {
            show(key_of_id(id), &value)?;
        }
    }
    Ok(())
}
