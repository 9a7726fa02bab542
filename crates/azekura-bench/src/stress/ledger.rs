//! The ledger: which changes of which keys were begun and which were acknowledged, in memory that survives a kill.
//!
//! It is a file mapped into memory, so a store to it costs no system call, and what was stored is there after
//! `kill -9`. A cell belongs to one writer of one key and holds its last two changes. Each change has a version, which
//! determines its bytes, and the moments of one clock at which it began and was acknowledged.
//!
//! ```text
//!   word 0: clock | 1: chore under way | 2: how often work began | 64..: figures of threads | sweeps | cells
//!   cell:  change of odd version | change of even version      change: version and base | start | end (0: under way)
//! ```
//!
//! 1. A change takes the place of the last but one. First its end is zeroed, then its start stored, then its version:
//!    so whenever the process dies, the newest version is whole, and a change under way has its predecessor next to it.
//! 2. A change is begun before the engine is called, and ended after the call has returned.
//! 3. `base` is the version that replaced the whole value; versions after it appended to it; 0: the record was removed.
//!
//! A *sweep* removes every key of a part of the key space at once. It does not know engines or values.

use std::path::Path;
use std::sync::Arc;

use azekura::error::Result;
use azekura::io::file::File;
use azekura::io::{Access, Map, Storage};

/// Parts of the key space that a sweep may empty; a clear empties all.
pub(super) const PARTS: u64 = 8;
/// Threads that keep figures.
pub(super) const THREADS_MAX: u64 = 64;
const WORD: u64 = 8;
const CHORE: u64 = 1;
const WORKS: u64 = 2;
const FIGURES: u64 = 64;
/// Figures of each thread.
pub(super) const FIGURES_EACH: u64 = 16;
const CELLS: u64 = FIGURES + THREADS_MAX * FIGURES_EACH;
const CELL: u64 = 8;

/// How many keys there are, and which thread changes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Population {
    /// Keys that one thread changes: thread `key % threads`.
    pub(super) owned: u64,
    /// Keys that all threads change.
    pub(super) shared: u64,
    /// Threads that change keys.
    pub(super) threads: u64,
}

impl Population {
    pub(super) fn keys(&self) -> u64 {
        self.owned + self.shared
    }

    /// The writers of `key`: how many.
    pub(super) fn writers(&self, key: u64) -> u64 {
        if key < self.owned { 1 } else { self.threads }
    }

    /// The part of the key space that `key` lies in.
    pub(super) fn part(&self, key: u64) -> u64 {
        key * PARTS / self.keys()
    }

    /// The keys of a part: first, and the one past the last.
    pub(super) fn range(&self, part: u64) -> (u64, u64) {
        let first = |part: u64| (part * self.keys()).div_ceil(PARTS);
        (first(part), first(part + 1))
    }

    /// The first cell of `key`.
    fn cell(&self, key: u64) -> u64 {
        let shared = key.saturating_sub(self.owned);
        PARTS + key.min(self.owned) + shared * self.threads
    }
}

/// One change of a key by one writer. All zero: none ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) version: u32,
    /// 0: removed.
    pub(super) base: u32,
    pub(super) start: u64,
    /// 0: under way, unless the version is 0, too.
    pub(super) end: u64,
}

impl Slot {
    pub(super) fn is_under_way(&self) -> bool {
        self.version > 0 && self.end == 0
    }
}

/// The last two changes of one writer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    pub(super) newest: Slot,
    pub(super) before: Slot,
}

impl Cell {
    /// The last acknowledged change.
    pub(super) fn done(&self) -> Slot {
        if self.newest.is_under_way() {
            self.before
        } else {
            self.newest
        }
    }
}

/// What is known of a key at a moment: the cell of each writer, and of the sweeps of its part.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) cells: Vec<Cell>,
    pub(super) sweep: Cell,
}

impl Known {
    /// When the last began of all changes that are acknowledged.
    pub(super) fn last_start(&self) -> u64 {
        let cells = self.cells.iter().chain([&self.sweep]);
        cells.map(|cell| cell.done().start).max().unwrap_or(0)
    }
}

/// The open ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    map: Arc<Map>,
    population: Population,
}

/// A change that was begun and is to be ended or abandoned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    at: u64,
    pub(super) version: u32,
}

/// The word at which a change of this version in this cell begins.
fn place(cell: u64, version: u32) -> u64 {
    CELLS + cell * CELL + u64::from(version % 2) * 4
}

impl Ledger {
    /// Makes the ledger of a new store.
    pub(super) fn create(path: &Path, population: Population) -> Result<()> {
        let words = CELLS + population.cell(population.keys()) * CELL;
        File::create(path)?.resize((words * WORD).next_multiple_of(4096))
    }

    /// Opens a ledger; one process writes to it at a time.
    pub(super) fn open(path: &Path, population: Population, access: Access) -> Result<Self> {
        let file = File::open(path, access)?;
        let map = file.map(file.size()?)?;
        Ok(Self { map, population })
    }

    pub(super) fn population(&self) -> Population {
        self.population
    }

    fn word(&self, at: u64) -> u64 {
        self.map.load_u64(at * WORD)
    }

    fn store(&self, at: u64, word: u64) {
        self.map.store_u64(at * WORD, word);
    }

    /// The next moment of the clock.
    pub(super) fn tick(&self) -> u64 {
        self.map.fetch_add_u64(0, 1) + 1
    }

    /// The clock, to see that something happens.
    pub(super) fn now(&self) -> u64 {
        self.word(0)
    }

