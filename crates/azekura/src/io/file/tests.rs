//! Files are made, named, read, written and given up as they state.
//!
//! All of it on the file system that holds temporary files, with and without its files that have no name; what
//! dead processes leave is made by hand.

use super::nameless::temporaries_left;
use super::*;
use crate::error::refusal;
use crate::io::Directory;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a");
    (folder, path)
}

/// A file of so many bytes.
fn made(len: u64) -> (tempfile::TempDir, PathBuf, File) {
    let (folder, path) = folder();
    let file = File::create(&path).unwrap();
    file.resize(len).unwrap();
    (folder, path, file)
}

#[test]
fn what_was_replaced_before_it_was_locked_is_not_written_to() {
    let (_folder, path) = folder();
    drop(File::create(&path).unwrap());
    let other = path.with_extension("other");
    std::fs::write(&other, b"the new one").unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = File::with_between(&path, &mut options, Access::Write, refused, &mut || {
        // Only the first time: then there is no other file any more.
        let _ = std::fs::rename(&other, &path);
    });
    assert_eq!(file.unwrap().size().unwrap(), 11);
}

#[test]
fn what_a_file_system_does_not_have_is_refused_and_nothing_of_it_taken() {
    let (folder, _, file) = made(8192);
    let before = (file.size().unwrap(), file.allocated().unwrap());
    let there = rustix::fs::statvfs(folder.path()).unwrap();
    // Others may give some back meanwhile.
    let wanted = (there.f_bfree * there.f_frsize).next_multiple_of(4096) * 3 / 2 + (256 << 20);
    refusal(file.resize(wanted / 4096 * 4096), Kind::Full);
    assert_eq!((file.size().unwrap(), file.allocated().unwrap()), before);
    if let Ok(direct) = crate::io::direct::DirectFile::reopened(&file) {
        refusal(direct.resize(wanted / 4096 * 4096), Kind::Full);
        assert_eq!((file.size().unwrap(), file.allocated().unwrap()), before);
    }
}

