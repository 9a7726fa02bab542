//! Configurations of hash files and object stores, drawn from a seed: no combination of options is left to users.
//!
//! A suite states its bounds ([`Within`]): the size of its storage, what its records need, whether the library's own threads
//! may run. [`hash_options`] draws the rest: segment size (or none, so that the library chooses), capacity from the least one
//! up, compression, space ratio, durability, mapping, background worker and sync interval. [`opening`] draws again what
//! holds for one opening only. `reads_doubtful` stays false: it allows older values, which suites count as wrong.
//! [`object_options`] draws those of an object store on one device.
//!
//! A drawn configuration is printed by [`suite::case`](super::suite::case) if the test fails.

use std::time::Duration;

use super::Random;
use crate::engine::Durability;
use crate::object;
use crate::record::hash::{Compression, CreateOptions, HashDb, OpenOptions};

/// The bounds of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Within {
    /// Bytes of the storage; the largest capacity.
    pub capacity_max: u64,
    /// Bytes of keys and values that have to fit. `None`: the suite expects `Full`, so the least capacity is drawn, too.
    pub holds: Option<u64>,
    /// Bytes of the largest segment.
    pub segment_size_max: u64,
    /// Whether the background worker may run. Without it a seed decides every step.
    pub background: bool,
    /// Whether each write may be synced: slow on real devices.
    pub durable: bool,
}

impl Within {
    /// On the simulated disk, or any storage of `capacity_max` bytes: a seed decides every step, and the store may be full.
    pub const fn bytes(capacity_max: u64) -> Self {
        Self {
            capacity_max,
            holds: None,
            segment_size_max: 1 << 20,
            background: false,
            durable: true,
        }
    }

    /// In a file that has to hold so many bytes of keys and values, and never be full.
    pub const fn file(holds: u64) -> Self {
        Self {
            capacity_max: 1 << 40,
            holds: Some(holds),
            segment_size_max: 1 << 20,
            background: true,
            durable: false,
        }
    }

    /// The least capacity of a store of such segments; 0: of segments that the library chooses, which are small where the
    /// capacity is.
    fn least(&self, segment_size: u64) -> u64 {
        let size = if segment_size == 0 {
            4096
        } else {
            segment_size
        };
        HashDb::least_capacity(size) + self.holds.map_or(0, |holds| 2 * holds)
    }

    /// The largest capacity: segments that the library chooses are a 512th of it.
    fn most(&self, segment_size: u64) -> u64 {
        if segment_size == 0 && self.segment_size_max < 1 << 20 {
            self.capacity_max.min(self.segment_size_max * 512)
        } else {
            self.capacity_max
        }
    }

    fn capacity(&self, segment_size: u64, random: &mut Random) -> u64 {
        let (least, most) = (self.least(segment_size), self.most(segment_size));
        let between = (most - least).min(least) + 1;
        let capacity = match random.below(4) {
            0 => least,
            1 => least + random.below(between),
            2 => {
                let doublings = u64::from((most / least).ilog2()) + 1;
                (least << random.below(doublings)) + random.below(between)
            }
            _ => most,
        };
        capacity.min(most).next_multiple_of(4096)
    }
}

/// How values are stored: as they are in half of the cases.
pub fn compression(random: &mut Random) -> Compression {
    *random.choose(&[
        Compression::None,
        Compression::None,
        Compression::Lz4,
        Compression::Zstd,
    ])
}

/// Options of a hash file to be created.
///
/// Panics if no segment size is within the bounds.
pub fn hash_options(random: &mut Random, within: &Within) -> CreateOptions {
    let sizes: Vec<u64> = [0, 4096, 4096, 4096, 4096]
        .into_iter()
        .chain([8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20])
        .filter(|size| *size <= within.segment_size_max)
        .filter(|size| within.least(*size) <= within.most(*size))
        .collect();
    let segment_size = *random.choose(&sizes);
    let options = CreateOptions::new()
        .segment_size(segment_size)
        .compression(compression(random))
        .capacity(within.capacity(segment_size, random));
    let opening = of_opening(random, within, options.opening.capacity);
    options.opening(opening)
}

/// The options of another opening of a file that was created with `created`.
pub fn opening(random: &mut Random, within: &Within, created: &CreateOptions) -> OpenOptions {
    // The least capacity of segments that the library chose is not known here.
    let capacity = match created.segment_size {
        0 => created.opening.capacity,
        size => within.capacity(size, random),
    };
    of_opening(random, within, capacity)
}

