//! What a cut of the power, or the death of the process, leaves of a hash file: a prefix of its history.
//!
//! Workloads of every kind of change run on the simulated disk, each under a configuration of its own: segments, capacity down
//! to the least, compression, space ratio, durability, lengths of values are drawn from its seed. At each event the power is cut
//! in many legal ways, the process dies, and recoveries are cut again. The store that then opens, under another capacity and
//! space ratio, must hold the state after some number of operations: at least those synced (or, after a death, acknowledged), at
//! most those begun. So a batch or a clear is there whole or not at all, and what was refused by a full store is not there. It
//! must be sound, take further operations, and hold them after a reopen. Devices that destroy the rest of a sector while they
//! write a part of it are not among the cases: the log continues in sectors that were synced.
//!
//! Planted bugs prove the suite: each must be seen. Lines beginning `tried:` state how much was tried.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azekura::io::sim::{Atom, SimDirectory, SimDisk};
use azekura::io::{Access, Directory, Storage};
use azekura::record::hash::{Compression, CreateOptions, HashDb, OpenOptions};
use azekura::testkit::configuration::{Within, hash_options, opening};
use azekura::testkit::crash::{Config, Counts, Crash, Ledger, explore};
use azekura::testkit::suite::{case, demand, third};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Durability, Edit, Engine, Kind, Persistent, Reader, Result};

/// The records, and under [`MARK`] the last mark.
type State = BTreeMap<Vec<u8>, Vec<u8>>;

const NAME: &str = "power.azh";
const KEYS: u64 = 12;
/// No record has this key.
const MARK: &[u8] = b"mark";

/// One thing a workload does.
#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    /// One edit per key, in one `update_many`, and a mark with them.
    Many(Vec<(Vec<u8>, Option<Vec<u8>>)>, Option<Vec<u8>>),
    /// Everything is removed, and a mark noted with it.
    Clear(Option<Vec<u8>>),
    Mark(Vec<u8>),
    Sync,
    Checkpoint,
    Maintain,
    Compact,
    Reopen,
}

fn key(random: &mut Random) -> Vec<u8> {
    format!("key-{}", random.below(KEYS)).into_bytes()
}

/// Lengths of values.
#[derive(Clone, Copy, Debug)]
struct Lens {
    usual: usize,
    /// Seldom one that takes segments of its own: half of one, and more.
    segment: usize,
}

impl Lens {
    const SMALL: Self = Self {
        usual: 180,
        segment: 4096,
    };
}

fn value(random: &mut Random, lens: Lens) -> Vec<u8> {
    let len = if random.one_in(40) {
        lens.segment / 2 + 52 + random.index(lens.segment)
    } else {
        random.index(lens.usual)
    };
    random.bytes(len)
}

fn mark_of(random: &mut Random) -> Vec<u8> {
    let len = if random.one_in(20) { 4096 } else { 60 };
    let len = 1 + random.index(len);
    random.bytes(len)
}

/// One of two has a mark.
fn mark(random: &mut Random) -> Option<Vec<u8>> {
    random.one_in(2).then(|| mark_of(random))
}

/// What is done in a run: `seed` decides, and which kinds of steps are frequent.
fn steps(seed: u64, count: usize, lens: Lens) -> Vec<Step> {
    let mut random = Random::new(seed);
    let upkeep = *random.choose(&[6, 12, 30]);
    (0..count)
        .map(|_| match random.below(upkeep + 20) {
            0 => Step::Sync,
            1 => Step::Checkpoint,
            2 => Step::Maintain,
            3 if random.one_in(2) => Step::Compact,
            3 => Step::Reopen,
            4 if random.one_in(3) => Step::Clear(mark(&mut random)),
            4 => Step::Mark(mark_of(&mut random)),
            5..8 => Step::Remove(key(&mut random)),
            8..11 => {
                let count = 2 + random.index(4);
                let mut edits = BTreeMap::new();
                for _ in 0..count {
                    let edit = (!random.one_in(3)).then(|| value(&mut random, lens));
                    edits.insert(key(&mut random), edit);
                }
                Step::Many(edits.into_iter().collect(), mark(&mut random))
            }
            _ => Step::Put(key(&mut random), value(&mut random, lens)),
        })
        .collect()
}

