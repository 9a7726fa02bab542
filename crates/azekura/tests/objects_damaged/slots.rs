//! One slot of a superblock, or of the label of a second device, that is lost.
//!
//! Each of both slots states all, so nothing is lost with one; but until it is written again the other one is all there is, and
//! a check reports that, of a store that was killed as of one that was closed. A repair writes both; opening for writing writes
//! superblocks.

use std::path::Path;

use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory};
use azekura::object::{CheckReport, CreateOptions, Store, StoreReader};
use azekura::testkit::round_seed;
use azekura::testkit::suite::demand;

use super::{DATA, JOURNAL, id, small_world, storages};

/// As `small_world`, with the values on a device of their own.
fn on_two_devices() -> (SimDisk, Store, CreateOptions) {
    let disk = SimDisk::new(round_seed());
    let options = CreateOptions::new().group_size(128 << 10).background(false);
    let [journal, data] = [(JOURNAL, 256 << 10), (DATA, 2 << 20)].map(|(name, size)| {
        let storage = disk.directory().create(Path::new(name)).unwrap();
        storage.resize(size).unwrap();
        storage
    });
    disk.directory().sync().unwrap();
    let store = Store::create_on(journal, Some(data), &options, &mut |_, _| {});
    (disk, store.unwrap(), options)
}

/// A small store, its values on another device if `has_data`, with a history that is synced.
fn used_world(has_data: bool) -> (SimDisk, Store, CreateOptions) {
    let (disk, store, options) = if has_data {
        on_two_devices()
    } else {
        small_world()
    };
    for n in 0..30 {
        store.put(id(n), &[n as u8; 3000]).unwrap();
        store.put(id(n + 100), &[n as u8; 30]).unwrap();
        if n % 10 == 9 {
            store.checkpoint().unwrap();
            store.remove(id(n)).unwrap();
        }
    }
    store.sync().unwrap();
    (disk, store, options)
}

/// That all of `used_world` is there, and may be changed.
fn has_all(store: &Store) {
    assert!(!store.is_read_only());
    for n in 0..30 {
        let wanted = (n % 10 != 9).then(|| vec![n as u8; 3000]);
        assert_eq!(store.get(id(n)).unwrap().as_deref(), wanted.as_deref());
        assert_eq!(
            store.get(id(n + 100)).unwrap().as_deref(),
            Some(&[n as u8; 30][..])
        );
    }
}

fn check_by_reader(disk: &SimDisk, has_data: bool) -> CheckReport {
    let (journal, data) = storages(disk, has_data);
    let reader = StoreReader::open_on(journal, data).unwrap();
    reader.check(true, &mut |_, _| {}).unwrap()
}

/// One slot of a superblock, or of the label of a second device, in a store at rest.
fn lose_a_slot(has_data: bool, is_closed: bool, (name, slot): (&str, u64), how: u32) {
    let context = format!("two {has_data}, closed {is_closed}, {name} {slot:#x}, {how}");
    let (disk, store, options) = used_world(has_data);
    let rest = if is_closed {
        store.close().unwrap();
        disk
    } else {
        disk.kill_state(disk.events())
    };
    let all = if has_data { 4 } else { 2 };
    let check = check_by_reader(&rest, has_data);
    assert!(
        check.is_sound() && check.superblocks == all,
        "{context}: {check:?}"
    );
    match how {
        0 => rest.rot(name, slot + 40, 1),
        1 => rest.make_unreadable(name, slot..slot + 4096),
        _ => {
            let storage = rest.directory().open(Path::new(name), Access::Write);
            storage.unwrap().write_at(slot, &[0; 4096]).unwrap();
        }
    }
    let check = check_by_reader(&rest, has_data);
    assert_eq!(check.superblocks, all - 1, "{context}");
    // What the device refuses to read is also known to be damaged since the store was opened.
    let most = if how == 1 { 2 } else { 1 };
    assert!((1..=most).contains(&check.found), "{context}: {check:?}");
    for found in &check.findings {
        assert_eq!(
            (found.device.as_path(), found.object),
            (Path::new(name), None),
            "{context}"
        );
        // Damage that is known since opening has no offset where that is 0.
        assert_eq!(found.offset.unwrap_or(0), slot, "{context}");
        assert!(
            how == 1 || found.what.contains("nothing is lost"),
            "{context}: {found:?}"
        );
    }
    // A repair loses nothing, doubts nothing, and leaves both slots.
    let repaired = rest.kill_state(rest.events());
    let (journal, data) = storages(&repaired, has_data);
    let report = Store::repair_on(&journal, data.as_ref(), &mut |_, _| {}).unwrap();
    assert_eq!(
        (report.objects, report.doubtful, report.damaged),
        (57, 0, 0),
        "{context}: {report:?}"
    );
    assert_eq!(report.lost, [""; 0], "{context}");
    drop((journal, data));
    let check = check_by_reader(&repaired, has_data);
    assert!(
        check.is_sound() && check.superblocks == all,
        "{context}: {check:?}"
    );
    for (disk, is_repaired) in [(&repaired, true), (&rest, false)] {
        let (journal, data) = storages(disk, has_data);
        let store = Store::open_on(journal, data, &options.opening).unwrap();
        has_all(&store);
        let check = store.check(true, &mut |_, _| {}).unwrap();
        // Opening writes superblocks; labels it leaves to a repair.
        let is_whole = is_repaired || name == JOURNAL;
        assert_eq!(check.is_sound(), is_whole, "{context}: {check:?}");
    }
}

