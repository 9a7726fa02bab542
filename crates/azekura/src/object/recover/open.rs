//! Making, opening and closing a store.
//!
//! A file appears when it can be opened: it is made without a name. A device is taken over by writing its superblock last.
//! Opening reads superblock, root and the journal behind it; leaves and lists come in when they are needed, so it does not take
//! longer because there are more objects. What a crash left is found by `recover`; what is damaged, so that it cannot be opened for
//! writing, is opened by `degraded`. Closing makes a checkpoint.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::{Error, Kind, Result, size, sizes};
use crate::format::superblock::{self, Superblock};
use crate::io::counted::{Counted, Counts};
use crate::io::direct::DirectFile;
use crate::io::front::Front;
use crate::io::{Directory, Storage};
use crate::log::anchor::{Anchor, FIRST_SEQUENCE, segments_of};
use crate::log::{Geometry, Log, root};
use crate::object::checkpoint::images::{CorrectedBits, Images, to_repair};
use crate::object::checkpoint::label::write_label;
use crate::object::checkpoint::{Checkpoint, LEAST, leaf_image_max, least_journal};
use crate::object::index::Index;
use crate::object::layout::{self, DATA, ENGINE, ROOT_SEED, Record, Root, SHIFTS, Super};
use crate::object::place::extent::UNIT;
use crate::object::place::space::{Space, Unclaimed};
use crate::object::recover::replay::Replay;
use crate::object::write::small::Packs;
use crate::object::{Core, Options, Room, Store, checkpoint::keeper, recover::degraded};
use crate::weave::{Mutex, RwLock};

/// A journal has so many bytes at least, unless it is told otherwise.
pub(crate) const JOURNAL_MIN: u64 = 4 << 20;
/// And this part of the capacity.
pub(crate) const JOURNAL_PART: u64 = 64;
/// Sizes of allocation groups, unless told otherwise.
const GROUP_MIN: u64 = 64 << 20;
const GROUP_MAX: u64 = 1 << 30;
/// Bytes written at once where a new store is filled.
const FILL: usize = 4 << 20;
/// Bytes of the longest sectors of a device.
const ALIGNMENT: u32 = UNIT as u32;

impl Store {
    /// As [`create`](Self::create) of a file, in any directory; `progress` is told bytes filled, of how many.
    pub fn create_in(
        directory: &dyn Directory,
        name: &Path,
        options: &Options,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let storage = directory.create_nameless(name)?;
        storage.resize(options.capacity)?;
        let store = Self::create_on(Arc::clone(&storage), None, options, progress)?;
        storage.take_name()?;
        directory.sync()?;
        Ok(store)
    }

