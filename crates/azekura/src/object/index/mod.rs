//! The index: where every object is, in sorted leaves of packed entries, 25 bytes each, in the order of ids.
//!
//! ```text
//!   directory (first ids) --> leaf: id place len | id place len | ...   at most `len_max` entries, sorted
//!                         --> leaf: not loaded (its image is on storage, and is read when it is needed)
//!                         --> leaf: ...
//! ```
//! 1. Leaves cover all ids, each once; a leaf's first id never changes. Neighbours that hold few entries are joined at a
//!    checkpoint, so that ids that come and go in order leave no empty leaves.
//! 2. A leaf's memory is as long as its entries, and a few spare ones: a half filled leaf wastes nothing.
//! 3. A snapshot shares the leaves; a change of a shared leaf copies it first.
//! 4. A changed leaf is dirty until a snapshot for a checkpoint includes it.
//!
//! Lock order: the directory, then one leaf. It does not know what a place means, nor how images are stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::explore::{RwLock, RwLockWriteGuard};
use crate::log::manifest::Extent;
use crate::object::id::ObjectId;
use crate::object::place::extent;
use crate::room;

/// Bounds of the entries of a full leaf.
const LEAF_LEN_MAX: usize = 1024;
const LEAF_LEN_MIN: usize = 40;
/// Neighbours that together hold at most this part of a leaf are joined; the result is not soon split again.
const JOINED_PART: usize = 4;
/// Spare entries of a growing leaf.
const SPARE: usize = 24;
/// Bytes of a packed entry.
pub const ENTRY_SIZE: usize = 25;

/// `place` is the piece where the object's own extent begins.
pub const EXTENT: u8 = 0;
/// `place` is the piece where it begins in a packed extent.
pub const PACKED: u8 = 1;
/// `place` is the address of its frame in the journal.
pub const JOURNAL: u8 = 2;

/// Where an object is, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Below 2^40.
    pub place: u64,
    /// Below 2^30.
    pub len: u32,
    /// [`EXTENT`], [`PACKED`] or [`JOURNAL`].
    pub kind: u8,
}

impl Entry {
    /// Whether the place is possible on a device of `units` units.
    pub fn is_within(self, units: u64) -> bool {
        let is_small = u64::from(self.len) <= extent::PACKED_LEN_MAX;
        let end = self.place * extent::PIECE + self.device_bytes();
        match self.kind {
            EXTENT => end <= units * extent::UNIT,
            PACKED => is_small && end <= units * extent::UNIT,
            kind => kind == JOURNAL && is_small,
        }
    }

    /// Bytes that the object takes on the device, or will take there.
    pub fn device_bytes(self) -> u64 {
        let len = u64::from(self.len);
        match self.kind {
            EXTENT => extent::units(len) * extent::UNIT,
            _ => extent::packed_size(len),
        }
    }

    /// 9 bytes: place in 5, length in 30 bits, kind in 2.
    pub fn to_bytes(self) -> [u8; 9] {
        debug_assert!(self.place < 1 << 40 && self.len < 1 << 30 && self.kind < 4);
        let mut bytes = [0; 9];
        bytes[..5].copy_from_slice(&self.place.to_le_bytes()[..5]);
        bytes[5..].copy_from_slice(&(self.len | u32::from(self.kind) << 30).to_le_bytes());
        bytes
    }

    /// The entry of 9 bytes; `None` of any other number.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (low, word) = bytes.split_first_chunk::<5>()?;
        let word = u32::from_le_bytes(word.try_into().ok()?);
        let mut place = [0; 8];
        place[..5].copy_from_slice(low);
        Some(Self {
            place: u64::from_le_bytes(place),
            len: word & ((1 << 30) - 1),
            kind: (word >> 30) as u8,
        })
    }

    fn encode(self, id: ObjectId) -> [u8; ENTRY_SIZE] {
        let mut packed = [0; ENTRY_SIZE];
        packed[..16].copy_from_slice(&id.to_bytes());
        packed[16..].copy_from_slice(&self.to_bytes());
        packed
    }

    fn decode(packed: &[u8; ENTRY_SIZE]) -> (ObjectId, Self) {
        match Self::from_bytes(&packed[16..]) {
            Some(entry) => (id_of(packed), entry),
            None => unreachable!("an entry has nine bytes after its id"),
        }
    }
}

