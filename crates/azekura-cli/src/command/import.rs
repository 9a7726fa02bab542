//! `import`: stores the records of a stream.
//!
//! ```text
//!   1. read the whole input and look at every record (standard input is kept in a temporary file)
//!   2. only if all are good, store them                        --partial: straight to this step
//!   3. --create: only if all are stored, give the file its name   --partial: it has it from the beginning
//! ```
//!
//! So a broken line 90 of 100 is one error, and nothing was stored. If the device is full in step 2, a new file is
//! not there, as if nothing had been done; in a file that was there already, the first records stay, as many as the
//! error states, and the same import again stores the others too. Memory is bounded by a batch.
//! With --sorted an empty tree file, or a new one, is loaded in one step, of which a crash leaves nothing too.
//! A new file is a tree where its name states so, as `create` makes one.
//! It does not know the formats: `format/` does.

use std::path::PathBuf;
use std::sync::Arc;

use azekura::io::file::Files;
use azekura::io::{Storage, create_whole};
use azekura::open::names_a_tree;
use azekura::order::Order;
use azekura::record::hash::HashDb;
use azekura::record::tree::{self, TreeDb};
use azekura::{Db, Engine, Result};

use crate::exit::Outcome;
use crate::format::{Format, Limits, Record};
use crate::input::Input;
use crate::output::{Output, counted};
use crate::progress::Progress;
use crate::store::{Conflict, Filler, Writing, limits, of_target, of_tree_file, refuse_existing};

/// Store the records of tsv, flat records or JSON lines
#[derive(clap::Args)]
pub(crate) struct Import {
    /// The file
    file: PathBuf,
    /// The form
    format: Format,
    /// What to read; - or nothing is standard input
    #[arg(default_value = "-", hide_default_value = true)]
    source: PathBuf,
    /// Make a new file, a tree if its name ends with .azt; without --partial it is there when everything is imported, or not at all
    #[arg(long)]
    create: bool,
    /// The order of the keys of a new tree: lexical, decimal, ... [default: lexical]
    #[arg(long, requires = "create", value_parser = Order::ALL.map(Order::name), value_name = "ORDER")]
    order: Option<String>,
    #[command(flatten)]
    conflict: Conflict,
    /// Store while reading: at a broken record the ones before it stay
    #[arg(long)]
    partial: bool,
    /// The records come in the order of the keys of the file, an empty tree file, or a new one with --create: all of them are loaded, or
    /// none, without a journal
    #[arg(long, conflicts_with_all = ["keep_existing", "partial"])]
    sorted: bool,
    #[command(flatten)]
    writing: Writing,
}

