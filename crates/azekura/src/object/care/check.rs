//! Whether everything that is relied on is there and says the same.
//!
//! | looked at | against |
//! |---|---|
//! | superblock: both slots; the label of a second device: both slots | their checksums; slots follow one another |
//! | root, images of leaves and lists | their checksums, and what the root says they hold |
//! | journal behind the checkpoint | every frame is one and says something that is known |
//! | room | each unit is an object's, free, or about to be |
//! | deep: extents of all objects | their checksums: store, place, id, put, every byte |
//!
//! It does not stop at the first damage, and mends none: `repair` does. Changes go on; checkpoints wait while images are read,
//! and changes while the room is added up.

use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result};
use crate::format::superblock::{self, SLOT_SIZE, Superblock};
use crate::io::Storage;
use crate::log::Address;
use crate::object::checkpoint::Checkpoint;
use crate::object::checkpoint::images::Images;
use crate::object::checkpoint::root::Root;
use crate::object::checkpoint::slots::read_root;
use crate::object::checkpoint::superblock::{DATA, ENGINE, Super, decode_label};
use crate::object::id::ObjectId;
use crate::object::index::{self, EXTENT, JOURNAL};
use crate::object::place::extent::{PIECE, UNIT};
use crate::object::place::space::{self};
use crate::object::place::span::Span;
use crate::object::read::get::FINDS_ALL;
use crate::object::{Core, Store};

/// Findings are listed up to this many; then it is clear that a repair is due.
const FINDINGS_MAX: usize = 1000;

/// What helps where anything but a value is damaged.
const REPAIR: &str = "run `azekura object repair`";

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The device.
    pub device: PathBuf,
    /// Where on it, in bytes; `None`: nowhere in particular.
    pub offset: Option<u64>,
    /// The object, if it is one's.
    pub object: Option<ObjectId>,
    /// What is wrong, in a line that names the same.
    pub what: String,
}

/// What a check looked at, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Slots of superblocks and labels that are whole. A reader counts those it found. One that does not verify is a finding,
    /// though a crash may have torn it: the other one is all there is then. The next open for writing writes superblocks again,
    /// and a repair labels. A store whose creation ended between its two superblocks has one, and is sound.
    pub superblocks: u64,
    /// Images that are whole, of leaves and lists, and the root.
    pub images: u64,
    /// Records of the journal behind the checkpoint.
    pub records: u64,
    /// Objects: in the index, and of these verified.
    pub objects: u64,
    /// See `objects`; 0 unless it was a deep check.
    pub verified: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// What is wrong; at most 1000.
    pub findings: Vec<Finding>,
    /// How much is wrong.
    pub found: u64,
    /// How much of it costs nothing and is written again when the store is opened for writing.
    pub rewritable: u64,
}

impl CheckReport {
    /// Whether nothing was found.
    pub fn is_sound(&self) -> bool {
        self.found == 0
    }

    /// Whether anything was found that opening the store for writing does not write again.
    pub fn needs_repair(&self) -> bool {
        self.found > self.rewritable
    }

    pub(crate) fn note(&mut self, finding: Finding) {
        self.found += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// Notes `what` is at a place, which the line names after it.
    fn note_place(&mut self, device: &Path, offset: u64, what: &str) {
        let line = format!("{what} at {} offset {offset:#x}", device.display());
        self.note_at(device, Some(offset), line);
    }

    fn note_at(&mut self, device: &Path, offset: Option<u64>, what: String) {
        self.note(Finding {
            device: device.to_owned(),
            offset,
            object: None,
            what,
        });
    }
}

impl Store {
    /// Checks what the store relies on, and with `deep` every byte of every object. Damage is reported, not an error;
    /// `progress` is told objects done, of how many. Costs a read of the journal's images, and deep of all objects.
    pub fn check(&self, deep: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let core = &self.core;
        let mut report = CheckReport {
            objects: core.index.count(),
            ..CheckReport::default()
        };
        core.log.healthy()?;
        for damage in self.damage() {
            let offset = (damage.offset > 0).then_some(damage.offset);
            report.note_at(&damage.path, offset, damage.to_string());
        }
        let state = core.checkpoint.lock();
        core.check_superblocks(&state, &mut report);
        core.check_label(&state, &mut report);
        core.check_images(&state, &mut report);
        drop(state);
        core.check_journal(&mut report)?;
        if report.is_sound()
            && let Err(error) = core.check_room()
        {
            report.note_at(core.data.path(), None, error.to_string());
        }
        if deep {
            core.check_objects(&mut report, progress)?;
        }
        Ok(report)
    }

