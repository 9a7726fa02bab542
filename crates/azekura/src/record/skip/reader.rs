//! Reading a sorted file: by key, by index, in order, from many threads and processes.
//!
//! What users call. Lookups are those of `search`, places in order those of `cursor`; what is lent is the file itself, mapped.
//! Every answer is the file's, or an error that states which keys are affected.
//!
//! It does not write.

use std::path::Path;
use std::sync::Arc;

use super::blocks::{Blocks, VerifiedBlock};
use super::check::check;
use super::cursor::SkipCursor;
use super::layout::{BLOCK, STEM};
use super::limits;
use super::search::LostRange;
use crate::damage::Damage;
use crate::engine::{
    Bookmark, CheckReport, Cursor, Damaged, Durability, Ordered, Persistent, Promise, Reader,
    Stats, Visit,
};
use crate::error::{Error, Kind, Result};
use crate::format::superblock;
use crate::io::file::{File, Files};
use crate::io::{Access, Storage, create_whole};
use crate::node::Key;
use crate::order::Order;
use crate::record::key_bookmark;
use crate::room;

/// Lookups that overlap their cache misses.
const GROUP: usize = 16;

/// A sorted file. See the module's text.
#[derive(Debug)]
pub struct SkipReader {
    pub(super) blocks: Blocks,
}

impl SkipReader {
    /// Opens a file. `Mismatch` if it is no sorted file of a known version, `Corrupted` if it is cut off or all three superblocks are
    /// damaged, `Io`. Costs two reads, and memory, a bit for each 512 bytes of the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_on(Arc::new(File::open(path.as_ref(), Access::Read)?))
    }

    /// Opens the file on a storage, which is not written any more.
    pub fn open_on(storage: Arc<dyn Storage>) -> Result<Self> {
        Ok(Self {
            blocks: Blocks::open(storage)?,
        })
    }

    /// The order of its keys.
    pub fn order(&self) -> Order {
        self.blocks.top.order
    }

    /// Whether there are keys with more than one value. Also true where keys begin with the same 510 bytes.
    pub fn may_repeat(&self) -> bool {
        self.blocks.top.repeats
    }

    /// The value of `key`, copied: the first, if there are several. `Full` if there is no memory for it.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read_with(key, |value| value.map(room::copy).transpose())?
    }

    /// Lends the value of `key`, the first if there are several, or its absence, to `visit`: no copy, no lock. Errors: `Corrupted` or
    /// `Io` if a block on the way to it does not verify or cannot be read.
    #[inline]
    pub fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let Some(value) = self.blocks.find(key)? else {
            return Ok(visit(None));
        };
        let answer = visit(Some(value));
        self.blocks.still_there(value)?;
        Ok(answer)
    }

    /// Lends each value of `key`, in order, until `visit` answers `false`.
    pub fn values(&self, key: &[u8], mut visit: impl FnMut(&[u8]) -> bool) -> Result<()> {
        let mut cursor = SkipCursor::new(&self.blocks);
        let mut is_there = cursor.seek(key)?;
        while is_there {
            let Some((_, value)) = cursor.get().filter(|(found, _)| *found == key) else {
                break;
            };
            let continues = visit(value);
            self.blocks.still_there(value)?;
            is_there = continues && cursor.next()?;
        }
        Ok(())
    }

    /// Key and value of the record before which there are `index` others, copied. Costs as much as a lookup.
    pub fn by_index(&self, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut cursor = SkipCursor::new(&self.blocks);
        if !cursor.seek_index(index)? {
            return Ok(None);
        }
        let Some((key, value)) = cursor.get() else {
            return Ok(None);
        };
        let copied = (room::copy(key)?, room::copy(value)?);
        self.blocks.still_there(value)?;
        Ok(Some(copied))
    }

    /// How many records have keys less than `key`: the index of the first that is not less. Costs as much as a lookup.
    pub fn index_of(&self, key: &[u8]) -> Result<u64> {
        self.blocks.lower_bound(key)
    }

    /// How many records have keys from `from` on, and less than `to`; 0 if `to` is less. Costs two lookups.
    pub fn count_range(&self, from: &[u8], to: &[u8]) -> Result<u64> {
        Ok(self.index_of(to)?.saturating_sub(self.index_of(from)?))
    }

    /// A cursor, not yet placed.
    pub fn cursor(&self) -> SkipCursor<'_> {
        SkipCursor::new(&self.blocks)
    }

    /// Properties of the file, by name, in a fixed order.
    pub fn inspect(&self) -> Vec<(&'static str, String)> {
        let top = &self.blocks.top;
        let storage = &self.blocks.storage;
        vec![
            ("path", storage.path().display().to_string()),
            ("engine", "skip".into()),
            ("format_version", superblock::VERSION.to_string()),
            ("count", top.count.to_string()),
            ("file_bytes", top.size.to_string()),
            ("record_bytes", top.bytes.to_string()),
            ("order", top.order.name().into()),
            ("keys_may_repeat", top.repeats.to_string()),
            ("levels", (u32::from(top.height) + 1).to_string()),
            ("block_size", BLOCK.to_string()),
        ]
    }
}

