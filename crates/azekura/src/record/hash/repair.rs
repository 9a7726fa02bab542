//! Repairing: what can be read of a damaged file, written to a new one.
//!
//! The damaged file is only read. Two sources are used together:
//!
//! - the checkpoint's images that are whole: they state exactly which records were there at P;
//! - all frames that verify, of all segments that can be found, in the order of the log: the newest of
//!   each key counts.
//!
//! For partitions whose image is whole, frames before P count only if the image points to them. For the others the
//! frames are all there is; cleaning has dropped old removals, so a record that was removed before P may come
//! back. And what is lost after P may have been a later value, or the removal, of any record before it. Such records
//! are *doubtful*: they are counted, and named with place and reason. Where the root is lost, records of the parts that it stated
//! are doubtful where opening finds them so (`lost_root`, rules 2 and 3): none, if the log is whole since it began. A record of which one bit is wrong (`log::damaged`) is not
//! lost: it is brought over with the bit that its checksum asks for, and it alone is in doubt. Of a record whose value alone is
//! damaged the key is known: an older value of it that is found is brought over, in doubt. What is lost is reported place by
//! place. Both lists are bounded; the counts are of all.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rapidhash::v3::RapidSecrets;

use super::layout::{self, Image, Super};
use super::lost_root::{Evidence, Rest};
use super::open::read_root;
use super::report::{Doubt, RepairReport};
use super::salvage::{all_of, find_segments, or_never_written, salvage};
use super::{Core, CreateOptions, HashDb, value};
use crate::error::{Kind, Result, quote};
use crate::format::frame::{Frame, FrameKind, Header};
use crate::index::hash::Hash;
use crate::index::hash::PARTITIONS;
use crate::index::place_of;
use crate::io::Storage;
use crate::kernel::{SuperblockPair, damaged};
use crate::log::damaged::Standing;
use crate::log::layout::SegmentHeader;
use crate::log::{Address, Log, LogPosition, Use};

/// Places of lost records that one line names.
const PLACES_MAX: usize = 16;

/// Writes what can be read of the file at `damaged` to a new file at `target`.
///
/// Errors: `Mismatch` or `Corrupted` if neither superblock can be read: without what they state nothing of the file can be
/// distinguished from other bytes. `Locked`; `Invalid` if there is a file at `target`.
pub fn repair(
    damaged: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    let storage = damaged::open(damaged)?;
    let last = SuperblockPair::<Super>::read(storage.as_ref())?.payload;
    let mut report = RepairReport::default();
    let storage = in_whole_segments(storage, &last, target)?;
    let options = CreateOptions::new()
        .compression(last.compression)
        .segment_size(last.geometry.segment_size());
    HashDb::create_whole(target, &options, |db| {
        repair_storage(&storage, &last, db, &mut report, progress)?;
        report.recovered = crate::engine::Reader::count(db);
        Ok(())
    })?;
    Ok(report)
}

/// The storage; of a file that was cut short within a segment a copy that reads zeros past its end, which
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
    let copy = damaged::copy_of(storage.as_ref(), target)?;
    copy.resize(geometry.offset_of(whole as u32 + 1))?;
    storage.copy_range_to(0, size, copy.as_ref())?;
    Ok(copy)
}

/// As [`repair`], from a storage to an open store.
pub fn repair_storage(
    storage: &Arc<dyn Storage>,
    last: &Super,
    target: &HashDb,
    report: &mut RepairReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let secrets = RapidSecrets::seed(last.hash_seed);
    let size = storage.size()?;
    let map = storage.map(size.next_multiple_of(4096).max(4096))?;
    let log = Log::new(Arc::clone(storage), map, last.geometry)?;
    let mut last = last.clone();
    last.durable = last.durable.max(log.mark().unwrap_or_default().durable);
    let last = &last;
    let (root, listed, evidence) = match read_root(storage.as_ref(), last) {
        Ok(root) => (root, PARTITIONS, Evidence::default()),
        Err(error) => {
            report.lose_to(error);
            let rest = Rest::read(storage.as_ref(), last);
            let evidence = Evidence::read(storage, last, rest.listed);
            (rest.root, rest.listed, evidence)
        }
    };
    let known = Known::read(storage.as_ref(), last, &root.images[..listed], report);
    let segments = find_segments(&log, last, &root, size, report);
    let evidence = evidence.read_in(&segments);
    let total = segments.len() as u64;
    let mut newest = Newest::default();
    for (done, segment) in segments.iter().enumerate() {
        progress(done as u64, 2 * total);
        if let Err(error) = log.segments().adopt(*segment, Use::Log) {
            let offset = last.geometry.offset_of(segment.index);
            let what = error.without_remedy().to_string();
            report.lose_log(last, all_of(segment.sequence), offset, what);
            continue;
        }
        salvage(
            &log,
            segment,
            last,
            report,
            &mut |position, address, frame, standing| {
                let partition = Hash::of_key(frame.key, &secrets).partition();
                let before = position < last.start.position();
                // Of a part that the root states, the log is not asked: an opening does not either.
                let is_known = partition >= listed && evidence.all_after(segment, position);
                newest.note(
                    position,
                    address,
                    (frame, standing),
                    (before, is_known),
                    known.of(partition),
                );
            },
        );
    }
    let named = newest.named();
    newest.copy_to(target, &log, last, report, &mut |done, all| {
        progress(total + done * total / all.max(1), 2 * total);
    })?;
    // Records that the index has and no frame was found of.
    let lost = known.missing(&log, &secrets, &named);
    if lost.count > 0 {
        report.lose(lost.to_string());
    }
    progress(1, 1);
    Ok(())
}

