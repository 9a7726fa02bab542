//! Requests and answers of memcached's three protocols, and of Redis to compare with, as bytes.
//!
//! A request is written at the end of a buffer; an answer is compared, from the front of what has arrived, with the one
//! that the key's number lets expect. An answer that has not wholly arrived is distinguished from a wrong one, and a refusal
//! has the kind of error that the server reports. It knows no sockets.

#![expect(
    clippy::big_endian_bytes,
    reason = "the binary protocol is of big-endian numbers"
)]

use std::io::Write as _;

use azekura::error::{Error, Kind, Result};
use azekura_wire::refusal::refusal;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::generate::Values;

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
    fn one_of(answers: &[(&[u8], u64)], input: &[u8]) -> Result<Option<Self>> {
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

/// Writes requests and reads answers.
pub(super) struct Wire<'v> {
    protocol: Protocol,
    keys: Keys,
    values: &'v Values,
    verify: bool,
    /// The answer expected next.
    expected: Vec<u8>,
}

const GET: u8 = 0x00;
const GET_QUIET: u8 = 0x09;
const SET: u8 = 0x01;
const DELETE: u8 = 0x04;
const NOOP: u8 = 0x0a;
const HEADER_LEN: usize = 24;
/// What Redis answers for a key that is not there.
const NIL: &[u8] = b"$-1\r\n";

impl<'v> Wire<'v> {
    pub(super) fn new(protocol: Protocol, keys: Keys, values: &'v Values, verify: bool) -> Self {
        Self {
            protocol,
            keys,
            values,
            verify,
            expected: Vec::new(),
        }
    }

    /// Adds to `out` the request for the keys `numbers`: more than one for a get only.
    pub(super) fn request(&mut self, ask: Ask, numbers: &[u64], out: &mut Vec<u8>) {
        match self.protocol {
            Protocol::Text => self.text(ask, numbers, out),
            Protocol::Meta => self.meta(ask, numbers, out),
            Protocol::Binary => self.binary(ask, numbers, out),
            Protocol::Redis => self.redis(ask, numbers, out),
        }
    }

    fn text(&mut self, ask: Ask, numbers: &[u64], out: &mut Vec<u8>) {
        out.extend_from_slice(match ask {
            Ask::Set => b"set",
            Ask::Get => b"get",
            Ask::Remove => b"delete",
        });
        for number in numbers {
            out.push(b' ');
            out.extend_from_slice(self.keys.of(*number));
        }
        if ask == Ask::Set {
            let _ = write!(out, " 0 0 {}", self.values.size());
            self.block(numbers, out);
        }
        out.extend_from_slice(b"\r\n");
    }

    fn meta(&mut self, ask: Ask, numbers: &[u64], out: &mut Vec<u8>) {
        for number in numbers {
            out.extend_from_slice(match ask {
                Ask::Set => b"ms ",
                Ask::Get => b"mg ",
                Ask::Remove => b"md ",
            });
            out.extend_from_slice(self.keys.of(*number));
            match ask {
                Ask::Get if numbers.len() > 1 => out.extend_from_slice(b" k v q"),
                Ask::Get => out.extend_from_slice(b" k v"),
                Ask::Set => {
                    let _ = write!(out, " {}", self.values.size());
                    self.block(numbers, out);
                }
                Ask::Remove => {}
            }
            out.extend_from_slice(b"\r\n");
        }
        if numbers.len() > 1 {
            out.extend_from_slice(b"mn\r\n");
        }
    }

    /// The end of a line, and the value of the one key.
    fn block(&self, numbers: &[u64], out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n");
        for number in numbers {
            out.extend_from_slice(self.values.of(*number));
        }
    }

    fn binary(&mut self, ask: Ask, numbers: &[u64], out: &mut Vec<u8>) {
        let opcode = match ask {
            Ask::Set => SET,
            Ask::Get if numbers.len() > 1 => GET_QUIET,
            Ask::Get => GET,
            Ask::Remove => DELETE,
        };
        for number in numbers {
            let key = self.keys.of(*number);
            let (extras, value): (&[u8], &[u8]) = match ask {
                Ask::Set => (&[0; 8], self.values.of(*number)),
                _ => (&[], &[]),
            };
            packet(opcode, *number as u32, extras, key, value, out);
        }
        if numbers.len() > 1 {
            packet(NOOP, 0, &[], &[], &[], out);
        }
    }

