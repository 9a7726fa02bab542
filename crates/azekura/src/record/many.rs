//! What an update of many keys means, whatever the engine.
//!
//! Repeated keys are one record: each is shown its present value, and of the edits the last that is not `Keep` counts.
//! It knows no locks: the engine holds those of all records from before it looks until it has applied the edits.

use std::collections::HashMap;

use crate::engine::{DecideMany, Edit};
use crate::error::{Error, Kind, Result};
use crate::room;

/// The records that a list of keys names.
pub(super) struct Distinct<'k> {
    /// Each once, in the order in which they are first named.
    pub(super) records: Vec<&'k [u8]>,
    /// For each key, which of the records it is.
    number_of: Vec<usize>,
}

impl<'k> Distinct<'k> {
    /// Errors: `Full`.
    pub(super) fn of(keys: &[&'k [u8]]) -> Result<Self> {
        let mut numbers: HashMap<&[u8], usize> = HashMap::new();
        room::map(&mut numbers, keys.len())?;
        let mut records: Vec<&[u8]> = room::vec(keys.len())?;
        let mut number_of = room::vec(keys.len())?;
        for key in keys {
            let next = records.len();
            let number = *numbers.entry(key).or_insert(next);
            if number == next {
                records.push(key);
            }
            number_of.push(number);
        }
        Ok(Self { records, number_of })
    }

    /// Shows the values of the records to `decide`, one for each key; returns an edit for each record, of several the
    /// last that is not `Keep`. `Invalid` if there is not one edit per key; `Full`.
    pub(super) fn decide<'a>(
        &self,
        values: &[Option<&[u8]>],
        decide: DecideMany<'_, 'a>,
    ) -> Result<Vec<Edit<'a>>> {
        let shown = room::collect(self.number_of.iter().map(|n| values[*n]))?;
        let mut edits = room::collect(self.records.iter().map(|_| Edit::Keep))?;
        let decided = decide(&shown);
        if decided.len() != shown.len() {
            return Err(Error::new(
                Kind::Invalid,
                "an update of many keys needs one edit per key",
            )
            .found(decided.len(), shown.len()));
        }
        for (edit, number) in decided.into_iter().zip(&self.number_of) {
            if edit != Edit::Keep {
                edits[*number] = edit;
            }
        }
        Ok(edits)
    }
}
