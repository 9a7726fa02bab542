//! The last five minutes in rows of a second: rates, times and sizes.
//!
//! A row is the difference of two moments, so it is right however late it is made: rates are divided by the time that
//! passed. It reads no clock and gathers nothing itself.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::memcached::figures;
use crate::memcached::latency::Work;

use super::metrics::Metrics;

figures! { Column:
    Gets "gets_per_second"
    Sets "sets_per_second"
    Others "others_per_second"
    HitRatio "hit_ratio"
    Received "received_bytes_per_second"
    Sent "sent_bytes_per_second"
    P50 "p50_us"
    P99 "p99_us"
    P999 "p999_us"
    Longest "max_us"
    Syncs "syncs_per_second"
    SyncP99 "sync_p99_us"
    Slow "slow_per_second"
    Errors "errors_per_second"
    Cpu "cpu_percent"
    Connections "connections"
    Records "records"
    Resident "resident_bytes"
    EngineMemory "engine_memory_bytes"
    File "file_bytes"
    Log "log_bytes"
    Live "live_bytes"
    Free "free_bytes"
}

const COLUMNS: usize = WORDS.len();

/// Rows kept.
const ROWS: usize = 300;

/// A second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    /// Counted from the server's start; one more for each row.
    pub(super) number: u64,
    /// In the order of the columns. What does not apply is below zero.
    pub(super) values: [f64; COLUMNS],
}

/// What does not apply.
const NONE: f64 = -1.0;

impl Row {
    /// What lies between `before` and `after`, `seconds` apart.
    fn between(number: u64, before: &Metrics, after: &Metrics, seconds: f64) -> Self {
        let mut values = [NONE; COLUMNS];
        let mut set = |column: Column, value: f64| values[column as usize] = value;
        let seconds = seconds.max(1e-3);
        // Counts may have been reset in between.
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let times = after.times.since(&before.times);
        let of = |work| times.of(work).count() as f64 / seconds;
        set(Column::Gets, of(Work::Get));
        set(Column::Sets, of(Work::Set));
        let others = [Work::Delete, Work::Count, Work::Touch, Work::Other];
        set(Column::Others, others.into_iter().map(of).sum());
        let hits = after.hits.saturating_sub(before.hits);
        let asked = hits + after.misses.saturating_sub(before.misses);
        if asked > 0 {
            set(Column::HitRatio, hits as f64 / asked as f64);
        }
        set(
            Column::Received,
            rate(before.received_bytes, after.received_bytes),
        );
        set(Column::Sent, rate(before.sent_bytes, after.sent_bytes));
        let requests = times.requests();
        if requests.count() > 0 {
            for (column, part) in [
                (Column::P50, 0.5),
                (Column::P99, 0.99),
                (Column::P999, 0.999),
                (Column::Longest, 1.0),
            ] {
                set(column, requests.quantile(part) as f64 / 1e3);
            }
        }
        let syncs = |figures: &Metrics| figures.more("syncs").unwrap_or(0);
        set(Column::Syncs, rate(syncs(before), syncs(after)));
        if times.of(Work::Sync).count() > 0 {
            let long = times.of(Work::Sync).quantile(0.99);
            set(Column::SyncP99, long as f64 / 1e3);
        }
        set(
            Column::Slow,
            rate(before.connections.slow, after.connections.slow),
        );
        let errors = |figures: &Metrics| figures.errors.iter().map(|(_, count)| count).sum();
        set(Column::Errors, rate(errors(before), errors(after)));
        let computed = (after.cpu_seconds - before.cpu_seconds).max(0.0);
        set(Column::Cpu, 100.0 * computed / seconds);
        set(Column::Connections, after.connections.open as f64);
        set(Column::Records, after.engine.count as f64);
        set(Column::Resident, after.resident_bytes as f64);
        set(Column::EngineMemory, after.engine.memory_bytes as f64);
        if after.engine.file_bytes > 0 {
            set(Column::File, after.engine.file_bytes as f64);
            set(Column::Live, after.engine.live_bytes as f64);
        }
        if let Some(bytes) = after.more("log_bytes") {
            set(Column::Log, bytes as f64);
        }
        if let Some(bytes) = after.free_bytes {
            set(Column::Free, bytes as f64);
        }
        Self { number, values }
    }

