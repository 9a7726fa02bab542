//! The thread that serves requests: it takes them from the queue, executes them or submits them to the flight, and answers them.
//!
//! | a request | before it is submitted | when it completes |
//! |---|---|---|
//! | put | lock the object; reserve space and a sequence; encode the extent | commit the put, or abort it: the old object stays |
//! | get, sequence | find the object | verify it; if it moved meanwhile, find it again, at last with its lock |
//! | compare and put | lock the object; read its sequence, if one is expected | compare, and continue as a put |
//! | batch | lock all objects; reserve space and a sequence for each put | after the last write: append its frame, and commit all of it |
//! | sync, checkpoint | none | made by another thread, one for many requests |
//! | all others, and small objects | executed at once | none |
//!
//! The writes of a batch take free tokens in turn with other requests, one each: a long batch delays no request for long. A failed
//! write ends the batch; its writes in flight complete first, and its space is freed.
//!
//! While the flight is full, late requests fail and requests that need no data access are executed all the same; a put of a small
//! object waits, since only its execution shows that it is small.
//!
//! The end of a change makes the store's calls in the store's order: the lock of the object is released before its sync is waited for.
//! A crash leaves what it leaves of direct calls by as many threads.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::ask::{Batched, Content, Ids, Job, Verb};
use super::pending::Reply;
use super::syncer::{Owed, Syncer};
use crate::engine::Durability;
use crate::error::{Error, Kind, Result};
use crate::io::aligned::AlignedBuf;
use crate::io::flight::{Flight, Landed, Request, Work};
use crate::object::place::extent::{BATCHED, PIECE};
use crate::object::read::get::{LOOKS, Read, Reads, Sought};
use crate::object::write::locks::ObjectGuard;
use crate::object::write::put::{Part, Reservation};
use crate::object::{Core, Listed, ObjectId, Store, Stored, Value};
use crate::queue::{Next, Ticket};
use crate::room;

/// Most requests that are begun before completions are checked.
const BURST: usize = 64;

/// See the module's text.
pub(super) struct Crew {
    store: Arc<Store>,
    shared: Arc<Shared>,
    syncer: Syncer,
    checkpointer: Syncer,
    /// `None`: the flight failed.
    flight: Option<Box<dyn Flight>>,
    /// What is in flight, by token.
    flying: Vec<Option<Flying>>,
    /// Free tokens.
    free: Vec<usize>,
    /// Batches with writes in flight or not begun, by number, oldest first.
    batches: BTreeMap<u64, Batching>,
    next_batch: u64,
    /// Whether a write of a batch takes the next token, if one waits.
    is_parts_turn: bool,
}

enum Flying {
    Put(Putting, Reservation),
    Get(Getting, Sought),
    /// A write of this batch.
    Part(u64),
}

/// A put that holds its object's lock.
struct Putting {
    ticket: Ticket,
    guard: ObjectGuard,
    durability: Durability,
    awaited: Awaited,
    /// Device time so far; `None`: no access.
    took: Option<Duration>,
}

impl Putting {
    fn new(ticket: Ticket, guard: ObjectGuard, durability: Durability, awaited: Awaited) -> Self {
        Self {
            ticket,
            guard,
            durability,
            awaited,
            took: None,
        }
    }
}

impl Comparing {
    /// The put, if the comparison succeeded, and its value.
    fn into_put(self, ticket: Ticket) -> (Putting, Content) {
        let awaited = Awaited::CompareAndPut(self.reply);
        let putting = Putting::new(ticket, self.guard, self.durability, awaited);
        (putting, Content::Bytes(self.value))
    }

    /// Releases the lock, and answers without a put; `done` ends the request in between.
    fn end(self, result: Result<()>, done: impl FnOnce()) {
        drop(self.guard);
        done();
        self.reply.keep(result.map(|()| None));
    }
}

/// Where the answer of a put goes.
enum Awaited {
    Put(Reply<Stored>),
    CompareAndPut(Reply<Option<Stored>>),
}

struct Getting {
    ticket: Ticket,
    id: ObjectId,
    range: Range<u64>,
    wanted: Wanted,
    looks: usize,
    /// As of a put.
    took: Option<Duration>,
}

impl Getting {
    fn new(ticket: Ticket, id: ObjectId, range: Range<u64>, wanted: Wanted) -> Self {
        Self {
            ticket,
            id,
            range,
            wanted,
            looks: 0,
            took: None,
        }
    }
}

