//! Pages that are read while others are: of many keys at once, and of the leaves that a walk comes to next.
//!
//! The system reads ahead, and nothing here waits for it: a read that would wait for the device only begins there, and the page stays cold
//! until it is loaded as every page is. So nothing is held while others are read, no frame is taken for what has not come, and a small cache or a
//! failed read change nothing but the time. It does not know which pages the system's cache has: it tries.
//!
//! | who | begins to read |
//! |---|---|
//! | `read_many` | for 32 keys at a time, the first page of each way that is in no cache, or the run of its value; then it waits for one after the other, and what each needs next begins |
//! | a walk that leaves its second leaf in one direction | the next two leaves that the node above names; four, then eight, while it continues |
//!
//! What was begun and is not wanted any more costs a read. A walk of two leaves begins none.

use std::ops::Range;

use super::Core;
use super::cache::PageCache;
use super::cluster::{STEM, stem_of};
use super::is_damage;
use super::layout::{Place, RunPlace, UNIT};
use super::read::{lend, lend_seen};
use super::table::Location;
use super::view::View;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::node::tree::{Buffer, Seen, Stated, To};
use crate::room;

/// Keys whose pages are read together.
const GROUP: usize = 32;
/// How often a key is tried with a wait for what began, before it is read with all waits: more than a large tree has levels.
const ROUNDS: u32 = 8;
/// Leaves that a walk has left when it reads ahead.
const LEFT: u32 = 2;
/// Leaves that it reads ahead then, and at most.
const LEAVES: [usize; 2] = [2, 8];

impl Core {
    /// Shows the values of many keys, in any order. Damage is the error of the keys that it costs: the first is returned when all others were
    /// shown.
    pub(super) fn read_many(
        &self,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut failed = Ok(());
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            let mut visit = |at: usize, value: Option<&[u8]>| visit(group * GROUP + at, value);
            self.read_group(keys, &mut visit, &mut failed)?;
        }
        failed
    }

    fn read_group(
        &self,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
        failed: &mut Result<()>,
    ) -> Result<()> {
        if let [key] = keys {
            let shown = lend(self, key, |value| visit(0, value));
            return passing(shown, failed, key).map(drop);
        }
        let _pin = self.log.pin();
        let mut buffer = Buffer::default();
        let mut waiting = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let awaited = self.try_to_lend(key, &mut buffer, None, |value| visit(at, value));
            if let Some(Some(awaited)) = passing(awaited, failed, key)? {
                room::more(&mut waiting, 1)?;
                waiting.push((at, awaited));
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        self.read_waiting(keys, waiting, visit, failed)
    }

    /// Reads those that could not be read at once.
    #[cold]
    #[inline(never)]
    fn read_waiting(
        &self,
        keys: &[&[u8]],
        mut waiting: Vec<(usize, Awaited)>,
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
        failed: &mut Result<()>,
    ) -> Result<()> {
        let mut buffer = Buffer::default();
        for _ in 0..ROUNDS {
            let mut left = 0;
            for number in 0..waiting.len() {
                let (at, awaited) = waiting[number];
                let key = keys[at];
                let visit = |value: Option<&[u8]>| visit(at, value);
                let awaited = self.try_to_lend(key, &mut buffer, Some(awaited), visit);
                if let Some(Some(awaited)) = passing(awaited, failed, key)? {
                    waiting[left] = (at, awaited);
                    left += 1;
                }
            }
            waiting.truncate(left);
        }
        for (at, _) in waiting {
            let shown = lend(self, keys[at], |value| visit(at, value));
            passing(shown, failed, keys[at])?;
        }
        Ok(())
    }

    /// Lends the value of `key`, or its absence, to `visit`; else what that waits for, and is being read. It waits for what is `awaited`, which is
    /// being read since before, and for nothing else.
    #[inline(always)]
    fn try_to_lend(
        &self,
        key: &[u8],
        buffer: &mut Buffer,
        awaited: Option<Awaited>,
        visit: impl FnOnce(Option<&[u8]>),
    ) -> Result<Option<Awaited>> {
        let load = |number: u32, stated: &Stated<'_>| {
            let page = Awaited::Page(number);
            let may_wait = awaited == Some(page);
            match self.tree.nodes.load_if(number, stated, may_wait) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Ok(page)),
                Err(error) => Err(Err(error)),
            }
        };
        let stem = stem_of(key);
        let seen = match self.plain_tree() {
            Some(tree) => tree.see_at_once(stem, buffer, &load),
            None => self.tree.see_at_once(stem, buffer, &load),
        };
        let seen = match seen {
            Ok(Some(seen)) => seen,
            Ok(None) => return Ok(Some(Awaited::Other)),
            Err(Ok(page)) => return Ok(Some(page)),
            Err(Err(error)) => return Err(error),
        };
        match seen {
            Seen::Outside(word) if key.len() <= STEM && !RunPlace(word).is_list() => {
                let run = Awaited::Run(word);
                let Some(value) = self.read_run_if(word, awaited == Some(run))? else {
                    return Ok(Some(run));
                };
                visit(Some(&value));
            }
            seen => lend_seen(self, key, (seen, buffer), visit)?,
        }
        Ok(None)
    }
}

