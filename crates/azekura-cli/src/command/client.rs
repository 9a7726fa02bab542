//! `client`: one request to a server of memcached's protocol, and its answer.
//!
//! Keys and values are given and shown as by the commands on files, and the exit code means the same: a key that is not
//! there makes the answer no. It speaks the text protocol and waits for each answer; what the server refuses is an error.
//! It does not know which server it talks to.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;

use azekura::error::quote;
use azekura::{Error, Kind, Result};

use crate::exit::Outcome;
use crate::output::Output;
use crate::output::note;
use crate::server::Server;
use crate::text::Coding;
use crate::whole::{standard_input, unreadable};
use azekura_wire::client::VALUE_LEN_MAX;
use azekura_wire::refusal::{refused, shown};

/// Longest key of the protocol.
const KEY_LEN_MAX: usize = 250;

/// Send one request to a server and print the answer
#[derive(clap::Args)]
pub(crate) struct Client {
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    coding: Coding,
    #[command(subcommand)]
    request: Request,
}

#[derive(clap::Subcommand)]
enum Request {
    /// Print the values of keys; several as a line each, key and value
    Get {
        /// The keys
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<OsString>,
        /// Print the bytes of the value and nothing else (one key only)
        #[arg(long)]
        raw: bool,
    },
    /// Store a value
    Set(Stored),
    /// Store a value if there is none
    Add(Stored),
    /// Store a value if there is one
    Replace(Stored),
    /// Add bytes after a value that is there
    Append(Stored),
    /// Add bytes before a value that is there
    Prepend(Stored),
    /// Remove keys
    Delete {
        /// The keys
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<OsString>,
    },
    /// Add to a value that is a number, and print it
    Increment(Counted),
    /// Take from a value that is a number, down to 0, and print it
    Decrement(Counted),
    /// Give a record another time to live
    Touch {
        /// The key
        key: OsString,
        /// Seconds to live; 0: for ever
        seconds: i64,
    },
    /// Print the server's statistics
    Stats {
        /// Which: settings, items, sizes, conns, ...; without it the general ones
        group: Option<String>,
    },
    /// Print the server's version
    Version,
    /// Remove every record
    Flush,
}

#[derive(clap::Args)]
struct Stored {
    /// The key
    key: OsString,
    /// The value; without it standard input is read to its end
    value: Option<OsString>,
    /// Seconds to live; 0: for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    ttl: i64,
    /// A number that the server keeps with the value
    #[arg(long, value_name = "N", default_value_t = 0)]
    flags: u32,
}

#[derive(clap::Args)]
struct Counted {
    /// The key
    key: OsString,
    /// How much
    #[arg(default_value_t = 1)]
    by: u64,
}

