//! A server as a whole: opens the engine, serves the listeners, runs the background threads, and closes.
//!
//! The order: addresses are bound before the data is opened, the data is open before the first client can connect, and at
//! the end what was acknowledged is synced before the file is closed. Besides the workers, one thread advances the clock and
//! adds a row to the history each second; one removes expired records; one serves the status page, if there is one.
//!
//! It joins `config`, `net`, `memcached` and `watch`, which do not know one another's internals.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use azekura::error::{Error, Kind, Result};
use azekura::record::cache::{self, CacheDb};
use azekura::record::hash::{self, HashDb};
use azekura::record::memory::tiny::{self, TinyDb};
use azekura::record::tree::{self, TreeDb};

use crate::config::{Address, Config, DurabilityLevel, Engine, Reloaded};
use crate::memcached::{Service, Settings};
use crate::net::{self, Control, Listeners};
use crate::owner::{CertificateInfo, Evictions, ServerControl};
use crate::secrets::{self, Contents, Secrets};
use crate::watch::{Collector, History, Monitor};

/// How often the clock ticks.
const TICK: Duration = Duration::from_millis(500);

/// How often a row is added to the history, a little less than a second, as the clock ticks unevenly.
const LOOK: Duration = Duration::from_millis(950);

/// Records that a sweep examines at once.
const SWEEP: u64 = 5000;

/// Under a limit of memory, pieces of so many bytes go back to the system as soon as they are free.
const LARGE_MEMORY: u32 = 256 << 10;

/// Under a limit of memory, so many bytes of smaller pieces that are free go back, too.
const HOARD: u64 = 1 << 20;

/// A server whose data is open.
pub struct Server {
    config: Config,
    service: Arc<Service>,
    control: Arc<Control>,
    /// The file, to close it at the end.
    hash: Option<Arc<HashDb>>,
    tree: Option<Arc<TreeDb>>,
    cache: Option<Arc<CacheDb>>,
    /// The certificate's files and dates, as read last.
    certificate: Arc<Mutex<CertificateInfo>>,
    /// What holds now; of what needs a restart, what it was when the server started; and
    /// what the files that it names held.
    present: Mutex<(Config, Contents)>,
    /// The last seconds.
    history: Arc<History>,
}

impl Server {
    /// Opens the data of `config`, serves `listeners`, and returns when `control` stopped it and all is closed.
    ///
    /// Errors: as [`open`](Self::open) and [`serve`](Self::serve).
    pub fn run(config: &Config, listeners: Listeners, control: &Arc<Control>) -> Result<()> {
        Self::open(config, control)?.serve(listeners)
    }

    /// The sockets of `config`. Clients are refused until [`serve`](Self::serve), when the data is open.
    ///
    /// Errors: `Locked` (an address is taken), `Invalid` (a file is where a unix socket should be), `Io`.
    pub fn listen(config: &Config) -> Result<Listeners> {
        let mut listeners = Listeners::new();
        for address in &config.listen {
            match address {
                Address::Tcp(address) => drop(listeners.tcp_later(address.first(), false)?),
                Address::Tls(address) => drop(listeners.tcp_later(address.first(), true)?),
                Address::Udp(address) => drop(listeners.udp(address.first())?),
                Address::Unix(path) => listeners
                    .unix_later(path, config.unix_mode)
                    .map_err(|error| not_a_socket(error, &config.listen_origin))?,
            }
        }
        if let Some(address) = config.metrics {
            listeners.metrics(address)?;
        }
        Ok(listeners)
    }

    /// Reads and checks the files that `config` names besides the data: passwords, certificates and keys. Nothing is
    /// opened or changed.
    ///
    /// Errors: `Invalid` (one cannot be read, or is not what it should be).
    pub fn check(config: &Config) -> Result<()> {
        Secrets::read(config).map(drop)
    }

