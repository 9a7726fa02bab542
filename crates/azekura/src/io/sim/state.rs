//! What is durable, and what is pending: the rules of loss of power.
//!
//! An *atom* is what the device writes as a whole (512 bytes by default).
//!
//! 1. A power cut leaves each atom as some prefix of the changes that touched it since its floor made it;
//!    atoms choose independently. So writes are reordered and torn. Stores through a map are no better:
//!    the kernel writes any dirty page at any time.
//! 2. A sync that returned raises the floor of the file over all that came before the sync *began*. One
//!    that has not returned raises nothing.
//! 3. The size is some prefix of its changes. New room reads as zeros. Once a size is there, so is the
//!    cut it came with: cut bytes do not come back with a later growth.
//! 4. Names change only with a sync of the folder; each change of names is there or not, as a whole.
//! 5. A failed sync raises nothing, and no later sync helps the atoms that were pending then, until they
//!    are written again: the cache believes them clean. Dropping the cache shows what the device has.
//! 6. Damage (`rot`) is durable at once.
//! 7. A durable write that returned raises the floor of its own atoms over all that came before it, and of
//!    the size as far as its bytes need it; of nothing else. Until it returns it is a write.
//! 8. A file without a name is gone with the next power cut, whatever was synced of it.
//!
//! It does not choose: `cut` does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::event::{Event, FileId};
use super::pages::Pages;

/// What the device writes as a whole or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atom {
    /// 64 bytes: the device may catch a page between two stores of cache lines.
    Line,
    /// 512 bytes: what devices promise.
    Sector,
    /// 4 KiB: what some devices promise.
    Page,
}

impl Atom {
    fn size(self) -> u64 {
        match self {
            Self::Line => 64,
            Self::Sector => 512,
            Self::Page => 4096,
        }
    }
}

/// A disk at one moment.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// How often power was lost.
    pub(super) boot: u64,
    pub(super) atom: Atom,
    /// Number of the next event.
    pub(super) next: u64,
    pub(super) files: Vec<FileState>,
    pub(super) names: BTreeMap<PathBuf, FileId>,
    pub(super) pending_names: Vec<(u64, NameChange)>,
}

/// A change of names.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Create(PathBuf, FileId),
    Rename(PathBuf, PathBuf, FileId),
    Remove(PathBuf),
}

impl NameChange {
    pub(super) fn apply(&self, names: &mut BTreeMap<PathBuf, FileId>) {
        match self {
            Self::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

/// A file at one moment. Bytes past its size are zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct FileState {
    base: Pages,
    pub(super) size: u64,
    /// Number of the event, and the size since.
    pub(super) sizes: Vec<(u64, u64)>,
    pub(super) dirty: BTreeMap<u64, Dirty>,
}

/// An atom with pending changes, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    pub(super) changes: Vec<Change>,
    /// A sync that began at this event failed: what was pending then is believed clean.
    doomed: u64,
}

impl Dirty {
    /// Whether the cache believes the device has it all, wrongly.
    fn is_doomed(&self) -> bool {
        self.changes
            .last()
            .is_some_and(|last| last.event < self.doomed)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) event: u64,
    /// Bytes of the atom that change.
    start: usize,
    end: usize,
    /// What they become, from that index on; `None`: zeros.
    data: Option<(Arc<[u8]>, usize)>,
    /// It comes with a new size.
    cut: bool,
}

impl Change {
    fn apply(&self, atom: &mut [u8]) {
        let end = self.end.min(atom.len());
        let Some(target) = atom.get_mut(self.start..end) else {
            return;
        };
        match &self.data {
            Some((bytes, from)) => target.copy_from_slice(&bytes[*from..from + target.len()]),
            None => target.fill(0),
        }
    }
}

impl State {
    pub(super) fn new(atom: Atom) -> Self {
        Self {
            boot: 0,
            atom,
            next: 0,
            files: Vec::new(),
            names: BTreeMap::new(),
            pending_names: Vec::new(),
        }
    }

    /// The names as a running system sees them.
    pub(super) fn visible_names(&self) -> BTreeMap<PathBuf, FileId> {
        let mut names = self.names.clone();
        self.pending_names
            .iter()
            .for_each(|(_, change)| change.apply(&mut names));
        names
    }

    /// Files that have a name, or may have one after a power cut.
    pub(super) fn reachable(&self) -> BTreeSet<FileId> {
        let pending = self
            .pending_names
            .iter()
            .filter_map(|(_, change)| match change {
                NameChange::Create(_, file) | NameChange::Rename(_, _, file) => Some(*file),
                NameChange::Remove(_) => None,
            });
        self.names.values().copied().chain(pending).collect()
    }

