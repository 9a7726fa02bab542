//! Threads whose meetings a seed decides: one has the turn, and hands it on where the code says that it may.
//!
//! [`explore`] runs a scenario again and again. Each time its threads are real ones, but only one of them runs: at every
//! `weave::point` the seed decides whether it goes on or another does, and at a `weave::wait` another must. Half of the
//! schedules are walks at random, fleeting or sticky; half give each thread a rank and change it a few times, which finds
//! what needs few changes at the right moments (idea: probabilistic concurrency testing, Burckhardt et al. 2010). A seed
//! decides all of a schedule, so a failure is seen again with [`Plan::seed`] and one schedule.
//!
//! Threads that all wait are a deadlock, and found. Memory is sequentially consistent here: what a weaker order allows is
//! for Miri and the thread sanitizer to find. Built with `--cfg azekura_weave` only.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};

use super::random::Random;
use crate::weave;

/// Turns of one schedule after which it is taken not to end.
const TURNS_MAX: u64 = 10_000_000;

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many schedules.
    pub schedules: u64,
    /// The seed of the first; those of the others follow it.
    pub seed: u64,
}

impl Plan {
    /// So many schedules of the code as it is.
    pub fn new(schedules: u64) -> Self {
        Self {
            schedules,
            seed: super::round_seed(),
        }
    }
}

/// What was tried, if all went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Schedules.
    pub schedules: u64,
    /// Moments at which a turn could be handed on.
    pub turns: u64,
    /// Times that it was.
    pub changes: u64,
}

/// A schedule that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// How many were tried until then.
    pub schedules: u64,
    /// The first panic, or that no thread could go on.
    pub what: String,
}

type Body<'s> = Box<dyn FnOnce() + Send + 's>;

/// The threads of one run of a scenario.
#[derive(Default)]
pub struct Threads<'s> {
    bodies: Vec<Body<'s>>,
}

impl<'s> Threads<'s> {
    /// One more. All begin when the scenario has set them up.
    pub fn add(&mut self, body: impl FnOnce() + Send + 's) {
        self.bodies.push(Box::new(body));
    }

    /// Runs them to their ends. Called once by each scenario, which then looks at what they left.
    fn run(self, seed: u64, tried: &mut Tried) -> Result<(), String> {
        let count = self.bodies.len();
        let baton = Arc::new(Baton {
            state: Mutex::new(State::new(seed, count)),
            turns: (0..count).map(|_| Condvar::new()).collect(),
        });
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(self.bodies)
                .map(|(own, body)| {
                    let baton = Arc::clone(&baton);
                    scope.spawn(move || baton.run(own, body))
                })
                .collect();
            for thread in threads {
                // Panics of a body were caught.
                let _ = thread.join();
            }
        });
        let state = baton.lock();
        tried.turns += state.taken;
        tried.changes += state.changes;
        state.failure.clone().map_or(Ok(()), Err)
    }
}

/// How a seed chooses.
enum Choice {
    /// Another thread, whichever, once in so many turns.
    Walk(u64),
    /// The thread of the highest rank; at the turns listed, last first, who has the turn becomes the lowest.
    Ranks(Vec<u64>, Vec<u64>),
}

struct State {
    current: usize,
    live: Vec<bool>,
    choice: Choice,
    random: Random,
    taken: u64,
    changes: u64,
    /// The next rank below all others.
    lowest: u64,
    /// Threads that waited one after the other, and nothing else happened.
    in_vain: usize,
    failure: Option<String>,
}

impl State {
    fn new(seed: u64, threads: usize) -> Self {
        let mut random = Random::new(seed);
        let choice = if random.one_in(2) {
            Choice::Walk(2 << random.below(6))
        } else {
            let mut ranks: Vec<u64> = (0..threads as u64).map(|rank| 1 << 32 | rank).collect();
            for at in (1..threads).rev() {
                ranks.swap(at, random.index(at + 1));
            }
            let scale = 8 << random.below(8);
            let mut changes: Vec<u64> =
                (0..=random.below(5)).map(|_| random.below(scale)).collect();
            changes.sort_unstable_by(|a, b| b.cmp(a));
            Choice::Ranks(ranks, changes)
        };
        let mut state = Self {
            current: 0,
            live: vec![true; threads],
            choice,
            random,
            taken: 0,
            changes: 0,
            lowest: 1 << 32,
            in_vain: 0,
            failure: None,
        };
        state.current = state.next(None).unwrap_or(0);
        state
    }

    fn others(&self, but: Option<usize>) -> Vec<usize> {
        (0..self.live.len())
            .filter(|thread| self.live[*thread] && Some(*thread) != but)
            .collect()
    }

    /// Whose turn it is now, if it may not be that of `but`.
    fn next(&mut self, but: Option<usize>) -> Option<usize> {
        let others = self.others(but);
        match &self.choice {
            _ if others.is_empty() => None,
            Choice::Walk(_) => Some(others[self.random.index(others.len())]),
            Choice::Ranks(ranks, _) => others.into_iter().max_by_key(|thread| ranks[*thread]),
        }
    }

