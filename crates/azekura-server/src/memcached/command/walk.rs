//! Walks over all records in pieces, while other clients are served: Flare's dumps, and memcached's.
//!
//! | command | answer |
//! |---|---|
//! | `keys prefix... limit` | `KEY key` for at most so many keys with one of these beginnings, `END` |
//! | `dump [pause_us [0 1 [kB_s]]]` | `VALUE key flags bytes version expires` and the data of every item, `END` |
//! | `dump_key [0 1 [kB_s]]` | `KEY key` for every item, `END` |
//! | `lru_crawler metadump all` | `OK`, `key=... exp=... la=0 cas=... fetch=no cls=1 size=... flags=... ` for every item, `END` |
//! | `lru_crawler mgdump all` | `OK`, `mg key` for every item, `EN` |
//! | `stats cachedump 1 limit` | `ITEM key [bytes b; expires s]` for at most so many items, `END` |
//! | `stats sizes` | `STAT size count`, sizes in steps of 32 bytes, beyond a mebibyte in steps of one, `END` |
//!
//! The words of the first three are Flare's: a pause after each record, of a minute at most, a partition and how many
//! there are, a bound on the rate. There is one partition here, and one class. In a key, bytes that are not printable ASCII,
//! and `%`, are written as `%XX`, so that no key breaks its line; `metadump` and `mgdump` write it as memcached does.
//! Damaged records are skipped, and the last line is then the error instead of `END`. A record that
//! is present during the whole walk is sent once. Between two pieces the walk keeps a bookmark and no lock, and no memory
//! but for sizes, which are 34,000 at most; its caller keeps the pause before the next one.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use azekura::engine::Bookmark;
use azekura::error::{Error, Result};

use crate::item::Item;
use crate::memcached::command::executor::Executor;
use crate::memcached::protocol::number;
use crate::memcached::protocol::text::{BAD_FORMAT, WalkKind, Words};

/// Records examined in one piece.
const PIECE: usize = 1024;

/// Microseconds of pauses after which a piece ends.
const PAUSE: u64 = 1_000_000;
/// The longest pause after a record, in microseconds: so late may a disconnected client be noticed.
const PAUSE_MAX: u64 = 60_000_000;

/// The class that all items are of.
const CLASS: u64 = 1;
/// memcached's classes are below this.
const CLASSES: u64 = 64;

/// Steps to which sizes are rounded, and those beyond `SIZE_FINE`.
const SIZE_STEP: u64 = 32;
const SIZE_FINE: u64 = 1 << 20;

/// A walk that is under way.
#[derive(Debug)]
pub(crate) struct Walk {
    what: WalkKind,
    /// `None` at the start, and after the last record.
    from: Option<Bookmark>,
    has_ended: bool,
    /// Beginnings of keys; none: all keys.
    prefixes: Vec<Vec<u8>>,
    /// Records that may still be sent.
    left: u64,
    pause_us: u64,
    bytes_per_second: u64,
    /// How many items are of each size.
    sizes: BTreeMap<u64, u64>,
    /// The first record that could not be read.
    damaged: Option<Error>,
}

/// What a piece came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// There is more, after so many milliseconds.
    More(u64),
    /// It was the last.
    End,
}

impl Walk {
    fn new(what: WalkKind, left: u64) -> Self {
        Self {
            what,
            from: None,
            has_ended: false,
            prefixes: Vec::new(),
            left,
            pause_us: 0,
            bytes_per_second: 0,
            sizes: BTreeMap::new(),
            damaged: None,
        }
    }

    /// The walk of `stats sizes`.
    pub(crate) fn sizes() -> Self {
        Self::new(WalkKind::Sizes, u64::MAX)
    }

