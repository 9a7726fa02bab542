//! What a death or a power cut leaves while 16 puts are in flight: of each object a state it had or was about to get.
//!
//! A history notes when each change was sent and when it was answered, by the events of the disk. At any event, the last
//! change answered before counts, or one sent before that came after it.

use std::collections::VecDeque;

use super::*;
use crate::io::sim::Limits;

const IDS: u64 = 24;
/// Moments at which it ends.
const MOMENTS: usize = 30;

/// A change that was asked for.
struct Sent {
    n: u64,
    /// `None`: removed.
    value: Option<Vec<u8>>,
    /// Events of the disk when it was sent, and when its answer was seen.
    before: usize,
    answered: usize,
}

/// Changes objects, always with many requests under way.
fn history(disk: &SimDisk, served: &Served, seed: u64, durability: Durability) -> Vec<Sent> {
    let mut random = Random::new(seed);
    let mut history: Vec<Sent> = Vec::new();
    let mut under_way: VecDeque<Box<dyn FnOnce()>> = VecDeque::new();
    let mut seen = 0;
    for version in 0..200 {
        let n = random.below(IDS);
        let len = match random.below(4) {
            0 => 900,
            _ => 3000 + random.index(9000),
        };
        let value = (!random.one_in(5)).then(|| value(version, len));
        let before = disk.events();
        under_way.push_back(if let Some(bytes) = value.clone() {
            let put = served.put(id(n), bytes).durability(durability).send();
            Box::new(move || _ = put.wait().unwrap())
        } else {
            let remove = served.remove(id(n)).durability(durability).send();
            Box::new(move || _ = remove.wait().unwrap())
        });
        history.push(Sent {
            n,
            value,
            before,
            answered: usize::MAX,
        });
        while under_way.len() > 20 {
            under_way.pop_front().unwrap()();
            history[seen].answered = disk.events();
            seen += 1;
        }
    }
    for wait in under_way {
        wait();
    }
    history
}

/// Whether each object is as an end after `at` events may leave it.
fn verify(disk: &SimDisk, options: &StoreOptions, history: &[Sent], at: usize) {
    let store = open_on(disk, options);
    for n in 0..IDS {
        let found = store.get(id(n)).unwrap();
        let of: Vec<_> = history.iter().filter(|sent| sent.n == n).collect();
        let last = of.iter().rposition(|sent| sent.answered <= at);
        let mut may = of[last.unwrap_or(0)..]
            .iter()
            .take_while(|sent| sent.before <= at);
        let is_old = last.is_none() && found.is_none();
        assert!(
            is_old || may.any(|sent| sent.value == found),
            "object {n} has {:?} bytes after {at} events, which is no state it had",
            found.map(|found| found.len())
        );
    }
    store.check_room().unwrap();
    store.put(id(0), &value(1 << 40, 5000)).unwrap();
}

#[test]
fn a_death_with_16_in_flight_leaves_each_object_old_or_new() {
    for round in 0..3 {
        let disk = SimDisk::new(round_seed() + round);
        let options = store_options(8 << 20);
        let store = create_on(&disk, &options);
        let created = disk.events();
        let served = Served::start(store, &threads(16)).unwrap();
        let history = history(&disk, &served, round, Durability::Process);
        let end = disk.events();
        let mut random = Random::new(round);
        for _ in 0..MOMENTS {
            let at = created + random.index(end - created);
            verify(&disk.kill_state(at), &options, &history, at);
        }
    }
}

#[test]
fn a_power_cut_with_16_in_flight_leaves_what_was_acknowledged() {
    let limits = Limits {
        exhaustive: 2,
        singles: 1,
        random: 3,
        ..Limits::default()
    };
    for round in 0..2 {
        let disk = SimDisk::new(round_seed() + round);
        let options = store_options(8 << 20);
        let store = create_on(&disk, &options);
        let created = disk.events();
        let served = Served::start(store, &threads(16)).unwrap();
        let history = history(&disk, &served, round, Durability::Power);
        let end = disk.events();
        let mut random = Random::new(round);
        for _ in 0..MOMENTS / 2 {
            let at = created + random.index(end - created);
            for cut in disk.crash_states(at, &limits) {
                verify(&cut, &options, &history, at);
            }
        }
    }
}
