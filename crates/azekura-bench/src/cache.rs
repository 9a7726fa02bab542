//! The hit ratio of caches: a trace of keys, each looked up and put if it is absent.
//!
//! Traces: `zipf`, some keys very often; `scan`, the same, with long runs of keys that never come again in between;
//! `loop`, keys in turn, a quarter more than fit; or a file, one key a line. [`run`] drives any [`Cached`] store
//! over it and over the exact LRU of the same capacity, which is the measure. Rates are of one thread, with
//! the trace made before. It knows no cache but that LRU.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use azekura::error::{Error, Kind, Result, size};
use azekura::record::cache::CacheDb;
use clap::Args;

use crate::generate::Choice;
use crate::measure::cpu_seconds;
use crate::phase::{Cache, Details, Phase};
use crate::report::Output;
use crate::words::between;

/// A cache as a trace drives it.
pub trait Cached {
    /// Whether `key` is there.
    fn get(&self, key: &[u8]) -> Result<bool>;
    /// Puts `key` with a value of 8 bytes.
    fn put(&self, key: &[u8]) -> Result<()>;
    /// Returns when what was put is all accounted for, in caches that do so later.
    fn finish_pending(&self) {}
}

/// What is put under every key.
pub const VALUE: &[u8; 8] = b"8 bytes.";

/// The flags of `cache`.
#[derive(Clone, Debug, Args)]
pub struct CachePlan {
    /// The trace: zipf, scan, loop, or a file with one key a line
    #[arg(long, value_name = "zipf|scan|loop|FILE")]
    pub trace: Trace,
    /// Records the cache may hold
    #[arg(long, value_name = "N")]
    pub capacity: u64,
    /// Lookups; of a file, one for each line that is not empty
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub count: u64,
    /// Distinct keys of zipf and scan
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub keys: u64,
    /// How uneven zipf is
    #[arg(long, value_name = "THETA", default_value_t = 0.99)]
    pub theta: f64,
    /// Decides every choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// A trace of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Some keys very often.
    Zipf,
    /// The same, and scans.
    Scan,
    /// Keys in turn.
    Loop,
    /// Keys from a file.
    File(PathBuf),
}

impl FromStr for Trace {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> std::result::Result<Self, Self::Err> {
        Ok(match word {
            "zipf" => Self::Zipf,
            "scan" => Self::Scan,
            "loop" => Self::Loop,
            path => Self::File(path.into()),
        })
    }
}

impl CachePlan {
    /// The keys of the trace, in order, by number.
    ///
    /// Errors: `Invalid` for a capacity of zero or an empty trace, `Io` if the file cannot be read, `Full` if there is no
    /// memory for the trace.
    pub fn keys(&self) -> Result<Keys> {
        for (flag, value) in [
            ("--capacity", self.capacity),
            ("--keys", self.keys),
            ("--count", self.count),
        ] {
            between(flag, value, 1, u64::MAX)?;
        }
        if !(self.theta > 0.0 && self.theta < 5.0) {
            return Err(
                Error::new(Kind::Invalid, "no such theta").found(self.theta, "above 0, below 5")
            );
        }
        if let Trace::File(path) = &self.trace {
            return Keys::of_file(path);
        }
        let mut numbers = Vec::new();
        numbers
            .try_reserve_exact(self.count as usize)
            .map_err(|_| {
                Error::new(Kind::Full, "no memory for a trace of so many lookups")
                    .found(self.count, "8 bytes for each")
                    .remedy("ask for a lower --count")
            })?;
        let mut choice = Choice::new(self.seed);
        let zipf = Zipf::new(self.keys, self.theta);
        // A third of the time, runs of half the capacity.
        let run = (self.capacity / 2).max(1);
        let mut fresh = self.keys;
        let round = self.capacity.saturating_add(self.capacity.div_ceil(4));
        numbers.extend((0..self.count).map(|at| match self.trace {
            Trace::Loop => at % round,
            Trace::Scan if at % run.saturating_mul(3) / run == 2 => {
                fresh = fresh.wrapping_add(1);
                fresh.wrapping_sub(1)
            }
            _ => zipf.draw(&mut choice),
        }));
        Ok(Keys {
            numbers,
            words: Vec::new(),
        })
    }
}

/// A trace.
pub struct Keys {
    numbers: Vec<u64>,
    /// Of a file, the key that each number stands for; else the number is the key.
    words: Vec<Vec<u8>>,
}

