//! Sorted files: built in random configurations, compared with a model, damaged, and cut off at every moment.
//!
//! Configuration and population are drawn: order, reducer, memory (so that there is one run or a hundred), promised order, lengths
//! of keys and values, keys that repeat or begin alike, files that are merged. Everything goes through what users call.
//!
//! | module | what happens |
//! |---|---|
//! | here | a file is built |
//! | `model` | it is read in every way, and compared |
//! | `damage` | bits are flipped, the end is cut off, sectors cannot be read; it is repaired |
//! | `cuts` | loss of power, a full disk, or an error, at any moment of the building |
//! | `refused` | wrong input |
//! | `edited` | pending edits: a store over such a file |
//!
//! Lines beginning `tried:` state how much was tried.

mod cuts;
mod damage;
mod edited;
mod model;
mod refused;

use std::path::Path;
use std::sync::Arc;

use azekura::io::Directory;
use azekura::io::sim::SimDisk;
use azekura::order::{Base, Order, pair};
use azekura::record::skip::{BuildOptions, Reducer, SkipBuilder, SkipReader};
use azekura::testkit::Random;

/// A record, or the removal of a key.
pub(crate) type Input = (Vec<u8>, Option<Vec<u8>>);
/// Records in order.
pub(crate) type Records = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) const NAME: &str = "words.azs";

/// How a file is built, and what it holds then.
pub(crate) struct Built {
    pub(crate) options: BuildOptions,
    pub(crate) reducer: &'static str,
    pub(crate) disk: SimDisk,
    /// What is put, in order.
    pub(crate) inputs: Vec<Input>,
    /// After how many of these a file is merged, and which.
    pub(crate) merged: Vec<(usize, Arc<SkipReader>, Records)>,
}

impl std::fmt::Debug for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let merged: Vec<usize> = self.merged.iter().map(|(at, ..)| *at).collect();
        f.debug_struct("Built")
            .field("options", &self.options)
            .field("inputs", &self.inputs.len())
            .field("merged_at", &merged)
            .finish_non_exhaustive()
    }
}

/// What keys and values are made of.
pub(crate) struct Population {
    order: Order,
    prefix: Vec<u8>,
    key_max: usize,
    letters: &'static [u8],
    value_max: usize,
    /// Of a hundred records, so many are long: the key, or the value.
    long_percent: u64,
    removed_percent: u64,
}

impl Population {
    pub(crate) fn draw(random: &mut Random, order: Order) -> Self {
        let is_lexical = order == Order::Lexical;
        let prefix_len = *random.choose(&[0, 0, 5, 30]);
        Self {
            order,
            prefix: if is_lexical {
                random.bytes(prefix_len)
            } else {
                Vec::new()
            },
            key_max: *random.choose(&[1, 2, 4, 8, 20, 200]),
            letters: *random.choose(&[
                &b"01"[..],
                &b"0123456789"[..],
                &b"az-+. 09\x00\xff"[..],
                &b"\x00\x01"[..],
            ]),
            value_max: *random.choose(&[0, 8, 8, 60, 510, 600]),
            long_percent: *random.choose(&[0, 0, 2, 20]),
            removed_percent: *random.choose(&[0, 0, 5, 40]),
        }
    }

    pub(crate) fn key(&self, random: &mut Random) -> Vec<u8> {
        let len = random.index(self.key_max + 1);
        let mut key = self.prefix.clone();
        key.extend((0..len).map(|_| *random.choose(self.letters)));
        if self.order == Order::Lexical && random.below(100) < self.long_percent {
            // Many begin with the same 510 bytes.
            let middle = *random.choose(&[300, 500, 505, 510, 511, 600]);
            let end = random.index(4);
            key.resize(key.len() + middle, b'm');
            key.extend((0..end).map(|_| *random.choose(self.letters)));
        }
        if let Order::Pair(_) = self.order {
            let middle = random.index(key.len() + 1);
            key = pair(&key[..middle], &key[middle..]);
        }
        key
    }

    pub(crate) fn value(&self, random: &mut Random) -> Vec<u8> {
        if random.below(100) < self.long_percent {
            let len = 500 + random.index(5000);
            return random.bytes(len);
        }
        let len = random.index(self.value_max + 1);
        if random.one_in(2) {
            return random.below(1 << 30).to_string().into_bytes();
        }
        random.bytes(len)
    }

    fn inputs(&self, random: &mut Random, count: usize) -> Vec<Input> {
        let mut inputs = Vec::new();
        for _ in 0..count {
            let is_removed = random.below(100) < self.removed_percent;
            let value = (!is_removed).then(|| self.value(random));
            inputs.push((self.key(random), value));
        }
        inputs
    }
}

/// The order that is drawn: the lexical every second time.
pub(crate) fn draw_order(random: &mut Random) -> Order {
    if random.one_in(2) {
        return Order::Lexical;
    }
    *random.choose(&[
        Order::CaseFolded,
        Order::Decimal,
        Order::Hexadecimal,
        Order::Real,
        Order::SignedBigEndian,
        Order::FloatBigEndian,
        Order::Pair(Base::Decimal),
        Order::Pair(Base::Lexical),
    ])
}

