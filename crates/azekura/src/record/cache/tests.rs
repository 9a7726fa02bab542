//! The engine alone: bounds, time, what is reported, with all kinds of records.
//!
//! Time is a clock that the test sets. The contract is tested in `tests/cache.rs`, with threads.
//! What is dropped first is the policy's choice, tested next to it.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use super::*;
use crate::verbs::Verbs as _;

fn number(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

fn put_each(db: &CacheDb, keys: std::ops::Range<u64>, value: &[u8]) {
    for key in keys {
        db.put(&number(key), value).unwrap();
    }
}

fn remove_each(db: &CacheDb, keys: std::ops::Range<u64>) {
    for key in keys {
        assert!(db.remove(&number(key)).unwrap());
    }
}

/// A clock that stands until it is set.
fn hands() -> (Arc<AtomicU64>, Clock) {
    let hands = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&hands);
    (hands, Clock::new(move || shown.load(Ordering::Relaxed)))
}

/// A cache whose time is set by the test.
fn clocked() -> (Arc<AtomicU64>, CacheDb) {
    let (hands, clock) = hands();
    (hands, CacheDb::with(&Options::new().clock(clock)).unwrap())
}

fn scanned(db: &CacheDb) -> u64 {
    let mut count = 0;
    db.scan(None, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    count
}

#[test]
fn caches_that_hold_nothing_are_refused() {
    let make = |records_max, bytes_max| {
        let bounds = Options::new().records_max(records_max).bytes_max(bytes_max);
        CacheDb::with(&bounds)
            .map(drop)
            .map_err(|error| error.kind())
    };
    assert_eq!(make(None, None), Err(Kind::Invalid));
    assert_eq!(make(Some(0), None), Err(Kind::Invalid));
    assert_eq!(make(None, Some(CHARGE_MIN - 1)), Err(Kind::Invalid));
    assert_eq!(make(Some(1), Some(CHARGE_MIN)), Ok(()));
    let db = CacheDb::new(5).unwrap();
    assert_eq!(db.resize(Some(0), None).unwrap_err().kind(), Kind::Invalid);
    db.put(b"still", b"here").unwrap();
    assert_eq!(db.count(), 1);
}

#[test]
fn both_bounds_hold_after_every_call_whatever_its_kind() {
    for (records_max, bytes_max) in [
        (Some(1), None),
        (Some(50), None),
        (None, Some(3000)),
        (Some(40), Some(2500)),
    ] {
        let bounds = Options::new().records_max(records_max).bytes_max(bytes_max);
        let db = CacheDb::with(&bounds).unwrap();
        for step in 0..5000u64 {
            let key = number(step * 7 % 211);
            let value = vec![step as u8; (step * 13 % 300) as usize];
            match step % 5 {
                0 | 1 => db.put(&key, &value).unwrap(),
                2 => db
                    .append(&key, &value[..value.len() / 4], b"")
                    .unwrap_or(()),
                3 => {
                    let other = number(step % 97);
                    db.update_many(&[&key, &other], &mut |_| {
                        vec![Edit::put(&value), Edit::put(&value)]
                    })
                    .unwrap();
                }
                _ => db.put_many(&[(&key, &value), (b"again", &value)]).unwrap(),
            }
            let stats = db.stats();
            assert!(stats.count <= records_max.unwrap_or(u64::MAX));
            assert!(stats.live_bytes <= bytes_max.unwrap_or(u64::MAX));
            assert!(db.count() > 0);
        }
        assert_eq!(scanned(&db), db.count());
        let mut bytes = 0;
        db.scan(None, &mut |key, value| {
            bytes += charge(key.len(), value.len(), false);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(bytes, db.stats().live_bytes);
        assert!(db.count() < 150, "of 212 keys");
    }
}

#[test]
fn a_record_larger_than_the_cache_is_refused_and_nothing_is_lost() {
    let db = CacheDb::with(&Options::new().bytes_max(1000)).unwrap();
    db.put(b"key", b"value").unwrap();
    let long = vec![0; 1000];
    for refused in [
        db.put(b"key", &long),
        db.put(b"other", &long),
        db.append(b"key", &long, b""),
    ] {
        assert_eq!(refused.unwrap_err().kind(), Kind::TooLarge);
    }
    assert_eq!(db.get(b"key").unwrap(), Some(b"value".to_vec()));
    assert_eq!(db.count(), 1);
}

#[test]
fn a_smaller_size_holds_when_resize_returns() {
    let db = CacheDb::new(1000).unwrap();
    put_each(&db, 0..1000, b"value");
    assert_eq!(db.count(), 1000);
    db.resize(Some(10), None).unwrap();
    assert_eq!((db.count(), scanned(&db)), (10, 10));
    db.resize(None, Some(5 * CHARGE_MIN)).unwrap();
    assert!(db.stats().live_bytes <= 5 * CHARGE_MIN);
    db.resize(Some(2000), None).unwrap();
    put_each(&db, 0..2000, b"value");
    assert!(db.count() >= 1999);
}

#[test]
fn what_is_asked_for_stays_though_much_comes_once() {
    let db = CacheDb::new(1000).unwrap();
    for round in 0..20u64 {
        for hot in (0..500).chain(0..500) {
            if db.get(&number(hot)).unwrap().is_none() {
                db.put(&number(hot), b"hot").unwrap();
            }
        }
        for cold in 0..2000 {
            db.put(&number(1_000_000 + round * 2000 + cold), b"cold")
                .unwrap();
        }
    }
    let kept = (0..500).filter(|hot| db.get(&number(*hot)).unwrap().is_some());
    assert_eq!(kept.count(), 500);
}

#[test]
fn the_cache_and_the_contract_put_for_a_time_by_the_same_call() {
    type PutFor = fn(&CacheDb, &[u8], &[u8], Duration) -> Result<()>;
    let calls: [PutFor; 2] = [CacheDb::put_for, <CacheDb as Expiring>::put_for];
    let (hands, db) = clocked();
    for put_for in calls {
        put_for(&db, b"mortal", b"1", Duration::from_secs(10)).unwrap();
        let left = db.time_left(b"mortal").unwrap().flatten();
        assert_eq!(left, Some(Duration::from_secs(10)));
        assert!(db.remove(b"mortal").unwrap());
    }
    assert_eq!(hands.load(Ordering::Relaxed), 0);
}

#[test]
fn records_of_which_the_time_is_over_are_absent_to_everything() {
    let (hands, db) = clocked();
    let second = Duration::from_secs(1);
    for key in 0..100 {
        db.put_for(&number(key), b"mortal", second * 10).unwrap();
        db.put(&number(100 + key), b"immortal").unwrap();
    }
    hands.store(9_999, Ordering::Relaxed);
    assert_eq!(scanned(&db), 200);
    assert_eq!(
        db.time_left(&number(0)).unwrap(),
        Some(Some(Duration::from_millis(1)))
    );
    assert_eq!(db.time_left(&number(100)).unwrap(), Some(None));
    // Another time, or none, with another value.
    db.put(&number(0), b"immortal").unwrap();
    db.put_for(&number(1), b"mortal", second * 100).unwrap();
    hands.store(10_000, Ordering::Relaxed);
    assert_eq!(scanned(&db), 102);
    for key in 2..100 {
        let key = number(key);
        assert_eq!(db.get(&key).unwrap(), None);
        assert_eq!(db.time_left(&key).unwrap(), None);
        db.read_many(&[&key], &mut |_, value| assert_eq!(value, None))
            .unwrap();
    }
    assert!(!db.remove(&number(2)).unwrap());
    assert_eq!(db.increment(&number(3), 5, 2).unwrap(), 7);
    assert!(db.put_new(&number(4), b"new").unwrap());
    db.update_many(&[&number(5), &number(6)], &mut |values| {
        assert_eq!(values, [None, None]);
        vec![Edit::put(b"new"), Edit::Keep]
    })
    .unwrap();
    assert_eq!(scanned(&db), 105);
    assert_eq!(db.drop_expired().unwrap(), 93);
    assert_eq!((db.count(), scanned(&db)), (105, 105));
    hands.store(109_999, Ordering::Relaxed);
    assert_eq!(db.drop_expired().unwrap(), 0);
    hands.store(110_000, Ordering::Relaxed);
    assert_eq!(db.drop_expired().unwrap(), 1);
}

#[test]
fn expired_records_go_as_updates_come_by() {
    let (hands, db) = clocked();
    for key in 0..20_000 {
        db.put_for(&number(key), b"mortal", Duration::from_secs(1))
            .unwrap();
    }
    hands.store(1_000, Ordering::Relaxed);
    let mut updates = 0;
    while db.count() > 1 {
        db.put(b"other", b"value").unwrap();
        updates += 1;
        assert!(updates < 4_000_000, "{} records are left", db.count());
    }
}

#[test]
fn an_update_is_shown_the_time_left_and_gives_a_new_one() {
    let (hands, db) = clocked();
    let second = Duration::from_secs(1);
    db.put_for(b"visits", &[1], second * 60).unwrap();
    hands.store(20_000, Ordering::Relaxed);
    db.update_timed(b"visits", |present| {
        let (value, left) = present.unwrap();
        (Edit::Put(vec![value[0] + 1].into()), left)
    })
    .unwrap();
    assert_eq!(db.get(b"visits").unwrap(), Some(vec![2]));
    assert_eq!(db.time_left(b"visits").unwrap(), Some(Some(second * 40)));
    let mut shown = Vec::new();
    db.scan_timed(None, &mut |key, _, left| {
        shown.push((key.to_vec(), left));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(shown, [(b"visits".to_vec(), Some(second * 40))]);
}

#[test]
fn whoever_asked_is_told_of_each_record_that_was_dropped_and_why() {
    let (hands, clock) = hands();
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    let db = CacheDb::with(&Options {
        records_max: Some(10),
        dropped: Some(Arc::new(move |key: &[u8], value: &[u8], reason| {
            assert_eq!(key, value);
            list.lock().push((key.to_vec(), reason));
        })),
        clock,
        ..Options::default()
    })
    .unwrap();
    for key in 0..30 {
        db.put(&number(key), &number(key)).unwrap();
    }
    let dropped = std::mem::take(&mut *told.lock());
    assert_eq!(dropped.len(), 20);
    for (key, reason) in &dropped {
        assert_eq!((db.get(key).unwrap(), *reason), (None, Reason::Capacity));
    }
    db.clear().unwrap();
    for key in 0..3 {
        db.put_for(&number(key), &number(key), Duration::from_secs(1))
            .unwrap();
    }
    hands.store(5_000, Ordering::Relaxed);
    db.put(&number(0), &number(0)).unwrap();
    db.remove(&number(1)).unwrap();
    db.drop_expired().unwrap();
    let expected: Vec<_> = (0..3)
        .map(|key| (number(key).to_vec(), Reason::Expired))
        .collect();
    assert_eq!(*told.lock(), expected);
    // What the caller does himself he is not told.
    db.put(&number(0), &number(0)).unwrap();
    db.remove(&number(0)).unwrap();
    assert_eq!(told.lock().len(), 3);
}

#[test]
fn queues_do_not_grow_with_what_comes_and_goes() {
    let db = CacheDb::new(1 << 20).unwrap();
    for key in 0..400_000u64 {
        db.put(&number(key), b"value").unwrap();
        assert!(db.remove(&number(key)).unwrap());
    }
    assert_eq!(db.count(), 0);
    assert!(
        db.policy.len() <= 8192 + 1024,
        "{} entries",
        db.policy.len()
    );
    assert!(db.policy.memory_bytes() < 1 << 17);
    put_each(&db, 0..100_000, b"value");
    remove_each(&db, 0..99_000);
    // Every record that is left can still be dropped.
    db.resize(Some(1), None).unwrap();
    assert_eq!((db.count(), scanned(&db)), (1, 1));
}

/// Records that stay stand at the beginning of the queues, where each round of sifting comes first.
#[test]
fn records_that_stay_can_be_dropped_after_queues_were_sifted() {
    const STAY: u64 = 1000;
    let db = CacheDb::new(1 << 20).unwrap();
    for key in 0..STAY + 60_000 {
        db.put(&number(key), b"value").unwrap();
        if key >= STAY {
            assert!(db.remove(&number(key)).unwrap());
        }
    }
    assert!(db.policy.len() < 20_000, "sifted: {}", db.policy.len());
    assert_eq!((db.count(), scanned(&db)), (STAY, STAY));
    db.resize(Some(1), None).unwrap();
    assert_eq!((db.count(), scanned(&db)), (1, 1));
}

#[test]
fn queues_of_a_cache_that_was_emptied_by_removals_are_short() {
    let db = CacheDb::new(1 << 20).unwrap();
    put_each(&db, 0..200_000, b"");
    remove_each(&db, 0..200_000);
    assert!(db.policy.len() < 20_000, "{} entries", db.policy.len());
}

#[test]
fn what_is_removed_and_put_again_has_one_entry_and_can_be_dropped() {
    const RECORDS: u64 = 5000;
    let db = CacheDb::new(1 << 20).unwrap();
    put_each(&db, 0..RECORDS, b"value");
    let mut longest = 0;
    for round in 0..20 * RECORDS {
        let key = number(round * 7919 % RECORDS);
        assert!(db.remove(&key).unwrap());
        db.put(&key, b"value").unwrap();
        longest = longest.max(db.policy.len());
    }
    // As many as make sifting due, and what came while a chunk was sifted.
    assert!(longest as u64 <= 4 * RECORDS + 8192 + 2048, "{longest}");
    assert_eq!((db.count(), scanned(&db)), (RECORDS, RECORDS));
    // Whoever lost its entry could not be dropped.
    db.resize(Some(1), None).unwrap();
    assert_eq!((db.count(), scanned(&db)), (1, 1));
}

/// Each of 32 threads kept a block for every length of record, which a small cache never filled.
#[test]
fn a_small_cache_of_many_threads_is_not_many_times_its_size() {
    const BYTES: u64 = 3 << 20;
    let db = CacheDb::with(&Options::new().bytes_max(BYTES)).unwrap();
    let all_there = std::sync::Barrier::new(32);
    std::thread::scope(|scope| {
        for thread in 0..32 {
            let (db, all_there) = (&db, &all_there);
            scope.spawn(move || {
                all_there.wait();
                for turn in 0..2000 {
                    let len = (turn * 37 + thread) % 8000;
                    db.put(&number((turn % 100) as u64), &vec![1; len]).unwrap();
                }
                // None of them ends before all have put.
                all_there.wait();
            });
        }
    });
    let memory = db.table.slab.memory_bytes();
    assert!(memory < 12 * BYTES, "{memory} bytes for {BYTES}");
}

/// A reader that is interrupted keeps what was replaced since: whoever puts waits for it, whatever the length of its records.
#[test]
fn what_a_slow_reader_keeps_does_not_grow_with_what_is_put() {
    const BYTES: u64 = 16 << 20;
    let db = CacheDb::with(&Options::new().bytes_max(BYTES)).unwrap();
    let value = vec![7u8; 60_000];
    let is_over = AtomicBool::new(false);
    let [most, puts, longest] = [const { AtomicU64::new(0) }; 3];
    let mut reads = 0u64;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !is_over.load(Ordering::Relaxed) {
                db.read(b"read", &mut |_| {
                    // Long enough for the puts of a slow machine to be too much, if they went on.
                    let (start, first) = (Instant::now(), puts.load(Ordering::Relaxed));
                    while start.elapsed() < Duration::from_millis(200)
                        && puts.load(Ordering::Relaxed) - first < 400
                    {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    longest.fetch_max(start.elapsed().as_millis() as u64, Ordering::Relaxed);
                })
                .unwrap();
                reads += 1;
            }
            reads
        });
        let writers = [0, 1].map(|writer| {
            let (db, value, most, puts) = (&db, &value, &most, &puts);
            scope.spawn(move || {
                for put in 0..2000 {
                    db.put(&number(2 * put + writer), value).unwrap();
                    puts.fetch_add(1, Ordering::Relaxed);
                    if put % 64 == 0 {
                        db.put(b"read", b"short").unwrap();
                    }
                    most.fetch_max(db.table.slab.memory_bytes(), Ordering::Relaxed);
                }
            })
        });
        for writer in writers {
            writer.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        reads = reader.join().unwrap();
    });
    // The goal is an eighth and 8 MiB more; then a 16th, what one round of puts takes, and what each writer puts when it has
    // waited 20 ms in vain.
    let in_vain = 2 * (value.len() as u64 + 4096) * (longest.into_inner() / 20 + 1);
    let bound = BYTES + BYTES / 8 + (8 << 20) + BYTES / 16 + (1 << 20) + in_vain;
    let most = most.into_inner();
    assert!(most <= bound, "{most} bytes of {bound}");
    assert!(reads >= 8, "{reads}");
}

/// A thread that is pinned waits for nobody who makes room: that one may be waiting for it to unpin.
#[test]
fn a_pinned_thread_passes_by_whoever_makes_room() {
    let db = CacheDb::with(&Options::default()).unwrap();
    db.put(b"key", &[7; 1000]).unwrap();
    db.table.slab.set_goal(1);
    assert!(db.table.slab.excess(0, false) > 0);
    let has_passed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let someone = db.making_room.lock();
        scope.spawn(|| {
            let _pin = db.table.pin();
            db.put_many(&[(b"key", &[8; 1000])]).unwrap();
            has_passed.store(true, Ordering::Release);
        });
        let start = Instant::now();
        while !has_passed.load(Ordering::Acquire) && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let has_passed = has_passed.load(Ordering::Acquire);
        drop(someone);
        assert!(has_passed);
    });
}
