//! Files that were cut off at any length, and closed files after whose end something stands: what is left is given, what is
//! gone is an error, and what was never the file's does not matter. An opening that refuses changes makes none.
//! Damage within a file is elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura::io::memory::Memory;
use azekura::io::over::Over;
use azekura::io::{Map, Storage};
use azekura::record::hash::{CreateOptions, HashDb, HashReader};
use azekura::testkit::suite::{demand, third};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Persistent as _, Result};

use super::{Made, ROOM, Repairs, cost, judge, value_of};

/// The superblocks and the mark.
const HEAD: u64 = 16384;

#[test]
fn a_file_that_is_cut_off_gives_what_is_left() {
    let files = third(60);
    let (mut cases, mut refused, mut kept) = (0, 0, 0);
    for file in 0..files {
        let seed = 0xc07 + round_seed() + file;
        let made = Made::draw(seed);
        let mut random = Random::new(!seed);
        let size = made.bytes.len() as u64;
        let segment = made.options.segment_size;
        let drawn = HEAD + random.below(size - HEAD);
        let whole = HEAD + random.below((size - HEAD) / segment) * segment;
        // Where frames may begin, among the last ones: the log's words after the cut read as zeros.
        let between = made.end - 8 * random.below(((made.end - HEAD) / 8).clamp(1, 256));
        let near = made.end - 8 * (1 + random.below(16)).min((made.end - HEAD) / 8);
        for len in [
            between,
            near,
            size - 1,
            size - 4096,
            size / 2,
            made.end - 1,
            made.end - 4096.min(made.end - HEAD),
            drawn,
            drawn & !4095,
            whole,
            whole + 1,
            whole + 24,
            HEAD - 1,
            4096,
        ] {
            let mut bytes = made.bytes.clone();
            bytes.truncate(len as usize);
            let what = format!("cut at {len} of {size}, closed {}", made.is_closed);
            let cost = cost(&made, &what, &bytes, None);
            refused += u64::from(cost.refused && len > HEAD);
            kept += u64::from(!cost.refused && cost.keys < made.now.len() as u64);
            cases += 1;
            // An opening that refuses changes leaves the file as it is.
            let memory = Memory::from_bytes(&bytes, ROOM).expect("memory");
            if let Ok(db) = HashDb::open_on(Arc::clone(&memory) as Arc<_>, &made.options.opening)
                && db.put(b"new", b"value").is_ok()
            {
                continue;
            }
            assert!(memory.to_vec() == bytes, "seed {seed}, {what}: it changed");
        }
    }
    tried(&format!(
        "{cases} cuts, {refused} refused, {kept} of which something is read"
    ));
    demand(cases, files * 14, "lengths at which files are cut");
    demand(kept, files * 4, "cut files of which something is read");
    assert_eq!(refused, 0, "of {cases}");
}

/// A closed file of so many records, with bytes past its end that no writer put there.
struct Stray {
    memory: Arc<Memory>,
    options: CreateOptions,
    count: u64,
    what: String,
}

impl Stray {
    /// `None`: there is no room for what was drawn.
    fn draw(seed: u64, random: &mut Random) -> Option<Self> {
        let options = CreateOptions::new()
            .segment_size(*random.choose(&[4096, 64 << 10, 1 << 20]))
            .background(false)
            .capacity(ROOM);
        let memory = Memory::new(ROOM).expect("memory");
        let db = HashDb::create_on(Arc::clone(&memory) as Arc<_>, &options).expect("a new store");
        let count = random.below(20);
        for key in 0..count {
            db.put(&key.to_le_bytes(), &value_of(key)).expect("a put");
        }
        db.close().expect("it closes");
        let db =
            HashDb::open_on(Arc::clone(&memory) as Arc<_>, &options.opening).expect("it opens");
        let (log, end) = (db.log(), db.log().end());
        let first = log.geometry().offset_of(end.segment());
        let after = end.offset().map_or(segment_end(first, &options), |offset| {
            first + u64::from(offset)
        });
        db.close().expect("it closes");
        let room = segment_end(first, &options) - after;
        let from = after + random.below(room.max(8)) / 8 * 8 * random.below(2);
        let len =
            8 + random.below((segment_end(first, &options).saturating_sub(from)).max(8) / 8) * 8;
        let stray = match random.below(3) {
            0 => vec![0xab; len as usize],
            1 => random.bytes(len as usize),
            _ => vec![1, 0, 0, 0, 0, 0, 0, 0],
        };
        if from + stray.len() as u64 > segment_end(first, &options) {
            return None;
        }
        memory.write_at(from, &stray).expect("stray bytes");
        let what = format!(
            "seed {seed}, {} bytes at {from}, the end at {after}",
            stray.len()
        );
        Some(Self {
            memory,
            options,
            count,
            what,
        })
    }
}

