//! The meta commands: a line of a key and flags of one letter each, answered by a code and the flags that were asked for.
//!
//! A [`Line`] is checked as a whole before anything is done; then its flags are walked once, in the client's order, to
//! build the answer. `mg` that only reads goes to `gets`, in runs; all others are one update each. The flags are those of
//! memcached 1.6.45; ours in addition is `Yp` (the answer waits until what it acknowledges survives loss of power).
//! A limit: reads write nothing, so the last use of an item is unknown; `h` and `l` are always 0, also in `me`.
//! A difference: a line with an opaque word that is too long does nothing (in 1.6.45 an `ma` counts and an `mg` touches, and
//! then that is refused).
//! It knows no connection. Errors of a line are sent whether or not it is quiet.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::item::{Head, Item};
use crate::memcached::protocol::number;
use crate::memcached::protocol::text::{BAD_FORMAT, KEY_LEN_MAX, Mode, Words, data_len};

/// Most words of a line, with the command.
const WORDS_MAX: usize = 20;
/// Most bytes of an opaque word, with its letter.
const OPAQUE_LEN_MAX: usize = 32;
pub(crate) const BAD_FLAG: &str = "CLIENT_ERROR invalid flag";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const BAD_KEY: &str = "CLIENT_ERROR error decoding key";
pub(crate) const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long";

/// A meta line after the command: the key, and flags that were not parsed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'i> {
    /// The key as it was written.
    pub key: &'i [u8],
    pub(crate) flags: &'i [u8],
}

/// What is known of an item's last use before this one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Whether it was read since it was stored.
    pub(crate) is_fetched: bool,
    /// How many seconds ago it was used.
    pub(crate) seconds: u32,
}

/// What the flags of a line state.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Bit by bit from `@`, which letters are there.
    letters: u64,
    pub(crate) vivify: i64,
    pub(crate) ttl: i64,
    pub(crate) recache: i64,
    pub(crate) client: u32,
    compare: u64,
    version: u64,
    pub(crate) mode: u8,
    pub(crate) initial: u64,
    pub(crate) delta: u64,
}

impl Flags {
    pub(crate) fn has(&self, letter: u8) -> bool {
        self.letters & bit(letter) != 0
    }

    pub(crate) fn compare(&self) -> Option<u64> {
        self.has(b'C').then_some(self.compare)
    }

    pub(crate) fn version(&self) -> Option<u64> {
        self.has(b'E').then_some(self.version)
    }
}

const fn bit(letter: u8) -> u64 {
    1 << (letter & 63)
}

impl<'i> Line<'i> {
    /// Splits the words after a command into key and flags; `None`: there is no key.
    pub fn cut(words: &'i [u8]) -> Option<Self> {
        let mut words = Words(words);
        let key = words.next()?;
        Some(Self {
            key,
            flags: words.0,
        })
    }

    /// The line of an `mg` that reads and nothing else, and is as it should be; `None`: look closer.
    #[inline]
    pub(crate) fn read_only(words: &'i [u8]) -> Option<Self> {
        let line = Self::cut(words).filter(|line| line.key.len() <= KEY_LEN_MAX)?;
        let mut letters = 0;
        for (index, word) in Words(line.flags).enumerate() {
            let (letter, rest) = word.split_first()?;
            let is_plain = match letter {
                b'v' | b'f' | b's' | b'c' | b't' | b'k' | b'q' | b'u' => true,
                b'O' => rest.len() < OPAQUE_LEN_MAX,
                _ => false,
            };
            if !is_plain || letters & bit(*letter) != 0 || index > WORDS_MAX - 3 {
                return None;
            }
            letters |= bit(*letter);
        }
        Some(line)
    }

    /// Whether one of the flags is neither letter nor digit.
    pub fn has_mark(&self) -> bool {
        Words(self.flags).any(|word| {
            word.first()
                .is_some_and(|first| !first.is_ascii_alphanumeric())
        })
    }

