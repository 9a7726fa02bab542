//! Random numbers from a seed, the same on every machine, or from the bytes of a fuzzer.
//!
//! [`Random`] is splitmix64: small, fast, and good enough to choose tests with. Made from bytes, it
//! hands those out first, so that a fuzzer steers every choice; when they are used up it continues
//! from a seed made of them. Not for secrets.

/// What a test adds to its own seed: 0, or the number in `AZEKURA_SEED`, far from its neighbours.
///
/// Panics if the variable is not a number: a soak that repeats nothing would state that all is well.
pub fn round_seed() -> u64 {
    let round = std::env::var("AZEKURA_SEED")
        .map_or(0, |text| text.parse().expect("AZEKURA_SEED is a number"));
    seed_of_round(round)
}

/// The seeds of neighbouring rounds do not meet: a test counts up from its own by less than a million.
const fn seed_of_round(round: u64) -> u64 {
    round.wrapping_mul(1 << 20)
}

/// A source of choices.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
    /// What a fuzzer gave and no caller took yet, last byte first.
    input: Vec<u8>,
}

impl Random {
    /// Choices made by `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed,
            input: Vec::new(),
        }
    }

    /// Choices made by `input`, byte by byte, then by a seed made of it.
    pub fn from_bytes(input: &[u8]) -> Self {
        let state = input.iter().fold(0, |hash: u64, byte| {
            (hash ^ u64::from(*byte))
                .wrapping_mul(0x100_0000_01b3)
                .rotate_left(23)
        });
        Self {
            state,
            input: input.iter().rev().copied().collect(),
        }
    }

    /// Whether bytes of a fuzzer are left; a fuzz target stops when not.
    pub fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Any number.
    pub fn u64(&mut self) -> u64 {
        if self.has_input() {
            return (0..8).fold(0, |sum, _| {
                sum << 8 | u64::from(self.input.pop().unwrap_or(0))
            });
        }
        self.state = self.state.wrapping_add(0x9e3779b97f4a7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d049bb133111eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        match self.input.pop() {
            // One byte decides a small choice: a fuzzer then changes one thing at a time.
            Some(byte) if bound <= 256 => u64::from(byte) % bound,
            Some(byte) => (self.u64() << 8 | u64::from(byte)) % bound,
            None => self.u64() % bound,
        }
    }

    /// An index of something with `len` elements, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True once in `times`, on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of `choices`, which are not empty.
    pub fn choose<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.index(choices.len())]
    }

    /// Bytes of which long runs do not compress; not taken from a fuzzer's input.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut stream = Self::new(self.u64());
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&stream.u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_everything_and_seeds_differ() {
        let run = |seed| {
            (0..8)
                .scan(Random::new(seed), |r, _| Some(r.u64()))
                .collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert_eq!(Random::new(0).u64(), 0xe220a8397b1dcdaf);
    }

    #[test]
    fn rounds_without_a_number_add_nothing_and_others_lie_apart() {
        assert_eq!(seed_of_round(0), 0);
        assert_eq!(seed_of_round(3) - seed_of_round(2), 1 << 20);
    }

    #[test]
    fn bytes_of_a_fuzzer_decide_first() {
        let mut random = Random::from_bytes(&[3, 250]);
        assert_eq!(random.below(10), 3);
        assert_eq!(random.below(100), 50);
        assert!(!random.has_input());
        assert_ne!(random.u64(), random.u64());
    }

    #[test]
    fn small_choices_are_spread_evenly() {
        let mut random = Random::new(7);
        let mut counts = [0; 10];
        (0..10_000).for_each(|_| counts[random.index(10)] += 1);
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
    }
}
