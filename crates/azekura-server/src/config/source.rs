//! The configuration file as a text: the line of a key, and its errors in words of those who write it.
//!
//! The parser reports types of Rust; here they become a number, a text in quotes, a list in brackets. It knows no key but
//! for the form of lists.

use std::path::Path;

/// A file that was read, to name the line of a value.
pub(super) struct Source<'s> {
    pub(super) path: &'s Path,
    pub(super) text: &'s str,
    /// Keys that flags override.
    pub(super) replaced: Vec<String>,
}

impl Source<'_> {
    /// The line that sets `key`, unless a flag overrides it.
    pub(super) fn line(&self, key: &str) -> Option<usize> {
        if self.replaced.iter().any(|replaced| replaced == key) {
            return None;
        }
        let sets = |line: &str| {
            line.split_once('=')
                .is_some_and(|(name, _)| name.trim().trim_matches('"') == key)
        };
        Some(self.text.lines().position(sets)? + 1)
    }
}

/// The form of a list.
const LIST: &str = "a list in brackets";

/// The error of a value, with the form of a list where one is expected.
pub(super) fn describe(key: &str, message: &str) -> String {
    let words = in_words(message);
    let one = match key {
        "listen" => "127.0.0.1:11211",
        "operator" => "10.0.0.7",
        _ => return format!("{key}: {words}"),
    };
    if words.ends_with(LIST) {
        return format!("{key}: {words}: {key} = [\"{one}\"]");
    }
    if words == "invalid IP address syntax" {
        return format!("{key}: each is an IP address without a port: {key} = [\"{one}\"]");
    }
    format!("{key}: {words}")
}

/// The parser's message in words of those who write the file.
fn in_words(message: &str) -> String {
    if message.starts_with("string values must be quoted") {
        return "a text must stand in quotes".into();
    }
    let Some((found, expected)) = message.split_once(", expected ") else {
        return message.replace("unknown field", "unknown key");
    };
    let (found, expected) = (
        found
            .trim_start_matches("invalid type: ")
            .trim_start_matches("invalid value: "),
        match expected {
            "u32" => "a number from 0 to 4294967295",
            "u64" | "usize" => "a number without a sign or a fraction",
            "a boolean" => "true or false",
            "a string" | "path string" => "a text in quotes",
            "a sequence" => LIST,
            other => other,
        },
    );
    if let Some(key) = found.strip_prefix("unknown field ") {
        return format!("unknown key {key}, expected {expected}");
    }
    if let Some(word) = found.strip_prefix("unknown variant ") {
        return format!("found {word}, expected {expected}");
    }
    let found = match found.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer", number)) => format!("the number {number}"),
        Some(("floating", number)) => {
            format!("the number {}", number.trim_start_matches("point "))
        }
        Some(("boolean", word)) => word.to_owned(),
        _ => found
            .replace("sequence", "a list")
            .replace("map", "a table"),
    };
    format!("found {found}, expected {expected}")
}
