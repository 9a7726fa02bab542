//! How many bytes a store may have in use, and has: those of its nodes' frames and of what stands outside of nodes.
//!
//! Asked where memory is taken, which is seldom: a frame or a long value at a time. What was given back and waits for
//! the last who looks at it is not counted. It does not know what the bytes hold.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Kind, Result, size};

/// The least limit: the nodes of one way down, and some more.
pub(super) const LIMIT_MIN: u64 = 1 << 20;

/// How bytes are paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pay {
    /// Refused if there are not so many.
    Asked,
    /// Not refused: for who asked before, or takes them to give more back.
    Anyway,
}

#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    taken: AtomicU64,
}

impl Budget {
    /// `Invalid` for a limit below the least; `None`: what the system gives.
    pub(super) fn new(limit: Option<u64>) -> Result<Self> {
        let limit = limit.unwrap_or(u64::MAX);
        if limit < LIMIT_MIN {
            return Err(Error::new(
                Kind::Invalid,
                "too low a limit of an ordered store's memory",
            )
            .found(size(limit), format!("at least {}", size(LIMIT_MIN)))
            .remedy("raise the limit"));
        }
        Ok(Self {
            limit,
            taken: AtomicU64::new(0),
        })
    }

    /// Whether there is a limit.
    pub(super) fn is_limited(&self) -> bool {
        self.limit < u64::MAX
    }

    /// Takes bytes. `Full`, and nothing is taken, if they were asked for and are too many.
    pub(super) fn take(&self, bytes: u64, pay: Pay) -> Result<()> {
        if pay != Pay::Asked {
            self.taken.fetch_add(bytes, Ordering::Relaxed);
            return Ok(());
        }
        // Not taken first and given back: who asks for too much must not be in the way of others.
        let within = |taken: u64| {
            let after = taken.checked_add(bytes)?;
            (after <= self.limit).then_some(after)
        };
        let relaxed = Ordering::Relaxed;
        let taken = self.taken.fetch_update(relaxed, relaxed, within);
        taken.map(|_| ()).map_err(|_| self.full())
    }

    /// Gives bytes back that were taken.
    pub(super) fn give(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that could be taken.
    pub(super) fn left(&self) -> u64 {
        self.limit
            .saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// The error of who is refused.
    #[cold]
    fn full(&self) -> Error {
        let what = format!("the store has taken the {} it may", size(self.limit));
        Error::new(Kind::Full, what).remedy("remove records, or raise the limit")
    }
}