    /// Goes one event on.
    pub(super) fn fold(&mut self, event: &Event) {
        let number = self.next;
        self.next += 1;
        let atom = self.atom.size();
        match event {
            Event::Write {
                file,
                offset,
                bytes,
                ..
            } => {
                self.files[*file].change(atom, number, *offset, bytes);
            }
            Event::Discard { file, offset, len } => {
                self.files[*file].zero(atom, number, *offset, *len, false);
            }
            Event::Resize { file, from, to } => {
                let state = &mut self.files[*file];
                state.sizes.push((number, *to));
                if to < from {
                    state.zero(atom, number, *to, from - to, true);
                }
            }
            Event::SyncBegin { .. } | Event::SyncNamesBegin => {}
            Event::SyncEnd {
                file,
                begin,
                range,
                ok,
            } => self.files[*file].synced(atom, *begin, *range, *ok),
            Event::CreateNameless { file } => self.add_file(*file),
            Event::Create { name, file } => {
                self.add_file(*file);
                self.pending_names
                    .push((number, NameChange::Create(name.clone(), *file)));
            }
            Event::Rename { from, to, file } => {
                let change = NameChange::Rename(from.clone(), to.clone(), *file);
                self.pending_names.push((number, change));
            }
            Event::Remove { name } => {
                self.pending_names
                    .push((number, NameChange::Remove(name.clone())));
            }
            Event::SyncNamesEnd { begin, ok } => {
                let covered = if *ok { *begin } else { 0 };
                let count = self
                    .pending_names
                    .partition_point(|(event, _)| *event < covered);
                for (_, change) in self.pending_names.drain(..count) {
                    change.apply(&mut self.names);
                }
            }
            Event::Evict { file, shown } => {
                for (index, prefix) in shown {
                    self.files[*file].make_durable(atom, *index, *prefix);
                    self.files[*file].dirty.remove(index);
                }
            }
            Event::Rot {
                file,
                offset,
                mask,
                seen,
            } => {
                self.files[*file].rot(atom, number, *offset, *mask, *seen);
            }
        }
    }

    fn add_file(&mut self, file: FileId) {
        self.files
            .resize_with(self.files.len().max(file + 1), FileState::default);
    }

    /// A file of another boot: all of it durable.
    pub(super) fn file_of(base: Pages, size: u64) -> FileState {
        FileState {
            base,
            size,
            ..FileState::default()
        }
    }

    /// What a running system sees of a file, and its size.
    pub(super) fn visible(&self, file: FileId) -> (Pages, u64) {
        let state = &self.files[file];
        let size = state.sizes.last().map_or(state.size, |(_, size)| *size);
        (
            state.image(self.atom, size, |dirty| dirty.changes.len()),
            size,
        )
    }

    /// The atoms of a file that dropping the cache would change, with the number of their changes.
    pub(super) fn doomed(&self, file: FileId) -> Vec<(u64, usize)> {
        let doomed = self.files[file]
            .dirty
            .iter()
            .filter(|(_, dirty)| dirty.is_doomed());
        doomed
            .map(|(index, dirty)| (*index, dirty.changes.len()))
            .collect()
    }
}

impl FileState {
    fn change(&mut self, atom: u64, event: u64, offset: u64, bytes: &Arc<[u8]>) {
        for (index, start, end, from) in pieces(atom, offset, bytes.len() as u64) {
            let data = Some((Arc::clone(bytes), from));
            let change = Change {
                event,
                start,
                end,
                data,
                cut: false,
            };
            self.dirty.entry(index).or_default().changes.push(change);
        }
    }

    /// Zeroes a range; atoms that are known to be zero are left alone.
    fn zero(&mut self, atom: u64, event: u64, offset: u64, len: u64, cut: bool) {
        for (index, start, end, _) in pieces(atom, offset, len) {
            let span = index * atom..(index + 1) * atom;
            let base = self.base.get(span).unwrap_or_default();
            if self.dirty.contains_key(&index) || base.iter().any(|byte| *byte != 0) {
                let change = Change {
                    event,
                    start,
                    end,
                    data: None,
                    cut,
                };
                self.dirty.entry(index).or_default().changes.push(change);
            }
        }
    }

    /// Makes the first `prefix` changes of an atom durable.
    fn make_durable(&mut self, atom: u64, index: u64, prefix: usize) {
        let Some(dirty) = self.dirty.get_mut(&index) else {
            return;
        };
        let target = self.base.get_mut(index * atom..(index + 1) * atom);
        dirty
            .changes
            .drain(..prefix)
            .for_each(|change| change.apply(target));
    }

