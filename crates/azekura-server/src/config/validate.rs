//! Checks the values of a configuration against one another, before anything is opened.
//!
//! An error names the origin of the value (the line of the file, or the flag), the key, what was found and what is allowed.
//! It opens nothing.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeBounds;

use azekura::error::{Error, Kind, Result};
use azekura::record::hash::HashDb;
use azekura_wire::Address;

use super::memory_budget::{MIB, MemoryBudget};
use super::raw::{DurabilityLevel, Engine, RawConfig, Size, excludes};
use super::source::Source;
use super::{Certificate, Limits};

/// Largest file of records.
const CAPACITY_MAX: Size = Size(1 << 43);

/// Default memory of a cache: memcached's.
const CACHE_MEMORY: u64 = 64 * MIB;

/// Checks values. An error names the line or the flag, the key, what was found and what is allowed.
pub(super) struct Validator<'s>(pub(super) Option<&'s Source<'s>>);

impl Validator<'_> {
    /// The origin of `key`: the line of the file, or the flag.
    pub(super) fn origin(&self, key: &str) -> String {
        // What the file does not set, a flag does.
        let line = self.0.and_then(|source| Some((source, source.line(key)?)));
        match line {
            Some((source, line)) => format!("{} line {line}: {key}", source.path.display()),
            None => format!("--{key}"),
        }
    }

    fn fail(&self, key: &str, found: &dyn fmt::Display, allowed: &str) -> Error {
        let at = self.origin(key);
        Error::new(Kind::Invalid, format!("{at} is not allowed")).found(found, allowed)
    }

    /// What an acknowledged write survives.
    pub(super) fn durability(&self, engine: Engine, raw: &RawConfig) -> Result<DurabilityLevel> {
        let fail =
            |found: DurabilityLevel, allowed| Err(self.fail("durability", &found.word(), allowed));
        match (engine, raw.durability) {
            (Engine::Hash | Engine::Tree, None) => Ok(DurabilityLevel::Process),
            (Engine::Hash | Engine::Tree, Some(DurabilityLevel::None)) => fail(
                DurabilityLevel::None,
                "process or power, as the engine is in a file",
            ),
            (Engine::Hash | Engine::Tree, Some(survives)) => Ok(survives),
            (_, None | Some(DurabilityLevel::None)) => Ok(DurabilityLevel::None),
            (_, Some(survives)) => fail(
                survives,
                "none, as the engine is in memory; or the engine hash",
            ),
        }
    }

    /// The options of a file need an engine in one.
    pub(super) fn data(&self, engine: Engine, raw: &RawConfig) -> Result<()> {
        if engine.is_in_file() {
            let empty = raw
                .data
                .as_ref()
                .is_some_and(|data| data.as_os_str().is_empty());
            let fail = || self.fail("data", &"an empty text", "the path of a folder");
            return if empty { Err(fail()) } else { Ok(()) };
        }
        let allowed = "nothing, as the engine is in memory; or the engine hash";
        if let Some(data) = &raw.data {
            return Err(self.fail("data", &data.display(), allowed));
        }
        match raw.sync_interval {
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

    pub(super) fn memory_max(&self, engine: Engine, raw: &RawConfig) -> Result<Option<u64>> {
        let (key, allowed) = ("memory-max", "nothing, as the engine is in a file");
        match (engine, raw.memory_max) {
            (Engine::Cache, None) => Ok(Some(CACHE_MEMORY)),
            (_, None) => Ok(None),
            (Engine::Hash | Engine::Tree, Some(size)) => Err(self.fail(key, &size, allowed)),
            (_, Some(size)) => {
                let Size(bytes) = self.within(key, size, Size(MIB).., "at least 1MiB")?;
                Ok(Some(bytes))
            }
        }
    }

    /// Whether it suffices for the segments of an existing file is checked when that is opened.
    pub(super) fn capacity(&self, engine: Engine, raw: &RawConfig) -> Result<Option<u64>> {
        let Some(size) = raw.capacity else {
            return Ok(None);
        };
        if !engine.is_in_file() {
            let allowed = "nothing, as the engine is in memory: see memory-max";
            return Err(self.fail("capacity", &size, allowed));
        }
        let least = Size(HashDb::least_capacity(4096));
        let allowed = format!("at least {least}");
        self.within("capacity", size, least.., &allowed)?;
        self.within("capacity", size, ..=CAPACITY_MAX, "at most 8TiB")?;
        if size.0.is_multiple_of(4096) {
            return Ok(Some(size.0));
        }
        Err(self.fail("capacity", &size, "a multiple of 4KiB"))
    }

    /// One per CPU, or fewer if the memory limit requires that.
    pub(super) fn threads(
        &self,
        memory_max: Option<u64>,
        item_max: u64,
        raw: &RawConfig,
    ) -> Result<usize> {
        let fitting = memory_max.map_or(u64::MAX, |max| MemoryBudget::of(max).threads(item_max));
        let usual = || {
            let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            processors.min(1024).min(fitting as usize)
        };
        let threads = raw.threads.unwrap_or_else(usual);
        self.within("threads", threads, 1..=1024, "from 1 to 1024")?;
        let allowed = format!(
            "at most {fitting}, so that the process stays below one and a quarter of memory-max and 32MiB; or a smaller \
             item-max ({}) or a larger memory-max ({})",
            Size(item_max),
            Size(memory_max.unwrap_or_default())
        );
        self.within("threads", threads, ..=fitting as usize, &allowed)
    }

    /// An item that is longer than all room for records could never be stored.
    pub(super) fn item_max(
        &self,
        memory_max: Option<u64>,
        capacity: Option<u64>,
        raw: &RawConfig,
    ) -> Result<u64> {
        let room = Size(memory_max.or(capacity).unwrap_or(u64::MAX));
        let item_max = raw.item_max.unwrap_or(Size(MIB).min(room));
        let range = Size(1 << 10)..=Size(1 << 30);
        self.within("item-max", item_max, range, "from 1KiB to 1GiB")?;
        let of_room = match memory_max {
            Some(_) => "the memory for records (memory-max)",
            None => "the size of the data file (capacity)",
        };
        let allowed = format!("at most {room}, {of_room}");
        self.within("item-max", item_max, ..=room, &allowed)?;
        let fitting = memory_max.map_or(u64::MAX, |max| MemoryBudget::of(max).item());
        let fitting = Size(fitting);
        let allowed = format!(
            "at most {fitting}, so that the process stays below one and a quarter of memory-max and 32MiB; or a larger \
             memory-max ({room})"
        );
        Ok(self.within("item-max", item_max, ..=fitting, &allowed)?.0)
    }

    /// What connections may take. Each thread has a share of the buffers, into which the longest item fits on its way in or
    /// out; under a memory limit there is no more than that leaves.
    fn buffers_max(
        &self,
        threads: usize,
        item_max: u64,
        memory_max: Option<u64>,
        raw: &RawConfig,
    ) -> Result<usize> {
        let threads = threads as u64;
        let least = Size(threads * MemoryBudget::share(item_max));
        let most = Size(memory_max.map_or(u64::MAX, |max| {
            MemoryBudget::of(max).buffers(threads, item_max)
        }));
        let usual = Size(memory_max.map_or(256 * MIB, |max| (256 * MIB).min(max / 4)));
        let buffers_max = raw.buffers_max.unwrap_or(least.max(usual).min(most));
        let allowed =
            format!("at least {least}: for each thread an item as long as item-max and 1MiB");
        self.within("buffers-max", buffers_max, least.., &allowed)?;
        let allowed = format!(
            "at most {most}, so that the process stays below one and a quarter of memory-max and 32MiB; or fewer threads \
             ({threads}), a smaller item-max ({}) or a larger memory-max",
            Size(item_max)
        );
        Ok(self
            .within("buffers-max", buffers_max, ..=most, &allowed)?
            .0 as usize)
    }

    pub(super) fn limits(
        &self,
        threads: usize,
        item_max: u64,
        memory_max: Option<u64>,
        raw: &RawConfig,
    ) -> Result<Limits> {
        let connections_max = raw.connections_max.unwrap_or(1024);
        Ok(Limits {
            connections_max: self.within("connections-max", connections_max, 1.., "at least 1")?,
            idle_s: raw.idle_s.unwrap_or(0),
            stall_s: raw.stall_s.unwrap_or(30),
            per_address_max: self.within(
                "connections-per-address",
                raw.connections_per_address
                    .unwrap_or_else(|| (connections_max - connections_max / 4).max(1)),
                1..,
                "at least 1",
            )?,
            operator_connections: raw.operator_connections.unwrap_or(4),
            operators: raw
                .operator
                .clone()
                .unwrap_or_else(|| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
            grace_s: raw.grace_s.unwrap_or(1),
            buffers_max: self.buffers_max(threads, item_max, memory_max, raw)?,
            slow_ms: raw.slow_ms.unwrap_or(0),
        })
    }

    pub(super) fn listen(&self, raw: &RawConfig) -> Result<Vec<Address>> {
        let usual = || {
            vec![Address::Tcp(
                SocketAddr::from(([127, 0, 0, 1], 11211)).into(),
            )]
        };
        let listen = raw.listen.clone().unwrap_or_else(usual);
        if listen.is_empty() {
            return Err(self.fail("listen", &"no address", "at least one"));
        }
        for (one, index) in listen.iter().zip(0..) {
            if listen.iter().take(index).any(|other| excludes(one, other)) {
                return Err(self.fail("listen", one, "each address once"));
            }
        }
        let metrics = raw.metrics.clone().map(Address::Tcp);
        match metrics.filter(|at| listen.iter().any(|one| excludes(one, at))) {
            Some(metrics) => Err(self.fail("metrics", &metrics, "none of `listen`")),
            None => Ok(listen),
        }
    }

    /// The files of the certificate, if there is to be one.
    pub(super) fn certificate(
        &self,
        listen: &[Address],
        raw: &RawConfig,
    ) -> Result<Option<Certificate>> {
        let missing = |flag: &str| {
            Err(Error::new(Kind::Invalid, format!("missing {flag}"))
                .remedy("a tls: address needs --certificate and --key"))
        };
        let encrypted = listen.iter().any(|at| matches!(at, Address::Tls(_)));
        let files = [
            ("certificate", &raw.certificate),
            ("key", &raw.key),
            ("client-authority", &raw.client_authority),
        ];
        let named = files
            .iter()
            .find_map(|(key, file)| Some((key, file.as_ref()?)));
        if let (Some((key, file)), false) = (named, encrypted) {
            let allowed = "it for an address tls:HOST:PORT of `listen`, of which there is none";
            return Err(self.fail(key, &file.display(), allowed));
        }
        match (&raw.certificate, &raw.key) {
            (Some(chain), Some(key)) => Ok(Some(Certificate {
                chain: chain.clone(),
                key: key.clone(),
                client_authority: raw.client_authority.clone(),
            })),
            (None, None) if !encrypted => Ok(None),
            (None, _) => missing("--certificate"),
            (Some(_), None) => missing("--key"),
        }
    }
}
