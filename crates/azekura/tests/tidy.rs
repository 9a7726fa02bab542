//! The rules of the house, as ordinary tests over the repository's own files.
//!
//! A rule is a function over text, in `tidy/`, and each has a planted violation next to it that
//! proves that it fires. Here the tree is walked once a test and the findings of one rule are shown
//! together. The rules are explained in `STYLE.md`; this file knows where they apply.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/direction.rs"]
mod direction;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/manifest.rs"]
mod manifest;
#[path = "tidy/mutants.rs"]
mod mutants;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/text.rs"]
mod text;
#[path = "tidy/words.rs"]
mod words;

use std::path::{Path, PathBuf};

/// Folders that hold what was built or found, from the root.
const NOT_OURS: &[&str] = &["target", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];

/// A text file of the repository; the path is relative to its root, with slashes.
struct Text {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the library lies two folders below the root")
        .to_path_buf()
}

/// Every file of the repository, sorted; bytes that are no UTF-8 (fixtures) have an empty text.
fn repository() -> Vec<Text> {
    let root = root();
    let mut folders = vec![root.clone()];
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository") {
            let entry = entry.expect("an entry of the repository").path();
            let path = entry
                .strip_prefix(&root)
                .expect("it was found below the root");
            let path = path.to_string_lossy().replace('\\', "/");
            if entry.is_dir() {
                // Folders of tools begin with a dot; `.ci` is ours.
                if !NOT_OURS.contains(&path.as_str()) && (path == ".ci" || !path.starts_with('.')) {
                    folders.push(entry);
                }
                continue;
            }
            // A linked checkout keeps a file of this name, which states where its history lies.
            if path == ".git" {
                continue;
            }
            // Inputs of fuzz targets are bytes, also where they happen to be text.
            let bytes = std::fs::read(&entry).ok();
            let bytes = bytes.filter(|_| !path.starts_with("fuzz/seeds/"));
            let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            texts.push(Text {
                path,
                text: text.unwrap_or_default(),
            });
        }
    }
    texts.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(
        texts.iter().any(|t| t.path == "README.md"),
        "the walk begins at the repository's root"
    );
    texts
}

fn ends_with(text: &Text, ending: &str) -> bool {
    text.path.ends_with(ending)
}

/// Runs a rule over the files `applies` names, of which there must be some, and shows its findings.
fn check(applies: impl Fn(&Text) -> bool, rule: impl Fn(&str, &str) -> Vec<String>) {
    let texts = repository();
    let chosen: Vec<&Text> = texts.iter().filter(|text| applies(text)).collect();
    assert!(!chosen.is_empty(), "the rule applies to no file at all");
    let findings: Vec<String> = chosen
        .iter()
        .flat_map(|text| rule(&text.path, &text.text))
        .collect();
    assert!(
        findings.is_empty(),
        "{} findings:\n{}",
        findings.len(),
        findings.join("\n")
    );
}

fn rust(text: &Text) -> bool {
    ends_with(text, ".rs")
}

/// What people write: not lock files, fixtures or recorded results.
fn written(text: &Text) -> bool {
    let recorded = text.path.contains("/results/") && !ends_with(text, ".md");
    !ends_with(text, ".lock") && !text.path.starts_with("fixtures/") && !recorded
}

