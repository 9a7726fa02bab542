//! What is damaged in a store that is open all the same.
//!
//! A handle answers `damage()` with one [`Damage`] for each place it knows of; none means that it knows of no damage.
//! [`Affects`] states what may be wrong because of it, so that programs can decide and people can be informed. It
//! does not look for damage, and repairs none.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::quote;

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file or device.
    pub path: PathBuf,
    /// Offset of the first byte that cannot be read, or does not verify.
    pub offset: u64,
    /// How many bytes; 0 if that cannot be known.
    pub len: u64,
    /// What was found there, in lower case, without a full stop.
    pub found: String,
    /// What may be wrong because of it.
    pub affects: Affects,
}

/// What a damaged place may affect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affects {
    /// No answer: what stands there is known from elsewhere.
    Nothing,
    /// The record of this key: reading it is an error.
    Record(Vec<u8>),
    /// The object of this identifier: reading it is an error.
    Object(u128),
    /// What stands there: reading it is an error.
    Place,
    /// One part of the index out of so many: reading any key of that part is an error.
    Part {
        /// Which.
        part: u64,
        /// Of how many.
        of: u64,
    },
    /// Anything that was last written before `until`, an end of a range of the log: it may have been changed or removed
    /// by what stood there.
    Before {
        /// The first position after the damage, as text; empty if the damage reaches the end of the log.
        until: String,
    },
}

impl Damage {
    /// One wrong bit of `what`, in the byte at `offset`, that a checksum corrects.
    pub(crate) fn of_bit(path: &Path, offset: u64, what: &str) -> Self {
        Self {
            path: path.to_path_buf(),
            offset,
            len: 1,
            found: format!("one bit of {what} is wrong"),
            affects: Affects::Nothing,
        }
    }
}

impl Affects {
    /// Whether answers beyond one record, object or part of the index may be wrong, so that the store refuses writes.
    pub fn is_unbounded(&self) -> bool {
        matches!(self, Self::Before { .. })
    }
}

impl fmt::Display for Affects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no record is affected"),
            Self::Record(key) => write!(f, "affects the record of key {}", quote(key)),
            Self::Object(id) => write!(f, "affects the object {id:032x}"),
            Self::Place => f.write_str("affects what stands there"),
            Self::Part { part, of } => write!(f, "affects the keys of part {part} of {of}"),
            Self::Before { until } if until.is_empty() => {
                f.write_str("any record may have been changed there")
            }
            Self::Before { until } => {
                write!(
                    f,
                    "records written before {until} may have been changed there"
                )
            }
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            offset,
            len,
            found,
            affects,
        } = self;
        write!(f, "{found} at {} offset {offset:#x}", path.display())?;
        if *len > 0 {
            write!(f, " length {len}")?;
        }
        write!(f, ": {affects}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damage_is_one_line_with_place_and_effect() {
        let mut damage = Damage {
            path: "users.azh".into(),
            offset: 0x40,
            len: 24,
            found: "a record does not verify".into(),
            affects: Affects::Record(b"anna".to_vec()),
        };
        assert_eq!(
            damage.to_string(),
            "a record does not verify at users.azh offset 0x40 length 24: affects the record of key \"anna\""
        );
        damage.len = 0;
        damage.affects = Affects::Before {
            until: "0x1+0x40".into(),
        };
        assert!(damage.affects.is_unbounded());
        assert_eq!(
            damage.to_string(),
            "a record does not verify at users.azh offset 0x40: records written before 0x1+0x40 may have been changed there"
        );
    }
}
