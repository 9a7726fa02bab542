//! Stores as commands use them: opened, walked, filled in batches, and made durable at the end.
//!
//! Promises: a command that answers 0 has its changes on the device (`--durability power`, the
//! default: a prompt means that) or at least out of the process (`process`).
//! It does not know how a store works, nor what is printed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use azekura::engine::Bookmark;
use azekura::error::Result;
use azekura::record::hash::{Compression, CreateOptions, OpenOptions};
use azekura::record::tree;
use azekura::size::parse_size;
use azekura::{Affects, Db, Durability, Edit, Engine, Error, Kind, Reader};
use azekura_wire::durability;

use crate::format::{Limits, Record};
use crate::output::counted;
use crate::output::note;

/// Records put at once.
const BATCH_RECORDS: usize = 256;
/// Bytes put at once, unless one record has more.
const BATCH_BYTES: usize = 1 << 20;

/// How long a file is, or those of a store of shards are together; 0 if there is none.
pub(crate) fn size_of(file: &Path) -> u64 {
    let len = |file: &Path| fs::metadata(file).map_or(0, |metadata| metadata.len());
    let shards = azekura::shard::files_of(file).unwrap_or_default();
    len(file) + shards.iter().map(|shard| len(shard)).sum::<u64>()
}

/// How large a store may become.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Room {
    /// How large the file may become in this command; the file does not keep it [default: 1TiB]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    capacity: Option<u64>,
}

impl Room {
    /// The defaults but for the capacity.
    pub(crate) fn options(self) -> OpenOptions {
        let usual = OpenOptions::new();
        let capacity = self.capacity.unwrap_or(usual.capacity);
        usual.capacity(capacity)
    }

    /// The same of a tree file.
    pub(crate) fn options_of_tree(self) -> tree::OpenOptions {
        tree::OpenOptions::new().capacity(self.options().capacity)
    }

    /// Opens an existing store, for what not every engine does.
    pub(crate) fn open_db(self, file: &Path) -> Result<Db> {
        Db::open_with(file, &self.options(), &self.options_of_tree())
    }
}

/// How a command writes, and what its writes survive.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Writing {
    #[command(flatten)]
    room: Room,
    #[command(flatten)]
    lasting: Lasting,
}

/// The durability of a command.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Lasting {
    /// What the changes survive once the command has returned
    #[arg(long, value_parser = durability::parser(), default_value = "power", value_name = "LEVEL")]
    pub(crate) durability: Durability,
}

impl Writing {
    /// Opens an existing store for reading and writing.
    pub(crate) fn open(self, file: &Path) -> Result<Box<dyn Engine>> {
        azekura::open::open_to_grow(file, self.room.options().capacity)
    }

    /// The same, for what not every engine does.
    pub(crate) fn open_db(self, file: &Path) -> Result<Db> {
        self.room.open_db(file)
    }

    /// The options of a new file.
    pub(crate) fn options(self) -> CreateOptions {
        CreateOptions::new().opening(self.room.options())
    }

    /// The same of a tree file.
    pub(crate) fn options_of_tree(self) -> tree::CreateOptions {
        tree::CreateOptions::new().opening(self.room.options_of_tree())
    }

    /// Makes what was written as durable as requested.
    pub(crate) fn finish(self, engine: &(impl Reader + ?Sized)) -> Result<()> {
        let durability = self.lasting.durability;
        let persistent = engine.as_persistent();
        persistent.map_or(Ok(()), |file| file.sync(durability))
    }
}

/// What a new file is given and keeps.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// How values, or pages of a tree, are stored: none, lz4 (fast) or zstd (smaller) [default: none; rebuild: as they are]
    #[arg(long, value_parser = parse_compression, value_name = "METHOD")]
    compression: Option<Compression>,
    /// Size of a segment, a power of two from 4KiB to 64MiB: the unit in which space is reused
    /// [default: by the capacity and the free space, 1MiB at most; rebuild: as it is]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    segment_size: Option<u64>,
    /// Size of a page of a tree file in memory: 4KiB, 8KiB or 16KiB, more than 4KiB with compression
    /// [default: 4KiB, or 16KiB with compression; rebuild: as it is]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    page_size: Option<u64>,
}

impl Shape {
    /// `options` with the requested values in their place. `Invalid` for one that is of tree files.
    pub(crate) fn over(self, mut options: CreateOptions) -> Result<CreateOptions> {
        if self.page_size.is_some() {
            return Err(of_tree_file("--page-size"));
        }
        options.compression = self.compression.unwrap_or(options.compression);
        options.segment_size = self.segment_size.unwrap_or(options.segment_size);
        Ok(options)
    }

