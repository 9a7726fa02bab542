//! What a reader looks at: a sorted file, and layers of pending edits over it.
//!
//! ```text
//!   active   edits from the last cut on; the only layer that changes
//!   frozen   edits that a merge is writing; absent between merges
//!   base     the sorted file, which has all edits before
//! ```
//!
//! A layer keeps one entry for each key that was edited: what all its edits of the key amount to. A lookup asks the layers from the
//! top, and the next only where an entry does not decide, or there is none. A view never changes but for the entries of
//! its active layer; readers hold it while another is published.
//!
//! It does not know logs, or when layers are cut and merged.

use std::borrow::Cow;
use std::sync::Arc;

use crate::engine::{Engine as _, Reader as _};
use crate::error::{Error, Kind, Result};
use crate::order::Order;
use crate::record::memory::baby::{BabyDb, Options};
use crate::record::skip::reader::SkipReader;
use crate::record::skip::reduce::{Reducer, reduced};
use crate::room;

/// The first byte of an entry in memory.
const REMOVED: u8 = 0;
const REPLACES: u8 = 1;
const ADDS: u8 = 2;

/// What the edits of a key in a layer amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PendingEdit<'v> {
    /// There is no record, whatever is below.
    Removed,
    /// The record has this value, whatever is below.
    Replaces(Cow<'v, [u8]>),
    /// There is a record below, and its value is reduced with this one.
    Adds(Cow<'v, [u8]>),
}

impl<'v> PendingEdit<'v> {
    /// Its bytes in memory. Errors: `Full`.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        match self {
            Self::Removed => room::copy(&[REMOVED]),
            Self::Replaces(value) => room::concat(&[&[REPLACES], value]),
            Self::Adds(value) => room::concat(&[&[ADDS], value]),
        }
    }

    /// The entry of these bytes, which a layer holds.
    pub(super) fn decode(bytes: &'v [u8]) -> Self {
        match bytes.split_first() {
            Some((&REPLACES, value)) => Self::Replaces(value.into()),
            Some((&ADDS, value)) => Self::Adds(value.into()),
            _ => Self::Removed,
        }
    }

    /// What it amounts to over an entry of the layer below.
    pub(super) fn over(self, below: Option<PendingEdit<'v>>, reducer: &Reducer) -> Result<Self> {
        let Self::Adds(value) = &self else {
            return Ok(self);
        };
        Ok(match below {
            None => self,
            Some(Self::Removed) => Self::Replaces(value.clone()),
            Some(Self::Replaces(first)) => Self::Replaces(reduced(reducer, &first, value)?.into()),
            Some(Self::Adds(first)) => Self::Adds(reduced(reducer, &first, value)?.into()),
        })
    }

    /// Whether it is of a record that stands below: without that it is of no use.
    pub(super) fn needs_base(&self) -> bool {
        matches!(self, Self::Adds(_))
    }

    /// The value of the record over what the base has. `Corrupted` if it adds to a record that the base does not have.
    pub(super) fn over_base(
        self,
        base: Option<&[u8]>,
        reducer: &Reducer,
    ) -> Result<Option<Cow<'v, [u8]>>> {
        Ok(match (self, base) {
            (Self::Removed, _) => None,
            (Self::Replaces(value), _) => Some(value),
            (Self::Adds(_), None) => {
                let what = "a pending edit adds to a record that the sorted file does not have";
                return Err(Error::new(Kind::Corrupted, what));
            }
            (Self::Adds(value), Some(base)) => Some(reduced(reducer, base, &value)?.into()),
        })
    }
}

/// Edits since a cut.
#[derive(Debug)]
pub(super) struct Layer {
    /// Entries, encoded, by key.
    pub(super) entries: BabyDb,
    /// All records were removed before these edits: nothing below counts.
    pub(super) hides: bool,
}

impl Layer {
    /// One without an edit. Errors: `Io` if the system refuses the addresses.
    pub(super) fn new(order: Order, hides: bool) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            entries: BabyDb::with(&Options::new().order(order))?,
            hides,
        }))
    }

    /// Whether it changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        !self.hides && self.entries.count() == 0
    }

    /// Replays an edit of a key: `change` of what its entry is now.
    pub(super) fn change(
        &self,
        key: &[u8],
        change: impl Fn(Option<PendingEdit<'_>>) -> Result<Vec<u8>>,
    ) -> Result<()> {
        let mut failed = None;
        self.entries.update(
            key,
            &mut |entry| match change(entry.map(PendingEdit::decode)) {
                Ok(bytes) => crate::engine::Edit::Put(bytes.into()),
                Err(error) => {
                    failed = Some(error);
                    crate::engine::Edit::Keep
                }
            },
        )?;
        failed.map_or(Ok(()), Err)
    }
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) base: Arc<SkipReader>,
    pub(super) frozen: Option<Arc<Layer>>,
    pub(super) active: Arc<Layer>,
}

