//! The sweep: removes expired items, also those that no client reads.
//!
//! A read finds an expired item to be absent, and writes nothing; so the sweep walks over all records. Each call examines
//! some, from where the last one ended, and starts again after the last. An item is removed by an update that checks again,
//! so one that was stored or touched meanwhile stays. A damaged record is skipped, and counted when it is first met. It
//! keeps a bookmark and no lock. Operators may switch it off, and request one round without a pause (`lru_crawler`). It knows
//! no threads: their owner calls it when there is time.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use azekura::engine::{Bookmark, Edit, Engine};
use azekura::error::Result;

use crate::item::Item;
use crate::memcached::operate::errors::ErrorCounters;

/// What a call of `Service::sweep` did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Records it examined.
    pub looked: u64,
    /// Items it removed.
    pub removed: u64,
    /// Whether it came to the last record: the next call begins with the first.
    pub is_round: bool,
}

/// No round was requested; one was; it is under way.
const CALM: u8 = 0;
const ASKED: u8 = 1;
const HURRIED: u8 = 2;

/// The state of the sweep: its switches, its position and its counts.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    is_off: AtomicBool,
    /// Whether a round without a pause was requested.
    hurry: AtomicU8,
    rounds: AtomicU64,
    looked: AtomicU64,
    removed: AtomicU64,
    place: Mutex<Sweeper>,
}

impl Sweeps {
    pub(crate) fn is_on(&self) -> bool {
        !self.is_off.load(Ordering::Relaxed)
    }

    /// Switches it on or off; returns whether that is new.
    pub(crate) fn switch(&self, on: bool) -> bool {
        if !on {
            self.hurry.store(CALM, Ordering::Relaxed);
        }
        self.is_off.swap(!on, Ordering::Relaxed) == on
    }

    /// Asks for a round from the first record to the last, without a pause; not if one is under way.
    pub(crate) fn hurry(&self) -> bool {
        let (old, new) = (Ordering::Relaxed, Ordering::Relaxed);
        self.hurry.compare_exchange(CALM, ASKED, old, new).is_ok()
    }

    pub(crate) fn is_hurried(&self) -> bool {
        self.hurry.load(Ordering::Relaxed) != CALM
    }

