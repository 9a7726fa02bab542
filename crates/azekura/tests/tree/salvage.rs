//! Repairs where a page that leads to others is damaged: it costs no record, whichever it is.
//!
//! Every block of a file of three levels is damaged in turn, as it was closed and as a kill left it. What a block that is no leaf costs is
//! nothing; a leaf costs its own records, but for what the journal has. Only the first blocks, and the root of the checkpoint, may cost more.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use azekura::Kind;
use azekura::engine::{Persistent, Reader};
use azekura::record::tree::{Compression, CreateOptions, OpenOptions, TreeDb, repair};
use azekura::testkit::Random;
use azekura::testkit::suite::{share, tried_at_least};

use super::beyond::{Model, shown};

const BLOCK: usize = 4096;
/// Records of a leaf, at most.
const OF_LEAF: usize = 140;

fn opening() -> OpenOptions {
    OpenOptions::new().background(false).cache(4u64 << 20)
}

fn key(number: u64) -> Vec<u8> {
    // Neighbours begin alike, so what divides them is long, and an inner node holds few.
    let group = number / 16 * 7919 % 10_000;
    format!("{group:05}-{:-<90}-{:02}", "", number % 16).into_bytes()
}

/// What a store has, and its file as a close and as a kill leave it.
fn files(folder: &Path, compression: Compression) -> [(Model, Vec<u8>); 2] {
    let path = folder.join("sound.azt");
    let page_size = match compression {
        Compression::None => 4096u64,
        _ => 8192,
    };
    let options = CreateOptions::new()
        .compression(compression)
        .page_size(page_size)
        .segment_size(64u64 << 10)
        .opening(opening());
    let db = TreeDb::create(&path, &options).unwrap();
    let mut model = BTreeMap::new();
    for number in 0..9000 {
        db.put(&key(number), &[1; 30]).unwrap();
        model.insert(key(number), vec![1; 30]);
    }
    db.checkpoint().unwrap();
    for number in (0..9000).step_by(9) {
        db.put(&key(number), &[2; 40]).unwrap();
        model.insert(key(number), vec![2; 40]);
    }
    db.checkpoint().unwrap();
    // Changes that only the journal has: values, removals, a range.
    for number in (0..9000).step_by(31) {
        db.put(&key(number), &[3; 20]).unwrap();
        model.insert(key(number), vec![3; 20]);
    }
    for number in (0..9000).step_by(37) {
        db.remove(&key(number)).unwrap();
        model.remove(&key(number));
    }
    let (from, to) = (b"03000".to_vec(), b"03100".to_vec());
    db.remove_range(&from[..]..&to[..]).unwrap();
    model.retain(|key, _| *key < from || *key >= to);
    let killed = fs::read(&path).unwrap();
    db.close().unwrap();
    let closed = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    [(model.clone(), killed), (model, closed)]
}

/// Whether the block may cost more than a leaf's records: the superblock, the journal, the root of the checkpoint, all of which state so.
fn costs_more(error: &azekura::Error) -> bool {
    matches!(error.kind(), Kind::Corrupted | Kind::Mismatch)
}

