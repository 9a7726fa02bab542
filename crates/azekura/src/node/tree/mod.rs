//! The tree of nodes: the way down without locks, the locks, and how nodes divide and join.
//!
//! Promises: a reader takes no lock and stores nothing; an update locks the node at the end of its way, and of the nodes above only
//! those that change with it. On an error nothing is changed. It does not know where nodes live, what makes them durable, nor what
//! values mean: a [`NodeStore`] does, in memory or in a file.
//!
//! A node on the way is read between two looks at its latch's version, and the descent continues only if they were equal; the
//! version of a child is taken before the parent's second look, so the child was the right one then. Who wants to change
//! something locks the one node at the end of the way, and looks at the parent once more. A node that is not in memory is
//! loaded while nothing is locked for the way, which then begins again.
//!
//! Lock order: nodes from the leaves upward; leaves among each other by rising keys. A neighbour to be joined is on the same
//! level, and out of order: it is only tried. Only a thread that holds nothing waits for a lock come what may. So no two threads wait for each other, and no change locks more than a node, its
//! new half or its neighbour, and their parents as far as they change too.
//!
//! Invariants: fences of a node are keys of its parent's entries, its own and the next; a level of the tree covers all
//! keys, each once; what is dead has no entry. The root has no fences, and its number is the same all the tree's life. A change
//! begins when all nodes that it changes are locked, and compares no keys: a comparator of a program's own may panic.

mod change;
mod last_leaf;
mod many;
mod range;
mod read;
mod walk;

use std::num::NonZeroU64;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::{Key, Latch, Locked, Node};
use crate::error::{Error, Result};
use crate::order::Order;

pub use change::is_sparse;
pub use last_leaf::next_instance;
pub use many::{EntryChange, EntryPlace};
pub use range::{Excision, RangeVisitor, Seam, entries_in};
pub use read::{Buffer, Seen};
pub use walk::{Begin, LeafCopy, Looked, Place};

/// Bytes of a frame.
pub const FRAME: u64 = 4096;
/// Words of a frame after its latch.
pub const FRAME_WORDS: usize = (FRAME as usize - size_of::<Latch>()) / 8;
/// The number of the root.
pub const ROOT: u32 = 0;
/// Lines at a frame's beginning that a search may touch: header and slots.
pub const LINES_OF_LEAF: usize = 20;
const LINES_OF_INNER: usize = 2;
/// How long a thread that holds nodes waits for another before it looks whether that is still the right one.
const PATIENCE: Duration = Duration::from_millis(1);

/// The memory of a node, and its latch. Once made it stays a frame for as long as the store lives, whatever it holds: a reader may
/// look at any frame at any time.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Frame {
    /// Guards it.
    pub latch: Latch,
    /// What it holds: a node's words, and what the store keeps next to them.
    pub words: [AtomicU64; FRAME_WORDS],
}

const _: () = assert!(size_of::<Frame>() as u64 == FRAME);

/// Where the nodes of a tree live, by number.
pub trait NodeStore {
    /// Why a node cannot be loaded.
    type Fault;
    /// A moment at which nodes change, in the history of the store; they have changed when it is dropped.
    type Moment;
    /// What a new node is charged to.
    type Charge: Copy;

    /// What a fault is to callers.
    fn error(fault: Self::Fault) -> Error;

