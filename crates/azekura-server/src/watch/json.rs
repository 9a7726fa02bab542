//! Figures as JSON: for the page, and for whoever prefers it.
//!
//! ```text
//!   { version, engine, durability, uptime_s, healthy, why, connections_max,
//!     latency: { get: { count, mean_us, p50_us, .. }, .. },
//!     totals: { .. }, columns: [ name, .. ], rows: [ [ number, value or null, .. ], .. ] }
//! ```
//!
//! `rows` are the last seconds, oldest first, in the order of `columns`. It gathers nothing.

use std::fmt::{Display, Write as _};

use crate::memcached::figures_of;
use crate::memcached::latency::Work;

use super::Shown;
use super::history::{Row, WORDS, number};

/// A JSON text that is being written. Names and strings are escaped, commas set by it.
struct Json {
    text: String,
    needs_comma: bool,
}

impl Json {
    fn open(&mut self, name: &str, bracket: char) {
        self.name(name);
        self.text.push(bracket);
        self.needs_comma = false;
    }

    fn close(&mut self, bracket: char) {
        self.text.push(bracket);
        self.needs_comma = true;
    }

    /// Begins a member; without a name, an element of an array.
    fn name(&mut self, name: &str) {
        if self.needs_comma {
            self.text.push(',');
        }
        if !name.is_empty() {
            quote(name, &mut self.text);
            self.text.push(':');
        }
        self.needs_comma = true;
    }

    /// A number, `true`, `false` or `null`.
    fn bare(&mut self, name: &str, value: impl Display) {
        self.name(name);
        let _ = write!(self.text, "{value}");
    }

    fn string(&mut self, name: &str, value: &str) {
        self.name(name);
        quote(value, &mut self.text);
    }
}

/// Appends a string in its quotes.
pub(super) fn quote(value: &str, text: &mut String) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => {
                text.push('\\');
                text.push(c);
            }
            c if c.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// The document.
pub(super) fn render(shown: &Shown<'_>, rows: &[Row]) -> String {
    let figures = &shown.figures;
    let mut json = Json {
        text: String::with_capacity(1024 + rows.len() * 160),
        needs_comma: false,
    };
    json.open("", '{');
    json.string("version", env!("CARGO_PKG_VERSION"));
    json.string("engine", shown.engine);
    json.string("durability", shown.durability);
    json.bare("uptime_s", figures.uptime_s);
    json.bare("healthy", shown.verdict.is_ok());
    if let Err(unfit) = &shown.verdict {
        json.string("why", &format!("{}: {}", unfit.word, unfit.more));
    }
    json.bare("connections_max", figures.connections_max);
    json.bare("slow_ms", shown.slow_ms);
    json.open("latency", '{');
    for work in Work::ALL {
        let times = figures.times.of(work);
        if times.count() == 0 {
            continue;
        }
        json.open(work.word(), '{');
        figures_of(times, &mut |name, value| json.bare(name, value));
        json.close('}');
    }
    json.close('}');
    json.open("totals", '{');
    let connections = &figures.connections;
    for (name, value) in [
        ("hits", figures.hits),
        ("misses", figures.misses),
        ("stored", figures.stored),
        ("received_bytes", figures.received_bytes),
        ("sent_bytes", figures.sent_bytes),
        ("connections_accepted", connections.accepted),
        ("connections_refused", connections.refused),
        ("connections_dropped", connections.dropped),
        ("answers_that_waited", connections.waited),
        ("slow_requests", connections.slow),
    ] {
        json.bare(name, value);
    }
    json.open("errors", '{');
    for (kind, count) in &figures.errors {
        json.bare(kind, count);
    }
    json.close('}');
    json.close('}');
    json.open("columns", '[');
    json.string("", "number");
    for word in WORDS {
        json.string("", word);
    }
    json.close(']');
    json.open("rows", '[');
    for row in rows {
        json.open("", '[');
        json.bare("", row.number);
        for column in 0..WORDS.len() {
            match row.value(column) {
                Some(value) => json.bare("", number(value)),
                None => json.bare("", "null"),
            }
        }
        json.close(']');
    }
    json.close(']');
    json.close('}');
    json.text.push('\n');
    json.text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_and_commas_stand_between() {
        let mut json = Json {
            text: String::new(),
            needs_comma: false,
        };
        json.open("", '{');
        json.string("a\"b", "c\\d\n\u{7f}");
        json.open("list", '[');
        json.bare("", 1);
        json.bare("", "null");
        json.close(']');
        json.open("empty", '{');
        json.close('}');
        json.close('}');
        let expected = "{\"a\\\"b\":\"c\\\\d\\u000a\\u007f\",\"list\":[1,null],\"empty\":{}}";
        assert_eq!(json.text, expected);
    }
}
