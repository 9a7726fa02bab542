//! Stores of several shards in files: a manifest, and next to it a file for each shard.
//!
//! Creating: the shards' files, then the manifest, which has its name when it is whole. So where a process dies meanwhile there is no
//! store of that name, but there may be files of shards, which another creation does not replace.
//!
//! Opening: the manifest states how many shards there are, of which engine, and the salt of each file. A file that is missing, or another
//! than the one that is stated, is refused by name. One that was repaired or rebuilt by itself has a new salt: who knows that, opens
//! with [`Sharded::open_replaced`], which reads all records to see that each is where it belongs.
//!
//! Sizes among the options (cache, capacity, room for snapshots) are those of the whole store: each shard has its share. It does not know
//! what stands in the files of shards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::layout::{self, ManifestFile, ManifestState, ShardManifest, salt_of, shard_name};
use super::{Sharded, as_ordered, check_count};
use crate::damage::Damage;
use crate::engine::{CheckReport, Durability, Engine, Persistent, Reader};
use crate::error::{Error, Kind, Result, quote};
use crate::explore::Mutex;
use crate::format::superblock::engine_word;
use crate::io::file::{File, Files};
use crate::io::{Access, Directory, Storage, publish};
use crate::kernel::Slots;
use crate::kernel::changes::CheckpointId;
use crate::record::hash::{self, HashDb, HashReader};
use crate::record::tree::{self, TreeDb};

/// Steps of progress for each shard.
const STEPS: u64 = 1000;

/// An engine whose open files may be shards: of hash files and tree files.
pub trait ShardFile: Reader + Persistent + Sized + 'static {
    /// How it is opened.
    type Opening;
    /// Its word in a superblock.
    const ENGINE: [u8; 8];
    /// What it needs a file for.
    const ACCESS: Access;

    /// Opens the file of a shard.
    fn open_shard(storage: Arc<dyn Storage>, options: &Self::Opening) -> Result<Self>;

    /// Each shard's share of the options of a whole store.
    fn share(options: &Self::Opening, shards: u64) -> Self::Opening;

    /// The checkpoint that it has made last, if changes are written since one.
    fn checkpoint(&self) -> Option<CheckpointId> {
        None
    }

    /// Makes a store of it ordered, if it is.
    fn order(store: &mut Sharded<Self>) -> Result<()> {
        let _ = store;
        Ok(())
    }

    /// Completes a clear that a crash cut short. `Invalid` if it only reads.
    fn complete_clear(store: &Sharded<Self>) -> Result<()>;
}

/// An engine that makes files which may be shards.
pub trait CreateShard: ShardFile + Engine {
    /// How one is made.
    type Creation;

    /// Makes the file of a shard: `options` are those of the whole store, of so many.
    fn create_shard(
        directory: &dyn Directory,
        name: &Path,
        options: &Self::Creation,
        shards: u64,
    ) -> Result<Self>;

    /// Closes it.
    fn close_shard(self) -> Result<()>;
}

impl ShardFile for HashDb {
    type Opening = hash::OpenOptions;
    const ENGINE: [u8; 8] = *b"hash\0\0\0\0";
    const ACCESS: Access = Access::Write;

    fn open_shard(storage: Arc<dyn Storage>, options: &Self::Opening) -> Result<Self> {
        Self::open_on(storage, options)
    }

    fn share(options: &Self::Opening, shards: u64) -> Self::Opening {
        let capacity = share_of_capacity(options.capacity, shards);
        options.clone().capacity(capacity)
    }

    fn complete_clear(store: &Sharded<Self>) -> Result<()> {
        store.clear()
    }
}

impl CreateShard for HashDb {
    type Creation = hash::CreateOptions;

    fn create_shard(
        directory: &dyn Directory,
        name: &Path,
        options: &Self::Creation,
        shards: u64,
    ) -> Result<Self> {
        let mut options = options.clone();
        options.opening = Self::share(&options.opening, shards);
        Self::create_in(directory, name, &options)
    }

    fn close_shard(self) -> Result<()> {
        self.close()
    }
}

impl ShardFile for HashReader {
    type Opening = ();
    const ENGINE: [u8; 8] = HashDb::ENGINE;
    const ACCESS: Access = Access::Read;

    fn open_shard(storage: Arc<dyn Storage>, (): &()) -> Result<Self> {
        Self::open_on(storage)
    }

    fn share((): &(), _shards: u64) {}