    /// The same of a tree file. Another compression has pages of its own size.
    pub(crate) fn over_tree(self, mut options: tree::CreateOptions) -> tree::CreateOptions {
        if let Some(compression) = self.compression
            && compression != options.compression
        {
            (options.compression, options.page_size) = (compression, 0);
        }
        options.page_size = self.page_size.unwrap_or(options.page_size);
        options.segment_size = self.segment_size.unwrap_or(options.segment_size);
        options
    }
}

/// The error of an option that a hash file does not have.
pub(crate) fn of_tree_file(option: &str) -> Error {
    Error::new(Kind::Invalid, format!("{option} is of a tree file"))
        .remedy("make a tree file, by `azekura create` with --engine tree, or leave the option out")
}

/// The shape of an open file.
pub(crate) fn shape_of(db: &Db) -> Shape {
    let properties = db.inspect();
    let property = |wanted| {
        properties
            .iter()
            .find_map(|(name, value)| (*name == wanted).then_some(value.as_str()))
    };
    Shape {
        compression: property("compression").and_then(|word| parse_compression(word).ok()),
        segment_size: property("segment_size").and_then(|size| size.parse().ok()),
        page_size: property("page_bytes").and_then(|size| size.parse().ok()),
    }
}

fn parse_compression(word: &str) -> std::result::Result<Compression, &'static str> {
    Compression::from_word(word).ok_or("expected none, lz4 or zstd")
}

/// The limits a store states.
pub(crate) fn limits(store: &(impl Reader + ?Sized)) -> Limits {
    let promise = store.promise();
    Limits {
        key: promise.key_len_max,
        value: promise.value_len_max,
    }
}

/// Called with a key and its value; its error ends the walk.
pub(crate) type Each<'e> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'e;

/// Calls `visit` with every record until it fails.
pub(crate) fn for_each(store: &(impl Reader + ?Sized), visit: &mut Each<'_>) -> Result<()> {
    let mut done = Ok(());
    store.scan(None, &mut |key, value| {
        done = visit(key, value);
        flow(done.is_ok())
    })?;
    done
}

/// Whether a scan is to continue.
pub(crate) fn flow(continues: bool) -> ControlFlow<()> {
    if continues {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}

/// Calls `visit` with at most `count` records from `from` on, until it fails. Each damage is reported on standard error, and
/// passed by. Returns where to continue, and whether something is lost or in doubt.
pub(crate) fn walk_past_damage(
    store: &(impl Reader + ?Sized),
    from: Option<&Bookmark>,
    mut count: u64,
    visit: &mut Each<'_>,
) -> Result<(Option<Bookmark>, bool)> {
    walk_until(store, from, &mut |key, value| {
        count -= 1;
        visit(key, value)?;
        Ok(flow(count > 0))
    })
}

/// Called with key and value; whether to continue.
pub(crate) type EachUntil<'v> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>> + 'v;

/// As `walk_past_damage`, until `visit` breaks.
pub(crate) fn walk_until(
    store: &(impl Reader + ?Sized),
    from: Option<&Bookmark>,
    visit: &mut EachUntil<'_>,
) -> Result<(Option<Bookmark>, bool)> {
    let mut is_damaged = note_known_damage(store);
    let mut done = Ok(());
    let next = store.scan_past(
        from,
        &mut |key, value| match visit(key, value) {
            Ok(flow) => flow,
            Err(error) => {
                done = Err(error);
                ControlFlow::Break(())
            }
        },
        &mut |error| {
            note!("azekura: damage: {error}");
            is_damaged = true;
            Ok(())
        },
    )?;
    done.map(|()| (next, is_damaged))
}

/// Reports the damage that a store knows of; whether something is lost or in doubt.
pub(crate) fn note_known_damage(store: &(impl Reader + ?Sized)) -> bool {
    let known = store.as_persistent().map(azekura::Persistent::damage);
    let mut is_damaged = false;
    for damage in known.into_iter().flatten() {
        note!("azekura: damage: {damage}");
        is_damaged |= damage.affects != Affects::Nothing;
    }
    is_damaged
}

/// What becomes of a record that is there already.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Conflict {
    /// Keep records that are there already; without it the new value replaces the old
    #[arg(long)]
    keep_existing: bool,
}

/// Puts many records, a batch at a time.
pub(crate) struct Filler<'e> {
    engine: &'e dyn Engine,
    conflict: Conflict,
    batch: Vec<Record>,
    bytes: usize,
    stored: u64,
    kept: u64,
}

