//! Creating, opening and closing a sorted file that is edited.
//!
//! Creating: an empty sorted file, whole, then the pending file. A crash in between leaves a sorted file, which opens. Opening: lock
//! the pending file, or make it if there is none; open the sorted file; see whether they belong together; replay; resume the log.
//!
//! With B the sorted file, P the pending one, and each known by its identity:
//!
//! | P states that all before its place S is in B | else: B contains edits of P up to Q | verdict |
//! |---|---|---|
//! | yes | | replay from S |
//! | no | Q is S or later: P was not trimmed after a merge | replay from Q |
//! | no | Q is before S | refused: edits in between are gone, B is an older copy |
//! | no | none | refused: the edits are of another file |
//!
//! Damage of the pending log is an error, as its recovery gives it; the sorted file stays readable. Nothing of either is changed then.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::edit::EDIT_BYTES;
use super::layers::{Layer, PendingEdit, View};
use super::layout::{
    ADD, CLEAR, INSERT, PUT, PendingSuper, REMOVE, REVERT, are_same, check_reducer,
};
use super::merge::Merging;
use super::{Core, EditOptions, Reducing, SkipDb};
use crate::counter::Counter;
use crate::engine::Reader as _;
use crate::epoch::Published;
use crate::error::{Error, Kind, Result, size};
use crate::explore::Mutex;
use crate::format::frame::Frame;
use crate::io::file::Files;
use crate::io::{Access, Directory, Storage, create_whole};
use crate::kernel::{Closing, Committed, Handle, SuperblockPair, recover};
use crate::log::manifest::{check_last_is_whole, segments_of};
use crate::log::recover::{Prior, Recovered};
use crate::log::{Address, End, Geometry, Log, LogPosition};
use crate::record::gate::Gate;
use crate::record::skip::layout::Super;
use crate::record::skip::reader::SkipReader;
use crate::record::skip::reduce::Reducer;
use crate::record::skip::writer::Writer;

/// Least memory of pending edits.
const MEMORY_MIN: u64 = 4 << 10;
/// Addresses of the pending file besides those of its memory, and of what it has: of the longest records, and of edits that could not be
/// merged.
const ADDRESSES: u64 = 64 << 30;
/// Into how many segments the memory of pending edits is divided, and the sizes to choose from for them.
const SEGMENTS: u64 = 16;
const SIZE_MIN: u64 = 4 << 10;
const SIZE_MAX: u64 = 1 << 20;

impl SkipDb {
    /// Makes a sorted file without a record, and its pending file. `Invalid` if there is something of these names, or an option is out
    /// of range; `Full`, `Io`. Costs two syncs of files and two of the folder.
    pub fn create(path: impl AsRef<Path>, options: &EditOptions) -> Result<Self> {
        let (directory, name) = Files::of(path.as_ref());
        Self::create_in(Box::new(directory), name, options)
    }

    /// As [`create`](Self::create), in any directory.
    pub fn create_in(
        directory: Box<dyn Directory>,
        name: &Path,
        options: &EditOptions,
    ) -> Result<Self> {
        create(directory, name, Reducer::Last, options)
    }

    /// Opens a sorted file for edits, with those that are pending; after a crash, recovers. A file whose keys may repeat is read once, to
    /// see that none does.
    ///
    /// Errors: `Locked` if it is open for edits; `Mismatch` if it is no sorted file, or the pending edits are of another file or another
    /// reducer; `Invalid` if keys repeat, or an option is out of range; `Corrupted` if the pending file is damaged, and then the sorted
    /// file stays readable; `Full`, `Io`.
    pub fn open(path: impl AsRef<Path>, options: &EditOptions) -> Result<Self> {
        let (directory, name) = Files::of(path.as_ref());
        Self::open_in(Box::new(directory), name, options)
    }

    /// As [`open`](Self::open), in any directory.
    pub fn open_in(
        directory: Box<dyn Directory>,
        name: &Path,
        options: &EditOptions,
    ) -> Result<Self> {
        open(directory, name, Reducer::Last, options)
    }
}

