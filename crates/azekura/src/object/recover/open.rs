//! Opening and closing a store.
//!
//! Opening reads superblock, root and the journal after it; leaves and lists are loaded when they are needed, so the time to open
//! does not grow with the number of objects. `replay` finds what a crash left; a store that is too damaged to be opened for writing is
//! opened by `degraded`. Closing makes a checkpoint.
//!
//! | step of `open_for_repair` | before the next step is durable, a crash leaves |
//! |---|---|
//! | 1 map the journal, adopt the segments that the root needs, build the store | the old superblock |
//! | 2 replay the journal from the checkpoint to its end | the same |
//! | 3 after a crash: scan the allocation extents; free the rest of the space | the same |
//! | 4 write the superblock as it was found into its slot: it may have been in a cache only | the same |
//! | 5 resume the journal after its end, in a new epoch; write the superblock, marked open, to both slots | the old superblock or the new one, which replays the same |
//! | 6 record what the scan found | a journal that replays to the same |
//! | 7 after a crash: flush, so that what freed the space is durable before anything is put there | the same |

use std::sync::Arc;

use crate::error::{Error, Kind, Result, sizes};
use crate::io::Storage;
use crate::io::counted::Counted;
use crate::io::front::Front;
use crate::kernel::{Closing, Handle, Slots, SuperblockPair, recover};
use crate::log::manifest::segments_of;
use crate::object::checkpoint::background;
use crate::object::checkpoint::images::{read_root, to_repair};
use crate::object::checkpoint::root::Root;
use crate::object::checkpoint::superblock::{DATA, Super, other_place};
use crate::object::journal::record::Record;
use crate::object::place::space::Unclaimed;
use crate::object::recover::build::{build, data_of, open_log};
use crate::object::recover::degraded::Flaws;
use crate::object::recover::probe::probe;
use crate::object::recover::replay::Replay;
use crate::object::{Core, OpenOptions, Store};

impl Store {
    /// Opens the store on its storages. If its journal is damaged or cannot be read, for reading only
    /// ([`damage`](Self::damage), [`is_read_only`](Self::is_read_only)).
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the store keeps the storages"
    )]
    pub fn open_on(
        journal: Arc<dyn Storage>,
        data: Option<Arc<dyn Storage>>,
        options: &OpenOptions,
    ) -> Result<Self> {
        Self::open_or_degrade(&journal, data.as_ref(), options, &mut |_| {
            Ok(Arc::clone(&journal))
        })
    }

    /// Opens the store on the storage that `place` returns for its journal, or, if it is damaged, for reading.
    pub(crate) fn open_or_degrade(
        journal: &Arc<dyn Storage>,
        data: Option<&Arc<dyn Storage>>,
        options: &OpenOptions,
        place: &mut dyn FnMut(&Super) -> Result<Arc<dyn Storage>>,
    ) -> Result<Self> {
        crate::worker::check_interval(options.sync_interval)?;
        let found_super = SuperblockPair::<Super>::read(journal.as_ref())?;
        let last = &found_super.payload;
        check_devices(journal.as_ref(), data.map(AsRef::as_ref), last)?;
        let opened = read_root(journal.as_ref(), last).and_then(|root| {
            probe(journal.as_ref(), last, &root)?;
            let journal = place(last)?;
            Self::open_at(&journal, data, options, &found_super, &root)
        });
        match opened {
            Err(error) if [Kind::Corrupted, Kind::Io].contains(&error.kind()) => {
                Self::open_damaged(journal, data, options, found_super, error)
            }
            other => other,
        }
    }

    /// Opens the store with this superblock and root.
    pub(crate) fn open_at(
        journal: &Arc<dyn Storage>,
        data: Option<&Arc<dyn Storage>>,
        options: &OpenOptions,
        found_super: &SuperblockPair<Super>,
        root: &Root,
    ) -> Result<Self> {
        Self::open_for_repair(journal, data, options, found_super, root).map(|(store, _)| store)
    }

    /// As [`open_at`](Self::open_at), for a repair, which rebuilds the free space before anything is changed.
    pub(crate) fn open_for_repair(
        journal: &Arc<dyn Storage>,
        data: Option<&Arc<dyn Storage>>,
        options: &OpenOptions,
        found_super: &SuperblockPair<Super>,
        root: &Root,
    ) -> Result<(Self, Unclaimed)> {
        let last = &found_super.payload;
        let geometry = last.geometry;
        let counts = Arc::default();
        let counted = Counted::over(Arc::clone(journal), &counts);
        let front = Front::new(counted, last.journal_size, last.journal_size)?;
        let segments = segments_of(front.as_ref(), geometry, last.journal_size)?;
        root.needed
            .check_within(front.as_ref(), geometry, segments)?;
        let log = open_log(front, geometry, last.journal_size)?;
        root.needed.adopt(&log)?;
        let target = data_of(journal, data, options);
        let prior = recover::prior(last, &log)?;
        let at = found_super.clone();
        let (core, unclaimed) = build(log, target, counts, options, at, Some(root))?;
        let mut replay = Replay::new(root, last.open);
        replay.at_least(last.sequence);
        let found = core.log.recover(last.start, prior, &mut |address, frame| {
            let record = Record::decode(address, &frame).ok_or_else(|| {
                Error::new(Kind::Corrupted, "unknown record type in the journal")
                    .at(core.data.path())
                    .offset(address.offset())
            })?;
            let at = core.log.position(address);
            let is_synced = at.is_some_and(|at| at < prior.durable);
            let is_doubted = at
                .zip(last.doubt)
                .is_some_and(|(at, (from, to))| from <= at && at < to);
            let doubted = is_doubted || !prior.coherent && !is_synced;
            core.replay(&mut replay, record, doubted)
        });
        let found = found.and_then(|found| {
            let end = found.end_after(prior, core.log.storage().as_ref())?;
            Ok((found, end))
        });
        let (found, end) = found.map_err(|error| to_repair(error, journal.as_ref()))?;
        if let Some(allocation_extent) = replay.last_allocation_extent() {
            core.allocator.lock().space.resume_in(allocation_extent);
        }
        // The checkpoint of a closed store is complete.
        if last.open {
            core.scan_allocation_extents(&mut replay)?;
        }
        core.free_the_rest(&mut replay, &unclaimed)?;
        let keep = || {
            core.keep_for_checkpoint(0);
            core.log.segments().finish_adoption()
        };
        let mut next = recover::resume(found_super, &core.log, (prior, &found), keep)?;
        // Recovery did not need the lost places.
        next.lost.clear();
        // Records that do not match the data stay unverified, even after the whole journal was synced.
        if replay.is_untrue() {
            let from = last.doubt.map_or(prior.durable, |(from, _)| from);
            next.doubt = Some((from, end));
        }
        core.put_super(next)?;
        core.append_found(&mut replay)?;
        // What freed the space may be in caches only. It must be durable before anything is put there.
        if last.open {
            core.flush_devices()?;
        }
        let damage = replay.take_damage(&core);
        if !damage.is_empty() {
            let _first = core.flaws.set(Flaws {
                damage,
                ..Flaws::default()
            });
        }
        tracing::debug!(records = replay.records, found = replay.found, "opened");
        Ok((Self::start(core)?, unclaimed))
    }

    pub(crate) fn start(core: Core) -> Result<Self> {
        let has_worker = core.options.background;
        let core = Handle::start(core, has_worker, background::start)?;
        Ok(Self { core })
    }

    /// Closes the store: everything is durable, and the next open replays nothing. Dropping does the same, but can only
    /// trace an error.
    pub fn close(mut self) -> Result<()> {
        self.core.close()
    }
}

