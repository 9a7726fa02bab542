//! Arithmetic: `incr`, `decr`, `ma` and the packets like them, as one update of the engine.
//!
//! Numbers have 64 bits and are kept as decimal digits. Upward they wrap around, downward they end at 0. It knows no
//! grammar.

use azekura::error::Result;

use super::executor::{Change, Executor};
use super::store::Stored;
use crate::item::Head;
use crate::memcached::operate::counters::Count;
use crate::memcached::operate::watchers::Lookup;
use crate::memcached::protocol::number;
use crate::memcached::protocol::text::Mode;

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

/// By how much a number is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) up: bool,
    pub(crate) delta: u64,
    /// The version that must be there.
    pub(crate) compare: Option<u64>,
    /// The version it gets; `None`: the next.
    pub(crate) version: Option<u64>,
    /// The first number and when it expires, if nothing is there.
    pub(crate) initial: Option<(u64, u32)>,
    /// When it expires from now on.
    pub(crate) expires: Option<u32>,
}

/// What came of counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// It is this number now, with this head; and when it expired before, if it was there.
    Done {
        number: u64,
        head: Head,
        before: Option<u32>,
    },
    NotFound,
    Exists,
    NoNumber,
    TooLarge,
}

impl Executor {
    /// Adds to a number, around 2^64, or takes from it, to 0 at least. A shorter number is padded with spaces to the length
    /// that was there.
    pub(crate) fn count(&mut self, key: &[u8], step: &Step) -> Result<Counted> {
        let next = self.version();
        let fits = self.fits(key.len(), 1, DIGITS_MAX);
        let (mut counted, mut sight) = (Counted::NotFound, Lookup::NotFound);
        self.change(key, |present, built| {
            let Some(item) = present else {
                let Some((number, expires)) = step.initial else {
                    return Change::Keep;
                };
                if !fits {
                    counted = Counted::TooLarge;
                    return Change::Keep;
                }
                let head = Head {
                    cas: step.version.unwrap_or(next),
                    expires,
                    ..Head::default()
                };
                head.write(built);
                number::push(built, number);
                counted = Counted::Done {
                    number,
                    head,
                    before: None,
                };
                return Change::Put;
            };
            sight = Lookup::Found(item.data.len());
            // An empty value is no number, whatever its version.
            let is_other = step.compare.is_some_and(|cas| cas != item.head.cas);
            if is_other && !item.data.is_empty() {
                counted = Counted::Exists;
                return Change::Keep;
            }
            let Some(there) = number_at_front(item.data) else {
                counted = Counted::NoNumber;
                return Change::Keep;
            };
            let number = if step.up {
                there.wrapping_add(step.delta)
            } else {
                there.saturating_sub(step.delta)
            };
            let head = Head {
                cas: step
                    .version
                    .unwrap_or(next.max(item.head.cas.wrapping_add(1))),
                expires: step.expires.unwrap_or(item.head.expires),
                ..item.head
            };
            head.write(built);
            let start = built.len();
            number::push(built, number);
            let len = (built.len() - start).max(item.data.len());
            built.resize(start + len, b' ');
            counted = Counted::Done {
                number,
                head,
                before: Some(item.head.expires),
            };
            Change::Put
        })?;
        self.service.watchers.saw(key, sight, self.number);
        if let (Counted::Done { number, head, .. }, Lookup::NotFound) = (counted, sight) {
            let len = number.checked_ilog10().unwrap_or(0) as usize + 1;
            let stored = Stored::Done { cas: head.cas, len };
            self.note_stored((Mode::Add, key), head.expires, len, Ok(&stored));
        }
        let is_hit = matches!(counted, Counted::Done { .. });
        if is_hit || counted == Counted::NotFound {
            self.tally.one(match (step.up, is_hit) {
                (true, true) => Count::IncrHits,
                (true, false) => Count::IncrMisses,
                (false, true) => Count::DecrHits,
                (false, false) => Count::DecrMisses,
            });
        }
        Ok(counted)
    }
}

/// The number at the front of data, after any space; space and anything may follow it.
fn number_at_front(data: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| number::is_space(*byte);
    let start = data.iter().position(|byte| !is_space(byte))?;
    number::loose(data.get(start..)?.split(is_space).next()?)
}
