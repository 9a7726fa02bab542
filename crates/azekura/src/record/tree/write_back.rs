//! Writing pages: to new places, in batches, by one thread at a time.
//!
//! | step | others see |
//! |---|---|
//! | 1 copy each page between two looks at its version | nothing |
//! | 2 make the images; take units for them; sum them for their places | nothing |
//! | 3 write, neighbours together | nothing |
//! | 4 for each page, its latch held: if it is as it was, the image is its place from now on, and it is clean | the place |
//!
//! While a checkpoint is being made, a page that was dirty at its cut is first written as it was then: as it is, if nothing changed
//! it since, else by the version that was kept. Then the page's place is that image, and the page is dirty since the change after
//! the cut. So the pages of a checkpoint are written by the thread that comes first.
//!
//! Images are made before their units are taken, as a compressed one takes fewer, and summed for these after.
//!
//! A latch is only tried: what cannot be finished is given back, and written another time. What snapshots need is where `cut` keeps it.
//! It does not know when to write.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cache::{PageCache, PageWriter};
use super::cut::{Kept, Version};
use super::image::PACKED_MAX;
use super::layout::page_image::{Words, seal_image};
use super::layout::{Place, UNIT};
use super::table::Location;
use crate::error::Result;
use crate::explore;
use crate::log::AllocationClass;
use crate::node::tree::Frame;
use crate::room;

/// Units of pages that are written together.
const BATCH: u32 = 256;
/// Neighbours of so many units are written by one request.
const JOINED: u64 = 64;

/// A page that is being written.
struct Copied<'p> {
    number: u32,
    frame: &'p Frame,
    page: u32,
    /// The version of its latch; of a kept version none.
    latch: u64,
    stamp: u64,
    first_dirty: u64,
    /// Whether it is what a cut sees.
    is_of_cut: bool,
    words: Arc<Words>,
    /// Of a kept version: the change that it was kept from.
    until: Option<u64>,
}

/// Where an image stands among those of its batch, and where it goes.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// Its first byte.
    at: usize,
    units: u32,
    unit: u64,
}

impl Written {
    fn bytes<'b>(&self, images: &'b [u8]) -> &'b [u8] {
        &images[self.at..][..self.units as usize * UNIT as usize]
    }
}

impl PageCache {
    /// Pages that are written together.
    pub(super) fn batch(&self) -> usize {
        (BATCH / self.shape.units()) as usize
    }

    /// Writes some dirty pages that the hand finds, cool ones first unless `any`; how many are clean now. Where another thread
    /// is writing, it waits for that.
    pub(super) fn write_back_some(&self, any: bool) -> Result<usize> {
        let mut writer = self.writer.lock();
        let made = self.made();
        let most = self.batch();
        let mut found = Vec::with_capacity(most);
        let mut hand = writer.hand;
        for _ in 0..made {
            hand = (hand + 1) % made.max(1);
            if self.about(hand).first_dirty.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let Some(page) = Self::page_in(self.at(hand)) else {
                continue;
            };
            if any || matches!(self.table.at(page), Location::Cool(_)) {
                found.push(hand);
            } else {
                self.table
                    .exchange(page, Location::Hot(hand), Location::Cool(hand));
            }
            if found.len() == most {
                break;
            }
        }
        writer.hand = hand;
        self.save(&mut writer, &found, false)
    }

    /// Writes the pages in these frames, at most a [batch](Self::batch), or those that a cut needs of them; how many are clean now, or as the cut
    /// needs them.
    pub(super) fn save(
        &self,
        writer: &mut PageWriter,
        frames: &[u32],
        only_of_cut: bool,
    ) -> Result<usize> {
        debug_assert!(frames.len() <= self.batch());
        let cut = self.space.room().cut();
        let mut copied: Vec<Copied<'_>> = Vec::with_capacity(frames.len());
        for number in frames {
            copied.extend(self.copy(*number, cut));
        }
        if only_of_cut {
            copied.retain(|copied| copied.is_of_cut);
        }
        if copied.is_empty() {
            return Ok(0);
        }
        let sizes = self.fill_images(writer, &copied)?;
        let units = self.take_units(&copied, &sizes)?;
        let places = match self.write(writer, &sizes, &units) {
            Ok(places) => places,
            Err(error) => {
                // What the storage has is unknown.
                self.log.poison();
                return Err(error);
            }
        };
        let mut done = 0;
        for (copied, place) in copied.iter().zip(places) {
            done += usize::from(self.finish(copied, place, cut));
        }
        Ok(done)
    }

