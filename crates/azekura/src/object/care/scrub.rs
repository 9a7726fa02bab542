//! Scrubbing: verifying all objects slowly, while the store is being used.
//!
//! Bytes on a device decay unread. A scrub reads every object once: windows of ids in order, and within a window in the order of
//! places, so that a disk's arm moves forward. A budget bounds its rate (`Pace`): it sleeps while it is ahead.
//!
//! Changes continue; an object that is changed meanwhile is verified in its old or its new state. It writes nothing.

use std::ops::RangeBounds;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::object::care::check::Finding;
use crate::object::id::{ObjectId, ids_of};
use crate::object::index::Entry;
use crate::object::place::extent::{Fault, chunks_of};
use crate::object::read::get::Reads;
use crate::object::{Core, Store};

/// Bytes of a value that are read and verified at once.
const PIECE: u64 = 4 << 20;
/// Burst after a pause, in seconds of the rate.
const BURST: f64 = 0.1;

/// What a scrub did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Objects that were read.
    pub objects: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Of the objects, those that do not verify.
    pub damaged: u64,
    /// Of the objects, those that verify and are in doubt: a newer value or a removal may be lost
    /// ([`is_doubtful`](Store::is_doubtful)).
    pub doubtful: u64,
    /// The id at which to continue, if it was stopped; `None`: everything was read.
    pub next: Option<ObjectId>,
}

/// One step of a scrub.
#[derive(Clone, Debug)]
pub enum Step {
    /// This object was read, and is whole.
    Whole(ObjectId),
    /// This one does not verify.
    Damaged(Finding),
    /// This one was read, its bytes verify, and a newer value or its removal may be lost.
    Doubtful(ObjectId),
}

impl Store {
    /// Reads and verifies the objects of a range of ids, at most `bytes_per_second` (`None`: as fast as it goes), and calls `visit`
    /// for each, until that returns false. `Invalid` if the rate is 0. Objects of a window are visited in the order of places; one
    /// that was stopped within a window begins with that window again.
    pub fn scrub(
        &self,
        range: impl RangeBounds<ObjectId>,
        bytes_per_second: Option<u64>,
        visit: &mut dyn FnMut(Step) -> bool,
    ) -> Result<Scrubbed> {
        if bytes_per_second == Some(0) {
            let error = Error::new(
                Kind::Invalid,
                "the rate of a scrub is 0 bytes a second, at which it never ends",
            );
            let error = error.at(self.core.data.path());
            return Err(error.remedy("give it a rate, or none to read as fast as it goes"));
        }
        let clock = Monotonic::new();
        let pace = &mut Pace::new(&clock, bytes_per_second);
        self.core.scrub(&range, pace, visit)
    }
}

/// Source of time.
pub(crate) trait Clock {
    fn now(&self) -> Duration;
    fn sleep(&self, time: Duration);
}

struct Monotonic(Instant);

impl Monotonic {
    fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Monotonic {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A bucket of tokens, one for each byte: it fills at the rate, up to a burst, and may be overdrawn; then the scrub
/// waits until it is not.
struct Pace<'c> {
    clock: &'c dyn Clock,
    rate: Option<f64>,
    tokens: f64,
    at: Duration,
}

impl<'c> Pace<'c> {
    fn new(clock: &'c dyn Clock, bytes_per_second: Option<u64>) -> Self {
        Self {
            clock,
            rate: bytes_per_second.map(|rate| rate.max(1) as f64),
            tokens: 0.0,
            at: clock.now(),
        }
    }

    /// Counts bytes that were read.
    fn spend(&mut self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        self.fill(rate);
        self.tokens -= bytes as f64;
        if self.tokens < 0.0 {
            self.clock
                .sleep(Duration::from_secs_f64(-self.tokens / rate));
            self.fill(rate);
        }
    }

