//! Check, scrub, journal, stats, grow and copy of sound stores, and what they state of damaged ones.
//!
//! Most of it continues while a thread changes the store. What a flipped bit anywhere may do is `rot`'s question; what a
//! crash may do is that of `tests/objects.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura::Kind;
use azekura::io::memory::Memory;
use azekura::io::{Access, Storage};
use azekura::object::layout::Record;
use azekura::object::{Change, ObjectId, Step, Store};
use azekura::testkit::Random;

use super::{contents, id, opened, options, store_with, value};

/// Objects of many sizes, some of them changed and removed, around a checkpoint.
fn filled(store: &Store) {
    for n in 0..12 {
        store.put(id(n), &value(n, 900 * n as usize)).unwrap();
    }
    store.remove(id(3)).unwrap();
    store.checkpoint().unwrap();
    store.put(id(4), &value(100, 70_000)).unwrap();
    store.remove_range(id(6)..id(8)).unwrap();
    let batch = [
        Change::Put(id(20), b"one"),
        Change::Remove(id(9)),
        Change::Put(id(21), b"two"),
    ];
    store.apply(&batch).unwrap();
}

#[test]
fn a_sound_store_is_found_sound_while_it_is_changed() {
    let (_, store) = store_with(&options());
    filled(&store);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(1);
            while !done.load(Ordering::Relaxed) {
                let n = random.below(12);
                let len = random.index(9000);
                store.put(id(n), &value(n, len)).unwrap();
                if random.one_in(8) {
                    store.checkpoint().unwrap();
                }
            }
        });
        for _ in 0..40 {
            let report = store.check(true, &mut |_, _| {}).unwrap();
            assert!(report.is_sound(), "{:?}", report.findings);
            assert!(report.verified > 5, "{report:?}");
            assert_eq!(report.superblocks, 2);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn damage_in_an_object_is_found_by_check_and_scrub_with_device_offset_and_id() {
    let (memory, store) = store_with(&options());
    filled(&store);
    store.close().unwrap();
    let mut bytes = memory.to_vec();
    let needle = &value(100, 70_000)[69_000..69_050];
    let at = bytes.windows(50).position(|window| window == needle);
    bytes[at.unwrap()] ^= 1;
    let store = opened(&bytes);
    assert!(store.check(false, &mut |_, _| {}).unwrap().is_sound());
    let report = store.check(true, &mut |_, _| {}).unwrap();
    assert_eq!(report.found, 1);
    let finding = &report.findings[0];
    assert_eq!(finding.object, Some(id(4)));
    let offset = finding.offset.unwrap();
    assert!((offset..offset + (72 << 10)).contains(&(at.unwrap() as u64)));
    assert!(finding.what.contains("chunk 1"), "{}", finding.what);
    assert!(
        finding.what.contains(&id(4).to_string()),
        "{}",
        finding.what
    );
    let mut damaged = Vec::new();
    let scrubbed = store.scrub(.., None, &mut |step| {
        if let Step::Damaged(finding) = step {
            damaged.push(finding);
        }
        true
    });
    let scrubbed = scrubbed.unwrap();
    assert_eq!(damaged, report.findings);
    assert_eq!((scrubbed.damaged, scrubbed.next), (1, None));
    assert_eq!(scrubbed.objects, store.count());
}

#[test]
fn a_scrub_stops_when_asked_and_goes_on_where_it_was() {
    let (_, store) = store_with(&options().capacity(8 << 20).journal_size(1 << 20));
    // More than a window.
    for n in 0..1500 {
        store.put(id(n), b"value").unwrap();
    }
    let (mut seen, mut from) = (std::collections::BTreeSet::new(), ObjectId(0));
    let mut rounds = 0;
    loop {
        let mut left = 1100;
        let scrubbed = store.scrub(from.., None, &mut |step| {
            if let Step::Whole(id) = step {
                seen.insert(id);
            }
            left -= 1;
            left > 0
        });
        rounds += 1;
        match scrubbed.unwrap().next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!((seen.len(), rounds), (1500, 2));
}

#[test]
fn the_journal_shows_what_was_changed_since_the_checkpoint() {
    let (_, store) = store_with(&options());
    filled(&store);
    let mut records = Vec::new();
    store
        .journal(&mut |_, record| {
            records.push(record.clone());
            true
        })
        .unwrap();
    let put = |record: &Record| matches!(record, Record::Put(of, ..) if *of == id(4));
    assert!(records.iter().any(put), "{records:?}");
    let range = |record: &Record| matches!(record, Record::RangeRemoved(_, of, _) if *of == id(6));
    assert!(records.iter().any(range), "{records:?}");
    let batch = |record: &Record| matches!(record, Record::Batch(of) if of.len() == 3);
    assert!(records.iter().any(batch), "{records:?}");
    let mut shown = 0;
    store
        .journal(&mut |_, _| {
            shown += 1;
            false
        })
        .unwrap();
    assert_eq!(shown, 1);
    store.checkpoint().unwrap();
    store
        .journal(&mut |_, record| panic!("{record:?} is after the checkpoint"))
        .unwrap();
}

#[test]
fn figures_add_up() {
    let (_, store) = store_with(&options());
    filled(&store);
    let stats = store.stats().unwrap();
    let usage = store.usage(..).unwrap();
    assert_eq!(stats.objects, store.count());
    assert_eq!(stats.bytes, usage.bytes);
    assert!(stats.extent_bytes <= usage.device_bytes);
    assert_eq!(
        stats.data_bytes,
        stats.extent_bytes + stats.pack_bytes + stats.free_bytes + stats.limbo_bytes
    );
    assert!(stats.longest_free_bytes <= 128 << 10 && stats.free_runs >= 1);
    store.get(id(11)).unwrap();
    let reads = store.stats().unwrap().device_reads;
    assert_eq!(reads, stats.device_reads + 1, "a get is one read");
}

#[test]
fn a_store_grows_while_it_is_used_and_never_shrinks() {
    let (memory, store) = store_with(&options());
    filled(&store);
    let before = contents(&store);
    let refused = loop {
        let n = store.count() + 100;
        match store.put(id(n), &value(n, 60_000)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), Kind::Full);
    let count = store.count();
    // The last group gets more units, and there are new ones.
    let grown = store.grow(Some((1 << 20) + (300 << 10))).unwrap();
    assert_eq!(grown, (768 << 10) + (300 << 10));
    store.put(id(1000), &value(1000, 60_000)).unwrap();
    store.check_room().unwrap();
    let killed = memory.to_vec();
    assert_eq!(store.grow(Some(1 << 20)).unwrap_err().kind(), Kind::Invalid);
    store.close().unwrap();
    for bytes in [killed, memory.to_vec()] {
        let store = opened(&bytes);
        assert_eq!(store.count(), count + 1);
        assert_eq!(
            store.get(id(1000)).unwrap(),
            Some(value(1000, 60_000).into())
        );
        store.check_room().unwrap();
        for (id, value) in &before {
            assert_eq!(store.get(*id).unwrap().as_deref(), Some(&value[..]));
        }
        // A device that shrank.
        let error = store.close().map(|()| {
            let short = super::storage_of(&bytes[..1 << 20]);
            Store::open_on(short, None, &options().opening).unwrap_err()
        });
        let error = error.unwrap();
        assert_eq!(error.kind(), Kind::Corrupted);
        let text = error.to_string();
        assert!(text.contains("1 MiB") && text.contains("1.3 MiB"), "{text}");
    }
}

#[test]
fn an_empty_store_that_ends_within_a_group_grows_over_it() {
    let (memory, store) = store_with(&options().capacity((1 << 20) - (64 << 10)));
    for round in 0..4u64 {
        store.grow(Some((1 << 20) + (round << 16))).unwrap();
        store.check_room().unwrap();
    }
    store.close().unwrap();
    let store = opened(&memory.to_vec());
    store.check_room().unwrap();
    let free = store.stats().unwrap().free_bytes;
    assert_eq!(free, (1 << 20) + (3 << 16) - (256 << 10));
}

#[test]
fn a_copy_is_the_store_of_one_moment_while_changes_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let options = options().capacity(4 << 20);
    let (_, store) = store_with(&options);
    // Each round gives all objects one version: a copy has at most two versions next to each other.
    let round = |version: u64| {
        for n in 0..16 {
            let mut bytes = version.to_le_bytes().to_vec();
            bytes.extend(value(version * 100 + n, 20_000));
            // Room that is freed while a copy runs is not used again before its end.
            while let Err(error) = store.put(id(n), &bytes) {
                assert_eq!(error.kind(), Kind::Full);
                std::thread::yield_now();
            }
        }
    };
    round(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut version = 1;
            while !done.load(Ordering::Relaxed) {
                round(version);
                store.checkpoint().unwrap();
                version += 1;
            }
        });
        for number in 0..8 {
            let path = folder.path().join(format!("copy-{number}"));
            store.copy_to(&path, &mut |_, _| {}).unwrap();
            let copy = Store::open(&path, &options.opening).unwrap();
            assert!(copy.check(true, &mut |_, _| {}).unwrap().is_sound());
            let all = contents(&copy);
            assert_eq!(all.len(), 16);
            let versions: Vec<u64> = all
                .values()
                .map(|bytes| u64::from_le_bytes(*bytes.first_chunk().unwrap()))
                .collect();
            assert!(versions.is_sorted_by(|a, b| a >= b), "{versions:?}");
            assert!(versions[0] - versions[15] <= 1, "{versions:?}");
            for (n, bytes) in all.values().enumerate() {
                let version = u64::from_le_bytes(*bytes.first_chunk().unwrap());
                assert!(bytes[8..] == value(version * 100 + n as u64, 20_000));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let error = store
        .copy_to(folder.path().join("copy-0"), &mut |_, _| {})
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
}

/// A copy once had the store's capacity, and found no room on a smaller device.
#[test]
fn a_copy_takes_the_room_that_its_objects_need() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::new(256 << 20).unwrap();
    memory.resize(256 << 20).unwrap();
    let options = options()
        .capacity(256 << 20)
        .journal_size(1 << 20)
        .group_size(None);
    let store = Store::create_on(memory, None, &options, &mut |_, _| {}).unwrap();
    for n in 0..20 {
        store.put(id(n), &value(n, 50_000)).unwrap();
    }
    let path = folder.path().join("copy.azo");
    store.copy_to(&path, &mut |_, _| {}).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size <= (1 << 20) + (8 << 20), "{size} bytes");
    let copy = Store::open(&path, &options.opening).unwrap();
    for n in 0..20 {
        assert_eq!(copy.get(id(n)).unwrap(), Some(value(n, 50_000).into()));
    }
}

