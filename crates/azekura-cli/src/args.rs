//! The definition of the command line, and its help.
//!
//! Each subcommand defines its own arguments in its file; this file puts them together, groups them
//! for `--help` and adds `bench` and `stress`, which come from their own crate.
//! Promises: every subcommand stands in exactly one group (tested).
//! It does not know what the commands do.

use std::fmt::Write as _;

use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Parser};

use crate::command::Subcommand;
use crate::exit;

/// azekura stores records, a byte key and a byte value each, in one file, and objects, large values
/// under 128-bit ids, in a file or on block devices.
#[derive(Parser)]
#[command(
    name = "azekura",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Subcommand,
}

/// The subcommands as `--help` shows them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Serve", &["serve", "client", "top"]),
    ("Look", &["get", "list", "search", "inspect", "check"]),
    (
        "Change",
        &["create", "set", "append", "increment", "rekey", "remove"],
    ),
    ("Move", &["import", "export", "merge", "copy"]),
    ("Objects", &["object"]),
    ("Care", &["compact", "rebuild", "repair"]),
    ("Meet", &["tour", "bench", "stress", "completions", "man"]),
];

const EXAMPLES: &str = "\
Examples:
  azekura create users.azh
  azekura set users.azh anna 'Anna, Nara' ben 'Ben, Uji'
  azekura get users.azh anna
  azekura list users.azh --items 10
  azekura search users.azh ^a --mode regex
  azekura export users.azh tsv > users.tsv
  azekura copy users.azh backup.azh && azekura check backup.azh
  azekura object create photos.azo --capacity 10GiB
  azekura object put photos.azo 2a cat.jpg
  azekura object get photos.azo 2a --output same.jpg";

/// The whole command line.
pub(crate) fn command() -> Command {
    let command = Cli::command()
        .subcommand(azekura_bench::command())
        .subcommand(azekura_bench::stress::command());
    let mut text = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "{group}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<12} {about}");
        }
        text.push('\n');
    }
    command
        .help_template(format!(
            "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}{{after-help}}"
        ))
        .after_help(format!(
            "{EXAMPLES}\n\n{}\n`azekura COMMAND --help` and `azekura object COMMAND --help` explain them.",
            exit::table()
        ))
}

/// The subcommand that `matches` of [`command`] hold.
pub(crate) fn parse(matches: &ArgMatches) -> Subcommand {
    Cli::from_arg_matches(matches).map_or_else(|error| error.exit(), |cli| cli.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_visible_subcommand_stands_in_exactly_one_group() {
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let command = command();
        let mut defined: Vec<&str> = command
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
            .map(Command::get_name)
            .collect();
        grouped.sort_unstable();
        defined.sort_unstable();
        assert_eq!(grouped, defined);
    }
}