impl SkipDb<Reducing> {
    /// As [`SkipDb::create`], of a store that reduces. `Invalid` for a reducer under which a value would depend on when edits are merged:
    /// `Second`, `All`, or a function.
    pub fn create_reducing(
        path: impl AsRef<Path>,
        reducer: Reducer,
        options: &EditOptions,
    ) -> Result<Self> {
        let (directory, name) = Files::of(path.as_ref());
        create(Box::new(directory), name, reducer, options)
    }

    /// As [`create_reducing`](Self::create_reducing), in any directory.
    pub fn create_reducing_in(
        directory: Box<dyn Directory>,
        name: &Path,
        reducer: Reducer,
        options: &EditOptions,
    ) -> Result<Self> {
        create(directory, name, reducer, options)
    }

    /// As [`SkipDb::open`], of a store that reduces.
    pub fn open_reducing(
        path: impl AsRef<Path>,
        reducer: Reducer,
        options: &EditOptions,
    ) -> Result<Self> {
        let (directory, name) = Files::of(path.as_ref());
        open(Box::new(directory), name, reducer, options)
    }

    /// As [`open_reducing`](Self::open_reducing), in any directory.
    pub fn open_reducing_in(
        directory: Box<dyn Directory>,
        name: &Path,
        reducer: Reducer,
        options: &EditOptions,
    ) -> Result<Self> {
        open(directory, name, reducer, options)
    }
}

fn create<K>(
    directory: Box<dyn Directory>,
    name: &Path,
    reducer: Reducer,
    options: &EditOptions,
) -> Result<SkipDb<K>> {
    check(&reducer, options, name)?;
    let pending = pending_of(name);
    if directory.exists(&pending)? {
        return Err(
            Error::new(Kind::Invalid, "there are pending edits of this name")
                .at(&pending)
                .remedy("move that file away, or choose another name"),
        );
    }
    create_whole(&*directory, name, |storage| {
        Writer::new(storage, options.order)?.finish()
    })?;
    open(directory, name, reducer, options)
}

fn open<K>(
    directory: Box<dyn Directory>,
    name: &Path,
    reducer: Reducer,
    options: &EditOptions,
) -> Result<SkipDb<K>> {
    check(&reducer, options, name)?;
    let core = open_core(directory, name, reducer, options)?;
    Ok(SkipDb {
        core: Handle::idle(core),
        kind: std::marker::PhantomData,
    })
}

fn check(reducer: &Reducer, options: &EditOptions, name: &Path) -> Result<()> {
    check_reducer(reducer).map_err(|error| error.at(name))?;
    if options.memory < MEMORY_MIN {
        let least = format!("{} or more", size(MEMORY_MIN));
        return Err(
            Error::new(Kind::Invalid, "too little memory for pending edits")
                .at(name)
                .found(size(options.memory), least)
                .remedy("give it more memory"),
        );
    }
    Ok(())
}

/// The name of the pending file.
pub(super) fn pending_of(name: &Path) -> PathBuf {
    let mut pending = name.as_os_str().to_owned();
    pending.push(".pending");
    pending.into()
}

