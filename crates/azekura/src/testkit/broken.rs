//! Engines with one deliberate bug each, to prove that the suites catch it.
//!
//! [`Broken`] is [`ModelDb`] with a [`Bug`] before it. A suite that does not catch one of
//! [`Bug::ALL`] has a hole. A race keeps its window open until another thread has written.
//!
//! It is of no other use, and does not know the suites.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::model::ModelDb;
use crate::engine::{
    Bookmark, Cursor, Damaged, DecideMany, Edit, Engine, Ordered, Promise, Reader, Stats, Visit,
};
use crate::error::Result;
use crate::verbs::Verbs;

macro_rules! bugs {
    ($(#[doc = $what:literal] $bug:ident,)*) => {
        /// What is wrong with a [`Broken`] engine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Bug {
            $(#[doc = $what] $bug,)*
        }

        impl Bug {
            /// Every bug.
            pub const ALL: &[Self] = &[$(Self::$bug),*];
        }
    };
}
bugs! {
    /// One write in 37 is acknowledged and forgotten.
    DroppedWrite,
    /// `update` reads before it takes the lock.
    RacyUpdate,
    /// `update` asks twice.
    AsksTwice,
    /// `update` puts the value it was to keep a second time, cut by one byte.
    KeepTouches,
    /// A panic in `update` removes the record.
    PanicRemoves,
    /// A panic in `update` leaves the lock taken.
    PanicLocks,
    /// One read in 41 does not find the record.
    WrongAbsent,
    /// One read in 5 shows the value before the last.
    StaleRead,
    /// A read shows the length of the last value and the bytes of the one before.
    TornRead,
    /// A record with an empty value is not found.
    EmptyIsAbsent,
    /// Keys are distinguished by their first 32 bytes.
    KeysCut,
    /// Values end where their trailing zeros begin.
    ZerosCut,
    /// A value of more than 100,000 bytes over another such one keeps the last byte of that.
    LongTailStays,
    /// `read` calls the visitor twice.
    VisitsTwice,
    /// `read_many` passes the next key's index.
    ReadManyShifted,
    /// `append` loses the first byte of its delimiter.
    AppendWithoutDelimiter,
    /// A scan leaves out its third record.
    ScanSkips,
    /// A scan from a bookmark shows the record before it again.
    ScanRepeats,
    /// A scan continues after the visitor broke.
    ScanGoesOn,
    /// A bookmark at a key leads after it.
    BookmarkBehind,
    /// A scan from a bookmark shows nothing.
    BookmarkForgotten,
    /// A count is one too high after a removal of nothing.
    CountDrifts,
    /// `update_many` carries out the first edit only.
    HalfUpdateMany,
    /// `update_many` updates key by key with what it saw before.
    RacyUpdateMany,
    /// Of a repeated key in `update_many` the first edit counts.
    FirstEditCounts,
    /// `put_many` goes from back to front.
    PutManyBackward,
    /// `put_many` leaves out the last of more than two.
    PutManyShort,
    /// `clear` leaves a record.
    ClearLeaves,
    /// What is beyond the limit is cut and stored.
    OverLimitCut,
    /// `update_many` with one value beyond the limit carries out the rest.
    OverLimitHalf,
    /// A cursor that seeks a key that is there finds the next one.
    SeekBehind,
    /// A cursor whose record was removed begins again.
    CursorForgets,
}

/// Longest key and value of a broken engine, so that the limits are in reach.
const LIMITS: (u64, u64) = (512, 200_000);

fn is_long(value: &[u8]) -> bool {
    value.len() > 100_000
}

/// [`ModelDb`] with a bug.
#[derive(Debug)]
pub struct Broken {
    db: ModelDb,
    bug: Bug,
    reads: AtomicU64,
    writes: AtomicU64,
    drift: AtomicU64,
    before: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    stuck: Mutex<()>,
}

impl Broken {
    /// An empty store with `bug`.
    pub fn new(bug: Bug) -> Self {
        Self {
            db: ModelDb::with_limits(LIMITS.0, LIMITS.1),
            bug,
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            drift: AtomicU64::new(0),
            before: Mutex::default(),
            stuck: Mutex::default(),
        }
    }

    fn key<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        match self.bug {
            Bug::KeysCut => &key[..key.len().min(32)],
            Bug::OverLimitCut => &key[..key.len().min(LIMITS.0 as usize)],
            _ => key,
        }
    }

    /// The window of a race: open until another thread has written, or for some turns.
    fn let_others_pass(&self) {
        let writes = self.writes.load(Ordering::SeqCst);
        for _ in 0..50 {
            std::thread::yield_now();
            if self.writes.load(Ordering::SeqCst) != writes {
                break;
            }
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
    }

    /// What the bug makes of the answer to `present`.
    fn spoil<'a>(&self, key: &[u8], present: Option<&[u8]>, edit: Edit<'a>) -> Edit<'a> {
        let write = self.writes.fetch_add(1, Ordering::Relaxed);
        let value = match edit {
            Edit::Remove => {
                if self.bug == Bug::CountDrifts && present.is_none() {
                    self.drift.fetch_add(1, Ordering::Relaxed);
                }
                return Edit::Remove;
            }
            Edit::Keep => {
                let cut = present
                    .filter(|_| self.bug == Bug::KeepTouches)
                    .and_then(<[u8]>::split_last);
                return cut.map_or(Edit::Keep, |(_, rest)| Edit::Put(Cow::Owned(rest.to_vec())));
            }
            Edit::Put(value) => value,
        };
        if let (Bug::StaleRead | Bug::TornRead, Some(present)) = (self.bug, present) {
            self.before.lock().insert(key.to_vec(), present.to_vec());
        }
        let value = match (self.bug, present) {
            (Bug::DroppedWrite, _) if write % 37 == 36 => return Edit::Keep,
            (Bug::AppendWithoutDelimiter, Some(present))
                if value.len() > present.len() + 1 && value.starts_with(present) =>
            {
                Cow::Owned([present, &value[present.len() + 1..]].concat())
            }
            (Bug::ZerosCut, _) => {
                let len = value
                    .iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |last| last + 1);
                Cow::Owned(value[..len].to_vec())
            }
            (Bug::LongTailStays, Some(present @ [.., last]))
                if is_long(present) && is_long(&value) =>
            {
                Cow::Owned([&value[..value.len() - 1], &[*last]].concat())
            }
            (Bug::OverLimitCut, _) => {
                Cow::Owned(value[..value.len().min(LIMITS.1 as usize)].to_vec())
            }
            _ => value,
        };
        Edit::Put(value)
    }
}

