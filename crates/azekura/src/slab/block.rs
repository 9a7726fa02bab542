//! Blocks of slots: who fills which, what is free, what is thin.
//!
//! | state of a block | filled by | becomes |
//! |---|---|---|
//! | in the pool | nobody, it has no class | owned |
//! | owned | a hand | idle, when it is full |
//! | idle | nobody; few of its slots are free | listed, when a 16th is; pooled, when all are |
//! | listed | nobody | owned; pooled, when all slots are free |
//! | walked | nobody; the owner of the slab moves its records away | draining |
//! | draining | nobody | pooled, when all slots are free |
//!
//! States change under the lock of the block's class. Lock order: a hand, a class, the pool.

#![expect(unsafe_code, reason = "slots in raw memory")]

use std::alloc::Layout;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::Place;
use super::class::{CLASSES, Class, ELSEWHERE, LONGEST, TABLE, WORDS, class_of};
use super::hand::{Aging, Current, Hands, Own, State};
use super::record::{self, Record, record_bytes};
use crate::epoch::{self, Brief, Pin};
use crate::error::{Error, Kind, Result, size};
use crate::io::mmap::{Map, prefetch};
use crate::room;
use crate::weave::{self, Bug, Mutex};

/// Bytes of a block.
pub(super) const BLOCK: u64 = 64 << 10;
/// Addresses reserved; memory is taken as it is touched.
const RESERVED_BYTES: u64 = 1 << 40;
/// Places are numbers of two bytes.
const UNIT: u64 = 2;
/// Bytes of a block's bitmap.
const BITMAP_BYTES: u64 = WORDS as u64 * 8;
/// What a block takes beside its memory.
const BESIDE: u64 = BITMAP_BYTES + size_of::<Meta>() as u64;
/// A block is worth filling again when one in so many of its slots is free.
const WORTH: u32 = 16;
/// Freed places that wait together for those still pinned: a stamp costs microseconds.
const LIMBO: usize = if cfg!(azekura_weave) { 2 } else { 1024 };
/// Or so many bytes.
const LIMBO_BYTES: u64 = 256 << 10;
/// Freed bytes that may wait for readers, beside an eighth of those in use, before all hands are asked to let them go.
const WAITING: u64 = 4 << 20;
/// How many times the bytes of slots in use the blocks may take.
const BOUND: u64 = 2;
/// Blocks that may be in use beyond that.
const SLACK: u64 = if cfg!(azekura_weave) { 0 } else { 64 };
/// Blocks of no class that keep their memory, beside an eighth of those in use.
const READY: u64 = if cfg!(azekura_weave) { 1 } else { 16 };
/// So many blocks of the limit there are at least for each hand.
const BLOCKS_OF_HAND: u64 = 8;
/// Bytes of records that the short way takes.
const SHORT: usize = 128;
/// Freed places whose bits are asked for before they are set.
const AHEAD: usize = 8;
/// Slots looked at in one step of thinning.
const STEP: u32 = 64;

const _: () = assert!(RESERVED_BYTES / UNIT <= 1 << 40 && size_of::<Meta>() == 16);

const POOLED: u8 = 0;
const OWNED: u8 = 1;
const IDLE: u8 = 2;
const LISTED: u8 = 3;
const WALKED: u8 = 4;
const DRAINING: u8 = 5;

#[repr(C)]
struct Meta {
    /// Slots whose bit is set.
    free: AtomicU32,
    /// Where it stands in its class's list.
    at: AtomicU32,
    class: AtomicU8,
    state: AtomicU8,
    spare: [u8; 6],
}

/// Records in memory. See the module's text.
pub struct Slab {
    memory: Arc<Map>,
    metas: Arc<Map>,
    bitmaps: Arc<Map>,
    hands: Hands,
    classes: Box<[Mutex<Vec<u32>>]>,
    pool: Mutex<Pool>,
    /// Bytes of records elsewhere.
    elsewhere: AtomicU64,
    /// What blocks and records elsewhere may take.
    limit: u64,
    /// Bytes that were freed and got their stamp, and wait for readers.
    waiting: AtomicU64,
    walk: Mutex<Option<Walk>>,
    is_thin: AtomicBool,
    /// The planted bug: what was freed is used again at once.
    #[cfg(test)]
    pub(super) hasty: bool,
}

