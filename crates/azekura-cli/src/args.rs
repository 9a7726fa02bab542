//! The definition of the command line, and its help.
//!
//! Each subcommand defines its own arguments in its file; this file puts them together, groups them
//! for `--help` and adds `bench` and `stress`, which come from their own crate.
//! Promises: every subcommand stands in exactly one group (tested).
//! It does not know what the commands do.

use std::error::Error as _;
use std::fmt::Write as _;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

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

/// Subcommands as `--help` shows them.
type Groups = [(&'static str, &'static [&'static str])];

const GROUPS: &Groups = &[
    ("Serve", &["serve", "client", "top"]),
    (
        "Look",
        &["get", "list", "count", "search", "inspect", "check"],
    ),
    (
        "Change",
        &[
            "create",
            "set",
            "append",
            "increment",
            "rekey",
            "remove",
            "remove-range",
        ],
    ),
    ("Move", &["import", "export", "merge", "copy", "apply"]),
    ("Sorted files", &["skip"]),
    ("Objects", &["object"]),
    ("Care", &["compact", "rebuild", "repair"]),
    ("Try", &["tour", "bench", "stress"]),
    ("Shell", &["completions", "man"]),
];

const OBJECT_GROUPS: &Groups = &[
    (
        "Look",
        &[
            "get", "list", "head", "usage", "stats", "journal", "check", "scrub",
        ],
    ),
    (
        "Change",
        &["create", "put", "remove", "remove-range", "grow"],
    ),
    ("Move", &["copy"]),
    ("Care", &["repair"]),
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
  azekura export users.azh tsv | azekura skip build users.azs tsv
  azekura object create photos.azo --capacity 10GiB
  azekura object put photos.azo 2a cat.jpg
  azekura object get photos.azo 2a --output same.jpg";

/// The whole command line.
pub(crate) fn command() -> Command {
    let command = Cli::command()
        .subcommand(azekura_bench::command())
        .subcommand(azekura_bench::stress::command());
    let object = |object| grouped(object, OBJECT_GROUPS);
    let command = with_negative_numbers(command).mut_subcommand("object", object);
    grouped(command, GROUPS).after_help(format!(
        "{EXAMPLES}\n\n{}\n`azekura COMMAND --help` and `azekura object COMMAND --help` explain them.",
        exit::table()
    ))
}

/// The command with a help of its subcommands in groups.
fn grouped(command: Command, groups: &Groups) -> Command {
    let mut text = String::new();
    for (group, names) in groups {
        let _ = writeln!(text, "{group}:");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<12} {about}");
        }
        text.push('\n');
    }
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}{{after-help}}"
    ))
}

/// What begins with `-` and is a number is a value everywhere: no option has a digit for its name. Where it must not be
/// negative, the error is about the number.
fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let has_values = arg.get_action().takes_values();
            arg.allow_negative_numbers(has_values)
        })
        .mut_subcommands(with_negative_numbers)
}

/// The text of an error of arguments. What the parsers of Rust report of a number or an address becomes what is expected.
pub(crate) fn describe(error: &clap::Error) -> String {
    let text = error.to_string();
    let Some(source) = error.source() else {
        return text;
    };
    let outside = source.to_string();
    let expected = if let Some(wrong) = source.downcast_ref::<ParseIntError>() {
        match wrong.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "a number of fewer digits",
            _ if text.contains("value '-") => "a whole number that is not negative",
            _ => "a whole number, without a unit",
        }
    } else if source.is::<ParseFloatError>() {
        "a number"
    } else if source.is::<AddrParseError>() {
        "an IP address, without a port"
    } else if let Some((_, range)) = outside.split_once(" is not in ") {
        &format!(
            "a number from {}",
            range.replace("..=", " to ").replace("..", " to ")
        )
    } else {
        return text;
    };
    text.replacen(
        &format!("': {outside}"),
        &format!("': expected {expected}"),
        1,
    )
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
        let command = command();
        let object = command.find_subcommand("object").expect("it is defined");
        for (command, groups) in [(&command, GROUPS), (object, OBJECT_GROUPS)] {
            let mut grouped: Vec<&str> = groups.iter().flat_map(|of| of.1).copied().collect();
            let defined = command.get_subcommands().filter(|c| !c.is_hide_set());
            let mut defined: Vec<&str> = defined.map(Command::get_name).collect();
            grouped.sort_unstable();
            defined.sort_unstable();
            assert_eq!(grouped, defined);
        }
    }
}
