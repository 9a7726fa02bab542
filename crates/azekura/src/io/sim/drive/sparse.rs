//! A large storage of which only what is not zero is held: a terabyte of objects whose values are zeros takes their headers.
//!
//! ```text
//!   0 ............ mapped ........................................ size
//!   memory that may be mapped      lines of 64 bytes that are not zero, by page
//!   (a journal)                    (values)
//! ```
//!
//! The mapped part is as a system's page cache: what is stored or written there waits, page by page, and [`Clocked`] has the
//! drive write it with the next sync. Its size is fixed. It has no place and no time, and nothing survives it.
//!
//! [`Clocked`]: super::Clocked

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Kind, Result, size};
use crate::io::mmap::WriteObserver;
use crate::io::{Map, Storage};

const PAGE: u64 = 4096;
const LINE: usize = 64;
const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// Pages that wait to be written.
#[derive(Debug, Default)]
struct Waiting(Mutex<BTreeSet<u64>>);

impl WriteObserver for Waiting {
    fn stored(&self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        self.0.lock().extend(offset / PAGE..end.div_ceil(PAGE));
    }
}

/// What of a page is not zero: which lines, and their bytes in order.
#[derive(Debug)]
struct Lines {
    which: u64,
    bytes: Box<[u8]>,
}

impl Lines {
    fn of(page: &[u8]) -> Self {
        let (mut which, mut bytes) = (0, Vec::new());
        for (index, line) in page.chunks(LINE).enumerate() {
            if line.iter().any(|byte| *byte != 0) {
                which |= 1 << index;
                bytes.extend_from_slice(line);
            }
        }
        let bytes = bytes.into_boxed_slice();
        Self { which, bytes }
    }

    fn page(&self) -> [u8; PAGE as usize] {
        let mut page = ZEROS;
        let places = page.chunks_mut(LINE).enumerate();
        let set = places.filter(|(index, _)| self.which >> index & 1 == 1);
        for ((_, to), line) in set.zip(self.bytes.chunks(LINE)) {
            to.copy_from_slice(line);
        }
        page
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Sparse {
    size: u64,
    /// The first so many bytes are the map's.
    mapped: u64,
    map: Arc<Map>,
    waiting: Arc<Waiting>,
    /// After the mapped part, by page.
    held: Mutex<HashMap<u64, Lines>>,
}

impl Sparse {
    /// `size` zeros, of which the first `mapped` may be mapped. Both are multiples of 4096 (`Invalid`).
    pub fn new(size: u64, mapped: u64) -> Result<Arc<Self>> {
        if mapped > size || size % PAGE + mapped % PAGE > 0 {
            let error = Error::new(Kind::Invalid, "a sparse storage consists of pages");
            return Err(error.found(mapped, format!("pages, {size} bytes at most")));
        }
        let waiting = Arc::<Waiting>::default();
        let map = Map::anonymous(mapped.max(PAGE), Some(Arc::clone(&waiting) as _))?;
        Ok(Arc::new(Self {
            size,
            mapped,
            map,
            waiting,
            held: Mutex::default(),
        }))
    }

    /// Bytes of memory that are held for what is not mapped.
    pub fn held(&self) -> u64 {
        let held = self.held.lock();
        held.values().map(|lines| lines.bytes.len() as u64).sum()
    }

    /// Whether a range is of the mapped part, where it begins.
    pub(super) fn is_mapped(&self, offset: u64) -> bool {
        offset < self.mapped
    }

    /// The ranges that wait to be written and touch `within`, which do not wait any more.
    pub(super) fn take_waiting(&self, within: Range<u64>) -> Vec<Range<u64>> {
        let mut waiting = self.waiting.0.lock();
        let end = within.end.div_ceil(PAGE);
        let pages = (within.start / PAGE).min(end)..end;
        let taken: Vec<u64> = waiting.range(pages).copied().collect();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for page in taken {
            waiting.remove(&page);
            match ranges.last_mut().filter(|last| last.end == page * PAGE) {
                Some(last) => last.end += PAGE,
                None => ranges.push(page * PAGE..(page + 1) * PAGE),
            }
        }
        ranges
    }

    fn within(&self, offset: u64, len: u64) -> Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.size) {
            let error = Error::new(Kind::Corrupted, "the storage ends too early");
            return Err(error.at(self.path()).offset(offset));
        }
        Ok(())
    }

    /// Shows the parts of a range, each within a page that is not mapped, or mapped: its offset, and where it is in the range.
    fn parts(&self, offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>)> + use<> {
        let end = offset + len as u64;
        let mapped = self.mapped;
        let mut at = offset;
        std::iter::from_fn(move || {
            let limit = if at < mapped {
                mapped
            } else {
                at - at % PAGE + PAGE
            };
            let (from, to) = (at, end.min(limit));
            at = to;
            (from < to).then(|| (from, (from - offset) as usize..(to - offset) as usize))
        })
    }
}

