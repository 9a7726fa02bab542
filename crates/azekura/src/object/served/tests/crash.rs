//! What a death or a power cut leaves while 16 puts are in flight: of each object a state it had or was about to get.
//!
//! A history notes when each change was sent and when it was answered, by the events of the disk. At any event, the last
//! change answered before counts, or one sent before that came after it. Options, objects and their lengths are drawn from the
//! round's seed.
//!
//! Two planted bugs must be caught: a change that is answered before its sync, and a put that is answered before its write
//! landed.

use std::collections::VecDeque;

use super::late::Late;
use super::*;
use crate::io::sim::Limits;
use crate::testkit::configuration::object_options;
use crate::testkit::suite::{case, share, tried_in_rounds};

/// Requests that wait for their answers.
const UNDER_WAY: usize = 20;
/// Moments at which it ends.
const MOMENTS: usize = 30;

/// A store and what is put into it.
#[derive(Clone, Debug)]
struct Shape {
    options: CreateOptions,
    ids: u64,
    /// Of the objects one in so many is `small` bytes long or shorter.
    small_one_in: u64,
    small: usize,
    /// The others are so long, or up to four times that.
    usual: usize,
}

impl Shape {
    /// In which the planted bugs are known to be seen.
    fn of_the_bugs() -> Self {
        Self {
            options: store_options(8 << 20),
            ids: 24,
            small_one_in: 4,
            small: 900,
            usual: 3000,
        }
    }

    fn drawn(seed: u64) -> Self {
        let mut random = Random::new(!seed);
        let ids = *random.choose(&[2, 6, 24, 24, 60, 150]);
        let usual = *random.choose(&[400, 3000, 3000, 12_000, 30_000]);
        // Each object once, and those in progress in addition to what they replace.
        let data = (ids + 2 * UNDER_WAY as u64) * (4 * usual as u64 + (8 << 10));
        Self {
            options: object_options(&mut random, data + (1 << 20)),
            ids,
            small_one_in: *random.choose(&[1, 2, 4, 4, 1000]),
            small: *random.choose(&[90, 900, 2048, 4097]),
            usual,
        }
    }

    fn len(&self, random: &mut Random) -> usize {
        if random.one_in(self.small_one_in) {
            random.index(self.small + 1)
        } else {
            self.usual + random.index(3 * self.usual)
        }
    }
}

/// Changes of a group of objects that were sent at once: of one object, or a batch.
pub(super) struct Sent {
    changes: Batch,
    /// Events of the disk when they were sent, and when their answer was seen.
    before: usize,
    answered: usize,
}

/// Waits for an answer.
pub(super) type Wait = Box<dyn FnOnce()>;

/// Sends each change as a request of its own.
pub(super) fn send_each(served: &Served, changes: &Batch, durability: Durability) -> Wait {
    let send = |(id, value): &(ObjectId, Option<Vec<u8>>)| -> Wait {
        if let Some(bytes) = value {
            let put = served.put(*id, bytes.clone()).durability(durability);
            let put = put.send();
            Box::new(move || _ = put.wait().unwrap())
        } else {
            let remove = served.remove(*id).durability(durability).send();
            Box::new(move || _ = remove.wait().unwrap())
        }
    };
    let sent: Vec<Wait> = changes.iter().map(send).collect();
    Box::new(move || sent.into_iter().for_each(|wait| wait()))
}

/// Sends `count` changes as they are drawn, `under_way` of them always in progress.
pub(super) fn history(
    disk: &SimDisk,
    count: u64,
    under_way: usize,
    draw: &mut dyn FnMut(u64) -> Batch,
    send: &dyn Fn(&Batch) -> Wait,
) -> Vec<Sent> {
    let mut history: Vec<Sent> = Vec::new();
    let mut in_progress: VecDeque<Wait> = VecDeque::new();
    let mut seen = 0;
    for version in 0..count {
        let changes = draw(version);
        let before = disk.events();
        in_progress.push_back(send(&changes));
        history.push(Sent {
            changes,
            before,
            answered: usize::MAX,
        });
        while in_progress.len() > under_way {
            in_progress.pop_front().unwrap()();
            history[seen].answered = disk.events();
            seen += 1;
        }
    }
    for wait in in_progress {
        wait();
    }
    history
}

