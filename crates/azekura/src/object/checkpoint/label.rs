//! The label of a second device: which store its data belongs to.
//!
//! It has two slots with the same contents. A repair accepts one whole slot of this store, and refuses a label of another store, or
//! anything else in its place. Where both slots are damaged or blank the device may belong to someone else: it is the store's if an
//! object is found on it where the store has one.

use crate::error::{Error, Kind, Result};
use crate::format::superblock::{self, Superblock};
use crate::io::Storage;
use crate::kernel::Slots;
use crate::object::Core;
use crate::object::care::report::Repaired;
use crate::object::checkpoint::superblock::other_place;
use crate::object::checkpoint::superblock::{DATA, Super, encode_label};
use crate::object::index::JOURNAL;

/// Most objects that are looked for on a device without a label.
const WITNESSES: u64 = 1000;
/// Bytes that must be blank where the store has no object: file systems and partition tables begin there.
const MARKS: u64 = 1 << 20;

/// Contents of the place of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// This store's, or none is needed.
    Ours,
    /// A damaged one, of any store.
    Damaged,
    /// Zeros.
    Blank,
}

/// A label that is damaged in one slot is written again; one of another store, or something else, is an error.
pub(crate) fn check_label(
    data: Option<&dyn Storage>,
    last: &Super,
    report: &mut Repaired,
) -> Result<Label> {
    let Some(data) = data else {
        if last.devices == 2 {
            return Err(
                Error::new(Kind::Mismatch, "the store has its data on another device")
                    .remedy("give both devices: --data"),
            );
        }
        return Ok(Label::Ours);
    };
    if last.devices != 2 {
        let error = Error::new(Kind::Mismatch, "the store has one device").at(data.path());
        return Err(error.remedy("leave the other one out: no --data"));
    }
    let Slots { head, refused } = Slots::read(data)?;
    // An unreadable slot reads as zeros.
    let (mut whole, mut damaged, mut other) = (0, refused.len(), None);
    for slot in head.chunks(superblock::SLOT_SIZE as usize) {
        match Superblock::current(slot, &DATA) {
            Ok(label) => {
                last.check_label(&label, data)?;
                whole += 1;
            }
            Err(error) if error.kind() == Kind::Corrupted => damaged += 1,
            Err(_) if slot.iter().all(|byte| *byte == 0) => {}
            // Neither blank nor a slot: damaged, if the other slot is whole.
            Err(error) => other = Some(error),
        }
    }
    if whole > 0 {
        if whole < 2 {
            write_label(data, last)?;
        }
        return Ok(Label::Ours);
    }
    if let Some(error) = other.filter(|_| damaged == 0) {
        return Err(other_place(error, &head).at(data.path()));
    }
    report.lose(data.path(), 0, "the label was damaged");
    Ok(match damaged {
        0 => Label::Blank,
        _ => Label::Damaged,
    })
}

pub(crate) fn write_label(data: &dyn Storage, payload: &Super) -> Result<()> {
    for sequence in 0..2 {
        let label = Superblock {
            engine: DATA,
            sequence,
            payload: encode_label(payload.identity, payload.units),
        };
        data.write_at(label.slot_offset(), &label.encode())?;
    }
    data.sync()
}

impl Core {
    /// `Mismatch` unless an object is found on the data device where the store has one; or the store has none, and the device is
    /// blank.
    pub(crate) fn vouch(&self, label: Label) -> Result<()> {
        let (mut wanted, mut found) = (0, false);
        for object in self.entries(..) {
            let (id, entry) = object?;
            if !found && entry.kind != JOURNAL && wanted < WITNESSES {
                wanted += 1;
                found = matches!(self.read_entry(id, entry, &(0..1)), Ok(Ok(_)));
            }
        }
        let is_empty = || {
            let there = self.data.size()?.saturating_sub(self.data_offset);
            let mut bytes = vec![0; there.min(MARKS) as usize];
            self.data.read_at(self.data_offset, &mut bytes)?;
            Ok(bytes.iter().all(|byte| *byte == 0))
        };
        if found || wanted == 0 && (label == Label::Damaged || is_empty()?) {
            return Ok(());
        }
        Err(Error::new(
            Kind::Mismatch,
            "the device has no label, and nothing of this store",
        )
        .at(self.data.path())
        .remedy(
            "give the device of its data; if it is this one, all of that is gone: restore a backup",
        ))
    }
}
