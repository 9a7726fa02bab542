//! A limit of memory bounds the process: its resident size, whatever lengths values have and whatever clients leave
//! unfinished, with any number of threads that the configuration accepts; and memory goes back when it is no longer needed.
//!
//! Each server runs in a process of its own, a child of the test with nothing else in it, and its configuration is read as
//! users write it.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura_server::Server;
use azekura_server::config::{Config, RawConfig};
use azekura_server::net::{Control, Listeners};

const MIB: u64 = 1 << 20;

/// The text of the configuration, for the child.
const CONFIGURATION: &str = "AZEKURA_TEST_CONFIGURATION";

/// Begins the line in which the child reports its address.
const AT: &str = "serves at ";

/// Parts of the longest value in which lengths are stated.
const PARTS: usize = 1_000_000;

/// Lengths of values, from and to, one phase after another.
const PHASES: [(usize, usize); 6] = [
    (90, 91),
    (900_000, 900_001),
    (100, 4000),
    (20_000, 200_000),
    (90, 91),
    (3000, 900_000),
];

/// Lengths of values that come where short ones were.
const HALF_AN_ITEM: (usize, usize) = (499_000, 501_000);
const WHOLE_ITEMS: (usize, usize) = (998_000, 1_000_000);

/// Keys that clients set.
const KEYS: u64 = 300_000;

/// How often lengths change from short to long.
const ROUNDS: u64 = 4;

/// Clients that fill one after the other, where some are dropped.
const PARTS_OF_FILL: u64 = 8;

/// A server in a process of its own.
struct Process {
    child: Child,
    address: SocketAddr,
    /// Held open: the child may write to it.
    _stderr: BufReader<ChildStderr>,
}

impl Process {
    fn start(configuration: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_child_of_a_test_serves", "--nocapture"])
            .env(CONFIGURATION, configuration)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let address = loop {
            let from = seen.len();
            assert!(stderr.read_line(&mut seen).unwrap() > 0, "{seen}");
            if let Some((_, address)) = seen[from..].trim_end().split_once(AT) {
                break address.parse().unwrap();
            }
        };
        Self {
            child,
            address,
            _stderr: stderr,
        }
    }

