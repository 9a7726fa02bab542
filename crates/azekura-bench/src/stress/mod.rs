//! `stress`: threads, chores and kills against a store, every answer and every acknowledged change held against a model.
//!
//! Each round draws its configuration from the seed (`shape`), works on the store from several threads (`work`), with
//! `--kill` dies (`kill`), opens the store again and verifies every key. What is acknowledged stands in a ledger that
//! survives the death of the process (`ledger`); what a read may find is decided from it (`judge`).
//!
//! ```text
//!   store 0: round 0, 1, 2, ... (open, work, close or die, open, verify)   store 1: ...
//! ```
//!
//! The first violation ends the run: an error of the damage kind with key, found and expected, the seed and the round; the
//! folder with the store is kept. It knows engines by their public calls alone (`subject`).

mod judge;
mod kill;
mod ledger;
mod shape;
mod subject;
mod work;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use azekura::error::{Error, Kind, Result};
use azekura::io::Access;
use azekura::record::cache::CacheDb;
use azekura::record::hash::HashDb;
use azekura::record::memory::baby::BabyDb;
use azekura::record::memory::std_hash::StdHashDb;
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::record::memory::tiny::TinyDb;
use clap::{Args, Command, FromArgMatches as _, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use crate::engines::direct::Direct;
use crate::generate::{Choice, mix};
use crate::phase::named;
use crate::report;
use crate::target::Setup;
use crate::unfinished::Unfinished;
use crate::words::{between, refused, word};
use kill::{Order, Phase};
use ledger::{Ledger, THREADS_MAX};
use shape::{Fixed, Opening, Shape};
use subject::{Chore, OfObjects, OfRecords, Stressed, Subject};
use work::Site;

const EXAMPLES: &str = "\
Examples:
  azekura stress --engine hash --kill --seconds 600
  azekura stress --engine object --kill --count 20 --seed 7
  azekura stress --engine hash --capacity 32MiB --segment-size 64KiB --threads 8
  azekura stress --engine tiny --json

Exit code 0: sound; 8: a violation was found. The store of a violation is kept, and its folder is named.";

/// Bytes of the longest usual value that a flag can ask for.
const VALUE_SIZE_MAX: u64 = 16 << 20;

/// What can be put under stress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// The file hash
    Hash,
    /// The leanest hash in memory
    Tiny,
    /// The ordered store in memory
    Baby,
    /// The cache in memory, with room for every record
    Cache,
    /// The object store
    Object,
    /// The standard library's hash map behind sharded locks, in memory
    StdHash,
    /// The standard library's ordered map behind a lock, in memory
    StdTree,
}

/// Put an engine under stress and verify every answer, through kills if asked
#[derive(Args, Clone, Debug)]
struct Plan {
    /// What is put under stress
    #[arg(long, value_enum, default_value_t = Engine::Hash)]
    engine: Engine,
    /// Work in a process that is killed at random moments, and verify what is left (hash, object)
    #[arg(long)]
    kill: bool,
    /// How long to continue; a round that has begun is finished
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,
    /// Rounds, instead of a time
    #[arg(long, value_name = "ROUNDS")]
    count: Option<u64>,
    /// Decides every choice; without it a new one is taken, and printed
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Threads that change keys
    #[arg(long, value_name = "T", default_value_t = 4)]
    threads: u64,
    /// Where a folder for the stores is made; without it, where temporary files are
    #[arg(long, value_name = "FOLDER")]
    path: Option<PathBuf>,
    /// One JSON object instead of lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    fixed: Fixed,
    /// What the process is to do that is killed
    #[arg(long, hide = true, value_parser = |order: &str| serde_json::from_str::<Order>(order))]
    child: Option<Order>,
}

/// What was tried.
#[derive(Clone, Debug, Default, Serialize)]
struct Summary {
    engine: String,
    seed: u64,
    seconds: f64,
    stores: u64,
    rounds: u64,
    kills: u64,
    reopens: u64,
    operations: u64,
    reads: u64,
    refused: u64,
    keys_verified: u64,
    chores: std::collections::BTreeMap<String, u64>,
}

impl Summary {
    /// Adds the figures of a store that is done.
    fn add(&mut self, ledger: &Ledger) {
        self.operations += ledger.figure(work::OPERATIONS);
        self.reads += ledger.figure(work::READS);
        self.refused += ledger.figure(work::REFUSED);
        self.keys_verified += ledger.figure(work::VERIFIED);
        for &chore in Chore::value_variants() {
            let count = ledger.figure(work::CHORES + chore as usize);
            if count > 0 {
                *self.chores.entry(chore.word()).or_default() += count;
            }
        }
    }
}

/// The command `stress`, to be mounted in a program.
pub fn command() -> Command {
    Plan::augment_args(Command::new("stress"))
        .args_override_self(true)
        .after_help(EXAMPLES)
}

