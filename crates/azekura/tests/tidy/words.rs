//! Words that the field has another term for, and that leave the project.
//!
//! A reader must be able to search for a word, so each thing has the field's name for it. A retired word may stand nowhere that
//! is not listed here, and no more often than is listed: the numbers only shrink, and a word at 0 is gone for good. Names are
//! taken apart at underscores no further than a reader would search: `mark_dead` is one word.
//!
//! It does not know which of the remaining places is next.

use std::collections::BTreeMap;

/// Retired words, what to write instead, and how often they may still stand in sources and documents.
const RETIRED: &[(&str, &str, usize)] = &[
    ("approach", "prefetch, locate", 0),
    ("are said", "(active voice)", 0),
    ("are told", "(active voice)", 0),
    ("at large", "slow path", 0),
    ("behind", "after, past", 39),
    ("bell", "notify, wake", 0),
    ("beside", "next to, besides, during", 1),
    ("brief", "critical section", 0),
    ("briefly", "critical section", 0),
    ("bring in", "load", 0),
    ("bring_in", "load", 0),
    ("bring_near", "prefetch", 0),
    ("brought in", "loaded", 0),
    ("brought near", "prefetched", 0),
    ("buried", "marked dead", 0),
    ("bury", "mark_dead", 0),
    ("densen", "compact", 0),
    ("figures are asked for", "address of metrics", 0),
    ("glance", "probe", 0),
    ("go on", "continue, resume", 0),
    ("go_on", "resume", 0),
    ("goes on", "continues, resumes", 0),
    ("going on", "continuing", 0),
    ("grip", "guard", 0),
    ("hand-written room", "fallible allocation", 0),
    ("hear", "observe", 0),
    ("hears", "observes", 0),
    ("is asked", "(active voice)", 0),
    ("is said", "(active voice)", 0),
    ("is told", "(active voice)", 0),
    ("is_past", "grace period elapsed", 0),
    ("keeper", "background worker", 0),
    ("left on the device", "disk free", 0),
    ("mend", "repair, rewrite", 0),
    ("mended", "repaired, rewritten", 0),
    ("mends", "repairs", 0),
    ("nets", "test suites, by kind", 0),
    ("nobody", "no thread, no reader", 0),
    ("pack", "packed extent, clean", 0),
    ("put down", "release", 0),
    ("rang", "was woken", 0),
    ("relief", "emergency cleaning", 0),
    ("right behind", "directly after", 0),
    ("rung", "woken", 0),
    ("said", "stated, recorded", 0),
    ("say", "state", 0),
    ("says", "states, records", 0),
    ("settle", "low-water mark", 0),
    ("settled", "low-water mark, outcome", 1),
    ("shelf", "table", 0),
    ("stride", "allocation extent", 0),
    ("stripe", "partition", 0),
    ("stripes", "partitions", 0),
    ("tap", "observer", 0),
    ("tell", "report, distinguish", 0),
    ("tells", "reports", 0),
    ("the long way", "slow path", 0),
    ("thin", "sparse", 0),
    ("time to answer", "latency", 0),
    ("told", "reported", 0),
    (
        "trusted",
        "coherent after a process crash; of TLS and paths it stays",
        4,
    ),
    ("untrue", "mismatched", 0),
    ("void", "abort", 1),
    ("voided", "aborted", 0),
    ("was said", "(active voice)", 0),
    ("was told", "(active voice)", 0),
    ("weave", "schedule exploration", 0),
    ("went on", "continued", 0),
    ("whoever", "(name the thread or caller)", 0),
];

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// How often `word` stands in `text` as a word by itself, whatever its case.
fn count(text: &str, word: &str) -> usize {
    let text = text.to_ascii_lowercase();
    let bytes = text.as_bytes();
    text.match_indices(word)
        .filter(|(at, _)| {
            let before = at.checked_sub(1).and_then(|at| bytes.get(at));
            let after = bytes.get(at + word.len());
            ![before, after]
                .into_iter()
                .flatten()
                .any(|byte| is_word_byte(*byte))
        })
        .count()
}

/// Words that stand more often in all of these texts than is listed, with the files that have most of them.
pub(crate) fn retired<'t>(texts: impl Iterator<Item = (&'t str, &'t str)>) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    for (path, text) in texts {
        for (word, ..) in RETIRED {
            let times = count(text, word);
            if times > 0 {
                found.entry(*word).or_default().push((times, path));
            }
        }
    }
    let mut findings = Vec::new();
    for (word, instead, most) in RETIRED {
        let mut places = found.remove(word).unwrap_or_default();
        let times: usize = places.iter().map(|(times, _)| times).sum();
        if times > *most {
            places.sort_unstable_by(|a, b| b.cmp(a));
            places.truncate(5);
            findings.push(format!(
                "`{word}` stands {times} times, at most {most} are left to rewrite; write {instead}: {places:?}"
            ));
        }
    }
    findings
}

#[test]
fn a_retired_word_is_found_by_itself_only() {
    let text = "The Keeper; a bell_ringer, timekeeper, keeper. keeper_of";
    assert_eq!(count(text, "keeper"), 2);
    assert_eq!(count("it is told. IS TOLD, this told", "is told"), 2);
    let planted = "brief ".repeat(3);
    let findings = retired([("a.rs", planted.as_str()), ("b.rs", "briefly")].into_iter());
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].contains("`brief` stands 3 times") && findings[0].contains("a.rs"));
}
