//! Rules over `mutants/*.patch`: each states what it plants and which test sees it, and still applies.
//!
//! A mutant is a `git diff` below two or three header lines: `Fault:` is one sentence, `Test:` the arguments of
//! `cargo test --locked` that must fail under it, `Schedule-test:` those in a build of `make explore`; one of them or both. Whether
//! the tests do fail is for `make mutants` to prove; here the text of each hunk must stand in its file, and the tests must exist.

/// What is wrong with the mutant `text`. `files` are all files of the repository with their texts, `code` all Rust.
pub(crate) fn mutants(path: &str, text: &str, files: &[(&str, &str)], code: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut found =
        |line: usize, what: String| findings.push(format!("{path}:{}: {what}", line + 1));
    let (head, diff) = text.split_at(text.find("\n--- ").unwrap_or(text.len()));
    let fault = head
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("Fault: "));
    if fault.is_none_or(|fault| !fault.ends_with('.')) {
        found(
            0,
            "the first line is not `Fault: <one sentence>`".to_owned(),
        );
    }
    // Each at most once.
    let mut words = vec!["Test: ", "Schedule-test: "];
    let lines = head.lines().enumerate().skip(1);
    let is_over = |line: &str| line.is_empty() || line.starts_with("diff ");
    for (at, line) in lines.take_while(|(_, line)| !is_over(line)) {
        match words.iter().position(|word| line.starts_with(word)) {
            Some(word) if line.contains("-p azekura") => {
                words.swap_remove(word);
                let name = line.rsplit([' ', ':']).next().unwrap_or_default();
                // Each fuzz target is a test of its name.
                let target = format!("fuzz/fuzz_targets/{name}.rs");
                let is_target = files.iter().any(|(path, _)| *path == target);
                if !is_target && !code.contains(&format!("fn {name}(")) {
                    found(at, format!("there is no test `{name}`"));
                }
            }
            _ => found(
                at,
                "this is not `Test: -p <crate> ..` or `Schedule-test: ..`, once".to_owned(),
            ),
        }
    }
    if words.len() == 2 {
        found(1, "no line names a test".to_owned());
    }
    let first = head.lines().count();
    let mut target = "";
    let mut hunks: Vec<(usize, &str, String)> = Vec::new();
    for (at, line) in diff.lines().enumerate().skip(1) {
        if let Some(name) = line.strip_prefix("--- ") {
            target = name.strip_prefix("a/").unwrap_or("");
        } else if line.starts_with("@@ ") {
            hunks.push((first + at - 1, target, String::new()));
        } else if let Some((_, _, before)) = hunks.last_mut()
            && !line.starts_with("+++ ")
            && let Some(kept) = line.strip_prefix([' ', '-'])
        {
            before.push_str(kept);
            before.push('\n');
        }
    }
    if hunks.is_empty() {
        found(0, "there is no change in it".to_owned());
    }
    for (at, target, before) in hunks {
        let own = files.iter().find(|(name, _)| *name == target);
        if !own.is_some_and(|(_, text)| text.contains(&before)) {
            found(at, format!("it no longer applies to {target}"));
        }
    }
    findings
}

#[test]
fn a_mutant_that_no_longer_applies_and_one_without_a_test_are_found() {
    let diff =
        "diff --git a/x.rs b/x.rs\n--- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n";
    let sound = format!("Fault: Two is three.\nTest: -p azekura --test x it::holds\n{diff}");
    let code = "fn holds() {}";
    let all = |text: &str, file: &str| mutants("mutants/a.patch", text, &[("x.rs", file)], code);
    assert_eq!(all(&sound, "zero\none\ntwo\n"), [""; 0]);
    assert!(all(&sound, "one\nzero\ntwo\n")[0].ends_with("it no longer applies to x.rs"));
    assert!(all(&sound.replace("holds", "gone"), "one\ntwo\n")[0].contains("no test `gone`"));
    let both = sound.replace(
        "diff --git",
        "Schedule-test: -p azekura it::holds\ndiff --git",
    );
    assert_eq!(all(&both, "one\ntwo\n"), [""; 0]);
    assert!(all(&both.replace("Schedule-test", "Test"), "one\ntwo\n")[0].ends_with("once"));
    let of_target = sound.replace("it::holds", "decodes");
    let target = ("fuzz/fuzz_targets/decodes.rs", "");
    let files = [("x.rs", "one\ntwo\n"), target];
    assert_eq!(
        mutants("mutants/a.patch", &of_target, &files, code),
        [""; 0]
    );
    assert!(all(&of_target, "one\ntwo\n")[0].contains("no test `decodes`"));
    // A module is no test.
    assert!(all(&sound.replace("::holds", ""), "one\ntwo\n")[0].contains("no test `it`"));
    assert_eq!(all(diff, "one\ntwo\n").len(), 2);
    assert_eq!(all("Fault: A.\nTest: -p azekura holds\n", "").len(), 1);
}
