//! Objects of any length over objects of any length: the newest one is read, also after a kill.
//!
//! ```text
//!   for each way of changing, shape of store, old length:
//!     for each new length:  put old [sync | checkpoint]  change to new --acknowledged--> kill --> open: new
//! ```
//! Lengths are those at which an object is stored otherwise: none, one byte, the longest small object, whole units with and without
//! header and trailer, chunks, the longest extent of a group; each one less and one more. The ways are those of users: `put`,
//! `apply`, and a served store, on one file and on two devices, with default options (background worker included) and with
//! small groups and other bounds of small objects. Lines beginning `tried:` state how much was tried.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use azekura::Kind;
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory, Storage};
use azekura::object::served::{self, Served};
use azekura::object::{Change, CreateOptions, ObjectId, Store};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};

const JOURNAL: &str = "journal.azo";
const DATA: &str = "data.azo";
const GROUP: u64 = 256 << 10;
/// What an extent has in addition to its value: the header, and a trailer for each chunk of 64 KiB.
const HEADER: usize = 64;
const TRAILER: usize = 8;
/// The longest object of a store with such groups: the limit has one trailer more than the extent.
const LEN_MAX: usize = GROUP as usize - HEADER - 5 * TRAILER;

fn id(n: u64) -> ObjectId {
    ObjectId(u128::from(n) << 80 | 3)
}

/// Lengths at which something ends, with one less and one more.
fn lengths(small_max: usize) -> Vec<usize> {
    let chunk = 64 << 10;
    let edges = [
        0,
        small_max,
        4096 - HEADER - TRAILER,
        4096,
        2 * 4096 - HEADER - TRAILER,
        2 * 4096,
        chunk - HEADER - TRAILER,
        chunk,
        2 * chunk - HEADER - 2 * TRAILER,
        2 * chunk,
        LEN_MAX,
        GROUP as usize,
    ];
    let mut lengths: Vec<usize> = edges
        .iter()
        .flat_map(|edge| [edge.saturating_sub(1), *edge, edge + 1])
        .collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Bytes that differ from those of other versions, unless they are few.
fn value(version: u64, len: usize) -> &'static [u8] {
    static POOL: OnceLock<Vec<u8>> = OnceLock::new();
    let pool = POOL.get_or_init(|| Random::new(1).bytes(1 << 20));
    let from = (version * 4099) as usize % (pool.len() - len);
    &pool[from..from + len]
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Put,
    Apply,
    Served,
}

/// A shape of store, a way, and the length that is replaced.
#[derive(Clone, Debug)]
struct Row {
    has_data: bool,
    options: CreateOptions,
    way: Way,
    old: usize,
    seed: u64,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for has_data in [false, true] {
        let made = |small_max| {
            CreateOptions::new()
                .journal_size((!has_data).then_some(512 << 10))
                .group_size(GROUP)
                .small_max(small_max)
                .background(false)
        };
        for options in [CreateOptions::default(), made(65_464), made(300), made(0)] {
            for way in [Way::Put, Way::Apply, Way::Served] {
                let is_grouped = options.group_size.is_some();
                let fits = |len: &usize| !is_grouped || *len <= LEN_MAX;
                for old in lengths(options.opening.small_max as usize)
                    .into_iter()
                    .filter(fits)
                {
                    rows.push(Row {
                        has_data,
                        options: options.clone(),
                        way,
                        old,
                        seed: round_seed() + rows.len() as u64,
                    });
                }
            }
        }
    }
    rows
}

/// What an acknowledged change leaves: when, of which object, and all that is there.
struct Acknowledged {
    events: usize,
    newest: ObjectId,
    there: BTreeMap<ObjectId, &'static [u8]>,
}

impl Row {
    fn create(&self, disk: &SimDisk) -> Store {
        let has_defaults = self.options.journal_size.is_none() && self.options.group_size.is_none();
        let journal = if has_defaults { 4 << 20 } else { 512 << 10 };
        let data = 3 << 20;
        let create = |name, size| {
            let storage = disk.directory().create(Path::new(name)).unwrap();
            storage.resize(size).unwrap();
            storage
        };
        let all = journal + if self.has_data { 0 } else { data };
        let storage = create(JOURNAL, all);
        let second = self.has_data.then(|| create(DATA, data));
        disk.directory().sync().unwrap();
        Store::create_on(storage, second, &self.options, &mut |_, _| {}).unwrap()
    }

    fn open(&self, disk: &SimDisk) -> Store {
        let open = |name| -> Arc<dyn Storage> {
            let opened = disk.directory().open(Path::new(name), Access::Write);
            opened.unwrap()
        };
        let data = self.has_data.then(|| open(DATA));
        let options = self.options.clone().background(false);
        Store::open_on(open(JOURNAL), data, &options.opening).unwrap()
    }