impl Reader for SkipReader {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.read_with(key, visit)
    }

    fn read_many(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            let mut leaves: [Option<VerifiedBlock<'_>>; GROUP] = [None; GROUP];
            if !self.blocks.top.repeats {
                for (leaf, key) in leaves
                    .iter_mut()
                    .zip(keys)
                    .filter(|(_, key)| key.len() < STEM)
                {
                    *leaf = self.blocks.leaf_of(key)?;
                    if let Some(leaf) = leaf {
                        leaf.prefetch();
                    }
                }
            }
            for (at, (key, leaf)) in keys.iter().zip(leaves).enumerate() {
                let value = match leaf {
                    Some(leaf) => self.blocks.find_in(leaf, key)?,
                    None => self.blocks.find(key)?,
                };
                visit(group * GROUP + at, value);
                self.blocks.still_there(value.unwrap_or_default())?;
            }
        }
        Ok(())
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let mut ordinal = match self.place_of(from)? {
            Ok(place) => place,
            Err(lost) => {
                damaged(lost.error)?;
                lost.next
            }
        };
        let mut own = Key::default();
        loop {
            let mut place = match self.blocks.locate(ordinal) {
                Ok(Some(place)) => place,
                Ok(None) => return Ok(None),
                Err(lost) => {
                    damaged(lost.error)?;
                    ordinal = lost.next;
                    continue;
                }
            };
            for at in place.at..place.leaf.node.count() {
                place.at = at;
                ordinal = place.leaf.ordinal + at as u64 + 1;
                let content = self.blocks.content(place.leaf, at);
                let content = content.and_then(|c| self.blocks.checked(place.leaf, c.value, c));
                let content = match content {
                    Ok(content) => content,
                    Err(error) => {
                        damaged(error)?;
                        continue;
                    }
                };
                let key = content.key.unwrap_or_else(|| {
                    place.leaf.node.key(at, &mut own);
                    own.bytes()
                });
                let flow = visit(key, content.value);
                self.blocks.still_there(content.value)?;
                if flow.is_break() {
                    return self.bookmark_after(key, ordinal).map(Some);
                }
            }
        }
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        key_bookmark::at(key)
    }

    fn count(&self) -> u64 {
        self.blocks.top.count
    }

    fn stats(&self) -> Stats {
        let top = &self.blocks.top;
        Stats {
            count: top.count,
            live_bytes: top.size,
            file_bytes: top.size,
            memory_bytes: self.blocks.memory_bytes(),
            more: vec![
                ("order", top.order.name().to_owned()),
                ("levels", (u32::from(top.height) + 1).to_string()),
                ("record_bytes", top.bytes.to_string()),
            ],
        }
    }

    fn promise(&self) -> Promise {
        let limits = limits(self.order());
        Promise {
            engine: "skip",
            evicts: false,
            durability: Some(Durability::Power),
            update_many_is_crash_atomic: false,
            key_len_max: limits.key,
            value_len_max: limits.value,
        }
    }

    fn as_ordered(&self) -> Option<&dyn Ordered> {
        Some(self)
    }

    fn as_persistent(&self) -> Option<&dyn Persistent> {
        Some(self)
    }
}

impl Ordered for SkipReader {
    fn order_name(&self) -> &str {
        self.order().name()
    }

    fn cursor(&self) -> Box<dyn Cursor + '_> {
        Box::new(SkipCursor::new(&self.blocks))
    }
}

impl Persistent for SkipReader {
    fn sync(&self, _: Durability) -> Result<()> {
        // It was synced before it had its name.
        Ok(())
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        check(&self.blocks, progress)
    }

