//! A full store of long values: a value that is no longer than the one it replaces is taken, though the segments that it needs
//! side by side are free here and there only. Another writer may take what was just brought together; the store then does it
//! again. Half of the puts are updates by a closure, which is called once. So are batches of shorter records whose one frame needs
//! several segments: of removals, and of values that are no longer. What short values find in a full store is tested elsewhere.

use azekura::engine::Persistent as _;
use azekura::io::memory::Memory;
use azekura::record::hash::{Compression, CreateOptions, HashDb};
use azekura::testkit::configuration::compression;
use azekura::testkit::suite::{case, demand, third};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, Engine as _, Kind};

/// The longest frame of a batch in segments, and the least that the store has for each of these: what `docs/operations.md` promises.
const UNITS_MAX: usize = 10;
const PART: u64 = 64;
/// Batches of a thread that change values, of one store.
const BATCHES_EACH: u64 = 60;
/// How often short batches change every value of a store.
const PASSES: u8 = 3;

/// Values of a thread that are put over others, of one store.
const EACH: u64 = 600;

/// A value of `len` bytes, of which the last three quarters are one byte: how long it becomes when it is compressed depends on
/// its length alone.
fn value_of(len: usize, byte: u8) -> Vec<u8> {
    let mut value = Random::new(5).bytes(len / 4);
    // No byte of the rest.
    value.push(0);
    value.resize(len, byte);
    value
}

/// Puts values of up to `len_max` bytes until the store is full; the lengths, by key.
fn fill(db: &HashDb, random: &mut Random, len_max: usize) -> Vec<usize> {
    let mut lens = Vec::new();
    loop {
        let len = 1 + random.index(len_max);
        match db.put(&(lens.len() as u64).to_le_bytes(), &value_of(len, 1)) {
            Ok(()) => lens.push(len),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Full, "{error}");
                return lens;
            }
        }
    }
}

#[test]
fn long_values_that_are_no_longer_are_taken_by_a_full_store() {
    let mut tried = 0;
    for seed in 0..third(18) {
        let mut random = Random::new(!(seed + round_seed()));
        let (capacity, len_max) = *random.choose(&[
            (16 << 20, 100_000),
            (16 << 20, 250_000),
            (64 << 20, 300_000),
            (64 << 20, 1_000_000),
        ]);
        let options = CreateOptions::new()
            .capacity(capacity)
            .segment_size(*random.choose(&[0, 0, 16 << 10, 64 << 10]))
            .space_ratio(*random.choose(&[1.6, 3.0]))
            .background(random.one_in(2))
            .compression(compression(&mut random));
        let threads = if random.one_in(2) { 1 } else { 4 };
        let _shown = case(seed, &(threads, len_max, &options));
        let folder = tempfile::tempdir().expect("a folder");
        let db = HashDb::create(folder.path().join("store.azh"), &options).expect("a store");
        let lens = fill(&db, &mut random, len_max);
        // A shorter value is compressed to a shorter one nearly always only.
        let is_compressed = options.compression != Compression::None;
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (db, lens) = (&db, &lens);
                let mut random = Random::new(!(seed * 16 + thread as u64 + round_seed()));
                scope.spawn(move || {
                    let own = (thread..lens.len()).step_by(threads);
                    let mut own: Vec<(usize, usize)> = own.map(|key| (key, lens[key])).collect();
                    for turn in 0..EACH {
                        let at = random.index(own.len());
                        let (key, len) = &mut own[at];
                        *len -= if is_compressed || random.one_in(2) {
                            0
                        } else {
                            random.index(*len) / 8
                        };
                        let key = (*key as u64).to_le_bytes();
                        let value = value_of(*len, 2);
                        let put = if random.one_in(2) {
                            db.put(&key, &value)
                        } else {
                            let mut asked = 0;
                            let done = db.update(&key, &mut |_| {
                                asked += 1;
                                Edit::Put((&value[..]).into())
                            });
                            assert_eq!(asked, 1, "the closure is called once");
                            done
                        };
                        put.unwrap_or_else(|error| {
                            panic!("turn {turn}, {len} bytes: {error}: {:?}", db.inspect())
                        });
                    }
                });
            }
        });
        let report = db.check(&mut |_, _| ()).expect("a check");
        assert!(report.is_sound(), "{report:?}");
        tried += threads as u64 * EACH;
    }
    demand(tried, third(18) * EACH, "long values put over longer ones");
}

