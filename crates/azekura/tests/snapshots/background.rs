//! A snapshot that is saved while the engine is used holds every record that stayed, and can be stopped.
//!
//! Two writers put and remove records of their own, thousands of others stay: these are in every snapshot, with
//! their values, and of the former only what was once there. It does not ask which moment a snapshot shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura::record::memory::snapshot::{save, save_in_background};
use azekura::record::memory::std_hash::StdHashDb;
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::testkit::suite::{share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, Engine, Reader};

use crate::stores::Slow;
use crate::{NAME, State, open_and_load, proceed, tree};

/// Keys that stay as they are while others change.
fn stable(number: u64) -> (Vec<u8>, Vec<u8>) {
    let key = format!("stable-{number:06}").into_bytes();
    let value = key.iter().rev().copied().collect();
    (key, value)
}

fn saves_concurrently_with_writers(db: &Arc<dyn Engine>, what: &str) {
    const STABLE: u64 = 30_000;
    const SAVES: u64 = 50;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(NAME);
    for number in 0..STABLE {
        let (key, value) = stable(number);
        db.put_many(&[(&key, &value)]).expect("a put");
    }
    let is_over = AtomicBool::new(false);
    let write = |client: u64| {
        let mut random = Random::new(client + round_seed());
        while !is_over.load(Ordering::Relaxed) {
            let key = format!("moving-{client}-{}", random.below(3000));
            let update = db.update(key.as_bytes(), &mut |present| match present {
                Some(_) => Edit::Remove,
                None => Edit::Put(key.clone().into_bytes().into()),
            });
            update.expect("an update");
        }
    };
    let (saves, moved) = std::thread::scope(|scope| {
        scope.spawn(|| write(0));
        scope.spawn(|| write(1));
        let (mut saves, mut moved) = (0, 0);
        for _ in 0..share(SAVES) {
            let source: Arc<dyn Reader> = Arc::clone(db) as Arc<dyn Reader>;
            let saving = save_in_background(source, path.clone()).expect("a thread");
            let (_, total) = saving.progress();
            assert!(total >= STABLE);
            let saved = saving
                .wait()
                .expect("a snapshot")
                .expect("nobody stopped it");
            let found = open_and_load(&path).expect("it is whole");
            assert_eq!(found.len() as u64, saved.records);
            let is_stable = |key: &Vec<u8>| key.starts_with(b"stable");
            let (kept, moving): (State, State) =
                found.into_iter().partition(|(key, _)| is_stable(key));
            assert!(kept.into_iter().eq((0..STABLE).map(stable)));
            assert!(moving.iter().all(|(key, value)| key == value));
            moved += moving.len() as u64;
            saves += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        (saves, moved)
    });
    tried_at_least(
        saves,
        SAVES,
        &format!("snapshots of {what} concurrently with two writers"),
    );
    let what = format!("records in snapshots of {what} that came and went");
    tried_at_least(moved, SAVES, &what);
}

#[test]
fn a_snapshot_concurrently_with_writers_holds_every_record_that_stayed() {
    let hash: Arc<dyn Engine> = Arc::new(StdHashDb::new());
    saves_concurrently_with_writers(&hash, "std-hash");
    let tree: Arc<dyn Engine> = Arc::new(StdTreeDb::new());
    saves_concurrently_with_writers(&tree, "std-tree");
}

#[test]
fn a_save_in_the_background_can_be_stopped_and_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(NAME);
    let (db, state) = tree(15, 100);
    save(&db, &path, &mut proceed)
        .expect("a snapshot")
        .expect("whole");
    let slow: Arc<dyn Reader> = Arc::new(Slow(db, AtomicBool::new(false)));
    // It waits in its scan until the test resumes it: by then it has been stopped.
    let saving = save_in_background(Arc::clone(&slow), path.clone()).expect("a thread");
    assert!(!saving.is_finished());
    saving.stop();
    slow.bookmark_at(b"go on");
    assert_eq!(saving.wait().expect("no error"), None);
    assert_eq!(open_and_load(&path).expect("the first"), state);
    let dropped = save_in_background(slow, path.clone()).expect("a thread");
    drop(dropped);
    assert_eq!(open_and_load(&path).expect("the first or its like"), state);
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 1, "nothing else is left");
}
