//! Records of all shards in order: scans, some records of each shard at a time, and cursors.
//!
//! | | at each step |
//! |---|---|
//! | scan | the least of the records that were taken from each shard; more are taken where they run out: 4, then up to 256 or 64 KiB |
//! | cursor | a search in each shard: what came or went meanwhile counts |
//! | cursor of a range | a step in the shard that it was on; a search in the one that it comes to, as its record may be gone |
//!
//! A key is in one shard, so no two records are equal. It knows engines by their contract alone.

use std::ops::ControlFlow;

use super::Sharded;
use crate::engine::{
    Bookmark, Cursor, Damaged, Edit, Engine as _, Ordered, OrderedEngine, Reader, Visit,
};
use crate::error::Result;
use crate::order::{KeyBounds, Order};
use crate::record::{gate, key_bookmark};
use crate::room;

/// Records that are taken from a shard at first, and at most.
const FIRST: usize = 4;
const MOST: usize = 256;
/// Bytes of keys and values after which no more are taken.
const BYTES: usize = 64 << 10;

/// Records of a shard that were taken.
struct Taken {
    /// Keys and values.
    bytes: Vec<u8>,
    /// Where each begins, and its value.
    records: Vec<(usize, usize)>,
    /// The one that comes next.
    at: usize,
    /// Where to take more; `None`: there are none.
    next: Option<Bookmark>,
    /// How many to take then.
    most: usize,
}

impl Taken {
    fn get(&self) -> Option<(&[u8], &[u8])> {
        let (begin, value) = *self.records.get(self.at)?;
        let next = self.records.get(self.at + 1);
        let end = next.map_or(self.bytes.len(), |(begin, _)| *begin);
        Some((&self.bytes[begin..value], &self.bytes[value..end]))
    }

    fn key(&self) -> Option<&[u8]> {
        self.get().map(|(key, _)| key)
    }

    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        room::more(&mut self.bytes, key.len() + value.len())?;
        room::more(&mut self.records, 1)?;
        let begin = self.bytes.len();
        self.records.push((begin, begin + key.len()));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Takes records of a shard, from a place on.
    fn fill<E: Reader>(
        &mut self,
        store: &Sharded<E>,
        shard: usize,
        from: Option<&Bookmark>,
        damaged: &mut Damaged<'_>,
    ) -> Result<()> {
        self.bytes.clear();
        self.records.clear();
        self.at = 0;
        let most = self.most;
        self.most = MOST.min(most * 4);
        let mut pushed = Ok(());
        let next = store.shards[shard].scan_past(
            from,
            &mut |key, value| {
                pushed = self.push(key, value);
                if pushed.is_err() || self.records.len() == most || self.bytes.len() >= BYTES {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            },
            &mut |error| damaged(store.named(shard, error)),
        );
        self.next = next.map_err(|error| store.named(shard, error))?;
        pushed
    }

    /// Comes to the next record of the shard, if there is one.
    fn advance<E: Reader>(
        &mut self,
        store: &Sharded<E>,
        shard: usize,
        damaged: &mut Damaged<'_>,
    ) -> Result<()> {
        self.at += 1;
        while self.at >= self.records.len() {
            let Some(next) = self.next.take() else {
                return Ok(());
            };
            self.fill(store, shard, Some(&next), damaged)?;
        }
        Ok(())
    }
}

/// A heap of shards, that of the least key first.
struct Heap {
    order: Order,
    shards: Vec<usize>,
}

impl Heap {
    fn is_before(&self, taken: &[Taken], a: usize, b: usize) -> bool {
        match (taken[self.shards[a]].key(), taken[self.shards[b]].key()) {
            (Some(a), Some(b)) => self.order.compare(a, b).is_lt(),
            (a, _) => a.is_some(),
        }
    }

