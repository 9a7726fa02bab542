//! The meta commands: a line of a key and flags of one letter each, answered by a code and the flags that were asked for.
//!
//! A [`Line`] is checked as a whole before anything is done; then its flags are walked once, in the client's order, to
//! build the answer. `mg` that only reads goes to `gets`, in runs; all others are one update each. The flags are those of
//! memcached 1.6.45; ours beside them is `Yp` (the answer waits until what it acknowledges survives loss of power).
//! Where the releases differ: an unknown flag of `mg` and `ms` is "bad command line format" (1.6.18: "invalid flag").
//! It knows no connection. Errors of a line are told whether or not it is quiet.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use azekura::error::Result;

use super::execute::{Change, Counted, Hand, New, Step, Stored};
use super::number;
use super::stats::Count;
use super::text::{BAD_FORMAT, DATA_LEN_MAX, KEY_LEN_MAX, Mode, Words};
use crate::item::{Head, Item};

/// Most words of a line, with the command.
const WORDS_MAX: usize = 20;
/// Most bytes of an opaque word, with its letter.
const OPAQUE_LEN_MAX: usize = 32;
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";

/// A meta line after the command: the key, and flags that were not looked at yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'i> {
    /// The key as it was written.
    pub key: &'i [u8],
    flags: &'i [u8],
}

/// What is known of an item's last use before this one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Whether it was read since it was stored.
    pub(super) is_fetched: bool,
    /// How many seconds ago it was used.
    pub(super) seconds: u32,
}

/// What the flags of a line say.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Bit by bit from `@`, which letters are there.
    letters: u64,
    vivify: i64,
    ttl: i64,
    recache: i64,
    client: u32,
    compare: u64,
    version: u64,
    mode: u8,
    initial: u64,
    delta: u64,
}

impl Flags {
    fn has(&self, letter: u8) -> bool {
        self.letters & bit(letter) != 0
    }

    fn compare(&self) -> Option<u64> {
        self.has(b'C').then_some(self.compare)
    }

    fn version(&self) -> Option<u64> {
        self.has(b'E').then_some(self.version)
    }
}

const fn bit(letter: u8) -> u64 {
    1 << (letter & 63)
}

impl<'i> Line<'i> {
    /// Cuts the words behind a command into key and flags; `None`: there is no key.
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
    pub(super) fn read_only(words: &'i [u8]) -> Option<Self> {
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

    /// What the flags say; the error is the answer.
    pub fn flags(&self) -> std::result::Result<Flags, &'static str> {
        let mut flags = Flags {
            delta: 1,
            ..Flags::default()
        };
        let mut error = None;
        if Words(self.flags).count() > WORDS_MAX - 2 {
            return Err("CLIENT_ERROR options flags are too long");
        }
        for word in Words(self.flags) {
            let Some((letter, rest)) = word.split_first() else {
                continue;
            };
            if !letter.is_ascii_alphabetic() {
                return Err(BAD_FORMAT);
            }
            if flags.has(*letter) {
                return Err("CLIENT_ERROR duplicate flag");
            }
            flags.letters |= bit(*letter);
            // Of several faults the last is told.
            match letter {
                b'N' => flags.vivify = signed(rest, &mut error),
                b'T' => flags.ttl = signed(rest, &mut error),
                b'R' => flags.recache = signed(rest, &mut error),
                b'C' => flags.compare = unsigned(rest, BAD_TOKEN, &mut error),
                b'E' => flags.version = unsigned(rest, BAD_TOKEN, &mut error),
                b'F' => {
                    let client = unsigned(rest, BAD_FORMAT, &mut error);
                    flags.client = u32::try_from(client).unwrap_or_else(|_| {
                        error = Some(BAD_FORMAT);
                        0
                    });
                }
                b'J' => {
                    let what = "CLIENT_ERROR invalid numeric initial value";
                    flags.initial = unsigned(rest, what, &mut error);
                }
                b'D' => {
                    let what = "CLIENT_ERROR invalid numeric delta value";
                    flags.delta = unsigned(rest, what, &mut error);
                }
                b'M' => flags.mode = rest.first().copied().unwrap_or(0),
                b'O' if word.len() > OPAQUE_LEN_MAX => {
                    error = Some("CLIENT_ERROR opaque token too long");
                }
                b'Y' if rest != b"p" => error = Some(BAD_TOKEN),
                b'O' | b'P' | b'L' | b'Y' | b'b' | b'k' | b's' | b't' | b'c' | b'f' | b'v'
                | b'h' | b'l' | b'u' | b'q' | b'x' | b'I' => {}
                _ => return Err(BAD_FORMAT),
            }
        }
        error.map_or(Ok(flags), Err)
    }