fn id_of(packed: &[u8; ENTRY_SIZE]) -> ObjectId {
    packed
        .first_chunk()
        .map_or(ObjectId(0), |bytes| ObjectId::from_bytes(*bytes))
}

/// A leaf's entries, sorted.
#[derive(Debug, Default)]
pub struct Leaf(Vec<[u8; ENTRY_SIZE]>);

impl Leaf {
    fn find(&self, id: ObjectId) -> std::result::Result<usize, usize> {
        let key = id.to_bytes();
        self.0.binary_search_by(|packed| packed[..16].cmp(&key[..]))
    }

    /// The entries, in order.
    pub fn entries(&self) -> impl Iterator<Item = (ObjectId, Entry)> + '_ {
        self.0.iter().map(Entry::decode)
    }

    /// The entries from id `first` on, in order.
    pub fn entries_from(&self, first: ObjectId) -> impl Iterator<Item = (ObjectId, Entry)> + '_ {
        let at = self.find(first).unwrap_or_else(|at| at);
        self.0[at..].iter().map(Entry::decode)
    }

    /// Where object `id` is.
    pub fn get(&self, id: ObjectId) -> Option<Entry> {
        let at = self.find(id).ok()?;
        Some(Entry::decode(&self.0[at]).1)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The packed entries: an image.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_flattened()
    }

    /// Decodes an image. `None`: it does not hold whole entries, in rising order, of ids from `first` to before `end`.
    pub fn of_image(bytes: &[u8], first: ObjectId, end: Option<ObjectId>) -> Option<Result<Self>> {
        let (packed, rest) = bytes.as_chunks::<ENTRY_SIZE>();
        let rising = packed.is_sorted_by(|a, b| a[..16] < b[..16]);
        let begins = packed.first().is_none_or(|entry| id_of(entry) >= first);
        let ends = packed
            .last()
            .is_none_or(|entry| end.is_none_or(|end| id_of(entry) < end));
        (rest.is_empty() && rising && begins && ends && packed.len() <= LEAF_LEN_MAX).then(|| {
            let mut entries = room::vec(packed.len())?;
            entries.extend_from_slice(packed);
            Ok(Self(entries))
        })
    }

    fn copy(&self) -> Result<Self> {
        let mut entries = room::vec(self.0.len() + 1)?;
        entries.extend_from_slice(&self.0);
        Ok(Self(entries))
    }
}

/// Whether a leaf is in memory.
#[derive(Clone, Debug)]
enum State {
    Loaded(Arc<Leaf>),
    NotLoaded,
}

#[derive(Debug)]
struct CachedLeaf {
    state: State,
    /// Its last image; of a dirty leaf, an image of an earlier state.
    image: Option<Image>,
    dirty: bool,
}

/// A leaf's image on storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Entries.
    pub count: u32,
    /// Whether some of them are in the journal.
    pub in_journal: bool,
    /// Bytes of the objects' extents.
    pub usage: u64,
    /// Where, with the checksum.
    pub extent: Extent,
}

#[derive(Debug)]
struct LeafSlot {
    first: ObjectId,
    cached: RwLock<CachedLeaf>,
}

/// Loads leaves.
pub trait Source: Send + Sync {
    /// The leaf of an image, verified, with ids from `first` to before `end`.
    fn load(&self, image: &Image, first: ObjectId, end: Option<ObjectId>) -> Result<Leaf>;
}

/// One leaf in a snapshot.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Its first id.
    pub first: ObjectId,
    /// Its entries; `None`: they are those of `image`.
    pub leaf: Option<Arc<Leaf>>,
    /// Its last image.
    pub image: Option<Image>,
    /// Whether it was changed after that.
    pub dirty: bool,
}

impl Shot {
    /// Whether some of its objects may be in the journal; a leaf that was not changed equals its image.
    pub fn may_be_in_journal(&self) -> bool {
        self.dirty || self.image.is_some_and(|image| image.in_journal)
    }
}