/// Does what `matches` of [`command`] ask for, and prints what was tried.
///
/// Errors: `Corrupted` (a violation was found), `Invalid` (flags that contradict each other), `Full` and `Io` (of the place
/// where the stores are).
pub fn run(matches: &clap::ArgMatches) -> Result<()> {
    let plan = Plan::from_arg_matches(matches)
        .map_err(|error| Error::new(Kind::Invalid, error.to_string()))?;
    plan.fixed.check(&word(&plan.engine))?;
    between("--threads", plan.threads, 1, THREADS_MAX - 4)?;
    if let Some(keys) = plan.fixed.keys {
        between("--keys", keys, 1, 10_000_000)?;
    }
    between("--seconds", plan.seconds, 1, u64::MAX)?;
    between("--count", plan.count.unwrap_or(1), 1, u64::MAX)?;
    if let Some(len) = plan.fixed.value_size {
        // A store refuses a value for its length alone that takes most of its capacity.
        let most = plan
            .fixed
            .capacity
            .map_or(VALUE_SIZE_MAX, |capacity| capacity / 4);
        between("--value-size", len, 0, VALUE_SIZE_MAX.min(most))?;
    }
    match plan.engine {
        Engine::Hash => plan.run::<OfRecords<HashDb>>(),
        Engine::Tiny => plan.run::<OfRecords<TinyDb>>(),
        Engine::Baby => plan.run::<OfRecords<BabyDb>>(),
        Engine::Cache => plan.run::<OfRecords<CacheDb>>(),
        Engine::Object => plan.run::<OfObjects>(),
        Engine::StdHash => plan.run::<OfRecords<StdHashDb>>(),
        Engine::StdTree => plan.run::<OfRecords<StdTreeDb>>(),
    }
}

/// One line for each engine in memory: as it is opened for measurements, with room for every key.
macro_rules! in_memory {
    ($($engine:ty),*) => {$(
        impl Stressed for $engine {
            fn open_shaped(shape: &Shape, _: &Opening, _: &Path) -> Result<Self> {
                Direct::open(&Setup {
                    path: None,
                    create: true,
                    records: shape.population.keys(),
                    durability: azekura::Durability::Process,
                    cache: None,
                })
            }
        }
    )*};
}
in_memory!(TinyDb, BabyDb, CacheDb, StdHashDb, StdTreeDb);

