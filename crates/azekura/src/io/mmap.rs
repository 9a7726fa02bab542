//! A storage's bytes in memory: one reservation of address space that never moves.
//!
//! [`Map`] is shared by all threads and, for files, by other processes. It offers words with the
//! ordering of atomics, and copies in and out. It does not know what the bytes mean; the log decides
//! which thread writes where (a range is written by one thread, then published by `store_u64`,
//! then never written again until no reader can hold it).
//!
//! A [`WriteObserver`] observes every store: the simulated disk records through it what a power cut may undo.
//! Without one (always, outside tests) a store costs one predictable branch more.
//!
//! A page of a file that the device cannot read, or that was cut off, is a signal (SIGBUS) to its reader. On Linux on
//! x86-64 the process survives: zeros that can only be read replace the page, and
//! [`Map::is_unreadable`] distinguishes them from zeros of the file. Checksums then fail there. A store into such a page still
//! ends the process, before anything is acknowledged. On other platforms reading ends it, too.

#![expect(
    unsafe_code,
    reason = "raw memory shared with other threads and processes"
)]

mod fault;

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use crate::error::{Error, Kind, Result};

/// Addresses that a process has for maps of files, of the 128 TiB of x86-64: the others are for indexes and memory.
const ADDRESSES: u64 = 96 << 40;
/// Until so many are reserved, each map has what it wants; later ones have this part of those left.
const RESERVED_FREELY: u64 = ADDRESSES / 2;
const SHARE: u64 = 128;

/// Addresses that maps of files have reserved. Relaxed: a bound, not an order.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// How many addresses a map of a file may reserve, so that some hundred more can be made.
pub(crate) fn share_of_addresses() -> u64 {
    share_left(RESERVED.load(Ordering::Relaxed))
}

const fn share_left(reserved: u64) -> u64 {
    if reserved < RESERVED_FREELY {
        return u64::MAX;
    }
    // Whole pages.
    (ADDRESSES.saturating_sub(reserved) / SHARE) & !0xfff
}

/// Returns memory to the system that its allocator keeps for later, where it can. Costs milliseconds.
pub fn return_unused_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it touches what the allocator knows to be free, under its own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes that the system's allocator has free and may keep, where it can state it. The number is of 32 bits.
pub fn unused_memory() -> u64 {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it reads numbers of the allocator, under its own locks.
    return u64::from(unsafe { libc::mallinfo() }.fordblks.cast_unsigned());
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    0
}

/// Has the allocator take pieces of at least that many bytes from the system and give them back at once, where it can: by
/// itself it comes to keep pieces of up to 32 MiB, and a limit of memory does not hold.
pub fn return_large_memory(least: u32) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets a number of the allocator, under its own locks.
    unsafe {
        libc::mallopt(
            libc::M_MMAP_THRESHOLD,
            i32::try_from(least).unwrap_or(i32::MAX),
        );
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = least;
}

/// Observes every store into a [`Map`], after it was made.
pub trait WriteObserver: Send + Sync {
    /// `bytes` now stand at `offset`.
    fn stored(&self, offset: u64, bytes: &[u8]);
}

/// Mapped bytes of a storage, `capacity` of them reserved.
pub struct Map {
    base: NonNull<u8>,
    capacity: u64,
    writable: bool,
    /// Whether the pages are a file's.
    is_file: bool,
    observer: Option<Arc<dyn WriteObserver>>,
    unreadable: Unreadable,
}

/// Pages that the system could not load. Written by a signal's handler: atomics, and nothing else.
#[derive(Default)]
struct Unreadable {
    /// How many were noted; more than there is room for are noted as all.
    count: AtomicUsize,
    /// Offset of the page, plus one.
    pages: [AtomicU64; UNREADABLE_MAX],
}

/// Unreadable pages that are listed.
const UNREADABLE_MAX: usize = 32;

// SAFETY: the memory is shared by design; every access goes through atomics, or through copies whose
// exclusion the caller upholds (see `write` and `bytes`). The pointer itself never changes.
unsafe impl Send for Map {}
// SAFETY: two threads that share it have what one has after another: words through atomics, copies that exclude each other.
unsafe impl Sync for Map {}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl Map {
    /// Maps a file, shared with all others that map it. `capacity` may exceed the file's size: pages
    /// come into being as the file grows.
    pub(crate) fn of_file(
        file: impl rustix::fd::AsFd,
        capacity: u64,
        writable: bool,
    ) -> Result<Arc<Self>> {
        let prot = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        let base = map_file(file, capacity, prot, MapFlags::SHARED).map_err(|e| {
            Error::io(
                format!("cannot map {} of addresses", crate::error::size(capacity)),
                e,
            )
        })?;
        // Where the file system has large folios, the log is then mapped by huge pages, and a record costs one
        // cache miss without a walk of page tables. Elsewhere the advice does nothing.
        // SAFETY: the range is the mapping just made; the advice does not change the bytes.
        unsafe { libc::madvise(base, capacity as usize, libc::MADV_HUGEPAGE) };
        let map = Self::of(base, capacity, writable, true, None);
        RESERVED.fetch_add(capacity, Ordering::Relaxed);
        fault::register(&map);
        Ok(map)
    }

