//! The records of an ordered store between two keys, one after the other from either end.
//!
//! Each is a copy; they are of one moment if they are of a snapshot. What is left lies between the last that was taken from the front and the last that was
//! taken from the back, so a record is shown once, and none that others put beyond the ends. It holds a cursor for each end, and knows
//! no engine.

use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

use crate::engine::Cursor;
use crate::error::Result;
use crate::order::{Order, bounds_of, check_range, is_from, is_up_to, key_of};

/// A cursor, and whether it was placed.
struct Side<'d> {
    cursor: Box<dyn Cursor + 'd>,
    is_placed: bool,
}

impl<'d> Side<'d> {
    fn new(cursor: Box<dyn Cursor + 'd>) -> Self {
        Self {
            cursor,
            is_placed: false,
        }
    }
}

/// Copies of the records in a range of keys, in order, from either end. An error ends it.
pub struct Range<'d> {
    order: Order,
    front: Side<'d>,
    back: Side<'d>,
    /// What is left: each record that was taken is beyond it.
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    is_over: bool,
}

impl<'d> Range<'d> {
    /// What a store in this order, in which two cursors go, has between two keys. `Invalid` if the range ends before it begins.
    pub(crate) fn new<K: AsRef<[u8]>>(
        [front, back]: [Box<dyn Cursor + 'd>; 2],
        order: Order,
        keys: impl RangeBounds<K>,
    ) -> Result<Self> {
        let bounds = bounds_of(&keys);
        check_range(bounds, order)?;
        let (from, to) = (bounds.0.map(<[u8]>::to_vec), bounds.1.map(<[u8]>::to_vec));
        Ok(Self {
            order,
            front: Side::new(front),
            back: Side::new(back),
            from,
            to,
            is_over: false,
        })
    }

    fn is_left(&self, key: &[u8]) -> bool {
        let (from, to) = (self.from.as_ref(), self.to.as_ref());
        let bounds = (from.map(Vec::as_slice), to.map(Vec::as_slice));
        is_from(bounds, self.order, key) && is_up_to(bounds, self.order, key)
    }

    /// Moves the front to the first record that is left; whether there is one.
    fn forward(&mut self) -> Result<bool> {
        let cursor = &mut self.front.cursor;
        if std::mem::replace(&mut self.front.is_placed, true) {
            return cursor.next();
        }
        match &self.from {
            Bound::Unbounded => cursor.first(),
            Bound::Included(from) => cursor.seek(from),
            Bound::Excluded(from) => {
                let found = cursor.seek(from)?;
                let is_at = |key: &[u8]| self.order.compare(key, from).is_eq();
                if found && cursor.record().is_some_and(|(key, _)| is_at(key)) {
                    return cursor.next();
                }
                Ok(found)
            }
        }
    }

    /// Moves the back to the last record that is left; whether there is one.
    fn backward(&mut self) -> Result<bool> {
        let cursor = &mut self.back.cursor;
        if std::mem::replace(&mut self.back.is_placed, true) {
            return cursor.previous();
        }
        let Some(to) = key_of(&self.to) else {
            return cursor.last();
        };
        let is_excluded = matches!(self.to, Bound::Excluded(_));
        let is_beyond = |key: &[u8]| {
            let compared = self.order.compare(key, to);
            compared.is_gt() || is_excluded && compared.is_eq()
        };
        // Others may put records beyond the end in between: it goes back until it is before all of them.
        let mut is_found = cursor.seek(to)? || cursor.last()?;
        while is_found && cursor.record().is_some_and(|(key, _)| is_beyond(key)) {
            is_found = cursor.previous()?;
        }
        Ok(is_found)
    }

    fn step(&mut self, is_front: bool) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let is_found = if is_front {
            self.forward()
        } else {
            self.backward()
        }?;
        let side = if is_front { &self.front } else { &self.back };
        let record = side.cursor.record().filter(|_| is_found);
        let record = record.filter(|(key, _)| self.is_left(key));
        let Some((key, value)) = record.map(|(key, value)| (key.to_vec(), value.to_vec())) else {
            return Ok(None);
        };
        let taken = Bound::Excluded(key.clone());
        if is_front {
            self.from = taken;
        } else {
            self.to = taken;
        }
        Ok(Some((key, value)))
    }

    fn take(&mut self, is_front: bool) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        if self.is_over {
            return None;
        }
        let record = self.step(is_front).transpose();
        self.is_over = !matches!(record, Some(Ok(_)));
        record
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(true)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(false)
    }
}

impl FusedIterator for Range<'_> {}
