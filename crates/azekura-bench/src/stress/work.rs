//! The work on an open store: threads that change and read it, and one that does chores to the whole of it.
//!
//! Every change stands in the ledger before the engine is called, and is acknowledged there after the call returned.
//! Every read is judged at once. Each answer that the history decides (was there a record? was it exchanged?) is
//! compared, unless all records were being removed meanwhile.
//!
//! A call that is refused as `Full` changed nothing. Calls that free space must not be refused. It does not know
//! processes and kills.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use azekura::error::{Error, Kind, Result, quote};
use azekura::record::hash::Compression;

use super::judge::{CHAIN_MAX, Content, Found, describe, judge};
use super::ledger::{Begun, Cell, FIGURES_EACH, Known, Ledger, PARTS, Slot};
use super::shape::{Opening, Shape};
use super::subject::{Chore, Subject, Wish, sound};
use crate::generate::Choice;
use crate::threads::start_in;

/// Figures that threads keep, by index: operations begun, reads judged, refused as full; then chores by kind; then
/// operations ended.
pub(super) const OPERATIONS: usize = 0;
pub(super) const READS: usize = 1;
pub(super) const REFUSED: usize = 2;
pub(super) const VERIFIED: usize = 3;
pub(super) const CHORES: usize = 4;
const ENDED: usize = CHORES + Chore::COUNT;
const _: () = assert!(ENDED < FIGURES_EACH as usize);

/// How long the background worker may be within one append.
const WORKER_LAG_MAX: Duration = Duration::from_secs(10);

/// What threads share.
pub(super) struct Site<'s, S> {
    pub(super) subject: &'s S,
    pub(super) ledger: &'s Ledger,
    pub(super) shape: &'s Shape,
    pub(super) opening: &'s Opening,
    pub(super) folder: &'s Path,
}

/// A wrong answer: the damage kind, so that a script learns of it.
fn wrong(what: impl Into<String>, key: u64, found: &str, expected: &str) -> Error {
    Error::new(Kind::Corrupted, what)
        .key(format!("number {key}").as_bytes())
        .found(found, expected)
}

/// A call that failed though it must not.
fn failed(what: &str, error: &Error) -> Error {
    if error.kind() == Kind::Corrupted && error.to_string().contains("expected") {
        return Error::new(Kind::Corrupted, what).detail(error.to_string());
    }
    Error::new(Kind::Corrupted, format!("{what} failed")).detail(error.to_string())
}

/// Whether the store is full by its own capacity, not the device.
fn is_full(error: &Error) -> bool {
    error.kind() == Kind::Full && error.system().is_none()
}

