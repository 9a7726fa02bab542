//! Compaction: leaves are filled, and what stands at the file's end moves to free units before it, so that the file can be cut.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 leaf by leaf, each takes what it can of the next ones (`node::tree`) | the same records, in fewer leaves or not |
//! | 2 a checkpoint: what was superseded is free | the old one or the new |
//! | 3 the ceiling: what is in use would stand below it side by side; nothing new is placed above it | the same |
//! | 4 images of pages above it are copied, as they are, to units below it | the old place: a checkpoint has either |
//! | 5 values outside above it are put again, as any update; parts of the page table are written again | the same records |
//! | 6 a checkpoint; the file is cut; and again from 2, while it becomes shorter | the old one or the new |
//!
//! Each step is short, and inside the gate, while others read and write. A page that is copied does not change: no snapshot keeps
//! anything for it, and its old units wait for the next checkpoint. What cannot be read stays where it is, and so do lists of records whose
//! keys are long. A store that finds no room is left with what was done. It does not compare the file with what it was before.

use std::sync::atomic::Ordering;

use super::Core;
use super::cache::PageCache;
use super::layout::{CHUNK, Place, RunPlace, UNIT};
use super::table::Location;
use super::view::View;
use super::walk::advance;
use super::{is_damage, is_damage_or_full};
use crate::error::{Error, Kind, Result};
use crate::log::AllocationClass;
use crate::node::tree::{Begin, NodeStore};
use crate::node::{Found, Key, Value};
use crate::room;

/// Rounds of moving, at most; each has the room that the one before won.
const ROUNDS: usize = 16;
/// Segments below the ceiling that stay free: where the log and the next parts go.
const SPARE: u32 = 2;
/// A file that is closed is cut if so many bytes hold no page, and a quarter of what do, which are at most this: so closing takes no
/// longer than some tenths of a second.
const FREE_AT_CLOSE: u64 = 16 << 20;
const USED_AT_CLOSE: u64 = 256 << 20;
/// Pages of which the places are looked at between two reports.
const REPORTED: u32 = 1 << 14;

impl Core {
    /// See the module's text. Errors: `Corrupted`, `Io` with the first damage that was met, after all else was done; `Poisoned`.
    pub(super) fn compact(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.log.healthy()?;
        let _alone = self.compacting.lock();
        let mut damage = None;
        // Leaves that cannot be read are passed below.
        let _merged = self.merged_but(is_damage_or_full)?;
        self.as_far_as_there_is_room(self.fill_leaves(&mut damage, progress))?;
        let moved = self.move_down(&mut damage, progress);
        self.tree.nodes.space.room().set_ceiling(None);
        self.as_far_as_there_is_room(moved)?;
        self.log.segments().reap_to_the_last();
        self.log.segments().trim()?;
        self.log.sync()?;
        progress(1, 1);
        damage.map_or(Ok(()), Err)
    }

    /// Steps 2 to 6, for a file that is being closed, if that is worth it. Errors: `Io`, `Poisoned`.
    pub(super) fn shorten(&self) -> Result<()> {
        self.log.segments().trim()?;
        let used = self.tree.nodes.space.room().sizes().used * UNIT;
        let free = self.log.storage().size()?.saturating_sub(used);
        if free < FREE_AT_CLOSE.max(used / 4) || used > USED_AT_CLOSE {
            return Ok(());
        }
        let _alone = self.compacting.lock();
        let moved = self.move_down(&mut None, &mut |_, _| ());
        self.tree.nodes.space.room().set_ceiling(None);
        match moved {
            // What cannot be read stays.
            Err(error) if is_damage(&error) => self.log.healthy(),
            moved => self.as_far_as_there_is_room(moved),
        }
    }

