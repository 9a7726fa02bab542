//! Cutting the power: which legal states to try, and making disks of them.
//!
//! What is pending is a list of *places*, each with so many changes: an atom of a file, its size, a change
//! of names. A [`Choice`] states for each place how many of its changes happened. Few choices are all tried;
//! of many: everything, nothing, each place missing, each place alone, and random ones that lean towards
//! the newest, the oldest, the front of the file, or the rest of it.
//!
//! It does not know why a choice is legal: see `state`.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Event, FileId};
use super::pages::Pages;
use super::state::{FileState, State};
use super::{Dice, SimDisk};

/// How many states to try at one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Up to so many states, all are tried.
    pub exhaustive: u64,
    /// Otherwise: how many places are left out, and tried alone, one by one.
    pub singles: usize,
    /// And how many random choices.
    pub random: usize,
    /// What was in flight may also be garbage: one more choice for each random one. (A device that does
    /// not protect the rest of a sector it is writing.)
    pub garbage: bool,
    /// New room may show what others left there, instead of zeros. (A file system without a journal.)
    pub stale: bool,
}

impl Default for Limits {
    /// 256 states, or 64 places and 32 random choices; no garbage.
    fn default() -> Self {
        Self {
            exhaustive: 256,
            singles: 64,
            random: 32,
            garbage: false,
            stale: false,
        }
    }
}

/// For each pending place, how many of its changes happened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    happened: Vec<usize>,
    /// Where not 0: makes garbage of some atoms in flight.
    garbage: u64,
    /// Where not 0: makes garbage of new room.
    stale: u64,
}

/// Where something is pending.
#[derive(Clone, Copy, Debug)]
enum Place {
    Name(usize),
    Size(FileId),
    Atom(FileId, u64),
}

/// A pending place, with what a choice may lean on.
#[derive(Clone, Copy, Debug)]
struct Pending {
    place: Place,
    changes: usize,
    /// Of the last change.
    event: u64,
}

/// A walk along the events of a disk.
#[derive(Clone, Debug)]
pub struct Replay {
    seed: u64,
    state: State,
    events: Vec<Event>,
    at: usize,
}

impl Replay {
    pub(super) fn new(seed: u64, state: State, events: Vec<Event>) -> Self {
        Self {
            seed,
            state,
            events,
            at: 0,
        }
    }

    pub(super) fn into_state(mut self) -> State {
        self.advance_to(self.events.len());
        self.state
    }

    /// How many events happened.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Advances to the moment after the first `at` events, which is not before the present one.
    pub fn advance_to(&mut self, at: usize) {
        assert!(
            at >= self.at,
            "a replay goes forward: it is at {} and cannot reach {at}",
            self.at
        );
        assert!(
            at <= self.events.len(),
            "there are {} events, not {at}",
            self.events.len()
        );
        for event in &self.events[self.at..at] {
            self.state.fold(event);
        }
        self.at = at;
    }

    /// How many places have pending changes.
    pub fn pending(&self) -> usize {
        self.places().len()
    }

    /// The choices to try here, each once. The same for the same seed, events and limits.
    pub fn choices(&self, limits: &Limits) -> Vec<Choice> {
        let places = self.places();
        let all: Vec<usize> = places.iter().map(|pending| pending.changes).collect();
        let count = all.iter().try_fold(1u64, |count, changes| {
            count
                .checked_mul(*changes as u64 + 1)
                .filter(|count| *count <= limits.exhaustive)
        });
        let mut dice = Dice(self.seed ^ (self.state.next << 20));
        let mut chosen = if let Some(count) = count {
            every(&all, count)
        } else {
            let mut chosen = some(&all, limits.singles, &mut dice);
            chosen.extend((0..limits.random).map(|_| lean(&places, &mut dice)));
            chosen
        };
        let mut seen = BTreeSet::new();
        chosen.retain(|happened| seen.insert(happened.clone()));
        let chosen = chosen.into_iter().map(|happened| Choice {
            happened,
            garbage: 0,
            stale: 0,
        });
        let mut choices: Vec<Choice> = chosen.collect();
        let whole = choices.len();
        let mut again = |change: fn(&mut Choice, u64)| {
            for at in 0..limits.random.min(whole) {
                let mut choice = choices[at].clone();
                change(&mut choice, dice.u64() | 1);
                choices.push(choice);
            }
        };
        if limits.garbage && !places.is_empty() {
            again(|choice, seed| choice.garbage = seed);
        }
        if limits.stale {
            again(|choice, seed| choice.stale = seed);
        }
        choices
    }

