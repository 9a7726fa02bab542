//! What threads saw of one engine at once, and whether any order of their operations explains it.
//!
//! [`record`] lets clients work on few keys and stamps each call and its return with one counter.
//! [`linearizable`] then searches, key by key, an order in which no operation stands before one
//! that had returned when it was called, and in which [`Model`] gives every outcome seen (the search
//! of Wing and Gong with the memory of Lowe). [`explained`] does both for many plans. Updates of several keys at
//! once are judged by `transactions`.
//!
//! Searching is exponential: up to 8 clients and 100 operations a key. Which interleavings occur is
//! up to the machine; what the seed decides is who tries what.

use std::collections::{BTreeMap, HashSet};
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;

use super::model::Model;
use super::op::{Op, Outcome, Want, Wish, big_endian};
use super::random::Random;
use crate::engine::{Engine, Promise};
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

    /// By the seed 2 to 5 clients and 1 to 3 keys; 80 operations together.
    pub fn varied(seed: u64) -> Self {
        let clients = 2 + seed % 4;
        Self {
            clients,
            keys: 1 + seed % 3,
            ops: 80 / clients,
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
pub(super) fn together<T: Send, E: Send>(
    clients: u64,
    work: impl Fn(u64) -> std::result::Result<T, E> + Sync,
) -> std::result::Result<Vec<T>, E> {
    let start = Barrier::new(clients as usize);
    let (work, start) = (&work, &start);
    std::thread::scope(|scope| {
        let run = |client| {
            scope.spawn(move || {
                start.wait();
                work(client)
            })
        };
        let threads: Vec<_> = (0..clients).map(run).collect();
        let ended = threads.into_iter().map(ScopedJoinHandle::join);
        ended
            .map(|ended| ended.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// The key of a number, of which clients know some.
pub fn history_key(index: u64) -> Vec<u8> {
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
    let value = big_endian(stamp);
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
        let (client, from, to) = (event.client, event.called, event.returned);
        let (op, outcome) = (&event.op, &event.outcome);
        format!("  client {client} [{from}, {to}] {op:?} gave {outcome:?}")
    }));
    Err(lines.join("\n"))
}

/// Records a history by each plan and asks for an order of each key's events: how many plans there were.
///
/// The error names the plan and shows the events that nothing explains.
pub fn explained(
    engine: &dyn Engine,
    plans: impl IntoIterator<Item = Plan>,
) -> std::result::Result<u64, String> {
    let promise = engine.promise();
    judge(plans, |plan| {
        let histories = record(engine, plan).map_err(|error| error.to_string())?;
        histories
            .iter()
            .try_for_each(|events| linearizable(events, &promise))
    })
}

/// Lets `explain` look at each plan: how many there were, or the first that it could not explain, and why.
pub(super) fn judge(
    plans: impl IntoIterator<Item = Plan>,
    explain: impl Fn(Plan) -> std::result::Result<(), String>,
) -> std::result::Result<u64, String> {
    plans.into_iter().try_fold(0, |count, plan| {
        explain(plan).map_err(|why| format!("{plan:?}: {why}"))?;
        Ok(count + 1)
    })
}

type Store = BTreeMap<Vec<u8>, Vec<u8>>;

/// The search for an order.
struct Search<'e> {
    events: &'e [Event],
    /// Whether a record may vanish between any two operations.
    evicts: bool,
    /// Operations done and the store after them, from where nothing explains the rest.
    dead: HashSet<(u128, Store)>,
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
        let store = model.records.clone();
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
        for outcome in [Outcome::Value(None), saw(b"1")] {
            assert!(is_explained(&[write.clone(), event(1, 2, get(), outcome)]));
        }
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

    fn crowded(seed: u64) -> Plan {
        Plan {
            keys: 1,
            ..Plan::new(seed)
        }
    }

    #[test]
    fn engines_with_races_and_stale_reads_are_caught() {
        for bug in [Bug::RacyUpdate, Bug::StaleRead, Bug::DroppedWrite] {
            let why = explained(&Broken::new(bug), (0..2000).map(crowded)).unwrap_err();
            assert!(why.contains("no order explains"), "{bug:?}: {why}");
        }
    }

    #[test]
    fn the_obvious_engine_is_linearizable() {
        let long = Plan {
            clients: 8,
            keys: 1,
            ops: 12,
            seed: 1,
        };
        let plans = (0..40).flat_map(|seed| [Plan::new(seed), Plan::varied(seed)]);
        let plans = plans.chain([long]);
        assert_eq!(explained(&ModelDb::new(), plans), Ok(81));
    }
}
