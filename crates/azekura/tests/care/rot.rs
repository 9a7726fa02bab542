//! A flipped bit anywhere: the right bytes, or a clear error; and what does not open is brought back by a repair.
//!
//! Images of stores, closed or as a killed process leaves them, get one bit flipped, at many places of every structure. Opened,
//! each object has its bytes or an error that states it; none is absent that was there, none there that never was. One bit keeps no
//! store from being opened. Blocks that are lost, alone and two together, may: what does not open, or only for reading, is
//! repaired; what the repair does not report as lost or doubtful is as it was.

use std::collections::{BTreeMap, BTreeSet};

use azekura::Kind;
use azekura::format::superblock::Superblock;
use azekura::kernel::Payload;
use azekura::object::layout::{ENGINE, Root, Super};
use azekura::object::{Change, Doubt, ObjectId, Repaired, Store};
use azekura::testkit::suite::{share, tried_at_least, tried_in_rounds};
use azekura::testkit::{Random, round_seed};

use super::{id, options, storage_of, store_with, value};

/// Bytes of a store, what it holds, and what it once held.
struct Image {
    bytes: Vec<u8>,
    now: BTreeMap<ObjectId, Vec<u8>>,
    once: BTreeMap<ObjectId, BTreeSet<Vec<u8>>>,
}

/// Where what stands, as bytes of the file.
const JOURNAL: usize = 256 << 10;

fn image(seed: u64, steps: usize, is_closed: bool) -> Image {
    image_of(seed, steps, is_closed, false)
}

/// `is_full`: there is no room for packs, so small objects stay in the journal.
fn image_of(seed: u64, steps: usize, is_closed: bool, is_full: bool) -> Image {
    let (memory, store) = store_with(&options());
    let mut random = Random::new(seed);
    let (mut now, mut once) = (BTreeMap::new(), BTreeMap::<_, BTreeSet<_>>::new());
    if is_full {
        // The journal is kept where much of it is small objects; the leaves of all take more than a segment.
        let mut is_room = true;
        for n in 100..800 {
            let bytes = value(n, if is_room { 3000 } else { 100 });
            if is_refused(store.put(id(n), &bytes).map(drop)) {
                is_room = false;
                continue;
            }
            once.entry(id(n)).or_default().insert(bytes.clone());
            now.insert(id(n), bytes);
        }
    }
    let lens: &[usize] = if is_full {
        &[0, 30, 300, 900]
    } else {
        &[0, 30, 3000, 5000, 67_000]
    };
    for version in 0..steps as u64 {
        let n = random.below(14);
        let bytes = value(version + seed * 1000, *random.choose(lens));
        match random.below(10) {
            0 => {
                store.remove(id(n)).unwrap();
                now.remove(&id(n));
            }
            1 => {
                store.remove_range(id(n)..id(n + 2)).unwrap();
                now.remove(&id(n));
                now.remove(&id(n + 1));
            }
            2 => {
                let changes = [Change::Put(id(n), &bytes), Change::Remove(id(n + 1))];
                if is_refused(store.apply(&changes).map(drop)) {
                    continue;
                }
                now.remove(&id(n + 1));
                once.entry(id(n)).or_default().insert(bytes.clone());
                now.insert(id(n), bytes);
            }
            3 => store.checkpoint().unwrap(),
            _ => {
                if is_refused(store.put(id(n), &bytes).map(drop)) {
                    continue;
                }
                once.entry(id(n)).or_default().insert(bytes.clone());
                now.insert(id(n), bytes);
            }
        }
    }
    let killed = memory.to_vec();
    store.close().unwrap();
    let bytes = if is_closed { memory.to_vec() } else { killed };
    Image { bytes, now, once }
}

/// Whether there was no room for it in one piece, as may be with some seeds.
fn is_refused(outcome: azekura::Result<()>) -> bool {
    match outcome {
        Err(error) if error.kind() == Kind::Full => true,
        outcome => {
            outcome.unwrap();
            false
        }
    }
}

fn open(bytes: &[u8]) -> azekura::Result<Store> {
    Store::open_on(storage_of(bytes), None, &options().opening)
}

