//! The tour's temporary directory, which goes with the tour: at its end, and when it is interrupted.
//!
//! Promises: after SIGINT, SIGTERM or SIGHUP the directory is gone, and the program has ended by that signal, so its parent
//! started it sees why. After SIGKILL the directory stays. It does not know what is in it.

use std::fs;
use std::path::PathBuf;

use azekura::{Error, Result};
use azekura_bench::threads;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tempfile::TempDir;

/// How often it is emptied, while threads that still run may put something there.
const TRIES: usize = 10;

/// Makes the directory and has it watched.
pub(super) fn temporary_directory() -> Result<TempDir> {
    let failed = |error| Error::io("cannot make a temporary directory", error);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let directory = tempfile::Builder::new()
        .prefix("azekura-tour-")
        .tempdir()
        .map_err(failed)?;
    let path = directory.path().to_path_buf();
    threads::start(move || {
        if let Some(signal) = signals.forever().next() {
            remove(&path);
            // It ends the process; no error can be reported.
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(directory)
}

fn remove(path: &PathBuf) {
    for _ in 0..TRIES {
        if fs::remove_dir_all(path).is_ok() || !path.exists() {
            return;
        }
    }
}
