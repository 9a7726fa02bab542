//! Operations on an engine as data, and generators that choose them.
//!
//! An [`Op`] is one call of a verb. [`Op::run`] performs it on any engine and writes down the
//! [`Outcome`]; [`Model::check`](super::Model::check) states whether that is right. A [`Generator`]
//! chooses operations: each seed draws its own few keys (empty, sharing prefixes, at the lengths
//! where layouts change), its own sizes, and its own mix of verbs, some of them left out (a swarm).
//!
//! It knows verbs, not engines.

use std::ops::ControlFlow;

use super::random::Random;
use crate::engine::{Bookmark, Engine, Promise, Reader};
use crate::error::{Kind, Result};
use crate::verbs::{Desired, Exchange, Expected, Rekeyed, Verbs};

type Bytes = Vec<u8>;

/// What is expected of a record: nothing, any value, or one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// Absent.
    Absent,
    /// Present.
    Any,
    /// This value.
    Value(Bytes),
}

impl Want {
    /// As the verbs take it.
    pub fn as_expected(&self) -> Expected<'_> {
        match self {
            Self::Absent => Expected::Absent,
            Self::Any => Expected::Any,
            Self::Value(value) => Expected::Value(value),
        }
    }
}

/// What is to become of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    Keep,
    /// Gone.
    Remove,
    /// This value.
    Put(Bytes),
}

impl Wish {
    /// As the verbs take it.
    pub fn as_desired(&self) -> Desired<'_> {
        match self {
            Self::Keep => Desired::Keep,
            Self::Remove => Desired::Remove,
            Self::Put(value) => Desired::Put(value),
        }
    }
}

/// One operation. The variants are the verbs; their fields, the arguments in order.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "each variant is the verb of its name, with its arguments"
)]
pub enum Op {
    Get(Bytes),
    GetMany(Vec<Bytes>),
    Counter(Bytes),
    Put(Bytes, Bytes),
    PutNew(Bytes, Bytes),
    Replace(Bytes, Bytes),
    Swap(Bytes, Bytes),
    Remove(Bytes),
    Take(Bytes),
    Append {
        key: Bytes,
        value: Bytes,
        delimiter: Bytes,
    },
    Increment {
        key: Bytes,
        by: i64,
        initial: i64,
    },
    IncrementFloat {
        key: Bytes,
        by: f64,
        initial: f64,
    },
    CompareExchange {
        key: Bytes,
        expected: Want,
        desired: Wish,
    },
    CompareExchangeMany {
        expected: Vec<(Bytes, Want)>,
        desired: Vec<(Bytes, Wish)>,
    },
    Rekey {
        old: Bytes,
        new: Bytes,
        overwrite: bool,
        copying: bool,
    },
    PopFirst,
    PushLast {
        value: Bytes,
        now: f64,
    },
    PutMany(Vec<(Bytes, Bytes)>),
    PutManyNew(Vec<(Bytes, Bytes)>),
    RemoveMany(Vec<Bytes>),
    PutAll(Vec<(Bytes, Bytes)>),
    RemoveAll(Vec<Bytes>),
    /// `update_many` that notes what it is shown.
    UpdateMany(Vec<(Bytes, Wish)>),
    Scan,
    Clear,
}

/// What an operation gave back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each variant is a shape of results, named by it"
)]
pub enum Outcome {
    Done,
    Yes(bool),
    Count(u64),
    Number(Option<i64>),
    /// The bits of a float.
    Bits(u64),
    Value(Option<Bytes>),
    Values(Vec<Option<Bytes>>),
    Exchanged(Exchange),
    Rekeyed(Rekeyed),
    Record(Option<(Bytes, Bytes)>),
    Records(Vec<(Bytes, Bytes)>),
    /// An argument was refused, and nothing changed.
    Refused(Kind),
}