/// See the module's text.
pub struct Index {
    directory: RwLock<Vec<LeafSlot>>,
    source: Box<dyn Source>,
    count: AtomicU64,
    /// Most entries of a leaf; a full one is split in the middle, or after its last entry if it grows there.
    len_max: usize,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index")
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// One step of a walk: entries, and where the walk continues.
#[derive(Debug)]
pub struct Page {
    /// In order.
    pub entries: Vec<(ObjectId, Entry)>,
    /// The id at which the walk continues; `None`: there are no more.
    pub next: Option<ObjectId>,
}

impl Index {
    /// An index of these leaves, not loaded, by their first ids; the first id is 0. Images of new leaves have at most `image_max`
    /// bytes, within bounds of 40 and 1024 entries.
    pub fn new(
        leaves: Vec<(ObjectId, Option<Image>)>,
        source: Box<dyn Source>,
        image_max: u64,
    ) -> Self {
        let len_max = (image_max as usize / ENTRY_SIZE).clamp(LEAF_LEN_MIN, LEAF_LEN_MAX);
        let mut slots: Vec<LeafSlot> = Vec::with_capacity(leaves.len().max(1));
        let mut count = 0;
        for (first, image) in leaves {
            count += image.map_or(0, |image| u64::from(image.count));
            slots.push(LeafSlot::new(first, image));
        }
        if slots.is_empty() {
            slots.push(LeafSlot::new(ObjectId(0), None));
        }
        Self {
            directory: RwLock::new(slots),
            source,
            count: AtomicU64::new(count),
            len_max,
        }
    }

    /// How many objects there are.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Approximate bytes of memory for entries and leaves.
    pub fn memory(&self) -> u64 {
        let directory = self.directory.read();
        let of_leaves: usize = directory
            .iter()
            .map(|slot| slot.cached.read().memory())
            .sum();
        (of_leaves + directory.capacity() * size_of::<LeafSlot>()) as u64
    }

    /// Runs `look` on the leaf of `id`, which is loaded first.
    fn with_leaf<R>(
        &self,
        id: ObjectId,
        look: impl FnOnce(&Leaf, Option<ObjectId>) -> R,
    ) -> Result<R> {
        let directory = self.directory.read();
        let (slot, end) = slot_and_end(&directory, id);
        let cached = slot.cached.read();
        if let State::Loaded(leaf) = &cached.state {
            return Ok(look(leaf, end));
        }
        drop(cached);
        let mut cached = slot.cached.write();
        Ok(look(self.load(&mut cached, slot.first, end)?, end))
    }

