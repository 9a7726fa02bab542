//! Epochs: when memory and segments that were taken out of use may be used again.
//!
//! A reader pins itself in its store's [`Domain`] before it follows an address, and unpins after; it stores only to a line of
//! its own and executes no fence. A thread that takes an item out of use asks for a [retire epoch](Domain::retire_epoch)
//! afterwards, and may reuse the item once its [grace period has elapsed](Domain::has_elapsed). The asymmetry is paid by
//! the latter, with one `membarrier` call.
//!
//! The same lines publish who is in a critical section - between reserving room in a log and publishing what was put there,
//! at what it owns by its number, in a short update ([`Pin::critical_section`], `Domain::pinned_section`) - and who is
//! inside an update at all ([`Domain::update`]): two more things to wait for.
//!
//! Invariants:
//! 1. A thread's words are stored by that thread alone.
//! 2. A pin with epoch `e` holds every item of its domain whose retire epoch is greater than `e`.
//! 3. A retire epoch is taken after the item can no longer be found.
//!
//! A domain is a number below 255. Each thread has a line for each number, and no thread waits for a line of another number. A
//! store takes the number with the fewest users and gives it back when it is dropped. Stores beyond 255 share numbers; then
//! they wait for each other's threads, and nothing else changes: whatever a pin of a number holds, it holds for all
//! stores of it. It does not know what is protected, but for [`Published`], which needs to know how to drop it.

mod barrier;
mod guard;
mod participant;
mod published;
mod retire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::explore::{self, Mutex};
pub use barrier::heavy_barrier;
pub(crate) use guard::PinnedSection;
pub use guard::{CriticalSection, Pin, UpdateGuard};
#[cfg(azekura_explore)]
pub(crate) use participant::leave;
use participant::{DOMAINS, IS_UPDATING, UPDATE_STEP, local, wait_for};
pub use published::Published;
pub(crate) use retire::{Batch, RetireList};

/// One for all domains: it is written only where something is retired.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// How many stores use each number.
static USERS: Mutex<[u32; DOMAINS]> = Mutex::new([0; DOMAINS]);

/// What one store's threads wait for: pins, critical sections and updates of other domains are no matter to it. A clone is
/// the same domain.
#[derive(Clone, Debug)]
pub struct Domain {
    number: u8,
    _lease: Arc<Lease>,
}

/// A use of a domain's number.
#[derive(Debug)]
struct Lease(u8);

impl Drop for Lease {
    fn drop(&mut self) {
        USERS.lock()[usize::from(self.0)] -= 1;
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Domain {
    /// A domain with the number that the fewest stores use.
    pub fn new() -> Self {
        // Before the first pin and the first retire epoch, so that all agree on how barriers are made.
        barrier::needs_fences();
        let mut users = USERS.lock();
        let fewest = (0..DOMAINS as u8).min_by_key(|number| users[usize::from(*number)]);
        let number = fewest.unwrap_or(0);
        users[usize::from(number)] += 1;
        drop(users);
        Self {
            number,
            _lease: Arc::new(Lease(number)),
        }
    }

    /// A retire epoch for an item that no thread can find any more which pins itself from now on. Costs some microseconds.
    pub fn retire_epoch(&self) -> u64 {
        heavy_barrier();
        explore::yield_point();
        EPOCH.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether the grace period of a retire epoch has elapsed: no thread can still hold what got it.
    pub fn has_elapsed(&self, retire_epoch: u64) -> bool {
        participant::all_in(self.number, |presence| {
            explore::yield_point();
            let pinned = presence.pinned.load(Ordering::Acquire);
            pinned == 0 || pinned >= retire_epoch
        })
    }

    /// Returns when every critical section of other threads that had begun before the call has ended: what they appended is
    /// published.
    pub fn wait_for_critical_sections(&self) {
        let section = |participant: &'static participant::Participant| {
            &participant.presence(self.number).section
        };
        wait_for(section, |value| !value.is_multiple_of(2));
    }

    /// Returns when every update of other threads that had begun before the call has ended, short ones included.
    pub fn wait_for_updates(&self) {
        let is_inside = |value| value % UPDATE_STEP == self.update_bits();
        wait_for(|participant| participant.update(), is_inside);
        self.wait_for_critical_sections();
    }
}

/// Whether this thread is pinned in any domain: an item that it waited for might not be released while it waits.
pub fn is_pinned() -> bool {
    local().is_pinned()
}

/// Whether this thread is inside an update, in whose closure it may be at work on another store.
pub fn is_within_update() -> bool {
    local().update().load(Ordering::Relaxed) & IS_UPDATING != 0
}

#[cfg(test)]
mod tests;
