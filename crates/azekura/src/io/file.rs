//! Files through the page cache.
//!
//! [`File`] is one open file with its lock; [`Files`] is a folder of them. New files are private to their
//! owner (mode 0600), links are not followed, and anything but a regular file is refused by name. It
//! keeps the promises of `Storage`, and knows nothing of formats.
//!
//! A file without a name is one that the system forgets with its last handle (`O_TMPFILE`). Where the file
//! system has none, it stands beside its name as `.NAME.` and sixteen digits and `.new`; what a dead process
//! left of that kind is removed when the next file is made for that name: its lock says that nobody makes
//! it any more.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Advice, AtFlags, CWD, FallocateFlags, RenameFlags, fadvise, fallocate};
use rustix::io::{Errno, ReadWriteFlags};

use super::file_lock::{FileLock, without_readers};
use super::{Access, Directory, Map, Storage};
use crate::error::{Error, Kind, Result, size};

/// An open file.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "the system's file, inside ours")]
pub struct File {
    pub(super) file: std::fs::File,
    path: PathBuf,
    access: Access,
    lock: FileLock,
    /// Where it stands until it takes its name.
    nameless: Mutex<Option<Nameless>>,
    /// Whether it takes its name from who has it.
    replaces: bool,
}

#[derive(Debug)]
enum Nameless {
    /// Nowhere: it is gone with its handle.
    Unlinked,
    /// Under this other name.
    Beside(PathBuf),
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(Nameless::Beside(beside)) = self.nameless.get_mut() {
            // Left behind it costs room until the next file is made for that name.
            let _ = std::fs::remove_file(beside);
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

    /// Makes a new file for `path` that has no name yet, and locks it for writing. `Invalid` if the name
    /// exists. It gets it with [`take_name`](Storage::take_name), or is gone with its handle.
    pub fn create_nameless(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if present(path)? {
            return Err(not_made(path, ErrorKind::AlreadyExists.into()));
        }
        Self::unlinked(path)?.map_or_else(|| Self::beside(path), Ok)
    }

    /// As [`create_nameless`](Self::create_nameless), but `path` may be a file already, which it then
    /// replaces: renamed over it, at every moment the name leads to the one or the other, whole. `Mismatch`
    /// if `path` is anything but a file.
    pub fn create_replacing(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        present(path)?;
        // A file that dies between its two names leaves the first: it is removed here.
        remove_dead(path);
        let mut file = Self::unlinked(path)?.map_or_else(|| Self::beside(path), Ok)?;
        file.replaces = true;
        Ok(file)
    }

    /// `None`: the file system has no files without names, or none that can get one.
    fn unlinked(path: &Path) -> Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC);
        let file = match options.open(folder_of(path)) {
            Ok(file) => file,
            Err(error) => match error.raw_os_error() {
                Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL) => return Ok(None),
                _ => return Err(not_made(path, error)),
            },
        };
        if std::fs::symlink_metadata(descriptor_of(&file)).is_err() {
            return Ok(None);
        }
        let file = Self::locked(file, path, Access::Write)?;
        *file.nameless.lock() = Some(Nameless::Unlinked);
        Ok(Some(file))
    }

    fn beside(path: &Path) -> Result<Self> {
        remove_dead(path);
        loop {
            let beside = name_beside(path);
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            let file = options.open(&beside).map_err(|e| not_made(path, e))?;
            // Somebody else may take it for a dead process's, lock it and remove it, until it is locked.
            match Self::locked(file, path, Access::Write) {
                Ok(file) if file.file.metadata().is_ok_and(|found| found.nlink() > 0) => {
                    *file.nameless.lock() = Some(Nameless::Beside(beside));
                    return Ok(file);
                }
                Err(error) if error.kind() != Kind::Locked => return Err(error),
                _ => {}
            }
        }
    }

    /// Opens a file. `Locked` if `access` is `Write` and it is open for writing anywhere.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write);
        Self::with(path.as_ref(), &mut options, access, refused)
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
        Ok(Self {
            file,
            path: path.to_path_buf(),
            access,
            lock,
            nameless: Mutex::new(None),
            replaces: false,
        })
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

    /// Makes the name of a file that has one this file's own, from whomever has it.
    fn replace(&self, beside: &Path) -> std::result::Result<(), Errno> {
        rustix::fs::rename(beside, &self.path)
    }

    /// As `replace`, for a file without any name. It has another in between.
    fn link_and_replace(&self) -> std::result::Result<(), Errno> {
        let beside = name_beside(&self.path);
        let descriptor = descriptor_of(&self.file);
        rustix::fs::linkat(CWD, &descriptor, CWD, &beside, AtFlags::SYMLINK_FOLLOW)?;
        self.replace(&beside).inspect_err(|_| {
            // Left behind it costs room until the next file is made for that name.
            let _ = std::fs::remove_file(&beside);
        })
    }

    fn write_zeros(&self, from: u64, to: u64) -> Result<()> {
        let zeros = vec![0; to.saturating_sub(from).min(1 << 20) as usize];
        let mut at = from;
        while at < to {
            let part = (to - at).min(1 << 20);
            self.write_at(at, &zeros[..part as usize])?;
            at += part;
        }
        Ok(())
    }

    fn error(&self, what: &str, source: impl Into<std::io::Error>, offset: u64) -> Error {
        Error::io(what, source).at(&self.path).offset(offset)
    }
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

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The system's own name of an open file, through which it can be linked.
fn descriptor_of(file: &std::fs::File) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