    /// Moves what is at a place down to where nothing below it comes before it.
    fn sink(&mut self, taken: &[Taken], mut at: usize) {
        loop {
            let mut least = at;
            for below in [2 * at + 1, 2 * at + 2] {
                if below < self.shards.len() && self.is_before(taken, below, least) {
                    least = below;
                }
            }
            if least == at {
                return;
            }
            self.shards.swap(at, least);
            at = least;
        }
    }
}

/// Records in order.
pub(super) fn scan<E: Reader>(
    store: &Sharded<E>,
    order: Order,
    from: Option<&Bookmark>,
    visit: &mut Visit<'_>,
    damaged: &mut Damaged<'_>,
) -> Result<Option<Bookmark>> {
    let from = from.map(key_bookmark::decode).transpose()?;
    let mut taken = room::vec(store.shards.len())?;
    for shard in 0..store.shards.len() {
        let mut own = Taken {
            bytes: Vec::new(),
            records: Vec::new(),
            at: 0,
            next: from.map(|(key, _)| store.shards[shard].bookmark_at(key)),
            most: FIRST,
        };
        let begin = own.next.take();
        own.fill(store, shard, begin.as_ref(), damaged)?;
        let is_passed = |key| from.is_some_and(|(from, is_after)| is_after && key == from);
        if own.key().is_some_and(is_passed) {
            own.advance(store, shard, damaged)?;
        }
        taken.push(own);
    }
    let shards = room::collect(0..store.shards.len())?;
    let mut heap = Heap { order, shards };
    for at in (0..heap.shards.len() / 2).rev() {
        heap.sink(&taken, at);
    }
    loop {
        let shard = heap.shards[0];
        let Some((key, value)) = taken[shard].get() else {
            return Ok(None);
        };
        if visit(key, value).is_break() {
            return key_bookmark::after(key).map(Some);
        }
        taken[shard].advance(store, shard, damaged)?;
        heap.sink(&taken, 0);
    }
}

/// A cursor over all shards: one in each, and which of them it is on.
pub(super) struct MergedCursor<'s, E> {
    store: &'s Sharded<E>,
    cursors: Vec<Box<dyn Cursor + 's>>,
    at: Option<usize>,
    /// Whether what came meanwhile counts: else a shard's cursor stays on the record before which it came once.
    is_exact: bool,
    /// Of one that is not exact: whether the other cursors are after the record it is on, or before it; `None`: neither.
    is_rising: Option<bool>,
    key: Vec<u8>,
}

impl<'s, E: Reader + Ordered> MergedCursor<'s, E> {
    pub(super) fn new(store: &'s Sharded<E>, is_exact: bool) -> Self {
        Self {
            store,
            cursors: store.shards.iter().map(Ordered::cursor).collect(),
            at: None,
            is_exact,
            is_rising: None,
            key: Vec::new(),
        }
    }

    /// Moves the cursor of a shard.
    fn go(
        &mut self,
        shard: usize,
        step: impl FnOnce(&mut dyn Cursor) -> Result<bool>,
    ) -> Result<bool> {
        let moved = step(&mut *self.cursors[shard]);
        moved.map_err(|error| self.store.named(shard, error))
    }

    fn key_at(&self, shard: usize) -> Option<&[u8]> {
        self.cursors[shard].record().map(|(key, _)| key)
    }

    /// Moves all cursors, and comes to the first, or the last, of their records.
    fn each(
        &mut self,
        is_rising: bool,
        mut step: impl FnMut(&mut dyn Cursor) -> Result<bool>,
    ) -> Result<bool> {
        self.at = None;
        for shard in 0..self.cursors.len() {
            self.go(shard, &mut step)?;
        }
        self.is_rising = Some(is_rising);
        Ok(self.choose(is_rising))
    }

    /// Comes to the first, or the last, of the records that the cursors are on.
    fn choose(&mut self, is_rising: bool) -> bool {
        let order = self.store.order_of_keys();
        let mut chosen: Option<(usize, &[u8])> = None;
        for shard in 0..self.cursors.len() {
            let Some(key) = self.key_at(shard) else {
                continue;
            };
            let is_better = chosen.is_none_or(|(_, best)| {
                let compared = order.compare(key, best);
                if is_rising {
                    compared.is_lt()
                } else {
                    compared.is_gt()
                }
            });
            if is_better {
                chosen = Some((shard, key));
            }
        }
        self.at = chosen.map(|(shard, _)| shard);
        self.at.is_some()
    }

