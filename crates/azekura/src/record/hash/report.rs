//! The report of a repair: what was brought over, what is in doubt, and what was lost.
//!
//! Its lists are bounded; its counts are of all. Both the scan of the log (`salvage`) and the choice among what it found (`repair`)
//! write it. It does not know how either is done.

use std::fmt;
use std::ops::Range;

use super::layout::Super;
use crate::error::{Error, quote};
use crate::kernel::report::list;
use crate::log::LogPosition;

/// Bytes of keys that a report holds.
const NAMED_BYTES_MAX: usize = 1 << 20;

/// What a repair brought over, and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Records in the new file.
    pub recovered: u64,
    /// Of these, records that may have been removed or changed since: the part of the index that would know is lost, or of
    /// the log after them.
    pub doubtful: u64,
    /// These by name, in the order of the log: the first 1000 at most, and no more than 1 MiB of keys.
    pub doubted: Vec<Doubted>,
    /// How many losses there are.
    pub losses: u64,
    /// One line per loss: what, and where; at most 1000.
    pub lost: Vec<String>,
    /// What was found before it may have been changed by what is lost there, at which offset of the damaged file.
    pub(super) unsure_before: LogPosition,
    pub(super) unsure_at: u64,
    /// Bytes of the keys in `doubted`.
    named_bytes: usize,
}

/// A record that was brought over, and may not be what was stored last under its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubted {
    /// Its key.
    pub key: Vec<u8>,
    /// Offset of its frame in the damaged file.
    pub offset: u64,
    /// Why it is in doubt.
    pub reason: Doubt,
}

/// Why a record is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// One bit of its frame was wrong, and was set as the checksum asks for.
    Corrected,
    /// It is of a batch that was being written when the writer ended, and of which another record is damaged.
    PartOfBatch,
    /// The part of the index that states whether it was removed or replaced is lost.
    IndexLost,
    /// The log at this offset of the damaged file is lost, where the record may have been removed or replaced.
    LogLost(u64),
}

impl fmt::Display for Doubted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the record of key {} at offset {:#x}: {}",
            quote(&self.key),
            self.offset,
            self.reason
        )
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrected => {
                f.write_str("one bit of it was wrong, and was set as its checksum asks for")
            }
            Self::PartOfBatch => f.write_str(
                "it is of a batch that may not have been written whole, of which another record is damaged",
            ),
            Self::IndexLost => f.write_str(
                "the part of the index is lost that states whether it was removed or replaced",
            ),
            Self::LogLost(at) => write!(
                f,
                "the log at offset {at:#x} is lost, where it may have been removed or replaced"
            ),
        }
    }
}

impl RepairReport {
    /// Notes that the log cannot be read in `lost`, at `offset` of the file, which `what` states. Of what is before P the index
    /// knows better, and past the end of a log that was closed there is nothing to lose.
    pub(super) fn lose_log(
        &mut self,
        last: &Super,
        lost: Range<LogPosition>,
        offset: u64,
        what: String,
    ) {
        if last.is_after_close(lost.start) {
            return;
        }
        let (begins, ends) = (last.start.position(), lost.end);
        if ends > begins && !last.is_after_close(lost.start.max(begins)) {
            if lost.start > self.unsure_before {
                (self.unsure_before, self.unsure_at) = (lost.start, offset);
            }
            self.lose(format!(
                "{what}: records written before it may have been changed or removed there, and are in doubt"
            ));
        } else {
            self.lose(what);
        }
    }

    /// Notes one loss.
    pub(super) fn lose(&mut self, what: String) {
        list(what, &mut self.lost, &mut self.losses);
    }

    /// Notes what is damaged; the remedy is what this repair does.
    pub(super) fn lose_to(&mut self, error: Error) {
        self.lose(error.without_remedy().to_string());
    }

    /// Notes that a record that was brought over is in doubt.
    pub(super) fn doubt(&mut self, key: Vec<u8>, offset: u64, reason: Doubt) {
        let bytes = self.named_bytes + key.len();
        if bytes > NAMED_BYTES_MAX {
            self.doubtful += 1;
            return;
        }
        let doubted = Doubted {
            key,
            offset,
            reason,
        };
        if list(doubted, &mut self.doubted, &mut self.doubtful) {
            self.named_bytes = bytes;
        }
    }
}
