//! Whether the store says the same of itself everywhere.
//!
//! The room: extents of objects do not meet one another, nor free room, nor room in limbo; and what is neither is nobody's:
//! there is none such. It reads no data; it changes nothing.

use super::id::ObjectId;
use super::index::EXTENT;
use super::space::Span;
use super::{Core, Store};
use crate::error::{Error, Kind, Result};

impl Store {
    /// Checks that every unit of the device is an object's, free, or about to be; holds up changes meanwhile. `Corrupted`
    /// with the first place where that is not so. No access but for lists and leaves that were not needed yet.
    pub fn check_room(&self) -> Result<()> {
        self.core.check_room()
    }
}

impl Core {
    fn check_room(&self) -> Result<()> {
        let _alone = self.gate.write();
        let mut spans: Vec<(Span, Option<ObjectId>)> = Vec::new();
        self.each_in(ObjectId(0), ObjectId(u128::MAX), |id, entry| {
            if entry.kind == EXTENT {
                spans.push((Self::span_of(entry), Some(id)));
            }
            Ok(())
        })?;
        let mut room = self.room.lock();
        spans.extend(room.space.all_free()?.into_iter().map(|span| (span, None)));
        spans.extend(room.space.between().map(|span| (span, None)));
        spans.extend(room.packs.all().map(|pack| (pack.span, None)));
        spans.extend(room.under_way.values().map(|span| (*span, None)));
        let units = room.space.units();
        drop(room);
        spans.sort_unstable_by_key(|(span, _)| *span);
        let mut at = 0;
        for (span, id) in spans {
            if span.unit != at || span.end() > units {
                let what = if span.unit < at {
                    "belongs to two"
                } else {
                    "is nobody's"
                };
                let of = id.map_or_else(|| "free room".to_owned(), |id| format!("object {id}"));
                return Err(
                    Error::new(Kind::Corrupted, format!("room on the device {what}"))
                        .at(self.data.path())
                        .offset(self.data_offset + at.min(span.unit) * super::extent::UNIT)
                        .detail(format!("before or at {of}")),
                );
            }
            at = span.end();
        }
        if at != units {
            return Err(
                Error::new(Kind::Corrupted, "room on the device is nobody's")
                    .at(self.data.path())
                    .offset(self.data_offset + at * super::extent::UNIT),
            );
        }
        Ok(())
    }
}
