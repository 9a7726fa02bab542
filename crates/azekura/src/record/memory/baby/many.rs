//! Updating many records at once: all leaves locked, all values shown, then all edits.
//!
//! What is edited is prepared before anything is changed: copies of long values, and new lists of clusters, one for
//! each stem however many of its members are edited. So what remains to be done while readers wait is a change of an
//! entry each, and what fails, fails before. Leaves are locked by rising keys.

use super::BabyDb;
use super::budget::Pay;
use super::cluster::{Cluster, STEM};
use super::update::set;
use crate::engine::{DecideMany, Edit};
use crate::epoch::Pin;
use crate::error::Result;
use crate::node::tree::{Buffer, EntryChange, EntryPlace, FRAME, Held, Seen, To, is_sparse};
use crate::node::{Found, Value};
use crate::record::many::Distinct;
use crate::room;

/// What becomes of an entry of a leaf.
struct Change<'v> {
    /// The entry's key: a record's, or a stem.
    key: &'v [u8],
    /// `None`: it is removed.
    value: Option<Value<'v>>,
    /// Records more or less.
    count: i64,
    /// Bytes that its leaf must have room for.
    bytes: usize,
}

/// What is to be done when the leaves are unlocked.
struct After<'v> {
    retired: Vec<Option<Found>>,
    sparse: Vec<&'v [u8]>,
}

impl EntryChange for Change<'_> {
    fn key(&self) -> &[u8] {
        self.key
    }

    fn value(&self) -> Option<Value<'_>> {
        self.value
    }
}

/// What was made outside, and is discarded unless it comes to be in leaves: on an error, and where a comparator panics.
struct Made<'d> {
    db: &'d BabyDb,
    words: Vec<u64>,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        for word in self.words.drain(..) {
            self.db.discard(Value::Outside(word));
        }
    }
}

/// Room that was set aside for nodes.
struct Reserved<'d> {
    db: &'d BabyDb,
    count: u64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.db.tree.nodes.release(self.count);
    }
}

/// What becomes of all.
struct Plan<'v> {
    changes: Vec<Change<'v>>,
    made: Made<'v>,
    /// Members that are gone with it. Values and lists that are replaced are found when it happens.
    gone: Vec<u64>,
}

