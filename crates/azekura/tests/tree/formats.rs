//! Tree files that format version 1 wrote are opened, and hold what they held.
//!
//! The fixtures lie in `fixtures/tree/`, each with a listing of its records (key and value in hexadecimal, a line each, in order).
//! Copies are opened: a fixture is never written again. They are made by `AZEKURA_WRITE_FIXTURES=1 cargo test --test tree formats`, which
//! refuses to replace one. Formats that differ, one way each, prove that it is seen.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use azekura::engine::{Engine, Persistent, Reader};
use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::order::Order;
use azekura::record::tree::{CACHE_MIN, Compression, CreateOptions, TreeDb};
use azekura::testkit::fixture::{Difference, Fixtures, NEWER, REORDERED, demand_seen, hex};
use azekura::testkit::suite::tried_at_least;
use azekura::{Edit, Result};

const ROOM: u64 = 4 << 20;
const SEGMENT: usize = 64 << 10;
/// Where the first segment begins.
const SEGMENTS: usize = 16 << 10;

/// Empty; closed; killed with a journal after a checkpoint, and with one that begins with a clear, or with removals of ranges; closed with
/// larger pages, and with compressed ones.
const NAMES: [&str; 8] = [
    "empty", "closed", "killed", "cleared", "ranged", "large", "lz4", "zstd",
];

const FIXTURES: Fixtures = Fixtures {
    engine: "tree",
    extension: "azt",
};

fn options() -> CreateOptions {
    CreateOptions::new()
        .order(Order::Decimal)
        .segment_size(SEGMENT as u64)
        .background(false)
        .cache(CACHE_MIN)
        .capacity(ROOM)
}

/// The pages of a fixture.
fn shape(name: &str) -> (u64, Compression) {
    match name {
        "large" => (8 << 10, Compression::None),
        "lz4" => (16 << 10, Compression::Lz4),
        "zstd" => (16 << 10, Compression::Zstd),
        _ => (4 << 10, Compression::None),
    }
}

fn listing(db: &TreeDb) -> Result<String> {
    let mut lines = String::new();
    db.scan(None, &mut |key, value| {
        lines.extend([hex(key), " ".into(), hex(value), "\n".into()]);
        ControlFlow::Continue(())
    })?;
    Ok(lines)
}

fn put(db: &TreeDb, numbers: std::ops::Range<u64>, len: usize) {
    for number in numbers {
        let value = format!("{number:>len$}");
        db.put(number.to_string().as_bytes(), value.as_bytes())
            .unwrap();
    }
}

/// A store of this name, and its records: leaves and inner pages, short and empty values, one outside of its leaf, removals, a batch.
fn make(name: &str) -> (Vec<u8>, String) {
    let memory = Memory::new(ROOM).unwrap();
    let (page_size, compression) = shape(name);
    let options = options().page_size(page_size).compression(compression);
    let db = TreeDb::create_on(Arc::clone(&memory) as Arc<dyn Storage>, &options).unwrap();
    if name != "empty" {
        put(&db, 0..300, 20);
        db.put(b"", b"of the empty key").unwrap();
        db.put(b"-7", b"").unwrap();
        db.put(b"no number", &[b'v'; 5000]).unwrap();
        for number in (0..300_u64).step_by(3) {
            db.remove(number.to_string().as_bytes()).unwrap();
        }
        db.checkpoint().unwrap();
        if name == "cleared" {
            db.clear().unwrap();
        }
        if name == "ranged" {
            db.remove_range("20".."250").unwrap();
            let ends = (Bound::Excluded("250"), Bound::Included("260"));
            db.remove_range::<&str>(ends).unwrap();
            db.remove_range(..="-7").unwrap();
            put(&db, 100..120, 20);
        }
        put(&db, 290..330, 40);
        let mut edits = |_: &[Option<&[u8]>]| {
            let long = vec![b'w'; 600];
            vec![Edit::Remove, Edit::Put(long.into()), Edit::put(b"1")]
        };
        db.update_many(&[b"-7", b"5", b"6"], &mut edits).unwrap();
    }
    let list = listing(&db).unwrap();
    let killed = memory.to_vec();
    db.close().unwrap();
    let bytes = if matches!(name, "killed" | "cleared" | "ranged") {
        killed
    } else {
        memory.to_vec()
    };
    (bytes, list)
}

