//! The standard library's hash map, sharded behind reader-writer locks: the baseline of the hashes in memory.
//!
//! What a user of Rust would write: records are two byte strings, short ones in place, and a lock guards a part
//! of the records. It is an oracle of the tests and a yardstick of the benchmarks; who wants speed or small
//! records takes another engine. Readers share a shard's lock and keep it for as long as a copy of the value
//! takes; locks are `parking_lot`'s, fair in the long run, whose waiters park.
//!
//! 1. A key's shard is chosen by bits of its hash that the map in the shard does not use.
//! 2. `update_many` and `clear` take locks by rising number of the shard, and all of them before they change.
//! 3. No lock is held while anything is lent.
//!
//! The order of a scan is that of *places*: the hash with the shard's bits in front, then the key. The seed of
//! the hash is this process's: a bookmark is good for as long as the store, and for no other. A scan copies a
//! shard's keys at once and sorts them: linear in all records, but for the logarithm of a shard.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

use parking_lot::{RwLock, RwLockWriteGuard};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

use super::std_records::{Bytes, Change, Copied, changes, fits, no_memory, promise};
use crate::engine::{Bookmark, Damaged, DecideMany, Edit, Engine, Promise, Reader, Stats, Visit};
use crate::error::Result;
use crate::record::bookmark::Start;
use crate::record::many::Distinct;
use crate::room;

const SHARD_BITS: u32 = 10;
const SHARDS: usize = 1 << SHARD_BITS;
/// How far a hash is turned so that the bits which choose the shard come first: the map uses the lowest for its
/// bucket and the highest seven for its tag.
const TURN: u32 = 14;
/// Records of a scan that are copied under one lock.
const GROUP: usize = 32;

/// The hash of this process.
#[derive(Clone, Copy, Debug)]
struct Seeded(&'static RapidSecrets);

impl Seeded {
    fn new() -> Self {
        static SECRETS: OnceLock<RapidSecrets> = OnceLock::new();
        Self(SECRETS.get_or_init(|| RapidSecrets::seed(RandomState::new().hash_one(0))))
    }

    #[inline]
    fn of(self, key: &[u8]) -> u64 {
        rapidhash_v3_inline::<true, false, false>(key, self.0)
    }
}

impl BuildHasher for Seeded {
    type Hasher = OneHash;
    #[inline]
    fn build_hasher(&self) -> OneHash {
        OneHash {
            seeded: *self,
            hash: 0,
        }
    }
}

/// Hashes one byte string; its length, which the map announces before, is in the hash already.
struct OneHash {
    seeded: Seeded,
    hash: u64,
}

impl Hasher for OneHash {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.hash = self.seeded.of(bytes);
    }
    #[inline]
    fn write_usize(&mut self, _: usize) {}
    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }
}

type Map = HashMap<Bytes, Bytes, Seeded>;

#[derive(Debug)]
#[repr(align(64))]
struct Shard(RwLock<Map>);

/// A hash in memory over `std::collections::HashMap`.
///
/// Costs: a lock, two misses for the table, one each for a key and a value of more than 22 bytes. A key below
/// 2 GiB, a value below 4 GiB, as many records as there is memory for; it grows by itself, shard by shard, and
/// only `clear` gives its tables back.
#[derive(Debug)]
pub struct StdHashDb {
    shards: Box<[Shard]>,
    seeded: Seeded,
}

impl Default for StdHashDb {
    fn default() -> Self {
        Self::new()
    }
}

impl StdHashDb {
    /// An empty store. Panics if there is no memory for 64 KiB; [`with_capacity`](Self::with_capacity) does not.
    pub fn new() -> Self {
        Self::empty().expect("there are 64 KiB of memory")
    }

    fn empty() -> Result<Self> {
        let seeded = Seeded::new();
        let shard = |_| Shard(RwLock::new(Map::with_hasher(seeded)));
        Ok(Self {
            shards: room::collect((0..SHARDS).map(shard))?.into_boxed_slice(),
            seeded,
        })
    }

    /// An empty store with room for so many records, as even as hashes are. `Full` if there is no memory.
    pub fn with_capacity(records: u64) -> Result<Self> {
        let db = Self::empty()?;
        let each = records.div_ceil(SHARDS as u64) as usize;
        for shard in &db.shards {
            // Most shards have at most so many more than the mean.
            let room = each.saturating_add(each.isqrt());
            reserve(&mut shard.0.write(), if records == 0 { 0 } else { room })?;
        }
        Ok(db)
    }

    #[inline]
    fn place(&self, key: &[u8]) -> u64 {
        self.seeded.of(key).rotate_left(TURN)
    }

    #[inline]
    fn shard(&self, place: u64) -> &RwLock<Map> {
        &self.shards[shard_of(place)].0
    }