#[test]
fn what_stands_after_the_end_of_a_closed_file_costs_nothing() {
    let mut cases = 0;
    for file in 0..third(60) {
        let seed = 0x9a5 + round_seed() + file;
        let mut random = Random::new(seed);
        let Some(stray) = Stray::draw(seed, &mut random) else {
            continue;
        };
        let (memory, options, what) = (stray.memory, stray.options, stray.what);
        let db =
            HashDb::open_on(Arc::clone(&memory) as Arc<_>, &options.opening).expect("it opens");
        let many = random.below(3000);
        for key in 0..many {
            db.put(&key.to_le_bytes(), &value_of(key)).expect("a put");
        }
        // Killed.
        let killed = Memory::from_bytes(&memory.to_vec(), ROOM).expect("memory");
        drop(db);
        let db = HashDb::open_on(killed, &options.opening).expect("it recovers");
        assert!(db.damage().is_empty(), "{what}: {:?}", db.damage());
        assert!(
            db.check(&mut |_, _| ()).expect("a check").is_sound(),
            "{what}"
        );
        for key in 0..many {
            let found = db.get(&key.to_le_bytes());
            assert_eq!(found.expect("a get"), Some(value_of(key)), "{what}: {key}");
        }
        cases += 1;
    }
    demand(
        cases,
        third(60) / 2,
        "closed files with stray bytes after their end",
    );
}

#[test]
fn a_check_finds_nothing_behind_the_end_of_a_closed_file_and_a_repair_doubts_nothing_for_it() {
    let repairs = Repairs::new();
    let mut cases = 0;
    for file in 0..third(60) {
        let seed = 0x9a6 + round_seed() + file;
        let mut random = Random::new(seed);
        let Some(stray) = Stray::draw(seed, &mut random) else {
            continue;
        };
        let (bytes, what) = (stray.memory.to_vec(), stray.what);
        let reader = HashReader::open_on(stray.memory).expect("it opens");
        assert!(reader.damage().is_empty(), "{what}: {:?}", reader.damage());
        let check = reader.check(&mut |_, _| ()).expect("a check");
        assert!(check.is_sound(), "{what}: {check:?}");
        let report = repairs.repair(&bytes);
        assert_eq!(
            (report.recovered, report.doubtful, report.losses),
            (stray.count, 0, 0),
            "{what}: {report:?}"
        );
        cases += 1;
    }
    demand(
        cases,
        third(60) / 2,
        "checks and repairs of closed files with stray bytes",
    );
}

fn segment_end(first: u64, options: &CreateOptions) -> u64 {
    first + options.segment_size
}

/// A storage that counts how often it is mapped, which each opening does.
#[derive(Debug)]
struct Mapped {
    memory: Arc<Memory>,
    times: AtomicU64,
}

impl Over for Mapped {
    fn below(&self) -> &dyn Storage {
        self.memory.as_ref()
    }

    fn map(&self, capacity: u64) -> Result<Arc<Map>> {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.memory.map(capacity)
    }
}

/// Each read that failed opened the file again, where what stands after the log's end is damage.
#[test]
fn a_reader_opens_a_damaged_file_once() {
    let (mut cases, mut failing) = (0, 0);
    for file in 0..third(60) {
        let seed = 0x0e4d + round_seed() + file;
        let made = Made::draw(seed);
        let mut random = Random::new(!seed);
        for _ in 0..6 {
            let mut bytes = made.bytes.clone();
            let from = match random.below(3) {
                0 => made.end,
                1 => made.end - 1,
                _ => HEAD + random.below(bytes.len() as u64 - HEAD),
            } as usize;
            let len = *random.choose(&[8, 500, 4096, 65_536]);
            let to = (from + len).min(bytes.len());
            match random.below(3) {
                0 => bytes[from..to].fill(0xab),
                1 => bytes[from..to].fill(0),
                _ => bytes.truncate(from),
            }
            let storage = Arc::new(Mapped {
                memory: Memory::from_bytes(&bytes, ROOM).expect("memory"),
                times: AtomicU64::new(0),
            });
            let reader = HashReader::open_on(Arc::clone(&storage) as Arc<_>).expect("it opens");
            let what = format!("{from} to {to} of {}", made.bytes.len());
            failing += u64::from(judge(&made, &what, &reader) > 0);
            let times = storage.times.load(Ordering::Relaxed);
            // A scan opens a view of its own.
            assert!(times <= 3, "seed {seed}, {what}: mapped {times} times");
            cases += 1;
        }
    }
    demand(cases, third(60) * 6, "damaged files that a reader opens");
    demand(failing, third(60), "of which reads fail");
}
