//! Free units of one allocation group: sorted runs that do not touch one another.
//!
//! Adding units that are free and removing units that are not change nothing, so recovery may repeat a step. The image on storage
//! is in `list`.

use crate::error::Result;
use crate::object::place::span::Span;
use crate::room;

/// Free units: where, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first unit.
    pub start: u32,
    /// How many.
    pub len: u32,
}

impl Run {
    fn end(self) -> u32 {
        self.start + self.len
    }

    /// Its units on the device, in a group that begins at `first`.
    pub(crate) fn span(self, first: u64) -> Span {
        Span {
            unit: first + u64::from(self.start),
            units: self.len,
        }
    }
}

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs(Vec<Run>);

impl Runs {
    /// Runs of a list; `None` if it is not sorted, has empty runs or ones that touch, or goes beyond `limit`.
    pub fn of(list: Vec<Run>, limit: u32) -> Option<Self> {
        let apart =
            list.is_sorted_by(|a, b| a.start.checked_add(a.len).is_some_and(|end| end < b.start));
        let within = list.last().is_none_or(|run| {
            run.start
                .checked_add(run.len)
                .is_some_and(|end| end <= limit)
        });
        (apart && within && list.iter().all(|run| run.len > 0)).then_some(Self(list))
    }

    /// All of `len` units.
    pub fn whole(len: u32) -> Self {
        Self(Vec::from_iter((len > 0).then_some(Run { start: 0, len })))
    }

    /// Whether all of `len` units are free.
    pub fn is_whole(&self, len: u32) -> bool {
        matches!(self.0[..], [run] if run.len == len)
    }

    /// The runs, in order.
    pub fn as_slice(&self) -> &[Run] {
        &self.0
    }

    /// How many units are free.
    pub fn free(&self) -> u32 {
        self.0.iter().map(|run| run.len).sum()
    }

    /// The longest run.
    pub fn longest(&self) -> u32 {
        self.0.iter().map(|run| run.len).max().unwrap_or(0)
    }

    /// Adds units; returns how many were not free before. `Full` if there is no memory.
    pub fn add(&mut self, add: Run) -> Result<u32> {
        if add.len == 0 {
            return Ok(0);
        }
        let from = self.0.partition_point(|run| run.end() < add.start);
        let to = from + self.0[from..].partition_point(|run| run.start <= add.end());
        let touched = &self.0[from..to];
        let before: u32 = touched.iter().map(|run| run.len).sum();
        let start = touched
            .first()
            .map_or(add.start, |run| run.start.min(add.start));
        let end = touched
            .last()
            .map_or(add.end(), |run| run.end().max(add.end()));
        let joined = Run {
            start,
            len: end - start,
        };
        if from == to {
            room::more(&mut self.0, 1)?;
            self.0.insert(from, joined);
        } else {
            self.0[from] = joined;
            self.0.drain(from + 1..to);
        }
        Ok(joined.len - before)
    }

    /// Removes units, whether or not they are free; returns how many were. `Full` if there is no memory.
    pub fn remove(&mut self, remove: Run) -> Result<u32> {
        if remove.len == 0 {
            return Ok(0);
        }
        let from = self.0.partition_point(|run| run.end() <= remove.start);
        let to = from + self.0[from..].partition_point(|run| run.start < remove.end());
        let touched = &self.0[from..to];
        let (Some(first), Some(last)) = (touched.first().copied(), touched.last().copied()) else {
            return Ok(0);
        };
        let before: u32 = touched.iter().map(|run| run.len).sum();
        let head = Run {
            start: first.start,
            len: remove.start.saturating_sub(first.start),
        };
        let tail = Run {
            start: remove.end(),
            len: last.end().saturating_sub(remove.end()),
        };
        room::more(&mut self.0, 1)?;
        let kept = [head, tail].into_iter().filter(|run| run.len > 0);
        self.0.splice(from..to, kept);
        Ok(before - head.len - tail.len)
    }

    /// Removes runs, in order, beginning with the first that has `least` units: at most `units` units in all, but at least
    /// `least` of the first, and at most `count` runs. Empty if no run is that long.
    pub fn take_from(&mut self, least: u32, units: u32, count: usize) -> Vec<Run> {
        let Some(first) = self.0.iter().position(|run| run.len >= least) else {
            return Vec::new();
        };
        let mut left = units.max(least);
        let mut taken = Vec::new();
        let mut end = first;
        while left > 0 && taken.len() < count && end < self.0.len() {
            let run = self.0[end];
            let len = run.len.min(left);
            taken.push(Run { len, ..run });
            left -= len;
            if len < run.len {
                self.0[end] = Run {
                    start: run.start + len,
                    len: run.len - len,
                };
                break;
            }
            end += 1;
        }
        self.0.drain(first..end);
        taken
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testkit::random::Random;

    fn run(start: u32, len: u32) -> Run {
        Run { start, len }
    }

    #[test]
    fn any_units_come_and_go_as_in_a_map_of_bits() {
        let mut random = Random::new(3);
        let mut runs = Runs::default();
        let mut bits = vec![false; 300];
        for _ in 0..20_000 {
            let start = random.below(290) as u32;
            let of = run(start, random.below(u64::from(300 - start).min(40)) as u32);
            let range = of.start as usize..of.end() as usize;
            let was = bits[range.clone()].iter().filter(|bit| **bit).count() as u32;
            if random.below(2) == 0 {
                assert_eq!(runs.add(of).unwrap(), of.len - was);
                bits[range].fill(true);
            } else {
                assert_eq!(runs.remove(of).unwrap(), was);
                bits[range].fill(false);
            }
            let free = bits.iter().filter(|bit| **bit).count() as u32;
            assert_eq!(runs.free(), free);
            assert!(
                Runs::of(runs.as_slice().to_vec(), 300).is_some(),
                "{runs:?}"
            );
            let mut listed = runs.as_slice().iter().flat_map(|run| run.start..run.end());
            assert!(listed.all(|unit| bits[unit as usize]));
        }
    }

    #[test]
    fn runs_are_taken_in_order_up_to_what_is_wanted() {
        let list = vec![run(0, 2), run(10, 5), run(20, 1), run(30, 9)];
        let taken = |least, units, count| {
            let mut runs = Runs::of(list.clone(), 100).unwrap();
            let taken = runs.take_from(least, units, count);
            let all: u32 = taken.iter().map(|run| run.len).sum();
            assert_eq!(runs.free() + all, 17);
            taken
        };
        assert_eq!(taken(1, 100, 9), list);
        assert_eq!(taken(3, 8, 9), [run(10, 5), run(20, 1), run(30, 2)]);
        assert_eq!(taken(3, 8, 1), [run(10, 5)]);
        assert_eq!(taken(7, 2, 9), [run(30, 7)]);
        assert_eq!(taken(10, 2, 9), []);
    }

    #[test]
    fn lists_that_no_group_has_are_refused() {
        for list in [
            vec![run(0, 0)],
            vec![run(0, 2), run(2, 1)],
            vec![run(5, 1), run(0, 1)],
            vec![run(99, 2)],
            vec![run(u32::MAX, 2)],
        ] {
            assert_eq!(Runs::of(list, 100), None);
        }
    }
}