impl<S: Subject> Site<'_, S> {
    fn content(&self) -> &Content {
        &self.shape.content
    }

    /// Judges what a read found since `before` was known.
    fn judge(&self, what: &str, key: u64, before: &Known, value: Option<&[u8]>) -> Result<Found> {
        let after = self.ledger.known(key);
        judge(self.content(), key, before, &after, value).map_err(|expected| {
            let found = describe(self.content(), key, &after, value);
            let start = value.map_or_else(String::new, |value| format!(", {}", quote(value)));
            wrong(
                format!("{what} finds what the acknowledged history does not allow"),
                key,
                &format!("{found}{start}"),
                &expected,
            )
        })
    }

    fn read(&self, thread: u64, what: &str, key: u64, way: u64) -> Result<Found> {
        let before = self.ledger.known(key);
        let mut found = None;
        let read = self.subject.read(key, way, &mut |value| {
            found = Some(self.judge(what, key, &before, value));
        });
        read.map_err(|error| failed(&format!("{what} of key number {key}"), &error))?;
        self.ledger.count(thread, READS, 1);
        found.unwrap_or_else(|| Err(wrong(what, key, "no answer", "one")))
    }

    /// Looks at every record in the way of `chore`.
    ///
    /// A reader of another process may lag: an append that is under way hides from it what was acknowledged after it in the
    /// log. So it must find everything acknowledged once every change has ended that was under way then. What the background
    /// worker appends stands in no ledger; it is given time.
    fn view(&self, thread: u64, chore: Chore) -> Result<()> {
        let threads = 0..self.ledger.population().threads;
        let figures = |figure| {
            let of = |thread| self.ledger.figure_of(thread, figure);
            threads.clone().map(of).collect::<Vec<u64>>()
        };
        let (before, begun, start) = (self.ledger.all(), figures(OPERATIONS), Instant::now());
        loop {
            let ended = figures(ENDED);
            let may_lag = ended.iter().zip(&begun).any(|(ended, begun)| ended < begun)
                || self.opening.background && start.elapsed() < WORKER_LAG_MAX;
            match self.view_since(thread, chore, &before) {
                Err(_) if chore == Chore::Reader && may_lag => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                viewed => return viewed,
            }
        }
    }

    /// Looks at every record, and that none is missing and none comes twice.
    fn view_since(&self, thread: u64, chore: Chore, before: &[Known]) -> Result<()> {
        let mut seen = vec![false; before.len()];
        let scratch = self.folder.join("copy");
        let what = format!("a {}", chore.word());
        let mut show = |key: u64, value: &[u8]| -> Result<()> {
            let Some(seen) = seen.get_mut(key as usize) else {
                let what = "a key was found that was never stored";
                return Err(wrong(what, key, "it", "none"));
            };
            if std::mem::replace(seen, true) {
                let what = format!("{what} shows a record twice");
                return Err(wrong(what, key, "2", "1"));
            }
            let before = &before[key as usize];
            self.judge(&what, key, before, Some(value)).map(drop)
        };
        self.subject.view(chore, &scratch, &mut show)?;
        for (key, before) in (0..).zip(before) {
            if !seen[key as usize] {
                self.judge(&what, key, before, None)?;
            }
        }
        self.ledger.count(thread, READS, before.len() as u64);
        Ok(())
    }

    /// Removes all keys of `parts`, at once.
    fn sweep(&self, parts: std::ops::Range<u64>) -> Result<()> {
        let start = self.ledger.tick();
        let begun: Vec<Begun> = parts
            .clone()
            .map(|part| self.ledger.begin_sweep(part, start))
            .collect();
        let population = self.ledger.population();
        let range = (parts.end - parts.start < PARTS).then(|| population.range(parts.start));
        self.subject.sweep(range)?;
        let end = self.ledger.tick();
        for begun in begun {
            self.ledger.end(begun, end);
        }
        Ok(())
    }

    fn tend(&self, thread: u64, chore: Chore, choice: &mut Choice) -> Result<()> {
        // What a kill or a refusal left of a copy is in the way of the next.
        let scratch = self.folder.join("copy");
        if chore == Chore::Copy && scratch.exists() {
            std::fs::remove_file(&scratch)
                .map_err(|e| Error::io("cannot remove a copy", e).at(&scratch))?;
        }
        self.ledger.set_chore(chore as u64 + 1);
        let done = match chore {
            Chore::Scan | Chore::Copy | Chore::Reader | Chore::Snapshot => self.view(thread, chore),
            Chore::Clear => self.sweep(0..PARTS),
            Chore::ClearPart => {
                let part = choice.below(PARTS);
                self.sweep(part..part + 1)
            }
            Chore::Check => self
                .subject
                .check()
                .and_then(|damage| sound("the store in use", &damage)),
            _ => self.subject.tend(chore),
        };
        self.ledger.set_chore(0);
        match done {
            // Objects promise removals alone.
            Err(error) if is_full(&error) && S::OBJECTS && chore != Chore::Clear => {
                self.ledger.count(thread, REFUSED, 1);
                Ok(())
            }
            Err(error) if error.system().is_some_and(|_| error.kind() == Kind::Full) => Err(error),
            Err(error) => Err(failed(&format!("a {}", chore.word()), &error)),
            Ok(()) => {
                self.ledger.count(thread, CHORES + chore as usize, 1);
                Ok(())
            }
        }
    }

    /// Changes and reads by a thread that has keys of its own.
    fn changes(&self, thread: u64, choice: Choice, ends: &dyn Fn() -> bool) -> Result<()> {
        let mut worker = Worker {
            site: self,
            thread,
            choice,
        };
        while !ends() {
            let step = worker.step();
            self.ledger.count(thread, ENDED, 1);
            step?;
        }
        Ok(())
    }

    /// Chores, one after another with pauses.
    fn chores(&self, thread: u64, mut choice: Choice, ends: &dyn Fn() -> bool) -> Result<()> {
        // Clears come seldom in some rounds, so that stores become full.
        let clears_one_in = [1, 4, 30][choice.below(3) as usize];
        let pause_max = [1, 10, 60][choice.below(3) as usize];
        while !ends() {
            let chore = S::CHORES[choice.below(S::CHORES.len() as u64) as usize];
            let is_clear = matches!(chore, Chore::Clear | Chore::ClearPart);
            if !is_clear || choice.below(clears_one_in) == 0 {
                self.tend(thread, chore, &mut choice)?;
            }
            std::thread::sleep(Duration::from_millis(choice.below(pause_max + 1)));
        }
        Ok(())
    }

    /// Reads of all keys, one or many at once.
    fn reads(&self, thread: u64, mut choice: Choice, ends: &dyn Fn() -> bool) -> Result<()> {
        let keys = self.ledger.population().keys();
        while !ends() {
            if choice.below(4) > 0 {
                let key = choice.below(keys);
                self.read(thread, "a read during writes", key, choice.bits())?;
                continue;
            }
            let many: Vec<u64> = (0..=choice.below(64)).map(|_| choice.below(keys)).collect();
            let before: Vec<Known> = many.iter().map(|key| self.ledger.known(*key)).collect();
            let mut outcome = Ok(());
            self.subject
                .read_many(&many, &mut |index, value| {
                    let judged = self.judge("a read of many", many[index], &before[index], value);
                    if let (true, Err(error)) = (outcome.is_ok(), judged) {
                        outcome = Err(error);
                    }
                })
                .map_err(|error| failed("a read of many", &error))?;
            outcome?;
            self.ledger.count(thread, READS, many.len() as u64);
        }
        Ok(())
    }

    /// Works for `life`, or to the first wrong answer.
    pub(super) fn work(&self, seed: u64, life: Duration) -> Result<()> {
        self.ledger.begin_work();
        let until = Instant::now() + life;
        let threads = self.ledger.population().threads;
        let mut first = Choice::new(seed);
        if self.opening.clear_first {
            self.tend(threads, Chore::Clear, &mut first)?;
        }
        let (stopped, failure) = (AtomicBool::new(false), Mutex::new(None));
        let ends = || stopped.load(Ordering::Relaxed) || Instant::now() >= until;
        let note = |outcome: Result<()>| {
            if let Err(error) = outcome {
                stopped.store(true, Ordering::Relaxed);
                let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(error);
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..threads + 2 {
                let choice = Choice::new(first.bits());
                let (ends, note) = (&ends, &note);
                let started = start_in(scope, move || {
                    note(match thread.checked_sub(threads) {
                        None => self.changes(thread, choice, ends),
                        Some(0) => self.chores(thread, choice, ends),
                        Some(_) => self.reads(thread, choice, ends),
                    });
                });
                note(started.map(drop));
            }
        });
        let failure = failure.into_inner();
        let failure = failure.unwrap_or_else(PoisonError::into_inner);
        failure.map_or(Ok(()), Err)
    }

    /// Holds every key of a store without writers against the ledger, and makes what is there the truth from here on.
    ///
    /// A batch or a removal of all that was not acknowledged must have happened whole or not at all.
    pub(super) fn verify(&self) -> Result<()> {
        let thread = super::ledger::THREADS_MAX - 1;
        let all = self.ledger.all();
        let (mut present, mut found) = (0, Vec::with_capacity(all.len()));
        for key in 0..all.len() as u64 {
            let one = self.read(thread, "the check of everything acknowledged", key, key)?;
            present += u64::from(one != Found::Absent);
            found.push(one);
        }
        whole_or_absent(self.content(), &all, &found)?;
        self.view(thread, Chore::Scan)?;
        if self.subject.count() != present {
            let (found, expected) = (self.subject.count(), present);
            let error = Error::new(Kind::Corrupted, "records are counted wrongly");
            return Err(error.found(found, expected));
        }
        for (key, (known, found)) in (0..).zip(all.iter().zip(&found)) {
            let is_calm = known.cells.len() == 1 && !known.cells[0].newest.is_under_way();
            let sweep = known.sweep.newest;
            if is_calm && !sweep.is_under_way() && sweep.end < known.cells[0].newest.start {
                continue;
            }
            let last = match *found {
                Found::Absent => None,
                Found::Value(writer, version, base) => Some((writer, version, base)),
            };
            self.ledger.resolve(key, last);
        }
        self.ledger.settle_sweeps();
        self.ledger.count(thread, VERIFIED, all.len() as u64);
        Ok(())
    }
}

