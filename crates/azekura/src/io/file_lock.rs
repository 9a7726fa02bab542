//! One writer per file: between processes by the system's lock, within a process by a list.
//!
//! The system's lock is an open-file-description lock on bytes far past any data: it belongs to the open
//! file, not to the process, so closing another descriptor does not drop it, and the system drops it when
//! its owner dies, however that happens. A second list, of this process's writers by device and inode,
//! refuses with "locked" before the system's lock is tried, with a clearer message.
//!
//! | byte | lock |
//! |---|---|
//! | 2^62 | exclusive: the writer; shared: readers of what is not to be written meanwhile |
//! | 2^62 + 1 | shared: every reader in another process; the writer takes it to cut the file short |
//! | 2^62 + 2 | shared: handles of a writer whose requests may outlive their process, until the last one has landed |
//!
//! The writer holds the second only while it cuts: an open for reading then waits for it, for a bounded time.
//!
//! A process that is killed leaves requests of a ring behind, which the system carries to their end. It takes the ring apart
//! some time after the process was reaped, and only then gives up the open files in it. So a ring never has the open file with
//! the writer's lock, but another of the same file, with a lock of the third byte: the writer's lock ends with its process, and
//! the next writer waits for the ring, since what its requests write must not meet what it writes.
//!
//! It does not know what is in the file.

#![expect(unsafe_code, reason = "the fcntl calls")]

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::Access;
use crate::error::{Error, Kind, Result};

const WRITER: i64 = 1 << 62;
const READERS: i64 = WRITER + 1;
const FLIGHTS: i64 = WRITER + 2;
/// How long a reader waits while the writer cuts the file short: a call of the system, unless its process is stopped in it.
const CUTTING_MAX: Duration = Duration::from_secs(10);
/// How long requests of a dead process are waited for.
const LANDING_MAX: Duration = Duration::from_secs(60);

static WRITERS: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// What to do about another writer.
pub(super) const OR_READ_ONLY: &str = "open it read-only, or stop that process";

/// Held as long as the file is open.
#[derive(Debug)]
pub struct FileLock {
    /// Device and inode, of a writer.
    identity: Option<(u64, u64)>,
}

impl FileLock {
    /// Takes the lock for `access`; `Locked` if another writer holds it.
    pub fn take(
        file: &std::fs::File,
        identity: (u64, u64),
        access: Access,
        path: &Path,
    ) -> Result<Self> {
        if access == Access::Read {
            return await_cut(file, path).map(|()| Self { identity: None });
        }
        if !WRITERS.lock().insert(identity) {
            return Err(
                Error::new(Kind::Locked, "this process already has it open for writing")
                    .at(path)
                    .remedy("use that handle, or close it first"),
            );
        }
        let lock = Self {
            identity: Some(identity),
        };
        let taken = set(file, WRITER, libc::F_WRLCK)
            .map_err(|e| Error::io("cannot lock the file", e).at(path))?;
        if taken {
            return await_flights(file, path).map(|()| lock);
        }
        if set(file, WRITER, libc::F_RDLCK).unwrap_or(false) {
            let _ = set(file, WRITER, libc::F_UNLCK);
            let error = Error::new(Kind::Locked, "it is open for reading, and must not change");
            return Err(error.at(path).remedy("wait until its readers are done"));
        }
        let holder = by_holder(identity.1);
        Err(
            Error::new(Kind::Locked, format!("it is open for writing{holder}"))
                .at(path)
                .remedy(OR_READ_ONLY),
        )
    }
}

/// The same file opened again, by what the system states of the open one. `None` of anything but a file or a block device.
/// Errors: of the system, also where it does not list open files.
pub(super) fn open_again(file: &std::fs::File) -> std::io::Result<Option<std::fs::File>> {
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(None);
    }
    let direct = rustix::fs::fcntl_getfl(file)? & OFlags::DIRECT;
    let mut options = std::fs::OpenOptions::new();
    options
        .read(true)
        .write(access_of(file)? == Access::Write)
        .custom_flags(libc::O_CLOEXEC | direct.bits().cast_signed());
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    options.open(own).map(Some)
}

/// Whether a file is open for writing.
pub(super) fn access_of(file: &std::fs::File) -> std::io::Result<Access> {
    let mode = rustix::fs::fcntl_getfl(file)? & OFlags::RWMODE;
    Ok(if mode == OFlags::RDONLY {
        Access::Read
    } else {
        Access::Write
    })
}

impl FileLock {
    /// Of another handle, whose requests may outlive the process; those of a reader change nothing.
    pub fn of_flights(file: &std::fs::File, access: Access, path: &Path) -> Result<Self> {
        if access == Access::Write {
            let taken = set(file, FLIGHTS, libc::F_RDLCK);
            let taken = taken.map_err(|e| Error::io("cannot lock the file", e).at(path))?;
            debug_assert!(taken, "no handle has it alone");
        }
        Ok(Self { identity: None })
    }