impl View {
    /// Keys with edits in each layer; a removal of all records counts as one.
    pub(super) fn edits(&self) -> u64 {
        let layers = [Some(&self.active), self.frozen.as_ref()];
        let edits = |layer: &Arc<Layer>| layer.entries.count() + u64::from(layer.hides);
        layers.into_iter().flatten().map(edits).sum()
    }

    /// The layers that count, from the top, and whether the base does.
    pub(super) fn layers(&self) -> (impl Iterator<Item = &Arc<Layer>>, bool) {
        let frozen = self.frozen.as_ref().filter(|_| !self.active.hides);
        let hides = self.active.hides || frozen.is_some_and(|frozen| frozen.hides);
        (std::iter::once(&self.active).chain(frozen), !hides)
    }

    /// Lends the value of `key` to `visit`, once.
    pub(super) fn read<R>(
        &self,
        reducer: &Reducer,
        key: &[u8],
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let active = &self.active.entries;
        active.read_with(key, |entry| self.read_over(reducer, key, entry, visit))?
    }

    /// As `read`, where the active layer has this `entry`.
    pub(super) fn read_over<R>(
        &self,
        reducer: &Reducer,
        key: &[u8],
        entry: Option<&[u8]>,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        match entry.map(PendingEdit::decode) {
            Some(PendingEdit::Removed) => Ok(visit(None)),
            Some(PendingEdit::Replaces(value)) => Ok(visit(Some(&value))),
            Some(adds) => self.read_below(key, |below| {
                let value = adds.over(below.clone(), reducer)?;
                self.read_base(key, reducer, Some(value), visit)
            })?,
            None if self.active.hides => Ok(visit(None)),
            None => self.read_below(key, |below| self.read_base(key, reducer, below, visit))?,
        }
    }

    /// Lends the entry of the frozen layer.
    fn read_below<R>(
        &self,
        key: &[u8],
        visit: impl FnOnce(Option<PendingEdit<'_>>) -> R,
    ) -> Result<R> {
        match &self.frozen {
            None => Ok(visit(None)),
            Some(frozen) => frozen.entries.read_with(key, |entry| {
                let is_hidden = entry.is_none() && frozen.hides;
                visit(if is_hidden {
                    Some(PendingEdit::Removed)
                } else {
                    entry.map(PendingEdit::decode)
                })
            }),
        }
    }

    /// Lends the value of `key`, of which the layers have this entry.
    fn read_base<R>(
        &self,
        key: &[u8],
        reducer: &Reducer,
        entry: Option<PendingEdit<'_>>,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        match entry {
            None => self.base.read_with(key, visit),
            Some(PendingEdit::Removed) => Ok(visit(None)),
            Some(PendingEdit::Replaces(value)) => Ok(visit(Some(&value))),
            Some(adds @ PendingEdit::Adds(_)) => self.base.read_with(key, |base| {
                let value = adds.over_base(base, reducer)?;
                Ok(visit(value.as_deref()))
            })?,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn replaces(value: &[u8]) -> PendingEdit<'_> {
        PendingEdit::Replaces(value.into())
    }

    fn adds(value: &[u8]) -> PendingEdit<'_> {
        PendingEdit::Adds(value.into())
    }

    #[test]
    fn entries_come_back_from_their_bytes() {
        for entry in [
            PendingEdit::Removed,
            replaces(b""),
            replaces(b"a"),
            adds(b"\0"),
        ] {
            let bytes = entry.encode().unwrap();
            assert_eq!(PendingEdit::decode(&bytes), entry);
        }
    }

    #[test]
    fn an_entry_over_another_is_what_both_amount_to() {
        let total = Reducer::TotalDecimal;
        let over = |entry: PendingEdit<'static>, below| entry.over(below, &total).unwrap();
        for below in [None, Some(PendingEdit::Removed), Some(replaces(b"1"))] {
            assert_eq!(
                over(PendingEdit::Removed, below.clone()),
                PendingEdit::Removed
            );
            assert_eq!(over(replaces(b"5"), below), replaces(b"5"));
        }
        assert_eq!(over(adds(b"5"), None), adds(b"5"));
        assert_eq!(over(adds(b"5"), Some(PendingEdit::Removed)), replaces(b"5"));
        assert_eq!(over(adds(b"5"), Some(replaces(b"2"))), replaces(b"7"));
        assert_eq!(over(adds(b"5"), Some(adds(b"2"))), adds(b"7"));
        let value = |entry: PendingEdit<'static>, base: Option<&[u8]>| {
            let value = entry.over_base(base, &total).unwrap();
            value.map(Cow::into_owned)
        };
        assert_eq!(value(PendingEdit::Removed, Some(b"1")), None);
        assert_eq!(value(replaces(b"x"), Some(b"1")), Some(b"x".to_vec()));
        let error = adds(b"x").over_base(None, &total).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted);
        assert_eq!(value(adds(b"4"), Some(b"1")), Some(b"5".to_vec()));
    }
}
