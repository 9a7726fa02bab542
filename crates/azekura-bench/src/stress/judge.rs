//! The judge: whether what a read found is something that the acknowledged history allows.
//!
//! A change may be what a read finds unless another that was acknowledged before the read began had begun after the
//! first was acknowledged. Everything begun before the read ended may be found. So a lost write, a write that came back,
//! a torn value, and a value of another key are each seen, whatever threads did meanwhile.
//!
//! The bytes of a change are a function of its key, writer and version. So the ledger stores no values, and the judge
//! computes those that are possible. It does not know engines.

use super::ledger::{Cell, Known, Slot};
use crate::generate::mix;

/// Values that were appended to one another at most.
pub(super) const CHAIN_MAX: u32 = 4;

/// What decides the bytes of every change of a store.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) seed: u64,
    /// Most values are no longer than this.
    pub(super) usual_len: u64,
    /// One value in so many has one of `edges`; 0: none.
    pub(super) edge_one_in: u64,
    /// Lengths at which an encoding or a path changes, and a few large ones.
    pub(super) edges: Vec<u64>,
}

impl Content {
    fn mixed(&self, key: u64, writer: u64, version: u32) -> u64 {
        mix(self.seed ^ mix(key << 8 | writer) ^ mix(u64::from(version)).rotate_left(17))
    }

    /// Bytes of a change.
    pub(super) fn len(&self, key: u64, writer: u64, version: u32) -> u64 {
        let bits = self.mixed(key, writer, version);
        if self.edge_one_in > 0 && (bits >> 8).is_multiple_of(self.edge_one_in) {
            return self.edges[((bits >> 32) % self.edges.len() as u64) as usize];
        }
        // Shorter ones are more frequent.
        let most = self.usual_len >> ((bits >> 4) % 3);
        (bits >> 24) % (most + 1)
    }

    /// Adds the bytes of a change to `value`.
    pub(super) fn fill(&self, key: u64, writer: u64, version: u32, value: &mut Vec<u8>) {
        let len = self.len(key, writer, version) as usize;
        let mut word = self.mixed(key, writer, version) | 1;
        let compresses = (word >> 5).is_multiple_of(3);
        value.reserve(len + 8);
        let end = value.len() + len;
        while value.len() < end {
            value.extend_from_slice(&word.to_le_bytes());
            if !compresses {
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
            }
        }
        value.truncate(end);
    }

    /// The value that versions `base` to `version` leave.
    pub(super) fn value(&self, key: u64, writer: u64, base: u32, version: u32) -> Vec<u8> {
        let mut value = Vec::new();
        for version in base..=version {
            self.fill(key, writer, version, &mut value);
        }
        value
    }

    fn is_value(&self, key: u64, writer: u64, base: u32, version: u32, value: &[u8]) -> bool {
        let lens = (base..=version).map(|version| self.len(key, writer, version));
        lens.sum::<u64>() == value.len() as u64 && self.value(key, writer, base, version) == value
    }
}

/// Which change a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The value that this writer's versions from base to version left.
    Value(u64, u32, u32),
    /// No record.
    Absent,
}

/// Judges what a read of `key` found that began after `before` was taken and ended before `after` was.
///
/// `Err`: what was expected instead.
pub(super) fn judge(
    content: &Content,
    key: u64,
    before: &Known,
    after: &Known,
    found: Option<&[u8]>,
) -> Result<Found, String> {
    let possible = possible(before, after);
    let is_found = |(writer, Slot { version, base, .. }): &&(u64, Slot)| match found {
        None => *base == 0,
        Some(value) => *base > 0 && content.is_value(key, *writer, *base, *version, value),
    };
    match possible.iter().find(is_found) {
        Some((_, slot)) if slot.base == 0 => Ok(Found::Absent),
        Some((writer, slot)) => Ok(Found::Value(*writer, slot.version, slot.base)),
        None => Err(possible
            .iter()
            .map(|(writer, slot)| words(content, key, *writer, slot))
            .collect::<Vec<_>>()
            .join(" or ")),
    }
}

/// The changes that may be what a read finds, each with its writer. No base: the record was removed.
fn possible(before: &Known, after: &Known) -> Vec<(u64, Slot)> {
    let last_start = before.last_start();
    let is_overwritten = |slot: &Slot| last_start > slot.end;
    let mut possible = Vec::new();
    let (swept, sweep) = (before.sweep.done(), after.sweep.newest);
    if swept.version > 0 && !is_overwritten(&swept) || sweep.version > swept.version {
        possible.push((0, sweep));
    }
    for ((before, after_cell), writer) in before.cells.iter().zip(&after.cells).zip(0_u64..) {
        let done = before.done();
        for version in done.version..=after_cell.newest.version {
            if version == done.version && is_overwritten(&done) {
                continue;
            }
            let mut add = |slot: Slot, base: u32| possible.push((writer, Slot { base, ..slot }));
            if let Some(slot) = known(before, after_cell, version) {
                add(slot, slot.base);
                if (1..version).contains(&slot.base) && is_swept_within(&after.sweep, &slot) {
                    add(slot, version);
                }
            } else {
                let slot = Slot {
                    version,
                    end: u64::MAX,
                    ..Slot::default()
                };
                add(slot, 0);
                let bases = version.saturating_sub(CHAIN_MAX).max(1)..=version;
                bases.for_each(|base| add(slot, base));
            }
        }
    }
    possible
}

/// The change of this version, if one of the two cells still has it.
fn known(before: &Cell, after: &Cell, version: u32) -> Option<Slot> {
    // One that was under way before may have been refused, and its version given to another change since.
    let earlier = [before.newest, before.before];
    let earlier = earlier.into_iter().filter(|slot| !slot.is_under_way());
    let mut slots = [after.newest, after.before].into_iter().chain(earlier);
    slots.find(|slot| slot.version == version)
}

/// Whether a sweep may have come between what an append found and the append.
fn is_swept_within(sweep: &Cell, append: &Slot) -> bool {
    [sweep.newest, sweep.before].iter().any(|sweep| {
        sweep.version > 0
            && (append.is_under_way() || sweep.start < append.end)
            && (sweep.is_under_way() || sweep.end > append.start)
    })
}

/// A possible state in words.
fn words(content: &Content, key: u64, writer: u64, slot: &Slot) -> String {
    let state = match slot.base {
        0 => "nothing".to_owned(),
        base => format!(
            "{} bytes",
            content.value(key, writer, base, slot.version).len()
        ),
    };
    let not = if slot.is_under_way() { "not " } else { "" };
    let version = slot.version;
    format!("{state} (version {version} of writer {writer}, {not}acknowledged)")
}

/// What an unexpected value is, in words: of which earlier version it is, if it is of one.
pub(super) fn describe(content: &Content, key: u64, known: &Known, value: Option<&[u8]>) -> String {
    let Some(value) = value else {
        return "nothing".to_owned();
    };
    for (cell, writer) in known.cells.iter().zip(0_u64..) {
        let newest = cell.newest.version;
        for version in (newest.saturating_sub(1000).max(1)..=newest).rev() {
            for base in (version.saturating_sub(CHAIN_MAX).max(1)..=version).rev() {
                if !value.is_empty() && content.is_value(key, writer, base, version, value) {
                    return format!(
                        "{} bytes (the value of version {version} of writer {writer})",
                        value.len()
                    );
                }
            }
        }
    }
    format!("{} bytes of no version of this key", value.len())
}
