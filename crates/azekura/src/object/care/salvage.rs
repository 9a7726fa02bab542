//! What a damaged store still holds: records of its journal, and extents that certify themselves.
//!
//! Records count in the chain of segments from the last checkpoint, and in segments of the latest epoch. Each has the sequence of its
//! change, so their order does not matter. Segments that an older epoch left after loss of power belong to no history, and do not
//! count.
//!
//! The scan reads every unit of the data. A whole extent counts, and nothing is searched within it.
//!
//! `repair` decides which of the findings count.

use std::collections::{HashMap, HashSet};
use std::ops::{Range, RangeInclusive};

use crate::error::Result;
use crate::format::frame::FrameKind;
use crate::kernel::salvage::SegmentScan;
use crate::log::layout::Link;
use crate::log::recover::Prior;
use crate::log::{Log, LogPosition, Segment, Use};
use crate::object::Core;
use crate::object::checkpoint::superblock::Super;
use crate::object::id::ObjectId;
use crate::object::index::{Entry, PACKED};
use crate::object::journal::record::Record;
use crate::object::place::extent::{self, Header, PIECE, UNIT};
use crate::object::read::window::{WINDOW_UNITS, Window};
use crate::object::recover::replay::entry_at;

/// The latest record of an object in the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fact {
    pub(crate) sequence: u64,
    /// `None`: it was removed.
    pub(crate) entry: Option<Entry>,
    pub(crate) origin: Origin,
}

/// Where in the journal a record stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// It was synced, or power was not lost since.
    pub(crate) is_durable: bool,
    /// It stands before the checkpoint's start, so the checkpoint is newer.
    pub(crate) is_before: bool,
}

/// All that the journal records.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) of: HashMap<ObjectId, Fact>,
    /// Ranges removed, with their sequence.
    pub(crate) ranges: Vec<(u64, RangeInclusive<ObjectId>, Origin)>,
    /// Sequences of aborted puts.
    pub(crate) aborted: HashSet<u64>,
    /// One more than the latest sequence seen.
    pub(crate) next: u64,
    /// Where the journal cannot be read.
    pub(crate) damage: Vec<LostPart>,
    /// The last place where a record since the checkpoint may be lost.
    pub(crate) gap: Option<u64>,
    /// Objects whose last change stands after that place.
    pub(crate) certain: HashSet<ObjectId>,
    /// The last place where a record before the checkpoint may be lost, in a segment that was kept for small objects.
    pub(crate) kept_gap: Option<u64>,
    /// Objects with a record after that place.
    pub(crate) kept_certain: HashSet<ObjectId>,
    /// The latest values of small objects, from segments that may be out of use.
    pub(crate) small: HashMap<ObjectId, Small>,
    /// Offset of a missing segment: what else is lost is unknown.
    broken: Option<u64>,
}

/// A part of the journal that cannot be read.
#[derive(Debug)]
pub(crate) struct LostPart {
    pub(crate) offset: u64,
    pub(crate) found: String,
    /// What may be lost with it.
    pub(crate) follows: String,
}

/// A small object in a segment that may be out of use.
#[derive(Debug)]
pub(crate) struct Small {
    pub(crate) sequence: u64,
    /// Offset of its record in the journal's storage.
    pub(crate) offset: u64,
    pub(crate) value: Vec<u8>,
}

/// An unreadable part of a segment, and the changes that may have stood there.
#[derive(Debug, Default)]
struct Gap {
    /// Its first byte, if there is one.
    offset: Option<u64>,
    /// The latest change recorded before it.
    before: Option<u64>,
    /// The first one after its end.
    after: Option<u64>,
}

impl Gap {
    /// Adds an unreadable place. The bytes between two such places are unknown.
    fn open(&mut self, offset: u64) {
        self.offset.get_or_insert(offset);
        self.after = None;
    }

    /// Adds a record. Deferred puts are recorded late, in no order, and renewed small objects are older.
    fn pass(&mut self, record: &Record) {
        let at_once = match record {
            Record::Small(_, sequence, _)
            | Record::Removed(_, sequence)
            | Record::RangeRemoved(sequence, ..) => *sequence,
            _ => return,
        };
        if self.offset.is_none() {
            self.before = self.before.max(Some(at_once));
        } else if self.before.is_none_or(|before| before < at_once) {
            self.after.get_or_insert(at_once);
        }
    }

