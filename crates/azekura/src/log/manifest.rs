//! The log manifest: what a superblock states of its log, which is its sizes, the start of replay, and whether the page
//! cache is coherent.
//!
//! Every engine that keeps a [`Log`] has a [`Manifest`] in its superblock, next to its own fields. Opening is the same for
//! all of them:
//!
//! 1. decode the manifest of the newest superblock, and the root that it names; mark the segments in use;
//! 2. [`Manifest::prior`]: the cache is coherent after a process crash, and not after a power loss;
//! 3. `Log::recover` from `start`; the engine interprets the frames;
//! 4. [`Manifest::resume_append`]: directly after the last frame, or in a new segment of a new epoch.
//!
//! [`Manifest::give`] and [`Needed::give`] encode it for superblock and root. It does not write them, and does not know what
//! else they have.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use super::layout::{End, FIRST_FRAME, LogPosition, SegmentHeader};
use super::recover::{Prior, Recovered};
use super::segment::DEAD_BITS;
use super::{Geometry, Log, Segment, Use};
use crate::error::{Error, Kind, Result};
use crate::format::bytes::{Give, Take};
use crate::format::checksum::crc;
use crate::format::flipped::{bit_of_sum, flip};
use crate::io::Storage;

/// Bytes of a file, with their checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// CRC32C.
    pub crc: u32,
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Sizes and salt.
    pub geometry: Geometry,
    /// Whether it is open for writing, or its writer died.
    pub open: bool,
    /// How often it was recovered: the upper half of segment sequences.
    pub epoch: u32,
    /// The system that had it open.
    pub boot_id: [u8; 16],
    /// Where replay begins.
    pub start: End,
    /// Durable at least to here.
    pub durable: LogPosition,
    /// Where the first piece of the checkpoint's root is ([`super::root`]).
    pub root: Option<Extent>,
    /// The next segment's sequence.
    pub next_sequence: u64,
}

/// The sequence of a new log's first segment.
pub const FIRST_SEQUENCE: u64 = 1 << 32;
/// Epochs are numbers below this one, so that the next sequence is always a number.
const EPOCHS_END: u64 = (1 << 32) - 1;

impl Manifest {
    /// Of a log that was just begun, with [`FIRST_SEQUENCE`] and nothing in it.
    pub fn first(log: &Log) -> Self {
        Self {
            geometry: log.geometry(),
            open: true,
            epoch: 1,
            boot_id: log.storage().boot_id(),
            start: log.end(),
            durable: LogPosition::default(),
            root: None,
            next_sequence: FIRST_SEQUENCE + 1,
        }
    }

    /// Gives 71 bytes; sizes, salt and the next sequence are not among them:
    ///
    /// | size | meaning |
    /// |---|---|
    /// | 1, 2 | state: 0 closed cleanly, 1 open for writing (or its writer died); zero |
    /// | 4 | epoch |
    /// | 16 | boot id |
    /// | 4, 4, 8 | where replay begins: index, offset (0: in the segment linked to this one), sequence |
    /// | 8, 4 | durable at least to: sequence, offset |
    /// | 4, 8, 8 | root, or its first piece: CRC32C, offset, length (0: there is none) |
    pub fn give(&self, give: &mut Give) {
        let root = self.root.unwrap_or_default();
        give.u8(u8::from(self.open))
            .u16(0)
            .u32(self.epoch)
            .bytes(&self.boot_id)
            .u32(self.start.segment())
            .u32(self.start.offset().unwrap_or(0))
            .u64(self.start.sequence())
            .u64(self.durable.sequence)
            .u32(self.durable.offset)
            .u32(root.crc)
            .u64(root.offset)
            .u64(root.len);
    }

    /// What was given; the next sequence is the caller's to add. `None`: the bytes end before, or encode no state.
    pub fn take(geometry: Geometry, take: &mut Take<'_>) -> Option<Self> {
        let (state, _zero) = (take.u8()?, take.u16()?);
        let (epoch, boot_id) = (take.u32()?, take.id()?);
        let (segment, offset, sequence) = (take.u32()?, take.u32()?, take.u64()?);
        let start = End::of(segment, sequence, (offset != 0).then_some(offset));
        let durable = LogPosition::new(take.u64()?, take.u32()?);
        let crc = take.u32()?;
        let root = Extent {
            offset: take.u64()?,
            len: take.u64()?,
            crc,
        };
        (state <= 1).then_some(Self {
            geometry,
            open: state == 1,
            epoch,
            boot_id,
            start,
            durable,
            root: (root.len > 0).then_some(root),
            next_sequence: 0,
        })
    }

