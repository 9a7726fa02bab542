//! Merging sorted sources of records to one.
//!
//! A tournament of losers (Knuth, volume 3, 5.4.1): each step compares the record that comes next of one source with those of
//! log2(n) others. Comparisons are of the first eight bytes of keys where these differ. Records of equal keys come in the order
//! of their sources.
//!
//! It does not know what sources are made of.

use std::cmp::Ordering;

use super::arena::{Put, PutArena, head_of};
use super::cursor::SkipCursor;
use super::sorter::RunReader;
use crate::error::Result;
use crate::order::Order;

/// Something that gives records in order.
pub(super) enum Source<'s> {
    /// A run that was written.
    Run(RunReader),
    /// A sorted arena, and the index of the present record.
    Arena(PutArena, usize),
    /// A file.
    File(Box<SkipCursor<'s>>),
}

impl Source<'_> {
    fn get(&self) -> Option<Put<'_>> {
        match self {
            Self::Run(reader) => reader.get(),
            Self::Arena(arena, at) => arena.get(*at),
            Self::File(cursor) => {
                let (key, value) = cursor.get()?;
                Some(Put {
                    key,
                    value: Some(value),
                })
            }
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Self::Run(reader) => reader.advance(),
            Self::Arena(_, at) => {
                *at += 1;
                Ok(())
            }
            Self::File(cursor) => cursor.advance(),
        }
    }
}

/// See the module's text.
pub(super) struct Merge<'s> {
    order: Order,
    sources: Vec<Source<'s>>,
    /// Of each source: the first bytes of its key; `None`: it has ended.
    heads: Vec<Option<u64>>,
    /// Of each inner place of the tournament, from 1 on: the source that lost there.
    losers: Vec<usize>,
    winner: usize,
}

impl<'s> Merge<'s> {
    /// Sources that stand at their first records.
    pub(super) fn new(order: Order, sources: Vec<Source<'s>>) -> Self {
        let mut merge = Self {
            order,
            heads: Vec::new(),
            losers: vec![usize::MAX; sources.len()],
            winner: 0,
            sources,
        };
        for at in 0..merge.sources.len() {
            let head = merge.head(at);
            merge.heads.push(head);
        }
        for at in 0..merge.sources.len() {
            merge.play(at, true);
        }
        merge
    }

    fn head(&self, at: usize) -> Option<u64> {
        let put = self.sources[at].get()?;
        Some(match self.order {
            Order::Lexical => head_of(put.key),
            _ => 0,
        })
    }

    /// Whether the record of source `a` comes before that of `b`.
    fn is_before(&self, a: usize, b: usize) -> bool {
        let by_head = match (self.heads[a], self.heads[b]) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return a < b,
        };
        let by_key = || match (self.sources[a].get(), self.sources[b].get()) {
            (Some(a), Some(b)) => self.order.compare(a.key, b.key),
            _ => Ordering::Equal,
        };
        by_head.then_with(by_key).then(a.cmp(&b)).is_lt()
    }

    /// Has a source play from the bottom of the tournament to its top. `is_first`: it waits at the first place where none came by.
    fn play(&mut self, source: usize, is_first: bool) {
        let mut winner = source;
        let mut place = usize::midpoint(source, self.sources.len());
        while place > 0 {
            let other = self.losers[place];
            if other == usize::MAX {
                if is_first {
                    self.losers[place] = winner;
                    return;
                }
            } else if self.is_before(other, winner) {
                self.losers[place] = winner;
                winner = other;
            }
            place /= 2;
        }
        self.winner = winner;
    }

    /// The record that comes next.
    pub(super) fn get(&self) -> Option<Put<'_>> {
        self.sources.get(self.winner)?.get()
    }

    /// Continues with the one after it.
    pub(super) fn advance(&mut self) -> Result<()> {
        let Some(source) = self.sources.get_mut(self.winner) else {
            return Ok(());
        };
        source.advance()?;
        self.heads[self.winner] = self.head(self.winner);
        self.play(self.winner, false);
        Ok(())
    }
}
