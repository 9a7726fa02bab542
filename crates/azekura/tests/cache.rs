//! The cache keeps every promise of the record contract, with room for all and with little, alone and among threads.
//!
//! The suites of `testkit::conformance` run over it: the one for every engine, and the one for those that evict.
//! That they catch bugs is proved next to them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::record::cache::{CacheDb, Options};
use azekura::testkit::conformance::lengths::{LONG_CHECK, LONG_PAIRS};
use azekura::testkit::conformance::{Bounds, evictions};
use azekura::testkit::inherent::{Inherent, removals_of_many};
use azekura::testkit::suite::{case, demand, share, tried_at_least};
use azekura::testkit::{Effort, Random, concurrently, conformance, round_seed};
use azekura::{Engine, Reader};

fn make(bounds: Bounds) -> CacheDb {
    CacheDb::with(
        &Options::new()
            .records_max(Some(bounds.records_max))
            .bytes_max(Some(bounds.bytes_max)),
    )
    .expect("a new cache")
}

#[test]
fn it_conforms_with_room_for_all() {
    let large = Bounds {
        records_max: u64::MAX,
        bytes_max: 1 << 30,
    };
    let as_it_is = || -> Box<dyn Engine> { Box::new(CacheDb::new(1 << 20).expect("a new cache")) };
    let by_bytes = || -> Box<dyn Engine> { Box::new(make(large)) };
    let by_its_methods = || -> Box<dyn Engine> {
        Box::new(Inherent::new(CacheDb::new(1 << 20).expect("a new cache")))
    };
    let makes: [&dyn Fn() -> Box<dyn Engine>; 3] = [&as_it_is, &by_bytes, &by_its_methods];
    for make in makes {
        let report = conformance(make, None, &Effort::quick()).expect("it conforms");
        demand(
            report.counted(LONG_CHECK),
            LONG_PAIRS,
            "pairs of long values",
        );
        tried_at_least(report.total(), 60_000, &format!("answers: {report}"));
    }
}

#[test]
fn removals_of_many_by_the_methods_that_users_call_are_those_of_the_model() {
    let cache = || CacheDb::new(1 << 20).expect("a new cache");
    let removed = (0..share(60)).map(|seed| removals_of_many(&cache(), seed + round_seed()));
    tried_at_least(removed.sum(), 40_000, "records removed many at once");
}

#[test]
fn it_keeps_its_bounds_and_never_shows_what_is_old() {
    let fixed = [
        (1, u64::MAX),
        (7, u64::MAX),
        (100, u64::MAX),
        (u64::MAX, 300),
        (u64::MAX, 9000),
        (120, 9000),
    ];
    let drawn = (0..share(20)).map(|seed| {
        let mut random = Random::new(!(seed + round_seed()));
        let (records, bytes) = (1 << random.below(9), 256 << random.below(7));
        let (records, bytes) = (1 + random.below(records), 300 + random.below(bytes));
        *random.choose(&[(records, u64::MAX), (u64::MAX, bytes), (records, bytes)])
    });
    let mut sum = 0;
    for (records_max, bytes_max) in fixed.into_iter().chain(drawn) {
        let bounds = Bounds {
            records_max,
            bytes_max,
        };
        let _shown = case(round_seed(), &bounds);
        let make = || -> Box<dyn Engine> { Box::new(make(bounds)) };
        let (compared, explained) =
            evictions(&make, bounds, &Effort::quick()).expect("it conforms");
        assert!(compared > 0 && explained > 0, "{bounds:?}");
        sum += compared;
    }
    tried_at_least(sum, 100_000, "answers of caches with little room");
}

/// Values state whose they are, so that a slot that is used too early shows; sizes change while all this continues.
#[test]
fn threads_see_whole_values_of_their_keys_while_records_are_dropped_and_sizes_change() {
    const OPS: u64 = 200_000;
    let ops = share(OPS);
    let bounds = Bounds {
        records_max: 2000,
        bytes_max: 400_000,
    };
    let db = make(bounds);
    let (looks, hits) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = |thread: u64| {
        let mut random = Random::new(thread + round_seed());
        for op in 0..ops {
            let key = random.below(6000).to_le_bytes();
            let len = if op / 20_000 % 2 == 0 { 600 } else { 30 };
            match random.below(8) {
                0 => drop(db.remove(&key).expect("a removal")),
                1..=3 => {
                    let mut value = key.to_vec();
                    value.resize(16 + random.index(len), key[0]);
                    value.extend_from_slice(&key);
                    db.put(&key, &value).expect("a put");
                }
                _ => db
                    .read_with(&key, |value| {
                        looks.fetch_add(1, Ordering::Relaxed);
                        let Some(value) = value else { return };
                        hits.fetch_add(1, Ordering::Relaxed);
                        let (ends, len) = (8, value.len());
                        assert_eq!(value[..ends], key);
                        assert_eq!(value[len - ends..], key);
                        let middle = &value[ends..len - ends];
                        assert!(middle.iter().all(|byte| *byte == key[0]));
                    })
                    .expect("a get"),
            }
        }
    };
    let work = &work;
    let resize = |stop: &AtomicBool| {
        let mut random = Random::new(9 + round_seed());
        while !stop.load(Ordering::Relaxed) {
            let (records, bytes) = (1 + random.below(2000), 10_000 + random.below(390_000));
            db.resize(Some(records), Some(bytes)).expect("a resize");
            std::thread::yield_now();
        }
    };
    concurrently(resize, || {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || work(thread));
            }
        });
    });
    db.resize(Some(20), Some(3000)).expect("a resize");
    let stats = db.stats();
    assert!(stats.count <= 20 && stats.live_bytes <= 3000);
    let what = format!(
        "reads, {} of them hits, of records that come and go",
        hits.into_inner()
    );
    tried_at_least(looks.into_inner(), OPS, &what);
}

/// What an update puts for a time is counted as such, as what a put does: updates that come by drop it when the time is over.
#[test]
fn what_an_update_put_for_a_time_is_dropped_when_it_is_over() {
    let db = CacheDb::with(&Options::new().bytes_max(64u64 << 20)).unwrap();
    let time = std::time::Duration::from_millis(100);
    for number in 0..10_000_u32 {
        let key = number.to_le_bytes();
        let edit = || azekura::Edit::put(b"value");
        db.update_timed(&key, |_| (edit(), Some(time))).unwrap();
    }
    std::thread::sleep(5 * time);
    let mut puts = 0_u32;
    while db.count() > 5000 {
        db.put(b"other", &puts.to_le_bytes()).unwrap();
        puts += 1;
        assert!(puts < 20_000_000, "{} records are left", db.count());
    }
}
