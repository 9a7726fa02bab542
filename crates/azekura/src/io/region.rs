//! A bounded window of a storage: who is given one cannot touch what lies outside.
//!
//! Offset 0 of a [`Region`] is its first byte, and its size never changes. An access that does not lie
//! within is `Invalid` and reaches nothing. It does not lend a map: a map's bytes have no bounds of
//! their own. A sync syncs the whole storage below, since a device knows nothing smaller.

use std::sync::Arc;

use super::{Map, Storage};
use crate::error::{Error, Kind, Result};

/// Bytes `offset..offset + len` of a storage.
#[derive(Clone, Debug)]
pub struct Region {
    below: Arc<dyn Storage>,
    offset: u64,
    len: u64,
}

impl Region {
    /// A window on `below`; `Invalid` if it does not lie within the present size.
    pub fn new(below: Arc<dyn Storage>, offset: u64, len: u64) -> Result<Self> {
        let what = "the region lies outside its storage";
        super::check_within(below.as_ref(), offset, len, below.size()?, what)?;
        Ok(Self { below, offset, len })
    }

    /// Two regions: the bytes before `at`, and the rest. `Invalid` beyond the end.
    pub fn split(self, at: u64) -> Result<(Self, Self)> {
        let offset = self.place(at, self.len.saturating_sub(at))?;
        let rest = Self {
            below: Arc::clone(&self.below),
            offset,
            len: self.len - at,
        };
        Ok((Self { len: at, ..self }, rest))
    }

    /// Whether it lies as the storage below wants it.
    fn is_aligned(&self) -> bool {
        (self.offset | self.len).is_multiple_of(self.below.alignment())
    }

    /// The offset below of a range that lies within.
    fn place(&self, offset: u64, len: u64) -> Result<u64> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::new(Kind::Invalid, "access outside the region")
                .at(self.below.path())
                .offset(self.offset.saturating_add(offset))
                .found(
                    format!("{offset:#x} and {len:#x} bytes"),
                    format!("an end within {:#x}", self.len),
                ));
        }
        Ok(self.offset + offset)
    }
}

impl super::over::Over for Region {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.below
            .read_at(self.place(offset, buf.len() as u64)?, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.below
            .write_at(self.place(offset, bytes.len() as u64)?, bytes)
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.below
            .write_durably(self.place(offset, bytes.len() as u64)?, bytes)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.len)
    }

    /// `Invalid` unless it is the size it has.
    fn resize(&self, size: u64) -> Result<()> {
        if size == self.len {
            return Ok(());
        }
        Err(
            Error::new(Kind::Invalid, "a region does not change its size")
                .at(self.below.path())
                .found(size, self.len),
        )
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.below.discard(self.place(offset, len)?, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.below.allocate(self.place(offset, len)?, len)
    }

    /// The size: which of its blocks are holes is known below only.
    fn allocated(&self) -> Result<u64> {
        Ok(self.len)
    }

    /// `Invalid`: see the module's text.
    fn map(&self, _capacity: u64) -> Result<Arc<Map>> {
        Err(Error::new(Kind::Invalid, "a region is not mapped").at(self.below.path()))
    }

    fn copy_range_to(&self, offset: u64, len: u64, target: &dyn Storage) -> Result<()> {
        super::copy_through_memory(self, offset, len, target)
    }

    /// That of the storage below, or none if the region does not lie so.
    fn alignment(&self) -> u64 {
        if self.is_aligned() {
            self.below.alignment()
        } else {
            1
        }
    }

    fn backing_file(&self) -> Option<(&std::fs::File, u64)> {
        if !self.is_aligned() {
            return None;
        }
        let (file, start) = self.below.backing_file()?;
        Some((file, start + self.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::refusal;
    use crate::io::memory::Memory;

    fn memory() -> Arc<Memory> {
        Memory::from_bytes(&[1; 100], 4096).unwrap()
    }

    #[test]
    fn a_region_reads_and_writes_its_own_bytes() {
        let below = memory();
        let region = Region::new(below.clone(), 20, 30).unwrap();
        region.write_at(0, &[2; 30]).unwrap();
        region.discard(10, 10).unwrap();
        let mut wanted = [1; 100];
        wanted[20..50].fill(2);
        wanted[30..40].fill(0);
        assert_eq!(below.to_vec(), wanted);
        let mut seen = [9; 12];
        region.read_at(8, &mut seen).unwrap();
        assert_eq!(seen, [2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn nothing_outside_is_touched() {
        let below = memory();
        let region = Region::new(below.clone(), 20, 30).unwrap();
        let refusals = [
            region.write_at(29, &[2; 2]),
            region.write_at(u64::MAX, &[2]),
            region.write_durably(30, &[2]),
            region.read_at(31, &mut []),
            region.discard(0, 31),
            region.allocate(30, 1),
            region.resize(31),
            region.map(4096).map(drop),
            Region::new(below.clone(), 99, 2).map(drop),
        ];
        for refused in refusals {
            refusal(refused, Kind::Invalid);
        }
        assert_eq!(below.to_vec(), [1; 100]);
        let error = region.write_at(29, &[2; 2]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid: access outside the region at memory offset 0x31 \
             (found 0x1d and 0x2 bytes, expected an end within 0x1e)"
        );
    }

    #[test]
    fn a_split_region_is_two_that_do_not_meet() {
        let below = memory();
        let whole = Region::new(below.clone(), 10, 80).unwrap();
        let (head, tail) = whole.clone().split(30).unwrap();
        head.write_at(0, &[3; 30]).unwrap();
        tail.write_at(0, &[4; 50]).unwrap();
        assert_eq!(below.to_vec()[9..12], [1, 3, 3]);
        assert_eq!(below.to_vec()[38..42], [3, 3, 4, 4]);
        assert_eq!(below.to_vec()[88..92], [4, 4, 1, 1]);
        refusal(whole.split(81), Kind::Invalid);
    }
}
