//! Records in order: scans, a leaf at a time, and cursors, a record at a time.
//!
//! A leaf is copied as it was at one moment (`node::tree`), then shown; of a cluster, its members in order.
//!
//! It holds nothing while it shows a record but a pin, for what stands outside.

use super::BabyDb;
use super::cluster::{Cluster, STEM, is_stem};
use crate::engine::{Bookmark, Cursor, Visit};
use crate::epoch::Pin;
use crate::error::Result;
use crate::node::tree::{Begin, LeafCopy, Looked, Place};
use crate::record::key_bookmark;
use crate::room;

/// Where to look for the next entry, and from which of its members on, should it be a cluster.
struct Start {
    from: Begin,
    /// A long key, and whether to begin after it.
    bound: Option<(Vec<u8>, bool)>,
}

impl Start {
    fn first() -> Self {
        Begin::First.into()
    }

    /// How many members of a cluster come before it.
    fn skipped(&self, stem: &[u8], cluster: Cluster<'_>) -> usize {
        self.bound.as_ref().map_or(0, |(key, is_after)| {
            key.strip_prefix(stem)
                .map_or(0, |rest| cluster.before(rest, *is_after))
        })
    }
}

impl std::convert::From<Begin> for Start {
    fn from(from: Begin) -> Self {
        Self { from, bound: None }
    }
}

/// What an entry of a leaf is.
enum Entry<'b> {
    Record(&'b [u8], &'b [u8]),
    Cluster(&'b [u8], Cluster<'b>),
}

impl BabyDb {
    fn entry<'b>(&self, copy: &'b LeafCopy, pin: &'b Pin, at: usize) -> Option<Entry<'b>> {
        let (key, place, value) = copy.entry(at)?;
        Some(match place {
            Place::Copied(_) => Entry::Record(key, value),
            Place::Outside(word) if is_stem(self.tree.order, key.len()) => {
                Entry::Cluster(key, Cluster::at(pin, word))
            }
            Place::Outside(word) => Entry::Record(key, Self::outside(pin, word)),
        })
    }

    /// The place at a key, or after it.
    fn start(&self, key: &[u8], is_after: bool) -> Result<Start> {
        let copy = room::copy(key)?;
        Ok(if self.is_long(key) {
            Start {
                from: Begin::At(key[..STEM].to_vec()),
                bound: Some((copy, is_after)),
            }
        } else if is_after {
            Begin::After(copy).into()
        } else {
            Begin::At(copy).into()
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
        let mut batch = LeafCopy::default();
        let mut long = Vec::new();
        // Who breaks off early should not pay for all of a leaf.
        let mut most = 8;
        loop {
            let pin = self.domain.pin();
            match self.tree.take_from(&start.from, most, &mut batch)? {
                Looked::End => return Ok(None),
                Looked::Beyond(fence) => start = Begin::At(fence).into(),
                Looked::Records => {
                    for at in 0..batch.count() {
                        match self.entry(&batch, &pin, at) {
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
                    start = Begin::After(batch.last_key().to_vec()).into();
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
    batch: LeafCopy,
    key: Vec<u8>,
    value: Vec<u8>,
    is_placed: bool,
}

impl<'d> At<'d> {
    pub(super) fn new(db: &'d BabyDb) -> Self {
        Self {
            db,
            batch: LeafCopy::default(),
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
        let (key, rest, value) = match self.db.entry(&self.batch, pin, 0) {
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
            match self.db.tree.take_from(&start.from, 1, &mut self.batch)? {
                Looked::Records => {
                    if self.arrive(&pin, |stem, cluster| Some(start.skipped(stem, cluster)))? {
                        return Ok(true);
                    }
                    start = Begin::After(self.batch.last_key().to_vec()).into();
                }
                Looked::Beyond(fence) => start = Begin::At(fence).into(),
                Looked::End => return Ok(false),
            }
        }
    }

    fn backward(&mut self, mut before: Option<Vec<u8>>) -> Result<bool> {
        self.is_placed = false;
        loop {
            let pin = self.db.domain.pin();
            match self
                .db
                .tree
                .take_before(before.as_deref(), 1, &mut self.batch)?
            {
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
