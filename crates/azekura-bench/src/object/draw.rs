//! Keys and values of the objects: two generators, each with a name and a version of its own.
//!
//! `azekura-keys-1`: key `i` of a population is drawn from the seed and `i` alone. The seed, at most 32
//! bytes of text, is padded with zeros and folded as four little-endian words, `s = mix(s ^ word)` from
//! `s = 1`. Characters are digits and letters (62); word `w` of key `i` is the splitmix64 finalizer of
//! `s + (16 i + w + 1) * 0x9e3779b97f4a7c15`, scaled to a number below 62^8 whose eight digits of base 62,
//! the lowest first, are the characters. A shuffle draws the first `count` places of the population as
//! Fisher and Yates do, from the end of the array not yet drawn, with a splitmix64 stream (`Choice`)
//! of the folded shuffle text. So one seed gives the same keys to the puts and to any sample of them. Nothing keeps
//! two places from drawing one key, so a population in which that happens is refused: the ids of a population are distinct.
//!
//! `azekura-values-1`: a value is made of its key, a generation and its length. Word `w` of it is the
//! finalizer of `v + w * 0x9e3779b97f4a7c15`, where `v` mixes the three; the first word is the
//! generation, xored with one of the key, so that a reader of a value knows what it must be. Of
//! less than eight bytes it is the beginning of that word for generation 0. No part of it compresses.

use azekura::error::{Error, Kind, Result};

use crate::generate::{Choice, mix};

/// Longest key: an id has 128 bits.
pub const KEY_SIZE_MAX: usize = 16;
/// Longest text of a seed or shuffle.
const SEED_LEN_MAX: usize = 32;
/// Most keys of a population: places are kept as 32 bits.
const POPULATION_MAX: u64 = u32::MAX as u64;

const CHARACTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// 62^8: so many keys of eight characters are there.
const WORDS: u128 = 218_340_105_584_896;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn fold(text: &str) -> Result<u64> {
    if text.len() > SEED_LEN_MAX {
        let what = "a seed or shuffle has at most 32 bytes";
        return Err(Error::new(Kind::Invalid, what).key(text.as_bytes()));
    }
    let mut padded = [0; SEED_LEN_MAX];
    padded[..text.len()].copy_from_slice(text.as_bytes());
    let (words, _) = padded.as_chunks();
    Ok(words
        .iter()
        .fold(1, |state, word| mix(state ^ u64::from_le_bytes(*word))))
}

/// A population whose chance of two equal keys is below this has none in practice.
const CHANCE_MIN: f64 = 1e-9;
/// With so many expected, counting is not needed: 1 population in 8 million would have none.
const EXPECTED_MAX: f64 = 16.0;

/// Which keys, in which order: a stream of them, each as text.
pub struct Keys {
    state: u64,
    key_size: usize,
    /// Places of the population in the requested order; `None` for 0, 1, 2, ...
    order: Option<Vec<u32>>,
    next: u64,
    count: u64,
}

impl Keys {
    /// `count` keys of `key_size` characters out of a population of `population`, shuffled if there is a
    /// text to do it by. A shuffled population is held in memory, 4 bytes a key. Errors: `Invalid` for
    /// sizes, counts and texts beyond the limits.
    pub fn new(
        seed: &str,
        shuffle: Option<&str>,
        population: u64,
        count: u64,
        key_size: usize,
    ) -> Result<Self> {
        let wrong = |what: &str| Err(Error::new(Kind::Invalid, what));
        if !(1..=KEY_SIZE_MAX).contains(&key_size) {
            return wrong("a key has 1 to 16 characters");
        }
        if count > population || population > POPULATION_MAX {
            return wrong("a population has at most 2^32-1 keys, and no fewer than requested");
        }
        let order = match shuffle {
            None => None,
            Some(text) => Some(sample(fold(text)?, population as u32, count as u32)),
        };
        let state = fold(seed)?;
        let mut keys = Self {
            state,
            key_size,
            order: None,
            next: 0,
            count,
        };
        keys.check_distinct(population)?;
        keys.order = order;
        Ok(keys)
    }

