//! The rules of the simulated disk, one test each, on disks so small that every state is listed.
//!
//! A test writes, cuts the power, and compares the set of all states with the set the rule allows. It
//! knows only the public side: directory, storage, map, and what a disk offers.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::error::{Kind, refusal};
use crate::io::{Access, Directory, Storage, create_whole};

const NAME: &str = "a";

/// A disk with a file of two sectors of ones, all durable.
fn disk() -> (SimDisk, Arc<dyn Storage>) {
    disk_of(Atom::Sector)
}

fn disk_of(atom: Atom) -> (SimDisk, Arc<dyn Storage>) {
    let disk = SimDisk::with_atom(1, atom);
    let file = created(&disk, &[1; 1024]);
    (disk, file)
}

/// A file of these bytes, durable with its name: one sync of each.
fn created(disk: &SimDisk, bytes: &[u8]) -> Arc<dyn Storage> {
    let file = disk.directory().create(Path::new(NAME)).unwrap();
    file.resize(bytes.len() as u64).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
    disk.directory().sync().unwrap();
    file
}

fn opened(disk: &SimDisk, access: Access) -> Arc<dyn Storage> {
    disk.directory().open(Path::new(NAME), access).unwrap()
}

/// What a power cut now may leave.
fn cuts(disk: &SimDisk) -> impl Iterator<Item = SimDisk> + use<> {
    disk.crash_states(disk.events(), &Limits::default())
}

fn content(disk: &SimDisk) -> Option<Vec<u8>> {
    if !disk.directory().exists(Path::new(NAME)).unwrap() {
        return None;
    }
    let file = opened(disk, Access::Read);
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    Some(bytes)
}

/// The first byte of each sector.
fn heads(disk: &SimDisk) -> Vec<u8> {
    content(disk).map_or(vec![], |bytes| {
        bytes.chunks(512).map(|sector| sector[0]).collect()
    })
}

fn states(disk: &SimDisk) -> BTreeSet<Vec<u8>> {
    cuts(disk).map(|state| heads(&state)).collect()
}

fn set<const N: usize>(states: [&[u8]; N]) -> BTreeSet<Vec<u8>> {
    states.iter().map(|state| state.to_vec()).collect()
}

#[test]
fn what_was_synced_is_there_in_every_state() {
    let (disk, file) = disk();
    file.write_at(512, &[2; 512]).unwrap();
    file.sync().unwrap();
    assert_eq!(states(&disk), set([&[1, 2]]));
    assert_eq!(disk.replay().at(), 0);
}

#[test]
fn sectors_of_one_write_survive_independently() {
    let (disk, file) = disk();
    file.write_at(0, &[2; 1024]).unwrap();
    assert_eq!(states(&disk), set([&[1, 1], &[1, 2], &[2, 1], &[2, 2]]));
}

#[test]
fn a_sector_is_some_prefix_of_its_writes() {
    let (disk, file) = disk();
    file.write_at(0, &[2; 512]).unwrap();
    file.write_at(0, &[3; 512]).unwrap();
    assert_eq!(states(&disk), set([&[1, 1], &[2, 1], &[3, 1]]));
}

#[test]
fn stores_through_the_map_are_no_better_than_writes() {
    let (disk, file) = disk();
    let map = file.map(4096).unwrap();
    map.store_u64(512, u64::from_le_bytes([2; 8]));
    map.store_u64(0, u64::from_le_bytes([2; 8]));
    assert_eq!(states(&disk), set([&[1, 1], &[1, 2], &[2, 1], &[2, 2]]));
    let trace = disk.trace();
    let last = trace.last().unwrap();
    assert!(last.starts_with("store file 0 0x0+0x8: 0202"));
}

#[test]
fn the_atom_of_the_device_is_as_large_as_one_says() {
    for (atom, count) in [(Atom::Line, 4), (Atom::Sector, 2), (Atom::Page, 2)] {
        let (disk, file) = disk_of(atom);
        file.write_at(0, &[2; 128]).unwrap();
        let states: BTreeSet<_> = cuts(&disk).map(|state| content(&state)).collect();
        assert_eq!(states.len(), count, "{atom:?}");
    }
}

