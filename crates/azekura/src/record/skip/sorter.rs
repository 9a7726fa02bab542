//! Sorting more records than memory holds: sorted runs in a file, made by a second thread.
//!
//! Records are collected in one arena while the thread sorts the other and writes it: two halves of the memory. A run is in blocks,
//! each with a checksum; a merge reads a block of each run at a time. Files that are merged stand between the runs, in the order in
//! which all came.
//!
//! | bytes of a block | meaning |
//! |---|---|
//! | 4 | CRC32C of the rest, seeded with the offset |
//! | 4 | zero |
//! | 8 | bytes of records |
//! | .. | records, whole (`arena`) |
//!
//! The file has no name, and is gone with the process. It does not know what records are reduced to.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::arena::{Put, PutArena};
use super::reader::SkipReader;
use crate::error::{Error, Kind, Result};
use crate::format::checksum::crc;
use crate::io::{Directory, Storage};
use crate::order::Order;
use crate::room;

/// Bytes before a block's records.
const HEAD: usize = 16;
/// Least and most bytes of a block, if its records are short, and which part of the memory it is between them.
const BLOCK_MIN: u64 = 4 << 10;
const BLOCK_MAX: u64 = 1 << 20;
const BLOCK_PART: u64 = 256;

/// Where a sorted run stands: the offset and length of each of its blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct SortedRun {
    blocks: Vec<(u64, u64)>,
}

impl SortedRun {
    /// Bytes of its longest block, which a reader holds.
    pub(super) fn block_len_max(&self) -> u64 {
        let lens = self.blocks.iter().map(|(_, len)| *len);
        lens.max().unwrap_or(0)
    }
}

/// A part of what is to be merged.
pub(super) enum Piece {
    Run(SortedRun),
    File(Arc<SkipReader>),
}

/// The file of the runs.
#[derive(Clone, Debug)]
pub(super) struct Spill {
    storage: Arc<dyn Storage>,
    /// Bytes of records in a block.
    block: usize,
}

/// A run that is being written.
pub(super) struct RunWriter {
    spill: Spill,
    at: u64,
    buffer: Vec<u8>,
    run: SortedRun,
}

impl RunWriter {
    fn new(spill: &Spill, at: u64) -> Result<Self> {
        let mut buffer = room::vec(HEAD + spill.block)?;
        buffer.resize(HEAD, 0);
        Ok(Self {
            spill: spill.clone(),
            at,
            buffer,
            run: SortedRun::default(),
        })
    }

    pub(super) fn add(&mut self, put: Put<'_>) -> Result<()> {
        if self.buffer.len() > HEAD && self.buffer.len() + put.len() > HEAD + self.spill.block {
            self.flush()?;
        }
        put.encode(&mut self.buffer)
    }

    fn flush(&mut self) -> Result<()> {
        let len = self.buffer.len() as u64;
        self.buffer[8..HEAD].copy_from_slice(&(len - HEAD as u64).to_le_bytes());
        let sum = crc(self.at as u32, &self.buffer[4..]);
        self.buffer[..4].copy_from_slice(&sum.to_le_bytes());
        let storage = &self.spill.storage;
        storage.resize(self.at + len)?;
        storage.write_at(self.at, &self.buffer)?;
        room::more(&mut self.run.blocks, 1)?;
        self.run.blocks.push((self.at, len));
        self.at += len;
        self.buffer.clear();
        self.buffer.resize(HEAD, 0);
        Ok(())
    }

    /// The run.
    pub(super) fn finish(mut self) -> Result<SortedRun> {
        if self.buffer.len() > HEAD {
            self.flush()?;
        }
        Ok(self.run)
    }
}

/// A run that is being read.
pub(super) struct RunReader {
    spill: Spill,
    run: SortedRun,
    next_block: usize,
    buffer: Vec<u8>,
    /// Where the present record begins, and how long it is; 0: there is none.
    at: usize,
    len: usize,
    /// Offset of the block.
    offset: u64,
}