    /// Makes a store on storages of the size they have: the journal's, and the data's if that is another. What was there is
    /// lost. `progress` is told bytes filled, of how many.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the store keeps the storages"
    )]
    pub fn create_on(
        journal: Arc<dyn Storage>,
        data: Option<Arc<dyn Storage>>,
        options: &Options,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let plan = Plan::new(options, journal.as_ref(), data.as_deref())?;
        let target = data_of(&journal, data.as_ref(), options);
        check_sectors(target.as_ref(), ALIGNMENT)?;
        // Whatever it was: it is no store until the new superblock is there.
        journal.write_at(0, &vec![0; superblock::SIZE as usize])?;
        journal.sync()?;
        if options.fill {
            fill(target.as_ref(), &plan, progress)?;
        }
        let entropy = [
            journal.entropy(),
            journal.entropy().rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15,
        ];
        let mut identity = [0; 16];
        identity[..8].copy_from_slice(&entropy[0].to_le_bytes());
        identity[8..].copy_from_slice(&entropy[1].to_le_bytes());
        let geometry = Geometry {
            shift: plan.shift,
            salt: entropy[0] as u32,
        };
        let counts = Arc::default();
        let counted = Counted::over(Arc::clone(&journal), &counts);
        let front = Front::new(counted, plan.journal_size, 0)?;
        front.resize(geometry.offset_of(1))?;
        let log = open_log(front, geometry, plan.journal_size)?;
        log.segments().finish_adoption()?;
        log.begin(FIRST_SEQUENCE)?;
        let payload = Super {
            anchor: Anchor::first(&log),
            identity,
            journal_size: plan.journal_size,
            data_offset: plan.data_offset,
            units: plan.units,
            group_units: plan.group_units,
            alignment: ALIGNMENT,
            devices: if data.is_some() { 2 } else { 1 },
            sequence: 1,
            doubt: None,
            lost: Vec::new(),
        };
        if let Some(data) = &data {
            write_label(data.as_ref(), &payload)?;
        }
        let (core, _) = build(log, target, counts, options, &payload, None)?;
        core.flush_devices()?;
        let mut state = Checkpoint::default();
        core.write_super(&mut state, &payload)?;
        *core.checkpoint.lock() = state;
        core.keep_for_checkpoint(0);
        Self::start(core)
    }

    /// Opens the store on its storages. If its journal is damaged or cannot be read, for reading only
    /// ([`damage`](Self::damage), [`is_read_only`](Self::is_read_only)).
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the store keeps the storages"
    )]
    pub fn open_on(
        journal: Arc<dyn Storage>,
        data: Option<Arc<dyn Storage>>,
        options: &Options,
    ) -> Result<Self> {
        Self::open_or_degrade(&journal, data.as_ref(), options, &mut |_| {
            Ok(Arc::clone(&journal))
        })
    }

    /// Opens it on what `place` makes of its journal, or, if it is damaged, for reading.
    pub(crate) fn open_or_degrade(
        journal: &Arc<dyn Storage>,
        data: Option<&Arc<dyn Storage>>,
        options: &Options,
        place: &mut dyn FnMut(&Super) -> Result<Arc<dyn Storage>>,
    ) -> Result<Self> {
        let (sequence, last) = read_super(journal.as_ref())?;
        check_devices(journal.as_ref(), data.map(AsRef::as_ref), &last)?;
        let opened = read_root(journal.as_ref(), &last).and_then(|root| {
            degraded::probe(journal.as_ref(), &last, &root)?;
            let journal = place(&last)?;
            Self::open_at(&journal, data, options, (sequence, last.clone()), &root)
        });
        match opened {
            Err(error) if [Kind::Corrupted, Kind::Io].contains(&error.kind()) => {
                Self::open_damaged(journal, data, options, (sequence, last), error)
            }
            other => other,
        }
    }

    /// Opens it at this superblock and root.
    pub(crate) fn open_at(
        journal: &Arc<dyn Storage>,
        data: Option<&Arc<dyn Storage>>,
        options: &Options,
        at: (u64, Super),
        root: &Root,
    ) -> Result<Self> {
        Self::open_to_settle(journal, data, options, at, root).map(|(store, _)| store)
    }

    /// As [`open_at`](Self::open_at), for a repair, which settles the room before anything is changed.
    pub(crate) fn open_to_settle(
        journal: &Arc<dyn Storage>,
        data: Option<&Arc<dyn Storage>>,
        options: &Options,
        (sequence, mut last): (u64, Super),
        root: &Root,
    ) -> Result<(Self, Unclaimed)> {
        let geometry = last.geometry;
        let counts = Arc::default();
        let counted = Counted::over(Arc::clone(journal), &counts);
        let front = Front::new(counted, last.journal_size, last.journal_size)?;
        let segments = segments_of(front.as_ref(), geometry, last.journal_size)?;
        root.needed
            .check_within(front.as_ref(), geometry, segments)?;
        let log = open_log(front, geometry, last.journal_size)?;
        root.needed.adopt(&log)?;
        let target = data_of(journal, data, options);
        let trust = last.trust(&log);
        if last.open && !trust.trusted {
            journal.drop_cache()?;
        }
        let (core, unclaimed) = build(log, target, counts, options, &last, Some(root))?;
        let mut replay = Replay::new(root, last.open);
        replay.at_least(last.sequence);
        let found = core.log.recover(last.start, trust, &mut |address, frame| {
            let record = Record::decode(address, &frame).ok_or_else(|| {
                Error::new(
                    Kind::Corrupted,
                    "a record of the journal says nothing that is known",
                )
                .at(core.data.path())
                .offset(address.offset())
            })?;
            let at = core.log.position(address);
            let is_synced = at.is_some_and(|at| at < trust.durable);
            let is_doubted = at
                .zip(last.doubt)
                .is_some_and(|(at, (from, to))| from <= at && at < to);
            let doubted = is_doubted || !trust.trusted && !is_synced;
            core.replay(&mut replay, record, doubted)
        });
        let found = found.and_then(|found| {
            let end = found.end_behind(trust, core.log.storage().as_ref())?;
            Ok((found, end))
        });
        let (found, end) = found.map_err(|error| to_repair(error, journal.as_ref()))?;
        if let Some(stride) = replay.last_stride() {
            core.room.lock().space.go_on(stride);
        }
        // Of a store that was closed the checkpoint tells all.
        if last.open {
            core.scan_strides(&mut replay)?;
        }
        core.free_the_rest(&mut replay, &unclaimed)?;
        // It may be in the cache only, with its older slot, where the next one goes, the one the device has.
        core.write_slot(sequence, &last)?;
        core.keep_for_checkpoint(0);
        core.log.segments().finish_adoption()?;
        let found_open = last.open;
        last.go_on(&core.log, trust, &found)?;
        last.open = true;
        // None of it was needed.
        last.lost.clear();
        // What is not true is not believed later either, when all of the journal was synced.
        if replay.is_untrue() {
            let from = last.doubt.map_or(trust.durable, |(from, _)| from);
            last.doubt = Some((from, end));
        }
        last.boot_id = journal.boot_id();
        last.durable = trust.durable;
        last.next_sequence = core.log.next_sequence();
        core.log.set_durable(trust.durable);
        let mut state = Checkpoint {
            superblock: Some((sequence, last.clone())),
            images: root.images().chain(root.pieces.iter().copied()).collect(),
            ..Checkpoint::default()
        };
        core.write_super(&mut state, &last)?;
        *core.checkpoint.lock() = state;
        core.tell_found(&mut replay)?;
        // Room is free by what was found, which may be in caches only. What is put there must not come before it.
        if found_open {
            core.flush_devices()?;
        }
        let damage = replay.take_damage(&core);
        if !damage.is_empty() {
            let _first = core.flaws.set(degraded::Flaws {
                damage,
                ..degraded::Flaws::default()
            });
        }
        tracing::debug!(records = replay.records, found = replay.found, "opened");
        Ok((Self::start(core)?, unclaimed))
    }

    fn start(core: Core) -> Result<Self> {
        let core = Arc::new(core);
        let background = core.options.background;
        let keeper = background.then(|| keeper::start(&core)).transpose()?;
        Ok(Self { core, keeper })
    }

    /// Closes the store: everything is durable, and the next open replays nothing. Dropping does the same, but can only
    /// trace an error.
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

