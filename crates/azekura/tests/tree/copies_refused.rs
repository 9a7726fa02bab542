//! What does not fit a copy is refused, and nothing is changed.
//!
//! That are other stores, other histories of the same file, copies that were changed, more copies than a store knows, and files of
//! changes of which a byte is not what was written. A copy whose changes are not complete opens for nothing but these.

use std::path::{Path, PathBuf};

use azekura::Kind;
use azekura::engine::Persistent;
use azekura::io::Access;
use azekura::io::sim::SimDisk;
use azekura::record::hash::HashDb;
use azekura::record::tree::{CheckpointId, CreateOptions, OpenOptions, TreeDb, repair};
use azekura::testkit::round_seed;
use azekura::testkit::suite::{share, tried_at_least};

use super::copies::{
    COPY, Model, STORE, apply, apply_on, assert_file_holds, changes_of, on, put, quiet, records_of,
};

/// A small store, a copy of it, and changes since.
struct Small {
    folder: tempfile::TempDir,
    db: TreeDb,
}

impl Small {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = CreateOptions::new()
            .segment_size(64u64 << 10)
            .background(false);
        let db = TreeDb::create(folder.path().join("store.azt"), &options).unwrap();
        let small = Self { folder, db };
        small.put(0);
        small.db.copy_to(&small.at("copy"), &mut quiet).unwrap();
        small.put(1);
        small.changes("changes");
        small
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, version: u64) {
        put(&self.db, version);
    }

    /// Changes since the copy.
    fn changes(&self, name: &str) -> CheckpointId {
        let since = TreeDb::checkpoint_of(self.at("copy")).unwrap();
        self.db
            .copy_changes(since, self.at(name), &mut quiet)
            .unwrap()
    }

    /// Nothing of this is applied, for this reason, and the copy is what it was.
    fn refuses(&self, changes: &str, kind: Kind, reason: &str) {
        let before = std::fs::read(self.at("copy")).unwrap();
        let error = apply(&self.at("copy"), &self.at(changes)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(std::fs::read(self.at("copy")).unwrap() == before);
    }
}

#[test]
fn changes_that_do_not_fit_a_copy_are_refused() {
    let (one, other) = (Small::new(), Small::new());
    let opening = OpenOptions::new().background(false);
    std::fs::copy(other.at("changes"), one.at("of-other")).unwrap();
    one.refuses("of-other", Kind::Invalid, "another store");
    let since = TreeDb::checkpoint_of(other.at("copy")).unwrap();
    let error = one
        .db
        .copy_changes(since, one.at("no"), &mut quiet)
        .unwrap_err();
    assert!(error.to_string().contains("another store"), "{error}");
    assert!(!one.at("no").exists());
    let error = one
        .db
        .copy_changes(since, one.at("changes"), &mut quiet)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    // In another order.
    let first = TreeDb::checkpoint_of(one.at("copy")).unwrap();
    std::fs::copy(one.at("copy"), one.at("copy-2")).unwrap();
    let to = apply(&one.at("copy-2"), &one.at("changes")).unwrap();
    one.put(2);
    one.db
        .copy_changes(to, one.at("later"), &mut quiet)
        .unwrap();
    one.refuses(
        "later",
        Kind::Invalid,
        &format!("found {first}, expected {to}"),
    );
    // A copy that was changed, and closed or not.
    let fresh = std::fs::read(one.at("copy")).unwrap();
    let copy = TreeDb::open(one.at("copy"), &opening).unwrap();
    one.refuses_locked();
    copy.put(b"own", b"1").unwrap();
    let killed = std::fs::read(one.at("copy")).unwrap();
    copy.close().unwrap();
    one.refuses("changes", Kind::Invalid, "is not at the checkpoint");
    std::fs::write(one.at("copy"), killed).unwrap();
    one.refuses("changes", Kind::Invalid, "was opened since it was made");
    std::fs::write(one.at("copy"), &fresh).unwrap();
    // What is no such file.
    one.refuses("store.azt", Kind::Mismatch, "another engine");
    std::fs::write(one.at("text"), "no changes").unwrap();
    one.refuses("text", Kind::Mismatch, "not an azekura file");
    let error = apply(&one.at("text"), &one.at("changes")).unwrap_err();
    assert_eq!(error.kind(), Kind::Mismatch, "{error}");
    // Opening it as a store names what it is not.
    for error in refused_opens(&one.at("changes"), &one.at("new")) {
        assert!(error.contains("azekura apply COPY CHANGES"), "{error}");
    }
    apply(&one.at("copy"), &one.at("changes")).unwrap();
}