    /// Keeps writers out, of this process too, as long as `file`, which was opened for reading, is open; `Locked` if there is
    /// one. Other readers may come.
    pub(super) fn keep_writers_out(file: &std::fs::File, inode: u64, path: &Path) -> Result<()> {
        let taken = set(file, WRITER, libc::F_RDLCK)
            .map_err(|e| Error::io("cannot lock the file for reading", e).at(path))?;
        if taken {
            return await_flights(file, path);
        }
        let error = Error::new(
            Kind::Locked,
            format!("it is open for writing{}", by_holder(inode)),
        );
        Err(error.at(path).remedy("ask that process, or stop it first"))
    }

    /// Gives the lock up, also where a forked child still holds the open file. The system's goes first: who
    /// passes the list then finds the file free.
    pub fn release(&mut self, file: &std::fs::File) {
        for byte in [WRITER, READERS, FLIGHTS] {
            let _ = set(file, byte, libc::F_UNLCK);
        }
        if let Some(identity) = self.identity.take() {
            WRITERS.lock().remove(&identity);
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let Some(identity) = self.identity {
            WRITERS.lock().remove(&identity);
        }
    }
}

/// Runs `cut` while no reader in another process can open the file, if there is none now.
pub(super) fn without_readers<T>(file: &std::fs::File, cut: impl FnOnce() -> T) -> Option<T> {
    if !set(file, READERS, libc::F_WRLCK).unwrap_or(false) {
        return None;
    }
    let done = cut();
    let _ = set(file, READERS, libc::F_UNLCK);
    Some(done)
}

/// Whether another open file has the writer's lock.
pub(super) fn has_writer(file: &std::fs::File) -> bool {
    is_held(file, WRITER)
}

/// Takes the lock of a reader, when the writer does not cut the file short; `Locked` if it does for too long.
fn await_cut(file: &std::fs::File, path: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        let taken = set(file, READERS, libc::F_RDLCK)
            .map_err(|e| Error::io("cannot lock the file for reading", e).at(path))?;
        if taken {
            return Ok(());
        }
        if start.elapsed() > CUTTING_MAX {
            let error = Error::new(Kind::Locked, "its writer is cutting the file short");
            return Err(error.at(path).remedy("open it again"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns when requests of a process that is gone have landed; `Locked` if they do not.
fn await_flights(file: &std::fs::File, path: &Path) -> Result<()> {
    let start = Instant::now();
    while is_held(file, FLIGHTS) {
        if start.elapsed() > LANDING_MAX {
            let what = "requests of a process that is gone are still at the device";
            let error = Error::new(Kind::Locked, what).at(path);
            return Err(error.remedy("open it again when the device has done them"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether another open file has a lock of this byte.
fn is_held(file: &std::fs::File, start: i64) -> bool {
    let mut lock = byte(start, libc::F_WRLCK);
    // SAFETY: the descriptor is open for the duration of the borrow; the call fills one `flock`.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

fn byte(start: i64, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: 1,
        l_pid: 0,
    }
}

/// Sets a lock of one byte without waiting. `false`: another handle holds it.
fn set(file: &std::fs::File, start: i64, kind: i32) -> std::io::Result<bool> {
    let lock = byte(start, kind);
    loop {
        // SAFETY: the descriptor is open for the duration of the borrow; the call reads one `flock`.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        if result == 0 {
            return Ok(true);
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => return Ok(false),
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

/// The holder in words, if it is known.
fn by_holder(inode: u64) -> String {
    let by = holder(inode).map(|pid| format!(" by process {pid}"));
    by.unwrap_or_default()
}

/// The process that has a lock on the inode, as far as the system reports.
fn holder(inode: u64) -> Option<u32> {
    let wanted = format!(":{inode}");
    let links = std::fs::read_dir("/proc").ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks
        .lines()
        .find(|line| line.split_whitespace().any(|word| word.ends_with(&wanted)))?;
    // Locks of open files carry no process: look who has the inode open.
    links.flatten().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let descriptors = std::fs::read_dir(process.path().join("fdinfo")).ok()?;
        let holds = descriptors.flatten().any(|descriptor| {
            std::fs::read_to_string(descriptor.path()).is_ok_and(|info| {
                info.lines().any(|line| {
                    line.starts_with("lock:") && line.contains("WRITE") && line.contains(&wanted)
                })
            })
        });
        holds.then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;

    use super::*;
    use crate::error::refusal;
    use crate::io::Storage;
    use crate::io::file::File;
    use crate::io::flight::{self, Means};

    const PATH: &str = "AZEKURA_TEST_LOCK_PATH";
    const FLIES: &str = "AZEKURA_TEST_LOCK_FLIES";

    /// Runs `the_other_process` below in a process of its own, which then holds the file, and `flies`: has requests carried.
    fn other_process(path: &Path, flies: bool) -> Child {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "io::file_lock::tests::the_other_process",
                "--nocapture",
            ])
            .env(PATH, path)
            .env(FLIES, if flies { "yes" } else { "no" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = Vec::new();
        let mut byte = [0];
        while !printed.ends_with(b"it is mine") {
            let out = child.stdout.as_mut().unwrap();
            assert_eq!(
                out.read(&mut byte).unwrap(),
                1,
                "the other process holds the file"
            );
            printed.push(byte[0]);
        }
        child
    }

    #[test]
    fn the_other_process() {
        let Some(path) = std::env::var_os(PATH) else {
            return;
        };
        let file: Arc<dyn Storage> = Arc::new(File::open(path, Access::Write).unwrap());
        let flies = std::env::var_os(FLIES).is_some_and(|word| word == "yes");
        let mut flight = flies.then(|| flight::open(&file, 2, Means::Best).unwrap());
        if let Some(flight) = &mut flight {
            let work = flight::Work::Sync;
            flight.launch(flight::Request { token: 1, work }).unwrap();
            flight.land(&mut Vec::new(), None).unwrap();
        }
        std::io::stdout().write_all(b"it is mine").unwrap();
        std::io::stdout().flush().unwrap();
        // Until the parent lets go, or is gone.
        let _ = std::io::stdin().read(&mut [0]);
        drop((flight, file));
    }

    fn new_file() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        drop(File::create(&path).unwrap());
        (folder, path)
    }

    #[test]
    fn a_process_opens_a_file_once_for_writing_and_often_for_reading() {
        let (_folder, path) = new_file();
        let writer = File::open(&path, Access::Write).unwrap();
        let error = refusal(File::open(&path, Access::Write), Kind::Locked);
        assert!(
            error.contains("this process already has it open"),
            "{error}"
        );
        let readers: Vec<File> = (0..3)
            .map(|_| File::open(&path, Access::Read).unwrap())
            .collect();
        assert!(readers.iter().all(Storage::has_writer) && !writer.has_writer());
        drop(writer);
        assert!(!readers[0].has_writer());
        assert!(File::open(&path, Access::Write).is_ok());
    }

    #[test]
    fn another_process_is_named_and_its_death_frees_the_file() {
        let (_folder, path) = new_file();
        let mut child = other_process(&path, false);
        let error = refusal(File::open(&path, Access::Write), Kind::Locked);
        let wanted = format!(
            "locked: it is open for writing by process {} at {}; open it read-only, or stop that process",
            child.id(),
            path.display()
        );
        assert_eq!(error, wanted);
        assert!(File::open(&path, Access::Read).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(File::open(&path, Access::Write).is_ok());
    }

    /// The system takes a ring apart after its process was reaped, and gives up the files in it only then.
    #[test]
    fn a_killed_process_with_a_ring_frees_the_file_for_the_next_one() {
        let (_folder, path) = new_file();
        for _ in 0..10 {
            let mut child = other_process(&path, true);
            child.kill().unwrap();
            child.wait().unwrap();
            File::open(&path, Access::Write).unwrap().sync().unwrap();
        }
    }

    #[test]
    fn a_ring_has_the_lock_of_flights_as_long_as_it_lives() {
        let (_folder, path) = new_file();
        let file: Arc<dyn Storage> = Arc::new(File::open(&path, Access::Write).unwrap());
        let flight = flight::open(&file, 2, Means::Best).unwrap();
        let other = std::fs::File::open(&path).unwrap();
        assert_eq!(is_held(&other, FLIGHTS), flight.means() == "ring");
        drop(flight);
        assert!(!is_held(&other, FLIGHTS) && is_held(&other, WRITER));
    }

    #[test]
    fn who_opens_a_file_waits_for_what_its_last_writer_left_in_flight() {
        let (_folder, path) = new_file();
        let writer = File::open(&path, Access::Write).unwrap();
        let flights = writer.again().unwrap();
        drop(writer);
        let (landed, after) = (Duration::from_millis(100), Instant::now());
        let lands = std::thread::spawn(move || {
            std::thread::sleep(landed);
            drop(flights);
        });
        drop(File::open(&path, Access::Write).unwrap());
        assert!(after.elapsed() >= landed);
        lands.join().unwrap();
        // Within a process handles come and go.
        let writer = File::open(&path, Access::Write).unwrap();
        let two = [writer.again().unwrap(), writer.again().unwrap()];
        drop((two, writer));
        File::open(&path, Access::Write).unwrap().sync().unwrap();
    }

    #[test]
    fn a_reader_waits_while_the_file_is_cut_short() {
        let (_folder, path) = new_file();
        let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let (cutting, after) = (Duration::from_millis(100), Instant::now());
        let reader = without_readers(&writer, || {
            let path = path.clone();
            let reader = std::thread::spawn(move || File::open(&path, Access::Read));
            std::thread::sleep(cutting);
            reader
        });
        let reader = reader.expect("no reader has it open").join().unwrap();
        assert!(reader.is_ok() && after.elapsed() >= cutting, "{reader:?}");
        // While it has the file open, nothing is cut.
        assert!(without_readers(&writer, || ()).is_none());
        drop(reader);
        assert!(without_readers(&writer, || ()).is_some());
    }

    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let (_folder, path) = new_file();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let mut lock = FileLock::take(&file, (u64::MAX, 1), Access::Write, &path).unwrap();
        // What a forked child has: the same open file.
        let _inherited = file.try_clone().unwrap();
        lock.release(&file);
        drop(file);
        File::open(&path, Access::Write).unwrap().sync().unwrap();
    }
}
