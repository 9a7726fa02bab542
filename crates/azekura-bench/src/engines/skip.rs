//! Sorted files, as a store: sets and removals go to a builder, which the end of the phase makes a file of.
//!
//! Options are the defaults. A phase that writes merges what was there before, and replaces the file; threads share the builder
//! by a lock. What was removed in a phase is remembered here, since each removal states whether the record was there.
//! It knows nothing of workloads.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use azekura::Reader as _;
use azekura::engine::{Cursor as _, Durability};
use azekura::error::Result;
use azekura::io::Directory as _;
use azekura::io::file::Files;
use azekura::record::skip::{BuildOptions, SkipBuilder, SkipCursor, SkipReader};

use crate::target::{Setup, Target, copy_found};

/// What is being written.
#[derive(Default)]
struct Writing {
    builder: Option<SkipBuilder>,
    removed: HashSet<Box<[u8]>>,
}

/// A sorted file, and what is to become the next one.
pub struct Skip {
    path: PathBuf,
    file: Option<Arc<SkipReader>>,
    writing: Mutex<Writing>,
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
    fn write<T>(
        &self,
        write: impl FnOnce(&mut Writing, &mut SkipBuilder) -> Result<T>,
    ) -> Result<T> {
        let mut writing = self.writing.lock().expect("no thread panics in it");
        let mut builder = match writing.builder.take() {
            Some(builder) => builder,
            None => self.begin()?,
        };
        let written = write(&mut writing, &mut builder);
        writing.builder = Some(builder);
        written
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
    type Position<'t> = Option<SkipCursor<'t>>;

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
        self.write(|_, builder| builder.put(key, value))
    }

    fn set_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.write(|_, builder| {
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
        let was_there = self.has(key)?;
        self.write(|writing, builder| {
            let is_there = was_there && writing.removed.insert(key.into());
            if is_there {
                builder.remove(key)?;
            }
            Ok(is_there)
        })
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

    fn records(&self) -> Option<u64> {
        Some(self.records.load(Ordering::Relaxed))
    }

    fn sync(&self, _: Durability) -> Result<()> {
        let mut writing = self.writing.lock().expect("no thread panics in it");
        // A phase that wrote nothing leaves a file, too.
        let builder = match writing.builder.take() {
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
