//! Opening after whatever happened: replay of the log after the checkpoint.
//!
//! Replay reads the log once, in order, and sorts what it states by partition; nothing of the index is touched.
//! A partition comes in when it is first needed: its image, and after it what the log recorded. Opening so costs
//! the reading of the log after the checkpoint, whatever the number of records.
//!
//! What is replayed was decided before: a frame states that a record has a value or is gone, so replaying it
//! once or twice, onto the state of P or onto a later one, gives the same. It does not decide where the log
//! ends: `log::recover` does.
//!
//! A damaged place after the checkpoint is passed by (`log::damaged`), and decides what the open store may do:
//!
//! | what stood there | reads | writes |
//! |---|---|---|
//! | nothing that changes a record | all | all |
//! | a frame of which one bit is wrong, or of which only long values are damaged | of its damaged records, an error until they are written in a later frame; all others as ever | accepted |
//! | unknown | of a record whose frame stands after the damage, as ever; of all others, and of absent ones, an error, unless `OpenOptions::reads_doubtful` | refused |
//!
//! 1. Writes while there is such a frame are safe: its keys are known, and their entries point to it. That is
//!    what damage before the checkpoint looks like, where the index holds the place of a record that does not verify:
//!    reads, replacements and removals of that record are errors, its segment is never cleaned, and the next checkpoint
//!    saves the entry as any other.
//! 2. A record after unknown damage is the newest of its key: frames of a key stand in the order of its updates, and what
//!    cleaning copied was the newest when it was copied. All else may have been replaced, removed or cleared by what
//!    cannot be read, so nothing older is returned, and absence is not claimed; and nothing may be appended, since a later
//!    replay would take the new frame for the successor of an unknown state.
//! 3. One wrong bit in the image of a part of the index is read as it was written (`format::flipped`), and the next checkpoint
//!    writes the image again. A part whose image is damaged by more makes each read and write of its keys an error. If the log
//!    changes that part after the checkpoint, no later checkpoint can be made without it, and all writes are refused.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rapidhash::v3::RapidSecrets;

use super::Core;
use super::layout::{self, Image, Super};
use crate::damage::{Affects, Damage};
use crate::error::{Error, Kind, Result};
use crate::explore::Mutex;
use crate::format::frame::{Frame, FrameKind};
use crate::index::hash::Hash;
use crate::index::hash::{ADDRESS_BITS, PARTITIONS};
use crate::index::{Source, entry, place_of};
use crate::log::damaged::{Lost, Standing, Stood};
use crate::log::recover::{Prior, Recovered};
use crate::log::{Address, Log, LogPosition};

/// What the log recorded about a partition after the checkpoint, in order.
#[derive(Debug, Default)]
struct Replayed {
    entries: Vec<u64>,
    /// Which of them are removals, by their number, rising.
    removes: Vec<u32>,
    /// Frames that the last load found replaced, with their lengths: counted as dead when it is in memory.
    dead: Vec<(Address, usize)>,
}

/// Partitions that are not in memory yet.
pub(super) struct Unloaded {
    log: Arc<Log>,
    salt: u32,
    /// Those that are not empty, by partition.
    images: Box<[(usize, Image)]>,
    /// Of the partitions that the log changed.
    replayed: HashMap<usize, Mutex<Replayed>>,
    /// Keys of frames after the checkpoint that do not verify, by address.
    keys: HashMap<u64, Vec<u8>>,
    known: Arc<Known>,
}

/// The damage an open store knows of.
#[derive(Debug, Default)]
pub(super) struct Known {
    noted: Mutex<Noted>,
    /// Partitions of which a wrong bit was read as it was written, and whose images are still to be written again.
    pub(super) corrected: Mutex<Vec<usize>>,
    /// What was last written before this position may have been changed since.
    unsure_before: Option<LogPosition>,
    /// As far as the root of the checkpoint could not be read: see `lost_root`.
    unlisted: Option<Unlisted>,
}

/// Damage, each once.
#[derive(Debug, Default)]
struct Noted {
    list: Vec<Damage>,
    /// The offsets of all in it.
    offsets: HashSet<u64>,
}

/// The root of the checkpoint is damaged.
#[derive(Clone, Copy, Debug)]
struct Unlisted {
    /// From this partition on, its images are unknown.
    from: usize,
    /// In these, what was last written before this position may have been changed since. `None`: nothing.
    unsure_before: Option<LogPosition>,
}

