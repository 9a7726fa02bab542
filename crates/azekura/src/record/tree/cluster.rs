//! Keys too long for a node: those with the same beginning are one entry of a leaf, whose value is a list of them.
//!
//! In lexical order a key of 510 bytes or more is its *stem*, the first 510, and the rest, and the order of keys is that of stems, then
//! of rests. So the records of a stem are a *cluster*: a run that lists them in order (`layout`), in place of a value. A list has the
//! rest of each key up to 1024 bytes, and values up to 510; what is longer stands in a run of its own, so that it is not written again
//! when a neighbour changes. A record whose key is a stem, alone, is an entry as any other. Other orders do not divide so, and have
//! no longer keys.
//!
//! Costs: reading a long key, a read of its list, one more where its value stands outside, and where rests of more than 1024 bytes begin
//! alike, one more for each comparison. An update writes the list again: what the records that share the stem have in it.
//!
//! It does not know who looks, nor when a change counts. Nodes and the journal know nothing of this: a frame has the whole key.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::{Bound, Range};

use super::Core;
use super::layout::RunPlace;
use super::nodes::AppendedAt;
use super::run::NewRun;
use super::view::View;
use crate::error::{Error, Kind, Result};
use crate::format::bytes::Take;
use crate::log::AllocationClass;
use crate::log::manifest::remedy;
use crate::node::tree::{Buffer, Seen};
use crate::node::{self, Found, Node, Value};
use crate::order::{KeyBounds, Order};
use crate::room;

/// Bytes of a stem.
pub(super) const STEM: usize = node::KEY_LEN_MAX;
/// Of a rest, so many bytes stand in the list.
const REST_INSIDE: usize = 1024;
/// The length of a value that stands outside.
const OUTSIDE: u32 = u32::MAX;
/// Bytes of a list, at most.
const LIST_LEN_MAX: usize = 1 << 30;

/// Whether a key's record may be in a list.
#[inline(always)]
pub(super) fn is_long(order: Order, key: &[u8]) -> bool {
    key.len() >= STEM && order == Order::Lexical
}

/// A range as nodes know it, whose ends may be stems of which a part is in the range.
pub(super) fn stems_of(order: Order, (from, to): KeyBounds<'_>) -> KeyBounds<'_> {
    let stem = |end| match end {
        Bound::Included(key) | Bound::Excluded(key) if is_long(order, key) => {
            Bound::Included(stem_of(key))
        }
        end => end,
    };
    (stem(from), stem(to))
}

/// What nodes know of a key.
#[inline(always)]
pub(super) fn stem_of(key: &[u8]) -> &[u8] {
    key.get(..STEM).unwrap_or(key)
}

/// What follows the stem.
fn rest_of(key: &[u8]) -> &[u8] {
    key.get(STEM..).unwrap_or_default()
}

/// Of the rest of a key, what stands in the list, and what does not.
fn divide(rest: &[u8]) -> (&[u8], &[u8]) {
    rest.split_at_checked(REST_INSIDE).unwrap_or((rest, &[]))
}

/// Where the value of a member is.
#[derive(Clone, Copy)]
enum Member<'c> {
    /// In the list.
    Inside(&'c [u8]),
    /// In the run of this word, after so many bytes of the rest.
    Outside(u64, usize),
}

/// The records of a stem, as a list has them.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    list: Vec<u8>,
    /// Where each member ends.
    ends: Vec<usize>,
}

impl Cluster {
    /// The one that a list is. `None`: it is none. Errors: `Full`.
    fn parse(list: Vec<u8>) -> Result<Option<Self>> {
        let mut take = Take(&list);
        let mut ends = Vec::new();
        while !take.0.is_empty() {
            if take_member(&mut take).is_none() {
                return Ok(None);
            }
            room::more(&mut ends, 1)?;
            ends.push(list.len() - take.0.len());
        }
        // Without a record there is no list.
        Ok((!ends.is_empty()).then_some(Self { list, ends }))
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of the members of a range, which ends at most where they do.
    fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        let begin = |at: usize| at.checked_sub(1).and_then(|at| self.ends.get(at)).copied();
        let (from, to) = (begin(range.start), begin(range.end));
        let list = self.list.get(from.unwrap_or(0)..to.unwrap_or(0));
        list.unwrap_or_default()
    }

    /// What of its rest stands in the list, and its value.
    fn member(&self, at: usize) -> Option<(&[u8], Member<'_>)> {
        (at < self.count()).then_some(())?;
        take_member(&mut Take(self.bytes(at..at + 1)))
    }