impl Keys {
    fn of_file(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path)
            .map_err(|e| Error::io(format!("cannot read the trace {}", path.display()), e))?;
        let (mut numbers, mut words) = (Vec::new(), Vec::new());
        let mut known = HashMap::new();
        for line in bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let next = words.len() as u64;
            let number = *known.entry(line).or_insert(next);
            if number == next {
                words.push(line.to_vec());
            }
            numbers.push(number);
        }
        if numbers.is_empty() {
            let empty = Error::new(Kind::Invalid, "a trace without a key").at(path);
            return Err(empty.found(size(bytes.len() as u64), "a key a line"));
        }
        Ok(Self { numbers, words })
    }

    /// Calls `each` with every key in turn.
    fn walk(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.numbers.iter().try_for_each(|number| {
            if self.words.is_empty() {
                each(&number.to_le_bytes())
            } else {
                each(&self.words[*number as usize])
            }
        })
    }
}

/// Ranks of uneven frequency: the rank `r` about as often as `r` to the power of minus theta.
struct Zipf {
    count: u64,
    theta: f64,
    /// The integral of the density from 1/2 to the last rank and a half.
    whole: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Self {
        let mut zipf = Self {
            count,
            theta,
            whole: 0.0,
        };
        zipf.whole = zipf.integral(count as f64 + 0.5);
        zipf
    }

    /// The integral from a half to `x`, for theta but 1, where it is a logarithm.
    fn integral(&self, x: f64) -> f64 {
        let power = 1.0 - self.theta;
        if power.abs() < 1e-9 {
            return (x / 0.5).ln();
        }
        (x.powf(power) - 0.5_f64.powf(power)) / power
    }

    /// A rank, from 0: the inverse of the integral at a random part of it.
    #[expect(clippy::cast_sign_loss, reason = "it is not below a half")]
    fn draw(&self, choice: &mut Choice) -> u64 {
        let part = choice.fraction() * self.whole;
        let power = 1.0 - self.theta;
        let x = if power.abs() < 1e-9 {
            0.5 * part.exp()
        } else {
            (part * power + 0.5_f64.powf(power)).powf(1.0 / power)
        };
        ((x + 0.5) as u64).clamp(1, self.count) - 1
    }
}

/// Drives a cache over a trace.
pub fn run(word: &str, cache: &impl Cached, keys: &Keys, capacity: u64) -> Result<Phase> {
    let mut hits = 0;
    let (cpu, start) = (cpu_seconds(), Instant::now());
    keys.walk(|key| {
        if cache.get(key)? {
            hits += 1;
            return Ok(());
        }
        cache.put(key)
    })?;
    cache.finish_pending();
    Ok(phase(word, keys, capacity, hits, (cpu, start)))
}

fn phase(word: &str, keys: &Keys, capacity: u64, hits: u64, since: (f64, Instant)) -> Phase {
    let (seconds, count) = (since.1.elapsed().as_secs_f64(), keys.numbers.len() as u64);
    Phase {
        engine: word.to_owned(),
        op: "trace".to_owned(),
        details: Details::Cache(Cache {
            capacity,
            hit_percent: 100.0 * hits as f64 / (count as f64).max(1.0),
        }),
        threads: 1,
        count,
        seconds,
        ops_per_second: count as f64 / seconds.max(1e-9),
        cpu_seconds: cpu_seconds() - since.0,
        hits: Some(hits),
        ..Phase::default()
    }
}

/// What the exact LRU of so many records does on the trace: the obvious one, a map by the time of the last use.
pub fn lru(keys: &Keys, capacity: u64) -> Phase {
    let mut used: HashMap<u64, u64> = HashMap::new();
    let mut by_time: BTreeMap<u64, u64> = BTreeMap::new();
    let mut hits = 0;
    let since = (cpu_seconds(), Instant::now());
    for (now, number) in keys.numbers.iter().enumerate() {
        let now = now as u64;
        if let Some(before) = used.insert(*number, now) {
            hits += 1;
            by_time.remove(&before);
        } else if used.len() as u64 > capacity
            && let Some((_, oldest)) = by_time.pop_first()
        {
            used.remove(&oldest);
        }
        by_time.insert(now, *number);
    }
    phase("lru", keys, capacity, hits, since)
}

impl Cached for CacheDb {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<bool> {
        self.read_with(key, |value| value.is_some())
    }
    #[inline]
    fn put(&self, key: &[u8]) -> Result<()> {
        Self::put(self, key, VALUE)
    }
}

/// Runs `azekura bench cache`: azekura's cache, and the exact LRU.
pub fn cache(plan: &CachePlan) -> Result<()> {
    cache_over(plan, &plan.keys()?, &mut Output::new(plan.json))
}

