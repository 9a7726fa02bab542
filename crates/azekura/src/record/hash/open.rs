//! Creating, opening and closing a hash file.
//!
//! Creating: everything into a file without a name, one sync, then the name. So there is no file, or one that
//! opens.
//!
//! Opening for writing: superblock, root, replay; after a crash, seal; a superblock that says "open" and,
//! after a crash, names a new epoch. A process that dies during an open leaves what it found. Closing: sync, a
//! superblock that says "closed"; and a checkpoint before if replay would otherwise be long.
//!
//! An open never syncs the whole file, which after a crash would write back all that the dead process left in
//! the cache. It need not; only three writes of a few bytes are waited for. With F the superblock that was
//! found, and N the one that is written:
//!
//! | what must be durable | before | why | how |
//! |---|---|---|---|
//! | what F names: root, images, the log they point to | F | else F could not be opened | the checkpoint synced it; F adds nothing |
//! | F | anything is written over, or cut off | F may be in the cache only, with its older slot, where N goes, the one the device has; and what F does not need any more is free to F alone | F is written again, durably |
//! | the cleared link behind the end, if the cache is not trusted | the end frame | `log::recover` | durably |
//! | N, if it names a new epoch | anything of that epoch | its sequences are never used again | durably |
//! | what the log has behind F's checkpoint | nothing | N does not name it: replay begins where it did. A cut leaves a prefix of it, as before the open | not waited for |
//! | the mark | nothing | it tells what was synced before it was stored | not waited for |
//!
//! N names nothing that F did not: it has F's root and start, and a durable end that was durable already. If it
//! names no epoch (a closed file) it may be lost: the next open finds F.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::Mutex;
use rapidhash::v3::RapidSecrets;

use super::checkpoint::{self, Checkpoint};
use super::layout::{ENGINE, Image, Root, SHIFTS, Super, root_crc};
use super::recover::Replay;
use super::{Core, HashDb, Options, keeper, value};
use crate::counter::Counter;
use crate::error::{self, Error, Kind, Result};
use crate::format::superblock::{self, Superblock};
use crate::index::Index;
use crate::index::hash::STRIPES;
use crate::io::file::{File, Files};
use crate::io::{Access, Directory, Storage};
use crate::log::layout::SegmentHeader;
use crate::log::recover::{Recovered, Trust};
use crate::log::{Geometry, Log, LogPosition, Segment, Use};
use crate::record::gate::Gate;

/// A closed file is not checkpointed for less log than this, in bytes: some hundred records.
const REPLAY_LEN_MAX: u32 = 16 << 10;

