//! Detecting a failing device: it has become slow, or errors are frequent.
//!
//! A device is slow if the mean of the last `window` device times is above a limit; before there are that many, if they would be above
//! it even if the missing ones took no time. Errors are frequent if a number of them happens within a duration. After a finding the
//! detector starts anew, so each finding stands for times and errors of its own. It does not know what the requests were. The idea is a
//! patch to `CannyLS` that was never merged.

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::Result;
use crate::room;

/// Reaction to a failing device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Stops at the first finding.
    Stop,
    /// Continues through this many findings, and stops at the next.
    Tolerate(u64),
    /// Reports it, and continues.
    Keep,
}

/// When a device counts as failing, and the reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signs {
    /// Number of device times in the mean, 1 to 65,536.
    pub times: usize,
    /// The longest mean of a healthy device.
    pub mean_max: Duration,
    /// Number of errors that are too many, 1 to 65,536.
    pub errors: usize,
    /// The duration in which they happen.
    pub within: Duration,
    /// The reaction.
    pub remedy: Remedy,
}

impl Default for Signs {
    /// A mean of more than 200 ms over 100 times, or 2 errors within a second, is reported.
    fn default() -> Self {
        Self {
            times: 100,
            mean_max: Duration::from_millis(200),
            errors: 2,
            within: Duration::from_secs(1),
            remedy: Remedy::Keep,
        }
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing.
    Good,
    /// The device is failing, and continues.
    Failing,
    /// The device is failing, and is to be stopped.
    Stop,
}

/// Watches a device.
#[derive(Debug)]
pub struct Detector {
    signs: Signs,
    times: VecDeque<Duration>,
    sum: Duration,
    /// When the last errors came.
    errors: VecDeque<Duration>,
    findings: u64,
}

impl Detector {
    /// Errors: `Full`.
    pub fn new(signs: Signs) -> Result<Self> {
        let bounded = |count: usize| count.clamp(1, 1 << 16);
        let signs = Signs {
            times: bounded(signs.times),
            errors: bounded(signs.errors),
            ..signs
        };
        Ok(Self {
            signs,
            times: room::vec(signs.times)?.into(),
            sum: Duration::ZERO,
            errors: room::vec(signs.errors)?.into(),
            findings: 0,
        })
    }

    /// Records an access that ended at `now`.
    pub fn observe(&mut self, now: Duration, took: Duration, failed: bool) -> Health {
        if self.times.len() == self.signs.times {
            let first = self.times.pop_front().unwrap_or_default();
            self.sum = self.sum.saturating_sub(first);
        }
        self.times.push_back(took);
        self.sum = self.sum.saturating_add(took);
        if failed {
            if self.errors.len() == self.signs.errors {
                self.errors.pop_front();
            }
            self.errors.push_back(now);
        }
        let is_slow = self.sum > self.signs.mean_max.saturating_mul(self.signs.times as u32);
        let are_close = self.errors.len() == self.signs.errors
            && self
                .errors
                .front()
                .is_some_and(|first| now.saturating_sub(*first) <= self.signs.within);
        let is_failing = is_slow || (failed && are_close);
        if !is_failing {
            return Health::Good;
        }
        self.times.clear();
        self.errors.clear();
        self.sum = Duration::ZERO;
        self.findings += 1;
        match self.signs.remedy {
            Remedy::Keep => Health::Failing,
            Remedy::Tolerate(findings) if self.findings <= findings => Health::Failing,
            Remedy::Tolerate(_) | Remedy::Stop => Health::Stop,
        }
    }

    /// Number of findings.
    pub fn findings(&self) -> u64 {
        self.findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_millis(1);

    fn detector(remedy: Remedy) -> Detector {
        let signs = Signs {
            remedy,
            ..Signs::default()
        };
        Detector::new(signs).unwrap()
    }

    #[test]
    fn a_device_is_failing_when_the_mean_of_the_last_hundred_is_too_long() {
        let mut slow = detector(Remedy::Keep);
        let mut after = |millis| slow.observe(FAST, Duration::from_millis(millis), false);
        (0..1000).for_each(|_| assert_eq!(after(200), Health::Good));
        // One millisecond more than a hundred may take together.
        assert_eq!(after(201), Health::Failing);
        // One that takes as long as all of them may.
        assert_eq!(after(20_000), Health::Good);
        assert_eq!(after(1), Health::Failing);
        // Old errors are forgotten.
        assert_eq!(after(19_000), Health::Good);
        (0..100).for_each(|_| assert_eq!(after(1), Health::Good));
        assert_eq!(after(19_000), Health::Good);
        assert_eq!(slow.findings(), 2);
    }

    #[test]
    fn a_device_is_failing_when_two_errors_come_within_a_second() {
        let mut errs = detector(Remedy::Keep);
        let at = Duration::from_millis;
        assert_eq!(errs.observe(at(0), FAST, true), Health::Good);
        assert_eq!(errs.observe(at(1001), FAST, true), Health::Good);
        assert_eq!(errs.observe(at(1500), FAST, false), Health::Good);
        assert_eq!(errs.observe(at(2001), FAST, true), Health::Failing);
        // The finding used them up.
        assert_eq!(errs.observe(at(2002), FAST, true), Health::Good);
    }

    #[test]
    fn it_is_stopped_at_once_or_after_what_is_tolerated_or_never() {
        for (remedy, wanted) in [
            (Remedy::Stop, [Health::Stop; 3]),
            (
                Remedy::Tolerate(1),
                [Health::Failing, Health::Stop, Health::Stop],
            ),
            (Remedy::Keep, [Health::Failing; 3]),
        ] {
            let mut detector = detector(remedy);
            let found = wanted.map(|_| detector.observe(FAST, Duration::from_secs(60), false));
            assert_eq!(found, wanted);
        }
    }
}