impl Known {
    pub(super) fn list(&self) -> Vec<Damage> {
        self.noted.lock().list.clone()
    }

    /// Adds damage, once.
    pub(super) fn note(&self, damage: Damage) {
        let mut noted = self.noted.lock();
        if noted.offsets.insert(damage.offset) || !noted.list.contains(&damage) {
            tracing::warn!(%damage, "damage");
            noted.list.push(damage);
        }
    }

    /// Whether damage at this offset of the file is known.
    pub(super) fn has_noted(&self, offset: u64) -> bool {
        self.noted.lock().offsets.contains(&offset)
    }

    /// A wrong bit in the image of a partition was read as it was written.
    #[cold]
    fn note_corrected(&self, partition: usize, path: &Path, offset: u64) {
        self.note(corrected_bit(path, offset));
        self.corrected.lock().push(partition);
    }

    /// Whether any damage is known.
    pub(super) fn is_damaged(&self) -> bool {
        !self.noted.lock().list.is_empty()
    }

    /// Whether answers may be wrong.
    pub(super) fn is_in_doubt(&self) -> bool {
        let unlisted = self.unlisted.and_then(|unlisted| unlisted.unsure_before);
        self.unsure_before.or(unlisted).is_some()
    }

    /// Whether nothing may be written, not even by closing.
    pub(super) fn is_read_only(&self) -> bool {
        self.unsure_before.is_some() || self.unlisted.is_some()
    }

    /// An error if the record of `key` may have been changed since its frame at this address, or is absent at `None`.
    pub(super) fn check_doubt(
        &self,
        log: &Log,
        (key, hash): (&[u8], Hash),
        at: Option<Address>,
    ) -> Result<()> {
        let is_unlisted = |unlisted: &Unlisted| hash.partition() >= unlisted.from;
        let unlisted = self.unlisted.filter(is_unlisted);
        let unlisted = unlisted.and_then(|unlisted| unlisted.unsure_before);
        let at = at.and_then(|address| log.position(address));
        match self.unsure_before.max(unlisted) {
            Some(before) if at.is_none_or(|at| at < before) => Err(self.doubt_error(log).key(key)),
            _ => Ok(()),
        }
    }

    /// The error of a read of a record in doubt.
    #[cold]
    pub(super) fn doubt_error(&self, log: &Log) -> Error {
        let path = log.storage().path();
        let noted = self.noted.lock();
        let first = noted
            .list
            .iter()
            .find(|damage| damage.affects.is_unbounded());
        let error = Error::new(
            Kind::Corrupted,
            "the newest version of the record may be lost: the log is damaged",
        )
        .at(path)
        .remedy(format!(
            "run `azekura repair {0} NEW-FILE`; `azekura list {0}` and `azekura export {0}` show records in doubt as they are \
             known, in the library `OpenOptions::reads_doubtful` reads them",
            path.display()
        ));
        match first {
            Some(damage) => error.offset(damage.offset),
            None => error,
        }
    }
}

/// A wrong bit in the image of a partition, in the byte at `offset`.
pub(super) fn corrected_bit(path: &Path, offset: u64) -> Damage {
    Damage::of_bit(path, offset, "a part of the index checkpoint")
}

/// Collects what replay finds.
pub(super) struct Replay {
    secrets: RapidSecrets,
    partitions: Vec<Replayed>,
    /// Records more (or fewer) than at the checkpoint.
    pub(super) count: i64,
    /// Sequence of the segment in which everything before was cleared last; 0: in none after the checkpoint.
    pub(super) cleared: u64,
    /// Frames that are no longer needed: removals, by address and length.
    pub(super) dead: Vec<(Address, usize)>,
    keys: HashMap<u64, Vec<u8>>,
    /// Damage that replay skipped, or that was known before.
    pub(super) damage: Vec<Damage>,
    unsure_before: Option<LogPosition>,
    unlisted: Option<Unlisted>,
    /// The last mark; empty: there is none. It begins with the one before replay, which the root states.
    pub(super) mark: Vec<u8>,
}

