//! Drafts: values that a caller builds in the memory from which they are written.
//!
//! A put copies its value into aligned memory, between the trailers of chunks: a tenth of the time of 100 KiB on a fast device. A
//! caller that reads a value from a file or a socket can read it into that memory instead. A [`Draft`] has the layout of an extent;
//! place, sequence and checksums are filled in when it is put. The idea is `CannyLS`'s, whose lump data is allocated aligned.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use crate::engine::Durability;
use crate::error::{Error, Kind, Result, size};
use crate::io::aligned::AlignedBuf;
use crate::object::id::ObjectId;
use crate::object::place::buffers::Buffers;
use crate::object::times::Watch;
use crate::object::write::put::Reservation;
use crate::object::{Core, Store, Stored, place::extent};

/// A value of a known length that is filled front to back. It takes as much memory as its object takes on the device.
/// If it is dropped, nothing is put.
pub struct Draft {
    extent: AlignedBuf,
    len: u64,
    filled: u64,
    buffers: Arc<Buffers>,
}

impl Store {
    /// Memory for a value of `len` bytes, for the caller to fill and pass to [`put_draft`](Self::put_draft). No access. `TooLarge` above
    /// [`len_max`](Self::len_max), `Full` if there is no memory.
    ///
    /// ```
    /// use azekura::object::{CreateOptions, ObjectId, Store};
    ///
    /// # fn main() -> azekura::Result<()> {
    /// # let memory = azekura::io::memory::Memory::from_bytes(&vec![0; 16 << 20], 16 << 20)?;
    /// # let store = Store::create_on(memory, None, &CreateOptions::default(), &mut |_, _| ())?;
    /// let mut file = &b"what a file or a socket gives"[..];
    /// let mut draft = store.draft(file.len() as u64)?;
    /// draft.fill_from(&mut file)?;
    /// store.put_draft(ObjectId(0x2a), draft)?;
    /// assert_eq!(store.head(ObjectId(0x2a))?, Some(29));
    /// # Ok(())
    /// # }
    /// ```
    pub fn draft(&self, len: u64) -> Result<Draft> {
        if len > self.len_max() {
            return Err(self.core.too_large("the draft", len));
        }
        let buffers = Arc::clone(&self.core.buffers);
        Ok(Draft {
            extent: buffers.take(extent::bytes(len))?,
            len,
            filled: 0,
            buffers,
        })
    }

    /// As [`put`](Self::put), of a draft of this store that was filled: nothing is copied, unless the object is small. One write
    /// of any length, checksummed before.
    /// `Invalid` if bytes are missing, or if it is another store's.
    pub fn put_draft(&self, id: ObjectId, draft: Draft) -> Result<Stored> {
        self.put_draft_with(id, draft, self.core.options.durability)
    }

    /// As [`put_draft`](Self::put_draft), with a durability of its own.
    pub fn put_draft_with(
        &self,
        id: ObjectId,
        draft: Draft,
        durability: Durability,
    ) -> Result<Stored> {
        let core = &self.core;
        core.accept(&draft)?;
        let guard = core.locks.lock(id);
        let stored = core.put_draft(id, draft)?;
        drop(guard);
        core.after_change(durability)?;
        Ok(stored)
    }
}

impl Core {
    /// Whether a draft may be put here.
    pub(crate) fn accept(&self, draft: &Draft) -> Result<()> {
        if !Arc::ptr_eq(&draft.buffers, &self.buffers) {
            let what = "a draft is put into the store that gave it";
            return Err(Error::new(Kind::Invalid, what).at(self.data.path()));
        }
        if draft.filled < draft.len {
            return Err(Error::new(Kind::Invalid, "a draft is not filled")
                .at(self.data.path())
                .found(size(draft.filled), size(draft.len)));
        }
        Ok(())
    }

    /// The caller holds the lock of the id.
    fn put_draft(&self, id: ObjectId, mut draft: Draft) -> Result<Stored> {
        if let Some(value) = draft.small(self) {
            return self.put_small(id, value);
        }
        let mut watch = Watch::start();
        let (reserved, buf) = self.begin_draft(id, draft)?;
        let offset = self.offset_of(reserved.span);
        let written = watch.device(|| self.data.write_at(offset, &buf));
        self.buffers.give(buf);
        let stored = self.finish_put(reserved, written);
        self.times.put.record(&watch);
        stored
    }

