//! The thread that serves: what the queue gives goes to the flight, or is done at once; what landed is answered.
//!
//! | a request | before it flies | when it landed |
//! |---|---|---|
//! | put | turn; room, sequence, the extent's bytes | the object is there; or voided, and the old one is |
//! | get | where the object is | verified; if it moved meanwhile, looked for again, at last in its turn |
//! | all others, and small objects | done at once | |
//!
//! While as many fly as may, late requests fail and what touches no data is done all the same; a small object waits, since only
//! its beginning tells that it is one.
//!
//! The order of calls at the end of a change is the store's own: its turn ends before its sync is waited for. A crash leaves
//! what it leaves of direct calls by as many threads.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Duration;

use super::super::change::Placed;
use super::super::extent::PIECE;
use super::super::queue::{Next, Ticket};
use super::super::read::{LOOKS, Sought};
use super::super::turns::Turn;
use super::super::{Core, Listed, ObjectId, Store, Stored, Value};
use super::Shared;
use super::ask::{Content, Job, Verb};
use super::pending::Promise;
use super::syncer::{Owed, Syncer};
use crate::engine::Durability;
use crate::error::{Error, Kind, Result};
use crate::io::aligned::AlignedBuf;
use crate::io::flight::{Flight, Landed, Request, Work};
use crate::room;

/// Requests begun without a look at what landed, at most.
const BURST: usize = 64;

/// See the module's text.
pub(super) struct Crew {
    store: Arc<Store>,
    shared: Arc<Shared>,
    syncer: Syncer,
    /// `None`: it is of no more use.
    flight: Option<Box<dyn Flight>>,
    /// What is in flight, by token.
    flying: Vec<Option<Flying>>,
    /// Tokens of nothing.
    free: Vec<usize>,
}

enum Flying {
    Put(Putting),
    Get(Getting, Sought),
}

struct Putting {
    ticket: Ticket,
    placed: Placed,
    turn: Turn,
    durability: Durability,
    promise: Promise<Stored>,
}

