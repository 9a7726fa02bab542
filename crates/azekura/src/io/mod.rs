//! Bytes at an offset: the one seam between azekura and the system.
//!
//! [`Storage`] is a file, a device, or a stand-in for one; [`Directory`] is where storages have
//! names; [`Map`] is a storage's bytes in memory. Nothing else in the library calls the system for
//! storage, so a simulated disk behind this seam sees every byte that could be lost.
//!
//! Promises:
//! 1. `write_at`, stores into a [`Map`] and `read_at` see one another at once (one page cache).
//! 2. What was written survives the process from the moment the call returns, and loss of power
//!    only after a later `sync` returned without error (names: after `Directory::sync`), or if it was
//!    written by `write_durably`.
//! 3. `resize` allocates: a full disk is an error there, never a signal at a later store.
//! 4. A failed `write_at`, `write_durably`, `resize` or `sync` leaves the state unknown; callers poison
//!    themselves.
//! 5. A storage made without a name leaves nothing behind when its process dies before it has one.
//!
//! It knows nothing of formats, logs or records.
//!
//! ```text
//!   engines -> Storage ----> file   direct   memory   overlay   sim (feature testkit)
//!           |     `-> Map    (one reservation of address space; grows without moving)
//!           `-> Flight       (many requests at once: the kernel's ring, or threads)
//! ```
//!
//! A storage over another one states what it changes: [`over::Over`].

#[doc(hidden)]
pub mod aligned;
#[doc(hidden)]
pub mod counted;
pub mod direct;
pub mod file;
#[doc(hidden)]
pub mod file_lock;
#[doc(hidden)]
pub mod flight;
#[doc(hidden)]
pub mod front;
pub mod memory;
#[doc(hidden)]
pub mod mmap;
#[doc(hidden)]
pub mod over;
#[doc(hidden)]
pub mod overlay;
#[doc(hidden)]
pub mod region;
#[cfg(any(test, feature = "testkit"))]
pub mod sim;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Kind, Result};

pub use mmap::{Map, return_large_memory, return_unused_memory, unused_memory};

const _: () = assert!(
    usize::BITS == 64,
    "offsets are u64 and lengths usize: 64-bit platforms only"
);

/// Who may use a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// This handle alone writes; other processes may read.
    Write,
    /// Reads concurrently with at most one writer in another process.
    Read,
}

/// An open file, device or stand-in. Methods take `&self`: offsets, not cursors.
pub trait Storage: Send + Sync + Debug {
    /// Fills `buf` from `offset`. `Corrupted` if the storage ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// As `read_at`, if that does not wait for a device. Else `false`, and any bytes are in `buf`: their way from the device has begun,
    /// where the system begins it without a wait. By default it reads, and may wait.
    fn read_at_once(&self, offset: u64, buf: &mut [u8]) -> Result<bool> {
        self.read_at(offset, buf).map(|()| true)
    }

    /// One of the two; whether the bytes were read.
    fn read_if(&self, offset: u64, buf: &mut [u8], may_wait: bool) -> Result<bool> {
        if may_wait {
            return self.read_at(offset, buf).map(|()| true);
        }
        self.read_at_once(offset, buf)
    }

    /// A hint that these bytes will be read soon: their way from the device begins, and nothing waits for it. By default it does nothing.
    fn read_ahead(&self, _offset: u64, _len: u64) {}

    /// Writes all of `bytes` at `offset`, which must lie within the size.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// As `write_at`, and returns when these bytes survive loss of power, with the size they need. States
    /// nothing of any others: what else waits to be written is not waited for. A power cut before it
    /// returns leaves any part of them.
    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_at(offset, bytes)?;
        self.sync()
    }

    /// Size in bytes.
    fn size(&self) -> Result<u64>;

    /// Sets the size. Growing allocates (new bytes read as zeros), shrinking gives space back.
    fn resize(&self, size: u64) -> Result<()>;

    /// Returns when everything written or stored before the call survives loss of power.
    fn sync(&self) -> Result<()>;

    /// Gives the space of a range back; it reads as zeros afterwards. The size stays.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;

    /// Makes a discarded range safe to store into again through a map (allocates it).
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;

    /// Bytes the storage takes on its device (less than its size where it has holes).
    fn allocated(&self) -> Result<u64>;

    /// Bytes that its device has left for it; `None` if that is unknown.
    fn free(&self) -> Option<u64> {
        None
    }

    /// The storage's bytes in memory. `capacity` bounds how far it may grow while mapped; only
    /// addresses are reserved. Bytes beyond the present size must not be touched.
    fn map(&self, capacity: u64) -> Result<Arc<Map>>;

    /// The first `capacity` bytes, which it has, in memory of the caller's own: what is stored there stays there. By
    /// default a copy, which takes the time to read them; `Full` if there is no memory.
    fn map_private(&self, capacity: u64) -> Result<Arc<Map>> {
        let map = Map::anonymous(capacity.next_multiple_of(4096).max(4096), None)?;
        let mut piece = crate::room::vec(capacity.min(1 << 20) as usize)?;
        let mut at = 0;
        while at < capacity {
            let len = (capacity - at).min(1 << 20);
            piece.resize(len as usize, 0);
            self.read_at(at, &mut piece)?;
            map.write(at, &piece);
            at += len;
        }
        Ok(map)
    }

    /// Copies a range to the same offset of `target`, sharing blocks where the system can.
    fn copy_range_to(&self, offset: u64, len: u64, target: &dyn Storage) -> Result<()> {
        copy_through_memory(self, offset, len, target)
    }

    /// Forgets cached clean pages, if it has any, so that the next read comes from the device. Called after a
    /// failed sync, when cache and device may differ, before anything is mapped.
    fn drop_cache(&self) -> Result<()> {
        Ok(())
    }

    /// Identifies the running system since its start: equal ids mean that no power was lost since. Zeros: it is unknown, so power
    /// may have been lost.
    fn boot_id(&self) -> [u8; 16];

    /// A number that cannot be guessed, for seeds. The simulated disk's is fixed by its seed.
    fn entropy(&self) -> u64;

    /// Whether another handle has the storage open for writing.
    fn has_writer(&self) -> bool {
        false
    }

    /// Gives a storage that was made without a name the one it is meant for (`Directory::create_nameless`,
    /// `Directory::create_replacing`). `Invalid` if another file has it by now, unless it is to be replaced:
    /// then at every moment the name leads to the old storage or to this one. Durable after
    /// `Directory::sync`. Does nothing for others.
    fn take_name(&self) -> Result<()> {
        Ok(())
    }

    /// The name, for messages.
    fn path(&self) -> &Path;

    /// What places, lengths and addresses of buffers must be multiples of to get past it without a copy: a power of
    /// two.
    fn alignment(&self) -> u64 {
        1
    }

    /// A request of `len` bytes goes past it, to the file [`backing_file`](Self::backing_file): for those who count.
    fn passed_by(&self, _is_read: bool, _len: usize) {}

    /// The system's file whose bytes it shows, and where in it they begin, for requests that need not go through it
    /// (`flight`). None: all of them do.
    fn backing_file(&self) -> Option<(&std::fs::File, u64)> {
        None
    }

    /// The file that backs it, if there is one: so that copies can stay in the system.
    fn as_file(&self) -> Option<&file::File> {
        None
    }
}

