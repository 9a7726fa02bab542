//! Stores that format version 1 wrote are opened, and hold what they held; and its bytes are as they were.
//!
//! The fixtures lie in `fixtures/object/`, each with a listing of its objects (id and value in hexadecimal, a line each). Copies
//! are opened: a fixture is never written again. They are made by `AZEKURA_WRITE_FIXTURES=1 cargo test --test care formats`,
//! which refuses to replace one. Formats that differ, one way each, prove that it is seen.

use std::collections::BTreeMap;

use azekura::kernel::Payload;
use azekura::log::manifest::{Extent, Manifest, Needed};
use azekura::log::{End, Geometry, LogPosition, Segment};
use azekura::object::extent::{self, PACKED, Seal};
use azekura::object::index::{EXTENT, Entry, Image};
use azekura::object::layout::{AllocationExtent, GroupState, Span};
use azekura::object::layout::{PackedExtent, PutInProgress, Record, Root, Super};
use azekura::object::{Change, CreateOptions, ObjectId, Store};
use azekura::testkit::fixture::{Difference, Fixtures, NEWER, REORDERED, demand_seen, hex};

use super::{contents, storage_of, store_with};

const FIXTURES: Fixtures = Fixtures {
    engine: "object",
    extension: "azo",
};

/// Of a store that is made now. Those there are have 80 and 160 KiB.
const CAPACITY: usize = 224 << 10;

fn small_store() -> CreateOptions {
    CreateOptions::new()
        .capacity(CAPACITY as u64)
        .journal_size(144 << 10)
        .group_size(32 << 10)
        .small_max(500)
        .background(false)
}

fn listing(all: &BTreeMap<ObjectId, Vec<u8>>) -> String {
    let lines = all
        .iter()
        .map(|(id, value)| format!("{id} {}\n", hex(value)));
    lines.collect()
}

fn text(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = format!("object {n} ").into_bytes().repeat(len / 8);
    bytes.truncate(len);
    bytes
}

const NAMES: [&str; 3] = ["empty", "closed", "killed"];

/// The store of this name, and its objects: each form the format has.
fn make(name: &str) -> (Vec<u8>, BTreeMap<ObjectId, Vec<u8>>) {
    let (memory, store) = store_with(&small_store());
    if name != "empty" {
        for (n, len) in [(1, 0), (2, 100), (3, 501), (4, 4100), (5, 400), (6, 9000)] {
            store.put(ObjectId(n), &text(n as u64, len)).unwrap();
        }
        store.remove(ObjectId(2)).unwrap();
        store.checkpoint().unwrap();
        let large = text(7, 6000);
        let batch = [
            Change::Put(ObjectId(7), &large),
            Change::Remove(ObjectId(3)),
            Change::Put(ObjectId(u128::MAX), b"last"),
        ];
        store.apply(&batch).unwrap();
        store.put(ObjectId(8), b"small, in the journal").unwrap();
        store.put(ObjectId(9), &text(9, 700)).unwrap();
        store.put(ObjectId(10), &text(10, 700)).unwrap();
        store.remove_range(ObjectId(10)..ObjectId(12)).unwrap();
    }
    let all = contents(&store);
    let killed = memory.to_vec();
    store.close().unwrap();
    let bytes = if name == "killed" {
        killed
    } else {
        memory.to_vec()
    };
    (bytes[..CAPACITY].to_vec(), all)
}

/// Whether these bytes are a store that holds what is listed, and takes more.
fn holds(bytes: &[u8], list: &str) -> Result<(), String> {
    let text = |error: azekura::Error| error.to_string();
    let storage = storage_of(bytes);
    let open = || {
        Store::open_on(
            std::sync::Arc::clone(&storage),
            None,
            &small_store().opening,
        )
    };
    let store = open().map_err(text)?;
    let report = store.check(true, &mut |_, _| {}).map_err(text)?;
    if !report.is_sound() {
        return Err(format!("{:?}", report.findings));
    }
    if listing(&contents(&store)) != list {
        return Err("it holds other objects".into());
    }
    store.put(ObjectId(77), b"new").map_err(text)?;
    store.close().map_err(text)?;
    let store = open().map_err(text)?;
    let found = store.get(ObjectId(77)).map_err(text)?;
    (found.as_deref() == Some(b"new"))
        .then_some(())
        .ok_or("a new object is gone".into())
}

