//! Who is connected: what `stats conns` tells of each.
//!
//! A session that was told where its client is has a line here from then on until it ends. It writes there when the second
//! or what it is doing has changed, so serving costs two comparisons, and no line of memory is shared by threads. It knows
//! no sockets but their names and numbers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::memcached::operate::watchers::Reason;

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

/// Where a connection comes from and to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The number by which it is told: its descriptor's.
    pub number: i32,
    /// The client, or for a listener itself: `tcp:127.0.0.1:4711`, `unix:/run/azekura.sock`.
    pub address: String,
    /// Where it was accepted; empty for a listener.
    pub listener: String,
    /// The address of a client of TCP.
    pub ip: Option<IpAddr>,
}

/// All who are connected.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    next: AtomicU64,
    present: Mutex<BTreeMap<u64, Arc<Line>>>,
}

/// What is known of one.
#[derive(Debug)]
struct Line {
    place: Place,
    state: AtomicU8,
    /// The second of the last request, since 1970.
    last: AtomicU32,
}

/// A line that stands as long as this is held.
#[derive(Debug)]
pub struct Guest {
    service: Arc<crate::memcached::Service>,
    id: u64,
    line: Arc<Line>,
    state: State,
    last: u32,
    /// Why it goes, as far as is known.
    reason: Reason,
}

impl Guest {
    /// A listener of this service, from now on.
    pub fn listener(service: &Arc<crate::memcached::Service>, place: Place) -> Self {
        Self::new(service, place, State::Listening)
    }

    pub(crate) fn new(
        service: &Arc<crate::memcached::Service>,
        place: Place,
        state: State,
    ) -> Self {
        let now = service.now();
        let guests = &service.guests;
        let id = guests.next.fetch_add(1, Ordering::Relaxed);
        let line = Arc::new(Line {
            place,
            state: AtomicU8::new(state as u8),
            last: AtomicU32::new(now),
        });
        let mut present = guests
            .present
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        present.insert(id, Arc::clone(&line));
        drop(present);
        if state != State::Listening {
            service.watchers.connection(&line.place, None);
        }
        Self {
            service: Arc::clone(service),
            id,
            line,
            state,
            last: now,
            reason: Reason::Normal,
        }
    }

    /// The number by which it is told.
    pub(crate) fn number(&self) -> i32 {
        self.line.place.number
    }

    /// Remembers why it goes.
    pub(crate) fn goes(&mut self, reason: Reason) {
        self.reason = reason;
    }

    /// Says what it does now, and when it asked last.
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

impl Drop for Guest {
    fn drop(&mut self) {
        let present = self.service.guests.present.lock();
        let mut present = present.unwrap_or_else(PoisonError::into_inner);
        present.remove(&self.id);
        drop(present);
        if self.state != State::Listening {
            let goes = Some(self.reason);
            self.service.watchers.connection(&self.line.place, goes);
        }
    }
}

impl Guests {
    /// Tells of each, in the order in which they came.
    pub(crate) fn tell(&self, now: u32, tell: &mut dyn FnMut(&str, &str)) {
        let present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        for line in present.values() {
            let Place {
                number,
                address,
                listener,
                ip: _,
            } = &line.place;
            tell(&format!("{number}:addr"), address);
            if !listener.is_empty() {
                tell(&format!("{number}:listen_addr"), listener);
            }
            let state = line.state.load(Ordering::Relaxed);
            let known = STATES.iter().find(|(of, _)| *of as u8 == state);
            tell(
                &format!("{number}:state"),
                known.map_or("conn_read", |(_, word)| word),
            );
            let since = now.saturating_sub(line.last.load(Ordering::Relaxed));
            tell(&format!("{number}:secs_since_last_cmd"), &since.to_string());
        }
    }
}