impl Built {
    /// Draws one of at most so many records.
    pub(crate) fn draw(seed: u64, count_max: usize) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let order = draw_order(random);
        let population = Population::draw(random, order);
        let reducer = *random.choose(&Reducer::NAMES);
        let count = random.index(count_max + 1);
        let mut inputs = population.inputs(random, count);
        let is_sorted = random.one_in(4);
        if is_sorted {
            inputs.sort_by(|(a, _), (b, _)| order.compare(a, b));
        }
        let lens = inputs
            .iter()
            .map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len));
        // Passes of merging take their room in a file of the simulated disk, which ends at 64 MiB.
        let little: &[u64] = if lens.sum::<usize>() < 2 << 20 {
            &[64 << 10, 100 << 10, 1 << 20, 256 << 20]
        } else {
            &[1 << 20, 4 << 20, 256 << 20]
        };
        let options = BuildOptions::new()
            .order(order)
            .reducer(Reducer::from_name(reducer).unwrap())
            .memory(*random.choose(little))
            .is_sorted(is_sorted);
        let disk = SimDisk::new(seed);
        let mut merged = Vec::new();
        if !is_sorted && random.one_in(3) {
            for number in 0..=random.index(3) {
                let count = random.index(count_max / 4 + 1);
                let other = Self {
                    options: BuildOptions::new().order(order).reducer(Reducer::All),
                    reducer: "all",
                    disk: disk.clone(),
                    inputs: population.inputs(random, count),
                    merged: Vec::new(),
                };
                let name = format!("merged{number}.azs");
                let file = other.build_named(Path::new(&name)).unwrap();
                let at = random.index(inputs.len() + 1);
                merged.push((at, Arc::new(file), other.expected()));
            }
            merged.sort_by_key(|(at, ..)| *at);
        }
        Self {
            options,
            reducer,
            disk,
            inputs,
            merged,
        }
    }

    pub(crate) fn order(&self) -> Order {
        self.options.order
    }

    /// Builds the file.
    pub(crate) fn build(&self) -> azekura::Result<SkipReader> {
        self.build_named(Path::new(NAME))
    }

    fn build_named(&self, name: &Path) -> azekura::Result<SkipReader> {
        let directory: Box<dyn Directory> = Box::new(self.disk.directory());
        let mut builder = SkipBuilder::create_in(directory, name, &self.options)?;
        let mut merged = self.merged.iter().peekable();
        for (at, (key, value)) in self.inputs.iter().enumerate() {
            while let Some((_, file, _)) = merged.next_if(|(before, ..)| *before <= at) {
                builder.merge(file)?;
            }
            match value {
                Some(value) => builder.put(key, value)?,
                None => builder.remove(key)?,
            }
        }
        for (_, file, _) in merged {
            builder.merge(file)?;
        }
        let (mut last, mut total) = (0, 0);
        let file = builder.finish(&mut |done, of| {
            assert!(done >= last && done <= of);
            (last, total) = (done, of);
        })?;
        assert_eq!(last, total, "the progress ends at its total");
        Ok(file)
    }

    /// The records that the file has to hold, in order.
    pub(crate) fn expected(&self) -> Records {
        let mut all: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
        let mut merged = self.merged.iter().peekable();
        for (at, (key, value)) in self.inputs.iter().enumerate() {
            while let Some((.., records)) = merged.next_if(|(before, ..)| *before <= at) {
                all.extend(
                    records
                        .iter()
                        .map(|(key, value)| (&key[..], Some(&value[..]))),
                );
            }
            all.push((key, value.as_deref()));
        }
        for (.., records) in merged {
            all.extend(
                records
                    .iter()
                    .map(|(key, value)| (&key[..], Some(&value[..]))),
            );
        }
        let order = self.order();
        all.sort_by(|(a, _), (b, _)| order.compare(a, b));
        let mut expected = Records::new();
        for alike in all.chunk_by(|(a, _), (b, _)| a == b) {
            let key = alike[0].0;
            let last_removal = alike.iter().rposition(|(_, value)| value.is_none());
            let left = &alike[last_removal.map_or(0, |at| at + 1)..];
            let values: Vec<&[u8]> = left.iter().filter_map(|(_, value)| *value).collect();
            let stored = reduced(self.reducer, &values);
            expected.extend(stored.into_iter().map(|value| (key.to_vec(), value)));
        }
        expected
    }
}

/// What a reducer makes of values, written without regard to speed.
#[expect(clippy::big_endian_bytes, reason = "it is what one of them is for")]
pub(crate) fn reduced(reducer: &str, values: &[&[u8]]) -> Vec<Vec<u8>> {
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        return Vec::new();
    };
    if values.len() == 1 {
        return vec![first.to_vec()];
    }
    match reducer {
        "last" => vec![last.to_vec()],
        "first" => vec![first.to_vec()],
        "second" => vec![values[1].to_vec()],
        "all" => values.iter().map(|value| value.to_vec()).collect(),
        "concat" => vec![values.concat()],
        "concat-nul" => vec![values.join(&b'\0')],
        "concat-tab" => vec![values.join(&b'\t')],
        "concat-newline" => vec![values.join(&b'\n')],
        "total-decimal" => {
            let number = |value: &[u8]| -> i128 {
                let text = String::from_utf8_lossy(value);
                let text = text.trim_start_matches([' ', '\t', '\n', '\x0c', '\r']);
                let end = text
                    .char_indices()
                    .find(|(at, c)| !(c.is_ascii_digit() || *at == 0 && (*c == '-' || *c == '+')))
                    .map_or(text.len(), |(at, _)| at);
                text[..end].parse().unwrap_or(0)
            };
            let sum: i128 = values.iter().map(|value| number(value)).sum();
            vec![sum.to_string().into_bytes()]
        }
        "total-big-endian" => {
            let number = |value: &[u8]| -> u64 {
                let mut bytes = [0; 8];
                match value.len() {
                    0..=8 => bytes[8 - value.len()..].copy_from_slice(value),
                    _ => return 0,
                }
                u64::from_be_bytes(bytes)
            };
            let sum = values.iter().map(|value| number(value));
            vec![sum.fold(0, u64::wrapping_add).to_be_bytes().to_vec()]
        }
        _ => panic!("no reducer {reducer}"),
    }
}
