//! Files and devices past the page cache (`O_DIRECT`), with aligned buffers.
//!
//! A [`DirectFile`] hands whole blocks between the device and aligned memory: no copy of the data stays in
//! the cache, and what is read comes from the device. From an [`AlignedBuf`], with aligned offset and
//! length, nothing is copied; anything else goes through a buffer, and the blocks at its edges are read,
//! changed and written back.
//!
//! 1. Its size is a multiple of the alignment wherever it is written. What a device has after the last whole block is
//!    not used.
//! 2. Threads may write different bytes of one block at once: edges are changed under a lock.
//! 3. Durability still needs `sync`: the device has a cache, too.
//!
//! It is not mapped, and knows nothing of formats.

use std::cmp::Ordering;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};

use super::aligned::{ALIGNMENT, AlignedBuf};
use super::file::{File, write_zeros};
use super::{Access, Map, Storage};
use crate::error::{Error, Kind, Result, size};

/// Bytes moved at once for unaligned callers.
const CHUNK: u64 = 1 << 20;

/// An open file whose bytes do not pass the page cache.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    alignment: u64,
    /// Held while blocks at the edges of a range are read, changed and written.
    edges: Mutex<()>,
    /// A size that it had and still has, at least: what others cut off is not seen.
    seen: AtomicU64,
}

impl DirectFile {
    /// Makes a new file, as [`File::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(File::create(path)?)
    }

    /// Opens a file or a block device, as [`File::open`]. `Invalid` if its file system has no direct access.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self> {
        Self::with(File::open(path, access)?)
    }

    /// A second handle on an open file, past the cache. Who holds the first is the writer; who opens the file next waits until
    /// the last request of this one has landed.
    pub fn reopened(file: &File) -> Result<Self> {
        Self::with(file.again()?)
    }

    fn with(file: File) -> Result<Self> {
        let flags = fcntl_getfl(&file.file);
        flags
            .and_then(|flags| fcntl_setfl(&file.file, flags | OFlags::DIRECT))
            .map_err(|error| {
                Error::new(Kind::Invalid, "the file system has no direct access")
                    .at(file.path())
                    .detail(error.to_string())
                    .remedy("put the file on another file system, or open it without")
            })?;
        let dio = StatxFlags::from_bits_retain(0x2000);
        let reported = statx(&file.file, "", AtFlags::EMPTY_PATH, dio).map_or(0, |found| {
            found.stx_dio_offset_align.max(found.stx_dio_mem_align)
        });
        let block = file.device_block().unwrap_or(ALIGNMENT);
        let alignment = u64::from(reported).max(block).max(ALIGNMENT);
        let alignment = alignment.next_power_of_two();
        Ok(Self {
            file,
            alignment,
            edges: Mutex::new(()),
            seen: AtomicU64::new(0),
        })
    }

    fn is_aligned(&self, offset: u64, bytes: &[u8]) -> bool {
        (offset | bytes.len() as u64 | bytes.as_ptr().addr() as u64).is_multiple_of(self.alignment)
    }

    /// Room for the largest of the chunks of a range.
    fn buffer(&self, len: usize) -> Result<AlignedBuf> {
        let len = CHUNK
            .min(len as u64 + 2 * self.alignment)
            .next_multiple_of(self.alignment);
        AlignedBuf::zeroed(len as usize, self.alignment)
    }

    /// The blocks around a range, cut into chunks: of each, the blocks, and the part that was asked for.
    fn chunks(&self, offset: u64, len: u64) -> impl Iterator<Item = (Range<u64>, Range<u64>)> {
        let chunk = CHUNK.next_multiple_of(self.alignment);
        let first = offset - offset % self.alignment;
        let end = offset + len;
        let last = if len == 0 {
            first
        } else {
            end.next_multiple_of(self.alignment)
        };
        (first..last).step_by(chunk as usize).map(move |start| {
            let blocks = start..last.min(start + chunk);
            (
                blocks.clone(),
                offset.max(blocks.start)..end.min(blocks.end),
            )
        })
    }

    /// Reads aligned blocks. The file may end within them, but not before `wanted` of their bytes: then it is
    /// `Corrupted`, and what is past its end stays as it is.
    fn read_blocks(&self, offset: u64, blocks: &mut [u8], wanted: usize) -> Result<()> {
        let mut done = 0;
        while done < blocks.len() {
            let place = offset + done as u64;
            match self.file.file.read_at(&mut blocks[done..], place) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::io("cannot read", error)
                        .at(self.file.path())
                        .offset(offset));
                }
            }
            // The end of the file lies within this block.
            if !(done as u64).is_multiple_of(self.alignment) {
                break;
            }
        }
        if done < wanted {
            return Err(self.ends(Kind::Corrupted, offset, wanted as u64));
        }
        Ok(())
    }

    fn ends(&self, kind: Kind, offset: u64, wanted: u64) -> Error {
        Error::new(kind, "the file ends too early")
            .at(self.file.path())
            .offset(offset)
            .detail(format!("{} wanted", size(wanted)))
    }

    /// Writes `bytes` into part of some blocks, and leaves the rest of them as it is.
    fn write_blocks(
        &self,
        blocks: &Range<u64>,
        part: &Range<u64>,
        bytes: &[u8],
        buffer: &mut [u8],
    ) -> Result<()> {
        let block = self.alignment as usize;
        let _edges = (blocks != part).then(|| self.edges.lock());
        if part.start > blocks.start {
            self.read_blocks(blocks.start, &mut buffer[..block], block)?;
        }
        let last = buffer.len() - block;
        if part.end < blocks.end && (last > 0 || part.start == blocks.start) {
            self.read_blocks(blocks.start + last as u64, &mut buffer[last..], block)?;
        }
        let to = (part.start - blocks.start) as usize;
        buffer[to..to + bytes.len()].copy_from_slice(bytes);
        self.file.write_at(blocks.start, buffer)
    }

    /// Asks the system for the size only where the one last seen does not do.
    fn within(&self, kind: Kind, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len);
        let is_within = |size| end.is_some_and(|end| end <= size);
        if is_within(self.seen.load(Relaxed)) {
            return Ok(());
        }
        let size = self.size()?;
        self.seen.store(size, Relaxed);
        if is_within(size) {
            return Ok(());
        }
        Err(self.ends(kind, offset, len))
    }
}