/// What is wrong with what an opened store states; `report`: it was repaired; `is_unsure`: an object may be an older one.
fn judge(
    store: &Store,
    image: &Image,
    report: Option<&Repaired>,
    is_unsure: bool,
) -> Result<(), String> {
    let may_lose = is_unsure || report.is_some_and(|report| report.losses > 0);
    let is_doubted = |id: ObjectId| {
        report.is_none_or(|report| report.doubted.iter().any(|doubted| doubted.id == id))
    };
    let mut listed = BTreeSet::new();
    for object in store.list(..) {
        match object {
            Ok(object) => _ = listed.insert(object.id),
            Err(error) if error.kind() == Kind::Corrupted && report.is_none() => {}
            Err(error) => return Err(format!("no list: {error}")),
        }
    }
    if let Some(stranger) = listed.iter().find(|id| !image.once.contains_key(id)) {
        return Err(format!("{stranger} was never there"));
    }
    for n in 0..16 {
        let now = image.now.get(&id(n));
        match store.get(id(n)) {
            Ok(found) if found.as_deref() == now.map(|now| &now[..]) => {}
            Err(error) if error.kind() == Kind::Corrupted => {}
            Err(error) => return Err(format!("object {n}: {error}")),
            Ok(found) => {
                let was_once = found.as_ref().is_none_or(|found| {
                    image
                        .once
                        .get(&id(n))
                        .is_some_and(|of| of.contains(&**found))
                });
                let len = found.map(|found| found.len());
                if !was_once {
                    return Err(format!("object {n} has {len:?} bytes that are not its own"));
                }
                // What a repair brings over without a doubt is the newest.
                if !may_lose || len.is_some() && !is_doubted(id(n)) && !is_unsure {
                    let wanted = now.map(Vec::len);
                    return Err(format!(
                        "object {n} has {len:?} bytes instead of {wanted:?}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// What became of a damaged image.
#[derive(Default, Debug)]
struct Tally {
    flips: u64,
    opened: u64,
    read_only: u64,
    repaired: u64,
    scanned: u64,
    doubtful: u64,
}

/// One flipped bit: the store opens, since of both superblocks one is whole and all else that opening needs has a checksum
/// by which the bit is found, and one object at most is an error. Then as `try_bytes`.
fn try_bit(bytes: &[u8], image: &Image, tally: &mut Tally, is_unsure: bool) -> Result<(), String> {
    let store = open(bytes).map_err(|error| format!("one bit keeps it from opening: {error}"))?;
    let errors = (0..16).filter(|n| store.get(id(*n)).is_err()).count();
    if errors > 1 {
        let damage = store.damage();
        return Err(format!("one bit makes {errors} objects errors: {damage:?}"));
    }
    drop(store);
    try_bytes(bytes, image, tally, is_unsure)
}

fn try_bytes(
    bytes: &[u8],
    image: &Image,
    tally: &mut Tally,
    is_unsure: bool,
) -> Result<(), String> {
    tally.flips += 1;
    let opened = open(bytes).and_then(|store| {
        if !store.is_read_only() {
            return Ok(store);
        }
        // It is read as far as it goes; then it is repaired.
        tally.read_only += 1;
        if let Err(what) = judge(&store, image, None, is_unsure) {
            panic!("read only: {what}; {:?}", store.damage());
        }
        store.put(id(40), b"more").map(|_| store)
    });
    match opened {
        Ok(store) => {
            tally.opened += 1;
            judge(&store, image, None, is_unsure)
        }
        Err(error) if [Kind::Corrupted, Kind::Mismatch].contains(&error.kind()) => {
            if error.to_string().contains("azekura repair") {
                return Err(format!("the remedy is that of another engine: {error}"));
            }
            try_repair(bytes, image, tally, is_unsure).map_err(|what| format!("{error}: {what}"))
        }
        Err(error) => Err(format!("a strange error: {error}")),
    }
}

fn try_repair(
    bytes: &[u8],
    image: &Image,
    tally: &mut Tally,
    is_unsure: bool,
) -> Result<(), String> {
    tally.repaired += 1;
    let storage = storage_of(bytes);
    let report = Store::repair_on(&storage, None, &mut |_, _| {})
        .map_err(|failed| format!("no repair: {failed}"))?;
    tally.scanned += u64::from(report.scanned > 0);
    tally.doubtful += report.doubtful;
    let store = Store::open_on(storage, None, &options().opening)
        .map_err(|failed| format!("it does not open after a repair: {failed}"))?;
    judge(&store, image, Some(&report), is_unsure).map_err(|what| format!("{what}; {report:?}"))?;
    let report = store
        .check(false, &mut |_, _| {})
        .map_err(|error| error.to_string())?;
    if !report.is_sound() {
        return Err(format!("repaired, and not sound: {:?}", report.findings));
    }
    store
        .put(id(40), b"more")
        .map_err(|error| error.to_string())?;
    store.close().map_err(|error| error.to_string())
}

/// Places of `range` that hold something: a flip there is worth more than in blank room.
fn places(bytes: &[u8], range: std::ops::Range<usize>) -> Vec<usize> {
    range.filter(|at| bytes[*at] != 0).collect()
}

#[test]
fn a_flipped_bit_is_an_error_or_nothing_and_repair_brings_the_store_back() {
    let mut tally = Tally::default();
    let mut random = Random::new(round_seed());
    let rounds = share(30).max(8);
    for seed in 0..rounds {
        let image = image(round_seed() + seed, 60, seed % 2 == 0);
        let superblocks = places(&image.bytes, 0..8192);
        let control = places(&image.bytes, 8192..16_384);
        let journal = places(&image.bytes, 16_384..JOURNAL);
        let data = places(&image.bytes, JOURNAL..image.bytes.len());
        for (region, count) in [(superblocks, 40), (control, 12), (journal, 240), (data, 60)] {
            for _ in 0..count {
                if region.is_empty() {
                    break;
                }
                let at = *random.choose(&region);
                let mask = 1 << random.below(8);
                let mut bytes = image.bytes.clone();
                bytes[at] ^= mask;
                // What was not appended to the journal yet is a write that never ended.
                let is_unsure = at >= JOURNAL && seed % 2 == 1;
                if let Err(what) = try_bit(&bytes, &image, &mut tally, is_unsure) {
                    panic!("seed {seed}, bit {mask:#x} at {at:#x}: {what}");
                }
            }
        }
    }
    tried_in_rounds(
        tally.flips,
        rounds,
        300,
        &format!("flipped bits: {tally:?}"),
    );
    assert!(
        tally.opened > 100 && tally.repaired > 50 && tally.read_only > 50,
        "{tally:?}"
    );
    // Few bits are those of records that recovery has to replay; half of the stores were closed.
    assert!(tally.read_only * 4 < tally.flips, "{tally:?}");
}

#[test]
fn lost_blocks_are_an_error_or_nothing_and_repair_brings_the_store_back() {
    let mut tally = Tally::default();
    for seed in 0..share(40) {
        let image = image(round_seed() + 100 + seed, 50, seed % 2 == 0);
        for block in 0..JOURNAL / 4096 {
            let range = block * 4096..(block + 1) * 4096;
            if image.bytes[range.clone()].iter().all(|byte| *byte == 0) {
                continue;
            }
            for fill in [0, 0xff] {
                let mut bytes = image.bytes.clone();
                bytes[range.clone()].fill(fill);
                if let Err(what) = try_bytes(&bytes, &image, &mut tally, false) {
                    panic!("seed {seed}, block {block} filled with {fill:#x}: {what}");
                }
            }
        }
    }
    tried_at_least(tally.flips, 320, &format!("lost blocks: {tally:?}"));
    assert!(tally.repaired > 10, "{tally:?}");
}

/// What two damaged places have in common is damaged by neither alone: for example the leaf of an object and its removal.
#[test]
fn two_lost_blocks_are_an_error_or_nothing_and_repair_brings_the_store_back() {
    let mut tally = Tally::default();
    let mut random = Random::new(round_seed() + 31);
    let rounds = share(100);
    for seed in 0..rounds {
        let is_full = seed % 4 < 2;
        let image = image_of(round_seed() + 300 + seed, 60, seed % 2 == 0, is_full);
        let blocks: Vec<usize> = (2..JOURNAL / 4096)
            .filter(|block| {
                let range = block * 4096..(block + 1) * 4096;
                image.bytes[range].iter().any(|byte| *byte != 0)
            })
            .collect();
        for _ in 0..20 {
            let lost = [0; 2].map(|_| *random.choose(&blocks));
            let mut bytes = image.bytes.clone();
            for block in lost {
                let fill = *random.choose(&[0, 0x5a, 0xff]);
                bytes[block * 4096..(block + 1) * 4096].fill(fill);
            }
            // What opens may be damaged where nothing looked yet: a repair looks.
            let tried = try_bytes(&bytes, &image, &mut tally, false);
            if let Err(what) = tried.and_then(|()| try_repair(&bytes, &image, &mut tally, false)) {
                panic!("seed {seed}, blocks {lost:?}: {what}");
            }
        }
    }
    let what = format!("pairs of lost blocks: {tally:?}");
    tried_in_rounds(tally.flips, rounds, 20, &what);
}

#[test]
fn a_repair_of_a_leaf_is_exact_where_the_lists_are_whole() {
    // Closed: all is in images. A leaf's image is found by its first id. One bit of it is flipped back; more are not.
    let image = image(5, 60, true);
    let first = image.now.keys().next().unwrap().to_bytes();
    let mut tally = Tally::default();
    let leaves: Vec<usize> = (16_384..JOURNAL - 16)
        .filter(|at| image.bytes[*at..at + 16] == first)
        .collect();
    let (mut exact, mut corrected) = (0, 0);
    for at in leaves {
        let mut bytes = image.bytes.clone();
        bytes[at + 20] ^= 1;
        try_bit(&bytes, &image, &mut tally, false).unwrap();
        let store = open(&bytes).unwrap();
        assert!(store.get(image.now.keys().next().copied().unwrap()).is_ok());
        if !store.damage().is_empty() {
            corrected += 1;
            assert!(!store.check(false, &mut |_, _| {}).unwrap().is_sound());
            drop(store);
            let storage = storage_of(&bytes);
            let report = Store::repair_on(&storage, None, &mut |_, _| {}).unwrap();
            assert_eq!(
                (report.corrected.len(), report.doubtful, report.lost.len()),
                (1, 0, 0),
                "{report:?}"
            );
            let store = Store::open_on(storage, None, &options().opening).unwrap();
            assert_eq!(super::contents(&store), image.now);
            assert!(store.check(false, &mut |_, _| {}).unwrap().is_sound());
        }
        bytes[at + 20] ^= 2;
        try_bytes(&bytes, &image, &mut tally, false).unwrap();
        if let Err(error) = open(&bytes).and_then(|store| store.check(false, &mut |_, _| {})) {
            assert_eq!(error.kind(), Kind::Corrupted);
        }
        let storage = storage_of(&bytes);
        let report = Store::repair_on(&storage, None, &mut |_, _| {}).unwrap();
        if report.scanned > 0 {
            exact += 1;
            assert_eq!((report.doubtful, report.lost.len()), (0, 1), "{report:?}");
            let store = Store::open_on(storage, None, &options().opening).unwrap();
            assert_eq!(super::contents(&store), image.now);
        }
    }
    assert!(
        exact > 0 && corrected > 0,
        "no image of a leaf was found: {exact}, {corrected}"
    );
}

/// Where the images of all leaves stand in a closed store.
fn leaves(bytes: &[u8]) -> Vec<usize> {
    let block = Superblock::current(bytes, &ENGINE).unwrap();
    let own = Super::decode(&block.payload).unwrap();
    let extent = own.manifest.root.unwrap();
    let root = &bytes[extent.offset as usize..][..extent.len as usize];
    let root = Root::decode(root).unwrap();
    let images = root.leaves.iter().filter_map(|(_, image)| *image);
    images.map(|image| image.extent.offset as usize).collect()
}

/// A full store keeps its small objects in the journal, and with them the removals of others. The leaves are lost, and with
/// them what states that an object was removed before the checkpoint; then the removal is lost, too.
#[test]
fn a_small_object_whose_removal_is_lost_with_its_leaf_is_in_doubt() {
    let options = options().capacity(640 << 10).journal_size(192 << 10);
    let mut tried = 0;
    for removed in [0, 7, 50] {
        let (memory, store) = store_with(&options);
        let mut n = 0;
        // Long ones leave no room for packs.
        for len in [60_000, 4000, 100] {
            while store.put(id(n), &vec![7; len]).is_ok() {
                n += 1;
            }
        }
        let small = id(n - 1 - removed);
        store.checkpoint().unwrap();
        let before = memory.to_vec();
        store.remove(small).unwrap();
        let after = memory.to_vec();
        let removal = (16 << 10..192 << 10).find(|at| before[*at] != after[*at]);
        let removal = removal.unwrap();
        // The log continues in another segment.
        for n in n - 300..n - 160 {
            store.remove(id(n)).unwrap();
        }
        store.close().unwrap();
        let mut bytes = memory.to_vec();
        assert_eq!(bytes[removal..removal + 8], after[removal..removal + 8]);
        for leaf in leaves(&bytes) {
            bytes[leaf..leaf + 24].fill(0x5a);
        }
        let segment = removal / 4096 * 4096;
        for lost in [0..0, removal..removal + 24, segment..segment + 4096] {
            let is_removal_lost = !lost.is_empty();
            if lost.start == segment && removed < 50 {
                // The object stands there, too.
                continue;
            }
            let is_frame = lost.start == removal;
            let at = if is_frame { removal / 8 * 8 } else { segment };
            bytes[lost].fill(if is_frame { 0x5a } else { 0 });
            let storage = storage_of(&bytes);
            let report = Store::repair_on(&storage, None, &mut |_, _| {}).unwrap();
            let store = Store::open_on(storage, None, &options.opening).unwrap();
            assert!(report.objects > 100, "{}", report.objects);
            let is_back = store.get(small).unwrap().is_some();
            assert_eq!(is_back, is_removal_lost);
            // So are those small ones of which no record stands after it, and no others.
            let is_doubted = |id| report.doubted.iter().any(|doubted| doubted.id == id);
            assert_eq!(is_doubted(small), is_removal_lost, "{report:?}");
            assert!(!is_doubted(id(0)), "{report:?}");
            assert_eq!(report.doubtful > 0, is_removal_lost);
            let reasons = report.doubted.iter().map(|doubted| doubted.reason);
            let reason = Doubt::JournalLost(at as u64);
            assert!(reasons.into_iter().all(|of| of == reason), "{report:?}");
            tried += 1;
        }
    }
    assert_eq!(tried, 7);
}

/// A journal that was closed ends where its close states: what follows that was never appended.
#[test]
fn what_stands_after_the_end_of_a_closed_journal_puts_no_object_in_doubt() {
    let (mut random, mut tried) = (Random::new(round_seed()), 0);
    for round in 0..8 {
        let (memory, store) = store_with(&options());
        for n in 0..30 + round {
            let len = *random.choose(&[30, 3000, 9000]);
            store.put(id(n), &value(n, len)).unwrap();
        }
        store.close().unwrap();
        let whole = memory.to_vec();
        let block = Superblock::current(&whole, &ENGINE).unwrap();
        let own = Super::decode(&block.payload).unwrap();
        let (end, geometry) = (own.manifest.start, own.manifest.geometry);
        assert_eq!(end.position(), own.manifest.durable);
        let Some(offset) = end.offset() else {
            continue;
        };
        let begin = geometry.offset_of(end.segment()) as usize + offset as usize;
        let segment_end = geometry.offset_of(end.segment() + 1) as usize;
        let from = begin + random.index(segment_end - begin) / 8 * 8 * random.index(2);
        let to = from + 8 + random.index(segment_end - from - 7);
        for is_leaf_lost in [false, true] {
            let mut bytes = whole.clone();
            if is_leaf_lost {
                for leaf in leaves(&bytes) {
                    bytes[leaf..leaf + 24].fill(0x5a);
                }
            }
            let repaired = |bytes: &[u8]| {
                let storage = storage_of(bytes);
                let report = Store::repair_on(&storage, None, &mut |_, _| {}).unwrap();
                let store = Store::open_on(storage, None, &options().opening).unwrap();
                (report, super::contents(&store))
            };
            let without = repaired(&bytes);
            assert_eq!(without.0.doubtful, 0, "{without:?}");
            bytes[from..to].fill(0xab);
            let with = repaired(&bytes);
            assert_eq!(with, without, "{begin:#x}, {from:#x} to {to:#x}");
            tried += 1;
        }
    }
    assert!(tried >= 8, "{tried}");
}

#[test]
fn with_the_root_lost_removed_objects_may_come_back_and_are_named() {
    let (memory, store) = store_with(&options());
    for n in 0..6 {
        store.put(id(n), &value(n, 9000)).unwrap();
    }
    store.remove(id(2)).unwrap();
    store.put(id(3), &value(33, 50)).unwrap();
    // The segment of the journal in which the removal stands is not needed any more.
    for version in 0..80 {
        store.put(id(9), &value(version, 200)).unwrap();
    }
    store.close().unwrap();
    let mut bytes = memory.to_vec();
    // Where the newest superblock states that the root is.
    let slot = [0, 4096].map(|slot| u64::from_le_bytes(*bytes[slot + 24..].first_chunk().unwrap()));
    let newest = if slot[0] > slot[1] { 0 } else { 4096 };
    let root = u64::from_le_bytes(*bytes[newest + 32 + 112..].first_chunk().unwrap()) as usize;
    bytes[root..root + 16].fill(0x5a);
    let storage = storage_of(&bytes);
    let damaged = open(&bytes).unwrap();
    assert!(damaged.is_read_only());
    for n in [0, 1, 4, 5] {
        // It was there, or it may have been removed.
        if let Ok(found) = damaged.get(id(n)) {
            assert_eq!(found, Some(value(n, 9000).into()));
        }
    }
    let error = damaged.get(id(2)).unwrap_err();
    assert!(error.to_string().contains("may be lost"), "{error}");
    let left = damaged.last_known(id(2), 0..u64::MAX).unwrap();
    assert_eq!(left, Some(value(2, 9000).into()));
    let report = Store::repair_on(&storage, None, &mut |_, _| {}).unwrap();
    assert_eq!(report.objects, 7, "{report:?}");
    let doubted = report.doubted.iter().find(|doubted| doubted.id == id(2));
    let doubted = doubted.expect("it is named");
    assert_eq!(doubted.reason, Doubt::IndexLost);
    let at = doubted.offset as usize + 64;
    assert!(bytes[at..].starts_with(&value(2, 9000)[..1000]));
    let store = Store::open_on(storage, None, &options().opening).unwrap();
    assert_eq!(store.get(id(2)).unwrap(), Some(value(2, 9000).into()));
    assert_eq!(
        store.get(id(3)).unwrap(),
        Some(value(33, 50).into()),
        "the latest counts"
    );
    store.check_room().unwrap();
}

/// Small objects in the journal alone, of which one of the last is lost.
#[test]
fn a_repair_names_a_thousand_objects_in_doubt_with_place_and_reason_and_counts_all() {
    const COUNT: u64 = 1200;
    let options = options().journal_size(512 << 10);
    let (memory, store) = store_with(&options);
    for n in 0..COUNT {
        store.put(id(n), &value(n, 40)).unwrap();
    }
    store.sync().unwrap();
    let mut bytes = memory.to_vec();
    drop(store);
    let lost = value(COUNT - 3, 40);
    let at = bytes.windows(40).position(|found| found == lost);
    // Two bits: one alone is found by the checksum.
    bytes[at.expect("values are stored as they are")] ^= 3;
    let storage = storage_of(&bytes);
    let report = Store::repair_on(&storage, None, &mut |_, _| {}).unwrap();
    assert_eq!(
        (report.objects, report.doubtful, report.losses),
        (COUNT - 1, COUNT - 3, 1),
        "{report:?}"
    );
    assert_eq!(report.doubted.len(), 1000);
    assert!(report.doubted.is_sorted_by_key(|doubted| doubted.id));
    for doubted in &report.doubted {
        let n = (doubted.id.0 >> 100) as u64;
        let frame = &bytes[doubted.offset as usize..][..96];
        let wanted = value(n, 40);
        assert!(frame.windows(40).any(|found| found == wanted), "{doubted}");
        let Doubt::JournalLost(place) = doubted.reason else {
            panic!("{doubted}");
        };
        let place = place as usize;
        assert!((place..place + 200).contains(&at.unwrap()), "{doubted}");
    }
    // The last ones came after what is lost.
    let store = Store::open_on(storage, None, &options.opening).unwrap();
    assert_eq!(store.get(id(COUNT - 3)).unwrap(), None);
    for n in [COUNT - 2, COUNT - 1] {
        assert_eq!(store.get(id(n)).unwrap(), Some(value(n, 40).into()));
    }
}

#[test]
fn an_object_with_another_value_or_none_is_seen() {
    let mut image = image(9, 40, true);
    let store = open(&image.bytes).unwrap();
    judge(&store, &image, None, false).unwrap();
    let (id, bytes) = image.now.pop_first().unwrap();
    let seen = judge(&store, &image, None, false).unwrap_err();
    assert!(seen.contains("instead of None"), "{seen}");
    image.now.insert(id, [&bytes[..], b"more"].concat());
    judge(&store, &image, None, false).unwrap_err();
    image.once.remove(&id);
    let seen = judge(&store, &image, None, false).unwrap_err();
    assert!(seen.contains("was never there"), "{seen}");
}

#[test]
fn a_store_whose_device_shrank_keeps_what_is_left() {
    let image = image(7, 40, true);
    let short = &image.bytes[..JOURNAL + (300 << 10)];
    let storage = storage_of(short);
    let error = open(short).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupted, "{error}");
    let report = Store::repair_on(&storage, None, &mut |_, _| {}).unwrap();
    assert!(!report.lost.is_empty());
    let store = Store::open_on(storage, None, &options().opening).unwrap();
    judge(&store, &image, Some(&report), false).unwrap();
    store.check_room().unwrap();
}
