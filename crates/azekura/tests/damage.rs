//! A damaged hash file gives right answers or errors, never wrong answers, and is repaired to what is true.
//!
//! Files of many shapes, and others whose configuration and history are drawn from seeds, are damaged by `testkit::damage` -
//! bits, bytes, integers, sectors lost, swapped and misdirected, ends cut, generations mixed - then opened for writing and for
//! reading, read, checked and written to; some are repaired. An answer that fails must be seen by `check` too.
//!
//! Where an earlier state is put back (a cut end, old sectors) an older value may be right. So it is in
//! files of a process that was killed: after their durable mark, nothing distinguishes a zeroed frame from one
//! that was never published. Lines beginning `tried:` state how much was tried.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::record::hash::{
    Compression, CreateOptions, HashDb, HashReader, OpenOptions, RepairReport, repair,
};
use azekura::testkit::configuration::{Within, hash_options};
use azekura::testkit::damage::{Effort, Image, Mutation, Verdict, fuzz, read_all};
use azekura::testkit::suite::{self, demand, share, third, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Durability, Edit, Engine, Kind, Persistent, Reader};

const ROOM: u64 = 16 << 20;

fn options(compression: Compression) -> CreateOptions {
    CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .compression(compression)
        .capacity(ROOM)
}

const SEGMENT_SIZE_MAX: u64 = 64 << 10;

/// What a file that is damaged may be. Larger ones are in `degraded`.
const WITHIN: Within = Within {
    segment_size_max: SEGMENT_SIZE_MAX,
    holds: Some(200_000),
    ..Within::bytes(ROOM)
};

