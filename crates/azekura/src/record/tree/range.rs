//! Ranges of keys, removed as one change.
//!
//! | step of a removal | a crash here leaves |
//! |---|---|
//! | 1 read the range's leaves, and note of those that are on storage as they are what they hold | nothing |
//! | 2 alone: no update, cut or checkpoint is under way; find what the range has, once more (`node::tree`) | nothing |
//! | 3 append one record, which states both ends | the range removed: replay does 2 and 4 |
//! | 4 cut subtrees off, entries out of the leaves at the ends; give pages and values back; count | the range removed |
//! | 5 let the others in; join what is sparse | the range removed |
//!
//! Updates wait from 2 to 4, which read inner pages, and of the leaves those that were changed and written after 1: the rest is known by
//! the notes, which take some 32 bytes a leaf and 8 a value outside. Readers wait in 4 where a page is being changed.
//!
//! What is out of use is free by the rules of `space`, as if its records had been removed one by one. A page of the range that cannot be
//! read refuses the removal: what its records have outside, and how many they are, is not known. In a replay, which has no choice, it goes
//! with the range, and the file opens for reading only.

use std::ops::{Bound, Range};
use std::sync::atomic::Ordering;

use super::cluster::{ClusterEdit, Members, is_long, list_at, stem_of, stems_of};
use super::count::begin_of;
use super::layout::{Place, REMOVE_RANGE, RunPlace, encode_bounds};
use super::table::Location;
use super::walk::advance;
use super::{Core, is_damage};
use crate::error::{Error, Kind, Result};
use crate::log::{AllocationClass, Entry};
use crate::node::tree::{Begin, Excision, NodeStore, RangeVisitor, Seam, Stated};
use crate::node::{Found, Key, Node};
use crate::order::{KeyBounds, check_range, is_up_to};
use crate::room;

/// Readings of a leaf that others keep changing, before it is left to step 2.
const TRIES: u32 = 16;

/// What entries are, and have outside of their leaves. A list counts as one record, until it is read.
#[derive(Debug, Default)]
struct Tally {
    records: u64,
    /// Words of runs.
    runs: Vec<u64>,
}

impl Tally {
    /// Adds some entries of a leaf. What the bytes of a leaf state that is being changed does not count.
    fn add(&mut self, node: Node<'_>, entries: Range<usize>) -> Result<()> {
        self.records += entries.len() as u64;
        for at in entries {
            if let Found::Outside(word) = node.value(at) {
                room::more(&mut self.runs, 1)?;
                self.runs.push(word);
            }
        }
        Ok(())
    }
}

/// What a leaf held when its page was written here.
#[derive(Clone, Debug)]
struct Note {
    page: u32,
    place: Place,
    records: u64,
    /// Its runs, among those of all.
    runs: Range<usize>,
}

/// Notes of leaves, by page.
#[derive(Debug, Default)]
pub(super) struct Notes {
    notes: Vec<Note>,
    runs: Vec<u64>,
}

impl Notes {
    /// What a page holds, if it was written here when it was noted. A place has bits of the image's checksum.
    fn of(&self, page: u32, place: Place) -> Option<(u64, &[u64])> {
        let at = self.notes.binary_search_by_key(&page, |note| note.page);
        let note = self.notes.get(at.ok()?)?;
        let runs = self.runs.get(note.runs.clone())?;
        (note.place == place).then_some((note.records, runs))
    }
}

/// Sums up what a range has.
struct Summing<'c> {
    core: &'c Core,
    notes: &'c Notes,
    tally: Tally,
    /// Whether what cannot be read goes with the range.
    is_tolerant: bool,
    damage: Option<Error>,
}