    /// Moves the cursor of a shard to its first record after `self.key`, or to the last one before it.
    fn place(&mut self, shard: usize, is_rising: bool) -> Result<()> {
        let key = std::mem::take(&mut self.key);
        let placed = self.go(shard, |cursor| {
            let found = cursor.seek(&key)?;
            if is_rising {
                let is_at = cursor.record().is_some_and(|(own, _)| own == key);
                return if is_at { cursor.next() } else { Ok(found) };
            }
            if found {
                cursor.previous()
            } else {
                cursor.last()
            }
        });
        self.key = key;
        // Others may have put records beyond the end between a search that found none and the look at the last.
        let order = self.store.order_of_keys();
        while placed.is_ok() && !is_rising {
            let is_beyond = |key| order.compare(key, &self.key).is_ge();
            if !self.key_at(shard).is_some_and(is_beyond) {
                break;
            }
            self.go(shard, |cursor| cursor.previous())?;
        }
        placed.map(drop)
    }

    fn step(&mut self, is_rising: bool) -> Result<bool> {
        let Some(at) = self.at.take() else {
            return if is_rising { self.first() } else { self.last() };
        };
        let mut own = std::mem::take(&mut self.key);
        own.clear();
        let present = self.key_at(at).unwrap_or_default();
        room::more(&mut own, present.len())?;
        own.extend_from_slice(present);
        self.key = own;
        let are_placed = !self.is_exact && self.is_rising == Some(is_rising);
        self.is_rising = None;
        for shard in 0..self.cursors.len() {
            if shard == at {
                self.go(shard, |cursor| {
                    if is_rising {
                        cursor.next()
                    } else {
                        cursor.previous()
                    }
                })?;
            } else if !are_placed {
                self.place(shard, is_rising)?;
            }
        }
        let mut moved = at;
        while self.choose(is_rising) {
            let Some(chosen) = self.at.filter(|chosen| are_placed && *chosen != moved) else {
                break;
            };
            // It came there long ago, perhaps.
            self.at = None;
            self.place(chosen, is_rising)?;
            moved = chosen;
        }
        self.is_rising = Some(is_rising);
        Ok(self.at.is_some())
    }
}

impl<E: Reader + Ordered> Cursor for MergedCursor<'_, E> {
    fn first(&mut self) -> Result<bool> {
        self.each(true, |cursor| cursor.first())
    }

    fn last(&mut self) -> Result<bool> {
        self.each(false, |cursor| cursor.last())
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.each(true, |cursor| cursor.seek(key))
    }

    fn next(&mut self) -> Result<bool> {
        self.step(true)
    }

    fn previous(&mut self) -> Result<bool> {
        self.step(false)
    }

    fn record(&self) -> Option<(&[u8], &[u8])> {
        self.cursors[self.at?].record()
    }
}

impl<E: Reader + Ordered> Ordered for Sharded<E> {
    fn order_name(&self) -> &str {
        self.order_of_keys().name()
    }

    /// Each step costs a search in each shard: what comes and goes meanwhile counts. [`range`](Sharded::range) is faster.
    fn cursor(&self) -> Box<dyn Cursor + '_> {
        Box::new(MergedCursor::new(self, true))
    }

    /// The sum of the counts of all shards.
    fn count_between(&self, keys: KeyBounds<'_>) -> Result<u64> {
        let mut count = 0;
        for (shard, store) in self.shards().iter().enumerate() {
            let own = store.count_between(keys);
            count += own.map_err(|error| self.named(shard, error))?;
        }
        Ok(count)
    }
}

impl<E: OrderedEngine> OrderedEngine for Sharded<E> {
    /// Of one shard after the other: what of each shard is one change, its engine states. On an error those of the shards before are gone.
    fn remove_between(&self, keys: KeyBounds<'_>) -> Result<u64> {
        gate::outside_updates()?;
        self.is_cleared()?;
        let _whole = self.whole.read();
        let mut removed = 0;
        for (shard, store) in self.shards().iter().enumerate() {
            let own = store.remove_between(keys);
            removed += own.map_err(|error| self.named(shard, error))?;
        }
        Ok(removed)
    }
}

impl<E: OrderedEngine> Sharded<E> {
    /// Takes out the last record in order; `None`: there is none. No other call takes the same one; one that comes meanwhile in another
    /// shard may be after it.
    pub fn pop_last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut cursor = self.cursor();
        while cursor.last()? {
            let Some((key, _)) = cursor.record() else {
                break;
            };
            let mut taken = None;
            self.update(key, &mut |present| {
                taken = present.map(<[u8]>::to_vec);
                Edit::Remove
            })?;
            if let Some(value) = taken {
                return Ok(Some((key.to_vec(), value)));
            }
        }
        Ok(None)
    }
}