const END_BESIDE: &str = ".new";

/// How the names begin under which new files stand that are meant for `path`.
fn beginning_beside(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    format!(".{}.", name.to_string_lossy())
}

/// Another such name.
fn name_beside(path: &Path) -> PathBuf {
    let digits = format!("{:016x}", entropy());
    folder_of(path).join([&*beginning_beside(path), &digits, END_BESIDE].concat())
}

/// Removes what dead processes left beside `path`.
fn remove_dead(path: &Path) {
    for left in left_beside(path) {
        // Its lock is free: who made it is dead, or has not locked it yet and will look again.
        if let Ok(dead) = File::open(&left, Access::Write) {
            let _ = std::fs::remove_file(&left);
            drop(dead);
        }
    }
}

/// What stands beside `path` under such a name.
fn left_beside(path: &Path) -> Vec<PathBuf> {
    let beginning = beginning_beside(path);
    let is_ours = |name: &str| {
        let digits = name.strip_prefix(&beginning)?.strip_suffix(END_BESIDE)?;
        (digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(())
    };
    let entries = std::fs::read_dir(folder_of(path));
    let entries = entries.into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().and_then(is_ours).is_some())
        .map(|entry| entry.path())
        .collect()
}

/// A number nobody can guess.
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
                .remedy("open it, or remove it first")
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
        let found = self
            .file
            .metadata()
            .map_err(|e| self.error("cannot ask for the size", e, 0))?;
        Ok(found.len())
    }

    fn resize(&self, wanted: u64) -> Result<()> {
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
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(&self.file, flags, offset, len) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(error) => return Err(self.error("cannot give space back", error, offset)),
            }
        }
        // Space that cannot be given back must still read as zeros.
        let end = offset.saturating_add(len).min(self.size()?);
        self.write_zeros(offset, end)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        loop {
            match fallocate(&self.file, FallocateFlags::empty(), offset, len) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(error) => {
                    let what = format!("cannot allocate {}", size(len));
                    return Err(self.error(&what, error, offset));
                }
            }
        }
        // Where the file system cannot allocate it cannot punch holes either: only the growth is missing.
        self.write_zeros(offset.max(self.size()?), offset.saturating_add(len))
    }

    fn allocated(&self) -> Result<u64> {
        let found = self
            .file
            .metadata()
            .map_err(|e| self.error("cannot ask for the size", e, 0))?;
        Ok(found.blocks() * 512)
    }

    fn map(&self, capacity: u64) -> Result<Arc<Map>> {
        let least = self.size()?.next_multiple_of(4096).max(1 << 32);
        let mut capacity = capacity.max(4096);
        loop {
            match Map::of_file(&self.file, capacity, self.access == Access::Write) {
                Err(_) if capacity / 2 >= least => capacity = (capacity / 2).next_multiple_of(4096),
                other => return other.map_err(|error| error.at(&self.path)),
            }
        }
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
        let mut nameless = self.nameless.lock();
        let done = match &*nameless {
            None => return Ok(()),
            Some(Nameless::Unlinked) if self.replaces => self.link_and_replace(),
            Some(Nameless::Beside(beside)) if self.replaces => self.replace(beside),
            Some(Nameless::Unlinked) => {
                let descriptor = descriptor_of(&self.file);
                rustix::fs::linkat(CWD, &descriptor, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)
            }
            Some(Nameless::Beside(beside)) => {
                let flags = RenameFlags::NOREPLACE;
                match rustix::fs::renameat_with(CWD, beside, CWD, &self.path, flags) {
                    Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                        rustix::fs::linkat(CWD, beside, CWD, &self.path, AtFlags::empty())
                            .and_then(|()| rustix::fs::unlink(beside))
                    }
                    other => other,
                }
            }
        };
        done.map_err(|error| match error {
            Errno::EXIST => not_made(&self.path, error.into()),
            _ => Error::io("cannot give the file its name", error).at(&self.path),
        })?;
        *nameless = None;
        Ok(())
    }

    fn has_writer(&self) -> bool {
        self.access == Access::Read && super::file_lock::has_writer(&self.file)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn as_file(&self) -> Option<&File> {
        Some(self)
    }
}

