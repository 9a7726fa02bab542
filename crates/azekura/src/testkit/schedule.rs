//! Threads whose meetings a seed decides: one has the turn, and hands it on where the code states that it may.
//!
//! [`explore`] runs a scenario again and again. Each time its threads are real ones, but only one of them runs: at every
//! `explore::yield_point` the seed decides whether it continues or another does, and at a `explore::wait` another must. Half of the
//! schedules are walks at random, fleeting or sticky; half give each thread a rank and change it a few times, which finds
//! what needs few changes at the right moments (idea: probabilistic concurrency testing, Burckhardt et al. 2010). A seed
//! decides all of a schedule, so a failure is seen again with [`Plan::seed`] and one schedule.
//!
//! A thread that the code under test starts by `explore::spawn`, such as a store's background worker, is one of the schedule from
//! its start to its end. A store is opened within a schedule for that: [`lead`] makes the caller its first thread.
//!
//! Threads that all wait are a deadlock, and found. Memory is sequentially consistent here: what a weaker order allows is
//! for Miri and the thread sanitizer to find. Built with `--cfg azekura_explore` only.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Once};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::conformance::message;
use super::random::Random;
use super::suite::summed;
use crate::explore;

/// Turns of one schedule after which it is taken not to end.
const TURNS_MAX: u64 = 10_000_000;
/// The first thread of a schedule that `lead` runs.
const LEAD: usize = 0;

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
    /// Of the moments, those of threads that the code under test started.
    pub turns_of_started: u64,
}

summed!(Tried: schedules, turns, changes, turns_of_started);

/// A schedule that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// How many were tried until then.
    pub schedules: u64,
    /// The first panic, or that no thread could continue.
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
        let baton = Arc::new(Baton::new(seed));
        baton.lock().begin(self.bodies.len(), CHANGES_WITHIN);
        baton.run_all(0, self.bodies, |_| ());
        *tried = tried.plus(baton.tried());
        baton.verdict()
    }
}

/// The first thread of a schedule.
pub struct Lead {
    baton: Arc<Baton>,
}

impl Lead {
    /// Runs threads to their ends, within the schedule. The first panic of one, or that no thread could continue, is the error.
    pub fn run(&self, threads: Threads<'_>) -> Result<(), String> {
        let count = threads.bodies.len();
        if count > 0 {
            let first = self.baton.lock().begin(count, CHANGES_WITHIN_LONG);
            self.baton.run_all(first, threads.bodies, |baton| {
                baton.hand_on(LEAD, State::leave_to_others);
            });
        }
        self.baton.verdict()
    }
}

/// The threads of a schedule take turns, so one processor does: a turn that stays on it is handed on in half the time.
/// Threads inherit it of the one that starts them.
struct OneProcessor(CpuSet);

impl OneProcessor {
    /// Where the system refuses, threads run where they may.
    fn take() -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one).ok()?;
        Some(Self(before))
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        // A hint only.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Runs `body` as the first thread of a schedule. The error is the first panic of another thread, or that one outlives `body`.
///
/// # Panics
/// With the panic of `body`.
pub fn lead<R>(seed: u64, body: impl FnOnce(&Lead) -> R) -> Result<(R, Tried), String> {
    be_quiet();
    let _one = OneProcessor::take();
    let lead = Lead {
        baton: Arc::new(Baton::new(seed)),
    };
    lead.baton.lock().begin(1, CHANGES_WITHIN_LONG);
    explore::take_turns(Some(lead.baton.turns_of(LEAD)));
    let outcome = catch_unwind(AssertUnwindSafe(|| body(&lead)));
    explore::take_turns(None);
    lead.baton.end(LEAD, None);
    lead.baton.until_all_ended();
    let outcome = outcome.unwrap_or_else(|panic| resume_unwind(panic));
    lead.baton.verdict()?;
    let tried = Tried {
        schedules: 1,
        ..lead.baton.tried()
    };
    Ok((outcome, tried))
}

/// Powers of two of turns within which ranks change: of schedules of some hundred turns, and of long ones.
const CHANGES_WITHIN: u64 = 8;
const CHANGES_WITHIN_LONG: u64 = 15;

/// How a seed chooses.
enum Choice {
    /// Another thread, whichever, once in so many turns.
    Walk(u64),
    /// The thread of the highest rank; at the turns listed, last first, who has the turn becomes the lowest.
    Ranks(Vec<u64>, Vec<u64>),
}

/// Where a thread of a schedule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It can have the turn.
    Ready,
    /// It cannot continue before `wake` of this number.
    Asleep(usize),
    /// It cannot continue before the threads that it started have ended.
    Away,
    Ended,
}

struct Thread {
    stage: Stage,
    /// Whether a scenario named it; otherwise the code under test started it.
    is_named: bool,
    turn: Arc<Condvar>,
}