    fn copy_to(&self, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        const PART: u64 = 64 << 20;
        let (directory, name) = Files::of(target);
        let (storage, top) = (&self.blocks.storage, &self.blocks.top);
        create_whole(&directory, name, |copy| {
            copy.resize(top.size)?;
            let mut done = 0;
            while done < top.size {
                let len = (top.size - done).min(PART);
                storage.copy_range_to(done, len, copy.as_ref())?;
                done += len;
                progress(done, 2 * top.size);
            }
            top.write(copy.as_ref())?;
            // A copy of damage is no copy to keep.
            let copied = Blocks::open(Arc::clone(copy))?;
            let report = check(&copied, &mut |done, of| {
                progress(top.size + top.size * done / of.max(1), 2 * top.size);
            })?;
            if !report.is_sound() {
                let found = format!("{} damaged places", report.damage.len());
                return Err(
                    Error::new(Kind::Corrupted, "the file is damaged, and not copied")
                        .at(storage.path())
                        .found(found, "none")
                        .remedy("azekura check names them; take out what is left: azekura repair"),
                );
            }
            copy.sync()
        })
    }

    fn path(&self) -> &Path {
        self.blocks.storage.path()
    }

    fn damage(&self) -> Vec<Damage> {
        self.blocks.damaged_slots()
    }

    /// Where the file is edited, a merge replaces it: a reader keeps what it has, and opens the path again to see the newer one.
    fn verify_path(&self) -> Result<()> {
        let file = self.blocks.storage.as_file();
        file.map_or(Ok(()), File::verify_path)
    }
}

/// Bookmarks.
impl SkipReader {
    /// The place after a record of this key, before which there are `next` records with it. Where keys repeat, a bookmark is that
    /// number:
    ///
    /// | bytes | meaning |
    /// |---|---|
    /// | 1 | 2 |
    /// | 8, big-endian | how many records come before the place |
    #[expect(
        clippy::big_endian_bytes,
        reason = "bookmarks sort as bytes in scan order"
    )]
    fn bookmark_after(&self, key: &[u8], next: u64) -> Result<Bookmark> {
        if self.may_repeat() {
            return Bookmark::of(&[&[2], &next.to_be_bytes()]);
        }
        key_bookmark::after(key)
    }

    /// How many records come before the place that a bookmark names, or what damage hides it. `Invalid` for other bytes.
    #[expect(
        clippy::big_endian_bytes,
        reason = "bookmarks sort as bytes in scan order"
    )]
    fn place_of(&self, from: Option<&Bookmark>) -> Result<std::result::Result<u64, LostRange>> {
        let Some(from) = from else {
            return Ok(Ok(0));
        };
        if let Some((2, place)) = from.as_bytes().split_first()
            && let Ok(place) = <[u8; 8]>::try_from(place)
        {
            return Ok(Ok(u64::from_be_bytes(place)));
        }
        let (key, is_after) = key_bookmark::decode(from)?;
        let first = self.blocks.lower_bound_or_lost(key);
        Ok(first.and_then(|first| {
            let place = if is_after {
                self.blocks.upper_bound(key)
            } else {
                Ok(first)
            };
            place.map_err(|error| LostRange { error, next: first })
        }))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::io::sim::SimDisk;
    use crate::record::skip::{BuildOptions, SkipBuilder};

    /// A page that was verified, and that the system replaces by zeros later.
    #[test]
    fn what_the_device_fails_to_give_again_is_an_error() {
        let directory = Box::new(SimDisk::new(1).directory());
        let name = Path::new("a.azs");
        let mut builder = SkipBuilder::create_in(directory, name, &BuildOptions::new()).unwrap();
        for (key, len) in [(&b"long"[..], 30_000), (b"middle", 600), (b"short", 8)] {
            builder.put(key, &vec![7; len]).unwrap();
        }
        let file = builder.finish(&mut |_, _| {}).unwrap();
        let keys = [&b"long"[..], b"middle", b"short"];
        let size = file.blocks.top.size;
        for key in keys {
            assert!(file.get(key).unwrap().is_some());
        }
        // The overflows come first; before the last superblock stands the leaf, which is the root.
        file.blocks.note_unreadable(3 * BLOCK, 1);
        assert_eq!(file.get(b"long").unwrap_err().kind(), crate::Kind::Io);
        assert!(file.get(b"short").unwrap().is_some());
        file.blocks.note_unreadable(size - 2 * BLOCK, 1);
        for key in keys {
            assert_eq!(file.get(key).unwrap_err().kind(), crate::Kind::Io);
            assert_eq!(file.by_index(0).unwrap_err().kind(), crate::Kind::Io);
        }
        let mut errors = 0;
        let scanned = file.scan_past(None, &mut |_, _| panic!("a record"), &mut |_| {
            errors += 1;
            Ok(())
        });
        assert!(scanned.unwrap().is_none());
        assert_eq!(errors, 1);
    }
}