impl<'e> Filler<'e> {
    /// Puts into `engine`.
    pub(crate) fn new(engine: &'e dyn Engine, conflict: Conflict) -> Self {
        Self {
            engine,
            conflict,
            batch: Vec::new(),
            bytes: 0,
            stored: 0,
            kept: 0,
        }
    }

    /// Adds a record; it is stored by the next `flush` at the latest.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.push(Record {
            key: key.to_vec(),
            value: value.to_vec(),
        });
        self.bytes += key.len() + value.len();
        if self.batch.len() >= BATCH_RECORDS || self.bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Stores what was added. A batch that fails is not tried again, nor counted but for what is stored of it.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        if self.conflict.keep_existing {
            for Record { key, value } in &batch {
                let mut existed = false;
                self.engine.update(key, &mut |present| {
                    existed = present.is_some();
                    if existed {
                        Edit::Keep
                    } else {
                        Edit::put(value)
                    }
                })?;
                self.kept += u64::from(existed);
                self.stored += u64::from(!existed);
            }
            return Ok(());
        }
        let records: Vec<(&[u8], &[u8])> = batch
            .iter()
            .map(|Record { key, value }| (&key[..], &value[..]))
            .collect();
        let put = self.engine.put_many(&records);
        self.stored += match &put {
            Ok(()) => records.len(),
            Err(_) => stored_of(self.engine, &records)?,
        } as u64;
        put
    }

    /// Records of the input that are done with: stored, or kept as they were.
    pub(crate) fn done(&self) -> u64 {
        self.stored + self.kept
    }

    /// Records stored so far.
    pub(crate) fn stored(&self) -> u64 {
        self.stored
    }

    /// "3 records stored", and how many were left as they were.
    pub(crate) fn summary(&self) -> String {
        let kept = if self.conflict.keep_existing {
            format!(", {} kept as they were", self.kept)
        } else {
            String::new()
        };
        let stored = counted(self.stored, "record", "records");
        format!("{stored} stored{kept}")
    }
}

/// How many of `records`, which were put in order, are stored: the most after which the store would look as it does.
fn stored_of(engine: &dyn Engine, records: &[(&[u8], &[u8])]) -> Result<usize> {
    let mut keys: HashMap<&[u8], (Option<Vec<u8>>, bool)> = HashMap::new();
    let (mut wrong, mut stored) = (0_usize, 0);
    for (at, (key, value)) in records.iter().enumerate() {
        let (present, was_right) = match keys.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let mut present = None;
                engine.read(key, &mut |found| present = found.map(<[u8]>::to_vec))?;
                new.insert((present, true))
            }
        };
        let is_right = present.as_deref() == Some(*value);
        wrong = wrong + usize::from(*was_right) - usize::from(is_right);
        *was_right = is_right;
        if wrong == 0 {
            stored = at + 1;
        }
    }
    Ok(stored)
}

/// The library's advice about another writer, which no command that writes can follow.
const OR_READ_ONLY: &str = "; open it read-only, or stop that process";

/// The error with a remedy that the user of a command can follow: none that writes has an option to open a file read-only.
pub(crate) fn without_read_only(error: Error) -> Error {
    if error.kind() == Kind::Locked && error.to_string().ends_with(OR_READ_ONLY) {
        error.remedy("run the command again when that process has ended, or stop that process")
    } else {
        error
    }
}

/// The error of a command that fills the new file `target`: where that is full, the remedy is about it. No record is to be removed
/// from it, as it will not be there. `capacity`: the command has this option.
pub(crate) fn of_target(error: Error, target: &Path, capacity: Option<&str>) -> Error {
    if error.kind() != Kind::Full || error.path().is_some_and(|path| path != target) {
        return error;
    }
    let system = error.system().map(io::Error::kind);
    let remedy = match (system, capacity) {
        (Some(io::ErrorKind::FileTooLarge), _) => {
            "raise the limit of the size of files (ulimit -f), or choose a target on another file system".into()
        }
        (None, Some(option)) => format!("raise {option}"),
        _ => "free space on the file system of the target, or choose a target on another one".into(),
    };
    error.remedy(format!("the target is not made; {remedy}"))
}

/// Refuses `target` if it exists, before any work is done for it.
pub(crate) fn refuse_existing(target: &Path) -> Result<()> {
    if target.symlink_metadata().is_ok() {
        return Err(Error::new(Kind::Invalid, "the target exists")
            .at(target)
            .remedy("choose another name, or remove it first"));
    }
    Ok(())
}
