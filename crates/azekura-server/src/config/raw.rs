//! The raw configuration: the flags, which are the keys of the file, and the types of their values.
//!
//! Each value is parsed and checked for itself, whether it comes from a flag or from the file, and its error states what is
//! allowed. Values are not checked against one another here.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use azekura_wire::Address;
use azekura_wire::address::Host;
use clap::{Args, ValueEnum};
use serde::Deserialize;

/// The configuration as it is written in the file, and by flags of the same names; all of it is optional.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RawConfig {
    /// Data folder, created if it does not exist [default: ./azekura-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address to listen on, repeatable: HOST:PORT, tls:HOST:PORT, udp:HOST:PORT or unix:PATH [default: 127.0.0.1:11211]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<Vec<Address>>,
    /// Storage engine: hash or tree in a file, tiny or cache in memory [default: hash]
    #[arg(long, value_enum)]
    pub engine: Option<Engine>,
    /// Worker threads [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// What acknowledged writes survive: process (kill -9), power (loss of power), none [default: process; none in memory]
    #[arg(long, value_enum)]
    pub durability: Option<DurabilityLevel>,
    /// Interval of background syncs in milliseconds, after which writes survive loss of power; 0: off [default: 0]
    #[arg(long, value_name = "MILLISECONDS")]
    pub sync_interval: Option<u32>,
    /// Memory limit for records of the engines tiny and cache [default: 64MiB for cache, no limit for tiny]
    #[arg(long, value_name = "SIZE")]
    pub memory_max: Option<Size>,
    /// Maximum size of the data file of the engine hash [default: 1TiB]
    #[arg(long, value_name = "SIZE")]
    pub capacity: Option<Size>,
    /// Maximum size of an item, with its key and 60 bytes of overhead, from 1KiB to 1GiB [default: 1MiB,
    /// or less under a smaller memory-max or capacity]
    #[arg(long, value_name = "SIZE")]
    pub item_max: Option<Size>,
    /// Maximum number of connections [default: 1024]
    #[arg(long, value_name = "N")]
    pub connections_max: Option<u64>,
    /// Maximum number of connections from one address (IPv6: one /64 network) that is not an operator's [default: three
    /// quarters of connections-max]
    #[arg(long, value_name = "N")]
    pub connections_per_address: Option<u64>,
    /// IP address of an operator, repeatable: exempt from connections-per-address, and served by operator-connections;
    /// clients of unix sockets are operators, too [default: the loopback addresses]
    #[arg(long, value_name = "IP")]
    pub operator: Option<Vec<IpAddr>>,
    /// Connections beyond connections-max that are reserved for operators [default: 4]
    #[arg(long, value_name = "N")]
    pub operator_connections: Option<u64>,
    /// Timeout for idle connections in seconds; 0: none [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub idle_s: Option<u32>,
    /// Timeout in seconds for a client to complete a request, read its answers, or authenticate, plus a second for each 8
    /// KiB transferred; 0: none [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub stall_s: Option<u32>,
    /// Seconds that clients have to read their last answers when the server stops [default: 1]
    #[arg(long, value_name = "SECONDS")]
    pub grace_s: Option<u32>,
    /// Memory limit for all client buffers (incomplete requests and unread answers), at least item-max and 1MiB per thread
    /// [default: 256MiB, less if memory-max leaves less]
    #[arg(long, value_name = "SIZE")]
    pub buffers_max: Option<Size>,
    /// Log requests that take at least so many milliseconds as slow; 0: none [default: 0]
    #[arg(long, value_name = "MILLISECONDS")]
    pub slow_ms: Option<u32>,
    /// HTTP address of the status page, /metrics for Prometheus, and /health [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<Host>,
    /// Log format on standard error [default: text]
    #[arg(long, value_enum)]
    pub log: Option<LogFormat>,
    /// Minimum log level [default: info]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
    /// Password file with a line name:password for each user [default: none, and no authentication]
    #[arg(long, value_name = "FILE")]
    pub passwords: Option<PathBuf>,
    /// TLS certificate chain for tls: addresses, in PEM [default: none]
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Private key of the TLS certificate, in PEM [default: none]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// CA certificates for TLS client authentication, in PEM [default: none, and clients need no certificate]
    #[arg(long, value_name = "FILE")]
    pub client_authority: Option<PathBuf>,
    /// Permissions of unix sockets, in octal [default: 700]
    #[arg(long, value_name = "MODE")]
    pub unix_mode: Option<Mode>,
    /// Allow clients to stop the server by the command `shutdown` [default: false]
    #[arg(long, value_name = "true|false")]
    pub shutdown: Option<bool>,
    /// Allow clients to remove all records by the command `flush_all` [default: true]
    #[arg(long, value_name = "true|false")]
    pub flush: Option<bool>,
    /// Allow clients to read all records by dump and keys, and to watch what others do [default: true]
    #[arg(long, value_name = "true|false")]
    pub dump: Option<bool>,
}

