//! The standard library's B-tree behind one reader-writer lock: the baseline of the ordered engines in memory.
//!
//! What a user of Rust would write: records are two byte strings, short ones in place; keys are in the order of
//! their bytes. It is an oracle of the tests and a yardstick of the benchmarks; who wants speed, or many threads
//! that write, takes another engine. Readers share the lock and keep it for as long as a copy takes; it is
//! `parking_lot`'s, fair in the long run, and its waiters park. No lock is held while anything is lent.
//!
//! A bookmark is the least key that is still to be shown, so it is good for any store in the same order.
//! Memory for keys and values that is not to be had is an error. The nodes of the standard library's tree, of at most 640
//! bytes, are taken without asking: it has no other way, so without memory for one the process ends.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use parking_lot::RwLock;

use super::std_records::{Bytes, Change, Copied, changes, fits, promise};
use crate::engine::{
    Bookmark, Cursor, Damaged, DecideMany, Edit, Engine, Ordered, OrderedEngine, Promise, Reader,
    Stats, Visit,
};
use crate::error::Result;
use crate::record::many::Distinct;
use crate::room;

type Map = BTreeMap<Bytes, Bytes>;

/// Records of a scan that are copied under one lock, at most: in records and in bytes.
const GROUP: (usize, usize) = (256, 64 << 10);

/// An ordered store in memory over `std::collections::BTreeMap`.
///
/// Costs: the lock, and a miss or two for each node on the way down, of 11 records at most. A key below 2 GiB, a value below 4 GiB, as
/// many records as there is memory for.
#[derive(Debug, Default)]
pub struct StdTreeDb {
    records: RwLock<Map>,
}

