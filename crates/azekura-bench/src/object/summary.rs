//! What many results come to: counts, sums and exact percentiles.
//!
//! The definitions are those of the published benchmark's tool. `elapsed` is the sum of the latencies,
//! not the time that passed; `ops` is the number of results by `elapsed`; the percentile `p` of `n`
//! results is the one at place `n * p / 100`, divided as whole numbers, of the ascending latencies, and
//! nothing is interpolated. To these come `p999` and `p9999` by the same rule, `wall`, the time that did
//! pass, and, where the size of a value is known, MiB by each of the two times.
//!
//! A result that failed, and a get or a removal of what was not there (`missing`), is counted and is no part of
//! latencies and rates: it did not do what the others are timed for. There the published tool, which takes all results,
//! has other figures.
//!
//! A result leaves 8 bytes here, its latency in nanoseconds: 80 MB for ten million. It measures nothing.

use serde::{Deserialize, Serialize};

use super::operation::Outcome;

/// Results, as they come in.
#[derive(Debug, Default)]
pub struct Tally {
    latencies_ns: Vec<u64>,
    errors: u64,
    missing: u64,
    existence: Existence,
    /// When the first began and the last ended.
    span: Option<(f64, f64)>,
}

/// Whether there was an object, as the store reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existence {
    /// There was one.
    pub exists: u64,
    /// There was none.
    pub absents: u64,
    /// The store does not report it, or failed.
    pub unknowns: u64,
}

/// Latencies in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the quantiles")]
pub struct Latency {
    pub min: f64,
    pub median: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub p9999: f64,
    pub max: f64,
}

/// What the results come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Operations that did not fail.
    pub oks: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Of those that did not fail, gets and removals of what was not there.
    #[serde(default)]
    pub missing: u64,
    /// What was there.
    pub existence: Existence,
    /// The sum of all latencies, in seconds.
    pub elapsed: f64,
    /// Operations per second of `elapsed`.
    pub ops: f64,
    /// The latencies' quantiles.
    pub latency: Latency,
    /// Seconds from the beginning of the first operation to the end of the last.
    pub wall: f64,
    /// Values' MiB per second of `elapsed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mib_per_second: Option<f64>,
    /// Values' MiB per second of `wall`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_mib_per_second: Option<f64>,
}

const NS: f64 = 1e9;

impl Summary {
    /// Operations that did what they are timed for.
    pub const fn done(&self) -> u64 {
        self.oks.saturating_sub(self.missing)
    }
}

impl Tally {
    /// Counts a result.
    pub fn add(&mut self, outcome: &Outcome) {
        if outcome.error.is_some() {
            self.errors += 1;
        } else if outcome.is_missing() {
            self.missing += 1;
        } else {
            #[expect(clippy::cast_sign_loss, reason = "a negative latency counts as none")]
            self.latencies_ns
                .push((outcome.elapsed * NS).round() as u64);
        }
        match outcome.exists {
            Some(true) => self.existence.exists += 1,
            Some(false) => self.existence.absents += 1,
            None => self.existence.unknowns += 1,
        }
        let (start, end) = (outcome.start_time, outcome.start_time + outcome.elapsed);
        let span = self.span.get_or_insert((start, end));
        *span = (span.0.min(start), span.1.max(end));
    }

