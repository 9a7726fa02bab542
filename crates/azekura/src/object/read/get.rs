//! Reads: all or a part of an object, its length, its sequence.
//!
//! Every read of an object finds it by `Core::find`, which takes a [`Reads`]: only there is decided whether an object in doubt
//! (`recover::degraded`) is returned. A read of many objects, a list or a snapshot, goes through `Core::refuse_doubtful_range`.
//!
//! A get is one read of exactly the chunks that hold the range (of many chunks, a run of reads: `place::long`), and every byte of
//! them is verified. No lock is held over the read: if the object was changed meanwhile and its space reused, the bytes do not verify
//! as this object's put, and the read is repeated; the last time with the object's lock, so that it cannot change.

use std::ops::Range;

use crate::epoch;
use crate::error::{Error, Kind, Result};
use crate::io::aligned::AlignedBuf;
use crate::object::id::ObjectId;
use crate::object::index::{Entry, JOURNAL, PACKED};
use crate::object::place::extent::{self, Fault, PIECE, Seal, UNIT};
use crate::object::place::long::{self, Stretch};
use crate::object::read::value::Value;
use crate::object::times::Watch;
use crate::object::{Core, Store};
use crate::room;

/// The remedy for a damaged object.
const RESTORE: &str = "restore it from a copy, or remove it";
/// A second remedy, unless a check found the damage.
pub(crate) const FINDS_ALL: &str = "; `azekura object check` finds all such";

/// Tries without the object's lock.
pub(crate) const LOOKS: usize = 3;

/// Which objects a read gives. It has no default: each caller of `Core::find` states which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Those that are certain: an object in doubt is `Corrupted`, and so is a missing one where absence is in doubt.
    Certain,
    /// Also those in doubt, as last known: for a caller that reports the doubt itself, and for checks of bytes.
    LastKnown,
}

/// Where the requested bytes of an object are.
#[derive(Debug)]
pub(crate) struct Sought {
    seal: Seal,
    /// Length of the whole object.
    len: u64,
    wanted: Range<u64>,
    /// Whole units of the device, which may hold other bytes, too.
    pub(crate) offset: u64,
    pub(crate) size: usize,
    /// The object's own bytes among them.
    own: Range<usize>,
}

/// Result of a read: the bytes, and the put's sequence (its lower half, unless the first chunk was read).
pub(crate) type Read = (Value, u64);

impl Store {
    /// The value of object `id`; `None`: there is none. One read of the device. `Corrupted` if it does not verify, with
    /// the device, the offset and the id, or if a newer value may be lost ([`is_doubtful`](Self::is_doubtful)).
    pub fn get(&self, id: ObjectId) -> Result<Option<Value>> {
        self.get_range(id, 0..u64::MAX)
    }

    /// The value of object `id` and the sequence of the put that stored it, both of one moment; `None`: there is none. One read
    /// of the device, as [`get`](Self::get). The sequence is what [`compare_and_put`](Self::compare_and_put) and
    /// [`compare_and_remove`](Self::compare_and_remove) expect.
    pub fn get_with_sequence(&self, id: ObjectId) -> Result<Option<(Value, u64)>> {
        self.core.read(id, &(0..u64::MAX), Reads::Certain)
    }

    /// The bytes of object `id` that lie in `range`: fewer where it ends earlier, none past its end, like a read of a file. One
    /// read of the chunks of 64 KiB that hold them, which are verified.
    ///
    /// A range that ends past the object is no error: the length that a caller learned by [`head`](Self::head) is that of
    /// another moment, since another thread may put a shorter value in between. To read in pieces no length is needed: a result
    /// that is shorter than the range, or empty, is the end.
    ///
    /// ```
    /// use azekura::object::{CreateOptions, ObjectId, Store};
    ///
    /// # fn main() -> azekura::Result<()> {
    /// # let memory = azekura::io::memory::Memory::from_bytes(&vec![0; 16 << 20], 16 << 20)?;
    /// # let store = Store::create_on(memory, None, &CreateOptions::default(), &mut |_, _| ())?;
    /// store.put(ObjectId(0x2a), b"a cat, in many bytes")?;
    /// assert_eq!(store.get_range(ObjectId(0x2a), 2..5)?.as_deref(), Some(&b"cat"[..]));
    /// // It ends earlier.
    /// assert_eq!(store.get_range(ObjectId(0x2a), 15..99)?.as_deref(), Some(&b"bytes"[..]));
    /// assert!(store.get_range(ObjectId(0x2b), 0..1)?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_range(&self, id: ObjectId, range: Range<u64>) -> Result<Option<Value>> {
        let read = self.core.read(id, &range, Reads::Certain)?;
        Ok(read.map(|(bytes, _)| bytes))
    }

    /// The length of object `id` in bytes; `None`: there is none. No access.
    pub fn head(&self, id: ObjectId) -> Result<Option<u64>> {
        let (_, entry) = self.core.find(id, Reads::Certain)?;
        Ok(entry.map(|entry| u64::from(entry.len)))
    }

    /// The sequence of object `id`; `None`: there is none. One read of its first chunk.
    pub fn sequence(&self, id: ObjectId) -> Result<Option<u64>> {
        let read = self.core.read(id, &(0..0), Reads::Certain)?;
        Ok(read.map(|(_, sequence)| sequence))
    }
}