/// Holds every change of many keys that was not acknowledged: all of it happened or nothing. A key proves nothing where it looks
/// the same with the change and without it.
fn whole_or_absent(content: &Content, all: &[Known], found: &[Found]) -> Result<()> {
    // By the moment at which the change began: a key where it happened, and one where it did not.
    let mut batches = std::collections::BTreeMap::<u64, [Option<(u64, bool)>; 2]>::new();
    for (key, (known, found)) in (0..).zip(all.iter().zip(found)) {
        let [cell] = known.cells[..] else { continue };
        let done = cell.done();
        let sweep = known.sweep.newest;
        let happened = if cell.newest.is_under_way() && !sweep.is_under_way() {
            let is_new = match *found {
                Found::Value(..) if is_same_value(content, key, &cell) => continue,
                Found::Value(_, version, _) => version == cell.newest.version,
                Found::Absent if cell.newest.base == 0 && done.base == 0 => continue,
                Found::Absent if sweep.end > done.start => continue,
                Found::Absent => cell.newest.base == 0,
            };
            Some((cell.newest.start, is_new))
        } else if sweep.is_under_way() && !cell.newest.is_under_way() {
            let is_plain =
                done.base > 0 && done.end < sweep.start && known.sweep.done().end < done.start;
            is_plain.then_some((sweep.start, *found == Found::Absent))
        } else {
            None
        };
        if let Some((start, happened)) = happened {
            batches.entry(start).or_default()[usize::from(happened)]
                .get_or_insert((key, sweep.is_under_way()));
        }
    }
    for [left, happened] in batches.into_values() {
        if let (Some((left, is_sweep)), Some((happened, _))) = (left, happened) {
            let what = if is_sweep { "removal of many" } else { "batch" };
            return Err(wrong(
                format!("a {what} that was not acknowledged is there in part"),
                left,
                &format!("this key without it and number {happened} with it"),
                "all of it or nothing",
            ));
        }
    }
    Ok(())
}

