//! A log that is kept for followers to come: what a retention promises, across cleaning, checkpoints and reopenings.
//!
//! A follower that comes later begins where the retention does and is shown every later change in order; beyond its bound the
//! oldest are given up, and a position in them is refused, never answered with a part.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::log::LogPosition;
use azekura::record::hash::{CreateOptions, HashDb, Retention, layout};
use azekura::testkit::suite::{demand, third};
use azekura::testkit::{Random, round_seed};
use azekura::{Kind, Persistent, Reader};

const CAPACITY: u64 = 64 << 20;

fn options(retention: Option<Retention>, background: bool) -> CreateOptions {
    CreateOptions::new()
        .segment_size(4096)
        .capacity(CAPACITY)
        .background(background)
        .retention(retention)
}

/// What a follower from `from` on makes of `before`.
fn followed(db: &HashDb, from: LogPosition, before: &State) -> azekura::Result<State> {
    let mut state = before.clone();
    let mut follower = db.log().follow(Some(from))?;
    let mut apply = |frame: &azekura::format::frame::Frame<'_>| {
        let kind = frame.header.kind;
        if kind == layout::CLEAR {
            state.clear();
        } else if kind == layout::REMOVE {
            state.remove(frame.key);
        } else {
            assert!(layout::is_record(kind), "{kind:?} is no change");
            state.insert(frame.key.to_vec(), frame.value.to_vec());
        }
    };
    follower.advance(&mut |position, frame| {
        if frame.header.kind == azekura::format::frame::FrameKind::BATCH {
            db.log()
                .inner(position, frame)
                .for_each(|inner| apply(&inner));
        } else {
            apply(&frame);
        }
        ControlFlow::Continue(())
    })?;
    Ok(state)
}

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn contents(db: &HashDb) -> State {
    let mut state = State::new();
    db.scan(None, &mut |key, value| {
        state.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })
    .expect("a scan");
    state
}

/// Changes of all kinds, with marks among them.
fn change(db: &HashDb, random: &mut Random, count: u32) {
    for _ in 0..count {
        let key = random.below(200).to_le_bytes();
        match random.below(20) {
            0..4 => _ = db.remove(&key).expect("a removal"),
            4 => db.set_mark(&random.bytes(9)).expect("a mark"),
            5 if random.one_in(8) => db.clear_with_mark(b"cleared").expect("a clear"),
            6 => {
                let other = random.below(200).to_le_bytes();
                let value = random.bytes(100);
                let mut decide = |_: &[Option<&[u8]>]| {
                    let edit = || azekura::Edit::Put(value.clone().into());
                    vec![edit(), azekura::Edit::Remove, edit()]
                };
                db.update_many_with_mark(&[&key, &other, &key], &mut decide, b"a batch's")
                    .expect("a batch");
            }
            _ => {
                let len = random.index(400);
                db.put(&key, &random.bytes(len)).expect("a put");
            }
        }
    }
}

#[test]
fn what_is_retained_can_be_followed_after_cleaning_and_reopening() {
    let rounds = third(20);
    let (mut shown, mut cleaned) = (0, 0);
    for round in 0..rounds {
        let mut random = Random::new(round_seed().wrapping_add(round));
        let memory = Memory::new(CAPACITY).expect("memory");
        let mut db = HashDb::create_on(
            Arc::clone(&memory) as Arc<dyn Storage>,
            &options(None, false),
        )
        .expect("a store");
        change(&db, &mut random, 300);
        let (from, before) = (db.position(), contents(&db));
        let retention = Some(Retention {
            from,
            bytes_max: u64::MAX,
        });
        db.retain(retention);
        for _ in 0..4 {
            change(&db, &mut random, 600);
            for _ in 0..20 {
                db.maintain().expect("upkeep");
            }
            db.checkpoint().expect("a checkpoint");
            if random.one_in(2) {
                db.compact(&mut |_, _| ()).expect("a compaction");
            }
            let how = random.below(4);
            if how < 2 {
                db.close().expect("it closes");
                let storage = Arc::clone(&memory) as Arc<dyn Storage>;
                db =
                    HashDb::open_on(storage, &options(retention, false).opening).expect("it opens");
            } else if how == 2 {
                // As if the process were killed.
                let bytes = memory.to_vec();
                let copy = Memory::from_bytes(&bytes, CAPACITY).expect("memory");
                let killed =
                    HashDb::open_on(copy, &options(retention, true).opening).expect("it opens");
                let found = followed(&killed, from, &before).expect("what is retained");
                assert_eq!(found, contents(&killed), "round {round}, killed");
                shown += 1;
            }
            let found = followed(&db, from, &before).expect("what is retained");
            assert_eq!(found, contents(&db), "round {round}");
            shown += 1;
        }
        // Without it the log is cleaned, and the position is refused.
        db.retain(None);
        change(&db, &mut random, 600);
        db.compact(&mut |_, _| ()).expect("a compaction");
        let refused = followed(&db, from, &before).map_err(|error| error.kind());
        cleaned += u64::from(refused == Err(Kind::Invalid));
    }
    demand(shown, 4 * rounds, "followers of a retained log");
    assert!(cleaned > 0);
}

