//! Bringing a copy forward: a file of changes is applied to a copy that is at the checkpoint since which the changes were made.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 all of the file of changes is verified, and that the copy is at the checkpoint before, closed, with an empty journal | the copy |
//! | 2 the mark (`changes`) over both slots of the copy's superblock, each durable before the next | the copy, or a mark |
//! | 3 the copy grows; what is free is zeros; the pieces; the mark of its log; sync | a mark: nothing opens the copy but this |
//! | 4 the new superblock over both slots, each durable before the next | a mark, or the copy at the checkpoint after |
//! | 5 the copy is cut where it is longer | the same |
//!
//! After a crash the same call begins again at step 1, and finds the copy before, a mark of these changes, or the copy after: what was
//! written once is written again. A copy with a mark is completed by the changes that the mark names, and by no others.
//!
//! Where several copies are one store, each is prepared by step 1 before any is written ([`prepare`]). It does not know what stands in
//! the pieces.

use super::changes::{
    APPLYING, ApplyMark, ChangedPiece, CheckpointId, CheckpointNumber, Head, List, damaged,
};
use super::superblock::{Payload, Slots};
use crate::error::{Error, Kind, Result};
use crate::format::superblock::{SIZE, Superblock};
use crate::io::Storage;
use crate::log::Geometry;
use crate::log::layout::{CONTROL_OFFSET, Mark};

/// A file of changes that was verified.
struct Changes<'c, P> {
    storage: &'c dyn Storage,
    head: Head,
    list: List,
    payload: P,
}

impl<'c, P: Payload> Changes<'c, P> {
    /// Reads all of it. `Mismatch` if it is another file, or of another engine; `Corrupted` if any byte is not as it was written.
    fn verify(storage: &'c dyn Storage, progress: &mut dyn FnMut(u64)) -> Result<Self> {
        let of_file = |error: Error| error.at(storage.path());
        let size = storage.size()?;
        let mut bytes = vec![0; size.min(SIZE) as usize];
        storage.read_at(0, &mut bytes)?;
        let head = Head::decode(&bytes).map_err(of_file)?;
        if head.step.engine != P::ENGINE {
            let error = Error::new(Kind::Mismatch, "the changes are of another engine's store");
            return Err(of_file(error));
        }
        let (offset, len, _) = head.list;
        if offset.checked_add(len) != Some(size) {
            return Err(of_file(damaged("its length")));
        }
        let mut bytes = vec![0; len as usize];
        storage.read_at(offset, &mut bytes)?;
        let list = List::decode(&bytes, &head);
        let list = list.ok_or_else(|| of_file(damaged("the list of pieces").offset(offset)))?;
        let payload = P::decode(&head.payload).filter(|of| of.geometry == head.geometry());
        let payload = payload.ok_or_else(|| of_file(damaged("its head").offset(0)))?;
        let changes = Self {
            storage,
            head,
            list,
            payload,
        };
        changes.each(&mut |piece, _| {
            progress(piece.len.into());
            Ok(())
        })?;
        Ok(changes)
    }

    /// Shows each piece, with its bytes, which verify.
    fn each(&self, show: &mut dyn FnMut(ChangedPiece, &[u8]) -> Result<()>) -> Result<()> {
        let mut at = SIZE;
        let mut bytes = Vec::new();
        for piece in &self.list.pieces {
            bytes.resize(piece.len as usize, 0);
            self.storage.read_at(at, &mut bytes)?;
            if ChangedPiece::of(self.head.step.salt, piece.offset, &bytes) != *piece {
                return Err(damaged("a piece").at(self.storage.path()).offset(at));
            }
            show(*piece, &bytes)?;
            at += u64::from(piece.len);
        }
        Ok(())
    }
}

/// What a copy is before.
enum Found {
    /// At the checkpoint before: epoch and next sequence.
    Before((u32, u64)),
    /// Marked with these changes; the same.
    Marked((u32, u64)),
    /// At the checkpoint after.
    After,
}

/// Changes that fit a copy, of which nothing is written yet.
pub struct Prepared<'c, P> {
    copy: &'c dyn Storage,
    changes: Changes<'c, P>,
    block: Superblock,
    found: Found,
}

/// Step 1. `moment_of`: at which checkpoint a store is that has this payload. `progress` gets lengths of bytes.
///
/// Errors: `Invalid` if the copy is at another checkpoint, was changed, or has the mark of other changes; `Mismatch`, `Corrupted` for a
/// file of changes that is none; `Full`, `Io`.
pub fn prepare<'c, P: Payload>(
    copy: &'c dyn Storage,
    changes: &'c dyn Storage,
    moment_of: &dyn Fn(&P) -> Result<CheckpointNumber>,
    progress: &mut dyn FnMut(u64),
) -> Result<Prepared<'c, P>> {
    let changes = Changes::<P>::verify(changes, progress)?;
    let (block, found) = find(copy, &changes, moment_of)?;
    Ok(Prepared {
        copy,
        changes,
        block,
        found,
    })
}

