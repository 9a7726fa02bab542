//! Files of whose checkpoint the root is damaged: what they still give, key by key, against the acknowledged history.
//!
//! Files are drawn, with overwriting, removals, batches, clears, cleaning, compaction and reopening, and end with a checkpoint
//! and some changes more. Of each page of the root two bits are wrong, or it is blank or cannot be read; in some cases a part
//! of the log is blank, too. Such a file opens for writing and for reading only; what it gives is the newest, all else is an
//! error; nothing is written to it. One wrong bit of the root costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::layout::ROOT_SEED;
use super::dropped;
use super::*;
use crate::io::over::Over;
use crate::log::manifest::Extent;
use crate::log::root;
use crate::testkit::round_seed;
use crate::testkit::suite::{share, tried_at_least};

const ROOM: u64 = 1 << 26;
const PAGE: u64 = 4096;

type Key = Vec<u8>;
type Model = BTreeMap<Key, Option<Vec<u8>>>;

/// A storage of which a page cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) memory: Arc<Memory>,
    pub(super) page: u64,
}

impl Over for Unreadable {
    fn below(&self) -> &dyn Storage {
        self.memory.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset < self.page + PAGE && self.page < offset + buf.len() as u64 {
            let error = std::io::Error::from_raw_os_error(5);
            return Err(Error::io("cannot read", error).offset(offset));
        }
        self.memory.read_at(offset, buf)
    }
}

/// A storage of which another process has a writer.
#[derive(Debug)]
struct Shared(Arc<Memory>);

impl Over for Shared {
    fn below(&self) -> &dyn Storage {
        self.0.as_ref()
    }

    fn has_writer(&self) -> bool {
        true
    }
}

/// Gives a record this value, or removes it.
fn change(db: &HashDb, model: &mut Model, key: Key, value: Option<Vec<u8>>) {
    match &value {
        Some(value) => db.put(&key, value).unwrap(),
        None => drop(db.remove(&key).unwrap()),
    }
    model.insert(key, value);
}

/// A model of a store that was just made.
fn no_records() -> Model {
    Model::from([(b"never there".to_vec(), None)])
}

/// A file that was changed in a way of its own, and what it holds.
fn drawn(random: &mut Random) -> (Vec<u8>, Model) {
    let options = small().segment_size(*random.choose(&[4096, 8192, 32 << 10]));
    let memory = Memory::new(ROOM).unwrap();
    let mut db = HashDb::create_on(memory.clone(), &options).unwrap();
    let keys = *random.choose(&[10, 100, 1000, 5000]);
    let changes = random.below(4 * keys) + 20;
    let removes = random.below(40);
    let upkeep = random.below(10);
    let mut model = no_records();
    for turn in 0..changes {
        let key = format!("key-{}", random.below(keys)).into_bytes();
        let value = random.one_in(500).then(|| vec![7; 20_000]);
        let value = value.unwrap_or_else(|| format!("{turn}-").repeat(random.index(40)).into());
        match random.below(1000) {
            0..30 => {
                let other = format!("key-{}", random.below(keys)).into_bytes();
                if other != key {
                    let put = value.clone();
                    db.update_many(&[&key, &other], &mut |_| {
                        vec![Edit::Put(put.clone().into()), Edit::Remove]
                    })
                    .unwrap();
                    model.insert(key, Some(value));
                    model.insert(other, None);
                }
            }
            30 if random.one_in(4) => {
                db.clear().unwrap();
                for value in model.values_mut() {
                    *value = None;
                }
            }
            31..40 if upkeep > 0 => db.checkpoint().unwrap(),
            40..50 if upkeep > 3 => {
                for _ in 0..20 {
                    db.maintain().unwrap();
                }
            }
            50 if upkeep > 6 => db.compact(&mut |_, _| ()).unwrap(),
            51 => {
                db.close().unwrap();
                db = HashDb::open_on(memory.clone(), &options.opening).unwrap();
            }
            of if of % 100 < removes => change(&db, &mut model, key, None),
            _ => change(&db, &mut model, key, Some(value)),
        }
    }
    db.checkpoint().unwrap();
    for turn in 0..random.below(30) {
        let key = format!("key-{}", random.below(keys)).into_bytes();
        let value = (!random.one_in(3)).then(|| format!("later-{turn}").into_bytes());
        change(&db, &mut model, key, value);
    }
    if random.one_in(2) {
        db.close().unwrap();
    }
    (memory.to_vec(), model)
}

