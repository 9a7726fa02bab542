//! Copies of a store, and what changed since: of a tree file, and of several of them as one store.
//!
//! Which checkpoint a copy is at is one identity for a file, and one for each shard, in their order. What they promise is stated at
//! [`TreeDb`] and [`Sharded`]; a hash file has no changes since a copy.

use std::path::Path;

use super::{Db, Store};
use crate::error::{Error, Kind, Result};
use crate::record::tree::{CheckpointId, TreeDb};
use crate::shard::{ShardEngine, Sharded, shards_at};

/// Copies.
impl Db {
    /// Writes what changed since an earlier copy to a new file, while the store is used; of several shards, to a file for each and one that
    /// names them. Where the copy will be when [`apply_changes`](Self::apply_changes) has brought it forward.
    ///
    /// `since`: where the copy is ([`checkpoints_of`](Self::checkpoints_of)). `Invalid` of a hash file, and as [`TreeDb::copy_changes`] and
    /// [`Sharded::copy_changes`], which state more.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # std::env::set_current_dir(&folder).unwrap();
    /// use azekura::Db;
    ///
    /// let db = azekura::create("fruit.azt?shards=4")?;
    /// db.put("apple", "red")?;
    /// db.copy_to("backup.azt", |_, _| {})?;
    /// db.put("plum", "blue")?;
    /// let since = Db::checkpoints_of("backup.azt")?;
    /// let to = db.copy_changes(&since, "monday.changes", |_, _| {})?;
    /// assert_eq!(Db::apply_changes("backup.azt", "monday.changes", |_, _| {})?, to);
    /// assert_eq!(azekura::open("backup.azt")?.get("plum")?.as_deref(), Some(&b"blue"[..]));
    /// # azekura::Result::Ok(())
    /// ```
    pub fn copy_changes(
        &self,
        since: &[CheckpointId],
        target: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Vec<CheckpointId>> {
        match (&self.0, since) {
            (Store::Tree(db), [since]) => {
                let to = db.copy_changes(*since, target, &mut progress)?;
                Ok(vec![to])
            }
            (Store::Tree(_), _) => {
                let error = Error::new(Kind::Invalid, "the copy is of a store of several shards");
                Err(error
                    .at(self.path())
                    .found(format!("{} checkpoints", since.len()), "one of this file")
                    .remedy("name a copy of this file"))
            }
            (Store::TreeShards(db), _) => db.copy_changes(since, target, &mut progress),
            (Store::Hash(_) | Store::HashShards(_), _) => Err(has_no_changes(self.path())),
        }
    }

    /// Brings a copy forward with what [`copy_changes`](Self::copy_changes) wrote; where it is then. Nothing opens it from the first write
    /// to the last: after an error or a crash, the same call completes it. Errors are those of [`TreeDb::apply_changes`] and
    /// [`Sharded::apply_changes`].
    pub fn apply_changes(
        copy: impl AsRef<Path>,
        changes: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Vec<CheckpointId>> {
        let (copy, changes) = (copy.as_ref(), changes.as_ref());
        match shards_at(copy)? {
            Some((ShardEngine::Tree, _)) => {
                Sharded::<TreeDb>::apply_changes(copy, changes, &mut progress)
            }
            Some((ShardEngine::Hash, _)) => Err(has_no_changes(copy)),
            None => TreeDb::apply_changes(copy, changes, &mut progress).map(|to| vec![to]),
        }
    }

    /// Where a copy is, or a store: the checkpoint of a tree file, or of each shard; it is only read. `Mismatch`, `Corrupted` if it is no
    /// store of tree files, or one to which changes are not completely applied.
    pub fn checkpoints_of(path: impl AsRef<Path>) -> Result<Vec<CheckpointId>> {
        let path = path.as_ref();
        match shards_at(path)? {
            Some((ShardEngine::Tree, _)) => Sharded::checkpoints_of(path),
            Some((ShardEngine::Hash, _)) => Err(has_no_changes(path)),
            None => TreeDb::checkpoint_of(path).map(|at| vec![at]),
        }
    }
}

/// The error of a hash file.
fn has_no_changes(path: &Path) -> Error {
    let what = "what changed since a copy is written of tree files only";
    let error = Error::new(Kind::Invalid, what);
    error
        .at(path)
        .remedy("copy all of it: `copy_to`, or `azekura copy` without --since")
}
