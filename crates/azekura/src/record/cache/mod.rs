//! A cache: a hash in memory that stays within its bounds by dropping what is least likely to be read again.
//!
//! Promises:
//! 1. When a call returns, there are no more records and no more bytes than it may hold, both exactly, whatever came: new
//!    records, longer values, a smaller size. Until they return, n calls that put at once may have put n records more.
//!    Its memory - blocks of records, whole or not, the index, the queues - is at most an eighth and 8 MiB more than the bytes it
//!    may hold, but for what puts under way add; what is removed goes back to the system when [`CacheDb::give_back`] comes by.
//! 2. What it lends of a key is the last value put under it, or nothing. What it dropped does not come back.
//! 3. A lookup costs two cache misses, one in the index and one in the record; an absent key costs one. Reads take no lock, and
//!    store one bit in the record, if it is not set yet.
//! 4. A record may be given a time to live. Once that is over, no read, update or scan finds it; its room is used again when
//!    it would be dropped, or when updates have come by, which look at one record or two each as long as any has such a
//!    time. Until then it counts.
//! 5. A record of 8 and 8 bytes takes 18 bytes, 5 in a queue and its share of the index, 10 to 14. Room is used again as in
//!    `memory::tiny`, to which it is the sister. Nothing survives the process.
//!
//! ```text
//!   new key -----> small: a tenth ---- asked for again? yes --> main: the rest --- asked for again? yes --.
//!      |                                  | no                   ^  |        ^                            |
//!      |                                  v                      |  | no     `---------- one more lap ----'
//!      |            dropped, its hash remembered for a while     |  v
//!      `--- remembered? -----------------------------------------'  dropped
//! ```
//!
//! The policy (`policy`) is the one of S3-FIFO (Yang et al. 2023): first in, first out, in two queues. A long scan passes
//! through the small one and leaves what is in use alone. Queues hold hashes, not places: a record is found from there
//! by the index, so overwriting it, removing it and moving it do not touch them.
//!
//! Invariants:
//! 1. Of each hash (its known bits), there are at least as many entries in queues, or in the hands of a thread that looks
//!    at one, as records. So every record can be dropped. Entries that are more than that are sifted out when they are
//!    three in four.
//! 2. An entry points to a whole record; a place is freed by who took its entry away, under the bucket's lock, once.
//! 3. Records and bytes are counted under the bucket's lock. A thread that exceeds a bound drops some before it returns, or
//!    another thread holds what could be dropped and does.
//!
//! Lock order: the gate, the slab's walk, the index's, the policy's, a thread cache of the slab. No file, no thread of its own.

mod clock;
mod evict;
mod met;
mod policy;
mod update;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::{
    Bookmark, Damaged, DecideMany, Edit, Engine, Expiring, Promise, Reader, Stats, Visit,
    VisitWithTimeLeft,
};
use crate::epoch::{self, Pin};
use crate::error::{Error, Kind, Result, size};
use crate::explore::{self, Mutex};
use crate::index::hash::Hash;
use crate::record::gate::{self, Gate};
use crate::record::scan::{self, Lend};
use crate::record::table::{LIMITS, Table};
use crate::room;
use crate::slab::{Record, Slab};

pub use clock::Clock;
use evict::Sweep;
use policy::Policy;
pub use update::Timed;

/// What a record is charged in addition to its slot: for its share of the index and of the queues.
pub const CHARGE: u64 = 16;
/// What the shortest record is charged.
const CHARGE_MIN: u64 = 16 + CHARGE;

/// Why the cache dropped a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There were too many records or bytes.
    Capacity,
    /// Its time to live was over.
    Expired,
}

/// Called with each record that was dropped: key, value, reason.
///
/// It is called by the thread that dropped the record, after it can no longer be found, with no lock held. It must not
/// call the cache, and should be short: it delays the call it is made from and the reuse of memory.
pub type Dropped = Arc<dyn Fn(&[u8], &[u8], Reason) + Send + Sync>;

/// How a cache is made.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// Records it may hold, at least 1. `None`: as many as bytes allow.
    pub records_max: Option<u64>,
    /// Bytes it may hold, at least 32. A record is charged its slot, which is its lengths and 2 bytes or more, rounded
    /// up, and [`CHARGE`]. `None`: as many as records allow.
    pub bytes_max: Option<u64>,
    /// Called with each record that is dropped.
    pub dropped: Option<Dropped>,
    /// The clock of times to live. It is read for records that have one only.
    pub clock: Clock,
}

setters! {
    Options {
        records_max: impl Into<Option<u64>>,
        bytes_max: impl Into<Option<u64>>,
        dropped: Dropped,
        clock: Clock,
    }
}