    fn complete_clear(store: &Sharded<Self>) -> Result<()> {
        let error = Error::new(
            Kind::Invalid,
            "a clear of the store was cut short by a crash",
        );
        Err(error
            .at(store.path())
            .remedy("open it when that has ended; after a crash, open it for writing once"))
    }
}

impl ShardFile for TreeDb {
    type Opening = tree::OpenOptions;
    const ENGINE: [u8; 8] = tree::layout::ENGINE;
    const ACCESS: Access = Access::Write;

    fn open_shard(storage: Arc<dyn Storage>, options: &Self::Opening) -> Result<Self> {
        Self::open_on(storage, options)
    }

    fn share(options: &Self::Opening, shards: u64) -> Self::Opening {
        let capacity = share_of_capacity(options.capacity, shards);
        let (cache, room) = (options.cache / shards, options.snapshot_room / shards);
        let options = options.clone().capacity(capacity);
        options.cache(cache).snapshot_room(room)
    }

    fn checkpoint(&self) -> Option<CheckpointId> {
        Some(self.last_checkpoint())
    }

    fn order(store: &mut Sharded<Self>) -> Result<()> {
        store.set_ordered(as_ordered)
    }

    fn complete_clear(store: &Sharded<Self>) -> Result<()> {
        store.clear()
    }
}

impl CreateShard for TreeDb {
    type Creation = tree::CreateOptions;

    fn create_shard(
        directory: &dyn Directory,
        name: &Path,
        options: &Self::Creation,
        shards: u64,
    ) -> Result<Self> {
        let mut options = options.clone();
        options.opening = Self::share(&options.opening, shards);
        Self::create_in(directory, name, &options)
    }

    fn close_shard(self) -> Result<()> {
        self.close()
    }
}

/// A shard's share of the capacity of a whole store, in pieces of 64 KiB.
fn share_of_capacity(capacity: u64, shards: u64) -> u64 {
    let share = capacity / shards;
    if shards == 1 { share } else { share & !0xffff }
}

/// The engine of a store's shards, and how many there are, by the manifest at `path`; `None`: the file there is no manifest, or cannot be
/// read. `Corrupted`.
pub(crate) fn shards_at(path: &Path) -> Result<Option<(ShardEngine, usize)>> {
    let Ok(storage) = File::open(path, Access::Read) else {
        return Ok(None);
    };
    let slots = Slots::read(&storage);
    if !slots.is_ok_and(|slots| slots.engine() == Some(layout::ENGINE)) {
        return Ok(None);
    }
    let manifest = ManifestFile::read(Arc::new(storage))?.manifest;
    let engine = match manifest.engine {
        HashDb::ENGINE => ShardEngine::Hash,
        TreeDb::ENGINE => ShardEngine::Tree,
        other => {
            let (found, what) = (
                engine_word(&other),
                "the shards are of an engine that is not known",
            );
            return Err(Error::new(Kind::Mismatch, what)
                .at(path)
                .found(found, "hash or tree")
                .remedy("open it with a newer azekura"));
        }
    };
    Ok(Some((engine, manifest.salts.len())))
}

/// The files of the shards of the store at `path`, if it is one of several; else none. Errors: `Corrupted`, `Mismatch`.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    let shards = shards_at(path)?.map_or(0, |(_, shards)| shards);
    Ok((0..shards).map(|shard| shard_name(path, shard)).collect())
}

/// The engine of shards in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardEngine {
    Hash,
    Tree,
}

fn as_persistent<E: ShardFile>(store: &Sharded<E>) -> &dyn Persistent {
    store
}

/// Names of files that are removed unless they become a store.
pub(super) struct Made<'d> {
    directory: &'d dyn Directory,
    pub(super) names: Vec<PathBuf>,
}

impl<'d> Made<'d> {
    pub(super) fn in_directory(directory: &'d dyn Directory) -> Self {
        Self {
            directory,
            names: Vec::new(),
        }
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(error) = self.directory.remove(name) {
                tracing::warn!(%error, "a shard of a store that could not be made is left");
            }
        }
    }
}

impl<E: CreateShard> Sharded<E> {
    /// Makes a store of 1 to 256 shards: a manifest at `path`, and a file for each next to it, as `users.azt.shard-007`. Costs two syncs
    /// for each shard and for the manifest.
    ///
    /// `Invalid` if there is anything of these names, and for options that are out of range, or too small for so many shards.
    pub fn create(path: impl AsRef<Path>, shards: usize, options: &E::Creation) -> Result<Self> {
        let (directory, name) = Files::of(path.as_ref());
        Self::create_in(&directory, name, shards, options)
    }

