//! Records in order: scans, a leaf at a time, and cursors, a record at a time.
//!
//! A leaf is copied as it was at one moment, then shown; its upper fence states where the next one begins, and its lower
//! fence, for cursors, where the one before ends. So no leaf points to another, and what comes and goes meanwhile
//! moves no reader past a record that stays. A reader that finds a leaf changed too often reads it under its lock.

use super::cluster::{Cluster, STEM, is_stem};
use super::{BabyDb, TRIES};
use crate::engine::{Bookmark, Cursor, Visit};
use crate::epoch::Pin;
use crate::error::Result;
use crate::node::tree::To;
use crate::node::{Found, Key, Node};
use crate::order::Order;
use crate::record::key_bookmark;
use crate::room;

/// Where to look for the next entry, and from which of its members on, should it be a cluster.
struct Start {
    from: From,
    /// A long key, and whether to begin after it.
    bound: Option<(Vec<u8>, bool)>,
}

impl Start {
    fn first() -> Self {
        From::First.into()
    }

    /// How many members of a cluster come before it.
    fn skipped(&self, stem: &[u8], cluster: Cluster<'_>) -> usize {
        self.bound.as_ref().map_or(0, |(key, is_after)| {
            key.strip_prefix(stem)
                .map_or(0, |rest| cluster.before(rest, *is_after))
        })
    }
}

impl std::convert::From<From> for Start {
    fn from(from: From) -> Self {
        Self { from, bound: None }
    }
}

/// Where to look for the next entry.
enum From {
    First,
    At(Vec<u8>),
    After(Vec<u8>),
}

impl From {
    fn to(&self) -> To<'_> {
        match self {
            Self::First => To::First,
            Self::At(key) | Self::After(key) => To::Key(key),
        }
    }

    fn entry(&self, node: Node<'_>) -> usize {
        match self {
            Self::First => 0,
            Self::At(key) => node.find(key).0,
            Self::After(key) => {
                let (at, is_equal) = node.find(key);
                at + usize::from(is_equal)
            }
        }
    }
}

/// Where a value is that was found in a copied leaf.
enum Place {
    /// After its key.
    Copied(usize),
    Outside(u64),
    /// Its key is the stem of what this word lists.
    Cluster(u64),
}

/// Some records of a leaf, copied.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each begins, the length of its key, its value.
    records: Vec<(usize, usize, Place)>,
    key: Key,
    order: Order,
}

impl Batch {
    fn new(order: Order) -> Self {
        Self {
            order,
            ..Self::default()
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    /// Errors: `Full`.
    fn take(&mut self, node: Node<'_>, at: usize) -> Result<()> {
        node.key(at, &mut self.key);
        let begin = self.bytes.len();
        room::more(&mut self.bytes, self.key.bytes().len())?;
        self.bytes.extend_from_slice(self.key.bytes());
        let place = match node.value(at) {
            Found::Outside(word) if is_stem(self.order, self.key.bytes().len()) => {
                Place::Cluster(word)
            }
            Found::Outside(word) => Place::Outside(word),
            Found::Inside(len, offset) => {
                let start = self.bytes.len();
                room::more(&mut self.bytes, len)?;
                self.bytes.resize(start + len, 0);
                node.copy(offset, &mut self.bytes[start..]);
                Place::Copied(len)
            }
        };
        room::more(&mut self.records, 1)?;
        self.records.push((begin, self.key.bytes().len(), place));
        Ok(())
    }

    fn entry<'b>(&'b self, pin: &'b Pin, at: usize) -> Option<Entry<'b>> {
        let (begin, key_len, place) = self.records.get(at)?;
        let (key, after) = self.bytes.get(*begin..)?.split_at_checked(*key_len)?;
        Some(match place {
            Place::Copied(len) => Entry::Record(key, after.get(..*len)?),
            Place::Outside(word) => Entry::Record(key, BabyDb::outside(pin, *word)),
            Place::Cluster(word) => Entry::Cluster(key, Cluster::at(pin, *word)),
        })
    }

    /// The key of the last entry.
    fn last_key(&self) -> &[u8] {
        let last = self.records.last();
        last.and_then(|(begin, len, _)| self.bytes.get(*begin..begin + len))
            .unwrap_or_default()
    }
}

/// What an entry of a leaf is.
enum Entry<'b> {
    Record(&'b [u8], &'b [u8]),
    Cluster(&'b [u8], Cluster<'b>),
}

/// What a look at a leaf gave.
enum Looked {
    /// The batch has records.
    Records,
    /// It has none; the leaf ends at this fence.
    Beyond(Vec<u8>),
    /// It has none, and neither has any leaf beyond.
    End,
}

impl BabyDb {
    /// Looks at the leaf where the way leads, and calls `read` until it has seen a state of the leaf that counts.
    fn look<T>(&self, to: To<'_>, read: &mut dyn FnMut(Node<'_>) -> T) -> T {
        for tries in 0.. {
            let Ok(end) = self.tree.way_to_leaf(to);
            // No thread changes it while it is locked; but whether it is the right one is still to be checked.
            let lock = (tries >= TRIES).then(|| end.frame.latch.lock());
            let version = end.frame.latch.begin();
            if !self.tree.is_still(&end) {
                continue;
            }
            let seen = read(self.tree.node(end.frame));
            if end.frame.latch.is_still(version) {
                return seen;
            }
            drop(lock);
        }
        unreachable!("the tries have no end")
    }

