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
//! Of a store of several shards each is written anew, one after the other, and then the manifest: a crash before that leaves a store that is
//! refused until the same command has run again, which also takes in the file of a shard that was repaired or rebuilt by itself.
//! It does not repair: a damaged file is refused with the damage named.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azekura::error::size;
use azekura::io::file::{File, Files};
use azekura::io::{Access, Directory as _, Storage};
use azekura::open::is_tree;
use azekura::record::hash::{CreateOptions, HashDb, OpenOptions};
use azekura::record::tree::{self, TreeDb};
use azekura::shard::{Sharded, files_of};
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
        let shards = files_of(&self.file)?;
        let count = if shards.is_empty() {
            self.rebuild(&self.file)?
        } else {
            self.rebuild_shards(&shards)?
        };
        let sizes = format!(
            "{}, {} before, {} after",
            counted(count, "record", "records"),
            size(before),
            size(size_of(&self.file))
        );
        out.after_change(&sizes, format_args!("the file is rebuilt, {sizes}"))?;
        Ok(Outcome::Yes)
    }

    /// Rebuilds each shard of a store, and then has the manifest name the new files; how many records there are.
    fn rebuild_shards(&self, shards: &[PathBuf]) -> Result<u64> {
        self.take_in(shards)?;
        // Meanwhile no other process opens the store.
        let manifest = File::open(&self.file, Access::Write)?;
        let all = shards.iter();
        let rebuilt = all.map(|shard| self.rebuild(shard)).sum();
        drop(manifest);
        // Also where one has failed: those before it are new files.
        self.take_in(shards)?;
        rebuilt
    }

    /// Has the manifest name the files that there are, if each has the records that belong there.
    fn take_in(&self, shards: &[PathBuf]) -> Result<()> {
        if shards.first().map_or(Ok(false), |shard| is_tree(shard))? {
            let options = tree::OpenOptions::new().background(false);
            return Sharded::<TreeDb>::open_replaced(&self.file, &options)?.close();
        }
        let options = OpenOptions::new().background(false);
        Sharded::<HashDb>::open_replaced(&self.file, &options)?.close()
    }

    /// How many records the file has.
    fn rebuild(&self, file: &Path) -> Result<u64> {
        let old = Db::open_with(file, &OpenOptions::new(), &tree::OpenOptions::new())?;
        let file = fs::canonicalize(file)
            .map_err(|error| Error::io("cannot find the file's place", error).at(file))?;
        let (directory, name) = Files::of(&file);
        let new = directory.create_replacing(name)?;
        self.build(&old, &new)
            .map_err(|error| of_target(error, new.path(), Some("--capacity")))?;
        if let Some(new) = new.as_file() {
            new.keep_owner_and_mode_of(&file)?;
        }
        new.take_name()?;
        directory.sync()?;
        Ok(old.count())
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