    /// The loss, for the report.
    fn lost(&self) -> Option<LostPart> {
        let offset = self.offset?;
        let which = match (self.before, self.after) {
            (Some(before), Some(after)) => {
                format!("between sequences {before} and {after}")
            }
            (Some(before), None) => format!("after sequence {before}"),
            (None, Some(after)) => format!("before sequence {after}"),
            (None, None) => "that stood there".to_owned(),
        };
        Some(LostPart {
            offset,
            found: "the journal cannot be read".into(),
            follows: format!(
                "of the changes {which} small objects may be lost or older, and removals and batches undone; where the store \
                 was full, small objects from before may be, too"
            ),
        })
    }
}

/// The loss of a segment.
fn lost_segment(offset: u64, what: &str) -> LostPart {
    LostPart {
        offset,
        found: format!("a segment of the journal {what}"),
        follows: "small objects after it may be lost or older, and removals and batches undone"
            .into(),
    }
}

impl Facts {
    /// Reads the journal, of which the root lists the segments `kept`; `log` has no segments yet, and adopts those that count.
    /// Without a root, also gathers small objects from what is left of older segments. The contents of `unreadable` are lost,
    /// whatever is there now.
    pub(crate) fn read(
        log: &Log,
        last: &Super,
        kept: &[Segment],
        found: &[Segment],
        unreadable: &[Range<u64>],
    ) -> Self {
        let mut facts = Self::default();
        let start = last.manifest.start;
        let (index, begins) = (start.segment(), start.position());
        let mut history = kept.to_vec();
        let mut at = (index, start.sequence());
        let is_at = |at: (u32, u64)| move |of: &&Segment| (of.index, of.sequence) == at;
        while let Some(segment) = kept.iter().chain(found).find(is_at(at)).copied() {
            if !history.iter().any(|of| of.index == segment.index) {
                history.push(segment);
            }
            match log.link(segment.index, segment.sequence) {
                Link::To(next) => at = (next.index, next.sequence),
                Link::None => break,
                Link::Damaged => {
                    facts.lose(log.geometry().offset_of(segment.index), "leads nowhere");
                    break;
                }
            }
        }
        if !history
            .iter()
            .any(|of| (of.index, of.sequence) == (index, start.sequence()))
        {
            facts.lose(log.geometry().offset_of(index), "is not there");
        }
        let is_new = |segment: &&Segment| {
            segment.sequence > start.sequence() && segment.sequence >> 32 == u64::from(last.epoch)
        };
        history.extend(found.iter().filter(is_new));
        let prior = last.prior(log);
        // A segment that overlaps another is older, and was overwritten.
        history.retain(|segment| log.segments().adopt(*segment, Use::Log).is_ok());
        history.sort_unstable_by_key(|segment| segment.sequence);
        for segment in history {
            let header = log.header(segment.index);
            let is_headless = header.is_none_or(|header| header.sequence != segment.sequence);
            if is_headless {
                // Its frames identify the segment by their checksums; how many are lost with the header is unknown.
                let offset = log.geometry().offset_of(segment.index);
                facts.damage.push(lost_segment(offset, "has no header"));
                if segment.sequence >= start.sequence() {
                    facts.broken = Some(offset);
                }
            }
            facts.read_segment(log, segment, prior, begins, unreadable);
            if is_headless && segment.sequence < start.sequence() {
                facts.kept_gap = Some(log.geometry().offset_of(segment.index));
                facts.kept_certain.clear();
            }
        }
        // A closed journal has no record after the checkpoint that could be lost.
        let is_over = prior.closed && begins >= prior.durable;
        if facts.broken.is_some() && !is_over {
            facts.gap = facts.broken;
            facts.certain.clear();
        }
        if kept.is_empty() {
            facts.gather_small(log, begins, found);
        }
        facts
    }

