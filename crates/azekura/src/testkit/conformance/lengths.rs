//! Values of every length over values of every length.
//!
//! A record is stored in one of several forms, and a change from one to another is a case of its own. [`edges`] are the
//! lengths at which a form, a page or a segment ends; each is put over each. Which form an engine chooses is its own.
//! A full run takes every length around the longest short frame, another one every eighth.
//!
//! Engines in memory also put values of up to 1 MiB and a byte over each other ([`long_lengths`]). A hash file has that test
//! next to its code, where the segments are known.

use super::{Effort, Outcomes, counts, ensure, equal};
use crate::engine::Engine;
use crate::testkit::random::Random;
use crate::testkit::suite::is_full;
use crate::verbs::Verbs;

/// Lengths on both sides of the edges of every encoding, up to `max`, rising. `segment` is the length of a segment, or of
/// what takes its place. Around the longest short frame every `step`th length is among them.
pub fn edges(segment: usize, max: usize, step: usize) -> Vec<usize> {
    let mut lens = vec![0, 1, 2, 253, 254, 255, 256, 257, 258];
    // A short frame's value, with a key of up to 255 bytes next to it.
    lens.extend((65_480..=65_560).step_by(step));
    for edge in [4096, 65_536, segment / 2, segment, 70_000, 1 << 20] {
        lens.extend([edge - 1, edge, edge + 1]);
    }
    lens.sort_unstable();
    lens.dedup();
    lens.retain(|len| *len <= max);
    lens
}

/// Bytes of a value of this length; they depend on both.
pub fn value(len: usize, turn: u8) -> Vec<u8> {
    vec![(len as u8).wrapping_mul(2) ^ turn | 1 << 7; len]
}

/// The step of [`edges`]: 1 in a full run.
pub fn step() -> usize {
    if is_full() { 1 } else { 8 }
}

/// Lengths past those of [`edges`], on both sides of powers of two, and short ones to put them over; rising.
const LONG: [usize; 12] = [
    0,
    255,
    65_535,
    (128 << 10) - 1,
    128 << 10,
    (128 << 10) + 1,
    (512 << 10) - 1,
    512 << 10,
    (512 << 10) + 1,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
];
/// The name of the check of [`LONG`] in a report.
pub const LONG_CHECK: &str = "long values over each other";
/// Pairs that this check tries on an engine in memory that takes values of all these lengths.
pub const LONG_PAIRS: u64 = (LONG.len() * LONG.len()) as u64;

/// Puts each long value over each other one. Each byte depends on its place, so that a part of the old value, or a part at
/// another place, is a difference.
pub(super) fn long_lengths(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    if engine.as_persistent().is_some() {
        return Ok(0);
    }
    let max = engine
        .promise()
        .value_len_max
        .min(LONG[LONG.len() - 1] as u64) as usize;
    let mut random = Random::new(effort.seed);
    let (below, above) = (random.bytes(max), random.bytes(max));
    let lens = LONG.iter().filter(|len| **len <= max);
    let mut count = 0;
    for old in lens.clone().map(|len| &below[..*len]) {
        for new in lens.clone().map(|len| &above[..*len]) {
            for value in [old, new] {
                engine.put(b"key", value)?;
                let mut kept = false;
                engine.read(b"key", &mut |found| kept = found == Some(value))?;
                let (old, len) = (old.len(), value.len());
                ensure(kept, || {
                    format!("value of {len} bytes, after one of {old}, is not read as it was put")
                })?;
            }
            count += 1;
        }
    }
    is_one_record(engine)?;
    Ok(count)
}

/// Of one key there is one record, however often its length changed.
fn is_one_record(engine: &dyn Engine) -> Outcomes<()> {
    counts(engine, 1, "of one record that changed its length")
}

pub(super) fn lengths(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    // What takes more is tried on an engine's own file, whose segments are known.
    let max = engine.promise().value_len_max.min(70_001) as usize;
    let is_whole = effort.sequences >= Effort::QUICK.sequences;
    let lens = edges(1 << 16, max, if is_whole { step() } else { 8 });
    let mut count = 0;
    for &old in &lens {
        for &new in &lens {
            engine.put(b"key", &value(old, 1))?;
            engine.put(b"key", &value(new, 2))?;
            ensure(engine.get(b"key")? == Some(value(new, 2)), || {
                format!("value of {new} bytes over {old} is not kept")
            })?;
            count += 1;
        }
    }
    is_one_record(engine)?;
    let Some(file) = engine.as_persistent() else {
        return Ok(count);
    };
    let damage = file.check(&mut |_, _| ())?.damage;
    equal(&damage, &Vec::new(), "damage after values of all lengths")?;
    Ok(count)
}
