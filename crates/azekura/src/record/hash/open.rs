//! Creating, opening and closing a hash file.
//!
//! Creating: everything into a file without a name, one sync, then the name. So there is no file, or one that
//! opens.
//!
//! Opening for writing: superblock, root, replay; after a crash, seal; a superblock that states "open" and,
//! after a crash, names a new epoch. A process that dies during an open leaves what it found. Closing: sync, a
//! superblock that states "closed"; and a checkpoint before, if anything was appended since the last.
//!
//! An open never syncs the whole file, which after a crash would write back all that the dead process left in
//! the cache. It need not: `kernel::recover` has the few writes that are waited for, and why.
//!
//! A slot that cannot be read, or does not verify, is written again with N. Damage of the log: `recover`; of the root:
//! `lost_root`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use rapidhash::v3::RapidSecrets;

use super::checkpoint::{self, Checkpoint, Previous};
use super::layout::{Root, SHIFTS, Super};
use super::lost_root::{Rest, is_damage};
use super::recover::{Known, Replay};
use super::{Core, CreateOptions, HashDb, OpenOptions, background, value};
use crate::counter::Counter;
use crate::error::{self, Error, Kind, Result};
use crate::explore::Mutex;
use crate::index::Index;
use crate::io::file::{File, Files};
use crate::io::{Access, Directory, Storage, create_whole};
use crate::kernel::superblock::damaged_slots;
use crate::kernel::{self, Closing, Handle, SuperblockPair, recover};
use crate::log::manifest::{check_last_is_whole, segments_of};
use crate::log::recover::Recovered;
use crate::log::{Geometry, Log, Use};
use crate::record::gate::Gate;

/// Sizes of segments to choose from.
const SIZES: std::ops::RangeInclusive<u64> = 16 << 10..=1 << 20;
/// Bytes of a file that have addresses: 40 bits of 8-byte words.
const ADDRESSES: u64 = 1 << 43;

impl HashDb {
    /// Makes a new file. `Invalid` if there is something of that name, also if it came meanwhile.
    ///
    /// The file appears when it can be opened: whenever the process dies, there is none or a whole one.
    /// Costs one sync, and one of the folder.
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<Self> {
        let (directory, name) = Files::of(path.as_ref());
        Self::create_in(&directory, name, options)
    }

    /// The least `OpenOptions::capacity` of a file with segments of this size, a power of two: records, and what a full store keeps free.
    pub fn least_capacity(segment_size: u64) -> u64 {
        checkpoint::least_capacity(Geometry {
            shift: segment_size.max(1).ilog2(),
            salt: 0,
        })
        .next_multiple_of(4096)
    }

    /// As [`create`](Self::create), in any directory.
    pub fn create_in(
        directory: &dyn Directory,
        name: &Path,
        options: &CreateOptions,
    ) -> Result<Self> {
        check_creation(options)?;
        create_whole(directory, name, |storage| {
            Self::create_on(Arc::clone(storage), options)
        })
    }

    /// Makes a file that appears when `fill` is done, closed and durable; if that fails, none.
    pub(super) fn create_whole(
        path: &Path,
        options: &CreateOptions,
        fill: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        check_creation(options)?;
        let (directory, name) = Files::of(path);
        create_whole(&directory, name, |storage| {
            let db = Self::create_on(Arc::clone(storage), options)?;
            fill(&db)?;
            db.close()
        })
    }