    /// The words of what stands outside.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        self.words_in(0..self.count())
    }

    fn words_in(&self, range: Range<usize>) -> impl Iterator<Item = u64> {
        range.filter_map(|at| self.word(at))
    }

    /// The word of what stands outside of a member; `None`: nothing does.
    pub(super) fn word(&self, at: usize) -> Option<u64> {
        match self.member(at)?.1 {
            Member::Outside(word, _) => Some(word),
            Member::Inside(_) => None,
        }
    }

    /// Where the member with this rest is or would be, and whether it is there; `outside` reads what a word names.
    pub(super) fn find(
        &self,
        rest: &[u8],
        outside: &dyn Fn(u64) -> Result<Vec<u8>>,
    ) -> Result<(usize, bool)> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.compare(middle, rest, outside)? {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok((middle, true)),
                Ordering::Greater => high = middle,
            }
        }
        Ok((low, false))
    }

    fn compare(
        &self,
        at: usize,
        rest: &[u8],
        outside: &dyn Fn(u64) -> Result<Vec<u8>>,
    ) -> Result<Ordering> {
        let Some((own, member)) = self.member(at) else {
            return Ok(Ordering::Greater);
        };
        let (head, tail) = divide(rest);
        let compared = own.cmp(head);
        let (word, own_len) = match member {
            Member::Outside(word, len) if len > 0 => (word, len),
            _ => return Ok(compared.then(0.cmp(&tail.len()))),
        };
        if compared.is_ne() || tail.is_empty() {
            return Ok(compared.then(Ordering::Greater));
        }
        let run = outside(word)?;
        Ok(run.get(..own_len).unwrap_or_default().cmp(tail))
    }

    /// The rest and the value of a member; `None`: there is none at this place. Errors: those of `outside`; `Full`.
    pub(super) fn record(
        &self,
        at: usize,
        outside: &dyn Fn(u64) -> Result<Vec<u8>>,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let Some((head, member)) = self.member(at) else {
            return Ok(None);
        };
        let mut rest = room::copy(head)?;
        let value = match member {
            Member::Inside(value) => room::copy(value)?,
            Member::Outside(word, tail_len) => {
                let mut run = outside(word)?;
                let tail = run.get(..tail_len).unwrap_or_default();
                room::more(&mut rest, tail.len())?;
                rest.extend_from_slice(tail);
                let len = tail.len();
                run.drain(..len);
                run
            }
        };
        Ok(Some((rest, value)))
    }

    /// The members whose keys are in a range.
    pub(super) fn within(
        &self,
        stem: &[u8],
        (from, to): KeyBounds<'_>,
        outside: &dyn Fn(u64) -> Result<Vec<u8>>,
    ) -> Result<Range<usize>> {
        let place = |key: &[u8], is_after: bool| -> Result<Option<usize>> {
            let Some(rest) = key.strip_prefix(stem) else {
                return Ok(None);
            };
            let (at, is_there) = self.find(rest, outside)?;
            Ok(Some(at + usize::from(is_after && is_there)))
        };
        let begin = match from {
            Bound::Unbounded => None,
            Bound::Included(key) => place(key, false)?,
            Bound::Excluded(key) => place(key, true)?,
        };
        let end = match to {
            Bound::Unbounded => None,
            Bound::Included(key) => place(key, true)?,
            Bound::Excluded(key) => place(key, false)?,
        };
        let begin = begin.unwrap_or(0);
        Ok(begin..end.unwrap_or_else(|| self.count()).max(begin))
    }

    /// What stands in the list of the rest of a member's key: for errors.
    pub(super) fn beginning(&self, at: usize) -> &[u8] {
        self.member(at).map_or(&[], |(head, _)| head)
    }
}

/// One member.
fn take_member<'b>(take: &mut Take<'b>) -> Option<(&'b [u8], Member<'b>)> {
    let (rest_len, value_len) = (take.u32()? as usize, take.u32()?);
    let inside = rest_len.min(REST_INSIDE);
    let head = take.bytes(inside)?;
    if value_len != OUTSIDE {
        // What has no run has no more of a rest.
        let value = take.bytes(value_len as usize)?;
        return (inside == rest_len).then_some((head, Member::Inside(value)));
    }
    Some((head, Member::Outside(take.u64()?, rest_len - inside)))
}

fn give_member(list: &mut Vec<u8>, rest: &[u8], value: Value<'_>) -> Result<()> {
    let (head, _) = divide(rest);
    let (len, bytes) = match value {
        Value::Inside(bytes) => (bytes.len() as u32, Cow::Borrowed(bytes)),
        Value::Outside(word) => (OUTSIDE, Cow::Owned(word.to_le_bytes().to_vec())),
    };
    room::more(list, 8 + head.len() + bytes.len())?;
    list.extend_from_slice(&(rest.len() as u32).to_le_bytes());
    list.extend_from_slice(&len.to_le_bytes());
    list.extend_from_slice(head);
    list.extend_from_slice(&bytes);
    Ok(())
}

