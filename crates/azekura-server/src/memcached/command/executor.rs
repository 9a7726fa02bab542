//! Executes commands: each is one read or one update of the engine, so each is atomic.
//!
//! An [`Executor`] executes for one connection. Its buffer holds the record that is being built. A write whose request came
//! after the answer to another has the greater version, unless a client sets one by `E`; of overlapping writes of one key,
//! all but `set` set theirs under the record's lock, above the present one. An expired item is absent, and is replaced or
//! removed like one. A value that is not an item is damage: a command that reads it fails, `set` and `delete` repair it.
//! It knows no grammar and no answers, but for the text of an engine's error.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use azekura::engine::Edit;
use azekura::error::{Error, Kind, Result};

use crate::item::{Head, Item};
use crate::memcached::operate::counters::{Count, Tally};
use crate::memcached::operate::key_stats::Done;
use crate::memcached::operate::watchers::{DETAIL, Lookup};
use crate::memcached::service::Service;

/// Versions a connection takes at once, at most.
const VERSIONS_MAX: u64 = 32;
/// A buffer that grew beyond this is given back.
pub(super) const SCRATCH_KEPT: usize = 64 << 10;

/// Executes for one connection.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(crate) service: Arc<Service>,
    pub(crate) tally: Tally,
    /// The time during this call, in seconds since 1970.
    pub(crate) now: u32,
    /// Whether answers wait until what they acknowledge survives loss of power.
    pub(crate) must_sync: bool,
    /// The number of the connection, for watchers.
    pub(crate) number: i32,
    versions: Range<u64>,
    /// How many versions are taken next.
    versions_next: u64,
    pub(crate) scratch: Vec<u8>,
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

impl Executor {
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

    /// Whether an item of this size may be stored, counted as memcached counts.
    #[inline]
    pub(crate) fn fits(&self, key_len: usize, flags: u32, data_len: usize) -> bool {
        size(key_len, flags, data_len) <= self.service.item_size_max()
    }

    /// Shows `decide` the present item and an empty buffer; what it builds there is put, if it returns so.
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

    /// Removes, by a command of this word; `None`: nothing was there; `Some(false)`: another version.
    pub(crate) fn remove(
        &mut self,
        key: &[u8],
        compare: Option<u64>,
        command: &str,
    ) -> Result<Option<bool>> {
        if self.service.watchers.want(DETAIL) {
            self.service.key_stats.note(key, Done::Delete);
        }
        let now = self.now;
        let (mut removed, mut sight) = (None, Lookup::NotFound);
        self.service.engine.update(key, &mut |present| {
            // What is no item goes as well.
            let Some(value) = present else {
                return Edit::Keep;
            };
            let item = Item::decode(value);
            let head = item.map_or(Head::default(), |item| item.head);
            let len = item.map_or(0, |item| item.data.len());
            sight = Lookup::of(Some(len), !head.is_over(now));
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

    /// Gives the item another time to live, and shows it to `show` as it was before.
    pub(crate) fn touch(
        &mut self,
        key: &[u8],
        expires: u32,
        mut show: impl FnMut(Item<'_>),
    ) -> Result<bool> {
        self.tally.one(Count::CmdTouch);
        let (mut found, mut sight) = (false, Lookup::NotFound);
        self.change(key, |present, built| {
            let Some(item) = present else {
                return Change::Keep;
            };
            found = true;
            sight = Lookup::Found(item.data.len());
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

    /// `flush_all`.
    pub(crate) fn flush(&mut self, delay: i64) -> Result<&'static str> {
        if !self.service.settings.flush_enabled {
            return Ok("CLIENT_ERROR flush_all not allowed");
        }
        self.tally.one(Count::CmdFlush);
        self.wrote();
        let at = if delay > 0 {
            self.service.expires(delay)
        } else {
            0
        };
        self.service.flush(at).map(|()| "OK")
    }

    /// The line by which a client learns of an engine's error, without its end.
    pub(crate) fn error_line(&mut self, error: &Error) -> Cow<'static, str> {
        self.service.errors.note(error);
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

/// What a client learns of a failure: no paths. The log has those.
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
pub(super) fn size(key_len: usize, flags: u32, data_len: usize) -> u64 {
    let overhead = 59 + if flags == 0 { 0 } else { 4 };
    (key_len + data_len) as u64 + overhead
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
