//! Creating, opening and closing a tree file.
//!
//! Creating: everything into a file without a name, one sync, then the name. Opening: superblock, root, bitmaps; the journal from the
//! checkpoint on is verified to its end, then the log resumes after it (`kernel::recover`), and what it states is done again. The
//! pages that this writes go to places that no checkpoint names, so a process that dies meanwhile leaves what it found. Until it is
//! done, no checkpoint is made; then pages are written until readers find frames, if most of the cache has changed.
//!
//! Closing: a checkpoint, sync, a superblock that states "closed". A journal that does not verify before its end, a damaged root or
//! bitmap, and a write that fails while the journal is done again, refuse the open. A damaged page that the journal changes lets the
//! file open for reading.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cache::{PageCache, check_size, frames_of};
use super::checkpoint::{Checkpoint, may_be_dirty, reserve};
use super::cluster::is_long;
use super::layout::{
    CHUNK, CLEAR, FILE_MAX, PUT, PageShape, REMOVE, REMOVE_RANGE, Root, SHIFTS, Super, UNIT,
    bitmap_seed,
};
use super::nodes::REPLAYED;
use super::salvage::Orphans;
use super::space::Space;
use super::sums::Sums;
use super::table::PageTable;
use super::{
    Core, CreateOptions, OpenOptions, TreeDb, background, is_damage, is_damage_or_full, is_full,
};
use crate::damage::{Affects, Damage};
use crate::error::{Error, Kind, Result};
use crate::explore::Mutex;
use crate::format::frame::FrameKind;
use crate::io::file::{File, Files};
use crate::io::mmap::check_capacity;
use crate::io::{Access, Directory, Storage, create_whole};
use crate::kernel::checkpoint::read_root;
use crate::kernel::superblock::damaged_slots;
use crate::kernel::{self, Closing, Handle, SuperblockPair, recover};
use crate::log::layout::FIRST_FRAME;
use crate::log::manifest::{check_last_is_whole, read_extent, segments_of};
use crate::log::{End, Geometry, Log, Use};
use crate::node::tree::{NodeStore, ROOT, Tree};
use crate::order::Order;
use crate::record::gate::Gate;

/// Sizes of segments to choose from.
const SIZES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 20;
/// Damage that is listed.
const KNOWN_MAX: usize = 1000;
/// Segments that a store has at least.
const SEGMENTS_MIN: u64 = 24;

