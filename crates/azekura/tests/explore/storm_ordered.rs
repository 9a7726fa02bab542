//! Crashes of ordered files that many threads use: the tree file, and the sorted file that takes edits.
//!
//! They join `testkit::storm` with a page each, as `storm` has the others do. Order of keys, cache, segments, memory, capacity,
//! population and schedule are drawn from the seed, which a failure prints.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory};
use azekura::order::Order;
use azekura::record::skip::{EditOptions, SkipDb};
use azekura::record::tree::{Compression, CreateOptions, OpenOptions, Snapshot, TreeDb};
use azekura::testkit::Random;
use azekura::testkit::configuration::compression;
use azekura::testkit::storm::{Engine, Promise, Shape, Store};
use azekura::testkit::suite::{demand, third};
use azekura::{Durability, Edit, Engine as _, Kind, Reader as _, Result, Verbs as _};

use super::storm::{batch, crowded, damage_of, storms, sync_interval, tried};

const NAME: &str = "storm";

/// Bytes that a tree takes for each live one: what waits for a checkpoint, half-filled leaves, the journal.
const TREE_SPACE: u64 = 12;
/// And in addition to that: reserves, and the least of an interval.
const TREE_OVERHEAD: u64 = 12 << 20;

fn name(key: u32) -> Vec<u8> {
    // Some are long: few of them fill a leaf.
    // Of many, those of a hundred are put in no order, which leaves room in leaves.
    let place = match key {
        0..1000 => key,
        _ => key / 100 * 100 + key % 100 * 37 % 100,
    };
    let mut name = format!("{place:06}").into_bytes();
    if key.is_multiple_of(17) {
        name.resize(6 + key as usize * 7 % 480, b'n');
    }
    name
}

fn durability(random: &mut Random) -> Durability {
    if random.one_in(6) {
        Durability::Power
    } else {
        Durability::Process
    }
}

/// What the two do differently.
trait Ordered: azekura::Engine + azekura::Persistent {
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()>;
    fn unset(&self, key: &[u8]) -> Result<()>;
    fn work(&self, step: u64) -> Result<()>;

    /// All of these changes, or none.
    fn together(&self, changes: &[(u32, Option<Vec<u8>>)]) -> Result<()>;
}

