//! Sorted files, as a store: sets and removals go to a builder, which the end of the phase makes a file of.
//!
//! Options are the defaults. A phase that writes merges what was there before, and replaces the file; threads share the builder
//! by a lock. A removal writes a mark and does not look, so its answer is always yes. Until the end of the phase nothing
//! survives the process. It knows nothing of workloads.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use azekura::Reader as _;
use azekura::engine::{Cursor as _, Durability};
use azekura::error::Result;
use azekura::io::Directory as _;
use azekura::io::file::Files;
use azekura::record::skip::{BuildOptions, SkipBuilder, SkipCursor, SkipReader};

use crate::phase::Class;
use crate::target::{Setup, Target, copy_found};

/// A sorted file, and what is to become the next one.
pub struct Skip {
    path: PathBuf,
    file: Option<Arc<SkipReader>>,
    /// Begun by the first write of a phase.
    writing: Mutex<Option<SkipBuilder>>,
    records: AtomicU64,
}

impl Skip {
    fn of(path: &Path, file: Option<Arc<SkipReader>>) -> Self {
        Self {
            path: path.to_path_buf(),
            records: AtomicU64::new(file.as_ref().map_or(0, |file| file.count())),
            file,
            writing: Mutex::default(),
        }
    }

    fn next_path(&self) -> PathBuf {
        self.path.with_extension("next")
    }

    /// Calls `write` with the builder, alone.
    #[inline]
    fn write<T>(&self, write: impl FnOnce(&mut SkipBuilder) -> Result<T>) -> Result<T> {
        let mut writing = self.writing.lock().expect("no thread panics in it");
        let builder = match &mut *writing {
            Some(builder) => builder,
            none => none.insert(self.begin()?),
        };
        write(builder)
    }

    fn begin(&self) -> Result<SkipBuilder> {
        let mut builder = SkipBuilder::create(self.next_path(), &BuildOptions::new())?;
        if let Some(file) = &self.file {
            builder.merge(file)?;
        }
        Ok(builder)
    }

    #[inline]
    fn read<T>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        match &self.file {
            Some(file) => file.read_with(key, visit),
            None => Ok(visit(None)),
        }
    }
}

impl Target for Skip {
    const NAME: &'static str = "skip";
    const PERSISTENT: bool = true;
    const COUNTS_REMOVALS: bool = false;
    const ORDERED: bool = true;
    type Position<'t> = Option<SkipCursor<'t>>;

    fn class(_: Durability) -> Class {
        Class::Buffered
    }
    fn open(setup: &Setup) -> Result<Self> {
        let path = setup.require_path()?;
        let file = if setup.create {
            None
        } else {
            Some(Arc::new(SkipReader::open(path)?))
        };
        Ok(Self::of(path, file))
    }

    fn close(self) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(|builder| builder.put(key, value))
    }

    fn set_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.write(|builder| {
            let mut records = records.iter();
            records.try_for_each(|(key, value)| builder.put(key, value))
        })
    }

    #[inline]
    fn has(&self, key: &[u8]) -> Result<bool> {
        self.read(key, |value| value.is_some())
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.read(key, |found| copy_found(found, value))
    }

    fn has_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize)) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.read_many(keys, &mut |index, value| {
            if value.is_some() {
                hit(index);
            }
        })
    }

    fn get_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize, &[u8])) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.read_many(keys, &mut |index, value| {
            if let Some(value) = value {
                hit(index, value);
            }
        })
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.write(|builder| builder.remove(key))?;
        Ok(true)
    }

    fn position(&self) -> Result<Self::Position<'_>> {
        Ok(self.file.as_ref().map(|file| file.cursor()))
    }

    fn jump(
        &self,
        position: &mut Self::Position<'_>,
        key: &[u8],
        visit: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        if let Some(cursor) = position {
            cursor.seek(key)?;
            if let Some((key, value)) = cursor.get() {
                visit(key, value);
            }
        }
        Ok(())
    }

    fn scan(&self, visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.scan(None, &mut |key, value| {
            visit(key, value);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    fn records(&self) -> Option<u64> {
        Some(self.records.load(Ordering::Relaxed))
    }

    fn sync(&self, _: Durability) -> Result<()> {
        let mut writing = self.writing.lock().expect("no thread panics in it");
        // A phase that wrote nothing leaves a file, too.
        let builder = match writing.take() {
            Some(builder) => builder,
            None if self.file.is_none() => self.begin()?,
            None => return Ok(()),
        };
        let file = builder.finish(&mut |_, _| {})?;
        self.records.store(file.count(), Ordering::Relaxed);
        let next = self.next_path();
        let (folder, name) = Files::of(&self.path);
        folder.rename(Path::new(next.file_name().unwrap_or_default()), name)?;
        folder.sync()
    }
}
