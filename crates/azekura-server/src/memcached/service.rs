//! What all connections share: the engine, the clock, the limits, the statistics, the passwords.
//!
//! The clock counts whole seconds, and stands still between two calls of [`Service::tick`]: the owner of the threads calls
//! it once a second or more often. Versions are given out here; two writes never get the same one, also after a
//! restart: counting begins at the time of the start, shifted by 24 bits, so it would take 8 million writes a second,
//! from start to restart, to catch up (or a clock that was set back).
//! It knows no sockets; what only their owner can report or do is [`Outside`].

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use azekura::engine::{Durability, Engine};
use azekura::error::Result;

use super::clock::system_time;
use super::passwords::Passwords;
use crate::memcached::command::sweep::{Sweeps, Swept};
use crate::memcached::operate::client_info::ClientInfo;
use crate::memcached::operate::clients::{ClientEntry, Clients, State};
use crate::memcached::operate::counters::Counters;
use crate::memcached::operate::errors::ErrorCounters;
use crate::memcached::operate::key_stats::KeyStats;
use crate::memcached::operate::latency::Latency;
use crate::memcached::operate::logins::Logins;
use crate::memcached::operate::watchers::Watchers;

/// How a service behaves. The defaults are memcached's.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches, each of its own command"
)]
pub struct Settings {
    /// Most bytes an item may take, counted as memcached counts: key and data, and 59 to 63 bytes more. 1 MiB.
    pub item_size_max: u64,
    /// Answers beyond so many bytes in one output wait until it was written. 256 KiB.
    pub output_max: usize,
    /// Whether every answer waits until what it acknowledges survives loss of power. No.
    pub power: bool,
    /// Whether `flush_all` is allowed. Yes.
    pub flush_enabled: bool,
    /// Whether `dump`, `dump_key`, `keys` and `watch` do. Yes.
    pub dump_enabled: bool,
    /// Whether `shutdown` does. No.
    pub shutdown_enabled: bool,
    /// Most bytes the engine may hold in memory or in its file; 0: any. For the figures only. 0.
    pub bytes_max: u64,
    /// Bytes a second that one `dump` may send if it does not state itself; 0: any. 0.
    pub dump_bytes_per_second: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            item_size_max: 1 << 20,
            output_max: 256 << 10,
            power: false,
            flush_enabled: true,
            dump_enabled: true,
            shutdown_enabled: false,
            bytes_max: 0,
            dump_bytes_per_second: 0,
        }
    }
}

/// What the owner of the sockets knows and does.
pub trait Outside: Send + Sync {
    /// Reports the statistics of a group: `""` for what `stats` shows (`threads`, `curr_connections`, `evictions`, ...),
    /// `"settings"`, `"items"` (of the one class), `"durability"`, `"recent"` (rates and times of the last second).
    fn figures(&self, group: &str, report: &mut dyn FnMut(&str, &str));

    /// A client requests that the server stop; `graceful`: after the connections have ended.
    fn shut_down(&self, graceful: bool);

    /// A client requests another limit of memory, in bytes. Returns whether it was granted.
    fn set_memory_limit(&self, bytes: u64) -> bool {
        let _ = bytes;
        false
    }

    /// A client requests that the certificate be read again. Returns whether there is one; the error is why it cannot be used.
    fn refresh_certificates(&self) -> Result<bool> {
        Ok(false)
    }
}

/// What all connections share. See the module's text.
pub struct Service {
    pub(in crate::memcached) engine: Arc<dyn Engine>,
    pub(in crate::memcached) settings: Settings,
    pub(in crate::memcached) counters: Counters,
    pub(in crate::memcached) latency: Latency,
    pub(in crate::memcached) errors: ErrorCounters,
    item_size_max: AtomicU64,
    /// Seconds since 1970.
    now: AtomicU32,
    pub(in crate::memcached) started: u32,
    /// The next version.
    versions: AtomicU64,
    /// When everything is to be removed; 0: never.
    flush_at: AtomicU32,
    passwords: RwLock<Option<Arc<Passwords>>>,
    has_passwords: AtomicBool,
    /// Whether the path led to something else than the file when it was last looked.
    is_displaced: AtomicBool,
    outside: OnceLock<Box<dyn Outside>>,
    pub(in crate::memcached) verbosity: AtomicU32,
    pub(in crate::memcached) key_stats: KeyStats,
    /// The removal of what is over.
    pub(in crate::memcached) sweeps: Sweeps,
    /// Failed logins.
    pub(in crate::memcached) logins: Logins,
    /// The connected clients.
    pub(in crate::memcached) clients: Arc<Clients>,
    /// The clients that watch.
    pub(crate) watchers: Arc<Watchers>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// A service over an engine. Its clock shows the system's time.
    pub fn new(engine: Arc<dyn Engine>, settings: Settings) -> Self {
        let now = system_time();
        Self {
            engine,
            item_size_max: AtomicU64::new(settings.item_size_max),
            settings,
            counters: Counters::default(),
            latency: Latency::default(),
            errors: ErrorCounters::default(),
            now: AtomicU32::new(now),
            started: now,
            versions: AtomicU64::new(u64::from(now) << 24 | 1),
            flush_at: AtomicU32::new(0),
            passwords: RwLock::new(None),
            has_passwords: AtomicBool::new(false),
            is_displaced: AtomicBool::new(false),
            outside: OnceLock::new(),
            verbosity: AtomicU32::new(0),
            key_stats: KeyStats::default(),
            sweeps: Sweeps::default(),
            logins: Logins::default(),
            clients: Arc::default(),
            watchers: Arc::default(),
        }
    }