impl Ordered for TreeDb {
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(key, value)
    }

    /// Now and then by the range that has it alone.
    fn unset(&self, key: &[u8]) -> Result<()> {
        if key.last().is_some_and(|last| last.is_multiple_of(4)) {
            return self.remove_range(key..=key).map(drop);
        }
        self.remove(key).map(drop)
    }

    fn work(&self, step: u64) -> Result<()> {
        match step {
            0 => return self.checkpoint(),
            1 => return self.compact(&mut |_, _| ()),
            2 => {
                let counted = self.count_range::<&[u8]>(..)?;
                let bytes = [512 << 10, 1 << 20, 4 << 20][counted as usize % 3];
                return self.set_cache(bytes);
            }
            _ => {}
        }
        let properties = self.inspect();
        let waited = properties.iter().find(|(name, _)| *name == "buffered_puts");
        let waited: u64 = waited.map_or(0, |(_, count)| count.parse().unwrap());
        BUFFERED.fetch_add(waited, Ordering::Relaxed);
        let snapshot = self.snapshot()?;
        let Some(then) = scanned(&snapshot)? else {
            return Ok(());
        };
        assert_eq!(then.len() as u64, snapshot.count());
        self.maintain()?;
        if let Some(again) = scanned(&snapshot)? {
            assert!(then == again, "a snapshot changed");
        }
        Ok(())
    }

    fn together(&self, changes: &[(u32, Option<Vec<u8>>)]) -> Result<()> {
        if changes.len().is_multiple_of(2) {
            return batch(self, changes, name);
        }
        loop {
            let mut transaction = self.transaction()?;
            for (key, value) in changes {
                match value {
                    Some(value) => transaction.put(name(*key), value)?,
                    None => transaction.remove(name(*key))?,
                }
            }
            match transaction.commit() {
                Err(error) if matches!(error.kind(), Kind::Conflict | Kind::TooOld) => {}
                committed => return committed,
            }
        }
    }
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// What a snapshot shows; `None`: it was ended.
fn scanned(snapshot: &Snapshot<'_>) -> Result<Option<Records>> {
    let mut shown = Vec::new();
    let scan = snapshot.scan(None, &mut |key, value| {
        shown.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    match scan {
        Err(error) if error.kind() == Kind::TooOld => Ok(None),
        scan => scan.map(|_| Some(shown)),
    }
}

impl Ordered for SkipDb {
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.update(key, &mut |_| Edit::put(value))
    }

    fn unset(&self, key: &[u8]) -> Result<()> {
        self.remove(key).map(drop)
    }

    fn work(&self, _: u64) -> Result<()> {
        self.merge(&mut |_, _| ())
    }

    fn together(&self, changes: &[(u32, Option<Vec<u8>>)]) -> Result<()> {
        batch(self, changes, name)
    }
}

/// An open file.
struct File<D>(D);

impl<D: Ordered> Store for File<D> {
    fn put(&self, key: u32, value: &[u8]) -> Result<()> {
        self.0.set(&name(key), value)
    }

    fn remove(&self, key: u32) -> Result<()> {
        self.0.unset(&name(key))
    }

    fn batch(&self, changes: &[(u32, Option<Vec<u8>>)]) -> Result<()> {
        self.0.together(changes)
    }

    fn get(&self, key: u32) -> Result<Option<Vec<u8>>> {
        self.0.get(&name(key))
    }

    fn sync(&self) -> Result<()> {
        self.0.sync(Durability::Power)
    }

    fn clear(&self) -> Result<()> {
        self.0.clear()
    }

    fn upkeep(&self, random: &mut Random) -> Result<()> {
        match random.below(6) {
            5 => {
                assert_eq!(self.damage()?, None);
                Ok(())
            }
            step => self.0.work(step),
        }
    }

    fn follow(&self, _: &mut dyn FnMut() -> bool, _: &mut dyn FnMut(u32, &[u8])) -> Result<()> {
        Ok(())
    }

    fn damage(&self) -> Result<Option<String>> {
        damage_of(&self.0)
    }
}

/// Bytes of a cache that stores are beyond.
const SMALL_CACHE: u64 = 512 << 10;
/// Puts that had waited for their leaf whenever a snapshot was taken.
static BUFFERED: AtomicU64 = AtomicU64::new(0);

/// A tree file of some configuration.
struct Tree(CreateOptions);

impl Tree {
    fn draw(random: &mut Random) -> Self {
        let order = if random.one_in(4) {
            *random.choose(&Order::ALL)
        } else {
            Order::Lexical
        };
        let opening = OpenOptions::new()
            .cache(*random.choose(&[512 << 10, 512 << 10, 1 << 20, 4 << 20]))
            .durability(durability(random))
            .sync_interval(sync_interval(random))
            .capacity(SimDisk::FILE_SIZE_MAX);
        let options = CreateOptions::new()
            .order(order)
            .compression(compression(random))
            .segment_size(*random.choose(&[64 << 10, 64 << 10, 128 << 10]));
        Self(options.opening(opening))
    }

    /// One that is full all the time, of the least capacity or a little more.
    fn draw_full(random: &mut Random) -> Self {
        let Self(options) = Self::draw(random);
        // The least capacity holds few pages of 16 KiB: such stores are filled in `tests/tree`.
        let options = options.compression(Compression::None);
        let opening = options
            .opening
            .clone()
            .cache(512u64 << 10)
            .capacity((30 + random.below(20)) * (64 << 10));
        Self(options.segment_size(64u64 << 10).opening(opening))
    }

    /// One that holds several times what its cache does.
    fn draw_large(random: &mut Random) -> Self {
        let Self(options) = Self::draw(random);
        let options = options.order(Order::Lexical).page_size(0_u64);
        let options = options.compression(Compression::None);
        let opening = options.opening.clone().cache(SMALL_CACHE);
        Self(options.opening(opening))
    }

    fn opening(&self, has_worker: bool) -> OpenOptions {
        self.0.opening.clone().background(has_worker)
    }
}

impl Engine for Tree {
    type Store = File<TreeDb>;

    fn create(&self, disk: &SimDisk, has_worker: bool) -> Result<File<TreeDb>> {
        let options = self.0.clone().opening(self.opening(has_worker));
        TreeDb::create_in(&disk.directory(), Path::new(NAME), &options).map(File)
    }

    fn open(&self, disk: &SimDisk, has_worker: bool) -> Result<File<TreeDb>> {
        let storage = disk.directory().open(Path::new(NAME), Access::Write)?;
        let db = TreeDb::open_on(storage, &self.opening(has_worker))?;
        if self.0.opening.cache <= SMALL_CACHE {
            // What its leaves have free is known when they were in memory.
            db.scan(None, &mut |_, _| ControlFlow::Continue(()))?;
        }
        Ok(File(db))
    }

    fn close(&self, store: File<TreeDb>) -> Result<()> {
        assert_eq!(store.0.count_range::<&[u8]>(..)?, store.0.count());
        store.0.close()
    }

    fn promise(&self) -> Promise {
        Promise {
            durable: self.0.opening.durability == Durability::Power,
            one_history: true,
            replaces: false,
        }
    }

    fn is_ample(&self, shape: &Shape) -> bool {
        let first = u64::from(shape.keys) * (shape.first_max as u64 + 64);
        let changed = u64::from(shape.puts_max()) * (shape.len_max as u64 + 64);
        TREE_OVERHEAD + TREE_SPACE * first + 3 * changed <= self.0.opening.capacity
    }
}

/// A sorted file with pending edits.
struct Edited(EditOptions);

impl Edited {
    fn draw(random: &mut Random) -> Self {
        let order = *random.choose(&[Order::Lexical, Order::Lexical, Order::Decimal]);
        Self(
            EditOptions::new()
                .order(order)
                .memory(*random.choose(&[64u64 << 10, 256 << 10, 8 << 20]))
                .durability(durability(random)),
        )
    }
}

impl Engine for Edited {
    type Store = File<SkipDb>;

    fn create(&self, disk: &SimDisk, _: bool) -> Result<File<SkipDb>> {
        SkipDb::create_in(Box::new(disk.directory()), Path::new(NAME), &self.0).map(File)
    }

    fn open(&self, disk: &SimDisk, _: bool) -> Result<File<SkipDb>> {
        SkipDb::open_in(Box::new(disk.directory()), Path::new(NAME), &self.0).map(File)
    }

    fn close(&self, store: File<SkipDb>) -> Result<()> {
        store.0.close()
    }

    fn promise(&self) -> Promise {
        Promise {
            durable: self.0.durability == Durability::Power,
            one_history: true,
            replaces: false,
        }
    }

    fn is_ample(&self, _: &Shape) -> bool {
        true
    }
}

#[test]
fn a_tree_file_that_threads_use_loses_nothing_in_a_crash() {
    let ran = storms(90, 3, |random| (Tree::draw(random), Shape::draw(random)));
    let what = "crashes of a tree file that threads use";
    tried(ran, 1800, 3000, 4000, 0, what);
}

/// Puts wait for leaves that are not in memory.
#[test]
fn a_tree_file_beyond_its_cache_that_threads_use_loses_nothing_in_a_crash() {
    let ran = storms(60, 2, |random| {
        let shape = Shape {
            keys: *random.choose(&[6000, 8000]),
            len_max: *random.choose(&[120, 250]),
            first_max: 250,
            clears: 0,
            ..Shape::draw(random)
        };
        (Tree::draw_large(random), shape)
    });
    let what = "crashes of a tree file beyond its cache that threads use";
    tried(ran, 600, 300, 3000, 0, what);
    let waited = BUFFERED.load(Ordering::Relaxed);
    demand(
        waited,
        third(300),
        "puts of storms that waited for their leaf",
    );
}

#[test]
fn a_full_tree_file_that_threads_use_takes_all_that_frees() {
    let ran = storms(60, 1, |random| {
        let shape = Shape {
            keys: *random.choose(&[300, 1000]),
            ..crowded(random, &[300, 3000, 20_000])
        };
        (Tree::draw_full(random), shape)
    });
    let what = "crashes of a full tree file that threads use";
    tried(ran, 600, 300, 6000, 90, what);
}

#[test]
fn an_edited_sorted_file_that_threads_use_loses_nothing_in_a_crash() {
    let ran = storms(60, 3, |random| {
        let shape = Shape::draw(random);
        let keys = shape.keys.min(1000);
        let shape = Shape {
            keys,
            has_worker: false,
            ..shape
        };
        (Edited::draw(random), shape)
    });
    let what = "crashes of an edited sorted file that threads use";
    tried(ran, 1200, 0, 2500, 0, what);
}