impl HashDb {
    /// Makes a new file. `Invalid` if there is something of that name, also if it came meanwhile.
    ///
    /// The file appears when it can be opened: whenever the process dies, there is none or a whole one.
    /// Costs one sync, and one of the folder.
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let (directory, name) = Files::of(path.as_ref());
        Self::create_in(&directory, name, options)
    }

    /// As [`create`](Self::create), in any directory.
    pub fn create_in(directory: &dyn Directory, name: &Path, options: &Options) -> Result<Self> {
        check_options(options)?;
        let storage = directory.create_nameless(name)?;
        let db = Self::create_on(Arc::clone(&storage), options)?;
        storage.take_name()?;
        if let Err(error) = directory.sync() {
            // What could not be made is not left lying about; the first error is the one to tell.
            let _ = directory.remove(name);
            return Err(error);
        }
        Ok(db)
    }

    /// Makes a file that appears when `fill` is done, closed and durable; if that fails, none.
    pub(super) fn create_whole(
        path: &Path,
        options: &Options,
        fill: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        check_options(options)?;
        let (directory, name) = Files::of(path);
        let storage = directory.create_nameless(name)?;
        let db = Self::create_on(Arc::clone(&storage), options)?;
        fill(&db)?;
        db.close()?;
        storage.take_name()?;
        directory.sync()
    }

    /// Opens a file for reading and writing; after a crash, recovers. `Locked` if it is open for writing
    /// anywhere, `Mismatch` if it is not a hash file of a known version.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        Self::open_on(Arc::new(File::open(path.as_ref(), Access::Write)?), options)
    }

    /// Opens a file, or makes it if there is none.
    pub fn open_or_create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        match Self::create(path, options) {
            Err(error) if error.kind() == Kind::Invalid && path.exists() => {
                Self::open(path, options)
            }
            other => other,
        }
    }

    /// Makes a store on an empty storage. Whoever dies in here leaves a storage that is no store yet
    /// (`Mismatch`): empty it and make the store again. [`create`](Self::create) does not leave one.
    #[expect(clippy::needless_pass_by_value, reason = "the store keeps the storage")]
    pub fn create_on(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        check_options(options)?;
        let shift = options.segment_size.trailing_zeros();
        let identity = identity(storage.as_ref());
        let geometry = Geometry {
            shift,
            salt: identity as u32,
        };
        if options.capacity < geometry.offset_of(2) {
            let least = error::size(geometry.offset_of(2));
            return Err(
                Error::new(Kind::Invalid, "no record fits in the capacity of the file")
                    .found(error::size(options.capacity), format!("{least} or more")),
            );
        }
        storage.resize(geometry.offset_of(1))?;
        let log = open_log(&storage, geometry, options)?;
        log.segments().finish_adoption()?;
        let sequence = 1 << 32;
        log.begin(None, sequence, None);
        log.open_first()?;
        let payload = Super {
            geometry,
            hash_seed: identity.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15,
            compression: options.compression,
            open: true,
            epoch: 1,
            boot_id: storage.boot_id(),
            start: log.end(),
            durable: LogPosition::default(),
            root: None,
            count: 0,
            next_sequence: sequence + 1,
        };
        let images = vec![Image::default(); STRIPES];
        let mut state = Checkpoint {
            images,
            ..Checkpoint::default()
        };
        let core = build(log, Index::new()?, options, &payload)?;
        core.write_super_lazily(&mut state, payload)?;
        core.sync_storage()?;
        *core.checkpoint.lock() = state;
        Self::start(core)
    }

    /// Opens the store on a storage.
    #[expect(clippy::needless_pass_by_value, reason = "the store keeps the storage")]
    pub fn open_on(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        check_options(options)?;
        let (sequence, mut last) = read_super(storage.as_ref())?;
        let root = read_root(storage.as_ref(), &last)?;
        let size = storage.size()?;
        let geometry = last.geometry;
        let segments = segments_of(storage.as_ref(), geometry, size)?;
        check_within(&storage, &root, geometry, segments)?;
        storage.resize(size.max(geometry.offset_of(segments as u32)))?;
        let log = open_log(&storage, geometry, options)?;
        adopt(&log, &root)?;
        let trust = trust_in(&log, &last, storage.as_ref());
        if last.open && !trust.trusted {
            storage.drop_cache()?;
        }
        let mut replay = Replay::new(RapidSecrets::seed(last.hash_seed));
        let found = log.recover(last.start, trust, &mut |address, frame| {
            replay.record(address, &frame, last.count);
            Ok(())
        })?;
        let end = LogPosition {
            sequence: found.last.1,
            offset: found.end,
        };
        if end < trust.durable && trust.durable.offset != u32::MAX {
            return Err(ends_early(storage.as_ref(), end, trust.durable));
        }
        let found_super = Superblock {
            engine: ENGINE,
            sequence,
            payload: last.encode(),
        };
        log.write_durably(found_super.slot_offset(), &found_super.encode())?;
        keep_for_next_checkpoint(&log, &root, last.count);
        log.segments().finish_adoption()?;
        let resumes = go_on(&log, &mut last, trust, found)?;
        bury(&log, &mut replay, end.sequence);
        let count = last.count.saturating_add_signed(replay.count);
        let changed = replay.changed();
        let images = root.images.clone();
        let cold = replay.into_cold(Arc::clone(&log), geometry.salt, images);
        let index = Index::cold(Arc::new(cold))?;
        for stripe in changed {
            index.mark_dirty(stripe);
        }
        last.open = true;
        last.boot_id = storage.boot_id();
        last.durable = trust.durable;
        last.next_sequence = log.next_sequence();
        log.set_durable(trust.durable);
        let core = build(
            log,
            index,
            options,
            &Super {
                count,
                ..last.clone()
            },
        )?;
        let mut state = Checkpoint {
            superblock: Some((sequence, last.clone())),
            images: root.images,
            log: root.log,
            ..Checkpoint::default()
        };
        if resumes {
            core.write_super_lazily(&mut state, last)?;
        } else {
            core.write_super(&mut state, last)?;
        }
        *core.checkpoint.lock() = state;
        Self::start(core)
    }

    fn start(core: Core) -> Result<Self> {
        core.keep_for_checkpoint(&core.checkpoint.lock());
        let core = Arc::new(core);
        let background = core.options.background;
        let keeper = background.then(|| keeper::Keeper::start(&core));
        let keeper = keeper.transpose()?;
        Ok(Self { core, keeper })
    }

    /// Closes the file: everything is durable afterwards, and the next open replays little. Dropping does
    /// the same, but can only trace an error.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> Result<()> {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop();
        }
        self.core.close()
    }
}

impl Drop for HashDb {
    fn drop(&mut self) {
        if self
            .core
            .checkpoint
            .lock()
            .superblock
            .as_ref()
            .is_some_and(|(_, last)| last.open)
            && let Err(error) = self.shut()
        {
            tracing::error!(%error, "closing failed; the next open recovers");
        }
    }
}

