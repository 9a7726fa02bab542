//! What is pending of a sorted file is read without opening it for edits: while another store edits it and merges, and when it is closed.
//!
//! Keys are put once each, so the records with those that are pending are at least as many as were acknowledged before, and at most
//! as many as were begun after. The file is as it was.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::record::skip::{
    EditOptions, PendingEdits, Reducer, ReducingSkipDb, SkipDb, SkipReader,
};
use azekura::testkit::suite::{share, tried_at_least};
use azekura::{Edit, Engine as _, Kind, Reader as _};

#[test]
fn what_is_pending_is_read_while_a_store_edits_and_merges() {
    let mut looks = 0;
    let mut with_edits = 0;
    for round in 0..share(20) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azs");
        let options = EditOptions::new().memory(32u64 << 10);
        let db = &SkipDb::create(&path, &options).unwrap();
        let (begun, done, is_over) = (
            &AtomicU64::new(0),
            &AtomicU64::new(0),
            &AtomicBool::new(false),
        );
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..4000_u64 {
                    begun.store(number + 1, Ordering::SeqCst);
                    let value = vec![7; (number * 13 % 90) as usize];
                    db.update(&number.to_le_bytes(), &mut |_| Edit::put(&value))
                        .unwrap();
                    done.store(number + 1, Ordering::SeqCst);
                    if number % 900 == 100 * round {
                        db.merge(&mut |_, _| {}).unwrap();
                    }
                }
                is_over.store(true, Ordering::SeqCst);
            });
            while !is_over.load(Ordering::SeqCst) {
                let least = done.load(Ordering::SeqCst);
                let pending = match PendingEdits::of(&path) {
                    Ok(pending) => pending.unwrap(),
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Locked, "{error}");
                        continue;
                    }
                };
                let most = begun.load(Ordering::SeqCst);
                assert!(
                    (least..=most).contains(&pending.count),
                    "{pending:?} of {least} to {most}"
                );
                assert!(pending.edits <= pending.count);
                with_edits += u64::from(pending.edits > 0);
                looks += 1;
            }
        });
        assert_eq!(db.count(), 4000);
    }
    tried_at_least(looks, 400, "looks at what is pending");
    tried_at_least(with_edits, 200, "of them at pending edits");
}

#[test]
fn what_is_pending_is_read_and_nothing_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let path = at("a.azs");
    let total = Reducer::from_name("total-decimal").unwrap();
    let db = ReducingSkipDb::create_reducing(&path, total, &EditOptions::new()).unwrap();
    for value in [b"1", b"2", b"4"] {
        db.add(b"sum", value).unwrap();
    }
    db.add(b"other", b"1").unwrap();
    db.close().unwrap();
    let bytes = || ["a.azs", "a.azs.pending"].map(|name| std::fs::read(at(name)).unwrap());
    let before = bytes();
    let pending = PendingEdits::of(&path).unwrap().unwrap();
    assert_eq!((pending.edits, pending.count), (2, 2));
    assert!(matches!(pending.reducer, Reducer::TotalDecimal));
    assert!(bytes() == before);
    // A file without edits has none; what is no sorted file is refused.
    std::fs::copy(&path, at("alone.azs")).unwrap();
    assert!(PendingEdits::of(at("alone.azs")).unwrap().is_none());
    let error = PendingEdits::of(at("a.azs.pending")).unwrap_err();
    assert_eq!(error.kind(), Kind::Mismatch, "{error}");
    // Edits of another file, or damaged ones, cost no record that is merged, and are named.
    drop(SkipDb::create(at("b.azs"), &EditOptions::new()).unwrap());
    std::fs::copy(at("a.azs.pending"), at("b.azs.pending")).unwrap();
    let error = PendingEdits::of(at("b.azs")).unwrap_err();
    assert_eq!(error.kind(), Kind::Mismatch, "{error}");
    let mut damaged = before[1].clone();
    let place = damaged.windows(3).position(|part| part == b"sum").unwrap();
    damaged[place] ^= 0x11;
    std::fs::write(at("a.azs.pending"), damaged).unwrap();
    let error = PendingEdits::of(&path).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupted, "{error}");
    assert!(error.to_string().contains("stays readable"), "{error}");
    let (properties, reader) = azekura::open::inspect(&path).unwrap();
    let of = |wanted| {
        let found = properties.iter().find(|(name, _)| *name == wanted);
        found.map_or("", |(_, value)| value.as_str())
    };
    assert_eq!(of("pending_edits"), "unknown");
    assert!(of("pending_error").contains("a.azs.pending"));
    assert_eq!(reader.count(), SkipReader::open(&path).unwrap().count());
}
