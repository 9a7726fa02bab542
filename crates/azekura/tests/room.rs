//! Room in memory: what removed and overwritten records gave up is used again, within the promised bound.
//!
//! One test alone in its process: room is used again once no thread looks at it any more, so other tests' threads would
//! decide the figures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use azekura::Edit;
use azekura::engine::{Engine, Reader};
use azekura::error::Kind;
use azekura::record::cache::{self, CacheDb};
use azekura::record::memory::tiny::{Options, TinyDb};
use azekura::slab::Slab;
use azekura::testkit::suite::{share, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};

/// Bytes that the records take; the index is not among them.
fn room(db: &TinyDb) -> u64 {
    let stats = db.stats();
    let figure = stats
        .more
        .iter()
        .find(|(name, _)| *name == "record_memory_bytes");
    figure.expect("a figure").1.parse().expect("a number")
}

/// As promised; here also what waits for a seal.
fn bound(live: u64) -> u64 {
    live * 9 / 4 + (6 << 20) + (1 << 20)
}

fn overwrites_take_no_more_and_more_room() {
    const KEYS: u64 = 100_000;
    const OVERWRITES: u64 = 5_000_000;
    let db = TinyDb::new().expect("a new store");
    let mut random = Random::new(3);
    let mut most = 0;
    for op in 0..OVERWRITES {
        // Short and long by turns.
        let len = if (op * 10 / OVERWRITES).is_multiple_of(2) {
            8
        } else {
            200
        };
        let key = random.below(KEYS).to_le_bytes();
        db.put(&key, &[1; 200][..len]).expect("a put");
        if op % 10_000 == 0 {
            let live = KEYS * Slab::bytes_of(8, 200, false);
            assert!(room(&db) < bound(live), "{} of {live}", room(&db));
            most = most.max(room(&db));
        }
    }
    tried(&format!(
        "{OVERWRITES} overwrites of {KEYS} records: at most {most} bytes"
    ));
}

fn an_emptied_store_gives_its_room_back() {
    const KEYS: u64 = 500_000;
    const KEPT: u64 = 50;
    let db = TinyDb::new().expect("a new store");
    for key in 0..KEYS {
        db.put(&key.to_le_bytes(), &[7; 40]).expect("a put");
    }
    let full = room(&db);
    // What stays is spread over all blocks: none of them is empty by itself.
    for key in (0..KEYS).filter(|key| key % KEPT != 0) {
        assert!(db.remove(&key.to_le_bytes()).expect("a removal"));
    }
    let live = KEYS / KEPT * Slab::bytes_of(8, 40, false);
    assert!(room(&db) < bound(live), "{} of {full}", room(&db));
    for key in (0..KEYS).step_by(KEPT as usize) {
        assert_eq!(
            db.get(&key.to_le_bytes()).expect("a get"),
            Some(vec![7; 40])
        );
    }
    assert_eq!(db.count(), KEYS / KEPT);
    tried(&format!(
        "{full} bytes, {} when emptied to a fiftieth",
        room(&db)
    ));
    db.clear().expect("it is cleared");
    assert_eq!(
        (db.count(), db.get(&0u64.to_le_bytes()).expect("a get")),
        (0, None)
    );
}

