//! Values of every length over values of every length, by each way in, and the file as a kill leaves it.
//!
//! The suite of conformance puts lengths over each other in any engine; here the file is also opened from a copy that
//! were not closed, and the segments are of known size, so that half of one and a whole one are among the lengths.

use super::*;
use crate::testkit::conformance::lengths::{edges, value};
use crate::testkit::suite::tried_at_least;
use crate::verbs::Verbs;

fn options_of(segment_size: u64) -> Options {
    Options {
        segment_size,
        background: false,
        ..Options::default()
    }
}

type Put = fn(&HashDb, &[u8], &[u8]) -> crate::error::Result<()>;

/// What `put` puts of `new` over `old` is there after a kill, and nothing is damaged.
fn survives(options: &Options, old: &[usize], new: &[usize], put: Put) -> u64 {
    let mut count = 0;
    for &len in new {
        let memory = Memory::new(1 << 28).unwrap();
        let db = HashDb::create_on(memory.clone(), options).unwrap();
        let key = |before: usize| (before as u32).to_le_bytes();
        for &before in old {
            put(&db, &key(before), &value(before, 1)).unwrap();
            put(&db, &key(before), &value(len, 2)).unwrap();
            count += 1;
        }
        let copy = Memory::from_bytes(&memory.to_vec(), 1 << 28).unwrap();
        let killed = HashDb::open_on(copy, options);
        let killed = killed.unwrap_or_else(|error| panic!("{len} over some: {error}"));
        for &before in old {
            let found = killed.get(&key(before)).unwrap();
            assert!(found == Some(value(len, 2)), "{len} over {before}");
        }
        for db in [&db, &killed] {
            let damage = db.check(&mut |_, _| ()).unwrap().damage;
            assert!(damage.is_empty(), "{len} over some: {damage:?}");
        }
    }
    count
}

/// A value of 65,5xx bytes over one of 70,000 once left a pad that was no frame: after a kill the file did not open.
#[test]
fn any_length_over_any_length_survives_a_kill() {
    let mut count = 0;
    let ways: [Put; 2] = [HashDb::put, |db, key, value| {
        Verbs::put(db as &dyn Engine, key, value)
    }];
    let few = [0, 255, 65_528, 65_536, 70_000];
    for segment in [4096, 1 << 18, 1 << 20] {
        let all = edges(segment as usize, 4 << 20);
        let (short, long): (Vec<_>, Vec<_>) = all.into_iter().partition(|len| *len <= 70_001);
        let options = options_of(segment);
        for put in ways {
            // All pairs with the largest; of the others, and of long values, some beside each edge.
            let old = if segment == 1 << 20 { &short[..] } else { &few };
            count += survives(&options, old, &short, put);
            count += survives(&options, &few, &long, put);
        }
    }
    tried_at_least(count, 1000, "pairs of lengths");
}