/// What is wrong with a file of these bytes, if it should hold these records, in this order, and take more.
fn holds(bytes: &[u8], list: &str) -> std::result::Result<(), String> {
    let text = |error: azekura::Error| error.to_string();
    let storage: Arc<dyn Storage> = Memory::from_bytes(bytes, ROOM).map_err(text)?;
    let open = || TreeDb::open_on(Arc::clone(&storage), &options().opening);
    let db = open().map_err(text)?;
    if listing(&db).map_err(text)? != list {
        return Err("it holds other records".into());
    }
    if (db.order(), db.count()) != (Order::Decimal, list.lines().count() as u64) {
        return Err(format!(
            "it states {} records, {:?}",
            db.count(),
            db.order()
        ));
    }
    let report = db.check(&mut |_, _| {}).map_err(text)?;
    if !report.is_sound() {
        return Err(format!("it is damaged: {:?}", report.damage));
    }
    put(&db, 1000..2000, 30);
    db.close().map_err(text)?;
    let db = open().map_err(text)?;
    let found = db.get(b"1999").map_err(text)?;
    let expected = format!("{:>30}", 1999).into_bytes();
    (found == Some(expected))
        .then_some(())
        .ok_or("a new record is gone".into())
}

/// The pages of a file of these bytes, as it states them.
fn shape_of(bytes: &[u8]) -> (u64, Compression) {
    let storage: Arc<dyn Storage> = Memory::from_bytes(bytes, ROOM).unwrap();
    let db = TreeDb::open_on(storage, &options().opening).unwrap();
    let properties = db.inspect();
    let of = |name| {
        let found = properties.iter().find(|(of, _)| *of == name);
        &found.unwrap().1[..]
    };
    let compression = Compression::from_word(of("compression")).unwrap();
    (of("page_bytes").parse().unwrap(), compression)
}

#[test]
fn trees_of_version_1_hold_what_was_put_there() {
    FIXTURES.write(&NAMES, |name, file| {
        let (bytes, list) = make(name);
        std::fs::write(file, bytes).unwrap();
        list
    });
    let mut records = 0;
    for name in NAMES {
        let (bytes, list) = FIXTURES.read(name);
        holds(&bytes, &list).unwrap_or_else(|what| panic!("{name}: {what}"));
        assert_eq!(shape_of(&bytes), shape(name), "{name}");
        // What is written now holds the same.
        let (bytes, made) = make(name);
        assert!(made == list, "{name}");
        holds(&bytes, &list).unwrap_or_else(|what| panic!("{name}, made now: {what}"));
        records += list.lines().count() as u64;
    }
    assert!(records > 400, "{records}");
    tried_at_least(records, 400, "records of fixtures of trees");
}

#[test]
fn a_tree_of_a_format_that_differs_is_seen() {
    fn segments(bytes: &mut [u8], of_log: bool, change: impl Fn(&mut [u8])) {
        let segments = bytes[SEGMENTS..].chunks_mut(SEGMENT);
        segments
            .filter(|segment| segment.starts_with(b"azsg") == of_log)
            .for_each(change);
    }
    let differences: [Difference; 4] = [
        NEWER,
        REORDERED,
        ("frames from another offset on", |bytes| {
            segments(bytes, true, |segment| segment[64..].rotate_right(8));
        }),
        ("pages with a longer head", |bytes| {
            segments(bytes, false, |segment| {
                let pages = segment.chunks_mut(4096);
                pages.for_each(|page| page.rotate_right(8));
            });
        }),
    ];
    demand_seen(&differences, &FIXTURES.read("killed"), holds);
    let (bytes, _) = FIXTURES.read("closed");
    let (_, list) = FIXTURES.read("cleared");
    let seen = holds(&bytes, &list).expect_err("records are compared");
    assert!(seen.contains("other records"), "{seen}");
}
