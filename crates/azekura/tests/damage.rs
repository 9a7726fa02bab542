//! A damaged hash file gives right answers or errors, never wrong answers, and is repaired to what is true.
//!
//! Files of many shapes are damaged by `testkit::damage` - bits, bytes, integers, sectors lost, swapped and
//! misdirected, ends cut, generations mixed - then opened for writing and for reading, read, checked and
//! written to; some are repaired. An answer that fails must be seen by `check` too.
//!
//! Where an earlier state is put back (a cut end, old sectors) an older value may be right. So it is in
//! files of a process that was killed: behind their durable mark, nothing tells a zeroed frame from one
//! that was never published. Lines beginning `tried:` say how much was tried.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::record::hash::{Compression, HashDb, HashReader, Options, repair};
use azekura::testkit::damage::{Effort, Image, Mutation, Verdict, fuzz, read_all};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Edit, Engine, Kind, Persistent, Reader};

const ROOM: u64 = 16 << 20;

fn options(compression: Compression) -> Options {
    Options {
        segment_size: 4096,
        background: false,
        compression,
        capacity: ROOM,
        ..Options::default()
    }
}

/// A file being made, with what it holds and held.
struct Maker {
    memory: Arc<Memory>,
    db: Option<HashDb>,
    options: Options,
    image: Image,
    random: Random,
}

impl Maker {
    fn new(compression: Compression, seed: u64) -> Self {
        let memory = Memory::new(ROOM).expect("memory");
        let options = options(compression);
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
        self.db = Some(HashDb::open_on(storage, &self.options).expect("it opens again"));
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
fn open_and_use(image: &Image, bytes: &[u8], compression: Compression) -> Verdict {
    let memory = Memory::from_bytes(bytes, ROOM).expect("memory");
    let db = match HashDb::open_on(memory, &options(compression)) {
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

fn damage(what: &str, images: Vec<Image>, cases: u64, seed: u64, older: fn(&Mutation) -> bool) {
    let effort = Effort {
        cases,
        seed: seed + round_seed(),
        older_is_right: older,
        ..Effort::QUICK
    };
    let verify = |image: &Image, bytes: Vec<u8>| open_and_use(image, &bytes, NONE);
    match fuzz(images, Arc::new(verify), &effort) {
        Ok(counts) => tried(&format!("{what}: {counts}")),
        Err(failure) => panic!("{what}: {failure}"),
    }
}

#[test]
fn a_damaged_closed_file_is_never_answered_from_wrongly() {
    damage(
        "closed, for writing",
        closed_images(),
        9000,
        1,
        Mutation::can_restore,
    );
}

#[test]
fn a_damaged_file_of_a_killed_process_shows_only_what_once_was() {
    damage("killed, for writing", killed_images(), 7000, 2, |_| true);
}

#[test]
fn a_reader_of_a_damaged_file_is_never_answered_wrongly() {
    let effort = Effort {
        cases: 9000,
        seed: 3 + round_seed(),
        older_is_right: Mutation::can_restore,
        ..Effort::QUICK
    };
    let verify = |image: &Image, bytes: Vec<u8>| open_and_look(image, &bytes);
    match fuzz(closed_images(), Arc::new(verify), &effort) {
        Ok(counts) => tried(&format!("closed, for reading: {counts}")),
        Err(failure) => panic!("{failure}"),
    }
}

/// Files that are repaired.
const CASES: u64 = 500;

#[test]
fn a_repair_yields_only_what_was_true_and_says_what_is_not_sure() {
    let folder = tempfile::tempdir().expect("a folder");
    let (damaged, target) = (
        folder.path().join("damaged.azh"),
        folder.path().join("target.azh"),
    );
    let images: Vec<Image> = closed_images().into_iter().chain(killed_images()).collect();
    let (mut refused, mut records, mut older) = (0u64, 0u64, 0u64);
    for case in 0..CASES {
        let image = &images[case as usize % images.len()];
        let mut random = Random::new(case);
        let mutation = Mutation::choose(image, &mut random);
        std::fs::write(&damaged, mutation.apply(image)).expect("a file");
        let _gone = std::fs::remove_file(&target);
        let report = match repair(&damaged, &target, &mut |_, _| ()) {
            Ok(report) => report,
            Err(error) => {
                assert!(
                    matches!(error.kind(), Kind::Corrupted | Kind::Mismatch),
                    "{error}"
                );
                refused += 1;
                continue;
            }
        };
        let db = HashDb::open(&target, &options(NONE)).expect("what was repaired opens");
        assert!(
            db.check(&mut |_, _| ()).expect("a check").is_sound(),
            "{mutation:?}"
        );
        let mut wrong = 0;
        db.scan(None, &mut |key, value| {
            records += 1;
            let now = image.now.get(key).and_then(Option::as_deref);
            if now != Some(value) {
                let once = image.once.get(key).is_some_and(|once| once.contains(value));
                assert!(
                    once,
                    "case {case}, {mutation:?}: {key:?} never had this value"
                );
                wrong += 1;
            }
            ControlFlow::Continue(())
        })
        .expect("a scan");
        older += wrong;
        assert!(
            wrong <= report.doubtful || mutation.can_restore(),
            "case {case}, {mutation:?}: {wrong} older values, {report:?}"
        );
        assert_eq!(report.recovered, db.count());
    }
    assert!(records > 1000);
    tried(&format!(
        "{CASES} repairs: {records} records, {older} older, {refused} refused"
    ));
}

#[test]
fn a_repair_of_a_sound_file_brings_everything_over() {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, image) in closed_images().into_iter().enumerate() {
        let sound = folder.path().join(format!("{number}.azh"));
        let target = folder.path().join(format!("{number}-new.azh"));
        std::fs::write(&sound, &image.bytes).expect("a file");
        let report = repair(&sound, &target, &mut |_, _| ()).expect("a repair");
        assert_eq!(
            (report.doubtful, report.lost.len()),
            (0, 0),
            "image {number}: {report:?}"
        );
        let db = HashDb::open(&target, &options(NONE)).expect("it opens");
        let mut found = BTreeMap::new();
        db.scan(None, &mut |key, value| {
            found.insert(key.to_vec(), Some(value.to_vec()));
            ControlFlow::Continue(())
        })
        .expect("a scan");
        let mut wanted = image.now.clone();
        wanted.retain(|_, value| value.is_some());
        assert_eq!(found, wanted, "image {number}");
    }
}

/// A verifier that believes: it answers from the frames without looking at checksums. Here: it keeps the sound
/// file's answers for keys that fail, as a store would that ignores errors.
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