    /// As [`Reader::read`], and hands on what `visit` answers.
    #[inline]
    pub fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let copy = self.copy_of(self.place(key), key)?;
        Ok(visit(copy.as_deref()))
    }

    #[inline]
    fn copy_of(&self, place: u64, key: &[u8]) -> Result<Option<Copied>> {
        let map = self.shard(place).read();
        map.get(key).map(Copied::of).transpose()
    }

    /// Gives a record this value, as [`Verbs::put`](crate::Verbs::put).
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        fits(key, value)?;
        let mut map = self.shard(self.place(key)).write();
        put(&mut map, key, value)
    }

    /// Removes a record: whether it was there.
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        let removed = self.shard(self.place(key)).write().remove(key);
        // The lock is free before the memory is.
        Ok(removed.is_some())
    }

    /// The locks of these shards, which are in rising order, each once.
    fn lock(&self, shards: &[usize]) -> Result<Vec<RwLockWriteGuard<'_, Map>>> {
        let lock = |shard: &usize| self.shards[*shard].0.write();
        room::collect(shards.iter().map(lock))
    }
}

#[inline]
fn shard_of(place: u64) -> usize {
    (place >> (64 - SHARD_BITS)) as usize
}

fn reserve(map: &mut Map, more: usize) -> Result<()> {
    map.try_reserve(more)
        .map_err(|_| no_memory(more.saturating_mul(size_of::<(Bytes, Bytes)>())))
}

#[inline]
fn put(map: &mut Map, key: &[u8], value: &[u8]) -> Result<()> {
    reserve(map, 1)?;
    match map.entry(Bytes::of(key)?) {
        Entry::Occupied(mut present) => present.get_mut().replace(value)?,
        Entry::Vacant(absent) => drop(absent.insert(Bytes::of(value)?)),
    }
    Ok(())
}

/// Keys of a shard, in one piece of memory, and where each begins and ends.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    at: Vec<(u64, usize, usize)>,
}

impl Keys {
    /// Errors: `Full`.
    fn take(&mut self, map: &Map, seeded: Seeded, start: &Start<'_>) -> Result<()> {
        self.bytes.clear();
        self.at.clear();
        room::more(&mut self.at, map.len())?;
        for key in map.keys() {
            let place = seeded.of(key).rotate_left(TURN);
            if start.admits(place, key) {
                let first = self.bytes.len();
                room::more(&mut self.bytes, key.len())?;
                self.bytes.extend_from_slice(key);
                self.at.push((place, first, self.bytes.len()));
            }
        }
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let by = |(place, first, end): &(u64, usize, usize)| (*place, &bytes[*first..*end]);
        self.at.sort_unstable_by(|a, b| by(a).cmp(&by(b)));
    }
}

impl Reader for StdHashDb {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.read_with(key, visit)
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        _: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let mut start = Start::of(from)?;
        // Who wants only the record the bookmark is at does not pay for its shard.
        if from.is_some() && !start.after && start.hash == self.place(start.key) {
            if let Some(value) = self.copy_of(start.hash, start.key)?
                && visit(start.key, &value).is_break()
            {
                return Start::after(start.hash, start.key).bookmark().map(Some);
            }
            start.after = true;
        }
        let (mut keys, mut values, mut ends) = (Keys::default(), Vec::new(), Vec::new());
        for shard in &self.shards[shard_of(start.hash)..] {
            keys.take(&shard.0.read(), self.seeded, &start)?;
            keys.sort();
            for group in keys.at.chunks(GROUP) {
                values.clear();
                ends.clear();
                {
                    let map = shard.0.read();
                    for (_, first, end) in group {
                        if let Some(value) = map.get(&keys.bytes[*first..*end]) {
                            room::more(&mut values, value.len())?;
                            values.extend_from_slice(value);
                            ends.push(Some(values.len()));
                        } else {
                            ends.push(None);
                        }
                    }
                }
                let mut begin = 0;
                for ((place, first, end), value_end) in group.iter().zip(&ends) {
                    let Some(value_end) = *value_end else {
                        continue;
                    };
                    let key = &keys.bytes[*first..*end];
                    let flow = visit(key, &values[begin..value_end]);
                    begin = value_end;
                    if flow.is_break() {
                        return Start::after(*place, key).bookmark().map(Some);
                    }
                }
            }
        }
        Ok(None)
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        Start::at(self.place(key), key).bookmark_at_any_rate()
    }

    fn count(&self) -> u64 {
        self.shards
            .iter()
            .map(|shard| shard.0.read().len() as u64)
            .sum()
    }

    /// Looks at every record: `memory_bytes` is an estimate from their lengths and the tables' sizes.
    fn stats(&self) -> Stats {
        let mut stats = Stats {
            memory_bytes: size_of_val(&*self.shards) as u64,
            ..Stats::default()
        };
        for shard in &self.shards {
            let map = shard.0.read();
            stats.count += map.len() as u64;
            stats.memory_bytes +=
                map.capacity() as u64 * 8 / 7 * (size_of::<(Bytes, Bytes)>() as u64 + 1);
            let heap = |(key, value): (&Bytes, &Bytes)| key.heap_bytes() + value.heap_bytes();
            stats.memory_bytes += map.iter().map(heap).sum::<u64>();
        }
        stats.more.push(("shards", SHARDS.to_string()));
        stats
    }

    fn promise(&self) -> Promise {
        promise("std-hash")
    }
}

