//! Reading a store without a change to its file or devices.
//!
//! A [`StoreReader`] is a store over an [`Overlay`]: opening it writes its mark there, and a store that was not closed is recovered
//! there, by the same code. Nothing reaches the devices; what was recovered is gone with the handle, and the next open recovers
//! again. So a reader shows what an open for writing would find.
//!
//! The index is in memory, and a writer reuses space. So a reader excludes writers, and a writer excludes it; other readers may open
//! the store at the same time. A program that has a store open serves reads of it itself.

use std::ops::{Range, RangeBounds};
use std::path::Path;
use std::sync::Arc;

use crate::damage::Damage;
use crate::error::Result;
use crate::format::superblock::Superblock;
use crate::io::file::File;
use crate::io::overlay::Overlay;
use crate::io::{Access, Storage};
use crate::kernel::{Payload, Slots, SuperblockPair};
use crate::object::checkpoint::FIRST_SUPERBLOCK;
use crate::object::checkpoint::superblock::{ENGINE, Super};
use crate::object::journal::record::Record;
use crate::object::{
    CheckReport, Finding, List, ObjectId, OpenOptions, Scrubbed, Stats, Step, Store, Usage, Value,
};

/// A store opened for reading only. Results, limits, errors and costs of its verbs are those of the same verbs of [`Store`].
#[derive(Debug)]
pub struct StoreReader {
    store: Store,
    /// Superblocks that did not verify before it was opened, which wrote both in memory; `None`: a slot that was never written.
    torn: Vec<Option<Finding>>,
}

impl StoreReader {
    /// Opens the store in a file or on a device for reading; `data` is the other one of a store on two, as of
    /// [`Store::open_with_data`]. After a crash, recovers
    /// in memory, which takes the pages of the journal that recovery changes. `Locked` if it is open for writing anywhere,
    /// `Mismatch` if it is no object store of a known version.
    pub fn open(path: impl AsRef<Path>, data: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| -> Result<Arc<dyn Storage>> {
            let file = File::open(path, Access::Read)?;
            file.keep_writers_out()?;
            Ok(Arc::new(file))
        };
        Self::open_on(open(path.as_ref())?, data.map(open).transpose()?)
    }

    /// As [`open`](Self::open), on storages that must not change meanwhile.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "as every call that opens a store: the store keeps them"
    )]
    pub fn open_on(journal: Arc<dyn Storage>, data: Option<Arc<dyn Storage>>) -> Result<Self> {
        let SuperblockPair {
            sequence,
            payload: last,
        } = SuperblockPair::<Super>::read(journal.as_ref())?;
        let options = OpenOptions::new().background(false);
        let mut over = |last: &Super| -> Result<Arc<dyn Storage>> {
            Ok(Overlay::new(Arc::clone(&journal), last.journal_size)?)
        };
        let store = Store::open_or_degrade(&journal, data.as_ref(), &options, &mut over)?;
        store.core.forget_to_close();
        let is_new = sequence == FIRST_SUPERBLOCK && is_unused(&store);
        let torn = torn(journal.as_ref(), &last, is_new)?;
        Ok(Self { store, torn })
    }

    /// Whether the store could not be opened for changes: see [`Store::is_read_only`].
    pub fn is_degraded(&self) -> bool {
        self.store.is_read_only()
    }

    /// As [`Store::check`]; what recovery wrote is checked as it is in memory, but superblocks are counted as they were found.
    pub fn check(&self, deep: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let mut report = self.store.check(deep, progress)?;
        report.superblocks = report.superblocks.saturating_sub(self.torn.len() as u64);
        for torn in self.torn.iter().flatten() {
            report.note(torn.clone());
            report.rewritable += 1;
        }
        Ok(report)
    }
}

/// What its store answers.
impl StoreReader {
    /// As [`Store::damage`].
    pub fn damage(&self) -> Vec<Damage> {
        self.store.damage()
    }

    /// As [`Store::is_doubtful`].
    pub fn is_doubtful(&self, id: ObjectId) -> Result<bool> {
        self.store.is_doubtful(id)
    }

    /// As [`Store::last_known`].
    pub fn last_known(&self, id: ObjectId, range: Range<u64>) -> Result<Option<Value>> {
        self.store.last_known(id, range)
    }

    /// As [`Store::count`].
    pub fn count(&self) -> u64 {
        self.store.count()
    }

    /// As [`Store::len_max`].
    pub fn len_max(&self) -> u64 {
        self.store.len_max()
    }

    /// As [`Store::get`].
    pub fn get(&self, id: ObjectId) -> Result<Option<Value>> {
        self.store.get(id)
    }