#[test]
fn a_damaged_block_costs_no_more_than_a_leaf() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(azekura::testkit::round_seed());
    let (mut repaired, mut found, mut refused, mut inner) = (0, 0, 0, 0);
    for compression in [Compression::None, Compression::Lz4] {
        for (at, (model, sound)) in files(folder.path(), compression).into_iter().enumerate() {
            let is_killed = at == 0;
            let blocks = sound.len() / BLOCK;
            for block in 2..blocks {
                let bytes = &sound[block * BLOCK..][..BLOCK];
                if bytes.iter().all(|byte| *byte == 0) {
                    continue;
                }
                // The level of a node that is not compressed: few blocks are inner ones, and a full run tries all.
                let may_be_inner = (1..4).contains(&bytes[32 + 6]);
                let of_thousand = if may_be_inner {
                    share(2000)
                } else {
                    share(250)
                };
                let is_chosen = random.below(1000) < of_thousand;
                if !is_chosen {
                    continue;
                }
                let mut damaged = sound.clone();
                for at in [5, 700, 3000] {
                    damaged[block * BLOCK + at + random.index(900)] ^= 0x5a;
                }
                let (from, to) = (folder.path().join("bad.azt"), folder.path().join("new.azt"));
                fs::write(&from, &damaged).unwrap();
                let report = match repair(&from, &to, &mut |_, _| ()) {
                    Err(error) => {
                        assert!(costs_more(&error), "{error}");
                        refused += 1;
                        continue;
                    }
                    Ok(report) => report,
                };
                let db = TreeDb::open(&to, &opening()).unwrap();
                let now = shown(&db);
                drop(db);
                fs::remove_file(&to).unwrap();
                let lost = model.keys().filter(|key| !now.contains_key(*key)).count();
                let wrong = now
                    .iter()
                    .filter(|(key, value)| model.get(*key) != Some(value));
                let wrong = wrong.count();
                // A damaged block of the journal costs what it changed.
                let most = if is_killed {
                    2 * OF_LEAF + 700
                } else {
                    OF_LEAF
                };
                assert!(
                    lost + wrong <= most,
                    "block {block} of {blocks}: {lost} lost, {wrong} wrong, {report:?}"
                );
                assert!(report.losses > 0 || lost + wrong == 0, "{report:?}");
                if report.found_leaves > 0 {
                    assert_eq!((lost, wrong), (0, 0), "block {block}: {report:?}");
                    inner += 1;
                }
                found += report.found_leaves;
                repaired += 1;
            }
        }
    }
    assert!(refused <= 12, "{refused} files were not repaired");
    tried_at_least(
        repaired,
        60,
        "files with a damaged block that were repaired",
    );
    tried_at_least(inner, 20, "damaged pages that led to others");
    tried_at_least(found, 100, "leaves that no page led to");
}

/// A page that is damaged goes into no copy, nor over what a copy has of it.
#[test]
fn no_copy_is_made_of_a_damaged_page() {
    let folder = tempfile::tempdir().unwrap();
    let [_, (model, sound)] = files(folder.path(), Compression::None);
    let mut random = Random::new(azekura::testkit::round_seed());
    let (path, copy) = (folder.path().join("a.azt"), folder.path().join("c.azt"));
    let (changes, whole) = (folder.path().join("changes"), folder.path().join("w.azt"));
    fs::write(&path, &sound).unwrap();
    let db = TreeDb::open(&path, &opening()).unwrap();
    db.copy_to(&copy, &mut |_, _| ()).unwrap();
    db.close().unwrap();
    // The state of which a copy was made, and one key changed since.
    let sound = fs::read(&path).unwrap();
    let since = TreeDb::checkpoint_of(&copy).unwrap();
    let (mut refused, mut made) = (0, 0);
    for _ in 0..share(400).max(60) {
        let mut damaged = sound.clone();
        let block = 2 + random.index(sound.len() / BLOCK - 2);
        damaged[block * BLOCK + random.index(BLOCK)] ^= 1 << random.below(8);
        fs::write(&path, &damaged).unwrap();
        let Ok(db) = TreeDb::open(&path, &opening()) else {
            continue;
        };
        if db.put(&key(4711), b"changed").is_err() {
            continue;
        }
        if let Err(error) = db.copy_changes(since, &changes, &mut |_, _| ()) {
            assert_eq!(error.kind(), Kind::Corrupted, "{error}");
            assert!(!changes.exists());
            refused += 1;
        } else {
            let target = folder.path().join("t.azt");
            fs::copy(&copy, &target).unwrap();
            TreeDb::apply_changes(&target, &changes, &mut |_, _| ()).unwrap();
            let db = TreeDb::open(&target, &opening()).unwrap();
            let mut expected = model.clone();
            expected.insert(key(4711), b"changed".to_vec());
            assert!(shown(&db) == expected, "block {block}");
            drop(db);
            fs::remove_file(&target).unwrap();
            fs::remove_file(&changes).unwrap();
            made += 1;
        }
        if let Err(error) = db.copy_to(&whole, &mut |_, _| ()) {
            assert_eq!(error.kind(), Kind::Corrupted, "{error}");
            refused += 1;
        } else {
            let copied = TreeDb::open(&whole, &opening()).unwrap();
            assert_eq!(copied.count(), db.count());
            let report = copied.check(&mut |_, _| ()).unwrap();
            assert!(report.is_sound(), "block {block}");
            drop(copied);
            fs::remove_file(&whole).unwrap();
        }
    }
    tried_at_least(refused, 20, "copies of damaged pages that were refused");
    tried_at_least(made, 20, "copies of files with damage elsewhere");
}
