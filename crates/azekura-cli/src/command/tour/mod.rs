//! `tour`: shows in a few seconds, on real text, what the store does, and verifies that it does.
//!
//! ```text
//!   import -> get -> search -> update -> kill -9 a writer, reopen -> check -> hot copy -> summary
//! ```
//!
//! Promises: every figure is measured in the run that prints it, every value read is compared with what
//! was written, and the exit code is 8 if anything acknowledged is missing or anything read is
//! wrong. It fetches nothing and leaves nothing behind, interrupted or not, unless `--dir` keeps the files.
//! It does not compare with others: `bench` does.

mod crash;
mod figures;
mod interrupt;
mod source;

use std::fs;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura::engine::Persistent as _;
use azekura::error::size;
use azekura::record::hash::{CreateOptions, HashDb, HashReader, OpenOptions};
use azekura::verbs::{Desired, Expected, Place, Search};
use azekura::{Engine as _, Error, Reader as _, Result, Verbs as _};
use azekura_bench::threads::start_in;

use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;

pub(super) use crash::Writer;
use figures::{Histogram, count, rate, seconds};
use source::Source;

/// Lookups of one batch.
const BATCH: usize = 32;
/// Lookups measured.
const LOOKUPS: usize = 300_000;
/// Lines appended to at most.
const APPENDS_MAX: usize = 30_000;
/// Increments, and compare-exchanges, of each thread.
const ROUNDS: u64 = 20_000;
/// What the tour appends to lines.
const TOURED: &[u8] = b" | toured";
/// The record of the increments.
const COUNTER: &[u8] = b"tour:counter";
/// The record of the compare-exchanges.
const EXCHANGED: &[u8] = b"tour:exchanged";

/// See in a few seconds what it does, on real text
#[derive(clap::Args)]
pub(crate) struct Tour {
    /// A text file to use; else a table of this machine, else the files below this directory
    text: Option<PathBuf>,
    /// Keep the files of the tour in this directory
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What goes through the steps.
struct Guide<'t, 'o> {
    out: &'t mut Output<'o>,
    records: Vec<(Vec<u8>, Vec<u8>)>,
    step: u32,
    wrong: u64,
}

impl Tour {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let begun = Instant::now();
        let source = Source::choose(self.text.as_deref())?;
        let (lines, records) = source.records()?;
        let temporary = match self.dir {
            Some(_) => None,
            None => Some(interrupt::temporary_directory()?),
        };
        let dir = match (&self.dir, &temporary) {
            (Some(dir), _) => {
                let failed = |error| Error::io("cannot make the folder of the tour", error).at(dir);
                fs::create_dir_all(dir).map_err(failed)?;
                dir.clone()
            }
            (None, Some(temporary)) => temporary.path().to_path_buf(),
            (None, None) => unreachable!("without --dir a directory was made"),
        };
        let file = dir.join("tour.azh");
        out.line_now(format_args!(
            "A tour of azekura with {} {} of {source}",
            count(lines),
            if lines == 1 { "line" } else { "lines" }
        ))?;
        out.line_now(format_args!("in {}", file.display()))?;

        let mut guide = Guide {
            out,
            records,
            step: 0,
            wrong: 0,
        };
        let db = HashDb::create(&file, &CreateOptions::default())?;
        guide.import(&db)?;
        guide.get(&db)?;
        guide.search(&db)?;
        guide.update(&db)?;
        db.close()?;
        guide.crash(&file)?;
        guide.check(&file)?;
        guide.copy(&file, &dir.join("copy.azh"))?;

        let wrong = guide.wrong;
        out.line("")?;
        if wrong > 0 {
            out.line(format_args!(
                "{} of the results above were WRONG",
                count(wrong)
            ))?;
        } else {
            out.line("Everything read was what had been written, and nothing was lost.")?;
        }
        let kept = match temporary {
            Some(_) => "its files are gone (--dir keeps them)".to_string(),
            None => format!("its files are in {}", dir.display()),
        };
        out.line(format_args!(
            "The tour took {}; {kept}.",
            seconds(begun.elapsed())
        ))?;
        Ok(if wrong > 0 {
            Outcome::Damaged
        } else {
            Outcome::Yes
        })
    }
}