/// The cluster that the value of a stem is. Errors: `Corrupted`, with the stem; those of the view.
pub(super) fn cluster_of(view: impl View, stem: &[u8], word: u64) -> Result<Cluster> {
    list_at(view, word).map_err(|error| error.key(stem))
}

/// As [`cluster_of`], of a stem that is not known.
pub(super) fn list_at(view: impl View, word: u64) -> Result<Cluster> {
    let list = view.value_outside(word)?;
    Cluster::parse(list)?.ok_or_else(|| {
        let storage = view.core().log.storage();
        Error::new(Kind::Corrupted, "a list of long keys has impossible values")
            .at(storage.path())
            .offset(RunPlace(word).unit() * super::layout::UNIT)
            .remedy(remedy(&**storage))
    })
}

/// The value of a key, of which the entry of its stem was seen: copied, but for what is in `buffer` already.
#[cold]
#[inline(never)]
pub(super) fn value_beyond(
    view: impl View,
    key: &[u8],
    seen: Seen,
    buffer: &Buffer,
) -> Result<Option<Vec<u8>>> {
    let rest = rest_of(key);
    match seen {
        Seen::Outside(word) if RunPlace(word).is_list() => {
            let cluster = cluster_of(view, stem_of(key), word)?;
            let outside = |word| view.value_outside(word).map_err(|error| error.key(key));
            let (at, is_there) = cluster.find(rest, &outside)?;
            if !is_there {
                return Ok(None);
            }
            let record = cluster.record(at, &outside)?;
            Ok(record.map(|(_, value)| value))
        }
        _ if !rest.is_empty() => Ok(None),
        Seen::Absent => Ok(None),
        Seen::Copied(len) => room::copy(buffer.bytes(len)).map(Some),
        Seen::Outside(word) => {
            let value = view.value_outside(word).map_err(|error| error.key(key))?;
            Ok(Some(value))
        }
    }
}

/// What a change of a cluster brings with it, besides the entry of its stem.
pub(super) struct Members<'c> {
    /// How many more records there are.
    count: i64,
    /// Words that nothing names any more.
    superseded: Vec<u64>,
    runs: Vec<NewRun<'c>>,
}

impl Members<'_> {
    /// How many more records there are.
    pub(super) fn count(&self) -> i64 {
        self.count
    }

    /// The change of a stem was appended, and counts.
    pub(super) fn finish(self, core: &Core, stem: &[u8], moment: &AppendedAt) {
        core.count(moment, stem, self.count);
        for word in self.superseded {
            core.supersede(Some(Found::Outside(word)), moment.at);
        }
        for run in self.runs {
            run.name(moment.at);
        }
    }
}

/// A cluster of a leaf that is held, which is to be changed.
pub(super) struct ClusterEdit<'k, 'c> {
    core: &'c Core,
    stem: &'k [u8],
    cluster: Cluster,
    members: Members<'c>,
}

impl<'k, 'c> ClusterEdit<'k, 'c> {
    /// That of a key's stem, as it is in its leaf. Errors: `Corrupted`, `Io`, `Full`.
    pub(super) fn of(core: &'c Core, leaf: Node<'_>, key: &'k [u8]) -> Result<Self> {
        let stem = stem_of(key);
        let mut superseded = Vec::new();
        let mut list = Vec::new();
        let mut buffer = Buffer::default();
        let cluster = match Seen::in_leaf(leaf, stem, &mut buffer) {
            Seen::Outside(word) if RunPlace(word).is_list() => {
                superseded.push(word);
                Some(cluster_of(core, stem, word)?)
            }
            Seen::Absent => None,
            Seen::Copied(len) => {
                give_member(&mut list, &[], Value::Inside(buffer.bytes(len)))?;
                None
            }
            Seen::Outside(word) => {
                give_member(&mut list, &[], Value::Outside(word))?;
                None
            }
        };
        let cluster = match cluster {
            Some(cluster) => cluster,
            None => Cluster::parse(list)?.unwrap_or_default(),
        };
        Ok(Self {
            core,
            stem,
            cluster,
            members: Members {
                count: 0,
                superseded,
                runs: Vec::new(),
            },
        })
    }