/// The options under which these bytes are opened: drawn from them.
fn options_of(bytes: &[u8]) -> CreateOptions {
    let some = bytes.iter().step_by(61);
    let seed = some.fold(bytes.len() as u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let options = hash_options(&mut Random::new(seed), &WITHIN);
    let least = HashDb::least_capacity(SEGMENT_SIZE_MAX);
    options
        .clone()
        .capacity(options.opening.capacity.max(least))
}

/// A file being made, with what it holds and held.
struct Maker {
    memory: Arc<Memory>,
    db: Option<HashDb>,
    options: CreateOptions,
    image: Image,
    random: Random,
}

impl Maker {
    fn new(compression: Compression, seed: u64) -> Self {
        Self::with(options(compression), seed)
    }

    fn with(options: CreateOptions, seed: u64) -> Self {
        let memory = Memory::new(ROOM).expect("memory");
        let db = HashDb::create_on(Arc::clone(&memory) as Arc<_>, &options).expect("a new store");
        let mut image = Image::default();
        image.now.insert(b"absent".to_vec(), None);
        Self {
            memory,
            db: Some(db),
            options,
            image,
            random: Random::new(seed),
        }
    }

    fn db(&self) -> &HashDb {
        self.db.as_ref().expect("it is open")
    }

    fn remember(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        let before = self.image.now.insert(key.to_vec(), value).flatten();
        if let Some(before) = before {
            self.image
                .once
                .entry(key.to_vec())
                .or_default()
                .insert(before);
        }
    }

    /// Puts and removes records of `keys` keys.
    fn churn(mut self, ops: u64, keys: u64, value_len_max: usize) -> Self {
        for _ in 0..ops {
            let key = format!("key-{}", self.random.below(keys)).into_bytes();
            if self.random.one_in(5) {
                self.db().remove(&key).expect("a removal");
                self.remember(&key, None);
            } else {
                let len = self.random.index(value_len_max);
                // Half noise, half text, so that compression has something to do.
                let mut value = self.random.bytes(len / 2);
                value.resize(len, b'x');
                self.db().put(&key, &value).expect("a put");
                self.remember(&key, Some(value));
            }
        }
        self
    }

    fn batches(mut self, count: u64) -> Self {
        for number in 0..count {
            let keys: Vec<Vec<u8>> = (0..4)
                .map(|part| format!("batch-{}-{part}", number % 5).into_bytes())
                .collect();
            let value = self.random.bytes(40 + number as usize);
            let shown: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            self.db()
                .update_many(&shown, &mut |_| {
                    keys.iter()
                        .map(|_| Edit::Put(value.clone().into()))
                        .collect()
                })
                .expect("a batch");
            for key in keys {
                self.remember(&key, Some(value.clone()));
            }
        }
        self
    }

    fn then(self, act: impl FnOnce(&HashDb)) -> Self {
        act(self.db());
        self
    }

    /// What is there now is the older generation.
    fn into_older(mut self) -> Self {
        self.image.older = self.memory.to_vec();
        self
    }

    fn reopened(mut self) -> Self {
        self.db
            .take()
            .expect("it is open")
            .close()
            .expect("it closes");
        let storage = Arc::clone(&self.memory) as Arc<dyn Storage>;
        self.db = Some(HashDb::open_on(storage, &self.options.opening).expect("it opens again"));
        self
    }

    /// The file after a close.
    fn closed(mut self) -> Image {
        self.db
            .take()
            .expect("it is open")
            .close()
            .expect("it closes");
        self.image.bytes = self.memory.to_vec();
        self.image
    }

    /// The file as a killed process leaves it.
    fn killed(mut self) -> Image {
        self.image.bytes = self.memory.to_vec();
        self.image
    }
}

const NONE: Compression = Compression::None;

fn checkpoint(db: &HashDb) {
    db.checkpoint().expect("a checkpoint");
}

fn compact(db: &HashDb) {
    db.compact(&mut |_, _| ()).expect("a compaction");
}

/// A file whose configuration and history this seed decides.
fn drawn_image(seed: u64, is_closed: bool) -> Image {
    let mut random = Random::new(!seed);
    let mut maker = Maker::with(hash_options(&mut random, &WITHIN), seed);
    let (keys, len) = *random.choose(&[(5, 60), (60, 100), (400, 20), (40, 900), (6, 12_000)]);
    for _ in 0..=random.below(4) {
        let ops = 1 + random.below(3 * keys);
        maker = match random.below(8) {
            0..4 => maker.churn(ops, keys, len),
            4 => maker.batches(1 + random.below(20)),
            5 => maker.then(checkpoint),
            6 => maker.then(compact),
            _ => maker.reopened(),
        };
        if random.one_in(2) {
            maker = maker.into_older();
        }
    }
    maker = maker.churn(1 + random.below(keys), keys, len);
    if is_closed {
        maker.closed()
    } else {
        maker.killed()
    }
}

/// These files and drawn ones, each with what it was made of.
fn and_drawn(fixed: Vec<Image>, seed: u64, is_closed: bool) -> Vec<(String, Image)> {
    let fixed = fixed.into_iter().enumerate();
    let fixed = fixed.map(|(number, image)| (format!("shape {number}"), image));
    let first = seed + round_seed();
    let drawn = (first..first + share(DRAWN)).map(|seed| {
        let options = hash_options(&mut Random::new(!seed), &WITHIN);
        (
            format!("drawn from seed {seed}, {options:?}"),
            drawn_image(seed, is_closed),
        )
    });
    fixed.chain(drawn).collect()
}

/// Files drawn for each test in a full run.
const DRAWN: u64 = 150;

fn closed_images() -> Vec<Image> {
    vec![
        Maker::new(NONE, 1).closed(),
        Maker::new(NONE, 2)
            .churn(10, 5, 60)
            .into_older()
            .churn(10, 5, 60)
            .closed(),
        Maker::new(NONE, 3)
            .churn(60, 30, 100)
            .into_older()
            .reopened()
            .churn(60, 30, 100)
            .closed(),
        Maker::new(NONE, 4)
            .churn(150, 60, 100)
            .then(checkpoint)
            .into_older()
            .churn(40, 60, 80)
            .closed(),
        Maker::new(NONE, 5)
            .churn(600, 60, 100)
            .then(checkpoint)
            .into_older()
            .churn(900, 60, 99)
            .closed(),
        Maker::new(NONE, 6)
            .churn(400, 80, 90)
            .into_older()
            .then(compact)
            .churn(20, 80, 90)
            .closed(),
        Maker::new(NONE, 7)
            .batches(12)
            .into_older()
            .batches(15)
            .closed(),
        Maker::new(NONE, 8)
            .churn(12, 6, 12_000)
            .into_older()
            .churn(8, 6, 12_000)
            .closed(),
        Maker::new(Compression::Lz4, 9)
            .churn(120, 40, 600)
            .into_older()
            .churn(40, 40, 600)
            .closed(),
        Maker::new(Compression::Zstd, 10)
            .churn(120, 40, 600)
            .into_older()
            .churn(40, 40, 600)
            .closed(),
        Maker::new(NONE, 11)
            .churn(500, 400, 20)
            .then(checkpoint)
            .into_older()
            .then(compact)
            .closed(),
    ]
}

fn killed_images() -> Vec<Image> {
    vec![
        Maker::new(NONE, 21).killed(),
        Maker::new(NONE, 22)
            .churn(15, 6, 60)
            .into_older()
            .churn(10, 5, 60)
            .killed(),
        Maker::new(NONE, 23)
            .churn(150, 60, 100)
            .then(checkpoint)
            .into_older()
            .churn(99, 60, 80)
            .killed(),
        Maker::new(NONE, 24)
            .churn(700, 60, 100)
            .reopened()
            .into_older()
            .churn(300, 60, 100)
            .killed(),
        Maker::new(NONE, 25)
            .batches(20)
            .then(checkpoint)
            .into_older()
            .batches(20)
            .killed(),
        Maker::new(Compression::Lz4, 26)
            .churn(90, 40, 900)
            .into_older()
            .churn(40, 40, 900)
            .killed(),
        Maker::new(NONE, 27)
            .churn(12, 6, 12_000)
            .into_older()
            .churn(8, 6, 12_000)
            .killed(),
    ]
}

/// Whether an answer or the scan failed.
fn failed(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Refused(_) => false,
        Verdict::Read { answers, scan } => {
            scan.1.is_some() || answers.iter().any(|(_, answer)| answer.is_err())
        }
    }
}

