//! Records to load come in the ascending order of their keys, each key once: the check of that, and its error, which numbers the record.
//!
//! It keeps a copy of the last key, and asks for the limits of records first: what is refused is refused in the order in which it came.
//! It does not know where the records go.

use std::cmp::Ordering;
use std::path::Path;

use crate::error::{Error, Kind, Result, quote};
use crate::order::Order;
use crate::record::limits::Limits;
use crate::room;

/// The records that came.
pub(crate) struct Ascending {
    order: Order,
    last: Option<Vec<u8>>,
    count: u64,
}

impl Ascending {
    /// None yet, in this order.
    pub(crate) fn new(order: Order) -> Self {
        Self {
            order,
            last: None,
            count: 0,
        }
    }

    /// How many came.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Takes the next record, for the store at `path`. `TooLarge`; `Invalid` where it is out of order.
    pub(crate) fn take(
        &mut self,
        (key, value): (&[u8], &[u8]),
        limits: &Limits,
        path: &Path,
    ) -> Result<()> {
        self.count += 1;
        let number = self.count;
        let checked = limits.check(key, value);
        let checked = checked.and_then(|()| self.check_order(key));
        checked.map_err(|error| error.at(path).of(format!("record {number} to load")))?;
        let last = self.last.get_or_insert_default();
        last.clear();
        room::more(last, key.len())?;
        last.extend_from_slice(key);
        Ok(())
    }

    fn check_order(&self, key: &[u8]) -> Result<()> {
        let Some(last) = &self.last else {
            return Ok(());
        };
        let what = match self.order.compare(last, key) {
            Ordering::Less => return Ok(()),
            Ordering::Equal => "a key comes twice among records to load",
            Ordering::Greater => "records to load are not in ascending order",
        };
        Err(Error::new(Kind::Invalid, what)
            .found(quote(key), format!("a key after {}", quote(last)))
            .remedy("sort the records by the order of the file, each key once"))
    }
}