impl Import {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        self.check_options()?;
        let mut input = Input::open(&self.source, self.partial || self.sorted)?;
        if self.create {
            return self.create(&mut input, out);
        }
        if self.sorted {
            let mut db = self.writing.open_db(&self.file)?;
            return self.load(&mut db, &input, out);
        }
        let engine = self.writing.open(&self.file)?;
        self.fill(&*engine, &mut input, out)
    }

    /// `Invalid` for an option of trees where a hash file is to be made.
    fn check_options(&self) -> Result<()> {
        if !self.create || names_a_tree(&self.file) {
            return Ok(());
        }
        let of_trees = [("--order", self.order.is_some()), ("--sorted", self.sorted)];
        for (option, is_given) in of_trees {
            if is_given {
                return Err(of_tree_file(option).remedy(
                    "give a name that ends with .azt, or make a tree file by `azekura create` with --engine tree and import into \
                     that, or leave the option out",
                ));
            }
        }
        Ok(())
    }

    /// Into a new file.
    fn create(&self, input: &mut Input, out: &mut Output<'_>) -> Result<Outcome> {
        refuse_existing(&self.file)?;
        if self.partial {
            let db = if names_a_tree(&self.file) {
                TreeDb::create(&self.file, &self.options_of_tree()).map(Db::from)?
            } else {
                HashDb::create(&self.file, &self.writing.options()).map(Db::from)?
            };
            return self.fill(db.engine(), input, out);
        }
        let (directory, name) = Files::of(&self.file);
        let full = |error| of_target(error, &self.file, Some("--capacity"));
        create_whole(&directory, name, |storage| {
            let mut db = self.create_on(storage).map_err(full)?;
            let filled = if self.sorted {
                self.load(&mut db, input, out)
            } else {
                self.fill(db.engine(), input, out)
            };
            let filled = filled.map_err(full)?;
            db.close().map_err(full)?;
            Ok(filled)
        })
    }

    /// A new store, of the engine that the name states.
    fn create_on(&self, storage: &Arc<dyn Storage>) -> Result<Db> {
        let storage = Arc::clone(storage);
        if names_a_tree(&self.file) {
            return TreeDb::create_on(storage, &self.options_of_tree()).map(Db::from);
        }
        HashDb::create_on(storage, &self.writing.options()).map(Db::from)
    }

    fn options_of_tree(&self) -> tree::CreateOptions {
        let order = self.order.as_deref().and_then(Order::from_name);
        let options = self.writing.options_of_tree();
        options.order(order.unwrap_or_default())
    }

    /// One that is broken or out of order ends it, and nothing is stored: no look at all records is needed before.
    fn load(&self, db: &mut Db, input: &Input, out: &mut Output<'_>) -> Result<Outcome> {
        let limits = limits(db.engine());
        let progress = Progress::bytes("loading", input.size);
        let mut reader = self.format.reader(input.stream()?, &input.name, limits);
        let records = std::iter::from_fn(|| {
            let mut record = Record::default();
            let read = reader.read(&mut record);
            progress.set(reader.consumed());
            let some = |is_some: bool| is_some.then_some((record.key, record.value));
            read.map(some).transpose()
        });
        let loaded = db.load_sorted(records)?;
        drop(progress);
        self.writing.finish(db.engine())?;
        let summary = format!("{} stored", counted(loaded, "record", "records"));
        if self.create {
            out.line(summary)?;
        } else {
            out.after_change(&summary, &summary)?;
        }
        Ok(Outcome::Yes)
    }

    fn fill(
        &self,
        engine: &dyn Engine,
        input: &mut Input,
        out: &mut Output<'_>,
    ) -> Result<Outcome> {
        let limits = limits(engine);
        let mut records = None;
        if !self.partial {
            let mut count = 0;
            self.each(input, limits, "validating", &mut |_| {
                count += 1;
                Ok(())
            })?;
            records = Some(count);
            input.rewind()?;
        }
        let mut filler = Filler::new(engine, self.conflict);
        let read = self.each(input, limits, "importing", &mut |record| {
            filler.put(&record.key, &record.value)
        });
        // With --partial the records before a broken one are stored; without it none was broken.
        let stored = filler.flush().and_then(|()| self.writing.finish(engine));
        let outcome = read.and(stored).map(|()| Outcome::Yes);
        match (&outcome, records) {
            (Err(_), Some(_)) if self.create => return outcome,
            (Err(_), Some(records)) => {
                let done = filler.done();
                return outcome.map_err(|error| {
                    error.remedy(format!(
                        "the first {done} of {records} records are stored; make room and import the same again \
                         for the others"
                    ))
                });
            }
            (Ok(_), _) if !self.create || self.partial => {
                let summary = filler.summary();
                out.after_change(&summary, &summary)?;
            }
            _ => out.line(filler.summary())?,
        }
        outcome
    }

    /// Calls `visit` with every record of `input`.
    fn each(
        &self,
        input: &mut Input,
        limits: Limits,
        title: &'static str,
        visit: &mut dyn FnMut(&Record) -> Result<()>,
    ) -> Result<()> {
        let progress = Progress::bytes(title, input.size);
        let mut reader = self.format.reader(input.stream()?, &input.name, limits);
        let mut record = Record::default();
        while reader.read(&mut record)? {
            visit(&record)?;
            progress.set(reader.consumed());
        }
        Ok(())
    }
}
