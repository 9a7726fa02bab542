//! Loss of power at any moment of a building, and disks that are full or fail.
//!
//! Afterwards there is no file of the name, or one that is whole: no state between. One whose building was acknowledged is there. A
//! failed building reports its error and leaves nothing.

use std::path::Path;
use std::sync::Arc;

use azekura::io::sim::{Fault, Limits, Operation, SimDisk};
use azekura::io::{Access, Directory};
use azekura::record::skip::{BuildOptions, SkipBuilder, SkipReader};
use azekura::testkit::suite::{case, demand, share};
use azekura::testkit::{Random, round_seed};
use azekura::{Kind, Reader as _};

use super::model::compare;
use super::{Built, NAME};

#[test]
fn a_cut_leaves_no_file_or_a_whole_one() {
    let (mut states, mut whole) = (0, 0);
    for round in 0..share(150) {
        let seed = round_seed() + 10_000_000 + round;
        let built = Built::draw(seed, 1500);
        let _case = case(seed, &built);
        let before = built.disk.events();
        built.build().unwrap();
        let expected = built.expected();
        let acknowledged = built.disk.events();
        let mut random = Random::new(!seed);
        let limits = Limits {
            exhaustive: 16,
            singles: 8,
            random: 8,
            garbage: random.one_in(2),
            stale: random.one_in(2),
        };
        let mut at: Vec<usize> = (0..12)
            .map(|_| before + random.index(acknowledged - before + 1))
            .collect();
        at.extend(acknowledged.saturating_sub(6)..=acknowledged);
        for at in at {
            for disk in built
                .disk
                .crash_states(at, &limits)
                .chain([built.disk.kill_state(at)])
            {
                states += 1;
                let directory = disk.directory();
                if !directory.exists(Path::new(NAME)).unwrap() {
                    assert!(at < acknowledged, "an acknowledged file is gone");
                    continue;
                }
                whole += 1;
                let storage = directory.open(Path::new(NAME), Access::Read).unwrap();
                let file = SkipReader::open_on(storage).unwrap();
                if random.one_in(8) {
                    compare(&file, &expected, &built, &mut random);
                }
                assert_eq!(file.count(), expected.len() as u64);
            }
        }
    }
    demand(states, share(150) * 40, "states of a building after a cut");
    demand(whole, share(150) * 5, "of them with a whole file");
}

#[test]
fn an_error_of_the_disk_leaves_nothing() {
    let (mut tried, mut failed) = (0, 0);
    for round in 0..share(400) {
        let seed = round_seed() + 11_000_000 + round;
        let built = Built::draw(seed, 3000);
        let _case = case(seed, &built);
        let mut random = Random::new(!seed);
        let operation = *random.choose(&[
            Operation::Write,
            Operation::Resize,
            Operation::Sync,
            Operation::Read,
        ]);
        let fault = *random.choose(&[Fault::Error, Fault::Full, Fault::Short(700), Fault::Torn]);
        let nth = built.disk.faults().count(operation) + 1 + random.below(12);
        built.disk.faults().fail(operation, nth, fault);
        tried += 1;
        match built.build() {
            Ok(file) => assert_eq!(file.count(), built.expected().len() as u64),
            Err(error) => {
                failed += 1;
                assert!(matches!(error.kind(), Kind::Io | Kind::Full), "{error}");
                let directory = built.disk.directory();
                assert!(!directory.exists(Path::new(NAME)).unwrap());
                // It is built when the disk is well again.
                built.disk.faults().clear();
                let file = built.build().unwrap();
                assert_eq!(file.count(), built.expected().len() as u64);
            }
        }
    }
    demand(tried, share(400), "buildings on disks that fail once");
    demand(failed, share(400) / 8, "of them that failed");
}

#[test]
fn a_full_disk_leaves_nothing() {
    let mut failed = 0;
    for round in 0..share(200) {
        let seed = round_seed() + 12_000_000 + round;
        let built = Built::draw(seed, 6000);
        let _case = case(seed, &built);
        let mut random = Random::new(!seed);
        built
            .disk
            .set_capacity((16 << 10) + random.below(400 << 10));
        if let Err(error) = built.build() {
            failed += 1;
            assert_eq!(error.kind(), Kind::Full, "{error}");
            assert!(!built.disk.directory().exists(Path::new(NAME)).unwrap());
            built.disk.set_capacity(u64::MAX);
            let file = built.build().unwrap();
            assert_eq!(file.count(), built.expected().len() as u64);
        }
    }
    demand(
        failed,
        share(200) / 4,
        "buildings on disks that became full",
    );
}

/// What was sorted by then is lost with the error: a file without it is not made.
#[test]
fn an_error_that_a_merge_reports_ends_the_building() {
    let options = BuildOptions::new().memory(64u64 << 10);
    let mut failed = 0;
    for nth in 0..12 {
        let disk = SimDisk::new(nth);
        let build = |name: &str| {
            let directory: Box<dyn Directory> = Box::new(disk.directory());
            SkipBuilder::create_in(directory, Path::new(name), &options).unwrap()
        };
        let mut other = build("other.azs");
        other.put(b"a", b"b").unwrap();
        let other = Arc::new(other.finish(&mut |_, _| {}).unwrap());
        let mut builder = build(NAME);
        let count = disk.faults().count(Operation::Write);
        disk.faults()
            .fail(Operation::Write, count + nth, Fault::Error);
        let put = |builder: &mut SkipBuilder| {
            (0..1500_u32).try_for_each(|n| builder.put(&n.to_le_bytes(), b"value"))
        };
        let mut outcome = Ok(());
        for _ in 0..3 {
            outcome = outcome.and(put(&mut builder)).and(builder.merge(&other));
        }
        let finished = builder.finish(&mut |_, _| {});
        if outcome.is_err() {
            failed += 1;
            assert_eq!(finished.err().unwrap().kind(), Kind::Poisoned);
        }
        let is_there = disk.directory().exists(Path::new(NAME)).unwrap();
        assert!(!is_there || outcome.is_ok());
    }
    demand(failed, 3, "buildings that a merge ended");
}
