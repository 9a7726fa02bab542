//! One connection's side of the protocol: which protocol it speaks, and what of it is unfinished.
//!
//! [`Session::serve`] is given what has arrived and not been consumed, and takes as many requests as are whole. A request
//! that is not whole stays in the caller's buffer, except where that could make the buffer large: data of more than 4 KiB
//! is taken as it comes, into a buffer of its own that grows with what arrived, not with what was announced; keys of an
//! endless `get` are answered as they come; refused data is discarded. So 8 KiB of buffer for what was not consumed suffice.
//!
//! ```text
//!   Nothing --- set with long data ----> Collect --- all there ---> Nothing
//!      |------- refused data ----------> Discard --- discarded ---> Nothing
//!      |------- a get, output full ----> Keys ------ its line's end -> Nothing
//!      |------- dump, stats ... -------> Walk ------ the last record -> Nothing
//!      |------- a failed login --------> Penalty --- a second later --> Nothing
//!      `------- watch -----------------> Watch ----- until the connection ends
//! ```
//!
//! It knows no sockets and never waits, but for what the engine does.

mod lines;
mod packets;

use std::net::IpAddr;
use std::sync::Arc;

use crate::memcached::command::answer::{push_line, push_outcome};
use crate::memcached::command::executor::Executor;
use crate::memcached::command::gets::{self, Open};
use crate::memcached::command::text;
use crate::memcached::command::walk::{Piece, Walk};
use crate::memcached::operate::client_info::{ClientInfo, CloseReason};
use crate::memcached::operate::clients::{ClientEntry, State};
use crate::memcached::operate::counters::Count;
use crate::memcached::operate::latency::WorkCounts;
use crate::memcached::operate::watchers::{PAUSE_MS, Watch};
use crate::memcached::protocol::binary;
use crate::memcached::service::Service;

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
    /// The requests that were served, for measurements.
    pub did: WorkCounts,
}

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More input: with fewer bytes than these after the unconsumed ones, nothing happens.
    More {
        /// At least 1.
        at_least: usize,
    },
    /// The output to be written: there is more to send, also if no input comes.
    Yield,
    /// The output to be written, if there is any, and so many milliseconds to pass, 0 for others to have their turn: then
    /// there is more to send, also if no input comes.
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
pub(super) const CREDENTIALS_LEN_MAX: usize = 512;

/// How long a connection waits after a failed login, in milliseconds.
const PENALTY_MS: u64 = 1000;

/// A step of a session.
pub(super) enum Step {
    /// So many bytes are done with; look again.
    On(usize),
    /// So many bytes more are needed.
    More(usize),
    /// There is more to send after so many milliseconds.
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
    /// A walk over records is under way.
    Walk(Box<Walk>),
    /// Events are sent, until the connection ends.
    Watch(Watch),
    /// A login failed: nothing is served for a while. Whether that began.
    Penalty(bool),
}

/// A line whose data is coming.
#[derive(Debug)]
pub(super) struct Collect {
    /// The line, without its end.
    line: Vec<u8>,
    /// The part of the data and its end of line that has arrived.
    data: Vec<u8>,
    /// Bytes that are to come.
    left: usize,
}

/// One connection's side of the protocol. See the module's text.
#[derive(Debug)]
pub struct Session {
    transport: Transport,
    doing: Doing,
    executor: Executor,
    /// Which protocol it speaks; `None`: nothing has arrived yet.
    is_binary: Option<bool>,
    /// Whether it may use the server.
    is_admitted: bool,
    /// Whether the line of a request has come, and its data has not.
    awaits_data: bool,
    /// The address of the client, if it has one.
    ip: Option<IpAddr>,
    /// Its entry in `stats conns`.
    client: Option<ClientEntry>,
}

impl Session {
    /// A session of a connection that was just made.
    pub fn new(service: Arc<Service>, transport: Transport) -> Self {
        Self {
            transport,
            doing: Doing::Nothing,
            is_binary: None,
            is_admitted: !service.has_passwords(),
            awaits_data: false,
            ip: None,
            executor: Executor::new(service),
            client: None,
        }
    }

    /// The session, shown by `stats conns` as a client's from there.
    #[must_use]
    pub fn from(mut self, place: ClientInfo) -> Self {
        self.ip = place.ip;
        let client = self.executor.service.client(place);
        self.executor.number = client.number();
        self.client = Some(client);
        self
    }

