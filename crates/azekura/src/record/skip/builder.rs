//! Building a sorted file from records in any order.
//!
//! ```text
//!   put, remove --> arena --> second thread: sort --> runs in a nameless file --.
//!   merge(file) ------------------------------------------------------------->  tournament --> reducer --> writer
//!   put, promised sorted ------------------------------------------------------------------------^
//! ```
//!
//! Records of equal keys are reduced in the order in which they came; a file that is merged comes where `merge` was called. The file
//! appears when it is whole and synced. A builder that is dropped, or whose process dies, leaves nothing.
//!
//! Memory: two arenas of half of `memory` each while records come; at the end one of them, and a quarter of `memory` for blocks of
//! runs, or two blocks, where one has a longer record. So few runs are merged at once; more are merged in passes, neighbours with
//! neighbours. Besides, 10 MiB of the writer, the values of one key, and one record that is longer than an arena.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arena::Put;
use super::cursor::SkipCursor;
use super::limits;
use super::merge::{Merge, Source};
use super::reader::SkipReader;
use super::reduce::{Reducer, Reduction};
use super::sorter::{Piece, RunReader, Sorter, Spill};
use super::writer::Writer;
use crate::engine::Cursor as _;
use crate::error::{Error, Kind, Result, quote, size};
use crate::io::file::Files;
use crate::io::{Directory, Storage, publish};
use crate::order::Order;

/// Least memory.
const MEMORY_MIN: u64 = 64 << 10;
/// The part of the memory for blocks of runs that are merged.
const MERGE_PART: u64 = 4;
/// Records between two calls of `progress`.
const PROGRESS: u64 = 1 << 14;

/// How a file is built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BuildOptions {
    /// The order of keys, which the file keeps.
    pub order: Order,
    /// What is stored of several values of one key; the last by default.
    pub reducer: Reducer,
    /// Bytes of records in memory, 64 KiB or more; 256 MiB by default. More are sorted in parts, in a file in the folder of the target
    /// that has no name, and takes their size and 8 bytes a record, at most twice.
    pub memory: u64,
    /// A promise that records come in the order of their keys: nothing is sorted. A record that breaks it is refused, with its number,
    /// and then there is no file.
    pub is_sorted: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            order: Order::default(),
            reducer: Reducer::default(),
            memory: 256 << 20,
            is_sorted: false,
        }
    }
}

setters! {
    BuildOptions {
        order: Order,
        reducer: Reducer,
        memory: u64,
        is_sorted: bool,
    }
}

/// Where records go before the end.
enum Stage {
    /// They are sorted.
    Sort(Sorter),
    /// They are in order.
    Write(Writer, Reduction),
    /// One of them was refused.
    Refused,
}

/// A sorted file that is being built. See the module's text.
pub struct SkipBuilder {
    directory: Box<dyn Directory>,
    name: PathBuf,
    storage: Arc<dyn Storage>,
    options: BuildOptions,
    stage: Stage,
    /// Records and removals that came.
    taken: u64,
    /// Records of files that are merged.
    merged: u64,
}

