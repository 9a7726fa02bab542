//! Stripes that are not in memory: what a clear does to one that is being loaded, and what a failed load leaves.
//!
//! A thread loads all stripes while the store is cleared, at a later moment each round; the deterministic test of the same
//! race is the index's own. Slots that are only reserved, and pins within pins, are here, too.

use std::sync::Arc;

use super::*;
use crate::epoch;
use crate::index::Source as _;
use crate::index::hash::STRIPES;
use crate::log::Address;
use crate::record::hash::recover::Replay;

/// A clear once let the stripe that was being loaded come back: `count` was 0, and a scan showed some records.
#[test]
fn records_that_are_loaded_while_all_is_cleared_stay_cleared() {
    const LIMIT: u64 = 1 << 27;
    let options = Options {
        background: false,
        ..Options::default()
    };
    let memory = Memory::new(LIMIT).unwrap();
    let db = HashDb::create_on(memory.clone(), &options).unwrap();
    for i in 0..200_000u32 {
        db.put(&i.to_le_bytes(), b"value").unwrap();
    }
    db.checkpoint().unwrap();
    db.close().unwrap();
    for round in 0..10 {
        let copy = Memory::from_bytes(&memory.to_vec(), LIMIT).unwrap();
        let db = Arc::new(HashDb::open_on(copy, &options).unwrap());
        let loading = {
            let db = Arc::clone(&db);
            std::thread::spawn(move || {
                for stripe in 0..STRIPES {
                    db.core.index.warm(stripe).unwrap();
                }
            })
        };
        std::thread::sleep(std::time::Duration::from_micros(300 * round));
        db.clear().unwrap();
        loading.join().unwrap();
        assert_eq!(db.count(), 0);
        let mut shown = 0;
        db.scan(None, &mut |_, _| {
            shown += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(shown, 0, "round {round}");
        assert!(db.check(&mut |_, _| ()).unwrap().is_sound());
    }
}

/// A load whose stripe could not be built, for want of memory, once had dropped what the log said.
#[test]
fn a_load_that_came_to_nothing_is_made_again_whole() {
    let memory = Memory::new(1 << 26).unwrap();
    let db = HashDb::create_on(memory, &small()).unwrap();
    let mut replay = Replay::new(db.core.secrets);
    for i in 0..100u32 {
        db.put(&(i % 60).to_le_bytes(), b"value").unwrap();
    }
    let log = Arc::clone(&db.core.log);
    let start = crate::log::End::of(0, crate::log::anchor::FIRST_SEQUENCE, Some(FIRST_FRAME));
    let trust = crate::log::recover::Trust {
        trusted: true,
        durable: LogPosition::default(),
        live: true,
        shared: false,
        epoch: 1,
    };
    log.recover(start, trust, &mut |address, frame| {
        replay.record(address, &frame, 0);
        Ok(())
    })
    .unwrap();
    let salt = log.geometry().salt;
    let dead = |log: &Log| {
        log.segments()
            .in_use(Use::Log)
            .iter()
            .map(|s| s.dead)
            .sum::<u64>()
    };
    let before = dead(&log);
    let cold = replay.into_cold(
        Arc::clone(&log),
        salt,
        vec![crate::record::hash::layout::Image::default(); STRIPES],
    );
    let mut count = 0;
    for stripe in 0..STRIPES {
        let first = cold.load(stripe).unwrap();
        assert_eq!(cold.load(stripe).unwrap(), first);
        assert_eq!(dead(&log), before, "what is not loaded kills nothing");
        count += first.len();
    }
    assert_eq!(count, 60);
    for stripe in 0..STRIPES {
        cold.loaded(stripe);
    }
    assert!(dead(&log) > before);
}

/// The slot of an insertion under way holds an address beyond any map.
#[test]
fn a_slot_that_is_only_reserved_leads_nowhere() {
    let db = HashDb::create_on(Memory::new(1 << 26).unwrap(), &small()).unwrap();
    assert!(db.log().approach(Address((1 << 40) - 1)).is_none());
}

/// What is taken inside something brief, and dropped, once ended the protection of the outer one.
#[test]
fn a_pin_within_something_brief_does_not_end_it() {
    let published = epoch::Published::new(Arc::new(1));
    let brief = epoch::brief();
    let seen = published.get(brief.pin());
    drop(epoch::pin());
    let stamp = epoch::stamp();
    assert!(!epoch::is_past(stamp));
    assert_eq!(**seen, 1);
    // In whatever order they end.
    let pin = epoch::pin();
    drop(brief);
    assert!(!epoch::is_past(stamp));
    drop(pin);
    // Other tests of this process hold pins, too, each for a moment.
    let is_past = |stamp| {
        let pause = std::time::Duration::from_millis(1);
        (0..30_000).any(|_| epoch::is_past(stamp) || (std::thread::sleep(pause), false).1)
    };
    assert!(is_past(epoch::stamp()));
}
