//! Checking: every block and every overflow, against its checksum and against the rest.
//!
//! Read-only. What is verified: the three superblocks; the checksum of each block and each overflow that the root leads to; that a
//! block has the level, the fences and the number of records before it that its parent states; that its keys lie between the fences,
//! and ascend, or repeat where the superblock states it; that records and bytes are as many as it states. It does not stop at the
//! first damage.
//!
//! It repairs nothing: `repair` does.

use std::sync::Arc;

use super::blocks::{Blocks, VerifiedBlock};
use super::layout::BLOCK;
use crate::engine::CheckReport;
use crate::error::Result;
use crate::node::Key;

struct Check<'c> {
    blocks: &'c Blocks,
    report: CheckReport,
    /// How many records come before what follows the last leaf.
    passed: u64,
    last_key: Vec<u8>,
    has_last: bool,
    progress: &'c mut dyn FnMut(u64, u64),
}

/// What a parent states of a child.
struct Stated {
    level: u8,
    ordinal: u64,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

/// Checks a file, whatever was verified when it was read.
pub(super) fn check(blocks: &Blocks, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
    let anew = Blocks::open(Arc::clone(&blocks.storage))?;
    let top = &anew.top;
    let mut check = Check {
        blocks: &anew,
        report: CheckReport::default(),
        passed: 0,
        last_key: Vec::new(),
        has_last: false,
        progress,
    };
    for damage in anew.damaged_slots() {
        check.report.note(damage.to_string());
    }
    match anew.root() {
        Ok(Some(root)) => {
            let stated = Stated {
                level: top.height,
                ordinal: 0,
                lower: None,
                upper: None,
            };
            check.block(root, &stated)?;
        }
        Ok(None) => {}
        Err(error) => check.report.note_error(error),
    }
    let (records, bytes) = (check.report.records, check.report.bytes);
    if check.report.is_sound() && (records, bytes) != (top.count, top.bytes) {
        check.report.note(format!(
            "{records} records of {bytes} bytes found, {} of {} stated",
            top.count, top.bytes
        ));
    }
    (check.progress)(top.count, top.count);
    Ok(check.report)
}

impl Check<'_> {
    fn note(&mut self, block: VerifiedBlock<'_>, what: &str) {
        let at = u64::from(block.number) * BLOCK;
        let path = self.blocks.storage.path().display();
        self.report.note(format!("{what} at {path} offset {at:#x}"));
    }

    fn block(&mut self, block: VerifiedBlock<'_>, stated: &Stated) -> Result<()> {
        let mut key = Key::default();
        let lower = block.node.lower(&mut key).map(|()| key.bytes().to_vec());
        let upper = block.node.upper(&mut key).map(|()| key.bytes().to_vec());
        let is_next = !self.report.is_sound() || stated.ordinal == self.passed;
        if block.node.level() != stated.level || block.ordinal != stated.ordinal || !is_next {
            self.note(block, "a block is not the one that its parent states");
        } else if lower != stated.lower || upper != stated.upper {
            self.note(block, "a block has other fences than its parent states");
        } else if block.node.count() == 0 {
            self.note(block, "a block is empty");
        } else if stated.level == 0 {
            self.leaf(block, stated);
        } else {
            self.children(block, stated)?;
        }
        Ok(())
    }

    fn children(&mut self, parent: VerifiedBlock<'_>, stated: &Stated) -> Result<()> {
        let mut key = Key::default();
        let count = parent.node.count();
        let mut lower = stated.lower.clone();
        for at in 0..count {
            let upper = if at + 1 < count {
                parent.node.key(at + 1, &mut key);
                Some(key.bytes().to_vec())
            } else {
                stated.upper.clone()
            };
            let child = Stated {
                level: stated.level - 1,
                ordinal: parent.child(at).1,
                lower,
                upper: upper.clone(),
            };
            match self.blocks.child(parent, at, child.level) {
                Ok(block) => self.block(block, &child)?,
                Err(error) => self.report.note_error(error),
            }
            lower = upper;
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: VerifiedBlock<'_>, stated: &Stated) {
        let mut own = Key::default();
        for at in 0..leaf.node.count() {
            let content = self.blocks.content(leaf, at);
            let content = content.and_then(|found| self.blocks.checked(leaf, found.value, found));
            let content = match content {
                Ok(content) => content,
                Err(error) => {
                    self.report.note_error(error);
                    continue;
                }
            };
            leaf.node.key(at, &mut own);
            let order = self.blocks.top.order;
            let is_after = |fence: &Option<Vec<u8>>| {
                let compared = fence
                    .as_ref()
                    .map(|fence| order.compare(own.bytes(), fence));
                compared.is_some_and(|o| o.is_gt() || o.is_eq() && !self.blocks.top.repeats)
            };
            let is_before = |fence: &Option<Vec<u8>>| {
                let fence = fence.as_ref();
                fence.is_some_and(|fence| order.compare(own.bytes(), fence).is_lt())
            };
            if is_before(&stated.lower) || is_after(&stated.upper) {
                self.note(leaf, "a key is outside of the fences of its block");
                return;
            }
            let key = content.key.unwrap_or(own.bytes());
            if !key.starts_with(own.bytes()) {
                self.note(leaf, "the key of an overflow is not the one of its leaf");
                return;
            }
            let is_next = !self.has_last
                || match order.compare(&self.last_key, key) {
                    std::cmp::Ordering::Less => true,
                    std::cmp::Ordering::Equal => self.blocks.top.repeats,
                    std::cmp::Ordering::Greater => false,
                };
            if !is_next {
                self.note(leaf, "keys do not ascend in a block");
                return;
            }
            self.has_last = true;
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            self.report.records += 1;
            self.report.bytes += (key.len() + content.value.len()) as u64;
        }
        self.passed = leaf.ordinal.saturating_add(leaf.node.count() as u64);
        (self.progress)(self.passed, self.blocks.top.count);
    }
}
