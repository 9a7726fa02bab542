//! What opening costs: the bytes that are read of a store that a crash left, as its devices count them.
//!
//! Recovery scans the data for puts that the journal does not know, and verifies each that it finds: from what it read for the
//! scan. A store that is only looked at recovers each time, so what a `get` costs is what recovery costs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use azekura::io::Storage;
use azekura::io::counted::{Counted, Counts};
use azekura::io::memory::Memory;
use azekura::object::{CreateOptions, ObjectId, Store, StoreReader};
use azekura::testkit::suite::demand;
use azekura::testkit::tried;

use super::{id, value};

const CAPACITY: u64 = 24 << 20;
const JOURNAL: u64 = 1 << 20;

/// A store that was never closed, filled with objects of such lengths, which no checkpoint knows.
fn killed(lens: &[usize]) -> (Vec<u8>, u64) {
    let options = CreateOptions::new()
        .journal_size(JOURNAL)
        .group_size(8 << 20)
        .background(false);
    let memory = Memory::new(CAPACITY).unwrap();
    memory.resize(CAPACITY).unwrap();
    let storage = Arc::clone(&memory) as Arc<dyn Storage>;
    let store = Store::create_on(storage, None, &options, &mut |_, _| {}).unwrap();
    let mut put = 0;
    for (n, len) in lens.iter().cycle().enumerate() {
        if store.put(id(n as u64), &value(n as u64, *len)).is_err() {
            break;
        }
        put += 1;
    }
    (memory.to_vec(), put)
}

/// Opening scans what the journal may not know yet. Each byte of it is read once, whatever the lengths of objects, and the journal
/// twice: to see whether it can be read, and to replay it.
#[test]
fn a_get_after_a_crash_reads_the_data_once() {
    let one = 1 << 20;
    let lens: [&[usize]; 6] = [
        &[2100],
        &[9000, 60_000],
        &[102_400],
        &[300_000, 3000],
        &[one - 72, one + 1],
        &[2 * one + 5000],
    ];
    let mut opened = 0;
    for lens in lens {
        let (bytes, put) = killed(lens);
        let filled = put * lens.iter().sum::<usize>() as u64 / lens.len() as u64;
        assert!(
            filled > CAPACITY / 3,
            "{lens:?}: {put} objects, {filled} bytes"
        );
        let counts = Arc::new(Counts::default());
        let memory: Arc<dyn Storage> = Memory::from_bytes(&bytes, CAPACITY).unwrap();
        let counted = Counted::over(memory, &counts);
        let reader = StoreReader::open_on(counted, None).unwrap();
        let last: ObjectId = id(put - 1);
        let expected = value(put - 1, lens[(put as usize - 1) % lens.len()]);
        assert_eq!(reader.get(last).unwrap(), Some(expected.into()));
        assert_eq!(reader.count(), put);
        let read = counts.bytes_read.load(Ordering::Relaxed);
        let most = (CAPACITY - JOURNAL) * 13 / 10 + 2 * JOURNAL;
        tried(&format!(
            "a get after a crash, objects of {lens:?}: {read} bytes read of {CAPACITY}"
        ));
        assert!(read <= most, "{lens:?}: {read} bytes read, at most {most}");
        opened += 1;
    }
    demand(opened, 6, "stores that are looked at after a crash");
}
