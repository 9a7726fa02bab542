//! The bytes of a simulated file, page by page, shared between the disks that have the same.
//!
//! A page that was never written is not there and reads as zeros. Copies share pages until one of them
//! writes: a state after a power cut costs the pages that differ. It does not know the size of the file.

use std::ops::Range;
use std::sync::Arc;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

type Page = [u8; PAGE as usize];

/// Pages from the beginning of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages(Vec<Option<Arc<Page>>>);

impl Pages {
    /// The pages that are there, with their offsets.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Page)> {
        let offsets = (0..).step_by(PAGE as usize);
        offsets
            .zip(&self.0)
            .filter_map(|(offset, page)| Some((offset, &**page.as_ref()?)))
    }

    /// Bytes within one page; `None`: all zeros.
    pub(super) fn get(&self, range: Range<u64>) -> Option<&[u8]> {
        let (page, range) = place(range);
        Some(&self.0.get(page)?.as_ref()?[range])
    }

    /// Bytes within one page, to be written.
    pub(super) fn get_mut(&mut self, range: Range<u64>) -> &mut [u8] {
        let (page, range) = place(range);
        if self.0.len() <= page {
            self.0.resize(page + 1, None);
        }
        let page = self.0[page].get_or_insert_with(|| Arc::new([0; PAGE as usize]));
        &mut Arc::make_mut(page)[range]
    }

    /// Zeroes what is after `size`.
    pub(super) fn truncate(&mut self, size: u64) {
        self.0.truncate(size.div_ceil(PAGE) as usize);
        let end = size.next_multiple_of(PAGE);
        if self
            .get(size..end)
            .is_some_and(|rest| rest.iter().any(|byte| *byte != 0))
        {
            self.get_mut(size..end).fill(0);
        }
    }
}

fn place(range: Range<u64>) -> (usize, Range<usize>) {
    let page = range.start / PAGE;
    let start = page * PAGE;
    assert!(range.end <= start + PAGE, "a range lies within one page");
    (
        page as usize,
        (range.start - start) as usize..(range.end - start) as usize,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_pages_until_one_writes() {
        let mut pages = Pages::default();
        pages.get_mut(8192..8200).fill(1);
        let mut copy = pages.clone();
        copy.get_mut(8196..8200).fill(2);
        assert_eq!(pages.get(8192..8200), Some(&[1; 8][..]));
        assert_eq!(copy.get(8192..8200), Some(&[1, 1, 1, 1, 2, 2, 2, 2][..]));
        assert_eq!(pages.get(0..10), None);
        assert_eq!(
            pages.iter().map(|(offset, _)| offset).collect::<Vec<_>>(),
            [8192]
        );
    }

    #[test]
    fn what_is_cut_off_is_zero() {
        let mut pages = Pages::default();
        pages.get_mut(0..4096).fill(1);
        pages.get_mut(4096..8192).fill(1);
        pages.truncate(100);
        assert_eq!(pages.get(98..102), Some(&[1, 1, 0, 0][..]));
        assert_eq!(pages.get(4096..4100), None);
        pages.truncate(0);
        assert_eq!(pages.iter().count(), 0);
    }
}
