//! A full store of long values: a value that is no longer than the one it replaces is taken, though the segments that it needs
//! side by side are free here and there only. Another writer may take what was just brought together; the store then does it
//! again. Half of the puts are updates by a closure, which is called once. What short values find in a full store is tested elsewhere.

use azekura::engine::Persistent as _;
use azekura::record::hash::{HashDb, Options};
use azekura::testkit::suite::{case, demand, third};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, Engine as _, Kind};

/// Values of a thread that are put over others, of one store.
const EACH: u64 = 600;

/// Puts values of up to `len_max` bytes until the store is full; the lengths, by key.
fn fill(db: &HashDb, random: &mut Random, len_max: usize) -> Vec<usize> {
    let mut lens = Vec::new();
    loop {
        let len = 1 + random.index(len_max);
        match db.put(&(lens.len() as u64).to_le_bytes(), &vec![1; len]) {
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
        let options = Options {
            capacity,
            segment_size: *random.choose(&[0, 0, 16 << 10, 64 << 10]),
            space_ratio: *random.choose(&[1.6, 3.0]),
            background: random.one_in(2),
            ..Options::default()
        };
        let threads = if random.one_in(2) { 1 } else { 4 };
        let _shown = case(seed, &(threads, len_max, &options));
        let folder = tempfile::tempdir().expect("a folder");
        let db = HashDb::create(folder.path().join("store.azh"), &options).expect("a store");
        let lens = fill(&db, &mut random, len_max);
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
                        *len -= if random.one_in(2) {
                            0
                        } else {
                            random.index(*len) / 8
                        };
                        let key = (*key as u64).to_le_bytes();
                        let value = vec![2; *len];
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