    /// The key's bytes; `room` is where base64 is decoded to. The error is the answer.
    fn bytes<'k>(
        &'k self,
        flags: &Flags,
        room: &'k mut [u8; KEY_LEN_MAX],
    ) -> std::result::Result<&'k [u8], &'static str> {
        if self.key.len() > KEY_LEN_MAX {
            return Err(BAD_FORMAT);
        }
        if !flags.has(b'b') {
            return Ok(self.key);
        }
        let len = number::from_base64(self.key, room);
        len.and_then(|len| room.get(..len))
            .ok_or("CLIENT_ERROR error decoding key")
    }

    /// Appends what an answer says of every request: the opaque word and the key.
    fn echo(letter: u8, word: &[u8], key: &[u8], is_binary: bool, output: &mut Vec<u8>) {
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
    pub(super) fn answer_get(
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

    fn answer_miss(&self, key: &[u8], is_binary: bool, output: &mut Vec<u8>) {
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
    fn answer_hit(
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
            let mut tell = |number: u64| {
                output.extend_from_slice(&[b' ', letter]);
                number::push(output, number);
            };
            match letter {
                b'T' | b'N' => expires = after.expires,
                b's' => tell(item.data.len() as u64),
                b'c' => tell(after.cas),
                b'f' => tell(u64::from(item.head.flags)),
                b'h' => tell(u64::from(seen.is_fetched)),
                b'l' => tell(u64::from(seen.seconds)),
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
fn push_left(output: &mut Vec<u8>, expires: u32, now: u32) {
    output.extend_from_slice(b" t");
    if expires == 0 {
        output.extend_from_slice(b"-1");
    } else {
        number::push(output, u64::from(expires.saturating_sub(now)));
    }
}

fn signed(digits: &[u8], error: &mut Option<&'static str>) -> i64 {
    number::signed(digits).unwrap_or_else(|| {
        *error = Some(BAD_TOKEN);
        0
    })
}

fn unsigned(digits: &[u8], what: &'static str, error: &mut Option<&'static str>) -> u64 {
    number::unsigned(digits).unwrap_or_else(|| {
        *error = Some(what);
        0
    })
}

/// A line `ms`: the data that follows it, or the answer to it.
#[derive(Clone, Debug)]
pub(super) enum SetLine {
    /// So many bytes of data follow, and are to be stored.
    Store { len: usize },
    /// So many bytes follow, and pass by.
    Swallow { len: usize, answer: &'static str },
    /// Nothing follows.
    Refused(&'static str),
}

/// Looks at a line `ms` before its data is there.
pub(super) fn set_line(words: &[u8]) -> SetLine {
    let mut rest = Words(words);
    let (Some(_), Some(bytes)) = (rest.next(), rest.next()) else {
        return SetLine::Refused(BAD_FORMAT);
    };
    let Some(len) = number::unsigned(bytes).filter(|len| *len <= DATA_LEN_MAX) else {
        return SetLine::Refused(BAD_FORMAT);
    };
    let len = len as usize;
    match parse_set(words, &mut [0; KEY_LEN_MAX]) {
        Ok(_) => SetLine::Store { len },
        Err(answer) => SetLine::Swallow { len, answer },
    }
}

struct Set<'k> {
    line: Line<'k>,
    flags: Flags,
    key_len: usize,
    mode: Mode,
}

fn parse_set<'k>(
    words: &'k [u8],
    room: &mut [u8; KEY_LEN_MAX],
) -> std::result::Result<Set<'k>, &'static str> {
    let mut rest = Words(words);
    let (Some(key), Some(_)) = (rest.next(), rest.next()) else {
        return Err(BAD_FORMAT);
    };
    let line = Line { key, flags: rest.0 };
    if key.len() > KEY_LEN_MAX {
        return Err(BAD_FORMAT);
    }
    let flags = line.flags()?;
    let key_len = line.bytes(&flags, room)?.len();
    let mode = match flags.mode.to_ascii_uppercase() {
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

fn refuse(output: &mut Vec<u8>, line: &str) {
    output.extend_from_slice(line.as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// Whether the item of an `ms` line that is to be stored is too large; then what was there is gone.
pub(super) fn refuse_too_large(hand: &mut Hand, words: &[u8], len: usize) -> Result<bool> {
    let mut room = [0; KEY_LEN_MAX];
    let Ok(set) = parse_set(words, &mut room) else {
        return Ok(false);
    };
    if hand.fits(set.key_len, set.flags.client, len) {
        return Ok(false);
    }
    let key = if set.flags.has(b'b') {
        room.get(..set.key_len).unwrap_or_default()
    } else {
        set.line.key
    };
    hand.refuse_too_large(key)?;
    Ok(true)
}

/// `ms`, with its data.
pub(super) fn set(hand: &mut Hand, words: &[u8], data: &[u8], output: &mut Vec<u8>) -> Result<()> {
    let mut room = [0; KEY_LEN_MAX];
    let set = match parse_set(words, &mut room) {
        Ok(set) => set,
        Err(answer) => {
            refuse(output, answer);
            return Ok(());
        }
    };
    let flags = &set.flags;
    let is_binary_key = flags.has(b'b');
    let key = if is_binary_key {
        room.get(..set.key_len).unwrap_or_default()
    } else {
        set.line.key
    };
    let joins = matches!(set.mode, Mode::Append | Mode::Prepend);
    let vivify = joins && flags.has(b'N');
    let compares = flags.has(b'C') && matches!(set.mode, Mode::Set | Mode::Replace);
    let new = New {
        mode: if compares { Mode::Cas } else { set.mode },
        key,
        flags: flags.client,
        expires: hand
            .service
            .expires(if vivify { flags.vivify } else { flags.ttl }),
        data,
        compare: flags.compare(),
        version: flags.version(),
        may_be_stale: compares && flags.has(b'I'),
        vivify,
        is_binary_key,
    };
    hand.tally.one(Count::CmdMeta);
    let stored = hand.store(&new)?;
    hand.must_sync |= flags.has(b'Y');
    let (code, cas, len) = match stored {
        Stored::Done { cas, len } => (b"HD", cas, len),
        Stored::Exists => (b"EX", 0, data.len()),
        Stored::NotFound => (b"NF", 0, data.len()),
        Stored::Refused => (b"NS", 0, data.len()),
    };
    if code == b"HD" && flags.has(b'q') {
        return Ok(());
    }
    output.extend_from_slice(code);
    for word in Words(set.line.flags) {
        match word.first().copied().unwrap_or_default() {
            b'c' => {
                output.extend_from_slice(b" c");
                number::push(output, cas);
            }
            b's' => {
                output.extend_from_slice(b" s");
                number::push(output, len as u64);
            }
            letter => Line::echo(letter, word, key, is_binary_key, output),
        }
    }
    output.extend_from_slice(b"\r\n");
    Ok(())
}

/// `mg`, `md`, `ma`, `mn` and `me`, by their second letter.
pub(super) fn execute(
    hand: &mut Hand,
    letter: u8,
    words: &[u8],
    output: &mut Vec<u8>,
) -> Result<()> {
    hand.tally.one(Count::CmdMeta);
    if letter == b'n' {
        refuse(output, "MN");
        return Ok(());
    }
    let Some(line) = Line::cut(words) else {
        refuse(output, BAD_FORMAT);
        return Ok(());
    };
    let mut room = [0; KEY_LEN_MAX];
    let strict = matches!(letter, b'd' | b'a');
    let flags = match line.flags() {
        _ if line.key.len() > KEY_LEN_MAX => Err(BAD_FORMAT),
        Err(answer) if strict && !answer.ends_with("too long") => {
            Err("CLIENT_ERROR invalid or duplicate flag")
        }
        flags => flags,
    };
    let read = flags.and_then(|flags| {
        let key = line.bytes(&flags, &mut room)?;
        Ok((flags, key))
    });
    let (flags, key) = match read {
        Ok(read) => read,
        Err(answer) => {
            refuse(output, answer);
            return Ok(());
        }
    };
    match letter {
        b'g' => get(hand, &line, &flags, key, output)?,
        b'd' => delete(hand, &line, &flags, key, output)?,
        b'a' => arithmetic(hand, &line, &flags, key, output)?,
        _ => explain(hand, &line, key, output)?,
    }
    hand.must_sync |= flags.has(b'Y');
    Ok(())
}

/// `mg` in full: it may create, touch, or win.
fn get(
    hand: &mut Hand,
    line: &Line<'_>,
    flags: &Flags,
    key: &[u8],
    output: &mut Vec<u8>,
) -> Result<()> {
    let (now, next) = (hand.now, hand.version());
    let expires = |time| hand.service.expires(time);
    let (ttl, vivify, recache) = (
        expires(flags.ttl),
        expires(flags.vivify),
        expires(flags.recache),
    );
    let seen = Seen::default();
    let mut is_hit = false;
    hand.change(key, |present, built| {
        let Some(item) = present else {
            if !flags.has(b'N') {
                return Change::Keep;
            }
            is_hit = true;
            let mut head = Head {
                cas: flags.version().unwrap_or(next),
                expires: vivify,
                is_binary_key: flags.has(b'b'),
                ..Head::default()
            };
            if flags.has(b'T') {
                head.expires = ttl;
            }
            let item = Item { head, data: b"" };
            line.answer_hit(key, &item, &head, now, seen, true, output);
            head.is_won = true;
            head.write(built);
            return Change::Put;
        };
        is_hit = true;
        let mut head = item.head;
        let mut won = false;
        for word in Words(line.flags) {
            match word.first() {
                Some(b'T') => head.expires = ttl,
                Some(b'R') => {
                    won |= !head.is_won && head.expires != 0 && head.expires < recache;
                }
                _ => {}
            }
        }
        won |= head.is_stale && !head.is_won;
        line.answer_hit(key, &item, &head, now, seen, won, output);
        head.is_won |= won;
        if head == item.head {
            return Change::Keep;
        }
        head.write(built);
        built.extend_from_slice(item.data);
        Change::Put
    })?;
    if !is_hit {
        line.answer_miss(key, flags.has(b'b'), output);
    }
    let (asked, hit, miss) = if flags.has(b'T') {
        (Count::CmdTouch, Count::TouchHits, Count::TouchMisses)
    } else {
        (Count::CmdGet, Count::GetHits, Count::GetMisses)
    };
    hand.tally.one(asked);
    hand.tally.one(if is_hit { hit } else { miss });
    Ok(())
}

fn delete(
    hand: &mut Hand,
    line: &Line<'_>,
    flags: &Flags,
    key: &[u8],
    output: &mut Vec<u8>,
) -> Result<()> {
    let is_plain = !flags.has(b'x') && !flags.has(b'I');
    let done = if is_plain {
        hand.remove(key, flags.compare())?
    } else {
        let next = hand.version();
        let ttl = hand.service.expires(flags.ttl);
        let mut done = None;
        hand.change(key, |present, built| {
            let Some(item) = present else {
                return Change::Keep;
            };
            done = Some(flags.compare().is_none_or(|cas| cas == item.head.cas));
            if done == Some(false) {
                return Change::Keep;
            }
            let mut head = item.head;
            let mut data = item.data;
            if flags.has(b'x') {
                (head.flags, head.expires) = (flags.client, ttl);
                (head.is_stale, head.is_won) = (false, false);
                data = b"";
            }
            if flags.has(b'I') {
                if flags.has(b'T') {
                    head.expires = ttl;
                }
                (head.is_stale, head.is_won) = (true, false);
            }
            head.cas = flags
                .version()
                .unwrap_or(next.max(item.head.cas.wrapping_add(1)));
            head.write(built);
            built.extend_from_slice(data);
            Change::Put
        })?;
        hand.tally.one(match done {
            Some(true) => Count::DeleteHits,
            _ => Count::DeleteMisses,
        });
        done
    };
    let code = match done {
        Some(true) => b"HD",
        Some(false) => b"EX",
        None => b"NF",
    };
    if code == b"HD" && flags.has(b'q') {
        return Ok(());
    }
    output.extend_from_slice(code);
    echo_all(line, flags, key, output);
    Ok(())
}

/// The words that are told whatever came of the request, and the end of the line.
fn echo_all(line: &Line<'_>, flags: &Flags, key: &[u8], output: &mut Vec<u8>) {
    for word in Words(line.flags) {
        let letter = word.first().copied().unwrap_or_default();
        Line::echo(letter, word, key, flags.has(b'b'), output);
    }
    output.extend_from_slice(b"\r\n");
}

fn arithmetic(
    hand: &mut Hand,
    line: &Line<'_>,
    flags: &Flags,
    key: &[u8],
    output: &mut Vec<u8>,
) -> Result<()> {
    let up = match flags.mode {
        0 | b'I' | b'i' | b'+' => true,
        b'D' | b'd' | b'-' => false,
        _ => {
            refuse(output, "CLIENT_ERROR invalid mode for ma M token");
            return Ok(());
        }
    };
    let ttl = flags.has(b'T').then(|| hand.service.expires(flags.ttl));
    let vivify = ttl.unwrap_or_else(|| hand.service.expires(flags.vivify));
    let step = Step {
        up,
        delta: flags.delta,
        compare: flags.compare(),
        version: flags.version(),
        initial: flags.has(b'N').then_some((flags.initial, vivify)),
        expires: ttl,
    };
    let (number, head) = match hand.count(key, &step)? {
        Counted::Done { number, head } => (number, head),
        missed @ (Counted::NotFound | Counted::Exists) => {
            output.extend_from_slice(if missed == Counted::Exists {
                b"EX"
            } else {
                b"NF"
            });
            echo_all(line, flags, key, output);
            return Ok(());
        }
        Counted::NoNumber => {
            refuse(
                output,
                "CLIENT_ERROR cannot increment or decrement non-numeric value",
            );
            return Ok(());
        }
        Counted::TooLarge => {
            refuse(output, "SERVER_ERROR Out of memory allocating new item");
            return Ok(());
        }
    };
    if flags.has(b'q') {
        return Ok(());
    }
    let mut digits = Vec::with_capacity(20);
    number::push(&mut digits, number);
    if flags.has(b'v') {
        output.extend_from_slice(b"VA ");
        number::push(output, digits.len() as u64);
    } else {
        output.extend_from_slice(b"HD");
    }
    for word in Words(line.flags) {
        match word.first().copied().unwrap_or_default() {
            b'c' => {
                output.extend_from_slice(b" c");
                number::push(output, head.cas);
            }
            b't' => push_left(output, head.expires, hand.now),
            letter => Line::echo(letter, word, key, flags.has(b'b'), output),
        }
    }
    output.extend_from_slice(b"\r\n");
    if flags.has(b'v') {
        output.extend_from_slice(&digits);
        output.extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// `me`: what is known of an item, for people.
fn explain(hand: &mut Hand, line: &Line<'_>, key: &[u8], output: &mut Vec<u8>) -> Result<()> {
    let now = hand.now;
    let mut told = false;
    let service = std::sync::Arc::clone(&hand.service);
    service.engine.read(key, &mut |value| {
        let item = value.and_then(Item::decode);
        let Some(item) = item.filter(|item| !item.head.is_over(now)) else {
            return;
        };
        told = true;
        output.extend_from_slice(b"ME ");
        output.extend_from_slice(line.key);
        output.extend_from_slice(b" exp=");
        if item.head.expires == 0 {
            output.extend_from_slice(b"-1");
        } else {
            number::push(output, u64::from(item.head.expires - now));
        }
        output.extend_from_slice(b" la=0 cas=");
        number::push(output, item.head.cas);
        output.extend_from_slice(b" fetch=no cls=1 size=");
        number::push(
            output,
            (key.len() + item.head.len() + item.data.len()) as u64,
        );
        output.extend_from_slice(b"\r\n");
    })?;
    if !told {
        refuse(output, "EN");
    }
    Ok(())
}