impl Summing<'_> {
    /// Sums up a leaf that is only on storage; whether it was noted as it is there.
    fn add_noted(&mut self, page: u32, place: Place) -> Result<bool> {
        let Some((records, runs)) = self.notes.of(page, place) else {
            return Ok(false);
        };
        room::more(&mut self.tally.runs, runs.len())?;
        self.tally.runs.extend_from_slice(runs);
        self.tally.records += records;
        Ok(true)
    }

    fn add_leaf(&mut self, page: u32, stated: &Stated<'_>) -> Result<()> {
        let pages = &self.core.tree.nodes;
        loop {
            match pages.table.at(page) {
                Location::Cold(place)
                    if !pages.has_waiting(page)
                        && pages.table.at(page) == Location::Cold(place)
                        && self.add_noted(page, place)? =>
                {
                    return Ok(());
                }
                Location::Hot(_) | Location::Cool(_) => {}
                Location::Cold(_) | Location::Empty => pages.load(page, stated)?,
            }
            let Some(frame) = pages.frame(page) else {
                continue;
            };
            let version = frame.latch.begin();
            if !pages.holds(frame, page) {
                continue;
            }
            let node = self.core.node_of(frame);
            let is_right = stated.holds_of(node);
            let before = (self.tally.records, self.tally.runs.len());
            self.tally.add(node, 0..node.count())?;
            if frame.latch.is_still(version) {
                return if is_right {
                    Ok(())
                } else {
                    Err(pages.misnamed(page, None))
                };
            }
            // It gave way meanwhile.
            self.tally.records = before.0;
            self.tally.runs.truncate(before.1);
        }
    }
}

impl Summing<'_> {
    /// An entry at an end stays: it is not counted, nor what it has outside.
    fn forget(&mut self, found: Found) {
        self.tally.records = self.tally.records.saturating_sub(1);
        if let Found::Outside(word) = found {
            let at = self.tally.runs.iter().rposition(|run| *run == word);
            at.map(|at| self.tally.runs.swap_remove(at));
        }
    }

    /// Counts what lists have, and notes what that has outside.
    fn resolve_lists(&mut self) -> Result<()> {
        let lists = self.tally.runs.iter().copied();
        let mut words = Vec::new();
        for word in lists.filter(|word| RunPlace(*word).is_list()) {
            room::more(&mut words, 1)?;
            words.push(word);
        }
        for word in words {
            match list_at(self.core, word) {
                Ok(cluster) => {
                    self.tally.records += cluster.count() as u64 - 1;
                    room::more(&mut self.tally.runs, cluster.count())?;
                    self.tally.runs.extend(cluster.words());
                }
                Err(error) => self.unreadable(error)?,
            }
        }
        Ok(())
    }
}

impl RangeVisitor for Summing<'_> {
    fn leaf(&mut self, page: u32, stated: &Stated<'_>) -> Result<()> {
        let before = (self.tally.records, self.tally.runs.len());
        match self.add_leaf(page, stated) {
            Err(error) if is_damage(&error) => {
                self.tally.records = before.0;
                self.tally.runs.truncate(before.1);
                self.unreadable(error)
            }
            added => added,
        }
    }

    fn entries(&mut self, node: Node<'_>, entries: Range<usize>) -> Result<()> {
        self.tally.add(node, entries)
    }

    fn unreadable(&mut self, error: Error) -> Result<()> {
        let error = error.at(self.core.log.storage().path());
        if !self.is_tolerant || !is_damage(&error) {
            return Err(error);
        }
        self.damage.get_or_insert(error);
        Ok(())
    }
}

impl Core {
    /// Removes a range, while no other update is under way; how many records that were.
    pub(super) fn remove_range(&self, keys: KeyBounds<'_>) -> Result<u64> {
        let path = self.log.storage().path();
        check_range(keys, self.tree.order).map_err(|error| error.at(path))?;
        for end in [keys.0, keys.1] {
            if let Bound::Included(key) | Bound::Excluded(key) = end {
                self.limits.check(key, &[])?;
            }
        }
        self.log.healthy()?;
        // Of everything, what waits is counted when it is merged.
        let is_all = keys == (Bound::Unbounded, Bound::Unbounded);
        let _merged = is_all.then(|| self.merged_but(is_damage)).transpose()?;
        let removed = self.remove_range_with_room(keys)?;
        self.end()?;
        Ok(removed)
    }

