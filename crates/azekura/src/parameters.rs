//! Options in the path of a store of records, as `users.azt?cache=1GiB&order=decimal`: what [`create`](crate::create) and
//! [`open`](fn@crate::open) take.
//!
//! After the first `?` in the last part of a path come names and values, separated by `&`. A program that has options of its own
//! uses them, and a path as it is, with [`Db::create`](crate::Db::create), or with an engine itself.
//!
//! | name | value | of |
//! |---|---|---|
//! | `engine` | `hash`, `tree`; else by the name: a tree if that ends with `.azt` | creating |
//! | `shards` | 1 to 256: so many files, each for a part of the keys ([`shard`](crate::shard)) | creating; when it is opened it must be that |
//! | `segment_size` | a size, as `64KiB` | creating |
//! | `compression` | `none`, `lz4`, `zstd` | creating |
//! | `page_size` | `4KiB`, `8KiB`, `16KiB` | creating a tree file |
//! | `order` | the name of an [`Order`] | creating a tree file; when it is opened it must be that |
//! | `cache` | a size | a tree file |
//! | `space_ratio` | a number, as `1.5` | a hash file |
//! | `durability` | `process`, `power` | both |
//! | `sync_interval` | milliseconds or seconds, as `100ms` or `5s` | both |
//! | `capacity` | a size | both |
//!
//! What each means is stated at the options of the engines; sizes are those of all shards together. It does not know what a store does.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::engine::Durability;
use crate::error::{Error, Kind, Result};
use crate::order::Order;
use crate::record::compression::Compression;
use crate::record::{hash, tree};
use crate::shard::SHARDS_MAX;
use crate::size::parse_size;

/// All names, with the engine that they are of and when they are given.
const NAMES: [(&str, Option<FileEngine>, When); 11] = [
    ("engine", None, When::Creating),
    ("shards", None, When::Always),
    ("segment_size", None, When::Creating),
    ("compression", None, When::Creating),
    ("page_size", Some(FileEngine::Tree), When::Creating),
    ("order", Some(FileEngine::Tree), When::Always),
    ("cache", Some(FileEngine::Tree), When::Always),
    ("space_ratio", Some(FileEngine::Hash), When::Always),
    ("durability", None, When::Always),
    ("sync_interval", None, When::Always),
    ("capacity", None, When::Always),
];

/// The engine of a file of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileEngine {
    Hash,
    Tree,
}

impl FileEngine {
    fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Tree => "tree",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Creating,
    Always,
}

/// A path and its parameters.
#[derive(Debug)]
pub(crate) struct PathParameters<'p> {
    /// The path without them.
    pub(crate) path: &'p Path,
    /// Names and values, as they are given.
    given: Vec<(&'p str, &'p str)>,
}

