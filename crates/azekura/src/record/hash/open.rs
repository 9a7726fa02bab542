//! Creating, opening and closing a hash file.
//!
//! Creating: everything into a file without a name, one sync, then the name. So there is no file, or one that
//! opens.
//!
//! Opening for writing: superblock, root, replay; after a crash, seal; a superblock that says "open" and,
//! after a crash, names a new epoch. A process that dies during an open leaves what it found. Closing: sync, a
//! superblock that says "closed"; and a checkpoint before, if anything was appended since the last.
//!
//! An open never syncs the whole file, which after a crash would write back all that the dead process left in
//! the cache. It need not; only four writes of a few bytes are waited for. With F the superblock that was
//! found, and N the one that is written:
//!
//! | what must be durable | before | why | how |
//! |---|---|---|---|
//! | what F names: root, images, the log they point to | F | else F could not be opened | the checkpoint synced it; F adds nothing |
//! | F | anything is written over, or cut off | F may be in the cache only, with its older slot, where N goes, the one the device has; and what F does not need any more is free to F alone | F is written again, durably |
//! | the cleared link behind the end, if the cache is not trusted | the end frame | `log::recover` | durably |
//! | N, in both slots, one after the other | anything appended | its epoch's sequences are never used again; damage of either slot costs that slot | durably |
//! | what the log has behind F's checkpoint | nothing | N does not name it: replay begins where it did. A cut leaves a prefix of it, as before the open | not waited for |
//! | the mark | nothing | it tells what was synced before it was stored | not waited for |
//!
//! N names nothing that F did not: it has F's root and start, and a durable end that was durable already.
//!
//! A slot that cannot be read, or does not verify, is written again with N. Damage of the log: `recover`; of the root:
//! `lost_root`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use rapidhash::v3::RapidSecrets;

use super::checkpoint::{self, Checkpoint};
use super::layout::{ENGINE, Image, ROOT_SEED, Root, SHIFTS, Super};
use super::lost_root::{Rest, is_damage};
use super::recover::{Known, Replay};
use super::{Core, HashDb, Options, keeper, value};
use crate::counter::Counter;
use crate::damage::{Affects, Damage};
use crate::error::{self, Error, Kind, Result};
use crate::format::superblock::{self, Superblock};
use crate::index::Index;
use crate::index::hash::STRIPES;
use crate::io::file::{File, Files};
use crate::io::{Access, Directory, Storage};
use crate::log::anchor::{Anchor, FIRST_SEQUENCE, cut_short, remedy, segments_of};
use crate::log::recover::Recovered;
use crate::log::{Geometry, Log, Use, root};
use crate::record::gate::Gate;
use crate::weave::Mutex;

/// Segments that the room of a store should hold, and the sizes to choose from for it.
const SEGMENTS_WANTED: u64 = 512;
const SIZE_MIN: u64 = 16 << 10;
const SIZE_MAX: u64 = 1 << 20;
/// Bytes of a file that have addresses: 40 bits of 8-byte words.
const ADDRESSES: u64 = 1 << 43;

