//! What the protocol needs of the process and its sockets: the statistics that no engine knows, the memory limit, the
//! certificate, and the end of the server.
//!
//! It implements the protocol's trait for its owner, and counts what the cache evicts. It knows no protocol and no threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use azekura::error::Result;
use azekura::record::cache::CacheDb;

use crate::config::{Address, Certificate, Config};
use crate::item::Item;
use crate::memcached::{Outside, Watchers, system_time};
use crate::net::{BACKLOG, Control, Dropped, Limits, validity};
use crate::secrets::identity;
use crate::watch::{History, processor_seconds};

/// Records that the cache evicted.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    /// For others.
    evicted: AtomicU64,
    /// Expired.
    reclaimed: AtomicU64,
    /// Watchers of evictions; none before the service exists.
    pub(crate) watchers: OnceLock<Arc<Watchers>>,
}

impl Evictions {
    /// Counts one.
    pub(crate) fn note(&self, key: &[u8], value: &[u8]) {
        // Most never expire, and need no clock.
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

/// The files of a certificate, and its dates for operators.
#[derive(Debug, Default)]
pub(crate) struct CertificateInfo {
    files: Option<Certificate>,
    /// When it was read, and when it expires, in seconds since 1970; 0: there is none.
    read: u32,
    expires: u64,
}

impl CertificateInfo {
    /// One that was read just now.
    pub(crate) fn new(files: Option<&Certificate>, expires: Option<u64>) -> Self {
        Self {
            read: files.map_or(0, |_| system_time()),
            expires: expires.unwrap_or(0),
            files: files.cloned(),
        }
    }
}

/// What the protocol needs of the owner of the sockets.
pub(crate) struct ServerControl {
    pub(crate) control: Arc<Control>,
    pub(crate) cache: Option<Arc<CacheDb>>,
    pub(crate) dropped: Arc<Evictions>,
    pub(crate) history: Arc<History>,
    /// The certificate's files and dates, as read last.
    pub(crate) certificate: Arc<Mutex<CertificateInfo>>,
    /// The configuration at the start.
    pub(crate) config: Config,
}

impl ServerControl {
    /// Reports the evictions.
    fn dropped(&self, report: &mut dyn FnMut(&str, &str)) {
        for (name, count) in [
            ("evictions", &self.dropped.evicted),
            ("reclaimed", &self.dropped.reclaimed),
        ] {
            report(name, &count.load(Ordering::Relaxed).to_string());
        }
    }

    fn certificate(&self) -> MutexGuard<'_, CertificateInfo> {
        let certificate = self.certificate.lock();
        certificate.unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the certificate.
    fn encryption(&self, failed: u64, report: &mut dyn FnMut(&str, &str)) {
        let certificate = self.certificate();
        if certificate.files.is_none() {
            return;
        }
        let now = system_time();
        report("ssl_handshake_errors", &failed.to_string());
        let age = now.saturating_sub(certificate.read);
        report("time_since_server_cert_refresh", &age.to_string());
        let left = certificate.expires.cast_signed() - i64::from(now);
        report("server_cert_expires_in", &left.to_string());
    }

    fn settings(&self, limits: &Limits, report: &mut dyn FnMut(&str, &str)) {
        let config = &self.config;
        report("maxconns", &limits.connections_max.to_string());
        report("maxconns_per_address", &limits.per_address_max.to_string());
        report("operator_conns", &limits.operator_connections.to_string());
        report("tcp_backlog", &BACKLOG.to_string());
        // A client over the limit gets an error at once.
        report("maxconns_fast", "yes");
        report("num_threads", &config.threads.to_string());
        report("sync_interval", &config.sync_interval_ms.to_string());
        report("idle_timeout", &limits.idle_s.to_string());
        report("stall_timeout", &limits.stall_s.to_string());
        report("buffers_max", &limits.buffers_max.to_string());
        report("grace_timeout", &limits.grace_s.to_string());
        report("slow_ms", &limits.slow_ms.to_string());
        report("umask", &format!("{:o}", config.unix_mode));
        let (mut stream, mut datagram, mut path) = (false, false, false);
        for address in &config.listen {
            match address {
                Address::Tcp(at) | Address::Tls(at) => {
                    stream = true;
                    report("tcpport", &at.first().port().to_string());
                    report("inter", &at.first().ip().to_string());
                }
                Address::Udp(at) => {
                    datagram = true;
                    report("udpport", &at.first().port().to_string());
                }
                Address::Unix(at) => {
                    path = true;
                    report("domain_socket", &at.to_string_lossy());
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
                report(name, none);
            }
        }
        let encrypted = config.listen.iter().any(|at| matches!(at, Address::Tls(_)));
        report("ssl_enabled", if encrypted { "yes" } else { "no" });
        let certificate = self.certificate();
        if let Some(files) = certificate.files.as_ref().filter(|_| encrypted) {
            report("ssl_chain_cert", &files.chain.to_string_lossy());
            report("ssl_key", &files.key.to_string_lossy());
            // memcached's numbers: 2 asks clients for a certificate and requires it.
            let authority = files.client_authority.as_ref();
            report("ssl_verify_mode", authority.map_or("0", |_| "2"));
            let authority = authority.map(|path| path.to_string_lossy());
            report("ssl_ca_cert", authority.as_deref().unwrap_or("NULL"));
            report("ssl_min_version", "tlsv1.2");
        }
    }
}

impl Outside for ServerControl {
    fn figures(&self, group: &str, report: &mut dyn FnMut(&str, &str)) {
        let limits = self.control.limits();
        let config = &self.config;
        match group {
            "" => {
                let (user, system) = processor_seconds();
                report("rusage_user", &format!("{user:.6}"));
                report("rusage_system", &format!("{system:.6}"));
                let connections = self.control.connections();
                let mut count = |name: &str, count: u64| report(name, &count.to_string());
                count("max_connections", limits.connections_max);
                count("curr_connections", connections.open);
                count("total_connections", connections.accepted);
                count("rejected_connections", connections.refused);
                // One for each that is open: none is kept for another.
                count("connection_structures", connections.open);
                count("rejected_address", connections.refused_address);
                count("connections_dropped", connections.dropped);
                for (why, number) in Dropped::ALL.iter().zip(connections.dropped_for) {
                    count(&format!("dropped_{}", why.word()), number);
                }
                let idle = connections.dropped_for.first().copied();
                count("idle_kicks", idle.unwrap_or(0));
                count("connection_buffer_bytes", connections.held_bytes);
                count("accepting_conns", (!self.control.is_stopping()).into());
                // Clients over the limit get an error: listening continues.
                count("listen_disabled_num", 0);
                count("time_in_listen_disabled_us", 0);
                count("threads", config.threads as u64);
                count("slow_requests", connections.slow);
                self.dropped(&mut |name, figure| report(name, figure));
                self.encryption(connections.handshakes_failed, report);
                report("durability", config.durability.word());
            }
            "items" => self.dropped(&mut |name, figure| {
                let name = if name == "evictions" { "evicted" } else { name };
                report(name, figure);
            }),
            "durability" => {
                report("durability", config.durability.word());
                let waited = self.control.connections().waited;
                report("answers_that_waited", &waited.to_string());
            }
            "recent" => self.history.report(report),
            "settings" => self.settings(&limits, report),
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
        let mut certificate = self.certificate();
        let identity = identity(certificate.files.as_ref())?;
        let is_some = identity.is_some();
        if is_some {
            let files = certificate.files.clone();
            let expires = files.as_ref().and_then(|of| validity::expiry_of(&of.chain));
            *certificate = CertificateInfo::new(files.as_ref(), expires);
            self.control.set_identity(identity);
        }
        Ok(is_some)
    }
}
