//! A limit of memory that counts the system's page cache: a memory cgroup, which the user made for this purpose.
//!
//! The process enters it before the first phase, without a limit, so that all it takes is counted there; the limit is set
//! when the store has been made. Lowering it makes the kernel give up pages of files at once. Promises: no group is made or
//! removed, and nothing but its limit is changed. It does not know what is measured.
//!
//! | version of cgroups | file of the limit | no limit |
//! |---|---|---|
//! | 1 | `memory.limit_in_bytes` | `-1` |
//! | 2 | `memory.max` | `max` |

use std::fs;
use std::path::{Path, PathBuf};

use azekura::error::{Error, Kind, Result};

const VERSIONS: [(&str, &str); 2] = [("memory.max", "max"), ("memory.limit_in_bytes", "-1")];

/// A memory cgroup that this process is in.
#[derive(Debug)]
pub struct MemoryGroup {
    /// The file of its limit.
    limit: PathBuf,
}

impl MemoryGroup {
    /// Enters the group at `folder`, which has no limit afterwards.
    ///
    /// Errors: `Invalid` if that is no memory cgroup, `Io` if the system refuses.
    pub fn enter(folder: &Path) -> Result<Self> {
        let here = |(name, _): &&(&str, &str)| folder.join(name).exists();
        let Some((name, none)) = VERSIONS.iter().find(here) else {
            return Err(Error::new(Kind::Invalid, "no memory cgroup is here")
                .at(folder)
                .found("no file of a limit", "memory.max or memory.limit_in_bytes")
                .remedy("make a folder where the memory controller is mounted, and name it"));
        };
        let group = Self {
            limit: folder.join(name),
        };
        group.write(none)?;
        let members = folder.join("cgroup.procs");
        let process = std::process::id().to_string();
        fs::write(&members, process).map_err(|error| {
            Error::io("cannot enter the memory cgroup", error)
                .at(&members)
                .remedy("run as its owner, from a group that it may be entered from")
        })?;
        Ok(group)
    }

    /// Limits the group to so many bytes. `Io` if it cannot give up as much as that takes.
    pub fn limit(&self, bytes: u64) -> Result<()> {
        self.write(&bytes.to_string())
    }

    fn write(&self, text: &str) -> Result<()> {
        fs::write(&self.limit, text).map_err(|error| {
            Error::io("cannot limit the memory cgroup", error)
                .at(&self.limit)
                .remedy("run as its owner, with a limit that the process can live in")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folders of plain files stand for groups: what is written to them is what the kernel would be asked.
    #[test]
    fn a_group_of_either_version_is_entered_without_a_limit_and_limited_later() {
        for (name, none) in VERSIONS {
            let folder = tempfile::tempdir().unwrap();
            let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name), "12345").unwrap();
            let group = MemoryGroup::enter(folder.path()).unwrap();
            assert_eq!(read(name), none);
            assert_eq!(read("cgroup.procs"), std::process::id().to_string());
            group.limit(80 << 20).unwrap();
            assert_eq!(read(name), "83886080");
        }
    }

    #[test]
    fn a_folder_that_is_no_group_is_refused_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let error = MemoryGroup::enter(folder.path()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
