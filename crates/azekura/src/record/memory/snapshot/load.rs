//! Loading: the whole file is verified before the first record is handed on.
//!
//! The file is read twice, block by block, and every block is verified each time; the second reading is from
//! the page cache, if it has room. An engine that cannot take all of it is refused before anything is put there,
//! where that can be known; one that fails meanwhile is emptied again. It keeps no more than one block in
//! memory.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Options;
use super::layout::{
    BLOCK_HEADER_SIZE, BlockHeader, END_SIZE, HEAD_SIZE, Head, Record, WORD, end_of, records,
};
use crate::engine::Engine;
use crate::error::{Error, Kind, Result, size};
use crate::format::checksum::crc;
use crate::format::superblock::{SIZE, Superblock};
use crate::io::file::File;
use crate::io::{Access, Storage};
use crate::room;

/// Records put at once.
const BATCH: usize = 256;

/// A snapshot, open for reading. That it opens proves that its head is right, and no more.
#[derive(Debug)]
pub struct Snapshot {
    storage: Arc<dyn Storage>,
    head: Head,
    size: u64,
}

/// Is lent key, value, and when the record expires, in milliseconds since 1970.
pub type VisitRecord<'v> = dyn FnMut(&[u8], &[u8], Option<u64>) -> ControlFlow<()> + 'v;

/// What a snapshot holds, all of it verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records.
    pub records: u64,
    /// Of those, how many have a time at which they expire.
    pub expiring: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Length of the longest key, in bytes.
    pub key_len_max: u64,
    /// Length of the longest value, in bytes.
    pub value_len_max: u64,
}

/// What was put into an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Records that were put.
    pub records: u64,
    /// Records whose time had passed.
    pub expired: u64,
}

/// Fills a new engine from the snapshot at `path`, and hands it back whole; on an error it is dropped.
///
/// Errors as [`Snapshot::open`] and [`Snapshot::load_into`].
pub fn load<E: Engine>(path: &Path, engine: E) -> Result<E> {
    Snapshot::open(path)?.load_into(&engine, &mut |_, _| ())?;
    Ok(engine)
}

