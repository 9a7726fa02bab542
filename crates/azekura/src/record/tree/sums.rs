//! How many records lie below inner pages: what is known of it, and until when.
//!
//! Each frame has a word for the page in it:
//!
//! | word | the records below the page |
//! |---|---|
//! | 0 | are not known |
//! | upper bit 1, the rest a number | are being summed up by the count that has this number |
//! | 24 bits of turn, 39 bits | are so many, as long as it is that turn |
//!
//! Nothing is known, and updates do nothing for it, until there is a first count. Then they make unknown what lies above a leaf whose number of
//! records they change (`count`), while it is being changed, and a change of an inner page makes its own sum unknown. A count that sums up
//! stores its number first and looks at the children afterwards: what changes later finds that number, and the sum is not stored. From a
//! [rest](Sums::rest) on nothing is known again: the next turn begins when all that do not know of it have ended.
//!
//! It does not know how to find what lies above a leaf, nor what is counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use crate::epoch::Domain;
use crate::explore::{self, Mutex};

const SUMMING: u64 = 1 << 63;
const SUM_BITS: u32 = 39;
const TURN_MAX: u64 = (1 << (63 - SUM_BITS)) - 1;

/// The word of a frame.
#[derive(Debug, Default)]
pub(super) struct Sum(AtomicU64);

/// A sum that is being made.
#[derive(Debug)]
pub(super) struct PendingSum<'s> {
    sum: &'s Sum,
    number: u64,
    turn: u64,
}

impl Sum {
    /// What is known in this turn.
    pub(super) fn known(&self, turn: SumTurn) -> Option<u64> {
        explore::yield_point();
        let word = self.0.load(Ordering::Acquire);
        let sum = word & ((1 << SUM_BITS) - 1);
        (word >> SUM_BITS == turn.0).then_some(sum)
    }

    /// Makes it unknown.
    #[inline(always)]
    pub(super) fn forget(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Makes it unknown, by who changes what lies below, between the beginning of that change and its end.
    fn forget_above(&self) {
        explore::yield_point();
        if self.0.load(Ordering::Relaxed) != 0 {
            self.forget();
        }
    }
}

impl PendingSum<'_> {
    /// All children were looked at: they have so many.
    pub(super) fn finish(self, sum: u64) {
        explore::yield_point();
        if sum >> SUM_BITS != 0 {
            return;
        }
        let known = self.turn << SUM_BITS | sum;
        // Where something has changed since, it stays unknown.
        let _ = self.sum.0.compare_exchange(
            SUMMING | self.number,
            known,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

/// Makes sums unknown, of pages from the lowest up, by who is changing the number of records below them.
pub(super) fn forget<'s>(sums: impl Iterator<Item = &'s Sum>) {
    // After what began the change: a count that has not seen that is found here.
    fence(Ordering::SeqCst);
    sums.for_each(Sum::forget_above);
}

/// Since when sums are known: not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SumTurn(u64);

/// What comes next, under the lock of who begins and ends turns.
#[derive(Debug)]
struct Next {
    turn: u64,
    /// Since when updates make sums unknown; they all do when this has elapsed.
    since: Option<u64>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Sums {
    /// Whether updates make sums unknown.
    is_on: AtomicBool,
    /// The turn; 0: nothing is known.
    turn: AtomicU64,
    next: Mutex<Next>,
    /// Numbers of counts that sum up.
    numbers: AtomicU64,
    /// Whether there was a count since that was looked at. Relaxed: a hint.
    is_used: AtomicBool,
}

impl Sums {
    pub(super) fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            next: Mutex::new(Next {
                turn: 1,
                since: None,
            }),
            numbers: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
        }
    }

    /// Whether updates have to make sums unknown.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        explore::yield_point();
        self.is_on.load(Ordering::Relaxed)
    }

