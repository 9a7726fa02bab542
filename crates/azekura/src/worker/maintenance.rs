//! The task of a store: what every engine does in the background, around what only it knows.
//!
//! In each step: the sync of the interval, if it is due; then a piece of the engine's work; then, while nothing else is to be done,
//! a piece of what an open put off. An error is traced, and the next step comes at the next notification or interval; once the store
//! is poisoned, there is none. What was put off is loaded whatever the rest answers.
//!
//! It does not know what the work is, nor what a sync makes durable.

use std::time::{Duration, Instant};

use super::{Next, Task};
use crate::error::Result;

/// What an engine does in the background.
pub(crate) trait Maintain: Send {
    /// Whether a sync would make something durable, as far as the engine counts it.
    fn owes_sync(&self) -> bool;

    /// Makes what is acknowledged durable.
    fn sync(&mut self) -> Result<()>;

    /// A bounded piece of work, and when the next is due; `woken`: a notification came since the last one.
    fn work(&mut self, woken: bool) -> Result<Next>;

    /// Loads a piece of what an open put off; whether there is more.
    fn load(&mut self) -> bool {
        false
    }

    /// Whether the store still takes changes.
    fn is_healthy(&self) -> bool;
}

/// See the module's text.
pub(crate) struct Maintenance<M> {
    engine: M,
    interval: Option<Interval>,
}

impl<M: Maintain> Maintenance<M> {
    /// Of this engine, which is synced so often, if at all.
    pub(crate) fn new(engine: M, sync_interval: Option<Duration>) -> Self {
        Self {
            engine,
            interval: sync_interval.map(|every| Interval::new(every, Instant::now())),
        }
    }

    fn sync_and_work(&mut self, woken: bool) -> Result<Next> {
        let now = Instant::now();
        if let Some(interval) = &mut self.interval
            && interval.left(now).is_zero()
            && self.engine.owes_sync()
        {
            interval.restart(now);
            self.engine.sync()?;
        }
        self.engine.work(woken)
    }
}

impl<M: Maintain> Task for Maintenance<M> {
    fn step(&mut self, woken: bool) -> Next {
        let next = self.sync_and_work(woken).unwrap_or_else(|error| {
            tracing::error!(%error, "background work failed");
            if self.engine.is_healthy() {
                Next::Idle
            } else {
                Next::Done
            }
        });
        match next {
            Next::Now | Next::Done => next,
            // Under schedule exploration other threads come in between, as they do while a device is waited for.
            _ if self.engine.load() => Next::After(Duration::ZERO),
            _ => {
                let interval = self.interval.filter(|_| self.engine.owes_sync());
                next.within(interval.map(|interval| interval.left(Instant::now())))
            }
        }
    }
}

/// A time that comes again and again.
#[derive(Clone, Copy, Debug)]
struct Interval {
    every: Duration,
    last: Instant,
}

impl Interval {
    const fn new(every: Duration, now: Instant) -> Self {
        Self { every, last: now }
    }

    /// How long until it is due.
    fn left(self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.last);
        self.every.saturating_sub(passed)
    }

    /// It is due again `every` after `now`.
    const fn restart(&mut self, now: Instant) {
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Kind};

    /// An engine that answers what the test wants.
    struct Planned {
        owes: bool,
        next: Option<Next>,
        parts: usize,
        is_healthy: bool,
        done: Vec<&'static str>,
    }

    impl Maintain for Planned {
        fn owes_sync(&self) -> bool {
            self.owes
        }

        fn sync(&mut self) -> Result<()> {
            self.owes = false;
            self.done.push("sync");
            Ok(())
        }

        fn work(&mut self, _woken: bool) -> Result<Next> {
            self.done.push("work");
            self.next
                .ok_or_else(|| Error::new(Kind::Full, "no room for this test"))
        }

        fn load(&mut self) -> bool {
            if self.parts == 0 {
                return false;
            }
            self.parts -= 1;
            self.done.push("load");
            self.parts > 0
        }

        fn is_healthy(&self) -> bool {
            self.is_healthy
        }
    }

    fn planned(next: Option<Next>, interval: Option<Duration>) -> Maintenance<Planned> {
        let engine = Planned {
            owes: true,
            next,
            parts: 0,
            is_healthy: true,
            done: Vec::new(),
        };
        Maintenance::new(engine, interval)
    }

    #[test]
    fn the_interval_is_due_again_after_the_same_time() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut interval = Interval::new(second, now);
        assert_eq!(interval.left(now), second);
        assert_eq!(interval.left(now + 3 * second), Duration::ZERO);
        interval.restart(now + 3 * second);
        assert_eq!(interval.left(now + 3 * second), second);
    }

    #[test]
    fn a_sync_comes_before_the_work_where_one_is_owed_and_due() {
        let mut task = planned(Some(Next::Idle), Some(Duration::ZERO));
        assert_eq!(task.step(false), Next::Idle);
        assert_eq!(task.step(false), Next::Idle);
        assert_eq!(task.engine.done, ["sync", "work", "work"]);
        let hour = Duration::from_secs(3600);
        let mut task = planned(Some(Next::Idle), Some(hour));
        assert!(matches!(task.step(false), Next::After(left) if left <= hour));
        assert_eq!(task.engine.done, ["work"]);
    }

    #[test]
    fn what_an_open_put_off_is_loaded_while_nothing_else_is_to_be_done() {
        let mut task = planned(Some(Next::Now), None);
        task.engine.parts = 2;
        assert_eq!(task.step(false), Next::Now);
        assert_eq!(task.engine.parts, 2);
        task.engine.next = None;
        assert_eq!(task.step(false), Next::After(Duration::ZERO));
        task.engine.next = Some(Next::Idle);
        assert_eq!(task.step(false), Next::Idle);
        assert_eq!(task.engine.parts, 0);
    }

    #[test]
    fn after_an_error_the_sync_of_the_interval_stays_due() {
        let hour = Duration::from_secs(3600);
        let mut task = planned(None, Some(hour));
        assert!(matches!(task.step(true), Next::After(left) if left <= hour));
    }

    #[test]
    fn an_error_ends_the_task_only_if_the_store_is_poisoned() {
        let mut task = planned(None, None);
        assert_eq!(task.step(true), Next::Idle);
        task.engine.is_healthy = false;
        assert_eq!(task.step(true), Next::Done);
    }
}