impl Guide<'_, '_> {
    fn step(&mut self, title: &str) -> Result<()> {
        self.step += 1;
        self.out.line_now(format_args!("\n{}. {title}", self.step))
    }

    fn fact(&mut self, label: &str, text: impl std::fmt::Display) -> Result<()> {
        self.out.line_now(format_args!("   {label:<22} {text}"))
    }

    fn import(&mut self, db: &HashDb) -> Result<()> {
        self.step("Import: each line is a record")?;
        let progress = Progress::new("importing", self.records.len() as u64);
        let begun = Instant::now();
        for (index, batch) in self.records.chunks(256).enumerate() {
            let batch: Vec<(&[u8], &[u8])> = batch
                .iter()
                .map(|(key, value)| (&key[..], &value[..]))
                .collect();
            db.put_many(&batch)?;
            progress.set(index as u64 * 256);
        }
        let took = begun.elapsed();
        drop(progress);
        let bytes: usize = self
            .records
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        self.fact("stored", rate(self.records.len() as u64, "records", took))?;
        let file = size(db.stats().file_bytes);
        self.fact(
            "size",
            format!("{} of keys and values, file of {file}", size(bytes as u64)),
        )?;
        self.wrong += self.records.len() as u64 - db.count().min(self.records.len() as u64);
        if let Some((key, value)) = self.records.get(self.records.len() / 2) {
            let text = format!("{} = {}", figures::cut(key, 24), figures::cut(value, 44));
            self.fact("for instance", text)?;
        }
        Ok(())
    }

    fn get(&mut self, db: &HashDb) -> Result<()> {
        self.step("Look up, in random order, every value compared")?;
        let mut order: Vec<usize> = (0..self.records.len()).cycle().take(LOOKUPS).collect();
        figures::shuffle(&mut order);
        let records = &self.records;
        let mut wrong = 0;

        let progress = Progress::new("looking up", order.len() as u64);
        let mut histogram = Histogram::default();
        let begun = Instant::now();
        let mut last = begun;
        for index in &order {
            let (key, value) = &records[*index];
            let right = db.read_with(key, |found| found == Some(value))?;
            wrong += u64::from(!right);
            let now = Instant::now();
            histogram.add(now - last);
            last = now;
        }
        let took = begun.elapsed();
        drop(progress);
        let one_by_one = rate(order.len() as u64, "lookups", took);

        let begun = Instant::now();
        let mut found = 0;
        for batch in order.chunks(BATCH) {
            let keys: Vec<&[u8]> = batch.iter().map(|index| &records[*index].0[..]).collect();
            db.read_many(&keys, &mut |at, value| {
                found += u64::from(value == Some(&records[batch[at]].1));
            })?;
        }
        let batched = rate(order.len() as u64, "lookups", begun.elapsed());
        wrong += order.len() as u64 - found;

        let begun = Instant::now();
        for index in &order {
            let mut key = records[*index].0.clone();
            key.extend_from_slice(b"\0absent");
            wrong += u64::from(db.read_with(&key, |found| black_box(found).is_some())?);
        }
        let absent = rate(order.len() as u64, "lookups", begun.elapsed());

        self.wrong += wrong;
        self.fact("one by one", one_by_one)?;
        self.fact(&format!("in batches of {BATCH}"), batched)?;
        self.fact("of absent keys", absent)?;
        self.fact("wrong answers", count(wrong))?;
        self.out.line_now(format_args!(
            "\n   time of one lookup, with the clock's own\n{histogram}"
        ))
    }

