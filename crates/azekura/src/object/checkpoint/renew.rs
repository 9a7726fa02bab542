//! Small objects that find no room in packs, and would keep the journal from being let go: the oldest go to its end.
//!
//! ```text
//!   journal   | s r r s r r | r r r r | r s r r | ...            s: a small object that is there still, r: what is over
//!                                               ... | s s s |    those that were oldest, with the sequence they had
//!   released   <----------------------->
//! ```
//! It is the one time when the journal is cleaned, and only where room is short: more than a quarter of it is over, and there
//! is no room for packs. So a full store takes removals for as long as there is something to remove, also while a snapshot keeps
//! what they leave.
//!
//! A frame goes to the end, and the entry over to it, while nobody changes anything: no frame of an object that is gone comes
//! behind its removal. A crash leaves two frames of one put, either of which is the object: a recovery takes the first.
//!
//! It does not know what a checkpoint needs: it takes what cleaning may.

use crate::error::{Kind, Result};
use crate::log::{Address, Claim, LogPosition, Use};
use crate::object::Core;
use crate::object::id::ObjectId;
use crate::object::index::{Entry, Shot};
use crate::object::journal::record::Record;
use crate::room;

/// Bytes that a frame takes besides the value, at most.
const FRAME_LEN: u64 = 64;
/// Objects that are moved while all others wait.
const SLICE: usize = 32;

/// A small object in the journal, and where.
type Staying = (LogPosition, ObjectId, Entry);

fn len_of(small: &Staying) -> u64 {
    u64::from(small.2.len) + FRAME_LEN
}

impl Core {
    /// Moves the oldest of the small objects to the journal's end, as far as there is room for cleaning.
    pub(crate) fn renew(&self, shots: &[Shot]) -> Result<()> {
        let mut staying = self.staying(shots)?;
        let live: u64 = staying.iter().map(len_of).sum();
        let segments = self.log.segments();
        let size = self.log.geometry().segment_size();
        let used = segments.in_use(Use::Log);
        let used: u64 = used.iter().map(|of| u64::from(of.units) * size).sum();
        if live + used / 4 > used {
            return Ok(());
        }
        staying.sort_unstable_by_key(|(position, ..)| *position);
        // What is left of a segment may be too short for the next frame.
        let mut left = u64::from(segments.space().left_for(Claim::Cleaning)) * size / 2;
        let fits = |small: &&Staying| {
            let rest = left.checked_sub(len_of(small));
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        let count = staying.iter().take_while(fits).count();
        staying.truncate(count);
        let mut slices = staying.chunks(SLICE);
        slices.try_for_each(|slice| self.renew_these(slice))
    }

    fn staying(&self, shots: &[Shot]) -> Result<Vec<Staying>> {
        let mut staying = Vec::new();
        self.each_in_journal(shots, &mut |id, entry| {
            if let Some(position) = self.log.position(Address(entry.place)) {
                room::more(&mut staying, 1)?;
                staying.push((position, id, entry));
            }
            Ok(())
        })?;
        Ok(staying)
    }

    fn renew_these(&self, staying: &[Staying]) -> Result<()> {
        let _alone = self.gate.write();
        for (_, id, from) in staying {
            if self.index.get(*id)? != Some(*from) {
                continue;
            }
            let pin = self.log.pin();
            let all = 0..u64::from(from.len);
            let (value, sequence) = match self.read_journal(&pin, *id, *from, &all) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                // It stays where it is: whoever reads it is told.
                Err(error) if error.kind() == Kind::Corrupted => continue,
                Err(error) => return Err(error),
            };
            drop(pin);
            match self.tell_small(*id, sequence, *from, &value, Claim::Cleaning) {
                Ok(entry) => self.index.exchange(*id, *from, entry)?,
                Err(error) if error.kind() == Kind::Full => return Ok(()),
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Tells the journal a small object, value and all; where it is.
    pub(crate) fn tell_small(
        &self,
        id: ObjectId,
        sequence: u64,
        entry: Entry,
        value: &[u8],
        claim: Claim,
    ) -> Result<Entry> {
        let mut stored = room::vec(8 + value.len())?;
        stored.extend_from_slice(&sequence.to_le_bytes());
        stored.extend_from_slice(value);
        let (kind, key, _) = Record::Small(id, sequence, entry).encode();
        let address = self.tell_frame(kind, &key, &stored, claim)?;
        Ok(Entry {
            place: address.0,
            ..entry
        })
    }
}
