//! Repairing: what can be read of a damaged file, written to a new one.
//!
//! The damaged file is only read. Two sources are used together:
//!
//! - the checkpoint's images that are whole: they say exactly which records were there at P;
//! - all frames that verify, of all segments that can be found, in the order of the log: the newest of
//!   each key counts.
//!
//! For stripes whose image is whole, frames before P count only if the image points to them. For the others the
//! frames are all there is; cleaning has dropped old removals, so a record that was removed before P may come
//! back: such records are counted as *doubtful*. What is lost is said place by place.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rapidhash::v3::RapidSecrets;

use super::layout::{Root, Super};
use super::open::{read_root, read_super};
use super::{Core, HashDb, Options, value};
use crate::error::{Kind, Result};
use crate::format::frame::{Frame, FrameKind, INNER};
use crate::index::hash::Hash;
use crate::index::hash::STRIPES;
use crate::index::place_of;
use crate::io::file::{File, Files};
use crate::io::{Access, Directory as _, Storage};
use crate::log::layout::{
    FIRST_FRAME, LINK_OFFSET, SegmentHeader, encode_link, link_index, segment_seed,
};
use crate::log::{Address, Log, LogPosition, Segment, Use};

/// What a repair brought over, and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Records in the new file.
    pub recovered: u64,
    /// Of these, records that may have been removed before: the part of the index that would know is lost.
    pub doubtful: u64,
    /// One line per loss: what, and where.
    pub lost: Vec<String>,
}

/// Writes what can be read of the file at `damaged` to a new file at `target`.
///
/// `Mismatch` if neither superblock can be read and no segment of a hash file is found.
pub fn repair(
    damaged: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    let storage: Arc<dyn Storage> = Arc::new(File::open(damaged, Access::Write)?);
    let (last, mut report) = superblock_or_guess(storage.as_ref())?;
    let storage = in_whole_segments(storage, &last, target)?;
    let options = Options {
        compression: last.compression,
        ..Options::default()
    };
    HashDb::create_whole(target, &options, |db| {
        repair_storage(&storage, &last, db, &mut report, progress)?;
        report.recovered = crate::engine::Reader::count(db);
        Ok(())
    })?;
    Ok(report)
}

fn superblock_or_guess(storage: &dyn Storage) -> Result<(Super, RepairReport)> {
    match read_super(storage) {
        Ok((_, last)) => Ok((last, RepairReport::default())),
        Err(error) => Err(error),
    }
}

/// The storage; of a file that was cut short within a segment a copy that reads zeros behind its end, which
/// is gone with its handle.
fn in_whole_segments(
    storage: Arc<dyn Storage>,
    last: &Super,
    target: &Path,
) -> Result<Arc<dyn Storage>> {
    let geometry = last.geometry;
    let size = storage.size()?;
    let whole = size.saturating_sub(geometry.offset_of(0)) >> geometry.shift;
    let at = geometry.offset_of(whole as u32);
    let mut bytes = [0; 24];
    // The end of a large file is room that no segment has yet.
    if size < at + bytes.len() as u64 {
        return Ok(storage);
    }
    storage.read_at(at, &mut bytes)?;
    if SegmentHeader::decode(&bytes, geometry.salt).is_none() {
        return Ok(storage);
    }
    let (directory, name) = Files::of(target);
    let copy = directory.create_nameless(name)?;
    copy.resize(geometry.offset_of(whole as u32 + 1))?;
    storage.copy_range_to(0, size, copy.as_ref())?;
    Ok(copy)
}

/// A record that was found: where, in which order.
#[derive(Clone, Copy)]
struct Found {
    position: LogPosition,
    address: Address,
    removed: bool,
    doubtful: bool,
}