    /// Whether a decoded manifest is one that a writer gives: epochs continue to count, also those in sequences; frames begin at
    /// whole words.
    pub fn is_sound(&self) -> bool {
        let sequence = self.start.sequence().max(self.next_sequence);
        let latest = u64::from(self.epoch).max(sequence >> 32);
        let offset = self.start.offset().unwrap_or(FIRST_FRAME);
        let is_place = offset >= FIRST_FRAME && offset.is_multiple_of(8);
        is_place && latest < EPOCHS_END
    }

    /// How far the storage can be believed.
    pub fn prior(&self, log: &Log) -> Prior {
        let mark = log.mark().unwrap_or_default();
        let storage = log.storage();
        // A system that does not state its boot is taken to have lost power since.
        let same_boot = self.boot_id == storage.boot_id() && self.boot_id != [0; 16];
        Prior {
            coherent: same_boot && !(self.open && mark.sync_failed),
            durable: self.durable.max(mark.durable),
            closed: !self.open,
            live: storage.has_writer(),
            shared: false,
            epoch: self.epoch,
        }
    }

    /// Lets the log continue after what recovery found: right there, or in a new segment of a new epoch; whether it is
    /// right there.
    pub fn resume_append(&mut self, log: &Log, prior: Prior, found: &Recovered) -> Result<bool> {
        let seed = log.segments().seed(found.end.segment());
        let room = seed.map_or(0, |(_, room)| room);
        // A closed file of an earlier boot may have been opened and written to since, and all of that lost
        // but stray frames past the end: nothing is put among them, or among what else stands there.
        let resumes = !self.open
            && prior.coherent
            && room == log.geometry().segment_size()
            && log.is_blank_past(found.end);
        if resumes {
            let next = self.next_sequence.max(found.end.sequence() + 1);
            log.resume(found.end, next);
        } else {
            log.seal(self.start, prior, found)?;
            self.epoch += 1;
            log.resume(found.end.closed(), u64::from(self.epoch) << 32);
        }
        Ok(resumes)
    }
}

impl Recovered {
    /// The end that was found. `Corrupted` if it lies before what was synced.
    pub fn end_after(&self, prior: Prior, storage: &dyn Storage) -> Result<LogPosition> {
        let end = self.end.position();
        if end < prior.durable {
            return Err(
                Error::new(Kind::Corrupted, "the log ends before what was synced")
                    .at(storage.path())
                    .found(format!("end {end}"), format!("at least {}", prior.durable))
                    .remedy(remedy(storage)),
            );
        }
        Ok(end)
    }
}

/// That a file ends before what it holds.
pub fn cut_short(storage: &dyn Storage) -> Error {
    Error::new(Kind::Corrupted, "the file is cut short")
        .at(storage.path())
        .remedy(format!("restore a backup, or {}", remedy(storage)))
}

/// What to do about a damaged file.
pub fn remedy(storage: &dyn Storage) -> String {
    format!("run `azekura repair {} NEW-FILE`", storage.path().display())
}

/// Reads what stands at `extent`, and verifies it with `seed`; `what` names it in errors, which are `Corrupted`.
pub fn read_extent(
    storage: &dyn Storage,
    extent: Extent,
    seed: u32,
    what: &str,
) -> Result<Vec<u8>> {
    read_verified(storage, extent, seed, what, false).map(|(bytes, _)| bytes)
}

/// As [`read_extent`], but one wrong bit is read as it was written (`format::flipped`); the offset of its byte, too.
pub fn read_extent_corrected(
    storage: &dyn Storage,
    extent: Extent,
    seed: u32,
    what: &str,
) -> Result<(Vec<u8>, Option<u64>)> {
    read_verified(storage, extent, seed, what, true)
}