impl Replay {
    pub(super) fn new(secrets: RapidSecrets) -> Self {
        let partitions = (0..PARTITIONS).map(|_| Replayed::default()).collect();
        Self {
            secrets,
            partitions,
            count: 0,
            cleared: 0,
            dead: Vec::new(),
            keys: HashMap::new(),
            damage: Vec::new(),
            unsure_before: None,
            unlisted: None,
            mark: Vec::new(),
        }
    }

    /// One record of the log before the checkpoint, if its partition is not `listed`; whether everything was cleared.
    pub(super) fn record_before_checkpoint(
        &mut self,
        address: Address,
        frame: &Frame<'_>,
        listed: usize,
    ) -> bool {
        let clears = frame.header.kind == layout::CLEAR;
        if clears {
            self.partitions.fill_with(Replayed::default);
        }
        if let Some(mark) = layout::mark_of(frame) {
            mark.clone_into(&mut self.mark);
        } else if !clears && Hash::of_key(frame.key, &self.secrets).partition() >= listed {
            self.record_as(address, frame, true);
        }
        clears
    }

    /// What was recorded so far stands before the checkpoint, which knows how many records there are. Of the partitions that are
    /// not `listed`, what was last written before `unsure_before` may have been changed since.
    pub(super) fn end_before_checkpoint(
        &mut self,
        listed: usize,
        unsure_before: Option<LogPosition>,
    ) {
        self.count = 0;
        self.dead.clear();
        self.unlisted = Some(Unlisted {
            from: listed,
            unsure_before,
        });
    }

    /// Whatever was last written before this position may have been changed since.
    pub(super) fn doubt_before(&mut self, position: LogPosition) {
        self.unsure_before = self.unsure_before.max(Some(position));
    }

    /// Reads the log after the checkpoint to its end. What does not verify is passed by.
    pub(super) fn run(&mut self, log: &Log, last: &Super, prior: Prior) -> Result<Recovered> {
        let replay = RefCell::new(&mut *self);
        let found = log.recover_past(
            last.start,
            prior,
            &mut |address, frame| {
                layout::check_kind(log, address, frame.header.kind)?;
                let sequence = log.position(address).map_or(1, |at| at.sequence);
                replay
                    .borrow_mut()
                    .record((address, sequence), &frame, last.count);
                Ok(())
            },
            &mut |lost| replay.borrow_mut().lose(log, lost),
        )?;
        let end = found.end_after(prior, log.storage().as_ref());
        if !self.is_in_doubt() {
            end?;
        }
        Ok(found)
    }

