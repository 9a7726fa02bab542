//! The stores that can be measured here: the rivals, each behind a feature, and azekura itself.
//!
//! Each is called through its own library by the same worker loop. Settings are those its authors
//! recommend for point lookups of small records; what is not default stands in its file. A rival is
//! left out of the program when its feature is off.

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
mod maps;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocksdb;
#[cfg(feature = "tkrzw")]
mod tkrzw;

use azekura::error::{Error, Kind, Result};
use azekura_bench::engines::memory::{Baby, Cache, StdHash, StdTree, Tiny};
use azekura_bench::engines::{hash::Hash, none::Nothing};
use azekura_bench::phase::Phase;
use azekura_bench::plan::Plan;
use azekura_bench::suite::Suite;
use azekura_bench::workload::record;
use clap::ValueEnum;

use maps::InMemory;
#[cfg(feature = "tkrzw")]
use tkrzw::{Tkrzw, class};

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rival {
    /// azekura's hash file
    Azekura,
    /// azekura's leanest hash in memory
    AzekuraTiny,
    /// azekura's ordered store in memory
    AzekuraBaby,
    /// azekura's cache, with room for every record
    AzekuraCache,
    /// azekura's hash in memory over the standard library's
    AzekuraStdHash,
    /// azekura's tree in memory over the standard library's
    AzekuraStdTree,
    /// Tkrzw's file hash database
    #[cfg(feature = "tkrzw")]
    TkrzwHash,
    /// Tkrzw's lean hash database in memory
    #[cfg(feature = "tkrzw")]
    TkrzwTiny,
    /// Tkrzw's ordered database in memory
    #[cfg(feature = "tkrzw")]
    TkrzwBaby,
    /// Tkrzw's cache, with room for every record
    #[cfg(feature = "tkrzw")]
    TkrzwCache,
    /// Tkrzw's database over the hash map of C++
    #[cfg(feature = "tkrzw")]
    TkrzwStdHash,
    /// Tkrzw's database over the ordered map of C++
    #[cfg(feature = "tkrzw")]
    TkrzwStdTree,
    /// `RocksDB`
    #[cfg(feature = "rocksdb")]
    Rocksdb,
    /// LMDB
    #[cfg(feature = "lmdb")]
    Lmdb,
    /// redb
    #[cfg(feature = "redb")]
    Redb,
    /// fjall
    #[cfg(feature = "fjall")]
    Fjall,
    /// `DashMap`, in memory
    #[cfg(feature = "dashmap")]
    Dashmap,
    /// papaya, in memory
    #[cfg(feature = "papaya")]
    Papaya,
    /// scc, in memory
    #[cfg(feature = "scc")]
    Scc,
    /// The standard library's hash map behind a lock, in memory
    Std,
    /// The standard library's ordered map behind a lock, in memory
    StdBtree,
    /// Nothing: the cost of the harness
    None,
}

impl Rival {
    /// The word in flags.
    pub(crate) fn word(self) -> String {
        let value = self.to_possible_value().expect("no rival is skipped");
        value.get_name().to_owned()
    }

    /// Runs the phases of `plan` in this process.
    pub(crate) fn record(
        self,
        plan: &Plan,
        emit: &mut dyn FnMut(Phase) -> Result<()>,
    ) -> Result<()> {
        (self.row().run)(plan, emit)
    }

    /// Its properties. The one place that distinguishes rivals.
    pub(crate) fn row(self) -> Row {
        match self {
            Self::Azekura => Row {
                has_file: true,
                ..Row::ours(record::<Hash>)
            },
            Self::AzekuraTiny => Row::ours(record::<Tiny>),
            Self::AzekuraBaby => Row::ours(record::<Baby>),
            Self::AzekuraCache => Row::ours(record::<Cache>),
            Self::AzekuraStdHash => Row::ours(record::<StdHash>),
            Self::AzekuraStdTree => Row::ours(record::<StdTree>),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwHash => Row {
                batches: false,
                ..Row::of_file(record::<Tkrzw<{ class::HASH }>>, tkrzw::version())
            },
            #[cfg(feature = "tkrzw")]
            Self::TkrzwTiny => Row::of_tkrzw(
                record::<Tkrzw<{ class::TINY }>>,
                Self::AzekuraTiny,
                Suite::Tiny,
            ),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwBaby => Row::of_tkrzw(
                record::<Tkrzw<{ class::BABY }>>,
                Self::AzekuraBaby,
                Suite::Baby,
            ),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwCache => Row::of_tkrzw(
                record::<Tkrzw<{ class::CACHE }>>,
                Self::AzekuraCache,
                Suite::Cache,
            ),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwStdHash => Row::of_tkrzw(
                record::<Tkrzw<{ class::STD_HASH }>>,
                Self::AzekuraStdHash,
                Suite::Std,
            ),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwStdTree => Row::of_tkrzw(
                record::<Tkrzw<{ class::STD_TREE }>>,
                Self::AzekuraStdTree,
                Suite::Std,
            ),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => Row {
                counts_removals: false,
                ..Row::of_file(
                    record::<rocksdb::RocksDb>,
                    format!("rocksdb {}", env!("ROCKSDB_VERSION")),
                )
            },
            #[cfg(feature = "lmdb")]
            Self::Lmdb => Row::of_file(record::<lmdb::Lmdb>, lmdb::version()),
            #[cfg(feature = "redb")]
            Self::Redb => Row::of_file(record::<redb::Redb>, locked("redb")),
            #[cfg(feature = "fjall")]
            Self::Fjall => Row {
                counts_removals: false,
                ..Row::of_file(record::<fjall::Fjall>, locked("fjall"))
            },
            #[cfg(feature = "dashmap")]
            Self::Dashmap => Row::of_map(record::<InMemory<maps::Dash>>, locked("dashmap")),
            #[cfg(feature = "papaya")]
            Self::Papaya => Row::of_map(record::<InMemory<maps::Papaya>>, locked("papaya")),
            #[cfg(feature = "scc")]
            Self::Scc => Row::of_map(record::<InMemory<maps::Scc>>, locked("scc")),
            Self::Std => Row {
                counterpart: (Self::AzekuraStdHash, Suite::Std),
                ..Row::of_map(record::<InMemory<maps::Std>>, self.word())
            },
            Self::StdBtree => Row {
                counterpart: (Self::AzekuraStdTree, Suite::Std),
                ..Row::of_map(record::<InMemory<maps::StdBtree>>, self.word())
            },
            Self::None => Row {
                version: self.word(),
                ..Row::ours(record::<Nothing>)
            },
        }
    }
}

