//! A copy of the store as of one moment, while it is being used.
//!
//! | step | |
//! |---|---|
//! | 1 | a snapshot is taken (`snapshot`) |
//! | 2 | a new store is made, without a name |
//! | 3 | its objects are read, by place within a leaf, verified, and put there |
//! | 4 | it is closed, and gets its name: it appears when it is whole, and replaces nobody's file |
//!
//! The copy has an identity and sequences of its own, and its objects stand without gaps: its file takes what they need, and no more
//! than the store's; `grow` gives it more. While it is made, room that is freed
//! is not used again: a store that is nearly full may be full meanwhile. Readers and writers notice nothing else but the device's
//! load.

use std::path::Path;
use std::sync::Arc;

use crate::engine::Durability;
use crate::error::{Error, Kind, Result};
use crate::io::Directory;
use crate::io::file::Files;
use crate::object::id::ObjectId;
use crate::object::place::extent::UNIT;
use crate::object::{Core, Options, Snapshot, Store};

/// Bytes of room besides a copy's objects: packs and groups are not filled to the last byte.
const SPARE: u64 = 4 << 20;

impl Store {
    /// Writes a copy to a new file: all objects as they are at one moment of the call. `progress` is told objects copied, of how
    /// many. `Invalid` if there is something at `path`; `Corrupted` if an object does not verify or is in doubt: then there is
    /// no copy.
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
        let snapshot = self.snapshot()?;
        let options = core.options_of_copy(&snapshot)?;
        let storage = directory.create_nameless(name)?;
        storage.resize(options.capacity)?;
        let target = Self::create_on(Arc::clone(&storage), None, &options, &mut |_, _| ())?;
        copy(&snapshot, &target, progress)?;
        target.close()?;
        storage.take_name()?;
        directory.sync()
    }
}

impl Core {
    /// Of a store of the same journal and groups that holds these objects.
    fn options_of_copy(&self, snapshot: &Snapshot) -> Result<Options> {
        let state = self.checkpoint.lock();
        let Some((_, last)) = &state.superblock else {
            return Err(Error::new(Kind::Poisoned, "the store is not open"));
        };
        let all = self.room.lock().space.units() * UNIT;
        let used = snapshot.usage(ObjectId(0), None).device_bytes;
        let data = (used + used / 16 + SPARE).next_multiple_of(UNIT).min(all);
        Ok(Options {
            capacity: last.journal_size + data,
            journal_size: Some(last.journal_size),
            group_size: Some(u64::from(self.group_units) * UNIT),
            fill: false,
            overwrite: false,
            durability: Durability::Process,
            small_max: self.options.small_max,
            sync_interval: None,
            sync_every: None,
            direct: self.options.direct,
            background: false,
        })
    }
}

fn copy(from: &Snapshot, target: &Store, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let mut done = 0;
    from.each_by_place(&mut |id, value| {
        progress(done, from.count());
        done += 1;
        put_or_grow(target, id, value)
    })?;
    progress(done, from.count());
    Ok(())
}

/// What stood between others in a nearly full store may leave gaps in another order.
fn put_or_grow(target: &Store, id: ObjectId, value: &[u8]) -> Result<()> {
    let group = u64::from(target.core.group_units) * UNIT;
    let more = (2 * value.len() as u64).max(SPARE).min(group);
    // What is added may end in the middle of a group, and the next one begin there.
    for _ in 0..3 {
        match target.put(id, value) {
            Err(error) if error.kind() == Kind::Full => {}
            put => return put.map(drop),
        }
        let size = target.core.data.size()?;
        target.grow(Some(size + more))?;
    }
    target.put(id, value).map(drop)
}
