//! Threads on a store of several shards: histories that an order explains, sums that updates of many shards keep, and deadlocks that do
//! not come.
//!
//! It does not test what threads do within a shard: the suites of the engines do.

use std::sync::atomic::{AtomicBool, Ordering};

use azekura::engine::{Edit, Engine};
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::record::memory::baby::BabyDb;
use azekura::record::tree::{self, TreeDb};
use azekura::shard::Sharded;
use azekura::testkit::history::{self, Plan};
use azekura::testkit::suite::{share, tried_at_least};
use azekura::testkit::{Random, concurrently, round_seed, transactions};
use azekura::{Reader as _, Verbs as _};

fn babies(shards: usize) -> Sharded<BabyDb> {
    let shards = (0..shards).map(|_| BabyDb::new().unwrap()).collect();
    Sharded::over_ordered(shards, 3).unwrap()
}

#[test]
fn histories_and_transactions_over_shards_are_explained_by_an_order() {
    let count = share(400);
    for shards in [2, 3] {
        let plans = (0..count).map(|seed| Plan::varied(seed + round_seed()));
        history::explained(&babies(shards), plans).expect("an order of single updates");
        let plans = (0..count).map(|seed| transactions::varied(seed + round_seed()));
        transactions::explained(&babies(shards), plans).expect("an order of updates of many");
    }
    tried_at_least(4 * count, 1600, "histories over shards");
}

const ACCOUNTS: u64 = 60;
const EACH: u64 = 1000;

fn name(account: u64) -> Vec<u8> {
    format!("account {account}").into_bytes()
}

fn number(value: Option<&[u8]>) -> u64 {
    u64::from_le_bytes(value.expect("it stays").try_into().expect("8 bytes"))
}

/// Moves sums between accounts of all shards, in any order of keys, and reads all of them locked: the sum is the same.
fn moves_keep_the_sum(db: &dyn Engine, moves: u64) -> u64 {
    let names: Vec<Vec<u8>> = (0..ACCOUNTS).map(name).collect();
    let all: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    for name in &all {
        db.put(name, &EACH.to_le_bytes()).unwrap();
    }
    let sum = || {
        let mut sum = 0;
        db.update_many(&all, &mut |values| {
            sum = values.iter().map(|value| number(*value)).sum();
            all.iter().map(|_| Edit::Keep).collect()
        })
        .unwrap();
        sum
    };
    let move_some = &|seed: u64, stop: &AtomicBool| {
        let mut random = Random::new(seed);
        let mut moved = 0;
        while !stop.load(Ordering::Relaxed) {
            let count = 2 + random.index(4);
            let keys: Vec<&[u8]> = (0..count).map(|_| *random.choose(&all)).collect();
            let by = random.below(9);
            db.update_many(&keys, &mut |values| {
                let (from, to) = (number(values[0]), number(values[1]));
                let mut edits: Vec<Edit<'_>> = keys.iter().map(|_| Edit::Keep).collect();
                if keys[0] != keys[1] && from >= by {
                    edits[0] = Edit::Put((from - by).to_le_bytes().to_vec().into());
                    edits[1] = Edit::Put((to + by).to_le_bytes().to_vec().into());
                }
                edits
            })
            .unwrap();
            moved += 1;
        }
        moved
    };
    let work = || (0..moves).for_each(|_| assert_eq!(sum(), ACCOUNTS * EACH));
    let unrest = |stop: &AtomicBool| {
        std::thread::scope(|scope| {
            let movers: Vec<_> = (0..3)
                .map(|thread| scope.spawn(move || move_some(thread + round_seed(), stop)))
                .collect();
            movers
                .into_iter()
                .map(|mover| mover.join().unwrap())
                .sum::<u64>()
        })
    };
    let ((), moved) = concurrently(unrest, work);
    assert_eq!(sum(), ACCOUNTS * EACH);
    assert_eq!(db.count(), ACCOUNTS);
    moves + moved
}

#[test]
fn updates_of_several_shards_are_isolated() {
    let moves = share(3000);
    let mut tried = moves_keep_the_sum(&babies(1), moves);
    tried += moves_keep_the_sum(&babies(7), moves);
    let folder = tempfile::tempdir().unwrap();
    let options = tree::CreateOptions::new().cache(4u64 << 20);
    let db = Sharded::<TreeDb>::create(folder.path().join("a.azt"), 4, &options).unwrap();
    tried += moves_keep_the_sum(&db, moves);
    assert!(
        azekura::Persistent::check(&db, &mut |_, _| {})
            .unwrap()
            .is_sound()
    );
    db.close().unwrap();
    let options = CreateOptions::new().segment_size(4096u64);
    let db = Sharded::<HashDb>::create(folder.path().join("a.azh"), 4, &options).unwrap();
    tried += moves_keep_the_sum(&db, moves);
    assert!(
        azekura::Persistent::check(&db, &mut |_, _| {})
            .unwrap()
            .is_sound()
    );
    tried_at_least(tried, 12_000, "updates of several shards at once");
}

/// A clear comes before or after an update of several shards, never between its parts: who updates them next sees both or neither.
#[test]
fn a_clear_divides_no_update_of_several_shards() {
    const SHARDS: usize = 40;
    let clears = share(3000);
    let db = babies(SHARDS);
    let first_in = |shard| {
        (0..100_000)
            .map(name)
            .find(|key| db.shard_of(key) == shard)
            .unwrap()
    };
    let names = [first_in(0), first_in(SHARDS - 1)];
    let all: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let put = |stop: &AtomicBool| {
        let mut version = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            version += 1;
            let value = version.to_le_bytes();
            db.update_many(&all, &mut |values| {
                assert_eq!(values[0], values[1]);
                all.iter().map(|_| Edit::put(&value)).collect()
            })
            .unwrap();
        }
        version
    };
    let clear = || (0..clears).for_each(|_| db.clear().unwrap());
    let ((), puts) = concurrently(put, clear);
    assert!(puts > 0);
    tried_at_least(clears, 3000, "clears during updates of several shards");
}

/// An update of many shards inside the closure of another store's; what waits for updates is refused there.
#[test]
fn stores_of_shards_may_be_updated_inside_each_other() {
    let (one, other) = (babies(3), babies(5));
    let names: Vec<Vec<u8>> = (0..24).map(name).collect();
    let all: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    one.update_many(&all, &mut |_| {
        let inner = other.update_many(&all, &mut |_| {
            all.iter().map(|key| Edit::put(key)).collect()
        });
        inner.unwrap();
        let refused = other.clear().unwrap_err();
        assert_eq!(refused.kind(), azekura::Kind::Invalid);
        all.iter().map(|key| Edit::put(key)).collect()
    })
    .unwrap();
    assert_eq!((one.count(), other.count()), (24, 24));
}
