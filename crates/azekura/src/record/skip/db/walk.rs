//! Records in order: those of the sorted file and of the layers over it, merged as they are shown.
//!
//! A walk holds one view from its first record to its last: a merge meanwhile changes no answer, and edits show up as long as they
//! come to its active layer. A cursor holds its key alone, and finds the record next to it anew at each step, in the view of that
//! moment: a step costs a lookup in each layer. Damage of the sorted file is reported as its own scans report it.
//!
//! It does not know how edits come about.

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::Core;
use super::layers::{PendingEdit, View};
use crate::engine::{Cursor, Damaged, Ordered as _, Reader as _, Visit};
use crate::error::Result;
use crate::order::Order;
use crate::record::key_bookmark;
use crate::record::skip::cursor::SkipCursor;
use crate::record::skip::reduce::Reducer;
use crate::room;

/// A key, and whether a place is after it.
pub(super) type WalkFrom<'k> = (&'k [u8], bool);

/// The entries of layers in order.
struct PendingWalk<'v> {
    order: Order,
    reducer: &'v Reducer,
    /// From the top.
    layers: Vec<Box<dyn Cursor + 'v>>,
}

impl<'v> PendingWalk<'v> {
    /// At the first entry from a place on.
    fn start(view: &'v View, reducer: &'v Reducer, from: Option<WalkFrom<'_>>) -> Result<Self> {
        let mut layers = Vec::new();
        for layer in view.layers().0 {
            let mut cursor = layer.entries.cursor();
            match from {
                None => cursor.first()?,
                Some((key, is_after)) => {
                    let is_there = cursor.seek(key)?;
                    let is_at_key = cursor.record().is_some_and(|(found, _)| found == key);
                    if is_after && is_at_key {
                        cursor.next()?
                    } else {
                        is_there
                    }
                }
            };
            layers.push(cursor);
        }
        Ok(Self {
            order: view.base.order(),
            reducer,
            layers,
        })
    }

    /// The least key that a layer is at.
    fn key(&self) -> Option<&[u8]> {
        let keys = self.layers.iter().filter_map(|layer| layer.record());
        let keys = keys.map(|(key, _)| key);
        keys.min_by(|a, b| self.order.compare(a, b))
    }

    /// What the layers have of `key`, if they are at it.
    fn entry(&self, key: &[u8]) -> Result<Option<PendingEdit<'_>>> {
        entry_of(&self.layers, key, self.reducer)
    }

    /// Moves on past `key`.
    fn advance(&mut self, key: &[u8]) -> Result<()> {
        for layer in &mut self.layers {
            if layer.record().is_some_and(|(found, _)| found == key) && !layer.next()? {
                // From no record the next one is the first.
                *layer = Box::new(AtEnd);
            }
        }
        Ok(())
    }

    /// Shows the entries before `until`, or all, that are records without a base; `true`: it was broken off.
    fn show_before(
        &mut self,
        until: Option<&[u8]>,
        own: &mut Vec<u8>,
        visit: &mut Visit<'_>,
    ) -> Result<bool> {
        while let Some(key) = self.key() {
            if until.is_some_and(|until| self.order.compare(key, until).is_ge()) {
                break;
            }
            copy_to(own, key)?;
            let value = match self.entry(own)? {
                // The record that it adds to is in a block that is damaged, which was reported.
                Some(entry) if entry.needs_base() => None,
                Some(entry) => entry.over_base(None, self.reducer)?,
                None => None,
            };
            let flow = value.map_or(ControlFlow::Continue(()), |value| visit(own, &value));
            self.advance(own)?;
            if flow.is_break() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What the layers that are at `key` have of it, from the top.
fn entry_of<'l>(
    layers: &'l [Box<dyn Cursor + '_>],
    key: &[u8],
    reducer: &Reducer,
) -> Result<Option<PendingEdit<'l>>> {
    let mut entry: Option<PendingEdit<'_>> = None;
    for layer in layers.iter().rev() {
        if let Some((_, bytes)) = layer.record().filter(|(found, _)| *found == key) {
            entry = Some(PendingEdit::decode(bytes).over(entry, reducer)?);
        }
    }
    Ok(entry)
}

/// A cursor that has passed its last record.
struct AtEnd;

