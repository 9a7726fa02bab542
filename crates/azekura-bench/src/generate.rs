//! Keys and values: the streams of the published benchmark, and those it does not have.
//!
//! A key is a number as decimal text, zero-padded to eight digits. Thread `t` of `T` draws from its
//! own stream, which any phase can replay: gets and removals visit what the sets wrote. The random
//! stream is the Mersenne twister seeded with `seed + t` and scaled as the GNU C++ library scales
//! it, so the keys are those of Tkrzw's own tool, one by one.
//!
//! A value is a window over fixed bytes, placed by the key's number: whichever thread writes a record last,
//! its value is known, and every read can be verified. The generator knows no engine.

use std::sync::Arc;

use crate::plan::Order;

/// The decimal digits of a number below 10^8, the first in the lowest byte: halves, then pairs, then
/// single digits side by side, by multiplications with reciprocals.
#[inline]
const fn eight_digits(number: u64) -> u64 {
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x7f_0000_007f;
    let pairs = hundreds | ((halves - 100 * hundreds) << 16);
    let tens = ((pairs * 103) >> 10) & 0x0f_000f_000f_000f;
    let digits = tens | ((pairs - 10 * tens) << 8);
    digits | 0x3030_3030_3030_3030
}

/// The number of eight decimal digits, the first in the lowest byte: pairs of digits, of pairs, of fours, side by side.
#[inline]
const fn of_eight_digits(text: u64) -> u64 {
    let digits = text.wrapping_sub(0x3030_3030_3030_3030);
    let pairs = (digits.wrapping_mul(10).wrapping_add(digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100).wrapping_add(pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000).wrapping_add(fours >> 32)) & 0xffff_ffff
}

/// The number that a key was written from, and its rank: keys in lexical order have ascending ranks. `None` for bytes that
/// no number is written as.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "the rank is the order of texts")]
pub fn number_of(key: &[u8]) -> Option<(u64, u128)> {
    let number = if let Ok(word) = key.try_into() {
        of_eight_digits(u64::from_le_bytes(word))
    } else {
        let text = std::str::from_utf8(key).ok()?;
        text.parse().ok()?
    };
    let mut written = Key::EMPTY;
    if number >= 10_u64.pow(14) {
        return None;
    }
    written.set(number);
    let mut rank = [0; 16];
    rank.get_mut(..key.len())?.copy_from_slice(key);
    (written.bytes() == key).then(|| (number, u128::from_be_bytes(rank)))
}

/// Bytes of the longest key: fifteen digits, so that a key and where it begins are one aligned unit.
pub const KEY_LEN_MAX: usize = 15;

/// Mixes all bits of `x` (the finalizer of splitmix64).
#[inline]
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A fast hash of `bytes` for digests.
#[inline]
pub fn fold(bytes: &[u8]) -> u64 {
    let step = |state: u64, word: u64| {
        (state ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    };
    // Most keys and values are one word.
    let state = if let Ok(word) = bytes.try_into() {
        step(8, u64::from_le_bytes(word))
    } else {
        let (words, rest) = bytes.as_chunks();
        let state = words.iter().fold(bytes.len() as u64, |state, &word| {
            step(state, u64::from_le_bytes(word))
        });
        rest.iter()
            .fold(state, |state, &byte| step(state, u64::from(byte)))
    };
    state ^ (state >> 32)
}

/// A small generator for choices that are not keys (splitmix64).
#[derive(Clone, Debug)]
pub struct Choice(u64);

impl Choice {
    /// A stream of its own for every seed.
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)))
    }

    /// The next 64 bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which is at most 2^32.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() >> 32) * bound) >> 32
    }

    /// A number in [0, 1).
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The Mersenne twister MT19937 of Matsumoto and Nishimura, 32 bits at a time.
#[derive(Clone)]
pub struct Twister {
    state: [u32; 624],
    /// The state's numbers as they are given out.
    ready: [u32; 624],
    next: usize,
}

impl Twister {
    /// The generator the C++ standard calls `mt19937`, with this seed.
    pub fn new(seed: u32) -> Self {
        let mut state = [seed; 624];
        for i in 1..624 {
            let before = state[i - 1];
            state[i] = (before ^ (before >> 30))
                .wrapping_mul(1_812_433_253)
                .wrapping_add(i as u32);
        }
        Self {
            state,
            ready: [0; 624],
            next: 624,
        }
    }