/// Makes the name of `path` durable: syncs the folder it is in.
pub fn sync_directory(path: impl AsRef<Path>) -> Result<()> {
    sync_folder(folder_of(path.as_ref()))
}

fn sync_folder(folder: &Path) -> Result<()> {
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| Error::io("cannot sync the folder", e).at(folder))
}

/// Removes a file.
pub fn remove(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    std::fs::remove_file(path).map_err(|e| Error::io("cannot remove", e).at(path))
}

/// A folder of files.
#[derive(Clone, Debug)]
pub struct Files(PathBuf);

impl Files {
    /// The folder at `path`, which must exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The folder a path lies in, and its name there.
    pub fn of(path: &Path) -> (Self, &Path) {
        match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => (Self::new(folder), Path::new(name)),
            // A root, or a way up: there is no file of that name.
            _ => (Self::new(""), path),
        }
    }
}

impl Directory for Files {
    fn create(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(File::create(self.0.join(name))?))
    }

    fn create_nameless(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(File::create_nameless(self.0.join(name))?))
    }

    fn create_replacing(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(File::create_replacing(self.0.join(name))?))
    }

    fn open(&self, name: &Path, access: Access) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(File::open(self.0.join(name), access)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
            .map_err(|e| Error::io("cannot rename", e).at(self.0.join(from)))
    }

    fn remove(&self, name: &Path) -> Result<()> {
        std::fs::remove_file(self.0.join(name))
            .map_err(|e| Error::io("cannot remove", e).at(self.0.join(name)))
    }

    fn exists(&self, name: &Path) -> Result<bool> {
        let path = self.0.join(name);
        path.try_exists()
            .map_err(|e| Error::io("cannot look for the file", e).at(path))
    }

    fn list(&self) -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(&self.0)
            .map_err(|e| Error::io("cannot list the folder", e).at(&self.0))?;
        let mut names: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.file_name().into())
            .collect();
        names.sort();
        Ok(names)
    }

    fn sync(&self) -> Result<()> {
        sync_folder(if self.0.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &self.0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a");
        (folder, path)
    }

    #[test]
    fn what_was_replaced_before_it_was_locked_is_not_written_to() {
        let (_folder, path) = folder();
        drop(File::create(&path).unwrap());
        let other = path.with_extension("other");
        std::fs::write(&other, b"the new one").unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = File::with_between(&path, &mut options, Access::Write, refused, &mut || {
            // Only the first time: then there is no other file any more.
            let _ = std::fs::rename(&other, &path);
        });
        assert_eq!(file.unwrap().size().unwrap(), 11);
    }

    #[test]
    fn what_is_written_is_read_through_file_and_map_alike() {
        let (_folder, path) = folder();
        let file = File::create(&path).unwrap();
        file.resize(8192).unwrap();
        file.write_at(4000, b"across pages").unwrap();
        let map = file.map(1 << 30).unwrap();
        let mut seen = [0; 16];
        map.copy_out(4000, &mut seen);
        assert_eq!(&seen[..12], b"across pages");
        map.store_u64(8, 0x0102_0304_0506_0708);
        file.read_at(8, &mut seen[..8]).unwrap();
        assert_eq!(seen[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        file.sync().unwrap();
        file.drop_cache().unwrap();
        file.resize(16384).unwrap();
        map.store_u64(16376, 1);
        assert_eq!(map.load_u64(8192), 0);
    }

    #[test]
    fn growing_allocates_discarding_gives_back_and_both_read_as_zeros() {
        let (_folder, path) = folder();
        let file = File::create(&path).unwrap();
        file.resize(1 << 20).unwrap();
        assert!(file.allocated().unwrap() >= 1 << 20);
        file.write_at(0, &vec![7; 65536]).unwrap();
        file.discard(0, 65536).unwrap();
        file.discard(0, 0).unwrap();
        let mut seen = vec![1; 65536];
        file.read_at(0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 0));
        file.resize(4096).unwrap();
        assert_eq!(file.size().unwrap(), 4096);
        let error = file.read_at(4090, &mut seen[..10]).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted);
        assert!(
            error.to_string().ends_with(" offset 0xffa (10 B wanted)"),
            "{error}"
        );
    }

    #[test]
    fn a_reader_keeps_its_pages_when_the_writer_shrinks_the_file() {
        let (_folder, path) = folder();
        let file = File::create(&path).unwrap();
        file.resize(8192).unwrap();
        let reader = File::open(&path, Access::Read).unwrap();
        file.resize(4096).unwrap();
        assert_eq!(reader.size().unwrap(), 8192);
        drop(reader);
        file.resize(4096).unwrap();
        assert_eq!(file.size().unwrap(), 4096);
    }

    #[test]
    fn new_files_are_private_and_names_are_taken_once() {
        let (_folder, path) = folder();
        let file = File::create(&path).unwrap();
        assert_eq!(file.file.metadata().unwrap().mode() & 0o777, 0o600);
        let error = File::create(&path).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        let wanted = format!(
            "invalid: there is already a file of that name at {}; open it, or remove it first",
            path.display()
        );
        assert_eq!(error.to_string(), wanted);
    }

    /// A file for `path` of each make.
    fn nameless(path: &Path) -> Vec<File> {
        let mut files = vec![File::beside(path).unwrap()];
        files.extend(File::unlinked(path).unwrap());
        files
    }

    #[test]
    fn a_file_without_a_name_appears_whole_and_locked() {
        let (folder, path) = folder();
        for file in nameless(&path) {
            file.resize(4096).unwrap();
            file.write_at(0, b"whole").unwrap();
            assert!(File::open(&path, Access::Read).is_err());
            file.take_name().unwrap();
            file.take_name().unwrap();
            assert_eq!(std::fs::read(&path).unwrap()[..5], *b"whole");
            assert_eq!(file.file.metadata().unwrap().mode() & 0o777, 0o600);
            let error = File::open(&path, Access::Write).unwrap_err();
            assert_eq!(error.kind(), Kind::Locked);
            assert!(File::open(&path, Access::Read).unwrap().has_writer());
            let error = File::create_nameless(&path).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            drop(file);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
            std::fs::remove_file(&path).unwrap();
        }
        let error = File::create_nameless(folder.path()).unwrap_err();
        assert_eq!(error.kind(), Kind::Mismatch);
        let nowhere = folder.path().join("none/a");
        assert_eq!(File::create_nameless(nowhere).unwrap_err().kind(), Kind::Io);
    }

    #[test]
    fn who_comes_second_to_a_name_replaces_nothing_and_leaves_nothing() {
        let (folder, path) = folder();
        for file in nameless(&path) {
            std::fs::write(&path, b"the first").unwrap();
            let error = file.take_name().unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains("already a file"), "{error}");
            drop(file);
            assert_eq!(std::fs::read(&path).unwrap(), b"the first");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_file_that_replaces_another_takes_its_name_when_it_is_whole() {
        let (folder, path) = folder();
        for mut file in nameless(&path) {
            file.replaces = true;
            std::fs::write(&path, b"the first").unwrap();
            let reader = File::open(&path, Access::Read).unwrap();
            file.resize(10).unwrap();
            file.write_at(0, b"the second").unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"the first");
            file.take_name().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"the second");
            let mut kept = [0; 9];
            reader.read_at(0, &mut kept).unwrap();
            assert_eq!(&kept, b"the first");
            drop(file);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        }
        // One that never is whole leaves the other, and nothing of itself.
        drop(File::create_replacing(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"the second");
        // What died between its two names is found by the next.
        let dead = folder.path().join(".a.0123456789abcdef.new");
        std::fs::write(&dead, b"half").unwrap();
        let next = File::create_replacing(&path).unwrap();
        next.take_name().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let error = File::create_replacing(folder.path()).unwrap_err();
        assert_eq!(error.kind(), Kind::Mismatch);
    }

    #[test]
    fn what_a_dead_process_left_beside_a_name_goes_and_what_a_living_one_makes_stays() {
        let (folder, path) = folder();
        let dead = folder.path().join(".a.0123456789abcdef.new");
        let others = [
            ".a.new",
            ".b.0123456789abcdef.new",
            ".a.0123456789abcdeg.new",
        ];
        std::fs::write(&dead, b"half").unwrap();
        for name in others {
            std::fs::write(folder.path().join(name), b"not ours").unwrap();
        }
        let living = File::beside(&path).unwrap();
        assert!(!dead.exists());
        let second = File::beside(&path).unwrap();
        second.take_name().unwrap();
        assert_eq!(left_beside(&path).len(), 1);
        assert_eq!(living.take_name().unwrap_err().kind(), Kind::Invalid);
        drop(living);
        assert_eq!(left_beside(&path), Vec::<PathBuf>::new());
        for name in others {
            assert!(folder.path().join(name).exists());
        }
    }

    #[test]
    fn a_durable_write_is_read_like_any_other() {
        let (_folder, path) = folder();
        let file = File::create(&path).unwrap();
        file.resize(8192).unwrap();
        let map = file.map(1 << 30).unwrap();
        map.store_u64(4096, 7);
        file.write_durably(4092, &[1, 2, 3, 4]).unwrap();
        file.write_durably(0, &[]).unwrap();
        assert_eq!(
            (map.load_u64(4088) >> 32, map.load_u64(4096)),
            (0x0403_0201, 7)
        );
    }

    #[test]
    fn folders_links_and_pipes_are_refused_by_name() {
        let (folder, path) = folder();
        drop(File::create(&path).unwrap());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let refusals = [
            (folder.path(), "found a directory"),
            (&link, "found a symbolic link"),
            (&pipe, "found a pipe, socket or device"),
        ];
        for (path, found) in refusals {
            let error = File::open(path, Access::Read).unwrap_err();
            assert_eq!(error.kind(), Kind::Mismatch);
            assert!(error.to_string().contains(found), "{error}");
        }
        let error = File::open(folder.path().join("none"), Access::Write).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("io: there is no such file at "),
            "{error}"
        );
    }

    #[test]
    fn ranges_are_copied_between_files_and_to_memory() {
        let (folder, path) = folder();
        let from = File::create(&path).unwrap();
        from.resize(8192).unwrap();
        from.write_at(1000, &[9; 5000]).unwrap();
        let to = File::create(folder.path().join("b")).unwrap();
        to.resize(8192).unwrap();
        from.copy_range_to(1000, 5000, &to).unwrap();
        let memory = crate::io::memory::Memory::new(8192).unwrap();
        memory.resize(8192).unwrap();
        from.copy_range_to(1000, 5000, memory.as_ref()).unwrap();
        let mut wanted = vec![0; 8192];
        wanted[1000..6000].fill(9);
        let mut seen = vec![1; 8192];
        to.read_at(0, &mut seen).unwrap();
        assert!(seen == wanted && memory.to_vec() == wanted);
    }

    #[test]
    fn a_folder_renames_removes_and_lists() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(folder.path());
        let (a, b) = (Path::new("a"), Path::new("b"));
        drop(files.create(a).unwrap());
        assert!(files.exists(a).unwrap());
        files.rename(a, b).unwrap();
        files.sync().unwrap();
        let error = Files::new(folder.path().join("none")).sync().unwrap_err();
        assert_eq!(error.kind(), Kind::Io, "it is this folder that is synced");
        let (parent, name) = Files::of(Path::new("b"));
        assert_eq!(name, b);
        parent.sync().unwrap();
        assert_eq!(files.list().unwrap(), [b]);
        files.remove(b).unwrap();
        assert!(!files.exists(b).unwrap());
        assert_eq!(files.remove(b).unwrap_err().kind(), Kind::Io);
    }

    #[test]
    fn the_boot_is_the_same_for_every_file_and_entropy_is_not() {
        let (folder, path) = folder();
        let a = File::create(&path).unwrap();
        let b = File::create(folder.path().join("b")).unwrap();
        assert_eq!(a.boot_id(), b.boot_id());
        assert_ne!(a.entropy(), b.entropy());
    }
}