impl Cursor for AtEnd {
    fn first(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn last(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn seek(&mut self, _: &[u8]) -> Result<bool> {
        Ok(false)
    }
    fn next(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn previous(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn record(&self) -> Option<(&[u8], &[u8])> {
        None
    }
}

fn copy_to(own: &mut Vec<u8>, key: &[u8]) -> Result<()> {
    own.clear();
    room::more(own, key.len())?;
    own.extend_from_slice(key);
    Ok(())
}

impl View {
    /// Shows records in order from a place on, until `visit` breaks; whether it did. Errors: what `damaged` returns.
    pub(super) fn walk(
        &self,
        reducer: &Reducer,
        from: Option<WalkFrom<'_>>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<bool> {
        let mut pending = PendingWalk::start(self, reducer, from)?;
        let mut own = Vec::new();
        let mut ended = Ok(false);
        if self.layers().1 {
            let from = match from {
                Some((key, true)) => Some(key_bookmark::after(key)?),
                Some((key, false)) => Some(key_bookmark::at(key)),
                None => None,
            };
            let mut show = |key: &[u8], value: &[u8]| -> Result<bool> {
                if pending.show_before(Some(key), &mut own, visit)? {
                    return Ok(true);
                }
                let Some(entry) = pending.entry(key)? else {
                    return Ok(visit(key, value).is_break());
                };
                let value = entry.over_base(Some(value), reducer)?;
                let flow = value.map_or(ControlFlow::Continue(()), |value| visit(key, &value));
                pending.advance(key)?;
                Ok(flow.is_break())
            };
            let mut show_or_end = |key: &[u8], value: &[u8]| {
                ended = show(key, value);
                match ended {
                    Ok(false) => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            };
            self.base
                .scan_past(from.as_ref(), &mut show_or_end, damaged)?;
        }
        match ended {
            Ok(false) => pending.show_before(None, &mut own, visit),
            ended => ended,
        }
    }

    /// The last record before `key`, or of all.
    fn before(&self, reducer: &Reducer, key: Option<&[u8]>) -> Result<Option<Record>> {
        let order = self.base.order();
        let (layers, has_base) = self.layers();
        let mut layers: Vec<_> = layers.map(|layer| layer.entries.cursor()).collect();
        let mut base = has_base.then(|| self.base.cursor());
        for layer in &mut layers {
            last_before(&mut **layer, key, order)?;
        }
        if let Some(base) = &mut base {
            seek_before(base, key)?;
        }
        loop {
            let keys = layers.iter().filter_map(|layer| layer.record());
            let keys = keys.map(|(key, _)| key);
            let keys = keys.chain(base.as_ref().and_then(SkipCursor::get).map(|(key, _)| key));
            let Some(key) = keys.max_by(|a, b| order.compare(a, b)) else {
                return Ok(None);
            };
            let key = room::copy(key)?;
            let entry = entry_of(&layers, &key, reducer)?;
            let stored = base.as_ref().and_then(SkipCursor::get);
            let stored = stored.filter(|(found, _)| *found == key);
            let stored = stored.map(|(_, value)| value);
            let value = match entry {
                Some(entry) => entry.over_base(stored, reducer)?.map(Cow::into_owned),
                None => stored.map(room::copy).transpose()?,
            };
            if let Some(value) = value {
                return Ok(Some((key, value)));
            }
            for layer in &mut layers {
                if layer.record().is_some_and(|(found, _)| found == key) && !layer.previous()? {
                    *layer = Box::new(AtEnd);
                }
            }
            if let Some(of_base) = &mut base
                && of_base.get().is_some_and(|(found, _)| found == key)
                && !of_base.previous()?
            {
                base = None;
            }
        }
    }
}

/// Moves to the last entry before `key`, or of all; on none if there is none. Entries may come meanwhile, also after `key`.
fn last_before(cursor: &mut dyn Cursor, key: Option<&[u8]>, order: Order) -> Result<bool> {
    let Some(key) = key else {
        return cursor.last();
    };
    // Where none is at it or after it, the previous one is the last.
    cursor.seek(key)?;
    loop {
        let is_there = cursor.previous()?;
        let is_before = |(found, _)| order.compare(found, key).is_lt();
        if !is_there || cursor.record().is_some_and(is_before) {
            return Ok(is_there);
        }
    }
}

fn seek_before(cursor: &mut SkipCursor<'_>, key: Option<&[u8]>) -> Result<bool> {
    match key {
        None => cursor.last(),
        Some(key) => cursor.seek_before(key),
    }
}

/// Key and value.
type Record = (Vec<u8>, Vec<u8>);

/// A cursor over a sorted file and its pending edits. See the module's text.
pub(super) struct PendingCursor<'d> {
    store: &'d Core,
    record: Option<Record>,
}

impl<'d> PendingCursor<'d> {
    pub(super) fn new(store: &'d Core) -> Self {
        Self {
            store,
            record: None,
        }
    }

    fn forward(&mut self, from: Option<WalkFrom<'_>>) -> Result<bool> {
        self.record = None;
        let mut found: Result<Option<Record>> = Ok(None);
        let pin = self.store.log.pin();
        let view = self.store.view.get(&pin);
        let mut take = |key: &[u8], value: &[u8]| {
            let copied = room::copy(key).and_then(|key| Ok((key, room::copy(value)?)));
            found = copied.map(Some);
            ControlFlow::Break(())
        };
        view.walk(&self.store.reducer, from, &mut take, &mut Err)?;
        self.record = found?;
        Ok(self.record.is_some())
    }

    fn backward(&mut self, before: Option<&[u8]>) -> Result<bool> {
        self.record = None;
        let pin = self.store.log.pin();
        let view = self.store.view.get(&pin);
        self.record = view.before(&self.store.reducer, before)?;
        Ok(self.record.is_some())
    }
}

impl Cursor for PendingCursor<'_> {
    fn first(&mut self) -> Result<bool> {
        self.forward(None)
    }

    fn last(&mut self) -> Result<bool> {
        self.backward(None)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.forward(Some((key, false)))
    }

    fn next(&mut self) -> Result<bool> {
        match self.record.take() {
            None => self.forward(None),
            Some((key, _)) => self.forward(Some((&key, true))),
        }
    }

    fn previous(&mut self) -> Result<bool> {
        match self.record.take() {
            None => self.backward(None),
            Some((key, _)) => self.backward(Some(&key)),
        }
    }

    fn record(&self) -> Option<(&[u8], &[u8])> {
        let (key, value) = self.record.as_ref()?;
        Some((key, value))
    }
}
