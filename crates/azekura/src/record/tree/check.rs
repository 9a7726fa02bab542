//! Verifying a store: every page that is reachable, every value, and that each unit is used once, and stated to be in use.
//!
//! It reads the last checkpoint, which it makes first, as it stands on storage: the page table's chunks, the bitmaps, and from the
//! root on each page by its place. So what is in the cache hides no damage. No later checkpoint is made meanwhile; readers and writers continue.
//!
//! | it compares | with |
//! |---|---|
//! | a page's sum, number and place | the page table |
//! | its level and fences | what its parent states |
//! | its keys | their order, and its fences |
//! | units of pages and values | each other, and the bitmaps: used once, and nothing else is in use |
//! | records | the count of the checkpoint |
//!
//! Damage is reported with the range of keys that it costs.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Core;
use super::bitmap::{Compared, GroupBits, IMPOSSIBLE, Sighting};
use super::cache::costs;
use super::cluster::cluster_of;
use super::image::lists_in;
use super::layout::page_image::Words;
use super::layout::{CHUNK, HEAD_WORDS, PAGE_MAX, Place, RunPlace, UNIT, bitmap_seed};
use super::table::read_chunk;
use crate::engine::CheckReport;
use crate::error::{Error, Kind, Result, quote};
use crate::kernel::superblock::damaged_slots;
use crate::log::manifest::{Extent, read_extent};
use crate::node::tree::{ROOT, Stated};
use crate::node::{Found, Key, Node};

/// What a check has.
struct Check<'c> {
    core: &'c Core,
    /// Where each page is, by number.
    places: Vec<Place>,
    units: Compared,
    /// Whether all bitmaps are there.
    has_bitmaps: bool,
    report: CheckReport,
    done: u64,
    total: u64,
    progress: &'c mut dyn FnMut(u64, u64),
}

impl Core {
    pub(super) fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        self.checkpoint()?;
        let state = self.checkpoint.lock();
        let storage = self.log.storage();
        let mut report = CheckReport::default();
        for damage in damaged_slots::<super::layout::Super>(storage.as_ref())? {
            report.note(damage.to_string());
            report.rewritable += 1;
        }
        let salt = self.log.geometry().salt;
        let units_max = self.tree.nodes.shape.units();
        let mut places = Vec::new();
        for (number, extent) in self.tree.nodes.table.extents().into_iter().enumerate() {
            if extent.len == 0 {
                places.extend([Place::NONE; CHUNK]);
                continue;
            }
            match read_chunk(storage.as_ref(), salt, (number, extent), units_max) {
                Ok(chunk) => {
                    report.bytes += extent.len;
                    places.extend(chunk.into_iter().map(|place| place.unwrap_or(Place::NONE)));
                }
                Err(error) => {
                    report.note_error(error);
                    places.extend([Place::NONE; CHUNK]);
                }
            }
        }
        let count = state.committed.superblock.payload.count;
        let mut check = Check {
            core: self,
            total: places.iter().filter(|place| !place.is_none()).count() as u64,
            places,
            units: Compared::new(self.log.geometry()),
            has_bitmaps: true,
            report,
            done: 0,
            progress,
        };
        check.bitmaps(&state.bitmaps);
        check.page(ROOT, &Stated::default());
        let Check {
            mut report,
            units,
            done,
            total,
            ..
        } = check;
        if report.is_sound() && report.records != count {
            report.note(format!(
                "{} records are there, and {count} were counted",
                report.records
            ));
        }
        if report.is_sound() && done != total {
            report.note(format!(
                "{total} pages are in the page table, and {done} of them in the tree"
            ));
        }
        if report.is_sound()
            && let Some((count, first)) = units.unmet()
        {
            report.note(format!(
                "{count} units of {UNIT} bytes are in use and hold nothing, the first of them at offset {first}"
            ));
        }
        drop(state);
        Ok(report)
    }
}

