//! What threads saw that updated several keys at once, and whether any order of these transactions explains it.
//!
//! [`record`] lets clients run `update_many` over a few keys. Every value names the transaction that wrote it, so who
//! saw whom is known: [`serializable`] makes of that, and of who returned before whom was called, a graph, which
//! has a cycle if there is no order. [`explained`] does both for many plans.
//!
//! Linear in what was seen, but for comparing all pairs by time. Single keys are judged by `history`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use super::history::{Plan, history_key, judge, together};
use super::random::Random;
use crate::engine::{Edit, Engine};
use crate::error::Result;
use crate::verbs::Verbs;

/// By the seed 2 to 6 clients and 2 to 7 keys; 30 transactions each.
pub fn varied(seed: u64) -> Plan {
    Plan {
        clients: 2 + seed % 5,
        keys: 2 + seed % 6,
        ops: 30,
        seed,
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
    // A value too short for a version was written by no transaction.
    value.map_or(0, |value| value.get(..8).map_or(u64::MAX, number))
}

/// Lets clients run `update_many` over one to three of the keys, which are removed before.
pub fn record(engine: &dyn Engine, plan: Plan) -> Result<Transactions> {
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
                    "key {key} had version {seen}, which no transaction wrote: {transaction:?}"
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
    // Remove each that no other must precede; those that remain form a cycle.
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

/// Records transactions by each plan and asks for an order of them: how many plans there were.
///
/// The error names the plan and the transactions that have no order.
pub fn explained(
    engine: &dyn Engine,
    plans: impl IntoIterator<Item = Plan>,
) -> std::result::Result<u64, String> {
    judge(plans, |plan| {
        let run = record(engine, plan).map_err(|error| error.to_string())?;
        serializable(&run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::ModelDb;
    use crate::testkit::broken::{Broken, Bug};

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
        let refused = |all: &[Transaction], last, what| {
            let why = judge(all, last).unwrap_err();
            assert!(why.contains(what), "{why}");
        };
        // Each saw the store before the other: write skew.
        let skew = [
            make(1, &[(0, 0, false), (1, 0, true)]),
            make(2, &[(0, 0, true), (1, 0, false)]),
        ];
        refused(&skew, [2, 1], "must precede");
        let half = make(2, &[(0, 1, false), (1, 0, false)]);
        refused(&[one.clone(), half], [1, 1], "must precede");
        let lost = make(2, &[(0, 0, true)]);
        refused(&[one.clone(), lost], [2, 1], "both replaced");
        refused(std::slice::from_ref(&one), [1, 0], "already replaced");
        let invented = make(2, &[(0, 7, false)]);
        refused(&[one.clone(), invented], [1, 1], "no transaction wrote");
        let late = Transaction {
            called: 30,
            returned: 31,
            ..make(3, &[(0, 0, false)])
        };
        refused(&[one, late], [1, 1], "must precede");
    }

    #[test]
    fn engines_with_races_are_caught() {
        let crowded = |seed| Plan {
            keys: 3,
            ..Plan::new(seed)
        };
        for bug in [Bug::RacyUpdateMany, Bug::HalfUpdateMany] {
            let caught = explained(&Broken::new(bug), (0..2000).map(crowded));
            assert!(caught.is_err(), "{bug:?} was not caught");
        }
    }

    #[test]
    fn the_obvious_engine_is_serializable() {
        assert_eq!(explained(&ModelDb::new(), (0..40).map(varied)), Ok(40));
    }
}