fn pieces_of_root(bytes: &[u8]) -> Vec<Extent> {
    let storage = stored(bytes);
    let last = superblock_of(storage.as_ref());
    let mut read = root::Read::from(last.root.unwrap());
    let seed = last.geometry.salt ^ ROOT_SEED;
    read.read(storage.as_ref(), seed, false).unwrap();
    read.pieces
}

/// The pages in which the root stands.
fn pages_of_root(bytes: &[u8]) -> Vec<u64> {
    let pages = pieces_of_root(bytes).into_iter().flat_map(|piece| {
        (piece.offset / PAGE..(piece.offset + piece.len).div_ceil(PAGE)).map(|page| page * PAGE)
    });
    let mut pages: Vec<u64> = pages.collect();
    pages.dedup();
    pages
}

/// The first piece of the root that stands in a page: its first byte there, and how many.
fn part_in(bytes: &[u8], page: u64) -> (usize, usize) {
    let mut parts = pieces_of_root(bytes).into_iter().map(|piece| {
        let (from, end) = (piece.offset.max(page), piece.offset + piece.len);
        (from, end.min(page + PAGE).saturating_sub(from))
    });
    let (from, len) = parts.find(|(_, len)| *len > 0).unwrap();
    (from as usize, len as usize)
}

/// The file with `byte` in the place of all of the root that stands in a page.
fn overwritten(bytes: &[u8], page: u64, byte: u8) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    let (from, len) = part_in(bytes, page);
    damaged[from..from + len].fill(byte);
    damaged
}

/// Reads all, and asks for the number of records; how many reads are errors.
fn judge(reader: &dyn Reader, model: &Model, what: &str) -> u64 {
    let failed = judge_records(reader, model, what);
    let present = model.values().filter(|value| value.is_some()).count() as u64;
    assert_eq!(reader.count(), present, "{what}");
    failed
}

/// Reads all records one by one; how many reads are errors.
fn judge_reads(reader: &dyn Reader, model: &Model, what: &str) -> u64 {
    let mut failed = 0;
    for (key, newest) in model {
        match reader.get(key) {
            Ok(found) => assert_eq!(&found, newest, "{what}: {}", String::from_utf8_lossy(key)),
            Err(error) => {
                // An image may stand in a page that cannot be read, too.
                let kinds = [Kind::Corrupted, Kind::Io];
                assert!(kinds.contains(&error.kind()), "{what}: {error}");
                failed += 1;
            }
        }
    }
    failed
}

/// As `judge_reads`, and scans.
fn judge_records(reader: &dyn Reader, model: &Model, what: &str) -> u64 {
    let failed = judge_reads(reader, model, what);
    let present = model.values().filter(|value| value.is_some()).count() as u64;
    let (mut shown, mut reported) = (0, 0);
    reader
        .scan_past(
            None,
            &mut |key, value| {
                let newest = model.get(key).and_then(Option::as_deref);
                assert_eq!(newest, Some(value), "{what}: a scan");
                shown += 1;
                ControlFlow::Continue(())
            },
            &mut |_| {
                reported += 1;
                Ok(())
            },
        )
        .unwrap();
    assert!(
        shown == present || reported > 0,
        "{what}: {shown} of {present}"
    );
    failed
}

/// As `judge_records`, of the file opened for writing and for reading only.
fn judge_both(bytes: &[u8], model: &Model, what: &str) -> u64 {
    let reader = HashReader::open_on(stored(bytes)).expect("it opens");
    judge_records(&opened(bytes), model, what) + judge_records(&reader, model, what)
}

