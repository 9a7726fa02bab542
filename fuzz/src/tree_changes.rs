//! Fuzzes what changed since a copy of a tree file: bytes of changes, applied to a copy of any state of the same history.
//!
//! Sound changes of several links are damaged as the input states; of every second one, numbers are forged under true checksums: of
//! the head, of the copy's superblock in it, of the list of pieces, and bytes of pieces. The copy is at any link, or one that an
//! application that was cut short has left, and now and then damaged, too. Where no checksum is forged an application is an error, after
//! which every byte of the copy is as it was, or it brings the copy to exactly the state of its link. Where one is, no bytes may lead to a
//! panic or a hang, and nothing but a copy without room is left half way. It does not know which errors are the right ones.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use azekura::Kind;
use azekura::engine::{Persistent, Reader};
use azekura::format::superblock::{SIZE, Superblock};
use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::io::sim::SimDisk;
use azekura::kernel::Payload;
use azekura::kernel::changes::{APPLYING, ApplyMark, ChangedPiece, CheckpointId, Head, List};
use azekura::log::End;
use azekura::record::tree::layout::{ENGINE, Super};
use azekura::record::tree::{CACHE_MIN, Compression, CreateOptions, TreeDb};
use azekura::testkit::Random;
use azekura::testkit::damage::{Image, read_all};

use super::tree_open::{key, value};
use super::{bytes_of, damaged, judge, number};

const LIMIT: u64 = 8 << 20;
const KEYS: u32 = 300;
const LINKS: usize = 4;
/// What is shown of a forged copy.
const SHOWN_MAX: u32 = 10_000;

/// The copy at each moment of a history, what changed from each to the next, and the records.
struct Chain {
    copies: Vec<Image>,
    ids: Vec<CheckpointId>,
    records: Vec<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Number n leads from copy n to the one after.
    changes: Vec<Image>,
}

fn options(compression: Compression) -> CreateOptions {
    CreateOptions::new()
        .segment_size(64 << 10)
        .background(false)
        .cache(CACHE_MIN)
        .capacity(LIMIT)
        .compression(compression)
}

fn records_of(db: &TreeDb) -> azekura::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut records = BTreeMap::new();
    db.scan(None, &mut |key, value| {
        records.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(records)
}

fn chain(compression: Compression) -> Chain {
    let disk = SimDisk::new(compression as u64);
    let directory = disk.directory();
    let db = TreeDb::create_in(&directory, Path::new("t"), &options(compression));
    let db = db.expect("a new store");
    let mut chain = Chain {
        copies: Vec::new(),
        ids: Vec::new(),
        records: Vec::new(),
        changes: Vec::new(),
    };
    let mut older = (Vec::new(), Vec::new());
    for turn in 0..=LINKS as u32 {
        // All of it, then some, then one record, then none but those that are removed.
        let step = [1, 3, 17, 300, 300][turn as usize];
        for number in (0..KEYS).step_by(step) {
            db.put(&key(number), &value(number, turn)).expect("a put");
        }
        for number in (turn..KEYS).step_by(40) {
            db.remove(&key(number)).expect("a removal");
        }
        if let Some(since) = chain.ids.last() {
            let name = format!("changes{turn}");
            db.copy_changes_in(*since, &directory, Path::new(&name), &mut |_, _| ())
                .expect("changes");
            let bytes = bytes_of(&directory, &name);
            chain.changes.push(Image {
                older: std::mem::replace(&mut older.0, bytes.clone()),
                bytes,
                ..Image::default()
            });
        }
        let name = format!("copy{turn}");
        let id = db.copy_in(&directory, Path::new(&name), &mut |_, _| ());
        chain.ids.push(id.expect("a copy"));
        let bytes = bytes_of(&directory, &name);
        chain.copies.push(Image {
            older: std::mem::replace(&mut older.1, bytes.clone()),
            bytes,
            ..Image::default()
        });
        chain.records.push(records_of(&db).expect("its records"));
    }
    chain
}

fn sound() -> &'static [Chain] {
    static SOUND: OnceLock<Vec<Chain>> = OnceLock::new();
    SOUND.get_or_init(|| [Compression::None, Compression::Zstd].map(chain).into())
}

