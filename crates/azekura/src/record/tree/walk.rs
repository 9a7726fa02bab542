//! Records in order: scans, a leaf at a time, and cursors, a record at a time.
//!
//! A leaf is copied as it was at one moment (`node::tree`), then shown. It holds nothing while it shows a record but a pin, for the
//! runs of values. What is damaged is shown to who asked for that, and passed by where its neighbours are known.
//!
//! It walks through a [`View`]: the store as it is, or as it was (`snapshot`).

use super::{Core, is_damage};
use crate::engine::{Bookmark, Cursor, Damaged, Visit};
use crate::error::{Error, Kind, Result};
use crate::log::manifest::remedy;
use crate::node::Node;
use crate::node::tree::{Begin, Buffer, LeafCopy, Looked, Place, Seen, To};
use crate::order::Order;
use crate::record::key_bookmark;
use crate::room;

/// Entries of the first leaf that are copied: who breaks off early should not pay for all of it.
const FIRST: usize = 8;
/// How many times as many a cursor copies when it continues in its direction.
const MORE: usize = 16;

/// What is walked through.
pub(super) trait View: Copy {
    /// Whose records they are.
    fn core(&self) -> &Core;
    /// What there is of `key`, by a thread that is pinned.
    fn see(&self, key: &[u8], buffer: &mut Buffer) -> Result<Seen>;
    /// Copies up to `most` entries from a place on.
    fn take_from(&self, from: &Begin, most: usize, copy: &mut LeafCopy) -> Result<Looked>;
    /// Copies up to `most` entries that end with the last one less than a key, or of all.
    fn take_before(&self, key: Option<&[u8]>, most: usize, copy: &mut LeafCopy) -> Result<Looked>;
    /// Whether a look at a leaf that was copied would give the same now.
    fn is_as_copied(&self, copy: &LeafCopy) -> bool;
    /// Where the smallest part ends that has a place and cannot be loaded; `None`: nowhere.
    fn end_of_unreadable(&self, from: &Begin) -> Result<Option<Vec<u8>>>;
    /// The value that a word of a leaf names.
    fn value_outside(&self, word: u64) -> Result<Vec<u8>>;
    /// What `read` sees of the leaf where a way leads.
    fn look_at<R>(&self, to: To<'_>, read: &dyn Fn(Node<'_>) -> R) -> Result<R>;
}

impl View for &Core {
    fn core(&self) -> &Core {
        self
    }

    #[inline(always)]
    fn see(&self, key: &[u8], buffer: &mut Buffer) -> Result<Seen> {
        self.tree.see(key, buffer)
    }

    fn take_from(&self, from: &Begin, most: usize, copy: &mut LeafCopy) -> Result<Looked> {
        self.tree.take_from(from, most, copy)
    }

    fn take_before(&self, key: Option<&[u8]>, most: usize, copy: &mut LeafCopy) -> Result<Looked> {
        self.tree.take_before(key, most, copy)
    }

    fn is_as_copied(&self, copy: &LeafCopy) -> bool {
        self.tree.is_as_copied(copy)
    }

    fn end_of_unreadable(&self, from: &Begin) -> Result<Option<Vec<u8>>> {
        self.tree.end_of_unreadable(from)
    }

    fn value_outside(&self, word: u64) -> Result<Vec<u8>> {
        self.read_run(word)
    }

    fn look_at<R>(&self, to: To<'_>, read: &dyn Fn(Node<'_>) -> R) -> Result<R> {
        self.tree.look_at(to, read)
    }
}

fn start(key: &[u8], is_after: bool) -> Result<Begin> {
    let key = room::copy(key)?;
    Ok(if is_after {
        Begin::After(key)
    } else {
        Begin::At(key)
    })
}

fn order_of(view: impl View) -> Order {
    view.core().tree.order
}

/// Moves a walk on. `Corrupted` where that is not after it.
pub(super) fn go_to(view: impl View, from: &mut Begin, next: Begin) -> Result<()> {
    if from.is_before(&next, order_of(view)) {
        *from = next;
        return Ok(());
    }
    Err(out_of_order(view))
}

fn out_of_order(view: impl View) -> Error {
    let storage = view.core().log.storage();
    Error::new(Kind::Corrupted, "pages have their keys out of order")
        .at(storage.path())
        .remedy(remedy(&**storage))
}

