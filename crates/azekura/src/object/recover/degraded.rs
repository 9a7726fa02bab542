//! A damaged store, opened for reading.
//!
//! | damaged | what an open does | what is in doubt |
//! |---|---|---|
//! | one superblock, or label | uses the other one | nothing |
//! | one bit of the journal or the root | corrects it in memory (`care::correct`) | nothing |
//! | more of the journal, of segments in use | salvages the rest in memory, as a repair does | all objects but those with a complete record in the journal after the damage |
//! | the root | the same | objects that may have been removed, and absence |
//! | the frame after which the journal may end, by more than a bit | salvages the rest | all objects but those as above |
//! | segments of the journal that are not in use | nothing | nothing |
//! | one bit of an image of a leaf or list | a read of it corrects the bit | nothing |
//! | more of an image, an extent | nothing: a read of it is an error | nothing |
//! | an allocation extent that a scan reads | reads the rest | puts that were not synced |
//!
//! Rows two to five, except where a bit is corrected, and everything that makes the journal unreadable, give a store over an
//! [`Overlay`]: nothing reaches the devices, changes are refused, and a repair is due. Reading an object in doubt is an error, never
//! an older value and never absence; so is a list of a range with such objects, a snapshot, and a copy. [`Store::last_known`] returns
//! what is left of one, and [`Store::list`] continues with all of them after its error.

use std::collections::HashSet;
use std::ops::{Range, RangeBounds, RangeInclusive};
use std::sync::Arc;

use crate::damage::{Affects, Damage};
use crate::error::{Error, Kind, Result};
use crate::io::Storage;
use crate::io::overlay::Overlay;
use crate::kernel::{Handle, SuperblockPair};
use crate::object::care::correct::with_corrected;
use crate::object::care::repair::{Known, OldSegments, rebuilt};
use crate::object::care::report::Repaired;
use crate::object::care::salvage::Facts;
use crate::object::checkpoint::images::Images;
use crate::object::checkpoint::images::read_root;
use crate::object::checkpoint::superblock::Super;
use crate::object::id::{ObjectId, ids_of};
use crate::object::read::get::Reads;
use crate::object::read::value::Value;
use crate::object::recover::probe::{LOST_BEFORE, is_live};
use crate::object::{Core, OpenOptions, Store};

/// Known damage of an open store, and its consequences.
#[derive(Debug, Default)]
pub(crate) struct Flaws {
    pub(crate) damage: Vec<Damage>,
    /// Changes are refused.
    pub(crate) is_read_only: bool,
    pub(crate) doubt: InDoubt,
}

/// Objects of which a newer value or a removal may be lost.
#[derive(Debug, Default)]
pub(crate) struct InDoubt {
    /// All but those that are certain.
    is_all: bool,
    certain: HashSet<ObjectId>,
    ids: HashSet<ObjectId>,
    /// A missing object may be lost.
    is_absence: bool,
}

impl InDoubt {
    fn holds(&self, id: ObjectId, is_there: bool) -> bool {
        self.is_all && !self.certain.contains(&id)
            || self.ids.contains(&id)
            || self.is_absence && !is_there
    }

    /// The first of these ids whose object is in doubt, or may be missing.
    fn first_of(&self, ids: &RangeInclusive<ObjectId>) -> Option<ObjectId> {
        if self.is_all || self.is_absence {
            return Some(*ids.start());
        }
        self.ids.iter().filter(|id| ids.contains(id)).min().copied()
    }
}

impl Store {
    /// Known damage; empty: none. It does not search for damage: [`check`](Self::check) does.
    pub fn damage(&self) -> Vec<Damage> {
        let flaws = self.core.flaws.get();
        let mut damage = flaws.map_or_else(Vec::new, |flaws| flaws.damage.clone());
        let is_listed = |page: &Damage, of: &Damage| {
            of.path == page.path && (of.offset..of.offset + of.len.max(1)).contains(&page.offset)
        };
        let mut gone = self.core.log.unreadable();
        gone.retain(|page| !damage.iter().any(|of| is_listed(page, of)));
        damage.extend(gone);
        damage.extend(self.core.corrected.list());
        damage
    }