impl Small {
    fn refuses_locked(&self) {
        let error = apply(&self.at("copy"), &self.at("changes")).unwrap_err();
        assert_eq!(error.kind(), Kind::Locked, "{error}");
    }
}

/// The errors of all that opens a file.
fn refused_opens(file: &Path, new: &Path) -> Vec<String> {
    let errors = [
        TreeDb::open(file, &OpenOptions::new()).map(drop),
        HashDb::open(file, &azekura::record::hash::OpenOptions::new()).map(drop),
        azekura::open::open(file).map(drop),
        azekura::open::open_read_only(file).map(drop),
        azekura::open::inspect(file).map(drop),
        repair(file, new, &mut quiet).map(drop),
        TreeDb::checkpoint_of(file).map(drop),
    ];
    assert!(!new.exists());
    errors.map(|error| error.unwrap_err().to_string()).to_vec()
}

/// A store is restored from a file that it was, and written: the same numbers are of other states then, under the same salt.
#[test]
fn a_copy_of_another_history_is_refused() {
    let mut refused = 0;
    for forked_open in [false, true] {
        let small = Small::new();
        let (path, fork) = (small.at("store.azt"), small.at("fork.azt"));
        let opening = OpenOptions::new().background(false);
        let folder = small.folder.path().to_path_buf();
        let at = |name: &str| folder.join(name);
        let Small { folder: _kept, db } = small;
        let db = if forked_open {
            db.checkpoint().unwrap();
            std::fs::copy(&path, &fork).unwrap();
            db
        } else {
            db.close().unwrap();
            std::fs::copy(&path, &fork).unwrap();
            TreeDb::open(&path, &opening).unwrap()
        };
        let forked = TreeDb::open(&fork, &opening).unwrap();
        let base = TreeDb::checkpoint_of(at("copy")).unwrap();
        std::fs::copy(at("copy"), at("copy-2")).unwrap();
        put(&db, 7);
        put(&forked, 8);
        let to = db.copy_changes(base, at("one"), &mut quiet).unwrap();
        let forked_to = forked.copy_changes(base, at("two"), &mut quiet).unwrap();
        assert_eq!(to.number(), forked_to.number(), "the same number");
        assert_ne!(to, forked_to);
        apply(&at("copy"), &at("one")).unwrap();
        apply(&at("copy-2"), &at("two")).unwrap();
        assert_file_holds(&at("copy"), &opening, &records_of(&db));
        assert_file_holds(&at("copy-2"), &opening, &records_of(&forked));
        for store in [&db, &forked] {
            put(store, 9);
            store.checkpoint().unwrap();
        }
        for (store, since) in [(&db, forked_to), (&forked, to)] {
            let error = store.copy_changes(since, at("no"), &mut quiet).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
            assert!(error.to_string().contains("another history"), "{error}");
            refused += 1;
        }
        let next = forked
            .copy_changes(forked_to, at("next"), &mut quiet)
            .unwrap();
        let error = apply(&at("copy"), &at("next")).unwrap_err();
        assert!(
            error.to_string().contains("is not at the checkpoint"),
            "{error}"
        );
        assert_eq!(apply(&at("copy-2"), &at("next")).unwrap(), next);
        // The copy is the store's own again, and goes its own way.
        let restored = TreeDb::open(at("copy"), &opening).unwrap();
        put(&restored, 3);
        let own = restored.copy_changes(to, at("own"), &mut quiet).unwrap();
        assert!(db.copy_changes(own, at("no"), &mut quiet).is_err());
        refused += 2;
    }
    tried_at_least(refused, 8, "copies of another history refused");
}

/// Of the last copies that were made each is known, and of those before none.
#[test]
fn a_store_knows_its_last_copies() {
    let small = Small::new();
    let first = TreeDb::checkpoint_of(small.at("copy")).unwrap();
    let mut made = vec![first, small.changes("same")];
    for round in 0..80_u64 {
        small.db.put(b"round", &round.to_le_bytes()).unwrap();
        let name = format!("changes-{round}");
        made.push(
            small
                .db
                .copy_changes(made[1 + round as usize], small.at(&name), &mut quiet)
                .unwrap(),
        );
    }
    let known = |since: &CheckpointId| {
        let _ = std::fs::remove_file(small.at("try"));
        small
            .db
            .copy_changes(*since, small.at("try"), &mut quiet)
            .is_ok()
    };
    let is_known: Vec<bool> = made.iter().map(known).collect();
    let mut expected = vec![false; made.len() - 64];
    expected.extend([true; 64]);
    assert_eq!(is_known, expected);
    // The order in which they were made leads the first to the last.
    let mut last = apply(&small.at("copy"), &small.at("changes")).unwrap();
    for round in 0..80 {
        last = apply(&small.at("copy"), &small.at(&format!("changes-{round}"))).unwrap();
    }
    assert_eq!(Some(&last), made.last());
    assert_file_holds(
        &small.at("copy"),
        &OpenOptions::new(),
        &records_of(&small.db),
    );
}

