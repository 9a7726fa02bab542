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
use azekura_bench::engines::{hash::Hash, none::Nothing, skip::Skip, tree::Tree};
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

/// A kind of stores: what each is, its word, and its properties. The one place that distinguishes them.
macro_rules! stores {
    ($row:ty: $(
        $(#[doc = $what:tt])* $(#[cfg($where:meta)])? $store:ident => $made:expr;
    )*) => {
        /// A store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub(crate) enum Rival {
            $($(#[doc = $what])* $(#[cfg($where)])? $store,)*
        }

        impl Rival {
            /// Its properties.
            pub(crate) fn row(self) -> $row {
                match self {
                    $($(#[cfg($where)])? Self::$store => $made,)*
                }
            }
        }
    };
}
pub(crate) use stores;

stores! { Row:
    /// azekura's hash file
    Azekura => Row::of::<Hash>(locked("azekura"));
    /// azekura's tree file
    AzekuraTree => Row::of::<Tree>(locked("azekura"));
    /// azekura's sorted file
    AzekuraSkip => Row::of::<Skip>(locked("azekura"));
    /// azekura's leanest hash in memory
    AzekuraTiny => Row::of::<Tiny>(locked("azekura"));
    /// azekura's ordered store in memory
    AzekuraBaby => Row::of::<Baby>(locked("azekura"));
    /// azekura's cache, with room for every record
    AzekuraCache => Row::of::<Cache>(locked("azekura"));
    /// azekura's hash in memory over the standard library's
    AzekuraStdHash => Row::of::<StdHash>(locked("azekura"));
    /// azekura's tree in memory over the standard library's
    AzekuraStdTree => Row::of::<StdTree>(locked("azekura"));
    /// Tkrzw's file hash database
    #[cfg(feature = "tkrzw")]
    TkrzwHash => Row::tkrzw::<{ class::HASH }>(Rival::Azekura, Suite::Asked);
    /// Tkrzw's file tree database
    #[cfg(feature = "tkrzw")]
    TkrzwTree => Row::tkrzw::<{ class::TREE }>(Rival::AzekuraTree, Suite::Tree);
    /// Tkrzw's file database that is sorted at each synchronisation
    #[cfg(feature = "tkrzw")]
    TkrzwSkip => Row::tkrzw::<{ class::SKIP }>(Rival::AzekuraSkip, Suite::Skip);
    /// Tkrzw's lean hash database in memory
    #[cfg(feature = "tkrzw")]
    TkrzwTiny => Row::tkrzw::<{ class::TINY }>(Rival::AzekuraTiny, Suite::Tiny);
    /// Tkrzw's ordered database in memory
    #[cfg(feature = "tkrzw")]
    TkrzwBaby => Row::tkrzw::<{ class::BABY }>(Rival::AzekuraBaby, Suite::Baby);
    /// Tkrzw's cache, with room for every record
    #[cfg(feature = "tkrzw")]
    TkrzwCache => Row::tkrzw::<{ class::CACHE }>(Rival::AzekuraCache, Suite::Cache);
    /// Tkrzw's database over the hash map of C++
    #[cfg(feature = "tkrzw")]
    TkrzwStdHash => Row::tkrzw::<{ class::STD_HASH }>(Rival::AzekuraStdHash, Suite::Std);
    /// Tkrzw's database over the ordered map of C++
    #[cfg(feature = "tkrzw")]
    TkrzwStdTree => Row::tkrzw::<{ class::STD_TREE }>(Rival::AzekuraStdTree, Suite::Std);
    /// `RocksDB`
    #[cfg(feature = "rocksdb")]
    Rocksdb => Row {
        counterpart: (Rival::AzekuraTree, Suite::TreeRocksdb),
        ..Row::of::<rocksdb::RocksDb>(format!("rocksdb {}", env!("ROCKSDB_VERSION")))
    };
    /// LMDB
    #[cfg(feature = "lmdb")]
    Lmdb => Row {
        counterpart: (Rival::AzekuraTree, Suite::TreeLmdb),
        ..Row::of::<lmdb::Lmdb>(lmdb::version())
    };
    /// redb
    #[cfg(feature = "redb")]
    Redb => Row {
        counterpart: (Rival::AzekuraTree, Suite::TreeRedb),
        ..Row::of::<redb::Redb>(locked("redb"))
    };
    /// fjall
    #[cfg(feature = "fjall")]
    Fjall => Row::of::<fjall::Fjall>(locked("fjall"));
    /// `DashMap`, in memory
    #[cfg(feature = "dashmap")]
    Dashmap => Row::map::<maps::Dash>(locked("dashmap"));
    /// papaya, in memory
    #[cfg(feature = "papaya")]
    Papaya => Row::map::<maps::Papaya>(locked("papaya"));
    /// scc, in memory
    #[cfg(feature = "scc")]
    Scc => Row::map::<maps::Scc>(locked("scc"));
    /// The standard library's hash map behind a lock, in memory
    Std => Row {
        counterpart: (Rival::AzekuraStdHash, Suite::Std),
        ..Row::map::<maps::Std>(word(&Rival::Std))
    };
    /// The standard library's ordered map behind a lock, in memory
    StdBtree => Row {
        counterpart: (Rival::AzekuraStdTree, Suite::Std),
        ..Row::map::<maps::StdBtree>(word(&Rival::StdBtree))
    };
    /// Nothing: the cost of the harness
    None => Row::of::<Nothing>(word(&Rival::None));
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
    /// Whether a removal reports if there was a record.
    pub(crate) counts_removals: bool,
    /// Whether it keeps its records in the order of their keys.
    pub(crate) is_ordered: bool,
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
            counts_removals: T::COUNTS_REMOVALS,
            is_ordered: T::ORDERED,
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
    use azekura_bench::plan::Op;

    use super::*;

    fn tiny(rival: Rival, plan: &Plan) -> Vec<Phase> {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("store"));
        let plan = Plan {
            path,
            count: 300 / plan.threads,
            later: plan.later.map(|later| later.min(300 / plan.threads)),
            memory: None,
            json: true,
            ..plan.clone()
        };
        collect(|emit| (rival.row().run)(&plan, emit))
            .unwrap_or_else(|error| panic!("{}: {error}", word(&rival)))
    }

    #[test]
    fn every_rival_runs_every_workload_tiny_and_reads_the_same() {
        let real = |rival: &&Rival| !matches!(rival, Rival::AzekuraStdTree | Rival::None);
        let suites = [
            Suite::Asked,
            Suite::Tiny,
            Suite::Shapes,
            Suite::Tree,
            Suite::Skip,
            Suite::TreeLmdb,
        ];
        for row in suites.iter().flat_map(|suite| suite.rows().unwrap()) {
            let scans = row.plan.ops.contains(&Op::Scan);
            let ordered = |rival: &&Rival| !scans || rival.row().is_ordered;
            let expected = tiny(Rival::AzekuraStdTree, &row.plan);
            for &rival in Rival::value_variants().iter().filter(real).filter(ordered) {
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