impl StdTreeDb {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Reader::read`], and hands on what `visit` answers.
    #[inline]
    pub fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let copy = {
            let records = self.records.read();
            records.get(key).map(Copied::of).transpose()?
        };
        Ok(visit(copy.as_deref()))
    }

    /// Gives a record this value, as [`Verbs::put`](crate::Verbs::put).
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        fits(key, value)?;
        put(&mut self.records.write(), key, value)
    }

    /// Removes a record: whether it was there.
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        let removed = self.records.write().remove(key);
        // The lock is free before the memory is.
        Ok(removed.is_some())
    }
}

#[inline]
fn put(records: &mut Map, key: &[u8], value: &[u8]) -> Result<()> {
    match records.entry(Bytes::of(key)?) {
        Entry::Occupied(mut present) => present.get_mut().replace(value)?,
        Entry::Vacant(absent) => drop(absent.insert(Bytes::of(value)?)),
    }
    Ok(())
}

impl Reader for StdTreeDb {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.read_with(key, visit)
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        _: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let mut next = room::copy(from.map_or(&[], Bookmark::as_bytes))?;
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        // The first groups are small: many a scan wants but one record.
        let mut group = 1;
        loop {
            bytes.clear();
            ends.clear();
            {
                let records = self.records.read();
                let least = (Bound::Included(&next[..]), Bound::Unbounded);
                for (key, value) in records.range::<[u8], _>(least).take(group) {
                    room::more(&mut bytes, key.len() + value.len())?;
                    bytes.extend_from_slice(key);
                    let key_end = bytes.len();
                    bytes.extend_from_slice(value);
                    ends.push((key_end, bytes.len()));
                    if bytes.len() >= GROUP.1 {
                        break;
                    }
                }
            }
            let mut begin = 0;
            for (key_end, end) in &ends {
                let key = &bytes[begin..*key_end];
                let flow = visit(key, &bytes[*key_end..*end]);
                if flow.is_break() {
                    return Bookmark::of(&[key, &[0]]).map(Some);
                }
                if *end == bytes.len() {
                    next = after(key)?;
                }
                begin = *end;
            }
            if ends.is_empty() {
                return Ok(None);
            }
            group = (group * 4).min(GROUP.0);
        }
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        Bookmark::from_bytes(key)
    }

    fn count(&self) -> u64 {
        self.records.read().len() as u64
    }

    /// Looks at every record: `memory_bytes` is an estimate from their lengths and their number.
    fn stats(&self) -> Stats {
        let records = self.records.read();
        let heap = |(key, value): (&Bytes, &Bytes)| key.heap_bytes() + value.heap_bytes();
        // A node has room for 11 records, and is three quarters full where keys come at random.
        let nodes = records.len() as u64 * size_of::<(Bytes, Bytes)>() as u64 * 4 / 3;
        Stats {
            count: records.len() as u64,
            memory_bytes: nodes + records.iter().map(heap).sum::<u64>(),
            ..Stats::default()
        }
    }

    fn promise(&self) -> Promise {
        promise("std-tree")
    }

    fn as_ordered(&self) -> Option<&dyn Ordered> {
        Some(self)
    }
}

/// The least key after `key`.
fn after(key: &[u8]) -> Result<Vec<u8>> {
    room::concat(&[key, &[0]])
}

impl Engine for StdTreeDb {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        let mut records = self.records.write();
        match decide(records.get(key).map(|value| &**value)) {
            Edit::Keep => {}
            Edit::Put(value) => {
                fits(key, &value)?;
                put(&mut records, key, &value)?;
            }
            Edit::Remove => drop(records.remove(key)),
        }
        Ok(())
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        let distinct = Distinct::of(keys)?;
        let mut records = self.records.write();
        let present = |key: &&[u8]| records.get(*key).map(|value| &**value);
        let present = room::collect(distinct.records.iter().map(present))?;
        let edits = distinct.decide(&present, decide)?;
        for (key, change) in changes(&distinct.records, edits)? {
            match change {
                Change::Put(key, value) => drop(records.insert(key, value)),
                Change::Remove => drop(records.remove(key)),
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
        let gone = std::mem::take(&mut *self.records.write());
        drop(gone);
        Ok(())
    }

    fn as_ordered_engine(&self) -> Option<&dyn OrderedEngine> {
        Some(self)
    }
}

impl OrderedEngine for StdTreeDb {}

impl Ordered for StdTreeDb {
    fn order_name(&self) -> &'static str {
        "lexical"
    }

    fn cursor(&self) -> Box<dyn Cursor + '_> {
        Box::new(At {
            db: self,
            record: None,
        })
    }
}

/// A cursor: a copy of the record it is on. A call that finds none takes it off.
struct At<'d> {
    db: &'d StdTreeDb,
    record: Option<(Vec<u8>, Vec<u8>)>,
}

impl At<'_> {
    /// Moves to the record that `choose` finds, or to none.
    fn go(&mut self, choose: impl FnOnce(&Map) -> Option<(&Bytes, &Bytes)>) -> Result<bool> {
        let records = self.db.records.read();
        let copy = |(key, value): (&Bytes, &Bytes)| Ok((room::copy(key)?, room::copy(value)?));
        self.record = choose(&records).map(copy).transpose()?;
        Ok(self.record.is_some())
    }
}

impl Cursor for At<'_> {
    fn first(&mut self) -> Result<bool> {
        self.go(Map::first_key_value)
    }

    fn last(&mut self) -> Result<bool> {
        self.go(Map::last_key_value)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let from = (Bound::Included(key), Bound::Unbounded);
        self.go(|records| records.range::<[u8], _>(from).next())
    }

    fn next(&mut self) -> Result<bool> {
        let Some((key, _)) = &self.record else {
            return self.first();
        };
        let key = room::copy(key)?;
        let from = (Bound::Excluded(&key[..]), Bound::Unbounded);
        self.go(|records| records.range::<[u8], _>(from).next())
    }

    fn previous(&mut self) -> Result<bool> {
        let Some((key, _)) = &self.record else {
            return self.last();
        };
        let key = room::copy(key)?;
        let to = (Bound::Unbounded, Bound::Excluded(&key[..]));
        self.go(|records| records.range::<[u8], _>(to).next_back())
    }

    fn record(&self) -> Option<(&[u8], &[u8])> {
        self.record
            .as_ref()
            .map(|(key, value)| (&key[..], &value[..]))
    }
}
