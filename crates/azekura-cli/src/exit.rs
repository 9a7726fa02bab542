//! How a command ends: its outcome, and the table of exit codes for `--help` and the manual page.
//!
//! The codes themselves are `azekura-wire`'s, where every program has them.
//! It does not know commands.

use std::fmt::Write as _;

use azekura::Kind;
use azekura_wire::exit::{CODES, USAGE, code_of};

/// How a command ended that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done, found, true.
    Yes,
    /// Not there, already there, no match: the answer is no.
    No,
    /// The command did its work and found damage.
    Damaged,
    /// The configuration is invalid, which was reported already; nothing was done.
    Misunderstood,
}

impl Outcome {
    /// The answer yes or no.
    pub(crate) fn of(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }

    /// What was looked at is whole, or damaged.
    pub(crate) fn of_whole(is_whole: bool) -> Self {
        if is_whole { Self::Yes } else { Self::Damaged }
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

/// The table as text.
pub(crate) fn table() -> String {
    let mut text = String::from("Exit codes:\n");
    for (code, meaning) in CODES {
        let _ = writeln!(text, "  {code:>2}  {meaning}");
    }
    text
}
