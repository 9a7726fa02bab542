//! What threads saw of one engine at once, and whether any order of their operations explains it.
//!
//! [`record`] lets clients work on few keys and stamps each call and its return with one counter.
//! [`linearizable`] then searches, key by key, an order in which no operation stands before one
//! that had returned when it was called, and in which [`Model`] gives every outcome seen (the search
//! of Wing and Gong with the memory of Lowe). [`record_transactions`] does the same for `update_many`
//! over several keys, and [`serializable`] asks for an order by versions: every value names the
//! transaction that wrote it, so who saw whom is known, and the order is a graph without a cycle.
//!
//! Searching is exponential: up to 8 clients and 100 operations a key. Which interleavings occur is
//! up to the machine; what the seed decides is who tries what.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use super::model::Model;
use super::op::{Op, Outcome, Want, Wish};
use super::random::Random;
use crate::engine::{Edit, Engine, Promise};
use crate::error::Result;
use crate::verbs::Verbs;

/// How a history is made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Threads at once; at most 8.
    pub clients: u64,
    /// Keys they share.
    pub keys: u64,
    /// Operations of each client.
    pub ops: u64,
    /// Decides who tries what.
    pub seed: u64,
}

impl Plan {
    /// 4 clients, 2 keys, 20 operations each: some 40 a key.
    pub fn new(seed: u64) -> Self {
        Self {
            clients: 4,
            keys: 2,
            ops: 20,
            seed,
        }
    }
}

/// One operation of one client, between two ticks of the common counter.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Who.
    pub client: u64,
    /// The tick before the call.
    pub called: u64,
    /// The tick after its return.
    pub returned: u64,
    /// What was asked.
    pub op: Op,
    /// What was answered.
    pub outcome: Outcome,
}

/// Most operations on one key: more are not searched.
const OPS_PER_KEY_MAX: usize = 100;

