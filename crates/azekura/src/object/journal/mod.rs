//! What the journal is told, and when.
//!
//! A put that ended is certified by its extent, so its record may wait: many go to the journal together, at the latest before the
//! flush of a sync. What was synced so is in the journal: if its extent is damaged later that is an error, never an older value
//! or absence. Everything else is recorded at once. The records of one object may so stand in another order than
//! its changes; their sequences say which was later.
//!
//! After each batch stands a `Settled` note: what it says has ended needs no scan.

pub(crate) mod dump;
pub(crate) mod record;

use crate::error::{Error, Kind, Result, size};
use crate::format::frame::FrameKind;
use crate::log::segment::REMEDY;
use crate::log::{Address, Claim, Entry};
use crate::object::Core;
use crate::object::journal::record::Record;

/// Records of puts that wait, at most.
const BATCH: usize = 256;
/// Bytes that one takes in the journal, at most.
const WAITING_LEN: u64 = 64;

/// Puts that ended and that the journal does not know.
#[derive(Debug, Default)]
pub(super) struct Batch {
    records: Vec<Record>,
    /// A sync found no room in the journal for them.
    is_refused: bool,
}

impl Core {
    /// Tells the journal at once. `Full` if there is no room for this claim.
    pub(super) fn tell(&self, record: &Record, claim: Claim) -> Result<()> {
        let (kind, key, value) = record.encode();
        self.tell_frame(kind, &key, &value, claim).map(|_| ())
    }

    /// As `tell`, of a frame; where it is.
    pub(super) fn tell_frame(
        &self,
        kind: FrameKind,
        key: &[u8],
        value: &[u8],
        claim: Claim,
    ) -> Result<Address> {
        self.refuse_changes()?;
        let entry = Entry {
            kind,
            flags: 0,
            key,
            value,
        };
        let pin = self.log.pin();
        let mark = pin.critical_section();
        let appended = self.log.append(&mark, &entry, claim);
        Ok(appended.map_err(|error| self.of_journal(error))?.address)
    }

    /// Whether the journal has room for this claim. `Full` if not.
    pub(super) fn admit(&self, claim: Claim) -> Result<()> {
        self.log
            .admit(claim, 0)
            .map_err(|error| self.of_journal(error))
    }

    /// What the log says of a store that is full, of the journal: it is the only part that the log knows.
    #[cold]
    pub(super) fn of_journal(&self, error: Error) -> Error {
        if !error.has_remedy(REMEDY) {
            return error;
        }
        let mapped = self.log.map().capacity();
        let room = size(match self.devices {
            1 => mapped.min(self.data_offset),
            _ => mapped,
        });
        let objects = match self.index.count() {
            1 => "1 object".to_owned(),
            count => format!("{count} objects"),
        };
        Error::new(Kind::Full, "the journal is full")
            .at(self.log.storage().path())
            .detail(format!("{room} for {objects}"))
            .remedy("remove objects, or make a store with a larger journal: --journal-size")
    }

    /// Tells it with the next batch, or now if the batch is full. The caller has the gate.
    pub(super) fn tell_later(&self, record: Record) -> Result<()> {
        let mut batch = self.batch.lock();
        batch.records.push(record);
        let segment_holds = self.log.geometry().segment_size() / WAITING_LEN;
        if batch.records.len() >= BATCH.min(segment_holds as usize) {
            // Room for them was asked for when they began; what replaces what was there is not refused.
            self.tell_batch(&mut batch, Claim::Removal)?;
        }
        Ok(())
    }

    /// Whether there is something that the journal was not told.
    pub(super) fn has_waiting(&self) -> bool {
        !self.batch.lock().records.is_empty()
    }

    /// Tells all that waits.
    pub(super) fn tell_waiting(&self, claim: Claim) -> Result<()> {
        let mut batch = self.batch.lock();
        if batch.records.is_empty() {
            return Ok(());
        }
        self.tell_batch(&mut batch, claim)
    }

