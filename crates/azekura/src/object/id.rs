//! Object ids: 128 bits, ordered as a number, written in hexadecimal.
//!
//! Text, bytes and number have the same order: sorted bytes are sorted numbers.
//! Ids carry no meaning here.

use std::fmt;
use std::ops::{Bound, RangeBounds, RangeInclusive};
use std::str::FromStr;

use crate::error::{Error, Kind, Result, quote};

/// Names an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u128);

impl ObjectId {
    /// Bytes of an id.
    pub const SIZE: usize = 16;

    /// The bytes, most significant first.
    #[expect(
        clippy::big_endian_bytes,
        reason = "the order of bytes is the order of ids"
    )]
    pub const fn to_bytes(self) -> [u8; Self::SIZE] {
        self.0.to_be_bytes()
    }

    /// The id with these bytes, most significant first.
    #[expect(
        clippy::big_endian_bytes,
        reason = "the order of bytes is the order of ids"
    )]
    pub const fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The next id; `None` after the last one.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

/// The first and the last id of a range; `None`: it is empty.
pub(crate) fn ids_of(range: &impl RangeBounds<ObjectId>) -> Option<RangeInclusive<ObjectId>> {
    let first = match range.start_bound() {
        Bound::Included(id) => *id,
        Bound::Excluded(id) => id.next()?,
        Bound::Unbounded => ObjectId(0),
    };
    let last = match range.end_bound() {
        Bound::Included(id) => *id,
        Bound::Excluded(id) => ObjectId(id.0.checked_sub(1)?),
        Bound::Unbounded => ObjectId(u128::MAX),
    };
    (first <= last).then_some(first..=last)
}

/// 32 hexadecimal digits.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// From 1 to 32 hexadecimal digits; leading zeros may be left out. `Invalid` for any other text.
impl FromStr for ObjectId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if text.is_empty() || text.len() > 32 || !digits {
            return Err(Error::new(Kind::Invalid, "malformed object id")
                .found(quote(text.as_bytes()), "1 to 32 hexadecimal digits"));
        }
        let number = u128::from_str_radix(text, 16);
        number.map(Self).map_err(|error| {
            Error::new(Kind::Invalid, "malformed object id").detail(error.to_string())
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_and_what_is_no_id_is_refused() {
        let id: ObjectId = "ab".parse().unwrap();
        assert_eq!(id, ObjectId(0xab));
        assert_eq!(id.to_string(), "000000000000000000000000000000ab");
        assert_eq!(id.to_string().parse::<ObjectId>().unwrap(), id);
        assert_eq!("F".repeat(32).parse::<ObjectId>().unwrap().0, u128::MAX);
        for text in ["", "xyz", "+1", "-1", "0x12", " 1", &"1".repeat(33)] {
            let error = text.parse::<ObjectId>().unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{text:?}");
        }
        let error = "foo".parse::<ObjectId>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid: malformed object id (found \"foo\", expected 1 to 32 hexadecimal digits)"
        );
    }

    #[test]
    fn a_range_has_the_ids_that_it_contains() {
        use Bound::{Excluded, Included, Unbounded};
        let all = [0, 1, 2, u128::MAX - 1, u128::MAX].map(ObjectId);
        let bounds = all.map(|id| [Included(id), Excluded(id)]);
        let bounds = || bounds.into_iter().flatten().chain([Unbounded]);
        for range in bounds().flat_map(|first| bounds().map(move |end| (first, end))) {
            let ids = ids_of(&range);
            for id in all {
                let is_in = ids.as_ref().is_some_and(|ids| ids.contains(&id));
                assert_eq!(is_in, range.contains(&id), "{id} of {range:?}");
            }
        }
    }

    #[test]
    fn bytes_are_in_the_order_of_numbers() {
        let ids = [0, 1, 255, 256, 1 << 64, u128::MAX].map(ObjectId);
        assert!(ids.map(ObjectId::to_bytes).is_sorted());
        assert_eq!(ids.map(|id| ObjectId::from_bytes(id.to_bytes())), ids);
        assert_eq!(ObjectId(7).next(), Some(ObjectId(8)));
        assert_eq!(ObjectId(u128::MAX).next(), None);
    }
}
