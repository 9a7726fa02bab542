//! What a thread does inside a closure, of this store or of another one, in stores that are full: it does not wait for a thread that may
//! wait for it, moves nothing that would be free only when it has ended, and has what others have let go of.
//! A thread in a reading closure is pinned: all that is let go of since stays until it ends.

use std::sync::atomic::AtomicU32;
use std::sync::mpsc;

use super::*;
use crate::Edit;
use crate::log::{AllocationClass, Patience, Use};
use crate::record::cache::CacheDb;
use crate::record::memory::baby::BabyDb;
use crate::record::memory::tiny::TinyDb;
use crate::testkit::suite::demand;

/// A store of the least capacity and `more` segments, filled with values of `len` bytes; and how many there are.
fn full(more: u64, len: usize) -> (HashDb, u32) {
    let options = small().capacity(HashDb::least_capacity(4096) + more * 4096);
    let db = HashDb::create_on(Memory::new(1 << 26).unwrap(), &options).unwrap();
    let mut count = 0u32;
    loop {
        match db.put(&count.to_le_bytes(), &vec![1; len]) {
            Ok(()) => count += 1,
            Err(error) => {
                assert_eq!(error.kind(), Kind::Full);
                break;
            }
        }
    }
    assert!(count > 100, "{count}");
    (db, count)
}

/// Two threads waited for each other: one inside an update of a store, for another store's cleaning; and who cleaned, for the
/// end of that update.
#[test]
fn what_waits_for_updates_is_refused_inside_the_update_of_another_store() {
    let outer = empty().1;
    let db = empty().1;
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDb::new(1000).unwrap();
    let (tiny, baby) = (TinyDb::new().unwrap(), BabyDb::new().unwrap());
    let mut asked = 0;
    let mut decide = |_: Option<&[u8]>| {
        for refused in [
            db.checkpoint(),
            db.maintain(),
            db.compact(&mut |_, _| ()),
            db.check(&mut |_, _| ()).map(|_| ()),
            db.copy_to(&folder.path().join("copy"), &mut |_, _| ()),
            db.clear(),
            db.clear_with_mark(b"mark"),
            tiny.clear(),
            baby.clear(),
            cache.clear(),
        ] {
            assert_eq!(refused.unwrap_err().kind(), Kind::Invalid);
            asked += 1;
        }
        // Updates, reads and syncs are not.
        db.put(b"key", b"value").unwrap();
        assert!(db.get(b"key").unwrap().is_some());
        db.sync(Durability::Power).unwrap();
        Edit::Keep
    };
    outer.update(b"key", &mut decide).unwrap();
    assert_eq!(asked, 10);
    db.clear().unwrap();
    db.checkpoint().unwrap();
}

/// A reading closure puts a value as long as the one that is there, but free segments are not neighbours: nothing is moved for it,
/// as none of that would be free before it has ended.
#[test]
fn a_pinned_thread_moves_nothing_out_of_the_way() {
    let mut refused = 0;
    for step in 2..12u32 {
        let (db, count) = full(200, 500);
        for key in (0..count).step_by(step as usize) {
            db.remove(&key.to_le_bytes()).unwrap();
        }
        let long = vec![2; 30_000];
        let mut longs = 0u32;
        while db.put(&(count + longs).to_le_bytes(), &long).is_ok() {
            longs += 1;
        }
        if longs == 0 {
            continue;
        }
        db.read(&1u32.to_le_bytes(), &mut |_| {
            for _ in 0..4 {
                let before = db.position();
                let key = count.to_le_bytes();
                match db.put(&key, &long) {
                    Ok(()) => {}
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Full);
                        assert_eq!(db.position(), before, "copies were appended");
                        refused += 1;
                    }
                }
            }
        })
        .unwrap();
        // Outside it is owed the room.
        db.put(&count.to_le_bytes(), &long).unwrap();
    }
    demand(refused, 4, "long values put by a pinned thread and refused");
}

/// What a reader held was let go of, and no thread has looked since.
#[test]
fn a_pinned_thread_has_what_readers_have_let_go_of() {
    let (db, count) = full(20, 300);
    let (begin, has_begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let mut next = 0u32;
    std::thread::scope(|scope| {
        let db = &db;
        scope.spawn(move || {
            db.read(&0u32.to_le_bytes(), &mut |_| {
                begin.send(()).unwrap();
                ended.recv().unwrap();
            })
            .unwrap();
        });
        has_begun.recv().unwrap();
        // Until what is left concurrently with the reader is spent.
        while db.put(&(next % count).to_le_bytes(), &[3; 300]).is_ok() {
            next += 1;
        }
        end.send(()).unwrap();
    });
    db.read(&0u32.to_le_bytes(), &mut |_| {
        db.put(&(next % count).to_le_bytes(), &[4; 300]).unwrap();
        db.remove(&(next % count).to_le_bytes()).unwrap();
    })
    .unwrap();
}

/// However often an update finds no room, it waits for a reader that stays as long as one patience lasts; and a thread that is
/// pinned, which would wait for itself, does not wait.
#[test]
fn a_patience_is_spent_once() {
    let db = empty().1;
    db.put(b"key", b"value").unwrap();
    let segments = db.log().segments();
    let index = segments
        .space()
        .take(1, 0, Use::Other, AllocationClass::Checkpoint)
        .unwrap();
    let tries = AtomicU32::new(0);
    let refused = |patience: &mut Patience| {
        tries.store(0, Ordering::Relaxed);
        let take = || {
            tries.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(Error::new(Kind::Full, "no room"))
        };
        assert!(segments.patiently(patience, take).is_err());
        tries.load(Ordering::Relaxed)
    };
    db.read(b"key", &mut |_| {
        segments.retire(index);
        segments.release(&[(index, 1)]);
        let mut patience = Patience::default();
        assert_eq!(refused(&mut patience), 1);
        assert!(!patience.is_over(), "a pinned thread does not wait");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut patience = Patience::default();
                assert_eq!(refused(&mut patience), 2, "before it waits, and after");
                assert!(patience.is_over());
                assert_eq!(refused(&mut patience), 1, "it was spent");
            });
        });
    })
    .unwrap();
}

/// A removal that a closure decides is kept where there is no room for it at once.
#[test]
fn closures_of_several_threads_empty_a_full_store() {
    let mut removed = 0;
    for more in 0..4 {
        let (db, count) = full(more, 200);
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let db = &db;
                scope.spawn(move || {
                    for key in (thread..count).step_by(4) {
                        db.update(&key.to_le_bytes(), &mut |present| {
                            assert!(present.is_some());
                            Edit::Remove
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(db.count(), 0);
        removed += u64::from(count);
    }
    demand(removed, 800, "removals by closures in full stores");
}
