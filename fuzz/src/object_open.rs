//! Fuzzes the whole way from a device's bytes to its objects: opening, reading, checking, repairing.
//!
//! Sound stores are damaged as the input states; every second one is then given a superblock and a root of impossible numbers with
//! true checksums, so that what is after the checksums is reached too. No bytes may lead to a panic, a hang, or a value that was
//! never put: each value begins with its id. A reader changes no byte of what it looks at.
//! It does not know which errors are the right ones.

use std::sync::{Arc, OnceLock};

use azekura::format::checksum::crc;
use azekura::format::superblock::Superblock;
use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::kernel::Payload;
use azekura::log::End;
use azekura::object::layout::{ENGINE, ROOT_SEED, Root, Super};
use azekura::object::{Change, CreateOptions, ObjectId, Store, StoreReader, Value};
use azekura::testkit::Random;
use azekura::testkit::damage::Image;
use azekura::{Kind, Result};

use super::{file_of, number};

const LIMIT: u64 = 1 << 20;
const IDS: u128 = 12;

fn options() -> CreateOptions {
    CreateOptions::new()
        .capacity(512 << 10)
        .journal_size(144 << 10)
        .group_size(64 << 10)
        .small_max(1000)
        .background(false)
}

fn value(id: u128, turn: u8) -> Vec<u8> {
    let mut value = ObjectId(id).to_bytes().to_vec();
    value.resize(16 + (id as usize * 977) % 9000, turn);
    value
}

/// Stores as a killed process leaves them, and one that was closed.
fn sound() -> &'static [Image] {
    static SOUND: OnceLock<Vec<Image>> = OnceLock::new();
    SOUND.get_or_init(images)
}

fn images() -> Vec<Image> {
    let memory = Memory::new(LIMIT).expect("memory");
    memory.resize(options().capacity).expect("room");
    let storage: Arc<dyn Storage> = memory.clone();
    let store = Store::create_on(storage, None, &options(), &mut |_, _| ()).expect("a new store");
    let mut images = Vec::new();
    let mut older = memory.to_vec();
    for turn in 0..4 {
        for id in 0..IDS {
            store.put(ObjectId(id), &value(id, turn)).expect("a put");
        }
        let batch = [
            Change::Remove(ObjectId(1)),
            Change::Put(ObjectId(2), &value(2, 99)),
        ];
        store.apply(&batch).expect("a batch");
        store
            .remove_range(ObjectId(4)..ObjectId(6))
            .expect("a removal");
        if turn % 2 == 1 {
            store.checkpoint().expect("a checkpoint");
        }
        let bytes = memory.to_vec();
        images.push(Image {
            bytes: bytes.clone(),
            older: std::mem::replace(&mut older, bytes),
            ..Image::default()
        });
    }
    store.close().expect("a close");
    images.push(Image {
        bytes: memory.to_vec(),
        older,
        ..Image::default()
    });
    images
}