#[test]
fn stores_of_version_1_hold_what_was_put_there() {
    FIXTURES.write(&NAMES, |name, file| {
        let (bytes, all) = make(name);
        std::fs::write(file, bytes).unwrap();
        listing(&all)
    });
    for name in NAMES {
        let (bytes, list) = FIXTURES.read(name);
        holds(&bytes, &list).unwrap_or_else(|what| panic!("{name}: {what}"));
    }
}

#[test]
fn a_format_that_differs_is_seen() {
    let differences: [Difference; 4] = [
        NEWER,
        REORDERED,
        ("extents with the length elsewhere", |bytes| {
            for unit in bytes[80 << 10..].chunks_mut(4096) {
                unit[32..40].rotate_left(4);
            }
        }),
        ("segments from another offset on", |bytes| {
            bytes[16_384..80 << 10].rotate_right(8);
        }),
    ];
    demand_seen(&differences, &FIXTURES.read("killed"), holds);
    let (bytes, _) = FIXTURES.read("closed");
    let (_, list) = FIXTURES.read("empty");
    let seen = holds(&bytes, &list).unwrap_err();
    assert!(seen.contains("other objects"), "{seen}");
}

fn spans() -> Vec<Span> {
    vec![Span {
        unit: 0x0102_0304,
        units: 5,
    }]
}

#[test]
fn the_bytes_of_superblock_and_root_are_as_they_were() {
    let extent = Extent {
        offset: 0x4000,
        len: 77,
        crc: 0x0a0b_0c0d,
    };
    let payload = Super {
        manifest: Manifest {
            geometry: Geometry {
                shift: 12,
                salt: 0x1122_3344,
            },
            open: true,
            epoch: 2,
            boot_id: [6; 16],
            start: End::of(3, 1 << 32, Some(64)),
            durable: LogPosition {
                sequence: 1 << 32,
                offset: 128,
            },
            root: Some(extent),
            next_sequence: (1 << 32) + 4,
        },
        identity: [9; 16],
        journal_size: 0x14000,
        data_offset: 0x14000,
        units: 20,
        group_units: 8,
        alignment: 4096,
        devices: 1,
        sequence: 0x0506,
        doubt: None,
        lost: Vec::new(),
    };
    let super_bytes = hex(&payload.encode());
    assert_eq!(Super::decode(&payload.encode()), Some(payload.clone()));
    let doubted = Super {
        doubt: Some((payload.start.position(), payload.durable)),
        ..payload
    };
    let bytes = doubted.encode();
    assert_eq!(bytes.len(), super_bytes.len() / 2 + 24);
    for len in super_bytes.len() / 2 + 1..bytes.len() {
        assert_eq!(Super::decode(&bytes[..len]), None);
    }
    assert_eq!(Super::decode(&bytes), Some(doubted.clone()));
    // Of a repair that did not end: two places that are lost.
    for doubt in [None, doubted.doubt] {
        let lost = Super {
            doubt,
            lost: vec![0x4200..0x4400, 0x5000..0x6000],
            ..doubted.clone()
        };
        let bytes = lost.encode();
        assert_eq!(
            hex(&bytes[super_bytes.len() / 2 + 24..]),
            "0042000000000000000200000000000000500000000000000010000000000000"
        );
        for len in (1..32).filter(|len| len % 16 != 0) {
            assert_eq!(Super::decode(&bytes[..bytes.len() - len]), None);
        }
        assert_eq!(Super::decode(&bytes), Some(lost));
    }
    // Out of order, empty, or after the journal's end.
    for (start, end) in [(0x4200, 0x4400), (0x6000, 0x6000), (0x13e00, 0x14001)] {
        let lost = Super {
            lost: vec![0x5000..0x6000, start..end],
            ..doubted.clone()
        };
        assert_eq!(Super::decode(&lost.encode()), None);
    }
    let image = Image {
        count: 3,
        usage: 12_288,
        extent,
        in_journal: true,
    };
    let root = Root {
        sequence: 0x0506,
        leaves: vec![(ObjectId(0), Some(image)), (ObjectId(9), None)],
        groups: vec![
            GroupState {
                free: 4,
                image: Some(extent),
            },
            GroupState {
                free: 8,
                image: None,
            },
        ],
        allocation_extents: vec![AllocationExtent {
            sequence: 7,
            spans: spans(),
        }],
        unlisted: spans(),
        in_progress: vec![PutInProgress {
            sequence: 8,
            span: spans()[0],
        }],
        packed_extents: vec![PackedExtent {
            span: spans()[0],
            count: 6,
            live: 4,
        }],
        needed: Needed {
            log: vec![Segment {
                index: 1,
                units: 2,
                sequence: 3,
                dead: 4,
                waste: 0,
            }],
            other: vec![(5, 6)],
        },
        pieces: Vec::new(),
    };
    assert_eq!([super_bytes, hex(&root.encode())], GOLDEN_CHECKPOINT);
    assert_eq!(Root::decode(&root.encode()), Some(root));
}

