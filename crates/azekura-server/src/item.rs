//! An item: what memcached keeps under a key, as the value of a record.
//!
//! The head is as short as the item allows: most items have no flags and never expire, and take 9 bytes more than their
//! data. [`Item::decode`] is total; bytes that are not an item were not written by this server.
//! Times are whole seconds since 1970, to the year 2106. It knows no clock and no protocol.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 1 | shape: bit 0 flags follow, 1 a time follows, 2 stale, 3 won, 4 binary key; the others are zero |
//! | 1 | 8 | version, which clients know as cas; never that of another write |
//! | 9 | 4 | flags, if bit 0; else they are zero |
//! | 9 or 13 | 4 | when it expires, if bit 1; else never |
//! | 9 to 17 | rest | data |
//!
//! All numbers are little-endian. *Stale* items are shown as such until they are stored again; *won* means that a client
//! has the right to recache it. A *binary key* is sent and shown as base64.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

/// Most bytes of a head.
pub const HEAD_LEN_MAX: usize = 17;

const HAS_FLAGS: u8 = 1;
const EXPIRES: u8 = 2;
const STALE: u8 = 4;
const WON: u8 = 8;
const BINARY_KEY: u8 = 16;

/// The metadata of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The version.
    pub cas: u64,
    /// The client's flags.
    pub flags: u32,
    /// From which second on the item is absent; 0: it stays.
    pub expires: u32,
    /// Whether it is out of date, and shown as such.
    pub is_stale: bool,
    /// Whether a client won the right to recache it.
    pub is_won: bool,
    /// Whether the key is shown as base64.
    pub is_binary_key: bool,
}

impl Head {
    /// Bytes it takes.
    #[inline]
    pub const fn len(&self) -> usize {
        9 + if self.flags == 0 { 0 } else { 4 } + if self.expires == 0 { 0 } else { 4 }
    }

    /// Never: a head has at least 9 bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Whether the item is absent at `now`.
    #[inline]
    pub const fn is_over(&self, now: u32) -> bool {
        self.expires != 0 && self.expires <= now
    }

    /// Appends the head; the data is to follow.
    #[inline]
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let mut shape = 0;
        shape |= if self.flags == 0 { 0 } else { HAS_FLAGS };
        shape |= if self.expires == 0 { 0 } else { EXPIRES };
        shape |= if self.is_stale { STALE } else { 0 };
        shape |= if self.is_won { WON } else { 0 };
        shape |= if self.is_binary_key { BINARY_KEY } else { 0 };
        bytes.push(shape);
        bytes.extend_from_slice(&self.cas.to_le_bytes());
        if self.flags != 0 {
            bytes.extend_from_slice(&self.flags.to_le_bytes());
        }
        if self.expires != 0 {
            bytes.extend_from_slice(&self.expires.to_le_bytes());
        }
    }
}

/// An item, borrowed from a record's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'v> {
    /// What is known of it.
    pub head: Head,
    /// What the client stored.
    pub data: &'v [u8],
}

impl<'v> Item<'v> {
    /// The item of a record's value, or `None` if it is none.
    #[inline]
    pub fn decode(value: &'v [u8]) -> Option<Self> {
        let (shape, rest) = value.split_first()?;
        let (cas, mut rest) = rest.split_first_chunk::<8>()?;
        let mut head = Head {
            cas: u64::from_le_bytes(*cas),
            is_stale: shape & STALE != 0,
            is_won: shape & WON != 0,
            is_binary_key: shape & BINARY_KEY != 0,
            ..Head::default()
        };
        if shape & !(HAS_FLAGS | EXPIRES | STALE | WON | BINARY_KEY) != 0 {
            return None;
        }
        if shape & HAS_FLAGS != 0 {
            let (flags, after) = rest.split_first_chunk::<4>()?;
            head.flags = u32::from_le_bytes(*flags);
            rest = after;
        }
        if shape & EXPIRES != 0 {
            let (expires, after) = rest.split_first_chunk::<4>()?;
            head.expires = u32::from_le_bytes(*expires);
            rest = after;
        }
        Some(Self { head, data: rest })
    }
}

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may fail by a panic"
)]
mod tests {
    use super::*;

    #[test]
    fn an_item_comes_back_as_it_was_written_and_is_as_short_as_it_can_be() {
        for (flags, expires, len) in [(0, 0, 9), (7, 0, 13), (0, 9, 13), (u32::MAX, 1, 17)] {
            let head = Head {
                cas: 0x0102_0304_0506_0708,
                flags,
                expires,
                is_stale: flags == 7,
                is_won: expires == 9,
                is_binary_key: flags == 0,
            };
            let mut bytes = Vec::new();
            head.write(&mut bytes);
            assert_eq!((bytes.len(), head.len()), (len, len));
            bytes.extend_from_slice(b"data");
            let item = Item::decode(&bytes).unwrap();
            assert_eq!((item.head, item.data), (head, &b"data"[..]));
        }
    }

    #[test]
    fn the_layout_is_the_one_of_the_table() {
        let mut bytes = Vec::new();
        let head = Head {
            cas: 1,
            flags: 2,
            expires: 3,
            is_stale: true,
            is_won: false,
            is_binary_key: false,
        };
        head.write(&mut bytes);
        assert_eq!(bytes, [7, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn bytes_that_are_cut_or_of_another_shape_are_no_item() {
        let whole = [3, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
        assert!(Item::decode(&whole).is_some());
        for len in 0..whole.len() {
            assert_eq!(Item::decode(&whole[..len]), None);
        }
        assert_eq!(Item::decode(&[32, 1, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn an_item_is_over_from_its_second_on() {
        let head = Head {
            expires: 100,
            ..Head::default()
        };
        assert!(!head.is_over(99) && head.is_over(100) && head.is_over(101));
        assert!(!Head::default().is_over(u32::MAX));
    }
}
