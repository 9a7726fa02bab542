//! Evacuation of sparse blocks: the slab's owner moves their records away when blocks take much more than the live slots.
//!
//! Updating threads walk one block at a time, a few slots a step: the slab offers the place of each slot in use, and the owner
//! moves the record there if it finds one. No thread cache fills the block meanwhile; it returns to the pool when its
//! last slot is free. This module does not know what points to a place.

use std::sync::atomic::Ordering;

use super::Place;
use super::block::{DRAINING, IDLE, LISTED, Slab, WALKED, Walk, counted, place_of};
use super::class::{BLOCK, Class, OUT_OF_LINE, TABLE};
use crate::epoch::Pin;
use crate::error::Result;
use crate::explore;

/// Blocks may take this many times the bytes of slots in use.
const BOUND: u64 = 2;
/// Blocks that may be in use beyond that.
const SLACK: u64 = if cfg!(azekura_explore) { 0 } else { 64 };
/// Yields to other threads before a block that a thread may still read is left for later.
const WAITS_MAX: u32 = if cfg!(azekura_explore) { 0 } else { 1000 };
/// Slots visited in one step of an evacuation.
const STEP: u32 = 64;

impl Slab {
    /// Whether an evacuation is due: one load, cheap enough for every put.
    #[inline(always)]
    pub fn needs_evacuation(&self) -> bool {
        self.needs_evacuation.load(Ordering::Relaxed)
    }

    pub(super) fn update_needs_evacuation(&self) {
        if self.excess(0, false) > 0 {
            self.needs_evacuation.store(true, Ordering::Relaxed);
        }
        let in_use = self.pool.lock().in_use();
        let waits = self.waits_long();
        if in_use > SLACK || waits {
            let needs_evacuation = waits || in_use > self.bound();
            self.needs_evacuation
                .store(needs_evacuation, Ordering::Relaxed);
        }
    }

    /// One bounded step of an evacuation of the emptiest block: `move_away` gets places, and moves the record there if the
    /// index refers to it (a place may also be a freed one). Called pinned, with no bucket locked. If `move_away` fails, the
    /// evacuation of the block ends.
    pub fn evacuate(
        &self,
        pin: &Pin,
        move_away: &mut dyn FnMut(&Pin, Place) -> Result<()>,
    ) -> Result<()> {
        self.domain.check(pin);
        let Some(mut walk) = self.walk.try_lock() else {
            return Ok(());
        };
        if self.waits_long() {
            self.caches.each(|state| self.reclaim_elapsed(state));
            let in_use = self.pool.lock().in_use();
            self.needs_evacuation
                .store(in_use > self.bound(), Ordering::Relaxed);
            return Ok(());
        }
        let Some(now) = walk.as_mut() else {
            *walk = self.begin_walk();
            if walk.is_none() {
                self.needs_evacuation.store(false, Ordering::Relaxed);
            }
            return Ok(());
        };
        if !self.domain.has_elapsed(now.retire_epoch) {
            return Ok(());
        }
        let class = self.class(now.block);
        let shape: &Class = &TABLE[class];
        let end = (now.slot + STEP).min(shape.slots);
        let mut moved = Ok(());
        while now.slot < end && moved.is_ok() {
            let slot = now.slot;
            now.slot += 1;
            explore::yield_point();
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
            self.needs_evacuation
                .store(moved.is_ok(), Ordering::Relaxed);
        }
        moved
    }

    /// Whether blocks take more than slots in use and an eighth of that, and a little.
    pub fn is_sparse(&self) -> bool {
        let slots = self.slot_bytes();
        self.pool.lock().in_use() > (slots + slots / 8) / BLOCK + SLACK / 4
    }

