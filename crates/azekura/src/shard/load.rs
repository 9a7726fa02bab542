//! Ascending records into an empty store of tree files: each shard loads its own, in a thread of its own.
//!
//! | step of a load | a crash here leaves |
//! |---|---|
//! | 1 the manifest states that all records are being removed | the empty store |
//! | 2 records go to the shards of their keys, in batches; each shard is loaded as one file is (`record::tree::load`) | what the next opening removes |
//! | 3 the shards end their loads when the last record has come, each durably | the same |
//! | 4 the manifest states that nothing is being removed | the empty store, or all records |
//!
//! So it is a clear that a crash cuts short, until all is there. Where a record is refused, or a shard fails, no shard has an end of its
//! records: each is empty again, and those that had ended are cleared. Who loads has the store alone, so nothing else is removed with
//! that. It does not know how a shard loads.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, ScopedJoinHandle, scope};

use super::Sharded;
use crate::engine::{Persistent, Reader};
use crate::error::{Error, Kind, Result};
use crate::record::ascending::Ascending;
use crate::record::gate;
use crate::record::limits::Limits;
use crate::record::tree::TreeDb;
use crate::room;

/// Bytes of keys and values after which a batch is passed on, and how many wait for a shard.
const BATCH_BYTES: usize = 16 << 10;
const BATCHES: usize = 2;

/// Records of one shard; `None`: there are no more.
type Batch = Option<Vec<(Vec<u8>, Vec<u8>)>>;

/// A shard that is being loaded.
struct ShardLoad<'s> {
    thread: ScopedJoinHandle<'s, Result<u64>>,
    sender: SyncSender<Batch>,
    batch: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

/// The records of a shard, as they come.
struct Received {
    receiver: Receiver<Batch>,
    batch: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
}

/// What ended a load before its end.
enum Stopped {
    /// A record was refused.
    Refused(Error),
    /// This shard has failed, and states why.
    Shard(usize),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Sharded<TreeDb> {
    /// Puts records, in the ascending order of their keys, into an empty store: all of them or none, also across a crash. How many they were.
    /// As [`TreeDb::load_sorted`], of each shard in a thread of its own.
    ///
    /// Errors are the same, after which the store is empty. After one of a manifest or of a clear, and where the records' iterator panics,
    /// the store refuses updates as `Poisoned`, until it is opened again, empty.
    pub fn load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        records: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<u64> {
        gate::outside_updates()?;
        self.is_cleared()?;
        let count = self.count();
        if count > 0 {
            let what = "records are loaded into an empty store only";
            return Err(Error::new(Kind::Invalid, what)
                .at(self.path())
                .found(format!("{count} records"), "none")
                .remedy("load them into a new store, or put them one by one"));
        }
        self.cleared_if_cut_short(|| {
            let loaded = self.load_shards(records);
            if loaded.is_err() {
                self.clear_all()?;
            }
            Ok(loaded)
        })?
    }

    /// Steps 2 and 3.
    fn load_shards<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<u64> {
        scope(|threads| {
            let mut loads = room::vec(self.shards.len())?;
            for (shard, store) in self.shards.iter().enumerate() {
                let (sender, receiver) = sync_channel(BATCHES);
                let records = Received {
                    receiver,
                    batch: Vec::new().into_iter(),
                };
                let thread = Builder::new()
                    .name(format!("load {shard}"))
                    .spawn_scoped(threads, move || store.load_sorted(records))
                    .map_err(|error| Error::io("cannot start a thread", error).at(self.path()))?;
                loads.push(ShardLoad {
                    thread,
                    sender,
                    batch: Vec::new(),
                    bytes: 0,
                });
            }
            let sent = self.send(records, &mut loads);
            // Where a load has no end, it is cut short as its sender goes.
            let loaded = loads.into_iter().map(ShardLoad::loaded);
            let mut loaded: Vec<Result<u64>> = loaded.collect();
            match sent {
                Err(Stopped::Refused(error)) => Err(error),
                Err(Stopped::Shard(shard)) => {
                    let failed = loaded.swap_remove(shard);
                    Err(self.named(shard, failed.err().unwrap_or_else(cut_short)))
                }
                Ok(count) => {
                    for (shard, loaded) in loaded.into_iter().enumerate() {
                        loaded.map_err(|error| self.named(shard, error))?;
                    }
                    Ok(count)
                }
            }
        })
    }

    /// Sends each record to its shard, and to all that there are no more; how many they were.
    fn send<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = Result<(K, V)>>,
        loads: &mut [ShardLoad<'_>],
    ) -> std::result::Result<u64, Stopped> {
        let promise = self.promise();
        let limits = Limits {
            key: promise.key_len_max,
            value: promise.value_len_max,
            whose: "a shard",
        };
        let path: &Path = self.path();
        let mut ascending = Ascending::new(self.order_of_keys());
        for record in records {
            let (key, value) = record?;
            let (key, value) = (key.as_ref(), value.as_ref());
            ascending.take((key, value), &limits, path)?;
            let shard = self.shard_of(key);
            if !loads[shard].put(key, value)? {
                return Err(Stopped::Shard(shard));
            }
        }
        // None ends before all have what is theirs.
        for (shard, load) in loads.iter_mut().enumerate() {
            if !load.pass_on() {
                return Err(Stopped::Shard(shard));
            }
        }
        for (shard, load) in loads.iter().enumerate() {
            if load.sender.send(None).is_err() {
                return Err(Stopped::Shard(shard));
            }
        }
        Ok(ascending.count())
    }
}

impl ShardLoad<'_> {
    /// Adds a record; whether the shard takes it.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        room::more(&mut self.batch, 1)?;
        self.batch.push((room::copy(key)?, room::copy(value)?));
        self.bytes += key.len() + value.len();
        Ok(self.bytes < BATCH_BYTES || self.pass_on())
    }

    /// Passes the batch on; whether the shard takes it.
    fn pass_on(&mut self) -> bool {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.sender.send(Some(batch)).is_ok()
    }

    /// What it has loaded, when it has ended.
    fn loaded(self) -> Result<u64> {
        drop(self.sender);
        let joined = self.thread.join();
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The error of a shard that got no end of its records.
fn cut_short() -> Error {
    Error::new(Kind::Invalid, "the load of another shard has failed")
}

impl Iterator for Received {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.batch.next() {
                return Some(Ok(record));
            }
            match self.receiver.recv() {
                Ok(Some(batch)) => self.batch = batch.into_iter(),
                Ok(None) => return None,
                Err(_) => return Some(Err(cut_short())),
            }
        }
    }
}