    /// The node in a frame, which is one of the store's; it may have more words than a [`Frame`], after these.
    fn node<'f>(&'f self, frame: &'f Frame) -> Node<'f>;
    /// The frame of a node; `None`: it is not in memory. What is no node's number has some frame, or none.
    fn frame(&self, number: u32) -> Option<&Frame>;
    /// Whether a frame holds this node. Asked between two looks at the version of its latch, or under its lock.
    fn holds(&self, frame: &Frame, number: u32) -> bool;
    /// Brings a node into memory, if it is not there, and is what the node above states of it.
    fn load(&self, number: u32, stated: &Stated<'_>) -> std::result::Result<(), Self::Fault>;
    /// Asks the CPU for the first `lines` lines of a node's frame.
    fn prefetch(&self, number: u32, lines: usize);

    /// A number that no other store of this process has or had, if a node that goes is dead, or being changed, before a reader finds what takes its
    /// place.
    #[inline(always)]
    fn instance(&self) -> Option<NonZeroU64> {
        None
    }

    /// A new node, locked, being changed, and of no use to anybody yet.
    fn take(&self, charge: Self::Charge) -> Result<Held<'_>>;
    /// Takes back a new node that was not made use of.
    fn give_back(&self, held: Held<'_>);
    /// Takes back a node that nothing has pointed to yet, wherever it is.
    fn give_back_number(&self, number: u32) {
        if let Some(frame) = self.frame(number) {
            self.give_back(Held::lock(number, frame));
        }
    }
    /// The moment of a change, all nodes of which are locked.
    fn moment(&self) -> Result<Self::Moment>;
    /// Begins to change a node: readers wait until its lock is dropped.
    fn change(&self, held: &Held<'_>, moment: &Self::Moment);
    /// Takes a node out of use. Nothing points to it any more.
    fn give(&self, held: Held<'_>, moment: &Self::Moment);
    /// As a change and `give`, of a node that nothing points to any more, wherever it is, by a thread that is alone.
    fn give_number(&self, number: u32, moment: &Self::Moment) {
        if let Some(frame) = self.frame(number) {
            let held = Held::lock(number, frame);
            self.change(&held, moment);
            self.give(held, moment);
        }
    }
}

/// What the node above states of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stated<'k> {
    /// Its level; `None`: it is the root.
    pub level: Option<u8>,
    /// Its lower fence.
    pub lower: Option<&'k [u8]>,
    /// Its upper fence.
    pub upper: Option<&'k [u8]>,
}

impl Stated<'_> {
    /// Whether that is what the node states of itself.
    pub fn holds_of(&self, node: Node<'_>) -> bool {
        let mut fence = Key::default();
        let is_lower = node.lower(&mut fence).map(|()| fence.bytes()) == self.lower;
        let is_upper = node.upper(&mut fence).map(|()| fence.bytes()) == self.upper;
        is_lower && is_upper && self.level.is_none_or(|level| node.level() == level)
    }
}

/// Where a way leads: before or at a key.
#[derive(Clone, Copy, Debug)]
pub enum To<'k> {
    /// The node where this key is or would be.
    Key(&'k [u8]),
    /// The node with the greatest keys less than this; `None`: with the greatest of all.
    Before(Option<&'k [u8]>),
    /// The node with the least keys.
    First,
}

impl To<'_> {
    /// Where the way continues from an inner node.
    #[inline(always)]
    pub fn entry(self, node: Node<'_>) -> usize {
        match self {
            To::Key(key) => node.child_of(key),
            To::Before(key) => node.child_before(key),
            To::First => 0,
        }
    }
}

/// The end of a way, and what must still hold for it to count.
#[derive(Clone, Copy, Debug)]
pub struct Descent<'t> {
    /// The node's number.
    pub number: u32,
    /// Its frame.
    pub frame: &'t Frame,
    /// Guards the node above; of the root, itself.
    pub parent: &'t Latch,
    /// Of that.
    pub version: u64,
}

/// A node, locked.
#[derive(Debug)]
pub struct Held<'t> {
    /// Its number.
    pub number: u32,
    /// Its frame.
    pub frame: &'t Frame,
    /// Its lock.
    pub lock: Locked<'t>,
}

impl<'t> Held<'t> {
    /// Waits for the lock of a node.
    #[inline(always)]
    pub fn lock(number: u32, frame: &'t Frame) -> Self {
        let lock = frame.latch.lock();
        Self {
            number,
            frame,
            lock,
        }
    }

