//! Checks: whether everything that the store relies on is there and consistent.
//!
//! | checked | against |
//! |---|---|
//! | superblock: both slots; the label of a second device: both slots | their checksums; slots follow one another |
//! | root, images of leaves and lists | their checksums, and the counts in the root |
//! | journal after the checkpoint | every frame verifies, and is a known record |
//! | space | each unit belongs to an object, is free, or is in limbo |
//! | deep: extents of all objects | their checksums: store, place, id, put, every byte |
//!
//! A check does not stop at the first damage, and repairs none. Changes continue; checkpoints wait while images are read, and changes
//! while the space is summed up.

use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result};
use crate::format::superblock::{self, SLOT_SIZE, Superblock};
use crate::io::Storage;
use crate::kernel::Payload;
use crate::log::Address;
use crate::object::checkpoint::Checkpoint;
use crate::object::checkpoint::images::Images;
use crate::object::checkpoint::images::read_root;
use crate::object::checkpoint::root::Root;
use crate::object::checkpoint::superblock::{DATA, ENGINE, Super};
use crate::object::id::ObjectId;
use crate::object::index::{self, EXTENT, JOURNAL};
use crate::object::place::extent::{PIECE, UNIT};
use crate::object::place::space::{self};
use crate::object::place::span::Span;
use crate::object::read::get::FINDS_ALL;
use crate::object::{Core, Store};

/// Most findings that are listed.
const FINDINGS_MAX: usize = 1000;

/// The remedy where anything but a value is damaged.
const REPAIR: &str = "run `azekura object repair`";

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The device.
    pub device: PathBuf,
    /// Offset on it in bytes; `None`: no particular place.
    pub offset: Option<u64>,
    /// The object, if it concerns one.
    pub object: Option<ObjectId>,
    /// What is wrong, in one line, with place and object.
    pub what: String,
}

/// What a check read, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Slots of superblocks and labels that are whole. A reader counts those it found. One that does not verify is a finding,
    /// though a crash may have torn it: the other one is the only one then. The next open for writing rewrites superblocks,
    /// and a repair labels. A store whose creation ended between its two superblocks has one, and is sound.
    pub superblocks: u64,
    /// Images that are whole, of leaves and lists, and the root.
    pub images: u64,
    /// Records of the journal after the checkpoint.
    pub records: u64,
    /// Objects: in the index, and of these verified.
    pub objects: u64,
    /// See `objects`; 0 unless it was a deep check.
    pub verified: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// The findings; at most 1000.
    pub findings: Vec<Finding>,
    /// Number of all findings.
    pub found: u64,
    /// Findings that cost nothing: the next open for writing repairs them.
    pub rewritable: u64,
}

impl CheckReport {
    /// Whether nothing was found.
    pub fn is_sound(&self) -> bool {
        self.found == 0
    }

    /// Whether anything was found that opening the store for writing does not repair.
    pub fn needs_repair(&self) -> bool {
        self.found > self.rewritable
    }

    pub(crate) fn note(&mut self, finding: Finding) {
        self.found += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// Adds a finding.
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
    /// Checks what the store relies on, and with `deep` every byte of every object. Damage is reported, not an error; `progress`
    /// gets the number of objects done, and their total. Costs a read of the images, and with `deep` of all objects.
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

    /// Checks that every unit of the device belongs to an object, is free, or is in limbo; blocks changes meanwhile. `Corrupted`
    /// with the first place where that is not so. No access, except for lists and leaves that are not loaded.
    pub fn check_room(&self) -> Result<()> {
        self.core.check_room()
    }
}

impl Core {
    fn check_superblocks(&self, state: &Checkpoint, report: &mut CheckReport) {
        let (sequence, last) = (state.committed.superblock.sequence, state.last());
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
        let last = state.last();
        if last.devices != 2 {
            return;
        }
        let data = self.data.as_ref();
        let slots = [0, SLOT_SIZE].map(|offset| (offset, read_slot(data, offset, DATA)));
        let is_own = |label: &Superblock| last.has_label(label);
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
        let last = state.last();
        let storage = self.log.storage();
        let root = match read_root(storage.as_ref(), last) {
            Ok(root) => root,
            Err(error) => {
                let offset = last.manifest.root.map(|root| root.offset);
                report.note_at(storage.path(), offset, error.to_string());
                return;
            }
        };
        report.images += u64::from(last.manifest.root.is_some());
        let images = Images::new(storage, self.salt, last.units);
        let mut record = |offset: u64, result: Result<()>| match result {
            Ok(()) => report.images += 1,
            Err(error) => report.note_at(storage.path(), Some(offset), error.to_string()),
        };
        for (at, (first, image)) in root.leaves.iter().enumerate() {
            let Some(image) = image else { continue };
            let end = root.leaves.get(at + 1).map(|(first, _)| *first);
            let loaded = index::Source::load(&images, image, *first, end);
            record(image.extent.offset, loaded.map(drop));
        }
        self.check_lists(&root, last, &images, &mut record);
    }

