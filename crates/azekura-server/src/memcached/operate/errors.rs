//! Error counters: failures of the engine by kind, and the text of the last one.
//!
//! Severe ones are logged, the first, the second, the fourth and so on. Only failures come here, so requests that succeed
//! pay nothing. A poisoned store stays so until the server is restarted; a full one may have space again, which shows in the
//! counts over time. It knows no protocol.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use azekura::error::{Error, Kind, Result};

/// Failures of an engine.
#[derive(Debug, Default)]
pub struct ErrorCounters {
    counts: [AtomicU64; Kind::ALL.len()],
    /// The text of the last failure of the file or the system.
    last: Mutex<Option<String>>,
}

impl ErrorCounters {
    /// Counts a failure.
    #[cold]
    pub(crate) fn note(&self, error: &Error) {
        let kind = error.kind();
        let known = Kind::ALL.iter().position(|of| *of == kind);
        let count = known.and_then(|index| self.counts.get(index));
        let count = count.map_or(0, |count| count.fetch_add(1, Ordering::Relaxed) + 1);
        let is_grave = matches!(kind, Kind::Corrupted | Kind::Io | Kind::Poisoned);
        // The first, the second, the fourth: a store that fails for an hour does not fill a disk with its complaints.
        if count.is_power_of_two() {
            let (kind, error) = (kind.word(), error.to_string());
            if is_grave {
                tracing::error!(kind, error, count, "the engine failed");
            } else if kind == Kind::Full.word() {
                tracing::warn!(kind, error, count, "the store is full");
            }
        }
        if is_grave {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some(error.to_string());
        }
    }

    /// Counts an outcome if it is a failure.
    pub(crate) fn seen(&self, outcome: Result<()>) -> Result<()> {
        if let Err(error) = &outcome {
            self.note(error);
        }
        outcome
    }

    /// Failures of a kind.
    pub fn count(&self, kind: Kind) -> u64 {
        let known = Kind::ALL.iter().position(|of| *of == kind);
        let count = known.and_then(|index| self.counts.get(index));
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Failures of every kind, each with its word.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Kind::ALL
            .iter()
            .zip(&self.counts)
            .map(move |(kind, count)| (kind.word(), load(count)))
    }

    /// The text of the last failure of the file or the system.
    pub fn last(&self) -> Option<String> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_kind_and_the_last_of_the_file_is_remembered() {
        let trouble = ErrorCounters::default();
        trouble.note(&Error::new(Kind::Io, "the device is gone"));
        trouble.note(&Error::new(Kind::Full, "no room"));
        assert!(trouble.seen(Ok(())).is_ok());
        assert!(
            trouble
                .seen(Err(Error::new(Kind::Full, "no room")))
                .is_err()
        );
        assert_eq!((trouble.count(Kind::Io), trouble.count(Kind::Full)), (1, 2));
        assert_eq!(trouble.counts().map(|(_, count)| count).sum::<u64>(), 3);
        assert_eq!(trouble.last().unwrap(), "io: the device is gone");
    }
}
