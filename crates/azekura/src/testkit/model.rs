//! The obvious store: what every operation must do, implemented a second time without the verbs.
//!
//! [`Model`] is a map and the rules, with no thread and no error in sight; it judges the outcomes of
//! engines. [`ModelDb`] is the same map behind a lock as an [`Engine`], to test the verbs, the suite
//! and everything else that wants an engine it can trust.
//!
//! Promises of `ModelDb`: keys in byte order; reads and scans hold no lock while they lend, so the
//! closures may call it again; one lock for all records, so updates take turns. Memory only.
//! A bookmark is the least key that is still to be shown.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::RwLock;

use super::op::{Op, Outcome, Want, Wish, big_endian};
use crate::engine::{
    Bookmark, Cursor, Damaged, DecideMany, Edit, Engine, Ordered, OrderedEngine, Promise, Reader,
    Stats, Visit,
};
use crate::error::{Error, Kind, Result, size};
use crate::verbs::{Exchange, Rekeyed};

type Bytes = Vec<u8>;

/// What a store holds after a sequence of operations, and what each must have given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The records.
    pub records: BTreeMap<Bytes, Bytes>,
    key_len_max: u64,
    value_len_max: u64,
}

impl Model {
    /// An empty store with the limits of `promise`.
    pub fn new(promise: &Promise) -> Self {
        Self {
            records: BTreeMap::new(),
            key_len_max: promise.key_len_max,
            value_len_max: promise.value_len_max,
        }
    }

    /// Performs `op`, and states how `outcome`, an engine's, differs from what it must be.
    ///
    /// The one free choice, which record is first, is the engine's: it must have been there.
    pub fn check(&mut self, op: &Op, outcome: &Outcome) -> std::result::Result<(), String> {
        if let (Op::PopFirst, Outcome::Record(Some((key, value)))) = (op, outcome) {
            return match self.records.remove(key) {
                Some(present) if present == *value => Ok(()),
                present => Err(format!("popped {key:?} with {value:?}; it was {present:?}")),
            };
        }
        let expected = self.run(op);
        if expected == *outcome {
            return Ok(());
        }
        Err(format!("{op:?} gave {outcome:?}, expected {expected:?}"))
    }

    fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.records.get(key).cloned()
    }

    /// Whether the engine must refuse a record of these lengths.
    fn too_large(&self, key: &[u8], value: &[u8]) -> bool {
        key.len() as u64 > self.key_len_max || value.len() as u64 > self.value_len_max
    }

    /// Puts, unless the limits forbid it; then answers as an engine does.
    fn put(&mut self, key: &[u8], value: Bytes, outcome: Outcome) -> Outcome {
        if self.too_large(key, &value) {
            return Outcome::Refused(Kind::TooLarge);
        }
        self.records.insert(key.to_vec(), value);
        outcome
    }

    fn is_met(&self, key: &[u8], want: &Want) -> bool {
        let present = self.records.get(key);
        match want {
            Want::Absent => present.is_none(),
            Want::Any => present.is_some(),
            Want::Value(value) => present == Some(value),
        }
    }

    /// Fulfils the wishes, all or none, the later ones over the earlier ones.
    fn fulfil(&mut self, wishes: &[(Bytes, Wish)], outcome: Outcome) -> Outcome {
        let mut last = BTreeMap::new();
        let changes = wishes.iter().filter(|(_, wish)| *wish != Wish::Keep);
        last.extend(changes.map(|(key, wish)| (key, wish)));
        let too_large = |(key, wish): (&&Bytes, &&Wish)| matches!(wish, Wish::Put(value) if self.too_large(key, value));
        if last.iter().any(too_large) {
            return Outcome::Refused(Kind::TooLarge);
        }
        for (key, wish) in last {
            match wish {
                Wish::Put(value) => drop(self.records.insert(key.clone(), value.clone())),
                _ => drop(self.records.remove(key)),
            }
        }
        outcome
    }

    /// Performs `op` by its definition.
    pub fn run(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Get(key) => Outcome::Value(self.get(key)),
            Op::GetMany(keys) => Outcome::Values(keys.iter().map(|key| self.get(key)).collect()),
            Op::Counter(key) => match self.number(key) {
                Ok(number) => Outcome::Number(number.map(u64::cast_signed)),
                Err(refused) => refused,
            },
            Op::Put(key, value) => self.put(key, value.clone(), Outcome::Done),
            Op::PutNew(key, value) | Op::Replace(key, value) => {
                if self.records.contains_key(key) == matches!(op, Op::PutNew(..)) {
                    return Outcome::Yes(false);
                }
                self.put(key, value.clone(), Outcome::Yes(true))
            }
            Op::Swap(key, value) => {
                let before = self.get(key);
                self.put(key, value.clone(), Outcome::Value(before))
            }
            Op::Remove(key) => Outcome::Yes(self.records.remove(key).is_some()),
            Op::Take(key) => Outcome::Value(self.records.remove(key)),
            Op::Append {
                key,
                value,
                delimiter,
            } => {
                let value = match self.get(key) {
                    None => value.clone(),
                    Some(before) => [before, delimiter.clone(), value.clone()].concat(),
                };
                self.put(key, value, Outcome::Done)
            }
            Op::Increment { key, by, initial } => {
                let before = match self.number(key) {
                    Ok(number) => number.map_or(*initial, u64::cast_signed),
                    Err(refused) => return refused,
                };
                if *by == i64::MIN {
                    return Outcome::Number(Some(before));
                }
                let Some(sum) = before.checked_add(*by) else {
                    return Outcome::Refused(Kind::Invalid);
                };
                self.put(
                    key,
                    big_endian(sum.cast_unsigned()),
                    Outcome::Number(Some(sum)),
                )
            }
            Op::IncrementFloat { key, by, initial } => {
                let before = match self.number(key) {
                    Ok(number) => number.map_or(*initial, f64::from_bits),
                    Err(refused) => return refused,
                };
                let bits = (before + by).to_bits();
                self.put(key, big_endian(bits), Outcome::Bits(bits))
            }
            Op::CompareExchange {
                key,
                expected,
                desired,
            } => {
                let done = self.is_met(key, expected);
                let outcome = Outcome::Exchanged(Exchange {
                    done,
                    actual: self.get(key),
                });
                let wish = if done { desired } else { &Wish::Keep };
                self.fulfil(&[(key.clone(), wish.clone())], outcome)
            }
            Op::CompareExchangeMany { expected, desired } => {
                if !expected.iter().all(|(key, want)| self.is_met(key, want)) {
                    return Outcome::Yes(false);
                }
                self.fulfil(desired, Outcome::Yes(true))
            }
            Op::Rekey {
                old,
                new,
                overwrite,
                copying,
            } => {
                let Some(value) = self.get(old) else {
                    return Outcome::Rekeyed(Rekeyed::Absent);
                };
                if !overwrite && self.records.contains_key(new) {
                    return Outcome::Rekeyed(Rekeyed::Exists);
                }
                if !copying {
                    self.records.remove(old);
                }
                self.records.insert(new.clone(), value.clone());
                Outcome::Rekeyed(Rekeyed::Moved(value))
            }
            Op::PopFirst => Outcome::Record(self.records.pop_first()),
            Op::PushLast { value, now } => {
                if now.is_nan() || *now < 0.0 {
                    return Outcome::Refused(Kind::Invalid);
                }
                #[expect(clippy::cast_sign_loss, reason = "checked to be positive above")]
                let mut tick = (now * 1e8) as u64;
                while self.records.contains_key(&big_endian(tick)) {
                    tick += 1;
                }
                let key = big_endian(tick);
                self.put(&key.clone(), value.clone(), Outcome::Value(Some(key)))
            }
            Op::PutMany(records) => {
                for (key, value) in records {
                    if let refused @ Outcome::Refused(_) =
                        self.put(key, value.clone(), Outcome::Done)
                    {
                        return refused;
                    }
                }
                Outcome::Done
            }
            Op::PutManyNew(records) => {
                let mut count = 0;
                for (key, value) in records {
                    match self.run(&Op::PutNew(key.clone(), value.clone())) {
                        Outcome::Yes(done) => count += u64::from(done),
                        refused => return refused,
                    }
                }
                Outcome::Count(count)
            }
            Op::RemoveMany(keys) | Op::RemoveAll(keys) => {
                let removed = keys
                    .iter()
                    .filter(|key| self.records.remove(*key).is_some());
                Outcome::Count(removed.count() as u64)
            }
            Op::PutAll(records) => {
                let wishes: Vec<(Bytes, Wish)> = records
                    .iter()
                    .map(|(key, value)| (key.clone(), Wish::Put(value.clone())))
                    .collect();
                self.fulfil(&wishes, Outcome::Done)
            }
            Op::UpdateMany(wishes) => {
                let seen = wishes.iter().map(|(key, _)| self.get(key)).collect();
                self.fulfil(wishes, Outcome::Values(seen))
            }
            Op::Scan => Outcome::Records(self.records.clone().into_iter().collect()),
            Op::Clear => {
                self.records.clear();
                Outcome::Done
            }
        }
    }

    /// The bits of a counter.
    fn number(&self, key: &[u8]) -> std::result::Result<Option<u64>, Outcome> {
        let Some(value) = self.records.get(key) else {
            return Ok(None);
        };
        if value.len() != 8 {
            return Err(Outcome::Refused(Kind::Invalid));
        }
        let bits = value.iter();
        Ok(Some(bits.fold(0, |sum, byte| sum << 8 | u64::from(*byte))))
    }
}

