//! Fuzzes the whole way from the bytes of a sorted file, and of the edits that are pending of it, to its records: opening, reading,
//! checking, editing.
//!
//! Sound files are damaged as the input states; every second one is then given a superblock, blocks, long values or edits of impossible
//! numbers with true checksums, so that what is after the checksums is reached too. No bytes may lead to a panic, a hang, or a value
//! that was never put. Where no checksum is forged, each answer is an error or that of the sound file: the value of a key, the record
//! of a number, the number of a key, records both ways. It does not know which errors are the right ones.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::OnceLock;

use azekura::engine::{Bookmark, Cursor, Ordered, Persistent, Reader};
use azekura::format::checksum::crc;
use azekura::format::frame::{Frame, FrameKind, Header};
use azekura::format::superblock::{SLOT_SIZE, Superblock};
use azekura::io::Directory;
use azekura::io::memory::Memory;
use azekura::io::sim::SimDisk;
use azekura::log::Geometry;
use azekura::log::layout::{FIRST_FRAME, SegmentHeader, segment_seed};
use azekura::order::Order;
use azekura::record::skip::{
    BuildOptions, EditOptions, PendingEdits, Reducer, ReducingSkipDb, SkipBuilder, SkipDb,
    SkipReader,
};
use azekura::testkit::Random;
use azekura::testkit::damage::Image;
use azekura::{Edit, Engine, Kind, Verbs};

use super::{bytes_of, damaged, judge, number, put_file};

const NAME: &str = "a.azs";
const PENDING: &str = "a.azs.pending";
const SKIP: [u8; 8] = *b"skip\0\0\0\0";
const SKIP_PENDING: [u8; 8] = *b"skippend";
const BLOCK: usize = 4096;
const LIMIT: u64 = 4 << 20;
const KEYS: u32 = 300;
/// Damaged places that a scan may pass, and records.
const SHOWN_MAX: u32 = 20_000;

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// A sorted file, and what is pending of it.
#[derive(Clone, Debug, Default)]
struct Pair {
    file: Image,
    pending: Option<Image>,
    /// Of the sorted file, and of the one before it.
    records: [Records; 2],
    /// Where long records stand in it.
    overflows: Vec<usize>,
}

fn options() -> EditOptions {
    EditOptions::new().memory(64 << 10)
}

fn key(number: u32, order: Order) -> Vec<u8> {
    let mut key = format!("{:05}", number * 7 % 1000).into_bytes();
    if number.is_multiple_of(40) && order == Order::Lexical {
        key.resize(600 + number as usize, b'k');
    }
    key
}

fn keys(order: Order) -> Vec<Vec<u8>> {
    (0..KEYS + 3).map(|number| key(number, order)).collect()
}

fn value(number: u32, turn: u32, order: Order) -> Vec<u8> {
    let mut value = key(number, order);
    let more = if number.is_multiple_of(50) {
        3000
    } else {
        number * 37 % 300
    };
    value.resize(value.len() + more as usize, turn as u8);
    value
}

fn name() -> &'static Path {
    Path::new(NAME)
}

/// A sorted file on a disk.
fn build(disk: &SimDisk, options: &BuildOptions, turns: std::ops::Range<u32>) {
    let directory = Box::new(disk.directory());
    let mut builder = SkipBuilder::create_in(directory, name(), options).expect("a builder");
    for turn in turns {
        for number in 0..KEYS {
            let (key, value) = (
                key(number, options.order),
                value(number, turn, options.order),
            );
            builder.put(&key, &value).expect("a record");
        }
    }
    builder.finish(&mut |_, _| ()).expect("a sorted file");
}

