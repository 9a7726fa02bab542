//! A value that is replaced as a whole while threads read it.
//!
//! A read is one load, and stores nothing that other threads see. A replaced value is dropped by a later replacement, once
//! its grace period has elapsed, or with the owner. It does not know what the value is.

#![expect(unsafe_code, reason = "a pointer that is swapped")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::retire::{Batch, RetireList};
use super::{Domain, Pin};
use crate::explore::{self, Mutex};

/// See the module's text.
pub struct Published<T> {
    domain: Domain,
    /// Made by `Box::into_raw`. A pointer, since readers borrow what it points to: a box would claim that none does.
    current: AtomicPtr<T>,
    /// Held by [`replace`](Self::replace) from its first read to the swap.
    replaced: Mutex<RetireList<Replaced<T>>>,
}

/// A value that was replaced, and that readers may hold. Dropping it drops the value.
struct Replaced<T>(NonNull<T>);

// SAFETY: it owns the value, as a box does, and can do nothing but drop it.
unsafe impl<T: Send> Send for Replaced<T> {}

impl<T> Drop for Replaced<T> {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` and owned by this alone, since it was swapped out. No reader holds it: it is dropped
        // when its grace period has elapsed, or with its owner, which its readers borrow.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A value that was replaced. It is retired when this is dropped.
pub(crate) struct Retiring<'p, T> {
    owner: &'p Published<T>,
    value: NonNull<T>,
}

impl<T> Deref for Retiring<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: made by `Box::into_raw`, swapped out once, and not retired before this is dropped.
        unsafe { self.value.as_ref() }
    }
}

impl<T> Drop for Retiring<'_, T> {
    fn drop(&mut self) {
        let elapsed = self
            .owner
            .retire(&mut self.owner.replaced.lock(), self.value);
        // Without the lock: a value may take long to drop.
        drop(elapsed);
    }
}

impl<T> std::fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Published").finish_non_exhaustive()
    }
}

impl<T: Send + Sync> Published<T> {
    /// Publishes the first one, for readers of this domain.
    pub fn new(domain: Domain, first: T) -> Self {
        Self {
            current: AtomicPtr::new(Box::into_raw(Box::new(first))),
            replaced: Mutex::new(RetireList::new(domain.clone())),
            domain,
        }
    }

    /// Pins this thread in the domain of the readers.
    pub fn pin(&self) -> Pin {
        self.domain.pin()
    }

    /// The current one; it stays for as long as the pin, replaced or not.
    #[inline(always)]
    pub fn get<'p>(&'p self, pin: &'p Pin) -> &'p T {
        self.domain.check(pin);
        explore::yield_point();
        // SAFETY: never null; a replaced value is dropped when its grace period has elapsed, which the pin prevents, or with
        // `self`, which is borrowed.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Puts in its place what `next` makes in view of it, or leaves it at `None`. One thread at a time.
    ///
    /// Errors: those of `next`; the current one stays then.
    pub fn replace<E>(&self, next: impl FnOnce(&T) -> Result<Option<T>, E>) -> Result<(), E> {
        let mut list = self.replaced.lock();
        // SAFETY: never null; what it points to is retired, and so dropped, under the lock of the list only.
        let current = unsafe { &*self.current.load(Ordering::Acquire) };
        let Some(next) = next(current)? else {
            return Ok(());
        };
        let replaced = self.exchange(next);
        let elapsed = self.retire(&mut list, replaced);
        // A value may take long to drop.
        drop(list);
        drop(elapsed);
        Ok(())
    }

    /// Puts `next` in its place, and hands out what was there, to be retired when the caller is done with it.
    pub(crate) fn swap(&self, next: T) -> Retiring<'_, T> {
        Retiring {
            owner: self,
            value: self.exchange(next),
        }
    }

    /// How many replaced values wait for their readers.
    #[cfg(test)]
    pub(crate) fn replaced_count(&self) -> usize {
        self.replaced.lock().aging().count()
    }

    fn exchange(&self, next: T) -> NonNull<T> {
        let next = Box::into_raw(Box::new(next));
        let replaced = self.current.swap(next, Ordering::AcqRel);
        // SAFETY: never null.
        unsafe { NonNull::new_unchecked(replaced) }
    }
}

impl<T> Published<T> {
    /// Retires a value that was swapped out; what no reader holds any more is returned, to be dropped.
    fn retire(
        &self,
        list: &mut RetireList<Replaced<T>>,
        replaced: NonNull<T>,
    ) -> Vec<Batch<Replaced<T>>> {
        debug_assert_ne!(self.current.load(Ordering::Relaxed), replaced.as_ptr());
        // Without memory for the note, it is not dropped.
        let _ = list.retire(Replaced(replaced), 1);
        list.seal();
        std::iter::from_fn(|| list.next_elapsed()).collect()
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        if let Some(current) = NonNull::new(*self.current.get_mut()) {
            drop(Replaced(current));
        }
    }
}
