//! How many records there are, counted by many threads.
//!
//! Each of the first threads has a share of its own, on a line of its own, and adds to it without an atomic addition;
//! the sum counts. It does not know what is counted.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::epoch::Pin;
use crate::error::Result;
use crate::room;

/// A share, on its own line, for the threads of a number.
#[repr(align(128))]
#[derive(Default)]
struct Share(AtomicI64);

const SHARES: usize = 32;

/// Shares that threads add to; their sum counts.
pub(crate) struct Counter(Box<[Share]>);

impl Counter {
    /// Errors: `Full`.
    pub(crate) fn new(count: u64) -> Result<Self> {
        let shares = room::collect((0..SHARES).map(|_| Share::default()))?;
        shares[0].0.store(count.cast_signed(), Ordering::Relaxed);
        Ok(Self(shares.into_boxed_slice()))
    }

    /// Adds. The first threads own a share each and need no atomic addition.
    #[inline(always)]
    pub(crate) fn add(&self, pin: &Pin, by: i64) {
        let number = pin.thread_number();
        if number < SHARES - 1 {
            let share = &self.0[number].0;
            share.store(share.load(Ordering::Relaxed) + by, Ordering::Relaxed);
        } else {
            self.0[SHARES - 1].0.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Exact when no thread adds.
    pub(crate) fn sum(&self) -> u64 {
        self.signed_sum().max(0).cast_unsigned()
    }

    /// As `sum`, of a counter that counts from another number on.
    pub(crate) fn signed_sum(&self) -> i64 {
        let share = |share: &Share| share.0.load(Ordering::Relaxed);
        self.0.iter().map(share).sum()
    }

    /// Back to none, while no thread adds.
    pub(crate) fn reset(&self) {
        for share in &self.0 {
            share.0.store(0, Ordering::Relaxed);
        }
    }
}