    /// In three runs, none of which needs a division for its places; all of it many numbers at a time.
    #[cold]
    fn refill(&mut self) {
        const N: usize = 624;
        const M: usize = 397;
        let state = &mut self.state;
        let step = |this: u32, next: u32, far: u32| {
            let joined = (this & 0x8000_0000) | (next & 0x7fff_ffff);
            far ^ (joined >> 1) ^ (0x9908_b0df & (joined & 1).wrapping_neg())
        };
        for i in 0..N - M {
            state[i] = step(state[i], state[i + 1], state[i + M]);
        }
        for i in N - M..N - 1 {
            state[i] = step(state[i], state[i + 1], state[i + M - N]);
        }
        state[N - 1] = step(state[N - 1], state[0], state[M - 1]);
        for (ready, &state) in self.ready.iter_mut().zip(&*state) {
            let mut y = state;
            y ^= y >> 11;
            y ^= (y << 7) & 0x9d2c_5680;
            y ^= (y << 15) & 0xefc6_0000;
            *ready = y ^ (y >> 18);
        }
        self.next = 0;
    }

    /// The next 32 bits.
    #[inline]
    pub fn bits(&mut self) -> u32 {
        if self.next >= self.ready.len() {
            self.refill();
        }
        let bits = self.ready[self.next];
        self.next += 1;
        bits
    }

    /// A number below `bound`, drawn as Lemire describes: multiply, reject the few that would bias.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        let mut product = u64::from(self.bits()) * u64::from(bound);
        if (product as u32) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (product as u32) < threshold {
                product = u64::from(self.bits()) * u64::from(bound);
            }
        }
        (product >> 32) as u32
    }
}

/// Ranks with a Zipfian distribution, drawn as Gray and others describe (SIGMOD 1994), scattered
/// over the key space so that popular keys are not neighbours.
#[derive(Debug)]
pub struct Zipf {
    count: u64,
    alpha: f64,
    eta: f64,
    zeta: f64,
    half: f64,
}

impl Zipf {
    /// The skew everyone uses.
    const THETA: f64 = 0.99;

    /// Over `count` keys; takes some nanoseconds per key.
    pub fn new(count: u64) -> Self {
        let zeta: f64 = (1..=count)
            .map(|rank| (rank as f64).powf(-Self::THETA))
            .sum();
        let half = 0.5_f64.powf(Self::THETA);
        let spread = 1.0 - (2.0 / count as f64).powf(1.0 - Self::THETA);
        let eta = spread / (1.0 - (1.0 + half) / zeta);
        Self {
            count,
            alpha: 1.0 / (1.0 - Self::THETA),
            eta,
            zeta,
            half,
        }
    }

    /// The rank for a uniform `u` in [0, 1): 0 is the most popular.
    #[expect(
        clippy::cast_sign_loss,
        reason = "the logarithm's noise below zero becomes rank 0"
    )]
    pub fn rank(&self, u: f64) -> u64 {
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < 1.0 + self.half {
            1.min(self.count - 1)
        } else {
            let rank = self.count as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.count - 1)
        }
    }

    /// The key of that rank: a number below the count.
    pub fn key(&self, u: f64) -> u64 {
        mix(self.rank(u).wrapping_add(1)) % self.count
    }
}

/// Which stream of keys; made once per run, streams are drawn from it.
#[derive(Clone, Debug)]
pub enum Source {
    /// `i * threads + thread`.
    Sequential,
    /// Uniform over so many, with repetitions.
    Random(u32),
    /// The sequential keys of the thread in random order: each exactly once.
    Shuffled,
    /// A few keys very often.
    Zipfian(Arc<Zipf>),
}

/// The keys of one thread, in order.
pub struct Keys {
    left: u64,
    stream: Stream,
}

enum Stream {
    Sequential { next: u64, step: u64 },
    Random { twister: Box<Twister>, bound: u32 },
    Zipfian { zipf: Arc<Zipf>, choice: Choice },
    List(std::vec::IntoIter<u32>),
}

impl Source {
    /// The stream in this order over so many keys, which are below 2^32.
    pub fn new(order: Order, keys: u64) -> Self {
        match order {
            Order::Sequential => Self::Sequential,
            Order::Random => Self::Random(keys as u32),
            Order::Shuffled => Self::Shuffled,
            Order::Zipfian => Self::Zipfian(Arc::new(Zipf::new(keys))),
        }
    }

