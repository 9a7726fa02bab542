//! Runs a workload against a store and reports the outcome of each operation.
//!
//! As many threads as operations are to be outstanding take the next one each. A value is made before the
//! clock is read, and compared after it, so neither is measured. In the closed loop an operation begins when
//! its thread is free, and its latency counts from then. With a rate, operation `n` is due `n / rate`
//! seconds after the beginning, whether or not one of the threads is free, and its latency counts from when it
//! was due: a store that stands still pays for all that was due meanwhile.
//!
//! An operation that fails is a result like others, and the run continues; a value that is not what was put
//! ends it. It does not sum up, and holds no results.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use azekura::error::{Error, Kind, Result};
use azekura::io::aligned::{ALIGNMENT, AlignedBuf};

use super::draw;
use super::operation::{Operation, Outcome};
use super::plan::How;
use super::store::{Draft, Objects};
use crate::threads::together;

/// How a workload is run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Depth, and how values are made and compared.
    pub how: How,
    /// Operations due each second, in the open loop.
    pub rate: Option<f64>,
    /// Which generation of values puts store.
    pub generation: u64,
}

/// A value to be put.
enum Made<'s> {
    /// In the worker's buffer.
    Here(std::ops::Range<usize>),
    /// In the store's.
    There(Box<dyn Draft + 's>),
    Nothing,
}

/// What a thread needs that is its own.
struct Worker {
    value: AlignedBuf,
    scratch: Vec<u8>,
}

/// Runs `operations`, and returns how many seconds that took; `keep` gets each result when it is there, from one thread at a
/// time.
///
/// Errors: `Corrupted` (a value that is not what was put), and whatever `keep` returns. An
/// operation that the store refuses is no error here.
pub fn execute(
    store: &dyn Objects,
    operations: &mut (dyn Iterator<Item = Operation> + Send),
    load: &Load,
    keep: &mut (dyn FnMut(Outcome) -> Result<()> + Send),
) -> Result<f64> {
    let next = Mutex::new((0, operations));
    let keep = Mutex::new(keep);
    let stop = AtomicBool::new(false);
    let begin = OnceLock::new();
    let prepare = |_| {
        Ok(Worker {
            value: AlignedBuf::zeroed(0, ALIGNMENT)?,
            scratch: Vec::new(),
        })
    };
    let work = |mut worker: Worker| -> Result<()> {
        let begin = *begin.get_or_init(Instant::now);
        while !stop.load(Ordering::Relaxed) {
            let (seqno, operation) = {
                let mut next = next.lock().expect("no thread panics while it takes one");
                let Some(operation) = next.1.next() else {
                    break;
                };
                next.0 += 1;
                (next.0 - 1, operation)
            };
            let outcome = worker.run(store, seqno, operation, load, begin)?;
            keep.lock().expect("no thread panics while it keeps one")(outcome)?;
        }
        Ok(())
    };
    let guarded = |worker| work(worker).inspect_err(|_| stop.store(true, Ordering::Relaxed));
    let ran = together(load.how.depth as u64, prepare, guarded, || Ok(()), || ())?;
    Ok(ran.seconds)
}

impl Worker {
    fn run(
        &mut self,
        store: &dyn Objects,
        seqno: u64,
        operation: Operation,
        load: &Load,
        begin: Instant,
    ) -> Result<Outcome> {
        let id = draw::id_of(operation.key())?;
        let made = match &operation {
            Operation::Put { value, .. } => self.make(store, id, load, value.size)?,
            _ => Made::Nothing,
        };
        let start = match load.rate {
            None => Instant::now(),
            Some(rate) => wait_until(begin + Duration::from_secs_f64(seqno as f64 / rate)),
        };
        let mut found = None;
        let done = match &operation {
            Operation::Put { .. } => match made {
                Made::Here(range) => store.put(id, &self.value[range]),
                Made::There(draft) => draft.put(id),
                Made::Nothing => unreachable!("the value of a put was made"),
            },
            Operation::Get { .. } => store.get(id).map(|got| {
                found = got;
                Some(found.is_some())
            }),
            Operation::Delete { .. } => store.remove(id),
        };
        let elapsed = start.elapsed();
        if let (Some(found), true) = (found, !load.how.no_verify && store.verifiable()) {
            self.verify(id, operation.key(), (*found).as_ref())?;
        }
        let method = operation.method();
        Ok(Outcome {
            seqno,
            key: operation.into_key(),
            method,
            start_time: start.duration_since(begin).as_secs_f64(),
            elapsed: elapsed.as_secs_f64(),
            exists: *done.as_ref().unwrap_or(&None),
            error: done.err().map(|error| {
                serde_json::json!({"kind": error.kind().word(), "message": error.to_string()})
            }),
        })
    }

