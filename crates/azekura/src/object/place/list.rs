//! The image of a group's free runs on storage.
//!
//! The runs, 4 bytes of start and 4 of length each; or, where that is shorter, a bitmap: a bit for each unit, lowest first, set
//! if the unit is free, in whole 8 bytes, and one byte more, which distinguishes it from a list of runs. The checksum stands with the
//! parent, in the root.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::error::Result;
use crate::format::bytes::Give;
use crate::object::place::runs::{Run, Runs};
use crate::room;

/// Bytes of a run in the list of a group.
const RUN_SIZE: usize = 8;

/// Bytes of a map of `limit` units, with one more: no list of runs is so long.
fn map_size(limit: u32) -> usize {
    limit.div_ceil(64) as usize * 8 + 1
}

/// Bytes of the list of a group of `limit` units with so many runs.
pub(crate) fn list_size(runs: usize, limit: u32) -> usize {
    (runs * RUN_SIZE).min(map_size(limit))
}

/// The image of the list of a group of `limit` units.
pub fn encode_runs(runs: &Runs, limit: u32) -> Vec<u8> {
    let runs = runs.as_slice();
    if runs.len() * RUN_SIZE >= map_size(limit) {
        let mut map = vec![0u8; map_size(limit)];
        for unit in runs.iter().flat_map(|run| run.start..run.start + run.len) {
            if let Some(byte) = map.get_mut(unit as usize / 8) {
                *byte |= 1 << (unit % 8);
            }
        }
        return map;
    }
    let mut give = Give::default();
    for run in runs {
        give.u32(run.start).u32(run.len);
    }
    give.0
}

/// The list of a group of `limit` units. `None`: impossible values.
pub fn decode_runs(bytes: &[u8], limit: u32) -> Option<Result<Runs>> {
    let runs = if bytes.len() == map_size(limit) {
        runs_of_map(bytes)
    } else {
        let (pairs, rest) = bytes.as_chunks::<RUN_SIZE>();
        if !rest.is_empty() {
            return None;
        }
        room::collect(pairs.iter().map(|pair| {
            let word = u64::from_le_bytes(*pair);
            Run {
                start: word as u32,
                len: (word >> 32) as u32,
            }
        }))
    };
    match runs {
        Ok(runs) => Runs::of(runs, limit).map(Ok),
        Err(error) => Some(Err(error)),
    }
}

/// Where bits are set, one after the other.
fn runs_of_map(map: &[u8]) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, byte) in map.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
            let unit = at as u32 * 8 + bit;
            match runs.last_mut() {
                Some(last) if last.start + last.len == unit => last.len += 1,
                _ => {
                    room::more(&mut runs, 1)?;
                    runs.push(Run {
                        start: unit,
                        len: 1,
                    });
                }
            }
        }
    }
    Ok(runs)
}