/// Opens for writing, reads, checks, writes.
fn open_and_use(image: &Image, bytes: &[u8]) -> Verdict {
    let memory = Memory::from_bytes(bytes, ROOM).expect("memory");
    let db = match HashDb::open_on(memory, &options_of(bytes).opening) {
        Ok(db) => db,
        Err(error) => {
            assert!(
                matches!(error.kind(), Kind::Corrupted | Kind::Mismatch),
                "{error}"
            );
            return Verdict::Refused(error);
        }
    };
    let verdict = read_all(&db, image.now.keys());
    let report = db.check(&mut |_, _| ());
    if failed(&verdict) {
        let sound = report.is_ok_and(|report| report.is_sound());
        assert!(!sound, "an answer failed, and the file is said to be sound");
    }
    for number in 0..20u32 {
        // It may be refused, but must end.
        let key = format!("new-{number}");
        if db.put(key.as_bytes(), &[1; 300]).is_ok() {
            assert_eq!(db.get(key.as_bytes()).ok(), Some(Some(vec![1; 300])));
        }
    }
    let _checkpointed = db.checkpoint();
    let _cleaned = db.maintain();
    let _closed = db.close();
    verdict
}

fn open_and_look(image: &Image, bytes: &[u8]) -> Verdict {
    let memory = Memory::from_bytes(bytes, ROOM).expect("memory");
    match HashReader::open_on(memory) {
        Ok(reader) => read_all(&reader, image.now.keys()),
        Err(error) => Verdict::Refused(error),
    }
}

type Verify = fn(&Image, &[u8]) -> Verdict;

/// Cases of each test in a full run; `make test` tries a third.
const CASES: u64 = 15_000;

fn damage(
    what: &str,
    images: Vec<(String, Image)>,
    seed: u64,
    older: fn(&Mutation) -> bool,
    verify: Verify,
) {
    let effort = Effort {
        cases: third(CASES),
        seed: seed + round_seed(),
        older_is_right: older,
        ..Effort::QUICK
    };
    let (made, images): (Vec<_>, Vec<_>) = images.into_iter().unzip();
    let verify = move |image: &Image, bytes: Vec<u8>| verify(image, &bytes);
    match fuzz(images, Arc::new(verify), &effort) {
        Ok(counts) => demand(
            counts.cases,
            third(CASES),
            &format!("cases, {what}: {counts}"),
        ),
        Err(failure) => panic!("{what}: {failure}; the file: {}", made[failure.image]),
    }
}

#[test]
fn a_damaged_closed_file_is_never_answered_from_wrongly() {
    damage(
        "closed, for writing",
        and_drawn(closed_images(), 1000, true),
        1,
        Mutation::can_restore,
        open_and_use,
    );
}

