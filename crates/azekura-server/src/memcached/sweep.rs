//! The sweep: removes items whose time is over, also those nobody asks for.
//!
//! A read finds an item that is over to be absent, and writes nothing; so somebody has to walk. Each call looks at some
//! records, from where the last one ended, and goes round for ever. An item is removed by an update that looks again, so
//! one that was stored or touched meanwhile stays. It keeps a bookmark and no lock. It knows no threads: whoever owns
//! some calls it when there is time.

use std::ops::ControlFlow;
use std::sync::PoisonError;

use azekura::engine::Edit;
use azekura::error::Result;

use super::service::Service;
use crate::item::Item;

/// What a call of [`Service::sweep`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Records it looked at.
    pub looked: u64,
    /// Items it removed.
    pub removed: u64,
    /// Whether it came to the last record: the next call begins with the first.
    pub is_round: bool,
}

impl Service {
    /// Looks at no more than `records` records and removes the items that are over. Calls of several threads wait for one
    /// another. Costs a read of each record; an error of the engine ends it, and the next call begins where this one did.
    pub fn sweep(&self, records: u64) -> Result<Swept> {
        let mut from = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        let is_over = |value: &[u8]| Item::decode(value).is_some_and(|item| item.head.is_over(now));
        let mut swept = Swept::default();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let next = self.engine.scan(from.as_ref(), &mut |key, value| {
            swept.looked += 1;
            if is_over(value) {
                keys.push(key.to_vec());
            }
            if swept.looked >= records {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        for key in keys {
            let mut removed = false;
            self.engine.update(&key, &mut |present| {
                removed = present.is_some_and(is_over);
                if removed { Edit::Remove } else { Edit::Keep }
            })?;
            swept.removed += u64::from(removed);
        }
        swept.is_round = next.is_none();
        *from = next;
        Ok(swept)
    }
}