#[test]
fn beyond_its_bound_a_retention_gives_up_the_oldest_and_says_so() {
    let (mut refused, mut held) = (0, 0);
    for round in 0..third(20) {
        let mut random = Random::new(!round_seed().wrapping_add(round));
        let memory = Memory::new(CAPACITY).expect("memory");
        let bytes_max = 4096 * (8 + random.below(40));
        let db = HashDb::create_on(memory, &options(None, false)).expect("a store");
        change(&db, &mut random, 100);
        let (from, before) = (db.position(), contents(&db));
        db.retain(Some(Retention { from, bytes_max }));
        let mut taken = 0;
        while taken < 3 * bytes_max {
            change(&db, &mut random, 40);
            for _ in 0..8 {
                db.maintain().expect("upkeep");
            }
            db.checkpoint().expect("a checkpoint");
            db.compact(&mut |_, _| ()).expect("a compaction");
            taken += 40 * 200;
            match followed(&db, from, &before) {
                Ok(found) => {
                    assert_eq!(found, contents(&db), "round {round}");
                    held += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Invalid, "{error}");
                    refused += 1;
                }
            }
        }
        db.sync(azekura::Durability::Power).expect("a sync");
    }
    demand(held, 6, "followers within the bound");
    demand(refused, 6, "positions beyond the bound");
}

/// A value that fills its segments leaves a position past it. A recovery continues in another epoch, to which only the link of
/// that segment leads.
#[test]
fn a_position_past_a_full_segment_is_retained_over_a_recovery() {
    let memory = Memory::new(CAPACITY).expect("memory");
    let storage = Arc::clone(&memory) as Arc<dyn Storage>;
    let db = HashDb::create_on(storage, &options(None, false)).expect("a store");
    let put_all = |db: &HashDb, version: u8| {
        for number in 0..100u32 {
            db.put(&number.to_le_bytes(), &[version; 100])
                .expect("a put");
        }
        db.put(b"large", &[version; 3000]).expect("a put");
    };
    put_all(&db, 1);
    let (from, before) = (db.position(), contents(&db));
    assert_eq!(from.offset, 0);
    let retention = Some(Retention {
        from,
        bytes_max: u64::MAX,
    });
    let killed = Memory::from_bytes(&memory.to_vec(), CAPACITY).expect("memory");
    let db = HashDb::open_on(killed, &options(retention, false).opening).expect("it opens");
    for version in 2..6 {
        put_all(&db, version);
        db.checkpoint().expect("a checkpoint");
        db.compact(&mut |_, _| ()).expect("a compaction");
    }
    let found = followed(&db, from, &before).expect("what is retained");
    assert_eq!(found, contents(&db));
}

#[test]
fn a_retention_keeps_as_many_bytes_as_it_may_and_a_follower_what_another_one_left() {
    let memory = Memory::new(CAPACITY).expect("memory");
    let db = HashDb::create_on(memory, &options(None, false)).expect("a store");
    let log = db.log();
    let from = db.position();
    let followers = [(); 2].map(|()| log.follow(None).expect("a follower"));
    for number in 0..200u32 {
        db.put(&number.to_le_bytes(), &[1; 100]).expect("a put");
    }
    for follower in followers {
        assert_eq!(log.retained_from(), from.sequence);
        drop(follower);
    }
    assert_eq!(log.retained_from(), u64::MAX);
    let segments = db.position().sequence - from.sequence + 1;
    for (bytes_max, more) in [
        (4096 * segments, 0),
        (4096 * segments - 1, 1),
        (4095, u64::MAX),
    ] {
        db.retain(Some(Retention { from, bytes_max }));
        assert_eq!(log.retained_from(), from.sequence.saturating_add(more));
    }
}
