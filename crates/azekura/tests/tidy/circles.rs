//! Circles among the files of a crate: no file depends upon itself by way of others.
//!
//! A file depends on the file that **defines** what it names. A path is followed through the modules from the crate's
//! root; a name that a module only imports or re-exports is followed to its definition, and a module that is imported
//! whole (`use super::text;`) counts by what is named through it (`text::parse`). So a parent that only declares and
//! re-exports is a file like every other, but no path ends in it; and a re-export makes its own file dependent only if
//! that file also uses the name itself. Methods are called without a path, and are not seen.
//!
//! A file may use what a module around it defines (`super::Store`, implemented by several files of its folder): this
//! alone closes no circle. A circle of siblings, or one by way of a file outside the folder, is found all the same.
//!
//! Modules of tests are left out, as is what only a test imports. Macros are not expanded, and a module written inside
//! a file belongs to that file.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{split, without_tests};

/// Imports that a name is followed through.
const STEPS_MAX: usize = 8;

/// A name that a file brings into scope.
#[derive(Debug)]
struct Import {
    /// From the crate's root.
    path: Vec<String>,
    /// `*` stands for all of them.
    name: String,
    is_exported: bool,
}

/// A source file, as a module of its crate.
#[derive(Debug, Default)]
struct File {
    path: String,
    module: Vec<String>,
    defined: BTreeSet<String>,
    imports: Vec<Import>,
    /// Paths and single names in the code, as written, without those of imports.
    paths: BTreeSet<Vec<String>>,
}

/// The files of one crate, by module.
type Crate = BTreeMap<Vec<String>, File>;

/// The circles among `files`, pairs of path and text: each pair of files that is joined within one.
pub(crate) fn circles(files: &[(&str, &str)]) -> Vec<String> {
    let mut joined: BTreeMap<(String, String), String> = BTreeMap::new();
    for of in crates(files).values() {
        let arrows = arrows(of);
        let reached = reached(&arrows);
        for ((from, to), name) in arrows {
            if reached[&to].contains(&from) {
                joined.insert((from, to), name);
            }
        }
    }
    let found = joined.iter().map(|((from, to), name)| {
        format!("{from}:1: uses `{name}` of {to}, which depends on {from} in turn")
    });
    found.collect()
}

/// Source files that no module declares: the compiler never sees them.
pub(crate) fn orphans(files: &[(&str, &str)]) -> Vec<String> {
    let is_declared = |path: &str| {
        let Some((folder, name)) = path.trim_end_matches("/mod.rs").rsplit_once('/') else {
            return true;
        };
        let name = name.trim_end_matches(".rs");
        let parents = ["/mod.rs", "/lib.rs", "/main.rs", ".rs"].map(|end| format!("{folder}{end}"));
        let declaration = format!("mod {name};");
        files.iter().any(|(of, text)| {
            parents.iter().any(|parent| parent == of) && split(text).code.contains(&declaration)
        })
    };
    let is_root = |path: &str| {
        path.ends_with("/src/lib.rs")
            || path.ends_with("/src/main.rs")
            || path.contains("/src/bin/")
    };
    let sources = files
        .iter()
        .map(|(path, _)| *path)
        .filter(|path| path.contains("/src/"));
    sources
        .filter(|path| !is_root(path) && !is_declared(path))
        .map(|path| format!("{path}:1: no module declares this file"))
        .collect()
}

#[test]
fn a_file_that_no_module_declares_is_found() {
    let files = [
        ("crates/a/src/lib.rs", "mod one;\nmod two;\n// mod three;\n"),
        ("crates/a/src/one.rs", "mod below;\n"),
        ("crates/a/src/one/below.rs", ""),
        ("crates/a/src/two/mod.rs", "mod own;\n"),
        ("crates/a/src/two/own.rs", ""),
        ("crates/a/src/three.rs", ""),
        ("crates/a/src/two/lost.rs", ""),
    ];
    let findings = orphans(&files);
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].contains("three.rs") && findings[1].contains("lost.rs"));
}

/// The source files of each crate under `crates/`, tests left out.
fn crates(files: &[(&str, &str)]) -> BTreeMap<String, Crate> {
    let mut all: BTreeMap<String, Crate> = BTreeMap::new();
    let mut tests: BTreeSet<(String, Vec<String>)> = BTreeSet::new();
    for (path, text) in files {
        let parts = path
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix(".rs"));
        let Some((name, inside)) = parts.and_then(|parts| parts.split_once("/src/")) else {
            continue;
        };
        // What a program adds to its library, nothing imports.
        if inside == "main" || inside.starts_with("bin/") {
            continue;
        }
        let module: Vec<String> = inside
            .split('/')
            .filter(|part| !["mod", "lib"].contains(part))
            .map(str::to_owned)
            .collect();
        let code = without_tests(&split(text).code);
        for test in test_modules(&code) {
            let below = module.iter().cloned().chain([test]).collect();
            tests.insert((name.to_owned(), below));
        }
        let file = read(path, &module, &code);
        all.entry(name.to_owned()).or_default().insert(module, file);
    }
    for (name, of) in &mut all {
        of.retain(|module, _| {
            (1..=module.len()).all(|len| !tests.contains(&(name.clone(), module[..len].to_vec())))
        });
    }
    all
}

