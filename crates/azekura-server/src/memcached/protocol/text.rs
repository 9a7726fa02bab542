//! The grammar of the classic text protocol: a line to a [`Command`], borrowed from the buffer.
//!
//! A line is words between spaces, and ends with a line feed, before which a carriage return may stand. Any bytes are a
//! command or the answer that refuses them. Nothing is allocated. What a command means, and the data after a line, is
//! not known here.
//!
//! Where the releases of memcached differ, this is 1.6.45: an empty line, and a known command with too few words, are
//! "bad command line format" (1.6.18: `ERROR`); `delete k 10` deletes; a space before the command is an error; data of a
//! refused line is discarded as soon as its length could be read. `extstore` is `ERROR`, as where memcached was built
//! without; `delete`, `incr` and the like ignore more words than they know. Two answers differ from 1.6.45:
//!
//! - A `delete` with five words or more after the command is refused, as by 1.6.18. 1.6.45 takes the first for the key and
//!   ignores the rest, and so fails memccapable, the checker of libmemcached, which requires an error for `delete a b c d e`.
//! - Where a key of a `get` is too long, 1.6.45 sends an empty line after the error and drops answers that were to leave
//!   before it; here the error is one line, and nothing is dropped.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use memchr::memchr;

use crate::memcached::protocol::number::{int, loose, short, signed, unsigned};

/// Most bytes of a key.
pub const KEY_LEN_MAX: usize = 250;
/// A line, but for one of keys to get, has no more bytes.
pub(crate) const LINE_LEN_MAX: usize = 2048;
/// A shorter line, with its end, is an error whatever its contents.
pub(crate) const LINE_LEN_MIN: usize = 4;
/// Longest data a line may announce.
const DATA_LEN_MAX: usize = i32::MAX as usize - 2;

/// The answer to a line that is not as it should be.
pub(crate) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
pub(crate) const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";

/// How an item is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whatever is there.
    Set,
    /// Only if nothing is there.
    Add,
    /// Only if something is there.
    Replace,
    /// After what is there.
    Append,
    /// Before what is there.
    Prepend,
    /// Only over this version.
    Cas,
}

impl Mode {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::Cas => "cas",
        }
    }
}

/// A line `set`, `add`, `replace`, `append`, `prepend` or `cas`; its data follows, and an end of line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'i> {
    /// How.
    pub mode: Mode,
    /// The key, 1 to 250 bytes.
    pub key: &'i [u8],
    /// The client's flags.
    pub flags: u32,
    /// Time to live, as the client gave it.
    pub exptime: i64,
    /// Bytes of data.
    pub len: usize,
    /// The version that must be there, for `Mode::Cas`.
    pub cas: u64,
    /// Whether the client wants no answer.
    pub noreply: bool,
}

