//! The handle by which other threads stop a running server, and change its limits.
//!
//! A flag is set first and then the waiting thread is woken, so no order is lost. The threads apply the limits when they
//! wake, once a second at the latest. It knows nothing of what is served.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use azekura::error::{Error, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustls::ServerConfig;

use super::meter::SlowRequests;
use crate::memcached::network;

/// Limits of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections_max: u64,
    /// Seconds after which a connection that asks nothing is dropped; zero: never.
    pub idle_s: u32,
    /// Seconds in which a client must end a request it began, read its answers, and log in, and one more for each 8 KiB
    /// transferred meanwhile; a slower one is dropped; zero: no limit.
    pub stall_s: u32,
    /// Connections at once from one address that is no operator's.
    pub per_address_max: u64,
    /// Connections beyond `connections_max` that only operators may have.
    pub operator_connections: u64,
    /// Addresses of operators; clients of unix sockets are operators, too.
    pub operators: Vec<IpAddr>,
    /// Seconds that clients have to take their last answers when the server ends.
    pub grace_s: u32,
    /// Bytes that all connections may hold of requests that are not whole and answers that are not read.
    pub buffers_max: usize,
    /// Milliseconds from which on a request is logged as slow; zero: none is.
    pub slow_ms: u32,
}

impl Limits {
    /// Whether a client is an operator's; `None` is one of a unix socket.
    pub(super) fn is_operator(&self, ip: Option<IpAddr>) -> bool {
        ip.is_none_or(|ip| {
            let ip = ip.to_canonical();
            self.operators.iter().any(|of| of.to_canonical() == ip)
        })
    }

    pub(super) fn slow(&self) -> Option<Duration> {
        (self.slow_ms > 0).then(|| Duration::from_millis(u64::from(self.slow_ms)))
    }
}

/// Wakes one thread that waits.
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Self)
            .map_err(|e| Error::io("cannot make an event", e))
    }

    /// Wakes it, now or when it next waits.
    pub(crate) fn wake(&self) {
        // Full means that it was notified already.
        let _ = rustix::io::write(&self.0, &1_u64.to_le_bytes());
    }

    /// Clears it.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A running server's handle, by which other threads stop it.
pub struct Control {
    stopping: AtomicBool,
    limits: Mutex<Arc<Limits>>,
    identity: Mutex<Option<Arc<ServerConfig>>>,
    pub(super) counts: Counts,
    /// Connections of each address.
    addresses: Mutex<HashMap<IpAddr, u64>>,
    /// Slow requests.
    pub(super) slow_requests: Arc<SlowRequests>,
    /// Of the thread that accepts.
    pub(super) waker: Waker,
}

/// What happened to connections since the start.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) open: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Refused since their address has too many.
    pub(super) refused_address: AtomicU64,
    /// By reason.
    pub(super) dropped: [AtomicU64; Dropped::ALL.len()],
    pub(super) waited: AtomicU64,
    /// Handshakes of TLS that failed.
    pub(super) handshakes_failed: AtomicU64,
    /// Bytes of connections' own buffers, nearly, and the most there were since the figure was last read.
    held: AtomicU64,
    held_most: AtomicU64,
}

/// Why the server dropped a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It asked nothing for `idle-s`.
    Idle,
    /// Its request, login or handshake did not end within `stall-s`.
    Request,
    /// It did not read its answers within `stall-s`.
    Answer,
    /// Clients together held more than `buffers-max`, and it held most.
    Buffers,
    /// The sync that its answers waited for failed.
    Sync,
}

impl Dropped {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::Request,
        Self::Answer,
        Self::Buffers,
        Self::Sync,
    ];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Request => "request",
            Self::Answer => "answer",
            Self::Buffers => "buffers",
            Self::Sync => "sync",
        }
    }
}

