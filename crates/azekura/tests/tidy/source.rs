//! Rules over one source file: its doc, its bytes, its leftovers, its unsafe sites, its decoders.
//!
//! Each rule is a function from a path and a text to findings, `path:line: what is wrong`. A rule
//! reads nothing but its arguments, so that a planted violation in a string proves that it fires.

use super::text::{split, without_tests};

/// Where `unsafe` may stand, from the repository's root; a folder ends in a slash. `STYLE.md` states why.
const UNSAFE_HOMES: &[&str] = &[
    "crates/azekura/src/io/mmap.rs",
    "crates/azekura/src/io/mmap/",
    "crates/azekura/src/io/file_lock.rs",
    "crates/azekura/src/io/flight/ring.rs",
    "crates/azekura/src/format/checksum.rs",
    "crates/azekura/src/epoch/",
    "crates/azekura/src/index/",
    "crates/azekura/src/log/",
    "crates/azekura/src/slab/",
    // The one place where a place of the slab becomes a record.
    "crates/azekura/src/record/table.rs",
    "crates/azekura/src/record/memory/baby/",
    // Frames and words in raw memory.
    "crates/azekura/src/record/tree/cache.rs",
    "crates/azekura/src/record/tree/table.rs",
    // Slices of a mapped file that is never written.
    "crates/azekura/src/record/skip/blocks.rs",
    // A test whose allocator refuses.
    "crates/azekura/tests/refused.rs",
    // A test that frees slots of a slab.
    "crates/azekura/tests/room.rs",
    "crates/azekura-bench-compare/src/",
];

/// Most lines of prose at the top of a file; tables, drawings and numbered lists are not counted.
const DOC_LINES_MAX: usize = 15;
/// Fewest lines of any kind.
const DOC_LINES_MIN: usize = 3;

fn finding(path: &str, index: usize, what: &str) -> String {
    format!("{path}:{}: {what}", index + 1)
}

/// Every file opens with a module doc of three to fifteen lines.
pub(crate) fn module_doc(path: &str, text: &str) -> Vec<String> {
    let doc: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim_end)
        .collect();
    if doc.is_empty() {
        return vec![finding(
            path,
            0,
            "the file does not open with a module doc (`//!`)",
        )];
    }
    let (mut lines, mut prose) = (0, 0);
    let (mut fenced, mut listed) = (false, false);
    for line in doc
        .iter()
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
    {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        let item = line
            .split_once(". ")
            .is_some_and(|(n, _)| n.parse::<u32>().is_ok());
        listed = item || (listed && line.starts_with(' '));
        let drawn = fenced || line.starts_with("```") || line.starts_with('|');
        lines += usize::from(!line.is_empty());
        prose += usize::from(!line.is_empty() && !drawn && !listed);
    }
    let mut findings = Vec::new();
    if lines < DOC_LINES_MIN {
        let what = format!("the module doc has {lines} lines, {DOC_LINES_MIN} are the least");
        findings.push(finding(path, 0, &what));
    }
    if prose > DOC_LINES_MAX {
        let what =
            format!("the module doc has {prose} lines of prose, {DOC_LINES_MAX} are the most");
        findings.push(finding(path, 0, &what));
    }
    findings
}

/// ASCII only.
pub(crate) fn ascii(path: &str, text: &str) -> Vec<String> {
    let foreign = |line: &str| line.chars().find(|c| !c.is_ascii());
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(i, line)| foreign(line).map(|c| (i, c)))
        .map(|(i, c)| finding(path, i, &format!("not ASCII: {}", c.escape_unicode())))
        .collect()
}

/// No to-do marks, switched-off tests or assertions of nothing, in any text.
pub(crate) fn marks(path: &str, text: &str) -> Vec<String> {
    // Taken apart, so that this file does not carry what it looks for.
    const MARKS: &[&str] = &[
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("HA", "CK"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[", "ignore"),
        concat!("assert!(", "true)"),
    ];
    let mut findings = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for mark in MARKS.iter().filter(|mark| has_word(line, mark)) {
            findings.push(finding(path, i, &format!("left over: {mark}")));
        }
    }
    findings
}

/// Whether `word` stands in `line`, not as part of a longer word.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !(before.is_some_and(is_word) && word.starts_with(is_word)
            || after.is_some_and(is_word) && word.ends_with(is_word))
    })
}

