//! Opening after whatever happened: replay of the log behind the checkpoint.
//!
//! Replay reads the log once, in order, and sorts what it says by stripe; nothing of the index is touched.
//! A stripe comes in when it is first needed: its image, and behind it what the log said. Opening so costs
//! the reading of the log behind the checkpoint, whatever the number of records.
//!
//! What is replayed was decided before: a frame says that a record has a value or is gone, so replaying it
//! once or twice, onto the state of P or onto a later one, gives the same. It does not decide where the log
//! ends: `log::recover` does.

use std::sync::Arc;

use parking_lot::Mutex;
use rapidhash::v3::RapidSecrets;

use super::Core;
use super::layout::Image;
use crate::error::Result;
use crate::format::frame::{Frame, FrameKind};
use crate::index::hash::Hash;
use crate::index::hash::{ADDRESS_BITS, STRIPES};
use crate::index::{Source, entry, place_of};
use crate::log::{Address, Log};

/// What the log said about a stripe behind the checkpoint, in order.
#[derive(Debug, Default)]
struct Replayed {
    entries: Vec<u64>,
    /// Which of them are removals, by their number, rising.
    removes: Vec<u32>,
}

/// Stripes that are not in memory yet.
pub(super) struct Cold {
    log: Arc<Log>,
    salt: u32,
    images: Vec<Image>,
    replayed: Vec<Mutex<Replayed>>,
}

/// Collects what replay says.
pub(super) struct Replay {
    secrets: RapidSecrets,
    stripes: Vec<Replayed>,
    /// Records more (or fewer) than at the checkpoint.
    pub(super) count: i64,
    /// Whether everything before was cleared.
    cleared: bool,
    /// Frames that say nothing any more: removals, by address and length.
    pub(super) dead: Vec<(Address, usize)>,
}

impl Replay {
    pub(super) fn new(secrets: RapidSecrets) -> Self {
        let stripes = (0..STRIPES).map(|_| Replayed::default()).collect();
        Self {
            secrets,
            stripes,
            count: 0,
            cleared: false,
            dead: Vec::new(),
        }
    }

    /// One record of the log.
    pub(super) fn record(&mut self, address: Address, frame: &Frame<'_>, base: u64) {
        let kind = frame.header.kind;
        if kind == FrameKind::Clear {
            let before = std::mem::take(&mut self.stripes);
            *self = Self::new(self.secrets);
            self.cleared = true;
            self.count = -base.cast_signed();
            drop(before);
            return;
        }
        let hash = Hash::of_key(frame.key, &self.secrets);
        let moved = frame.has(crate::format::frame::MOVED);
        match kind {
            FrameKind::Insert if !moved => self.count += 1,
            FrameKind::Remove => {
                self.count -= 1;
                self.dead.push((address, frame.len()));
            }
            _ => {}
        }
        let stripe = &mut self.stripes[hash.stripe()];
        if kind == FrameKind::Remove {
            stripe.removes.push(stripe.entries.len() as u32);
        }
        stripe.entries.push(entry(hash, address.0));
    }

    /// Whether everything was cleared behind the checkpoint.
    pub(super) fn was_cleared(&self) -> bool {
        self.cleared
    }

    /// Stripes that something was said about, or all if everything was cleared.
    pub(super) fn changed(&self) -> Vec<usize> {
        (0..STRIPES)
            .filter(|s| self.cleared || !self.stripes[*s].entries.is_empty())
            .collect()
    }

    /// The stripes, to be brought in when they are needed.
    pub(super) fn into_cold(self, log: Arc<Log>, salt: u32, images: Vec<Image>) -> Cold {
        let images = if self.cleared {
            vec![Image::default(); STRIPES]
        } else {
            images
        };
        Cold {
            log,
            salt,
            images,
            replayed: self.stripes.into_iter().map(Mutex::new).collect(),
        }
    }
}

impl Source for Cold {
    fn load(&self, stripe: usize) -> Result<Vec<u64>> {
        let image = self.images[stripe];
        let mut entries = Core::read_image(self.log.storage().as_ref(), self.salt, stripe, image)?;
        let mut replayed = self.replayed[stripe].lock();
        if replayed.entries.is_empty() {
            return Ok(entries);
        }
        let loaded = self.apply(&mut entries, &replayed)?;
        *replayed = Replayed::default();
        Ok(loaded)
    }
}

impl Cold {
    /// `entries` with what the log said behind them. Only entries of equal tags are looked at, since only
    /// they may be of one key.
    fn apply(&self, entries: &mut [u64], replayed: &Replayed) -> Result<Vec<u64>> {
        let mut order: Vec<usize> = (0..replayed.entries.len()).collect();
        let tag = |entry: u64| entry >> ADDRESS_BITS;
        order.sort_by_key(|at| tag(replayed.entries[*at]));
        entries.sort_unstable();
        let mut out = Vec::with_capacity(entries.len() + order.len());
        let mut from = 0;
        let mut groups =
            order.chunk_by(|a, b| tag(replayed.entries[*a]) == tag(replayed.entries[*b]));
        for group in &mut groups {
            let wanted = tag(replayed.entries[group[0]]);
            let below = from + entries[from..].partition_point(|entry| tag(*entry) < wanted);
            out.extend_from_slice(&entries[from..below]);
            let above = below + entries[below..].partition_point(|entry| tag(*entry) == wanted);
            let mut same: Vec<u64> = entries[below..above].to_vec();
            from = above;
            for &at in group {
                let removes = replayed.removes.binary_search(&(at as u32)).is_ok();
                self.apply_one(&mut same, replayed.entries[at], removes)?;
            }
            out.extend_from_slice(&same);
        }
        out.extend_from_slice(&entries[from..]);
        Ok(out)
    }

    /// One frame of the log onto the entries of its tag.
    fn apply_one(&self, same: &mut Vec<u64>, entry: u64, removes: bool) -> Result<()> {
        let address = Address(place_of(entry));
        if !same.is_empty() {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            let key = self.log.copy_frame(address, &mut ours)?.key;
            let mut kept = Vec::with_capacity(same.len());
            for &other in same.iter() {
                let old = Address(place_of(other));
                if old == address {
                    continue;
                }
                let frame = self.log.copy_frame(old, &mut theirs)?;
                if frame.key == key {
                    self.log.bury(old, frame.len());
                } else {
                    kept.push(other);
                }
            }
            *same = kept;
        }
        if !removes {
            same.push(entry);
        }
        Ok(())
    }
}
