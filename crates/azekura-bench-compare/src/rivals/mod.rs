//! The stores that can be measured here: the rivals, each behind a feature, and azekura itself.
//!
//! Each is called through its own library by the same worker loop. Settings are those its authors
//! recommend for point lookups of small records; what is not default stands in its file. A rival is
//! left out of the program when its feature is off.

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
pub(crate) mod lmdb;
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
use azekura_bench::target::Target;
use azekura_bench::words::word;
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
    /// Its properties. The one place that distinguishes rivals.
    pub(crate) fn row(self) -> Row {
        let ours = || locked("azekura");
        match self {
            Self::Azekura => Row::of::<Hash>(ours()),
            Self::AzekuraTiny => Row::of::<Tiny>(ours()),
            Self::AzekuraBaby => Row::of::<Baby>(ours()),
            Self::AzekuraCache => Row::of::<Cache>(ours()),
            Self::AzekuraStdHash => Row::of::<StdHash>(ours()),
            Self::AzekuraStdTree => Row::of::<StdTree>(ours()),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwHash => Row::tkrzw::<{ class::HASH }>(Self::Azekura, Suite::Asked),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwTiny => Row::tkrzw::<{ class::TINY }>(Self::AzekuraTiny, Suite::Tiny),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwBaby => Row::tkrzw::<{ class::BABY }>(Self::AzekuraBaby, Suite::Baby),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwCache => Row::tkrzw::<{ class::CACHE }>(Self::AzekuraCache, Suite::Cache),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwStdHash => {
                Row::tkrzw::<{ class::STD_HASH }>(Self::AzekuraStdHash, Suite::Std)
            }
            #[cfg(feature = "tkrzw")]
            Self::TkrzwStdTree => {
                Row::tkrzw::<{ class::STD_TREE }>(Self::AzekuraStdTree, Suite::Std)
            }
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => Row {
                counts_removals: false,
                ..Row::of::<rocksdb::RocksDb>(format!("rocksdb {}", env!("ROCKSDB_VERSION")))
            },
            #[cfg(feature = "lmdb")]
            Self::Lmdb => Row::of::<lmdb::Lmdb>(lmdb::version()),
            #[cfg(feature = "redb")]
            Self::Redb => Row::of::<redb::Redb>(locked("redb")),
            #[cfg(feature = "fjall")]
            Self::Fjall => Row {
                counts_removals: false,
                ..Row::of::<fjall::Fjall>(locked("fjall"))
            },
            #[cfg(feature = "dashmap")]
            Self::Dashmap => Row::map::<maps::Dash>(locked("dashmap")),
            #[cfg(feature = "papaya")]
            Self::Papaya => Row::map::<maps::Papaya>(locked("papaya")),
            #[cfg(feature = "scc")]
            Self::Scc => Row::map::<maps::Scc>(locked("scc")),
            Self::Std => Row {
                counterpart: (Self::AzekuraStdHash, Suite::Std),
                ..Row::map::<maps::Std>(word(&self))
            },
            Self::StdBtree => Row {
                counterpart: (Self::AzekuraStdTree, Suite::Std),
                ..Row::map::<maps::StdBtree>(word(&self))
            },
            Self::None => Row::of::<Nothing>(word(&self)),
        }
    }
}

/// Runs the phases of a plan over one target.
type Run = fn(&Plan, &mut dyn FnMut(Phase) -> Result<()>) -> Result<()>;

/// What is known of a rival.
pub(crate) struct Row {
    /// Runs the phases of a plan in this process.
    pub(crate) run: Run,
    /// The engine of azekura that it is compared with by default, and by which suite.
    pub(crate) counterpart: (Rival, Suite),
    /// Whether it has batched calls; one without is called record by record.
    pub(crate) batches: bool,
    /// Whether a removal reports if there was a record. Log-structured trees write a mark and do not look.
    pub(crate) counts_removals: bool,
    /// Name and version of the library.
    pub(crate) version: String,
}

impl Row {
    /// A store with batches, in addition to the hash file.
    fn of<T: Target>(version: String) -> Self {
        Self {
            run: record::<T>,
            counterpart: (Rival::Azekura, Suite::Asked),
            batches: true,
            counts_removals: true,
            version,
        }
    }

    /// A map in memory, without batches.
    fn map<M: maps::Map>(version: String) -> Self {
        Self {
            counterpart: (Rival::AzekuraTiny, Suite::Maps),
            batches: false,
            ..Self::of::<InMemory<M>>(version)
        }
    }

    /// A class of Tkrzw, without batches.
    #[cfg(feature = "tkrzw")]
    fn tkrzw<const CLASS: u8>(ours: Rival, suite: Suite) -> Self {
        Self {
            counterpart: (ours, suite),
            batches: false,
            ..Self::of::<Tkrzw<CLASS>>(tkrzw::version())
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

/// The result of a call of a rival.
pub(crate) trait Called<T> {
    /// What it returned; its error is one of ours, which states that the rival failed to do `what`.
    fn or_failed(self, what: &str) -> Result<T>;
}

impl<T, E: std::fmt::Display> Called<T> for std::result::Result<T, E> {
    #[inline]
    fn or_failed(self, what: &str) -> Result<T> {
        self.map_err(|error| failed(what, error))
    }
}

#[cfg(test)]
mod tests {
    use azekura_bench::phase::collect;

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
        collect(|emit| (rival.row().run)(&plan, emit))
            .unwrap_or_else(|error| panic!("{}: {error}", word(&rival)))
    }

    #[test]
    fn every_rival_runs_every_workload_tiny_and_reads_the_same() {
        let real = |rival: &&Rival| !matches!(rival, Rival::Std | Rival::None);
        let suites = [Suite::Asked, Suite::Tiny, Suite::Shapes];
        for row in suites.iter().flat_map(|suite| suite.rows().unwrap()) {
            let expected = tiny(Rival::Std, &row.plan);
            for &rival in Rival::value_variants().iter().filter(real) {
                for (found, expected) in tiny(rival, &row.plan).iter().zip(&expected) {
                    let what = format!("{} {}: {}", word(&rival), row.name, found.op);
                    assert_eq!(found.digest, expected.digest, "{what}");
                    if found.op != "remove" || rival.row().counts_removals {
                        assert_eq!(found.hits, expected.hits, "{what}");
                    }
                    let has_file = found.durability.is_some();
                    assert_eq!(found.cost.file_bytes.is_some(), has_file, "{what}");
                    if !has_file {
                        assert_eq!(found.live, expected.live, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn versions_are_known() {
        for rival in Rival::value_variants() {
            let (version, word) = (rival.row().version, word(rival));
            assert!(!version.contains("unknown"), "{version}");
            let words: Vec<&str> = version.split(' ').collect();
            assert!(word.starts_with(words[0]), "{word}: {version}");
            assert!(words.windows(2).all(|pair| pair[0] != pair[1]), "{version}");
        }
    }
}
