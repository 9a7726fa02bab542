//! Choosing an engine from the superblock: for programs that take whatever file they are given.
//!
//! A file that is changed is a hash file, a tree file, or the manifest of a store of several such (`shard`); a sorted file is read. What is
//! none of them is the hash engine's to refuse.
//! A program that knows the engine opens it directly, with options. A tree file belongs to one process at a time, also for reading.

use std::path::Path;
use std::sync::Arc;

use crate::engine::{Engine, Reader};
use crate::error::{Error, Kind, Result};
use crate::io::file::File;
use crate::io::{Access, Storage};
use crate::kernel::Slots;
use crate::record::hash::{HashDb, HashReader, OpenOptions};
use crate::record::skip::{PendingEdits, SkipReader, is_sorted_file};
use crate::record::tree::{self, TreeDb};
use crate::shard::{ShardEngine, Sharded, shards_at};

/// Opens an existing store of any engine for reading and writing, with default options.
///
/// `Mismatch` if it is no azekura file, of a newer version, or a sorted file, which is not changed in place; `Locked` if it is open for
/// writing.
pub fn open(path: &Path) -> Result<Box<dyn Engine>> {
    open_to_grow(path, OpenOptions::new().capacity)
}

/// As [`open`], of a store that may become as large as `capacity`. `Invalid` if that is too small for it.
pub fn open_to_grow(path: &Path, capacity: u64) -> Result<Box<dyn Engine>> {
    let of_tree = tree::OpenOptions::new().capacity(capacity);
    let of_hash = OpenOptions::new().capacity(capacity);
    match shards_at(path)? {
        Some((ShardEngine::Tree, _)) => {
            return Ok(Box::new(Sharded::<TreeDb>::open(path, &of_tree)?));
        }
        Some((ShardEngine::Hash, _)) => {
            return Ok(Box::new(Sharded::<HashDb>::open(path, &of_hash)?));
        }
        None => {}
    }
    // What cannot be read is the hash engine's to refuse.
    if is_tree(path).is_ok_and(|is_tree| is_tree) {
        return Ok(Box::new(TreeDb::open(path, &of_tree)?));
    }
    let opened = HashDb::open(path, &of_hash);
    Ok(Box::new(opened.map_err(|error| unchangeable(error, path))?))
}

/// Whether the file at `path` is a tree file.
pub fn is_tree(path: &Path) -> Result<bool> {
    Ok(is_tree_file(&File::open(path, Access::Read)?))
}

/// Whether a new file of this name is a tree file, where nothing else is stated: it ends with `.azt`.
pub fn names_a_tree(path: &Path) -> bool {
    path.extension().is_some_and(|of| of == "azt")
}

fn is_tree_file(storage: &dyn Storage) -> bool {
    let slots = Slots::read(storage);
    slots.is_ok_and(|slots| slots.engine() == Some(tree::layout::ENGINE))
}

/// How a tree file is opened to be read: alone, and what a crash left is recovered.
fn to_read_tree() -> tree::OpenOptions {
    tree::OpenOptions::new().background(false)
}

/// Opens a store of several shards to be read, with its properties; `None`: it is none.
fn read_shards(
    path: &Path,
    hash: fn(HashReader) -> HashReader,
) -> Result<Option<(Properties, Box<dyn Reader>)>> {
    Ok(match shards_at(path)? {
        None => None,
        Some((ShardEngine::Hash, _)) => {
            let store = Sharded::<HashReader>::open(path, &())?.with_each(hash);
            Some((store.inspect(), Box::new(store)))
        }
        Some((ShardEngine::Tree, _)) => {
            let store = Sharded::<TreeDb>::open(path, &to_read_tree())?;
            Some((store.inspect(), Box::new(store)))
        }
    })
}

/// The error of a file that is opened for writing: where it is a sorted file, the remedy is about that.
fn unchangeable(error: Error, path: &Path) -> Error {
    let is_sorted = error.kind() == Kind::Mismatch
        && File::open(path, Access::Read).is_ok_and(|file| is_sorted_file(&file));
    if is_sorted {
        error.remedy("a sorted file is never changed in place: build another with `azekura skip`, or edit it with the library's `SkipDb`")
    } else {
        error
    }
}

/// Opens an existing store of any engine for reading, concurrently with its writer if there is one; a tree file, which belongs to one
/// process, is opened as for writing: `Locked` if it is open anywhere.
pub fn open_read_only(path: &Path) -> Result<Box<dyn Reader>> {
    open_reader(path, |hash| hash)
}

/// As [`open_read_only`], but of a damaged store it reads also the records of which a newer version may be lost: for who
/// takes out what there is, and reports that by `damage`.
pub fn open_damaged(path: &Path) -> Result<Box<dyn Reader>> {
    open_reader(path, HashReader::reading_doubtful)
}

fn open_reader(path: &Path, hash: fn(HashReader) -> HashReader) -> Result<Box<dyn Reader>> {
    if let Some((_, store)) = read_shards(path, hash)? {
        return Ok(store);
    }
    let storage = Arc::new(File::open(path, Access::Read)?);
    if is_sorted_file(&*storage) {
        return Ok(Box::new(SkipReader::open_on(storage)?));
    }
    if is_tree_file(&*storage) {
        drop(storage);
        return Ok(Box::new(TreeDb::open(path, &to_read_tree())?));
    }
    Ok(Box::new(hash(HashReader::open_on(storage)?)))
}

/// Names and values.
pub type Properties = Vec<(&'static str, String)>;

/// Properties of a store of any engine, by name, in a fixed order, and the open store.
pub fn inspect(path: &Path) -> Result<(Properties, Box<dyn Reader>)> {
    if let Some(found) = read_shards(path, |hash| hash)? {
        return Ok(found);
    }
    let storage = Arc::new(File::open(path, Access::Read)?);
    if is_sorted_file(&*storage) {
        let file = SkipReader::open_on(storage)?;
        let mut properties = file.inspect();
        properties.extend(pending_properties(path));
        return Ok((properties, Box::new(file)));
    }
    if is_tree_file(&*storage) {
        drop(storage);
        let store = TreeDb::open(path, &to_read_tree())?;
        return Ok((store.inspect(), Box::new(store)));
    }
    let store = HashReader::open_on(storage)?;
    Ok((store.inspect(), Box::new(store)))
}

/// What is pending of a sorted file. It is whole without that, so an error is one of the properties.
fn pending_properties(path: &Path) -> Properties {
    let (edits, bytes) = match PendingEdits::of(path) {
        Ok(pending) => pending.map_or((0, 0), |pending| (pending.edits, pending.bytes)),
        Err(error) => {
            return vec![
                ("pending_edits", "unknown".into()),
                ("pending_error", error.to_string()),
            ];
        }
    };
    vec![
        ("pending_edits", edits.to_string()),
        ("pending_bytes", bytes.to_string()),
    ]
}

/// Whether the file at `path` is a sorted one.
pub fn is_sorted(path: &Path) -> Result<bool> {
    Ok(is_sorted_file(&File::open(path, Access::Read)?))
}