    /// Maps the first `capacity` bytes of a file, which it has, so that what is stored there is this map's alone, and the
    /// file keeps its bytes. Costs the pages that are stored into.
    pub(crate) fn private_of_file(file: impl rustix::fd::AsFd, capacity: u64) -> Result<Arc<Self>> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let base = map_file(file, capacity, prot, MapFlags::PRIVATE)
            .map_err(|e| Error::io("cannot map the file for a reader", e))?;
        // What is stored is the memory's alone, and no file's: it must not be let go of.
        Ok(Self::of(base, capacity, true, false, None))
    }

    /// Zeroed private memory of `capacity` bytes, taken page by page as it is touched.
    pub(crate) fn anonymous(
        capacity: u64,
        observer: Option<Arc<dyn WriteObserver>>,
    ) -> Result<Arc<Self>> {
        // SAFETY: a fresh mapping at an address the kernel chooses aliases no Rust object.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                capacity as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|e| {
            Error::io(
                format!(
                    "cannot reserve {} of addresses",
                    crate::error::size(capacity)
                ),
                e,
            )
        })?;
        Ok(Self::of(base, capacity, true, false, observer))
    }

    /// A mapping that was just made.
    fn of(
        base: *mut std::ffi::c_void,
        capacity: u64,
        writable: bool,
        is_file: bool,
        observer: Option<Arc<dyn WriteObserver>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            base: NonNull::new(base.cast()).expect("mmap does not return null"),
            capacity,
            writable,
            is_file,
            observer,
            unreadable: Unreadable::default(),
        })
    }

    /// Whether an observer sees what is stored.
    #[inline(always)]
    pub(crate) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// Notes a range as one that the system cannot read: for stand-ins of devices.
    pub fn note_unreadable(&self, offset: u64, len: u64) {
        for page in (offset & !4095..offset + len).step_by(4096) {
            self.unreadable.note(page);
        }
    }

    /// Whether anything could not be loaded.
    #[inline]
    pub fn has_unreadable(&self) -> bool {
        self.unreadable.count.load(Ordering::Acquire) != 0
    }

    /// Whether a part of the range could not be loaded: it reads as zeros, which state nothing.
    #[cold]
    pub fn is_unreadable(&self, offset: u64, len: u64) -> bool {
        let end = offset + len;
        let pages = self.unreadable_pages();
        pages.is_none_or(|pages| {
            pages
                .iter()
                .any(|page| *page < end && offset < *page + 4096)
        })
    }

    /// The offsets of the pages that could not be loaded; `None`: more than are listed.
    pub fn unreadable_pages(&self) -> Option<Vec<u64>> {
        let count = self.unreadable.count.load(Ordering::Acquire);
        let pages = self.unreadable.pages.get(..count)?.iter();
        let noted = pages.map(|page| page.load(Ordering::Acquire));
        Some(noted.filter_map(|page| page.checked_sub(1)).collect())
    }

    /// How many bytes are reserved.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The address of `offset`.
    #[inline(always)]
    pub fn at(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset <= self.capacity);
        self.base.as_ptr().wrapping_add(offset as usize)
    }

    #[inline(always)]
    fn bound(&self, offset: u64, len: u64) {
        let within = offset
            .checked_add(len)
            .is_some_and(|end| end <= self.capacity);
        if !within {
            beyond(offset, len, self.capacity);
        }
    }

    /// The word at `offset` (a multiple of 8), with acquire ordering.
    #[inline(always)]
    pub fn load_u64(&self, offset: u64) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Publishes a word at `offset` (a multiple of 8), with release ordering, little-endian as every
    /// supported platform is.
    #[inline(always)]
    pub fn store_u64(&self, offset: u64, value: u64) {
        debug_assert!(self.writable);
        self.word(offset).store(value, Ordering::Release);
        if let Some(observer) = &self.observer {
            observer.stored(offset, &value.to_le_bytes());
        }
    }

    /// Adds to the word at `offset` (a multiple of 8) and returns what was there. For counters in
    /// private memory: it is not reported to a observer.
    #[inline(always)]
    pub fn fetch_add_u64(&self, offset: u64, value: u64) -> u64 {
        debug_assert!(self.observer.is_none(), "counters live in private memory");
        self.word(offset).fetch_add(value, Ordering::Relaxed)
    }

    /// Zeroes a range that is the caller's alone.
    pub(crate) fn zero(&self, offset: u64, len: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut at = offset;
        while at < offset + len {
            let part = (offset + len - at).min(4096);
            self.write(at, &ZEROS[..part as usize]);
            at += part;
        }
    }

    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "asserted")]
    fn word(&self, offset: u64) -> &AtomicU64 {
        self.bound(offset, 8);
        assert!(offset.is_multiple_of(8), "words are aligned");
        // SAFETY: in bounds and aligned (checked above); all access to published words is atomic.
        unsafe { &*self.at(offset).cast::<AtomicU64>() }
    }

    /// Copies `bytes` in at `offset`.
    ///
    /// The range must be the caller's alone until it publishes it: the log reserves it first.
    #[inline(always)]
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        self.bound(offset, bytes.len() as u64);
        debug_assert!(self.writable);
        // SAFETY: in bounds (asserted). No slice of the range is lent meanwhile: `bytes` and `bytes_within` lend only what was
        // published and is not reused before its readers' pins are gone, and callers write only what is not: the
        // log a segment that it took and has not linked, and the mark and headers, which are read by copies or words and
        // verified; storages in memory what stands for a device, which is read by copies. `bytes` is a slice of another
        // allocation, or a copy, and so does not overlap.
        unsafe { copy(bytes.as_ptr(), self.at(offset), bytes.len()) };
        if let Some(observer) = &self.observer {
            observer.stored(offset, bytes);
        }
    }

    /// Lends a frame's room for writing: `len` bytes at `offset` (both multiples of 8).
    ///
    /// # Safety
    /// - the range is the caller's alone until it publishes it: the log reserves it first.
    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "asserted")]
    pub unsafe fn unpublished(&self, offset: u64, len: usize) -> Unpublished<'_> {
        self.bound(offset, len as u64);
        assert!(offset.is_multiple_of(8) && len >= 8, "a frame is of words");
        debug_assert!(self.writable);
        let at = self.at(offset);
        // SAFETY: in bounds and aligned (asserted above); the word is accessed as an atomic by everybody. The
        // bytes after it are no other thread's, by the contract.
        let (word, rest) = unsafe {
            (
                &*at.cast::<AtomicU64>(),
                std::slice::from_raw_parts_mut(at.add(8), len - 8),
            )
        };
        Unpublished {
            map: self,
            offset,
            word,
            rest,
        }
    }

    /// Borrows published bytes.
    ///
    /// # Safety
    /// - the range lies within the storage's present size;
    /// - no thread writes to it while the slice lives: it was published, and it is not reused before
    ///   the reader's pin is gone ([`crate::epoch`]), or it was not yet, and is the caller's own.
    #[inline(always)]
    pub unsafe fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        self.bound(offset, len as u64);
        // SAFETY: in bounds (asserted). What was published is not written to before it is reused, which waits for the pin; what was
        // not is the caller's alone.
        unsafe { std::slice::from_raw_parts(self.at(offset), len) }
    }

    /// As `bytes`, where the caller has already shown that the range lies within the map.
    ///
    /// # Safety
    /// - as for `bytes`;
    /// - the range ends within `capacity`.
    #[inline(always)]
    pub unsafe fn bytes_within(&self, offset: u64, len: usize) -> &[u8] {
        debug_assert!(offset + len as u64 <= self.capacity);
        // SAFETY: the caller has shown the bounds. What was published is not written to before it is reused, which waits for the
        // pin; what was not is the caller's alone.
        unsafe { std::slice::from_raw_parts(self.at(offset), len) }
    }

    /// As `load_u64`, where the caller has already shown that the word lies within the map.
    ///
    /// # Safety
    /// - `offset` is a multiple of 8, and the word ends within `capacity`.
    #[inline(always)]
    pub unsafe fn load_within(&self, offset: u64) -> u64 {
        // SAFETY: the caller has shown that the word is aligned and ends within the map, which is the whole contract.
        unsafe { self.word_within(offset) }.load(Ordering::Acquire)
    }

    /// The word at `offset`, for who has already shown that it lies within the map.
    ///
    /// # Safety
    /// - `offset` is a multiple of 8, and the word ends within `capacity`.
    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "by the contract")]
    pub unsafe fn word_within(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset + 8 <= self.capacity);
        // SAFETY: the caller has shown bounds and alignment, to eight bytes from a page's beginning; all access to published words
        // is atomic.
        unsafe { &*self.at(offset).cast::<AtomicU64>() }
    }

    /// So many words from `offset` on, where the caller has already shown that they lie within the map.
    ///
    /// # Safety
    /// - `offset` is a multiple of 8, and the words end within `capacity`;
    /// - they lie within the storage's present size.
    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "by the contract")]
    pub unsafe fn words_within(&self, offset: u64, count: usize) -> &[AtomicU64] {
        debug_assert!(offset.is_multiple_of(8) && offset + 8 * count as u64 <= self.capacity);
        // SAFETY: the caller has shown bounds and alignment, to eight bytes from a page's beginning; all access to them
        // is atomic.
        unsafe { std::slice::from_raw_parts(self.at(offset).cast::<AtomicU64>(), count) }
    }

    /// Copies bytes out that another process may be writing: the copy may be torn, and the caller
    /// verifies it.
    pub fn copy_out(&self, offset: u64, out: &mut [u8]) {
        self.bound(offset, out.len() as u64);
        let skip = (offset % 8) as usize;
        let (head, out) = out.split_at_mut(out.len().min((8 - skip) % 8));
        if !head.is_empty() {
            let word = self.load_u64(offset - skip as u64).to_le_bytes();
            head.copy_from_slice(&word[skip..skip + head.len()]);
        }
        let mut at = offset + head.len() as u64;
        let mut words = out.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.load_u64(at).to_le_bytes());
            at += 8;
        }
        let rest = words.into_remainder();
        if !rest.is_empty() {
            let word = self.load_u64(at).to_le_bytes();
            rest.copy_from_slice(&word[..rest.len()]);
        }
    }

    /// Brings the pages of a range in for writing, so that stores to it do not fault later. A hint:
    /// kernels without it ignore it.
    pub fn populate(&self, offset: u64, len: u64) {
        const MADV_POPULATE_WRITE: i32 = 23;
        self.bound(offset, len);
        if self.observer.is_some() || len == 0 {
            return;
        }
        let first = offset & !4095;
        // SAFETY: in bounds (asserted); populating does not change the bytes.
        unsafe {
            libc::madvise(
                self.at(first).cast(),
                (offset + len - first) as usize,
                MADV_POPULATE_WRITE,
            );
        }
    }

    /// Drops a range's pages from the process: the file keeps them, and a later access
    /// reads them again. Does nothing to memory that is no file's.
    pub(crate) fn forget(&self, offset: u64, len: u64) {
        self.bound(offset, len);
        let first = offset.next_multiple_of(4096);
        let end = (offset + len) & !4095;
        if !self.is_file || first >= end {
            return;
        }
        // SAFETY: in bounds (asserted); the pages are a file's and shared, so what was stored stays in the file.
        unsafe {
            libc::madvise(
                self.at(first).cast(),
                (end - first) as usize,
                libc::MADV_DONTNEED,
            );
        }
    }

    /// Gives the pages of a range of private memory back to the system; they are zero when they are touched again.
    pub(crate) fn discard(&self, offset: u64, len: u64) {
        self.bound(offset, len);
        assert!(!self.is_file, "a file's pages are forgotten, not discarded");
        // SAFETY: in bounds and private (asserted); the pages stay mapped and read as zeros.
        unsafe {
            libc::madvise(self.at(offset).cast(), len as usize, libc::MADV_DONTNEED);
        }
    }

    /// Takes back the advice of huge pages for a file: what is loaded from here on is plain pages. A hint.
    pub fn advise_plain(&self) {
        if self.is_file {
            let len = self.capacity as usize;
            // SAFETY: the range is this mapping; the advice does not change the bytes.
            unsafe { libc::madvise(self.at(0).cast(), len, libc::MADV_NOHUGEPAGE) };
        }
    }

    /// Advises huge pages for a range of anonymous memory. A hint.
    pub fn advise_huge(&self, offset: u64, len: u64) {
        self.bound(offset, len);
        // SAFETY: in bounds (asserted); the advice does not change the bytes.
        unsafe { libc::madvise(self.at(offset).cast(), len as usize, libc::MADV_HUGEPAGE) };
    }
}