impl Core {
    pub(crate) fn put_super(&self, payload: Super) -> Result<()> {
        let mut state = self.checkpoint.lock();
        state.committed.superblock.replace(&self.log, payload)
    }

    /// Marks a store that is never changed as closed, in memory only.
    pub(crate) fn forget_to_close(&self) {
        let superblock = &mut self.checkpoint.lock().committed.superblock;
        superblock.payload.open = false;
    }
}

impl Closing for Core {
    fn is_open(&self) -> bool {
        self.checkpoint.lock().last().open
    }

    fn close(&self) -> Result<()> {
        if self.refuse_changes().is_err() {
            // Nothing must be written.
            return Ok(());
        }
        self.log.healthy()?;
        self.make_checkpoint()
            .map_err(|error| self.of_journal(error))?;
        self.log.rewrite_headers();
        self.checkpoint.lock().committed.close(&self.log)
    }
}

/// As `other_place`, for the data device, whose label a repair can write again.
fn other_data(error: Error, head: &[u8]) -> Error {
    if head.iter().any(|byte| *byte != 0) {
        return other_place(error, head);
    }
    error.remedy("check the path; if it is the store's, its label is lost: run `azekura object repair` with --data")
}

/// Checks that the storages belong to the store, and are long enough.
fn check_devices(journal: &dyn Storage, data: Option<&dyn Storage>, last: &Super) -> Result<()> {
    let device = match (data, last.devices) {
        (None, 1) => journal,
        (Some(data), 2) => {
            let slots = Slots::read(data)?;
            let head = slots.head.clone();
            let label = slots
                .current(DATA)
                .map_err(|error| other_data(error, &head).at(data.path()))?;
            last.check_label(&label, data)?;
            data
        }
        (found, devices) => {
            let found = 1 + u8::from(found.is_some());
            let remedy = if devices == 2 {
                "give the device of its data, too: --data"
            } else {
                "leave the other device out: no --data"
            };
            return Err(Error::new(
                Kind::Mismatch,
                "the store has a different number of devices",
            )
            .at(journal.path())
            .found(found, devices)
            .remedy(remedy));
        }
    };
    let there = device.size()?;
    let needed = last.offset_of(last.units);
    let journal_size = journal.size()?;
    for (device, there, needed) in [
        (device, there, needed),
        (journal, journal_size, last.journal_size),
    ] {
        if there < needed {
            let (found, expected) = sizes(there, needed);
            return Err(
                Error::new(Kind::Corrupted, "the device is shorter than the store")
                    .at(device.path())
                    .found(found, expected)
                    .remedy("restore its size, or run `azekura object repair`"),
            );
        }
    }
    Ok(())
}