    /// Counts from nothing.
    pub(crate) fn reset(&self) {
        for count in [&self.rounds, &self.looked, &self.removed] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Looks at no more than `records` records and removes the items that are over. Calls of several threads wait for one
    /// another. Costs a read of each record. Errors: those of the engine; the next call resumes after what was examined,
    /// or where this one did if that is not known.
    pub(crate) fn sweep(
        &self,
        engine: &dyn Engine,
        now: u32,
        records: u64,
        errors: &ErrorCounters,
    ) -> Result<Swept> {
        let mut sweeper = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let (old, new) = (Ordering::Relaxed, Ordering::Relaxed);
        let asked = self.hurry.compare_exchange(ASKED, HURRIED, old, new);
        if asked.is_ok() {
            *sweeper = Sweeper {
                noted: sweeper.noted,
                ..Sweeper::default()
            };
        }
        if sweeper.from.is_none() {
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        let is_over = |value: &[u8]| Item::decode(value).is_some_and(|item| item.head.is_over(now));
        let mut swept = Swept::default();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let Sweeper {
            from,
            damaged,
            noted,
        } = &mut *sweeper;
        let scanned = engine.scan_past(
            from.as_ref(),
            &mut |key, value| {
                swept.looked += 1;
                if is_over(value) {
                    keys.push(key.to_vec());
                }
                if swept.looked >= records {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
            &mut |error| {
                *damaged += 1;
                if *damaged > *noted {
                    *noted = *damaged;
                    errors.note(&error);
                }
                Ok(())
            },
        );
        if let Ok(next) = &scanned {
            swept.is_round = next.is_none();
            from.clone_from(next);
            if swept.is_round {
                *damaged = 0;
            }
        }
        let mut outcome = scanned.map(drop);
        for key in keys {
            let mut removed = false;
            let updated = engine.update(&key, &mut |present| {
                removed = present.is_some_and(is_over);
                if removed { Edit::Remove } else { Edit::Keep }
            });
            swept.removed += u64::from(removed && updated.is_ok());
            outcome = outcome.and(updated);
        }
        self.looked.fetch_add(swept.looked, Ordering::Relaxed);
        self.removed.fetch_add(swept.removed, Ordering::Relaxed);
        if swept.is_round {
            // All of it is done and counted.
            let _ = self.hurry.compare_exchange(HURRIED, CALM, old, new);
        }
        outcome.map(|()| swept)
    }

    /// Items removed.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }

    /// Reports the statistics, by memcached's names.
    pub(crate) fn report(&self, report: &mut dyn FnMut(&str, u64)) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        if self.is_on() {
            report("lru_crawler_running", self.is_hurried().into());
            report("lru_crawler_starts", of(&self.rounds));
        }
        report("crawler_reclaimed", of(&self.removed));
        report("crawler_items_checked", of(&self.looked));
    }
}

/// Where the sweep is.
#[derive(Debug, Default)]
struct Sweeper {
    from: Option<Bookmark>,
    /// Damaged records met in this round, and the most there were in one, all of which were noted.
    damaged: u64,
    noted: u64,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;

    use azekura::error::Kind;
    use azekura::record::hash::{CreateOptions, HashDb};
    use azekura::record::memory::tiny::TinyDb;

    use crate::item::Head;
    use crate::memcached::{Service, Session, Settings, Transport};

    fn fill(service: &Service, count: u32) {
        for i in 0..count {
            let mut record = Vec::new();
            let head = Head {
                cas: 1,
                expires: 100,
                ..Head::default()
            };
            head.write(&mut record);
            record.extend_from_slice(format!("the data of item {i:04}").as_bytes());
            let key = i.to_le_bytes();
            service.engine.put_many(&[(&key, &record)]).unwrap();
        }
    }

    #[test]
    fn a_sweep_goes_on_at_once_while_much_is_over() {
        let engine = Arc::new(TinyDb::new().unwrap());
        let service = Service::new(engine, Settings::default());
        fill(&service, 100);
        let swept = service.sweep_on(7, &|| true).unwrap();
        assert_eq!((swept.looked, swept.removed), (100, 100));
        fill(&service, 100);
        assert_eq!(service.sweep_on(7, &|| false).unwrap().removed, 7);
    }

    #[test]
    fn a_damaged_record_stops_neither_the_sweep_nor_a_dump() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let db = HashDb::open_or_create(&path, &CreateOptions::default()).unwrap();
        let service = Arc::new(Service::new(Arc::new(db), Settings::default()));
        fill(&service, 200);
        let bytes = std::fs::read(&path).unwrap();
        let is_it = |part: &[u8]| part == b"the data of item 0077";
        let at = bytes.windows(21).position(is_it).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"T", at as u64).unwrap();

        service.set_time(50).unwrap();
        let mut output = Vec::new();
        let mut session = Session::new(Arc::clone(&service), Transport::Tcp);
        session.serve(b"dump_key\r\n", &mut output);
        let text = String::from_utf8(output).unwrap();
        assert_eq!(text.matches("KEY ").count(), 199);
        assert_eq!(text.matches("KEY %00%00%00%00\r\n").count(), 1);
        assert!(text.contains("\r\nSERVER_ERROR corrupted"), "{text}");

        service.set_time(100).unwrap();
        let before = service.errors.count(Kind::Corrupted);
        for _ in 0..3 {
            let _ = service.sweep_on(7, &|| true).unwrap();
            while !service.sweep(7).unwrap().is_round {}
        }
        assert_eq!(service.engine.count(), 1);
        assert_eq!(service.errors.count(Kind::Corrupted), before + 1);
    }
}
