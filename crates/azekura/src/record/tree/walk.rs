//! Records in order: scans, a leaf at a time, and cursors, a record at a time.
//!
//! A leaf is copied as it was at one moment (`node::tree`), then shown. It holds nothing while it shows a record but a pin, for the
//! runs of values. What is damaged is shown to who asked for that, and passed by where its neighbours are known.
//!
//! It walks through a [`View`].

use std::ops::ControlFlow;

use super::ahead::ReadAhead;
use super::cluster::{Cluster, cluster_of, is_long, stem_of};
use super::is_damage;
use super::layout::RunPlace;
use super::view::View;
use crate::engine::{Bookmark, Cursor, Damaged, Visit};
use crate::error::{Error, Kind, Result};
use crate::log::manifest::remedy;
use crate::node::tree::{Begin, LeafCopy, Looked, Place, To};
use crate::order::Order;
use crate::record::key_bookmark;
use crate::room;

/// Entries of the first leaf that are copied: who breaks off early should not pay for all of it.
const FIRST: usize = 8;
/// How many times as many a cursor copies when it continues in its direction.
const MORE: usize = 16;

/// Where to look for the next record.
pub(super) struct Beginning {
    /// Of which entry on.
    pub(super) from: Begin,
    /// A long key, at which to begin, or after it, should that entry be its stem's.
    bound: Option<(Vec<u8>, bool)>,
}

impl Beginning {
    pub(super) fn first() -> Self {
        Self {
            from: Begin::First,
            bound: None,
        }
    }

    /// At a key, or after it. Errors: `Full`.
    pub(super) fn of(order: Order, key: &[u8], is_after: bool) -> Result<Self> {
        let whole = room::copy(key)?;
        if is_long(order, key) {
            return Ok(Self {
                from: Begin::At(room::copy(stem_of(key))?),
                bound: Some((whole, is_after)),
            });
        }
        let from = if is_after {
            Begin::After(whole)
        } else {
            Begin::At(whole)
        };
        Ok(Self { from, bound: None })
    }

    /// What of the records with this stem comes before it: those with a lesser rest; with this rest, too, if that is stated.
    fn bound_of(&self, stem: &[u8]) -> Option<(&[u8], bool)> {
        let (key, is_after) = self.bound.as_ref()?;
        Some((key.strip_prefix(stem)?, *is_after))
    }

    /// Whether the record of a stem that is no list comes before it.
    fn passes(&self, stem: &[u8]) -> bool {
        let bound = self.bound_of(stem);
        bound.is_some_and(|(rest, is_after)| !rest.is_empty() || is_after)
    }

    /// How many members of a cluster come before it.
    fn passed(&self, view: impl View, stem: &[u8], cluster: &Cluster) -> Result<usize> {
        let Some((rest, is_after)) = self.bound_of(stem) else {
            return Ok(0);
        };
        let (at, is_there) = cluster.find(rest, &|word| view.value_outside(word))?;
        Ok(at + usize::from(is_there && is_after))
    }
}