impl Check<'_> {
    fn bitmaps(&mut self, parts: &[Extent]) {
        let log = &self.core.log;
        let geometry = log.geometry();
        for part in parts {
            let seed = bitmap_seed(geometry.salt);
            let what = "a bitmap of the checkpoint";
            let read = read_extent(log.storage().as_ref(), *part, seed, what);
            let groups = read.and_then(|bytes| {
                GroupBits::decode_all(&bytes, geometry).ok_or_else(|| {
                    Error::new(Kind::Corrupted, IMPOSSIBLE)
                        .at(log.storage().path())
                        .offset(part.offset)
                })
            });
            match groups {
                Ok(groups) => {
                    self.report.bytes += part.len;
                    for group in groups {
                        self.units.add(group);
                    }
                }
                Err(error) => {
                    self.has_bitmaps = false;
                    self.report.note_error(error);
                }
            }
        }
    }

    /// Whether units are used by nothing else; that one of them is free by the bitmaps is noted.
    fn meet(&mut self, units: Range<u64>, what: &dyn Fn() -> String) -> bool {
        let offset = units.start * UNIT;
        let (mut is_alone, mut is_free) = (true, false);
        for unit in units {
            match self.units.meet(unit) {
                Sighting::First => {}
                Sighting::Again => is_alone = false,
                Sighting::Free => is_free = true,
            }
        }
        if is_free && self.has_bitmaps {
            self.report.note(format!(
                "{} stands at offset {offset}, which counts as free: it may be written over",
                what()
            ));
        }
        is_alone
    }

    fn page(&mut self, page: u32, stated: &Stated<'_>) {
        let place = self.places.get(page as usize).copied();
        let place = place.unwrap_or(Place::NONE);
        let read = match self.core.tree.nodes.blank() {
            Ok(words) => self.read(page, place, &words).map(|()| words),
            Err(error) => Err(format!("page {page} is not read: {error}")),
        };
        let words = match read {
            Ok(words) => words,
            Err(what) => {
                self.report.note(format!("{what}: {}", costs(stated)));
                return;
            }
        };
        self.done += 1;
        if self.done.is_multiple_of(64) {
            (self.progress)(self.done, self.total);
        }
        let node = Node::new(&words[HEAD_WORDS..], self.core.tree.order);
        if !stated.holds_of(node) {
            self.report.note(format!(
                "page {page} at offset {} is not the one that its parent names: {}",
                place.offset(),
                costs(stated)
            ));
            return;
        }
        self.entries(node, page, stated);
    }

    fn read(&mut self, page: u32, place: Place, words: &Words) -> std::result::Result<(), String> {
        if place.is_none() {
            return Err(format!("page {page} is not in the page table"));
        }
        let offset = place.offset();
        let unit = place.unit();
        let units = u64::from(place.units());
        if !self.meet(unit..unit + units, &|| format!("page {page}")) {
            return Err(format!("page {page} shares its place at offset {offset}"));
        }
        let mut image = [0; PAGE_MAX];
        let image = &mut image[..(units * UNIT) as usize];
        let log = &self.core.log;
        log.storage()
            .read_at(offset, image)
            .map_err(|error| format!("page {page} cannot be read: {}", error.without_remedy()))?;
        self.report.bytes += units * UNIT;
        let identity = (log.geometry().salt, self.core.tree.nodes.epoch);
        let mut put = |at: usize, word: u64| {
            if let Some(to) = words.get(at) {
                to.store(word, Ordering::Relaxed);
            }
        };
        let images = &self.core.tree.nodes.images;
        let decoded = images.decode(image, identity, page, place, &mut put);
        decoded
            .map_err(|reason| format!("page {page} at offset {offset} is damaged ({reason:?})"))?;
        if Node::new(&words[HEAD_WORDS..], self.core.tree.order).is_sound() {
            return Ok(());
        }
        Err(format!(
            "page {page} at offset {offset} holds impossible values"
        ))
    }

    fn entries(&mut self, node: Node<'_>, page: u32, stated: &Stated<'_>) {
        let is_leaf = node.level() == 0;
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(node.count());
        let mut key = Key::default();
        for at in 0..node.count() {
            node.key(at, &mut key);
            keys.push(key.bytes().to_vec());
        }
        let first = usize::from(!is_leaf);
        let order = self.core.tree.order;
        let rises = keys[first.min(keys.len())..]
            .windows(2)
            .all(|pair| order.compare(&pair[0], &pair[1]).is_lt());
        let are_covered = keys.iter().skip(first).all(|key| node.covers(key));
        if !rises || !are_covered || (!is_leaf && keys.is_empty()) {
            self.report.note(format!(
                "page {page} has keys out of order: {}",
                costs(stated)
            ));
            return;
        }
        if is_leaf {
            self.report.records += keys.len() as u64;
            let place = self.places.get(page as usize);
            if let Some(records) = place.and_then(|place| place.records())
                && (records as usize != keys.len() || lists_in(node, order).next().is_some())
            {
                self.report.note(format!(
                    "page {page} has {} entries, and {records} records by the page table: {}",
                    keys.len(),
                    costs(stated)
                ));
            }
            for (at, key) in keys.iter().enumerate() {
                match node.value(at) {
                    Found::Outside(word) if RunPlace(word).is_list() => self.list(key, word),
                    Found::Outside(word) => self.run(key, RunPlace(word)),
                    Found::Inside(..) => {}
                }
            }
            return;
        }
        let (mut low, mut up) = (Key::default(), Key::default());
        for at in 0..node.count() {
            let stated = Stated {
                level: node.level().checked_sub(1),
                lower: node.lower_of(at, &mut low).map(|()| low.bytes()),
                upper: node.upper_of(at, &mut up).map(|()| up.bytes()),
            };
            self.page(node.child(at), &stated);
        }
    }

    /// A list of long keys, which counted as one record.
    fn list(&mut self, stem: &[u8], word: u64) {
        self.run(stem, RunPlace(word));
        let core = self.core;
        // What cannot be read was noted.
        let Ok(cluster) = cluster_of(core, stem, word) else {
            return;
        };
        self.report.records = (self.report.records + cluster.count() as u64).saturating_sub(1);
        for word in cluster.words() {
            self.run(stem, RunPlace(word));
        }
        let mut last: Option<Vec<u8>> = None;
        for at in 0..cluster.count() {
            let Ok(Some((rest, _))) = cluster.record(at, &|word| core.read_run(word)) else {
                return;
            };
            if last.is_some_and(|last| last >= rest) {
                let stem = quote(stem);
                let what = format!("the keys that begin with {stem} are out of order");
                return self.report.note(what);
            }
            last = Some(rest);
        }
        if cluster.count() == 0 {
            let stem = quote(stem);
            self.report
                .note(format!("no key begins with {stem}, which has a list"));
        }
    }

    fn run(&mut self, key: &[u8], place: RunPlace) {
        let units = place.unit()..place.unit() + place.units();
        let is_alone = self.meet(units, &|| format!("the value of {}", quote(key)));
        if !is_alone {
            self.report.note(format!(
                "the value of {} shares its place at offset {}",
                quote(key),
                place.unit() * UNIT
            ));
        }
        match self.core.read_run(place.0) {
            Ok(value) => self.report.bytes += value.len() as u64,
            Err(error) => self.report.note_error(error.key(key)),
        }
    }
}