    /// A full store is as short as it can be made.
    fn as_far_as_there_is_room(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(error) if error.kind() == Kind::Full => self.log.healthy(),
            other => other,
        }
    }

    /// Step 1. Leaves that cannot be read are passed.
    fn fill_leaves(
        &self,
        damage: &mut Option<Error>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let mut from = Begin::First;
        let mut leaves = 0_u64;
        let mut full_at = u64::MAX;
        while !self.are_snapshots_large() {
            let filled = self.fill_leaf(&from);
            // What was won before is free after a checkpoint, once for each leaf.
            if filled
                .as_ref()
                .is_err_and(|error| error.kind() == Kind::Full && full_at != leaves)
            {
                full_at = leaves;
                self.win_room()?;
                continue;
            }
            let Some(next) = self.pass(filled, &from, damage)? else {
                break;
            };
            advance(self, &mut from, Begin::At(next))?;
            leaves += 1;
            if leaves.is_multiple_of(64) {
                let pages = self.tree.nodes.space.room().sizes().pages;
                progress(leaves, pages.max(leaves) * 2);
            }
        }
        Ok(())
    }

    /// Fills the leaf where a place is; where the next one begins.
    fn fill_leaf(&self, from: &Begin) -> Result<Option<Vec<u8>>> {
        let _inside = self.begin(AllocationClass::Removal, 0)?;
        let mut next = Key::default();
        let has_next = self.tree.fill_leaf(from.to(), &mut next)?;
        Ok(has_next.then(|| next.bytes().to_vec()))
    }

    /// What a look at a leaf gave, or where what is unreadable ends.
    fn pass(
        &self,
        looked: Result<Option<Vec<u8>>>,
        from: &Begin,
        damage: &mut Option<Error>,
    ) -> Result<Option<Vec<u8>>> {
        match looked {
            Err(error) if is_damage(&error) && self.log.healthy().is_ok() => {
                damage.get_or_insert(error);
                self.end_of_unreadable(from)
            }
            looked => looked,
        }
    }

    /// Whether snapshots hold half of what ends the oldest of them: each leaf that changes adds to it.
    fn are_snapshots_large(&self) -> bool {
        let held = self.tree.nodes.space.room().sizes().held;
        held * UNIT > self.options.snapshot_room / 2
    }

    /// Steps 2 to 6, in rounds.
    fn move_down(
        &self,
        damage: &mut Option<Error>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let pages = &self.tree.nodes;
        let mut shortest = u64::MAX;
        for _ in 0..ROUNDS {
            // The log is to end near to the front, too.
            if !self.log.segments().is_full() {
                self.log.roll_over()?;
            }
            self.win_room()?;
            self.log.segments().trim()?;
            let len = self.log.storage().size()?;
            if len >= shortest {
                break;
            }
            shortest = len;
            let ceiling = pages.space.room().lowest_ceiling(SPARE);
            pages.space.room().set_ceiling(Some(ceiling));
            let first = self.log.geometry().offset_of(ceiling) / UNIT;
            // What was moved, where there was room for no more, gives room to the next round.
            self.as_far_as_there_is_room(self.move_pages(first, progress))?;
            self.rewrite_parts(first);
            self.win_room()?;
            if pages.space.room().is_used_from(ceiling) {
                self.as_far_as_there_is_room(self.move_runs(first, damage))?;
            }
        }
        Ok(())
    }

    /// Step 4: of pages whose images stand at this unit or after it.
    fn move_pages(&self, first: u64, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let pages = &self.tree.nodes;
        let given_out = pages.space.room().pages();
        let mut above = Vec::with_capacity(pages.batch());
        for page in 0..given_out {
            if (page as usize).is_multiple_of(CHUNK) && pages.load_chunk(page).is_err() {
                // Its places are not known; neither do they change.
                continue;
            }
            if let Some(place) = pages.place_of(page).filter(|place| place.unit() >= first) {
                above.push((page, place));
            }
            let is_last = page + 1 == given_out;
            if above.len() == pages.batch() || is_last && !above.is_empty() {
                let _inside = self.begin(AllocationClass::Removal, 0)?;
                pages.move_images(&above, first)?;
                above.clear();
            }
            if page.is_multiple_of(REPORTED) {
                progress(
                    u64::from(given_out) + u64::from(page),
                    u64::from(given_out) * 2,
                );
            }
        }
        Ok(())
    }

    /// The next checkpoint writes the chunks of the table that stand at this unit or after it.
    fn rewrite_parts(&self, first: u64) {
        let table = &self.tree.nodes.table;
        let extents = table.extents();
        let numbered = extents.iter().enumerate();
        let above = numbered.filter(|(_, extent)| extent.len > 0 && extent.offset / UNIT >= first);
        let above: Vec<usize> = above.map(|(number, _)| number).collect();
        table.mark_chunks_dirty(&above);
        self.checkpoint.lock().committed.parts.start_new_run();
    }

    /// Step 5: values outside at this unit or after it.
    fn move_runs(&self, first: u64, damage: &mut Option<Error>) -> Result<()> {
        let mut from = Begin::First;
        loop {
            let mut keys = Vec::new();
            let looked = {
                let _inside = self.begin(AllocationClass::Removal, 0)?;
                self.tree.lock_next_leaf(from.to()).and_then(|held| {
                    let node = self.node_of(held.frame);
                    let mut key = Key::default();
                    for at in 0..node.count() {
                        if is_above(node.value(at), first).is_some() {
                            node.key(at, &mut key);
                            room::more(&mut keys, 1)?;
                            keys.push(room::copy(key.bytes())?);
                        }
                    }
                    Ok(node.upper(&mut key).map(|()| key.bytes().to_vec()))
                })
            };
            for key in &keys {
                match self.move_run(key, first) {
                    Err(error) if is_damage(&error) && self.log.healthy().is_ok() => {
                        damage.get_or_insert(error);
                    }
                    moved => moved?,
                }
            }
            let Some(next) = self.pass(looked, &from, damage)? else {
                return Ok(());
            };
            advance(self, &mut from, Begin::At(next))?;
        }
    }

    /// Puts the value of a record again, if it stands at this unit or after it, and there is room nearer to the front.
    fn move_run(&self, key: &[u8], first: u64) -> Result<()> {
        let class = AllocationClass::Exchange;
        let _inside = self.begin(AllocationClass::Removal, key.len())?;
        let pin = self.log.pin();
        let held = self.tree.lock_leaf(key)?;
        let node = self.node_of(held.frame);
        let (at, is_present) = node.find(key);
        let word = is_present.then(|| is_above(node.value(at), first));
        let Some(word) = word.flatten() else {
            return Ok(());
        };
        let value = self.read_run(word).map_err(|error| error.key(key))?;
        drop(pin);
        let (form, run) = self.value(&value, class)?;
        let is_nearer = |form| matches!(form, Value::Outside(to) if RunPlace(to).unit() < RunPlace(word).unit());
        if !is_nearer(form) {
            return Ok(());
        }
        self.put_held(&self.tree, held, key, (&value, form, run), class)
    }
}

