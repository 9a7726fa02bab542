//! Rules over documents: what they name exists.
//!
//! Links and back-quoted paths name files of this repository; back-quoted types in
//! `ARCHITECTURE.md` stand in the source; commands in the README are subcommands of the binary; what the
//! docs of sources name by its module, the module defines.
//! Fenced blocks are not read for paths, so a map of the tree is written as a table. What is a path
//! is guessed from its form: letters, digits, `_`, `-`, `.` and `/`, with a slash or a known ending.

use super::source::has_word;

/// Endings that make a bare word a file name.
const ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".lock", ".sh", ".yml", ".py", ".cc"];

/// Lines outside fenced blocks, with their indexes.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    })
}

fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_path(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let word = span.chars().all(plain) && span.chars().any(|c| c.is_ascii_alphabetic());
    // What a build makes is not there before it.
    let built = span.starts_with("target/");
    let rooted = span.starts_with('/') || span.starts_with('-') || built;
    let formed = span.contains('/') || ENDINGS.iter().any(|ending| span.ends_with(ending));
    word && formed && !rooted
}

fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with(['#', '<']));
    local.map(|target| target.split('#').next().unwrap_or(target))
}

/// Links and paths that lead nowhere. `files` are all files of the repository, from its root.
pub(crate) fn paths(path: &str, text: &str, files: &[String]) -> Vec<String> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    for (i, line) in prose(text) {
        for link in links(line).filter(|link| !exists(&join(folder, link), files)) {
            findings.push(format!(
                "{path}:{}: the link to {link} leads nowhere",
                i + 1
            ));
        }
        for span in quoted(line).filter(|span| is_path(span)) {
            // `io/mmap.rs` is of the library, `src/main.rs` of a crate, `layout.rs` of any.
            let anywhere = format!("/{}", span.trim_end_matches('/'));
            let suffix = files
                .iter()
                .any(|file| file.ends_with(&anywhere) || file.contains(&format!("{anywhere}/")));
            if !suffix && !exists(&join(folder, span), files) && !exists(span, files) {
                findings.push(format!("{path}:{}: there is no `{span}`", i + 1));
            }
        }
    }
    findings
}

fn exists(path: &str, files: &[String]) -> bool {
    let path = path.trim_end_matches('/');
    path.is_empty()
        || files
            .iter()
            .any(|f| f == path || f.starts_with(&format!("{path}/")))
}

/// `relative` as seen from `folder`, without dots.
fn join(folder: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Types in back-quotes that no code knows. `code` is the code of all sources, without comments.
pub(crate) fn types(path: &str, text: &str, code: &str) -> Vec<String> {
    let is_type = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_alphanumeric())
            && word.contains(|c: char| c.is_ascii_lowercase())
    };
    let mut findings = Vec::new();
    for (i, line) in prose(text) {
        let spans =
            quoted(line).filter(|span| !span.contains(['.', '/', ' ']) && *span != "Makefile");
        for word in
            spans.flat_map(|span| span.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        {
            if is_type(word) && !has_word(code, word) {
                findings.push(format!("{path}:{}: no type `{word}` in the source", i + 1));
            }
        }
    }
    findings
}

/// Modules and types that are not defined here.
const FOREIGN: &[&str] = &["std", "core", "alloc", "i64", "u32", "u64", "usize"];

/// Back-quoted names in the docs of a source, of the form `module::item`, that the module does not define. `sources` are the
/// path and the code of each.
pub(crate) fn items(path: &str, text: &str, sources: &[(String, String)]) -> Vec<String> {
    let mut findings = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if !line.starts_with("//!") && !line.starts_with("///") {
            continue;
        }
        let is_name = |span: &&str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
            span.contains("::") && span.chars().all(plain)
        };
        for span in quoted(line).filter(is_name) {
            let parts: Vec<&str> = span
                .split("::")
                .filter(|part| !["crate", "self", "super"].contains(part))
                .collect();
            let is_missing = |pair: &[&str]| {
                // Items of types and traits are not looked for.
                pair[0].starts_with(|c: char| c.is_ascii_lowercase())
                    && !defines(pair[0], pair[1], sources)
            };
            if !parts.first().is_some_and(|part| FOREIGN.contains(part))
                && parts.windows(2).any(is_missing)
            {
                findings.push(format!("{path}:{}: there is no `{span}`", i + 1));
            }
        }
    }
    findings
}

