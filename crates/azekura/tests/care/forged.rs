//! Numbers that no store writes, under checksums that are right: an error or an answer, never a panic or another's bytes.
//!
//! Superblocks, roots, leaves and lists get any numbers, and are summed again. What opens is read, checked, changed and emptied;
//! all of it is repaired, too. Values begin with their id, so that another object's are seen. Which errors are the right ones is
//! not asked here. Lines beginning `tried:` state how much was tried.

use std::panic::{AssertUnwindSafe, catch_unwind};

use azekura::format::checksum::crc;
use azekura::format::superblock::Superblock;
use azekura::kernel::Payload;
use azekura::log::End;
use azekura::object::layout::{ENGINE, LEAF_SEED, LIST_SEED, ROOT_SEED, Root, Super};
use azekura::object::{Change, Store};
use azekura::testkit::suite::{share, tried_in_rounds};
use azekura::testkit::{Random, round_seed};

use super::{id, options, storage_of, store_with, value};

const IDS: u64 = 12;

fn named(n: u64, turn: u64) -> Vec<u8> {
    let mut bytes = id(n).to_bytes().to_vec();
    bytes.extend(value(turn * 100 + n, (n as usize * 977) % 9000));
    bytes
}

/// A store as a killed process leaves it, and closed.
fn sound() -> [Vec<u8>; 2] {
    let (memory, store) = store_with(&options());
    for turn in 0..4 {
        for n in 0..IDS {
            store.put(id(n), &named(n, turn)).unwrap();
        }
        let two = named(2, 50 + turn);
        store
            .apply(&[Change::Remove(id(1)), Change::Put(id(2), &two)])
            .unwrap();
        if turn % 2 == 1 {
            store.checkpoint().unwrap();
        }
    }
    let killed = memory.to_vec();
    store.close().unwrap();
    [killed, memory.to_vec()]
}

/// Small ones, those near a power of two, and any.
fn number(random: &mut Random) -> u64 {
    match random.below(3) {
        0 => random.below(256),
        1 => (1u64 << random.below(64)).wrapping_sub(random.below(3)),
        _ => random.u64(),
    }
}

fn forge_root(root: &mut Root, bytes: &mut [u8], salt: u32, random: &mut Random) -> Option<()> {
    let number = number(random);
    match random.below(12) {
        0 => root.sequence = number,
        1 => root.leaves.first_mut()?.1.as_mut()?.count = number as u32,
        2 => root.groups.first_mut()?.free = number as u32,
        3 => random
            .choose(&[0, 1])
            .clone_into(&mut root.groups.last_mut()?.free),
        4 => root.unlisted.first_mut()?.unit = number,
        5 => root.allocation_extents.last_mut()?.spans.first_mut()?.units = number as u32,
        6 => root.needed.log.first_mut()?.index = number as u32,
        7 => root.needed.log.last_mut()?.units = number as u32,
        8 => root.needed.other.first_mut()?.0 = number as u32,
        9 => {
            let group = random.index(root.groups.len());
            let image = root.groups[group].image.as_mut()?;
            let at = image.offset as usize;
            let list = bytes.get_mut(at..at.checked_add(image.len as usize)?)?;
            let at = random.index(list.len());
            list[at] = number as u8;
            image.crc = crc(crc(salt ^ LIST_SEED, &(group as u32).to_le_bytes()), list);
        }
        _ => {
            let (first, image) = root.leaves.first_mut()?;
            let image = image.as_mut()?;
            let at = image.extent.offset as usize;
            let leaf = bytes.get_mut(at..at.checked_add(image.extent.len as usize)?)?;
            let entry = random.index(leaf.len() / 25) * 25;
            leaf[entry + 16 + random.index(9)] = number as u8;
            image.extent.crc = crc(crc(salt ^ LEAF_SEED, &first.to_bytes()), leaf);
        }
    }
    Some(())
}

fn forge_super(own: &mut Super, random: &mut Random) {
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
        _ => own.manifest.geometry.shift = number as u32,
    }
}

/// Replaces some numbers; the checksums are right.
fn forge(bytes: &mut [u8], random: &mut Random) -> Option<()> {
    let mut block = Superblock::current(bytes, &ENGINE).ok()?;
    let mut own = Super::decode(&block.payload)?;
    let salt = own.manifest.geometry.salt;
    if let Some(mut extent) = own.manifest.root {
        let range = extent.offset as usize..(extent.offset + extent.len) as usize;
        let mut root = Root::decode(bytes.get(range.clone())?)?;
        for _ in 0..random.below(4) {
            let _ = forge_root(&mut root, bytes, salt, random);
        }
        let encoded = root.encode();
        bytes[range].copy_from_slice(&encoded);
        extent.crc = crc(salt ^ ROOT_SEED, &encoded);
        own.manifest.root = Some(extent);
    }
    for _ in 0..random.below(3) {
        forge_super(&mut own, random);
    }
    block.payload = own.encode();
    let at = block.slot_offset() as usize;
    let slot = block.encode();
    bytes[at..at + slot.len()].copy_from_slice(&slot);
    Some(())
}

/// Uses a store in every way; panics if it gives a value that is not its own.
fn use_all(store: &Store) {
    for n in 0..IDS + 2 {
        if let Ok(Some(found)) = store.get(id(n)) {
            assert!(
                found.starts_with(&id(n).to_bytes()),
                "object {n} has another's bytes"
            );
        }
    }
    let _ = store.check(true, &mut |_, _| {});
    let _ = store.stats();
    let _ = store.journal(&mut |_, _| true);
    let written = named(3, 7);
    if store.put(id(3), &written).is_ok()
        && let Ok(found) = store.get(id(3))
    {
        assert_eq!(found, Some(written.into()));
    }
    let _ = store.remove(id(5));
    let _ = store.sync();
    let _ = store.checkpoint();
    let _ = store.remove_range(..);
    let _ = store.sync();
    let _ = store.put(id(6), &named(6, 8));
    let _ = store.checkpoint();
}

fn try_one(bytes: &[u8]) -> (bool, bool) {
    let opened = Store::open_on(storage_of(bytes), None, &options().opening);
    if let Ok(store) = &opened {
        use_all(store);
    }
    let storage = storage_of(bytes);
    let repaired = Store::repair_on(&storage, None, &mut |_, _| {});
    if repaired.is_ok() {
        let store = Store::open_on(storage, None, &options().opening).expect("it was repaired");
        use_all(&store);
    }
    (opened.is_ok(), repaired.is_ok())
}

#[test]
fn impossible_numbers_are_refused_or_harmless() {
    let sound = sound();
    let mut random = Random::new(round_seed());
    let (mut judged, mut opened, mut repaired) = (0, 0, 0);
    let rounds = share(3000).max(1000);
    for round in 0..rounds {
        let mut bytes = random.choose(&sound).clone();
        let _ = forge(&mut bytes, &mut random);
        let tried = catch_unwind(AssertUnwindSafe(|| try_one(&bytes)));
        let (is_open, is_repaired) = tried.unwrap_or_else(|_| panic!("in round {round}"));
        judged += 1;
        opened += u64::from(is_open);
        repaired += u64::from(is_repaired);
    }
    let what = format!("forged files: {opened} opened, {repaired} were repaired");
    tried_in_rounds(judged, rounds, 1, &what);
    assert!(
        opened * 100 > rounds * 46 && repaired * 100 > rounds * 47,
        "{opened} {repaired}"
    );
}