impl<'p> PathParameters<'p> {
    /// Splits a path. `Invalid` for what is no name and value, and for a name twice.
    pub(crate) fn of(whole: &'p Path) -> Result<Self> {
        let bytes = whole.as_os_str().as_bytes();
        // Slashes at the end are none of the name's: they would be dropped from a file's.
        let len = bytes
            .iter()
            .rposition(|byte| *byte != b'/')
            .map_or(0, |at| at + 1);
        let name_at = bytes[..len]
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1);
        let found = bytes[name_at..].iter().position(|byte| *byte == b'?');
        let Some(at) = found.map(|at| name_at + at) else {
            return Ok(Self {
                path: whole,
                given: Vec::new(),
            });
        };
        let path = Path::new(OsStr::from_bytes(&bytes[..at]));
        let Ok(text) = std::str::from_utf8(&bytes[at + 1..]) else {
            return Err(invalid(path, "the parameters after a path are not UTF-8"));
        };
        let mut given: Vec<(&str, &str)> = Vec::new();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return Err(invalid(
                    path,
                    format!("the parameter `{part}` has no value"),
                ));
            };
            if given.iter().any(|(before, _)| *before == name) {
                return Err(invalid(
                    path,
                    format!("the parameter `{name}` is given twice"),
                ));
            }
            given.push((name, value));
        }
        Ok(Self { path, given })
    }

    /// Whether it is stated that the file is a tree, or none.
    pub(crate) fn is_tree(&self) -> Result<Option<bool>> {
        self.value("engine", "hash or tree", |value| match value {
            "hash" => Some(false),
            "tree" => Some(true),
            _ => None,
        })
    }

    /// How many shards are stated.
    pub(crate) fn shards(&self) -> Result<Option<usize>> {
        self.value("shards", "a number from 1 to 256", |value| {
            let shards = value.parse().ok()?;
            (1..=SHARDS_MAX).contains(&shards).then_some(shards)
        })
    }

    /// `Mismatch` if another number of shards is stated than a store has; `None`: it is one file, and no store of shards.
    pub(crate) fn expect_shards(&self, present: Option<usize>) -> Result<()> {
        let Some(stated) = self.shards()?.filter(|stated| Some(*stated) != present) else {
            return Ok(());
        };
        let found = present.map_or_else(|| "one file".to_owned(), |shards| shards.to_string());
        Err(
            Error::new(Kind::Mismatch, "the store has another number of shards")
                .at(self.path)
                .found(found, stated)
                .remedy("open it without `shards`; to change the number, copy the records to a new store"),
        )
    }

    /// `Invalid` for a name that there is not, or not for this engine, or not when a file is opened.
    fn check(&self, engine: FileEngine, is_creating: bool) -> Result<()> {
        let is_of = |of: &(&str, Option<FileEngine>, When)| {
            of.1.is_none_or(|of| of == engine) && (is_creating || of.2 == When::Always)
        };
        for (name, _) in &self.given {
            let known = NAMES.iter().find(|of| of.0 == *name);
            if known.is_some_and(is_of) {
                continue;
            }
            let names: Vec<&str> = NAMES.iter().filter(|of| is_of(of)).map(|of| of.0).collect();
            let what = match known {
                None => format!("there is no parameter `{name}`"),
                Some((_, Some(of), _)) if *of != engine => {
                    format!("the parameter `{name}` is of a {} file", of.name())
                }
                Some(_) => format!("the parameter `{name}` is given when a file is created"),
            };
            return Err(invalid(self.path, what).remedy(format!(
                "those of a {} file are: {}",
                engine.name(),
                names.join(", ")
            )));
        }
        Ok(())
    }

    fn value<T>(
        &self,
        name: &str,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let given = self.given.iter().find(|(of, _)| *of == name);
        let Some((_, value)) = given else {
            return Ok(None);
        };
        read(value).map(Some).ok_or_else(|| {
            invalid(
                self.path,
                format!("the parameter `{name}` has no such value"),
            )
            .found(format!("`{value}`"), expected)
        })
    }

    fn size(&self, name: &str) -> Result<Option<u64>> {
        let expected = "a number of bytes, or one with KiB, MiB, GiB or TiB";
        self.value(name, expected, |value| parse_size(value).ok())
    }

    fn durability(&self) -> Result<Option<Durability>> {
        self.value("durability", "process or power", Durability::from_word)
    }

    fn sync_interval(&self) -> Result<Option<Duration>> {
        let expected = "milliseconds or seconds, more than none, as 100ms or 5s";
        self.value("sync_interval", expected, |value| {
            let interval = match value.strip_suffix("ms") {
                Some(number) => Duration::from_millis(number.parse().ok()?),
                None => Duration::from_secs(value.strip_suffix('s')?.parse().ok()?),
            };
            (!interval.is_zero()).then_some(interval)
        })
    }

    fn compression(&self) -> Result<Option<Compression>> {
        let from_word = Compression::from_word;
        self.value("compression", "none, lz4 or zstd", from_word)
    }

    fn order(&self) -> Result<Option<Order>> {
        self.value(
            "order",
            "the name of an order, as lexical or decimal",
            Order::from_name,
        )
    }

    /// How a hash file is created, or opened.
    pub(crate) fn of_hash(&self, is_creating: bool) -> Result<hash::CreateOptions> {
        self.check(FileEngine::Hash, is_creating)?;
        let mut options = hash::CreateOptions::new();
        let opening = &mut options.opening;
        let ratio = self.value("space_ratio", "a number, as 1.5", |value| {
            value.parse().ok()
        })?;
        opening.space_ratio = ratio.unwrap_or(opening.space_ratio);
        opening.durability = self.durability()?.unwrap_or(opening.durability);
        opening.sync_interval = self.sync_interval()?.or(opening.sync_interval);
        opening.capacity = self.size("capacity")?.unwrap_or(opening.capacity);
        let segment_size = self.size("segment_size")?;
        options.segment_size = segment_size.unwrap_or(options.segment_size);
        options.compression = self.compression()?.unwrap_or(options.compression);
        Ok(options)
    }

    /// How a tree file is created, or opened.
    pub(crate) fn of_tree(&self, is_creating: bool) -> Result<tree::CreateOptions> {
        self.check(FileEngine::Tree, is_creating)?;
        let mut options = tree::CreateOptions::new();
        let opening = &mut options.opening;
        opening.cache = self.size("cache")?.unwrap_or(opening.cache);
        opening.durability = self.durability()?.unwrap_or(opening.durability);
        opening.sync_interval = self.sync_interval()?.or(opening.sync_interval);
        opening.capacity = self.size("capacity")?.unwrap_or(opening.capacity);
        let segment_size = self.size("segment_size")?;
        options.segment_size = segment_size.unwrap_or(options.segment_size);
        options.compression = self.compression()?.unwrap_or(options.compression);
        options.page_size = self.size("page_size")?.unwrap_or(options.page_size);
        let order = self.order()?;
        options.order = order.unwrap_or(options.order);
        options.opening.expected_order = order;
        Ok(options)
    }
}

