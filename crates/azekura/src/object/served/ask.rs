//! Requests to a served store: verbs, deadline, priority and durability.
//!
//! A verb makes an [`Asked`], whose deadline, priority and, for a change, durability are set before it is sent. This file alone defines
//! which objects a verb touches, and whether it changes them. `crew` executes requests.

use std::future::{Future, IntoFuture};
use std::ops::{Bound, Range, RangeBounds};

use super::Served;
use super::pending::{Pending, Reply, pair};
use crate::engine::Durability;
use crate::error::{Error, Result};
use crate::object::id::ids_of;
use crate::object::{Draft, Listed, ObjectId, Stored, Usage, Value};
use crate::queue::{Ask, Deadline, Touches};

/// A request, and where its answer goes.
#[derive(Debug)]
pub(super) enum Verb {
    Put(ObjectId, Content, Reply<Stored>),
    Get(ObjectId, Range<u64>, Reply<Option<Value>>),
    Head(ObjectId, Reply<Option<u64>>),
    Sequence(ObjectId, Reply<Option<u64>>),
    GetWithSequence(ObjectId, Reply<Option<(Value, u64)>>),
    /// The expected sequence, and the value.
    CompareAndPut(ObjectId, Option<u64>, Vec<u8>, Reply<Option<Stored>>),
    /// The expected sequence.
    CompareAndRemove(ObjectId, u64, Reply<bool>),
    Apply(Vec<Batched>, Reply<Vec<u64>>),
    Remove(ObjectId, Reply<bool>),
    RemoveRange(Ids, Reply<u64>),
    /// The range, and the most objects.
    List(Ids, usize, Reply<Vec<Listed>>),
    Usage(Ids, Reply<Usage>),
    Sync(Reply<()>),
    Checkpoint(Reply<()>),
}

/// A range of ids.
pub(super) type Ids = (Bound<ObjectId>, Bound<ObjectId>);

/// One change of a batch: the object's value; `None`: it is removed.
pub(super) type Batched = (ObjectId, Option<Vec<u8>>);

/// The content of a put.
#[derive(Debug)]
pub(super) enum Content {
    Bytes(Vec<u8>),
    Draft(Draft),
}

/// A request in the queue.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) verb: Verb,
    pub(super) durability: Durability,
}

impl Verb {
    /// Bytes of its values.
    fn bytes(&self) -> u64 {
        match self {
            Self::Put(_, Content::Bytes(value), _) | Self::CompareAndPut(_, _, value, _) => {
                value.len() as u64
            }
            Self::Put(_, Content::Draft(draft), _) => draft.len(),
            Self::Apply(changes, _) => {
                let values = changes.iter().filter_map(|(_, value)| value.as_ref());
                values.map(|value| value.len() as u64).sum()
            }
            _ => 0,
        }
    }

    fn touches(&self) -> Touches {
        match self {
            Self::Put(id, ..)
            | Self::Get(id, ..)
            | Self::Head(id, _)
            | Self::Sequence(id, _)
            | Self::GetWithSequence(id, _)
            | Self::CompareAndPut(id, ..)
            | Self::CompareAndRemove(id, ..)
            | Self::Remove(id, _) => Touches::One(id.0),
            Self::Apply(changes, _) => Touches::Many(changes.iter().map(|(id, _)| id.0).collect()),
            Self::RemoveRange(ids, _) | Self::List(ids, ..) | Self::Usage(ids, _) => {
                match ids_of(ids) {
                    Some(ids) => Touches::Range(ids.start().0..=ids.end().0),
                    None => Touches::Many(Vec::new()),
                }
            }
            // A sync covers changes that were acknowledged before.
            Self::Sync(_) | Self::Checkpoint(_) => Touches::Many(Vec::new()),
        }
    }

    fn writes(&self) -> bool {
        matches!(
            self,
            Self::Put(..)
                | Self::CompareAndPut(..)
                | Self::CompareAndRemove(..)
                | Self::Apply(..)
                | Self::Remove(..)
                | Self::RemoveRange(..)
        )
    }

    /// Whether it needs no access to the data device.
    fn at_once(&self) -> bool {
        match self {
            Self::Put(..)
            | Self::Get(..)
            | Self::Sequence(..)
            | Self::GetWithSequence(..)
            | Self::CompareAndPut(..)
            | Self::CompareAndRemove(..) => false,
            Self::Apply(changes, _) => changes.iter().all(|(_, value)| value.is_none()),
            _ => true,
        }
    }

