//! What becomes of several values of one key.
//!
//! Values come in the order in which they were put. A removal takes away those before it, whatever the reducer. What is
//! left is reduced if there is more than one: a value that is alone stays as it is.
//!
//! It does not know where values come from. Bytes that are no number count as 0 in a total.

use std::sync::Arc;

use crate::error::Result;
use crate::order::Order;
use crate::room;

/// A function of the user's: the key, and its values in the order in which they were put, two or more; those that it leaves
/// there are stored, in their order.
pub type Reduce = dyn Fn(&[u8], &mut Vec<Vec<u8>>) + Send + Sync;

/// Receives what is to be stored: key and value.
pub(super) type Store<'s> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 's;

/// What is stored of several values of one key.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Reducer {
    /// The last: a later put replaces an earlier one.
    #[default]
    Last,
    /// The first.
    First,
    /// The second.
    Second,
    /// All of them, each as a record.
    All,
    /// One after the other, with this between them.
    Concat(Vec<u8>),
    /// The sum of the integers in decimal that they begin with, after spaces, as text. Numbers of more than 128 bits count as the
    /// greatest, or least, of 128, and so does such a sum; the order in which they come makes no difference.
    TotalDecimal,
    /// The sum, modulo 2^64, of the big-endian integers that they are, in 8 bytes: it is right for numbers without a sign, and
    /// for those with one of 8 bytes, as `increment` has them. A value of more than 8 bytes is no number.
    TotalBigEndian,
    /// What a function makes of them.
    Own(Arc<Reduce>),
}

impl std::fmt::Debug for Reducer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Reducer {
    /// Those that have a name: what [`from_name`](Self::from_name) takes.
    pub const NAMES: [&str; 10] = [
        "last",
        "first",
        "second",
        "all",
        "concat",
        "concat-nul",
        "concat-tab",
        "concat-newline",
        "total-decimal",
        "total-big-endian",
    ];

    /// The reducer of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "last" => Self::Last,
            "first" => Self::First,
            "second" => Self::Second,
            "all" => Self::All,
            "concat" => Self::Concat(Vec::new()),
            "concat-nul" => Self::Concat(b"\0".to_vec()),
            "concat-tab" => Self::Concat(b"\t".to_vec()),
            "concat-newline" => Self::Concat(b"\n".to_vec()),
            "total-decimal" => Self::TotalDecimal,
            "total-big-endian" => Self::TotalBigEndian,
            _ => return None,
        })
    }

    /// The word of it, which is that of its kind where it has a parameter.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::First => "first",
            Self::Second => "second",
            Self::All => "all",
            Self::Concat(_) => "concat",
            Self::TotalDecimal => "total-decimal",
            Self::TotalBigEndian => "total-big-endian",
            Self::Own(_) => "own",
        }
    }
}

/// The value that a reducer leaves of two of one key. Errors: `Full`.
pub(super) fn reduced(reducer: &Reducer, first: &[u8], second: &[u8]) -> Result<Vec<u8>> {
    let mut values = Values::default();
    values.add(reducer, first)?;
    values.add(reducer, second)?;
    let mut left = Vec::new();
    values.reduce(reducer, &[], &mut |_, value| {
        left = room::copy(value)?;
        Ok(())
    })?;
    Ok(left)
}

/// Of the values of one key, what the reducer needs.
#[derive(Default)]
struct Values {
    /// How many there are.
    count: u64,
    /// The one to be stored, or those so far in one.
    kept: Vec<u8>,
    /// All of them, where all are needed.
    all: Vec<Vec<u8>>,
    decimal: Wide,
    big_endian: u64,
}

impl Values {
    fn clear(&mut self) {
        self.count = 0;
        self.kept.clear();
        self.all.clear();
    }

    fn add(&mut self, reducer: &Reducer, value: &[u8]) -> Result<()> {
        self.count += 1;
        let is_kept = match reducer {
            Reducer::Last => true,
            Reducer::Second => self.count <= 2,
            _ => self.count == 1,
        };
        if is_kept {
            self.kept.clear();
        }
        if let Reducer::Concat(between) = reducer
            && !is_kept
        {
            room::more(&mut self.kept, between.len() + value.len())?;
            self.kept.extend_from_slice(between);
            self.kept.extend_from_slice(value);
        }
        if is_kept {
            room::more(&mut self.kept, value.len())?;
            self.kept.extend_from_slice(value);
        }
        match reducer {
            Reducer::All | Reducer::Own(_) => {
                room::more(&mut self.all, 1)?;
                self.all.push(room::copy(value)?);
            }
            Reducer::TotalDecimal => {
                if self.count == 1 {
                    self.decimal = Wide::default();
                }
                self.decimal.add(decimal(value));
            }
            Reducer::TotalBigEndian => {
                let before = if self.count == 1 { 0 } else { self.big_endian };
                self.big_endian = before.wrapping_add(big_endian(value));
            }
            _ => {}
        }
        Ok(())
    }