#[test]
fn a_damaged_file_of_a_killed_process_shows_only_what_once_was() {
    damage(
        "killed, for writing",
        and_drawn(killed_images(), 2000, false),
        2,
        |_| true,
        open_and_use,
    );
}

#[test]
fn a_reader_of_a_damaged_file_is_never_answered_wrongly() {
    damage(
        "closed, for reading",
        and_drawn(closed_images(), 3000, true),
        3,
        Mutation::can_restore,
        open_and_look,
    );
}

/// Files that are repaired in a full run, half of them after one mutation.
const REPAIRS: u64 = 3000;
/// Of these, repairs after which losses must be reported if records are missing.
const STRICT: u64 = 1200;

/// A folder in which files are repaired, one after another.
struct Repairs(tempfile::TempDir);

impl Repairs {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// Repairs a file of these bytes; where the repaired one is.
    fn repair(&self, bytes: &[u8]) -> azekura::Result<(RepairReport, PathBuf)> {
        let [damaged, target] = ["damaged.azh", "target.azh"].map(|name| self.0.path().join(name));
        std::fs::write(&damaged, bytes).expect("a file");
        let _gone = std::fs::remove_file(&target);
        let report = repair(&damaged, &target, &mut |_, _| ())?;
        Ok((report, target))
    }
}

/// What is done to a file before it is repaired, and the file: every other time one mutation, of a single bit if of bits.
fn mutated(case: u64, image: &Image, random: &mut Random) -> (Vec<Mutation>, Vec<u8>) {
    let count = if case.is_multiple_of(2) {
        1
    } else {
        2 + random.below(4)
    };
    let mut damaged = image.clone();
    let mut mutations = Vec::new();
    for _ in 0..count {
        let mut mutation = Mutation::choose(&damaged, random);
        if let (1, Mutation::Flip(bits)) = (count, &mut mutation) {
            bits.truncate(1);
        }
        damaged.bytes = mutation.apply(&damaged);
        mutations.push(mutation);
    }
    (mutations, damaged.bytes)
}

/// Whether words of the log after the durable mark are zero that were none; after all of it, if the mark was changed.
fn is_unpublished(before: &[u8], after: &[u8]) -> bool {
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
        u64::from_le_bytes(word.unwrap_or_default())
    };
    let mark = 8192..8216;
    let is_marked = before.get(mark.clone()) == after.get(mark);
    let durable = if is_marked {
        (word(before, 8192), word(before, 8200) & 0xffff_ffff)
    } else {
        (0, 0)
    };
    // Where the segment of the present word begins, and its sequence.
    let (mut begin, mut sequence) = (0, 0);
    (16_384..before.len()).step_by(8).any(|at| {
        if at % 4096 == 0 && before[at..].starts_with(b"azsg") {
            (begin, sequence) = (at, word(before, at + 8));
        }
        let is_durable = (sequence, (at - begin) as u64) < durable;
        !is_durable && word(after, at) == 0 && word(before, at) != 0
    })
}

/// Whether both slots of the superblock were changed.
fn lost_both_slots(before: &[u8], after: &[u8]) -> bool {
    [0, 4096].iter().all(|at| {
        let slot = *at..*at + 512;
        before.get(slot.clone()) != after.get(slot)
    })
}