impl Client {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        // An invalid request is refused before a connection is made.
        match &self.request {
            Request::Get { keys, raw } => {
                let keys = self.keys(keys)?;
                if *raw && keys.len() > 1 {
                    return Err(Error::new(Kind::Invalid, "--raw prints one value")
                        .found(format!("{} keys", keys.len()), "one key"));
                }
                self.get(&keys, *raw, out)
            }
            Request::Set(stored) => self.store("set", stored),
            Request::Add(stored) => self.store("add", stored),
            Request::Replace(stored) => self.store("replace", stored),
            Request::Append(stored) => self.store("append", stored),
            Request::Prepend(stored) => self.store("prepend", stored),
            Request::Delete { keys } => {
                let keys = self.keys(keys)?;
                let mut server = self.server.connect()?;
                let mut all = true;
                for key in &keys {
                    server.send(&[b"delete ", key, b"\r\n"])?;
                    let found = server.outcome(&[b"DELETED"], &[b"NOT_FOUND"])?;
                    if !found {
                        note!("azekura: absent: {}", quote(key));
                    }
                    all &= found;
                }
                Ok(Outcome::of(all))
            }
            Request::Increment(counted) => self.count("incr", counted, out),
            Request::Decrement(counted) => self.count("decr", counted, out),
            Request::Touch { key, seconds } => {
                let key = self.key(key)?;
                let mut server = self.server.connect()?;
                let seconds = format!(" {seconds}\r\n");
                server.send(&[b"touch ", &key, seconds.as_bytes()])?;
                let found = server.outcome(&[b"TOUCHED"], &[b"NOT_FOUND"])?;
                if !found {
                    note!("azekura: absent: {}", quote(&key));
                }
                Ok(Outcome::of(found))
            }
            Request::Stats { group } => {
                let group = group.as_deref().unwrap_or_default();
                if !group.bytes().all(|byte| byte.is_ascii_graphic()) {
                    return Err(Error::new(Kind::Invalid, "invalid group of statistics")
                        .key(group.as_bytes()));
                }
                for figure in self.server.connect()?.stats(group)? {
                    out.line(figure)?;
                }
                Ok(Outcome::Yes)
            }
            Request::Version => {
                let mut server = self.server.connect()?;
                server.send(&[b"version\r\n"])?;
                let line = server.line()?;
                let version = line
                    .strip_prefix(b"VERSION ")
                    .ok_or_else(|| refused(&line))?;
                out.line(shown(version))?;
                Ok(Outcome::Yes)
            }
            Request::Flush => {
                let mut server = self.server.connect()?;
                server.send(&[b"flush_all\r\n"])?;
                server.outcome(&[b"OK"], &[]).map(Outcome::of)
            }
        }
    }

    fn key(&self, argument: &OsString) -> Result<Vec<u8>> {
        let key = self.coding.read(argument)?;
        let plain = |byte: &u8| *byte > b' ' && *byte != 0x7f;
        if key.is_empty() || key.len() > KEY_LEN_MAX || !key.iter().all(plain) {
            return Err(Error::new(Kind::Invalid, "invalid key of this protocol")
                .key(&key)
                .remedy("a key has 1 to 250 bytes, without spaces and control characters"));
        }
        Ok(key)
    }

    fn keys(&self, arguments: &[OsString]) -> Result<Vec<Vec<u8>>> {
        arguments
            .iter()
            .map(|argument| self.key(argument))
            .collect()
    }

    fn get(&self, keys: &[Vec<u8>], raw: bool, out: &mut Output<'_>) -> Result<Outcome> {
        let mut server = self.server.connect()?;
        let mut all = true;
        for key in keys {
            server.send(&[b"get ", key, b"\r\n"])?;
            let Some(value) = server.value(key)? else {
                note!("azekura: absent: {}", quote(key));
                all = false;
                continue;
            };
            if raw {
                out.bytes(&value)?;
            } else if keys.len() == 1 {
                out.line(self.coding.show(&value))?;
            } else {
                let (key, value) = (self.coding.show(key), self.coding.show(&value));
                out.line(format_args!("{key}\t{value}"))?;
            }
        }
        Ok(Outcome::of(all))
    }

    fn store(&self, verb: &str, stored: &Stored) -> Result<Outcome> {
        let key = self.key(&stored.key)?;
        let value = if let Some(value) = &stored.value {
            self.coding.read(value)?
        } else {
            let mut value = Vec::new();
            standard_input()
                .and_then(|input| input.take(VALUE_LEN_MAX + 1).read_to_end(&mut value))
                .map_err(|e| unreadable("cannot read the value", e, Path::new("-")))?;
            value
        };
        if value.len() as u64 > VALUE_LEN_MAX {
            return Err(Error::new(
                Kind::TooLarge,
                "no server takes a value of more than 1 GiB",
            ));
        }
        let mut server = self.server.connect()?;
        let word = format!("{verb} ");
        let head = format!(" {} {} {}\r\n", stored.flags, stored.ttl, value.len());
        server.send(&[word.as_bytes(), &key, head.as_bytes(), &value, b"\r\n"])?;
        let stored = server.outcome(&[b"STORED"], &[b"NOT_STORED", b"NOT_FOUND"])?;
        if !stored {
            let why = if verb == "add" {
                "present already"
            } else {
                "absent"
            };
            note!("azekura: {why}: {}", quote(&key));
        }
        Ok(Outcome::of(stored))
    }

    fn count(&self, verb: &str, counted: &Counted, out: &mut Output<'_>) -> Result<Outcome> {
        let key = self.key(&counted.key)?;
        let mut server = self.server.connect()?;
        let (verb, by) = (format!("{verb} "), format!(" {}\r\n", counted.by));
        server.send(&[verb.as_bytes(), &key, by.as_bytes()])?;
        let line = server.line()?;
        if line == b"NOT_FOUND" {
            note!("azekura: absent: {}", quote(&key));
            return Ok(Outcome::No);
        }
        let digits = line.trim_ascii_end();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(refused(&line));
        }
        let now = String::from_utf8_lossy(digits);
        out.after_change(
            &now,
            format_args!("the counter was changed and is now {now}"),
        )?;
        Ok(Outcome::Yes)
    }
}
