//! What a damaged store still says: records of its journal, and extents that certify themselves.
//!
//! Records count where the journal's history is known to have gone: in the chain of segments from the last checkpoint, and in
//! segments of its latest epoch. Each has the sequence of its change, so their order does not matter. What lies behind a lost
//! power in older epochs is nobody's history, and is left out.
//!
//! The scan looks at every unit of the data. What is whole counts as an extent, and nothing is looked for within it.
//!
//! It does not decide which of what it found holds: `repair` does.

use std::collections::{HashMap, HashSet};
use std::ops::{Range, RangeInclusive};

use crate::error::Result;
use crate::format::frame::{Frame, FrameKind};
use crate::io::aligned::AlignedBuf;
use crate::log::layout::{FIRST_FRAME, Link};
use crate::log::recover::Trust;
use crate::log::{Address, Log, LogPosition, Segment, Use};
use crate::object::Core;
use crate::object::checkpoint::superblock::Super;
use crate::object::id::ObjectId;
use crate::object::index::{Entry, PACKED};
use crate::object::journal::record::Record;
use crate::object::place::extent::{self, Header, PIECE, UNIT};
use crate::object::recover::replay::entry_at;

/// Units that the scan reads at once.
const WINDOW_UNITS: u64 = 256;

/// The latest that the journal says of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fact {
    pub(crate) sequence: u64,
    /// `None`: it is gone.
    pub(crate) entry: Option<Entry>,
    pub(crate) told: Told,
}

/// Where in the journal something stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// It was synced, or power was not lost since.
    pub(crate) is_durable: bool,
    /// Before the place where the checkpoint begins: that knows better.
    pub(crate) is_before: bool,
}

/// All that the journal says.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) of: HashMap<ObjectId, Fact>,
    /// Ranges removed, with their sequence.
    pub(crate) ranges: Vec<(u64, RangeInclusive<ObjectId>, Told)>,
    /// Sequences of puts that failed.
    pub(crate) voided: HashSet<u64>,
    /// One more than the latest sequence seen.
    pub(crate) next: u64,
    /// Where the journal cannot be read.
    pub(crate) damage: Vec<LostPart>,
    /// Something that came since the checkpoint is lost: the last place of it.
    pub(crate) gap: Option<u64>,
    /// Objects whose last change stands behind all of that.
    pub(crate) certain: HashSet<ObjectId>,
    /// Something that came before the checkpoint is lost, of a segment that was kept for small objects: the last place of it.
    pub(crate) kept_gap: Option<u64>,
    /// Objects with a record of the journal after that.
    pub(crate) kept_certain: HashSet<ObjectId>,
    /// Of small objects the latest value, from segments that may be out of use.
    pub(crate) small: HashMap<ObjectId, Small>,
    /// A segment is not there, at this offset: what else is lost is unknown.
    broken: Option<u64>,
}

/// A part of the journal that cannot be read.
#[derive(Debug)]
pub(crate) struct LostPart {
    pub(crate) offset: u64,
    pub(crate) found: String,
    /// What it may have cost.
    pub(crate) follows: String,
}

/// A small object in a segment that may be out of use.
#[derive(Debug)]
pub(crate) struct Small {
    pub(crate) sequence: u64,
    /// Of its record, from the start of the journal's storage.
    pub(crate) offset: u64,
    pub(crate) value: Vec<u8>,
}

/// Where a segment cannot be read, and which changes may have stood there.
#[derive(Debug, Default)]
struct Gap {
    /// Its first byte, if there is one.
    offset: Option<u64>,
    /// The latest change that was told before it.
    before: Option<u64>,
    /// The first one behind its end.
    behind: Option<u64>,
}

impl Gap {
    /// Here nothing can be read. What lies between two such places may be anything's.
    fn open(&mut self, offset: u64) {
        self.offset.get_or_insert(offset);
        self.behind = None;
    }