    /// Gathers small objects from segments that the journal may not need any more.
    fn gather_small(&mut self, log: &Log, begins: LogPosition, found: &[Segment]) {
        let is_older = |segment: &&Segment| segment.sequence <= begins.sequence;
        for segment in found.iter().filter(is_older) {
            log.segments().adopt(*segment, Use::Log).ok();
            let mut scan = SegmentScan::new(log, *segment);
            while let Some((position, address, frame)) = scan.step() {
                let Some(frame) = frame.filter(|_| position < begins) else {
                    continue;
                };
                if let Some(Record::Small(id, sequence, _)) = Record::decode(address, &frame)
                    && self
                        .small
                        .get(&id)
                        .is_none_or(|latest| latest.sequence < sequence)
                {
                    let found = Small {
                        sequence,
                        offset: address.offset(),
                        value: frame.value.get(8..).unwrap_or_default().to_vec(),
                    };
                    self.small.insert(id, found);
                }
            }
        }
    }

    fn lose(&mut self, offset: u64, what: &str) {
        self.broken = Some(offset);
        self.damage.push(lost_segment(offset, what));
    }

    /// Reads every frame of a segment that verifies, past holes and damage.
    fn read_segment(
        &mut self,
        log: &Log,
        segment: Segment,
        prior: Prior,
        begins: LogPosition,
        unreadable: &[Range<u64>],
    ) {
        let mut gap = Gap::default();
        // The last run of unreadable places.
        let mut run = 0..0;
        let is_refused = |offset: u64| unreadable.iter().any(|range| range.contains(&offset));
        let mut scan = SegmentScan::new(log, segment);
        while let Some((position, address, frame)) = scan.step() {
            let kind = frame.as_ref().map(|frame| frame.header.kind);
            if matches!(kind, Some(FrameKind::PAD | FrameKind::END)) {
                continue;
            }
            let origin = Origin {
                is_durable: prior.coherent || position < prior.durable,
                is_before: position < begins,
            };
            match frame.map(|frame| Record::decode(address, &frame)) {
                Some(Some(record)) => {
                    gap.pass(&record);
                    self.make_certain(&record, origin.is_before);
                    self.note(record, origin);
                    continue;
                }
                Some(None) => {}
                // A closed journal ends there, whatever follows.
                None if prior.closed && position >= prior.durable => continue,
                None => {
                    let is_blank =
                        log.map().load_u64(address.offset()) == 0 && !is_refused(address.offset());
                    let was_durable = position < prior.durable && !origin.is_before;
                    // Blank space ends the journal only where it may end, after a whole record: otherwise another page may
                    // have been written over its end and over later records.
                    let is_open = prior.coherent && !prior.closed;
                    let is_after_damage = run.end == address.offset();
                    let is_lost = is_blank
                        && is_open
                        && segment.sequence >= begins.sequence
                        && (is_after_damage || origin.is_before);
                    if is_lost {
                        self.gap = Some(address.offset());
                        self.certain.clear();
                    }
                    let is_before_lost = is_lost && origin.is_before;
                    if is_blank && !was_durable && !is_before_lost {
                        continue;
                    }
                }
            }
            let offset = address.offset();
            gap.open(offset);
            if run.end != offset {
                run.start = offset;
            }
            run.end = offset + 8;
            // After loss of power, bytes that were not synced may be anything: that is the end.
            let was_synced = prior.coherent || position < prior.durable;
            if was_synced && !origin.is_before {
                self.gap = Some(run.start);
                self.certain.clear();
            }
            if origin.is_before {
                self.kept_gap = Some(run.start);
                self.kept_certain.clear();
            }
        }
        self.damage.extend(gap.lost());
    }

    /// A record that is not deferred is appended under the object's lock: a lost record before it is older.
    fn make_certain(&mut self, record: &Record, is_before: bool) {
        let certain = if is_before {
            &mut self.kept_certain
        } else {
            &mut self.certain
        };
        match record {
            Record::Small(id, ..) | Record::Removed(id, _) => _ = certain.insert(*id),
            Record::Batch(records) => certain.extend(records.iter().filter_map(Record::id)),
            _ => {}
        }
    }

