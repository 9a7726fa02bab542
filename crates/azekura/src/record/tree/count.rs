//! Counting the records of a range.
//!
//! ```text
//!   from                                                   to
//!   leaf  [ looked at ] leaf leaf | page page | leaf leaf [ looked at ]
//!                       `--- sums (`sums`), the largest there are ---'
//! ```
//! Of the leaves at the ends the entries are looked at. Of what lies between, the sums below the largest pages that are wholly in the range
//! count: two rows of neighbours on each level, at most. One that is not known is summed up: from its children's, and from the numbers of
//! records of leaves, of which those that are on storage are stated by their places. So a count reads no leaf between the ends, but one
//! that has a list of long keys.
//!
//! A page's children are looked at between two looks at its latch's version, and count if no child came or went. So what no other thread changes is
//! counted exactly, whatever others do elsewhere. Where a page does not stay as it is for so long, or in memory, smaller ones are
//! counted, down to leaf by leaf.
//!
//! Where the order of keys is of the program's own, whose comparator may panic, no sum is kept: a change calls no comparator. A
//! snapshot is counted leaf by leaf.

use std::cmp::Ordering as Compared;
use std::ops::Bound;
use std::time::Duration;

use super::Core;
use super::cache::PageCache;
use super::cluster::{STEM, cluster_of, list_at, stem_of, stems_of};
use super::image::{list_of, lists_in};
use super::sums::{self, SumTurn};
use super::table::Location;
use super::view::View;
use super::walk::advance;
use crate::error::Result;
use crate::node::tree::{Begin, Frame, NodeStore, ROOT, Stated, Tree, entries_in};
use crate::node::{Key, LEVEL_MAX, Latch, Node};
use crate::order::{KeyBounds, Order, check_range, is_from, is_up_to};
use crate::room;

/// How often what changes, or gives way, is looked at again before less is looked at; and who changes a leaf looks for what lies above.
const TRIES: u32 = 16;
/// How long it waits for another thread's change.
const PATIENCE: Duration = Duration::from_micros(100);

/// Where a range begins.
pub(super) fn begin_of((from, _): KeyBounds<'_>) -> Result<Begin> {
    Ok(match from {
        Bound::Unbounded => Begin::First,
        Bound::Included(key) => Begin::At(room::copy(key)?),
        Bound::Excluded(key) => Begin::After(room::copy(key)?),
    })
}

/// How the end of a range is to the upper fence of a page: less, so it lies in the page or before it; equal, so the range ends with the
/// page; or greater.
fn end_to_fence(to: Bound<&[u8]>, fence: Option<&[u8]>, order: Order) -> Compared {
    match (to, fence) {
        (Bound::Unbounded, None) => Compared::Equal,
        (Bound::Unbounded, Some(_)) => Compared::Greater,
        (Bound::Included(_) | Bound::Excluded(_), None) => Compared::Less,
        (Bound::Included(to), Some(fence)) if order.compare(to, fence).is_eq() => Compared::Greater,
        (Bound::Included(to) | Bound::Excluded(to), Some(fence)) => order.compare(to, fence),
    }
}

/// What a look at a leaf of a range found, and where the next one begins, if that may have some of the range, too.
struct LeafOfRange {
    /// But for those whose keys have a stem's length.
    records: u64,
    /// Entries whose keys have a stem's length, and the word of a list.
    stems: Vec<(Vec<u8>, Option<u64>)>,
    next: Option<Vec<u8>>,
}