impl Core {
    fn close(&self) -> Result<()> {
        self.log.healthy()?;
        // A very short log is replayed faster than a checkpoint is written.
        let (_, end) = self.log.end();
        let from = *self.replay_from.lock();
        if end.sequence != from.sequence || end.offset.saturating_sub(from.offset) > REPLAY_LEN_MAX
        {
            match self.checkpoint() {
                // A full device: the next open reads a longer log.
                Err(error) if error.kind() == Kind::Full => {}
                other => other?,
            }
        }
        let mut state = self.checkpoint.lock();
        self.sync_storage()?;
        let (_, end) = self.log.end();
        let Some((_, last)) = state.superblock.clone() else {
            return Ok(());
        };
        let next_sequence = self.log.next_sequence();
        let payload = Super {
            open: false,
            durable: end,
            next_sequence,
            ..last
        };
        self.write_super(&mut state, payload)?;
        self.log.segments().trim()?;
        Ok(())
    }
}

fn build(log: Arc<Log>, index: Index, options: &Options, payload: &Super) -> Result<Core> {
    Ok(Core {
        log,
        index,
        options: options.clone(),
        secrets: RapidSecrets::seed(payload.hash_seed),
        compression: payload.compression,
        plain_below: value::plain_below(payload.compression),
        epoch: payload.epoch,
        gate: Gate::default(),
        count: Counter::new(payload.count)?,
        frame_len: AtomicUsize::new(64),
        checkpoint: Mutex::new(Checkpoint::default()),
        wake_at: AtomicU64::new(0),
        bell: keeper::Bell::default(),
        cleaning: Mutex::default(),
        replay_from: Mutex::new(payload.start.1),
        suspect: Mutex::new(Vec::new()),
    })
}

fn open_log(storage: &Arc<dyn Storage>, geometry: Geometry, options: &Options) -> Result<Arc<Log>> {
    let map = storage.map(options.capacity.max(storage.size()?.next_multiple_of(4096)))?;
    if options.syncs_often || options.durability == crate::engine::Durability::Power {
        map.advise_plain();
    }
    Ok(Arc::new(Log::new(Arc::clone(storage), map, geometry)?))
}

fn check_options(options: &Options) -> Result<()> {
    let shift = options.segment_size.trailing_zeros();
    if !options.segment_size.is_power_of_two() || !SHIFTS.contains(&shift) {
        return Err(
            Error::new(Kind::Invalid, "the segment size is a power of two")
                .found(options.segment_size, "4096 to 67108864"),
        );
    }
    if !(1.1..=1000.0).contains(&options.space_ratio) {
        return Err(Error::new(Kind::Invalid, "the space ratio is out of range")
            .found(options.space_ratio, "1.1 to 1000"));
    }
    crate::io::mmap::check_capacity(options.capacity)
}

/// A number that differs from file to file and cannot be guessed by who chooses keys.
fn identity(storage: &dyn Storage) -> u64 {
    storage.entropy()
}

/// The newest valid superblock: its sequence and payload.
pub(super) fn read_super(storage: &dyn Storage) -> Result<(u64, Super)> {
    let size = storage.size()?.min(superblock::SIZE);
    let mut head = vec![0; size as usize];
    storage.read_at(0, &mut head)?;
    let block = Superblock::current(&head, &ENGINE).map_err(|error| error.at(storage.path()))?;
    let payload = Super::decode(&block.payload).ok_or_else(|| {
        Error::new(Kind::Corrupted, "the superblock holds impossible values")
            .at(storage.path())
            .offset(block.slot_offset())
    })?;
    Ok((block.sequence, payload))
}

/// The root of the last checkpoint; of a file without one, just the segment its log begins in.
pub(super) fn read_root(storage: &dyn Storage, last: &Super) -> Result<Root> {
    let Some(extent) = last.root else {
        return Ok(Root::new());
    };
    let damaged = |what: &str| {
        Error::new(Kind::Corrupted, what)
            .at(storage.path())
            .offset(extent.offset)
            .remedy(format!(
                "run `azekura repair {} NEW-FILE`",
                storage.path().display()
            ))
    };
    let size = storage.size()?;
    if extent
        .offset
        .checked_add(extent.len)
        .is_none_or(|end| end > size)
    {
        return Err(damaged(
            "the root of the checkpoint lies beyond the end of the file",
        ));
    }
    let mut bytes = vec![0; extent.len as usize];
    storage.read_at(extent.offset, &mut bytes)?;
    if root_crc(last.geometry.salt, &bytes) != extent.crc {
        return Err(damaged("the root of the checkpoint is damaged"));
    }
    Root::decode(&bytes)
        .ok_or_else(|| damaged("the root of the checkpoint holds impossible values"))
}

