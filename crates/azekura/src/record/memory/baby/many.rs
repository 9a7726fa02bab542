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
use crate::node::tree::{Buffer, FRAME, Held, Seen, To, is_sparse};
use crate::node::{self, Found, Value};
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

/// What becomes of all.
struct Plan<'v> {
    changes: Vec<Change<'v>>,
    /// What was made outside for it.
    made: Vec<u64>,
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
        // A leaf for each, and those that it may be divided into.
        let mut held: Vec<Held<'_>> = room::vec(records.len().saturating_mul(4))?;
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
            made: room::vec(records.len().saturating_mul(2))?,
            gone: room::vec(records.len())?,
        };
        let planned = self.plan(&pin, &held, records, &sorted, &edits, &mut plan);
        let reserved = match planned.and_then(|()| self.reserve(&held, &plan.changes)) {
            Ok(reserved) => reserved,
            Err(error) => {
                for word in plan.made {
                    self.discard(Value::Outside(word));
                }
                return Err(error);
            }
        };
        let applied = self.apply(&pin, held, &plan, &mut after);
        self.tree.nodes.release(reserved);
        applied?;
        for found in after.retired {
            self.retire(found);
        }
        for word in plan.gone {
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
                        plan.made.push(word);
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
                    plan.made.push(word);
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
            plan.made.push(list);
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

    /// Changes the leaves, which then are unlocked.
    fn apply<'t, 'v>(
        &'t self,
        pin: &Pin,
        mut held: Vec<Held<'t>>,
        plan: &Plan<'v>,
        after: &mut After<'v>,
    ) -> Result<()> {
        // Before the first edit is seen, readers of the others wait.
        if !plan.changes.is_empty() {
            for leaf in &held {
                leaf.lock.change();
            }
        }
        let mut leaf = 0;
        for change in &plan.changes {
            while !self.tree.node(held[leaf].frame).covers(change.key) {
                leaf += 1;
            }
            let node = self.tree.node(held[leaf].frame);
            let (place, is_present) = node.find(change.key);
            after.retired.push(is_present.then(|| node.value(place)));
            if let Some(value) = change.value {
                if !set(node, place, is_present, change.key, value) {
                    self.divide_among(&mut held, leaf, change.key, value)?;
                }
            } else {
                node.remove(place);
                if is_sparse(node) {
                    after.sparse.push(change.key);
                }
            }
            self.count.add(pin, change.count);
        }
        Ok(())
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
        let divided = self.store_divided(held.remove(leaf), key, value, Pay::Anyway, &mut |half| {
            halves.push(half);
        });
        halves.push(divided?);
        halves.sort_unstable_by(|a, b| self.by_fences(a, b));
        held.splice(leaf..leaf, halves);
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