#[test]
fn each_byte_of_changes_is_verified_before_any_is_applied() {
    let small = Small::new();
    let bytes = std::fs::read(small.at("changes")).unwrap();
    let (mut flipped, step) = (0, if share(2) == 2 { 7 } else { 131 });
    let is_tried = |at: &usize| *at < 400 || *at + 400 > bytes.len() || at.is_multiple_of(step);
    for at in (0..bytes.len()).filter(is_tried) {
        let mut other = bytes.clone();
        other[at] ^= 1 << (at % 8);
        std::fs::write(small.at("flipped"), &other).unwrap();
        let error = apply(&small.at("copy"), &small.at("flipped")).unwrap_err();
        let is_known = matches!(error.kind(), Kind::Corrupted | Kind::Mismatch);
        assert!(is_known, "byte {at}: {error}");
        flipped += 1;
    }
    for len in [0, 100, 4096, 8191, 8192, 10_000, bytes.len() - 1] {
        std::fs::write(small.at("flipped"), &bytes[..len]).unwrap();
        apply(&small.at("copy"), &small.at("flipped")).unwrap_err();
    }
    let longer = [&bytes[..], b"0"].concat();
    std::fs::write(small.at("flipped"), longer).unwrap();
    small.refuses("flipped", Kind::Corrupted, "does not verify");
    apply(&small.at("copy"), &small.at("changes")).unwrap();
    tried_at_least(flipped, 1000, "bytes of changes flipped");
}

/// A copy whose changes are not complete is no store until they are.
#[test]
fn what_is_not_complete_is_not_opened() {
    let disk = SimDisk::new(round_seed());
    let folder = disk.directory();
    let options = CreateOptions::new()
        .segment_size(64u64 << 10)
        .background(false)
        .capacity(SimDisk::FILE_SIZE_MAX);
    let db = TreeDb::create_in(&folder, Path::new(STORE), &options).unwrap();
    put(&db, 0);
    let since = db.copy_in(&folder, Path::new(COPY), &mut quiet).unwrap();
    for link in 1..=2 {
        put(&db, link);
        let name = changes_of(link as usize);
        db.copy_changes_in(since, &folder, Path::new(&name), &mut quiet)
            .unwrap();
    }
    let before = disk.events();
    apply_on(&disk, 1).unwrap();
    let mut marked = 0;
    for event in before..disk.events() {
        let state = disk.kill_state(event);
        let bytes = |storage: std::sync::Arc<dyn azekura::io::Storage>| {
            let mut bytes = vec![0; storage.size().unwrap() as usize];
            storage.read_at(0, &mut bytes).unwrap();
            bytes
        };
        let copy = bytes(on(&state, COPY, Access::Read).unwrap());
        let files = tempfile::tempdir().unwrap();
        let file = files.path().join("copy");
        std::fs::write(&file, copy).unwrap();
        if TreeDb::checkpoint_of(&file).is_ok() {
            continue;
        }
        marked += 1;
        for error in refused_opens(&file, &files.path().join("new")) {
            assert!(error.contains("not complete"), "{error}");
            assert!(error.contains("azekura apply COPY changes-1"), "{error}");
        }
        for link in 1..=2 {
            let changes = bytes(on(&disk, &changes_of(link), Access::Read).unwrap());
            std::fs::write(files.path().join(changes_of(link)), changes).unwrap();
        }
        let error = apply(&file, &files.path().join("changes-2")).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("other changes are being applied"),
            "{error}"
        );
        apply(&file, &files.path().join("changes-1")).unwrap();
        let mut model = Model::new();
        for number in 0..200_u64 {
            let value = format!("1 {number:>40}");
            model.insert(number.to_le_bytes().to_vec(), value.into_bytes());
        }
        assert_file_holds(&file, &OpenOptions::new(), &model);
    }
    tried_at_least(marked, 10, "copies with changes that are not complete");
}