impl Drop for Store {
    fn drop(&mut self) {
        let is_open = |core: &Core| {
            let state = core.checkpoint.lock();
            state
                .superblock
                .as_ref()
                .is_some_and(|(_, last)| last.anchor.open)
        };
        if is_open(&self.core)
            && let Err(error) = self.shut()
        {
            tracing::error!(%error, "closing failed; the next open recovers");
        }
    }
}

impl Core {
    /// Of a store that nobody changes there is nothing to close.
    pub(crate) fn forget_to_close(&self) {
        if let Some((_, last)) = &mut self.checkpoint.lock().superblock {
            last.open = false;
        }
    }

    pub(crate) fn close(&self) -> Result<()> {
        if self.refuse_changes().is_err() {
            // There is nothing to be written.
            return Ok(());
        }
        self.log.healthy()?;
        self.make_checkpoint()
            .map_err(|error| self.of_journal(error))?;
        self.log.mend_headers();
        let mut state = self.checkpoint.lock();
        let Some((_, mut payload)) = state.superblock.clone() else {
            return Ok(());
        };
        payload.open = false;
        payload.durable = self.log.end().position();
        payload.next_sequence = self.log.next_sequence();
        self.write_super(&mut state, &payload)
    }
}

/// What a new store looks like.
struct Plan {
    journal_size: u64,
    shift: u32,
    data_offset: u64,
    units: u64,
    group_units: u32,
}

