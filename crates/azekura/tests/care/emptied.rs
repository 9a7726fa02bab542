//! Full stores are emptied: whatever is full, the data or the journal, and however small, removals find room, in any order, and
//! what is put then finds room, too. There is no sync but the store's own.
//!
//! Shapes of stores are tried in rounds of filling and emptying, fixed ones and random ones. What snapshots keep is theirs to
//! test.

use std::ops::Range;
use std::sync::Arc;

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::object::{Change, ObjectId, Store, StoreReader};
use azekura::testkit::suite::{share, tried_in_rounds};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Kind};

use super::options;

/// In which order ids come, and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Any,
    Rising,
    /// They come in order, and go in any.
    Mixed,
}

/// A store of this journal; its data takes so many times as much.
#[derive(Clone, Debug)]
struct Shape {
    journal: u64,
    times: u64,
    small_max: u64,
    lens: Range<usize>,
    order: Order,
}

impl Shape {
    fn store(&self) -> Store {
        let options = options()
            .capacity(self.journal * (1 + self.times))
            .journal_size(self.journal)
            .group_size(None)
            .small_max(self.small_max)
            .durability(Durability::Process);
        let memory = Memory::new(options.capacity).unwrap();
        memory.resize(options.capacity).unwrap();
        Store::create_on(memory, None, &options, &mut |_, _| {}).unwrap()
    }

    /// Puts new objects until eight puts were refused.
    fn fill(&self, store: &Store, random: &mut Random, next: &mut u64, kept: &mut Vec<ObjectId>) {
        let mut refused = 0;
        while refused < 8 {
            *next += 1;
            let id = match self.order {
                Order::Any => random.below(u64::MAX),
                _ => *next,
            };
            let id = ObjectId(u128::from(id) << 30 | 7);
            let len = self.lens.start + random.index(self.lens.len());
            match store.put(id, &vec![len as u8; len]) {
                Ok(_) => kept.push(id),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    refused += 1;
                }
            }
        }
        if self.order != Order::Rising {
            for at in (1..kept.len()).rev() {
                kept.swap(at, random.index(at + 1));
            }
        }
    }

    /// Rounds of filling and emptying; how many objects there were in all.
    fn fill_and_empty(&self) -> usize {
        let mut random = Random::new(self.journal + self.times);
        let store = self.store();
        let (mut kept, mut next, mut count) = (Vec::new(), 0, 0);
        for round in 0..4 {
            self.fill(&store, &mut random, &mut next, &mut kept);
            count += kept.len();
            let stays = if round % 2 == 0 { kept.len() / 3 } else { 0 };
            let gone = kept.split_off(stays);
            let by = if round < 2 { 1 } else { 50 };
            for ids in gone.chunks(by) {
                let removed = if let [id] = ids {
                    store.remove(*id).map(|was_there| assert!(was_there))
                } else {
                    let changes: Vec<_> = ids.iter().map(|id| Change::Remove(*id)).collect();
                    store.apply(&changes).map(drop)
                };
                let left = store.count();
                assert!(
                    removed.is_ok(),
                    "{self:?}: round {round}, {left} left: {removed:?}"
                );
            }
            assert_eq!(store.count(), stays as u64);
            let put = store.put(ObjectId(1), &vec![1; self.lens.end]);
            assert!(put.is_ok(), "{self:?}: round {round}: {put:?}");
            store.remove(ObjectId(1)).unwrap();
        }
        store.check_room().unwrap();
        store.close().unwrap();
        count
    }
}

