//! What holds for a datagram, whatever is in it.
//!
//! It is a request or none. The answer is bounded, and comes in datagrams that state which they are, of how many, and of
//! which request, and that put together are the answer. Nothing of it is left for the next one. It knows no sockets.

use std::sync::Arc;

use azekura::record::memory::tiny::TinyDb;
use azekura_server::memcached::datagram::{open, respond, split};
use azekura_server::memcached::{Service, Settings};

/// Requests.
#[allow(dead_code, reason = "a fuzzer has its own")]
pub(crate) const WHOLE: &[&[u8]] = &[
    b"\x01\x02\0\0\0\x01\0\0get a\r\n",
    b"\x01\x02\0\0\0\x01\0\0set b 0 0 1\r\nx\r\nget a b\r\n",
    b"\x01\x02\0\0\0\x01\0\0stats\r\ndump\r\n",
    b"\x01\x02\0\0\0\x01\0\0\x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
];

/// Parts of requests.
#[allow(dead_code, reason = "a fuzzer has its own")]
pub(crate) const WORDS: &[&[u8]] = &[
    b"\0\0\0\0\0\x01\0\0",
    b"\x07\x08\0\0\0\x01\0\0",
    b"\0\x01\0\x02\0\0",
    b"\r\n",
    b"\r\n",
    b"get a a a a a",
    b"get a",
    b"set a 0 0 1\r\n1\r\n",
    b"set a 0 0 4000\r\n",
    b"stats",
    b"dump",
    b"mn",
    b"mg a v",
    b"quit",
    b"\x80",
];

/// Whether it was a request.
pub(crate) fn check(bytes: &[u8]) -> bool {
    let Some((number, body)) = open(bytes) else {
        let is_one = matches!(bytes, [_, _, 0, 0, 0, 1, _, _, ..]);
        assert!(!is_one, "a request was refused");
        return false;
    };
    assert_eq!((&bytes[..2], &bytes[8..]), (&number[..], body));
    let engine = Arc::new(TinyDb::new().expect("a store in memory"));
    let service = Arc::new(Service::new(engine, Settings::default()));
    let mut answer = b"what another client was told".to_vec();
    respond(
        &service,
        format!("set a 0 0 3000\r\n{:03000}\r\n", 7).as_bytes(),
        &mut answer,
    );
    assert_eq!(answer, b"STORED\r\n");
    respond(&service, body, &mut answer);
    assert!(
        answer.len() <= 64 << 10,
        "an answer of {} bytes",
        answer.len()
    );
    let parts: Vec<_> = split(number, &answer).collect();
    let mut joined = Vec::new();
    for (part, index) in parts.iter().zip(0_u16..) {
        let [n0, n1, i0, i1, c0, c1, 0, 0, data @ ..] = part.as_slice() else {
            panic!("no header: {part:?}");
        };
        assert!(part.len() <= 1400 && !data.is_empty());
        assert_eq!([*n0, *n1], number);
        assert_eq!(u16::from_le_bytes([*i1, *i0]), index);
        assert_eq!(usize::from(u16::from_le_bytes([*c1, *c0])), parts.len());
        joined.extend_from_slice(data);
    }
    assert_eq!(joined, answer);
    true
}