/// What stands on a disk.
fn pair_on(disk: &SimDisk, before: &Pair) -> Pair {
    let directory = disk.directory();
    let bytes = bytes_of(&directory, NAME);
    let file = directory.open(name(), azekura::io::Access::Read);
    let reader = SkipReader::open_on(file.expect("a file")).expect("a sorted file");
    let mut records = Vec::new();
    reader
        .scan(None, &mut |key, value| {
            records.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .expect("its records");
    let has_pending = directory.exists(Path::new(PENDING)).expect("an answer");
    let pending = has_pending.then(|| Image {
        bytes: bytes_of(&directory, PENDING),
        older: before
            .pending
            .as_ref()
            .map_or(Vec::new(), |of| of.bytes.clone()),
        ..Image::default()
    });
    Pair {
        overflows: overflows(&bytes),
        file: Image {
            bytes,
            older: before.file.bytes.clone(),
            ..Image::default()
        },
        pending,
        records: [records, before.records[0].clone()],
    }
}

/// Each: built; edited, and killed; merged; batches and a revert; closed; reduced.
fn sound() -> &'static [Pair] {
    static SOUND: OnceLock<Vec<Pair>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let mut pairs = Vec::new();
        let mut before = Pair::default();
        let mut keep = |disk: &SimDisk| {
            let pair = pair_on(disk, &before);
            before = pair.clone();
            pairs.push(pair);
        };
        // A seed for each: it decides the identities, by which blocks of another file do not verify.
        for (seed, order, reducer, turns) in [
            (4, Order::Decimal, Reducer::Last, 0..1),
            (5, Order::Lexical, Reducer::All, 0..3),
        ] {
            let disk = SimDisk::new(seed);
            let options = BuildOptions::new().order(order).reducer(reducer);
            build(&disk, &options, turns);
            keep(&disk);
        }
        let disk = SimDisk::new(2);
        build(&disk, &BuildOptions::new(), 0..1);
        keep(&disk);
        let directory = Box::new(disk.directory());
        let db = SkipDb::open_in(directory, name(), &options()).expect("a store");
        edit(&db, 1);
        keep(&disk);
        db.merge(&mut |_, _| ()).expect("a merge");
        edit(&db, 2);
        keep(&disk);
        db.revert().expect("a revert");
        edit(&db, 3);
        keep(&disk);
        db.close().expect("a close");
        keep(&disk);
        let disk = SimDisk::new(3);
        build(&disk, &BuildOptions::new(), 0..1);
        let directory = Box::new(disk.directory());
        let reducer = Reducer::Concat(b"+".to_vec());
        let db = ReducingSkipDb::open_reducing_in(directory, name(), reducer, &options());
        let db = db.expect("a store");
        for number in 0..KEYS / 2 {
            let (key, value) = (
                key(number, Order::Lexical),
                value(number, 1, Order::Lexical),
            );
            db.add(&key, &value).expect("an addition");
        }
        keep(&disk);
        pairs
    })
}

fn edit(db: &SkipDb, turn: u32) {
    let key = |number| key(number, Order::Lexical);
    for number in (turn..KEYS).step_by(3) {
        let value = value(number, turn, Order::Lexical);
        db.put(&key(number), &value).expect("a put");
    }
    for number in (turn..KEYS).step_by(7) {
        db.remove(&key(number)).expect("a removal");
    }
    let batch = [&key(turn)[..], &key(KEYS + turn)[..]];
    db.update_many(&batch, &mut |_| {
        vec![
            Edit::Remove,
            Edit::Put(value(KEYS + turn, turn, Order::Lexical).into()),
        ]
    })
    .expect("a batch");
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    word(bytes, at).map(u32::from_le_bytes)
}

/// The identity of a sorted file, which seeds its checksums.
fn identity(bytes: &[u8]) -> Option<u64> {
    let block = Superblock::current(bytes, &SKIP).ok()?;
    word(&block.payload, 0).map(u64::from_le_bytes)
}

/// A long record at an offset of a sorted file: what its checksum covers.
fn overflow(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let (value, key) = (u32_at(bytes, at + 4)?, u32_at(bytes, at + 8)?);
    let len = usize::try_from(u64::from(value) + u64::from(key)).ok()?;
    let covered = at + 4..(at + 16).checked_add(len)?;
    (len > 0 && covered.end <= bytes.len()).then_some(covered)
}

fn overflow_sum(bytes: &[u8], at: usize, covered: std::ops::Range<usize>) -> Option<u32> {
    let seed = (identity(bytes)? as u32).wrapping_add((at / 8) as u32);
    Some(crc(seed, bytes.get(covered)?))
}

/// Where long records stand.
fn overflows(bytes: &[u8]) -> Vec<usize> {
    let first = 2 * SLOT_SIZE as usize;
    let places = (first..bytes.len()).step_by(8);
    places
        .filter(|at| {
            let covered = overflow(bytes, *at);
            let sum = covered.and_then(|covered| overflow_sum(bytes, *at, covered));
            sum.is_some() && sum == u32_at(bytes, *at)
        })
        .collect()
}

/// Writes a number of up to eight bytes over others.
fn write(bytes: &mut [u8], at: usize, len: usize, number: u64) -> Option<()> {
    let place = bytes.get_mut(at..at.checked_add(len)?)?;
    place.copy_from_slice(number.to_le_bytes().get(..len)?);
    Some(())
}