/// The purpose of a read.
enum Wanted {
    Value(Reply<Option<Value>>),
    Sequence(Reply<Option<u64>>),
    ValueWithSequence(Reply<Option<(Value, u64)>>),
    /// Whether the object has this sequence, for a put.
    Comparison(u64, Box<Comparing>),
    /// Whether the object has this sequence, for a removal that holds the lock.
    Removal(u64, ObjectGuard, Durability, Reply<bool>),
}

/// A put that waits for a comparison. Holds the lock.
struct Comparing {
    value: Vec<u8>,
    guard: ObjectGuard,
    durability: Durability,
    reply: Reply<Option<Stored>>,
}

/// A batch that holds the locks of its objects.
struct Batching {
    ticket: Ticket,
    parts: Vec<Part>,
    /// Puts that are not submitted yet.
    left: VecDeque<(Reservation, Vec<u8>)>,
    /// Writes in flight.
    flying: usize,
    written: Result<()>,
    /// Whether the device failed.
    failed: bool,
    guard: ObjectGuard,
    durability: Durability,
    reply: Reply<Vec<u64>>,
    /// Device time of its longest write.
    took: Option<Duration>,
}

impl Crew {
    pub(super) fn new(
        store: &Arc<Store>,
        shared: &Arc<Shared>,
        flight: Box<dyn Flight>,
        depth: usize,
    ) -> Result<Self> {
        let depth = depth.min(flight.depth_max());
        Ok(Self {
            store: Arc::clone(store),
            shared: Arc::clone(shared),
            syncer: Syncer::start("sync", store, shared, Store::sync)?,
            checkpointer: Syncer::start("checkpoint", store, shared, Store::checkpoint)?,
            flight: Some(flight),
            flying: room::collect((0..depth).map(|_| None))?,
            free: room::collect((0..depth).rev())?,
            batches: BTreeMap::new(),
            next_batch: 0,
            is_parts_turn: false,
        })
    }

    /// The thread's loop.
    pub(super) fn serve(mut self) {
        let mut landed = Vec::new();
        while let ControlFlow::Continue(wait) = self.begin_what_may() {
            let Some(flight) = &mut self.flight else {
                return;
            };
            if let Err(error) = flight.land(&mut landed, wait) {
                tracing::error!(%error, "requests cannot be carried any more; they stop");
                return self.abandon();
            }
            for landed in landed.drain(..) {
                self.landed(landed);
            }
        }
    }

    /// Begins requests; returns how long to wait then for completions and new requests, or that the thread ends.
    fn begin_what_may(&mut self) -> ControlFlow<(), Option<Duration>> {
        for _ in 0..BURST {
            let launched = self.is_parts_turn && self.launch_part();
            self.is_parts_turn &= !launched;
            let has_token = !self.free.is_empty();
            let mut state = self.shared.state.lock();
            state.asleep = false;
            let now = self.shared.now();
            let next = if has_token {
                state.queue.pop(now)
            } else {
                state.queue.pop_at_once(now)
            };
            // Alternates with the writes of batches, while there is a free token.
            let was_parts_turn = self.is_parts_turn;
            self.is_parts_turn |= has_token;
            let Some(next) = next else {
                if launched || was_parts_turn != self.is_parts_turn {
                    continue;
                }
                if state.leaving && self.free.len() == self.flying.len() {
                    return ControlFlow::Break(());
                }
                state.asleep = true;
                // A request is late only after its deadline.
                let wait = state.queue.next_late().map(|at| {
                    at.saturating_sub(now)
                        .saturating_add(Duration::from_micros(1))
                });
                return ControlFlow::Continue(wait);
            };
            drop(state);
            match next {
                Next::Run(ticket, job) => self.begin(ticket, job),
                Next::Fails(failure, job) => job.verb.fail(failure.error()),
            }
        }
        ControlFlow::Continue(Some(Duration::ZERO))
    }