impl Default for Options {
    /// 1,048,576 records, of any length; the system's clock.
    fn default() -> Self {
        Self {
            records_max: Some(1 << 20),
            bytes_max: None,
            dropped: None,
            clock: Clock::default(),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("records_max", &self.records_max)
            .field("bytes_max", &self.bytes_max)
            .finish_non_exhaustive()
    }
}

/// A cache in memory. See the module's text.
pub struct CacheDb {
    table: Table,
    /// Lets updates pass; closed while everything is removed.
    gate: Gate,
    held: Held,
    policy: Policy,
    /// Puts with a time to live so far.
    timed: AtomicU64,
    sweep: Mutex<Sweep>,
    /// Held while both bounds change.
    resizing: Mutex<()>,
    /// Held by who makes room in memory.
    making_room: Mutex<()>,
    dropped: Option<Dropped>,
    clock: Clock,
}

/// What there is, and what there may be.
#[repr(align(128))]
struct Held {
    records: AtomicU64,
    bytes: AtomicU64,
    records_max: AtomicU64,
    bytes_max: AtomicU64,
}

impl Held {
    #[inline(always)]
    fn is_over(&self) -> bool {
        explore::yield_point();
        self.records.load(Ordering::Relaxed) > self.records_max.load(Ordering::Relaxed)
            || self.bytes.load(Ordering::Relaxed) > self.bytes_max.load(Ordering::Relaxed)
    }

    /// One record of so many bytes more.
    #[inline(always)]
    fn add(&self, bytes: u64) {
        explore::yield_point();
        self.records.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// One record of so many bytes less.
    #[inline(always)]
    fn take(&self, bytes: u64) {
        explore::yield_point();
        self.records.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// One of so many bytes became one of so many.
    #[inline(always)]
    fn change(&self, from: u64, to: u64) {
        if from != to {
            self.bytes
                .fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
        }
    }
}

/// What a record is charged.
#[inline(always)]
fn charge(key_len: usize, value_len: usize, expires: bool) -> u64 {
    Slab::bytes_of(key_len, value_len, expires) + CHARGE
}

#[inline(always)]
fn charge_of(record: &Record<'_>) -> u64 {
    charge(
        record.key.len(),
        record.value.len(),
        record.expires.is_some(),
    )
}

impl std::fmt::Debug for CacheDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheDb")
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

impl CacheDb {
    /// An empty cache of so many records. `Invalid` for none.
    pub fn new(records_max: u64) -> Result<Self> {
        Self::with(&Options {
            records_max: Some(records_max),
            ..Options::default()
        })
    }

    /// An empty cache. `Invalid` if it has no bound, or one that no record fits in; `Io` if the system refuses the addresses.
    pub fn with(options: &Options) -> Result<Self> {
        let (records_max, bytes_max) = bounds(options.records_max, options.bytes_max)?;
        let table = Table::for_bytes(bytes_max)?;
        let db = Self {
            gate: Gate::new(table.domain().clone()),
            table,
            held: Held {
                records: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
                records_max: AtomicU64::new(records_max),
                bytes_max: AtomicU64::new(bytes_max),
            },
            policy: Policy::default(),
            timed: AtomicU64::new(0),
            sweep: Mutex::default(),
            resizing: Mutex::default(),
            making_room: Mutex::default(),
            dropped: options.dropped.clone(),
            clock: options.clock.clone(),
        };
        db.set_goal();
        Ok(db)
    }

    /// Gives it other bounds while it serves; returns when it is within them. `Invalid` as for [`with`](Self::with).
    pub fn resize(&self, records_max: Option<u64>, bytes_max: Option<u64>) -> Result<()> {
        let (records_max, bytes_max) = bounds(records_max, bytes_max)?;
        let inside = self.gate.enter();
        let resizing = self.resizing.lock();
        self.held.records_max.store(records_max, Ordering::Relaxed);
        self.held.bytes_max.store(bytes_max, Ordering::Relaxed);
        drop(resizing);
        // A put that has not seen the new bounds is seen here.
        epoch::heavy_barrier();
        self.keep_within_limit(&self.table.pin());
        drop(inside);
        self.set_goal();
        self.give_back();
        Ok(())
    }

    /// The value of `key`, copied. `Full` if there is no memory for it.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read_with(key, |value| value.map(room::copy).transpose())?
    }

    /// Lends the value of `key`, or its absence, to `visit`: no copy, no lock.
    #[inline]
    pub fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let hash = self.table.hash(key);
        let pin = self.table.pin();
        self.read_hashed(&pin, key, hash, visit)
    }

    /// How long `key` has left: `None` if it is absent, `Some(None)` if it has no such time.
    pub fn time_left(&self, key: &[u8]) -> Result<Option<Option<Duration>>> {
        let pin = self.table.pin();
        let found = self.table.find(&pin, key, self.table.hash(key))?;
        let live = found.filter(|record| self.is_live(record));
        Ok(live.map(|record| record.expires.map(|tick| self.clock.left(tick))))
    }