    /// The node, if no thread has its lock.
    pub fn try_lock(number: u32, frame: &'t Frame) -> Option<Self> {
        let lock = frame.latch.try_lock()?;
        Some(Self {
            number,
            frame,
            lock,
        })
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Tree<S> {
    /// The order of keys.
    pub order: Order,
    /// Where its nodes are.
    pub nodes: S,
}

impl<S: NodeStore> Tree<S> {
    /// The node in a frame.
    #[inline(always)]
    pub fn node<'f>(&'f self, frame: &'f Frame) -> Node<'f> {
        self.nodes.node(frame)
    }

    /// Whether a way still leads to its end. Asked after a look at the version of the end's latch, or under its lock.
    #[inline(always)]
    pub fn is_still(&self, end: &Descent<'_>) -> bool {
        self.nodes.holds(end.frame, end.number) && end.parent.is_still(end.version)
    }

    /// The way down to `level`; `None`: the root is below it.
    #[inline(always)]
    pub fn way(
        &self,
        to: To<'_>,
        level: u32,
    ) -> std::result::Result<Option<Descent<'_>>, S::Fault> {
        self.way_by(to, level, &|number, stated| self.nodes.load(number, stated))
    }

    /// As `way`; `load` brings nodes into memory, or ends it.
    #[inline(always)]
    pub fn way_by<F>(
        &self,
        to: To<'_>,
        level: u32,
        load: &impl Fn(u32, &Stated<'_>) -> std::result::Result<(), F>,
    ) -> std::result::Result<Option<Descent<'_>>, F> {
        'again: loop {
            let Some(mut frame) = self.nodes.frame(ROOT) else {
                load(ROOT, &Stated::default())?;
                continue;
            };
            let Some(mut version) = self.begin_at(frame, ROOT, None) else {
                continue;
            };
            if !self.nodes.holds(frame, ROOT) {
                continue;
            }
            let mut at = u32::from(self.node(frame).level());
            if at <= level {
                let end = Descent {
                    number: ROOT,
                    frame,
                    parent: &frame.latch,
                    version,
                };
                if !end.parent.is_still(version) {
                    continue;
                }
                return Ok((at == level).then_some(end));
            }
            loop {
                let parent = &frame.latch;
                let node = self.node(frame);
                let entry = to.entry(node);
                let number = node.child(entry);
                at -= 1;
                let lines = if at == 0 {
                    LINES_OF_LEAF
                } else {
                    LINES_OF_INNER
                };
                self.nodes.prefetch(number, lines);
                if !parent.is_still(version) {
                    continue 'again;
                }
                let Some(child) = self.nodes.frame(number) else {
                    Self::load_child(node, entry, number, (parent, version), load)?;
                    continue 'again;
                };
                if at == level {
                    return Ok(Some(Descent {
                        number,
                        frame: child,
                        parent,
                        version,
                    }));
                }
                let Some(seen) = self.begin_at(child, number, Some((parent, version))) else {
                    continue 'again;
                };
                if !self.nodes.holds(child, number) || !parent.is_still(version) {
                    continue 'again;
                }
                (frame, version) = (child, seen);
            }
        }
    }

    /// Loads the child of an entry. What fails counts only if the node above is still what it was.
    #[cold]
    #[inline(never)]
    pub fn load_child<F>(
        above: Node<'_>,
        entry: usize,
        number: u32,
        (latch, version): (&Latch, u64),
        load: &impl Fn(u32, &Stated<'_>) -> std::result::Result<(), F>,
    ) -> std::result::Result<(), F> {
        let (mut low, mut up) = (Key::default(), Key::default());
        let stated = Stated {
            level: above.level().checked_sub(1),
            lower: above.lower_of(entry, &mut low).map(|()| low.bytes()),
            upper: above.upper_of(entry, &mut up).map(|()| up.bytes()),
        };
        if !latch.is_still(version) {
            return Ok(());
        }
        let loaded = load(number, &stated);
        if latch.is_still(version) {
            loaded
        } else {
            Ok(())
        }
    }

    /// The version with which reading a node on the way begins; `None`: the way no longer leads there. The frame may be another
    /// node's by now, whose holder waits for the caller: so it waits for no thread without looking again.
    #[inline(always)]
    fn begin_at(&self, frame: &Frame, number: u32, parent: Option<(&Latch, u64)>) -> Option<u64> {
        if let Some(version) = frame.latch.try_begin() {
            return Some(version);
        }
        self.begin_later(frame, number, parent)
    }

    #[cold]
    #[inline(never)]
    fn begin_later(
        &self,
        frame: &Frame,
        number: u32,
        parent: Option<(&Latch, u64)>,
    ) -> Option<u64> {
        loop {
            if let Some(version) = frame.latch.begin_within(PATIENCE) {
                return Some(version);
            }
            let is_there = self
                .nodes
                .frame(number)
                .is_some_and(|now| std::ptr::eq(now, frame));
            if !is_there || parent.is_some_and(|(latch, version)| !latch.is_still(version)) {
                return None;
            }
        }
    }

    /// The way to a leaf.
    #[inline(always)]
    pub fn way_to_leaf(&self, to: To<'_>) -> std::result::Result<Descent<'_>, S::Fault> {
        loop {
            if let Some(end) = self.way(to, 0)? {
                return Ok(end);
            }
        }
    }

    /// Locks the root.
    pub fn lock_root(&self) -> std::result::Result<Held<'_>, S::Fault> {
        loop {
            let Some(frame) = self.nodes.frame(ROOT) else {
                self.nodes.load(ROOT, &Stated::default())?;
                continue;
            };
            let held = Held::lock(ROOT, frame);
            if self.nodes.holds(frame, ROOT) {
                return Ok(held);
            }
        }
    }

    /// Locks the leaf where `key` is or would be.
    #[inline(always)]
    pub fn lock_leaf(&self, key: &[u8]) -> std::result::Result<Held<'_>, S::Fault> {
        loop {
            if let Some(held) = self.lock(key, 0)? {
                return Ok(held);
            }
        }
    }

