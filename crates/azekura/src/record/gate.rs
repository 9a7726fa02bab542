//! The gate of a store: updates pass, unless a thread has closed it to be alone.
//!
//! An update takes a guard of its thread and loads one word; that is all it pays. A thread that needs a moment without
//! updates (a checkpoint's beginning, `clear`, cleaning in a full store) closes the gate and waits for the updates inside: as
//! long as the longest closure that one of them runs.
//!
//! An update from inside another store's closure must not wait for a thread that may be waiting for the outer update. So
//! closing has two steps: first such updates still enter, and updates with guards are waited for; then nested ones are kept
//! out too, by a lock that no thread holds while it waits for guards. What closes the gate, or waits for a thread that may be
//! closing it, is refused inside an update ([`outside_updates`]): two threads would wait for each other.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::epoch::{self, Domain, PinnedSection, UpdateGuard};
use crate::error::{Error, Kind, Result};
use crate::explore::{self, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(super) struct Gate {
    /// Whose updates it lets pass.
    domain: Domain,
    /// Read by every update, written when it closes and opens. The guards give it its order: the thread that closes it
    /// makes all threads pass a barrier.
    closed: AtomicBool,
    /// Held as long as it is closed.
    closing: Mutex<()>,
    /// Shared by updates from inside another store's closure; exclusive to the thread that has waited for the guards.
    nested: RwLock<()>,
}

/// While it lives, its thread is inside an update.
#[expect(dead_code, reason = "dropped")]
pub(super) enum Inside<'g> {
    Guarded(UpdateGuard),
    /// The thread's guard is of an update of another store.
    Nested(RwLockReadGuard<'g, ()>),
}

/// While it lives, no other thread is inside an update.
pub(super) struct Alone<'g> {
    gate: &'g Gate,
    _nested: RwLockWriteGuard<'g, ()>,
    _closing: MutexGuard<'g, ()>,
}

/// `Invalid` inside an update, whose closure belongs to another store: for what waits until all updates have ended.
pub(crate) fn outside_updates() -> Result<()> {
    if epoch::is_within_update() {
        let what = "called from the closure of an update, for whose end it would wait";
        return Err(Error::new(Kind::Invalid, what).remedy("call it when the update has returned"));
    }
    Ok(())
}

impl Gate {
    /// An open gate for the updates of this domain.
    pub(super) fn new(domain: Domain) -> Self {
        Self {
            domain,
            closed: AtomicBool::new(false),
            closing: Mutex::default(),
            nested: RwLock::default(),
        }
    }

    /// Enters an update; inside until what it returns is dropped.
    ///
    /// An update from inside another store's closure waits for a thread that is alone, not for one that waits to be.
    #[inline(always)]
    pub(super) fn enter(&self) -> Inside<'_> {
        let Some(guard) = self.domain.update() else {
            return self.enter_nested();
        };
        explore::yield_point();
        if self.closed.load(Ordering::Acquire) {
            return self.wait(guard);
        }
        Inside::Guarded(guard)
    }

    #[cold]
    fn enter_nested(&self) -> Inside<'_> {
        while explore::wait() {
            if let Some(nested) = self.nested.try_read() {
                return Inside::Nested(nested);
            }
        }
        Inside::Nested(self.nested.read())
    }

    /// As `enter`, pinned, for a short update, if the gate is open.
    #[inline(always)]
    pub(super) fn enter_pinned(&self) -> Option<PinnedSection> {
        let section = self.domain.pinned_section();
        explore::yield_point();
        (!self.closed.load(Ordering::Acquire)).then_some(section)
    }

    #[cold]
    fn wait(&self, mut guard: UpdateGuard) -> Inside<'_> {
        while self.closed.load(Ordering::Acquire) {
            drop(guard);
            drop(self.closing.lock());
            guard = match self.domain.update() {
                Some(guard) => guard,
                None => return self.enter_nested(),
            };
        }
        Inside::Guarded(guard)
    }

    /// Waits until no other thread is inside an update, and keeps them out.
    pub(super) fn alone(&self) -> Alone<'_> {
        let closing = self.closing.lock();
        self.closed.store(true, Ordering::Release);
        self.domain.wait_for_updates();
        Alone {
            gate: self,
            _nested: self.no_nested(),
            _closing: closing,
        }
    }

    fn no_nested(&self) -> RwLockWriteGuard<'_, ()> {
        loop {
            if let Some(nested) = self.nested.try_write() {
                return nested;
            }
            if !explore::wait() {
                return self.nested.write();
            }
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        explore::yield_point();
        self.gate.closed.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn an_update_inside_another_waits_for_who_has_the_gate_alone() {
        let (outer, gate) = (Gate::new(Domain::new()), Gate::new(Domain::new()));
        let over = AtomicBool::new(false);
        let (report, reported) = mpsc::channel();
        std::thread::scope(|scope| {
            let alone = gate.alone();
            scope.spawn(|| {
                let _outer = outer.enter();
                report.send(()).unwrap();
                let _inner = gate.enter();
                assert!(over.load(Ordering::SeqCst), "two are alone");
            });
            reported.recv().unwrap();
            for _ in 0..1000 {
                std::thread::yield_now();
            }
            over.store(true, Ordering::SeqCst);
            drop(alone);
        });
    }

    /// The waiter waits for an update that ends only after the one inside another: if that waited, too, none would ever end.
    #[test]
    fn an_update_inside_another_does_not_wait_for_who_waits_for_the_other() {
        let (outer, gate) = (Gate::new(Domain::new()), Gate::new(Domain::new()));
        let done = AtomicBool::new(false);
        let until = |flag: &AtomicBool| {
            while !flag.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        };
        let (report, reported) = mpsc::channel();
        std::thread::scope(|scope| {
            let also = report.clone();
            scope.spawn(|| {
                let _inside = gate.enter();
                also.send(()).unwrap();
                drop(also);
                until(&done);
            });
            scope.spawn(|| {
                let _outer = outer.enter();
                report.send(()).unwrap();
                until(&gate.closed);
                drop(gate.enter());
                done.store(true, Ordering::SeqCst);
            });
            reported.recv().unwrap();
            reported.recv().unwrap();
            let _alone = gate.alone();
            assert!(done.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn who_has_the_gate_alone_waited_for_an_update_that_came_inside_another() {
        let (outer, gate) = (Gate::new(Domain::new()), Gate::new(Domain::new()));
        let done = AtomicBool::new(false);
        let (report, reported) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _outer = outer.enter();
                let inner = gate.enter();
                report.send(()).unwrap();
                for _ in 0..1000 {
                    std::thread::yield_now();
                }
                done.store(true, Ordering::SeqCst);
                drop(inner);
            });
            reported.recv().unwrap();
            let _alone = gate.no_nested();
            assert!(done.load(Ordering::SeqCst));
        });
    }
}
