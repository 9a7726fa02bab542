//! Orders of keys: which of two byte strings comes first.
//!
//! Promises: each order is total on any bytes, and two keys are equal only if their bytes are: what an order deems alike
//! is distinguished by the bytes. Names are stable; they stand in files. Nothing overflows: numbers in text are compared
//! digit by digit, however many there are. A program may register orders of its own, by name ([`Order::register`]).
//!
//! | name | order |
//! |---|---|
//! | `lexical` | by bytes, as numbers without sign |
//! | `case-folded` | by bytes, `A` to `Z` as `a` to `z` |
//! | `decimal` | by the integer the text begins with: spaces, a sign, digits; 0 if there is none |
//! | `hexadecimal` | likewise, with digits of base 16, perhaps after `0x` |
//! | `real` | likewise, with a fraction and an exponent, or `inf` |
//! | `signed-big-endian` | by the first 8 bytes as a signed number; fewer are one without sign |
//! | `float-big-endian` | 8 or 4 bytes as a floating number, in its total order; others as 0 |
//! | `pair-` and one of the above | a [`pair`]'s first half by that order, then its second by bytes |
//! | any other | the program's own, if it has registered one of this name |
//!
//! It does not know who sorts.

use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::error::{Error, Kind, Result, quote};

/// The ends of a range of keys, in some order.
pub type KeyBounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// From one list of orders: themselves, those of pairs by each of them, and the names of both.
macro_rules! orders {
    ($($(#[$about:meta])* $order:ident = $name:literal,)*) => {
        /// An order of keys.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Order {
            $($(#[$about])* $order,)*
            /// Pairs, by their first halves as above, then by their second halves.
            Pair(Base),
            /// One that the program has registered.
            Registered(Registered),
        }

        /// How the first halves of pairs are ordered: as the [`Order`] of the same name.
        #[expect(missing_docs, reason = "each has the meaning of the order of its name")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Base {
            $($order,)*
        }

        impl Base {
            const fn order(self) -> Order {
                match self {
                    $(Self::$order => Order::$order,)*
                }
            }
        }

        impl Order {
            /// Every order that is built in.
            pub const ALL: [Self; 14] = [$(Self::$order,)* $(Self::Pair(Base::$order),)*];

            /// Its stable name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$order => $name,)*
                    $(Self::Pair(Base::$order) => concat!("pair-", $name),)*
                    Self::Registered(own) => own.name(),
                }
            }
        }
    };
}

orders! {
    /// By bytes.
    #[default]
    Lexical = "lexical",
    /// By bytes, ASCII letters without case.
    CaseFolded = "case-folded",
    /// By decimal integers in text.
    Decimal = "decimal",
    /// By hexadecimal integers in text.
    Hexadecimal = "hexadecimal",
    /// By decimal fractions in text.
    Real = "real",
    /// By 8-byte signed integers.
    SignedBigEndian = "signed-big-endian",
    /// By 8- or 4-byte floating numbers.
    FloatBigEndian = "float-big-endian",
}

/// Most orders that a process may register.
const REGISTERED_MAX: usize = 128;
/// Longest name of one.
const NAME_LEN_MAX: usize = 64;
/// What names of pairs begin with.
const PAIR: &str = "pair-";

/// Those that are registered, in their order, for as long as the process lives.
static REGISTRY: [OnceLock<Comparator>; REGISTERED_MAX] =
    [const { OnceLock::new() }; REGISTERED_MAX];

/// Held while one is registered.
static REGISTERING: Mutex<()> = Mutex::new(());

/// An order that the program has registered: its number among them. Two are equal if they are the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registered(u8);

type Compare = dyn Fn(&[u8], &[u8]) -> Ordering + Send + Sync;

struct Comparator {
    name: Box<str>,
    compare: Box<Compare>,
}

impl Registered {
    fn comparator(self) -> Option<&'static Comparator> {
        REGISTRY.get(usize::from(self.0))?.get()
    }

    fn name(self) -> &'static str {
        self.comparator().map_or("", |own| &own.name)
    }

    #[inline(never)]
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        let compared = self.comparator().map(|own| (own.compare)(a, b));
        compared.unwrap_or(Ordering::Equal).then_with(|| a.cmp(b))
    }

    fn all() -> impl Iterator<Item = (Self, &'static Comparator)> {
        let numbers = (0..=u8::MAX).map(Self);
        numbers.map_while(|own| Some((own, own.comparator()?)))
    }
}