#[test]
fn of_two_devices_each_alone_or_with_a_stranger_is_a_clear_error() {
    let device = |size| -> Arc<dyn Storage> {
        let memory = Memory::new(8 << 20).unwrap();
        memory.resize(size).unwrap();
        memory
    };
    let (journal, data) = (device(256 << 10), device(1 << 20));
    let options = options().journal_size(None);
    let create = |journal: &Arc<dyn Storage>, data: &Arc<dyn Storage>| {
        let (journal, data) = (Arc::clone(journal), Arc::clone(data));
        Store::create_on(journal, Some(data), &options, &mut |_, _| {}).unwrap()
    };
    let store = create(&journal, &data);
    filled(&store);
    let before = contents(&store);
    assert_eq!(store.check(true, &mut |_, _| {}).unwrap().superblocks, 4);
    store.close().unwrap();
    let open = |journal: &Arc<dyn Storage>, data: Option<&Arc<dyn Storage>>| {
        Store::open_on(Arc::clone(journal), data.cloned(), &options.opening)
    };
    let blank = device(1 << 20);
    let (other_journal, other) = (device(256 << 10), device(1 << 20));
    let boot = create(&other_journal, &other);
    boot.close().unwrap();
    for (journal, data, kind) in [
        (&journal, None, Kind::Mismatch),
        (&journal, Some(&blank), Kind::Mismatch),
        (&blank, Some(&data), Kind::Mismatch),
        (&data, None, Kind::Mismatch),
    ] {
        let error = open(journal, data).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let error = Store::repair_on(journal, data, &mut |_, _| {}).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let store = open(&journal, Some(&data)).unwrap();
    assert_eq!(contents(&store), before);
    store.close().unwrap();
    // The label of the data, damaged in both slots, is written again.
    for slot in [0, 4096] {
        let mut byte = [0];
        data.read_at(slot + 40, &mut byte).unwrap();
        data.write_at(slot + 40, &[byte[0] ^ 4]).unwrap();
    }
    assert_eq!(
        open(&journal, Some(&data)).unwrap_err().kind(),
        Kind::Corrupted
    );
    let report = Store::repair_on(&journal, Some(&data), &mut |_, _| {}).unwrap();
    assert_eq!(report.lost.len(), 1, "{report:?}");
    let store = open(&journal, Some(&data)).unwrap();
    assert_eq!(contents(&store), before);
    assert!(store.check(true, &mut |_, _| {}).unwrap().is_sound());
}

#[test]
fn a_label_that_is_gone_is_written_again_if_an_object_vouches_for_the_device() {
    let device = |size| {
        let memory = Memory::new(8 << 20).unwrap();
        memory.resize(size).unwrap();
        memory
    };
    let options = options().journal_size(None);
    let (journal, data) = (device(256 << 10), device(1 << 20));
    let shared = |memory: &Arc<Memory>| -> Arc<dyn Storage> { Arc::clone(memory) as _ };
    let repair = |data: &Arc<Memory>| {
        Store::repair_on(&shared(&journal), Some(&shared(data)), &mut |_, _| {})
    };
    let open = || Store::open_on(shared(&journal), Some(shared(&data)), &options.opening);
    let store = Store::create_on(
        shared(&journal),
        Some(shared(&data)),
        &options,
        &mut |_, _| {},
    )
    .unwrap();
    filled(&store);
    // As a death leaves it: what the journal states last is held against the data.
    store.put(id(30), &value(30, 9000)).unwrap();
    let before = contents(&store);
    let (as_journal, as_data) = (journal.to_vec(), data.to_vec());
    drop(store);
    let put_back = |bytes: &[u8], memory: &Memory| memory.write_at(0, bytes).unwrap();
    put_back(&as_journal, &journal);
    put_back(&as_data, &data);

    // Somebody else's: zeros where a label would be, and more after; or something else there.
    let (stranger, other) = (device(1 << 20), device(1 << 20));
    stranger.write_at(64 << 10, b"_BHRfS_M").unwrap();
    other.write_at(4096, b"something else").unwrap();
    for wrong in [&stranger, &other, &device(1 << 20)] {
        let held = wrong.to_vec();
        let error = repair(wrong).unwrap_err();
        assert_eq!(error.kind(), Kind::Mismatch, "{error}");
        assert!(wrong.to_vec() == held && journal.to_vec() == as_journal);
    }
    // Something was written over a part of the label.
    let zeros = vec![0; 8192];
    data.write_at(0, &zeros).unwrap();
    data.write_at(100, b"something else").unwrap();
    let held = data.to_vec();
    assert_eq!(repair(&data).unwrap_err().kind(), Kind::Mismatch);
    assert!(data.to_vec() == held && journal.to_vec() == as_journal);

    data.write_at(0, &zeros).unwrap();
    assert_eq!(open().unwrap_err().kind(), Kind::Mismatch);
    let report = repair(&data).unwrap();
    assert_eq!((report.lost.len(), report.doubtful), (1, 0), "{report:?}");
    let store = open().unwrap();
    assert_eq!(contents(&store), before);
    let report = store.check(true, &mut |_, _| {}).unwrap();
    assert!(report.is_sound() && report.superblocks == 4);
    store.close().unwrap();
    // The index gone, too: objects are found by a scan, and one of them vouches.
    journal
        .write_at(8192, &vec![0; (256 << 10) - 8192])
        .unwrap();
    data.write_at(0, &zeros).unwrap();
    let as_journal = journal.to_vec();
    assert_eq!(repair(&stranger).unwrap_err().kind(), Kind::Mismatch);
    assert!(journal.to_vec() == as_journal);
    let report = repair(&data).unwrap();
    assert!(report.objects > 5, "{report:?}");
    assert!(
        open()
            .unwrap()
            .check(true, &mut |_, _| {})
            .unwrap()
            .is_sound()
    );
}

#[test]
fn a_store_without_objects_gets_its_label_only_where_nothing_is() {
    let folder = tempfile::tempdir().unwrap();
    let [journal, data] = ["journal", "data"].map(|name| folder.path().join(name));
    let devices = || {
        let open = |path| Arc::new(azekura::io::file::File::open(path, Access::Write).unwrap());
        let (journal, data): (Arc<dyn Storage>, Arc<dyn Storage>) = (open(&journal), open(&data));
        (journal, data)
    };
    for (path, size) in [(&journal, 256 << 10), (&data, 1 << 20)] {
        std::fs::File::create(path).unwrap().set_len(size).unwrap();
    }
    let options = options().journal_size(None);
    let (first, second) = devices();
    let store = Store::create_on(first, Some(second), &options, &mut |_, _| {}).unwrap();
    store.close().unwrap();
    for at in [Some(64 << 10), None] {
        let (journal, data) = devices();
        data.write_at(0, &vec![0; 1 << 20]).unwrap();
        if let Some(at) = at {
            data.write_at(at, b"_BHRfS_M").unwrap();
        }
        let repaired = Store::repair_on(&journal, Some(&data), &mut |_, _| {});
        match at {
            Some(_) => assert_eq!(repaired.unwrap_err().kind(), Kind::Mismatch),
            None => assert_eq!(repaired.unwrap().lost.len(), 1),
        }
    }
    let (first, second) = devices();
    Store::open_on(first, Some(second), &options.opening).unwrap();
}

#[test]
fn a_repair_tells_of_damaged_values_and_gives_no_advice_in_a_loss() {
    let (memory, store) = store_with(&options());
    filled(&store);
    store.close().unwrap();
    let bytes = memory.to_vec();
    let wanted = &value(100, 70_000)[..32];
    let at = bytes.windows(32).position(|found| found == wanted).unwrap();
    memory.write_at(at as u64, &[!bytes[at]]).unwrap();
    let shared: Arc<dyn Storage> = Arc::clone(&memory) as _;
    let repair = || Store::repair_on(&shared, None, &mut |_, _| {}).unwrap();
    for _ in 0..2 {
        let report = repair();
        assert_eq!((report.lost.len(), report.damaged), (0, 1), "{report:?}");
        assert!(report.damage[0].contains(&id(4).to_string()), "{report:?}");
    }
    // The index gone: what is found is reported without the advice to do what is being done.
    memory.write_at(8192, &vec![0; (64 << 10) - 8192]).unwrap();
    let report = repair();
    assert!(!report.lost.is_empty());
    for line in &report.lost {
        assert!(!line.contains("object repair"), "{line}");
    }
}

#[test]
fn no_rate_and_no_size_of_a_journal_overflows() {
    let (_, store) = store_with(&options());
    let error = store.scrub(.., Some(0), &mut |_| true);
    assert_eq!(error.unwrap_err().kind(), Kind::Invalid);
    for size in [u64::MAX, u64::MAX - 4095, u64::MAX - 4096, 1 << 40] {
        let options = options().journal_size(size);
        let memory = Memory::new(8 << 20).unwrap();
        memory.resize(8 << 20).unwrap();
        let error = Store::create_on(memory, None, &options, &mut |_, _| {}).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains("the journal does not fit"));
    }
}