#[test]
fn a_new_size_is_old_or_new_and_reads_as_zeros() {
    let (disk, file) = disk();
    file.resize(1536).unwrap();
    assert_eq!(states(&disk), set([&[1, 1], &[1, 1, 0]]));
    file.write_at(1024, &[2; 512]).unwrap();
    assert_eq!(states(&disk), set([&[1, 1], &[1, 1, 0], &[1, 1, 2]]));
    file.sync().unwrap();
    assert_eq!(states(&disk), set([&[1, 1, 2]]));
}

#[test]
fn what_was_cut_off_does_not_come_back_with_a_later_growth() {
    let (disk, file) = disk();
    file.resize(512).unwrap();
    file.resize(1024).unwrap();
    assert_eq!(heads(&disk), [1, 0]);
    // The old size with the old bytes, or with zeros; the new sizes with zeros only.
    assert_eq!(states(&disk), set([&[1, 1], &[1, 0], &[1]]));
}

#[test]
fn a_discard_may_be_undone_until_it_is_synced() {
    let (disk, file) = disk();
    file.discard(512, 512).unwrap();
    assert_eq!(heads(&disk), [1, 0]);
    assert_eq!(states(&disk), set([&[1, 1], &[1, 0]]));
}

#[test]
fn a_durable_write_is_there_when_it_returns_and_nothing_else_is() {
    let (disk, file) = disk();
    file.write_at(512, &[2; 512]).unwrap();
    let before = disk.events();
    file.write_durably(0, &[2; 512]).unwrap();
    // It is a write, then the two edges of a sync.
    let at = |events| -> BTreeSet<Vec<u8>> {
        let states = disk.crash_states(events, &Limits::default());
        states.map(|state| heads(&state)).collect()
    };
    assert_eq!(disk.events(), before + 3);
    let any = set([&[1, 1], &[1, 2], &[2, 1], &[2, 2]]);
    assert_eq!((at(before + 1), at(before + 2)), (any.clone(), any));
    assert_eq!(at(before + 3), set([&[2, 1], &[2, 2]]));
}

#[test]
fn a_durable_write_takes_what_its_sectors_had_before_and_the_size_it_needs() {
    let (disk, file) = disk();
    file.write_at(0, &[2; 8]).unwrap();
    file.resize(1536).unwrap();
    file.resize(2048).unwrap();
    file.write_durably(1024, &[3; 512]).unwrap();
    let any = set([&[1, 1, 3], &[2, 1, 3], &[1, 1, 3, 0], &[2, 1, 3, 0]]);
    assert_eq!(states(&disk), any);
    file.write_durably(511, &[2]).unwrap();
    assert_eq!(states(&disk), set([&[2, 1, 3], &[2, 1, 3, 0]]));
}

#[test]
fn a_durable_write_after_a_cut_makes_the_cut_durable() {
    let (disk, file) = disk();
    file.resize(256).unwrap();
    file.resize(1024).unwrap();
    file.write_durably(0, &[2; 1]).unwrap();
    // The cut did not reach the first bytes; the second sector may be gone, and then is zeros for good.
    let states = states(&disk);
    assert!(states.iter().all(|heads| heads[0] == 2), "{states:?}");
    file.write_durably(512, &[3; 1]).unwrap();
    assert_eq!(self::states(&disk), set([&[2, 3]]));
    let is_zero = |state| content(&state).unwrap()[513..].iter().all(|b| *b == 0);
    assert!(cuts(&disk).all(is_zero));
}

#[test]
fn a_durable_write_that_fails_dooms_its_own_sectors_only() {
    let (disk, file) = disk();
    file.write_at(512, &[2; 512]).unwrap();
    let syncs = disk.faults().count(Operation::Sync);
    disk.faults().fail(Operation::Sync, syncs, Fault::Error);
    refusal(file.write_durably(0, &[2; 512]), Kind::Io);
    file.sync().unwrap();
    assert_eq!(states(&disk), set([&[1, 2], &[2, 2]]));
    file.write_durably(0, &[2; 512]).unwrap();
    assert_eq!(states(&disk), set([&[2, 2]]));
}

