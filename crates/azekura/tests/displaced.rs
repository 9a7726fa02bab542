//! A file that is moved away, or replaced, while its store is used by an owner who looks (`Persistent::verify_path`).
//!
//! Every change is refused then, reads continue, and when the file is back, so are changes: what was acknowledged at any
//! time is in it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::suite::tried_at_least;
use azekura::{Edit, Engine, Kind, Persistent, Reader, Result};

fn small() -> CreateOptions {
    CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(1 << 26)
}

/// Every way to change a record.
fn changes(db: &HashDb) -> Vec<(&'static str, Result<()>)> {
    let edit = |_: Option<&[u8]>| Edit::put(b"closure");
    vec![
        ("put", db.put(b"1", b"one")),
        ("put of a new one", db.put(b"new", b"one")),
        ("remove", db.remove(b"2").map(drop)),
        ("put_many", db.put_many(&[(b"1", b"one"), (b"2", b"two")])),
        ("update", db.update(b"1", &mut { edit })),
        (
            "update_many",
            db.update_many(&[b"1", b"2"], &mut |_| {
                vec![Edit::put(b"both"), Edit::put(b"both")]
            }),
        ),
        ("clear", Engine::clear(db)),
    ]
}

#[test]
fn a_displaced_store_refuses_every_change_until_its_file_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("a"), folder.path().join("b"));
    for background in [false, true] {
        let options = small().background(background);
        let db = HashDb::create(&path, &options).unwrap();
        db.put(b"1", b"1").unwrap();
        db.put(b"2", b"2").unwrap();
        db.verify_path().unwrap();
        std::fs::rename(&path, &away).unwrap();
        if background {
            std::fs::write(&path, b"another").unwrap();
        }
        // Who does not look has his reasons.
        db.put(b"3", b"3").unwrap();
        assert_eq!(db.verify_path().unwrap_err().kind(), Kind::Io);
        for (what, done) in changes(&db) {
            assert_eq!(done.expect_err(what).kind(), Kind::Io, "{what}");
        }
        assert_eq!(db.get(b"2").unwrap().unwrap(), b"2");
        assert_eq!(db.count(), 3);
        db.checkpoint().unwrap();
        std::fs::rename(&away, &path).unwrap();
        for (what, done) in changes(&db) {
            done.expect(what);
        }
        db.put(b"last", b"4").unwrap();
        db.close().unwrap();
        let db = HashDb::open(&path, &options.opening).unwrap();
        assert_eq!(
            (db.count(), db.get(b"last").unwrap().unwrap()),
            (1, b"4".to_vec())
        );
        db.close().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

/// The file goes and comes while threads write and the owner looks. What was acknowledged is in it at the end.
#[test]
fn what_is_acknowledged_while_the_file_moves_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("a"), folder.path().join("b"));
    let db = HashDb::create(&path, &small().background(true)).unwrap();
    let (is_over, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                let (db, is_over, refused) = (&db, &is_over, &refused);
                scope.spawn(move || {
                    let (mut done, mut number) = (Vec::new(), 0u64);
                    while !is_over.load(Ordering::Relaxed) {
                        let key = [writer, number].map(u64::to_le_bytes).concat();
                        match db.put(&key, &[b'v'; 100]) {
                            Ok(()) => done.push(key),
                            Err(error) => {
                                assert_eq!(error.kind(), Kind::Io, "{error}");
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        number += 1;
                    }
                    done
                })
            })
            .collect();
        for _ in 0..40 {
            std::fs::rename(&path, &away).unwrap();
            assert!(db.verify_path().is_err());
            let before = refused.load(Ordering::Relaxed);
            while refused.load(Ordering::Relaxed) < before + 10 {
                std::thread::yield_now();
            }
            std::fs::rename(&away, &path).unwrap();
            db.verify_path().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect::<Vec<_>>()
    });
    db.close().unwrap();
    let db = HashDb::open(&path, &small().opening).unwrap();
    assert_eq!(db.count(), done.len() as u64);
    assert!(done.iter().all(|key| db.get(key).unwrap().is_some()));
    tried_at_least(
        refused.into_inner(),
        400,
        "changes refused while the file was elsewhere",
    );
}