    /// The walk of a line `lru_crawler metadump` or `mgdump` that names these classes; the error is the answer.
    pub(crate) fn crawl(
        what: WalkKind,
        classes: &[u8],
        bytes_per_second: u64,
    ) -> std::result::Result<Self, &'static str> {
        let is_ours = has_class(classes, true)?;
        Ok(Self {
            bytes_per_second,
            ..Self::new(what, if is_ours { u64::MAX } else { 0 })
        })
    }

    /// The walk of `stats cachedump` with these words; the error is the answer.
    pub(crate) fn cache_dump(
        words: &[u8],
        bytes_per_second: u64,
    ) -> std::result::Result<Self, &'static str> {
        let mut words = Words(words);
        let (Some(class), Some(limit)) = (words.next(), words.next()) else {
            return Err("CLIENT_ERROR bad command line");
        };
        let (Some(class), Some(limit)) = (number::short(class), number::short(limit)) else {
            return Err(BAD_FORMAT);
        };
        let left = match (class.into(), limit.into()) {
            (CLASSES.., _) => return Err("CLIENT_ERROR Illegal slab id"),
            (CLASS, 0) => u64::MAX,
            (CLASS, limit) => limit,
            _ => 0,
        };
        Ok(Self {
            bytes_per_second,
            ..Self::new(WalkKind::CacheDump, left)
        })
    }

    /// The walk a line `keys`, `dump` or `dump_key` asks for; the error is the answer.
    pub(crate) fn parse(
        what: WalkKind,
        words: &[u8],
        bytes_per_second: u64,
    ) -> std::result::Result<Self, &'static str> {
        let mut walk = Self {
            bytes_per_second,
            ..Self::new(what, u64::MAX)
        };
        if what == WalkKind::Keys {
            let limit = Words(words).last().and_then(number::unsigned);
            let count = Words(words).count();
            let (Some(limit), 2..) = (limit, count) else {
                return Err(BAD_FORMAT);
            };
            walk.left = limit;
            let prefixes = Words(words).take(count - 1);
            walk.prefixes = prefixes.map(<[u8]>::to_vec).collect();
            return Ok(walk);
        }
        let mut numbers = [None; 4];
        // `dump_key` has no pause.
        let first = usize::from(what == WalkKind::DumpKey);
        for (index, word) in Words(words).enumerate() {
            let number = number::unsigned(word).ok_or(BAD_FORMAT)?;
            *numbers.get_mut(first + index).ok_or(BAD_FORMAT)? = Some(number);
        }
        let [pause, partition, partitions, rate] = numbers;
        if !matches!((partition, partitions), (None, None) | (Some(0), Some(1))) {
            return Err("CLIENT_ERROR there is one partition: 0 of 1");
        }
        walk.pause_us = pause.unwrap_or(0).min(PAUSE_MAX);
        if let Some(kilobytes) = rate.filter(|rate| *rate > 0) {
            walk.bytes_per_second = kilobytes.saturating_mul(1024);
        }
        Ok(walk)
    }

    /// Bytes it holds, nearly.
    pub(crate) fn held(&self) -> usize {
        self.sizes.len() * 4 * size_of::<u64>()
    }

    /// Appends the next piece.
    pub(crate) fn step(&mut self, executor: &mut Executor, output: &mut Vec<u8>) -> Result<Piece> {
        // A tenth of a second's worth, so that the rate is even.
        let room = match self.bytes_per_second {
            0 => executor.service.settings.output_max,
            rate => (rate / 10).max(1) as usize,
        };
        let start = output.len();
        let full = executor.service.settings.output_max;
        let end = start.saturating_add(room).min(full);
        let mut shown = 0;
        if !self.has_ended {
            shown = self.look(executor, end, output)?;
        }
        if self.has_ended {
            while let Some((size, count)) = self.sizes.pop_first() {
                output.extend_from_slice(b"STAT ");
                number::push(output, size);
                output.push(b' ');
                number::push(output, count);
                output.extend_from_slice(b"\r\n");
                if output.len() >= end {
                    break;
                }
            }
            if self.sizes.is_empty() {
                if let Some(error) = self.damaged.take() {
                    return Err(error);
                }
                output.extend_from_slice(match self.what {
                    WalkKind::MgDump => b"EN\r\n".as_slice(),
                    _ => b"END\r\n",
                });
                return Ok(Piece::End);
            }
        }
        let sent = (output.len() - start) as u64;
        let for_rate = (sent * 1000)
            .checked_div(self.bytes_per_second)
            .unwrap_or(0);
        let for_records = shown.saturating_mul(self.pause_us) / 1000;
        Ok(Piece::More(for_rate.max(for_records)))
    }

    /// Reads the next records, and appends them until the output has `end` bytes; returns how many.
    fn look(&mut self, executor: &Executor, end: usize, output: &mut Vec<u8>) -> Result<u64> {
        let (mut looked, mut shown) = (0, 0);
        let (what, prefixes, sizes) = (self.what, &self.prefixes, &mut self.sizes);
        let now = executor.now;
        let piece = PAUSE
            .checked_div(self.pause_us)
            .map_or(u64::MAX, |n| n.max(1));
        let left = self.left;
        let damaged = &mut self.damaged;
        self.from = executor.service.engine.scan_past(
            self.from.as_ref(),
            &mut |key, value| {
                looked += 1;
                let item = Item::decode(value).filter(|item| !item.head.is_over(now));
                let is_meant = prefixes.is_empty() || prefixes.iter().any(|p| key.starts_with(p));
                if let (Some(item), true) = (item, is_meant && shown < left) {
                    shown += 1;
                    match what {
                        WalkKind::Sizes => {
                            *sizes.entry(step(size_of_item(key, &item))).or_default() += 1;
                        }
                        _ => push(output, what, key, &item),
                    }
                }
                if looked == PIECE || shown >= left.min(piece) || output.len() >= end {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
            &mut |error| {
                damaged.get_or_insert(error);
                Ok(())
            },
        )?;
        self.left -= shown;
        self.has_ended = self.from.is_none() || self.left == 0;
        Ok(shown)
    }
}

/// Whether a list of classes has the one that items are of; the error is the answer. `hash`: whether that may be stated
/// instead, for the order of the table.
pub(crate) fn has_class(classes: &[u8], hash: bool) -> std::result::Result<bool, &'static str> {
    if classes == b"all" || (hash && classes == b"hash") {
        return Ok(true);
    }
    let mut found = false;
    for class in classes.split(|byte| *byte == b',') {
        match number::unsigned(class) {
            Some(class @ 1..CLASSES) => found |= class == CLASS,
            _ => return Err("BADCLASS invalid class id"),
        }
    }
    Ok(found)
}