impl Engine for StdHashDb {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        let mut map = self.shard(self.place(key)).write();
        match decide(map.get(key).map(|value| &**value)) {
            Edit::Keep => {}
            Edit::Put(value) => {
                fits(key, &value)?;
                put(&mut map, key, &value)?;
            }
            Edit::Remove => drop(map.remove(key)),
        }
        Ok(())
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        let distinct = Distinct::of(keys)?;
        let shard = |key: &[u8]| shard_of(self.place(key));
        let mut shards = room::collect(distinct.records.iter().map(|key| shard(key)))?;
        shards.sort_unstable();
        shards.dedup();
        let mut maps = self.lock(&shards)?;
        let at = |key: &[u8]| {
            let found = shards.binary_search(&shard(key));
            found.expect("the shard of every key is locked")
        };
        let present = |key: &&[u8]| maps[at(key)].get(*key).map(|value| &**value);
        let present = room::collect(distinct.records.iter().map(present))?;
        let mut more = room::collect(shards.iter().map(|_| 0))?;
        let edits = distinct.decide(&present, decide)?;
        let changes = changes(&distinct.records, edits)?;
        for (key, change) in &changes {
            more[at(key)] += usize::from(matches!(change, Change::Put(..)));
        }
        for (map, more) in maps.iter_mut().zip(more) {
            reserve(map, more)?;
        }
        for (key, change) in changes {
            let map = &mut maps[at(key)];
            match change {
                Change::Put(key, value) => drop(map.insert(key, value)),
                Change::Remove => drop(map.remove(key)),
            }
        }
        Ok(())
    }

    fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        records
            .iter()
            .try_for_each(|(key, value)| self.put(key, value))
    }

    fn clear(&self) -> Result<()> {
        let all = room::collect(0..SHARDS)?;
        let mut gone = room::vec(SHARDS)?;
        let mut maps = self.lock(&all)?;
        let empty = |map: &mut Map| std::mem::replace(map, Map::with_hasher(self.seeded));
        gone.extend(maps.iter_mut().map(|map| empty(map)));
        drop(maps);
        drop(gone);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::ControlFlow;

    use super::*;

    #[test]
    fn every_shard_gets_its_share_and_no_bit_of_the_map_chooses_it() {
        let db = StdHashDb::new();
        let mut counts = vec![0; SHARDS];
        for number in 0..64 * SHARDS as u64 {
            counts[shard_of(db.place(&number.to_le_bytes()))] += 1;
        }
        assert!(
            counts.iter().all(|count| (20..150).contains(count)),
            "{counts:?}"
        );
        let chosen = u64::MAX << (64 - SHARD_BITS);
        let bits = chosen.rotate_right(TURN);
        assert_eq!(bits >> 57, 0, "the tag's bits");
        assert_eq!(bits & u64::from(u32::MAX), 0, "the bucket's bits");
    }

    #[test]
    fn a_scan_goes_by_place_and_from_any_bookmark() {
        let db = StdHashDb::with_capacity(3000).unwrap();
        for number in 0..3000u32 {
            db.put(&number.to_le_bytes(), b"").unwrap();
        }
        let mut places = Vec::new();
        db.scan(None, &mut |key, _| {
            places.push((db.place(key), key.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(places.is_sorted() && places.len() == 3000);
        for at in [0, 1, 1500, 2999] {
            let mut seen = BTreeSet::new();
            let from = Start::after(places[at].0, &places[at].1)
                .bookmark()
                .unwrap();
            db.scan(Some(&from), &mut |key, _| {
                seen.insert(key.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(seen.len(), 2999 - at);
        }
        // One whose key does not belong to its place is still a place.
        let odd = Start::at(places[10].0, b"no such key").bookmark().unwrap();
        let scanned = db.scan(Some(&odd), &mut |_, _| ControlFlow::Break(()));
        assert!(scanned.unwrap().is_some());
    }

    #[test]
    fn what_it_says_it_takes_grows_with_its_records() {
        let db = StdHashDb::new();
        let empty = db.stats().memory_bytes;
        for number in 0..10_000u32 {
            db.put(&number.to_le_bytes(), &[0; 100]).unwrap();
        }
        let full = db.stats();
        assert_eq!(full.count, 10_000);
        assert!(full.memory_bytes - empty > 10_000 * 150);
        db.clear().unwrap();
        assert_eq!(db.stats().memory_bytes, empty);
    }
}
