//! The HTTP that is served: the head of a request, and the frame of an answer.
//!
//! GET and HEAD without a body, in versions 1.0 and 1.1; every answer ends its connection. Everything else is answered by
//! its status. The head is parsed by httparse. It knows no sockets and no pages.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

/// Longest head of a request.
pub const HEAD_LEN_MAX: usize = 8 << 10;
/// Most header fields of a request.
const FIELDS_MAX: usize = 64;

/// The resource that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'h> {
    /// Whether only the head of the answer is wanted.
    pub is_head: bool,
    /// From the slash on, without the query.
    pub path: &'h str,
    /// After the question mark; empty if there is none.
    pub query: &'h str,
}

/// What the bytes of a connection are so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head<'h> {
    /// The head has not ended.
    Open,
    /// A request.
    Whole(Request<'h>),
    /// None that is served.
    Refused(Status),
}

/// What an answer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200.
    Fine,
    /// 400: it is not understood, or has a body.
    BadRequest,
    /// 404.
    NotFound,
    /// 405: neither GET nor HEAD.
    NotAllowed,
    /// 408.
    TimedOut,
    /// 431.
    HeadTooLong,
    /// 503.
    Unavailable,
    /// 505.
    WrongVersion,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::Fine => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::NotAllowed => "405 Method Not Allowed",
            Self::TimedOut => "408 Request Timeout",
            Self::HeadTooLong => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
            Self::WrongVersion => "505 HTTP Version Not Supported",
        }
    }
}

/// Reads the head at the front of `bytes`. It is total: any bytes are one of the three.
pub fn read(bytes: &[u8]) -> Head<'_> {
    match parse(bytes.get(..HEAD_LEN_MAX).unwrap_or(bytes)) {
        Ok(Some(request)) => Head::Whole(request),
        Ok(None) if bytes.len() >= HEAD_LEN_MAX => Head::Refused(Status::HeadTooLong),
        Ok(None) => Head::Open,
        Err(status) => Head::Refused(status),
    }
}

/// The request; `None`: its head has not ended.
fn parse(bytes: &[u8]) -> Result<Option<Request<'_>>, Status> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let parsed = head.parse(bytes);
    // An empty line before the first is one too many, though the parser passes it over.
    if let [b'\r' | b'\n', _, ..] = bytes {
        return Err(Status::BadRequest);
    }
    match parsed {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Status::HeadTooLong),
        Err(httparse::Error::Version) if has_other_version(bytes) => {
            return Err(Status::WrongVersion);
        }
        Err(_) => return Err(Status::BadRequest),
    }
    let is_head = match head.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Status::NotAllowed),
    };
    let target = head.path.filter(|path| path.starts_with('/'));
    let target = target.ok_or(Status::BadRequest)?;
    let mut has_host = head.version == Some(0);
    for field in &*head.headers {
        let is = |known: &str| field.name.eq_ignore_ascii_case(known);
        has_host |= is("host");
        if is("transfer-encoding") || (is("content-length") && field.value != b"0") {
            return Err(Status::BadRequest);
        }
    }
    if !has_host {
        return Err(Status::BadRequest);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Some(Request {
        is_head,
        path,
        query,
    }))
}

/// Whether the first line names a version of HTTP at all.
fn has_other_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next();
    let word = line.and_then(|line| line.split(|byte| *byte == b' ').nth(2));
    word.is_some_and(|word| word.starts_with(b"HTTP/"))
}

/// The bytes of an answer. `is_head`: without its body, but with the length of that.
pub fn answer(status: Status, kind: &str, body: &str, is_head: bool) -> Vec<u8> {
    let allow = if status == Status::NotAllowed {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let mut bytes = format!(
        "HTTP/1.1 {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'\r\nConnection: close\r\n\r\n",
        status.line(),
        body.len(),
    )
    .into_bytes();
    if !is_head {
        bytes.extend_from_slice(body.as_bytes());
    }
    bytes
}

/// An answer of its status alone.
pub fn bare(status: Status) -> Vec<u8> {
    answer(status, "text/plain", &format!("{}\n", status.line()), false)
}

#[cfg(test)]
#[expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail"
)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_apart() {
        let head = read(b"GET /stats.json?since=3 HTTP/1.1\r\nHost: here\r\n\r\nmore");
        let Head::Whole(request) = head else {
            panic!("{head:?}");
        };
        assert_eq!(
            (request.path, request.query, request.is_head),
            ("/stats.json", "since=3", false)
        );
        assert!(matches!(
            read(b"HEAD / HTTP/1.0\n\n"),
            Head::Whole(Request { is_head: true, .. })
        ));
    }

    #[test]
    fn a_head_that_has_not_ended_is_open_at_every_byte() {
        let whole = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for len in 0..whole.len() {
            assert_eq!(read(&whole[..len]), Head::Open, "{len}");
        }
        assert!(matches!(read(whole), Head::Whole(_)));
    }

    #[test]
    fn what_is_not_understood_is_refused_by_its_status() {
        let long = format!("GET / HTTP/1.1\r\nHost: {}", "a".repeat(HEAD_LEN_MAX));
        for (bytes, status) in [
            (b"\r\n\r\n".as_slice(), Status::BadRequest),
            (b"GET /\r\n\r\n", Status::BadRequest),
            (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Status::BadRequest),
            (b"GET x HTTP/1.1\r\nHost: a\r\n\r\n", Status::BadRequest),
            (b"GET / HTTP/1.1\r\n\r\n", Status::BadRequest),
            (b"GET / HTTP/1.1\r\nHost\r\n\r\n", Status::BadRequest),
            (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", Status::BadRequest),
            (b"GET / HTTP/1.1\r\nHost: \x01\r\n\r\n", Status::BadRequest),
            (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", Status::BadRequest),
            (b"GET /\rx HTTP/1.1\r\nHost: a\r\n\r\n", Status::BadRequest),
            (
                b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
                Status::BadRequest,
            ),
            (
                b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                Status::BadRequest,
            ),
            (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", Status::NotAllowed),
            (b"GET / HTTP/2.0\r\n\r\n", Status::WrongVersion),
            (b"get a\r\n\r\n", Status::BadRequest),
            (long.as_bytes(), Status::HeadTooLong),
        ] {
            let shown = String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(read(bytes), Head::Refused(status), "{shown}");
        }
    }

    #[test]
    fn any_byte_of_a_head_may_be_any_other() {
        let whole = b"GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut bytes = whole.to_vec();
        let mut requests = 0;
        for index in 0..bytes.len() {
            for byte in 0..=u8::MAX {
                bytes[index] = byte;
                if let Head::Whole(request) = read(&bytes) {
                    assert!(request.path.starts_with('/'), "{bytes:?}");
                    requests += 1;
                }
            }
            bytes[index] = whole[index];
        }
        // Many letters of a path and of a host are as good as others.
        assert!((500..5000).contains(&requests), "{requests}");
    }

    #[test]
    fn an_answer_tells_the_length_of_its_body_and_of_the_one_it_leaves_out() {
        let whole = answer(Status::Fine, "text/plain", "abc", false);
        let text = String::from_utf8(whole).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nabc"));
        assert!(text.contains("Content-Length: 3\r\n"));
        let head = answer(Status::Fine, "text/plain", "abc", true);
        assert_eq!(head.len() + 3, text.len());
        let refused = String::from_utf8(bare(Status::NotAllowed)).unwrap();
        assert!(refused.contains("\r\nAllow: GET, HEAD\r\n"), "{refused}");
    }
}
