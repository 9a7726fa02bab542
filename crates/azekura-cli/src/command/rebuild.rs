//! `rebuild`: writes a file anew, with the settings it has or with others, and puts it in place.
//!
//! ```text
//!   1. open FILE for writing: no other process can while we hold it
//!   2. write every record to a file without a name, sync it, verify it    a crash leaves FILE alone
//!   3. give it the name FILE, sync the directory                          old or new, never neither
//! ```
//!
//! The records of a tree come in order, and are loaded without a journal: its leaves are full. No other name is touched. Readers that have the old file open continue
//! to read the old one. The new one has its owner and mode.
//! It does not repair: a damaged file is refused with the damage named.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use azekura::error::size;
use azekura::io::file::Files;
use azekura::io::{Directory as _, Storage};
use azekura::open::is_tree;
use azekura::record::hash::{CreateOptions, HashDb, OpenOptions};
use azekura::record::tree::{self, TreeDb};
use azekura::{Db, Error, Kind, Result};

use crate::exit::Outcome;
use crate::output::{Output, counted};
use crate::progress::Progress;
use crate::store::{Conflict, Filler, Room, Shape, for_each, of_target, shape_of, size_of};

/// Write a file anew, with other settings
#[derive(clap::Args)]
pub(crate) struct Rebuild {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    room: Room,
}

impl Rebuild {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let before = size_of(&self.file);
        let old = self.open()?;
        let file = fs::canonicalize(&self.file)
            .map_err(|error| Error::io("cannot find the file's place", error).at(&self.file))?;
        let (directory, name) = Files::of(&file);
        let new = directory.create_replacing(name)?;
        self.build(&old, &new)
            .map_err(|error| of_target(error, new.path(), Some("--capacity")))?;
        if let Some(new) = new.as_file() {
            new.keep_owner_and_mode_of(&file)?;
        }
        let after = new.size()?;
        new.take_name()?;
        directory.sync()?;
        let sizes = format!(
            "{}, {} before, {} after",
            counted(old.count(), "record", "records"),
            size(before),
            size(after)
        );
        out.after_change(&sizes, format_args!("the file is rebuilt, {sizes}"))?;
        Ok(Outcome::Yes)
    }

    fn open(&self) -> Result<Db> {
        if is_tree(&self.file)? {
            let options = tree::OpenOptions::new();
            return TreeDb::open(&self.file, &options).map(Db::from);
        }
        HashDb::open(&self.file, &OpenOptions::default()).map(Db::from)
    }

    /// A new file of the same engine, with what was asked for in place of what the old one has.
    fn create_on(&self, old: &Db, storage: &Arc<dyn Storage>) -> Result<Db> {
        let storage = Arc::clone(storage);
        let shape = shape_of(old);
        let Some(order) = old.order() else {
            let options = CreateOptions::new().opening(self.room.options());
            let options = self.shape.over(shape.over(options)?)?;
            return HashDb::create_on(storage, &options).map(Db::from);
        };
        let options = tree::CreateOptions::new()
            .order(order)
            .opening(self.room.options_of_tree());
        let options = self.shape.over_tree(shape.over_tree(options));
        TreeDb::create_on(storage, &options).map(Db::from)
    }

    /// Writes the records of `old`, and its mark, to `storage`, and verifies that.
    fn build(&self, old: &Db, storage: &Arc<dyn Storage>) -> Result<()> {
        let new = self.create_on(old, storage)?;
        let progress = Progress::new("rebuilding", old.count());
        if let Some(new) = new.as_tree() {
            let numbered = old.range::<&[u8]>(..)?.zip(0..);
            let records = numbered.map(|(record, number)| {
                progress.set(number);
                record
            });
            new.load_sorted(records)?;
        } else {
            let mut filler = Filler::new(new.engine(), Conflict::default());
            for_each(old.engine(), &mut |key, value| {
                progress.set(filler.stored());
                filler.put(key, value)
            })?;
            filler.flush()?;
        }
        if let (Some(old), Some(new)) = (old.as_hash(), new.as_hash())
            && let Some(mark) = old.mark()
        {
            new.set_mark(&mark)?;
        }
        drop(progress);
        new.sync()?;
        let progress = Progress::work("verifying");
        let report = new.check(progress.report())?;
        drop(progress);
        if let Some(damage) = report.damage.first() {
            return Err(Error::new(
                Kind::Corrupted,
                "the rebuilt file is damaged, the old one stays",
            )
            .at(storage.path())
            .detail(damage.as_str()));
        }
        if new.count() != old.count() {
            return Err(Error::new(
                Kind::Corrupted,
                "the rebuilt file is not whole, the old one stays",
            )
            .at(storage.path())
            .found(format!("{} records", new.count()), old.count()));
        }
        new.close()
    }
}
