//! Failed authentications: counted by address, logged, and limited.
//!
//! An address with [`FAILURES_MAX`] failures within [`PERIOD_S`] seconds is refused until that time is over, whatever its
//! credentials: guessing gains nothing, and costs the server no comparison. Clients of unix sockets have no address, and only
//! wait after each failure (see `session`). Addresses of IPv6 count by their network of 64 bits. The number of addresses is
//! bounded; the oldest are forgotten first. It knows no passwords.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Failures after which an address is refused.
const FAILURES_MAX: u32 = 10;
/// Seconds in which they count, from the first on.
const PERIOD_S: u32 = 60;
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 4096;
/// Events in a second.
const EVENTS_MAX: u32 = 10;
/// Bytes of a user name that are shown.
const USER_LEN_SHOWN: usize = 64;

/// Failures of an address.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// The second of the first one.
    since: u32,
}

/// Failed logins of all addresses.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    known: Mutex<Known>,
    /// Logins that were refused since their address was blocked.
    blocked: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    failures: HashMap<IpAddr, Failures>,
    /// Events of this second, and how many were not reported since one was.
    second: u32,
    events: u32,
    held_back: u64,
}

/// What stands for an address: itself, or its network.
pub(crate) fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let bits = ip.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Logins {
    /// Whether logins from this address are refused at `now`.
    pub(crate) fn is_blocked(&self, ip: Option<IpAddr>, now: u32) -> bool {
        let Some(ip) = ip.map(network) else {
            return false;
        };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.failures.get(&ip);
        found.is_some_and(|found| {
            found.count >= FAILURES_MAX && now.saturating_sub(found.since) < PERIOD_S
        })
    }

    /// Logins that were refused since their address was blocked.
    pub(crate) fn blocked(&self) -> u64 {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Notes a failure.
    #[cold]
    pub(crate) fn failed(&self, ip: Option<IpAddr>, user: &[u8], now: u32, is_blocked: bool) {
        if is_blocked {
            self.blocked.fetch_add(1, Ordering::Relaxed);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = ip.map_or(1, |ip| known.count(network(ip), now));
        let Some(held_back) = known.admits_event(now) else {
            return;
        };
        drop(known);
        let address = ip.map_or_else(|| "unix".to_owned(), |ip| ip.to_string());
        let user = user.get(..USER_LEN_SHOWN).unwrap_or(user);
        let user = user.escape_ascii().to_string();
        tracing::warn!(
            address,
            user,
            failures,
            blocked = is_blocked,
            held_back,
            "authentication failed"
        );
    }
}

impl Known {
    /// One more failure of an address; how many there are.
    fn count(&mut self, ip: IpAddr, now: u32) -> u32 {
        let is_over = |of: &Failures| now.saturating_sub(of.since) >= PERIOD_S;
        if self.failures.len() >= ADDRESSES_MAX && !self.failures.contains_key(&ip) {
            self.failures.retain(|_, of| !is_over(of));
            if self.failures.len() >= ADDRESSES_MAX
                && let Some(oldest) = self.failures.iter().min_by_key(|(_, of)| of.since)
            {
                let oldest = *oldest.0;
                self.failures.remove(&oldest);
            }
        }
        let fresh = Failures {
            count: 0,
            since: now,
        };
        let found = self.failures.entry(ip).or_insert(fresh);
        if is_over(found) {
            *found = fresh;
        }
        found.count = found.count.saturating_add(1);
        found.count
    }

    /// Whether one more may be reported now, and how many were not before it.
    fn admits_event(&mut self, now: u32) -> Option<u64> {
        if self.second != now {
            (self.second, self.events) = (now, 0);
        }
        if self.events == EVENTS_MAX {
            self.held_back += 1;
            return None;
        }
        self.events += 1;
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_many_failures_is_refused_for_a_minute_and_others_are_not() {
        let logins = Logins::default();
        let ip = |last| Some(IpAddr::from([10, 0, 0, last]));
        for _ in 0..FAILURES_MAX {
            assert!(!logins.is_blocked(ip(1), 100));
            logins.failed(ip(1), b"anna", 100, false);
        }
        assert!(logins.is_blocked(ip(1), 100) && logins.is_blocked(ip(1), 159));
        assert!(!logins.is_blocked(ip(1), 160) && !logins.is_blocked(ip(2), 100));
        logins.failed(ip(1), b"anna", 160, false);
        assert!(!logins.is_blocked(ip(1), 160));
        for _ in 0..100 {
            logins.failed(None, b"anna", 100, false);
        }
        assert!(!logins.is_blocked(None, 100));
    }

    #[test]
    fn addresses_of_one_network_count_together_and_a_flood_of_them_is_bounded() {
        let logins = Logins::default();
        let v6 = |host: u128| IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8 << 96) | host));
        for host in 0..u128::from(FAILURES_MAX) {
            logins.failed(Some(v6(host)), b"", 5, false);
        }
        assert!(logins.is_blocked(Some(v6(99)), 5));
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(network(mapped), IpAddr::from([10, 0, 0, 1]));
        for n in 0..2 * ADDRESSES_MAX as u32 {
            logins.failed(
                Some(IpAddr::from(std::net::Ipv4Addr::from_bits(n))),
                b"",
                6,
                false,
            );
        }
        let known = logins.known.lock().unwrap();
        assert!(known.failures.len() <= ADDRESSES_MAX);
    }
}
