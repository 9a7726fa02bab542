//! `parallel` and `wicked`: many threads, mixed calls, and a model that knows every answer.
//!
//! Each thread owns the keys whose number leaves its own remainder, and keeps a model of them; it
//! alone changes them, so it knows what every call must answer, whatever the others do. It also reads
//! other threads' records, whose values must at least belong to their keys. `wicked` adds appends,
//! jumps, scans, and chores in mid-flight: sync, checkpoint, compaction, a hot copy, clearing.
//!
//! ```text
//!   thread t: key = t, t + T, t + 2T, ...     lock(model t) -> call -> compare -> change model
//!   chore:    thread 0, eight times a run     clear: lock(model 0..T), clear, forget
//!   end:      scan == models, count == models; close, open; scan == models
//! ```
//!
//! Errors are `Corrupted` with the key, found against expected. It knows no engine.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use azekura::error::{Error, Kind, Result, quote};
use clap::Args;
use indicatif::ProgressBar;

use crate::generate::{Choice, Key, fold};
use crate::measure::{self, Device, Memory};
use crate::plan::{Survives, between};
use crate::report::{self, Phase};
use crate::target::{Setup, Target};

/// Chores a run does.
const CHORES: u64 = 8;
/// Operations between two reports of progress.
const STRIDE: u64 = 1 << 10;

/// What is done to a whole store while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chore {
    /// Make everything survive loss of power.
    Sync,
    /// Let the next opening be short.
    Checkpoint,
    /// Give space back.
    Compact,
    /// Copy the store elsewhere and check the copy.
    Copy,
}

/// What a store must offer beyond the timed calls to be tried by a mixed workload.
pub trait Store: Target {
    /// Adds `suffix` to the value of `key`, which is empty if absent.
    fn append(&self, key: &[u8], suffix: &[u8]) -> Result<()>;
    /// Stores `desired` if the present value is `expected`: whether it was.
    fn exchange(&self, key: &[u8], expected: Option<&[u8]>, desired: &[u8]) -> Result<bool>;
    /// Shows every record.
    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;
    /// How many records there are.
    fn count(&self) -> u64;
    /// Removes every record.
    fn clear(&self) -> Result<()>;
    /// Does a chore; nothing, where the store has no such need.
    fn tend(&self, chore: Chore) -> Result<()>;
}

/// Which mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// A fifth exchanges, a fifth of the rest removals, half of the rest sets, the other half gets.
    Parallel,
    /// An eighth appends, a fifth removals, a third sets, a hundredth jumps, else gets; and chores.
    Wicked,
}

impl Recipe {
    const fn word(self) -> &'static str {
        match self {
            Self::Parallel => "parallel",
            Self::Wicked => "wicked",
        }
    }
}

/// The flags of `parallel` and `wicked`.
#[derive(Args, Clone, Debug)]
pub struct MixedPlan {
    /// Where the store is made; it must not exist
    #[arg(long, value_name = "FILE")]
    pub path: Option<PathBuf>,
    /// Operations per thread
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub count: u64,
    /// Threads
    #[arg(long, value_name = "T", default_value_t = 4)]
    pub threads: u64,
    /// Different keys of all threads together
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub keys: u64,
    /// Bytes of the longest value that is set, beside the key it repeats
    #[arg(long, value_name = "BYTES", default_value_t = 32)]
    pub value_size: u64,
    /// Other choices for another seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Clear the whole store now and then (wicked)
    #[arg(long)]
    pub clear: bool,
    /// What an acknowledged write survives
    #[arg(long, value_enum, default_value_t = Survives::Process)]
    pub durability: Survives,
    /// A JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

impl MixedPlan {
    fn check(&self) -> Result<()> {
        between("--threads", self.threads, 1, 1024)?;
        between("--count", self.count, 1, 1 << 40)?;
        between("--keys", self.keys, self.threads, 1 << 31)?;
        between("--value-size", self.value_size, 0, 1 << 20)
    }

    fn setup(&self, create: bool) -> Setup {
        Setup {
            path: self.path.clone(),
            create,
            records: self.keys,
            durability: self.durability.into(),
        }
    }
}

type Model = HashMap<u64, Vec<u8>>;

fn lock(model: &Mutex<Model>) -> MutexGuard<'_, Model> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wrong(what: &str, key: &[u8], found: Option<&[u8]>, expected: Option<&[u8]>) -> Error {
    let show = |value: Option<&[u8]>| value.map_or_else(|| "nothing".to_owned(), quote);
    Error::new(
        Kind::Corrupted,
        format!("{what} does not agree with the model"),
    )
    .key(key)
    .found(show(found), show(expected))
}