impl Snapshot {
    /// Opens a snapshot. `Io` if there is no such file; `Mismatch` if it is something else, empty, or of a
    /// newer version; `Corrupted` if its head is damaged.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_on(Arc::new(File::open(path, Access::Read)?))
    }

    /// As [`open`](Self::open), on a storage.
    pub fn open_on(storage: Arc<dyn Storage>) -> Result<Self> {
        let size = storage.size()?;
        let mut front = room::collect((0..size.min(SIZE) as usize).map(|_| 0))?;
        storage.read_at(0, &mut front)?;
        let describe = |error: Error| error.at(storage.path());
        if front.is_empty() {
            return Err(describe(
                Error::new(Kind::Mismatch, "the file is empty")
                    .remedy("save a snapshot there first"),
            ));
        }
        let damaged =
            || Error::new(Kind::Corrupted, "the head of the snapshot is damaged").offset(0);
        let slot = front.get(..HEAD_SIZE as usize).unwrap_or(&front);
        // What another engine's file is may stand in its other slot.
        let found =
            Superblock::current(slot, &WORD).or_else(|_| Superblock::current(&front, &WORD));
        let head = match found {
            Ok(slot) => Head::decode(&slot.payload).ok_or_else(damaged),
            Err(error) if error.kind() == Kind::Corrupted => Err(damaged()),
            Err(error) => Err(error),
        };
        let head = head.map_err(describe)?;
        Ok(Self {
            storage,
            head,
            size,
        })
    }

    /// The word of the engine that was saved.
    pub fn engine(&self) -> &str {
        &self.head.engine
    }

    /// The name of its order, if it had one.
    pub fn order(&self) -> Option<&str> {
        self.head.order.as_deref()
    }

    /// Verifies the whole file. `Corrupted`, with the offset, at the first damage, or if the file was cut.
    /// `progress` is called with (bytes done, bytes in all).
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Summary> {
        let mut summary = Summary {
            bytes: self.size,
            ..Summary::default()
        };
        self.each_block(progress, &mut |records| {
            for record in records {
                summary.records += 1;
                summary.expiring += u64::from(record.expires_ms.is_some());
                summary.key_len_max = summary.key_len_max.max(record.key.len() as u64);
                summary.value_len_max = summary.value_len_max.max(record.value.len() as u64);
            }
            Ok(())
        })?;
        Ok(summary)
    }

    /// Shows each record until `visit` breaks. The file is verified as far as it was shown: who needs all or
    /// nothing calls [`check`](Self::check) before.
    pub fn read(&self, visit: &mut VisitRecord<'_>) -> Result<()> {
        let mut broke = false;
        let read = self.each_block(&mut |_, _| (), &mut |records| {
            for record in records {
                if visit(record.key, record.value, record.expires_ms).is_break() {
                    broke = true;
                    return Err(Error::new(Kind::Invalid, "the visitor broke"));
                }
            }
            Ok(())
        });
        if broke { Ok(()) } else { read }
    }

    /// Verifies the whole file, then puts its records into `engine`, which is empty and not used by others yet.
    ///
    /// Records whose time has passed are left out. Errors, with nothing put: those of [`check`](Self::check);
    /// `Invalid` (the engine is not empty), `Mismatch` (engine and snapshot have orders of keys of different
    /// names; or records expire, and the engine would keep them for ever), `TooLarge` (a record over the
    /// engine's limits). If the engine fails meanwhile, or the file changes, it is emptied again and that error
    /// is returned. If it cannot be emptied either (some need memory for that), a part stays there, and the error states it.
    pub fn load_into(
        &self,
        engine: &dyn Engine,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Loaded> {
        self.load_with(engine, &Options::default(), progress)
    }

    /// As [`load_into`](Self::load_into), by another clock.
    pub fn load_with(
        &self,
        engine: &dyn Engine,
        options: &Options,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Loaded> {
        let total = 2 * self.size;
        let summary = self.check(&mut |done, _| progress(done, total))?;
        self.suits(engine, &summary)
            .map_err(|error| error.at(self.storage.path()))?;
        let loaded = self.put_all(engine, (options.now_ms)(), &mut |done, _| {
            progress(self.size + done, total);
        });
        loaded.map_err(|error| match engine.clear() {
            Ok(()) => error,
            Err(_) => error.remedy("clear the engine: a part of the snapshot is still in it"),
        })
    }

    fn suits(&self, engine: &dyn Engine, summary: &Summary) -> Result<()> {
        let promise = engine.promise();
        if engine.count() > 0 {
            return Err(Error::new(
                Kind::Invalid,
                "a snapshot is loaded into an empty store only",
            )
            .found(format!("{} records", engine.count()), "none")
            .remedy("clear it, or load into a new one"));
        }
        let order = engine
            .as_ordered()
            .map(|ordered| ordered.order_name().to_owned());
        if let (Some(saved), Some(order)) = (self.order(), order)
            && saved != order
        {
            return Err(
                Error::new(Kind::Mismatch, "the snapshot has another order of keys")
                    .found(saved, order)
                    .remedy("load it into a store of its order, or into one without an order"),
            );
        }
        if summary.expiring > 0 && engine.as_expiring().is_none() {
            return Err(
                Error::new(Kind::Mismatch, "the snapshot has records that expire")
                    .detail(format!(
                        "{} of {}; engine {} would keep them for ever",
                        summary.expiring, summary.records, promise.engine
                    ))
                    .remedy("load it into a cache"),
            );
        }
        for (what, found, most) in [
            ("key", summary.key_len_max, promise.key_len_max),
            ("value", summary.value_len_max, promise.value_len_max),
        ] {
            if found > most {
                let what = format!(
                    "the snapshot has a {what} that engine {} does not take",
                    promise.engine
                );
                return Err(Error::new(Kind::TooLarge, what)
                    .found(size(found), format!("at most {}", size(most))));
            }
        }
        Ok(())
    }

    fn put_all(
        &self,
        engine: &dyn Engine,
        now: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Loaded> {
        let mut loaded = Loaded::default();
        self.each_block(progress, &mut |records| {
            let mut batch: Vec<(&[u8], &[u8])> = room::vec(BATCH)?;
            for record in records {
                match (record.expires_ms, engine.as_expiring()) {
                    (Some(at), _) if at <= now => {
                        loaded.expired += 1;
                        continue;
                    }
                    (Some(at), Some(expiring)) => {
                        let left = Duration::from_millis(at - now);
                        expiring.put_for(record.key, record.value, left)?;
                    }
                    _ => batch.push((record.key, record.value)),
                }
                loaded.records += 1;
                if batch.len() == BATCH {
                    engine.put_many(&batch)?;
                    batch.clear();
                }
            }
            engine.put_many(&batch)
        })?;
        Ok(loaded)
    }

    /// Verifies block after block, and hands each one's records on; then the end mark.
    fn each_block(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        take: &mut dyn FnMut(&mut dyn Iterator<Item = Record<'_>>) -> Result<()>,
    ) -> Result<()> {
        let seed = self.head.seed();
        let mut rest = Vec::new();
        let (mut offset, mut number, mut count, mut sum) = (HEAD_SIZE, 0, 0, 0);
        loop {
            progress(offset.min(self.size), self.size);
            let damaged = |what: &str| {
                Error::new(Kind::Corrupted, what)
                    .at(self.storage.path())
                    .offset(offset)
                    .remedy("load an older snapshot: nothing was loaded of this one")
            };
            let mut header = [0; BLOCK_HEADER_SIZE];
            let left = self.size.saturating_sub(offset);
            if left < BLOCK_HEADER_SIZE as u64 {
                return Err(damaged("the snapshot was cut: it has no end mark"));
            }
            self.storage.read_at(offset, &mut header)?;
            let Some(header) = BlockHeader::decode(&header) else {
                return Err(damaged("a block of the snapshot has no header"));
            };
            if header.len > left - BLOCK_HEADER_SIZE as u64 {
                return Err(damaged(
                    "a block of the snapshot is longer than the file, or the file was cut",
                )
                .found(size(header.len), format!("at most {}", size(left))));
            }
            rest.clear();
            rest.try_reserve(header.len as usize).map_err(|_| {
                Error::new(Kind::Full, "no memory for a block of the snapshot")
                    .at(self.storage.path())
            })?;
            rest.resize(header.len as usize, 0);
            self.storage
                .read_at(offset + BLOCK_HEADER_SIZE as u64, &mut rest)?;
            let computed = header.sum(seed, number, &rest);
            if computed != header.checksum {
                return Err(
                    damaged("the checksum of a block of the snapshot does not match").detail(
                        format!("stored {:08x}, computed {computed:08x}", header.checksum),
                    ),
                );
            }
            if header.count == 0 {
                let end = end_of(&rest);
                if end != Some((count, sum)) {
                    return Err(damaged("the end mark of the snapshot counts other records"));
                }
                if left != END_SIZE as u64 {
                    return Err(damaged("something follows the end mark of the snapshot"));
                }
                progress(self.size, self.size);
                return Ok(());
            }
            let mut torn = false;
            let mut all = records(&rest, header.count).map_while(|record| {
                torn |= record.is_none();
                record
            });
            take(&mut all)?;
            drop(all);
            if torn {
                return Err(damaged("a block of the snapshot does not hold its records"));
            }
            count += u64::from(header.count);
            sum = crc(sum, &header.checksum.to_le_bytes());
            offset += BLOCK_HEADER_SIZE as u64 + header.len;
            number += 1;
        }
    }
}
