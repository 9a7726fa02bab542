//! Snapshots: the store as it was at a cut, for as long as they live, while writers continue.
//!
//! | | costs |
//! |---|---|
//! | taking one | two stores, and a wait for the updates that are in their last step |
//! | a page that changes after it, once | some 400 bytes, and the units of its old image; a copy of the page if it was not written yet |
//! | a value of more than 510 bytes that is replaced | its units |
//! | reading | as of the store; a page that has changed since, a read of it, or none if it was not written then |
//!
//! A page is found by its version, if the cut sees one, else where every reader finds it:
//! 1. A page in memory states when it was changed last: before the cut, it is as it was, if its latch's version is the same before that
//!    look and after the reading. Else a writer has kept a version before it changed the page.
//! 2. What is found counts if the snapshot was not ended meanwhile: that is looked at last.
//! 3. No latch is held or waited for without an end; a snapshot may be read while leaves are held.
//!
//! Snapshots are ended, the oldest first, when what only they need is more than they may hold, or an update finds no room: reading one
//! is `TooOld` from then on. It does not know what is kept (`cut`), nor what is free when it ends (`space`).

use std::ops::{self, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::cache::costs;
use super::count::count_by_leaves;
use super::cut::{Kept, Version};
use super::layout::{HEAD_WORDS, UNIT};
use super::read;
use super::view::View;
use super::walk::{RecordCursor, walk};
use super::{Core, TreeDb, is_damage};
use crate::engine::{Bookmark, Cursor, Damaged, Ordered, Promise, Reader, Stats, Visit};
use crate::error::{Error, Kind, Result};
use crate::explore;
use crate::node::tree::{Begin, Buffer, LeafCopy, Looked, NodeStore, ROOT, Seen, Stated, To};
use crate::node::{Key, Node};
use crate::order::{KeyBounds, Order, bounds_of};
use crate::range::Range;
use crate::record::gate;
use crate::record::key_bookmark;

/// How long a reader waits for a page that is being changed before it looks for a version again.
const PATIENCE: Duration = Duration::from_millis(1);

/// Bytes of versions in memory that are always allowed.
const MEMORY_MIN: u64 = 16 << 20;

/// A snapshot that lives.
#[derive(Debug, Default)]
pub(super) struct Live {
    cut: AtomicU64,
    is_ended: AtomicBool,
    /// Whether a transaction is committing that rests on it: then it is not ended.
    is_committing: AtomicBool,
}

/// All records of a tree file as they were at one moment, while writers continue. Ended when it is dropped.
///
/// It costs what changes meanwhile: for each changed page its old image, in the file, or in memory where it was not written yet.
/// A store ends the oldest snapshots when they hold more than [`snapshot_room`](super::OpenOptions::snapshot_room) and a quarter of
/// the file, more than half the cache (16 MiB at least) in memory, or room that an update needs: reading an ended one is `TooOld`.
///
/// Every method costs what it does in the store, and a read of each page that has changed since, was on storage, and is looked at. A cursor shows what it has copied of a leaf, also after the end.
pub struct Snapshot<'d> {
    pub(super) core: &'d Core,
    cut: u64,
    live: Arc<Live>,
}

impl TreeDb {
    /// All records as they are now, for as long as it lives. It waits for the last step of updates that are under way. `Invalid` inside
    /// the closure of an update.
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        gate::outside_updates()?;
        Ok(self.core.snapshot())
    }
}

