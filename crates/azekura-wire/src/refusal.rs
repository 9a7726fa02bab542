//! What kind of error a memcached or Redis server reports by its answer.
//!
//! Our server begins the reason of `SERVER_ERROR` with the word of the error's kind; memcached has two fixed texts.
//! It promises an answer for any bytes. It reads no socket.

use azekura::{Error, Kind};

/// How refusals begin, besides `SERVER_ERROR`: in text, and of Redis.
const REFUSALS: [&[u8]; 3] = [b"CLIENT_ERROR", b"ERROR", b"-"];

/// The kind of error that a line reports; `None`: it reports none.
pub fn refusal(line: &[u8]) -> Option<Kind> {
    let reason = line.strip_prefix(b"SERVER_ERROR");
    if reason.is_none() && !REFUSALS.iter().any(|start| line.starts_with(start)) {
        return None;
    }
    let reason = reason.unwrap_or_default().trim_ascii_start();
    if reason.starts_with(b"object too large") {
        return Some(Kind::TooLarge);
    }
    if reason.starts_with(b"out of memory") {
        return Some(Kind::Full);
    }
    let named = |kind: &Kind| {
        let rest = reason.strip_prefix(kind.word().as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b":"))
    };
    Some(Kind::ALL.into_iter().find(named).unwrap_or(Kind::Invalid))
}

/// A line of a server for a terminal: nothing in it can control the terminal.
pub fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).replace(char::is_control, "\u{fffd}")
}

/// The error of an answer that is not the expected one, with all of it: a remedy stands at its end.
pub fn refused(line: &[u8]) -> Error {
    let kind = refusal(line).unwrap_or(Kind::Invalid);
    let quoted = format!("\"{}\"", shown(line));
    let error = Error::new(kind, "the server refused").detail(quoted);
    if line.starts_with(b"CLIENT_ERROR unauthenticated") {
        return error.remedy("give a name and a password by --login");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was cut off after 64 bytes, and the remedy with it.
    #[test]
    fn a_refusal_is_shown_whole() {
        let line = [&b"SERVER_ERROR full: "[..], &[b'a'; 100], b"; do this\x07"].concat();
        let error = refused(&line).to_string();
        assert!(error.ends_with("aaaa; do this\u{fffd}\")"), "{error}");
    }

    #[test]
    fn a_refusal_is_of_the_kind_that_the_server_states() {
        for (line, kind) in [
            ("STORED", None),
            (
                "SERVER_ERROR object too large for cache",
                Some(Kind::TooLarge),
            ),
            (
                "SERVER_ERROR out of memory storing object",
                Some(Kind::Full),
            ),
            ("SERVER_ERROR full: the store is full", Some(Kind::Full)),
            ("SERVER_ERROR fuller", Some(Kind::Invalid)),
            ("ERROR", Some(Kind::Invalid)),
        ] {
            assert_eq!(refusal(line.as_bytes()), kind, "{line}");
        }
    }
}
