//! A copy of the store as of one moment, while it is being used.
//!
//! | step | |
//! |---|---|
//! | 1 | a checkpoint, so that few small objects are in the journal |
//! | 2 | alone for a moment: the leaves of the index are shared, what goes into limbo from then on is pinned there |
//! | 3 | what is in the journal still is read |
//! | 4 | a new store is made, without a name; objects are read, by place within a leaf, verified, and put there |
//! | 5 | it is closed, and gets its name: it appears when it is whole, and replaces nobody's file |
//!
//! The copy has an identity and sequences of its own, and its objects stand without gaps. While it runs, room that is freed is
//! not used again: a store that is nearly full may be full meanwhile. Readers and writers notice nothing else but the device's
//! load.

use std::path::Path;
use std::sync::Arc;

use super::extent::UNIT;
use super::id::ObjectId;
use super::index::{JOURNAL, Leaf};
use super::{Core, Options, Store, Value};
use crate::engine::Durability;
use crate::error::{Error, Kind, Result};
use crate::io::Directory;
use crate::io::file::Files;
use crate::room;

/// What is pinned while a copy runs.
struct Pinned<'c> {
    core: &'c Core,
    pin: u64,
    leaves: Vec<Arc<Leaf>>,
    /// Objects that were in the journal.
    small: Vec<(ObjectId, Value)>,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.core.room.lock().space.unpin(self.pin);
    }
}

impl Store {
    /// Writes a copy to a new file: all objects as they are at one moment of the call. `progress` is told objects copied, of how
    /// many. `Invalid` if there is something at `path`; `Corrupted` if an object does not verify: then there is no copy.
    pub fn copy_to(
        &self,
        path: impl AsRef<Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let (directory, name) = Files::of(path.as_ref());
        self.copy_in(&directory, name, progress)
    }

    /// As [`copy_to`](Self::copy_to), in any directory. A store on two devices is copied to one file.
    pub fn copy_in(
        &self,
        directory: &dyn Directory,
        name: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let core = &self.core;
        core.log.healthy()?;
        let options = core.options_of_copy()?;
        let storage = directory.create_nameless(name)?;
        storage.resize(options.capacity)?;
        let target = Self::create_on(Arc::clone(&storage), None, &options, &mut |_, _| ())?;
        core.copy_into(&target, progress)?;
        target.close()?;
        storage.take_name()?;
        directory.sync()
    }
}

impl Core {
    /// Of a store of the same sizes.
    fn options_of_copy(&self) -> Result<Options> {
        let state = self.checkpoint.lock();
        let Some((_, last)) = &state.superblock else {
            return Err(Error::new(Kind::Poisoned, "the store is not open"));
        };
        let data = self.room.lock().space.units() * UNIT;
        Ok(Options {
            capacity: last.journal_size + data,
            journal_size: Some(last.journal_size),
            group_size: Some(u64::from(self.group_units) * UNIT),
            fill: false,
            durability: Durability::Process,
            small_max: self.options.small_max,
            sync_interval: None,
            sync_every: None,
            direct: self.options.direct,
            background: false,
        })
    }

    /// Leaves that are cold come in, and the journal is read, while no checkpoint gives their room away.
    fn pinned(&self) -> Result<Pinned<'_>> {
        self.make_checkpoint()?;
        let _images = self.checkpoint.lock();
        let alone = self.gate.write();
        let shots = self.index.snapshot(false)?;
        let mut pinned = Pinned {
            core: self,
            pin: self.room.lock().space.pin(),
            leaves: room::vec(shots.len())?,
            small: Vec::new(),
        };
        drop(alone);
        for (at, shot) in shots.iter().enumerate() {
            let end = shots.get(at + 1).map(|shot| shot.first);
            let leaf = self.index.leaf_of(shot, end)?;
            for (id, entry) in leaf.entries().filter(|(_, entry)| entry.kind == JOURNAL) {
                let read = self.read_entry(id, entry, &(0..u64::MAX))?;
                let (value, _) = read.map_err(|fault| self.damaged(id, entry, fault))?;
                room::more(&mut pinned.small, 1)?;
                pinned.small.push((id, value));
            }
            pinned.leaves.push(leaf);
        }
        Ok(pinned)
    }

    fn copy_into(&self, target: &Store, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let pinned = self.pinned()?;
        let total = pinned.leaves.iter().map(|leaf| leaf.len() as u64).sum();
        let mut done = 0;
        for leaf in &pinned.leaves {
            let on_device = leaf.entries().filter(|(_, entry)| entry.kind != JOURNAL);
            let mut entries: Vec<_> = on_device.collect();
            entries.sort_unstable_by_key(|(_, entry)| entry.place);
            for (id, entry) in entries {
                progress(done, total);
                let read = self.read_entry(id, entry, &(0..u64::MAX))?;
                let (value, _) = read.map_err(|fault| self.damaged(id, entry, fault))?;
                put_or_grow(target, id, &value)?;
                done += 1;
            }
        }
        for (id, value) in &pinned.small {
            put_or_grow(target, *id, value)?;
        }
        progress(total, total);
        Ok(())
    }
}

/// What stood between others in a nearly full store may leave gaps in another order.
fn put_or_grow(target: &Store, id: ObjectId, value: &[u8]) -> Result<()> {
    match target.put(id, value) {
        Err(error) if error.kind() == Kind::Full => {
            let group = u64::from(target.core.group_units) * UNIT;
            let size = target.core.data.size()?;
            target.grow(Some(size + group))?;
            target.put(id, value)?;
        }
        other => drop(other?),
    }
    Ok(())
}