    fn remove_range_with_room(&self, keys: KeyBounds<'_>) -> Result<u64> {
        let class = AllocationClass::Removal;
        let (removed, seams) = self.with_room(class, || {
            if self.is_attention_due() {
                self.attend(class, encode_bounds(keys).len())?;
            }
            let notes = self.note_leaves(keys)?;
            // No cut comes between the journal's record and the pages.
            let _checkpoint = self.checkpoint.lock();
            let _alone = self.gate.alone();
            let _taking = self.tree.nodes.cuts.taking();
            if keys == (Bound::Unbounded, Bound::Unbounded) {
                let all = self.tree.nodes.counts.sum();
                self.clear_alone()?;
                return Ok((all, Vec::new()));
            }
            self.remove_range_alone(keys, &notes, class)
        })?;
        self.join_seams(&seams);
        Ok(removed)
    }

    /// Step 5. As any update does: who is alone is alone with this, too.
    fn join_seams(&self, seams: &[Seam]) {
        let _inside = self.gate.enter();
        if let Err(error) = self.tree.join_seams(seams) {
            // What is sparse may be joined another time; what was asked for is done.
            tracing::debug!(%error, "what a range leaves is not joined");
        }
    }

    /// What the leaves of a range hold that are on storage as they are.
    fn note_leaves(&self, keys: KeyBounds<'_>) -> Result<Notes> {
        let mut notes = Notes::default();
        if keys == (Bound::Unbounded, Bound::Unbounded) {
            return Ok(notes);
        }
        let pages = &self.tree.nodes;
        let order = self.tree.order;
        let keys = stems_of(order, keys);
        let mut from = begin_of(keys)?;
        let mut tries = 0;
        loop {
            let _pin = self.log.pin();
            let end = self.tree.way_to_leaf(from.to())?;
            let version = end.frame.latch.begin();
            if !self.tree.is_still(&end) {
                continue;
            }
            let node = self.node_of(end.frame);
            let first_run = notes.runs.len();
            let mut tally = Tally {
                records: 0,
                runs: std::mem::take(&mut notes.runs),
            };
            let added = tally.add(node, 0..node.count());
            notes.runs = tally.runs;
            let about = pages.about(pages.number_of(end.frame));
            let is_clean = about.first_dirty.load(Ordering::Relaxed) == 0;
            let place = Place(about.place.load(Ordering::Relaxed));
            let mut fence = Key::default();
            let has_next = node.upper(&mut fence).is_some();
            let counts = end.frame.latch.is_still(version);
            added?;
            if !counts {
                notes.runs.truncate(first_run);
                tries += 1;
                if tries < TRIES {
                    continue;
                }
                // It is changed again and again, so it is in memory: the next ones are looked at later.
                break;
            }
            tries = 0;
            if is_clean && !place.is_none() {
                room::more(&mut notes.notes, 1)?;
                notes.notes.push(Note {
                    page: end.number,
                    place,
                    records: tally.records,
                    runs: first_run..notes.runs.len(),
                });
            } else {
                notes.runs.truncate(first_run);
            }
            if !has_next || !is_up_to(keys, order, fence.bytes()) {
                break;
            }
            advance(self, &mut from, Begin::At(fence.bytes().to_vec()))?;
        }
        notes.notes.sort_unstable_by_key(|note| note.page);
        notes.notes.dedup_by_key(|note| note.page);
        Ok(notes)
    }

    /// As `remove_range`, alone: how many records were removed, and where nodes may be sparse now.
    fn remove_range_alone(
        &self,
        keys: KeyBounds<'_>,
        notes: &Notes,
        class: AllocationClass,
    ) -> Result<(u64, Vec<Seam>)> {
        let pages = &self.tree.nodes;
        let mut summing = Summing {
            core: self,
            notes,
            tally: Tally::default(),
            is_tolerant: pages.is_replaying(),
            damage: None,
        };
        let stems = stems_of(self.tree.order, keys);
        let mut excision = self.tree.survey(stems, &mut summing)?;
        let members = self.keep_members(keys, &mut excision, &mut summing, class)?;
        summing.resolve_lists()?;
        let Summing { tally, damage, .. } = summing;
        let of_members: i64 = members.iter().map(Members::count).sum();
        if !excision.is_empty() {
            let records = tally.records;
            let seams = self.cut_out(keys, excision, (&tally, members), class)?;
            return match damage {
                Some(damage) => Err(damage),
                None => Ok((records + of_members.unsigned_abs(), seams)),
            };
        }
        damage.map_or(Ok((0, Vec::new())), Err)
    }