    /// The disk a power cut leaves by this choice. Costs a copy of its files.
    pub fn cut(&self, choice: &Choice) -> SimDisk {
        let mut names = self.state.names.clone();
        let mut sizes: BTreeMap<FileId, usize> = BTreeMap::new();
        let mut atoms: BTreeMap<FileId, Vec<usize>> = BTreeMap::new();
        let places = self.places();
        assert_eq!(
            places.len(),
            choice.happened.len(),
            "the choice was made at another event"
        );
        for (pending, happened) in places.iter().zip(&choice.happened) {
            match pending.place {
                Place::Name(at) if *happened > 0 => {
                    self.state.pending_names[at].1.apply(&mut names);
                }
                Place::Name(_) => {}
                Place::Size(file) => {
                    sizes.insert(file, *happened);
                }
                Place::Atom(file, _) => atoms.entry(file).or_default().push(*happened),
            }
        }
        let mut after = State::new(self.state.atom);
        after.boot = self.state.boot + 1;
        for (name, file) in names {
            let known = after.files.len();
            let chosen = atoms.get(&file).map_or(&[][..], Vec::as_slice);
            let size = sizes.get(&file).copied().unwrap_or(0);
            let (pages, size) = self.image(file, size, chosen, choice);
            after.files.push(State::file_of(pages, size));
            after.names.insert(name, known);
        }
        SimDisk::of(self.seed, after)
    }

    fn image(&self, file: FileId, size: usize, chosen: &[usize], choice: &Choice) -> (Pages, u64) {
        let state = &self.state.files[file];
        let (since, size) = match size.checked_sub(1) {
            Some(last) => state.sizes[last],
            None => (0, state.size),
        };
        let mut chosen = chosen.iter().copied();
        let prefix = |dirty: &_| {
            chosen
                .next()
                .unwrap_or(0)
                .max(FileState::least(dirty, since))
        };
        let mut pages = state.image(self.state.atom, size, prefix);
        let mut dice = Dice(choice.garbage);
        if choice.garbage != 0 {
            for index in state.dirty.keys() {
                if dice.below(4) == 0 {
                    let span = FileState::span(self.state.atom, *index);
                    pages.get_mut(span).fill_with(|| dice.u64() as u8);
                }
            }
        }
        let mut dice = Dice(choice.stale);
        if choice.stale != 0 && size > state.size {
            for sector in state.size.div_ceil(512)..size.div_ceil(512) {
                let span = sector * 512..(sector + 1) * 512;
                let unused = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
                if dice.below(2) == 0 && pages.get(span.clone()).is_none_or(unused) {
                    pages.get_mut(span).fill_with(|| dice.u64() as u8);
                }
            }
        }
        pages.truncate(size);
        (pages, size)
    }

    /// What a choice leaves out, for people.
    pub fn describe(&self, choice: &Choice) -> String {
        let places = self.places();
        let lost = places
            .iter()
            .zip(&choice.happened)
            .filter(|(p, happened)| **happened < p.changes);
        let lost = lost.map(|(pending, happened)| {
            let changes = format!("{happened} of {} changes", pending.changes);
            match pending.place {
                Place::Name(at) => format!("not {:?}", self.state.pending_names[at].1),
                Place::Size(file) => format!("size of file {file}: {changes}"),
                Place::Atom(file, index) => {
                    let span = FileState::span(self.state.atom, index);
                    format!("file {file} {:#x}..{:#x}: {changes}", span.start, span.end)
                }
            }
        });
        let lost: Vec<String> = lost.collect();
        let also = [(choice.garbage, "flight"), (choice.stale, "new room")];
        let also = also.into_iter().filter(|(seed, _)| *seed != 0);
        let also: Vec<String> = also
            .map(|(_, of)| format!(", and garbage in {of}"))
            .collect();
        format!("lost [{}]{}", lost.join("; "), also.concat())
    }