impl TreeDb {
    /// Makes a new file. `Invalid` if there is something of that name, also if it came meanwhile.
    ///
    /// The file appears when it can be opened: whenever the process dies, there is none or a whole one. Costs one sync, and one of
    /// the folder.
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<Self> {
        let (directory, name) = Files::of(path.as_ref());
        Self::create_in(&directory, name, options)
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

    /// Opens a file for reading and writing; after a crash, recovers. `Locked` if it is open for writing anywhere, `Mismatch` if it is
    /// not a tree file of a known version, `Corrupted`.
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

    /// Makes a store on an empty storage. A crash in here leaves a storage that is no store yet (`Mismatch`).
    #[expect(clippy::needless_pass_by_value, reason = "the store keeps the storage")]
    pub fn create_on(storage: Arc<dyn Storage>, options: &CreateOptions) -> Result<Self> {
        check_creation(options)?;
        check_order(&options.opening, options.order)?;
        let size = match options.segment_size {
            0 => Geometry::fitting_size(storage.as_ref(), options.opening.capacity, SIZES),
            asked => asked,
        };
        let shift = size.trailing_zeros();
        let geometry = Geometry {
            shift,
            salt: storage.entropy() as u32,
        };
        check_holds(options.opening.capacity, geometry)?;
        storage.resize(geometry.offset_of(1))?;
        let log = open_log(&storage, geometry, &options.opening)?;
        let payload = Super {
            manifest: recover::begin(&log)?,
            order: options.order,
            shape: check_shape(options)?,
            count: 0,
        };
        let superblock = SuperblockPair::create(storage.as_ref(), 0, payload)?;
        let core = build(log, superblock, &Root::default(), &options.opening)?;
        core.log.sync_now()?;
        Self::start(core)
    }

    /// Opens the store on a storage.
    #[expect(clippy::needless_pass_by_value, reason = "the store keeps the storage")]
    pub fn open_on(storage: Arc<dyn Storage>, options: &OpenOptions) -> Result<Self> {
        check_opening(options)?;
        let found_super = SuperblockPair::<Super>::read(storage.as_ref())?;
        let last = &found_super.payload;
        check_order(options, last.order).map_err(|error| error.at(storage.path()))?;
        let geometry = last.geometry;
        check_holds(options.capacity, geometry)
            .map_err(|error| error.at(storage.path()).remedy("raise the capacity"))?;
        let segments = segments_of(storage.as_ref(), geometry, storage.size()?)?;
        check_last_is_whole(storage.as_ref(), geometry, segments)?;
        let root = read_root(storage.as_ref(), last, false, Root::decode)?;
        let root = root.map_or_else(Root::default, |(root, _)| root);
        root.needed
            .check_within(storage.as_ref(), geometry, segments)?;
        let log = open_log(&storage, geometry, options)?;
        log.segments().begin_adoption(segments as u32);
        root.needed.adopt(&log)?;
        // Numbers that are new begin a chunk: what is left of the last one is free when that is read.
        let given_out = root.pages.next_multiple_of(CHUNK as u32);
        let shape = last.shape;
        let space = Space::new(Arc::clone(&log), shape.units(), given_out);
        for (number, chunk) in root.chunks.iter().enumerate() {
            if chunk.len == 0 {
                space.room().give_chunk((number * CHUNK) as u32);
            }
        }
        for part in &root.bitmaps {
            let seed = bitmap_seed(geometry.salt);
            let bytes = read_extent(storage.as_ref(), *part, seed, "a bitmap of the checkpoint")?;
            space.room().adopt(&bytes, segments)?;
        }
        let prior = recover::prior(last, &log)?;
        let found = log.recover(last.start, prior, &mut |address, frame| {
            if is_known(frame.header.kind) {
                return Ok(());
            }
            Err(log.unknown_kind(address, frame.header.kind))
        })?;
        found.end_after(prior, storage.as_ref())?;
        for damage in damaged_slots::<Super>(storage.as_ref())? {
            tracing::warn!(%damage, "a superblock slot is written again");
        }
        let keep = || {
            let sizes = space.room().sizes();
            let frames = frames_of(options.cache, shape).into();
            let cache = (frames, shape.units().into(), 0);
            let dirty = may_be_dirty(&sizes, cache, geometry.segment_size());
            let chunks = root.chunks.len() as u64;
            log.segments()
                .keep(reserve(&log, &sizes, (dirty, 0), chunks));
            log.segments().finish_adoption()
        };
        let next = recover::resume(&found_super, &log, (prior, &found), keep)?;
        let start = last.start;
        let mut superblock = found_super.clone();
        superblock.replace(&log, next)?;
        let core = build_in(log, space, superblock, &root, options)?;
        core.replay_journal(start, found.end)?;
        if !core.log.is_refused() {
            core.keep_for_checkpoint();
            Core::unless_full(core.clean_for_readers())?;
        }
        Self::start(core)
    }

    fn start(core: Core) -> Result<Self> {
        core.keep_for_checkpoint();
        let has_worker = core.options.background;
        let core = Handle::start(core, has_worker, background::start)?;
        Ok(Self { core })
    }

    /// Closes the file: everything is durable afterwards, and the next open replays nothing. One of up to 256 MiB in which much is free
    /// is cut, as by [`compact`](Self::compact), whose leaves stay as they are. Dropping does the same, but can only trace an error.
    pub fn close(mut self) -> Result<()> {
        self.core.close()
    }
}

impl Closing for Core {
    fn is_open(&self) -> bool {
        self.checkpoint.lock().committed.superblock.payload.open
    }

