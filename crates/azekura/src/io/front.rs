//! The first bytes of a storage, as a storage of its own that grows up to a limit.
//!
//! The bytes past the limit belong to another user of the storage. The space exists already, so growing only changes a
//! number; the bytes that a [`Front`] grows by are zeroed first.
//!
//! 1. An access that is not within its present size is `Invalid`, and accesses nothing.
//! 2. Its map is the map of the storage below, no longer than the limit.
//! 3. A sync syncs the whole storage below.
//! 4. It gives no access to the file below it: such an access would not see that it shrinks.
//!
//! It does not know what is past its limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Map, Storage};
use crate::error::{Error, Kind, Result, sizes};

/// See the module's text.
#[derive(Debug)]
pub struct Front {
    below: Arc<dyn Storage>,
    limit: u64,
    /// At most the limit; changed by the owner of the storage, one thread at a time.
    size: AtomicU64,
}

impl Front {
    /// The first `limit` bytes of `below`, `size` of them in use. `Invalid` if there are not so many.
    pub fn new(below: Arc<dyn Storage>, limit: u64, size: u64) -> Result<Arc<Self>> {
        let there = below.size()?;
        if limit > there || size > limit {
            return Err(
                Error::new(Kind::Invalid, "the storage is shorter than its front")
                    .at(below.path())
                    .found(there, format!("{limit} or more")),
            );
        }
        Ok(Arc::new(Self {
            below,
            limit,
            size: AtomicU64::new(size),
        }))
    }

    fn within(&self, offset: u64, len: u64) -> Result<()> {
        let size = self.size.load(Ordering::Acquire);
        let what = "access past the end of the front";
        super::check_within(self.below.as_ref(), offset, len, size, what)
    }
}

impl super::over::Over for Front {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.within(offset, buf.len() as u64)?;
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.within(offset, bytes.len() as u64)?;
        self.below.write_at(offset, bytes)
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.within(offset, bytes.len() as u64)?;
        self.below.write_durably(offset, bytes)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.size.load(Ordering::Acquire))
    }

    fn resize(&self, wanted: u64) -> Result<()> {
        if wanted > self.limit {
            let (found, limit) = sizes(wanted, self.limit);
            return Err(Error::new(Kind::Full, "the room set aside is used up")
                .at(self.below.path())
                .found(found, format!("at most {limit}")));
        }
        let before = self.size.load(Ordering::Acquire);
        if wanted > before {
            self.below.discard(before, wanted - before)?;
            self.below.allocate(before, wanted - before)?;
        }
        self.size.store(wanted, Ordering::Release);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.within(offset, len)?;
        self.below.discard(offset, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.within(offset, len)?;
        self.below.allocate(offset, len)
    }

    /// The limit: the room is set aside.
    fn allocated(&self) -> Result<u64> {
        Ok(self.limit)
    }

    fn map(&self, capacity: u64) -> Result<Arc<Map>> {
        self.below.map(capacity.min(self.limit))
    }

    fn copy_range_to(&self, offset: u64, len: u64, target: &dyn Storage) -> Result<()> {
        self.within(offset, len)?;
        self.below.copy_range_to(offset, len, target)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::error::refusal;
    use crate::io::memory::Memory;

    #[test]
    fn it_grows_by_zeros_to_its_limit_and_touches_nothing_behind() {
        let below = Memory::from_bytes(&vec![7; 32768], 32768).unwrap();
        let front = Front::new(below.clone(), 16384, 4096).unwrap();
        assert_eq!(front.size().unwrap(), 4096);
        refusal(front.read_at(4095, &mut [0; 2]), Kind::Invalid);
        front.resize(8192).unwrap();
        let mut seen = [1; 4098];
        front.read_at(4094, &mut seen).unwrap();
        assert_eq!(
            (&seen[..2], seen[2..].iter().any(|byte| *byte != 0)),
            (&[7, 7][..], false)
        );
        front.resize(4096).unwrap();
        refusal(front.write_at(4096, &[1]), Kind::Invalid);
        refusal(front.resize(16385), Kind::Full);
        front.resize(16384).unwrap();
        assert!(below.to_vec()[16384..].iter().all(|byte| *byte == 7));
        assert!(Front::new(below.clone(), 32769, 0).is_err());
        assert!(Front::new(below, 4096, 4097).is_err());
    }
}