impl LeafOfRange {
    /// Of the leaf where a place is, of which `keys` end a range. Errors: `Full`.
    fn of(node: Node<'_>, from: &Begin, keys: KeyBounds<'_>, order: Order) -> Result<Self> {
        let mut fence = Key::default();
        let has_upper = node.upper(&mut fence).is_some();
        let end = end_to_fence(keys.1, has_upper.then(|| fence.bytes()), order);
        let upper = if end.is_lt() {
            keys.1
        } else {
            Bound::Unbounded
        };
        let lower = match from {
            Begin::First => Bound::Unbounded,
            Begin::At(key) => Bound::Included(&key[..]),
            Begin::After(key) => Bound::Excluded(&key[..]),
        };
        let entries = entries_in(node, (lower, upper));
        let mut records = entries.len() as u64;
        let mut stems = Vec::new();
        if order == Order::Lexical {
            let mut key = Key::default();
            for at in entries.filter(|at| node.key_len(*at) == STEM) {
                node.key(at, &mut key);
                room::more(&mut stems, 1)?;
                stems.push((room::copy(key.bytes())?, list_of(node.value(at))));
                records = records.saturating_sub(1);
            }
        }
        Ok(Self {
            records,
            stems,
            next: end.is_gt().then(|| fence.bytes().to_vec()),
        })
    }
}

/// Counts the leaf where a range begins; where the rest of it does, if there is one.
fn count_leaf(
    view: impl View,
    from: &Begin,
    (keys, stems): (KeyBounds<'_>, KeyBounds<'_>),
) -> Result<(u64, Option<Vec<u8>>)> {
    let order = view.core().tree.order;
    let look = |node: Node<'_>| LeafOfRange::of(node, from, stems, order);
    let found = view.look_at(from.to(), &look)??;
    let mut records = found.records;
    for (stem, list) in found.stems {
        records += match list {
            Some(word) => {
                let outside = |word| view.value_outside(word).map_err(|error| error.key(&stem));
                let cluster = cluster_of(view, &stem, word)?;
                cluster.within(&stem, keys, &outside)?.len() as u64
            }
            None => u64::from(is_from(keys, order, &stem) && is_up_to(keys, order, &stem)),
        };
    }
    Ok((records, found.next))
}

/// Records in a range, by the leaves between its ends.
pub(super) fn count_by_leaves(view: impl View, keys: KeyBounds<'_>) -> Result<u64> {
    let core = view.core();
    let order = core.tree.order;
    check_range(keys, order).map_err(|error| error.at(core.log.storage().path()))?;
    let stems = stems_of(order, keys);
    let mut from = begin_of(stems)?;
    let mut records = 0;
    loop {
        let _pin = core.log.pin();
        let (here, next) = count_leaf(view, &from, (keys, stems))?;
        records += here;
        match next {
            None => return Ok(records),
            Some(fence) => advance(view, &mut from, Begin::At(fence))?,
        }
    }
}

/// A page whose children are being looked at.
#[derive(Clone, Copy)]
struct Above<'c> {
    node: Node<'c>,
    latch: &'c Latch,
    version: u64,
}

impl Above<'_> {
    fn is_still(&self) -> bool {
        self.latch.is_still(self.version)
    }
}

/// Pages that are wholly in a range, one after the other.
struct Row {
    records: u64,
    /// Where the rest of the range begins, if there is one.
    next: Option<Vec<u8>>,
}

impl Core {
    /// Records in a range.
    pub(super) fn count_between(&self, keys: KeyBounds<'_>) -> Result<u64> {
        let order = self.tree.order;
        check_range(keys, order).map_err(|error| error.at(self.log.storage().path()))?;
        let stems = stems_of(order, keys);
        let turn = match order {
            Order::Registered(_) => None,
            _ => self.sums.turn(self.log.domain()),
        };
        let mut from = begin_of(stems)?;
        let mut records = 0;
        loop {
            let _pin = self.log.pin();
            let row = self.count_row(&from, stems.1, turn)?;
            let row = if let Some(row) = row {
                row
            } else {
                let (records, next) = count_leaf(self, &from, (keys, stems))?;
                Row { records, next }
            };
            records += row.records;
            match row.next {
                None => return Ok(records),
                Some(fence) => advance(self, &mut from, Begin::At(fence))?,
            }
        }
    }