/// Scans from `from`, breaking after `most` records: which, and how it ended.
pub(super) fn scanned<R: Reader + ?Sized>(
    reader: &R,
    from: Option<&Bookmark>,
    most: usize,
) -> (Vec<(Bytes, Bytes)>, Result<Option<Bookmark>>) {
    let mut records = Vec::new();
    let end = reader.scan(from, &mut |key, value| {
        records.push((key.to_vec(), value.to_vec()));
        if records.len() >= most {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    (records, end)
}

/// The value of a counter.
pub(super) fn big_endian(number: u64) -> Bytes {
    number.to_le_bytes().into_iter().rev().collect()
}

/// Each key, and what `of` lends of what is with it.
fn lent<'r, T, L>(records: &'r [(Bytes, T)], of: impl Fn(&'r T) -> L) -> Vec<(&'r [u8], L)> {
    let lend = |(key, with): &'r (Bytes, T)| (&key[..], of(with));
    records.iter().map(lend).collect()
}

fn keys(keys: &[Bytes]) -> Vec<&[u8]> {
    keys.iter().map(Vec::as_slice).collect()
}

impl Op {
    /// Performs the operation. Refused arguments are an outcome; every other error is handed on.
    pub fn run<E: Engine + ?Sized>(&self, engine: &E) -> Result<Outcome> {
        match self.call(engine) {
            Err(error) if matches!(error.kind(), Kind::Invalid | Kind::TooLarge) => {
                Ok(Outcome::Refused(error.kind()))
            }
            outcome => outcome,
        }
    }

    fn call<E: Engine + ?Sized>(&self, db: &E) -> Result<Outcome> {
        Ok(match self {
            Self::Get(key) => Outcome::Value(db.get(key)?),
            Self::GetMany(many) => Outcome::Values(db.get_many(&keys(many))?),
            Self::Counter(key) => Outcome::Number(db.counter(key)?),
            Self::Put(key, value) => db.put(key, value).map(|()| Outcome::Done)?,
            Self::PutNew(key, value) => Outcome::Yes(db.put_new(key, value)?),
            Self::Replace(key, value) => Outcome::Yes(db.replace(key, value)?),
            Self::Swap(key, value) => Outcome::Value(db.swap(key, value)?),
            Self::Remove(key) => Outcome::Yes(db.remove(key)?),
            Self::Take(key) => Outcome::Value(db.take(key)?),
            Self::Append {
                key,
                value,
                delimiter,
            } => db.append(key, value, delimiter).map(|()| Outcome::Done)?,
            Self::Increment { key, by, initial } => {
                Outcome::Number(Some(db.increment(key, *by, *initial)?))
            }
            Self::IncrementFloat { key, by, initial } => {
                Outcome::Bits(db.increment_float(key, *by, *initial)?.to_bits())
            }
            Self::CompareExchange {
                key,
                expected,
                desired,
            } => Outcome::Exchanged(db.compare_exchange(
                key,
                expected.as_expected(),
                desired.as_desired(),
            )?),
            Self::CompareExchangeMany { expected, desired } => {
                let expected = lent(expected, Want::as_expected);
                let desired = lent(desired, Wish::as_desired);
                Outcome::Yes(db.compare_exchange_many(&expected, &desired)?)
            }
            Self::Rekey {
                old,
                new,
                overwrite,
                copying,
            } => Outcome::Rekeyed(db.rekey(old, new, *overwrite, *copying)?),
            Self::PopFirst => Outcome::Record(db.pop_first()?),
            Self::PushLast { value, now } => Outcome::Value(Some(db.push_last(value, Some(*now))?)),
            Self::PutMany(records) => db
                .put_many(&lent(records, Vec::as_slice))
                .map(|()| Outcome::Done)?,
            Self::PutManyNew(records) => {
                Outcome::Count(db.put_many_new(&lent(records, Vec::as_slice))?)
            }
            Self::RemoveMany(many) => Outcome::Count(db.remove_many(&keys(many))?),
            Self::PutAll(records) => db
                .put_all(&lent(records, Vec::as_slice))
                .map(|()| Outcome::Done)?,
            Self::RemoveAll(many) => Outcome::Count(db.remove_all(&keys(many))?),
            Self::UpdateMany(wishes) => {
                let many: Vec<&[u8]> = wishes.iter().map(|(key, _)| &key[..]).collect();
                let mut seen = Vec::new();
                db.update_many(&many, &mut |present| {
                    seen = present
                        .iter()
                        .map(|value| value.map(<[u8]>::to_vec))
                        .collect();
                    wishes
                        .iter()
                        .map(|(_, wish)| wish.as_desired().into())
                        .collect()
                })?;
                Outcome::Values(seen)
            }
            Self::Scan => {
                let (mut records, end) = scanned(db, None, usize::MAX);
                end?;
                records.sort();
                Outcome::Records(records)
            }
            Self::Clear => db.clear().map(|()| Outcome::Done)?,
        })
    }
}

/// How many kinds of operations [`Generator`] chooses from.
const KINDS: usize = 25;

/// Lengths at which layouts of buckets, frames, pages and length fields change, each one off too.
const EDGES: &[usize] = &[
    0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 250, 251, 255, 256, 511,
];
/// The same for values.
const LONG_EDGES: &[usize] = &[
    1023,
    1024,
    4032,
    4095,
    4096,
    16383,
    16384,
    65535,
    65536,
    1 << 17,
];

/// Chooses operations: what it chooses from is drawn when it is made.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    keys: Vec<Bytes>,
    /// Of 100 choices, how many are of each kind.
    weights: [u64; KINDS],
    value_len_max: u64,
}

impl Generator {
    /// A generator whose every choice follows from `random`, within the limits of `promise`.
    pub fn new(mut random: Random, promise: &Promise) -> Self {
        let keys = keys_for(&mut random, promise.key_len_max);
        // A swarm: a kind is left out by every third seed, and is frequent in some.
        let mut weights = [0; KINDS];
        for weight in &mut weights {
            *weight = *random.choose(&[0, 1, 2, 4, 12, 40]);
        }
        // Something must be written, and `clear` must not undo all there is.
        weights[3] = weights[3].max(4);
        weights[24] = weights[24].min(1);
        let value_len_max = *random
            .choose(&[16, 64, 300, 300, 5000, 140_000])
            .min(&promise.value_len_max);
        Self {
            random,
            keys,
            weights,
            value_len_max,
        }
    }

    /// The keys it chooses from.
    pub fn keys(&self) -> &[Bytes] {
        &self.keys
    }

    /// The source of its choices.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    fn key(&mut self) -> Bytes {
        self.random.choose(&self.keys).clone()
    }

    /// A value: mostly short, now and then at an edge, often a counter.
    fn value(&mut self) -> Bytes {
        let max = self.value_len_max;
        let len = match self.random.below(8) {
            0 => return big_endian(self.random.below(100)),
            1 => *self.random.choose(EDGES),
            2 => *self.random.choose(LONG_EDGES) + self.random.index(2),
            _ => self.random.index(24),
        };
        let len = len.min(max as usize);
        self.random.bytes(len)
    }

    fn some<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.random.index(6);
        (0..count).map(|_| one(self)).collect()
    }

    fn record(&mut self) -> (Bytes, Bytes) {
        (self.key(), self.value())
    }

    fn want(&mut self) -> Want {
        match self.random.below(3) {
            0 => Want::Absent,
            1 => Want::Any,
            _ => Want::Value(self.value()),
        }
    }

    fn wish(&mut self) -> Wish {
        match self.random.below(4) {
            0 => Wish::Keep,
            1 => Wish::Remove,
            _ => Wish::Put(self.value()),
        }
    }

    /// The next operation.
    pub fn op(&mut self) -> Op {
        let total = self.weights.iter().sum();
        let mut ticket = self.random.below(total);
        let mut kind = 0;
        while ticket >= self.weights[kind] {
            ticket -= self.weights[kind];
            kind += 1;
        }
        match kind {
            0 => Op::Get(self.key()),
            1 => Op::GetMany(self.some(Self::key)),
            2 => Op::Counter(self.key()),
            3 => Op::Put(self.key(), self.value()),
            4 => Op::PutNew(self.key(), self.value()),
            5 => Op::Replace(self.key(), self.value()),
            6 => Op::Swap(self.key(), self.value()),
            7 => Op::Remove(self.key()),
            8 => Op::Take(self.key()),
            9 => Op::Append {
                key: self.key(),
                value: self.value(),
                delimiter: self.random.choose(&[&b""[..], b",", b"\r\n"]).to_vec(),
            },
            10 => Op::Increment {
                key: self.key(),
                by: *self
                    .random
                    .choose(&[1, 1, -1, 1000, i64::MAX, i64::MIN, i64::MIN + 1]),
                initial: *self.random.choose(&[0, 0, 7, i64::MAX, i64::MIN]),
            },
            11 => Op::IncrementFloat {
                key: self.key(),
                by: *self
                    .random
                    .choose(&[0.5, -1e300, f64::MAX, f64::INFINITY, -0.0]),
                initial: *self.random.choose(&[0.0, 1.5, f64::MAX]),
            },
            12 => Op::CompareExchange {
                key: self.key(),
                expected: self.want(),
                desired: self.wish(),
            },
            13 => Op::CompareExchangeMany {
                expected: self.some(|g| (g.key(), g.want())),
                desired: self.some(|g| (g.key(), g.wish())),
            },
            14 => Op::Rekey {
                old: self.key(),
                new: self.key(),
                overwrite: self.random.one_in(2),
                copying: self.random.one_in(3),
            },
            15 => Op::PopFirst,
            16 => Op::PushLast {
                value: self.value(),
                now: *self.random.choose(&[0.0, 1.0, 1e9, -1.0, f64::NAN]),
            },
            17 => Op::PutMany(self.some(Self::record)),
            18 => Op::PutManyNew(self.some(Self::record)),
            19 => Op::RemoveMany(self.some(Self::key)),
            20 => Op::PutAll(self.some(Self::record)),
            21 => Op::RemoveAll(self.some(Self::key)),
            22 => Op::UpdateMany(self.some(|g| (g.key(), g.wish()))),
            23 => Op::Scan,
            _ => Op::Clear,
        }
    }
}