impl RunReader {
    /// At the first record.
    pub(super) fn new(spill: &Spill, run: SortedRun) -> Result<Self> {
        let mut reader = Self {
            spill: spill.clone(),
            run,
            next_block: 0,
            buffer: Vec::new(),
            at: 0,
            len: 0,
            offset: 0,
        };
        reader.advance()?;
        Ok(reader)
    }

    pub(super) fn get(&self) -> Option<Put<'_>> {
        let bytes = self.buffer.get(self.at..self.at + self.len)?;
        Put::decode(bytes)
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        self.at += self.len;
        self.len = 0;
        if self.at >= self.buffer.len() {
            let Some((offset, len)) = self.run.blocks.get(self.next_block).copied() else {
                return Ok(());
            };
            self.load(offset, len)?;
            self.next_block += 1;
        }
        let next = self.buffer.get(self.at..).and_then(Put::decode);
        let len = next.map(|put| put.len());
        self.len = len.ok_or_else(|| self.damaged(self.offset + self.at as u64))?;
        Ok(())
    }

    fn load(&mut self, offset: u64, len: u64) -> Result<()> {
        self.offset = offset;
        self.buffer.clear();
        room::hold(&mut self.buffer, len as usize)?;
        self.buffer.resize(len as usize, 0);
        self.spill.storage.read_at(offset, &mut self.buffer)?;
        let (head, records) = self.buffer.split_at(HEAD);
        let stored = head.first_chunk::<4>().map(|sum| u32::from_le_bytes(*sum));
        let stated = (records.len() as u64).to_le_bytes();
        let sum = crc(offset as u32, self.buffer.get(4..).unwrap_or_default());
        if stored != Some(sum) || head.get(8..) != Some(&stated[..]) {
            return Err(self.damaged(offset));
        }
        self.at = HEAD;
        Ok(())
    }

    #[cold]
    fn damaged(&self, offset: u64) -> Error {
        Error::new(
            Kind::Corrupted,
            "records that were written while they were sorted do not verify",
        )
        .at(self.spill.storage.path())
        .offset(offset)
        .remedy("build the file again; if it repeats, look at the device")
    }
}

/// What the thread gives back: the arena, empty, and its run.
type Done = Result<(PutArena, SortedRun)>;

/// The second thread.
struct Second {
    jobs: SyncSender<PutArena>,
    done: Receiver<Done>,
    thread: JoinHandle<()>,
    /// Whether it has an arena.
    is_busy: bool,
}

/// See the module's text.
pub(super) struct Sorter {
    order: Order,
    memory: u64,
    arena: PutArena,
    spare: Option<PutArena>,
    second: Option<Second>,
    spill: Option<Spill>,
    /// In the order in which they came.
    pieces: Vec<Piece>,
}

/// What was sorted, in the order in which it came, and after it what is left in memory.
pub(super) struct Sorted {
    pub(super) spill: Option<Spill>,
    pub(super) pieces: Vec<Piece>,
    pub(super) arena: PutArena,
}

impl Sorter {
    pub(super) fn new(order: Order, memory: u64) -> Self {
        Self {
            order,
            memory,
            arena: PutArena::new(order),
            spare: Some(PutArena::new(order)),
            second: None,
            spill: None,
            pieces: Vec::new(),
        }
    }

    /// Adds a record. `directory` and `name`: where the file of the runs may be made. Errors: `Full`, `Io`.
    pub(super) fn add(
        &mut self,
        put: Put<'_>,
        (directory, name): (&dyn Directory, &Path),
    ) -> Result<()> {
        if !self.arena.is_empty() && self.arena.size() + put.len() + 16 > (self.memory / 2) as usize
        {
            self.hand_over((directory, name))?;
        }
        self.arena.add(put)
    }

