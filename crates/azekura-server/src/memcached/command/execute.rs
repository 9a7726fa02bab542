//! What commands mean: each is one read or one update of the engine, so each is atomic for itself.
//!
//! A [`Hand`] executes for one connection. Its buffer holds the record that is being built. A write whose request came after
//! the answer to another has the greater version, unless a client gave one of these by `E`; of writes of one key that
//! overlap, all but `set` set theirs under the record's lock, above the one that was there. An item whose time is over is
//! absent, and is written over or removed like one. What no item's bytes are is damage: a command that looks at it fails, `set` and `delete` mend it.
//! It knows no grammar and no answers, but for the text of an engine's error.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use azekura::engine::Edit;
use azekura::error::{Error, Kind, Result};

use crate::item::{Head, Item};
use crate::memcached::operate::detail::Done;
use crate::memcached::operate::stats::{Count, Tally};
use crate::memcached::operate::watchers::{DETAIL, MUTATIONS, Sight};
use crate::memcached::protocol::number;
use crate::memcached::protocol::text::Mode;
use crate::memcached::service::Service;

/// Versions a connection takes at once, at most.
const VERSIONS_MAX: u64 = 32;
/// A buffer that grew beyond this is given back.
const SCRATCH_KEPT: usize = 64 << 10;
/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

/// Executes for one connection.
#[derive(Debug)]
pub(crate) struct Hand {
    pub(crate) service: Arc<Service>,
    pub(crate) tally: Tally,
    /// The time during this call, in seconds since 1970.
    pub(crate) now: u32,
    /// Whether answers wait until what they acknowledge survives loss of power.
    pub(crate) must_sync: bool,
    /// The number of the connection, for those who watch.
    pub(crate) number: i32,
    versions: Range<u64>,
    /// How many versions are taken next.
    versions_next: u64,
    pub(crate) scratch: Vec<u8>,
}

/// A record to be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New<'d> {
    pub(crate) mode: Mode,
    pub(crate) key: &'d [u8],
    pub(crate) flags: u32,
    pub(crate) expires: u32,
    pub(crate) data: &'d [u8],
    /// The version that must be there; for `Cas`, `Append` and `Prepend`.
    pub(crate) compare: Option<u64>,
    /// The version it gets; `None`: the next.
    pub(crate) version: Option<u64>,
    /// Whether `Cas` stores over a later version, as stale.
    pub(crate) may_be_stale: bool,
    /// Whether `Append` and `Prepend` store if nothing is there.
    pub(crate) vivify: bool,
    /// Whether the key came as base64.
    pub(crate) is_binary_key: bool,
}

/// What came of storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// It is there: with this version, and so many bytes of data.
    Done {
        cas: u64,
        len: usize,
    },
    Refused,
    Exists,
    NotFound,
}

/// By how much a number is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) up: bool,
    pub(crate) delta: u64,
    /// The version that must be there.
    pub(crate) compare: Option<u64>,
    /// The version it gets; `None`: the next.
    pub(crate) version: Option<u64>,
    /// The first number and when it expires, if nothing is there.
    pub(crate) initial: Option<(u64, u32)>,
    /// When it expires from now on.
    pub(crate) expires: Option<u32>,
}

/// What came of counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// It is this number now, with this head; and when it expired before, if it was there.
    Done {
        number: u64,
        head: Head,
        before: Option<u32>,
    },
    NotFound,
    Exists,
    NoNumber,
    TooLarge,
}

/// What an edit does with the record that was built in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Keep,
    Put,
}

impl Change {
    /// Builds an item to be put.
    pub(crate) fn put(built: &mut Vec<u8>, head: &Head, data: &[u8]) -> Self {
        head.write(built);
        built.extend_from_slice(data);
        Self::Put
    }
}