impl BabyDb {
    /// All leaves locked, all values shown, then all edits: isolated.
    pub(super) fn edit_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        for key in keys {
            self.limits.check(key, &[])?;
        }
        let distinct = Distinct::of(keys)?;
        let records = &distinct.records;
        let mut sorted = room::collect(0..records.len())?;
        sorted.sort_unstable_by(|a, b| self.tree.order.compare(records[*a], records[*b]));
        let _inside = self.gate.enter();
        let pin = self.domain.pin();
        let mut held: Vec<Held<'_>> = room::vec(records.len())?;
        let mut values: Vec<Option<Vec<u8>>> = room::collect(records.iter().map(|_| None))?;
        let mut after = After {
            retired: room::vec(records.len())?,
            sparse: room::vec(records.len())?,
        };
        for at in &sorted {
            let key = records[*at];
            let stem = self.stem(key);
            let covers = |held: &Held<'_>| self.tree.node(held.frame).covers(stem);
            if !held.last().is_some_and(covers) {
                let Ok(leaf) = self.tree.lock_next_leaf(To::Key(stem));
                held.push(leaf);
            }
            if let Some(leaf) = held.last() {
                values[*at] = self.value_in(&pin, leaf, key)?;
            }
        }
        let shown = room::collect(values.iter().map(Option::as_deref))?;
        let edits = distinct.decide(&shown, decide)?;
        let mut plan = Plan {
            changes: room::vec(records.len())?,
            made: Made {
                db: self,
                words: room::vec(records.len().saturating_mul(2))?,
            },
            gone: room::vec(records.len())?,
        };
        self.plan(&pin, &held, records, &sorted, &edits, &mut plan)?;
        let reserved = Reserved {
            db: self,
            count: self.reserve(&held, &plan.changes)?,
        };
        let leaves = (self.tree).make_room(held, &plan.changes, Pay::Anyway, &|_| Ok(()))?;
        let places = self.tree.places(&leaves.0, &plan.changes)?;
        self.apply(&pin, &leaves.0, &mut plan, &places, &mut after);
        drop((leaves, reserved));
        for found in after.retired {
            self.retire(found);
        }
        for word in plan.gone.drain(..) {
            self.retire(Some(Found::Outside(word)));
        }
        for key in after.sparse {
            let Ok(held) = self.tree.lock_leaf(key);
            if is_sparse(self.tree.node(held.frame)) {
                self.tree.join(held);
            }
        }
        Ok(())
    }

    /// The key of the entry that a key is in.
    fn stem<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        if self.is_long(key) { &key[..STEM] } else { key }
    }

    /// The value of a key in the leaf that covers it.
    fn value_in(&self, pin: &Pin, leaf: &Held<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let node = self.tree.node(leaf.frame);
        if self.is_long(key) {
            let (at, is_present) = node.find(&key[..STEM]);
            let cluster = Cluster::of(pin, is_present.then(|| node.value(at)));
            let member = cluster.find(&key[STEM..]).ok();
            return member
                .map(|(_, member)| room::copy(member.value))
                .transpose();
        }
        let mut buffer = Buffer::default();
        let seen = Seen::in_leaf(node, key, &mut buffer);
        Self::lend(pin, &seen, &buffer, |value| {
            value.map(room::copy).transpose()
        })
    }

    /// Prepares the changes of the entries, in order. On an error, what was made so far is in the plan.
    fn plan<'v>(
        &self,
        pin: &Pin,
        held: &[Held<'_>],
        records: &[&'v [u8]],
        sorted: &[usize],
        edits: &'v [Edit<'_>],
        plan: &mut Plan<'v>,
    ) -> Result<()> {
        let mut leaves = held.iter();
        let mut leaf = leaves.next();
        // Records in the same entry are neighbours in order.
        let same = |a: &usize, b: &usize| self.stem(records[*a]) == self.stem(records[*b]);
        for group in sorted.chunk_by(same) {
            let Some(first) = group.first() else { continue };
            let stem = self.stem(records[*first]);
            while leaf.is_some_and(|leaf| !self.tree.node(leaf.frame).covers(stem)) {
                leaf = leaves.next();
            }
            let Some(leaf) = leaf else { break };
            let node = self.tree.node(leaf.frame);
            let (at, is_present) = node.find(stem);
            let found = is_present.then(|| node.value(at));
            if self.is_long(records[*first]) {
                let edits = group.iter().map(|at| (records[*at], &edits[*at]));
                self.plan_cluster(Cluster::of(pin, found), stem, edits, plan)?;
                continue;
            }
            let value = match &edits[*first] {
                Edit::Put(value) => {
                    self.limits.check(stem, value)?;
                    let value = self.value(value)?;
                    if let Value::Outside(word) = value {
                        plan.made.words.push(word);
                    }
                    Some(value)
                }
                Edit::Remove if is_present => None,
                Edit::Keep | Edit::Remove => continue,
            };
            plan.changes.push(Change {
                key: stem,
                value,
                count: i64::from(value.is_some()) - i64::from(is_present),
                bytes: more_bytes(stem, value, found),
            });
        }
        Ok(())
    }

    /// Has room set aside for the nodes that the changes are likely to divide off, and returns how many. A leaf may be
    /// divided at unequal places, so they may be more; then the limit is passed by as much, but nothing is left half done.
    fn reserve(&self, held: &[Held<'_>], changes: &[Change<'_>]) -> Result<u64> {
        let mut puts = 0;
        let mut likely = 0;
        let mut rest = changes.iter().peekable();
        for leaf in held {
            let node = self.tree.node(leaf.frame);
            let mut bytes = 0;
            while let Some(change) = rest.next_if(|change| node.covers(change.key)) {
                puts += u64::from(change.value.is_some());
                bytes += change.bytes;
            }
            if bytes > 0 && !node.fits(0, bytes) {
                likely += 1 + 2 * bytes as u64 / FRAME;
            }
        }
        let levels = u64::from(self.tree.height()) + 2;
        if likely > 0 {
            likely += levels;
        }
        self.tree.nodes.reserve(likely, puts * levels)?;
        Ok(likely)
    }

    /// Prepares a new list for edits of members, if there is anything to be done.
    fn plan_cluster<'v>(
        &self,
        cluster: Cluster<'_>,
        stem: &'v [u8],
        edits: impl Iterator<Item = (&'v [u8], &'v Edit<'v>)>,
        plan: &mut Plan<'v>,
    ) -> Result<()> {
        let before = cluster.count();
        let mut words = room::vec(before)?;
        words.extend(cluster.words());
        let mut is_changed = false;
        // Rests rise, so places in the old list, moved by what came before, are places in the new one.
        let mut moved = 0;
        for (key, edit) in edits {
            let place = cluster.find(&key[STEM..]);
            match (edit, place) {
                (Edit::Put(value), place) => {
                    self.limits.check(key, value)?;
                    let word = self.make_member(&key[STEM..], value)?;
                    plan.made.words.push(word);
                    match place {
                        Ok((at, member)) => {
                            plan.gone.push(member.word);
                            words[at.saturating_add_signed(moved)] = word;
                        }
                        Err(at) => {
                            room::more(&mut words, 1)?;
                            words.insert(at.saturating_add_signed(moved), word);
                            moved += 1;
                        }
                    }
                }
                (Edit::Remove, Ok((at, member))) => {
                    plan.gone.push(member.word);
                    words.remove(at.saturating_add_signed(moved));
                    moved -= 1;
                }
                (Edit::Keep, _) | (Edit::Remove, Err(_)) => continue,
            }
            is_changed = true;
        }
        if !is_changed {
            return Ok(());
        }
        let value = if words.is_empty() {
            None
        } else {
            let list = self.make_list(&words, before)?;
            plan.made.words.push(list);
            Some(Value::Outside(list))
        };
        // A list in the place of another takes no more.
        let list = (before > 0).then_some(Found::Outside(0));
        plan.changes.push(Change {
            key: stem,
            value,
            count: moved as i64,
            bytes: more_bytes(stem, value, list),
        });
        Ok(())
    }

    /// Changes the leaves, in which there is room.
    fn apply<'v>(
        &self,
        pin: &Pin,
        leaves: &[Held<'_>],
        plan: &mut Plan<'v>,
        places: &[EntryPlace],
        after: &mut After<'v>,
    ) {
        // Before the first edit is seen, readers of the others wait.
        for leaf in leaves {
            leaf.lock.change();
        }
        for (change, place) in plan.changes.iter().zip(places) {
            let node = self.tree.node(leaves[place.leaf].frame);
            let found = place.is_present.then(|| node.value(place.at));
            after.retired.push(found);
            if let Some(value) = change.value {
                let is_set = set(node, place.at, place.is_present, change.key, value);
                debug_assert!(is_set, "room was made");
            } else {
                node.remove(place.at);
                if is_sparse(node) {
                    after.sparse.push(change.key);
                }
            }
            self.count.add(pin, change.count);
        }
        plan.made.words.clear();
    }
}

/// Bytes more that a leaf takes if `key`, which has what was found, is given a value.
fn more_bytes(key: &[u8], value: Option<Value<'_>>, found: Option<Found>) -> usize {
    let Some(value) = value else { return 0 };
    match found {
        None => 8 + key.len() + value.stored_len(),
        Some(Found::Inside(len, _)) => value.stored_len().saturating_sub(len),
        Some(Found::Outside(_)) => value.stored_len().saturating_sub(8),
    }
}
