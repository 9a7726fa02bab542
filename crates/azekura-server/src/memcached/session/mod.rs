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
use std::sync::atomic::Ordering;

use memchr::memchr;

use super::binary::{self, After, HEADER_LEN, Header, Status};
use super::execute::Hand;
use super::gets::{self, Open};
use super::latency::Did;
use super::service::Service;
use super::stats::Count;
use super::text::{self, Command, Store, Words};
use super::walk::{Piece, Walk};
use super::{admin, classic, meta, number, sets};

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
    /// What was asked for, for those who measure.
    pub did: Did,
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
    /// The output to be written, if there is any, and so many milliseconds to pass, 0 for others to have their turn: then
    /// there is more to say, also if no input comes.
    Pause {
        /// How long.
        millis: u64,
    },
    /// The end: the connection is closed once the output was written.
    Close,
}

/// Data longer than this is taken as it comes.
const COLLECT_MIN: usize = 4 << 10;

/// Most bytes of a user and a password.
pub(super) const CREDENTIALS_LEN_MAX: u64 = 512;

/// A step of a session.
pub(super) enum Step {
    /// So many bytes are done with; look again.
    On(usize),
    /// So many bytes more are needed.
    More(usize),
    /// There is more to say after so many milliseconds.
    Pause(u64),
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
    /// Records are told.
    Walk(Box<Walk>),
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
    /// Which protocol it speaks; `None`: nothing was said yet.
    is_binary: Option<bool>,
    /// Whether it may use the server.
    is_admitted: bool,
}

