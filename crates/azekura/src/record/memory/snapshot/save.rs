//! Saving: blocks are filled by a scan and written outside of it, one after the other.
//!
//! The scan is broken off when a block is full and resumes from its bookmark, so that no pin or lock of the
//! engine is held while a device is waited for. The file has no name before its last byte is durable.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 look at what has the name: nothing, a snapshot, or an error | the previous snapshot |
//! | 2 make a file without a name; head, blocks, end mark | the previous one |
//! | 3 sync the file | the previous one |
//! | 4 take the name | the previous one or the new one |
//! | 5 sync the folder | the new one |

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::Options;
use super::layout::{Block, Head, WORD, end_mark};
use crate::engine::{Bookmark, Reader};
use crate::error::{Error, Kind, Result};
use crate::format::superblock::MAGIC;
use crate::io::file::Files;
use crate::io::{Access, Directory, Storage};

/// A snapshot that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Records in it.
    pub records: u64,
    /// Size of the file.
    pub bytes: u64,
}

/// Called with (records saved, records there are, about); may cancel the save.
pub type Progress<'p> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'p;

/// Saves the records of `source` to a snapshot at `path`, replacing the one there; `None` if `progress` broke.
///
/// Costs one scan, memory for one block, and one sync. The file is readable by its owner only. Errors:
/// `Mismatch` (something that is no snapshot has the path), `TooLarge` (a key of 2 GiB, a value of 4 GiB),
/// `Full`, `Io`, and what the scan reports. Whatever it returns but `Some`, the previous snapshot is whole and
/// in its place.
pub fn save(
    source: &dyn Reader,
    path: &Path,
    progress: &mut Progress<'_>,
) -> Result<Option<Saved>> {
    let (files, name) = Files::of(path);
    save_to(source, &files, name, &Options::default(), progress)
}

/// As [`save`], to a name in a directory.
pub fn save_to(
    source: &dyn Reader,
    directory: &dyn Directory,
    name: &Path,
    options: &Options,
    progress: &mut Progress<'_>,
) -> Result<Option<Saved>> {
    replaceable(directory, name)?;
    let storage = directory.create_replacing(name)?;
    let saved =
        write(source, &*storage, options, progress).map_err(|error| error.at(storage.path()))?;
    if saved.is_some() {
        storage.take_name()?;
        directory.sync()?;
    }
    Ok(saved)
}

/// Saves in a thread of its own.
///
/// Dropping what it returns stops it, and waits until it has stopped. Errors, besides those of
/// [`wait`](Saving::wait): `Io` if no thread can be made.
pub fn save_in_background(source: Arc<dyn Reader>, path: PathBuf) -> Result<Saving> {
    let shared = Arc::new(Shared::default());
    shared.total.store(source.count(), Ordering::Relaxed);
    let progress = Arc::clone(&shared);
    let work = move || {
        save(&*source, &path, &mut |done, total| {
            progress.done.store(done, Ordering::Relaxed);
            progress.total.store(total, Ordering::Relaxed);
            if progress.stop.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    };
    let thread = std::thread::Builder::new()
        .name("azekura-snapshot".into())
        .spawn(work)
        .map_err(|e| Error::io("cannot start a thread for the snapshot", e))?;
    Ok(Saving {
        thread: Some(thread),
        shared,
    })
}

#[derive(Debug, Default)]
struct Shared {
    done: AtomicU64,
    total: AtomicU64,
    stop: AtomicBool,
}

/// A snapshot that is being written.
#[derive(Debug)]
pub struct Saving {
    thread: Option<JoinHandle<Result<Option<Saved>>>>,
    shared: Arc<Shared>,
}

impl Saving {
    /// Records saved so far, and how many there are about.
    pub fn progress(&self) -> (u64, u64) {
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        (load(&self.shared.done), load(&self.shared.total))
    }

    /// Whether [`wait`](Self::wait) would return at once.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks it to stop before its next block.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for its end; as [`save`], `None` if it was stopped.
    ///
    /// Panics if the engine panicked.
    pub fn wait(mut self) -> Result<Option<Saved>> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(saved)) => saved,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(None),
        }
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop();
            // Who does not wait does not ask how it ended.
            drop(thread.join());
        }
    }
}