#[test]
fn what_is_written_is_read_through_file_and_map_alike() {
    let (_folder, _, file) = made(8192);
    file.write_at(4000, b"across pages").unwrap();
    let map = file.map(1 << 30).unwrap();
    let mut seen = [0; 16];
    map.copy_out(4000, &mut seen);
    assert_eq!(&seen[..12], b"across pages");
    map.store_u64(8, 0x0102_0304_0506_0708);
    file.read_at(8, &mut seen[..8]).unwrap();
    assert_eq!(seen[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
    file.sync().unwrap();
    file.drop_cache().unwrap();
    file.resize(16384).unwrap();
    map.store_u64(16376, 1);
    assert_eq!(map.load_u64(8192), 0);
}

#[test]
fn growing_allocates_discarding_gives_back_and_both_read_as_zeros() {
    let (_folder, _, file) = made(1 << 20);
    assert!(file.allocated().unwrap() >= 1 << 20);
    file.write_at(0, &vec![7; 65536]).unwrap();
    file.discard(0, 65536).unwrap();
    file.discard(0, 0).unwrap();
    let mut seen = vec![1; 65536];
    file.read_at(0, &mut seen).unwrap();
    assert!(seen.iter().all(|byte| *byte == 0));
    file.resize(4096).unwrap();
    assert_eq!(file.size().unwrap(), 4096);
    let error = refusal(file.read_at(4090, &mut seen[..10]), Kind::Corrupted);
    assert!(error.ends_with(" offset 0xffa (10 B wanted)"), "{error}");
}

#[test]
fn a_reader_keeps_its_pages_when_the_writer_shrinks_the_file() {
    let (_folder, path, file) = made(8192);
    let reader = File::open(&path, Access::Read).unwrap();
    file.resize(4096).unwrap();
    assert_eq!(reader.size().unwrap(), 8192);
    drop(reader);
    file.resize(4096).unwrap();
    assert_eq!(file.size().unwrap(), 4096);
}

#[test]
fn new_files_are_private_and_names_are_taken_once() {
    let (_folder, path) = folder();
    let file = File::create(&path).unwrap();
    assert_eq!(file.file.metadata().unwrap().mode() & 0o777, 0o600);
    let error = refusal(File::create(&path), Kind::Invalid);
    let wanted = format!(
        "invalid: there is already a file of that name at {}; choose another name, or remove it first",
        path.display()
    );
    assert_eq!(error, wanted);
}

/// A file for `path` of each make.
fn nameless(path: &Path) -> Vec<File> {
    let mut files = vec![File::temporary(path).unwrap()];
    files.extend(File::unlinked(path).unwrap());
    files
}

#[test]
fn a_file_without_a_name_appears_whole_and_locked() {
    let (folder, path) = folder();
    for file in nameless(&path) {
        file.resize(4096).unwrap();
        file.write_at(0, b"whole").unwrap();
        assert!(File::open(&path, Access::Read).is_err());
        file.take_name().unwrap();
        file.take_name().unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[..5], *b"whole");
        assert_eq!(file.file.metadata().unwrap().mode() & 0o777, 0o600);
        refusal(File::open(&path, Access::Write), Kind::Locked);
        assert!(File::open(&path, Access::Read).unwrap().has_writer());
        refusal(File::create_nameless(&path), Kind::Invalid);
        drop(file);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        std::fs::remove_file(&path).unwrap();
    }
    refusal(File::create_nameless(folder.path()), Kind::Mismatch);
    let nowhere = folder.path().join("none/a");
    refusal(File::create_nameless(nowhere), Kind::Io);
}

#[test]
fn who_comes_second_to_a_name_replaces_nothing_and_leaves_nothing() {
    let (folder, path) = folder();
    for file in nameless(&path) {
        std::fs::write(&path, b"the first").unwrap();
        let error = refusal(file.take_name(), Kind::Invalid);
        assert!(error.contains("already a file"), "{error}");
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"the first");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_file_that_replaces_another_takes_its_name_when_it_is_whole() {
    let (folder, path) = folder();
    for mut file in nameless(&path) {
        file.replaces = true;
        std::fs::write(&path, b"the first").unwrap();
        let reader = File::open(&path, Access::Read).unwrap();
        file.resize(10).unwrap();
        file.write_at(0, b"the second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"the first");
        file.take_name().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"the second");
        let mut kept = [0; 9];
        reader.read_at(0, &mut kept).unwrap();
        assert_eq!(&kept, b"the first");
        drop(file);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
    // One that never is whole leaves the other, and nothing of itself.
    drop(File::create_replacing(&path).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), b"the second");
    // What died between its two names is found by the next.
    let dead = folder.path().join(".a.0123456789abcdef.new");
    std::fs::write(&dead, b"half").unwrap();
    let next = File::create_replacing(&path).unwrap();
    next.take_name().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    refusal(File::create_replacing(folder.path()), Kind::Mismatch);
}

#[test]
fn temporaries_of_a_dead_process_go_and_those_of_a_living_one_stay() {
    let (folder, path) = folder();
    let dead = folder.path().join(".a.0123456789abcdef.new");
    let others = ["a.new", "b.0123456789abcdef.new", "a.0123456789abcdeg.new"];
    let others = others.map(|name| folder.path().join(format!(".{name}")));
    std::fs::write(&dead, b"half").unwrap();
    for other in &others {
        std::fs::write(other, b"not ours").unwrap();
    }
    let living = File::temporary(&path).unwrap();
    assert!(!dead.exists());
    let second = File::temporary(&path).unwrap();
    second.take_name().unwrap();
    assert_eq!(temporaries_left(&path).len(), 1);
    refusal(living.take_name(), Kind::Invalid);
    drop(living);
    assert_eq!(temporaries_left(&path), Vec::<PathBuf>::new());
    assert!(others.iter().all(|other| other.exists()));
}

#[test]
fn a_durable_write_is_read_like_any_other() {
    let (_folder, _, file) = made(8192);
    let map = file.map(1 << 30).unwrap();
    map.store_u64(4096, 7);
    file.write_durably(4092, &[1, 2, 3, 4]).unwrap();
    file.write_durably(0, &[]).unwrap();
    assert_eq!(
        (map.load_u64(4088) >> 32, map.load_u64(4096)),
        (0x0403_0201, 7)
    );
}

#[test]
fn folders_links_and_pipes_are_refused_by_name() {
    let (folder, path) = folder();
    drop(File::create(&path).unwrap());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let refusals = [
        (folder.path(), "found a directory"),
        (&link, "found a symbolic link"),
        (&pipe, "found a pipe, socket or device"),
    ];
    for (path, found) in refusals {
        let error = refusal(File::open(path, Access::Read), Kind::Mismatch);
        assert!(error.contains(found), "{error}");
    }
    let error = File::open(folder.path().join("none"), Access::Write).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("io: there is no such file at "),
        "{error}"
    );
}

#[test]
fn ranges_are_copied_between_files_and_to_memory() {
    let (folder, _, from) = made(8192);
    from.write_at(1000, &[9; 5000]).unwrap();
    let to = File::create(folder.path().join("b")).unwrap();
    to.resize(8192).unwrap();
    from.copy_range_to(1000, 5000, &to).unwrap();
    let memory = crate::io::memory::Memory::new(8192).unwrap();
    memory.resize(8192).unwrap();
    from.copy_range_to(1000, 5000, memory.as_ref()).unwrap();
    let mut wanted = vec![0; 8192];
    wanted[1000..6000].fill(9);
    let mut seen = vec![1; 8192];
    to.read_at(0, &mut seen).unwrap();
    assert!(seen == wanted && memory.to_vec() == wanted);
}

#[test]
fn a_folder_renames_removes_and_lists() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(folder.path());
    let (a, b) = (Path::new("a"), Path::new("b"));
    drop(files.create(a).unwrap());
    assert!(files.exists(a).unwrap());
    files.rename(a, b).unwrap();
    files.sync().unwrap();
    let error = Files::new(folder.path().join("none")).sync().unwrap_err();
    assert_eq!(error.kind(), Kind::Io, "it is this folder that is synced");
    let (parent, name) = Files::of(Path::new("b"));
    assert_eq!(name, b);
    parent.sync().unwrap();
    assert_eq!(files.list().unwrap(), [b]);
    files.remove(b).unwrap();
    assert!(!files.exists(b).unwrap());
    refusal(files.remove(b), Kind::Io);
}