    /// The stream of `thread` of `threads`, `count` keys long; equal arguments give equal streams.
    pub fn keys(&self, count: u64, threads: u64, thread: u64, seed: u64) -> Keys {
        let stream = match self {
            Self::Sequential => Stream::Sequential {
                next: thread,
                step: threads,
            },
            Self::Random(bound) => Stream::Random {
                twister: Box::new(Twister::new(seed.wrapping_add(thread) as u32)),
                bound: *bound,
            },
            Self::Zipfian(zipf) => Stream::Zipfian {
                zipf: Arc::clone(zipf),
                choice: Choice::new(seed.wrapping_add(thread)),
            },
            Self::Shuffled => {
                let sequential = Self::Sequential.keys(count, threads, thread, seed);
                return sequential.shuffled(seed.wrapping_add(thread));
            }
        };
        Keys {
            left: count,
            stream,
        }
    }
}

impl Keys {
    /// Only the first `count` of them.
    #[must_use]
    pub fn first(mut self, count: u64) -> Self {
        self.left = self.left.min(count);
        self
    }

    /// The same keys, as often, in another random order.
    #[must_use]
    pub fn shuffled(mut self, seed: u64) -> Self {
        let mut list = Vec::with_capacity(self.left as usize);
        let mut numbers = Vec::new();
        while self.left > 0 {
            self.draw(1 << 10, &mut numbers);
            list.extend(numbers.iter().map(|&number| number as u32));
        }
        let mut choice = Choice::new(!seed);
        for i in (1..list.len()).rev() {
            list.swap(i, choice.below(i as u64 + 1) as usize);
        }
        Self {
            left: list.len() as u64,
            stream: Stream::List(list.into_iter()),
        }
    }

    /// Replaces `numbers` by the next `count` of the stream, or by all that are left of it.
    ///
    /// Many at a time, so that the kind of stream is matched once for all of them.
    pub fn draw(&mut self, count: usize, numbers: &mut Vec<u64>) {
        let count = self.left.min(count as u64);
        self.left -= count;
        let count = count as usize;
        numbers.clear();
        match &mut self.stream {
            Stream::Sequential { next, step } => {
                let from = *next;
                *next += *step * count as u64;
                numbers.extend((0..count as u64).map(|i| from + i * *step));
            }
            Stream::Random { twister, bound } => {
                numbers.extend((0..count).map(|_| u64::from(twister.below(*bound))));
            }
            Stream::Zipfian { zipf, choice } => {
                numbers.extend((0..count).map(|_| zipf.key(choice.fraction())));
            }
            Stream::List(list) => numbers.extend(list.take(count).map(u64::from)),
        }
    }
}

/// The text of a key, in a buffer of its own. None crosses a line of the cache.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub struct Key {
    text: [u8; KEY_LEN_MAX],
    start: u8,
}

impl Key {
    /// Room for a key.
    pub const EMPTY: Self = Self {
        text: [b'0'; KEY_LEN_MAX],
        start: KEY_LEN_MAX as u8,
    };

    /// Writes `number`, which is below 10^15, as at least eight digits.
    #[inline]
    pub fn set(&mut self, number: u64) {
        if number < 100_000_000 {
            // Stored as one word: a key that was written byte by byte cannot be loaded as a word before the
            // bytes have left the store buffer, and each lookup would wait for the one before.
            self.text[KEY_LEN_MAX - 8..].copy_from_slice(&eight_digits(number).to_le_bytes());
            self.start = (KEY_LEN_MAX - 8) as u8;
            return;
        }
        let mut rest = number;
        let mut start = KEY_LEN_MAX;
        while start > KEY_LEN_MAX - 8 || rest > 0 {
            start -= 1;
            self.text[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.start = start as u8;
    }

    /// Turns it into a key of the same length that no stream contains.
    #[inline]
    pub fn spoil(&mut self) {
        self.text[usize::from(self.start)] += b'a' - b'0';
    }

    /// The key's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.text[usize::from(self.start)..]
    }
}

/// All values there are: windows of one length over fixed bytes.
pub struct Values {
    bytes: Vec<u8>,
    len: usize,
}

impl Values {
    const WINDOWS: usize = 256;

