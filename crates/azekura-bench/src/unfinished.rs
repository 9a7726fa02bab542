//! Temporary files and processes of a run: they are removed when the run fails, and when it is interrupted.
//!
//! Promises: a path that is watched is gone after its guard was dropped, and after SIGINT, SIGTERM or SIGHUP, unless it was
//! kept before; processes that were started here are ended first. The program then ends by that signal, so that its parent
//! sees why. After SIGKILL everything stays. It does not know what is at a path.
//!
//! The handler of a signal holds the one lock to the end of the process, so nothing is begun, ended or printed meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use azekura::error::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::threads;

/// How often a folder is emptied, while a process may still add to it.
const TRIES: usize = 10;

struct Watched {
    started: bool,
    paths: Vec<PathBuf>,
    children: Vec<u32>,
}

static WATCHED: Mutex<Watched> = Mutex::new(Watched {
    started: false,
    paths: Vec::new(),
    children: Vec::new(),
});

fn watched() -> MutexGuard<'static, Watched> {
    WATCHED.lock().expect("no thread panics with what it lists")
}

/// Waits for signals, in a thread, from the first call on.
fn started() -> Result<MutexGuard<'static, Watched>> {
    let mut watched = watched();
    if !watched.started {
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
        let mut signals = signals.map_err(|error| Error::io("cannot wait for signals", error))?;
        threads::start(move || {
            if let Some(signal) = signals.forever().next() {
                let watched = self::watched();
                end(&watched);
                // It ends the process, so no error can be reported.
                let _ = emulate_default_handler(signal);
            }
        })?;
        watched.started = true;
    }
    Ok(watched)
}

fn end(watched: &Watched) {
    for &child in &watched.children {
        if let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) {
            // One that has ended by itself is what was wanted.
            let _ = kill_process(child, Signal::KILL);
        }
    }
    for path in &watched.paths {
        // The process ends: no error can be reported.
        let _ = remove(path);
    }
}

/// Removes the file or folder, if there is one.
fn remove(path: &Path) -> std::io::Result<()> {
    let mut done = Ok(());
    for _ in 0..TRIES {
        let Ok(meta) = fs::symlink_metadata(path) else {
            return Ok(());
        };
        done = if meta.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        if done.is_ok() {
            break;
        }
    }
    done
}

/// A name that no other file of this process has, nor of another that runs.
pub(crate) fn fresh_name(of: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("azekura-{of}-{}-{number}", std::process::id())
}

/// A file or folder that goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Unfinished(PathBuf);

impl Unfinished {
    /// Watches what is, or will be, at `path`.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        started()?.paths.push(path.to_path_buf());
        Ok(Self(path.to_path_buf()))
    }

    /// A new folder at `path`.
    pub(crate) fn folder(path: &Path) -> Result<Self> {
        let failed = |error| Error::io("cannot make a folder", error).at(path);
        fs::create_dir(path).map_err(failed)?;
        Self::at(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// It stays.
    pub(crate) fn keep(mut self) {
        self.leave();
    }

    /// Removes it; an error if that fails.
    pub(crate) fn remove(mut self) -> std::io::Result<()> {
        let removed = remove(&self.0);
        self.leave();
        removed
    }

    fn leave(&mut self) {
        let left = std::mem::take(&mut self.0);
        watched().paths.retain(|path| *path != left);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // What cannot be removed stays; the run's own error is reported.
            let _ = remove(&self.0);
            self.leave();
        }
    }
}

/// A process that is ended if this one is interrupted, until this is dropped.
#[derive(Debug)]
pub(crate) struct Listed(u32);

impl Drop for Listed {
    fn drop(&mut self) {
        watched().children.retain(|other| *other != self.0);
    }
}

/// Starts a process, which ends with this one if that is interrupted.
pub(crate) fn spawn(command: &mut Command) -> Result<(Child, Listed)> {
    // Under the lock: a signal finds it in the list, or it is not started.
    let mut watched = started()?;
    let child = command.spawn();
    let child = child.map_err(|error| Error::io("cannot start a process", error))?;
    let number = child.id();
    watched.children.push(number);
    Ok((child, Listed(number)))
}

/// Runs a process to its end, which comes early if this one is interrupted.
pub(crate) fn output(command: &mut Command) -> Result<Output> {
    let (child, _listed) = spawn(command)?;
    let output = child.wait_with_output();
    output.map_err(|error| Error::io("cannot wait for a process", error))
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn what_is_watched_goes_and_what_is_kept_stays() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        for name in ["dropped", "removed", "kept"] {
            fs::create_dir(place(name)).unwrap();
            fs::write(place(name).join("in"), "x").unwrap();
        }
        fs::write(place("file"), "x").unwrap();
        drop(Unfinished::at(&place("dropped")).unwrap());
        drop(Unfinished::at(&place("file")).unwrap());
        drop(Unfinished::at(&place("never made")).unwrap());
        Unfinished::at(&place("removed")).unwrap().remove().unwrap();
        Unfinished::at(&place("kept")).unwrap().keep();
        let left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["kept"]);
    }

    #[test]
    fn a_signal_ends_processes_and_removes_what_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made");
        fs::create_dir(&path).unwrap();
        let mut sleeps = Command::new("sleep").arg("1000").spawn().unwrap();
        end(&Watched {
            started: true,
            paths: vec![path.clone()],
            children: vec![sleeps.id()],
        });
        assert!(!sleeps.wait().unwrap().success());
        assert!(!path.exists());
    }

    #[test]
    fn a_process_that_ended_is_no_longer_listed() {
        let ran = output(Command::new("echo").arg("a").stdout(Stdio::piped())).unwrap();
        assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(0), &b"a\n"[..]));
        let error = output(&mut Command::new("/gone/gone")).unwrap_err();
        assert!(
            error.to_string().contains("cannot start a process"),
            "{error}"
        );
    }
}
