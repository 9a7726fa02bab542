//! Commands of operators, by which memcached's tools inspect and tune a cache: `lru_crawler`, `lru`, `slabs`, `watch`,
//! `refresh_certs`.
//!
//! | command | what it is here |
//! |---|---|
//! | `lru_crawler enable`, `disable` | switches the sweep of expired items on or off; while it is off, `crawl` and the dumps are refused |
//! | `lru_crawler crawl` | one round of the sweep without a pause, from the first record on |
//! | `lru_crawler metadump`, `mgdump` | a [walk](crate::memcached::command::walk) |
//! | `lru_crawler sleep`, `tocrawl` | checked as memcached checks them, and of no effect: the sweep has a pace of its own |
//! | `lru`, `slabs` | as memcached answers without its maintainer and its reassignment: there are no classes and queues to tune |
//! | `watch` | events: see [watchers](crate::memcached::operate::watchers) |
//! | `refresh_certs` | the certificate is read again |
//!
//! It knows no connection.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::memcached::command::answer::{push_line, push_outcome};
use crate::memcached::command::executor::Executor;
use crate::memcached::command::walk::{Walk, has_class};
use crate::memcached::protocol::number::short;
use crate::memcached::protocol::text::{BAD_FORMAT, Tool, WalkKind, Words};
use crate::memcached::service::Outside;

const OK: &str = "OK";
const ERROR: &str = "ERROR";
const DISABLED: &str = "CLIENT_ERROR lru crawler disabled";

/// The longest pause of a crawler, in microseconds.
const SLEEP_MAX: u32 = 1_000_000;

/// Answers a command; the walk it returns is still to be run.
pub(crate) fn operate(
    executor: &mut Executor,
    tool: Tool,
    words: &[u8],
    output: &mut Vec<u8>,
) -> Option<Walk> {
    let answer = match tool {
        Tool::Crawler => match crawler(executor, words) {
            Ok(walk) => {
                push_line(output, OK);
                return Some(walk);
            }
            Err(answer) => answer,
        },
        Tool::Lru => lru(words),
        Tool::Slabs => slabs(words),
        // The session does this.
        Tool::Watch => ERROR,
        Tool::Certificates => {
            let outside = executor.service.outside();
            let read = outside.map_or(Ok(false), Outside::refresh_certificates);
            let answer = read.map(|is_there| if is_there { OK } else { ERROR });
            push_outcome(executor, answer, output);
            return None;
        }
    };
    push_line(output, answer);
    None
}

/// `lru_crawler`; the error is the whole answer.
fn crawler(executor: &Executor, words: &[u8]) -> Result<Walk, &'static str> {
    let (service, settings) = (&executor.service, &executor.service.settings);
    let mut words = Words(words);
    let (word, argument) = (words.next().unwrap_or_default(), words.next());
    if words.next().is_some() {
        return Err(ERROR);
    }
    let Some(argument) = argument else {
        return Err(match word {
            b"enable" if service.sweeps.switch(true) => OK,
            b"enable" => "ERROR failed to start lru crawler thread",
            b"disable" => {
                service.sweeps.switch(false);
                OK
            }
            _ => ERROR,
        });
    };
    let dumps = |what, refused| {
        if !service.sweeps.is_on() {
            return Err(DISABLED);
        }
        if !settings.dump_enabled {
            return Err(refused);
        }
        Walk::crawl(what, argument, settings.dump_bytes_per_second)
    };
    match word {
        b"metadump" => dumps(WalkKind::MetaDump, "ERROR metadump not allowed"),
        b"mgdump" => dumps(WalkKind::MgDump, "ERROR key dump not allowed"),
        b"crawl" => Err(match has_class(argument, false) {
            _ if !service.sweeps.is_on() => DISABLED,
            _ if argument == b"hash" => "ERROR an unknown error happened",
            Err(answer) => answer,
            Ok(true) if !service.sweeps.hurry() => "BUSY currently processing crawler request",
            Ok(_) => OK,
        }),
        b"sleep" => Err(match short(argument) {
            None => BAD_FORMAT,
            Some(micros) if micros > SLEEP_MAX => "CLIENT_ERROR sleep must be one second or less",
            Some(_) => OK,
        }),
        b"tocrawl" => Err(short(argument).map_or(BAD_FORMAT, |_| OK)),
        _ => Err(ERROR),
    }
}

/// `lru`, as where memcached has no maintainer of its queues.
fn lru(words: &[u8]) -> &'static str {
    let mut words = Words(words);
    if words.next() != Some(b"tune") {
        return ERROR;
    }
    let mut percent = || words.next().and_then(short);
    let (hot, warm) = (percent(), percent());
    let mut factor = || words.next().and_then(fraction);
    match (hot, warm, factor(), factor()) {
        (Some(hot), Some(warm), Some(_), Some(_)) if hot.saturating_add(warm) > 80 => {
            "ERROR hot and warm pcts must not exceed 80"
        }
        (Some(_), Some(_), Some(hot), Some(warm)) if hot <= 0.0 || warm <= 0.0 => {
            "ERROR hot/warm age factors must be greater than 0"
        }
        (Some(_), Some(_), Some(_), Some(_)) => OK,
        _ => ERROR,
    }
}

/// `slabs`, as where memcached's classes keep their pages.
fn slabs(words: &[u8]) -> &'static str {
    let mut words = Words(words);
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(b"reassign"), Some(_), Some(_), None) => "CLIENT_ERROR slab reassignment disabled",
        (Some(b"automove"), Some(b"ratio" | b"freeratio"), number, _) => {
            number.and_then(fraction).map_or(ERROR, |_| OK)
        }
        (Some(b"automove"), Some(b"window"), number, _) => match number.and_then(short) {
            None => BAD_FORMAT,
            Some(3..=1800) => OK,
            Some(_) => "CLIENT_ERROR automove window too low or too high",
        },
        (Some(b"automove"), Some(level), ..) => match short(level) {
            None => BAD_FORMAT,
            Some(0..=2) => OK,
            Some(_) => ERROR,
        },
        _ => ERROR,
    }
}

fn fraction(word: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}