impl Plan {
    fn new(options: &Options, journal: &dyn Storage, data: Option<&dyn Storage>) -> Result<Self> {
        let invalid = |what: &str, at: &dyn Storage, found: String, expected: String| {
            let error = Error::new(Kind::Invalid, what).at(at.path());
            error.found(found, expected)
        };
        let data_size = data.map(Storage::size).transpose()?;
        let (device, journal_device) = (data.unwrap_or(journal), journal);
        let journal = journal.size()?;
        let whole = data_size.unwrap_or(journal);
        let journal_size = match (options.journal_size, data_size) {
            (Some(told), _) => told,
            (None, Some(_)) => journal,
            (None, None) => (journal / JOURNAL_PART).max(JOURNAL_MIN),
        };
        let Some(journal_size) = journal_size
            .checked_next_multiple_of(UNIT)
            .filter(|size| *size <= journal)
        else {
            let (found, most) = sizes(journal_size, journal);
            let error = invalid("the journal does not fit", journal_device, found, most);
            let least = size(
                Geometry {
                    shift: *SHIFTS.start(),
                    salt: 0,
                }
                .offset_of(LEAST),
            );
            return Err(error.remedy(format!(
                "make the store larger, or its journal smaller: --journal-size, {least} or more"
            )));
        };
        let shift = shift_of(journal_size);
        let data_offset = match data_size {
            Some(_) => superblock::SIZE,
            None => journal_size,
        };
        let units = whole.min(layout::PLACES_END).saturating_sub(data_offset) / UNIT;
        let group = options.group_size.unwrap_or_else(|| {
            let part = 1 << (whole / 16).max(1).ilog2();
            part.clamp(GROUP_MIN, GROUP_MAX)
        });
        if !group.is_power_of_two() || !(UNIT..=1 << 40).contains(&group) {
            let expected = "one of 4 KiB to 1 TiB".into();
            let found = format!("{}, {group} bytes", size(group));
            return Err(invalid(
                "a group is a power of two",
                device,
                found,
                expected,
            ));
        }
        let least = Geometry { shift, salt: 0 }.offset_of(LEAST);
        if journal_size < least {
            let (found, least) = sizes(journal_size, least);
            let least = format!("{least} or more");
            let error = invalid("the journal is too small", journal_device, found, least);
            return Err(error.remedy("make it larger: --journal-size"));
        }
        if units < 16 {
            let (found, least) = sizes(whole, data_offset + 16 * UNIT);
            let least = format!("{least} or more");
            let remedy = match data_size {
                Some(_) => "make it larger",
                None => "make it larger, or its journal smaller: --journal-size",
            };
            return Err(invalid("the store is too small", device, found, least).remedy(remedy));
        }
        let groups = units.div_ceil(group / UNIT);
        let least = least_journal_size(journal_size, groups);
        if journal_size < least {
            let (found, least) = sizes(journal_size, least);
            let found = format!("{found}, and {groups} groups of {}", size(group));
            let what = "the journal is too small for so many groups";
            let error = invalid(what, journal_device, found, format!("{least} or more"));
            return Err(error.remedy("make it larger: --journal-size, or the groups: --group-size"));
        }
        Ok(Self {
            journal_size,
            shift,
            data_offset,
            units,
            group_units: (group / UNIT) as u32,
        })
    }
}

/// A segment is a 64th of the journal, or as near to that as one may be.
fn shift_of(journal_size: u64) -> u32 {
    let part = (journal_size / 64).max(1).ilog2();
    part.clamp(*SHIFTS.start(), 20)
}

/// The least journal for so many groups, of those that are not smaller than this one.
fn least_journal_size(journal_size: u64, groups: u64) -> u64 {
    let mut size = journal_size;
    loop {
        // In longer segments a checkpoint takes more.
        let shift = shift_of(size);
        let least = least_journal(Geometry { shift, salt: 0 }, groups);
        if least <= size {
            return size;
        }
        size = least;
    }
}

/// Writes all of the data's room once.
fn fill(data: &dyn Storage, plan: &Plan, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let zeros = crate::io::aligned::AlignedBuf::zeroed(FILL, data.alignment())?;
    let total = plan.units * UNIT;
    let mut done = 0;
    while done < total {
        let len = (total - done).min(FILL as u64);
        data.write_at(plan.data_offset + done, &zeros[..len as usize])?;
        done += len;
        progress(done, total);
    }
    Ok(())
}

/// A unit is written alone: a longer sector would be read and written again with what stands beside it.
fn check_sectors(data: &dyn Storage, alignment: u32) -> Result<()> {
    let (found, most) = (data.alignment(), u64::from(alignment));
    if found > most {
        let what = "the device's sectors are longer than those of the store";
        return Err(Error::new(Kind::Mismatch, what)
            .at(data.path())
            .found(size(found), format!("at most {}", size(most)))
            .remedy("use a device with shorter ones; `azekura object copy` brings a store there"));
    }
    Ok(())
}

