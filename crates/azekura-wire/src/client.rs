//! One blocking connection to a memcached server: a request, its answer, and the next.
//!
//! It speaks the text protocol over TCP, a unix socket or TLS. What the server refuses is an error with the server's own
//! words; lengths that a server announces are bounded, and neither sending nor an answer may take longer than
//! [`TIMEOUT`]. It does not know what requests mean.

use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use azekura::{Error, Kind, Result};
use rustls::StreamOwned;

use crate::address::Address;
use crate::refusal::{refused, shown};
use crate::trust::{Trust, explained};

/// Longest line that is read; no answer has one.
const LINE_LEN_MAX: u64 = 8 << 10;

/// How a TLS alert begins (RFC 8446, section 5.1), the answer of a TLS port to an unencrypted request: record type 21,
/// version 3.x.
const TLS_ALERT: [u8; 2] = [21, 3];

/// Longest value that is read.
pub const VALUE_LEN_MAX: u64 = 1 << 30;

/// Most statistics of a group.
const STATISTICS_MAX: usize = 100_000;

/// How long sending a request may take, and its answer.
pub const TIMEOUT: Duration = Duration::from_secs(30);

trait Duplex: Read + Write {}
impl<S: Read + Write> Duplex for S {}

/// A connection to a server.
pub struct Client {
    from: BufReader<Box<dyn Duplex>>,
    address: String,
}

