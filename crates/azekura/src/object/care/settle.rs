//! Settling the room of a repaired store: what no object has is free.
//!
//! Entries of the index are taken at their word where they fit: two objects in one place, or one that lies outside, cannot both
//! be whole, and the one that does not verify goes. Small objects that stand together make a pack.
//!
//! It does not know where the entries came from.

use crate::error::Result;
use crate::object::Core;
use crate::object::care::report::Repaired;
use crate::object::checkpoint::root::Pack;
use crate::object::id::ObjectId;
use crate::object::index::{Entry, JOURNAL, PACKED};
use crate::object::place::extent::{PIECE, UNIT};
use crate::object::place::space::Unclaimed;
use crate::object::place::span::Span;
use crate::object::write::small::Packs;

impl Core {
    /// Of two objects in one place none can be whole but one. What no object has is free.
    pub(crate) fn settle_room(&self, unclaimed: &Unclaimed, report: &mut Repaired) -> Result<()> {
        let units = self.room.lock().space.units();
        let mut held: Vec<(Span, ObjectId, Entry)> = Vec::new();
        let mut dropped: Vec<(ObjectId, Entry)> = Vec::new();
        self.each_in(ObjectId(0), ObjectId(u128::MAX), |id, entry| {
            let is_lost = match entry.kind {
                JOURNAL => !matches!(self.read_entry(id, entry, &(0..0)), Ok(Ok(_))),
                _ => !entry.is_within(units),
            };
            if is_lost {
                dropped.push((id, entry));
            } else if entry.kind != JOURNAL {
                held.push((units_of(entry), id, entry));
            }
            Ok(())
        })?;
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
                format!("object {id} is not there, or has no room of its own"),
            );
            self.index.set(id, None)?;
        }
        self.free_all_but(unclaimed, &kept)
    }

    /// All units but those of these objects are free; packs are made of what stands together.
    fn free_all_but(&self, unclaimed: &Unclaimed, kept: &[(Span, ObjectId, Entry)]) -> Result<()> {
        let mut packs: Vec<Pack> = Vec::new();
        for (span, ..) in kept.iter().filter(|(.., entry)| entry.kind == PACKED) {
            match packs.last_mut().filter(|pack| pack.span.end() > span.unit) {
                Some(pack) => {
                    let end = pack.span.end().max(span.end());
                    pack.span.units = (end - pack.span.unit) as u32;
                    pack.live += 1;
                    pack.count += 1;
                }
                None => packs.push(Pack {
                    span: *span,
                    count: 1,
                    live: 1,
                }),
            }
        }
        let mut room = self.room.lock();
        let units = room.space.units();
        let mut unit = 0;
        while unit < units {
            let all = Span {
                unit,
                units: (units - unit).min(u64::from(self.group_units)) as u32,
            };
            unclaimed.free(&mut room.space, all)?;
            unit = all.end();
        }
        for (span, ..) in kept {
            unclaimed.claim(&mut room.space, *span)?;
        }
        room.packs = Packs::of(&packs);
        Ok(())
    }
}

/// The units in which an object stands.
pub(crate) fn units_of(entry: Entry) -> Span {
    let begin = entry.place * PIECE;
    let unit = begin / UNIT;
    let end = (begin + entry.device_bytes()).div_ceil(UNIT);
    Span {
        unit,
        units: (end - unit) as u32,
    }
}