/// Replaces one of these fields of a superblock's payload: offset, length.
fn forge_superblock(
    bytes: &mut [u8],
    engine: [u8; 8],
    fields: &[(usize, usize)],
    random: &mut Random,
) -> Option<()> {
    let mut block = Superblock::current(bytes, &engine).ok()?;
    for _ in 0..=random.below(2) {
        let (at, len) = *random.choose(fields);
        write(&mut block.payload, at, len, number(random));
    }
    let at = block.slot_offset() as usize;
    let slot = block.encode();
    bytes.get_mut(at..at + slot.len())?.copy_from_slice(&slot);
    Some(())
}

/// Alters the number before a block, its node's head, or any of its bytes.
fn forge_block(bytes: &mut [u8], random: &mut Random) -> Option<()> {
    let identity = identity(bytes)?;
    let blocks = (2..bytes.len() / BLOCK).filter(|number| {
        let block = &bytes[number * BLOCK..][..BLOCK];
        let sum = crc(identity as u32, &block[4..]);
        (u32_at(block, 0), u32_at(block, 4)) == (Some(sum), Some(*number as u32))
    });
    let blocks: Vec<usize> = blocks.collect();
    if blocks.is_empty() {
        return None;
    }
    // Those above the leaves are few, and the last.
    let at = if random.one_in(2) {
        *blocks.last()?
    } else {
        *random.choose(&blocks)
    };
    let block = &mut bytes[at * BLOCK..][..BLOCK];
    for _ in 0..=random.below(3) {
        match random.below(4) {
            0 => write(block, 8, 8, number(random))?,
            1 => block[32 + random.index(64)] = random.below(256) as u8,
            2 => block[32 + random.index(BLOCK - 32)] ^= random.below(256) as u8,
            // Past the middle are keys and values: children, and how many come before them.
            _ => write(
                block,
                BLOCK - 8 - random.index(BLOCK / 2),
                4,
                number(random),
            )?,
        }
    }
    let sum = crc(identity as u32, &block[4..]);
    block[..4].copy_from_slice(&sum.to_le_bytes());
    Some(())
}

fn forge_overflow(bytes: &mut [u8], overflows: &[usize], random: &mut Random) -> Option<()> {
    if overflows.is_empty() {
        return None;
    }
    let at = *random.choose(overflows);
    let field = *random.choose(&[4, 8, 12, 16]);
    write(bytes, at + field, 4, number(random))?;
    let sum = overflow_sum(bytes, at, overflow(bytes, at)?)?;
    write(bytes, at, 4, sum.into())
}

/// Replaces numbers of a sorted file; checksums are right.
fn forge_file(bytes: &mut [u8], overflows: &[usize], random: &mut Random) -> Option<()> {
    const FIELDS: [(usize, usize); 13] = [
        (0, 8),
        (8, 8),
        (16, 8),
        (16, 1),
        (24, 8),
        (32, 4),
        (32, 1),
        (36, 1),
        (37, 1),
        (38, 1),
        (40, 8),
        (47, 8),
        (55, 8),
    ];
    match random.below(4) {
        0 => forge_superblock(bytes, SKIP, &FIELDS, random),
        1 => forge_overflow(bytes, overflows, random),
        _ => forge_block(bytes, random),
    }
}

/// Makes another edit of one of the log: of another kind, or other lengths of key and value.
fn forge_edit(bytes: &mut [u8], random: &mut Random) -> Option<()> {
    let payload = Superblock::current(bytes, &SKIP_PENDING).ok()?.payload;
    let geometry = Geometry {
        shift: u32_at(&payload, 0).filter(|shift| *shift < 27)?,
        salt: u32_at(&payload, 4)?,
    };
    let mut frames = Vec::new();
    for index in 0.. {
        let from = geometry.offset_of(index) as usize;
        let Some(segment) = bytes.get(from..) else {
            break;
        };
        let Some(header) = SegmentHeader::decode(segment, geometry.salt) else {
            continue;
        };
        let seed = segment_seed(geometry.salt, header.sequence);
        let mut place = FIRST_FRAME / 8;
        while let Some(rest) = segment.get(place as usize * 8..)
            && let Ok(frame) = Frame::decode(rest, seed, place)
        {
            frames.push((from + place as usize * 8, seed, place, frame.header));
            place += frame.len() as u32 / 8;
        }
    }
    if frames.is_empty() {
        return None;
    }
    let (at, seed, place, old) = *random.choose(&frames);
    let len = (old.key_len + old.value_len) as usize;
    let kind = match random.below(8) {
        number @ 0..4 => FrameKind::keyed(number as u8),
        number @ 4..6 => FrameKind::wide(number as u8 - 4),
        6 => FrameKind::BATCH,
        _ => old.kind,
    };
    let any = random.below(256) as usize;
    let key_len = *random.choose(&[0, old.key_len as usize, len, any]);
    let header = Header::new(kind, 0, key_len, len.saturating_sub(key_len));
    if header.frame_len() != old.frame_len() {
        return None;
    }
    let rest = bytes.get_mut(at + 8..at + header.frame_len())?;
    let word = header.word(seed, place, rest);
    write(bytes, at, 8, word)
}

