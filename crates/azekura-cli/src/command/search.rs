//! `search`: prints the records whose keys match a pattern.
//! A search reads every key until it has enough; with `--mode edit` and `editbin` it reads all, and prints the nearest,
//! nearest first. The answer is no if nothing matched.
//! It does not know how matching works: the library's `Search` does.

use std::ffi::OsString;
use std::path::PathBuf;

use azekura::verbs::{Place, Search as Pattern};
use azekura::{Error, Kind, Result, Verbs as _};

use crate::exit::Outcome;
use crate::listing::Listing;
use crate::output::Output;
use crate::store::flow;

/// How many records `--mode edit` and `editbin` print without `--limit`.
const NEAREST: usize = 10;

/// Print the records whose keys match a pattern
#[derive(clap::Args)]
pub(crate) struct Search {
    /// The file
    file: PathBuf,
    /// What to look for; of several texts, any
    #[arg(required = true, value_name = "PATTERN")]
    patterns: Vec<OsString>,
    /// How to compare
    #[arg(long, value_enum, default_value = "contains")]
    mode: Mode,
    /// Ignore case
    #[arg(long, short)]
    ignore_case: bool,
    /// Texts must stand as whole words
    #[arg(long, short)]
    words: bool,
    /// Print at most so many; 0 means all [default: 0, with --mode edit and editbin 10]
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
    #[command(flatten)]
    listing: Listing,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Keys with the text somewhere in them
    Contains,
    /// Keys that begin with the text
    Begins,
    /// Keys that end with the text
    Ends,
    /// Keys that are the text (of use with --ignore-case)
    Equals,
    /// Keys that match the regular expression
    Regex,
    /// The keys that the fewest insertions, deletions and changes of characters make the text
    Edit,
    /// The keys that the fewest insertions, deletions and changes of bytes make the text
    #[value(name = "editbin")]
    EditBin,
}

impl Search {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let pattern = self.pattern()?;
        let limit = self.limit.unwrap_or(match self.mode {
            Mode::Edit | Mode::EditBin => NEAREST,
            _ => 0,
        });
        let store = azekura::open::open_read_only(&self.file)?;
        let mut printed = Ok(());
        let found = store.search(&pattern, limit, &mut |key, value| {
            printed = self.listing.print(out, key, value);
            flow(printed.is_ok())
        })?;
        printed?;
        Ok(Outcome::of(found > 0))
    }

    fn pattern(&self) -> Result<Pattern> {
        let patterns = self.listing.coding.read_all(&self.patterns)?;
        let place = match self.mode {
            Mode::Contains => Place::Anywhere,
            Mode::Begins => Place::Start,
            Mode::Ends => Place::End,
            Mode::Equals => Place::Whole,
            Mode::Regex | Mode::Edit | Mode::EditBin => return self.single(&patterns),
        };
        let texts: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
        Pattern::text(&texts, place, self.ignore_case, self.words)
    }

    /// The modes that take one pattern and define its letters themselves.
    fn single(&self, patterns: &[Vec<u8>]) -> Result<Pattern> {
        let refuse = |what: &str| {
            let mode = match self.mode {
                Mode::Regex => "regex",
                Mode::EditBin => "editbin",
                _ => "edit",
            };
            Error::new(Kind::Invalid, format!("--mode {mode} takes {what}"))
        };
        let [pattern] = patterns else {
            return Err(refuse("one pattern").remedy("in a regular expression write a|b"));
        };
        if self.ignore_case || self.words {
            return Err(refuse("neither --ignore-case nor --words")
                .remedy(r"in a regular expression write (?i) and \b"));
        }
        match (self.mode, str::from_utf8(pattern)) {
            (Mode::Regex, Ok(text)) => Pattern::regex(text),
            (Mode::Regex, Err(_)) => {
                Err(refuse("UTF-8 text").remedy(r"write other bytes as (?-u)\xHH"))
            }
            (Mode::EditBin, _) | (_, Err(_)) => Ok(Pattern::nearest_bytes(pattern)),
            (_, Ok(text)) => Ok(Pattern::nearest_text(text)),
        }
    }
}