impl super::over::Over for DirectFile {
    fn below(&self) -> &dyn Storage {
        &self.file
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.is_aligned(offset, buf) {
            return self.read_blocks(offset, buf, buf.len());
        }
        self.within(Kind::Corrupted, offset, buf.len() as u64)?;
        let mut buffer = self.buffer(buf.len())?;
        for (blocks, part) in self.chunks(offset, buf.len() as u64) {
            self.read_blocks(
                blocks.start,
                &mut buffer[..(blocks.end - blocks.start) as usize],
                (part.end - blocks.start) as usize,
            )?;
            let from = (part.start - blocks.start) as usize..(part.end - blocks.start) as usize;
            let to = (part.start - offset) as usize..(part.end - offset) as usize;
            buf[to].copy_from_slice(&buffer[from]);
        }
        Ok(())
    }

    /// As the contract states; `Invalid` also if the last block is not wholly within the size.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        let whole = end
            .checked_next_multiple_of(self.alignment)
            .unwrap_or(u64::MAX);
        self.within(Kind::Invalid, offset, whole.saturating_sub(offset))?;
        if self.is_aligned(offset, bytes) {
            return self.file.write_at(offset, bytes);
        }
        let mut buffer = self.buffer(bytes.len())?;
        for (blocks, part) in self.chunks(offset, bytes.len() as u64) {
            let from = (part.start - offset) as usize..(part.end - offset) as usize;
            let buffer = &mut buffer[..(blocks.end - blocks.start) as usize];
            self.write_blocks(&blocks, &part, &bytes[from], buffer)?;
        }
        Ok(())
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if !self.is_aligned(offset, bytes) {
            Storage::write_at(self, offset, bytes)?;
            return self.file.sync();
        }
        self.within(Kind::Invalid, offset, bytes.len() as u64)?;
        self.file.write_durably(offset, bytes)
    }

    fn size(&self) -> Result<u64> {
        let size = self.file.size()?;
        Ok(if self.file.device_block().is_some() {
            size - size % self.alignment
        } else {
            size
        })
    }

    /// As the contract states; `Invalid` if `size` is not a multiple of the alignment.
    fn resize(&self, size: u64) -> Result<()> {
        if !size.is_multiple_of(self.alignment) {
            return Err(
                Error::new(Kind::Invalid, "the size of a direct file has whole blocks")
                    .at(self.file.path())
                    .found(size, format!("a multiple of {}", self.alignment)),
            );
        }
        let present = Storage::size(self)?;
        match size.cmp(&present) {
            Ordering::Equal => Ok(()),
            Ordering::Greater => Storage::allocate(self, present, size - present),
            Ordering::Less => {
                self.seen.store(0, Relaxed);
                self.file.resize(size)
            }
        }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.file.give_back(self, offset, len)
    }

    /// As the contract states. Where the file system has no call for it, the bytes past the end are written.
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let range = offset..offset.saturating_add(len);
        if self.file.take_room(&range)? {
            return Ok(());
        }
        let size = Storage::size(self)?;
        if range.end > size {
            let grown = self.file.file.set_len(range.end);
            grown.map_err(|e| {
                Error::io("cannot grow", e)
                    .at(self.file.path())
                    .offset(size)
            })?;
        }
        write_zeros(self, offset.max(size), range.end)
    }

    /// `Invalid`: a map is the page cache.
    fn map(&self, _capacity: u64) -> Result<Arc<Map>> {
        Err(Error::new(Kind::Invalid, "a direct file is not mapped").at(self.file.path()))
    }

    fn copy_range_to(&self, offset: u64, len: u64, target: &dyn Storage) -> Result<()> {
        super::copy_through_memory(self, offset, len, target)
    }

    fn alignment(&self) -> u64 {
        self.alignment
    }

    fn backing_file(&self) -> Option<(&std::fs::File, u64)> {
        self.file.backing_file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::refusal;

    /// A file of `blocks` blocks, and its bytes; `None` where there is no direct access.
    fn file(blocks: u64) -> Option<(tempfile::TempDir, DirectFile, Vec<u8>)> {
        let folder = tempfile::tempdir().unwrap();
        let file = match DirectFile::create(folder.path().join("a")) {
            Ok(file) => file,
            Err(error) => {
                assert_eq!(error.kind(), Kind::Invalid);
                return None;
            }
        };
        let len = blocks * file.alignment();
        file.resize(len).unwrap();
        let mut bytes = AlignedBuf::zeroed(len as usize, file.alignment()).unwrap();
        bytes
            .iter_mut()
            .enumerate()
            .for_each(|(i, byte)| *byte = (i / 7) as u8);
        file.write_at(0, &bytes).unwrap();
        let bytes = bytes.to_vec();
        Some((folder, file, bytes))
    }

    fn all(file: &DirectFile) -> Vec<u8> {
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn any_range_is_read_and_written_and_its_neighbours_stay() {
        let Some((_folder, file, mut wanted)) = file(6) else {
            return;
        };
        let block = file.alignment() as usize;
        let edges = [
            0,
            1,
            511,
            block - 1,
            block,
            block + 1,
            3 * block,
            4 * block + 9,
            6 * block,
        ];
        for (i, start) in edges.iter().enumerate() {
            for end in &edges[i..] {
                let bytes = vec![(start ^ end) as u8 | 1; end - start];
                file.write_at(*start as u64, &bytes).unwrap();
                wanted[*start..*end].copy_from_slice(&bytes);
                let mut seen = vec![0; end - start];
                file.read_at(*start as u64, &mut seen).unwrap();
                assert!(seen == bytes, "{start}..{end}");
                assert!(all(&file) == wanted, "{start}..{end}");
            }
        }
        file.sync().unwrap();
    }

    #[test]
    fn long_unaligned_ranges_go_chunk_by_chunk() {
        let Some((_folder, file, mut wanted)) = file(600) else {
            return;
        };
        let bytes: Vec<u8> = (0..2_300_000u32).map(|i| (i >> 5) as u8).collect();
        file.write_at(777, &bytes).unwrap();
        wanted[777..777 + bytes.len()].copy_from_slice(&bytes);
        assert!(all(&file) == wanted);
        let mut seen = vec![0; 2_000_000];
        file.read_at(5, &mut seen).unwrap();
        assert!(seen == wanted[5..2_000_005]);
    }

    #[test]
    fn threads_write_different_bytes_of_one_block() {
        let Some((_folder, file, _)) = file(1) else {
            return;
        };
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let file = &file;
                scope.spawn(move || {
                    for at in 0..64 {
                        file.write_at(u64::from(thread) + at * 4, &[thread + 100])
                            .unwrap();
                    }
                });
            }
        });
        let wanted: Vec<u8> = (0..256u32).map(|at| (at % 4) as u8 + 100).collect();
        assert_eq!(all(&file)[..256], wanted);
    }

    #[test]
    fn what_has_no_whole_blocks_is_refused() {
        let Some((folder, file, _)) = file(2) else {
            return;
        };
        let end = file.size().unwrap();
        refusal(file.resize(5000), Kind::Invalid);
        refusal(file.map(4096), Kind::Invalid);
        refusal(file.write_at(end - 1, &[1, 2]), Kind::Invalid);
        refusal(file.read_at(u64::MAX, &mut [0]), Kind::Corrupted);
        // A file of another make: its tail can be read.
        let odd = folder.path().join("odd");
        std::fs::write(&odd, vec![3; 5000]).unwrap();
        let odd = DirectFile::open(odd, Access::Write).unwrap();
        assert_eq!(all(&odd), vec![3; 5000]);
        refusal(odd.write_at(4990, &[1]), Kind::Invalid);
        assert_eq!(odd.size().unwrap(), 5000);
    }
}