impl HashDb {
    /// Makes a new file. `Invalid` if there is something of that name, also if it came meanwhile.
    ///
    /// The file appears when it can be opened: whenever the process dies, there is none or a whole one.
    /// Costs one sync, and one of the folder.
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let (directory, name) = Files::of(path.as_ref());
        Self::create_in(&directory, name, options)
    }

    /// The least `Options::capacity` of a file with segments of this size, a power of two: records, and what a full store keeps free.
    pub fn least_capacity(segment_size: u64) -> u64 {
        checkpoint::least_capacity(Geometry {
            shift: segment_size.max(1).ilog2(),
            salt: 0,
        })
        .next_multiple_of(4096)
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
        let segment_size = chosen_segment_size(storage.as_ref(), options);
        let shift = segment_size.trailing_zeros();
        let identity = identity(storage.as_ref());
        let geometry = Geometry {
            shift,
            salt: identity as u32,
        };
        check_holds(options.capacity, segment_size)?;
        storage.resize(geometry.offset_of(1))?;
        let log = open_log(&storage, geometry, options)?;
        log.segments().finish_adoption()?;
        log.begin(FIRST_SEQUENCE)?;
        let payload = Super {
            anchor: Anchor::first(&log),
            hash_seed: identity.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15,
            compression: options.compression,
            count: 0,
        };
        let images = vec![Image::default(); STRIPES];
        let mut state = Checkpoint {
            images,
            ..Checkpoint::default()
        };
        let index = Index::new(log.domain())?;
        let core = build(log, index, options, &payload, Arc::default())?;
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
        let size = storage.size()?;
        let geometry = last.geometry;
        let segments = segments_of(storage.as_ref(), geometry, size)?;
        let root = match read_root_within(storage.as_ref(), &last, segments) {
            Err(error) if is_damage(&error) => {
                tracing::warn!(%error, "the file opens for reading only");
                return Self::open_without_root(&storage, options, (sequence, last), segments);
            }
            other => other?,
        };
        check_holds(options.capacity, geometry.segment_size())
            .map_err(|error| error.at(storage.path()).remedy("raise the capacity"))?;
        storage.resize(size.max(geometry.offset_of(segments as u32)))?;
        let log = open_log(&storage, geometry, options)?;
        log.segments().begin_adoption(segments as u32);
        root.needed.adopt(&log)?;
        let trust = last.trust(&log);
        if last.open && !trust.trusted {
            storage.drop_cache()?;
        }
        let mut replay = Replay::new(RapidSecrets::seed(last.hash_seed));
        replay.begin_with_mark(&root.mark);
        let found = replay.run(&log, &last, trust)?;
        if replay.is_in_doubt() {
            return Self::open_in_doubt(log, options, (sequence, last), root, (replay, &found));
        }
        for damage in damaged_slots(storage.as_ref())? {
            tracing::warn!(%damage, "a superblock slot is written again");
        }
        let found_super = Superblock {
            engine: ENGINE,
            sequence,
            payload: last.encode(),
        };
        log.write_durably(found_super.slot_offset(), &found_super.encode())?;
        count_dead(&log, &mut replay);
        keep_for_next_checkpoint(&log, &last, &root);
        log.segments().finish_adoption()?;
        if replay.is_damaged() {
            log.mend_words(&found);
            log.mend_headers();
        }
        last.go_on(&log, trust, &found)?;
        let count = last.count.saturating_add_signed(replay.count);
        let changed = replay.changed();
        let images = root.images.clone();
        let mark = replay.mark();
        let cold = replay.into_cold(Arc::clone(&log), geometry.salt, images);
        let known = cold.known();
        let index = Index::cold(log.domain(), Arc::new(cold))?;
        for stripe in changed {
            index.mark_dirty(stripe);
        }
        last.open = true;
        last.boot_id = storage.boot_id();
        last.durable = trust.durable;
        last.next_sequence = log.next_sequence();
        log.set_durable(trust.durable);
        let counted = Super {
            count,
            ..last.clone()
        };
        let core = build(log, index, options, &counted, known)?;
        core.note_mark(Some(&mark));
        let mut state = Checkpoint {
            superblock: Some((sequence, last.clone())),
            mark: root.mark,
            images: root.images,
            root: root.pieces,
            is_root_corrected: root.is_corrected,
            log: root.needed.log,
            ..Checkpoint::default()
        };
        core.write_super(&mut state, last)?;
        *core.checkpoint.lock() = state;
        Self::start(core)
    }

    /// Opens a file of whose checkpoint the root is damaged, or a segment cut off, for reading only: see `lost_root`. Nothing is
    /// written, and the file does not grow.
    fn open_without_root(
        storage: &Arc<dyn Storage>,
        options: &Options,
        (sequence, last): (u64, Super),
        segments: u64,
    ) -> Result<Self> {
        let rest = Rest::read(storage.as_ref(), &last);
        let log = open_log(storage, last.geometry, options)?;
        log.segments().begin_adoption(segments as u32);
        let trust = last.trust(&log);
        if last.open && !trust.trusted {
            storage.drop_cache()?;
        }
        let mut replay = Replay::new(RapidSecrets::seed(last.hash_seed));
        rest.replay(&log, &last, segments, &mut replay)?;
        let found = replay.run(&log, &last, trust)?;
        Self::open_in_doubt(log, options, (sequence, last), rest.root, (replay, &found))
    }

    /// Opens a file of which a part of the log after the checkpoint is lost, or the root, so that the newest state is unknown or
    /// nothing can be written: for reading only. Nothing is written.
    fn open_in_doubt(
        log: Arc<Log>,
        options: &Options,
        (sequence, mut last): (u64, Super),
        root: Root,
        (mut replay, found): (Replay, &Recovered),
    ) -> Result<Self> {
        log.refuse();
        let next = last.next_sequence.max(found.end.sequence() + 1);
        log.resume(found.end.closed(), next);
        last.count = last.count.saturating_add_signed(replay.count);
        let mark = replay.mark();
        let cold = replay.into_cold(Arc::clone(&log), last.geometry.salt, root.images.clone());
        let known = cold.known();
        let index = Index::cold(log.domain(), Arc::new(cold))?;
        let core = build(log, index, options, &last, known)?;
        core.note_mark(Some(&mark));
        // Nothing is to be closed.
        last.open = false;
        *core.checkpoint.lock() = Checkpoint {
            superblock: Some((sequence, last)),
            images: root.images,
            root: root.pieces,
            is_root_corrected: root.is_corrected,
            log: root.needed.log,
            ..Checkpoint::default()
        };
        Ok(Self {
            core: Arc::new(core),
            keeper: None,
        })
    }

    fn start(core: Core) -> Result<Self> {
        core.keep_for_checkpoint(&core.checkpoint.lock());
        let core = Arc::new(core);
        let background = core.options.background;
        let keeper = background.then(|| keeper::start(&core));
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
        if self.known.is_read_only() {
            return Ok(());
        }
        if self.log.is_refused() {
            // No checkpoint can be made, so the log stays what the next open replays.
            return self.sync_storage();
        }
        self.log.healthy()?;
        // After a clean close nothing lies past the checkpoint: there damage of one record is damage of that record.
        match self.checkpoint() {
            // A full device: the next open reads a longer log.
            Err(error) if error.kind() == Kind::Full => {}
            other => other?,
        }
        let mut state = self.checkpoint.lock();
        self.sync_storage()?;
        let end = self.log.end().position();
        let Some((_, mut payload)) = state.superblock.clone() else {
            return Ok(());
        };
        payload.open = false;
        payload.durable = end;
        payload.next_sequence = self.log.next_sequence();
        self.write_super(&mut state, payload)?;
        self.log.segments().trim()?;
        Ok(())
    }
}