/// `Mismatch` if `name` is not free, not empty, and no snapshot, whole or damaged.
fn replaceable(directory: &dyn Directory, name: &Path) -> Result<()> {
    if !directory.exists(name)? {
        return Ok(());
    }
    let old = directory.open(name, Access::Read)?;
    let size = old.size()?;
    if size == 0 {
        return Ok(());
    }
    let mut head = [0; 24];
    if size >= head.len() as u64 {
        old.read_at(0, &mut head)?;
        if head.starts_with(&MAGIC) && head.ends_with(&WORD) {
            return Ok(());
        }
    }
    Err(Error::new(
        Kind::Mismatch,
        "the file there is no snapshot, and is not replaced",
    )
    .at(old.path())
    .remedy("choose another path, or remove it first"))
}

/// Where the file continues.
struct Writer<'s> {
    storage: &'s dyn Storage,
    end: u64,
    size: u64,
}

impl Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        /// Room is taken at least so far ahead, or as much again as there is, but not more than the second.
        const AHEAD: (u64, u64) = (64 << 10, 64 << 20);
        let wanted = self.end + bytes.len() as u64;
        if wanted > self.size {
            self.size = wanted + wanted.clamp(AHEAD.0, AHEAD.1);
            self.storage.resize(self.size)?;
        }
        self.storage.write_at(self.end, bytes)?;
        self.end = wanted;
        Ok(())
    }
}

/// Writes a snapshot to an empty storage and syncs it; `None` if `progress` broke.
fn write(
    source: &dyn Reader,
    storage: &dyn Storage,
    options: &Options,
    progress: &mut Progress<'_>,
) -> Result<Option<Saved>> {
    let head = Head {
        salt: storage.entropy(),
        engine: source.promise().engine.into(),
        order: source
            .as_ordered()
            .map(|ordered| ordered.order_name().into()),
    };
    let seed = head.seed();
    let mut writer = Writer {
        storage,
        end: 0,
        size: 0,
    };
    writer.write(&head.slot())?;
    let (mut block, mut sum) = (Block::default(), 0);
    let (mut blocks, mut records) = (0, 0);
    let mut from = None;
    loop {
        if progress(records, source.count().max(records)).is_break() {
            return Ok(None);
        }
        block.clear(options.block_size);
        from = fill(source, from.as_ref(), options, &mut block)?;
        if !block.is_empty() {
            records += u64::from(block.count());
            writer.write(block.seal(seed, blocks, &mut sum))?;
            blocks += 1;
        }
        if from.is_none() {
            break;
        }
    }
    writer.write(&end_mark(seed, blocks, records, sum))?;
    storage.resize(writer.end)?;
    storage.sync()?;
    // The last moment to stop: from here on it is the snapshot.
    if progress(records, records).is_break() {
        return Ok(None);
    }
    Ok(Some(Saved {
        records,
        bytes: writer.end,
    }))
}

/// Fills a block from `from` on; where to resume, or `None` at the end.
fn fill(
    source: &dyn Reader,
    from: Option<&Bookmark>,
    options: &Options,
    block: &mut Block,
) -> Result<Option<Bookmark>> {
    let mut failed = Ok(());
    let mut push = |key: &[u8], value: &[u8], expires_ms| {
        failed = block.push(key, value, expires_ms);
        if failed.is_err() || block.len() >= options.block_size {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let next = match source.as_expiring() {
        None => source.scan(from, &mut |key, value| push(key, value, None)),
        Some(expiring) => {
            let now = (options.now_ms)();
            expiring.scan_with_time_left(from, &mut |key, value, left| {
                let at = left.map(|left| now.saturating_add(left.as_millis() as u64));
                push(key, value, at)
            })
        }
    }?;
    failed?;
    Ok(next)
}
