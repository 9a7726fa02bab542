//! Records of all lengths, freed, used again, thinned and limited, by one thread and by several.
//!
//! The threads of other tests may be pinned meanwhile: bounds are asked for with room to spare.
//!
//! What joins a slab with an index is tested with the engines.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::epoch;
use crate::error::Kind;
use crate::testkit::random::Random;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed as usize + at * 7) as u8).collect()
}

/// The record that a test knows to be there.
fn record<'p>(slab: &'p Slab, pin: &'p epoch::Pin, place: Place) -> Record<'p> {
    #[expect(unsafe_code, reason = "tests free what they forget")]
    // SAFETY: each test asks only for places that it was given and has not freed.
    unsafe {
        slab.record(pin, place)
    }
}

#[test]
fn records_of_all_lengths_stand_as_they_were_put() {
    let slab = Slab::new(Some(64 << 20)).unwrap();
    let pin = epoch::pin();
    let mut put = Vec::new();
    for key_len in [0, 1, 8, 30, 31, 127, 128, 5000] {
        for value_len in [0, 1, 8, 127, 128, 8150, 8200, 16_384, 100_000] {
            for expires in [None, Some(7), Some(u32::MAX)] {
                let (key, value) = (bytes(key_len as u64, key_len), bytes(99, value_len));
                let place = slab.put(&pin, &key, &value, expires).unwrap();
                assert!(place != 0 && place < (1 << 40) - 1);
                put.push((place, key, value, expires));
            }
        }
    }
    for (place, key, value, expires) in &put {
        let found = record(&slab, &pin, *place);
        assert_eq!(
            (found.key, found.value, found.expires),
            (&key[..], &value[..], *expires)
        );
        assert!(!found.was_seen());
        found.see();
        assert!(record(&slab, &pin, *place).was_seen());
        assert_eq!(record(&slab, &pin, *place).key, key);
        found.unsee();
        assert!(!found.was_seen());
    }
}

#[test]
fn the_room_of_freed_records_is_used_again() {
    let slab = Slab::new(None).unwrap();
    let mut random = Random::new(5);
    let mut live: Vec<(Place, u64)> = Vec::new();
    let mut put = 0;
    for step in 0..400_000u64 {
        let pin = epoch::pin();
        let len = random.below(60) as usize;
        let place = slab
            .put(&pin, &step.to_le_bytes(), &bytes(step, len), None)
            .unwrap();
        put += Slab::bytes_of(8, len, false);
        live.push((place, step));
        if live.len() > 5000 {
            let at = random.below(live.len() as u64) as usize;
            let (place, step) = live.swap_remove(at);
            assert_eq!(record(&slab, &pin, place).key, step.to_le_bytes());
            slab.free(&pin, place);
        }
    }
    // Threads of other tests may be pinned for a while, so not all of it is used again.
    assert!(
        slab.memory_bytes() < put / 2,
        "{} of {put}",
        slab.memory_bytes()
    );
    let pin = epoch::pin();
    for (place, step) in &live {
        assert_eq!(record(&slab, &pin, *place).key, step.to_le_bytes());
    }
}

#[test]
fn thin_blocks_are_emptied_by_their_owner() {
    let slab = Slab::new(None).unwrap();
    let mut places: HashMap<u64, Place> = HashMap::new();
    for key in 0..1_000_000u64 {
        let pin = epoch::pin();
        places.insert(
            key,
            slab.put(&pin, &key.to_le_bytes(), &key.to_le_bytes(), None)
                .unwrap(),
        );
    }
    let full = slab.memory_bytes();
    // One in forty stays: every block is nearly empty, none is empty.
    for key in (0..1_000_000).filter(|key| key % 40 != 0) {
        let pin = epoch::pin();
        slab.free(&pin, places.remove(&key).unwrap());
    }
    slab.reclaim();
    let mut steps = 0;
    while slab.is_thin() && steps < 1_000_000 {
        steps += 1;
        let pin = epoch::pin();
        slab.thin(&pin, &mut |pin, place| {
            let found = record(&slab, pin, place);
            let key = u64::from_le_bytes(found.key.try_into().unwrap());
            if places.get(&key) == Some(&place) {
                let moved = slab.put(pin, found.key, found.value, None)?;
                places.insert(key, moved);
                slab.free(pin, place);
            }
            Ok(())
        })
        .unwrap();
    }
    assert!(steps > 0 && !slab.is_thin());
    slab.reclaim();
    assert!(
        slab.memory_bytes() < full / 4 + (12 << 20),
        "{} of {full}",
        slab.memory_bytes()
    );
    let pin = epoch::pin();
    for (key, place) in &places {
        assert_eq!(record(&slab, &pin, *place).value, key.to_le_bytes());
    }
}

#[test]
fn a_limit_is_an_error_and_room_comes_back() {
    assert_eq!(Slab::new(Some(1000)).unwrap_err().kind(), Kind::Invalid);
    let slab = Slab::new(Some(2 << 20)).unwrap();
    for value_len in [100, 50_000] {
        let mut places = Vec::new();
        let value = bytes(1, value_len);
        let error = loop {
            let pin = epoch::pin();
            match slab.put(&pin, b"key", &value, None) {
                Ok(place) => places.push(place),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), Kind::Full);
        assert!(places.len() * value_len > 1 << 20);
        assert!(slab.memory_bytes() <= (2 << 20) + (2 << 20) / 64);
        let pin = epoch::pin();
        for place in places {
            assert_eq!(record(&slab, &pin, place).value, value);
            slab.free(&pin, place);
        }
        drop(pin);
        slab.reclaim();
    }
}

#[test]
fn a_record_stays_while_somebody_is_pinned() {
    let slab = Slab::new(None).unwrap();
    let reading = epoch::pin();
    let place = slab.put(&reading, b"key", b"value", None).unwrap();
    let kept = record(&slab, &reading, place);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            slab.free(&epoch::pin(), place);
            for _ in 0..10_000 {
                let pin = epoch::pin();
                let other = slab.put(&pin, b"yek", b"eulav", None).unwrap();
                slab.free(&pin, other);
            }
            slab.reclaim();
        });
    });
    assert_eq!((kept.key, kept.value), (&b"key"[..], &b"value"[..]));
}

#[test]
fn threads_share_a_slab() {
    let slab = Slab::new(None).unwrap();
    let put = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (slab, put) = (&slab, &put);
            scope.spawn(move || {
                let mut random = Random::new(thread + 1);
                let mut own: Vec<(Place, u64)> = Vec::new();
                for step in 0..50_000u64 {
                    let pin = epoch::pin();
                    if own.len() < 1000 || random.below(2) == 0 {
                        let key = thread << 32 | step;
                        let value = bytes(key, random.below(300) as usize);
                        own.push((
                            slab.put(&pin, &key.to_le_bytes(), &value, None).unwrap(),
                            key,
                        ));
                        put.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let at = random.below(own.len() as u64) as usize;
                        let (place, key) = own.swap_remove(at);
                        let found = record(slab, &pin, place);
                        assert_eq!(found.key, key.to_le_bytes());
                        assert_eq!(found.value, bytes(key, found.value.len()));
                        slab.free(&pin, place);
                    }
                }
            });
        }
    });
    assert!(put.load(Ordering::Relaxed) > 100_000);
}
