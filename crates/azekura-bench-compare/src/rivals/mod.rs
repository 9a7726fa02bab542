//! The stores that can be measured here: the rivals, each behind a feature, and azekura itself.
//!
//! Each is called through its own library by the same worker loop. Settings are those its authors
//! recommend for point lookups of small records; what is not default is said in its file. A rival is
//! left out of the program when its feature is off.

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "tkrzw")]
mod tkrzw;

use azekura::error::{Error, Kind, Result};
use azekura_bench::engines::{hash::Hash, none::Nothing, std_hash::StdHash};
use azekura_bench::plan::Plan;
use azekura_bench::report::Phase;
use azekura_bench::workload::record;
use clap::ValueEnum;

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rival {
    /// azekura's hash file
    Azekura,
    /// Tkrzw's file hash database
    #[cfg(feature = "tkrzw")]
    TkrzwHash,
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
    /// The standard library's hash map behind a lock, in memory
    Std,
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
            #[cfg(feature = "tkrzw")]
            Self::TkrzwHash => record::<tkrzw::Tkrzw>(plan, emit),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => record::<rocksdb::RocksDb>(plan, emit),
            #[cfg(feature = "lmdb")]
            Self::Lmdb => record::<lmdb::Lmdb>(plan, emit),
            #[cfg(feature = "redb")]
            Self::Redb => record::<redb::Redb>(plan, emit),
            #[cfg(feature = "fjall")]
            Self::Fjall => record::<fjall::Fjall>(plan, emit),
            Self::Std => record::<StdHash>(plan, emit),
            Self::None => record::<Nothing>(plan, emit),
        }
    }

    /// Whether it has batched calls; one without is called record by record.
    pub(crate) fn batches(self) -> bool {
        #[cfg(feature = "tkrzw")]
        if self == Self::TkrzwHash {
            return false;
        }
        true
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
            Self::Azekura => format!("azekura {}", locked("azekura")),
            #[cfg(feature = "tkrzw")]
            Self::TkrzwHash => format!("tkrzw {}", tkrzw::version()),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => format!("rocksdb {}", env!("ROCKSDB_VERSION")),
            #[cfg(feature = "lmdb")]
            Self::Lmdb => lmdb::version(),
            #[cfg(feature = "redb")]
            Self::Redb => format!("redb {}", locked("redb")),
            #[cfg(feature = "fjall")]
            Self::Fjall => format!("fjall {}", locked("fjall")),
            Self::Std | Self::None => self.word(),
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
    use azekura_bench::suite::Suite;

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
        let files = |rival: &&Rival| !matches!(rival, Rival::Std | Rival::None);
        for row in Suite::Asked
            .rows()
            .unwrap()
            .iter()
            .chain(&Suite::Shapes.rows().unwrap())
        {
            let expected = tiny(Rival::Std, &row.plan);
            for &rival in Rival::value_variants().iter().filter(files) {
                for (found, expected) in tiny(rival, &row.plan).iter().zip(&expected) {
                    let what = format!("{} {}: {}", rival.word(), row.name, found.op);
                    assert_eq!(found.digest, expected.digest, "{what}");
                    if found.op != "remove" || rival.counts_removals() {
                        assert_eq!(found.hits, expected.hits, "{what}");
                    }
                    assert!(found.file_bytes.is_some(), "{what}");
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
