//! Records in memory in the order of their keys: a B+ tree of packed nodes.
//!
//! Promises:
//! 1. A lookup in lexical order costs two cache misses, one for the leaf's slots, which come in together, and one for the
//!    item; inner nodes of 10 million records take less than 2 MiB. Readers take no lock, store to no shared line, and wait
//!    only while a node is being changed. The misses of a batch overlap.
//! 2. An update locks its leaf; a division also the parents that change with it; never the tree.
//! 3. A record of 8 and 8 bytes takes 16 to 20 bytes in its leaf. Ascending keys leave full leaves, random ones two thirds
//!    full. Sparse neighbours are joined; frames and long values given back are used again, or go back to the system: in addition to
//!    the frames in use as many may be kept, or four mebibytes, and as many again may wait for the last who looks at them.
//! 4. `update_many` is isolated, and a reader who saw one of its edits sees the others. Nothing survives the process.
//! 5. A scan, and a cursor, shows what was there all along once, and resumes from any bookmark; leaves are copied before
//!    they are shown, so it holds nothing while it lends.
//! 6. Keys in lexical order have up to 8 MiB - 1. From 510 bytes on a record stands outside, and an update costs
//!    eight bytes more for each record whose key has the same first 510. In other orders keys end at 510 bytes.
//! 7. At its limit of memory a put is answered `Full` and nothing is lost; removals continue. What is kept without use stays
//!    within the limit; what waits for the last who looks at it is not counted.
//!
//! ```text
//!   tree     the way down, locks, division and joining   -- node (crate::node): search, insert, divide
//!   frame    where nodes live       cell   long values, reclaimed by epochs       budget  how much both may take
//!   update, many  edits of one and of many    walk  records in order, both ways   together  many ways down at once
//!   cluster  long keys, those that begin alike together
//! ```
//!
//! What a reader is lent is a copy of up to 510 bytes that was found valid, or a value outside, which never changes and stays
//! while the reader is pinned. Lock order: the gate, then as in `tree`. No file, no clock, no thread of its own.

mod budget;
mod cell;
mod cluster;
mod frame;
mod many;
#[cfg(test)]
mod tests;
mod together;
mod tree;
mod update;
mod walk;

use std::sync::Arc;

use budget::Budget;
use cell::Cells;
use cluster::words_of;
use frame::Frames;
use together::GROUP;
use tree::BabyTree;

use crate::counter::Counter;
use crate::engine::{
    Bookmark, Cursor, Damaged, DecideMany, Edit, Engine, Ordered, OrderedEngine, Promise, Reader,
    Stats, Visit,
};
use crate::epoch::{Domain, Pin};
use crate::error::Result;
use crate::node::KEY_LEN_MAX;
use crate::node::tree::{Buffer, FRAME, Seen};
use crate::order::Order;
use crate::record::gate::{self, Gate};
use crate::record::key_bookmark;
use crate::record::limits::Limits;
use crate::room;

/// The longest records.
const LIMITS: Limits = Limits {
    key: (8 << 20) - 1,
    value: (2 << 30) - 1,
    whose: "an ordered store in memory",
};
/// The same where keys are compared as a whole.
const LIMITS_OF_WHOLE_KEYS: Limits = Limits {
    key: KEY_LEN_MAX as u64,
    value: LIMITS.value,
    whose: "an ordered store in memory in this order",
};

/// How a store is made.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The order of its keys.
    pub order: Order,
    /// Bytes that its nodes and what stands outside of them may take, at least 1 MiB; beyond, a put is answered `Full`. So
    /// is an update of many that seems to need more than there is; it may take somewhat more than it seems. `None`: what the
    /// system gives.
    pub memory_limit: Option<u64>,
}

setters! {
    Options {
        order: Order,
        memory_limit: impl Into<Option<u64>>,
    }
}

/// An ordered store in memory. See the module's text.
pub struct BabyDb {
    domain: Domain,
    tree: BabyTree,
    cells: Cells,
    limits: &'static Limits,
    /// Lets updates pass; closed while everything is removed.
    gate: Gate,
    count: Counter,
}

impl std::fmt::Debug for BabyDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BabyDb")
            .field("order", &self.tree.order)
            .field("count", &self.count.sum())
            .finish_non_exhaustive()
    }
}

impl BabyDb {
    /// An empty store in lexical order. `Io` if the system refuses the addresses.
    pub fn new() -> Result<Self> {
        Self::with(&Options::default())
    }

    /// An empty store. `Invalid` for a limit below 1 MiB; else errors as [`new`](Self::new).
    pub fn with(options: &Options) -> Result<Self> {
        let budget = Arc::new(Budget::new(options.memory_limit)?);
        let domain = Domain::new();
        Ok(Self {
            tree: BabyTree {
                order: options.order,
                nodes: Frames::new(options.order, domain.clone(), Arc::clone(&budget))?,
            },
            cells: Cells::new(domain.clone(), budget),
            limits: match options.order {
                Order::Lexical => &LIMITS,
                _ => &LIMITS_OF_WHOLE_KEYS,
            },
            gate: Gate::new(domain.clone()),
            count: Counter::new(0)?,
            domain,
        })
    }

