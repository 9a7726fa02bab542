//! What happens when requests come faster than the device is done with them.
//!
//! | length | for how long | what happens |
//! |---|---|---|
//! | below the busy threshold | | nothing, and the time begins anew |
//! | at it or above | up to the longest time | nothing |
//! | at it or above | longer | the policy: by turns refuse what comes, drop what goes, or stop |
//! | at the limit | | what comes is refused, prioritized or not |
//!
//! A ratio is kept by a sum, not by chance: each request adds the ratio, and one that brings the sum to 1 is hit and takes
//! 1 away. Prioritized requests are not hit and add nothing. It does not know how requests are ordered. The rules are
//! `CannyLS`'s, but that its limit lets one request more in.

use std::time::Duration;

/// What is done about a queue that was long for too long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// Refuses this part of the requests that come, 0 to 1.
    Refuse {
        /// The part.
        ratio: f64,
    },
    /// Drops this part of the requests when it is their turn, 0 to 1.
    Drop {
        /// The part.
        ratio: f64,
    },
    /// Stops: this and every request fails.
    Stop,
}

/// Limits of a queue, and what is done beyond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Most requests that wait.
    pub len_max: usize,
    /// Most bytes of values that wait requests hold. One request that alone holds more may wait alone.
    pub bytes_max: u64,
    /// How many waiting requests are many.
    pub busy_threshold: usize,
    /// How long many may wait.
    pub keep_busy_max: Duration,
    /// What then.
    pub policy: Policy,
}

impl Default for Limits {
    /// 100,000 at most, with 1 GiB of values; 1,000 for 600 seconds, then stop: `CannyLS`'s, but for the bytes.
    fn default() -> Self {
        Self {
            len_max: 100_000,
            bytes_max: 1 << 30,
            busy_threshold: 1000,
            keep_busy_max: Duration::from_secs(600),
            policy: Policy::Stop,
        }
    }
}

/// What is to be done with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes its way.
    Pass,
    /// It fails.
    Hit,
    /// All fail.
    Stop,
}

/// Watches the length of a queue.
#[derive(Debug)]
pub(super) struct Overload {
    pub(super) limits: Limits,
    busy_since: Option<Duration>,
    /// Parts of a request that are still to be hit.
    sum: f64,
}

impl Overload {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            busy_since: None,
            sum: 0.0,
        }
    }

    /// Of a request that comes, when `len` wait.
    pub(super) fn at_enqueue(&mut self, now: Duration, len: usize, prioritized: bool) -> Verdict {
        let is_overloaded = self.is_overloaded(now, len);
        if len >= self.limits.len_max {
            return Verdict::Hit;
        }
        match self.limits.policy {
            _ if prioritized || !is_overloaded => Verdict::Pass,
            Policy::Refuse { ratio } => self.by_turns(ratio),
            Policy::Stop => Verdict::Stop,
            Policy::Drop { .. } => Verdict::Pass,
        }
    }

    /// Of a request whose turn it is, when `len` others wait.
    pub(super) fn at_dequeue(&mut self, now: Duration, len: usize, prioritized: bool) -> Verdict {
        let is_overloaded = self.is_overloaded(now, len);
        match self.limits.policy {
            _ if prioritized || !is_overloaded => Verdict::Pass,
            Policy::Drop { ratio } => self.by_turns(ratio),
            Policy::Stop => Verdict::Stop,
            Policy::Refuse { .. } => Verdict::Pass,
        }
    }

    /// How long it has been busy, if it is.
    pub(super) fn busy_for(&self, now: Duration) -> Option<Duration> {
        self.busy_since.map(|since| now.saturating_sub(since))
    }

    fn is_overloaded(&mut self, now: Duration, len: usize) -> bool {
        if len < self.limits.busy_threshold {
            self.busy_since = None;
            return false;
        }
        let since = *self.busy_since.get_or_insert(now);
        now.saturating_sub(since) > self.limits.keep_busy_max
    }

    fn by_turns(&mut self, ratio: f64) -> Verdict {
        self.sum += ratio.clamp(0.0, 1.0);
        if self.sum < 1.0 {
            return Verdict::Pass;
        }
        self.sum -= 1.0;
        Verdict::Hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overload(policy: Policy) -> Overload {
        Overload::new(Limits {
            len_max: 10,
            bytes_max: u64::MAX,
            busy_threshold: 4,
            keep_busy_max: Duration::from_secs(6),
            policy,
        })
    }

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_queue_is_overloaded_when_it_was_long_for_longer_than_it_may_be() {
        let mut stops = overload(Policy::Stop);
        assert_eq!(stops.at_enqueue(at(0), 3, false), Verdict::Pass);
        assert_eq!(stops.busy_for(at(1)), None);
        assert_eq!(stops.at_enqueue(at(1), 4, false), Verdict::Pass);
        assert_eq!(stops.at_dequeue(at(7), 4, false), Verdict::Pass);
        assert_eq!(stops.busy_for(at(7)), Some(at(6)));
        // A moment below begins it anew.
        assert_eq!(stops.at_dequeue(at(8), 3, false), Verdict::Pass);
        assert_eq!(stops.at_enqueue(at(9), 4, false), Verdict::Pass);
        assert_eq!(stops.at_enqueue(at(15), 4, false), Verdict::Pass);
        assert_eq!(stops.at_enqueue(at(16), 4, false), Verdict::Stop);
        assert_eq!(stops.at_dequeue(at(16), 4, false), Verdict::Stop);
        // A clock that goes back is no overload.
        assert_eq!(stops.at_enqueue(at(2), 4, false), Verdict::Pass);
    }

    #[test]
    fn a_part_is_refused_as_it_comes_or_dropped_as_it_goes_by_turns() {
        for (policy, comes) in [
            (Policy::Refuse { ratio: 0.375 }, true),
            (Policy::Drop { ratio: 0.375 }, false),
        ] {
            let mut by_turns = overload(policy);
            by_turns.at_enqueue(at(0), 4, false);
            let mut hits = Vec::new();
            for turn in 0..20 {
                let (hit, other) = if comes {
                    (
                        by_turns.at_enqueue(at(9), 4, false),
                        by_turns.at_dequeue(at(9), 4, false),
                    )
                } else {
                    (
                        by_turns.at_dequeue(at(9), 4, false),
                        by_turns.at_enqueue(at(9), 4, false),
                    )
                };
                assert_eq!(other, Verdict::Pass);
                if hit == Verdict::Hit {
                    hits.push(turn);
                }
            }
            // Three of eight, where the sum comes to 1.
            assert_eq!(hits, [2, 5, 7, 10, 13, 15, 18], "{policy:?}");
        }
    }

    #[test]
    fn prioritized_requests_are_exempt_until_the_limit() {
        for policy in [
            Policy::Refuse { ratio: 1.0 },
            Policy::Drop { ratio: 1.0 },
            Policy::Stop,
        ] {
            let mut overload = overload(policy);
            overload.at_enqueue(at(0), 4, true);
            assert_eq!(overload.at_enqueue(at(99), 9, true), Verdict::Pass);
            assert_eq!(overload.at_dequeue(at(99), 9, true), Verdict::Pass);
            assert_eq!(overload.at_enqueue(at(99), 10, true), Verdict::Hit);
        }
    }
}
