//! The log of a server on standard error: a line for each event, as text or as JSON.
//!
//! ```text
//!   azekura: 2026-11-21T15:04:05.678Z warn: slow request command="get" key="anna" micros=10234
//!   {"time":"2026-11-21T15:04:05.678Z","level":"warn","target":"azekura_server::net::meter","message":"slow request", ..}
//! ```
//!
//! Level and form may be changed while it runs. An event is one line whatever is in it, written in one piece. Spans are
//! not reported: nothing here has any. It does not know which events there are.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use azekura_server::config::{LogFormat, LogLevel};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The minimum log level, and the form: for the whole process, as there is one standard error.
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);
static FORM: AtomicU8 = AtomicU8::new(LogFormat::Text as u8);

/// Writes events from now on, of this level and more severe ones, in this form; a later call changes both.
pub(crate) fn listen(level: LogLevel, form: LogFormat) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    FORM.store(form as u8, Ordering::Relaxed);
    // Only the first call sets the subscriber.
    let _ = tracing::subscriber::set_global_default(Listener);
}

struct Listener;

impl Subscriber for Listener {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        // The level may change, so each event checks it.
        tracing::subscriber::Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && grade(*metadata.level()) as u8 <= LEVEL.load(Ordering::Relaxed)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let (time, metadata) = (stamp(since.unwrap_or_default()), event.metadata());
        let level = grade(*metadata.level()).word();
        let line = if FORM.load(Ordering::Relaxed) == LogFormat::Json as u8 {
            fields.json(&time, level, metadata.target())
        } else {
            fields.text(&time, level)
        };
        // There is nowhere to report that standard error is closed.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn grade(level: tracing::Level) -> LogLevel {
    match level {
        tracing::Level::ERROR => LogLevel::Error,
        tracing::Level::WARN => LogLevel::Warn,
        tracing::Level::INFO => LogLevel::Info,
        _ => LogLevel::Debug,
    }
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    /// In the order of the event.
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.others.push((field.name(), value));
    }

    fn text(self, time: &str, level: &str) -> String {
        let mut line = format!("azekura: {time} {level}: ");
        line.extend(
            self.message
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c }),
        );
        for (name, value) in &self.others {
            // Strings stand in quotes, and what breaks lines is escaped.
            let _ = write!(line, " {name}={value}");
        }
        line.push('\n');
        line
    }

    fn json(self, time: &str, level: &str, target: &str) -> String {
        let first = [
            ("time", time),
            ("level", level),
            ("target", target),
            ("message", &self.message),
        ];
        let first = first.map(|(name, value)| (name, Value::from(value)));
        let mut line = String::new();
        for (name, value) in first.into_iter().chain(self.others) {
            let before = if line.is_empty() { '{' } else { ',' };
            let _ = write!(line, "{before}{}:{value}", Value::from(name));
        }
        line.push_str("}\n");
        line
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field, text.into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

/// A time since 1970 as RFC 3339 writes it, in UTC.
fn stamp(since: Duration) -> String {
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years that begin in March have their leap day at the end; 400 of them have 146,097 days.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 {
        (era * 400 + year, month + 3)
    } else {
        (era * 400 + year + 1, month - 9)
    };
    format!(
        "{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(stamp(Duration::from_secs(seconds)), expected);
        }
        let late = stamp(Duration::from_millis(1_234));
        assert_eq!(late, "1970-01-01T00:00:01.234Z");
    }

    #[test]
    fn an_event_is_one_line_in_both_forms() {
        let fields = || {
            let mut fields = Fields {
                message: "slow\nrequest".into(),
                ..Fields::default()
            };
            fields.others.push(("key", "a\n\"b\"".into()));
            fields.others.push(("micros", 5.into()));
            fields
        };
        assert_eq!(
            fields().text("T", "warn"),
            "azekura: T warn: slow request key=\"a\\n\\\"b\\\"\" micros=5\n"
        );
        let json = fields().json("T", "warn", "here");
        let read: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["message"], "slow\nrequest");
        assert_eq!(
            (&read["level"], &read["micros"]),
            (&"warn".into(), &5.into())
        );
        assert_eq!(json.matches('\n').count(), 1);
    }
}