fn invalid(path: &Path, what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what).at(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Result<PathParameters<'_>> {
        PathParameters::of(Path::new(path))
    }

    #[test]
    fn a_path_ends_where_its_parameters_begin() {
        for (whole, path, count) in [
            ("a.azh", "a.azh", 0),
            ("a.azt?", "a.azt", 0),
            ("what?/a.azt", "what?/a.azt", 0),
            ("what?/a.azt?cache=1MiB", "what?/a.azt", 1),
            ("a.azt?cache=1MiB&&order=decimal&", "a.azt", 2),
        ] {
            let found = of(whole).expect(whole);
            assert_eq!(
                (found.path, found.given.len()),
                (Path::new(path), count),
                "{whole}"
            );
        }
    }

    #[test]
    fn options_are_what_is_stated_and_else_the_defaults() {
        let given = of(
            "a.azt?cache=2MiB&order=decimal&sync_interval=250ms&durability=power&capacity=1GiB&segment_size=64KiB\
             &compression=zstd&page_size=8KiB",
        );
        let tree = given.unwrap().of_tree(true).unwrap();
        assert_eq!(
            (tree.opening.cache, tree.order),
            (2 << 20, Order::from_name("decimal").unwrap())
        );
        assert_eq!(tree.opening.sync_interval, Some(Duration::from_millis(250)));
        assert_eq!(
            (tree.opening.durability, tree.opening.capacity),
            (Durability::Power, 1 << 30)
        );
        assert_eq!(tree.segment_size, 64 << 10);
        assert_eq!(
            (tree.compression, tree.page_size),
            (Compression::Zstd, 8 << 10)
        );
        let given = of("a.azh?compression=lz4&space_ratio=2&sync_interval=3s").unwrap();
        let hash = given.of_hash(true).unwrap();
        assert_eq!(
            (hash.compression, hash.opening.space_ratio),
            (Compression::Lz4, 2.0)
        );
        assert_eq!(hash.opening.sync_interval, Some(Duration::from_secs(3)));
        let usual = tree::CreateOptions::new();
        let plain = of("a.azt").unwrap().of_tree(true).unwrap();
        assert_eq!(format!("{plain:?}"), format!("{usual:?}"));
    }

    #[test]
    fn what_is_wrong_is_named_and_what_there_is_is_listed() {
        for (path, is_creating, shown) in [
            ("a.azt?cach=1MiB", true, "there is no parameter `cach`"),
            (
                "a.azt?cach=1MiB",
                true,
                "engine, shards, segment_size, compression, page_size, order, cache, durability, sync_interval, capacity",
            ),
            ("a.azt?cache", true, "`cache` has no value"),
            (
                "a.azt?cache=1MiB&cache=2MiB",
                true,
                "`cache` is given twice",
            ),
            ("a.azt?cache=1MB", true, "found `1MB`"),
            ("a.azt?order=upward", true, "found `upward`"),
            (
                "a.azt?space_ratio=2",
                true,
                "`space_ratio` is of a hash file",
            ),
            (
                "a.azt?segment_size=64KiB",
                false,
                "`segment_size` is given when a file is created",
            ),
            ("a.azt?durability=none", true, "expected process or power"),
            ("a.azt?sync_interval=5", true, "as 100ms or 5s"),
            ("a.azt?sync_interval=0ms", true, "more than none"),
            ("a.azt?cache=1MiB/", true, "found `1MiB/`"),
            ("a.azt?engine=btree", true, "expected hash or tree"),
            ("a.azt?shards=0", true, "expected a number from 1 to 256"),
            ("a.azt?shards=257", false, "expected a number from 1 to 256"),
        ] {
            let error = of(path).and_then(|given| {
                given.is_tree()?;
                given.shards()?;
                given.of_tree(is_creating).map(|_| ())
            });
            let error = error.expect_err(path);
            assert_eq!(error.kind(), Kind::Invalid, "{path}");
            assert!(error.to_string().contains(shown), "{path}: {error}");
        }
        let path = Path::new(OsStr::from_bytes(b"a.azt?\xff=1"));
        assert_eq!(
            PathParameters::of(path).expect_err("no text").kind(),
            Kind::Invalid
        );
    }
}