impl Session {
    /// A session of a connection that was just made.
    pub fn new(service: Arc<Service>, transport: Transport) -> Self {
        Self {
            transport,
            doing: Doing::Nothing,
            is_binary: None,
            is_admitted: !service.has_passwords(),
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
        hand.forget_versions();
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
                Step::Pause(millis) => break Next::Pause { millis },
                Step::Close(consumed) => {
                    at += consumed;
                    break Next::Close;
                }
            }
        };
        if self.transport == Transport::Udp && matches!(next, Next::More { .. }) {
            (self.doing, self.is_binary) = (Doing::Nothing, None);
        }
        let hand = &mut self.hand;
        hand.tally.add(Count::BytesRead, at as u32);
        hand.tally
            .add(Count::BytesWritten, (output.len() - written) as u32);
        let did = hand.tally.did(output.len() > written);
        hand.service.stats.take(&mut hand.tally);
        Served {
            did,
            consumed: at,
            next,
            must_sync: hand.must_sync,
        }
    }

    /// Trades the buffer that records are built in for another; nothing is in it between two calls.
    pub(crate) fn trade(&mut self, room: &mut Vec<u8>) {
        std::mem::swap(&mut self.hand.scratch, room);
    }

    /// Bytes held of a request that has begun and not ended; `None`: there is none.
    pub fn unfinished(&self) -> Option<usize> {
        match &self.doing {
            Doing::Nothing => None,
            Doing::Collect(collect) => Some(collect.line.capacity() + collect.data.capacity()),
            Doing::Discard(_) | Doing::Keys(_) | Doing::Walk(_) => Some(0),
        }
    }

    /// The line whose data is coming, or the front of the packet.
    pub(crate) fn begun(&self) -> Option<&[u8]> {
        match &self.doing {
            Doing::Collect(collect) => Some(&collect.line),
            _ => None,
        }
    }

    fn step(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Step {
        match &mut self.doing {
            Doing::Nothing => {
                let Some(first) = rest.first() else {
                    return Step::More(1);
                };
                if *self.is_binary.get_or_insert(*first == binary::REQUEST) {
                    self.packets(rest, output)
                } else {
                    self.line(rest, output)
                }
            }
            Doing::Walk(walk) => match walk.tell(&mut self.hand, output) {
                Ok(Piece::More(millis)) => Step::Pause(millis),
                Ok(Piece::End) => {
                    self.doing = Doing::Nothing;
                    Step::On(0)
                }
                Err(error) => {
                    self.doing = Doing::Nothing;
                    push_outcome(&mut self.hand, Err(error), output);
                    Step::On(0)
                }
            },
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
                    let Collect { line, data, .. } = *whole;
                    if self.is_binary == Some(true) {
                        self.packet(&line, &data, output);
                    } else {
                        classic::store(&mut self.hand, &line, &data, output);
                    }
                }
                Step::On(consumed)
            }
            Doing::Keys(open) => {
                let open = *open;
                let hand = &mut self.hand;
                let run = match open.touch {
                    Some(expires) => gets::touch(hand, open, expires, rest, output),
                    None => gets::run(hand, Some(open), rest, output),
                };
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
        if !self.is_admitted {
            return self.admit(line, rest, end, output);
        }
        let hand = &mut self.hand;
        match text::parse(line) {
            Command::Read {
                keys: [b' ', key @ ..],
                cas,
                exptime: None,
            } if end == rest.len() && memchr(b' ', key).is_none() => {
                gets::single(hand, key, cas, output);
                Step::On(end)
            }
            Command::Read { exptime: None, .. } | Command::Meta(b'g', _) => {
                let run = gets::run(hand, None, rest, output);
                self.doing = run.open.map_or(Doing::Nothing, Doing::Keys);
                if run.consumed > 0 || self.hand.service.settings.output_max <= output.len() {
                    return Step::On(run.consumed);
                }
                // An `mg` that does more than to read.
                self.other(text::parse(line), rest, end, output)
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
            command => self.other(command, rest, end, output),
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
            touch: None,
        });
        Step::On(len)
    }

    /// Takes the packets at the front of `rest`.
    fn packets(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Step {
        let Some(header) = Header::decode(rest) else {
            return match rest.first() {
                Some(&binary::REQUEST) => Step::More(HEADER_LEN - rest.len()),
                _ => Step::Close(0),
            };
        };
        let front = header.front_len();
        let Some(len) = header.value_len() else {
            binary::refuse(output, &header, Status::Unknown);
            return Step::Close(HEADER_LEN);
        };
        if !self.is_admitted && !header.is_open_to_all() {
            binary::refuse(output, &header, Status::NotAdmitted);
            return Step::Close(HEADER_LEN);
        }
        if header.is_read() {
            let consumed = gets::packets(&mut self.hand, rest, output);
            if consumed > 0 {
                return Step::On(consumed);
            }
        }
        if !binary::is_known(&header, self.hand.service.has_passwords()) {
            binary::refuse(output, &header, Status::Unknown);
            self.doing = Doing::Discard(header.body_len as u64);
            return Step::On(HEADER_LEN);
        }
        if header.key_len > text::KEY_LEN_MAX {
            binary::refuse(output, &header, Status::Invalid);
            return Step::Close(HEADER_LEN);
        }
        let is_long = len > COLLECT_MIN && !header.stores();
        if !binary::is_sound(&header) || is_long {
            binary::refuse(output, &header, Status::Invalid);
            return Step::Close(HEADER_LEN);
        }
        let Some(packet) = rest.get(..front) else {
            return Step::More(front - rest.len());
        };
        if header.stores() && binary::refuse_too_large(&mut self.hand, &header, packet, output) {
            self.doing = Doing::Discard(len as u64);
            return Step::On(front);
        }
        if let Some(value) = rest.get(front..front + len) {
            return if self.packet(packet, value, output) {
                Step::On(front + len)
            } else {
                Step::Close(front + len)
            };
        }
        if len <= COLLECT_MIN {
            return Step::More(front + len - rest.len());
        }
        self.doing = Doing::Collect(Box::new(Collect {
            line: packet.to_vec(),
            data: Vec::new(),
            left: len,
        }));
        Step::On(front)
    }

    /// Executes a packet that is whole; whether the connection stays.
    fn packet(&mut self, packet: &[u8], value: &[u8], output: &mut Vec<u8>) -> bool {
        let Some(header) = Header::decode(packet) else {
            return false;
        };
        match binary::execute(&mut self.hand, &header, packet, value, output) {
            After::On => true,
            After::Close => false,
            After::Admit => {
                let found = binary::credentials(&header, packet, value);
                let is_admitted =
                    found.is_some_and(|(user, password)| self.try_admit(user, password));
                binary::admitted(&header, is_admitted, output);
                true
            }
        }
    }

    /// Refuses an item for its size: `len` bytes of data and an end of line pass by.
    fn discard(&mut self, end: usize, len: usize) -> Step {
        self.doing = Doing::Discard(len as u64 + 2);
        Step::On(end)
    }

    /// A line of somebody who has not said yet who he is: `set k f e len` with a user and a password as data, or refused.
    fn admit(&mut self, line: &[u8], rest: &[u8], end: usize, output: &mut Vec<u8>) -> Step {
        let mut words = Words(line);
        let is_set = words.next() == Some(b"set");
        let len = words.nth(3).and_then(number::unsigned);
        let Some(len) = len.filter(|len| is_set && *len <= text::DATA_LEN_MAX) else {
            push_line(output, "CLIENT_ERROR unauthenticated");
            return Step::On(end);
        };
        if len > CREDENTIALS_LEN_MAX {
            push_line(output, "CLIENT_ERROR auth token too long");
            return self.discard(end, len as usize);
        }
        let whole = end + len as usize + 2;
        let Some(data) = rest.get(end..whole) else {
            return Step::More(whole - rest.len());
        };
        let Some(data) = data.strip_suffix(b"\r\n") else {
            push_line(output, "CLIENT_ERROR bad command line termination");
            return Step::On(whole);
        };
        let mut words = Words(data);
        let (Some(user), Some(password)) = (words.next(), words.next()) else {
            push_line(output, "CLIENT_ERROR bad authentication token format");
            return Step::On(whole);
        };
        push_line(
            output,
            if self.try_admit(user, password) {
                "STORED"
            } else {
                "CLIENT_ERROR authentication failure"
            },
        );
        Step::On(whole)
    }

    /// Whether the user may use the server; if so, he may from now on.
    pub(super) fn try_admit(&mut self, user: &[u8], password: &[u8]) -> bool {
        let hand = &mut self.hand;
        hand.tally.one(Count::AuthCmds);
        self.is_admitted = hand.service.admits(user, password);
        if !self.is_admitted {
            hand.tally.one(Count::AuthErrors);
        }
        self.is_admitted
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
            let refused = hand.refuse_too_large(asked.key, asked.mode == text::Mode::Set);
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
        if rest
            .get(whole..)
            .is_some_and(|more| more.starts_with(b"set "))
            && rest.starts_with(b"set ")
        {
            let consumed = sets::run(&mut self.hand, rest, output);
            if consumed > 0 {
                return Step::On(consumed);
            }
        }
        if let Some(data) = rest.get(end..whole) {
            classic::store(&mut self.hand, line, data, output);
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

    fn other(
        &mut self,
        command: Command<'_>,
        rest: &[u8],
        end: usize,
        output: &mut Vec<u8>,
    ) -> Step {
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
            Command::Read { keys, cas, exptime } => {
                // The line is whole, and its keys stand at its end.
                let line = text::without_end(rest.get(..end - 1).unwrap_or_default());
                self.doing = Doing::Keys(Open {
                    cas,
                    is_refused: false,
                    has_keys: true,
                    touch: exptime.map(|time| hand.service.expires(time)),
                });
                return Step::On(line.len() - keys.len());
            }
            Command::Count {
                key,
                delta,
                up,
                noreply,
            } => classic::count(hand, key, delta, up, noreply, output),
            Command::Touch {
                key,
                exptime,
                noreply,
            } => {
                let expires = hand.service.expires(exptime);
                let touched = hand.touch(key, expires, |_| {});
                let line = touched.map(|found| if found { "TOUCHED" } else { "NOT_FOUND" });
                answer(hand, line, noreply, output);
            }
            Command::Flush { delay, noreply } => {
                let flushed = flush(hand, delay);
                answer(hand, flushed, noreply, output);
            }
            Command::Verbosity { level, noreply } => {
                hand.service.verbosity.store(level, Ordering::Relaxed);
                answer(hand, Ok("OK"), noreply, output);
            }
            Command::MemoryLimit { megabytes, noreply } => {
                let line = classic::memory_limit(hand, megabytes);
                answer(hand, Ok(line), noreply, output);
            }
            Command::ShutDown { graceful } => {
                let outside = hand.service.outside();
                let Some(outside) = outside.filter(|_| hand.service.settings.shutdown_enabled)
                else {
                    push_line(output, "SERVER_ERROR: shutdown not enabled");
                    return Step::On(end);
                };
                let Some(graceful) = graceful else {
                    push_line(output, "CLIENT_ERROR invalid shutdown mode");
                    return Step::On(end);
                };
                outside.shut_down(graceful);
                return Step::Close(end);
            }
            Command::Stats(words) => classic::stats(hand, words, output),
            Command::Walk(what, words) => {
                let settings = &hand.service.settings;
                if !settings.dump_enabled {
                    push_line(output, "CLIENT_ERROR dump not allowed");
                    return Step::On(end);
                }
                match Walk::parse(what, words, settings.dump_bytes_per_second) {
                    Ok(walk) => self.doing = Doing::Walk(Box::new(walk)),
                    Err(answer) => push_line(output, answer),
                }
            }
            Command::Version => {
                output.extend_from_slice(b"VERSION ");
                push_line(output, admin::VERSION);
            }
            Command::Meta(letter, words) => {
                if let Err(error) = meta::execute(hand, letter, words, output) {
                    push_outcome(hand, Err(error), output);
                }
            }
            Command::Quit | Command::Close => return Step::Close(end),
            // It was executed with its data.
            Command::Store(_) => push_line(output, "ERROR"),
        }
        Step::On(end)
    }
}

/// `flush_all`.
pub(super) fn flush(hand: &mut Hand, delay: i64) -> azekura::Result<&'static str> {
    if !hand.service.settings.flush_enabled {
        return Ok("CLIENT_ERROR flush_all not allowed");
    }
    hand.tally.one(Count::CmdFlush);
    hand.wrote();
    let at = if delay > 0 {
        hand.service.expires(delay)
    } else {
        0
    };
    hand.service.flush(at).map(|()| "OK")
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
