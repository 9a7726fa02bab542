//! `watch`: events of other clients' commands, sent while they happen.
//!
//! | kind | lines |
//! |---|---|
//! | `fetchers` (the default) | `type=item_get key=.. status=found,not_found,expired clsid=.. cfd=.. size=..` for each key that a command looked up, but for those that store |
//! | `mutations` | `type=item_store key=.. status=stored,not_stored,exists,not_found,too_large,no_memory cmd=.. ttl=.. clsid=1 cfd=.. size=..` |
//! | `deletions` | `type=deleted key=.. cmd=delete,md clsid=1 size=..` |
//! | `evictions` | `type=eviction key=.. fetch=no ttl=.. la=0 clsid=1 size=..` of the engine `cache` |
//! | `connevents` | `type=conn_new rip=.. rport=.. transport=tcp,local cfd=..`, `type=conn_close` with a `reason=` |
//! | `rawcmds`, `sysevents`, `proxyreqs`, `proxyevents`, `proxyuser` | none, or nearly none, as of a memcached without a proxy |
//!
//! Each line begins with `ts=` seconds since 1970, and `gid=`, a number that grows by one with each event; it ends with a
//! line feed alone. Keys are URI-encoded. The names and the answers are memcached's.
//!
//! A watcher has a buffer of 256 KiB; lines beyond that are dropped, and `skipped=N` states how many, before the next line
//! that fits. There are 20 watchers at most. Without watchers a request costs one load, which it shares with `stats detail`.
//! It knows no sockets.

use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::client_info::{ClientInfo, CloseReason};
use crate::item::Item;
use crate::memcached::clock::system_time;
use crate::memcached::protocol::number;
use crate::memcached::protocol::text::Words;

/// What may be of interest, as bits.
pub(crate) const FETCHERS: u32 = 1;
pub(crate) const MUTATIONS: u32 = 2;
pub(crate) const DELETIONS: u32 = 4;
const EVICTIONS: u32 = 8;
const CONNECTIONS: u32 = 16;
/// Kinds that memcached knows and that have no events here.
const OTHERS: u32 = 32;
/// `stats detail` counts.
pub(crate) const DETAIL: u32 = 1 << 31;

/// The words, in the order in which memcached compares them: the beginning of one is enough.
const KINDS: [(&[u8], u32); 10] = [
    (b"rawcmds", OTHERS),
    (b"evictions", EVICTIONS),
    (b"fetchers", FETCHERS),
    (b"mutations", MUTATIONS),
    (b"sysevents", OTHERS),
    (b"connevents", CONNECTIONS),
    (b"proxyreqs", OTHERS),
    (b"proxyevents", OTHERS),
    (b"proxyuser", OTHERS),
    (b"deletions", DELETIONS),
];

/// Watchers at once.
const WATCHERS_MAX: usize = 20;

/// Bytes of lines that one has not taken.
const HELD_MAX: usize = 256 << 10;

/// How often one looks for lines, in milliseconds.
pub(crate) const PAUSE_MS: u64 = 100;

/// The kinds that these words name; `None`: one of them is none.
pub(crate) fn kinds(words: &[u8]) -> Option<u32> {
    let of = |word: &[u8]| KINDS.iter().find(|(name, _)| name.starts_with(word));
    let mut all = 0;
    for word in Words(words) {
        all |= of(word)?.1;
    }
    Some(if all == 0 { FETCHERS } else { all })
}

/// What was looked for, and how much of it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// So many bytes of data.
    Found(usize),
    NotFound,
    Expired,
}

impl Lookup {
    /// Of an item of so many bytes, that is live or is over.
    #[inline]
    pub(crate) fn of(present: Option<usize>, is_live: bool) -> Self {
        match present {
            Some(len) if is_live => Self::Found(len),
            Some(_) => Self::Expired,
            None => Self::NotFound,
        }
    }
}

/// All watchers, and the union of the kinds they watch.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    wanted: AtomicU32,
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    watchers: Vec<Watcher>,
    /// The number of the last watcher, and of the last event.
    last: u64,
    event: u64,
    sent: u64,
    skipped: u64,
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    kinds: u32,
    lines: Vec<u8>,
    /// Lines dropped since the last one that was not.
    skipped: u64,
}

impl Watchers {
    /// Whether there is a watcher of one of these kinds.
    #[inline]
    pub(crate) fn want(&self, kinds: u32) -> bool {
        self.wanted.load(Ordering::Relaxed) & kinds != 0
    }

