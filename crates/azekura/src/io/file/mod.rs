//! Files through the page cache.
//!
//! [`File`] is one open file with its lock, or an open block device; [`Files`] is a folder of files. New files are
//! private to their owner (mode 0600), links are not followed, and anything but a regular file is refused by name,
//! except that a block device is opened. It keeps the promises of `Storage`, and knows nothing of formats.

mod device;
mod folder;
#[cfg(test)]
pub(super) mod loop_device;
mod nameless;
#[cfg(test)]
mod tests;

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::{Errno, ReadWriteFlags};

use super::file_lock::{FileLock, OR_READ_ONLY, open_again, without_readers};
use super::mmap::share_of_addresses;
use super::{Access, Map, Storage};
use crate::error::{Error, Kind, Result, size};
use device::{Device, device_at, whole_blocks};
pub use folder::{Files, remove, sync_directory};
use nameless::Nameless;

/// From so many bytes on, the free space of the file system is checked first.
const ASKED: u64 = 64 << 20;

/// An open file.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "the system's file, inside ours")]
pub struct File {
    pub(super) file: std::fs::File,
    path: PathBuf,
    /// The path from the root, wherever the process stands later.
    place: PathBuf,
    access: Access,
    lock: FileLock,
    /// Of a block device.
    device: Option<Device>,
    /// Where it stands until it takes its name.
    nameless: Mutex<Option<Nameless>>,
    /// Whether it takes its name from who has it.
    replaces: bool,
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(Nameless::Temporary(temporary)) = self.nameless.get_mut() {
            // Left behind it costs room until the next file is made for that name.
            let _ = std::fs::remove_file(temporary);
        }
        self.lock.release(&self.file);
    }
}

