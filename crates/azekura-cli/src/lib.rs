//! Everything that parses arguments and prints: the command line `azekura`.
//!
//! One file per subcommand under `command/` (`bench` and `stress` have their flags in `azekura_bench`); what several of them share lies next to this file, one
//! idea each. Records go to standard output, messages and progress to standard error. A failure is
//! one line (of arguments several), and the exit code states its kind.
//!
//! ```text
//!   main.rs -> lib.rs -> args.rs        the definition and its help
//!                  `---> command/*      one file per subcommand
//!                           |           store.rs   open, batches, durability
//!                           |           format/    tsv, flat records, JSON lines
//!                           |           text.rs  listing.rs  figures.rs  whole.rs  output.rs  progress.rs  exit.rs
//!                           |           server.rs (flags of a connection)  trace.rs (the server's log)
//!                           `-> azekura (the library)
//! ```
//!
//! It does not know how records are stored.

mod args;
mod command;
mod exit;
mod figures;
mod format;
mod input;
mod listing;
mod output;
mod progress;
mod range;
mod server;
mod store;
mod text;
mod trace;
mod whole;

use std::ffi::OsString;
use std::io::Write;

use azekura::Result;

use azekura_wire::exit::{USAGE, code_of};
use exit::Outcome;
use output::Output;

/// Runs the command line `arguments` (the first is the program's name) and returns its exit code.
///
/// Results are printed to standard output, messages to standard error. The codes are those that
/// `azekura --help` lists.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let command = args::command();
    let matches = match command.clone().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version are requests; everything else clap reports is wrong usage.
            if !error.use_stderr() {
                let _ = error.print();
                return 0;
            }
            let _ = std::io::stderr().write_all(args::describe(&error).as_bytes());
            return USAGE;
        }
    };
    let mut buffer = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout());
    let outcome = dispatch(&command, &matches, &mut Output::new(&mut buffer))
        .and_then(|outcome| buffer.flush().map_err(output::failed).map(|()| outcome));
    match outcome {
        Ok(outcome) => outcome.code(),
        Err(error) if output::reader_left(&error) => 0,
        Err(error) => {
            let error = store::without_read_only(error);
            // At once, so that lines of several processes do not mix.
            let line = format!("azekura: {error}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            code_of(error.kind())
        }
    }
}

/// Reads `bytes` as a stream of records in each format that `import` knows, to the end or to the first error; for fuzzing.
///
/// Returns how many records were read. Panics if records that were read do not come back when they are written and
/// read again.
pub fn read_streams(bytes: &[u8]) -> u64 {
    format::read_streams(bytes)
}

fn dispatch(
    command: &clap::Command,
    matches: &clap::ArgMatches,
    out: &mut Output<'_>,
) -> Result<Outcome> {
    if let Some(("bench", bench)) = matches.subcommand() {
        return azekura_bench::run(bench).map(|()| Outcome::Yes);
    }
    if let Some(("stress", stress)) = matches.subcommand() {
        return azekura_bench::stress::run(stress).map(|()| Outcome::Yes);
    }
    args::parse(matches).run(command, out)
}
