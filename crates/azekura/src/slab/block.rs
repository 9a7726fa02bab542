//! Blocks of slots: allocation of slots and blocks, the state of each block, and the memory limit.
//!
//! | state of a block | filled by | becomes |
//! |---|---|---|
//! | pooled | none; it has no class | owned |
//! | owned | a thread cache | idle, when it is full |
//! | idle | none; few of its slots are free | listed, when a 16th is; pooled, when all are |
//! | listed | none | owned; pooled, when all slots are free |
//! | walked | none; the owner of the slab moves its records away | draining |
//! | draining | none | pooled, when all slots are free |
//!
//! States change under the lock of the block's class. Lock order: a thread cache, a class, the pool.

#![expect(unsafe_code, reason = "slots in raw memory")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::Place;
use super::class::{BLOCK, CLASSES, Class, LONGEST, OUT_OF_LINE, TABLE, WORDS, class_of};
use super::long::{self, Long};
use super::record::{self, Record, record_bytes};
use super::thread_cache::{Current, State, ThreadCaches};
use crate::counter::Counter;
use crate::epoch::{Domain, Pin};
use crate::error::{Error, Kind, Result, size};
use crate::explore::{self, Mutex};
use crate::io::mmap::{Map, prefetch};
use crate::room;

/// Addresses reserved; memory is taken as it is touched.
const RESERVED_BYTES: u64 = 1 << 40;
/// Places are numbers of two bytes.
pub(super) const UNIT: u64 = 2;
/// Bytes of a block's bitmap.
const BITMAP_BYTES: u64 = WORDS as u64 * 8;
/// Bytes that a block takes in addition to its memory.
const BLOCK_OVERHEAD: u64 = BITMAP_BYTES + size_of::<Meta>() as u64;
/// A block is worth filling again when one in so many of its slots is free.
const WORTH: u32 = 16;
/// Blocks of no class that keep their memory, in addition to an eighth of those in use.
const READY: u64 = if cfg!(azekura_explore) { 1 } else { 16 };
/// Blocks of the limit for each thread cache, at least.
const BLOCKS_OF_CACHE: u64 = 16;

const _: () = assert!(RESERVED_BYTES / UNIT <= 1 << 40 && size_of::<Meta>() == 16);

const POOLED: u8 = 0;
const OWNED: u8 = 1;
pub(super) const IDLE: u8 = 2;
pub(super) const LISTED: u8 = 3;
pub(super) const WALKED: u8 = 4;
pub(super) const DRAINING: u8 = 5;

#[repr(C)]
pub(super) struct Meta {
    /// Slots whose bit is set.
    pub(super) free: AtomicU32,
    /// Its index in its class's list.
    at: AtomicU32,
    class: AtomicU8,
    pub(super) state: AtomicU8,
    spare: [u8; 6],
}

/// A block whose records are being moved away.
pub(super) struct Walk {
    pub(super) block: u32,
    pub(super) slot: u32,
    pub(super) retire_epoch: u64,
}

/// Records in memory. See the module's text.
pub struct Slab {
    pub(super) domain: Domain,
    memory: Arc<Map>,
    metas: Arc<Map>,
    bitmaps: Arc<Map>,
    pub(super) caches: ThreadCaches,
    /// Bytes of slots in use.
    pub(super) live: Counter,
    /// The listed blocks of each class.
    pub(super) classes: Box<[Mutex<Vec<u32>>]>,
    pub(super) pool: Mutex<Pool>,
    /// Bytes of out-of-line records.
    pub(super) out_of_line: AtomicU64,
    /// Allocations of out-of-line records.
    pub(super) long: Long,
    /// Bytes that blocks and out-of-line records may take; an allocation beyond it fails.
    limit: u64,
    /// Bytes that they should take: beyond it the owner evicts.
    goal: AtomicU64,
    /// Whether they took more than the goal when last measured.
    is_over: AtomicBool,
    /// Bytes that were freed and sealed, and wait for readers.
    pub(super) waiting: AtomicU64,
    pub(super) walk: Mutex<Option<Walk>>,
    pub(super) needs_evacuation: AtomicBool,
    /// The planted bug: freed slots are reused without a grace period.
    #[cfg(test)]
    pub(super) hasty: bool,
}