#[test]
fn the_bytes_of_records_and_extents_are_as_they_were() {
    let entry = Entry {
        place: 0x01_0203_0405,
        len: 0x0607,
        kind: EXTENT,
    };
    let put = Record::Put(ObjectId(1), 2, entry);
    let records = [
        put.clone(),
        Record::Small(ObjectId(1), 2, entry),
        Record::Removed(ObjectId(1), 2),
        Record::RangeRemoved(3, ObjectId(1), ObjectId(4)),
        Record::Batch(vec![put, Record::Removed(ObjectId(5), 6)]),
        Record::Opened(AllocationExtent {
            sequence: 7,
            spans: spans(),
        }),
        Record::LowWater(8),
        Record::Aborted(9),
    ];
    let told = records.iter().map(|record| {
        let (kind, key, value) = record.encode();
        format!("{} {} {}", kind.bits(), hex(&key), hex(&value))
    });
    assert_eq!(told.collect::<Vec<_>>(), GOLDEN_RECORDS);
    let mut own = vec![0; 4096];
    Seal::new(7, 64, ObjectId(1)).encode(&mut own, 2, 0, b"value");
    let mut packed = vec![0; extent::packed_size(5) as usize];
    Seal::packed(7, 65, ObjectId(1)).encode(&mut packed, 2, PACKED, b"value");
    let parts = [&own[..70], &own[4088..], &packed[..]].map(hex);
    assert_eq!(parts, GOLDEN_EXTENTS);
}

const GOLDEN_CHECKPOINT: [&str; 2] = [
    "0c00000044332211090909090909090909090909090909090040010000000000004001000000000014000000000000000800000000100000010100000200000006060606060606060606060606060606030000004000000000000000010000000000000001000000800000000d0c0b0a00400000000000004d0000000000000004000000010000000605000000000000",
    "0605000000000000020000000000000000000000000000000000000003000080003000000000000000400000000000004d0000000d0c0b0a0000000000000000000000000000000900000000000000000000000000000000000000000000000000000000020000000400000000400000000000004d0000000d0c0b0a0800000000000000000000000000000000000000010000000700000000000000010000000403020100000000050000000100000004030201000000000500000001000000080000000000000004030201000000000500000001000000040302010000000005000000060000000400000001000000010000000200000003000000000000000400000000000000010000000500000006000000",
];
const GOLDEN_RECORDS: [&str; 8] = [
    "1 00000000000000000000000000000001 0200000000000000050403020107060000",
    "3 00000000000000000000000000000001 0200000000000000",
    "2 00000000000000000000000000000001 0200000000000000",
    "7  03000000000000000000000000000000000000000000000100000000000000000000000000000004",
    "8  0100000000000000000000000000000001020000000000000005040302010706000000000000000000000000000000000000050600000000000000",
    "9  070000000000000001000000040302010000000005000000",
    "10  0800000000000000",
    "11  0900000000000000",
];
const GOLDEN_EXTENTS: [&str; 3] = [
    "617a6f6262643ee5000000000000000000000000000000010200000000000000050000000000000000000000000000000000000000000000000000000000000076616c756500",
    "5d8373b602000000",
    "617a6f62f9ebf7d0000000000000000000000000000000010200000000000000050000000200000000000000000000000000000000000000000000000000000076616c7565000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000d288305a02000000",
];
