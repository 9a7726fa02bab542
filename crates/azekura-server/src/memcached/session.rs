//! One connection's side of the protocol: which protocol it speaks, and what of it is unfinished.
//!
//! [`Session::serve`] is given what has arrived and not been consumed, and takes as many requests as are whole. A request
//! that is not whole stays in the caller's buffer, except where that could make the buffer large: data of more than 4 KiB
//! is taken as it comes, into a buffer of its own that grows with what arrived, not with what was announced; keys of an
//! endless `get` are answered as they come; refused data passes by. So 8 KiB of room for what was not consumed are enough.
//!
//! ```text
//!   Nothing --- set with long data ----> Collect --- all there ---> Nothing
//!      |------- refused data ----------> Discard --- passed by ---> Nothing
//!      |------- a get, output full ----> Keys ------ its line's end -> Nothing
//!      `------- dump, stats ... -------> Walk ------ the last record -> Nothing
//! ```
//!
//! It knows no sockets and never waits, but for what the engine does.

use std::sync::Arc;

use memchr::memchr;

use super::execute::{Hand, New, Stored};
use super::gets::{self, Open};
use super::meta;
use super::service::Service;
use super::stats::Count;
use super::text::{self, Command, Mode, Store};
use crate::item::Head;

/// What a connection came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A stream between hosts.
    Tcp,
    /// A stream within a host.
    Unix,
    /// An encrypted stream.
    Tls,
    /// Datagrams: each call of `serve` is given one, and what is not whole in it is dropped.
    Udp,
}

/// What `serve` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Bytes at the front of the input that are done with.
    pub consumed: usize,
    /// What comes next.
    pub next: Next,
    /// Whether the output must not be sent before [`Service::sync`] has returned without an error. One call of it is
    /// enough for all sessions that were served before it; if it fails, these connections are to be closed instead.
    pub must_sync: bool,
}

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More input: with fewer bytes than these behind the unconsumed ones, nothing happens.
    More {
        /// At least 1.
        at_least: usize,
    },
    /// The output to be written: there is more to say, also if no input comes.
    Yield,
    /// The end: the connection is closed once the output was written.
    Close,
}

/// Data longer than this is taken as it comes.
const COLLECT_MIN: usize = 4 << 10;

/// A step of a session.
pub(super) enum Step {
    /// So many bytes are done with; look again.
    On(usize),
    /// So many bytes more are needed.
    More(usize),
    /// The output is full.
    Yield(usize),
    /// It is over.
    Close(usize),
}

/// What is unfinished.
#[derive(Debug)]
pub(super) enum Doing {
    Nothing,
    /// So many bytes pass by.
    Discard(u64),
    /// A long value is coming.
    Collect(Box<Collect>),
    /// Keys of a `get` are coming.
    Keys(Open),
}

/// A line whose data is coming.
#[derive(Debug)]
pub(super) struct Collect {
    /// The line, without its end.
    line: Vec<u8>,
    /// What came of the data and the end of line behind it.
    data: Vec<u8>,
    /// Bytes that are to come.
    left: usize,
}

/// One connection's side of the protocol. See the module's text.
#[derive(Debug)]
pub struct Session {
    transport: Transport,
    doing: Doing,
    hand: Hand,
}

impl Session {
    /// A session of a connection that was just made.
    pub fn new(service: Arc<Service>, transport: Transport) -> Self {
        Self {
            transport,
            doing: Doing::Nothing,
            hand: Hand::new(service),
        }
    }

    /// Takes whole requests from the front of `input` and appends their answers to `output`, until there is none, the
    /// output is full, or the session is over.
    ///
    /// Answers are in the order of the requests. A call with the output full does nothing.
    pub fn serve(&mut self, input: &[u8], output: &mut Vec<u8>) -> Served {
        let hand = &mut self.hand;
        hand.now = hand.service.now();
        hand.must_sync = false;
        let limit = hand.service.settings.output_max;
        let written = output.len();
        let mut at = 0;
        let next = loop {
            if output.len() >= limit {
                self.hand.tally.one(Count::ConnYields);
                break Next::Yield;
            }
            let rest = input.get(at..).unwrap_or_default();
            match self.step(rest, output) {
                Step::On(consumed) => at += consumed,
                Step::More(at_least) => break Next::More { at_least },
                Step::Yield(consumed) => {
                    at += consumed;
                    self.hand.tally.one(Count::ConnYields);
                    break Next::Yield;
                }
                Step::Close(consumed) => {
                    at += consumed;
                    break Next::Close;
                }
            }
        };
        if self.transport == Transport::Udp && next != Next::Yield {
            self.doing = Doing::Nothing;
        }
        let hand = &mut self.hand;
        hand.tally.add(Count::BytesRead, at as u32);
        hand.tally
            .add(Count::BytesWritten, (output.len() - written) as u32);
        hand.service.stats.take(&mut hand.tally);
        Served {
            consumed: at,
            next,
            must_sync: hand.must_sync,
        }
    }

