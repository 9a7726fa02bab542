//! Random requests against a map that is changed as they are sent.
//!
//! Up to 60 are sent before the first answer is looked at, with any deadlines: what touches the same object is done in the order
//! in which it was sent, so each answer is the map's of that moment.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use super::*;

const IDS: u64 = 12;

type Model = BTreeMap<u64, Vec<u8>>;

/// Checks one answer.
type Check = Box<dyn FnOnce()>;

fn expect<T: PartialEq + std::fmt::Debug + 'static>(
    pending: Pending<T>,
    wanted: T,
    what: String,
) -> Check {
    Box::new(move || assert_eq!(pending.wait().unwrap(), wanted, "{what}"))
}

fn within(model: &Model, first: u64, end: Option<u64>) -> Vec<u64> {
    let all = model.keys().copied();
    all.filter(|n| *n >= first && end.is_none_or(|end| *n < end))
        .collect()
}

fn step(served: &Served, model: &mut Model, random: &mut Random, version: u64) -> Check {
    let deadline = match random.below(3) {
        0 => Deadline::Immediate,
        1 => Deadline::Within(Duration::from_millis(random.below(50))),
        _ => Deadline::Infinity,
    };
    let durability = *random.choose(&[Durability::Process, Durability::Process, Durability::Power]);
    let n = random.below(IDS);
    let end = (!random.one_in(4)).then(|| n + random.below(4));
    let bound = end.map_or(Bound::Unbounded, |end| Bound::Excluded(id(end)));
    let ids = (Bound::Included(id(n)), bound);
    let what = format!("version {version}, object {n}");
    if random.one_in(8) {
        // A read that is dropped, begun or not, changes nothing.
        drop(served.get(id(n)).deadline(deadline).send());
    }
    match random.below(29) {
        0..8 => {
            let len = match random.below(8) {
                0 => 66_000 + random.index(20_000),
                1..4 => random.index(2500),
                _ => random.index(14_000),
            };
            let bytes = value(version, len);
            let replaced = model.insert(n, bytes.clone()).is_some();
            let put = served.put(id(n), bytes).deadline(deadline);
            let pending = put.durability(durability).send();
            Box::new(move || assert_eq!(pending.wait().unwrap().replaced, replaced, "{what}"))
        }
        8..12 => {
            let get = served.get(id(n)).deadline(deadline).prioritized();
            expect(get.send(), model.get(&n).cloned().map(Into::into), what)
        }
        12..14 => {
            let (from, to) = (random.below(30_000), random.below(90_000));
            let get = served.get_range(id(n), from..to).deadline(deadline);
            let wanted = model.get(&n).map(|bytes| {
                let to = bytes.len().min(to as usize);
                bytes[to.min(from as usize)..to].to_vec().into()
            });
            expect(get.send(), wanted, what)
        }
        14 => {
            let wanted = model.get(&n).map(|bytes| bytes.len() as u64);
            expect(served.head(id(n)).deadline(deadline).send(), wanted, what)
        }
        15 | 16 => {
            let removed = model.remove(&n).is_some();
            let remove = served.remove(id(n)).deadline(deadline);
            expect(remove.durability(durability).send(), removed, what)
        }
        17 => {
            let gone = within(model, n, end);
            model.retain(|n, _| !gone.contains(n));
            let remove = served.remove_range(ids).deadline(deadline);
            expect(remove.send(), gone.len() as u64, what)
        }
        18 => {
            let mut wanted = within(model, n, end);
            wanted.truncate(3);
            let listed = served.list(ids, 3).deadline(deadline).send();
            let usage = served.usage(ids).send();
            let all = within(model, n, end);
            let bytes: usize = all.iter().map(|n| model[n].len()).sum();
            Box::new(move || {
                let ids: Vec<_> = listed.wait().unwrap().iter().map(|one| one.id).collect();
                assert_eq!(
                    ids,
                    wanted.into_iter().map(id).collect::<Vec<_>>(),
                    "{what}"
                );
                let usage = usage.wait().unwrap();
                assert_eq!((usage.count, usage.bytes), (all.len() as u64, bytes as u64));
            })
        }
        19 => expect(served.sync().deadline(deadline).send(), (), what),
        20 => expect(served.checkpoint().deadline(deadline).send(), (), what),
        21 | 22 => {
            let bytes = value(version, random.index(12_000));
            let gone = (n + 1 + random.below(IDS - 2)) % IDS;
            model.insert(n, bytes.clone());
            model.remove(&gone);
            let batch = vec![(id(n), Some(bytes)), (id(gone), None)];
            let apply = served.apply(batch).deadline(deadline);
            let pending = apply.durability(durability).send();
            Box::new(move || assert_eq!(pending.wait().unwrap().len(), 2, "{what}"))
        }
        23..26 => {
            let found = served.get_with_sequence(id(n)).deadline(deadline);
            let found = found.wait().unwrap();
            let (bytes, sequence) = found.map_or((None, 0), |(bytes, n)| (Some(bytes), n));
            assert_eq!(bytes.as_deref(), model.get(&n).map(|v| &v[..]), "{what}");
            let is_expected = bytes.is_some() && !random.one_in(3);
            let expected = sequence + u64::from(!is_expected);
            let remove = served.compare_and_remove(id(n), expected);
            let pending = remove.deadline(deadline).durability(durability).send();
            if is_expected {
                model.remove(&n);
            }
            expect(pending, is_expected, what)
        }
        26 => {
            let bytes = value(version, random.index(12_000));
            let put = served.compare_and_put(id(n), None, bytes.clone());
            let pending = put.deadline(deadline).durability(durability).send();
            let is_new = !model.contains_key(&n);
            model.entry(n).or_insert(bytes);
            Box::new(move || assert_eq!(pending.wait().unwrap().is_some(), is_new, "{what}"))
        }
        _ => {
            // What was sent before is done first: the sequence is the one that counts.
            let sequence = served.sequence(id(n)).deadline(deadline).wait().unwrap();
            assert_eq!(sequence.is_some(), model.contains_key(&n), "{what}");
            let bytes = value(version, random.index(12_000));
            let expected = if random.one_in(3) { Some(0) } else { sequence };
            let put = served.compare_and_put(id(n), expected, bytes.clone());
            let pending = put.deadline(deadline).durability(durability).send();
            let is_expected = expected == sequence;
            if is_expected {
                model.insert(n, bytes);
            }
            Box::new(move || assert_eq!(pending.wait().unwrap().is_some(), is_expected, "{what}"))
        }
    }
}