impl Reader for Broken {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let key = self.key(key);
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        let before = self.before.lock().get(key).cloned();
        let mut value = self.db.get(key)?;
        match (self.bug, before) {
            (Bug::WrongAbsent, _) if read % 41 == 40 => value = None,
            (Bug::StaleRead, Some(before)) if read % 5 == 4 && value.is_some() => {
                value = Some(before);
            }
            (Bug::TornRead, Some(before)) if read % 5 == 4 => {
                if let Some(value) = &mut value {
                    let half = before.len().min(value.len() / 2);
                    value[..half].copy_from_slice(&before[..half]);
                }
            }
            (Bug::EmptyIsAbsent, _) => value = value.filter(|value| !value.is_empty()),
            _ => {}
        }
        visit(value.as_deref());
        if self.bug == Bug::VisitsTwice {
            visit(value.as_deref());
        }
        Ok(())
    }

    fn read_many(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            let shift = usize::from(self.bug == Bug::ReadManyShifted);
            self.read(key, &mut |value| visit((index + shift) % keys.len(), value))?;
        }
        Ok(())
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let (mut shown, mut broke) = (0, false);
        if self.bug == Bug::BookmarkForgotten && from.is_some() {
            return Ok(None);
        }
        if let (Bug::ScanRepeats, Some([key @ .., 0])) = (self.bug, from.map(Bookmark::as_bytes))
            && let Some(value) = self.db.get(key)?
            && visit(key, &value).is_break()
        {
            return Ok(from.cloned());
        }
        let visit = &mut |key: &[u8], value: &[u8]| {
            shown += 1;
            if self.bug == Bug::ScanSkips && shown == 3 {
                return ControlFlow::Continue(());
            }
            let flow = visit(key, value);
            if self.bug == Bug::ScanGoesOn && flow.is_break() && !broke {
                broke = true;
                return ControlFlow::Continue(());
            }
            flow
        };
        self.db.scan_past(from, visit, damaged)
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        if self.bug == Bug::BookmarkBehind {
            return self.db.bookmark_at(&[key, &[0]].concat());
        }
        self.db.bookmark_at(self.key(key))
    }

    fn count(&self) -> u64 {
        self.db.count() + self.drift.load(Ordering::Relaxed)
    }

    fn stats(&self) -> Stats {
        Stats {
            count: self.count(),
            ..self.db.stats()
        }
    }

    fn promise(&self) -> Promise {
        Promise {
            engine: "broken",
            ..self.db.promise()
        }
    }

    fn as_ordered(&self) -> Option<&dyn Ordered> {
        Some(self)
    }
}

