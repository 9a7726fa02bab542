//! The bytes of a record in its slot, as the table in the slab's module doc states them.
//!
//! A record never changes once it is written, except for the bit that states that a read has seen it. This module does not
//! know slots, blocks or readers.

#![expect(unsafe_code, reason = "records in raw memory")]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::epoch::Pin;
use crate::io::mmap::copy;

/// The slot holds the address of an out-of-line record.
const IS_OUT_OF_LINE: u8 = 1;
const WAS_SEEN: u8 = 2;
const HAS_EXPIRY: u8 = 4;
const KEY_LEN_SHIFT: u32 = 3;
const LONG_KEY: usize = 31;

/// Bytes that an encoded length takes.
#[inline(always)]
fn len_bytes(len: usize) -> usize {
    if len < 128 {
        1
    } else {
        (len.ilog2() as usize + 7) / 7
    }
}

/// Bytes of a record.
#[inline(always)]
pub(super) fn record_bytes(key_len: usize, value_len: usize, expires: bool) -> usize {
    let long_key = if key_len < LONG_KEY {
        0
    } else {
        len_bytes(key_len)
    };
    1 + 4 * usize::from(expires) + long_key + len_bytes(value_len) + key_len + value_len
}

/// Writes a record.
///
/// # Safety
/// - `at` is the beginning of `record_bytes` bytes (and of a word at least) that are the caller's alone.
#[inline(always)]
pub(super) unsafe fn write(at: *mut u8, key: &[u8], value: &[u8], expires: Option<u32>) {
    // SAFETY: what is written is what `record_bytes` counts, in the same order: two bytes and both slices here, the rest there;
    // so many bytes are the caller's alone.
    unsafe {
        if expires.is_none() && key.len() < LONG_KEY && value.len() < 128 {
            at.write((key.len() << KEY_LEN_SHIFT) as u8);
            at.add(1).write(value.len() as u8);
            copy(key.as_ptr(), at.add(2), key.len());
            copy(value.as_ptr(), at.add(2 + key.len()), value.len());
            return;
        }
        write_general(at, key, value, expires);
    }
}

/// Sets the seen bit of a record.
///
/// # Safety
/// - `at` is the beginning of a record that no other thread knows of.
#[inline(always)]
pub(super) unsafe fn see(at: *mut u8) {
    // SAFETY: a record has a first byte, which `write` wrote; no other thread knows of it, so that a plain load and store do.
    unsafe { at.write(at.read() | WAS_SEEN) };
}

/// # Safety
/// - as for `write`.
#[inline(never)]
unsafe fn write_general(at: *mut u8, key: &[u8], value: &[u8], expires: Option<u32>) {
    // SAFETY: the first byte, the expiry if there is one, one or two lengths and both slices are what `record_bytes` counts; so
    // many bytes are the caller's alone, which the slices lent to it therefore do not touch.
    unsafe {
        let mut to = at.add(1);
        let mut first = (key.len().min(LONG_KEY) << KEY_LEN_SHIFT) as u8;
        if let Some(expires) = expires {
            first |= HAS_EXPIRY;
            to.cast::<u32>().write_unaligned(expires);
            to = to.add(4);
        }
        at.write(first);
        if key.len() >= LONG_KEY {
            to = write_len(to, key.len());
        }
        to = write_len(to, value.len());
        std::ptr::copy_nonoverlapping(key.as_ptr(), to, key.len());
        std::ptr::copy_nonoverlapping(value.as_ptr(), to.add(key.len()), value.len());
    }
}

/// # Safety
/// - there is room for `len_bytes(len)` at `to`.
unsafe fn write_len(mut to: *mut u8, mut len: usize) -> *mut u8 {
    // SAFETY: each byte but the last takes seven bits off, so that `len_bytes(len)` are written, for which there is room.
    unsafe {
        while len >= 128 {
            to.write(len as u8 | 128);
            to = to.add(1);
            len >>= 7;
        }
        to.write(len as u8);
        to.add(1)
    }
}

/// # Safety
/// - a length as `write_len` writes it begins at `at`.
#[inline(always)]
unsafe fn read_len(mut at: *const u8) -> (usize, *const u8) {
    // SAFETY: a length begins at `at`, by the contract. `write_len` sets the eighth bit of each of its bytes but the last, so
    // the loop reads exactly the `len_bytes(len)` bytes that it wrote. A record is written only where all of its bytes have
    // room, so these lie in its slot; they do not change until no reader is pinned since the slot was freed.
    unsafe {
        let first = at.read();
        at = at.add(1);
        if first < 128 {
            return (usize::from(first), at);
        }
        let (mut len, mut shift) = (usize::from(first & 127), 7u32);
        loop {
            let byte = at.read();
            at = at.add(1);
            debug_assert!(shift < usize::BITS, "a length ends");
            len |= usize::from(byte & 127) << shift;
            if byte < 128 {
                return (len, at);
            }
            shift += 7;
        }
    }
}

