//! Marks: notes of the store's user that stand in the log, in the order of the updates.
//!
//! A mark is a few bytes that mean something to the user alone, such as "all entries of the primary up to number 7 are
//! applied". It is no record: no key names it, scans and followers do not show it, and `clear` does not remove it. Only the
//! last one counts. It is appended alone, in the frame of a batch, or in the frame of a clear; after a crash a batch and its
//! mark are both there or neither is.
//!
//! | place | what it holds |
//! |---|---|
//! | memory | the last mark, stored under the lock that orders appends of marks |
//! | log | a frame of kind mark; dead at once, as a removal is: only replay needs it |
//! | root of a checkpoint | the last mark before replay begins |
//!
//! A file that `repair` wrote has none, nor has one that damage keeps from being written: what a mark states may not be true
//! of it, and a later one may be lost. A reader of another process sees none.
//!
//! Source: the applied position that replicated logs keep with their state (Raft, section 5.3, and its state machines).

use super::layout::MARK_LEN_MAX;
use super::{Core, HashDb};
use crate::engine::DecideMany;
use crate::error::{Error, Kind, Result};
use crate::format::frame::FrameKind;
use crate::log::{AllocationClass, Entry};

impl HashDb {
    /// The last mark, also of earlier openings; `None` if there is none.
    pub fn mark(&self) -> Option<Vec<u8>> {
        let mark = self.core.mark.lock();
        (!mark.is_empty()).then(|| mark.clone())
    }

    /// Appends a mark of 1 to 4096 bytes, in the place of the last one. As durable as a put. `Invalid` of another length.
    pub fn set_mark(&self, mark: &[u8]) -> Result<()> {
        check(mark)?;
        {
            let _inside = self.core.begin_update(true, None, true)?;
            let pin = self.core.index.pin();
            let guard = pin.critical_section();
            let mut last = self.core.mark.lock();
            let entry = entry(mark);
            // The next root holds it.
            let class = if mark.len() <= last.len() {
                AllocationClass::Removal
            } else {
                AllocationClass::Growth
            };
            let appended = self.core.log.append(&guard, &entry, class)?;
            self.core.log.mark_dead(appended.address, appended.len);
            mark.clone_into(&mut last);
            drop(last);
            if class == AllocationClass::Growth {
                self.core.expect_mark(mark.len());
            }
        }
        self.core.end_update()
    }

    /// As [`update_many`](crate::engine::Engine::update_many), with a mark in the same frame, as for
    /// [`set_mark`](Self::set_mark). Of a key that is named twice the last edit counts.
    pub fn update_many_with_mark(
        &self,
        keys: &[&[u8]],
        decide: DecideMany<'_, '_>,
        mark: &[u8],
    ) -> Result<()> {
        check(mark)?;
        self.core.update_many(keys, decide, Some(mark))
    }

    /// As [`clear`](crate::engine::Engine::clear), with a mark in the same frame, as for [`set_mark`](Self::set_mark).
    pub fn clear_with_mark(&self, mark: &[u8]) -> Result<()> {
        check(mark)?;
        self.core.clear(Some(mark))
    }
}

impl Core {
    /// A mark that was found or appended with something else.
    pub(super) fn note_mark(&self, mark: Option<&[u8]>) {
        if let Some(mark) = mark {
            mark.clone_into(&mut self.mark.lock());
        }
    }

    /// Has the log keep what the next checkpoint needs of a mark of this length.
    pub(super) fn expect_mark(&self, len: usize) {
        let mut previous = self.previous.lock();
        previous.mark = previous.mark.max(len as u64);
        drop(previous);
        self.look_ahead();
    }
}

fn check(mark: &[u8]) -> Result<()> {
    if (1..=MARK_LEN_MAX).contains(&mark.len()) {
        return Ok(());
    }
    Err(
        Error::new(Kind::Invalid, "a mark of this length cannot be stored")
            .found(mark.len(), format!("1 to {MARK_LEN_MAX} bytes")),
    )
}

/// The frame of a mark.
pub(super) fn entry(mark: &[u8]) -> Entry<'_> {
    Entry {
        kind: FrameKind::MARK,
        flags: 0,
        key: &[],
        value: mark,
    }
}