#[test]
fn either_superblock_or_label_may_be_lost_at_any_time_and_check_says_so() {
    let mut tried = 0;
    for is_closed in [false, true] {
        for slot in [0, 4096] {
            for how in 0..3 {
                lose_a_slot(false, is_closed, (JOURNAL, slot), how);
                lose_a_slot(true, is_closed, (JOURNAL, slot), how);
                lose_a_slot(true, is_closed, (DATA, slot), how);
                tried += 3;
            }
        }
    }
    demand(tried, 36, "slots of superblocks and labels that were lost");
}

/// A check once reported of each of two lost labels that the other one was whole.
#[test]
fn a_check_of_a_store_without_both_labels_does_not_rely_on_the_other_one() {
    let (disk, store, _) = used_world(true);
    for slot in [0, 4096] {
        disk.rot(DATA, slot + 40, 1);
    }
    let check = store.check(true, &mut |_, _| {}).unwrap();
    assert_eq!((check.superblocks, check.found), (2, 2), "{check:?}");
    for (found, slot) in check.findings.iter().zip([0, 4096]) {
        assert_eq!(
            (found.device.as_path(), found.offset),
            (Path::new(DATA), Some(slot))
        );
        assert!(!found.what.contains("nothing is lost"), "{found:?}");
    }
}

/// The first two superblocks are those of creation: what distinguishes a slot that was never written from one that is lost is whether
/// the store was used.
#[test]
fn the_second_superblock_of_a_used_store_is_missed_and_of_an_unused_one_is_not() {
    for is_used in [false, true] {
        let (disk, store, _) = small_world();
        if is_used {
            store.put(id(1), b"one").unwrap();
        }
        let killed = disk.kill_state(disk.events());
        drop(store);
        // Sequence 2 stands in the first slot.
        let storage = killed.directory().open(Path::new(JOURNAL), Access::Write);
        storage.unwrap().write_at(0, &[0; 4096]).unwrap();
        let check = check_by_reader(&killed, false);
        assert_eq!(
            (check.is_sound(), check.superblocks),
            (!is_used, 1),
            "{check:?}"
        );
    }
}

/// Creation writes two superblocks. Where a crash left the first one alone, the second was never there to be damaged.
#[test]
fn a_store_whose_creation_ended_after_its_first_superblock_is_sound() {
    let (disk, store, _) = used_world(true);
    drop(store);
    let (mut of_one, mut of_two) = (0, 0);
    for at in 0..disk.events() {
        let killed = disk.kill_state(at);
        let names = [JOURNAL, DATA].map(Path::new);
        let opened = names.map(|name| killed.directory().open(name, Access::Read));
        let [Ok(journal), Ok(data)] = opened else {
            continue;
        };
        let Ok(reader) = StoreReader::open_on(journal, Some(data)) else {
            continue;
        };
        let check = reader.check(true, &mut |_, _| {}).unwrap();
        assert!(check.is_sound(), "event {at}: {check:?}");
        match check.superblocks {
            3 => of_one += 1,
            _ => of_two += 1,
        }
        if of_two > 50 {
            break;
        }
    }
    assert!(of_one > 0 && of_two > 50, "{of_one}, {of_two}");
}
