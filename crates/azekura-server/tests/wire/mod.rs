//! Wire transcripts: what a client sends, and byte for byte what it is answered.
//!
//! A script has lines `> sent` and `< answered`; each stands for its text and an end of line, escapes are those of Rust, and `#`
//! in an answer is any number.
//! It is played to a fresh session in one piece, byte by byte, and in pieces of several sizes, with an output of any room
//! and one that is nearly always full, and each time the answers must be the same. It knows no sockets.

#![allow(dead_code, reason = "each test file uses what it needs of this")]

use std::sync::Arc;

use azekura::Engine;
use azekura::record::memory::tiny::TinyDb;
use azekura_server::memcached::{Next, Service, Session, Settings, Transport};

/// The time at which scripts begin.
pub(crate) const NOW: u32 = 1_000_000_000;

/// A service over an empty store in memory, at `NOW`.
pub(crate) fn service(settings: Settings) -> Arc<Service> {
    over(Arc::new(TinyDb::new().unwrap()), settings)
}

/// A service over this engine, at `NOW`.
pub(crate) fn over(engine: Arc<dyn Engine>, settings: Settings) -> Arc<Service> {
    let service = Service::new(engine, settings);
    service.set_time(NOW).unwrap();
    Arc::new(service)
}

/// A connection in pieces.
pub(crate) struct Client {
    pub(crate) session: Session,
    buffer: Vec<u8>,
    pub(crate) is_closed: bool,
    /// The most bytes the session left unconsumed.
    pub(crate) kept_max: usize,
    /// How long the session wanted others to have their turn.
    pub(crate) paused_ms: u64,
}

impl Client {
    pub(crate) fn new(service: &Arc<Service>) -> Self {
        Self {
            session: Session::new(Arc::clone(service), Transport::Tcp),
            buffer: Vec::new(),
            is_closed: false,
            kept_max: 0,
            paused_ms: 0,
        }
    }

    /// What is answered to these bytes, sent `piece` at a time.
    pub(crate) fn send(&mut self, bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut answers = Vec::new();
        for part in bytes.chunks(piece) {
            self.buffer.extend_from_slice(part);
            loop {
                let mut output = Vec::new();
                let served = self.session.serve(&self.buffer, &mut output);
                assert!(served.consumed <= self.buffer.len());
                self.buffer.drain(..served.consumed);
                answers.extend_from_slice(&output);
                match served.next {
                    Next::More { at_least } => {
                        assert!(at_least > 0);
                        break;
                    }
                    Next::Pause { millis } => self.paused_ms += millis,
                    Next::Yield => assert!(!output.is_empty(), "a yield without output"),
                    Next::Close => {
                        self.is_closed = true;
                        return answers;
                    }
                }
            }
            self.kept_max = self.kept_max.max(self.buffer.len());
        }
        answers
    }
}

/// The bytes a line of a script stands for.
fn bytes(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'r') => bytes.push(b'\r'),
            Some(b'n') => bytes.push(b'\n'),
            Some(b'\\') => bytes.push(b'\\'),
            Some(b'x') => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                let digits = std::str::from_utf8(&digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
            }
            other => panic!("an escape that scripts do not have: {other:?}"),
        }
    }
    bytes
}

/// What a script sends, and what it is answered.
pub(crate) fn parse(script: &str) -> (Vec<u8>, Vec<u8>) {
    let (mut sent, mut answered) = (Vec::new(), Vec::new());
    for line in script
        .lines()
        .map(str::trim_start)
        .filter(|l| !l.is_empty())
    {
        let (side, text) = line.split_at(1);
        let text = bytes(text.strip_prefix(' ').unwrap_or(text));
        let to = match side {
            ">" => &mut sent,
            "<" => &mut answered,
            other => panic!("a line of a script begins with > or <, not {other}"),
        };
        to.extend_from_slice(&text);
        to.extend_from_slice(b"\r\n");
    }
    (sent, answered)
}

/// Whether `found` is as `expected`, where `#` stands for any number.
pub(crate) fn is_like(found: &str, expected: &str) -> bool {
    let mut rest = found;
    for (index, part) in expected.split('#').enumerate() {
        if index > 0 {
            let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            if after.len() == rest.len() {
                return false;
            }
            rest = after;
        }
        let Some(after) = rest.strip_prefix(part) else {
            return false;
        };
        rest = after;
    }
    rest.is_empty()
}

/// Plays a script in all ways.
pub(crate) fn plays(script: &str) {
    plays_with(&Settings::default(), script);
}

/// Plays a script to services of these settings.
pub(crate) fn plays_with(settings: &Settings, script: &str) {
    let (sent, answered) = parse(script);
    for piece in [usize::MAX, 1, 2, 3, 7, 64] {
        for output_max in [settings.output_max, 1] {
            let service = service(Settings {
                output_max,
                ..settings.clone()
            });
            let mut client = Client::new(&service);
            let found = client.send(&sent, piece);
            let (found, expected) = (
                String::from_utf8_lossy(&found).into_owned(),
                String::from_utf8_lossy(&answered).into_owned(),
            );
            assert!(
                is_like(&found, &expected),
                "found:\n{found}\nexpected:\n{expected}\nin pieces of {piece}, with room for {output_max}"
            );
        }
    }
}