struct State {
    current: usize,
    threads: Vec<Thread>,
    choice: Choice,
    random: Random,
    taken: u64,
    changes: u64,
    turns_of_started: u64,
    /// The next rank below all others.
    lowest: u64,
    /// Threads that waited one after the other, and nothing else happened.
    in_vain: usize,
    failure: Option<String>,
}

impl State {
    fn new(seed: u64) -> Self {
        Self {
            current: 0,
            threads: Vec::new(),
            choice: Choice::Walk(2),
            random: Random::new(seed),
            taken: 0,
            changes: 0,
            turns_of_started: 0,
            lowest: 1 << 32,
            in_vain: 0,
            failure: None,
        }
    }

    /// Adds so many threads that the scenario names, and draws how the turns are chosen from now on; ranks change within so many
    /// powers of two of turns. The number of the first of them.
    fn begin(&mut self, count: usize, within: u64) -> usize {
        let first = self.threads.len();
        for _ in 0..count {
            self.add(true);
        }
        let random = &mut self.random;
        self.choice = if random.one_in(2) {
            Choice::Walk(2 << random.below(6))
        } else {
            let threads = self.threads.len();
            let mut ranks: Vec<u64> = (0..threads as u64).map(|rank| 1 << 32 | rank).collect();
            for at in (1..threads).rev() {
                ranks.swap(at, random.index(at + 1));
            }
            let scale = 8 << random.below(within);
            let mut changes: Vec<u64> = (0..=random.below(5))
                .map(|_| self.taken + random.below(scale))
                .collect();
            changes.sort_unstable_by(|a, b| b.cmp(a));
            Choice::Ranks(ranks, changes)
        };
        if first == 0 {
            self.current = self.next(None).unwrap_or(0);
        }
        first
    }

    /// Adds a thread; its number.
    fn add(&mut self, is_named: bool) -> usize {
        self.threads.push(Thread {
            stage: Stage::Ready,
            is_named,
            turn: Arc::default(),
        });
        if let Choice::Ranks(ranks, _) = &mut self.choice {
            // Anywhere among the others.
            let above = 1 << 32 | self.random.below(2 * ranks.len() as u64);
            ranks.push(above);
        }
        self.threads.len() - 1
    }

