//! Opening without the root of the checkpoint: the index is rebuilt from the log as it is before the checkpoint, too. And opening
//! a file that was cut short, so that segments are missing that its root states: the root states all parts of the index, and
//! nothing need be rebuilt but the parts that are cut off.
//!
//! Of a root that is damaged, the pieces before the damage are read: they state the images of the first parts of the index,
//! which are used as ever. For the other parts, all frames of all segments that can be found by their headers are replayed in
//! the order of the log, and after them the log after the checkpoint, as for any open.
//!
//! A free segment keeps its header and frames until it is reused, so what is found may be older than the checkpoint's list of
//! segments; and of the segments that were reused, nothing is left. What they held of records that were live was copied to
//! later segments before; what is lost with them are removals, clears, and the fact that a recovery dropped what followed. So:
//!
//! 1. The segments from which links lead, one to the next, to the segment where replay begins are consecutive history: a link
//!    states the place and the sequence of the next segment, and is verified with the sequence of its own; a recovery writes
//!    over the link of the segment where the log ends. Nothing is missing between two of them. A segment whose frames do not
//!    verify from the first to the last is not counted.
//! 2. A record whose newest frame stands in consecutive history is what it states: whatever changed it later is known. If that
//!    history begins with the log, or with a clear, the rebuilt index is exact, and absence is known, too.
//! 3. Of all older frames it is unknown whether a removal or a clear followed, and so is absence: reading them is an error
//!    unless `OpenOptions::reads_doubtful`.
//! 4. Where two segments have one sequence, one of them was written in the place of another one, whose records are gone: what any
//!    part of the index leads to may be older than what was meant, and everything before the checkpoint is in doubt.
//! 5. The number of records at the checkpoint is the superblock's.
//!
//! Writes are refused: which segments are free is unknown without the root, and a repair makes a file that has one. The finding
//! is reported as damage, by `check` too.
//!
//! A reader concurrent with a writer does the same. What the writer reuses meanwhile does not verify, and ends consecutive history. It
//! does not read what the log states after the checkpoint: `recover` does.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use rapidhash::v3::RapidSecrets;

use super::layout::{self, ROOT_SEED, Root, Super};
use super::recover::Replay;
use super::salvage::leave_out_dropped;
use crate::damage::{Affects, Damage};
use crate::error::{Error, Kind, Result};
use crate::format::frame::Frame;
use crate::index::hash::PARTITIONS;
use crate::io::Storage;
use crate::kernel::salvage::headed;
use crate::log::layout::{FIRST_FRAME, Link};
use crate::log::manifest::FIRST_SEQUENCE;
use crate::log::{Log, LogPosition, Segment, Stop, Use, root};

/// What can be read of a damaged root.
pub(super) struct Rest {
    /// The images of the parts before `listed`, and where the pieces are, the damaged one last.
    pub(super) root: Root,
    /// How many parts of the index it states: all, if the root is whole.
    pub(super) listed: usize,
}

/// Whether a root that was read with this error is damaged, so that what is left of it can be used.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupted | Kind::Io)
}

impl Rest {
    /// Reads the pieces before the damage.
    pub(super) fn read(storage: &dyn Storage, last: &Super) -> Self {
        let mut read = last.root.map(root::Read::from).unwrap_or_default();
        // The error was reported when all of it was read.
        let _damage = read.read(storage, last.geometry.salt ^ ROOT_SEED, true);
        let (mut root, listed) = Root::decode_first(&read.bytes);
        root.pieces = read.pieces;
        Self { root, listed }
    }

    /// Takes the segments into use that are found, `count` of which the storage has, and gives `replay` what they state of the
    /// parts that are not listed.
    pub(super) fn replay(
        &self,
        log: &Log,
        last: &Super,
        count: u64,
        replay: &mut Replay,
    ) -> Result<()> {
        let found = History::find(log, last, count as u32);
        for segment in &found.segments {
            // None overlaps another one.
            log.segments().adopt(*segment, Use::Log)?;
        }
        let mut unknown_before = if self.listed < PARTITIONS {
            found.replay(log, last, self.listed, replay)?
        } else {
            None
        };
        if found.has_twins {
            unknown_before = Some(last.start.position());
            replay.doubt_before(last.start.position());
        }
        replay.end_before_checkpoint(self.listed, unknown_before);
        replay.damage.push(if self.listed < PARTITIONS {
            self.damage(log, unknown_before)
        } else {
            Self::cut(log, count)
        });
        Ok(())
    }

