//! An update of records of several shards: isolated from every other update, though each shard knows its own records only.
//!
//! ```text
//!   shard 1: locks its records, shows them to --> shard 4: locks, shows --> shard 6: locks, shows --> all are shown to `decide`
//!            applies its edits, unlocks   <------ applies, unlocks  <------ applies, unlocks  <------ the edits, by shard
//! ```
//! 1. Each shard's part is an `update_many` of it, whose closure contains that of the next one. Shards come in their order, so that two
//!    such updates never wait for each other.
//! 2. No record is unlocked before all are locked and decided about, and none before its own edit is applied: two-phase locking.
//! 3. What a shard would refuse for its length is refused before any edit is applied. If a shard refuses for another reason, those
//!    after it have applied their parts: each gets back the records that are still as this update left them.
//!
//! It does not know how records are locked.

use std::collections::HashMap;

use super::Sharded;
use crate::engine::{DecideMany, Edit, Engine, Promise, Reader};
use crate::error::{Error, Kind, Result};
use crate::record::limits::Limits;
use crate::room;

/// The keys of a shard.
struct Part<'k> {
    shard: usize,
    keys: Vec<&'k [u8]>,
    /// Where each stands among all keys.
    indices: Vec<usize>,
}

/// The values of a part, shown while they are locked, and those of the parts before it.
struct Shown<'s> {
    part: &'s Part<'s>,
    values: &'s [Option<&'s [u8]>],
    before: Option<&'s Shown<'s>>,
}

/// A record as it was and as it is after the update; `None`: absent.
struct Change {
    key: Vec<u8>,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

/// What goes through the closures.
struct Work<'w, 'a> {
    decide: DecideMany<'w, 'a>,
    /// For each key, until its part takes it.
    edits: Vec<Edit<'a>>,
    /// What parts have applied: to be taken back if one before them fails.
    applied: Vec<(usize, Vec<Change>)>,
}

impl<E: Engine> Sharded<E> {
    pub(super) fn edit_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        let mut parts: Vec<Part<'_>> = Vec::new();
        self.each_shard(keys, |shard, own, indices| {
            room::more(&mut parts, 1)?;
            parts.push(Part {
                shard,
                keys: room::collect(own.iter().copied())?,
                indices: room::collect(indices.iter().copied())?,
            });
            Ok(())
        })?;
        match &parts[..] {
            [] => self.shards[0].update_many(&[], decide),
            [part] => {
                // In order: the keys as they were given.
                let updated = self.shards[part.shard].update_many(keys, decide);
                updated.map_err(|error| self.named(part.shard, error))
            }
            parts => self.edit_parts(parts, keys, decide),
        }
    }

