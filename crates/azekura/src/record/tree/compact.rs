//! Compacting: space given back on request, while readers and writers continue.
//!
//! 1. Leaves take entries of the next ones until they are full to seven eighths (`node::tree::fill`).
//! 2. In rounds: groups beyond the end that the file needs are barred, so that nothing new is put there. Pages in them are changed, as
//!    they are, and so written elsewhere by who writes pages; values in them are put again. The log and the parts of the
//!    checkpoint begin anew at the first free segments. A checkpoint; then the groups are empty, and the file is cut.
//!
//! Nothing moves but by changes that updates make as well, so a crash at any point leaves the last checkpoint and the journal
//! after it, and a snapshot holds what it needs. A store that becomes full meanwhile is as short as it can be made. It does not
//! know how a page comes to its new place.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use super::Core;
use super::cluster::{cluster_of, is_long};
use super::layout::{CHUNK, Place, RunPlace, UNIT};
use super::view::View as _;
use crate::engine::Edit;
use crate::error::{Error, Kind, Result};
use crate::log::AllocationClass;
use crate::node::tree::{Buffer, Held, Seen};
use crate::node::{Found, Key};
use crate::room;

/// Rounds, at most.
const ROUNDS: u64 = 8;
/// After so many it continues only while the file becomes shorter.
const ROUNDS_LEAST: u64 = 2;
/// Steps after which it is looked at what the room and the cache need: each may bring one page more.
const STEPS: u64 = 32;

/// How far it is.
struct Course<'p> {
    done: u64,
    total: u64,
    progress: &'p mut dyn FnMut(u64, u64),
}

impl Core {
    pub(super) fn compact(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let _compaction = self.compaction.lock();
        self.log.healthy()?;
        let mut course = Course {
            done: 0,
            total: self.tree.nodes.space.room().sizes().pages,
            progress,
        };
        self.unless_full_and_healthy(self.fill_leaves(&mut course))?;
        let moved = self.move_in_rounds(&mut course);
        self.tree.nodes.space.room().unbar();
        self.unless_full_and_healthy(moved)?;
        // What the last round let go of may have been looked at.
        self.unless_full_and_healthy(self.win_room())?;
        self.log.segments().trim()?;
        self.log.sync()?;
        let total = course.total.max(1);
        (course.progress)(total, total);
        Ok(())
    }