/// Maps the first bytes of a file.
fn map_file(
    file: impl rustix::fd::AsFd,
    capacity: u64,
    prot: ProtFlags,
    flags: MapFlags,
) -> rustix::io::Result<*mut std::ffi::c_void> {
    let (any, flags) = (std::ptr::null_mut(), flags | MapFlags::NORESERVE);
    // SAFETY: a fresh mapping at an address the kernel chooses aliases no Rust object.
    unsafe { mmap(any, capacity as usize, prot, flags, file, 0) }
}

impl Unreadable {
    fn note(&self, page: u64) {
        let at = self.count.load(Ordering::Acquire);
        let known = self.pages.iter().take(at);
        if known
            .into_iter()
            .any(|known| known.load(Ordering::Acquire) == page + 1)
        {
            return;
        }
        // Two threads may take two places at once: each its own.
        let at = self.count.fetch_add(1, Ordering::AcqRel);
        if let Some(free) = self.pages.get(at) {
            free.store(page + 1, Ordering::Release);
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.is_file {
            RESERVED.fetch_sub(self.capacity, Ordering::Relaxed);
            fault::forget(self);
        }
        // SAFETY: the mapping was made by us with this length, and `&mut self` proves that no thread
        // borrows from it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.capacity as usize) };
    }
}

/// Out of line and with plain arguments: what a failed check would print is not prepared by those that hold.
#[cold]
#[inline(never)]
fn beyond(offset: u64, len: u64, capacity: u64) -> ! {
    panic!("access beyond the map: offset {offset:#x} len {len:#x} capacity {capacity:#x}");
}

/// A frame's room in a [`Map`], seen by no other thread until its first word is stored.
pub struct Unpublished<'m> {
    map: &'m Map,
    offset: u64,
    word: &'m AtomicU64,
    rest: &'m mut [u8],
}