pub(super) struct Pool {
    /// Blocks without a class that may have memory.
    blocks: Vec<u32>,
    /// Blocks without a class and without memory.
    bare: Vec<u32>,
    /// Blocks made so far; block 0 is never used, so that no place is zero.
    pub(super) end: u32,
}

impl Pool {
    pub(super) fn in_use(&self) -> u64 {
        u64::from(self.end) - 1 - (self.blocks.len() + self.bare.len()) as u64
    }
}

impl Current {
    /// The place of the next free slot, if there is one.
    #[inline(always)]
    pub(super) fn next(&self, class: usize) -> Place {
        let slot = self.word.wrapping_sub(1) * 64 + self.bits.trailing_zeros();
        place_of(self.block, slot, &TABLE[class])
    }
}

impl std::fmt::Debug for Slab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slab")
            .field("memory", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}

impl Slab {
    /// An empty slab of at most `limit` bytes of memory (`None`: as much as the system gives), and never more than places can
    /// address, a tebibyte. `Invalid` below a mebibyte; `Io` if the system refuses the reservation.
    pub fn new(limit: Option<u64>) -> Result<Self> {
        Self::for_bytes(limit, limit.unwrap_or(u64::MAX))
    }

    /// As `new`, for records of about `bytes` in total: the fewer bytes, the fewer threads have caches of their own.
    pub fn for_bytes(limit: Option<u64>, bytes: u64) -> Result<Self> {
        let most = RESERVED_BYTES - BLOCK;
        let limit = limit.map_or(most, |limit| limit.min(most));
        if limit < 1 << 20 {
            return Err(Error::new(Kind::Invalid, "too little memory for records")
                .found(size(limit), "1 MiB or more"));
        }
        let blocks = limit / BLOCK + 1;
        let reserve = |each: u64| Map::anonymous((blocks * each).next_multiple_of(4096), None);
        let memory = reserve(BLOCK)?;
        memory.advise_huge(0, blocks * BLOCK);
        let domain = Domain::new();
        Ok(Self {
            memory,
            metas: reserve(size_of::<Meta>() as u64)?,
            bitmaps: reserve(BITMAP_BYTES)?,
            caches: ThreadCaches::new(domain.clone(), bytes / BLOCK / BLOCKS_OF_CACHE)?,
            domain,
            live: Counter::new(0)?,
            classes: room::collect((0..CLASSES).map(|_| Mutex::default()))?.into_boxed_slice(),
            pool: Mutex::new(Pool {
                blocks: Vec::new(),
                bare: Vec::new(),
                end: 1,
            }),
            out_of_line: AtomicU64::new(0),
            long: Long::new(limit.min(RESERVED_BYTES / 4) * 4)?,
            limit,
            goal: AtomicU64::new(u64::MAX),
            is_over: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            walk: Mutex::new(None),
            needs_evacuation: AtomicBool::new(false),
            #[cfg(test)]
            hasty: false,
        })
    }

    /// The epoch domain in which threads are pinned while they read records of this slab.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Pins this thread: no place that it can find is reused while the pin lives.
    #[inline(always)]
    pub fn pin(&self) -> Pin {
        self.domain.pin()
    }

    /// Copies a record in. No other thread finds it until the caller publishes its place. No CPU cache miss if consecutive
    /// puts are of similar lengths.
    ///
    /// Errors: `Full`, at the limit or if the system gives no memory.
    #[inline(always)]
    pub fn put(&self, pin: &Pin, key: &[u8], value: &[u8], expires: Option<u32>) -> Result<Place> {
        let bytes = record_bytes(key.len(), value.len(), expires.is_some());
        if bytes > LONGEST {
            return self.put_out_of_line(pin, key, value, expires, bytes);
        }
        let place = self.take(pin, class_of(bytes))?;
        // SAFETY: a slot of `bytes` bytes or more that was just taken.
        unsafe { record::write(self.at(place), key, value, expires) };
        Ok(place)
    }