fn a_limit_answers_full_and_loses_nothing() {
    let with = |memory_limit| TinyDb::with(&Options::new().memory_limit(Some(memory_limit)));
    assert_eq!(with(0).expect_err("no room").kind(), Kind::Invalid);
    let mut random = Random::new(!round_seed());
    let drawn = (0..share(60)).map(|_| {
        let most = 16 << random.below(13);
        let len = 1 + random.index(most);
        (random.below(24 << 20) + (8 << 20), len)
    });
    let fixed = [100, 5000, 50_000].map(|len| (8 << 20, len));
    let all: Vec<(u64, usize)> = fixed.into_iter().chain(drawn).collect();
    tried_at_least(all.len() as u64, 60, "limits and lengths of values");
    for (limit, len) in all {
        let db = with(limit).expect("a new store");
        let value = vec![3; len];
        let mut put = 0u64;
        let error = loop {
            match db.put(&put.to_le_bytes(), &value) {
                Ok(()) => put += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), Kind::Full);
        // A record takes its slot.
        let taken = put * Slab::bytes_of(8, len, false);
        assert!(
            taken > limit / 4 * 3 && db.count() == put,
            "{put} of {len} bytes in {limit}"
        );
        assert!(room(&db) <= limit + limit / 64, "{} of {limit}", room(&db));
        let other = db.update(b"other", &mut |_| Edit::Put(vec![0; 100_000].into()));
        assert_eq!(
            other.expect_err("no room").kind(),
            Kind::Full,
            "{len} {limit}"
        );
        for key in 0..put {
            assert_eq!(
                db.get(&key.to_le_bytes()).expect("a get").as_ref(),
                Some(&value)
            );
        }
        for key in 0..put / 2 {
            assert!(db.remove(&key.to_le_bytes()).expect("a removal"));
        }
        for key in 0..put / 3 {
            db.put(&key.to_le_bytes(), &value)
                .expect("there is room again");
        }
        tried(&format!("{put} records of {len} bytes fill {limit}"));
    }
}

/// An update's own pin keeps what was freed just before it.
fn an_update_at_the_limit_uses_what_was_freed_before() {
    let db = TinyDb::with(&Options::new().memory_limit(Some(1 << 20))).expect("a new store");
    let mut put = 0u64;
    while db.put(&put.to_le_bytes(), &[3; 100]).is_ok() {
        put += 1;
    }
    let mut asked = 0;
    // As many as a block holds, since fewer are not worth looking for, and fewer than are freed together.
    for round in 0..put / 600 {
        for key in round * 600..(round + 1) * 600 {
            assert!(db.remove(&key.to_le_bytes()).expect("a removal"));
        }
        let decide = &mut |present: Option<&[u8]>| {
            asked += 1;
            let value = present.unwrap_or(&[4; 99]);
            Edit::Put([value, &[5]].concat().into())
        };
        for step in 0..500 {
            let key = (put + round * 500 + step).to_le_bytes();
            db.update(&key, decide).expect("room for one");
            assert_eq!(db.get(&key).expect("a get").map(|value| value[99]), Some(5));
        }
    }
    let count = put - put / 600 * 100;
    assert_eq!((asked, db.count()), (put / 600 * 500, count));
    // More than there is at all stays refused, and is not asked for again.
    let refused = db.update(b"other", &mut |_| {
        asked += 1;
        Edit::Put(vec![0; 1 << 20].into())
    });
    assert_eq!(refused.expect_err("no room").kind(), Kind::Full);
    assert_eq!((asked, db.count()), (put / 600 * 500 + 1, count));
}

/// A batch is pinned while it is put, and so keeps what it overwrites itself.
fn a_batch_at_the_limit_uses_what_it_overwrites() {
    let db = TinyDb::with(&Options::new().memory_limit(Some(8 << 20))).expect("a new store");
    let values: Vec<Vec<u8>> = (0..80).map(|number| vec![number; 1 << 20]).collect();
    let records: Vec<(&[u8], &[u8])> = values
        .iter()
        .map(|value| (&b"key"[..], &value[..]))
        .collect();
    db.put_many(&records).expect("room for one after the other");
    assert_eq!(
        (db.count(), db.get(b"key").expect("a get")),
        (1, values.last().cloned())
    );
    let others: Vec<[u8; 1]> = (0..20).map(|number| [number]).collect();
    let records: Vec<(&[u8], &[u8])> = others
        .iter()
        .map(|key| (&key[..], &values[0][..]))
        .collect();
    let refused = db.put_many(&records).expect_err("no room for all of them");
    assert_eq!(refused.kind(), Kind::Full);
    let there = |key: &&[u8; 1]| db.get(&key[..]).expect("a get").is_some();
    let put = others.iter().take_while(there).count() as u64;
    assert!(
        (5..8).contains(&put) && db.count() == put + 1,
        "those before it"
    );
}