    /// Sums up; `value_size` is that of each result, if all have one.
    pub fn finish(mut self, value_size: Option<u64>) -> Summary {
        let latencies = &mut self.latencies_ns;
        latencies.sort_unstable();
        let count = latencies.len() as u64;
        let seconds = |ns: u64| ns as f64 / NS;
        let at = |parts: u64, of: u64| {
            let place = u128::from(count) * u128::from(parts) / u128::from(of);
            latencies.get(place as usize).map_or(0.0, |&ns| seconds(ns))
        };
        let elapsed = seconds(latencies.iter().sum());
        let wall = self.span.map_or(0.0, |(start, end)| end - start);
        let per = |amount: f64, seconds: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let mib = value_size.map(|size| count as f64 * size as f64 / f64::from(1 << 20));
        Summary {
            oks: count + self.missing,
            errors: self.errors,
            missing: self.missing,
            existence: self.existence,
            elapsed,
            ops: per(count as f64, elapsed),
            latency: Latency {
                min: at(0, 1),
                median: at(1, 2),
                p95: at(95, 100),
                p99: at(99, 100),
                p999: at(999, 1000),
                p9999: at(9999, 10_000),
                max: latencies.last().map_or(0.0, |&ns| seconds(ns)),
            },
            wall,
            mib_per_second: mib.map(|mib| per(mib, elapsed)),
            wall_mib_per_second: mib.map(|mib| per(mib, wall)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::operation::Method;

    fn outcome(start_time: f64, elapsed: f64, exists: Option<bool>) -> Outcome {
        let (seqno, key, method, error) = (0, String::new(), Method::Put, None);
        Outcome {
            seqno,
            key,
            method,
            start_time,
            elapsed,
            exists,
            error,
        }
    }

    fn of(elapsed: impl IntoIterator<Item = f64>) -> Summary {
        let mut tally = Tally::default();
        elapsed
            .into_iter()
            .for_each(|elapsed| tally.add(&outcome(0.0, elapsed, None)));
        tally.finish(None)
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn percentiles_are_taken_at_whole_places_of_the_ascending_latencies() {
        // 0.001, 0.002, ... 0.2 seconds, in no order: place n holds (n + 1) / 1000.
        let latency = of((0..200).map(|i| f64::from(i * 37 % 200 + 1) / 1000.0)).latency;
        close(latency.min, 0.001);
        close(latency.median, 0.101);
        close(latency.p95, 0.191);
        close(latency.p99, 0.199);
        close(latency.p999, 0.2);
        close(latency.max, 0.2);
        // Of three, the second and the third; of one, that one.
        let latency = of([0.3, 0.1, 0.2]).latency;
        close(latency.median, 0.2);
        close(latency.p95, 0.3);
        close(of([0.5]).latency.p9999, 0.5);
    }

    #[test]
    fn what_failed_and_what_found_nothing_is_counted_and_is_no_throughput() {
        let mut tally = Tally::default();
        tally.add(&outcome(0.0, 0.5, None));
        for method in [Method::Get, Method::Delete] {
            tally.add(&Outcome {
                method,
                ..outcome(0.5, 0.000_001, Some(false))
            });
        }
        // A put of what was not there is new, and no miss.
        tally.add(&outcome(0.5, 0.5, Some(false)));
        tally.add(&Outcome {
            error: Some(serde_json::json!("full")),
            ..outcome(1.0, 3.0, None)
        });
        let found = tally.finish(Some(1 << 20));
        assert_eq!((found.oks, found.errors, found.missing), (4, 1, 2));
        assert_eq!((found.done(), found.existence.absents), (2, 3));
        close(found.elapsed, 1.0);
        close(found.ops, 2.0);
        close(found.latency.min, 0.5);
        close(found.latency.max, 0.5);
        close(found.wall, 4.0);
        close(found.mib_per_second.unwrap(), 2.0);
        close(found.wall_mib_per_second.unwrap(), 0.5);
    }

    #[test]
    fn nothing_comes_to_nothing_and_the_names_are_the_published_ones() {
        let text = serde_json::to_string(&of([])).unwrap();
        assert_eq!(
            text,
            "{\"oks\":0,\"errors\":0,\"missing\":0,\"existence\":{\"exists\":0,\"absents\":0,\"unknowns\":0},\
             \"elapsed\":0.0,\"ops\":0.0,\"latency\":{\"min\":0.0,\"median\":0.0,\"p95\":0.0,\
             \"p99\":0.0,\"p999\":0.0,\"p9999\":0.0,\"max\":0.0},\"wall\":0.0}"
        );
    }
}
