//! What is pending of a sorted file, read without opening it for edits: a store that is being edited is neither changed nor held up.
//!
//! 1. The superblock of the pending file is read, then the sorted file, then the edits are replayed in memory as an opening replays them.
//! 2. A merge may end meanwhile, and what it has merged may be gone from the log: then the superblock is another one afterwards, and
//!    all is read again.
//!
//! It takes the time and the memory of the edits, as an opening does. It does not recover anything.

use std::path::Path;
use std::sync::Arc;

use super::EditOptions;
use super::layout::PendingSuper;
use super::open::{Replay, open_log, pending_of, remedy, replay_from};
use crate::error::{Error, Kind, Result};
use crate::io::file::Files;
use crate::io::{Access, Directory, Storage};
use crate::kernel::SuperblockPair;
use crate::log::manifest::{check_last_is_whole, segments_of};
use crate::log::recover::Prior;
use crate::record::skip::reader::SkipReader;
use crate::record::skip::reduce::Reducer;

/// How often it is read again while merges end.
const TRIES: usize = 100;

/// The edits that a sorted file does not have yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PendingEdits {
    /// Keys with edits; a removal of all records counts as one.
    pub edits: u64,
    /// Bytes of edits, as [`EditOptions::memory`] counts them.
    pub bytes: u64,
    /// Records of the file when these are merged.
    pub count: u64,
    /// Under which they are pending; `Last`: those of a map.
    pub reducer: Reducer,
}

impl PendingEdits {
    /// What is pending of the sorted file at `path`, also while another process edits it; `None`: there is no pending file. It is only read.
    ///
    /// `Mismatch` if it is no sorted file, or the edits are of another one; `Corrupted` if the pending file is damaged; `Locked` if merges end
    /// faster than it can be read; `Full`, `Io`.
    pub fn of(path: impl AsRef<Path>) -> Result<Option<Self>> {
        let (directory, name) = Files::of(path.as_ref());
        Self::of_in(&directory, name)
    }

    /// As [`of`](Self::of), in any directory.
    pub fn of_in(directory: &dyn Directory, name: &Path) -> Result<Option<Self>> {
        let open_base = || SkipReader::open_on(directory.open(name, Access::Read)?);
        drop(open_base()?);
        let pending = pending_of(name);
        if !directory.exists(&pending)? {
            return Ok(None);
        }
        let storage = directory.open(&pending, Access::Read)?;
        for _ in 0..TRIES {
            let found = SuperblockPair::<PendingSuper>::read(storage.as_ref())?;
            let read = open_base().and_then(|base| Self::read(&storage, &found.payload, base));
            let now = SuperblockPair::<PendingSuper>::read(storage.as_ref())?;
            if now.sequence == found.sequence {
                return read.map(Some);
            }
        }
        let what = "edits are merged faster than they can be read";
        Err(Error::new(Kind::Locked, what)
            .at(storage.path())
            .remedy("ask the process that edits the file, or try again"))
    }

    fn read(storage: &Arc<dyn Storage>, last: &PendingSuper, base: SkipReader) -> Result<Self> {
        let path = base.blocks.storage.path().to_path_buf();
        Self::replayed(storage, last, base).map_err(|error| match error.kind() {
            Kind::Corrupted | Kind::Mismatch => error.remedy(remedy(&path)),
            _ => error,
        })
    }

    fn replayed(storage: &Arc<dyn Storage>, last: &PendingSuper, base: SkipReader) -> Result<Self> {
        let from = replay_from(&base.blocks.top, last).map_err(|error| error.at(storage.path()))?;
        let segments = segments_of(storage.as_ref(), last.geometry, storage.size()?)?;
        check_last_is_whole(storage.as_ref(), last.geometry, segments)?;
        let log = open_log(storage, last.geometry, &EditOptions::new())?;
        log.segments().begin_adoption(segments as u32);
        let prior = last.prior(&log);
        let prior = Prior {
            shared: true,
            durable: prior.durable.max(from),
            ..prior
        };
        let replay = Replay::new(base, last.reducer.clone())?;
        let (replay, _) = replay.run(&log, last.start, (prior, from))?;
        Ok(Self {
            edits: replay.view.edits(),
            bytes: replay.bytes,
            count: replay.count,
            reducer: replay.reducer,
        })
    }
}
