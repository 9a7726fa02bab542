//! The promises of an engine that evicts, made so small that it must.
//!
//! After every call its bounds hold; what it shows of a key is the last value put, or nothing; what was
//! seen to be gone stays gone until it is put again; and it keeps something at all. One thread at a time, every
//! kind of update; then histories of threads, while a thread puts other keys all the time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Boxed, Effort, Outcomes, counts, ensure, equal, guarded, numbered};
use crate::engine::{Edit, Engine};
use crate::testkit::history::{Plan, explained};
use crate::testkit::{Random, concurrently};
use crate::verbs::Verbs;

/// What an engine may hold.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Records, as `count` reports them.
    pub records_max: u64,
    /// Bytes, as `stats` reports those of live ones.
    pub bytes_max: u64,
}

impl Bounds {
    fn check(&self, engine: &dyn Engine) -> Outcomes<()> {
        let stats = engine.stats();
        let (records, bytes) = (stats.count, stats.live_bytes);
        let is_within = records <= self.records_max && bytes <= self.bytes_max;
        ensure(is_within, || {
            format!("{records} records and {bytes} bytes within {self:?}")
        })?;
        counts(engine, records, "as in stats")
    }
}

/// Tries engines from `make`, which have these bounds; how many answers were compared, and histories explained.
///
/// Some of `bounds` must be below 200 records of 100 bytes, or nothing is evicted. The error states what was seen.
pub fn evictions(
    make: &dyn Fn() -> Boxed,
    bounds: Bounds,
    effort: &Effort,
) -> Outcomes<(u64, u64)> {
    let effort = *effort;
    assert!(make().promise().evicts, "an engine that keeps everything");
    let (_, compared) = guarded(make(), effort.deadline, move |engine| {
        alone(engine, bounds, &effort)
    })?;
    let (_, explained) = guarded(make(), effort.deadline, move |engine| {
        with_others(engine, bounds, &effort)
    })?;
    Ok((compared, explained))
}

type Known = BTreeMap<Vec<u8>, Vec<u8>>;

/// Compares what is shown of a key with the last value put under it; what is absent is forgotten.
fn compare(known: &mut Known, key: &[u8], found: Option<&[u8]>) -> Outcomes<()> {
    if found.is_none() {
        known.remove(key);
        return Ok(());
    }
    equal(
        &found,
        &known.get(key).map(Vec::as_slice),
        &format!("value of {key:?}, which may be gone but not another"),
    )
}

