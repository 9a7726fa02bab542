//! The parts of requests and answers that the protocols share: protocols, keys, and how an answer is compared.
//!
//! An answer that has not wholly arrived is told apart from a wrong one, and a refusal has the kind of error that the server
//! reports. It knows no protocol's bytes.

use azekura::error::{Error, Kind, Result};
use azekura_wire::refusal::refusal;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A protocol of memcached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// `get`, `set`, `delete`
    #[default]
    Text,
    /// `mg`, `ms`, `md`
    Meta,
    /// Packets
    Binary,
    /// SET, GET, MGET and DEL of Redis, to compare with
    Redis,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Set,
    Get,
    Remove,
}

/// The text of keys: a prefix, and a number in as many digits as are left.
pub(super) struct Keys {
    text: Vec<u8>,
    prefix_len: usize,
}

impl Keys {
    /// Keys of `size` bytes that begin with `prefix`.
    pub(super) fn new(prefix: &str, size: usize) -> Self {
        let mut text = prefix.as_bytes().to_vec();
        text.resize(size, b'0');
        Self {
            text,
            prefix_len: prefix.len(),
        }
    }

    /// The key `number`.
    pub(super) fn of(&mut self, number: u64) -> &[u8] {
        let mut rest = number;
        for digit in self.text[self.prefix_len..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        &self.text
    }
}

/// A whole answer at the front of what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Its bytes.
    pub(super) len: usize,
    /// Keys it found.
    pub(super) hits: u64,
}

impl Answer {
    /// Which of these it is, each with the keys it found.
    pub(super) fn one_of(answers: &[(&[u8], u64)], input: &[u8]) -> Result<Option<Self>> {
        for (whole, hits) in answers {
            match front(input, whole) {
                Met::Whole => {
                    let (len, hits) = (whole.len(), *hits);
                    return Ok(Some(Self { len, hits }));
                }
                Met::Part => return Ok(None),
                Met::Other => {}
            }
        }
        Err(unexpected(input))
    }
}

/// What is compared next was there, was not all there yet, or was something else.
pub(super) enum Met {
    Whole,
    Part,
    Other,
}

/// Whether `input` begins with `expected`, may yet, or does not.
pub(super) fn front(input: &[u8], expected: &[u8]) -> Met {
    let common = input.len().min(expected.len());
    if input[..common] != expected[..common] {
        Met::Other
    } else if common < expected.len() {
        Met::Part
    } else {
        Met::Whole
    }
}

pub(super) fn other_value(key: &[u8]) -> Error {
    Error::new(Kind::Corrupted, "the server answered with another value").key(key)
}

/// The error of an answer that is not the expected one: what the server refuses, or an answer that no server gives.
pub(super) fn unexpected(input: &[u8]) -> Error {
    let line = input
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (kind, what) = match refusal(line) {
        Some(kind) => (kind, "the server refused"),
        None => (Kind::Corrupted, "the server answered otherwise"),
    };
    Error::new(kind, what).detail(excerpt(line))
}

pub(super) fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(64)])
        .escape_default()
        .to_string()
}
