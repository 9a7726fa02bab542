//! The stores that can be measured here: the rivals, each behind a feature, and azekura itself.
//!
//! Each is called through its own library by the same worker loop. Settings are those its authors
//! recommend for point lookups of small records; what is not default is said in its file. A rival is
//! left out of the program when its feature is off.

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
mod maps;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "tkrzw")]
mod tkrzw;

use azekura::error::{Error, Kind, Result};
use azekura_bench::engines::memory::{Baby, Cache, StdHash, StdTree, Tiny};
use azekura_bench::engines::{hash::Hash, none::Nothing};
use azekura_bench::plan::Plan;
use azekura_bench::report::Phase;
use azekura_bench::suite::Suite;
use azekura_bench::workload::record;
use clap::ValueEnum;

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
        match self {
            Self::Azekura => record::<Hash>(plan, emit),
            Self::AzekuraTiny => record::<Tiny>(plan, emit),
            Self::AzekuraBaby => record::<Baby>(plan, emit),
            Self::AzekuraCache => record::<Cache>(plan, emit),
            Self::AzekuraStdHash => record::<StdHash>(plan, emit),
            Self::AzekuraStdTree => record::<StdTree>(plan, emit),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwHash => record::<tkrzw::Tkrzw<{ tkrzw::class::HASH }>>(plan, emit),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwTiny => record::<tkrzw::Tkrzw<{ tkrzw::class::TINY }>>(plan, emit),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwBaby => record::<tkrzw::Tkrzw<{ tkrzw::class::BABY }>>(plan, emit),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwCache => record::<tkrzw::Tkrzw<{ tkrzw::class::CACHE }>>(plan, emit),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwStdHash => record::<tkrzw::Tkrzw<{ tkrzw::class::STD_HASH }>>(plan, emit),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwStdTree => record::<tkrzw::Tkrzw<{ tkrzw::class::STD_TREE }>>(plan, emit),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => record::<rocksdb::RocksDb>(plan, emit),
            #[cfg(feature = "lmdb")]
            Self::Lmdb => record::<lmdb::Lmdb>(plan, emit),
            #[cfg(feature = "redb")]
            Self::Redb => record::<redb::Redb>(plan, emit),
            #[cfg(feature = "fjall")]
            Self::Fjall => record::<fjall::Fjall>(plan, emit),
            #[cfg(feature = "dashmap")]
            Self::Dashmap => record::<maps::InMemory<maps::Dash>>(plan, emit),
            #[cfg(feature = "papaya")]
            Self::Papaya => record::<maps::InMemory<maps::Papaya>>(plan, emit),
            #[cfg(feature = "scc")]
            Self::Scc => record::<maps::InMemory<maps::Scc>>(plan, emit),
            Self::Std => record::<maps::InMemory<maps::Std>>(plan, emit),
            Self::StdBtree => record::<maps::InMemory<maps::StdBtree>>(plan, emit),
            Self::None => record::<Nothing>(plan, emit),
        }
    }

    /// Whether it has batched calls; one without is called record by record.
    pub(crate) fn batches(self) -> bool {
        match self {
            Self::Azekura
            | Self::AzekuraTiny
            | Self::AzekuraBaby
            | Self::AzekuraCache
            | Self::AzekuraStdHash
            | Self::AzekuraStdTree
            | Self::None => true,
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => true,
            #[cfg(feature = "lmdb")]
            Self::Lmdb => true,
            #[cfg(feature = "redb")]
            Self::Redb => true,
            #[cfg(feature = "fjall")]
            Self::Fjall => true,
            _ => false,
        }
    }

    /// Whom of azekura it is compared with if nothing is said, and by which suite.
    pub(crate) fn counterpart(self) -> (Self, Suite) {
        match self {
            #[cfg(feature = "tkrzw")]
            Self::TkrzwTiny => (Self::AzekuraTiny, Suite::Tiny),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwBaby => (Self::AzekuraBaby, Suite::Baby),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwCache => (Self::AzekuraCache, Suite::Cache),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwStdHash => (Self::AzekuraStdHash, Suite::Std),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwStdTree => (Self::AzekuraStdTree, Suite::Std),
            #[cfg(feature = "dashmap")]
            Self::Dashmap => (Self::AzekuraTiny, Suite::Tiny),
            #[cfg(feature = "papaya")]
            Self::Papaya => (Self::AzekuraTiny, Suite::Tiny),
            #[cfg(feature = "scc")]
            Self::Scc => (Self::AzekuraTiny, Suite::Tiny),
            Self::Std => (Self::AzekuraStdHash, Suite::Std),
            Self::StdBtree => (Self::AzekuraStdTree, Suite::Std),
            _ => (Self::Azekura, Suite::Asked),
        }
    }

    /// Whether it keeps its records in a file.
    #[cfg(test)]
    fn has_file(self) -> bool {
        self.counterpart().0 == Self::Azekura
            && !matches!(
                self,
                Self::AzekuraTiny
                    | Self::AzekuraBaby
                    | Self::AzekuraCache
                    | Self::AzekuraStdHash
                    | Self::AzekuraStdTree
                    | Self::None
            )
    }

    /// Whether a removal says if there was a record. Log-structured trees write a mark and do not look.
    pub(crate) fn counts_removals(self) -> bool {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => false,
            #[cfg(feature = "fjall")]
            Self::Fjall => false,
            _ => true,
        }
    }

    /// Name and version of the library.
    pub(crate) fn version(self) -> String {
        match self {
            Self::Azekura
            | Self::AzekuraTiny
            | Self::AzekuraBaby
            | Self::AzekuraCache
            | Self::AzekuraStdHash
            | Self::AzekuraStdTree => format!("azekura {}", locked("azekura")),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwHash
            | Self::TkrzwTiny
            | Self::TkrzwBaby
            | Self::TkrzwCache
            | Self::TkrzwStdHash
            | Self::TkrzwStdTree => format!("tkrzw {}", tkrzw::version()),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => format!("rocksdb {}", env!("ROCKSDB_VERSION")),
            #[cfg(feature = "lmdb")]
            Self::Lmdb => lmdb::version(),
            #[cfg(feature = "redb")]
            Self::Redb => format!("redb {}", locked("redb")),
            #[cfg(feature = "fjall")]
            Self::Fjall => format!("fjall {}", locked("fjall")),
            #[cfg(feature = "dashmap")]
            Self::Dashmap => format!("dashmap {}", locked("dashmap")),
            #[cfg(feature = "papaya")]
            Self::Papaya => format!("papaya {}", locked("papaya")),
            #[cfg(feature = "scc")]
            Self::Scc => format!("scc {}", locked("scc")),
            Self::Std | Self::StdBtree | Self::None => self.word(),
        }
    }
}

/// The version of `package` this program was built with.
fn locked(package: &str) -> &'static str {
    let lock = include_str!("../../../../Cargo.lock");
    let entry = lock.split("[[package]]\n").find(|entry| {
        entry
            .strip_prefix("name = \"")
            .is_some_and(|rest| rest.starts_with(&format!("{package}\"")))
    });
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("unknown")
}

/// The error of a rival.
#[cold]
fn failed(what: &str, why: impl std::fmt::Display) -> Error {
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
                    if found.op != "remove" || rival.counts_removals() {
                        assert_eq!(found.hits, expected.hits, "{what}");
                    }
                    assert_eq!(found.file_bytes.is_some(), rival.has_file(), "{what}");
                    if !rival.has_file() {
                        assert_eq!(found.live, expected.live, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn versions_are_known() {
        for rival in Rival::value_variants() {
            assert!(!rival.version().contains("unknown"), "{}", rival.word());
        }
    }
}