fn alone(engine: &dyn Engine, bounds: Bounds, effort: &Effort) -> Outcomes<u64> {
    const KEYS: u64 = 400;
    let mut random = Random::new(effort.seed);
    let mut known = Known::new();
    let mut compared = 0;
    for _ in 0..effort.sequences * effort.ops / 4 {
        let key = numbered("evict", random.below(KEYS));
        let len = random.index(120);
        let value = random.bytes(len);
        match random.below(8) {
            0..=2 => {
                engine.put(&key, &value)?;
                known.insert(key.clone(), value);
            }
            3 => {
                let removed = engine.remove(&key)?;
                ensure(!removed || known.contains_key(&key), || {
                    format!("{key:?} was gone, and could be removed")
                })?;
                known.remove(&key);
            }
            4 => {
                let mut shown = Ok(());
                let mut put = Vec::new();
                engine.update(&key, &mut |present| {
                    shown = compare(&mut known, &key, present);
                    put = present.unwrap_or_default().to_vec();
                    put.truncate(100);
                    put.push(b'+');
                    Edit::Put(put.clone().into())
                })?;
                shown?;
                known.insert(key.clone(), put);
            }
            5 => {
                let other = numbered("evict", random.below(KEYS));
                let mut shown = Ok(());
                engine.update_many(&[&key, &other], &mut |present| {
                    shown = compare(&mut known, &key, present[0])
                        .and_then(|()| compare(&mut known, &other, present[1]));
                    vec![Edit::put(&value), Edit::Remove]
                })?;
                shown?;
                // Of a repeated key the last edit counts.
                known.insert(key.clone(), value);
                known.remove(&other);
            }
            6 => {
                let mut shown = Ok(());
                let mut before = Vec::new();
                engine.scan(None, &mut |key, value| {
                    shown = compare(&mut known, key, Some(value));
                    before.push(key.to_vec());
                    if shown.is_ok() {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                })?;
                shown?;
                equal(&(before.len() as u64), &engine.count(), "records of a scan")?;
                // What a scan did not show is gone, and stays so.
                known.retain(|key, _| before.contains(key));
            }
            _ => {}
        }
        bounds.check(engine)?;
        let looked_at = numbered("evict", random.below(KEYS));
        for key in [key, looked_at] {
            let found = engine.get(&key)?;
            compare(&mut known, &key, found.as_deref())?;
            compared += 1;
        }
    }
    engine.put(b"last", b"value")?;
    ensure(engine.count() > 0, || "it keeps nothing at all".into())?;
    engine.clear()?;
    counts(engine, 0, "after a clear")?;
    Ok(compared)
}

fn with_others(engine: &dyn Engine, bounds: Bounds, effort: &Effort) -> Outcomes<u64> {
    let others = |stop: &AtomicBool| -> Outcomes<()> {
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            engine.put(&numbered("other", number % 1_000_000), &[7; 50])?;
            number += 1;
        }
        Ok(())
    };
    let plans = (0..effort.histories).map(|seed| Plan {
        clients: 2 + seed % 3,
        keys: 1 + seed % 3,
        ops: 12,
        seed: effort.seed + seed,
    });
    let (explained, others) = concurrently(others, || explained(engine, plans));
    others?;
    bounds.check(engine)?;
    Ok(explained?)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use parking_lot::Mutex;

    use super::*;
    use crate::engine::{Bookmark, Damaged, DecideMany, Promise, Reader, Stats, Visit};
    use crate::error::Result;
    use crate::testkit::ModelDb;

    const BOUNDS: Bounds = Bounds {
        records_max: 50,
        bytes_max: u64::MAX,
    };

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Bug {
        None,
        /// One record too many.
        Exceeds,
        /// A put of a key that was dropped brings its older value back, one time in 16.
        Revives,
        /// What is dropped is found again by one read in 16.
        Returns,
        /// Everything is dropped.
        KeepsNothing,
    }

    /// The obvious cache: the first that came is the first to go.
    struct Obvious {
        model: ModelDb,
        queue: Mutex<VecDeque<Vec<u8>>>,
        dropped: Mutex<Known>,
        random: Mutex<Random>,
        bug: Bug,
    }

    impl Obvious {
        fn boxed(bug: Bug) -> Boxed {
            Box::new(Self {
                model: ModelDb::new(),
                queue: Mutex::default(),
                dropped: Mutex::default(),
                random: Mutex::new(Random::new(3)),
                bug,
            })
        }

        fn check_queue(&self, queue: &mut VecDeque<Vec<u8>>, keys: &[&[u8]]) -> Result<()> {
            let max = match self.bug {
                Bug::Exceeds => BOUNDS.records_max + 1,
                Bug::KeepsNothing => 0,
                _ => BOUNDS.records_max,
            };
            queue.extend(keys.iter().map(|key| key.to_vec()));
            while self.model.count() > max {
                let Some(key) = queue.pop_front() else { break };
                if let Some(value) = self.model.get(&key)? {
                    self.dropped.lock().insert(key.clone(), value);
                    self.model.remove(&key)?;
                }
            }
            Ok(())
        }

        fn is_time(&self, bug: Bug) -> bool {
            self.bug == bug && self.random.lock().one_in(16)
        }
    }

    impl Reader for Obvious {
        fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
            let found = self.model.get(key)?;
            if found.is_none() && self.is_time(Bug::Returns) {
                visit(self.dropped.lock().get(key).map(Vec::as_slice));
                return Ok(());
            }
            visit(found.as_deref());
            Ok(())
        }
        fn scan_past(
            &self,
            from: Option<&Bookmark>,
            visit: &mut Visit<'_>,
            damaged: &mut Damaged<'_>,
        ) -> Result<Option<Bookmark>> {
            self.model.scan_past(from, visit, damaged)
        }
        fn bookmark_at(&self, key: &[u8]) -> Bookmark {
            self.model.bookmark_at(key)
        }
        fn count(&self) -> u64 {
            self.model.count()
        }
        fn stats(&self) -> Stats {
            self.model.stats()
        }
        fn promise(&self) -> Promise {
            Promise {
                evicts: true,
                ..self.model.promise()
            }
        }
    }

    impl Engine for Obvious {
        fn update<'a>(
            &self,
            key: &[u8],
            decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
        ) -> Result<()> {
            let mut queue = self.queue.lock();
            self.model.update(key, decide)?;
            if self.is_time(Bug::Revives)
                && let Some(older) = self.dropped.lock().get(key)
            {
                self.model.put(key, older)?;
            }
            self.check_queue(&mut queue, &[key])
        }
        fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
            let mut queue = self.queue.lock();
            self.model.update_many(keys, decide)?;
            self.check_queue(&mut queue, keys)
        }
        fn clear(&self) -> Result<()> {
            self.model.clear()
        }
    }

    #[test]
    fn the_obvious_cache_passes_and_every_bug_is_caught() {
        let effort = Effort::QUICK;
        let (compared, explained) =
            evictions(&|| Obvious::boxed(Bug::None), BOUNDS, &effort).unwrap();
        assert!(compared > 10_000 && explained == effort.histories);
        for bug in [Bug::Exceeds, Bug::Revives, Bug::Returns, Bug::KeepsNothing] {
            let caught = evictions(&|| Obvious::boxed(bug), BOUNDS, &effort);
            assert!(caught.is_err(), "{bug:?} was not caught");
        }
    }
}
