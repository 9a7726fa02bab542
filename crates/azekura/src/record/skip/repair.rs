//! Repairing: the records of all leaves that can be read, written to a new file.
//!
//! The damaged file is only read. Leaves are found by their own checksums, at any multiple of 4096 bytes, whatever is left of the
//! levels above; each states how many records come before it, so they are put in order, and what is missing between two of them is
//! reported as a range of keys, with how many records it had.
//!
//! The superblock is needed, one slot of the two: without it nothing states the identity that checksums are seeded with. It does not
//! guess: a record is in the new file only if its checksum holds.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use super::blocks::{Blocks, VerifiedBlock};
use super::layout::BLOCK;
use super::writer::Writer;
use crate::error::{Result, quote};
use crate::format::superblock;
use crate::io::file::{File, Files};
use crate::io::{Access, Storage, create_whole};
use crate::kernel::report::list;
use crate::node::Key;
use crate::room;

/// What a repair took out, and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkipRepairReport {
    /// Records in the new file.
    pub recovered: u64,
    /// Records that are lost.
    pub missing: u64,
    /// How many losses there are: ranges, and records of which the overflow is damaged.
    pub losses: u64,
    /// One line for each loss: which keys; at most 1000.
    pub lost: Vec<String>,
}

impl SkipRepairReport {
    /// Notes that so many records between two keys are lost.
    fn lose(&mut self, count: u64, after: Option<&[u8]>, before: Option<&[u8]>) {
        let mut what = format!("{count} records");
        // Writing to a string cannot fail.
        let _ = match (after, before) {
            (Some(after), Some(before)) => {
                write!(what, " between keys {} and {}", quote(after), quote(before))
            }
            (Some(after), None) => write!(what, " after key {}", quote(after)),
            (None, Some(before)) => write!(what, " before key {}", quote(before)),
            (None, None) => write!(what, ": all"),
        };
        self.missing += count;
        list(what, &mut self.lost, &mut self.losses);
    }
}

/// Writes what can be read of the file at `damaged` to a new file at `target`. `progress` is called with (done, total) of blocks.
///
/// Errors: `Mismatch` or `Corrupted` if neither superblock can be read; `Invalid` if there is a file at `target`; `Full`, `Io`.
pub fn repair(
    damaged: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SkipRepairReport> {
    let storage: Arc<dyn Storage> = Arc::new(File::open(damaged, Access::Read)?);
    let (directory, name) = Files::of(target);
    create_whole(&directory, name, |target| {
        repair_storage(storage, target, progress)
    })
}

/// As [`repair`], of a storage, to an empty one.
pub(super) fn repair_storage(
    storage: Arc<dyn Storage>,
    target: &Arc<dyn Storage>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SkipRepairReport> {
    let blocks = Blocks::open_damaged(storage)?;
    let leaves = leaves(&blocks, progress)?;
    let top = &blocks.top;
    let mut report = SkipRepairReport::default();
    let mut writer = Writer::new(target, top.order)?;
    let mut done = 0;
    // Records before the next leaf that are lost, and the key before them.
    let mut last_key: Option<Vec<u8>> = None;
    for (ordinal, number) in leaves {
        let Ok(leaf) = blocks.block(number) else {
            continue;
        };
        if ordinal < done {
            // Records of two leaves under one number: only a forged file has them.
            continue;
        }
        if ordinal > done {
            let (first, _) = record(&blocks, leaf, 0);
            report.lose(ordinal - done, last_key.as_deref(), Some(&first));
        }
        for at in 0..leaf.node.count() {
            let (key, value) = record(&blocks, leaf, at);
            let last = last_key.as_deref();
            let is_next = last.is_none_or(|last| top.order.compare(last, &key).is_le());
            match value {
                Ok(value) if is_next => writer.add(&key, value)?,
                Ok(_) => report.lose(1, last, Some(&key)),
                Err(error) => {
                    report.missing += 1;
                    let what = error.without_remedy().to_string();
                    list(what, &mut report.lost, &mut report.losses);
                }
            }
            if is_next {
                last_key = Some(key);
            }
        }
        done = ordinal + leaf.node.count() as u64;
    }
    if done < top.count {
        report.lose(top.count - done, last_key.as_deref(), None);
    }
    report.recovered = writer.count();
    // So its pending edits still know it.
    writer.finish_with(top.contained)?;
    Ok(report)
}

/// The leaves that can be read, in order: how many records come before each, and its number.
fn leaves(blocks: &Blocks, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<(u64, u32)>> {
    let end = blocks.top.size / BLOCK;
    let mut leaves = Vec::new();
    for number in superblock::SIZE / BLOCK..end {
        if number % 256 == 0 {
            progress(number, end);
        }
        let Ok(number) = u32::try_from(number) else {
            break;
        };
        if let Ok(block) = blocks.block(number)
            && block.node.level() == 0
        {
            room::more(&mut leaves, 1)?;
            leaves.push((block.ordinal, number));
        }
    }
    progress(end, end);
    leaves.sort_unstable();
    Ok(leaves)
}

/// The key and value of an entry; of the key as much as stands in its leaf, if its overflow is damaged.
fn record<'f>(
    blocks: &'f Blocks,
    leaf: VerifiedBlock<'f>,
    at: usize,
) -> (Vec<u8>, Result<&'f [u8]>) {
    let content = blocks.content(leaf, at);
    let content = content.and_then(|found| blocks.checked(leaf, found.value, found));
    let long = content.as_ref().ok().and_then(|content| content.key);
    let mut own = Key::default();
    leaf.node.key(at, &mut own);
    let key = long.unwrap_or_else(|| own.bytes()).to_vec();
    (key, content.map(|content| content.value))
}
