//! Fuzzes the object store against a map: each operation gives back what the map holds.
//!
//! The input chooses options, ids, lengths of values, verbs, and when to sync, checkpoint, take a snapshot, close and reopen, and
//! what a kill leaves. Stores are small, so that some become full: a put may then be refused, and changes nothing. After every
//! opening, and at the end, all objects are compared and every byte is checked.
//! It does not damage anything: `object_open` does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds as _};
use std::sync::Arc;

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::object::{Change, CreateOptions, ObjectId, Snapshot, Store};
use azekura::testkit::Random;
use azekura::{Kind, Result};

const LIMIT: u64 = 4 << 20;
/// Short inputs are used up by the options: what follows is then made of them.
const OPERATIONS_MIN: u32 = 40;
/// More only makes a round slow.
const OPERATIONS_MAX: u32 = 200;
const IDS: u64 = 16;

/// Objects by their ids: values, and the sequences of their puts.
type Model = BTreeMap<ObjectId, (Vec<u8>, u64)>;

fn options(random: &mut Random) -> CreateOptions {
    let data = *random.choose(&[256 << 10, 512 << 10, 1 << 20, 2 << 20]);
    let journal = *random.choose(&[144 << 10, 192 << 10, 256 << 10]);
    CreateOptions::new()
        .capacity(journal + data)
        .journal_size(journal)
        .group_size(*random.choose(&[128 << 10, 256 << 10]))
        .small_max(*random.choose(&[0, 100, 2048, 4096]))
        .sync_every(random.one_in(4).then(|| random.below(6)))
        .background(false)
}

fn id(random: &mut Random) -> ObjectId {
    ObjectId(u128::from(random.below(IDS)) << 60)
}

/// A store next to the map of what it holds.
struct Pair {
    store: Store,
    model: Model,
    /// Of the newest change: each has a greater one.
    sequence: u64,
    /// What the next value is made of.
    version: u64,
}

impl Pair {
    fn value(&mut self, random: &mut Random, options: &CreateOptions) -> Vec<u8> {
        let edge = *random.choose(&[
            options.opening.small_max,
            4096,
            8192,
            65_536,
            self.store.len_max(),
        ]);
        let len = match random.below(8) {
            0 => (edge + random.below(3)).saturating_sub(1),
            1 => random.below(100_000),
            2..5 => random.below(options.opening.small_max + 1),
            _ => random.below(9000),
        };
        self.version += 1;
        Random::new(self.version).bytes(len as usize)
    }

    /// Whether values of these lengths were put. None is if one is too long; where no room is left it may be refused. Of a batch
    /// that is refused for both reasons either is the error.
    fn is_made<T>(&self, lens: &[usize], made: &Result<T>) -> bool {
        let len_max = self.store.len_max() as usize;
        let is_too_long = lens.iter().any(|len| *len > len_max);
        if let Err(error) = made {
            let kind = error.kind();
            let is_right = match (is_too_long, lens.len()) {
                (false, _) => kind == Kind::Full,
                (true, 1) => kind == Kind::TooLarge,
                (true, _) => [Kind::Full, Kind::TooLarge].contains(&kind),
            };
            assert!(is_right, "{lens:?} bytes, {len_max} at most: {error}");
            return false;
        }
        assert!(!is_too_long, "{lens:?} bytes are put, {len_max} at most");
        true
    }

    fn has_put(&mut self, id: ObjectId, value: Vec<u8>, sequence: u64) -> bool {
        assert!(
            sequence > self.sequence,
            "{sequence} after {}",
            self.sequence
        );
        self.sequence = sequence;
        self.model.insert(id, (value, sequence)).is_some()
    }

    fn put(&mut self, id: ObjectId, value: Vec<u8>) {
        let made = self.store.put(id, &value);
        if self.is_made(&[value.len()], &made) {
            let stored = made.expect("it was made");
            assert_eq!(stored.replaced, self.has_put(id, value, stored.sequence));
        }
    }

    fn compare_and_put(&mut self, random: &mut Random, id: ObjectId, value: Vec<u8>) {
        let found = self.model.get(&id).map(|(_, sequence)| *sequence);
        let expected = match random.below(4) {
            0 => None,
            1 => Some(random.below(self.sequence + 2)),
            _ => found,
        };
        let made = self.store.compare_and_put(id, expected, &value);
        if expected != found {
            assert_eq!(made.expect("a comparison"), None);
        } else if self.is_made(&[value.len()], &made) {
            let stored = made.expect("it was made").expect("it was as expected");
            assert_eq!(stored.replaced, self.has_put(id, value, stored.sequence));
        }
    }

    fn apply(&mut self, random: &mut Random, options: &CreateOptions) {
        let mut changes: Vec<(ObjectId, Option<Vec<u8>>)> = Vec::new();
        for _ in 0..random.below(5) {
            let value = (!random.one_in(3)).then(|| self.value(random, options));
            changes.push((id(random), value));
        }
        let given: Vec<Change<'_>> = changes
            .iter()
            .map(|(id, value)| match value {
                Some(value) => Change::Put(*id, value),
                None => Change::Remove(*id),
            })
            .collect();
        let made = self.store.apply(&given);
        let ids: BTreeSet<_> = changes.iter().map(|(id, _)| *id).collect();
        if ids.len() < changes.len() {
            let error = made.expect_err("an id twice");
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
            return;
        }
        let lens: Vec<usize> = changes
            .iter()
            .filter_map(|(_, value)| value.as_ref().map(Vec::len))
            .collect();
        if !self.is_made(&lens, &made) {
            return;
        }
        let sequences = made.expect("it was made");
        assert_eq!(sequences.len(), changes.len());
        for ((id, value), sequence) in changes.into_iter().zip(sequences) {
            match value {
                Some(value) => _ = self.has_put(id, value, sequence),
                None => _ = self.model.remove(&id),
            }
        }
    }

