//! A limit of memory bounds the process: its resident size, whatever lengths values have and whatever clients leave
//! unfinished; and memory goes back when it is no longer needed.
//!
//! Everything is asserted of this process, which is the server and its clients, so it is the only test here.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura_server::Server;
use azekura_server::config::{Config, Engine, Survives};
use azekura_server::net::{Control, Listeners};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 32 * MIB;
/// What is promised.
const BOUND: u64 = LIMIT + LIMIT / 4 + 32 * MIB;

/// Lengths of one phase after another, from and to.
const PHASES: [(usize, usize); 6] = [
    (90, 91),
    (900_000, 900_001),
    (100, 4000),
    (20_000, 200_000),
    (90, 91),
    (3000, 900_000),
];

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes.unwrap().parse::<u64>().unwrap() * 1024
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).unwrap();
    stream.set_write_timeout(patience).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, request: &str, answer: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut found = vec![0; answer.len()];
    stream.read_exact(&mut found).unwrap();
    assert_eq!(String::from_utf8_lossy(&found), answer);
}

/// Sets values of lengths within a phase, twice the limit in all.
fn fill(address: SocketAddr, seed: u64, (least, end): (usize, usize), value: &[u8]) {
    let mut client = connect(address);
    let mut random = seed | 1;
    let mut bytes = 0;
    while bytes < LIMIT {
        let mut heap = Vec::with_capacity(1 << 16);
        while heap.len() < 1 << 16 && bytes < LIMIT {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let len = least + (random >> 20) as usize % (end - least);
            let key = random % 300_000;
            write!(heap, "set k{key} 0 0 {len} noreply\r\n").unwrap();
            heap.extend_from_slice(&value[..len]);
            heap.extend_from_slice(b"\r\n");
            bytes += len as u64 + 60;
        }
        client.write_all(&heap).unwrap();
        ask(&mut client, "mn\r\n", "MN\r\n");
    }
}

/// Waits until the process is as small as that.
fn shrinks_to(bytes: u64, after: &str) {
    let start = Instant::now();
    while resident() > bytes {
        let now = resident() >> 10;
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{now} KiB are resident {after}, {} KiB allowed",
            bytes >> 10
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ends the measuring when it goes, also where a test fails: the scope waits for all of its threads.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_limit_of_memory_bounds_the_process() {
    let config = Config {
        engine: Engine::Cache,
        durability: Survives::None,
        threads: 2,
        memory_max: Some(LIMIT),
        ..Config::default()
    };
    let mut limits = config.limits.clone();
    limits.buffers_max = (LIMIT / 4) as usize;
    let config = Config { limits, ..config };
    let mut listeners = Listeners::new();
    let address = listeners.tcp(([127, 0, 0, 1], 0).into(), false).unwrap();
    let control = Control::new(config.limits.clone()).unwrap();
    let server = Server::open(&config, &control).unwrap();
    let thread = std::thread::spawn(move || server.serve(listeners));
    let before = resident();

    let (most, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let value = vec![b'v'; 1_000_000];
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(resident(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for (number, phase) in (1..).zip(PHASES) {
            std::thread::scope(|both| {
                both.spawn(|| fill(address, number * 7919, phase, &value));
                fill(address, number * 104_729, phase, &value);
            });
            let most = most.swap(0, Ordering::Relaxed);
            azekura::testkit::tried(&format!(
                "values of {phase:?} bytes: {} KiB resident",
                most >> 10
            ));
            assert!(most <= BOUND, "{phase:?}: {} KiB", most >> 10);
        }
        // Large clients that never end what they began.
        let part = format!("set big 0 0 1000000\r\n{}", "x".repeat(900_000));
        let settled = resident();
        let mut clients = Vec::new();
        for _ in 0..300 {
            let mut client = connect(address);
            match client.write_all(part.as_bytes()) {
                Ok(()) => clients.push(client),
                // Who is dropped cannot be written to.
                Err(e) => assert!(
                    [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&e.kind()),
                    "{e}"
                ),
            }
        }
        ask(&mut connect(address), "mn\r\n", "MN\r\n");
        let most = most.load(Ordering::Relaxed);
        azekura::testkit::tried(&format!("unfinished values: {} KiB resident", most >> 10));
        assert!(most <= BOUND, "unfinished: {} KiB", most >> 10);
        drop(clients);
        shrinks_to(settled + 4 * MIB, "after large clients left");
    });

    let mut client = connect(address);
    ask(&mut client, "cache_memlimit 8\r\n", "OK\r\n");
    shrinks_to((8 + 2 + 32) * MIB, "after a lower limit");
    ask(&mut client, "flush_all\r\n", "OK\r\n");
    // This process is its clients, too: what their allocations left in pieces does not go back.
    shrinks_to(before + 24 * MIB, "after all was flushed");
    drop(client);
    control.stop();
    thread.join().unwrap().unwrap();
}