/// The obvious engine: a map in memory behind one lock.
#[derive(Debug)]
pub struct ModelDb {
    key_len_max: u64,
    value_len_max: u64,
    records: RwLock<BTreeMap<Bytes, Bytes>>,
}

impl Default for ModelDb {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelDb {
    /// An empty store for keys up to 64 KiB and values up to 16 MiB.
    pub fn new() -> Self {
        Self::with_limits(64 << 10, 16 << 20)
    }

    /// An empty store with limits of its own, in bytes.
    pub fn with_limits(key_len_max: u64, value_len_max: u64) -> Self {
        Self {
            key_len_max,
            value_len_max,
            records: RwLock::default(),
        }
    }

    fn fits(&self, key: &[u8], edit: &Edit<'_>) -> Result<()> {
        let Edit::Put(value) = edit else {
            return Ok(());
        };
        for (what, len, max) in [
            ("key", key.len(), self.key_len_max),
            ("value", value.len(), self.value_len_max),
        ] {
            if len as u64 > max {
                let what = format!(
                    "{what} of {} exceeds the limit of {}",
                    size(len as u64),
                    size(max)
                );
                return Err(Error::new(Kind::TooLarge, what).key(key));
            }
        }
        Ok(())
    }
}

/// Carries out an edit.
fn apply(records: &mut BTreeMap<Bytes, Bytes>, key: &[u8], edit: Edit<'_>) {
    match edit {
        Edit::Keep => {}
        Edit::Put(value) => drop(records.insert(key.to_vec(), value.into_owned())),
        Edit::Remove => drop(records.remove(key)),
    }
}

impl Reader for ModelDb {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let value = self.records.read().get(key).cloned();
        visit(value.as_deref());
        Ok(())
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        _: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let mut next = from.map_or_else(Vec::new, |bookmark| bookmark.as_bytes().to_vec());
        loop {
            let least = Bound::Included(&next[..]);
            let record = {
                let records = self.records.read();
                let mut range = records.range::<[u8], _>((least, Bound::Unbounded));
                range
                    .next()
                    .map(|(key, value)| (key.clone(), value.clone()))
            };
            let Some((key, value)) = record else {
                return Ok(None);
            };
            let flow = visit(&key, &value);
            // No key lies between a key and itself with a zero after it.
            next = key;
            next.push(0);
            if flow.is_break() {
                return Ok(Some(Bookmark::from_bytes(&next)));
            }
        }
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        Bookmark::from_bytes(key)
    }

