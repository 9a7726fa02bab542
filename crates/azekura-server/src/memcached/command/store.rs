//! Storing: `set` and the commands like it, in every protocol, as one write of the engine.
//!
//! A plain `set` is put without a read; all others decide under the record's lock by the item that is present. An item
//! that is too large removes what it would have replaced. It knows no grammar.

use azekura::engine::Edit;
use azekura::error::Result;

use super::executor::{Change, Executor, SCRATCH_KEPT, size};
use crate::item::Head;
use crate::memcached::operate::counters::Count;
use crate::memcached::operate::watchers::MUTATIONS;
use crate::memcached::protocol::text::Mode;

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

impl Executor {
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
                            // It keeps the expiry of what it replaces, and the client that won the right to recache keeps that.
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
            let (before, after) = match new.mode {
                Mode::Append => (there, new.data),
                Mode::Prepend => (new.data, there),
                _ => (&b""[..], new.data),
            };
            let len = before.len() + after.len();
            if joins && size(new.key.len(), head.flags, len) > limit {
                stored = Stored::Refused;
                return Change::Keep;
            }
            let above = present.map_or(0, |item| item.head.cas.wrapping_add(1));
            head.cas = new.version.unwrap_or(next.max(above));
            head.write(built);
            built.extend_from_slice(before);
            built.extend_from_slice(after);
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
}
