//! Addresses of servers: `HOST:PORT`, `tls:HOST:PORT`, `udp:HOST:PORT` and `unix:PATH`.
//!
//! A host is looked up when its address is read, so that one that does not exist is an error before anything else
//! happens. Its name is kept, since a certificate is issued for it. It opens no socket.

use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(Host),
    /// TCP with TLS.
    Tls(Host),
    /// UDP.
    Udp(Host),
    /// A socket of the file system.
    Unix(PathBuf),
}

/// A host and a port, and the addresses that it resolves to: at least one.
#[derive(Clone, Debug)]
pub struct Host {
    text: String,
    found: Vec<SocketAddr>,
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It does not have the form of an address.
    Form,
    /// Its port is a number, but not that of a port.
    Port,
    /// The host cannot be found, with the system's reason.
    Lookup(String),
}

/// A text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Why it is not.
    pub reason: Reason,
    text: String,
    expected: &'static str,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        match &self.reason {
            Reason::Form => write!(f, "`{text}` is not an address: {}", self.expected),
            Reason::Port => write!(f, "the port of `{text}` is not from 0 to 65535"),
            Reason::Lookup(why) => write!(f, "the host of `{text}` is not found: {why}"),
        }
    }
}

impl std::error::Error for Wrong {}

impl Host {
    /// The first of the addresses.
    pub fn first(&self) -> SocketAddr {
        self.found[0]
    }

    /// All addresses of the host.
    pub fn all(&self) -> &[SocketAddr] {
        &self.found
    }

    /// `HOST:PORT` as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn resolve(text: &str) -> Result<Self, Reason> {
        let (host, port) = text.rsplit_once(':').ok_or(Reason::Form)?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || host.is_empty() {
            return Err(Reason::Form);
        }
        if port.parse::<u16>().is_err() {
            return Err(Reason::Port);
        }
        let found = text.to_socket_addrs().map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Reason::Form,
            // The name of a host has no colon.
            _ if host.contains(':') => Reason::Form,
            _ => Reason::Lookup(error.to_string()),
        })?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() {
            return Err(Reason::Lookup("it has no address".into()));
        }
        let text = text.to_owned();
        Ok(Self { text, found })
    }
}

/// Two names of the same addresses are equal.
impl PartialEq for Host {
    fn eq(&self, other: &Self) -> bool {
        self.found == other.found
    }
}

impl Eq for Host {}

impl From<SocketAddr> for Host {
    fn from(address: SocketAddr) -> Self {
        Self {
            text: address.to_string(),
            found: vec![address],
        }
    }
}

impl FromStr for Host {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        Self::resolve(text).map_err(|reason| Wrong {
            reason,
            text: text.to_owned(),
            expected: "HOST:PORT",
        })
    }
}

impl FromStr for Address {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let wrong = |reason| Wrong {
            reason,
            text: text.to_owned(),
            expected: "HOST:PORT, tls:HOST:PORT, udp:HOST:PORT or unix:PATH",
        };
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(wrong(Reason::Form));
            }
            return Ok(Self::Unix(path.into()));
        }
        let (of, host): (fn(Host) -> Self, &str) = match text.split_once(':') {
            Some(("tls", host)) => (Self::Tls, host),
            Some(("udp", host)) => (Self::Udp, host),
            _ => (Self::Tcp, text),
        };
        Host::resolve(host).map(of).map_err(wrong)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => write!(f, "{}", host.first()),
            Self::Tls(host) => write!(f, "tls:{}", host.first()),
            Self::Udp(host) => write!(f, "udp:{}", host.first()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

fn parsed<'d, D: Deserializer<'d>, T: FromStr<Err = Wrong>>(from: D) -> Result<T, D::Error> {
    String::deserialize(from)?
        .parse()
        .map_err(de::Error::custom)
}

impl<'d> Deserialize<'d> for Host {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        parsed(from)
    }
}

impl<'d> Deserialize<'d> for Address {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        parsed(from)
    }
}