/// Replaces some numbers of the superblock, of the root it points to, and of a leaf; their checksums are right.
fn forge(bytes: &mut [u8], random: &mut Random) -> Option<()> {
    let mut block = Superblock::current(bytes, &ENGINE).ok()?;
    let mut own = Super::decode(&block.payload)?;
    if let Some(mut extent) = own.manifest.root {
        let from = extent.offset as usize;
        let place = bytes.get(from..from.checked_add(extent.len as usize)?)?;
        let mut root = Root::decode(place)?;
        for _ in 0..random.below(3) {
            let number = number(random);
            match random.below(10) {
                0 => root.sequence = number,
                1 => root.leaves.first_mut()?.1.as_mut()?.count = number as u32,
                2 => root.groups.first_mut()?.free = number as u32,
                3 => root.groups.last_mut()?.image = None,
                4 => root.unlisted.first_mut()?.unit = number,
                5 => {
                    root.allocation_extents
                        .first_mut()?
                        .spans
                        .first_mut()?
                        .units = number as u32;
                }
                6 => root.needed.log.first_mut()?.index = number as u32,
                7 => root.needed.log.last_mut()?.units = number as u32,
                8 => root.needed.other.first_mut()?.0 = number as u32,
                _ => {
                    let (first, image) = root.leaves.first_mut()?;
                    let image = image.as_mut()?;
                    let at = image.extent.offset as usize;
                    let leaf = bytes.get_mut(at..at.checked_add(image.extent.len as usize)?)?;
                    let entry = random.index(leaf.len() / 25) * 25;
                    let at = entry + 16 + random.index(9);
                    *leaf.get_mut(at)? = number as u8;
                    let seed = crc(
                        own.manifest.geometry.salt ^ azekura::object::layout::LEAF_SEED,
                        &first.to_bytes(),
                    );
                    image.extent.crc = crc(seed, leaf);
                }
            }
        }
        let encoded = root.encode();
        if encoded.len() as u64 == extent.len {
            bytes
                .get_mut(from..from + encoded.len())?
                .copy_from_slice(&encoded);
            extent.crc = crc(own.manifest.geometry.salt ^ ROOT_SEED, &encoded);
            own.manifest.root = Some(extent);
        }
    }
    for _ in 0..random.below(3) {
        let number = number(random);
        match random.below(12) {
            0 => own.journal_size = number,
            1 => own.data_offset = number,
            2 => own.units = number,
            3 => own.group_units = number as u32,
            4 => own.sequence = number,
            5 => own.manifest.open = !own.manifest.open,
            6 => own.manifest.epoch = number as u32,
            7 => {
                let at = own.manifest.start;
                own.manifest.start = End::of(number as u32, at.sequence(), at.offset());
            }
            8 => {
                let at = own.manifest.start;
                own.manifest.start = End::of(at.segment(), number, at.offset());
            }
            9 => {
                let at = own.manifest.start;
                own.manifest.start = End::of(at.segment(), at.sequence(), Some(number as u32));
            }
            10 => own.manifest.next_sequence = number,
            _ => own.manifest.root.as_mut()?.len = number,
        }
    }
    block.payload = own.encode();
    let at = block.slot_offset() as usize;
    let slot = block.encode();
    bytes.get_mut(at..at + slot.len())?.copy_from_slice(&slot);
    Some(())
}

fn judge(get: impl Fn(ObjectId) -> Result<Option<Value>>) {
    for id in 0..IDS + 2 {
        if let Ok(Some(value)) = get(ObjectId(id)) {
            assert!(
                value.starts_with(&ObjectId(id).to_bytes()),
                "a value that was never put"
            );
        }
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

    let storage = || -> Arc<dyn Storage> { Memory::from_bytes(&damaged, LIMIT).expect("memory") };
    let repaired = storage();
    if Store::repair_on(&repaired, None, &mut |_, _| ()).is_ok() {
        let store = Store::open_on(repaired, None, &options().opening).expect("it was repaired");
        judge(|id| store.get(id));
    }
    let looked_at = storage();
    let reader = StoreReader::open_on(Arc::clone(&looked_at), None);
    if let Ok(reader) = &reader {
        judge(|id| reader.get(id));
        let _ = reader.check(true, &mut |_, _| ());
    }
    let mut left = vec![0; damaged.len()];
    assert!(looked_at.read_at(0, &mut left).is_ok() && left == damaged);
    let Ok(store) = Store::open_on(storage(), None, &options().opening) else {
        assert!(reader.is_err(), "a reader opens what a writer does not");
        return;
    };
    judge(|id| store.get(id));
    let _ = store.check(true, &mut |_, _| ());
    let written = value(3, 7);
    match store.put(ObjectId(3), &written) {
        Ok(_) => assert_eq!(
            store.get(ObjectId(3)).ok().flatten().as_deref(),
            Some(written.as_slice())
        ),
        Err(error) => assert_ne!(error.kind(), Kind::Invalid, "{error}"),
    }
    let _ = store.remove_range(..);
    let _ = store.sync();
    let _ = store.close();
}