    /// Whose records these are.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The figures.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Seconds since the start.
    pub fn uptime_s(&self) -> u64 {
        u64::from(self.now().saturating_sub(self.started))
    }

    /// How long requests took.
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    /// Shows a listener in `stats conns`, as long as what is returned is held.
    pub fn listener(&self, info: ClientInfo) -> ClientEntry {
        self.entry(info, State::Listening)
    }

    /// Shows a client there.
    pub(super) fn client(&self, info: ClientInfo) -> ClientEntry {
        self.entry(info, State::Read)
    }

    fn entry(&self, info: ClientInfo, state: State) -> ClientEntry {
        ClientEntry::new(&self.clients, &self.watchers, info, state, self.now())
    }

    /// The figures that only the owner of the sockets knows, as `stats` shows them.
    pub(crate) fn owner_figures(&self, report: &mut dyn FnMut(&str, &str)) {
        if let Some(outside) = self.outside() {
            outside.figures("", report);
        }
    }

    /// Logins that were refused since their address had failed too often.
    pub fn blocked_logins(&self) -> u64 {
        self.logins.blocked()
    }

    /// Why a packet failed.
    pub fn errors(&self) -> &ErrorCounters {
        &self.errors
    }

    /// Looks at the system's time, and does what was to be done by now (a delayed `flush_all`).
    pub fn tick(&self) -> Result<()> {
        self.set_time(system_time())
    }

    /// Sets the time, in seconds since 1970, instead of `tick`.
    pub fn set_time(&self, now: u32) -> Result<()> {
        self.now.store(now, Ordering::Relaxed);
        let at = self.flush_at.load(Ordering::Relaxed);
        // The thread that takes the delayed flush does it.
        let is_due = at != 0 && at <= now;
        if is_due
            && self
                .flush_at
                .compare_exchange(at, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            return self
                .clear_or_later(at)
                .inspect_err(|error| self.errors.note(error));
        }
        Ok(())
    }

    /// Removes everything; if that fails, the appointment stands again, unless there is a newer one.
    fn clear_or_later(&self, at: u32) -> Result<()> {
        self.engine.clear().inspect_err(|_| {
            let (old, new) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = self.flush_at.compare_exchange(0, at, old, new);
        })
    }

    /// The time, in seconds since 1970.
    #[inline]
    pub fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// Prefetches the keys of requests that were not served yet.
    pub(crate) fn prefetch(&self, keys: &[&[u8]]) {
        self.engine.prefetch_keys(keys);
    }

    /// Makes what was acknowledged before survive loss of power, if the engine has a file; shared by all that wait.
    pub fn sync(&self) -> Result<()> {
        match self.engine.as_persistent() {
            Some(file) => self.errors.seen(file.sync(Durability::Power)),
            None => Ok(()),
        }
    }

    /// Checks whether the file is still at its path, and logs when that changes. While it is not, the engine refuses
    /// updates: the next start would not find them.
    pub fn verify_path(&self) -> Result<()> {
        let Some(file) = self.engine.as_persistent() else {
            return Ok(());
        };
        let verified = file.verify_path();
        let was_displaced = self.is_displaced.swap(verified.is_err(), Ordering::Relaxed);
        match &verified {
            Err(error) if !was_displaced => {
                tracing::error!(%error, "the data file is not at its path: writes are refused, reads are served");
            }
            Ok(()) if was_displaced => {
                tracing::info!("the data file is at its path again: writes are served");
            }
            _ => {}
        }
        verified
    }