/// Whatever was done to a file, a repair brings over only what was once true, and reports what may be older. After one mutation
/// that can put nothing older back, it is not refused, and reports losses when records are missing.
#[test]
fn a_repair_yields_only_what_was_true_and_says_what_is_not_sure() {
    let repairs = Repairs::new();
    let closed = and_drawn(closed_images(), 4000, true);
    let killed = and_drawn(killed_images(), 5000, false);
    let first_killed = closed.len();
    let images: Vec<(String, Image)> = closed.into_iter().chain(killed).collect();
    let (mut refused, mut records, mut older, mut missed) = (0u64, 0u64, 0u64, 0u64);
    let (mut strict, mut several) = (0, 0);
    let mut cases = 0;
    // How many are strict depends on what is drawn; runs in which hardly any is end, and fail.
    while cases < share(REPAIRS) || strict < share(STRICT) && cases < 2 * share(REPAIRS) {
        let case = cases;
        cases += 1;
        // The images take turns, each with one mutation and with several.
        let number = (case / 2) as usize % images.len();
        let (made, image) = &images[number];
        let is_killed = number >= first_killed;
        let _shown = suite::case(case, made);
        let mut random = Random::new(case + round_seed());
        let (mutations, bytes) = mutated(case, image, &mut random);
        let restores = mutations.iter().any(Mutation::can_restore);
        // Of a killed process: a frame that was blanked and never synced is as one that was never published.
        let restores = restores || is_killed && is_unpublished(&image.bytes, &bytes);
        let is_strict = mutations.len() == 1 && !restores && !lost_both_slots(&image.bytes, &bytes);
        strict += u64::from(is_strict);
        several += u64::from(mutations.len() > 1);
        let what = format!("case {case}, {mutations:?}");
        let (report, target) = match repairs.repair(&bytes) {
            Ok(repaired) => repaired,
            Err(error) => {
                assert!(
                    matches!(error.kind(), Kind::Corrupted | Kind::Mismatch),
                    "{error}"
                );
                assert!(!is_strict, "{what}: {error}");
                refused += 1;
                continue;
            }
        };
        let db = HashDb::open(&target, &OpenOptions::default()).expect("what was repaired opens");
        assert!(
            db.check(&mut |_, _| ()).expect("a check").is_sound(),
            "{what}"
        );
        let (mut wrong, mut found) = (0, 0);
        db.scan(None, &mut |key, value| {
            records += 1;
            let now = image.now.get(key).and_then(Option::as_deref);
            found += u64::from(now.is_some());
            if now != Some(value) {
                let once = image.once.get(key).is_some_and(|once| once.contains(value));
                assert!(once, "{what}: {key:?} never had this value");
                wrong += 1;
            }
            ControlFlow::Continue(())
        })
        .expect("a scan");
        older += wrong;
        assert!(
            wrong <= report.doubtful || restores,
            "{what}: {wrong} older values, {report:?}"
        );
        let present = image.now.values().filter(|value| value.is_some()).count() as u64;
        missed += present - found;
        assert!(
            found == present || report.losses > 0 || !is_strict,
            "{what}: {found} of {present} records, {report:?}"
        );
        assert_eq!(report.recovered, db.count());
    }
    assert!(records > 1000);
    tried(&format!(
        "repairs: {records} records, {older} older, {missed} missing, {refused} refused"
    ));
    tried_at_least(
        strict,
        STRICT,
        "repairs after one mutation that are to report what is missing",
    );
    demand(
        several,
        share(REPAIRS) / 2,
        "repairs after several mutations",
    );
}

/// Of each killed file each segment is lost, also together with the link to it, or overwritten by a copy of another one: older
/// values are in doubt then.
#[test]
fn a_repair_of_a_file_without_one_of_its_segments_doubts_older_values() {
    const SEGMENT: usize = 4096;
    let repairs = Repairs::new();
    let (mut lost, mut copied, mut older) = (0, 0, 0);
    let links = |at: usize| at - SEGMENT + 24..at - SEGMENT + 28;
    let mut repair_without =
        |bytes: &[u8], image: &Image, (at, from): (usize, Option<usize>), what: &str| {
            let mut bytes = bytes.to_vec();
            let end = (at + SEGMENT).min(bytes.len());
            match from {
                None => bytes[at..end].fill(0),
                Some(from) => bytes.copy_within(from..from + (end - at), at),
            }
            // The durable mark, too: it would cover what was synced.
            bytes[8192..8192 + SEGMENT].fill(0);
            let (report, target) = repairs.repair(&bytes).expect(what);
            let db = HashDb::open(&target, &OpenOptions::default()).expect(what);
            let mut wrong = 0;
            db.scan(None, &mut |key, value| {
                let now = image.now.get(key).and_then(Option::as_deref);
                wrong += u64::from(now != Some(value));
                ControlFlow::Continue(())
            })
            .expect(what);
            assert!(wrong <= report.doubtful, "{what}: {wrong}, {report:?}");
            older += wrong;
        };
    for (number, image) in killed_images().into_iter().enumerate() {
        let is_segment = |at: &usize| image.bytes[*at..].starts_with(b"azsg");
        let segments: Vec<usize> = (16_384..image.bytes.len())
            .step_by(SEGMENT)
            .filter(is_segment)
            .collect();
        for &at in &segments {
            let what = format!("shape {number}, segment at {at:#x}");
            repair_without(&image.bytes, &image, (at, None), &what);
            let mut unlinked = image.bytes.clone();
            if segments.contains(&(at - SEGMENT)) {
                unlinked[links(at)].fill(0xff);
            }
            repair_without(&unlinked, &image, (at, None), &format!("{what}, unlinked"));
            lost += 2;
            let others = segments.iter().filter(|from| **from != at);
            for &from in others.skip(number % 3).step_by(3) {
                let what = format!("{what}, a copy of {from:#x}");
                repair_without(&image.bytes, &image, (at, Some(from)), &what);
                copied += 1;
            }
        }
    }
    assert!(older > 0, "no older value came up");
    let what = format!("repairs without a segment, {older} older values");
    demand(lost, 96, &what);
    demand(copied, 182, "repairs with a segment overwritten by another");
}