impl Order {
    /// Registers an order of the program's own, until the process ends. Its name stands in files, which are refused by a process that has
    /// not registered it: register it before they are opened, always with the same function.
    ///
    /// `compare` must be a total preorder on any bytes, be pure, and not call a store. Keys that it deems equal are ordered by their bytes.
    /// - It is called with bytes that are no key of the store: what a reader without locks finds where another thread writes at that
    ///   moment. Its answer does not count then, but it must give one, for any bytes.
    /// - It should not panic. If it does, the panic goes to the caller of the store's method, whose update is done wholly or not at all; no page is
    ///   left half changed, as it is never called within a change. A `SkipDb` may be poisoned by it, and recovers when it is opened again.
    /// - Were its answers to change, or to contradict one another, records would not be found, and a check would report their pages.
    ///
    /// `name` has 1 to 64 bytes: letters, digits, `.`, `_` and `-`; one with a dot, as `example.by-suffix`, will not be the name of an
    /// order that is built in later. `Invalid` for another name, one that is taken, and more than 128 orders.
    ///
    /// ```
    /// use azekura::order::Order;
    /// let by_len = Order::register("example.by-length", |a, b| a.len().cmp(&b.len()))?;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # std::env::set_current_dir(&folder).unwrap();
    /// let db = azekura::create("words.azt?order=example.by-length")?;
    /// db.put_many(&[("pear", ""), ("fig", ""), ("apple", "")])?;
    /// assert_eq!(db.order(), Some(by_len));
    /// assert_eq!(db.first()?.map(|(key, _)| key).as_deref(), Some(&b"fig"[..]));
    /// # azekura::Result::Ok(())
    /// ```
    pub fn register(
        name: &str,
        compare: impl Fn(&[u8], &[u8]) -> Ordering + Send + Sync + 'static,
    ) -> Result<Self> {
        let invalid = |what: &str, remedy: &str| {
            let error = Error::new(Kind::Invalid, what);
            Err(error.of(quote(name.as_bytes())).remedy(remedy))
        };
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        if !(1..=NAME_LEN_MAX).contains(&name.len()) || !name.as_bytes().iter().all(is_letter) {
            return invalid(
                "no order may have this name",
                "1 to 64 letters, digits, dots, hyphens and underscores make one",
            );
        }
        if name.starts_with(PAIR) {
            return invalid(
                "no order may have this name: those of pairs begin so",
                "register it under another name",
            );
        }
        let _registering = REGISTERING.lock();
        if Self::from_name(name).is_some() {
            return invalid(
                "there is an order of this name",
                "register an order once; `Order::from_name` gives one that is registered",
            );
        }
        let own = Comparator {
            name: name.into(),
            compare: Box::new(compare),
        };
        let number = Registered::all().count();
        match REGISTRY.get(number).map(|place| place.set(own)) {
            Some(Ok(())) => Ok(Self::Registered(Registered(number as u8))),
            _ => invalid(
                "too many orders are registered",
                "register each once, not for each store",
            ),
        }
    }

