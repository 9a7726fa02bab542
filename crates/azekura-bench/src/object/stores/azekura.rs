//! azekura's object store, in a file, past the page cache where the file system allows it.
//!
//! Class `power` waits for the device with every change; `process` writes it and leaves the flush to the end;
//! `buffered` is `process` with a sync after every 4096 changes and one, the interval at which `CannyLS` syncs its
//! journal by default. All else is default, but that with `--fill` all of the file is written when it is
//! made. It knows nothing of how the store works.

use std::io::Read;
use std::sync::atomic::Ordering;

use azekura::engine::Durability;
use azekura::error::Result;
use azekura::object::{CreateOptions, ObjectId, Store};

use crate::measure::Counters;
use crate::object::store::{Draft, Found, Objects, Setup};
use crate::phase::Class;

/// Changes between two syncs in the class `buffered`.
const INTERVAL: u64 = 4096;

struct Azekura(Store);

/// Values shorter than this are small, and have a journal of their own length.
const SMALL: u64 = 4096;
const JOURNAL_MIN: u64 = 64 << 20;
/// Bytes of journal for a small object: twice its entry in the index, and some.
const JOURNAL_LEN: u64 = 72;

/// Opens or makes the store. Errors: those of [`Store::create`] and [`Store::open`], and `Invalid` for the class
/// `none`.
pub fn open(setup: &Setup) -> Result<Box<dyn Objects>> {
    let path = setup.require_path()?;
    let offered = [Class::Buffered, Class::Process, Class::Power];
    let class = setup.require_class("azekura", &offered)?;
    let power = class == Class::Power;
    let options = CreateOptions::new()
        .capacity(setup.capacity.next_multiple_of(1 << 20))
        .fill(setup.fill)
        .durability(if power {
            Durability::Power
        } else {
            Durability::Process
        })
        .sync_every((class == Class::Buffered).then_some(INTERVAL))
        // Small values are many: their entries need more than the part of the store that is set aside otherwise.
        .journal_size(
            (setup.value_size < SMALL)
                .then(|| JOURNAL_MIN + setup.objects * JOURNAL_LEN)
                .map(|size| size.next_multiple_of(1 << 20)),
        );
    let store = if setup.create {
        Store::create(path, &options)?
    } else {
        Store::open(path, &options.opening)?
    };
    Ok(Box::new(Azekura(store)))
}

struct Drafted<'s>(&'s Store, azekura::object::Draft);

impl Draft for Drafted<'_> {
    fn fill(&mut self, from: &mut dyn Read) -> Result<()> {
        self.1.fill_from(from)
    }
    fn put(self: Box<Self>, id: u128) -> Result<Option<bool>> {
        let stored = self.0.put_draft(ObjectId(id), self.1)?;
        Ok(Some(stored.replaced))
    }
}

impl Objects for Azekura {
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
        let stored = self.0.put(ObjectId(id), value)?;
        Ok(Some(stored.replaced))
    }
    fn draft(&self, len: u64) -> Result<Option<Box<dyn Draft + '_>>> {
        let draft = self.0.draft(len)?;
        Ok(Some(Box::new(Drafted(&self.0, draft))))
    }
    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        let found = self.0.get(ObjectId(id))?;
        Ok(found.map(|value| Box::new(value) as Found<'_>))
    }
    fn remove(&self, id: u128) -> Result<Option<bool>> {
        self.0.remove(ObjectId(id)).map(Some)
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.0.close()
    }
    fn counters(&self) -> Option<Counters> {
        let counts = self.0.accesses();
        Some(Counters {
            reads: counts.reads.load(Ordering::Relaxed),
            writes: counts.writes.load(Ordering::Relaxed),
            syncs: counts.syncs.load(Ordering::Relaxed),
        })
    }
}
