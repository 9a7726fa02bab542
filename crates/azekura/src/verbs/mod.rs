//! What users call, written once above `read`, `update`, `update_many` and `scan`.
//!
//! [`Verbs`] is implemented for every engine, also behind `dyn`. Verbs that only read work on every
//! [`Reader`]; verbs that write ask for an [`Engine`], so a read-only store does not have them.
//!
//! Promises: a verb about one key is one `update`, so it is atomic for itself; `*_all`,
//! `compare_exchange_many` and `rekey` are one `update_many`, so they are isolated and all or
//! nothing as far as the engine promises; the other `*_many` are one step per record. A verb that
//! fails changes nothing, but for `*_many`, where the records before the failed one are done.
//!
//! Errors are those of the engine, `Full` where there is no memory for a copy, and `Invalid` where a verb states it. Absence is `None` or
//! `false`. It knows no engine; keys are searched by [`Search`].

mod search;

pub use search::{Place, Search};

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::engine::{Edit, Engine, Ordered, Reader, Visit};
use crate::error::{Error, Kind, Result};
use crate::room;

/// What `compare_exchange` asks of the present record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<'a> {
    /// There is none.
    Absent,
    /// There is one, whatever its value.
    Any,
    /// There is one with this value.
    Value(&'a [u8]),
}

impl Expected<'_> {
    /// Whether `present` is the expected one.
    pub fn is_met(self, present: Option<&[u8]>) -> bool {
        match self {
            Self::Absent => present.is_none(),
            Self::Any => present.is_some(),
            Self::Value(value) => present == Some(value),
        }
    }
}

/// What `compare_exchange` does with the record if it is as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desired<'a> {
    /// Leave it.
    Keep,
    /// Remove it.
    Remove,
    /// Give it this value.
    Put(&'a [u8]),
}

impl<'a> From<Desired<'a>> for Edit<'a> {
    fn from(desired: Desired<'a>) -> Self {
        match desired {
            Desired::Keep => Self::Keep,
            Desired::Remove => Self::Remove,
            Desired::Put(value) => Self::put(value),
        }
    }
}

/// The outcome of `compare_exchange`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Whether the record was as expected, and the desire therefore fulfilled.
    pub done: bool,
    /// The value that was compared; `None`: there was none.
    pub actual: Option<Vec<u8>>,
}

/// The outcome of `rekey`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rekeyed {
    /// The new key has the value, given here; the old one is gone unless it was a copy.
    Moved(Vec<u8>),
    /// There is no record under the old key; nothing was changed.
    Absent,
    /// There is a record under the new key, and it was not to be overwritten; nothing was changed.
    Exists,
}

