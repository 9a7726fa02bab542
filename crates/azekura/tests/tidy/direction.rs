//! The direction of imports: a row of the table below imports only rows beneath it.
//!
//! Cells of a row do not import one another, record engines do not import one another but for one that is made of another, and nothing
//! but the test bench imports the test bench; test modules may import anything. Paths are read from
//! the code (`crate::..` and `super::..`, grouped or not), wherever they stand. The same holds
//! between crates, by their manifests.
//!
//! An item is imported from where it is defined: a re-export at the crate's root is above everybody.

use super::text::{split, without_tests};

/// Rows from the top; in a row, cells; in a cell, modules.
const ROWS: &[&[&[&str]]] = &[
    &[&["lib", "open", "db", "parameters", "multimap", "shard"]],
    &[&["record"], &["object"], &["block"]],
    &[&["kernel"]],
    &[
        &["engine", "verbs", "range"],
        &["log"],
        &["index"],
        &["slab"],
        &["node"],
    ],
    &[
        &["format"],
        &["io"],
        &["epoch", "counter", "worker"],
        &["queue"],
        &["order"],
    ],
    &[&["error", "room", "damage", "size"], &["explore"]],
];

const ENGINES: &[&str] = &["hash", "tree", "skip", "memory", "cache", "shared"];

/// An engine, and the one of which it is made: pending edits of a sorted file stand in an ordered store in memory.
const MADE_OF: &[(&str, &str)] = &[("skip", "memory")];

/// What a crate of the workspace may depend upon within it.
const CRATES: &[(&str, &[&str])] = &[
    ("azekura", &["azekura"]),
    ("azekura-wire", &["azekura"]),
    ("azekura-server", &["azekura", "azekura-wire"]),
    ("azekura-bench", &["azekura", "azekura-wire"]),
    (
        "azekura-bench-compare",
        &["azekura", "azekura-wire", "azekura-bench"],
    ),
    (
        "azekura-cli",
        &["azekura", "azekura-wire", "azekura-server", "azekura-bench"],
    ),
];

/// Row and cell of a module at the crate's root.
fn place(module: &str) -> Option<(usize, usize)> {
    ROWS.iter().enumerate().find_map(|(row, cells)| {
        let cell = cells.iter().position(|cell| cell.contains(&module))?;
        Some((row, cell))
    })
}

/// Imports of a file of the library that go upward or sideways.
pub(crate) fn imports(path: &str, text: &str) -> Vec<String> {
    let Some(inside) = path.strip_prefix("crates/azekura/src/") else {
        return Vec::new();
    };
    let module: Vec<&str> = inside
        .trim_end_matches(".rs")
        .split('/')
        .filter(|part| !["mod", "lib"].contains(part))
        .collect();
    if module.first() == Some(&"testkit") || module.contains(&"tests") {
        return Vec::new();
    }
    let code = without_tests(&split(text).code);
    let mut findings = Vec::new();
    for (line, target) in targets(&code, &module) {
        if let Some(what) = verdict(&module, &target) {
            findings.push(format!("{path}:{}: {what}", line + 1));
        }
    }
    findings
}

fn verdict(module: &[&str], target: &[String]) -> Option<String> {
    let from = module.first().copied().unwrap_or("lib");
    let to = target.first()?.as_str();
    if to == "testkit" {
        return Some(format!("`{from}` imports the test bench"));
    }
    let Some(at) = place(from) else {
        return Some(format!(
            "module `{from}` is not in the table of rows (tests/tidy/direction.rs)"
        ));
    };
    let Some(goal) = place(to) else {
        return Some(format!(
            "`{from}` imports `{to}` from the crate's root; import it from its module"
        ));
    };
    if goal.0 < at.0 {
        return Some(format!("`{from}` imports `{to}`, which is above it"));
    }
    if goal.0 == at.0 && goal.1 != at.1 {
        return Some(format!("`{from}` imports `{to}`, which is in the same row"));
    }
    if from == "record" && to == "record" {
        let own = module.get(1).filter(|name| ENGINES.contains(name))?;
        let other = target
            .get(1)
            .filter(|name| ENGINES.contains(&name.as_str()))?;
        let may = own == other || MADE_OF.contains(&(own, other.as_str()));
        return (!may).then(|| format!("engine `{own}` imports engine `{other}`"));
    }
    None
}

/// Each path named in `code` of `module`, from the crate's root, with its line.
fn targets(code: &str, module: &[&str]) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    for (at, head) in code
        .match_indices("crate::")
        .chain(code.match_indices("super::"))
    {
        let before = code[..at].chars().next_back();
        // The second `super` of a chain is read with the first.
        if before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let mut rest = &code[at..];
        let mut base: Vec<String> = module.iter().map(|part| (*part).to_owned()).collect();
        if head == "crate::" {
            base.clear();
            rest = &rest[head.len()..];
        }
        while let Some(tail) = rest.strip_prefix("super::") {
            base.pop();
            rest = tail;
        }
        let line = code[..at].matches('\n').count();
        let mut leaves = Vec::new();
        tree(&mut rest, &base, &mut leaves);
        found.extend(leaves.into_iter().map(|leaf| (line, leaf)));
    }
    found
}