/// Whether a module or crate of this name has a module or an item of that one, or exports one.
fn defines(module: &str, item: &str, sources: &[(String, String)]) -> bool {
    const KINDS: &[&str] = &[
        "fn",
        "struct",
        "enum",
        "trait",
        "mod",
        "const",
        "static",
        "type",
        "macro_rules!",
    ];
    sources.iter().any(|(path, code)| {
        let path = path.trim_end_matches(".rs").replace('-', "_");
        let mut names = path.split('/').skip_while(|name| *name != module);
        if names.next().is_none() {
            return false;
        }
        let is_export = |statement: &str| {
            let words = statement.trim_start();
            words.starts_with("pub") && has_word(words, "use") && has_word(words, item)
        };
        names.any(|name| name == item)
            || KINDS
                .iter()
                .any(|kind| has_word(code, &format!("{kind} {item}")))
            || code.split(';').any(|statement| {
                let at = statement.rfind("pub");
                at.is_some_and(|at| is_export(&statement[at..]))
            })
    })
}

/// Subcommands a document calls that the binary does not have. `known` are its subcommands.
pub(crate) fn subcommands(path: &str, text: &str, known: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut fenced = false;
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let spans: Vec<&str> = if fenced {
            vec![line]
        } else {
            quoted(line).collect()
        };
        for span in spans {
            let span = span.trim().trim_start_matches("$ ");
            let called = ["azekura ", "cargo run --release -- "]
                .iter()
                .find_map(|program| span.strip_prefix(program)?.split_whitespace().next())
                .filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
                .filter(|word| !word.starts_with('-'));
            if let Some(word) = called.filter(|word| !known.iter().any(|name| name == word)) {
                findings.push(format!("{path}:{}: no subcommand `{word}`", i + 1));
            }
        }
    }
    findings
}

#[test]
fn a_dead_link_and_a_dead_path_are_found() {
    let files = ["docs/a.md", "README.md", "crates/azekura/src/io/mmap.rs"].map(str::to_owned);
    let text = "[a](a.md#part) [b](../README.md) [c](c.md) [d](https://example.org/x)\n\
                `io/mmap.rs`, `mmap.rs`, `crates/azekura/`, `io/gone.rs`, `gone.rs`, `cargo test`, `/proc/x`, `target/release`\n\
                ```\n`gone.rs`\n```\n";
    let found = paths("docs/a.md", text, &files);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("c.md") && found[1].contains("io/gone.rs"));
}

#[test]
fn a_type_that_is_gone_is_found() {
    let found = types(
        "ARCHITECTURE.md",
        "`Storage`, `Gone::new`, `README.md`, `Makefile`, `u8`",
        "trait Storage {}",
    );
    assert_eq!(found, ["ARCHITECTURE.md:1: no type `Gone` in the source"]);
}

#[test]
fn a_subcommand_that_is_gone_is_found() {
    let text = "Run `azekura get F K` or `azekura gone`.\n```\ncargo run --release -- tour\n$ azekura lost x\n```\n`azekura --help`\n";
    let found = subcommands("README.md", text, &["get".to_owned(), "tour".to_owned()]);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn an_item_that_its_module_does_not_define_is_found() {
    let sources = [
        ("crates/a-b/src/index/mod.rs", "pub fn look() {}"),
        ("crates/a-b/src/epoch.rs", "pub use inner::{Pin, pin};"),
    ];
    let sources = sources.map(|(path, code)| (path.to_owned(), code.to_owned()));
    let text = "//! `index::look`, `crate::epoch::Pin`, `a_b::index`, `std::fmt`, `Pin::new`\n\
                /// `index::epoch`\n/// [`gone::look`]\nlet x = 1; // `index::gone`\n";
    let found = items("x.rs", text, &sources);
    assert_eq!(
        found,
        [
            "x.rs:2: there is no `index::epoch`",
            "x.rs:3: there is no `gone::look`"
        ]
    );
}
