//! Syncs that answers wait for, by a thread of their own: the workers continue to serve meanwhile.
//!
//! A worker that executed requests asks for a sync and gets a ticket, the number of the next sync to begin. As that begins
//! after the request, it covers it. When it has ended, the waiting workers are woken.
//!
//! ```text
//!   workers   ask -> 7   ask -> 7   ask -> 8 ------ serve others ------ wake: answer 7      wake: answer 8
//!                    \      |                                          /                 /
//!   this thread       wait for as many as last time -- 7: sync -------'-- 8: sync ------'
//! ```
//!
//! Clients that wait for their answers return soon after a sync has ended, but not all at once. A sync that began with
//! the first of them would leave the others for the next one, and so halve the rate of all, for good: one half would be
//! synced while the other is served. So it waits for as many as were answered or already waiting when the last one ended,
//! but no longer than a quarter of the time that one took.
//!
//! A failed sync is followed by none that succeeds: the engine refuses. One after which the file was not at its path
//! counts for its own requests only, as the file may come back. It knows neither connections nor sockets.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use azekura::error::Result;

use crate::memcached::Service;

use super::meter::Meter;

/// The number of a sync.
pub(super) type Ticket = u64;

/// Of the time of the last sync, what is waited for more to share the next one.
const SHARE: u32 = 4;

/// A shorter wait takes longer than its timeout.
const LEAST: Duration = Duration::from_micros(50);

/// What workers and the syncing thread share.
#[derive(Default)]
pub(super) struct Syncs {
    state: Mutex<State>,
    asked: Condvar,
}

#[derive(Default)]
struct State {
    /// Syncs that have begun, and those that have ended.
    begun: Ticket,
    ended: Ticket,
    /// From this one on they failed.
    failed: Option<Ticket>,
    /// After these the file was not at its path: first and last of those that follow one another.
    displaced: Vec<(Ticket, Ticket)>,
    /// Requests that wait for the next sync.
    waiting: usize,
    /// Requests of the last one; then with how many the next one need not be delayed for more.
    enough: usize,
    /// The workers that requested it, each once.
    workers: Vec<usize>,
    is_over: bool,
}

/// What has become of syncs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    last: Ticket,
    failed: Option<Ticket>,
    displaced: Vec<(Ticket, Ticket)>,
}

impl Ended {
    /// Whether the sync of this ticket succeeded; `None`: it has not ended.
    pub(super) fn of(&self, ticket: Ticket) -> Option<bool> {
        let is_displaced = |(first, last): &(Ticket, Ticket)| (*first..=*last).contains(&ticket);
        (ticket <= self.last).then(|| {
            self.failed.is_none_or(|failed| ticket < failed)
                && !self.displaced.iter().any(is_displaced)
        })
    }
}

impl Syncs {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a sync that begins from now on, for so many requests of the worker of this index.
    pub(super) fn ask(&self, worker: usize, requests: usize) -> Ticket {
        let mut state = self.lock();
        let before = state.waiting;
        state.waiting += requests;
        if !state.workers.contains(&worker) {
            state.workers.push(worker);
        }
        // Between the first and the last of those it waits for it need not wake.
        if before == 0 || state.waiting >= state.enough {
            self.asked.notify_one();
        }
        state.begun + 1
    }

    /// What has become of them.
    pub(super) fn ended(&self) -> Ended {
        let state = self.lock();
        Ended {
            last: state.ended,
            failed: state.failed,
            displaced: state.displaced.clone(),
        }
    }

