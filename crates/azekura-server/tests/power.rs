//! Acknowledged writes are there after a power cut, and after a process crash, whatever the commands.
//!
//! Sessions are driven as a thread of the server drives them, without sockets: those that are ready are served in turn,
//! then one sync is made for all whose answers must wait, and the answers leave. Below them is a hash file on the simulated
//! disk. At many events of it the power is cut in many legal ways, or the process dies; the file that then opens must hold
//! the state after some number of writes: at least those that were answered (or, where only some requests ask for
//! more than the process, those before the last such answer), at most those begun. A service over it must show the same.
//! Options of the file, keys, lengths of items and clients are drawn from the round's seed.
//!
//! Drivers that answer too early prove the suite: each must be detected. Lines beginning `tried:` state how much was tried.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory as _};
use azekura::record::hash::{CreateOptions, HashDb, OpenOptions};
use azekura::record::memory::tiny::TinyDb;
use azekura::testkit::configuration::{Within, hash_options, opening};
use azekura::testkit::crash::{Config, Counts, Crash, Ledger, explore};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Durability, Engine};
use azekura_server::item::Item;
use azekura_server::memcached::{Next, Service, Session, Settings, Transport};

const NAME: &str = "power.azh";
const NOW: u32 = 1_000_000_000;

/// Items by their keys: flags, when they are over, data.
type State = BTreeMap<Vec<u8>, (u32, u32, Vec<u8>)>;

/// What one client sends before it reads.
type Heap = String;

/// What a thread does when it wakes.
enum Wake {
    /// Serves these clients, each with what it sent.
    Serve(Vec<(usize, Heap)>),
    /// What the background worker of a file does meanwhile.
    Maintain,
    Checkpoint,
}

/// How the driver errs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Answers leave before the sync.
    AnswersFirst,
    /// There is no wait.
    NeverSyncs,
    /// The last client's answer leaves after a sync that began before its request was served.
    JoinsTooLate,
    /// Who has several answers waits for the first one's sake only.
    ForgetsTheRest,
}

/// Clients, and the lengths of what they put.
#[derive(Clone, Copy, Debug)]
struct Population {
    keys: u64,
    clients: usize,
    /// Items are shorter than this.
    usual: usize,
    /// One in 40 is so long, up to twice that: of most runs longer than a segment.
    long: usize,
    /// What a thread does in a run.
    wakes: usize,
}

impl Population {
    /// In which the planted bugs are known to be seen.
    const OF_THE_BUGS: Self = Self {
        keys: 8,
        clients: 4,
        usual: 150,
        long: 4200,
        wakes: 30,
    };

    fn drawn(random: &mut Random, wakes: usize) -> Self {
        Self {
            keys: *random.choose(&[1, 3, 8, 8, 30]),
            clients: 1 + random.index(6),
            usual: *random.choose(&[20, 150, 150, 300, 1000]),
            long: *random.choose(&[300, 2100, 4200, 4200, 9000, 33_000]),
            wakes,
        }
    }
}

/// A run: its clients and its file.
#[derive(Clone, Debug)]
struct Shape {
    population: Population,
    /// Of the file that is made.
    options: CreateOptions,
    /// Of its opening after the end.
    again: OpenOptions,
}

fn request(random: &mut Random, population: &Population, asks: bool) -> String {
    let key = format!("key-{}", random.below(population.keys));
    let len = match random.below(40) {
        0 => population.long + random.index(population.long),
        _ => random.index(population.usual),
    };
    let digit = random.below(10);
    let data: String = std::iter::repeat_n(char::from(b'0' + digit as u8), len).collect();
    let time = *random.choose(&[0, 0, 0, 1000, -1]);
    match random.below(20) {
        0..7 => format!("set {key} {digit} {time} {len}\r\n{data}\r\n"),
        7 => format!("add {key} 0 0 {len}\r\n{data}\r\n"),
        8 => format!("replace {key} 1 0 {len}\r\n{data}\r\n"),
        9 => format!("append {key} 0 0 2\r\n77\r\n"),
        10 => format!("set {key} 0 0 1\r\n5\r\nincr {key} 7\r\n"),
        11 => format!("touch {key} {}\r\n", 50 + digit),
        12 => format!("gat {} {key}\r\n", 20 + digit),
        13 => format!("md {key} I T30\r\n"),
        14 => format!("ma {key} N0 J9 v\r\n"),
        15 => format!("delete {key}\r\n"),
        16 if random.one_in(8) => "flush_all\r\n".to_owned(),
        16 | 17 => format!("get {key}\r\n"),
        _ if asks => format!("ms {key} {len} Yp\r\n{data}\r\n"),
        _ => format!("ms {key} {len} F{digit}\r\n{data}\r\n"),
    }
}