    /// What the flags state; the error is the answer.
    pub fn flags(&self) -> std::result::Result<Flags, &'static str> {
        let mut flags = Flags {
            delta: 1,
            ..Flags::default()
        };
        let mut error = None;
        if self.key.len() > KEY_LEN_MAX {
            return Err(BAD_FORMAT);
        }
        if Words(self.flags).count() > WORDS_MAX - 2 {
            return Err("CLIENT_ERROR options flags are too long");
        }
        for word in Words(self.flags) {
            let Some((letter, rest)) = word.split_first() else {
                continue;
            };
            if !letter.is_ascii_alphabetic() {
                return Err(BAD_FLAG);
            }
            if flags.has(*letter) {
                return Err("CLIENT_ERROR duplicate flag");
            }
            flags.letters |= bit(*letter);
            // Of several faults the last is reported.
            match letter {
                b'N' => flags.vivify = signed(rest, &mut error),
                b'T' => flags.ttl = signed(rest, &mut error),
                b'R' => flags.recache = signed(rest, &mut error),
                b'C' => flags.compare = unsigned(rest, BAD_TOKEN, &mut error),
                b'E' => flags.version = unsigned(rest, BAD_TOKEN, &mut error),
                b'F' => {
                    let client = number::short(rest);
                    flags.client = or_fault(client, BAD_FORMAT, &mut error);
                }
                b'J' => {
                    let what = "CLIENT_ERROR invalid numeric initial value";
                    flags.initial = unsigned(rest, what, &mut error);
                }
                b'D' => {
                    let what = "CLIENT_ERROR invalid numeric delta value";
                    flags.delta = unsigned(rest, what, &mut error);
                }
                b'M' => flags.mode = rest.first().copied().unwrap_or(b'?'),
                b'O' if word.len() > OPAQUE_LEN_MAX => error = Some(OPAQUE_TOO_LONG),
                b'b' if number::from_base64(self.key, &mut [0; KEY_LEN_MAX]).is_none() => {
                    error = Some(BAD_KEY);
                }
                b'Y' if rest != b"p" => return Err(BAD_FLAG),
                b'O' | b'P' | b'L' | b'Y' | b'b' | b'k' | b's' | b't' | b'c' | b'f' | b'v'
                | b'h' | b'l' | b'u' | b'q' | b'x' | b'I' => {}
                _ => return Err(BAD_FLAG),
            }
        }
        error.map_or(Ok(flags), Err)
    }

    /// The key's bytes; `room` is where base64 is decoded to. The error is the answer.
    pub(crate) fn bytes<'k>(
        &'k self,
        flags: &Flags,
        room: &'k mut [u8; KEY_LEN_MAX],
    ) -> std::result::Result<&'k [u8], &'static str> {
        if !flags.has(b'b') {
            return Ok(self.key);
        }
        let len = number::from_base64(self.key, room);
        len.and_then(|len| room.get(..len)).ok_or(BAD_KEY)
    }

    /// Appends what every answer repeats: the opaque word and the key.
    pub(crate) fn echo(letter: u8, word: &[u8], key: &[u8], is_binary: bool, output: &mut Vec<u8>) {
        match letter {
            b'O' => {
                output.push(b' ');
                output.extend_from_slice(word);
            }
            b'k' => {
                output.extend_from_slice(b" k");
                if is_binary {
                    number::push_base64(output, key);
                    output.extend_from_slice(b" b");
                } else {
                    output.extend_from_slice(key);
                }
            }
            _ => {}
        }
    }

    /// The answer of an `mg` that only reads.
    #[inline]
    pub(crate) fn answer_get(
        &self,
        key: &[u8],
        item: Option<&Item<'_>>,
        now: u32,
        seen: Seen,
        output: &mut Vec<u8>,
    ) {
        match item {
            Some(item) => self.answer_hit(key, item, &item.head, now, seen, false, output),
            None => self.answer_miss(key, false, output),
        }
    }

    pub(crate) fn answer_miss(&self, key: &[u8], is_binary: bool, output: &mut Vec<u8>) {
        if Words(self.flags).any(|word| word.first() == Some(&b'q')) {
            return;
        }
        output.extend_from_slice(b"EN");
        for word in Words(self.flags) {
            let letter = word.first().copied().unwrap_or_default();
            Self::echo(letter, word, key, is_binary, output);
        }
        output.extend_from_slice(b"\r\n");
    }

    /// `item` as it was; `after`, as it is now.
    #[expect(clippy::too_many_arguments, reason = "one place that shows an item")]
    pub(crate) fn answer_hit(
        &self,
        key: &[u8],
        item: &Item<'_>,
        after: &Head,
        now: u32,
        seen: Seen,
        won: bool,
        output: &mut Vec<u8>,
    ) {
        let mut has_value = false;
        let mut is_known = false;
        for word in Words(self.flags) {
            match word.split_first() {
                Some((b'v', _)) => has_value = true,
                // The client has this version already.
                Some((b'C', cas)) => is_known = number::unsigned(cas) == Some(item.head.cas),
                _ => {}
            }
        }
        has_value &= !is_known;
        output.reserve(item.data.len() + key.len() * 2 + self.flags.len() + 128);
        if has_value {
            output.extend_from_slice(b"VA ");
            number::push(output, item.data.len() as u64);
        } else {
            output.extend_from_slice(b"HD");
        }
        let mut expires = item.head.expires;
        for word in Words(self.flags) {
            let letter = word.first().copied().unwrap_or_default();
            let mut report = |number: u64| {
                output.extend_from_slice(&[b' ', letter]);
                number::push(output, number);
            };
            match letter {
                b'T' => expires = after.expires,
                b's' => report(item.data.len() as u64),
                b'c' => report(after.cas),
                b'f' => report(u64::from(item.head.flags)),
                b'h' => report(u64::from(seen.is_fetched)),
                b'l' => report(u64::from(seen.seconds)),
                b't' => push_left(output, expires, now),
                _ => Self::echo(letter, word, key, item.head.is_binary_key, output),
            }
        }
        if item.head.is_won {
            output.extend_from_slice(b" Z");
        }
        if item.head.is_stale {
            output.extend_from_slice(b" X");
        }
        if won {
            output.extend_from_slice(b" W");
        }
        output.extend_from_slice(b"\r\n");
        if has_value {
            output.extend_from_slice(item.data);
            output.extend_from_slice(b"\r\n");
        }
    }
}

