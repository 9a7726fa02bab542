//! Stores of large values compared: the rivals of the object store, each behind a feature.
//!
//! Each is called through its own library by the loop of `azekura_bench::object`, with the settings its
//! authors recommend for values of 100 KiB to 10 MiB that do not compress; what is not default stands in its
//! file. A class of durability that a rival does not have is refused, and rows of different classes are not
//! compared. What needs no other library (files, the device itself) is called by the same word as in
//! `azekura bench object`.
//!
//! ```text
//!   object --rival NAME (phases of one)      object suite (a process for each step, tables with ratios)
//! ```

#[cfg(feature = "cannyls")]
mod cannyls;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sqlite")]
mod sqlite;

use azekura::error::Result;
use azekura_bench::object::plan::ObjectPlan;
use azekura_bench::object::run::{Candidate, SuitePlan};
use azekura_bench::object::store::Open;
use azekura_bench::object::stores::Engine;
use azekura_bench::object::{measure, suite};
use azekura_bench::phase::Class;
use azekura_bench::report::line;
use azekura_bench::words::word;
use clap::{Args, Subcommand, ValueEnum};

use crate::machine;
use crate::rivals::stores;

const BUFFERED: &[Class] = &[Class::Buffered, Class::Power];
const CACHED: &[Class] = &[Class::Process, Class::Power];
const ALL: &[Class] = &[Class::Buffered, Class::Process, Class::Power];

// How a store of large values is opened, and the classes it has.
stores! { (Open, &'static [Class]):
    /// azekura's object store
    Azekura => (Engine::Azekura.open(), ALL);
    /// No store: a written file past the page cache, written in order and read at random
    Device => (Engine::Device.open(), ALL);
    /// A file for each object, in three levels of folders
    Files => (Engine::Files.open(), CACHED);
    /// `CannyLS`, its storage called directly
    #[cfg(feature = "cannyls")]
    Cannyls => (cannyls::open, BUFFERED);
    /// `CannyLS`, through the thread of its device
    #[cfg(feature = "cannyls")]
    CannylsDevice => (cannyls::open_device, BUFFERED);
    /// `RocksDB` with its defaults
    #[cfg(feature = "rocksdb")]
    Rocksdb => (rocksdb::open, CACHED);
    /// `RocksDB`, set up for large values in its tables
    #[cfg(feature = "rocksdb")]
    RocksdbTuned => (rocksdb::open_tuned, CACHED);
    /// `RocksDB` with values in files of their own
    #[cfg(feature = "rocksdb")]
    RocksdbBlob => (rocksdb::open_blob, CACHED);
    /// fjall with values in files of their own
    #[cfg(feature = "fjall")]
    Fjall => (fjall::open, CACHED);
    /// `SQLite`, a row for each object
    #[cfg(feature = "sqlite")]
    Sqlite => (sqlite::open, CACHED);
    /// LMDB
    #[cfg(feature = "lmdb")]
    Lmdb => (lmdb::open, CACHED);
}

/// The flags and subcommands of `object`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ObjectArguments {
    #[command(subcommand)]
    of: Option<ObjectCommand>,
    /// The store to measure
    #[arg(long, value_enum, default_value_t = Rival::Azekura)]
    rival: Rival,
    #[command(flatten)]
    plan: ObjectPlan,
}

#[derive(Subcommand)]
enum ObjectCommand {
    /// Run the tables of the published benchmark at a scale, for several stores, and print ratios
    Suite(SuitePlan),
}

/// Measures one store, or runs the suite.
pub(crate) fn run(arguments: &ObjectArguments) -> Result<()> {
    let Some(ObjectCommand::Suite(plan)) = &arguments.of else {
        let rival = arguments.rival;
        return measure(&word(&rival), rival.row().0, &arguments.plan);
    };
    let mut plan = plan.clone();
    if plan.stores.is_empty() {
        plan.stores = all_stores();
    }
    if !plan.json {
        let folder = plan.folder.clone().unwrap_or_else(std::env::temp_dir);
        for (name, value) in machine::describe(&folder) {
            line(&format!("{name}: {value}"))?;
        }
    }
    let words = ["object", "--rival"];
    suite::run(&plan, &|store, step| suite::process(&words, store, step))
}