    /// At a point: whether `own` goes on, or who does.
    fn at_point(&mut self, own: usize) -> usize {
        self.taken += 1;
        self.in_vain = 0;
        match &mut self.choice {
            Choice::Walk(times) => {
                let times = *times;
                if !self.random.one_in(times) {
                    return own;
                }
            }
            Choice::Ranks(_, changes) => {
                if changes.last().is_none_or(|at| *at > self.taken) {
                    return own;
                }
                while changes.last().is_some_and(|at| *at <= self.taken) {
                    changes.pop();
                }
                self.sink(own);
            }
        }
        self.next(None).unwrap_or(own)
    }

    /// `own` cannot go on: who does.
    fn at_wait(&mut self, own: usize) -> usize {
        self.taken += 1;
        self.in_vain += 1;
        self.sink(own);
        self.next(Some(own)).unwrap_or(own)
    }

    fn sink(&mut self, own: usize) {
        if let Choice::Ranks(ranks, _) = &mut self.choice {
            self.lowest -= 1;
            ranks[own] = self.lowest;
        }
    }

    /// Why the thread that has the turn must give up.
    fn verdict(&mut self) -> Option<String> {
        let what = if self.in_vain > 64 * self.live.len() {
            "deadlock: each thread waits for another"
        } else if self.taken > TURNS_MAX {
            "the schedule does not end"
        } else {
            return None;
        };
        (self.in_vain, self.taken) = (0, 0);
        Some(what.to_owned())
    }
}

/// What the threads of one schedule share.
struct Baton {
    state: Mutex<State>,
    turns: Box<[Condvar]>,
}

impl Baton {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: Arc<Self>, own: usize, body: Body<'_>) {
        IS_QUIET.set(true);
        drop(self.until_turn(own, self.lock()));
        let turns = Arc::new(Turns {
            baton: Arc::clone(&self),
            own,
        });
        weave::take_turns(Some(turns));
        let outcome = catch_unwind(AssertUnwindSafe(body));
        weave::take_turns(None);
        let mut state = self.lock();
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            state
                .failure
                .get_or_insert(text.unwrap_or_else(|| "a panic without words".to_owned()));
        }
        state.live[own] = false;
        state.in_vain = 0;
        if let Some(next) = state.next(None) {
            state.current = next;
            self.turns[next].notify_one();
        }
    }

    fn until_turn<'b>(
        &'b self,
        own: usize,
        mut state: MutexGuard<'b, State>,
    ) -> MutexGuard<'b, State> {
        while state.current != own {
            state = self.turns[own]
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn hand_on(&self, own: usize, next: impl FnOnce(&mut State) -> usize) {
        let mut state = self.lock();
        let next = next(&mut state);
        if next != own {
            state.current = next;
            state.changes += 1;
            self.turns[next].notify_one();
            state = self.until_turn(own, state);
        }
        if std::thread::panicking() {
            return;
        }
        if let Some(what) = state.verdict() {
            drop(state);
            panic!("{what}");
        }
    }
}

/// One thread's way to the baton.
struct Turns {
    baton: Arc<Baton>,
    own: usize,
}

impl weave::Turns for Turns {
    fn point(&self) {
        self.baton
            .hand_on(self.own, |state| state.at_point(self.own));
    }

    fn wait(&self) {
        self.baton
            .hand_on(self.own, |state| state.at_wait(self.own));
    }
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Panics of explored threads are reported once, by `explore`.
fn be_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                usual(info);
            }
        }));
    });
}

/// Runs threads under one schedule, outside of [`explore`]. The first panic of one, or that no thread could go on, is the
/// error.
pub fn run(seed: u64, threads: Threads<'_>) -> Result<Tried, String> {
    be_quiet();
    let mut tried = Tried::default();
    threads.run(seed, &mut tried)?;
    Ok(tried)
}

/// The thread cannot go on before another one did something: for what a scenario itself shares.
pub fn wait() {
    weave::wait();
}

/// Another thread may have its turn here: for what a scenario itself shares.
pub fn point() {
    weave::point();
}

/// Runs `scenario` under one schedule after the other, until one fails. It is told the seed, makes what is shared, and
/// hands `run` the threads; what it looks at after that, it looks at alone. A panic in it or in a thread is the failure.
///
/// One exploration at a time runs in a process.
pub fn explore(
    plan: Plan,
    scenario: impl Fn(u64, &mut dyn FnMut(Threads<'_>)),
) -> Result<Tried, Failure> {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    be_quiet();
    let mut tried = Tried::default();
    let mut outcome = Ok(());
    let mut seed = plan.seed;
    for _ in 0..plan.schedules {
        tried.schedules += 1;
        let mut failure = None;
        IS_QUIET.set(true);
        let checked = catch_unwind(AssertUnwindSafe(|| {
            scenario(seed, &mut |threads| {
                let ran = threads.run(seed, &mut tried);
                if let Err(what) = ran {
                    failure = Some(what);
                    panic!("a thread failed");
                }
            });
        }));
        IS_QUIET.set(false);
        if let Err(panic) = checked {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            outcome = Err(failure.or(text).unwrap_or_default());
            break;
        }
        seed += 1;
    }
    let failed = |what| Failure {
        seed,
        schedules: tried.schedules,
        what,
    };
    outcome.map(|()| tried).map_err(failed)
}