/// ` t` and the seconds left, or -1.
pub(crate) fn push_left(output: &mut Vec<u8>, expires: u32, now: u32) {
    output.extend_from_slice(b" t");
    if expires == 0 {
        output.extend_from_slice(b"-1");
    } else {
        number::push(output, u64::from(expires.saturating_sub(now)));
    }
}

/// A time, which has 31 bits and may have a minus.
fn signed(digits: &[u8], error: &mut Option<&'static str>) -> i64 {
    or_fault(number::int(digits), BAD_TOKEN, error).into()
}

fn unsigned(digits: &[u8], what: &'static str, error: &mut Option<&'static str>) -> u64 {
    or_fault(number::unsigned(digits), what, error)
}

/// The number; if there is none, that is noted.
fn or_fault<N: Default>(
    number: Option<N>,
    what: &'static str,
    error: &mut Option<&'static str>,
) -> N {
    if number.is_none() {
        *error = Some(what);
    }
    number.unwrap_or_default()
}

/// A line `ms`: the data that follows it, or the answer to it.
#[derive(Clone, Debug)]
pub(crate) enum SetLine {
    /// So many bytes of data follow, and are to be stored.
    Store { len: usize },
    /// So many bytes follow, and pass by.
    Swallow { len: usize, answer: &'static str },
    /// Nothing follows.
    Refused(&'static str),
}

/// Looks at a line `ms` before its data is there.
pub(crate) fn set_line(words: &[u8]) -> SetLine {
    let mut rest = Words(words);
    let (Some(_), Some(bytes)) = (rest.next(), rest.next()) else {
        return SetLine::Refused(BAD_FORMAT);
    };
    let Some(len) = data_len(bytes) else {
        return SetLine::Refused(BAD_FORMAT);
    };
    let line = Line {
        key: b"",
        flags: rest.0,
    };
    // Such a line is refused alone: what follows is parsed as the next one.
    if line.has_mark() {
        return SetLine::Refused(BAD_FORMAT);
    }
    match parse_set(words, &mut [0; KEY_LEN_MAX]) {
        Ok(_) => SetLine::Store { len },
        Err(answer) => SetLine::Swallow { len, answer },
    }
}

pub(crate) struct Set<'k> {
    pub(crate) line: Line<'k>,
    pub(crate) flags: Flags,
    pub(crate) key_len: usize,
    pub(crate) mode: Mode,
}

pub(crate) fn parse_set<'k>(
    words: &'k [u8],
    room: &mut [u8; KEY_LEN_MAX],
) -> std::result::Result<Set<'k>, &'static str> {
    let mut rest = Words(words);
    let (Some(key), Some(_)) = (rest.next(), rest.next()) else {
        return Err(BAD_FORMAT);
    };
    let line = Line { key, flags: rest.0 };
    let flags = line.flags()?;
    let key_len = line.bytes(&flags, room)?.len();
    let mode = match flags.mode {
        0 | b'S' => Mode::Set,
        b'E' => Mode::Add,
        b'A' => Mode::Append,
        b'P' => Mode::Prepend,
        b'R' => Mode::Replace,
        _ => return Err("CLIENT_ERROR invalid mode for ms M token"),
    };
    Ok(Set {
        line,
        flags,
        key_len,
        mode,
    })
}
