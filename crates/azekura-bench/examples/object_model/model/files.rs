//! What one file per object, under three levels of hashed folders, asks of the disk of a file system like XFS.
//!
//! | operation | page cache | with fsync |
//! |---|---|---|
//! | PUT new | a copy; later data, inode and folder are written back | data, file system's journal and flush; rename; journal and flush of the folder |
//! | PUT update | reads folder, inode and a block of the free space; then as above | the same reads, then as above |
//! | GET | reads folder, inode, data | the same |
//! | DELETE | reads folder and inode; later they are written back | and a journal write between two flushes |
//!
//! A file lies in one of four allocation groups, by its folder, behind the files made before it there; its inode is
//! near. What is to be written back waits in memory; where that is more than its share, writers pause for 200 ms at a
//! time, as Linux lets them. Folders and inodes are cold when read and no longer than that, as the published run
//! dropped all caches and touched one object in a hundred.
//!
//! It is a class of behaviour with few fitted numbers, not XFS: read-ahead of long files, fragmentation, the lists
//! of free space and the order in which inodes are written back are left out.

use std::collections::VecDeque;

use azekura::error::Result;
use azekura::io::sim::drive::{Command, Counts, Parameters};

use super::Pattern;
use super::host::Host;
use azekura::Durability;
use azekura_bench::generate::mix;

const GROUPS: u64 = 4;
/// The unit of metadata.
const PAGE: u64 = 4096;
/// Writes on the way from memory to the disk.
const BACKGROUND: usize = 32;
const PAUSE_NS: u64 = 200_000_000;
/// Most bytes that wait in memory. The published machine let some 12.8 GB wait, one percent of its run.
const WAITING_MAX: u64 = 128 << 20;
/// The processor's part of a PUT, fitted to the medians of the published run: to make a file, and to copy a MiB.
const MAKE_NS: u64 = 65_000;
pub(super) const COPY_NS_PER_MIB: u64 = 620_000;

/// Files on a disk.
#[derive(Debug)]
pub(crate) struct Files {
    host: Host,
    fsync: bool,
    waiting: VecDeque<(u64, u64)>,
    waiting_bytes: u64,
    /// Bytes of a file; all have the same.
    len: u64,
    /// Keys from here on were never put.
    used: u64,
    journal: u64,
}

impl Files {
    /// No files yet. With `fsync` each PUT and DELETE is durable when it returns.
    pub(crate) fn new(parameters: Parameters, fsync: bool) -> Self {
        let host = Host::new(parameters);
        Self {
            host,
            fsync,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            len: 0,
            used: 0,
            journal: 0,
        }
    }

    /// Where the group of a key begins.
    fn group(&self, key: u64) -> u64 {
        let share = self.host.parameters().capacity / GROUPS;
        (mix(key + 1) % GROUPS * share).next_multiple_of(PAGE)
    }

    fn data(&self, key: u64) -> u64 {
        self.group(key) + key / GROUPS * (self.len + PAGE).next_multiple_of(PAGE)
    }

    /// The inode stands in the space between its data and the file before it.
    fn inode(&self, key: u64) -> u64 {
        self.data(key) + self.len.next_multiple_of(PAGE)
    }

    /// The folder's place: beside any file.
    fn folder(&self, key: u64) -> u64 {
        self.inode(mix(key ^ 0x5bd1_e995) % self.used.max(1))
    }

    fn read(&mut self, offset: u64, len: u64) {
        self.host.wait(Command::Read, offset, len);
    }

    fn write_back_later(&mut self, offset: u64, len: u64) {
        self.waiting.push_back((offset, len));
        self.waiting_bytes += len;
    }

    /// Keeps the disk busy with what waits, until `until` or until all is written.
    fn write_back(&mut self, until: u64) {
        while self.host.now_ns() < until {
            while self.host.flying() < BACKGROUND
                && let Some((offset, len)) = self.waiting.pop_front()
            {
                self.waiting_bytes -= len;
                self.host.start_write(offset, len);
            }
            if self.host.flying() == 0 {
                return;
            }
            self.host.wait_for_write();
        }
    }

    /// The pauses of who writes more than the disk takes.
    fn throttle(&mut self) {
        while self.waiting_bytes > WAITING_MAX {
            self.write_back(self.host.now_ns() + PAUSE_NS);
        }
    }

    /// A write of the file system's journal that is durable with all before it.
    fn commit(&mut self) {
        self.host.wait(Command::Flush, 0, 0);
        self.journal = (self.journal + PAGE) % (1 << 30);
        let at = self.host.parameters().capacity / 2 + self.journal;
        self.host.wait(Command::Write, at, PAGE);
        self.host.wait(Command::Flush, 0, 0);
    }
}

impl Pattern for Files {
    fn name(&self) -> &'static str {
        if self.fsync { "files(fsync)" } else { "files" }
    }

    fn survives(&self) -> Durability {
        if self.fsync {
            Durability::Power
        } else {
            Durability::Process
        }
    }

    fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    fn pass(&mut self, ns: u64) -> Result<()> {
        let until = self.host.now_ns() + ns;
        self.write_back(until);
        self.host.pass(until.saturating_sub(self.host.now_ns()));
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.host.counts()
    }

    fn fill(&mut self, first: u64, count: u64, len: u64) -> Result<()> {
        self.len = len;
        self.used = first + count;
        Ok(())
    }

    fn put(&mut self, key: u64, len: u64) -> Result<()> {
        self.len = len;
        let (data, inode) = (self.data(key), self.inode(key));
        let is_update = key < self.used;
        let folder = self.folder(key);
        if is_update {
            self.read(folder, PAGE);
            self.read(inode, PAGE);
            // The free space beside it, where the old blocks go.
            self.read(self.inode(key.saturating_sub(GROUPS)), PAGE);
        }
        self.host.pass(MAKE_NS + len * COPY_NS_PER_MIB / (1 << 20));
        if self.fsync {
            self.host.wait(Command::Write, data, len);
            self.commit();
            self.commit();
        } else {
            self.write_back_later(data, len);
        }
        self.write_back_later(inode, PAGE);
        self.write_back_later(folder, PAGE);
        self.throttle();
        self.used = self.used.max(key + 1);
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<()> {
        self.read(self.folder(key), PAGE);
        self.read(self.inode(key), PAGE);
        self.read(self.data(key), self.len);
        Ok(())
    }

    fn remove(&mut self, key: u64) -> Result<()> {
        let (folder, inode) = (self.folder(key), self.inode(key));
        self.read(folder, PAGE);
        self.read(inode, PAGE);
        if self.fsync {
            self.commit();
        }
        self.write_back_later(inode, PAGE);
        self.write_back_later(folder, PAGE);
        self.throttle();
        Ok(())
    }
}