/// Fills it with objects of `len` bytes until it is full; how many there are.
fn full_of(store: &Store, from: u64, len: usize) -> u64 {
    for n in from.. {
        match store.put(id(n), &value(n, len)) {
            Err(error) if error.kind() == Kind::Full => {
                assert_eq!(store.head(id(n)).unwrap(), None, "a refused put is there");
                return n;
            }
            stored => drop(stored.unwrap()),
        }
    }
    unreachable!("a store is full before numbers end")
}

#[test]
fn a_store_whose_journal_was_full_of_small_objects_takes_more_when_it_has_grown() {
    let (_, store) = store_with(&options());
    let large = full_of(&store, 0, 4000);
    let count = full_of(&store, large, 1500);
    assert!(count > large);
    store.grow(Some(3 << 20)).unwrap();
    store.put(id(count), &value(count, 1500)).unwrap();
    store.put(id(count + 1), &value(count + 1, 4000)).unwrap();
    for n in 0..count + 2 {
        let len = if n < large || n > count { 4000 } else { 1500 };
        assert!(
            store.get(id(n)).unwrap() == Some(value(n, len).into()),
            "{n}"
        );
    }
    store.check_room().unwrap();
}

#[test]
fn room_that_a_copy_kept_is_found_by_small_objects_that_waited_for_it() {
    let (_, store) = store_with(&options());
    let large = full_of(&store, 0, 4000);
    let target = azekura::io::sim::SimDisk::new(1).directory();
    let mut count = None;
    let copied = store.copy_in(&target, std::path::Path::new("copy.azo"), &mut |_, _| {
        count.get_or_insert_with(|| {
            assert_eq!(store.remove_range(id(0)..id(90)).unwrap(), 90);
            full_of(&store, large, 1500)
        });
    });
    copied.unwrap();
    let count = count.unwrap();
    store.put(id(count), &value(count, 1500)).unwrap();
    store.put(id(count + 1), &value(count + 1, 4000)).unwrap();
    assert_eq!(store.count(), count + 2 - 90);
}

