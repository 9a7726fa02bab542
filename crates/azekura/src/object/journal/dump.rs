//! The journal after the last checkpoint, record by record: for people, and for checks.
//!
//! The walk visits what an open after a crash would replay. It does not wait for threads that append meanwhile; a checkpoint
//! waits for it, so that no segment is reused under the walk.

use crate::error::{Error, Kind, Result};
use crate::log::layout::{FIRST_FRAME, Link};
use crate::log::{AllocationClass, LogPosition, Stop};
use crate::object::journal::record::Record;
use crate::object::{Core, Store};

/// Where the walk met damage: offset on the device, and what.
type Damage = (u64, String);

impl Store {
    /// Visits the records of the journal since the last checkpoint, oldest first, each with its offset on the device, until
    /// `visit` returns false. `Corrupted` where a record is missing. `visit` must not make a checkpoint.
    pub fn journal(&self, visit: &mut dyn FnMut(u64, &Record) -> bool) -> Result<()> {
        let core = &self.core;
        core.log.healthy()?;
        {
            let _inside = core.gate.read();
            match core.flush_batch(AllocationClass::Removal) {
                // Records without space stay deferred.
                Err(error) if error.kind() == Kind::Full => {}
                shown => shown?,
            }
        }
        match core.each_record(visit)? {
            None => Ok(()),
            Some((offset, what)) => Err(Error::new(Kind::Corrupted, what)
                .at(core.log.storage().path())
                .offset(offset)
                .remedy("run `azekura object repair`")),
        }
    }
}

/// How the walk of a segment ended.
enum Went {
    /// At its end, or at the end of the journal.
    Through,
    /// The visitor stopped it.
    Enough,
    Damaged(Damage),
}

impl Core {
    /// Visits all records, with their offsets; returns the damage at which it ended, if any.
    pub(crate) fn each_record(
        &self,
        visit: &mut dyn FnMut(u64, &Record) -> bool,
    ) -> Result<Option<Damage>> {
        let state = self.checkpoint.lock();
        let start = state.last().start;
        let (mut index, mut sequence) = (start.segment(), start.sequence());
        let mut from = start.offset();
        loop {
            if self.log.segments().seed(index).is_none() {
                // In a store that was opened damaged.
                let offset = self.log.geometry().offset_of(index);
                return Ok(Some((
                    offset,
                    "a segment of the journal is not there".into(),
                )));
            }
            if let Some(from) = from {
                match self.each_of_segment(index, sequence, from, visit)? {
                    Went::Through => {}
                    Went::Enough => return Ok(None),
                    Went::Damaged(damage) => return Ok(Some(damage)),
                }
            }
            match self.log.link(index, sequence) {
                Link::To(next) => {
                    (index, sequence) = (next.index, next.sequence);
                    from = Some(FIRST_FRAME);
                }
                Link::None => return Ok(None),
                Link::Damaged => {
                    let offset = self.log.geometry().offset_of(index);
                    return Ok(Some((offset, "the journal's link leads nowhere".into())));
                }
            }
        }
    }

    fn each_of_segment(
        &self,
        index: u32,
        sequence: u64,
        mut from: u32,
        visit: &mut dyn FnMut(u64, &Record) -> bool,
    ) -> Result<Went> {
        loop {
            let mut went = Went::Through;
            // Read before the walk: a frame that is published and synced after the walk looked at its place is not missing.
            let durable = self.log.durable();
            let stop = self.log.walk(index, from, &mut |at, frame| {
                self.log
                    .each_record(index, at, frame, &mut |address, frame| {
                        if !matches!(went, Went::Through) {
                            return Ok(());
                        }
                        match Record::decode(address, &frame) {
                            Some(record) if visit(address.offset(), &record) => {}
                            Some(_) => went = Went::Enough,
                            None => {
                                let what = "unknown record type in the journal";
                                went = Went::Damaged((address.offset(), what.into()));
                            }
                        }
                        Ok(())
                    })
            })?;
            let (Stop::NoFrame { at, blank, reason }, Went::Through) = (stop, &went) else {
                return Ok(went);
            };
            let position = LogPosition::new(sequence, at);
            let is_last = self.log.link(index, sequence) == Link::None;
            if blank && is_last && position >= durable {
                return Ok(went);
            }
            if !blank || position < durable {
                let offset = self.log.geometry().offset_of(index) + u64::from(at);
                let what = format!("no record of the journal verifies ({reason})");
                return Ok(Went::Damaged((offset, what)));
            }
            // A thread is at work here. After it the journal continues.
            match self.log.resume_after(index, at) {
                Some(end) => from = end,
                None => return Ok(went),
            }
        }
    }
}