    /// Takes whole requests from the front of `input` and appends their answers to `output`, until there is none, the
    /// output is full, or the session is over.
    ///
    /// Answers are in the order of the requests. A call with the output full does nothing.
    pub fn serve(&mut self, input: &[u8], output: &mut Vec<u8>) -> Served {
        let executor = &mut self.executor;
        executor.now = executor.service.now();
        executor.must_sync = false;
        executor.forget_versions();
        let limit = executor.service.settings.output_max;
        let written = output.len();
        self.awaits_data = false;
        let mut at = 0;
        let next = loop {
            if output.len() >= limit {
                self.executor.tally.one(Count::ConnYields);
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
        let executor = &mut self.executor;
        executor.tally.add(Count::BytesRead, at as u32);
        executor
            .tally
            .add(Count::BytesWritten, (output.len() - written) as u32);
        let did = executor.tally.did(output.len() > written);
        executor.service.counters.take(&mut executor.tally);
        if let Some(client) = &mut self.client {
            client.note(state(&self.doing, next, self.awaits_data), executor.now);
        }
        Served {
            did,
            consumed: at,
            next,
            must_sync: executor.must_sync,
        }
    }

    /// Trades the buffer that records are built in for another; nothing is in it between two calls.
    pub(crate) fn trade(&mut self, room: &mut Vec<u8>) {
        std::mem::swap(&mut self.executor.scratch, room);
    }

    /// Bytes held of a request that has begun and not ended; `None`: there is none.
    pub fn unfinished(&self) -> Option<usize> {
        match &self.doing {
            Doing::Nothing | Doing::Penalty(_) => None,
            Doing::Collect(collect) => Some(collect.line.capacity() + collect.data.capacity()),
            Doing::Walk(walk) => Some(walk.held()),
            // What waits for a watcher is bounded there: it grows by what others do.
            Doing::Discard(_) | Doing::Keys(_) | Doing::Watch(_) => Some(0),
        }
    }

    /// Whether it watches, and so answers no requests.
    pub(crate) fn is_watching(&self) -> bool {
        matches!(self.doing, Doing::Watch(_))
    }

    /// Sets why the server drops the connection, where neither the client nor the protocol closes it.
    pub(crate) fn set_close_reason(&mut self, reason: CloseReason) {
        if let Some(client) = &mut self.client {
            client.set_close_reason(reason);
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
            Doing::Walk(walk) => match walk.step(&mut self.executor, output) {
                Ok(Piece::More(millis)) => Step::Pause(millis),
                Ok(Piece::End) => {
                    self.doing = Doing::Nothing;
                    Step::On(0)
                }
                Err(error) => {
                    self.doing = Doing::Nothing;
                    push_outcome(&mut self.executor, Err(error), output);
                    Step::On(0)
                }
            },
            Doing::Watch(watch) => {
                watch.take(output);
                Step::Pause(PAUSE_MS)
            }
            Doing::Penalty(began) => {
                if !std::mem::replace(began, true) {
                    return Step::Pause(PENALTY_MS);
                }
                self.doing = Doing::Nothing;
                Step::On(0)
            }
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
                // Where there is none, room for as much again, but never for more than the whole.
                let lacks_room = collect.data.capacity() - collect.data.len() < part.len();
                let room = part.len().max(collect.left.min(collect.data.len()));
                if lacks_room && collect.data.try_reserve_exact(room).is_err() {
                    let left = collect.left as u64;
                    self.doing = Doing::Discard(left);
                    self.executor.tally.one(Count::StoreNoMemory);
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
                        text::collected(&mut self.executor, &line, &data, output);
                    }
                }
                Step::On(consumed)
            }
            Doing::Keys(open) => {
                let open = *open;
                let executor = &mut self.executor;
                let run = match open.touch {
                    Some(expires) => gets::touch(executor, open, expires, rest, output),
                    None => gets::run(executor, Some(open), None, rest, output),
                };
                self.doing = run.open.map_or(Doing::Nothing, Doing::Keys);
                if run.consumed == 0 && output.len() < self.executor.service.settings.output_max {
                    Step::More(1)
                } else {
                    Step::On(run.consumed)
                }
            }
        }
    }

    /// Authenticates the connection; returns whether that succeeded. After a failure the connection waits a second, and
    /// an address with many failures is refused for a minute, whatever it brings.
    pub(super) fn try_admit(&mut self, user: &[u8], password: &[u8]) -> bool {
        let executor = &mut self.executor;
        executor.tally.one(Count::AuthCmds);
        let logins = &executor.service.logins;
        let now = executor.service.now();
        let is_blocked = logins.is_blocked(self.ip, now);
        self.is_admitted = !is_blocked && executor.service.admits(user, password);
        if !self.is_admitted {
            executor.tally.one(Count::AuthErrors);
            logins.failed(self.ip, user, now, is_blocked);
            if self.transport != Transport::Udp {
                self.doing = Doing::Penalty(false);
            }
        }
        self.is_admitted
    }

    /// Whether it must log in before it may use the server.
    pub(crate) fn must_log_in(&self) -> bool {
        !self.is_admitted
    }
}

/// What a connection does, by memcached's words.
#[inline]
fn state(doing: &Doing, next: Next, awaits_data: bool) -> State {
    match (doing, next) {
        (Doing::Nothing, Next::More { .. }) if awaits_data => State::Collect,
        (Doing::Walk(_) | Doing::Watch(_), _) => State::Walk,
        (Doing::Collect(_), _) => State::Collect,
        (Doing::Discard(_), _) => State::Swallow,
        (_, Next::Yield) => State::Write,
        _ => State::Read,
    }
}