/// Replaces numbers of a pending file; checksums are right.
fn forge_pending(bytes: &mut [u8], random: &mut Random) -> Option<()> {
    let manifest = (24..95).map(|at| (at, 1));
    let fields = [
        (0, 4),
        (4, 4),
        (8, 8),
        (16, 8),
        (95, 8),
        (103, 1),
        (104, 1),
        (105, 1),
    ];
    let fields: Vec<_> = fields.into_iter().chain(manifest).collect();
    if random.one_in(3) {
        forge_superblock(bytes, SKIP_PENDING, &fields, random)
    } else {
        forge_edit(bytes, random)
    }
}

/// Reads a sorted file in every way. `records`: what it may hold; `None`: anything.
fn read(reader: &SkipReader, keys: &[Vec<u8>], records: Option<&[Records]>) {
    let count = reader.count();
    let by_index = |index: u64| reader.by_index(index);
    let indices = (0..count.min(u64::from(KEYS) * 4)).chain([count, u64::MAX]);
    let found: Vec<_> = indices.map(|index| (index, by_index(index))).collect();
    let fits = |all: &&Records| {
        all.len() as u64 == count
            && found.iter().all(|(index, answer)| match answer {
                Ok(answer) => answer.as_ref() == all.get(*index as usize),
                Err(_) => true,
            })
    };
    let right = records.map(|records| {
        let right = records.iter().find(fits);
        right.expect("records that the file never had by these numbers")
    });
    for key in keys {
        let first = right.map(|all| all.iter().position(|(of, _)| of == key));
        if let (Ok(value), Some(all), Some(first)) = (reader.get(key), right, first) {
            let expected = first.map(|first| &all[first].1);
            assert_eq!(value.as_ref(), expected, "of {}", key.escape_ascii());
        }
        if let (Ok(index), Some(Some(first))) = (reader.index_of(key), first) {
            assert_eq!(index, first as u64, "number of {}", key.escape_ascii());
        }
        let mut values = 0;
        let _ = reader.values(key, |value| {
            assert!(right.is_none() || value.starts_with(key));
            values += 1;
            values < SHOWN_MAX
        });
    }
    let lent: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let _ = reader.read_many(&lent, &mut |at, value| {
        if let (Some(all), Some(value)) = (right, value) {
            let is_right = |(key, of): &(Vec<u8>, Vec<u8>)| key == lent[at] && of == value;
            assert!(all.iter().any(is_right), "a value that was never put");
        }
    });
    let _ = reader.count_range(&keys[0], &keys[1]);
    both_ways(&mut *Ordered::cursor(reader), right);
    let (mut shown, mut from): (u32, Option<Bookmark>) = (0, None);
    let mut all_shown = Vec::new();
    let mut passed = 0_u32;
    loop {
        let mut part = 0;
        let next = reader.scan_past(
            from.as_ref(),
            &mut |key, value| {
                all_shown.push((key.to_vec(), value.to_vec()));
                part += 1;
                shown += 1;
                assert!(shown < SHOWN_MAX, "a scan that does not end");
                // A bookmark is a key: where those are forged, it may lead back.
                if part == 50 && right.is_some() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
            &mut |_| {
                passed += 1;
                assert!(passed < SHOWN_MAX, "a scan that does not end");
                Ok(())
            },
        );
        match next {
            Ok(Some(next)) => from = Some(next),
            Ok(None) => break,
            Err(_) => {
                passed += 1;
                break;
            }
        }
    }
    if let Some(all) = right {
        let mut rest = all.iter();
        let in_order = all_shown.iter().all(|one| rest.any(|of| of == one));
        assert!(in_order, "a record that was never put, or in another order");
        assert!(
            passed > 0 || all_shown.len() == all.len(),
            "a record left out"
        );
    }
    let _ = reader.check(&mut |_, _| ());
}

/// Steps forward from the first record and back from the last.
fn both_ways(cursor: &mut dyn Cursor, right: Option<&Records>) {
    type Step<'c> = fn(&mut (dyn Cursor + 'c)) -> azekura::Result<bool>;
    let ways: [(Step<'_>, Step<'_>); 2] = [
        (|cursor| cursor.first(), |cursor| cursor.next()),
        (|cursor| cursor.last(), |cursor| cursor.previous()),
    ];
    for (way, (place, step)) in ways.into_iter().enumerate() {
        let mut is_there = place(cursor).unwrap_or(false);
        let mut steps = 0;
        while is_there {
            if let (Some((key, value)), Some(all)) = (cursor.record(), right) {
                let at = if way == 0 {
                    Some(steps)
                } else {
                    all.len().checked_sub(steps + 1)
                };
                let expected = at.and_then(|at| all.get(at));
                let found = Some((key, value));
                let expected = expected.map(|(key, value)| (&key[..], &value[..]));
                assert!(found == expected, "another record at step {steps}");
            }
            steps += 1;
            if steps > SHOWN_MAX as usize {
                assert!(right.is_none(), "a cursor that does not end");
                break;
            }
            is_there = step(cursor).unwrap_or(false);
        }
    }
}