    /// Opens the data, and creates it if there is none. No client is served yet.
    ///
    /// Errors: `Locked` (another process has the data open), `Invalid` (passwords or a certificate that cannot be used),
    /// `Io`, `Corrupted`, `Mismatch`.
    pub fn open(config: &Config, control: &Arc<Control>) -> Result<Self> {
        let (mut hash, mut tree, mut cache) = (None, None, None);
        let dropped = Arc::new(Evictions::default());
        let secrets = Secrets::read(config)?;
        secrets::warn(config);
        if config.memory_max.is_some() {
            azekura::io::return_large_memory(LARGE_MEMORY);
        }
        let engine: Arc<dyn azekura::Engine> = match config.engine {
            Engine::Tree => {
                let (path, interval) = data_file(config)?;
                let usual = tree::OpenOptions::new();
                let opening = usual
                    .clone()
                    .sync_interval(interval)
                    .capacity(config.capacity.unwrap_or(usual.capacity));
                let options = tree::CreateOptions::new().opening(opening);
                let db = TreeDb::open_or_create(&path, &options)
                    .map_err(|error| too_small(in_use(error, &path), &path, config))?;
                Arc::clone(tree.insert(Arc::new(db))) as _
            }
            Engine::Hash => {
                let (path, interval) = data_file(config)?;
                let usual = hash::CreateOptions::new();
                let options = usual
                    .clone()
                    .syncs_often(config.durability == DurabilityLevel::Power || interval.is_some())
                    .sync_interval(interval)
                    .capacity(config.capacity.unwrap_or(usual.opening.capacity));
                let db = HashDb::open_or_create(&path, &options)
                    .map_err(|error| too_small(in_use(error, &path), &path, config))?;
                warn_of_damage(&db);
                Arc::clone(hash.insert(Arc::new(db))) as _
            }
            Engine::Tiny => Arc::new(TinyDb::with(
                &tiny::Options::new().memory_limit(config.memory_max),
            )?),
            Engine::Cache => {
                let db = CacheDb::with(
                    &cache::Options::new()
                        .records_max(None)
                        .bytes_max(config.memory_max.unwrap_or(64 << 20))
                        .dropped({
                            let dropped = Arc::clone(&dropped);
                            Arc::new(move |key, value, _| dropped.note(key, value))
                        }),
                )?;
                Arc::clone(cache.insert(Arc::new(db))) as _
            }
        };
        let service = Service::new(
            engine,
            Settings {
                item_size_max: config.item_max,
                power: config.durability == DurabilityLevel::Power,
                flush_enabled: config.flush,
                dump_enabled: config.dump,
                shutdown_enabled: config.shutdown,
                bytes_max: config.memory_max.or(config.capacity).unwrap_or(0),
                ..Settings::default()
            },
        );
        // They are set here only.
        let _ = dropped.watchers.set(Arc::clone(&service.watchers));
        let server = Self {
            config: config.clone(),
            service: Arc::new(service),
            control: Arc::clone(control),
            hash,
            tree,
            cache,
            certificate: Arc::default(),
            present: Mutex::new((config.clone(), secrets.contents)),
            history: Arc::default(),
        };
        server.apply(config, secrets);
        server.service.set_outside(Box::new(ServerControl {
            control: Arc::clone(control),
            cache: server.cache.clone(),
            dropped,
            history: Arc::clone(&server.history),
            certificate: Arc::clone(&server.certificate),
            config: config.clone(),
        }));
        Ok(server)
    }

    /// Takes over what a running server can of `config`: limits, passwords, certificate. What it did, and what of `config`
    /// differs and needs a restart, is returned.
    ///
    /// Errors: `Invalid` (passwords or a certificate that cannot be used: then nothing has changed).
    pub fn reload(&self, config: &Config) -> Result<Reloaded> {
        let secrets = Secrets::read(config)?;
        secrets::warn(config);
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let (running, contents) = &mut *present;
        let before = std::mem::replace(contents, secrets.contents);
        let reloaded = running.take_over(
            config,
            before.passwords != contents.passwords,
            before.certificate != contents.certificate,
        );
        // What the running server keeps of its own stays in effect.
        self.apply(running, secrets);
        Ok(reloaded)
    }

