//! Fuzzes the whole way from a tree file's bytes to its records: opening, reading, checking, changing.
//!
//! Sound files are damaged as the input states; every second one is then given a superblock, a root, places of pages, bitmaps or pages
//! of impossible numbers with true checksums, so that what is after the checksums is reached too. No bytes may lead to a panic, a
//! hang, or a value that was never put: each value begins with its key. It does not know which errors are the right ones.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use azekura::engine::{Ordered, Persistent, Reader};
use azekura::format::checksum::crc;
use azekura::format::superblock::Superblock;
use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::kernel::Payload;
use azekura::log::End;
use azekura::log::manifest::Extent;
use azekura::node::tree::FRAME_WORDS;
use azekura::record::tree::layout::page_image::{decode_page, encode_page, seal_image};
use azekura::record::tree::layout::{
    CHUNK, ENGINE, IMAGE_HEAD, Place, Root, Super, UNIT, bitmap_seed, chunk_seed,
};
use azekura::record::tree::{CACHE_MIN, Compression, CreateOptions, TreeDb};
use azekura::testkit::Random;
use azekura::testkit::damage::{Image, Verdict, read_all};
use azekura::{Engine, Kind};

use super::{file_of, judge, number};

const LIMIT: u64 = 4 << 20;
const KEYS: u32 = 400;

fn options() -> CreateOptions {
    CreateOptions::new()
        .segment_size(64 << 10)
        .background(false)
        .cache(CACHE_MIN)
        .capacity(LIMIT)
}

/// The key of a number.
pub(super) fn key(number: u32) -> Vec<u8> {
    format!("{:05}", number * 7 % 1000).into_bytes()
}

/// Its value in a turn, which begins with the key; some are long.
pub(super) fn value(number: u32, turn: u32) -> Vec<u8> {
    let mut value = key(number);
    let len = if number.is_multiple_of(50) {
        9000
    } else {
        8 + number * 37 % 300
    };
    value.resize(len as usize, turn as u8);
    value
}

/// Files as a killed process leaves them, with checkpoints, removals and what came after; and one that was closed.
fn sound() -> &'static [Image] {
    static SOUND: OnceLock<Vec<Image>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let methods = [Compression::None, Compression::Lz4, Compression::Zstd];
        methods.into_iter().flat_map(files).collect()
    })
}

fn files(compression: Compression) -> Vec<Image> {
    let memory = Memory::new(LIMIT).expect("memory");
    let storage: Arc<dyn Storage> = memory.clone();
    let options = options().compression(compression);
    let db = TreeDb::create_on(storage, &options).expect("a new store");
    let mut images = Vec::new();
    let mut older = memory.to_vec();
    let mut keep = |bytes: Vec<u8>| {
        images.push(Image {
            older: std::mem::replace(&mut older, bytes.clone()),
            bytes,
            ..Image::default()
        });
    };
    for turn in 0..3 {
        for number in 0..KEYS {
            db.put(&key(number), &value(number, turn)).expect("a put");
        }
        for number in (turn..KEYS).step_by(3) {
            db.remove(&key(number)).expect("a removal");
        }
        if turn < 2 {
            db.checkpoint().expect("a checkpoint");
        }
        keep(memory.to_vec());
    }
    db.close().expect("a close");
    keep(memory.to_vec());
    images
}

fn part(bytes: &mut [u8], of: Extent) -> Option<&mut [u8]> {
    let from = usize::try_from(of.offset).ok()?;
    bytes.get_mut(from..from.checked_add(usize::try_from(of.len).ok()?)?)
}

/// Alters the image of a page, with a true checksum; its place is another then.
fn forge_page(
    bytes: &mut [u8],
    identity: (u32, u32),
    (page, place): (u32, Place),
    random: &mut Random,
) -> Option<Place> {
    let unit = Extent {
        offset: place.offset(),
        len: u64::from(place.units()) * UNIT,
        crc: 0,
    };
    let image = part(bytes, unit)?;
    let words = [const { AtomicU64::new(0) }; FRAME_WORDS];
    let decoded = decode_page(image, identity, page, place, &mut |at, word| {
        if let Some(to) = words.get(at) {
            to.store(word, Ordering::Relaxed);
        }
    });
    if decoded.is_err() || place.units() > 1 {
        // A compressed one, or a large one: its length, or any of its bytes.
        for _ in 0..random.below(3) {
            let from = *random.choose(&[8, IMAGE_HEAD]);
            let len = *random.choose(&[4, 64, image.len() - from]);
            let at = from + random.index(len);
            image[at] ^= random.below(256) as u8;
        }
        return Some(seal_image(image, identity.0, place.unit()));
    }
    // The header of the node comes first.
    let last = *random.choose(&[8, 64, FRAME_WORDS as u64]);
    for _ in 0..random.below(3) {
        let word = &words[random.below(last) as usize];
        let byte = 8 * random.below(8);
        let changed = word.load(Ordering::Relaxed) ^ random.below(256) << byte;
        word.store(changed, Ordering::Relaxed);
    }
    let records = place.records();
    Some(encode_page(&words, identity, records, place.unit(), image))
}