impl Unpublished<'_> {
    /// Copies `bytes` in, `at` bytes after the first word.
    #[inline(always)]
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let to = &mut self.rest[at..at + bytes.len()];
        // SAFETY: `to` is as long as `bytes`; a Rust slice does not overlap a reserved range.
        unsafe { copy(bytes.as_ptr(), to.as_mut_ptr(), bytes.len()) };
    }

    /// All after the first word.
    #[inline(always)]
    pub fn rest(&self) -> &[u8] {
        self.rest
    }

    /// Stores the first word, with release ordering: now everybody sees all of it.
    #[inline(always)]
    pub fn publish(self, word: u64) {
        if self.map.observer.is_some() {
            return self.publish_observed(word);
        }
        self.word.store(word, Ordering::Release);
    }

    #[cold]
    fn publish_observed(self, word: u64) {
        if let Some(observer) = &self.map.observer {
            observer.stored(self.offset + 8, self.rest);
            self.word.store(word, Ordering::Release);
            observer.stored(self.offset, &word.to_le_bytes());
        }
    }
}

/// Copies `len` bytes; short ones without a call, by two words that may overlap.
///
/// # Safety
/// - as for `copy_nonoverlapping`.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: both words lie within `len` bytes, which are readable and writable by the contract; all is read
    // before anything is written.
    unsafe {
        if len == 8 {
            to.cast::<u64>()
                .write_unaligned(from.cast::<u64>().read_unaligned());
        } else if len > 8 && len <= 16 {
            let last = len - 8;
            let words = (
                from.cast::<u64>().read_unaligned(),
                from.add(last).cast::<u64>().read_unaligned(),
            );
            to.cast::<u64>().write_unaligned(words.0);
            to.add(last).cast::<u64>().write_unaligned(words.1);
        } else {
            std::ptr::copy_nonoverlapping(from, to, len);
        }
    }
}