    /// Here a record stands. Puts with extents are told late, in no order, and renewed small objects are older.
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
            self.behind.get_or_insert(at_once);
        }
    }

    /// What is told of it.
    fn lost(&self) -> Option<LostPart> {
        let offset = self.offset?;
        let which = match (self.before, self.behind) {
            (Some(before), Some(behind)) => {
                format!("between sequences {before} and {behind}")
            }
            (Some(before), None) => format!("behind sequence {before}"),
            (None, Some(behind)) => format!("before sequence {behind}"),
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

/// Shows the records of a segment that verify, and each place behind them where there is none.
fn each_frame(
    log: &Log,
    segment: Segment,
    visit: &mut dyn FnMut(LogPosition, Address, Option<Frame<'_>>),
) {
    let room = u64::from(segment.units) << log.geometry().shift;
    let mut at = u64::from(FIRST_FRAME);
    let mut buf = Vec::new();
    while at + 8 <= room {
        let address = log.address(segment.index, at as u32);
        let position = LogPosition {
            sequence: segment.sequence,
            offset: at as u32,
        };
        let Ok(frame) = log.copy_frame(address, &mut buf) else {
            visit(position, address, None);
            at += 8;
            continue;
        };
        at += frame.len() as u64;
        match frame.header.kind {
            FrameKind::End => return,
            FrameKind::Pad => {}
            _ => visit(position, address, Some(frame)),
        }
    }
}

/// All segments of the journal's room that have a header, by their sequence.
pub(crate) fn find_segments(log: &Log, count: u64) -> Vec<Segment> {
    let mut found = Vec::new();
    for index in 0..count as u32 {
        if let Some(header) = log.header(index)
            && u64::from(index) + u64::from(header.units) <= count
        {
            found.push(Segment {
                index,
                units: header.units,
                sequence: header.sequence,
                dead: 0,
                waste: 0,
            });
        }
    }
    found.sort_unstable_by_key(|segment| segment.sequence);
    found
}

/// What is known of a segment.
fn lost_segment(offset: u64, what: &str) -> LostPart {
    LostPart {
        offset,
        found: format!("a segment of the journal {what}"),
        follows: "small objects after it may be lost or older, and removals and batches undone"
            .into(),
    }
}

impl Facts {
    /// What the journal says, where the root tells `kept` segments of it; `log` has no segments yet, and gets those that count.
    /// Without a root, small objects in what is left of older segments are gathered, too.
    /// What stands in `unreadable` is lost, whatever is there now.
    pub(crate) fn read(
        log: &Log,
        last: &Super,
        kept: &[Segment],
        found: &[Segment],
        unreadable: &[Range<u64>],
    ) -> Self {
        let mut facts = Self::default();
        let start = last.anchor.start;
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
        let trust = last.trust(log);
        // One that overlaps another is older than that, and was written over.
        history.retain(|segment| log.segments().adopt(*segment, Use::Log).is_ok());
        history.sort_unstable_by_key(|segment| segment.sequence);
        for segment in history {
            let header = log.header(segment.index);
            let is_headless = header.is_none_or(|header| header.sequence != segment.sequence);
            if is_headless {
                // Its frames say of themselves that they are the segment's; how many of them are lost with it is unknown.
                let offset = log.geometry().offset_of(segment.index);
                facts.damage.push(lost_segment(offset, "has no header"));
                if segment.sequence >= start.sequence() {
                    facts.broken = Some(offset);
                }
            }
            facts.read_segment(log, segment, trust, begins, unreadable);
            if is_headless && segment.sequence < start.sequence() {
                facts.kept_gap = Some(log.geometry().offset_of(segment.index));
                facts.kept_certain.clear();
            }
        }
        // Behind the checkpoint of a journal that was closed nothing was told that could be lost.
        let is_over = trust.closed && begins >= trust.durable;
        if facts.broken.is_some() && !is_over {
            facts.gap = facts.broken;
            facts.certain.clear();
        }
        if kept.is_empty() {
            facts.gather_small(log, begins, found);
        }
        facts
    }

    /// Small objects of segments that the journal may not need any more.
    fn gather_small(&mut self, log: &Log, begins: LogPosition, found: &[Segment]) {
        let is_older = |segment: &&Segment| segment.sequence <= begins.sequence;
        for segment in found.iter().filter(is_older) {
            log.segments().adopt(*segment, Use::Log).ok();
            let mut small = std::mem::take(&mut self.small);
            each_frame(log, *segment, &mut |position, address, frame| {
                let Some(frame) = frame.filter(|_| position < begins) else {
                    return;
                };
                if let Some(Record::Small(id, sequence, _)) = Record::decode(address, &frame)
                    && small
                        .get(&id)
                        .is_none_or(|latest| latest.sequence < sequence)
                {
                    let found = Small {
                        sequence,
                        offset: address.offset(),
                        value: frame.value.get(8..).unwrap_or_default().to_vec(),
                    };
                    small.insert(id, found);
                }
            });
            self.small = small;
        }
    }

    fn lose(&mut self, offset: u64, what: &str) {
        self.broken = Some(offset);
        self.damage.push(lost_segment(offset, what));
    }

    /// Every frame of a segment that verifies, over holes and damage.
    fn read_segment(
        &mut self,
        log: &Log,
        segment: Segment,
        trust: Trust,
        begins: LogPosition,
        unreadable: &[Range<u64>],
    ) {
        let mut gap = Gap::default();
        // The last run of places that cannot be read.
        let mut run = 0..0;
        let is_refused = |offset: u64| unreadable.iter().any(|range| range.contains(&offset));
        each_frame(log, segment, &mut |position, address, frame| {
            let told = Told {
                is_durable: trust.trusted || position < trust.durable,
                is_before: position < begins,
            };
            match frame.map(|frame| Record::decode(address, &frame)) {
                Some(Some(record)) => {
                    gap.pass(&record);
                    self.make_certain(&record, told.is_before);
                    self.note(record, told);
                    return;
                }
                Some(None) => {}
                // What was closed ends there, whatever stands behind.
                None if trust.closed && position >= trust.durable => return,
                None => {
                    let is_blank =
                        log.map().load_u64(address.offset()) == 0 && !is_refused(address.offset());
                    let was_durable = position < trust.durable && !told.is_before;
                    // Blank room ends it only where it may end, and behind what is whole: else another page may have been
                    // written over that and over what was told since.
                    let is_open = trust.trusted && !trust.closed;
                    let is_behind_damage = run.end == address.offset();
                    let is_lost = is_blank
                        && is_open
                        && segment.sequence >= begins.sequence
                        && (is_behind_damage || told.is_before);
                    if is_lost {
                        self.gap = Some(address.offset());
                        self.certain.clear();
                    }
                    let is_before_lost = is_lost && told.is_before;
                    if is_blank && !was_durable && !is_before_lost {
                        return;
                    }
                }
            }
            let offset = address.offset();
            gap.open(offset);
            if run.end != offset {
                run.start = offset;
            }
            run.end = offset + 8;
            // After a loss of power what was not synced may be anything: that is the end.
            let was_synced = trust.trusted || position < trust.durable;
            if was_synced && !told.is_before {
                self.gap = Some(run.start);
                self.certain.clear();
            }
            if told.is_before {
                self.kept_gap = Some(run.start);
                self.kept_certain.clear();
            }
        });
        self.damage.extend(gap.lost());
    }

    /// What is told at once is told in an object's turn: whatever of it was lost before is older.
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

    fn note(&mut self, record: Record, told: Told) {
        match record {
            Record::Put(id, sequence, entry) | Record::Small(id, sequence, entry) => {
                self.learn(id, sequence, Some(entry), told);
            }
            Record::Removed(id, sequence) => self.learn(id, sequence, None, told),
            Record::RangeRemoved(sequence, first, last) => {
                self.next = self.next.max(sequence + 1);
                self.ranges.push((sequence, first..=last, told));
            }
            Record::Batch(records) => {
                for record in records {
                    self.note(record, told);
                }
            }
            Record::Opened(stride) => self.next = self.next.max(stride.sequence),
            Record::Settled(floor) => self.next = self.next.max(floor),
            Record::Voided(sequence) => {
                self.next = self.next.max(sequence + 1);
                self.voided.insert(sequence);
            }
        }
    }

    fn learn(&mut self, id: ObjectId, sequence: u64, entry: Option<Entry>, told: Told) {
        self.next = self.next.max(sequence + 1);
        if self.of.get(&id).is_none_or(|fact| fact.sequence < sequence) {
            let fact = Fact {
                sequence,
                entry,
                told,
            };
            self.of.insert(id, fact);
        }
    }

    /// Whether a range that holds the object was removed behind a change with this sequence.
    pub(crate) fn is_removed_behind(&self, id: ObjectId, sequence: u64) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(of, range, _)| *of > sequence && range.contains(&id))
    }
}

/// What the scan meets.
pub(crate) enum Met {
    /// A whole extent, or a whole object in a pack.
    Whole(Header, Entry),
    /// A header without its bytes: damaged, or written over in part.
    Half(Header, Entry),
    /// The device refuses to read there.
    Unreadable(u64, String),
}

impl Core {
    /// Shows every extent in the first `units` units of the data, in the order of places.
    pub(crate) fn scan_all(
        &self,
        units: u64,
        progress: &mut dyn FnMut(u64, u64),
        visit: &mut dyn FnMut(Met),
    ) -> Result<()> {
        let mut buf = AlignedBuf::zeroed((WINDOW_UNITS * UNIT) as usize, self.data.alignment())?;
        let mut unit = 0;
        while unit < units {
            progress(unit, units);
            let count = WINDOW_UNITS.min(units - unit);
            let bytes = &mut buf[..(count * UNIT) as usize];
            let offset = self.data_offset + unit * UNIT;
            if self.data.read_at(offset, bytes).is_ok() {
                unit = self.scan_window(unit, bytes, units, visit);
                continue;
            }
            // Unit by unit: most of it can be read.
            let one = &mut buf[..UNIT as usize];
            match self.data.read_at(offset, one) {
                Ok(()) => unit = self.scan_window(unit, one, units, visit),
                Err(error) => {
                    visit(Met::Unreadable(offset, error.to_string()));
                    unit += 1;
                }
            }
        }
        progress(units, units);
        Ok(())
    }

    /// Where to go on.
    fn scan_window(&self, first: u64, bytes: &[u8], units: u64, visit: &mut dyn FnMut(Met)) -> u64 {
        let end = first + bytes.len() as u64 / UNIT;
        let mut unit = first;
        while unit < end {
            let at = ((unit - first) * UNIT) as usize;
            let rest = bytes.get(at..).unwrap_or_default();
            let header = Header::decode(rest, self.salt, unit * (UNIT / PIECE));
            let is_extent = |header: &Header| {
                header.flags & extent::PACKED == 0 && unit + header.units() <= units
            };
            let Some(header) = header.filter(is_extent) else {
                self.scan_pack(unit, rest, units, visit);
                unit += 1;
                continue;
            };
            let entry = entry_at(unit, header.len);
            let whole = self.is_there(header.id, Some(header.sequence), entry);
            if matches!(whole, Ok(true)) {
                visit(Met::Whole(header, entry));
                unit += header.units();
            } else {
                visit(Met::Half(header, entry));
                unit += 1;
            }
        }
        unit
    }

    /// Small objects that begin in a unit.
    fn scan_pack(&self, unit: u64, bytes: &[u8], units: u64, visit: &mut dyn FnMut(Met)) {
        let first = unit * (UNIT / PIECE);
        for (piece, head) in bytes
            .chunks(PIECE as usize)
            .enumerate()
            .take((UNIT / PIECE) as usize)
        {
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
                visit(Met::Whole(header, entry));
            }
        }
    }
}
