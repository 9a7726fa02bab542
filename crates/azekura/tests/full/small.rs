//! Small devices and capacities, with default options: how much of them records can take.
//!
//! A store of 32 MiB or more is filled to 85 %. Smaller ones hold less, since what is kept for a full store is counted in
//! segments, and these are 16 KiB at least; [`DEVICES`] has the bounds, which `docs/operations.md` states, too.

use std::sync::Arc;

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::suite::demand;
use azekura::testkit::tried;
use azekura::{Kind, Reader as _};

/// Bytes of a device or capacity, and the per cent of them that keys and values of 1008 bytes fill, at least.
const DEVICES: [(u64, u64); 7] = [
    (512 << 10, 55),
    (1 << 20, 60),
    (2 << 20, 67),
    (4 << 20, 72),
    (16 << 20, 80),
    (32 << 20, 85),
    (64 << 20, 85),
];

#[test]
fn small_devices_and_capacities_hold_records() {
    let (mut stores, mut removals) = (0, 0);
    for (device, least) in DEVICES {
        for capacity in [1 << 40, device] {
            let size = if capacity == device { device } else { 1 << 31 };
            let memory = Memory::new(size).expect("memory");
            memory.set_limit(device);
            let options = CreateOptions::new().capacity(capacity);
            let storage = Arc::clone(&memory) as Arc<dyn Storage>;
            let db = HashDb::create_on(storage, &options).expect("a new store");
            let value = [7; 1000];
            let mut records = 0u64;
            let refused = loop {
                match db.put(&records.to_le_bytes(), &value) {
                    Ok(()) => records += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(refused.kind(), Kind::Full, "{refused}");
            let part = records * 1008 * 100 / device;
            tried(&format!("{device} bytes hold {records} records: {part} %"));
            assert!(part >= least, "{device} bytes: {part} %, not {least}");
            for key in 0..records {
                assert!(db.remove(&key.to_le_bytes()).expect("a removal"));
                removals += 1;
            }
            stores += u64::from(db.count() == 0 && records > 0);
        }
    }
    demand(
        stores,
        14,
        "small devices and capacities, filled and emptied",
    );
    demand(removals, 200_000, "removals from full small stores");
}

/// Room was once asked for in whole huge pages only: what was less stayed unused, and a removal was refused.
#[test]
fn a_device_with_less_than_a_huge_page_free_is_used() {
    const RECORDS: u64 = 1000;
    let memory = Memory::new(1 << 30).expect("memory");
    memory.set_limit(24 << 20);
    let options = CreateOptions::new().segment_size(4096);
    let db = HashDb::create_on(memory.clone(), &options).expect("a new store");
    let mut records = 0u64;
    let mut fill = || {
        let before = records;
        while db.put(&records.to_le_bytes(), &[7; 1000]).is_ok() {
            records += 1;
        }
        records - before
    };
    let first = fill();
    memory.set_limit(memory.size().expect("a size") + (7 << 18));
    let more = fill();
    tried(&format!("{first} records, {more} more in 1.75 MiB"));
    assert!(more >= RECORDS, "{more} records in 1.75 MiB");
}

/// It was once refused, and not stated, that a capacity is a multiple of a page.
#[test]
fn a_capacity_is_any_number_of_bytes() {
    for capacity in [2_000_001, 5_000_003, 33_554_431] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.azh");
        let options = CreateOptions::new().capacity(capacity);
        let db = HashDb::create(&path, &options).expect("a new store");
        let mut records = 0u64;
        while db.put(&records.to_le_bytes(), &[7; 1000]).is_ok() {
            records += 1;
        }
        let len = std::fs::metadata(&path).expect("its size").len();
        assert!(len <= capacity, "{len} bytes of {capacity}");
        assert!(records * 1008 * 2 > capacity, "{records} records");
    }
}
