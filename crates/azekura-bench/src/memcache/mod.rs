//! The load of a memcached server: phases of sets, gets and removals over many connections, by its protocols.
//!
//! Without flags it is the published experiment of Flare: keys `test00000000` and on, values of 50 bytes, 40
//! connections that wait for each answer, all records set in order, then got at random. In a closed loop each
//! connection keeps `depth` requests in flight; with `--rate` requests are due at fixed times, whether the server
//! keeps up or not, and their latency counts from then. Every answer is compared with the one expected.
//!
//! ```text
//!   suite ----> servers (ours and others, started)
//!     v
//!   mod (flags, phases) ----> client (connections, clocks) ----> wire (requests and answers as bytes)
//!                                 `-------------------------> azekura_wire::Stream (plain or encrypted)
//! ```
//!
//! It works with any server of the protocol, and knows nothing of how ours works. A server of Redis is loaded the same way, to
//! compare with.

mod client;
mod servers;
mod suite;
mod wire;

pub use suite::{SuitePlan, suite};
pub use wire::Protocol;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use azekura::error::{Error, Kind, Result};
use azekura_wire::{Address, Trust};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::generate::{Source, Values};
use crate::measure::Latency;
use crate::phase::{Details, Memcache, Phase};
use crate::plan::Order;
use crate::report::{self, Output};
use crate::threads::together;
use crate::words::{between, refused, word};
use client::Client;

/// Longest key of the protocol.
const KEY_LEN_MAX: usize = 250;

/// The flags of `memcache`.
#[derive(Clone, Debug, Args)]
pub struct MemcachePlan {
    /// The server
    #[arg(
        long,
        value_name = "HOST:PORT|tls:HOST:PORT|unix:PATH",
        default_value = "127.0.0.1:11211"
    )]
    pub address: Address,
    /// The certificate of a tls: server, or of its signer, in PEM
    #[arg(long, value_name = "FILE")]
    pub authority: Option<PathBuf>,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub connections: u64,
    /// Threads that share the connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u64,
    /// Requests in flight on each connection (pipeline depth)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: usize,
    /// The phases
    #[arg(long, value_enum, value_delimiter = ',', default_value = "set,get")]
    pub ops: Vec<Operation>,
    /// Distinct keys
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    pub records: u64,
    /// Records that each phase sets or gets [default: --records]
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Order of the keys [default: sequential for a phase `set`, random for others]
    #[arg(long, value_enum)]
    pub order: Option<Order>,
    /// Prefix of each key
    #[arg(long, value_name = "TEXT", default_value = "test")]
    pub key_prefix: String,
    /// Bytes of a key, with its prefix
    #[arg(long, value_name = "BYTES", default_value_t = 12)]
    pub key_size: usize,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 50)]
    pub value_size: usize,
    /// Keys per get
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub batch: usize,
    /// Percent of a phase `mix` that are sets
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    pub sets: u64,
    /// The protocol
    #[arg(long, value_enum, default_value_t = Protocol::Text)]
    pub protocol: Protocol,
    /// Requests due each second, sent whether or not the server keeps up
    #[arg(long, value_name = "N")]
    pub rate: Option<u64>,
    /// The server's process, to measure its processor time too
    #[arg(long, value_name = "PID")]
    pub server: Option<u32>,
    /// Verify the length of a value only, not its bytes
    #[arg(long)]
    pub no_verify: bool,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// JSON objects instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What a phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Store records
    Set,
    /// Get records
    Get,
    /// Either, by `--sets`
    Mix,
    /// Remove records
    Remove,
}

impl MemcachePlan {
    /// Whether the flags fit together; `Invalid` if they do not.
    fn check(&self) -> Result<()> {
        for (flag, value) in [
            ("--connections", self.connections),
            ("--depth", self.depth as u64),
            ("--batch", self.batch as u64),
            ("--records", self.records),
            ("--rate", self.rate.unwrap_or(1)),
        ] {
            between(flag, value, 1, u32::MAX.into())?;
        }
        between("--threads", self.threads, 1, self.connections)?;
        between("--sets", self.sets, 0, 100)?;
        if matches!(self.address, Address::Udp(_)) {
            return refused(
                "no load by datagrams",
                "--address is HOST:PORT, tls:HOST:PORT or unix:PATH",
            );
        }
        if self.authority.is_some() && !matches!(self.address, Address::Tls(_)) {
            return refused(
                "certificates are of encrypted connections only",
                "leave out --authority, or put tls: before the address",
            );
        }
        let digits = (self.records - 1).checked_ilog10().unwrap_or(0) as usize + 1;
        if self.key_size > KEY_LEN_MAX || self.key_size < self.key_prefix.len() + digits {
            return Err(
                Error::new(Kind::Invalid, "the size of a key is out of range")
                    .found(
                        format!("{} bytes", self.key_size),
                        format!(
                            "the prefix and {digits} digits, at most {KEY_LEN_MAX} bytes in all"
                        ),
                    )
                    .remedy("choose another --key-size, --key-prefix or number of --records"),
            );
        }
        let plain = |byte: u8| byte.is_ascii_graphic();
        if !self.key_prefix.bytes().all(plain) {
            return refused(
                "invalid prefix of a key",
                "--key-prefix must be printable characters without spaces",
            );
        }
        Ok(())
    }