    fn search(&mut self, db: &HashDb) -> Result<()> {
        self.step("Search the keys: every one is looked at")?;
        let Some((key, _)) = self.records.get(self.records.len() / 2) else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(key).into_owned();
        let chars: Vec<char> = text.chars().collect();
        let inside: String = chars[chars.len().saturating_sub(3)..].iter().collect();
        let searches = [
            (
                format!("contains {inside:?}"),
                Search::text(&[inside.as_bytes()], Place::Anywhere, true, false)?,
            ),
            ("regex \"^.?[0-9]+$\"".into(), Search::regex("^.?[0-9]+$")?),
            (format!("nearest to {text:?}"), Search::nearest_text(&text)),
        ];
        for (index, (label, search)) in searches.iter().enumerate() {
            let limit = if index == 2 { 3 } else { 0 };
            let mut shown = Vec::new();
            let begun = Instant::now();
            let found = db.search(search, limit, &mut |key, _| {
                if shown.len() < 3 {
                    shown.push(figures::cut(key, 16));
                }
                ControlFlow::Continue(())
            })?;
            let took = seconds(begun.elapsed());
            let dots = if found > shown.len() as u64 {
                " ..."
            } else {
                ""
            };
            let shown = shown.join(" ");
            self.fact(
                &figures::cut(label.as_bytes(), 22),
                format!("{} found in {took}: {shown}{dots}", count(found)),
            )?;
            // What was looked for is itself a key, so the first and the last must find it.
            self.wrong += u64::from(found == 0 && index != 1);
        }
        Ok(())
    }

    fn update(&mut self, db: &HashDb) -> Result<()> {
        self.step("Change records where they are")?;
        let mut wrong = 0;

        let changed = &self.records[..self.records.len().min(APPENDS_MAX)];
        let begun = Instant::now();
        for (key, _) in changed {
            db.append(key, b"toured", b" | ")?;
        }
        let appended = rate(changed.len() as u64, "appends", begun.elapsed());
        for (key, value) in changed {
            let expected = [value, TOURED].concat();
            wrong += u64::from(db.get(key)?.as_ref() != Some(&expected));
        }

        let threads = std::thread::available_parallelism()
            .map_or(2, usize::from)
            .clamp(2, 4) as u64;
        let total = threads * ROUNDS;
        let begun = Instant::now();
        in_threads(threads, || {
            (0..ROUNDS).try_for_each(|_| db.increment(COUNTER, 1, 0).map(drop))
        })?;
        let incremented = rate(total, "increments", begun.elapsed());
        wrong += db
            .counter(COUNTER)?
            .unwrap_or_default()
            .unsigned_abs()
            .abs_diff(total);

        let retries = AtomicU64::new(0);
        let begun = Instant::now();
        in_threads(threads, || {
            (0..ROUNDS).try_for_each(|_| exchange(db, &retries))
        })?;
        let exchanged = rate(total, "exchanges", begun.elapsed());
        let text = db.get(EXCHANGED)?.unwrap_or_default();
        let reached: Option<u64> = str::from_utf8(&text)
            .ok()
            .and_then(|text| text.parse().ok());
        wrong += reached.unwrap_or(0).abs_diff(total);

        self.wrong += wrong;
        let retries = count(retries.into_inner());
        self.fact("append", appended)?;
        self.fact(
            "increment",
            format!("{incremented}, one counter, {threads} threads"),
        )?;
        self.fact(
            "compare-exchange",
            format!("{exchanged}, one record, {retries} retries"),
        )?;
        self.fact("lost updates", count(wrong))
    }