    /// Answers with an error.
    pub(super) fn fail(self, error: Error) {
        match self {
            Self::Put(.., reply) => reply.keep(Err(error)),
            Self::Get(.., reply) => reply.keep(Err(error)),
            Self::Head(_, reply) | Self::Sequence(_, reply) => reply.keep(Err(error)),
            Self::CompareAndPut(.., reply) => reply.keep(Err(error)),
            Self::Apply(_, reply) => reply.keep(Err(error)),
            Self::GetWithSequence(_, reply) => reply.keep(Err(error)),
            Self::Remove(_, reply) | Self::CompareAndRemove(.., reply) => {
                reply.keep(Err(error));
            }
            Self::RemoveRange(.., reply) => reply.keep(Err(error)),
            Self::List(.., reply) => reply.keep(Err(error)),
            Self::Usage(.., reply) => reply.keep(Err(error)),
            Self::Sync(reply) | Self::Checkpoint(reply) => reply.keep(Err(error)),
        }
    }
}

/// A request that is not sent yet. Its deadline is infinity by default. Awaiting it sends it.
#[derive(Debug)]
#[must_use = "it is not sent yet"]
pub struct Asked<'s, T, const CHANGES: bool> {
    served: &'s Served,
    ask: Ask,
    job: Job,
    pending: Pending<T>,
}

/// A request that changes objects.
pub type AskedChange<'s, T> = Asked<'s, T, true>;
/// A request that changes nothing.
pub type AskedRead<'s, T> = Asked<'s, T, false>;

impl<'s, T, const CHANGES: bool> Asked<'s, T, CHANGES> {
    fn new(served: &'s Served, verb: impl FnOnce(Reply<T>) -> Verb) -> Self {
        let (reply, pending) = pair();
        let verb = verb(reply);
        let ask = Ask {
            touches: verb.touches(),
            writes: verb.writes(),
            place: 0,
            deadline: Deadline::Infinity,
            bytes: verb.bytes(),
            at_once: verb.at_once(),
            prioritized: false,
        };
        let durability = served.store.core.options.durability;
        Self {
            served,
            ask,
            job: Job { verb, durability },
            pending,
        }
    }

    /// Sets its deadline.
    pub fn deadline(mut self, deadline: Deadline) -> Self {
        self.ask.deadline = deadline;
        self
    }

    /// Exempts it from the policy of long queues.
    pub fn prioritized(mut self) -> Self {
        self.ask.prioritized = true;
        self
    }

    /// Puts it into the queue, without waiting; a refusal is an answer, too: `Full` or `Poisoned`, as
    /// [`Failure::error`](crate::queue::Failure::error) states.
    pub fn send(mut self) -> Pending<T> {
        if let Some(number) = self.served.enqueue(self.ask, self.job) {
            self.pending.queued(&self.served.shared, number);
        }
        self.pending
    }

    /// Sends it, and waits for the answer.
    pub fn wait(self) -> Result<T> {
        self.send().wait()
    }
}

impl<T> Asked<'_, T, true> {
    /// Sets the durability of the acknowledged change, instead of the store's.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.job.durability = durability;
        self
    }
}

impl<T, const CHANGES: bool> IntoFuture for Asked<'_, T, CHANGES> {
    type Output = <Pending<T> as Future>::Output;
    type IntoFuture = Pending<T>;

    fn into_future(self) -> Pending<T> {
        self.send()
    }
}

fn bounds(range: &impl RangeBounds<ObjectId>) -> Ids {
    (range.start_bound().cloned(), range.end_bound().cloned())
}