/// Opens the file both ways; how many reads are errors. `None`: it does not open.
fn cost(storage: &Arc<dyn Storage>, model: &Model, what: &str) -> Option<u64> {
    let options = small().capacity(ROOM);
    let db = match HashDb::open_on(Arc::clone(storage), &options.opening) {
        Ok(db) => db,
        Err(error) => {
            assert_eq!(error.kind(), Kind::Corrupted, "{what}: {error}");
            return None;
        }
    };
    let failed = judge(&db, model, what);
    assert!(!db.damage().is_empty(), "{what}");
    for refused in [
        db.put(b"new", b"value"),
        db.checkpoint(),
        db.clear(),
        db.compact(&mut |_, _| ()),
    ] {
        assert_eq!(refused.unwrap_err().kind(), Kind::Corrupted, "{what}");
    }
    assert!(!db.check(&mut |_, _| ()).unwrap().is_sound(), "{what}");
    db.sync(crate::Durability::Power).unwrap();
    db.close().unwrap();
    let reader = HashReader::open_on(Arc::clone(storage)).unwrap();
    assert_eq!(judge(&reader, model, what), failed, "{what}");
    assert!(!reader.damage().is_empty(), "{what}");
    assert!(!reader.check(&mut |_, _| ()).unwrap().is_sound(), "{what}");
    Some(failed)
}

/// Repairs the file, and compares what comes out without a doubt; how much that is. `is_whole`: nothing is damaged but the root, and
/// so many reads of the open file failed.
fn judge_repair(
    storage: &Arc<dyn Storage>,
    model: &Model,
    is_whole: Option<u64>,
    what: &str,
) -> u64 {
    let (target, report) = repaired(storage);
    if is_whole == Some(0) {
        assert_eq!(report.doubtful, 0, "{what}: {report:?}");
    }
    if report.doubtful > report.doubted.len() as u64 {
        return 0;
    }
    let doubted: HashSet<&Key> = report.doubted.iter().map(|doubted| &doubted.key).collect();
    let mut certain = 0;
    for (key, newest) in model.iter().filter(|(key, _)| !doubted.contains(key)) {
        let found = target.get(key).unwrap();
        if is_whole.is_some() || found.is_some() {
            let name = String::from_utf8_lossy(key);
            assert_eq!(&found, newest, "{what}: a repair: {name}");
        }
        certain += u64::from(found.is_some());
    }
    certain
}

#[test]
fn a_file_without_its_root_gives_what_is_certain_and_nothing_else() {
    let (mut cases, mut whole, mut asked, mut failed) = (0, 0, 0, 0);
    let mut certain = 0;
    for file in 0..share(400) {
        let seed = 0x1057 + round_seed() + file;
        let mut random = Random::new(seed);
        let (bytes, model) = drawn(&mut random);
        for (number, page) in pages_of_root(&bytes).into_iter().enumerate() {
            let mut damaged = bytes.clone();
            let (from, len) = part_in(&bytes, page);
            let how = (file as usize + number) % 3;
            match how {
                0 => damaged[from..from + len].fill(0),
                1 => {
                    damaged[from] ^= 4;
                    damaged[from + len - 1] ^= 0x11;
                }
                _ => {}
            }
            let has_two = random.one_in(4);
            if has_two {
                let at = 16384 + random.index(bytes.len() - 16384);
                let end = (at + 600).min(bytes.len());
                damaged[at..end].fill(0);
            }
            let memory = Memory::from_bytes(&damaged, ROOM).unwrap();
            let storage: Arc<dyn Storage> = if how == 2 {
                Arc::new(Unreadable {
                    memory: memory.clone(),
                    page,
                })
            } else {
                memory.clone()
            };
            let what = format!("seed {seed}, page {page:#x}, way {how}, two {has_two}");
            let cost = cost(&storage, &model, &what);
            assert!(cost.is_some() || has_two, "{what}: it does not open");
            let is_whole = cost.filter(|_| !has_two && how != 2);
            certain += judge_repair(&storage, &model, is_whole, &what);
            let db = HashDb::open_on(Arc::clone(&storage), &small().opening);
            let doubts = |db: HashDb| db.damage().iter().any(|of| of.affects.is_unbounded());
            // A page that cannot be read may hold images, too: these are known when they are needed.
            let is_doubted = db.is_ok_and(doubts) || how == 2;
            assert!(is_doubted || cost == Some(0) || has_two, "{what}");
            assert_eq!(memory.to_vec()[..damaged.len()], damaged, "{what}");
            cases += 1;
            asked += model.len() as u64;
            whole += u64::from(cost == Some(0));
            failed += cost.unwrap_or(model.len() as u64);
        }
    }
    tried_at_least(cases, 400, "damaged pages of roots");
    crate::testkit::tried(&format!(
        "{cases} damaged roots, {whole} cost nothing, {failed} of {asked} reads failed, {certain} records \
         certain in repairs"
    ));
    assert!(certain > cases, "{certain} records certain in repairs");
    assert!(whole * 8 >= cases, "{whole} of {cases} cost nothing");
}