#[test]
fn the_boot_is_the_same_for_every_file_and_entropy_is_not() {
    let (folder, path) = folder();
    let a = File::create(&path).unwrap();
    let b = File::create(folder.path().join("b")).unwrap();
    assert_eq!(a.boot_id(), b.boot_id());
    assert_ne!(a.entropy(), b.entropy());
}

#[test]
fn a_file_that_was_moved_replaced_or_removed_is_seen_and_so_is_its_return() {
    let (_folder, path) = folder();
    let elsewhere = path.with_extension("elsewhere");
    let file = File::create(&path).unwrap();
    let said = |file: &File| file.verify_path().unwrap_err().to_string();
    file.verify_path().unwrap();
    std::fs::rename(&path, &elsewhere).unwrap();
    let text = said(&file);
    assert!(
        text.contains("moved") && text.contains("found no file"),
        "{text}"
    );
    std::fs::write(&path, b"another").unwrap();
    assert!(said(&file).contains("found another file"));
    std::fs::rename(&elsewhere, &path).unwrap();
    file.verify_path().unwrap();
    // Of what is removed the contents can still be had, as it states.
    file.resize(4096).unwrap();
    std::fs::remove_file(&path).unwrap();
    let text = said(&file);
    let copy = text
        .split_whitespace()
        .find(|word| word.starts_with("/proc/"));
    std::fs::copy(copy.expect("a place to copy from"), &elsewhere).unwrap();
    assert_eq!(std::fs::metadata(&elsewhere).unwrap().len(), 4096);
    // A folder above it that has another name leads nowhere either.
    let within = path.with_extension("folder");
    std::fs::create_dir(&within).unwrap();
    let file = File::create(within.join("b")).unwrap();
    std::fs::rename(&within, path.with_extension("renamed")).unwrap();
    assert!(said(&file).contains("moved"));
    let nameless = File::create_nameless(path.with_extension("nameless")).unwrap();
    nameless.verify_path().unwrap();
}

#[test]
fn what_is_read_at_once_is_right_and_all_else_is_read_later() {
    let (_folder, _path, file) = made(1 << 20);
    let bytes: Vec<u8> = (0..1_u32 << 20).map(|at| (at / 5) as u8).collect();
    file.write_at(0, &bytes).unwrap();
    file.sync().unwrap();
    let mut buf = [0; 5000];
    for at in (0..bytes.len() - buf.len()).step_by(90_000) {
        file.drop_cache().unwrap();
        file.read_ahead(at as u64, (at % 2) as u64 * 5000);
        for _ in 0..3 {
            buf.fill(0);
            if file.read_at_once(at as u64, &mut buf).unwrap() {
                assert!(buf[..] == bytes[at..at + buf.len()], "{at}");
            }
            file.read_at(at as u64, &mut buf).unwrap();
            assert!(buf[..] == bytes[at..at + buf.len()], "{at}");
        }
    }
    assert!(file.read_at_once(0, &mut []).unwrap());
    // What there is not is the error of the read that follows.
    let end = bytes.len() as u64;
    assert!(!file.read_at_once(end - 10, &mut buf).unwrap());
    refusal(file.read_at(end - 10, &mut buf), Kind::Corrupted);
}