    /// A list of texts, each after its length.
    fn redis(&mut self, ask: Ask, numbers: &[u64], out: &mut Vec<u8>) {
        let word: &[u8] = match ask {
            Ask::Set => b"SET",
            Ask::Get if numbers.len() > 1 => b"MGET",
            Ask::Get => b"GET",
            Ask::Remove => b"DEL",
        };
        let count = 1 + numbers.len() + usize::from(ask == Ask::Set);
        let _ = write!(out, "*{count}\r\n");
        let mut text = |bytes: &[u8]| {
            let _ = write!(out, "${}\r\n", bytes.len());
            out.extend_from_slice(bytes);
            out.extend_from_slice(b"\r\n");
        };
        text(word);
        for number in numbers {
            text(self.keys.of(*number));
            if ask == Ask::Set {
                text(self.values.of(*number));
            }
        }
    }

    /// The answer to that request at the front of `input`; `None` if it is not all there yet.
    pub(super) fn answer(
        &mut self,
        ask: Ask,
        numbers: &[u64],
        input: &[u8],
    ) -> Result<Option<Answer>> {
        if self.protocol == Protocol::Binary {
            return self.packets(ask, numbers, input);
        }
        if ask != Ask::Get {
            let answers: &[(&[u8], u64)] = match (self.protocol, ask) {
                (Protocol::Text, Ask::Set) => &[(b"STORED\r\n", 1)],
                (Protocol::Text, _) => &[(b"DELETED\r\n", 1), (b"NOT_FOUND\r\n", 0)],
                (Protocol::Redis, Ask::Set) => &[(b"+OK\r\n", 1)],
                (Protocol::Redis, _) => &[(b":1\r\n", 1), (b":0\r\n", 0)],
                (_, Ask::Set) => &[(b"HD\r\n", 1)],
                (_, _) => &[(b"HD\r\n", 1), (b"NF\r\n", 0)],
            };
            return Answer::one_of(answers, input);
        }
        let (mut at, mut hits) = (0, 0);
        let many = numbers.len() > 1;
        self.expected.clear();
        if many && self.protocol == Protocol::Redis {
            let _ = write!(self.expected, "*{}\r\n", numbers.len());
            match front(input, &self.expected) {
                Met::Part => return Ok(None),
                Met::Other => return Err(unexpected(input)),
                Met::Whole => at = self.expected.len(),
            }
        }
        for number in numbers {
            self.head(*number);
            match front(&input[at..], &self.expected) {
                Met::Part => return Ok(None),
                Met::Other if self.protocol == Protocol::Redis => {
                    match front(&input[at..], NIL) {
                        Met::Part => return Ok(None),
                        Met::Other => return Err(unexpected(&input[at..])),
                        Met::Whole => at += NIL.len(),
                    }
                    continue;
                }
                Met::Other => continue,
                Met::Whole => at += self.expected.len(),
            }
            let Some(block) = input.get(at..at + self.values.size() + 2) else {
                return Ok(None);
            };
            let (value, end) = block.split_at(self.values.size());
            if end != b"\r\n" || (self.verify && value != self.values.of(*number)) {
                return Err(other_value(self.keys.of(*number)));
            }
            at += block.len();
            hits += 1;
        }
        self.expected.clear();
        match self.protocol {
            Protocol::Text => self.expected.extend_from_slice(b"END\r\n"),
            Protocol::Meta if many => self.expected.extend_from_slice(b"MN\r\n"),
            // What was found ends by itself; what was not is named, as the request asked for its key.
            Protocol::Meta if hits == 0 => {
                self.expected.extend_from_slice(b"EN k");
                self.expected.extend_from_slice(self.keys.of(numbers[0]));
                self.expected.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
        match front(&input[at..], &self.expected) {
            Met::Whole => Ok(Some(Answer {
                len: at + self.expected.len(),
                hits,
            })),
            Met::Part => Ok(None),
            Met::Other => Err(unexpected(&input[at..])),
        }
    }

    /// The line before the value of a key.
    fn head(&mut self, number: u64) {
        let key = self.keys.of(number);
        let (to, len) = (&mut self.expected, self.values.size());
        to.clear();
        match self.protocol {
            Protocol::Text => {
                to.extend_from_slice(b"VALUE ");
                to.extend_from_slice(key);
                let _ = write!(to, " 0 {len}\r\n");
            }
            Protocol::Redis => {
                let _ = write!(to, "${len}\r\n");
            }
            _ => {
                let _ = write!(to, "VA {len} k");
                to.extend_from_slice(key);
                to.extend_from_slice(b"\r\n");
            }
        }
    }

    fn packets(&mut self, ask: Ask, numbers: &[u64], input: &[u8]) -> Result<Option<Answer>> {
        let (mut at, mut hits) = (0, 0);
        let quiet = numbers.len() > 1;
        for number in numbers {
            let Some((status, opaque, value)) = take(&input[at..])? else {
                return Ok(None);
            };
            // A quiet get that finds nothing is not answered: this is the answer to a later one.
            if quiet && opaque != *number as u32 {
                continue;
            }
            at += HEADER_LEN + value.len();
            match (status, ask) {
                (0, Ask::Get) => {
                    let value = value.get(4..).unwrap_or_default();
                    let expected = self.values.of(*number);
                    if value.len() != expected.len() || (self.verify && value != expected) {
                        return Err(other_value(self.keys.of(*number)));
                    }
                    hits += 1;
                }
                (0, _) => hits += 1,
                (1, Ask::Get | Ask::Remove) => {}
                _ => return Err(refused(status, value)),
            }
        }
        if quiet {
            let Some((status, _, body)) = take(&input[at..])? else {
                return Ok(None);
            };
            if status != 0 || input.get(at + 1) != Some(&NOOP) {
                return Err(unexpected(&input[at..]));
            }
            at += HEADER_LEN + body.len();
        }
        Ok(Some(Answer { len: at, hits }))
    }
}

/// The error of a packet with such a status, whose body is the reason in words.
fn refused(status: u16, body: &[u8]) -> Error {
    let kind = match status {
        3 => Kind::TooLarge,
        0x82 => Kind::Full,
        _ => Kind::Invalid,
    };
    Error::new(kind, "the server refused").detail(excerpt(body))
}

fn packet(opcode: u8, opaque: u32, extras: &[u8], key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x80, opcode]);
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    let body = extras.len() + key.len() + value.len();
    out.extend_from_slice(&(body as u32).to_be_bytes());
    out.extend_from_slice(&opaque.to_be_bytes());
    out.extend_from_slice(&[0; 8]);
    for part in [extras, key, value] {
        out.extend_from_slice(part);
    }
}

