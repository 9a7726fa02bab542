//! What an object store states when it refuses: whose object, which file, where, what was found and what would do.
//!
//! The refusal of a size names one that is accepted, and that is tried.
//! It does not know the program that prints these words.

use std::path::Path;
use std::sync::Arc;

use azekura::io::memory::Memory;
use azekura::io::sim::{Fault, Operation, SimDisk};
use azekura::io::{Access, Directory, Storage};
use azekura::object::{Change, CreateOptions, ObjectId, Store};
use azekura::{Kind, Result};

const NAME: &str = "words.azo";

/// A store of so many groups of 4 KiB, with this journal; small and long objects are put, also after opens and checkpoints.
fn live(groups: u64, journal: u64) -> Result<()> {
    let capacity = journal + groups * 4096;
    let options = CreateOptions::new()
        .capacity(capacity)
        .journal_size(journal)
        .group_size(4096)
        .background(false);
    let memory = Memory::new(capacity.next_multiple_of(1 << 21))?;
    memory.resize(capacity)?;
    let storage = || Arc::clone(&memory) as Arc<dyn Storage>;
    let mut store = Store::create_on(storage(), None, &options, &mut |_, _| {})?;
    for round in 0..12 {
        let put = store
            .put(ObjectId(1), &[round; 50])
            .and_then(|_| store.put(ObjectId(2), &[round; 3000]));
        put.unwrap_or_else(|error| panic!("{groups} groups, {journal} bytes: {error}"));
        if round % 3 == 1 {
            store.checkpoint().unwrap();
        } else {
            store.close().unwrap();
            store = Store::open_on(storage(), None, &options.opening).unwrap();
        }
    }
    Ok(())
}

#[test]
fn a_journal_too_small_for_its_groups_is_refused_and_the_least_one_takes_objects() {
    for groups in [
        16, 60, 64, 65, 80, 100, 150, 200, 250, 300, 400, 1000, 2000, 4000, 16_000,
    ] {
        let mut journal = 144 << 10;
        while let Err(error) = live(groups, journal) {
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
            let said = error.to_string();
            assert!(
                said.contains("the journal is too small for so many groups at memory (found ")
                    && said.ends_with("--journal-size, or the groups: --group-size"),
                "{said}"
            );
            journal += 4096;
        }
        assert!(journal <= (144 << 10) + groups * 128, "{groups}: {journal}");
    }
}

#[test]
fn a_store_is_not_grown_beyond_the_groups_that_its_journal_tells() {
    let disk = SimDisk::new(1);
    let options = CreateOptions::new()
        .capacity((144 << 10) + 16 * 4096)
        .journal_size(144 << 10)
        .group_size(4096)
        .background(false);
    let store = Store::create_in(&disk.directory(), Path::new(NAME), &options, &mut |_, _| {});
    let store = store.unwrap();
    let error = store.grow(Some(4 << 20)).unwrap_err().to_string();
    assert!(
        error.starts_with("invalid: the journal is too small for so many groups at words.azo (found 144 KiB, and 988 groups, "),
        "{error}"
    );
    store.put(ObjectId(1), &[1; 3000]).unwrap();
    store.grow(Some((144 << 10) + 20 * 4096)).unwrap();
    store.put(ObjectId(2), &[2; 3000]).unwrap();
}

#[test]
fn a_read_that_the_device_refuses_names_object_file_and_offset() {
    let disk = SimDisk::new(2);
    let options = CreateOptions::new().capacity(64 << 20).background(false);
    let store = Store::create_in(&disk.directory(), Path::new(NAME), &options, &mut |_, _| {});
    let store = store.unwrap();
    for (id, len) in [(0xab, 100_000), (0xac, 5_000_000)] {
        store.put(ObjectId(id), &vec![7; len]).unwrap();
        let next = disk.faults().count(Operation::Read);
        disk.faults().fail(Operation::Read, next, Fault::Error);
        let error = store.get(ObjectId(id)).unwrap_err();
        assert_eq!(error.kind(), Kind::Io);
        let (said, id) = (error.to_string(), ObjectId(id));
        assert!(
            said.contains(" at words.azo offset 0x") && said.contains(&format!("(object {id}")),
            "{said}"
        );
    }
}