    fn note(&mut self, record: Record, origin: Origin) {
        match record {
            Record::Put(id, sequence, entry) | Record::Small(id, sequence, entry) => {
                self.learn(id, sequence, Some(entry), origin);
            }
            Record::Removed(id, sequence) => self.learn(id, sequence, None, origin),
            Record::RangeRemoved(sequence, first, last) => {
                self.next = self.next.max(sequence + 1);
                self.ranges.push((sequence, first..=last, origin));
            }
            Record::Batch(records) => {
                for record in records {
                    self.note(record, origin);
                }
            }
            Record::Opened(allocation_extent) => {
                self.next = self.next.max(allocation_extent.sequence);
            }
            Record::LowWater(low_water) => self.next = self.next.max(low_water),
            Record::Aborted(sequence) => {
                self.next = self.next.max(sequence + 1);
                self.aborted.insert(sequence);
            }
        }
    }

    fn learn(&mut self, id: ObjectId, sequence: u64, entry: Option<Entry>, origin: Origin) {
        self.next = self.next.max(sequence + 1);
        if self.of.get(&id).is_none_or(|fact| fact.sequence < sequence) {
            let fact = Fact {
                sequence,
                entry,
                origin,
            };
            self.of.insert(id, fact);
        }
    }

    /// Whether a range that holds the object was removed after a change with this sequence.
    pub(crate) fn is_removed_after(&self, id: ObjectId, sequence: u64) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(of, range, _)| *of > sequence && range.contains(&id))
    }
}

/// One finding of the scan.
pub(crate) enum Scanned {
    /// A whole extent, or a whole object in a packed extent.
    Whole(Header, Entry),
    /// A header without its bytes: damaged, or partly overwritten.
    Half(Header, Entry),
    /// The device refuses to read there.
    Unreadable(u64, String),
}

impl Core {
    /// Visits every extent in the first `units` units of the data, in the order of places.
    pub(crate) fn scan_all(
        &self,
        units: u64,
        progress: &mut dyn FnMut(u64, u64),
        visit: &mut dyn FnMut(Scanned),
    ) -> Result<()> {
        let mut window = Window::new(self, WINDOW_UNITS)?;
        let (mut unit, mut reported) = (0, 0);
        while unit < units {
            if unit >= reported {
                progress(unit, units);
                reported = unit + WINDOW_UNITS;
            }
            let bytes = match window.bytes(unit, 1, units) {
                Ok(bytes) => bytes,
                Err(error) => {
                    let offset = self.data_offset + unit * UNIT;
                    visit(Scanned::Unreadable(offset, error.to_string()));
                    unit += 1;
                    continue;
                }
            };
            let header = Header::decode(bytes, self.salt, unit * (UNIT / PIECE));
            let is_extent = |header: &Header| {
                header.flags & extent::PACKED == 0 && unit + header.units() <= units
            };
            let Some(header) = header.filter(is_extent) else {
                self.scan_pack(unit, bytes, units, visit);
                unit += 1;
                continue;
            };
            let entry = entry_at(unit, header.len);
            if matches!(window.holds(unit, &header, units), Ok(true)) {
                visit(Scanned::Whole(header, entry));
                unit += header.units();
            } else {
                visit(Scanned::Half(header, entry));
                unit += 1;
            }
        }
        progress(units, units);
        Ok(())
    }

    /// Visits small objects that begin in a unit.
    fn scan_pack(&self, unit: u64, bytes: &[u8], units: u64, visit: &mut dyn FnMut(Scanned)) {
        let first = unit * (UNIT / PIECE);
        for (piece, head) in bytes.chunks(PIECE as usize).enumerate() {
            let place = first + piece as u64;
            let header = Header::decode(head, self.salt, place);
            let Some(header) = header.filter(|header| header.flags & extent::PACKED != 0) else {
                continue;
            };
            let entry = Entry {
                place,
                len: header.len,
                kind: PACKED,
            };
            let read = entry
                .is_within(units)
                .then(|| self.read_entry(header.id, entry, &(0..u64::MAX)));
            if let Some(Ok(Ok((_, sequence)))) = read
                && sequence == header.sequence
            {
                visit(Scanned::Whole(header, entry));
            }
        }
    }
}