    fn begin(&mut self, ticket: Ticket, job: Job) {
        let Job { verb, durability } = job;
        match verb {
            Verb::Get(id, range, reply) => {
                self.look(Getting::new(ticket, id, range, Wanted::Value(reply)));
            }
            Verb::Sequence(id, reply) => {
                self.look(Getting::new(ticket, id, 0..0, Wanted::Sequence(reply)));
            }
            Verb::GetWithSequence(id, reply) => {
                let wanted = Wanted::ValueWithSequence(reply);
                self.look(Getting::new(ticket, id, 0..u64::MAX, wanted));
            }
            Verb::CompareAndRemove(id, expected, reply) => {
                let guard = self.store.core.locks.lock(id);
                let wanted = Wanted::Removal(expected, guard, durability, reply);
                self.look(Getting::new(ticket, id, 0..0, wanted));
            }
            Verb::Put(id, content, reply) => {
                let guard = self.store.core.locks.lock(id);
                let awaited = Awaited::Put(reply);
                self.put(
                    Putting::new(ticket, guard, durability, awaited),
                    id,
                    content,
                );
            }
            Verb::CompareAndPut(id, expected, value, reply) => {
                let guard = self.store.core.locks.lock(id);
                let comparing = Comparing {
                    value,
                    guard,
                    durability,
                    reply,
                };
                match expected {
                    Some(expected) => {
                        let wanted = Wanted::Comparison(expected, Box::new(comparing));
                        self.look(Getting::new(ticket, id, 0..0, wanted));
                    }
                    None => self.put_if_absent(ticket, id, comparing),
                }
            }
            Verb::Apply(changes, reply) => self.apply(ticket, changes, durability, reply),
            Verb::Sync(reply) => self.syncer.owe(Owed {
                ticket: Some(ticket),
                report: Box::new(move |synced| reply.keep(synced)),
            }),
            Verb::Checkpoint(reply) => {
                let shared = Arc::clone(&self.shared);
                self.checkpointer.owe(Owed {
                    ticket: None,
                    // Many accesses: its time does not show how long one takes.
                    report: Box::new(move |made| {
                        shared.done_without(ticket);
                        reply.keep(made);
                    }),
                });
            }
            at_once => {
                // Requests that wait for it may begin before the answer, but not before it is done.
                let answer = self.at_once(at_once, durability);
                self.shared.done_without(ticket);
                answer();
            }
        }
    }

    /// The put of a comparison with nothing.
    fn put_if_absent(&mut self, ticket: Ticket, id: ObjectId, comparing: Comparing) {
        match self.store.core.find(id, Reads::Certain) {
            Ok((_, None)) => {
                let (putting, content) = comparing.into_put(ticket);
                self.put(putting, id, content);
            }
            found => comparing.end(found.map(|_| ()), || self.shared.done_without(ticket)),
        }
    }