struct Getting {
    ticket: Ticket,
    id: ObjectId,
    range: Range<u64>,
    promise: Promise<Option<Value>>,
    looks: usize,
    /// The device's time so far; `None`: it was not needed.
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
            syncer: Syncer::start(store, shared)?,
            flight: Some(flight),
            flying: room::collect((0..depth).map(|_| None))?,
            free: room::collect((0..depth).rev())?,
        })
    }

    /// The life of the thread.
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

    /// Begins what may go; how long to wait then for what flies or comes, unless this was all.
    fn begin_what_may(&mut self) -> ControlFlow<(), Option<Duration>> {
        for _ in 0..BURST {
            let mut state = self.shared.state.lock();
            state.asleep = false;
            let now = self.shared.now();
            let next = if self.free.is_empty() {
                state.queue.pop_at_once(now)
            } else {
                state.queue.pop(now)
            };
            let Some(next) = next else {
                if state.leaving && self.free.len() == self.flying.len() {
                    return ControlFlow::Break(());
                }
                state.asleep = true;
                // Late is later than the deadline.
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
            Verb::Put(id, content, promise) => self.put(ticket, id, content, durability, promise),
            Verb::Get(id, range, promise) => self.look(Getting {
                ticket,
                id,
                range,
                promise,
                looks: 0,
                took: None,
            }),
            Verb::Sync(promise) => self.syncer.owe(Owed {
                ticket: Some(ticket),
                tell: Box::new(move |synced| promise.keep(synced)),
            }),
            at_once => {
                // Whoever waits behind it goes before the answer, but not before it is done.
                let answer = self.at_once(at_once, durability);
                self.shared.done_without(ticket);
                answer();
            }
        }
    }

    /// Does what needs no access to the data; gives the answer later.
    fn at_once(&self, verb: Verb, durability: Durability) -> Box<dyn FnOnce() + '_> {
        let (store, core) = (&self.store, &self.store.core);
        match verb {
            Verb::Remove(id, promise) => {
                let turn = core.turns.take_one(id);
                let removed = core.remove(id);
                drop(turn);
                let changed = matches!(removed, Ok(true));
                Box::new(move || self.acknowledge(removed, changed, durability, promise))
            }
            Verb::RemoveRange(first, end, promise) => {
                let removed = core.remove_between(first, end);
                let changed = matches!(removed, Ok(1..));
                Box::new(move || self.acknowledge(removed, changed, durability, promise))
            }
            Verb::Head(id, promise) => {
                let found = store.head(id);
                Box::new(move || promise.keep(found))
            }
            Verb::List(first, end, count_max, promise) => {
                let listed = list(store, first, end, count_max);
                Box::new(move || promise.keep(listed))
            }
            Verb::Usage(first, end, promise) => {
                let usage = store.usage(first, end);
                Box::new(move || promise.keep(usage))
            }
            Verb::Put(..) | Verb::Get(..) | Verb::Sync(_) => {
                unreachable!("it is not done at once")
            }
        }
    }

    fn put(
        &mut self,
        ticket: Ticket,
        id: ObjectId,
        content: Content,
        durability: Durability,
        promise: Promise<Stored>,
    ) {
        let core = &self.store.core;
        let turn = core.turns.take_one(id);
        let at_once = match begun(core, id, content) {
            Ok(Begun::Flies(placed, buf)) => {
                let putting = Putting {
                    ticket,
                    placed,
                    turn,
                    durability,
                    promise,
                };
                return self.launch_put(putting, buf);
            }
            Ok(Begun::IsThere(stored)) => Ok(stored),
            Err(error) => Err(error),
        };
        drop(turn);
        self.shared.done_without(ticket);
        let changed = at_once.is_ok();
        self.acknowledge(at_once, changed, durability, promise);
    }

    fn launch_put(&mut self, putting: Putting, buf: AlignedBuf) {
        let offset = self.store.core.offset_of(putting.placed.span);
        let work = Work::Write { offset, buf };
        if let Some((error, Flying::Put(putting))) = self.launch(Flying::Put(putting), work) {
            self.end_put(putting, Err(error), None);
        }
    }

    /// A request takes off. What cannot comes back.
    fn launch(&mut self, flying: Flying, work: Work) -> Option<(Error, Flying)> {
        let offset = match &work {
            Work::Read { offset, .. } | Work::Write { offset, .. } => *offset,
            Work::WriteDurably { .. } | Work::Sync => 0,
        };
        let is_put = matches!(flying, Flying::Put(_));
        let (Some(flight), Some(at)) = (&mut self.flight, self.free.pop()) else {
            unreachable!("nothing begins while no token is free, but what has just landed")
        };
        let in_flight = self.flying.len() - self.free.len();
        let place = offset.saturating_sub(self.store.core.data_offset) / PIECE;
        // Before it goes: nobody finds more at the device than is counted.
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
            Flying::Put(putting) => {
                self.give(buf);
                self.end_put(putting, landed.result, Some(landed.took));
            }
            Flying::Get(mut getting, sought) => {
                getting.took = Some(getting.took.unwrap_or_default() + landed.took);
                let core = &self.store.core;
                let read = landed
                    .result
                    .map(|()| core.decode(&sought, buf.unwrap_or_default()));
                match read {
                    Err(error) => self.end_get(getting, Err(error), true),
                    Ok(Err(error)) => self.end_get(getting, Err(error), false),
                    Ok(Ok(Ok((bytes, _)))) => self.end_get(getting, Ok(Some(bytes)), false),
                    // It was changed meanwhile, or it is damaged.
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

    fn end_put(&self, putting: Putting, written: Result<()>, took: Option<Duration>) {
        let failed = written.is_err();
        let stored = self.store.core.finish(putting.placed, written);
        drop(putting.turn);
        match took {
            Some(took) => self.shared.done(putting.ticket, took, failed),
            None => self.shared.done_without(putting.ticket),
        }
        let changed = stored.is_ok();
        self.acknowledge(stored, changed, putting.durability, putting.promise);
    }

    /// Looks for an object, and has its bytes read.
    fn look(&mut self, mut getting: Getting) {
        while getting.looks < LOOKS {
            getting.looks += 1;
            let core = &self.store.core;
            let (id, range) = (getting.id, &getting.range);
            let (_pin, entry) = match core.find(id) {
                Ok(found) => found,
                Err(error) => return self.end_get(getting, Err(error), false),
            };
            let Some(entry) = entry else {
                return self.end_get(getting, Ok(None), false);
            };
            if let Ok(sought) = core.locate(id, entry, range) {
                return self.launch_get(getting, sought);
            }
            // In the journal, which is memory.
            match core.read_entry(id, entry, range) {
                Ok(Ok((bytes, _))) => return self.end_get(getting, Ok(Some(bytes)), false),
                Ok(Err(_)) => {}
                Err(error) => return self.end_get(getting, Err(error), false),
            }
        }
        let read = self.store.core.read_at_last(getting.id, &getting.range);
        self.end_get(
            getting,
            read.map(|read| read.map(|(bytes, _)| bytes)),
            false,
        );
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

    fn end_get(&self, getting: Getting, read: Result<Option<Value>>, failed: bool) {
        match getting.took {
            Some(took) => self.shared.done(getting.ticket, took, failed),
            None => self.shared.done_without(getting.ticket),
        }
        getting.promise.keep(read);
    }

    /// Answers for a change: at once, or after a sync.
    fn acknowledge<T: Send + 'static>(
        &self,
        result: Result<T>,
        changed: bool,
        durability: Durability,
        promise: Promise<T>,
    ) {
        if !changed {
            return promise.keep(result);
        }
        let core = &self.store.core;
        let owes = core.owes_sync(durability);
        let result = result.and_then(|answer| core.work_is_due().map(|()| answer));
        if !owes {
            return promise.keep(result);
        }
        self.syncer.owe(Owed {
            ticket: None,
            tell: Box::new(move |synced| promise.keep(synced.and(result))),
        });
    }

    /// The flight is of no more use: what it carried is voided when it does not write any more.
    fn abandon(mut self) {
        // Waits for what is under way.
        self.flight = None;
        let flying = std::mem::take(&mut self.flying);
        let lost = || Error::new(Kind::Io, "requests could not be carried");
        for flying in flying.into_iter().flatten() {
            match flying {
                Flying::Put(putting) => self.end_put(putting, Err(lost()), None),
                Flying::Get(getting, _) => self.end_get(getting, Err(lost()), false),
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Nobody knows which puts are half done.
            self.store.core.log.poison();
        }
        self.shared.close();
    }
}

/// A put that began.
enum Begun {
    /// It was small.
    IsThere(Stored),
    Flies(Placed, AlignedBuf),
}

fn begun(core: &Core, id: ObjectId, content: Content) -> Result<Begun> {
    let (placed, buf) = match content {
        Content::Bytes(value) if core.is_small(value.len()) => {
            return core.put_small(id, &value).map(Begun::IsThere);
        }
        Content::Bytes(value) => core.begin(id, &value)?,
        Content::Draft(mut draft) => {
            core.accept(&draft)?;
            if let Some(value) = draft.small(core) {
                return core.put_small(id, value).map(Begun::IsThere);
            }
            core.begin_draft(id, draft)?
        }
    };
    Ok(Begun::Flies(placed, buf))
}

fn list(
    store: &Store,
    first: ObjectId,
    end: Option<ObjectId>,
    count_max: usize,
) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    let mut refused = Ok(());
    if count_max > 0 {
        store.list(first, end, &mut |object| {
            refused = room::more(&mut listed, 1);
            if refused.is_ok() {
                listed.push(object);
            }
            refused.is_ok() && listed.len() < count_max
        })?;
    }
    refused.map(|()| listed)
}
