//! A toy store under the crash driver: sound, it passes; with any one of its bugs, it is caught.
//!
//! The toy keeps numbers in a table of cells and a redo log before it; a checkpoint writes the table, then a
//! header of the next epoch, and the log begins again. A record counts if its epoch, number and checksum
//! fit. Header at 0 (two slots of a sector), table at 1024, log at 4096.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::error::Result;
use crate::format::checksum::crc;
use crate::io::sim::Operation;
use crate::io::{Access, Directory, Map, Storage};

const CELLS: usize = 96;
const TABLE: u64 = 1024;
const LOG: u64 = 4096;
const RECORD: usize = 48;
const RECORDS_MAX: u64 = 24;
const SIZE: u64 = 8192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// `sync` does nothing.
    SkipsTheSync,
    /// The table is written while the log is not durable.
    TableBeforeLog,
    /// The header is written while the table is not durable.
    HeaderBeforeTable,
    /// The log is overwritten while the header is not durable.
    LogBeforeHeader,
    /// There is one header slot, written in place.
    OneHeader,
    /// The name of a new store is not synced.
    ForgetsTheFolder,
    /// The name is given before the content is durable.
    NameBeforeContent,
    /// Records are believed without their checksum.
    SkipsTheChecksum,
    /// Recovery continues after the last record, in the same epoch.
    TrustsTheTail,
    /// Recovery changes the header without a sync before.
    RecoversWithoutSync,
    /// Records are written four at a time.
    AcknowledgesEarly,
    /// A failed sync is tried again.
    TriesAgain,
    /// What a failed sync left in the cache is believed.
    BelievesTheCache,
}

struct Toy {
    storage: Arc<dyn Storage>,
    map: Arc<Map>,
    bug: Bug,
    epoch: u64,
    /// Records in the log.
    count: u64,
    held: Vec<(usize, u64)>,
    cells: [u64; CELLS],
    failed: bool,
}

fn seal(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    bytes.resize(len - 4, 0xee);
    bytes.extend(crc(7, &bytes).to_le_bytes());
    bytes
}

fn is_sealed(bytes: &[u8]) -> bool {
    let (body, sum) = bytes.split_at(bytes.len() - 4);
    sum == crc(7, body).to_le_bytes()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[index * 8..index * 8 + 8].try_into().unwrap())
}

impl Toy {
    fn empty(storage: Arc<dyn Storage>, bug: Bug) -> Result<Self> {
        let map = storage.map(SIZE)?;
        Ok(Self {
            storage,
            map,
            bug,
            epoch: 0,
            count: 0,
            held: Vec::new(),
            cells: [0; CELLS],
            failed: false,
        })
    }

    fn create(disk: &SimDisk, bug: Bug) -> Result<Self> {
        let directory = disk.directory();
        let storage = directory.create(Path::new("new"))?;
        storage.resize(SIZE)?;
        let mut toy = Self::empty(storage, bug)?;
        toy.header()?;
        if bug != Bug::NameBeforeContent {
            toy.storage.sync()?;
        }
        directory.rename(Path::new("new"), Path::new("toy"))?;
        if bug != Bug::ForgetsTheFolder {
            directory.sync()?;
        }
        Ok(toy)
    }

    /// `None`: there is no store yet.
    fn open(disk: &SimDisk, bug: Bug) -> Result<Option<Self>> {
        let directory = disk.directory();
        if !directory.exists(Path::new("toy"))? {
            return Ok(None);
        }
        let storage = directory.open(Path::new("toy"), Access::Write)?;
        if bug != Bug::BelievesTheCache {
            storage.drop_cache()?;
        }
        let mut bytes = vec![0; SIZE as usize];
        storage.read_at(0, &mut bytes)?;
        let slots = bytes[..1024]
            .chunks(512)
            .filter(|slot| is_sealed(&slot[..128]));
        let epoch = slots.map(|slot| word(slot, 0)).max();
        let mut toy = Self::empty(storage, bug)?;
        toy.epoch = epoch.expect("a header is valid");
        toy.cells = std::array::from_fn(|cell| word(&bytes[1024..], cell));
        while toy.count < RECORDS_MAX {
            let record = &bytes[LOG as usize + toy.count as usize * RECORD..][..RECORD];
            let fits = word(record, 0) == toy.epoch && word(record, 1) == toy.count + 1;
            if !fits || (bug != Bug::SkipsTheChecksum && !is_sealed(record)) {
                break;
            }
            toy.cells[word(record, 2) as usize % CELLS] = word(record, 3);
            toy.count += 1;
        }
        if bug != Bug::TrustsTheTail {
            toy.checkpoint(bug != Bug::RecoversWithoutSync)?;
        }
        Ok(Some(toy))
    }

