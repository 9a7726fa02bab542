//! A server of memcached's protocol, as those see it who ask it: a connection, requests and answers, one after another.
//!
//! It speaks the text protocol. What the server refuses is an error that says what it said; lengths that it announces are
//! bounded, and an answer may not take for ever. It does not know what is asked.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use azekura::error::quote;
use azekura::{Error, Kind, Result};

/// Longest line that is read; no answer has one.
const LINE_LEN_MAX: u64 = 8 << 10;

/// Longest value that is read.
pub(crate) const VALUE_LEN_MAX: u64 = 1 << 30;

/// Most figures of a group.
const FIGURES_MAX: usize = 100_000;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A connection to a server.
pub(crate) struct Peer(BufReader<Box<dyn Stream>>);

impl Peer {
    pub(crate) fn connect(address: &str) -> Result<Self> {
        let describe = |e| {
            Error::io(format!("cannot connect to {address}"), e)
                .remedy("start a server by `azekura serve`, or name it by --address")
        };
        let stream: Box<dyn Stream> = if let Some(path) = address.strip_prefix("unix:") {
            let stream = UnixStream::connect(path).map_err(describe)?;
            stream.set_read_timeout(Some(PATIENCE)).map_err(describe)?;
            Box::new(stream)
        } else {
            let stream = TcpStream::connect(address).map_err(describe)?;
            stream.set_read_timeout(Some(PATIENCE)).map_err(describe)?;
            Box::new(stream)
        };
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        let request = parts.concat();
        let sent = self.0.get_mut().write_all(&request);
        sent.map_err(|e| Error::io("cannot send to the server", e))
    }

    /// A line of the answer, without its end.
    pub(crate) fn line(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        let read = (&mut self.0)
            .take(LINE_LEN_MAX)
            .read_until(b'\n', &mut line);
        read.map_err(silent)?;
        match line.strip_suffix(b"\n") {
            Some(line) => Ok(line.strip_suffix(b"\r").unwrap_or(line).to_vec()),
            None if line.is_empty() => Err(silent(std::io::ErrorKind::UnexpectedEof.into())),
            None => Err(refused(&line)),
        }
    }

    /// The figures of a group, each a name, a space and a value; the group is a word, or empty.
    pub(crate) fn stats(&mut self, group: &str) -> Result<Vec<String>> {
        let space: &[u8] = if group.is_empty() { b"" } else { b" " };
        self.send(&[b"stats", space, group.as_bytes(), b"\r\n"])?;
        let mut figures = Vec::new();
        loop {
            let line = self.line()?;
            match line.strip_prefix(b"STAT ") {
                Some(figure) if figures.len() < FIGURES_MAX => {
                    figures.push(String::from_utf8_lossy(figure).into_owned());
                }
                None if line == b"END" || line == b"RESET" => return Ok(figures),
                _ => return Err(refused(&line)),
            }
        }
    }

    /// The answer to a get of one key.
    pub(crate) fn value(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
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
        (&mut self.0)
            .take(len)
            .read_to_end(&mut value)
            .map_err(silent)?;
        let (end, last) = (self.line()?, self.line()?);
        if value.len() as u64 != len || !end.is_empty() || last != b"END" {
            return Err(refused(&last));
        }
        Ok(Some(value))
    }

    /// Whether the answer is one of `yes`, or one of `no`.
    pub(crate) fn outcome(&mut self, yes: &[&[u8]], no: &[&[u8]]) -> Result<bool> {
        let line = self.line()?;
        if yes.contains(&line.as_slice()) {
            Ok(true)
        } else if no.contains(&line.as_slice()) {
            Ok(false)
        } else {
            Err(refused(&line))
        }
    }
}

fn silent(error: std::io::Error) -> Error {
    Error::io("the server did not answer", error)
}

/// The server said something else: mostly why it refuses.
pub(crate) fn refused(line: &[u8]) -> Error {
    let kind = if line.starts_with(b"SERVER_ERROR object too large") {
        Kind::TooLarge
    } else if line.starts_with(b"SERVER_ERROR out of memory") {
        Kind::Full
    } else {
        Kind::Invalid
    };
    Error::new(kind, "the server refused").detail(quote(line))
}