/// Runs `recipe` on a new store and verifies every answer; the store is left where it is.
///
/// The result counts the verified answers as hits; its digest is the final content's, which depends
/// on the flags alone (unless `clear` is among them: when it falls, threads are at different steps).
pub fn run<S: Store>(plan: &MixedPlan, recipe: Recipe) -> Result<Phase> {
    plan.check()?;
    let before = Memory::now();
    let device = || plan.path.as_deref().map(Device::now).unwrap_or_default();
    let idle = device();
    let mut store = S::open(&plan.setup(true))?;
    let models: Vec<Mutex<Model>> = (0..plan.threads).map(|_| Mutex::default()).collect();
    let bar = report::progress(recipe.word(), plan.count * plan.threads, plan.json);
    let (cpu, start) = (measure::cpu_seconds(), Instant::now());
    let verified = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.threads)
            .map(|thread| {
                let worker = Worker::new(&store, &models, plan, recipe, thread);
                let bar = &bar;
                scope.spawn(move || worker.work(bar))
            })
            .collect();
        let mut sum = Ok(0);
        for worker in workers {
            let one = worker.join().expect("a worker does not panic");
            sum = sum.and_then(|sum| Ok(sum + one?));
        }
        sum
    })?;
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    let cpu = measure::cpu_seconds() - cpu;
    bar.finish_and_clear();
    let after = Memory::now();
    let mut digest = verify(&store, &models, plan.threads)?;
    if S::PERSISTENT {
        store.close()?;
        store = S::open(&plan.setup(false))?;
        digest = verify(&store, &models, plan.threads)?;
    }
    store.close()?;
    let files = match &plan.path {
        Some(path) if S::PERSISTENT => Some(measure::file_bytes(path)?),
        _ => None,
    };
    let count = plan.count * plan.threads;
    let growth = |of: fn(&Memory) -> u64| Some(of(&after?).saturating_sub(of(&before?)));
    let mut phase = Phase {
        engine: S::NAME.to_owned(),
        op: recipe.word().to_owned(),
        threads: plan.threads,
        count,
        key_size: 8,
        value_size: plan.value_size,
        seconds,
        ops_per_second: count as f64 / seconds,
        cpu_seconds: cpu,
        memory_bytes: growth(|memory| memory.resident),
        private_bytes: growth(|memory| memory.private),
        file_bytes: files.map(|files| files.0),
        allocated_bytes: files.map(|files| files.1),
        hits: Some(verified),
        durability: S::PERSISTENT.then_some(plan.durability),
        digest: Some(format!("{digest:016x}")),
        ..Phase::default()
    };
    if S::PERSISTENT {
        phase.device(&device().since(idle));
    }
    Ok(phase)
}

/// Compares the whole content with the models; returns its digest.
fn verify<S: Store>(store: &S, models: &[Mutex<Model>], threads: u64) -> Result<u64> {
    let models: Vec<_> = models.iter().map(lock).collect();
    let (mut shown, mut digest, mut failure) = (0, 0_u64, None);
    store.scan(&mut |key, value| {
        shown += 1;
        digest = digest.wrapping_add(fold(key) ^ fold(value));
        let expected = number(key)
            .and_then(|number| models[(number % threads) as usize].get(&number))
            .map(Vec::as_slice);
        if expected != Some(value) {
            failure.get_or_insert_with(|| wrong("a scan", key, Some(value), expected));
        }
    })?;
    let expected: u64 = models.iter().map(|model| model.len() as u64).sum();
    match failure {
        Some(error) => Err(error),
        None if shown != expected || store.count() != expected => {
            Err(
                Error::new(Kind::Corrupted, "records are missing or counted wrongly").found(
                    format!("{shown} shown, {} counted", store.count()),
                    expected,
                ),
            )
        }
        None => Ok(digest),
    }
}

fn number(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key).ok()?.parse().ok()
}

struct Worker<'a, S> {
    store: &'a S,
    models: &'a [Mutex<Model>],
    plan: &'a MixedPlan,
    recipe: Recipe,
    thread: u64,
    choice: Choice,
    value: Vec<u8>,
    verified: u64,
}

impl<'a, S: Store> Worker<'a, S> {
    fn new(
        store: &'a S,
        models: &'a [Mutex<Model>],
        plan: &'a MixedPlan,
        recipe: Recipe,
        thread: u64,
    ) -> Self {
        let choice = Choice::new(plan.seed.wrapping_mul(1024).wrapping_add(thread));
        let (value, verified) = (Vec::new(), 0);
        Self {
            store,
            models,
            plan,
            recipe,
            thread,
            choice,
            value,
            verified,
        }
    }