    /// Refuses a population in which two keys are the same. Where there is a chance of that, all are drawn and
    /// compared, which takes 16 bytes a key meanwhile.
    fn check_distinct(&self, population: u64) -> Result<()> {
        let all = 62_f64.powf(self.key_size as f64);
        let expected = population as f64 * (population as f64 - 1.0) / 2.0 / all;
        if expected < CHANCE_MIN {
            return Ok(());
        }
        let found = if expected > EXPECTED_MAX {
            format!("about {:.0}", (population as f64).min(expected))
        } else {
            let mut ids: Vec<u128> = (0..population)
                .map(|place| id_of(&self.key(place)))
                .collect::<Result<_>>()?;
            ids.sort_unstable();
            ids.dedup();
            let same = population - ids.len() as u64;
            if same == 0 {
                return Ok(());
            }
            same.to_string()
        };
        let what = format!(
            "{population} keys of {} {} are not distinct",
            self.key_size,
            if self.key_size == 1 {
                "character"
            } else {
                "characters"
            }
        );
        Err(Error::new(Kind::Invalid, what)
            .detail(format!("{found} would be drawn twice"))
            .remedy("take longer keys, with --key-size: of 16 characters all are distinct"))
    }

    /// The key at a place of the population.
    fn key(&self, place: u64) -> String {
        let mut key = String::with_capacity(self.key_size);
        for word in 0..self.key_size.div_ceil(8) as u64 {
            let step = (16 * place + word + 1).wrapping_mul(GOLDEN);
            let bits = mix(self.state.wrapping_add(step));
            let mut number = (u128::from(bits) * WORDS) >> 64;
            for _ in 0..8.min(self.key_size - key.len()) {
                key.push(char::from(CHARACTERS[(number % 62) as usize]));
                number /= 62;
            }
        }
        key
    }
}

impl Iterator for Keys {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if self.next == self.count {
            return None;
        }
        let place = match &self.order {
            None => self.next,
            Some(order) => u64::from(order[self.next as usize]),
        };
        self.next += 1;
        Some(self.key(place))
    }
}

/// The first `count` of `0..population` in random order.
fn sample(state: u64, population: u32, count: u32) -> Vec<u32> {
    let mut choice = Choice::new(state);
    let mut places: Vec<u32> = (0..population).collect();
    for drawn in 0..count as usize {
        let other = drawn + choice.below(u64::from(population) - drawn as u64) as usize;
        places.swap(drawn, other);
    }
    places.truncate(count as usize);
    places.shrink_to_fit();
    places
}

/// The id a key stands for: its bytes as a big-endian number. `Invalid` beyond 16 bytes.
pub fn id_of(key: &str) -> Result<u128> {
    if key.len() > KEY_SIZE_MAX {
        return Err(Error::new(Kind::Invalid, "a key has at most 16 bytes").key(key.as_bytes()));
    }
    Ok(key.bytes().fold(0, |id, byte| id << 8 | u128::from(byte)))
}

const fn first_word(id: u128) -> u64 {
    mix(mix(id as u64).wrapping_add((id >> 64) as u64) ^ GOLDEN)
}

/// Fills `value` with what generation `generation` of the object `id` is.
pub fn fill(id: u128, generation: u64, value: &mut [u8]) {
    Making::new(id, generation, value.len() as u64).resume(value);
}

/// A value that is made piece by piece. All pieces but the last have whole words of 8 bytes.
#[derive(Debug)]
pub struct Making {
    /// Until it is there.
    first: Option<u64>,
    state: u64,
    left: u64,
}

impl Making {
    /// Of `len` bytes, of generation `generation` of the object `id`.
    pub fn new(id: u128, generation: u64, len: u64) -> Self {
        let first = first_word(id);
        Self {
            // A value without a whole word has no generation.
            first: Some(if len < 8 { first } else { first ^ generation }),
            state: mix(first ^ mix(mix(generation ^ GOLDEN) ^ len)),
            left: len,
        }
    }

