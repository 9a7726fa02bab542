//! Repair of a store in place, whose checkpoint or journal is damaged.
//!
//! The data stays where it is. The metadata is rebuilt from what is whole:
//!
//! | damaged | rebuilt from | what is unknown |
//! |---|---|---|
//! | one superblock | the other | nothing |
//! | one bit of the journal, or of an image | its checksum (`correct`) | nothing |
//! | lists of free space | the index | nothing |
//! | leaves of the index | extents that lie in no free space, by a scan of the data | nothing, if the lists are whole |
//! | leaves and lists, or the root | extents, by a scan | whether an object was removed before the checkpoint: it may come back |
//! | the journal | extents, by a scan | its records: small objects may be lost or older, removals and batches undone; so each object without a later record is in doubt |
//! | an extent | nothing | its object is lost: reading it stays an error |
//! | both labels of a second device | the superblock, if an object on the device proves that it is the store's | nothing |
//! | a small object's frame in the journal | nothing | the object is lost, and removed |
//!
//! Packed extents are rebuilt from the small objects that stand together. Objects in doubt and losses are counted and listed
//! (`report`). An extent counts only with its id, place and put: no object gets another's bytes. Of extents of one object the latest
//! counts, unless the journal records otherwise.
//!
//! A crash during a repair leaves the damaged store, to be repaired again: the superblock is written last, and what a second repair
//! needs is not overwritten before. Where the root is lost, these are also old segments of the journal with small objects; a journal
//! without room for them and for what is rebuilt loses these objects in a crash. Without both superblocks no repair is possible:
//! without the salt no checksum can be verified.
//!
//! A device without a label may belong to someone else, and one with something else in its place is refused. So a repair is tried in
//! memory first: only if an object is found on the device where the store has one, the device gets a label, and is written to.
//!
//! Unreadable places of the journal are lost. Zeros are written there, so that they can be read and mapped again; before that, a
//! superblock names them, so that an open or a repair after a crash treats them as lost. The data device is written to only where
//! space is free.
//!
//! At the end all objects are read: those that do not verify are reported, and stay.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Kind, Result, size, sizes};
use crate::format::superblock;
use crate::io::Storage;
use crate::io::counted::Counted;
use crate::io::front::Front;
use crate::io::overlay::{Overlay, read_around};
use crate::kernel::salvage::headed;
use crate::kernel::{Closing, SuperblockPair};
use crate::log::manifest::segments_of;
use crate::log::{Log, Segment, Use};
use crate::object::care::check::{CheckReport, Finding};
use crate::object::care::correct::with_corrected;
use crate::object::care::free_space::units_of;
use crate::object::care::report::{Doubt, Doubted, Repaired};
use crate::object::care::salvage::{Facts, Scanned, Small};
use crate::object::checkpoint::images::Images;
use crate::object::checkpoint::images::read_root;
use crate::object::checkpoint::label::{Label, check_label, write_label};
use crate::object::checkpoint::root::{PackedExtent, Root};
use crate::object::checkpoint::superblock::Super;
use crate::object::id::ObjectId;
use crate::object::index::{self, EXTENT, Entry, JOURNAL, PACKED};
use crate::object::place::extent::{self, BATCHED, Header, UNIT};
use crate::object::place::space::{self, GroupState, Unclaimed};
use crate::object::place::span::Span;
use crate::object::recover::build::{build, data_of, open_log};
use crate::object::recover::probe::is_live;
use crate::object::recover::replay::skip_sequences;
use crate::object::{Core, OpenOptions, Store};

/// Last epoch of a store that is repaired: a later one could not be opened often enough.
const EPOCHS_END: u32 = u32::MAX - (1 << 16);

