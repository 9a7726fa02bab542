//! A server as a whole: opens the engine, serves the listeners, keeps house meanwhile, and closes.
//!
//! The order is that of trust: addresses are taken before the data is opened, the data is open before the first client is
//! accepted, and at the end what clients were told is made to survive loss of power before the file is closed. A second
//! thread tells the service what time it is and adds a row to the history each second; a third removes what has expired; a
//! fourth shows figures, if somebody wants them.
//!
//! It joins `config`, `net`, `memcached` and `watch`, which do not know one another's insides.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use azekura::error::{Error, Kind, Result};
use azekura::record::cache::{self, CacheDb};
use azekura::record::hash::{self, HashDb};
use azekura::record::memory::tiny::{self, TinyDb};

use crate::config::{Address, Config, Engine, Survives};
use crate::memcached::{Outside, Passwords, Service, Settings};
use crate::net::{self, Control, Listeners, tls};
use crate::watch::{Eye, History, Watch};

/// Memory of a cache of which nothing was said: memcached's.
const CACHE_MEMORY: u64 = 64 << 20;

/// How often the time is told.
const TICK: Duration = Duration::from_millis(500);

/// How often a row is added to the history, a little less than what is promised, as the clock ticks unevenly.
const LOOK: Duration = Duration::from_millis(950);

/// Records that are looked at each time for being over.
const SWEEP: u64 = 5000;

/// A server whose data is open.
pub struct Server {
    config: Config,
    service: Arc<Service>,
    control: Arc<Control>,
    /// The file, to close it at the end.
    hash: Option<Arc<HashDb>>,
    cache: Option<Arc<CacheDb>>,
    /// The last seconds.
    history: Arc<History>,
}

impl Server {
    /// Opens the data of `config`, serves `listeners`, and returns when `control` was told to stop and all is closed.
    ///
    /// Errors: as [`open`](Self::open) and [`serve`](Self::serve).
    pub fn run(config: &Config, listeners: Listeners, control: &Arc<Control>) -> Result<()> {
        Self::open(config, control)?.serve(listeners)
    }

    /// The sockets of `config`.
    ///
    /// Errors: `Locked` (an address is taken), `Invalid` (a file is where a unix socket should be), `Io`.
    pub fn listen(config: &Config) -> Result<Listeners> {
        let mut listeners = Listeners::new();
        for address in &config.listen {
            match address {
                Address::Tcp(address) => drop(listeners.tcp(*address, false)?),
                Address::Tls(address) => drop(listeners.tcp(*address, true)?),
                Address::Udp(address) => drop(listeners.udp(*address)?),
                Address::Unix(path) => listeners.unix(path, config.unix_mode)?,
            }
        }
        if let Some(address) = config.metrics {
            listeners.metrics(address)?;
        }
        Ok(listeners)
    }

    /// Opens the data, and makes it if there is none. Nobody is served yet.
    ///
    /// Errors: `Locked` (another process has the data open), `Invalid` (passwords or a certificate that cannot be used),
    /// `Io`, `Corrupted`, `Mismatch`.
    pub fn open(config: &Config, control: &Arc<Control>) -> Result<Self> {
        let (mut hash, mut cache) = (None, None);
        let secrets = Secrets::read(config)?;
        let engine: Arc<dyn azekura::Engine> = match config.engine {
            Engine::Hash => {
                std::fs::create_dir_all(&config.data).map_err(|e| {
                    Error::io("cannot make the folder of the data", e).at(&config.data)
                })?;
                let path = config.store().unwrap_or_default();
                let options = hash::Options {
                    syncs_often: config.durability == Survives::Power,
                    ..hash::Options::default()
                };
                let db = HashDb::open_or_create(&path, &options)
                    .map_err(|error| in_use(error, &path))?;
                Arc::clone(hash.insert(Arc::new(db))) as _
            }
            Engine::Tiny => Arc::new(TinyDb::with(&tiny::Options {
                memory_limit: config.memory_max,
            })?),
            Engine::Cache => {
                let db = CacheDb::with(&cache::Options {
                    records_max: None,
                    bytes_max: Some(config.memory_max.unwrap_or(CACHE_MEMORY)),
                    ..cache::Options::default()
                })?;
                Arc::clone(cache.insert(Arc::new(db))) as _
            }
        };
        let service = Service::new(
            engine,
            Settings {
                item_size_max: config.item_max,
                power: config.durability == Survives::Power,
                flush_enabled: config.flush,
                dump_enabled: config.dump,
                shutdown_enabled: config.shutdown,
                ..Settings::default()
            },
        );
        let server = Self {
            config: config.clone(),
            service: Arc::new(service),
            control: Arc::clone(control),
            hash,
            cache,
            history: Arc::default(),
        };
        server.apply(config, secrets);
        server.service.set_outside(Box::new(Owner {
            control: Arc::clone(control),
            cache: server.cache.clone(),
            history: Arc::clone(&server.history),
            config: config.clone(),
        }));
        Ok(server)
    }

