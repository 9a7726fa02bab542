//! What a server is told: by a file in TOML, by flags of the same names, or not at all.
//!
//! [`Said`] is what may be said, all of it optional; a flag replaces what the file says. [`Config`] is what holds then:
//! every value checked against the others, before anything is opened. An error names the line or the flag, the key, what
//! was found and what is allowed. It opens nothing but the file itself.

mod beside;
mod said;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};

use azekura::error::{Error, Kind, Result};
use azekura::record::hash::HashDb;

use crate::net::Limits;

pub use azekura_wire::Address;
pub use azekura_wire::address::Host;
use beside::Beside;
use said::excludes;
pub use said::{Engine, Form, Level, Mode, Said, Size, Survives};

/// The file of records in the folder of data.
pub const STORE: &str = "records.azh";

const MIB: u64 = 1 << 20;

/// Largest file of records.
const CAPACITY_MAX: u64 = 1 << 43;

/// Memory of a cache of which nothing was said: memcached's.
const CACHE_MEMORY: u64 = 64 * MIB;

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
    /// How often everything is synced, in milliseconds; 0: not by the clock.
    pub sync_interval_ms: u32,
    /// Memory for records, where they are in memory and bounded.
    pub memory_max: Option<u64>,
    /// How large the file of records may become, if that is bounded.
    pub capacity: Option<u64>,
    /// Longest item.
    pub item_max: u64,
    /// What connections may take.
    pub limits: Limits,
    /// Where it was said how large the file may become, for messages: the line of a file, or the flag.
    pub capacity_said: String,
    /// Where it was said where clients come.
    pub listen_said: String,
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

/// What a running server did with another configuration, by the names of its options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// What differed and holds from now on. Passwords and a certificate differ if the contents of their files do.
    pub taken_over: Vec<&'static str>,
    /// What differs from what the server was started with, and holds when it is started again.
    pub needs_restart: Vec<&'static str>,
}

/// A file that was read, to tell where something was said.
struct Source<'s> {
    path: &'s Path,
    text: &'s str,
    /// Keys that flags say, so that what the file says of them does not hold.
    replaced: Vec<String>,
}