/// The sum of a root names the one bit that is wrong: the root is read as it was written, and the next checkpoint writes another.
#[test]
fn a_flipped_bit_of_the_root_costs_nothing() {
    let mut cases = 0;
    for file in 0..share(200) {
        let seed = 0xb17 + round_seed() + file;
        let mut random = Random::new(seed);
        let (bytes, model) = drawn(&mut random);
        for page in pages_of_root(&bytes) {
            let (from, len) = part_in(&bytes, page);
            let (at, bit) = (from + random.index(len), random.below(8));
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let memory = Memory::from_bytes(&damaged, ROOM).unwrap();
            let what = format!("seed {seed}, bit {bit} at {at:#x}");
            let open = || {
                HashDb::open_on(Arc::clone(&memory) as Arc<_>, &small().opening)
                    .unwrap_or_else(|error| panic!("{what}: {error}"))
            };
            let db = open();
            assert_eq!(judge(&db, &model, &what), 0, "{what}");
            db.put(b"after", b"it takes changes")
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            db.close().unwrap();
            let db = open();
            let found = db.get(b"after").unwrap();
            assert_eq!(found.as_deref(), Some(&b"it takes changes"[..]), "{what}");
            let report = db.check(&mut |_, _| ()).unwrap();
            assert!(report.is_sound(), "{what}: {:?}", report.damage);
            cases += 1;
        }
    }
    tried_at_least(cases, 200, "flipped bits of roots");
}

/// A page of the log in the place of another one, and no root: what the index leads to may be a record of another key or another
/// time, which is damage of the record that was meant.
#[test]
fn a_page_written_over_another_one_makes_no_record_absent() {
    let (mut cases, mut failed) = (0, 0);
    for file in 0..share(200) {
        let seed = 0xa57a + round_seed() + file;
        let mut random = Random::new(seed);
        let (bytes, model) = drawn(&mut random);
        let pages = (16384..bytes.len()).step_by(4096);
        let written: Vec<usize> = pages.filter(|at| bytes[*at] != 0).collect();
        let roots = pages_of_root(&bytes);
        for page in roots.into_iter().flat_map(|page| [page; 2]) {
            let mut damaged = overwritten(&bytes, page, 0);
            let (at, other) = (*random.choose(&written), *random.choose(&written));
            damaged.copy_within(other..other + 4096, at);
            let what = format!("seed {seed}, root {page:#x}, {other:#x} over {at:#x}");
            failed += judge_both(&damaged, &model, &what);
            cases += 1;
        }
    }
    tried_at_least(cases, 400, "pages written over others");
    assert!(failed > cases, "{failed} reads failed");
}