/// Three causes were found so. Parts of a checkpoint were longer than the segments of a small journal, and the room that is kept
/// for them was in pieces. A checkpoint did not free what it had just written anew, and took for full what was half empty by
/// then. Where only packs were written, extents were recorded for ever that no recovery needs to scan.
#[test]
fn removals_are_never_refused() {
    let drawn = share(200).max(60);
    let mut random = Random::new(round_seed() + 15);
    let orders = [Order::Any, Order::Rising, Order::Mixed];
    let mut shapes = Vec::new();
    for (times, small_max, lens) in [
        (8, 0, 100..9000),
        (40, 0, 0..4000),
        (200, 0, 2099..2101),
        (40, 2048, 10..1900),
        (20, 2048, 10..200),
    ] {
        for order in orders {
            for journal in [144 << 10, 192 << 10, 1 << 20] {
                let lens = lens.clone();
                shapes.push(Shape {
                    journal,
                    times,
                    small_max,
                    lens,
                    order,
                });
            }
        }
    }
    for _ in 0..drawn {
        let shortest = random.index(3000);
        shapes.push(Shape {
            journal: (36 + random.below(100)) * 4096,
            times: 5 + random.below(200),
            small_max: *random.choose(&[0, 2048]),
            lens: shortest..shortest + 1 + random.index(3000),
            order: *random.choose(&orders),
        });
    }
    let count: usize = shapes.iter().map(Shape::fill_and_empty).sum();
    let rounds = shapes.len() as u64;
    let what = format!("objects of {rounds} full stores");
    tried_in_rounds(count as u64, rounds, 10_900, &what);
}

/// Small objects of whole segments, in little data.
#[test]
fn removals_are_never_refused_where_small_objects_may_be_long() {
    let drawn = share(200).max(60);
    let mut random = Random::new(round_seed() + 16);
    let mut count = 0;
    for _ in 0..drawn {
        let shape = Shape {
            journal: (36 + random.below(100)) * 4096,
            times: 1 + random.below(8),
            small_max: *random.choose(&[4096, 10_000, 65_464]),
            lens: 0..*random.choose(&[3000, 12_000, 70_000]),
            order: *random.choose(&[Order::Any, Order::Rising, Order::Mixed]),
        };
        count += shape.fill_and_empty();
    }
    let what = format!("objects of {drawn} full stores whose small objects may be long");
    tried_in_rounds(count as u64, drawn, 500, &what);
}

/// The sequence of a segment was read from its header: with that rotten what stood there was let go with it, though it could be
/// read, and `check` had found nothing.
#[test]
fn a_rotten_header_of_a_segment_is_told_and_takes_no_object_with_it() {
    let mut random = Random::new(round_seed() + 77);
    let options = options().capacity(640 << 10).journal_size(192 << 10);
    let (memory, store) = super::store_with(&options);
    let mut there = Vec::new();
    // Long ones leave no room for packs.
    for len in [60_000, 4000, 100] {
        while store
            .put(super::id(there.len() as u64), &vec![7; len])
            .is_ok()
        {
            there.push(len);
        }
    }
    let in_journal = store.stats().unwrap().objects_in_journal;
    assert!(in_journal > 100, "{in_journal}");
    store.checkpoint().unwrap();
    store.close().unwrap();
    let bytes = memory.to_vec();
    let mut told = 0;
    for segment in (16 << 10..192 << 10).step_by(4096) {
        if &bytes[segment..segment + 4] != b"azsg" {
            continue;
        }
        let mut rotten = bytes.clone();
        rotten[segment + 9] ^= 16;
        // Where the journal begins it has to be there.
        let reader = StoreReader::open_on(super::storage_of(&rotten), None).unwrap();
        if reader.is_degraded() {
            continue;
        }
        let is_sound = |bytes: &[u8]| {
            let reader = StoreReader::open_on(super::storage_of(bytes), None).unwrap();
            reader.check(true, &mut |_, _| {}).unwrap().is_sound()
        };
        told += u32::from(!is_sound(&rotten));
        let storage = super::storage_of(&rotten);
        let store = Store::open_on(Arc::clone(&storage), None, &options.opening).unwrap();
        store.close().unwrap();
        let mut corrected = vec![0; rotten.len()];
        storage.read_at(0, &mut corrected).unwrap();
        assert!(is_sound(&corrected), "segment at {segment:#x}");
        let store = super::opened(&rotten);
        let mut left: Vec<u64> = (0..there.len() as u64).collect();
        while left.len() > there.len() - 40 {
            let n = left.swap_remove(random.index(left.len()));
            assert!(store.remove(super::id(n)).unwrap());
        }
        store.checkpoint().unwrap();
        for n in left {
            let found = store.get(super::id(n)).unwrap();
            assert_eq!(found.map(|found| found.len()), Some(there[n as usize]));
        }
        store.close().unwrap();
    }
    assert!(told > 2, "{told}");
}