/// The verbs: results, limits and errors are those of the store's verbs of the same name.
impl Served {
    /// As [`Store::put`](crate::object::Store::put).
    pub fn put(&self, id: ObjectId, value: impl Into<Vec<u8>>) -> AskedChange<'_, Stored> {
        let content = Content::Bytes(value.into());
        Asked::new(self, |reply| Verb::Put(id, content, reply))
    }

    /// As [`Store::put_draft`](crate::object::Store::put_draft), of a draft of [`store`](Self::store).
    pub fn put_draft(&self, id: ObjectId, draft: Draft) -> AskedChange<'_, Stored> {
        let content = Content::Draft(draft);
        Asked::new(self, |reply| Verb::Put(id, content, reply))
    }

    /// As [`Store::get`](crate::object::Store::get).
    pub fn get(&self, id: ObjectId) -> AskedRead<'_, Option<Value>> {
        self.get_range(id, 0..u64::MAX)
    }

    /// As [`Store::get_range`](crate::object::Store::get_range).
    pub fn get_range(&self, id: ObjectId, range: Range<u64>) -> AskedRead<'_, Option<Value>> {
        Asked::new(self, |reply| Verb::Get(id, range, reply))
    }

    /// As [`Store::head`](crate::object::Store::head).
    pub fn head(&self, id: ObjectId) -> AskedRead<'_, Option<u64>> {
        Asked::new(self, |reply| Verb::Head(id, reply))
    }

    /// As [`Store::sequence`](crate::object::Store::sequence).
    pub fn sequence(&self, id: ObjectId) -> AskedRead<'_, Option<u64>> {
        Asked::new(self, |reply| Verb::Sequence(id, reply))
    }

    /// As [`Store::get_with_sequence`](crate::object::Store::get_with_sequence).
    pub fn get_with_sequence(&self, id: ObjectId) -> AskedRead<'_, Option<(Value, u64)>> {
        Asked::new(self, |reply| Verb::GetWithSequence(id, reply))
    }

    /// As [`Store::compare_and_put`](crate::object::Store::compare_and_put): if nothing is `expected`, only where there is no such
    /// object.
    pub fn compare_and_put(
        &self,
        id: ObjectId,
        expected: Option<u64>,
        value: impl Into<Vec<u8>>,
    ) -> AskedChange<'_, Option<Stored>> {
        let value = value.into();
        Asked::new(self, |reply| {
            Verb::CompareAndPut(id, expected, value, reply)
        })
    }

    /// As [`Store::apply`](crate::object::Store::apply): each object gets its value, or is removed where there is none. Its
    /// writes are submitted in turn with other requests, up to the depth; each value is dropped when its write is submitted.
    pub fn apply(&self, changes: Vec<(ObjectId, Option<Vec<u8>>)>) -> AskedChange<'_, Vec<u64>> {
        Asked::new(self, |reply| Verb::Apply(changes, reply))
    }

    /// As [`Store::remove`](crate::object::Store::remove).
    pub fn remove(&self, id: ObjectId) -> AskedChange<'_, bool> {
        Asked::new(self, |reply| Verb::Remove(id, reply))
    }

    /// As [`Store::compare_and_remove`](crate::object::Store::compare_and_remove).
    pub fn compare_and_remove(&self, id: ObjectId, expected: u64) -> AskedChange<'_, bool> {
        Asked::new(self, |reply| Verb::CompareAndRemove(id, expected, reply))
    }

    /// As [`Store::remove_range`](crate::object::Store::remove_range).
    pub fn remove_range(&self, range: impl RangeBounds<ObjectId>) -> AskedChange<'_, u64> {
        Asked::new(self, |reply| Verb::RemoveRange(bounds(&range), reply))
    }

    /// The first `count_max` objects of [`Store::list`](crate::object::Store::list). No access. `Full` if there is no memory for the
    /// list.
    pub fn list(
        &self,
        range: impl RangeBounds<ObjectId>,
        count_max: usize,
    ) -> AskedRead<'_, Vec<Listed>> {
        Asked::new(self, |reply| Verb::List(bounds(&range), count_max, reply))
    }

    /// As [`Store::usage`](crate::object::Store::usage).
    pub fn usage(&self, range: impl RangeBounds<ObjectId>) -> AskedRead<'_, Usage> {
        Asked::new(self, |reply| Verb::Usage(bounds(&range), reply))
    }

    /// As [`Store::sync`](crate::object::Store::sync), for changes acknowledged before it is sent.
    pub fn sync(&self) -> AskedRead<'_, ()> {
        Asked::new(self, Verb::Sync)
    }

    /// As [`Store::checkpoint`](crate::object::Store::checkpoint): made concurrently with other requests, one for all that wait for one.
    pub fn checkpoint(&self) -> AskedRead<'_, ()> {
        Asked::new(self, Verb::Checkpoint)
    }
}