/// Another page in the place of the one where the log continues after the checkpoint, the root being whole: what stood there may
/// have changed any record, and a blank place after what was written over is not the end of the log.
#[test]
fn a_page_written_over_the_end_of_the_log_makes_no_record_absent_or_older() {
    let (mut cases, mut open, mut failed) = (0, 0, 0);
    for file in 0..share(200) {
        let seed = 0xe1d + round_seed() + file;
        let mut random = Random::new(seed);
        let (bytes, model) = drawn(&mut random);
        let last = superblock_of(stored(&bytes).as_ref());
        let begin = last.geometry.offset_of(last.start.segment());
        let place = begin + u64::from(last.start.offset().unwrap_or_default());
        let at = (place / PAGE * PAGE) as usize;
        let pages = (16384..bytes.len()).step_by(4096);
        let written = pages.filter(|page| *page != at && bytes[*page] != 0);
        let written: Vec<usize> = written.collect();
        // Pages that are blank where the log continues, if there are any.
        let is_blank = |page: &&usize| bytes[**page + place as usize % 4096..][..8] == [0; 8];
        let blank: Vec<usize> = written.iter().filter(is_blank).copied().collect();
        for _ in 0..5 {
            let mut damaged = bytes.clone();
            let others = if blank.is_empty() { &written } else { &blank };
            let other = *random.choose(others);
            damaged.copy_within(other..other + 4096, at);
            let what = format!("seed {seed}, {other:#x} over {at:#x}");
            failed += judge_both(&damaged, &model, &what);
            cases += 1;
            open += u64::from(last.open);
        }
    }
    tried_at_least(cases, 1000, "pages written over the end of the log");
    assert!(open * 4 > cases, "{open} of {cases} not closed");
    assert!(failed > cases, "{failed} reads failed");
}

/// A segment as it was before it was reused, and no root: what stands there are records of other keys.
#[test]
fn a_segment_of_another_time_makes_no_record_absent() {
    let (memory, db) = empty();
    let put = |keys: std::ops::Range<u32>| {
        for n in keys {
            db.put(format!("key-{n}").as_bytes(), &n.to_le_bytes())
                .unwrap();
        }
    };
    put(0..20_000);
    db.checkpoint().unwrap();
    let before = memory.to_vec();
    for n in 0..20_000u32 {
        assert!(db.remove(format!("key-{n}").as_bytes()).unwrap());
    }
    db.compact(&mut |_, _| ()).unwrap();
    put(20_000..40_000);
    db.close().unwrap();
    let bytes = memory.to_vec();
    let model: Model = (0..40_000u32)
        .map(|n| {
            let value = (n >= 20_000).then(|| n.to_le_bytes().to_vec());
            (format!("key-{n}").into_bytes(), value)
        })
        .collect();
    let page = *pages_of_root(&bytes).last().unwrap();
    let without_root = overwritten(&bytes, page, 0);
    let starts = (16384..bytes.len().min(before.len())).step_by(4096);
    let is_reused = |at: &usize| {
        let (now, then) = (&bytes[*at..*at + 4096], &before[*at..*at + 4096]);
        now.starts_with(b"azsg") && then.starts_with(b"azsg") && now != then
    };
    let reused: Vec<usize> = starts.filter(is_reused).collect();
    assert!(reused.len() > 50, "{} segments", reused.len());
    let mut failed = 0;
    for at in reused.iter().step_by(reused.len() / share(20) as usize) {
        let mut damaged = without_root.clone();
        damaged[*at..at + 4096].copy_from_slice(&before[*at..at + 4096]);
        let what = format!("the segment at {at:#x} is an older one");
        failed += judge_both(&damaged, &model, &what);
    }
    assert!(failed > 0);
}

/// A root of many pages: `(file, what it holds)`. Only its last segments were reused.
fn large() -> (Vec<u8>, Model) {
    let (memory, db) = empty();
    let mut model = no_records();
    let key = |n: u32| format!("key-{n}").into_bytes();
    for n in 0..20_000 {
        change(&db, &mut model, key(n), Some(n.to_le_bytes().to_vec()));
    }
    for n in (0..20_000).step_by(3) {
        change(&db, &mut model, key(n), None);
    }
    db.compact(&mut |_, _| ()).unwrap();
    db.checkpoint().unwrap();
    (memory.to_vec(), model)
}

