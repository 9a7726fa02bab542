//! Cuts: moments in the history of a store at which readers see all of it, while writers continue; and the images of pages that
//! such a moment needs. A checkpoint is of a cut, and so is each snapshot.
//!
//! A change takes its position, by appending to the log, when all pages that it changes are locked; then it asks for the newest cut.
//! Who takes a cut states first that one is coming, and then looks where the log ends. Both are in one order, so either the
//! writer sees the cut, or the cut sees the writer's position before its own:
//!
//! ```text
//!   writer   position t = append --> newest cut c? (waits while one is coming) --> page last changed before c: keeps it --> changes it
//!   cut      "coming" --> c = the log's end --> newest = c --> waits for critical sections: all before c have changed their pages
//! ```
//! 1. A page at a cut is the first version that was kept of it from a change at or after the cut; there is none: the page as it is.
//! 2. A version is kept before a change at `until` of a page last changed at `stamp`, if a cut that lives is after `stamp` and not
//!    after `until`: where the page's image is, if it is on storage as it is, else its words. So a page has a version once for each
//!    cut that needs it, and cuts without a change of the page between them share one.
//! 3. A version of words that is of the checkpoint's cut is what the checkpoint has still to write. When it is written, a snapshot that
//!    needs it finds the image.
//! 4. A version that no cut needs is dropped when a cut ends.
//!
//! It does not know where pages are, which cuts live (`space`), nor what a cut is for. Cuts are taken and ended one at a time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::Place;
use super::layout::page_image::Words;
use crate::explore::{self, Mutex, MutexGuard};

/// A cut is coming.
const COMING: u64 = u64::MAX;
/// Parts of the versions, each with a lock.
const SHARDS: usize = 64;

/// A page as it was before a change.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// The position of the last change in it.
    pub(super) stamp: u64,
    /// The position of the change that it was kept from.
    pub(super) until: u64,
    /// Where it is.
    pub(super) image: Kept,
}

/// Where a version is.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    /// In memory.
    Words(Arc<Words>),
    /// On storage.
    Image(Place),
}

impl Kept {
    /// A copy of words.
    pub(super) fn copy(words: &Words) -> Self {
        let word = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
        Self::Words(words.iter().map(word).collect())
    }

    fn is_words(&self) -> bool {
        matches!(self, Self::Words(_))
    }
}

impl Version {
    /// Whether a cut sees it, if it sees none that was kept before.
    pub(super) fn is_of(&self, cut: u64) -> bool {
        self.stamp < cut && cut <= self.until
    }

    /// Its words, if it is one that the checkpoint of a cut has to write.
    pub(super) fn words_of(&self, cut: u64) -> Option<&Arc<Words>> {
        match &self.image {
            Kept::Words(words) if self.is_of(cut) => Some(words),
            _ => None,
        }
    }
}

/// Held by who takes a cut or ends one.
#[derive(Debug, Default)]
pub(super) struct Taking(());

/// Versions of some pages.
#[derive(Debug, Default)]
struct Shard {
    /// By page, in the order in which they were kept.
    versions: HashMap<u32, Vec<Version>>,
    /// Of each the change that it was kept from, and the page: a cut that ends looks at few.
    kept: BTreeSet<(u64, u32)>,
}