    /// As [`create`](Self::create), in any directory.
    pub fn create_in(
        directory: &dyn Directory,
        name: &Path,
        shards: usize,
        options: &E::Creation,
    ) -> Result<Self> {
        check_count(shards).map_err(|error| error.at(name))?;
        let storage = directory.create_nameless(name)?;
        check_unused(directory, storage.path(), name, shards)?;
        // Dropped after the shards, if it comes to that.
        let mut made = Made::in_directory(directory);
        let (mut stores, mut salts) = (Vec::new(), Vec::new());
        for shard in 0..shards {
            let own = shard_name(name, shard);
            let store = E::create_shard(directory, &own, options, shards as u64)
                .map_err(|error| error.of(format!("shard {shard} of {shards}")))?;
            made.names.push(own.clone());
            stores.push(store);
            let file = directory.open(&own, Access::Read)?;
            salts.push(salt_of(file.as_ref(), E::ENGINE)?);
        }
        let manifest = ShardManifest {
            state: ManifestState::Whole,
            engine: E::ENGINE,
            seed: storage.entropy(),
            salts,
        };
        let file = ManifestFile::create(&storage, manifest)?;
        let store = Self::of_files(stores, file)?;
        publish(directory, name, storage.as_ref())?;
        made.names.clear();
        Ok(store)
    }

    /// Closes all shards: everything is durable afterwards, and the next open is quick. The first error is returned when all are closed.
    pub fn close(self) -> Result<()> {
        let mut first = Ok(());
        for shard in self.shards {
            let closed = shard.close_shard();
            first = first.and(closed);
        }
        first
    }
}

/// `Invalid` if there are files of the names of a store and its shards.
pub(super) fn check_unused(
    directory: &dyn Directory,
    path: &Path,
    name: &Path,
    shards: usize,
) -> Result<()> {
    if directory.exists(name)? {
        return Err(Error::new(Kind::Invalid, "the file exists").at(path));
    }
    for own in (0..shards).map(|shard| shard_name(name, shard)) {
        if directory.exists(&own)? {
            let what = "there is a file of a shard of that store, but no manifest";
            return Err(Error::new(Kind::Invalid, what).at(path.with_file_name(&own)).remedy(
                "if its creation or a copy was cut short, remove the files of its shards; if the manifest was lost, restore that from a backup, or copy the records from the shards, which open by themselves",
            ));
        }
    }
    Ok(())
}

impl<E: ShardFile> Sharded<E> {
    /// Opens the store at `path`, a manifest. Each shard recovers after a crash, one after the other.
    ///
    /// `Mismatch` if it is no store of shards of this engine, or a file of a shard is missing or another one; `Locked` if it is open for
    /// writing; else as for the shards.
    pub fn open(path: impl AsRef<Path>, options: &E::Opening) -> Result<Self> {
        let (directory, name) = Files::of(path.as_ref());
        Self::open_in(&directory, name, options)
    }

    /// As [`open`](Self::open), in any directory.
    pub fn open_in(directory: &dyn Directory, name: &Path, options: &E::Opening) -> Result<Self> {
        let store = Self::open_files(directory, name, options, false)?;
        let is_clearing = {
            let file = store.manifest_file().lock();
            file.manifest.state == ManifestState::Clearing
        };
        if is_clearing {
            E::complete_clear(&store)?;
        }
        Ok(store)
    }

    /// As [`open`](Self::open), of a store of which files of shards were replaced by others of the same records: what a repair or rebuild
    /// of that shard has written. Reads all records; the files are then those of this store.
    ///
    /// `Mismatch` also if a shard holds a record that belongs into another one. What a repair has lost is not noticed.
    pub fn open_replaced(path: impl AsRef<Path>, options: &E::Opening) -> Result<Self>
    where
        E: CreateShard,
    {
        let (directory, name) = Files::of(path.as_ref());
        let store = Self::open_files(&directory, name, options, true)?;
        for shard in 0..store.shards.len() {
            if let Some((count, first)) = store.strays(shard)? {
                let what = "the file of a shard holds records that belong into others";
                return Err(Error::new(Kind::Mismatch, what)
                    .at(store.shards[shard].path())
                    .key(&first)
                    .detail(format!("{count} of them"))
                    .remedy("put the right file of this shard in its place"));
            }
        }
        let mut salts = Vec::new();
        for shard in 0..store.shards.len() {
            let storage = directory.open(&shard_name(name, shard), Access::Read)?;
            salts.push(salt_of(storage.as_ref(), E::ENGINE)?);
        }
        {
            let mut file = store.manifest_file().lock();
            file.manifest.salts = salts;
            file.write_both()?;
            if file.manifest.state != ManifestState::Clearing {
                drop(file);
                return Ok(store);
            }
        }
        E::complete_clear(&store)?;
        Ok(store)
    }

