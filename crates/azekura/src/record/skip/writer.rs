//! Writing a sorted file, from its first record to its last, in one pass.
//!
//! Leaves and overflows are written as they fill. Nodes of upper levels are kept until there are many, so that those of a level lie
//! together: a lookup finds them in few pages. The superblock is written last, and the file has no name before it is synced: so a
//! crash leaves nothing, or a whole file.
//!
//! It does not know where records come from: that keys do not descend is its caller's to see.

use std::sync::Arc;

use super::layout::{BLOCK, Contained, INSIDE, OverflowHead, STEM, Super, child, head};
use super::limits;
use super::node_builder::{ClosedNode, NodeBuilder};
use crate::error::{Error, Kind, Result};
use crate::format::superblock::{self, SLOT_SIZE};
use crate::io::Storage;
use crate::node::Value;
use crate::order::Order;
use crate::room;

/// Bytes written at once.
const WRITE: usize = 1 << 20;
/// Nodes of the first upper level that are written together: 8 MiB. There are few of later ones.
const TOGETHER: usize = 2048;
const TOGETHER_ABOVE: usize = 64;
/// Least and most bytes by which the file grows at a time.
const GROWTH: (u64, u64) = (4 << 20, 256 << 20);

/// Bytes on their way to the storage.
struct Output {
    storage: Arc<dyn Storage>,
    identity: u64,
    /// Where the buffer begins.
    at: u64,
    buffer: Vec<u8>,
    /// Size that the storage has.
    size: u64,
}