impl File {
    /// Makes a new file and locks it for writing. `Invalid` if the name exists. The name is durable
    /// after [`sync_directory`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        Self::with(path.as_ref(), &mut options, Access::Write, not_made)
    }

    /// Opens a file or a block device. `Locked` if `access` is `Write` and it is open for writing anywhere, or the
    /// device is mounted. Waits for what a writer that was killed left in flight, a minute at most.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self> {
        if let Some(device) = device_at(path.as_ref()) {
            return Self::open_device(path.as_ref(), &device, access);
        }
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write);
        Self::with(path.as_ref(), &mut options, access, refused)
    }

    /// As [`open`](Self::open) for writing, of what is not read while it is written, as an object store: `Locked` states it.
    pub fn open_alone(path: impl AsRef<Path>) -> Result<Self> {
        let ask = "ask the program that has it open, or stop it";
        Self::open(path, Access::Write).map_err(|error| error.remedy_instead(OR_READ_ONLY, ask))
    }

    fn with(
        path: &Path,
        options: &mut OpenOptions,
        access: Access,
        refused: fn(&Path, std::io::Error) -> Error,
    ) -> Result<Self> {
        Self::with_between(path, options, access, refused, &mut || {})
    }

    /// As `with`; `between` is called when the file is open and not yet locked.
    fn with_between(
        path: &Path,
        options: &mut OpenOptions,
        access: Access,
        refused: fn(&Path, std::io::Error) -> Error,
        between: &mut dyn FnMut(),
    ) -> Result<Self> {
        loop {
            present(path)?;
            let file = options
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
                .open(path)
                .map_err(|error| refused(path, error))?;
            between();
            let opened = Self::locked(file, path, access)?;
            // Until it was locked, its writer may have put another file in its place, as a rebuild does: what
            // is written to a file without a name is lost.
            let named = |found: std::fs::Metadata| found.nlink() > 0;
            if access == Access::Read || opened.file.metadata().is_ok_and(named) {
                return Ok(opened);
            }
        }
    }

    fn locked(file: std::fs::File, path: &Path, access: Access) -> Result<Self> {
        let found = file
            .metadata()
            .map_err(|e| Error::io("cannot look at the file", e).at(path))?;
        if !found.is_file() {
            return Err(Error::new(Kind::Mismatch, "not a regular file").at(path));
        }
        let lock = FileLock::take(&file, (found.dev(), found.ino()), access, path)?;
        Ok(Self::of(file, path, access, lock))
    }

    /// The handle of a file that is open and locked.
    fn of(file: std::fs::File, path: &Path, access: Access, lock: FileLock) -> Self {
        Self {
            file,
            path: path.to_path_buf(),
            place: std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
            access,
            lock,
            device: None,
            nameless: Mutex::new(None),
            replaces: false,
        }
    }

    /// What the system knows of the file now.
    fn looked_at(&self) -> Result<std::fs::Metadata> {
        let found = self.file.metadata();
        found.map_err(|e| Error::io("cannot look at the file", e).at(&self.path))
    }

    /// Refuses writers as long as this handle, which was opened for reading, lives: `Locked` if there is a writer.
    pub fn keep_writers_out(&self) -> Result<()> {
        let found = self.looked_at()?;
        FileLock::keep_writers_out(&self.file, found.ino(), &self.path)
    }

    /// The same file opened again, for requests that may outlive the process (`file_lock`). `Io` where the system does not list
    /// open files.
    pub(super) fn again(&self) -> Result<Self> {
        let again = open_again(&self.file);
        let file = again
            .and_then(|again| again.ok_or_else(|| ErrorKind::Unsupported.into()))
            .map_err(|error| self.error("cannot open the file again", error, 0))?;
        let lock = FileLock::of_flights(&file, self.access, &self.path)?;
        let mut again = Self::of(file, &self.path, self.access, lock);
        again.place.clone_from(&self.place);
        again.device = self.device;
        Ok(again)
    }

    /// The file for those who write it from its beginning to its end.
    pub fn as_stream(&self) -> impl std::io::Write + '_ {
        &self.file
    }

    /// Gives the file the owner and mode of the one at `old`, which it is to replace: new files are private to who makes
    /// them. `Io` if that is not permitted.
    pub fn keep_owner_and_mode_of(&self, old: &Path) -> Result<()> {
        let kept = || {
            let (of, now) = (std::fs::metadata(old)?, self.file.metadata()?);
            if (of.uid(), of.gid()) != (now.uid(), now.gid()) {
                std::os::unix::fs::fchown(&self.file, Some(of.uid()), Some(of.gid()))?;
            }
            self.file.set_permissions(of.permissions())
        };
        kept().map_err(|error| {
            Error::io(
                "cannot give the new file the owner and mode of the old",
                error,
            )
            .at(old)
            .remedy("do it as its owner; nothing was changed")
        })
    }

    /// Gives back what the system takes back of a range: that part reads as zeros then. The rest is as it was.
    fn punch(&self, range: Range<u64>) -> Result<Range<u64>> {
        let nothing = range.start..range.start;
        let part = match &self.device {
            Some(device) => whole_blocks(range, device.block),
            None => range,
        };
        if part.is_empty() {
            return Ok(nothing);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match self.fallocate(flags, &part) {
            Ok(()) => Ok(part),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(nothing),
            Err(error) => Err(self.error("cannot give space back", error, part.start)),
        }
    }

    fn fallocate(
        &self,
        flags: FallocateFlags,
        range: &Range<u64>,
    ) -> std::result::Result<(), Errno> {
        loop {
            match fallocate(&self.file, flags, range.start, range.end - range.start) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }

    /// Gives a range back; what the system does not take is written with zeros, through `storage`.
    pub(super) fn give_back(&self, storage: &dyn Storage, offset: u64, len: u64) -> Result<()> {
        let range = offset..offset.saturating_add(len);
        let punched = self.punch(range.clone())?;
        if punched == range {
            return Ok(());
        }
        let end = range.end.min(storage.size()?);
        write_zeros(storage, range.start, punched.start)?;
        write_zeros(storage, punched.end, end)
    }

    /// Takes room for a range. `false`: the file system has no call for that.
    pub(super) fn take_room(&self, range: &Range<u64>) -> Result<bool> {
        if self.device.is_some() {
            return self.fits_device(range.end).map(|()| true);
        }
        if range.is_empty() {
            return Ok(true);
        }
        let present = self.size()?;
        let new = range.end.saturating_sub(present.max(range.start));
        let taken = if self.is_beyond_room(new) {
            // Meanwhile no other would have any.
            Err(Errno::NOSPC)
        } else {
            self.fallocate(FallocateFlags::empty(), range)
        };
        match taken {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(error) => {
                // Some file systems keep what they found before the rest was refused.
                if new > 0 {
                    drop(self.file.set_len(present));
                }
                let what = format!("cannot allocate {}", size(range.end - range.start));
                Err(self.error(&what, error, range.start))
            }
        }
    }

    /// Whether its file system states that it has no room for so many more bytes. Not asked for few.
    fn is_beyond_room(&self, new: u64) -> bool {
        let has_less =
            |found: rustix::fs::StatVfs| found.f_bfree.saturating_mul(found.f_frsize) < new;
        new >= ASKED && rustix::fs::fstatvfs(&self.file).is_ok_and(has_less)
    }

    /// Whether its path still leads to it: the next open of the path finds what is written here. `Io`, with what was found
    /// and what saves the contents, if the file was removed, moved or replaced. Two system calls. A device is not looked
    /// for, nor is a file that has no name yet; and that the path cannot be looked at states nothing.
    pub fn verify_path(&self) -> Result<()> {
        if self.device.is_some() || self.nameless.lock().is_some() {
            return Ok(());
        }
        let here = self.looked_at()?;
        let found = match std::fs::symlink_metadata(&self.place) {
            Ok(there) if (there.dev(), there.ino()) == (here.dev(), here.ino()) => return Ok(()),
            Ok(_) => "another file",
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => "no file",
                _ if here.nlink() == 0 => "no file",
                _ => return Ok(()),
            },
        };
        let (what, remedy) = if here.nlink() > 0 {
            let what = "the open file was moved: its path does not lead to it any more";
            let inode = here.ino();
            (what, format!("move the file with inode {inode} back"))
        } else {
            let what = "the open file was removed: it is gone when the process ends";
            let (id, file) = (std::process::id(), self.file.as_raw_fd());
            let copy = format!("before that, copy it from /proc/{id}/fd/{file} to another path");
            (what, copy)
        };
        Err(Error::new(Kind::Io, what)
            .at(&self.path)
            .found(found, "the open file")
            .remedy(remedy))
    }

    fn error(&self, what: &str, source: impl Into<std::io::Error>, offset: u64) -> Error {
        Error::io(what, source).at(&self.path).offset(offset)
    }
}

