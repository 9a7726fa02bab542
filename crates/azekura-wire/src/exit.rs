//! The exit codes of the programs: what a script learns from a command without reading its output.
//!
//! Promises: each kind of error has its own code, and no code ever changes its meaning. `--help`, the manual page and
//! the documents print this table. It does not know commands.

use azekura::Kind;

/// The code of arguments or a configuration that cannot be understood.
pub const USAGE: u8 = 2;

/// Every code and its meaning, in order.
pub const CODES: [(u8, &str); 13] = [
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
    (
        6,
        "locked: another process has the file open for writing, or listens on the address",
    ),
    (7, "mismatch: not an azekura file, or of a newer version"),
    (8, "corrupted: damage was found"),
    (9, "io: the system refused"),
    (
        10,
        "poisoned: an earlier failed write left the state unknown",
    ),
    (11, "conflict: others changed what a transaction rests on"),
    (12, "too old: a snapshot held too much, and was ended"),
];

/// The exit code of an error of `kind`.
pub const fn code_of(kind: Kind) -> u8 {
    match kind {
        Kind::Invalid => 3,
        Kind::TooLarge => 4,
        Kind::Full => 5,
        Kind::Locked => 6,
        Kind::Mismatch => 7,
        Kind::Corrupted => 8,
        Kind::Io => 9,
        Kind::Poisoned => 10,
        Kind::Conflict => 11,
        Kind::TooOld => 12,
    }
}

/// The kind of error that a process reports by its exit code; `Io` if the code is that of no kind.
pub fn kind_of(code: Option<i32>) -> Kind {
    let is = |kind: &Kind| code == Some(code_of(*kind).into());
    Kind::ALL.into_iter().find(is).unwrap_or(Kind::Io)
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
    }

    #[test]
    fn a_kind_comes_back_from_its_code_and_other_codes_are_io() {
        for kind in Kind::ALL {
            assert_eq!(kind_of(Some(code_of(kind).into())), kind);
        }
        for other in [None, Some(0), Some(2), Some(13), Some(-1)] {
            assert_eq!(kind_of(other), Kind::Io);
        }
    }
}
