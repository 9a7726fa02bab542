//! A value that is replaced as a whole while threads read it.
//!
//! A read is one load, and stores nothing that other threads see. A replaced value is dropped by a later replacement, once
//! its grace period has elapsed, or with the owner. It does not know what the value is.

#![expect(unsafe_code, reason = "a pointer that is swapped")]

use std::sync::atomic::{AtomicPtr, Ordering};

use super::{Domain, Pin};
use crate::weave::{self, Mutex};

/// Something that is replaced as a whole while threads look at it. A look is one load, and stores nothing that
/// others see; what was replaced is dropped by a later replacement, once nobody looks at it.
#[derive(Debug)]
pub struct Published<T> {
    domain: Domain,
    /// Made by `Box::into_raw`, as those in `past`. Replaced under the lock of `past`.
    current: AtomicPtr<T>,
    /// What was replaced, each with the stamp it got afterwards.
    past: Mutex<Vec<(u64, AtomicPtr<T>)>>,
}

impl<T: Send + Sync> Published<T> {
    /// Publishes the first one, for readers of this domain.
    pub fn new(domain: Domain, first: T) -> Self {
        Self {
            domain,
            current: AtomicPtr::new(Box::into_raw(Box::new(first))),
            past: Mutex::new(Vec::new()),
        }
    }

    /// Pins this thread in the domain of the readers.
    pub fn pin(&self) -> Pin {
        self.domain.pin()
    }

    /// The current one; it stays for as long as the pin, replaced or not.
    #[inline]
    pub fn get<'p>(&'p self, pin: &'p Pin) -> &'p T {
        self.domain.check(pin);
        weave::point();
        // SAFETY: never null; what is replaced is dropped only behind a stamp that was taken after its
        // replacement and is past, or with `self`, which is borrowed.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Puts in its place what `next` makes in view of it, or leaves it at `None`. One thread at a time.
    ///
    /// Errors: those of `next`; the current one stays then.
    pub fn replace<E>(&self, next: impl FnOnce(&T) -> Result<Option<T>, E>) -> Result<(), E> {
        let mut past = self.past.lock();
        // SAFETY: never null, and nobody else replaces it while `past` is locked.
        let current = unsafe { &*self.current.load(Ordering::Acquire) };
        let Some(next) = next(current)? else {
            return Ok(());
        };
        let next = Box::into_raw(Box::new(next));
        let replaced = self.current.swap(next, Ordering::AcqRel);
        past.push((self.domain.retire_epoch(), AtomicPtr::new(replaced)));
        let gone: Vec<_> = past
            .extract_if(.., |(epoch, _)| self.domain.has_elapsed(*epoch))
            .collect();
        drop(past);
        for (_, one) in gone {
            Self::free(one);
        }
        Ok(())
    }
}

impl<T> Published<T> {
    fn free(one: AtomicPtr<T>) {
        // SAFETY: made by `Box::into_raw`, taken out of where it stood, and nobody looks at it: its stamp is
        // past, or all of it is dropped.
        drop(unsafe { Box::from_raw(one.into_inner()) });
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        for (_, one) in self.past.get_mut().drain(..) {
            Self::free(one);
        }
        Self::free(AtomicPtr::new(*self.current.get_mut()));
    }
}