    /// Opens a file for reading and writing; after a crash, recovers. `Locked` if it is open for writing
    /// anywhere, `Mismatch` if it is not a hash file of a known version.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        Self::open_on(Arc::new(File::open(path.as_ref(), Access::Write)?), options)
    }

    /// Opens a file, or makes it if there is none.
    pub fn open_or_create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<Self> {
        let path = path.as_ref();
        match Self::create(path, options) {
            Err(error) if error.kind() == Kind::Invalid && path.exists() => {
                Self::open(path, &options.opening)
            }
            other => other,
        }
    }

    /// Makes a store on an empty storage. A crash in here leaves a storage that is no store yet
    /// (`Mismatch`): empty it and make the store again. [`create`](Self::create) does not leave one.
    #[expect(clippy::needless_pass_by_value, reason = "the store keeps the storage")]
    pub fn create_on(storage: Arc<dyn Storage>, options: &CreateOptions) -> Result<Self> {
        check_creation(options)?;
        let segment_size = chosen_segment_size(storage.as_ref(), options);
        let shift = segment_size.trailing_zeros();
        // It differs from file to file and cannot be guessed by who chooses keys.
        let identity = storage.entropy();
        let geometry = Geometry {
            shift,
            salt: identity as u32,
        };
        check_holds(options.opening.capacity, segment_size)?;
        storage.resize(geometry.offset_of(1))?;
        let log = open_log(&storage, geometry, &options.opening)?;
        let payload = Super {
            manifest: recover::begin(&log)?,
            hash_seed: identity.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15,
            compression: options.compression,
            count: 0,
        };
        let superblock = SuperblockPair::create(storage.as_ref(), 0, payload)?;
        let state = Checkpoint::found(superblock, Root::new());
        let index = Index::new(log.domain())?;
        let core = build(log, index, &options.opening, state, 0, Arc::default())?;
        core.log.sync_now()?;
        Self::start(core)
    }

    /// Opens the store on a storage.
    #[expect(clippy::needless_pass_by_value, reason = "the store keeps the storage")]
    pub fn open_on(storage: Arc<dyn Storage>, options: &OpenOptions) -> Result<Self> {
        check_opening(options)?;
        let found_super = SuperblockPair::<Super>::read(storage.as_ref())?;
        let last = &found_super.payload;
        let size = storage.size()?;
        let geometry = last.geometry;
        let segments = segments_of(storage.as_ref(), geometry, size)?;
        let root = match read_root_within(storage.as_ref(), last, segments) {
            Err(error) if is_damage(&error) => {
                tracing::warn!(%error, "the file opens for reading only");
                return Self::open_without_root(&storage, options, found_super, segments);
            }
            other => other?,
        };
        check_holds(options.capacity, geometry.segment_size())
            .map_err(|error| error.at(storage.path()).remedy("raise the capacity"))?;
        storage.resize(size.max(geometry.offset_of(segments as u32)))?;
        let log = open_log(&storage, geometry, options)?;
        log.segments().begin_adoption(segments as u32);
        root.needed.adopt(&log)?;
        let prior = recover::prior(last, &log)?;
        let mut replay = Replay::new(RapidSecrets::seed(last.hash_seed));
        replay.mark.clone_from(&root.mark);
        let found = replay.run(&log, last, prior)?;
        if replay.is_in_doubt() {
            return Self::open_in_doubt(log, options, found_super, root, (replay, &found));
        }
        for damage in damaged_slots::<Super>(storage.as_ref())? {
            tracing::warn!(%damage, "a superblock slot is written again");
        }
        let keep = || {
            count_dead(&log, &mut replay);
            let previous = Previous::of(&root.images, &root.mark);
            checkpoint::keep_for_checkpoint(&log, previous, last.count);
            log.segments().finish_adoption()?;
            if !replay.damage.is_empty() {
                log.rewrite_words(&found);
                log.rewrite_headers();
            }
            Ok(())
        };
        let next = recover::resume(&found_super, &log, (prior, &found), keep)?;
        let count = last.count.saturating_add_signed(replay.count);
        let (changed, mark) = (replay.changed(), std::mem::take(&mut replay.mark));
        let cold = replay.into_source(Arc::clone(&log), geometry.salt, root.images.clone());
        let known = cold.known();
        let index = Index::unloaded(log.domain(), Arc::new(cold))?;
        for partition in changed {
            index.mark_dirty(partition);
        }
        let mut state = Checkpoint::found(found_super, root);
        state.committed.superblock.replace(&log, next)?;
        let core = build(log, index, options, state, count, known)?;
        core.note_mark(Some(&mark));
        Self::start(core)
    }

    /// Opens a file of whose checkpoint the root is damaged, or a segment cut off, for reading only: see `lost_root`. Nothing is
    /// written, and the file does not grow.
    fn open_without_root(
        storage: &Arc<dyn Storage>,
        options: &OpenOptions,
        found_super: SuperblockPair<Super>,
        segments: u64,
    ) -> Result<Self> {
        let last = &found_super.payload;
        let rest = Rest::read(storage.as_ref(), last);
        let log = open_log(storage, last.geometry, options)?;
        log.segments().begin_adoption(segments as u32);
        let prior = recover::prior(last, &log)?;
        let mut replay = Replay::new(RapidSecrets::seed(last.hash_seed));
        rest.replay(&log, last, segments, &mut replay)?;
        let found = replay.run(&log, last, prior)?;
        Self::open_in_doubt(log, options, found_super, rest.root, (replay, &found))
    }

    /// Opens a file of which a part of the log after the checkpoint is lost, or the root, so that the newest state is unknown or
    /// nothing can be written: for reading only. Nothing is written.
    fn open_in_doubt(
        log: Arc<Log>,
        options: &OpenOptions,
        mut found_super: SuperblockPair<Super>,
        root: Root,
        (replay, found): (Replay, &Recovered),
    ) -> Result<Self> {
        let last = &mut found_super.payload;
        log.refuse();
        let next = last.next_sequence.max(found.end.sequence() + 1);
        log.resume(found.end.closed(), next);
        let count = last.count.saturating_add_signed(replay.count);
        let cold = replay.into_source(Arc::clone(&log), last.geometry.salt, root.images.clone());
        let known = cold.known();
        let index = Index::unloaded(log.domain(), Arc::new(cold))?;
        // Nothing is to be closed.
        last.open = false;
        let state = Checkpoint::found(found_super, root);
        let core = build(log, index, options, state, count, known)?;
        Ok(Self {
            core: Handle::idle(core),
        })
    }

    fn start(core: Core) -> Result<Self> {
        core.keep_for_checkpoint(&core.checkpoint.lock());
        let has_worker = core.options.background;
        let core = Handle::start(core, has_worker, background::start)?;
        Ok(Self { core })
    }

    /// Closes the file: everything is durable afterwards, and the next open replays little. Dropping does
    /// the same, but can only trace an error.
    pub fn close(mut self) -> Result<()> {
        self.core.close()
    }
}

