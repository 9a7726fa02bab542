//! Checking: every byte that is relied on, against its checksum and against the rest.
//!
//! Read-only. What is verified: the superblock slots, the root and every image; every frame of every segment;
//! that every entry of the index points to a record whose hash is the entry's; that no key is there twice;
//! that the count is right, if nothing was changed while the index was walked. It runs concurrently with readers and writers: what
//! they change meanwhile is verified in its old or its new state. It does not stop at the first damage, and repairs none:
//! `repair` does.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use rapidhash::v3::RapidSecrets;

use super::Core;
use super::layout::{self, Image, ROOT_SEED, Super};
use super::recover::{Known, corrected_bit};
use crate::engine::CheckReport;
use crate::epoch::Pin;
use crate::error::Result;
use crate::format::frame::Frame;
use crate::index::Index;
use crate::index::hash::{Hash, PARTITIONS};
use crate::kernel::SuperblockPair;
use crate::kernel::superblock::damaged_slots;
use crate::log::layout::{CONTROL_OFFSET, FIRST_FRAME, Link};
use crate::log::manifest::{Extent, read_extent};
use crate::log::{Address, End, Log, LogPosition, Segment, Stop, Use};

/// What a writer stores now is there after so long.
const SHORTLY: Duration = Duration::from_millis(20);

/// What is checked.
pub(super) struct Checked<'c> {
    pub(super) log: &'c Log,
    pub(super) index: &'c Index,
    pub(super) secrets: &'c RapidSecrets,
    pub(super) root: Vec<Extent>,
    pub(super) images: Vec<Image>,
    /// The end of the log: it moves with every change.
    pub(super) end: &'c dyn Fn() -> End,
    /// What lies before it was synced: there, nothing can be blank.
    pub(super) durable: LogPosition,
    /// What opening found.
    pub(super) known: &'c Known,
    pub(super) count: &'c dyn Fn() -> u64,
    /// Another process may write it meanwhile: frames are copied, and verified in the copy.
    pub(super) is_shared: bool,
}

impl Core {
    pub(super) fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        // Nothing is cleaned meanwhile, so no segment is reused under the walk; and no checkpoint is made.
        let _cleaning = self.cleaning.lock();
        let state = self.checkpoint.lock();
        Checked {
            log: &self.log,
            index: &self.index,
            secrets: &self.secrets,
            root: state.committed.root.clone(),
            images: state.images.clone(),
            end: &|| self.log.end(),
            durable: self.log.durable(),
            known: &self.known,
            count: &|| self.count(),
            is_shared: false,
        }
        .check(progress)
    }
}