/// Runs `work` in `clients` threads that start together.
fn together<T: Send>(clients: u64, work: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
    let start = Barrier::new(clients as usize);
    let (work, start) = (&work, &start);
    std::thread::scope(|scope| {
        let run = |client| {
            move || {
                start.wait();
                work(client)
            }
        };
        let threads: Vec<_> = (0..clients)
            .map(|client| scope.spawn(run(client)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    })
}

fn history_key(index: u64) -> Vec<u8> {
    format!("history-{index}").into_bytes()
}

/// Lets clients work on keys of their own names, which are removed before, and returns what each
/// key saw. Operations: reads, puts, compare-exchanges, appends, removals, increments.
pub fn record(engine: &dyn Engine, plan: Plan) -> Result<Vec<Vec<Event>>> {
    let keys: Vec<Vec<u8>> = (0..plan.keys).map(history_key).collect();
    for key in &keys {
        engine.remove(key)?;
    }
    let clock = AtomicU64::new(0);
    let counts: Vec<AtomicU64> = keys.iter().map(|_| AtomicU64::new(0)).collect();
    let events = together(plan.clients, |client| {
        let mut random = Random::new(plan.seed ^ client.wrapping_mul(0x9e3779b97f4a7c15));
        // What this client saw last of each key: a guess with which comparisons succeed at times.
        let mut seen: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
        let mut events = Vec::new();
        for number in 0..plan.ops {
            let index = random.index(keys.len());
            if counts[index].fetch_add(1, Ordering::Relaxed) >= OPS_PER_KEY_MAX as u64 {
                continue;
            }
            let op = choose(
                &mut random,
                &keys[index],
                seen[index].as_deref(),
                client << 32 | number,
            );
            let called = clock.fetch_add(1, Ordering::SeqCst);
            let outcome = op.run(engine)?;
            let returned = clock.fetch_add(1, Ordering::SeqCst);
            match (&op, &outcome) {
                (_, Outcome::Value(value)) => seen[index].clone_from(value),
                (_, Outcome::Exchanged(exchange)) => seen[index].clone_from(&exchange.actual),
                _ => {}
            }
            events.push((
                index,
                Event {
                    client,
                    called,
                    returned,
                    op,
                    outcome,
                },
            ));
        }
        Ok(events)
    })?;
    let mut histories = vec![Vec::new(); keys.len()];
    for (index, event) in events.into_iter().flatten() {
        histories[index].push(event);
    }
    Ok(histories)
}

/// An operation on `key` by a client that saw `seen` there; `stamp` makes its value its own.
fn choose(random: &mut Random, key: &[u8], seen: Option<&[u8]>, stamp: u64) -> Op {
    let key = key.to_vec();
    // Eight bytes, so that it can be incremented; big-endian, so that it does not overflow.
    let value: Vec<u8> = stamp.to_le_bytes().into_iter().rev().collect();
    match random.below(10) {
        0..=2 => Op::Get(key),
        3 => Op::Put(key, value),
        4 => Op::Swap(key, value),
        5 => Op::Append {
            key,
            value: vec![random.below(256) as u8],
            delimiter: b",".to_vec(),
        },
        6 => Op::Remove(key),
        7 => Op::Increment {
            key,
            by: 1,
            initial: 0,
        },
        _ => {
            let expected = seen.map_or(Want::Absent, |value| Want::Value(value.to_vec()));
            let desired = if random.one_in(5) {
                Wish::Remove
            } else {
                Wish::Put(value)
            };
            Op::CompareExchange {
                key,
                expected,
                desired,
            }
        }
    }
}

/// Whether some order explains the events of one key, which began without a record.
///
/// Of an engine that evicts, the record may vanish at any moment, and only an operation brings one back. The error
/// shows the events. Panics with more than 128 of them.
pub fn linearizable(events: &[Event], promise: &Promise) -> std::result::Result<(), String> {
    assert!(
        events.len() <= 128,
        "a history of {} events is too long to search",
        events.len()
    );
    let mut search = Search {
        events,
        evicts: promise.evicts,
        dead: HashSet::new(),
    };
    if search.explains(0, &Model::new(promise)) {
        return Ok(());
    }
    let mut lines = vec!["no order explains what these operations returned:".to_owned()];
    let mut sorted: Vec<&Event> = events.iter().collect();
    sorted.sort_by_key(|event| event.called);
    lines.extend(sorted.iter().map(|event| {
        let Event {
            client,
            called,
            returned,
            op,
            outcome,
        } = event;
        format!("  client {client} [{called}, {returned}] {op:?} gave {outcome:?}")
    }));
    Err(lines.join("\n"))
}

type Record = (Vec<u8>, Vec<u8>);

/// The search for an order.
struct Search<'e> {
    events: &'e [Event],
    /// Whether a record may vanish between any two operations.
    evicts: bool,
    /// Operations done and the store after them, from where nothing explains the rest.
    dead: HashSet<(u128, Vec<Record>)>,
}

impl Search<'_> {
    /// Whether the events that are not in the set `done` can follow it, the store being `model`.
    fn explains(&mut self, done: u128, model: &Model) -> bool {
        let events = self.events;
        let left = || (0..events.len()).filter(|index| done >> index & 1 == 0);
        let Some(first_return) = left().map(|index| events[index].returned).min() else {
            return true;
        };
        // The same operations done and the same store: this was searched before, in vain.
        let store = model
            .records
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !self.dead.insert((done, store)) {
            return false;
        }
        left()
            .filter(|index| events[*index].called < first_return)
            .any(|index| {
                let mut next = model.clone();
                let Event { op, outcome, .. } = &events[index];
                next.check(op, outcome).is_ok() && self.explains(done | 1 << index, &next)
            })
            || self.evicts && !model.records.is_empty() && {
                let mut dropped = model.clone();
                dropped.records.clear();
                self.explains(done, &dropped)
            }
    }
}

/// One `update_many` over several keys: which versions it saw, and which it replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The version it wrote; from 1.
    pub id: u64,
    /// The tick before the call.
    pub called: u64,
    /// The tick after its return.
    pub returned: u64,
    /// Key, version seen (0: absent), and whether it was replaced.
    pub keys: Vec<(u64, u64, bool)>,
}

