//! `skip`: builds sorted files, from records in any order and from other sorted files; merges or drops edits that are pending.
//!
//! The file appears when it is whole: after an error, or when the command is ended, there is none. Nothing is kept of the input but
//! what is sorted. What a sorted file holds is read by `get`, `list`, `search`, `export`, `check`, `inspect`, `copy` and `repair`.
//! Edits are pending in a file next to the sorted one, and made by the library. It does not change a file in place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use azekura::order::Order;
use azekura::record::skip::{
    BuildOptions, EditOptions, PendingEdits, Reducer, ReducingSkipDb, SkipBuilder, SkipReader,
};
use azekura::size::parse_size;
use azekura::{Error, Kind, Reader as _, Result};

use crate::exit::Outcome;
use crate::format::{Format, Limits, Record};
use crate::input::Input;
use crate::output::{Output, counted};
use crate::progress::Progress;
use crate::store::{of_target, refuse_existing};

/// Build sorted files, which get, list, search, export, check, copy and repair read
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Skip {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Build(Build),
    Merge(Merge),
    Sync(Sync),
    Revert(Revert),
}

impl Skip {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        match &self.verb {
            Verb::Build(build) => build.run(out),
            Verb::Merge(merge) => merge.run(out),
            Verb::Sync(sync) => sync.run(out),
            Verb::Revert(revert) => revert.run(out),
        }
    }
}

/// What becomes of several values of one key, and the memory to sort in.
#[derive(clap::Args)]
struct Sorting {
    /// What is stored of several values of a key
    #[arg(long, value_parser = Reducer::NAMES, default_value = "last", value_name = "REDUCER")]
    reducer: String,
    /// Bytes to sort in; more records are sorted in parts, in the folder of the target. The values of one key are in memory
    /// besides
    #[arg(long, value_parser = parse_size, default_value = "256MiB", value_name = "SIZE")]
    memory: u64,
}

impl Sorting {
    fn options(&self) -> BuildOptions {
        BuildOptions::new()
            .reducer(Reducer::from_name(&self.reducer).unwrap_or_default())
            .memory(self.memory)
    }
}

/// Build a sorted file from tsv, flat records or JSON lines, in any order
#[derive(clap::Args)]
struct Build {
    /// The file to make, by convention NAME.azs
    target: PathBuf,
    /// The form
    format: Format,
    /// What to read; - or nothing is standard input
    #[arg(default_value = "-", hide_default_value = true)]
    source: PathBuf,
    /// The order of keys, which the file keeps
    #[arg(long, value_parser = Order::ALL.map(Order::name), default_value = "lexical", value_name = "ORDER")]
    order: String,
    /// The records come in this order: nothing is sorted, and a record out of order ends it
    #[arg(long)]
    sorted: bool,
    #[command(flatten)]
    sorting: Sorting,
}

impl Build {
    fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        refuse_existing(&self.target)?;
        let input = Input::open(&self.source, true)?;
        let order = Order::from_name(&self.order).unwrap_or_default();
        let options = self.sorting.options().order(order).is_sorted(self.sorted);
        let full = |error| of_target(error, &self.target, None);
        let mut builder = SkipBuilder::create(&self.target, &options).map_err(full)?;
        let limits = Limits {
            key: builder.limits().0,
            value: builder.limits().1,
        };
        let progress = Progress::bytes("reading", input.size);
        let mut reader = self.format.reader(input.stream()?, &input.name, limits);
        let mut record = Record::default();
        let mut read = 0_u64;
        while reader.read(&mut record)? {
            let put = builder.put(&record.key, &record.value);
            // One that is out of order stands in the input.
            put.map_err(|error| match error.kind() {
                Kind::Invalid => error.at(&input.name),
                _ => full(error),
            })?;
            read += 1;
            progress.set(reader.consumed());
        }
        drop(progress);
        finish(builder, read, full, out)
    }
}

/// Merge sorted files of one order into a new one; of equal keys, the values of later files come later
#[derive(clap::Args)]
struct Merge {
    /// The file to make, by convention NAME.azs
    target: PathBuf,
    /// The sorted files; they are not changed
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    #[command(flatten)]
    sorting: Sorting,
}

impl Merge {
    fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        refuse_existing(&self.target)?;
        let sources = self
            .sources
            .iter()
            .map(|source| SkipReader::open(source).map(Arc::new));
        let sources = sources.collect::<Result<Vec<_>>>()?;
        let order = sources
            .first()
            .map(|source| source.order())
            .unwrap_or_default();
        let full = |error| of_target(error, &self.target, None);
        let options = self.sorting.options().order(order);
        let mut builder = SkipBuilder::create(&self.target, &options).map_err(full)?;
        for source in &sources {
            builder.merge(source)?;
        }
        let read = sources.iter().map(|source| source.count()).sum();
        finish(builder, read, full, out)
    }
}

/// Write the edits that are pending of a sorted file into it
#[derive(clap::Args)]
struct Sync {
    /// The sorted file; another one with all records replaces it
    file: PathBuf,
}

impl Sync {
    fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let Some(pending) = pending_of(&self.file)? else {
            out.line("nothing is pending")?;
            return Ok(Outcome::Yes);
        };
        let db = open(&self.file, &pending)?;
        let edits = counted(db.pending_edits(), "edit", "edits");
        let progress = Progress::work("merging");
        db.merge(&mut progress.report())?;
        drop(progress);
        let records = counted(db.count(), "record", "records");
        db.close()?;
        let summary = format!("{edits} merged, {records} in the file");
        out.after_change(&summary, &summary)?;
        Ok(Outcome::Yes)
    }
}

/// Drop the edits that are pending of a sorted file
#[derive(clap::Args)]
struct Revert {
    /// The sorted file; it stays as it was after the last merge
    file: PathBuf,
    /// Drop them: without it, it is stated how many there are
    #[arg(long)]
    yes: bool,
}

impl Revert {
    fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let Some(pending) = pending_of(&self.file)? else {
            out.line("nothing is pending")?;
            return Ok(Outcome::No);
        };
        let edits = counted(pending.edits, "edit", "edits");
        if !self.yes {
            let error = Error::new(Kind::Invalid, format!("{edits} would be lost"));
            return Err(error
                .at(&self.file)
                .remedy("give --yes to drop what is pending, or write it into the file by `azekura skip sync`"));
        }
        let db = open(&self.file, &pending)?;
        db.revert()?;
        db.close()?;
        let summary = format!("{edits} dropped");
        out.after_change(&summary, &summary)?;
        Ok(Outcome::Yes)
    }
}

/// What is pending of a sorted file; `None`: nothing.
fn pending_of(file: &Path) -> Result<Option<PendingEdits>> {
    let pending = PendingEdits::of(file)?;
    Ok(pending.filter(|pending| pending.edits > 0))
}

/// Opens a sorted file under the reducer of its pending edits.
fn open(file: &Path, pending: &PendingEdits) -> Result<ReducingSkipDb> {
    ReducingSkipDb::open_reducing(file, pending.reducer.clone(), &EditOptions::new())
}

/// Writes the file, and states what is in it.
fn finish(
    builder: SkipBuilder,
    read: u64,
    full: impl Fn(azekura::Error) -> azekura::Error,
    out: &mut Output<'_>,
) -> Result<Outcome> {
    let progress = Progress::new("writing", read);
    let file = builder.finish(&mut progress.report()).map_err(full)?;
    drop(progress);
    let stored = counted(file.count(), "record", "records");
    let summary = format!("{stored} stored, {read} read");
    out.after_change(&summary, &summary)?;
    Ok(Outcome::Yes)
}