    /// Checks that every unit of the device is an object's, free, or about to be; holds up changes meanwhile. `Corrupted`
    /// with the first place where that is not so. No access but for lists and leaves that were not needed yet.
    pub fn check_room(&self) -> Result<()> {
        self.core.check_room()
    }
}

impl Core {
    fn check_superblocks(&self, state: &Checkpoint, report: &mut CheckReport) {
        let Some((sequence, last)) = &state.superblock else {
            return;
        };
        let storage = self.log.storage().as_ref();
        for slot in [sequence & 1, (sequence & 1) ^ 1] {
            let wanted = sequence.saturating_sub(u64::from(slot != sequence & 1));
            let offset = slot * SLOT_SIZE;
            let block = match read_slot(storage, offset, ENGINE) {
                Ok(block) => block,
                Err(error) => {
                    report.note_at(storage.path(), Some(offset), error.to_string());
                    continue;
                }
            };
            let payload = Super::decode(&block.payload);
            if block.sequence == wanted && payload.is_some_and(|of| of.identity == last.identity) {
                report.superblocks += 1;
            } else {
                let what = "a superblock is not the one that was written";
                report.note_place(storage.path(), offset, what);
            }
        }
    }

    fn check_label(&self, state: &Checkpoint, report: &mut CheckReport) {
        let Some((_, last)) = state
            .superblock
            .as_ref()
            .filter(|(_, last)| last.devices == 2)
        else {
            return;
        };
        let data = self.data.as_ref();
        let slots = [0, SLOT_SIZE].map(|offset| (offset, read_slot(data, offset, DATA)));
        let is_own = |label: &Superblock| {
            let of = decode_label(&label.payload).map(|(identity, _)| identity);
            of == Some(last.identity)
        };
        let has_whole = slots
            .iter()
            .any(|(_, read)| read.as_ref().is_ok_and(is_own));
        for (offset, read) in slots {
            let what = match read {
                Ok(label) if is_own(&label) => {
                    report.superblocks += 1;
                    continue;
                }
                Ok(_) => {
                    report.note_place(data.path(), offset, "the label is of another store");
                    continue;
                }
                Err(error) if error.kind() != Kind::Io && has_whole => format!(
                    "the label at offset {offset:#x} of {} does not verify; the other one is whole, and nothing is lost: a repair writes both",
                    data.path().display()
                ),
                Err(error) => error.to_string(),
            };
            report.note_at(data.path(), Some(offset), what);
        }
    }

    fn check_images(&self, state: &Checkpoint, report: &mut CheckReport) {
        let Some((_, last)) = &state.superblock else {
            return;
        };
        let storage = self.log.storage();
        let root = match read_root(storage.as_ref(), last) {
            Ok(root) => root,
            Err(error) => {
                let offset = last.anchor.root.map(|root| root.offset);
                report.note_at(storage.path(), offset, error.to_string());
                return;
            }
        };
        report.images += u64::from(last.anchor.root.is_some());
        let images = Images::new(storage, self.salt, last.units);
        let mut say = |offset: u64, result: Result<()>| match result {
            Ok(()) => report.images += 1,
            Err(error) => report.note_at(storage.path(), Some(offset), error.to_string()),
        };
        for (at, (first, image)) in root.leaves.iter().enumerate() {
            let Some(image) = image else { continue };
            let end = root.leaves.get(at + 1).map(|(first, _)| *first);
            let loaded = index::Source::load(&images, image, *first, end);
            say(image.extent.offset, loaded.map(drop));
        }
        self.check_lists(&root, last, &images, &mut say);
    }

    fn check_lists(
        &self,
        root: &Root,
        last: &Super,
        images: &Images,
        say: &mut dyn FnMut(u64, Result<()>),
    ) {
        for (group, told) in root.groups.iter().enumerate() {
            let Some(image) = told.image else { continue };
            let first = group as u64 * u64::from(self.group_units);
            let limit = (last.units - first).min(u64::from(self.group_units)) as u32;
            let loaded = space::Source::runs(images, group as u32, image, limit);
            let counted = loaded.and_then(|runs| {
                if runs.free() == told.free {
                    return Ok(());
                }
                Err(images.impossible("the list of a group", image))
            });
            say(image.offset, counted);
        }
    }

    fn check_journal(&self, report: &mut CheckReport) -> Result<()> {
        let mut records = 0;
        let end = self.each_record(&mut |_, _| {
            records += 1;
            true
        })?;
        report.records = records;
        for segment in self.log.untrue_headers() {
            let offset = self.log.geometry().offset_of(segment.index);
            let what = "the header of a segment of the journal does not verify";
            report.note_place(self.log.storage().path(), offset, what);
        }
        if let Some((offset, what)) = end {
            report.note_place(self.log.storage().path(), offset, &what);
        }
        Ok(())
    }

