//! What a repair of an object store reports: losses, objects in doubt, damage that stays.
//!
//! Each list has at most a thousand entries, in an order that is the same in every run; the counts cover all. A loss is a line that
//! states what and where. An object in doubt is in the store, and may not be the last one stored under its id: it is listed with
//! the place where it was found and the reason.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::io::Storage;
use crate::kernel::report::list;
use crate::object::care::correct::Corrected;
use crate::object::id::ObjectId;

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Objects in the store now.
    pub objects: u64,
    /// Units of data that were scanned; 0: the index was whole.
    pub scanned: u64,
    /// Of the objects, those in doubt: a record of their removal or replacement may be lost.
    pub doubtful: u64,
    /// The objects in doubt, in the order of ids; at most 1000.
    pub doubted: Vec<Doubted>,
    /// Number of losses.
    pub losses: u64,
    /// One line per loss: what, and where; at most 1000.
    pub lost: Vec<String>,
    /// One line for each damaged place without a loss.
    pub corrected: Vec<String>,
    /// Objects that do not verify, beyond repair.
    pub damaged: u64,
    /// One line for each, unless it is among the losses; at most 1000.
    pub damage: Vec<String>,
    /// The places of the listed losses.
    pub(crate) places: Vec<LossPlace>,
}

/// The place of a loss, and what was found there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LossPlace {
    pub(crate) device: PathBuf,
    pub(crate) offset: u64,
    pub(crate) found: String,
}

/// An object of the repaired store that may not be the last one stored under its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubted {
    /// Its id.
    pub id: ObjectId,
    /// The device on which it was found.
    pub device: PathBuf,
    /// Its offset there.
    pub offset: u64,
    /// Why it is in doubt.
    pub reason: Doubt,
}

/// Why an object is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The parts of the index and of the lists of free space that state whether it was removed or replaced are lost.
    IndexLost,
    /// The root is lost, and with it which segments of the journal are in use; the object stands in one that may not be.
    OldJournal,
    /// The journal at this offset is lost, where the object may have been removed or replaced.
    JournalLost(u64),
}

impl fmt::Display for Doubted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, offset, .. } = self;
        let device = self.device.display();
        write!(
            f,
            "object {id} at {device} offset {offset:#x}: {}",
            self.reason
        )
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IndexLost => f.write_str(
                "the parts of the index and of the lists of free space that state whether it was removed or replaced are lost",
            ),
            Self::OldJournal => f.write_str(
                "the root is lost that states whether the part of the journal in which it stands is still in use",
            ),
            Self::JournalLost(at) => write!(
                f,
                "the journal at offset {at:#x} is lost, where it may have been removed or replaced"
            ),
        }
    }
}

impl Repaired {
    /// Adds a loss: what was found on a device at an offset.
    pub(crate) fn lose(&mut self, device: &Path, offset: u64, found: impl Into<String>) {
        self.lose_more(device, offset, found, "");
    }

    /// Adds a loss, and what follows from it.
    pub(crate) fn lose_more(
        &mut self,
        device: &Path,
        offset: u64,
        found: impl Into<String>,
        follows: &str,
    ) {
        let found = found.into();
        let colon = if follows.is_empty() { "" } else { ": " };
        let line = format!(
            "{found} at {} offset {offset:#x}{colon}{follows}",
            device.display()
        );
        self.lose_line(device, offset, found, line);
    }

    /// Adds an error as a loss, without its remedy, which is this repair. `device`: its path, if the error has none.
    pub(crate) fn lose_to(&mut self, device: &Path, error: Error) {
        let error = error.without_remedy();
        let of = error.path().unwrap_or(device).to_path_buf();
        let offset = error.place().unwrap_or(0);
        self.lose_line(&of, offset, error.what().to_owned(), error.to_string());
    }

    fn lose_line(&mut self, device: &Path, offset: u64, found: String, line: String) {
        if list(line, &mut self.lost, &mut self.losses) {
            self.places.push(LossPlace {
                device: device.to_path_buf(),
                offset,
                found,
            });
        }
    }

    /// Adds corrected bits.
    pub(crate) fn add_corrected(&mut self, journal: &dyn Storage, corrected: Vec<Corrected>) {
        let path = journal.path().display();
        self.corrected
            .extend(corrected.into_iter().map(|corrected| {
                let Corrected { offset, what } = corrected;
                format!("a bit of {what} at {path} offset {offset:#x} was flipped back")
            }));
    }

    /// Adds an object of the store that is in doubt.
    pub(crate) fn doubt(&mut self, doubted: Doubted) {
        list(doubted, &mut self.doubted, &mut self.doubtful);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_are_named_and_all_are_counted() {
        let mut report = Repaired::default();
        for n in 0..1200_u64 {
            report.lose(Path::new("s.azo"), n, "a loss");
            report.doubt(Doubted {
                id: ObjectId(n.into()),
                device: PathBuf::from("s.azo"),
                offset: n,
                reason: Doubt::JournalLost(0x40),
            });
        }
        assert_eq!((report.losses, report.doubtful), (1200, 1200));
        assert_eq!((report.lost.len(), report.doubted.len()), (1000, 1000));
        assert_eq!(report.lost[999], "a loss at s.azo offset 0x3e7");
        assert_eq!(report.places.len(), 1000);
        assert_eq!(
            report.doubted[999].to_string(),
            format!(
                "object {} at s.azo offset 0x3e7: the journal at offset 0x40 is lost, where it may have been removed or replaced",
                ObjectId(999)
            )
        );
    }
}
