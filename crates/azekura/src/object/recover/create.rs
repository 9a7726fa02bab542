//! Creating a store: its layout, from the options and the devices, and its first superblock.
//!
//! A file appears when it can be opened: it is created without a name. A device is taken over by writing its superblock last,
//! so a crash before that leaves no store.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Kind, Result, size, sizes};
use crate::format::superblock;
use crate::io::counted::Counted;
use crate::io::front::Front;
use crate::io::{Directory, Storage, create_whole};
use crate::kernel::{SuperblockPair, recover};
use crate::log::Geometry;
use crate::object::checkpoint::label::write_label;
use crate::object::checkpoint::superblock::{PLACES_END, SHIFTS, Super};
use crate::object::checkpoint::{FIRST_SUPERBLOCK, LEAST, least_journal};
use crate::object::place::extent::UNIT;
use crate::object::recover::build::{build, check_sectors, data_of, open_log};
use crate::object::{CreateOptions, Store};

/// Smallest default size of a journal.
pub(crate) const JOURNAL_MIN: u64 = 4 << 20;

/// Default part of the capacity for the journal.
pub(crate) const JOURNAL_PART: u64 = 64;

/// Bounds of the default size of an allocation group.
const GROUP_MIN: u64 = 64 << 20;

const GROUP_MAX: u64 = 1 << 30;

/// Fewest units of a store.
const UNITS_MIN: u64 = 16;
/// Bytes written at once where a new store is filled.
const FILL: usize = 4 << 20;

/// Bytes of the longest sectors of a device.
const ALIGNMENT: u32 = UNIT as u32;

impl Store {
    /// As [`create`](Self::create) of a file, in any directory; `progress` gets the bytes filled so far, and their total.
    pub fn create_in(
        directory: &dyn Directory,
        name: &Path,
        options: &CreateOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        create_whole(directory, name, |storage| {
            storage.resize(options.capacity)?;
            Self::create_on(Arc::clone(storage), None, options, progress)
        })
    }

    /// Creates a store on storages of their present size: the journal's, and the data's if that is another. Their contents are
    /// lost. `progress` gets the bytes filled so far, and their total.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the store keeps the storages"
    )]
    pub fn create_on(
        journal: Arc<dyn Storage>,
        data: Option<Arc<dyn Storage>>,
        options: &CreateOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        crate::worker::check_interval(options.opening.sync_interval)?;
        let plan = Plan::new(options, journal.as_ref(), data.as_deref())?;
        let target = data_of(&journal, data.as_ref(), &options.opening);
        check_sectors(target.as_ref(), ALIGNMENT)?;
        // From here on it is no store, until the new superblock is there.
        journal.write_at(0, &vec![0; superblock::SIZE as usize])?;
        journal.sync()?;
        if options.fill {
            fill(target.as_ref(), &plan, progress)?;
        }
        let entropy = [
            journal.entropy(),
            journal.entropy().rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15,
        ];
        let mut identity = [0; 16];
        identity[..8].copy_from_slice(&entropy[0].to_le_bytes());
        identity[8..].copy_from_slice(&entropy[1].to_le_bytes());
        let geometry = Geometry {
            shift: plan.shift,
            salt: entropy[0] as u32,
        };
        let counts = Arc::default();
        let counted = Counted::over(Arc::clone(&journal), &counts);
        let front = Front::new(counted, plan.journal_size, 0)?;
        front.resize(geometry.offset_of(1))?;
        let log = open_log(front, geometry, plan.journal_size)?;
        let payload = Super {
            manifest: recover::begin(&log)?,
            identity,
            journal_size: plan.journal_size,
            data_offset: plan.data_offset,
            units: plan.units,
            group_units: plan.group_units,
            alignment: ALIGNMENT,
            devices: if data.is_some() { 2 } else { 1 },
            sequence: 1,
            doubt: None,
            lost: Vec::new(),
        };
        if let Some(data) = &data {
            write_label(data.as_ref(), &payload)?;
        }
        // Its sequence is taken when it is written.
        let superblock = SuperblockPair {
            sequence: FIRST_SUPERBLOCK - 1,
            payload: payload.clone(),
        };
        let (core, _) = build(log, target, counts, &options.opening, superblock, None)?;
        core.flush_devices()?;
        core.put_super(payload)?;
        core.keep_for_checkpoint(0);
        Self::start(core)
    }
}

/// The places of a new store, and their sizes in bytes.
struct Places<'s> {
    journal: &'s dyn Storage,
    /// The device of the data, which may be the journal's.
    device: &'s dyn Storage,
    journal_len: u64,
    /// `None`: the data is on the journal's device.
    data_len: Option<u64>,
}

/// An option, or a size that follows from it, is impossible.
fn invalid(what: &str, at: &dyn Storage, found: String, expected: String) -> Error {
    let error = Error::new(Kind::Invalid, what).at(at.path());
    error.found(found, expected)
}

/// Bytes of the smallest journal with segments of this size.
fn smallest_journal(shift: u32) -> u64 {
    Geometry { shift, salt: 0 }.offset_of(LEAST)
}

impl<'s> Places<'s> {
    fn new(journal: &'s dyn Storage, data: Option<&'s dyn Storage>) -> Result<Self> {
        Ok(Self {
            journal,
            device: data.unwrap_or(journal),
            data_len: data.map(Storage::size).transpose()?,
            journal_len: journal.size()?,
        })
    }

