//! A server of memcached's protocol, as those see it who ask it: a connection, requests and answers, one after another.
//!
//! It speaks the text protocol, by TCP, a unix socket or TLS, and says who it is if it is told to. What the server refuses
//! is an error that says what it said; lengths that it announces are bounded, and neither taking a request nor answering it
//! may take for ever. It does not know what is asked.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::output::note;
use azekura::{Error, Kind, Result};
use azekura_bench::memcache::refusal;
use azekura_bench::tls::Trust;
use rustls::StreamOwned;

/// Longest line that is read; no answer has one.
const LINE_LEN_MAX: u64 = 8 << 10;

/// How an answer begins that is an alert of TLS (RFC 8446, section 5.1), to a request that was not: record type 21, version 3.x.
const TLS_ALERT: [u8; 2] = [21, 3];

/// Longest value that is read.
pub(crate) const VALUE_LEN_MAX: u64 = 1 << 30;

/// Most figures of a group.
const FIGURES_MAX: usize = 100_000;

/// How long an answer may take, and the taking of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which server, and what it is to know and to show.
#[derive(clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// The server
    #[arg(
        long,
        alias = "server",
        global = true,
        value_name = "HOST:PORT|tls:HOST:PORT|unix:PATH",
        default_value = "127.0.0.1:11211"
    )]
    pub(crate) address: String,
    /// Who must have signed the certificate of a tls: server, or that certificate, in PEM
    #[arg(long, global = true, value_name = "FILE")]
    authority: Option<PathBuf>,
    /// The certificate to show to a tls: server, in PEM
    #[arg(long, global = true, value_name = "FILE", requires = "private_key")]
    certificate: Option<PathBuf>,
    /// The private key of that certificate, in PEM
    #[arg(
        long = "key",
        global = true,
        value_name = "FILE",
        requires = "certificate"
    )]
    private_key: Option<PathBuf>,
    /// A file with a line name:password, to say who asks
    #[arg(long, global = true, value_name = "FILE")]
    login: Option<PathBuf>,
}

impl Server {
    /// Connects, and says who asks.
    pub(crate) fn connect(&self) -> Result<Peer> {
        // What is wrong with a file is known before anybody is asked.
        let login = self.login.as_deref().map(login).transpose()?;
        let mut peer = Peer {
            from: BufReader::new(self.stream()?),
            address: self.address.clone(),
        };
        if let Some(words) = login {
            let head = format!("set login 0 0 {}\r\n", words.len());
            peer.send(&[head.as_bytes(), &words, b"\r\n"])?;
            peer.outcome(&[b"STORED"], &[])?;
        }
        Ok(peer)
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        // Who names an authority wants no word to go unencrypted, a password least of all.
        let asks_tls = self.authority.is_some() || self.certificate.is_some();
        if asks_tls && !self.address.starts_with("tls:") {
            return Err(Error::new(
                Kind::Invalid,
                "certificates are of encrypted connections only",
            )
            .found(&self.address, "tls:HOST:PORT")
            .remedy("leave out --authority and --certificate, or say tls: before the address"));
        }
        let describe = |e: std::io::Error| {
            Error::io(format!("cannot connect to {}", self.address), e)
                .remedy("start a server by `azekura serve`, or name it by --address")
        };
        let tcp = |address: &str| -> Result<TcpStream> {
            let addresses = self.resolve(address)?;
            let connect = || {
                let stream = TcpStream::connect(&addresses[..])?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(stream)
            };
            connect().map_err(describe)
        };
        if let Some(path) = self.address.strip_prefix("unix:") {
            let stream = UnixStream::connect(path).map_err(describe)?;
            stream.set_read_timeout(Some(PATIENCE)).map_err(describe)?;
            stream.set_write_timeout(Some(PATIENCE)).map_err(describe)?;
            return Ok(Box::new(stream));
        }
        let Some(address) = self.address.strip_prefix("tls:") else {
            return Ok(Box::new(tcp(&self.address)?));
        };
        let trust = Trust::new(
            address,
            self.authority.as_deref(),
            self.certificate.as_deref().zip(self.private_key.as_deref()),
        )?;
        let mut stream = tcp(address)?;
        // Whom it talks to is known before anything is said.
        let cipher = trust.greet(&mut stream)?;
        Ok(Box::new(StreamOwned::new(cipher, stream)))
    }
}

impl Server {
    /// The addresses that `address`, of TCP, stands for.
    fn resolve(&self, address: &str) -> Result<Vec<SocketAddr>> {
        let invalid = || {
            Error::new(Kind::Invalid, "no address of a server")
                .found(&self.address, "HOST:PORT, tls:HOST:PORT or unix:PATH")
        };
        let (host, port) = address.rsplit_once(':').ok_or_else(invalid)?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        if host.is_empty() || !is_number {
            return Err(invalid());
        }
        if port.parse::<u16>().is_err() {
            return Err(
                Error::new(Kind::Invalid, "the port of --address is out of range")
                    .found(port, "1 to 65535"),
            );
        }
        let found = address.to_socket_addrs().map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidInput => invalid(),
            _ => Error::io(format!("the host {host} is not found"), e)
                .remedy("check the host in --address"),
        });
        found.map(Iterator::collect)
    }
}

