//! Repairing: the records that are left of a damaged file, written to a new one.
//!
//! The damaged file is only read: what can be read of it is copied to a file without a name, in the folder of the target, and opened
//! there. Records come in order, leaf by leaf; a page that does not verify costs its records, reported as the range of their keys, and a
//! damaged place of the journal what it changed. What the journal has of such a page's records is in the new file, and so are the leaves
//! that a damaged inner page, or a damaged chunk of the page table, led to (`salvage`). Superblock and root of the checkpoint are needed:
//! where both slots, or a piece of the root, are damaged beyond a bit, only a backup helps.
//!
//! It does not guess: a record is in the new file only if its checksums hold.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::open::open_salvaged;
use super::walk::walk;
use super::{CreateOptions, TreeDb};
use crate::error::Result;
use crate::io::file::Files;
use crate::io::overlay::read_around;
use crate::io::{Storage, create_whole};
use crate::kernel::damaged;
use crate::kernel::report::list;

/// What a repair took out, and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeRepairReport {
    /// Records in the new file.
    pub recovered: u64,
    /// Leaves that no page leads to any more, whose records are in the new file.
    pub found_leaves: u64,
    /// How many losses there are: of pages, values and places of the journal.
    pub losses: u64,
    /// One line for each loss: what, and which records it costs; at most 1000.
    pub lost: Vec<String>,
}

impl TreeRepairReport {
    fn lose(&mut self, what: String) {
        list(what, &mut self.lost, &mut self.losses);
    }
}

/// Writes what can be read of the file at `damaged` to a new file at `target`. `progress` is called with (done, total) of records, about.
///
/// Takes the room of the damaged file once more, until it is done. Errors: `Mismatch` or `Corrupted` if superblock or root cannot be
/// read; `Locked` if the file is open; `Invalid` if there is a file at `target`; `Full`, `Io`.
pub fn repair(
    damaged: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<TreeRepairReport> {
    let source = damaged::open(damaged)?;
    let copy = damaged::copy_of(source.as_ref(), target)?;
    let mut report = TreeRepairReport::default();
    copy_readable(source.as_ref(), copy.as_ref(), &mut report)?;
    let (directory, name) = Files::of(target);
    create_whole(&directory, name, |target| {
        repair_storage(&copy, target, report, progress)
    })
}

/// As [`repair`], of a storage that may be written, to an empty one.
pub(super) fn repair_storage(
    damaged: &Arc<dyn Storage>,
    target: &Arc<dyn Storage>,
    mut report: TreeRepairReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<TreeRepairReport> {
    let (core, orphans) = open_salvaged(damaged, &mut |what| report.lose(what))?;
    let shape = core.tree.nodes.shape;
    let options = CreateOptions::new()
        .order(core.tree.order)
        .page_size(shape.bytes())
        .compression(shape.compression);
    let db = TreeDb::create_on(Arc::clone(target), &options)?;
    let total = core.tree.nodes.counts.sum();
    let mut put = Ok(());
    let mut done = 0;
    let mut show = |key: &[u8], value: &[u8]| {
        put = db.put(key, value);
        done += 1;
        if done % 4096 == 0 {
            progress(done, total.max(done));
        }
        match put {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let walked = walk(&core, None, &mut show, &mut |error| {
        report.lose(error.without_remedy().to_string());
        Ok(())
    });
    put?;
    match walked {
        // What leads on is damaged, and was reported.
        Err(error) if super::is_damage(&error) && report.losses > 0 => {}
        walked => drop(walked?),
    }
    if report.losses > 0 {
        report.found_leaves = core.show_unreached(&mut |key, value| match value {
            _ if orphans.removed(key, core.tree.order) => Ok(()),
            Err(error) if super::is_damage(&error) => {
                report.lose(error.without_remedy().to_string());
                Ok(())
            }
            value => db.put(key, value?),
        })?;
    }
    // Of leaves that cannot be reached, what the journal has.
    for (key, value) in &orphans.records {
        match value {
            Some(value) => db.put(key, value)?,
            None => drop(db.remove(key)?),
        }
    }
    report.recovered = crate::engine::Reader::count(&db);
    db.close()?;
    progress(total, total);
    Ok(report)
}

/// Copies what can be read; where the device refuses, zeros.
fn copy_readable(
    source: &dyn Storage,
    copy: &dyn Storage,
    report: &mut TreeRepairReport,
) -> Result<()> {
    let size = source.size()?;
    copy.resize(size)?;
    let refused = read_around(source, 0..size, &mut |offset, bytes| {
        copy.write_at(offset, bytes)
    })?;
    for range in refused {
        report.lose(format!(
            "{} bytes at offset {} cannot be read",
            range.end - range.start,
            range.start
        ));
    }
    Ok(())
}
