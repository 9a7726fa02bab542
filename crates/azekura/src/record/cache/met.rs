//! The hashes that were met while the queues are sifted, so that what is met again is dropped.
//!
//! A record that is removed and put again has an entry more. Whatever of a hash is met second in one round over the queues
//! is one too many, if there is one record of it. Eight bytes a record, in sets of 8 that may be full: then an entry is not
//! noted, and one more of its hash is kept. What is noted is exact. It does not know queues.

use crate::index::hash::KNOWN_BITS;

/// Marks of a set.
const WAYS: usize = 8;
/// The sets are so many times as many as would do if all were full.
const LOOSE: usize = 2;
/// With so many sets, a set and 32 bits distinguish hashes.
const SETS_MIN: usize = 1 << (KNOWN_BITS - 32);

/// See the module's text.
#[derive(Default)]
pub(super) struct Met(Vec<[u32; WAYS]>);

impl Met {
    /// Room for so many hashes; without memory for it, nothing is noted.
    pub(super) fn begin(&mut self, records: usize) {
        let sets = (records * LOOSE / WAYS).max(SETS_MIN);
        let mut fresh = Vec::new();
        if fresh.try_reserve_exact(sets).is_ok() {
            fresh.resize(sets, [0; WAYS]);
        }
        self.0 = fresh;
    }

    /// Forgets all, and gives the memory back.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// The set of a hash, and its mark there; no mark is zero.
    fn place(&mut self, known: u64) -> Option<(&mut [u32; WAYS], u32)> {
        let mark = known as u32;
        let set = (u128::from(known) * self.0.len() as u128) >> KNOWN_BITS;
        (mark != 0).then_some((self.0.get_mut(set as usize)?, mark))
    }

    /// Notes a hash; whether it was noted before.
    pub(super) fn meet(&mut self, known: u64) -> bool {
        let Some((set, mark)) = self.place(known) else {
            return false;
        };
        if set.contains(&mark) {
            return true;
        }
        if let Some(free) = set.iter_mut().find(|noted| **noted == 0) {
            *free = mark;
        }
        false
    }

    /// The entry that was met is in no queue any more.
    #[inline]
    pub(super) fn forget(&mut self, known: u64) {
        if let Some((set, mark)) = self.place(known)
            && let Some(noted) = set.iter_mut().find(|noted| **noted == mark)
        {
            *noted = 0;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<[u32; WAYS]>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_exact() {
        for records in [0, 1000, 20_000] {
            let mut met = Met::default();
            assert!(!met.meet(5) && !met.meet(5), "nothing is noted yet");
            met.begin(records);
            // Hashes whose lower halves are the same, and neighbours.
            let known = (1..16).flat_map(|high| (0..60).map(move |low| high << 32 | low));
            for known in known.clone() {
                assert!(!met.meet(known), "{known:x}");
            }
            let again = known.filter(|known| met.meet(*known)).count();
            assert!(again > 0);
            assert!(met.meet(1 << 32 | 1));
            met.forget(1 << 32 | 1);
            assert!(!met.meet(1 << 32 | 1));
            met.end();
            assert_eq!(
                (met.meet(7), met.meet(7), met.memory_bytes()),
                (false, false, 0)
            );
        }
    }
}