    /// That the file ends before a segment which the root states. What a record of it costs is found where it is read.
    fn cut(log: &Log, count: u64) -> Damage {
        Damage {
            path: log.storage().path().to_path_buf(),
            offset: log.geometry().offset_of(count as u32),
            len: 0,
            found: "the file is cut short; writes are refused".to_owned(),
            affects: Affects::Nothing,
        }
    }

    fn damage(&self, log: &Log, unknown_before: Option<LogPosition>) -> Damage {
        let piece = self.root.pieces.last().copied().unwrap_or_default();
        Damage {
            path: log.storage().path().to_path_buf(),
            offset: piece.offset,
            len: piece.len,
            found: "the root of the checkpoint cannot be read; the index is rebuilt from the log, and writes are refused"
                .to_owned(),
            affects: unknown_before.map_or(Affects::Nothing, |until| Affects::Before {
                until: until.to_string(),
            }),
        }
    }
}

/// What the log alone shows of the time before the checkpoint: for a repair, which decides as an opening does.
#[derive(Default)]
pub(super) struct Evidence {
    /// Consecutive history, by index and sequence.
    consecutive: HashSet<(u32, u64)>,
    /// Before it more may have happened.
    unknown_before: Option<LogPosition>,
}

impl Evidence {
    /// Reads the segments that are found, for the parts that are not `listed`. Where they cannot be read, nothing is stated.
    pub(super) fn read(storage: &Arc<dyn Storage>, last: &Super, listed: usize) -> Self {
        Self::try_read(storage, last, listed).unwrap_or_default()
    }

    fn try_read(storage: &Arc<dyn Storage>, last: &Super, listed: usize) -> Result<Self> {
        let (geometry, size) = (last.geometry, storage.size()?);
        let map = storage.map(size.next_multiple_of(4096).max(4096))?;
        let log = Log::new(Arc::clone(storage), map, geometry)?;
        let count = size.saturating_sub(geometry.offset_of(0)) >> geometry.shift;
        log.segments().begin_adoption(count as u32);
        let found = History::find(&log, last, count as u32);
        for segment in &found.segments {
            log.segments().adopt(*segment, Use::Log)?;
        }
        let mut replay = Replay::new(RapidSecrets::seed(last.hash_seed));
        let unknown_before = found.replay(&log, last, listed, &mut replay)?;
        if found.has_twins {
            return Ok(Self::default());
        }
        let consecutive = &found.segments[found.consecutive];
        Ok(Self {
            consecutive: consecutive.iter().map(|s| (s.index, s.sequence)).collect(),
            unknown_before,
        })
    }

    /// The same, if all of it is among the `segments` that are read, and none of them stands in the place of another; else nothing is
    /// stated: what was read may not be the newest.
    pub(super) fn read_in(self, segments: &[Segment]) -> Self {
        let read: HashSet<_> = segments.iter().map(|s| (s.index, s.sequence)).collect();
        let place = |segment: &Segment| (segment.index, segment.index + segment.units);
        let mut places: Vec<_> = segments.iter().map(place).collect();
        places.sort_unstable();
        let is_apart = places.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        if is_apart && self.consecutive.is_subset(&read) {
            self
        } else {
            Self::default()
        }
    }

    /// Whether all is known that happened up to the checkpoint to the record of a frame in `segment` at `position` (rule 2).
    pub(super) fn all_after(&self, segment: &Segment, position: LogPosition) -> bool {
        let is_consecutive = self
            .consecutive
            .contains(&(segment.index, segment.sequence));
        is_consecutive && self.unknown_before.is_none_or(|at| position >= at)
    }
}

/// The segments of the log up to the one where replay begins.
struct History {
    /// In the order of the log.
    segments: Vec<Segment>,
    /// Which of them are consecutive; empty if the last one was not found.
    consecutive: Range<usize>,
    /// Whether two have one sequence.
    has_twins: bool,
}

