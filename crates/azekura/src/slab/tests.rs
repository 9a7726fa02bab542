//! Records of all lengths, put and freed by one thread and by several, and reclamation under pins.
//!
//! `tests/room.rs` measures the memory, in a process of its own.
//! The tests of the engines join a slab with an index.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::epoch::Pin;
use crate::testkit::random::Random;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed as usize + at * 7) as u8).collect()
}

fn free(slab: &Slab, pin: &Pin, place: Place) {
    #[expect(unsafe_code, reason = "tests free what they forget")]
    // SAFETY: each test frees what it has put, once, and then forgets the place.
    unsafe {
        slab.free(pin, place);
    }
}

/// The record at a place that the test has put and not freed.
fn record<'p>(slab: &'p Slab, pin: &'p Pin, place: Place) -> Record<'p> {
    #[expect(unsafe_code, reason = "tests free what they forget")]
    // SAFETY: each test asks only for places that it was given and has not freed.
    unsafe {
        slab.record(pin, place)
    }
}

#[test]
fn records_of_all_lengths_stand_as_they_were_put() {
    let slab = Slab::new(Some(256 << 20)).unwrap();
    let pin = slab.pin();
    let mut put = Vec::new();
    for key_len in [0, 1, 8, 30, 31, 127, 128, 5000] {
        for value_len in [0, 1, 8, 127, 128, 8150, 8200, 16_384, 100_000, 3 << 20] {
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

/// Whether a record reads as it was put after it was freed and many others came and went, while a thread that found
/// it before is still pinned.
fn a_pin_protects(slab: &Slab) -> bool {
    let put = || slab.put(&slab.pin(), b"key", b"value", None).unwrap();
    let reading = slab.pin();
    // All by one thread, so that it is the freed room that would be used again.
    let (give, take) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel();
    let kept = std::thread::scope(|scope| {
        scope.spawn(move || {
            let place = put();
            give.send(place).unwrap();
            wait.recv().unwrap();
            free(slab, &slab.pin(), place);
            for _ in 0..10_000 {
                let pin = slab.pin();
                let other = slab.put(&pin, b"yek", b"eulav", None).unwrap();
                free(slab, &pin, other);
            }
        });
        let kept = record(slab, &reading, take.recv().unwrap());
        go.send(()).unwrap();
        kept
    });
    (kept.key, kept.value) == (&b"key"[..], &b"value"[..])
}

#[test]
fn a_record_stays_while_a_reader_is_pinned() {
    assert!(a_pin_protects(&Slab::new(None).unwrap()));
}

#[test]
fn a_slab_that_does_not_wait_for_pins_is_caught() {
    let mut slab = Slab::new(None).unwrap();
    slab.hasty = true;
    assert!(!a_pin_protects(&slab));
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
                    let pin = slab.pin();
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
                        free(slab, &pin, place);
                    }
                }
            });
        }
    });
    assert!(put.load(Ordering::Relaxed) > 100_000);
}
