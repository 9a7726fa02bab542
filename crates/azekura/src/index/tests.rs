//! The index against models, alone and with threads: what was inserted is found, what was removed is
//! not, a scan shows every entry once, and an index that is not loaded loads what was captured. Keys are their own
//! addresses here, so no log is needed.

use std::collections::HashSet;

use super::*;
use crate::epoch::Domain;

fn hash_of(key: u64) -> Hash {
    Hash::of(
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ key.rotate_left(17).wrapping_mul(0xd6e8_feb8_6659_fd93),
    )
}

/// Decides whether a place is the key's.
fn is(key: u64) -> impl Fn(Place) -> Result<Option<()>> {
    move |place| Ok((place == key).then_some(()))
}

fn insert(index: &Index, key: u64) {
    let pin = index.pin();
    let put = index.lock_to_put(&pin, hash_of(key), |locked| locked.find(is(key)));
    let (mut locked, _) = put.unwrap();
    locked.fill(key);
}

/// An index of the keys from 1 on.
fn filled(count: u64) -> Index {
    let index = Index::new(&Domain::new()).unwrap();
    (1..=count).for_each(|key| insert(&index, key));
    index
}

fn remove(index: &Index, key: u64) -> bool {
    let pin = index.pin();
    let locked = index.lock(&pin, hash_of(key)).unwrap();
    let found = locked.find(is(key)).unwrap();
    found.map(|(slot, ())| locked.remove(slot)).is_some()
}

fn contains(index: &Index, key: u64) -> bool {
    let found = index.find(&index.pin(), hash_of(key), is(key));
    found.unwrap().is_some()
}

#[test]
fn a_million_entries_are_found() {
    let index = filled(1_000_000);
    for key in 1..=1_000_000u64 {
        assert!(contains(&index, key), "{key}");
        assert!(!contains(&index, key + 2_000_000));
    }
}

#[test]
fn inserts_and_removals_agree_with_a_set() {
    let index = Index::new(&Domain::new()).unwrap();
    let mut model = HashSet::new();
    let mut state = 88172645463325252u64;
    for _ in 0..400_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let key = state % 20_000 + 1;
        if state >> 60 < 9 {
            insert(&index, key);
            model.insert(key);
        } else {
            assert_eq!(remove(&index, key), model.remove(&key));
        }
    }
    for key in 1..=20_000 {
        assert_eq!(contains(&index, key), model.contains(&key));
    }
}

#[test]
fn a_scan_by_chunks_shows_every_entry_once_in_order() {
    let index = filled(50_000);
    let pin = index.pin();
    let mut seen = Vec::new();
    let mut at = Some(Hash(0));
    let mut before = 0;
    while let Some(hash) = at {
        let (entries, next) = index.scan_chunk(&pin, hash).unwrap();
        for (known, place) in entries {
            assert!(known >= before);
            before = known;
            seen.push(place);
        }
        at = next;
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=50_000).collect::<Vec<_>>());
}

#[test]
fn captured_partitions_load_into_an_unloaded_index() {
    struct Captured(Vec<Vec<u64>>);
    impl Source for Captured {
        fn load(&self, partition: usize) -> Result<Vec<u64>> {
            Ok(self.0[partition].clone())
        }
    }
    let index = filled(200_000);
    assert_eq!(index.take_dirty().len(), PARTITIONS);
    let captured = (0..PARTITIONS).map(|partition| {
        let mut entries = Vec::new();
        index.capture(partition, &mut entries);
        entries
    });
    let loaded_later =
        Index::unloaded(&Domain::new(), Arc::new(Captured(captured.collect()))).unwrap();
    for key in 1..=200_000u64 {
        assert!(contains(&loaded_later, key));
    }
    assert!(!contains(&loaded_later, 200_001));
    assert!(loaded_later.take_dirty().is_empty());
    assert!(remove(&loaded_later, 7) && !contains(&loaded_later, 7));
    assert_eq!(loaded_later.take_dirty(), vec![hash_of(7).partition()]);
}

