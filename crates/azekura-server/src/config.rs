//! What a server is told: by a file in TOML, by flags of the same names, or not at all.
//!
//! [`Said`] is what may be said, all of it optional; a flag replaces what the file says. [`Config`] is what holds then:
//! every value checked against the others, before anything is opened. An error names the line or the flag, the key, what
//! was found and what is allowed. It opens nothing but the file itself.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use azekura::error::{Error, Kind, Result};
use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::net::Limits;

/// The file of records in the folder of data.
pub const STORE: &str = "records.azh";

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
    /// Memory that the engines tiny and cache may use for records (cache: 64 MiB)
    #[arg(long, value_name = "SIZE")]
    pub memory_max: Option<Size>,
    /// Longest item, with its key and 60 bytes more, from 1 KiB to 1 GiB (1 MiB)
    #[arg(long, value_name = "SIZE")]
    pub item_max: Option<Size>,
    /// Connections at once (1024)
    #[arg(long, value_name = "N")]
    pub connections_max: Option<u64>,
    /// Seconds after which a connection that asks nothing is closed; 0: never (0)
    #[arg(long, value_name = "SECONDS")]
    pub idle_s: Option<u32>,
    /// Seconds after which a client is dropped that does not end its request or read its answers; 0: never (30)
    #[arg(long, value_name = "SECONDS")]
    pub stall_s: Option<u32>,
    /// What all clients together may have the server hold of unfinished requests and unread answers (256 MiB)
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

/// Where clients come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// TCP with TLS.
    Tls(SocketAddr),
    /// UDP.
    Udp(SocketAddr),
    /// A socket of the file system.
    Unix(PathBuf),
}

/// An address of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host(pub SocketAddr);

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
        let wrong = || format!("`{text}` is no size: bytes, or a number with KiB, MiB or GiB");
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let shift = match text.get(digits.len()..).unwrap_or_default().trim() {
            "" | "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            _ => return Err(wrong()),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
        Ok(Self(bytes))
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

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err("the path of a unix socket is missing".into());
            }
            return Ok(Self::Unix(path.into()));
        }
        let (make, rest): (fn(SocketAddr) -> Self, &str) = match text.split_once(':') {
            Some(("tls", rest)) => (Self::Tls, rest),
            Some(("udp", rest)) => (Self::Udp, rest),
            _ => (Self::Tcp, text),
        };
        let allowed = "HOST:PORT, tls:HOST:PORT, udp:HOST:PORT or unix:PATH";
        resolve(rest)
            .map(make)
            .ok_or_else(|| format!("`{text}` is no address: {allowed}"))
    }
}

fn resolve(text: &str) -> Option<SocketAddr> {
    text.to_socket_addrs().ok()?.next()
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let found = resolve(text).map(Self);
        found.ok_or_else(|| format!("`{text}` is no address: HOST:PORT"))
    }
}

impl<'d> Deserialize<'d> for Host {
    fn deserialize<D: serde::Deserializer<'d>>(from: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl<'d> Deserialize<'d> for Address {
    fn deserialize<D: serde::Deserializer<'d>>(from: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Tls(address) => write!(f, "tls:{address}"),
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The chain.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// Who must have signed those of clients.
    pub client_authority: Option<PathBuf>,
}

/// What holds for a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder of the data.
    pub data: PathBuf,
    /// Where clients come.
    pub listen: Vec<Address>,
    /// What keeps the records.
    pub engine: Engine,
    /// Threads that serve.
    pub threads: usize,
    /// What an answered write survives.
    pub durability: Survives,
    /// Memory for records, where they are in memory.
    pub memory_max: Option<u64>,
    /// Longest item.
    pub item_max: u64,
    /// What connections may take.
    pub limits: Limits,
    /// Where figures are asked for by HTTP.
    pub metrics: Option<SocketAddr>,
    /// The form of events.
    pub log: Form,
    /// The least grave events that are told.
    pub log_level: Level,
    /// Who may use it.
    pub passwords: Option<PathBuf>,
    /// For encrypted addresses.
    pub certificate: Option<Certificate>,
    /// Permissions of unix sockets.
    pub unix_mode: u32,
    /// Whether clients may stop it.
    pub shutdown: bool,
    /// Whether they may remove everything.
    pub flush: bool,
    /// Whether they may read everything, and watch what others do.
    pub dump: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self::new(Said::default(), None).expect("the defaults fit together")
    }
}

/// A file that was read, to tell where something was said.
struct Source<'s> {
    path: &'s Path,
    text: &'s str,
}

impl Source<'_> {
    /// The line that says `key`.
    fn line(&self, key: &str) -> Option<usize> {
        let says = |line: &str| {
            line.split_once('=')
                .is_some_and(|(name, _)| name.trim().trim_matches('"') == key)
        };
        Some(self.text.lines().position(says)? + 1)
    }
}

