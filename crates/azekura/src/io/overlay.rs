//! A storage that is looked at, with what its reader would have changed in memory.
//!
//! ```text
//!   0 ............ changeable ................................ size
//!   a private map: a page that is     the storage below;
//!   stored into is this handle's      changing it is refused
//! ```
//!
//! So whoever finds a store as a crash left it can recover it with the code that recovers stores, and look at what comes out:
//! nothing reaches the storage below, and what was changed is gone with the handle. It costs the pages that are changed, where
//! the storage below can lend such a map, and else a copy of the changeable part.
//!
//! It does not know what is changed, nor why.

use std::sync::Arc;

use super::file::File;
use super::{Map, Storage};
use crate::error::{Error, Kind, Result, size};

/// See the module's text.
#[derive(Debug)]
pub struct Overlay {
    below: Arc<dyn Storage>,
    map: Arc<Map>,
    changeable: u64,
}

impl Overlay {
    /// `below`, with its first `changeable` bytes to be changed in memory. `Corrupted` if it has not so many.
    pub fn new(below: Arc<dyn Storage>, changeable: u64) -> Result<Arc<Self>> {
        let there = below.size()?;
        if there < changeable {
            let error = Error::new(Kind::Corrupted, "the storage ends too early");
            let expected = format!("at least {changeable:#x} bytes");
            return Err(error
                .at(below.path())
                .found(format!("{there:#x} bytes"), expected));
        }
        let map = below.map_private(changeable)?;
        Ok(Arc::new(Self {
            below,
            map,
            changeable,
        }))
    }

    /// How many of `len` bytes from `offset` on are changeable; they come first.
    fn changeable_of(&self, offset: u64, len: usize) -> usize {
        (self.changeable.saturating_sub(offset)).min(len as u64) as usize
    }

    /// `Invalid` if a range is not changeable.
    fn may_change(&self, offset: u64, len: u64) -> Result<()> {
        if offset
            .checked_add(len)
            .is_none_or(|end| end > self.changeable)
        {
            return Err(Error::new(
                Kind::Invalid,
                "it was opened for reading, and is not changed",
            )
            .at(self.below.path())
            .offset(offset));
        }
        Ok(())
    }
}

impl super::over::Over for Overlay {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (front, behind) = buf.split_at_mut(self.changeable_of(offset, buf.len()));
        if !front.is_empty() {
            self.map.copy_out(offset, front);
        }
        if behind.is_empty() {
            return Ok(());
        }
        self.below.read_at(offset + front.len() as u64, behind)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.may_change(offset, bytes.len() as u64)?;
        self.map.write(offset, bytes);
        Ok(())
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Storage::write_at(self, offset, bytes)
    }

    fn take_name(&self) -> Result<()> {
        Ok(())
    }

    fn alignment(&self) -> u64 {
        1
    }

    fn resize(&self, wanted: u64) -> Result<()> {
        let there = self.below.size()?;
        if wanted == there {
            return Ok(());
        }
        let error = Error::new(
            Kind::Invalid,
            "it was opened for reading, and keeps its size",
        );
        Err(error.at(self.below.path()).found(size(wanted), size(there)))
    }

    /// What was changed survives nothing.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.may_change(offset, len)?;
        self.map.zero(offset, len);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.may_change(offset, len)
    }

    fn map(&self, capacity: u64) -> Result<Arc<Map>> {
        self.may_change(0, capacity)?;
        Ok(Arc::clone(&self.map))
    }

    fn copy_range_to(&self, offset: u64, len: u64, target: &dyn Storage) -> Result<()> {
        super::copy_through_memory(self, offset, len, target)
    }

    /// For reads of what is not changeable.
    fn as_file(&self) -> Option<&File> {
        self.below.as_file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Access;

    fn bytes_of(storage: &dyn Storage) -> Vec<u8> {
        let mut bytes = vec![0; storage.size().unwrap() as usize];
        storage.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// Of a file, whose pages are lent, and of a storage that is copied.
    #[test]
    fn what_is_changed_is_seen_here_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let original: Vec<u8> = (0..20_000_u32).map(|n| n as u8 | 1).collect();
        std::fs::write(&path, &original).unwrap();
        let file = File::open(&path, Access::Read).unwrap();
        let memory = crate::io::memory::Memory::from_bytes(&original, 20_000).unwrap();
        for below in [Arc::new(file) as Arc<dyn Storage>, memory] {
            let overlay = Overlay::new(Arc::clone(&below), 8192).unwrap();
            let mut model = original.clone();
            assert!(bytes_of(overlay.as_ref()) == model);
            overlay.write_at(4093, b"seven b").unwrap();
            model[4093..4100].copy_from_slice(b"seven b");
            overlay.map(8192).unwrap().store_u64(8184, 0);
            model[8184..8192].fill(0);
            overlay.discard(100, 900).unwrap();
            model[100..1000].fill(0);
            overlay.sync().unwrap();
            assert!(bytes_of(overlay.as_ref()) == model);
            let mut seen = [0; 9];
            overlay.read_at(8187, &mut seen).unwrap();
            assert_eq!(seen, model[8187..8196]);
            assert!(bytes_of(below.as_ref()) == original);
            for refused in [
                overlay.write_at(8190, b"abc").unwrap_err(),
                overlay.discard(0, 8193).unwrap_err(),
                overlay.map(8193).unwrap_err(),
                overlay.resize(8192).unwrap_err(),
            ] {
                assert_eq!(refused.kind(), Kind::Invalid);
            }
            let short = Overlay::new(below, 20_001).unwrap_err();
            assert_eq!(short.kind(), Kind::Corrupted);
        }
    }
}