    fn header(&mut self) -> Result<()> {
        let slot = if self.bug == Bug::OneHeader {
            0
        } else {
            self.epoch % 2
        };
        let header = seal(words(&[self.epoch; 15]), 128);
        self.storage.write_at(slot * 512, &header)
    }

    fn storage_sync(&self) -> Result<()> {
        let done = self.storage.sync();
        if self.bug == Bug::TriesAgain {
            done.or_else(|_| self.storage.sync())
        } else {
            done
        }
    }

    fn checkpoint(&mut self, with_syncs: bool) -> Result<()> {
        if with_syncs && self.bug != Bug::TableBeforeLog {
            self.storage_sync()?;
        }
        self.storage.write_at(TABLE, &words(&self.cells))?;
        if with_syncs && self.bug != Bug::HeaderBeforeTable {
            self.storage_sync()?;
        }
        self.epoch += 1;
        self.header()?;
        if self.bug != Bug::LogBeforeHeader {
            self.storage_sync()?;
        }
        self.count = 0;
        Ok(())
    }

    fn put(&mut self, cell: usize, value: u64) -> Result<()> {
        assert!(!self.failed, "the workload ends at its first error");
        if self.count == RECORDS_MAX {
            let done = self.checkpoint(true);
            self.failed = done.is_err();
            done?;
        }
        self.cells[cell] = value;
        self.held.push((cell, value));
        if self.bug == Bug::AcknowledgesEarly && self.held.len() < 4 {
            return Ok(());
        }
        for (cell, value) in std::mem::take(&mut self.held) {
            let body = words(&[self.epoch, self.count + 1, cell as u64, value]);
            let record = seal(body, RECORD);
            self.map.write(LOG + self.count * RECORD as u64, &record);
            self.count += 1;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if self.bug == Bug::SkipsTheSync {
            return Ok(());
        }
        let done = self.storage_sync();
        self.failed = done.is_err();
        done
    }
}

/// Operation `number` (from 1): which cell becomes the number. Neighbours are far apart in the table.
fn cell_of(number: usize) -> usize {
    number * 37 % CELLS
}

const OPERATIONS: usize = 120;

fn workload(bug: Bug) -> impl Fn(&SimDisk, &Ledger) {
    move |disk, ledger| {
        let run = || -> Result<()> {
            let mut toy = Toy::create(disk, bug)?;
            for number in 1..=OPERATIONS {
                ledger.operation(|| toy.put(cell_of(number), number as u64))?;
                if number % 11 == 0 {
                    toy.sync()?;
                    ledger.synced();
                }
            }
            Ok(())
        };
        // A planned fault ends the run; the ledger knows how far it came.
        let _ = run();
    }
}

/// How many operations the cells are the result of.
fn operations_in(cells: &[u64; CELLS]) -> std::result::Result<usize, String> {
    let number = cells.iter().copied().max().unwrap_or(0) as usize;
    let mut wanted = [0; CELLS];
    (1..=number.min(2 * OPERATIONS)).for_each(|n| wanted[cell_of(n)] = n as u64);
    if *cells == wanted {
        Ok(number)
    } else {
        Err("the cells are of no one moment".into())
    }
}

fn verify(bug: Bug) -> impl Fn(&Crash<'_>) -> std::result::Result<u64, String> {
    move |crash| {
        let toy = Toy::open(crash.disk, bug).map_err(|error| error.to_string())?;
        crash.recovered();
        let Some(mut toy) = toy else {
            return if crash.kept() == 0 {
                Ok(0)
            } else {
                Err("there is no store".into())
            };
        };
        let number = operations_in(&toy.cells)?;
        if !(crash.kept()..=crash.done.began).contains(&number) {
            return Err(format!("found {number} operations"));
        }
        // The store continues: one more operation, and nothing but that.
        toy.put(cell_of(number + 1), number as u64 + 1)
            .map_err(|error| error.to_string())?;
        drop(toy);
        let again = crash.disk.kill_state(crash.disk.events());
        let toy = Toy::open(&again, bug).map_err(|error| error.to_string())?;
        let found = operations_in(&toy.ok_or("the store is gone")?.cells)?;
        if found != number + 1 && bug != Bug::AcknowledgesEarly {
            return Err(format!("{number} operations and one more became {found}"));
        }
        Ok(number as u64)
    }
}

/// The message of the violation that is found, if one is.
fn violation(act: impl FnOnce() -> Counts) -> Option<String> {
    catch_unwind(AssertUnwindSafe(act))
        .err()
        .map(|panicked| *panicked.downcast().unwrap())
}

fn explored(config: &Config, bug: Bug) -> Option<String> {
    violation(|| explore(config, workload(bug), verify(bug)))
}

fn failed(config: &Config, operation: Operation, fault: Fault, bug: Bug) -> Counts {
    fail_each(config, operation, fault, workload(bug), verify(bug))
}

#[test]
fn a_sound_store_survives_every_cut_and_kill() {
    let counts = explore(&Config::new(1), workload(Bug::None), verify(Bug::None));
    assert!(counts.crash_states > 1_000, "{counts:?}");
    assert!(counts.recovery_cuts > 1_000, "{counts:?}");
    assert!(counts.kills > 300, "{counts:?}");
    let again = explore(&Config::new(1), workload(Bug::None), verify(Bug::None));
    assert_eq!(counts, again, "a seed decides everything");
}

#[test]
fn a_sound_store_survives_torn_lines_and_stale_room() {
    let mut config = Config {
        atom: Atom::Line,
        ..Config::new(2).quick(60)
    };
    config.limits.stale = true;
    let counts = explore(&config, workload(Bug::None), verify(Bug::None));
    assert!(counts.crash_states > 500, "{counts:?}");
}

#[test]
fn cells_written_in_place_are_caught_where_sectors_in_flight_become_garbage() {
    let mut config = Config::new(2);
    config.limits.garbage = true;
    let found = explored(&config, Bug::None).expect("the log does not hold every cell");
    assert!(found.contains("garbage in flight"), "{found}");
}

#[test]
fn a_store_that_misses_a_sync_is_caught_whichever_it_is() {
    let bugs = [
        Bug::SkipsTheSync,
        Bug::TableBeforeLog,
        Bug::HeaderBeforeTable,
        Bug::LogBeforeHeader,
        Bug::ForgetsTheFolder,
        Bug::NameBeforeContent,
    ];
    let config = Config {
        kills: false,
        ..Config::new(3)
    };
    for bug in bugs {
        let found = explored(&config, bug);
        let found = found.unwrap_or_else(|| panic!("{bug:?} was not caught"));
        assert!(found.starts_with("seed 3, after event "), "{found}");
        assert!(found.contains("power cut, choice "), "{found}");
    }
}

#[test]
fn a_recovery_that_misses_a_sync_is_caught_by_cutting_it() {
    let config = Config {
        kills: false,
        recovery_one_in: 2,
        ..Config::new(4)
    };
    let found = explored(&config, Bug::RecoversWithoutSync).expect("it is caught");
    assert!(found.contains("its recovery cut at"), "{found}");
    let without = Config {
        recovery_one_in: 0,
        ..config
    };
    assert_eq!(
        explored(&without, Bug::RecoversWithoutSync),
        None,
        "only the second cut finds it"
    );
}

#[test]
fn a_store_that_believes_what_it_reads_is_caught() {
    assert!(explored(&Config::new(5), Bug::SkipsTheChecksum).is_some());
    assert!(explored(&Config::new(5), Bug::TrustsTheTail).is_some());
}

#[test]
fn a_header_written_in_place_is_caught_where_lines_tear_and_not_where_sectors_hold() {
    let config = Config {
        atom: Atom::Line,
        ..Config::new(6)
    };
    let found = explored(&config, Bug::OneHeader).expect("it is caught");
    assert!(
        found.contains("a header is valid"),
        "a panic of the verifier is told: {found}"
    );
    let whole = Config {
        kills: false,
        ..Config::new(6)
    };
    assert_eq!(explored(&whole, Bug::OneHeader), None);
}

#[test]
fn an_acknowledgement_before_the_write_is_caught_by_a_kill() {
    let found = explored(&Config::new(7), Bug::AcknowledgesEarly).expect("it is caught");
    assert!(
        found.contains("kill 0 bytes into the next write"),
        "{found}"
    );
}

#[test]
fn a_sound_store_survives_every_single_fault() {
    let config = Config::new(8).quick(8);
    let trials = [
        (Operation::Write, Fault::Error),
        (Operation::Write, Fault::Short(40)),
        (Operation::Write, Fault::Torn),
        (Operation::Sync, Fault::Error),
        (Operation::Resize, Fault::Full),
        (Operation::Name, Fault::Error),
        (Operation::SyncNames, Fault::Error),
    ];
    for (operation, fault) in trials {
        let counts = failed(&config, operation, fault, Bug::None);
        assert!(
            counts.kills > 0 && counts.crash_states > 0,
            "{operation:?} {counts:?}"
        );
    }
}

#[test]
fn a_store_that_takes_a_failed_sync_lightly_is_caught() {
    for bug in [Bug::TriesAgain, Bug::BelievesTheCache] {
        let config = Config {
            recovery_one_in: 1,
            ..Config::new(9)
        };
        let found = violation(|| failed(&config, Operation::Sync, Fault::Error, bug));
        let found = found.unwrap_or_else(|| panic!("{bug:?} was not caught"));
        assert!(found.contains("Sync number "), "{found}");
    }
}