    pub(crate) fn check_objects(
        &self,
        report: &mut CheckReport,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let mut next = Some(ObjectId(0));
        while let Some(from) = next {
            progress(report.verified, report.objects.max(report.verified));
            let mut page = match self.index.page(from) {
                Ok(page) => page,
                // Its image was found to be damaged before: whose objects it holds nobody can tell.
                Err(error)
                    if [Kind::Corrupted, Kind::Io].contains(&error.kind())
                        && !report.is_sound() =>
                {
                    next = self.index.after(from);
                    continue;
                }
                Err(error) => return Err(error),
            };
            page.entries.sort_unstable_by_key(|(_, entry)| entry.place);
            for (id, entry) in page.entries {
                match self.verify(id, &mut |_| ()) {
                    Ok(None) => {}
                    Ok(Some(len)) => {
                        report.verified += 1;
                        report.bytes += len;
                    }
                    Err(error) => report.note(self.finding(id, entry, &error)),
                }
            }
            next = page.next;
        }
        progress(report.objects, report.objects);
        Ok(())
    }

    /// What is told of an object that does not verify.
    pub(crate) fn finding(&self, id: ObjectId, entry: index::Entry, error: &Error) -> Finding {
        // It is a check that found it.
        let mut finding = error.to_string();
        let len = finding
            .strip_suffix(FINDS_ALL)
            .map_or(finding.len(), str::len);
        finding.truncate(len);
        Finding {
            device: self.device_of(entry).to_owned(),
            offset: Some(self.offset_of_entry(entry)),
            object: Some(id),
            what: finding,
        }
    }

    /// The device on which an object is.
    pub(crate) fn device_of(&self, entry: index::Entry) -> &Path {
        match entry.kind {
            JOURNAL => self.log.storage().path(),
            _ => self.data.path(),
        }
    }

    /// Where an object begins, on its device.
    pub(crate) fn offset_of_entry(&self, entry: index::Entry) -> u64 {
        match entry.kind {
            JOURNAL => Address(entry.place).offset(),
            _ => self.data_offset + entry.place * PIECE,
        }
    }

    fn check_room(&self) -> Result<()> {
        let _alone = self.gate.write();
        let mut spans: Vec<(Span, Option<ObjectId>)> = Vec::new();
        self.each_in(ObjectId(0), ObjectId(u128::MAX), |id, entry| {
            if entry.kind == EXTENT {
                spans.push((Self::span_of(entry), Some(id)));
            }
            Ok(())
        })?;
        let mut room = self.room.lock();
        spans.extend(room.space.all_free()?.into_iter().map(|span| (span, None)));
        spans.extend(room.space.between().map(|span| (span, None)));
        spans.extend(room.packs.all().map(|pack| (pack.span, None)));
        spans.extend(room.under_way.values().map(|span| (*span, None)));
        let units = room.space.units();
        drop(room);
        spans.sort_unstable_by_key(|(span, _)| *span);
        let mut at = 0;
        for (span, id) in spans {
            if span.unit != at || span.end() > units {
                let what = if span.unit < at {
                    "belongs to two"
                } else {
                    "is nobody's"
                };
                let of = id.map_or_else(|| "free room".to_owned(), |id| format!("object {id}"));
                return Err(
                    Error::new(Kind::Corrupted, format!("room on the device {what}"))
                        .at(self.data.path())
                        .offset(self.data_offset + at.min(span.unit) * UNIT)
                        .detail(format!("before or at {of}"))
                        .remedy(REPAIR),
                );
            }
            at = span.end();
        }
        if at != units {
            return Err(
                Error::new(Kind::Corrupted, "room on the device is nobody's")
                    .at(self.data.path())
                    .offset(self.data_offset + at * UNIT)
                    .remedy(REPAIR),
            );
        }
        Ok(())
    }
}

/// One slot of a superblock, alone.
fn read_slot(storage: &dyn Storage, offset: u64, engine: [u8; 8]) -> Result<Superblock> {
    let mut slot = vec![0; superblock::SLOT_SIZE as usize];
    storage.read_at(offset, &mut slot)?;
    Superblock::current(&slot, &engine).map_err(|error| {
        let error = error.at(storage.path()).offset(offset);
        // The store is open, so one slot was whole.
        error.remedy(REPAIR)
    })
}