/// The modules that are declared for tests only, in files of their own.
fn test_modules(code: &str) -> Vec<String> {
    let rests = code.split("#[cfg(test)]").skip(1);
    let names = rests.filter_map(|rest| rest.split_once(';')?.0.trim().strip_prefix("mod "));
    names.map(|name| name.trim().to_owned()).collect()
}

/// Words and marks of code: names whole, `::` whole, everything else byte by byte.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while !rest.is_empty() {
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let len = match word {
            Some(0) if rest.starts_with("::") => 2,
            Some(0) => 1,
            Some(len) => len,
            None => rest.len(),
        };
        tokens.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    tokens
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// What `code` of `module` defines, imports and names.
fn read(path: &str, module: &[String], code: &str) -> File {
    let mut file = File {
        path: path.to_owned(),
        module: module.to_vec(),
        ..File::default()
    };
    let tokens = tokens(code);
    let (mut at, mut depth, mut is_test) = (0, 0, false);
    while let Some(&token) = tokens.get(at) {
        let next = tokens.get(at + 1).copied().unwrap_or_default();
        let before = at.checked_sub(1).map_or("", |before| tokens[before]);
        at += 1;
        match token {
            "{" => depth += 1,
            "}" => depth -= 1,
            "#" => {
                is_test = tokens[at..].starts_with(&["[", "cfg", "(", "test", ")", "]"]);
            }
            "use" => {
                let mut leaves = Vec::new();
                use_tree(&tokens, &mut at, &[], &mut leaves);
                let leaves = leaves.into_iter().filter(|_| !is_test);
                file.imports.extend(leaves.map(|(path, name)| Import {
                    path: absolute(module, &path),
                    name,
                    is_exported: matches!(before, "pub" | ")"),
                }));
                is_test = false;
            }
            "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" | "mod"
                if depth == 0 && is_word(next) =>
            {
                file.defined.insert(next.to_owned());
            }
            "macro_rules" => {
                let name = tokens.get(at + 1).copied().unwrap_or_default();
                file.defined.insert(name.to_owned());
            }
            word if is_word(word) && !matches!(before, "::" | ".") => {
                let mut path = vec![word.to_owned()];
                while let [mark, word, ..] = tokens[at..]
                    && mark == "::"
                    && is_word(word)
                {
                    path.push(word.to_owned());
                    at += 2;
                }
                file.paths.insert(path);
            }
            _ => {}
        }
    }
    file
}

/// Reads one tree of an import from `at` on, and adds what it brings into scope: path, and name there (`*`: everything).
fn use_tree(
    tokens: &[&str],
    at: &mut usize,
    base: &[String],
    leaves: &mut Vec<(Vec<String>, String)>,
) {
    let mut path = base.to_vec();
    while let Some(&token) = tokens.get(*at) {
        *at += 1;
        match token {
            "{" => {
                while !matches!(tokens.get(*at), None | Some(&"}")) {
                    if tokens[*at] == "," {
                        *at += 1;
                    } else {
                        use_tree(tokens, at, &path, leaves);
                    }
                }
                *at += 1;
                return;
            }
            "as" => {
                let name = tokens.get(*at).copied().unwrap_or_default();
                *at += 1;
                leaves.push((path, name.to_owned()));
                return;
            }
            "*" => {
                leaves.push((path, "*".to_owned()));
                return;
            }
            "self" if !path.is_empty() => {}
            "::" => {}
            word if is_word(word) => path.push(word.to_owned()),
            _ => return,
        }
        if matches!(tokens.get(*at), None | Some(&("," | "}" | ";"))) {
            let name = path.last().cloned().unwrap_or_default();
            leaves.push((path, name));
            return;
        }
    }
}

/// A path as written in `module`, from the crate's root.
fn absolute(module: &[String], path: &[String]) -> Vec<String> {
    let mut base = module.to_vec();
    let mut rest = path;
    while let [first, tail @ ..] = rest {
        match first.as_str() {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            "self" => {}
            _ => break,
        }
        rest = tail;
    }
    base.extend_from_slice(rest);
    base
}

/// The file that defines what `path` (from the root) names; `None`: it names a module, or nothing of this crate.
/// A name that leads back to itself through so many imports as `steps` is one of another crate, too.
fn definer<'c>(of: &'c Crate, path: &[String], steps: usize) -> Option<&'c File> {
    let steps = steps.checked_sub(1)?;
    let len = (0..=path.len())
        .rev()
        .find(|len| of.contains_key(&path[..*len]))?;
    let (module, rest) = path.split_at(len);
    let (file, name) = (&of[module], rest.first()?);
    if file.defined.contains(name) {
        return Some(file);
    }
    let through = |import: &Import, rest: &[String]| [&import.path, rest].concat();
    if let Some(import) = file.imports.iter().find(|import| &import.name == name) {
        return definer(of, &through(import, &rest[1..]), steps);
    }
    let mut globs = file.imports.iter().filter(|import| import.name == "*");
    globs.find_map(|import| definer(of, &through(import, rest), steps))
}

