//! Reading: one bucket, one record.
//!
//! A single read pins its thread, finds the bucket, and verifies the record it points to. Many reads go
//! in groups, in three passes - buckets, records, answers - so that the memory accesses of a group
//! overlap instead of following one another.

use std::sync::atomic::Ordering;

use super::{Core, value};
use crate::engine::{Bookmark, Damaged, Visit};
use crate::epoch::{self, Pin};
use crate::error::Result;
use crate::format::frame::Frame;
use crate::index::hash::Hash;
use crate::index::{Glance, Place};
use crate::log::Address;
use crate::record::group::{self, Keyed};
use crate::record::scan::{Lend, Scan};

impl Core {
    #[inline(always)]
    pub(super) fn read<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let hash = self.hash(key);
        let pin = epoch::pin();
        self.read_hashed(&pin, key, hash, visit)
    }

    #[inline(always)]
    fn read_hashed<R>(
        &self,
        pin: &Pin,
        key: &[u8],
        hash: Hash,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        // The common case, in few instructions and without a loop; whatever it is not, the long way answers.
        match self.index.glance(pin, hash) {
            Glance::At(place) => {
                if let Some(frame) = self.log.near(pin, Address(place), key) {
                    return Ok(visit(Some(frame.value)));
                }
            }
            Glance::Absent => return Ok(visit(None)),
            Glance::Cold => {}
        }
        self.read_at_large(pin, key, hash, visit)
    }

    #[inline(never)]
    fn read_at_large<R>(
        &self,
        pin: &Pin,
        key: &[u8],
        hash: Hash,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        match self
            .index
            .find(pin, hash, |place| self.matching(pin, place, key))?
        {
            None => Ok(visit(None)),
            Some(frame) => {
                let value = value::decode(self.compression, &frame)?;
                Ok(visit(Some(&value)))
            }
        }
    }

    /// The frame at `place` if it is `key`'s.
    #[inline(always)]
    pub(super) fn matching<'p>(
        &'p self,
        pin: &'p Pin,
        place: Place,
        key: &[u8],
    ) -> Result<Option<Frame<'p>>> {
        match self.log.near(pin, Address(place), key) {
            Some(frame) => Ok(Some(frame)),
            None => self.matching_at_large(pin, place, key),
        }
    }

    /// Long records, compressed ones, other keys', and damage.
    #[inline(never)]
    fn matching_at_large<'p>(
        &'p self,
        pin: &'p Pin,
        place: Place,
        key: &[u8],
    ) -> Result<Option<Frame<'p>>> {
        let frame = self.log.frame(pin, Address(place))?;
        let is_record = frame.header.kind.is_record();
        Ok((frame.key == key && is_record).then_some(frame))
    }

    /// As [`group::in_groups`].
    #[inline(always)]
    pub(super) fn in_groups<T: Keyed>(
        &self,
        items: &[T],
        each: impl FnMut(&Pin, usize, &T, Hash) -> Result<()>,
    ) -> Result<()> {
        let prefetch = |place| self.log.prefetch(Address(place));
        group::in_groups(&self.index, &self.secrets, prefetch, items, each)
    }

    pub(super) fn scan(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let lend = |place: Place, visit: &mut Lend<'_>| {
            let pin = epoch::pin();
            self.lend(&self.log.frame(&pin, Address(place))?, visit)
        };
        let scan = Scan {
            index: &self.index,
            secrets: &self.secrets,
            prefetch: &|place| self.log.prefetch(Address(place)),
            lend: &lend,
        };
        scan.run(from, visit, damaged)
    }

    /// Lends the record of a frame, if it is one.
    fn lend(&self, frame: &Frame<'_>, visit: &mut Lend<'_>) -> Result<()> {
        if !frame.header.kind.is_record() {
            return Ok(());
        }
        visit(frame.key, &value::decode(self.compression, frame)?)
    }

    pub(super) fn read_many(
        &self,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let guess = self.frame_len.load(Ordering::Relaxed);
        let mut last = guess;
        let prefetch = |place| self.log.prefetch_lines(Address(place), guess);
        group::in_groups(
            &self.index,
            &self.secrets,
            prefetch,
            keys,
            |pin, index, key, hash| {
                self.read_hashed(pin, key, hash, |value| {
                    last = value.map_or(last, |value| 8 + key.len() + value.len());
                    visit(index, value);
                })
            },
        )?;
        // Stored only if it says more than before: what all threads read should not change all the time.
        if last.abs_diff(guess) > 32 {
            self.frame_len.store(last, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn bring_near(&self, keys: &[&[u8]]) {
        let guess = self.frame_len.load(Ordering::Relaxed);
        let prefetch = |place| self.log.prefetch_lines(Address(place), guess);
        group::bring_near(&self.index, &self.secrets, prefetch, keys);
    }
}