/// Status, opaque and body of the packet at the front of `input`; `None` if it is not all there yet.
fn take(input: &[u8]) -> Result<Option<(u16, u32, &[u8])>> {
    let Some(header) = input.get(..HEADER_LEN) else {
        return Ok(None);
    };
    if header[0] != 0x81 {
        return Err(unexpected(input));
    }
    let status = u16::from_be_bytes([header[6], header[7]]);
    let len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let opaque = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
    let body = input.get(HEADER_LEN..HEADER_LEN + len);
    Ok(body.map(|body| (status, opaque, body)))
}

/// What is compared next was there, was not all there yet, or was something else.
enum Met {
    Whole,
    Part,
    Other,
}

/// Whether `input` begins with `expected`, may yet, or does not.
fn front(input: &[u8], expected: &[u8]) -> Met {
    let common = input.len().min(expected.len());
    if input[..common] != expected[..common] {
        Met::Other
    } else if common < expected.len() {
        Met::Part
    } else {
        Met::Whole
    }
}

fn other_value(key: &[u8]) -> Error {
    Error::new(Kind::Corrupted, "the server answered with another value").key(key)
}

/// The error of an answer that is not the expected one: what the server refuses, or an answer that no server gives.
fn unexpected(input: &[u8]) -> Error {
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

fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(64)])
        .escape_default()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds every prefix of an answer: all but the whole are incomplete.
    fn found(protocol: Protocol, ask: Ask, numbers: &[u64], answer: &[u8]) -> Answer {
        let values = Values::new(3);
        let mut wire = Wire::new(protocol, Keys::new("k", 3), &values, true);
        for len in 0..answer.len() {
            assert_eq!(wire.answer(ask, numbers, &answer[..len]).unwrap(), None);
        }
        let mut more = answer.to_vec();
        more.extend_from_slice(answer);
        let whole = wire.answer(ask, numbers, &more).unwrap().unwrap();
        assert_eq!(whole.len, answer.len());
        whole
    }

    fn values(text: &str, numbers: &[u64]) -> Vec<u8> {
        let values = Values::new(3);
        let mut out = text.as_bytes().to_vec();
        for number in numbers {
            let from = out.windows(3).position(|w| w == b"***").unwrap();
            out[from..from + 3].copy_from_slice(values.of(*number));
        }
        out
    }

    #[test]
    fn text_requests_and_answers_are_those_of_the_protocol() {
        let keep = Values::new(3);
        let mut wire = Wire::new(Protocol::Text, Keys::new("k", 3), &keep, true);
        let mut out = Vec::new();
        wire.request(Ask::Set, &[7], &mut out);
        wire.request(Ask::Get, &[7, 12], &mut out);
        wire.request(Ask::Remove, &[7], &mut out);
        let expected = values(
            "set k07 0 0 3\r\n***\r\nget k07 k12\r\ndelete k07\r\n",
            &[7],
        );
        assert_eq!(out, expected);
        let both = values(
            "VALUE k07 0 3\r\n***\r\nVALUE k12 0 3\r\n***\r\nEND\r\n",
            &[7, 12],
        );
        assert_eq!(found(Protocol::Text, Ask::Get, &[7, 12], &both).hits, 2);
        let second = values("VALUE k12 0 3\r\n***\r\nEND\r\n", &[12]);
        assert_eq!(found(Protocol::Text, Ask::Get, &[7, 12], &second).hits, 1);
        assert_eq!(found(Protocol::Text, Ask::Set, &[7], b"STORED\r\n").hits, 1);
        assert_eq!(
            found(Protocol::Text, Ask::Remove, &[7], b"NOT_FOUND\r\n").hits,
            0
        );
        let wrong = values("VALUE k12 0 3\r\n***\r\nEND\r\n", &[13]);
        assert!(wire.answer(Ask::Get, &[12], &wrong).is_err());
        assert!(
            wire.answer(Ask::Get, &[12], b"SERVER_ERROR out of memory\r\n")
                .is_err()
        );
        assert!(wire.answer(Ask::Set, &[12], b"NOT_STORED\r\n").is_err());
    }

    /// Every refusal was an answer that no server gives: damage.
    #[test]
    fn a_refusal_is_of_the_kind_that_the_server_states() {
        let keep = Values::new(3);
        let mut wire = Wire::new(Protocol::Text, Keys::new("k", 3), &keep, true);
        for (line, kind) in [
            ("SERVER_ERROR object too large for cache", Kind::TooLarge),
            ("SERVER_ERROR out of memory storing object", Kind::Full),
            ("SERVER_ERROR full: the store is full", Kind::Full),
            ("SERVER_ERROR corrupted: no item", Kind::Corrupted),
            ("SERVER_ERROR poisoned: a write failed", Kind::Poisoned),
            ("SERVER_ERROR fuller", Kind::Invalid),
            ("CLIENT_ERROR bad data chunk", Kind::Invalid),
            ("ERROR", Kind::Invalid),
            ("-OOM command not allowed", Kind::Invalid),
        ] {
            let answer = format!("{line}\r\n");
            let error = wire.answer(Ask::Set, &[7], answer.as_bytes()).unwrap_err();
            let expected = format!("{}: the server refused ({line})", kind.word());
            assert_eq!(error.to_string(), expected);
        }
        let mut wire = Wire::new(Protocol::Binary, Keys::new("k", 3), &keep, true);
        for (status, kind) in [(3, Kind::TooLarge), (0x82, Kind::Full), (4, Kind::Invalid)] {
            let mut answer = Vec::new();
            packet(1, 7, &[], b"", b"Too large.", &mut answer);
            (answer[0], answer[7]) = (0x81, status);
            let error = wire.answer(Ask::Set, &[7], &answer).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().ends_with("(Too large.)"), "{error}");
        }
    }

    #[test]
    fn meta_answers_are_those_of_the_protocol() {
        let one = values("VA 3 kk07\r\n***\r\n", &[7]);
        assert_eq!(found(Protocol::Meta, Ask::Get, &[7], &one).hits, 1);
        let none = b"EN kk07\r\n";
        assert_eq!(found(Protocol::Meta, Ask::Get, &[7], none).hits, 0);
        let of_two = values("VA 3 kk12\r\n***\r\nMN\r\n", &[12]);
        assert_eq!(found(Protocol::Meta, Ask::Get, &[7, 12], &of_two).hits, 1);
        assert_eq!(found(Protocol::Meta, Ask::Remove, &[7], b"NF\r\n").hits, 0);
    }

    #[test]
    fn redis_requests_are_lists_of_texts_and_answers_are_distinguished() {
        let keep = Values::new(3);
        let mut wire = Wire::new(Protocol::Redis, Keys::new("k", 3), &keep, true);
        let mut out = Vec::new();
        wire.request(Ask::Set, &[7], &mut out);
        wire.request(Ask::Get, &[7, 8], &mut out);
        let expected = "*3\r\n$3\r\nSET\r\n$3\r\nk07\r\n$3\r\n***\r\n\
                        *3\r\n$4\r\nMGET\r\n$3\r\nk07\r\n$3\r\nk08\r\n";
        assert_eq!(out, values(expected, &[7]));
        let hits =
            |ask, numbers: &[u64], answer: &[u8]| found(Protocol::Redis, ask, numbers, answer).hits;
        assert_eq!(hits(Ask::Set, &[7], b"+OK\r\n"), 1);
        assert_eq!(hits(Ask::Remove, &[7], b":0\r\n"), 0);
        let one = values("$3\r\n***\r\n", &[7]);
        assert_eq!(hits(Ask::Get, &[7], &one), 1);
        assert_eq!(hits(Ask::Get, &[7], NIL), 0);
        let second = values("*2\r\n$-1\r\n$3\r\n***\r\n", &[8]);
        assert_eq!(hits(Ask::Get, &[7, 8], &second), 1);
        assert!(wire.answer(Ask::Get, &[9], &one).is_err());
        assert!(wire.answer(Ask::Get, &[7], b"$4\r\n").is_err());
        assert!(wire.answer(Ask::Set, &[7], b"-ERR no\r\n").is_err());
    }

    #[test]
    fn binary_packets_come_back_as_they_were_sent() {
        let keep = Values::new(3);
        let mut answer = Vec::new();
        packet(GET_QUIET, 12, &[0; 4], b"", keep.of(12), &mut answer);
        packet(NOOP, 0, &[], b"", b"", &mut answer);
        for at in [0, HEADER_LEN + 7] {
            answer[at] = 0x81;
        }
        assert_eq!(found(Protocol::Binary, Ask::Get, &[7, 12], &answer).hits, 1);
        let mut wire = Wire::new(Protocol::Binary, Keys::new("k", 3), &keep, true);
        let mut out = Vec::new();
        wire.request(Ask::Set, &[7], &mut out);
        assert_eq!(out.len(), HEADER_LEN + 8 + 3 + 3);
        assert_eq!(&out[..12], &[0x80, 1, 0, 3, 8, 0, 0, 0, 0, 0, 0, 14]);
    }
}