fn forge_chunk(bytes: &mut [u8], own: &Super, root: &mut Root, random: &mut Random) -> Option<()> {
    let at = random.index(root.chunks.len().max(1));
    let extent = root.chunks.get_mut(at)?;
    let mut chunk = part(bytes, *extent)?.to_vec();
    let places = chunk.as_chunks_mut::<8>().0;
    let set: Vec<usize> = (0..places.len())
        .filter(|at| places[*at] != [0; 8])
        .collect();
    if set.is_empty() {
        return None;
    }
    for _ in 0..random.below(3) {
        let slot = *random.choose(&set);
        let place = Place::decode(u64::from_le_bytes(places[slot]), 4)?;
        let page = (at * CHUNK + slot) as u32;
        let forged = match random.below(4) {
            0 => number(random),
            1 => u64::from_le_bytes(places[*random.choose(&set)]),
            _ => forge_page(bytes, (own.geometry.salt, own.epoch), (page, place), random)?.0,
        };
        places[slot] = forged.to_le_bytes();
    }
    extent.crc = crc(chunk_seed(own.geometry.salt, at), &chunk);
    part(bytes, *extent)?.copy_from_slice(&chunk);
    Some(())
}

fn forge_bitmap(bytes: &mut [u8], own: &Super, root: &mut Root, random: &mut Random) -> Option<()> {
    let extent = root.bitmaps.first_mut()?;
    let bitmap = part(bytes, *extent)?;
    for _ in 0..random.below(3) {
        let at = random.index(bitmap.len().min(64));
        bitmap[at] ^= 1 << random.below(8);
    }
    extent.crc = crc(bitmap_seed(own.geometry.salt), bitmap);
    Some(())
}

fn forge_root(bytes: &mut [u8], own: &mut Super, random: &mut Random) -> Option<()> {
    let mut extent = own.root?;
    let mut root = Root::decode(part(bytes, extent)?)?;
    match random.below(4) {
        0 => forge_bitmap(bytes, own, &mut root, random)?,
        1 | 2 => forge_chunk(bytes, own, &mut root, random)?,
        _ => {
            let number = number(random);
            match random.below(7) {
                0 => root.pages = number as u32,
                1 => root.chunks.first_mut()?.offset = number,
                2 => root.chunks.last_mut()?.len = number,
                3 => root.bitmaps.first_mut()?.len = number,
                4 => root.needed.log.first_mut()?.index = number as u32,
                5 => root.needed.log.last_mut()?.sequence = number,
                _ => root.needed.other.first_mut()?.0 = number as u32,
            }
        }
    }
    let encoded = root.encode();
    let place = part(bytes, extent)?;
    if encoded.len() == place.len() {
        place.copy_from_slice(&encoded);
        extent.crc = crc(own.geometry.salt ^ Super::ROOT_SEED, &encoded);
        own.root = Some(extent);
    }
    Some(())
}

/// Replaces numbers of the superblock, or of what it names; checksums are right.
fn forge(bytes: &mut [u8], random: &mut Random) -> Option<()> {
    let mut block = Superblock::current(bytes, &ENGINE).ok()?;
    let mut own = Super::decode(&block.payload)?;
    if random.one_in(3) {
        let number = number(random);
        let at = own.start;
        match random.below(10) {
            0 => own.manifest.geometry.shift = number as u32,
            1 => own.manifest.geometry.salt = number as u32,
            2 => own.manifest.open = !own.open,
            3 => own.manifest.epoch = number as u32,
            4 => own.manifest.start = End::of(number as u32, at.sequence(), at.offset()),
            5 => own.manifest.start = End::of(at.segment(), at.sequence(), Some(number as u32)),
            6 => own.manifest.durable.sequence = number,
            7 => own.count = number,
            8 => own.manifest.next_sequence = number,
            _ => own.manifest.root.as_mut()?.len = number,
        }
    } else {
        forge_root(bytes, &mut own, random)?;
    }
    block.payload = own.encode();
    let at = block.slot_offset() as usize;
    let slot = block.encode();
    bytes.get_mut(at..at + slot.len())?.copy_from_slice(&slot);
    Some(())
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    super::seeds_of_files(sound().len() as u8)
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    let mut random = Random::from_bytes(bytes);
    let mut damaged = file_of(bytes, &mut random, sound());
    // Where numbers with true checksums are forged, so may keys and values be.
    let is_forged = random.one_in(2);
    if is_forged {
        let _ = forge(&mut damaged, &mut random);
    }
    if damaged.len() as u64 > LIMIT {
        return;
    }
    let storage: Arc<dyn Storage> = Memory::from_bytes(&damaged, LIMIT).expect("memory");
    let Ok(db) = TreeDb::open_on(storage, &options().opening) else {
        return;
    };
    let keys: Vec<Vec<u8>> = (0..KEYS + 3).map(key).collect();
    if is_forged {
        if let Verdict::Read { answers, .. } = read_all(&db, &keys) {
            let is_full = |error: azekura::Error| error.kind() == Kind::Full;
            let mut answers = answers.into_iter();
            assert!(
                !answers.any(|(_, answer)| answer.is_err_and(is_full)),
                "no frame comes back"
            );
        }
    } else {
        judge(&db, &keys);
    }
    let mut passed = 0;
    let _ = db.scan_past(None, &mut |_, _| ControlFlow::Continue(()), &mut |_| {
        passed += 1;
        assert!(passed < 10_000, "a scan that does not end");
        Ok(())
    });
    let mut cursor = db.cursor();
    for _ in 0..1000 {
        if !cursor.previous().unwrap_or(false) {
            break;
        }
    }
    drop(cursor);
    let _ = db.check(&mut |_, _| ());
    for number in [1, 3, 50] {
        let written = value(number, 7);
        match db.put(&key(number), &written) {
            Ok(()) if is_forged => {}
            Ok(()) => assert_eq!(db.get(&key(number)).ok().flatten().as_ref(), Some(&written)),
            Err(error) => assert_ne!(error.kind(), Kind::Invalid, "{error}"),
        }
        let _ = Engine::update(&db, &key(number + 1), &mut |_| azekura::Edit::Remove);
    }
    let _ = db.checkpoint();
    let _ = db.maintain();
    let _ = db.close();
}
