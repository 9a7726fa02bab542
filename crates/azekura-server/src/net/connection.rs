//! One connection: reads requests, has them served, writes the answers, and stops reading from a client that does not read.
//!
//! ```text
//!   socket --read--> input --serve--> output --write--> socket
//!            ^                                  |
//!            `---- not while answers are unsent-'
//! ```
//!
//! Bytes are read into a buffer that all connections of a thread share; a connection has one of its own only while it
//! holds a part of a request, or an answer that the socket did not take. So an idle one holds nothing, and one that
//! never reads holds the answers of one turn. A short request may be read before its turn, together with those of other
//! connections: see `worker`. What connections hold together is counted and bounded.
//!
//! The socket reports changes only (edges), so its state is kept until it is used up.
//! It knows no grammar: the session states how much of the input it consumed.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use azekura_wire::Stream;

use crate::memcached::latency::WorkCounts;
use crate::memcached::{CloseReason, FRONT_LEN, Next, Served, Session};

use super::meter::{Meter, Turned};

/// Least bytes that a buffer of a connection's own grows to.
const OWN_MIN: usize = 4 << 10;

/// After so many reads in one turn others have theirs.
const READS_MAX: usize = 4;

/// Bytes that are read before a turn. The keys of a longer read are looked up together.
pub(super) const EARLY_LEN: usize = 256;

/// Bytes a second that a client must move, beyond the time that every request has.
const RATE_MIN: u64 = 8 << 10;

/// The answer to a client for whose bytes there is no room.
const NO_ROOM: &[u8] = b"SERVER_ERROR out of memory reading request\r\n";

/// What a thread lends to the connection it serves.
pub(super) struct Turn {
    /// For bytes that arrive; its capacity is what is read at once.
    pub(super) input: Vec<u8>,
    /// Whether `input` holds what was read of the connection before its turn.
    pub(super) is_fed: bool,
    /// For answers.
    pub(super) output: Vec<u8>,
    /// For records that are built.
    pub(super) scratch: Vec<u8>,
    /// Seconds since the thread started.
    pub(super) now_s: u32,
    /// Bytes that the connections of this thread hold.
    pub(super) held: usize,
    /// The most they may.
    pub(super) held_max: usize,
    /// For times.
    pub(super) meter: Meter,
}

/// What a connection wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// To wait for an event of the socket.
    Rest,
    /// Another turn, when others had theirs.
    Again,
    /// Another turn after so long.
    Sleep(Duration),
    /// A sync, and then to send its answers.
    Commit,
    /// To be dropped.
    Close,
}

/// Why a connection is dropped by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// It was idle for too long.
    Idle,
    /// A request, a login or a handshake was begun and not ended.
    Request,
    /// Answers were not read.
    Answer,
}

/// What the client may still do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Peer {
    /// Send and read.
    Open,
    /// The end of its bytes has come, or an error: the next read reveals which.
    Ending,
    /// Nothing: it does not read any more.
    HungUp,
}

/// What the session does once its answers were sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pending {
    /// It waits for requests.
    Requests,
    /// It has more output for requests that it consumed.
    Output,
    /// It has, and must not continue until it is woken.
    Pause,
    /// It is over: the connection is closed.
    Close,
}

/// Whether answers wait for a sync, and what is to be measured when they were sent.
enum Sync {
    None,
    /// Until it has ended, nothing of the connection moves.
    Waiting(Box<Deferred>),
    Ended(Box<Deferred>),
}

/// A client.
pub(super) struct Connection {
    stream: Stream,
    session: Session,
    /// The part of a request that has arrived.
    input: Vec<u8>,
    /// Bytes of input without which serving it again is of no use.
    wanted: usize,
    /// Answers from `sent` on that the socket has not taken.
    output: Vec<u8>,
    sent: usize,
    peer: Peer,
    pending: Pending,
    sync: Sync,
    /// Whether the socket may have bytes to read.
    is_readable: bool,
    /// Whether more came at once, last time, than is read before a turn.
    reads_long: bool,
    /// When something last moved.
    moved_s: u32,
    /// When the request or the answer that is under way began, and the bytes that moved since.
    begun_s: u32,
    moved: u64,
}

/// What was done and is answered after a sync.
struct Deferred {
    did: WorkCounts,
    front: Front,
    bytes_in: usize,
    since: Instant,
}

/// The first bytes of a request.
struct Front {
    bytes: [u8; FRONT_LEN],
    len: usize,
}