    /// As [`scan`](Reader::scan), with the time each record has left, if it has one. It does not count as asking for
    /// the records.
    pub fn scan_timed(
        &self,
        from: Option<&Bookmark>,
        visit: &mut VisitWithTimeLeft<'_>,
    ) -> Result<Option<Bookmark>> {
        let expires: Cell<Option<u32>> = Cell::new(None);
        let show = |record: &Record<'_>, lent: &mut Lend<'_>| {
            if !self.is_live(record) {
                return Ok(());
            }
            expires.set(record.expires);
            lent(record.key, record.value)
        };
        self.table.scan(from, &show, &mut |key, value| {
            visit(key, value, expires.get().map(|tick| self.clock.left(tick)))
        })
    }

    #[inline(always)]
    fn read_hashed<R>(
        &self,
        pin: &Pin,
        key: &[u8],
        hash: Hash,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let found = self.table.find(pin, key, hash)?;
        match found {
            Some(record) if self.is_live(&record) => {
                record.see();
                Ok(visit(Some(record.value)))
            }
            _ => Ok(visit(None)),
        }
    }

    /// Whether its time is not over.
    #[inline(always)]
    fn is_live(&self, record: &Record<'_>) -> bool {
        record
            .expires
            .is_none_or(|tick| !self.clock.has_passed(tick))
    }
}

/// The bounds as numbers.
fn bounds(records_max: Option<u64>, bytes_max: Option<u64>) -> Result<(u64, u64)> {
    if records_max.is_none() && bytes_max.is_none() {
        return Err(
            Error::new(Kind::Invalid, "a cache without a bound is not a cache")
                .remedy("state how many records or bytes it may hold"),
        );
    }
    if records_max == Some(0) {
        return Err(Error::new(Kind::Invalid, "a cache for no record").found(0, "at least 1"));
    }
    if let Some(bytes) = bytes_max.filter(|bytes| *bytes < CHARGE_MIN) {
        return Err(
            Error::new(Kind::Invalid, "a cache too small for any record")
                .found(size(bytes), format!("at least {CHARGE_MIN} bytes")),
        );
    }
    Ok((
        records_max.unwrap_or(u64::MAX),
        bytes_max.unwrap_or(u64::MAX),
    ))
}

impl Reader for CacheDb {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.read_with(key, visit)
    }

    fn read_many(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.table.in_groups(keys, |pin, index, key, hash| {
            self.read_hashed(pin, key, hash, |value| visit(index, value))
        })
    }

    fn prefetch_keys(&self, keys: &[&[u8]]) {
        self.table.prefetch_keys(keys);
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        _: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        self.scan_timed(from, &mut |key, value, _| visit(key, value))
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        scan::bookmark(self.table.hash(key), key)
    }

    fn count(&self) -> u64 {
        self.held.records.load(Ordering::Relaxed)
    }

    /// `live_bytes` is what the records are charged, and bounded.
    fn stats(&self) -> Stats {
        let (records, index) = (
            self.table.slab.memory_bytes(),
            self.table.index.memory_bytes(),
        );
        let queues = self.policy.memory_bytes();
        let bound = |bound: &AtomicU64| match bound.load(Ordering::Relaxed) {
            u64::MAX => "none".to_owned(),
            bound => bound.to_string(),
        };
        Stats {
            count: self.count(),
            live_bytes: self.held.bytes.load(Ordering::Relaxed),
            file_bytes: 0,
            memory_bytes: records + index + queues,
            more: vec![
                ("records_max", bound(&self.held.records_max)),
                ("bytes_max", bound(&self.held.bytes_max)),
                ("record_memory_bytes", records.to_string()),
                ("index_memory_bytes", index.to_string()),
                ("queue_memory_bytes", queues.to_string()),
            ],
        }
    }

    fn promise(&self) -> Promise {
        Promise {
            engine: "cache",
            evicts: true,
            durability: None,
            update_many_is_crash_atomic: false,
            key_len_max: LIMITS.key,
            value_len_max: LIMITS.value,
        }
    }

    fn as_expiring(&self) -> Option<&dyn Expiring> {
        Some(self)
    }
}

impl Expiring for CacheDb {
    fn put_for(&self, key: &[u8], value: &[u8], time: Duration) -> Result<()> {
        self.put_for(key, value, time)
    }

    fn scan_with_time_left(
        &self,
        from: Option<&Bookmark>,
        visit: &mut VisitWithTimeLeft<'_>,
    ) -> Result<Option<Bookmark>> {
        self.scan_timed(from, visit)
    }
}

impl Engine for CacheDb {
    /// Whatever time to live the record had, it has none afterwards, if it is put. A record that is too large for the
    /// cache is `TooLarge`.
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        let edited = self.edit(key, |present| {
            (decide(present.map(|(value, _)| value)), None)
        });
        // What was replaced and dropped was kept by the pin of this update.
        self.keep_within_memory();
        edited
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        let edited = self.edit_many(keys, decide);
        self.keep_within_memory();
        edited
    }

    fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        // Each makes room for itself, with nothing pinned.
        self.table
            .in_groups_unpinned(records, |(key, value), hash| {
                self.put_hashed(key, hash, value, None)
            })?;
        self.keep_within_memory();
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        gate::outside_updates()?;
        self.remove_all()
    }
}

#[cfg(test)]
mod tests;