/// Every store in every class it has, class by class.
fn all_stores() -> Vec<Candidate> {
    let of = |class: Class| {
        let has = move |rival: &&Rival| rival.row().1.contains(&class);
        let rivals = Rival::value_variants().iter().filter(has);
        rivals.map(move |rival| Candidate {
            store: word(rival),
            class,
        })
    };
    ALL.iter().flat_map(|&class| of(class)).collect()
}

/// An id as a key whose order is that of the numbers.
#[cfg(any(
    feature = "rocksdb",
    feature = "fjall",
    feature = "sqlite",
    feature = "lmdb"
))]
fn key(id: u128) -> [u8; 16] {
    std::array::from_fn(|place| (id >> (120 - 8 * place)) as u8)
}

#[cfg(test)]
mod tests {
    use azekura_bench::object::phases;
    use azekura_bench::phase::{Phase, collect};
    use azekura_bench::words::read_flags;

    use super::*;

    fn tiny(rival: Rival, class: Class, flags: &str) -> Vec<Phase> {
        let folder = tempfile::tempdir().unwrap();
        let flags = format!("--json --count 40 --sample 30 {flags}");
        let plan = ObjectPlan {
            path: Some(folder.path().join("store")),
            durability: class,
            ..read_flags(&flags).unwrap()
        };
        collect(|emit| phases::run(&word(&rival), rival.row().0, &plan, emit))
            .unwrap_or_else(|error| panic!("{} {class}: {error}", word(&rival)))
    }

    #[test]
    fn every_rival_runs_every_phase_in_every_class_and_reads_what_was_put() {
        for flags in ["--value-size 5000", "--value-size 100KiB --depth 4"] {
            for &rival in Rival::value_variants() {
                for &class in rival.row().1 {
                    let found = tiny(rival, class, flags);
                    let what = format!("{} {class} {flags}", word(&rival));
                    assert_eq!(found.len(), 5, "{what}");
                    // Read, and compared with what was put.
                    assert_eq!(found[2].hits, Some(30), "{what}");
                    for phase in &found {
                        assert_eq!(phase.durability, Some(class), "{what}");
                        let errors = phase.summary().map_or(0, |summary| summary.errors);
                        assert_eq!(errors, 0, "{what}");
                        assert!(phase.cost.file_bytes.is_some(), "{what}");
                        assert!(phase.object().unwrap().calls.is_some(), "{what}");
                    }
                    let counts = |phase: &Phase| {
                        let existence = phase.summary().unwrap().existence;
                        (existence.exists, existence.absents)
                    };
                    assert!([(0, 0), (0, 40)].contains(&counts(&found[0])), "{what}");
                    assert!([(0, 0), (30, 0)].contains(&counts(&found[1])), "{what}");
                    assert!([(0, 0), (30, 0)].contains(&counts(&found[3])), "{what}");
                }
            }
        }
    }

    #[test]
    #[cfg(feature = "cannyls")]
    fn accesses_of_cannyls_are_counted() {
        for rival in [Rival::Cannyls, Rival::CannylsDevice] {
            let found = tiny(rival, Class::Power, "--value-size 40KiB");
            let counted: Vec<_> = found
                .iter()
                .map(|phase| phase.object().unwrap().store.unwrap())
                .collect();
            let what = format!("{} {counted:?}", word(&rival));
            assert!(counted[0].writes >= 40 && counted[0].syncs >= 40, "{what}");
            assert!((30..35).contains(&counted[2].reads), "{what}");
            assert_eq!((counted[2].writes, counted[2].syncs), (0, 0), "{what}");
        }
    }

    #[test]
    fn everybody_is_compared_in_every_class_it_has() {
        let all = all_stores();
        let classes: usize = Rival::value_variants()
            .iter()
            .map(|rival| rival.row().1.len())
            .sum();
        assert_eq!(all.len(), classes);
        assert!(all.is_sorted_by_key(|candidate| candidate.class));
    }
}