/// The verbs. Keys and values are bytes and may be empty; limits are those of the engine's promise.
///
/// ```
/// use azekura::Verbs;
/// use azekura::verbs::{Desired, Expected};
///
/// let db = azekura::testkit::ModelDb::new(); // any engine
/// db.put(b"apple", b"red")?;
/// assert_eq!(db.get(b"apple")?.as_deref(), Some(&b"red"[..]));
/// assert!(!db.put_new(b"apple", b"green")?);
///
/// db.append(b"log", b"first", b", ")?;
/// db.append(b"log", b"second", b", ")?;
/// assert_eq!(db.take(b"log")?.as_deref(), Some(&b"first, second"[..]));
///
/// assert_eq!(db.increment(b"visits", 1, 100)?, 101);
///
/// let swapped = db.compare_exchange(b"apple", Expected::Value(b"red"), Desired::Put(b"gold"))?;
/// assert!(swapped.done);
/// # azekura::Result::Ok(())
/// ```
pub trait Verbs: Reader {
    /// A copy of the value, or `None`. One `read`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Ok(None);
        self.read(key, &mut |present| value = copy(present))?;
        value
    }

    /// Whether there is a record. One `read`.
    fn contains(&self, key: &[u8]) -> Result<bool> {
        let mut found = false;
        self.read(key, &mut |present| found = present.is_some())?;
        Ok(found)
    }

    /// A copy of the value of each key, in the order of `keys`. One `read_many`: not of one moment.
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = room::collect(keys.iter().map(|_| None))?;
        let mut copied = Ok(());
        self.read_many(keys, &mut |index, value| match copy(value) {
            Ok(value) => values[index] = value,
            Err(error) => copied = Err(error),
        })?;
        copied.map(|()| values)
    }

    /// The value as `increment` writes it, or `None`. `Invalid` if its length is not 8.
    fn counter(&self, key: &[u8]) -> Result<Option<i64>> {
        Ok(number_at(self, key)?.map(u64::cast_signed))
    }

    /// The value as `increment_float` writes it, or `None`. `Invalid` if its length is not 8.
    fn counter_float(&self, key: &[u8]) -> Result<Option<f64>> {
        Ok(number_at(self, key)?.map(f64::from_bits))
    }

    /// Shows the records whose key matches, at most `limit` of them (0: all), until `visit` breaks.
    /// Returns how many were shown.
    ///
    /// Patterns are shown in scan order, and the scan ends with the last one that is wanted. Edit
    /// distance looks at every key, holds `limit` records in memory, and shows the nearest first,
    /// equals by key. Cost: a scan.
    fn search(&self, search: &Search, limit: usize, visit: &mut Visit<'_>) -> Result<u64> {
        search.run(self, limit, visit)
    }

    /// Gives `key` this value, inserting it if absent.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>
    where
        Self: Engine,
    {
        self.update(key, &mut |_| Edit::put(value))
    }

    /// Inserts the record unless the key is present. Returns whether it was inserted.
    fn put_new(&self, key: &[u8], value: &[u8]) -> Result<bool>
    where
        Self: Engine,
    {
        Ok(self
            .compare_exchange(key, Expected::Absent, Desired::Put(value))?
            .done)
    }

    /// Gives `key` this value only if it is present. Returns whether it was.
    fn replace(&self, key: &[u8], value: &[u8]) -> Result<bool>
    where
        Self: Engine,
    {
        let mut done = false;
        self.update(key, &mut |present| {
            done = present.is_some();
            if done { Edit::put(value) } else { Edit::Keep }
        })?;
        Ok(done)
    }

    /// Gives `key` this value, inserting it if absent. Returns the value before.
    fn swap(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>>
    where
        Self: Engine,
    {
        let mut before = Ok(None);
        self.update(key, &mut |present| {
            before = copy(present);
            before.as_ref().map_or(Edit::Keep, |_| Edit::put(value))
        })?;
        before
    }

    /// Removes the record. Returns whether there was one.
    fn remove(&self, key: &[u8]) -> Result<bool>
    where
        Self: Engine,
    {
        let mut done = false;
        self.update(key, &mut |present| {
            done = present.is_some();
            Edit::Remove
        })?;
        Ok(done)
    }

    /// Removes the record. Returns its value.
    fn take(&self, key: &[u8]) -> Result<Option<Vec<u8>>>
    where
        Self: Engine,
    {
        let mut value = Ok(None);
        self.update(key, &mut |present| {
            value = copy(present);
            value.as_ref().map_or(Edit::Keep, |_| Edit::Remove)
        })?;
        value
    }

    /// Puts `value` after the present value, `delimiter` between them; alone if there is none.
    fn append(&self, key: &[u8], value: &[u8], delimiter: &[u8]) -> Result<()>
    where
        Self: Engine,
    {
        let mut joined = Ok(());
        self.update(key, &mut |present| {
            let Some(present) = present else {
                return Edit::put(value);
            };
            match room::concat(&[present, delimiter, value]) {
                Ok(value) => Edit::Put(Cow::Owned(value)),
                Err(error) => {
                    joined = Err(error);
                    Edit::Keep
                }
            }
        })?;
        joined
    }

    /// `append` for each record, in order.
    fn append_many(&self, records: &[(&[u8], &[u8])], delimiter: &[u8]) -> Result<()>
    where
        Self: Engine,
    {
        records
            .iter()
            .try_for_each(|(key, value)| self.append(key, value, delimiter))
    }

    /// Adds `by` to the counter, which begins as `initial` if absent. Returns what it is now.
    ///
    /// A counter is a value of 8 bytes: an `i64`, big-endian. `by` of `i64::MIN` only reads, and
    /// inserts nothing. `Invalid`: the present value has another length, or the sum overflows.
    fn increment(&self, key: &[u8], by: i64, initial: i64) -> Result<i64>
    where
        Self: Engine,
    {
        if by == i64::MIN {
            return Ok(self.counter(key)?.unwrap_or(initial));
        }
        let add = |before: u64| {
            let before = before.cast_signed();
            let sum = before.checked_add(by).ok_or_else(|| {
                Error::new(Kind::Invalid, "counter would overflow")
                    .key(key)
                    .detail(format!("{before} and {by} are beyond 64 bits"))
            });
            sum.map(i64::cast_unsigned)
        };
        Ok(change_number(self, key, initial.cast_unsigned(), add)?.cast_signed())
    }

    /// Adds `by` to the counter, which begins as `initial` if absent. Returns what it is now.
    ///
    /// The value has 8 bytes: an `f64`, big-endian. Sums are those of IEEE 754: they round, and may
    /// become infinite or not a number. `Invalid`: the present value has another length.
    fn increment_float(&self, key: &[u8], by: f64, initial: f64) -> Result<f64>
    where
        Self: Engine,
    {
        let add = |before| Ok((f64::from_bits(before) + by).to_bits());
        Ok(f64::from_bits(change_number(
            self,
            key,
            initial.to_bits(),
            add,
        )?))
    }

    /// Fulfils `desired` if the record is as `expected`. A difference is an outcome, not an error.
    fn compare_exchange(
        &self,
        key: &[u8],
        expected: Expected<'_>,
        desired: Desired<'_>,
    ) -> Result<Exchange>
    where
        Self: Engine,
    {
        let mut outcome = Ok(Exchange {
            done: false,
            actual: None,
        });
        self.update(key, &mut |present| {
            let done = expected.is_met(present);
            outcome = copy(present).map(|actual| Exchange { done, actual });
            if done && outcome.is_ok() {
                desired.into()
            } else {
                Edit::Keep
            }
        })?;
        outcome
    }

    /// Compares all of `expected`; if all are met, fulfils all of `desired`. Returns whether.
    ///
    /// Keys may repeat, within a list and between them; of several desires for one key the last
    /// that is not `Keep` counts.
    fn compare_exchange_many(
        &self,
        expected: &[(&[u8], Expected<'_>)],
        desired: &[(&[u8], Desired<'_>)],
    ) -> Result<bool>
    where
        Self: Engine,
    {
        let keys: Vec<&[u8]> = expected
            .iter()
            .map(|(key, _)| *key)
            .chain(desired.iter().map(|(key, _)| *key))
            .collect();
        let mut done = false;
        self.update_many(&keys, &mut |present| {
            done = expected
                .iter()
                .zip(present)
                .all(|((_, asked), value)| asked.is_met(*value));
            let compared = expected.iter().map(|_| Edit::Keep);
            let wished = desired
                .iter()
                .map(|(_, desired)| if done { (*desired).into() } else { Edit::Keep });
            compared.chain(wished).collect()
        })?;
        Ok(done)
    }

    /// Moves the value of `old` to the key `new`; with `copying`, `old` keeps it too.
    ///
    /// Without `overwrite`, a record under `new` stops it. If the keys are equal and the record may
    /// be overwritten, it stays as it is.
    fn rekey(&self, old: &[u8], new: &[u8], overwrite: bool, copying: bool) -> Result<Rekeyed>
    where
        Self: Engine,
    {
        let mut outcome = Ok(Rekeyed::Absent);
        self.update_many(&[old, new], &mut |present| {
            let value = match (present[0], present[1]) {
                (None, _) => return vec![Edit::Keep, Edit::Keep],
                (Some(_), Some(_)) if !overwrite => {
                    outcome = Ok(Rekeyed::Exists);
                    return vec![Edit::Keep, Edit::Keep];
                }
                (Some(value), _) => value,
            };
            match room::copy(value).and_then(|one| Ok((one, room::copy(value)?))) {
                Ok((moved, put)) => {
                    outcome = Ok(Rekeyed::Moved(moved));
                    let old = if copying { Edit::Keep } else { Edit::Remove };
                    vec![old, Edit::Put(Cow::Owned(put))]
                }
                Err(error) => {
                    outcome = Err(error);
                    vec![Edit::Keep, Edit::Keep]
                }
            }
        })?;
        outcome
    }

    /// Removes the first record in scan order. Returns it, or `None` if there is none.
    ///
    /// Each record is given to one caller; the second caller takes the next. Cost: the start of
    /// a scan and one `update`.
    fn pop_first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>>
    where
        Self: Engine,
    {
        loop {
            let mut first = None;
            self.scan(None, &mut |key, _| {
                first = Some(key.to_vec());
                ControlFlow::Break(())
            })?;
            let Some(key) = first else { return Ok(None) };
            if let Some(value) = self.take(&key)? {
                return Ok(Some((key, value)));
            }
        }
    }

    /// As [`pop_first`](Self::pop_first), of the last record in order.
    fn pop_last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>>
    where
        Self: Engine + Ordered,
    {
        loop {
            let mut cursor = self.cursor();
            cursor.last()?;
            let Some((key, _)) = cursor.record() else {
                return Ok(None);
            };
            if let Some(value) = self.take(key)? {
                return Ok(Some((room::copy(key)?, value)));
            }
        }
    }

    /// Inserts `value` under a key made of the time, and returns the key. With `pop_first`, and an
    /// engine with an order of keys, this is a queue.
    ///
    /// The key is `now`, in seconds since 1970 (`None`: the system's clock), times 10^8, as 8 bytes
    /// big-endian, counted up until it is unused: one `update` for each try. `Invalid`: `now` is
    /// negative, not a number, or beyond the year 7800.
    fn push_last(&self, value: &[u8], now: Option<f64>) -> Result<Vec<u8>>
    where
        Self: Engine,
    {
        let mut tick = ticks(now)?;
        loop {
            let key = bytes_of(tick);
            if self.put_new(&key, value)? {
                return Ok(key);
            }
            tick = tick.checked_add(1).ok_or_else(|| {
                Error::new(Kind::Invalid, "the keys of a queue end at this time").key(&key)
            })?;
        }
    }

    /// `put_new` for each record, in order. Returns how many were inserted.
    fn put_many_new(&self, records: &[(&[u8], &[u8])]) -> Result<u64>
    where
        Self: Engine,
    {
        records.iter().try_fold(0, |count, (key, value)| {
            Ok(count + u64::from(self.put_new(key, value)?))
        })
    }

    /// `remove` for each key, in order. Returns how many there were.
    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64>
    where
        Self: Engine,
    {
        keys.iter()
            .try_fold(0, |count, key| Ok(count + u64::from(self.remove(key)?)))
    }

    /// Puts all records at once. Of a repeated key the last value counts. One `update_many`.
    fn put_all(&self, records: &[(&[u8], &[u8])]) -> Result<()>
    where
        Self: Engine,
    {
        let keys = room::collect(records.iter().map(|(key, _)| *key))?;
        let mut edits = room::collect(records.iter().map(|(_, value)| Edit::put(value)))?;
        self.update_many(&keys, &mut |_| std::mem::take(&mut edits))
    }

    /// Removes all records at once. Returns how many there were. One `update_many`.
    fn remove_all(&self, keys: &[&[u8]]) -> Result<u64>
    where
        Self: Engine,
    {
        let mut keys = room::collect(keys.iter().copied())?;
        keys.sort_unstable();
        keys.dedup();
        let mut edits = room::collect(keys.iter().map(|_| Edit::Remove))?;
        let mut count = 0;
        self.update_many(&keys, &mut |present| {
            count = present.iter().flatten().count() as u64;
            std::mem::take(&mut edits)
        })?;
        Ok(count)
    }
}

impl<R: Reader + ?Sized> Verbs for R {}

fn copy(present: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
    present.map(room::copy).transpose()
}

/// The bits of a counter, or reports whose value is none.
#[expect(clippy::big_endian_bytes, reason = "the format of counters")]
fn number_in(key: &[u8], value: &[u8]) -> Result<u64> {
    let bytes = value.try_into().map_err(|_| {
        Error::new(Kind::Invalid, "value is not a counter")
            .key(key)
            .found(crate::error::bytes(value.len()), "8 bytes")
            .remedy("remove the record, or use another key")
    })?;
    Ok(u64::from_be_bytes(bytes))
}

/// The bits of the counter of `key`.
fn number_at<R: Reader + ?Sized>(reader: &R, key: &[u8]) -> Result<Option<u64>> {
    let mut number = Ok(None);
    reader.read(key, &mut |present| {
        number = present.map(|value| number_in(key, value)).transpose();
    })?;
    number
}

/// Gives a counter, which begins as `initial` if absent, the bits that `change` makes of its own; returns them.
fn change_number<E: Engine + ?Sized>(
    engine: &E,
    key: &[u8],
    initial: u64,
    change: impl Fn(u64) -> Result<u64>,
) -> Result<u64> {
    let mut now = Ok(initial);
    engine.update(key, &mut |present| {
        let before = present.map_or(Ok(initial), |value| number_in(key, value));
        now = before.and_then(&change);
        let put = |now: &u64| Edit::Put(Cow::Owned(bytes_of(*now)));
        now.as_ref().map_or(Edit::Keep, put)
    })?;
    now
}

/// Seconds since 1970 as units of 10 ns, the clock of `push_last`.
fn ticks(now: Option<f64>) -> Result<u64> {
    const PER_SECOND: f64 = 1e8;
    // The largest f64 below 2^64.
    const MAX: f64 = 18_446_744_073_709_549_568.0;
    let Some(seconds) = now else {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        return Ok((since.as_nanos() / 10) as u64);
    };
    let ticks = seconds * PER_SECOND;
    if !(0.0..=MAX).contains(&ticks) {
        return Err(Error::new(Kind::Invalid, "time cannot become a key").found(
            format!("{seconds} s"),
            "seconds since 1970, before the year 7800",
        ));
    }
    #[expect(clippy::cast_sign_loss, reason = "checked to be positive above")]
    Ok(ticks as u64)
}

/// A counter's bits, or the key of a queue, which sorts by time.
#[expect(clippy::big_endian_bytes, reason = "the format of both")]
fn bytes_of(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

#[cfg(test)]
mod tests;
