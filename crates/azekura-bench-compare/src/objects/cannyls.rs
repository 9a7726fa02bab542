//! `CannyLS`: its storage called directly, and through the thread of its device.
//!
//! Class `buffered` is its default: records of its journal are written and synced after 4096 changes.
//! `power` is an interval of 0, each change with a sync of its own, which the published benchmark calls sync.
//! A put copies the value to aligned memory with its own call for that, inside the timed time, as the published
//! tool does; a get hands over the aligned memory it was read to. All else is default: a hundredth of the
//! file for the journal, blocks of 512 bytes, `O_DIRECT`. Threads take turns at a lock, as it has none.
//!
//! Reads, writes and syncs are counted where it passes them to its file, each as it requests it.
//!
//! Through the device the answer is polled, without the pauses of 100 us that the
//! published figures contain: for 100 us, then every 50.

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use azekura::error::Result;
use azekura_bench::measure::{Counters, Counting};
use azekura_bench::object::store::{Draft, Found, Objects, Setup};
use azekura_bench::phase::Class;
use cannyls::block::BlockSize;
use cannyls::deadline::Deadline;
use cannyls::device::{Device, DeviceBuilder, DeviceHandle};
use cannyls::lump::{LumpData, LumpId};
use cannyls::nvm::{FileNvm, NonVolatileMemory};
use cannyls::storage::{Storage, StorageBuilder};
use futures::{Async, Future};

use crate::rivals::Called as _;

/// Changes between two syncs of the journal, by default.
const INTERVAL: usize = 4096;
/// An id that no workload has: its keys are text.
const UNUSED: u128 = 0;

/// Its file, counted; the parts it is split into count together.
struct Counted {
    file: FileNvm,
    asked: Arc<Counting>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.asked.read();
        self.file.read(buf)
    }
}

impl Write for Counted {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.asked.write();
        self.file.write(buf)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.file.seek(to)
    }
}

impl NonVolatileMemory for Counted {
    fn sync(&mut self) -> cannyls::Result<()> {
        self.asked.sync();
        self.file.sync()
    }
    fn position(&self) -> u64 {
        self.file.position()
    }
    fn capacity(&self) -> u64 {
        self.file.capacity()
    }
    fn block_size(&self) -> BlockSize {
        self.file.block_size()
    }
    fn split(self, position: u64) -> cannyls::Result<(Self, Self)> {
        let asked = self.asked;
        let (first, second) = self.file.split(position)?;
        let of = |file, asked| Self { file, asked };
        Ok((of(first, Arc::clone(&asked)), of(second, asked)))
    }
}

type Direct = Storage<Counted>;

/// What opens the storage, and what is counted of it.
type Ready<F> = (F, Arc<Counting>);

fn storage(setup: &Setup) -> Result<Ready<impl FnOnce() -> cannyls::Result<Direct> + use<>>> {
    let path = setup.require_path()?.clone();
    let class = setup.require_class("cannyls", &[Class::Buffered, Class::Power])?;
    let (create, capacity) = (setup.create, setup.capacity);
    let interval = if class == Class::Power { 0 } else { INTERVAL };
    let asked = Arc::<Counting>::default();
    let counted = Arc::clone(&asked);
    let opened = move || {
        let asked = counted;
        let mut builder = StorageBuilder::new();
        builder.journal_sync_interval(interval);
        if create {
            let file = FileNvm::create(path, capacity)?;
            builder.create(Counted { file, asked })
        } else {
            let file = FileNvm::open(path)?;
            builder.open(Counted { file, asked })
        }
    };
    Ok((opened, asked))
}

struct Cannyls {
    storage: Mutex<Direct>,
    asked: Arc<Counting>,
}

/// Opens or makes a storage, to be called directly.
pub(super) fn open(setup: &Setup) -> Result<Box<dyn Objects>> {
    let (opened, asked) = storage(setup)?;
    let storage = Mutex::new(opened().or_failed("open")?);
    Ok(Box::new(Cannyls { storage, asked }))
}

/// Its own aligned memory, and where it goes.
struct Drafted<'s>(&'s Cannyls, LumpData);