impl Core {
    pub(crate) fn read(
        &self,
        id: ObjectId,
        range: &Range<u64>,
        reads: Reads,
    ) -> Result<Option<Read>> {
        for _ in 0..LOOKS {
            let (_pin, entry) = self.find(id, reads)?;
            let Some(entry) = entry else {
                return Ok(None);
            };
            if let Ok(read) = self.read_entry(id, entry, range)? {
                return Ok(Some(read));
            }
        }
        self.read_at_last(id, range, reads)
    }

    /// The last try, with the object's lock.
    pub(crate) fn read_at_last(
        &self,
        id: ObjectId,
        range: &Range<u64>,
        reads: Reads,
    ) -> Result<Option<Read>> {
        let _guard = self.locks.lock(id);
        self.read_in_turn(id, range, reads)
    }

    /// Where an object is. A pin in the result keeps its segment of the journal.
    pub(crate) fn find(
        &self,
        id: ObjectId,
        reads: Reads,
    ) -> Result<(Option<epoch::Pin>, Option<Entry>)> {
        let pin = self.log.pin();
        let entry = self.index.get(id)?;
        if reads == Reads::Certain {
            self.refuse_doubtful(id, entry.is_some())?;
        }
        let is_in_journal = entry.is_some_and(|entry| entry.kind == JOURNAL);
        Ok((is_in_journal.then_some(pin), entry))
    }

    /// The sequence of an object whose lock the caller holds.
    pub(crate) fn sequence_locked(&self, id: ObjectId) -> Result<Option<u64>> {
        Ok(self
            .read_in_turn(id, &(0..0), Reads::Certain)?
            .map(|(_, sequence)| sequence))
    }

    /// The object cannot change then, but a small one may move: if its entry differs after the read, reads at the new place.
    pub(crate) fn read_in_turn(
        &self,
        id: ObjectId,
        range: &Range<u64>,
        reads: Reads,
    ) -> Result<Option<Read>> {
        loop {
            let (_pin, entry) = self.find(id, reads)?;
            let Some(entry) = entry else {
                return Ok(None);
            };
            match self.read_entry(id, entry, range)? {
                Ok(read) => return Ok(Some(read)),
                Err(fault) if self.index.get(id)? == Some(entry) => {
                    return Err(self.damaged(id, entry, fault));
                }
                Err(_) => {}
            }
        }
    }

    /// Reads and verifies the object of an entry; the caller has been pinned since before it got the entry.
    pub(crate) fn read_entry(
        &self,
        id: ObjectId,
        entry: Entry,
        range: &Range<u64>,
    ) -> Result<std::result::Result<Read, Fault>> {
        let sought = match self.locate(id, entry, range) {
            Ok(sought) => sought,
            Err(wanted) => {
                let read = self.read_journal(&self.log.pin(), id, entry, &wanted);
                let read = read.map_err(|error| match error.kind() {
                    // The log does not know objects.
                    Kind::Corrupted => self.damaged(id, entry, Fault::Chunk(0)),
                    _ => error,
                })?;
                return Ok(read
                    .map(|(bytes, sequence)| (Value::from(bytes), sequence))
                    .ok_or(Fault::Header));
            }
        };
        let mut watch = Watch::start();
        if sought.size as u64 > long::ONE_MAX {
            let read = watch.device(|| self.read_long(&sought));
            self.times.get.record(&watch);
            return read.map_err(|error| self.unread(id, &sought, error));
        }
        let mut buf = self.buffers.take(sought.size)?;
        let read = watch.device(|| self.data.read_at(sought.offset, &mut buf));
        // Small objects share a unit: this object's sectors of an unreadable unit may be whole.
        let read = read.or_else(|error| self.read_own(&sought, &mut buf).ok_or(error));
        let read = read.map_err(|error| self.unread(id, &sought, error));
        let decoded = read.and_then(|()| self.decode(&sought, buf));
        self.times.get.record(&watch);
        decoded
    }