    /// Takes over the limits, passwords and certificate of `config`; the rest of it is looked at when a server starts.
    ///
    /// Errors: `Invalid`, `Io` (passwords or a certificate that cannot be used: then nothing has changed).
    pub fn reload(&self, config: &Config) -> Result<()> {
        let secrets = Secrets::read(config)?;
        self.apply(config, secrets);
        Ok(())
    }

    fn apply(&self, config: &Config, secrets: Secrets) {
        self.control.set_limits(config.limits.clone());
        self.control.set_identity(secrets.identity);
        self.service.set_passwords(secrets.passwords);
        self.service.set_item_size_max(config.item_max);
    }

    /// What all connections share.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Serves until the control says stop; then answers what has arrived, syncs, and closes.
    ///
    /// Errors: `Invalid` (nothing to listen on), `Io` and `Poisoned` (the system or the engine failed, or closing did).
    pub fn serve(&self, listeners: Listeners) -> Result<()> {
        let watch = Watch::new(&self.service, &self.control, &self.config, &self.history);
        let closed = AtomicBool::new(false);
        let served = std::thread::scope(|scope| {
            let keeper = start(scope, "time", || {
                self.keep_house(watch.eye());
                Ok(())
            });
            let sweeper = start(scope, "sweep", || {
                self.sweep();
                Ok(())
            });
            // Who asks how the server is must be told while it ends, too.
            let door = listeners
                .door()
                .map(|door| start(scope, "metrics", || watch.serve(door, &closed)));
            let threads = self.config.threads;
            let served = net::serve(&self.service, &listeners, threads, &self.control);
            self.control.stop();
            closed.store(true, Ordering::Release);
            let mut outcome = served;
            for thread in [Some(keeper), Some(sweeper), door].into_iter().flatten() {
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
        served.and(self.service.sync())
    }

    /// Closes the file, so that the next start reads nothing twice. What was answered is safe without it.
    pub fn close(self) -> Result<()> {
        let Self { service, hash, .. } = self;
        drop(service);
        match hash.map(Arc::try_unwrap) {
            Some(Ok(db)) => db.close(),
            // Somebody else still reads: the last one closes.
            _ => Ok(()),
        }
    }

    /// Tells the time until the server ends.
    fn keep_house(&self, mut eye: Eye<'_>) {
        let mut looked: Option<Instant> = None;
        while !self.control.is_stopping() {
            // What fails here fails for clients too, who are told: nothing is lost by going on.
            let _ = self.service.tick();
            let from = Instant::now();
            if looked.is_none_or(|at| at.elapsed() >= LOOK) {
                looked = Some(from);
                eye.look();
            }
            self.rest(from);
        }
    }

    /// Removes what has expired until the server ends. It has a thread of its own, since it waits where the engine does.
    fn sweep(&self) {
        // A cache drops what is old by itself.
        while self.cache.is_none() && !self.control.is_stopping() {
            let from = Instant::now();
            let swept = self
                .service
                .sweep_on(SWEEP, &|| !self.control.is_stopping());
            if let Err(error) = swept {
                self.service.trouble().note(&error);
            }
            self.rest(from);
        }
    }

    /// Waits until a tick has passed since `from`, or the server ends.
    fn rest(&self, from: Instant) {
        while !self.control.is_stopping() && from.elapsed() < TICK {
            std::thread::park_timeout(TICK.saturating_sub(from.elapsed()));
        }
    }
}

/// Starts a thread beside those that serve.
fn start<'s>(
    scope: &'s Scope<'s, '_>,
    name: &str,
    run: impl FnOnce() -> Result<()> + Send + 's,
) -> Result<ScopedJoinHandle<'s, Result<()>>> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn_scoped(scope, run)
        .map_err(|e| Error::io("cannot start a thread", e))
}

/// What files beside the configuration say.
struct Secrets {
    passwords: Option<Passwords>,
    identity: Option<Arc<rustls::ServerConfig>>,
}

impl Secrets {
    fn read(config: &Config) -> Result<Self> {
        let passwords = config.passwords.as_deref().map(passwords).transpose()?;
        let identity = config
            .certificate
            .as_ref()
            .map(|files| tls::identity(&files.chain, &files.key, files.client_authority.as_deref()))
            .transpose()?;
        Ok(Self {
            passwords,
            identity,
        })
    }
}

fn passwords(path: &Path) -> Result<Passwords> {
    let text =
        std::fs::read(path).map_err(|e| Error::io("cannot read the passwords", e).at(path))?;
    Passwords::parse(&text).map_err(|line| {
        Error::new(Kind::Invalid, "a line of the passwords is not understood")
            .at(path)
            .found(format!("line {line}"), "name:password")
    })
}

/// Says what can be done if another process has the data open.
fn in_use(error: Error, path: &Path) -> Error {
    if error.kind() != Kind::Locked {
        return error;
    }
    Error::new(Kind::Locked, "another process has the data open")
        .at(path)
        .remedy("stop it, or give this server another folder by --data")
}

/// What the protocol asks of whoever owns the sockets.
struct Owner {
    control: Arc<Control>,
    cache: Option<Arc<CacheDb>>,
    history: Arc<History>,
    config: Config,
}

impl Outside for Owner {
    fn figures(&self, group: &str, tell: &mut dyn FnMut(&str, &str)) {
        let limits = self.control.limits();
        let config = &self.config;
        match group {
            "" => {
                let connections = self.control.connections();
                tell("max_connections", &limits.connections_max.to_string());
                tell("curr_connections", &connections.open.to_string());
                tell("total_connections", &connections.accepted.to_string());
                tell("rejected_connections", &connections.refused.to_string());
                tell("connections_dropped", &connections.dropped.to_string());
                tell("threads", &config.threads.to_string());
                tell("slow_requests", &connections.slow.to_string());
                tell("durability", config.durability.word());
            }
            "durability" => {
                tell("durability", config.durability.word());
                let waited = self.control.connections().waited;
                tell("answers_that_waited", &waited.to_string());
            }
            "recent" => self.history.tell(tell),
            "settings" => {
                tell("maxconns", &limits.connections_max.to_string());
                tell("num_threads", &config.threads.to_string());
                tell("idle_timeout", &limits.idle_s.to_string());
                tell("stall_timeout", &limits.stall_s.to_string());
                tell("buffers_max", &limits.buffers_max.to_string());
                tell("slow_ms", &limits.slow_ms.to_string());
                for address in &config.listen {
                    match address {
                        Address::Tcp(at) | Address::Tls(at) => {
                            tell("tcpport", &at.port().to_string());
                            tell("inter", &at.ip().to_string());
                        }
                        Address::Udp(at) => tell("udpport", &at.port().to_string()),
                        Address::Unix(path) => tell("domain_socket", &path.to_string_lossy()),
                    }
                }
            }
            _ => {}
        }
    }

    fn shut_down(&self, _graceful: bool) {
        // Both ways answer what has arrived: nothing is gained by leaving clients without an answer.
        self.control.stop();
    }

    fn set_memory_limit(&self, bytes: u64) -> bool {
        self.cache
            .as_ref()
            .is_some_and(|cache| cache.resize(None, Some(bytes)).is_ok())
    }
}

impl Survives {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Power => "power",
            Self::None => "none",
        }
    }
}
