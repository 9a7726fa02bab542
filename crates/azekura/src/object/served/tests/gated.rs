//! A storage whose writes and syncs wait after gates, so that a test knows what is in flight.
//!
//! A closed gate holds who comes, and reports how many stand before it. Writes may be told to fail, or to panic. Nothing here
//! depends on time, but that what hangs fails.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Kind, Result};
use crate::io::Storage;

/// Nothing waits so long but what hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who is before a gate, and whether it is closed.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    pub(super) fn close(&self) {
        self.state.lock().1 = true;
    }

    pub(super) fn open(&self) {
        self.state.lock().1 = false;
        self.changed.notify_all();
    }

    /// Closes, and returns what begins when so many stand before it.
    pub(super) fn hold<T>(&self, count: usize, begin: impl FnOnce() -> T) -> T {
        self.close();
        let begun = begin();
        self.await_waiting(count);
        begun
    }

    /// Returns when so many stand before it.
    pub(super) fn await_waiting(&self, count: usize) {
        let mut state = self.state.lock();
        while state.0 < count {
            let waited = self.changed.wait_for(&mut state, PATIENCE);
            assert!(!waited.timed_out(), "{} of {count} came", state.0);
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.state.lock().0
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        if !state.1 {
            return;
        }
        state.0 += 1;
        self.changed.notify_all();
        while state.1 {
            let waited = self.changed.wait_for(&mut state, PATIENCE);
            assert!(!waited.timed_out(), "the gate stays closed");
        }
        state.0 -= 1;
    }
}

#[derive(Debug)]
pub(super) struct Gated {
    pub(super) below: Arc<dyn Storage>,
    pub(super) writes: Gate,
    pub(super) syncs: Gate,
    /// How often it was synced.
    pub(super) synced: Mutex<u64>,
    /// Every write panics.
    pub(super) panics: Mutex<bool>,
    /// Every write fails.
    pub(super) fails: Mutex<bool>,
}

impl Gated {
    pub(super) fn new(below: Arc<dyn Storage>) -> Arc<Self> {
        Arc::new(Self {
            below,
            writes: Gate::default(),
            syncs: Gate::default(),
            synced: Mutex::default(),
            panics: Mutex::default(),
            fails: Mutex::default(),
        })
    }
}

impl crate::io::over::Over for Gated {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.writes.pass();
        assert!(!*self.panics.lock(), "a planted panic");
        if *self.fails.lock() {
            return Err(Error::new(Kind::Io, "a planted failure"));
        }
        self.below.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        *self.synced.lock() += 1;
        self.syncs.pass();
        self.below.sync()
    }
}