/// A record in a slab, borrowed while the thread is pinned.
#[derive(Clone, Copy, Debug)]
pub struct Record<'p> {
    /// Its key.
    pub key: &'p [u8],
    /// Its value.
    pub value: &'p [u8],
    /// Its expiry, as it was put.
    pub expires: Option<u32>,
    first: *const AtomicU8,
    _pin: PhantomData<&'p Pin>,
}

impl<'p> Record<'p> {
    /// Reads the record at `at`.
    ///
    /// # Safety
    /// - A record that `write` wrote begins at `at`, and stays while the pin lives; if its first byte states that it is
    ///   out of line, the word there is the address of one, with that bit set.
    #[inline(always)]
    pub(super) unsafe fn at(mut at: *const u8, _pin: &'p Pin) -> Self {
        // SAFETY: `write` wrote a record at `at`, or `write_out_of_line` the address of one, and neither is written over while the
        // pin lives. The first byte is read as an atomic, since bit 1 may change meanwhile.
        unsafe {
            let mut first = (*at.cast::<AtomicU8>()).load(Ordering::Relaxed);
            if first & IS_OUT_OF_LINE != 0 {
                at = out_of_line(at);
                first = (*at.cast::<AtomicU8>()).load(Ordering::Relaxed);
            }
            let mut from = at.add(1);
            let mut expires = None;
            if first & HAS_EXPIRY != 0 {
                expires = Some(from.cast::<u32>().read_unaligned());
                from = from.add(4);
            }
            let mut key_len = usize::from(first >> KEY_LEN_SHIFT);
            if key_len == LONG_KEY {
                (key_len, from) = read_len(from);
            }
            let (value_len, from) = read_len(from);
            Self {
                key: std::slice::from_raw_parts(from, key_len),
                value: std::slice::from_raw_parts(from.add(key_len), value_len),
                expires,
                first: at.cast(),
                _pin: PhantomData,
            }
        }
    }

    /// Whether its key is `key`.
    #[inline(always)]
    pub fn is_of(&self, key: &[u8]) -> bool {
        if self.key.len() != key.len() {
            return false;
        }
        if key.len() == 8 {
            // Without a call.
            return self.key.first_chunk::<8>() == key.first_chunk::<8>();
        }
        self.key == key
    }

    /// Whether [`see`](Self::see) was called since the record was put.
    pub fn was_seen(&self) -> bool {
        // SAFETY: the record stays while the pin lives (`at`).
        unsafe { (*self.first).load(Ordering::Relaxed) & WAS_SEEN != 0 }
    }

    /// Sets the seen bit, with a store only if it is clear.
    #[inline(always)]
    pub fn see(&self) {
        // SAFETY: the record stays while the pin lives (`at`); no other bit of the byte changes.
        unsafe {
            let first = (*self.first).load(Ordering::Relaxed);
            if first & WAS_SEEN == 0 {
                (*self.first).store(first | WAS_SEEN, Ordering::Relaxed);
            }
        }
    }

    /// Clears the seen bit.
    pub fn unsee(&self) {
        // SAFETY: as for `see`.
        unsafe {
            let first = (*self.first).load(Ordering::Relaxed);
            (*self.first).store(first & !WAS_SEEN, Ordering::Relaxed);
        }
    }
}

/// Writes the address and the length of an out-of-line record into a slot.
///
/// # Safety
/// - `at` is a slot of 16 bytes that is the caller's alone; the address is even.
#[expect(clippy::cast_ptr_alignment, reason = "written unaligned")]
pub(super) unsafe fn write_out_of_line(at: *mut u8, address: u64, bytes: usize) {
    // SAFETY: two words of eight bytes are the slot of 16, which is the caller's alone; both are written unaligned.
    unsafe {
        let slot = at.cast::<u64>();
        slot.write_unaligned(address | u64::from(IS_OUT_OF_LINE));
        slot.add(1).write_unaligned(bytes as u64);
    }
}

/// The address in such a slot.
///
/// # Safety
/// - `write_out_of_line` wrote at `at`.
pub(super) unsafe fn out_of_line(at: *const u8) -> *mut u8 {
    // SAFETY: `write_out_of_line` wrote the word, from an address that was exposed when its memory was taken.
    unsafe {
        let word = at.cast::<u64>().read_unaligned();
        std::ptr::with_exposed_provenance_mut((word & !u64::from(IS_OUT_OF_LINE)) as usize)
    }
}

/// The length of the out-of-line record that such a slot refers to.
///
/// # Safety
/// - as for `out_of_line`.
#[expect(clippy::cast_ptr_alignment, reason = "read unaligned")]
pub(super) unsafe fn out_of_line_bytes(at: *const u8) -> usize {
    // SAFETY: `write_out_of_line` wrote this word, the second of its slot.
    unsafe { at.cast::<u64>().add(1).read_unaligned() as usize }
}