#[test]
fn a_journal_far_too_small_refuses_objects_and_never_a_removal() {
    for kibibytes in [144, 148, 160, 192, 256, 512] {
        for len in [3000, 1500, 30] {
            let (memory, store) = store_with(
                &options()
                    .capacity(8 << 20)
                    .journal_size(kibibytes << 10)
                    .small_max(if len == 3000 { 0 } else { 2048 }),
            );
            let what = format!("{kibibytes} KiB of journal, objects of {len} bytes");
            // Their order is not that of their ids: every checkpoint changes every leaf.
            let scattered = |n: u64| ObjectId(u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            let mut count = 0;
            while count < 20_000 {
                match store.put(scattered(count), &value(count, len)) {
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Full, "{what}");
                        let there = store.head(scattered(count)).unwrap();
                        assert_eq!(there, None, "{what}: a refused put is there");
                        break;
                    }
                    Ok(_) => count += 1,
                }
            }
            assert!(count >= 20, "{count} with {what}");
            store.close().unwrap();
            let store = opened(&memory.to_vec());
            for n in 0..count {
                assert!(store.remove(scattered(n)).unwrap(), "{what}");
            }
            store.put(id(1), &value(1, len)).unwrap();
            store.check_room().unwrap();
            store.close().unwrap();
        }
    }
}