/// As [`repair`], from a storage to an open store.
pub fn repair_storage(
    storage: &Arc<dyn Storage>,
    last: &Super,
    target: &HashDb,
    report: &mut RepairReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let geometry = last.geometry;
    let secrets = RapidSecrets::seed(last.hash_seed);
    let size = storage.size()?;
    let map = storage.map(size.next_multiple_of(4096).max(4096))?;
    let log = Log::new(Arc::clone(storage), map, geometry)?;
    let root = read_root(storage.as_ref(), last).unwrap_or_else(|error| {
        report.lost.push(error.to_string());
        Root::new()
    });
    let has_root = last.root.is_none() || root != Root::new();
    // Which records were there at P, for the stripes that can say so.
    let mut known: Vec<Option<Vec<u64>>> = Vec::with_capacity(STRIPES);
    for stripe in 0..STRIPES {
        let image = root.images[stripe];
        known.push(
            match Core::read_image(storage.as_ref(), geometry.salt, stripe, image) {
                Ok(entries) if has_root => {
                    let mut places: Vec<u64> = entries.into_iter().map(place_of).collect();
                    places.sort_unstable();
                    Some(places)
                }
                Ok(_) => None,
                Err(error) => {
                    report.lost.push(error.to_string());
                    None
                }
            },
        );
    }
    let segments = find_segments(storage.as_ref(), last, &root, size, report);
    let total = segments.len() as u64;
    let mut newest: HashMap<Vec<u8>, Found> = HashMap::new();
    let mut cleared = LogPosition::default();
    for (done, segment) in segments.iter().enumerate() {
        progress(done as u64, 2 * total);
        if log.segments().adopt(*segment, Use::Log).is_err() {
            continue;
        }
        salvage(
            &log,
            segment,
            last.durable,
            report,
            &mut |position, address, frame| {
                if frame.header.kind == FrameKind::Clear {
                    cleared = cleared.max(position);
                    return;
                }
                let hash = Hash::of_key(frame.key, &secrets);
                let before = position < last.start.1;
                let places = known[hash.stripe()].as_ref();
                let removed = frame.header.kind == FrameKind::Remove;
                if before
                    && !removed
                    && places.is_some_and(|p| p.binary_search(&address.0).is_err())
                {
                    return;
                }
                let doubtful = before && places.is_none();
                let found = Found {
                    position,
                    address,
                    removed,
                    doubtful,
                };
                let newer = newest
                    .get(frame.key)
                    .is_none_or(|other| other.position < position);
                if newer {
                    newest.insert(frame.key.to_vec(), found);
                }
            },
        );
    }
    let records = newest.len() as u64;
    let mut buf = Vec::new();
    for (done, (key, found)) in newest.into_iter().enumerate() {
        if done % 4096 == 0 {
            progress(total + done as u64 * total / records.max(1), 2 * total);
        }
        if found.removed || found.position < cleared {
            continue;
        }
        let copied = log.copy_frame(found.address, &mut buf).and_then(|frame| {
            let value = value::decode(last.compression, &frame)?;
            target.put(&key, &value)
        });
        match copied {
            Ok(()) => report.doubtful += u64::from(found.doubtful),
            Err(error) if error.kind() == Kind::Corrupted => report.lost.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    // Records the index knew and nobody found.
    let lost = missing(&log, &known, last, &secrets);
    if lost > 0 {
        report
            .lost
            .push(format!("{lost} records that the index knew are damaged"));
    }
    progress(1, 1);
    Ok(())
}

/// All segments of this file whose header can be read or whose place the root knows, in log order.
///
/// Where a link leads to a segment without a header, that one is tried with the sequence it must have.
fn find_segments(
    storage: &dyn Storage,
    last: &Super,
    root: &Root,
    size: u64,
    report: &mut RepairReport,
) -> Vec<Segment> {
    let geometry = last.geometry;
    let mut segments = root.log.clone();
    segments.retain(|segment| {
        let within = geometry.offset_of(segment.index.saturating_add(segment.units)) <= size;
        if !within {
            report.lost.push(format!(
                "the segment at offset {:#x} lies beyond the end of the file",
                geometry.offset_of(segment.index)
            ));
        }
        within
    });
    let count = size.saturating_sub(geometry.offset_of(0)) >> geometry.shift;
    for index in 0..count as u32 {
        let mut bytes = [0; 24];
        if storage
            .read_at(geometry.offset_of(index), &mut bytes)
            .is_err()
        {
            continue;
        }
        let known = segments
            .iter()
            .any(|s| (s.index..s.index + s.units).contains(&index));
        let header = SegmentHeader::decode(&bytes, geometry.salt);
        // Free segments still carry their old header: only those behind P are news.
        if let Some(header) = header
            && !known
            && u64::from(index) + u64::from(header.units) <= count
            && (root.log.is_empty() || header.sequence > last.start.1.sequence)
        {
            let (units, sequence) = (header.units, header.sequence);
            segments.push(Segment {
                index,
                units,
                sequence,
                dead: 0,
            });
        }
    }
    let mut guessed = Vec::new();
    for segment in &segments {
        let mut word = [0; 8];
        let offset = geometry.offset_of(segment.index) + LINK_OFFSET;
        let seed = segment_seed(geometry.salt, segment.sequence);
        let read = storage.read_at(offset, &mut word);
        let word = u64::from_le_bytes(word);
        let Some(next) = link_index(word) else {
            continue;
        };
        let known = segments
            .iter()
            .any(|s| s.index == next && s.sequence > segment.sequence);
        if read.is_err() || known || segment.sequence < last.start.1.sequence {
            continue;
        }
        // Its header is lost, and with it what would verify the link, but for the likeliest sequence.
        if encode_link(next, seed, segment.sequence + 1) != word {
            continue;
        }
        report.lost.push(format!(
            "the segment at offset {:#x}, in which the log goes on, has no header",
            geometry.offset_of(next)
        ));
        if next < count as u32 {
            let sequence = segment.sequence + 1;
            guessed.push(Segment {
                index: next,
                units: 1,
                sequence,
                dead: 0,
            });
        }
    }
    segments.extend(guessed);
    let (first, from) = last.start;
    let begins = |s: &Segment| (s.index, s.sequence) == (first, from.sequence);
    if !segments.iter().any(begins) {
        report.lost.push(format!(
            "the segment at offset {:#x}, where the log behind the checkpoint begins, is not there",
            geometry.offset_of(first)
        ));
    }
    segments.sort_by_key(|segment| segment.sequence);
    segments
}

/// Every frame of a segment that verifies, over holes and damage.
fn salvage(
    log: &Log,
    segment: &Segment,
    durable: LogPosition,
    report: &mut RepairReport,
    visit: &mut dyn FnMut(LogPosition, Address, Frame<'_>),
) {
    let room = u64::from(segment.units) << log.geometry().shift;
    let mut at = u64::from(FIRST_FRAME);
    let (mut gap_from, mut damaged_from) = (None, None);
    let mut buf = Vec::new();
    while at + 8 <= room {
        let address = log.address(segment.index, at as u32);
        let Ok(frame) = log.copy_frame(address, &mut buf) else {
            // Blank room is the end, unless a frame follows or was synced there.
            let position = LogPosition {
                sequence: segment.sequence,
                offset: at as u32,
            };
            if log.map().load_u64(address.offset()) != 0 || position < durable {
                damaged_from.get_or_insert(gap_from.unwrap_or(at));
            }
            gap_from.get_or_insert(at);
            at += 8;
            continue;
        };
        damaged_from = None;
        if let Some(from) = gap_from.take() {
            report.lost.push(format!(
                "bytes {:#x} to {:#x} of the log cannot be read",
                log.address(segment.index, from as u32).offset(),
                address.offset()
            ));
        }
        let position = LogPosition {
            sequence: segment.sequence,
            offset: at as u32,
        };
        let len = frame.len() as u64;
        match frame.header.kind {
            FrameKind::End => return,
            FrameKind::Pad => {}
            FrameKind::Batch => {
                let seed = log
                    .segments()
                    .seed(segment.index)
                    .map_or(0, |(seed, _)| seed);
                for (place, inner) in frame.inner(seed, (at / 8) as u32) {
                    let position = LogPosition {
                        offset: place * 8,
                        ..position
                    };
                    visit(position, log.address(segment.index, place * 8), inner);
                }
            }
            // An inner frame whose batch is damaged may have been half of something: left out.
            _ if frame.has(INNER) => {
                report.lost.push(format!(
                    "a record of a damaged batch at offset {:#x} was left out",
                    address.offset()
                ));
            }
            _ => visit(position, address, frame),
        }
        at += len;
    }
    if let Some(from) = damaged_from {
        report.lost.push(format!(
            "bytes from {:#x} to the end of their segment cannot be read",
            log.address(segment.index, from as u32).offset()
        ));
    }
}

/// How many places of the index's images hold no record that verifies.
fn missing(log: &Log, known: &[Option<Vec<u64>>], _last: &Super, secrets: &RapidSecrets) -> u64 {
    let mut buf = Vec::new();
    let mut lost = 0;
    for (stripe, places) in known.iter().enumerate() {
        for place in places.iter().flatten() {
            let found = log.copy_frame(Address(*place), &mut buf);
            let sound =
                found.is_ok_and(|frame| Hash::of_key(frame.key, secrets).stripe() == stripe);
            lost += u64::from(!sound);
        }
    }
    lost
}