    /// Sets the users; `None`: no authentication. Authenticated connections stay so.
    pub fn set_passwords(&self, passwords: Option<Passwords>) {
        let is_some = passwords.is_some();
        let mut held = self
            .passwords
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *held = passwords.map(Arc::new);
        self.has_passwords.store(is_some, Ordering::Release);
    }

    /// Most bytes an item may take from now on; see [`Settings::item_size_max`].
    pub fn set_item_size_max(&self, bytes: u64) {
        self.item_size_max.store(bytes, Ordering::Relaxed);
    }

    /// Sets the owner of the sockets. The first one stays.
    pub fn set_outside(&self, outside: Box<dyn Outside>) {
        let _ = self.outside.set(outside);
    }

    pub(in crate::memcached) fn outside(&self) -> Option<&dyn Outside> {
        self.outside.get().map(AsRef::as_ref)
    }

    pub(in crate::memcached) fn item_size_max(&self) -> u64 {
        self.item_size_max.load(Ordering::Relaxed)
    }

    pub(in crate::memcached) fn has_passwords(&self) -> bool {
        self.has_passwords.load(Ordering::Acquire)
    }

    pub(in crate::memcached) fn admits(&self, user: &[u8], password: &[u8]) -> bool {
        let held = self
            .passwords
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        held.as_ref()
            .is_some_and(|table| table.admits(user, password))
    }

    /// Versions for the next so many writes.
    pub(in crate::memcached) fn versions(&self, count: u64) -> Range<u64> {
        let first = self.versions.fetch_add(count, Ordering::Relaxed);
        first..first.wrapping_add(count)
    }

    /// Removes everything, now (`at` is not after now) or then. A later call replaces an earlier one. An appointment does
    /// not outlast the process, and is tried again with each tick until it could be kept.
    pub(in crate::memcached) fn flush(&self, at: u32) -> Result<()> {
        if at > self.now() {
            self.flush_at.store(at, Ordering::Relaxed);
            return Ok(());
        }
        let before = self.flush_at.swap(0, Ordering::Relaxed);
        self.clear_or_later(before)
    }

    /// Sweeps as [`sweep`](Self::sweep) does, again and again while more than a quarter of what was examined had expired or
    /// a round was requested, and `goes_on`. Not at all while it is switched off.
    pub fn sweep_on(&self, records: u64, goes_on: &dyn Fn() -> bool) -> Result<Swept> {
        let mut all = Swept::default();
        loop {
            if !self.sweeps.is_on() {
                return Ok(all);
            }
            let swept = self.sweep(records)?;
            all.looked += swept.looked;
            all.removed += swept.removed;
            all.is_round |= swept.is_round;
            let is_calm = swept.removed * 4 <= swept.looked && !self.sweeps.is_hurried();
            if is_calm || !goes_on() {
                return Ok(all);
            }
        }
    }

    /// Items removed since their time was over.
    pub fn swept(&self) -> u64 {
        self.sweeps.removed()
    }

    /// Whether a round of the sweep was requested, and has not ended.
    pub fn is_sweep_asked(&self) -> bool {
        self.sweeps.is_hurried()
    }

    /// Looks at no more than `records` records and removes the items that have expired. Calls of several threads wait for
    /// one another. Costs a read of each record. Errors: those of the engine; the next call resumes after what was looked
    /// at, or where this one did if that is not known.
    pub fn sweep(&self, records: u64) -> Result<Swept> {
        self.sweeps
            .sweep(&*self.engine, self.now(), records, &self.errors)
    }

    /// The second at which an item of this time to live is over, as memcached reads it: 0 never, up to 30 days from now,
    /// beyond that since 1970, and below 0 at once.
    #[inline]
    pub(in crate::memcached) fn expires(&self, time: i64) -> u32 {
        const DAYS_30: i64 = 60 * 60 * 24 * 30;
        match time {
            0 => 0,
            ..0 => 1,
            1..=DAYS_30 => self.now().saturating_add(u32::try_from(time).unwrap_or(0)),
            _ => u32::try_from(time).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_read_as_memcached_reads_them() {
        let engine = Arc::new(azekura::record::memory::tiny::TinyDb::new().unwrap());
        let service = Service::new(engine, Settings::default());
        service.set_time(1_000_000).unwrap();
        assert_eq!(service.expires(0), 0);
        assert_eq!(service.expires(-1), 1);
        assert_eq!(service.expires(10), 1_000_010);
        assert_eq!(service.expires(2_592_000), 3_592_000);
        assert_eq!(service.expires(2_592_001), 2_592_001);
        assert_eq!(service.expires(i64::MAX), u32::MAX);
    }
}
