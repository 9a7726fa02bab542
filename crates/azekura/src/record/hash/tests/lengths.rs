//! Values of every length over values of every length, by the method of the type and through `dyn Engine`, and the file as a
//! kill leaves it.
//!
//! The suite of conformance puts lengths over each other in any engine; here the file is also opened from a copy that
//! was not closed, and the segments are of known size, so that half of one and a whole one are among the lengths. Segments are
//! small, usual, and those of the default options. A full run puts each edge over each, with every length around the longest
//! short frame, but values of more than 70,001 bytes over every eighth of these: about a minute. Another one takes every eighth,
//! and of small segments some over each.

use super::*;
use crate::testkit::conformance::lengths::{edges, step, value};
use crate::testkit::suite::{demand, is_full};
use crate::verbs::Verbs;

fn options_of(segment_size: u64) -> CreateOptions {
    CreateOptions::new()
        .segment_size(segment_size)
        .background(false)
}

type Put = fn(&HashDb, &[u8], &[u8]) -> crate::error::Result<()>;

/// What `put` puts of `new` over `old` is there after a kill, and nothing is damaged.
fn survives(options: &CreateOptions, old: &[usize], new: &[usize], put: Put) -> u64 {
    // Long values fill whole segments: a few at a time.
    let some = |len: &usize| old.chunks(if *len > 70_001 { 16 } else { 128 });
    let each = new
        .iter()
        .flat_map(|len| some(len).map(move |old| (*len, old)));
    let mut count = 0;
    for (len, old) in each {
        let memory = Memory::new(1 << 28).unwrap();
        let db = HashDb::create_on(memory.clone(), options).unwrap();
        let key = |before: usize| (before as u32).to_le_bytes();
        for &before in old {
            put(&db, &key(before), &value(before, 1)).unwrap();
            put(&db, &key(before), &value(len, 2)).unwrap();
            count += 1;
        }
        let copy = Memory::from_bytes(&memory.to_vec(), 1 << 28).unwrap();
        let killed = HashDb::open_on(copy, &options.opening);
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
    // 0: what the default options choose.
    for segment in [4096, 1 << 18, 1 << 20, 0] {
        let options = options_of(segment);
        let memory = Memory::new(1 << 28).unwrap();
        let db = HashDb::create_on(memory, &options).unwrap();
        let size = db.log().geometry().segment_size();
        let all = edges(size as usize, 4 << 20, step());
        let (short, long): (Vec<_>, Vec<_>) = all.iter().copied().partition(|len| *len <= 70_001);
        for put in ways {
            if is_full() {
                count += survives(&options, &all, &short, put);
                let old = edges(size as usize, 4 << 20, 8);
                count += survives(&options, &old, &long, put);
            } else {
                // All pairs with the largest; of the others, and of long values, some next to each edge.
                let old = if size >= 1 << 19 { &short[..] } else { &few };
                count += survives(&options, old, &short, put);
                count += survives(&options, &few, &long, put);
                count += survives(&options, &long, &few, put);
            }
        }
    }
    let least = if is_full() { 40_000 } else { 4000 };
    demand(count, least, "pairs of lengths");
}