/// What is done in a run. `asks`: whether single requests ask to survive loss of power.
fn wakes(seed: u64, population: &Population, asks: bool) -> Vec<Wake> {
    let mut random = Random::new(seed);
    (0..population.wakes)
        .map(|_| match random.below(12) {
            0 => Wake::Maintain,
            1 => Wake::Checkpoint,
            _ => {
                let clients = 1 + random.index(population.clients);
                let heap = |client| {
                    let mut heap = Heap::new();
                    for _ in 0..=random.index(3) {
                        heap += &request(&mut random, population, asks);
                    }
                    (client, heap)
                };
                Wake::Serve((0..clients).map(heap).collect())
            }
        })
        .collect()
}

fn service(engine: Arc<dyn Engine>, power: bool) -> Arc<Service> {
    let settings = Settings {
        power,
        ..Settings::default()
    };
    let service = Service::new(engine, settings);
    service.set_time(NOW).expect("a time");
    Arc::new(service)
}

fn session(service: &Arc<Service>) -> Session {
    Session::new(Arc::clone(service), Transport::Tcp)
}

/// Serves all of a heap; whether its answers must wait.
fn serve(session: &mut Session, heap: &[u8]) -> bool {
    let (mut at, mut must_sync) = (0, false);
    let mut output = Vec::new();
    loop {
        let served = session.serve(&heap[at..], &mut output);
        at += served.consumed;
        must_sync |= served.must_sync;
        match served.next {
            Next::More { .. } => {
                assert_eq!(at, heap.len(), "a whole request is left");
                let text = String::from_utf8_lossy(&output);
                assert!(!text.contains("SERVER_ERROR"), "{text}");
                return must_sync;
            }
            Next::Yield | Next::Pause { .. } => output.clear(),
            Next::Close => panic!("the session is over"),
        }
    }
}

fn contents(engine: &dyn Engine) -> azekura::Result<State> {
    let mut state = State::new();
    engine.scan(None, &mut |key, value| {
        let item = Item::decode(value).expect("every record is an item");
        let head = item.head;
        // Whether what is over has been removed does not matter here.
        if !head.is_over(NOW) {
            state.insert(key.to_vec(), (head.flags, head.expires, item.data.to_vec()));
        }
        ControlFlow::Continue(())
    })?;
    Ok(state)
}

/// The requests of a heap, one by one: each begins a line of its own, and its data has no lower case letters.
fn requests(heap: &str) -> Vec<String> {
    let mut requests: Vec<String> = Vec::new();
    for line in heap.split_inclusive("\r\n") {
        match requests.last_mut() {
            Some(last) if !line.starts_with(|c: char| c.is_ascii_lowercase()) => *last += line,
            _ => requests.push(line.to_owned()),
        }
    }
    requests
}

/// What should come of it: the state after each number of writes (after none there is no file, after one an empty one),
/// and the writes of each heap.
struct Expected {
    states: Vec<State>,
    writes: Vec<usize>,
    /// Bytes of keys and values, as an engine keeps them, of the largest state.
    bytes_max: u64,
}

/// The same requests, one at a time, to a store that cannot be cut.
fn expected(wakes: &[Wake]) -> Expected {
    let engine: Arc<dyn Engine> = Arc::new(TinyDb::new().expect("a store in memory"));
    let model = service(Arc::clone(&engine), true);
    let mut session = session(&model);
    let mut expected = Expected {
        states: vec![State::new(), State::new()],
        writes: Vec::new(),
        bytes_max: 0,
    };
    for wake in wakes {
        let Wake::Serve(heaps) = wake else { continue };
        for (_, heap) in heaps {
            let mut writes = 0;
            for request in requests(heap) {
                if serve(&mut session, request.as_bytes()) {
                    writes += 1;
                    let state = contents(&*engine).expect("a walk in memory");
                    expected.states.push(state);
                    let mut bytes = 0;
                    let scanned = engine.scan(None, &mut |key, value| {
                        bytes += (key.len() + value.len()) as u64;
                        ControlFlow::Continue(())
                    });
                    scanned.expect("a walk in memory");
                    expected.bytes_max = expected.bytes_max.max(bytes);
                }
            }
            expected.writes.push(writes);
        }
    }
    expected
}

/// Of the runs of the planted bugs.
fn options() -> CreateOptions {
    CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .durability(Durability::Process)
        .capacity(SimDisk::FILE_SIZE_MAX)
        .syncs_often(true)
}