    fn work(mut self, bar: &ProgressBar) -> Result<u64> {
        for step in 0..self.plan.count {
            if self.recipe == Recipe::Wicked && self.thread == 0 {
                // Between the eighths of the run, so that there is something to tend.
                let part = |step: u64| step * (CHORES + 1) / self.plan.count;
                if step > 0 && part(step) != part(step - 1) {
                    self.tend(part(step))?;
                }
            }
            self.step()?;
            if (step + 1) % STRIDE == 0 {
                bar.inc(STRIDE);
            }
        }
        Ok(self.verified)
    }

    fn step(&mut self) -> Result<()> {
        let own = self.plan.keys / self.plan.threads;
        let number = self.choice.below(own) * self.plan.threads + self.thread;
        let mut key = Key::EMPTY;
        key.set(number);
        let key = key.bytes();
        let models = self.models;
        let mut model = lock(&models[self.thread as usize]);
        match self.recipe {
            Recipe::Parallel => match self.choice.below(100) {
                0..20 => self.exchange(&mut model, number, key),
                20..36 => self.remove(&mut model, number, key),
                36..68 => self.set(&mut model, number, key),
                _ => self.get(&model, number, key),
            },
            Recipe::Wicked => match self.choice.below(1000) {
                0..125 => self.append(&mut model, number, key),
                125..300 => self.remove(&mut model, number, key),
                300..530 => self.set(&mut model, number, key),
                530..540 => self.jump(&model, number, key),
                540..600 => {
                    drop(model);
                    self.peek()
                }
                _ => self.get(&model, number, key),
            },
        }
    }

    /// A value that begins with its key, so that anybody can tell whose it is.
    fn value_for(&mut self, key: &[u8]) -> Vec<u8> {
        let mut value = key.to_vec();
        self.extend(&mut value, self.plan.value_size);
        value
    }

    fn extend(&mut self, bytes: &mut Vec<u8>, len_max: u64) {
        let letter = b'a' + self.choice.below(26) as u8;
        let len = self.choice.below(len_max + 1) as usize;
        bytes.resize(bytes.len() + len, letter);
    }

    fn expect(
        &mut self,
        what: &str,
        key: &[u8],
        found: Option<&[u8]>,
        expected: Option<&[u8]>,
    ) -> Result<()> {
        self.verified += 1;
        if found == expected {
            Ok(())
        } else {
            Err(wrong(what, key, found, expected))
        }
    }

    fn set(&mut self, model: &mut Model, number: u64, key: &[u8]) -> Result<()> {
        let value = self.value_for(key);
        self.store.set(key, &value)?;
        model.insert(number, value);
        Ok(())
    }

    fn get(&mut self, model: &Model, number: u64, key: &[u8]) -> Result<()> {
        let mut value = std::mem::take(&mut self.value);
        let found = self.store.get(key, &mut value)?.then_some(value.as_slice());
        let verdict = self.expect("a get", key, found, model.get(&number).map(Vec::as_slice));
        self.value = value;
        verdict
    }

    fn remove(&mut self, model: &mut Model, number: u64, key: &[u8]) -> Result<()> {
        let mark = |present| {
            if present {
                Some(&b"a record"[..])
            } else {
                None
            }
        };
        let found = self.store.remove(key)?;
        self.expect(
            "a removal",
            key,
            mark(found),
            mark(model.remove(&number).is_some()),
        )
    }

    fn append(&mut self, model: &mut Model, number: u64, key: &[u8]) -> Result<()> {
        let present = model.entry(number).or_default();
        let mut suffix = if present.is_empty() {
            key.to_vec()
        } else {
            Vec::new()
        };
        self.extend(&mut suffix, 16);
        self.store.append(key, &suffix)?;
        present.extend_from_slice(&suffix);
        Ok(())
    }

    fn exchange(&mut self, model: &mut Model, number: u64, key: &[u8]) -> Result<()> {
        let present = model.get(&number).map(Vec::as_slice);
        // Every other time the expectation is wrong, and the record must stay as it is.
        let right = self.choice.below(2) == 0;
        let expected = if right {
            present
        } else {
            Some(&b"never stored"[..])
        };
        let desired = self.value_for(key);
        let mark = |done| if done { Some(&b"exchanged"[..]) } else { None };
        let found = self.store.exchange(key, expected, &desired)?;
        self.expect("an exchange", key, mark(found), mark(right))?;
        if right {
            model.insert(number, desired);
        }
        Ok(())
    }

    fn jump(&mut self, model: &Model, number: u64, key: &[u8]) -> Result<()> {
        // Behind an absent key stands any record, or none.
        let Some(expected) = model.get(&number) else {
            return Ok(());
        };
        let mut found = None;
        let mut position = self.store.position()?;
        self.store.jump(&mut position, key, &mut |at, value| {
            found = Some((at.to_vec(), value.to_vec()));
        })?;
        drop(position);
        let (at, value) = found.unzip();
        self.expect("a jump", key, at.as_deref(), Some(key))?;
        self.expect("a jump", key, value.as_deref(), Some(expected))
    }

