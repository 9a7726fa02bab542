//! Command and key of a request, for the log: read from its first bytes, which may be cut anywhere.
//!
//! A command is its word, a packet the word of its operation. The key is escaped and cut. No data is shown, so no password
//! is. It checks nothing: what is not a request has some words, too.

use super::binary::{HEADER_LEN, Header};
use super::opcode::Opcode;
use crate::memcached::protocol::text::Words;

/// First bytes from which a request can be described: about those up to the end of a long key.
pub(crate) const FRONT_LEN: usize = 96;

/// Bytes of a key that are shown.
const KEY_LEN_SHOWN: usize = 64;

/// Longest word of a command.
const COMMAND_LEN_MAX: usize = 16;

/// A request in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestSummary {
    pub(crate) command: String,
    /// Escaped and cut; empty if there is none.
    pub(crate) key: String,
}

impl RequestSummary {
    /// What the request at the front of `bytes` asks for.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let bytes = bytes.get(..FRONT_LEN).unwrap_or(bytes);
        if let Some(header) = Header::decode(bytes) {
            let key = bytes
                .get(HEADER_LEN + header.extras_len..)
                .unwrap_or_default();
            let key = key.get(..header.key_len).unwrap_or(key);
            return Self {
                command: header.operation().map_or("packet", Opcode::word).to_owned(),
                key: shown(key),
            };
        }
        let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next();
        let mut words = Words(line.unwrap_or_default());
        let mut command = words.next().unwrap_or_default();
        let mut key = words.next().unwrap_or_default();
        if matches!(command, b"gat" | b"gats") {
            key = words.next().unwrap_or_default();
        }
        command = command.get(..COMMAND_LEN_MAX).unwrap_or(command);
        Self {
            command: command.escape_ascii().to_string(),
            key: shown(key),
        }
    }
}

fn shown(key: &[u8]) -> String {
    match key.get(..KEY_LEN_SHOWN) {
        Some(front) if front.len() < key.len() => format!("{}...", front.escape_ascii()),
        _ => key.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_described_by_its_command_and_key_and_never_by_its_data() {
        let described = |bytes: &[u8]| {
            let asked = RequestSummary::read(bytes);
            (asked.command, asked.key)
        };
        let of = |command: &str, key: &str| (command.to_owned(), key.to_owned());
        assert_eq!(described(b"get anna ben\r\n"), of("get", "anna"));
        assert_eq!(described(b"gat 10 anna\r\n"), of("gat", "anna"));
        assert_eq!(
            described(b"set anna 0 0 6\r\nsecret\r\n"),
            of("set", "anna")
        );
        assert_eq!(described(b"stats\r\n"), of("stats", ""));
        assert_eq!(described(b""), of("", ""));
        assert_eq!(described(b"\xff\x01"), of("\\xff\\x01", ""));
        let long = format!("get {}\r\n", "k".repeat(200));
        assert!(described(long.as_bytes()).1.len() < 90);
        let mut packet = vec![0x80, 0x01, 0, 4, 8, 0, 0, 0, 0, 0, 0, 18];
        packet.extend([0; 12]);
        packet.extend(b"........annasecret");
        assert_eq!(described(&packet), of("set", "anna"));
    }
}
