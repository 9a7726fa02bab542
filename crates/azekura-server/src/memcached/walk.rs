//! `keys`, `dump` and `dump_key`: walks over all records, told piece by piece, that stop nobody.
//!
//! | command | answer |
//! |---|---|
//! | `keys prefix... limit` | `KEY key` for at most so many keys with one of these beginnings, `END` |
//! | `dump [pause_us [0 1 [kB_s]]]` | `VALUE key flags bytes version expires` and the data of every item, `END` |
//! | `dump_key [0 1 [kB_s]]` | `KEY key` for every item, `END` |
//!
//! The words are Flare's: a pause behind each record, of a minute at most, a partition and how many there are, a bound on
//! the rate. There is one partition here. In a key, what is no printable ASCII, and `%`, is told as `%XX`, so that no key
//! breaks its line. Damaged records are passed over, and the last line is then the error instead of `END`. A record that
//! is present during the whole walk is told once. Between two pieces the walk keeps a bookmark, no lock and no memory;
//! how long it should wait before the next one is for its caller to keep.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::ops::ControlFlow;

use azekura::engine::Bookmark;
use azekura::error::{Error, Result};

use super::execute::Hand;
use super::number;
use super::text::{BAD_FORMAT, Walked, Words};
use crate::item::Item;

/// Records looked at in one piece.
const PIECE: usize = 1024;

/// Microseconds of pauses behind which a piece ends.
const PAUSE: u64 = 1_000_000;
/// The longest pause behind a record, in microseconds: so late is it seen that the client has gone.
const PAUSE_MAX: u64 = 60_000_000;

/// A walk that is under way.
#[derive(Debug)]
pub(super) struct Walk {
    what: Walked,
    from: Option<Bookmark>,
    /// Beginnings of keys; none: all keys.
    prefixes: Vec<Vec<u8>>,
    /// Records that may still be told.
    left: u64,
    pause_us: u64,
    bytes_per_second: u64,
    /// The first record that could not be read.
    damaged: Option<Error>,
}

/// What a piece came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// It goes on, after so many milliseconds.
    More(u64),
    /// It was the last.
    End,
}

impl Walk {
    /// The walk a line asks for; the error is the answer.
    pub(super) fn parse(
        what: Walked,
        words: &[u8],
        bytes_per_second: u64,
    ) -> std::result::Result<Self, &'static str> {
        let mut walk = Self {
            what,
            from: None,
            prefixes: Vec::new(),
            left: u64::MAX,
            pause_us: 0,
            bytes_per_second,
            damaged: None,
        };
        if what == Walked::Keys {
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
        let first = usize::from(what == Walked::DumpKey);
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

    /// Tells the next piece.
    pub(super) fn tell(&mut self, hand: &mut Hand, output: &mut Vec<u8>) -> Result<Piece> {
        // A tenth of a second's worth, so that the rate is even.
        let room = match self.bytes_per_second {
            0 => hand.service.settings.output_max,
            rate => (rate / 10).max(1) as usize,
        };
        let start = output.len();
        let end = start.saturating_add(room);
        let (mut looked, mut told) = (0, 0);
        let (what, prefixes, left) = (self.what, &self.prefixes, self.left);
        let now = hand.now;
        let full = hand.service.settings.output_max;
        // A long pause is kept record by record, not behind a thousand of them.
        let piece = PAUSE
            .checked_div(self.pause_us)
            .map_or(u64::MAX, |n| n.max(1));
        let damaged = &mut self.damaged;
        let from = hand.service.engine.scan_past(
            self.from.as_ref(),
            &mut |key, value| {
                looked += 1;
                let item = Item::decode(value).filter(|item| !item.head.is_over(now));
                let is_meant = prefixes.is_empty() || prefixes.iter().any(|p| key.starts_with(p));
                if let (Some(item), true) = (item, is_meant && told < left) {
                    told += 1;
                    push(output, what, key, &item);
                }
                if looked == PIECE || told >= left.min(piece) || output.len() >= end.min(full) {
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
        self.left -= told;
        self.from = from;
        if self.from.is_none() || self.left == 0 {
            if let Some(error) = self.damaged.take() {
                return Err(error);
            }
            output.extend_from_slice(b"END\r\n");
            return Ok(Piece::End);
        }
        let sent = (output.len() - start) as u64;
        let for_rate = (sent * 1000)
            .checked_div(self.bytes_per_second)
            .unwrap_or(0);
        let for_records = told.saturating_mul(self.pause_us) / 1000;
        Ok(Piece::More(for_rate.max(for_records)))
    }
}

fn push(output: &mut Vec<u8>, what: Walked, key: &[u8], item: &Item<'_>) {
    output.extend_from_slice(if what == Walked::Dump {
        b"VALUE "
    } else {
        b"KEY "
    });
    number::push_key(output, key);
    if what == Walked::Dump {
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
    output.extend_from_slice(b"\r\n");
}