/// Whether each group of objects is as an end after `at` events may leave it; if not, what is wrong.
pub(super) fn verify(
    disk: &SimDisk,
    options: &CreateOptions,
    groups: &[Vec<ObjectId>],
    history: &[Sent],
    at: usize,
) -> std::result::Result<(), String> {
    let store = open_on(disk, options);
    for group in groups {
        let found: Result<Vec<_>> = group.iter().map(|id| store.get(*id)).collect();
        let found = found.map_err(|error| error.to_string())?;
        let found: Vec<_> = found.iter().map(Option::as_deref).collect();
        let of: Vec<_> = history
            .iter()
            .filter(|sent| sent.changes[0].0 == group[0])
            .collect();
        let last = of.iter().rposition(|sent| sent.answered <= at);
        let mut may = of[last.unwrap_or(0)..]
            .iter()
            .take_while(|sent| sent.before <= at)
            .map(|sent| sent.changes.iter().map(|(_, value)| value.as_deref()));
        let is_old = last.is_none() && found.iter().all(Option::is_none);
        if !is_old && !may.any(|changes| changes.eq(found.iter().copied())) {
            let lens: Vec<_> = found.iter().map(|found| found.map(<[u8]>::len)).collect();
            return Err(format!(
                "{group:?} have {lens:?} bytes after {at} events, which is no state they had"
            ));
        }
    }
    store.check_room().unwrap();
    store.put(id(0), &value(1 << 40, 5000)).unwrap();
    Ok(())
}

/// Ends what `disk` recorded from `opened` on at some moments, by power or by a death; how many states were verified, or what is
/// wrong with one.
pub(super) fn ends_at(
    disk: &SimDisk,
    opened: usize,
    seed: u64,
    (moments, by_power): (usize, bool),
    verify: &dyn Fn(&SimDisk, usize) -> std::result::Result<(), String>,
) -> std::result::Result<u64, String> {
    let end = disk.events();
    let mut random = Random::new(seed);
    let mut states = 0;
    for _ in 0..moments {
        let at = opened + random.index(end - opened);
        if by_power {
            for cut in disk.crash_states(at, &limits()) {
                verify(&cut, at)?;
                states += 1;
            }
        } else {
            verify(&disk.kill_state(at), at)?;
            states += 1;
        }
    }
    Ok(states)
}

fn limits() -> Limits {
    Limits {
        exhaustive: 2,
        singles: 1,
        random: 3,
        ..Limits::default()
    }
}

/// Serves a history on `storage` of a disk, and ends it at some moments; how many states were verified, or what is
/// wrong with one.
fn ends(
    shape: &Shape,
    seed: u64,
    asked: Durability,
    by_power: bool,
    moments: usize,
    below: impl FnOnce(Arc<dyn Storage>) -> Arc<dyn Storage>,
) -> std::result::Result<u64, String> {
    let disk = SimDisk::new(seed);
    create_on(&disk, &shape.options);
    let storage = disk.directory().open(Path::new(NAME), Access::Write);
    let store = Store::open_on(below(storage.unwrap()), None, &shape.options.opening).unwrap();
    let opened = disk.events();
    let served = Served::start(Arc::new(store), &threads(16)).unwrap();
    let mut random = Random::new(seed);
    let draw = &mut |version| {
        let n = random.below(shape.ids);
        let len = shape.len(&mut random);
        vec![(id(n), (!random.one_in(5)).then(|| value(version, len)))]
    };
    let send = |changes: &Batch| send_each(&served, changes, asked);
    let history = history(&disk, 200, UNDER_WAY, draw, &send);
    let groups: Vec<_> = (0..shape.ids).map(|n| vec![id(n)]).collect();
    let verify = |cut: &SimDisk, at| verify(cut, &shape.options, &groups, &history, at);
    ends_at(&disk, opened, seed, (moments, by_power), &verify)
}

#[test]
fn a_death_with_16_in_flight_leaves_each_object_old_or_new() {
    let (rounds, mut states) = (share(60), 0);
    for round in 0..rounds {
        let seed = round_seed() + round;
        let shape = Shape::drawn(seed);
        let _shown = case(seed, &shape);
        let process = Durability::Process;
        states += ends(&shape, seed, process, false, MOMENTS, |disk| disk).unwrap();
    }
    tried_in_rounds(states, rounds, 30, "deaths with 16 requests in flight");
}

#[test]
fn a_power_cut_with_16_in_flight_leaves_what_was_acknowledged() {
    let (rounds, mut states) = (share(60), 0);
    for round in 0..rounds {
        let seed = round_seed() + round;
        let shape = Shape::drawn(seed);
        let _shown = case(seed, &shape);
        let power = Durability::Power;
        states += ends(&shape, seed, power, true, MOMENTS / 2, |disk| disk).unwrap();
    }
    tried_in_rounds(states, rounds, 65, "power cuts with 16 requests in flight");
}

#[test]
fn the_net_catches_an_acknowledgement_before_the_sync() {
    let shape = Shape::of_the_bugs();
    let ended = ends(&shape, 1, Durability::Process, true, MOMENTS, |disk| disk);
    assert!(ended.unwrap_err().contains("no state they had"));
}

#[test]
fn the_net_catches_a_put_that_is_answered_before_its_write_landed() {
    let shape = Shape::of_the_bugs();
    for by_power in [false, true] {
        let asked = if by_power {
            Durability::Power
        } else {
            Durability::Process
        };
        // A power cut finds it only where the sync does not wait for it either.
        let late = |disk| Late::over(disk, shape.options.journal_size.unwrap());
        assert!(ends(&shape, 1, asked, by_power, MOMENTS, late).is_err());
    }
}
