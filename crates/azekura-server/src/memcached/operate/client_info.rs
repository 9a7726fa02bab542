//! A client as operators see it: where it connects from and to, and why its connection closes.
//!
//! `stats conns`, the events of `watch connevents` and the limits by address are of this. It knows no sockets but their
//! names and numbers.

use std::net::IpAddr;

/// Where a connection comes from and to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    /// The number that operators see: its descriptor's.
    pub number: i32,
    /// The client, or for a listener itself: `tcp:127.0.0.1:4711`, `unix:/run/azekura.sock`.
    pub address: String,
    /// Where it was accepted; empty for a listener.
    pub listener: String,
    /// The address of a client of TCP.
    pub ip: Option<IpAddr>,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client or the protocol wanted it.
    Normal,
    /// It asked nothing for too long.
    Idle,
    /// It did not read, did not complete a request, or held too much; or its sync failed.
    Error,
    /// The server ends.
    ShutDown,
}

impl CloseReason {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Idle => "idle_timeout",
            Self::Error => "error",
            Self::ShutDown => "shutdown",
        }
    }
}