    /// Lets `run` return when no worker waits.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.asked.notify_one();
    }

    /// Syncs whenever a worker waits, and wakes the workers, until `end`.
    pub(super) fn run(&self, service: &Arc<Service>, mut meter: Meter, ring: impl Fn(usize)) {
        let mut took = Duration::ZERO;
        while let Some(workers) = self.begin(took / SHARE) {
            let from = Instant::now();
            let synced = service.sync();
            took = from.elapsed();
            meter.sync(from);
            self.finish(&synced, &service.verify_path());
            workers.into_iter().for_each(&ring);
        }
    }

    /// Waits until a worker waits, and then up to `patience` for more. Returns the workers, until the end.
    fn begin(&self, patience: Duration) -> Option<Vec<usize>> {
        let mut state = self.lock();
        while state.waiting == 0 {
            if state.is_over {
                return None;
            }
            state = self
                .asked
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if patience >= LEAST {
            let waits = |state: &mut State| state.waiting < state.enough && !state.is_over;
            let waited = self.asked.wait_timeout_while(state, patience, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.enough = std::mem::take(&mut state.waiting);
        state.begun += 1;
        Some(std::mem::take(&mut state.workers))
    }

    fn finish(&self, synced: &Result<()>, placed: &Result<()>) {
        let mut state = self.lock();
        let ticket = state.begun;
        state.ended = ticket;
        if placed.is_err() {
            match state.displaced.last_mut() {
                Some((_, last)) if *last + 1 == ticket => *last = ticket,
                _ => state.displaced.push((ticket, ticket)),
            }
        }
        state.enough += state.waiting;
        if synced.is_err() && state.failed.is_none() {
            state.failed = Some(state.begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_of_the_sync_that_begins_next() {
        let syncs = Syncs::default();
        assert_eq!(syncs.ask(0, 1), 1);
        assert_eq!(syncs.ask(2, 3), 1);
        assert_eq!(syncs.ask(0, 1), 1);
        assert_eq!(syncs.begin(Duration::ZERO), Some(vec![0, 2]));
        // It has begun: what was done now may not be in it.
        assert_eq!(syncs.ask(1, 1), 2);
        assert_eq!(syncs.ended().of(1), None);
        syncs.finish(&Ok(()), &Ok(()));
        assert_eq!(
            (syncs.ended().of(1), syncs.ended().of(2)),
            (Some(true), None)
        );
        syncs.end();
        // A waiting worker is not forgotten.
        assert_eq!(syncs.begin(Duration::ZERO), Some(vec![1]));
        syncs.finish(&Ok(()), &Ok(()));
        assert_eq!(syncs.begin(Duration::ZERO), None);
    }

    #[test]
    fn after_a_sync_that_failed_none_succeeds() {
        let syncs = Syncs::default();
        for failed in [false, true, false] {
            syncs.ask(0, 1);
            syncs.begin(Duration::ZERO);
            let error = || azekura::Error::new(azekura::error::Kind::Poisoned, "no device");
            syncs.finish(&if failed { Err(error()) } else { Ok(()) }, &Ok(()));
        }
        let ended = syncs.ended();
        assert_eq!(
            [1, 2, 3, 4].map(|ticket| ended.of(ticket)),
            [Some(true), Some(false), Some(false), None]
        );
    }

    #[test]
    fn what_was_synced_while_the_file_was_elsewhere_fails_and_what_comes_after_it_does_not() {
        let syncs = Syncs::default();
        for is_placed in [true, false, false, true, false, true] {
            syncs.ask(0, 1);
            syncs.begin(Duration::ZERO);
            let moved = || azekura::Error::new(azekura::error::Kind::Io, "moved");
            syncs.finish(&Ok(()), &is_placed.then_some(()).ok_or_else(moved));
        }
        let ended = syncs.ended();
        let of = [1, 2, 3, 4, 5, 6].map(|ticket| ended.of(ticket).unwrap());
        assert_eq!(of, [true, false, false, true, false, true]);
        assert_eq!(ended.displaced, [(2, 3), (5, 5)]);
    }

    #[test]
    fn as_many_as_were_there_are_waited_for_and_no_longer_than_patience() {
        let syncs = Syncs::default();
        syncs.ask(0, 2);
        syncs.begin(Duration::ZERO);
        // It waits, and the two are answered.
        syncs.ask(0, 1);
        syncs.finish(&Ok(()), &Ok(()));
        std::thread::scope(|scope| {
            let begun = scope.spawn(|| syncs.begin(Duration::from_secs(3600)));
            syncs.ask(1, 1);
            assert_eq!(syncs.ask(2, 1), 2);
            assert_eq!(begun.join().unwrap(), Some(vec![0, 1, 2]));
        });
        syncs.ask(0, 1);
        assert_eq!(syncs.begin(2 * LEAST), Some(vec![0]));
    }
}