    pub(super) fn stem(&self) -> &'k [u8] {
        self.stem
    }

    /// Gives a key with this stem a value, or none; whether it had one. Errors: `TooLarge`, `Corrupted`, `Io`, `Full`.
    pub(super) fn set(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        class: AllocationClass,
    ) -> Result<bool> {
        let core = self.core;
        let outside = |word| core.read_run(word).map_err(|error| error.key(key));
        let rest = rest_of(key);
        let (at, is_there) = self.cluster.find(rest, &outside)?;
        if value.is_none() && !is_there {
            return Ok(false);
        }
        let mut list = room::copy(self.cluster.bytes(0..at))?;
        if let Some(value) = value {
            let (_, tail) = divide(rest);
            core.limits.check_len(key, tail.len() + value.len())?;
            let value = if tail.is_empty() && value.len() <= node::VALUE_LEN_MAX {
                Value::Inside(value)
            } else {
                let (place, run) = core.write_run(false, &[tail, value], class)?;
                room::more(&mut self.members.runs, 1)?;
                self.members.runs.push(run);
                Value::Outside(place.0)
            };
            give_member(&mut list, rest, value)?;
        }
        let after = self
            .cluster
            .bytes(at + usize::from(is_there)..self.cluster.count());
        room::more(&mut list, after.len())?;
        list.extend_from_slice(after);
        if list.len() > LIST_LEN_MAX {
            return Err(Error::new(
                Kind::TooLarge,
                "too many long keys begin with the same bytes",
            )
            .at(core.log.storage().path())
            .key(key)
            .found(list.len(), format!("at most {LIST_LEN_MAX} bytes of them"))
            .remedy("let keys differ in their first 510 bytes"));
        }
        if let Some((_, Member::Outside(word, _))) =
            is_there.then(|| self.cluster.member(at)).flatten()
        {
            self.supersede(word)?;
        }
        self.members.count += i64::from(value.is_some()) - i64::from(is_there);
        self.cluster = Cluster::parse(list)?.unwrap_or_default();
        Ok(is_there)
    }

    /// The members whose keys are in a range.
    pub(super) fn within(&self, keys: KeyBounds<'_>) -> Result<Range<usize>> {
        let core = self.core;
        let outside = |word| core.read_run(word).map_err(|error| error.key(self.stem));
        self.cluster.within(self.stem, keys, &outside)
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Removes members, of which some stay. Errors: `Full`.
    pub(super) fn remove(&mut self, range: Range<usize>) -> Result<()> {
        let mut words = room::vec(range.len())?;
        words.extend(self.cluster.words_in(range.clone()));
        for word in words {
            self.supersede(word)?;
        }
        let before = self.cluster.bytes(0..range.start);
        let after = self.cluster.bytes(range.end..self.cluster.count());
        self.members.count -= (range.len() as u64).cast_signed();
        self.cluster = Cluster::parse(room::concat(&[before, after])?)?.unwrap_or_default();
        Ok(())
    }

    /// A member's run is not needed any more; one that was made meanwhile is given back at once.
    fn supersede(&mut self, word: u64) -> Result<()> {
        let runs = &mut self.members.runs;
        if let Some(at) = runs.iter().position(|run| run.is(word)) {
            drop(runs.swap_remove(at));
            return Ok(());
        }
        room::more(&mut self.members.superseded, 1)?;
        self.members.superseded.push(word);
        Ok(())
    }

    /// The value of the stem's entry, which is none if no member is left, and what comes with it. Errors: `Io`, `Full`.
    pub(super) fn finish(
        self,
        class: AllocationClass,
    ) -> Result<(Option<Placed<'static>>, Members<'c>)> {
        let placed = match (self.cluster.count(), self.cluster.member(0)) {
            (0, _) | (_, None) => None,
            // A stem, and nothing longer.
            (1, Some((&[], Member::Inside(value)))) => {
                Some(Placed::Inside(Cow::Owned(room::copy(value)?)))
            }
            (1, Some((&[], Member::Outside(word, 0)))) => Some(Placed::Outside(word)),
            _ => {
                let (word, members) = self.finish_list(class)?;
                return Ok((Some(Placed::Outside(word)), members));
            }
        };
        Ok((placed, self.members))
    }

    /// As [`finish`](Self::finish), of members that are a list, of which there are some. Errors: `Io`, `Full`.
    pub(super) fn finish_list(mut self, class: AllocationClass) -> Result<(u64, Members<'c>)> {
        let list = [self.cluster.list.as_slice()];
        let (place, run) = self.core.write_run(true, &list, class)?;
        room::more(&mut self.members.runs, 1)?;
        self.members.runs.push(run);
        Ok((place.0, self.members))
    }
}

/// A value as its leaf has it.
pub(super) enum Placed<'v> {
    /// In it.
    Inside(Cow<'v, [u8]>),
    /// In a run.
    Outside(u64),
}

impl<'v> Placed<'v> {
    pub(super) fn of(value: Value<'v>) -> Self {
        match value {
            Value::Inside(bytes) => Self::Inside(Cow::Borrowed(bytes)),
            Value::Outside(word) => Self::Outside(word),
        }
    }

    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Self::Inside(bytes) => Value::Inside(bytes),
            Self::Outside(word) => Value::Outside(*word),
        }
    }
}