/// Runs `wakes` on a new disk, as a thread of the server would, and records it in the ledger.
fn work(
    disk: &SimDisk,
    ledger: &Ledger,
    shape: &Shape,
    wakes: &[Wake],
    writes: &[usize],
    power: bool,
    bug: Bug,
) {
    ledger.begin();
    let db = HashDb::create_in(&disk.directory(), Path::new(NAME), &shape.options);
    let db = Arc::new(db.expect("a new file"));
    ledger.acknowledge();
    ledger.synced();
    let service = service(Arc::clone(&db) as _, power);
    let mut clients: Vec<Session> = (0..shape.population.clients)
        .map(|_| session(&service))
        .collect();
    let mut writes = writes.iter();
    for wake in wakes {
        let heaps = match wake {
            Wake::Maintain => {
                db.maintain().expect("a step of upkeep");
                continue;
            }
            Wake::Checkpoint => {
                db.checkpoint().expect("a checkpoint");
                continue;
            }
            Wake::Serve(heaps) => heaps,
        };
        let (mut begun, mut must_sync) = (0, false);
        for (index, (client, heap)) in heaps.iter().enumerate() {
            let is_last = index + 1 == heaps.len();
            if bug == Bug::JoinsTooLate && is_last && must_sync {
                service.sync().expect("a sync");
            }
            let writes = writes.next().copied().unwrap_or_default();
            (0..writes).for_each(|_| ledger.begin());
            begun += writes;
            let first = requests(heap).remove(0);
            must_sync |= if bug == Bug::ForgetsTheRest {
                let waits = serve(&mut clients[*client], first.as_bytes());
                let rest = &heap.as_bytes()[first.len()..];
                serve(&mut clients[*client], rest);
                waits
            } else {
                serve(&mut clients[*client], heap.as_bytes())
            };
        }
        let syncs = match bug {
            Bug::None | Bug::ForgetsTheRest => must_sync,
            Bug::AnswersFirst | Bug::NeverSyncs | Bug::JoinsTooLate => false,
        };
        if syncs {
            service.sync().expect("a sync");
        }
        (0..begun).for_each(|_| ledger.acknowledge());
        // Where all must survive loss of power, whoever was answered counts on it; else who asked for it.
        if must_sync || power {
            ledger.synced();
        }
        if bug == Bug::AnswersFirst && must_sync {
            service.sync().expect("a sync");
        }
    }
}

/// The oracle: see the module's text.
fn verify(crash: &Crash<'_>, shape: &Shape, states: &[State]) -> Result<u64, String> {
    let directory = crash.disk.directory();
    let opened = directory
        .open(Path::new(NAME), Access::Write)
        .and_then(|storage| HashDb::open_on(storage, &shape.again));
    let db = match opened {
        Ok(db) => Arc::new(db),
        // While it is being made there may be none yet.
        Err(_) if crash.kept() == 0 => return Ok(0),
        Err(error) => return Err(format!("it does not open: {error}")),
    };
    crash.recovered();
    let found = contents(&*db).map_err(|error| error.to_string())?;
    let (least, most) = (crash.kept(), crash.done.began);
    if !states[least..=most].contains(&found) {
        let elsewhere: Vec<usize> = (0..states.len())
            .filter(|number| states[*number] == found)
            .collect();
        return Err(format!(
            "{} items are no state after {least} to {most} writes, but of {elsewhere:?}",
            found.len()
        ));
    }
    shows(db, shape.population.keys, &found)?;
    Ok(found
        .iter()
        .fold(1, |sum, item| sum.wrapping_mul(31) ^ digest(item)))
}