#[test]
fn batches_leave_room_for_the_checkpoint_that_they_need() {
    for (kibibytes, len) in [(144, 50), (256, 400), (512, 2000)] {
        let (_, store) = store_with(&options().capacity(8 << 20).journal_size(kibibytes << 10));
        let mut random = Random::new(7);
        let mut count = 0;
        loop {
            let ids: Vec<ObjectId> = (0..len)
                .map(|_| ObjectId(u128::from(random.u64()) << 64))
                .collect();
            let changes: Vec<Change<'_>> =
                ids.iter().map(|id| Change::Put(*id, b"batched")).collect();
            match store.apply(&changes) {
                Ok(sequences) => count += sequences.len() as u64,
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full);
                    break;
                }
            }
        }
        assert_eq!(store.count(), count);
        store.checkpoint().unwrap();
        for id in contents(&store).into_keys() {
            assert!(store.remove(id).unwrap(), "{kibibytes} KiB");
        }
        store.put(id(1), &value(1, 3000)).unwrap();
        store.check_room().unwrap();
    }
}

#[test]
fn the_longest_value_fits_into_an_empty_store() {
    for (capacity, group_size) in [(16 << 20, None), (8 << 20, Some(1 << 20))] {
        let options = options().capacity(capacity).group_size(group_size);
        let memory = Memory::new(16 << 20).unwrap();
        memory.resize(capacity).unwrap();
        let store = Store::create_on(memory, None, &options, &mut |_, _| {}).unwrap();
        let longest = value(1, store.len_max() as usize);
        store.put(id(1), &longest).unwrap();
        assert!(store.get(id(1)).unwrap().unwrap() == longest);
        let error = store.put(id(2), &[longest, vec![0]].concat()).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge, "{error}");
    }
}
