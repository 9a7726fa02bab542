//! Power cuts, kills and faults at every moment of a workload, and what must be found afterwards.
//!
//! ```text
//!   workload --> events 0 1 2 3 ... n      each event: every legal state after a power cut --> verify
//!                                          each event: the process dies, also inside a write --> verify
//!                                          sometimes: the recovery in `verify` is cut again --> verify
//! ```
//!
//! The workload records in a [`Ledger`] what it began, what was acknowledged and what was synced; the verifier
//! gets a [`Crash`] with the counts at that moment, and decides what they oblige to. Violations panic with
//! what is needed to see them again: one seed decides everything.
//!
//! It does not know engines: `tests` has a toy, and its faults.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Random;
use super::conformance::message;
use super::suite::summed;
use crate::io::sim::{Atom, Fault, Limits, Operation, Replay, SimDisk};

/// How much to try.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides everything.
    pub seed: u64,
    /// What the device writes as a whole.
    pub atom: Atom,
    /// States at each event.
    pub limits: Limits,
    /// Events to cut at, spread evenly; more than there are: every one.
    pub cuts_max: usize,
    /// Of the states, one in so many has its recovery cut again; 0: none.
    pub recovery_one_in: u64,
    /// Events of each such recovery to cut at.
    pub recovery_cuts_max: usize,
    /// Whether the process is killed, too.
    pub kills: bool,
    /// Just this event: to see a violation again.
    pub only_event: Option<usize>,
}

impl Config {
    /// Every event, sectors of 512 bytes, every 16th recovery cut at 8 events, kills.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            atom: Atom::Sector,
            limits: Limits::default(),
            cuts_max: usize::MAX,
            recovery_one_in: 16,
            recovery_cuts_max: 8,
            kills: true,
            only_event: None,
        }
    }

    /// A smaller trial for quick tests: at most so many events, and 64 states or 16 places at each.
    #[must_use]
    pub fn quick(mut self, cuts_max: usize) -> Self {
        self.cuts_max = cuts_max;
        self.limits = Limits {
            exhaustive: 64,
            singles: 16,
            random: 16,
            ..self.limits
        };
        self
    }
}

/// How much was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events of the workload.
    pub events: u64,
    /// States after a power cut that were verified.
    pub crash_states: u64,
    /// States after a second cut or kill, during the recovery from a first.
    pub recovery_cuts: u64,
    /// States after the death of the process.
    pub kills: u64,
}

summed!(Counts: events, crash_states, recovery_cuts, kills);

/// What the workload did, and when. Operations are numbered from 0 and follow one another.
#[derive(Debug)]
pub struct Ledger {
    disk: SimDisk,
    marks: Mutex<Vec<(usize, Mark)>>,
    first: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Began,
    Acknowledged,
    Synced,
}

impl Ledger {
    fn new(disk: &SimDisk) -> Self {
        Self {
            disk: disk.clone(),
            marks: Mutex::default(),
            first: AtomicUsize::new(0),
        }
    }

    /// What happened until now is not cut: the state from which a workload begins.
    pub fn cut_from_here(&self) {
        self.first.store(self.disk.events(), Ordering::Relaxed);
    }

    fn mark(&self, mark: Mark) {
        self.marks.lock().push((self.disk.events(), mark));
    }

    /// The next operation begins: from now on it may be found.
    pub fn begin(&self) {
        self.mark(Mark::Began);
    }

    /// The operation begun last was acknowledged: from now on it must be found after a kill.
    pub fn acknowledge(&self) {
        self.mark(Mark::Acknowledged);
    }

    /// Everything acknowledged so far was synced: from now on it must be found after a power cut.
    pub fn synced(&self) {
        self.mark(Mark::Synced);
    }

    /// Begins, does and acknowledges an operation. One that fails is not acknowledged; the workload
    /// should end then, as an engine refuses everything after a failure.
    pub fn operation<T, E>(&self, act: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.begin();
        let done = act()?;
        self.acknowledge();
        Ok(done)
    }

    /// The counts after the first `at` events.
    fn at(&self, at: usize) -> Done {
        let mut done = Done {
            events: at,
            ..Done::default()
        };
        for (_, mark) in self.marks.lock().iter().filter(|(event, _)| *event <= at) {
            match mark {
                Mark::Began => done.began += 1,
                Mark::Acknowledged => done.acknowledged += 1,
                Mark::Synced => done.synced = done.acknowledged,
            }
        }
        done
    }
}