/// A record of a thread that batches change: its key, how long its value is and of which bytes.
struct Own {
    key: Vec<u8>,
    len: usize,
    byte: u8,
}

impl Own {
    /// Bytes that the frame of such a value takes; without one, that of a removal.
    fn frame_len(&self, value_len: usize) -> usize {
        (8 + self.key.len() + value_len).next_multiple_of(8)
    }
}

/// Puts values of up to `len_max` bytes under keys of `key_len` until the store is full; in an order of no meaning.
fn fill_with_keys(db: &HashDb, random: &mut Random, key_len: usize, len_max: usize) -> Vec<Own> {
    let mut all = Vec::new();
    loop {
        let (key, len) = (random.bytes(key_len), 1 + random.index(len_max));
        match db.put(&key, &vec![1; len]) {
            Ok(()) => all.push(Own { key, len, byte: 1 }),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Full, "{error}");
                break;
            }
        }
    }
    shuffle(&mut all, random);
    all
}

fn shuffle(all: &mut [Own], random: &mut Random) {
    for at in (1..all.len()).rev() {
        all.swap(at, random.index(at + 1));
    }
}

/// One batch that a full store is owed: puts values of these lengths, and removes where there is none.
fn change(db: &HashDb, records: &[Own], lens: &[Option<usize>], byte: u8) {
    let keys: Vec<&[u8]> = records.iter().map(|own| &own.key[..]).collect();
    let mut asked = 0;
    let done = db.update_many(&keys, &mut |shown| {
        asked += 1;
        for (own, shown) in records.iter().zip(shown) {
            let shown = shown.map(|value| (value.len(), value[0]));
            assert_eq!(shown, Some((own.len, own.byte)), "{:?}", own.key);
        }
        let edit = |len: &Option<usize>| match len {
            Some(len) => Edit::Put(vec![byte; *len].into()),
            None => Edit::Remove,
        };
        lens.iter().map(edit).collect()
    });
    assert_eq!(asked, 1, "the closure is called once");
    done.unwrap_or_else(|error| {
        let removals = lens.iter().filter(|len| len.is_none()).count();
        let of = lens.len();
        panic!("{removals} removals of {of}: {error}: {:?}", db.inspect())
    });
}

/// Changes of one thread, then the removal of all its records; how many batches needed several segments.
fn change_all(db: &HashDb, random: &mut Random, mut own: Vec<Own>, segment_size: usize) -> u64 {
    let mut long = 0;
    for turn in 0..BATCHES_EACH {
        let least = segment_size * (1 + random.index(UNITS_MAX - 1));
        let is_shorter = random.one_in(2);
        let mut lens = Vec::new();
        let mut body = 0;
        let first = random.index(own.len());
        own.rotate_left(first);
        for record in &own {
            let len = match random.below(16) {
                0 => None,
                _ if is_shorter => Some(record.len - random.index(record.len) / 8),
                _ => Some(record.len),
            };
            body += record.frame_len(len.unwrap_or(0));
            lens.push(len);
            if body > least {
                break;
            }
        }
        long += u64::from(body > segment_size);
        let byte = 2 + turn as u8;
        change(db, &own[..lens.len()], &lens, byte);
        let rest = own.split_off(lens.len());
        for (mut record, len) in std::mem::replace(&mut own, rest).into_iter().zip(lens) {
            if let Some(len) = len {
                (record.len, record.byte) = (len, byte);
                own.push(record);
            }
        }
    }
    while !own.is_empty() {
        let least = segment_size * (1 + random.index(UNITS_MAX - 1));
        let count = own.len().min(least / own[0].frame_len(0) + 1);
        long += u64::from(count * own[0].frame_len(0) > segment_size);
        let rest = own.split_off(count);
        change(db, &own, &vec![None; count], 0);
        own = rest;
    }
    long
}

