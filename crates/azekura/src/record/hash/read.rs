//! Reading: one bucket, one record.
//!
//! A single read pins its thread, finds the bucket, and verifies the record it points to. Many reads go
//! in groups, in three passes - buckets, records, answers - so that the memory accesses of a group
//! overlap instead of following one another.

use std::sync::atomic::Ordering;

use rapidhash::v3::RapidSecrets;

use super::{Core, layout, value};
use crate::engine::{Bookmark, Damaged, Visit};
use crate::epoch::Pin;
use crate::error::{Error, Kind, Result};
use crate::format::frame::Frame;
use crate::index::hash::Hash;
use crate::index::{Index, Place, Probed};
use crate::log::manifest::remedy;
use crate::log::{Address, Log};
use crate::record::group::{self, Keyed};
use crate::record::scan::{Lend, Scan};

/// What was found; nothing, with the error kept, if it does not verify.
pub(super) fn passing<T>(
    found: Result<Option<T>>,
    damaged: &mut Option<Error>,
) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == Kind::Corrupted => {
            damaged.get_or_insert(error);
            Ok(None)
        }
        other => other,
    }
}

/// Whether an entry of this key can lead to this frame: a record of it, or of a key of which the index knows the same bits.
pub(super) fn could_mean(secrets: &RapidSecrets, key: &[u8], frame: &Frame<'_>) -> bool {
    let known = |key| Hash::of_key(key, secrets).known();
    layout::is_record(frame.header.kind) && (frame.key == key || known(frame.key) == known(key))
}

/// `Corrupted` unless the index leads to this frame, at this place, by the frame's own key.
#[cold]
pub(super) fn check_led(
    log: &Log,
    index: &Index,
    secrets: &RapidSecrets,
    place: Place,
    frame: &Frame<'_>,
) -> Result<()> {
    let hash = Hash::of_key(frame.key, secrets);
    let led = index.find(&index.pin(), hash, |found| {
        Ok((found == place).then_some(()))
    })?;
    if led.is_some() && layout::is_record(frame.header.kind) {
        return Ok(());
    }
    Err(led_astray(log, Address(place), frame.key))
}

/// That another frame stands where the index leads, as of a segment of another time: the record is not absent.
#[cold]
pub(super) fn led_astray(log: &Log, address: Address, key: &[u8]) -> Error {
    Error::new(Kind::Corrupted, "the index leads to another record")
        .at(log.storage().path())
        .offset(address.offset())
        .key(key)
        .remedy(remedy(log.storage().as_ref()))
}

impl Core {
    #[inline(always)]
    pub(super) fn read<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let hash = self.hash(key);
        let pin = self.index.pin();
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
        if self.asks_doubt {
            return self.read_in_doubt(pin, key, hash, visit);
        }
        // The common case, in few instructions and without a loop; all else takes the slow path.
        match self.index.probe(pin, hash) {
            Probed::At(place) => {
                if let Some(frame) = self
                    .log
                    .frame_of_key(pin, layout::RECORD, Address(place), key)
                {
                    return Ok(visit(Some(frame.value)));
                }
            }
            Probed::Absent => return Ok(visit(None)),
            Probed::NotLoaded => {}
        }
        self.read_slow(pin, key, hash, visit)
    }

    #[inline(never)]
    fn read_slow<R>(
        &self,
        pin: &Pin,
        key: &[u8],
        hash: Hash,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        match self.find_frame(pin, key, hash)? {
            None => Ok(visit(None)),
            Some((_, frame)) => {
                let value = value::decode(self.compression, &frame)?;
                Ok(visit(Some(&value)))
            }
        }
    }

    /// The frame of `key`, and its address. An entry whose frame does not verify may be of any key with these bits of its hash:
    /// it is an error if no other entry is of `key`.
    fn find_frame<'p>(
        &'p self,
        pin: &'p Pin,
        key: &[u8],
        hash: Hash,
    ) -> Result<Option<(Address, Frame<'p>)>> {
        let mut damaged = None;
        let found = self.index.find(pin, hash, |place| {
            let frame = passing(self.matching(pin, place, key), &mut damaged)?;
            Ok(frame.map(|frame| (Address(place), frame)))
        })?;
        match (found, damaged) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }

    /// As `read_slow`, but a record that may have been changed by what is lost is an error.
    #[cold]
    #[inline(never)]
    fn read_in_doubt<R>(
        &self,
        pin: &Pin,
        key: &[u8],
        hash: Hash,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let at = self.find_frame(pin, key, hash)?.map(|(address, _)| address);
        self.known.check_doubt(&self.log, (key, hash), at)?;
        self.read_slow(pin, key, hash, visit)
    }

    /// The frame at `place` if it is `key`'s.
    #[inline(always)]
    pub(super) fn matching<'p>(
        &'p self,
        pin: &'p Pin,
        place: Place,
        key: &[u8],
    ) -> Result<Option<Frame<'p>>> {
        match self
            .log
            .frame_of_key(pin, layout::RECORD, Address(place), key)
        {
            Some(frame) => Ok(Some(frame)),
            None => self.matching_slow(pin, place, key),
        }
    }

    /// Long records, compressed ones, other keys', and damage.
    #[inline(never)]
    fn matching_slow<'p>(
        &'p self,
        pin: &'p Pin,
        place: Place,
        key: &[u8],
    ) -> Result<Option<Frame<'p>>> {
        let address = Address(place);
        let frame = self.log.frame(pin, address)?;
        let is_record = layout::is_record(frame.header.kind);
        if self.known.is_read_only() && !could_mean(&self.secrets, key, &frame) {
            return Err(led_astray(&self.log, address, key));
        }
        Ok((frame.key == key && is_record).then_some(frame))
    }

    /// As [`group::in_groups_unpinned`].
    #[inline(always)]
    pub(super) fn in_groups_unpinned<T: Keyed>(
        &self,
        items: &[T],
        each: impl FnMut(&T, Hash) -> Result<()>,
    ) -> Result<()> {
        let prefetch = |place| self.log.prefetch(Address(place));
        group::in_groups_unpinned(&self.index, &self.secrets, prefetch, items, each)
    }

    pub(super) fn scan(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        if self.asks_doubt {
            // What is absent from the scan may be lost.
            damaged(self.known.doubt_error(&self.log))?;
        }
        let lend = |place: Place, visit: &mut Lend<'_>| {
            let pin = self.index.pin();
            let frame = self.log.frame(&pin, Address(place))?;
            if self.known.is_read_only() {
                check_led(&self.log, &self.index, &self.secrets, place, &frame)?;
            }
            if self.asks_doubt {
                let of = (frame.key, self.hash(frame.key));
                self.known
                    .check_doubt(&self.log, of, Some(Address(place)))?;
            }
            if !layout::is_record(frame.header.kind) {
                return Ok(());
            }
            visit(frame.key, &value::decode(self.compression, &frame)?)
        };
        let scan = Scan {
            index: &self.index,
            secrets: &self.secrets,
            prefetch: &|place| self.log.prefetch(Address(place)),
            lend: &lend,
        };
        scan.run(from, visit, damaged)
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
        // Stored only if it states more than before: what all threads read should not change all the time.
        if last.abs_diff(guess) > 32 {
            self.frame_len.store(last, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn prefetch_keys(&self, keys: &[&[u8]]) {
        let guess = self.frame_len.load(Ordering::Relaxed);
        let prefetch = |place| self.log.prefetch_lines(Address(place), guess);
        group::prefetch_keys(&self.index, &self.secrets, prefetch, keys);
    }
}