    fn count(&self) -> u64 {
        self.count.unwrap_or(self.records)
    }
}

/// What one thread of a phase did.
#[derive(Default)]
struct Done {
    hits: u64,
    bytes: u64,
    latency: Latency,
}

/// Runs the phases of `plan` and prints each.
///
/// Errors: `Invalid` (flags that do not fit together, a server that is not believed), `Io` (no connection, or no answer for a minute), `Corrupted`
/// (an answer that is not the expected one).
pub fn memcache(plan: &MemcachePlan) -> Result<()> {
    plan.check()?;
    let load = Load::new(plan)?;
    let mut output = Output::new(plan.json);
    for operation in &plan.ops {
        output.phase(&load.phase(*operation)?)?;
    }
    output.finish()
}

/// What all phases share.
struct Load<'p> {
    plan: &'p MemcachePlan,
    values: Values,
    /// What authenticates the server, if it is encrypted.
    trust: Option<Trust>,
}

impl<'p> Load<'p> {
    fn new(plan: &'p MemcachePlan) -> Result<Self> {
        let trust = match &plan.address {
            Address::Tls(host) => Some(Trust::new(host, plan.authority.as_deref(), None)?),
            _ => None,
        };
        Ok(Self {
            plan,
            values: Values::new(plan.value_size),
            trust,
        })
    }

    fn order(&self, operation: Operation) -> Order {
        let usual = if operation == Operation::Set {
            Order::Sequential
        } else {
            Order::Random
        };
        self.plan.order.unwrap_or(usual)
    }

    fn phase(&self, operation: Operation) -> Result<Phase> {
        let (plan, count) = (self.plan, self.plan.count());
        let bar = report::progress(&word(&operation), count, plan.json);
        let order = self.order(operation);
        let source = Source::new(order, plan.records);
        // All are connected before the first of them sends.
        let ran = together(
            plan.threads,
            |thread| Client::connect(self, operation, thread, &source),
            |client| client.run(&bar),
            || Ok(()),
            || server_seconds(plan.server),
        );
        bar.finish_and_clear();
        let ran = ran?;
        let mut done = Done::default();
        for one in ran.results {
            done.hits += one.hits;
            done.bytes += one.bytes;
            done.latency.merge(&one.latency);
        }
        let (before, now) = ran.clock;
        Ok(Phase {
            engine: "memcache".into(),
            op: word(&operation),
            details: Details::Memcache(Memcache {
                order,
                records: plan.records,
                batch: (plan.batch > 1).then_some(plan.batch as u64),
                connections: plan.connections,
                depth: plan.depth as u64,
                protocol: plan.protocol,
                rate: plan.rate,
                server_cpu_seconds: now.zip(before).map(|(now, before)| now - before),
            }),
            threads: plan.threads,
            count,
            key_size: Some(plan.key_size as u64),
            value_size: Some(plan.value_size as u64),
            seconds: ran.seconds,
            ops_per_second: count as f64 / ran.seconds,
            bytes_per_second: Some(done.bytes as f64 / ran.seconds),
            cpu_seconds: ran.cpu,
            latency_us: done.latency.percentiles(),
            hits: (operation != Operation::Set).then_some(done.hits),
            ..Phase::default()
        })
    }
}

/// Processor seconds of another process so far, in steps of the system's tick; `None` if it cannot be read.
fn server_seconds(process: Option<u32>) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process?)).ok()?;
    ticks(&stat).map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The ticks in the user's and the system's part of a process, from the kernel's line about it.
fn ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name, in parentheses, and may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// When the `index`-th request is due at `rate` a second.
fn due(start: Instant, index: u64, rate: f64) -> Instant {
    start + Duration::from_secs_f64(index as f64 / rate)
}

#[cfg(test)]
mod tests {
    use super::wire::Keys;
    use super::*;
    use crate::words::read_flags;
    fn plan(flags: &str) -> MemcachePlan {
        read_flags(flags).unwrap()
    }

    #[test]
    fn without_flags_it_is_the_published_experiment() {
        let plan = plan("");
        plan.check().unwrap();
        assert_eq!(
            (plan.connections, plan.depth, plan.count(), plan.value_size),
            (40, 1, 4_000_000, 50)
        );
        assert_eq!(plan.ops, [Operation::Set, Operation::Get]);
        let mut keys = Keys::new(&plan.key_prefix, plan.key_size);
        assert_eq!(keys.of(3_999_999), b"test03999999");
        assert_eq!(keys.of(7), b"test00000007");
    }

    #[test]
    fn flags_that_do_not_fit_together_are_refused() {
        for flags in [
            "--depth 0",
            "--threads 41",
            "--sets 101",
            "--rate 0",
            "--key-size 6",
            "--key-size 251",
            "--key-prefix \u{1}",
        ] {
            let error = plan(flags).check().unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{flags}");
        }
    }

    #[test]
    fn processor_time_of_a_process_is_read_behind_its_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (a"), None);
    }
}