/// No path of one machine and no host of a package registry, in any text.
pub(crate) fn places(path: &str, text: &str) -> Vec<String> {
    const PLACES: &[&str] = &[
        concat!("/wo", "rk/"),
        concat!("/t", "mp/"),
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("crates", ".io"),
        concat!("pypi", ".org"),
        concat!("npmjs", ".org"),
        concat!("deb.debian", ".org"),
        concat!("proxy.golang", ".org"),
        concat!("repo.maven", ".apache.org"),
    ];
    let mut findings = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for place in PLACES.iter().filter(|place| line.contains(**place)) {
            findings.push(finding(
                path,
                i,
                &format!("names a machine or a registry: {place}"),
            ));
        }
    }
    findings
}

/// No commented-out code: a plain comment does not read like a statement. A heuristic.
pub(crate) fn commented_out_code(path: &str, text: &str) -> Vec<String> {
    const OPENERS: &[&str] = &[
        "fn ", "if ", "for ", "while ", "match ", "impl ", "pub ", "loop ", "struct ", "enum ",
        "mod ", "} else ",
    ];
    let is_code = |comment: &str| {
        // What stands in back-quotes is quoted, not switched off.
        let plain: String = comment.split('`').step_by(2).collect();
        let plain = plain.trim();
        let statement = plain.ends_with(';')
            && (plain.starts_with("let ")
                || plain.starts_with("use ")
                || plain.starts_with("return")
                || plain.contains(" = ")
                || plain.ends_with(");"));
        let block = plain.ends_with('{') && OPENERS.iter().any(|word| plain.starts_with(word));
        statement || block || matches!(plain, "}" | "};" | "})" | "});") || plain.starts_with("#[")
    };
    let comments = split(text).comments;
    let lines = comments.lines().enumerate();
    lines
        .filter_map(|(i, line)| Some((i, line.trim().strip_prefix("//")?)))
        .filter(|(_, comment)| !comment.starts_with(['/', '!']) && is_code(comment))
        .map(|(i, _)| finding(path, i, "reads like commented-out code"))
        .collect()
}

/// `unsafe` only in its homes, each site with its argument: `SAFETY:` above a block or an impl,
/// `# Safety` in the doc of a function or trait.
pub(crate) fn unsafe_sites(path: &str, text: &str) -> Vec<String> {
    let parts = split(text);
    let comments: Vec<&str> = parts.comments.lines().collect();
    let code: Vec<&str> = parts.code.lines().collect();
    let home = UNSAFE_HOMES
        .iter()
        .any(|home| path == *home || home.ends_with('/') && path.starts_with(home));
    let mut findings = Vec::new();
    for (i, line) in code
        .iter()
        .enumerate()
        .filter(|(_, line)| has_word(line, "unsafe"))
    {
        if !home {
            findings.push(finding(
                path,
                i,
                "unsafe outside the files that may hold it",
            ));
            continue;
        }
        let after = line.split("unsafe").nth(1).unwrap_or_default().trim_start();
        let declares = ["fn ", "trait "].iter().any(|word| after.starts_with(word))
            || after.starts_with("extern") && has_word(after, "fn");
        let wanted = if declares { "# Safety" } else { "SAFETY:" };
        if !argued(&code, &comments, i, wanted) {
            findings.push(finding(path, i, &format!("unsafe without `{wanted}`")));
        }
    }
    findings
}

/// Whether `wanted` stands on the line, or in the comments directly above the statement it is in.
fn argued(code: &[&str], comments: &[&str], site: usize, wanted: &str) -> bool {
    if comments[site].contains(wanted) {
        return true;
    }
    let mut above = (0..site).rev().take_while(|i| {
        let line = code[*i].trim();
        !line.ends_with([';', '}']) || !comments[*i].trim().is_empty() && line.is_empty()
    });
    above.any(|i| comments[i].contains(wanted))
}

