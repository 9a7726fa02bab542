//! What the protocol costs: nanoseconds per request through a session over a store in memory, without sockets.
//!
//! Next to each form stands the same work done with the engine alone, so the difference is the protocol's. Keys and values
//! are those of the published experiment: `test%08d` and 50 bytes. The first argument is how many records there are. The
//! number after each line is of the answers, so that two runs can be compared. It knows nothing of the network.

#![expect(clippy::print_stdout, reason = "it prints its results")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use azekura::Engine;
use azekura::engine::Reader;
use azekura::record::memory::tiny::TinyDb;
use azekura_server::memcached::{Next, Service, Session, Settings, Transport};

const VALUE: &str = "01234567890123456789012345678901234567890123456789";

/// A number from 0 to below `count`, in no visible order.
fn scattered(index: u64, count: u64) -> u64 {
    (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % count
}

/// Requests of `depth` to a piece.
fn pieces(count: u64, asked: u64, depth: u64, write: impl Fn(&mut String, &str)) -> Vec<String> {
    let piece = |first: u64| {
        let mut text = String::new();
        for index in first..first + depth {
            write(&mut text, &format!("test{:08}", scattered(index, count)));
        }
        text
    };
    (0..asked / depth)
        .map(|index| piece(index * depth))
        .collect()
}

fn run(session: &mut Session, what: &str, asked: u64, pieces: &[String]) {
    let mut output = Vec::with_capacity(1 << 20);
    let (mut best, mut answered) = (f64::MAX, 0);
    for _ in 0..3 {
        answered = 0;
        let start = Instant::now();
        for piece in pieces {
            output.clear();
            let served = session.serve(black_box(piece.as_bytes()), &mut output);
            assert_eq!(
                (served.consumed, served.next),
                (piece.len(), Next::More { at_least: 1 })
            );
            answered += output.len();
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    let each = best * 1e9 / asked as f64;
    println!("{what:<28} {each:8.1} ns   {answered}");
}

fn main() {
    let wanted = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let count: u64 = wanted.unwrap_or(1000);
    let asked = count.clamp(32 * 1000, 640_000) / 32 * 32;
    let db = Arc::new(TinyDb::new().expect("a store in memory"));
    let engine: Arc<dyn Engine> = Arc::clone(&db) as _;
    let service = Arc::new(Service::new(engine, Settings::default()));
    let mut session = Session::new(service, Transport::Tcp);
    let set = |text: &mut String, key: &str| {
        let _ = write!(text, "set {key} 0 0 50\r\n{VALUE}\r\n");
    };
    let mut output = Vec::new();
    for index in 0..count {
        let mut text = String::new();
        set(&mut text, &format!("test{index:08}"));
        output.clear();
        session.serve(text.as_bytes(), &mut output);
    }
    let keys: Vec<String> = (0..asked)
        .map(|index| format!("test{:08}", scattered(index, count)))
        .collect();
    let mut best = f64::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        for key in &keys {
            output.clear();
            let reader: &dyn Reader = &*db;
            let read = reader.read(key.as_bytes(), &mut |value| {
                output.extend_from_slice(value.unwrap_or_default());
            });
            read.expect("a read in memory");
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "engine alone, one read       {:8.1} ns",
        best * 1e9 / asked as f64
    );
    for depth in [1, 32] {
        let get = |text: &mut String, key: &str| {
            let _ = write!(text, "get {key}\r\n");
        };
        let mg = |text: &mut String, key: &str| {
            let _ = write!(text, "mg {key} v\r\n");
        };
        let ms = |text: &mut String, key: &str| {
            let _ = write!(text, "ms {key} 50\r\n{VALUE}\r\n");
        };
        let run = &mut |what: &str, pieces: &[String]| {
            run(
                &mut session,
                &format!("{what}, {depth} at once"),
                asked,
                pieces,
            );
        };
        run("get", &pieces(count, asked, depth, get));
        run("mg", &pieces(count, asked, depth, mg));
        run("set", &pieces(count, asked, depth, set));
        run("ms", &pieces(count, asked, depth, ms));
    }
}