/// How many operations had come how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Events of the workload that had happened.
    pub events: usize,
    /// Operations begun. Later ones must not be found.
    pub began: usize,
    /// Operations acknowledged.
    pub acknowledged: usize,
    /// Operations acknowledged before a sync that returned.
    pub synced: usize,
}

/// What ended the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The power: everything synced must be there.
    Power,
    /// The process: everything acknowledged must be there.
    Process,
}

/// A disk after a crash, and what was done before.
#[derive(Debug)]
pub struct Crash<'d> {
    /// The disk to open. It is the verifier's own.
    pub disk: &'d SimDisk,
    /// What ended the run.
    pub end: End,
    /// What was done before.
    pub done: Done,
    recovered: Cell<Option<usize>>,
}

impl<'d> Crash<'d> {
    fn new(disk: &'d SimDisk, end: End, done: Done) -> Self {
        Self {
            disk,
            end,
            done,
            recovered: Cell::new(None),
        }
    }

    /// How many operations must be found.
    pub fn kept(&self) -> usize {
        match self.end {
            End::Power => self.done.synced,
            End::Process => self.done.acknowledged,
        }
    }

    /// States that the store is open: what the verifier does to the disk from now on is not part of the
    /// recovery, and is not cut again.
    pub fn recovered(&self) {
        self.recovered.set(Some(self.disk.events()));
    }
}

