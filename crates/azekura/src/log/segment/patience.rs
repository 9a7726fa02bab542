//! How long a thread waits for readers that hold segments to be freed.
//!
//! A [`Patience`] is made once for what is waited for: an update, a round of compaction. However often that finds no room, all its
//! waits together last no longer, so that while a reader stays it is refused soon.
//! It does not know readers nor segments.

use crate::explore;

/// Between one look at what readers hold and the next.
const TURN: std::time::Duration = std::time::Duration::from_micros(100);

/// So many turns are left. By default some seconds: for what is refused otherwise, as a reader that the system does not run for a
/// while, or that waits for a slow device, is no reason to refuse.
#[derive(Debug)]
pub struct Patience(u32);

impl Default for Patience {
    fn default() -> Self {
        Self(24_000)
    }
}

impl Patience {
    /// Some milliseconds: for readers that are just being held up.
    pub fn short() -> Self {
        Self(50)
    }

    /// One turn.
    pub(super) fn once() -> Self {
        Self(1)
    }

    /// Whether all of it was spent in vain.
    pub fn is_over(&self) -> bool {
        self.0 == 0
    }

    /// Spends a turn.
    pub fn wait(&mut self) {
        self.0 = self.0.saturating_sub(1);
        if !explore::wait() {
            std::thread::sleep(TURN);
        }
    }
}