/// A partition that was being loaded once came into the directory that a clear had made: its records were back.
#[test]
fn what_is_being_loaded_while_all_is_cleared_does_not_come_back() {
    struct Slow {
        entries: Vec<u64>,
        begun: std::sync::Barrier,
        cleared: std::sync::Barrier,
    }
    impl Source for Slow {
        fn load(&self, _: usize) -> Result<Vec<u64>> {
            self.begun.wait();
            self.cleared.wait();
            Ok(self.entries.clone())
        }
        fn loaded(&self, _: usize) {
            panic!("it was not loaded");
        }
    }
    let partition = hash_of(1).partition();
    let keys: Vec<u64> = (1..4_000_000)
        .filter(|key| hash_of(*key).partition() == partition)
        .collect();
    // Of one chunk, of several, and of none.
    for count in [10, keys.len(), 0] {
        let source = Arc::new(Slow {
            entries: keys[..count]
                .iter()
                .map(|key| entry(hash_of(*key), *key))
                .collect(),
            begun: std::sync::Barrier::new(2),
            cleared: std::sync::Barrier::new(2),
        });
        let index =
            Index::unloaded(&Domain::new(), Arc::clone(&source) as Arc<dyn Source>).unwrap();
        std::thread::scope(|scope| {
            let loading = scope.spawn(|| index.load(partition));
            source.begun.wait();
            index.clear(Blank::new().unwrap(), None);
            source.cleared.wait();
            loading.join().unwrap().unwrap();
        });
        let mut found = Vec::new();
        index.capture(partition, &mut found);
        assert_eq!(found, Vec::<u64>::new());
        assert!(keys.iter().take(1000).all(|key| !contains(&index, *key)));
        insert(&index, keys[0]);
        assert!(contains(&index, keys[0]));
    }
}

/// A directory that was replaced was once put into a box while readers borrowed it, and cleared through that borrow.
#[test]
fn a_replaced_directory_stays_where_it_is_while_a_reader_may_borrow_it() {
    let index = filled(1000);
    let kept = || index.directory.replaced_count();
    let blank = || Directory::new(PARTITION_BITS).unwrap();
    let replace = || drop(index.directory.swap(blank()));
    let pin = index.pin();
    let borrowed = index.directory.get(&pin);
    let words = || -> Vec<u64> {
        let slots = borrowed.slots.iter();
        slots.map(|slot| slot.load(Ordering::Relaxed)).collect()
    };
    let before = words();
    assert!(before.iter().any(|word| *word != 0));
    for count in 1..=3 {
        replace();
        assert_eq!(kept(), count, "a reader borrows it");
        assert!(!std::ptr::eq(borrowed, index.directory.get(&pin)) && words() == before);
    }
    drop(pin);
    replace();
    assert_eq!(kept(), 0);
}

#[test]
fn threads_insert_while_others_look_up() {
    let index = Index::new(&Domain::new()).unwrap();
    let per_thread = 100_000u64;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let index = &index;
            scope.spawn(move || {
                for i in 1..=per_thread {
                    insert(index, thread * per_thread + i);
                    if i % 16 == 0 {
                        assert!(contains(index, thread * per_thread + i / 2 + 1));
                    }
                }
            });
        }
    });
    for key in 1..=4 * per_thread {
        assert!(contains(&index, key), "{key}");
    }
}

#[test]
fn many_buckets_are_locked_in_one_order() {
    let index = filled(5_000);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let index = &index;
            scope.spawn(move || {
                for i in 0..5_000u64 {
                    let pin = index.pin();
                    let keys = [
                        i % 97 + 1,
                        (i * 7 + thread) % 97 + 1,
                        (i * 31) % 97 + 1,
                        i % 97 + 1,
                    ];
                    let locked = index.lock_many(&pin, &keys.map(hash_of)).unwrap();
                    assert_eq!(locked.len(), 4);
                    for (one, key) in locked.iter().zip(keys) {
                        assert_eq!(one.hash(), hash_of(key));
                        assert!(one.find(is(key)).unwrap().is_some());
                    }
                }
            });
        }
    });
}

/// What a source keeps until a partition is in memory was once dropped before the partition was built.
#[test]
fn a_partition_that_could_not_be_built_is_not_reported_as_loaded() {
    #[derive(Default)]
    struct Source {
        loads: AtomicU64,
        loaded: AtomicU64,
    }
    impl super::Source for Source {
        fn load(&self, _partition: usize) -> Result<Vec<u64>> {
            let is_first = self.loads.fetch_add(1, Ordering::Relaxed) == 0;
            // More than a chunk holds, of one tag: no further bits distinguish them.
            let count = if is_first { 4 * shape::ENTRIES_MAX } else { 1 };
            let place = |at| 7 + at as u64;
            Ok((0..count).map(|at| entry(hash_of(7), place(at))).collect())
        }

        fn loaded(&self, _partition: usize) {
            self.loaded.fetch_add(1, Ordering::Relaxed);
        }
    }
    let source = Arc::new(Source::default());
    let index = Index::unloaded(
        &Domain::new(),
        Arc::clone(&source) as Arc<dyn super::Source>,
    )
    .unwrap();
    let partition = hash_of(7).partition();
    let error = index.load(partition).unwrap_err();
    assert_eq!(error.kind(), crate::error::Kind::Full, "{error}");
    assert!(!index.is_loaded(partition));
    assert_eq!(source.loaded.load(Ordering::Relaxed), 0);
    assert!(contains(&index, 7));
    let counts = [&source.loads, &source.loaded].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [2, 1]);
}
