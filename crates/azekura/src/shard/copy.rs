//! Copies of a store in files, and what changed since: of each shard at a moment of its own, all of them as one.
//!
//! A copy is a manifest and a file for each shard; so are changes, but that the manifest states that they are no store. Files of shards
//! come first, then the manifest has its name: so there are all of them, or no copy of that name.
//!
//! | step of an application | a crash here leaves |
//! |---|---|
//! | 1 the changes of all shards are verified, and that they fit the copy, of which each file is held | the copy |
//! | 2 the copy's manifest states that changes are being applied, in both slots | the copy, or one that nothing opens but this |
//! | 3 each shard is brought forward, one after the other, each durably (`kernel::apply`) | one that nothing opens but this |
//! | 4 the manifest states that it is a copy | the same, or the copy with all changes |
//!
//! After a crash the same call begins again, and finds shards before, marked and after: it writes those that are not after. Other changes fit
//! no shard that was written, and are refused in step 1. It does not know what changed.

use std::path::Path;
use std::sync::Arc;

use super::files::{Made, check_unused, existing};
use super::layout::{ManifestFile, ManifestState, ShardManifest, salt_of, shard_name};
use super::{ShardFile, Sharded};
use crate::engine::Persistent;
use crate::error::{Error, Kind, Result};
use crate::io::file::Files;
use crate::io::{Access, Directory, Storage, publish};
use crate::kernel::apply::Prepared;
use crate::kernel::changes::{CheckpointId, name_to_mark};
use crate::record::gate;
use crate::record::tree::TreeDb;

/// Writes what there is of a shard, under a name; the salt that it states.
type Write<'w, E> = dyn FnMut(usize, &E, &Path, &mut dyn FnMut(u64, u64)) -> Result<u32> + 'w;

impl<E: ShardFile> Sharded<E> {
    /// Copies each shard at a moment of its own: an `update_many` of several shards may be in the copy in part. `Poisoned` after a clear that
    /// failed.
    pub(super) fn copy_shards(
        &self,
        target: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let (directory, name) = Files::of(target);
        let state = ManifestState::Whole;
        self.write_all(
            &directory,
            name,
            state,
            progress,
            &mut |_, store, own, progress| {
                store.copy_to(&target.with_file_name(own), progress)?;
                salt_of(directory.open(own, Access::Read)?.as_ref(), E::ENGINE)
            },
        )
    }

    /// Writes a file for each shard, and a manifest of them.
    fn write_all(
        &self,
        directory: &dyn Directory,
        name: &Path,
        state: ManifestState,
        progress: &mut dyn FnMut(u64, u64),
        write: &mut Write<'_, E>,
    ) -> Result<()> {
        let storage = directory.create_nameless(name)?;
        check_unused(directory, storage.path(), name, self.shards.len())?;
        // No clear begins meanwhile, and none is left half way.
        let _whole = self.whole.read();
        self.is_cleared()?;
        let mut made = Made::in_directory(directory);
        let mut salts = Vec::new();
        self.in_turn(progress, |shard, store, progress| {
            let own = shard_name(name, shard);
            salts.push(write(shard, store, &own, progress)?);
            made.names.push(own);
            Ok(())
        })?;
        let manifest = ShardManifest {
            state,
            engine: E::ENGINE,
            seed: self.hash.seed,
            salts,
        };
        ManifestFile::create(&storage, manifest)?;
        publish(directory, name, storage.as_ref())?;
        made.names.clear();
        Ok(())
    }
}

