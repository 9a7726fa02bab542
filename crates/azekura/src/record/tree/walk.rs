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
/// How many times as many a cursor copies when it continues in its direction.
const MORE: usize = 16;

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
        Err(self.out_of_order())
    }

    fn out_of_order(&self) -> Error {
        let storage = self.log.storage();
        Error::new(Kind::Corrupted, "pages have their keys out of order")
            .at(storage.path())
            .remedy(remedy(&**storage))
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

/// A cursor: the record it is on, copied, and some after it in the direction in which it goes. They count while their leaf is as it
/// was; else the cursor looks again.
pub(super) struct RecordCursor<'c> {
    core: &'c Core,
    copy: LeafCopy,
    /// Which entry of the copy it is on.
    at: usize,
    /// How many entries are copied at the next look in this direction.
    most: usize,
    is_rising: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    is_placed: bool,
}

impl<'c> RecordCursor<'c> {
    pub(super) fn new(core: &'c Core) -> Self {
        Self {
            core,
            copy: LeafCopy::default(),
            at: 0,
            most: 1,
            is_rising: true,
            key: Vec::new(),
            value: Vec::new(),
            is_placed: false,
        }
    }

    /// Comes to an entry of the copy.
    fn arrive(&mut self, at: usize) -> Result<bool> {
        self.is_placed = false;
        let Some((key, place, value)) = self.copy.entry(at) else {
            return Ok(false);
        };
        self.key.clear();
        room::more(&mut self.key, key.len())?;
        self.key.extend_from_slice(key);
        self.core.value_of(key, place, value, &mut self.value)?;
        self.at = at;
        self.is_placed = true;
        Ok(true)
    }

    /// How many entries to copy: one, and ever more where the cursor continues in one direction.
    fn most(&mut self, continues: bool, is_rising: bool) -> usize {
        self.most = if continues && is_rising == self.is_rising {
            self.most.saturating_mul(MORE)
        } else {
            1
        };
        self.is_rising = is_rising;
        self.most
    }

    fn forward(&mut self, mut from: Begin, continues: bool) -> Result<bool> {
        self.is_placed = false;
        let most = self.most(continues, true);
        loop {
            let _pin = self.core.log.pin();
            match self.core.tree.take_from(&from, most, &mut self.copy)? {
                Looked::Records => return self.arrive(0),
                Looked::Beyond(fence) => self.core.go_to(&mut from, Begin::At(fence))?,
                Looked::End => return Ok(false),
            }
        }
    }

    fn backward(&mut self, mut before: Option<Vec<u8>>, continues: bool) -> Result<bool> {
        self.is_placed = false;
        let most = self.most(continues, false);
        loop {
            let _pin = self.core.log.pin();
            let tree = &self.core.tree;
            match tree.take_before(before.as_deref(), most, &mut self.copy)? {
                Looked::Records => return self.arrive(self.copy.count().saturating_sub(1)),
                Looked::Beyond(fence) => {
                    let order = self.core.tree.order;
                    if (before.as_ref()).is_some_and(|before| order.compare(&fence, before).is_ge())
                    {
                        return Err(self.core.out_of_order());
                    }
                    before = Some(fence);
                }
                Looked::End => return Ok(false),
            }
        }
    }

    /// Comes to the copied neighbour, if there is one, and it counts.
    fn step(&mut self, at: Option<usize>) -> Result<bool> {
        let _pin = self.core.log.pin();
        match at {
            Some(at) if at < self.copy.count() && self.core.tree.is_as_copied(&self.copy) => {
                self.arrive(at)
            }
            _ => Ok(false),
        }
    }
}

impl Cursor for RecordCursor<'_> {
    fn first(&mut self) -> Result<bool> {
        self.forward(Begin::First, false)
    }

    fn last(&mut self) -> Result<bool> {
        self.backward(None, false)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.forward(Core::start(key, false)?, false)
    }

    fn next(&mut self) -> Result<bool> {
        if !self.is_placed {
            return self.first();
        }
        if self.step(self.at.checked_add(1))? {
            return Ok(true);
        }
        self.forward(Core::start(&self.key, true)?, true)
    }

    fn previous(&mut self) -> Result<bool> {
        if !self.is_placed {
            return self.last();
        }
        if self.step(self.at.checked_sub(1))? {
            return Ok(true);
        }
        let key = std::mem::take(&mut self.key);
        self.backward(Some(key), true)
    }

    fn record(&self) -> Option<(&[u8], &[u8])> {
        self.is_placed.then_some((&self.key, &self.value))
    }
}