/// Writes zeros: where space cannot be given back, or taken, by a call of its own.
pub(super) fn write_zeros(storage: &dyn Storage, from: u64, to: u64) -> Result<()> {
    let zeros = vec![0; to.saturating_sub(from).min(1 << 20) as usize];
    let mut at = from;
    while at < to {
        let part = (to - at).min(1 << 20);
        storage.write_at(at, &zeros[..part as usize])?;
        at += part;
    }
    Ok(())
}

/// Whether a block device is there: by its path, or by a link that only the system's administrator can make.
pub fn is_device(path: &Path) -> bool {
    device_at(path).is_some()
}

/// Whether there is a file of that name. Looking before it is opened keeps a pipe or a device from blocking
/// or being opened at all: anything but a file is `Mismatch`.
fn present(path: &Path) -> Result<bool> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(false);
    };
    let kind = found.file_type();
    let what = if kind.is_file() {
        return Ok(true);
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else {
        "a pipe, socket or device"
    };
    Err(Error::new(Kind::Mismatch, "not a regular file")
        .at(path)
        .found(what, "a file")
        .remedy("give the path of the file itself"))
}

/// A number that cannot be guessed.
fn entropy() -> u64 {
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = time.map_or(0, |time| time.as_nanos() as u64);
    // Without the system's source, the time is what there is.
    read.map_or(time, |()| u64::from_le_bytes(bytes) ^ time)
}

/// Why a file could not be made.
fn not_made(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::AlreadyExists => {
            Error::new(Kind::Invalid, "there is already a file of that name")
                .at(path)
                .remedy("choose another name, or remove it first")
        }
        ErrorKind::NotFound => Error::io("there is no folder to make the file in", error)
            .at(path)
            .remedy("check the path, or make the folder first"),
        ErrorKind::PermissionDenied => Error::io("no permission to make a file there", error)
            .at(path)
            .remedy("choose another folder"),
        _ => Error::io("cannot make the file", error).at(path),
    }
}

/// Why a file could not be opened.
fn refused(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::io("there is no such file", error)
            .at(path)
            .remedy("check the path, or create it with `azekura create`"),
        ErrorKind::PermissionDenied => Error::io("no permission to open the file", error)
            .at(path)
            .remedy("ask its owner"),
        _ => Error::io("cannot open the file", error).at(path),
    }
}