impl Hand {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        Self {
            tally: Tally::default(),
            now: service.now(),
            must_sync: false,
            number: 0,
            versions: 0..0,
            versions_next: 1,
            scratch: Vec::new(),
            service,
        }
    }

    /// Forgets the versions that were taken and not used: those of the requests that come now are above those of all
    /// that were answered before.
    #[inline]
    pub(crate) fn forget_versions(&mut self) {
        (self.versions, self.versions_next) = (0..0, 1);
    }

    /// A version no other write has or gets. The more writes come together the more are taken at once, so that threads
    /// that write much seldom meet, and less than half of those taken go unused.
    #[inline]
    pub(crate) fn version(&mut self) -> u64 {
        if self.versions.start == self.versions.end {
            self.versions = self.service.versions(self.versions_next);
            self.versions_next = (self.versions_next * 2).min(VERSIONS_MAX);
        }
        let version = self.versions.start;
        self.versions.start = version.wrapping_add(1);
        version
    }

    /// Something was written: its answer may have to wait.
    #[inline]
    pub(crate) fn wrote(&mut self) {
        self.must_sync |= self.service.settings.power;
    }

    /// Keys were set.
    #[inline]
    pub(crate) fn note_sets<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if self.service.watchers.want(DETAIL) {
            keys.for_each(|key| self.service.detail.note(key, Done::Set));
        }
    }

    /// Tells those who watch what came of storing.
    #[inline]
    pub(crate) fn note_stored(
        &self,
        (mode, key): (Mode, &[u8]),
        expires: u32,
        len: usize,
        stored: std::result::Result<&Stored, &Error>,
    ) {
        if !self.service.watchers.want(MUTATIONS) {
            return;
        }
        let status = match stored {
            Ok(Stored::Done { .. }) => "stored",
            Ok(Stored::Exists) => "exists",
            Ok(Stored::NotFound) => "not_found",
            Err(error) if error.kind() == Kind::Full => "no_memory",
            Err(error) if error.kind() == Kind::TooLarge => "too_large",
            Ok(Stored::Refused) | Err(_) => "not_stored",
        };
        let what = (status, mode.word());
        let size = (expires.saturating_sub(self.now), len);
        let watchers = &self.service.watchers;
        watchers.stored(key, what, size, self.number);
    }

    /// Whether an item of this size may be stored, counted as memcached counts.
    #[inline]
    pub(crate) fn fits(&self, key_len: usize, flags: u32, data_len: usize) -> bool {
        size(key_len, flags, data_len) <= self.service.item_size_max()
    }

    /// An item was refused for its size. If it would have replaced what was there whatever that is, what was there is out
    /// of date, and goes; else it stays.
    pub(crate) fn refuse_too_large(
        &mut self,
        (mode, key): (Mode, &[u8]),
        replaces: bool,
    ) -> Result<()> {
        self.tally.one(Count::StoreTooLarge);
        if self.service.watchers.want(MUTATIONS) {
            let what = ("too_large", mode.word());
            let watchers = &self.service.watchers;
            watchers.stored(key, what, (0, 0), self.number);
        }
        if !replaces {
            return Ok(());
        }
        self.wrote();
        self.service.engine.update(key, &mut |_| Edit::Remove)
    }

    /// Shows `decide` what is there, and an empty buffer; what it builds there is put, if it says so.
    pub(crate) fn change(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<Item<'_>>, &mut Vec<u8>) -> Change,
    ) -> Result<()> {
        let now = self.now;
        let mut damaged = None;
        let mut changed = false;
        self.scratch.clear();
        let mut slot = Some(&mut self.scratch);
        self.service.engine.update(key, &mut |present| {
            // It is called once, so the buffer is there.
            let Some(built) = slot.take() else {
                return Edit::Keep;
            };
            let item = match present {
                None => None,
                Some(value) => match Item::decode(value) {
                    None => {
                        damaged = Some(no_item(key));
                        return Edit::Keep;
                    }
                    item => item,
                },
            };
            let edit = match decide(item.filter(|item| !item.head.is_over(now)), built) {
                Change::Keep => Edit::Keep,
                Change::Put => Edit::Put(Cow::Borrowed(&*built)),
            };
            changed = edit != Edit::Keep;
            edit
        })?;
        if self.scratch.capacity() > SCRATCH_KEPT {
            self.scratch = Vec::new();
        }
        if changed {
            self.wrote();
        }
        damaged.map_or(Ok(()), Err)
    }

    /// Stores without looking at what is there.
    pub(crate) fn put(&mut self, key: &[u8], mut head: Head, data: &[u8]) -> Result<u64> {
        if head.cas == 0 {
            head.cas = self.version();
        }
        self.scratch.clear();
        head.write(&mut self.scratch);
        self.scratch.extend_from_slice(data);
        let put = self.service.engine.put_many(&[(key, &self.scratch)]);
        if self.scratch.capacity() > SCRATCH_KEPT {
            self.scratch = Vec::new();
        }
        let stored = Stored::Done {
            cas: head.cas,
            len: data.len(),
        };
        let outcome = put.as_ref().map(|()| &stored);
        self.note_stored((Mode::Set, key), head.expires, data.len(), outcome);
        put?;
        self.wrote();
        self.tally.one(Count::TotalItems);
        Ok(head.cas)
    }

    /// `set` and its kin.
    pub(crate) fn store(&mut self, new: &New<'_>) -> Result<Stored> {
        self.tally.one(Count::CmdSet);
        self.note_sets(std::iter::once(new.key));
        let mut head = Head {
            cas: new.version.unwrap_or(0),
            flags: new.flags,
            expires: new.expires,
            is_binary_key: new.is_binary_key,
            ..Head::default()
        };
        if new.mode == Mode::Set {
            let cas = self.put(new.key, head, new.data)?;
            let len = new.data.len();
            return Ok(Stored::Done { cas, len });
        }
        let next = self.version();
        let limit = self.service.item_size_max();
        let mut stored = Stored::Refused;
        let changed = self.change(new.key, |present, built| {
            let joins = matches!(new.mode, Mode::Append | Mode::Prepend);
            stored = match (new.mode, present) {
                (Mode::Add, Some(_)) | (Mode::Replace, None) => Stored::Refused,
                (Mode::Cas, None) => Stored::NotFound,
                (Mode::Append | Mode::Prepend, None) if !new.vivify => Stored::Refused,
                (Mode::Cas | Mode::Append | Mode::Prepend, Some(item)) => match new.compare {
                    Some(cas) if cas != item.head.cas => {
                        head.is_stale = new.may_be_stale && cas != 0 && cas < item.head.cas;
                        if head.is_stale {
                            // It is as late as what it replaces, and whoever was told to bring a new one still is.
                            (head.expires, head.is_won) = (item.head.expires, item.head.is_won);
                            Stored::Done { cas: 0, len: 0 }
                        } else {
                            Stored::Exists
                        }
                    }
                    _ => Stored::Done { cas: 0, len: 0 },
                },
                _ => Stored::Done { cas: 0, len: 0 },
            };
            if !matches!(stored, Stored::Done { .. }) {
                return Change::Keep;
            }
            let there = present.map_or(&b""[..], |item| item.data);
            if let (true, Some(item)) = (joins, present) {
                (head.flags, head.expires) = (item.head.flags, item.head.expires);
            }
            let (before, behind) = match new.mode {
                Mode::Append => (there, new.data),
                Mode::Prepend => (new.data, there),
                _ => (&b""[..], new.data),
            };
            let len = before.len() + behind.len();
            if joins && size(new.key.len(), head.flags, len) > limit {
                stored = Stored::Refused;
                return Change::Keep;
            }
            let above = present.map_or(0, |item| item.head.cas.wrapping_add(1));
            head.cas = new.version.unwrap_or(next.max(above));
            head.write(built);
            built.extend_from_slice(before);
            built.extend_from_slice(behind);
            stored = Stored::Done { cas: head.cas, len };
            Change::Put
        });
        let len = match stored {
            Stored::Done { len, .. } => len,
            _ => new.data.len(),
        };
        let outcome = changed.as_ref().map(|()| &stored);
        self.note_stored((new.mode, new.key), head.expires, len, outcome);
        changed?;
        if let Stored::Done { .. } = stored {
            self.tally.one(Count::TotalItems);
        }
        if new.mode == Mode::Cas {
            self.tally.one(match stored {
                Stored::Done { .. } => Count::CasHits,
                Stored::NotFound => Count::CasMisses,
                _ => Count::CasBadval,
            });
        }
        Ok(stored)
    }

    /// Removes, by a command of this word; `None`: nothing was there; `Some(false)`: another version.
    pub(crate) fn remove(
        &mut self,
        key: &[u8],
        compare: Option<u64>,
        command: &str,
    ) -> Result<Option<bool>> {
        if self.service.watchers.want(DETAIL) {
            self.service.detail.note(key, Done::Delete);
        }
        let now = self.now;
        let (mut removed, mut sight) = (None, Sight::NotFound);
        self.service.engine.update(key, &mut |present| {
            // What is no item goes as well.
            let Some(value) = present else {
                return Edit::Keep;
            };
            let item = Item::decode(value);
            let head = item.map_or(Head::default(), |item| item.head);
            let len = item.map_or(0, |item| item.data.len());
            sight = Sight::of(Some(len), !head.is_over(now));
            if !head.is_over(now) {
                removed = Some(compare.is_none_or(|cas| cas == head.cas));
            }
            if removed == Some(false) {
                Edit::Keep
            } else {
                Edit::Remove
            }
        })?;
        self.service.watchers.saw(key, sight, self.number);
        if removed == Some(true) {
            self.wrote();
            self.note_deleted(key, sight, command);
            self.tally.one(Count::DeleteHits);
        } else {
            self.tally.one(Count::DeleteMisses);
        }
        Ok(removed)
    }

    /// Tells those who watch of a deletion.
    pub(crate) fn note_deleted(&self, key: &[u8], sight: Sight, command: &str) {
        if let Sight::Found(len) = sight {
            self.service.watchers.deleted(key, command, len);
        }
    }

    /// Gives the item another time to live, and shows it to `show` as it was before.
    pub(crate) fn touch(
        &mut self,
        key: &[u8],
        expires: u32,
        mut show: impl FnMut(Item<'_>),
    ) -> Result<bool> {
        self.tally.one(Count::CmdTouch);
        let (mut found, mut sight) = (false, Sight::NotFound);
        self.change(key, |present, built| {
            let Some(item) = present else {
                return Change::Keep;
            };
            found = true;
            sight = Sight::Found(item.data.len());
            show(item);
            if item.head.expires == expires {
                return Change::Keep;
            }
            let head = Head {
                expires,
                ..item.head
            };
            Change::put(built, &head, item.data)
        })?;
        self.service.watchers.saw(key, sight, self.number);
        self.tally.one(if found {
            Count::TouchHits
        } else {
            Count::TouchMisses
        });
        Ok(found)
    }

    /// Adds to a number, around 2^64, or takes from it, to 0 at least. A shorter number is padded with spaces to the length
    /// that was there.
    pub(crate) fn count(&mut self, key: &[u8], step: &Step) -> Result<Counted> {
        let next = self.version();
        let fits = self.fits(key.len(), 1, DIGITS_MAX);
        let (mut counted, mut sight) = (Counted::NotFound, Sight::NotFound);
        self.change(key, |present, built| {
            let Some(item) = present else {
                let Some((number, expires)) = step.initial else {
                    return Change::Keep;
                };
                if !fits {
                    counted = Counted::TooLarge;
                    return Change::Keep;
                }
                let head = Head {
                    cas: step.version.unwrap_or(next),
                    expires,
                    ..Head::default()
                };
                head.write(built);
                number::push(built, number);
                counted = Counted::Done {
                    number,
                    head,
                    before: None,
                };
                return Change::Put;
            };
            sight = Sight::Found(item.data.len());
            // That nothing is no number is seen before the version is looked at.
            let is_other = step.compare.is_some_and(|cas| cas != item.head.cas);
            if is_other && !item.data.is_empty() {
                counted = Counted::Exists;
                return Change::Keep;
            }
            let Some(there) = number_at_front(item.data) else {
                counted = Counted::NoNumber;
                return Change::Keep;
            };
            let number = if step.up {
                there.wrapping_add(step.delta)
            } else {
                there.saturating_sub(step.delta)
            };
            let head = Head {
                cas: step
                    .version
                    .unwrap_or(next.max(item.head.cas.wrapping_add(1))),
                expires: step.expires.unwrap_or(item.head.expires),
                ..item.head
            };
            head.write(built);
            let start = built.len();
            number::push(built, number);
            let len = (built.len() - start).max(item.data.len());
            built.resize(start + len, b' ');
            counted = Counted::Done {
                number,
                head,
                before: Some(item.head.expires),
            };
            Change::Put
        })?;
        self.service.watchers.saw(key, sight, self.number);
        if let (Counted::Done { number, head, .. }, Sight::NotFound) = (counted, sight) {
            let len = number.checked_ilog10().unwrap_or(0) as usize + 1;
            let stored = Stored::Done { cas: head.cas, len };
            self.note_stored((Mode::Add, key), head.expires, len, Ok(&stored));
        }
        let is_hit = matches!(counted, Counted::Done { .. });
        if is_hit || counted == Counted::NotFound {
            self.tally.one(match (step.up, is_hit) {
                (true, true) => Count::IncrHits,
                (true, false) => Count::IncrMisses,
                (false, true) => Count::DecrHits,
                (false, false) => Count::DecrMisses,
            });
        }
        Ok(counted)
    }

    /// The line that tells a client of an engine's error, without its end.
    pub(crate) fn error_line(&mut self, error: &Error) -> Cow<'static, str> {
        self.service.trouble.note(error);
        if error.kind() == Kind::Full {
            self.tally.one(Count::StoreNoMemory);
            if self.service.engine.as_persistent().is_none() {
                return Cow::Borrowed("SERVER_ERROR out of memory storing object");
            }
        }
        if error.kind() == Kind::TooLarge {
            return Cow::Borrowed("SERVER_ERROR object too large for cache");
        }
        Cow::Owned(refusal(error))
    }
}