/// The storage engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// A hash file
    Hash,
    /// A tree file: records in the order of their keys
    Tree,
    /// A hash in memory with the least overhead: writes fail when it is full
    Tiny,
    /// A cache in memory: evicts the records used least
    Cache,
}

impl Engine {
    /// Whether its records are in a file.
    pub const fn is_in_file(self) -> bool {
        matches!(self, Self::Hash | Self::Tree)
    }
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurabilityLevel {
    /// A killed process
    Process,
    /// Loss of power
    Power,
    /// Nothing
    None,
}

impl DurabilityLevel {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Power => "power",
            Self::None => "none",
        }
    }
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines of text
    Text,
    /// One JSON object per line
    Json,
}

/// The level of a log event, the most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Failures of the engine or the system
    Error,
    /// Slow requests, refused connections, a full store
    Warn,
    /// Changes of the configuration
    Info,
    /// Dropped connections
    Debug,
}

impl LogLevel {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// A number of bytes: `1048576`, `1024KiB`, `1MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "NumberOrText")]
pub struct Size(pub u64);

/// Exactly, with its unit.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&azekura::size::size_text(self.0))
    }
}

/// Permissions of a file, as digits from 0 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NumberOrText")]
pub struct Mode(pub u32);

/// How the file may write a [`Size`] or a [`Mode`].
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number or a text")]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl NumberOrText {
    fn read<T: FromStr<Err = String>>(self) -> std::result::Result<T, String> {
        match self {
            Self::Number(number) => number.to_string().parse(),
            Self::Text(text) => text.parse(),
        }
    }
}

impl TryFrom<NumberOrText> for Size {
    type Error = String;
    fn try_from(raw: NumberOrText) -> std::result::Result<Self, String> {
        raw.read()
    }
}

impl TryFrom<NumberOrText> for Mode {
    type Error = String;
    fn try_from(raw: NumberOrText) -> std::result::Result<Self, String> {
        raw.read()
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        azekura::size::parse_size(text).map(Self)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mode = u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| *mode <= 0o777);
        mode.map(Self).ok_or_else(|| {
            format!("`{text}` is not a mode of permissions: three digits from 0 to 7")
        })
    }
}

/// Whether no two sockets can listen at both. Port 0 is another one each time.
pub(super) fn excludes(one: &Address, other: &Address) -> bool {
    use Address::{Tcp, Tls, Udp, Unix};
    match (one, other) {
        (Tcp(one) | Tls(one), Tcp(other) | Tls(other)) | (Udp(one), Udp(other)) => {
            one.first() == other.first() && one.first().port() != 0
        }
        (Unix(one), Unix(other)) => one == other,
        _ => false,
    }
}

macro_rules! over {
    ($($field:ident)*) => {
        impl RawConfig {
            /// The keys that are set.
            pub(super) fn keys(&self) -> Vec<String> {
                let keys = [$(self.$field.is_some().then_some(stringify!($field))),*];
                keys.into_iter().flatten().map(|key| key.replace('_', "-")).collect()
            }

            /// The values that are set here, and those of `below` for all others.
            #[must_use]
            pub fn over(self, below: Self) -> Self {
                Self { $($field: self.$field.or(below.$field)),* }
            }
        }
    };
}

over! {
    data listen engine threads durability sync_interval memory_max capacity item_max connections_max connections_per_address operator operator_connections idle_s stall_s grace_s buffers_max slow_ms metrics log log_level passwords
    certificate key client_authority unix_mode shutdown flush dump
}
