//! The pending file on storage: the engine's part of its superblock, and the kinds of its frames.
//!
//! It is a log (`log::layout`) of edits of one sorted file. Superblock payload (after the 32 bytes of `format::superblock`):
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | segment size as a power of two, 12 to 26 |
//! | 4 | 4 | salt of all checksums in this file |
//! | 8 | 8 | identity of this file, never 0: a sorted file states it with the edits that it contains |
//! | 16 | 8 | identity of the sorted file that has all edits before the place where replay begins |
//! | 24 | 71 | what it states of its log (`log::manifest`); there is no root |
//! | 95 | 8 | next segment sequence |
//! | 103 | 1 | the reducer: 0 last, 1 first, 2 concat, 3 total-decimal, 4 total-big-endian |
//! | 104 | 1 | of concat, length of what stands between values |
//! | 105 | .. | what stands between values |
//!
//! | frame | kind | key, value | meaning |
//! |---|---|---|---|
//! | put | 1 | of a record | the record, which was there, has this value |
//! | remove | 2 | key, none | the record is removed |
//! | insert | 3 | of a record | the record, which was absent, has this value |
//! | add | 4 | of a record | the value is reduced with the one that is there |
//! | clear | 7 | none | all records are removed, also those of the sorted file |
//! | revert | 8 | none | no edit before counts, from the last merge on |
//!
//! So replay counts records without a lookup. This file turns these bytes into values and back.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::error::{Error, Kind, Result};
use crate::format::bytes::{Give, Take};
use crate::format::frame::FrameKind;
use crate::kernel::Payload;
use crate::kernel::superblock::manifest_within;
use crate::log::Geometry;
use crate::log::manifest::Manifest;
use crate::record::skip::reduce::Reducer;

/// The engine's word in the superblock.
pub(super) const ENGINE: [u8; 8] = *b"skippend";
/// Smallest and largest segment, as powers of two.
const SHIFTS: std::ops::RangeInclusive<u32> = 12..=26;
/// Longest separator of a reducer.
pub(super) const BETWEEN_MAX: usize = 255;

pub(super) const PUT: FrameKind = FrameKind::keyed(0);
pub(super) const REMOVE: FrameKind = FrameKind::keyed(1);
pub(super) const INSERT: FrameKind = FrameKind::keyed(2);
pub(super) const ADD: FrameKind = FrameKind::keyed(3);
pub(super) const CLEAR: FrameKind = FrameKind::wide(0);
pub(super) const REVERT: FrameKind = FrameKind::wide(1);

/// The superblock's payload.
#[derive(Clone, Debug)]
pub(super) struct PendingSuper {
    pub(super) manifest: Manifest,
    pub(super) identity: u64,
    pub(super) base: u64,
    pub(super) reducer: Reducer,
}

manifest_within!(PendingSuper);

/// The byte of a reducer; `None`: its result depends on when edits are merged, or it has no name.
fn code(reducer: &Reducer) -> Option<(u8, &[u8])> {
    Some(match reducer {
        Reducer::Last => (0, &[]),
        Reducer::First => (1, &[]),
        Reducer::Concat(between) => (2, between),
        Reducer::TotalDecimal => (3, &[]),
        Reducer::TotalBigEndian => (4, &[]),
        Reducer::Second | Reducer::All | Reducer::Own(_) => return None,
    })
}

/// `Invalid` for a reducer under which edits cannot be pending.
pub(super) fn check_reducer(reducer: &Reducer) -> Result<()> {
    match code(reducer) {
        Some((_, between)) if between.len() <= BETWEEN_MAX => Ok(()),
        Some((_, between)) => Err(Error::new(Kind::Invalid, "too long a separator of values")
            .found(between.len(), format!("at most {BETWEEN_MAX} bytes"))
            .remedy("choose a shorter one")),
        None => Err(Error::new(
            Kind::Invalid,
            "under this reducer a value would depend on when pending edits are merged",
        )
        .found(
            reducer.name(),
            "last, first, concat, total-decimal or total-big-endian",
        )
        .remedy("choose one of these, or build the file with `azekura skip build`")),
    }
}

/// Whether two reducers do the same.
pub(super) fn are_same(one: &Reducer, other: &Reducer) -> bool {
    code(one).is_some() && code(one) == code(other)
}