#[test]
fn a_file_without_a_name_is_nowhere_until_it_takes_it() {
    let disk = SimDisk::new(1);
    let directory = disk.directory();
    let (name, other) = (Path::new(NAME), Path::new("b"));
    let file = directory.create_nameless(name).unwrap();
    file.resize(512).unwrap();
    file.sync().unwrap();
    directory.sync().unwrap();
    assert!(!directory.exists(name).unwrap());
    assert_eq!(states(&disk), set([&[]]));
    assert_eq!(content(&disk.kill_state(disk.events())), None);
    file.take_name().unwrap();
    assert_eq!(states(&disk), set([&[], &[0]]));
    directory.sync().unwrap();
    assert_eq!(states(&disk), set([&[0]]));
    let (late, early) = (
        directory.create_nameless(other).unwrap(),
        directory.create(other).unwrap(),
    );
    refusal(late.take_name(), Kind::Invalid);
    early.take_name().unwrap();
    refusal(directory.create_nameless(name), Kind::Invalid);
}

#[test]
fn a_name_needs_the_sync_of_its_folder() {
    let disk = SimDisk::new(1);
    let file = disk.directory().create(Path::new(NAME)).unwrap();
    file.resize(512).unwrap();
    file.sync().unwrap();
    assert_eq!(states(&disk), set([&[], &[0]]));
    disk.directory().sync().unwrap();
    assert_eq!(states(&disk), set([&[0]]));
}

#[test]
fn a_rename_is_old_or_new_and_never_neither() {
    let (disk, _file) = disk();
    let directory = disk.directory();
    let other = directory.create(Path::new("b")).unwrap();
    other.resize(512).unwrap();
    other.sync().unwrap();
    directory.sync().unwrap();
    directory.rename(Path::new("b"), Path::new(NAME)).unwrap();
    assert_eq!(heads(&disk), [0]);
    assert_eq!(states(&disk), set([&[1, 1], &[0]]));
    directory.sync().unwrap();
    assert_eq!(states(&disk), set([&[0]]));
    directory.remove(Path::new(NAME)).unwrap();
    assert_eq!(states(&disk), set([&[0], &[]]));
}

#[test]
fn a_file_that_replaces_another_is_the_old_one_or_the_new_one() {
    let (disk, _file) = disk();
    let directory = disk.directory();
    let file = directory.create_replacing(Path::new(NAME)).unwrap();
    file.resize(512).unwrap();
    file.sync().unwrap();
    assert_eq!(heads(&disk), [1, 1]);
    assert_eq!(states(&disk), set([&[1, 1]]));
    file.take_name().unwrap();
    assert_eq!(heads(&disk), [0]);
    assert_eq!(states(&disk), set([&[1, 1], &[0]]));
    directory.sync().unwrap();
    assert_eq!(states(&disk), set([&[0]]));
    let fresh = directory.create_replacing(Path::new("b")).unwrap();
    fresh.take_name().unwrap();
    assert!(directory.exists(Path::new("b")).unwrap());
}

#[test]
fn a_killed_process_leaves_everything_and_the_power_may_still_take_it() {
    let (disk, file) = disk();
    file.write_at(0, &[2; 512]).unwrap();
    let killed = disk.kill_state(disk.events());
    assert_eq!(heads(&killed), [2, 1]);
    assert_eq!(states(&killed), set([&[1, 1], &[2, 1]]));
    let reopened = opened(&killed, Access::Write);
    assert_eq!(reopened.boot_id(), file.boot_id());
    reopened.sync().unwrap();
    assert_eq!(states(&killed), set([&[2, 1]]));
    let after = opened(&cuts(&disk).next().unwrap(), Access::Read);
    assert_ne!(after.boot_id(), file.boot_id());
    assert_eq!(after.entropy(), file.entropy());
}

#[test]
fn a_process_may_die_in_the_middle_of_a_write() {
    let (disk, file) = disk();
    let before = disk.events();
    file.write_at(0, &[2; 600]).unwrap();
    let mut replay = disk.replay();
    replay.advance_to(before);
    assert_eq!(replay.next_write(), 600);
    let bytes = content(&replay.kill(3)).unwrap();
    assert_eq!(bytes[..5], [2, 2, 2, 1, 1]);
}

#[test]
fn no_later_sync_helps_what_a_failed_one_left_until_it_is_written_again() {
    let (disk, file) = disk();
    file.write_at(0, &[2; 512]).unwrap();
    disk.faults().fail(Operation::Sync, 1, Fault::Error);
    refusal(file.sync(), Kind::Io);
    file.sync().unwrap();
    assert_eq!(states(&disk), set([&[1, 1], &[2, 1]]));
    file.write_at(511, &[2]).unwrap();
    file.sync().unwrap();
    assert_eq!(states(&disk), set([&[2, 1]]));
    assert_eq!(disk.faults().struck(), 1);
}