impl<P: Payload> Prepared<'_, P> {
    /// Whether the copy has these changes already.
    pub fn is_applied(&self) -> bool {
        matches!(self.found, Found::After)
    }

    /// The other steps; the checkpoint that the copy is at afterwards. Errors: `Full`, `Io`, and then the changes are to be prepared again.
    pub fn apply(self, progress: &mut dyn FnMut(u64)) -> Result<CheckpointId> {
        let Self {
            copy,
            changes,
            mut block,
            found,
        } = self;
        let step = changes.head.step;
        let used = match found {
            Found::After => return Ok(step.id(step.to)),
            Found::Before(used) | Found::Marked(used) => used,
        };
        // What is current may be in the cache only.
        copy.write_durably(block.slot_offset(), &block.encode())?;
        let mark = ApplyMark::new(step, used, changes.storage.path());
        write_both(copy, &mut block, APPLYING, &mark.encode())?;
        write_pieces(copy, &changes, progress)?;
        let mut payload = changes.payload;
        payload.epoch = payload.epoch.max(used.0);
        payload.next_sequence = payload.next_sequence.max(used.1);
        write_both(copy, &mut block, P::ENGINE, &payload.encode())?;
        let size = changes.head.geometry().offset_of(changes.head.segments);
        if copy.size()? > size {
            copy.resize(size)?;
        }
        Ok(step.id(step.to))
    }
}

/// What the copy is, and its current superblock.
fn find<P: Payload>(
    copy: &dyn Storage,
    changes: &Changes<'_, P>,
    moment_of: &dyn Fn(&P) -> Result<CheckpointNumber>,
) -> Result<(Superblock, Found)> {
    let step = changes.head.step;
    let slots = Slots::read(copy)?;
    let head = slots.head.clone();
    if slots.engine() == Some(APPLYING) {
        let block = slots
            .current(APPLYING)
            .map_err(|error| error.at(copy.path()))?;
        return match ApplyMark::decode(&block.payload) {
            Some(mark) if mark.step == step => Ok((block, Found::Marked(mark.used))),
            mark => {
                let found = mark.map_or("changes unknown".into(), |mark| {
                    format!("`{}` {}", mark.name, mark.step)
                });
                let what = "other changes are being applied to this copy";
                Err(Error::new(Kind::Invalid, what)
                    .at(copy.path())
                    .found(found, format!("those {step}"))
                    .remedy("apply those first, or make a new copy"))
            }
        };
    }
    let block = slots
        .current(P::ENGINE)
        .map_err(|error| P::of_other(error, &head).at(copy.path()))?;
    let payload = P::decode(&block.payload).ok_or_else(|| {
        Error::new(Kind::Corrupted, "the superblock holds impossible values").at(copy.path())
    })?;
    if payload.geometry != changes.head.geometry() {
        let of = |geometry: Geometry| format!("store {:08x}", geometry.salt);
        let error = Error::new(
            Kind::Invalid,
            "the changes are of another store than the copy",
        );
        return Err(error
            .at(copy.path())
            .found(of(payload.geometry), of(changes.head.geometry())));
    }
    let mut mark = vec![0; crate::log::layout::MARK_SIZE];
    copy.read_at(CONTROL_OFFSET, &mut mark)?;
    let durable = Mark::decode(&mark).unwrap_or_default().durable;
    if payload.open || payload.durable.max(durable) != payload.start.position() {
        let what = "the copy was opened since it was made, and not closed with a checkpoint";
        return Err(Error::new(Kind::Invalid, what)
            .at(copy.path())
            .remedy("make a new copy: what was changed in this one would be lost"));
    }
    let moment = moment_of(&payload)?;
    if moment == step.to {
        return Ok((block, Found::After));
    }
    if moment != step.since {
        let what = "the copy is not at the checkpoint since which the changes were made";
        return Err(Error::new(Kind::Invalid, what)
            .at(copy.path())
            .found(step.id(moment), step.id(step.since))
            .remedy("apply changes in the order in which they were made, to a copy that was not changed; or make a new copy"));
    }
    Ok((block, Found::Before((payload.epoch, payload.next_sequence))))
}

/// Puts a superblock in the place of this one, in both slots, each durable before the next is written.
fn write_both(
    copy: &dyn Storage,
    block: &mut Superblock,
    engine: [u8; 8],
    payload: &[u8],
) -> Result<()> {
    for _slot in 0..2 {
        *block = Superblock {
            engine,
            sequence: block.sequence + 1,
            payload: payload.to_vec(),
        };
        copy.write_durably(block.slot_offset(), &block.encode())?;
    }
    Ok(())
}

/// Step 3.
fn write_pieces<P: Payload>(
    copy: &dyn Storage,
    changes: &Changes<'_, P>,
    advance: &mut dyn FnMut(u64),
) -> Result<()> {
    let head = &changes.head;
    let size = head.geometry().offset_of(head.segments);
    if copy.size()? < size {
        copy.resize(size)?;
    }
    for (offset, len) in &changes.list.blank {
        copy.discard(*offset, *len)?;
        copy.allocate(*offset, *len)?;
    }
    changes.each(&mut |piece, bytes| {
        advance(piece.len.into());
        copy.write_at(piece.offset, bytes)
    })?;
    let mark = Mark {
        durable: head.end.position(),
        sync_failed: false,
    };
    copy.write_at(CONTROL_OFFSET, &mark.encode())?;
    copy.sync()
}