impl Source<'_> {
    /// The line that says `key`, if that holds.
    fn line(&self, key: &str) -> Option<usize> {
        if self.replaced.iter().any(|replaced| replaced == key) {
            return None;
        }
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
    /// Errors: `Invalid` (the file cannot be read, a key or value is not allowed, or values contradict each other).
    pub fn read(path: Option<&Path>, flags: Said) -> Result<Self> {
        let Some(path) = path else {
            return Self::new(flags, None);
        };
        let text = std::fs::read_to_string(path).map_err(|e| {
            Error::new(Kind::Invalid, "cannot read the configuration")
                .at(path)
                .detail(e.to_string())
        })?;
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
                    "line {}: {}",
                    line + 1,
                    of_key(
                        key.unwrap_or_default().trim(),
                        &error.message().replace('\n', " ")
                    )
                ))
                .remedy("`azekura serve --help` lists what may be said")
        })?;
        let replaced = flags.keys();
        let source = Source {
            path,
            text,
            replaced,
        };
        Self::new(flags.over(said), Some(&source))
    }

    fn new(said: Said, source: Option<&Source<'_>>) -> Result<Self> {
        let judge = Judge(source);
        let engine = said.engine.unwrap_or(Engine::Hash);
        let durability = judge.durability(engine, &said)?;
        judge.place(engine, &said)?;
        let listen = judge.listen(&said)?;
        let certificate = judge.certificate(&listen, &said)?;
        let memory_max = judge.memory_max(engine, &said)?;
        let item_max = judge.item_max(memory_max, &said)?;
        let threads = judge.threads(memory_max, item_max, &said)?;
        Ok(Self {
            listen,
            engine,
            threads,
            durability,
            sync_interval_ms: said.sync_interval.unwrap_or(0),
            memory_max,
            capacity: judge.capacity(engine, &said)?,
            capacity_said: judge.place_of("capacity"),
            listen_said: judge.place_of("listen"),
            item_max,
            limits: judge.limits(threads, item_max, memory_max, &said)?,
            metrics: said.metrics.as_ref().map(Host::first),
            log: said.log.unwrap_or(Form::Text),
            log_level: said.log_level.unwrap_or(Level::Info),
            data: said.data.unwrap_or_else(|| "azekura-data".into()),
            passwords: said.passwords,
            certificate,
            unix_mode: said.unix_mode.map_or(0o700, |mode| mode.0),
            shutdown: said.shutdown.unwrap_or(false),
            flush: said.flush.unwrap_or(true),
            dump: said.dump.unwrap_or(true),
        })
    }

    /// Becomes `new` as far as a running server can, and says how far that is. `has_other_passwords`, `has_other_certificate`:
    /// whether the contents of the files differ, which may be where their names do not.
    pub(crate) fn take_over(
        &mut self,
        new: &Self,
        has_other_passwords: bool,
        has_other_certificate: bool,
    ) -> Reloaded {
        let mut reloaded = Reloaded::default();
        let mut new = new.clone();
        if self.memory_max.is_some()
            && (self.memory_max, self.threads) != (new.memory_max, new.threads)
        {
            // What connections may take was judged for another limit of memory, or for other threads.
            for (name, differs) in [
                (
                    "buffers-max",
                    self.limits.buffers_max != new.limits.buffers_max,
                ),
                ("item-max", self.item_max != new.item_max),
            ] {
                if differs {
                    reloaded.needs_restart.push(name);
                }
            }
            (new.limits.buffers_max, new.item_max) = (self.limits.buffers_max, self.item_max);
        }
        let new = &new;
        let (ours, theirs) = (&self.limits, &new.limits);
        for (name, differs) in [
            (
                "connections-max",
                ours.connections_max != theirs.connections_max,
            ),
            (
                "connections-per-address",
                ours.per_address_max != theirs.per_address_max,
            ),
            ("operator", ours.operators != theirs.operators),
            (
                "operator-connections",
                ours.operator_connections != theirs.operator_connections,
            ),
            ("idle-s", ours.idle_s != theirs.idle_s),
            ("stall-s", ours.stall_s != theirs.stall_s),
            ("grace-s", ours.grace_s != theirs.grace_s),
            ("buffers-max", ours.buffers_max != theirs.buffers_max),
            ("slow-ms", ours.slow_ms != theirs.slow_ms),
            ("item-max", self.item_max != new.item_max),
            ("log", self.log != new.log),
            ("log-level", self.log_level != new.log_level),
            (
                "passwords",
                has_other_passwords || self.passwords != new.passwords,
            ),
            (
                "certificate",
                has_other_certificate || self.certificate != new.certificate,
            ),
        ] {
            if differs {
                reloaded.taken_over.push(name);
            }
        }
        for (name, differs) in [
            ("data", self.data != new.data),
            ("listen", self.listen != new.listen),
            ("engine", self.engine != new.engine),
            ("threads", self.threads != new.threads),
            ("durability", self.durability != new.durability),
            (
                "sync-interval",
                self.sync_interval_ms != new.sync_interval_ms,
            ),
            ("memory-max", self.memory_max != new.memory_max),
            ("capacity", self.capacity != new.capacity),
            ("metrics", self.metrics != new.metrics),
            ("unix-mode", self.unix_mode != new.unix_mode),
            ("shutdown", self.shutdown != new.shutdown),
            ("flush", self.flush != new.flush),
            ("dump", self.dump != new.dump),
        ] {
            if differs {
                reloaded.needs_restart.push(name);
            }
        }
        self.limits.clone_from(&new.limits);
        (self.item_max, self.log, self.log_level) = (new.item_max, new.log, new.log_level);
        self.passwords.clone_from(&new.passwords);
        self.certificate.clone_from(&new.certificate);
        reloaded
    }

    /// The file of records, if there is one.
    pub fn store(&self) -> Option<PathBuf> {
        (self.engine == Engine::Hash).then(|| self.data.join(STORE))
    }
}

/// Judges values by one another. An error names the line or the flag, the key, what was found and what is allowed.
struct Judge<'s>(Option<&'s Source<'s>>);