/// What a key waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Page(u32),
    /// That of this word.
    Run(u64),
    /// Another thread.
    Other,
}

/// What was read; `None`, if its damage costs this key, and the others are still to be shown.
#[inline(always)]
fn passing<T>(read: Result<T>, failed: &mut Result<()>, key: &[u8]) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) => pass(error, failed, key),
    }
}

#[cold]
fn pass<T>(error: Error, failed: &mut Result<()>, key: &[u8]) -> Result<Option<T>> {
    let error = error.key(key);
    if !is_damage(&error) {
        return Err(error);
    }
    if failed.is_ok() {
        *failed = Err(error);
    }
    Ok(None)
}

impl PageCache {
    /// Where a page is, if it is only there.
    pub(super) fn place_of_cold(&self, page: u32) -> Option<Place> {
        match self.table.at(page) {
            Location::Cold(place) => Some(place),
            _ => None,
        }
    }

    /// Begins to read the children of an inner node before or after the one where a way leads, by their number from there; the number of the
    /// last that there is. The node may be changed meanwhile: what it names is a hint.
    pub(super) fn read_ahead(
        &self,
        node: Node<'_>,
        (to, is_rising): (To<'_>, bool),
        children: Range<usize>,
        place_of: impl Fn(u32) -> Option<Place>,
    ) -> usize {
        let from = to.entry(node);
        let last = if is_rising {
            node.count().saturating_sub(from + 1)
        } else {
            from
        };
        let end = children.end.min(last + 1);
        let mut part = 0..0;
        for ahead in children.start..end {
            let at = if is_rising {
                from + ahead
            } else {
                from - ahead
            };
            let Some(place) = place_of(node.child(at)) else {
                continue;
            };
            let range = place.offset()..place.offset() + u64::from(place.units()) * UNIT;
            // Neighbours are one request.
            if range.start == part.end {
                part.end = range.end;
            } else if range.end == part.start {
                part.start = range.start;
            } else {
                self.begin_to_read(&part);
                part = range;
            }
        }
        self.begin_to_read(&part);
        end.saturating_sub(1)
    }

    fn begin_to_read(&self, part: &Range<u64>) {
        if !part.is_empty() {
            self.log
                .storage()
                .read_ahead(part.start, part.end - part.start);
        }
    }
}

/// How far the reads of a walk's next leaves have begun.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Leaves that it has left in its direction.
    left: u32,
    /// Leaves that it has read ahead, and has not come to.
    begun: usize,
    /// How many it reads ahead.
    wanted: usize,
}

impl ReadAhead {
    /// The walk has left a leaf, and comes to the next one, where this way leads.
    pub(super) fn enter(&mut self, view: impl View, to: To<'_>, is_rising: bool) {
        self.left = self.left.saturating_add(1);
        self.begun = self.begun.saturating_sub(1);
        if self.left < LEFT || self.begun * 2 > self.wanted {
            return;
        }
        let [least, most] = LEAVES;
        self.wanted = (self.wanted * 2).clamp(least, most);
        self.begun = view.read_ahead(to, is_rising, self.begun + 1..self.wanted + 1);
    }
}
