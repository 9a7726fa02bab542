//! Types of one name: a type that other files can name has its name alone in its crate, or `ARCHITECTURE.md` states why not.
//!
//! Two types of one name send a reader to the wrong file. Private types are left out: they are met in their own file only.
//! So are modules of tests. The list in `ARCHITECTURE.md` may not name what is no namesake any more.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{split, without_tests};

/// The section of `ARCHITECTURE.md` that lists them, in back quotes.
const SECTION: &str = "## Types of one name";

/// The types that `code` defines at the front of a line, and that other files can name.
fn defined(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let rest = line.strip_prefix("pub")?;
        let rest = match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => rest,
        };
        let (kind, rest) = rest.trim_start().split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "union", "type"].contains(&kind);
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        is_type.then(|| &rest[..end.unwrap_or(rest.len())])
    })
}

/// The names in the section of `architecture`.
fn listed(architecture: &str) -> BTreeSet<&str> {
    let section = architecture
        .split_once(SECTION)
        .map_or("", |(_, rest)| rest.split("\n## ").next().unwrap_or(""));
    let quoted = section
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted
        .filter(|span| span.chars().all(char::is_alphanumeric))
        .collect()
}

/// Names that several files of a crate give to types and that are not listed, and listed ones that are of one type alone. `files`
/// are pairs of a path and a text.
pub(crate) fn namesakes(files: &[(&str, &str)], architecture: &str) -> Vec<String> {
    let mut found: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for (path, text) in files {
        let Some((of, _)) = path.split_once("/src/") else {
            continue;
        };
        for name in defined(&without_tests(&split(text).code)) {
            found.entry((of, name.to_owned())).or_default().push(path);
        }
    }
    found.retain(|_, paths| paths.len() > 1);
    let listed = listed(architecture);
    let unlisted = found
        .iter()
        .filter(|((_, name), _)| !listed.contains(&**name));
    let mut findings: Vec<String> = unlisted
        .map(|((_, name), paths)| format!("several types are called {name}: {paths:?}; rename one, or list it in ARCHITECTURE.md with the reason"))
        .collect();
    let names: BTreeSet<&str> = found.keys().map(|(_, name)| &**name).collect();
    let gone = listed.difference(&names);
    findings.extend(
        gone.map(|name| format!("ARCHITECTURE.md lists {name}, which is the name of one type")),
    );
    findings
}

#[test]
fn a_namesake_that_is_not_listed_and_one_that_is_gone_are_found() {
    let files = [
        (
            "crates/a/src/one.rs",
            "pub(super) struct Run<'a>(u8);\nstruct Own;\n#[cfg(test)]\nmod tests {\npub struct T;\n}\n",
        ),
        (
            "crates/a/src/two.rs",
            "pub enum Run {}\nstruct Own;\npub struct T;\n",
        ),
        ("crates/b/src/two.rs", "pub trait T: Copy {}\n"),
    ];
    let findings = namesakes(
        &files,
        "## Types of one name\n\n`Gone`\n\n## Next\n\n`Run`\n",
    );
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].contains("Run") && findings[0].contains("one.rs"));
    assert!(findings[1].contains("Gone"));
    assert!(namesakes(&files, "## Types of one name\n`Run`").is_empty());
}