/// The log knows records only, and said so.
#[test]
fn a_damaged_frame_in_the_journal_names_its_object() {
    let memory = Memory::from_bytes(&vec![0; 8 << 20], 8 << 20).unwrap();
    let options = CreateOptions::new().background(false);
    let storage = Arc::clone(&memory) as Arc<dyn Storage>;
    let store = Store::create_on(storage, None, &options, &mut |_, _| {}).unwrap();
    let value = b"a small object, in the journal";
    store.put(ObjectId(0xab), value).unwrap();
    let bytes = memory.to_vec();
    let at = bytes.windows(value.len()).position(|w| w == value).unwrap() as u64;
    memory.write_at(at, b"b").unwrap();
    let error = store.get(ObjectId(0xab)).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupted);
    let said = error.to_string();
    let id = ObjectId(0xab);
    assert!(
        said.starts_with(&format!(
            "corrupted: object {id} does not verify at memory offset 0x"
        )) && !said.contains("azekura check"),
        "{said}"
    );
}

#[test]
fn a_batch_that_changes_an_object_twice_names_it() {
    let disk = SimDisk::new(3);
    let options = CreateOptions::new().capacity(64 << 20).background(false);
    let directory = disk.directory();
    let store = Store::create_in(&directory, Path::new(NAME), &options, &mut |_, _| {}).unwrap();
    let id = ObjectId(0xab);
    let twice = [
        Change::Put(ObjectId(1), b"one"),
        Change::Put(id, b"two"),
        Change::Remove(id),
    ];
    let error = store.apply(&twice).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "invalid: a batch changes object {id} twice at words.azo; give its last change alone"
        )
    );
    assert_eq!(store.count(), 0);
    store.close().unwrap();
    let storage = directory.open(Path::new(NAME), Access::Write).unwrap();
    let store = Store::open_on(storage, None, &options.opening).unwrap();
    assert_eq!(store.count(), 0);
}

/// What is free is in many pieces: how long the longest is was not reported.
#[test]
fn a_store_without_a_long_piece_tells_the_object_and_the_longest_there_is() {
    let disk = SimDisk::new(4);
    let options = CreateOptions::new()
        .capacity(6 << 20)
        .journal_size(4 << 20)
        .group_size(1 << 20)
        .background(false);
    let store = Store::create_in(&disk.directory(), Path::new(NAME), &options, &mut |_, _| {});
    let store = store.unwrap();
    let mut count = 0;
    while store.put(ObjectId(count), &vec![1; 30_000]).is_ok() {
        count += 1;
    }
    for even in (0..count).step_by(2) {
        store.remove(ObjectId(even)).unwrap();
    }
    store.sync().unwrap();
    let error = store.put(ObjectId(0xab), &vec![2; 200_000]).unwrap_err();
    let said = error.to_string();
    let id = ObjectId(0xab);
    let start = format!("full: no contiguous space for object {id} at words.azo (found ");
    let stats = store.stats().unwrap();
    let [free, longest] = [stats.free_bytes, stats.longest_free_bytes].map(azekura::error::size);
    let found = format!("{free} free, longest run {longest}, expected ");
    assert!(
        said.starts_with(&start) && said.contains(&found),
        "{said}, not {found}"
    );
}

/// A device of longer sectors than any that is meant.
#[derive(Debug)]
struct LongSectors(Arc<dyn Storage>);

impl azekura::io::over::Over for LongSectors {
    fn below(&self) -> &dyn Storage {
        self.0.as_ref()
    }

    fn alignment(&self) -> u64 {
        16_384
    }
}

#[test]
fn a_device_of_longer_sectors_is_refused_and_nothing_is_written_there() {
    let memory = Memory::new(8 << 20).unwrap();
    memory.resize(8 << 20).unwrap();
    let storage = || Arc::clone(&memory) as Arc<dyn Storage>;
    let long = || Arc::new(LongSectors(storage())) as Arc<dyn Storage>;
    let options = CreateOptions::new()
        .journal_size(256 << 10)
        .background(false);
    let store = Store::create_on(storage(), None, &options, &mut |_, _| {}).unwrap();
    store.put(ObjectId(1), &[1; 9000]).unwrap();
    store.close().unwrap();
    let before = memory.to_vec();
    for refused in [
        Store::open_on(long(), None, &options.opening),
        Store::create_on(long(), None, &options, &mut |_, _| {}),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), Kind::Mismatch);
        let said = error.to_string();
        assert!(
            said.contains("sectors are longer than those of the store at memory (found 16 KiB, expected at most 4 KiB)"),
            "{said}"
        );
    }
    assert!(memory.to_vec() == before);
}