    fn make<'s>(
        &mut self,
        store: &'s dyn Objects,
        id: u128,
        load: &Load,
        size: u64,
    ) -> Result<Made<'s>> {
        if load.how.drafts
            && let Some(mut draft) = store.draft(size)?
        {
            draft.fill(&mut draw::Making::new(id, load.generation, size))?;
            return Ok(Made::There(draft));
        }
        let len = size as usize;
        if self.value.len() < len {
            self.value = AlignedBuf::zeroed(len.next_multiple_of(ALIGNMENT as usize), ALIGNMENT)?;
        }
        draw::fill(id, load.generation, &mut self.value[..len]);
        Ok(Made::Here(0..len))
    }

    fn verify(&mut self, id: u128, key: &str, found: &[u8]) -> Result<()> {
        if draw::is_value_of(id, found, &mut self.scratch) {
            return Ok(());
        }
        let what = "the value that was read is not one that was put";
        Err(Error::new(Kind::Corrupted, what).key(key.as_bytes()))
    }
}

/// Waits for `due`, and returns it: sleeping while it is far, since a sleep ends late.
fn wait_until(due: Instant) -> Instant {
    const NEAR: Duration = Duration::from_micros(100);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return due;
        }
        if left > NEAR {
            thread::sleep(left.saturating_sub(NEAR));
        } else {
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Barrier;

    use super::*;
    use crate::object::operation::{Method, ValueOf};
    use crate::object::store::Found;

    /// A store in memory, whose ids end in what goes wrong.
    #[derive(Default)]
    struct Table(Mutex<BTreeMap<u128, Vec<u8>>>, Option<Barrier>);

    impl Objects for Table {
        fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
            if let Some(barrier) = &self.1 {
                barrier.wait();
            }
            if id & 0xff == u128::from(b'!') {
                return Err(Error::new(Kind::Full, "no room"));
            }
            let mut value = value.to_vec();
            if id & 0xff == u128::from(b'~') {
                value[3] ^= 1;
            }
            Ok(Some(self.0.lock().unwrap().insert(id, value).is_some()))
        }
        fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
            let found = self.0.lock().unwrap().get(&id).cloned();
            Ok(found.map(|value| Box::new(value) as Found<'_>))
        }
        fn remove(&self, id: u128) -> Result<Option<bool>> {
            Ok(Some(self.0.lock().unwrap().remove(&id).is_some()))
        }
        fn sync(&self) -> Result<()> {
            Ok(())
        }
    }

    const HOW: How = How {
        depth: 1,
        fill: false,
        no_verify: false,
        drafts: false,
    };
    const LOAD: Load = Load {
        how: HOW,
        rate: None,
        generation: 3,
    };

    fn put(key: &str) -> Operation {
        Operation::Put {
            key: key.into(),
            value: ValueOf { size: 100 },
        }
    }

    fn run(store: &Table, operations: Vec<Operation>, load: &Load) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        let keep = &mut |outcome| {
            outcomes.push(outcome);
            Ok(())
        };
        execute(store, &mut operations.into_iter(), load, keep)?;
        Ok(outcomes)
    }

    #[test]
    fn operations_are_done_in_order_and_tell_what_was_there() {
        let key = || "k".to_owned();
        let operations = vec![
            put("k"),
            Operation::Get { key: key() },
            put("k"),
            Operation::Delete { key: key() },
            Operation::Get { key: key() },
            put("!"),
        ];
        let found = run(&Table::default(), operations, &LOAD).unwrap();
        let exists: Vec<_> = found.iter().map(|outcome| outcome.exists).collect();
        let expected = [
            Some(false),
            Some(true),
            Some(true),
            Some(true),
            Some(false),
            None,
        ];
        assert_eq!(exists, expected);
        assert!(found.iter().map(|outcome| outcome.seqno).eq(0..6));
        assert!(found.is_sorted_by(|a, b| a.start_time + a.elapsed <= b.start_time));
        let error = found[5].error.as_ref().unwrap();
        assert_eq!(error["kind"], "full");
        assert!(found[..5].iter().all(|outcome| outcome.error.is_none()));
        assert_eq!(found[3].method, Method::Delete);
    }

    #[test]
    fn a_value_that_is_not_what_was_put_ends_the_run() {
        let operations = || vec![put("~"), Operation::Get { key: "~".into() }];
        let error = run(&Table::default(), operations(), &LOAD).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted);
        let no_verify = true;
        let how = How { no_verify, ..HOW };
        let load = Load { how, ..LOAD };
        assert_eq!(
            run(&Table::default(), operations(), &load).unwrap().len(),
            2
        );
    }

    #[test]
    fn as_many_operations_are_outstanding_as_asked_for() {
        // A put returns only when four are in the store at once.
        let store = Table(Mutex::default(), Some(Barrier::new(4)));
        let operations = (0..16).map(|i| put(&i.to_string())).collect();
        let how = How { depth: 4, ..HOW };
        let found = run(&store, operations, &Load { how, ..LOAD }).unwrap();
        let mut seqnos: Vec<u64> = found.iter().map(|outcome| outcome.seqno).collect();
        seqnos.sort_unstable();
        assert!(seqnos.into_iter().eq(0..16));
    }

    #[test]
    fn in_the_open_loop_operations_begin_when_they_are_due() {
        let operations = (0..5).map(|i| put(&i.to_string())).collect();
        let load = Load {
            rate: Some(1000.0),
            ..LOAD
        };
        let found = run(&Table::default(), operations, &load).unwrap();
        for outcome in &found {
            let due = outcome.seqno as f64 / 1000.0;
            assert!((outcome.start_time - due).abs() < 1e-6, "{outcome:?}");
        }
    }
}