    /// The turn for a count; `None`: as yet, updates of others may not know of it. It waits for none.
    pub(super) fn turn(&self, domain: &Domain) -> Option<SumTurn> {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        explore::yield_point();
        match self.turn.load(Ordering::Acquire) {
            0 => self.begin_turn(domain),
            turn => Some(SumTurn(turn)),
        }
    }

    #[cold]
    fn begin_turn(&self, domain: &Domain) -> Option<SumTurn> {
        let mut next = self.next.try_lock()?;
        if next.turn > TURN_MAX {
            return None;
        }
        let since = if let Some(since) = next.since {
            since
        } else {
            self.is_on.store(true, Ordering::SeqCst);
            *next.since.insert(domain.retire_epoch())
        };
        if !domain.has_elapsed(since) {
            return None;
        }
        let turn = next.turn;
        next.turn += 1;
        next.since = None;
        self.turn.store(turn, Ordering::Release);
        Some(SumTurn(turn))
    }

    /// Begins to sum up what lies below a page, before the first look at a child.
    pub(super) fn begin<'s>(&self, sum: &'s Sum, SumTurn(turn): SumTurn) -> PendingSum<'s> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) & !SUMMING;
        sum.0.swap(SUMMING | number, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        explore::yield_point();
        PendingSum { sum, number, turn }
    }

    /// Nothing is known from now on. Who changes records without making sums unknown calls this before, pinned until after.
    pub(super) fn rest(&self) {
        let mut next = self.next.lock();
        self.turn.store(0, Ordering::Release);
        self.is_on.store(false, Ordering::Release);
        next.since = None;
    }

    /// As [`rest`](Self::rest), if there was no count since this was called last: updates pay nothing then.
    pub(super) fn rest_unless_used(&self) {
        let is_used = self.is_used.swap(false, Ordering::Relaxed);
        if !is_used && self.is_on() {
            self.rest();
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a panic is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_known_until_something_below_changes() {
        let (domain, sums) = (Domain::new(), Sums::new());
        let [low, high] = [Sum::default(), Sum::default()];
        assert!(!sums.is_on());
        let turn = sums.turn(&domain).unwrap();
        assert!(sums.is_on());
        assert_eq!(low.known(turn), None);
        for sum in [&low, &high] {
            sums.begin(sum, turn).finish(77);
            assert_eq!(sum.known(turn), Some(77));
        }
        forget([&low, &high].into_iter());
        assert_eq!((low.known(turn), high.known(turn)), (None, None));
        // A change meanwhile, of what lies below and of the page.
        for change in [Sum::forget_above, Sum::forget] {
            let summing = sums.begin(&low, turn);
            change(&low);
            summing.finish(77);
            assert_eq!(low.known(turn), None);
        }
        // Two at once: what the later one sums up counts.
        let (one, two) = (sums.begin(&low, turn), sums.begin(&low, turn));
        two.finish(5);
        one.finish(4);
        assert_eq!(low.known(turn), Some(5));
        sums.begin(&low, turn).finish(1 << SUM_BITS);
        assert_eq!(low.known(turn), None, "too many for a word");
    }

    #[test]
    fn a_turn_begins_when_updates_that_do_not_know_of_it_have_ended() {
        let (domain, sums) = (Domain::new(), Sums::new());
        let sum = Sum::default();
        let first = sums.turn(&domain).unwrap();
        sums.begin(&sum, first).finish(3);
        let pin = domain.pin();
        sums.rest();
        assert!(!sums.is_on());
        assert_eq!(sums.turn(&domain), None);
        assert!(sums.is_on(), "updates do make them unknown from here on");
        assert_eq!(sums.turn(&domain), None);
        drop(pin);
        let second = sums.turn(&domain).unwrap();
        assert_ne!(first, second);
        assert_eq!(sum.known(second), None);
        sums.rest_unless_used();
        assert!(sums.is_on(), "there was a count");
        sums.rest_unless_used();
        assert!(!sums.is_on());
    }
}
