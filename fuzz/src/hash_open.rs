//! Fuzzes the whole way from a file's bytes to its records: opening, reading, checking, repairing.
//!
//! Sound files are damaged as the input states; every second one is then given a superblock and a root
//! of impossible numbers with true checksums, so that what is after the checksums is reached too. No
//! bytes may lead to a panic, a hang, or a value that was never put: each value begins with its key.
//! It does not know which errors are the right ones.

use std::sync::{Arc, OnceLock};

use azekura::engine::{Edit, Persistent};
use azekura::format::checksum::crc;
use azekura::format::superblock::Superblock;
use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::kernel::Payload;
use azekura::log::End;
use azekura::record::hash::layout::{ENGINE, ROOT_SEED, Root, Super};
use azekura::record::hash::{
    Compression, CreateOptions, HashDb, HashReader, RepairReport, repair_storage,
};
use azekura::testkit::Random;
use azekura::testkit::damage::Image;
use azekura::{Engine, Kind};

use super::{file_of, judge, number};

const LIMIT: u64 = 1 << 22;
const KEYS: u32 = 40;

fn options(compression: Compression) -> CreateOptions {
    CreateOptions::new()
        .segment_size(4096)
        .compression(compression)
        .background(false)
        .capacity(LIMIT)
}

fn key(number: u32) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

fn value(number: u32, turn: u32) -> Vec<u8> {
    let mut value = key(number);
    value.resize(8 + (number * 37 % 300) as usize, turn as u8);
    value
}

fn keys() -> Vec<Vec<u8>> {
    (0..KEYS + 3).map(key).collect()
}

/// Files as a writer leaves them: one kept open, with a checkpoint, batches, removals and what came after.
fn sound() -> &'static [Image] {
    static SOUND: OnceLock<Vec<Image>> = OnceLock::new();
    SOUND.get_or_init(|| {
        [Compression::None, Compression::Lz4]
            .into_iter()
            .flat_map(images)
            .collect()
    })
}

fn images(compression: Compression) -> Vec<Image> {
    let memory = Memory::new(LIMIT).expect("memory");
    let storage: Arc<dyn Storage> = memory.clone();
    let db = HashDb::create_on(storage, &options(compression)).expect("a new store");
    let mut images = Vec::new();
    let mut older = memory.to_vec();
    for turn in 0..4 {
        for number in 0..KEYS {
            db.put(&key(number), &value(number, turn)).expect("a put");
        }
        db.update_many(&[&key(1), &key(2)], &mut |_| {
            vec![Edit::Remove, Edit::Put(value(2, 99).into())]
        })
        .expect("a batch");
        if turn == 1 {
            db.checkpoint().expect("a checkpoint");
        }
        if turn == 2 {
            db.compact(&mut |_, _| ()).expect("a compaction");
        }
        let bytes = memory.to_vec();
        images.push(Image {
            bytes: bytes.clone(),
            older: std::mem::replace(&mut older, bytes),
            ..Image::default()
        });
    }
    db.close().expect("a close");
    images.push(Image {
        bytes: memory.to_vec(),
        older,
        ..Image::default()
    });
    images
}

/// Replaces some numbers of the superblock, and of the root it points to; their checksums are right.
fn forge(bytes: &mut [u8], random: &mut Random) -> Option<()> {
    let mut block = Superblock::current(bytes, &ENGINE).ok()?;
    let mut own = Super::decode(&block.payload)?;
    if let Some(mut extent) = own.root {
        let from = extent.offset as usize;
        let place = bytes.get_mut(from..from.checked_add(extent.len as usize)?)?;
        let mut root = Root::decode(place)?;
        for _ in 0..random.below(3) {
            let number = number(random);
            let partition = random.index(root.images.len());
            match random.below(8) {
                0 => root.images[partition].extent.offset = number,
                1 => root.images[partition].count = number as u32,
                2 => root.needed.log.first_mut()?.index = number as u32,
                3 => root.needed.log.last_mut()?.units = number as u32,
                4 => root.needed.log.last_mut()?.sequence = number,
                5 => root.needed.log.first_mut()?.dead = number,
                6 => root.needed.other.first_mut()?.0 = number as u32,
                _ => root.needed.other.last_mut()?.1 = number as u32,
            }
        }
        let encoded = root.encode();
        if encoded.len() == place.len() {
            place.copy_from_slice(&encoded);
            extent.crc = crc(own.geometry.salt ^ ROOT_SEED, &encoded);
            own.root = Some(extent);
        }
    }
    for _ in 0..random.below(3) {
        let number = number(random);
        match random.below(14) {
            0 => own.geometry.shift = number as u32,
            1 => own.geometry.salt = number as u32,
            2 => own.hash_seed = number,
            3 => own.compression = *random.choose(&[Compression::None, Compression::Zstd]),
            4 => own.open = !own.open,
            5 => own.epoch = number as u32,
            6 => {
                let at = own.start;
                own.start = End::of(number as u32, at.sequence(), at.offset());
            }
            7 => {
                let at = own.start;
                own.start = End::of(at.segment(), number, at.offset());
            }
            8 => {
                let at = own.start;
                own.start = End::of(at.segment(), at.sequence(), Some(number as u32));
            }
            9 => own.durable.sequence = number,
            10 => own.durable.offset = number as u32,
            11 => own.count = number,
            12 => own.next_sequence = number,
            _ => own.root.as_mut()?.len = number,
        }
    }
    block.payload = own.encode();
    let at = block.slot_offset() as usize;
    let slot = block.encode();
    bytes.get_mut(at..at + slot.len())?.copy_from_slice(&slot);
    Some(())
}

fn repair(storage: &Arc<dyn Storage>, bytes: &[u8]) {
    let Some(own) = Superblock::current(bytes, &ENGINE)
        .ok()
        .and_then(|block| Super::decode(&block.payload))
    else {
        return;
    };
    let room = Memory::new(LIMIT).expect("memory");
    let target = HashDb::create_on(room, &options(own.compression)).expect("a new store");
    let mut report = RepairReport::default();
    let done = repair_storage(storage, &own, &target, &mut report, &mut |_, _| ());
    if done.is_ok() {
        judge(&target, &keys());
    }
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    super::seeds_of_files(sound().len() as u8)
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    let mut random = Random::from_bytes(bytes);
    let mut damaged = file_of(bytes, &mut random, sound());
    if random.one_in(2) {
        let _ = forge(&mut damaged, &mut random);
    }
    if damaged.len() as u64 > LIMIT {
        return;
    }

    let storage: Arc<dyn Storage> = Memory::from_bytes(&damaged, LIMIT).expect("memory");
    if let Ok(reader) = HashReader::open_on(Arc::clone(&storage)) {
        judge(&reader, &keys());
    }
    repair(&storage, &damaged);
    let Ok(db) = HashDb::open_on(storage, &options(Compression::None).opening) else {
        return;
    };
    judge(&db, &keys());
    let _ = db.check(&mut |_, _| ());
    let written = value(1, 7);
    match db.put(&key(1), &written) {
        Ok(()) => assert_eq!(db.get(&key(1)).ok().flatten().as_ref(), Some(&written)),
        Err(error) => assert_ne!(error.kind(), Kind::Invalid, "{error}"),
    }
    let _ = db.maintain();
    let _ = db.close();
}