    fn open_files(
        directory: &dyn Directory,
        name: &Path,
        options: &E::Opening,
        may_differ: bool,
    ) -> Result<Self> {
        let mut file = ManifestFile::read(directory.open(name, E::ACCESS)?)?;
        file.check_engine(E::ENGINE)?;
        file.check_is_store()?;
        let manifest = &file.manifest;
        let path = file.storage.path();
        let shards = manifest.salts.len();
        let options = E::share(options, shards as u64);
        let mut stores = Vec::new();
        for (shard, salt) in manifest.salts.iter().enumerate() {
            let own = existing(directory, path, name, (shard, shards))?;
            let storage = directory.open(&own, E::ACCESS)?;
            let found = salt_of(storage.as_ref(), E::ENGINE)?;
            if found != *salt && !may_differ {
                return Err(exchanged(storage.path(), shard, found, &manifest.salts));
            }
            let opened = E::open_shard(storage, &options);
            stores.push(opened.map_err(|error| match error.kind() {
                // An option is out of range, of which the shard has a share.
                Kind::Invalid => error.of(format!("shard {shard} of {shards}")),
                _ => error,
            })?);
        }
        if E::ACCESS == Access::Write && !file.is_whole()? {
            tracing::warn!(path = %path.display(), "a slot of the manifest is written again");
            file.write_both()?;
        }
        Self::of_files(stores, file)
    }

    fn of_files(stores: Vec<E>, file: ManifestFile) -> Result<Self> {
        let mut store = Self::of(stores, file.manifest.seed)?;
        E::order(&mut store)?;
        store.persistent = Some(as_persistent);
        store.storage = Some(Arc::clone(&file.storage));
        store.manifest = Some(Mutex::new(file));
        Ok(store)
    }

    /// With each shard exchanged for what `change` makes of it.
    pub(crate) fn with_each(mut self, change: fn(E) -> E) -> Self {
        self.shards = self.shards.into_iter().map(change).collect();
        self
    }

    pub(super) fn manifest_file(&self) -> &Mutex<ManifestFile> {
        let of_files = "a store that was opened has a manifest";
        self.manifest.as_ref().expect(of_files)
    }

    /// How many records of a shard belong into others, and the key of the first; `None`: each is where it belongs. What is damaged is
    /// passed over.
    fn strays(&self, shard: usize) -> Result<Option<(u64, Vec<u8>)>> {
        let (mut count, mut first) = (0, Vec::new());
        let scanned = self.shards[shard].scan_past(
            None,
            &mut |key, _| {
                if self.shard_of(key) != shard {
                    if count == 0 {
                        first = key.to_vec();
                    }
                    count += 1;
                }
                std::ops::ControlFlow::Continue(())
            },
            &mut |_| Ok(()),
        );
        scanned.map_err(|error| self.named(shard, error))?;
        Ok((count > 0).then_some((count, first)))
    }

    /// Properties of the store, by name, in a fixed order. Those of a shard are what its own file states.
    pub fn inspect(&self) -> Vec<(&'static str, String)> {
        let stats = self.stats();
        let mut all = vec![
            ("path", self.path().display().to_string()),
            ("engine", engine_word(&E::ENGINE)),
            ("shards", self.shards.len().to_string()),
            ("count", stats.count.to_string()),
            ("live_bytes", stats.live_bytes.to_string()),
            ("file_bytes", stats.file_bytes.to_string()),
            ("memory_bytes", stats.memory_bytes.to_string()),
        ];
        all.extend(stats.more.into_iter().filter(|(name, _)| *name != "shards"));
        let ids = self.shards.iter().filter_map(E::checkpoint);
        let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
        if !ids.is_empty() {
            all.push(("checkpoint", ids.join(",")));
        }
        all
    }