    /// Copies up to `most` records from a place on.
    fn take_from(&self, from: &From, most: usize, batch: &mut Batch) -> Result<Looked> {
        self.look(from.to(), &mut |node| {
            batch.clear();
            let at = from.entry(node);
            let end = node.count().min(at.saturating_add(most));
            (at..end).try_for_each(|at| batch.take(node, at))?;
            let mut fence = Key::default();
            Ok(if at < end {
                Looked::Records
            } else if node.upper(&mut fence).is_some() {
                Looked::Beyond(fence.bytes().to_vec())
            } else {
                Looked::End
            })
        })
    }

    /// Copies the last record less than a key, or of all.
    fn take_before(&self, key: Option<&[u8]>, batch: &mut Batch) -> Result<Looked> {
        self.look(To::Before(key), &mut |node| {
            batch.clear();
            let end = key.map_or_else(|| node.count(), |key| node.find(key).0);
            let mut fence = Key::default();
            Ok(if let Some(at) = end.checked_sub(1) {
                batch.take(node, at)?;
                Looked::Records
            } else if node.lower(&mut fence).is_some() {
                Looked::Beyond(fence.bytes().to_vec())
            } else {
                Looked::End
            })
        })
    }

    /// The place at a key, or after it.
    fn start(&self, key: &[u8], is_after: bool) -> Result<Start> {
        let copy = room::copy(key)?;
        Ok(if self.is_long(key) {
            Start {
                from: From::At(key[..STEM].to_vec()),
                bound: Some((copy, is_after)),
            }
        } else if is_after {
            From::After(copy).into()
        } else {
            From::At(copy).into()
        })
    }

    /// Records in order.
    pub(super) fn walk(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Bookmark>> {
        let mut start = match from.map(key_bookmark::decode).transpose()? {
            None => Start::first(),
            Some((key, is_after)) => self.start(key, is_after)?,
        };
        let mut batch = Batch::new(self.tree.order);
        let mut long = Vec::new();
        // Who breaks off early should not pay for all of a leaf.
        let mut most = 8;
        loop {
            let pin = self.domain.pin();
            match self.take_from(&start.from, most, &mut batch)? {
                Looked::End => return Ok(None),
                Looked::Beyond(fence) => start = From::At(fence).into(),
                Looked::Records => {
                    for at in 0..batch.records.len() {
                        match batch.entry(&pin, at) {
                            Some(Entry::Record(key, value)) if visit(key, value).is_break() => {
                                return key_bookmark::after(key).map(Some);
                            }
                            Some(Entry::Cluster(stem, cluster)) => {
                                let mut place = start.skipped(stem, cluster);
                                while let Some(member) = cluster.get(place) {
                                    join(&mut long, stem, member.rest)?;
                                    if visit(&long, member.value).is_break() {
                                        return key_bookmark::after(&long).map(Some);
                                    }
                                    place += 1;
                                }
                            }
                            Some(Entry::Record(..)) | None => {}
                        }
                    }
                    start = From::After(batch.last_key().to_vec()).into();
                    most = usize::MAX;
                }
            }
        }
    }
}

/// Makes `key` a stem and a rest.
fn join(key: &mut Vec<u8>, stem: &[u8], rest: &[u8]) -> Result<()> {
    key.clear();
    room::more(key, stem.len() + rest.len())?;
    key.extend_from_slice(stem);
    key.extend_from_slice(rest);
    Ok(())
}

/// A cursor: the record it is on, copied.
pub(super) struct At<'d> {
    db: &'d BabyDb,
    batch: Batch,
    key: Vec<u8>,
    value: Vec<u8>,
    is_placed: bool,
}