    /// Keeps, of the lists at the ends of a range, what is not in it.
    fn keep_members<'c>(
        &'c self,
        keys: KeyBounds<'_>,
        excision: &mut Excision<'_>,
        summing: &mut Summing<'_>,
        class: AllocationClass,
    ) -> Result<Vec<Members<'c>>> {
        let mut changed = Vec::new();
        for end in [keys.0, keys.1] {
            let (Bound::Included(key) | Bound::Excluded(key)) = end else {
                continue;
            };
            if !is_long(self.tree.order, key) {
                continue;
            }
            // One list may be at both ends: the second time it is not found any more.
            let Some((place, leaf)) = self.tree.found_in(excision, stem_of(key)) else {
                continue;
            };
            let edit =
                ClusterEdit::of(self, leaf, key).and_then(|edit| Ok((edit.within(keys)?, edit)));
            let (range, mut edit) = match edit {
                Err(error) if is_damage(&error) => {
                    summing.unreadable(error)?;
                    // Which of its records are in the range is not known.
                    excision.keep(place, Some(RunPlace::UNREADABLE_LIST.0))?;
                    summing.forget(leaf.value(place.1));
                    continue;
                }
                edit => edit?,
            };
            if range.len() == edit.cluster().count() {
                continue;
            }
            summing.forget(leaf.value(place.1));
            if range.is_empty() {
                excision.keep(place, None)?;
                continue;
            }
            edit.remove(range)?;
            let (word, members) = edit.finish_list(class)?;
            excision.keep(place, Some(word))?;
            room::more(&mut changed, 1)?;
            changed.push(members);
        }
        Ok(changed)
    }

    /// Steps 3 and 4.
    fn cut_out(
        &self,
        keys: KeyBounds<'_>,
        mut excision: Excision<'_>,
        (tally, members): (&Tally, Vec<Members<'_>>),
        class: AllocationClass,
    ) -> Result<Vec<Seam>> {
        let pages = &self.tree.nodes;
        let frames = pages.limit().saturating_sub(pages.frames_of_blocks()) as usize;
        // A replay does what was done with as small a cache as this.
        let most = if pages.is_replaying() {
            frames - frames / 8
        } else {
            frames / 2
        };
        if excision.held() > most {
            let what = "a removal of a range touches too many pages at once";
            return Err(Error::new(Kind::TooLarge, what)
                .at(self.log.storage().path())
                .found(
                    format!("{} pages", excision.held()),
                    format!("{most} or less"),
                )
                .remedy("open the store with a larger cache"));
        }
        self.tree.make_seams(&mut excision, ())?;
        let bounds = encode_bounds(keys);
        let entry = Entry {
            kind: REMOVE_RANGE,
            flags: 0,
            key: &[],
            value: &bounds,
        };
        let moment = match pages.append(self.log.pin(), &entry, class) {
            Ok(moment) => moment,
            Err(error) => {
                self.tree.give_seams_back(&mut excision);
                return Err(error);
            }
        };
        // Until the moment is over.
        self.sums.rest();
        let seams = self.tree.cut_out(excision, &moment);
        let removed = tally.records.cast_signed();
        pages.counts.add(moment.pin(), moment.counter(), -removed);
        for word in &tally.runs {
            self.supersede(Some(Found::Outside(*word)), moment.at);
        }
        for members in members {
            members.finish(self, &[], &moment);
        }
        Ok(seams)
    }

    /// A removal of the journal, again. What cannot be read goes with the range; the error states it.
    pub(super) fn remove_range_again(&self, keys: KeyBounds<'_>) -> Result<()> {
        let class = AllocationClass::Checkpoint;
        let (_, seams) = self.remove_range_alone(keys, &Notes::default(), class)?;
        self.join_seams(&seams);
        Ok(())
    }
}
