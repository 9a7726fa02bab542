//! Ranges of keys over damaged pages: what is damaged refuses a removal, and a replay of one loses no more than what is damaged.
//!
//! A file is left by a process that was killed, with a range removed since its last checkpoint or none; a page of it changes before it
//! is opened again, and what is left is compared record by record. A repair has no record back that was removed.

use std::path::Path;

use azekura::Kind;
use azekura::engine::{Persistent, Reader};
use azekura::record::tree::{CreateOptions, OpenOptions, TreeDb, repair};

/// Changes every page on storage that has these bytes.
fn damage(path: &Path, needle: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let has = |page: &[u8]| page.windows(needle.len()).any(|part| part == needle);
    let pages = bytes.chunks_mut(4096).filter(|page| has(page));
    let count = pages.map(|page| page[2000] ^= 4).count();
    assert!(count > 0);
    std::fs::write(path, bytes).unwrap();
}

/// A file of 3000 records, of which a process that was killed has removed a range since the last checkpoint, or not.
fn left(folder: &Path, removed: Option<(&str, &str)>) -> std::path::PathBuf {
    let (path, copy) = (folder.join("a.azt"), folder.join("left.azt"));
    let _ = std::fs::remove_file(&path);
    let opening = OpenOptions::new().background(false);
    let options = CreateOptions::new()
        .segment_size(64u64 << 10)
        .opening(opening);
    let db = TreeDb::create(&path, &options).unwrap();
    for number in 0..3000 {
        let value = format!("value {number}, and more of it");
        db.put(format!("{number:04}").as_bytes(), value.as_bytes())
            .unwrap();
    }
    db.checkpoint().unwrap();
    if let Some((from, to)) = removed {
        let expected = to.parse::<u64>().unwrap() - from.parse::<u64>().unwrap();
        assert_eq!(db.remove_range(from..to).unwrap(), expected);
        db.put(b"1501", b"again").unwrap();
    }
    std::fs::copy(&path, &copy).unwrap();
    copy
}

#[test]
fn a_range_with_a_damaged_page_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = left(folder.path(), None);
    damage(&path, b"value 1500");
    let db = TreeDb::open(&path, &OpenOptions::new().background(false)).unwrap();
    // In the middle, and at either end.
    for (from, to) in [("0100", "2900"), ("1500", "2900"), ("0100", "1500")] {
        let error = db.remove_range(from..=to).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted);
        assert!(
            error.to_string().contains("it costs the records"),
            "{error}"
        );
        assert_eq!(db.count(), 3000);
        // Counting reads the leaves at the ends.
        let counted = db.count_range(from..=to);
        match (from, to) {
            ("0100", "2900") => assert_eq!(counted.unwrap(), 2801),
            _ => assert_eq!(counted.unwrap_err().kind(), Kind::Corrupted),
        }
    }
    assert!(db.get(b"0100").unwrap().is_some() && db.get(b"2900").unwrap().is_some());
    assert_eq!(db.remove_range("0100".."1000").unwrap(), 900);
    assert_eq!(db.remove_range("2000"..).unwrap(), 1000);
    assert_eq!(db.count_range("1900"..).unwrap(), 100);
    // Without ends, nothing has to be read.
    assert_eq!(db.remove_range::<&str>(..).unwrap(), 1100);
    assert_eq!(db.count(), 0);
    assert!(db.check(&mut |_, _| {}).unwrap().is_sound());
}

#[test]
fn a_removal_is_replayed_though_a_page_of_it_is_damaged_since() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in [("0100", "2900"), ("1500", "2900"), ("0100", "1500")] {
        let path = left(folder.path(), Some((from, to)));
        damage(&path, b"value 1499");
        let db = TreeDb::open(&path, &OpenOptions::new().background(false)).unwrap();
        assert!(!db.damage().is_empty());
        let (mut absent, mut errors) = (0, 0);
        for number in 0..3000 {
            let name = format!("{number:04}");
            let is_in = (from..to).contains(&&name[..]);
            match db.get(name.as_bytes()) {
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Corrupted);
                    assert!((1200..1800).contains(&number), "{number}");
                    errors += 1;
                }
                Ok(None) => {
                    assert!(is_in, "{number}");
                    absent += 1;
                }
                Ok(Some(value)) if number == 1501 => assert_eq!(value, b"again"),
                Ok(Some(_)) => assert!(!is_in, "{number}"),
            }
        }
        assert!(absent > 1000 && (errors > 0) == (from == "1500" || to == "1500"));
        assert_eq!(db.put(b"new", b"").unwrap_err().kind(), Kind::Corrupted);
        drop(db);
        // What is repaired has no record back that was removed.
        let target = folder.path().join(format!("{from}-{to}.azt"));
        let report = repair(&path, &target, &mut |_, _| {}).unwrap();
        assert!(report.losses > 0);
        let db = TreeDb::open(&target, &OpenOptions::new()).unwrap();
        // Nor loses it what the journal has of a page that cannot be read.
        assert_eq!(db.get(b"1501").unwrap().as_deref(), Some(&b"again"[..]));
        let there = db.count_range(from..to).unwrap();
        assert_eq!(there, u64::from((from..to).contains(&"1501")));
        assert!(db.get(b"0050").unwrap().is_some() && db.get(b"2950").unwrap().is_some());
    }
}

/// A list that the journal could not change again goes with a range that is removed after that: it takes no room that there is not.
#[test]
fn an_unreadable_list_goes_with_a_range_that_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("a.azt"), folder.path().join("left.azt"));
    let opening = OpenOptions::new().background(false);
    let options = CreateOptions::new()
        .segment_size(64u64 << 10)
        .opening(opening.clone());
    let db = TreeDb::create(&path, &options).unwrap();
    let key = |number: u64| {
        let mut key = vec![b'k'; 600];
        key.extend(format!("{number:04}").into_bytes());
        key
    };
    db.put(b"first", b"stays").unwrap();
    for number in 0..40 {
        let value = format!("value {number:070}");
        db.put(&key(number), value.as_bytes()).unwrap();
    }
    db.close().unwrap();
    // Nothing of it stands in the journal that is replayed.
    let db = TreeDb::open(&path, &opening).unwrap();
    db.put(&key(50), b"another").unwrap();
    assert_eq!(db.remove_range(&key(10)[..]..).unwrap(), 31);
    assert_eq!(db.remove_range(&b"k"[..]..).unwrap(), 10);
    std::fs::copy(&path, &copy).unwrap();
    damage(&copy, b"value 000");
    let db = TreeDb::open(&copy, &opening).unwrap();
    assert!(!db.damage().is_empty());
    let stats = db.stats();
    assert!(stats.live_bytes <= stats.file_bytes, "{stats:?}");
    assert_eq!(db.get(b"first").unwrap().as_deref(), Some(&b"stays"[..]));
    for number in [3, 12, 50] {
        assert_eq!(db.get(&key(number)).unwrap(), None);
    }
}
