//! The configuration of a server: a file in TOML, flags of the same names, and defaults.
//!
//! [`RawConfig`] is what is written, all of it optional; a flag overrides the file. [`Config`] is what is in effect: every
//! value checked against the others, before anything is opened. An error names the line or the flag, the key, what was
//! found and what is allowed. It opens nothing but the file itself.
//!
//! ```text
//!   raw        flags and keys, and the types of their values      source   the lines of the file, and its errors
//!   validate   values against one another                        reload   what a running server takes over
//!   memory_budget   what connections may take under a memory limit
//! ```

mod memory_budget;
mod raw;
mod reload;
mod source;
mod validate;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use azekura::error::{Error, Kind, Result};

use crate::net::Limits;

pub use azekura_wire::Address;
pub use azekura_wire::address::Host;
pub use raw::{DurabilityLevel, Engine, LogFormat, LogLevel, Mode, RawConfig, Size};
pub use reload::Reloaded;
use source::Source;
use validate::Validator;

/// The file of records in the folder of data.
pub const STORE: &str = "records.azh";
/// As [`STORE`], of the engine tree.
pub const TREE_STORE: &str = "records.azt";

/// Files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The chain.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The CA of clients' certificates, for client authentication.
    pub client_authority: Option<PathBuf>,
}

/// The configuration in effect.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data folder.
    pub data: PathBuf,
    /// Listen addresses.
    pub listen: Vec<Address>,
    /// The storage engine.
    pub engine: Engine,
    /// Worker threads.
    pub threads: usize,
    /// What an acknowledged write survives.
    pub durability: DurabilityLevel,
    /// Interval of background syncs in milliseconds; 0: off.
    pub sync_interval_ms: u32,
    /// Memory limit for records, where they are in memory and bounded.
    pub memory_max: Option<u64>,
    /// Maximum size of the data file, if that is set.
    pub capacity: Option<u64>,
    /// Maximum size of an item.
    pub item_max: u64,
    /// Limits of connections.
    pub limits: Limits,
    /// The origin of `capacity`, for messages: the line of a file, or the flag.
    pub capacity_origin: String,
    /// The origin of `listen`.
    pub listen_origin: String,
    /// HTTP address of the status page.
    pub metrics: Option<SocketAddr>,
    /// The log format.
    pub log: LogFormat,
    /// The minimum log level.
    pub log_level: LogLevel,
    /// The password file.
    pub passwords: Option<PathBuf>,
    /// The certificate for TLS addresses.
    pub certificate: Option<Certificate>,
    /// Permissions of unix sockets.
    pub unix_mode: u32,
    /// Whether clients may stop the server.
    pub shutdown: bool,
    /// Whether clients may remove all records.
    pub flush: bool,
    /// Whether clients may read all records, and watch.
    pub dump: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self::new(RawConfig::default(), None).expect("the defaults fit together")
    }
}

impl Config {
    /// The configuration of `flags`, and of the file at `path` if there is one.
    ///
    /// Errors: `Invalid` (the file cannot be read, a key or value is not allowed, or values contradict each other).
    pub fn read(path: Option<&Path>, flags: RawConfig) -> Result<Self> {
        let Some(path) = path else {
            return Self::new(flags, None);
        };
        let text = std::fs::read_to_string(path).map_err(|e| {
            let detail = match e.kind() {
                ErrorKind::InvalidData => "it is not text in UTF-8".into(),
                _ => e.to_string(),
            };
            Error::new(Kind::Invalid, "cannot read the configuration")
                .at(path)
                .detail(detail)
                .remedy("--config names a file in TOML that this user may read")
        })?;
        Self::of_text(path, &text, flags)
    }

    /// The configuration of `flags` and this text of the file at `path`, which is not read. Names of hosts are resolved.
    ///
    /// Errors: `Invalid`, as [`read`](Self::read).
    pub fn of_text(path: &Path, text: &str, flags: RawConfig) -> Result<Self> {
        let raw: RawConfig = toml::from_str(text).map_err(|error| {
            let from = error.span().map_or(0, |span| span.start);
            let before = text.get(..from).unwrap_or_default();
            let line = before.matches('\n').count();
            let key = text
                .lines()
                .nth(line)
                .and_then(|line| line.split('=').next());
            Error::new(Kind::Invalid, "invalid configuration")
                .at(path)
                .detail(format!(
                    "line {}: {}",
                    line + 1,
                    source::describe(
                        key.unwrap_or_default().trim(),
                        &error.message().replace('\n', " ")
                    )
                ))
                .remedy("`azekura serve --help` lists the keys")
        })?;
        let replaced = flags.keys();
        let source = Source {
            path,
            text,
            replaced,
        };
        Self::new(flags.over(raw), Some(&source))
    }

    fn new(raw: RawConfig, source: Option<&Source<'_>>) -> Result<Self> {
        let validator = Validator(source);
        let engine = raw.engine.unwrap_or(Engine::Hash);
        let durability = validator.durability(engine, &raw)?;
        validator.data(engine, &raw)?;
        let listen = validator.listen(&raw)?;
        let certificate = validator.certificate(&listen, &raw)?;
        let memory_max = validator.memory_max(engine, &raw)?;
        let capacity = validator.capacity(engine, &raw)?;
        let item_max = validator.item_max(memory_max, capacity, &raw)?;
        let threads = validator.threads(memory_max, item_max, &raw)?;
        Ok(Self {
            listen,
            engine,
            threads,
            durability,
            sync_interval_ms: raw.sync_interval.unwrap_or(0),
            memory_max,
            capacity,
            capacity_origin: validator.origin("capacity"),
            listen_origin: validator.origin("listen"),
            item_max,
            limits: validator.limits(threads, item_max, memory_max, &raw)?,
            metrics: raw.metrics.as_ref().map(Host::first),
            log: raw.log.unwrap_or(LogFormat::Text),
            log_level: raw.log_level.unwrap_or(LogLevel::Info),
            data: raw.data.unwrap_or_else(|| "azekura-data".into()),
            passwords: raw.passwords,
            certificate,
            unix_mode: raw.unix_mode.map_or(0o700, |mode| mode.0),
            shutdown: raw.shutdown.unwrap_or(false),
            flush: raw.flush.unwrap_or(true),
            dump: raw.dump.unwrap_or(true),
        })
    }

    /// The file of records, if there is one.
    pub fn store(&self) -> Option<PathBuf> {
        match self.engine {
            Engine::Hash => Some(self.data.join(STORE)),
            Engine::Tree => Some(self.data.join(TREE_STORE)),
            Engine::Tiny | Engine::Cache => None,
        }
    }
}

#[cfg(test)]
mod tests;
