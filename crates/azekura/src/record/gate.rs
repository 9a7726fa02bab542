//! Lets updates pass, and now and then nobody.
//!
//! An update marks its thread and looks at one word; that is all it pays. Who needs a moment without updates
//! (a checkpoint's beginning, `clear`) closes the gate and waits for those inside. The moment is as long as
//! the longest closure that an update is running.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::epoch::{self, Brief, Mark};
use crate::weave::{self, Bug, Mutex, MutexGuard};

#[derive(Default)]
pub(super) struct Gate {
    /// Read by every update, written when it closes and opens. The marks give it its order: who closes it
    /// makes all threads pass a barrier.
    closed: AtomicBool,
    /// Held as long as it is closed.
    closing: Mutex<()>,
}

/// While it lives, no other thread is inside an update.
pub(super) struct Alone<'g> {
    gate: &'g Gate,
    _closing: MutexGuard<'g, ()>,
}

impl Gate {
    /// Enters an update; inside until the mark is dropped.
    ///
    /// An update from inside another store's closure enters at once: whoever waits for the outer one waits
    /// for both.
    #[inline(always)]
    pub(super) fn enter(&self) -> Option<Mark> {
        let mark = epoch::writing();
        weave::point();
        if self.closed.load(Ordering::Acquire) && mark.is_some() {
            return self.wait(mark);
        }
        mark
    }

    /// As `enter`, pinned, for a short update, if the gate is open.
    #[inline(always)]
    pub(super) fn enter_briefly(&self) -> Option<Brief> {
        let brief = epoch::brief();
        weave::point();
        (!self.closed.load(Ordering::Acquire)).then_some(brief)
    }

    #[cold]
    fn wait(&self, mut mark: Option<Mark>) -> Option<Mark> {
        while self.closed.load(Ordering::Acquire) {
            drop(mark);
            drop(self.closing.lock());
            mark = epoch::writing();
        }
        mark
    }

    /// Waits until no other thread is inside an update, and keeps them out.
    pub(super) fn alone(&self) -> Alone<'_> {
        let closing = self.closing.lock();
        self.closed.store(true, Ordering::Release);
        if !weave::has(Bug::GateWithoutWaiting) {
            epoch::wait_for_updates();
        }
        Alone {
            gate: self,
            _closing: closing,
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        weave::point();
        self.gate.closed.store(false, Ordering::Release);
    }
}