    /// `work` with each shard in turn, and its share of the progress.
    pub(super) fn in_turn(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        mut work: impl FnMut(usize, &E, &mut dyn FnMut(u64, u64)) -> Result<()>,
    ) -> Result<()> {
        let total = self.shards.len() as u64 * STEPS;
        for (shard, store) in self.shards.iter().enumerate() {
            let before = shard as u64 * STEPS;
            let done = work(shard, store, &mut |done, all| {
                let share = u128::from(done.min(all)) * u128::from(STEPS);
                let share = share.checked_div(all.into()).unwrap_or_default() as u64;
                progress(before + share, total);
            });
            done.map_err(|error| self.named(shard, error))?;
        }
        progress(total, total);
        Ok(())
    }
}

/// The name of a shard's file, of so many next to the manifest at `path`. `Mismatch` if it is missing.
pub(super) fn existing(
    directory: &dyn Directory,
    path: &Path,
    name: &Path,
    (shard, shards): (usize, usize),
) -> Result<PathBuf> {
    let own = shard_name(name, shard);
    if directory.exists(&own)? {
        return Ok(own);
    }
    let what = format!("shard {shard} of {shards} is missing");
    Err(Error::new(Kind::Mismatch, what)
        .at(path.with_file_name(&own))
        .remedy("move its file there, or restore it from a backup of the whole store"))
}

/// The error of a file that is not the one of its shard.
fn exchanged(path: &Path, shard: usize, found: u32, salts: &[u32]) -> Error {
    let what = format!("the file is not that of shard {shard}");
    let error = Error::new(Kind::Mismatch, what).at(path);
    match salts.iter().position(|salt| *salt == found) {
        Some(other) => error
            .detail(format!("it is shard {other} of this store"))
            .remedy("files were exchanged: give each its own name again"),
        None => error.detail("it is of no shard of this store").remedy(
            "put the file of this store back; if this one is a repaired or rebuilt copy of that, run `azekura rebuild` of the store, or open it with `Sharded::open_replaced`",
        ),
    }
}

impl Sharded<HashDb> {
    /// Gives unused space back to the file system, shard by shard, as [`HashDb::compact`].
    pub fn compact(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.in_turn(progress, |_, shard, progress| shard.compact(progress))
    }
}

impl Sharded<TreeDb> {
    /// Gives unused space back to the file system, shard by shard, as [`TreeDb::compact`].
    pub fn compact(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.in_turn(progress, |_, shard, progress| shard.compact(progress))
    }
}

impl<E: ShardFile> Persistent for Sharded<E> {
    /// Of each shard, one after the other.
    fn sync(&self, durability: Durability) -> Result<()> {
        for (shard, store) in self.shards.iter().enumerate() {
            let synced = store.sync(durability);
            synced.map_err(|error| self.named(shard, error))?;
        }
        Ok(())
    }

    /// Of each shard, and that each record is in the shard where it belongs: it reads all records once more.
    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        self.in_turn(progress, |shard, store, progress| {
            let own = store.check(progress)?;
            report.records += own.records;
            report.bytes += own.bytes;
            report.rewritable += own.rewritable;
            let name = store.path().display();
            for damage in own.damage {
                report.note(format!("{name}: {damage}"));
            }
            if let Some((count, first)) = self.strays(shard)? {
                report.note(format!(
                    "{name}: {count} records belong into other shards, the first is {}",
                    quote(&first)
                ));
            }
            Ok(())
        })?;
        if let Some(manifest) = &self.manifest
            && !manifest.lock().is_whole()?
        {
            report.rewritable += 1;
            let name = self.path().display();
            report.note(format!("{name}: a slot of the manifest does not verify"));
        }
        Ok(report)
    }

    /// Copies each shard at a moment of its own: an `update_many` of several shards may be in the copy in part. `Poisoned` after a clear that
    /// failed.
    fn copy_to(&self, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.copy_shards(target, progress)
    }

    /// The manifest's; of shards without one, that of the first.
    fn path(&self) -> &Path {
        match (&self.storage, self.shards.first()) {
            (Some(storage), _) => storage.path(),
            (None, Some(shard)) => shard.path(),
            (None, None) => Path::new(""),
        }
    }

    fn damage(&self) -> Vec<Damage> {
        self.shards.iter().flat_map(Persistent::damage).collect()
    }

    /// Of each shard, and of the manifest, whose absence refuses no updates.
    fn verify_path(&self) -> Result<()> {
        for shard in &self.shards {
            shard.verify_path()?;
        }
        let file = self.storage.as_ref().and_then(|storage| storage.as_file());
        file.map_or(Ok(()), File::verify_path)
    }
}