    fn crash(&mut self, file: &Path) -> Result<()> {
        self.step("Kill a writer with SIGKILL, reopen, look for what it had acknowledged")?;
        let report = crash::run(file)?;
        self.wrong += report.missing + report.wrong;
        let writers = count(crash::THREADS as u64);
        let rate = rate(report.acknowledged, "writes", report.writing);
        self.fact("acknowledged", format!("{rate}, {writers} threads"))?;
        self.fact("kills", report.kills)?;
        self.fact("reopened in", seconds(report.slowest_open))?;
        self.fact("acknowledged, missing", count(report.missing))?;
        self.fact("half written", count(report.wrong))?;
        self.fact("in flight, and stored", count(report.in_flight))
    }

    fn check(&mut self, file: &Path) -> Result<()> {
        self.step("Check the whole file against its checksums")?;
        let reader = HashReader::open(file)?;
        let progress = Progress::work("checking");
        let begun = Instant::now();
        let report = reader.check(&mut progress.report())?;
        let took = begun.elapsed();
        drop(progress);
        self.wrong += report.damage.len() as u64;
        for damage in &report.damage {
            self.fact("damage", damage)?;
        }
        let (records, bytes) = (count(report.records), size(report.bytes));
        self.fact(
            "verified",
            format!("{records} records, {bytes} in {}", seconds(took)),
        )
    }

    /// Copies while a thread writes, then looks for everything the tour had written before.
    fn copy(&mut self, file: &Path, target: &Path) -> Result<()> {
        self.step("Copy the file while it is being written to")?;
        let db = HashDb::open(file, &OpenOptions::default())?;
        let copied = AtomicBool::new(false);
        let progress = Progress::work("copying");
        let (took, meanwhile) = std::thread::scope(|scope| -> Result<(Duration, u64)> {
            let writer = start_in(scope, || -> Result<u64> {
                let mut writes = 0_u64;
                while !copied.load(Ordering::Relaxed) {
                    db.put(
                        format!("tour:copy:{}", writes % 1000).as_bytes(),
                        b"meanwhile",
                    )?;
                    writes += 1;
                }
                Ok(writes)
            })?;
            let begun = Instant::now();
            let result = db.copy_to(target, &mut progress.report());
            let took = begun.elapsed();
            copied.store(true, Ordering::Relaxed);
            let writes = writer.join().expect("the writer does not panic")?;
            result.map(|()| (took, writes))
        })?;
        drop(progress);
        db.close()?;

        let copy = HashReader::open(target)?;
        let mut missing = 0;
        for (key, value) in &self.records {
            copy.read(key, &mut |found| {
                let toured = found.and_then(|found| found.strip_prefix(&value[..]));
                missing += u64::from(!toured.is_some_and(|t| t.is_empty() || t == TOURED));
            })?;
        }
        self.wrong += missing;
        self.fact(
            "copied",
            format!("{} in {}", size(copy.stats().file_bytes), seconds(took)),
        )?;
        self.fact("written meanwhile", format!("{} records", count(meanwhile)))?;
        self.fact("missing in the copy", count(missing))
    }
}

/// Runs `work` in so many threads at once; the first error, if there is one.
fn in_threads(threads: u64, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Result<Vec<_>> = (0..threads).map(|_| start_in(scope, &work)).collect();
        threads?
            .into_iter()
            .try_for_each(|thread| thread.join().expect("the work does not panic"))
    })
}

/// Adds one to a decimal number by looking at it and exchanging it until no other thread came between.
fn exchange(db: &HashDb, retries: &AtomicU64) -> Result<()> {
    let mut seen = db.get(EXCHANGED)?;
    loop {
        let number: u64 = seen
            .as_ref()
            .and_then(|text| str::from_utf8(text).ok()?.parse().ok())
            .unwrap_or_default();
        let next = (number + 1).to_string();
        let expected = seen
            .as_ref()
            .map_or(Expected::Absent, |text| Expected::Value(text));
        let outcome = db.compare_exchange(EXCHANGED, expected, Desired::Put(next.as_bytes()))?;
        if outcome.done {
            return Ok(());
        }
        retries.fetch_add(1, Ordering::Relaxed);
        seen = outcome.actual;
    }
}