    /// Reads a record of anybody: it begins with its key, whatever its owner does meanwhile.
    fn peek(&mut self) -> Result<()> {
        let mut key = Key::EMPTY;
        key.set(self.choice.below(self.plan.keys));
        let key = key.bytes();
        let mut value = std::mem::take(&mut self.value);
        let found = self.store.get(key, &mut value)?;
        self.verified += 1;
        let belongs = !found || value.starts_with(key);
        let verdict = if belongs {
            Ok(())
        } else {
            Err(wrong("a peek", key, Some(&value), Some(key)))
        };
        self.value = value;
        verdict
    }

    /// A chore among the calls of the others, then a scan in which the own records stand still.
    fn tend(&mut self, part: u64) -> Result<()> {
        let chores = [Chore::Sync, Chore::Checkpoint, Chore::Copy, Chore::Compact];
        self.store.tend(chores[part as usize % chores.len()])?;
        if self.plan.clear && part.is_multiple_of(3) {
            let mut models: Vec<_> = self.models.iter().map(lock).collect();
            self.store.clear()?;
            for model in &mut models {
                model.clear();
            }
        }
        let models = self.models;
        let model = lock(&models[self.thread as usize]);
        let (mut own, mut failure) = (0, None);
        self.store.scan(&mut |key, value| {
            if !value.starts_with(key) {
                failure.get_or_insert_with(|| wrong("a scan", key, Some(value), Some(key)));
            }
            let Some(number) = number(key).filter(|n| n % self.plan.threads == self.thread) else {
                return;
            };
            own += 1;
            let expected = model.get(&number).map(Vec::as_slice);
            if expected != Some(value) {
                failure.get_or_insert_with(|| wrong("a scan", key, Some(value), expected));
            }
        })?;
        self.verified += own;
        if own != model.len() as u64 {
            let error = Error::new(
                Kind::Corrupted,
                "a scan beside writers shows a wrong number of records",
            );
            failure.get_or_insert(error.found(own, model.len()));
        }
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::engines::faulty::{Bug, Faulty};
    use crate::engines::{hash::Hash, memory::StdHash};

    fn plan() -> MixedPlan {
        MixedPlan {
            path: None,
            count: 3000,
            threads: 3,
            keys: 200,
            value_size: 20,
            seed: 1,
            clear: false,
            durability: Survives::Process,
            json: true,
        }
    }

    #[test]
    fn a_right_engine_passes_and_its_content_depends_on_the_flags_alone() {
        for recipe in [Recipe::Parallel, Recipe::Wicked] {
            let one = run::<StdHash>(&plan(), recipe).unwrap();
            let two = run::<StdHash>(&plan(), recipe).unwrap();
            assert_eq!(one.digest, two.digest);
            assert!(one.hits > Some(3000), "most calls are verified");
            let other = run::<StdHash>(&MixedPlan { seed: 2, ..plan() }, recipe).unwrap();
            assert_ne!(one.digest, other.digest);
        }
        run::<StdHash>(
            &MixedPlan {
                clear: true,
                ..plan()
            },
            Recipe::Wicked,
        )
        .unwrap();
    }

    #[test]
    fn the_hash_file_passes_and_ends_with_the_content_of_the_map() {
        for (recipe, clear) in [
            (Recipe::Parallel, false),
            (Recipe::Wicked, false),
            (Recipe::Wicked, true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = Some(folder.path().join("mixed.azh"));
            let plan = MixedPlan {
                path,
                clear,
                ..plan()
            };
            let found = run::<Hash>(&plan, recipe).unwrap();
            assert!(found.file_bytes.is_some());
            if !clear {
                assert_eq!(found.digest, run::<StdHash>(&plan, recipe).unwrap().digest);
            }
        }
    }

    #[test]
    fn a_plan_out_of_range_is_refused() {
        let error = run::<StdHash>(&MixedPlan { keys: 1, ..plan() }, Recipe::Parallel);
        assert_eq!(error.unwrap_err().kind(), Kind::Invalid);
    }

    /// Every tenth write is lost.
    #[derive(Default)]
    struct Forgetful(AtomicU64);

    impl Bug for Forgetful {
        const WORD: &'static str = "forgetful";
        fn set(&self, engine: &StdHash, key: &[u8], value: &[u8]) -> Result<()> {
            if self.0.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
                return Ok(());
            }
            engine.set(key, value)
        }
    }

    #[test]
    fn lost_writes_are_seen() {
        for recipe in [Recipe::Parallel, Recipe::Wicked] {
            // So many keys that the lost one is not set again before somebody looks.
            let plan = MixedPlan {
                keys: 3000,
                count: 1000,
                ..plan()
            };
            let error = run::<Faulty<Forgetful>>(&plan, recipe).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupted, "{error}");
        }
    }
}