    /// As `lock_leaf`; `load` brings nodes into memory, or ends it.
    #[inline(always)]
    pub fn lock_leaf_by<F>(
        &self,
        key: &[u8],
        load: &impl Fn(u32, &Stated<'_>) -> std::result::Result<(), F>,
    ) -> std::result::Result<Held<'_>, F> {
        loop {
            if let Some(held) = self.lock_by(key, 0, load)? {
                return Ok(held);
            }
        }
    }

    /// Locks the node of `level` that covers `key`; `None`: the root is below it.
    #[inline(always)]
    fn lock(&self, key: &[u8], level: u32) -> std::result::Result<Option<Held<'_>>, S::Fault> {
        self.lock_by(key, level, &|number, stated| {
            self.nodes.load(number, stated)
        })
    }

    #[inline(always)]
    fn lock_by<F>(
        &self,
        key: &[u8],
        level: u32,
        load: &impl Fn(u32, &Stated<'_>) -> std::result::Result<(), F>,
    ) -> std::result::Result<Option<Held<'_>>, F> {
        loop {
            let end = match level {
                0 => self.way_to_leaf_of(key, load)?,
                _ => self.way_by(To::Key(key), level, load)?,
            };
            let Some(end) = end else {
                return Ok(None);
            };
            let held = Held::lock(end.number, end.frame);
            // No thread changed the parent, or at least this is still the right one: no thread changes it any more.
            let is_right = self.is_still(&end) || self.is_place_of(&held, key, level);
            if is_right {
                return Ok(Some(held));
            }
        }
    }

    /// As `lock`, for a thread that holds other nodes. One that waits for a frame that meanwhile holds another node would wait in no
    /// order: whether the way still leads there is checked again and again.
    fn lock_besides(
        &self,
        to: To<'_>,
        level: u32,
    ) -> std::result::Result<Option<Held<'_>>, S::Fault> {
        loop {
            let Some(end) = self.way(to, level)? else {
                return Ok(None);
            };
            let held = loop {
                if let Some(lock) = end.frame.latch.lock_for(PATIENCE) {
                    break Some(Held {
                        number: end.number,
                        frame: end.frame,
                        lock,
                    });
                }
                if !self.is_still(&end) {
                    break None;
                }
            };
            if let Some(held) = held
                && self.is_still(&end)
            {
                return Ok(Some(held));
            }
        }
    }

    /// Locks a leaf for a thread that holds leaves with lesser keys.
    pub fn lock_next_leaf(&self, to: To<'_>) -> std::result::Result<Held<'_>, S::Fault> {
        loop {
            if let Some(held) = self.lock_besides(to, 0)? {
                return Ok(held);
            }
        }
    }

    #[cold]
    fn is_place_of(&self, held: &Held<'_>, key: &[u8], level: u32) -> bool {
        let node = self.node(held.frame);
        self.nodes.holds(held.frame, held.number)
            && !held.lock.is_dead()
            && u32::from(node.level()) == level
            && node.covers(key)
    }
}
