//! Appends to the journal, and when they happen.
//!
//! A put that ended is certified by its extent, so its record may be deferred: many are appended together, at the latest before the
//! flush of a sync. So a synced put is recorded: if its extent is damaged later that is an error, never an older value or absence.
//! Every other record is appended at once. The records of one object may therefore stand in another order than its changes; their
//! sequences state which is later.
//!
//! Each batch ends with a `LowWater` record: a put below it needs no scan.

pub(crate) mod dump;
pub(crate) mod record;

use crate::error::{Error, Kind, Result, size};
use crate::format::frame::FrameKind;
use crate::log::segment::REMEDY;
use crate::log::{Address, AllocationClass, Entry};
use crate::object::Core;
use crate::object::journal::record::Record;

/// Most records of puts that are deferred.
const BATCH: usize = 256;
/// Most bytes that one takes in the journal.
const WAITING_LEN: u64 = 64;

/// Records of puts that ended, not appended yet.
#[derive(Debug, Default)]
pub(super) struct Batch {
    records: Vec<Record>,
    /// A sync found no space in the journal for them.
    is_refused: bool,
}

impl Core {
    /// Appends a record. `Full` if there is no space for this class.
    pub(super) fn append_record(&self, record: &Record, class: AllocationClass) -> Result<()> {
        let (kind, key, value) = record.encode();
        self.append_frame(kind, &key, &value, class).map(|_| ())
    }

    /// As `append_record`, of a frame; returns its address.
    pub(super) fn append_frame(
        &self,
        kind: FrameKind,
        key: &[u8],
        value: &[u8],
        class: AllocationClass,
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
        let appended = self.log.append(&mark, &entry, class);
        Ok(appended.map_err(|error| self.of_journal(error))?.address)
    }

    /// `Full` if the journal has no space for this class.
    pub(super) fn admit(&self, class: AllocationClass) -> Result<()> {
        self.log
            .admit(class, 0)
            .map_err(|error| self.of_journal(error))
    }

    /// Turns the log's error of a full log into one of a full journal.
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

    /// Defers a record to the next batch, and appends the batch if it is full. The caller holds the gate.
    pub(super) fn defer_record(&self, record: Record) -> Result<()> {
        let mut batch = self.batch.lock();
        batch.records.push(record);
        let segment_holds = self.log.geometry().segment_size() / WAITING_LEN;
        if batch.records.len() >= BATCH.min(segment_holds as usize) {
            // Each put asked for journal space when it began, so the batch is not refused now.
            self.append_batch(&mut batch, AllocationClass::Removal)?;
        }
        Ok(())
    }

    /// Whether records are deferred.
    pub(super) fn has_deferred(&self) -> bool {
        !self.batch.lock().records.is_empty()
    }

    /// Appends all deferred records.
    pub(super) fn flush_batch(&self, class: AllocationClass) -> Result<()> {
        let mut batch = self.batch.lock();
        if batch.records.is_empty() {
            return Ok(());
        }
        self.append_batch(&mut batch, class)
    }

    /// Appends all deferred records, before a flush makes them durable. Where the journal has no space they stay deferred, and
    /// [`Core::sync_all`] makes a checkpoint of them.
    pub(super) fn flush_batch_before_sync(&self) -> Result<()> {
        let _inside = self.gate.read();
        let mut batch = self.batch.lock();
        if batch.records.is_empty() {
            return Ok(());
        }
        match self.append_batch(&mut batch, AllocationClass::Removal) {
            Err(error) if error.kind() == Kind::Full => {
                batch.is_refused = true;
                Ok(())
            }
            other => other,
        }
    }

    /// A sync after which every put that ended before is recorded durably. Not for checkpoints, which do the same.
    pub(super) fn sync_all(&self) -> Result<()> {
        self.sync()?;
        let is_refused = self.batch.lock().is_refused;
        if is_refused
            && let Err(error) = self.make_checkpoint()
            // The extents are durable, and certify the puts until there is space.
            && error.kind() != Kind::Full
        {
            return Err(error);
        }
        Ok(())
    }

    fn append_batch(&self, batch: &mut Batch, class: AllocationClass) -> Result<()> {
        self.keep_for_checkpoint(0);
        // A put that ended before is in the batch already.
        let low_water = self.allocator.lock().low_water();
        let mut appended = 0;
        for record in &batch.records {
            match self.append_record(record, class) {
                Ok(()) => appended += 1,
                Err(error) => {
                    batch.records.drain(..appended);
                    return Err(error);
                }
            }
        }
        batch.records.clear();
        batch.is_refused = false;
        self.append_record(&Record::LowWater(low_water), class)?;
        self.allocator.lock().space.advance_low_water(low_water);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    use crate::object::checkpoint::tests::in_memory;
    use crate::object::{Change, CreateOptions, ObjectId, Store};

    const COUNT: u128 = 1500;

    /// Removes all objects of a store whose journal is full, while another thread is pinned, by `remove`, which is given the
    /// number of the object. The thread lets go when no removal has ended for some time.
    fn removed_during_a_read(remove: &(dyn Fn(&Store, u128) + Sync)) {
        let options = CreateOptions::new()
            .capacity(8 << 20)
            .journal_size(512 << 10)
            .background(false);
        let (_, store) = in_memory(&options);
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
        removed_during_a_read(&|store, n| assert!(store.remove(ObjectId(n)).unwrap()));
        removed_during_a_read(&|store, n| {
            let removed = store.remove_range(ObjectId(n)..=ObjectId(n));
            assert_eq!(removed.unwrap(), 1);
        });
        removed_during_a_read(&|store, n| {
            store.apply(&[Change::Remove(ObjectId(n))]).unwrap();
        });
    }
}