struct Pool {
    /// Blocks without a class that may have memory.
    blocks: Vec<u32>,
    /// Blocks without a class and without memory.
    bare: Vec<u32>,
    /// Blocks made so far; block 0 is never used, so that no place is zero.
    end: u32,
}

impl Pool {
    fn in_use(&self) -> u64 {
        u64::from(self.end) - 1 - (self.blocks.len() + self.bare.len()) as u64
    }
}

impl Current {
    /// The place of the next free slot, if there is one.
    #[inline(always)]
    fn next(&self, class: usize) -> Place {
        let slot = self.word.wrapping_sub(1) * 64 + self.bits.trailing_zeros();
        (u64::from(self.block) * BLOCK + u64::from(slot * TABLE[class].size)) / UNIT
    }
}

/// Puts and frees in few instructions, inside a short update. See [`Slab::near`].
pub struct Near<'s> {
    slab: &'s Slab,
    own: Own<'s>,
}

/// A record that was copied into a slot that is not taken yet.
pub struct Draft {
    place: Place,
    class: usize,
}

impl Draft {
    /// Where the record stands.
    #[inline(always)]
    pub fn place(&self) -> Place {
        self.place
    }
}

/// A block whose records are being moved away.
struct Walk {
    block: u32,
    slot: u32,
    stamp: u64,
}

impl std::fmt::Debug for Slab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slab")
            .field("memory", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}

impl Slab {
    /// An empty one that takes at most `limit` bytes of memory (`None`: what the system gives). `Invalid` below a
    /// mebibyte; `Io` if the system refuses the addresses.
    pub fn new(limit: Option<u64>) -> Result<Self> {
        let limit = limit.unwrap_or(RESERVED_BYTES - BLOCK);
        if limit < 1 << 20 {
            return Err(Error::new(Kind::Invalid, "too little memory for records")
                .found(size(limit), "1 MiB or more"));
        }
        let blocks = limit / BLOCK + 1;
        let reserve = |each: u64| Map::anonymous((blocks * each).next_multiple_of(4096), None);
        let memory = reserve(BLOCK)?;
        memory.advise_huge(0, blocks * BLOCK);
        Ok(Self {
            memory,
            metas: reserve(size_of::<Meta>() as u64)?,
            bitmaps: reserve(BITMAP_BYTES)?,
            hands: Hands::new(blocks / BLOCKS_OF_HAND)?,
            classes: room::collect((0..CLASSES).map(|_| Mutex::default()))?.into_boxed_slice(),
            pool: Mutex::new(Pool {
                blocks: Vec::new(),
                bare: Vec::new(),
                end: 1,
            }),
            elsewhere: AtomicU64::new(0),
            limit,
            waiting: AtomicU64::new(0),
            walk: Mutex::new(None),
            is_thin: AtomicBool::new(false),
            #[cfg(test)]
            hasty: false,
        })
    }

    /// Copies a record in. Nobody sees it until its place is told. No cache miss, if neighbouring puts are of
    /// similar lengths.
    ///
    /// Errors: `Full`, at the limit or if the system gives no memory.
    #[inline(always)]
    pub fn put(&self, pin: &Pin, key: &[u8], value: &[u8], expires: Option<u32>) -> Result<Place> {
        let bytes = record_bytes(key.len(), value.len(), expires.is_some());
        if bytes > LONGEST {
            return self.put_elsewhere(pin, key, value, expires, bytes);
        }
        let place = self.take(pin, class_of(bytes))?;
        // SAFETY: a slot of `bytes` bytes or more that was just taken.
        unsafe { record::write(self.at(place), key, value, expires) };
        Ok(place)
    }