#[test]
fn dropping_the_cache_after_a_failed_sync_shows_what_the_device_has_for_good() {
    let mut seen = BTreeSet::new();
    for seed in 0..16 {
        let disk = SimDisk::new(seed);
        let file = created(&disk, &[0; 512]);
        file.write_at(0, &[2; 512]).unwrap();
        disk.faults().fail(Operation::Sync, 1, Fault::Error);
        file.sync().unwrap_err();
        assert_eq!(heads(&disk), [2]);
        let killed = disk.kill_state(disk.events());
        assert_eq!(
            heads(&killed),
            [2],
            "the cache hides it from the next process"
        );
        let file = opened(&killed, Access::Write);
        file.drop_cache().unwrap();
        assert_eq!(states(&killed), set([&heads(&killed)]));
        seen.insert(heads(&killed));
    }
    assert_eq!(seen, set([&[0], &[2]]));
}

#[test]
fn calls_fail_as_planned_and_as_often() {
    let (disk, file) = disk();
    let faults = disk.faults();
    let writes = faults.count(Operation::Write);
    faults.fail(Operation::Write, writes, Fault::Error);
    faults.fail(Operation::Write, writes + 1, Fault::Short(3));
    faults.fail(Operation::Write, writes + 2, Fault::Torn);
    file.write_at(0, &[2; 1024]).unwrap_err();
    assert_eq!(heads(&disk), [1, 1]);
    file.write_at(0, &[2; 1024]).unwrap_err();
    assert_eq!(content(&disk).unwrap()[..5], [2, 2, 2, 1, 1]);
    file.write_at(0, &[3; 1024]).unwrap_err();
    assert_eq!(heads(&disk), [2, 3]);
    file.write_at(0, &[4; 1024]).unwrap();
    let reads = faults.count(Operation::Read);
    faults.fail(Operation::Read, reads, Fault::Error);
    faults.fail(Operation::Read, reads + 1, Fault::Flip);
    let mut seen = [0; 8];
    refusal(file.read_at(0, &mut seen), Kind::Io);
    file.read_at(0, &mut seen).unwrap();
    let flipped: u32 = seen.iter().map(|byte| (byte ^ 4).count_ones()).sum();
    assert_eq!(flipped, 1);
    file.read_at(0, &mut seen).unwrap();
    assert_eq!(seen, [4; 8]);
    faults.fail_from(Operation::Resize, 0, Fault::Full);
    refusal(file.resize(4096), Kind::Full);
    refusal(file.resize(4096), Kind::Full);
    assert_eq!(file.size().unwrap(), 1024);
    faults.clear();
    file.resize(4096).unwrap();
}

#[test]
fn a_full_disk_refuses_to_grow_and_takes_discarded_room_again() {
    let (disk, file) = disk();
    file.resize(16384).unwrap();
    disk.set_capacity(16384);
    refusal(file.resize(16385), Kind::Full);
    file.discard(4096, 8192).unwrap();
    assert_eq!(file.allocated().unwrap(), 8192);
    file.resize(20480).unwrap();
    file.allocate(4096, 4096).unwrap();
    let error = refusal(file.allocate(8192, 4096), Kind::Full);
    assert!(error.contains("a disk of 16 KiB"), "{error}");
}

#[test]
#[should_panic(expected = "into discarded space")]
fn a_store_into_discarded_space_is_caught() {
    let (_disk, file) = disk();
    file.resize(8192).unwrap();
    file.discard(4096, 4096).unwrap();
    file.map(8192).unwrap().store_u64(4096, 1);
}

#[test]
#[should_panic(expected = "beyond the size")]
fn a_store_beyond_the_size_is_caught() {
    let (_disk, file) = disk();
    file.map(8192).unwrap().store_u64(1024, 1);
}