    /// Whether `stats detail` counts from now on.
    pub(crate) fn set_detail(&self, on: bool) {
        if on {
            self.wanted.fetch_or(DETAIL, Ordering::Relaxed);
        } else {
            self.wanted.fetch_and(!DETAIL, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes the union of the kinds again; the caller holds the lock.
    fn gather(&self, all: &All) {
        let kinds = all.watchers.iter().fold(0, |kinds, one| kinds | one.kinds);
        self.wanted.fetch_and(DETAIL | kinds, Ordering::Relaxed);
        self.wanted.fetch_or(kinds, Ordering::Relaxed);
    }

    /// Appends an event of this kind; `write` appends what follows its number.
    #[cold]
    fn report(&self, kind: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let all = &mut *self.lock();
        all.event += 1;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default();
        let (seconds, micros) = (since.as_secs(), since.subsec_micros());
        let mut line = format!("ts={seconds}.{micros:06} gid={} type=", all.event).into_bytes();
        write(&mut line);
        line.push(b'\n');
        for watcher in &mut all.watchers {
            if watcher.kinds & kind == 0 {
                continue;
            }
            let skipped = match watcher.skipped {
                0 => String::new(),
                count => format!("skipped={count}\n"),
            };
            let len = skipped.len() + line.len();
            let has_room = watcher.lines.len() + len <= HELD_MAX;
            if !has_room || watcher.lines.try_reserve(len).is_err() {
                watcher.skipped += 1;
                all.skipped += 1;
                continue;
            }
            watcher.lines.extend_from_slice(skipped.as_bytes());
            watcher.lines.extend_from_slice(&line);
            watcher.skipped = 0;
            all.sent += 1;
        }
    }

    /// A key was looked for by the connection of this number.
    pub(crate) fn saw(&self, key: &[u8], sight: Lookup, number: i32) {
        if !self.want(FETCHERS) {
            return;
        }
        let (status, class, len) = match sight {
            Lookup::Found(len) => ("found", 1, len),
            Lookup::NotFound => ("not_found", 0, 0),
            Lookup::Expired => ("expired", 0, 0),
        };
        self.report(FETCHERS, |line| {
            line.extend_from_slice(b"item_get key=");
            number::push_uri(line, key);
            // A vector takes everything.
            let _ = write!(
                line,
                " status={status} clsid={class} cfd={number} size={len}"
            );
        });
    }

    /// Data of so many bytes was to be stored, and this came of it.
    #[cold]
    pub(crate) fn stored(
        &self,
        key: &[u8],
        (status, command): (&str, &str),
        (ttl, len): (u32, usize),
        number: i32,
    ) {
        self.report(MUTATIONS, |line| {
            line.extend_from_slice(b"item_store key=");
            number::push_uri(line, key);
            let _ = write!(
                line,
                " status={status} cmd={command} ttl={ttl} clsid=1 cfd={number} size={len}"
            );
        });
    }

    /// An item was deleted by this command.
    pub(crate) fn deleted(&self, key: &[u8], command: &str, len: usize) {
        if !self.want(DELETIONS) {
            return;
        }
        self.report(DELETIONS, |line| {
            line.extend_from_slice(b"deleted key=");
            number::push_uri(line, key);
            let _ = write!(line, " cmd={command} clsid=1 size={len}");
        });
    }

    /// An item was dropped for others.
    #[inline]
    pub(crate) fn evicted(&self, key: &[u8], value: &[u8]) {
        if self.want(EVICTIONS) {
            self.report_evicted(key, value);
        }
    }

    #[cold]
    fn report_evicted(&self, key: &[u8], value: &[u8]) {
        let Some(item) = Item::decode(value) else {
            return;
        };
        let len = item.data.len();
        let ttl = match item.head.expires {
            0 => -1,
            expires => i64::from(expires.saturating_sub(system_time())),
        };
        self.report(EVICTIONS, |line| {
            line.extend_from_slice(b"eviction key=");
            number::push_uri(line, key);
            let _ = write!(line, " fetch=no ttl={ttl} la=0 clsid=1 size={len}");
        });
    }

    /// A client has come, or goes for this reason.
    pub(crate) fn connection(&self, place: &ClientInfo, goes: Option<CloseReason>) {
        if !self.want(CONNECTIONS) {
            return;
        }
        let (family, at) = place.address.split_once(':').unwrap_or_default();
        let (host, port, transport) = match at.rsplit_once(':') {
            Some((host, port)) if family.starts_with("tcp") => (host, port, "tcp"),
            _ => ("unix", "0", "local"),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        self.report(CONNECTIONS, |line| {
            let event = if goes.is_some() { "close" } else { "new" };
            let _ = write!(
                line,
                "conn_{event} rip={host} rport={port} transport={transport}"
            );
            if let Some(reason) = goes {
                let _ = write!(line, " reason={}", reason.word());
            }
            let _ = write!(line, " cfd={}", place.number);
        });
    }

    /// Reports the statistics, by memcached's names.
    pub(crate) fn figures(&self, report: &mut dyn FnMut(&str, u64)) {
        let all = self.lock();
        report("log_watcher_skipped", all.skipped);
        report("log_watcher_sent", all.sent);
        report("log_watchers", all.watchers.len() as u64);
    }
}

/// A client that watches, as long as this is held.
#[derive(Debug)]
pub(crate) struct Watch {
    watchers: Arc<Watchers>,
    id: u64,
}

impl Watch {
    /// Begins to watch these kinds, from the next event on; `None`: too many do.
    pub(crate) fn begin(watchers: &Arc<Watchers>, kinds: u32) -> Option<Self> {
        let all = &mut *watchers.lock();
        if all.watchers.len() >= WATCHERS_MAX {
            return None;
        }
        all.last += 1;
        let id = all.last;
        all.watchers.push(Watcher {
            id,
            kinds,
            lines: Vec::new(),
            skipped: 0,
        });
        watchers.gather(all);
        Some(Self {
            watchers: Arc::clone(watchers),
            id,
        })
    }

    /// Appends the lines that have come.
    pub(crate) fn take(&self, output: &mut Vec<u8>) {
        let mut all = self.watchers.lock();
        if let Some(watcher) = all.watchers.iter_mut().find(|one| one.id == self.id) {
            output.append(&mut watcher.lines);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let watchers = &self.watchers;
        let mut all = watchers.lock();
        all.watchers.retain(|one| one.id != self.id);
        watchers.gather(&all);
    }
}