impl std::fmt::Debug for SkipBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkipBuilder")
            .field("name", &self.name)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl SkipBuilder {
    /// Begins a new file. `Invalid` if there is something of that name, or an option is out of range; `Io`.
    pub fn create(path: impl AsRef<Path>, options: &BuildOptions) -> Result<Self> {
        let (directory, name) = Files::of(path.as_ref());
        Self::create_in(Box::new(directory), name, options)
    }

    /// As [`create`](Self::create), in any directory.
    pub fn create_in(
        directory: Box<dyn Directory>,
        name: &Path,
        options: &BuildOptions,
    ) -> Result<Self> {
        if options.memory < MEMORY_MIN {
            let least = format!("{} or more", size(MEMORY_MIN));
            return Err(Error::new(Kind::Invalid, "too little memory to sort in")
                .at(name)
                .found(size(options.memory), least)
                .remedy("give it more memory"));
        }
        let storage = directory.create_nameless(name)?;
        let stage = if options.is_sorted {
            let writer = Writer::new(&storage, options.order)?;
            Stage::Write(
                writer,
                Reduction::new(options.reducer.clone(), options.order),
            )
        } else {
            Stage::Sort(Sorter::new(options.order, options.memory))
        };
        Ok(Self {
            directory,
            name: name.to_path_buf(),
            storage,
            options: options.clone(),
            stage,
            taken: 0,
            merged: 0,
        })
    }

    /// Puts a record. Errors: `TooLarge`; `Invalid`, of a record out of the promised order, and then the builder can only be dropped;
    /// `Full`, `Io`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        limits(self.options.order).check(key, value)?;
        self.take(Put {
            key,
            value: Some(value),
        })
    }

    /// Takes away what was put under `key` before. Errors as [`put`](Self::put).
    pub fn remove(&mut self, key: &[u8]) -> Result<()> {
        limits(self.options.order).check(key, &[])?;
        self.take(Put { key, value: None })
    }

    /// Bytes of the longest key and of the longest value.
    pub fn limits(&self) -> (u64, u64) {
        let limits = limits(self.options.order);
        (limits.key, limits.value)
    }

    fn take(&mut self, put: Put<'_>) -> Result<()> {
        self.taken += 1;
        let taken = match &mut self.stage {
            Stage::Sort(sorter) => sorter.add(put, (&*self.directory, &self.name)),
            Stage::Write(writer, reduction) if reduction.is_next(put.key) => {
                let mut store = |key: &[u8], value: &[u8]| writer.add(key, value);
                reduction.take(put.key, put.value, &mut store)
            }
            Stage::Write(_, reduction) => Err(unsorted(self.taken, reduction.last_key(), put.key)),
            Stage::Refused => Err(refused()),
        };
        self.continued(taken)
    }

    /// Puts all records of a file, at this moment: before what is put later, after what was put before. `Mismatch` if it has another
    /// order, and then it is as if nothing had been asked; `Invalid` if records are promised in order, which those of a file do not
    /// join; else as [`put`](Self::put). Damage of the file is an error of [`finish`](Self::finish).
    pub fn merge(&mut self, file: &Arc<SkipReader>) -> Result<()> {
        if file.order() != self.options.order {
            let (found, wanted) = (file.order().name(), self.options.order.name());
            let error = Error::new(Kind::Mismatch, "a file has another order of keys");
            return Err(error
                .at(file.blocks.storage.path())
                .found(found, wanted)
                .remedy("merge files of one order"));
        }
        let added = match &mut self.stage {
            Stage::Sort(sorter) => sorter.add_file(file, (&*self.directory, &self.name)),
            Stage::Write(..) => {
                return Err(Error::new(
                    Kind::Invalid,
                    "a file cannot be merged among records that are promised in order",
                )
                .at(self.storage.path())
                .remedy("leave the promise out"));
            }
            Stage::Refused => Err(refused()),
        };
        self.merged += file.blocks.top.count;
        self.continued(added)
    }

    /// The outcome of a step. After an error what comes could not be distinguished from what should.
    fn continued(&mut self, step: Result<()>) -> Result<()> {
        if step.is_err() {
            self.stage = Stage::Refused;
        }
        // A record out of order stands in the input.
        step.map_err(|error| match error.kind() {
            Kind::Invalid => error,
            _ => error.at(self.storage.path()),
        })
    }

    /// Merges, reduces and writes what came, and gives the file its name, when it is durable. `progress` is called with (done, total)
    /// of records. Costs two syncs. Errors: `Full`, `Io`, `TooLarge` of a value that a reducer made, `Invalid` if there is something of
    /// that name by now, `Corrupted` if a merged file is damaged; and then nothing is made.
    pub fn finish(self, progress: &mut dyn FnMut(u64, u64)) -> Result<SkipReader> {
        let Self {
            directory,
            name,
            storage,
            options,
            stage,
            taken,
            merged,
        } = self;
        let writer = match stage {
            Stage::Write(mut writer, mut reduction) => {
                reduction.finish(&mut |key, value| writer.add(key, value))?;
                writer
            }
            Stage::Sort(sorter) => {
                let total = taken + merged;
                let mut writer = Writer::new(&storage, options.order)?;
                let sorted = sorter.finish()?;
                let spill = sorted.spill.as_ref();
                let pieces = few(spill, sorted.pieces, &options)?;
                let mut sources = started(spill, &pieces)?;
                sources.push(Source::Arena(sorted.arena, 0));
                let mut reduction = Reduction::new(options.reducer, options.order);
                let mut merge = Merge::new(options.order, sources);
                while let Some(put) = merge.get() {
                    reduction.take(put.key, put.value, &mut |key, value| writer.add(key, value))?;
                    if reduction.taken().is_multiple_of(PROGRESS) {
                        progress(reduction.taken(), total);
                    }
                    merge.advance()?;
                }
                reduction.finish(&mut |key, value| writer.add(key, value))?;
                progress(total, total);
                writer
            }
            Stage::Refused => return Err(refused().at(storage.path())),
        };
        writer.finish()?;
        let file = SkipReader::open_on(Arc::clone(&storage))?;
        publish(&*directory, &name, storage.as_ref())?;
        Ok(file)
    }
}