    /// As [`Store::get_with_sequence`].
    pub fn get_with_sequence(&self, id: ObjectId) -> Result<Option<(Value, u64)>> {
        self.store.get_with_sequence(id)
    }

    /// As [`Store::get_range`].
    pub fn get_range(&self, id: ObjectId, range: Range<u64>) -> Result<Option<Value>> {
        self.store.get_range(id, range)
    }

    /// As [`Store::head`].
    pub fn head(&self, id: ObjectId) -> Result<Option<u64>> {
        self.store.head(id)
    }

    /// As [`Store::sequence`].
    pub fn sequence(&self, id: ObjectId) -> Result<Option<u64>> {
        self.store.sequence(id)
    }

    /// As [`Store::list`].
    pub fn list(&self, range: impl RangeBounds<ObjectId>) -> List<'_> {
        self.store.list(range)
    }

    /// As [`Store::usage`].
    pub fn usage(&self, range: impl RangeBounds<ObjectId>) -> Result<Usage> {
        self.store.usage(range)
    }

    /// As [`Store::stats`].
    pub fn stats(&self) -> Result<Stats> {
        self.store.stats()
    }

    /// As [`Store::journal`].
    pub fn journal(&self, visit: &mut dyn FnMut(u64, &Record) -> bool) -> Result<()> {
        self.store.journal(visit)
    }

    /// As [`Store::check_room`].
    pub fn check_room(&self) -> Result<()> {
        self.store.check_room()
    }

    /// As [`Store::scrub`].
    pub fn scrub(
        &self,
        range: impl RangeBounds<ObjectId>,
        bytes_per_second: Option<u64>,
        visit: &mut dyn FnMut(Step) -> bool,
    ) -> Result<Scrubbed> {
        self.store.scrub(range, bytes_per_second, visit)
    }
}

/// Whether no change was ever made to a store, as where a crash ended its creation.
fn is_unused(store: &Store) -> bool {
    let mut has_records = false;
    let read = store.journal(&mut |_, _| {
        has_records = true;
        false
    });
    read.is_ok() && !has_records && store.count() == 0
}