    /// The order of this name, if there is one that is built in or registered.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut built_in = Self::ALL.into_iter();
        let registered = || {
            let mut all = Registered::all();
            all.find_map(|(own, comparator)| {
                (*comparator.name == *name).then_some(Self::Registered(own))
            })
        };
        built_in
            .find(|order| order.name() == name)
            .or_else(registered)
    }

    /// As [`from_name`](Self::from_name), of a name that stands in a file. `Mismatch` if there is none.
    pub(crate) fn of_file(name: &[u8]) -> Result<Self> {
        let order = str::from_utf8(name).ok().and_then(Self::from_name);
        order.ok_or_else(|| {
            let what = "the file has an order of keys that is not known";
            Error::new(Kind::Mismatch, what)
                .found(quote(name), "one that is built in or registered")
                .remedy("if it is a program's own, open the file with a program that has registered it by `Order::register`; else with a newer azekura")
        })
    }

    /// Which of two keys comes first; equal only if their bytes are.
    #[inline]
    pub fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Lexical => a.cmp(b),
            Self::CaseFolded => a
                .iter()
                .map(u8::to_ascii_lowercase)
                .cmp(b.iter().map(u8::to_ascii_lowercase))
                .then_with(|| a.cmp(b)),
            Self::Decimal => Integer::decimal(a)
                .cmp(&Integer::decimal(b))
                .then_with(|| a.cmp(b)),
            Self::Hexadecimal => Integer::hexadecimal(a)
                .cmp(&Integer::hexadecimal(b))
                .then_with(|| a.cmp(b)),
            Self::Real => real(a).total_cmp(&real(b)).then_with(|| a.cmp(b)),
            Self::SignedBigEndian => signed(a).cmp(&signed(b)).then_with(|| a.cmp(b)),
            Self::FloatBigEndian => float(a).total_cmp(&float(b)).then_with(|| a.cmp(b)),
            Self::Pair(base) => {
                let ((first, second), (other_first, other_second)) = (halves(a), halves(b));
                base.order()
                    .compare(first, other_first)
                    .then_with(|| second.cmp(other_second))
                    .then_with(|| a.cmp(b))
            }
            Self::Registered(own) => own.compare(a, b),
        }
    }
}

/// The key of an end, if it has one.
pub(crate) fn key_of<K: AsRef<[u8]>>(bound: &Bound<K>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.as_ref()),
        Bound::Unbounded => None,
    }
}

/// The ends of a range as keys.
pub(crate) fn bounds_of<'k, K: AsRef<[u8]> + 'k>(keys: &'k impl RangeBounds<K>) -> KeyBounds<'k> {
    let (from, to) = (keys.start_bound(), keys.end_bound());
    (from.map(AsRef::as_ref), to.map(AsRef::as_ref))
}

/// `Invalid` if a range ends before it begins.
pub(crate) fn check_range((from, to): KeyBounds<'_>, order: Order) -> Result<()> {
    if let (Some(first), Some(last)) = (key_of(&from), key_of(&to))
        && order.compare(first, last).is_gt()
    {
        return Err(Error::new(Kind::Invalid, "the range ends before it begins")
            .detail(format!("from {} to {}", quote(first), quote(last)))
            .remedy("exchange its ends; `rev()` goes backwards between the same ones"));
    }
    Ok(())
}

/// Whether a key is not before a range.
pub(crate) fn is_from((from, _): KeyBounds<'_>, order: Order, key: &[u8]) -> bool {
    match from {
        Bound::Included(from) => order.compare(key, from).is_ge(),
        Bound::Excluded(from) => order.compare(key, from).is_gt(),
        Bound::Unbounded => true,
    }
}

/// Whether a key is not beyond a range.
pub(crate) fn is_up_to((_, to): KeyBounds<'_>, order: Order, key: &[u8]) -> bool {
    match to {
        Bound::Included(to) => order.compare(key, to).is_le(),
        Bound::Excluded(to) => order.compare(key, to).is_lt(),
        Bound::Unbounded => true,
    }
}

/// A key of two parts for the orders of pairs: the first's length as a varint (seven bits a byte, low ones first), the
/// first, the second.
pub fn pair(first: &[u8], second: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(first.len() + second.len() + 2);
    let mut len = first.len();
    while len > 0x7f {
        key.push((len & 0x7f) as u8 | 0x80);
        len >>= 7;
    }
    key.push(len as u8);
    key.extend_from_slice(first);
    key.extend_from_slice(second);
    key
}

/// The parts of a [`pair`]; of other bytes, all of them and none.
pub fn halves(key: &[u8]) -> (&[u8], &[u8]) {
    let mut len = 0u64;
    for (at, byte) in key.iter().take(9).enumerate() {
        len |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let rest = key.get(at + 1..).unwrap_or_default();
            let Ok(len) = usize::try_from(len) else { break };
            return rest.split_at_checked(len).unwrap_or((key, &[]));
        }
    }
    (key, &[])
}

/// An integer in text, of any size.
#[derive(PartialEq, Eq)]
struct Integer<'k> {
    is_negative: bool,
    /// Digits without leading zeros; none for zero.
    digits: &'k [u8],
}