fn a_slab_uses_freed_room_again() {
    let slab = Slab::new(None).expect("a slab");
    let mut random = Random::new(5);
    let mut live = Vec::new();
    let mut bytes = 0;
    for _ in 0..1_000_000 {
        let pin = slab.pin();
        let value = random.bytes(60);
        live.push(slab.put(&pin, b"12345678", &value, None).expect("room"));
        bytes += Slab::bytes_of(8, value.len(), false);
        if live.len() > 5000 {
            let at = random.index(live.len());
            #[expect(unsafe_code, reason = "what the test frees, it forgets")]
            // SAFETY: the place was put above and is forgotten here.
            unsafe {
                slab.free(&pin, live.swap_remove(at));
            }
        }
    }
    assert!(
        slab.memory_bytes() < bytes / 4,
        "{} of {bytes}",
        slab.memory_bytes()
    );
}

/// Values of one phase after another: their least and greatest length.
const PHASES: [(u64, u64); 8] = [
    (90, 91),
    (4000, 4100),
    (60, 2000),
    (900_000, 900_001),
    (90, 91),
    (8100, 40_000),
    (17, 500),
    (100, 1_000_000),
];

fn a_cache_stays_bounded_whatever_lengths_come_and_gives_memory_back() {
    const MAX: u64 = 24 << 20;
    // What puts of the longest records add before the next ones make room, and what a thread that the system stopped in the
    // middle of a call keeps others from using again meanwhile.
    const UNDER_WAY: u64 = 8 << 20;
    let db = CacheDb::with(&cache::Options::new().records_max(None).bytes_max(Some(MAX))).unwrap();
    let limit = MAX + MAX / 8 + (8 << 20) + UNDER_WAY;
    let most = AtomicU64::new(0);
    let value = vec![7; 1_000_000];
    for (least, end) in PHASES {
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (db, value, most) = (&db, &value, &most);
                scope.spawn(move || {
                    let mut random = Random::new(thread + least);
                    let mut bytes = 0;
                    let mut puts = 0;
                    while bytes < MAX {
                        let len = (least + random.below(end - least)) as usize;
                        // Some are asked for again, and others put again: what is dropped is spread over all blocks.
                        let key = random.below(400_000);
                        if db.get(&key.to_le_bytes()).unwrap().is_none() || random.below(4) == 0 {
                            db.put(&key.to_le_bytes(), &value[..len]).unwrap();
                            bytes += len as u64 + 100;
                        }
                        puts += 1;
                        if puts % 256 == 0 || len > 8000 {
                            most.fetch_max(db.stats().memory_bytes, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let most = most.swap(0, Ordering::Relaxed);
        assert!(most <= limit, "{least}: {most} of {limit}");
        assert!(db.stats().live_bytes > MAX / 4 * 3, "{least}: it is empty");
    }
    let shrinks = |most: u64, after: &str| {
        for _ in 0..100 {
            db.give_back();
            if db.stats().memory_bytes <= most {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} bytes {after}", db.stats().memory_bytes);
    };
    db.resize(None, Some(8 << 20)).unwrap();
    shrinks((8 + 1 + 8) << 20, "after a smaller bound");
    db.clear().unwrap();
    shrinks(8 << 20, "after everything was removed");
}

#[test]
fn room_comes_back() {
    overwrites_take_no_more_and_more_room();
    an_emptied_store_gives_its_room_back();
    a_limit_answers_full_and_loses_nothing();
    an_update_at_the_limit_uses_what_was_freed_before();
    a_batch_at_the_limit_uses_what_it_overwrites();
    a_slab_uses_freed_room_again();
    a_cache_stays_bounded_whatever_lengths_come_and_gives_memory_back();
}