    /// Appends all records that wait, before a flush makes them durable. Where the journal has no room they wait on, and
    /// [`Core::sync_told`] makes a checkpoint of them.
    pub(super) fn tell_before_flush(&self) -> Result<()> {
        let _inside = self.gate.read();
        let mut batch = self.batch.lock();
        if batch.records.is_empty() {
            return Ok(());
        }
        match self.tell_batch(&mut batch, Claim::Removal) {
            Err(error) if error.kind() == Kind::Full => {
                batch.is_refused = true;
                Ok(())
            }
            other => other,
        }
    }

    /// A sync after which the journal knows all puts that ended before. Not for checkpoints, which do the same.
    pub(super) fn sync_told(&self) -> Result<()> {
        self.sync()?;
        let is_refused = self.batch.lock().is_refused;
        if is_refused
            && let Err(error) = self.make_checkpoint()
            // The extents are durable, and certify the puts until there is room.
            && error.kind() != Kind::Full
        {
            return Err(error);
        }
        Ok(())
    }

    fn tell_batch(&self, batch: &mut Batch, claim: Claim) -> Result<()> {
        self.keep_for_checkpoint(0);
        // Whatever has ended before was put into the batch before.
        let floor = self.room.lock().floor();
        let mut told = 0;
        for record in &batch.records {
            match self.tell(record, claim) {
                Ok(()) => told += 1,
                Err(error) => {
                    batch.records.drain(..told);
                    return Err(error);
                }
            }
        }
        batch.records.clear();
        batch.is_refused = false;
        self.tell(&Record::Settled(floor), claim)?;
        self.room.lock().space.settle(floor);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    use crate::io::Storage as _;
    use crate::io::memory::Memory;
    use crate::object::{Change, ObjectId, Options, Store};

    const COUNT: u128 = 1500;

    /// Removes all objects of a store whose journal is full, while another thread is pinned, by `remove`, which is given the
    /// number of the object. The thread lets go when no removal has ended for some time.
    fn removed_beside_a_reader(remove: &(dyn Fn(&Store, u128) + Sync)) {
        let options = Options {
            capacity: 8 << 20,
            journal_size: Some(512 << 10),
            background: false,
            ..Options::default()
        };
        let memory = Memory::new(16 << 20).unwrap();
        memory.resize(options.capacity).unwrap();
        let store = Store::create_on(memory, None, &options, &mut |_, _| ()).unwrap();
        let (is_pinned, is_full) = (AtomicBool::new(false), AtomicBool::new(false));
        let removals = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let pin = store.core.log.pin();
                is_pinned.store(true, Ordering::Release);
                let mut seen = None;
                while !is_full.load(Ordering::Acquire)
                    || seen != Some(removals.load(Ordering::Acquire))
                {
                    seen = Some(removals.load(Ordering::Acquire));
                    std::thread::sleep(Duration::from_millis(400));
                }
                drop(pin);
            });
            while !is_pinned.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for n in 0..COUNT {
                store.put(ObjectId(n), &[1; 30]).unwrap();
            }
            let mut version = 0;
            while !store.core.log.segments().is_full() {
                store.put(ObjectId(version % COUNT), &[2; 300]).unwrap();
                version += 1;
            }
            is_full.store(true, Ordering::Release);
            for n in 0..COUNT {
                remove(&store, n);
                removals.fetch_add(1, Ordering::Release);
            }
        });
        assert_eq!(store.count(), 0);
        store.put(ObjectId(0), &[3; 300]).unwrap();
        store.check_room().unwrap();
    }

    #[test]
    fn removals_wait_for_readers_of_what_a_checkpoint_freed() {
        removed_beside_a_reader(&|store, n| assert!(store.remove(ObjectId(n)).unwrap()));
        removed_beside_a_reader(&|store, n| {
            let end = Some(ObjectId(n + 1));
            assert_eq!(store.remove_range(ObjectId(n), end).unwrap(), 1);
        });
        removed_beside_a_reader(&|store, n| {
            store.apply(&[Change::Remove(ObjectId(n))]).unwrap();
        });
    }
}