    /// Whether damage keeps the store from being changed: it was opened for reading only, or a part of the mapped journal can no
    /// longer be read. `azekura object repair` is due.
    pub fn is_read_only(&self) -> bool {
        let flaws = self.core.flaws.get();
        flaws.is_some_and(|flaws| flaws.is_read_only) || self.core.log.is_refused()
    }

    /// Whether a newer value of the object, or its removal, may be lost by damage: reading it is an error.
    pub fn is_doubtful(&self, id: ObjectId) -> Result<bool> {
        self.core.is_doubtful(id)
    }

    /// As [`get_range`](Self::get_range), also of an object in doubt: its last known value in the damaged store, which may be an
    /// older one, or one that was removed.
    pub fn last_known(&self, id: ObjectId, range: Range<u64>) -> Result<Option<Value>> {
        let read = self.core.read(id, &range, Reads::LastKnown)?;
        Ok(read.map(|(value, _)| value))
    }

    /// Opens a store that `error` keeps from being opened for writing: in memory, from what is left.
    pub(crate) fn open_damaged(
        journal: &Arc<dyn Storage>,
        data: Option<&Arc<dyn Storage>>,
        options: &OpenOptions,
        found_super: SuperblockPair<Super>,
        error: Error,
    ) -> Result<Self> {
        tracing::warn!(%error, "the store is damaged: it is opened for reading");
        let last = &found_super.payload;
        let options = options.clone().background(false);
        let readable = || {
            let (overlay, bad) = Overlay::of_readable(Arc::clone(journal), last.journal_size)?;
            Ok::<(Arc<dyn Storage>, _), Error>((overlay, bad))
        };
        let (overlay, refused) = readable()?;
        let unreadable = last.lost_with(&refused);
        let mut flaws = Flaws {
            is_read_only: true,
            ..Flaws::default()
        };
        for range in &unreadable {
            flaws.damage.push(Damage {
                path: journal.path().to_path_buf(),
                offset: range.start,
                len: range.end - range.start,
                found: if refused.contains(range) {
                    "the device cannot be read".into()
                } else {
                    LOST_BEFORE.into()
                },
                affects: Affects::Nothing,
            });
        }
        if !is_live(overlay.as_ref(), last, &unreadable)
            && let Ok(store) = replayed(&overlay, data, &options, &found_super, &mut flaws)
        {
            if flaws.damage.is_empty() {
                // The second read succeeded.
                flaws
                    .damage
                    .push(of_error(journal.as_ref(), &error, Affects::Nothing));
            }
            store.core.forget_to_close();
            let _first = store.core.flaws.set(flaws);
            return Ok(store);
        }
        let (overlay, _) = readable()?;
        let salvaged = salvaged(
            &overlay,
            data,
            &options,
            found_super,
            &unreadable,
            &mut flaws,
        );
        let Ok(core) = salvaged else {
            return Err(error);
        };
        let unknown = Affects::Before {
            until: String::new(),
        };
        // The error that kept it from being opened comes first, once.
        let first = of_error(journal.as_ref(), &error, unknown);
        flaws.damage.retain(|other| *other != first);
        flaws.damage.insert(0, first);
        core.forget_to_close();
        let _first = core.flaws.set(flaws);
        Ok(Self {
            core: Handle::idle(core),
        })
    }
}

impl Core {
    /// `Corrupted` if damage keeps the store from being changed.
    pub(crate) fn refuse_changes(&self) -> Result<()> {
        let Some(flaws) = self.flaws.get().filter(|flaws| flaws.is_read_only) else {
            return Ok(());
        };
        Err(self.degraded("the store is damaged, and is not changed", flaws))
    }

    fn is_doubtful(&self, id: ObjectId) -> Result<bool> {
        let Some(flaws) = self.flaws.get() else {
            return Ok(false);
        };
        Ok(flaws.doubt.holds(id, self.index.get(id)?.is_some()))
    }

    /// `Corrupted` if a newer value of the object may be lost, or its removal; `is_there`: whether the index has it.
    pub(crate) fn refuse_doubtful(&self, id: ObjectId, is_there: bool) -> Result<()> {
        match self.flaws.get() {
            Some(flaws) if flaws.doubt.holds(id, is_there) => {
                let what = format!("the newest value of object {id} may be lost");
                Err(self.degraded(&what, flaws))
            }
            _ => Ok(()),
        }
    }