#[test]
fn retired_words_do_not_come_back() {
    let texts = repository();
    let applies = |text: &&Text| {
        let path = &text.path;
        let is_document =
            path.starts_with("docs/") || ["README.md", "ARCHITECTURE.md"].contains(&&**path);
        let is_source = path.contains("/src/") && ends_with(text, ".rs");
        (is_source || is_document) && !path.contains("tests")
    };
    let chosen = texts.iter().filter(applies);
    let findings = words::retired(chosen.map(|text| (&*text.path, &*text.text)));
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn every_source_file_opens_with_a_module_doc() {
    check(rust, source::module_doc);
}

#[test]
fn everything_written_is_ascii() {
    check(written, source::ascii);
}

#[test]
fn nothing_is_left_over() {
    check(written, source::marks);
}

#[test]
fn no_machine_and_no_registry_is_named() {
    check(written, source::places);
}

#[test]
fn no_code_is_commented_out() {
    check(rust, source::commented_out_code);
}

#[test]
fn unsafe_stands_in_its_homes_and_is_argued() {
    check(rust, source::unsafe_sites);
}

#[test]
fn nothing_is_called_a_drawer() {
    check(rust, source::drawers);
}

#[test]
fn only_io_asks_the_system_for_storage() {
    check(rust, source::system_seam);
}

#[test]
fn decoders_deny_indexing_and_unwrap() {
    let texts = repository();
    let decoder = |text: &Text| rust(text) && source::is_decoder(&text.path);
    check(decoder, |path, own| {
        let mut around = vec![own];
        for folder in Path::new(path).ancestors().skip(1) {
            let above = folder.join("mod.rs").to_string_lossy().into_owned();
            around.extend(
                texts
                    .iter()
                    .find(|text| text.path == above)
                    .map(|t| t.text.as_str()),
            );
        }
        source::decoder_lints(path, &around)
    });
}

#[test]
fn imports_go_one_way() {
    check(
        |text| text.path.starts_with("crates/azekura/src/") && rust(text),
        direction::imports,
    );
}

#[test]
fn files_depend_one_way() {
    let texts = repository();
    let sources: Vec<(&str, &str)> = texts
        .iter()
        .filter(|text| rust(text))
        .map(|text| (text.path.as_str(), text.text.as_str()))
        .collect();
    let findings = circles::circles(&sources);
    assert!(
        findings.is_empty(),
        "{} findings:\n{}",
        findings.len(),
        findings.join("\n")
    );
}

#[test]
fn every_source_file_is_declared_by_a_module() {
    let texts = repository();
    let sources = texts
        .iter()
        .filter(|text| rust(text) && text.path.starts_with("crates/"));
    let sources: Vec<_> = sources.map(|text| (&*text.path, &*text.text)).collect();
    let findings = circles::orphans(&sources);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn crates_depend_one_way() {
    let manifest = |text: &Text| text.path.starts_with("crates/") && ends_with(text, "/Cargo.toml");
    check(manifest, direction::crates);
}

#[test]
fn every_dependency_says_why() {
    check(|text| ends_with(text, "Cargo.toml"), manifest::reasons);
}

#[test]
fn mutants_apply_and_name_their_tests() {
    let texts = repository();
    let files: Vec<(&str, &str)> = texts
        .iter()
        .map(|text| (text.path.as_str(), text.text.as_str()))
        .collect();
    let code: String = texts
        .iter()
        .filter(|text| rust(text))
        .map(|source| text::split(&source.text).code)
        .collect();
    let is_mutant = |text: &Text| text.path.starts_with("mutants/") && ends_with(text, ".patch");
    let count = texts.iter().filter(|text| is_mutant(text)).count();
    assert!(count >= 60, "{count} mutants");
    check(is_mutant, |path, own| {
        mutants::mutants(path, own, &files, &code)
    });
}

#[test]
fn paths_in_documents_exist() {
    let files: Vec<String> = repository().into_iter().map(|text| text.path).collect();
    check(
        |text| ends_with(text, ".md"),
        |path, own| documents::paths(path, own, &files),
    );
}

#[test]
fn types_in_the_architecture_exist() {
    let sources = repository().into_iter().filter(rust);
    let code: String = sources
        .map(|source| text::split(&source.text).code)
        .collect();
    check(
        |text| text.path == "ARCHITECTURE.md",
        |path, own| documents::types(path, own, &code),
    );
}

#[test]
fn types_of_one_name_are_listed_with_their_reason() {
    let texts = repository();
    let is_source = |text: &&Text| {
        text.path.starts_with("crates/") && text.path.contains("/src/") && rust(text)
    };
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("/tests.rs");
    let sources = texts
        .iter()
        .filter(is_source)
        .filter(|text| !is_test(&text.path));
    let sources: Vec<_> = sources.map(|text| (&*text.path, &*text.text)).collect();
    assert!(sources.len() > 100, "{} sources", sources.len());
    let architecture = texts.iter().find(|text| text.path == "ARCHITECTURE.md");
    let findings = names::namesakes(&sources, &architecture.expect("it stands at the root").text);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn items_in_the_docs_of_sources_exist() {
    let is_source = |text: &Text| rust(text) && text.path.contains("/src/");
    let sources = repository().into_iter().filter(is_source);
    let sources: Vec<(String, String)> = sources
        .map(|source| (source.path, text::split(&source.text).code))
        .collect();
    check(is_source, |path, own| documents::items(path, own, &sources));
}

#[test]
fn subcommands_in_the_readme_exist() {
    const FOLDER: &str = "crates/azekura-cli/src/command/";
    let texts = repository();
    // A subcommand is a file, or a folder if it has parts.
    let names = texts.iter().filter_map(|text| {
        let name = text.path.strip_prefix(FOLDER)?.split('/').next()?;
        Some(name.strip_suffix(".rs").unwrap_or(name))
    });
    let mut known: Vec<String> = names.map(|name| name.replace('_', "-")).collect();
    // `bench` is mounted from its own crate, and `help` comes with the parser.
    known.extend(["bench", "help"].map(str::to_owned));
    check(
        |text| text.path == "README.md",
        |path, own| documents::subcommands(path, own, &known),
    );
}
