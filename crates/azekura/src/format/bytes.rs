//! A cursor over bytes that cannot run past their end, and its twin that writes.
//!
//! Every decoder in the library takes its integers from here; each `take` is `None` at the end. It
//! knows integers and slices, and nothing of what they mean.

/// Reads little-endian integers from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next sixteen bytes.
    pub fn id(&mut self) -> Option<[u8; 16]> {
        self.array()
    }

    /// A number of things in four bytes, and then the things; nothing is allocated on the number's word.
    pub fn all<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(one(self)?);
        }
        Some(all)
    }

    /// Whether nothing but zeros remain: the rule for reserved bytes.
    pub fn rest_is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }
}

/// Appends little-endian integers to a vector.
#[derive(Debug, Default)]
pub struct Give(pub Vec<u8>);

impl Give {
    /// Appends a byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_taken_and_the_end_is_none() {
        let mut give = Give::default();
        give.u8(1).u16(2).u32(3).u64(4).bytes(b"xy");
        let mut take = Take(&give.0);
        assert_eq!(
            (take.u8(), take.u16(), take.u32(), take.u64()),
            (Some(1), Some(2), Some(3), Some(4))
        );
        assert_eq!(take.bytes(3), None);
        assert_eq!(take.bytes(2), Some(&b"xy"[..]));
        assert_eq!(take.u8(), None);
        assert!(take.rest_is_zero());
        let mut many = Give::default();
        many.u32(2).u8(5).u8(6);
        assert_eq!(Take(&many.0).all(Take::u8), Some(vec![5, 6]));
        many.u32(u32::MAX);
        let mut take = Take(&many.0);
        assert_eq!(take.bytes(6).map(<[u8]>::len), Some(6));
        assert_eq!(take.all(Take::u8), None);
    }
}