    fn load<'h>(
        &self,
        cached: &'h mut RwLockWriteGuard<'_, CachedLeaf>,
        first: ObjectId,
        end: Option<ObjectId>,
    ) -> Result<&'h mut Arc<Leaf>> {
        if let (State::NotLoaded, Some(image)) = (&cached.state, cached.image) {
            let leaf = self.source.load(&image, first, end)?;
            cached.state = State::Loaded(Arc::new(leaf));
        }
        match &mut cached.state {
            State::Loaded(leaf) => Ok(leaf),
            State::NotLoaded => unreachable!("a leaf without an image is loaded"),
        }
    }

    /// Where object `id` is.
    pub fn get(&self, id: ObjectId) -> Result<Option<Entry>> {
        self.with_leaf(id, |leaf, _| leaf.get(id))
    }

    /// Where object `id` is, if that is known without storage and without waiting for a lock.
    pub fn probe(&self, id: ObjectId) -> Option<Entry> {
        let directory = self.directory.try_read()?;
        let cached = directory[slot_of(&directory, id)].cached.try_read()?;
        let State::Loaded(leaf) = &cached.state else {
            return None;
        };
        leaf.get(id)
    }

    /// Loads the leaf of `id`, so that a later change of it needs no storage.
    pub fn prepare(&self, id: ObjectId) -> Result<()> {
        self.with_leaf(id, |_, _| ())
    }

    /// Sets or removes an object's entry; returns the old one. `Full` if there is no memory: then nothing changed.
    pub fn set(&self, id: ObjectId, entry: Option<Entry>) -> Result<Option<Entry>> {
        loop {
            let directory = self.directory.read();
            let (slot, end) = slot_and_end(&directory, id);
            let mut cached = slot.cached.write();
            let leaf = self.load(&mut cached, slot.first, end)?;
            let found = leaf.find(id);
            if entry.is_some() && found.is_err() && leaf.len() >= self.len_max {
                drop(cached);
                drop(directory);
                self.split(id)?;
                continue;
            }
            if entry.is_none() && found.is_err() {
                return Ok(None);
            }
            let old = change(own(leaf)?, id, entry, found, self.len_max)?;
            cached.dirty = true;
            match (old, entry) {
                (None, Some(_)) => _ = self.count.fetch_add(1, Ordering::Relaxed),
                (Some(_), None) => _ = self.count.fetch_sub(1, Ordering::Relaxed),
                _ => {}
            }
            return Ok(old);
        }
    }

    /// Sets an object's entry if it is still `expected`; returns whether it was. Needs memory only if the leaf is shared (`Full`).
    pub fn exchange(&self, id: ObjectId, expected: Entry, entry: Entry) -> Result<bool> {
        let directory = self.directory.read();
        let (slot, end) = slot_and_end(&directory, id);
        let mut cached = slot.cached.write();
        let leaf = self.load(&mut cached, slot.first, end)?;
        let Ok(place) = leaf.find(id) else {
            return Ok(false);
        };
        if Entry::decode(&leaf.0[place]).1 != expected {
            return Ok(false);
        }
        own(leaf)?.0[place] = entry.encode(id);
        cached.dirty = true;
        Ok(true)
    }

    /// Splits the full leaf of `id`.
    fn split(&self, id: ObjectId) -> Result<()> {
        let mut directory = self.directory.write();
        room::more(&mut directory, 1)?;
        let at = slot_of(&directory, id);
        let mut cached = directory[at].cached.write();
        let State::Loaded(leaf) = &cached.state else {
            return Ok(());
        };
        if leaf.len() < self.len_max {
            return Ok(());
        }
        // Where ids come in order, this leaves full leaves.
        let is_last = leaf.find(id) == Err(leaf.len());
        let middle = if is_last { leaf.len() } else { leaf.len() / 2 };
        let first = if is_last { id } else { id_of(&leaf.0[middle]) };
        let mut low = room::vec(middle)?;
        low.extend_from_slice(&leaf.0[..middle]);
        let mut high = room::vec(leaf.len() - middle + SPARE)?;
        high.extend_from_slice(&leaf.0[middle..]);
        cached.state = State::Loaded(Arc::new(Leaf(low)));
        cached.dirty = true;
        drop(cached);
        let new = LeafSlot {
            first,
            cached: RwLock::new(CachedLeaf {
                state: State::Loaded(Arc::new(Leaf(high))),
                image: None,
                dirty: true,
            }),
        };
        directory.insert(at + 1, new);
        Ok(())
    }

    /// Joins neighbouring leaves that are loaded and hold few entries. Without memory for it they stay as they are.
    pub fn join(&self) {
        let mut directory = self.directory.write();
        let joined_len = self.len_max / JOINED_PART;
        let mut kept = 0;
        for at in 1..directory.len() {
            let (low, high) = directory.split_at_mut(at);
            if !low[kept].take_in(&mut high[0], joined_len) {
                kept += 1;
                directory.swap(kept, at);
            }
        }
        directory.truncate(kept + 1);
    }

    /// The entries of one leaf from id `from` on.
    pub fn page(&self, from: ObjectId) -> Result<Page> {
        self.with_leaf(from, |leaf, end| {
            let at = leaf.find(from).unwrap_or_else(|at| at);
            let rest = &leaf.0[at..];
            let mut entries = room::vec(rest.len())?;
            entries.extend(rest.iter().map(Entry::decode));
            Ok(Page { entries, next: end })
        })?
    }

    /// The first id of the leaf after the one of `id`.
    pub fn after(&self, id: ObjectId) -> Option<ObjectId> {
        let directory = self.directory.read();
        let next = directory.get(slot_of(&directory, id) + 1);
        next.map(|slot| slot.first)
    }

    /// All leaves as they are now, shared; `clean`: marks them clean, since the caller writes them.
    pub fn snapshot(&self, clean: bool) -> Result<Vec<Shot>> {
        let directory = self.directory.read();
        let mut shots = room::vec(directory.len())?;
        for slot in directory.iter() {
            let mut cached = slot.cached.write();
            shots.push(Shot {
                first: slot.first,
                leaf: match &cached.state {
                    State::Loaded(leaf) => Some(Arc::clone(leaf)),
                    State::NotLoaded => None,
                },
                image: cached.image,
                dirty: cached.dirty,
            });
            if clean {
                cached.dirty = false;
            }
        }
        Ok(shots)
    }

    /// The leaf of a snapshot, read if it was not loaded.
    pub fn leaf_of(&self, shot: &Shot, end: Option<ObjectId>) -> Result<Arc<Leaf>> {
        match (&shot.leaf, &shot.image) {
            (Some(leaf), _) => Ok(Arc::clone(leaf)),
            (None, Some(image)) => Ok(Arc::new(self.source.load(image, shot.first, end)?)),
            (None, None) => Ok(Arc::default()),
        }
    }

    /// Sets the images of the leaves after a checkpoint: a leaf that is not loaded is read from there.
    pub fn set_images(&self, images: &[(ObjectId, Option<Image>)]) {
        let directory = self.directory.read();
        for (first, image) in images {
            if let Ok(at) = directory.binary_search_by_key(first, |slot| slot.first) {
                directory[at].cached.write().image = *image;
            }
        }
    }

    /// After a checkpoint that failed: the leaves it took as written are dirty.
    pub fn mark_dirty(&self, shots: &[Shot]) {
        let directory = self.directory.read();
        for shot in shots.iter().filter(|shot| shot.dirty) {
            if let Ok(at) = directory.binary_search_by_key(&shot.first, |slot| slot.first) {
                directory[at].cached.write().dirty = true;
            }
        }
    }

    /// Most entries of a new leaf.
    pub fn leaf_len_max(&self) -> usize {
        self.len_max
    }

    /// How many leaves there are.
    pub fn leaves(&self) -> usize {
        self.directory.read().len()
    }
}

