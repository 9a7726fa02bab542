//! Updating: lock the leaf, append, change the leaf.
//!
//! | step of a put | a crash here leaves |
//! |---|---|
//! | 1 write a long value to a run of its own | nothing |
//! | 2 enter the gate; go down without locks; lock the leaf | nothing |
//! | 3 divide it while there is no room, each time as a change of its own | nothing: which leaf a record is in does not matter |
//! | 4 append the record: the position of the change | the new record |
//! | 5 keep what a cut needs of the leaf; change it; count | the new record |
//! | 6 unlock; end the critical section; join a leaf that is sparse | the new record |
//!
//! The closure of an update runs between 2 and 3, once. Updates of many lock all leaves by rising keys, show all values, divide what
//! needs it, and append one batch: whenever the process dies, all of it happened or none.

use super::Core;
use super::cluster::{ClusterEdit, Members, Placed, is_long, stem_of};
use super::is_damage;
use super::layout::{CLEAR, PUT, REMOVE, REMOVE_RANGE, RunPlace, UNIT, decode_bounds};
use super::nodes::AppendedAt;
use super::run::NewRun;
use crate::engine::{DecideMany, Durability, Edit};
use crate::epoch;
use crate::error::{Error, Kind, Result};
use crate::format::frame::FrameKind;
use crate::log::{AllocationClass, Entry};
use crate::node::tree::{
    Buffer, EntryChange, Frame, Held, NodeStore, ROOT, Seen, Stated, To, Tree, is_sparse,
};
use crate::node::{Found, Node, Value};
use crate::order::check_range;
use crate::record::gate::Inside;
use crate::record::many::Distinct;
use crate::room;

/// Of removals that were decided on, for which room was made before: others may have taken it since.
const DECIDED: AllocationClass = AllocationClass::Cleaning;
/// A batch of less than such a part of a segment is not looked at twice in a full store.
const PART_KEPT: u64 = 4;
/// Bytes that a removal takes in a batch besides its key, at most.
pub(super) const MANY_LEN: usize = 24;

/// What becomes of an entry of a leaf: of a record, or of all that share a stem (`cluster`).
pub(super) struct Change<'v, 'c> {
    key: &'v [u8],
    /// `None`: it is removed.
    value: Option<Placed<'v>>,
    brings: Brings<'c>,
}

/// What a change brings with it.
enum Brings<'c> {
    /// The run that was made for a record's value.
    Run(Option<NewRun<'c>>),
    Members(Members<'c>),
}

impl EntryChange for Change<'_, '_> {
    fn key(&self) -> &[u8] {
        self.key
    }

    fn value(&self) -> Option<Value<'_>> {
        self.value.as_ref().map(Placed::value)
    }
}