    fn resume(&mut self, piece: &mut [u8]) {
        let mut state = self.state;
        let (words, rest) = piece.as_chunks_mut();
        for word in &mut *words {
            *word = mix(state).to_le_bytes();
            state = state.wrapping_add(GOLDEN);
        }
        self.state = state;
        let len = rest.len();
        rest.copy_from_slice(&mix(state).to_le_bytes()[..len]);
        if let Some(first) = self.first.take() {
            let len = piece.len().min(8);
            piece[..len].copy_from_slice(&first.to_le_bytes()[..len]);
        }
    }
}

impl std::io::Read for Making {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = self.left.min(buf.len() as u64) as usize;
        if len < 8 && self.left > len as u64 {
            return Err(std::io::Error::other("a piece has less than a word"));
        }
        let len = if self.left > len as u64 {
            len - len % 8
        } else {
            len
        };
        if len > 0 {
            self.resume(&mut buf[..len]);
        }
        self.left -= len as u64;
        Ok(len)
    }
}

/// Whether `value` is some generation of the object `id`. `scratch` is overwritten.
pub fn is_value_of(id: u128, value: &[u8], scratch: &mut Vec<u8>) -> bool {
    let generation = match value.first_chunk() {
        Some(first) => u64::from_le_bytes(*first) ^ first_word(id),
        None => 0,
    };
    scratch.resize(value.len(), 0);
    fill(id, generation, scratch);
    // A generation is a small number; a first word that is no generation is damage, too.
    generation >> 32 == 0 && scratch == value
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn keys(seed: &str, shuffle: Option<&str>, population: u64, count: u64) -> Vec<String> {
        Keys::new(seed, shuffle, population, count, 16)
            .unwrap()
            .collect()
    }

    #[test]
    fn version_one_of_the_keys_stays_what_it_is() {
        assert_eq!(
            keys("foo", None, 3, 3),
            ["G0FYEYNZbyDOgTVZ", "GZqAKgFpQY8HdRYn", "pUwClBqemnOpLINM"]
        );
        assert_eq!(
            keys("foo", Some("qux"), 300, 2),
            ["x7kB7FgssZrhQSOf", "v5lAZqdhxMeYFp93"]
        );
    }

    #[test]
    fn one_seed_gives_samples_the_keys_of_the_puts() {
        let all: HashSet<String> = keys("foo", None, 1000, 1000).into_iter().collect();
        assert_eq!(all.len(), 1000);
        let sample = keys("foo", Some("bar"), 1000, 100);
        let distinct: HashSet<&String> = sample.iter().collect();
        assert_eq!(distinct.len(), 100);
        assert!(sample.iter().all(|key| all.contains(key)));
        assert_ne!(sample, keys("foo", Some("baz"), 1000, 100));
        // A sample is the beginning of a larger one.
        assert_eq!(sample[..10], keys("foo", Some("bar"), 1000, 10));
        assert!(
            keys("other", None, 1000, 1000)
                .iter()
                .all(|key| !all.contains(key))
        );
    }

    #[test]
    fn a_value_made_in_pieces_is_the_same() {
        for len in [0, 1, 7, 8, 9, 100, 65_464, 65_473, 200_003] {
            let mut whole = vec![0; len];
            fill(77, 3, &mut whole);
            let (mut making, mut pieces) = (Making::new(77, 3, len as u64), Vec::new());
            let mut piece = [0; 1003];
            loop {
                let read = std::io::Read::read(&mut making, &mut piece).unwrap();
                if read == 0 {
                    break;
                }
                pieces.extend_from_slice(&piece[..read]);
            }
            assert!(pieces == whole, "{len}");
        }
        let mut whole = [0; 20];
        fill(1, 2, &mut whole);
        assert!(is_value_of(1, &whole, &mut Vec::new()));
    }

    #[test]
    fn a_population_in_which_two_keys_are_the_same_is_refused() {
        let keys = |population: u64, key_size| Keys::new("foo", None, population, 1, key_size);
        for (population, key_size) in [(100, 1), (63, 1), (1000, 2), (1 << 20, 4)] {
            let error = keys(population, key_size).err().unwrap();
            assert_eq!(error.kind(), Kind::Invalid);
            let text = error.to_string();
            assert!(
                text.contains("are not distinct") && text.contains("--key-size"),
                "{text}"
            );
        }
        let text = keys(100, 1).err().unwrap().to_string();
        assert!(text.contains("100 keys of 1 character are"), "{text}");
        // One more, or one fewer, than are distinct: what is counted is exact.
        let distinct = (1..1000)
            .find(|&population| keys(population, 2).is_err())
            .unwrap()
            - 1;
        let drawn = |count| -> HashSet<String> {
            let state = fold("foo").unwrap();
            let (order, next) = (None, 0);
            let keys = Keys {
                state,
                key_size: 2,
                order,
                next,
                count,
            };
            keys.collect()
        };
        assert!(distinct > 5 && drawn(distinct).len() as u64 == distinct);
        assert_eq!(drawn(distinct + 1).len() as u64, distinct);
        for (population, key_size) in [(1, 1), (100_000, 8), (u64::from(u32::MAX), 16)] {
            keys(population, key_size).unwrap();
        }
    }

    #[test]
    fn all_characters_come_about_as_often() {
        let mut counts = [0_u32; 128];
        for key in keys("x", None, 10_000, 10_000) {
            key.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
        }
        let expected = 160_000.0 / 62.0;
        for &character in CHARACTERS {
            let count = f64::from(counts[usize::from(character)]);
            assert!(
                (count - expected).abs() < expected / 5.0,
                "{character}: {count}"
            );
        }
    }

    #[test]
    fn keys_beyond_the_limits_are_refused() {
        for (seed, population, count, key_size) in [
            ("s", 1, 1, 0),
            ("s", 1, 1, 17),
            ("s", 1, 2, 16),
            ("s", 1 << 32, 1, 16),
            ("a seed of more than thirty-two bytes", 1, 1, 16),
        ] {
            let error = Keys::new(seed, None, population, count, key_size)
                .err()
                .unwrap();
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
        }
        assert_eq!(
            id_of("seventeen letters").unwrap_err().kind(),
            Kind::Invalid
        );
        assert_eq!(id_of("AB").unwrap(), 0x4142);
    }

    #[test]
    fn a_value_is_known_by_key_and_generation_and_any_change_is_seen() {
        let (mut value, mut scratch) = (vec![0; 1003], Vec::new());
        for generation in [0, 1, 77] {
            fill(5, generation, &mut value);
            assert!(is_value_of(5, &value, &mut scratch));
            assert!(!is_value_of(6, &value, &mut scratch));
            for at in [0, 4, 7, 8, 500, 1002] {
                value[at] ^= 1;
                // Another generation in the first word is another value in all others.
                assert!(!is_value_of(5, &value, &mut scratch), "{at}");
                value[at] ^= 1;
            }
            assert!(!is_value_of(5, &value[..1002], &mut scratch));
        }
        let mut short = [0; 7];
        fill(5, 9, &mut short);
        assert!(is_value_of(5, &short, &mut scratch) && !is_value_of(4, &short, &mut scratch));
    }

    #[test]
    fn values_have_no_pattern_that_compresses() {
        let mut value = vec![0; 1 << 16];
        fill(1, 0, &mut value);
        let mut counts = [0_u32; 256];
        for &byte in &value {
            counts[usize::from(byte)] += 1;
        }
        assert!(counts.iter().all(|&count| (150..400).contains(&count)));
        let distinct: HashSet<&[u8]> = value.chunks(8).collect();
        assert_eq!(distinct.len(), value.len() / 8);
    }
}