impl Plan {
    fn run<S: Subject>(&self) -> Result<()> {
        if self.kill && !S::IN_FILE {
            let engine = word(&self.engine);
            let what = format!(
                "the engine {engine} keeps its records in memory: a kill leaves nothing to verify"
            );
            return refused(&what, "leave --kill out, or choose hash or object");
        }
        if let Some(order) = &self.child {
            return self.obey::<S>(order);
        }
        let seed = self.seed.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            mix(now.map_or(0, |now| now.as_nanos() as u64)) >> 32
        });
        let (engine, process) = (word(&self.engine), std::process::id());
        let name = format!("azekura-stress-{engine}-{seed}-{process}");
        let folder = self.path.clone().unwrap_or_else(std::env::temp_dir);
        std::fs::create_dir_all(&folder)
            .map_err(|e| Error::io("cannot make a folder", e).at(&folder))?;
        let folder = folder.join(name);
        let mut summary = Summary {
            engine,
            seed,
            ..Summary::default()
        };
        let unfinished = Unfinished::folder(&folder)?;
        if let Err(error) = self.rounds::<S>(seed, &folder, &mut summary) {
            if error.kind() == Kind::Corrupted {
                // The store shows what happened.
                unfinished.keep();
            }
            return Err(error);
        }
        unfinished
            .remove()
            .map_err(|e| Error::io("cannot remove the folder of the stores", e).at(&folder))?;
        let figures = named(&summary);
        report::line(&if self.json {
            Value::from(figures).to_string()
        } else {
            format!("sound\n{}", report::by_name("", &figures).trim_end())
        })
    }

    fn rounds<S: Subject>(&self, seed: u64, folder: &Path, summary: &mut Summary) -> Result<()> {
        let target = if self.json {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(None, target).with_style(
            ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}").expect("well formed"),
        );
        let (begun, mut round) = (Instant::now(), 0);
        let ends = |round: u64| match self.count {
            Some(count) => round >= count,
            None => begun.elapsed() >= Duration::from_secs(self.seconds),
        };
        for store in 0.. {
            let shape = Shape::draw(seed, store, self.threads, S::OBJECTS, &self.fixed);
            let place = folder.join(store.to_string());
            std::fs::create_dir_all(&place)
                .map_err(|e| Error::io("cannot make a folder", e).at(&place))?;
            let ledger = kill::ledger(&place, shape.population)?;
            summary.stores += 1;
            // What is in memory ends with its round.
            let life = if S::IN_FILE {
                1 + Choice::new(seed ^ store).below(8)
            } else {
                1
            };
            let last = round + life;
            while round < last && !ends(round) {
                bar.set_message(format!(
                    "seed {seed}, round {round}, kills {}, operations {}",
                    summary.kills,
                    summary.operations + ledger.figure(work::OPERATIONS)
                ));
                bar.tick();
                let order = Order {
                    phase: Phase::Work,
                    seed,
                    store,
                    round,
                    folder: place.clone(),
                };
                let done = if self.kill {
                    Self::die(order.clone(), &ledger, summary)
                } else {
                    self.obey::<S>(&order)
                };
                done.map_err(|error| self.report(error, &order, &shape))?;
                summary.reopens += 1;
                round += 1;
                summary.rounds += 1;
            }
            summary.add(&ledger);
            if ends(round) {
                break;
            }
            std::fs::remove_dir_all(&place)
                .map_err(|e| Error::io("cannot remove a store", e).at(&place))?;
        }
        bar.finish_and_clear();
        summary.seconds = begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// A round with kills: one at work, then perhaps some more, soon after one another; then everything is verified.
    fn die(mut order: Order, ledger: &Ledger, summary: &mut Summary) -> Result<()> {
        let mut choice = Choice::new(mix(order.seed ^ 0x6b) ^ order.round);
        for number in 0..=choice.below(3) {
            let later = number > 0;
            summary.kills += u64::from(kill::kill(&order, ledger, later, &mut choice)?);
            summary.reopens += 1;
        }
        order.phase = Phase::Verify;
        kill::run(&order, ledger)
    }

    /// Adds to an error what is needed to see it again.
    fn report(&self, error: Error, order: &Order, shape: &Shape) -> Error {
        if error.kind() != Kind::Corrupted {
            return error;
        }
        let opening = Opening::draw(order.seed, order.round, &self.fixed);
        let text = error.to_string();
        let text = text.trim_start_matches("corrupted: ");
        Error::new(Kind::Corrupted, "the engine does not keep its promise")
            .detail(format!(
                "{text}; seed {} round {} store {}: {shape:?}; {opening:?}",
                order.seed, order.round, order.store,
            ))
            .remedy(format!("the store is kept in {}", order.folder.display()))
    }

    /// The part of a round that is one process's.
    fn obey<S: Subject>(&self, order: &Order) -> Result<()> {
        let (seed, store) = (order.seed, order.store);
        let shape = Shape::draw(seed, store, self.threads, S::OBJECTS, &self.fixed);
        let opening = Opening::draw(order.seed, order.round, &self.fixed);
        let path = order.folder.join("ledger");
        let ledger = Ledger::open(&path, shape.population, Access::Write)?;
        let work_seed = mix(order.seed ^ mix(order.round));
        let (shape, ledger, folder) = (&shape, &ledger, order.folder.as_path());
        let work = |subject: &S, life: Option<Duration>| {
            let site = Site {
                subject,
                ledger,
                shape,
                opening: &opening,
                folder,
            };
            // A kill may have left changes that were not acknowledged: the next round must know their outcome.
            site.verify()?;
            life.map_or(Ok(()), |life| site.work(work_seed, life))
        };
        let open = || {
            ledger.tick();
            let opened = S::open(shape, &opening, folder);
            opened.map_err(|error| match error.kind() {
                Kind::Io => error,
                // A flag does not fit, or not what is drawn with it.
                Kind::Invalid if self.fixed != Fixed::default() => error,
                Kind::Full if error.system().is_some() => error,
                _ => Error::new(Kind::Corrupted, "opening failed").detail(error.to_string()),
            })
        };
        let subject = open()?;
        let life = kill::LIFE / if self.kill { 1 } else { 3 };
        let works = order.phase == Phase::Work;
        work(&subject, works.then_some(life))?;
        let damage = subject
            .check()
            .map_err(|e| Error::new(Kind::Corrupted, "check failed").detail(e.to_string()))?;
        subject::sound("the store", &damage)?;
        if order.phase == Phase::Verify && work_seed.is_multiple_of(3) {
            // Ends without closing, as a process does that forgets to.
            std::process::exit(0);
        }
        if !self.kill {
            work(&subject, None)?;
        }
        close(subject)?;
        if S::IN_FILE && !self.kill {
            let subject = open()?;
            work(&subject, None)?;
            close(subject)?;
        }
        Ok(())
    }
}

fn close<S: Subject>(subject: S) -> Result<()> {
    subject.close().map_err(|error| match error.system() {
        Some(_) => error,
        None => Error::new(Kind::Corrupted, "closing failed").detail(error.to_string()),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
