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

impl Store {
    /// Statistics by name; sizes are in bytes:
    ///
    /// | name | meaning |
    /// |---|---|
    /// | `objects`, `bytes`, `extent_bytes` | objects; bytes of their values, and of the extents of those that have their own |
    /// | `pack_bytes`, `objects_in_journal` | extents of many small objects; small ones that are in no packed extent yet |
    /// | `data_bytes` | space for extents in all |
    /// | `free_bytes`, `limbo_bytes` | free, and free after the next sync |
    /// | `longest_free_bytes`, `free_runs` | the longest run of free space, and the number of runs |
    /// | `groups` | allocation groups |
    /// | `journal_bytes`, `journal_appended` | size of the journal; bytes appended since opening |
    /// | `index_memory` | bytes of memory |
    /// | `unsynced` | changes since the last sync |
    /// | `syncs` | syncs of the devices since opening |
    /// | `device_reads`, `device_read_bytes` | since opening, of all devices |
    /// | `device_writes`, `device_write_bytes`, `device_syncs` | the same; stores into the journal's mapped memory are no writes |
    /// | `put_device_p50_ns`, ... | of `put`, `get` and `sync`, of the `device`'s part and the `own` one: `count`, `p50_ns`, `p99_ns`, `p999_ns`, `max_ns`, as [`times`](Self::times) has them; none of what did not happen |
    pub fn stats(&self) -> Result<Vec<(&'static str, u64)>> {
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
    fn stats(&self) -> Result<Vec<(&'static str, u64)>> {
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
        let mut figures = vec![
            ("objects", self.index.count()),
            ("bytes", bytes),
            ("extent_bytes", extent_bytes),
            ("pack_bytes", packed_extents * UNIT),
            ("objects_in_journal", in_journal),
            ("data_bytes", allocator.space.units() * UNIT),
            ("free_bytes", allocator.space.free() * UNIT),
            ("limbo_bytes", allocator.space.limbo().units() * UNIT),
            ("longest_free_bytes", u64::from(longest) * UNIT),
            ("free_runs", runs),
            (
                "groups",
                allocator
                    .space
                    .units()
                    .div_ceil(u64::from(self.group_units)),
            ),
            ("journal_bytes", journal_size),
            ("journal_appended", self.log.appended()),
            ("index_memory", self.index.memory()),
            ("unsynced", load(&self.unsynced)),
            ("syncs", self.log.syncs()),
            ("device_reads", load(&counts.reads)),
            ("device_read_bytes", load(&counts.bytes_read)),
            ("device_writes", load(&counts.writes)),
            ("device_write_bytes", load(&counts.bytes_written)),
            ("device_syncs", load(&counts.syncs)),
        ];
        figures.extend(self.times.times()?.figures());
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::memory::Memory;
    use crate::object::{ObjectId, Options};

    #[test]
    fn calls_that_need_the_device_are_timed_in_two_parts() {
        let memory = Memory::from_bytes(&vec![0; 8 << 20], 8 << 20).unwrap();
        let options = Options {
            background: false,
            ..Options::default()
        };
        let store = Store::create_on(memory, None, &options, &mut |_, _| {}).unwrap();
        let names = |store: &Store| -> Vec<&'static str> {
            let all = store.stats().unwrap();
            all.into_iter().map(|(name, _)| name).collect()
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