fn open_core(
    directory: Box<dyn Directory>,
    name: &Path,
    reducer: Reducer,
    options: &EditOptions,
) -> Result<Core> {
    let pending = pending_of(name);
    let storage = if directory.exists(&pending)? {
        directory.open(&pending, Access::Write)?
    } else {
        let base = SkipReader::open_on(directory.open(name, Access::Read)?)?;
        let identity = base.blocks.top.identity;
        create_whole(&*directory, &pending, |storage| {
            create_pending(storage, identity, reducer.clone(), options)?;
            Ok(Arc::clone(storage))
        })?
    };
    // Who edits holds the pending file: until here another store may have replaced the sorted one.
    let base = SkipReader::open_on(directory.open(name, Access::Read)?)?;
    let found_super = SuperblockPair::<PendingSuper>::read(storage.as_ref())?;
    let last = &found_super.payload;
    let path = base.blocks.storage.path().to_path_buf();
    let from = replay_from(&base.blocks.top, last)
        .map_err(|error| error.at(storage.path()).remedy(remedy(&path)))?;
    if !are_same(&last.reducer, &reducer) {
        return Err(Error::new(
            Kind::Mismatch,
            "the pending edits are under another reducer",
        )
        .at(storage.path())
        .found(last.reducer.name(), reducer.name())
        .remedy("open it under that reducer"));
    }
    check_distinct(&base)?;
    let segments = segments_of(storage.as_ref(), last.geometry, storage.size()?)?;
    check_last_is_whole(storage.as_ref(), last.geometry, segments)?;
    let log = open_log(&storage, last.geometry, options)?;
    log.segments().begin_adoption(segments as u32);
    let mut prior = recover::prior(last, &log)?;
    // The sorted file got its name after a sync of the log.
    prior.durable = prior.durable.max(from);
    let replay = Replay::new(base, reducer)?;
    let damaged = |error: Error| match error.kind() {
        Kind::Corrupted => error.remedy(remedy(&path)),
        _ => error,
    };
    let replayed = replay.run(&log, last.start, (prior, from));
    let (replay, found) = replayed.map_err(damaged)?;
    found.end_after(prior, storage.as_ref()).map_err(damaged)?;
    let finish = || log.segments().finish_adoption();
    let next = recover::resume(&found_super, &log, (prior, &found), finish)?;
    let identity = next.identity;
    let mut committed = Committed::found(found_super, Vec::new());
    committed.superblock.replace(&log, next)?;
    let Replay {
        view,
        reducer,
        count,
        bytes,
    } = replay;
    Ok(Core {
        name: name.to_path_buf(),
        path,
        reducer,
        options: *options,
        identity,
        view: Published::new(log.domain().clone(), view),
        gate: Gate::new(log.domain().clone()),
        count: Counter::new(count)?,
        pending: AtomicU64::new(bytes),
        retry_at: AtomicU64::new(0),
        merging: Mutex::new(Merging::new(committed)),
        directory,
        log,
    })
}

pub(super) fn remedy(path: &Path) -> String {
    format!(
        "{} itself stays readable; to give the pending edits up, remove this file",
        path.display()
    )
}

pub(super) fn open_log(
    storage: &Arc<dyn Storage>,
    geometry: Geometry,
    options: &EditOptions,
) -> Result<Log> {
    let memory = options.memory.min(1 << 40);
    let capacity = ADDRESSES + (4 * memory).next_multiple_of(4096);
    let there = storage.size()?.next_multiple_of(4096);
    let map = storage.map(capacity.max(2 * there))?;
    let log = Log::new(Arc::clone(storage), map, geometry)?;
    log.segments().allow(capacity.max(2 * there));
    Ok(log)
}

/// Writes a pending file without an edit, closed, and syncs it.
fn create_pending(
    storage: &Arc<dyn Storage>,
    base: u64,
    reducer: Reducer,
    options: &EditOptions,
) -> Result<()> {
    let segment_size = (options.memory / SEGMENTS).clamp(SIZE_MIN, SIZE_MAX);
    let identity = storage.entropy();
    let geometry = Geometry {
        shift: segment_size.ilog2(),
        salt: identity as u32,
    };
    storage.resize(geometry.offset_of(1))?;
    let log = open_log(storage, geometry, options)?;
    let mut manifest = recover::begin(&log)?;
    manifest.open = false;
    manifest.durable = log.end().position();
    let payload = PendingSuper {
        manifest,
        identity: identity.rotate_left(32) | 1,
        base,
        reducer,
    };
    SuperblockPair::create(storage.as_ref(), 0, payload)?;
    log.sync_now()
}

/// The position from which edits are to be replayed: see the module's table. `Mismatch` if the files do not belong together.
pub(super) fn replay_from(base: &Super, pending: &PendingSuper) -> Result<LogPosition> {
    let start = pending.start.position();
    if pending.base == base.identity {
        return Ok(start);
    }
    let contained = base.contained;
    match contained.filter(|contained| contained.pending == pending.identity) {
        Some(contained) if contained.until >= start => Ok(contained.until),
        Some(contained) => Err(Error::new(
            Kind::Mismatch,
            "edits between the sorted file and its pending ones are gone: it is an older copy",
        )
        .found(
            format!("a file of {}", contained.until),
            format!("one of {start} or later"),
        )),
        None => Err(Error::new(
            Kind::Mismatch,
            "the pending edits are those of another sorted file",
        )
        .found(
            format!("file {:016x}", base.identity),
            format!("file {:016x}", pending.base),
        )),
    }
}