    /// What no checkpoint names takes nothing of what the next one needs, but in a replay, before which there is none, and where
    /// damage keeps it from being made.
    fn take_units(&self, copied: &[Copied<'_>], sizes: &[u32]) -> Result<Vec<u64>> {
        let class = if self.is_replaying() || self.log.is_refused() {
            AllocationClass::Checkpoint
        } else {
            AllocationClass::Cleaning
        };
        let sizes_of = |is_of_cut: bool| -> Vec<u32> {
            let sizes = copied.iter().zip(sizes);
            let of = sizes.filter(|(copied, _)| copied.is_of_cut == is_of_cut);
            of.map(|(_, size)| *size).collect()
        };
        let (sizes_old, sizes_young) = (sizes_of(true), sizes_of(false));
        let mut room = self.space.room();
        let mut old = room.take_units(&sizes_old, AllocationClass::Checkpoint, false)?;
        let young = match room.take_units(&sizes_young, class, true) {
            Ok(young) => young,
            Err(error) => {
                for (unit, count) in old.into_iter().zip(sizes_old) {
                    room.give_units(unit, count);
                }
                return Err(error);
            }
        };
        // In the order of the pages, each of its kind.
        let mut young = young.into_iter();
        let mut kept = old.drain(..);
        let next = |copied: &Copied<'_>| {
            if copied.is_of_cut {
                kept.next()
            } else {
                young.next()
            }
        };
        Ok(copied.iter().filter_map(next).collect())
    }