/// Where the data is written: past the page cache, if that is wanted and the file system has it.
pub(crate) fn data_of(
    journal: &Arc<dyn Storage>,
    data: Option<&Arc<dyn Storage>>,
    options: &Options,
) -> Arc<dyn Storage> {
    let storage = data.unwrap_or(journal);
    let direct = storage
        .as_file()
        .filter(|_| options.direct)
        .and_then(|file| DirectFile::beside(file).ok());
    match direct {
        Some(direct) => Arc::new(direct),
        None => Arc::clone(storage),
    }
}

pub(crate) fn open_log(front: Arc<Front>, geometry: Geometry, size: u64) -> Result<Log> {
    let map = front.map(size.next_multiple_of(4096))?;
    // Few pages are changed between two syncs.
    map.advise_plain();
    Log::new(front, map, geometry)
}

pub(crate) fn build(
    log: Log,
    data: Arc<dyn Storage>,
    counts: Arc<Counts>,
    options: &Options,
    payload: &Super,
    root: Option<&Root>,
) -> Result<(Core, Unclaimed)> {
    check_sectors(data.as_ref(), payload.alignment)?;
    let storage = Arc::clone(log.storage());
    let salt = payload.geometry.salt;
    let corrected: Arc<CorrectedBits> = Arc::default();
    let images = || Images::new(&storage, salt, payload.units).correcting(&corrected);
    let (source, lists) = (images(), images());
    let told = root.filter(|_| payload.root.is_some());
    let (space, unclaimed) = Space::new(
        payload.units,
        payload.group_units,
        told.map(|root| &root.groups[..]),
        Box::new(lists),
    );
    let alignment = data.alignment();
    let leaves = told.map_or_else(Vec::new, |root| root.leaves.clone());
    let core = Core {
        log,
        data: Counted::over(data, &counts),
        counts,
        times: crate::object::times::Clocks::new()?,
        salt,
        data_offset: payload.data_offset,
        group_units: payload.group_units,
        devices: payload.devices,
        options: options.clone(),
        index: Index::new(leaves, Box::new(source), leaf_image_max(payload.geometry)),
        turns: Arc::default(),
        buffers: Arc::new(crate::object::place::buffers::Buffers::new(alignment)),
        flights: crate::object::place::long::Flights::default(),
        commit: crate::object::write::commit::Commit::default(),
        bell: Arc::default(),
        gate: RwLock::new(()),
        batch: Mutex::default(),
        room: Mutex::new(Room {
            space,
            sequence: payload.sequence,
            under_way: std::collections::BTreeMap::new(),
            packs: told.map_or_else(Packs::default, |root| Packs::of(&root.packs)),
        }),
        checkpoint: Mutex::default(),
        flaws: std::sync::OnceLock::new(),
        corrected,
        unsynced: AtomicU64::new(0),
    };
    Ok((core, unclaimed))
}

/// The slots of a superblock or label, each read by itself.
pub(crate) struct Slots {
    /// Both; zeros where one cannot be read.
    pub(crate) head: Vec<u8>,
    /// Which cannot be read, and why.
    pub(crate) refused: Vec<(u64, Error)>,
}

impl Slots {
    pub(crate) fn read(storage: &dyn Storage) -> Result<Self> {
        let size = storage.size()?.min(superblock::SIZE);
        let mut head = vec![0; size as usize];
        let mut refused = Vec::new();
        for (slot, bytes) in head.chunks_mut(superblock::SLOT_SIZE as usize).enumerate() {
            let offset = slot as u64 * superblock::SLOT_SIZE;
            if let Err(error) = storage.read_at(offset, bytes) {
                bytes.fill(0);
                refused.push((offset, error.at(storage.path()).offset(offset)));
            }
        }
        Ok(Self { head, refused })
    }

    /// The newest whole one, of this engine.
    pub(crate) fn current(mut self, engine: [u8; 8]) -> Result<Superblock> {
        match (Superblock::current(&self.head, &engine), self.refused.pop()) {
            (Ok(block), _) => Ok(block),
            // Nobody knows what it would have said.
            (Err(_), Some((_, refused))) => Err(refused),
            (Err(error), None) => Err(error),
        }
    }
}