#[cold]
fn refused() -> Error {
    Error::new(Kind::Poisoned, "an error ended the building of the file").remedy("build it again")
}

#[cold]
fn unsorted(number: u64, before: &[u8], key: &[u8]) -> Error {
    let what = format!("record {number} is not in the order that was promised");
    Error::new(Kind::Invalid, what)
        .key(key)
        .found(quote(key), format!("{} or a later key", quote(before)))
        .remedy("sort the input, or leave the promise out")
}

/// How many of these runs may be merged at once, within the memory for it: two at least.
fn most(pieces: &[Piece], memory: u64) -> usize {
    let runs = pieces.iter().filter_map(|piece| match piece {
        Piece::Run(run) => Some(run.block_len_max()),
        Piece::File(_) => None,
    });
    let longest = runs.max().unwrap_or(0).max(1);
    ((memory / MERGE_PART / longest) as usize).max(2)
}

fn count_runs(pieces: &[Piece]) -> usize {
    let runs = pieces.iter().filter(|piece| matches!(piece, Piece::Run(_)));
    runs.count()
}

/// Merges neighbours until there are few enough runs: only so many that this is so, if one merge does it, else all, in groups.
fn few(
    spill: Option<&Spill>,
    mut pieces: Vec<Piece>,
    options: &BuildOptions,
) -> Result<Vec<Piece>> {
    let Some(spill) = spill else {
        return Ok(pieces);
    };
    loop {
        let (runs, most) = (count_runs(&pieces), most(&pieces, options.memory));
        if runs <= most {
            return Ok(pieces);
        }
        let one = runs - most + 1;
        let mut rest = pieces.into_iter();
        let mut merged = Vec::new();
        let mut group = Vec::new();
        for piece in rest.by_ref() {
            if group.is_empty() && matches!(piece, Piece::File(_)) {
                // It is where it is: no run needs its records.
                merged.push(piece);
                continue;
            }
            group.push(piece);
            if count_runs(&group) == one.min(most) {
                merged.push(one_of(spill, std::mem::take(&mut group), options.order)?);
                if one <= most {
                    break;
                }
            }
        }
        merged.append(&mut group);
        merged.extend(rest);
        pieces = merged;
    }
}

/// Merges pieces to one run.
fn one_of(spill: &Spill, pieces: Vec<Piece>, order: Order) -> Result<Piece> {
    let mut writer = spill.writer()?;
    let mut merge = Merge::new(order, started(Some(spill), &pieces)?);
    while let Some(put) = merge.get() {
        writer.add(put)?;
        merge.advance()?;
    }
    drop(merge);
    for piece in pieces {
        if let Piece::Run(run) = piece {
            spill.discard(&run)?;
        }
    }
    Ok(Piece::Run(writer.finish()?))
}

/// The sources of pieces, each at its first record. There are runs only where there is a file of runs.
fn started<'p>(spill: Option<&Spill>, pieces: &'p [Piece]) -> Result<Vec<Source<'p>>> {
    let mut sources = Vec::new();
    for piece in pieces {
        match (piece, spill) {
            (Piece::File(file), _) => {
                let mut cursor = SkipCursor::new(&file.blocks);
                cursor.first()?;
                sources.push(Source::File(Box::new(cursor)));
            }
            (Piece::Run(run), Some(spill)) => {
                sources.push(Source::Run(RunReader::new(spill, run.clone())?));
            }
            (Piece::Run(_), None) => {}
        }
    }
    Ok(sources)
}