impl History {
    fn find(log: &Log, last: &Super, count: u32) -> Self {
        let mut found = newest_headed(log, count);
        found.retain(|segment| segment.sequence <= last.start.sequence());
        found.sort_unstable_by_key(|segment| segment.sequence);
        let has_twins = found
            .windows(2)
            .any(|pair| pair[0].sequence == pair[1].sequence);
        let mut before = HashMap::new();
        for segment in &found {
            if let Link::To(next) = log.link(segment.index, segment.sequence) {
                before.insert((next.index, next.sequence), *segment);
            }
        }
        let begins =
            |s: &&Segment| (s.index, s.sequence) == (last.start.segment(), last.start.sequence());
        let mut consecutive: Vec<Segment> =
            found.last().filter(begins).into_iter().copied().collect();
        while let Some(first) = consecutive.last()
            && let Some(segment) = before.get(&(first.index, first.sequence))
            && segment.sequence < first.sequence
        {
            consecutive.push(*segment);
        }
        consecutive.reverse();
        let first = consecutive
            .first()
            .map_or_else(|| last.start.sequence(), |segment| segment.sequence);
        // What stands between consecutive ones was dropped by a recovery.
        found.retain(|segment| segment.sequence < first);
        leave_out_dropped(log.storage().as_ref(), last, &mut found, &|_| false);
        let older = found.len();
        found.append(&mut consecutive);
        Self {
            consecutive: older..found.len(),
            has_twins,
            segments: found,
        }
    }

    /// Replays all of it but the parts that are `listed`. Before the position that is returned, more may have happened.
    fn replay(
        &self,
        log: &Log,
        last: &Super,
        listed: usize,
        replay: &mut Replay,
    ) -> Result<Option<LogPosition>> {
        let mut unknown_before = Some(last.start.position());
        for (at, segment) in self.segments.iter().enumerate() {
            let sequence = segment.sequence;
            if at == self.consecutive.start && !self.consecutive.is_empty() {
                let begins = LogPosition::new(sequence, 0);
                unknown_before = (sequence != FIRST_SEQUENCE).then_some(begins);
            }
            let is_start = sequence == last.start.sequence();
            let end = last.start.offset().filter(|_| is_start);
            let mut has_cleared = false;
            let is_whole = replay_segment(log, segment, end, listed, replay, &mut has_cleared)?;
            if !self.consecutive.contains(&at) {
                continue;
            }
            if has_cleared {
                unknown_before = None;
            }
            if !is_whole {
                unknown_before = Some(LogPosition::past(sequence).min(last.start.position()));
            }
        }
        Ok(unknown_before)
    }
}

/// Replays the frames of a segment, up to `end` if it is given; whether all of them verify.
fn replay_segment(
    log: &Log,
    segment: &Segment,
    end: Option<u32>,
    listed: usize,
    replay: &mut Replay,
    has_cleared: &mut bool,
) -> Result<bool> {
    let end = end.unwrap_or(u32::MAX);
    let (mut from, mut is_whole) = (FIRST_FRAME, true);
    loop {
        let mut walked = from;
        let visit = &mut |at: u32, frame: Frame<'_>| {
            walked = at.saturating_add(frame.len() as u32);
            if at >= end {
                return Ok(());
            }
            log.each_record(segment.index, at, frame, &mut |address, frame| {
                layout::check_kind(log, address, frame.header.kind)?;
                *has_cleared |= replay.record_before_checkpoint(address, &frame, listed);
                Ok(())
            })
        };
        // Copied: another process may write it.
        let Stop::NoFrame { at, .. } = log.walk_copied(segment.index, from, visit)? else {
            return Ok(is_whole);
        };
        if walked >= end {
            return Ok(is_whole);
        }
        is_whole = false;
        let Some(next) = log.resume_after(segment.index, at) else {
            return Ok(false);
        };
        from = next;
    }
}

/// All segments with a header that verifies, `count` of which the storage has. What overlaps a newer one was freed before that
/// was taken.
fn newest_headed(log: &Log, count: u32) -> Vec<Segment> {
    let mut found: Vec<Segment> = headed(count.into(), |index| log.header(index)).collect();
    found.sort_unstable_by_key(|segment| std::cmp::Reverse(segment.sequence));
    let mut ends = BTreeMap::new();
    found.retain(|segment| {
        let end = segment.index + segment.units;
        let before = ends.range(..end).next_back();
        let is_free = before.is_none_or(|(_, end)| *end <= segment.index);
        if is_free {
            ends.insert(segment.index, end);
        }
        is_free
    });
    found
}