/// Files whose job is to decode bytes from outside.
pub(crate) fn is_decoder(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    path.starts_with("crates/")
        && path.contains("/src/")
        && (path.contains("/format/") || ["layout.rs", "text.rs", "message.rs"].contains(&name))
}

/// A decoder, or a module above it, denies indexing and unwrap. `around` are the texts of the file
/// and of the `mod.rs` files of the folders it is in.
pub(crate) fn decoder_lints(path: &str, around: &[&str]) -> Vec<String> {
    let denies = |lint: &str| {
        around.iter().map(|text| split(text).code).any(|code| {
            let mut attributes = code.split("#![").skip(1).map(|a| a.split(']').next());
            attributes.any(|a| {
                a.is_some_and(|a| {
                    (a.starts_with("deny") || a.starts_with("forbid")) && has_word(a, lint)
                })
            })
        })
    };
    let lints = ["indexing_slicing", "unwrap_used"];
    lints
        .iter()
        .filter(|lint| !denies(lint))
        .map(|lint| {
            finding(
                path,
                0,
                &format!("a decoder that does not deny `clippy::{lint}`"),
            )
        })
        .collect()
}

/// No drawers: files, folders and modules are named for what they hold.
pub(crate) fn drawers(path: &str, text: &str) -> Vec<String> {
    const DRAWERS: &[&str] = &[
        "util", "utils", "common", "misc", "helper", "helpers", "prelude",
    ];
    let mut findings = Vec::new();
    for part in path.split('/') {
        if DRAWERS.contains(&part.strip_suffix(".rs").unwrap_or(part)) {
            findings.push(finding(
                path,
                0,
                &format!("`{part}` is a drawer, not a name"),
            ));
        }
    }
    for (i, line) in split(text).code.lines().enumerate() {
        for name in DRAWERS
            .iter()
            .filter(|name| has_word(line, &format!("mod {name}")))
        {
            findings.push(finding(
                path,
                i,
                &format!("module `{name}` is a drawer, not a name"),
            ));
        }
    }
    findings
}

/// Only `io/` asks the system for storage: the simulated disk must see every byte that can be lost.
pub(crate) fn system_seam(path: &str, text: &str) -> Vec<String> {
    let Some(inside) = path.strip_prefix("crates/azekura/src/") else {
        return Vec::new();
    };
    if inside.starts_with("io/") || inside.starts_with("testkit/") || inside.ends_with("tests.rs") {
        return Vec::new();
    }
    let shipped = without_tests(&split(text).code);
    let mut findings = Vec::new();
    for (i, line) in shipped.lines().enumerate() {
        for name in ["std::fs", "std::process", "std::net"]
            .iter()
            .filter(|name| has_word(line, name))
        {
            findings.push(finding(path, i, &format!("`{name}` outside io/")));
        }
    }
    findings
}

#[test]
fn a_missing_a_short_and_a_long_module_doc_are_found() {
    assert_eq!(module_doc("a.rs", "use b;\n").len(), 1);
    assert_eq!(module_doc("a.rs", "//! One.\n\nuse b;\n").len(), 1);
    assert_eq!(
        module_doc("a.rs", "//! One.\n//! Two.\n//!\n//! Three.\n").len(),
        0
    );
    assert_eq!(module_doc("a.rs", &"//! Prose.\n".repeat(16)).len(), 1);
    let drawn = [
        "//! One.\n//! ```text\n",
        &"//! Drawing.\n".repeat(16),
        "//! ```\n",
    ]
    .concat();
    assert_eq!(module_doc("a.rs", &drawn).len(), 0);
    let table = "//! Three.\n//! More.\n".to_owned() + &"//! | 0 | 1 |\n".repeat(30);
    assert_eq!(module_doc("a.rs", &table).len(), 0);
    let list = "//! Three.\n//! More.\n".to_owned() + &"//! 1. Holds\n//!    always.\n".repeat(9);
    assert_eq!(module_doc("a.rs", &list).len(), 0);
}