/// What a line asks for. Keys have 1 to 250 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<'i> {
    /// `get`, `gets`, `gat`, `gats`: the words that are keys, of which there is one at least and none is too long.
    Read {
        /// Keys between spaces.
        keys: &'i [u8],
        /// Whether versions are shown.
        cas: bool,
        /// The new time to live, for `gat` and `gats`.
        exptime: Option<i64>,
    },
    /// A line that data follows.
    Store(Store<'i>),
    /// A refused line whose data, of so many bytes, is to be discarded with its end of line.
    Swallow {
        /// Bytes of data.
        len: usize,
        /// The answer; `None`: the client wants none.
        answer: Option<&'static str>,
    },
    /// `delete`.
    Delete {
        /// The key.
        key: &'i [u8],
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Count {
        /// The key.
        key: &'i [u8],
        /// By how much.
        delta: u64,
        /// Whether upward.
        up: bool,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: &'i [u8],
        /// The new time to live.
        exptime: i64,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `flush_all`.
    Flush {
        /// When; 0: now.
        delay: i64,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `stats`, with the words after it.
    Stats(&'i [u8]),
    /// `verbosity`.
    Verbosity {
        /// How much.
        level: u32,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `cache_memlimit`.
    MemoryLimit {
        /// Mebibytes.
        megabytes: u64,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `shutdown`.
    ShutDown {
        /// Whether the connections may end first; `None`: there is no such way.
        graceful: Option<bool>,
        /// Whether the client wants no answer.
        noreply: bool,
    },
    /// `version`.
    Version,
    /// `quit`.
    Quit,
    /// `mg`, `ms`, `md`, `ma`, `mn`, `me`: the second letter, and the words after the command.
    Meta(u8, &'i [u8]),
    /// `keys`, `dump`, `dump_key`: the words after the command.
    Walk(WalkKind, &'i [u8]),
    /// `lru_crawler`, `slabs` and the like: the words after the command.
    Operate(Tool, &'i [u8]),
    /// A refused line; `None`: the client wants no answer.
    Refused(Option<&'static str>),
    /// A line that asks for another protocol, as in attacks that make browsers send requests to caches: the connection is closed.
    Close,
}

/// The kind of a walk over all records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkKind {
    /// `keys`.
    Keys,
    /// `dump`.
    Dump,
    /// `dump_key`.
    DumpKey,
    /// `lru_crawler metadump`.
    MetaDump,
    /// `lru_crawler mgdump`.
    MgDump,
    /// `stats cachedump`.
    CacheDump,
    /// `stats sizes`.
    Sizes,
}

/// What of the server an operator turns to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `lru_crawler`.
    Crawler,
    /// `lru`.
    Lru,
    /// `slabs`.
    Slabs,
    /// `watch`.
    Watch,
    /// `refresh_certs`.
    Certificates,
}

/// Words between spaces.
#[derive(Clone, Debug)]
pub(crate) struct Words<'i>(pub(crate) &'i [u8]);

impl<'i> Iterator for Words<'i> {
    type Item = &'i [u8];

    #[inline]
    fn next(&mut self) -> Option<&'i [u8]> {
        let mut rest = self.0;
        while let [b' ', after @ ..] = rest {
            rest = after;
        }
        if rest.is_empty() {
            self.0 = rest;
            return None;
        }
        let len = memchr(b' ', rest).unwrap_or(rest.len());
        let (word, after) = rest.split_at_checked(len)?;
        self.0 = after;
        Some(word)
    }
}

/// A line without its end, as memcached cuts it: one carriage return goes with the line feed, unless it is all there is.
#[inline]
pub(crate) fn without_end(line: &[u8]) -> &[u8] {
    match line {
        [rest @ .., b'\r'] if !rest.is_empty() => rest,
        whole => whole,
    }
}

/// What a line asks for; `line` is without its end.
#[inline]
pub fn parse(line: &[u8]) -> Command<'_> {
    let len = memchr(b' ', line).unwrap_or(line.len());
    let (word, rest) = line.split_at_checked(len).unwrap_or((line, b""));
    match word {
        b"get" => read(rest, false),
        b"set" => store(Mode::Set, rest),
        b"gets" => read(rest, true),
        b"mg" | b"ms" | b"md" | b"ma" | b"mn" | b"me" => {
            Command::Meta(word.get(1).copied().unwrap_or_default(), rest)
        }
        b"add" => store(Mode::Add, rest),
        b"replace" => store(Mode::Replace, rest),
        b"append" => store(Mode::Append, rest),
        b"prepend" => store(Mode::Prepend, rest),
        b"cas" => store(Mode::Cas, rest),
        _ => parse_other(word, rest, line),
    }
}

fn parse_other<'i>(word: &[u8], rest: &'i [u8], line: &'i [u8]) -> Command<'i> {
    let mut words = Words(rest);
    let first = words.next();
    let second = words.next();
    let is_quiet = is_quiet(line);
    let key = first.filter(|key| key.len() <= KEY_LEN_MAX);
    let refused = |answer| Command::Refused((!is_quiet).then_some(answer));
    // Where words are missing, `noreply` is not looked for.
    let wrong = match second {
        None => Command::Refused(Some(BAD_FORMAT)),
        Some(_) => refused(BAD_FORMAT),
    };
    match word {
        // Up to three words after the key mean nothing, but `noreply` at the end.
        b"delete" => match (key, words.nth(2)) {
            (Some(key), None) => Command::Delete {
                key,
                noreply: is_quiet,
            },
            _ => refused(BAD_FORMAT),
        },
        b"incr" | b"decr" => match (key, second) {
            (Some(key), Some(delta)) => match unsigned(delta) {
                Some(delta) => Command::Count {
                    key,
                    delta,
                    up: word == b"incr",
                    noreply: is_quiet,
                },
                None => refused("CLIENT_ERROR invalid numeric delta argument"),
            },
            _ => wrong,
        },
        b"touch" => match (key, second) {
            (Some(key), Some(time)) => match int(time) {
                Some(exptime) => Command::Touch {
                    key,
                    exptime: exptime.into(),
                    noreply: is_quiet,
                },
                None => refused(BAD_EXPTIME),
            },
            _ => wrong,
        },
        b"gat" | b"gats" => match (first, second) {
            (Some(time), Some(_)) => match (int(time), words_after(rest)) {
                (Some(exptime), keys) if !is_too_long(keys) => Command::Read {
                    keys,
                    cas: word == b"gats",
                    exptime: Some(exptime.into()),
                },
                (Some(_), _) => Command::Refused(Some(BAD_FORMAT)),
                (None, _) => Command::Refused(Some(BAD_EXPTIME)),
            },
            _ => Command::Refused(Some(BAD_FORMAT)),
        },
        b"flush_all" => match first.filter(|word| *word != b"noreply") {
            None => Command::Flush {
                delay: 0,
                noreply: is_quiet,
            },
            Some(time) => match int(time) {
                Some(delay) => Command::Flush {
                    delay: delay.into(),
                    noreply: is_quiet,
                },
                None => refused(BAD_EXPTIME),
            },
        },
        b"stats" => Command::Stats(rest),
        b"version" => Command::Version,
        b"quit" => Command::Quit,
        b"verbosity" => match first.and_then(short) {
            Some(level) => Command::Verbosity {
                level,
                noreply: is_quiet,
            },
            None => refused(BAD_FORMAT),
        },
        b"cache_memlimit" => match first.and_then(short) {
            Some(megabytes) => Command::MemoryLimit {
                megabytes: megabytes.into(),
                noreply: is_quiet,
            },
            None => refused("ERROR"),
        },
        b"shutdown" => Command::ShutDown {
            graceful: match first {
                None => Some(false),
                Some(b"graceful") => Some(true),
                Some(_) => None,
            },
            noreply: is_quiet,
        },
        b"keys" => Command::Walk(WalkKind::Keys, rest),
        b"dump" => Command::Walk(WalkKind::Dump, rest),
        b"dump_key" => Command::Walk(WalkKind::DumpKey, rest),
        b"lru_crawler" => Command::Operate(Tool::Crawler, rest),
        b"lru" => Command::Operate(Tool::Lru, rest),
        b"slabs" => Command::Operate(Tool::Slabs, rest),
        b"watch" => Command::Operate(Tool::Watch, rest),
        b"refresh_certs" => Command::Operate(Tool::Certificates, rest),
        _ if Words(line).last().is_some_and(|w| w.starts_with(b"HTTP/")) => Command::Close,
        _ => refused("ERROR"),
    }
}

/// Whether a line ends with the word of a client that wants no answer.
pub(crate) fn is_quiet(line: &[u8]) -> bool {
    Words(line).last() == Some(b"noreply")
}

/// What follows the first word.
fn words_after(rest: &[u8]) -> &[u8] {
    let mut words = Words(rest);
    words.next();
    words.0
}

/// Whether one of the keys is too long.
pub(crate) fn is_too_long(keys: &[u8]) -> bool {
    keys.len() > KEY_LEN_MAX && Words(keys).any(|key| key.len() > KEY_LEN_MAX)
}

#[inline]
fn read(keys: &[u8], cas: bool) -> Command<'_> {
    if is_too_long(keys) || Words(keys).next().is_none() {
        return Command::Refused(Some(BAD_FORMAT));
    }
    Command::Read {
        keys,
        cas,
        exptime: None,
    }
}

/// The bytes of data that a word announces.
#[inline]
pub(crate) fn data_len(word: &[u8]) -> Option<usize> {
    usize::try_from(int(word)?)
        .ok()
        .filter(|len| *len <= DATA_LEN_MAX)
}

/// `key flags exptime bytes [version] [noreply]`.
#[inline]
fn store(mode: Mode, rest: &[u8]) -> Command<'_> {
    let mut words = Words(rest);
    let (Some(key), Some(flags), Some(time), Some(bytes)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Command::Refused(Some(BAD_FORMAT));
    };
    let (mut version, mut last) = (Some(0), None);
    if mode == Mode::Cas {
        last = words.next();
        version = last.and_then(unsigned);
    }
    let noreply = words.last().or(last) == Some(b"noreply");
    let answer = (!noreply).then_some(BAD_FORMAT);
    // It is unknown where the next line begins: this is answered even with `noreply`.
    let Some(len) = data_len(bytes) else {
        return Command::Refused(Some(BAD_FORMAT));
    };
    // As memcached keeps them: what is beyond 32 bits is cut off.
    let flags = loose(flags).map(|flags| flags as u32);
    match (flags, signed(time), version) {
        (Some(flags), Some(exptime), Some(cas)) if key.len() <= KEY_LEN_MAX => {
            Command::Store(Store {
                mode,
                key,
                flags,
                // As memcached keeps it: what is beyond 32 bits is cut off.
                exptime: i64::from(exptime as i32),
                len,
                cas,
                noreply,
            })
        }
        _ => Command::Swallow { len, answer },
    }
}