impl Output {
    fn end(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Makes the storage this long at least.
    fn grow(&mut self, end: u64) -> Result<()> {
        if end <= self.size {
            return Ok(());
        }
        let ahead = (self.size / 4).clamp(GROWTH.0, GROWTH.1);
        let ample = (end + ahead).next_multiple_of(BLOCK);
        // A device may have room for what is written, and not for what may come.
        self.size = match self.storage.resize(ample) {
            Err(error) if error.kind() == Kind::Full => self.storage.resize(end).map(|()| end)?,
            resized => resized.map(|()| ample)?,
        };
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.grow(self.end())?;
        self.storage.write_at(self.at, &self.buffer)?;
        self.at = self.end();
        self.buffer.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > WRITE {
            self.flush()?;
        }
        if bytes.len() >= WRITE {
            let end = self.at + bytes.len() as u64;
            self.grow(end)?;
            self.storage.write_at(self.at, bytes)?;
            self.at = end;
            return Ok(());
        }
        room::more(&mut self.buffer, bytes.len())?;
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn pad(&mut self, to: u64) -> Result<()> {
        const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
        let len = self.end().next_multiple_of(to) - self.end();
        self.write(&ZEROS[..len as usize])
    }

    /// Writes a node; the number of its block.
    fn block(&mut self, closed: &ClosedNode) -> Result<u32> {
        self.pad(BLOCK)?;
        let number = u32::try_from(self.end() / BLOCK).map_err(|_| {
            Error::new(Kind::Full, "a sorted file has at most 16 TiB")
                .at(self.storage.path())
                .remedy("make several files")
        })?;
        self.write(&head(self.identity, number, closed.ordinal, &closed.bytes))?;
        self.write(&closed.bytes)?;
        Ok(number)
    }

    /// Writes an overflow; the word that points to it.
    fn overflow(&mut self, key: &[u8], value: &[u8]) -> Result<u64> {
        self.pad(8)?;
        let offset = self.end();
        self.write(&OverflowHead::encode(self.identity, offset, key, value))?;
        self.write(key)?;
        self.write(value)?;
        Ok(offset / 8)
    }
}

struct Level {
    builder: NodeBuilder,
    /// Nodes that are not written yet.
    closed: Vec<ClosedNode>,
    /// How many nodes it has, and the number of the last one that was written.
    count: u64,
    last: u32,
}

impl Level {
    fn new(order: Order, level: usize) -> Self {
        Self {
            builder: NodeBuilder::new(order, level as u8),
            closed: Vec::new(),
            count: 0,
            last: 0,
        }
    }
}

/// A file that is being written.
pub(super) struct Writer {
    out: Output,
    order: Order,
    levels: Vec<Level>,
    count: u64,
    bytes: u64,
    repeats: bool,
}

impl Writer {
    /// Begins a file on an empty storage.
    pub(super) fn new(storage: &Arc<dyn Storage>, order: Order) -> Result<Self> {
        Ok(Self {
            out: Output {
                identity: storage.entropy(),
                storage: Arc::clone(storage),
                at: superblock::SIZE,
                buffer: room::vec(WRITE)?,
                size: 0,
            },
            order,
            levels: vec![Level::new(order, 0)],
            count: 0,
            bytes: 0,
            repeats: false,
        })
    }

    /// Records written so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Adds a record whose key is not less than the one before. Errors: `TooLarge`, also for a long key in another order than the
    /// lexical; `Full`, `Io`.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        limits(self.order).check(key, value)?;
        let is_long = key.len() >= STEM;
        let in_leaf = &key[..key.len().min(STEM)];
        let stored = if is_long || value.len() > INSIDE {
            let own_key = if is_long { key } else { &[] };
            Value::Outside(self.out.overflow(own_key, value)?)
        } else {
            Value::Inside(value)
        };
        let leaves = &mut self.levels[0].builder;
        self.repeats = self.repeats || leaves.last_key() == Some(in_leaf);
        let closed = leaves.add(in_leaf, stored, self.count)?;
        self.count += 1;
        self.bytes += (key.len() + value.len()) as u64;
        match closed {
            Some(closed) => self.close(0, closed),
            None => Ok(()),
        }
    }

    /// Takes a node that is full. Leaves are written at once.
    fn close(&mut self, level: usize, closed: ClosedNode) -> Result<()> {
        let own = &mut self.levels[level];
        own.count += 1;
        own.closed.push(closed);
        let together = match level {
            0 => 1,
            1 => TOGETHER,
            _ => TOGETHER_ABOVE,
        };
        if own.closed.len() >= together {
            self.write_level(level)?;
        }
        Ok(())
    }

    /// Writes the nodes of a level that are full, and adds them to the next level.
    fn write_level(&mut self, level: usize) -> Result<()> {
        if self.levels.len() == level + 1 {
            self.levels.push(Level::new(self.order, level + 1));
        }
        for closed in std::mem::take(&mut self.levels[level].closed) {
            let number = self.out.block(&closed)?;
            self.levels[level].last = number;
            let value = child(number, closed.ordinal);
            let above = &mut self.levels[level + 1].builder;
            let full = above.add(&closed.lower, Value::Inside(&value), closed.ordinal)?;
            if let Some(full) = full {
                self.close(level + 1, full)?;
            }
        }
        Ok(())
    }

    /// Writes what is left, and the superblock, and syncs: the storage is a whole file.
    pub(super) fn finish(self) -> Result<()> {
        self.finish_with(None)
    }

    /// As `finish`, of a file that contains pending edits.
    pub(super) fn finish_with(mut self, contained: Option<Contained>) -> Result<()> {
        let mut root = None;
        let mut level = 0;
        while self.count > 0 && root.is_none() {
            for closed in self.levels[level].builder.finish()? {
                self.close(level, closed)?;
            }
            self.write_level(level)?;
            if self.levels[level].count == 1 {
                root = Some(self.levels[level].last);
            } else {
                level += 1;
            }
        }
        self.out.pad(BLOCK)?;
        self.out.flush()?;
        let size = self.out.end() + SLOT_SIZE;
        let top = Super {
            identity: self.out.identity,
            size,
            count: self.count,
            bytes: self.bytes,
            root,
            height: level as u8,
            repeats: self.repeats,
            order: self.order,
            contained,
        };
        let storage = &self.out.storage;
        storage.resize(size)?;
        top.write(storage.as_ref())?;
        storage.sync()
    }
}