/// The words of a file `name:password`, as a server is told them.
fn login(path: &Path) -> Result<Vec<u8>> {
    let text = std::fs::read(path).map_err(|e| Error::io("cannot read the login", e).at(path))?;
    if azekura_server::is_open_to_others(path) {
        note!(
            "azekura: others may read the login {}: chmod 600 keeps it",
            path.display()
        );
    }
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut parts = line.splitn(2, |byte| *byte == b':');
    match (parts.next(), parts.next()) {
        (Some(name), Some(password))
            if !name.is_empty() && !password.is_empty() && !name.contains(&b' ') =>
        {
            Ok([name, b" ", password].concat())
        }
        _ => Err(Error::new(Kind::Invalid, "the login is not understood")
            .at(path)
            .remedy("its first line must be name:password, the name without a space")),
    }
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A connection to a server.
pub(crate) struct Peer {
    from: BufReader<Box<dyn Stream>>,
    address: String,
}

impl Peer {
    pub(crate) fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        let request = parts.concat();
        let server = self.from.get_mut();
        let sent = server.write_all(&request).and_then(|()| server.flush());
        sent.map_err(|error| {
            if late(&error) {
                return Error::new(Kind::Io, self.too_late("took no request"));
            }
            Error::io(format!("cannot send to {}", self.address), error)
        })
    }

    /// A line of the answer, without its end.
    pub(crate) fn line(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        let read = (&mut self.from)
            .take(LINE_LEN_MAX)
            .read_until(b'\n', &mut line);
        read.map_err(|error| self.silent(error))?;
        if line.starts_with(&TLS_ALERT) {
            return Err(Error::new(
                Kind::Invalid,
                format!("{} expects TLS, and was asked without", self.address),
            )
            .remedy(format!("use --address tls:{}", self.address)));
        }
        match line.strip_suffix(b"\n") {
            Some(line) => Ok(line.strip_suffix(b"\r").unwrap_or(line).to_vec()),
            None if line.is_empty() => Err(self.silent(std::io::ErrorKind::UnexpectedEof.into())),
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
                    figures.push(shown(figure));
                }
                None if line == b"END" || line == b"RESET" => return Ok(figures),
                None if line == b"ERROR" && !group.is_empty() => {
                    return Err(Error::new(Kind::Invalid, "the server has no such group of figures")
                        .key(group.as_bytes())
                        .remedy("settings, items, conns, latency, engine, log and durability are groups of ours"));
                }
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
        let read = (&mut self.from).take(len).read_to_end(&mut value);
        read.map_err(|error| self.silent(error))?;
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

    fn silent(&self, error: std::io::Error) -> Error {
        if late(&error) {
            return Error::new(Kind::Io, self.too_late("did not answer"));
        }
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
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
        Error::io(format!("{} did not answer", self.address), error)
    }

    fn too_late(&self, what: &str) -> String {
        format!("{} {what} within {} s", self.address, PATIENCE.as_secs())
    }
}

/// Whether the time for a call was over; sockets report that as `WouldBlock`.
fn late(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A line of a server for a terminal, which nothing in it may command.
pub(crate) fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).replace(char::is_control, "\u{fffd}")
}

/// The server said something else: mostly why it refuses.
pub(crate) fn refused(line: &[u8]) -> Error {
    let kind = refusal(line).unwrap_or(Kind::Invalid);
    // Whole: what can be done stands at its end.
    let said = format!("\"{}\"", shown(line));
    let error = Error::new(kind, "the server refused").detail(said);
    if line.starts_with(b"CLIENT_ERROR unauthenticated") {
        return error.remedy("say who asks by --login");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It said that a resource was temporarily unavailable, and neither whose nor after how long.
    #[test]
    fn a_silent_server_is_named_with_the_time_that_it_had() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let mut peer = Peer {
            from: BufReader::new(Box::new(near)),
            address: "there:1".into(),
        };
        let error = peer.line().unwrap_err().to_string();
        assert_eq!(error, "io: there:1 did not answer within 30 s");
        drop(far);
        let error = peer.line().unwrap_err().to_string();
        let expected = "io: there:1 closed the connection without an answer; if the port expects TLS, use --address tls:there:1";
        assert_eq!(error, expected);
    }

    /// It was a refusal of seven unprintable bytes.
    #[test]
    fn a_server_that_answers_by_an_alert_of_tls_is_to_be_asked_by_tls() {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"\x15\x03\x03\x00\x02\x02\x0a").unwrap();
        let mut peer = Peer {
            from: BufReader::new(Box::new(near)),
            address: "there:1".into(),
        };
        assert_eq!(
            peer.line().unwrap_err().to_string(),
            "invalid: there:1 expects TLS, and was asked without; use --address tls:there:1"
        );
    }

    /// It was cut off after 64 bytes, and the remedy with it.
    #[test]
    fn what_a_server_refuses_by_is_shown_whole() {
        let line = [&b"SERVER_ERROR full: "[..], &[b'a'; 100], b"; do this\x07"].concat();
        let error = refused(&line).to_string();
        assert!(error.ends_with("aaaa; do this\u{fffd}\")"), "{error}");
    }
}