    fn close(&self) -> Result<()> {
        if self.log.is_refused() {
            // No checkpoint can be made, so the journal stays what the next open replays.
            return self.log.sync_now();
        }
        self.log.healthy()?;
        // What cannot be merged stays in the journal.
        let _merged = self.merged_but(is_damage_or_full)?;
        match self.checkpoint() {
            // A full device: the next open reads a longer journal.
            Err(error) if error.kind() == Kind::Full => {}
            other => {
                other?;
                self.shorten()?;
            }
        }
        let mut state = self.checkpoint.lock();
        self.log.sync_now()?;
        state.committed.close(&self.log)?;
        self.log.segments().trim()
    }
}

/// Opens what is left of a damaged store, on a storage that is a copy of its own: to be read, and nothing else. What the journal has
/// after damage is done again as far as it verifies; `lose` is called with what does not. Errors: `Mismatch`, `Corrupted` if
/// superblock or root cannot be read; `Io`, `Full`.
pub(super) fn open_salvaged(
    storage: &Arc<dyn Storage>,
    lose: &mut dyn FnMut(String),
) -> Result<(Core, Orphans)> {
    let options = OpenOptions::new().background(false);
    let found_super = SuperblockPair::<Super>::read(storage.as_ref())?;
    let last = &found_super.payload;
    let geometry = last.geometry;
    let segments = segments_of(storage.as_ref(), geometry, storage.size()?)?;
    if let Err(error) = check_last_is_whole(storage.as_ref(), geometry, segments) {
        lose(error.without_remedy().to_string());
    }
    let root = read_root(storage.as_ref(), last, true, Root::decode)?;
    let root = root.map_or_else(Root::default, |(root, _)| root);
    storage.resize(geometry.offset_of(segments as u32))?;
    let log = open_log(storage, geometry, &options)?;
    log.segments().begin_adoption(segments as u32);
    for segment in &root.needed.log {
        // One that the storage does not have any more is damage of the journal.
        let _ = log.segments().adopt(*segment, Use::Log);
    }
    let prior = recover::prior(last, &log)?;
    let mut frames = Vec::new();
    let noted = RefCell::new(lose);
    let found = log.recover_past(
        last.start,
        prior,
        &mut |address, _| {
            frames.push(address);
            Ok(())
        },
        &mut |lost| {
            let what = format!("the journal at offset {}: {}", lost.offset, lost.what);
            (noted.borrow_mut())(what);
            Ok(())
        },
    );
    let lose = noted.into_inner();
    match found {
        Ok(found) if log.is_followed(found.end) => {
            let at = u64::from(found.end.offset().unwrap_or(0));
            lose(format!(
                "the journal ends at offset {}, as after a loss of power: what follows was not synced, and is not used",
                geometry.offset_of(found.end.segment()) + at
            ));
        }
        Ok(_) => {}
        Err(error) => lose(error.without_remedy().to_string()),
    }
    // All that was there may be needed: what is written goes after it.
    let units = found_super.payload.shape.units();
    let given_out = root.pages.next_multiple_of(CHUNK as u32);
    let space = Space::new(Arc::clone(&log), units, given_out);
    space.room().adopt_all_others(segments as u32);
    log.segments().finish_adoption()?;
    log.refuse();
    let checkpoint = last.start.position();
    let core = build_in(Arc::clone(&log), space, found_super, &root, &options)?;
    core.tree.nodes.unlogged.store(REPLAYED, Ordering::Relaxed);
    core.find_lost_chunks(root.chunks.len(), checkpoint, lose)?;
    let mut bytes = Vec::new();
    let mut orphans = Orphans::default();
    for address in frames {
        let replayed = log.copy_frame(address, &mut bytes).and_then(|frame| {
            let kind = frame.header.kind;
            let done = core.replay(kind, frame.key, frame.value);
            let is_record = core.limits.check(frame.key, frame.value).is_ok();
            let is_lost = is_record && done.as_ref().is_err_and(is_damage);
            orphans.note((kind, frame.key, frame.value), is_lost, core.tree.order);
            done.map_err(|error| {
                if kind.is_keyed() {
                    error.key(frame.key)
                } else {
                    error
                }
            })
        });
        match replayed {
            Err(error) if is_damage(&error) => lose(error.without_remedy().to_string()),
            replayed => replayed?,
        }
    }
    Ok((core, orphans))
}

/// Whether this version knows what a frame of this kind changes.
fn is_known(kind: FrameKind) -> bool {
    matches!(kind, PUT | REMOVE | CLEAR | REMOVE_RANGE | FrameKind::MARK)
}

fn build(
    log: Arc<Log>,
    superblock: SuperblockPair<Super>,
    root: &Root,
    options: &OpenOptions,
) -> Result<Core> {
    let units = superblock.payload.shape.units();
    let space = Space::new(Arc::clone(&log), units, root.pages);
    build_in(log, space, superblock, root, options)
}

fn build_in(
    log: Arc<Log>,
    space: Space,
    superblock: SuperblockPair<Super>,
    root: &Root,
    options: &OpenOptions,
) -> Result<Core> {
    let payload = &superblock.payload;
    let (order, epoch, count) = (payload.order, payload.epoch, payload.count);
    let shape = payload.shape;
    let table = PageTable::new(&root.chunks, shape.units())?;
    let nodes = PageCache::new(
        (Arc::clone(&log), epoch, order, shape),
        (space, table, count),
        options.cache,
    )?;
    let tree = Tree { order, nodes };
    if root.pages == 0 {
        let first = tree.nodes.take(())?;
        debug_assert_eq!(first.number, ROOT);
        tree.nodes.begin_root(&first);
        tree.node(first.frame).init(0, None, None);
    }
    let start = superblock.payload.start.position();
    let pieces = superblock.payload.root.into_iter().collect();
    Ok(Core {
        gate: Gate::new(log.domain().clone()),
        sums: Sums::new(),
        snapshots: Mutex::default(),
        checkpoint: Mutex::new(Checkpoint {
            committed: kernel::Committed::found(superblock, pieces),
            bitmaps: root.bitmaps.clone(),
            moment: root.moment,
            copied: root.copied.clone(),
            is_to_be_copied: false,
        }),
        compacting: Mutex::default(),
        known: Mutex::default(),
        replay_from: Mutex::new(start),
        moment: Mutex::new(root.moment),
        journal_from: AtomicU64::new(0),
        wake_at: AtomicU64::new(0),
        notify: Arc::default(),
        options: options.clone(),
        limits: match order {
            Order::Lexical => &super::LIMITS,
            _ => &super::OTHER_LIMITS,
        },
        tree,
        log,
    })
}

impl Core {
    /// Does again what the journal states from `start` to `end`.
    fn replay_journal(&self, start: End, end: End) -> Result<()> {
        let mut segments = self.log.segments().in_use(Use::Log);
        segments.retain(|s| (start.sequence()..=end.sequence()).contains(&s.sequence));
        segments.sort_unstable_by_key(|segment| segment.sequence);
        let pages = &self.tree.nodes;
        pages.unlogged.store(REPLAYED, Ordering::Relaxed);
        let mut bytes = 0;
        for segment in segments {
            let from = match start.offset() {
                Some(offset) if segment.sequence == start.sequence() => offset,
                None if segment.sequence == start.sequence() => continue,
                _ => FIRST_FRAME,
            };
            self.log.walk(segment.index, from, &mut |at, frame| {
                let is_after_end =
                    segment.sequence == end.sequence() && end.offset().is_some_and(|end| at >= end);
                if is_after_end {
                    return Ok(());
                }
                bytes += frame.len() as u64;
                self.log
                    .each_record(segment.index, at, frame, &mut |_, frame| match self
                        .replay_with_room(frame.header.kind, frame.key, frame.value)
                    {
                        // What could not be written is no damage of the record: it is still in the journal.
                        Err(error) if is_damage(&error) && !self.log.is_poisoned() => {
                            self.lose((frame.header.kind, frame.key), &error);
                            Ok(())
                        }
                        replayed => replayed,
                    })
            })?;
        }
        self.journal_from
            .store(0_u64.wrapping_sub(bytes), Ordering::Relaxed);
        pages.unlogged.store(0, Ordering::Release);
        Ok(())
    }