/// Does to the model what `step` does to the store.
fn effect(now: &mut State, step: &Step) {
    match step {
        Step::Put(key, value) => drop(now.insert(key.clone(), value.clone())),
        Step::Remove(key) => drop(now.remove(key)),
        Step::Many(edits, mark) => {
            note(now, mark.as_ref());
            for (key, edit) in edits {
                match edit {
                    Some(value) => drop(now.insert(key.clone(), value.clone())),
                    None => drop(now.remove(key)),
                }
            }
        }
        Step::Clear(mark) => {
            now.retain(|key, _| key == MARK);
            note(now, mark.as_ref());
        }
        Step::Mark(mark) => note(now, Some(mark)),
        _ => unreachable!("the others change nothing"),
    }
}

fn note(now: &mut State, mark: Option<&Vec<u8>>) {
    now.extend(mark.map(|mark| (MARK.to_vec(), mark.clone())));
}

/// What is wrong with the store, or with the disk it runs on: a bug to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// There is none.
    None,
    /// There is none, though the storage is wrapped as with the others: the control.
    Wrapped,
    /// Syncs are answered and not done.
    SyncsDropped,
    /// One of three syncs is not done.
    SyncsForgotten,
    /// The system states that it never stopped: a power cut looks like the death of a process.
    SameBoot,
    /// The new name is not made durable.
    NameForgotten,
    /// A new file has its name before it is a store.
    NamedEarly,
    /// A durable write is just a write.
    DurableWritesCached,
    /// Many edits are made one by one.
    BatchesSplit,
    /// A write is acknowledged before it is made.
    AcknowledgedEarly,
    /// A batch and its mark are written one after the other.
    MarksApart,
}

/// A storage that lies as its bug states.
#[derive(Debug)]
struct Lying {
    below: Arc<dyn Storage>,
    bug: Bug,
    syncs: std::sync::atomic::AtomicU64,
}

impl azekura::io::over::Over for Lying {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        match self.bug {
            Bug::DurableWritesCached => self.below.write_at(offset, bytes),
            _ => self.below.write_durably(offset, bytes),
        }
    }

    fn sync(&self) -> Result<()> {
        let number = self
            .syncs
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match self.bug {
            Bug::SyncsDropped => Ok(()),
            Bug::SyncsForgotten if number % 3 == 2 => Ok(()),
            _ => self.below.sync(),
        }
    }

    fn boot_id(&self) -> [u8; 16] {
        if self.bug == Bug::SameBoot {
            [9; 16]
        } else {
            self.below.boot_id()
        }
    }
}

fn lying(below: Arc<dyn Storage>, bug: Bug) -> Arc<dyn Storage> {
    match bug {
        Bug::None => below,
        _ => Arc::new(Lying {
            below,
            bug,
            syncs: 0.into(),
        }),
    }
}

/// A folder that lies as its bug states.
#[derive(Debug)]
struct LyingDirectory {
    below: SimDirectory,
    bug: Bug,
}

impl Directory for LyingDirectory {
    fn create(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        Ok(lying(self.below.create(name)?, self.bug))
    }
    fn create_nameless(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        if self.bug == Bug::NamedEarly {
            return self.create(name);
        }
        Ok(lying(self.below.create_nameless(name)?, self.bug))
    }
    fn create_replacing(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        Ok(lying(self.below.create_replacing(name)?, self.bug))
    }
    fn open(&self, name: &Path, access: Access) -> Result<Arc<dyn Storage>> {
        Ok(lying(self.below.open(name, access)?, self.bug))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.rename(from, to)
    }
    fn remove(&self, name: &Path) -> Result<()> {
        self.below.remove(name)
    }
    fn exists(&self, name: &Path) -> Result<bool> {
        self.below.exists(name)
    }
    fn list(&self) -> Result<Vec<PathBuf>> {
        self.below.list()
    }
    fn sync(&self) -> Result<()> {
        match self.bug {
            Bug::NameForgotten => Ok(()),
            _ => self.below.sync(),
        }
    }
}

fn options() -> CreateOptions {
    CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(SimDisk::FILE_SIZE_MAX)
}

