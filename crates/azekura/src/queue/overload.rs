//! Overload: requests are pushed faster than the device completes them.
//!
//! | length | for how long | what happens |
//! |---|---|---|
//! | below the busy threshold | any time | nothing, and the time starts anew |
//! | at it or above | up to the longest time | nothing |
//! | at it or above | longer | the policy: refuse a part of new requests, drop a part of taken ones, or stop |
//! | at the limit | any time | new requests are refused, prioritized or not |
//!
//! A ratio is kept by a sum, not by chance: each request adds the ratio, and one that brings the sum to 1 is hit and subtracts 1.
//! Prioritized requests are not hit and add nothing. The rules are `CannyLS`'s, except that its limit admits one request more.

use std::time::Duration;

/// Reaction to a queue that was long for too long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// Refuses this part of new requests, 0 to 1.
    Refuse {
        /// The part.
        ratio: f64,
    },
    /// Drops this part of the requests when they are taken, 0 to 1.
    Drop {
        /// The part.
        ratio: f64,
    },
    /// Stops: this and every request fails.
    Stop,
}

/// Limits of a queue, and the reaction beyond them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Most waiting requests.
    pub len_max: usize,
    /// Most bytes of values that waiting requests hold. One request with more may wait alone.
    pub bytes_max: u64,
    /// Busy threshold: number of waiting requests.
    pub busy_threshold: usize,
    /// Longest time above the threshold.
    pub keep_busy_max: Duration,
    /// The reaction.
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

/// The verdict on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It passes.
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

    /// The verdict on a new request, when `len` wait.
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

    /// The verdict on a request that is taken, when `len` others wait.
    pub(super) fn at_dequeue(&mut self, now: Duration, len: usize, prioritized: bool) -> Verdict {
        let is_overloaded = self.is_overloaded(now, len);
        match self.limits.policy {
            _ if prioritized || !is_overloaded => Verdict::Pass,
            Policy::Drop { ratio } => self.by_turns(ratio),
            Policy::Stop => Verdict::Stop,
            Policy::Refuse { .. } => Verdict::Pass,
        }
    }

    /// Time for which it has been busy, if it is.
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
                let comes_in = by_turns.at_enqueue(at(9), 4, false);
                let goes_out = by_turns.at_dequeue(at(9), 4, false);
                let (hit, other) = if comes {
                    (comes_in, goes_out)
                } else {
                    (goes_out, comes_in)
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