#[test]
fn batches_of_several_segments_that_store_no_more_are_taken_by_a_full_store() {
    let (mut tried, mut with_others) = (0, 0);
    for seed in 0..third(18) {
        let mut random = Random::new(!(seed + round_seed()));
        let segment_size = *random.choose(&[4 << 10, 4 << 10, 16 << 10, 64 << 10]);
        let least = PART * UNITS_MAX as u64 * segment_size;
        let options = CreateOptions::new()
            .capacity(least.max(HashDb::least_capacity(segment_size)) + random.below(least))
            .segment_size(segment_size)
            .space_ratio(*random.choose(&[1.6, 3.0]))
            .background(random.one_in(2));
        let segment_size = segment_size as usize;
        let key_len = 12 + random.index((segment_size / 64).min(200));
        let len_max = *random.choose(&[8, 100, segment_size / 16, segment_size / 3]);
        let threads = if seed % 2 == 0 { 1 } else { 4 };
        let _shown = case(seed, &(threads, key_len, len_max, &options));
        let folder = tempfile::tempdir().expect("a folder");
        let db = HashDb::create(folder.path().join("store.azh"), &options).expect("a store");
        let mut all = fill_with_keys(&db, &mut random, key_len, len_max);
        let share = all.len() / threads;
        let parts = (0..threads).map(|_| all.split_off(all.len() - share));
        let parts: Vec<Vec<Own>> = parts.collect();
        let long: u64 = std::thread::scope(|scope| {
            let started = parts.into_iter().enumerate().map(|(thread, own)| {
                let db = &db;
                let mut random = Random::new(!(seed * 16 + thread as u64 + round_seed()));
                scope.spawn(move || change_all(db, &mut random, own, segment_size))
            });
            let started: Vec<_> = started.collect();
            started
                .into_iter()
                .map(|thread| thread.join().expect("no batch is refused"))
                .sum()
        });
        let report = db.check(&mut |_, _| ()).expect("a check");
        assert!(report.is_sound(), "{report:?}");
        assert_eq!(
            report.records as usize,
            all.len(),
            "what no thread owns stays"
        );
        tried += long;
        with_others += if threads > 1 { long } else { 0 };
    }
    demand(tried, third(18) * 100, "batches of several segments");
    demand(
        with_others,
        third(18) * 60,
        "of them concurrently with other writers",
    );
}

/// Short batches cost a header each, and such as need just a segment of their own leave the rest of it; neither adds up.
#[test]
fn batches_of_any_length_write_over_a_full_store() {
    let mut tried = 0;
    for seed in 0..third(9) {
        let mut random = Random::new(!(seed + round_seed()));
        let segment_size = *random.choose(&[4 << 10, 8 << 10, 16 << 10]);
        let least = HashDb::least_capacity(segment_size).max(1 << 20);
        let options = CreateOptions::new()
            .capacity(least + random.below(least * 2))
            .segment_size(segment_size)
            .background(random.one_in(2));
        let segment_size = segment_size as usize;
        let (key_len, len_max) = (8 + random.index(8), *random.choose(&[8, 8, 64]));
        let threads = if random.one_in(2) { 1 } else { 4 };
        let least = match seed % 3 {
            0 => 0,
            1 => segment_size / 2,
            _ => segment_size,
        };
        let _shown = case(seed, &(threads, key_len, len_max, least, &options));
        let memory = Memory::new(options.opening.capacity).expect("memory");
        let db = HashDb::create_on(memory, &options).expect("a store");
        let mut all = fill_with_keys(&db, &mut random, key_len, len_max);
        let share = all.len() / threads;
        std::thread::scope(|scope| {
            for (thread, own) in all.chunks_mut(share).enumerate() {
                let db = &db;
                let mut random = Random::new(!(seed * 16 + thread as u64 + round_seed()));
                scope.spawn(move || {
                    for byte in 2..2 + PASSES {
                        shuffle(own, &mut random);
                        let mut from = 0;
                        while from < own.len() {
                            let (mut to, mut body) = (from, 0);
                            while to < own.len() && (to < from + 2 || body <= least) {
                                body += own[to].frame_len(own[to].len);
                                to += 1;
                            }
                            let lens: Vec<_> =
                                own[from..to].iter().map(|own| Some(own.len)).collect();
                            change(db, &own[from..to], &lens, byte);
                            own[from..to].iter_mut().for_each(|own| own.byte = byte);
                            from = to;
                        }
                    }
                });
            }
        });
        let report = db.check(&mut |_, _| ()).expect("a check");
        assert!(report.is_sound(), "{report:?}");
        tried += u64::from(PASSES) * all.len() as u64;
    }
    demand(
        tried,
        third(9) * 10_000,
        "values put over equal ones by batches",
    );
}
