//! Checking: the sorted file, and every frame of the pending one.
//!
//! Read-only. What is verified: all of the sorted file, as its own check does; the superblock slots of the pending file, and every frame
//! of the segments in use; that records in order are as many as are counted, if nothing changed meanwhile. It does not stop at the first
//! damage. No merge is made meanwhile.

use std::ops::ControlFlow;

use super::Core;
use super::layout::PendingSuper;
use crate::engine::{CheckReport, Persistent as _};
use crate::error::{Error, Kind, Result};
use crate::kernel::superblock::damaged_slots;
use crate::log::layout::FIRST_FRAME;
use crate::log::{Stop, Use};
use crate::record::gate;

impl Core {
    pub(super) fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        gate::outside_updates()?;
        let _merging = self.merging.lock();
        let view = self.current();
        let mut report = view.base.check(progress)?;
        for damage in damaged_slots::<PendingSuper>(self.log.storage().as_ref())? {
            report.note(damage.to_string());
            report.rewritable += 1;
        }
        for damage in self.log.unreadable() {
            report.note(damage.to_string());
        }
        for segment in self.log.segments().in_use(Use::Log) {
            let stop = self
                .log
                .walk(segment.index, FIRST_FRAME, &mut |_, _| Ok(()))?;
            // What is blank is not appended yet.
            if let Stop::NoFrame {
                at,
                blank: false,
                reason,
            } = stop
            {
                let what = "a pending edit does not verify";
                let error = Error::new(Kind::Corrupted, what)
                    .at(self.log.storage().path())
                    .offset(self.log.address(segment.index, at).offset())
                    .detail(reason.to_string());
                report.note_error(error);
            }
        }
        let (view, end, counted) = {
            // No edit is in the log and not counted yet, and nothing was cleared since.
            let _alone = self.gate.alone();
            (self.current(), self.log.end(), self.count.sum())
        };
        (report.records, report.bytes) = (0, 0);
        let mut add = |key: &[u8], value: &[u8]| {
            report.records += 1;
            report.bytes += (key.len() + value.len()) as u64;
            ControlFlow::Continue(())
        };
        // The check of the file has reported its damage.
        view.walk(&self.reducer, None, &mut add, &mut |_| Ok(()))?;
        if report.is_sound() && report.records != counted && self.log.end() == end {
            let found = report.records;
            report.note(format!("{found} records found, {counted} counted"));
        }
        Ok(report)
    }
}