/// Runs the phases of a plan over one target.
type Run = fn(&Plan, &mut dyn FnMut(Phase) -> Result<()>) -> Result<()>;

/// What is known of a rival.
pub(crate) struct Row {
    run: Run,
    /// The engine of azekura that it is compared with by default, and by which suite.
    pub(crate) counterpart: (Rival, Suite),
    /// Whether it has batched calls; one without is called record by record.
    pub(crate) batches: bool,
    /// Whether it keeps its records in a file.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests ask"))]
    has_file: bool,
    /// Whether a removal reports if there was a record. Log-structured trees write a mark and do not look.
    pub(crate) counts_removals: bool,
    /// Name and version of the library.
    pub(crate) version: String,
}

impl Row {
    /// An engine of azekura, in memory.
    fn ours(run: Run) -> Self {
        Self {
            has_file: false,
            ..Self::of_file(run, locked("azekura"))
        }
    }

    /// A store in a file, with batches.
    fn of_file(run: Run, version: String) -> Self {
        Self {
            run,
            counterpart: (Rival::Azekura, Suite::Asked),
            batches: true,
            has_file: true,
            counts_removals: true,
            version,
        }
    }

    /// A map in memory, without batches.
    fn of_map(run: Run, version: String) -> Self {
        Self {
            counterpart: (Rival::AzekuraTiny, Suite::Maps),
            batches: false,
            has_file: false,
            ..Self::of_file(run, version)
        }
    }

    /// A class of Tkrzw in memory.
    #[cfg(feature = "tkrzw")]
    fn of_tkrzw(run: Run, counterpart: Rival, suite: Suite) -> Self {
        Self {
            counterpart: (counterpart, suite),
            ..Self::of_map(run, tkrzw::version())
        }
    }
}

/// The name of `package`, and the version this program was built with.
fn locked(package: &str) -> String {
    let lock = include_str!("../../../../Cargo.lock");
    let entry = lock.split("[[package]]\n").find(|entry| {
        entry
            .strip_prefix("name = \"")
            .is_some_and(|rest| rest.starts_with(&format!("{package}\"")))
    });
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    format!("{package} {}", version.unwrap_or("unknown"))
}

/// The error of a rival.
#[cold]
pub(crate) fn failed(what: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Io, format!("the rival failed to {what}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny(rival: Rival, plan: &Plan) -> Vec<Phase> {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("store"));
        let plan = Plan {
            path,
            count: 300 / plan.threads,
            json: true,
            ..plan.clone()
        };
        let mut phases = Vec::new();
        rival
            .record(&plan, &mut |phase| {
                phases.push(phase);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{}: {error}", rival.word()));
        phases
    }

    #[test]
    fn every_rival_runs_every_workload_tiny_and_reads_the_same() {
        let real = |rival: &&Rival| !matches!(rival, Rival::Std | Rival::None);
        let suites = [Suite::Asked, Suite::Tiny, Suite::Shapes];
        for row in suites.iter().flat_map(|suite| suite.rows().unwrap()) {
            let expected = tiny(Rival::Std, &row.plan);
            for &rival in Rival::value_variants().iter().filter(real) {
                for (found, expected) in tiny(rival, &row.plan).iter().zip(&expected) {
                    let what = format!("{} {}: {}", rival.word(), row.name, found.op);
                    assert_eq!(found.digest, expected.digest, "{what}");
                    if found.op != "remove" || rival.row().counts_removals {
                        assert_eq!(found.hits, expected.hits, "{what}");
                    }
                    assert_eq!(
                        found.cost.file_bytes.is_some(),
                        rival.row().has_file,
                        "{what}"
                    );
                    if !rival.row().has_file {
                        assert_eq!(found.live, expected.live, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn versions_are_known() {
        for rival in Rival::value_variants() {
            let (version, word) = (rival.row().version, rival.word());
            assert!(!version.contains("unknown"), "{version}");
            let words: Vec<&str> = version.split(' ').collect();
            assert!(word.starts_with(words[0]), "{word}: {version}");
            assert!(words.windows(2).all(|pair| pair[0] != pair[1]), "{version}");
        }
    }
}