/// The pieces before the damaged one state the first parts of the index: these cost nothing, in a repair, too.
#[test]
fn damage_of_a_root_costs_the_parts_of_the_index_from_there_on() {
    let (bytes, model) = large();
    let pages = pages_of_root(&bytes);
    assert!(pages.len() > 20, "{} pages", pages.len());
    let mut costs = Vec::new();
    let mut doubtful = Vec::new();
    for page in &pages {
        let storage = stored(&overwritten(&bytes, *page, 0xa5));
        let what = format!("page {page:#x}");
        costs.push(cost(&storage, &model, &what).unwrap());
        if page == &pages[0] || page == &pages[pages.len() / 2] {
            doubtful.push(repaired(&storage).1.doubtful);
        }
    }
    let present = model.values().filter(|value| value.is_some()).count() as u64;
    costs.sort_unstable();
    let (least, most) = (costs[0], costs[costs.len() - 1]);
    assert!(most > present / 2, "{costs:?}");
    assert!(least < most / 10, "{costs:?}");
    assert!(doubtful[1] < doubtful[0] * 2 / 3, "{doubtful:?}");
}

/// Removals and overwriting, but no cleaning: all history is there.
#[test]
fn a_file_of_which_no_segment_was_reused_loses_nothing_with_its_root() {
    let (memory, db) = empty();
    let mut model = no_records();
    for n in 0..3000u32 {
        let value = (n % 5 != 0).then(|| n.to_le_bytes().to_vec());
        change(&db, &mut model, (n % 700).to_le_bytes().to_vec(), value);
    }
    db.checkpoint().unwrap();
    let bytes = memory.to_vec();
    for page in pages_of_root(&bytes) {
        let mut damaged = overwritten(&bytes, page, 0);
        assert_eq!(cost(&stored(&damaged), &model, "no cleaning"), Some(0));
        // Of a segment in the middle a part is lost besides: what follows it is certain.
        for segment in [3, 8, 13] {
            let at = 16384 + segment * 4096 + 1024;
            damaged[at..at + 500].fill(0);
            let failed = cost(&stored(&damaged), &model, &format!("{at:#x} is blank")).unwrap();
            assert!(failed > 0 && failed < model.len() as u64, "{failed}");
        }
    }
}

/// Segments that a recovery dropped have headers, and later sequences than the segment that the log went on from.
#[test]
fn segments_that_a_recovery_dropped_do_not_come_back_without_the_root() {
    let mut stale = 0;
    for after in 1..4 {
        let (bytes, held, ends) = dropped::recovered(after);
        stale += u32::from(dropped::place_of_sequence(&bytes, ends + 1).is_some());
        let memory = Memory::from_bytes(&bytes, ROOM).unwrap();
        let db = HashDb::open_on(memory.clone(), &dropped::options().opening).unwrap();
        db.put(b"one more", b"value").unwrap();
        db.checkpoint().unwrap();
        let bytes = memory.to_vec();
        drop(db);
        let held = held.into_iter().map(|(key, value)| (key, Some(value)));
        let mut model: Model = held.collect();
        model.insert(b"one more".to_vec(), Some(b"value".to_vec()));
        let bytes = overwritten(&bytes, pages_of_root(&bytes)[0], 0);
        // With the segment with which the log ended, too, nothing states that what follows it was dropped.
        let at = dropped::place_of_sequence(&bytes, ends).unwrap();
        for blank in [0, 64, 16384] {
            let mut damaged = bytes.clone();
            damaged[at..at + blank].fill(0);
            let what = format!("{after} segments after, {blank} bytes blank");
            cost(&stored(&damaged), &model, &what).unwrap();
        }
    }
    assert!(stale > 2, "{stale} segments were there still");
}