impl<'d> At<'d> {
    pub(super) fn new(db: &'d BabyDb) -> Self {
        Self {
            db,
            batch: Batch::new(db.tree.order),
            key: Vec::new(),
            value: Vec::new(),
            is_placed: false,
        }
    }

    /// Comes to the record that was taken; of a cluster, to the member at the place that is chosen, if there is one.
    fn arrive(
        &mut self,
        pin: &Pin,
        choose: impl FnOnce(&[u8], Cluster<'_>) -> Option<usize>,
    ) -> Result<bool> {
        let (key, rest, value) = match self.batch.entry(pin, 0) {
            Some(Entry::Record(key, value)) => (key, &[][..], value),
            Some(Entry::Cluster(stem, cluster)) => {
                match choose(stem, cluster).and_then(|at| cluster.get(at)) {
                    Some(member) => (stem, member.rest, member.value),
                    None => return Ok(false),
                }
            }
            None => return Ok(false),
        };
        join(&mut self.key, key, rest)?;
        self.value.clear();
        room::more(&mut self.value, value.len())?;
        self.value.extend_from_slice(value);
        self.is_placed = true;
        Ok(true)
    }

    fn forward(&mut self, mut start: Start) -> Result<bool> {
        self.is_placed = false;
        loop {
            let pin = self.db.domain.pin();
            match self.db.take_from(&start.from, 1, &mut self.batch)? {
                Looked::Records => {
                    if self.arrive(&pin, |stem, cluster| Some(start.skipped(stem, cluster)))? {
                        return Ok(true);
                    }
                    start = From::After(self.batch.last_key().to_vec()).into();
                }
                Looked::Beyond(fence) => start = From::At(fence).into(),
                Looked::End => return Ok(false),
            }
        }
    }

    fn backward(&mut self, mut before: Option<Vec<u8>>) -> Result<bool> {
        self.is_placed = false;
        loop {
            let pin = self.db.domain.pin();
            match self.db.take_before(before.as_deref(), &mut self.batch)? {
                Looked::Records => {
                    let chosen = |stem: &[u8], cluster: Cluster<'_>| {
                        let rest = before.as_deref().and_then(|key| key.strip_prefix(stem));
                        let end = rest.map_or(cluster.count(), |rest| cluster.before(rest, false));
                        end.checked_sub(1)
                    };
                    if self.arrive(&pin, chosen)? {
                        return Ok(true);
                    }
                    before = Some(self.batch.last_key().to_vec());
                }
                Looked::Beyond(fence) => before = Some(fence),
                Looked::End => return Ok(false),
            }
        }
    }
}

impl Cursor for At<'_> {
    fn first(&mut self) -> Result<bool> {
        self.forward(Start::first())
    }

    fn last(&mut self) -> Result<bool> {
        self.backward(None)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.forward(self.db.start(key, false)?)
    }

    fn next(&mut self) -> Result<bool> {
        if !self.is_placed {
            return self.first();
        }
        self.forward(self.db.start(&self.key, true)?)
    }

    fn previous(&mut self) -> Result<bool> {
        if !self.is_placed {
            return self.last();
        }
        let key = std::mem::take(&mut self.key);
        self.backward(Some(key))
    }

    fn record(&self) -> Option<(&[u8], &[u8])> {
        self.is_placed.then_some((&self.key, &self.value))
    }
}