fn build(
    log: Arc<Log>,
    index: Index,
    options: &Options,
    payload: &Super,
    known: Arc<Known>,
) -> Result<Core> {
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
        count: Counter::new(payload.count)?,
        frame_len: AtomicUsize::new(64),
        checkpoint: Mutex::new(Checkpoint::default()),
        wake_at: AtomicU64::new(0),
        wakeup: Arc::default(),
        cleaning: Mutex::default(),
        replay_from: Mutex::new(payload.start),
        relieved: Mutex::default(),
        told: Mutex::default(),
        recent_live: AtomicU64::new(0),
        relief_asked: AtomicUsize::new(0),
        suspect: Mutex::new(Vec::new()),
    })
}

fn open_log(storage: &Arc<dyn Storage>, geometry: Geometry, options: &Options) -> Result<Arc<Log>> {
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
    Ok(Arc::new(log))
}

/// The segment size that was asked for, or one that fits the capacity and the device: what a full store keeps free is
/// counted in segments.
fn chosen_segment_size(storage: &dyn Storage, options: &Options) -> u64 {
    if options.segment_size != 0 {
        return options.segment_size;
    }
    let room = options.capacity.min(storage.free().unwrap_or(u64::MAX));
    let fitting = 1 << (room / SEGMENTS_WANTED).max(1).ilog2();
    let mut size = fitting.clamp(SIZE_MIN, SIZE_MAX);
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
    .found(error::size(capacity), format!("{least} bytes or more"))
    .remedy("raise the capacity, or take smaller segments"))
}

fn check_options(options: &Options) -> Result<()> {
    let shift = options.segment_size.trailing_zeros();
    let is_size = options.segment_size.is_power_of_two() && SHIFTS.contains(&shift);
    if options.segment_size != 0 && !is_size {
        return Err(
            Error::new(Kind::Invalid, "the segment size is a power of two")
                .found(options.segment_size, "4096 to 67108864, or 0"),
        );
    }
    if !(1.1..=1000.0).contains(&options.space_ratio) {
        return Err(Error::new(Kind::Invalid, "the space ratio is out of range")
            .found(options.space_ratio, "1.1 to 1000"));
    }
    // Of any number of bytes: only what is mapped has whole pages.
    crate::io::mmap::check_capacity((options.capacity & !4095).max(4096))
}

/// A number that differs from file to file and cannot be guessed by who chooses keys.
fn identity(storage: &dyn Storage) -> u64 {
    storage.entropy()
}