    fn fill(&mut self, rate: f64) {
        let now = self.clock.now();
        let more = now.saturating_sub(self.at).as_secs_f64() * rate;
        self.tokens = (self.tokens + more).min(rate * BURST);
        self.at = now;
    }
}

impl Core {
    fn scrub(
        &self,
        range: &impl RangeBounds<ObjectId>,
        pace: &mut Pace<'_>,
        visit: &mut dyn FnMut(Step) -> bool,
    ) -> Result<Scrubbed> {
        let mut done = Scrubbed::default();
        let Some(ids) = ids_of(range) else {
            return Ok(done);
        };
        let mut next = Some(*ids.start());
        while let Some(window) = next.filter(|next| ids.contains(next)) {
            let mut page = self.index.page(window)?;
            page.entries.retain(|(id, _)| ids.contains(id));
            page.entries.sort_unstable_by_key(|(_, entry)| entry.place);
            for (id, entry) in page.entries {
                let step = match self.verify(id, &mut |bytes| pace.spend(bytes)) {
                    Ok(None) => continue,
                    Ok(Some(len)) => {
                        done.bytes += len;
                        if self.refuse_doubtful(id, true).is_err() {
                            done.doubtful += 1;
                            Step::Doubtful(id)
                        } else {
                            Step::Whole(id)
                        }
                    }
                    Err(error) => {
                        // A poisoned store is not damaged object by object.
                        self.log.healthy()?;
                        done.damaged += 1;
                        Step::Damaged(self.finding(id, entry, &error))
                    }
                };
                done.objects += 1;
                if !visit(step) {
                    done.next = Some(window);
                    return Ok(done);
                }
            }
            next = page.next;
        }
        Ok(done)
    }

    /// Reads and verifies an object, piece by piece; returns the length of its value, or `None` if there is none. `read` gets
    /// the length of each piece.
    pub(crate) fn verify(&self, id: ObjectId, read: &mut dyn FnMut(u64)) -> Result<Option<u64>> {
        let (pin, entry) = self.find(id, Reads::LastKnown)?;
        let Some(entry) = entry else {
            return Ok(None);
        };
        if let Ok(Ok(())) = self.verify_entry(id, entry, read) {
            return Ok(Some(u64::from(entry.len)));
        }
        drop(pin);
        // It may have been changed or moved meanwhile; under its lock it cannot change.
        let _guard = self.locks.lock(id);
        let (_pin, entry) = self.find(id, Reads::LastKnown)?;
        let Some(entry) = entry else {
            return Ok(None);
        };
        let verified = self.verify_entry(id, entry, read)?;
        verified.map_err(|fault| self.damaged(id, entry, fault))?;
        Ok(Some(u64::from(entry.len)))
    }

    fn verify_entry(
        &self,
        id: ObjectId,
        entry: Entry,
        read: &mut dyn FnMut(u64),
    ) -> Result<std::result::Result<(), Fault>> {
        let len = u64::from(entry.len);
        let mut put: Option<u32> = None;
        let mut at = 0;
        loop {
            let piece = at..len.min(at + PIECE);
            let sequence = match self.read_entry(id, entry, &piece)? {
                Ok((_, sequence)) => sequence as u32,
                Err(fault) => return Ok(Err(fault)),
            };
            read(piece.end - piece.start);
            if put.is_some_and(|first| first != sequence) {
                return Ok(Err(Fault::Mixed(chunks_of(len, &piece).start)));
            }
            put = Some(sequence);
            at = piece.end;
            if at >= len {
                return Ok(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Time that passes only where one sleeps.
    #[derive(Default)]
    struct TestClock(Cell<Duration>);

    impl Clock for TestClock {
        fn now(&self) -> Duration {
            self.0.get()
        }

        fn sleep(&self, time: Duration) {
            self.0.set(self.0.get() + time);
        }
    }

    #[test]
    fn a_budget_is_kept_over_time_and_what_was_not_spent_is_no_hoard() {
        let clock = TestClock::default();
        let mut pace = Pace::new(&clock, Some(1000));
        for _ in 0..50 {
            pace.spend(100);
        }
        assert!((4990..=5010).contains(&clock.now().as_millis()));
        // After an hour a tenth of a second's worth is free, not an hour's.
        clock.sleep(Duration::from_secs(3600));
        let before = clock.now();
        pace.spend(1100);
        let waited = clock.now().saturating_sub(before).as_millis();
        assert!((990..=1010).contains(&waited), "{waited} ms");
        let mut free = Pace::new(&clock, None);
        let before = clock.now();
        free.spend(u64::MAX);
        assert_eq!(clock.now(), before);
    }
}
