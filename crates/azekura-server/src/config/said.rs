//! What may be said of a server: the flags, which are the keys of the file, and the words that stand for their values.
//!
//! Each value judges itself when it is read, whether from a flag or from the file, and says what is allowed. What values
//! mean together is not known here.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use azekura_wire::Address;
use azekura_wire::address::Host;
use clap::{Args, ValueEnum};
use serde::Deserialize;

/// What may be said of a server, in the file and by flags of the same names.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Said {
    /// The folder of the data; it is made if it does not exist (./azekura-data)
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where clients come: HOST:PORT, tls:HOST:PORT, udp:HOST:PORT or unix:PATH; several times (127.0.0.1:11211)
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<Vec<Address>>,
    /// What keeps the records: hash in a file, tiny and cache in memory (hash)
    #[arg(long, value_enum)]
    pub engine: Option<Engine>,
    /// Threads that serve (one for each processor)
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// What an answered write survives: a killed process, loss of power, or nothing (process; none in memory)
    #[arg(long, value_enum)]
    pub durability: Option<Survives>,
    /// Milliseconds after which everything is synced to survive loss of power, again and again; 0: not by the clock (0)
    #[arg(long, value_name = "MILLISECONDS")]
    pub sync_interval: Option<u32>,
    /// Memory that the engines tiny and cache may use for records (cache: 64 MiB)
    #[arg(long, value_name = "SIZE")]
    pub memory_max: Option<Size>,
    /// How large the file of the engine hash may become (1 TiB)
    #[arg(long, value_name = "SIZE")]
    pub capacity: Option<Size>,
    /// Longest item, with its key and 60 bytes more, from 1 KiB to 1 GiB (1 MiB)
    #[arg(long, value_name = "SIZE")]
    pub item_max: Option<Size>,
    /// Connections at once (1024)
    #[arg(long, value_name = "N")]
    pub connections_max: Option<u64>,
    /// Connections at once from one address (a network of 64 bits for IPv6) that is no operator's (three in four of
    /// connections-max)
    #[arg(long, value_name = "N")]
    pub connections_per_address: Option<u64>,
    /// An address whose clients are operators: connections-per-address does not hold for them, and operator-connections are
    /// kept for them; several times; clients of unix sockets are operators, too (the loopback addresses)
    #[arg(long, value_name = "IP")]
    pub operator: Option<Vec<IpAddr>>,
    /// Connections beyond connections-max that are kept for operators (4)
    #[arg(long, value_name = "N")]
    pub operator_connections: Option<u64>,
    /// Seconds after which a connection that asks nothing is closed; 0: never (0)
    #[arg(long, value_name = "SECONDS")]
    pub idle_s: Option<u32>,
    /// Seconds in which a client must end a request it began, read its answers and log in, whatever it sends meanwhile; long
    /// values and answers have one more for each 8 KiB; who takes longer is dropped; 0: nobody (30)
    #[arg(long, value_name = "SECONDS")]
    pub stall_s: Option<u32>,
    /// Seconds that clients have to take their last answers when the server ends (1)
    #[arg(long, value_name = "SECONDS")]
    pub grace_s: Option<u32>,
    /// What all clients together may have the server hold of unfinished requests and unread answers; for each thread at
    /// least the longest item and 1 MiB (256 MiB, with memory-max at most what that leaves)
    #[arg(long, value_name = "SIZE")]
    pub buffers_max: Option<Size>,
    /// Milliseconds from which on a request is told as slow; 0: none is (0)
    #[arg(long, value_name = "MILLISECONDS")]
    pub slow_ms: Option<u32>,
    /// Where figures are asked for by HTTP: a page, /metrics for Prometheus, /health (nowhere)
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<Host>,
    /// The form of events on standard error (text)
    #[arg(long, value_enum)]
    pub log: Option<Form>,
    /// The least grave events that are told (info)
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub log_level: Option<Level>,
    /// A file with a line for each user, name:password; without it everybody is let in
    #[arg(long, value_name = "FILE")]
    pub passwords: Option<PathBuf>,
    /// The certificate for tls: addresses, with those that lead to a known one, in PEM
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Who must have signed the certificates that clients of tls: addresses show, in PEM; without it they need none
    #[arg(long, value_name = "FILE")]
    pub client_authority: Option<PathBuf>,
    /// Permissions of unix sockets, in octal (700)
    #[arg(long, value_name = "MODE")]
    pub unix_mode: Option<Mode>,
    /// Whether clients may stop the server by the command shutdown (false)
    #[arg(long, value_name = "true|false")]
    pub shutdown: Option<bool>,
    /// Whether clients may remove everything by the command `flush_all` (true)
    #[arg(long, value_name = "true|false")]
    pub flush: Option<bool>,
    /// Whether clients may read everything by dump and keys, and watch what others do (true)
    #[arg(long, value_name = "true|false")]
    pub dump: Option<bool>,
}

/// What keeps the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// A hash file
    Hash,
    /// The leanest hash in memory: full is an error
    Tiny,
    /// A cache in memory: drops what is asked for least
    Cache,
}

/// What an answered write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Survives {
    /// The death of the process
    Process,
    /// Loss of power
    Power,
    /// Nothing
    None,
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

/// The form of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Lines for people
    Text,
    /// A JSON object a line
    Json,
}

/// How grave an event is, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Answers fail
    Error,
    /// Something to look at: slow requests, refused connections, a full store
    Warn,
    /// Changes of the configuration
    Info,
    /// Connections that were dropped
    Debug,
}

impl Level {
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

/// Permissions of a file, as digits from 0 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NumberOrText")]
pub struct Mode(pub u32);

/// What the file may have for a [`Size`] or a [`Mode`].
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
    fn try_from(said: NumberOrText) -> std::result::Result<Self, String> {
        said.read()
    }
}

impl TryFrom<NumberOrText> for Mode {
    type Error = String;
    fn try_from(said: NumberOrText) -> std::result::Result<Self, String> {
        said.read()
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        azekura_wire::parse_size(text).map(Self)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mode = u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| *mode <= 0o777);
        mode.map(Self)
            .ok_or_else(|| format!("`{text}` are no permissions: three digits from 0 to 7"))
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
        impl Said {
            /// The keys that are said.
            pub(super) fn keys(&self) -> Vec<String> {
                let keys = [$(self.$field.is_some().then_some(stringify!($field))),*];
                keys.into_iter().flatten().map(|key| key.replace('_', "-")).collect()
            }

            /// What is said here, and beyond that what `below` says.
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