    /// Gives what is to be stored to `store`.
    #[expect(clippy::big_endian_bytes, reason = "it is what the reducer is for")]
    fn reduce(&mut self, reducer: &Reducer, key: &[u8], store: &mut Store<'_>) -> Result<()> {
        match (self.count, reducer) {
            (0, _) => Ok(()),
            (1, _) => store(key, &self.kept),
            (_, Reducer::TotalDecimal) => store(key, self.decimal.get().to_string().as_bytes()),
            (_, Reducer::TotalBigEndian) => store(key, &self.big_endian.to_be_bytes()),
            (_, Reducer::All) => self.all.iter().try_for_each(|value| store(key, value)),
            (_, Reducer::Own(reduce)) => {
                reduce(key, &mut self.all);
                self.all.iter().try_for_each(|value| store(key, value))
            }
            _ => store(key, &self.kept),
        }
    }
}

/// A sum of 256 bits: of no number of records it overflows.
#[derive(Clone, Copy, Default)]
struct Wide {
    high: i128,
    low: u128,
}

impl Wide {
    fn add(&mut self, number: i128) {
        let (low, carries) = self.low.overflowing_add(number.cast_unsigned());
        self.low = low;
        self.high += i128::from(carries) - i128::from(number < 0);
    }

    /// The sum, or the nearest number of 128 bits.
    fn get(self) -> i128 {
        let low = self.low.cast_signed();
        match self.high {
            0 if low >= 0 => low,
            -1 if low < 0 => low,
            high if high < 0 => i128::MIN,
            _ => i128::MAX,
        }
    }
}

/// The integer that a value begins with, after spaces; 0 if there is none.
fn decimal(value: &[u8]) -> i128 {
    let text = value.trim_ascii_start();
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0i128, |number, digit| {
        let digit = i128::from(digit - b'0');
        let number = number.saturating_mul(10);
        if is_negative {
            number.saturating_sub(digit)
        } else {
            number.saturating_add(digit)
        }
    })
}

