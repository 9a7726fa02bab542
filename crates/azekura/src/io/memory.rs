//! A storage in memory, of a fixed capacity.
//!
//! For stores that need not outlive the process, and for tests of a full device. It is lost with
//! its last handle, and syncing it does nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Map, Storage};
use crate::error::{Error, Kind, Result, size};

/// Bytes in memory.
#[derive(Debug)]
pub struct Memory {
    map: Arc<Map>,
    size: AtomicU64,
    limit: AtomicU64,
}

impl Memory {
    /// An empty storage that may grow to `limit` bytes.
    pub fn new(limit: u64) -> Result<Arc<Self>> {
        let map = Map::anonymous(limit.next_multiple_of(4096).max(4096), None)?;
        Ok(Arc::new(Self {
            map,
            size: AtomicU64::new(0),
            limit: AtomicU64::new(limit),
        }))
    }

    /// A storage that holds `bytes`, and may grow to `limit`.
    pub fn from_bytes(bytes: &[u8], limit: u64) -> Result<Arc<Self>> {
        let memory = Self::new(limit.max(bytes.len() as u64))?;
        memory.map.write(0, bytes);
        memory.size.store(bytes.len() as u64, Ordering::Relaxed);
        Ok(memory)
    }

    /// All bytes, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size.load(Ordering::Relaxed) as usize];
        self.map.copy_out(0, &mut bytes);
        bytes
    }

    /// Changes how far it may grow (not beyond the first limit): a device that fills up.
    pub fn set_limit(&self, limit: u64) {
        self.limit
            .store(limit.min(self.map.capacity()), Ordering::Relaxed);
    }

    fn within(&self, offset: u64, len: usize) -> Result<()> {
        let size = self.size.load(Ordering::Relaxed);
        if offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(Error::new(Kind::Corrupted, "the storage ends too early").offset(offset));
        }
        Ok(())
    }
}

impl Storage for Memory {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.within(offset, buf.len())?;
        self.map.copy_out(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.within(offset, bytes.len())?;
        self.map.write(offset, bytes);
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        Ok(self.size.load(Ordering::Relaxed))
    }

    fn resize(&self, wanted: u64) -> Result<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        let present = self.size.load(Ordering::Relaxed);
        if wanted > limit && wanted > present {
            return Err(Error::new(Kind::Full, "no more memory for this storage")
                .found(size(wanted), format!("at most {}", size(limit))));
        }
        if wanted < present {
            self.map.zero(wanted, present - wanted);
        }
        self.size.store(wanted, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.within(offset, len as usize)?;
        self.map.zero(offset, len);
        Ok(())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn allocated(&self) -> Result<u64> {
        self.size()
    }

    fn free(&self) -> Option<u64> {
        let limit = self.limit.load(Ordering::Relaxed);
        Some(limit.saturating_sub(self.size.load(Ordering::Relaxed)))
    }

    fn map(&self, _capacity: u64) -> Result<Arc<Map>> {
        Ok(Arc::clone(&self.map))
    }

    fn boot_id(&self) -> [u8; 16] {
        [1; 16]
    }

    fn entropy(&self) -> u64 {
        0x243f_6a88_85a3_08d3
    }

    fn path(&self) -> &Path {
        Path::new("memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::refusal;

    #[test]
    fn bytes_are_kept_at_any_offset_and_seen_through_the_map() {
        let memory = Memory::from_bytes(b"0123456789", 4096).unwrap();
        memory.resize(20).unwrap();
        memory.write_at(9, b"abc").unwrap();
        let mut seen = [0; 5];
        memory.read_at(7, &mut seen).unwrap();
        assert_eq!(&seen, b"78abc");
        memory.map(4096).unwrap().store_u64(8, 0);
        memory.read_at(7, &mut seen).unwrap();
        assert_eq!(&seen, b"7\0\0\0\0");
    }

    #[test]
    fn what_was_cut_off_or_discarded_comes_back_as_zeros() {
        let memory = Memory::from_bytes(&[7; 100], 4096).unwrap();
        memory.discard(10, 10).unwrap();
        memory.resize(50).unwrap();
        memory.resize(100).unwrap();
        let mut wanted = vec![7; 100];
        wanted[10..20].fill(0);
        wanted[50..].fill(0);
        assert_eq!(memory.to_vec(), wanted);
    }

    #[test]
    fn a_full_memory_is_full_and_reading_past_the_end_is_damage() {
        let memory = Memory::new(8192).unwrap();
        memory.resize(4096).unwrap();
        memory.set_limit(4096);
        refusal(memory.resize(4097), Kind::Full);
        refusal(memory.read_at(4096, &mut [0]), Kind::Corrupted);
        memory.set_limit(8192);
        memory.resize(8192).unwrap();
    }
}