    /// Values of `len` bytes.
    pub fn new(len: usize) -> Self {
        let mut choice = Choice::new(0);
        let bytes = (0..len + Self::WINDOWS)
            .map(|_| b'a' + choice.below(26) as u8)
            .collect();
        Self { bytes, len }
    }

    /// Bytes of each.
    pub const fn size(&self) -> usize {
        self.len
    }

    /// The value of the key `number`.
    #[inline]
    pub fn of(&self, number: u64) -> &[u8] {
        let at = number as usize % Self::WINDOWS;
        &self.bytes[at..at + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream, drawn in pieces that do not divide it.
    fn all(mut keys: Keys) -> Vec<u64> {
        let (mut all, mut numbers) = (Vec::new(), Vec::new());
        loop {
            keys.draw(7, &mut numbers);
            all.extend_from_slice(&numbers);
            if numbers.len() < 7 {
                return all;
            }
        }
    }

    #[test]
    fn the_twister_is_the_one_of_the_cpp_standard() {
        // The standard (rand.predef) states the 10000th number of the default seed.
        let mut twister = Twister::new(5489);
        let last = (0..10_000).map(|_| twister.bits()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn random_keys_of_ten_million_are_63_percent_distinct() {
        let count = 1_000_000;
        let mut keys = all(Source::new(Order::Random, count).keys(count, 1, 0, 0));
        keys.sort_unstable();
        keys.dedup();
        assert!((631_000..633_500).contains(&keys.len()), "{}", keys.len());
    }

    #[test]
    fn keys_have_eight_digits_or_more() {
        let mut key = Key::EMPTY;
        for (number, text) in [
            (0, "00000000"),
            (42, "00000042"),
            (99_999_999, "99999999"),
            (123_456_789, "123456789"),
        ] {
            key.set(number);
            assert_eq!(key.bytes(), text.as_bytes());
        }
        key.set(42);
        key.spoil();
        assert_eq!(key.bytes(), b"a0000042");
    }

    #[test]
    fn a_key_gives_its_number_back_and_ranks_are_in_the_order_of_texts() {
        let mut key = Key::EMPTY;
        let mut ranked: Vec<(u128, Vec<u8>)> = Vec::new();
        let numbers = [0, 7, 42, 12_345_678, 99_999_999, 100_000_000, 123_456_789];
        for number in numbers {
            key.set(number);
            let (found, rank) = number_of(key.bytes()).unwrap();
            assert_eq!(found, number);
            ranked.push((rank, key.bytes().to_vec()));
        }
        let mut by_text = ranked.clone();
        by_text.sort_by(|one, other| one.1.cmp(&other.1));
        ranked.sort_unstable();
        assert_eq!(ranked, by_text);
        for text in [
            "",
            "1234567",
            "a0000042",
            "0000004\n",
            "000000042",
            "9999999999999999",
            "-1234567",
            "+12345678",
        ] {
            assert_eq!(number_of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn threads_share_the_sequential_keys_without_gaps() {
        for source in [Source::Sequential, Source::Shuffled] {
            let mut keys: Vec<u64> = (0..3)
                .flat_map(|t| all(source.keys(100, 3, t, 7)))
                .collect();
            keys.sort_unstable();
            assert_eq!(keys, (0..300).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_shuffled_stream_has_the_same_keys_in_another_order() {
        let mut plain = all(Source::Random(1000).keys(1000, 1, 0, 3));
        let mut shuffled = all(Source::Random(1000).keys(1000, 1, 0, 3).shuffled(3));
        assert_ne!(plain, shuffled);
        plain.sort_unstable();
        shuffled.sort_unstable();
        assert_eq!(plain, shuffled);
    }

    #[test]
    fn the_most_popular_zipfian_key_has_its_share() {
        let zipf = Zipf::new(1000);
        let mut choice = Choice::new(1);
        let first = (0..100_000)
            .filter(|_| zipf.rank(choice.fraction()) == 0)
            .count();
        let share = 100_000.0 / zipf.zeta;
        assert!(
            (first as f64 - share).abs() < share / 20.0,
            "{first} of {share}"
        );
    }

    #[test]
    fn values_differ_from_key_to_key_and_fold_tells_them_apart() {
        let values = Values::new(8);
        assert_eq!(values.of(3).len(), 8);
        assert_ne!(values.of(3), values.of(4));
        assert_ne!(fold(values.of(3)), fold(values.of(4)));
        assert_ne!(fold(b"abc"), fold(b"acb"));
    }
}