    /// The first id of a range whose object is in doubt, or may be missing, and the error of that.
    pub(crate) fn doubt_within(
        &self,
        range: &impl RangeBounds<ObjectId>,
    ) -> Option<(ObjectId, Error)> {
        let flaws = self.flaws.get()?;
        let first = flaws.doubt.first_of(&ids_of(range)?)?;
        let what = "objects are in doubt: newer values or removals may be lost";
        Some((first, self.degraded(what, flaws)))
    }

    /// `Corrupted` if any object of a range is in doubt, or may be missing.
    pub(crate) fn refuse_doubtful_range(&self, range: &impl RangeBounds<ObjectId>) -> Result<()> {
        self.doubt_within(range)
            .map_or(Ok(()), |(_, error)| Err(error))
    }

    #[cold]
    fn degraded(&self, what: &str, flaws: &Flaws) -> Error {
        let path = self.log.storage().path();
        let error = Error::new(Kind::Corrupted, what).at(path);
        let error = match flaws.damage.first() {
            Some(first) => error.detail(first.to_string()),
            None => error,
        };
        let data = match self.devices {
            2 => format!(" --data {}", self.data.path().display()),
            _ => String::new(),
        };
        error.remedy(format!(
            "run `azekura object repair {}{data}`",
            path.display()
        ))
    }
}

fn of_error(journal: &dyn Storage, error: &Error, affects: Affects) -> Damage {
    Damage {
        path: error.path().unwrap_or_else(|| journal.path()).to_path_buf(),
        offset: error.place().unwrap_or(0),
        len: 0,
        found: error.what().to_owned(),
        affects,
    }
}

/// Opens it over the readable part, with single bits corrected.
fn replayed(
    overlay: &Arc<dyn Storage>,
    data: Option<&Arc<dyn Storage>>,
    options: &OpenOptions,
    found_super: &SuperblockPair<Super>,
    flaws: &mut Flaws,
) -> Result<Store> {
    let last = &found_super.payload;
    let (store, corrected) = with_corrected(overlay.as_ref(), last, || {
        let root = read_root(overlay.as_ref(), last)?;
        Store::open_at(overlay, data, options, found_super, &root)
    })?;
    flaws
        .damage
        .extend(corrected.into_iter().map(|corrected| Damage {
            path: overlay.path().to_path_buf(),
            offset: corrected.offset,
            len: 1,
            found: format!("a bit of {} is flipped", corrected.what),
            affects: Affects::Nothing,
        }));
    Ok(store)
}

/// Salvages it in memory, as a repair would.
fn salvaged(
    overlay: &Arc<dyn Storage>,
    data: Option<&Arc<dyn Storage>>,
    options: &OpenOptions,
    found_super: SuperblockPair<Super>,
    unreadable: &[Range<u64>],
    flaws: &mut Flaws,
) -> Result<Core> {
    let mut report = Repaired::default();
    let last = &found_super.payload;
    let root = read_root(overlay.as_ref(), last);
    let images = Images::new(overlay, last.geometry.salt, last.units);
    let known = Known::read(&images, last, root, &mut report);
    let mut doubt = InDoubt::default();
    let (core, _) = rebuilt(
        overlay,
        data,
        options,
        found_super,
        (&known, OldSegments::Reused),
        unreadable,
        |core, facts: &Facts| {
            doubt.is_all = facts.gap.is_some();
            doubt.certain.clone_from(&facts.certain);
            core.salvage(&known, facts, &mut report, &mut |_, _| {})
        },
    )?;
    doubt.is_all |= report.doubtful > report.doubted.len() as u64;
    doubt.is_absence = doubt.is_all || report.losses > 0;
    doubt.ids.extend(report.doubted.iter().map(|of| of.id));
    for place in report.places {
        flaws.damage.push(Damage {
            path: place.device,
            offset: place.offset,
            len: 0,
            found: place.found,
            affects: Affects::Before {
                until: String::new(),
            },
        });
    }
    flaws.doubt = doubt;
    Ok(core)
}
