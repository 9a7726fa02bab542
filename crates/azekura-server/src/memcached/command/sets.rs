//! Runs of `set`: lines whose data is whole are stored together, so that the engine overlaps its cache misses.
//!
//! Up to 32 records are built one after the other in the connection's buffer and put in their order. Only plain `set`
//! lines are in a run, and the first other line ends it, so the order of effects is kept.

use std::borrow::Cow;

use azekura::engine::{Edit, Engine};
use azekura::error::Result;
use memchr::memchr;

use crate::item::{Head, Item};
use crate::memcached::command::answer::{push_line, push_outcome};
use crate::memcached::command::executor::Executor;
use crate::memcached::command::store::Stored;
use crate::memcached::operate::counters::Count;
use crate::memcached::operate::watchers::MUTATIONS;
use crate::memcached::protocol::text::{self, Command, Mode, Store};

/// As many as engines look up at once.
const RUN: usize = 32;
/// A run ends with the record that reaches this many bytes.
const RUN_BYTES: usize = 32 << 10;

fn version(record: &[u8]) -> Option<u64> {
    Item::decode(record).map(|item| item.head.cas)
}

/// Puts a record of a run that failed, alone, to see whether it was the one; unless it was stored then, or another was
/// since: records of this key that were written later have a greater version.
#[cold]
fn put_again(engine: &dyn Engine, (key, record): (&[u8], &[u8])) -> Result<()> {
    engine.update(key, &mut |present| {
        let is_there = present
            .and_then(version)
            .is_some_and(|cas| Some(cas) >= version(record));
        if is_there {
            Edit::Keep
        } else {
            Edit::Put(Cow::Borrowed(record))
        }
    })
}

/// Reports the outcome of a record to watchers.
#[inline]
fn note(executor: &Executor, (key, record): (&[u8], &[u8]), put: &Result<()>) {
    if !executor.service.watchers.want(MUTATIONS) {
        return;
    }
    let item = Item::decode(record);
    let (head, len) = item.map_or((Head::default(), 0), |item| (item.head, item.data.len()));
    let stored = Stored::Done { cas: head.cas, len };
    let outcome = put.as_ref().map(|()| &stored);
    executor.note_stored((Mode::Set, key), head.expires, len, outcome);
}

/// Executes the `set` lines at the front of `input`, of which the first was parsed and its line ends at `line_end`; how
/// many bytes they are with their data.
pub(crate) fn run<'i>(
    executor: &mut Executor,
    first: Store<'i>,
    line_end: usize,
    input: &'i [u8],
    output: &mut Vec<u8>,
) -> usize {
    let mut keys: [&[u8]; RUN] = [b""; RUN];
    let mut ends = [0; RUN];
    let mut quiet = 0u32;
    let mut count = 0;
    let mut at = 0;
    let mut next = Some((first, line_end));
    let mut built = std::mem::take(&mut executor.scratch);
    built.clear();
    while let Some((asked, data_at)) = next
        && let (Some(key), Some(end)) = (keys.get_mut(count), ends.get_mut(count))
        && executor.fits(asked.key.len(), asked.flags, asked.len)
        && let Some(data) = input.get(data_at..data_at + asked.len + 2)
        && let [data @ .., b'\r', b'\n'] = data
    {
        let head = Head {
            cas: executor.version(),
            flags: asked.flags,
            expires: executor.service.expires(asked.exptime),
            ..Head::default()
        };
        head.write(&mut built);
        built.extend_from_slice(data);
        (*key, *end) = (asked.key, built.len());
        quiet |= u32::from(asked.noreply) << count;
        at = data_at + asked.len + 2;
        count += 1;
        if built.len() >= RUN_BYTES {
            break;
        }
        next = set_at(input, at);
    }
    let mut records: [(&[u8], &[u8]); RUN] = [(b"", b""); RUN];
    let mut start = 0;
    for ((record, key), end) in records.iter_mut().zip(keys).zip(ends).take(count) {
        *record = (key, built.get(start..end).unwrap_or_default());
        start = end;
    }
    let records = records.get(..count).unwrap_or_default();
    let all = executor.service.engine.put_many(records);
    executor.tally.add(Count::CmdSet, count as u32);
    executor.note_sets(records.iter().map(|record| record.0));
    for (index, record) in records.iter().enumerate() {
        let put = match &all {
            Ok(()) => Ok(()),
            Err(_) => put_again(&*executor.service.engine, *record),
        };
        note(executor, *record, &put);
        if put.is_ok() {
            executor.wrote();
            executor.tally.one(Count::TotalItems);
        }
        match put {
            _ if quiet & 1 << index != 0 => {}
            Ok(()) => push_line(output, "STORED"),
            Err(error) => push_outcome(executor, Err(error), output),
        }
    }
    executor.scratch = built;
    at
}

/// The `set` line that begins at `at`, and where that ends; `None`: there is none, or it is not whole.
#[inline]
fn set_at(input: &[u8], at: usize) -> Option<(Store<'_>, usize)> {
    let rest = input.get(at..).filter(|rest| rest.starts_with(b"set "))?;
    let len = memchr(b'\n', rest)?;
    match text::parse(text::without_end(rest.get(..len)?)) {
        Command::Store(asked) => Some((asked, at + len + 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use azekura::record::memory::tiny::TinyDb;

    use super::*;

    #[test]
    fn what_was_stored_since_is_not_put_again() {
        let db = TinyDb::new().unwrap();
        let item = |cas, data: &[u8]| {
            let mut record = Vec::new();
            let head = Head {
                cas,
                ..Head::default()
            };
            head.write(&mut record);
            record.extend_from_slice(data);
            record
        };
        for (cas, stored) in [(5, 5), (4, 5), (5, 5), (7, 7)] {
            put_again(&db, (b"a", &item(cas, &[cas as u8]))).unwrap();
            let mut found = None;
            let mut visit = |value: Option<&[u8]>| found = value.and_then(version);
            azekura::Reader::read(&db, b"a", &mut visit).unwrap();
            assert_eq!(found, Some(stored));
        }
    }
}