/// A configuration, what is done under it, and what came of it.
struct Case {
    options: CreateOptions,
    /// Under which the store is opened after a crash.
    next: OpenOptions,
    lens: Lens,
    steps: Vec<Step>,
    bug: Bug,
    /// After each number of operations; after none there is no store, after one an empty one.
    states: RefCell<Vec<State>>,
    /// Changes that a full store refused.
    refused: Cell<u64>,
}

impl Case {
    fn draw(seed: u64, count: usize, durability: Durability) -> Self {
        let mut random = Random::new(!seed);
        // Of large segments each state takes long.
        let is_large = random.one_in(12);
        let within = Within {
            segment_size_max: if is_large { 1 << 20 } else { 64 << 10 },
            ..Within::bytes(SimDisk::FILE_SIZE_MAX)
        };
        let options = hash_options(&mut random, &within).durability(durability);
        let usual = *random.choose(&[12, 180, 180, 180, 1200]);
        // Of a small store so long that it becomes full.
        let fills = options.opening.capacity < 1 << 20 && random.one_in(2);
        let lens = Lens {
            usual: if fills {
                2 * (options.opening.capacity / KEYS) as usize
            } else {
                usual
            },
            segment: options.segment_size.clamp(4096, 64 << 10) as usize,
        };
        Self {
            next: opening(&mut random, &within, &options),
            steps: steps(seed, count, lens),
            ..Self::new(options, lens, Bug::None)
        }
    }

    /// The configuration under which bugs are to be seen.
    fn planted(seed: u64, count: usize, bug: Bug) -> Self {
        Self {
            steps: steps(seed, count, Lens::SMALL),
            ..Self::new(options(), Lens::SMALL, bug)
        }
    }

    fn new(options: CreateOptions, lens: Lens, bug: Bug) -> Self {
        Self {
            next: options.opening.clone(),
            options,
            lens,
            steps: Vec::new(),
            bug,
            states: RefCell::default(),
            refused: Cell::new(0),
        }
    }

    /// Whether a full store may refuse a change: not what removes or is no longer than before. A value that takes segments of
    /// its own needs as many free ones next to each other, which a small store does not keep.
    fn may_be_refused(&self, now: &State, step: &Step) -> bool {
        let is_new = |key: &Vec<u8>, value: &Vec<u8>| {
            let is_longer = |before: &Vec<u8>| before.len() < value.len();
            // Compressed, the shorter one may be the longer one.
            value.len() > self.lens.segment / 2
                || self.options.compression != Compression::None
                || now.get(key).is_none_or(is_longer)
        };
        match step {
            Step::Put(key, value) => is_new(key, value),
            Step::Many(edits, _) => edits.iter().any(|(_, edit)| edit.is_some()),
            Step::Mark(mark) => now.get(MARK).is_none_or(|last| last.len() < mark.len()),
            _ => false,
        }
    }
}

fn open(disk: &SimDisk, options: &OpenOptions, bug: Bug) -> Result<HashDb> {
    HashDb::open_on(
        folder(disk, bug).open(Path::new(NAME), Access::Write)?,
        options,
    )
}

fn folder(disk: &SimDisk, bug: Bug) -> LyingDirectory {
    let below = disk.directory();
    LyingDirectory { below, bug }
}

fn apply(db: &HashDb, step: &Step, bug: Bug) -> Result<()> {
    match step {
        Step::Put(key, value) => db.put(key, value),
        Step::Remove(key) => db.remove(key).map(drop),
        Step::Many(edits, mark) if bug == Bug::BatchesSplit => {
            mark.iter().try_for_each(|mark| db.set_mark(mark))?;
            edits.iter().try_for_each(|(key, edit)| match edit {
                Some(value) => db.put(key, value),
                None => db.remove(key).map(drop),
            })
        }
        Step::Many(edits, mark) => {
            let keys: Vec<&[u8]> = edits.iter().map(|(key, _)| key.as_slice()).collect();
            let mut decide = |_: &[Option<&[u8]>]| {
                let edit = |(_, edit): &(_, Option<Vec<u8>>)| match edit {
                    Some(value) => Edit::Put(value.clone().into()),
                    None => Edit::Remove,
                };
                edits.iter().map(edit).collect()
            };
            match mark {
                None => db.update_many(&keys, &mut decide),
                Some(mark) if bug == Bug::MarksApart => {
                    db.update_many(&keys, &mut decide)?;
                    db.set_mark(mark)
                }
                Some(mark) => db.update_many_with_mark(&keys, &mut decide, mark),
            }
        }
        Step::Clear(None) => db.clear(),
        Step::Clear(Some(mark)) => db.clear_with_mark(mark),
        Step::Mark(mark) => db.set_mark(mark),
        _ => unreachable!("the others change nothing"),
    }
}