    /// Gives the arena to the second thread, when that has ended the one before.
    fn hand_over(&mut self, (directory, name): (&dyn Directory, &Path)) -> Result<()> {
        self.wait()?;
        if self.spill.is_none() {
            self.spill = Some(Spill {
                storage: directory.create_nameless(name)?,
                block: (self.memory / BLOCK_PART).clamp(BLOCK_MIN, BLOCK_MAX) as usize,
            });
        }
        let next = self
            .spare
            .take()
            .unwrap_or_else(|| PutArena::new(self.order));
        let full = std::mem::replace(&mut self.arena, next);
        if self.second.is_none() {
            self.second = self.spill.as_ref().map(start).transpose()?;
        }
        if let Some(second) = &mut self.second {
            second.is_busy = true;
            if second.jobs.send(full).is_err() {
                return Err(ended());
            }
        }
        Ok(())
    }

    /// Waits until the second thread has nothing to do.
    fn wait(&mut self) -> Result<()> {
        let Some(second) = &mut self.second else {
            return Ok(());
        };
        if !std::mem::take(&mut second.is_busy) {
            return Ok(());
        }
        let done = second.done.recv().map_err(|_| ended())?;
        let (arena, run) = done?;
        self.spare = Some(arena);
        self.pieces.push(Piece::Run(run));
        Ok(())
    }

    /// Adds all records of a file, after those that came before.
    pub(super) fn add_file(
        &mut self,
        file: &Arc<SkipReader>,
        to: (&dyn Directory, &Path),
    ) -> Result<()> {
        if !self.arena.is_empty() {
            self.hand_over(to)?;
        }
        self.wait()?;
        room::more(&mut self.pieces, 1)?;
        self.pieces.push(Piece::File(Arc::clone(file)));
        Ok(())
    }

    /// Sorts what is left, and waits for the second thread.
    pub(super) fn finish(mut self) -> Result<Sorted> {
        let mut arena = std::mem::take(&mut self.arena);
        arena.sort();
        self.wait()?;
        Ok(Sorted {
            spill: self.spill.take(),
            pieces: std::mem::take(&mut self.pieces),
            arena,
        })
    }
}

impl Spill {
    /// Begins a run at the end of the file.
    pub(super) fn writer(&self) -> Result<RunWriter> {
        RunWriter::new(self, self.storage.size()?)
    }

    /// Gives the space of a run back, which is not read any more.
    pub(super) fn discard(&self, run: &SortedRun) -> Result<()> {
        // Its blocks stand one after the other.
        if let (Some((first, _)), Some((last, len))) = (run.blocks.first(), run.blocks.last()) {
            self.storage.discard(*first, last + len - first)?;
        }
        Ok(())
    }
}

#[cold]
fn ended() -> Error {
    Error::new(Kind::Poisoned, "the thread that sorts has ended").remedy("build the file again")
}

fn start(spill: &Spill) -> Result<Second> {
    let spill = spill.clone();
    let (jobs, given) = sync_channel::<PutArena>(1);
    let (give, done) = sync_channel(1);
    let work = move || {
        while let Ok(arena) = given.recv() {
            if give.send(sort_and_write(arena, &spill)).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("azekura-sort".into())
        .spawn(work)
        .map_err(|error| Error::io("cannot start a thread that sorts", error))?;
    Ok(Second {
        jobs,
        done,
        thread,
        is_busy: false,
    })
}

fn sort_and_write(mut arena: PutArena, spill: &Spill) -> Done {
    arena.sort();
    let mut writer = spill.writer()?;
    for index in 0..arena.count() {
        if let Some(put) = arena.get(index) {
            writer.add(put)?;
        }
    }
    let run = writer.finish()?;
    arena.clear();
    Ok((arena, run))
}

impl Drop for Sorter {
    fn drop(&mut self) {
        if let Some(Second {
            jobs, done, thread, ..
        }) = self.second.take()
        {
            drop(jobs);
            // What it still writes is not read any more.
            drop(done);
            drop(thread.join());
        }
    }
}
