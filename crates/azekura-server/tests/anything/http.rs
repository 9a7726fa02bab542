//! What holds for the head of a request by HTTP, whatever its bytes.
//!
//! It is open, refused, or a request; once it is not open, more bytes change nothing. A path begins with a slash, and what
//! is taken from the head has nothing that no terminal shows. Of nothing longer than a bound is it said to be open. It
//! knows no pages.

use azekura_server::watch::http::{HEAD_LEN_MAX, Head, bare, read};

/// Heads.
#[allow(dead_code, reason = "a fuzzer has its own")]
pub(crate) const WHOLE: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD /metrics?x=1 HTTP/1.0\r\nAccept: */*\r\n\r\n",
    b"GET /stats.json?since=3 HTTP/1.1\nHost: here\nContent-Length: 0\n\n",
];

/// Parts of heads.
#[allow(dead_code, reason = "a fuzzer has its own")]
pub(crate) const WORDS: &[&[u8]] = &[
    b"GET",
    b"HEAD",
    b"POST",
    b" ",
    b" ",
    b"/",
    b"/",
    b"/metrics",
    b"?since=1",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/2",
    b"\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\n\n",
    b"\r",
    b"Host: a",
    b"Host:",
    b"Content-Length: 5",
    b"Content-Length: 0",
    b"Transfer-Encoding: chunked",
    b":",
    b"\t",
    b"\x01",
    b"\xff",
    b"\xc3\xa4",
    b"GET / HTTP/1.1\r\nHost: a\r\n",
    b"HEAD / HTTP/1.0\r\n",
    &[b'x'; 5000],
];

/// Whether it was a request.
pub(crate) fn check(bytes: &[u8]) -> bool {
    let head = read(bytes);
    // Whatever a part of it was, it stays.
    for len in [
        0,
        bytes.len() / 3,
        bytes.len() / 2,
        bytes.len().saturating_sub(1),
    ] {
        let before = read(&bytes[..len]);
        assert!(
            before == Head::Open || before == head,
            "{before:?} became {head:?}"
        );
    }
    match head {
        Head::Open => {
            assert!(bytes.len() < HEAD_LEN_MAX, "it may be as long as it likes");
            false
        }
        Head::Refused(status) => {
            let answer = bare(status);
            let text = std::str::from_utf8(&answer).expect("an answer is text");
            assert!(text.starts_with("HTTP/1.1 ") && text.contains("\r\n\r\n"));
            false
        }
        Head::Whole(request) => {
            assert!(request.path.starts_with('/'));
            for text in [request.path, request.query] {
                assert!(
                    !text.contains(|c: char| c == ' ' || (c.is_control() && c != '\t')),
                    "{text:?}"
                );
            }
            true
        }
    }
}
