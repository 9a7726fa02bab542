//! A real crash: a child process writes and acknowledges, is killed with SIGKILL, and is checked on.
//!
//! ```text
//!   parent                                child (`azekura tour-writer`)
//!   spawn  --------------------------->   open the file; each thread: put(key, n), then
//!   read acknowledgements   <-- pipe ---  write n to the pipe; again with n + 1
//!   SIGKILL, drain the pipe ---------->   dies between any two instructions
//!   reopen, compare every key
//! ```
//!
//! A thread writes its numbers in order to a ring of keys, so that old values are replaced and the
//! file is cleaned meanwhile. After a kill, key k of a thread must hold the last acknowledged number
//! that fell on k, or the one that was in flight; anything else is a lost write.
//! It does not know how the engine recovers.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azekura::record::hash::{HashDb, OpenOptions};
use azekura::{Error, Kind, Result};
use azekura_bench::threads::start_in;

use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;

/// Threads that write in the child.
pub(super) const THREADS: usize = 2;
/// Keys of a thread.
const KEYS: u64 = 20_000;
/// How long the child writes before each kill.
const LIVES: [Duration; 3] = [
    Duration::from_millis(300),
    Duration::from_millis(700),
    Duration::from_millis(1100),
];
/// Bytes of a value: its number again and again.
const VALUE_LEN: usize = 96;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Processes killed.
    pub(super) kills: u64,
    /// Writes acknowledged over the pipe.
    pub(super) acknowledged: u64,
    /// Time in which the children wrote.
    pub(super) writing: Duration,
    /// The longest of the opens after a kill.
    pub(super) slowest_open: Duration,
    /// Keys whose acknowledged write is not there.
    pub(super) missing: u64,
    /// Keys whose value is not one that was ever written.
    pub(super) wrong: u64,
    /// Keys that hold the write which was in flight at the kill.
    pub(super) in_flight: u64,
}

/// Kills writers of `file` and reports what they left.
pub(super) fn run(file: &Path) -> Result<Report> {
    let mut report = Report::default();
    // The number each thread comes to next; all before it are acknowledged.
    let mut next = [0; THREADS];
    let progress = Progress::new("killing", LIVES.len() as u64);
    for life in LIVES {
        let begun = Instant::now();
        let before: u64 = next.iter().sum();
        live_and_die(file, life, &mut next)?;
        report.writing += begun.elapsed();
        report.acknowledged += next.iter().sum::<u64>() - before;
        report.kills += 1;
        let begun = Instant::now();
        let db = HashDb::open(file, &OpenOptions::default())?;
        report.slowest_open = report.slowest_open.max(begun.elapsed());
        verify(&db, next, &mut report)?;
        db.close()?;
        progress.set(report.kills);
    }
    if report.acknowledged == 0 {
        return Err(Error::new(
            Kind::Invalid,
            "the writer acknowledged nothing before its kill",
        ));
    }
    Ok(report)
}

/// Starts a writer, kills it after `life`, and moves `next` past what it acknowledged.
fn live_and_die(file: &Path, life: Duration, next: &mut [u64; THREADS]) -> Result<()> {
    let failed = |error| Error::io("cannot run the writer", error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .arg("tour-writer")
        .arg(file)
        .args(next.iter().map(u64::to_string))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut pipe = child.stdout.take().expect("the pipe was requested");
    let mut bytes = Vec::new();
    let mut part = [0; 1 << 12];
    let mut begun = None;
    loop {
        let read = pipe.read(&mut part).map_err(failed)?;
        if read == 0 {
            break;
        }
        bytes.extend_from_slice(&part[..read]);
        // The life of a writer begins with its first acknowledgement, however slow its start was.
        if begun.get_or_insert_with(Instant::now).elapsed() >= life {
            // SIGKILL; again is harmless while the rest of the pipe is drained.
            child.kill().map_err(failed)?;
        }
    }
    let status = child.wait().map_err(failed)?;
    if status.code().is_some() {
        return Err(
            Error::new(Kind::Invalid, "the writer ended before it was killed")
                .found(status, "SIGKILL"),
        );
    }
    for acknowledgement in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(acknowledgement.try_into().expect("chunks of 8 bytes"));
        let (thread, number) = ((word >> 56) as usize, word & (u64::MAX >> 8));
        assert_eq!(next[thread], number, "a thread acknowledges in order");
        next[thread] = number + 1;
    }
    Ok(())
}