    /// Whether damage was passed by of which it is unknown what it changed.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.unsure_before.is_some()
    }

    /// A place of the log that does not verify. `Corrupted` if a record of unknown type stood there.
    fn lose(&mut self, log: &Log, lost: &Lost) -> Result<()> {
        let mut damage = Damage {
            path: log.storage().path().to_path_buf(),
            offset: lost.offset,
            len: lost.len,
            found: lost.what.to_owned(),
            affects: Affects::Nothing,
        };
        match &lost.stood {
            Stood::Nothing => self.damage.push(damage),
            Stood::Unknown(until) => {
                let before = until.unwrap_or(LogPosition::new(u64::MAX, u32::MAX));
                self.doubt_before(before);
                damage.affects = Affects::Before {
                    until: until.map_or_else(String::new, |until| until.to_string()),
                };
                self.damage.push(damage);
            }
            Stood::Records(records) => {
                let mut is_in_a_record = false;
                for record in records {
                    let address = log.address(lost.place.0, record.at);
                    layout::check_kind(log, address, record.header.kind)?;
                    let found = match record.standing {
                        Standing::Verifies if record.header.kind == FrameKind::MARK => {
                            record.value.clone_into(&mut self.mark);
                            continue;
                        }
                        Standing::Verifies => {
                            self.record_as(address, &record.frame(), true);
                            continue;
                        }
                        Standing::Corrected => "one bit of a record is wrong",
                        Standing::ValueLost => "the value of a record is damaged",
                    };
                    if record.header.kind == FrameKind::MARK {
                        record.value.clone_into(&mut self.mark);
                        continue;
                    }
                    is_in_a_record = true;
                    self.keys.insert(address.0, record.key.clone());
                    self.record_as(address, &record.frame(), false);
                    self.damage.push(Damage {
                        found: found.to_owned(),
                        affects: Affects::Record(record.key.clone()),
                        ..damage.clone()
                    });
                }
                if !is_in_a_record {
                    self.damage.push(damage);
                }
            }
        }
        Ok(())
    }

    /// One record of the log, at this address in the segment of this sequence; at the checkpoint there were `base` records.
    pub(super) fn record(
        &mut self,
        (address, sequence): (Address, u64),
        frame: &Frame<'_>,
        base: u64,
    ) {
        let kind = frame.header.kind;
        if kind == layout::CLEAR {
            self.partitions.fill_with(Replayed::default);
            self.dead.clear();
            self.keys.clear();
            // What was lost before is lost no more: everything was cleared.
            self.unsure_before = None;
            for damage in &mut self.damage {
                damage.affects = Affects::Nothing;
            }
            // Nor does it matter what the checkpoint held.
            if let Some(unlisted) = &mut self.unlisted {
                unlisted.unsure_before = None;
            }
            if let Some(mark) = layout::mark_of(frame) {
                mark.clone_into(&mut self.mark);
            }
            self.cleared = sequence;
            self.count = -base.cast_signed();
            return;
        }
        if let Some(mark) = layout::mark_of(frame) {
            mark.clone_into(&mut self.mark);
            self.dead.push((address, frame.len()));
            return;
        }
        self.record_as(address, frame, true);
    }

    /// `verifies`: whether it does. What does not stays in the index, so that reading it is an error, also if it
    /// removed the record.
    fn record_as(&mut self, address: Address, frame: &Frame<'_>, verifies: bool) {
        let kind = frame.header.kind;
        let hash = Hash::of_key(frame.key, &self.secrets);
        let moved = frame.has(crate::format::frame::MOVED);
        match kind {
            layout::INSERT if !moved => self.count += 1,
            layout::REMOVE => {
                self.count -= 1;
                if verifies {
                    self.dead.push((address, frame.len()));
                }
            }
            _ => {}
        }
        let partition = &mut self.partitions[hash.partition()];
        if kind == layout::REMOVE && verifies {
            partition.removes.push(partition.entries.len() as u32);
        }
        partition.entries.push(entry(hash, address.0));
    }

    /// Partitions of which records were replayed, or all if everything was cleared.
    pub(super) fn changed(&self) -> Vec<usize> {
        (0..PARTITIONS)
            .filter(|s| self.cleared > 0 || !self.partitions[*s].entries.is_empty())
            .collect()
    }

    /// The partitions, to be loaded when they are needed.
    pub(super) fn into_source(mut self, log: Arc<Log>, salt: u32, images: Vec<Image>) -> Unloaded {
        let known = Known {
            unsure_before: self.unsure_before,
            unlisted: self.unlisted,
            ..Known::default()
        };
        for damage in self.damage.drain(..) {
            known.note(damage);
        }
        let images = images.into_iter().enumerate();
        let images = images.filter(|(_, image)| self.cleared == 0 && !image.is_empty());
        let replayed = self.partitions.into_iter().enumerate();
        let replayed = replayed.filter(|(_, replayed)| !replayed.entries.is_empty());
        Unloaded {
            log,
            salt,
            images: images.collect(),
            replayed: replayed
                .map(|(partition, replayed)| (partition, Mutex::new(replayed)))
                .collect(),
            keys: self.keys,
            known: Arc::new(known),
        }
    }
}

impl Source for Unloaded {
    fn load(&self, partition: usize) -> Result<Vec<u64>> {
        let image = self
            .images
            .binary_search_by_key(&partition, |(partition, _)| *partition);
        let image = image.map_or_else(|_| Image::default(), |at| self.images[at].1);
        let storage = self.log.storage().as_ref();
        let read = Core::read_image(storage, self.salt, partition, image);
        let replayed = self.replayed.get(&partition).map(Mutex::lock);
        let mut replayed = replayed.filter(|replayed| !replayed.entries.is_empty());
        let (mut entries, bit) = read.inspect_err(|error| {
            if matches!(error.kind(), Kind::Corrupted | Kind::Io) {
                self.lose_image(partition, image, replayed.is_some());
            }
        })?;
        if let Some(replayed) = &mut replayed {
            let mut dead = Vec::new();
            entries = self.apply(&mut entries, replayed, &mut dead)?;
            replayed.dead = dead;
        }
        if let Some(offset) = bit {
            self.known.note_corrected(partition, storage.path(), offset);
        }
        Ok(entries)
    }

