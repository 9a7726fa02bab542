//! What goes wrong on a simulated disk, and at which call.
//!
//! Calls are counted per kind from the moment the disk was made; a plan names a kind and a count. A test
//! that sweeps the count from 0 until nothing failed has seen every error path once.
//!
//! Sectors can be unreadable, too, and stay so for every reader: see [`Unreadable`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use parking_lot::Mutex;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// `Storage::read_at`. Loads through a map cannot fail.
    Read,
    /// `Storage::read_ahead`, and a `read_at_once` that reads nothing: hints, which do not fail.
    ReadAhead,
    /// `Storage::write_at`, and the first half of `write_durably`. Stores through a map cannot fail.
    Write,
    /// `Storage::resize` and `Storage::allocate`.
    Resize,
    /// `Storage::discard`.
    Discard,
    /// `Storage::sync`, and the second half of `write_durably`.
    Sync,
    /// `Directory::create`, `create_nameless`, `create_replacing`, `rename`, `remove`, and
    /// `Storage::take_name`.
    Name,
    /// `Directory::sync`.
    SyncNames,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EIO; nothing was done. A sync that fails so may have made any part durable, see `state` rule 5.
    Error,
    /// ENOSPC; nothing was done.
    Full,
    /// EIO after so many bytes of a write were done; elsewhere as `Error`.
    Short(usize),
    /// EIO after every second sector of a write was done, the last one first; elsewhere as `Error`.
    Torn,
    /// Success, with one bit of what was read flipped; elsewhere nothing.
    Flip,
}

#[derive(Debug, Default)]
struct Inner {
    counts: BTreeMap<Operation, u64>,
    /// Which calls of an operation fail, and how.
    plans: Vec<(Operation, RangeInclusive<u64>, Fault)>,
    struck: u64,
}

/// Bytes of a sector, the least that is unreadable.
pub(super) const SECTOR: u64 = 512;

/// Sectors of a file that the device cannot read any more.
///
/// | access | what happens |
/// |---|---|
/// | a read of any byte of one | EIO, every time |
/// | a write of all of one | it is written elsewhere, as devices do, and readable again |
/// | a write of a part of one | EIO: the rest would have to be read |
/// | a load through the map | noise; on a real system a bus error, so nothing may rely on it |
/// | a store through the map | the sector stays unreadable |
#[derive(Debug, Default)]
pub(super) struct Unreadable(Mutex<BTreeSet<u64>>);

impl Unreadable {
    pub(super) fn add(&self, range: Range<u64>) {
        self.0
            .lock()
            .extend(range.start / SECTOR..range.end.div_ceil(SECTOR));
    }

    /// The first byte of an unreadable sector within `len` bytes from `offset` on.
    pub(super) fn first_in(&self, offset: u64, len: u64) -> Option<u64> {
        if len == 0 {
            return None;
        }
        let sectors = offset / SECTOR..(offset + len).div_ceil(SECTOR);
        let bad = self.0.lock();
        bad.range(sectors).next().map(|sector| sector * SECTOR)
    }

    /// A write of these bytes: heals the sectors it covers; the first one of which it covers a part.
    pub(super) fn heal(&self, offset: u64, len: u64) -> Option<u64> {
        self.first_in(offset, len)?;
        let mut bad = self.0.lock();
        let part = [offset / SECTOR, (offset + len - 1) / SECTOR]
            .into_iter()
            .find(|sector| {
                let whole = offset <= sector * SECTOR && (sector + 1) * SECTOR <= offset + len;
                bad.contains(sector) && !whole
            });
        if part.is_none() {
            bad.retain(|sector| !(offset..offset + len).contains(&(sector * SECTOR)));
        }
        part.map(|sector| sector * SECTOR)
    }
}

/// The plans of a disk.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Inner>);

impl Faults {
    /// The call number `nth` (from 0, counted since the disk was made) of `operation` fails, once.
    pub fn fail(&self, operation: Operation, nth: u64, fault: Fault) {
        self.plan(operation, nth..=nth, fault);
    }

    /// Every call of `operation` from number `nth` on fails.
    pub fn fail_from(&self, operation: Operation, nth: u64, fault: Fault) {
        self.plan(operation, nth..=u64::MAX, fault);
    }

    fn plan(&self, operation: Operation, calls: RangeInclusive<u64>, fault: Fault) {
        self.0.lock().plans.push((operation, calls, fault));
    }

    /// Forgets all plans: the disk works again.
    pub fn clear(&self) {
        self.0.lock().plans.clear();
    }

    /// How many calls of `operation` there were.
    pub fn count(&self, operation: Operation) -> u64 {
        self.0.lock().counts.get(&operation).copied().unwrap_or(0)
    }

    /// How many calls failed by plan.
    pub fn struck(&self) -> u64 {
        self.0.lock().struck
    }

    /// Counts a call, and returns how it fails.
    pub(super) fn strike(&self, operation: Operation) -> Option<Fault> {
        let mut inner = self.0.lock();
        let count = inner.counts.entry(operation).or_default();
        let nth = *count;
        *count += 1;
        let mut plans = inner.plans.iter();
        let met = plans.find(|(of, calls, _)| *of == operation && calls.contains(&nth));
        let fault = met.map(|(_, _, fault)| *fault);
        inner.struck += u64::from(fault.is_some());
        fault
    }
}
