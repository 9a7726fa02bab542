//! What holds for a connection, whatever a client sends.
//!
//! The first two bytes state how large the pieces are, and how much room the output has; the rest is what a client sends. It
//! is served whole and in pieces, to two stores, whose answers and records must be the same but for the versions, which
//! two connections that stop at other places may take in another order. Little is kept of what was not consumed, every
//! record is an item, and the answers are whole: lines that the protocol has, data as long as announced, packets whose
//! lengths add up. It knows no sockets.

use std::ops::ControlFlow;
use std::sync::Arc;

use azekura::engine::Reader as _;
use azekura::record::memory::tiny::TinyDb;
use azekura_server::item::Item;
use azekura_server::memcached::{Next, Service, Session, Settings, Transport};

/// Bytes that are kept of a request at most, beyond the piece that came.
const KEPT_MAX: usize = 8192;

/// Requests.
#[allow(dead_code, reason = "a fuzzer has its own")]
pub(crate) const WHOLE: &[&[u8]] = &[
    b"aaset a 5 0 3\r\none\r\nget a b\r\ngets a\r\n",
    b"aacas a 0 0 1 7\r\nx\r\nincr a 5\r\ndecr a 9\r\ntouch a 10\r\ngat 10 a b\r\ndelete a noreply\r\n",
    b"aams a 2 T90 F3 c\r\nhi\r\nmg a v f t c k Oq\r\nma n N0 J5 v\r\nmd a I T3\r\nme a\r\nmn\r\n",
    b"aastats\r\nstats items\r\nstats sizes\r\nstats cachedump 1 0\r\nlru_crawler metadump all\r\ndump\r\nkeys a 9\r\n",
    b"\x80\x01\x00\x01\x08\x00\x00\x00\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00kabc",
    b"\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00k\
      \x80\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
];

/// Parts of requests.
#[allow(dead_code, reason = "a fuzzer has its own")]
pub(crate) const WORDS: &[&[u8]] = &[
    b"\r\n", b"\r\n", b"\r\n", b"\n", b" ", b"get ", b"gets ", b"gat 0 ", b"set ", b"set ", b"add ",
    b"append ", b"prepend ", b"replace ", b"cas ", b"delete ", b"incr ", b"decr ", b"touch ", b"mg ",
    b"ms ", b"md ", b"ma ", b"mn", b"me ", b"flush_all", b"stats", b"stats sizes", b"stats detail on",
    b"stats detail dump", b"verbosity 1", b"version", b"quit", b"keys ", b"dump", b"dump_key",
    b"lru_crawler ", b"metadump all", b"mgdump all", b"lru ", b"slabs ", b"watch", b"a", b"b", b"key",
    b"c", b"v", b"b", b"q", b"k", b"t", b"T0", b"T-1", b"N9", b"I", b"MA", b"MP", b"E5", b"C1", b"Oabc",
    b"YWI=", b"0", b"0", b"1", b"2", b"3", b"-1", b"9999999999", b"18446744073709551615", b"5000",
    b"noreply", b" 0 0 1\r\n1\r\n", b" 0 0 3\r\nabc\r\n", b"a 0 0 5000\r\n", b"HTTP/1.1", b"\x80", b"\0",
    b"\x80\x01\x00\x01\x08", b"\x80\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
];

/// Who pauses so often without a word has nothing to send any more.
const SILENCES_MAX: u32 = 1000;

/// What a connection said, and left in the store.
struct Outcome {
    answers: Vec<u8>,
    /// Records without their versions.
    records: Vec<(Vec<u8>, Vec<u8>)>,
}

fn serve(bytes: &[u8], piece: usize, output_max: usize) -> Outcome {
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
    let mut silences = 0;
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
                    assert!(at_least > 0, "it waits for nothing");
                    break;
                }
                Next::Yield => assert!(!is_silent, "it yields without a word"),
                // A watcher waits for what others do: here it is alone, and sends nothing for ever.
                Next::Pause { .. } => {
                    silences = if is_silent { silences + 1 } else { 0 };
                    if silences == SILENCES_MAX {
                        break 'input;
                    }
                }
                Next::Close => break 'input,
            }
        }
        let kept = buffer.len().saturating_sub(piece);
        assert!(kept <= KEPT_MAX, "much is kept");
    }
    let mut records = Vec::new();
    db.scan(None, &mut |key, value| {
        let item = Item::decode(value).expect("every record is an item");
        records.push((key.to_vec(), item.data.to_vec()));
        ControlFlow::Continue(())
    })
    .expect("a walk in memory");
    records.sort();
    Outcome { answers, records }
}