/// Shows the records of a copied leaf, in order; of a value that cannot be read, the error. A list that cannot be read is shown as one
/// record, of its stem. Whether `show` broke it off.
pub(super) fn show_copied(
    view: impl View,
    copy: &LeafCopy,
    beginning: &Beginning,
    show: &mut impl FnMut(&[u8], Result<&[u8]>) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    for at in 0..copy.count() {
        let Some((key, place, value)) = copy.entry(at) else {
            break;
        };
        let shown = match place {
            _ if beginning.passes(key) && !is_list(place) => continue,
            Place::Copied(_) => show(key, Ok(value))?,
            Place::Outside(word) if is_list(place) => {
                show_members(view, (key, word), beginning, show)?
            }
            Place::Outside(word) => match view.value_outside(word) {
                Ok(value) => show(key, Ok(&value))?,
                Err(error) => show(key, Err(error.key(key)))?,
            },
        };
        if shown.is_break() {
            return Ok(shown);
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn is_list(place: Place) -> bool {
    matches!(place, Place::Outside(word) if RunPlace(word).is_list())
}

#[cold]
fn show_members(
    view: impl View,
    (stem, word): (&[u8], u64),
    beginning: &Beginning,
    show: &mut impl FnMut(&[u8], Result<&[u8]>) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    let read = cluster_of(view, stem, word)
        .and_then(|cluster| Ok((beginning.passed(view, stem, &cluster)?, cluster)));
    let (from, cluster) = match read {
        Ok(read) => read,
        Err(error) => return show(stem, Err(error.key(stem))),
    };
    for at in from..cluster.count() {
        let shown = match cluster.record(at, &|word| view.value_outside(word)) {
            Ok(None) => break,
            Ok(Some((rest, value))) => show(&room::concat(&[stem, &rest])?, Ok(&value))?,
            Err(error) => {
                let key = room::concat(&[stem, cluster.beginning(at)])?;
                show(&key, Err(error.key(&key)))?
            }
        };
        if shown.is_break() {
            return Ok(shown);
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn order_of(view: impl View) -> Order {
    view.core().tree.order
}

/// Moves a walk on. `Corrupted` where that is not after it.
pub(super) fn advance(view: impl View, from: &mut Begin, next: Begin) -> Result<()> {
    if from.is_before(&next, order_of(view)) {
        *from = next;
        return Ok(());
    }
    Err(out_of_order(view))
}

fn go_to(view: impl View, beginning: &mut Beginning, next: Begin) -> Result<()> {
    beginning.bound = None;
    advance(view, &mut beginning.from, next)
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
    let order = order_of(view);
    let mut beginning = match from.map(key_bookmark::decode).transpose()? {
        None => Beginning::first(),
        Some((key, is_after)) => Beginning::of(order, key, is_after)?,
    };
    let mut copy = LeafCopy::default();
    let mut most = FIRST;
    let mut ahead = ReadAhead::default();
    loop {
        let _pin = view.core().log.pin();
        let looked = match view.take_from(&beginning.from, most, &mut copy) {
            Err(error) if is_damage(&error) => {
                damaged(error)?;
                match view.end_of_unreadable(&beginning.from)? {
                    Some(fence) => Looked::Beyond(fence),
                    None => Looked::End,
                }
            }
            looked => looked?,
        };
        match looked {
            Looked::End => return Ok(None),
            Looked::Beyond(fence) => {
                go_to(view, &mut beginning, Begin::At(fence))?;
                ahead.enter(view, beginning.from.to(), true);
            }
            Looked::Records => {
                let mut stopped = None;
                let shown = show_copied(view, &copy, &beginning, &mut |key, value| match value {
                    Ok(value) => {
                        let shown = visit(key, value);
                        if shown.is_break() {
                            stopped = Some(key_bookmark::after(key)?);
                        }
                        Ok(shown)
                    }
                    Err(error) if is_damage(&error) => {
                        damaged(error)?;
                        Ok(ControlFlow::Continue(()))
                    }
                    Err(error) => Err(error),
                })?;
                if shown.is_break() {
                    return Ok(stopped);
                }
                go_to(view, &mut beginning, Begin::After(copy.last_key().to_vec()))?;
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
    /// If that is a list, its members, and which of them it is on.
    members: Option<(Cluster, usize)>,
    /// How many entries are copied at the next look in this direction.
    most: usize,
    is_rising: bool,
    ahead: ReadAhead,
    key: Vec<u8>,
    value: Vec<u8>,
    is_placed: bool,
}

/// Which record of an entry a cursor comes to.
#[derive(Clone, Copy)]
enum Which<'k> {
    First,
    Last,
    /// The first from there on.
    From(&'k Beginning),
    /// The last before this key.
    Before(&'k [u8]),
}

impl<V: View> RecordCursor<V> {
    pub(super) fn new(view: V) -> Self {
        Self {
            view,
            copy: LeafCopy::default(),
            at: 0,
            members: None,
            most: 1,
            is_rising: true,
            ahead: ReadAhead::default(),
            key: Vec::new(),
            value: Vec::new(),
            is_placed: false,
        }
    }

    /// Comes to a record of an entry of the copy, if there is such a one.
    fn arrive(&mut self, at: usize, which: Which<'_>) -> Result<bool> {
        self.is_placed = false;
        self.members = None;
        let Some((key, place, value)) = self.copy.entry(at) else {
            return Ok(false);
        };
        if is_list(place) {
            return self.arrive_in_list(at, which);
        }
        if matches!(which, Which::From(beginning) if beginning.passes(key)) {
            return Ok(false);
        }
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

    #[cold]
    fn arrive_in_list(&mut self, at: usize, which: Which<'_>) -> Result<bool> {
        let view = self.view;
        let Some((stem, Place::Outside(word), _)) = self.copy.entry(at) else {
            return Ok(false);
        };
        let cluster = cluster_of(view, stem, word)?;
        let of_stem = |error: Error| error.key(stem);
        let place = match which {
            Which::First => 0,
            Which::From(beginning) => beginning.passed(view, stem, &cluster).map_err(of_stem)?,
            Which::Last => cluster.count().wrapping_sub(1),
            Which::Before(key) => {
                let end = match key.strip_prefix(stem) {
                    Some(rest) => {
                        let find = cluster.find(rest, &|word| view.value_outside(word));
                        find.map_err(of_stem)?.0
                    }
                    None => cluster.count(),
                };
                end.wrapping_sub(1)
            }
        };
        self.at = at;
        self.arrive_at_member(cluster, place)
    }

    fn arrive_at_member(&mut self, cluster: Cluster, place: usize) -> Result<bool> {
        let view = self.view;
        let stem = self.copy.entry(self.at).map_or(&[][..], |entry| entry.0);
        let record = cluster.record(place, &|word| view.value_outside(word));
        let Some((rest, value)) = record.map_err(|error| error.key(stem))? else {
            return Ok(false);
        };
        self.key = room::concat(&[stem, &rest])?;
        self.value = value;
        self.members = Some((cluster, place));
        self.is_placed = true;
        Ok(true)
    }

    /// How many entries to copy: one, and ever more where the cursor continues in one direction.
    fn most(&mut self, continues: bool, is_rising: bool) -> usize {
        self.most = if continues && is_rising == self.is_rising {
            self.most.saturating_mul(MORE)
        } else {
            self.ahead = ReadAhead::default();
            1
        };
        self.is_rising = is_rising;
        self.most
    }

    fn forward(&mut self, mut beginning: Beginning, continues: bool) -> Result<bool> {
        self.is_placed = false;
        let most = self.most(continues, true);
        loop {
            let view = self.view;
            let _pin = view.core().log.pin();
            match view.take_from(&beginning.from, most, &mut self.copy)? {
                Looked::Records => {
                    if self.arrive(0, Which::From(&beginning))? {
                        return Ok(true);
                    }
                    let Some((key, ..)) = self.copy.entry(0) else {
                        return Ok(false);
                    };
                    go_to(view, &mut beginning, Begin::After(room::copy(key)?))?;
                }
                Looked::Beyond(fence) => {
                    go_to(view, &mut beginning, Begin::At(fence))?;
                    self.ahead.enter(view, beginning.from.to(), true);
                }
                Looked::End => return Ok(false),
            }
        }
    }

    fn backward(&mut self, mut before: Option<Vec<u8>>, continues: bool) -> Result<bool> {
        self.is_placed = false;
        let most = self.most(continues, false);
        // A fence that is the leaf's first key leads to the one before it at once.
        let mut leaves_leaf = continues && self.copy.is_from_start();
        loop {
            let view = self.view;
            let _pin = view.core().log.pin();
            let next = match view.take_before(before.as_deref(), most, &mut self.copy)? {
                Looked::Records => {
                    if std::mem::take(&mut leaves_leaf) {
                        self.ahead.enter(view, To::Before(before.as_deref()), false);
                    }
                    let which = before.as_deref().map_or(Which::Last, Which::Before);
                    if self.arrive(self.copy.count().saturating_sub(1), which)? {
                        return Ok(true);
                    }
                    room::copy(self.copy.last_key())?
                }
                Looked::Beyond(fence) => {
                    leaves_leaf = false;
                    self.ahead.enter(view, To::Before(Some(&fence)), false);
                    fence
                }
                Looked::End => return Ok(false),
            };
            let order = order_of(view);
            if (before.as_ref()).is_some_and(|before| order.compare(&next, before).is_ge()) {
                return Err(out_of_order(view));
            }
            before = Some(next);
        }
    }

    /// Comes to the copied neighbour, if there is one, and it counts.
    fn step(&mut self, is_rising: bool) -> Result<bool> {
        let view = self.view;
        let _pin = view.core().log.pin();
        if !view.is_as_copied(&self.copy) {
            return Ok(false);
        }
        let of = |at: usize| {
            if is_rising {
                at.checked_add(1)
            } else {
                at.checked_sub(1)
            }
        };
        if let Some((cluster, place)) = self.members.take()
            && let Some(place) = of(place)
            && place < cluster.count()
        {
            self.is_placed = false;
            return self.arrive_at_member(cluster, place);
        }
        let which = if is_rising { Which::First } else { Which::Last };
        match of(self.at) {
            Some(at) if at < self.copy.count() => self.arrive(at, which),
            _ => Ok(false),
        }
    }
}

impl<V: View> Cursor for RecordCursor<V> {
    fn first(&mut self) -> Result<bool> {
        self.forward(Beginning::first(), false)
    }

    fn last(&mut self) -> Result<bool> {
        self.backward(None, false)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.forward(Beginning::of(order_of(self.view), key, false)?, false)
    }

    fn next(&mut self) -> Result<bool> {
        if !self.is_placed {
            return self.first();
        }
        if self.step(true)? {
            return Ok(true);
        }
        self.forward(Beginning::of(order_of(self.view), &self.key, true)?, true)
    }

    fn previous(&mut self) -> Result<bool> {
        if !self.is_placed {
            return self.last();
        }
        if self.step(false)? {
            return Ok(true);
        }
        let key = std::mem::take(&mut self.key);
        self.backward(Some(key), true)
    }

    fn record(&self) -> Option<(&[u8], &[u8])> {
        self.is_placed.then_some((&self.key, &self.value))
    }
}