/// Superblock slots that do not verify, with what is wrong. A crash may have torn one, or it may be damaged: no reader can see
/// which, and until both are written again the other one is all there is. So it is a finding, but for the slot that a crash kept
/// from being written when the store was created. No writer writes a slot meanwhile: the reader's lock keeps it out.
fn torn(storage: &dyn Storage, last: &Super, is_new: bool) -> Result<Vec<Option<Finding>>> {
    let slots = Slots::read(storage)?;
    let mut torn = Vec::new();
    for (offset, slot) in slots.each() {
        let block = Superblock::current(slot, &ENGINE).ok();
        let of = block.and_then(|block| Super::decode(&block.payload));
        if of.is_some_and(|of| of.identity == last.identity) {
            continue;
        }
        let refused = slots.refused.iter().find(|(of, _)| *of == offset);
        let is_blank = || slot.iter().all(|byte| *byte == 0);
        let what = match refused {
            Some((_, error)) => Some(error.to_string()),
            None if is_new && is_blank() => None,
            None => Some(format!(
                "the superblock at offset {offset:#x} does not verify; the other one is whole, and nothing is lost: opening the store \
                 for writing writes both"
            )),
        };
        torn.push(what.map(|what| Finding {
            device: storage.path().to_path_buf(),
            offset: Some(offset),
            object: None,
            what,
        }));
    }
    Ok(torn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Kind, refusal};
    use crate::io::Directory;
    use crate::io::sim::{Limits, SimDisk};
    use crate::object::CreateOptions;
    use crate::testkit::{Random, round_seed};

    const NAME: &str = "looked-at.azo";

    fn options() -> CreateOptions {
        CreateOptions::new()
            .capacity(8 << 20)
            .journal_size(256 << 10)
            .group_size(128 << 10)
            .background(false)
    }

    fn id(n: u64) -> ObjectId {
        ObjectId(u128::from(n) << 90)
    }

    /// Every object with its value.
    fn content(reader: &StoreReader) -> Vec<(ObjectId, Vec<u8>)> {
        let listed = reader.list(..).map(|listed| listed.unwrap().id);
        listed
            .map(|id| (id, reader.get(id).unwrap().unwrap().into()))
            .collect()
    }

    fn look(disk: &SimDisk) -> Vec<(ObjectId, Vec<u8>)> {
        let storage = disk.directory().open(Path::new(NAME), Access::Read);
        let reader = StoreReader::open_on(storage.unwrap(), None).unwrap();
        reader.check_room().unwrap();
        assert_eq!(reader.check(true, &mut |_, _| {}).unwrap().findings, []);
        reader.journal(&mut |_, _| true).unwrap();
        content(&reader)
    }

    /// A reader finds what the next open for writing finds, each time, and writes nothing.
    fn verify(disk: &SimDisk) {
        let before = disk.events();
        let seen = look(disk);
        assert!(seen == look(disk));
        assert_eq!(disk.events(), before);
        let storage = disk.directory().open(Path::new(NAME), Access::Write);
        let store = Store::open_on(storage.unwrap(), None, &options().opening).unwrap();
        assert_eq!(store.count(), seen.len() as u64);
        for (id, value) in seen {
            assert!(
                store.get(id).unwrap().as_deref() == Some(&value[..]),
                "{id}"
            );
        }
    }

    #[test]
    fn it_shows_what_any_end_left_and_leaves_it_so() {
        let disk = SimDisk::new(round_seed());
        let directory = disk.directory();
        let store = Store::create_in(&directory, Path::new(NAME), &options(), &mut |_, _| {});
        let store = store.unwrap();
        let created = disk.events();
        let mut random = Random::new(round_seed());
        for n in 0..150 {
            let len = [random.index(2000), 2100 + random.index(20_000)][n % 2];
            match random.below(8) {
                0 => _ = store.remove(id(random.below(30))).unwrap(),
                1 => store.sync().unwrap(),
                2 if n > 100 => store.checkpoint().unwrap(),
                _ => _ = store.put(id(random.below(30)), &random.bytes(len)).unwrap(),
            }
        }
        store.close().unwrap();
        let end = disk.events();
        verify(&disk.kill_state(end));
        let limits = Limits {
            exhaustive: 0,
            singles: 0,
            random: 2,
            ..Limits::default()
        };
        for _ in 0..12 {
            let at = created + random.index(end - created);
            verify(&disk.kill_state(at));
            disk.crash_states(at, &limits).for_each(|cut| verify(&cut));
        }
    }

    #[test]
    fn readers_share_a_file_and_a_writer_shares_it_with_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let value = Random::new(1).bytes(100_000);
        let store = Store::create(&path, &options()).unwrap();
        store.put(id(1), &value).unwrap();
        refusal(StoreReader::open(&path, None), Kind::Locked);
        // As a death would leave it: not closed.
        std::fs::copy(&path, folder.path().join("copy")).unwrap();
        drop(store);
        for path in [path, folder.path().join("copy")] {
            let before = std::fs::read(&path).unwrap();
            let readers = [(); 2].map(|()| StoreReader::open(&path, None).unwrap());
            for reader in &readers {
                assert!(reader.get(id(1)).unwrap().as_deref() == Some(&value[..]));
                let part = reader.get_range(id(1), 70_000..70_003).unwrap().unwrap();
                assert_eq!(part, value[70_000..70_003]);
                assert_eq!(reader.head(id(1)).unwrap(), Some(100_000));
                let scrubbed = reader.scrub(.., None, &mut |_| true).unwrap();
                assert_eq!((scrubbed.objects, scrubbed.damaged), (1, 0));
            }
            let refused = refusal(Store::open(&path, &options().opening), Kind::Locked);
            assert!(refused.contains("open for reading"), "{refused}");
            drop(readers);
            assert!(before == std::fs::read(&path).unwrap());
            let store = Store::open(&path, &options().opening).unwrap();
            assert_eq!(store.count(), 1);
        }
    }

    #[test]
    fn a_store_on_two_files_is_looked_at_too() {
        let folder = tempfile::tempdir().unwrap();
        let [journal, data] = ["journal", "data"].map(|name| folder.path().join(name));
        let [first, second] = [(&journal, 1 << 20), (&data, 4 << 20)].map(|(path, size)| {
            let file = File::create(path).unwrap();
            file.resize(size).unwrap();
            Arc::new(file) as Arc<dyn Storage>
        });
        let store = Store::create_on(first, Some(second), &options(), &mut |_, _| {}).unwrap();
        store.put(id(7), &vec![7; 50_000]).unwrap();
        store.put(id(8), &[8; 50]).unwrap();
        store.close().unwrap();
        let reader = StoreReader::open(&journal, Some(&data)).unwrap();
        let expected = [(id(7), vec![7; 50_000]), (id(8), vec![8; 50])];
        assert!(content(&reader) == expected);
        refusal(StoreReader::open(&journal, None), Kind::Mismatch);
    }
}
