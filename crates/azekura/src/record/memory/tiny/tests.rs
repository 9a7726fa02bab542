//! The engine alone, with all kinds of records.
//!
//! The contract is tested in `tests/tiny.rs`, with threads; what room it takes in `tests/room.rs`, in a process of
//! its own.

use super::*;

#[test]
fn a_limit_beyond_all_addresses_is_as_none() {
    for limit in [1 << 40, 1 << 41, 1 << 48, u64::MAX] {
        let db = TinyDb::with(&Options::new().memory_limit(limit)).unwrap();
        for key in 0..10_000u64 {
            db.put(&key.to_le_bytes(), &[7; 100]).unwrap();
        }
        assert_eq!(db.get(&77u64.to_le_bytes()).unwrap(), Some(vec![7; 100]));
    }
}

/// Two threads count in one record of a store that is full but for a slot or two.
#[test]
fn an_update_that_found_no_room_is_not_done_over_the_value_of_another() {
    let db = TinyDb::with(&Options::new().memory_limit(1 << 20)).unwrap();
    let numbered = |number: u64, len: usize| {
        let mut value = number.to_le_bytes().to_vec();
        value.resize(len, 7);
        value
    };
    let number_in = |value: &[u8]| u64::from_le_bytes(*value.first_chunk().unwrap());
    let mut fillers = 0u64;
    while db.put(&fillers.to_le_bytes(), &[1; 7000]).is_ok() {
        fillers += 1;
    }
    for filler in 0..2u64 {
        db.remove(&filler.to_le_bytes()).unwrap();
    }
    db.put(b"counter", &numbered(0, 7000)).unwrap();
    let count = || {
        let add = |before: Option<&[u8]>| {
            Edit::Put(numbered(number_in(before.unwrap()) + 1, 7000).into())
        };
        (0..20_000)
            .filter(|_| db.edit(b"counter", add).is_ok())
            .count() as u64
    };
    let done: u64 = std::thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(count));
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    let refused = 60_000 - done;
    assert_eq!(
        number_in(&db.get(b"counter").unwrap().unwrap()),
        done,
        "{refused} refused"
    );
    assert!(refused > 0, "it is full at times");
}

/// Threads that overwrite a long value each leave no more behind than waits for readers.
#[test]
fn what_many_threads_overwrite_is_used_again() {
    let db = TinyDb::new().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16u8 {
            let db = &db;
            scope.spawn(move || {
                for _ in 0..3000 {
                    db.put(&[thread], &[thread; 8100]).unwrap();
                }
            });
        }
    });
    let taken = db.stats().memory_bytes - db.table.index.memory_bytes();
    // 4 MiB of blocks and 4 MiB that wait; for each thread 256 KiB that wait, twice, and a block.
    let bound = (4 << 20) * 2 + 17 * ((512 << 10) + (64 << 10)) + (4 << 20);
    assert!(taken < bound, "{taken} bytes of {bound}");
}

/// Each thread fills a block of its own for each length; at the limit they are taken back.
#[test]
fn many_lengths_of_many_threads_fit_a_low_limit() {
    let db = TinyDb::with(&Options::new().memory_limit(4 << 20)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let db = &db;
            scope.spawn(move || {
                for length in 0..12u8 {
                    let value = vec![thread; 10 * usize::from(length) + 1];
                    db.put(&[thread, length], &value).unwrap();
                }
            });
        }
    });
    assert_eq!(db.count(), 96);
    for length in 0..12u8 {
        let value = db.get(&[3, length]).unwrap();
        assert_eq!(value, Some(vec![3; 10 * usize::from(length) + 1]));
    }
}