impl Closing for Core {
    fn is_open(&self) -> bool {
        self.checkpoint.lock().committed.superblock.payload.open
    }

    fn close(&self) -> Result<()> {
        if self.known.is_read_only() {
            return Ok(());
        }
        if self.log.is_refused() {
            // No checkpoint can be made, so the log stays what the next open replays.
            return self.log.sync_now();
        }
        self.log.healthy()?;
        // After a clean close nothing lies past the checkpoint: there damage of one record is damage of that record.
        match self.checkpoint() {
            // A full device: the next open reads a longer log.
            Err(error) if error.kind() == Kind::Full => {}
            other => other?,
        }
        let mut state = self.checkpoint.lock();
        self.log.sync_now()?;
        state.committed.close(&self.log)?;
        self.log.segments().trim()?;
        Ok(())
    }
}

fn build(
    log: Arc<Log>,
    index: Index,
    options: &OpenOptions,
    checkpoint: Checkpoint,
    count: u64,
    known: Arc<Known>,
) -> Result<Core> {
    let payload = &checkpoint.committed.superblock.payload;
    Ok(Core {
        asks_doubt: known.is_in_doubt() && !options.reads_doubtful,
        known,
        gate: Gate::new(log.domain().clone()),
        mark: Mutex::default(),
        log,
        index,
        options: options.clone(),
        secrets: RapidSecrets::seed(payload.hash_seed),
        compression: payload.compression,
        plain_below: value::plain_below(payload.compression),
        epoch: payload.epoch,
        count: Counter::new(count)?,
        frame_len: AtomicUsize::new(64),
        wake_at: AtomicU64::new(0),
        notify: Arc::default(),
        cleaning: Mutex::default(),
        replay_from: Mutex::new(payload.start),
        checkpoint: Mutex::new(checkpoint),
        last_emergency: Mutex::default(),
        previous: Mutex::default(),
        recent_live: AtomicU64::new(0),
        emergency_attempts: AtomicUsize::new(0),
        suspect: Mutex::new(Vec::new()),
    })
}