fn digest(item: (&Vec<u8>, &(u32, u32, Vec<u8>))) -> u64 {
    let (key, (flags, expires, data)) = item;
    let heads = u64::from(*flags) << 32 | u64::from(*expires);
    key.iter().chain(data).fold(heads, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Whether clients of a new service read what is there, and can continue.
fn shows(db: Arc<HashDb>, keys: u64, found: &State) -> Result<(), String> {
    let service = service(db, true);
    let mut session = session(&service);
    let (mut asked, mut expected) = (String::new(), String::new());
    for number in 0..keys {
        let key = format!("key-{number}");
        let _ = write!(asked, "mg {key} f v\r\n");
        match found.get(key.as_bytes()) {
            None => expected += "EN\r\n",
            Some((flags, _, data)) => {
                let data = String::from_utf8_lossy(data);
                let _ = write!(expected, "VA {} f{flags}\r\n{data}\r\n", data.len());
            }
        }
    }
    asked += "set key-0 0 0 5\r\nagain\r\nget key-0\r\n";
    expected += "STORED\r\nVALUE key-0 0 5\r\nagain\r\nEND\r\n";
    let (mut output, mut at) = (Vec::new(), 0);
    while at < asked.len() {
        let served = session.serve(&asked.as_bytes()[at..], &mut output);
        at += served.consumed;
        if !matches!(served.next, Next::Yield | Next::Pause { .. }) {
            break;
        }
    }
    // Of a stale one the first is told to bring another.
    let told = String::from_utf8_lossy(&output);
    let told = told.replace(" X W\r\n", "\r\n").replace(" X Z\r\n", "\r\n");
    if told != expected {
        return Err(format!("clients are told {told} instead of {expected}"));
    }
    service.sync().map_err(|error| error.to_string())
}

/// One run. `is_drawn`: under options that are drawn, with room for a few times the largest state; else under those in which the
/// planted bugs are known to be seen.
fn run(config: &Config, population: Population, is_drawn: bool, power: bool, bug: Bug) -> Counts {
    let wakes = wakes(config.seed, &population, !power);
    let Expected {
        states,
        writes,
        bytes_max,
    } = expected(&wakes);
    let mut shape = Shape {
        population,
        options: options(),
        again: options().opening,
    };
    if is_drawn {
        let mut random = Random::new(!config.seed);
        let within = Within {
            // Twice, because the longest item may be most of them, and takes neighbouring segments.
            holds: Some(2 * bytes_max),
            segment_size_max: 64 << 10,
            ..Within::bytes(SimDisk::FILE_SIZE_MAX)
        };
        shape.options = hash_options(&mut random, &within);
        shape.again = opening(&mut random, &within, &shape.options);
    }
    let _shown = is_drawn.then(|| case(config.seed, &shape));
    explore(
        config,
        |disk, ledger| work(disk, ledger, &shape, &wakes, &writes, power, bug),
        |crash| verify(crash, &shape, &states),
    )
}

/// Drawn shapes of a full run.
const SEEDS: u64 = 20;
/// Events to cut each at.
const CUTS: usize = 20;

/// Of the runs of the planted bugs.
fn config(seed: u64) -> Config {
    Config {
        // That the recovery from a cut may be cut, too, is the engine's own suite.
        recovery_one_in: 0,
        ..Config::new(seed).quick(30)
    }
}

fn runs(what: &str, seeds: std::ops::Range<u64>, power: bool) {
    let mut counts = Counts::default();
    // Shapes differ in how many states they have: more of them are drawn where these were few.
    let last = seeds.end + 4 * share(SEEDS);
    for seed in seeds.start..last {
        let states = counts.crash_states + counts.recovery_cuts + counts.kills;
        if seed >= seeds.end && states >= share(15_000) {
            break;
        }
        let config = Config::new(seed + round_seed()).quick(CUTS);
        let mut random = Random::new(config.seed ^ 1 << 63);
        let population = Population::drawn(&mut random, 20 + (seed % 3) as usize * 20);
        counts = counts.plus(run(&config, population, true, power, Bug::None));
    }
    let states = counts.crash_states + counts.recovery_cuts + counts.kills;
    tried_at_least(states, 15_000, &format!("states, {what}: {counts:?}"));
    assert!(counts.crash_states > share(1000) && counts.kills > share(100));
}

#[test]
fn what_was_answered_is_there_after_a_cut_where_all_must_survive_it() {
    runs("answers that waited for the device", 0..share(SEEDS), true);
}

#[test]
fn what_asked_to_survive_a_cut_does_and_what_was_answered_survives_the_process() {
    runs("single answers that waited", 100..100 + share(SEEDS), false);
}

#[test]
fn drivers_that_answer_too_early_are_seen() {
    for (bug, power) in [
        (Bug::AnswersFirst, true),
        (Bug::NeverSyncs, true),
        (Bug::JoinsTooLate, true),
        (Bug::ForgetsTheRest, true),
        (Bug::AnswersFirst, false),
        (Bug::NeverSyncs, false),
    ] {
        let tries = |seed, bug| {
            let population = Population::OF_THE_BUGS;
            let tries = AssertUnwindSafe(|| run(&config(seed), population, false, power, bug));
            catch_unwind(tries).is_err()
        };
        let seen = (0..20).find(|seed| tries(*seed, bug));
        assert!(seen.is_some(), "not seen: {bug:?}, power {power}");
        // All that differs is the bug.
        assert!(!tries(seen.unwrap_or_default(), Bug::None));
        tried(&format!(
            "{bug:?}, power {power}, is seen with seed {}",
            seen.unwrap_or_default()
        ));
    }
}