    /// Counts the largest pages that begin where a range does and end with it or before, as far as they are neighbours below one page. `None`:
    /// it begins or ends within a leaf.
    fn count_row(
        &self,
        from: &Begin,
        to: Bound<&[u8]>,
        turn: Option<SumTurn>,
    ) -> Result<Option<Row>> {
        let top = self.levels().saturating_sub(1);
        for level in (1..=top).rev() {
            for _ in 0..TRIES {
                let Some(end) = self.tree.way(from.to(), level)? else {
                    break;
                };
                let version = end.frame.latch.begin();
                if !self.tree.is_still(&end) {
                    continue;
                }
                let above = Above {
                    node: self.node_of(end.frame),
                    latch: &end.frame.latch,
                    version,
                };
                let row = self.row_below(&above, from, to, turn)?;
                if row.is_some() {
                    return Ok(row);
                }
                if above.is_still() {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// As `count_row`, below one page, as far as that stays as it is.
    fn row_below(
        &self,
        above: &Above<'_>,
        from: &Begin,
        to: Bound<&[u8]>,
        turn: Option<SumTurn>,
    ) -> Result<Option<Row>> {
        let node = above.node;
        let order = self.tree.order;
        let mut fence = Key::default();
        let first = from.to().entry(node);
        let lower = node.lower_of(first, &mut fence).map(|()| fence.bytes());
        let begins = match (from, lower) {
            (Begin::First, None) => true,
            (Begin::At(key), Some(lower)) => order.compare(key, lower).is_eq(),
            (Begin::First | Begin::At(_) | Begin::After(_), _) => false,
        };
        let mut row: Option<Row> = None;
        let entries = if begins { first..node.count() } else { 0..0 };
        for at in entries {
            let upper = node.upper_of(at, &mut fence).map(|()| fence.bytes());
            let end = end_to_fence(to, upper, order);
            if end.is_lt() {
                break;
            }
            let next = match upper {
                Some(upper) if end.is_gt() => Some(room::copy(upper)?),
                _ => None,
            };
            let records = self.below(above, at, turn);
            if !above.is_still() {
                break;
            }
            let Some(records) = records? else { break };
            row = Some(Row {
                records: records + row.map_or(0, |row| row.records),
                next,
            });
            if end.is_eq() {
                break;
            }
        }
        Ok(row)
    }

    /// Records below a child, or in it; `None`: it is not known, as the page above, or what lies below, did not stay as it was.
    fn below(&self, above: &Above<'_>, at: usize, turn: Option<SumTurn>) -> Result<Option<u64>> {
        match above.node.level() {
            1 => self.in_leaf(above, at),
            _ => self.below_inner(above, at, turn),
        }
    }

    fn in_leaf(&self, above: &Above<'_>, at: usize) -> Result<Option<u64>> {
        let pages = &self.tree.nodes;
        let number = above.node.child(at);
        for _ in 0..TRIES {
            let frame = match pages.table.at(number) {
                Location::Hot(frame) | Location::Cool(frame) => pages.at(frame),
                Location::Cold(place) => {
                    // Where nothing waited for it, and it is still there, nothing was merged meanwhile.
                    let is_as_stored = !pages.has_waiting(number)
                        && pages.table.at(number) == Location::Cold(place);
                    if is_as_stored && let Some(records) = place.records() {
                        return Ok(Some(u64::from(records)));
                    }
                    self.load_below(above, at)?;
                    continue;
                }
                Location::Empty => {
                    if above.is_still() && !pages.load_chunk(number)? {
                        self.load_below(above, at)?;
                    }
                    continue;
                }
            };
            let version = frame.latch.begin();
            if !pages.holds(frame, number) {
                continue;
            }
            let leaf = self.node_of(frame);
            let count = leaf.count();
            let mut lists = Vec::new();
            for word in lists_in(leaf, self.tree.order) {
                room::more(&mut lists, 1)?;
                lists.push(word);
            }
            if !frame.latch.is_still(version) {
                continue;
            }
            let mut records = (count - lists.len().min(count)) as u64;
            for word in lists {
                records += list_at(self, word)?.count() as u64;
            }
            return Ok(Some(records));
        }
        Ok(None)
    }

    fn below_inner(
        &self,
        above: &Above<'_>,
        at: usize,
        turn: Option<SumTurn>,
    ) -> Result<Option<u64>> {
        let pages = &self.tree.nodes;
        let number = above.node.child(at);
        for _ in 0..TRIES {
            if !above.is_still() {
                break;
            }
            let Some(frame) = pages.frame(number) else {
                self.load_below(above, at)?;
                continue;
            };
            let version = frame.latch.begin();
            let here = Above {
                node: self.node_of(frame),
                latch: &frame.latch,
                version,
            };
            let is_child = pages.holds(frame, number)
                && here.node.level().checked_add(1) == Some(above.node.level());
            if !is_child {
                continue;
            }
            let sum = &pages.about(pages.number_of(frame)).sum;
            if let Some(known) = turn.and_then(|turn| sum.known(turn)) {
                if here.is_still() {
                    return Ok(Some(known));
                }
                continue;
            }
            let summing = turn.map(|turn| self.sums.begin(sum, turn));
            let children = (0..here.node.count()).try_fold(Some(0), |sum, at| match sum {
                Some(sum) => Ok(self.below(&here, at, turn)?.map(|records| sum + records)),
                None => Ok(None),
            });
            if here.is_still()
                && let Some(children) = children?
            {
                if let Some(summing) = summing {
                    summing.finish(children);
                }
                return Ok(Some(children));
            }
        }
        Ok(None)
    }

    /// Brings a child into memory, if the page above is still as it was.
    fn load_below(&self, above: &Above<'_>, at: usize) -> Result<()> {
        let number = above.node.child(at);
        let parent = (above.latch, above.version);
        let load = |number, stated: &Stated<'_>| self.tree.nodes.load(number, stated);
        Tree::<PageCache>::load_child(above.node, at, number, parent, &load)
    }

    /// Makes unknown how many records lie above a leaf that is held and being changed, so that their number is another.
    #[cold]
    #[inline(never)]
    pub(super) fn forget_sums(&self, key: &[u8]) {
        for _ in 0..TRIES {
            if self.try_forget_sums(stem_of(key)) == Some(()) {
                return;
            }
        }
        self.sums.rest();
    }

    /// `None`: what lies above was changed meanwhile, or is not in memory.
    fn try_forget_sums(&self, stem: &[u8]) -> Option<()> {
        let pages = &self.tree.nodes;
        let mut way: [Option<(&Frame, u64)>; LEVEL_MAX as usize + 1] =
            [None; LEVEL_MAX as usize + 1];
        let mut number = ROOT;
        for at in &mut way {
            let (Location::Hot(there) | Location::Cool(there)) = pages.table.at(number) else {
                return None;
            };
            let frame = pages.at(there);
            let version = frame.latch.begin_within(PATIENCE)?;
            let node = self.node_of(frame);
            let (level, child) = (node.level(), node.child(node.child_of(stem)));
            let is_right = pages.holds(frame, number) && frame.latch.is_still(version);
            is_right.then_some(())?;
            if level == 0 {
                break;
            }
            *at = Some((frame, version));
            number = child;
            // A page above leaves that is not in memory has no sum.
            let is_cold = matches!(pages.table.at(child), Location::Cold(_));
            if level == 1 || level == 2 && is_cold {
                break;
            }
        }
        let inner = way.iter().flatten().rev();
        sums::forget(inner.map(|(frame, _)| &pages.about(pages.number_of(frame)).sum));
        way.iter()
            .flatten()
            .all(|(frame, version)| frame.latch.is_still(*version))
            .then_some(())
    }
}