    fn step(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Step {
        match &mut self.doing {
            Doing::Nothing => self.line(rest, output),
            Doing::Discard(left) => {
                let passed = (rest.len() as u64).min(*left);
                *left -= passed;
                if *left == 0 {
                    self.doing = Doing::Nothing;
                } else if passed == 0 {
                    return Step::More(1);
                }
                Step::On(passed as usize)
            }
            Doing::Collect(collect) => {
                let part = rest.get(..collect.left).unwrap_or(rest);
                if part.is_empty() {
                    return Step::More(1);
                }
                if collect.data.try_reserve(part.len()).is_err() {
                    let left = collect.left as u64;
                    self.doing = Doing::Discard(left);
                    self.hand.tally.one(Count::StoreNoMemory);
                    push_line(output, "SERVER_ERROR out of memory storing object");
                    return Step::On(0);
                }
                collect.data.extend_from_slice(part);
                collect.left -= part.len();
                let consumed = part.len();
                if collect.left == 0
                    && let Doing::Collect(whole) =
                        std::mem::replace(&mut self.doing, Doing::Nothing)
                {
                    store(&mut self.hand, &whole.line, &whole.data, output);
                }
                Step::On(consumed)
            }
            Doing::Keys(open) => {
                let open = *open;
                let run = gets::run(&mut self.hand, Some(open), rest, output);
                self.doing = run.open.map_or(Doing::Nothing, Doing::Keys);
                if run.consumed == 0 && output.len() < self.hand.service.settings.output_max {
                    Step::More(1)
                } else {
                    Step::On(run.consumed)
                }
            }
        }
    }

    /// Takes the line at the front of `rest`, and the data behind it.
    fn line(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Step {
        let Some(len) = memchr(b'\n', rest) else {
            return self.long_line(rest);
        };
        let line = text::without_end(rest.get(..len).unwrap_or_default());
        let end = len + 1;
        let hand = &mut self.hand;
        match text::parse(line) {
            Command::Read { exptime: None, .. } | Command::Meta(b'g', _) => {
                let run = gets::run(hand, None, rest, output);
                self.doing = run.open.map_or(Doing::Nothing, Doing::Keys);
                if run.consumed > 0 || self.hand.service.settings.output_max <= output.len() {
                    return Step::On(run.consumed);
                }
                // An `mg` that does more than to read.
                self.other(text::parse(line), end, output)
            }
            Command::Store(asked) => self.store(&asked, line, rest, end, output),
            Command::Meta(b's', words) => match meta::set_line(words) {
                meta::SetLine::Refused(answer) => {
                    push_line(output, answer);
                    Step::On(end)
                }
                meta::SetLine::Swallow { len, answer } => {
                    push_line(output, answer);
                    self.discard(end, len)
                }
                meta::SetLine::Store { len } => match meta::refuse_too_large(hand, words, len) {
                    Ok(false) => self.with_data(len, line, rest, end, output),
                    refused => {
                        let answer = "SERVER_ERROR object too large for cache";
                        push_outcome(hand, refused.map(|_| answer), output);
                        self.discard(end, len)
                    }
                },
            },
            command => self.other(command, end, output),
        }
    }

    /// A line that has not ended: a `get` may be as long as it likes, others are a mistake.
    fn long_line(&mut self, rest: &[u8]) -> Step {
        if rest.len() <= text::LINE_LEN_MAX {
            return Step::More(1);
        }
        let (cas, len) = match rest {
            [b'g', b'e', b't', b' ', ..] => (false, 4),
            [b'g', b'e', b't', b's', b' ', ..] => (true, 5),
            _ => return Step::Close(0),
        };
        self.doing = Doing::Keys(Open {
            cas,
            is_refused: false,
            has_keys: false,
        });
        Step::On(len)
    }

    /// Refuses an item for its size: `len` bytes of data and an end of line pass by.
    fn discard(&mut self, end: usize, len: usize) -> Step {
        self.doing = Doing::Discard(len as u64 + 2);
        Step::On(end)
    }

    /// A line with data behind it.
    fn store(
        &mut self,
        asked: &Store<'_>,
        line: &[u8],
        rest: &[u8],
        end: usize,
        output: &mut Vec<u8>,
    ) -> Step {
        let hand = &mut self.hand;
        if !hand.fits(asked.key.len(), asked.flags, asked.len) {
            let refused = hand.refuse_too_large(asked.key);
            if !asked.noreply {
                let answer = "SERVER_ERROR object too large for cache";
                push_outcome(hand, refused.map(|()| answer), output);
            }
            return self.discard(end, asked.len);
        }
        self.with_data(asked.len, line, rest, end, output)
    }

    /// Stores if all data is there; else waits for it, or takes what there is.
    fn with_data(
        &mut self,
        len: usize,
        line: &[u8],
        rest: &[u8],
        end: usize,
        output: &mut Vec<u8>,
    ) -> Step {
        let whole = end + len + 2;
        if let Some(data) = rest.get(end..whole) {
            store(&mut self.hand, line, data, output);
            return Step::On(whole);
        }
        if len <= COLLECT_MIN {
            return Step::More(whole - rest.len());
        }
        self.doing = Doing::Collect(Box::new(Collect {
            line: line.to_vec(),
            data: Vec::new(),
            left: len + 2,
        }));
        Step::On(end)
    }

    fn other(&mut self, command: Command<'_>, end: usize, output: &mut Vec<u8>) -> Step {
        let hand = &mut self.hand;
        match command {
            Command::Swallow { len, answer } => {
                if let Some(answer) = answer {
                    push_line(output, answer);
                }
                return self.discard(end, len);
            }
            Command::Refused(answer) => {
                if let Some(answer) = answer {
                    push_line(output, answer);
                }
            }
            Command::Delete { key, noreply } => {
                let removed = hand.remove(key, None).map(|removed| match removed {
                    Some(_) => "DELETED",
                    None => "NOT_FOUND",
                });
                answer(hand, removed, noreply, output);
            }
            Command::Version => {
                push_line(
                    output,
                    concat!("VERSION 1.6.45-azekura-", env!("CARGO_PKG_VERSION")),
                );
            }
            Command::Meta(letter, words) => {
                if let Err(error) = meta::execute(hand, letter, words, output) {
                    push_outcome(hand, Err(error), output);
                }
            }
            Command::Quit | Command::Close => return Step::Close(end),
            _ => push_line(output, "ERROR"),
        }
        Step::On(end)
    }
}

pub(super) fn push_line(output: &mut Vec<u8>, line: &str) {
    output.extend_from_slice(line.as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// Appends what came of a command: a line, or the engine's error.
pub(super) fn push_outcome(hand: &mut Hand, outcome: azekura::Result<&str>, output: &mut Vec<u8>) {
    match outcome {
        Ok(line) => push_line(output, line),
        Err(error) => push_line(output, &hand.error_line(&error)),
    }
}

/// As `push_outcome`, unless the client wants no answer.
pub(super) fn answer(
    hand: &mut Hand,
    outcome: azekura::Result<&str>,
    noreply: bool,
    output: &mut Vec<u8>,
) {
    if !noreply {
        push_outcome(hand, outcome, output);
    }
}

/// Executes a line with its data, which is whole.
fn store(hand: &mut Hand, line: &[u8], data: &[u8], output: &mut Vec<u8>) {
    let is_ended = data.ends_with(b"\r\n");
    let data = data.get(..data.len().saturating_sub(2)).unwrap_or_default();
    match text::parse(line) {
        Command::Store(asked) if is_ended => {
            let expires = hand.service.expires(asked.exptime);
            let stored = if asked.mode == Mode::Set {
                hand.tally.one(Count::CmdSet);
                let head = Head {
                    flags: asked.flags,
                    expires,
                    ..Head::default()
                };
                hand.put(asked.key, head, data).map(|_| "STORED")
            } else {
                let new = New {
                    mode: asked.mode,
                    key: asked.key,
                    flags: asked.flags,
                    expires,
                    data,
                    compare: (asked.mode == Mode::Cas).then_some(asked.cas),
                    version: None,
                    may_be_stale: false,
                    vivify: false,
                    is_binary_key: false,
                };
                hand.store(&new).map(|stored| match stored {
                    Stored::Done { .. } => "STORED",
                    Stored::Refused => "NOT_STORED",
                    Stored::Exists => "EXISTS",
                    Stored::NotFound => "NOT_FOUND",
                })
            };
            answer(hand, stored, asked.noreply, output);
        }
        Command::Store(asked) => {
            if !asked.noreply {
                push_line(output, "CLIENT_ERROR bad data chunk");
            }
        }
        Command::Meta(_, words) if is_ended => {
            if let Err(error) = meta::set(hand, words, data, output) {
                push_outcome(hand, Err(error), output);
            }
        }
        _ => push_line(output, "CLIENT_ERROR bad data chunk"),
    }
}