/// A frame that was synced and is blank was taken for one that was never published.
#[test]
fn a_repair_reports_what_was_synced_and_is_blank() {
    let repairs = Repairs::new();
    let mut blanked = 0;
    for seed in 31..33 {
        let maker = Maker::new(NONE, seed).churn(30, 20, 400);
        let image = maker
            .then(|db| Persistent::sync(db, Durability::Power).expect("a sync"))
            .killed();
        let present = image.now.values().filter(|value| value.is_some()).count() as u64;
        let written = image
            .bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .expect("frames");
        // From some of these places on, whole frames are blank and nothing else.
        let last = written / 8 * 8;
        for at in (last - 600..=last).step_by(8) {
            let mut bytes = image.bytes.clone();
            bytes[at..].fill(0);
            let (report, _) = repairs.repair(&bytes).expect("a repair");
            let what = format!("seed {seed}, {at:#x}: {} of {present}", report.recovered);
            assert!(report.recovered == present || report.losses > 0, "{what}");
            blanked += u64::from(report.losses > 0);
        }
    }
    demand(blanked, 152, "blank ends that are reported as losses");
}

#[test]
fn a_repair_of_a_sound_file_brings_everything_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let closed = closed_images();
    let least = closed.len() as u64 + share(DRAWN);
    let images = and_drawn(closed, 6000, true);
    let mut repaired = 0;
    for (number, (made, image)) in images.into_iter().enumerate() {
        let _shown = suite::case(number as u64, &made);
        let sound = folder.path().join(format!("{number}.azh"));
        let target = folder.path().join(format!("{number}-new.azh"));
        std::fs::write(&sound, &image.bytes).expect("a file");
        let report = repair(&sound, &target, &mut |_, _| ()).expect("a repair");
        assert_eq!(
            (report.doubtful, report.lost.len()),
            (0, 0),
            "image {number}: {report:?}"
        );
        let db = HashDb::open(&target, &options(NONE).opening).expect("it opens");
        let mut found = BTreeMap::new();
        db.scan(None, &mut |key, value| {
            found.insert(key.to_vec(), Some(value.to_vec()));
            ControlFlow::Continue(())
        })
        .expect("a scan");
        let mut wanted = image.now.clone();
        wanted.retain(|_, value| value.is_some());
        assert_eq!(found, wanted, "image {number}");
        repaired += 1;
    }
    demand(repaired, least, "repairs of sound files");
}

/// A verifier that ignores errors: it answers absence for keys that cannot be read.
#[test]
fn verifiers_that_swallow_errors_are_seen() {
    let swallowed = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&swallowed);
    let verify = move |image: &Image, bytes: Vec<u8>| match open_and_look(image, &bytes) {
        Verdict::Read { answers, scan } => {
            let absent = |(key, answer): (Vec<u8>, azekura::Result<Option<Vec<u8>>>)| {
                let answer = answer.unwrap_or_else(|_| {
                    counter.fetch_add(1, Ordering::Relaxed);
                    None
                });
                (key, Ok(answer))
            };
            Verdict::Read {
                answers: answers.into_iter().map(absent).collect(),
                scan,
            }
        }
        refused @ Verdict::Refused(_) => refused,
    };
    let effort = Effort {
        cases: 2000,
        ..Effort::QUICK
    };
    let failure = fuzz(closed_images(), Arc::new(verify), &effort).expect_err("it is seen");
    assert!(swallowed.load(Ordering::Relaxed) > 0);
    let kinds: BTreeSet<&str> = [failure.what.split(' ').next_back().unwrap_or_default()].into();
    tried(&format!(
        "swallowed errors are seen in case {}: {kinds:?}",
        failure.case
    ));
}