/// Reads, edits and closes what is open. `is_forged`: keys and values may be any.
fn live<K: 'static>(db: SkipDb<K>, keys: &[Vec<u8>], is_forged: bool)
where
    SkipDb<K>: Engine + Ordered + Persistent,
{
    if is_forged {
        let _ = azekura::testkit::damage::read_all(&db, keys);
    } else {
        judge(&db, keys);
    }
    both_ways(&mut *Ordered::cursor(&db), None);
    let _ = Persistent::check(&db, &mut |_, _| ());
    let order = db.order();
    for number in [1, 3, 40, 50] {
        let written = value(number, 7, order);
        match db.put(&keys[number as usize], &written) {
            Ok(()) => {
                let read = db.get(&keys[number as usize]).ok().flatten();
                assert_eq!(read.as_ref(), Some(&written));
            }
            Err(error) => assert_ne!(error.kind(), Kind::Invalid, "{error}"),
        }
        let _ = Engine::update(&db, &keys[number as usize + 1], &mut |_| Edit::Remove);
    }
    let merged = db.merge(&mut |_, _| ());
    if merged.is_ok() && !is_forged {
        judge(&db, keys);
    }
    let _ = db.revert();
    let _ = db.close();
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    super::seeds_of_files(sound().len() as u8)
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    let mut random = Random::from_bytes(bytes);
    let is_own = random.one_in(8);
    let pair = random.choose(sound());
    let mut file = if is_own {
        bytes.to_vec()
    } else {
        damaged(&pair.file, &mut random)
    };
    let mut pending = pair.pending.as_ref().map(|pending| match random.below(3) {
        0 => damaged(pending, &mut random),
        _ => pending.bytes.clone(),
    });
    // Where numbers with true checksums are forged, so may keys and values be.
    let is_forged = random.one_in(2);
    if is_forged {
        match &mut pending {
            Some(pending) if random.one_in(2) => drop(forge_pending(pending, &mut random)),
            _ => drop(forge_file(&mut file, &pair.overflows, &mut random)),
        }
    }
    if file.len() as u64 > LIMIT || pending.as_ref().is_some_and(|of| of.len() as u64 > LIMIT) {
        return;
    }
    let storage = Memory::from_bytes(&file, LIMIT).expect("memory");
    let mut order = Order::Lexical;
    if let Ok(reader) = SkipReader::open_on(storage) {
        order = reader.order();
        let records = (!is_forged && !is_own).then_some(&pair.records[..]);
        read(&reader, &keys(order), records);
    }
    let disk = SimDisk::new(7);
    let directory = disk.directory();
    put_file(&directory, NAME, &file);
    if let Some(pending) = &pending {
        put_file(&directory, PENDING, pending);
    }
    let found = PendingEdits::of_in(&directory, name());
    let reducer = found.ok().flatten().map(|found| found.reducer);
    let (directory, keys) = (Box::new(directory), keys(order));
    let is_forged = is_forged || is_own;
    match reducer {
        None | Some(Reducer::Last) => {
            if let Ok(db) = SkipDb::open_in(directory, name(), &options()) {
                live(db, &keys, is_forged);
            }
        }
        Some(reducer) => {
            let opened = ReducingSkipDb::open_reducing_in(directory, name(), reducer, &options());
            if let Ok(db) = opened {
                let _ = db.add(&keys[2], b"1");
                let _ = azekura::testkit::damage::read_all(&db, &keys);
                let _ = db.merge(&mut |_, _| ());
                let _ = Persistent::check(&db, &mut |_, _| ());
                let _ = db.close();
            }
        }
    }
}