    /// As `replay`, also in a full store, where no checkpoint makes room meanwhile: a batch that wrote a list once writes it for each of its
    /// records now. What a record replaced is room at once; if that is scattered, the file grows beyond its capacity, by what removals and
    /// compacting give back.
    fn replay_with_room(&self, kind: FrameKind, key: &[u8], value: &[u8]) -> Result<()> {
        let segments = self.log.segments();
        if segments.is_full() && is_long(self.tree.order, key) {
            self.give_back_replaced();
        }
        let mut done = self.replay(kind, key, value);
        if is_full(&done) {
            self.give_back_replaced();
            done = self.replay(kind, key, value);
        }
        if is_full(&done) {
            segments.allow(FILE_MAX);
            done = self.replay(kind, key, value);
            segments.allow(self.options.capacity.min(FILE_MAX));
        }
        done
    }

    fn give_back_replaced(&self) {
        self.tree.nodes.space.room().reap_all();
        self.release_empty();
    }

    /// A record of the journal cannot be done again, as its page is damaged. Nothing is written any more: the next open finds all as
    /// it is.
    fn lose(&self, (kind, key): (FrameKind, &[u8]), error: &Error) {
        self.log.refuse();
        let damage = Damage {
            path: self.log.storage().path().to_path_buf(),
            offset: error.place().unwrap_or(0),
            len: UNIT,
            found: error.what().to_owned(),
            affects: if kind.is_keyed() {
                Affects::Record(key.to_vec())
            } else {
                Affects::Place
            },
        };
        tracing::warn!(%damage, "the file opens for reading only");
        let mut known = self.known.lock();
        if known.len() < KNOWN_MAX {
            known.push(damage);
        }
    }
}

fn open_log(
    storage: &Arc<dyn Storage>,
    geometry: Geometry,
    options: &OpenOptions,
) -> Result<Arc<Log>> {
    let there = 2 * storage.size()?.next_multiple_of(4096);
    let addresses = options.capacity.max(there.min(1 << 43));
    let map = storage.map(addresses.next_multiple_of(4096))?;
    // Pages are written next to the journal, and synced with it: by huge pages the system would write what lies between.
    map.advise_plain();
    let log = Log::new(Arc::clone(storage), map, geometry)?;
    log.segments().allow(options.capacity.min(FILE_MAX));
    Ok(Arc::new(log))
}

/// `Invalid` if a store of such segments and of this capacity takes no record.
fn check_holds(capacity: u64, geometry: Geometry) -> Result<()> {
    let least = geometry.offset_of(SEGMENTS_MIN as u32);
    if capacity >= least {
        return Ok(());
    }
    Err(Error::new(
        Kind::Invalid,
        "the capacity is too small for a tree file of these segments",
    )
    .found(
        format!("{capacity} bytes"),
        format!("at least {least} bytes"),
    ))
}

fn check_creation(options: &CreateOptions) -> Result<()> {
    let size = options.segment_size;
    let is_size = size.is_power_of_two() && SHIFTS.contains(&size.trailing_zeros());
    if size != 0 && !is_size {
        return Err(Error::new(
            Kind::Invalid,
            "the segment size is no power of two from 64 KiB to 64 MiB",
        )
        .found(size, "65536, 131072, .., 67108864"));
    }
    check_shape(options)?;
    check_opening(&options.opening)
}

/// `Invalid` for pages that there are not.
fn check_shape(options: &CreateOptions) -> Result<PageShape> {
    PageShape::new(options.page_size, options.compression).ok_or_else(|| {
        let what = "a tree file has no such pages";
        let found = format!(
            "pages of {} bytes, compression {}",
            options.page_size,
            options.compression.word()
        );
        let expected = "4096, 8192 or 16384 bytes; 8192 or 16384 with compression";
        Error::new(Kind::Invalid, what).found(found, expected)
    })
}

/// `Mismatch` if another order is expected.
fn check_order(options: &OpenOptions, order: Order) -> Result<()> {
    match options.expected_order {
        Some(expected) if expected != order => {
            let error = Error::new(Kind::Mismatch, "the file is in another order");
            Err(error.found(order.name(), expected.name()))
        }
        _ => Ok(()),
    }
}

fn check_opening(options: &OpenOptions) -> Result<()> {
    crate::worker::check_interval(options.sync_interval)?;
    check_size(options.cache)?;
    // Of any number of bytes: only what is mapped has whole pages.
    check_capacity((options.capacity & !4095).max(4096))
}