/// The same over a trace that was made before.
pub fn cache_over(plan: &CachePlan, keys: &Keys, output: &mut Output) -> Result<()> {
    let db = CacheDb::new(plan.capacity)?;
    output.phase(&run("azekura", &db, keys, plan.capacity)?)?;
    output.phase(&lru(keys, plan.capacity))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(trace: Trace, capacity: u64) -> CachePlan {
        CachePlan {
            trace,
            capacity,
            count: 300_000,
            keys: 20_000,
            theta: 0.99,
            seed: 1,
            json: false,
        }
    }

    fn ratios(plan: &CachePlan) -> (f64, f64) {
        let keys = plan.keys().unwrap();
        let db = CacheDb::new(plan.capacity).unwrap();
        let ours = run("azekura", &db, &keys, plan.capacity).unwrap();
        let percent = |phase: Phase| match phase.details {
            Details::Cache(cache) => cache.hit_percent,
            _ => panic!("a phase of a cache"),
        };
        (percent(ours), percent(lru(&keys, plan.capacity)))
    }

    #[test]
    fn the_cache_hits_at_least_as_often_as_lru() {
        for trace in [Trace::Zipf, Trace::Scan, Trace::Loop] {
            for capacity in [20, 200, 2000] {
                let (ours, lru) = ratios(&plan(trace.clone(), capacity));
                assert!(ours >= lru, "{trace:?} of {capacity}: {ours} below {lru}");
            }
        }
    }

    #[test]
    fn lru_hits_nothing_in_a_loop_that_does_not_fit() {
        let keys = plan(Trace::Loop, 100).keys().unwrap();
        assert_eq!(lru(&keys, 100).hits, Some(0));
        assert_eq!(lru(&keys, 125).hits, Some(300_000 - 125));
    }

    #[test]
    fn a_zipf_trace_is_as_uneven_as_it_says() {
        let keys = plan(Trace::Zipf, 10).keys().unwrap();
        let of_rank = |rank| keys.numbers.iter().filter(|n| **n == rank).count() as f64;
        let ratio = of_rank(0) / of_rank(9);
        assert!((8.0..12.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_file_is_a_trace_of_its_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        std::fs::write(&path, "one\ntwo\none\n\nthree\ntwo").unwrap();
        let keys = plan(Trace::File(path), 2).keys().unwrap();
        assert_eq!(keys.numbers, [0, 1, 0, 2, 1]);
        let ours = run("azekura", &CacheDb::new(2).unwrap(), &keys, 2).unwrap();
        assert_eq!((ours.count, lru(&keys, 2).hits), (5, Some(1)));
        let missing = plan(Trace::File(folder.path().join("none")), 2).keys();
        assert_eq!(missing.err().map(|error| error.kind()), Some(Kind::Io));
        let blank = folder.path().join("blank");
        std::fs::write(&blank, "\n\n").unwrap();
        let blank = plan(Trace::File(blank), 2).keys();
        assert_eq!(blank.err().map(|error| error.kind()), Some(Kind::Invalid));
    }

    #[test]
    fn a_scan_is_two_thirds_zipf_and_one_of_keys_that_come_once() {
        let keys = plan(Trace::Scan, 100).keys().unwrap().numbers;
        let zipf = plan(Trace::Zipf, 100).keys().unwrap().numbers;
        let (mut drawn, mut fresh) = (zipf.into_iter(), 20_000..);
        for round in keys.chunks(150) {
            for (at, key) in round.iter().enumerate() {
                let expected = if at < 100 { drawn.next() } else { fresh.next() };
                assert_eq!(Some(*key), expected);
            }
        }
        assert_eq!(keys.len(), 300_000);
    }

    #[test]
    fn sizes_without_sense_are_errors_and_no_panics() {
        let of = |trace, capacity, count, keys| {
            let plan = CachePlan {
                count,
                keys,
                ..plan(trace, capacity)
            };
            plan.keys()
                .map(|keys| keys.numbers.len())
                .map_err(|error| error.kind())
        };
        for trace in [Trace::Zipf, Trace::Scan, Trace::Loop] {
            assert_eq!(of(trace.clone(), u64::MAX, 1000, u64::MAX), Ok(1000));
            assert_eq!(of(trace.clone(), 1, 1000, 1), Ok(1000));
            assert_eq!(of(trace.clone(), 0, 1000, 1), Err(Kind::Invalid));
            assert_eq!(of(trace.clone(), 1, 1000, 0), Err(Kind::Invalid));
            assert_eq!(of(trace.clone(), 1, 0, 1), Err(Kind::Invalid));
            assert_eq!(of(trace, 1, u64::MAX, 1), Err(Kind::Full));
        }
    }
}
