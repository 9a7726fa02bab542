//! azekura's own store on the model disk: its real code, its real bytes, and the drive's time.
//!
//! The store stands on a storage of which only what is not zero is held, and values are zeros; so terabytes take the memory of
//! headers and checksums. The processor's part, which a virtual clock does not see, is added as for files: a call, and copying
//! and summing at the pace that the published machine had for copies. Checkpoints are made by the call that makes them due,
//! not beside it: what they take is in some call's latency.
//!
//! | class | acknowledged when | synced |
//! |---|---|---|
//! | `azekura` | the drive has taken the write | with every 4096 changes and one, as `CannyLS`'s journal |
//! | `azekura(sync)` | it survives loss of power | with every change |
//!
//! Objects of more than 2 MiB move in pieces, by two threads whose order this machine decides: their figures vary a little.
//! It is one client; nothing is asked while an answer is waited for.

use std::sync::Arc;

use azekura::engine::Durability;
use azekura::error::{Error, Kind, Result};
use azekura::io::sim::drive::{Clocked, Counts, Machine, Parameters, Sparse};
use azekura::object::{CreateOptions, ObjectId, Store};

use super::{Pattern, call_ns};

/// The same part of the capacity as the store's own choice.
const JOURNAL_PART: u64 = 64;

/// The store on a disk.
#[derive(Debug)]
pub(crate) struct Azekura {
    machine: Arc<Machine>,
    store: Store,
    power: bool,
    value: Vec<u8>,
}

impl Azekura {
    /// An empty store of `capacity` bytes at the outer edge of a drive, with `power` in the durable class. `Full` if the drive
    /// is smaller.
    pub(crate) fn new(parameters: Parameters, capacity: u64, power: bool) -> Result<Self> {
        let machine = Machine::new(parameters);
        let capacity = capacity.next_multiple_of(4096);
        let journal_size = (capacity / JOURNAL_PART).next_multiple_of(4096);
        let sparse = Sparse::new(capacity, journal_size)?;
        let disk = Clocked::over(sparse, Arc::clone(&machine), 0);
        let options = CreateOptions::new()
            .capacity(capacity)
            .journal_size(journal_size)
            .durability(if power {
                Durability::Power
            } else {
                Durability::Process
            })
            .sync_every((!power).then_some(4096))
            .background(false);
        let store = Store::create_on(disk, None, &options, &mut |_, _| {})?;
        Ok(Self {
            machine,
            store,
            power,
            value: Vec::new(),
        })
    }

    /// The store.
    #[cfg(test)]
    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }

    fn work(&self, len: u64) {
        self.machine.pass(call_ns(len));
    }
}

impl Pattern for Azekura {
    fn name(&self) -> &'static str {
        if self.power {
            "azekura(sync)"
        } else {
            "azekura"
        }
    }

    fn survives(&self) -> Durability {
        if self.power {
            Durability::Power
        } else {
            Durability::Process
        }
    }

    fn now_ns(&self) -> u64 {
        self.machine.now_ns()
    }

    fn pass(&mut self, ns: u64) -> Result<()> {
        self.machine.pass(ns);
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.machine.counts()
    }

    fn fill(&mut self, first: u64, count: u64, len: u64) -> Result<()> {
        (first..first + count).try_for_each(|key| self.put(key, len))
    }

    fn put(&mut self, key: u64, len: u64) -> Result<()> {
        self.value.resize(len as usize, 0);
        self.work(len);
        self.store.put(ObjectId(key.into()), &self.value)?;
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<()> {
        let value = self.store.get(ObjectId(key.into()))?;
        let Some(value) = value else {
            let what = format!("object {key} was put and is not there");
            return Err(Error::new(Kind::Corrupted, what));
        };
        self.work(value.len() as u64);
        Ok(())
    }

    fn remove(&mut self, key: u64) -> Result<()> {
        self.work(0);
        self.store.remove(ObjectId(key.into())).map(drop)
    }
}