fn big_endian(value: &[u8]) -> u64 {
    if value.len() > 8 {
        return 0;
    }
    let bytes = value.iter();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Puts records together that come in order, and gives what the reducer makes of each key's.
pub(super) struct Reduction {
    reducer: Reducer,
    order: Order,
    key: Vec<u8>,
    has_key: bool,
    values: Values,
    /// Records taken.
    taken: u64,
}

impl Reduction {
    pub(super) fn new(reducer: Reducer, order: Order) -> Self {
        Self {
            reducer,
            order,
            key: Vec::new(),
            has_key: false,
            values: Values::default(),
            taken: 0,
        }
    }

    /// Whether `key` may come next.
    pub(super) fn is_next(&self, key: &[u8]) -> bool {
        !self.has_key || self.order.compare(&self.key, key).is_le()
    }

    /// The key that came last.
    pub(super) fn last_key(&self) -> &[u8] {
        &self.key
    }

    /// Records and removals that came so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes a record, or the removal of those before of its key. `store` is given what is to be stored of the key before.
    pub(super) fn take(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        store: &mut Store<'_>,
    ) -> Result<()> {
        if !self.has_key || self.key != key {
            self.finish(store)?;
            self.key.clear();
            room::more(&mut self.key, key.len())?;
            self.key.extend_from_slice(key);
            self.has_key = true;
        }
        self.taken += 1;
        if let Some(value) = value {
            return self.values.add(&self.reducer, value);
        }
        self.values.clear();
        Ok(())
    }

    /// Gives what is to be stored of the last key.
    pub(super) fn finish(&mut self, store: &mut Store<'_>) -> Result<()> {
        self.values.reduce(&self.reducer, &self.key, store)?;
        self.values.clear();
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::big_endian_bytes, reason = "tests")]
mod tests {
    use super::*;

    fn reduced(reducer: Reducer, values: &[Option<&[u8]>]) -> Vec<Vec<u8>> {
        let mut reduction = Reduction::new(reducer, Order::Lexical);
        let mut stored = Vec::new();
        let mut store = |key: &[u8], value: &[u8]| {
            stored.push((key.to_vec(), value.to_vec()));
            Ok(())
        };
        for value in values {
            reduction.take(b"a", *value, &mut store).unwrap();
        }
        // The next key ends this one.
        reduction.take(b"b", Some(b"next"), &mut store).unwrap();
        reduction.finish(&mut store).unwrap();
        assert_eq!(stored.pop(), Some((b"b".to_vec(), b"next".to_vec())));
        assert!(stored.iter().all(|(key, _)| key == b"a"));
        stored.into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn each_reducer_makes_of_values_what_it_states() {
        let three: [Option<&[u8]>; 3] = [Some(b"1"), Some(b"22"), Some(b"x3")];
        let of = |name: &str| {
            let reducer = Reducer::from_name(name).unwrap();
            reduced(reducer, &three).join(&b'|')
        };
        assert_eq!(of("last"), b"x3");
        assert_eq!(of("first"), b"1");
        assert_eq!(of("second"), b"22");
        assert_eq!(of("all"), b"1|22|x3");
        assert_eq!(of("concat"), b"122x3");
        assert_eq!(of("concat-nul"), b"1\x0022\0x3");
        assert_eq!(of("concat-tab"), b"1\t22\tx3");
        assert_eq!(of("concat-newline"), b"1\n22\nx3");
        assert_eq!(of("total-decimal"), b"23");
        assert_eq!(
            of("total-big-endian"),
            (0x31u64 + 0x3232 + 0x7833).to_be_bytes()
        );
        let longest: Reducer = Reducer::Own(Arc::new(|_, values| {
            values.retain(|value| value.len() == 2);
        }));
        assert_eq!(reduced(longest, &three), [&b"22"[..], b"x3"]);
        assert!(
            Reducer::NAMES
                .iter()
                .all(|name| Reducer::from_name(name).is_some())
        );
        assert!(Reducer::from_name("sum").is_none());
    }

    #[test]
    fn a_removal_takes_away_what_was_put_before_it() {
        for name in Reducer::NAMES {
            let of = |values: &[Option<&[u8]>]| reduced(Reducer::from_name(name).unwrap(), values);
            assert_eq!(of(&[Some(b"1"), None]), [[0u8; 0]; 0], "{name}");
            assert_eq!(of(&[None, Some(b"no number")]), [b"no number"], "{name}");
            assert_eq!(
                of(&[Some(b"5"), Some(b"6"), None, Some(b"7")]),
                [b"7"],
                "{name}"
            );
            assert_eq!(of(&[None]), [[0u8; 0]; 0], "{name}");
        }
        let second = reduced(
            Reducer::Second,
            &[Some(b"1"), Some(b"2"), None, Some(b"3"), Some(b"4")],
        );
        assert_eq!(second, [b"4"]);
        let total = reduced(
            Reducer::TotalDecimal,
            &[Some(b"1"), Some(b"2"), None, Some(b"30"), Some(b"4")],
        );
        assert_eq!(total, [b"34"]);
    }

    #[test]
    fn totals_of_what_is_no_number_and_of_great_ones_are_defined() {
        let decimal = |values: &[&[u8]]| {
            let values: Vec<_> = values.iter().map(|value| Some(*value)).collect();
            String::from_utf8(reduced(Reducer::TotalDecimal, &values).remove(0)).unwrap()
        };
        assert_eq!(decimal(&[b"none", b""]), "0");
        assert_eq!(decimal(&[b" -5 apples", b"+7.9"]), "2");
        assert_eq!(decimal(&[&[b'9'; 60], b"5"]), i128::MAX.to_string());
        let mut least = [b'9'; 60];
        least[0] = b'-';
        assert_eq!(decimal(&[&least, b"-5"]), i128::MIN.to_string());
        let greatest = i128::MAX.to_string();
        assert_eq!(decimal(&[greatest.as_bytes(), b"1", b"-1"]), greatest);
        assert_eq!(decimal(&[&least, greatest.as_bytes(), b"2"]), "1");
        let big = |values: &[&[u8]]| {
            let values: Vec<_> = values.iter().map(|value| Some(*value)).collect();
            reduced(Reducer::TotalBigEndian, &values).remove(0)
        };
        assert_eq!(big(&[b"123456789", b"\x01\0"]), 256u64.to_be_bytes());
        // Minus two and five, as signed numbers.
        assert_eq!(
            big(&[&(-2i64).to_be_bytes(), &5i64.to_be_bytes()]),
            3u64.to_be_bytes()
        );
    }
}
