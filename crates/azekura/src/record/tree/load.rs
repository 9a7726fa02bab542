//! Ascending records into an empty store, without a journal.
//!
//! | step of a load | a crash here leaves |
//! |---|---|
//! | 1 a checkpoint of the empty store; from here to the end alone: no update, cut or checkpoint is under way | the empty store |
//! | 2 append a note that states nothing: its position is that of all changes of the load | the empty store |
//! | 3 put each record at the end of the tree by the ordinary path, for which nothing is appended; write pages when many are changed | the empty store: what was written is named by nothing |
//! | 4 a checkpoint, whose cut is after the load | the empty store or all records |
//!
//! Ascending records leave full leaves. Snapshots taken before see the empty store, since the position is after their cuts; other
//! readers see the records as they come. On an error, and when the records' iterator panics, everything is removed again by a record of the
//! journal, as `clear` does it; where not even that can be appended, the log is poisoned, and the next open finds the empty store.
//!
//! Nothing is appended, so each step of some pages is admitted as a batch of as many would be, with what the
//! checkpoint needs for them. It does not know where the records come from.

use std::sync::atomic::Ordering;

use super::checkpoint::Checkpoint;
use super::cut::Taking;
use super::{Core, TreeDb};
use crate::error::{Error, Kind, Result};
use crate::explore::MutexGuard;
use crate::log::AllocationClass;
use crate::node::tree::NodeStore;
use crate::record::ascending::Ascending;
use crate::record::gate::{self, Alone};

/// Pages that records fill before more room is admitted.
const STEP: u64 = 32;
/// Bytes that a record takes in a leaf besides its key and value, at most.
const RECORD_LEN: u64 = 16;

/// A load under way. Dropped before it is finished, it leaves nothing.
struct Load<'c> {
    core: &'c Core,
    ascending: Ascending,
    /// Bytes that may come in before more is admitted.
    admitted: u64,
    is_done: bool,
    // They end in this order.
    taking: Option<MutexGuard<'c, Taking>>,
    _alone: Alone<'c>,
    checkpoint: MutexGuard<'c, Checkpoint>,
}

impl TreeDb {
    /// Puts records, in the ascending order of their keys, into an empty store: all of them or none. How many they were.
    ///
    /// Leaves are filled completely, nothing is written to the journal, and each page once. All is durable, against loss of power too,
    /// when this returns; before, a crash leaves the store empty. It is alone: updates, checkpoints, checks, copies and new snapshots wait until
    /// the end, so an iterator that does more with this store than read waits for ever. Snapshots taken before see an empty store; other readers
    /// see records as they come. A long key costs the writing of the list of all that begin with the same 510 bytes.
    ///
    /// Errors, after which the store is empty: `Invalid` for a record out of order or a key that comes twice, with the record's number; `TooLarge`;
    /// `Full`; `Io`, `Poisoned`; the iterator's own, as it is. `Invalid` also for a store that has records, which stay, and inside the closure of an
    /// update.
    ///
    /// ```
    /// # use azekura::record::tree::{CreateOptions, TreeDb};
    /// # let folder = tempfile::tempdir().unwrap();
    /// let db = TreeDb::create(folder.path().join("squares.azt"), &CreateOptions::new())?;
    /// let squares = (0..1000).map(|n| Ok((format!("{n:04}"), (n * n).to_string())));
    /// assert_eq!(db.load_sorted(squares)?, 1000);
    /// assert_eq!(db.get(b"0012")?.as_deref(), Some(&b"144"[..]));
    /// # azekura::Result::Ok(())
    /// ```
    pub fn load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<u64> {
        gate::outside_updates()?;
        let mut load = self.core.begin_load()?;
        for record in records {
            let (key, value) = record?;
            load.push(key.as_ref(), value.as_ref())?;
        }
        load.finish()
    }
}

impl Core {
    /// Steps 1 and 2.
    fn begin_load(&self) -> Result<Load<'_>> {
        self.log.healthy()?;
        let _merged = self.merged()?;
        self.check_empty()?;
        // What the last checkpoint needs of records that are no more is room for new ones.
        Self::unless_full(self.win_room())?;
        let checkpoint = self.checkpoint.lock();
        let alone = self.gate.alone();
        let taking = self.tree.nodes.cuts.taking();
        self.check_empty()?;
        if self.levels() > 1 {
            // Of leaves that removals have left.
            self.clear_alone()?;
        }
        let pages = &self.tree.nodes;
        let position = pages.moment()?.at;
        pages.unlogged.store(position, Ordering::Relaxed);
        Ok(Load {
            core: self,
            ascending: Ascending::new(self.tree.order),
            admitted: 0,
            is_done: false,
            taking: Some(taking),
            _alone: alone,
            checkpoint,
        })
    }

    /// `Invalid` if there are records.
    fn check_empty(&self) -> Result<()> {
        match self.tree.nodes.counts.sum() {
            0 => Ok(()),
            count => Err(
                Error::new(Kind::Invalid, "records are loaded into an empty store only")
                    .at(self.log.storage().path())
                    .found(format!("{count} records"), "none")
                    .remedy("load them into a new file, or put them one by one"),
            ),
        }
    }
}

impl Load<'_> {
    /// Step 3, of one record.
    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let core = self.core;
        let path = core.log.storage().path();
        self.ascending.take((key, value), core.limits, path)?;
        let len = RECORD_LEN + (key.len() + value.len()) as u64;
        if self.admitted < len {
            self.admit()?;
        }
        self.admitted = self.admitted.saturating_sub(len);
        core.put_inside(key, value, AllocationClass::Growth)
    }

    /// Asks for room for some more pages, and writes some, if many are changed.
    fn admit(&mut self) -> Result<()> {
        let core = self.core;
        let pages = &core.tree.nodes;
        while pages.dirty() * 4 > u64::from(pages.limit()) {
            if pages.write_back_some(false)? == 0 {
                break;
            }
        }
        core.keep_for_checkpoint();
        // A page is written once in the load, and once by a checkpoint after that.
        let units = 2 * STEP * u64::from(pages.shape.units());
        let mut room = pages.space.room();
        room.admit(units, AllocationClass::Growth)?;
        self.admitted = STEP * pages.shape.bytes();
        Ok(())
    }

    /// Step 4; how many records there are.
    fn finish(mut self) -> Result<u64> {
        let core = self.core;
        core.tree.nodes.unlogged.store(0, Ordering::Relaxed);
        self.taking = None;
        core.keep_for_checkpoint();
        core.checkpoint_alone(&mut self.checkpoint)?;
        self.is_done = true;
        Ok(self.ascending.count())
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let core = self.core;
        let pages = &core.tree.nodes;
        pages.unlogged.store(0, Ordering::Relaxed);
        if self.taking.is_none() {
            self.taking = Some(pages.cuts.taking());
        }
        if let Err(error) = core.clear_alone() {
            tracing::warn!(%error, "what was loaded cannot be removed: the file is to be opened again");
            core.log.poison();
        }
        core.keep_for_checkpoint();
    }
}