/// Asks the CPU for the line at `address`, which may be any.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect but on caches.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Largest capacity of a map: a process has twice as many addresses on x86-64.
const CAPACITY_MAX: u64 = 1 << 46;

/// Refuses a capacity the map could never have.
pub(crate) fn check_capacity(capacity: u64) -> Result<()> {
    if capacity > CAPACITY_MAX {
        let (found, most) = crate::error::sizes(capacity, CAPACITY_MAX);
        return Err(Error::new(Kind::Invalid, "the capacity is too large")
            .found(found, format!("at most {most}")));
    }
    if capacity == 0 || !capacity.is_multiple_of(4096) {
        return Err(Error::new(
            Kind::Invalid,
            "the capacity of a map is a multiple of 4 KiB",
        )
        .found(capacity, "4096 or more"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_hundred_maps_of_a_tebibyte_each_have_addresses() {
        let wanted = 1 << 40;
        let (mut reserved, mut last) = (0, 0);
        for _ in 0..300 {
            last = wanted.min(share_left(reserved));
            reserved += last;
        }
        assert!(last > 32 << 30, "{last}");
        // Indexes reserve 64 GiB each.
        assert!(reserved + (300 << 36) < 1 << 47, "{reserved}");
        assert_eq!(share_left(ADDRESSES + wanted), 0);
    }
}
