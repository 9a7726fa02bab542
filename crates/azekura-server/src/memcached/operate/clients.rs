//! The connected clients: what `stats conns` reports of each.
//!
//! A session with a known client has an entry here until it ends. It writes there when the second or its state has changed,
//! so serving costs two comparisons, and threads share no cache line. It knows no sockets but their names and numbers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::client_info::{ClientInfo, CloseReason};
use super::watchers::Watchers;

/// What a connection is doing, by memcached's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Listening,
    Read,
    Collect,
    Swallow,
    Write,
    Walk,
}

const STATES: [(State, &str); 6] = [
    (State::Listening, "conn_listening"),
    (State::Read, "conn_read"),
    (State::Collect, "conn_nread"),
    (State::Swallow, "conn_swallow"),
    (State::Write, "conn_mwrite"),
    (State::Walk, "conn_watch"),
];

/// All connected clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    next: AtomicU64,
    present: Mutex<BTreeMap<u64, Arc<Line>>>,
}

/// What is known of one.
#[derive(Debug)]
struct Line {
    info: ClientInfo,
    state: AtomicU8,
    /// The second of the last request, since 1970.
    last: AtomicU32,
}

/// A line that stands as long as this is held.
#[derive(Debug)]
pub struct ClientEntry {
    clients: Arc<Clients>,
    watchers: Arc<Watchers>,
    id: u64,
    line: Arc<Line>,
    state: State,
    last: u32,
    /// Why it goes, as far as is known.
    reason: CloseReason,
}

impl ClientEntry {
    /// An entry of these clients from now on.
    pub(crate) fn new(
        clients: &Arc<Clients>,
        watchers: &Arc<Watchers>,
        info: ClientInfo,
        state: State,
        now: u32,
    ) -> Self {
        let id = clients.next.fetch_add(1, Ordering::Relaxed);
        let line = Arc::new(Line {
            info,
            state: AtomicU8::new(state as u8),
            last: AtomicU32::new(now),
        });
        clients.lock().insert(id, Arc::clone(&line));
        if state != State::Listening {
            watchers.connection(&line.info, None);
        }
        Self {
            clients: Arc::clone(clients),
            watchers: Arc::clone(watchers),
            id,
            line,
            state,
            last: now,
            reason: CloseReason::Normal,
        }
    }

    /// The number that operators see.
    pub(crate) fn number(&self) -> i32 {
        self.line.info.number
    }

    /// Remembers why it goes.
    pub(crate) fn set_close_reason(&mut self, reason: CloseReason) {
        self.reason = reason;
    }

    /// Records what it does now, and the time of its last request.
    #[inline]
    pub(crate) fn note(&mut self, state: State, last: u32) {
        if state != self.state {
            self.state = state;
            self.line.state.store(state as u8, Ordering::Relaxed);
        }
        if last != self.last {
            self.last = last;
            self.line.last.store(last, Ordering::Relaxed);
        }
    }
}

impl Drop for ClientEntry {
    fn drop(&mut self) {
        self.clients.lock().remove(&self.id);
        if self.state != State::Listening {
            self.watchers.connection(&self.line.info, Some(self.reason));
        }
    }
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Line>>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports each, in the order of their arrival.
    pub(crate) fn report(&self, now: u32, report: &mut dyn FnMut(&str, &str)) {
        let present = self.lock();
        for line in present.values() {
            let ClientInfo {
                number,
                address,
                listener,
                ip: _,
            } = &line.info;
            report(&format!("{number}:addr"), address);
            if !listener.is_empty() {
                report(&format!("{number}:listen_addr"), listener);
            }
            let state = line.state.load(Ordering::Relaxed);
            let known = STATES.iter().find(|(of, _)| *of as u8 == state);
            report(
                &format!("{number}:state"),
                known.map_or("conn_read", |(_, word)| word),
            );
            let since = now.saturating_sub(line.last.load(Ordering::Relaxed));
            report(&format!("{number}:secs_since_last_cmd"), &since.to_string());
        }
    }
}
