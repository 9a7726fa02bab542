//! The merge: the sorted file and its pending edits become another sorted file, which replaces it.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 alone for a moment: note the log's end Q; the active layer is frozen, and a new one takes its place | the old file, all edits pending |
//! | 2 sync the log | the same |
//! | 3 write file and frozen layer to a file without a name, whose superblock states this log and Q; sync it | the same; what was written is gone |
//! | 4 the new file takes the name; sync the folder | the same, or the new file: replay begins at Q |
//! | 5 publish the view of the new file, without the frozen layer | the new file |
//! | 6 the superblock of the pending file names the new file, and Q as the begin of replay, durably | the same |
//! | 7 give the segments before Q back | the same |
//!
//! 1. The new file holds the edits before Q, and no others. Whichever superblocks are found, replay begins at the later of the places
//!    that they state: so no edit counts twice, and none is missed.
//! 2. Step 2 comes before step 4: where the file states Q, the log reaches to Q.
//! 3. What fails in step 3, or a device that is full in step 4, leaves the frozen layer, which the next merge writes first. After
//!    another error of step 4 it is unknown which file has the name: the store is poisoned, and the next open sees.
//! 4. Where all edits were reverted, steps 3 and 4 are left out: the same file is named in step 6.
//! 5. A removal is an entry of a layer, and no record: nothing of it is written.
//!
//! Readers of the old file keep it as long as they hold it. It does not know how edits come about.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Core;
use super::layers::{Layer, View};
use super::layout::PendingSuper;
use crate::engine::{Persistent as _, Reader as _};
use crate::error::{Error, Kind, Result};
use crate::kernel::Committed;
use crate::log::End;
use crate::record::gate;
use crate::record::skip::layout::Contained;
use crate::record::skip::reader::SkipReader;
use crate::record::skip::writer::Writer;

/// Records between two calls of `progress`.
const PROGRESS: u64 = 1 << 14;

/// What the merge's lock guards.
pub(super) struct Merging {
    pub(super) committed: Committed<PendingSuper>,
    /// Where the frozen layer ends in the log; `None`: there is none.
    cut: Option<End>,
}

impl Merging {
    pub(super) fn new(committed: Committed<PendingSuper>) -> Self {
        Self {
            committed,
            cut: None,
        }
    }

    /// The frozen layer is gone.
    pub(super) fn forget_cut(&mut self) {
        self.cut = None;
    }
}

impl Core {
    pub(super) fn merge(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        gate::outside_updates()?;
        self.merge_held(&mut self.merging.lock(), progress)
    }

    /// Merges for an edit that finds too many pending ones. While another thread merges, or after a merge that failed, edits
    /// continue up to twice as many.
    #[cold]
    pub(super) fn merge_for_room(&self) -> Result<()> {
        let (memory, pending) = (self.options.memory, self.pending.load(Ordering::Relaxed));
        let may_continue = pending < memory.saturating_mul(2);
        let is_early = pending < self.retry_at.load(Ordering::Relaxed);
        let held = if may_continue {
            let held = self.merging.try_lock();
            held.filter(|_| !is_early)
        } else {
            Some(self.merging.lock())
        };
        let Some(mut merging) = held else {
            return Ok(());
        };
        if self.pending.load(Ordering::Relaxed) < memory {
            return Ok(());
        }
        match self.merge_held(&mut merging, &mut |_, _| {}) {
            Err(error) if may_continue && error.kind() != Kind::Poisoned => {
                tracing::warn!(%error, "a merge failed; edits stay pending");
                let retry_at = pending + (memory / 8).max(1);
                self.retry_at.store(retry_at, Ordering::Relaxed);
                Ok(())
            }
            merged => {
                self.retry_at.store(0, Ordering::Relaxed);
                merged
            }
        }
    }

    fn merge_held(&self, merging: &mut Merging, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.log.healthy()?;
        if let Some(cut) = merging.cut {
            self.merge_cut(merging, cut, progress)?;
        }
        if self.pending.load(Ordering::Relaxed) == 0 {
            return self.log.sync();
        }
        let cut = self.cut(Layer::new(self.order(), false)?);
        merging.cut = Some(cut);
        self.merge_cut(merging, cut, progress)
    }

    /// Step 1.
    fn cut(&self, next: Arc<Layer>) -> End {
        let _alone = self.gate.alone();
        self.replace_view(|view| View {
            base: Arc::clone(&view.base),
            frozen: Some(Arc::clone(&view.active)),
            active: next,
        });
        self.pending.store(0, Ordering::Relaxed);
        self.log.end()
    }

    /// Steps 2 to 7.
    fn merge_cut(
        &self,
        merging: &mut Merging,
        cut: End,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        self.log.sync()?;
        let View { base, frozen, .. } = self.current();
        let base = if frozen.is_none_or(|frozen| frozen.is_empty()) {
            // All edits were reverted.
            base
        } else {
            self.replace_base(cut, progress)?
        };
        self.replace_view(|view| View {
            base: Arc::clone(&base),
            frozen: None,
            active: Arc::clone(&view.active),
        });
        merging.cut = None;
        self.trim(merging, cut, &base)?;
        // A replacement lets go of what the one before it replaced: the frozen layer's memory.
        self.replace_view(View::clone);
        Ok(())
    }

    /// Steps 3 and 4: the file that has the name then.
    fn replace_base(
        &self,
        cut: End,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<SkipReader>> {
        let base = Arc::new(self.write_merged(cut, progress)?);
        // What another one has put there is not replaced.
        self.verify_base()?;
        let named = base.blocks.storage.take_name();
        let is_full = |error: &Error| error.kind() == Kind::Full;
        // A full device refuses a name before anything is changed.
        if named.as_ref().is_err_and(is_full) {
            return named.map(|()| base);
        }
        named
            .and_then(|()| self.directory.sync())
            .inspect_err(|_| self.log.poison())?;
        Ok(base)
    }

    /// `Io` if the path does not lead to the sorted file any more.
    pub(super) fn verify_base(&self) -> Result<()> {
        let View { base, .. } = self.current();
        base.verify_path()
    }

    /// Step 3: the file, whole and without a name.
    fn write_merged(&self, cut: End, progress: &mut dyn FnMut(u64, u64)) -> Result<SkipReader> {
        let View { base, frozen, .. } = self.current();
        let below = View {
            base,
            active: match frozen {
                Some(frozen) => frozen,
                None => Layer::new(self.order(), false)?,
            },
            frozen: None,
        };
        let most = below.base.count() + below.active.entries.count();
        let storage = self.directory.create_replacing(&self.name)?;
        let mut writer = Writer::new(&storage, self.order())?;
        let mut added = Ok(());
        let mut add = |key: &[u8], value: &[u8]| {
            added = writer.add(key, value);
            if writer.count().is_multiple_of(PROGRESS) {
                progress(writer.count(), most);
            }
            match added {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        below.walk(&self.reducer, None, &mut add, &mut Err)?;
        added?;
        let contained = Contained {
            pending: self.identity,
            until: cut.position(),
        };
        writer.finish_with(Some(contained))?;
        progress(most, most);
        SkipReader::open_on(storage)
    }

    /// Steps 6 and 7.
    fn trim(&self, merging: &mut Merging, cut: End, base: &SkipReader) -> Result<()> {
        let committed = &mut merging.committed;
        let mut payload = committed.superblock.payload.clone();
        payload.start = cut;
        payload.base = base.blocks.top.identity;
        payload.durable = self.log.durable();
        payload.next_sequence = self.log.next_sequence();
        committed.superblock.replace(&self.log, payload)?;
        self.log.release_before(cut);
        Ok(())
    }
}