fn of_opening(random: &mut Random, within: &Within, capacity: u64) -> OpenOptions {
    let background = within.background && random.one_in(2);
    OpenOptions::new()
        .capacity(capacity)
        .space_ratio(*random.choose(&[1.1, 1.3, 1.6, 1.6, 3.0]))
        .durability(durability(random, within.durable))
        .syncs_often(random.one_in(4))
        .sync_interval(
            (background && random.one_in(4)).then(|| Duration::from_millis(1 + random.below(50))),
        )
        .background(background)
}

fn durability(random: &mut Random, may_sync: bool) -> Durability {
    if may_sync && random.one_in(4) {
        Durability::Power
    } else {
        Durability::Process
    }
}

/// Options of an object store on one device, with so many bytes for data and no thread of its own. Objects are shorter than
/// 128 KiB.
pub fn object_options(random: &mut Random, data: u64) -> object::CreateOptions {
    let journal = *random.choose(&[144 << 10, 192 << 10, 256 << 10, 1 << 20]);
    let more = *random.choose(&[0, 0, data / 2, data]);
    let durability = durability(random, true);
    object::CreateOptions::new()
        .capacity((journal + data + more).next_multiple_of(4096))
        .journal_size(journal)
        .group_size(*random.choose(&[Some(128 << 10), Some(256 << 10), None]))
        .small_max(*random.choose(&[0, 100, 2048, 2048, 4096]))
        .sync_every(
            (durability == Durability::Process && random.one_in(4)).then(|| random.below(6)),
        )
        .direct(random.one_in(2))
        .durability(durability)
        .background(false)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;
    use crate::error::Kind;
    use crate::io::Storage;
    use crate::io::memory::Memory;

    const BOUNDS: [Within; 3] = [
        Within::bytes(64 << 20),
        Within {
            segment_size_max: 64 << 10,
            ..Within::bytes(16 << 20)
        },
        Within {
            capacity_max: 256 << 20,
            ..Within::file(1 << 20)
        },
    ];

    #[test]
    fn every_drawn_configuration_makes_a_store_and_is_within_its_bounds() {
        let (mut least, mut most, mut segments) = (0, 0, HashSet::new());
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let within = BOUNDS[seed as usize % BOUNDS.len()];
            let options = hash_options(&mut random, &within);
            assert!(
                options.opening.capacity <= within.capacity_max,
                "{options:?}"
            );
            assert!(
                within.background || !options.opening.background,
                "{options:?}"
            );
            let memory = Memory::new(within.capacity_max).unwrap();
            let storage = Arc::clone(&memory) as Arc<dyn Storage>;
            let db = HashDb::create_on(storage, &options).unwrap();
            let segment_size = db.log().geometry().segment_size();
            assert!(segment_size <= within.segment_size_max, "{options:?}");
            segments.insert(options.segment_size);
            db.put(b"key", b"value").unwrap();
            db.close().unwrap();
            least += u64::from(options.opening.capacity == within.least(options.segment_size));
            most += u64::from(options.opening.capacity == within.capacity_max);
            let again = opening(&mut random, &within, &options);
            let db = HashDb::open_on(memory, &again).unwrap();
            assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        }
        assert!(least > 30 && most > 30, "{least} least, {most} largest");
        assert_eq!(segments.len(), 7);
    }

    /// What `holds` promises, with values that take segments of their own among the records.
    #[test]
    fn what_has_to_fit_fits_however_often_it_is_overwritten() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let within = Within {
                capacity_max: 64 << 20,
                ..Within::file(200_000)
            };
            let options = hash_options(&mut random, &within);
            let memory = Memory::new(64 << 20).unwrap();
            let db = HashDb::create_on(memory, &options).unwrap();
            for put in 0..6000u64 {
                let key = random.below(40).to_le_bytes();
                let len = random.index(5000);
                let put = db.put(&key, &random.bytes(len)).map_err(|e| (put, e));
                assert!(put.is_ok(), "seed {seed}: {put:?}: {options:?}");
            }
        }
    }

    #[test]
    fn a_suite_that_expects_full_stores_sees_some() {
        let full = (0..40).filter(|seed| {
            let mut random = Random::new(*seed);
            let options = hash_options(&mut random, &Within::bytes(32 << 20));
            let db = HashDb::create_on(Memory::new(32 << 20).unwrap(), &options).unwrap();
            let put = |key: u64| db.put(&key.to_le_bytes(), &[7; 1000]);
            let refused = (0..4000).find_map(|key| put(key).err());
            refused.is_some_and(|error| error.kind() == Kind::Full)
        });
        assert!(full.count() > 4);
    }
}
