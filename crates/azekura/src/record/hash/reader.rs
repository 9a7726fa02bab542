//! Reading a file that another process may be writing.
//!
//! A reader has an index of its own. It begins with the last checkpoint and what the log states after it,
//! and before each answer looks whether the log has grown - the word at its end - and follows. That word is
//! believed as long as there is no newer superblock: a segment is reused only after one, and is zeros then.
//! So a read that begins after a write was acknowledged, in whatever process, sees it - once every write that
//! has its room in the log before it is there as well. What another thread of the writer is still copying
//! hides from a reader what comes after, which is a moment, or as long as a large value takes. A value
//! is copied, verified in the copy, and lent from there. A lookup takes no lock and stores to no line that
//! other threads look at, unless there is something to follow.
//!
//! The writer does not know its readers. When it reuses a segment that a reader still points into, the
//! reader's copy fails its checksum, which covers the segment's sequence; the reader then opens the newest
//! checkpoint and answers from there. Nothing it does is seen by the writer, but that the file is not cut
//! short while it has it open. A checksum that fails under an unchanged superblock is damage.
//!
//! After a power cut that no writer has recovered yet, it shows what a writer's open would recover. It
//! never writes.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use rapidhash::v3::RapidSecrets;

use super::check::Checked;
use super::layout::{self, Root, Super};
use super::lost_root::{Rest, is_damage};
use super::open::read_root_within;
use super::read::{check_led, could_mean, led_astray, passing};
use super::recover::{Known, Replay};
use super::{Compression, CreateOptions, HashDb, promise, value};
use crate::damage::Damage;
use crate::engine::{
    Bookmark, CheckReport, Damaged, Durability, Engine, Persistent, Promise, Reader, Stats, Visit,
};
use crate::epoch::{Domain, Published};
use crate::error::{Error, Kind, Result};
use crate::explore::Mutex;
use crate::format::frame::{Frame, FrameKind};
use crate::format::superblock;
use crate::index::hash::Hash;
use crate::index::{Blank, Index, Place};
use crate::io::file::File;
use crate::io::{Access, Storage};
use crate::kernel::SuperblockPair;
use crate::kernel::superblock::damaged_slots;
use crate::log::layout::LINK_OFFSET;
use crate::log::manifest::segments_of;
use crate::log::recover::Prior;
use crate::log::{Address, End, Log};
use crate::record::scan;

/// A hash file open for reading only, concurrently with at most one writer in this or another process.
///
/// If the writer is killed in the middle of a write, a reader that was open by then does not see what the writer's other
/// threads had acknowledged after it in the log, until a process opens the file for writing. A reader opened later does.
pub struct HashReader {
    storage: Arc<dyn Storage>,
    /// Replaced when the reader was left behind. Lookups borrow it under a pin; what takes longer, or calls
    /// the user's code, counts its reference, so that no pin is held for long.
    view: Published<Arc<View>>,
    /// Whether records in doubt are read.
    reads_doubtful: bool,
}

/// The state at some position of the log, moving forward.
struct View {
    log: Arc<Log>,
    index: Index,
    secrets: RapidSecrets,
    compression: Compression,
    /// The superblock it began with.
    sequence: u64,
    last: Super,
    root: Root,
    count: AtomicI64,
    /// The end of what was taken in, and how far the newest superblock lets what follows be believed. Taken in by one thread
    /// at a time.
    taken: Mutex<Taken>,
    /// The word to look at: not zero when there is more.
    watch: AtomicU64,
    /// What stood there when the file was opened, if no writer will publish anything there: of damage, and after a close.
    damaged_end: u64,
    /// The newest superblock whose start of replay is not past the end: before another is written, what
    /// the end stands in is not reused. Written under `end`.
    seen: AtomicU64,
    /// As the file was found.
    prior: Prior,
    known: Arc<Known>,
}

/// How far the log was taken in.
#[derive(Clone, Copy, Debug)]
struct Taken {
    end: End,
    /// Of what follows.
    prior: Prior,
}

/// How far what comes past the end of a log may be believed, which only a writer writes. After a close it is none: the writer
/// that appends there has written a superblock before, which is read first.
fn after(prior: Prior) -> Prior {
    Prior {
        live: true,
        shared: true,
        ..prior
    }
}

/// How often a reader that is left behind tries again before it states that it cannot keep up.
const TRIES: usize = 100;

