//! A store of several shards keeps the promises of one store, but for those that it states to be of each shard alone.
//!
//! The conformance suite over shards of every engine; cuts of the power; threads; files that are missing, exchanged or damaged. Lines
//! beginning `tried:` state how much was tried.

mod contract;
mod copies;
mod files;
mod load;
mod power;
mod threads;

use azekura::engine::Engine;
use azekura::testkit::Random;

/// Keys of which a store of two shards or more has some in each, at most 500.
fn keys(random: &mut Random, count: u64) -> Vec<Vec<u8>> {
    let style = random.below(3);
    let key = |number: u64| match style {
        0 => format!("{number}").into_bytes(),
        1 => format!("all of these begin alike {number:05}").into_bytes(),
        _ => Random::new(number).bytes((number % 30) as usize + 4),
    };
    (0..count).map(key).collect()
}

/// All records, as a scan shows them.
fn scanned(db: &dyn Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let end = db.scan(None, &mut |key, value| {
        all.push((key.to_vec(), value.to_vec()));
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), None);
    all
}