    /// As `begin_put`, of a draft.
    pub(crate) fn begin_draft(
        &self,
        id: ObjectId,
        mut draft: Draft,
    ) -> Result<(Reservation, AlignedBuf)> {
        let reserved = self.reserve_extent(id, draft.len)?;
        let mut buf = std::mem::take(&mut draft.extent);
        self.seal_of(&reserved)
            .sign(0, &mut buf, reserved.sequence, 0, draft.len);
        Ok((reserved, buf))
    }
}

impl Draft {
    /// Bytes of the value.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of the value that are still missing.
    pub fn missing(&self) -> u64 {
        self.len - self.filled
    }

    /// Reads the missing bytes. `Io` if reading fails, or ends too early: the bytes read so far stay.
    pub fn fill_from(&mut self, from: &mut dyn Read) -> Result<()> {
        while self.filled < self.len {
            match from.read(self.room()) {
                Ok(0) => {
                    let what = "what a draft is filled from ended too early";
                    let ended = Error::io(what, io::Error::from(io::ErrorKind::UnexpectedEof));
                    return Err(ended.found(size(self.filled), size(self.len)));
                }
                Ok(len) => self.filled += len as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("a draft cannot be filled", error)),
            }
        }
        Ok(())
    }

    /// The place of the next bytes, up to a trailer.
    fn room(&mut self) -> &mut [u8] {
        extent::room(&mut self.extent, self.len, self.filled)
    }

    /// The value, if it is small.
    pub(crate) fn small(&mut self, core: &Core) -> Option<&[u8]> {
        core.is_small(self.len as usize)
            .then(|| &*extent::room(&mut self.extent, self.len, 0))
    }
}

/// Takes at most the missing bytes.
impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.room().write(bytes)?;
        self.filled += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Draft({} of {} bytes)", self.filled, self.len)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.buffers.give(std::mem::take(&mut self.extent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::refusal;
    use crate::io::memory::Memory;
    use crate::object::CreateOptions;

    fn store() -> Store {
        let options = CreateOptions::new().background(false);
        let memory = Memory::from_bytes(&vec![0; 16 << 20], 16 << 20).unwrap();
        Store::create_on(memory, None, &options, &mut |_, _| ()).unwrap()
    }

    #[test]
    fn drafts_of_every_length_are_got_as_they_were_filled() {
        const LENS: [usize; 10] = [
            0, 1, 2048, 2049, 4024, 65_464, 65_465, 130_992, 131_000, 3_000_000,
        ];
        let store = store();
        for len in LENS {
            let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut whole = store.draft(len as u64).unwrap();
            whole.fill_from(&mut &value[..]).unwrap();
            // In steps that end within chunks.
            let mut stepwise = store.draft(len as u64).unwrap();
            for step in value.chunks(1000) {
                stepwise.write_all(step).unwrap();
            }
            assert!(stepwise.write_all(b"x").is_err(), "{len}");
            for draft in [whole, stepwise] {
                store.put_draft(ObjectId(7), draft).unwrap();
                assert!(store.get(ObjectId(7)).unwrap().unwrap() == value, "{len}");
            }
        }
        let report = store.check(true, &mut |_, _| ()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }

    #[test]
    fn drafts_unfilled_too_long_or_of_another_store_are_refused_and_change_nothing() {
        let (store, other) = (store(), store());
        let mut draft = store.draft(5000).unwrap();
        let error = draft.fill_from(&mut &[1; 4999][..]).unwrap_err();
        assert!(error.to_string().contains("too early"), "{error}");
        assert_eq!(draft.missing(), 1);
        refusal(store.put_draft(ObjectId(1), draft), Kind::Invalid);
        let strange = other.draft(0).unwrap();
        refusal(store.put_draft(ObjectId(1), strange), Kind::Invalid);
        refusal(store.draft(store.len_max() + 1), Kind::TooLarge);
        assert_eq!(store.count(), 0);
        store.check_room().unwrap();
    }
}