fn read_verified(
    storage: &dyn Storage,
    extent: Extent,
    seed: u32,
    what: &str,
    corrects: bool,
) -> Result<(Vec<u8>, Option<u64>)> {
    let damaged = |how: &str| {
        Error::new(Kind::Corrupted, format!("{what} {how}"))
            .at(storage.path())
            .offset(extent.offset)
            .remedy(remedy(storage))
    };
    let size = storage.size()?;
    let end = extent.offset.checked_add(extent.len);
    if end.is_none_or(|end| end > size) {
        return Err(damaged("lies beyond the end of the file"));
    }
    let mut bytes = vec![0; extent.len as usize];
    storage.read_at(extent.offset, &mut bytes)?;
    let computed = crc(seed, &bytes);
    if computed == extent.crc {
        return Ok((bytes, None));
    }
    let bit = corrects.then(|| bit_of_sum(computed ^ extent.crc, bytes.len()));
    let Some(bit) = bit.flatten() else {
        let sums = format!("stored {:08x}, computed {computed:08x}", extent.crc);
        return Err(damaged("is damaged").detail(sums));
    };
    flip(&mut bytes, bit);
    let offset = extent.offset + bit as u64 / 8;
    tracing::warn!(
        offset,
        "a bit of {what} is wrong; it is read as it was written"
    );
    Ok((bytes, Some(offset)))
}

/// Segments of a storage of `size` bytes. One that was cut short counts if its header is there; what a large file, or one of an
/// odd capacity, has after its last one does not: it would have to grow, and a full device would keep it from being opened.
pub fn segments_of(storage: &dyn Storage, geometry: Geometry, size: u64) -> Result<u64> {
    let whole = size.saturating_sub(geometry.offset_of(0)) >> geometry.shift;
    let at = geometry.offset_of(whole as u32);
    let mut bytes = [0; 24];
    if size < at + bytes.len() as u64 {
        return Ok(whole);
    }
    storage.read_at(at, &mut bytes)?;
    let is_segment = SegmentHeader::decode(&bytes, geometry.salt).is_some();
    Ok(whole + u64::from(is_segment))
}

/// `Corrupted` if the last of so many segments is cut short: the log may have stood in the rest of it.
pub fn check_last_is_whole(storage: &dyn Storage, geometry: Geometry, segments: u64) -> Result<()> {
    let (size, whole) = (storage.size()?, geometry.offset_of(segments as u32));
    if size < whole {
        return Err(cut_short(storage).found(format!("{size} bytes"), format!("{whole} bytes")));
    }
    Ok(())
}

/// The segments a checkpoint needs: of the log, and of its own images and root (index, units).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// Segments of the log.
    pub log: Vec<Segment>,
    /// Segments of images and roots.
    pub other: Vec<(u32, u32)>,
}

impl Needed {
    /// Gives both, each with its number before: segments of the log by index (4), units (4), sequence (8), dead bytes (5) and
    /// of these wasted words after the last frame (3);
    /// the others by index (4), units (4).
    pub fn give(&self, give: &mut Give) {
        give.u32(self.log.len() as u32);
        for segment in &self.log {
            give.u32(segment.index)
                .u32(segment.units)
                .u64(segment.sequence)
                .u64(segment.dead | (segment.waste / 8) << DEAD_BITS);
        }
        give.u32(self.other.len() as u32);
        for (index, units) in &self.other {
            give.u32(*index).u32(*units);
        }
    }

    /// What was given. `None`: the bytes end before.
    pub fn take(take: &mut Take<'_>) -> Option<Self> {
        Some(Self {
            log: take.all(|take| {
                let (index, units, sequence) = (take.u32()?, take.u32()?, take.u64()?);
                let counted = take.u64()?;
                Some(Segment {
                    index,
                    units,
                    sequence,
                    dead: counted & ((1 << DEAD_BITS) - 1),
                    waste: (counted >> DEAD_BITS) * 8,
                })
            })?,
            other: take.all(|take| Some((take.u32()?, take.u32()?)))?,
        })
    }

    /// `Corrupted` if one of them lies beyond the `segments` that the storage has.
    pub fn check_within(
        &self,
        storage: &dyn Storage,
        geometry: Geometry,
        segments: u64,
    ) -> Result<()> {
        let log = self
            .log
            .iter()
            .map(|segment| (segment.index, segment.units));
        let beyond = log
            .chain(self.other.iter().copied())
            .find(|(index, units)| u64::from(*index) + u64::from(*units) > segments);
        match beyond {
            None => Ok(()),
            Some((index, units)) => {
                let end = u64::from(index) + u64::from(units);
                Err(cut_short(storage)
                    .offset(geometry.offset_of(index))
                    .found(format!("{segments} segments"), format!("at least {end}")))
            }
        }
    }

    /// Marks the segments in use in the log.
    pub fn adopt(&self, log: &Log) -> Result<()> {
        for segment in &self.log {
            log.segments().adopt(*segment, Use::Log)?;
        }
        for &(index, units) in &self.other {
            log.segments()
                .adopt(Segment::new(index, units, 0), Use::Other)?;
        }
        Ok(())
    }
}
