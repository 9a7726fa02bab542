//! Phases in processes of their own, so that no run inherits the memory, the allocator or the caches of another.
//!
//! A child is this program with other arguments, which prints phases as JSON lines. It ends when this process is
//! interrupted. A child that fails ends the run with an error of the kind that its exit code reports. It does not know what
//! is measured.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use azekura::error::{Error, Result};
use azekura_wire::exit::kind_of;

use crate::phase::Phase;
use crate::unfinished;

/// Runs this program with the arguments `words` and `flags`; `what` names the run in an error.
pub fn phases(words: &[&str], flags: Vec<OsString>, what: &str) -> Result<Vec<Phase>> {
    let program = std::env::current_exe().map_err(|e| Error::io("cannot find this program", e))?;
    let mut command = Command::new(program);
    command.args(words).args(flags);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let output = unfinished::output(&mut command)?;
    if !output.status.success() {
        let error = Error::new(kind_of(output.status.code()), format!("{what} failed"));
        return Err(error.detail(output.status.to_string()));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(Phase::from_json)
        .collect()
}
