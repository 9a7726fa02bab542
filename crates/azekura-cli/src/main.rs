//! The one binary: hands its arguments to the library and exits with the code it answers.
//! It promises that code, and that a write over the limit of file sizes fails instead of ending the process by SIGXFSZ.
//! It does not know commands, files or terminals.

use std::process::ExitCode;
use std::sync::Arc;

use signal_hook::consts::SIGXFSZ;

fn main() -> ExitCode {
    // A handler, whatever it does, makes such a write return EFBIG. Programs that are started have the default again. No error
    // is known: the signal is one that can be handled.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    ExitCode::from(azekura_cli::run(std::env::args_os()))
}