impl Judge<'_> {
    /// Where `key` was said.
    fn place_of(&self, key: &str) -> String {
        // A flag of this name is what was said if the file does not say it.
        let line = self.0.and_then(|source| Some((source, source.line(key)?)));
        match line {
            Some((source, line)) => format!("{} line {line}: {key}", source.path.display()),
            None => format!("--{key}"),
        }
    }

    fn fail(&self, key: &str, found: &dyn fmt::Display, allowed: &str) -> Error {
        let at = self.place_of(key);
        Error::new(Kind::Invalid, format!("{at} is not allowed")).found(found, allowed)
    }

    /// What an answered write survives.
    fn durability(&self, engine: Engine, said: &Said) -> Result<Survives> {
        let fail = |found: Survives, allowed| Err(self.fail("durability", &found.word(), allowed));
        match (engine, said.durability) {
            (Engine::Hash, None) => Ok(Survives::Process),
            (Engine::Hash, Some(Survives::None)) => fail(
                Survives::None,
                "process or power, as the engine hash is in a file",
            ),
            (Engine::Hash, Some(survives)) => Ok(survives),
            (_, None | Some(Survives::None)) => Ok(Survives::None),
            (_, Some(survives)) => fail(
                survives,
                "none, as the engine is in memory; or the engine hash",
            ),
        }
    }

    /// What is said of a file must have one.
    fn place(&self, engine: Engine, said: &Said) -> Result<()> {
        if engine == Engine::Hash {
            let empty = said
                .data
                .as_ref()
                .is_some_and(|data| data.as_os_str().is_empty());
            let fail = || self.fail("data", &"an empty text", "the path of a folder");
            return if empty { Err(fail()) } else { Ok(()) };
        }
        let allowed = "nothing, as the engine is in memory; or the engine hash";
        if let Some(data) = &said.data {
            return Err(self.fail("data", &data.display(), allowed));
        }
        match said.sync_interval {
            Some(interval @ 1..) => Err(self.fail("sync-interval", &interval, allowed)),
            _ => Ok(()),
        }
    }

    /// The value, if it is one of `range`.
    fn within<T: PartialOrd + fmt::Display>(
        &self,
        key: &str,
        found: T,
        range: impl RangeBounds<T>,
        allowed: &str,
    ) -> Result<T> {
        if range.contains(&found) {
            Ok(found)
        } else {
            Err(self.fail(key, &found, allowed))
        }
    }

    fn memory_max(&self, engine: Engine, said: &Said) -> Result<Option<u64>> {
        let (key, allowed) = ("memory-max", "nothing, as the engine hash is in a file");
        match (engine, said.memory_max) {
            (Engine::Cache, None) => Ok(Some(CACHE_MEMORY)),
            (_, None) => Ok(None),
            (Engine::Hash, Some(Size(bytes))) => Err(self.fail(key, &bytes, allowed)),
            (_, Some(Size(bytes))) => self.within(key, bytes, MIB.., "at least 1MiB").map(Some),
        }
    }

    /// Whether it is enough for the segments of a file that is there is known when that is opened.
    fn capacity(&self, engine: Engine, said: &Said) -> Result<Option<u64>> {
        let Some(Size(bytes)) = said.capacity else {
            return Ok(None);
        };
        if engine != Engine::Hash {
            let allowed = "nothing, as the engine is in memory: see memory-max";
            return Err(self.fail("capacity", &bytes, allowed));
        }
        let least = HashDb::least_capacity(4096);
        let allowed = format!("at least {least}");
        self.within("capacity", bytes, least.., &allowed)?;
        self.within("capacity", bytes, ..=CAPACITY_MAX, "at most 8TiB")?;
        if bytes.is_multiple_of(4096) {
            return Ok(Some(bytes));
        }
        Err(self.fail("capacity", &bytes, "a multiple of 4KiB"))
    }

    /// As many as there are processors, unless a limit of memory has room for fewer.
    fn threads(&self, memory_max: Option<u64>, item_max: u64, said: &Said) -> Result<usize> {
        let fitting = memory_max.map_or(u64::MAX, |max| Beside::of(max).threads(item_max));
        let usual = || {
            let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            processors.min(1024).min(fitting as usize)
        };
        let threads = said.threads.unwrap_or_else(usual);
        self.within("threads", threads, 1..=1024, "from 1 to 1024")?;
        let allowed = format!(
            "at most {fitting}, so that the process stays below one and a quarter of memory-max and 32MiB; or a smaller \
             item-max ({item_max}) or a larger memory-max ({})",
            memory_max.unwrap_or_default()
        );
        self.within("threads", threads, ..=fitting as usize, &allowed)
    }

    /// An item that is longer than all memory for records could never be stored.
    fn item_max(&self, memory_max: Option<u64>, said: &Said) -> Result<u64> {
        let memory = memory_max.unwrap_or(u64::MAX);
        let item_max = said.item_max.map_or(MIB.min(memory), |size| size.0);
        let range = 1 << 10..=1 << 30;
        self.within("item-max", item_max, range, "from 1KiB to 1GiB")?;
        let allowed = format!("at most {memory}, the memory for records (memory-max)");
        self.within("item-max", item_max, ..=memory, &allowed)?;
        let fitting = memory_max.map_or(u64::MAX, |max| Beside::of(max).item());
        let allowed = format!(
            "at most {fitting}, so that the process stays below one and a quarter of memory-max and 32MiB; or a larger \
             memory-max ({memory})"
        );
        self.within("item-max", item_max, ..=fitting, &allowed)
    }

    /// What connections may take. Each thread has a share of the buffers, into which the longest item fits on its way in or
    /// out; under a limit of memory there is no more than that leaves.
    fn buffers_max(
        &self,
        threads: usize,
        item_max: u64,
        memory_max: Option<u64>,
        said: &Said,
    ) -> Result<usize> {
        let threads = threads as u64;
        let least = threads * Beside::share(item_max);
        let most = memory_max.map_or(u64::MAX, |max| Beside::of(max).buffers(threads, item_max));
        let usual = memory_max.map_or(256 * MIB, |max| (256 * MIB).min(max / 4));
        let buffers_max = said
            .buffers_max
            .map_or(least.max(usual).min(most), |size| size.0);
        let allowed =
            format!("at least {least}: for each thread an item as long as item-max and 1MiB");
        self.within("buffers-max", buffers_max, least.., &allowed)?;
        let allowed = format!(
            "at most {most}, so that the process stays below one and a quarter of memory-max and 32MiB; or fewer threads \
             ({threads}), a smaller item-max ({item_max}) or a larger memory-max"
        );
        Ok(self.within("buffers-max", buffers_max, ..=most, &allowed)? as usize)
    }

    fn limits(
        &self,
        threads: usize,
        item_max: u64,
        memory_max: Option<u64>,
        said: &Said,
    ) -> Result<Limits> {
        let connections_max = said.connections_max.unwrap_or(1024);
        Ok(Limits {
            connections_max: self.within("connections-max", connections_max, 1.., "at least 1")?,
            idle_s: said.idle_s.unwrap_or(0),
            stall_s: said.stall_s.unwrap_or(30),
            per_address_max: self.within(
                "connections-per-address",
                said.connections_per_address
                    .unwrap_or_else(|| (connections_max - connections_max / 4).max(1)),
                1..,
                "at least 1",
            )?,
            operator_connections: said.operator_connections.unwrap_or(4),
            operators: said
                .operator
                .clone()
                .unwrap_or_else(|| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
            grace_s: said.grace_s.unwrap_or(1),
            buffers_max: self.buffers_max(threads, item_max, memory_max, said)?,
            slow_ms: said.slow_ms.unwrap_or(0),
        })
    }

    fn listen(&self, said: &Said) -> Result<Vec<Address>> {
        let usual = || {
            vec![Address::Tcp(
                SocketAddr::from(([127, 0, 0, 1], 11211)).into(),
            )]
        };
        let listen = said.listen.clone().unwrap_or_else(usual);
        if listen.is_empty() {
            return Err(self.fail("listen", &"no address", "at least one"));
        }
        for (one, index) in listen.iter().zip(0..) {
            if listen.iter().take(index).any(|other| excludes(one, other)) {
                return Err(self.fail("listen", one, "each address once"));
            }
        }
        let metrics = said.metrics.clone().map(Address::Tcp);
        match metrics.filter(|at| listen.iter().any(|one| excludes(one, at))) {
            Some(metrics) => Err(self.fail("metrics", &metrics, "none of `listen`")),
            None => Ok(listen),
        }
    }

    /// The files of the certificate, if there is to be one.
    fn certificate(&self, listen: &[Address], said: &Said) -> Result<Option<Certificate>> {
        let lacks = |key: &str, what: &str| {
            Err(Error::new(Kind::Invalid, format!("{key} is not said")).remedy(what))
        };
        let encrypted = listen.iter().any(|at| matches!(at, Address::Tls(_)));
        let files = [
            ("certificate", &said.certificate),
            ("key", &said.key),
            ("client-authority", &said.client_authority),
        ];
        let named = files
            .iter()
            .find_map(|(key, file)| Some((key, file.as_ref()?)));
        if let (Some((key, file)), false) = (named, encrypted) {
            let allowed = "it for an address tls:HOST:PORT of `listen`, of which there is none";
            return Err(self.fail(key, &file.display(), allowed));
        }
        match (&said.certificate, &said.key) {
            (Some(chain), Some(key)) => Ok(Some(Certificate {
                chain: chain.clone(),
                key: key.clone(),
                client_authority: said.client_authority.clone(),
            })),
            (None, None) if !encrypted => Ok(None),
            (None, _) => lacks("certificate", "TLS needs its file, and that of the key"),
            (Some(_), None) => lacks("key", "the certificate needs the file of its key"),
        }
    }
}