/// Between 4 and 64 different keys, most of them awkward.
fn keys_for(random: &mut Random, len_max: u64) -> Vec<Bytes> {
    let count = 4 + random.index(61);
    let prefix_len = *random.choose(&[0, 3, 14, 40, 300]);
    let prefix = random.bytes(prefix_len);
    let mut keys = vec![Vec::new()];
    // A key length in reach belongs to the edges; a longer one costs more than it finds.
    let longest = usize::try_from(len_max).unwrap_or(usize::MAX).min(4096);
    while keys.len() < count {
        let number = random.below(40) as u8;
        let mut key = match random.below(7) {
            0 => vec![number],
            1 => vec![b'a'; 1 + usize::from(number)],
            2 => vec![0; 1 + usize::from(number % 9)],
            3 => vec![0xff; 1 + usize::from(number % 9)],
            4 => [&prefix[..], &[number]].concat(),
            5 => {
                let mut key = prefix.clone();
                let len = *random.choose(EDGES) + random.index(2);
                key.resize(len, number);
                key
            }
            _ if random.one_in(4) => random.bytes(longest),
            _ => format!("key{number:05}").into_bytes(),
        };
        key.truncate(longest);
        keys.push(key);
        keys.sort();
        keys.dedup();
        if longest == 0 {
            break;
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::ModelDb;

    #[test]
    fn a_seed_chooses_the_same_operations_again() {
        let promise = ModelDb::new().promise();
        let run = |seed| {
            let mut generator = Generator::new(Random::new(seed), &promise);
            (0..50)
                .map(|_| format!("{:?}", generator.op()))
                .collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn seeds_together_reach_every_verb_and_every_awkward_key() {
        let promise = ModelDb::new().promise();
        let (mut names, mut keys) = (Vec::new(), Vec::new());
        for seed in 0..60 {
            let mut generator = Generator::new(Random::new(seed), &promise);
            keys.extend_from_slice(generator.keys());
            for _ in 0..100 {
                let name = format!("{:?}", generator.op());
                let end = name
                    .find(|c: char| !c.is_alphanumeric())
                    .unwrap_or(name.len());
                names.push(name[..end].to_owned());
            }
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), KINDS, "{names:?}");
        assert!(keys.iter().any(Vec::is_empty));
        assert!(keys.iter().any(|key| key.len() == 4096));
        assert!(keys.iter().any(|key| key.len() == 256));
    }

    #[test]
    fn limits_of_the_promise_bound_keys_and_values() {
        let db = ModelDb::with_limits(3, 5);
        for seed in 0..20 {
            let mut generator = Generator::new(Random::new(seed), &db.promise());
            assert!(generator.keys().iter().all(|key| key.len() <= 3));
            for _ in 0..50 {
                if let Op::Put(_, value) = generator.op() {
                    assert!(value.len() <= 8, "a counter is never cut");
                }
            }
        }
    }
}