/// Runs `workload` on a new disk, then verifies the states after cuts and kills.
///
/// `verify` opens the disk, calls [`Crash::recovered`], and compares; it answers with a digest of what it
/// found, or states what is wrong (a panic states it, too). The digest of a state whose recovery from a power
/// cut was cut again must be the same: what was seen once does not go away.
///
/// # Panics
/// With seed, event and choice, if `verify` found a violation.
pub fn explore(
    config: &Config,
    workload: impl FnOnce(&SimDisk, &Ledger),
    verify: impl Fn(&Crash<'_>) -> Result<u64, String>,
) -> Counts {
    let disk = SimDisk::with_atom(config.seed, config.atom);
    let ledger = Ledger::new(&disk);
    workload(&disk, &ledger);
    let events = disk.events();
    let mut explorer = Explorer::new(config, &verify, events, 0);
    let mut replay = disk.replay();
    let first = ledger.first.load(Ordering::Relaxed);
    for at in spread(first..=events, config.cuts_max, &mut explorer.random) {
        if config.only_event.is_some_and(|only| only != at) {
            continue;
        }
        replay.advance_to(at);
        let situation = || situation(config, &disk, at);
        explorer.moment(&replay, ledger.at(at), End::Process, &situation);
    }
    explorer.counts
}

/// Runs `workload` again and again, each time with the next call of `operation` failing by `fault`, until
/// there is none left; after each run, verifies the death of the process and power cuts.
///
/// The workload is to end at its first error. `verify` is the same as in [`explore`].
///
/// # Panics
/// With seed and number of the failing call, if `verify` found a violation.
pub fn fail_each(
    config: &Config,
    operation: Operation,
    fault: Fault,
    workload: impl Fn(&SimDisk, &Ledger),
    verify: impl Fn(&Crash<'_>) -> Result<u64, String>,
) -> Counts {
    let mut counts = Counts::default();
    for nth in 0.. {
        let disk = SimDisk::with_atom(config.seed, config.atom);
        disk.faults().fail(operation, nth, fault);
        let ledger = Ledger::new(&disk);
        workload(&disk, &ledger);
        if disk.faults().struck() == 0 {
            break;
        }
        let events = disk.events();
        let mut explorer = Explorer::new(config, &verify, events, nth);
        let mut replay = disk.replay();
        replay.advance_to(events);
        // After a failed sync it is unknown what the device has: the same as a power cut.
        let killed = if operation == Operation::Sync {
            End::Power
        } else {
            End::Process
        };
        explorer.moment(&replay, ledger.at(events), killed, &|| {
            let end = situation(config, &disk, events);
            format!("{end}, {operation:?} number {nth} failed by {fault:?}")
        });
        counts = counts.plus(explorer.counts);
    }
    counts
}

fn situation(config: &Config, disk: &SimDisk, at: usize) -> String {
    let trace = disk.trace();
    let last = at
        .checked_sub(1)
        .map_or("nothing", |last| trace[last].as_str());
    format!(
        "seed {}, after event {at} of {} ({last})",
        config.seed,
        trace.len()
    )
}

struct Explorer<'c, V> {
    config: &'c Config,
    verify: &'c V,
    random: Random,
    counts: Counts,
}

impl<'c, V: Fn(&Crash<'_>) -> Result<u64, String>> Explorer<'c, V> {
    /// For run number `nth`, of so many events.
    fn new(config: &'c Config, verify: &'c V, events: usize, nth: u64) -> Self {
        Self {
            config,
            verify,
            random: Random::new(config.seed ^ nth << 32),
            counts: Counts {
                events: events as u64,
                ..Counts::default()
            },
        }
    }

    /// Everything that may happen at one moment; `killed` is how the death of the process counts.
    fn moment(&mut self, replay: &Replay, done: Done, killed: End, situation: &dyn Fn() -> String) {
        for (number, choice) in replay.choices(&self.config.limits).iter().enumerate() {
            let place = || {
                let lost = replay.describe(choice);
                format!("{}, power cut, choice {number}: {lost}", situation())
            };
            self.counts.crash_states += 1;
            self.state(&replay.cut(choice), End::Power, done, &place);
        }
        if self.config.kills {
            let next = replay.next_write();
            let inside = (1..next).step_by((next / 3).max(1)).take(3);
            for within in std::iter::once(0).chain(inside) {
                let place = || format!("{}, kill {within} bytes into the next write", situation());
                self.counts.kills += 1;
                self.state(&replay.kill(within), killed, done, &place);
            }
        }
    }

    /// Verifies a state, and now and then what is left if its recovery is cut.
    fn state(&mut self, disk: &SimDisk, end: End, done: Done, place: &dyn Fn() -> String) {
        let crash = Crash::new(disk, end, done);
        let found = self.check(&crash, None, place);
        let one_in = self.config.recovery_one_in;
        let last = crash.recovered.get().unwrap_or(disk.events());
        if one_in == 0 || !self.random.one_in(one_in) || last == 0 {
            return;
        }
        let limits = Limits {
            exhaustive: 16,
            singles: 4,
            random: 4,
            ..self.config.limits
        };
        let mut replay = disk.replay();
        for at in spread(1..=last, self.config.recovery_cuts_max, &mut self.random) {
            replay.advance_to(at);
            let cut = |how: &str| format!("{}, its recovery cut at {at}: {how}", place());
            for choice in replay.choices(&limits) {
                let disk = replay.cut(&choice);
                // What only a killed process was promised, the power may take.
                let digest = (end == End::Power).then_some(found);
                self.counts.recovery_cuts += 1;
                let crash = Crash::new(&disk, End::Power, done);
                self.check(&crash, digest, &|| cut(&replay.describe(&choice)));
            }
            let disk = replay.kill(0);
            self.counts.recovery_cuts += 1;
            self.check(&Crash::new(&disk, end, done), Some(found), &|| cut("kill"));
        }
    }

    /// Runs the verifier; `digest` is what it must find.
    fn check(&self, crash: &Crash<'_>, digest: Option<u64>, place: &dyn Fn() -> String) -> u64 {
        let what = match catch_unwind(AssertUnwindSafe(|| (self.verify)(crash))) {
            Ok(Ok(found)) if digest.is_none_or(|digest| digest == found) => return found,
            Ok(Ok(_)) => "what was seen before is gone".to_owned(),
            Ok(Err(what)) => what,
            Err(panic) => message(&*panic).to_owned(),
        };
        panic!("{}; {:?}: {what}", place(), crash.done)
    }
}

/// At most `count` of the numbers, evenly, the last always.
fn spread(range: std::ops::RangeInclusive<usize>, count: usize, random: &mut Random) -> Vec<usize> {
    let (first, last) = range.into_inner();
    let step = (last - first + 1).div_ceil(count.max(1)).max(1);
    let mut numbers: Vec<usize> = (first + random.index(step)..last).step_by(step).collect();
    numbers.push(last);
    numbers
}