impl HashReader {
    /// Opens a file for reading. `Mismatch` if it is not a hash file of a known version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_on(Arc::new(File::open(path.as_ref(), Access::Read)?))
    }

    /// Opens the store on a storage for reading.
    pub fn open_on(storage: Arc<dyn Storage>) -> Result<Self> {
        let view = Published::new(Domain::new(), Arc::new(View::open_newest(&storage)?));
        Ok(Self {
            storage,
            view,
            reads_doubtful: false,
        })
    }

    /// Of a damaged file, reads also the records of which a newer version may be lost, as with
    /// `OpenOptions::reads_doubtful`. [`damage`](Self::damage) states what is damaged.
    #[must_use]
    pub fn reading_doubtful(mut self) -> Self {
        self.reads_doubtful = true;
        self
    }

    /// What is known to be damaged; empty if nothing is.
    pub fn damage(&self) -> Vec<Damage> {
        let view = self.view();
        let mut damage = view.known.list();
        damage.extend(view.log.unreadable());
        damage.extend(damaged_slots::<Super>(self.storage.as_ref()).unwrap_or_default());
        damage
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(self.view.get(&self.view.pin()))
    }

    /// Properties of the file, by name, in a fixed order.
    pub fn inspect(&self) -> Vec<(&'static str, String)> {
        let view = self.view();
        let geometry = view.log.geometry();
        let allocated = self.storage.allocated().unwrap_or(0);
        vec![
            ("path", self.storage.path().display().to_string()),
            ("engine", "hash".into()),
            ("format_version", superblock::VERSION.to_string()),
            ("count", view.count().to_string()),
            ("file_bytes", self.storage.size().unwrap_or(0).to_string()),
            ("allocated_bytes", allocated.to_string()),
            ("log_bytes", view.log.segments().sizes().log.to_string()),
            ("segment_size", geometry.segment_size().to_string()),
            ("compression", view.compression.word().into()),
            ("epoch", view.last.epoch.to_string()),
            ("closed_cleanly", (!view.last.open).to_string()),
            ("has_writer", self.storage.has_writer().to_string()),
            ("position", view.taken.lock().end.position().to_string()),
            ("durable", view.prior.durable.to_string()),
            ("replay_from", view.last.start.position().to_string()),
            ("damaged_places", self.damage().len().to_string()),
        ]
    }

    /// Answers from a view that is up to date, from a newer one if the writer has reused what it pointed to. Where damage keeps
    /// a view from taking in what was written, a new one does it: its opening knows what the damage costs, which is a part of
    /// the index or a record, and leaves the others.
    fn answer<T>(&self, mut from: impl FnMut(&View) -> Result<T>) -> Result<T> {
        let mut is_renewed = false;
        for _ in 0..TRIES {
            let view = self.view();
            let (error, renews) = match view.take_in(&self.storage) {
                Ok(()) => match from(&view) {
                    Err(error) if error.kind() == Kind::Corrupted => (error, false),
                    other => return other,
                },
                Err(error) if is_damage(&error) => (error, !is_renewed),
                Err(error) => return Err(error),
            };
            if !renews && !view.is_stale(&self.storage) {
                return Err(error);
            }
            is_renewed |= renews;
            // Of many threads that are left behind at once, one opens the newest for all.
            self.view.replace(|current| {
                Arc::ptr_eq(current, &view)
                    .then(|| View::open_newest(&self.storage).map(Arc::new))
                    .transpose()
            })?;
        }
        Err(self.left_behind())
    }

    /// As `answer`, from a view of its own: other threads' reads bring the shared one up to date meanwhile.
    fn answer_from_one_moment<T>(&self, mut from: impl FnMut(&View) -> Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            let view = View::open_newest(&self.storage)?;
            match from(&view) {
                Err(error) if error.kind() == Kind::Corrupted && view.is_stale(&self.storage) => {}
                other => return other,
            }
        }
        Err(self.left_behind())
    }

    #[cold]
    fn left_behind(&self) -> Error {
        Error::new(
            Kind::Locked,
            "the writer reuses space faster than it can be read",
        )
        .at(self.storage.path())
        .remedy("read through the writer's process, or try again")
    }
}