impl Store {
    /// Makes a store with a damaged checkpoint or journal openable again, and leaves it closed. `progress` gets the units scanned,
    /// and then the objects verified, each with their total. Costs a read of all objects, and of all data where the index is
    /// damaged.
    ///
    /// Errors: `Mismatch` or `Corrupted` if neither superblock can be read, or the devices are not of one store.
    pub fn repair_on(
        journal: &Arc<dyn Storage>,
        data: Option<&Arc<dyn Storage>>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Repaired> {
        let mut found_super = SuperblockPair::<Super>::read(journal.as_ref())?;
        let last = found_super.payload.clone();
        if last.epoch.max((last.next_sequence >> 32) as u32) > EPOCHS_END {
            return Err(
                Error::new(Kind::Corrupted, "the epochs of the journal are used up")
                    .at(journal.path())
                    .found(last.epoch, format!("at most {EPOCHS_END}")),
            );
        }
        let mut report = Repaired::default();
        let label = check_label(data.map(AsRef::as_ref), &last, &mut report)?;
        if let Some(data) = data.filter(|_| label != Label::Ours) {
            // It may be anything: nothing of it is overwritten.
            let (journal, refused) = Overlay::of_readable(Arc::clone(journal), last.journal_size)?;
            let journal: Arc<dyn Storage> = journal;
            let lost = last.lost_with(&refused);
            let (kept, _) = Overlay::of_readable(Arc::clone(data), superblock::SIZE)?;
            let kept: Arc<dyn Storage> = kept;
            let (trial, at) = (Some(label), found_super.clone());
            let found = report.clone();
            Self::repair_at(&journal, Some(&kept), at, found, &lost, trial, progress)?;
            write_label(data.as_ref(), &last)?;
        }
        let lost = write_unreadable(journal, &mut found_super, &mut report)?;
        Self::repair_at(journal, data, found_super, report, &lost, None, progress)
    }

    /// Repairs the store of this superblock, where the contents of `lost` in the journal are unknown; a `trial` only finds out
    /// whether the data device belongs to the store.
    fn repair_at(
        journal: &Arc<dyn Storage>,
        data: Option<&Arc<dyn Storage>>,
        mut found_super: SuperblockPair<Super>,
        mut report: Repaired,
        lost: &[Range<u64>],
        trial: Option<Label>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Repaired> {
        let last = &found_super.payload;
        let root = with_corrected(journal.as_ref(), last, || read_root(journal.as_ref(), last));
        let root = root.map(|(root, corrected)| {
            report.add_corrected(journal.as_ref(), corrected);
            root
        });
        let shrunk = fit(journal, data, &mut found_super.payload, &mut report)?;
        let last = &found_super.payload;
        let options = OpenOptions::new()
            .background(false)
            // Through the overlay, which keeps a trial in memory.
            .direct(trial.is_none());
        let images = Images::new(journal, last.geometry.salt, last.units);
        if let Ok(root) = &root {
            let leaves = || match lost_leaves(&images, root).pop() {
                None => Ok(()),
                Some((_, error)) => Err(error),
            };
            if let Ok(((), corrected)) = with_corrected(journal.as_ref(), last, leaves) {
                report.add_corrected(journal.as_ref(), corrected);
            }
        }
        if let Ok(root) = &root
            && !shrunk
            && !is_live(journal.as_ref(), last, lost)
            && lost_leaves(&images, root).is_empty()
        {
            // All objects are known, so the rest is free.
            let mut root = root.clone();
            root.groups.fill(GroupState::default());
            let opened = with_corrected(journal.as_ref(), last, || {
                Self::open_for_repair(journal, data, &options, &found_super, &root)
            });
            match opened {
                Ok(((store, unclaimed), corrected)) => {
                    report.add_corrected(journal.as_ref(), corrected);
                    for damage in store.damage() {
                        let follows = damage.affects.to_string();
                        report.lose_more(&damage.path, damage.offset, damage.found, &follows);
                    }
                    return store
                        .core
                        .finish_repair(report, &unclaimed, trial, progress);
                }
                Err(error) if [Kind::Corrupted, Kind::Io].contains(&error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        let known = Known::read(&images, last, root, &mut report);
        let mut rebuild = |old_segments| {
            let (mut report, at) = (report.clone(), found_super.clone());
            let (core, unclaimed) = rebuilt(
                journal,
                data,
                &options,
                at,
                (&known, old_segments),
                lost,
                |core, facts| core.salvage(&known, facts, &mut report, progress),
            )?;
            core.finish_repair(report, &unclaimed, trial, progress)
        };
        match rebuild(OldSegments::Kept) {
            Err(error) if error.kind() == Kind::Full => {
                // Once a superblock is written, what it needs is not the old one's.
                let newest = SuperblockPair::<Super>::read(journal.as_ref())?.sequence;
                if newest == found_super.sequence {
                    rebuild(OldSegments::Reused)
                } else {
                    Err(error)
                }
            }
            repaired => repaired,
        }
    }
}

/// Bytes of a page: unreadable places are overwritten in whole pages.
const PAGE: u64 = 4096;

/// Writes zeros over unreadable places of the journal, so that the device can read them again; returns the lost places, of now
/// and of a repair that did not end. A superblock names these places before, so that after a crash the zeros are not taken for
/// space that was never used; in memory the payload stays as it was.
fn write_unreadable(
    journal: &Arc<dyn Storage>,
    found_super: &mut SuperblockPair<Super>,
    report: &mut Repaired,
) -> Result<Vec<Range<u64>>> {
    let last = &found_super.payload;
    let there = journal.size()?.min(last.journal_size);
    let refused = read_around(journal.as_ref(), 0..there, &mut |_, _| Ok(()))?;
    let lost = last.lost_with(&refused);
    if !refused.is_empty() {
        let mut noted = last.clone();
        noted.note_lost(&lost);
        // The newest may be in the cache only, with its older slot, where the next one goes, the one the device has.
        found_super.write_to(journal.as_ref())?;
        found_super.sequence += 1;
        let noted = SuperblockPair {
            sequence: found_super.sequence,
            payload: noted,
        };
        noted.write_to(journal.as_ref())?;
    }
    for range in &refused {
        let pages = range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE).min(there);
        let mut bytes = vec![0; (pages.end - pages.start) as usize];
        read_around(journal.as_ref(), pages.clone(), &mut |offset, read| {
            let at = (offset - pages.start) as usize;
            if let Some(bytes) = bytes.get_mut(at..at + read.len()) {
                bytes.copy_from_slice(read);
            }
            Ok(())
        })?;
        journal.write_at(pages.start, &bytes)?;
        report.corrected.push(format!(
            "{} bytes of {} at offset {:#x} could not be read, and are zeros now",
            range.end - range.start,
            journal.path().display(),
            range.start
        ));
    }
    if !refused.is_empty() {
        journal.sync()?;
    }
    Ok(lost)
}

/// Shrinks the store to its device, if that is shorter; returns whether it was.
fn fit(
    journal: &Arc<dyn Storage>,
    data: Option<&Arc<dyn Storage>>,
    last: &mut Super,
    report: &mut Repaired,
) -> Result<bool> {
    let there = journal.size()?;
    if there < last.journal_size {
        return Err(
            Error::new(Kind::Corrupted, "the device is shorter than the journal")
                .at(journal.path())
                .found(size(there), size(last.journal_size))
                .remedy("restore its size"),
        );
    }
    let device = data.unwrap_or(journal);
    let there = device.size()?;
    let units = there.saturating_sub(last.data_offset) / UNIT;
    if units == 0 {
        return Err(
            Error::new(Kind::Corrupted, "the device ends before the data begins")
                .at(device.path())
                .found(size(there), format!("more than {}", size(last.data_offset)))
                .remedy("restore its size"),
        );
    }
    if units >= last.units {
        return Ok(false);
    }
    let (found, expected) = sizes(there, last.offset_of(last.units));
    let what = format!("the device ends after {found} of {expected}");
    report.lose_more(
        device.path(),
        there,
        what,
        "what was stored past it is lost",
    );
    last.units = units;
    Ok(true)
}

/// The unreadable leaves of a root.
fn lost_leaves(images: &Images, root: &Root) -> Vec<(usize, Error)> {
    let mut lost = Vec::new();
    for (at, (first, image)) in root.leaves.iter().enumerate() {
        let end = root.leaves.get(at + 1).map(|(first, _)| *first);
        if let Some(image) = image
            && let Err(error) = index::Source::load(images, image, *first, end)
        {
            lost.push((at, error));
        }
    }
    lost
}

/// The known state at the moment of the checkpoint.
pub(crate) struct Known {
    /// Its lost leaves have no image, and its lists are omitted.
    root: Root,
    /// By leaf.
    is_lost: Vec<bool>,
    /// Space that held no object, sorted.
    dead: Vec<Span>,
    /// Whether a group's free space is known, by number.
    listed: Vec<bool>,
    group_units: u64,
}

impl Known {
    /// What `root`, if it was read, and its images state.
    pub(crate) fn read(
        images: &Images,
        last: &Super,
        root: Result<Root>,
        report: &mut Repaired,
    ) -> Self {
        let mut root = root.unwrap_or_else(|error| {
            report.lose_to(images.path(), error);
            Root {
                sequence: last.sequence,
                ..Root::default()
            }
        });
        let count = last.units.div_ceil(u64::from(last.group_units)) as usize;
        let mut known = Self {
            is_lost: vec![
                root.leaves.is_empty() && last.manifest.root.is_some();
                root.leaves.len().max(1)
            ],
            dead: root.unlisted.clone(),
            listed: vec![false; count],
            group_units: u64::from(last.group_units),
            root: Root::default(),
        };
        for (at, error) in lost_leaves(images, &root) {
            report.lose_to(images.path(), error);
            known.is_lost[at] = true;
            root.leaves[at].1 = None;
        }
        known
            .dead
            .extend(root.in_progress.iter().map(|put| put.span));
        for (group, state) in root.groups.iter().enumerate().take(count) {
            known.read_group(images, last, group, *state, report);
        }
        known.dead.sort_unstable();
        root.groups = vec![GroupState::default(); count];
        known.root = root;
        known
    }

    fn read_group(
        &mut self,
        images: &Images,
        last: &Super,
        group: usize,
        state: GroupState,
        report: &mut Repaired,
    ) {
        let first = group as u64 * self.group_units;
        let limit = (last.units - first).min(self.group_units) as u32;
        let Some(image) = state.image else {
            let span = Span {
                unit: first,
                units: limit.min(state.free),
            };
            self.dead.extend((span.units > 0).then_some(span));
            self.listed[group] = true;
            return;
        };
        match space::Source::runs(images, group as u32, image, limit) {
            Ok(runs) => {
                self.listed[group] = true;
                let spans = runs.as_slice().iter().map(|run| run.span(first));
                self.dead.extend(spans);
            }
            Err(error) => report.lose_to(images.path(), error),
        }
    }

    /// Whether the leaf of this object is lost.
    fn is_lost(&self, id: ObjectId) -> bool {
        let leaves = &self.root.leaves;
        let at = leaves.partition_point(|(first, _)| *first <= id);
        self.is_lost
            .get(at.saturating_sub(1))
            .is_none_or(|lost| *lost)
    }

    /// Whether an extent belonged to an object at the checkpoint; `None`: unknown.
    fn was_live(&self, entry: Entry) -> Option<bool> {
        let span = units_of(entry);
        if entry.kind == PACKED {
            let has_root = !self.root.leaves.is_empty();
            let holds = |packed: &&PackedExtent| {
                packed.span.unit <= span.unit && span.end() <= packed.span.end()
            };
            return match self.root.packed_extents.iter().find(holds) {
                Some(packed) => (packed.live == packed.count).then_some(true),
                None => has_root.then_some(false),
            };
        }
        let at = self.dead.partition_point(|dead| dead.end() <= span.unit);
        if self.dead.get(at).is_some_and(|dead| dead.unit < span.end()) {
            return Some(false);
        }
        let groups = span.unit / self.group_units..=(span.end() - 1) / self.group_units;
        let mut groups = groups.map(|group| self.listed.get(group as usize) == Some(&true));
        groups.all(|is_listed| is_listed).then_some(true)
    }

    /// Whether a put with this sequence began after the checkpoint, or was in progress then.
    fn is_after_checkpoint(&self, sequence: u64) -> bool {
        let mut in_progress = self.root.in_progress.iter();
        sequence >= self.root.sequence || in_progress.any(|put| put.sequence == sequence)
    }
}

/// The state of an object that counts.
#[derive(Clone, Copy)]
struct Holds {
    sequence: u64,
    entry: Option<Entry>,
    doubt: Option<Doubt>,
}

/// What becomes of segments from before the checkpoint that have small objects, where no root states that they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldSegments {
    /// A second repair finds them.
    Kept,
    /// Their space is used.
    Reused,
}

/// Opens what is whole, lets `find` put the objects into it, and builds a store whose free space is still to be rebuilt. The
/// contents of `unreadable` are lost.
pub(crate) fn rebuilt(
    journal: &Arc<dyn Storage>,
    data: Option<&Arc<dyn Storage>>,
    options: &OpenOptions,
    mut superblock: SuperblockPair<Super>,
    (known, old_segments): (&Known, OldSegments),
    unreadable: &[Range<u64>],
    find: impl FnOnce(&Core, &Facts) -> Result<()>,
) -> Result<(Core, Unclaimed)> {
    let last = &mut superblock.payload;
    let geometry = last.geometry;
    let journal_size = last.journal_size;
    let counts = Arc::default();
    let counted = Counted::over(Arc::clone(journal), &counts);
    let front = Front::new(counted, journal_size, journal_size)?;
    let count = segments_of(front.as_ref(), geometry, journal_size)?;
    let reader = open_log(Arc::clone(&front), geometry, journal_size)?;
    let mut found: Vec<Segment> = headed(count, |index| reader.header(index)).collect();
    found.sort_unstable_by_key(|segment| segment.sequence);
    let mut kept = known.root.needed.log.clone();
    kept.retain(|of| of.is_within(count));
    let facts = Facts::read(&reader, last, &kept, &found, unreadable);
    // What a second repair would need stays.
    let log = open_log(front, geometry, journal_size)?;
    let of_journal = reader.segments().in_use(Use::Log);
    let mut small: Vec<u64> = facts.small.values().map(|small| small.offset).collect();
    small.sort_unstable();
    let has_small = |of: &Segment| {
        let end = geometry.offset_of(of.index + of.units);
        let at = small.partition_point(|offset| *offset < geometry.offset_of(of.index));
        small.get(at).is_some_and(|offset| *offset < end)
    };
    let is_needed = |of: &&Segment| {
        !kept.is_empty()
            || of.sequence >= last.start.sequence()
            || old_segments == OldSegments::Kept && has_small(of)
    };
    keep(&log, known, of_journal.iter().filter(is_needed), count);
    drop(reader);
    let sequences = found
        .iter()
        .map(|segment| segment.sequence)
        .filter(|sequence| sequence >> 32 <= u64::from(EPOCHS_END));
    let newest = sequences
        .chain([last.next_sequence, last.start.sequence()])
        .max();
    last.epoch = last.epoch.max((newest.unwrap_or(0) >> 32) as u32) + 1;
    let target = data_of(journal, data, options);
    let (core, unclaimed) = build(log, target, counts, options, superblock, Some(&known.root))?;
    core.keep_for_checkpoint(0);
    core.log.segments().finish_adoption()?;
    let mut state = core.checkpoint.lock();
    let last = &mut state.committed.superblock.payload;
    core.log.begin(u64::from(last.epoch) << 32)?;
    last.open = true;
    last.boot_id = journal.boot_id();
    let latest = facts.next.max(last.sequence).max(known.root.sequence);
    drop(state);
    core.allocator.lock().sequence = skip_sequences(latest)?;
    find(&core, &facts)?;
    Ok((core, unclaimed))
}

/// Marks these segments as used in the log; those that overlap others, or lie outside, are damaged themselves.
fn keep<'s>(log: &Log, known: &Known, of_journal: impl Iterator<Item = &'s Segment>, count: u64) {
    for segment in of_journal {
        log.segments().adopt(*segment, Use::Log).ok();
    }
    for &(index, units) in &known.root.needed.other {
        let segment = Segment::new(index, units, 0);
        if segment.is_within(count) {
            log.segments().adopt(segment, Use::Other).ok();
        }
    }
}

impl Core {
    /// Updates the index from the journal and the extents.
    pub(crate) fn salvage(
        &self,
        known: &Known,
        facts: &Facts,
        report: &mut Repaired,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let journal = self.log.storage().path();
        for lost in &facts.damage {
            report.lose_more(journal, lost.offset, &lost.found[..], &lost.follows);
        }
        let mut holds = self.weigh_facts(known, facts, report)?;
        let mut latest = facts.next;
        let units = self.allocator.lock().space.units();
        self.scan_all(units, progress, &mut |met| match met {
            Scanned::Whole(header, entry) => {
                latest = latest.max(header.sequence + 1);
                weigh_extent(known, facts, &mut holds, header, entry);
            }
            Scanned::Half(header, entry) => {
                latest = latest.max(header.sequence + 1);
                let live = known.is_lost(header.id)
                    && !known.is_after_checkpoint(header.sequence)
                    && known.was_live(entry) == Some(true);
                if live && !facts.of.contains_key(&header.id) {
                    report.lose(
                        self.device_of(entry),
                        self.offset_of_entry(entry),
                        format!("object {} does not verify", header.id),
                    );
                }
            }
            Scanned::Unreadable(offset, what) => {
                report.lose_more(self.data.path(), offset, "nothing can be read", &what);
            }
        })?;
        report.scanned = units;
        let again = weigh_small(facts, &mut holds);
        let mut doubted = BTreeMap::new();
        for (id, holds) in holds {
            self.index.set(id, holds.entry)?;
            if let Some((reason, entry)) = holds.doubt.zip(holds.entry) {
                doubted.insert(id, self.doubted(id, entry, reason));
            }
        }
        {
            let mut allocator = self.allocator.lock();
            allocator.sequence = allocator.sequence.max(skip_sequences(latest)?);
        }
        for (id, small) in again {
            self.put_small(id, &small.value)?;
            let doubt = Doubted {
                id,
                device: self.log.storage().path().to_path_buf(),
                offset: small.offset,
                reason: Doubt::OldJournal,
            };
            doubted.insert(id, doubt);
        }
        if let Some(at) = facts.gap {
            // An object without a later record may have changed there.
            let reason = Doubt::JournalLost(at);
            for object in self.entries(..) {
                let (id, entry) = object?;
                if !facts.certain.contains(&id) {
                    let doubt = || self.doubted(id, entry, reason);
                    doubted.entry(id).or_insert_with(doubt);
                }
            }
        }
        for doubted in doubted.into_values() {
            report.doubt(doubted);
        }
        Ok(())
    }

    fn doubted(&self, id: ObjectId, entry: Entry, reason: Doubt) -> Doubted {
        Doubted {
            id,
            device: self.device_of(entry).to_path_buf(),
            offset: self.offset_of_entry(entry),
            reason,
        }
    }

    /// Applies the records of the journal, except puts whose data loss of power may have taken.
    fn weigh_facts(
        &self,
        known: &Known,
        facts: &Facts,
        report: &mut Repaired,
    ) -> Result<HashMap<ObjectId, Holds>> {
        let mut holds = HashMap::new();
        for (&id, fact) in &facts.of {
            // A whole leaf is newer.
            if fact.origin.is_before && !known.is_lost(id) {
                continue;
            }
            let removed = facts.is_removed_after(id, fact.sequence);
            let mut entry = fact.entry.filter(|_| !removed);
            // A put may be recorded after a later removal, whose segment was released.
            // Not so for a small object: its frame is appended at once, and to the journal's end again only while the object is
            // there (`renew`), so its removal stands after it. The journal is kept from a segment to its end (`journal_from`):
            // where the frame is kept, so is the removal, unless that is damaged itself.
            let is_early = |of: &Entry| fact.origin.is_before && of.kind == EXTENT;
            let was_live = entry.filter(is_early).map(|of| known.was_live(of));
            if was_live == Some(Some(false)) {
                continue;
            }
            if let Some(of) = entry
                && !matches!(self.is_there(id, None, of), Ok(true))
            {
                if !fact.origin.is_durable {
                    continue;
                }
                let offset = self.offset_of_entry(of);
                let what = format!("object {id} does not verify");
                report.lose(self.device_of(of), offset, what);
                let units = self.allocator.lock().space.units();
                entry = entry.filter(|of| of.is_within(units));
            }
            let is_kept = fact.origin.is_before && entry.is_some_and(|of| of.kind == JOURNAL);
            let lost_after = facts
                .kept_gap
                .filter(|_| is_kept && !facts.kept_certain.contains(&id));
            let doubt = match was_live {
                Some(None) => Some(Doubt::IndexLost),
                _ => lost_after.map(Doubt::JournalLost),
            };
            let sequence = fact.sequence;
            holds.insert(
                id,
                Holds {
                    sequence,
                    entry,
                    doubt,
                },
            );
        }
        let later = facts.ranges.iter().filter(|(.., origin)| !origin.is_before);
        for (sequence, range, _) in later {
            for object in self.entries(range.clone()) {
                holds.entry(object?.0).or_insert(Holds {
                    sequence: *sequence,
                    entry: None,
                    doubt: None,
                });
            }
        }
        Ok(holds)
    }

    /// Frees what no object occupies, and makes a checkpoint: then it is a store again. A trial ends before.
    fn finish_repair(
        &self,
        mut report: Repaired,
        unclaimed: &Unclaimed,
        trial: Option<Label>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Repaired> {
        if let Some(label) = trial {
            self.forget_to_close();
            self.vouch(label)?;
            return Ok(report);
        }
        self.rebuild_free_space(unclaimed, &mut report)?;
        self.make_checkpoint()
            .map_err(|error| self.of_journal(error))?;
        report.objects = self.index.count();
        let mut found = CheckReport::default();
        self.check_objects(&mut found, progress)?;
        report.damaged = found.found;
        for Finding { object, what, .. } in found.findings {
            let name = object.map(|id| id.to_string());
            let is_named = |line: &String| name.as_ref().is_some_and(|name| line.contains(name));
            if !report.lost.iter().any(is_named) {
                report.damage.push(what);
            }
        }
        self.close()?;
        Ok(report)
    }
}

/// Small objects without a later change, to be put again.
fn weigh_small<'f>(
    facts: &'f Facts,
    holds: &mut HashMap<ObjectId, Holds>,
) -> Vec<(ObjectId, &'f Small)> {
    let mut again = Vec::new();
    for (&id, small) in &facts.small {
        let later = holds
            .get(&id)
            .is_some_and(|holds| holds.sequence >= small.sequence);
        if !later && !facts.is_removed_after(id, small.sequence) {
            holds.remove(&id);
            again.push((id, small));
        }
    }
    again.sort_unstable_by_key(|(id, _)| *id);
    again
}

/// Whether a whole extent is its object's current one.
fn weigh_extent(
    known: &Known,
    facts: &Facts,
    holds: &mut HashMap<ObjectId, Holds>,
    header: Header,
    entry: Entry,
) {
    let Header { id, sequence, .. } = header;
    let later = holds
        .get(&id)
        .is_some_and(|holds| holds.sequence >= sequence);
    if later || facts.is_removed_after(id, sequence) || facts.aborted.contains(&sequence) {
        return;
    }
    let mut doubt = None;
    if known.is_after_checkpoint(sequence) {
        // Only the journal commits a batch; and it has the values of objects packed after the checkpoint.
        if header.flags & (BATCHED | extent::PACKED) != 0 {
            return;
        }
    } else {
        if !known.is_lost(id) {
            return;
        }
        match known.was_live(entry) {
            Some(true) => {}
            Some(false) => return,
            None => doubt = Some(Doubt::IndexLost),
        }
    }
    holds.insert(
        id,
        Holds {
            sequence,
            entry: Some(entry),
            doubt,
        },
    );
}
