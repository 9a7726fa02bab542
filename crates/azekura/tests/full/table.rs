//! Stores of the sizes with which full stores once locked up: default segments unless stated, the background worker on.
//!
//! Each is filled until a record is refused. Of stores that fill in a moment, each kind of operation comes first once, on a
//! store of its own; of others one after the other. One is a file; the others are in memory, where syncs cost nothing.

use azekura::Engine as _;
use azekura::io::memory::Memory;
use azekura::record::hash::CreateOptions;
use azekura::testkit::suite::{case, demand, is_full};
use azekura::testkit::tried;

use super::bounded::{Bounded, Drawn, Place};

const MIB: u64 = 1 << 20;

/// What limits a store, and what it holds.
#[derive(Clone, Copy, Debug)]
struct Row {
    capacity: u64,
    len: usize,
    segment_size: u64,
    writers: usize,
    /// The device has so much room, and the capacity is that of any file.
    is_device: bool,
    is_file: bool,
}

const ROW: Row = Row {
    capacity: 0,
    len: 100,
    segment_size: 0,
    writers: 1,
    is_device: false,
    is_file: false,
};

/// Filled in a moment.
const SMALL: [Row; 10] = [
    Row {
        capacity: 16 * MIB,
        ..ROW
    },
    Row {
        capacity: 3 * MIB,
        is_file: true,
        ..ROW
    },
    Row {
        capacity: 32 * MIB,
        ..ROW
    },
    Row {
        capacity: 40 * MIB,
        ..ROW
    },
    Row {
        capacity: 48 * MIB,
        ..ROW
    },
    Row {
        capacity: 3 * MIB,
        segment_size: 64 << 10,
        ..ROW
    },
    Row {
        capacity: 32 * MIB,
        segment_size: 64 << 10,
        writers: 4,
        ..ROW
    },
    // Some 500 overwrites of it did not end within a minute.
    Row {
        capacity: 32 * MIB,
        len: 50_000,
        ..ROW
    },
    // Segments of 1 MiB, with which these stores were found.
    Row {
        capacity: 32 * MIB,
        segment_size: 1 << 20,
        ..ROW
    },
    Row {
        capacity: 16 * MIB,
        is_device: true,
        ..ROW
    },
];

const LARGE: [Row; 7] = [
    Row {
        capacity: 64 * MIB,
        ..ROW
    },
    Row {
        capacity: 64 * MIB,
        len: 8,
        ..ROW
    },
    Row {
        capacity: 128 * MIB,
        ..ROW
    },
    Row {
        capacity: 128 * MIB,
        segment_size: 4 << 20,
        ..ROW
    },
    Row {
        capacity: 256 * MIB,
        len: 8,
        ..ROW
    },
    Row {
        capacity: 32 * MIB,
        is_device: true,
        ..ROW
    },
    Row {
        capacity: 64 * MIB,
        is_device: true,
        ..ROW
    },
];

impl Row {
    fn full(&self) -> Bounded {
        let drawn = Drawn {
            segment_size: self.segment_size,
            capacity: self.capacity,
            len: self.len,
            writers: self.writers,
            background: true,
        };
        let options = CreateOptions::new()
            .segment_size(self.segment_size)
            .capacity(if self.is_device {
                1 << 40
            } else {
                self.capacity
            });
        let place = if self.is_file {
            Place::File(tempfile::tempdir().expect("a folder"))
        } else if self.is_device {
            let memory = Memory::new(1 << 31).expect("memory");
            memory.set_limit(self.capacity);
            Place::Memory(memory)
        } else {
            Place::Memory(Memory::new(self.capacity).expect("memory"))
        };
        Bounded::with(drawn, options, place)
    }
}

type Operation = (&'static str, fn(&mut Bounded));

/// What comes first in a full store.
const OPERATIONS: [Operation; 5] = [
    ("equal length", equal),
    ("half as long", shorter),
    ("upkeep", |full| full.upkeep()),
    ("removal", remove),
    ("clear", clear),
];

fn equal(full: &mut Bounded) {
    let value = full.drawn.value(1);
    full.each("equal length", |db, key| db.put(&key.to_le_bytes(), &value));
}

fn shorter(full: &mut Bounded) {
    let value = full.drawn.value(2);
    let half = &value[..full.drawn.len / 2];
    full.each("half as long", |db, key| db.put(&key.to_le_bytes(), half));
}

fn remove(full: &mut Bounded) {
    full.each("removal", |db, key| {
        assert!(db.remove(&key.to_le_bytes())?);
        Ok(())
    });
    full.keys.iter_mut().for_each(Vec::clear);
}

/// Cleared and filled again, twice: as many records each time.
fn clear(full: &mut Bounded) {
    let first = full.count();
    for _ in 0..2 {
        full.db.clear().expect("it is cleared");
        full.keys.iter_mut().for_each(Vec::clear);
        let again = full.fill();
        assert!(again * 10 >= first * 9, "{again} records after {first}");
    }
}

#[test]
fn stores_of_the_sizes_that_locked_up_go_on() {
    let mut tried_rows = 0;
    for row in SMALL {
        let _shown = case(0, &row);
        for (what, operation) in OPERATIONS {
            let mut full = row.full();
            tried(&format!("{what} first: {} records", full.count()));
            operation(&mut full);
            full.check();
        }
        tried_rows += 1;
    }
    for row in LARGE.iter().filter(|_| is_full()) {
        let _shown = case(0, row);
        let mut full = row.full();
        tried(&format!("one after the other: {} records", full.count()));
        for (_, operation) in OPERATIONS {
            operation(&mut full);
            full.check();
            full.fill();
        }
        tried_rows += 1;
    }
    let rows = SMALL.len() + if is_full() { LARGE.len() } else { 0 };
    demand(tried_rows, rows as u64, "sizes of full stores");
}