#[test]
fn a_letter_outside_ascii_is_found() {
    assert_eq!(
        ascii("a.rs", "ok\ncaf\u{e9}\n"),
        ["a.rs:2: not ASCII: \\u{e9}"]
    );
}

#[test]
fn marks_are_found_and_words_around_them_are_not() {
    let text = [
        "let a; // TO",
        "DO: later\nlet TO",
        "DOS = 1;\n#[ig",
        "nore]\nfn t() {}\n",
    ]
    .concat();
    assert_eq!(marks("a.rs", &text).len(), 2);
}

#[test]
fn a_path_of_one_machine_and_a_registry_are_found() {
    let text = ["see /wo", "rk/main\nfrom crates", ".io\nin our work/main\n"].concat();
    assert_eq!(places("a.md", &text).len(), 2);
}

#[test]
fn a_switched_off_statement_is_found_and_prose_is_not() {
    let off = "fn a() {\n    // let x = 1;\n    // go(x);\n    // if x {\n    // }\n}\n";
    assert_eq!(commented_out_code("a.rs", off).len(), 4);
    let prose = "// After `sync();` nothing is lost;\n// if it returned {ok}, that is.\nlet a = \"// b();\";";
    assert_eq!(commented_out_code("a.rs", prose), Vec::<String>::new());
}

#[test]
fn unsafe_is_found_where_it_may_not_be_and_where_it_is_not_argued() {
    let home = "crates/azekura/src/index/bucket.rs";
    let block = "let a =\n    unsafe { b() };\n";
    assert_eq!(unsafe_sites("crates/azekura/src/engine.rs", block).len(), 1);
    assert_eq!(unsafe_sites(home, block).len(), 1);
    assert_eq!(
        unsafe_sites(home, &format!("// SAFETY: c\n// more\n{block}")).len(),
        0
    );
    assert_eq!(
        unsafe_sites(home, &format!("// SAFETY: c\nlet d = 1;\n{block}")).len(),
        1
    );
    assert_eq!(
        unsafe_sites(home, "/// Does.\npub unsafe fn a() {}\n").len(),
        1
    );
    let fine = "/// Does.\n///\n/// # Safety\n/// - b\n#[inline]\npub unsafe fn a() {}\n";
    assert_eq!(unsafe_sites(home, fine).len(), 0);
    assert_eq!(
        unsafe_sites(
            "a.rs",
            "let a = \"unsafe\"; // unsafe\n#[expect(unsafe_code)]"
        )
        .len(),
        0
    );
}

#[test]
fn a_decoder_without_its_lints_is_found() {
    let path = "crates/azekura/src/record/hash/layout.rs";
    assert!(is_decoder(path) && !is_decoder("crates/azekura/src/record/hash/put.rs"));
    assert_eq!(
        decoder_lints(path, &["fn a() {}", "#![warn(clippy::unwrap_used)]"]).len(),
        2
    );
    let denies = "#![deny(clippy::indexing_slicing, clippy::unwrap_used)]";
    assert_eq!(decoder_lints(path, &["fn a() {}", denies]).len(), 0);
}

#[test]
fn a_drawer_is_found_as_a_file_a_folder_and_a_module() {
    assert_eq!(drawers("src/util.rs", "").len(), 1);
    assert_eq!(drawers("src/common/a.rs", "").len(), 1);
    assert_eq!(
        drawers("src/a.rs", "pub mod helpers;\nmod miscellany;\n").len(),
        1
    );
}

#[test]
fn a_system_call_outside_io_is_found_and_in_tests_it_is_not() {
    let text = "use std::fs::File;\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
    assert_eq!(
        system_seam("crates/azekura/src/log/append.rs", text).len(),
        1
    );
    assert_eq!(
        system_seam("crates/azekura/src/io/file/mod.rs", text).len(),
        0
    );
}