/// What a file of changes states: its head, its list, and the bytes of each piece.
fn parts(bytes: &[u8]) -> Option<(Head, List, Vec<Vec<u8>>)> {
    let head = Head::decode(bytes.get(..SIZE as usize)?).ok()?;
    let (offset, len, _) = head.list;
    let list = bytes.get(offset as usize..)?.get(..len as usize)?;
    let list = List::decode(list, &head)?;
    let mut at = SIZE as usize;
    let pieces = list.pieces.iter().map(|piece| {
        let from = at;
        at += piece.len as usize;
        bytes.get(from..at).map(<[u8]>::to_vec)
    });
    let pieces: Option<Vec<_>> = pieces.collect();
    Some((head, list, pieces?))
}

/// Replaces a number of the superblock that the copy is to have.
fn forge_payload(payload: &mut Vec<u8>, random: &mut Random) -> Option<()> {
    let mut own = Super::decode(payload)?;
    let number = number(random);
    let at = own.start;
    match random.below(11) {
        0 => own.manifest.geometry.shift = number as u32,
        1 => own.manifest.open = !own.open,
        2 => own.manifest.epoch = number as u32,
        3 => own.manifest.start = End::of(number as u32, at.sequence(), at.offset()),
        4 => own.manifest.start = End::of(at.segment(), number, at.offset()),
        5 => own.manifest.start = End::of(at.segment(), at.sequence(), Some(number as u32)),
        6 => own.manifest.durable.sequence = number,
        7 => own.count = number,
        8 => own.manifest.next_sequence = number,
        9 => own.manifest.root.as_mut()?.len = number,
        _ => own.manifest.root.as_mut()?.offset = number,
    }
    *payload = own.encode();
    Some(())
}

/// Changes with other numbers, and true checksums. `None`: they are damaged before that.
fn forged(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let (mut head, mut list, mut pieces) = parts(bytes)?;
    for _ in 0..=random.below(2) {
        let forged = number(random);
        match random.below(14) {
            0 => head.step.salt = forged as u32,
            1 => head.step.since.number = forged,
            2 => head.step.to.number = forged,
            3 => head.shift = forged as u32,
            4 => head.segments = forged as u32,
            5 => {
                let end = head.end;
                head.end = End::of(end.segment(), forged, end.offset());
            }
            6 => forge_payload(&mut head.payload, random)?,
            7 | 8 if !list.pieces.is_empty() => {
                let at = random.index(list.pieces.len());
                list.pieces[at].offset = match random.below(3) {
                    0 => forged,
                    1 => list.pieces[at].offset ^ (1 << random.below(24)),
                    _ => random.choose(&list.pieces).offset,
                };
            }
            9 if pieces.len() > 1 => {
                let at = random.index(pieces.len());
                pieces.remove(at);
                list.pieces.remove(at);
            }
            10 if !list.blank.is_empty() => {
                let at = random.index(list.blank.len());
                let (offset, len) = &mut list.blank[at];
                if random.one_in(2) {
                    *offset = forged;
                } else {
                    *len = forged;
                }
            }
            11 => list.blank.push((forged, number(random))),
            _ if !pieces.is_empty() => {
                let piece = random.index(pieces.len());
                let piece = &mut pieces[piece];
                if !piece.is_empty() {
                    let at = random.index(piece.len());
                    piece[at] ^= random.below(256) as u8;
                }
            }
            _ => {}
        }
    }
    let salt = head.step.salt;
    for (piece, bytes) in list.pieces.iter_mut().zip(&pieces) {
        *piece = ChangedPiece::of(salt, piece.offset, bytes);
    }
    let (list, sum) = list.encode(salt);
    let content = pieces.concat();
    head.list = (SIZE + content.len() as u64, list.len() as u64, sum);
    Some([head.encode(), content, list].concat())
}

/// What an application of these changes leaves of a copy, where it is cut short.
fn interrupted(copy: &[u8], changes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let (head, list, pieces) = parts(changes)?;
    let mut bytes = copy.to_vec();
    let block = Superblock::current(&bytes, &ENGINE).ok()?;
    let own = Super::decode(&block.payload)?;
    let used = (own.epoch, own.next_sequence);
    let mark = ApplyMark::new(head.step, used, Path::new("changes"));
    // In one slot, or both.
    for more in 1..=1 + random.below(2) {
        let marked = Superblock {
            engine: APPLYING,
            sequence: block.sequence + more,
            payload: mark.encode(),
        };
        let at = marked.slot_offset() as usize;
        let slot = marked.encode();
        bytes.get_mut(at..at + slot.len())?.copy_from_slice(&slot);
    }
    let size = head.geometry().offset_of(head.segments) as usize;
    if random.one_in(2) {
        bytes.resize(size.max(bytes.len()), 0);
        for (piece, from) in list.pieces.iter().zip(&pieces) {
            if random.one_in(2) {
                let to = bytes.get_mut(piece.offset as usize..)?;
                to.get_mut(..from.len())?.copy_from_slice(from);
            }
        }
    }
    Some(bytes)
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    super::seeds_of_files(LINKS as u8)
}