/// The newest valid superblock: its sequence and payload.
pub(super) fn read_super(storage: &dyn Storage) -> Result<(u64, Super)> {
    let (head, refused) = read_slots(storage)?;
    let block = match Superblock::current(&head, &ENGINE) {
        Ok(block) => block,
        Err(error) => {
            let error = other_file(error, &head).at(storage.path());
            return Err(refused.unwrap_or(error));
        }
    };
    let payload = Super::decode(&block.payload).ok_or_else(|| {
        Error::new(Kind::Corrupted, "the superblock holds impossible values")
            .at(storage.path())
            .offset(block.slot_offset())
    })?;
    Ok((block.sequence, payload))
}

/// What to do about a file that begins with `head`, and is another engine's.
fn other_file(error: Error, head: &[u8]) -> Error {
    let is = |engine| Superblock::current(head, engine).is_ok();
    if is(b"object\0\0") || is(b"objdata\0") {
        error.remedy(
            "it holds objects: use `azekura object get` and the other commands of `azekura object`",
        )
    } else {
        error
    }
}

/// The bytes of both slots, or what the file has of them: one that cannot be read is zeros, and the reason is reported.
fn read_slots(storage: &dyn Storage) -> Result<(Vec<u8>, Option<Error>)> {
    let size = storage.size()?.min(superblock::SIZE);
    let mut head = vec![0; size as usize];
    let mut refused = None;
    for (slot, bytes) in head.chunks_mut(superblock::SLOT_SIZE as usize).enumerate() {
        let offset = slot as u64 * superblock::SLOT_SIZE;
        if let Err(error) = storage.read_at(offset, bytes) {
            bytes.fill(0);
            refused = Some(error.offset(offset));
        }
    }
    Ok((head, refused))
}

/// The slots that hold no superblock, though a file has one in both.
pub(super) fn damaged_slots(storage: &dyn Storage) -> Result<Vec<Damage>> {
    let (head, _) = read_slots(storage)?;
    let slots = head.chunks(superblock::SLOT_SIZE as usize).enumerate();
    let damaged = slots.filter(|(_, slot)| Superblock::current(slot, &ENGINE).is_err());
    Ok(damaged
        .map(|(slot, bytes)| Damage {
            path: storage.path().to_path_buf(),
            offset: slot as u64 * superblock::SLOT_SIZE,
            len: bytes.len() as u64,
            found: format!(
                "superblock slot {slot} cannot be read or does not verify; the other one is used, and nothing is lost: opening \
                 the file for writing writes both"
            ),
            affects: Affects::Nothing,
        })
        .collect())
}

/// The root of the last checkpoint; of a file without one, just the segment its log begins in.
pub(super) fn read_root(storage: &dyn Storage, last: &Super) -> Result<Root> {
    let Some(extent) = last.root else {
        return Ok(Root::new());
    };
    let seed = last.geometry.salt ^ ROOT_SEED;
    let mut read = root::Read::from(extent);
    read.read(storage, seed, true)?;
    let root = Root::decode(&read.bytes).ok_or_else(|| {
        Error::new(
            Kind::Corrupted,
            "the root of the checkpoint holds impossible values",
        )
        .at(storage.path())
        .offset(extent.offset)
        .remedy(remedy(storage))
    })?;
    Ok(Root {
        pieces: read.pieces,
        is_corrected: read.is_corrected,
        ..root
    })
}

/// The root of a file of so many segments. `Corrupted` if one that it states is cut off.
pub(super) fn read_root_within(storage: &dyn Storage, last: &Super, segments: u64) -> Result<Root> {
    let root = read_root(storage, last)?;
    let (size, whole) = (storage.size()?, last.geometry.offset_of(segments as u32));
    // The log may have stood in the rest of its last segment.
    if size < whole {
        return Err(cut_short(storage).found(format!("{size} bytes"), format!("{whole} bytes")));
    }
    root.needed.check_within(storage, last.geometry, segments)?;
    Ok(root)
}

fn keep_for_next_checkpoint(log: &Log, last: &Super, root: &Root) {
    let images = &root.images;
    let told = checkpoint::Told {
        len: images.iter().map(|image| image.extent.len).sum(),
        records: images.iter().map(|image| u64::from(image.count)).sum(),
        mark: root.mark.len() as u64,
    };
    checkpoint::keep_for_checkpoint(log, told, last.count);
}

/// Counts as dead what replay found not to be needed, and all of the segments before the one in which everything was cleared.
fn count_dead(log: &Log, replay: &mut Replay) {
    for (address, len) in replay.dead.drain(..) {
        log.bury(address, len);
    }
    let cleared = replay.cleared();
    let segments = log.segments().in_use(Use::Log);
    for segment in segments.iter().filter(|s| s.sequence < cleared) {
        log.segments().bury_all(segment.index);
    }
}