impl Payload for PendingSuper {
    const ENGINE: [u8; 8] = ENGINE;
    const ROOT_SEED: u32 = 0x5350_454e;

    fn encode(&self) -> Vec<u8> {
        let (code, between) = code(&self.reducer).unwrap_or_default();
        let mut give = Give::default();
        give.u32(self.geometry.shift)
            .u32(self.geometry.salt)
            .u64(self.identity)
            .u64(self.base);
        self.manifest.give(&mut give);
        give.u64(self.next_sequence)
            .u8(code)
            .u8(between.len() as u8)
            .bytes(between);
        give.0
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let geometry = Geometry {
            shift: take.u32()?,
            salt: take.u32()?,
        };
        let (identity, base) = (take.u64()?, take.u64()?);
        let mut manifest = Manifest::take(geometry, &mut take)?;
        manifest.next_sequence = take.u64()?;
        let (code, len) = (take.u8()?, take.u8()?);
        let between = take.bytes(len.into())?;
        let reducer = match code {
            0 => Reducer::Last,
            1 => Reducer::First,
            2 => Reducer::Concat(between.to_vec()),
            3 => Reducer::TotalDecimal,
            4 => Reducer::TotalBigEndian,
            _ => return None,
        };
        let is_sound = SHIFTS.contains(&geometry.shift)
            && identity != 0
            && manifest.is_sound()
            && manifest.root.is_none()
            && (code == 2 || len == 0)
            && take.rest_is_zero();
        is_sound.then_some(Self {
            manifest,
            identity,
            base,
            reducer,
        })
    }

    fn of_other(error: Error, _: &[u8]) -> Error {
        error.remedy(
            "where a sorted file has pending edits, this name is theirs: move the other file away",
        )
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::log::{End, LogPosition};

    fn payload() -> PendingSuper {
        PendingSuper {
            manifest: Manifest {
                geometry: Geometry { shift: 12, salt: 5 },
                open: true,
                epoch: 3,
                boot_id: [7; 16],
                start: End::of(2, 3 << 32, Some(64)),
                durable: LogPosition::new(3 << 32, 128),
                root: None,
                next_sequence: (3 << 32) + 1,
            },
            identity: 0x0102_0304_0506_0708,
            base: 9,
            reducer: Reducer::Concat(b", ".to_vec()),
        }
    }

    #[test]
    fn a_superblock_has_the_bytes_of_the_table() {
        let bytes = payload().encode();
        assert_eq!(bytes[..8], [12, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(bytes[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[16..24], 9u64.to_le_bytes());
        assert_eq!(bytes[24..28], [1, 0, 0, 3]);
        assert_eq!(bytes[95..103], ((3u64 << 32) + 1).to_le_bytes());
        assert_eq!(bytes[103..], *b"\x02\x02, ");
        let found = PendingSuper::decode(&bytes).unwrap();
        assert_eq!(found.manifest, payload().manifest);
        assert!(are_same(&found.reducer, &payload().reducer));
        assert_eq!((found.identity, found.base), (payload().identity, 9));
    }

    #[test]
    fn impossible_superblocks_are_refused() {
        let bytes = payload().encode();
        for len in 0..bytes.len() {
            assert!(PendingSuper::decode(&bytes[..len]).is_none(), "{len}");
        }
        for (at, byte) in [(0, 11), (0, 27), (24, 2), (103, 5), (103, 1)] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert!(PendingSuper::decode(&bytes).is_none(), "{at}");
        }
        let mut nameless = bytes.clone();
        nameless[8..16].fill(0);
        assert!(PendingSuper::decode(&nameless).is_none());
    }

    #[test]
    fn reducers_whose_result_depends_on_merges_are_refused() {
        for name in Reducer::NAMES {
            let reducer = Reducer::from_name(name).unwrap();
            let refused = ["second", "all"].contains(&name);
            assert_eq!(check_reducer(&reducer).is_err(), refused, "{name}");
            assert_eq!(are_same(&reducer, &reducer), !refused);
        }
        assert!(check_reducer(&Reducer::Concat(vec![0; 256])).is_err());
        assert!(!are_same(
            &Reducer::Concat(vec![1]),
            &Reducer::Concat(vec![2])
        ));
    }
}