/// Bytes of an item, with its key.
pub(crate) fn size_of_item(key: &[u8], item: &Item<'_>) -> u64 {
    (key.len() + item.head.len() + item.data.len()) as u64
}

/// The step of a size.
fn step(size: u64) -> u64 {
    let step = if size <= SIZE_FINE {
        SIZE_STEP
    } else {
        SIZE_FINE
    };
    size.div_ceil(step) * step
}

fn push(output: &mut Vec<u8>, what: WalkKind, key: &[u8], item: &Item<'_>) {
    match what {
        WalkKind::MetaDump => return push_meta(output, key, item),
        WalkKind::MgDump => {
            output.extend_from_slice(b"mg ");
            // A key that a line cannot hold is written as base64, by which it is found as well.
            if item.head.is_binary_key || key.iter().any(|byte| *byte <= b' ') {
                number::push_base64(output, key);
                output.extend_from_slice(b" b");
            } else {
                output.extend_from_slice(key);
            }
            return output.extend_from_slice(b"\r\n");
        }
        WalkKind::Dump => output.extend_from_slice(b"VALUE "),
        WalkKind::CacheDump => output.extend_from_slice(b"ITEM "),
        _ => output.extend_from_slice(b"KEY "),
    }
    number::push_key(output, key);
    match what {
        WalkKind::Dump => {
            for number in [
                u64::from(item.head.flags),
                item.data.len() as u64,
                item.head.cas,
                u64::from(item.head.expires),
            ] {
                output.push(b' ');
                number::push(output, number);
            }
            output.extend_from_slice(b"\r\n");
            output.extend_from_slice(item.data);
        }
        WalkKind::CacheDump => {
            output.extend_from_slice(b" [");
            number::push(output, item.data.len() as u64);
            output.extend_from_slice(b" b; ");
            number::push(output, u64::from(item.head.expires));
            output.extend_from_slice(b" s]");
        }
        _ => {}
    }
    output.extend_from_slice(b"\r\n");
}

/// A line of `metadump`, as memcached writes it: a space after the last word, and no carriage return.
fn push_meta(output: &mut Vec<u8>, key: &[u8], item: &Item<'_>) {
    output.extend_from_slice(b"key=");
    number::push_uri(output, key);
    output.extend_from_slice(b" exp=");
    match item.head.expires {
        0 => output.extend_from_slice(b"-1"),
        expires => number::push(output, u64::from(expires)),
    }
    for (word, number) in [
        (" la=0 cas=", item.head.cas),
        (" fetch=no cls=1 size=", size_of_item(key, item)),
        (" flags=", u64::from(item.head.flags)),
    ] {
        output.extend_from_slice(word.as_bytes());
        number::push(output, number);
    }
    output.extend_from_slice(b" \n");
}