/// Segments of a storage of `size` bytes. One that was cut short counts; what a large file has behind its last one does
/// not: it would have to grow, and a full device would keep it from being opened.
fn segments_of(storage: &dyn Storage, geometry: Geometry, size: u64) -> Result<u64> {
    let whole = size.saturating_sub(geometry.offset_of(0)) >> geometry.shift;
    let at = geometry.offset_of(whole as u32);
    let mut bytes = [0; 24];
    if size < at + bytes.len() as u64 {
        return Ok(whole + u64::from(size > at));
    }
    storage.read_at(at, &mut bytes)?;
    let is_segment = SegmentHeader::decode(&bytes, geometry.salt).is_some();
    Ok(whole + u64::from(is_segment))
}

fn check_within(
    storage: &Arc<dyn Storage>,
    root: &Root,
    geometry: Geometry,
    segments: u64,
) -> Result<()> {
    let log = root
        .log
        .iter()
        .map(|segment| (segment.index, segment.units));
    let beyond = log
        .chain(root.other.iter().copied())
        .find(|(index, units)| u64::from(*index) + u64::from(*units) > segments);
    match beyond {
        None => Ok(()),
        Some((index, _)) => Err(Error::new(Kind::Corrupted, "the file is cut short")
            .at(storage.path())
            .offset(geometry.offset_of(index))
            .found(format!("{segments} segments"), "more")
            .remedy("restore a backup, or run `azekura repair`")),
    }
}

/// Tells the log which segments the checkpoint needs.
fn adopt(log: &Log, root: &Root) -> Result<()> {
    for segment in &root.log {
        log.segments().adopt(*segment, Use::Log)?;
    }
    for &(index, units) in &root.other {
        let segment = Segment {
            index,
            units,
            sequence: 0,
            dead: 0,
        };
        log.segments().adopt(segment, Use::Other)?;
    }
    Ok(())
}

fn keep_for_next_checkpoint(log: &Log, root: &Root, count: u64) {
    let images_len = root.images.iter().map(|image| u64::from(image.len)).sum();
    let taken = root.other.iter().map(|(_, units)| units).sum();
    let (units, neighbours) =
        checkpoint::need(log.geometry(), images_len, count, root.log.len(), taken);
    log.segments().keep_for_checkpoint(units, neighbours);
}

/// Lets the log go on behind what recovery found: right there, or in a new segment of a new epoch; whether it is
/// right there.
fn go_on(log: &Log, last: &mut Super, trust: Trust, found: Recovered) -> Result<bool> {
    let seed = log.segments().seed(found.last.0);
    let room = seed.map_or(0, |(_, room)| room);
    // A closed file of an earlier boot may have been opened and written to since, and all of that lost
    // but stray frames behind the end: nothing is put among them.
    let resumes = !last.open
        && trust.trusted
        && room == log.geometry().segment_size()
        && u64::from(found.end) < room;
    if resumes {
        let next = last.next_sequence.max(found.last.1 + 1);
        log.begin(Some(found.last), next, Some(found.end));
    } else {
        log.seal(last.start, trust, found)?;
        last.epoch += 1;
        log.begin(Some(found.last), u64::from(last.epoch) << 32, None);
    }
    Ok(resumes)
}

/// Counts as dead what replay says nobody needs, in segments before the one of sequence `end` if everything was cleared.
fn bury(log: &Log, replay: &mut Replay, end: u64) {
    for (address, len) in replay.dead.drain(..) {
        log.bury(address, len);
    }
    if replay.was_cleared() {
        let segments = log.segments().in_use(Use::Log);
        for segment in segments.iter().filter(|s| s.sequence < end) {
            log.segments().bury_all(segment.index);
        }
    }
}

/// How far the storage can be believed.
pub(super) fn trust_in(log: &Log, last: &Super, storage: &dyn Storage) -> Trust {
    let mark = log.mark().unwrap_or_default();
    // A system that does not tell its boot is taken to have lost power since.
    let same_boot = last.boot_id == storage.boot_id() && last.boot_id != [0; 16];
    Trust {
        trusted: same_boot && !(last.open && mark.sync_failed),
        durable: last.durable.max(mark.durable),
        live: storage.has_writer(),
    }
}

#[cold]
fn ends_early(storage: &dyn Storage, end: LogPosition, durable: LogPosition) -> Error {
    Error::new(Kind::Corrupted, "the log ends before what was synced")
        .at(storage.path())
        .found(format!("end {end}"), format!("at least {durable}"))
        .remedy(format!(
            "run `azekura repair {} NEW-FILE`",
            storage.path().display()
        ))
}