    fn loaded(&self, partition: usize) {
        let Some(replayed) = self.replayed.get(&partition) else {
            return;
        };
        let replayed = std::mem::take(&mut *replayed.lock());
        for (address, len) in replayed.dead {
            self.log.mark_dead(address, len);
        }
    }
}

impl Unloaded {
    /// The damage known so far.
    pub(super) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known)
    }

    #[cold]
    fn lose_image(&self, partition: usize, image: Image, is_changed: bool) {
        self.known.note(Damage {
            path: self.log.storage().path().to_path_buf(),
            offset: image.extent.offset,
            len: image.extent.len,
            found: "a part of the index checkpoint cannot be read".to_owned(),
            affects: Affects::Part {
                part: partition as u64,
                of: PARTITIONS as u64,
            },
        });
        if is_changed {
            self.log.refuse();
        }
    }

    /// The key of a frame; of one that does not verify, if it is known.
    fn key_at<'b>(&'b self, address: Address, buf: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        match self.keys.get(&address.0) {
            Some(key) => Ok(key),
            None => Ok(self.log.copy_frame(address, buf)?.key),
        }
    }

    /// `entries` with what the log recorded after them. Only entries of equal tags are looked at, since only
    /// they may be of one key.
    fn apply(
        &self,
        entries: &mut [u64],
        replayed: &Replayed,
        dead: &mut Vec<(Address, usize)>,
    ) -> Result<Vec<u64>> {
        let mut order: Vec<usize> = (0..replayed.entries.len()).collect();
        let tag = |entry: u64| entry >> ADDRESS_BITS;
        order.sort_by_key(|at| tag(replayed.entries[*at]));
        entries.sort_unstable();
        let mut out = Vec::with_capacity(entries.len() + order.len());
        let mut from = 0;
        let mut groups =
            order.chunk_by(|a, b| tag(replayed.entries[*a]) == tag(replayed.entries[*b]));
        for group in &mut groups {
            let wanted = tag(replayed.entries[group[0]]);
            let below = from + entries[from..].partition_point(|entry| tag(*entry) < wanted);
            out.extend_from_slice(&entries[from..below]);
            let above = below + entries[below..].partition_point(|entry| tag(*entry) == wanted);
            let mut same: Vec<u64> = entries[below..above].to_vec();
            from = above;
            let before = dead.len();
            for &at in group {
                let removes = replayed.removes.binary_search(&(at as u32)).is_ok();
                self.apply_one(&mut same, replayed.entries[at], removes, dead)?;
            }
            // An image may be newer than where replay begins: what an earlier frame replaced there came back with its own.
            let stays = |address: Address| same.iter().any(|entry| place_of(*entry) == address.0);
            let replaced = dead.split_off(before).into_iter();
            dead.extend(replaced.filter(|(address, _)| !stays(*address)));
            out.extend_from_slice(&same);
        }
        out.extend_from_slice(&entries[from..]);
        Ok(out)
    }

    /// One frame of the log onto the entries of its tag.
    fn apply_one(
        &self,
        same: &mut Vec<u64>,
        entry: u64,
        removes: bool,
        dead: &mut Vec<(Address, usize)>,
    ) -> Result<()> {
        let address = Address(place_of(entry));
        if !same.is_empty() {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            let key = self.key_at(address, &mut ours)?;
            let mut kept = Vec::with_capacity(same.len());
            for &other in same.iter() {
                let old = Address(place_of(other));
                if old == address {
                    continue;
                }
                if let Some(lost) = self.keys.get(&old.0) {
                    if lost != key {
                        kept.push(other);
                    }
                    continue;
                }
                match self.log.copy_frame(old, &mut theirs) {
                    Ok(frame) if frame.key == key => dead.push((old, frame.len())),
                    Ok(_) => kept.push(other),
                    // Hash and key, as far as they can be read, state that it was this record's: what it stated is replaced.
                    // Else it may be any other one's, and its entry stays.
                    Err(error) if error.kind() == Kind::Corrupted => {
                        if !self.log.seems_of(old, key) {
                            kept.push(other);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            *same = kept;
        }
        if !removes {
            same.push(entry);
        }
        Ok(())
    }
}
