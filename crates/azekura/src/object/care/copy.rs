//! A copy of the store as of one moment, while it is being used.
//!
//! | step | |
//! |---|---|
//! | 1 | take a snapshot |
//! | 2 | create a new store, without a name |
//! | 3 | read its objects, by place within a leaf, verify them, and put them there |
//! | 4 | close it, and give it its name: it appears when it is whole, and never replaces a file |
//!
//! The copy has an identity and sequences of its own, and no gaps between objects: its file is as long as they need, and at most as
//! long as the store's; `grow` extends it. Meanwhile freed space is not reused: a store that is nearly full may be full. Otherwise
//! other threads notice only the load on the device.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Kind, Result};
use crate::io::file::Files;
use crate::io::{Directory, create_whole};
use crate::object::id::ObjectId;
use crate::object::place::extent::UNIT;
use crate::object::{Core, CreateOptions, Snapshot, Store};

/// Spare bytes of a copy: packed extents and groups are not filled to the last byte.
const SPARE: u64 = 4 << 20;

impl Store {
    /// Writes a copy to a new file: all objects as of one moment within the call. `progress` gets the number of objects copied,
    /// and their total. `Invalid` if `path` exists; `Corrupted` if an object does not verify or is in doubt: then there is no
    /// copy.
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
        let options = core.options_of_copy(&snapshot);
        create_whole(directory, name, |storage| {
            storage.resize(options.capacity)?;
            let target = Self::create_on(Arc::clone(storage), None, &options, &mut |_, _| ())?;
            copy(&snapshot, &target, progress)?;
            target.close()
        })
    }
}

impl Core {
    /// Options of a store with the same journal and groups that holds these objects.
    fn options_of_copy(&self, snapshot: &Snapshot) -> CreateOptions {
        let state = self.checkpoint.lock();
        let last = state.last();
        let all = self.allocator.lock().space.units() * UNIT;
        let used = snapshot.usage(..).device_bytes;
        let data = (used + used / 16 + SPARE).next_multiple_of(UNIT).min(all);
        CreateOptions::new()
            .capacity(last.journal_size + data)
            .journal_size(last.journal_size)
            .group_size(u64::from(self.group_units) * UNIT)
            .small_max(self.options.small_max)
            .direct(self.options.direct)
            .background(false)
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

/// Extents that filled gaps of a nearly full store may leave gaps in another order.
fn put_or_grow(target: &Store, id: ObjectId, value: &[u8]) -> Result<()> {
    let group = u64::from(target.core.group_units) * UNIT;
    let more = (2 * value.len() as u64).max(SPARE).min(group);
    // The added units may end in the middle of a group.
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