    /// Executes a request that needs no data access; it is answered later.
    fn at_once(&self, verb: Verb, durability: Durability) -> Box<dyn FnOnce() + '_> {
        let (store, core) = (&self.store, &self.store.core);
        match verb {
            Verb::Remove(id, reply) => {
                let guard = core.locks.lock(id);
                let removed = core.remove(id);
                drop(guard);
                let changed = matches!(removed, Ok(true));
                Box::new(move || self.acknowledge(removed, changed, durability, reply))
            }
            Verb::RemoveRange(ids, reply) => {
                let removed = core.remove_range(&ids);
                let changed = matches!(removed, Ok(1..));
                Box::new(move || self.acknowledge(removed, changed, durability, reply))
            }
            Verb::Head(id, reply) => {
                let found = store.head(id);
                Box::new(move || reply.keep(found))
            }
            Verb::List(ids, count_max, reply) => {
                let listed = list(store, ids, count_max);
                Box::new(move || reply.keep(listed))
            }
            Verb::Usage(ids, reply) => {
                let usage = store.usage(ids);
                Box::new(move || reply.keep(usage))
            }
            _ => unreachable!("it is not done at once"),
        }
    }

    fn put(&mut self, putting: Putting, id: ObjectId, content: Content) {
        match begun(&self.store.core, id, content) {
            Ok(Begun::Flies(reserved, buf)) => self.launch_put(putting, reserved, buf),
            Ok(Begun::IsThere(stored)) => self.answer_put(putting, Ok(stored), false),
            Err(error) => self.answer_put(putting, Err(error), false),
        }
    }

    fn launch_put(&mut self, putting: Putting, reserved: Reservation, buf: AlignedBuf) {
        let offset = self.store.core.offset_of(reserved.span);
        let work = Work::Write { offset, buf };
        let flying = Flying::Put(putting, reserved);
        if let Some((error, Flying::Put(putting, reserved))) = self.launch(flying, work) {
            self.end_put(putting, reserved, Err(error), None);
        }
    }

    /// Begins a batch, without its writes.
    fn apply(
        &mut self,
        ticket: Ticket,
        changes: Vec<Batched>,
        durability: Durability,
        reply: Reply<Vec<u64>>,
    ) {
        let core = &self.store.core;
        let count = changes.len();
        let ids: Vec<ObjectId> = changes.iter().map(|(id, _)| *id).collect();
        let room = core
            .refuse_twice(&ids)
            .and_then(|()| Ok((room::vec(count)?, room::vec(count)?)));
        let (parts, left) = match room {
            Ok((parts, left)) => (parts, VecDeque::from(left)),
            Err(error) => {
                self.shared.done_without(ticket);
                return reply.keep(Err(error));
            }
        };
        let mut batching = Batching {
            ticket,
            parts,
            left,
            flying: 0,
            written: Ok(()),
            failed: false,
            guard: core.locks.lock_all(ids),
            durability,
            reply,
            took: None,
        };
        for (id, value) in changes {
            let begun = match value {
                Some(value) => core.reserve_extent(id, value.len() as u64).map(|reserved| {
                    batching.left.push_back((reserved, value));
                    Some(reserved)
                }),
                None => core.index.prepare(id).map(|()| None),
            };
            match begun {
                Ok(put) => batching.parts.push((id, put)),
                Err(error) => {
                    batching.left.clear();
                    batching.written = Err(error);
                    break;
                }
            }
        }
        if batching.left.is_empty() {
            return self.commit_batch(batching);
        }
        self.batches.insert(self.next_batch, batching);
        self.next_batch += 1;
    }

    /// Begins the next write of a batch, if one waits and there is a free token; returns whether it did.
    fn launch_part(&mut self) -> bool {
        if self.free.is_empty() {
            return false;
        }
        let mut waiting = self.batches.iter_mut();
        let waiting = waiting.find_map(|(number, batching)| {
            let part = batching.left.pop_front()?;
            batching.flying += 1;
            Some((*number, part))
        });
        let Some((number, (reserved, value))) = waiting else {
            return false;
        };
        let core = &self.store.core;
        let offset = core.offset_of(reserved.span);
        let launched = match core.extent_of(&reserved, BATCHED, &value) {
            Ok(buf) => self.launch(Flying::Part(number), Work::Write { offset, buf }),
            Err(error) => Some((error, Flying::Part(number))),
        };
        if let Some((error, _)) = launched {
            self.end_part(number, Err(error), None);
        }
        true
    }

    /// Completes a write of a batch, or records that it could not be begun.
    fn end_part(&mut self, number: u64, written: Result<()>, took: Option<Duration>) {
        let Some(batching) = self.batches.get_mut(&number) else {
            return;
        };
        batching.flying -= 1;
        batching.took = batching.took.max(took);
        if written.is_err() {
            batching.failed |= took.is_some();
            batching.left.clear();
        }
        if batching.written.is_ok() {
            batching.written = written;
        }
        if batching.flying == 0
            && batching.left.is_empty()
            && let Some(batching) = self.batches.remove(&number)
        {
            self.commit_batch(batching);
        }
    }

    fn commit_batch(&self, batching: Batching) {
        let core = &self.store.core;
        let sequences = core.finish_batch(&batching.parts, batching.written);
        drop(batching.guard);
        self.done(batching.ticket, batching.took, batching.failed);
        let changed = sequences.is_ok() && !batching.parts.is_empty();
        self.acknowledge(sequences, changed, batching.durability, batching.reply);
    }

    /// Submits a request; returns it if that fails.
    fn launch(&mut self, flying: Flying, work: Work) -> Option<(Error, Flying)> {
        let offset = match &work {
            Work::Read { offset, .. } | Work::Write { offset, .. } => *offset,
            Work::WriteDurably { .. } | Work::Sync => 0,
        };
        let is_put = matches!(flying, Flying::Put(..) | Flying::Part(_));
        let (Some(flight), Some(at)) = (&mut self.flight, self.free.pop()) else {
            unreachable!("nothing begins while no token is free, but what has just landed")
        };
        let in_flight = self.flying.len() - self.free.len();
        let place = offset.saturating_sub(self.store.core.data_offset) / PIECE;
        // Counted before it is submitted: the count is never too low.
        self.shared.launches(place, is_put, in_flight);
        let token = at as u64;
        if let Err(error) = flight.launch(Request { token, work }) {
            self.free.push(at);
            return Some((error, flying));
        }
        self.flying[at] = Some(flying);
        None
    }

    fn landed(&mut self, landed: Landed) {
        let at = landed.token as usize;
        let Some(flying) = self.flying.get_mut(at).and_then(Option::take) else {
            return;
        };
        self.free.push(at);
        let buf = landed.work.into_buf();
        match flying {
            Flying::Put(putting, reserved) => {
                self.give(buf);
                self.end_put(putting, reserved, landed.result, Some(landed.took));
            }
            Flying::Part(number) => {
                self.give(buf);
                self.end_part(number, landed.result, Some(landed.took));
            }
            Flying::Get(mut getting, sought) => {
                getting.took = Some(getting.took.unwrap_or_default() + landed.took);
                let core = &self.store.core;
                let read = landed
                    .result
                    .map_err(|error| core.unread(getting.id, &sought, error))
                    .map(|()| core.decode(&sought, buf.unwrap_or_default()));
                match read {
                    Err(error) => self.end_get(getting, Err(error), true),
                    Ok(Err(error)) => self.end_get(getting, Err(error), false),
                    Ok(Ok(Ok(read))) => self.end_get(getting, Ok(Some(read)), false),
                    // The object was changed meanwhile, or it is damaged.
                    Ok(Ok(Err(_))) => self.look(getting),
                }
            }
        }
    }

    fn give(&self, buf: Option<AlignedBuf>) {
        if let Some(buf) = buf {
            self.store.core.buffers.give(buf);
        }
    }

    fn end_put(
        &self,
        mut putting: Putting,
        reserved: Reservation,
        written: Result<()>,
        took: Option<Duration>,
    ) {
        let failed = written.is_err() && took.is_some();
        let stored = self.store.core.finish_put(reserved, written);
        if let Some(took) = took {
            putting.took = Some(putting.took.unwrap_or_default() + took);
        }
        self.answer_put(putting, stored, failed);
    }

    fn answer_put(&self, putting: Putting, stored: Result<Stored>, failed: bool) {
        drop(putting.guard);
        self.done(putting.ticket, putting.took, failed);
        let changed = stored.is_ok();
        match putting.awaited {
            Awaited::Put(reply) => {
                self.acknowledge(stored, changed, putting.durability, reply);
            }
            Awaited::CompareAndPut(reply) => {
                let stored = stored.map(Some);
                self.acknowledge(stored, changed, putting.durability, reply);
            }
        }
    }

    /// Ends a request; `took`: its device time, if it needed the device.
    fn done(&self, ticket: Ticket, took: Option<Duration>, failed: bool) {
        match took {
            Some(took) => self.shared.done(ticket, took, failed),
            None => self.shared.done_without(ticket),
        }
    }

    /// Finds an object, and submits the read of its bytes.
    fn look(&mut self, mut getting: Getting) {
        while getting.looks < LOOKS {
            getting.looks += 1;
            let core = &self.store.core;
            let (id, range) = (getting.id, &getting.range);
            let (_pin, entry) = match core.find(id, Reads::Certain) {
                Ok(found) => found,
                Err(error) => return self.end_get(getting, Err(error), false),
            };
            let Some(entry) = entry else {
                return self.end_get(getting, Ok(None), false);
            };
            if let Ok(sought) = core.locate(id, entry, range) {
                return self.launch_get(getting, sought);
            }
            // In the journal, which is mapped memory.
            match core.read_entry(id, entry, range) {
                Ok(Ok(read)) => return self.end_get(getting, Ok(Some(read)), false),
                Ok(Err(_)) => {}
                Err(error) => return self.end_get(getting, Err(error), false),
            }
        }
        let core = &self.store.core;
        let read = match getting.wanted {
            Wanted::Comparison(..) | Wanted::Removal(..) => {
                core.read_in_turn(getting.id, &getting.range, Reads::Certain)
            }
            _ => core.read_at_last(getting.id, &getting.range, Reads::Certain),
        };
        self.end_get(getting, read, false);
    }

    fn launch_get(&mut self, getting: Getting, sought: Sought) {
        let buf = match self.store.core.buffers.take(sought.size) {
            Ok(buf) => buf,
            Err(error) => return self.end_get(getting, Err(error), false),
        };
        let offset = sought.offset;
        let work = Work::Read { offset, buf };
        if let Some((error, Flying::Get(getting, _))) =
            self.launch(Flying::Get(getting, sought), work)
        {
            self.end_get(getting, Err(error), false);
        }
    }

    fn end_get(&mut self, getting: Getting, read: Result<Option<Read>>, failed: bool) {
        let Getting {
            ticket, id, took, ..
        } = getting;
        match getting.wanted {
            Wanted::Value(reply) => {
                self.done(ticket, took, failed);
                reply.keep(read.map(|read| read.map(|(bytes, _)| bytes)));
            }
            Wanted::Sequence(reply) => {
                self.done(ticket, took, failed);
                reply.keep(read.map(|read| read.map(|(_, sequence)| sequence)));
            }
            Wanted::ValueWithSequence(reply) => {
                self.done(ticket, took, failed);
                reply.keep(read);
            }
            Wanted::Removal(expected, guard, durability, reply) => {
                let removed = match read {
                    Ok(Some((_, sequence))) if sequence == expected => self.store.core.remove(id),
                    read => read.map(|_| false),
                };
                drop(guard);
                self.done(ticket, took, failed);
                let changed = matches!(removed, Ok(true));
                self.acknowledge(removed, changed, durability, reply);
            }
            Wanted::Comparison(expected, comparing) => match read {
                Ok(Some((_, sequence))) if sequence == expected => {
                    let (mut putting, content) = comparing.into_put(ticket);
                    putting.took = took;
                    self.put(putting, id, content);
                }
                read => comparing.end(read.map(|_| ()), || self.done(ticket, took, failed)),
            },
        }
    }

    /// Answers a change: at once, or after a sync.
    fn acknowledge<T: Send + 'static>(
        &self,
        result: Result<T>,
        changed: bool,
        durability: Durability,
        reply: Reply<T>,
    ) {
        if !changed {
            return reply.keep(result);
        }
        let core = &self.store.core;
        let owes = core.owes_sync(durability);
        let result = result.and_then(|answer| core.work_is_due().map(|()| answer));
        if !owes {
            return reply.keep(result);
        }
        self.syncer.owe(Owed {
            ticket: None,
            report: Box::new(move |synced| reply.keep(synced.and(result))),
        });
    }

    /// The flight failed: aborts its requests, once it does not write any more.
    fn abandon(mut self) {
        // Waits for everything in flight.
        self.flight = None;
        let flying = std::mem::take(&mut self.flying);
        let lost = || Error::new(Kind::Io, "requests could not be carried");
        for flying in flying.into_iter().flatten() {
            match flying {
                Flying::Put(putting, reserved) => {
                    self.end_put(putting, reserved, Err(lost()), None);
                }
                Flying::Get(getting, _) => self.end_get(getting, Err(lost()), false),
                Flying::Part(_) => {}
            }
        }
        for (_, mut batching) in std::mem::take(&mut self.batches) {
            batching.written = Err(lost());
            self.commit_batch(batching);
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // It is unknown which puts are half done.
            self.store.core.log.poison();
        }
        self.shared.close();
    }
}

/// A put that has begun.
enum Begun {
    /// The object was small: already done.
    IsThere(Stored),
    Flies(Reservation, AlignedBuf),
}

fn begun(core: &Core, id: ObjectId, content: Content) -> Result<Begun> {
    let (reserved, buf) = match content {
        Content::Bytes(value) if core.is_small(value.len()) => {
            return core.put_small(id, &value).map(Begun::IsThere);
        }
        Content::Bytes(value) => core.begin_put(id, &value)?,
        Content::Draft(mut draft) => {
            core.accept(&draft)?;
            if let Some(value) = draft.small(core) {
                return core.put_small(id, value).map(Begun::IsThere);
            }
            core.begin_draft(id, draft)?
        }
    };
    Ok(Begun::Flies(reserved, buf))
}

fn list(store: &Store, ids: Ids, count_max: usize) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    for object in store.list(ids).take(count_max) {
        room::more(&mut listed, 1)?;
        listed.push(object?);
    }
    Ok(listed)
}
