//! Rules over `Cargo.toml`: every dependency states why it is there.
//!
//! The reason is a comment next to the entry or above it; one comment may speak for up to three
//! entries in a row. Crates of this workspace need none: their charter is their reason. It reads
//! lines, not TOML: one entry a line, which is how the manifests are written.

/// Entries one comment may speak for.
const ENTRIES_MAX: usize = 3;

/// Dependencies without a reason.
pub(crate) fn reasons(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let (mut inside, mut covered, mut depth) = (false, 0, 0);
    for (i, line) in text.lines().map(str::trim).enumerate() {
        if depth == 0 && line.starts_with('[') {
            inside = line.trim_end_matches(']').ends_with("dependencies");
            covered = 0;
        } else if depth == 0 && line.is_empty() {
            covered = 0;
        } else if depth == 0 && line.starts_with('#') {
            covered = ENTRIES_MAX;
        } else if inside {
            let begins = depth == 0;
            depth += line.matches(['[', '{']).count();
            depth = depth.saturating_sub(line.matches([']', '}']).count());
            if !begins || line.contains("path = \"") || line.contains(" # ") {
                continue;
            }
            if covered == 0 {
                let name = line.split(['=', '.', ' ']).next().unwrap_or(line);
                findings.push(format!(
                    "{path}:{}: dependency `{name}` does not say why",
                    i + 1
                ));
            }
            covered = covered.saturating_sub(1);
        }
    }
    findings
}

#[test]
fn a_dependency_without_a_reason_is_found() {
    let text =
        "[dependencies]\na = \"1\"\n# Why.\nb = \"1\"\nc = \"1\"\n\nd = \"1\"\ne = \"1\" # Why.\n";
    let found = reasons("Cargo.toml", text);
    assert_eq!(found.len(), 2);
    assert!(found[0].contains("`a`") && found[1].contains("`d`"));
    let many = "[dev-dependencies]\n# Why.\na = \"1\"\nb = [\n \"x\",\n]\nc = \"1\"\nd = \"1\"\n";
    assert_eq!(
        reasons("Cargo.toml", many),
        ["Cargo.toml:8: dependency `d` does not say why"]
    );
    assert_eq!(reasons("Cargo.toml", "[package]\nname = \"a\"\n").len(), 0);
    assert_eq!(
        reasons("Cargo.toml", "[dependencies]\na = { path = \"../a\" }\n").len(),
        0
    );
}