impl Shard {
    /// Drops the versions of a page that were kept from a change and are not needed; how many of them were in memory.
    fn drop_unneeded(
        &mut self,
        (until, page): (u64, u32),
        is_needed: impl Fn(&Version) -> bool,
    ) -> u64 {
        let Some(versions) = self.versions.get_mut(&page) else {
            return 0;
        };
        let is_dropped = |version: &mut Version| version.until == until && !is_needed(version);
        let dropped = versions.extract_if(.., is_dropped);
        let in_memory = dropped.filter(|version| version.image.is_words()).count() as u64;
        if versions.iter().all(|version| version.until != until) {
            self.kept.remove(&(until, page));
        }
        if versions.is_empty() {
            self.versions.remove(&page);
        }
        in_memory
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Cuts {
    /// The greatest cut that lives, of which bit 0 is the counter of changes after the last that was taken; 0: there is none.
    newest: AtomicU64,
    taking: Mutex<Taking>,
    shards: Vec<Mutex<Shard>>,
    /// Versions in memory. Relaxed: a count.
    in_memory: AtomicU64,
}

/// The newest cut, as a change saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest(u64);

impl Newest {
    /// Of a store that has no cut.
    pub(super) const NONE: Self = Self(0);

    /// The cut.
    pub(super) fn at(self) -> u64 {
        self.0 & !1
    }

    /// Which of two counters counts a change at this position.
    pub(super) fn counter(self, position: u64) -> usize {
        let after = (self.0 & 1) as usize;
        if position >= self.at() {
            after
        } else {
            1 - after
        }
    }
}

impl Default for Cuts {
    fn default() -> Self {
        Self {
            newest: AtomicU64::new(0),
            taking: Mutex::default(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            in_memory: AtomicU64::new(0),
        }
    }
}

impl Cuts {
    /// The newest cut; waits while one is coming. Asked after the position was taken.
    #[inline(always)]
    pub(super) fn newest(&self) -> Newest {
        explore::yield_point();
        let newest = self.newest.load(Ordering::SeqCst);
        if newest == COMING {
            return self.newest_later();
        }
        Newest(newest)
    }

    #[cold]
    fn newest_later(&self) -> Newest {
        loop {
            let newest = self.newest.load(Ordering::SeqCst);
            if newest != COMING {
                return Newest(newest);
            }
            if !explore::wait() {
                std::thread::yield_now();
            }
        }
    }

    /// Waits until no cut is being taken or ended.
    pub(super) fn taking(&self) -> MutexGuard<'_, Taking> {
        self.taking.lock()
    }

    /// Takes a cut where `end` states that the log ends; calls `publish` with it before any writer continues.
    pub(super) fn take<T>(
        &self,
        _: &Taking,
        end: impl FnOnce() -> (u64, T),
        publish: impl FnOnce(u64),
    ) -> (u64, T) {
        let before = self.newest.swap(COMING, Ordering::SeqCst);
        explore::yield_point();
        let (cut, what) = end();
        debug_assert!(cut & 1 == 0);
        publish(cut);
        self.newest.store(cut | (!before & 1), Ordering::SeqCst);
        (cut, what)
    }

    /// The counter of changes before the cut that was taken last.
    pub(super) fn counter_before(&self) -> usize {
        1 - (self.newest.load(Ordering::SeqCst) & 1) as usize
    }

    /// A cut is over, of which `next` is the next one that a snapshot has: `greatest` is the greatest of those that live, 0 if none does,
    /// and `is_needed` states which versions they need. Those kept from changes from `next` on are all of `next`, or not of the cut.
    pub(super) fn end(
        &self,
        _: &Taking,
        (cut, next, greatest): (u64, u64, u64),
        is_needed: impl Fn(&Version) -> bool,
    ) {
        let newest = self.newest.load(Ordering::SeqCst);
        self.newest.store(greatest | newest & 1, Ordering::SeqCst);
        for shard in &self.shards {
            let mut shard = shard.lock();
            let kept = shard.kept.range((cut, 0)..(next.max(cut), 0));
            let kept: Vec<(u64, u32)> = kept.copied().collect();
            for version in kept {
                self.forget(shard.drop_unneeded(version, &is_needed));
            }
        }
    }

    /// So many versions are not in memory any more.
    fn forget(&self, count: u64) {
        self.in_memory.fetch_sub(count, Ordering::Relaxed);
    }

    fn shard(&self, page: u32) -> MutexGuard<'_, Shard> {
        self.shards[page as usize % SHARDS].lock()
    }

    /// Keeps a page that was last changed at `stamp`, before a change at `until`, if a cut needs that.
    #[cold]
    pub(super) fn keep(
        &self,
        page: u32,
        (stamp, until): (u64, u64),
        is_needed: impl FnOnce() -> bool,
        image: impl FnOnce() -> Kept,
    ) {
        let mut shard = self.shard(page);
        if !is_needed() {
            return;
        }
        let image = image();
        if image.is_words() {
            self.in_memory.fetch_add(1, Ordering::Relaxed);
        }
        let version = Version {
            stamp,
            until,
            image,
        };
        shard.versions.entry(page).or_default().push(version);
        shard.kept.insert((until, page));
    }

    /// Whether a page was kept from a change.
    pub(super) fn is_kept(&self, page: u32, until: u64) -> bool {
        self.shard(page).kept.contains(&(until, page))
    }

    /// The version of a page that a cut sees.
    pub(super) fn version(&self, page: u32, cut: u64) -> Option<Version> {
        explore::yield_point();
        let shard = self.shard(page);
        let mut versions = shard.versions.get(&page)?.iter();
        versions.find(|version| version.is_of(cut)).cloned()
    }

    /// The version of a page that was kept from a change is also on storage.
    pub(super) fn note_written(
        &self,
        page: u32,
        until: u64,
        place: Place,
        is_needed: impl Fn(&Version) -> bool,
    ) {
        let mut shard = self.shard(page);
        let Some(versions) = shard.versions.get_mut(&page) else {
            return;
        };
        for version in versions {
            if version.until == until && version.image.is_words() {
                version.image = Kept::Image(place);
                self.forget(1);
            }
        }
        self.forget(shard.drop_unneeded((until, page), is_needed));
    }

    /// The pages of which the checkpoint of a cut has to write a version, unless it is written as the page is.
    pub(super) fn pages_to_write(&self, cut: u64) -> Vec<u32> {
        let mut pages = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let is_to_write =
                |versions: &Vec<Version>| versions.iter().any(|of| of.words_of(cut).is_some());
            let written = shard
                .versions
                .iter()
                .filter(|(_, versions)| is_to_write(versions));
            pages.extend(written.map(|(page, _)| *page));
        }
        pages
    }

