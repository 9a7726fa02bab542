//! Rebuilding the free space of a repaired store: what no object occupies is free.
//!
//! Entries of the index count where they fit. Of two objects in one place at most one is whole, so the one that does not verify is
//! lost, as is one that lies outside the device. Small objects that stand together become a packed extent.

use crate::error::Result;
use crate::object::Core;
use crate::object::care::report::Repaired;
use crate::object::checkpoint::root::PackedExtent;
use crate::object::id::ObjectId;
use crate::object::index::{Entry, JOURNAL, PACKED};
use crate::object::place::extent::{PIECE, UNIT};
use crate::object::place::space::Unclaimed;
use crate::object::place::span::Span;
use crate::object::write::small::PackedExtents;

impl Core {
    /// Resolves objects in one place, and frees what no object occupies.
    pub(crate) fn rebuild_free_space(
        &self,
        unclaimed: &Unclaimed,
        report: &mut Repaired,
    ) -> Result<()> {
        let units = self.allocator.lock().space.units();
        let mut held: Vec<(Span, ObjectId, Entry)> = Vec::new();
        let mut dropped: Vec<(ObjectId, Entry)> = Vec::new();
        for object in self.entries(..) {
            let (id, entry) = object?;
            let is_lost = match entry.kind {
                JOURNAL => !matches!(self.read_entry(id, entry, &(0..0)), Ok(Ok(_))),
                _ => !entry.is_within(units),
            };
            if is_lost {
                dropped.push((id, entry));
            } else if entry.kind != JOURNAL {
                held.push((units_of(entry), id, entry));
            }
        }
        held.sort_unstable_by_key(|(span, _, entry)| (*span, entry.place));
        let mut kept: Vec<(Span, ObjectId, Entry)> = Vec::new();
        for next in held {
            let meets = |before: &(Span, ObjectId, Entry)| {
                let both_packed = before.2.kind == PACKED && next.2.kind == PACKED;
                before.0.end() > next.0.unit && !both_packed
            };
            if let Some(before) = kept.pop_if(|before| meets(before)) {
                let is_whole = matches!(self.is_there(before.1, None, before.2), Ok(true));
                let (stays, goes) = if is_whole {
                    (before, next)
                } else {
                    (next, before)
                };
                dropped.push((goes.1, goes.2));
                kept.push(stays);
                continue;
            }
            kept.push(next);
        }
        for (id, entry) in dropped {
            let offset = self.offset_of_entry(entry);
            report.lose(
                self.device_of(entry),
                offset,
                format!("object {id} is missing, or shares its space with another"),
            );
            self.index.set(id, None)?;
        }
        self.free_all_but(unclaimed, &kept)
    }

    /// Frees all units but those of these objects, and builds packed extents of objects that stand together.
    fn free_all_but(&self, unclaimed: &Unclaimed, kept: &[(Span, ObjectId, Entry)]) -> Result<()> {
        let mut packed_extents: Vec<PackedExtent> = Vec::new();
        for (span, ..) in kept.iter().filter(|(.., entry)| entry.kind == PACKED) {
            match packed_extents
                .last_mut()
                .filter(|packed| packed.span.end() > span.unit)
            {
                Some(packed) => {
                    let end = packed.span.end().max(span.end());
                    packed.span.units = (end - packed.span.unit) as u32;
                    packed.live += 1;
                    packed.count += 1;
                }
                None => packed_extents.push(PackedExtent {
                    span: *span,
                    count: 1,
                    live: 1,
                }),
            }
        }
        let mut allocator = self.allocator.lock();
        let units = allocator.space.units();
        let mut unit = 0;
        while unit < units {
            let all = Span {
                unit,
                units: (units - unit).min(u64::from(self.group_units)) as u32,
            };
            unclaimed.free(&mut allocator.space, all)?;
            unit = all.end();
        }
        for (span, ..) in kept {
            unclaimed.claim(&mut allocator.space, *span)?;
        }
        allocator.packed_extents = PackedExtents::of(&packed_extents);
        Ok(())
    }
}

/// The units that an object occupies, alone or with others.
pub(crate) fn units_of(entry: Entry) -> Span {
    let begin = entry.place * PIECE;
    let unit = begin / UNIT;
    let end = (begin + entry.device_bytes()).div_ceil(UNIT);
    Span {
        unit,
        units: (end - unit) as u32,
    }
}