/// The writer has the root in memory, and reuses segments while readers rebuild the index. With its next checkpoint there is a
/// root again.
#[test]
fn readers_concurrent_with_a_writer_are_not_answered_wrongly_while_there_is_no_root() {
    let (mut opened, mut answered, mut refused) = (0, 0, 0);
    for file in 0..share(300) {
        let seed = 0x5a4e + round_seed() + file;
        let mut random = Random::new(seed);
        let (memory, db) = empty();
        let storage: Arc<dyn Storage> = Arc::new(Shared(memory.clone()));
        let reader = HashReader::open_on(Arc::clone(&storage)).unwrap();
        let keys = *random.choose(&[5, 60, 600]);
        let mut model = no_records();
        let change = |random: &mut Random, model: &mut Model| {
            let key = random.below(keys).to_le_bytes().to_vec();
            let len = random.index(300);
            let value = random.bytes(len);
            change(&db, model, key, (!random.one_in(4)).then_some(value));
        };
        let mut judge = |reader: &HashReader, model: &Model, what: &str| {
            let failed = judge_reads(reader, model, &format!("seed {seed}, {what}"));
            answered += model.len() as u64 - failed;
            refused += failed;
            failed
        };
        for _ in 0..8 {
            for _ in 0..random.below(150) {
                change(&mut random, &mut model);
            }
            match random.below(4) {
                0 => db.checkpoint().unwrap(),
                1 => db.compact(&mut |_, _| ()).unwrap(),
                _ => {
                    for _ in 0..random.below(20) {
                        db.maintain().unwrap();
                    }
                }
            }
            if db.core.checkpoint.lock().committed.root.is_empty() {
                continue;
            }
            for piece in db.core.checkpoint.lock().committed.root.clone() {
                let bytes = vec![0; piece.len as usize];
                memory.write_at(piece.offset, &bytes).unwrap();
            }
            let late = HashReader::open_on(Arc::clone(&storage)).unwrap();
            opened += 1;
            judge(&late, &model, "opened late");
            for _ in 0..random.below(100) {
                change(&mut random, &mut model);
            }
            judge(&late, &model, "opened late, followed");
            judge(&reader, &model, "opened early");
        }
        change(&mut random, &mut model);
        db.checkpoint().unwrap();
        let late = HashReader::open_on(Arc::clone(&storage)).unwrap();
        assert_eq!(judge(&late, &model, "with a root"), 0, "seed {seed}");
        assert!(late.damage().is_empty(), "seed {seed}");
        assert_eq!(
            judge(&reader, &model, "with a root, early"),
            0,
            "seed {seed}"
        );
    }
    tried_at_least(opened, 1000, "readers of a writer without a root");
    crate::testkit::tried(&format!("{answered} answered, {refused} refused"));
}

/// The header of a segment of several units stands over that of another one, so that the log seems to have a segment across others:
/// a repair that does not read those must not take older records for certain.
#[test]
fn a_repair_that_finds_a_segment_over_others_takes_nothing_older_for_certain() {
    let mut cases = 0;
    for seed in 0..share(400) {
        let mut random = Random::new(0xf38 + round_seed() + seed);
        let (memory, db) = empty();
        let mut model = Model::new();
        let mut put = |key: u64, value: Vec<u8>| {
            let key = format!("key-{key}").into_bytes();
            db.put(&key, &value).unwrap();
            model.insert(key, Some(value));
        };
        let changes = 100 + random.below(900);
        let (units, when) = (2 + random.index(20), random.below(changes));
        for change in 0..changes {
            let len = 20 + random.index(300);
            put(random.below(40), vec![change as u8; len]);
            if change == when {
                put(1000, random.bytes(units * 4096 - 500));
            }
            if random.one_in(50) {
                db.checkpoint().unwrap();
                for _ in 0..20 {
                    db.maintain().unwrap();
                }
            }
        }
        db.checkpoint().unwrap();
        put(1001, b"later".to_vec());
        let mut bytes = memory.to_vec();
        drop(db);
        let root = superblock_of(memory.as_ref()).root.unwrap();
        bytes[root.offset as usize..][..root.len as usize].fill(0);
        let mut places = (16384..bytes.len() - 64).step_by(4096);
        let is_long = |at: &usize| {
            let units = u32::from_le_bytes(*bytes[at + 16..].first_chunk().unwrap());
            bytes[*at..].starts_with(b"azsg") && units > 1
        };
        let Some(long) = places.clone().find(is_long) else {
            continue;
        };
        for at in places.by_ref().filter(|at| *at != long) {
            let mut damaged = bytes.clone();
            damaged.copy_within(long..long + 64, at);
            let what = format!("seed {seed}, {at:#x}");
            judge_repair(&stored(&damaged), &model, None, &what);
            cases += 1;
        }
    }
    tried_at_least(cases, 8000, "segments over others");
}