/// Changes of leaves, and what is appended for them.
pub(super) type Changes<'v, 'c> = (Vec<Change<'v, 'c>>, Vec<Entry<'v>>);

/// How a record's change to a value, or to its absence, is appended.
fn entry<'v>(key: &'v [u8], value: Option<&'v [u8]>) -> Entry<'v> {
    Entry {
        kind: if value.is_some() { PUT } else { REMOVE },
        flags: 0,
        key,
        value: value.unwrap_or_default(),
    }
}

impl Core {
    /// What every update begins with, of so many bytes, for which room is made in a full store.
    #[inline(always)]
    pub(super) fn begin(&self, class: AllocationClass, len: usize) -> Result<Inside<'_>> {
        self.log.healthy()?;
        if self.is_attention_due() {
            self.attend(class, len)?;
        }
        Ok(self.gate.enter())
    }

    #[inline(always)]
    pub(super) fn end(&self) -> Result<()> {
        if self.options.durability == Durability::Power {
            self.log.sync()
        } else {
            Ok(())
        }
    }

    #[inline(always)]
    pub(super) fn node_of<'f>(&'f self, frame: &'f Frame) -> Node<'f> {
        self.tree.node(frame)
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.limits.check(key, value)?;
        let class = AllocationClass::Growth;
        let entry = entry(key, Some(value));
        self.with_room(class, || {
            let _inside = self.begin(class, entry.frame_len())?;
            self.put_inside(key, value, class)
        })?;
        self.end()
    }

    /// A put, inside the gate.
    pub(super) fn put_inside(
        &self,
        key: &[u8],
        value: &[u8],
        class: AllocationClass,
    ) -> Result<()> {
        if is_long(self.tree.order, key) {
            let held = self.tree.lock_leaf(stem_of(key))?;
            return self.set_long(held, key, Some(value), class).map(drop);
        }
        if let Some(tree) = self.plain_tree() {
            return self.put_into(&tree, key, value, class);
        }
        self.put_into(&self.tree, key, value, class)
    }

    /// As `put_inside`, of a key that is no long one, into the tree in this view. Where its leaf is not in memory, it may wait for that.
    #[inline(always)]
    fn put_into<'t, S>(
        &'t self,
        tree: &'t Tree<S>,
        key: &[u8],
        value: &[u8],
        class: AllocationClass,
    ) -> Result<()>
    where
        S: NodeStore<Fault = Error, Moment = AppendedAt, Charge = ()>,
    {
        let (form, run) = self.value(value, class)?;
        // A leaf that is not in memory is not brought there.
        let load = |number, stated: &Stated<'_>| match stated.level {
            Some(0) => Err(None),
            _ => tree.nodes.load(number, stated).map_err(Some),
        };
        let held = match tree.lock_leaf_by(key, &load) {
            Ok(held) => held,
            Err(Some(error)) => return Err(error),
            Err(None) if self.put_later(&entry(key, Some(value)), class)? => return Ok(()),
            Err(None) => tree.lock_leaf(key)?,
        };
        self.put_held(tree, held, key, (value, form, run), class)
    }

    /// Gives `key`, which is no long one, a value, in its leaf, which is held, of the tree in this view.
    #[inline(always)]
    pub(super) fn put_held<'t, S>(
        &'t self,
        tree: &'t Tree<S>,
        held: Held<'t>,
        key: &[u8],
        (bytes, value, run): (&[u8], Value<'_>, Option<NewRun<'_>>),
        class: AllocationClass,
    ) -> Result<()>
    where
        S: NodeStore<Fault = Error, Moment = AppendedAt, Charge = ()>,
    {
        let entry = entry(key, Some(bytes));
        self.store(tree, held, (key, value), &entry, class, |moment, before| {
            self.finish(moment, (key, i64::from(before.is_none())), before, run);
        })
    }

    /// Gives an entry of a leaf, which is held, a value. `finish` does what the moment of the change covers besides the leaf.
    #[inline(always)]
    fn store<'t, S>(
        &'t self,
        tree: &'t Tree<S>,
        mut held: Held<'t>,
        (key, value): (&[u8], Value<'_>),
        entry: &Entry<'_>,
        class: AllocationClass,
        finish: impl FnOnce(&AppendedAt, Option<Found>),
    ) -> Result<()>
    where
        S: NodeStore<Fault = Error, Moment = AppendedAt, Charge = ()>,
    {
        let mut node = tree.node(held.frame);
        let (mut at, mut is_present) = node.find(key);
        while !node.could_set(at, is_present, key, value) {
            let (left, right) = tree.divide(held, key, ())?;
            held = if tree.node(right.frame).covers(key) {
                right
            } else {
                left
            };
            node = tree.node(held.frame);
            (at, is_present) = node.find(key);
        }
        let before = is_present.then(|| node.value(at));
        let moment = self.tree.nodes.append(self.log.pin(), entry, class)?;
        tree.nodes.change(&held, &moment);
        let is_set = node.set(at, is_present, key, value);
        debug_assert!(is_set, "it fits");
        finish(&moment, before);
        drop(held);
        Ok(())
    }

    /// Gives a long key a value, or none, in its leaf, which is held; whether that is sparse now, or `None`: it had no value.
    #[cold]
    #[inline(never)]
    fn set_long(
        &self,
        held: Held<'_>,
        key: &[u8],
        value: Option<&[u8]>,
        class: AllocationClass,
    ) -> Result<Option<bool>> {
        let mut edit = ClusterEdit::of(self, self.node_of(held.frame), key)?;
        let was_there = edit.set(key, value, class)?;
        if value.is_none() && !was_there {
            return Ok(None);
        }
        let stem = edit.stem();
        let (placed, members) = edit.finish(class)?;
        let entry = entry(key, value);
        let finish = |moment: &AppendedAt, _| members.finish(self, stem, moment);
        let is_sparse = if let Some(placed) = placed {
            self.store(
                &self.tree,
                held,
                (stem, placed.value()),
                &entry,
                class,
                finish,
            )?;
            false
        } else {
            let (at, _) = self.node_of(held.frame).find(stem);
            self.take_out(held, at, &entry, class, finish)?
        };
        Ok(was_there.then_some(is_sparse))
    }

    /// What the moment of a change covers besides the leaf.
    #[inline(always)]
    fn finish(
        &self,
        moment: &AppendedAt,
        (key, count): (&[u8], i64),
        before: Option<Found>,
        run: Option<NewRun<'_>>,
    ) {
        self.count(moment, key, count);
        self.supersede(before, moment.at);
        if let Some(run) = run {
            run.name(moment.at);
        }
    }

    /// There are so many more records since a moment, in the leaf of a key, which is being changed.
    #[inline(always)]
    pub(super) fn count(&self, moment: &AppendedAt, key: &[u8], count: i64) {
        if count != 0 {
            let counts = &self.tree.nodes.counts;
            counts.add(moment.pin(), moment.counter(), count);
            if self.sums.is_on() {
                self.forget_sums(key);
            }
        }
    }

    pub(super) fn remove(&self, key: &[u8]) -> Result<bool> {
        let class = AllocationClass::Removal;
        let is_removed = self.with_room(class, || {
            let _inside = self.begin(class, 0)?;
            self.remove_inside(key, class)
        })?;
        self.end()?;
        Ok(is_removed)
    }

    /// A removal, inside the gate; whether there was something.
    fn remove_inside(&self, key: &[u8], class: AllocationClass) -> Result<bool> {
        let held = self.tree.lock_leaf(stem_of(key))?;
        self.erase(held, key, class)
    }

    /// Removes `key` from its leaf, which is held; whether it was there.
    fn erase(&self, held: Held<'_>, key: &[u8], class: AllocationClass) -> Result<bool> {
        let Some(is_sparse) = self.erase_held(held, key, class)? else {
            return Ok(false);
        };
        if is_sparse {
            self.join_leaf(key);
        }
        Ok(true)
    }

    /// As `erase`, without a look at the leaf's neighbours: whether it is sparse now, or `None`: the key was not there.
    #[inline(always)]
    pub(super) fn erase_held(
        &self,
        held: Held<'_>,
        key: &[u8],
        class: AllocationClass,
    ) -> Result<Option<bool>> {
        if is_long(self.tree.order, key) {
            return self.set_long(held, key, None, class);
        }
        let (at, is_present) = self.node_of(held.frame).find(key);
        if !is_present {
            return Ok(None);
        }
        let entry = entry(key, None);
        self.take_out(held, at, &entry, class, |moment, before| {
            self.finish(moment, (key, -1), before, None);
        })
        .map(Some)
    }

    /// Removes an entry that is there from a leaf that is held; whether that is sparse now.
    #[inline(always)]
    fn take_out(
        &self,
        held: Held<'_>,
        at: usize,
        entry: &Entry<'_>,
        class: AllocationClass,
        finish: impl FnOnce(&AppendedAt, Option<Found>),
    ) -> Result<bool> {
        let node = self.node_of(held.frame);
        let before = node.value(at);
        let moment = self.tree.nodes.append(self.log.pin(), entry, class)?;
        self.tree.nodes.change(&held, &moment);
        node.remove(at);
        finish(&moment, Some(before));
        drop(moment);
        let is_sparse = is_sparse(node);
        drop(held);
        Ok(is_sparse)
    }

    /// One update.
    pub(super) fn edit<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.limits.check(key, &[])?;
        let class = AllocationClass::Growth;
        {
            self.win_room_for(key.len())?;
            let _inside = self.begin(AllocationClass::Removal, 0)?;
            let pin = self.log.pin();
            let held = self.tree.lock_leaf(stem_of(key))?;
            let node = self.node_of(held.frame);
            let mut buffer = Buffer::default();
            let edit = self.show(node, key, &mut buffer, decide)?;
            drop(pin);
            match edit {
                Edit::Put(value) => {
                    self.limits.check(key, &value)?;
                    self.log
                        .admit(class, entry(key, Some(&value)).frame_len())?;
                    if is_long(self.tree.order, key) {
                        self.set_long(held, key, Some(&value), class)?;
                    } else {
                        let (form, run) = self.value(&value, class)?;
                        self.put_held(&self.tree, held, key, (&value, form, run), class)?;
                    }
                }
                Edit::Remove => {
                    self.erase(held, key, DECIDED)?;
                }
                Edit::Keep => {}
            }
        }
        self.end()
    }

    fn show<'a>(
        &self,
        node: Node<'_>,
        key: &[u8],
        buffer: &mut Buffer,
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<Edit<'a>> {
        if is_long(self.tree.order, key) {
            return Ok(decide(self.value_in(node, key)?.as_deref()));
        }
        Ok(match Seen::in_leaf(node, key, buffer) {
            Seen::Absent => decide(None),
            Seen::Copied(len) => decide(Some(buffer.bytes(len))),
            Seen::Outside(word) => {
                let value = self.read_run(word).map_err(|error| error.key(key))?;
                decide(Some(&value))
            }
        })
    }

    /// All leaves locked, all values shown, then all edits: isolated, and one frame.
    pub(super) fn edit_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        for key in keys {
            self.limits.check(key, &[])?;
        }
        // Room for the removal of all of them.
        let len = keys.iter().map(|key| key.len() + MANY_LEN).sum();
        self.win_room_for(len)?;
        let done = {
            let _inside = self.begin(AllocationClass::Removal, len)?;
            self.edit_many_inside(keys, decide)
        };
        match done {
            // It is not decided on twice; the next one finds what can be won.
            Err(error) if error.kind() == Kind::Full && !epoch::is_within_update() => {
                Self::unless_full(self.win_room())?;
                Err(error)
            }
            Err(error) => Err(error),
            Ok(()) => self.end(),
        }
    }

    fn edit_many_inside(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        let distinct = Distinct::of(keys)?;
        let records = &distinct.records;
        let mut sorted = room::collect(0..records.len())?;
        sorted.sort_unstable_by(|a, b| self.tree.order.compare(records[*a], records[*b]));
        let pin = self.log.pin();
        let mut held: Vec<Held<'_>> = room::vec(records.len())?;
        let mut values: Vec<Option<Vec<u8>>> = room::collect(records.iter().map(|_| None))?;
        for at in &sorted {
            let key = records[*at];
            let covers = |held: &Held<'_>| self.node_of(held.frame).covers(key);
            if !held.last().is_some_and(covers) {
                self.check_leaves(held.len())?;
                held.push(if held.is_empty() {
                    self.tree.lock_leaf(stem_of(key))?
                } else {
                    self.tree.lock_next_leaf(To::Key(stem_of(key)))?
                });
            }
            if let Some(leaf) = held.last() {
                values[*at] = self.value_in(self.node_of(leaf.frame), key)?;
            }
        }
        drop(pin);
        let shown = room::collect(values.iter().map(Option::as_deref))?;
        let edits = distinct.decide(&shown, decide)?;
        let mut decided: Vec<(&[u8], Option<&[u8]>)> = room::vec(records.len())?;
        for at in &sorted {
            let (key, value) = (records[*at], &edits[*at]);
            let value = match value {
                Edit::Put(value) => Some(&value[..]),
                Edit::Remove => None,
                Edit::Keep => continue,
            };
            if let Some(value) = value {
                self.limits.check(key, value)?;
            }
            decided.push((key, value));
        }
        let changes = self.changes(&held, &decided)?;
        self.change_many(held, changes)
    }

    /// The changes of records, in the order of their keys, to values or to their absence, in leaves that are held. A record that is
    /// not there is not removed.
    pub(super) fn changes<'v, 'c>(
        &'c self,
        held: &[Held<'_>],
        records: &[(&'v [u8], Option<&'v [u8]>)],
    ) -> Result<Changes<'v, 'c>> {
        let class = AllocationClass::Growth;
        let order = self.tree.order;
        let mut changes = room::vec(records.len())?;
        let mut entries = room::vec(records.len())?;
        let mut leaves = held.iter().map(|leaf| self.node_of(leaf.frame)).peekable();
        let mut records = records.iter().peekable();
        while let Some((key, value)) = records.next() {
            while leaves.next_if(|leaf| !leaf.covers(key)).is_some() {}
            let Some(leaf) = leaves.peek() else { break };
            if is_long(order, key) {
                let mut edit = ClusterEdit::of(self, *leaf, key)?;
                let before = entries.len();
                // A list that only becomes shorter is written as what was decided on.
                let mut of_list = DECIDED;
                let mut set = |key: &'v [u8], value: Option<&'v [u8]>| {
                    if value.is_some() {
                        of_list = class;
                    }
                    if edit.set(key, value, class)? || value.is_some() {
                        entries.push(entry(key, value));
                    }
                    Ok(())
                };
                set(key, *value)?;
                let has_stem = |record: &&(&[u8], _)| stem_of(record.0) == stem_of(key);
                while let Some((key, value)) = records.next_if(has_stem) {
                    set(key, *value)?;
                }
                if entries.len() > before {
                    let (value, members) = edit.finish(of_list)?;
                    changes.push(Change {
                        key: stem_of(key),
                        value,
                        brings: Brings::Members(members),
                    });
                }
                continue;
            }
            let (mut placed, mut run) = (None, None);
            match value {
                Some(bytes) => {
                    let (form, made) = self.value(bytes, class)?;
                    (placed, run) = (Some(Placed::of(form)), made);
                }
                None if !leaf.find(key).1 => continue,
                None => {}
            }
            changes.push(Change {
                key,
                value: placed,
                brings: Brings::Run(run),
            });
            entries.push(entry(key, *value));
        }
        Ok((changes, entries))
    }

    /// Makes changes, in the order of their keys, of which the leaves are held: all of them, or none.
    pub(super) fn change_many(
        &self,
        held: Vec<Held<'_>>,
        (changes, entries): Changes<'_, '_>,
    ) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let class = if entries.iter().all(|entry| entry.kind == REMOVE) {
            DECIDED
        } else {
            AllocationClass::Growth
        };
        let len = Entry::batch_len(&entries);
        self.log.admit(class, len)?;
        // What a part of a segment may add is kept anyway.
        if len as u64 > self.log.geometry().segment_size() / PART_KEPT {
            self.admit_many(&changes, len, class)?;
        }
        let check = |leaves| self.check_leaves(leaves);
        let leaves = self.tree.make_room(held, &changes, (), &check)?;
        self.apply(leaves, changes, &entries, class)
    }

    /// Refuses a batch of so many bytes before a leaf is divided for it. `TooLarge` if it fills more leaves than it may hold; `Full` if
    /// the journal, the pages that come in, and as much again for the checkpoint after the one that writes them, leave too little for
    /// a checkpoint: a store that took it could not remove anything any more.
    fn admit_many(
        &self,
        changes: &[Change<'_, '_>],
        len: usize,
        class: AllocationClass,
    ) -> Result<()> {
        let len_of = |change: &Change<'_, '_>| {
            let value = change.value().map(Value::stored_len);
            value.map_or(0, |value| 8 + change.key.len() + value)
        };
        let in_leaves: usize = changes.iter().map(len_of).sum();
        let shape = self.tree.nodes.shape;
        let page = shape.bytes() as usize;
        self.check_leaves(in_leaves / page)?;
        // A leaf that was divided is half full, at least.
        let pages = in_leaves.div_ceil(page / 2) * shape.units() as usize;
        let journal = len.div_ceil(UNIT as usize);
        let mut room = self.tree.nodes.space.room();
        room.admit((2 * pages + journal) as u64, class)
    }

    /// `TooLarge` if an update of many would hold so many leaves that the cache could be full of them.
    pub(super) fn check_leaves(&self, held: usize) -> Result<()> {
        let most = self.tree.nodes.limit() as usize / 8;
        if held < most {
            return Ok(());
        }
        Err(Error::new(
            Kind::TooLarge,
            "an update of many records touches too many pages at once",
        )
        .at(self.log.storage().path())
        .found(format!("more than {most} pages"), format!("{most} or less"))
        .remedy("read and update fewer at once, or open the store with a larger cache"))
    }

    /// Appends and applies changes whose leaves are held and have room. The others are as they are until that is done: no cut has a
    /// later change of one of them, and not these.
    fn apply(
        &self,
        (held, unchanged): (Vec<Held<'_>>, Vec<Held<'_>>),
        changes: Vec<Change<'_, '_>>,
        entries: &[Entry<'_>],
        class: AllocationClass,
    ) -> Result<()> {
        let mut sparse = room::vec(changes.len())?;
        let places = self.tree.places(&held, &changes)?;
        let pages = &self.tree.nodes;
        let moment = match entries {
            [one] => pages.append(self.log.pin(), one, class)?,
            _ => pages.append_batch(self.log.pin(), entries, class)?,
        };
        // Before the first edit is seen, readers of the others wait.
        for leaf in &held {
            pages.change(leaf, &moment);
        }
        for (change, place) in changes.into_iter().zip(places) {
            let (at, is_present) = (place.at, place.is_present);
            let node = self.node_of(held[place.leaf].frame);
            let before = is_present.then(|| node.value(at));
            let more = if let Some(value) = change.value() {
                let is_set = node.set(at, is_present, change.key, value);
                debug_assert!(is_set, "room was made");
                i64::from(!is_present)
            } else {
                debug_assert!(is_present, "it is there");
                node.remove(at);
                if is_sparse(node) {
                    sparse.push(change.key);
                }
                -1
            };
            match change.brings {
                Brings::Run(run) => self.finish(&moment, (change.key, more), before, run),
                Brings::Members(members) => members.finish(self, change.key, &moment),
            }
        }
        drop((held, unchanged));
        drop(moment);
        for key in sparse {
            self.join_leaf(key);
        }
        Ok(())
    }

    /// Joins the leaf of `key`, which became sparse, with a neighbour.
    pub(super) fn join_leaf(&self, key: &[u8]) {
        if let Err(error) = self.tree.join_leaf(key) {
            // It may be joined another time; what was asked for is done.
            tracing::debug!(%error, "a leaf is not joined");
        }
    }

    /// Removes everything, while no other update is under way. A reader sees all of it or nothing.
    pub(super) fn clear(&self) -> Result<()> {
        self.log.healthy()?;
        // What waits is in snapshots, too; what cannot be read they cannot read either.
        let is_seen = || !self.snapshots.lock().is_empty();
        let merged = is_seen().then(|| self.merged_but(is_damage)).transpose()?;
        self.with_room(AllocationClass::Removal, || {
            // No cut comes between the journal's frame and the pages.
            let _checkpoint = self.checkpoint.lock();
            let _alone = self.gate.alone();
            let _taking = self.tree.nodes.cuts.taking();
            if is_seen() {
                // One may have come meanwhile.
                self.unless_damaged(self.merge_all_alone())?;
            }
            self.clear_alone()
        })?;
        drop(merged);
        self.end()
    }

    /// As `clear`, alone.
    pub(super) fn clear_alone(&self) -> Result<()> {
        let pages = &self.tree.nodes;
        // Its chunks are read first: what cannot be read must not end it half way.
        let given_out = pages.space.room().pages();
        for page in (0..given_out).step_by(super::layout::CHUNK) {
            pages.load_chunk(page)?;
        }
        let root = self.tree.lock_root()?;
        let entry = Entry {
            kind: CLEAR,
            flags: 0,
            key: &[],
            value: &[],
        };
        let moment = pages.append(self.log.pin(), &entry, AllocationClass::Removal)?;
        // Until the moment is over.
        self.sums.rest();
        pages.change(&root, &moment);
        pages.retire_all(&root, moment.at);
        self.node_of(root.frame).init(0, None, None);
        pages.counts.reset();
        debug_assert_eq!(root.number, ROOT);
        Ok(())
    }

    /// One record of the journal, again.
    pub(super) fn replay(&self, kind: FrameKind, key: &[u8], value: &[u8]) -> Result<()> {
        let impossible = |detail: &str| {
            Error::new(
                Kind::Corrupted,
                "the journal has a record that no tree file takes",
            )
            .at(self.log.storage().path())
            .detail(detail)
        };
        self.limits
            .check(key, value)
            .map_err(|error| impossible(error.what()))?;
        let class = AllocationClass::Checkpoint;
        let done = match kind {
            PUT => self.put_inside(key, value, class),
            REMOVE => self.remove_inside(key, class).map(drop),
            CLEAR => self.clear_alone(),
            REMOVE_RANGE => {
                let keys = decode_bounds(value);
                let keys = keys.filter(|keys| check_range(*keys, self.tree.order).is_ok());
                self.remove_range_again(keys.ok_or_else(|| impossible("no range of keys"))?)
            }
            _ => Ok(()),
        };
        if kind.is_keyed() && done.as_ref().is_err_and(is_damage) {
            self.give_up(key);
        }
        done
    }

    /// A change was not done again: so that no older value is taken for the present one, reading the key, and those that share its
    /// stem, is an error from now on, in this opening, in which nothing is written any more.
    pub(super) fn give_up(&self, key: &[u8]) {
        let stem = stem_of(key);
        // Where its leaf is unreadable, so is it.
        let Ok(held) = self.tree.lock_leaf(stem) else {
            return;
        };
        let unreadable = Value::Outside(RunPlace::UNREADABLE_LIST.0);
        let entry = entry(stem, None);
        let class = AllocationClass::Checkpoint;
        if let Err(error) = self.store(
            &self.tree,
            held,
            (stem, unreadable),
            &entry,
            class,
            |_, _| {},
        ) {
            tracing::warn!(%error, "a key that could not be changed again may be read as it was before");
        }
    }
}
