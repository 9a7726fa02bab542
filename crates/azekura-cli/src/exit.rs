//! Exit codes: what a script learns from a command without reading its words.
//!
//! Promises: one code per kind of error, and none of them ever changes its meaning. The table here
//! is the one that `--help` and the manual page print.
//! It does not know commands.

use std::fmt::Write as _;

use azekura::Kind;
/// The exit code of an error's kind: a suite of the bench reads those of the programs that it starts.
pub(crate) use azekura_bench::object::suite::code_of;

/// The code of arguments that were not understood.
pub(crate) const USAGE: u8 = 2;

/// How a command ended that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done, found, true.
    Yes,
    /// Not there, already there, no match: the answer is no.
    No,
    /// The command did its work and found damage.
    Damaged,
    /// A configuration was not understood, which was said already; nothing was done.
    Misunderstood,
}

impl Outcome {
    /// The answer yes or no.
    pub(crate) fn of(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }

    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Damaged => code_of(Kind::Corrupted),
            Self::Misunderstood => USAGE,
        }
    }
}

/// Every code and what it means, in order.
pub(crate) const CODES: [(u8, &str); 11] = [
    (0, "done; found; true"),
    (
        1,
        "no: the record or object is absent or present already, or nothing matched",
    ),
    (
        USAGE,
        "the arguments or the configuration were not understood",
    ),
    (3, "invalid: an argument or an input breaks a stated rule"),
    (4, "too large: a key or value is over the limit of the file"),
    (5, "full: the configured or physical space is used up"),
    (6, "locked: another process has the file open for writing"),
    (7, "mismatch: not an azekura file, or of a newer version"),
    (8, "corrupted: damage was found"),
    (9, "io: the system refused"),
    (
        10,
        "poisoned: an earlier failed write left the state unknown",
    ),
];

/// The table as text.
pub(crate) fn table() -> String {
    let mut text = String::from("Exit codes:\n");
    for (code, meaning) in CODES {
        let _ = writeln!(text, "  {code:>2}  {meaning}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_code_of_its_own_and_the_table_names_it() {
        for (kind, expected) in Kind::ALL.into_iter().zip(3..) {
            let (code, meaning) = CODES[usize::from(code_of(kind))];
            assert_eq!(code, expected);
            assert!(meaning.starts_with(kind.word()), "{meaning}");
        }
        assert_eq!(Outcome::Damaged.code(), code_of(Kind::Corrupted));
    }
}