    fn others(&self, but: Option<usize>) -> Vec<usize> {
        (0..self.threads.len())
            .filter(|at| self.threads[*at].stage == Stage::Ready && Some(*at) != but)
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

    fn take(&mut self, own: usize) {
        self.taken += 1;
        self.turns_of_started += u64::from(!self.threads[own].is_named);
    }

    /// At a point: whether `own` continues, or who does.
    fn at_point(&mut self, own: usize) -> usize {
        self.take(own);
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

    /// `own` cannot continue: who does.
    fn at_wait(&mut self, own: usize) -> usize {
        self.take(own);
        self.in_vain = self.in_vain.saturating_add(1);
        self.sink(own);
        self.next(Some(own)).unwrap_or(own)
    }

    /// `own` cannot continue before it is woken: who does.
    fn at_sleep(&mut self, own: usize, on: usize) -> usize {
        self.take(own);
        self.threads[own].stage = Stage::Asleep(on);
        self.next(Some(own)).unwrap_or_else(|| {
            // The last one awake: none is left that could wake it.
            self.threads[own].stage = Stage::Ready;
            self.in_vain = usize::MAX;
            own
        })
    }

    fn wake(&mut self, is_woken: impl Fn(usize) -> bool) {
        for thread in &mut self.threads {
            if let Stage::Asleep(on) = thread.stage
                && is_woken(on)
            {
                thread.stage = Stage::Ready;
                self.in_vain = 0;
            }
        }
    }

    /// The lead waits for the threads that it named.
    fn leave_to_others(&mut self) -> usize {
        self.threads[LEAD].stage = Stage::Away;
        self.next(None).unwrap_or(LEAD)
    }

    /// `own` has ended: who continues.
    fn at_end(&mut self, own: usize, panic: Option<String>) -> Option<usize> {
        if let Some(panic) = panic {
            self.failure.get_or_insert(panic);
        }
        self.threads[own].stage = Stage::Ended;
        self.in_vain = 0;
        let mut running = self.threads.iter().filter(|thread| thread.is_named);
        if running.all(|thread| matches!(thread.stage, Stage::Away | Stage::Ended))
            && self.threads[LEAD].stage == Stage::Away
        {
            self.threads[LEAD].stage = Stage::Ready;
        }
        self.next(None).or_else(|| {
            // Threads that none will wake find that out for themselves, and fail.
            self.wake(|_| true);
            self.next(None)
        })
    }

    fn sink(&mut self, own: usize) {
        if let Choice::Ranks(ranks, _) = &mut self.choice {
            self.lowest -= 1;
            ranks[own] = self.lowest;
        }
    }

    /// Why the thread that has the turn must give up.
    fn verdict(&mut self) -> Option<String> {
        let what = if self.in_vain > 64 * self.threads.len() {
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
    /// Notified when a thread has ended.
    ended: Condvar,
}

impl Baton {
    fn new(seed: u64) -> Self {
        Self {
            state: Mutex::new(State::new(seed)),
            ended: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn turns_of(self: &Arc<Self>, own: usize) -> Arc<Turns> {
        Arc::new(Turns {
            baton: Arc::clone(self),
            own,
        })
    }

    fn tried(&self) -> Tried {
        let state = self.lock();
        Tried {
            schedules: 0,
            turns: state.taken,
            changes: state.changes,
            turns_of_started: state.turns_of_started,
        }
    }

    fn verdict(&self) -> Result<(), String> {
        self.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// Runs the threads numbered from `first` on to their ends, `meanwhile` on this one.
    fn run_all(self: &Arc<Self>, first: usize, bodies: Vec<Body<'_>>, meanwhile: impl Fn(&Self)) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (first..)
                .zip(bodies)
                .map(|(own, body)| {
                    let baton = Arc::clone(self);
                    scope.spawn(move || baton.run(own, body))
                })
                .collect();
            meanwhile(self);
            for thread in threads {
                // Panics of a body were caught.
                let _ = thread.join();
            }
        });
    }

    fn run(self: Arc<Self>, own: usize, body: Body<'_>) {
        IS_QUIET.set(true);
        drop(Self::until_turn(own, self.lock()));
        explore::take_turns(Some(self.turns_of(own)));
        let outcome = catch_unwind(AssertUnwindSafe(body));
        crate::epoch::leave();
        explore::take_turns(None);
        let panic = outcome.err().map(|panic| message(&*panic).to_owned());
        self.end(own, panic);
    }

    /// `own` has ended, and has the turn no more.
    fn end(&self, own: usize, panic: Option<String>) {
        let mut state = self.lock();
        if let Some(next) = state.at_end(own, panic) {
            state.current = next;
            state.threads[next].turn.notify_one();
        }
        self.ended.notify_all();
    }

    /// Waits for those that outlive the lead: that any does is a failure.
    fn until_all_ended(&self) {
        let mut state = self.lock();
        while state.threads.iter().any(|t| t.stage != Stage::Ended) {
            let what = "a thread that a store started outlives the schedule";
            state.failure.get_or_insert_with(|| what.to_owned());
            self.ended.wait(&mut state);
        }
    }

    fn until_turn(own: usize, mut state: MutexGuard<'_, State>) -> MutexGuard<'_, State> {
        let turn = Arc::clone(&state.threads[own].turn);
        while state.current != own {
            turn.wait(&mut state);
        }
        state
    }

    fn hand_on(&self, own: usize, next: impl FnOnce(&mut State) -> usize) {
        let mut state = self.lock();
        let next = next(&mut state);
        if next != own {
            state.current = next;
            state.changes += 1;
            state.threads[next].turn.notify_one();
            state = Self::until_turn(own, state);
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

impl explore::Turns for Turns {
    fn yield_point(&self) {
        self.baton
            .hand_on(self.own, |state| state.at_point(self.own));
    }

    fn wait(&self) {
        self.baton
            .hand_on(self.own, |state| state.at_wait(self.own));
    }

    fn sleep(&self, on: usize) {
        self.baton
            .hand_on(self.own, |state| state.at_sleep(self.own, on));
    }

    fn wake(&self, on: usize) {
        self.baton.lock().wake(|asleep| asleep == on);
    }

    fn add(&self) -> Box<dyn FnOnce(explore::Work) + Send> {
        let baton = Arc::clone(&self.baton);
        let own = baton.lock().add(false);
        Box::new(move |work| baton.run(own, work))
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

/// The thread cannot continue before another one did something: for what a scenario itself shares.
pub fn wait() {
    explore::wait();
}

/// Another thread may have its turn here: for what a scenario itself shares.
pub fn yield_point() {
    explore::yield_point();
}

/// Runs `scenario` under one schedule after the other, until one fails. It gets the seed, makes what is shared, and
/// hands `run` the threads; what it looks at after that, it looks at alone. A panic in it or in a thread is the failure.
///
/// One exploration at a time runs in a process.
pub fn explore(
    plan: Plan,
    scenario: impl Fn(u64, &mut dyn FnMut(Threads<'_>)),
) -> Result<Tried, Failure> {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
    be_quiet();
    let _one = OneProcessor::take();
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
            outcome = Err(failure.unwrap_or_else(|| message(&*panic).to_owned()));
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