    /// The disk the death of the process leaves here, with the first `within` bytes of the next event if
    /// that is a write: a process may die in the middle of a copy.
    pub fn kill(&self, within: usize) -> SimDisk {
        let mut state = self.state.clone();
        if let Some(Event::Write {
            file,
            offset,
            bytes,
            mapped,
        }) = self.events.get(self.at)
            && within > 0
        {
            let bytes = bytes[..within.min(bytes.len())].into();
            state.fold(&Event::Write {
                file: *file,
                offset: *offset,
                bytes,
                mapped: *mapped,
            });
        }
        SimDisk::of(self.seed, state)
    }

    /// How many bytes the next event writes; 0 if it is no write, or the store of a word through a map,
    /// which a process cannot die in the middle of.
    pub fn next_write(&self) -> usize {
        match self.events.get(self.at) {
            Some(Event::Write {
                offset,
                bytes,
                mapped: true,
                ..
            }) if bytes.len() == 8 && offset.is_multiple_of(8) => 0,
            Some(Event::Write { bytes, .. }) => bytes.len(),
            _ => 0,
        }
    }

    fn places(&self) -> Vec<Pending> {
        let names = self
            .state
            .pending_names
            .iter()
            .enumerate()
            .map(|(at, (event, _))| Pending {
                place: Place::Name(at),
                changes: 1,
                event: *event,
            });
        let mut places: Vec<Pending> = names.collect();
        for file in self.state.reachable() {
            let state = &self.state.files[file];
            if let Some((event, _)) = state.sizes.last() {
                let changes = state.sizes.len();
                places.push(Pending {
                    place: Place::Size(file),
                    changes,
                    event: *event,
                });
            }
            places.extend(state.dirty.iter().map(|(index, dirty)| Pending {
                place: Place::Atom(file, *index),
                changes: dirty.changes.len(),
                event: dirty.changes.last().map_or(0, |last| last.event),
            }));
        }
        places
    }
}

/// All `count` choices.
fn every(all: &[usize], count: u64) -> Vec<Vec<usize>> {
    let digits = |mut number: u64| {
        all.iter()
            .map(|changes| {
                let digit = number % (*changes as u64 + 1);
                number /= *changes as u64 + 1;
                digit as usize
            })
            .collect()
    };
    (0..count).rev().map(digits).collect()
}

/// Everything, nothing, and single places missing and alone.
fn some(all: &[usize], singles: usize, dice: &mut Dice) -> Vec<Vec<usize>> {
    let none = vec![0; all.len()];
    let mut chosen = vec![all.to_vec(), none.clone()];
    let skip = all.len().div_ceil(singles.max(1)).max(1);
    let first = dice.below(skip as u64) as usize;
    for at in (first..all.len()).step_by(skip).take(singles) {
        for happened in BTreeSet::from([0, all[at] - 1]) {
            let mut missing = all.to_vec();
            missing[at] = happened;
            chosen.push(missing);
        }
        for happened in BTreeSet::from([1, all[at]]) {
            let mut alone = none.clone();
            alone[at] = happened;
            chosen.push(alone);
        }
    }
    chosen
}

/// A random choice that leans: what is before some point in time, or in the file, mostly happened and
/// the rest mostly not, or the other way round.
fn lean(places: &[Pending], dice: &mut Dice) -> Vec<usize> {
    let by_time = dice.below(2) == 0;
    let reversed = dice.below(2) == 0;
    let key = |pending: &Pending, at: usize| if by_time { pending.event } else { at as u64 };
    let pivot = dice.below(places.len() as u64) as usize;
    let pivot = key(&places[pivot], pivot);
    let noise = [2, 8, 32, u64::MAX][dice.below(4) as usize];
    let choose = |(at, pending): (usize, &Pending)| {
        let happened = (key(pending, at) <= pivot) != reversed;
        match (happened, dice.below(noise) == 0) {
            (_, true) => dice.below(pending.changes as u64 + 1) as usize,
            (true, false) => pending.changes,
            (false, false) => 0,
        }
    };
    places.iter().enumerate().map(choose).collect()
}