/// The newest valid superblock: its sequence and payload.
pub(crate) fn read_super(storage: &dyn Storage) -> Result<(u64, Super)> {
    let slots = Slots::read(storage)?;
    let head = slots.head.clone();
    let block = slots
        .current(ENGINE)
        .map_err(|error| other_place(error, &head).at(storage.path()))?;
    let payload = Super::decode(&block.payload).ok_or_else(|| {
        Error::new(Kind::Corrupted, "the superblock holds impossible values")
            .at(storage.path())
            .offset(block.slot_offset())
            .remedy("restore a backup")
    })?;
    Ok((block.sequence, payload))
}

/// What to do about a place that begins with `head`, and not with what was looked for.
pub(crate) fn other_place(error: Error, head: &[u8]) -> Error {
    let is = |engine| Superblock::current(head, engine).is_ok();
    if error.kind() == Kind::Io {
        error.remedy("neither superblock can be used: restore a backup")
    } else if head.is_empty() {
        error.remedy("remove it, and make a store there with `azekura object create`")
    } else if head.iter().all(|byte| *byte == 0) {
        error.remedy(
            "it begins with zeros: if a store was there, both its superblocks are lost: restore a backup; else check the path, or \
             make a store there with `azekura object create`",
        )
    } else if is(b"hash\0\0\0\0") {
        error.remedy("it holds records: `azekura get` and its like are for these")
    } else if is(&DATA) {
        error.remedy(
            "it is the data of a store: give the store's journal first, and this with --data",
        )
    } else if is(&ENGINE) {
        error.remedy("it is a store, or the journal of one: give it first, and no other, or its data with --data")
    } else {
        error
    }
}

/// As `other_place`, of the data of a store: what was there may be told again.
fn other_data(error: Error, head: &[u8]) -> Error {
    if head.iter().any(|byte| *byte != 0) {
        return other_place(error, head);
    }
    error.remedy("check the path; if it is the store's, its label is lost: run `azekura object repair` with --data")
}

/// The root of the last checkpoint; of a store without one, an empty one.
pub(crate) fn read_root(storage: &dyn Storage, last: &Super) -> Result<Root> {
    let Some(extent) = last.anchor.root else {
        return Ok(Root {
            sequence: last.sequence,
            ..Root::default()
        });
    };
    let seed = last.geometry.salt ^ ROOT_SEED;
    let mut read = root::Read::from(extent);
    read.read(storage, seed, false)
        .map_err(|error| to_repair(error, storage))?;
    let root = Root::decode(&read.bytes)
        .filter(|root| root.is_within(last.units, last.group_units))
        .ok_or_else(|| {
            Error::new(
                Kind::Corrupted,
                "the root of the checkpoint holds impossible values",
            )
            .at(storage.path())
            .offset(extent.offset)
            .remedy("run `azekura object repair`")
        })?;
    Ok(Root {
        pieces: read.pieces,
        ..root
    })
}

/// Whether the storages are those of the store, and long enough.
fn check_devices(journal: &dyn Storage, data: Option<&dyn Storage>, last: &Super) -> Result<()> {
    let device = match (data, last.devices) {
        (None, 1) => journal,
        (Some(data), 2) => {
            let slots = Slots::read(data)?;
            let head = slots.head.clone();
            let label = slots
                .current(DATA)
                .map_err(|error| other_data(error, &head).at(data.path()))?;
            let of = layout::decode_label(&label.payload).map(|(identity, _)| identity);
            if of != Some(last.identity) {
                return Err(
                    Error::new(Kind::Mismatch, "the data belongs to another store")
                        .at(data.path())
                        .remedy("give the journal and the data of one store"),
                );
            }
            data
        }
        (found, devices) => {
            let found = 1 + u8::from(found.is_some());
            let remedy = if devices == 2 {
                "give the device of its data, too: --data"
            } else {
                "leave the other device out: no --data"
            };
            return Err(
                Error::new(Kind::Mismatch, "the store has another number of devices")
                    .at(journal.path())
                    .found(found, devices)
                    .remedy(remedy),
            );
        }
    };
    let there = device.size()?;
    let needed = last.offset_of(last.units);
    let journal_size = journal.size()?;
    for (device, there, needed) in [
        (device, there, needed),
        (journal, journal_size, last.journal_size),
    ] {
        if there < needed {
            let (found, expected) = sizes(there, needed);
            return Err(
                Error::new(Kind::Corrupted, "the device is shorter than the store")
                    .at(device.path())
                    .found(found, expected)
                    .remedy("restore its size, or run `azekura object repair`"),
            );
        }
    }
    Ok(())
}