impl Client {
    /// Connects to `address`, shown as `name` in errors; `trust` is for addresses with TLS.
    ///
    /// Errors: `Io`; `Invalid` (the server's certificate is not accepted).
    pub fn connect(address: &Address, name: &str, trust: Option<&Trust>) -> Result<Self> {
        let describe = |e| {
            Error::io(format!("cannot connect to {name}"), e)
                .remedy("start a server by `azekura serve`, or name it by --address")
        };
        let stream: Box<dyn Duplex> = match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).map_err(describe)?;
                stream.set_read_timeout(Some(TIMEOUT)).map_err(describe)?;
                stream.set_write_timeout(Some(TIMEOUT)).map_err(describe)?;
                Box::new(stream)
            }
            Address::Tcp(host) | Address::Tls(host) | Address::Udp(host) => {
                let mut stream = TcpStream::connect(host.all()).map_err(describe)?;
                stream.set_read_timeout(Some(TIMEOUT)).map_err(describe)?;
                stream.set_write_timeout(Some(TIMEOUT)).map_err(describe)?;
                match trust {
                    Some(trust) => {
                        let cipher = trust.handshake(&mut stream)?;
                        Box::new(StreamOwned::new(cipher, stream))
                    }
                    None => Box::new(stream),
                }
            }
        };
        Ok(Self {
            from: BufReader::new(stream),
            address: name.to_owned(),
        })
    }

    /// Authenticates the connection by `name password`. Errors: those of a refusal.
    pub fn log_in(&mut self, words: &[u8]) -> Result<()> {
        let head = format!("set login 0 0 {}\r\n", words.len());
        self.send(&[head.as_bytes(), words, b"\r\n"])?;
        self.outcome(&[b"STORED"], &[]).map(drop)
    }

    /// Sends a request, the parts one after another.
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        let request = parts.concat();
        let server = self.from.get_mut();
        let sent = server.write_all(&request).and_then(|()| server.flush());
        sent.map_err(|error| {
            if late(&error) {
                return Error::new(Kind::Io, self.too_late("did not accept the request"));
            }
            Error::io(format!("cannot send to {}", self.address), error)
        })
    }

    /// A line of the answer, without its end.
    pub fn line(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        let read = (&mut self.from)
            .take(LINE_LEN_MAX)
            .read_until(b'\n', &mut line);
        read.map_err(|error| self.silent(error))?;
        if line.starts_with(&TLS_ALERT) {
            return Err(Error::new(
                Kind::Invalid,
                format!(
                    "{} expects TLS, and the request was not encrypted",
                    self.address
                ),
            )
            .remedy(format!("use --address tls:{}", self.address)));
        }
        match line.strip_suffix(b"\n") {
            Some(line) => Ok(line.strip_suffix(b"\r").unwrap_or(line).to_vec()),
            None if line.is_empty() => Err(self.silent(ErrorKind::UnexpectedEof.into())),
            None => Err(refused(&line)),
        }
    }

    /// The statistics of a group, each a name, a space and a value; the group is a word, or empty.
    pub fn stats(&mut self, group: &str) -> Result<Vec<String>> {
        let space: &[u8] = if group.is_empty() { b"" } else { b" " };
        self.send(&[b"stats", space, group.as_bytes(), b"\r\n"])?;
        let mut statistics = Vec::new();
        loop {
            let line = self.line()?;
            match line.strip_prefix(b"STAT ") {
                Some(statistic) if statistics.len() < STATISTICS_MAX => {
                    statistics.push(shown(statistic));
                }
                None if line == b"END" || line == b"RESET" => return Ok(statistics),
                None if line == b"ERROR" && !group.is_empty() => {
                    return Err(Error::new(Kind::Invalid, "the server has no such group of statistics")
                        .key(group.as_bytes())
                        .remedy("settings, items, slabs, sizes, conns, latency, recent, engine, log and durability are groups of azekura's server"));
                }
                _ => return Err(refused(&line)),
            }
        }
    }

    /// The answer to a get of one key.
    pub fn value(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let line = self.line()?;
        if line == b"END" {
            return Ok(None);
        }
        let mut words = line.split(|byte| *byte == b' ');
        let is_value = words.next() == Some(b"VALUE") && words.next() == Some(key);
        let len = words
            .nth(1)
            .and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
        let len = len.filter(|len: &u64| is_value && *len <= VALUE_LEN_MAX);
        let len = len.ok_or_else(|| refused(&line))?;
        let mut value = Vec::new();
        let read = (&mut self.from).take(len).read_to_end(&mut value);
        read.map_err(|error| self.silent(error))?;
        let (end, last) = (self.line()?, self.line()?);
        if value.len() as u64 != len || !end.is_empty() || last != b"END" {
            return Err(refused(&last));
        }
        Ok(Some(value))
    }

    /// Whether the answer is one of `yes`, or one of `no`.
    pub fn outcome(&mut self, yes: &[&[u8]], no: &[&[u8]]) -> Result<bool> {
        let line = self.line()?;
        if yes.contains(&line.as_slice()) {
            Ok(true)
        } else if no.contains(&line.as_slice()) {
            Ok(false)
        } else {
            Err(refused(&line))
        }
    }

    fn silent(&self, error: std::io::Error) -> Error {
        if late(&error) {
            return Error::new(Kind::Io, self.too_late("did not answer"));
        }
        if error.kind() == ErrorKind::UnexpectedEof {
            let closed = format!("{} closed the connection without an answer", self.address);
            let error = Error::new(Kind::Io, closed);
            if self.address.starts_with("tls:") || self.address.starts_with("unix:") {
                return error;
            }
            return error.remedy(format!(
                "if the port expects TLS, use --address tls:{}",
                self.address
            ));
        }
        let what = format!("{} did not answer", self.address);
        match explained(&error) {
            Some((found, remedy)) => Error::new(Kind::Invalid, what).detail(found).remedy(remedy),
            None => Error::io(what, error),
        }
    }

    fn too_late(&self, what: &str) -> String {
        format!("{} {what} within {} s", self.address, TIMEOUT.as_secs())
    }
}

/// Whether a call timed out; sockets report that as `WouldBlock`.
fn late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It reported that a resource was temporarily unavailable, and neither whose nor after how long.
    #[test]
    fn a_silent_server_is_named_with_the_time_that_it_had() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let mut client = Client {
            from: BufReader::new(Box::new(near)),
            address: "there:1".into(),
        };
        let error = client.line().unwrap_err().to_string();
        assert_eq!(error, "io: there:1 did not answer within 30 s");
        drop(far);
        let error = client.line().unwrap_err().to_string();
        let expected = "io: there:1 closed the connection without an answer; if the port expects TLS, use --address tls:there:1";
        assert_eq!(error, expected);
    }

    /// It was a refusal of seven unprintable bytes.
    #[test]
    fn a_server_that_answers_by_an_alert_of_tls_is_to_be_asked_by_tls() {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"\x15\x03\x03\x00\x02\x02\x0a").unwrap();
        let mut client = Client {
            from: BufReader::new(Box::new(near)),
            address: "there:1".into(),
        };
        assert_eq!(
            client.line().unwrap_err().to_string(),
            "invalid: there:1 expects TLS, and the request was not encrypted; use --address tls:there:1"
        );
    }
}