impl Storage for Sparse {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.within(offset, buf.len() as u64)?;
        let held = self.held.lock();
        for (at, part) in self.parts(offset, buf.len()) {
            let to = &mut buf[part];
            if self.is_mapped(at) {
                self.map.copy_out(at, to);
            } else if let Some(lines) = held.get(&(at / PAGE)) {
                let begin = (at % PAGE) as usize;
                to.copy_from_slice(&lines.page()[begin..begin + to.len()]);
            } else {
                to.fill(0);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.within(offset, bytes.len() as u64)?;
        let mut held = self.held.lock();
        for (at, part) in self.parts(offset, bytes.len()) {
            let (from, index) = (&bytes[part], at / PAGE);
            if self.is_mapped(at) {
                self.map.write(at, from);
                continue;
            }
            let mut page = ZEROS;
            if from.len() < page.len() {
                page = held.get(&index).map_or(ZEROS, Lines::page);
            }
            let begin = (at % PAGE) as usize;
            page[begin..begin + from.len()].copy_from_slice(from);
            if page == ZEROS {
                held.remove(&index);
            } else {
                held.insert(index, Lines::of(&page));
            }
        }
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }

    fn resize(&self, wanted: u64) -> Result<()> {
        if wanted != self.size {
            let error = Error::new(Kind::Full, "the size is fixed").at(self.path());
            return Err(error.found(size(wanted), size(self.size)));
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.within(offset, len)?;
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let next = (at - at % PAGE + PAGE).min(end);
            self.write_at(at, &ZEROS[..(next - at) as usize])?;
            at = next;
        }
        // The system notes it, and writes nothing.
        self.take_waiting(offset.next_multiple_of(PAGE)..end - end % PAGE);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.within(offset, len)
    }

    fn allocated(&self) -> Result<u64> {
        Ok(self.size)
    }

    /// `Invalid` beyond the part that may be mapped.
    fn map(&self, capacity: u64) -> Result<Arc<Map>> {
        if capacity > self.mapped {
            let error = Error::new(Kind::Invalid, "not so much may be mapped").at(self.path());
            let most = format!("at most {}", size(self.mapped));
            return Err(error.found(size(capacity), most));
        }
        Ok(Arc::clone(&self.map))
    }

    fn boot_id(&self) -> [u8; 16] {
        [1; 16]
    }

    fn entropy(&self) -> u64 {
        0x243f_6a88_85a3_08d3
    }

    fn path(&self) -> &Path {
        Path::new("sparse")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::refusal;
    use crate::testkit::Random;

    #[test]
    fn it_reads_what_was_written_at_any_place() {
        let sparse = Sparse::new(16 * PAGE, 4 * PAGE).unwrap();
        let mut model = vec![0; 16 * PAGE as usize];
        let mut random = Random::new(1);
        for _ in 0..500 {
            let at = random.index(model.len());
            let len = random.index(3 * PAGE as usize).min(model.len() - at);
            if random.one_in(4) {
                sparse.discard(at as u64, len as u64).unwrap();
                model[at..at + len].fill(0);
            } else {
                let bytes = random.bytes(len);
                sparse.write_at(at as u64, &bytes).unwrap();
                model[at..at + len].copy_from_slice(&bytes);
            }
        }
        let mut seen = vec![1; model.len()];
        sparse.read_at(0, &mut seen).unwrap();
        assert!(seen == model);
        let (at, len) = (4 * PAGE - 5, 5000);
        sparse.read_at(at, &mut seen[..len]).unwrap();
        assert!(seen[..len] == model[at as usize..][..len]);
        refusal(sparse.write_at(16 * PAGE - 1, &[1; 2]), Kind::Corrupted);
        refusal(sparse.map(5 * PAGE), Kind::Invalid);
        refusal(Sparse::new(PAGE, 1), Kind::Invalid);
    }

    #[test]
    fn zeros_are_not_held() {
        let sparse = Sparse::new(1 << 40, 0).unwrap();
        let mut value = vec![0; 1 << 20];
        value[100] = 7;
        for at in [1 << 30, 1 << 39] {
            sparse.write_at(at, &value).unwrap();
        }
        assert_eq!(sparse.held(), 2 * LINE as u64);
        sparse.write_at(1 << 30, &vec![0; 1 << 20]).unwrap();
        assert_eq!(sparse.held(), LINE as u64);
    }

    #[test]
    fn pages_that_were_stored_into_wait_once() {
        let sparse = Sparse::new(16 * PAGE, 8 * PAGE).unwrap();
        let map = sparse.map(8 * PAGE).unwrap();
        map.write(PAGE + 5, &[1; 3]);
        map.write(2 * PAGE, &[1; 3]);
        sparse.write_at(5 * PAGE, &[1]).unwrap();
        sparse.write_at(9 * PAGE, &[1]).unwrap();
        let first = sparse.take_waiting(0..2 * PAGE);
        assert_eq!(first.first(), Some(&(PAGE..2 * PAGE)));
        assert_eq!(first.len(), 1);
        map.write(PAGE, &[1; 3]);
        assert_eq!(
            sparse.take_waiting(0..u64::MAX),
            [PAGE..3 * PAGE, 5 * PAGE..6 * PAGE]
        );
        map.write(PAGE, &[2; 3]);
        sparse.discard(0, 8 * PAGE).unwrap();
        assert_eq!(sparse.take_waiting(0..u64::MAX), []);
    }
}