    /// A page as it is to be written; `None`: it is clean, of no use, or being changed.
    fn copy(&self, number: u32, cut: Option<u64>) -> Option<Copied<'_>> {
        let frame = self.at(number);
        let about = self.about(number);
        let latch = frame.latch.try_begin()?;
        let page = Self::page_in(frame)?;
        let first_dirty = about.first_dirty.load(Ordering::Relaxed);
        let stamp = frame.words[0].load(Ordering::Relaxed);
        if first_dirty == 0 || stamp == u64::MAX {
            return None;
        }
        let cut = cut.filter(|cut| first_dirty < *cut);
        let kept = cut.filter(|cut| stamp >= *cut);
        let version = match kept {
            Some(cut) => self.cuts.version(page, cut)?,
            None => Version {
                stamp,
                until: 0,
                image: Kept::copy(self.words(frame)),
            },
        };
        let Kept::Words(words) = version.image else {
            return None;
        };
        if !frame.latch.is_still(latch) {
            return None;
        }
        Some(Copied {
            number,
            frame,
            page,
            latch,
            stamp: version.stamp,
            first_dirty,
            is_of_cut: cut.is_some(),
            words,
            until: kept.map(|_| version.until),
        })
    }

    /// Gives the writer room for a batch of images. `Full` if there is no memory.
    pub(super) fn prepare(&self, writer: &mut PageWriter) -> Result<()> {
        let size = self.shape.bytes() as usize;
        if writer.images.is_empty() {
            room::exactly(&mut writer.images, self.batch() * size)?;
            writer.images.resize(self.batch() * size, 0);
            room::exactly(&mut writer.packed, PACKED_MAX)?;
            writer.packed.resize(PACKED_MAX, 0);
        }
        Ok(())
    }

    /// Makes the images of pages, each with the room of a whole page; how many units each takes.
    fn fill_images(&self, writer: &mut PageWriter, copied: &[Copied<'_>]) -> Result<Vec<u32>> {
        self.prepare(writer)?;
        let size = self.shape.bytes() as usize;
        let packed = &mut writer.packed[..];
        let images = writer.images.chunks_exact_mut(size);
        let fill = |(copied, image): (&Copied<'_>, _)| {
            let words = &copied.words;
            self.images.fill(words, self.epoch, image, packed)
        };
        Ok(copied.iter().zip(images).map(fill).collect())
    }

    /// Writes the images that were made to these units; their places.
    pub(super) fn write(
        &self,
        writer: &mut PageWriter,
        sizes: &[u32],
        units: &[u64],
    ) -> Result<Vec<Place>> {
        let size = self.shape.bytes() as usize;
        let salt = self.log.geometry().salt;
        let mut places = Vec::with_capacity(units.len());
        let mut written = Vec::with_capacity(units.len());
        let images = writer.images.chunks_exact_mut(size);
        for (number, ((image, count), unit)) in images.zip(sizes).zip(units).enumerate() {
            let image = &mut image[..*count as usize * UNIT as usize];
            places.push(seal_image(image, salt, *unit));
            written.push(Written {
                at: number * size,
                units: *count,
                unit: *unit,
            });
        }
        written.sort_unstable_by_key(|image| image.unit);
        let mut rest = &written[..];
        while let Some((first, others)) = rest.split_first() {
            let mut end = first.unit + u64::from(first.units);
            let joined = others.iter().take_while(|next| {
                let is_next = next.unit == end && end - first.unit < JOINED;
                end += u64::from(next.units);
                is_next
            });
            let (run, after) = rest.split_at(1 + joined.count());
            self.write_joined(writer, run)?;
            rest = after;
        }
        let count = sizes.iter().map(|size| u64::from(*size)).sum();
        self.writes.fetch_add(count, Ordering::Relaxed);
        Ok(places)
    }

    /// Writes images that are neighbours on storage by one request.
    fn write_joined(&self, writer: &mut PageWriter, run: &[Written]) -> Result<()> {
        let Some(first) = run.first() else {
            return Ok(());
        };
        let at = |image: &Written| image.at as u64 / UNIT + first.unit;
        let is_joined = |image: &Written| at(image) == image.unit + first.at as u64 / UNIT;
        let len = run.iter().map(|image| image.units as usize).sum::<usize>() * UNIT as usize;
        let bytes = if run.iter().all(is_joined) {
            &writer.images[first.at..][..len]
        } else {
            writer.joined.clear();
            room::more(&mut writer.joined, len)?;
            for image in run {
                writer.joined.extend_from_slice(image.bytes(&writer.images));
            }
            &writer.joined[..]
        };
        self.log.storage().write_at(first.unit * UNIT, bytes)
    }

    /// The image is written; whether the page's place is it now.
    fn finish(&self, copied: &Copied<'_>, place: Place, cut: Option<u64>) -> bool {
        let Copied {
            number,
            frame,
            page,
            latch,
            stamp,
            first_dirty,
            is_of_cut,
            until,
            ..
        } = *copied;
        explore::yield_point();
        let about = self.about(number);
        let lock = frame.latch.try_lock();
        let is_same = lock.is_some()
            && Self::page_in(frame) == Some(page)
            && about.first_dirty.load(Ordering::Relaxed) == first_dirty;
        // The first change that is not in the image.
        let after = if !is_same {
            None
        } else if until.is_some() {
            until
        } else if frame.latch.is_still(latch) {
            Some(0)
        } else {
            cut.filter(|_| is_of_cut)
                .and_then(|cut| self.until_of(page, cut, stamp))
        };
        let Some(after) = after else {
            drop(lock);
            self.space.room().give_units(place.unit(), place.units());
            return false;
        };
        let mut room = self.space.room();
        let before = Place(about.place.load(Ordering::Relaxed));
        if !is_of_cut {
            room.note_place_at_cut(page, before);
        }
        let since = about.stamp.load(Ordering::Relaxed);
        room.supersede_image(before, (since, first_dirty));
        about.place.store(place.0, Ordering::Relaxed);
        about.stamp.store(stamp, Ordering::Relaxed);
        drop(room);
        about.first_dirty.store(after, Ordering::Relaxed);
        if after == 0 {
            self.dirty.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.note_written(page, after, place);
        }
        self.table.mark_dirty(page);
        true
    }

    /// The change that the version was kept from which is the same as a copy.
    fn until_of(&self, page: u32, cut: u64, stamp: u64) -> Option<u64> {
        let version = self.cuts.version(page, cut)?;
        version.words_of(cut)?;
        (version.stamp == stamp).then_some(version.until)
    }

    /// The version that was kept from the change at `until` is written.
    fn note_written(&self, page: u32, until: u64, place: Place) {
        self.cuts.note_written(page, until, place, |version| {
            let room = self.space.room();
            room.is_needed_by_snapshot(version.stamp, version.until)
        });
    }

    /// Writes what a cut sees of pages that were taken out of use since, of which versions were kept; how many.
    pub(super) fn save_versions(&self, cut: u64) -> Result<usize> {
        // No version is in the hands of a thread that writes pages.
        let mut writer = self.writer.lock();
        let pages = self.cuts.pages_to_write(cut);
        let mut saved = 0;
        for page in pages {
            // One that is still in use is written as the page is.
            if self.is_dirty_at(page, cut) {
                continue;
            }
            let Some(version) = self.cuts.version(page, cut) else {
                continue;
            };
            let Some(words) = version.words_of(cut) else {
                continue;
            };
            let class = AllocationClass::Checkpoint;
            let copied = [Copied {
                number: 0,
                frame: self.at(0),
                page,
                latch: 0,
                stamp: version.stamp,
                first_dirty: 0,
                is_of_cut: true,
                words: Arc::clone(words),
                until: Some(version.until),
            }];
            let sizes = self.fill_images(&mut writer, &copied)?;
            let units = self.space.room().take_units(&sizes, class, false)?;
            let written = self.write(&mut writer, &sizes, &units);
            match written {
                Ok(places) => {
                    let interval = (version.stamp, version.until);
                    for place in places {
                        self.space.room().note_image_at_cut(page, place, interval);
                        self.note_written(page, version.until, place);
                    }
                }
                Err(error) => {
                    self.log.poison();
                    return Err(error);
                }
            }
            self.table.mark_dirty(page);
            saved += 1;
        }
        Ok(saved)
    }

    /// Whether a page is in memory, and dirty since before the cut.
    fn is_dirty_at(&self, page: u32, cut: u64) -> bool {
        match self.table.at(page) {
            Location::Hot(number) | Location::Cool(number) => {
                let first_dirty = self.about(number).first_dirty.load(Ordering::Relaxed);
                0 < first_dirty && first_dirty < cut
            }
            Location::Cold(_) | Location::Empty => false,
        }
    }

    /// The frames that hold pages which were dirty at a cut and are still to be written, by where they were.
    pub(super) fn dirty_at(&self, cut: u64) -> Vec<u32> {
        let mut found: Vec<(u64, u32)> = (0..self.made())
            .filter_map(|number| {
                let about = self.about(number);
                let first_dirty = about.first_dirty.load(Ordering::Acquire);
                let is_dirty = 0 < first_dirty && first_dirty < cut;
                let place = Place(about.place.load(Ordering::Relaxed));
                is_dirty.then(|| (place.unit(), number))
            })
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, number)| number).collect()
    }
}