/// Which places hold the records that were there at P: for each partition rising, or `None` if its image is lost.
struct Known(Vec<Option<Vec<u64>>>);

impl Known {
    /// `images` of the first partitions; the others are lost.
    fn read(
        storage: &dyn Storage,
        last: &Super,
        images: &[Image],
        report: &mut RepairReport,
    ) -> Self {
        let salt = last.geometry.salt;
        let places_of = |(partition, image): (usize, &Image)| match Core::read_image(
            storage, salt, partition, *image,
        ) {
            Ok((entries, _)) => {
                let mut places: Vec<u64> = entries.into_iter().map(place_of).collect();
                places.sort_unstable();
                Some(places)
            }
            Err(error) => {
                report.lose_to(error);
                None
            }
        };
        let mut places: Vec<_> = images.iter().enumerate().map(places_of).collect();
        places.resize(PARTITIONS, None);
        Self(places)
    }

    fn of(&self, partition: usize) -> Option<&[u64]> {
        self.0[partition].as_deref()
    }

    /// The places that hold no record that verifies, but for those whose keys were `named`.
    fn missing(&self, log: &Log, secrets: &RapidSecrets, named: &HashSet<u64>) -> Missing {
        let mut buf = Vec::new();
        let mut lost = Missing::default();
        for (partition, places) in self.0.iter().enumerate() {
            for place in places
                .iter()
                .flatten()
                .filter(|place| !named.contains(place))
            {
                let found = log.copy_frame(Address(*place), &mut buf);
                let is_there =
                    |frame: Frame<'_>| Hash::of_key(frame.key, secrets).partition() == partition;
                if !found.is_ok_and(is_there) {
                    lost.note(Address(*place).offset());
                }
            }
        }
        lost
    }
}

/// Records that are in the index and cannot be read: how many, and the lowest offsets. Their keys stood there alone.
#[derive(Default)]
struct Missing {
    count: u64,
    offsets: BTreeSet<u64>,
}

impl Missing {
    fn note(&mut self, offset: u64) {
        self.count += 1;
        self.offsets.insert(offset);
        if self.offsets.len() > PLACES_MAX {
            self.offsets.pop_last();
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => f.write_str("a record that the index knew is damaged, at offset")?,
            count => write!(
                f,
                "{count} records that the index knew are damaged, at offsets"
            )?,
        }
        for offset in &self.offsets {
            write!(f, " {offset:#x}")?;
        }
        let more = self.count - self.offsets.len() as u64;
        if more > 0 {
            write!(f, " and {more} more")?;
        }
        Ok(())
    }
}

/// What is the newest of each key, and what position was the last at which all were removed.
#[derive(Default)]
struct Newest {
    found: HashMap<Vec<u8>, Found>,
    /// What stood in records of which one bit is wrong, by address: header and value.
    corrected: HashMap<u64, (Header, Vec<u8>)>,
    /// The newest record of a key whose value is lost.
    lost: HashMap<Vec<u8>, (LogPosition, Address)>,
    cleared: LogPosition,
}

/// What the log states of a key: where, in which order.
#[derive(Clone, Copy)]
struct Found {
    position: LogPosition,
    address: Address,
    removed: bool,
    /// Why it is in doubt, whatever is lost after it.
    doubt: Option<Doubt>,
}