    fn check_lists(
        &self,
        root: &Root,
        last: &Super,
        images: &Images,
        record: &mut dyn FnMut(u64, Result<()>),
    ) {
        for (group, state) in root.groups.iter().enumerate() {
            let Some(image) = state.image else { continue };
            let first = group as u64 * u64::from(self.group_units);
            let limit = (last.units - first).min(u64::from(self.group_units)) as u32;
            let loaded = space::Source::runs(images, group as u32, image, limit);
            let counted = loaded.and_then(|runs| {
                if runs.free() == state.free {
                    return Ok(());
                }
                Err(images.impossible("the list of a group", image))
            });
            record(image.offset, counted);
        }
    }

    fn check_journal(&self, report: &mut CheckReport) -> Result<()> {
        let mut records = 0;
        let end = self.each_record(&mut |_, _| {
            records += 1;
            true
        })?;
        report.records = records;
        for segment in self.log.mismatched_headers() {
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
                // Its image was reported before; its objects are unknown.
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

    /// The finding for an object that does not verify.
    pub(crate) fn finding(&self, id: ObjectId, entry: index::Entry, error: &Error) -> Finding {
        // The remedy of a check differs from that of a get.
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

    /// The device that holds an object.
    pub(crate) fn device_of(&self, entry: index::Entry) -> &Path {
        match entry.kind {
            JOURNAL => self.log.storage().path(),
            _ => self.data.path(),
        }
    }

    /// Offset of an object on its device.
    pub(crate) fn offset_of_entry(&self, entry: index::Entry) -> u64 {
        match entry.kind {
            JOURNAL => Address(entry.place).offset(),
            _ => self.data_offset + entry.place * PIECE,
        }
    }

    fn check_room(&self) -> Result<()> {
        let _alone = self.gate.write();
        let mut spans: Vec<(Span, Option<ObjectId>)> = Vec::new();
        for object in self.entries(..) {
            let (id, entry) = object?;
            if entry.kind == EXTENT {
                spans.push((Self::span_of(entry), Some(id)));
            }
        }
        let mut allocator = self.allocator.lock();
        let mut others = allocator.space.all_free()?;
        others.extend(allocator.space.unlisted());
        others.extend(allocator.packed_extents.all().map(|packed| packed.span));
        others.extend(allocator.in_progress.values());
        spans.extend(others.into_iter().map(|span| (span, None)));
        let units = allocator.space.units();
        drop(allocator);
        spans.sort_unstable_by_key(|(span, _)| *span);
        let wrong = |what: &str, unit: u64| {
            Error::new(Kind::Corrupted, format!("space on the device {what}"))
                .at(self.data.path())
                .offset(self.data_offset + unit * UNIT)
                .remedy(REPAIR)
        };
        let neither = "is neither occupied nor free";
        let mut at = 0;
        for (span, id) in spans {
            if span.unit != at || span.end() > units {
                let is_twice = span.unit < at;
                let what = if is_twice {
                    "is occupied twice"
                } else {
                    neither
                };
                let of = id.map_or_else(|| "free space".to_owned(), |id| format!("object {id}"));
                return Err(wrong(what, at.min(span.unit)).detail(format!("before or at {of}")));
            }
            at = span.end();
        }
        if at != units {
            return Err(wrong(neither, at));
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