/// Reads one use tree from the front of `rest` and adds its leaves, each after `base`.
fn tree(rest: &mut &str, base: &[String], leaves: &mut Vec<Vec<String>>) {
    let mut path = base.to_vec();
    loop {
        *rest = rest.trim_start();
        if let Some(tail) = rest.strip_prefix('{') {
            *rest = tail;
            while !rest.is_empty() {
                *rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
                if let Some(tail) = rest.strip_prefix('}') {
                    *rest = tail;
                    break;
                }
                let left = rest.len();
                tree(rest, &path, leaves);
                if let Some(tail) = rest.trim_start().strip_prefix("as ") {
                    *rest = tail
                        .trim_start()
                        .trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
                }
                if rest.len() == left {
                    return;
                }
            }
            return;
        }
        let len = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        if len == 0 {
            *rest = rest.strip_prefix('*').unwrap_or(rest);
            break;
        }
        if &rest[..len] != "self" {
            path.push(rest[..len].to_owned());
        }
        *rest = &rest[len..];
        let Some(tail) = rest.strip_prefix("::") else {
            break;
        };
        *rest = tail;
    }
    leaves.push(path);
}

/// Dependencies between the crates of the workspace that the table does not have.
pub(crate) fn crates(path: &str, manifest: &str) -> Vec<String> {
    let field = |line: &str| {
        line.split_once('=')
            .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
    };
    let name = manifest
        .lines()
        .filter_map(field)
        .find(|(key, _)| key == "name");
    let Some((_, name)) = name else {
        return Vec::new();
    };
    let name = name.trim_matches('"');
    let Some((_, allowed)) = CRATES.iter().find(|(known, _)| *known == name) else {
        return vec![format!(
            "{path}:1: crate `{name}` is not in the table of crates (tests/tidy/direction.rs)"
        )];
    };
    let mut findings = Vec::new();
    for (i, line) in manifest.lines().enumerate() {
        let Some((dependency, _)) = field(line).filter(|(_, value)| value.contains("path = \""))
        else {
            continue;
        };
        let dependency = dependency.split('.').next().unwrap_or_default();
        if !allowed.contains(&dependency) {
            findings.push(format!(
                "{path}:{}: `{name}` depends on `{dependency}`",
                i + 1
            ));
        }
    }
    findings
}

#[test]
fn an_import_from_above_or_the_same_row_or_the_root_is_found() {
    let io = |text: &str| imports("crates/azekura/src/io/file/mod.rs", text).len();
    assert_eq!(
        io("use crate::error::{Error, Result};\nuse super::Map;\n"),
        0
    );
    assert_eq!(io("use crate::engine::Engine;"), 1);
    assert_eq!(io("use crate::format::frame::Frame;"), 1);
    assert_eq!(io("use crate::Error;"), 1);
    assert_eq!(
        io("use crate::{error::{self, Kind as K}, log::{append::*, Log}};"),
        2
    );
    assert_eq!(io("fn a() { super::super::record::hash::b() }"), 1);
    assert_eq!(
        io("// use crate::engine::Engine;\nlet a = \"crate::engine\";"),
        0
    );
}

#[test]
fn engines_do_not_import_one_another_nor_anybody_the_test_bench() {
    let hash = |text: &str| imports("crates/azekura/src/record/hash/put.rs", text).len();
    assert_eq!(
        hash("use crate::record::hash::layout::A;\nuse super::get;\nuse crate::log::Log;"),
        0
    );
    assert_eq!(hash("use crate::record::tree::Node;"), 1);
    let skip = |text: &str| imports("crates/azekura/src/record/skip/db/put.rs", text).len();
    assert_eq!(skip("use crate::record::memory::baby::BabyDb;"), 0);
    assert_eq!(skip("use crate::record::hash::HashDb;"), 1);
    assert_eq!(hash("use crate::record::memory::baby::BabyDb;"), 1);
    assert_eq!(hash("use super::super::tree::Node;"), 1);
    assert_eq!(hash("use crate::testkit::Random;"), 1);
    assert_eq!(
        hash("#[cfg(test)]\nmod tests {\n    use crate::testkit::Random;\n}"),
        0
    );
    assert_eq!(
        imports(
            "crates/azekura/src/testkit/crash.rs",
            "use crate::record::hash::A;"
        )
        .len(),
        0
    );
    assert_eq!(
        imports("crates/azekura/src/stray.rs", "use crate::error::A;").len(),
        1
    );
}

#[test]
fn a_crate_that_depends_upward_is_found() {
    let library = "[package]\nname = \"azekura\"\n[dependencies]\nazekura-cli = { path = \"../azekura-cli\" }\n";
    assert_eq!(crates("Cargo.toml", library).len(), 1);
    let bench = "[package]\nname = \"azekura-bench\"\n[dependencies]\nazekura = { path = \"../azekura\" }\n";
    assert_eq!(crates("Cargo.toml", bench).len(), 0);
}
