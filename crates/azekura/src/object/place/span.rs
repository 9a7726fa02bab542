//! Spans of units on the data device, allocation extents, and their encoding.
//!
//! | size | meaning |
//! |---|---|
//! | 8 | first unit |
//! | 4 | number of units |
//!
//! A list of spans is preceded by its count, 4 bytes.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::format::bytes::{Give, Take};

/// Units in a row: the unit on the data region, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The first.
    pub unit: u64,
    /// How many.
    pub units: u32,
}

impl Span {
    /// The unit after the last.
    pub fn end(self) -> u64 {
        self.unit + u64::from(self.units)
    }
}

/// A piece of the data region that is being filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationExtent {
    /// Objects in it have this sequence or a later one.
    pub sequence: u64,
    /// All of it, as it was opened.
    pub spans: Vec<Span>,
}

pub(crate) fn give_span(give: &mut Give, span: Span) {
    give.u64(span.unit).u32(span.units);
}

pub(crate) fn take_span(take: &mut Take<'_>) -> Option<Span> {
    Some(Span {
        unit: take.u64()?,
        units: take.u32()?,
    })
}

pub(crate) fn give_spans(give: &mut Give, spans: &[Span]) {
    give.u32(spans.len() as u32);
    for span in spans {
        give_span(give, *span);
    }
}
