//! A read-only view of a storage, with the changes of its reader in memory (copy on write).
//!
//! ```text
//!   0 ............ changeable ................................ size
//!   a private map: a page that is     the storage below;
//!   stored into is this handle's      changing it is refused
//! ```
//!
//! So a reader of a store that a crash left can recover it with the code that recovers stores, and read the result:
//! nothing reaches the storage below, and the changes are gone with the handle. It costs the memory of the changed pages,
//! where the storage below has such a map, and else a copy of the changeable part.
//!
//! It does not know what is changed, nor why.

use std::ops::Range;
use std::sync::Arc;

use super::file::File;
use super::{Map, Storage};
use crate::error::{Error, Kind, Result, size};

/// Bytes that are read at once, then of a page, then of a sector, where a device refuses.
const PIECES: [u64; 3] = [1 << 20, 4096, 512];

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

    /// As [`new`](Self::new), of a storage that cannot be read everywhere: with a copy of what can be, zeros where the device
    /// refuses, and where that is, in order.
    pub fn of_readable(
        below: Arc<dyn Storage>,
        changeable: u64,
    ) -> Result<(Arc<Self>, Vec<Range<u64>>)> {
        let map = Map::anonymous(changeable.next_multiple_of(4096).max(4096), None)?;
        let unreadable = read_around(below.as_ref(), 0..changeable, &mut |offset, bytes| {
            map.write(offset, bytes);
            Ok(())
        })?;
        let overlay = Arc::new(Self {
            below,
            map,
            changeable,
        });
        Ok((overlay, unreadable))
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

/// Shows what can be read of `range`, in order; where the device refuses, in sectors of 512 bytes. An error is `visit`'s.
pub fn read_around(
    storage: &dyn Storage,
    range: Range<u64>,
    visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Vec<Range<u64>>> {
    let mut refused: Vec<Range<u64>> = Vec::new();
    let mut buf = crate::room::vec(PIECES[0] as usize)?;
    let mut at = range.start;
    while at < range.end {
        let mut done = None;
        for piece in PIECES {
            // Up to the end of a piece, so that the next one begins at a page.
            let end = ((at / piece + 1) * piece).min(range.end);
            buf.resize((end - at) as usize, 0);
            if storage.read_at(at, &mut buf).is_ok() {
                done = Some(end);
                break;
            }
        }
        if let Some(end) = done {
            visit(at, &buf)?;
            at = end;
            continue;
        }
        let sector = PIECES[2];
        let end = ((at / sector + 1) * sector).min(range.end);
        match refused.last_mut() {
            Some(last) if last.end == at => last.end = end,
            _ => refused.push(at..end),
        }
        at = end;
    }
    Ok(refused)
}

impl super::over::Over for Overlay {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (front, after) = buf.split_at_mut(self.changeable_of(offset, buf.len()));
        if !front.is_empty() {
            self.map.copy_out(offset, front);
        }
        if after.is_empty() {
            return Ok(());
        }
        self.below.read_at(offset + front.len() as u64, after)
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
    use crate::error::refusal;
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
            refusal(Overlay::new(below, 20_001), Kind::Corrupted);
        }
    }
}