    /// A full store is as short as it can be made.
    fn unless_full_and_healthy(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(error) if error.kind() == Kind::Full => self.log.healthy(),
            done => done,
        }
    }

    /// After a step, outside of the gate.
    fn attend_to(&self, course: &mut Course<'_>) -> Result<()> {
        course.done += 1;
        if !course.done.is_multiple_of(STEPS) {
            return Ok(());
        }
        course.total = course.total.max(course.done);
        (course.progress)(course.done, course.total);
        self.keep_for_checkpoint();
        Self::unless_full(self.step())
    }

    fn fill_leaves(&self, course: &mut Course<'_>) -> Result<()> {
        let mut from: Option<Vec<u8>> = None;
        loop {
            let next = {
                let _inside = self.begin(AllocationClass::Removal, 0)?;
                // A division may need room that is kept for a checkpoint.
                self.log.admit(AllocationClass::Growth, UNIT as usize / 2)?;
                self.tree.fill(from.as_deref(), ())?
            };
            self.attend_to(course)?;
            match next {
                Some(next) => from = Some(next),
                None => return Ok(()),
            }
        }
    }

    fn move_in_rounds(&self, course: &mut Course<'_>) -> Result<()> {
        let storage = self.log.storage();
        let mut shortest = u64::MAX;
        for round in 0..ROUNDS {
            self.win_room()?;
            self.log.segments().trim()?;
            let len = storage.size()?;
            if round >= ROUNDS_LEAST && len >= shortest {
                break;
            }
            shortest = len.min(shortest);
            let end = self.segments_needed();
            if len <= self.log.geometry().offset_of(end) {
                break;
            }
            let is_barred = self.tree.nodes.space.room().bar_beyond(end);
            if is_barred {
                course.total = course.done + self.tree.nodes.space.room().sizes().pages;
                self.move_pages(course)?;
            }
            self.begin_parts_anew();
            self.log.roll_over()?;
        }
        Ok(())
    }

    /// Moves what is in groups that are barred.
    fn move_pages(&self, course: &mut Course<'_>) -> Result<()> {
        for level in 0.. {
            let mut from: Option<Vec<u8>> = None;
            loop {
                let mut values = Vec::new();
                let next = {
                    let _inside = self.begin(AllocationClass::Removal, 0)?;
                    let mut is_due = |held: &Held<'_>| self.is_in_the_way(held, &mut values);
                    self.tree.renew(from.as_deref(), level, &mut is_due)?
                };
                let Some(next) = next else { return Ok(()) };
                for key in values {
                    self.move_outside(&key)?;
                }
                self.attend_to(course)?;
                let Some(next) = next else { break };
                from = Some(next);
            }
        }
        Ok(())
    }

    /// Whether a page stands in a group that is barred; the keys of values that do are added to `values`.
    fn is_in_the_way(&self, held: &Held<'_>, values: &mut Vec<Vec<u8>>) -> bool {
        let pages = &self.tree.nodes;
        let node = self.tree.node(held.frame);
        let about = pages.about(pages.number_of(held.frame));
        let room = pages.space.room();
        if node.level() == 0 {
            for at in 0..node.count() {
                // What a list has outside is looked at without the latch.
                if let Found::Outside(word) = node.value(at)
                    && (RunPlace(word).is_list() || room.is_barred(RunPlace(word).unit()))
                {
                    let mut key = Key::default();
                    node.key(at, &mut key);
                    values.push(key.bytes().to_vec());
                }
            }
        }
        // One that is dirty moves when it is written.
        let place = Place(about.place.load(Ordering::Relaxed));
        let is_clean = about.first_dirty.load(Ordering::Relaxed) == 0;
        is_clean && !place.is_none() && room.is_barred(place.unit())
    }

    /// Puts again what an entry has outside of its leaf: a value, or a list of long keys and what of these is in the way.
    fn move_outside(&self, entry: &[u8]) -> Result<()> {
        if !is_long(self.tree.order, entry) {
            return self.move_value(entry);
        }
        let mut members = Vec::new();
        {
            let _pin = self.log.pin();
            let core = self;
            let Seen::Outside(word) = core.see(entry, &mut Buffer::default())? else {
                return Ok(());
            };
            if !RunPlace(word).is_list() {
                return self.move_value(entry);
            }
            let cluster = cluster_of(core, entry, word)?;
            let is_barred = |word| {
                self.tree
                    .nodes
                    .space
                    .room()
                    .is_barred(RunPlace(word).unit())
            };
            let outside = |word| self.read_run(word).map_err(|error| error.key(entry));
            for at in 0..cluster.count() {
                if cluster.word(at).is_some_and(is_barred)
                    && let Some((rest, _)) = cluster.record(at, &outside)?
                {
                    members.push(room::concat(&[entry, &rest])?);
                }
            }
            if members.is_empty()
                && is_barred(word)
                && let Some((rest, _)) = cluster.record(0, &outside)?
            {
                // Any of them: the list is written again.
                members.push(room::concat(&[entry, &rest])?);
            }
        }
        members.iter().try_for_each(|key| self.move_value(key))
    }

    /// Puts the value of a key again, if that is still what it is.
    fn move_value(&self, key: &[u8]) -> Result<()> {
        let Some(value) = self.read(key, |value| value.map(<[u8]>::to_vec))? else {
            return Ok(());
        };
        self.edit(key, &mut |now| {
            if now == Some(&value[..]) {
                Edit::Put(Cow::Borrowed(&value[..]))
            } else {
                Edit::Keep
            }
        })
        .map_err(|error: Error| error.key(key))
    }

    /// Segments that pages, values, the log and the parts of a checkpoint need, and some to spare.
    fn segments_needed(&self) -> u32 {
        let size = self.log.geometry().segment_size();
        let sizes = self.log.segments().sizes();
        let room = self.tree.nodes.space.room().sizes();
        let pages = ((room.live() + room.held) * UNIT).div_ceil(size);
        let segments = pages + (sizes.log + sizes.other).div_ceil(size);
        (segments + segments / 20 + 2) as u32
    }

    /// Chunks of the page table that lie after a free segment are written again, before others.
    fn begin_parts_anew(&self) {
        let first_free = self.log.segments().first_free().unwrap_or(u32::MAX);
        let table = &self.tree.nodes.table;
        let mut state = self.checkpoint.lock();
        state.committed.parts.start_new_run();
        for (number, extent) in table.extents().into_iter().enumerate() {
            let segment = self.log.geometry().locate(extent.offset);
            if extent.len > 0 && segment.is_some_and(|(index, _)| index > first_free) {
                table.mark_dirty((number * CHUNK) as u32);
            }
        }
    }
}