fn open(bytes: &[u8]) -> azekura::Result<TreeDb> {
    let storage: Arc<dyn Storage> = Memory::from_bytes(bytes, LIMIT).expect("memory");
    TreeDb::open_on(storage, &options(Compression::None).opening)
}

/// Reads what forged changes have left: any records, or errors.
fn read_forged(bytes: &[u8], keys: &[Vec<u8>]) {
    let Ok(db) = open(bytes) else {
        return;
    };
    let _ = read_all(&db, keys);
    let mut passed = 0;
    let _ = db.scan_past(None, &mut |_, _| ControlFlow::Continue(()), &mut |_| {
        passed += 1;
        assert!(passed < SHOWN_MAX, "a scan that does not end");
        Ok(())
    });
    let _ = db.check(&mut |_, _| ());
    let _ = db.put(&keys[1], &value(1, 9));
    let _ = db.checkpoint();
    let _ = db.close();
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    let mut random = Random::from_bytes(bytes);
    let is_own = random.one_in(8);
    let link = random.index(LINKS);
    let chain = random.choose(sound());
    let before = &chain.copies[link].bytes;
    let sound = &chain.changes[link];
    let mut changes = if is_own {
        bytes.to_vec()
    } else {
        damaged(sound, &mut random)
    };
    let mut is_forged = is_own;
    if random.one_in(2)
        && let Some(forged) = forged(&changes, &mut random)
    {
        changes = forged;
        is_forged = true;
    }
    // The copy before, or after, or of any time; one that was cut short; a damaged one.
    let mut is_damaged = false;
    let copy = match random.below(8) {
        0 => chain.copies[link + 1].bytes.clone(),
        1 => random.choose(&chain.copies).bytes.clone(),
        2 | 3 => {
            let marked = interrupted(before, &sound.bytes, &mut random);
            marked.expect("a sound copy")
        }
        4 => {
            is_damaged = true;
            damaged(&chain.copies[link], &mut random)
        }
        _ => before.clone(),
    };
    if copy.len().max(changes.len()) as u64 > LIMIT {
        return;
    }
    let storage = Memory::from_bytes(&copy, LIMIT).expect("memory");
    let given = Memory::from_bytes(&changes, LIMIT).expect("memory");
    let keys: Vec<Vec<u8>> = (0..KEYS + 3).map(key).collect();
    let applied = TreeDb::apply_changes_on(&*storage, &*given, &mut |done, total| {
        assert!(done <= total, "more is done than there is");
    });
    let after = storage.to_vec();
    assert!(given.to_vec() == changes, "the changes are only read");
    let to = match applied {
        Err(error) => {
            // What is forged may want more room than there is: then another try continues.
            if !(is_forged && error.kind() == Kind::Full) {
                assert!(after == copy, "half of it is done: {error}");
            }
            return;
        }
        Ok(to) => to,
    };
    let again = TreeDb::apply_changes_on(&*storage, &*given, &mut |_, _| ());
    if is_forged {
        read_forged(&after, &keys);
        return;
    }
    assert!(
        chain.changes.iter().any(|of| of.bytes == changes),
        "changes that were damaged are applied"
    );
    if is_damaged {
        if let Ok(db) = open(&after) {
            judge(&db, &keys);
        }
        return;
    }
    let at = chain.ids.iter().position(|id| *id == to);
    let at = at.expect("a moment of this history");
    assert_eq!(again.ok(), Some(to), "applied once more");
    assert!(storage.to_vec() == after, "nothing is left to do");
    let db = open(&after).expect("a copy that opens");
    let records = records_of(&db).expect("its records");
    assert!(records == chain.records[at], "not the state of the link");
    let report = db.check(&mut |_, _| ()).expect("a check");
    assert!(report.is_sound(), "{:?}", report.damage);
}
