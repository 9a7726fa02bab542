//! Stores that a snapshot must cope with: one that fails, one that waits, one whose records expire.
//!
//! Each is an obvious store with something before it. They promise what that store promises, but for the one
//! thing, and know nothing of snapshots.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use azekura::engine::{
    Bookmark, Damaged, DecideMany, Expiring, Promise, Stats, Visit, VisitWithTimeLeft,
};
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::testkit::ModelDb;
use azekura::{Edit, Engine, Error, Kind, Reader, Result};

/// What each leaves to the store it has: all of `Reader` but the scan.
macro_rules! reads_through {
    () => {
        fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
            self.0.read(key, visit)
        }
        fn count(&self) -> u64 {
            self.0.count()
        }
        fn stats(&self) -> Stats {
            self.0.stats()
        }
        fn promise(&self) -> Promise {
            self.0.promise()
        }
    };
}

/// A store that has room for so many puts; when it has none, it cannot be scanned either.
pub(crate) struct Failing(pub(crate) StdTreeDb, pub(crate) AtomicU64);

impl Reader for Failing {
    reads_through!();
    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        if self.1.load(Ordering::Relaxed) == 0 {
            return Err(Error::new(Kind::Corrupted, "a record is damaged"));
        }
        self.0.scan_past(from, visit, damaged)
    }
    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        self.0.bookmark_at(key)
    }
}

impl Engine for Failing {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        let one_less = |left: u64| left.checked_sub(1);
        let order = Ordering::Relaxed;
        match self.1.fetch_update(order, order, one_less) {
            Ok(_) => self.0.update(key, decide),
            Err(_) => Err(Error::new(Kind::Full, "no more room")),
        }
    }
    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        self.0.update_many(keys, decide)
    }
    fn clear(&self) -> Result<()> {
        self.0.clear()
    }
}

/// A store that scans when it was told to, by a bookmark asked for.
pub(crate) struct Slow(pub(crate) StdTreeDb, pub(crate) AtomicBool);

impl Reader for Slow {
    reads_through!();
    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        while !self.1.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        self.0.scan_past(from, visit, damaged)
    }
    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        self.1.store(true, Ordering::Release);
        self.0.bookmark_at(key)
    }
}

/// A store whose records have a time to live: what their values begin with, in milliseconds; 0: none.
pub(crate) struct Timed(pub(crate) ModelDb);

impl Timed {
    pub(crate) fn left(value: &[u8]) -> Option<Duration> {
        let (front, _) = value.split_first_chunk::<8>().expect("a time");
        let ms = Some(u64::from_le_bytes(*front)).filter(|ms| *ms > 0);
        ms.map(Duration::from_millis)
    }
}

impl Reader for Timed {
    reads_through!();
    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        self.0.scan_past(from, visit, damaged)
    }
    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        self.0.bookmark_at(key)
    }
    fn as_expiring(&self) -> Option<&dyn Expiring> {
        Some(self)
    }
}

impl Engine for Timed {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.0.update(key, decide)
    }
    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        self.0.update_many(keys, decide)
    }
    fn clear(&self) -> Result<()> {
        self.0.clear()
    }
}

impl Expiring for Timed {
    fn put_for(&self, key: &[u8], value: &[u8], time: Duration) -> Result<()> {
        let ms = time.as_millis() as u64;
        let mut timed = ms.to_le_bytes().to_vec();
        timed.extend_from_slice(&value[8..]);
        self.0.update(key, &mut |_| Edit::put(&timed))
    }
    fn scan_with_time_left(
        &self,
        from: Option<&Bookmark>,
        visit: &mut VisitWithTimeLeft<'_>,
    ) -> Result<Option<Bookmark>> {
        self.0
            .scan(from, &mut |key, value| visit(key, value, Self::left(value)))
    }
}