    /// Which chore is under way; 0: none.
    pub(super) fn chore(&self) -> u64 {
        self.word(CHORE)
    }

    pub(super) fn set_chore(&self, chore: u64) {
        self.store(CHORE, chore);
    }

    /// How often work on the store began.
    pub(super) fn works(&self) -> u64 {
        self.word(WORKS)
    }

    pub(super) fn begin_work(&self) {
        self.store(WORKS, self.word(WORKS) + 1);
    }

    /// Adds to a figure of `thread`, which is the caller's alone.
    pub(super) fn count(&self, thread: u64, figure: usize, by: u64) {
        let at = FIGURES + thread * FIGURES_EACH + figure as u64;
        self.store(at, self.word(at) + by);
    }

    /// A figure of one thread.
    pub(super) fn figure_of(&self, thread: u64, figure: usize) -> u64 {
        self.word(FIGURES + thread * FIGURES_EACH + figure as u64)
    }

    /// A figure of all threads.
    pub(super) fn figure(&self, figure: usize) -> u64 {
        let threads = 0..THREADS_MAX;
        threads.map(|thread| self.figure_of(thread, figure)).sum()
    }

    fn slot(&self, at: u64) -> Slot {
        loop {
            let state = self.word(at);
            let (start, end) = (self.word(at + 1), self.word(at + 2));
            // Another change took the place meanwhile.
            if self.word(at) == state {
                return Slot {
                    version: (state >> 32) as u32,
                    base: state as u32,
                    start,
                    end,
                };
            }
        }
    }

    fn cell_at(&self, cell: u64) -> Cell {
        let at = CELLS + cell * CELL;
        // Both as of one moment: while one is read, the other may have been used several times over.
        let (even, odd) = loop {
            let (even, odd) = (self.slot(at), self.slot(at + 4));
            if self.slot(at) == even {
                break (even, odd);
            }
        };
        let (newest, before) = if even.version >= odd.version {
            (even, odd)
        } else {
            (odd, even)
        };
        Cell { newest, before }
    }

    /// What is known of `key` now.
    pub(super) fn known(&self, key: u64) -> Known {
        let first = self.population.cell(key);
        let cells = first..first + self.population.writers(key);
        // The sweep first: it is as of before the cells, which only makes the judge more lenient if one is begun now.
        let sweep = self.cell_at(self.population.part(key));
        Known {
            cells: cells.map(|cell| self.cell_at(cell)).collect(),
            sweep,
        }
    }

    /// What is known of all keys now.
    pub(super) fn all(&self) -> Vec<Known> {
        (0..self.population.keys())
            .map(|key| self.known(key))
            .collect()
    }

    fn begin(&self, cell: u64, start: u64, base: impl FnOnce(u32) -> u32) -> Begun {
        let version = self.cell_at(cell).newest.version + 1;
        let at = place(cell, version);
        self.store(at + 2, 0);
        self.store(at + 1, start);
        self.store(at, u64::from(version) << 32 | u64::from(base(version)));
        Begun { at, version }
    }

    /// Begins a change of `key` by its `writer`; `base` is given the version and returns the base.
    pub(super) fn begin_key(
        &self,
        key: u64,
        writer: u64,
        start: u64,
        base: impl FnOnce(u32) -> u32,
    ) -> Begun {
        self.begin(self.population.cell(key) + writer, start, base)
    }

    /// Begins a sweep of a part.
    pub(super) fn begin_sweep(&self, part: u64, start: u64) -> Begun {
        self.begin(part, start, |_| 0)
    }

    /// The change was acknowledged.
    pub(super) fn end(&self, begun: Begun, end: u64) {
        self.store(begun.at + 2, end);
    }

    /// Nothing is there now, whatever the change was to be.
    pub(super) fn end_removed(&self, begun: Begun, end: u64) {
        self.store(begun.at, u64::from(begun.version) << 32);
        self.store(begun.at + 2, end);
    }

    /// The change was refused: it never happened.
    pub(super) fn abandon(&self, begun: Begun) {
        self.store(begun.at, 0);
        self.store(begun.at + 1, 0);
    }

    /// Makes what was found after a crash the only truth about `key`: `last` is the writer, version and base of what was
    /// found, or nothing.
    pub(super) fn resolve(&self, key: u64, last: Option<(u64, u32, u32)>) {
        let first = self.population.cell(key);
        let moment = self.tick();
        for writer in 0..self.population.writers(key) {
            let cell = self.cell_at(first + writer);
            let at = |version| place(first + writer, version);
            let found = match last {
                Some((by, version, base)) => (by == writer).then_some((version, base)),
                // Nothing is there: as if the first writer had removed it.
                None => (writer == 0).then(|| (cell.newest.version.max(1), 0)),
            };
            if cell.newest.is_under_way() && found.is_none_or(|(v, _)| v != cell.newest.version) {
                self.store(at(cell.newest.version), 0);
            }
            if let Some((version, base)) = found {
                let at = at(version);
                // In this order a kill in between leaves what is as true as before.
                self.store(at, u64::from(version) << 32 | u64::from(base));
                self.store(at + 2, moment);
                self.store(at + 1, moment);
            }
        }
    }

    /// Ends a sweep that a crash interrupted, after every key was settled.
    pub(super) fn settle_sweeps(&self) {
        for part in 0..PARTS {
            let newest = self.cell_at(part).newest;
            if newest.is_under_way() {
                self.store(place(part, newest.version), 0);
            }
        }
        self.set_chore(0);
    }
}