/// The transactions of a run, and the version (0: absent) each key has at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transactions {
    /// In no order.
    pub all: Vec<Transaction>,
    /// By key.
    pub last: BTreeMap<u64, u64>,
}

/// The transaction that wrote a value.
fn version(value: Option<&[u8]>) -> u64 {
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    // A value too short for a version was written by nobody.
    value.map_or(0, |value| value.get(..8).map_or(u64::MAX, number))
}

/// Lets clients run `update_many` over one to three of the keys, which are removed before.
pub fn record_transactions(engine: &dyn Engine, plan: Plan) -> Result<Transactions> {
    for index in 0..plan.keys {
        engine.remove(&history_key(index))?;
    }
    let clock = AtomicU64::new(0);
    let all = together(plan.clients, |client| {
        let mut random = Random::new(plan.seed ^ client.wrapping_mul(0x9e3779b97f4a7c15));
        let mut all = Vec::new();
        for number in 0..plan.ops {
            let id = 1 + client + plan.clients * number;
            let mut indexes: Vec<u64> = (0..=random.below(3))
                .map(|_| random.below(plan.keys))
                .collect();
            indexes.sort_unstable();
            indexes.dedup();
            let writes: Vec<bool> = indexes.iter().map(|_| !random.one_in(3)).collect();
            // Longer and shorter values, so that records move.
            let mut value = id.to_le_bytes().to_vec();
            value.resize(8 + random.index(60), 0);
            let keys: Vec<Vec<u8>> = indexes.iter().map(|index| history_key(*index)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let mut seen = Vec::new();
            let called = clock.fetch_add(1, Ordering::SeqCst);
            engine.update_many(&keys, &mut |present| {
                seen = present.iter().map(|value| version(*value)).collect();
                let edit = |write: &bool| {
                    if *write {
                        Edit::put(&value)
                    } else {
                        Edit::Keep
                    }
                };
                writes.iter().map(edit).collect()
            })?;
            let returned = clock.fetch_add(1, Ordering::SeqCst);
            let keys = indexes.iter().zip(&seen).zip(&writes);
            let keys = keys
                .map(|((index, seen), write)| (*index, *seen, *write))
                .collect();
            all.push(Transaction {
                id,
                called,
                returned,
                keys,
            });
        }
        Ok(all)
    })?;
    let mut last = BTreeMap::new();
    for index in 0..plan.keys {
        last.insert(index, version(engine.get(&history_key(index))?.as_deref()));
    }
    Ok(Transactions {
        all: all.into_iter().flatten().collect(),
        last,
    })
}

/// Whether the transactions happened one after the other, each between its call and its return.
pub fn serializable(run: &Transactions) -> std::result::Result<(), String> {
    let node: HashMap<u64, usize> = run
        .all
        .iter()
        .enumerate()
        .map(|(index, transaction)| (transaction.id, index))
        .collect();
    // Who replaced a version of a key: there can be one only, or an update was lost.
    let mut successor: HashMap<(u64, u64), usize> = HashMap::new();
    for (index, transaction) in run.all.iter().enumerate() {
        for (key, seen, write) in &transaction.keys {
            let wrote = |writer: &Transaction| writer.keys.iter().any(|(k, _, w)| k == key && *w);
            if *seen != 0
                && !node
                    .get(seen)
                    .is_some_and(|writer| wrote(&run.all[*writer]))
            {
                return Err(format!(
                    "key {key} had version {seen}, which nobody wrote: {transaction:?}"
                ));
            }
            if *write && let Some(other) = successor.insert((*key, *seen), index) {
                let other = &run.all[other];
                return Err(format!(
                    "both replaced one version of key {key}: {transaction:?} {other:?}"
                ));
            }
        }
    }
    for (key, last) in &run.last {
        if let Some(next) = successor.get(&(*key, *last)) {
            let next = &run.all[*next];
            return Err(format!(
                "key {key} ended with version {last}, already replaced by {next:?}"
            ));
        }
    }
    let mut after: Vec<HashSet<usize>> = vec![HashSet::new(); run.all.len()];
    for (index, transaction) in run.all.iter().enumerate() {
        for (key, seen, write) in &transaction.keys {
            if let Some(writer) = node.get(seen) {
                after[*writer].insert(index);
            }
            if !write && let Some(next) = successor.get(&(*key, *seen)) {
                after[index].insert(*next);
            }
        }
        let later = |other: &&(usize, &Transaction)| other.1.called > transaction.returned;
        let others: Vec<_> = run.all.iter().enumerate().collect();
        after[index].extend(others.iter().filter(later).map(|(other, _)| *other));
    }
    // Take away whoever nobody must precede; those who stay stand in a circle.
    let mut before = vec![0; run.all.len()];
    after.iter().flatten().for_each(|index| before[*index] += 1);
    let mut free: Vec<usize> = (0..before.len())
        .filter(|index| before[*index] == 0)
        .collect();
    while let Some(index) = free.pop() {
        for next in std::mem::take(&mut after[index]) {
            before[next] -= 1;
            if before[next] == 0 {
                free.push(next);
            }
        }
    }
    let stuck: Vec<_> = (0..before.len())
        .filter(|i| before[*i] > 0)
        .map(|i| &run.all[i])
        .collect();
    if stuck.is_empty() {
        return Ok(());
    }
    Err(format!(
        "each of these must precede another of them: {stuck:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Reader;
    use crate::testkit::ModelDb;
    use crate::testkit::broken::{Broken, Bug};

    fn event(called: u64, returned: u64, op: Op, outcome: Outcome) -> Event {
        Event {
            client: called,
            called,
            returned,
            op,
            outcome,
        }
    }

    fn is_explained(events: &[Event]) -> bool {
        linearizable(events, &ModelDb::new().promise()).is_ok()
    }

    fn put(value: &[u8]) -> Op {
        Op::Put(b"k".to_vec(), value.to_vec())
    }

    fn get() -> Op {
        Op::Get(b"k".to_vec())
    }

    fn saw(value: &[u8]) -> Outcome {
        Outcome::Value(Some(value.to_vec()))
    }

    #[test]
    fn overlapping_operations_may_take_either_order() {
        let write = event(0, 9, put(b"1"), Outcome::Done);
        assert!(is_explained(&[
            write.clone(),
            event(1, 2, get(), Outcome::Value(None))
        ]));
        assert!(is_explained(&[
            write.clone(),
            event(1, 2, get(), saw(b"1"))
        ]));
        let both = [
            event(1, 2, get(), Outcome::Value(None)),
            event(3, 4, get(), saw(b"1")),
        ];
        assert!(is_explained(&[&both[..], &[write]].concat()));
    }

    #[test]
    fn a_stale_read_is_caught() {
        let writes = [
            event(0, 1, put(b"1"), Outcome::Done),
            event(2, 3, put(b"2"), Outcome::Done),
        ];
        assert!(!is_explained(
            &[&writes[..], &[event(4, 5, get(), saw(b"1"))]].concat()
        ));
        // Two reads in a row that see a new value, then an old one.
        let slow = [
            event(0, 1, put(b"1"), Outcome::Done),
            event(2, 9, put(b"2"), Outcome::Done),
        ];
        let back = [event(3, 4, get(), saw(b"2")), event(5, 6, get(), saw(b"1"))];
        assert!(!is_explained(&[slow, back].concat()));
    }

    #[test]
    fn an_engine_that_evicts_may_lose_a_record_but_not_bring_it_back() {
        let evicts = Promise {
            evicts: true,
            ..ModelDb::new().promise()
        };
        let write = event(0, 1, put(b"1"), Outcome::Done);
        let gone = event(2, 3, get(), Outcome::Value(None));
        let vanished = [write.clone(), gone.clone()];
        linearizable(&vanished, &evicts).unwrap();
        assert!(!is_explained(&vanished));
        let back = event(4, 5, get(), saw(b"1"));
        assert!(linearizable(&[write, gone, back], &evicts).is_err());
    }

    #[test]
    fn a_lost_update_is_caught() {
        let add = |called, returned, sum| {
            let op = Op::Increment {
                key: b"k".to_vec(),
                by: 1,
                initial: 0,
            };
            event(called, returned, op, Outcome::Number(Some(sum)))
        };
        assert!(is_explained(&[add(0, 3, 2), add(1, 2, 1)]));
        assert!(!is_explained(&[add(0, 3, 1), add(1, 2, 1)]));
    }

    #[test]
    fn transactions_in_a_circle_are_caught() {
        let make = |id, keys: &[(u64, u64, bool)]| {
            let (called, returned) = (id, id + 10);
            Transaction {
                id,
                called,
                returned,
                keys: keys.to_vec(),
            }
        };
        let judge = |all: &[Transaction], last: [u64; 2]| {
            let last = [(0, last[0]), (1, last[1])].into_iter().collect();
            serializable(&Transactions {
                all: all.to_vec(),
                last,
            })
        };
        let one = make(1, &[(0, 0, true), (1, 0, true)]);
        judge(&[one.clone(), make(2, &[(0, 1, true)])], [2, 1]).unwrap();
        // Each saw the store before the other: write skew.
        let skew = [
            make(1, &[(0, 0, false), (1, 0, true)]),
            make(2, &[(0, 0, true), (1, 0, false)]),
        ];
        assert!(judge(&skew, [2, 1]).unwrap_err().contains("must precede"));
        let half = make(2, &[(0, 1, false), (1, 0, false)]);
        assert!(
            judge(&[one.clone(), half], [1, 1])
                .unwrap_err()
                .contains("must precede")
        );
        let lost = make(2, &[(0, 0, true)]);
        assert!(
            judge(&[one.clone(), lost], [2, 1])
                .unwrap_err()
                .contains("both replaced")
        );
        assert!(
            judge(std::slice::from_ref(&one), [1, 0])
                .unwrap_err()
                .contains("already replaced")
        );
        let invented = make(2, &[(0, 7, false)]);
        assert!(
            judge(&[one.clone(), invented], [1, 1])
                .unwrap_err()
                .contains("nobody wrote")
        );
        let late = Transaction {
            called: 30,
            returned: 31,
            ..make(3, &[(0, 0, false)])
        };
        assert!(
            judge(&[one, late], [1, 1])
                .unwrap_err()
                .contains("must precede")
        );
    }

    /// Rounds until something is caught; an interleaving that shows a race may take a few.
    fn rounds_until_caught(bug: Bug, round: impl Fn(&dyn Engine, Plan) -> bool) -> Option<u64> {
        let engine = Broken::new(bug);
        (0..2000).find(|seed| {
            round(
                &engine,
                Plan {
                    keys: 1,
                    ..Plan::new(*seed)
                },
            )
        })
    }

    #[test]
    fn engines_with_races_and_stale_reads_are_caught() {
        for bug in [Bug::RacyUpdate, Bug::StaleRead, Bug::DroppedWrite] {
            let caught = rounds_until_caught(bug, |engine, plan| {
                let histories = record(engine, plan).unwrap();
                histories
                    .iter()
                    .any(|events| linearizable(events, &engine.promise()).is_err())
            });
            assert!(caught.is_some(), "{bug:?} was not caught");
        }
        for bug in [Bug::RacyUpdateMany, Bug::HalfUpdateMany] {
            let caught = rounds_until_caught(bug, |engine, plan| {
                let plan = Plan { keys: 3, ..plan };
                serializable(&record_transactions(engine, plan).unwrap()).is_err()
            });
            assert!(caught.is_some(), "{bug:?} was not caught");
        }
    }

    #[test]
    fn the_obvious_engine_is_linearizable_and_serializable() {
        let engine = ModelDb::new();
        for seed in 0..40 {
            for events in record(&engine, Plan::new(seed)).unwrap() {
                linearizable(&events, &engine.promise()).unwrap();
            }
            let plan = Plan {
                keys: 4,
                ops: 40,
                ..Plan::new(seed)
            };
            serializable(&record_transactions(&engine, plan).unwrap()).unwrap();
        }
        let long = Plan {
            clients: 8,
            keys: 1,
            ops: 12,
            seed: 1,
        };
        linearizable(&record(&engine, long).unwrap()[0], &engine.promise()).unwrap();
    }
}