/// `Invalid` if a key has more than one record.
fn check_distinct(base: &SkipReader) -> Result<()> {
    if !base.may_repeat() || base.blocks.top.contained.is_some() {
        return Ok(());
    }
    let mut last: Option<Vec<u8>> = None;
    let mut repeated = None;
    base.scan(None, &mut |key, _| {
        if last.as_deref() == Some(key) {
            repeated = last.take();
            return std::ops::ControlFlow::Break(());
        }
        let own = last.get_or_insert_default();
        own.clear();
        own.extend_from_slice(key);
        std::ops::ControlFlow::Continue(())
    })?;
    match repeated {
        None => Ok(()),
        Some(key) => Err(Error::new(
            Kind::Invalid,
            "a file in which keys repeat cannot be edited",
        )
        .at(base.blocks.storage.path())
        .key(&key)
        .remedy(
            "build another with a reducer that leaves one value: `azekura skip merge NEW-FILE FILE`",
        )),
    }
}

/// What the log makes of a sorted file.
pub(super) struct Replay {
    pub(super) view: View,
    pub(super) reducer: Reducer,
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl Replay {
    pub(super) fn new(base: SkipReader, reducer: Reducer) -> Result<Self> {
        let count = base.count();
        let active = Layer::new(base.order(), false)?;
        Ok(Self {
            view: View {
                base: Arc::new(base),
                frozen: None,
                active,
            },
            reducer,
            count,
            bytes: 0,
        })
    }

    /// Replays a log from `start`, and of that the edits from this position on; where it ends.
    pub(super) fn run(
        mut self,
        log: &Log,
        start: End,
        (prior, from): (Prior, LogPosition),
    ) -> Result<(Self, Recovered)> {
        let found = log.recover(start, prior, &mut |address, frame| {
            let position = log.position(address);
            if position.is_some_and(|position| position < from) {
                return Ok(());
            }
            self.apply(log, address, &frame)
        })?;
        Ok((self, found))
    }

    fn apply(&mut self, log: &Log, address: Address, frame: &Frame<'_>) -> Result<()> {
        let (key, value) = (frame.key, frame.value);
        self.bytes += (key.len() + value.len()) as u64 + EDIT_BYTES;
        match frame.header.kind {
            PUT => self.put(key, &PendingEdit::Replaces(value.into())),
            INSERT => {
                self.count += 1;
                self.put(key, &PendingEdit::Replaces(value.into()))
            }
            REMOVE => {
                self.count = self.count.saturating_sub(1);
                self.put(key, &PendingEdit::Removed)
            }
            ADD => self.add(key, value),
            CLEAR | REVERT => {
                let clears = frame.header.kind == CLEAR;
                self.view.active = Layer::new(self.view.base.order(), clears)?;
                self.count = if clears { 0 } else { self.view.base.count() };
                Ok(())
            }
            kind => Err(log.unknown_kind(address, kind)),
        }
    }

    fn put(&self, key: &[u8], entry: &PendingEdit<'_>) -> Result<()> {
        self.view.active.change(key, |_| entry.encode())
    }

    fn add(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let hides = self.view.active.hides;
        self.view.active.change(key, |below| {
            let below = below.or(hides.then_some(PendingEdit::Removed));
            let added = PendingEdit::Adds(value.into());
            added.over(below, &self.reducer)?.encode()
        })
    }
}

impl Closing for Core {
    fn is_open(&self) -> bool {
        self.merging.lock().committed.superblock.payload.open
    }

    fn close(&self) -> Result<()> {
        if self.log.is_refused() {
            return self.log.sync_now();
        }
        self.log.healthy()?;
        let mut merging = self.merging.lock();
        self.log.sync_now()?;
        merging.committed.close(&self.log)?;
        self.log.segments().trim()
    }
}