    #[cold]
    fn put_out_of_line(
        &self,
        pin: &Pin,
        key: &[u8],
        value: &[u8],
        expires: Option<u32>,
        bytes: usize,
    ) -> Result<Place> {
        let full = || {
            Error::new(
                Kind::Full,
                format!("no memory for a record of {}", size(bytes as u64)),
            )
        };
        if !self.admit_out_of_line(long::rounded(bytes as u64)) {
            return Err(self.full());
        }
        let memory = self.long.take(bytes as u64);
        let taken = match memory {
            Some(memory) => self
                .take(pin, OUT_OF_LINE)
                .inspect_err(|_| self.long.give_back(memory, bytes as u64))
                .map(|place| (memory, place)),
            None => Err(full()),
        };
        match taken {
            Ok((memory, place)) => {
                // SAFETY: `bytes` bytes just taken, and a slot of 16 bytes just taken. The address is a multiple of 1024,
                // so its lowest bit is free.
                unsafe {
                    record::write(memory, key, value, expires);
                    let address = memory.expose_provenance() as u64;
                    record::write_out_of_line(self.at(place), address, bytes);
                }
                self.update_needs_evacuation();
                Ok(place)
            }
            Err(error) => {
                let bytes = long::rounded(bytes as u64);
                self.out_of_line.fetch_sub(bytes, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// The record at `place`: one CPU cache miss, or two if it is out of line.
    ///
    /// # Safety
    /// - `put` of this slab returned `place`, and it was not freed before the pin began; or `evacuate` offers it now.
    #[inline(always)]
    pub unsafe fn record<'p>(&'p self, pin: &'p Pin, place: Place) -> Record<'p> {
        self.domain.check(pin);
        explore::yield_point();
        // SAFETY: `put` wrote a record there before it returned the place, and a slot is not written over while a thread is
        // pinned that was pinned when it was freed, which is the first promise. What `evacuate` offers may be free: its block is closed, so that
        // no thread fills it or gives it back, and not of the out-of-line class.
        unsafe { Record::at(self.at(place), pin) }
    }

    /// Prefetches the record at `place` into the CPU cache.
    #[inline(always)]
    pub fn prefetch(&self, place: Place) {
        let at = self.at(place);
        prefetch(at);
        // Records are not aligned; short ones end in the next line often enough.
        prefetch(at.wrapping_add(17));
    }

    /// Accounts for an out-of-line record if it is within the limit; memory of unused blocks is released for it.
    fn admit_out_of_line(&self, bytes: u64) -> bool {
        let mut pool = self.pool.lock();
        let used = pool.in_use() * BLOCK + self.out_of_line.load(Ordering::Relaxed);
        let Some(left) = self.limit.checked_sub(used.saturating_add(bytes)) else {
            return false;
        };
        self.keep_ready(&mut pool, left / BLOCK);
        self.out_of_line.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// Releases the memory of blocks of no class, but for `most` of them.
    fn keep_ready(&self, pool: &mut Pool, most: u64) {
        while pool.blocks.len() as u64 > most
            && let Some(block) = pool.blocks.pop()
        {
            self.memory.discard(u64::from(block) * BLOCK, BLOCK);
            pool.bare.push(block);
        }
    }

    /// Bytes of memory that the slab holds.
    pub fn memory_bytes(&self) -> u64 {
        let pool = self.pool.lock();
        let made = u64::from(pool.end) - 1 - pool.bare.len() as u64;
        made * (BLOCK + BLOCK_OVERHEAD) + self.long.held_bytes()
    }

    /// Sets the memory that records should take from now on: the owner evicts while [`excess`](Self::excess) is not
    /// zero. The slab refuses nothing because of it.
    pub fn set_goal(&self, bytes: u64) {
        self.goal.store(bytes, Ordering::Relaxed);
        self.update_needs_evacuation();
    }

    /// Whether the memory taken exceeded the goal when last measured: one load, cheap enough for every update.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Bytes of memory beyond the goal once `more` are added. An eviction (`makes_room`) aims a little below the goal, so that
    /// not every block starts one.
    pub fn excess(&self, more: u64, makes_room: bool) -> u64 {
        let mut goal = self.goal.load(Ordering::Relaxed);
        if makes_room {
            goal -= goal / 64;
        }
        let taken = self.memory_bytes();
        self.is_over.store(taken > goal, Ordering::Relaxed);
        taken.saturating_add(more).saturating_sub(goal)
    }

    /// Returns memory that is kept ready to the system, except an eighth of the bytes in use if `some`.
    pub fn shed(&self, some: bool) {
        let mut pool = self.pool.lock();
        let keep = |used: u64| if some { used / 8 } else { 0 };
        let most = keep(pool.in_use()) + if some { READY } else { 0 };
        self.keep_ready(&mut pool, most);
        drop(pool);
        self.long
            .shed(keep(self.out_of_line.load(Ordering::Relaxed)));
    }

    /// Bytes of slots and of out-of-line records that are not free. Only the latter include those on retire lists.
    pub fn live_bytes(&self) -> u64 {
        self.slot_bytes() + self.out_of_line.load(Ordering::Relaxed)
    }

    /// Bytes of slots in use.
    pub(super) fn slot_bytes(&self) -> u64 {
        self.live.sum()
    }

    /// Bytes that a record takes in memory.
    #[inline(always)]
    pub fn bytes_of(key_len: usize, value_len: usize, expires: bool) -> u64 {
        let bytes = record_bytes(key_len, value_len, expires);
        if bytes > LONGEST {
            long::rounded(bytes as u64) + u64::from(TABLE[OUT_OF_LINE].size)
        } else {
            u64::from(TABLE[class_of(bytes)].size)
        }
    }

    #[inline(always)]
    pub(super) fn at(&self, place: Place) -> *mut u8 {
        self.memory.at(place * UNIT)
    }

    #[inline(always)]
    pub(super) fn meta(&self, block: u32) -> &Meta {
        debug_assert!(
            u64::from(block) * 16 < self.metas.capacity(),
            "block {block}"
        );
        // SAFETY: a block's number comes from the count of blocks that were opened, from a bitmap's place, or from a place that
        // an entry of the index holds: all are less than the reservation was made for. Zeroed memory is a valid `Meta`, all
        // of whose changing parts are atomics.
        unsafe { &*self.metas.at(u64::from(block) * 16).cast() }
    }

    #[inline(always)]
    pub(super) fn word(&self, block: u32, word: u32) -> &AtomicU64 {
        debug_assert!((word as usize) < WORDS);
        let at = u64::from(block) * BITMAP_BYTES + u64::from(word) * 8;
        // SAFETY: as for `meta`.
        unsafe { &*self.bitmaps.at(at).cast() }
    }

    #[inline(always)]
    pub(super) fn class(&self, block: u32) -> usize {
        usize::from(self.meta(block).class.load(Ordering::Relaxed)) % CLASSES
    }

    #[inline(always)]
    fn take(&self, pin: &Pin, class: usize) -> Result<Place> {
        let mut cache = self.caches.lock(pin);
        if cache.current[class].bits == 0 {
            self.refill(&mut cache, class)?;
        }
        self.live.add(pin, i64::from(TABLE[class].size));
        let current = &mut cache.current[class];
        let place = current.next(class);
        current.bits &= current.bits - 1;
        Ok(place)
    }

    /// Takes more free slots, from the rest of the block or from another one.
    #[cold]
    #[inline(never)]
    pub(super) fn refill(&self, state: &mut State, class: usize) -> Result<()> {
        let shape = &TABLE[class];
        loop {
            let current = &mut state.current[class];
            if current.block != 0 {
                while current.word < shape.words() {
                    let word = self.word(current.block, current.word);
                    current.word += 1;
                    explore::yield_point();
                    if word.load(Ordering::Relaxed) != 0 {
                        explore::yield_point();
                        current.bits = word.swap(0, Ordering::Acquire);
                        let free = &self.meta(current.block).free;
                        explore::yield_point();
                        free.fetch_sub(current.bits.count_ones(), Ordering::SeqCst);
                        return Ok(());
                    }
                }
                self.release_block(current.block);
                *current = Current::default();
            }
            let block = self.acquire(class).or_else(|error| {
                // Slots on the retire list may be of this class.
                self.reclaim_elapsed(state);
                self.acquire(class).map_err(|_| error)
            })?;
            state.current[class] = Current {
                block,
                ..Current::default()
            };
        }
    }

    /// A block to fill: one with free slots, or a new one.
    fn acquire(&self, class: usize) -> Result<u32> {
        let mut list = self.classes[class].lock();
        if let Some(block) = list.pop() {
            self.meta(block).state.store(OWNED, Ordering::SeqCst);
            return Ok(block);
        }
        let mut pool = self.pool.lock();
        let block = if let Some(block) = pool.blocks.pop() {
            block
        } else {
            let out_of_line = self.out_of_line.load(Ordering::Relaxed);
            if (pool.in_use() + 1) * BLOCK + out_of_line > self.limit {
                return Err(self.full());
            }
            if let Some(block) = pool.bare.pop() {
                block
            } else {
                if u64::from(pool.end + 1) * BLOCK > self.memory.capacity() {
                    return Err(self.full());
                }
                // So that the return of a block never allocates.
                let made = pool.end as usize;
                room::hold(&mut pool.blocks, made)?;
                room::hold(&mut pool.bare, made)?;
                pool.end += 1;
                pool.end - 1
            }
        };
        drop(pool);
        let (meta, shape) = (self.meta(block), &TABLE[class]);
        meta.class.store(class as u8, Ordering::Relaxed);
        for word in 0..shape.words() {
            self.word(block, word)
                .store(shape.all(word), Ordering::Relaxed);
        }
        meta.free.store(shape.slots, Ordering::SeqCst);
        meta.state.store(OWNED, Ordering::SeqCst);
        drop(list);
        self.update_needs_evacuation();
        Ok(block)
    }

    #[cold]
    fn full(&self) -> Error {
        Error::new(
            Kind::Full,
            format!("the memory limit of {} is reached", size(self.limit)),
        )
        .remedy("remove records, or give the store a higher limit")
    }

    /// Releases a block that its thread cache has filled.
    pub(super) fn release_block(&self, block: u32) {
        let class = self.class(block);
        let mut list = self.classes[class].lock();
        self.meta(block).state.store(IDLE, Ordering::SeqCst);
        self.reconsider(block, class, &mut list);
    }

    /// Lists a block with enough free slots; pools a block with only free slots. Under the class's lock.
    pub(super) fn reconsider(&self, block: u32, class: usize, list: &mut Vec<u32>) {
        let (meta, slots) = (self.meta(block), TABLE[class].slots);
        let state = meta.state.load(Ordering::SeqCst);
        let free = counted(meta.free.load(Ordering::SeqCst));
        if free == slots && [IDLE, LISTED, DRAINING].contains(&state) {
            if state == LISTED {
                self.unlist(block, list);
            }
            meta.state.store(POOLED, Ordering::SeqCst);
            self.to_pool(block);
        } else if state == IDLE && is_worth(free, slots) && list.try_reserve(1).is_ok() {
            // Without memory for the list it stays idle, until one of its slots is freed again.
            meta.at.store(list.len() as u32, Ordering::Relaxed);
            list.push(block);
            meta.state.store(LISTED, Ordering::SeqCst);
        }
    }

    pub(super) fn unlist(&self, block: u32, list: &mut Vec<u32>) {
        let at = self.meta(block).at.load(Ordering::Relaxed);
        list.swap_remove(at as usize);
        if let Some(moved) = list.get(at as usize) {
            self.meta(*moved).at.store(at, Ordering::Relaxed);
        }
    }

    fn to_pool(&self, block: u32) {
        let mut pool = self.pool.lock();
        if pool.blocks.len() as u64 >= pool.in_use() / 8 + READY {
            self.memory.discard(u64::from(block) * BLOCK, BLOCK);
            pool.bare.push(block);
        } else {
            pool.blocks.push(block);
        }
    }
}

/// The place of a slot of a block.
#[inline(always)]
pub(super) fn place_of(block: u32, slot: u32, class: &Class) -> Place {
    (u64::from(block) * BLOCK + u64::from(slot * class.size)) / UNIT
}

#[inline(always)]
pub(super) fn block_of(place: Place) -> u32 {
    (place * UNIT / BLOCK) as u32
}

/// The free slots that a block's counter stands for. A slot's bit is set before it is counted, so a thread that takes it in
/// between subtracts first: the counter is below zero for that moment, which counts as none.
#[inline(always)]
pub(super) fn counted(free: u32) -> u32 {
    if free > i32::MAX as u32 { 0 } else { free }
}

pub(super) fn is_worth(free: u32, slots: u32) -> bool {
    free >= (slots / WORTH).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_below_zero_counts_as_no_free_slot() {
        let bit_before_count = 0u32.wrapping_sub(1);
        assert_eq!(counted(bit_before_count), 0);
        assert!(!is_worth(counted(bit_before_count), 512));
        assert_eq!(counted(512), 512);
        assert!(is_worth(counted(512), 512));
    }
}