    fn count(&self) -> u64 {
        self.records.read().len() as u64
    }

    fn stats(&self) -> Stats {
        let records = self.records.read();
        let bytes = records
            .iter()
            .map(|(key, value)| (key.len() + value.len()) as u64)
            .sum();
        Stats {
            count: records.len() as u64,
            memory_bytes: bytes,
            ..Stats::default()
        }
    }

    fn promise(&self) -> Promise {
        Promise {
            engine: "model",
            evicts: false,
            durability: None,
            update_many_is_crash_atomic: false,
            key_len_max: self.key_len_max,
            value_len_max: self.value_len_max,
        }
    }

    fn as_ordered(&self) -> Option<&dyn Ordered> {
        Some(self)
    }
}

impl OrderedEngine for ModelDb {}

impl Ordered for ModelDb {
    fn order_name(&self) -> &'static str {
        "lexical"
    }

    fn cursor(&self) -> Box<dyn Cursor + '_> {
        Box::new(ModelCursor {
            db: self,
            record: None,
        })
    }
}

/// A cursor on the map: a copy of the record it is on.
struct ModelCursor<'m> {
    db: &'m ModelDb,
    record: Option<(Bytes, Bytes)>,
}

impl ModelCursor<'_> {
    /// Moves to the first or last record between bounds.
    fn go(&mut self, bounds: (Bound<Bytes>, Bound<Bytes>), is_forward: bool) -> bool {
        let records = self.db.records.read();
        let mut range = records.range(bounds);
        let record = if is_forward {
            range.next()
        } else {
            range.next_back()
        };
        self.record = record.map(|(key, value)| (key.clone(), value.clone()));
        self.record.is_some()
    }
}

impl Cursor for ModelCursor<'_> {
    fn first(&mut self) -> Result<bool> {
        Ok(self.go((Bound::Unbounded, Bound::Unbounded), true))
    }
    fn last(&mut self) -> Result<bool> {
        Ok(self.go((Bound::Unbounded, Bound::Unbounded), false))
    }
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.go((Bound::Included(key.to_vec()), Bound::Unbounded), true))
    }
    fn next(&mut self) -> Result<bool> {
        let from = self.record.take();
        let from = from.map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key));
        Ok(self.go((from, Bound::Unbounded), true))
    }
    fn previous(&mut self) -> Result<bool> {
        let to = self.record.take();
        let to = to.map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key));
        Ok(self.go((Bound::Unbounded, to), false))
    }
    fn record(&self) -> Option<(&[u8], &[u8])> {
        let (key, value) = self.record.as_ref()?;
        Some((key, value))
    }
}

impl Engine for ModelDb {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        let mut records = self.records.write();
        let edit = decide(records.get(key).map(Vec::as_slice));
        self.fits(key, &edit)?;
        apply(&mut records, key, edit);
        Ok(())
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        let mut records = self.records.write();
        let present: Vec<Option<&[u8]>> = keys
            .iter()
            .map(|key| records.get(*key).map(Vec::as_slice))
            .collect();
        let edits = decide(&present);
        assert_eq!(edits.len(), keys.len(), "one edit per key");
        // Only the last edit of a repeated key counts, for the limits too.
        let mut last = BTreeMap::new();
        for (key, edit) in keys.iter().zip(edits) {
            if edit != Edit::Keep {
                last.insert(*key, edit);
            }
        }
        last.iter()
            .try_for_each(|(key, edit)| self.fits(key, edit))?;
        for (key, edit) in last {
            apply(&mut records, key, edit);
        }
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        self.records.write().clear();
        Ok(())
    }

    fn as_ordered_engine(&self) -> Option<&dyn OrderedEngine> {
        Some(self)
    }
}