impl Config {
    /// What holds after `flags`, and after the file at `path` if there is one.
    ///
    /// Errors: `Io` (the file cannot be read), `Invalid` (a key or value that is not allowed, or values that contradict each
    /// other).
    pub fn read(path: Option<&Path>, flags: Said) -> Result<Self> {
        let Some(path) = path else {
            return Self::new(flags, None);
        };
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::io("cannot read the configuration", e).at(path))?;
        Self::of_text(path, &text, flags)
    }

    /// What holds after `flags` and this text of the file at `path`, which is not looked at. Names of hosts are looked up.
    ///
    /// Errors: `Invalid`, as [`read`](Self::read).
    pub fn of_text(path: &Path, text: &str, flags: Said) -> Result<Self> {
        let said: Said = toml::from_str(text).map_err(|error| {
            let from = error.span().map_or(0, |span| span.start);
            let before = text.get(..from).unwrap_or_default();
            let line = before.matches('\n').count();
            let key = text
                .lines()
                .nth(line)
                .and_then(|line| line.split('=').next());
            Error::new(Kind::Invalid, "the configuration is not understood")
                .at(path)
                .detail(format!(
                    "line {}: {}: {}",
                    line + 1,
                    key.unwrap_or_default().trim(),
                    error.message().replace('\n', " ")
                ))
                .remedy("`azekura serve --help` lists what may be said")
        })?;
        Self::new(flags.over(said), Some(&Source { path, text }))
    }

    fn new(said: Said, source: Option<&Source<'_>>) -> Result<Self> {
        // A flag of this name is what was said if the file does not say it.
        let fail = |key: &str, found: &dyn fmt::Display, allowed: &str| {
            let at = match source.and_then(|source| Some((source, source.line(key)?))) {
                Some((source, line)) => format!("{} line {line}: {key}", source.path.display()),
                None => format!("--{key}"),
            };
            Err(Error::new(Kind::Invalid, format!("{at} is not allowed")).found(found, allowed))
        };
        let lacks = |key: &str, what: &str| {
            Err(Error::new(Kind::Invalid, format!("{key} is not said")).remedy(what))
        };
        let engine = said.engine.unwrap_or(Engine::Hash);
        let in_memory = engine != Engine::Hash;
        let durability = said.durability.unwrap_or(if in_memory {
            Survives::None
        } else {
            Survives::Process
        });
        if in_memory && durability != Survives::None {
            let found = if durability == Survives::Power {
                "power"
            } else {
                "process"
            };
            return fail(
                "durability",
                &found,
                "none, as the engine is in memory; or the engine hash",
            );
        }
        if !in_memory && durability == Survives::None {
            return fail(
                "durability",
                &"none",
                "process or power, as the engine hash is in a file",
            );
        }
        let memory_max = said.memory_max.map(|size| size.0);
        match (engine, memory_max) {
            (Engine::Hash, Some(bytes)) => {
                return fail(
                    "memory-max",
                    &bytes,
                    "nothing, as the engine hash is in a file",
                );
            }
            (_, Some(bytes)) if bytes < 1 << 20 => {
                return fail("memory-max", &bytes, "at least 1MiB");
            }
            _ => {}
        }
        let threads = match said.threads {
            Some(threads) if (1..=1024).contains(&threads) => threads,
            Some(threads) => return fail("threads", &threads, "from 1 to 1024"),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let item_max = said.item_max.map_or(1 << 20, |size| size.0);
        if !(1 << 10..=1 << 30).contains(&item_max) {
            return fail("item-max", &item_max, "from 1KiB to 1GiB");
        }
        let buffers_max = said.buffers_max.map_or(256 << 20, |size| size.0);
        if buffers_max < 1 << 20 {
            return fail("buffers-max", &buffers_max, "at least 1MiB");
        }
        let connections_max = said.connections_max.unwrap_or(1024);
        if connections_max == 0 {
            return fail("connections-max", &connections_max, "at least 1");
        }
        let listen = said
            .listen
            .unwrap_or_else(|| vec![Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 11211)))]);
        if listen.is_empty() {
            return fail("listen", &"no address", "at least one");
        }
        let encrypted = listen.iter().any(|at| matches!(at, Address::Tls(_)));
        let certificate = match (said.certificate, said.key) {
            (Some(chain), Some(key)) => Some(Certificate {
                chain,
                key,
                client_authority: said.client_authority,
            }),
            (None, None) if !encrypted && said.client_authority.is_none() => None,
            (None, _) => return lacks("certificate", "TLS needs its file, and that of the key"),
            (Some(_), None) => return lacks("key", "the certificate needs the file of its key"),
        };
        Ok(Self {
            data: said.data.unwrap_or_else(|| "azekura-data".into()),
            listen,
            engine,
            threads,
            durability,
            memory_max,
            item_max,
            limits: Limits {
                connections_max,
                idle_s: said.idle_s.unwrap_or(0),
                stall_s: said.stall_s.unwrap_or(30),
                buffers_max: buffers_max as usize,
                slow_ms: said.slow_ms.unwrap_or(0),
            },
            metrics: said.metrics.map(|host| host.0),
            log: said.log.unwrap_or(Form::Text),
            log_level: said.log_level.unwrap_or(Level::Info),
            passwords: said.passwords,
            certificate,
            unix_mode: said.unix_mode.map_or(0o700, |mode| mode.0),
            shutdown: said.shutdown.unwrap_or(false),
            flush: said.flush.unwrap_or(true),
            dump: said.dump.unwrap_or(true),
        })
    }

    /// The file of records, if there is one.
    pub fn store(&self) -> Option<PathBuf> {
        (self.engine == Engine::Hash).then(|| self.data.join(STORE))
    }
}

