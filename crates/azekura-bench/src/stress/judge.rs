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
    let last_start = before.last_start();
    let is_overwritten = |slot: &Slot| last_start > slot.end;
    let cells = || before.cells.iter().zip(&after.cells).zip(0_u64..);
    let Some(value) = found else {
        let swept = before.sweep.done();
        let is_absent = !is_overwritten(&swept) && swept.version > 0
            || after.sweep.newest.version > swept.version
            || cells().any(|((before, after), _)| {
                let done = before.done();
                let mut later = (done.version + 1)..=after.newest.version;
                done.base == 0 && !is_overwritten(&done)
                    || later.any(|version| {
                        known(before, after, version).is_none_or(|slot| slot.base == 0)
                    })
            });
        return if is_absent {
            Ok(Found::Absent)
        } else {
            Err(expected(content, key, before, after))
        };
    };
    for ((before, after_cell), writer) in cells() {
        let done = before.done();
        for version in done.version..=after_cell.newest.version {
            if version == 0 || version == done.version && is_overwritten(&done) {
                continue;
            }
            let bases = match known(before, after_cell, version) {
                Some(slot) if slot.base == 0 => continue,
                Some(slot) if slot.base < version && is_swept_within(&after.sweep, &slot) => {
                    vec![slot.base, version]
                }
                Some(slot) => vec![slot.base],
                None => (version.saturating_sub(CHAIN_MAX).max(1)..=version).collect(),
            };
            for base in bases {
                if content.is_value(key, writer, base, version, value) {
                    return Ok(Found::Value(writer, version, base));
                }
            }
        }
    }
    Err(expected(content, key, before, after))
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

/// The possible states in words.
fn expected(content: &Content, key: u64, before: &Known, after: &Known) -> String {
    let last_start = before.last_start();
    let mut words: Vec<String> = Vec::new();
    for ((before, after), writer) in before.cells.iter().zip(&after.cells).zip(0_u64..) {
        let done = before.done();
        for version in done.version..=after.newest.version {
            let slot = known(before, after, version).unwrap_or_default();
            if version == done.version && last_start > slot.end {
                continue;
            }
            let state = if slot.base == 0 {
                "nothing".to_owned()
            } else {
                let len = content.value(key, writer, slot.base, version).len();
                format!("{len} bytes")
            };
            let acknowledged = if slot.is_under_way() {
                "not acknowledged"
            } else {
                "acknowledged"
            };
            words.push(format!(
                "{state} (version {version} of writer {writer}, {acknowledged})"
            ));
        }
    }
    if after.sweep.newest.version > 0 && (after.sweep.newest.is_under_way() || words.is_empty()) {
        words.push("nothing (removed with all others)".to_owned());
    }
    words.join(" or ")
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
