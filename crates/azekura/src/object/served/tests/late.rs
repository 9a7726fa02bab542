//! A planted bug: a storage whose writes of values are told to have landed, and land later.
//!
//! The last few wait here; a read that comes sees them, a sync does not wait for them. So whoever is answered for such a write
//! is answered too early. The journal's part is written as it should be.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::io::Storage;

/// Writes that wait.
const WAITING: usize = 6;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Late {
    below: Arc<dyn Storage>,
    journal_size: u64,
    waiting: Mutex<VecDeque<(u64, Vec<u8>)>>,
}

impl Late {
    pub(super) fn over(below: Arc<dyn Storage>, journal_size: u64) -> Arc<dyn Storage> {
        Arc::new(Self {
            below,
            journal_size,
            waiting: Mutex::default(),
        })
    }

    /// Lets all but so many land.
    fn land(&self, left: usize) -> Result<()> {
        let mut waiting = self.waiting.lock();
        while waiting.len() > left {
            let (offset, bytes) = waiting.pop_front().unwrap();
            self.below.write_at(offset, &bytes)?;
        }
        Ok(())
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.land(0).unwrap();
    }
}

impl crate::io::over::Over for Late {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.land(0)?;
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if offset < self.journal_size {
            return self.below.write_at(offset, bytes);
        }
        self.waiting.lock().push_back((offset, bytes.to_vec()));
        self.land(WAITING)
    }
}
