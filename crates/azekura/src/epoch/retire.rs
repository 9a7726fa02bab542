//! The retire list: items that were taken out of use, until no thread can hold them any more.
//!
//! ```text
//!   in use --unlinked--> retire --> fresh --seal: one barrier--> aging --grace period elapsed--> reclaim --> used again
//!                          |                                                                                or dropped
//!                          `--> refused: no memory for the note; handed back, and never dropped by accident
//! ```
//! An item is an owned value, or a plain number: an address, a slot. Its owner promises that no thread which pins itself
//! from now on can find it, and retires it once.
//!
//! Invariants:
//! 1. An item leaves the list in [`RetireList::next_elapsed`], once, or is dropped with the list, whose owner lets no reader
//!    outlive it.
//! 2. It leaves when every pin of the list's domain that had begun before the seal has ended. A thread that reclaims while
//!    it is pinned does not wait: it gets what its own pin does not hold.
//! 3. Batches are sealed in order, so that the first one that is held holds up none that is not.
//! 4. Only `reserve` and `retire` ask for memory. What was retired is sealed and reclaimed without.
//!
//! The list takes no lock, and does not know what an item is. Its weight is what the owner counts.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use super::Domain;

/// Items that were sealed together.
#[derive(Debug, Default)]
pub(crate) struct Batch<T> {
    retire_epoch: u64,
    /// Of its items, as they were retired with.
    pub(crate) weight: u64,
    pub(crate) items: Vec<T>,
}

impl<T> Batch<T> {
    /// A batch of items that no thread can find which pins itself from now on.
    pub(crate) fn seal(domain: &Domain, items: Vec<T>, weight: u64) -> Self {
        Self {
            retire_epoch: domain.retire_epoch(),
            weight,
            items,
        }
    }

    /// Whether no thread can hold any of its items.
    pub(crate) fn has_elapsed(&self, domain: &Domain) -> bool {
        domain.has_elapsed(self.retire_epoch)
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct RetireList<T> {
    domain: Domain,
    /// Retired since the last seal. While there is room in it, there is room for one more batch in `aging`.
    fresh: Vec<T>,
    fresh_weight: u64,
    /// Sealed, oldest first.
    aging: VecDeque<Batch<T>>,
}

impl<T> RetireList<T> {
    /// An empty list, of what readers of this domain may hold.
    pub(crate) fn new(domain: Domain) -> Self {
        Self {
            domain,
            fresh: Vec::new(),
            fresh_weight: 0,
            aging: VecDeque::new(),
        }
    }

    /// Whether there is memory to note one more item. If some has to be asked for, it is for `ahead` items.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, ahead: usize) -> bool {
        self.fresh.len() < self.fresh.capacity() || self.reserve_all(ahead)
    }

    /// Whether there is memory to note `ahead` items more.
    #[cold]
    pub(crate) fn reserve_all(&mut self, ahead: usize) -> bool {
        self.aging.try_reserve(1).is_ok() && self.fresh.try_reserve(ahead).is_ok()
    }

    /// Notes an item that can no longer be found. Without memory for the note, hands it back: it may still be held, so that
    /// dropping what is returned does not drop the item.
    #[inline(always)]
    pub(crate) fn retire(&mut self, item: T, weight: u64) -> Result<(), ManuallyDrop<T>> {
        if !self.reserve(1) {
            return Err(ManuallyDrop::new(item));
        }
        self.fresh.push(item);
        self.fresh_weight += weight;
        Ok(())
    }

    /// How many items were retired since the last seal.
    #[inline(always)]
    pub(crate) fn fresh_count(&self) -> usize {
        self.fresh.len()
    }

    /// Their weight.
    #[inline(always)]
    pub(crate) fn fresh_weight(&self) -> u64 {
        self.fresh_weight
    }

    /// The weight of all that was sealed and not reclaimed.
    pub(crate) fn aging_weight(&self) -> u64 {
        self.aging.iter().map(|batch| batch.weight).sum()
    }

    /// All that was sealed and not reclaimed.
    pub(crate) fn aging(&self) -> impl Iterator<Item = &T> {
        self.aging.iter().flat_map(|batch| &batch.items)
    }

    /// Begins the grace period of all that was retired since the last seal; its weight. Costs some microseconds, however many
    /// items there are.
    pub(crate) fn seal(&mut self) -> u64 {
        if self.fresh.is_empty() {
            return 0;
        }
        let items = std::mem::take(&mut self.fresh);
        let weight = std::mem::take(&mut self.fresh_weight);
        self.aging
            .push_back(Batch::seal(&self.domain, items, weight));
        weight
    }

    /// Takes the oldest batch off the list, if its grace period has elapsed.
    pub(crate) fn next_elapsed(&mut self) -> Option<Batch<T>> {
        let has_elapsed = self.aging.front()?.has_elapsed(&self.domain);
        has_elapsed.then(|| self.aging.pop_front()).flatten()
    }

    /// The oldest batch, whether or not a thread can hold it: the fault that tests of readers must see.
    #[cfg(test)]
    pub(crate) fn next_early(&mut self) -> Option<Batch<T>> {
        self.aging.pop_front()
    }
}