#[test]
fn rot_is_durable_and_shows_at_once() {
    let (disk, file) = disk();
    file.write_at(512, &[2; 1]).unwrap();
    disk.rot(NAME, 0, 0x80);
    disk.rot(NAME, 512, 0x80);
    assert_eq!(heads(&disk), [0x81, 0x82]);
    assert_eq!(
        states(&disk),
        set([&[0x81, 0x81], &[0x81, 2], &[0x81, 0x82]])
    );
}

#[test]
fn garbage_may_stand_where_a_write_was_in_flight_and_nowhere_else() {
    let (disk, file) = disk();
    file.write_at(0, &[2; 512]).unwrap();
    let limits = Limits {
        garbage: true,
        ..Limits::default()
    };
    let states = disk.crash_states(disk.events(), &limits);
    let states: Vec<_> = states.map(|state| content(&state).unwrap()).collect();
    let is_garbage =
        |bytes: &Vec<u8>| ![[1; 512], [2; 512]].contains(bytes[..512].first_chunk().unwrap());
    assert!(states.iter().any(is_garbage));
    assert!(states.iter().all(|bytes| bytes[512..] == [1; 512]));
}

#[test]
fn with_many_pending_sectors_each_is_missing_once_and_alone_once() {
    let disk = SimDisk::new(3);
    let file = created(&disk, &[0; 20 * 512]);
    file.write_at(0, &[1; 20 * 512]).unwrap();
    let states: Vec<_> = cuts(&disk).map(|state| heads(&state)).collect();
    let sum = |heads: &Vec<u8>| heads.iter().map(|byte| *byte as usize).sum();
    let sums: Vec<usize> = states.iter().map(sum).collect();
    let distinct = states.iter().collect::<BTreeSet<_>>().len();
    assert_eq!(distinct, states.len(), "each state once");
    assert!(sums.iter().filter(|sum| **sum == 19).count() >= 20);
    assert!(sums.iter().filter(|sum| **sum == 1).count() >= 20);
    assert!(sums.contains(&0) && sums.contains(&20) && sums.iter().any(|s| (5..15).contains(s)));
    let again = cuts(&disk).map(|state| heads(&state));
    assert!(again.eq(states), "a seed decides everything");
}

#[test]
fn one_writer_at_a_time_and_readers_share_it() {
    let (disk, file) = disk();
    let open = |access| disk.directory().open(Path::new(NAME), access);
    refusal(open(Access::Write), Kind::Locked);
    let reader = open(Access::Read).unwrap();
    assert!(reader.has_writer());
    refusal(reader.write_at(0, &[1]), Kind::Invalid);
    drop(file);
    assert!(!reader.has_writer());
    open(Access::Write).unwrap();
}

#[test]
fn what_is_unreadable_stays_so_until_all_of_a_sector_is_written() {
    let (disk, file) = disk();
    disk.make_unreadable(NAME, 600..601);
    let mut sector = [0; 512];
    for _ in 0..2 {
        refusal(file.read_at(512, &mut sector), Kind::Io);
        refusal(file.read_at(1023, &mut [0]), Kind::Io);
        file.read_at(0, &mut sector).unwrap();
        assert_eq!(sector, [1; 512]);
    }
    let map = file.map(1024).unwrap();
    map.copy_out(512, &mut sector);
    assert_ne!(sector, [1; 512], "a load sees noise");
    // The rest of the sector would have to be read.
    refusal(file.write_at(0, &[2; 600]), Kind::Io);
    file.write_at(0, &[3; 1024]).unwrap();
    file.read_at(512, &mut sector).unwrap();
    assert_eq!(sector, [3; 512]);
}

#[test]
fn a_file_is_there_when_it_is_whole_and_its_name_durable() {
    let fill = |disk: &SimDisk| {
        create_whole(&disk.directory(), Path::new(NAME), |storage| {
            storage.resize(512)?;
            storage.write_at(0, &[1; 512])?;
            storage.sync()
        })
    };
    for operation in [
        Operation::Write,
        Operation::Sync,
        Operation::Name,
        Operation::SyncNames,
    ] {
        let disk = SimDisk::new(1);
        let count = disk.faults().count(operation);
        disk.faults().fail(operation, count, Fault::Error);
        refusal(fill(&disk), Kind::Io);
        assert_eq!(content(&disk), None, "{operation:?}");
        fill(&disk).unwrap();
        for state in cuts(&disk) {
            assert_eq!(heads(&state), [1], "{operation:?}");
        }
    }
}
