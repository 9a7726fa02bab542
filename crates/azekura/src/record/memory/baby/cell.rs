//! Out-of-line values: those too long for a node. Each has an allocation of its own, is never changed, and is freed when
//! no reader can hold it.
//!
//! A node holds a word that points to the value. A value is retired after the word was taken out of the node; a batch
//! of retired ones is sealed at once, as a seal costs microseconds, and is freed when its grace period has elapsed. Retired values wait
//! until there are 64 or a mebibyte of them, and the batch before them has left. It does not know nodes.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | length of the value |
//! | 8 | .. | the value |

#![expect(unsafe_code, reason = "values after a word")]

use std::alloc::{Layout, alloc, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::budget::{Budget, Pay};
use crate::epoch::{Batch, Domain, Pin, RetireList};
use crate::error::{Error, Kind, Result, size};
use crate::explore::Mutex;

const LEN: usize = 8;
const BATCH: usize = if cfg!(azekura_explore) { 1 } else { 64 };
const BATCH_BYTES: u64 = 1 << 20;

pub(super) struct Cells {
    budget: Arc<Budget>,
    /// Its weight is bytes of values.
    retired: Mutex<RetireList<Retired>>,
    /// Of the values and their lengths.
    bytes: AtomicU64,
}

/// A word of a value that can no longer be found. Dropping it frees the value.
struct Retired(u64);

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: a word that `Cells::retire` got by its contract, once. Its list drops it when no thread can hold the value
        // any more, or with the store.
        unsafe { free(self.0) };
    }
}

fn layout(len: usize) -> Result<Layout> {
    Layout::from_size_align(len + LEN, 8).map_err(|_| no_room(len))
}

#[cold]
fn no_room(len: usize) -> Error {
    let what = format!("no memory for a value of {}", size(len as u64));
    Error::new(Kind::Full, what).remedy("remove records, or give the process more memory")
}

impl Cells {
    pub(super) fn new(domain: Domain, budget: Arc<Budget>) -> Self {
        Self {
            budget,
            retired: Mutex::new(RetireList::new(domain)),
            bytes: AtomicU64::new(0),
        }
    }

    /// A word for a copy of the parts of a value. `Full` if there is no memory, or the budget refuses it.
    #[expect(clippy::cast_ptr_alignment, reason = "allocated at eight bytes")]
    pub(super) fn put(&self, parts: &[&[u8]], pay: Pay) -> Result<u64> {
        let len = parts.iter().map(|part| part.len()).sum();
        let layout = layout(len)?;
        self.budget.take(layout.size() as u64, pay)?;
        // SAFETY: the layout is not empty.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            self.budget.give(layout.size() as u64);
            return Err(no_room(len));
        }
        // SAFETY: the allocation has eight aligned bytes for the length and as many as the parts after them, and is
        // no other thread's.
        unsafe {
            at.cast::<u64>().write(len as u64);
            let mut to = at.add(LEN);
            for part in parts {
                to.copy_from_nonoverlapping(part.as_ptr(), part.len());
                to = to.add(part.len());
            }
        }
        self.bytes
            .fetch_add(layout.size() as u64, Ordering::Relaxed);
        Ok(at.expose_provenance() as u64)
    }

    /// The value of `word`.
    ///
    /// # Safety
    ///
    /// `word` is one of [`put`](Self::put), found in a node in a state that counts, either under `pin`, or by a thread that
    /// keeps it from being retired for as long.
    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "allocated at eight bytes")]
    pub(super) unsafe fn get(_pin: &Pin, word: u64) -> &[u8] {
        let at = std::ptr::with_exposed_provenance::<u8>(word as usize);
        // SAFETY: made by `put`, and not freed: what is found under a pin is retired after the pin began, and freed
        // when the grace period that begins after that has elapsed, which the pin prevents. No thread writes to it.
        unsafe {
            let len = at.cast::<u64>().read() as usize;
            std::slice::from_raw_parts(at.add(LEN), len)
        }
    }

    /// Frees the value of `word`, some time.
    ///
    /// # Safety
    ///
    /// `word` is one of [`put`](Self::put), can no longer be found in any node, and is retired once.
    pub(super) unsafe fn retire(&self, word: u64) {
        // SAFETY: it is not retired, and so not freed, yet.
        let len = unsafe { len_of(word) };
        self.forget(len);
        let mut retired = self.retired.lock();
        // Without memory for the note, it is not freed.
        let _ = retired.retire(Retired(word), len as u64);
        if retired.fresh_count() < BATCH && retired.fresh_weight() < BATCH_BYTES {
            return;
        }
        retired.seal();
        drop(retired);
        // Each is dropped while others retire values: the system takes long to free much.
        while self.next_elapsed().is_some() {}
    }

    fn next_elapsed(&self) -> Option<Batch<Retired>> {
        self.retired.lock().next_elapsed()
    }

    /// Frees the value of `word` at once.
    ///
    /// # Safety
    ///
    /// `word` is one of [`put`](Self::put), and no other thread has seen it or can see it.
    pub(super) unsafe fn drop_unseen(&self, word: u64) {
        // SAFETY: `word` is one of `put`, by the contract; it is not freed, since that takes a word that is in a node or was
        // retired, and no other thread has this one.
        let len = unsafe { len_of(word) };
        self.forget(len);
        // SAFETY: the same; no reader holds it, since none has seen it.
        unsafe { free(word) };
    }

    fn forget(&self, len: usize) {
        self.bytes.fetch_sub((len + LEN) as u64, Ordering::Relaxed);
        self.budget.give((len + LEN) as u64);
    }

    /// Bytes of values that are not retired.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// # Safety
///
/// `word` is one of `Cells::put` and not freed.
unsafe fn len_of(word: u64) -> usize {
    let at = std::ptr::with_exposed_provenance::<u64>(word as usize);
    debug_assert!(at.is_aligned() && !at.is_null(), "no word of `put`");
    // SAFETY: `word` is the exposed address of an allocation that `put` made at eight bytes and that is not freed, by the
    // contract. Its first eight bytes are the length, which is written before the word exists and never changed.
    unsafe { at.read() as usize }
}

/// # Safety
///
/// `word` is one of `Cells::put`, not freed, and no thread holds it.
unsafe fn free(word: u64) {
    // SAFETY: `word` is one of `put` and not freed, which is the contract of this function, too.
    let len = unsafe { len_of(word) };
    let at = std::ptr::with_exposed_provenance_mut::<u8>(word as usize);
    if cfg!(azekura_explore) {
        // Who looks nevertheless finds zeros, and so is found.
        // SAFETY: it was allocated with so many bytes after the length.
        unsafe { at.add(LEN).write_bytes(0, len) };
        return;
    }
    if let Ok(layout) = layout(len) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(at, layout) };
    }
}
