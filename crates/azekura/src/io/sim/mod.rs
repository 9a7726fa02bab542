//! The simulated disk: it remembers every change in order, and knows what loss of power may leave.
//!
//! ```text
//!   engine -> storage (SimDirectory, SimStorage, Map) -> event: one ordered list
//!                          ^                                |
//!                          | a disk again            state: folds it: durable, and pending since
//!                          `------------- cut: one legal choice of the pending <----'
//! ```
//!
//! 1. Everything that changes bytes, sizes or names is an event; an observer records stores through a map.
//! 2. A cut of the power at an event leaves the durable state and, of what is pending, any choice the
//!    rules in `state` allow. The process's death leaves everything, and keeps it pending.
//! 3. One seed decides everything: the same calls and the same choice give the same bytes.
//!
//! It does not know who writes or what the bytes mean. A store through the map beyond the size or into
//! discarded space would be a signal on a real system: here it panics.

mod cut;
pub mod drive;
mod event;
mod fault;
mod pages;
mod state;
mod storage;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use cut::{Choice, Limits, Replay};
pub use fault::{Fault, Faults, Operation};
pub use state::Atom;
pub use storage::{SimDirectory, SimStorage};

use state::State;
use storage::Disk;

/// A disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Disk>);

impl SimDisk {
    /// An empty disk of [`SimDisk::FILE_SIZE_MAX`] bytes with sectors of 512 bytes.
    pub fn new(seed: u64) -> Self {
        Self::with_atom(seed, Atom::Sector)
    }

    /// Most bytes a file can have; also the capacity of its map, whatever the caller passes.
    pub const FILE_SIZE_MAX: u64 = storage::MAP_CAPACITY;

    /// An empty disk that writes `atom` as a whole or not at all.
    pub fn with_atom(seed: u64, atom: Atom) -> Self {
        Self::of(seed, State::new(atom))
    }

    fn of(seed: u64, start: State) -> Self {
        Self(Disk::new(seed, start))
    }

    /// Its one folder.
    pub fn directory(&self) -> SimDirectory {
        SimDirectory::new(Arc::clone(&self.0))
    }

    /// The seed it was made with.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// How many events there were since this disk was made, or came out of a cut.
    pub fn events(&self) -> usize {
        self.0.log.len()
    }

    /// What happened at each event, one line each.
    pub fn trace(&self) -> Vec<String> {
        self.0
            .log
            .snapshot()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// A walk along the events so far, to cut anywhere. One walk costs one pass over the events.
    pub fn replay(&self) -> Replay {
        Replay::new(self.0.seed, self.0.start.clone(), self.0.log.snapshot())
    }

    /// What a power cut after the first `at` events may leave: an independent disk for each choice, of
    /// another boot.
    pub fn crash_states(&self, at: usize, limits: &Limits) -> impl Iterator<Item = Self> + use<> {
        let mut replay = self.replay();
        replay.advance_to(at);
        let choices = replay.choices(limits);
        choices.into_iter().map(move |choice| replay.cut(&choice))
    }

    /// What the death of the process after the first `at` events leaves: all of it, of the same boot, and
    /// still to be lost by a power cut later.
    #[must_use]
    pub fn kill_state(&self, at: usize) -> Self {
        let mut replay = self.replay();
        replay.advance_to(at);
        replay.kill(0)
    }

    /// What goes wrong, and when.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Bytes of all files together beyond which the disk is full.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.capacity.store(bytes, Ordering::Relaxed);
    }

    /// Forgets the cache of every file, as memory pressure may at any time: pages that a failed sync left
    /// after show what the device has.
    pub fn evict(&self) {
        self.0.evict_all();
    }

    /// Flips bits of one byte on the device, durably: `mask` states which.
    pub fn rot(&self, name: impl AsRef<Path>, offset: u64, mask: u8) {
        self.0.rot(name.as_ref(), offset, mask);
    }

    /// Makes the sectors of 512 bytes that hold `range` unreadable: reads of them fail with EIO every time, until a write
    /// covers a whole one. Loads through a map see noise there, where a real system has a bus error. Disks that come out of
    /// a cut or a death are readable again.
    pub fn make_unreadable(&self, name: impl AsRef<Path>, range: std::ops::Range<u64>) {
        self.0.make_unreadable(name.as_ref(), range);
    }
}

/// Mixes a number well: the steps of splitmix64.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Choices from a seed.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.u64() % bound
    }
}