    #[cold]
    fn put_elsewhere(
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
        let layout = layout(bytes).ok_or_else(full)?;
        let before = self.elsewhere.fetch_add(bytes as u64, Ordering::Relaxed);
        if !self.is_room_for(before.saturating_add(bytes as u64)) {
            self.elsewhere.fetch_sub(bytes as u64, Ordering::Relaxed);
            return Err(self.full());
        }
        // SAFETY: the layout is of more than zero bytes.
        let memory = unsafe { std::alloc::alloc(layout) };
        let taken = if memory.is_null() {
            Err(full())
        } else {
            self.take(pin, ELSEWHERE)
        };
        match taken {
            Ok(place) => {
                // SAFETY: `bytes` bytes just allocated, and a slot of 16 bytes just taken. The address is aligned to 16,
                // so its lowest bit is free.
                unsafe {
                    record::write(memory, key, value, expires);
                    let address = memory.expose_provenance() as u64;
                    record::write_elsewhere(self.at(place), address, bytes);
                }
                Ok(place)
            }
            Err(error) => {
                self.elsewhere.fetch_sub(bytes as u64, Ordering::Relaxed);
                if !memory.is_null() {
                    // SAFETY: just allocated with this layout, and nobody knows of it.
                    unsafe { std::alloc::dealloc(memory, layout) };
                }
                Err(error)
            }
        }
    }

    /// The record at `place`: one cache miss, or two if it is long.
    ///
    /// # Safety
    /// - `put` of this slab returned `place`, and it was not freed before the pin began; or `thin` offers it now.
    #[inline(always)]
    pub unsafe fn record<'p>(&'p self, pin: &'p Pin, place: Place) -> Record<'p> {
        weave::point();
        // SAFETY: by the contract and the first promise.
        unsafe { Record::at(self.at(place), pin) }
    }

    /// Asks the CPU for the record at `place`.
    #[inline(always)]
    pub fn prefetch(&self, place: Place) {
        let at = self.at(place);
        prefetch(at);
        // Records are not aligned; short ones end in the next line often enough.
        prefetch(at.wrapping_add(17));
    }

    /// Whether so many bytes elsewhere are within the limit; memory of unused blocks is given up for them.
    fn is_room_for(&self, elsewhere: u64) -> bool {
        let mut pool = self.pool.lock();
        loop {
            let blocks = (pool.in_use() + pool.blocks.len() as u64) * BLOCK;
            if blocks.saturating_add(elsewhere) <= self.limit {
                return true;
            }
            let Some(block) = pool.blocks.pop() else {
                return false;
            };
            self.memory.discard(u64::from(block) * BLOCK, BLOCK);
            pool.bare.push(block);
        }
    }

    /// Gives the room at `place` back: to be used again when nobody is pinned since before. The caller has made sure
    /// that nobody can find it any more, and that nobody else frees it.
    #[inline(always)]
    pub fn free(&self, pin: &Pin, place: Place) {
        let mut hand = self.hands.grip(pin);
        let freed = self.to_limbo(&mut hand, place);
        hand.add_live(-freed);
        if hand.limbo.len() >= LIMBO || hand.limbo_bytes >= LIMBO_BYTES {
            self.settle(&mut hand);
            drop(hand);
            self.notice_thinness();
        }
    }

    /// The short way to put and free, for a thread inside a short update that puts and frees one record at most. `None`:
    /// the thread owns no hand, or there is no room to note a freed place.
    #[inline(always)]
    pub fn near<'s>(&'s self, inside: &'s Brief) -> Option<Near<'s>> {
        let mut own = self.hands.own(inside)?;
        is_room_in_limbo(own.state()).then_some(Near { slab: self, own })
    }

    /// Notes a freed place; the bytes of its slot.
    #[inline(always)]
    fn to_limbo(&self, hand: &mut State, place: Place) -> i64 {
        let class = self.class(block_of(place));
        let size = TABLE[class].size;
        hand.limbo.push(place);
        hand.limbo_bytes += u64::from(size);
        if class == ELSEWHERE {
            // SAFETY: a slot of that class which is in use.
            hand.limbo_bytes += unsafe { record::elsewhere_bytes(self.at(place)) } as u64;
        }
        i64::from(size)
    }

    /// Bytes of memory taken from the system, but for what the system's allocator adds to long records.
    pub fn memory_bytes(&self) -> u64 {
        let pool = self.pool.lock();
        let made = u64::from(pool.end) - 1 - pool.bare.len() as u64;
        made * (BLOCK + BESIDE) + self.elsewhere.load(Ordering::Relaxed)
    }

    /// Bytes of slots, and of memory elsewhere, that are not free, those still in limbo included in the latter only.
    pub fn live_bytes(&self) -> u64 {
        self.slot_bytes() + self.elsewhere.load(Ordering::Relaxed)
    }

