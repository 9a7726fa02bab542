//! Block devices, opened as files are.
//!
//! A device is opened by its own name, or by a link below `/dev` to it: those are its lasting names. A writer has it for
//! itself: the system refuses any other exclusive opener, a mount included, and the lock of files names the writer. It has
//! the size it has, so it neither grows nor shrinks, and all of its space is taken. What is given back must lie in whole
//! blocks of the device; the rest is written with zeros.
//!
//! It does not know what is on it.

use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, ioctl_blksszget, seek};

use super::{File, refused};
use crate::error::{Error, Kind, Result, size};
use crate::io::Access;
use crate::io::aligned::ALIGNMENT;
use crate::io::file_lock::FileLock;

/// What a device reports of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    /// What it reads and writes as a whole, but a page at least.
    pub(super) block: u64,
}

/// The device that `path` names, if it does.
pub(super) fn device_at(path: &Path) -> Option<PathBuf> {
    let found = std::fs::symlink_metadata(path).ok()?;
    if found.file_type().is_block_device() {
        return Some(path.to_path_buf());
    }
    if !found.file_type().is_symlink() {
        return None;
    }
    // Elsewhere, or where everybody may make one, a link is not to be trusted.
    let folder = path.parent()?.canonicalize().ok()?;
    let is_trusted = folder.starts_with("/dev") && !folder.starts_with("/dev/shm");
    let device = path.canonicalize().ok()?;
    let is_device =
        std::fs::symlink_metadata(&device).is_ok_and(|f| f.file_type().is_block_device());
    (is_trusted && is_device).then_some(device)
}

impl File {
    /// Opens the device that `path` names. `Locked` if it is mounted or written by another process.
    pub(super) fn open_device(path: &Path, device: &Path, access: Access) -> Result<Self> {
        let exclusive = if access == Access::Write {
            libc::O_EXCL
        } else {
            0
        };
        let file = OpenOptions::new()
            .read(true)
            .write(access == Access::Write)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | exclusive)
            .open(device)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => Error::new(Kind::Locked, "the device is in use")
                    .at(path)
                    .remedy("unmount it, or stop the program that has it open"),
                _ => refused(path, error),
            })?;
        let found = file
            .metadata()
            .map_err(|e| Error::io("cannot look at the device", e).at(path))?;
        if !found.file_type().is_block_device() {
            return Err(Error::new(Kind::Mismatch, "no block device any more").at(path));
        }
        let reported = ioctl_blksszget(&file)
            .map_err(|e| Error::io("cannot ask for the size of a block", e).at(path))?;
        // One device, whatever names it has.
        let lock = FileLock::take(&file, (u64::MAX, found.rdev()), access, path)?;
        let mut opened = Self::of(file, path, access, lock);
        let block = u64::from(reported).max(ALIGNMENT);
        opened.device = Some(Device { block });
        Ok(opened)
    }

    /// The block of the device it is, if it is one.
    pub(in crate::io) fn device_block(&self) -> Option<u64> {
        self.device.as_ref().map(|device| device.block)
    }

    pub(super) fn size_of_device(&self) -> Result<u64> {
        seek(&self.file, SeekFrom::End(0)).map_err(|e| self.error("cannot ask for the size", e, 0))
    }

    /// `Full` beyond the size of the device.
    pub(super) fn fits_device(&self, wanted: u64) -> Result<()> {
        let present = self.size_of_device()?;
        if wanted > present {
            return Err(Error::new(Kind::Full, "a device does not grow")
                .at(&self.path)
                .found(size(wanted), size(present))
                .remedy("use no more than it has, or a larger one"));
        }
        Ok(())
    }

    /// `Full` or `Invalid` unless it is the size the device has.
    pub(super) fn resize_device(&self, wanted: u64) -> Result<()> {
        self.fits_device(wanted)?;
        let present = self.size_of_device()?;
        if wanted < present {
            return Err(Error::new(Kind::Invalid, "a device does not shrink")
                .at(&self.path)
                .found(size(wanted), size(present))
                .remedy("use all of it, or a part by a region"));
        }
        Ok(())
    }
}

/// The whole blocks in a range; none at its beginning if there are none.
pub(super) fn whole_blocks(range: Range<u64>, block: u64) -> Range<u64> {
    let start = range.start.next_multiple_of(block);
    let end = range.end - range.end % block;
    if start < end {
        start..end
    } else {
        range.start..range.start
    }
}