/// What a client learns of a failure: nothing of where files lie. That is the operator's, who has the event.
fn refusal(error: &Error) -> String {
    let mut line = match error.path() {
        None => format!("SERVER_ERROR {error}"),
        Some(_) => format!("SERVER_ERROR {}: {}", error.kind().word(), error.what()),
    };
    // A message has one line; if a name in it had more, the protocol must not break.
    line.retain(|c| c != '\r' && c != '\n');
    line
}

/// Bytes of an item, as memcached counts them.
#[inline]
fn size(key_len: usize, flags: u32, data_len: usize) -> u64 {
    let beside = 59 + if flags == 0 { 0 } else { 4 };
    (key_len + data_len) as u64 + beside
}

/// The number data begins with: before it space may stand, behind it nothing, or space and anything.
fn number_at_front(data: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| number::is_space(*byte);
    let start = data.iter().position(|byte| !is_space(byte))?;
    number::loose(data.get(start..)?.split(is_space).next()?)
}

/// The record was not written by this server.
#[cold]
pub(crate) fn no_item(key: &[u8]) -> Error {
    Error::new(Kind::Corrupted, "the record's value is no item")
        .key(key)
        .remedy("set or delete it, if this file is the server's")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_does_not_learn_where_files_lie() {
        let place = "/srv/secret/records.azh";
        let error = Error::new(Kind::Io, "cannot write the log")
            .at(place)
            .detail(format!("{place} is gone"))
            .remedy(format!("run `azekura check {place}`"));
        assert_eq!(refusal(&error), "SERVER_ERROR io: cannot write the log");
        let error = Error::new(Kind::Corrupted, "no item").remedy("set or\r\n delete it");
        let whole = "SERVER_ERROR corrupted: no item; set or delete it";
        assert_eq!(refusal(&error), whole);
    }
}
