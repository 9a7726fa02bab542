//! Updating: find the entry under its leaf's lock, and change the leaf, divided as often as it takes.
//!
//! | step of a put | what others see |
//! |---|---|
//! | 1 enter the gate, pinned; copy a long value to a cell of its own | nothing |
//! | 2 go down without locks; lock the leaf | nothing, readers do not wait |
//! | 3 change the leaf; divide it first if there is no room | readers of these nodes wait |
//! | 4 unlock; retire the cell of the value before | the new record; the old value still readable by who found it before |

use super::tree::{Held, is_thin};
use super::{BabyDb, Buffer, LIMITS};
use crate::engine::{DecideMany, Edit};
use crate::epoch::{self, Pin};
use crate::error::Result;
use crate::node::{self, Found, Node, Value};
use crate::record::many::Distinct;
use crate::room;

impl BabyDb {
    /// Sets the value of `key`. Errors: `TooLarge`; `Full`, and then nothing is changed.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        LIMITS.check(key, value)?;
        let _inside = self.gate.enter();
        let pin = epoch::pin();
        let value = self.value(value)?;
        let held = self.tree.lock_leaf(key);
        let (at, is_present) = self.tree.node(held.frame).find(key);
        self.store(&pin, held, key, at, is_present, value)
    }

    /// Removes `key`; whether it was there.
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        let _inside = self.gate.enter();
        let pin = epoch::pin();
        let held = self.tree.lock_leaf(key);
        let (at, is_present) = self.tree.node(held.frame).find(key);
        if is_present {
            self.erase(&pin, held, at);
        }
        Ok(is_present)
    }

    /// Removes each of `keys`, overlapping their cache misses; how many were there.
    pub fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        let mut removed = 0;
        for group in keys.chunks(super::GROUP) {
            let keys = group.iter().copied();
            self.tree.approach(&keys, &mut [None; super::GROUP]);
            for key in group {
                removed += u64::from(self.remove(key)?);
            }
        }
        Ok(removed)
    }

    /// The form in which a value is stored.
    #[inline(always)]
    fn value<'v>(&self, value: &'v [u8]) -> Result<Value<'v>> {
        if value.len() <= node::VALUE_LEN_MAX {
            Ok(Value::Inside(value))
        } else {
            self.cells.put(value).map(Value::Outside)
        }
    }

    #[expect(unsafe_code, reason = "words are the cells' to give and ours to keep")]
    fn discard(&self, value: Value<'_>) {
        if let Value::Outside(word) = value {
            // SAFETY: of `Cells::put`; it did not come into a node.
            unsafe { self.cells.drop_unseen(word) };
        }
    }

    /// Retires what stood outside for a value that was taken out of its node.
    #[inline(always)]
    #[expect(unsafe_code, reason = "words are the cells' to give and ours to keep")]
    fn retire(&self, found: Option<Found>) {
        if let Some(Found::Outside(word)) = found {
            // SAFETY: of `Cells::put`, and taken out of its node, by whoever held its lock, once.
            unsafe { self.cells.retire(word) };
        }
    }

    /// Puts the value of `key` where `find` said, in the held leaf.
    #[inline(always)]
    fn store<'t>(
        &'t self,
        pin: &Pin,
        mut held: Held<'t>,
        key: &[u8],
        at: usize,
        is_present: bool,
        value: Value<'_>,
    ) -> Result<()> {
        let node = self.tree.node(held.frame);
        let before = is_present.then(|| node.value(at));
        held.lock.change();
        let is_done = set(node, at, is_present, key, value);
        if !is_done {
            held = match self.store_divided(held, key, value, &mut |_| {}) {
                Ok(held) => held,
                Err(error) => {
                    self.discard(value);
                    return Err(error);
                }
            };
        }
        drop(held);
        if !is_present {
            self.count.add(pin, 1);
        }
        self.retire(before);
        Ok(())
    }

    /// Divides the held leaf until the value fits; the other halves are handed to `rest`, the right one is returned.
    #[cold]
    #[inline(never)]
    fn store_divided<'t>(
        &'t self,
        mut held: Held<'t>,
        key: &[u8],
        value: Value<'_>,
        rest: &mut dyn FnMut(Held<'t>),
    ) -> Result<Held<'t>> {
        loop {
            let right = self.tree.divide(&held, key)?;
            if self.tree.node(right.frame).covers(key) {
                rest(std::mem::replace(&mut held, right));
            } else {
                rest(right);
            }
            let node = self.tree.node(held.frame);
            let (at, is_present) = node.find(key);
            if set(node, at, is_present, key, value) {
                return Ok(held);
            }
        }
    }

    #[inline(always)]
    fn erase(&self, pin: &Pin, held: Held<'_>, at: usize) {
        let node = self.tree.node(held.frame);
        let before = node.value(at);
        held.lock.change();
        node.remove(at);
        if is_thin(node) {
            self.tree.join(held);
        } else {
            drop(held);
        }
        self.count.add(pin, -1);
        self.retire(Some(before));
    }

    /// One update.
    pub(super) fn edit<'a>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        LIMITS.check(key, &[])?;
        let _inside = self.gate.enter();
        let pin = epoch::pin();
        let held = self.tree.lock_leaf(key);
        let node = self.tree.node(held.frame);
        let mut buffer = Buffer::new();
        let seen = Self::see_in(node, key, &mut buffer);
        let edit = Self::lend(&pin, &seen, &buffer, decide);
        let (at, is_present) = node.find(key);
        match edit {
            Edit::Put(value) => {
                LIMITS.check(key, &value)?;
                let value = self.value(&value)?;
                self.store(&pin, held, key, at, is_present, value)?;
            }
            Edit::Remove if is_present => self.erase(&pin, held, at),
            Edit::Keep | Edit::Remove => {}
        }
        Ok(())
    }

    /// All leaves locked, all values shown, then all edits: isolated.
    pub(super) fn edit_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        for key in keys {
            LIMITS.check(key, &[])?;
        }
        let distinct = Distinct::of(keys)?;
        let records = &distinct.records;
        let mut sorted = room::collect(0..records.len())?;
        sorted.sort_unstable_by(|a, b| self.tree.order.compare(records[*a], records[*b]));
        let _inside = self.gate.enter();
        let pin = epoch::pin();
        // A leaf for each, and one for each that is divided for it.
        let mut held: Vec<Held<'_>> = room::vec(records.len().saturating_mul(2))?;
        let mut values: Vec<Option<Vec<u8>>> = room::collect(records.iter().map(|_| None))?;
        let mut retired = room::vec(records.len())?;
        let mut thin = room::vec(records.len())?;
        for at in &sorted {
            let key = records[*at];
            let covers = |held: &Held<'_>| self.tree.node(held.frame).covers(key);
            if !held.last().is_some_and(covers) {
                held.push(self.tree.lock_leaf(key));
            }
            let mut buffer = Buffer::new();
            if let Some(leaf) = held.last() {
                let seen = Self::see_in(self.tree.node(leaf.frame), key, &mut buffer);
                let copy = |value: Option<&[u8]>| value.map(room::copy).transpose();
                values[*at] = Self::lend(&pin, &seen, &buffer, copy)?;
            }
        }
        let shown = room::collect(values.iter().map(Option::as_deref))?;
        let edits = distinct.decide(&shown, decide)?;
        let stored = self.values(records, &edits)?;
        let puts = stored.iter().flatten().count() as u64;
        if let Err(error) = self
            .tree
            .frames
            .expect(puts * u64::from(self.tree.height() + 2))
        {
            for value in stored.into_iter().flatten() {
                self.discard(value);
            }
            return Err(error);
        }
        // Before the first edit is seen, readers of the others wait.
        if edits.iter().any(|edit| *edit != Edit::Keep) {
            for leaf in &held {
                leaf.lock.change();
            }
        }
        let mut leaf = 0;
        for at in sorted {
            let key = records[at];
            while !self.tree.node(held[leaf].frame).covers(key) {
                leaf += 1;
            }
            let node = self.tree.node(held[leaf].frame);
            let (place, is_present) = node.find(key);
            let before = is_present.then(|| node.value(place));
            match (stored[at], &edits[at]) {
                (Some(value), _) => {
                    retired.push(before);
                    if !set(node, place, is_present, key, value) {
                        self.divide_among(&mut held, leaf, key, value)?;
                    }
                    if !is_present {
                        self.count.add(&pin, 1);
                    }
                }
                (None, Edit::Remove) if is_present => {
                    retired.push(before);
                    node.remove(place);
                    self.count.add(&pin, -1);
                    if is_thin(node) {
                        thin.push(key);
                    }
                }
                _ => {}
            }
        }
        drop(held);
        for found in retired {
            self.retire(found);
        }
        for key in thin {
            let held = self.tree.lock_leaf(key);
            if is_thin(self.tree.node(held.frame)) {
                self.tree.join(held);
            }
        }
        Ok(())
    }

    /// The forms in which what is put is stored, or an error and nothing.
    fn values<'v>(
        &self,
        records: &[&[u8]],
        edits: &'v [Edit<'_>],
    ) -> Result<Vec<Option<Value<'v>>>> {
        let mut stored: Vec<Option<Value<'_>>> = room::vec(edits.len())?;
        for (key, edit) in records.iter().zip(edits) {
            let value = match edit {
                Edit::Put(value) => LIMITS
                    .check(key, value)
                    .and_then(|()| self.value(value))
                    .map(Some),
                Edit::Keep | Edit::Remove => Ok(None),
            };
            match value {
                Ok(value) => stored.push(value),
                Err(error) => {
                    for value in stored.into_iter().flatten() {
                        self.discard(value);
                    }
                    return Err(error);
                }
            }
        }
        Ok(stored)
    }

    /// As `store_divided`, for a leaf among others; all halves take its place.
    fn divide_among<'t>(
        &'t self,
        held: &mut Vec<Held<'t>>,
        leaf: usize,
        key: &[u8],
        value: Value<'_>,
    ) -> Result<()> {
        let mut halves = Vec::new();
        let divided =
            self.store_divided(held.remove(leaf), key, value, &mut |half| halves.push(half));
        halves.push(divided?);
        for half in halves {
            held.push(half);
        }
        held.sort_unstable_by(|a, b| self.by_fences(a, b));
        Ok(())
    }

    /// Which of two leaves has the lesser keys.
    fn by_fences(&self, a: &Held<'_>, b: &Held<'_>) -> std::cmp::Ordering {
        let mut keys = [node::Key::default(), node::Key::default()];
        let [one, other] = &mut keys;
        let has = (
            self.tree.node(a.frame).lower(one),
            self.tree.node(b.frame).lower(other),
        );
        match has {
            (Some(()), Some(())) => self.tree.order.compare(one.bytes(), other.bytes()),
            (None, _) => std::cmp::Ordering::Less,
            (_, None) => std::cmp::Ordering::Greater,
        }
    }

    /// Removes everything, while no other update is under way. A reader sees all of it or nothing.
    pub(super) fn remove_all(&self) -> Result<()> {
        let _alone = self.gate.alone();
        // Who found a value before is pinned since before it is retired.
        self.tree.clear(&mut |node| {
            for at in 0..node.count() {
                self.retire(Some(node.value(at)));
            }
        })?;
        self.count.reset();
        Ok(())
    }
}

/// Whether the value could be put where `find` said.
#[inline(always)]
fn set(node: Node<'_>, at: usize, is_present: bool, key: &[u8], value: Value<'_>) -> bool {
    if is_present {
        node.replace(at, key, value)
    } else {
        node.insert(at, key, value)
    }
}