/// Whether any of this was understood: stored, or answered by more than errors.
pub(crate) fn check(bytes: &[u8]) -> bool {
    let [piece, room, bytes @ ..] = bytes else {
        return false;
    };
    let whole = serve(bytes, usize::MAX, 1 << 20);
    let cut = serve(bytes, usize::from(*piece) + 1, usize::from(*room) * 8 + 1);
    for found in [&whole, &cut] {
        if let Some(why) = unsound(&found.answers) {
            panic!("{why} in b\"{}\"", found.answers.escape_ascii());
        }
    }
    if is_the_same_again(bytes) {
        assert_eq!(
            whole.answers.escape_ascii().to_string(),
            cut.answers.escape_ascii().to_string()
        );
        assert_eq!(whole.records, cut.records);
    }
    let is_error = |line: &[u8]| {
        line.starts_with(b"ERROR") || line.starts_with(b"CLIENT_ERROR") || line.len() < 2
    };
    let mut lines = whole.answers.split(|byte| *byte == b'\n');
    !whole.records.is_empty() || !lines.all(is_error)
}

/// Whether the answers do not depend on how the bytes were cut: figures tell how much was read in how many calls,
/// versions differ, and a line beyond a bound closes the connection if its end is not there yet, as in memcached.
fn is_the_same_again(bytes: &[u8]) -> bool {
    let tells = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
    let differing = [
        &b"stats"[..],
        b"gets",
        b"gats",
        b"dump",
        b"keys",
        b"\x80",
        b" c",
        b"me ",
    ];
    let mut lines = bytes.split(|byte| *byte == b'\n');
    !differing.iter().any(|word| tells(word)) && lines.all(|line| line.len() < 2048)
}

/// Lines that stand alone.
const ALONE: &[&[u8]] = &[
    b"STORED",
    b"NOT_STORED",
    b"EXISTS",
    b"NOT_FOUND",
    b"DELETED",
    b"TOUCHED",
    b"OK",
    b"RESET",
    b"END",
    b"EN",
    b"MN",
    b"ERROR",
    b"HD",
    b"NS",
    b"EX",
    b"NF",
];

/// What lines begin with that continue.
const BEGINNINGS: &[&[u8]] = &[
    b"HD ",
    b"NS ",
    b"EX ",
    b"NF ",
    b"EN ",
    b"ME ",
    b"STAT ",
    b"KEY ",
    b"ITEM ",
    b"PREFIX ",
    b"VERSION ",
    b"mg ",
    b"ERROR ",
    b"CLIENT_ERROR ",
    b"SERVER_ERROR",
    b"MEMLIMIT_",
    b"BADCLASS ",
    b"BUSY ",
];

/// What is wrong with these answers; `None`: they are whole.
pub(crate) fn unsound(answers: &[u8]) -> Option<String> {
    let mut rest = answers;
    while let Some(first) = rest.first() {
        let len = if *first == 0x81 {
            packet(rest)
        } else {
            line(rest)
        };
        match len {
            Ok(len) => rest = &rest[len..],
            Err(why) => return Some(format!("{why} at {}", answers.len() - rest.len())),
        }
    }
    None
}

/// Bytes of the packet at the front.
fn packet(bytes: &[u8]) -> Result<usize, &'static str> {
    let Some([_, _, k0, k1, extras, _, _, _, b0, b1, b2, b3, ..]) = bytes.get(..24) else {
        return Err("a header is cut");
    };
    let body = u32::from_le_bytes([*b3, *b2, *b1, *b0]) as usize;
    let front = usize::from(u16::from_le_bytes([*k1, *k0])) + usize::from(*extras);
    if front > body {
        return Err("the lengths of a packet contradict one another");
    }
    if bytes.len() < 24 + body {
        return Err("a packet is cut");
    }
    Ok(24 + body)
}

/// Bytes of the line at the front, and of the data after it.
fn line(bytes: &[u8]) -> Result<usize, &'static str> {
    let len = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or("a line is cut")?;
    let end = len + 1;
    let line = &bytes[..len];
    if line.starts_with(b"key=") {
        let is_whole = line.ends_with(b" ") && line.windows(7).any(|word| word == b" flags=");
        return is_whole
            .then_some(end)
            .ok_or("a line of metadump is not whole");
    }
    let line = line
        .strip_suffix(b"\r")
        .ok_or("a line has no carriage return")?;
    let mut words = line.split(|byte| *byte == b' ');
    let place = match words.next() {
        Some(b"VALUE") => 2,
        Some(b"VA") => 0,
        _ if ALONE.contains(&line) || BEGINNINGS.iter().any(|word| line.starts_with(word)) => {
            return Ok(end);
        }
        _ if !line.is_empty() && line.iter().all(u8::is_ascii_digit) => return Ok(end),
        _ => return Err("a line is none of the protocol's"),
    };
    let len = words
        .nth(place)
        .and_then(|word| std::str::from_utf8(word).ok()?.parse::<usize>().ok());
    let len = len.ok_or("a length is missing")?;
    match bytes.get(end + len..end + len + 2) {
        Some(b"\r\n") => Ok(end + len + 2),
        _ => Err("data is not as long as announced"),
    }
}