    /// Changes an object of the old length to each other, and notes when that was acknowledged.
    fn change_all(&self, disk: &SimDisk) -> Vec<Acknowledged> {
        let mut random = Random::new(self.seed);
        let store = Arc::new(self.create(disk));
        let served = matches!(self.way, Way::Served)
            .then(|| Served::start(Arc::clone(&store), &served::Options::default()).unwrap());
        let (mut there, mut all) = (BTreeMap::new(), Vec::new());
        for (n, len) in (0..).zip(lengths(self.options.opening.small_max as usize)) {
            let (old, new) = (value(2 * n, self.old), value(2 * n + 1, len));
            store.put(id(n), old).unwrap();
            match random.below(4) {
                0 => store.checkpoint().unwrap(),
                1 => store.sync().unwrap(),
                _ => {}
            }
            if len as u64 > store.len_max() {
                assert!(self.options.group_size.is_some() && len > LEN_MAX);
                let refused = match &served {
                    Some(served) => served.put(id(n), new).wait().map(drop),
                    None => store.put(id(n), new).map(drop),
                };
                assert_eq!(refused.unwrap_err().kind(), Kind::TooLarge);
                assert_eq!(store.get(id(n)).unwrap().as_deref(), Some(old));
                store.remove(id(n)).unwrap();
                continue;
            }
            // One that was changed before goes, with the change or after it.
            let gone = id(n.wrapping_sub(2));
            let neighbour = id(n + 1000);
            match (self.way, &served) {
                (Way::Put, _) => _ = store.put(id(n), new).unwrap(),
                (Way::Served, Some(served)) if n % 2 == 0 => {
                    served.put(id(n), new).wait().unwrap();
                }
                (Way::Served, Some(served)) => {
                    let changes = vec![(id(n), Some(new.to_vec())), (gone, None)];
                    served.apply(changes).wait().unwrap();
                    there.remove(&gone);
                }
                _ => {
                    let changes = [
                        Change::Put(id(n), new),
                        Change::Put(neighbour, &old[..old.len().min(100)]),
                        Change::Remove(gone),
                    ];
                    store.apply(&changes).unwrap();
                    there.insert(neighbour, &old[..old.len().min(100)]);
                    there.remove(&gone);
                }
            }
            there.insert(id(n), new);
            all.push(Acknowledged {
                events: disk.events(),
                newest: id(n),
                there: there.clone(),
            });
            Self::verify(&store, &there, id(n));
            for id in [gone, neighbour] {
                store.remove(id).unwrap();
                there.remove(&id);
            }
            // The room of what is gone is free with a sync.
            store.sync().unwrap();
        }
        all
    }

    /// All that is there, as it is; of one object each end of a range.
    fn verify(store: &Store, there: &BTreeMap<ObjectId, &'static [u8]>, newest: ObjectId) {
        let found: Vec<_> = store.list(..).map(|listed| listed.unwrap().id).collect();
        assert!(found.iter().eq(there.keys()), "{found:?}");
        for (id, value) in there {
            let got = store.get(*id).unwrap();
            let got = got.as_deref();
            assert!(got == Some(value), "{id}: {:?} bytes", got.map(<[u8]>::len));
        }
        let value = there[&newest];
        let len = value.len() as u64;
        assert_eq!(store.head(newest).unwrap(), Some(len));
        for (from, to) in [
            (len.saturating_sub(1), len + 5),
            (len, len + 1),
            (len + 1, len + 2),
            (len / 2, len),
            (0, 1),
        ] {
            let wanted = &value[from.min(len) as usize..to.min(len) as usize];
            let got = store.get_range(newest, from..to).unwrap();
            assert!(got.as_deref() == Some(wanted), "{from}..{to} of {len}");
        }
    }

    /// How many changes were followed by a kill.
    fn run(&self) -> u64 {
        let _case = case(self.seed, self);
        let disk = SimDisk::new(self.seed);
        let all = self.change_all(&disk);
        let mut replay = disk.replay();
        for (n, acknowledged) in all.iter().enumerate() {
            replay.advance_to(acknowledged.events);
            let killed = replay.kill(0);
            let store = self.open(&killed);
            Self::verify(&store, &acknowledged.there, acknowledged.newest);
            if n % 9 == 0 {
                let check = store.check(true, &mut |_, _| {}).unwrap();
                assert!(check.is_sound(), "{check:?}");
            }
        }
        all.len() as u64
    }
}

#[test]
fn any_length_over_any_length_is_read_after_a_kill() {
    let mut rows = rows();
    // A part of them is of all shapes.
    let mut random = Random::new(round_seed());
    for at in 1..rows.len() {
        rows.swap(at, random.index(at + 1));
    }
    rows.truncate(share(rows.len() as u64) as usize);
    let mut tried = 0;
    for row in &rows {
        tried += row.run();
    }
    tried_at_least(tried, 20_000, "changes of length, each with a kill");
}
