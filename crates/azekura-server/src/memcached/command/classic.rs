//! What the classic text commands answer: outcomes as lines.
//!
//! A line with data is executed here once its data is whole, wherever it was gathered. Where a client wants no answer,
//! errors too are kept from it, as memcached does. It knows no connection.

use std::sync::atomic::Ordering;

use crate::item::Head;
use crate::memcached::command::execute::{self, Counted, Hand, New, Stored};
use crate::memcached::command::walk::Walk;
use crate::memcached::operate::stats::Count;
use crate::memcached::operate::{admin, detail};
use crate::memcached::protocol::text::{self, Command, Mode, Words};
use crate::memcached::protocol::{meta, number};
use crate::memcached::session::{answer, flush, push_line, push_outcome};

/// A command of one line that changes something, or a setting; what else there is, is not for here.
pub(crate) fn execute(hand: &mut Hand, command: &Command<'_>, output: &mut Vec<u8>) {
    let (line, noreply) = match *command {
        Command::Delete { key, noreply } => {
            let removed = hand.remove(key, None, "delete");
            let line = |removed: Option<bool>| removed.map_or("NOT_FOUND", |_| "DELETED");
            (removed.map(line), noreply)
        }
        Command::Count {
            key,
            delta,
            up,
            noreply,
        } => return count(hand, key, delta, up, noreply, output),
        Command::Touch {
            key,
            exptime,
            noreply,
        } => {
            let expires = hand.service.expires(exptime);
            let touched = hand.touch(key, expires, |_| {});
            let line = |found| if found { "TOUCHED" } else { "NOT_FOUND" };
            (touched.map(line), noreply)
        }
        Command::Flush { delay, noreply } => (flush(hand, delay), noreply),
        Command::Verbosity { level, noreply } => {
            hand.service.verbosity.store(level, Ordering::Relaxed);
            (Ok("OK"), noreply)
        }
        Command::MemoryLimit { megabytes, noreply } => (Ok(memory_limit(hand, megabytes)), noreply),
        _ => (Ok("ERROR"), false),
    };
    answer(hand, line, noreply, output);
}

/// `incr` and `decr`.
fn count(hand: &mut Hand, key: &[u8], delta: u64, up: bool, noreply: bool, output: &mut Vec<u8>) {
    let by = execute::Step {
        up,
        delta,
        compare: None,
        version: None,
        initial: None,
        expires: None,
    };
    let line = match hand.count(key, &by) {
        Ok(Counted::Done { number, .. }) => {
            if !noreply {
                number::push(output, number);
                output.extend_from_slice(b"\r\n");
            }
            return;
        }
        Ok(Counted::NotFound | Counted::Exists) => Ok("NOT_FOUND"),
        Ok(Counted::NoNumber) => Ok("CLIENT_ERROR cannot increment or decrement non-numeric value"),
        Ok(Counted::TooLarge) => Ok("SERVER_ERROR Out of memory incrementing value"),
        Err(error) => Err(error),
    };
    answer(hand, line, noreply, output);
}

/// `cache_memlimit`.
fn memory_limit(hand: &Hand, megabytes: u64) -> &'static str {
    match megabytes {
        ..8 => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
        1_000_000_001.. => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
        _ => match hand.service.outside() {
            Some(outside) if outside.set_memory_limit(megabytes << 20) => "OK",
            _ => "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
        },
    }
}

/// `stats`; what it returns is still to be told.
pub(crate) fn stats(hand: &mut Hand, words: &[u8], output: &mut Vec<u8>) -> Option<Walk> {
    let mut words = Words(words);
    let group = words.next().unwrap_or_default();
    match group {
        b"reset" => {
            admin::reset(hand);
            push_line(output, "RESET");
            return None;
        }
        b"detail" => {
            detail::detail(&hand.service, words.next(), output);
            return None;
        }
        b"sizes" => return Some(Walk::sizes()),
        b"cachedump" => {
            let settings = &hand.service.settings;
            let walk = if settings.dump_enabled {
                Walk::cache_dump(words.0, settings.dump_bytes_per_second)
            } else {
                Err("CLIENT_ERROR stats cachedump not allowed")
            };
            return walk.map_err(|answer| push_line(output, answer)).ok();
        }
        _ => {}
    }
    let known = admin::figures(hand, group, &mut |name, value| {
        output.extend_from_slice(b"STAT ");
        output.extend_from_slice(name.as_bytes());
        output.push(b' ');
        push_line(output, value);
    });
    push_line(output, if known { "END" } else { "ERROR" });
    None
}

/// Executes a line with its data, which is whole.
pub(crate) fn store(hand: &mut Hand, line: &[u8], data: &[u8], output: &mut Vec<u8>) {
    let is_ended = data.ends_with(b"\r\n");
    let data = data.get(..data.len().saturating_sub(2)).unwrap_or_default();
    match text::parse(line) {
        Command::Store(asked) if is_ended => {
            let expires = hand.service.expires(asked.exptime);
            let stored = if asked.mode == Mode::Set {
                hand.tally.one(Count::CmdSet);
                hand.note_sets(std::iter::once(asked.key));
                let head = Head {
                    flags: asked.flags,
                    expires,
                    ..Head::default()
                };
                hand.put(asked.key, head, data).map(|_| "STORED")
            } else {
                let new = New {
                    mode: asked.mode,
                    key: asked.key,
                    flags: asked.flags,
                    expires,
                    data,
                    compare: (asked.mode == Mode::Cas).then_some(asked.cas),
                    version: None,
                    may_be_stale: false,
                    vivify: false,
                    is_binary_key: false,
                };
                hand.store(&new).map(|stored| match stored {
                    Stored::Done { .. } => "STORED",
                    Stored::Refused => "NOT_STORED",
                    Stored::Exists => "EXISTS",
                    Stored::NotFound => "NOT_FOUND",
                })
            };
            answer(hand, stored, asked.noreply, output);
        }
        Command::Store(asked) => {
            if !asked.noreply {
                push_line(output, "CLIENT_ERROR bad data chunk");
            }
        }
        Command::Meta(_, words) if is_ended => {
            if let Err(error) = meta::set(hand, words, data, output) {
                push_outcome(hand, Err(error), output);
            }
        }
        _ => push_line(output, "CLIENT_ERROR bad data chunk"),
    }
}