/// Compares every key with what was acknowledged: all numbers before `next`.
fn verify(db: &HashDb, next: [u64; THREADS], report: &mut Report) -> Result<()> {
    for (thread, next) in next.into_iter().enumerate() {
        for slot in 0..KEYS {
            let rounds = (next + KEYS - 1 - slot) / KEYS;
            let last = rounds.checked_sub(1).map(|round| round * KEYS + slot);
            let in_flight = (next % KEYS == slot).then_some(next);
            let found = db.get(&key(thread, slot))?;
            let number = found.as_deref().map(number);
            match number {
                Some(None) => report.wrong += 1,
                Some(Some(number)) if Some(number) == in_flight => report.in_flight += 1,
                number => report.missing += u64::from(number.flatten() != last),
            }
        }
    }
    Ok(())
}

fn key(thread: usize, slot: u64) -> Vec<u8> {
    format!("tour:writer:{thread}:{slot}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(VALUE_LEN / 8)
}

/// The number a value stands for, if it is whole.
fn number(value: &[u8]) -> Option<u64> {
    let (first, _) = value.split_first_chunk()?;
    let number = u64::from_le_bytes(*first);
    (self::value(number) == value).then_some(number)
}

/// The child of the tour: writes until it is killed
#[derive(clap::Args)]
pub(crate) struct Writer {
    /// The file
    file: PathBuf,
    /// The number each thread begins with
    #[arg(required = true)]
    begin: Vec<u64>,
}

impl Writer {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        let db = HashDb::open(&self.file, &OpenOptions::default())?;
        // Past the buffers of the standard library: an acknowledgement is one system call of 8 bytes.
        let pipe = std::io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Error::io("cannot use the pipe", error))?;
        let pipe = File::from(pipe);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads: Result<Vec<_>> = self
                .begin
                .iter()
                .enumerate()
                .map(|(thread, begin)| {
                    let (db, pipe, stop) = (&db, &pipe, &stop);
                    start_in(scope, move || write(db, pipe, thread, *begin, stop))
                })
                .collect();
            threads
                .inspect_err(|_| stop.store(true, Ordering::Relaxed))?
                .into_iter()
                .try_for_each(|thread| thread.join().expect("a writer does not panic"))
        })?;
        Ok(Outcome::Yes)
    }
}

/// Writes numbers from `begin` on and acknowledges each, until the pipe breaks, the kill comes, or it is to stop.
fn write(db: &HashDb, mut pipe: &File, thread: usize, begin: u64, stop: &AtomicBool) -> Result<()> {
    for number in begin.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        db.put(&key(thread, number % KEYS), &value(number))?;
        let word = (thread as u64) << 56 | number;
        pipe.write_all(&word.to_le_bytes())
            .map_err(|error| Error::io("cannot acknowledge", error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura::record::hash::CreateOptions;

    /// If the tour could not see a lost write, it would prove nothing: a store that has forgotten the
    /// last round of a key, one that tore a value, and one that is whole are distinguished.
    #[test]
    fn lost_torn_and_whole_writes_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let db = HashDb::create(dir.path().join("t.azh"), &CreateOptions::default()).unwrap();
        let next = [KEYS + 3, 2];
        for (thread, next) in next.into_iter().enumerate() {
            for number in 0..next {
                db.put(&key(thread, number % KEYS), &value(number)).unwrap();
            }
        }
        let look = |db: &HashDb| {
            let mut report = Report::default();
            verify(db, next, &mut report).unwrap();
            (report.missing, report.wrong, report.in_flight)
        };
        assert_eq!(look(&db), (0, 0, 0));
        db.put(&key(0, 3), &value(KEYS + 3)).unwrap();
        assert_eq!(look(&db), (0, 0, 1), "the write in flight may be there");
        db.put(&key(0, 1), &value(1)).unwrap();
        db.remove(&key(1, 0)).unwrap();
        assert_eq!(
            look(&db),
            (2, 0, 1),
            "an old value and an absent one are lost writes"
        );
        db.put(&key(0, 7), &value(7)[..VALUE_LEN - 1]).unwrap();
        assert_eq!(look(&db), (2, 1, 1), "half a value is not a value");
    }
}