/// Runs the steps of a case on a new disk, and records in the ledger what was begun and acknowledged.
fn work(disk: &SimDisk, ledger: &Ledger, case: &Case) {
    let (options, bug) = (&case.options, case.bug);
    let directory = folder(disk, bug);
    let mut now = State::new();
    *case.states.borrow_mut() = vec![State::new(), State::new()];
    ledger.begin();
    let mut db = HashDb::create_in(&directory, Path::new(NAME), options).expect("a new store");
    ledger.acknowledge();
    ledger.synced();
    for step in &case.steps {
        match step {
            Step::Sync => {
                db.sync(Durability::Power).expect("a sync");
                ledger.synced();
            }
            Step::Checkpoint => db.checkpoint().expect("a checkpoint"),
            Step::Maintain => db.maintain().expect("a step of upkeep"),
            Step::Compact => {
                db.compact(&mut |_, _| ()).expect("a compaction");
                ledger.synced();
            }
            Step::Reopen => {
                db.close().expect("it closes");
                ledger.synced();
                db = open(disk, &options.opening, bug).expect("it opens again");
            }
            change => {
                ledger.begin();
                if bug == Bug::AcknowledgedEarly {
                    ledger.acknowledge();
                }
                match apply(&db, change, bug) {
                    Ok(()) => effect(&mut now, change),
                    // Refused: an operation that changes nothing.
                    Err(error) if error.kind() == Kind::Full => {
                        let may_be = case.may_be_refused(&now, change);
                        assert!(
                            may_be,
                            "a removal, or a value no longer than before: {error}"
                        );
                        case.refused.set(case.refused.get() + 1);
                    }
                    Err(error) => panic!("a change: {error}"),
                }
                case.states.borrow_mut().push(now.clone());
                if bug != Bug::AcknowledgedEarly {
                    ledger.acknowledge();
                }
                if options.opening.durability == Durability::Power {
                    ledger.synced();
                }
            }
        }
    }
    drop(db);
}