    fn synced(&mut self, atom: u64, begin: u64, range: Option<(u64, u64)>, ok: bool) {
        let atoms = match range {
            None => 0..u64::MAX,
            Some((offset, len)) => offset / atom..(offset + len).div_ceil(atom),
        };
        if !ok {
            self.dirty
                .range_mut(atoms)
                .for_each(|(_, dirty)| dirty.doomed = begin);
            return;
        }
        let began = self.sizes.partition_point(|(event, _)| *event < begin);
        let sizes = match range {
            None => began,
            Some((offset, len)) => self.sizes_up_to(began, offset + len),
        };
        let mut resized = 0;
        if let Some((event, size)) = self.sizes.drain(..sizes).next_back() {
            (resized, self.size) = (event, size);
        }
        let indexes: Vec<u64> = self.dirty.keys().copied().collect();
        for index in indexes {
            let dirty = &self.dirty[&index];
            let covered = if atoms.contains(&index) {
                dirty.changes.partition_point(|change| change.event < begin)
            } else {
                // Rule 3: a cut comes with its size.
                Self::least(dirty, resized)
            };
            // Rule 5: nothing was written to it since the failed sync.
            if covered == 0 || dirty.changes[covered - 1].event < dirty.doomed {
                continue;
            }
            self.make_durable(atom, index, covered);
            if self.dirty[&index].changes.is_empty() {
                self.dirty.remove(&index);
            }
        }
    }

    /// How many of the first `began` changes of the size must be there so that it is never below `end`.
    fn sizes_up_to(&self, began: usize, end: u64) -> usize {
        let short = self.sizes[..began]
            .iter()
            .rposition(|(_, size)| *size < end);
        match short {
            Some(last) => (last + 2).min(began),
            None if self.size < end => began.min(1),
            None => 0,
        }
    }

    fn rot(&mut self, atom: u64, event: u64, offset: u64, mask: u8, seen: u8) {
        self.base.get_mut(offset..offset + 1)[0] ^= mask;
        if self.dirty.contains_key(&(offset / atom)) {
            self.change(atom, event, offset, &Arc::from([seen]));
        }
    }

    /// How many changes of an atom there are at least, when the size is the one since `event`.
    pub(super) fn least(dirty: &Dirty, event: u64) -> usize {
        let cut = |change: &Change| change.cut && change.event <= event;
        dirty
            .changes
            .iter()
            .rposition(cut)
            .map_or(0, |last| last + 1)
    }

    /// The bytes, if each atom has the changes `prefix` states.
    pub(super) fn image(
        &self,
        atom: Atom,
        size: u64,
        mut prefix: impl FnMut(&Dirty) -> usize,
    ) -> Pages {
        let mut pages = self.base.clone();
        for (index, dirty) in &self.dirty {
            let prefix = prefix(dirty);
            if index * atom.size() < size && prefix > 0 {
                let target = pages.get_mut(Self::span(atom, *index));
                dirty.changes[..prefix]
                    .iter()
                    .for_each(|change| change.apply(target));
            }
        }
        pages.truncate(size);
        pages
    }

    /// The bytes of the file an atom takes.
    pub(super) fn span(atom: Atom, index: u64) -> std::ops::Range<u64> {
        index * atom.size()..(index + 1) * atom.size()
    }
}

/// A range, atom by atom: index, first and last byte in the atom, and where it stands in the range.
fn pieces(atom: u64, offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let end = offset + len;
    (offset / atom..end.div_ceil(atom))
        .filter(move |_| len > 0)
        .map(move |index| {
            let first = offset.max(index * atom);
            let last = end.min((index + 1) * atom);
            let start = (first - index * atom) as usize;
            (
                index,
                start,
                start + (last - first) as usize,
                (first - offset) as usize,
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_what_came_before_it_began_and_not_what_came_meanwhile() {
        let mut state = State::new(Atom::Sector);
        let write = |offset| Event::Write {
            file: 0,
            offset,
            bytes: [1].into(),
            mapped: true,
        };
        state.fold(&Event::Create {
            name: "a".into(),
            file: 0,
        });
        state.fold(&Event::Resize {
            file: 0,
            from: 0,
            to: 2048,
        });
        state.fold(&write(0));
        state.fold(&Event::SyncBegin { file: 0 });
        state.fold(&write(512));
        state.fold(&write(0));
        state.fold(&Event::SyncEnd {
            file: 0,
            begin: 3,
            range: None,
            ok: true,
        });
        let pending: Vec<u64> = state.files[0].dirty.keys().copied().collect();
        assert_eq!(pending, [0, 1]);
        assert_eq!(state.files[0].dirty[&0].changes.len(), 1);
        assert_eq!((state.files[0].size, state.files[0].sizes.len()), (2048, 0));
        let durable = state.files[0].image(state.atom, 2048, |_| 0);
        assert_eq!(durable.get(0..2), Some(&[1, 0][..]));
    }

    #[test]
    fn a_range_is_taken_apart_at_the_atoms() {
        let split: Vec<_> = pieces(512, 500, 600).collect();
        assert_eq!(split, [(0, 500, 512, 0), (1, 0, 512, 12), (2, 0, 76, 524)]);
        assert_eq!(pieces(512, 512, 0).count(), 0);
    }
}