macro_rules! over {
    ($($field:ident)*) => {
        impl Said {
            /// What is said here, and beyond that what `below` says.
            #[must_use]
            pub fn over(self, below: Self) -> Self {
                Self { $($field: self.$field.or(below.$field)),* }
            }
        }
    };
}

over! {
    data listen engine threads durability memory_max item_max connections_max idle_s stall_s buffers_max slow_ms metrics log log_level passwords
    certificate key client_authority unix_mode shutdown flush dump
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, flags: Said) -> Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.toml");
        std::fs::write(&path, text).unwrap();
        Config::read(Some(&path), flags)
    }

    #[test]
    fn a_file_says_what_flags_say_and_a_flag_replaces_it() {
        let text = "listen = [\"127.0.0.1:0\", \"udp:127.0.0.1:0\", \"unix:/x/y\"]\nthreads = 3\n\
                    item-max = \"2MiB\"\nbuffers-max = 2000000\nidle-s = 60\nunix-mode = 660\n";
        let flags = Said {
            threads: Some(5),
            ..Said::default()
        };
        let config = read(text, flags).unwrap();
        assert_eq!(
            (config.threads, config.item_max, config.unix_mode),
            (5, 2 << 20, 0o660)
        );
        assert_eq!(
            (config.limits.idle_s, config.limits.buffers_max),
            (60, 2_000_000)
        );
        let words: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["127.0.0.1:0", "udp:127.0.0.1:0", "unix:/x/y"]);
    }

    #[test]
    fn without_a_word_it_is_a_file_on_the_loopback_that_survives_a_kill() {
        let config = Config::default();
        assert_eq!(config.listen[0].to_string(), "127.0.0.1:11211");
        assert_eq!(
            (config.engine, config.durability),
            (Engine::Hash, Survives::Process)
        );
        assert_eq!(
            config.store().unwrap(),
            Path::new("azekura-data/records.azh")
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_line_key_and_what_is_allowed() {
        for (text, expected) in [
            (
                "threads = 1\nthread = 2\n",
                ["line 2", "thread", "`threads`"],
            ),
            ("\nengine = \"has\"\n", ["line 2", "engine", "`tiny`"]),
            (
                "threads = \"many\"\n",
                ["line 1", "threads", "invalid type"],
            ),
            ("\n\nthreads = 0\n", ["line 3", "threads", "from 1 to 1024"]),
            ("item-max = 5\n", ["line 1", "item-max", "1KiB"]),
            ("item-max = \"5 MB\"\n", ["line 1", "item-max", "KiB"]),
            (
                "listen = [\"nowhere\"]\n",
                ["line 1", "listen", "unix:PATH"],
            ),
            (
                "engine = \"tiny\"\ndurability = \"power\"\n",
                ["line 2", "durability", "none"],
            ),
            (
                "listen = [\"tls:127.0.0.1:0\"]\n",
                ["certificate", "not said", "the key"],
            ),
            (
                "durability = \"none\"\n",
                ["line 1", "durability", "process or power"],
            ),
            ("metrics = \"80\"\n", ["line 1", "metrics", "HOST:PORT"]),
            ("unix-mode = 999\n", ["line 1", "unix-mode", "0 to 7"]),
            ("threads = = 1\n", ["line 1", "threads", ""]),
        ] {
            let error = read(text, Said::default()).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{text}");
            for part in expected {
                assert!(error.to_string().contains(part), "{text}: {error}");
            }
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        let flags = Said {
            threads: Some(0),
            ..Said::default()
        };
        let error = Config::read(None, flags).unwrap_err().to_string();
        assert!(error.contains("--threads"), "{error}");
    }
}