    /// Bytes of the device of the data.
    fn whole(&self) -> u64 {
        self.data_len.unwrap_or(self.journal_len)
    }

    /// Bytes of the journal: as in the options, or by default.
    fn journal_size(&self, options: &CreateOptions) -> Result<u64> {
        let wanted = match (options.journal_size, self.data_len) {
            (Some(wanted), _) => wanted,
            (None, Some(_)) => self.journal_len,
            (None, None) => (self.journal_len / JOURNAL_PART).max(JOURNAL_MIN),
        };
        let rounded = wanted.checked_next_multiple_of(UNIT);
        if let Some(fitting) = rounded.filter(|size| *size <= self.journal_len) {
            return Ok(fitting);
        }
        let (found, most) = sizes(wanted, self.journal_len);
        let error = invalid("the journal does not fit", self.journal, found, most);
        let least = size(smallest_journal(*SHIFTS.start()));
        Err(error.remedy(format!(
            "make the store larger, or its journal smaller: --journal-size, {least} or more"
        )))
    }

    /// Bytes of an allocation group: as in the options, or by default.
    fn group_size(&self, options: &CreateOptions) -> Result<u64> {
        let group = options.group_size.unwrap_or_else(|| {
            let part = 1 << (self.whole() / 16).max(1).ilog2();
            part.clamp(GROUP_MIN, GROUP_MAX)
        });
        if group.is_power_of_two() && (UNIT..=1 << 40).contains(&group) {
            return Ok(group);
        }
        let expected = "one of 4 KiB to 1 TiB".into();
        let found = format!("{}, {group} bytes", size(group));
        let what = "a group is a power of two";
        Err(invalid(what, self.device, found, expected))
    }
}

/// The layout of a new store.
struct Plan {
    journal_size: u64,
    shift: u32,
    data_offset: u64,
    units: u64,
    group_units: u32,
}

impl Plan {
    /// The first of these that fails is the error:
    ///
    /// | what | must |
    /// |---|---|
    /// | the journal | fit on its device |
    /// | a group | be a power of two, 4 KiB to 1 TiB |
    /// | the journal | have [`LEAST`] segments |
    /// | the data | have [`UNITS_MIN`] units |
    /// | the journal | hold a checkpoint of that many groups |
    fn new(
        options: &CreateOptions,
        journal: &dyn Storage,
        data: Option<&dyn Storage>,
    ) -> Result<Self> {
        let places = Places::new(journal, data)?;
        let journal_size = places.journal_size(options)?;
        let data_offset = match data {
            Some(_) => superblock::SIZE,
            None => journal_size,
        };
        let group = places.group_size(options)?;
        let plan = Self {
            journal_size,
            shift: shift_of(journal_size),
            data_offset,
            units: places.whole().min(PLACES_END).saturating_sub(data_offset) / UNIT,
            group_units: (group / UNIT) as u32,
        };
        plan.check(&places)?;
        Ok(plan)
    }

    /// Checks the sizes against the smallest possible ones.
    fn check(&self, places: &Places<'_>) -> Result<()> {
        let least = smallest_journal(self.shift);
        if self.journal_size < least {
            let (found, least) = sizes(self.journal_size, least);
            let least = format!("{least} or more");
            let error = invalid("the journal is too small", places.journal, found, least);
            return Err(error.remedy("make it larger: --journal-size"));
        }
        if self.units < UNITS_MIN {
            let least = self.data_offset + UNITS_MIN * UNIT;
            let (found, least) = sizes(places.whole(), least);
            let least = format!("{least} or more");
            let remedy = match places.data_len {
                Some(_) => "make it larger",
                None => "make it larger, or its journal smaller: --journal-size",
            };
            let error = invalid("the store is too small", places.device, found, least);
            return Err(error.remedy(remedy));
        }
        let groups = self.units.div_ceil(u64::from(self.group_units));
        let least = least_journal_size(self.journal_size, groups);
        if self.journal_size < least {
            let (found, least) = sizes(self.journal_size, least);
            let group = size(u64::from(self.group_units) * UNIT);
            let found = format!("{found}, and {groups} groups of {group}");
            let what = "the journal is too small for so many groups";
            let error = invalid(what, places.journal, found, format!("{least} or more"));
            return Err(error.remedy("make it larger: --journal-size, or the groups: --group-size"));
        }
        Ok(())
    }
}

/// Segment size: a 64th of the journal, within bounds.
fn shift_of(journal_size: u64) -> u32 {
    let part = (journal_size / 64).max(1).ilog2();
    part.clamp(*SHIFTS.start(), 20)
}

/// The smallest journal for `groups` groups that is not smaller than `journal_size`.
fn least_journal_size(journal_size: u64, groups: u64) -> u64 {
    let mut size = journal_size;
    loop {
        // With longer segments a checkpoint takes more.
        let shift = shift_of(size);
        let least = least_journal(Geometry { shift, salt: 0 }, groups);
        if least <= size {
            return size;
        }
        size = least;
    }
}

/// Writes the whole data area once.
fn fill(data: &dyn Storage, plan: &Plan, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let zeros = crate::io::aligned::AlignedBuf::zeroed(FILL, data.alignment())?;
    let total = plan.units * UNIT;
    let mut done = 0;
    while done < total {
        let len = (total - done).min(FILL as u64);
        data.write_at(plan.data_offset + done, &zeros[..len as usize])?;
        done += len;
        progress(done, total);
    }
    Ok(())
}