impl LeafSlot {
    fn new(first: ObjectId, image: Option<Image>) -> Self {
        let state = match image {
            Some(_) => State::NotLoaded,
            None => State::Loaded(Arc::default()),
        };
        Self {
            first,
            cached: RwLock::new(CachedLeaf {
                state,
                image,
                dirty: false,
            }),
        }
    }

    /// Takes the entries of the next leaf, if both hold at most `len_max`; returns whether it did.
    fn take_in(&mut self, next: &mut Self, len_max: usize) -> bool {
        let (own, next) = (self.cached.get_mut(), next.cached.get_mut());
        let (State::Loaded(low), State::Loaded(high)) = (&own.state, &next.state) else {
            return false;
        };
        let len = low.len() + high.len();
        if len > len_max {
            return false;
        }
        let Ok(mut entries) = room::vec(len) else {
            return false;
        };
        entries.extend_from_slice(&low.0);
        entries.extend_from_slice(&high.0);
        own.dirty |= !high.is_empty();
        own.state = State::Loaded(Arc::new(Leaf(entries)));
        true
    }
}

impl CachedLeaf {
    fn memory(&self) -> usize {
        match &self.state {
            State::Loaded(leaf) => leaf.0.capacity() * ENTRY_SIZE + size_of::<Leaf>() + 32,
            State::NotLoaded => 0,
        }
    }
}

fn slot_of(directory: &[LeafSlot], id: ObjectId) -> usize {
    directory
        .partition_point(|slot| slot.first <= id)
        .saturating_sub(1)
}

/// The leaf of `id`, and the first id of the next one.
fn slot_and_end(directory: &[LeafSlot], id: ObjectId) -> (&LeafSlot, Option<ObjectId>) {
    let at = slot_of(directory, id);
    (&directory[at], directory.get(at + 1).map(|slot| slot.first))
}

/// A leaf to be changed: copied, if it is shared.
fn own(leaf: &mut Arc<Leaf>) -> Result<&mut Leaf> {
    if Arc::get_mut(leaf).is_none() {
        *leaf = Arc::new(leaf.copy()?);
    }
    match Arc::get_mut(leaf) {
        Some(leaf) => Ok(leaf),
        None => unreachable!("the copy is not shared"),
    }
}

fn change(
    leaf: &mut Leaf,
    id: ObjectId,
    entry: Option<Entry>,
    found: std::result::Result<usize, usize>,
    len_max: usize,
) -> Result<Option<Entry>> {
    let old = found.ok().map(|at| Entry::decode(&leaf.0[at]).1);
    match (entry, found) {
        (Some(entry), Ok(at)) => leaf.0[at] = entry.encode(id),
        (Some(entry), Err(at)) => {
            if leaf.0.len() == leaf.0.capacity() {
                let len = (leaf.0.len() + SPARE).min(len_max).max(leaf.0.len() + 1);
                room::exactly(&mut leaf.0, len)?;
            }
            leaf.0.insert(at, entry.encode(id));
        }
        (None, Ok(at)) => {
            leaf.0.remove(at);
            if leaf.0.capacity() > leaf.0.len() + 4 * SPARE {
                leaf.0.shrink_to(leaf.0.len() + SPARE);
            }
        }
        (None, Err(_)) => {}
    }
    Ok(old)
}

#[cfg(test)]
mod tests;