impl View {
    /// The newest checkpoint, and the log after it; again if it changes meanwhile.
    fn open_newest(storage: &Arc<dyn Storage>) -> Result<Self> {
        let mut tries = 0;
        loop {
            let SuperblockPair { sequence, payload } = SuperblockPair::read(storage.as_ref())?;
            let opened = Self::open(storage, sequence, payload);
            tries += 1;
            match opened {
                // What the writer reused meanwhile looks like damage.
                Ok(view)
                    if view.known.is_damaged()
                        && tries < TRIES
                        && SuperblockPair::<Super>::read(storage.as_ref())?.sequence
                            != sequence => {}
                Err(error) if error.kind() == Kind::Corrupted && tries < TRIES => {
                    if SuperblockPair::<Super>::read(storage.as_ref())?.sequence == sequence {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    fn open(storage: &Arc<dyn Storage>, sequence: u64, last: Super) -> Result<Self> {
        let geometry = last.geometry;
        let (root, log, prior, replay, found) = loop {
            let size = storage.size()?;
            let segments = segments_of(storage.as_ref(), geometry, size)?;
            let rest = match read_root_within(storage.as_ref(), &last, segments) {
                Ok(root) => Ok(root),
                // What the writer reused meanwhile looks like damage.
                Err(error)
                    if is_damage(&error)
                        && SuperblockPair::<Super>::read(storage.as_ref())?.sequence
                            == sequence =>
                {
                    tracing::warn!(%error, "the index is rebuilt from the log");
                    Err(Rest::read(storage.as_ref(), &last))
                }
                Err(error) => return Err(error),
            };
            let map = storage.map(size.next_multiple_of(4096).max(1 << 40))?;
            let log = Arc::new(Log::new(Arc::clone(storage), map, geometry)?);
            let mut replay = Replay::new(RapidSecrets::seed(last.hash_seed));
            let root = match rest {
                Ok(root) => {
                    root.needed.adopt(&log)?;
                    root
                }
                Err(rest) => {
                    rest.replay(&log, &last, segments, &mut replay)?;
                    rest.root
                }
            };
            // A writer may come at any moment, and write where this reads.
            let prior = Prior {
                shared: true,
                ..last.prior(&log)
            };
            let found = replay.run(&log, &last, prior)?;
            // If one came meanwhile, what was taken for a hole may be a frame that it is about to publish.
            if prior.live || !storage.has_writer() {
                break (root, log, prior, replay, found);
            }
        };
        let count = last.count.cast_signed() + replay.count;
        let end = found.end;
        let cold = replay.into_source(Arc::clone(&log), geometry.salt, root.images.clone());
        let mut view = Self {
            known: cold.known(),
            index: Index::unloaded(log.domain(), Arc::new(cold))?,
            secrets: RapidSecrets::seed(last.hash_seed),
            compression: last.compression,
            sequence,
            root,
            count: AtomicI64::new(count),
            taken: Mutex::new(Taken {
                end,
                prior: after(prior),
            }),
            watch: AtomicU64::new(0),
            damaged_end: 0,
            seen: AtomicU64::new(sequence),
            prior,
            last,
            log,
        };
        view.watch_for(end);
        // What a writer publishes there is never taken for damage: it refuses such a file, or continues elsewhere.
        if (view.known.is_in_doubt() || prior.closed) && !prior.live {
            view.damaged_end = view.watched();
        }
        Ok(view)
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed).max(0).cast_unsigned()
    }

    fn is_stale(&self, storage: &Arc<dyn Storage>) -> bool {
        SuperblockPair::<Super>::read(storage.as_ref()).is_ok_and(|of| of.sequence != self.sequence)
    }

    fn watch_for(&self, end: End) {
        let offset = self.log.geometry().offset_of(end.segment());
        let word = offset + end.offset().map_or(LINK_OFFSET, u64::from);
        // Where a damaged file states that its log begins may be beyond all that a file has: nothing comes there, and the
        // file's first word stays as it is.
        let within = word < self.log.map().capacity();
        self.watch
            .store(if within { word } else { 0 }, Ordering::Release);
    }

    /// Whether the log states nothing past the end.
    ///
    /// The word at the end comes first: if it is zero because its segment is being reused, the superblock that
    /// allowed it was there before.
    #[inline]
    fn is_current(&self) -> bool {
        let word = self.watched();
        (word == 0 || word == self.damaged_end) && self.is_newest()
    }

    #[inline]
    fn watched(&self) -> u64 {
        self.log.map().load_u64(self.watch.load(Ordering::Acquire))
    }

    /// Whether there is no superblock after the one last seen: the higher of the two slots' sequences, as
    /// they stand there.
    #[inline]
    fn is_newest(&self) -> bool {
        let map = self.log.map();
        let slot =
            |number| map.load_u64(number * superblock::SLOT_SIZE + superblock::SEQUENCE_OFFSET);
        slot(0).max(slot(1)) == self.seen.load(Ordering::Acquire)
    }

    /// Takes in what the log states past the end. `Corrupted` also if the end was left behind.
    #[inline]
    fn take_in(&self, storage: &Arc<dyn Storage>) -> Result<()> {
        if self.is_current() {
            return Ok(());
        }
        self.follow(storage)
    }

    #[cold]
    fn follow(&self, storage: &Arc<dyn Storage>) -> Result<()> {
        let mut taken = self.taken.lock();
        for _ in 0..TRIES {
            let newer = if self.is_newest() {
                None
            } else {
                Some(SuperblockPair::<Super>::read(storage.as_ref())?)
            };
            if let Some(newer) = &newer {
                taken.prior = after(newer.payload.prior(&self.log));
            }
            self.walk(&mut taken)?;
            if let Some(SuperblockPair { sequence, payload }) = newer {
                if taken.end.sequence() < payload.start.sequence() {
                    return Err(Error::new(
                        Kind::Corrupted,
                        "the reader is behind: the segment where it stopped was used again",
                    )
                    .at(storage.path())
                    .remedy("open the reader again"));
                }
                self.seen.store(sequence, Ordering::Release);
            }
            // What a checkpoint gave up while it was walked may have looked like the end.
            if self.is_newest() {
                return Ok(());
            }
        }
        // Checkpoints do not come that fast: one slot is damaged, and the other is what there is.
        Ok(())
    }

    fn walk(&self, taken: &mut Taken) -> Result<()> {
        let found = self
            .log
            .recover(taken.end, taken.prior, &mut |address, frame| {
                self.apply(address, &frame)
            })?;
        taken.end = found.end;
        self.watch_for(taken.end);
        Ok(())
    }

    /// One record of the log onto the index.
    fn apply(&self, address: Address, frame: &Frame<'_>) -> Result<()> {
        let kind = frame.header.kind;
        layout::check_kind(&self.log, address, kind)?;
        if kind == FrameKind::MARK {
            return Ok(());
        }
        if kind == layout::CLEAR {
            self.index.clear(Blank::new()?, None);
            self.count.store(0, Ordering::Relaxed);
            return Ok(());
        }
        let hash = Hash::of_key(frame.key, &self.secrets);
        let pin = self.index.pin();
        let mut buf = Vec::new();
        let mut is_key = |place| {
            let found = self.log.copy_frame(Address(place), &mut buf)?;
            Ok((found.key == frame.key).then_some(()))
        };
        if kind == layout::REMOVE {
            let locked = self.index.lock(&pin, hash)?;
            if let Some((slot, ())) = locked.find(is_key)? {
                locked.remove(slot);
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
            return Ok(());
        }
        let (mut locked, found) = self
            .index
            .lock_to_put(&pin, hash, |locked| locked.find(&mut is_key))?;
        if let Some((slot, ())) = found {
            locked.replace(slot, address.0);
        } else {
            locked.fill(address.0);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn get(&self, key: &[u8], reads_doubtful: bool) -> Result<Option<Vec<u8>>> {
        let pin = self.index.pin();
        let hash = Hash::of_key(key, &self.secrets);
        let mut buf = Vec::new();
        let mut damaged = None;
        let found = self.index.find(&pin, hash, |place| {
            let address = Address(place);
            let frame = self.log.copy_frame(address, &mut buf).map(Some);
            let Some(frame) = passing(frame, &mut damaged)? else {
                return Ok(None);
            };
            if self.known.is_read_only() && !could_mean(&self.secrets, key, &frame) {
                return passing(Err(led_astray(&self.log, address, key)), &mut damaged);
            }
            if frame.key != key {
                return Ok(None);
            }
            let value = value::decode(self.compression, &frame)?.into_owned();
            Ok(Some((address, value)))
        })?;
        if let (None, Some(error)) = (&found, damaged) {
            return Err(error);
        }
        if !reads_doubtful && self.known.is_in_doubt() {
            let at = found.as_ref().map(|(address, _)| *address);
            self.known.check_doubt(&self.log, (key, hash), at)?;
        }
        Ok(found.map(|(_, value)| value))
    }

    /// Scans without taking anything in: the state of one moment, as long as its segments are not reused.
    fn scan(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
        reads_doubtful: bool,
    ) -> Result<Option<Bookmark>> {
        let asks_doubt = self.known.is_in_doubt() && !reads_doubtful;
        if asks_doubt {
            // What is absent from the scan may be lost.
            damaged(self.known.doubt_error(&self.log))?;
        }
        let lend = |place: Place, visit: &mut scan::Lend<'_>| {
            let mut buf = Vec::new();
            let frame = self.log.copy_frame(Address(place), &mut buf)?;
            if self.known.is_read_only() {
                check_led(&self.log, &self.index, &self.secrets, place, &frame)?;
            }
            if asks_doubt {
                let of = (frame.key, Hash::of_key(frame.key, &self.secrets));
                self.known
                    .check_doubt(&self.log, of, Some(Address(place)))?;
            }
            if !layout::is_record(frame.header.kind) {
                return Ok(());
            }
            visit(frame.key, &value::decode(self.compression, &frame)?)
        };
        let scan = scan::Scan {
            index: &self.index,
            secrets: &self.secrets,
            prefetch: &|_| (),
            lend: &lend,
        };
        scan.run(from, visit, damaged)
    }
}

impl Reader for HashReader {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let at_once = {
            let pin = self.view.pin();
            let view = self.view.get(&pin);
            // An error is looked at again, without the pin: it may mean only that the view is too old.
            let get = || view.get(key, self.reads_doubtful).ok();
            view.is_current().then(get).flatten()
        };
        let found = match at_once {
            Some(found) => found,
            None => self.answer(|view| view.get(key, self.reads_doubtful))?,
        };
        visit(found.as_deref());
        Ok(())
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let mut at = from.cloned();
        let mut stopped = false;
        loop {
            let shown = self.answer(|view| {
                // The place is kept record by record, so that a newer view continues after it.
                let mut after = None;
                let visit = &mut |key: &[u8], value: &[u8]| {
                    after = Some(scan::after(Hash::of_key(key, &view.secrets), key));
                    let flow = visit(key, value);
                    stopped = flow.is_break();
                    flow
                };
                // What a view that is too old takes for damage is looked at again in a newer one.
                let damaged = &mut |error| {
                    if view.is_stale(&self.storage) {
                        return Err(error);
                    }
                    damaged(error)
                };
                let end = view.scan(at.as_ref(), visit, damaged, self.reads_doubtful);
                if after.is_some() {
                    at = after;
                }
                end
            })?;
            if stopped || shown.is_none() {
                return Ok(shown);
            }
        }
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        scan::bookmark(Hash::of_key(key, &self.view().secrets), key)
    }

    fn count(&self) -> u64 {
        self.answer(|view| Ok(view.count())).unwrap_or(0)
    }

    fn stats(&self) -> Stats {
        let view = self.view();
        Stats {
            count: view.count(),
            file_bytes: self.storage.size().unwrap_or(0),
            memory_bytes: view.index.memory_bytes(),
            ..Stats::default()
        }
    }

    fn promise(&self) -> Promise {
        promise(Durability::Process)
    }

    fn as_persistent(&self) -> Option<&dyn Persistent> {
        Some(self)
    }
}

impl Persistent for HashReader {
    /// Nothing: a reader has written nothing.
    fn sync(&self, _durability: Durability) -> Result<()> {
        Ok(())
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let mut tries = 0;
        loop {
            let view = View::open_newest(&self.storage)?;
            let checked = Checked {
                log: &view.log,
                index: &view.index,
                secrets: &view.secrets,
                root: view.root.pieces.clone(),
                images: view.root.images.clone(),
                end: &|| view.taken.lock().end,
                durable: view.prior.durable,
                known: &view.known,
                count: &|| view.count(),
                is_shared: true,
            };
            let report = checked.check(progress);
            tries += 1;
            // What a writer reused meanwhile is not damage.
            let sound = report.as_ref().is_ok_and(CheckReport::is_sound);
            if sound || tries == TRIES || !view.is_stale(&self.storage) {
                return report;
            }
        }
    }

    /// A copy of the state of one moment, record by record; again from a newer one if the writer reuses what it
    /// needs.
    fn copy_to(&self, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let options = {
            let view = self.view();
            CreateOptions::new()
                .compression(view.compression)
                .segment_size(view.log.geometry().segment_size())
        };
        HashDb::create_whole(target, &options, |copy| {
            self.answer_from_one_moment(|view| {
                copy.clear()?;
                let (mut done, total) = (0, view.count());
                let mut failed = None;
                view.scan(
                    None,
                    &mut |key, value| {
                        done += 1;
                        if done % 4096 == 0 {
                            progress(done, total);
                        }
                        match copy.put(key, value) {
                            Ok(()) => ControlFlow::Continue(()),
                            Err(error) => {
                                failed = Some(error);
                                ControlFlow::Break(())
                            }
                        }
                    },
                    &mut Err,
                    false,
                )?;
                failed.map_or(Ok(()), Err)
            })
        })
    }

    fn path(&self) -> &Path {
        self.storage.path()
    }

    fn damage(&self) -> Vec<Damage> {
        HashReader::damage(self)
    }
}