impl Front {
    fn of(bytes: &[u8]) -> Self {
        let mut front = Self {
            bytes: [0; FRONT_LEN],
            len: bytes.len().min(FRONT_LEN),
        };
        front.bytes[..front.len].copy_from_slice(&bytes[..front.len]);
        front
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Connection {
    pub(super) fn new(stream: Stream, session: Session, now_s: u32) -> Self {
        Self {
            stream,
            session,
            input: Vec::new(),
            wanted: 1,
            output: Vec::new(),
            sent: 0,
            peer: Peer::Open,
            pending: Pending::Requests,
            sync: Sync::None,
            is_readable: false,
            reads_long: false,
            moved_s: now_s,
            begun_s: now_s,
            moved: 0,
        }
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Records an event of the socket.
    pub(super) fn changed(&mut self, readable: bool, ending: bool) {
        self.is_readable |= readable;
        if ending {
            self.peer = self.peer.max(Peer::Ending);
        }
    }

    /// Reads what came into the capacity of `bytes` before its turn, if that would begin with reading, and little is
    /// expected. Returns whether something came; if so, its turn is to be fed with it.
    pub(super) fn read_early(&mut self, bytes: &mut Vec<u8>, now_s: u32) -> bool {
        let begins_so = self.is_readable && self.pending == Pending::Requests && self.is_at_rest();
        if !begins_so || self.reads_long || !self.stream.is_plain() {
            return false;
        }
        // An end or an error is reported again by the next read.
        let Ok((1.., empty)) = self.stream.read(bytes) else {
            return false;
        };
        self.reads_long = !empty;
        self.is_readable = !empty || self.peer >= Peer::Ending;
        self.begins(now_s);
        self.moved_s = now_s;
        true
    }

    /// A request begins: it has its time from now on. One that must log in has it from its arrival.
    #[inline]
    fn begins(&mut self, now_s: u32) {
        if !self.session.must_log_in() {
            (self.begun_s, self.moved) = (now_s, 0);
        }
    }

    /// Records that the client does not read any more.
    pub(super) fn hung_up(&mut self) {
        self.peer = Peer::HungUp;
    }

    /// Lets it send more.
    pub(super) fn wake(&mut self) {
        if self.pending == Pending::Pause {
            self.pending = Pending::Output;
        }
    }

    /// What its answers acknowledge is on the device: they may leave.
    pub(super) fn synced(&mut self) {
        self.sync = match std::mem::replace(&mut self.sync, Sync::None) {
            Sync::Waiting(deferred) => Sync::Ended(deferred),
            other => other,
        };
    }

    /// Continues as far as the socket permits, for a turn.
    pub(super) fn advance(&mut self, turn: &mut Turn) -> Action {
        let before = self.held();
        let fate = self.turn(turn);
        turn.held = turn.held + self.held() - before;
        fate
    }

    /// Sends the error of a connection that holds too much, if the socket takes it.
    pub(super) fn refuse(&mut self) {
        if self.output.is_empty() {
            let _ = self.stream.write(NO_ROOM);
        }
    }

    fn turn(&mut self, turn: &mut Turn) -> Action {
        if let Some(fate) = self.resume(turn) {
            return fate;
        }
        let mut from = turn.meter.woke();
        for _ in 0..READS_MAX {
            let own = match self.gather(turn) {
                Ok(own) => own,
                Err(fate) => return fate,
            };
            let Ok((served, front)) = self.serve(turn, own) else {
                return Action::Close;
            };
            if served.must_sync {
                return self.hold(turn, &served, front, from);
            }
            let sent = self.answer(turn);
            let turned = Turned {
                did: served.did,
                front: front.as_ref().map_or(&turn.input, Front::bytes),
                bytes_in: served.consumed,
                bytes_out: turn.output.len(),
            };
            from = turn.meter.note(from, &turned);
            match self.continue_after(&sent, served.next) {
                None => {}
                Some(fate) => return fate,
            }
        }
        Action::Again
    }

    /// Sends what was kept of the last turn. Returns the action if the turn ends here.
    fn resume(&mut self, turn: &mut Turn) -> Option<Action> {
        if matches!(self.sync, Sync::Waiting(_)) {
            return Some(Action::Rest);
        }
        let unsent = self.output.len();
        let sent = self.send(turn);
        if let Sync::Ended(deferred) = std::mem::replace(&mut self.sync, Sync::None) {
            let turned = Turned {
                did: deferred.did,
                front: deferred.front.bytes(),
                bytes_in: deferred.bytes_in,
                bytes_out: unsent,
            };
            turn.meter.note(deferred.since, &turned);
        }
        match sent {
            Ok(true) => {}
            Ok(false) => return Some(Action::Rest),
            Err(Gone) => return Some(Action::Close),
        }
        match (self.pending, self.peer) {
            (Pending::Close, _) | (Pending::Pause, Peer::HungUp) => Some(Action::Close),
            (Pending::Pause, _) => Some(Action::Rest),
            (Pending::Requests | Pending::Output, _) => None,
        }
    }

    /// Sees to it that there is something to serve. Whether that is in the connection's own buffer; or what its turn came
    /// to, if there is nothing.
    fn gather(&mut self, turn: &mut Turn) -> Result<bool, Action> {
        let own = !self.input.is_empty();
        let is_fed = std::mem::take(&mut turn.is_fed);
        if !own && !is_fed {
            turn.input.clear();
        }
        let is_enough = self.pending == Pending::Output
            || (own && self.input.len() >= self.wanted)
            || (is_fed && !self.is_readable);
        if is_enough {
            return Ok(own);
        }
        if !self.is_readable {
            return Err(Action::Rest);
        }
        // A short part is continued in the shared buffer, where more is read at once.
        let moves = own && self.input.len().max(self.wanted) <= turn.input.capacity() / 8;
        if moves {
            turn.input.clear();
            turn.input.extend_from_slice(&self.input);
        }
        match self.read(turn, own && !moves) {
            Ok(true) if moves => {
                self.input.clear();
                Ok(false)
            }
            Ok(true) => Ok(own),
            // What was read before is served first.
            _ if is_fed => Ok(own),
            Ok(false) if self.is_readable => Err(Action::Again),
            Ok(false) => Err(Action::Rest),
            Err(Gone) => Err(Action::Close),
        }
    }

    /// Has the session serve what there is, and keeps what it did not consume. The first bytes of what was served, unless
    /// they are still in the shared buffer.
    fn serve(&mut self, turn: &mut Turn, own: bool) -> Result<(Served, Option<Front>), Gone> {
        turn.output.clear();
        let input = if own { &self.input } else { &turn.input };
        // The front of what is not in the shared buffer is gone after it was served.
        let front = match self.session.begun() {
            Some(begun) => Some(Front::of(begun)),
            None => own.then(|| Front::of(input)),
        };
        self.session.trade(&mut turn.scratch);
        let served = self.session.serve(input, &mut turn.output);
        self.session.trade(&mut turn.scratch);
        let left = input.len() - served.consumed;
        if own {
            self.input.drain(..served.consumed);
        } else if left > 0 {
            let rest = &turn.input[served.consumed..];
            if self.input.try_reserve_exact(left.max(OWN_MIN)).is_err() {
                return Err(Gone);
            }
            self.input.extend_from_slice(rest);
        }
        if left == 0 {
            self.input = Vec::new();
        }
        if !served.did.is_nothing() {
            // What comes next has its own time.
            self.begins(turn.now_s);
        }
        self.wanted = match served.next {
            Next::More { at_least } => left.saturating_add(at_least),
            _ => 1,
        };
        self.pending = match served.next {
            Next::More { .. } => Pending::Requests,
            Next::Yield | Next::Pause { millis: 0 } => Pending::Output,
            Next::Pause { .. } => Pending::Pause,
            Next::Close => Pending::Close,
        };
        Ok((served, front))
    }

    /// Keeps the answers until a sync has ended.
    fn hold(
        &mut self,
        turn: &Turn,
        served: &Served,
        front: Option<Front>,
        from: Instant,
    ) -> Action {
        if self.output.try_reserve_exact(turn.output.len()).is_err() {
            return Action::Close;
        }
        self.output.extend_from_slice(&turn.output);
        // The sync is pause enough.
        self.wake();
        self.sync = Sync::Waiting(Box::new(Deferred {
            did: served.did,
            front: front.unwrap_or_else(|| Front::of(&turn.input)),
            bytes_in: served.consumed,
            since: from,
        }));
        Action::Commit
    }

    /// What a turn comes to when its answers were `sent`; `None`: more may be read.
    fn continue_after(&self, sent: &Result<bool, Gone>, next: Next) -> Option<Action> {
        match (sent, self.pending, next) {
            (Err(Gone), ..) => Some(Action::Close),
            (_, Pending::Pause, Next::Pause { millis }) => {
                Some(Action::Sleep(Duration::from_millis(millis)))
            }
            (Ok(false), ..) => Some(Action::Rest),
            (_, Pending::Close, _) => Some(Action::Close),
            (_, Pending::Output | Pending::Pause, _) => Some(Action::Again),
            (_, Pending::Requests, _) => None,
        }
    }

    /// Reads once. Returns whether something came.
    fn read(&mut self, turn: &mut Turn, own: bool) -> Result<bool, Gone> {
        if own {
            // Room for what has been announced comes with what has arrived, so a length alone takes no memory.
            let goal = self.wanted.min(self.input.len() * 2).max(OWN_MIN);
            let more = goal.saturating_sub(self.input.len()).max(OWN_MIN);
            if self.input.try_reserve_exact(more).is_err() {
                return Err(Gone);
            }
        }
        if self.is_at_rest() && !self.stream.is_greeting() {
            self.begins(turn.now_s);
        }
        let into = if own {
            &mut self.input
        } else {
            &mut turn.input
        };
        match self.stream.read(into) {
            Ok((0, _)) => Err(Gone),
            Ok((len, empty)) => {
                self.moved += len as u64;
                self.is_readable = !empty || self.peer >= Peer::Ending;
                self.reads_long = own || turn.input.len() > EARLY_LEN;
                self.moved_s = turn.now_s;
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.is_readable = false;
                Ok(false)
            }
            // Many TLS records without data came: other connections have their turn.
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(false),
            Err(_) => Err(self.failed()),
        }
    }

    /// Writes the answers of this turn, and keeps what the socket does not take. Returns whether all went.
    fn answer(&mut self, turn: &mut Turn) -> Result<bool, Gone> {
        let mut sent = 0;
        while sent < turn.output.len() {
            match self.stream.write(&turn.output[sent..]) {
                Ok(len) => {
                    sent += len;
                    self.moved += len as u64;
                    self.moved_s = turn.now_s;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    let rest = &turn.output[sent..];
                    if self.output.try_reserve_exact(rest.len()).is_err() {
                        return Err(Gone);
                    }
                    self.output.extend_from_slice(rest);
                    return Ok(false);
                }
                Err(_) => return Err(self.failed()),
            }
        }
        self.flush(turn)
    }

    /// Writes what was kept. Returns whether all of it went.
    pub(super) fn send(&mut self, turn: &Turn) -> Result<bool, Gone> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(len) => {
                    self.sent += len;
                    self.moved += len as u64;
                    self.moved_s = turn.now_s;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(self.failed()),
            }
        }
        self.output = Vec::new();
        self.sent = 0;
        self.flush(turn)
    }

    fn flush(&mut self, turn: &Turn) -> Result<bool, Gone> {
        let flushed = self.stream.flush();
        if self.stream.has_moved() {
            self.moved_s = turn.now_s;
        }
        match flushed {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(_) => Err(self.failed()),
        }
    }

    /// The socket failed: it is not that the client went.
    fn failed(&mut self) -> Gone {
        self.session.set_close_reason(CloseReason::Error);
        Gone
    }

    /// Whether a cipher was not agreed upon yet.
    pub(super) fn is_greeting(&self) -> bool {
        self.stream.is_greeting()
    }

    /// Bytes of buffers of its own.
    pub(super) fn held(&self) -> usize {
        self.input.capacity()
            + self.output.capacity()
            + self.stream.held()
            + self.session.unfinished().unwrap_or(0)
    }

    /// Whether it may be dropped when the server ends.
    pub(super) fn is_done(&self) -> bool {
        self.is_at_rest() || (self.session.is_watching() && !self.has_unsent())
    }

    /// Sets the reason that watchers see.
    pub(super) fn set_close_reason(&mut self, reason: CloseReason) {
        self.session.set_close_reason(reason);
    }

    /// Whether neither a part of a request nor an answer is here.
    pub(super) fn is_at_rest(&self) -> bool {
        self.input.is_empty()
            && !self.has_unsent()
            && matches!(self.pending, Pending::Requests | Pending::Close)
            && !matches!(self.sync, Sync::Waiting(_))
            && self.session.unfinished().is_none()
    }

    fn has_unsent(&self) -> bool {
        !self.output.is_empty() || self.stream.held() > 0
    }

    /// Why it should be dropped, if it should; a limit of zero is none. Times are whole seconds, cut off: what is over by more than
    /// the limit has lasted that long, and up to a second more.
    pub(super) fn overdue(&self, now_s: u32, idle_s: u32, stall_s: u32) -> Option<Overdue> {
        let idle = idle_s > 0 && now_s.saturating_sub(self.moved_s) > idle_s;
        // A request has its time and what its length needs at the least rate, however its bytes are spread.
        let for_length = if self.session.must_log_in() {
            0
        } else {
            self.moved / RATE_MIN
        };
        let allowed = u64::from(stall_s) + for_length;
        let stalled = stall_s > 0 && u64::from(now_s.saturating_sub(self.begun_s)) > allowed;
        match self.pending {
            // It waits for a device.
            _ if matches!(self.sync, Sync::Waiting(_)) => None,
            _ if self.has_unsent() => stalled.then_some(Overdue::Answer),
            // It waits for this server, which has more output or pauses. A half-closed client may be gone; only a write
            // reveals it: it is not kept through a long pause.
            Pending::Output | Pending::Pause => {
                (self.peer >= Peer::Ending && stalled).then_some(Overdue::Request)
            }
            _ if !self.is_at_rest() || self.stream.is_greeting() || self.session.must_log_in() => {
                stalled.then_some(Overdue::Request)
            }
            _ => idle.then_some(Overdue::Idle),
        }
    }
}

/// The client has gone, or nothing can be done for it.
pub(super) struct Gone;

#[cfg(test)]
mod tests;
