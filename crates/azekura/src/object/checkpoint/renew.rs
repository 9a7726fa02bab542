//! Small objects for which there is no packed extent: the oldest move to the journal's end, so that the journal can be released.
//!
//! ```text
//!   journal   | s r r s r r | r r r r | r s r r | ...            s: a live small object, r: dead records
//!                                               ... | s s s |    the oldest ones, with the sequences they had
//!   released   <----------------------->
//! ```
//! This is the only cleaning of the journal, and it happens only where space is short: more than a quarter of the journal is dead,
//! and there is no space for packed extents. So a full store accepts removals for as long as there are objects, also while a
//! snapshot pins what they leave.
//!
//! A frame is appended, and the entry pointed to it, while the gate is held exclusively: no frame of a removed object comes after its
//! removal. A crash leaves two frames of one put, either of which is the object: recovery takes the first.

use crate::error::{Kind, Result};
use crate::log::{Address, AllocationClass, LogPosition, Use};
use crate::object::Core;
use crate::object::id::ObjectId;
use crate::object::index::{Entry, Shot};
use crate::object::journal::record::Record;
use crate::room;

/// Most bytes that a frame takes besides the value.
const FRAME_LEN: u64 = 64;
/// Objects that are moved in one critical section.
const SLICE: usize = 32;

/// A small object in the journal, and its address.
type Staying = (LogPosition, ObjectId, Entry);

fn len_of(small: &Staying) -> u64 {
    u64::from(small.2.len) + FRAME_LEN
}

impl Core {
    /// Moves the oldest small objects to the journal's end, as far as the space for cleaning allows.
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
        // The rest of a segment may be too short for the next frame.
        let mut left = u64::from(segments.space().left_for(AllocationClass::Cleaning)) * size / 2;
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
                // It stays where it is, and reading it is an error.
                Err(error) if error.kind() == Kind::Corrupted => continue,
                Err(error) => return Err(error),
            };
            drop(pin);
            match self.append_small(*id, sequence, *from, &value, AllocationClass::Cleaning) {
                Ok(entry) => self.index.exchange(*id, *from, entry)?,
                Err(error) if error.kind() == Kind::Full => return Ok(()),
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Appends a small object with its value to the journal; returns its address.
    pub(crate) fn append_small(
        &self,
        id: ObjectId,
        sequence: u64,
        entry: Entry,
        value: &[u8],
        class: AllocationClass,
    ) -> Result<Entry> {
        let mut stored = room::vec(8 + value.len())?;
        stored.extend_from_slice(&sequence.to_le_bytes());
        stored.extend_from_slice(value);
        let (kind, key, _) = Record::Small(id, sequence, entry).encode();
        let address = self.append_frame(kind, &key, &stored, class)?;
        Ok(Entry {
            place: address.0,
            ..entry
        })
    }
}