/// Whether the newest change left the value that was there: of two short values many are equal.
fn is_same_value(content: &Content, key: u64, cell: &Cell) -> bool {
    let value =
        |slot: Slot| (slot.base > 0).then(|| content.value(key, 0, slot.base, slot.version));
    value(cell.before).is_some_and(|before| value(cell.newest) == Some(before))
}

/// A thread that changes keys.
struct Worker<'w, S> {
    site: &'w Site<'w, S>,
    thread: u64,
    choice: Choice,
}

/// What the one who changes a key knows of it.
#[derive(Clone, Copy)]
enum State {
    Absent,
    /// Base and version.
    Present(u32, u32),
    /// All records were being removed.
    Unknown,
}

impl State {
    fn of(known: &Known) -> Self {
        let (done, sweep) = (known.cells[0].newest, known.sweep.newest);
        if sweep.is_under_way() {
            return Self::Unknown;
        }
        if done.version == 0 || sweep.version > 0 && sweep.start > done.end {
            return Self::Absent;
        }
        match (sweep.version == 0 || sweep.end < done.start, done.base) {
            (true, 0) => Self::Absent,
            (true, base) => Self::Present(base, done.version),
            (false, _) => Self::Unknown,
        }
    }
}

impl<S: Subject> Worker<'_, S> {
    fn own_key(&mut self) -> u64 {
        let population = self.site.ledger.population();
        let each = population.owned / population.threads;
        self.choice.below(each.max(1)) * population.threads + self.thread
    }

    fn value(&self, key: u64, state: State) -> Option<Vec<u8>> {
        match state {
            State::Present(base, version) => Some(self.site.content().value(key, 0, base, version)),
            _ => None,
        }
    }

    fn step(&mut self) -> Result<()> {
        self.site.ledger.count(self.thread, OPERATIONS, 1);
        let shared = self.site.ledger.population().shared;
        match self.choice.below(100) {
            0..12 if shared > 0 => {
                let owned = self.site.ledger.population().owned;
                let key = owned + self.choice.below(shared);
                self.change(key, self.thread, true)
            }
            12..24 => self.change_many(),
            24..40 => {
                let key = self.choice.below(self.site.ledger.population().keys());
                let way = self.choice.bits();
                self.site.read(self.thread, "a read", key, way).map(|_| ())
            }
            _ => {
                let key = self.own_key();
                self.change(key, 0, false)
            }
        }
    }

    /// Ends or abandons changes by the outcome of their call. `Full` may be the answer unless the call frees space.
    fn acknowledge<T>(
        &self,
        what: &str,
        frees: bool,
        begun: &[Begun],
        call: Result<T>,
    ) -> Result<Option<T>> {
        match call {
            Ok(answer) => {
                let end = self.site.ledger.tick();
                for begun in begun {
                    self.site.ledger.end(*begun, end);
                }
                Ok(Some(answer))
            }
            Err(error) if is_full(&error) && !frees => {
                for begun in begun {
                    self.site.ledger.abandon(*begun);
                }
                self.site.ledger.count(self.thread, REFUSED, 1);
                Ok(None)
            }
            Err(error) if error.kind() == Kind::Full && !is_full(&error) => Err(error),
            Err(error) => Err(failed(what, &error)),
        }
    }

    /// An answer that the history decides if `expected` is known, unless all records were being removed meanwhile.
    fn expect(
        &self,
        what: &str,
        key: u64,
        before: &Known,
        found: bool,
        expected: Option<bool>,
    ) -> Result<()> {
        let sweep = self.site.ledger.known(key).sweep.newest;
        let calm = sweep == before.sweep.newest && !sweep.is_under_way();
        match expected {
            Some(expected) if found != expected && calm => Err(wrong(
                format!("{what} answers wrongly"),
                key,
                &found.to_string(),
                &expected.to_string(),
            )),
            _ => Ok(()),
        }
    }

    /// Ends a change that the call made or did not; then it never happened.
    fn whether(
        &self,
        what: &str,
        key: u64,
        known: &Known,
        begun: Begun,
        call: Result<bool>,
        expected: Option<bool>,
    ) -> Result<()> {
        let done = if matches!(call, Ok(false)) {
            self.site.ledger.abandon(begun);
            Some(false)
        } else {
            self.acknowledge(what, false, &[begun], call)?
        };
        done.map_or(Ok(()), |done| self.expect(what, key, known, done, expected))
    }

    /// Changes `key` as that writer of it, one of several if the key is shared: its value is not known then.
    fn change(&mut self, key: u64, writer: u64, is_shared: bool) -> Result<()> {
        let (site, way) = (self.site, self.choice.bits());
        let (ledger, subject) = (site.ledger, site.subject);
        let known = ledger.known(key);
        let state = if is_shared {
            State::Unknown
        } else {
            State::of(&known)
        };
        // What a call answers if there is a record, and if there is none.
        let answer = |present: bool, absent: bool| match state {
            State::Present(..) => Some(present),
            State::Absent => Some(absent),
            State::Unknown => None,
        };
        let begin = |base: &dyn Fn(u32) -> u32| ledger.begin_key(key, writer, ledger.tick(), base);
        let fresh = |version: u32| site.content().value(key, writer, version, version);
        let is_swept = || ledger.known(key).sweep.newest != known.sweep.newest;
        match (is_shared, self.choice.below(100)) {
            (false, 0..40) | (true, 0..50) => {
                let begun = begin(&|version| version);
                let value = fresh(begun.version);
                // Of compressed ones it is unknown which is shorter.
                let frees = S::TAKES_SHORTER
                    && site.shape.compression == Compression::None
                    && self
                        .value(key, state)
                        .is_some_and(|old| old.len() > value.len());
                let call = subject.put(key, &value, way);
                // Cleared meanwhile, it is a new record.
                let frees = frees && !is_swept();
                let what = if frees {
                    "a put of a shorter value"
                } else {
                    "a put"
                };
                self.acknowledge(what, frees, &[begun], call).map(|_| ())
            }
            (false, 40..50) | (true, 50..70) => {
                let begun = begin(&|version| version);
                let call = subject.put_new(key, &fresh(begun.version));
                let what = "a put of a new record";
                self.whether(what, key, &known, begun, call, answer(false, true))
            }
            (false, 50..65) => {
                let base = match state {
                    State::Present(base, version) if version - base < CHAIN_MAX - 1 => base,
                    State::Absent => 0,
                    _ => return Ok(()),
                };
                let begun = begin(&|version| if base == 0 { version } else { base });
                // All were removed since the record was looked up: it is not the base.
                if is_swept() {
                    ledger.abandon(begun);
                    return Ok(());
                }
                let call = subject.append(key, &fresh(begun.version), way);
                self.whether("an append", key, &known, begun, call, None)
            }
            (false, 65..85) | (true, _) => {
                let begun = begin(&|_| 0);
                let call = subject.remove(key, way);
                let removed = self.acknowledge("a removal", true, &[begun], call)?;
                removed.map_or(Ok(()), |removed| {
                    self.expect("a removal", key, &known, removed, answer(true, false))
                })
            }
            (false, 85..95) => {
                let Some(mut expected) = self.value(key, state) else {
                    return Ok(());
                };
                let removes = self.choice.below(4) == 0;
                let right = self.choice.below(3) > 0;
                if !right {
                    expected.push(b'x');
                }
                let begun = begin(&|version| if removes { 0 } else { version });
                let desired = fresh(begun.version);
                let desired = (!removes).then_some(desired.as_slice());
                let call = subject.exchange(key, &expected, desired);
                self.whether("an exchange", key, &known, begun, call, Some(right))
            }
            _ => self.read_part(key, &known, state),
        }
    }

    fn read_part(&mut self, key: u64, known: &Known, state: State) -> Result<()> {
        let Some(value) = self.value(key, state).filter(|value| !value.is_empty()) else {
            return Ok(());
        };
        let len = value.len() as u64;
        let first = self.choice.below(len);
        let end = first + 1 + self.choice.below(len - first);
        let part = &value[first as usize..end as usize];
        let read = self.site.subject.reads_part(key, first..end, part);
        match read.map_err(|error| failed("a read of a part", &error))? {
            Some(is_right) => self.expect("a read of a part", key, known, is_right, Some(true)),
            None => Ok(()),
        }
    }

    /// Puts and removals of several own keys at once: a batch, or each for itself.
    fn change_many(&mut self) -> Result<()> {
        let count = 1 + self.choice.below(20);
        let keys: std::collections::BTreeSet<u64> = (0..count).map(|_| self.own_key()).collect();
        let ledger = self.site.ledger;
        let is_batch = self.choice.below(2) == 0;
        let start = ledger.tick();
        let (mut begun, mut wishes): (Vec<Begun>, Vec<Wish>) = (Vec::new(), Vec::new());
        for key in keys {
            let removes = self.choice.below(4) == 0;
            let start = if is_batch { start } else { ledger.tick() };
            let one = ledger.begin_key(key, 0, start, |version| if removes { 0 } else { version });
            let value = self.site.content().value(key, 0, one.version, one.version);
            begun.push(one);
            wishes.push((key, (!removes).then_some(value)));
        }
        if is_batch {
            let call = self.site.subject.batch(&wishes);
            return self.acknowledge("a batch", false, &begun, call).map(|_| ());
        }
        match self.site.subject.many(&wishes) {
            Err(error) if is_full(&error) => self.find_done(&begun, &wishes),
            call => self
                .acknowledge("puts and removals of many", false, &begun, call)
                .map(|_| ()),
        }
    }

    /// After `Full`, those before the refused one are done: which, only a read can show.
    fn find_done(&self, begun: &[Begun], wishes: &[Wish]) -> Result<()> {
        self.site.ledger.count(self.thread, REFUSED, 1);
        for (begun, (key, _)) in begun.iter().zip(wishes) {
            let what = "a read after a refusal";
            let ledger = self.site.ledger;
            match self.site.read(self.thread, what, *key, 0)? {
                Found::Value(_, version, _) if version == begun.version => {
                    ledger.end(*begun, ledger.tick());
                }
                Found::Value(..) => ledger.abandon(*begun),
                // Removed by this or before, or with all others: absent in any case.
                Found::Absent => ledger.end_removed(*begun, ledger.tick()),
            }
        }
        Ok(())
    }
}
