//! Growth: chunks that get more buckets, or become two, and the directory that doubles.
//!
//! The old chunk is locked as a whole, copied, and left as it is; what was built is published before `moved` is set. On an
//! error everything stays as it was. It does not know why the caller needs room.

use std::sync::atomic::Ordering;

use super::hash::{self, ADDRESS_BITS, Hash};
use super::shape::{self, Chunk};
use super::{Directory, Index, NOT_LOADED};
use crate::epoch::Pin;
use crate::error::{Error, Kind, Result};
use crate::explore;

impl Index {
    /// Makes room where a claim failed: loads the partition, makes a first chunk, or grows the chunk of the word `seen`.
    /// Does nothing if another thread already did. The caller holds no bucket's lock.
    pub fn grow(&self, hash: Hash, seen: u64) -> Result<()> {
        let pin = &self.domain.pin();
        let _growth = self.growth[hash.partition() % 64].lock();
        let word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        if word != seen {
            return Ok(());
        }
        if word & NOT_LOADED != 0 {
            return self.load_partition(hash.partition());
        }
        if word == 0 {
            let chunk = Chunk::take(&self.arena, shape::LADDER[0])?;
            let depth = self.directory.get(pin).depth;
            match self.publish(word, &[(hash, depth, chunk.word(depth))]) {
                Ok(true) => {}
                other => {
                    self.arena.give_back(chunk.lines());
                    other?;
                }
            }
            return Ok(());
        }
        let old = self.chunk(word);
        let depth = old.depth();
        for at in 0..old.len() {
            old.bucket(at).lock();
        }
        let entries = old.entries();
        let grown = self.rebuild(hash, depth, word, shape::above(old.buckets()), &entries);
        for at in 0..old.len() {
            let bucket = old.bucket(at);
            if matches!(grown, Ok(true)) {
                bucket.set_moved();
            }
            bucket.unlock();
        }
        // If all was cleared meanwhile, that retired it.
        if grown? {
            self.arena.retire(old.lines());
        }
        Ok(())
    }

    /// Builds chunks for `entries` of the prefix of `hash` at `depth`, of `buckets` buckets or more, or in
    /// two halves, and publishes them in the place of `seen`: all of them, or, on an error, none. Whether it did, as `publish`.
    pub(super) fn rebuild(
        &self,
        hash: Hash,
        depth: u32,
        seen: u64,
        buckets: Option<u32>,
        entries: &[u64],
    ) -> Result<bool> {
        let mut built = Vec::new();
        let done = self
            .build_chunks(hash, depth, buckets, entries, &mut built)
            .and_then(|()| {
                let words: Vec<_> = built
                    .iter()
                    .map(|(hash, chunk)| (*hash, chunk.depth(), chunk.word(chunk.depth())))
                    .collect();
                self.publish(seen, &words)
            });
        if !matches!(done, Ok(true)) {
            for (_, chunk) in built {
                self.arena.give_back(chunk.lines());
            }
        }
        done
    }

    /// Builds them, each with the smallest hash of its prefix. Until all are published, lookups of
    /// the rest still find the old chunk; so the second half is the first in the list.
    fn build_chunks<'i>(
        &'i self,
        hash: Hash,
        depth: u32,
        buckets: Option<u32>,
        entries: &[u64],
        built: &mut Vec<(Hash, Chunk<'i>)>,
    ) -> Result<()> {
        let mut wanted = buckets;
        while let Some(buckets) = wanted {
            let chunk = Chunk::take(&self.arena, buckets)?.with_depth(depth);
            if chunk.fill(entries) {
                built.push((hash, chunk));
                return Ok(());
            }
            self.arena.give_back(chunk.lines());
            wanted = shape::above(buckets);
        }
        if depth + 1 >= hash::KNOWN_BITS {
            return Err(Error::new(
                Kind::Full,
                "too many records share one hash prefix",
            ));
        }
        let bit = 1u64 << (hash::KNOWN_BITS - 1 - depth) << ADDRESS_BITS;
        let (ones, zeros): (Vec<u64>, Vec<u64>) = entries.iter().partition(|e| **e & bit != 0);
        let half = 1u64 << (63 - depth);
        let first = hash.0 >> (64 - depth) << (64 - depth);
        let deeper = depth + 1;
        let (upper, lower) = (shape::fitting(ones.len()), shape::fitting(zeros.len()));
        self.build_chunks(Hash(first | half), deeper, upper, &ones, built)?;
        self.build_chunks(Hash(first), deeper, lower, &zeros, built)
    }

    /// Doubles the directory until it distinguishes prefixes of so many bits.
    fn deepen(&self, pin: &Pin, depth: u32) -> Result<()> {
        while self.directory.get(pin).depth < depth {
            let old = self.directory.get(pin);
            let new = Directory::new(old.depth + 1)?;
            for (at, slot) in old.slots.iter().enumerate() {
                let word = slot.load(Ordering::Relaxed);
                new.slots[2 * at].store(word, Ordering::Relaxed);
                new.slots[2 * at + 1].store(word, Ordering::Relaxed);
            }
            drop(self.directory.swap(new));
        }
        Ok(())
    }

    /// Writes words of chunks (or that there is none), each for the prefix of its hash at its depth, where the directory has
    /// `seen`. `false`, and nothing is written: it has something else, since everything was cleared meanwhile.
    pub(super) fn publish(&self, seen: u64, words: &[(Hash, u32, u64)]) -> Result<bool> {
        let pin = &self.domain.pin();
        let _structure = self.structure.lock();
        let is_seen = |(hash, ..): &(Hash, u32, u64)| {
            self.directory.get(pin).slot(*hash).load(Ordering::Relaxed) == seen
        };
        if !words.iter().all(is_seen) {
            return Ok(false);
        }
        let deepest = words.iter().map(|(_, depth, _)| *depth).max();
        self.deepen(pin, deepest.unwrap_or(0))?;
        for (hash, depth, word) in words {
            for slot in self.directory.get(pin).slots_of(*hash, *depth) {
                explore::yield_point();
                slot.store(*word, Ordering::Release);
            }
        }
        Ok(true)
    }
}