    /// The value of a column; `None`: it does not apply.
    pub(super) fn value(&self, column: usize) -> Option<f64> {
        self.values
            .get(column)
            .copied()
            .filter(|value| *value >= 0.0)
    }
}

/// The last seconds.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<Row>>);

impl History {
    /// The rows after the one of this number, oldest first; all if it is zero.
    pub(super) fn since(&self, number: u64) -> Vec<Row> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_later = |row: &&Row| row.number > number;
        rows.iter().filter(is_later).copied().collect()
    }

    /// Reports the last second as names and values; nothing before there was one.
    pub(crate) fn report(&self, report: &mut dyn FnMut(&str, &str)) {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = rows.back() else {
            return;
        };
        for (index, word) in WORDS.iter().enumerate() {
            if let Some(value) = last.value(index) {
                report(word, &number(value));
            }
        }
    }

    fn push(&self, row: Row) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.len() == ROWS {
            rows.pop_front();
        }
        rows.push_back(row);
    }
}

/// A number with at most three decimals, and none if it is whole.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

/// Makes the rows: remembers the moment before.
#[derive(Default)]
pub(super) struct Sampler {
    before: Option<(Instant, Metrics)>,
    rows: u64,
}

impl Sampler {
    /// Adds the row from the last call to `now`.
    pub(super) fn take(&mut self, now: Instant, figures: Metrics, history: &History) {
        if let Some((then, before)) = &self.before {
            let seconds = now.saturating_duration_since(*then).as_secs_f64();
            self.rows += 1;
            history.push(Row::between(self.rows, before, &figures, seconds));
        }
        self.before = Some((now, figures));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use azekura::record::memory::tiny::TinyDb;

    use super::*;
    use crate::config::Config;
    use crate::memcached::latency::WorkCounts;
    use crate::memcached::{Service, Settings};
    use crate::net::Control;

    #[test]
    fn rates_are_of_the_time_that_passed_and_old_rows_go() {
        let service = Service::new(Arc::new(TinyDb::new().unwrap()), Settings::default());
        let control = Control::new(Config::default().limits).unwrap();
        let gather = || Metrics::gather(&service, &control, None);
        let (mut sampler, history) = (Sampler::default(), History::default());
        let start = Instant::now();
        sampler.take(start, gather(), &history);
        assert_eq!(history.since(0), []);
        let mut recorder = service.latency().recorder();
        recorder.note(&WorkCounts([30, 10, 2, 0, 0, 0]), 2000);
        let mut last = gather();
        (last.hits, last.misses) = (9, 3);
        sampler.take(start + Duration::from_secs(2), last, &history);
        let rows = history.since(0);
        let of = |column: Column| rows[0].value(column as usize);
        assert_eq!(
            (of(Column::Gets), of(Column::Sets), of(Column::Others)),
            (Some(15.0), Some(5.0), Some(1.0))
        );
        assert_eq!(of(Column::HitRatio), Some(0.75));
        assert_eq!(of(Column::P50), Some(2.048));
        assert_eq!((of(Column::SyncP99), of(Column::File)), (None, None));
        for second in 3..400 {
            sampler.take(start + Duration::from_secs(second), gather(), &history);
        }
        let rows = history.since(0);
        assert_eq!((rows.len(), rows[0].number), (ROWS, 99));
        assert_eq!(history.since(397).len(), 1);
        let mut lines = Vec::new();
        history.report(&mut |name, value| lines.push(format!("{name} {value}")));
        assert!(lines.contains(&"gets_per_second 0".to_owned()), "{lines:?}");
        assert!(
            !lines.iter().any(|line| line.starts_with("p50_us")),
            "{lines:?}"
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(3.0), "3");
        assert_eq!(number(0.12345), "0.123");
        assert_eq!(number(1200.0), "1200");
    }
}