    /// Bytes of slots in use.
    fn slot_bytes(&self) -> u64 {
        self.hands.live()
    }

    /// Blocks that may be in use for what is live.
    fn bound(&self) -> u64 {
        self.slot_bytes() * BOUND / BLOCK + SLACK
    }

    /// What a record takes in memory.
    #[inline(always)]
    pub fn bytes_of(key_len: usize, value_len: usize, expires: bool) -> u64 {
        let bytes = record_bytes(key_len, value_len, expires);
        if bytes > LONGEST {
            bytes as u64 + u64::from(TABLE[ELSEWHERE].size)
        } else {
            u64::from(TABLE[class_of(bytes)].size)
        }
    }

    /// Lets what was freed be used again as far as nobody is pinned since, and takes the blocks that hands fill away from
    /// them. A caller who met `Full` calls it unpinned and tries again.
    pub fn reclaim(&self) {
        self.hands.each(|state| {
            self.settle(state);
            for current in &mut state.current {
                self.put_down(std::mem::take(current));
            }
        });
    }

    /// Gives a block up that a hand was filling, with the free slots it had taken out.
    fn put_down(&self, current: Current) {
        if current.block == 0 {
            return;
        }
        if current.bits != 0 {
            let word = self.word(current.block, current.word - 1);
            word.fetch_or(current.bits, Ordering::Release);
            let free = &self.meta(current.block).free;
            free.fetch_add(current.bits.count_ones(), Ordering::SeqCst);
        }
        self.let_go(current.block);
    }

    #[inline(always)]
    fn at(&self, place: Place) -> *mut u8 {
        self.memory.at(place * UNIT)
    }

    #[inline(always)]
    fn meta(&self, block: u32) -> &Meta {
        // SAFETY: blocks are numbered within the reservation; zeroed memory is a valid `Meta`, all of whose changing
        // parts are atomics.
        unsafe { &*self.metas.at(u64::from(block) * 16).cast() }
    }

    #[inline(always)]
    fn word(&self, block: u32, word: u32) -> &AtomicU64 {
        debug_assert!((word as usize) < WORDS);
        let at = u64::from(block) * BITMAP_BYTES + u64::from(word) * 8;
        // SAFETY: as for `meta`.
        unsafe { &*self.bitmaps.at(at).cast() }
    }

    #[inline(always)]
    fn class(&self, block: u32) -> usize {
        usize::from(self.meta(block).class.load(Ordering::Relaxed)) % CLASSES
    }

    #[inline(always)]
    fn take(&self, pin: &Pin, class: usize) -> Result<Place> {
        let mut hand = self.hands.grip(pin);
        if hand.current[class].bits == 0 {
            self.refill(&mut hand, class)?;
        }
        hand.add_live(i64::from(TABLE[class].size));
        let current = &mut hand.current[class];
        let place = current.next(class);
        current.bits &= current.bits - 1;
        Ok(place)
    }