impl Draft for Drafted<'_> {
    fn fill(&mut self, from: &mut dyn Read) -> Result<()> {
        let filled = from.read_exact(self.1.as_bytes_mut());
        filled.or_failed("fill")
    }
    fn put(self: Box<Self>, id: u128) -> Result<Option<bool>> {
        let new = self.0.storage().put(&LumpId::new(id), &self.1);
        Ok(Some(!new.or_failed("put")?))
    }
}

impl Cannyls {
    fn storage(&self) -> MutexGuard<'_, Direct> {
        self.storage
            .lock()
            .expect("no thread panics in the storage")
    }
}

impl Objects for Cannyls {
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
        let mut storage = self.storage();
        let data = storage.allocate_lump_data_with_bytes(value);
        let data = data.or_failed("allocate")?;
        let new = storage.put(&LumpId::new(id), &data);
        Ok(Some(!new.or_failed("put")?))
    }
    fn draft(&self, len: u64) -> Result<Option<Box<dyn Draft + '_>>> {
        let data = self.storage().allocate_lump_data(len as usize);
        let data = data.or_failed("allocate")?;
        Ok(Some(Box::new(Drafted(self, data))))
    }
    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        let found = self.storage().get(&LumpId::new(id));
        let found = found.or_failed("get")?;
        Ok(found.map(|data| Box::new(data) as Found<'_>))
    }
    fn remove(&self, id: u128) -> Result<Option<bool>> {
        let removed = self.storage().delete(&LumpId::new(id));
        removed.map(Some).or_failed("delete")
    }
    fn sync(&self) -> Result<()> {
        let synced = self.storage().journal_sync();
        synced.or_failed("sync")
    }
    fn counters(&self) -> Option<Counters> {
        Some(self.asked.counters())
    }
}

struct Queued {
    /// In a lock, since its completion is not for many threads.
    device: Mutex<Device>,
    handle: DeviceHandle,
    asked: Arc<Counting>,
}

/// Opens or makes a storage in a thread of its own.
pub(super) fn open_device(setup: &Setup) -> Result<Box<dyn Objects>> {
    let (opened, asked) = storage(setup)?;
    let device = DeviceBuilder::new().spawn(opened);
    let handle = device.handle();
    wait(
        handle
            .request()
            .wait_for_running()
            .head(LumpId::new(UNUSED)),
        "open",
    )?;
    Ok(Box::new(Queued {
        device: Mutex::new(device),
        handle,
        asked,
    }))
}

/// Asks for the answer until it is there.
fn wait<F: Future<Error = cannyls::Error>>(mut answer: F, what: &str) -> Result<F::Item> {
    const AT_ONCE: Duration = Duration::from_micros(100);
    const PAUSE: Duration = Duration::from_micros(50);
    let start = Instant::now();
    loop {
        match answer.poll().or_failed(what)? {
            Async::Ready(found) => return Ok(found),
            Async::NotReady if start.elapsed() < AT_ONCE => thread::yield_now(),
            Async::NotReady => thread::sleep(PAUSE),
        }
    }
}

impl Objects for Queued {
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
        let data = self.handle.allocate_lump_data_with_bytes(value);
        let data = data.or_failed("allocate")?;
        let new = wait(self.handle.request().put(LumpId::new(id), data), "put")?;
        Ok(Some(!new))
    }
    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        let found = wait(self.handle.request().get(LumpId::new(id)), "get")?;
        Ok(found.map(|data| Box::new(data) as Found<'_>))
    }
    fn remove(&self, id: u128) -> Result<Option<bool>> {
        wait(self.handle.request().delete(LumpId::new(id)), "delete").map(Some)
    }
    fn sync(&self) -> Result<()> {
        // There is no call for it but the wish of a change, which is granted after its answer: so the
        // next answer is waited for.
        let unused = LumpId::new(UNUSED);
        wait(self.handle.request().journal_sync().delete(unused), "sync")?;
        wait(self.handle.request().head(unused), "sync").map(drop)
    }
    fn counters(&self) -> Option<Counters> {
        Some(self.asked.counters())
    }
    fn close(self: Box<Self>) -> Result<()> {
        let device = self.device.into_inner().expect("no thread panics with it");
        device.stop(Deadline::Infinity);
        wait(device, "close")
    }
}
