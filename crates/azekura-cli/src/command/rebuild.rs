//! `rebuild`: writes a file anew, with the settings it has or with others, and puts it in place.
//!
//! ```text
//!   1. open FILE for writing: nobody else can while we hold it
//!   2. write every record to FILE.rebuilding, sync it, verify it          a crash leaves FILE alone
//!   3. rename it to FILE, sync the directory                              old or new, never neither
//! ```
//!
//! Readers that have the old file open go on reading the old one. The new one has its owner and mode.
//! It does not mend: a damaged file is refused with the damage named.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use azekura::engine::Persistent as _;
use azekura::error::size;
use azekura::record::hash::{HashDb, Options};
use azekura::{Durability, Error, Kind, Reader as _, Result};

use crate::exit::Outcome;
use crate::output::{Output, counted};
use crate::progress::Progress;
use crate::store::{Conflict, Filler, Shape, for_each, shape_of, size_of};

/// Write a file anew, with other settings
#[derive(clap::Args)]
pub(crate) struct Rebuild {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    shape: Shape,
}

impl Rebuild {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let before = size_of(&self.file);
        let old = HashDb::open(&self.file, &Options::default())?;
        let file = fs::canonicalize(&self.file)
            .map_err(|error| Error::io("cannot find the file's place", error).at(&self.file))?;
        let mut beside = OsString::from(&file);
        beside.push(".rebuilding");
        let beside = PathBuf::from(beside);
        // Only a rebuild of this file makes this name, and we hold the file: what is there is left
        // over from one that was killed.
        let _ = fs::remove_file(&beside);
        let built = self.build(&old, &beside);
        if built.is_err() {
            let _ = fs::remove_file(&beside);
        }
        let after = built?;
        keep_owner_and_mode(&file, &beside).inspect_err(|_| {
            let _ = fs::remove_file(&beside);
        })?;
        fs::rename(&beside, &file)
            .map_err(|error| Error::io("cannot put the rebuilt file in place", error).at(&file))?;
        sync_directory_of(&file)?;
        out.line(format_args!(
            "{}, {} before, {} after",
            counted(old.count(), "record", "records"),
            size(before),
            size(after)
        ))?;
        Ok(Outcome::Yes)
    }

    /// Writes the records of `old` to a new file `beside` it and verifies that; returns its size.
    fn build(&self, old: &HashDb, beside: &Path) -> Result<u64> {
        let options = self.shape.over(&shape_of(old).over(&Options::default()));
        let new = HashDb::create(beside, &options)?;
        let progress = Progress::new("rebuilding", old.count());
        let mut filler = Filler::new(&new, Conflict::replace());
        for_each(old, &mut |key, value| {
            progress.set(filler.stored());
            filler.put(key, value)
        })?;
        filler.flush()?;
        drop(progress);
        new.sync(Durability::Power)?;
        let progress = Progress::work("verifying");
        let report = new.check(&mut progress.report())?;
        drop(progress);
        if let Some(damage) = report.damage.first() {
            return Err(Error::new(
                Kind::Corrupted,
                "the rebuilt file is damaged, the old one stays",
            )
            .at(beside)
            .detail(damage.as_str()));
        }
        if new.count() != old.count() {
            return Err(Error::new(
                Kind::Corrupted,
                "the rebuilt file is not whole, the old one stays",
            )
            .at(beside)
            .found(format!("{} records", new.count()), old.count()));
        }
        new.close()?;
        Ok(size_of(beside))
    }
}

/// Who could use the old file can use the new one: a store is made private to its owner.
fn keep_owner_and_mode(old: &Path, new: &Path) -> Result<()> {
    let kept = || {
        let (of, now) = (fs::metadata(old)?, fs::metadata(new)?);
        if (of.uid(), of.gid()) != (now.uid(), now.gid()) {
            chown(new, Some(of.uid()), Some(of.gid()))?;
        }
        fs::set_permissions(new, of.permissions())
    };
    kept().map_err(|error| {
        Error::io(
            "cannot give the rebuilt file the owner and mode of the old",
            error,
        )
        .at(old)
        .remedy("rebuild it as its owner; nothing was changed")
    })
}

fn sync_directory_of(file: &Path) -> Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    fs::File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| Error::io("cannot sync the directory", error).at(directory))
}