impl Storage for File {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|error| {
            if error.kind() == ErrorKind::UnexpectedEof {
                return Error::new(Kind::Corrupted, "the file ends too early")
                    .at(&self.path)
                    .offset(offset)
                    .detail(format!("{} wanted", size(buf.len() as u64)));
            }
            self.error("cannot read", error, offset)
        })
    }

    /// What the system's cache has is read; all else the system begins to bring there. An error is that of the read that follows.
    fn read_at_once(&self, offset: u64, buf: &mut [u8]) -> Result<bool> {
        let len = buf.len();
        let mut parts = [std::io::IoSliceMut::new(buf)];
        let read = rustix::io::preadv2(&self.file, &mut parts, offset, ReadWriteFlags::NOWAIT);
        if read == Ok(len) {
            return Ok(true);
        }
        self.read_ahead(offset, len as u64);
        Ok(false)
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        // Without a length it would be all of the file.
        if let len @ Some(_) = NonZeroU64::new(len) {
            // Where the system does not take the hint, the read waits.
            let _ = fadvise(&self.file, offset, len, Advice::WillNeed);
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|e| self.error("cannot write", e, offset))
    }

    /// One call of the system, which writes back and waits for this range alone.
    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let part = [std::io::IoSlice::new(rest)];
            match rustix::io::pwritev2(&self.file, &part, at, ReadWriteFlags::DSYNC) {
                Ok(written) => {
                    at += written as u64;
                    rest = rest.get(written..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.write_at(at, rest)?;
                    return self.sync();
                }
                Err(error) => return Err(self.error("cannot write", error, offset)),
            }
        }
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        if self.device.is_some() {
            return self.size_of_device();
        }
        let found = self
            .file
            .metadata()
            .map_err(|e| self.error("cannot ask for the size", e, 0))?;
        Ok(found.len())
    }

    fn resize(&self, wanted: u64) -> Result<()> {
        if self.device.is_some() {
            return self.resize_device(wanted);
        }
        let present = self.size()?;
        if wanted > present {
            self.allocate(present, wanted - present)?;
            // Where the file system does not allocate, the size is all there is.
            if self.size()? < wanted {
                self.file
                    .set_len(wanted)
                    .map_err(|e| self.error("cannot grow", e, present))?;
            }
        } else if wanted < present {
            // A reader in another process may have the end mapped: then its bytes go, the size stays.
            let cut = without_readers(&self.file, || self.file.set_len(wanted));
            match cut {
                Some(cut) => cut.map_err(|e| self.error("cannot shrink", e, wanted))?,
                None => self.discard(wanted, present - wanted)?,
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|e| self.error("cannot sync", e, 0))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.give_back(self, offset, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let range = offset..offset.saturating_add(len);
        if self.take_room(&range)? {
            return Ok(());
        }
        // Where the file system cannot allocate it cannot punch holes either: only the growth is missing.
        write_zeros(self, offset.max(self.size()?), range.end)
    }

    fn allocated(&self) -> Result<u64> {
        if self.device.is_some() {
            return self.size();
        }
        let found = self
            .file
            .metadata()
            .map_err(|e| self.error("cannot ask for the size", e, 0))?;
        Ok(found.blocks() * 512)
    }

    fn free(&self) -> Option<u64> {
        let there = rustix::fs::fstatvfs(&self.file).ok()?;
        there.f_bavail.checked_mul(there.f_frsize)
    }

    fn map(&self, capacity: u64) -> Result<Arc<Map>> {
        let least = self.size()?.next_multiple_of(4096).max(1 << 32);
        let share = share_of_addresses().max(2 * least);
        let mut capacity = capacity.max(4096).min(share);
        loop {
            match Map::of_file(&self.file, capacity, self.access == Access::Write) {
                Err(_) if capacity / 2 >= least => capacity = (capacity / 2).next_multiple_of(4096),
                other => return other.map_err(|error| error.at(&self.path)),
            }
        }
    }

    fn map_private(&self, capacity: u64) -> Result<Arc<Map>> {
        Map::private_of_file(&self.file, capacity.max(1)).map_err(|error| error.at(&self.path))
    }

    fn copy_range_to(&self, offset: u64, len: u64, target: &dyn Storage) -> Result<()> {
        let mut done = 0;
        if let Some(other) = target.as_file() {
            while done < len {
                let (mut from, mut to) = (offset + done, offset + done);
                let part = (len - done).min(1 << 30) as usize;
                match rustix::fs::copy_file_range(
                    &self.file,
                    Some(&mut from),
                    &other.file,
                    Some(&mut to),
                    part,
                ) {
                    Ok(0) => break,
                    Ok(copied) => done += copied as u64,
                    Err(Errno::INTR) => {}
                    Err(Errno::NOSPC) => {
                        return Err(Error::io("cannot copy", Errno::NOSPC).at(&other.path));
                    }
                    Err(_) => break,
                }
            }
        }
        super::copy_through_memory(self, offset + done, len - done, target)
    }

    fn drop_cache(&self) -> Result<()> {
        fadvise(&self.file, 0, None, Advice::DontNeed)
            .map_err(|e| self.error("cannot drop the cache", e, 0))
    }

    fn boot_id(&self) -> [u8; 16] {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: Vec<u8> = text
            .chars()
            .filter_map(|digit| digit.to_digit(16))
            .map(|d| d as u8)
            .collect();
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        id
    }

    fn entropy(&self) -> u64 {
        entropy()
    }

    fn take_name(&self) -> Result<()> {
        self.get_name()
    }

    fn has_writer(&self) -> bool {
        self.access == Access::Read && super::file_lock::has_writer(&self.file)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn backing_file(&self) -> Option<(&std::fs::File, u64)> {
        Some((&self.file, 0))
    }

    fn as_file(&self) -> Option<&File> {
        Some(self)
    }
}