/// Which file depends on which, and by what name.
fn arrows(of: &Crate) -> BTreeMap<(String, String), String> {
    let mut arrows = BTreeMap::new();
    for (module, file) in of {
        let is_named = |name: &String| file.paths.iter().any(|path| &path[0] == name);
        let imports = file.imports.iter();
        let imports = imports.filter(|import| !import.is_exported || is_named(&import.name));
        let paths = imports.map(|import| import.path.clone());
        let written = file.paths.iter().map(|path| absolute(module, path));
        for path in paths.chain(written) {
            if let Some(to) = definer(of, &path, STEPS_MAX)
                && !module.starts_with(&to.module)
            {
                let name = path.last().cloned().unwrap_or_default();
                arrows
                    .entry((file.path.clone(), to.path.clone()))
                    .or_insert(name);
            }
        }
    }
    arrows
}

/// For each file that another depends on, the files it depends on itself, directly or by others.
fn reached(arrows: &BTreeMap<(String, String), String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for (_, start) in arrows.keys() {
        let (mut reached, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(file) = open.pop() {
            let next = arrows.keys().filter(|(from, _)| from == file);
            for (_, to) in next {
                if reached.insert(to.clone()) {
                    open.push(to);
                }
            }
        }
        all.insert(start.clone(), reached);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> usize {
        let files: Vec<(String, &str)> = files
            .iter()
            .map(|(path, text)| (format!("crates/a/src/{path}"), *text))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        circles(&files).len()
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod a;\nmod b;\npub use b::B;\n");

    #[test]
    fn a_circle_of_two_and_of_three_files_is_found() {
        let b = ("b.rs", "use super::a::A;\npub struct B(A);");
        assert_eq!(found(&[ROOT, ("a.rs", "pub struct A;"), b]), 0);
        let circle = "use crate::b::B;\npub struct A(Option<Box<B>>);";
        assert_eq!(found(&[ROOT, ("a.rs", circle), b]), 2);
        let by_path = "pub struct A(Option<Box<super::b::B>>);";
        assert_eq!(found(&[ROOT, ("a.rs", by_path), b]), 2);
        let third = (
            "c.rs",
            "use crate::b::{self as other, };\nfn c(_: other::B) {}",
        );
        let by_third = "use crate::{c::c as d};\npub struct A;";
        assert_eq!(found(&[ROOT, ("a.rs", by_third), b, third]), 3);
    }

    #[test]
    fn a_name_leads_to_the_file_that_defines_it() {
        // `a` takes from its parent what the parent has from `b`: by name, by a glob, and by a module.
        for (parent, a) in [
            ("mod a; mod b; use b::B;", "use super::B; pub struct A;"),
            ("mod a; mod b; pub use b::*;", "use crate::B; pub struct A;"),
            (
                "mod a; mod b;",
                "use super::b; pub struct A; fn f(_: b::B) {}",
            ),
        ] {
            let b = ("b.rs", "use super::a::A; pub struct B(A);");
            assert_eq!(found(&[("lib.rs", parent), ("a.rs", a), b]), 2, "{a}");
            let alone = ("b.rs", "pub struct B;");
            assert_eq!(found(&[("lib.rs", parent), ("a.rs", a), alone]), 0, "{a}");
        }
    }

    #[test]
    fn a_file_may_use_what_is_around_it_but_not_what_leads_back_from_outside() {
        let child = ("a/x.rs", "use super::Store; pub struct X(Store);");
        let parent = "mod x; pub use x::X; pub struct Store;";
        assert_eq!(found(&[ROOT, ("a/mod.rs", parent), child]), 0);
        let user = "mod x; pub struct Store; fn f(_: x::X) {}";
        assert_eq!(found(&[ROOT, ("a/mod.rs", user), child]), 0);
        // The parent needs `x`, which needs `b`, which needs the parent.
        let child = ("a/x.rs", "use crate::b::B; pub struct X;");
        let b = ("b.rs", "use crate::a::Store; pub struct B(Store);");
        assert_eq!(found(&[ROOT, ("a/mod.rs", user), child, b]), 3);
        // A parent that re-exports it does not.
        assert_eq!(found(&[ROOT, ("a/mod.rs", parent), child, b]), 0);
    }

    #[test]
    fn tests_and_other_crates_are_left_out() {
        let a = "pub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}";
        let b = ("b.rs", "use super::a::A;\nuse std::a::C;\npub struct B(A);");
        assert_eq!(found(&[ROOT, ("a.rs", a), b]), 0);
        let a = "pub struct A;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse crate::b::B;";
        let tests = ("a/tests.rs", "use crate::b::B;\npub fn t() {}");
        assert_eq!(found(&[ROOT, ("a.rs", a), b, tests]), 0);
    }
}
