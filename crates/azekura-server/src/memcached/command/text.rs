//! What the classic text commands mean, and their outcomes as lines.
//!
//! A line with data is executed here once its data is whole, wherever it was collected. With `noreply`, errors are not sent
//! either, as memcached does. It knows no connection.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::Ordering;

use crate::item::Head;
use crate::memcached::command::answer::{answer, push_line, push_outcome};
use crate::memcached::command::arithmetic::{Counted, Step};
use crate::memcached::command::executor::Executor;
use crate::memcached::command::meta;
use crate::memcached::command::store::{New, Stored};
use crate::memcached::command::walk::Walk;
use crate::memcached::operate::counters::Count;
use crate::memcached::operate::stats as figures;
use crate::memcached::protocol::number;
use crate::memcached::protocol::text::{self, Command, Mode, Store, Words};

/// The answer to data that does not end with its line.
const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";

/// A command of one line that changes something, or a setting; what else there is, is not for here.
pub(crate) fn execute(executor: &mut Executor, command: &Command<'_>, output: &mut Vec<u8>) {
    let (line, noreply) = match *command {
        Command::Delete { key, noreply } => {
            let removed = executor.remove(key, None, "delete");
            let line = |removed: Option<bool>| removed.map_or("NOT_FOUND", |_| "DELETED");
            (removed.map(line), noreply)
        }
        Command::Count {
            key,
            delta,
            up,
            noreply,
        } => return count(executor, key, delta, up, noreply, output),
        Command::Touch {
            key,
            exptime,
            noreply,
        } => {
            let expires = executor.service.expires(exptime);
            let touched = executor.touch(key, expires, |_| {});
            let line = |found| if found { "TOUCHED" } else { "NOT_FOUND" };
            (touched.map(line), noreply)
        }
        Command::Flush { delay, noreply } => (executor.flush(delay), noreply),
        Command::Verbosity { level, noreply } => {
            executor.service.verbosity.store(level, Ordering::Relaxed);
            (Ok("OK"), noreply)
        }
        Command::MemoryLimit { megabytes, noreply } => {
            (Ok(memory_limit(executor, megabytes)), noreply)
        }
        _ => (Ok("ERROR"), false),
    };
    answer(executor, line, noreply, output);
}

/// `incr` and `decr`.
fn count(
    executor: &mut Executor,
    key: &[u8],
    delta: u64,
    up: bool,
    noreply: bool,
    output: &mut Vec<u8>,
) {
    let by = Step {
        up,
        delta,
        compare: None,
        version: None,
        initial: None,
        expires: None,
    };
    let line = match executor.count(key, &by) {
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
    answer(executor, line, noreply, output);
}

/// `cache_memlimit`.
fn memory_limit(executor: &Executor, megabytes: u64) -> &'static str {
    match megabytes {
        ..8 => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
        1_000_000_001.. => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
        _ => match executor.service.outside() {
            Some(outside) if outside.set_memory_limit(megabytes << 20) => "OK",
            _ => "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
        },
    }
}

/// `stats`; the walk it returns is still to be run.
pub(crate) fn stats(executor: &mut Executor, words: &[u8], output: &mut Vec<u8>) -> Option<Walk> {
    let mut words = Words(words);
    let group = words.next().unwrap_or_default();
    match group {
        b"reset" => {
            figures::reset(executor);
            push_line(output, "RESET");
            return None;
        }
        b"detail" => {
            figures::detail(&executor.service, words.next(), output);
            return None;
        }
        b"sizes" => return Some(Walk::sizes()),
        b"cachedump" => {
            let settings = &executor.service.settings;
            let walk = if settings.dump_enabled {
                Walk::cache_dump(words.0, settings.dump_bytes_per_second)
            } else {
                Err("CLIENT_ERROR stats cachedump not allowed")
            };
            return walk.map_err(|answer| push_line(output, answer)).ok();
        }
        _ => {}
    }
    let known = figures::figures(executor, group, &mut |name, value| {
        output.extend_from_slice(b"STAT ");
        output.extend_from_slice(name.as_bytes());
        output.push(b' ');
        push_line(output, value);
    });
    push_line(output, if known { "END" } else { "ERROR" });
    None
}

/// A line that data follows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WithData<'i> {
    Store(Store<'i>),
    /// `ms`: the words after the command.
    Meta(&'i [u8]),
}

/// Executes a line whose data was collected, as that was long.
pub(crate) fn collected(executor: &mut Executor, line: &[u8], data: &[u8], output: &mut Vec<u8>) {
    let command = match text::parse(line) {
        Command::Store(asked) => WithData::Store(asked),
        Command::Meta(_, words) => WithData::Meta(words),
        // Only such lines are collected.
        _ => return push_line(output, BAD_CHUNK),
    };
    with_data(executor, &command, data, output);
}

/// Executes a line with its data and the end of that, which are whole.
pub(crate) fn with_data(
    executor: &mut Executor,
    command: &WithData<'_>,
    data: &[u8],
    output: &mut Vec<u8>,
) {
    match (command, data.strip_suffix(b"\r\n")) {
        (WithData::Store(asked), Some(data)) => {
            let stored = store(executor, asked, data);
            answer(executor, stored, asked.noreply, output);
        }
        (WithData::Meta(words), Some(data)) => {
            if let Err(error) = meta::set(executor, words, data, output) {
                push_outcome(executor, Err(error), output);
            }
        }
        (WithData::Store(Store { noreply: true, .. }), None) => {}
        (_, None) => push_line(output, BAD_CHUNK),
    }
}

fn store(executor: &mut Executor, asked: &Store<'_>, data: &[u8]) -> azekura::Result<&'static str> {
    let expires = executor.service.expires(asked.exptime);
    if asked.mode == Mode::Set {
        executor.tally.one(Count::CmdSet);
        executor.note_sets(std::iter::once(asked.key));
        let head = Head {
            flags: asked.flags,
            expires,
            ..Head::default()
        };
        return executor.put(asked.key, head, data).map(|_| "STORED");
    }
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
    executor.store(&new).map(|stored| match stored {
        Stored::Done { .. } => "STORED",
        Stored::Refused => "NOT_STORED",
        Stored::Exists => "EXISTS",
        Stored::NotFound => "NOT_FOUND",
    })
}
