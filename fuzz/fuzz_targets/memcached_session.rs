//! Fuzzes a connection: any bytes, in any pieces, are answered the same, and bounded memory is held for them.
//!
//! The input says how large the pieces are, and how much room the output has; the rest is what a client sends. It is
//! served whole and in pieces, to two stores, whose answers and records must be the same but for the versions, which two
//! connections that stop at other places may take in another order. It knows no sockets.

#![no_main]

use std::ops::ControlFlow;
use std::sync::Arc;

use azekura::engine::Reader;
use azekura::record::memory::tiny::TinyDb;
use azekura_server::item::Item;
use azekura_server::memcached::{Next, Service, Session, Settings, Transport};
use libfuzzer_sys::fuzz_target;

/// Answers, and records without their versions.
fn serve(bytes: &[u8], piece: usize, output_max: usize) -> (Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>) {
    let db = Arc::new(TinyDb::new().expect("a store in memory"));
    let settings = Settings {
        output_max,
        item_size_max: 20_000,
        ..Settings::default()
    };
    let service = Arc::new(Service::new(Arc::clone(&db) as _, settings));
    service.set_time(1_000_000_000).expect("a time");
    let mut session = Session::new(service, Transport::Tcp);
    let (mut buffer, mut answers) = (Vec::new(), Vec::new());
    'input: for part in bytes.chunks(piece) {
        buffer.extend_from_slice(part);
        loop {
            let mut output = Vec::new();
            let served = session.serve(&buffer, &mut output);
            buffer.drain(..served.consumed);
            let is_silent = output.is_empty();
            answers.append(&mut output);
            match served.next {
                Next::More { at_least } => {
                    assert!(at_least > 0);
                    break;
                }
                Next::Yield => assert!(!is_silent),
                Next::Pause { .. } => {}
                Next::Close => break 'input,
            }
        }
        assert!(buffer.len() <= piece.saturating_add(8192), "little is kept");
    }
    let mut records = Vec::new();
    db.scan(None, &mut |key, value| {
        let item = Item::decode(value).expect("every record is an item");
        records.push((key.to_vec(), item.data.to_vec()));
        ControlFlow::Continue(())
    })
    .expect("a walk in memory");
    records.sort();
    (answers, records)
}

fuzz_target!(|bytes: &[u8]| {
    let [piece, room, bytes @ ..] = bytes else {
        return;
    };
    // Figures tell how much was read in how many calls; versions differ.
    let tells = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
    let compares = ![
        &b"stats"[..],
        b"gets",
        b"gats",
        b"dump",
        b"keys",
        b"\x80",
        b" c",
        b"me ",
    ]
    .iter()
    .any(|word| tells(word));
    // A line beyond this closes the connection if its end is not there yet, as in memcached.
    let compares = compares
        && bytes
            .split(|byte| *byte == b'\n')
            .all(|line| line.len() < 2048);
    let whole = serve(bytes, usize::MAX, 1 << 20);
    let cut = serve(bytes, usize::from(*piece) + 1, usize::from(*room) * 8 + 1);
    if compares {
        assert_eq!(whole.0, cut.0);
        assert_eq!(whole.1, cut.1);
    }
});
