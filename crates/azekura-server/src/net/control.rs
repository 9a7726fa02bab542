//! How a running server is told to stop, and to take new limits, from another thread.
//!
//! A word is set first and then whoever waits is woken, so no order is lost. The threads look at the limits when they
//! wake, once a second at the latest. It knows nothing of what is served.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use azekura::error::{Error, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustls::ServerConfig;

use super::meter::Told;

/// What connections may take. Zero is no limit where that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections_max: u64,
    /// Seconds after which a connection that asks nothing is dropped; zero: never.
    pub idle_s: u32,
    /// Seconds after which one is dropped that does not read its answers or end its request; zero: never.
    pub stall_s: u32,
    /// Bytes that all connections may hold of requests that are not whole and answers that are not read.
    pub buffers_max: usize,
    /// Milliseconds from which on a request is slow, and told as an event; zero: none is.
    pub slow_ms: u32,
}

impl Limits {
    pub(super) fn slow(&self) -> Option<Duration> {
        (self.slow_ms > 0).then(|| Duration::from_millis(u64::from(self.slow_ms)))
    }
}

/// Wakes one thread that waits.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Self)
            .map_err(|e| Error::io("cannot make an event", e))
    }

    /// Wakes it, now or when it next waits.
    pub(crate) fn ring(&self) {
        // Full means that it was rung already.
        let _ = rustix::io::write(&self.0, &1_u64.to_le_bytes());
    }

    /// Makes it silent.
    pub(super) fn hush(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A running server's handle, shared with whoever may stop it.
pub struct Control {
    stopping: AtomicBool,
    limits: Mutex<Arc<Limits>>,
    identity: Mutex<Option<Arc<ServerConfig>>>,
    pub(super) counts: Counts,
    /// Slow requests.
    pub(super) told: Arc<Told>,
    /// Of the thread that accepts.
    pub(super) bell: Bell,
}

/// What happened to connections since the start.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) open: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) waited: AtomicU64,
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
    /// Dropped for being idle, or for not reading or not ending what they began.
    pub dropped: u64,
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
            told: Arc::default(),
            bell: Bell::new()?,
        }))
    }

    /// Lets the server answer what it has received, sync, and end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Whether it was told to stop.
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

    /// Counts a connection that was refused, and says so, ever less often.
    pub(super) fn refuse(&self, why: &'static str) {
        let count = self.counts.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::warn!(why, count, "a connection was refused");
        }
    }

    /// What became of connections.
    pub fn connections(&self) -> Connections {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Connections {
            open: of(&self.counts.open),
            accepted: of(&self.counts.accepted),
            refused: of(&self.counts.refused),
            dropped: of(&self.counts.dropped),
            waited: of(&self.counts.waited),
            slow: self.told.slow(),
        }
    }
}

/// An open connection, for the count.
pub(super) struct Counted(Arc<Control>);

impl Counted {
    /// Counts one more.
    pub(super) fn new(control: &Arc<Control>) -> Self {
        control.counts.open.fetch_add(1, Ordering::Relaxed);
        control.counts.accepted.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(control))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}