impl Ordered for Broken {
    fn order_name(&self) -> &str {
        self.db.order_name()
    }

    fn cursor(&self) -> Box<dyn Cursor + '_> {
        Box::new(BrokenCursor {
            db: self,
            cursor: self.db.cursor(),
        })
    }
}

/// The model's cursor with a bug.
struct BrokenCursor<'b> {
    db: &'b Broken,
    cursor: Box<dyn Cursor + 'b>,
}

impl Cursor for BrokenCursor<'_> {
    fn first(&mut self) -> Result<bool> {
        self.cursor.first()
    }
    fn last(&mut self) -> Result<bool> {
        self.cursor.last()
    }
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let there = self.cursor.seek(key)?;
        if self.db.bug == Bug::SeekBehind && self.record().is_some_and(|(at, _)| at == key) {
            return self.cursor.next();
        }
        Ok(there)
    }
    fn next(&mut self) -> Result<bool> {
        let key = self.record().map(|(key, _)| key.to_vec());
        if let (Bug::CursorForgets, Some(key)) = (self.db.bug, key)
            && self.db.db.get(&key)?.is_none()
        {
            return self.cursor.first();
        }
        self.cursor.next()
    }
    fn previous(&mut self) -> Result<bool> {
        self.cursor.previous()
    }
    fn record(&self) -> Option<(&[u8], &[u8])> {
        self.cursor.record()
    }
}

impl Engine for Broken {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        let key = self.key(key);
        match self.bug {
            Bug::RacyUpdate => {
                let present = self.db.get(key)?;
                let mut edit = decide(present.as_deref());
                self.let_others_pass();
                let edit = &mut |_: Option<&[u8]>| std::mem::replace(&mut edit, Edit::Keep);
                self.db.update(key, edit)
            }
            Bug::PanicRemoves | Bug::PanicLocks => {
                let guard = self.stuck.lock();
                let outcome = catch_unwind(AssertUnwindSafe(|| self.db.update(key, decide)));
                outcome.unwrap_or_else(|panic| {
                    if self.bug == Bug::PanicLocks {
                        std::mem::forget(guard);
                    } else {
                        self.db.remove(key)?;
                    }
                    resume_unwind(panic)
                })
            }
            _ => self.db.update(key, &mut |present| {
                if self.bug == Bug::AsksTwice {
                    decide(present);
                }
                let present =
                    present.filter(|value| self.bug != Bug::EmptyIsAbsent || !value.is_empty());
                self.spoil(key, present, decide(present))
            }),
        }
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| self.key(key)).collect();
        match self.bug {
            Bug::RacyUpdateMany => {
                let present = self.db.get_many(&keys)?;
                let present: Vec<_> = present.iter().map(Option::as_deref).collect();
                let mut edits = decide(&present);
                self.let_others_pass();
                let edits = &mut |_: &[Option<&[u8]>]| std::mem::take(&mut edits);
                self.db.update_many(&keys, edits)
            }
            _ => self.db.update_many(&keys, &mut |present| {
                let mut edits = decide(present);
                let mut written = 0;
                for (index, edit) in edits.iter_mut().enumerate() {
                    if *edit == Edit::Keep {
                        continue;
                    }
                    written += 1;
                    let repeated = keys[..index].contains(&keys[index]);
                    let too_large = |value: &[u8]| value.len() as u64 > LIMITS.1;
                    let drop = match (self.bug, &*edit) {
                        (Bug::HalfUpdateMany, _) => written > 1,
                        (Bug::FirstEditCounts, _) => repeated,
                        (Bug::OverLimitHalf, Edit::Put(value)) => too_large(value),
                        _ => false,
                    };
                    if drop {
                        *edit = Edit::Keep;
                    }
                }
                edits
            }),
        }
    }

    fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let records = match self.bug {
            Bug::PutManyShort if records.len() > 2 => &records[..records.len() - 1],
            _ => records,
        };
        let put = |(key, value): &(&[u8], &[u8])| self.put(key, value);
        if self.bug == Bug::PutManyBackward {
            return records.iter().rev().try_for_each(put);
        }
        records.iter().try_for_each(put)
    }

    fn clear(&self) -> Result<()> {
        let mut left = None;
        if self.bug == Bug::ClearLeaves {
            left = self.db.pop_first()?;
        }
        self.db.clear()?;
        left.map_or(Ok(()), |(key, value)| self.db.put(&key, &value))
    }
}