impl Core {
    fn snapshot(&self) -> Snapshot<'_> {
        let pages = &self.tree.nodes;
        self.bound_versions();
        let live: Arc<Live> = Arc::default();
        let taking = pages.cuts.taking();
        let cut = {
            // Writers wait while a cut is taken: no lock is waited for meanwhile but the log's.
            let mut snapshots = self.snapshots.lock();
            let mut room = pages.space.room();
            let begin = |cut| {
                room.begin_snapshot(cut);
                live.cut.store(cut, Ordering::Relaxed);
                snapshots.push_back(Arc::clone(&live));
            };
            let end = || (pages.end_as_cut().0, ());
            pages.cuts.take(&taking, end, begin).0
        };
        self.count_from_cut(&taking, cut);
        drop(taking);
        Snapshot {
            core: self,
            cut,
            live,
        }
    }

    /// Ends the oldest snapshots, while they have more in memory than they may.
    pub(super) fn bound_versions(&self) {
        let pages = &self.tree.nodes;
        let most = (pages.bytes_max() / 2).max(MEMORY_MIN);
        let mut in_memory = pages.cuts.in_memory();
        while in_memory * pages.shape.bytes() > most && self.end_oldest_snapshot() {
            let before = std::mem::replace(&mut in_memory, pages.cuts.in_memory());
            if in_memory >= before {
                // They are the checkpoint's.
                break;
            }
        }
    }

    /// Ends the snapshot that was taken first; whether there was one that may be ended.
    pub(super) fn end_oldest_snapshot(&self) -> bool {
        let live = {
            let mut snapshots = self.snapshots.lock();
            let may_end = |live: &Arc<Live>| !live.is_committing.load(Ordering::Relaxed);
            let Some(at) = snapshots.iter().position(may_end) else {
                return false;
            };
            let live = snapshots.remove(at);
            if let Some(live) = &live {
                live.is_ended.store(true, Ordering::SeqCst);
            }
            live
        };
        let Some(live) = live else { return false };
        self.end_snapshot(live.cut.load(Ordering::Relaxed));
        true
    }

    /// Ends the oldest snapshots, while they hold more than they may.
    pub(super) fn bound_snapshots(&self) {
        let room = || self.tree.nodes.space.room();
        let size = self.log.storage().size().unwrap_or(0);
        let most = self.options.snapshot_room.max(size / 4);
        while room().sizes().held * UNIT > most && self.end_oldest_snapshot() {}
        self.bound_versions();
        // What is given back is free when no reader looks at it any more: not more than one at a time.
        if !room().has_reserve() && self.end_snapshot_for_room() {
            self.keep_for_checkpoint();
        }
    }

    /// Ends the oldest snapshot, if that may give room; whether it did.
    pub(super) fn end_snapshot_for_room(&self) -> bool {
        self.tree.nodes.space.room().sizes().held > 0 && self.end_oldest_snapshot()
    }

    fn end_snapshot(&self, cut: u64) {
        let pages = &self.tree.nodes;
        let taking = pages.cuts.taking();
        pages.space.room().end_snapshot(cut);
        pages.forget_versions(&taking, cut);
    }

    fn too_old(&self) -> Error {
        Error::new(
            Kind::TooOld,
            "the snapshot was ended: what it held had become too much",
        )
        .at(self.log.storage().path())
        .remedy("take a new one, and read it faster, or open the store with more `snapshot_room`")
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        self.core.tree.nodes.counts.end_cut(self.cut);
        let mut snapshots = self.core.snapshots.lock();
        let is_own = |live: &Arc<Live>| Arc::ptr_eq(live, &self.live);
        let Some(at) = snapshots.iter().position(is_own) else {
            return;
        };
        snapshots.remove(at);
        drop(snapshots);
        self.core.end_snapshot(self.cut);
    }
}

/// A step of a way down.
enum Step<R> {
    Child(u32, u8),
    Leaf(R),
}