impl Sharded<TreeDb> {
    /// As [`copy_to`](crate::Persistent::copy_to), in any directory; the checkpoints that the shards of the copy are at.
    pub fn copy_in(
        &self,
        directory: &dyn Directory,
        name: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<CheckpointId>> {
        gate::outside_updates()?;
        let mut ids = Vec::new();
        let state = ManifestState::Whole;
        self.write_all(
            directory,
            name,
            state,
            progress,
            &mut |_, store, own, progress| {
                let id = store.copy_in(directory, own, progress)?;
                ids.push(id);
                Ok(id.salt)
            },
        )?;
        Ok(ids)
    }

    /// Writes what changed since an earlier copy while the store is used, as [`TreeDb::copy_changes`] of each shard: to a new file for each, as
    /// `monday.changes.shard-007`, and one at `target` that names them. The checkpoints that the copy will be at when
    /// [`apply_changes`](Self::apply_changes) has brought it forward.
    ///
    /// `since`: what the copy's shards are at ([`checkpoints_of`](Self::checkpoints_of)). Each shard's changes are of a moment of its own: an
    /// `update_many` of several shards may be in them in part. `Invalid` also for another number of shards; `Poisoned` after a clear that failed.
    pub fn copy_changes(
        &self,
        since: &[CheckpointId],
        target: impl AsRef<Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<CheckpointId>> {
        let (files, name) = Files::of(target.as_ref());
        self.copy_changes_in(since, &files, name, progress)
    }

    /// As [`copy_changes`](Self::copy_changes), in any directory.
    pub fn copy_changes_in(
        &self,
        since: &[CheckpointId],
        directory: &dyn Directory,
        name: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<CheckpointId>> {
        gate::outside_updates()?;
        if since.len() != self.shards.len() {
            let what = "the copy has another number of shards";
            return Err(Error::new(Kind::Invalid, what)
                .at(self.path())
                .found(since.len(), self.shards.len())
                .remedy("name a copy of this store, or the checkpoints of all its shards"));
        }
        let mut ids = Vec::new();
        let state = ManifestState::Changes;
        self.write_all(
            directory,
            name,
            state,
            progress,
            &mut |shard, store, own, progress| {
                let id = store.copy_changes_in(since[shard], directory, own, progress)?;
                ids.push(id);
                Ok(id.salt)
            },
        )?;
        Ok(ids)
    }

    /// Brings a copy forward to the checkpoints that the changes lead to, which are returned; nothing happens if it is there already.
    /// `progress` gets (done, total) of bytes.
    ///
    /// All of the changes are verified before anything is written. From then on, until all shards are complete, nothing opens the copy: after
    /// an error or a crash, the same call completes it. Errors are those of [`TreeDb::apply_changes`]; `Mismatch` also if a file of a shard
    /// is missing.
    pub fn apply_changes(
        copy: impl AsRef<Path>,
        changes: impl AsRef<Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<CheckpointId>> {
        let (copy, changes) = (Files::of(copy.as_ref()), Files::of(changes.as_ref()));
        Self::apply_changes_in((&copy.0, copy.1), (&changes.0, changes.1), progress)
    }

    /// As [`apply_changes`](Self::apply_changes), of a copy and changes in any directories.
    pub fn apply_changes_in(
        (copy_directory, copy): (&dyn Directory, &Path),
        (changes_directory, changes): (&dyn Directory, &Path),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<CheckpointId>> {
        let changes = ShardSet::open(changes_directory, changes, Access::Read)?;
        changes.check_are_changes()?;
        let mut copy = ShardSet::open(copy_directory, copy, Access::Write)?;
        copy.check_is_copy_for(&changes)?;
        let mut total = 0;
        for storage in &changes.shards {
            total += 2 * storage.size()?;
        }
        let mut done = 0;
        let mut advance = |len: u64| {
            done += len;
            progress(done.min(total), total);
        };
        let mut prepared = Vec::new();
        for (own, changes) in copy.shards.iter().zip(&changes.shards) {
            prepared.push(TreeDb::prepare_changes(&**own, &**changes, &mut advance)?);
        }
        let mark = ManifestState::Applying(name_to_mark(changes.file.storage.path()));
        let is_applied = prepared.iter().all(Prepared::is_applied);
        if !is_applied && copy.file.manifest.state != mark {
            copy.file.write_state(mark)?;
        }
        let mut ids = Vec::new();
        for shard in prepared {
            ids.push(shard.apply(&mut advance)?);
        }
        if copy.file.manifest.state != ManifestState::Whole {
            copy.file.write_state(ManifestState::Whole)?;
        }
        progress(total, total);
        Ok(ids)
    }

    /// The checkpoints that the shards of the store at `path` are at, a copy or the store itself; it is only read. `Mismatch`, `Corrupted` if it
    /// is no store of tree files, or one to which changes are not completely applied.
    pub fn checkpoints_of(path: impl AsRef<Path>) -> Result<Vec<CheckpointId>> {
        let (directory, name) = Files::of(path.as_ref());
        Self::checkpoints_in(&directory, name)
    }

    /// As [`checkpoints_of`](Self::checkpoints_of), in any directory.
    pub fn checkpoints_in(directory: &dyn Directory, name: &Path) -> Result<Vec<CheckpointId>> {
        let store = ShardSet::open(directory, name, Access::Read)?;
        store.file.check_is_store()?;
        let shards = store.shards.iter();
        shards
            .map(|shard| TreeDb::checkpoint_on(&**shard))
            .collect()
    }
}

/// A manifest and the files next to it, not opened as a store.
struct ShardSet {
    file: ManifestFile,
    shards: Vec<Arc<dyn Storage>>,
}

impl ShardSet {
    /// `Mismatch` unless it is one of tree files, and all are there.
    fn open(directory: &dyn Directory, name: &Path, access: Access) -> Result<Self> {
        let file = ManifestFile::read(directory.open(name, access)?)?;
        file.check_engine(TreeDb::ENGINE)?;
        let count = file.manifest.salts.len();
        let mut shards = Vec::new();
        for shard in 0..count {
            let own = existing(directory, file.storage.path(), name, (shard, count))?;
            shards.push(directory.open(&own, access)?);
        }
        Ok(Self { file, shards })
    }

    fn check_are_changes(&self) -> Result<()> {
        if self.file.manifest.state == ManifestState::Changes {
            return Ok(());
        }
        let error = Error::new(Kind::Mismatch, "these are no changes of a store of shards");
        Err(error
            .at(self.file.storage.path())
            .remedy("name what `azekura copy --since` wrote of such a store"))
    }

    /// `Invalid` unless changes of this store may be applied to it. Whether those of each shard fit is not asked.
    fn check_is_copy_for(&self, changes: &Self) -> Result<()> {
        let (own, other) = (&self.file.manifest, &changes.file.manifest);
        match own.state {
            ManifestState::Whole | ManifestState::Applying(_) => {}
            ManifestState::Changes => self.file.check_is_store()?,
            ManifestState::Clearing => {
                let what = "the copy was changed: a clear of it was cut short";
                return Err(Error::new(Kind::Invalid, what)
                    .at(self.file.storage.path())
                    .remedy("make a new copy"));
            }
        }
        if (own.seed, &own.salts) == (other.seed, &other.salts) {
            return Ok(());
        }
        let what = "the changes are of another store than the copy";
        Err(Error::new(Kind::Invalid, what)
            .at(self.file.storage.path())
            .remedy("name a copy of the store that the changes were made of, or make a new copy"))
    }
}
