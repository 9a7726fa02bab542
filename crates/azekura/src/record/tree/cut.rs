//! Cuts: moments in the history of a store at which readers see all of it, while writers continue; and the images of pages that
//! such a moment needs.
//!
//! A change takes its position, by appending to the log, when all pages that it changes are locked; then it asks for the newest cut.
//! Who takes a cut states first that one is coming, and then looks where the log ends. Both are in one order, so either the
//! writer sees the cut, or the cut sees the writer's position before its own:
//!
//! ```text
//!   writer   position t = append --> newest cut c? (waits while one is coming) --> t >= c: keeps what c needs of the page --> changes it
//!   cut      "coming" --> c = the log's end --> newest = c --> waits for critical sections: all before c have changed their pages
//! ```
//! 1. A page whose last change is before a cut is seen as it is; else by the version that was kept.
//! 2. A version is kept once, by the first change after the cut, of a page that is not on storage as it was.
//! 3. A version is of a cut if the last change in it is before the cut and the one that it was kept from is not.
//!
//! It does not know where pages are, nor what a cut is for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::Words;
use crate::explore::{self, Mutex};
use crate::node::tree::FRAME_WORDS;

/// A cut is coming.
const COMING: u64 = u64::MAX;
/// Parts of the versions, each with a lock.
const SHARDS: usize = 64;

/// A page as it was before a change.
#[derive(Debug)]
pub(super) struct Version {
    /// The position of the last change in it.
    pub(super) stamp: u64,
    /// The position of the change that it was kept from.
    pub(super) until: u64,
    /// Its words.
    pub(super) words: Box<Words>,
}

impl Version {
    /// Whether a cut sees it.
    pub(super) fn is_of(&self, cut: u64) -> bool {
        self.stamp < cut && cut <= self.until
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Cuts {
    /// The cut of the last checkpoint, of which bit 0 is the counter of changes after it; 0: there is none.
    newest: AtomicU64,
    /// By page.
    versions: Vec<Mutex<HashMap<u32, Vec<Version>>>>,
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
            versions: (0..SHARDS).map(|_| Mutex::default()).collect(),
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

    /// Takes a cut where `end` states that the log ends, by one thread at a time; calls `publish` with it before any writer continues.
    pub(super) fn take<T>(
        &self,
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

    /// The counter of changes before the cut.
    pub(super) fn counter_before(&self) -> usize {
        1 - (self.newest.load(Ordering::SeqCst) & 1) as usize
    }

    /// The cut is over: nothing is kept for it any more.
    pub(super) fn end(&self) {
        let newest = self.newest.load(Ordering::SeqCst);
        self.newest.store(newest & 1, Ordering::SeqCst);
        for shard in &self.versions {
            shard.lock().clear();
        }
    }

    fn shard(&self, page: u32) -> &Mutex<HashMap<u32, Vec<Version>>> {
        &self.versions[page as usize % SHARDS]
    }

    /// Keeps a page's words before a change at `until`.
    #[cold]
    pub(super) fn keep(&self, page: u32, stamp: u64, until: u64, words: &Words) {
        let copy = Box::new([const { AtomicU64::new(0) }; FRAME_WORDS]);
        for (to, from) in copy.iter().zip(words) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let version = Version {
            stamp,
            until,
            words: copy,
        };
        let mut shard = self.shard(page).lock();
        shard.entry(page).or_default().push(version);
    }

    /// Takes the version of a page that a cut sees.
    pub(super) fn take_version(&self, page: u32, cut: u64) -> Option<Version> {
        let mut shard = self.shard(page).lock();
        let versions = shard.get_mut(&page)?;
        let at = versions.iter().position(|version| version.is_of(cut))?;
        Some(versions.swap_remove(at))
    }

    /// Puts a version back that was taken.
    pub(super) fn put_back(&self, page: u32, version: Version) {
        let mut shard = self.shard(page).lock();
        shard.entry(page).or_default().push(version);
    }

    /// The pages that have a version which a cut sees; all other versions are dropped.
    pub(super) fn pages_with_versions(&self, cut: u64) -> Vec<u32> {
        let mut pages = Vec::new();
        for shard in &self.versions {
            let mut shard = shard.lock();
            for versions in shard.values_mut() {
                versions.retain(|version| version.is_of(cut));
            }
            shard.retain(|_, versions| !versions.is_empty());
            pages.extend(shard.keys());
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_counted_on_its_side_of_the_cut() {
        let cuts = Cuts::default();
        let first = cuts.newest().counter(1);
        let mut before = first;
        for cut in [800, 1600, 2400] {
            let mut published = 0;
            cuts.take(|| (cut, ()), |at| published = at);
            assert_eq!(published, cut);
            let newest = cuts.newest();
            assert_eq!(newest.at(), cut);
            assert_eq!(newest.counter(cut - 8), before, "before the cut at {cut}");
            assert_eq!(newest.counter(cut), 1 - before, "from the cut at {cut} on");
            assert_eq!(cuts.counter_before(), before);
            cuts.end();
            assert_eq!(
                cuts.newest().counter(cut + 8),
                1 - before,
                "when it is over"
            );
            before = 1 - before;
        }
    }

    #[test]
    fn a_version_is_of_the_cuts_between_its_last_change_and_the_next() {
        let cuts = Cuts::default();
        let words = [const { AtomicU64::new(7) }; FRAME_WORDS];
        cuts.keep(3, 100, 200, &words);
        cuts.keep(3, 200, 300, &words);
        for (cut, found) in [
            (100, None),
            (101, Some(100)),
            (200, Some(100)),
            (201, Some(200)),
            (301, None),
        ] {
            let version = cuts.take_version(3, cut);
            assert_eq!(
                version.as_ref().map(|version| version.stamp),
                found,
                "cut {cut}"
            );
            if let Some(version) = version {
                cuts.put_back(3, version);
            }
        }
        assert_eq!(cuts.pages_with_versions(250), [3]);
        assert!(
            cuts.take_version(3, 150).is_none(),
            "it was of an older cut"
        );
        cuts.end();
        assert!(cuts.take_version(3, 250).is_none());
    }
}