impl Counts {
    pub(super) fn drop_for(&self, why: Dropped) {
        if let Some(count) = self.dropped.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Buffers of connections grew from so many bytes to so many.
    pub(super) fn hold(&self, from: usize, to: usize) {
        let more = (to as u64).wrapping_sub(from as u64);
        let held = self.held.fetch_add(more, Ordering::Relaxed);
        self.held_most
            .fetch_max(held.wrapping_add(more), Ordering::Relaxed);
    }
}

/// Connections, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Open now.
    pub open: u64,
    /// Accepted since the start.
    pub accepted: u64,
    /// Refused, as there were too many.
    pub refused: u64,
    /// Refused of these, as their address had too many.
    pub refused_address: u64,
    /// Dropped, for whatever reason.
    pub dropped: u64,
    /// Dropped, by reason, in the order of [`Dropped::ALL`].
    pub dropped_for: [u64; Dropped::ALL.len()],
    /// Handshakes of TLS that failed.
    pub handshakes_failed: u64,
    /// Bytes of requests that are not whole and of answers that are not read.
    pub held_bytes: u64,
    /// Times one waited for a sync before it was answered.
    pub waited: u64,
    /// Requests that were slow.
    pub slow: u64,
}

impl Control {
    /// For a server that is about to run. `Io` if the system gives no event.
    pub fn new(limits: Limits) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            stopping: AtomicBool::new(false),
            limits: Mutex::new(Arc::new(limits)),
            identity: Mutex::new(None),
            counts: Counts::default(),
            addresses: Mutex::default(),
            slow_requests: Arc::default(),
            waker: Waker::new()?,
        }))
    }

    /// Lets the server answer what it has received, sync, and end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether it is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Replaces the limits; connections that are over them already stay until they end.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(limits);
    }

    /// The limits that hold now.
    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.limits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the certificate, for connections that come.
    pub(crate) fn set_identity(&self, identity: Option<Arc<ServerConfig>>) {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    pub(super) fn identity(&self) -> Option<Arc<ServerConfig>> {
        let identity = self.identity.lock();
        identity.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, u64>> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refused connection, and logs the first, the second, the fourth and so on.
    pub(super) fn refuse(&self, reason: &'static str) {
        let count = self.counts.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::warn!(reason, count, "connection refused");
        }
    }

    /// Whether connections released much memory since the last call that returned true.
    pub(crate) fn has_let_go(&self) -> bool {
        const MUCH: u64 = 4 << 20;
        let held = self.counts.held.load(Ordering::Relaxed);
        let most = self.counts.held_most.load(Ordering::Relaxed);
        let much = most > held.saturating_add(MUCH);
        if much {
            self.counts.held_most.store(held, Ordering::Relaxed);
        }
        much
    }

    /// What became of connections.
    pub fn connections(&self) -> Connections {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let dropped_for = std::array::from_fn(|at| self.counts.dropped.get(at).map_or(0, of));
        Connections {
            open: of(&self.counts.open),
            accepted: of(&self.counts.accepted),
            refused: of(&self.counts.refused),
            refused_address: of(&self.counts.refused_address),
            dropped: dropped_for.iter().sum(),
            dropped_for,
            handshakes_failed: of(&self.counts.handshakes_failed),
            held_bytes: of(&self.counts.held),
            waited: of(&self.counts.waited),
            slow: self.slow_requests.count(),
        }
    }
}

/// An open connection, for the count.
pub(super) struct Counted {
    control: Arc<Control>,
    /// What stands for its address.
    network: Option<IpAddr>,
}

impl Counted {
    /// Counts one more, or returns why it is refused: the reserve is for operators, and an address that
    /// is none of theirs has its share.
    pub(super) fn admit(
        control: &Arc<Control>,
        ip: Option<IpAddr>,
    ) -> std::result::Result<Self, &'static str> {
        let limits = control.limits();
        let is_operator = limits.is_operator(ip);
        let beyond = if is_operator {
            limits.operator_connections
        } else {
            0
        };
        let most = limits.connections_max.saturating_add(beyond);
        if control.counts.open.load(Ordering::Relaxed) >= most {
            return Err("connections-max are open");
        }
        let network = ip.map(network);
        if let Some(network) = network {
            let mut addresses = control.addresses();
            let count = addresses.entry(network).or_default();
            if !is_operator && *count >= limits.per_address_max {
                drop(addresses);
                let refused = &control.counts.refused_address;
                refused.fetch_add(1, Ordering::Relaxed);
                return Err("connections-per-address are open from its address");
            }
            *count += 1;
        }
        control.counts.open.fetch_add(1, Ordering::Relaxed);
        control.counts.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            control: Arc::clone(control),
            network,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.control.counts.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(network) = self.network {
            let mut addresses = self.control.addresses();
            if let Some(count) = addresses.get_mut(&network) {
                *count -= 1;
                if *count == 0 {
                    addresses.remove(&network);
                }
            }
        }
    }
}
