//! Statistics of a store: its contents, the state of its free space, and its requests to the devices.
//!
//! They are counters that are kept anyway, except the bytes of objects and the runs of free space, for which all leaves and lists are
//! loaded: that takes time, once. Nothing changes, and changes wait while runs are counted.

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::io::counted::Counts;
use crate::object::index::{EXTENT, JOURNAL};
use crate::object::place::extent::UNIT;
use crate::object::times::Times;
use crate::object::{Core, Store};

/// Statistics of a store. Its contents and its space are those of some moment; appends, syncs, accesses and times are counted since it
/// was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Objects.
    pub objects: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Bytes of the extents of objects that have their own.
    pub extent_bytes: u64,
    /// Bytes of packed extents, which hold many small objects.
    pub pack_bytes: u64,
    /// Small objects that are in no packed extent yet.
    pub objects_in_journal: u64,
    /// Bytes for extents in all.
    pub data_bytes: u64,
    /// Bytes of these that are free.
    pub free_bytes: u64,
    /// Bytes that are free after the next sync.
    pub limbo_bytes: u64,
    /// Bytes of the longest run of free space.
    pub longest_free_bytes: u64,
    /// Runs of free space.
    pub free_runs: u64,
    /// Allocation groups.
    pub groups: u64,
    /// Size of the journal.
    pub journal_bytes: u64,
    /// Bytes that were appended to the journal.
    pub journal_appended_bytes: u64,
    /// Bytes of memory of the index.
    pub index_memory_bytes: u64,
    /// Changes since the last sync.
    pub unsynced: u64,
    /// Syncs, each of all devices.
    pub syncs: u64,
    /// Reads, of all devices.
    pub device_reads: u64,
    /// Their bytes.
    pub device_read_bytes: u64,
    /// Writes, of all devices; stores into the journal's mapped memory are none.
    pub device_writes: u64,
    /// Their bytes.
    pub device_write_bytes: u64,
    /// Syncs of one device.
    pub device_syncs: u64,
    /// Latencies of direct calls, as [`times`](Store::times) gives them.
    pub times: Times,
}

impl Stats {
    /// All of them as a table: names and values, sizes in bytes, times in nanoseconds. Of `put`, `get` and `sync`, the `device`'s part
    /// and the `own` one, it has `count`, `p50_ns`, `p99_ns`, `p999_ns` and `max_ns` (`put_device_p50_ns`), and none of what did not
    /// happen.
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        let mut rows = vec![
            ("objects", self.objects),
            ("bytes", self.bytes),
            ("extent_bytes", self.extent_bytes),
            ("pack_bytes", self.pack_bytes),
            ("objects_in_journal", self.objects_in_journal),
            ("data_bytes", self.data_bytes),
            ("free_bytes", self.free_bytes),
            ("limbo_bytes", self.limbo_bytes),
            ("longest_free_bytes", self.longest_free_bytes),
            ("free_runs", self.free_runs),
            ("groups", self.groups),
            ("journal_bytes", self.journal_bytes),
            ("journal_appended", self.journal_appended_bytes),
            ("index_memory", self.index_memory_bytes),
            ("unsynced", self.unsynced),
            ("syncs", self.syncs),
            ("device_reads", self.device_reads),
            ("device_read_bytes", self.device_read_bytes),
            ("device_writes", self.device_writes),
            ("device_write_bytes", self.device_write_bytes),
            ("device_syncs", self.device_syncs),
        ];
        rows.extend(self.times.rows());
        rows
    }
}

impl Store {
    /// Statistics. The first call may load the index and the lists of free space.
    pub fn stats(&self) -> Result<Stats> {
        self.core.stats()
    }

    /// Accesses to the devices since the store was opened: only `device_reads` and the like of [`stats`](Self::stats). Free of
    /// cost.
    pub fn accesses(&self) -> &Counts {
        &self.core.counts
    }

    /// Latencies of direct calls since the store was opened. Copies six histograms; `Full` if there is no memory.
    pub fn times(&self) -> Result<Times> {
        self.core.times.times()
    }
}

impl Core {
    fn stats(&self) -> Result<Stats> {
        let (mut bytes, mut extent_bytes, mut in_journal) = (0, 0, 0);
        for object in self.entries(..) {
            let (_, entry) = object?;
            bytes += u64::from(entry.len);
            match entry.kind {
                EXTENT => extent_bytes += entry.device_bytes(),
                kind => in_journal += u64::from(kind == JOURNAL),
            }
        }
        let journal_size = {
            let state = self.checkpoint.lock();
            state.last().journal_size
        };
        let mut allocator = self.allocator.lock();
        let (longest, runs) = allocator.space.fragments()?;
        let packed_extents: u64 = allocator
            .packed_extents
            .all()
            .map(|packed| u64::from(packed.span.units))
            .sum();
        let counts = &self.counts;
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let groups = allocator
            .space
            .units()
            .div_ceil(u64::from(self.group_units));
        Ok(Stats {
            objects: self.index.count(),
            bytes,
            extent_bytes,
            pack_bytes: packed_extents * UNIT,
            objects_in_journal: in_journal,
            data_bytes: allocator.space.units() * UNIT,
            free_bytes: allocator.space.free() * UNIT,
            limbo_bytes: allocator.space.limbo().units() * UNIT,
            longest_free_bytes: u64::from(longest) * UNIT,
            free_runs: runs,
            groups,
            journal_bytes: journal_size,
            journal_appended_bytes: self.log.appended(),
            index_memory_bytes: self.index.memory(),
            unsynced: load(&self.unsynced),
            syncs: self.log.syncs(),
            device_reads: load(&counts.reads),
            device_read_bytes: load(&counts.bytes_read),
            device_writes: load(&counts.writes),
            device_write_bytes: load(&counts.bytes_written),
            device_syncs: load(&counts.syncs),
            times: self.times.times()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::memory::Memory;
    use crate::object::{CreateOptions, ObjectId};

    #[test]
    fn calls_that_need_the_device_are_timed_in_two_parts() {
        let memory = Memory::from_bytes(&vec![0; 8 << 20], 8 << 20).unwrap();
        let options = CreateOptions::new().background(false);
        let store = Store::create_on(memory, None, &options, &mut |_, _| {}).unwrap();
        let names = |store: &Store| -> Vec<&'static str> {
            let rows = store.stats().unwrap().rows();
            rows.into_iter().map(|(name, _)| name).collect()
        };
        assert!(!names(&store).iter().any(|name| name.ends_with("_ns")));
        for n in 0..5 {
            store.put(ObjectId(n), &[7; 5000]).unwrap();
        }
        // Neither is an access.
        store.put(ObjectId(9), &[7; 50]).unwrap();
        store.get(ObjectId(9)).unwrap();
        store.get(ObjectId(1)).unwrap();
        store.sync().unwrap();
        // The puts, and the journal's part; nothing else reads.
        let accesses = store.accesses();
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(load(&accesses.reads), 1);
        assert!(load(&accesses.writes) >= 5 && load(&accesses.syncs) >= 1);
        let times = store.times().unwrap();
        let counts = [&times.put, &times.get, &times.sync]
            .map(|took| (took.device.count(), took.own.count()));
        assert_eq!(counts, [(5, 5), (1, 1), (1, 1)]);
        let timed = names(&store);
        for name in ["put_device_p50_ns", "get_own_p999_ns", "sync_device_max_ns"] {
            assert!(timed.contains(&name), "{name}");
        }
        assert_eq!(
            timed.iter().filter(|name| name.ends_with("_count")).count(),
            6
        );
    }
}
