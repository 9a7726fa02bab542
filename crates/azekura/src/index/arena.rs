//! Where chunks live: one reservation of memory, handed out as runs of buckets.
//!
//! A run that is given back is joined with its free neighbours, and the smallest run that fits is taken
//! first. Since the skewed hash keeps chunks of all sizes about at all times, little lies idle. Behind
//! the first two mebibytes the memory is in huge pages: a miss in a large index costs a third less
//! with them. It does not know what buckets hold.

#![expect(unsafe_code, reason = "buckets in raw memory")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::bucket::Bucket;
use super::shape::{Chunk, SPARE};
use crate::epoch;
use crate::error::{Error, Kind, Result};
use crate::io::Map;
use crate::weave::{self, Bug, Mutex};

/// Addresses reserved; memory is taken as it is touched.
const RESERVED_BYTES: u64 = 1 << 36;
const SMALL_BYTES: u64 = 2 << 20;
/// Retired chunks wait for company, as a stamp costs microseconds: so many lines, and a 64th of what is in use.
const LIMBO_LINES: u64 = if cfg!(azekura_weave) { 0 } else { 16 };
const LIMBO_SHARE: u64 = 64;

pub(super) struct Arena {
    memory: Arc<Map>,
    state: Mutex<State>,
}

/// First line and number of lines.
type Run = (u32, u32);

#[derive(Default)]
struct State {
    /// Lines handed out so far; line 0 is never used, so that no chunk's word is zero.
    end: u32,
    /// Free runs by place, and by size.
    free: BTreeMap<u32, u32>,
    by_len: BTreeSet<(u32, u32)>,
    /// Retired since the last stamp, and how many lines they are.
    limbo: Vec<Run>,
    limbo_lines: u64,
    aging: Vec<(u64, Vec<Run>)>,
}

impl Arena {
    pub(super) fn new() -> Result<Self> {
        let memory = Map::anonymous(RESERVED_BYTES, None)?;
        memory.advise_huge(SMALL_BYTES, RESERVED_BYTES - SMALL_BYTES);
        Ok(Self {
            memory,
            state: Mutex::new(State {
                end: 1,
                ..State::default()
            }),
        })
    }

    pub(super) fn used_bytes(&self) -> u64 {
        u64::from(self.state.lock().end) * 64
    }

    #[inline(always)]
    #[expect(
        clippy::cast_ptr_alignment,
        reason = "a line is 64 bytes of a page, as a bucket is"
    )]
    pub(super) fn bucket(&self, line: u32) -> &Bucket {
        // SAFETY: only lines below `end` are handed out, all within the reservation; zeroed memory is a
        // valid bucket, all of whose parts are atomics.
        unsafe { &*self.memory.at(u64::from(line) * 64).cast::<Bucket>() }
    }

    /// An empty chunk of `buckets` buckets.
    pub(super) fn take(&self, buckets: u32) -> Result<Chunk<'_>> {
        let lines = buckets + SPARE;
        let mut state = self.state.lock();
        if let Some(line) = state.reuse(lines) {
            drop(state);
            let at = self.memory.at(u64::from(line) * 64);
            // SAFETY: a run of lines of the reservation that nobody else has; zeros are empty buckets.
            unsafe { at.write_bytes(0, lines as usize * 64) };
            return Ok(Chunk::new(self, line, buckets));
        }
        let line = state.end;
        let end = u64::from(line) + u64::from(lines);
        if end * 64 > RESERVED_BYTES {
            return Err(Error::new(
                Kind::Full,
                "the index has used up its address space",
            ));
        }
        state.end = end as u32;
        Ok(Chunk::new(self, line, buckets))
    }

    /// A chunk that nobody saw.
    pub(super) fn give_back(&self, chunk: Chunk<'_>) {
        self.state.lock().join((chunk.line(), chunk.len()));
    }

    /// A chunk that can no longer be found, but may still be looked at.
    pub(super) fn retire(&self, chunk: Chunk<'_>) {
        let mut state = self.state.lock();
        state.limbo.push((chunk.line(), chunk.len()));
        state.limbo_lines += u64::from(chunk.len());
        if state.limbo_lines >= LIMBO_LINES + u64::from(state.end) / LIMBO_SHARE {
            state.limbo_lines = 0;
            let limbo = std::mem::take(&mut state.limbo);
            state.aging.push((epoch::stamp(), limbo));
        }
    }
}

impl State {
    fn reuse(&mut self, lines: u32) -> Option<u32> {
        if !self.aging.is_empty() {
            self.reap();
        }
        let (len, line) = *self.by_len.range((lines, 0)..).next()?;
        self.by_len.remove(&(len, line));
        self.free.remove(&line);
        if len > lines {
            self.free.insert(line + lines, len - lines);
            self.by_len.insert((len - lines, line + lines));
        }
        Some(line)
    }

    fn join(&mut self, (mut line, mut len): Run) {
        if let Some((&before, &before_len)) = self.free.range(..line).next_back()
            && before + before_len == line
        {
            self.free.remove(&before);
            self.by_len.remove(&(before_len, before));
            line = before;
            len += before_len;
        }
        if let Some(behind_len) = self.free.remove(&(line + len)) {
            self.by_len.remove(&(behind_len, line + len));
            len += behind_len;
        }
        self.free.insert(line, len);
        self.by_len.insert((len, line));
    }

    fn reap(&mut self) {
        let aging = std::mem::take(&mut self.aging);
        for (stamp, runs) in aging {
            if epoch::is_past(stamp) || weave::has(Bug::ChunksWithoutWaiting) {
                for run in runs {
                    self.join(run);
                }
            } else {
                self.aging.push((stamp, runs));
            }
        }
    }
}