    /// The order of its keys.
    pub fn order(&self) -> Order {
        self.tree.order
    }

    /// The value of `key`, copied. `Full` if there is no memory for it.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read_with(key, |value| value.map(room::copy).transpose())?
    }

    /// Lends the value of `key`, or its absence, to `visit`: no lock, and no allocation up to 64 bytes.
    #[inline]
    pub fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        if self.is_long(key) {
            return Ok(self.read_long(key, visit));
        }
        let pin = self.domain.pin();
        let mut buffer = Buffer::default();
        let seen = self.see(key, &mut buffer);
        Ok(Self::lend(&pin, &seen, &buffer, visit))
    }

    #[inline(always)]
    fn lend<R>(
        pin: &Pin,
        seen: &Seen,
        buffer: &Buffer,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> R {
        match seen {
            Seen::Absent => visit(None),
            Seen::Copied(len) => visit(Some(buffer.bytes(*len))),
            Seen::Outside(word) => visit(Some(Self::outside(pin, *word))),
        }
    }

    /// The out-of-line value that a word points to. The word was found in a node since the pin began, in a state that counts.
    #[inline]
    #[expect(unsafe_code, reason = "words are the cells' to give and ours to keep")]
    fn outside(pin: &Pin, word: u64) -> &[u8] {
        // SAFETY: a node's value is marked as outside with a word that `Cells::put` gave, and nothing else; who calls has
        // asked the latch since, or holds it. It is retired after it was taken out of the node, so after the pin began.
        unsafe { Cells::get(pin, word) }
    }

    #[inline(always)]
    fn see(&self, key: &[u8], buffer: &mut Buffer) -> Seen {
        let Ok(seen) = self.tree.see(key, buffer);
        seen
    }
}

impl Reader for BabyDb {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.read_with(key, visit)
    }

    fn read_many(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let mut ways = [None; GROUP];
        let mut buffer = Buffer::default();
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            let pin = self.domain.pin();
            self.tree.locate(&keys.iter().copied(), &mut ways);
            for (at, (key, way)) in keys.iter().zip(&ways).enumerate() {
                if self.is_long(key) {
                    self.read_long(key, |value| visit(group * GROUP + at, value));
                    continue;
                }
                let seen = way
                    .as_ref()
                    .and_then(|way| self.see_along(way, key, &mut buffer));
                let seen = seen.unwrap_or_else(|| self.see(key, &mut buffer));
                Self::lend(&pin, &seen, &buffer, |value| {
                    visit(group * GROUP + at, value);
                });
            }
        }
        Ok(())
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        _: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        self.walk(from, visit)
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        key_bookmark::at(key)
    }

    fn count(&self) -> u64 {
        self.count.sum()
    }

    fn stats(&self) -> Stats {
        let frames = &self.tree.nodes;
        let outside = self.cells.bytes();
        Stats {
            count: self.count.sum(),
            live_bytes: frames.used() * FRAME + outside,
            file_bytes: 0,
            memory_bytes: frames.warm() * FRAME + outside,
            more: vec![
                ("order", self.tree.order.name().to_owned()),
                ("levels", (self.tree.height() + 1).to_string()),
                ("nodes", frames.used().to_string()),
                ("outside_bytes", outside.to_string()),
            ],
        }
    }

    fn promise(&self) -> Promise {
        Promise {
            engine: "baby",
            evicts: false,
            durability: None,
            update_many_is_crash_atomic: false,
            key_len_max: self.limits.key,
            value_len_max: self.limits.value,
        }
    }

    fn as_ordered(&self) -> Option<&dyn Ordered> {
        Some(self)
    }
}

impl Engine for BabyDb {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.edit(key, decide)
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        self.edit_many(keys, decide)
    }

    fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        for group in records.chunks(GROUP) {
            let _pin = self.domain.pin();
            let keys = group.iter().map(|(key, _)| *key);
            self.tree.locate(&keys, &mut [None; GROUP]);
            for (key, value) in group {
                self.put(key, value)?;
            }
        }
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        gate::outside_updates()?;
        self.remove_all()
    }

    fn as_ordered_engine(&self) -> Option<&dyn OrderedEngine> {
        Some(self)
    }
}

impl OrderedEngine for BabyDb {}

impl Ordered for BabyDb {
    fn order_name(&self) -> &str {
        self.tree.order.name()
    }

    fn cursor(&self) -> Box<dyn Cursor + '_> {
        Box::new(walk::At::new(self))
    }
}

impl Drop for BabyDb {
    #[expect(unsafe_code, reason = "words are the cells' to give and ours to keep")]
    fn drop(&mut self) {
        let Self { tree, cells, .. } = self;
        let order = tree.order;
        tree.leaves(&mut |node| {
            words_of(&self.domain, node, order, &mut |word| {
                // SAFETY: of `Cells::put`, still in its node or its list, and no thread reads it any more.
                unsafe { cells.drop_unseen(word) };
            });
        });
    }
}