    fn remove_range(&mut self, random: &mut Random) {
        let bound = |random: &mut Random| match random.below(4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(id(random)),
            _ => Bound::Included(id(random)),
        };
        let range = (bound(random), bound(random));
        let before = self.model.len();
        self.model.retain(|id, _| !range.contains(id));
        let removed = self.store.remove_range(range).expect("a removal");
        assert_eq!(removed, (before - self.model.len()) as u64);
    }

    fn read(&self, random: &mut Random, id: ObjectId) {
        let held = self.model.get(&id);
        let len = held.map(|(value, _)| value.len() as u64);
        assert_eq!(self.store.head(id).expect("a length"), len);
        let from = random.below(len.unwrap_or(0) + 2);
        let to = from + random.below(70_000);
        let part = self.store.get_range(id, from..to).expect("a read");
        let expected = held.map(|(value, _)| {
            let to = value.len().min(to as usize);
            &value[to.min(from as usize)..to]
        });
        assert!(
            part.as_deref() == expected,
            "bytes {from} to {to} of {id:?}"
        );
    }
}

/// Whether the store holds what the map holds, by each way to read, and every byte of it verifies.
fn compare(store: &Store, model: &Model) {
    for (id, (value, sequence)) in model {
        let (found, its) = store
            .get_with_sequence(*id)
            .expect("a read")
            .expect("an object");
        assert!(
            found[..] == value[..],
            "{id:?} has {} bytes that differ",
            found.len()
        );
        assert_eq!(its, *sequence, "sequence of {id:?}");
    }
    let listed = store.list(..).map(|object| object.expect("a list"));
    let listed: Vec<_> = listed
        .map(|object| (object.id, object.len as usize))
        .collect();
    let held: Vec<_> = model
        .iter()
        .map(|(id, (value, _))| (*id, value.len()))
        .collect();
    assert_eq!(listed, held);
    assert_eq!(store.count(), model.len() as u64);
    let report = store.check(true, &mut |_, _| ()).expect("a check");
    assert!(report.is_sound(), "{report:?}");
}

fn compare_snapshot(snapshot: &Snapshot, model: &Model) {
    let mut expected = model.iter();
    for object in snapshot.values(..) {
        let (id, found) = object.expect("an object of a snapshot");
        let (its, (value, _)) = expected.next().expect("no more than there were");
        assert_eq!(id, *its);
        assert!(found[..] == value[..], "{id:?} of a snapshot differs");
    }
    assert_eq!(expected.count(), 0, "objects that a snapshot does not show");
}

/// Inputs to begin with: choices of a few hundred operations.
pub fn seeds() -> Vec<Vec<u8>> {
    (0..4).map(|seed| Random::new(seed).bytes(600)).collect()
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    let mut random = Random::from_bytes(bytes);
    let options = options(&mut random);
    let memory = Memory::new(LIMIT).expect("memory");
    memory.resize(options.capacity).expect("room");
    let storage: Arc<dyn Storage> = Arc::clone(&memory) as _;
    let store = Store::create_on(storage, None, &options, &mut |_, _| ()).expect("a new store");
    let mut pair = Pair {
        store,
        model: Model::new(),
        sequence: 0,
        version: 0,
    };
    let mut snapshot: Option<(Snapshot, Model)> = None;
    for count in 0..OPERATIONS_MAX {
        if count >= OPERATIONS_MIN && !random.has_input() {
            break;
        }
        let id = id(&mut random);
        match random.below(32) {
            0 => {
                snapshot = None;
                pair.store.close().expect("a close");
                let storage: Arc<dyn Storage> = Arc::clone(&memory) as _;
                pair.store = Store::open_on(storage, None, &options.opening).expect("a reopen");
                compare(&pair.store, &pair.model);
            }
            1 => {
                // As after a kill: what the device holds at this moment is all there is.
                let left = Memory::from_bytes(&memory.to_vec(), LIMIT).expect("memory");
                let found =
                    Store::open_on(left, None, &options.opening).expect("an open after a kill");
                compare(&found, &pair.model);
            }
            2 => pair.store.checkpoint().expect("a checkpoint"),
            3 => pair.store.sync().expect("a sync"),
            4 => {
                let taken = pair.store.snapshot().expect("a snapshot");
                snapshot = Some((taken, pair.model.clone()));
            }
            5 | 6 => {
                if let Some((taken, model)) = snapshot.take() {
                    compare_snapshot(&taken, &model);
                }
            }
            7..10 => pair.apply(&mut random, &options),
            10 => pair.remove_range(&mut random),
            11 | 12 => {
                let found = pair.model.get(&id).map(|(_, sequence)| *sequence);
                let expected = found.filter(|_| !random.one_in(3)).unwrap_or(u64::MAX);
                let removed = pair.store.compare_and_remove(id, expected);
                assert_eq!(removed.expect("a comparison"), found == Some(expected));
                pair.model
                    .retain(|n, _| *n != id || found != Some(expected));
            }
            13 | 14 => {
                let removed = pair.store.remove(id).expect("a removal");
                assert_eq!(removed, pair.model.remove(&id).is_some());
            }
            15..18 => {
                let value = pair.value(&mut random, &options);
                pair.compare_and_put(&mut random, id, value);
            }
            18..21 => pair.read(&mut random, id),
            _ => {
                let value = pair.value(&mut random, &options);
                pair.put(id, value);
            }
        }
    }
    if let Some((taken, model)) = snapshot.take() {
        compare_snapshot(&taken, &model);
    }
    compare(&pair.store, &pair.model);
}
