//! Updating: find the entry under its leaf's lock, and change the leaf, divided as often as it takes.
//!
//! | step of a put | what others see |
//! |---|---|
//! | 1 enter the gate, pinned; copy a long value to a cell of its own | nothing |
//! | 2 go down without locks; lock the leaf | nothing, readers do not wait |
//! | 3 change the leaf; divide it first if there is no room | readers of these nodes wait |
//! | 4 unlock; retire the cell of the value before | the new record; the old value still readable by who found it before |

use super::BabyDb;
use super::budget::Pay;
use super::cluster::words_of;
use crate::engine::Edit;
use crate::epoch::Pin;
use crate::error::Result;
use crate::node::tree::{Buffer, Held, Seen, is_sparse};
use crate::node::{self, Found, Node, Value};

impl BabyDb {
    /// Sets the value of `key`. Errors: `TooLarge`; `Full`, and then nothing is changed.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.limits.check(key, value)?;
        if self.is_long(key) {
            return self.edit_long(key, |_| Edit::Put(value.into()));
        }
        let _inside = self.gate.enter();
        let pin = self.domain.pin();
        let unstored = Unstored::new(self, self.value(value)?);
        let Ok(held) = self.tree.lock_leaf(key);
        let (at, is_present) = self.tree.node(held.frame).find(key);
        self.store(&pin, held, key, at, is_present, unstored.stored())
    }

    /// Removes `key`; whether it was there.
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        if self.is_long(key) {
            return self.remove_long(key);
        }
        let _inside = self.gate.enter();
        let pin = self.domain.pin();
        let Ok(held) = self.tree.lock_leaf(key);
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
            let _pin = self.domain.pin();
            let keys = group.iter().copied();
            self.tree.locate(&keys, &mut [None; super::GROUP]);
            for key in group {
                removed += u64::from(self.remove(key)?);
            }
        }
        Ok(removed)
    }

    /// The form in which a value is stored.
    #[inline(always)]
    pub(super) fn value<'v>(&self, value: &'v [u8]) -> Result<Value<'v>> {
        if value.len() <= node::VALUE_LEN_MAX {
            Ok(Value::Inside(value))
        } else {
            self.put_outside(&[value], Pay::Asked).map(Value::Outside)
        }
    }

    /// A word for what stands outside, in these parts. Errors as [`Cells::put`](super::cell::Cells::put).
    #[cold]
    pub(super) fn put_outside(&self, parts: &[&[u8]], pay: Pay) -> Result<u64> {
        let word = self.cells.put(parts, pay)?;
        // What it takes, frames that hold nothing must not keep.
        if self.tree.nodes.are_limited() {
            self.tree.nodes.release_idle();
        }
        Ok(word)
    }

    #[expect(unsafe_code, reason = "words are the cells' to give and ours to keep")]
    pub(super) fn discard(&self, value: Value<'_>) {
        if let Value::Outside(word) = value {
            // SAFETY: of `Cells::put`; it did not come into a node.
            unsafe { self.cells.drop_unseen(word) };
        }
    }

    /// Retires what stood outside for a value that was taken out of its node.
    #[inline(always)]
    #[expect(unsafe_code, reason = "words are the cells' to give and ours to keep")]
    pub(super) fn retire(&self, found: Option<Found>) {
        if let Some(Found::Outside(word)) = found {
            // SAFETY: of `Cells::put`, and taken out of its node once, by the holder of its lock.
            unsafe { self.cells.retire(word) };
        }
    }

    /// Puts the value of `key` where `find` reported, in the held leaf.
    #[inline(always)]
    pub(super) fn store<'t>(
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
            let unstored = Unstored::new(self, value);
            held = self.store_divided(held, key, value)?;
            unstored.stored();
        }
        drop(held);
        if !is_present {
            self.count.add(pin, 1);
        }
        self.retire(before);
        Ok(())
    }

    /// Divides the held leaf until the value fits; the half that has it is returned.
    #[cold]
    #[inline(never)]
    fn store_divided<'t>(
        &'t self,
        mut held: Held<'t>,
        key: &[u8],
        value: Value<'_>,
    ) -> Result<Held<'t>> {
        loop {
            let (left, right) = self.tree.divide(held, key, Pay::Asked)?;
            held = if self.tree.node(right.frame).covers(key) {
                right
            } else {
                left
            };
            let node = self.tree.node(held.frame);
            let (at, is_present) = node.find(key);
            if set(node, at, is_present, key, value) {
                return Ok(held);
            }
        }
    }

    #[inline(always)]
    pub(super) fn erase(&self, pin: &Pin, held: Held<'_>, at: usize) {
        let node = self.tree.node(held.frame);
        let before = node.value(at);
        held.lock.change();
        node.remove(at);
        self.count.add(pin, -1);
        if is_sparse(node) {
            // Before keys are compared: the comparator of a program's own may panic.
            self.retire(Some(before));
            self.tree.join(held);
        } else {
            drop(held);
            self.retire(Some(before));
        }
    }

    /// One update.
    pub(super) fn edit<'a>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.limits.check(key, &[])?;
        if self.is_long(key) {
            return self.edit_long(key, decide);
        }
        let _inside = self.gate.enter();
        let pin = self.domain.pin();
        let Ok(held) = self.tree.lock_leaf(key);
        let node = self.tree.node(held.frame);
        // Found before the closure is called, which may do what cannot be taken back if a comparator panics.
        let (at, is_present) = node.find(key);
        let mut buffer = Buffer::default();
        let seen = Seen::of_entry(node, (at, is_present), &mut buffer);
        let edit = Self::lend(&pin, &seen, &buffer, decide);
        match edit {
            Edit::Put(value) => {
                self.limits.check(key, &value)?;
                let value = self.value(&value)?;
                self.store(&pin, held, key, at, is_present, value)?;
            }
            Edit::Remove if is_present => self.erase(&pin, held, at),
            Edit::Keep | Edit::Remove => {}
        }
        Ok(())
    }

    /// Removes everything, while no other update is under way. A reader sees all of it or nothing.
    pub(super) fn remove_all(&self) -> Result<()> {
        let _alone = self.gate.alone();
        // Who found a value before is pinned since before it is retired.
        self.tree.clear(&mut |node| {
            words_of(&self.domain, node, self.tree.order, &mut |word| {
                self.retire(Some(Found::Outside(word)));
            });
        })?;
        self.count.reset();
        Ok(())
    }
}

/// A value that no node has yet: what stands outside for it is discarded on an error, and where a comparator panics.
struct Unstored<'d, 'v> {
    db: &'d BabyDb,
    value: Option<Value<'v>>,
}

impl<'d, 'v> Unstored<'d, 'v> {
    #[inline(always)]
    fn new(db: &'d BabyDb, value: Value<'v>) -> Self {
        let value = Some(value);
        Self { db, value }
    }

    /// The value, which a node has from now on.
    #[inline(always)]
    fn stored(mut self) -> Value<'v> {
        self.value.take().unwrap_or(Value::Inside(&[]))
    }
}

impl Drop for Unstored<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(Value::Outside(word)) = self.value {
            self.db.discard(Value::Outside(word));
        }
    }
}

/// Whether the value could be put where `find` reported.
#[inline(always)]
pub(super) fn set(
    node: Node<'_>,
    at: usize,
    is_present: bool,
    key: &[u8],
    value: Value<'_>,
) -> bool {
    if is_present {
        node.replace(at, key, value)
    } else {
        node.insert(at, key, value)
    }
}