/// Records in order.
pub(super) fn walk(
    view: impl View,
    from: Option<&Bookmark>,
    visit: &mut Visit<'_>,
    damaged: &mut Damaged<'_>,
) -> Result<Option<Bookmark>> {
    let mut from = match from.map(key_bookmark::decode).transpose()? {
        None => Begin::First,
        Some((key, is_after)) => start(key, is_after)?,
    };
    let mut copy = LeafCopy::default();
    let mut large;
    let mut most = FIRST;
    loop {
        let _pin = view.core().log.pin();
        let looked = match view.take_from(&from, most, &mut copy) {
            Err(error) if is_damage(&error) => {
                damaged(error)?;
                match view.end_of_unreadable(&from)? {
                    Some(fence) => Looked::Beyond(fence),
                    None => Looked::End,
                }
            }
            looked => looked?,
        };
        match looked {
            Looked::End => return Ok(None),
            Looked::Beyond(fence) => go_to(view, &mut from, Begin::At(fence))?,
            Looked::Records => {
                for at in 0..copy.count() {
                    let Some((key, place, value)) = copy.entry(at) else {
                        break;
                    };
                    let value = match place {
                        Place::Copied(_) => value,
                        Place::Outside(word) => match view.value_outside(word) {
                            Ok(read) => {
                                large = read;
                                &large
                            }
                            Err(error) if is_damage(&error) => {
                                damaged(error.key(key))?;
                                continue;
                            }
                            Err(error) => return Err(error),
                        },
                    };
                    if visit(key, value).is_break() {
                        return key_bookmark::after(key).map(Some);
                    }
                }
                go_to(view, &mut from, Begin::After(copy.last_key().to_vec()))?;
                most = usize::MAX;
            }
        }
    }
}

/// A cursor: the record it is on, copied, and some after it in the direction in which it goes. They count while their leaf is as it
/// was; else the cursor looks again.
pub(super) struct RecordCursor<V> {
    view: V,
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

impl<V: View> RecordCursor<V> {
    pub(super) fn new(view: V) -> Self {
        Self {
            view,
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
        self.value.clear();
        match place {
            Place::Copied(_) => {
                room::more(&mut self.value, value.len())?;
                self.value.extend_from_slice(value);
            }
            Place::Outside(word) => {
                let read = self.view.value_outside(word);
                self.value = read.map_err(|error| error.key(key))?;
            }
        }
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
            let view = self.view;
            let _pin = view.core().log.pin();
            match view.take_from(&from, most, &mut self.copy)? {
                Looked::Records => return self.arrive(0),
                Looked::Beyond(fence) => go_to(view, &mut from, Begin::At(fence))?,
                Looked::End => return Ok(false),
            }
        }
    }

    fn backward(&mut self, mut before: Option<Vec<u8>>, continues: bool) -> Result<bool> {
        self.is_placed = false;
        let most = self.most(continues, false);
        loop {
            let view = self.view;
            let _pin = view.core().log.pin();
            match view.take_before(before.as_deref(), most, &mut self.copy)? {
                Looked::Records => return self.arrive(self.copy.count().saturating_sub(1)),
                Looked::Beyond(fence) => {
                    let order = order_of(view);
                    if (before.as_ref()).is_some_and(|before| order.compare(&fence, before).is_ge())
                    {
                        return Err(out_of_order(view));
                    }
                    before = Some(fence);
                }
                Looked::End => return Ok(false),
            }
        }
    }

    /// Comes to the copied neighbour, if there is one, and it counts.
    fn step(&mut self, at: Option<usize>) -> Result<bool> {
        let view = self.view;
        let _pin = view.core().log.pin();
        match at {
            Some(at) if at < self.copy.count() && view.is_as_copied(&self.copy) => self.arrive(at),
            _ => Ok(false),
        }
    }
}

impl<V: View> Cursor for RecordCursor<V> {
    fn first(&mut self) -> Result<bool> {
        self.forward(Begin::First, false)
    }

    fn last(&mut self) -> Result<bool> {
        self.backward(None, false)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.forward(start(key, false)?, false)
    }

    fn next(&mut self) -> Result<bool> {
        if !self.is_placed {
            return self.first();
        }
        if self.step(self.at.checked_add(1))? {
            return Ok(true);
        }
        self.forward(start(&self.key, true)?, true)
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
