//! How much a test suite tries, and the check that it tried enough.
//!
//! A suite names the number of states, cases or rounds of its full run. `make test` runs a tenth of it, so that a
//! developer waits minutes; `SUITES=half` runs half of it, as the check of a change does, and `SUITES=full` all of it. Suites
//! whose states take long run a third of it in `make test`, so that the full run ends in time; suites of few rounds run more.
//! A suite that tried fewer states than it must fails: a suite that silently tries less proves less.

use std::fmt::Debug;
use std::io::Write;

use super::concurrent::tried;

/// This run tries one of at most so many parts of a full run, by `SUITES`.
///
/// Panics if the variable holds an unknown word: a misspelt one would quietly run a tenth.
fn parts_max() -> u64 {
    let word = std::env::var("SUITES").unwrap_or_default();
    match word.as_str() {
        "full" => 1,
        "half" => 2,
        "tenth" | "" => 10,
        _ => panic!("SUITES is {word:?}, expected \"full\", \"half\" or \"tenth\""),
    }
}

/// Whether `SUITES=full` asks for the full run.
pub fn is_full() -> bool {
    parts_max() == 1
}

/// The part of `full` that this run tries: all of it, half of it, or a tenth, at least 1.
pub fn share(full: u64) -> u64 {
    part_of(full, 10, parts_max())
}

/// The part of `full` that this run tries: all of it, half of it, or a third, at least 1. For suites whose states take long.
pub fn third(full: u64) -> u64 {
    part_of(full, 3, parts_max())
}

fn part_of(full: u64, parts: u64, parts_max: u64) -> u64 {
    (full / parts.min(parts_max)).max(1)
}

/// Prints `tried: {count} {what}` and panics unless `count` reaches the share of `full_least` that this run must try.
pub fn tried_at_least(count: u64, full_least: u64, what: &str) {
    demand(count, share(full_least), what);
}

/// Prints `tried: {count} {what}` and panics unless `count` reaches `least`, which is the same in every run or chosen by the
/// caller.
pub fn demand(count: u64, least: u64, what: &str) {
    tried(&format!("{count} {what} (at least {least})"));
    assert!(
        count >= least,
        "tried {count} {what}, must try at least {least}"
    );
}

/// As `tried_at_least`, of a suite that does not run a tenth of its full rounds: it must have tried `each_least` in each of its
/// `rounds`, on average.
pub fn tried_in_rounds(count: u64, rounds: u64, each_least: u64, what: &str) {
    demand(count, rounds * each_least, what);
}

/// Gives figures a sum, field by field.
macro_rules! summed {
    ($figures:ty: $($field:ident),*) => {
        impl $figures {
            /// The sum, field by field.
            #[must_use]
            pub fn plus(self, other: Self) -> Self {
                Self { $($field: self.$field + other.$field),* }
            }
        }
    };
}
pub(super) use summed;

/// A case under way. If the test panics while it is held, its seed and what was drawn for it are printed.
#[must_use]
pub struct Case(String);

/// The case of this seed, for which `drawn` was drawn.
pub fn case(seed: u64, drawn: &impl Debug) -> Case {
    Case(format!("seed {seed}: {drawn:?}"))
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The failure itself is reported by the panic.
            let _ = writeln!(std::io::stderr(), "failed case: {}", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_all_or_a_part_and_never_nothing() {
        let of = |parts_max| {
            [(70, 10), (70, 3), (3, 10)].map(|(full, parts)| part_of(full, parts, parts_max))
        };
        assert_eq!(of(1), [70, 70, 3]);
        assert_eq!(of(2), [35, 35, 1]);
        assert_eq!(of(10), [7, 23, 1]);
    }

    #[test]
    fn a_suite_that_tried_too_little_fails() {
        tried_at_least(100, 100, "cases of this test");
        let panicked = std::panic::catch_unwind(|| tried_at_least(0, 100, "cases of this test"));
        assert!(panicked.is_err());
        tried_in_rounds(14, 2, 7, "cases of this test");
        let panicked = std::panic::catch_unwind(|| tried_in_rounds(13, 2, 7, "cases"));
        assert!(panicked.is_err());
    }
}