    fn apply(&self, config: &Config, secrets: Secrets) {
        self.control.set_limits(config.limits.clone());
        let mut certificate = self
            .certificate
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *certificate = CertificateInfo::new(config.certificate.as_ref(), secrets.expires);
        self.control.set_identity(secrets.identity);
        drop(certificate);
        self.service.set_passwords(secrets.passwords);
        self.service.set_item_size_max(config.item_max);
    }

    /// What all connections share.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Serves until the control stops it; then answers what has arrived, syncs, and closes.
    ///
    /// Errors: `Invalid` (nothing to listen on), `Io` and `Poisoned` (the system or the engine failed, or closing did).
    pub fn serve(&self, mut listeners: Listeners) -> Result<()> {
        listeners.begin()?;
        let watch = Monitor::new(&self.service, &self.control, &self.config, &self.history);
        let closed = AtomicBool::new(false);
        let served = std::thread::scope(|scope| {
            let clock = start(scope, "time", || {
                self.run_clock(watch.collector());
                Ok(())
            });
            let sweeper = start(scope, "sweep", || {
                self.sweep();
                Ok(())
            });
            // `/health` is answered while the server stops, too.
            let door = listeners
                .door()
                .map(|door| start(scope, "metrics", || watch.serve(door, &closed)));
            let others = [Some(clock), Some(sweeper), door];
            // Where the system refuses one of them, the server ends as it begins.
            if others.iter().flatten().any(Result::is_err) {
                self.control.stop();
            }
            let threads = self.config.threads;
            let served = net::serve(&self.service, &listeners, threads, &self.control);
            self.control.stop();
            closed.store(true, Ordering::Release);
            let mut outcome = served;
            for thread in others.into_iter().flatten() {
                let panicked = || Error::new(Kind::Poisoned, "a thread of the server panicked");
                let ended = thread.and_then(|thread| {
                    thread.thread().unpark();
                    thread.join().unwrap_or_else(|_| Err(panicked()))
                });
                outcome = outcome.and(ended);
            }
            outcome
        });
        drop(listeners);
        served
            .and(self.service.sync())
            .and(self.service.verify_path())
    }

    /// Closes the file, so that the next start reads nothing twice. What was answered is safe without it.
    pub fn close(self) -> Result<()> {
        let Self {
            service,
            hash,
            tree,
            ..
        } = self;
        drop(service);
        match (hash.map(Arc::try_unwrap), tree.map(Arc::try_unwrap)) {
            (Some(Ok(db)), _) => db.close(),
            (_, Some(Ok(db))) => db.close(),
            // Another owner still reads: the last one closes.
            _ => Ok(()),
        }
    }

    /// Advances the clock, and does what is due each second, until the server stops.
    fn run_clock(&self, mut collector: Collector<'_>) {
        let mut looked: Option<Instant> = None;
        let mut unused = 0_u64;
        while !self.control.is_stopping() {
            // What fails here fails for clients too, with an error: nothing is lost by continuing.
            let _ = self.service.tick();
            if let Some(cache) = &self.cache {
                cache.give_back();
            }
            // Under a limit of memory the allocator keeps no more of many small buffers than is used again at once.
            let mut is_hoarded = false;
            if self.config.memory_max.is_some() {
                let now = azekura::io::unused_memory();
                is_hoarded = now > unused.saturating_add(HOARD);
                // What was used again and is freed later is to be given back then.
                unused = unused.min(now);
            }
            if self.control.has_let_go() || is_hoarded {
                azekura::io::return_unused_memory();
                // What has no memory any more is still among it.
                unused = azekura::io::unused_memory();
            }
            let from = Instant::now();
            if looked.is_none_or(|at| at.elapsed() >= LOOK) {
                looked = Some(from);
                collector.collect();
            }
            // What is to be done at a second is done when it begins.
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            self.rest(from, TICK.min(to_next_second(since.unwrap_or_default())));
        }
    }