impl Newest {
    /// Notes a frame. `before`: it stands before P, and `places` are those that were there at P, if that is known. `is_known`: the
    /// log states all that happened after it up to P.
    fn note(
        &mut self,
        position: LogPosition,
        address: Address,
        (frame, (standing, is_part)): (&Frame<'_>, (Standing, bool)),
        (before, is_known): (bool, bool),
        places: Option<&[u64]>,
    ) {
        if frame.header.kind == layout::CLEAR {
            self.cleared = self.cleared.max(position);
            return;
        }
        if frame.header.kind == FrameKind::MARK {
            return;
        }
        let removed = frame.header.kind == layout::REMOVE;
        let was_gone = places.is_some_and(|places| places.binary_search(&address.0).is_err());
        if before && !removed && was_gone {
            return;
        }
        // A removal of a batch that may not have been written whole is in doubt, too.
        if standing == Standing::ValueLost || is_part && removed {
            let newest = self.lost.entry(frame.key.to_vec());
            let newest = newest.or_insert((position, address));
            *newest = (*newest).max((position, address));
            return;
        }
        let is_corrected = standing == Standing::Corrected;
        let found = Found {
            position,
            address,
            removed,
            doubt: if is_corrected {
                Some(Doubt::Corrected)
            } else if is_part {
                Some(Doubt::PartOfBatch)
            } else if before && places.is_none() && !is_known {
                Some(Doubt::IndexLost)
            } else {
                None
            },
        };
        if is_corrected {
            self.corrected
                .insert(address.0, (frame.header, frame.value.to_vec()));
        }
        let other = self.found.get(frame.key);
        if other.is_none_or(|other| other.position < position) {
            self.found.insert(frame.key.to_vec(), found);
        }
    }

    /// The addresses of records that do not verify and whose keys are known all the same.
    fn named(&self) -> HashSet<u64> {
        let lost = self.lost.values().map(|(_, address)| address.0);
        self.corrected.keys().copied().chain(lost).collect()
    }

    /// Reports each record whose value is lost, if nothing newer of its key was found.
    fn note_lost(&self, last: &Super, report: &mut RepairReport) {
        let is_newer = |key: &Vec<u8>, position| {
            let found = self.found.get(key);
            found.is_some_and(|found| found.position > position) || position < self.cleared
        };
        let mut lost: Vec<_> = self.lost.iter().collect();
        lost.retain(|(key, (position, _))| !is_newer(key, *position));
        lost.sort_unstable_by_key(|(_, at)| **at);
        for (key, (position, address)) in lost {
            report.lose(format!(
                "the value of the record of key {} at offset {:#x} is damaged: it is lost{}",
                quote(key),
                address.offset(),
                or_never_written(last, *position)
            ));
        }
    }

    /// Puts what is there into `target`.
    fn copy_to(
        self,
        target: &HashDb,
        log: &Log,
        last: &Super,
        report: &mut RepairReport,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        self.note_lost(last, report);
        let mut all: Vec<(Vec<u8>, Found)> = self.found.into_iter().collect();
        // Losses and doubts are reported in the order of the log, which does not differ from run to run.
        all.sort_unstable_by_key(|(_, found)| found.position);
        let count = all.len() as u64;
        let mut buf = Vec::new();
        for (done, (key, found)) in all.into_iter().enumerate() {
            if done % 4096 == 0 {
                progress(done as u64, count);
            }
            if found.removed || found.position < self.cleared {
                continue;
            }
            let offset = found.address.offset();
            let frame = match self.corrected.get(&found.address.0) {
                Some((header, value)) if found.doubt == Some(Doubt::Corrected) => Ok(Frame {
                    header: *header,
                    key: &key,
                    value,
                }),
                _ => log.copy_frame(found.address, &mut buf),
            };
            let copied = frame.and_then(|frame| {
                let value = value::decode(last.compression, &frame)?;
                target.put(&key, &value)
            });
            match copied {
                Ok(()) => {
                    let newer = self.lost.get(&key);
                    let newer = newer.filter(|(position, _)| found.position < *position);
                    let newer = newer.map(|(_, at)| Doubt::LogLost(at.offset()));
                    let after = (found.position < report.unsure_before)
                        .then_some(Doubt::LogLost(report.unsure_at));
                    if let Some(reason) = found.doubt.or(newer).or(after) {
                        report.doubt(key, offset, reason);
                    }
                }
                Err(error) if error.kind() == Kind::Corrupted => {
                    report.lose_to(error.key(&key));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Access;
    use crate::io::file::File;
    use crate::kernel::damaged::keep_unchanged;

    #[test]
    fn a_file_that_may_only_be_read_gets_no_writer_while_it_is_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged.azh");
        let options = CreateOptions::default();
        HashDb::create(&path, &options).unwrap().close().unwrap();
        let storage = File::open(&path, Access::Read).unwrap();
        keep_unchanged(&storage).unwrap();
        // A writer that comes after the repair has looked for one.
        let refused = HashDb::open(&path, &options.opening).err().unwrap();
        assert_eq!(refused.kind(), Kind::Locked, "{refused}");
        drop(storage);
        let db = HashDb::open(&path, &options.opening).unwrap();
        let storage = File::open(&path, Access::Read).unwrap();
        let refused = keep_unchanged(&storage).unwrap_err();
        assert_eq!(refused.kind(), Kind::Locked, "{refused}");
        assert!(refused.to_string().contains("repair a copy"), "{refused}");
        db.close().unwrap();
        keep_unchanged(&storage).unwrap();
    }
}