/// Copies a range between storages that the system cannot copy itself.
fn copy_through_memory(
    from: &(impl Storage + ?Sized),
    offset: u64,
    len: u64,
    target: &dyn Storage,
) -> Result<()> {
    let mut buf = vec![0; len.min(1 << 20) as usize];
    let mut done = 0;
    while done < len {
        let part = &mut buf[..(len - done).min(1 << 20) as usize];
        from.read_at(offset + done, part)?;
        target.write_at(offset + done, part)?;
        done += part.len() as u64;
    }
    Ok(())
}

/// Where storages have names. Paths are relative to it.
pub trait Directory: Send + Sync + Debug {
    /// Makes a new, empty storage; `Invalid` if the name exists.
    fn create(&self, name: &Path) -> Result<Arc<dyn Storage>>;
    /// As `create`, but it is not found under `name` before `Storage::take_name`. If it never comes to
    /// that, nothing is left; nor if the process dies.
    fn create_nameless(&self, name: &Path) -> Result<Arc<dyn Storage>>;
    /// As `create_nameless`, but the name may belong to a file, which `Storage::take_name` replaces. Who has
    /// the old one open keeps it.
    fn create_replacing(&self, name: &Path) -> Result<Arc<dyn Storage>>;
    /// Opens a storage; takes the writer's lock for [`Access::Write`] (`Locked` if it is held).
    fn open(&self, name: &Path, access: Access) -> Result<Arc<dyn Storage>>;
    /// Gives a storage another name, replacing what had it, atomically.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a name.
    fn remove(&self, name: &Path) -> Result<()>;
    /// Whether a name exists.
    fn exists(&self, name: &Path) -> Result<bool>;
    /// The names.
    fn list(&self) -> Result<Vec<std::path::PathBuf>>;
    /// Returns when names created, renamed and removed before survive loss of power.
    fn sync(&self) -> Result<()>;
}

/// Makes a storage that has its name when `make` has filled it: whenever the process dies, there is none of that name, or a whole
/// one. `make` syncs what it writes. `Invalid` if the name exists. A name that may not be durable, since the sync of the directory
/// failed, is removed. Costs that sync besides.
pub fn create_whole<T>(
    directory: &dyn Directory,
    name: &Path,
    make: impl FnOnce(&Arc<dyn Storage>) -> Result<T>,
) -> Result<T> {
    let storage = directory.create_nameless(name)?;
    let made = make(&storage)?;
    publish(directory, name, storage.as_ref())?;
    Ok(made)
}

/// Gives a storage that was made without a name its name, durably, as the end of [`create_whole`].
pub fn publish(directory: &dyn Directory, name: &Path, storage: &dyn Storage) -> Result<()> {
    storage.take_name()?;
    directory.sync().inspect_err(|_| {
        // What may be gone after a loss of power is removed now; the first error is the one to report.
        let _ = directory.remove(name);
    })
}

/// `Invalid` unless so many bytes from `offset` on lie within `size` bytes of `storage`.
fn check_within(storage: &dyn Storage, offset: u64, len: u64, size: u64, what: &str) -> Result<()> {
    if offset.checked_add(len).is_none_or(|end| end > size) {
        let wanted = format!("an end within {size:#x}");
        return Err(Error::new(Kind::Invalid, what)
            .at(storage.path())
            .offset(offset)
            .found(format!("{len:#x} bytes"), wanted));
    }
    Ok(())
}