    /// Versions in memory.
    pub(super) fn in_memory(&self) -> u64 {
        self.in_memory.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tree::FRAME_WORDS;

    #[test]
    fn a_change_is_counted_on_its_side_of_the_cut() {
        let cuts = Cuts::default();
        let first = cuts.newest().counter(1);
        let mut before = first;
        let taking = cuts.taking();
        for cut in [800, 1600, 2400] {
            let mut published = 0;
            cuts.take(&taking, || (cut, ()), |at| published = at);
            assert_eq!(published, cut);
            let newest = cuts.newest();
            assert_eq!(newest.at(), cut);
            assert_eq!(newest.counter(cut - 8), before, "before the cut at {cut}");
            assert_eq!(newest.counter(cut), 1 - before, "from the cut at {cut} on");
            assert_eq!(cuts.counter_before(), before);
            cuts.end(&taking, (cut, u64::MAX, 0), |_| false);
            assert_eq!(
                cuts.newest().counter(cut + 8),
                1 - before,
                "when it is over"
            );
            before = 1 - before;
        }
        // An older one still lives.
        cuts.end(&taking, (2400, u64::MAX, 800), |_| false);
        assert_eq!(cuts.newest().at(), 800);
        assert_eq!(cuts.newest().counter(2408), before);
    }

    #[test]
    fn a_version_is_of_the_cuts_between_its_last_change_and_the_next() {
        let cuts = Cuts::default();
        let words = [const { AtomicU64::new(7) }; FRAME_WORDS];
        cuts.keep(3, (100, 200), || true, || Kept::copy(&words));
        cuts.keep(3, (200, 300), || true, || Kept::copy(&words));
        // Of a page whose last change is not known, the version that was kept first counts.
        cuts.keep(3, (0, 400), || true, || Kept::Image(Place(9)));
        cuts.keep(3, (400, 500), || false, || unreachable!("no cut needs it"));
        assert_eq!(cuts.in_memory(), 2);
        for (cut, found) in [
            (100, Some(0)),
            (101, Some(100)),
            (200, Some(100)),
            (201, Some(200)),
            (301, Some(0)),
            (401, None),
        ] {
            let version = cuts.version(3, cut);
            let stamp = version.as_ref().map(|version| version.stamp);
            assert_eq!(stamp, found, "cut {cut}");
        }
        assert_eq!(cuts.pages_to_write(250), [3]);
        assert!(cuts.pages_to_write(350).is_empty(), "it is on storage");
        cuts.note_written(3, 300, Place(8), |version| version.is_of(250));
        assert!(cuts.pages_to_write(250).is_empty(), "it is written");
        let version = cuts.version(3, 250).unwrap();
        assert!(matches!(version.image, Kept::Image(Place(8))));
        cuts.note_written(3, 200, Place(7), |_| false);
        assert!(cuts.version(3, 150).is_some_and(|of| of.until == 400));
        assert_eq!(cuts.in_memory(), 0);
        let taking = cuts.taking();
        cuts.end(&taking, (100, 250, 250), |version| version.is_of(250));
        assert!(cuts.version(3, 250).is_some());
        cuts.end(&taking, (250, 300, 0), |_| false);
        assert!(
            cuts.version(3, 250).is_some_and(|of| of.until == 300),
            "not of it"
        );
        cuts.end(&taking, (250, u64::MAX, 0), |_| false);
        assert!(cuts.version(3, 250).is_none());
    }
}