/// What follows spaces, and whether a minus stood before it.
fn signed_text(key: &[u8]) -> (bool, &[u8]) {
    let text = key.trim_ascii_start();
    match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    }
}

impl<'k> Integer<'k> {
    fn new(is_negative: bool, text: &'k [u8], is_digit: impl Fn(&u8) -> bool) -> Self {
        let len = text.iter().take_while(|byte| is_digit(byte)).count();
        let digits = text.get(..len).unwrap_or_default();
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        let digits = digits.get(zeros..).unwrap_or_default();
        Self {
            is_negative: is_negative && !digits.is_empty(),
            digits,
        }
    }

    fn decimal(key: &'k [u8]) -> Self {
        let (is_negative, text) = signed_text(key);
        Self::new(is_negative, text, u8::is_ascii_digit)
    }

    fn hexadecimal(key: &'k [u8]) -> Self {
        let (is_negative, text) = signed_text(key);
        let text = text
            .strip_prefix(b"0x")
            .or_else(|| text.strip_prefix(b"0X"))
            .unwrap_or(text);
        Self::new(is_negative, text, u8::is_ascii_hexdigit)
    }
}

impl Ord for Integer<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        // Digits sort as bytes when letters have one case: `0` to `9` lie before `a`.
        let magnitude = || {
            let digits = self.digits.iter().map(u8::to_ascii_lowercase);
            let others = other.digits.iter().map(u8::to_ascii_lowercase);
            let longer = self.digits.len().cmp(&other.digits.len());
            longer.then_with(|| digits.cmp(others))
        };
        match (self.is_negative, other.is_negative) {
            (false, false) => magnitude(),
            (true, true) => magnitude().reverse(),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Integer<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The number a text begins with; never a NaN, and zero has no sign.
fn real(key: &[u8]) -> f64 {
    let (is_negative, text) = signed_text(key);
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let magnitude = if text
        .get(..3)
        .is_some_and(|t| t.eq_ignore_ascii_case(b"inf"))
    {
        f64::INFINITY
    } else {
        let mut end = digits(0);
        if text.get(end) == Some(&b'.') {
            end = digits(end + 1);
        }
        if text.get(end).is_some_and(|byte| byte | 0x20 == b'e') {
            let sign = usize::from(text.get(end + 1).is_some_and(|b| *b == b'-' || *b == b'+'));
            let exponent = digits(end + 1 + sign);
            if exponent > end + 1 + sign {
                end = exponent;
            }
        }
        let number = text.get(..end).and_then(|text| str::from_utf8(text).ok());
        number.and_then(|text| text.parse().ok()).unwrap_or(0.0)
    };
    if is_negative && magnitude != 0.0 {
        -magnitude
    } else {
        magnitude
    }
}

fn signed(key: &[u8]) -> i64 {
    let bytes = key.iter().take(8);
    bytes
        .fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        .cast_signed()
}

fn float(key: &[u8]) -> f64 {
    let bits = key
        .iter()
        .fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    match key.len() {
        8 => f64::from_bits(bits),
        4 => f64::from(f32::from_bits(bits as u32)),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::Random;

    fn ascending(order: Order, keys: &[&[u8]]) {
        for (at, key) in keys.iter().enumerate() {
            for (other_at, other) in keys.iter().enumerate() {
                let expected = at.cmp(&other_at);
                assert_eq!(
                    order.compare(key, other),
                    expected,
                    "{order:?} {key:?} {other:?}"
                );
            }
        }
    }

    #[test]
    fn each_order_sorts_what_it_is_for() {
        ascending(
            Order::Lexical,
            &[b"", b"\0", b"A", b"a", b"a\0", b"b", b"\xff"],
        );
        ascending(
            Order::CaseFolded,
            &[b"", b"A", b"a", b"AB", b"ab", b"aC", b"B"],
        );
        let numbers: &[&[u8]] = &[
            b"-10000000000000000000000",
            b"-5",
            b"",
            b"-0",
            b"0",
            b"no",
            b"1",
            b"  2",
            b"+3",
            b"3x",
            b"10",
            b"99999999999999999999999",
        ];
        ascending(Order::Decimal, numbers);
        ascending(
            Order::Hexadecimal,
            &[
                b"-ff", b"-1", b"0", b"0x9", b"0XA", b"0xa", b"a", b"B", b"10",
            ],
        );
        let reals: &[&[u8]] = &[
            b"-inf", b"-1e3", b"-.5", b"", b"-0", b"x", b"1e-9", b"0.5", b"1", b"1e", b"1.5",
            b"1e3", b"1e999", b"INF",
        ];
        ascending(Order::Real, reals);
        let signed: &[&[u8]] = &[
            b"\x80\0\0\0\0\0\0\0",
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
            b"",
            b"\0",
            b"\x01",
            b"\xff",
            b"\x7f\xff\xff\xff\xff\xff\xff\xff",
        ];
        ascending(Order::SignedBigEndian, signed);
        let floats: &[&[u8]] = &[
            b"\xbf\xf0\0\0\0\0\0\0",
            b"",
            b"x",
            b"\x3f\0\0\0",
            b"\x3f\xf0\0\0\0\0\0\0",
        ];
        ascending(Order::FloatBigEndian, floats);
        let pairs = [
            (b"-2", b"z"),
            (b"01", b"b"),
            (b"1 ", b"a"),
            (b"1 ", b"b"),
            (b"10", b"a"),
        ];
        let pairs: Vec<Vec<u8>> = pairs.iter().map(|(a, b)| pair(*a, *b)).collect();
        let pairs: Vec<&[u8]> = pairs.iter().map(Vec::as_slice).collect();
        ascending(Order::Pair(Base::Decimal), &pairs);
    }

    #[test]
    fn names_are_found_again() {
        for order in Order::ALL {
            assert_eq!(Order::from_name(order.name()), Some(order));
        }
        assert_eq!(Order::from_name("Lexical"), None);
    }

    #[test]
    fn an_order_is_registered_once_under_a_name_of_its_own() {
        let reversed = Order::register("test.reversed", |a: &[u8], b: &[u8]| b.cmp(a)).unwrap();
        assert_eq!(Order::from_name("test.reversed"), Some(reversed));
        assert_eq!(reversed.name(), "test.reversed");
        ascending(reversed, &[b"c", b"b", b"a"]);
        // What it deems equal is in the order of its bytes.
        let alike = Order::register("test.alike", |_, _| Ordering::Equal).unwrap();
        ascending(alike, &[b"", b"a", b"a\0", b"b"]);
        assert_ne!(alike, reversed);
        let long = "n".repeat(65);
        for name in [
            "test.alike",
            "lexical",
            "pair-decimal",
            "pair-own",
            "",
            "a b",
            "a&b",
            "\u{e4}",
            &long,
        ] {
            let error = Order::register(name, Ord::cmp).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{name}");
            assert!(error.to_string().len() > 60, "{error}");
        }
        assert_eq!(Order::from_name(""), None);
        let error = Order::of_file(b"test.unknown").unwrap_err();
        assert_eq!(error.kind(), Kind::Mismatch);
        assert!(
            error.to_string().contains("test.unknown")
                && error.to_string().contains("Order::register")
        );
    }

    #[test]
    fn pairs_come_apart_as_they_were_put_together() {
        for len in [0, 1, 127, 128, 20_000] {
            let first = vec![b'x'; len];
            assert_eq!(halves(&pair(&first, b"yz")), (&first[..], &b"yz"[..]));
        }
        for bytes in [&b""[..], b"\x05abc", &[0xff; 20]] {
            assert_eq!(halves(bytes), (bytes, &[][..]));
        }
    }

    #[test]
    fn every_order_is_total_on_any_bytes() {
        let mut random = Random::new(7);
        let letters = b"0019-+ .eExXaAfFn\0\x01\x80\xff";
        let mut keys = vec![Vec::new()];
        for _ in 0..120 {
            let len = random.index(10);
            let letter = |_| *random.choose(letters);
            keys.push((0..len).map(letter).collect());
        }
        for order in Order::ALL {
            let mut sorted: Vec<Vec<u8>> = keys.clone();
            sorted.sort_by(|a, b| order.compare(a, b));
            sorted.dedup();
            let sorted: Vec<&[u8]> = sorted.iter().map(Vec::as_slice).collect();
            ascending(order, &sorted);
        }
    }
}
