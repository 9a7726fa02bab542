//! Records in order: scans, a leaf at a time, and cursors, a record at a time.
//!
//! A leaf is copied as it was at one moment (`node::tree`), then shown. It holds nothing while it shows a record but a pin, for the
//! runs of values. What is damaged is shown to who asked for that, and passed by where its neighbours are known.

use super::{Core, is_damage};
use crate::engine::{Bookmark, Cursor, Damaged, Visit};
use crate::error::{Error, Kind, Result};
use crate::log::manifest::remedy;
use crate::node::tree::{Begin, LeafCopy, Looked, Place};
use crate::record::key_bookmark;
use crate::room;

/// Entries of the first leaf that are copied: who breaks off early should not pay for all of it.
const FIRST: usize = 8;

impl Core {
    fn start(key: &[u8], is_after: bool) -> Result<Begin> {
        let key = room::copy(key)?;
        Ok(if is_after {
            Begin::After(key)
        } else {
            Begin::At(key)
        })
    }

    /// Moves a walk on. `Corrupted` where that is not after it.
    fn go_to(&self, from: &mut Begin, next: Begin) -> Result<()> {
        if from.is_before(&next, self.tree.order) {
            *from = next;
            return Ok(());
        }
        let storage = self.log.storage();
        Err(
            Error::new(Kind::Corrupted, "pages have their keys out of order")
                .at(storage.path())
                .remedy(remedy(&**storage)),
        )
    }

    /// The value of an entry of a copied leaf.
    fn value_of(&self, key: &[u8], place: Place, value: &[u8], into: &mut Vec<u8>) -> Result<()> {
        into.clear();
        match place {
            Place::Copied(_) => {
                room::more(into, value.len())?;
                into.extend_from_slice(value);
            }
            Place::Outside(word) => {
                *into = self.read_run(word).map_err(|error| error.key(key))?;
            }
        }
        Ok(())
    }

    /// Records in order.
    pub(super) fn walk(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let mut from = match from.map(key_bookmark::decode).transpose()? {
            None => Begin::First,
            Some((key, is_after)) => Self::start(key, is_after)?,
        };
        let mut copy = LeafCopy::default();
        let mut large;
        let mut most = FIRST;
        loop {
            let _pin = self.log.pin();
            let looked = match self.tree.take_from(&from, most, &mut copy) {
                Err(error) if is_damage(&error) => {
                    damaged(error)?;
                    match self.tree.end_of_unreadable(&from)? {
                        Some(fence) => Looked::Beyond(fence),
                        None => Looked::End,
                    }
                }
                looked => looked?,
            };
            match looked {
                Looked::End => return Ok(None),
                Looked::Beyond(fence) => self.go_to(&mut from, Begin::At(fence))?,
                Looked::Records => {
                    for at in 0..copy.count() {
                        let Some((key, place, value)) = copy.entry(at) else {
                            break;
                        };
                        let value = match place {
                            Place::Copied(_) => value,
                            Place::Outside(word) => match self.read_run(word) {
                                Ok(read) => {
                                    large = read;
                                    &large
                                }
                                Err(error) => {
                                    damaged(error.key(key))?;
                                    continue;
                                }
                            },
                        };
                        if visit(key, value).is_break() {
                            return key_bookmark::after(key).map(Some);
                        }
                    }
                    self.go_to(&mut from, Begin::After(copy.last_key().to_vec()))?;
                    most = usize::MAX;
                }
            }
        }
    }
}

/// A cursor: the record it is on, copied.
pub(super) struct RecordCursor<'c> {
    core: &'c Core,
    copy: LeafCopy,
    key: Vec<u8>,
    value: Vec<u8>,
    is_placed: bool,
}

impl<'c> RecordCursor<'c> {
    pub(super) fn new(core: &'c Core) -> Self {
        Self {
            core,
            copy: LeafCopy::default(),
            key: Vec::new(),
            value: Vec::new(),
            is_placed: false,
        }
    }

    /// Comes to the record that was copied.
    fn arrive(&mut self) -> Result<bool> {
        let Some((key, place, value)) = self.copy.entry(0) else {
            return Ok(false);
        };
        self.key.clear();
        room::more(&mut self.key, key.len())?;
        self.key.extend_from_slice(key);
        self.core.value_of(key, place, value, &mut self.value)?;
        self.is_placed = true;
        Ok(true)
    }

    fn forward(&mut self, mut from: Begin) -> Result<bool> {
        self.is_placed = false;
        loop {
            let _pin = self.core.log.pin();
            match self.core.tree.take_from(&from, 1, &mut self.copy)? {
                Looked::Records => return self.arrive(),
                Looked::Beyond(fence) => self.core.go_to(&mut from, Begin::At(fence))?,
                Looked::End => return Ok(false),
            }
        }
    }

    fn backward(&mut self, mut before: Option<Vec<u8>>) -> Result<bool> {
        self.is_placed = false;
        loop {
            let _pin = self.core.log.pin();
            let looked = self
                .core
                .tree
                .take_before(before.as_deref(), &mut self.copy)?;
            match looked {
                Looked::Records => return self.arrive(),
                Looked::Beyond(fence) => before = Some(fence),
                Looked::End => return Ok(false),
            }
        }
    }
}

impl Cursor for RecordCursor<'_> {
    fn first(&mut self) -> Result<bool> {
        self.forward(Begin::First)
    }

    fn last(&mut self) -> Result<bool> {
        self.backward(None)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.forward(Core::start(key, false)?)
    }

    fn next(&mut self) -> Result<bool> {
        if !self.is_placed {
            return self.first();
        }
        self.forward(Core::start(&self.key, true)?)
    }

    fn previous(&mut self) -> Result<bool> {
        if !self.is_placed {
            return self.last();
        }
        let key = std::mem::take(&mut self.key);
        self.backward(Some(key))
    }

    fn record(&self) -> Option<(&[u8], &[u8])> {
        self.is_placed.then_some((&self.key, &self.value))
    }
}