/// The word of a value that stands at a unit or after it.
fn is_above(value: Found, first: u64) -> Option<u64> {
    match value {
        Found::Outside(word) if !RunPlace(word).is_list() && RunPlace(word).unit() >= first => {
            Some(word)
        }
        _ => None,
    }
}

impl PageCache {
    /// Where the image of a page stands; `None`: it has none, or is to be written elsewhere anyway.
    fn place_of(&self, page: u32) -> Option<Place> {
        let place = match self.table.at(page) {
            Location::Cold(place) => place,
            Location::Hot(number) | Location::Cool(number) => {
                let about = self.about(number);
                if about.first_dirty.load(Ordering::Relaxed) != 0 {
                    return None;
                }
                // Of a frame that is another page's by now it is not that page's place: then it is not moved.
                Place(about.place.load(Ordering::Relaxed))
            }
            Location::Empty => return None,
        };
        (!place.is_none()).then_some(place)
    }

    /// Copies the images of pages, at most a [batch](Self::batch), which stand at the unit `first` or after it, to units before it; those that
    /// changed their place meanwhile, and those that cannot be read, stay. The caller is inside the gate. `Full` if there is no room before it.
    fn move_images(&self, pages: &[(u32, Place)], first: u64) -> Result<()> {
        let mut writer = self.writer.lock();
        self.prepare(&mut writer)?;
        let size = self.shape.bytes() as usize;
        let mut read = Vec::with_capacity(pages.len());
        for (page, place) in pages {
            let at = read.len() * size;
            let image = &mut writer.images[at..][..place.units() as usize * UNIT as usize];
            if self.is_readable(*page, *place, image) {
                read.push((*page, *place));
            }
        }
        if read.is_empty() {
            return Ok(());
        }
        let sizes: Vec<u32> = read.iter().map(|(_, place)| place.units()).collect();
        let class = AllocationClass::Cleaning;
        let units = self.space.room().take_units(&sizes, class, true)?;
        let give_back = || {
            let mut room = self.space.room();
            for (unit, count) in units.iter().zip(&sizes) {
                room.give_units(*unit, *count);
            }
        };
        if units.iter().any(|unit| *unit >= first) {
            give_back();
            let what = "there is no room for pages before the end of the file";
            return Err(Error::new(Kind::Full, what).at(self.log.storage().path()));
        }
        let places = match self.write(&mut writer, &sizes, &units) {
            Ok(places) => places,
            Err(error) => {
                // What the storage has is unknown.
                self.log.poison();
                return Err(error);
            }
        };
        // No cut comes in between, as the writer is held.
        let moment = match self.moment() {
            Ok(moment) => moment,
            Err(error) => {
                give_back();
                return Err(error);
            }
        };
        for ((page, before), after) in read.into_iter().zip(places) {
            if self.exchange_place(page, (before, after), moment.at) {
                self.table.mark_dirty(page);
            } else {
                self.space.room().give_units(after.unit(), after.units());
            }
        }
        Ok(())
    }

    /// Reads the image of a page; whether it is what its place states.
    fn is_readable(&self, page: u32, place: Place, image: &mut [u8]) -> bool {
        let identity = (self.log.geometry().salt, self.epoch);
        let is_read = self.log.storage().read_at(place.offset(), image).is_ok();
        let mut ignore = |_: usize, _: u64| ();
        is_read
            && self
                .images
                .decode(image, identity, page, place, &mut ignore)
                .is_ok()
    }

    /// Gives a page that is not dirty another place, where the same stands, at a position; whether it was still at the one before.
    fn exchange_place(&self, page: u32, (before, after): (Place, Place), position: u64) -> bool {
        let is_exchanged = match self.table.at(page) {
            Location::Empty => None,
            Location::Cold(_) => {
                let mut room = self.space.room();
                let (cold, moved) = (Location::Cold(before), Location::Cold(after));
                self.table.exchange(page, cold, moved).then(|| {
                    room.move_image(page, before, position);
                })
            }
            Location::Hot(number) | Location::Cool(number) => {
                let frame = self.at(number);
                let about = self.about(number);
                let lock = frame.latch.try_lock();
                let is_same = lock.is_some()
                    && Self::page_in(frame) == Some(page)
                    && about.first_dirty.load(Ordering::Relaxed) == 0
                    && about.place.load(Ordering::Relaxed) == before.0;
                is_same.then(|| {
                    let mut room = self.space.room();
                    room.move_image(page, before, position);
                    about.place.store(after.0, Ordering::Relaxed);
                })
            }
        };
        is_exchanged.is_some()
    }
}