fn compare(served: &Served, seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    let mut model = Model::new();
    let mut checks: VecDeque<Check> = VecDeque::new();
    for version in 0..steps {
        checks.push_back(step(served, &mut model, &mut random, version));
        // Now and then all of it, so that it also stands still.
        let keep = if random.one_in(50) { 0 } else { 60 };
        while checks.len() > keep {
            checks.pop_front().unwrap()();
        }
    }
    for check in checks {
        check();
    }
    // Reads whose answers were dropped may still be in flight.
    while served.metrics().in_flight > 0 {
        std::thread::yield_now();
    }
    let counters = served.metrics().counters;
    assert_eq!(counters.enqueued, counters.done + counters.cancelled);
    for n in 0..IDS {
        let found = served.store().get(id(n)).unwrap();
        assert_eq!(found, model.get(&n).cloned().map(Into::into));
    }
    served.store().check_room().unwrap();
}

#[test]
fn what_is_served_answers_like_a_map() {
    for round in 0..6 {
        let seed = round_seed() + round;
        let disk = SimDisk::new(seed);
        let mut options = store_options(16 << 20);
        if round % 3 == 1 {
            options.opening.small_max = 0;
        }
        if round % 3 == 2 {
            options.opening.sync_every = Some(7);
        }
        let store = create_on(&disk, &options);
        let depth = [16, 1, 5][round as usize % 3];
        let served = Served::start(Arc::clone(&store), &threads(depth)).unwrap();
        compare(&served, seed, 600);
        drop(served);
        drop(store);
        open_on(&disk, &options).check_room().unwrap();
    }
}

#[test]
fn what_is_served_from_a_file_answers_like_a_map() {
    let folder = tempfile::tempdir().unwrap();
    let options = store_options(64 << 20).background(true);
    let store = Store::create(folder.path().join(NAME), &options).unwrap();
    let served = Served::start(Arc::new(store), &Options::default()).unwrap();
    compare(&served, round_seed(), 3000);
}
