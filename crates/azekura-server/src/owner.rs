//! What clients are told of the process and its sockets, and what of it they may change: the figures of `stats` that no
//! engine knows, the limit of memory, the certificate, the end.
//!
//! It knows no protocol and no threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use azekura::error::Result;
use azekura::record::cache::CacheDb;

use crate::config::{Address, Certificate, Config};
use crate::item::Item;
use crate::memcached::{Outside, Watchers, system_time};
use crate::net::{Control, Limits};
use crate::secrets::identity;
use crate::watch::{History, processor_seconds};

/// Records that the cache dropped.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// For others.
    evicted: AtomicU64,
    /// Whose time was over.
    reclaimed: AtomicU64,
    /// Who wants to know of the evicted; nobody before the first client.
    pub(crate) watchers: OnceLock<Arc<Watchers>>,
}

impl Dropped {
    /// Counts one.
    pub(crate) fn note(&self, key: &[u8], value: &[u8]) {
        // Most never expire: of these nobody asks the time.
        let is_over = Item::decode(value)
            .is_some_and(|item| item.head.expires != 0 && item.head.is_over(system_time()));
        if is_over {
            self.reclaimed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.evicted.fetch_add(1, Ordering::Relaxed);
        if let Some(watchers) = self.watchers.get() {
            watchers.evicted(key, value);
        }
    }
}

/// What the protocol asks of whoever owns the sockets.
pub(crate) struct Owner {
    pub(crate) control: Arc<Control>,
    pub(crate) cache: Option<Arc<CacheDb>>,
    pub(crate) dropped: Arc<Dropped>,
    pub(crate) history: Arc<History>,
    /// The files that the certificate was read from last.
    pub(crate) certificate: Arc<Mutex<Option<Certificate>>>,
    /// What the server was told when it started.
    pub(crate) config: Config,
}

impl Owner {
    /// What was dropped.
    fn dropped(&self, tell: &mut dyn FnMut(&str, &str)) {
        for (name, count) in [
            ("evictions", &self.dropped.evicted),
            ("reclaimed", &self.dropped.reclaimed),
        ] {
            tell(name, &count.load(Ordering::Relaxed).to_string());
        }
    }

    fn settings(&self, limits: &Limits, tell: &mut dyn FnMut(&str, &str)) {
        let config = &self.config;
        tell("maxconns", &limits.connections_max.to_string());
        // Who is over the limit is told so at once.
        tell("maxconns_fast", "yes");
        tell("num_threads", &config.threads.to_string());
        tell("sync_interval", &config.sync_interval_ms.to_string());
        tell("idle_timeout", &limits.idle_s.to_string());
        tell("stall_timeout", &limits.stall_s.to_string());
        tell("buffers_max", &limits.buffers_max.to_string());
        tell("slow_ms", &limits.slow_ms.to_string());
        tell("umask", &format!("{:o}", config.unix_mode));
        let (mut stream, mut datagram, mut path) = (false, false, false);
        for address in &config.listen {
            match address {
                Address::Tcp(at) | Address::Tls(at) => {
                    stream = true;
                    tell("tcpport", &at.port().to_string());
                    tell("inter", &at.ip().to_string());
                }
                Address::Udp(at) => {
                    datagram = true;
                    tell("udpport", &at.port().to_string());
                }
                Address::Unix(at) => {
                    path = true;
                    tell("domain_socket", &at.to_string_lossy());
                }
            }
        }
        for (name, none, is_said) in [
            ("tcpport", "0", stream),
            ("inter", "NULL", stream),
            ("udpport", "0", datagram),
            ("domain_socket", "NULL", path),
        ] {
            if !is_said {
                tell(name, none);
            }
        }
        let encrypted = config.listen.iter().any(|at| matches!(at, Address::Tls(_)));
        tell("ssl_enabled", if encrypted { "yes" } else { "no" });
    }
}

impl Outside for Owner {
    fn figures(&self, group: &str, tell: &mut dyn FnMut(&str, &str)) {
        let limits = self.control.limits();
        let config = &self.config;
        match group {
            "" => {
                let (user, system) = processor_seconds();
                tell("rusage_user", &format!("{user:.6}"));
                tell("rusage_system", &format!("{system:.6}"));
                let connections = self.control.connections();
                let mut count = |name: &str, count: u64| tell(name, &count.to_string());
                count("max_connections", limits.connections_max);
                count("curr_connections", connections.open);
                count("total_connections", connections.accepted);
                count("rejected_connections", connections.refused);
                // One for each that is open: none is kept for another.
                count("connection_structures", connections.open);
                count("connections_dropped", connections.dropped);
                count("accepting_conns", (!self.control.is_stopping()).into());
                // Clients over the limit are told so: listening goes on.
                count("listen_disabled_num", 0);
                count("time_in_listen_disabled_us", 0);
                count("threads", config.threads as u64);
                count("slow_requests", connections.slow);
                self.dropped(&mut |name, figure| tell(name, figure));
                tell("durability", config.durability.word());
            }
            "items" => self.dropped(&mut |name, figure| {
                let name = if name == "evictions" { "evicted" } else { name };
                tell(name, figure);
            }),
            "durability" => {
                tell("durability", config.durability.word());
                let waited = self.control.connections().waited;
                tell("answers_that_waited", &waited.to_string());
            }
            "recent" => self.history.tell(tell),
            "settings" => self.settings(&limits, tell),
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

    fn refresh_certificates(&self) -> Result<bool> {
        // Held until it is taken over: a configuration that comes meanwhile is not undone.
        let certificate = self.certificate.lock();
        let certificate = certificate.unwrap_or_else(PoisonError::into_inner);
        let identity = identity(certificate.as_ref())?;
        let is_some = identity.is_some();
        if is_some {
            self.control.set_identity(identity);
        }
        Ok(is_some)
    }
}