/// A form that a value may be expected to have.
const LIST: &str = "a list in brackets";

/// What a reader of the file complains of at a key; of a list with its form.
fn of_key(key: &str, message: &str) -> String {
    let words = in_words(message);
    let one = match key {
        "listen" => "127.0.0.1:11211",
        "operator" => "10.0.0.7",
        _ => return format!("{key}: {words}"),
    };
    if words.ends_with(LIST) {
        return format!("{key}: {words}: {key} = [\"{one}\"]");
    }
    if words == "invalid IP address syntax" {
        return format!("{key}: each is an IP address without a port: {key} = [\"{one}\"]");
    }
    format!("{key}: {words}")
}

/// What a reader of the file complains of, in words of those who write it.
fn in_words(message: &str) -> String {
    if message.starts_with("string values must be quoted") {
        return "a text must stand in quotes".into();
    }
    let Some((found, expected)) = message.split_once(", expected ") else {
        return message.replace("unknown field", "unknown key");
    };
    let (found, expected) = (
        found
            .trim_start_matches("invalid type: ")
            .trim_start_matches("invalid value: "),
        match expected {
            "u32" => "a number from 0 to 4294967295",
            "u64" | "usize" => "a number without a sign or a fraction",
            "a boolean" => "true or false",
            "a string" | "path string" => "a text in quotes",
            "a sequence" => LIST,
            other => other,
        },
    );
    if let Some(key) = found.strip_prefix("unknown field ") {
        return format!("unknown key {key}, expected {expected}");
    }
    if let Some(word) = found.strip_prefix("unknown variant ") {
        return format!("found {word}, expected {expected}");
    }
    let found = match found.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer", number)) => format!("the number {number}"),
        Some(("floating", number)) => {
            format!("the number {}", number.trim_start_matches("point "))
        }
        Some(("boolean", word)) => word.to_owned(),
        _ => found
            .replace("sequence", "a list")
            .replace("map", "a table"),
    };
    format!("found {found}, expected {expected}")
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
        let text = "listen = [\"127.0.0.1:0\", \"udp:127.0.0.1:0\", \"unix:/x/y\"]\nthreads = 3\ncapacity = \"2TiB\"\n\
                    item-max = \"2MiB\"\nbuffers-max = 20000000\nidle-s = 60\nunix-mode = 660\n";
        let flags = Said {
            threads: Some(5),
            ..Said::default()
        };
        let config = read(text, flags).unwrap();
        assert_eq!(
            (config.threads, config.item_max, config.unix_mode),
            (5, 2 << 20, 0o660)
        );
        assert_eq!(config.capacity, Some(2 << 40));
        assert_eq!(
            (config.limits.idle_s, config.limits.buffers_max),
            (60, 20_000_000)
        );
        let words: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["127.0.0.1:0", "udp:127.0.0.1:0", "unix:/x/y"]);
    }

    #[test]
    fn buffers_grow_with_the_longest_item_unless_that_is_said() {
        let text = "threads = 4\nitem-max = \"1GiB\"\n";
        let config = read(text, Said::default()).unwrap();
        assert_eq!(config.limits.buffers_max, 4 * (1025 << 20));
        let usual = read("threads = 4\n", Said::default()).unwrap();
        assert_eq!(usual.limits.buffers_max, 256 << 20);
        // Where memory is bounded, so are they.
        let cache = read("threads = 2\nengine = \"cache\"\n", Said::default()).unwrap();
        assert_eq!(cache.limits.buffers_max, 15 << 20);
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
                [
                    "line 1",
                    "threads",
                    "found the text \"many\", expected a number",
                ],
            ),
            ("\n\nthreads = 0\n", ["line 3", "threads", "from 1 to 1024"]),
            ("item-max = 5\n", ["line 1", "item-max", "1KiB"]),
            (
                "capacity = 65537\n",
                ["line 1", "capacity", "expected at least 159744"],
            ),
            (
                "capacity = 200001\n",
                [
                    "line 1",
                    "capacity",
                    "(found 200001, expected a multiple of 4KiB)",
                ],
            ),
            (
                "capacity = \"16TiB\"\n",
                [
                    "line 1",
                    "capacity",
                    "(found 17592186044416, expected at most 8TiB)",
                ],
            ),
            (
                "engine = \"tiny\"\ncapacity = \"1GiB\"\n",
                ["line 2", "capacity", "in memory: see memory-max"],
            ),
            (
                "engine = \"cache\"\nitem-max = \"65MiB\"\n",
                ["line 2", "item-max", "at most 67108864, the memory"],
            ),
            (
                "connections-per-address = 0\n",
                ["line 1", "connections-per-address", "at least 1"],
            ),
            ("operator = [\"here\"]\n", ["line 1", "operator", "IP"]),
            (
                "operator = \"10.1.2.3\"\n",
                [
                    "line 1: operator: found the text",
                    "expected a list in brackets: ",
                    "operator = [\"10.0.0.7\"]",
                ],
            ),
            (
                "listen = 11211\n",
                [
                    "line 1: listen: found the number",
                    "expected a list in brackets: ",
                    "listen = [\"127.0.0.1:11211\"]",
                ],
            ),
            (
                "listen = [\"127.0.0.1:70000\"]\n",
                [
                    "line 1",
                    "listen",
                    "the port of `127.0.0.1:70000` is not from 0 to 65535",
                ],
            ),
            (
                "metrics = \"nowhere.invalid:80\"\n",
                [
                    "line 1",
                    "metrics",
                    "the host of `nowhere.invalid:80` is not found: ",
                ],
            ),
            ("item-max = \"5 MB\"\n", ["line 1", "item-max", "KiB"]),
            (
                "threads = 2\nitem-max = \"64MiB\"\nbuffers-max = \"128MiB\"\n",
                [
                    "line 3",
                    "buffers-max",
                    "at least 136314880: for each thread",
                ],
            ),
            (
                "engine = \"cache\"\nthreads = 48\n",
                [
                    "line 2",
                    "threads",
                    "found 48, expected at most 4, so that the process stays below one and a quarter of memory-max and \
                     32MiB; or a smaller item-max (1048576) or a larger memory-max (67108864)",
                ],
            ),
            (
                "engine = \"cache\"\nthreads = 2\nbuffers-max = \"96MiB\"\n",
                [
                    "line 3",
                    "buffers-max",
                    "found 100663296, expected at most 15728640, so that the process stays below",
                ],
            ),
            (
                "engine = \"cache\"\nitem-max = \"7MiB\"\n",
                [
                    "line 2",
                    "item-max",
                    "expected at most 6466218, so that the process stays below",
                ],
            ),
            (
                "listen = [\n  \"127.0.0.1:0\",\n\"nowhere\",\n]\n",
                ["line 1", "listen: `nowhere`", "unix:PATH"],
            ),
            (
                "\nengine = hash\n",
                ["line 2", "engine", "must stand in quotes"],
            ),
            (
                "idle-s = 99999999999\n",
                ["line 1", "idle-s", "expected a number from 0 to 4294967295"],
            ),
            (
                "connections-max = 0\n",
                ["line 1", "connections-max", "at least 1"],
            ),
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
            (
                "idle-s = -1\n",
                [
                    "line 1",
                    "idle-s",
                    "found the number `-1`, expected a number",
                ],
            ),
            (
                "flush = 1\n",
                [
                    "line 1",
                    "flush",
                    "found the number `1`, expected true or false",
                ],
            ),
            (
                "listen = 1\n",
                ["line 1", "listen", "expected a list in brackets"],
            ),
            (
                "data = [1]\n",
                ["line 1", "data", "found a list, expected a text in quotes"],
            ),
            (
                "engine = \"cache\"\ndata = \"x\"\n",
                ["line 2", "data", "as the engine is in memory"],
            ),
            (
                "engine = \"cache\"\nsync-interval = 5\n",
                ["line 2", "sync-interval", "as the engine is in memory"],
            ),
            ("unix-mode = 999\n", ["line 1", "unix-mode", "0 to 7"]),
            ("data = \"\"\n", ["line 1", "data", "the path of a folder"]),
            (
                "listen = [\"127.0.0.1:7\", \"tls:127.0.0.1:7\"]\n",
                ["line 1", "listen", "found tls:127.0.0.1:7, expected each"],
            ),
            (
                "listen = [\"unix:a\", \"unix:a\"]\n",
                ["line 1", "listen", "unix:a"],
            ),
            (
                "metrics = \"127.0.0.1:11211\"\n",
                ["line 1", "metrics", "none of `listen`"],
            ),
            (
                "\nkey = \"k\"\n",
                ["line 2", "key", "tls:HOST:PORT of `listen`"],
            ),
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