fn contents(db: &HashDb) -> Result<State> {
    let mut state = State::new();
    let mut twice = None;
    db.scan(None, &mut |key, value| {
        if state.insert(key.to_vec(), value.to_vec()).is_some() {
            twice = Some(key.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    assert_eq!(twice, None, "a key is shown twice");
    note(&mut state, db.mark().as_ref());
    Ok(state)
}

fn digest(state: &State) -> u64 {
    state.iter().fold(1, |sum, (key, value)| {
        key.iter()
            .chain(value)
            .chain(&[0xff])
            .fold(sum, |sum: u64, byte| {
                (sum ^ u64::from(*byte))
                    .wrapping_mul(0x0100_0000_01b3)
                    .rotate_left(5)
            })
    })
}

fn is_absent(disk: &SimDisk) -> bool {
    !disk
        .directory()
        .exists(Path::new(NAME))
        .expect("names can be asked for")
}

/// The oracle: see the module's text.
fn verify(crash: &Crash<'_>, case: &Case) -> std::result::Result<u64, String> {
    let states = case.states.borrow();
    let db = match open(crash.disk, &case.next, case.bug) {
        Ok(db) => db,
        // While the store is being made, there may be none yet; but not one that does not open.
        Err(_) if crash.kept() == 0 && is_absent(crash.disk) => return Ok(digest(&State::new())),
        Err(error) => return Err(format!("it does not open: {error}")),
    };
    crash.recovered();
    let fail = |error: azekura::Error| error.to_string();
    let found = contents(&db).map_err(fail)?;
    let (least, most) = (crash.kept(), crash.done.began);
    if !states[least..=most].contains(&found) {
        let elsewhere: Vec<usize> = (0..states.len())
            .filter(|number| states[*number] == found)
            .collect();
        return Err(format!(
            "{} records are no state after {least} to {most} operations, but of {elsewhere:?}",
            found.len()
        ));
    }
    let report = db.check(&mut |_, _| ()).map_err(fail)?;
    if !report.is_sound() {
        return Err(format!("it is damaged: {:?}", report.damage));
    }
    let records = found.keys().filter(|key| *key != MARK).count() as u64;
    if report.records != records || db.count() != report.records {
        return Err(format!(
            "{} counted, {} verified",
            db.count(),
            report.records
        ));
    }
    let digest = digest(&found);
    // Of some it is seen that they continue.
    if crash
        .disk
        .seed()
        .wrapping_add(digest)
        .wrapping_add(most as u64)
        .is_multiple_of(8)
    {
        goes_on(crash.disk, db, found, case).map_err(fail)?;
    }
    Ok(digest)
}

/// Fifty further operations, and a reopen.
fn goes_on(disk: &SimDisk, db: HashDb, mut state: State, case: &Case) -> Result<()> {
    let mut random = Random::new(digest(&state));
    for step in 0..50 {
        let (key, value) = (key(&mut random), value(&mut random, case.lens));
        if random.one_in(4) {
            assert_eq!(db.remove(&key)?, state.remove(&key).is_some());
        } else {
            let put = Step::Put(key, value);
            match apply(&db, &put, Bug::None) {
                Ok(()) => effect(&mut state, &put),
                Err(error) if error.kind() == Kind::Full => {
                    assert!(case.may_be_refused(&state, &put), "{error}");
                }
                Err(error) => return Err(error),
            }
        }
        if step % 20 == 19 {
            db.maintain()?;
            db.checkpoint()?;
        }
    }
    assert_eq!(contents(&db)?, state, "after fifty further operations");
    db.close()?;
    let db = open(disk, &case.next, case.bug)?;
    assert_eq!(contents(&db)?, state, "after a reopen");
    let report = db.check(&mut |_, _| ())?;
    assert!(report.is_sound(), "{:?}", report.damage);
    Ok(())
}

fn run(config: &Config, case: &Case) -> Counts {
    explore(
        config,
        |disk, ledger| work(disk, ledger, case),
        |crash| verify(crash, case),
    )
}

/// States after a cut that each test tries in a full run.
const CUT_STATES: u64 = 3000;
/// States after a cut recovery.
const RECOVERY_CUTS: u64 = 12_000;
/// States after a death of the process.
const DEATHS: u64 = 420;
/// Configurations of each test.
const CONFIGURATIONS: u64 = 12;
/// Of many configurations, rather than many moments of each.
const CUTS_EACH: usize = 20;
const CUTS: usize = 60;

/// Runs of one seed after another, each under a configuration of its own, until enough was tried; how long a workload is, and
/// how many states it has, depends on what is drawn.
fn runs(what: &str, first: u64, durability: Durability, shape: impl Fn(Config) -> Config) {
    let mut counts = Counts::default();
    let (mut sizes, mut refused, mut runs) = (BTreeMap::<u64, u64>::new(), 0, 0);
    let is_enough = |counts: &Counts, runs: u64| {
        runs >= third(CONFIGURATIONS)
            && counts.crash_states >= third(CUT_STATES)
            && counts.recovery_cuts >= third(RECOVERY_CUTS)
            && counts.kills >= third(DEATHS)
    };
    // Runs that try hardly anything end, and fail.
    while !is_enough(&counts, runs) && runs < 10 * third(CONFIGURATIONS) {
        let length = 20 + (runs % 5) as usize * 20;
        let seed = first + runs + round_seed();
        let drawn = Case::draw(seed, length, durability);
        let _shown = case(seed, &(&drawn.options, &drawn.next, drawn.lens));
        counts = counts.plus(run(&shape(Config::new(seed)), &drawn));
        *sizes.entry(drawn.options.segment_size).or_default() += 1;
        refused += drawn.refused.get();
        runs += 1;
    }
    tried(&format!(
        "{what}: runs by segment size {sizes:?}, {refused} changes refused by full stores"
    ));
    let of = |kind: &str| format!("{kind}, {what}");
    demand(runs, third(CONFIGURATIONS), &of("configurations"));
    demand(
        counts.crash_states,
        third(CUT_STATES),
        &of("states after a cut"),
    );
    demand(
        counts.recovery_cuts,
        third(RECOVERY_CUTS),
        &of("states after a second cut"),
    );
    demand(counts.kills, third(DEATHS), &of("states after a death"));
}

#[test]
fn a_power_cut_leaves_a_prefix_with_everything_synced() {
    runs("power cuts", 0, Durability::Process, |config| {
        config.quick(CUTS_EACH)
    });
}

#[test]
fn with_durability_of_power_everything_acknowledged_survives_a_cut() {
    runs("every write synced", 1000, Durability::Power, |config| {
        config.quick(CUTS_EACH)
    });
}

#[test]
fn pieces_smaller_than_a_sector_may_be_lost() {
    runs("lines", 2000, Durability::Process, |config| Config {
        atom: Atom::Line,
        ..config.quick(CUTS_EACH)
    });
}

#[test]
fn pieces_larger_than_a_sector_may_be_lost() {
    runs("pages", 2500, Durability::Process, |config| Config {
        atom: Atom::Page,
        ..config.quick(CUTS_EACH)
    });
}

#[test]
fn what_others_left_in_new_room_is_not_believed() {
    runs("stale room", 3000, Durability::Process, |config| {
        let mut config = config.quick(CUTS_EACH);
        config.limits.stale = true;
        config
    });
}

/// States after a cut of the power during the open that follows a death.
const CUTS_AFTER_DEATHS: u64 = 2_000;

/// A superblock that the process wrote before it died may be in the cache only: the open writes it again before its successor.
#[test]
fn a_death_in_a_checkpoint_and_a_cut_in_the_open_after_it_leave_a_superblock() {
    let mut steps = Vec::new();
    for n in 0..2u8 {
        let put = Step::Put(vec![n], vec![n; 100]);
        steps.extend([put, Step::Sync, Step::Checkpoint]);
    }
    let case = Case {
        steps,
        ..Case::new(options(), Lens::SMALL, Bug::None)
    };
    let mut config = Config {
        // A superblock of several lines may be torn.
        atom: Atom::Line,
        recovery_one_in: 1,
        recovery_cuts_max: 8,
        ..Config::new(round_seed()).quick(40)
    };
    (
        config.limits.exhaustive,
        config.limits.singles,
        config.limits.random,
    ) = (1, 1, 1);
    let counts = run(&config, &case);
    demand(
        counts.recovery_cuts,
        CUTS_AFTER_DEATHS,
        "states after a death and a cut",
    );
}

#[test]
fn every_planted_bug_is_seen() {
    let bugs = [
        Bug::SyncsDropped,
        Bug::SyncsForgotten,
        Bug::SameBoot,
        Bug::NameForgotten,
        Bug::NamedEarly,
        Bug::DurableWritesCached,
        Bug::BatchesSplit,
        Bug::AcknowledgedEarly,
        Bug::MarksApart,
    ];
    // All that differs between what follows and this run is the bug.
    let control = Config::new(0).quick(CUTS);
    run(&control, &Case::planted(0, 60, Bug::Wrapped));
    for bug in bugs {
        let seen = (0..40).find(|seed| {
            let config = Config::new(*seed).quick(CUTS);
            catch_unwind(AssertUnwindSafe(|| {
                run(&config, &Case::planted(*seed, 60, bug))
            }))
            .is_err()
        });
        assert!(seen.is_some(), "not seen: {bug:?}");
        tried(&format!(
            "{bug:?} is seen with seed {}",
            seen.unwrap_or_default()
        ));
    }
}

#[test]
fn a_file_that_is_not_there_is_no_store() {
    let error = open(&SimDisk::new(1), &options().opening, Bug::None).err();
    assert_eq!(error.map(|error| error.kind()), Some(Kind::Io));
}