    /// Removes what has expired until the server ends. It has a thread of its own, since it waits where the engine does.
    fn sweep(&self) {
        while !self.control.is_stopping() {
            let from = Instant::now();
            // A cache evicts old records by itself, so it is swept only on an operator's command.
            if self.cache.is_none() || self.service.is_sweep_asked() {
                let swept = self
                    .service
                    .sweep_on(SWEEP, &|| !self.control.is_stopping());
                if let Err(error) = swept {
                    self.service.errors().note(&error);
                }
            }
            self.rest(from, TICK);
        }
    }

    /// Waits until so long has passed since `from`, or the server ends.
    fn rest(&self, from: Instant, long: Duration) {
        while !self.control.is_stopping() && from.elapsed() < long {
            std::thread::park_timeout(long.saturating_sub(from.elapsed()));
        }
    }
}

/// The file of records, whose folder is made if there is none, and how often it is synced.
fn data_file(config: &Config) -> Result<(PathBuf, Option<Duration>)> {
    std::fs::create_dir_all(&config.data).map_err(|e| {
        Error::io("cannot create the data folder", e)
            .at(&config.data)
            .remedy("choose another by --data")
    })?;
    let millis = u64::from(config.sync_interval_ms);
    let interval = (millis > 0).then(|| Duration::from_millis(millis));
    Ok((config.store().unwrap_or_default(), interval))
}

/// One line for the log: what is damaged, and what that means for clients.
fn warn_of_damage(db: &HashDb) {
    let damage = db.damage();
    let Some(first) = damage
        .iter()
        .max_by_key(|place| place.affects.is_unbounded())
    else {
        return;
    };
    let places = damage.len();
    if first.affects.is_unbounded() {
        tracing::error!(places, %first, "the data file is damaged: verified reads are served, writes are refused until `azekura repair`");
    } else {
        tracing::warn!(places, %first, "the data file is damaged: access to damaged records fails, all else is served");
    }
}

/// How long it is from this time to the next whole second.
fn to_next_second(time: Duration) -> Duration {
    Duration::from_secs(1).saturating_sub(Duration::from_nanos(time.subsec_nanos().into()))
}

/// Starts a thread of the scope with a name.
fn start<'s>(
    scope: &'s Scope<'s, '_>,
    name: &str,
    run: impl FnOnce() -> Result<()> + Send + 's,
) -> Result<ScopedJoinHandle<'s, Result<()>>> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn_scoped(scope, run)
        .map_err(net::no_thread)
}

/// Adds the remedy if another process has the data open.
fn in_use(error: Error, path: &Path) -> Error {
    if error.kind() != Kind::Locked {
        return error;
    }
    Error::new(Kind::Locked, "another process has the data open")
        .at(path)
        .remedy("stop it, or give this server another folder by --data")
}

/// Names what states a capacity that the file's segments do not fit in. Those of a file that is there cannot be chosen anew.
fn too_small(error: Error, path: &Path, config: &Config) -> Error {
    if error.kind() != Kind::Invalid || !error.what().starts_with("the capacity is too small") {
        return error;
    }
    let origin = &config.capacity_origin;
    error
        .at(path)
        .remedy(format!("state a larger capacity ({origin})"))
}

/// Names what states the path of a unix socket where something else is.
fn not_a_socket(error: Error, origin: &str) -> Error {
    match error.kind() {
        Kind::Invalid => error.remedy(format!("remove the file, or state another path ({origin})")),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_second_begins_within_one() {
        for (millis, left) in [(0, 1000), (1, 999), (1500, 500), (2999, 1)] {
            let time = Duration::from_millis(millis);
            assert_eq!(to_next_second(time), Duration::from_millis(left));
        }
    }
}