    /// Bytes of the process that are resident.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
        kilobytes
            .expect("a server that runs")
            .parse::<u64>()
            .unwrap()
            * 1024
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        stream
    }

    /// Waits until the process is as small as that.
    fn shrinks_to(&self, bytes: u64, after: &str) {
        let start = Instant::now();
        while self.resident() > bytes {
            let now = self.resident() >> 10;
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{now} KiB are resident {after}, {} KiB allowed",
                bytes >> 10
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The most that is resident while `work` runs.
    fn most_while(&self, work: impl FnOnce()) -> u64 {
        let (most, over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // The scope waits for its threads, also where the work fails.
            let _over = Over(&over);
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    most.fetch_max(self.resident(), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            work();
        });
        most.into_inner()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends the measuring.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Not a test of its own: the server of a test that started this program with a configuration.
#[test]
fn the_child_of_a_test_serves() {
    let Ok(text) = std::env::var(CONFIGURATION) else {
        return;
    };
    let config = Config::of_text(Path::new("server.toml"), &text, RawConfig::default()).unwrap();
    let mut listeners = Listeners::new();
    let address = listeners.tcp(([127, 0, 0, 1], 0).into(), false).unwrap();
    let control = Control::new(config.limits.clone()).unwrap();
    let server = Server::open(&config, &control).unwrap();
    std::thread::spawn(move || {
        // The test has ended.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    std::io::stderr()
        .write_all(format!("{AT}{address}\n").as_bytes())
        .unwrap();
    server.serve(listeners).unwrap();
}

fn ask(stream: &mut TcpStream, request: &str, answer: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut found = vec![0; answer.len()];
    stream.read_exact(&mut found).unwrap();
    assert_eq!(String::from_utf8_lossy(&found), answer);
}

/// Sets `bytes` of values of lengths within a phase. Errors: the server dropped the client.
fn fill(
    client: &mut TcpStream,
    seed: u64,
    phase: (usize, usize),
    value: &[u8],
    bytes: u64,
) -> std::io::Result<()> {
    let (least, end) = phase;
    let mut random = seed | 1;
    let mut sent = 0;
    while sent < bytes {
        let mut heap = Vec::with_capacity(1 << 16);
        while heap.len() < 1 << 16 && sent < bytes {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let len = least + (random >> 20) as usize % (end - least);
            let key = random % KEYS;
            write!(heap, "set k{key} 0 0 {len} noreply\r\n").unwrap();
            heap.extend_from_slice(&value[..len]);
            heap.extend_from_slice(b"\r\n");
            sent += len as u64 + 60;
        }
        client.write_all(&heap)?;
    }
    client.write_all(b"mn\r\n")?;
    let mut answer = [0; 4];
    client.read_exact(&mut answer)?;
    match &answer {
        b"MN\r\n" => Ok(()),
        // It is refused before it is dropped.
        _ => Err(ErrorKind::ConnectionReset.into()),
    }
}

/// The work of one server, and what its resident size is held to.
struct Case {
    process: Process,
    /// What its configuration states.
    says: &'static str,
    threads: u64,
    limit: u64,
    /// A value about as long as an item may be.
    value: Vec<u8>,
}

impl Case {
    fn start(says: &'static str) -> Self {
        let text = format!("engine = \"cache\"\n{says}\n");
        let config =
            Config::of_text(Path::new("server.toml"), &text, RawConfig::default()).unwrap();
        Self {
            process: Process::start(&text),
            says,
            threads: config.threads as u64,
            limit: config.memory_max.unwrap(),
            value: vec![b'v'; config.item_max as usize - 4096],
        }
    }

    /// The most that is resident while `work` runs is within what is promised.
    fn stays_bounded(&self, what: &str, work: impl FnOnce()) {
        let most = self.process.most_while(work);
        let bound = self.limit + self.limit / 4 + 32 * MIB;
        let found = format!(
            "{}: {what}: {} KiB resident of {} KiB",
            self.says.replace('\n', ", "),
            most >> 10,
            bound >> 10
        );
        azekura::testkit::tried(&found);
        assert!(most <= bound, "{found}");
    }

    /// Twice the limit in values of a phase, by as many clients as there are threads.
    fn fill(&self, number: u64) {
        self.fill_in_parts(1, number, PHASES[number as usize]);
    }

    /// As [`fill`](Self::fill), by one client for each part. Where there are several, one that was dropped since all
    /// together hold too much leaves the rest to the next.
    fn fill_in_parts(&self, parts: u64, number: u64, (least, end): (usize, usize)) {
        let of_item = |parts: usize| parts * self.value.len() / PARTS;
        let least = of_item(least).max(90);
        let end = of_item(end).max(least + 1);
        let clients = self.threads;
        std::thread::scope(|scope| {
            for client in 0..clients {
                let seed = (number + 1) * 7919 + client * 104_729;
                scope.spawn(move || {
                    let bytes = 2 * self.limit / clients / parts;
                    for part in 0..parts {
                        let mut stream = self.process.connect();
                        let seed = seed + (part << 20);
                        let filled = fill(&mut stream, seed, (least, end), &self.value, bytes);
                        assert!(parts > 1 || filled.is_ok(), "{filled:?}");
                    }
                });
            }
        });
    }

    /// Lengths change from short to long while clients hold what they may, again and again.
    fn change(&self) {
        for round in 0..ROUNDS {
            self.fill_in_parts(PARTS_OF_FILL, round, (90, 91));
            let clients = self.linger(100);
            self.fill_in_parts(PARTS_OF_FILL, 10 + round, HALF_AN_ITEM);
            drop(clients);
            self.fill_in_parts(PARTS_OF_FILL, 20 + round, WHOLE_ITEMS);
            let clients = self.linger(100);
            self.fill_in_parts(PARTS_OF_FILL, 30 + round, (90, 1_000_000));
            drop(clients);
        }
    }

    /// Clients that never end the value that they began, and clients that read no answer: connected until they are dropped.
    fn linger(&self, pairs: u64) -> Vec<TcpStream> {
        let len = self.value.len();
        let mut stream = self.process.connect();
        for n in 0..4 {
            let set = format!("set big{n} 0 0 {len}\r\n");
            stream.write_all(set.as_bytes()).unwrap();
            stream.write_all(&self.value).unwrap();
            ask(&mut stream, "\r\n", "STORED\r\n");
        }
        let mut clients = Vec::new();
        for _ in 0..pairs {
            let unfinished = [b"set big 0 0 ", len.to_string().as_bytes(), b"\r\n"].concat();
            for request in [
                [&unfinished, &self.value[..len / 10 * 9]].concat(),
                b"get big0 big1 big2 big3\r\n".repeat(4),
            ] {
                let mut client = self.process.connect();
                match client.write_all(&request) {
                    Ok(()) => clients.push(client),
                    // One that was dropped cannot be written to.
                    Err(e) => assert!(
                        [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&e.kind()),
                        "{e}"
                    ),
                }
            }
        }
        ask(&mut self.process.connect(), "mn\r\n", "MN\r\n");
        clients
    }
}

#[test]
fn a_limit_of_memory_bounds_the_process() {
    let mut judged = 0;
    // As many threads, and items as long, as each limit of memory allows.
    for says in [
        "memory-max = \"32MiB\"\nthreads = 3",
        "memory-max = \"64MiB\"\nthreads = 4",
        "memory-max = \"64MiB\"\nthreads = 10\nitem-max = \"128KiB\"",
        "memory-max = \"4MiB\"\nthreads = 2",
        "memory-max = \"8MiB\"\nthreads = 1\nitem-max = \"3MiB\"",
        "memory-max = \"48MiB\"\nthreads = 4\nbuffers-max = \"8MiB\"",
        "memory-max = \"40MiB\"",
    ] {
        let case = Case::start(says);
        let before = case.process.resident();
        case.stays_bounded("values of six kinds", || {
            (0..PHASES.len() as u64).for_each(|number| case.fill(number));
        });
        let mut clients = Vec::new();
        case.stays_bounded("unfinished and unread values", || {
            clients = case.linger(100);
        });
        let with_clients = case.process.resident();
        judged += 2;
        if case.limit == 32 * MIB {
            drop(clients);
            goes_back(&case, before, with_clients);
            judged += 1;
        }
    }
    // The cases stand above: none is left out at a tenth.
    assert_eq!(judged, 15);
}

#[test]
fn a_limit_of_memory_bounds_a_process_whose_values_become_long_while_clients_hold_much() {
    let mut judged = 0;
    for says in [
        "memory-max = \"48MiB\"\nthreads = 1\nitem-max = \"2MiB\"",
        "memory-max = \"48MiB\"\nthreads = 2\nitem-max = \"1MiB\"",
    ] {
        let case = Case::start(says);
        case.stays_bounded("values that become long", || case.change());
        judged += 1;
    }
    // The cases stand above: none is left out at a tenth.
    assert_eq!(judged, 2);
}

/// Memory goes back where large clients leave, where records are removed one by one, where all is flushed, and where the limit is
/// lowered.
fn goes_back(case: &Case, before: u64, with_clients: u64) {
    let process = &case.process;
    process.shrinks_to(with_clients - 4 * MIB, "after large clients left");
    let mut client = process.connect();
    for first in (0..KEYS).step_by(1000) {
        let removed = (first..first + 1000).map(|key| format!("delete k{key} noreply\r\n"));
        let big = (0..4).map(|n| format!("delete big{n} noreply\r\n"));
        let heap: String = removed.chain(big).collect();
        ask(&mut client, &(heap + "mn\r\n"), "MN\r\n");
    }
    process.shrinks_to(before + 12 * MIB, "after all was removed");
    case.fill(0);
    ask(&mut client, "flush_all\r\n", "OK\r\n");
    process.shrinks_to(before + 12 * MIB, "after all was flushed");
    case.fill(0);
    ask(&mut client, "cache_memlimit 8\r\n", "OK\r\n");
    process.shrinks_to((8 + 2 + 32) * MIB, "after a lower limit");
}
