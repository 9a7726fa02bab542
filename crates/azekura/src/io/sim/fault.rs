//! What goes wrong on a simulated disk, and at which call.
//!
//! Calls are counted per kind from the moment the disk was made; a plan names a kind and a count. A test
//! that sweeps the count from 0 until nothing failed has seen every error path once.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// `Storage::read_at`. Loads through a map cannot fail.
    Read,
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

#[derive(Debug)]
struct Plan {
    operation: Operation,
    from: u64,
    to: u64,
    fault: Fault,
}

#[derive(Debug, Default)]
struct Inner {
    counts: BTreeMap<Operation, u64>,
    plans: Vec<Plan>,
    struck: u64,
}

/// The plans of a disk.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Inner>);

impl Faults {
    /// The call number `nth` (from 0, counted since the disk was made) of `operation` fails, once.
    pub fn fail(&self, operation: Operation, nth: u64, fault: Fault) {
        self.0.lock().plans.push(Plan {
            operation,
            from: nth,
            to: nth,
            fault,
        });
    }

    /// Every call of `operation` from number `nth` on fails.
    pub fn fail_from(&self, operation: Operation, nth: u64, fault: Fault) {
        self.0.lock().plans.push(Plan {
            operation,
            from: nth,
            to: u64::MAX,
            fault,
        });
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

    /// Counts a call, and says how it fails.
    pub(super) fn strike(&self, operation: Operation) -> Option<Fault> {
        let mut inner = self.0.lock();
        let count = inner.counts.entry(operation).or_default();
        let nth = *count;
        *count += 1;
        let met =
            |plan: &&Plan| plan.operation == operation && (plan.from..=plan.to).contains(&nth);
        let fault = inner.plans.iter().find(met).map(|plan| plan.fault);
        inner.struck += u64::from(fault.is_some());
        fault
    }
}
