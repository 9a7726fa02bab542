//! Figures about the store: what it holds, how its free room is, what it asked of its devices.
//!
//! They are sums kept anyway, but for the bytes of objects and the runs of free room, for which all leaves and lists come in:
//! that takes time, once. It changes nothing, and holds up changes while runs are counted.

use std::sync::atomic::Ordering;

use super::extent::UNIT;
use super::id::ObjectId;
use super::index::{EXTENT, JOURNAL};
use super::{Core, Store};
use crate::error::Result;

impl Store {
    /// Figures by name; sizes are bytes, counts since the store was opened where they say so:
    ///
    /// | name | meaning |
    /// |---|---|
    /// | `objects`, `bytes`, `extent_bytes` | objects; bytes of their values, and of the extents of those that have their own |
    /// | `pack_bytes`, `objects_in_journal` | extents of many small objects; small ones that are in no pack yet |
    /// | `data_bytes` | room for extents in all |
    /// | `free_bytes`, `limbo_bytes` | free, and free after the next sync |
    /// | `longest_free_bytes`, `free_runs` | of the free room the longest run, and how many there are |
    /// | `groups` | allocation groups |
    /// | `journal_bytes`, `journal_appended` | room of the journal; bytes appended since opening |
    /// | `index_memory` | bytes of memory |
    /// | `unsynced` | changes since the last sync |
    /// | `syncs` | group commits since opening |
    /// | `device_reads`, `device_read_bytes` | since opening, of all devices |
    /// | `device_writes`, `device_write_bytes`, `device_syncs` | the same; stores into the journal's mapped memory are no writes |
    pub fn stats(&self) -> Result<Vec<(&'static str, u64)>> {
        self.core.stats()
    }
}

impl Core {
    fn stats(&self) -> Result<Vec<(&'static str, u64)>> {
        let (mut bytes, mut extent_bytes, mut in_journal) = (0, 0, 0);
        self.each_in(ObjectId(0), ObjectId(u128::MAX), |_, entry| {
            bytes += u64::from(entry.len);
            match entry.kind {
                EXTENT => extent_bytes += entry.device_bytes(),
                kind => in_journal += u64::from(kind == JOURNAL),
            }
            Ok(())
        })?;
        let journal_size = {
            let state = self.checkpoint.lock();
            state
                .superblock
                .as_ref()
                .map_or(0, |(_, last)| last.journal_size)
        };
        let mut room = self.room.lock();
        let (longest, runs) = room.space.fragments()?;
        let packs: u64 = room
            .packs
            .all()
            .map(|pack| u64::from(pack.span.units))
            .sum();
        let counts = &self.counts;
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Ok(vec![
            ("objects", self.index.count()),
            ("bytes", bytes),
            ("extent_bytes", extent_bytes),
            ("pack_bytes", packs * UNIT),
            ("objects_in_journal", in_journal),
            ("data_bytes", room.space.units() * UNIT),
            ("free_bytes", room.space.free() * UNIT),
            ("limbo_bytes", room.space.in_limbo() * UNIT),
            ("longest_free_bytes", u64::from(longest) * UNIT),
            ("free_runs", runs),
            (
                "groups",
                room.space.units().div_ceil(u64::from(self.group_units)),
            ),
            ("journal_bytes", journal_size),
            ("journal_appended", self.log.appended()),
            ("index_memory", self.index.memory()),
            ("unsynced", load(&self.unsynced)),
            ("syncs", self.commit.count()),
            ("device_reads", load(&counts.reads)),
            ("device_read_bytes", load(&counts.bytes_read)),
            ("device_writes", load(&counts.writes)),
            ("device_write_bytes", load(&counts.bytes_written)),
            ("device_syncs", load(&counts.syncs)),
        ])
    }
}