    /// Empties one block: `take_away` gets places as in [`evacuate`](Self::evacuate). With `moved`, it is a block of which a
    /// quarter or more is free, and the other blocks of its class have room for its records; otherwise the emptiest of
    /// all. The block has no class once the grace period of its slots has elapsed. Returns whether there was one.
    /// Called unpinned.
    pub fn empty_one(
        &self,
        moved: bool,
        take_away: &mut dyn FnMut(&Pin, Place) -> Result<()>,
    ) -> Result<bool> {
        let mut walk = self.walk.lock();
        if walk.is_none() {
            *walk = if moved {
                self.close_movable()
            } else {
                self.close_emptiest(true)
            };
        }
        let Some(now) = walk.as_mut() else {
            return Ok(false);
        };
        let mut waited = 0;
        while !self.domain.has_elapsed(now.retire_epoch) {
            // A long read keeps the block; a later call resumes its walk.
            if waited == WAITS_MAX {
                return Ok(false);
            }
            waited += 1;
            std::thread::yield_now();
        }
        let class = self.class(now.block);
        let shape: &Class = &TABLE[class];
        let mut taken = Ok(());
        while now.slot < shape.slots && taken.is_ok() {
            let slot = now.slot;
            now.slot += 1;
            let free = self.word(now.block, slot / 64).load(Ordering::Acquire);
            if free >> (slot % 64) & 1 == 0 {
                taken = take_away(&self.pin(), place_of(now.block, slot, shape));
            }
        }
        let mut list = self.classes[class].lock();
        let state = if taken.is_ok() { DRAINING } else { IDLE };
        self.meta(now.block).state.store(state, Ordering::SeqCst);
        self.reconsider(now.block, class, &mut list);
        drop(list);
        *walk = None;
        taken.map(|()| true)
    }

    /// Closes the emptiest block if blocks take too much.
    fn begin_walk(&self) -> Option<Walk> {
        let in_use = self.pool.lock().in_use();
        if in_use <= self.bound() {
            return None;
        }
        self.close_emptiest(false)
    }

    /// Closes the emptiest block, over all classes, whose records fit into the other blocks of its class.
    fn close_movable(&self) -> Option<Walk> {
        let mut best = None;
        for (class, list) in self.classes.iter().enumerate() {
            if class == OUT_OF_LINE {
                continue;
            }
            let slots = u64::from(TABLE[class].slots);
            let free =
                |block: &u32| u64::from(counted(self.meta(*block).free.load(Ordering::Relaxed)));
            let list = list.lock();
            let all: u64 = list.iter().map(free).sum();
            let emptiest = list.iter().map(|block| (free(block), *block)).max();
            if let Some((free, block)) = emptiest
                && free >= slots / 4
                && all >= slots
            {
                best = best.max(Some(((free << 16) / slots, block)));
            }
        }
        self.close(best?.1, &|state| state == LISTED)
    }

    /// Closes the emptiest block: of the listed ones, or of the idle ones too if `any`.
    fn close_emptiest(&self, any: bool) -> Option<Walk> {
        let end = self.pool.lock().end;
        let is_fit = |state: u8| state == LISTED || any && state == IDLE;
        let emptiest = (1..end)
            .filter(|block| is_fit(self.meta(*block).state.load(Ordering::Relaxed)))
            .filter(|block| self.class(*block) != OUT_OF_LINE)
            .max_by_key(|block| {
                let free = u64::from(counted(self.meta(*block).free.load(Ordering::Relaxed)));
                (free << 16) / u64::from(TABLE[self.class(*block)].slots)
            })?;
        self.close(emptiest, &is_fit)
    }

    /// Closes a block, if its state still fits.
    fn close(&self, block: u32, is_fit: &dyn Fn(u8) -> bool) -> Option<Walk> {
        let class = self.class(block);
        let mut list = self.classes[class].lock();
        let meta = self.meta(block);
        let state = meta.state.load(Ordering::SeqCst);
        if self.class(block) != class || !is_fit(state) {
            return None;
        }
        if state == LISTED {
            self.unlist(block, &mut list);
        }
        meta.state.store(WALKED, Ordering::SeqCst);
        drop(list);
        Some(Walk {
            block,
            slot: 0,
            retire_epoch: self.domain.retire_epoch(),
        })
    }

    /// Blocks that may be in use for the live slots.
    fn bound(&self) -> u64 {
        self.slot_bytes() * BOUND / BLOCK + SLACK
    }
}