fn open_log(
    storage: &Arc<dyn Storage>,
    geometry: Geometry,
    options: &OpenOptions,
) -> Result<Arc<Log>> {
    // A store that is larger than its capacity has addresses for what it may need besides: see `log::segment::space`.
    let besides = HashDb::least_capacity(geometry.segment_size());
    let there = 2 * storage.size()?.next_multiple_of(4096) + besides;
    let addresses = options.capacity.max(there.min(ADDRESSES));
    let map = storage.map(addresses.next_multiple_of(4096))?;
    if options.syncs_often || options.durability == crate::engine::Durability::Power {
        map.advise_plain();
    }
    let log = Log::new(Arc::clone(storage), map, geometry)?;
    log.segments().allow(options.capacity);
    log.retain(options.retention);
    Ok(Arc::new(log))
}

/// The segment size that was asked for, or one that fits the capacity and the device: what a full store keeps free is
/// counted in segments.
fn chosen_segment_size(storage: &dyn Storage, options: &CreateOptions) -> u64 {
    if options.segment_size != 0 {
        return options.segment_size;
    }
    let capacity = options.opening.capacity;
    let room = capacity.min(storage.free().unwrap_or(u64::MAX));
    let mut size = Geometry::fitting_size(storage, capacity, SIZES);
    while size > 4096 && HashDb::least_capacity(size) > room {
        size /= 2;
    }
    size
}

/// `Invalid` if a store of such segments and of this capacity takes no record.
fn check_holds(capacity: u64, segment_size: u64) -> Result<()> {
    let least = HashDb::least_capacity(segment_size);
    if capacity >= least {
        return Ok(());
    }
    Err(Error::new(
        Kind::Invalid,
        "the capacity is too small for records and what a full store keeps free",
    )
    .found(
        error::size(capacity),
        format!("{least} bytes or more: {}", error::size(least)),
    )
    .remedy("raise the capacity, or take smaller segments"))
}

fn check_creation(options: &CreateOptions) -> Result<()> {
    let shift = options.segment_size.trailing_zeros();
    let is_size = options.segment_size.is_power_of_two() && SHIFTS.contains(&shift);
    if options.segment_size != 0 && !is_size {
        return Err(Error::new(
            Kind::Invalid,
            "the segment size is no power of two from 4 KiB to 64 MiB",
        )
        .found(
            error::size(options.segment_size),
            "4 KiB to 64 MiB; 0: chosen by the capacity",
        ));
    }
    check_opening(&options.opening)
}

fn check_opening(options: &OpenOptions) -> Result<()> {
    crate::worker::check_interval(options.sync_interval)?;
    if !(1.1..=1000.0).contains(&options.space_ratio) {
        return Err(Error::new(Kind::Invalid, "the space ratio is out of range")
            .found(options.space_ratio, "1.1 to 1000"));
    }
    // Of any number of bytes: only what is mapped has whole pages.
    crate::io::mmap::check_capacity((options.capacity & !4095).max(4096))
}

/// The root of the last checkpoint; of a file without one, just the segment its log begins in.
pub(super) fn read_root(storage: &dyn Storage, last: &Super) -> Result<Root> {
    let read = kernel::checkpoint::read_root(storage, last, true, Root::decode)?;
    Ok(read.map_or_else(Root::new, |(root, read)| Root {
        pieces: read.pieces,
        is_corrected: read.is_corrected,
        ..root
    }))
}

/// The root of a file of so many segments. `Corrupted` if one that it states is cut off.
pub(super) fn read_root_within(storage: &dyn Storage, last: &Super, segments: u64) -> Result<Root> {
    let root = read_root(storage, last)?;
    check_last_is_whole(storage, last.geometry, segments)?;
    root.needed.check_within(storage, last.geometry, segments)?;
    Ok(root)
}

/// Counts as dead what replay found not to be needed, and all of the segments before the one in which everything was cleared.
fn count_dead(log: &Log, replay: &mut Replay) {
    for (address, len) in replay.dead.drain(..) {
        log.mark_dead(address, len);
    }
    let segments = log.segments().in_use(Use::Log);
    for segment in segments.iter().filter(|s| s.sequence < replay.cleared) {
        log.segments().mark_all_dead(segment.index);
    }
}