    /// Gets more free slots, from the rest of the block or from another one.
    #[cold]
    #[inline(never)]
    fn refill(&self, state: &mut State, class: usize) -> Result<()> {
        let shape = &TABLE[class];
        loop {
            let current = &mut state.current[class];
            if current.block != 0 {
                while current.word < shape.words() {
                    let word = self.word(current.block, current.word);
                    current.word += 1;
                    weave::point();
                    if word.load(Ordering::Relaxed) != 0 {
                        weave::point();
                        current.bits = word.swap(0, Ordering::Acquire);
                        let free = &self.meta(current.block).free;
                        weave::point();
                        free.fetch_sub(current.bits.count_ones(), Ordering::SeqCst);
                        return Ok(());
                    }
                }
                self.let_go(current.block);
                *current = Current::default();
            }
            let block = self.acquire(class).or_else(|error| {
                // What waits in limbo may be of this class.
                self.settle(state);
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
            let elsewhere = self.elsewhere.load(Ordering::Relaxed);
            if (pool.in_use() + 1) * BLOCK + elsewhere > self.limit {
                return Err(self.full());
            }
            if let Some(block) = pool.bare.pop() {
                block
            } else {
                if u64::from(pool.end + 1) * BLOCK > self.memory.capacity() {
                    return Err(self.full());
                }
                // So that no block that comes back needs memory to be remembered.
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
        self.notice_thinness();
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

    /// A block that its hand has filled.
    fn let_go(&self, block: u32) {
        let class = self.class(block);
        let mut list = self.classes[class].lock();
        self.meta(block).state.store(IDLE, Ordering::SeqCst);
        self.reconsider(block, class, &mut list);
    }

    /// A block with enough free slots is listed, one with only free slots goes to the pool. Under the class's lock.
    fn reconsider(&self, block: u32, class: usize, list: &mut Vec<u32>) {
        let (meta, slots) = (self.meta(block), TABLE[class].slots);
        let state = meta.state.load(Ordering::SeqCst);
        let free = meta.free.load(Ordering::SeqCst);
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

    fn unlist(&self, block: u32, list: &mut Vec<u32>) {
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

    /// Stamps what is in limbo, and sets the bits of what nobody can look at any more.
    #[cold]
    #[inline(never)]
    fn settle(&self, state: &mut State) {
        if !state.limbo.is_empty() {
            let places = std::mem::replace(&mut state.limbo, Vec::with_capacity(LIMBO));
            let bytes = std::mem::take(&mut state.limbo_bytes);
            self.waiting.fetch_add(bytes, Ordering::Relaxed);
            state.aging.push_back(Aging {
                stamp: epoch::stamp(),
                bytes,
                places,
            });
        }
        while let Some(Aging { stamp, .. }) = state.aging.front() {
            let is_past = epoch::is_past(*stamp) || weave::has(Bug::SlotsWithoutWaiting);
            #[cfg(test)]
            let is_past = is_past || self.hasty;
            if !is_past {
                return;
            }
            let Some(Aging { bytes, places, .. }) = state.aging.pop_front() else {
                return;
            };
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            for (at, place) in places.iter().enumerate() {
                if let Some(soon) = places.get(at + AHEAD) {
                    prefetch(std::ptr::from_ref(self.bit(*soon).0).cast());
                }
                self.set_free(*place);
            }
        }
    }

    /// The bit that says whether a slot is free.
    #[inline(always)]
    fn bit(&self, place: Place) -> (&AtomicU64, u64) {
        let block = block_of(place);
        let slot = TABLE[self.class(block)].slot((place * UNIT % BLOCK) as u32);
        (self.word(block, slot / 64), 1 << (slot % 64))
    }

    fn set_free(&self, place: Place) {
        let block = block_of(place);
        let class = self.class(block);
        if class == ELSEWHERE {
            self.drop_elsewhere(place);
        }
        let shape = &TABLE[class];
        #[cfg(azekura_weave)]
        self.spoil(place, shape);
        let (word, bit) = self.bit(place);
        weave::point();
        let before = word.fetch_or(bit, Ordering::Release);
        debug_assert!(before & bit == 0, "a place was freed twice");
        let meta = self.meta(block);
        weave::point();
        let free = meta.free.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        weave::point();
        let state = meta.state.load(Ordering::SeqCst);
        if free == shape.slots || state == IDLE && is_worth(free, shape.slots) {
            let mut list = self.classes[class].lock();
            // Meanwhile it may have been pooled by somebody else, and even be of another class.
            if self.class(block) == class {
                self.reconsider(block, class, &mut list);
            }
        }
    }

    /// Overwrites what nobody looks at any more: who does nevertheless finds neither key nor value.
    #[cfg(azekura_weave)]
    fn spoil(&self, place: Place, shape: &Class) {
        // SAFETY: a slot of that class that was in use; nobody has taken it yet.
        unsafe { self.at(place).write_bytes(0, shape.size as usize) };
    }

    fn drop_elsewhere(&self, place: Place) {
        // SAFETY: a slot of that class which was in use, and which nobody looks at any more; what it says was
        // allocated with this layout.
        unsafe {
            let bytes = record::elsewhere_bytes(self.at(place));
            self.elsewhere.fetch_sub(bytes as u64, Ordering::Relaxed);
            if let Some(layout) = layout(bytes) {
                std::alloc::dealloc(record::elsewhere(self.at(place)), layout);
            }
        }
    }

    /// Whether there are blocks to be thinned: one load, to be asked before every put.
    #[inline(always)]
    pub fn is_thin(&self) -> bool {
        self.is_thin.load(Ordering::Relaxed)
    }

    fn notice_thinness(&self) {
        let in_use = self.pool.lock().in_use();
        let waits = self.waits_long();
        if in_use > SLACK || waits {
            let is_thin = waits || in_use > self.bound();
            self.is_thin.store(is_thin, Ordering::Relaxed);
        }
    }

    /// Whether so much waits for readers that some of it waits for its hand's thread to come by.
    fn waits_long(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > WAITING + self.live_bytes() / 8
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
                let at = u64::from(now.block) * BLOCK + u64::from(slot * shape.size);
                moved = move_away(pin, at / UNIT);
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
}

impl Near<'_> {
    /// Copies a short record into the next free slot of its class, without taking it: [`keep`](Self::keep) does.
    /// `None`: it is not short, or there is no memory.
    #[inline(always)]
    pub fn draft(&mut self, key: &[u8], value: &[u8], expires: Option<u32>) -> Option<Draft> {
        let bytes = record_bytes(key.len(), value.len(), expires.is_some());
        if bytes > SHORT {
            return None;
        }
        let class = class_of(bytes);
        let hand = self.own.state();
        if hand.current[class].bits == 0 {
            self.slab.refill(hand, class).ok()?;
        }
        let place = hand.current[class].next(class);
        // SAFETY: a slot of `bytes` bytes or more that is this thread's to take, and written by nobody else.
        unsafe { record::write(self.slab.at(place), key, value, expires) };
        Some(Draft { place, class })
    }

    /// Notes that a draft was looked at.
    #[inline(always)]
    pub fn see(&self, draft: &Draft) {
        // SAFETY: a record that this thread wrote and nobody else knows of.
        unsafe { record::see(self.slab.at(draft.place)) };
    }

    /// Takes the slot of a draft.
    #[inline(always)]
    #[expect(clippy::needless_pass_by_value, reason = "a draft is kept once")]
    pub fn keep(&mut self, draft: Draft) {
        let current = &mut self.own.state().current[draft.class];
        debug_assert_eq!(current.next(draft.class), draft.place, "one at a time");
        current.bits &= current.bits - 1;
        self.own.add_live(i64::from(TABLE[draft.class].size));
    }

    /// As [`Slab::free`], once an update.
    #[inline(always)]
    pub fn free(&mut self, place: Place) {
        let freed = self.slab.to_limbo(self.own.state(), place);
        self.own.add_live(-freed);
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // Slots that were taken out of a bitmap and not used go back: what is then not free says where memory is.
        let mut unused = vec![0u64; WORDS];
        let at_hand = |state: &State| state.current[ELSEWHERE];
        let currents: Vec<Current> = self.hands.all_alone().map(at_hand).collect();
        let end = self.pool.get_mut().end;
        for block in 1..end {
            if self.meta(block).state.load(Ordering::Relaxed) == POOLED
                || self.class(block) != ELSEWHERE
            {
                continue;
            }
            unused.fill(0);
            for current in &currents {
                if current.block == block && current.word > 0 {
                    unused[current.word as usize - 1] |= current.bits;
                }
            }
            let shape = &TABLE[ELSEWHERE];
            for slot in 0..shape.slots {
                let free = self.word(block, slot / 64).load(Ordering::Relaxed)
                    | unused[slot as usize / 64];
                if free >> (slot % 64) & 1 == 0 {
                    let at = u64::from(block) * BLOCK + u64::from(slot * shape.size);
                    self.drop_elsewhere(at / UNIT);
                }
            }
        }
    }
}

#[inline(always)]
fn block_of(place: Place) -> u32 {
    (place * UNIT / BLOCK) as u32
}

/// Whether one more place may be noted before a stamp is due.
#[inline(always)]
fn is_room_in_limbo(hand: &mut State) -> bool {
    let len = hand.limbo.len();
    if len >= hand.limbo.capacity()
        && hand
            .limbo
            .try_reserve_exact(LIMBO - len.min(LIMBO))
            .is_err()
    {
        return false;
    }
    len + 1 < LIMBO && hand.limbo_bytes < LIMBO_BYTES
}

fn is_worth(free: u32, slots: u32) -> bool {
    free >= (slots / WORTH).max(1)
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, 16).ok()
}