impl Snapshot<'_> {
    /// The value of `key`, copied.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.read_with(key, |value| value.map(<[u8]>::to_vec))
    }

    /// Lends the value of `key`, or its absence, to `visit`.
    pub fn read_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        read::lend(self, key.as_ref(), visit)
    }

    /// Records whose keys are in a range, each a copy, in order, from either end. `Invalid` where the range ends before it begins.
    pub fn range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<Range<'_>> {
        let cursors = [self.cursor(), self.cursor()];
        Range::new(cursors, self.order(), keys)
            .map_err(|error| error.at(self.core.log.storage().path()))
    }

    /// How many records there are whose keys are in a range. `Invalid` where that ends before it begins. Costs a look at each leaf of
    /// the range, and a read of those that are not in memory.
    pub fn count_range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<u64> {
        count_by_leaves(self, bounds_of(&keys))
    }

    /// The order of its keys.
    pub fn order(&self) -> Order {
        self.core.tree.order
    }

    /// A transaction commits that rests on it: from now on it is not ended by others. `TooOld` if it was.
    pub(super) fn commits(&self) -> Result<()> {
        let _snapshots = self.core.snapshots.lock();
        self.live.is_committing.store(true, Ordering::Relaxed);
        self.still()
    }

    /// `TooOld` if it was ended. Asked after what was read.
    fn still(&self) -> Result<()> {
        if self.live.is_ended.load(Ordering::SeqCst) {
            return Err(self.core.too_old());
        }
        Ok(())
    }

    /// As `descend_to`, to the leaf.
    fn descend<R>(
        &self,
        to: To<'_>,
        fence: Option<&mut Option<Vec<u8>>>,
        read: &mut dyn FnMut(Node<'_>) -> R,
    ) -> Result<R> {
        self.descend_to(0, to, fence, read)
    }

    /// Calls `read` with the node of a level where a way leads, or the root below it, until it has seen a state that counts. `fence` is where
    /// the part ends that was looked at last, if there is a next one.
    fn descend_to<R>(
        &self,
        least: u8,
        to: To<'_>,
        mut fence: Option<&mut Option<Vec<u8>>>,
        read: &mut dyn FnMut(Node<'_>) -> R,
    ) -> Result<R> {
        let mut fences = [(); 2].map(|()| (Key::default(), Key::default()));
        let [now, next] = &mut fences;
        let (mut now, mut next) = (now, next);
        let (mut has_lower, mut has_upper) = (false, false);
        let (mut page, mut level) = (ROOT, None);
        loop {
            if let Some(fence) = fence.as_deref_mut() {
                *fence = has_upper.then(|| now.1.bytes().to_vec());
            }
            let stated = Stated {
                level,
                lower: has_lower.then(|| now.0.bytes()),
                upper: has_upper.then(|| now.1.bytes()),
            };
            let mut has_next = (false, false);
            let step = self.with_page(page, &stated, &mut |node| {
                if node.level() <= least {
                    return Step::Leaf(read(node));
                }
                let entry = to.entry(node);
                has_next = (
                    node.lower_of(entry, &mut next.0).is_some(),
                    node.upper_of(entry, &mut next.1).is_some(),
                );
                Step::Child(node.child(entry), node.level())
            })?;
            match step {
                Step::Leaf(read) => return Ok(read),
                Step::Child(child, above) => {
                    (page, level) = (child, above.checked_sub(1));
                    (has_lower, has_upper) = has_next;
                    std::mem::swap(&mut now, &mut next);
                }
            }
        }
    }

    /// Calls `read` with a page as it was at the cut, of which its parent stated this, until what it has seen counts.
    fn with_page<R>(
        &self,
        page: u32,
        stated: &Stated<'_>,
        read: &mut dyn FnMut(Node<'_>) -> R,
    ) -> Result<R> {
        let pages = &self.core.tree.nodes;
        loop {
            self.still()?;
            explore::yield_point();
            let frame = pages.frame(page);
            let latch = frame.and_then(|frame| frame.latch.begin_within(PATIENCE));
            if let Some((frame, latch)) = frame.zip(latch) {
                if !pages.holds(frame, page) {
                    continue;
                }
                if frame.words[0].load(Ordering::Relaxed) < self.cut {
                    let node = pages.node(frame);
                    let level = node.level();
                    let found = read(node);
                    if !frame.latch.is_still(latch) {
                        continue;
                    }
                    self.still()?;
                    if stated.level.is_some_and(|stated| stated != level) {
                        return Err(pages.misnamed(page, None));
                    }
                    return Ok(found);
                }
            }
            if let Some(version) = pages.cuts.version(page, self.cut) {
                return self.with_version(page, stated, &version, read);
            }
            match (frame, latch) {
                (None, _) => match pages.load(page, stated) {
                    Ok(()) => {}
                    // It was changed meanwhile, and is no more what is stated.
                    Err(_) if pages.cuts.version(page, self.cut).is_some() => {}
                    Err(error) => {
                        self.still()?;
                        return Err(error);
                    }
                },
                // It is being changed.
                (Some(_), None) => {}
                (Some(frame), Some(latch)) if !frame.latch.is_still(latch) => {}
                (Some(_), Some(_)) => {
                    self.still()?;
                    return Err(self.lost(page));
                }
            }
        }
    }

    fn with_version<R>(
        &self,
        page: u32,
        stated: &Stated<'_>,
        version: &Version,
        read: &mut dyn FnMut(Node<'_>) -> R,
    ) -> Result<R> {
        let node = |words| Node::new(words, self.order());
        match &version.image {
            Kept::Words(words) => Ok(read(node(&words[HEAD_WORDS..]))),
            Kept::Image(place) => {
                let pages = &self.core.tree.nodes;
                let words = pages.blank()?;
                let loaded = pages.read_page(page, *place, stated, &words);
                // An ended snapshot holds no image any more.
                self.still()?;
                loaded.map_err(|error| error.detail(costs(stated)))?;
                Ok(read(node(&words[HEAD_WORDS..])))
            }
        }
    }

    /// A page has changed since the cut, and what it was is not kept: a defect.
    #[cold]
    fn lost(&self, page: u32) -> Error {
        let what = "a page of a snapshot was not kept";
        self.core.tree.nodes.damaged(page, None, what)
    }
}

impl View for &Snapshot<'_> {
    fn core(&self) -> &Core {
        self.core
    }

    fn see(&self, key: &[u8], buffer: &mut Buffer) -> Result<Seen> {
        self.descend(To::Key(key), None, &mut |node| {
            Seen::in_leaf(node, key, buffer)
        })
    }

    fn take_from(&self, from: &Begin, most: usize, copy: &mut LeafCopy) -> Result<Looked> {
        self.descend(from.to(), None, &mut |node| {
            copy.take_from(node, from, most)
        })?
    }

    fn take_before(&self, key: Option<&[u8]>, most: usize, copy: &mut LeafCopy) -> Result<Looked> {
        self.descend(To::Before(key), None, &mut |node| {
            copy.take_before(node, key, most)
        })?
    }

    fn read_ahead(&self, to: To<'_>, is_rising: bool, leaves: ops::Range<usize>) -> usize {
        let pages = &self.core.tree.nodes;
        let place_of = |page| match pages.cuts.version(page, self.cut)?.image {
            Kept::Image(place) => Some(place),
            Kept::Words(_) => None,
        };
        let place_of = |page| place_of(page).or_else(|| pages.place_of_cold(page));
        let asked = self.descend_to(1, to, None, &mut |node| match node.level() {
            0 => 0,
            _ => pages.read_ahead(node, (to, is_rising), leaves.clone(), place_of),
        });
        // What cannot be read is reported by who needs it.
        asked.unwrap_or(0)
    }

    fn is_as_copied(&self, _: &LeafCopy) -> bool {
        true
    }

    fn end_of_unreadable(&self, from: &Begin) -> Result<Option<Vec<u8>>> {
        let mut fence = None;
        match self.descend(from.to(), Some(&mut fence), &mut |_| ()) {
            Err(error) if is_damage(&error) => Ok(fence),
            // It can be read again: the part that failed is passed, as was reported.
            looked => looked.map(|()| fence),
        }
    }

    fn value_outside(&self, word: u64) -> Result<Vec<u8>> {
        let value = self.core.read_run(word);
        // An ended snapshot holds no run any more.
        self.still()?;
        value
    }

    fn look_at<R>(&self, to: To<'_>, read: &dyn Fn(Node<'_>) -> R) -> Result<R> {
        self.descend(to, None, &mut |node| read(node))
    }
}

impl Reader for Snapshot<'_> {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.read_with(key, visit)
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        walk(self, from, visit, damaged)
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        key_bookmark::at(key)
    }

    /// Records at its moment, exactly, while it is not ended. It reads the leaves first for which puts wait in memory; where one cannot be read,
    /// those that wait for it are not counted.
    fn count(&self) -> u64 {
        self.core.count_all();
        self.core.tree.nodes.counts.at_cut(self.cut)
    }

    fn stats(&self) -> Stats {
        Stats {
            count: self.core.tree.nodes.counts.at_cut(self.cut),
            ..Stats::default()
        }
    }

    /// As of its store.
    fn promise(&self) -> Promise {
        self.core.promise()
    }

    fn as_ordered(&self) -> Option<&dyn Ordered> {
        Some(self)
    }
}

impl Ordered for Snapshot<'_> {
    fn order_name(&self) -> &str {
        self.core.tree.order.name()
    }

    fn cursor(&self) -> Box<dyn Cursor + '_> {
        Box::new(RecordCursor::new(self))
    }

    fn count_between(&self, keys: KeyBounds<'_>) -> Result<u64> {
        count_by_leaves(self, keys)
    }
}

impl std::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("path", &self.core.log.storage().path())
            .field("count", &self.core.tree.nodes.counts.at_cut(self.cut))
            .finish_non_exhaustive()
    }
}
