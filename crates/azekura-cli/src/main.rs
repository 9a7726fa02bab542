//! The one binary: hands its arguments to the library and exits with the code it answers.
//! It promises that code and nothing else (see `exit.rs`).
//! It does not know commands, files or terminals.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(azekura_cli::run(std::env::args_os()))
}