impl Checked<'_> {
    pub(super) fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let open = (self.end)().segment();
        // None of a writer's own file: that is open.
        let closed = SuperblockPair::<Super>::read(self.log.storage().as_ref()).ok();
        let closed = closed.map(|of| of.payload).filter(|last| !last.open);
        let segments = self.log.segments().in_use(Use::Log);
        let total = segments.len() as u64 + PARTITIONS as u64;
        for damage in damaged_slots::<Super>(self.log.storage().as_ref())? {
            report.note(damage.to_string());
            report.rewritable += 1;
        }
        if self.is_mark_damaged() {
            report.note(format!(
                "the mark of what is durable does not verify at {} offset {CONTROL_OFFSET:#x}: no record is affected",
                self.log.storage().path().display()
            ));
        }
        for damage in self.known.list().into_iter().chain(self.log.unreadable()) {
            report.note(damage.to_string());
        }
        self.check_headers(&mut report);
        self.check_checkpoint(&mut report);
        for (done, segment) in segments.iter().enumerate() {
            progress(done as u64, total);
            self.check_segment(segment, open, closed.as_ref(), &mut report)?;
        }
        let end = (self.end)();
        // Every change before this end is in the index, and counted. A later one moves the end.
        self.log.domain().wait_for_critical_sections();
        let counted = (self.count)();
        for partition in 0..PARTITIONS {
            if partition % 64 == 0 {
                progress(segments.len() as u64 + partition as u64, total);
            }
            if let Err(error) = self.check_partition(partition, &mut report) {
                report.note_error(error);
            }
        }
        if report.is_sound() && report.records != counted && (self.end)() == end {
            let found = report.records;
            report.note(format!("{found} records found, {counted} counted"));
        }
        progress(total, total);
        Ok(report)
    }

    /// Whether the mark holds nothing that a writer stores. A writer may be storing it now, so it is read twice.
    fn is_mark_damaged(&self) -> bool {
        let has_bits = || self.log.map().load_u64(CONTROL_OFFSET) != 0;
        !self.log.is_mark_whole() && has_bits() && {
            std::thread::sleep(SHORTLY);
            !self.log.is_mark_whole()
        }
    }

    /// Headers that opening does not need while the root names their segments. A segment may be taken or freed now, so
    /// what seems damaged is read again.
    fn check_headers(&self, report: &mut CheckReport) {
        let mismatched = self.log.mismatched_headers();
        if mismatched.is_empty() {
            return;
        }
        std::thread::sleep(SHORTLY);
        let again = self.log.mismatched_headers();
        for segment in mismatched.iter().filter(|of| {
            again
                .iter()
                .any(|other| (other.index, other.sequence) == (of.index, of.sequence))
        }) {
            report.note(format!(
                "the header of the segment at offset {:#x} does not verify: no record is affected",
                self.log.geometry().offset_of(segment.index)
            ));
        }
    }

    /// `open`: the segment that is being appended to; `closed`: the superblock, if the file was closed.
    fn check_segment(
        &self,
        segment: &Segment,
        open: u32,
        closed: Option<&Super>,
        report: &mut CheckReport,
    ) -> Result<()> {
        let (index, sequence) = (segment.index, segment.sequence);
        let mut from = FIRST_FRAME;
        loop {
            let count = &mut |_: u32, frame: Frame<'_>| {
                report.bytes += frame.len() as u64;
                Ok(())
            };
            let stop = if self.is_shared {
                self.log.walk_copied(index, from, count)
            } else {
                self.log.walk(index, from, count)
            }?;
            let Stop::NoFrame { at, blank, reason } = stop else {
                return Ok(());
            };
            let offset = self.log.geometry().offset_of(index) + u64::from(at);
            let position = LogPosition::new(sequence, at);
            if blank && (index == open || self.log.link(index, sequence) == Link::None) {
                return Ok(());
            }
            if position >= self.durable && closed.is_some_and(|last| last.is_after_close(position))
            {
                return Ok(());
            }
            if !self.known.has_noted(offset) && (!blank || position < self.durable) {
                report.note(format!(
                    "no frame at offset {offset:#x} of the log ({reason})"
                ));
            }
            // Damage; or a thread is at work here, or its process was killed here and no process has opened the file for
            // writing since. After it the log continues.
            let Some(after) = self.log.resume_after(index, at) else {
                return Ok(());
            };
            from = after;
        }
    }

    fn check_checkpoint(&self, report: &mut CheckReport) {
        let storage = self.log.storage();
        let salt = self.log.geometry().salt;
        for piece in &self.root {
            report.bytes += piece.len;
            let what = "the root of the checkpoint";
            if let Err(error) = read_extent(storage.as_ref(), *piece, salt ^ ROOT_SEED, what) {
                report.note_error(error);
            }
        }
        for (partition, image) in self.images.iter().enumerate() {
            match Core::read_image(storage.as_ref(), salt, partition, *image) {
                Ok((_, None)) => report.bytes += image.extent.len,
                Ok((_, Some(offset))) => {
                    let damage = corrected_bit(storage.path(), offset).to_string();
                    // Opening or a read may have noted it.
                    if !report.damage.contains(&damage) {
                        report.note(damage);
                    }
                }
                Err(error) => report.note_error(error),
            }
        }
    }

    fn check_partition(&self, partition: usize, report: &mut CheckReport) -> Result<()> {
        let mut at = Some(Hash::first_of(partition));
        while let Some(from) = at.filter(|hash| hash.partition() == partition) {
            let pin = self.index.pin();
            let (entries, next) = self.index.scan_chunk(&pin, from)?;
            let mut keys = HashSet::with_capacity(entries.len());
            for (known, place) in entries {
                let address = Address(place);
                let offset = address.offset();
                match self.key_at(&pin, address) {
                    Err(error) => report.note_record(offset, error),
                    Ok(key) => {
                        let is_of_entry =
                            |key: &[u8]| Hash::of_key(key, self.secrets).known() == known;
                        let Some(key) = key.filter(|key| is_of_entry(key)) else {
                            report
                                .note(format!("an entry points to a wrong record at {offset:#x}"));
                            continue;
                        };
                        if keys.contains(&key) {
                            let key = crate::error::quote(&key);
                            report.note(format!("key {key} is there twice, again at {offset:#x}"));
                        } else {
                            keys.insert(key);
                            report.records += 1;
                        }
                    }
                }
            }
            at = next;
        }
        Ok(())
    }

    /// The key of the record at an address; `None`: what stands there is no record.
    fn key_at<'p>(&'p self, pin: &'p Pin, address: Address) -> Result<Option<Cow<'p, [u8]>>> {
        let is_record = |frame: &Frame<'_>| layout::is_record(frame.header.kind);
        if self.is_shared {
            let mut buf = Vec::new();
            let frame = self.log.copy_frame(address, &mut buf)?;
            return Ok(is_record(&frame).then(|| frame.key.to_vec().into()));
        }
        let frame = self.log.frame(pin, address)?;
        Ok(is_record(&frame).then_some(frame.key.into()))
    }
}

impl CheckReport {
    /// A record that cannot be read, unless its place was reported when the log was walked.
    fn note_record(&mut self, offset: u64, error: crate::error::Error) {
        let of_log = format!("no frame at offset {offset:#x} of the log ");
        if !self.damage.iter().any(|found| found.starts_with(&of_log)) {
            self.note_error(error);
        }
    }
}