    /// Reads only the sectors of an object, not whole units. `None`: its sectors are the whole units, or cannot be read.
    fn read_own(&self, sought: &Sought, buf: &mut AlignedBuf) -> Option<()> {
        let sector = (self.data.alignment() as usize).max(512);
        let from = sought.own.start / sector * sector;
        let end = sought.own.end.next_multiple_of(sector).min(sought.size);
        if from == 0 && end == sought.size {
            return None;
        }
        let offset = sought.offset + from as u64;
        let mut own = AlignedBuf::zeroed(end - from, sector as u64).ok()?;
        self.data.read_at(offset, &mut own).ok()?;
        buf.get_mut(from..end)?.copy_from_slice(&own);
        Some(())
    }

    /// In pieces, each verified while the next ones are read.
    fn read_long(&self, sought: &Sought) -> Result<std::result::Result<Read, Fault>> {
        let mut value = room::vec(sought.value_len())?;
        let mut reading = sought.seal.reading(sought.len, &sought.wanted);
        let mut verified = Ok(());
        let bytes = sought.offset..sought.offset + sought.size as u64;
        self.stretch(bytes).read(&mut |piece| {
            if verified.is_ok() {
                verified = reading.take(piece, &mut value);
            }
        })?;
        Ok(verified
            .and_then(|()| reading.sequence())
            .map(|sequence| (Value::from(value), sequence)))
    }

    /// Verifies the bytes in `buf`.
    pub(crate) fn decode(
        &self,
        sought: &Sought,
        mut buf: AlignedBuf,
    ) -> Result<std::result::Result<Read, Fault>> {
        let own = sought.own.clone();
        let units = &mut buf[own.clone()];
        match sought.seal.decode(units, sought.len, &sought.wanted) {
            Ok((bytes, sequence)) => {
                let bytes = own.start + bytes.start..own.start + bytes.end;
                Ok(Ok((Value::of(buf, bytes, &self.buffers)?, sequence)))
            }
            Err(fault) => {
                self.buffers.give(buf);
                Ok(Err(fault))
            }
        }
    }

    /// A range of the data device.
    pub(crate) fn stretch(&self, bytes: Range<u64>) -> Stretch<'_> {
        Stretch {
            storage: &self.data,
            flights: &self.flights,
            buffers: &self.buffers,
            bytes,
        }
    }

    /// Where the bytes of `range` are; for a value in the journal, which of its bytes.
    pub(crate) fn locate(
        &self,
        id: ObjectId,
        entry: Entry,
        range: &Range<u64>,
    ) -> std::result::Result<Sought, Range<u64>> {
        let len = u64::from(entry.len);
        let wanted = range.start.min(len)..range.end.min(len).max(range.start.min(len));
        let begin = entry.place * PIECE;
        let (seal, bytes) = match entry.kind {
            JOURNAL => return Err(wanted),
            PACKED => {
                let end = begin + extent::packed_size(len);
                (Seal::packed(self.salt, entry.place, id), begin..end)
            }
            _ => {
                let bytes = extent::bytes_of(len, &extent::chunks_of(len, &wanted));
                let seal = Seal::new(self.salt, entry.place, id);
                (seal, begin + bytes.start..begin + bytes.end)
            }
        };
        // The units of a packed object, which it shares.
        let from = bytes.start - bytes.start % UNIT;
        Ok(Sought {
            seal,
            len,
            wanted,
            offset: self.data_offset + from,
            size: (bytes.end.next_multiple_of(UNIT) - from) as usize,
            own: (bytes.start - from) as usize..(bytes.end - from) as usize,
        })
    }

    /// The error of a device that refused to read an object.
    #[cold]
    pub(crate) fn unread(&self, id: ObjectId, sought: &Sought, error: Error) -> Error {
        let error = error.at(self.data.path()).offset(sought.offset);
        error.of(format_args!("object {id}"))
    }

    #[cold]
    pub(crate) fn damaged(&self, id: ObjectId, entry: Entry, fault: Fault) -> Error {
        Error::new(Kind::Corrupted, format!("object {id} does not verify"))
            .at(self.device_of(entry))
            .offset(self.offset_of_entry(entry))
            .detail(fault.to_string())
            .remedy(format!("{RESTORE}{FINDS_ALL}"))
    }
}

impl Sought {
    fn value_len(&self) -> usize {
        (self.wanted.end - self.wanted.start) as usize
    }
}
