//! Thinning: the records of the emptiest blocks are moved away, when blocks take much more than what is live.
//!
//! One block at a time is walked, a few slots a step, by whoever updates; its owner is told the places, finds the record
//! that stands there, if one does, and moves it. Nobody fills the block meanwhile, and it goes to the pool when its
//! last slot is free. It does not know what points to a place.

use std::sync::atomic::Ordering;

use super::Place;
use super::block::{BLOCK, DRAINING, IDLE, LISTED, Slab, WALKED, place_of};
use super::class::{Class, ELSEWHERE, TABLE};
use crate::epoch::{self, Pin};
use crate::error::Result;
use crate::weave;

/// How many times the bytes of slots in use the blocks may take.
const BOUND: u64 = 2;
/// Blocks that may be in use beyond that.
const SLACK: u64 = if cfg!(azekura_weave) { 0 } else { 64 };
/// Slots looked at in one step of thinning.
const STEP: u32 = 64;

/// A block whose records are being moved away.
pub(super) struct Walk {
    block: u32,
    slot: u32,
    stamp: u64,
}

impl Slab {
    /// Whether there are blocks to be thinned: one load, to be asked before every put.
    #[inline(always)]
    pub fn is_thin(&self) -> bool {
        self.is_thin.load(Ordering::Relaxed)
    }

    pub(super) fn notice_thinness(&self) {
        let in_use = self.pool.lock().in_use();
        let waits = self.waits_long();
        if in_use > SLACK || waits {
            let is_thin = waits || in_use > self.bound();
            self.is_thin.store(is_thin, Ordering::Relaxed);
        }
    }

    /// One bounded step of moving records out of the emptiest block: `move_away` is offered places, and moves the record
    /// there if it is one that can be found (a place may also be one that was freed). Called pinned, while nobody
    /// is locked. On an error of `move_away` the block is given up for now.
    pub fn thin(
        &self,
        pin: &Pin,
        move_away: &mut dyn FnMut(&Pin, Place) -> Result<()>,
    ) -> Result<()> {
        let Some(mut walk) = self.walk.try_lock() else {
            return Ok(());
        };
        if self.waits_long() {
            self.hands.each(|state| self.settle(state));
            let in_use = self.pool.lock().in_use();
            self.is_thin.store(in_use > self.bound(), Ordering::Relaxed);
            return Ok(());
        }
        let Some(now) = walk.as_mut() else {
            *walk = self.begin_walk();
            if walk.is_none() {
                self.is_thin.store(false, Ordering::Relaxed);
            }
            return Ok(());
        };
        if !epoch::is_past(now.stamp) {
            return Ok(());
        }
        let class = self.class(now.block);
        let shape: &Class = &TABLE[class];
        let end = (now.slot + STEP).min(shape.slots);
        let mut moved = Ok(());
        while now.slot < end && moved.is_ok() {
            let slot = now.slot;
            now.slot += 1;
            weave::point();
            let free = self.word(now.block, slot / 64).load(Ordering::Acquire);
            if free >> (slot % 64) & 1 == 0 {
                moved = move_away(pin, place_of(now.block, slot, shape));
            }
        }
        if now.slot == shape.slots || moved.is_err() {
            let mut list = self.classes[class].lock();
            let state = if moved.is_ok() { DRAINING } else { IDLE };
            self.meta(now.block).state.store(state, Ordering::SeqCst);
            self.reconsider(now.block, class, &mut list);
            drop(list);
            *walk = None;
            self.is_thin.store(moved.is_ok(), Ordering::Relaxed);
        }
        moved
    }

    /// Closes the emptiest block that is worth it.
    fn begin_walk(&self) -> Option<Walk> {
        let (end, in_use) = {
            let pool = self.pool.lock();
            (pool.end, pool.in_use())
        };
        if in_use <= self.bound() {
            return None;
        }
        let emptiest = (1..end)
            .filter(|block| self.meta(*block).state.load(Ordering::Relaxed) == LISTED)
            .filter(|block| self.class(*block) != ELSEWHERE)
            .max_by_key(|block| {
                let free = u64::from(self.meta(*block).free.load(Ordering::Relaxed));
                (free << 16) / u64::from(TABLE[self.class(*block)].slots)
            })?;
        let class = self.class(emptiest);
        let mut list = self.classes[class].lock();
        let meta = self.meta(emptiest);
        let still = self.class(emptiest) == class && meta.state.load(Ordering::SeqCst) == LISTED;
        if !still {
            return None;
        }
        self.unlist(emptiest, &mut list);
        meta.state.store(WALKED, Ordering::SeqCst);
        drop(list);
        Some(Walk {
            block: emptiest,
            slot: 0,
            stamp: epoch::stamp(),
        })
    }

    /// Blocks that may be in use for what is live.
    fn bound(&self) -> u64 {
        self.slot_bytes() * BOUND / BLOCK + SLACK
    }
}