    fn edit_parts(
        &self,
        parts: &[Part<'_>],
        keys: &[&[u8]],
        decide: DecideMany<'_, '_>,
    ) -> Result<()> {
        let _whole = self.whole.read();
        let mut work = Work {
            decide,
            edits: Vec::new(),
            applied: room::vec(parts.len())?,
        };
        let promise = self.promise();
        let edited = self.lock(parts, None, &mut work, &|edits| {
            check_lengths(&promise, keys, edits)
        });
        edited.map_err(|error| self.take_back(error, &work.applied))
    }

    /// Locks the records of the first of these parts, then those of the others, decides, and applies the edits of the part.
    fn lock<'a>(
        &self,
        parts: &[Part<'_>],
        before: Option<&Shown<'_>>,
        work: &mut Work<'_, 'a>,
        check: &dyn Fn(&[Edit<'a>]) -> Result<()>,
    ) -> Result<()> {
        let Some((part, rest)) = parts.split_first() else {
            return work.decide(before, check);
        };
        let mut own = Ok(Vec::new());
        let applied = self.shards[part.shard].update_many(&part.keys, &mut |values| {
            let shown = Shown {
                part,
                values,
                before,
            };
            let decided = self.lock(rest, Some(&shown), work, check);
            let changes = decided.and_then(|()| {
                // The part that is applied last is never taken back.
                if before.is_some() {
                    work.changes(&shown)
                } else {
                    Ok(Vec::new())
                }
            });
            let keeps = changes.is_err();
            own = changes;
            let edit = |index: &usize| {
                if keeps {
                    return Edit::Keep;
                }
                std::mem::replace(&mut work.edits[*index], Edit::Keep)
            };
            part.indices.iter().map(edit).collect()
        });
        let changes = own?;
        applied.map_err(|error| self.named(part.shard, error))?;
        work.applied.push((part.shard, changes));
        Ok(())
    }

    /// Gives records back the values that they had before an update that failed, where no other update has changed them since.
    #[cold]
    fn take_back(&self, error: Error, applied: &[(usize, Vec<Change>)]) -> Error {
        let mut left = 0;
        for (shard, changes) in applied {
            for change in changes {
                let mut is_ours = false;
                let restored = self.shards[*shard].update(&change.key, &mut |present| {
                    is_ours = present == change.after.as_deref();
                    match &change.before {
                        _ if !is_ours => Edit::Keep,
                        Some(value) => Edit::put(value),
                        None => Edit::Remove,
                    }
                });
                left += usize::from(restored.is_err() || !is_ours);
            }
        }
        if left == 0 {
            return error;
        }
        error.of(format!(
            "{left} of the records are changed nevertheless, in other shards"
        ))
    }
}

impl<'a> Work<'_, 'a> {
    /// Shows all values to `decide`. `Invalid` if there is not one edit per key.
    fn decide(
        &mut self,
        last: Option<&Shown<'_>>,
        check: &dyn Fn(&[Edit<'a>]) -> Result<()>,
    ) -> Result<()> {
        let mut parts = std::iter::successors(last, |shown| shown.before);
        let count = parts.clone().map(|shown| shown.values.len()).sum();
        let mut values: Vec<Option<&[u8]>> = room::vec(count)?;
        values.resize(count, None);
        parts.try_for_each(|shown| {
            for (index, value) in shown.part.indices.iter().zip(shown.values) {
                *values.get_mut(*index)? = *value;
            }
            Some(())
        });
        self.edits = (self.decide)(&values);
        if self.edits.len() != count {
            let what = "an update of many keys needs one edit per key";
            return Err(Error::new(Kind::Invalid, what).found(self.edits.len(), count));
        }
        check(&self.edits)
    }

    /// How the records of a part will be changed.
    fn changes(&self, shown: &Shown<'_>) -> Result<Vec<Change>> {
        let part = shown.part;
        let mut changes: Vec<Change> = room::vec(part.keys.len())?;
        let mut known: HashMap<&[u8], usize> = HashMap::new();
        room::map(&mut known, part.keys.len())?;
        for ((key, index), value) in part.keys.iter().zip(&part.indices).zip(shown.values) {
            let after = match &self.edits[*index] {
                Edit::Keep => continue,
                Edit::Put(value) => Some(room::copy(value)?),
                Edit::Remove => None,
            };
            // Of several edits of a record the last counts.
            if let Some(change) = known.get(key).and_then(|at| changes.get_mut(*at)) {
                change.after = after;
                continue;
            }
            known.insert(key, changes.len());
            changes.push(Change {
                key: room::copy(key)?,
                before: value.map(room::copy).transpose()?,
                after,
            });
        }
        Ok(changes)
    }
}

/// `TooLarge` if an edit would be refused for its length.
fn check_lengths(promise: &Promise, keys: &[&[u8]], edits: &[Edit<'_>]) -> Result<()> {
    let limits = Limits {
        key: promise.key_len_max,
        value: promise.value_len_max,
        whose: "a shard",
    };
    for (key, edit) in keys.iter().zip(edits) {
        if let Edit::Put(value) = edit {
            limits.check(key, value)?;
        }
    }
    Ok(())
}
