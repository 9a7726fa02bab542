//! The running side: files in memory that record what is done to them.
//!
//! A file's bytes stand in one anonymous map for the life of the disk, so that plain loads see them; an observer
//! turns each store into an event. Contents are laid out when a file is first opened: a disk that came
//! out of a cut costs nothing for files that are not opened.
//!
//! Lock order: the files of the disk, then the log. It does not know what may be lost: see `state`.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::cut::Replay;
use super::event::{Event, FileId, Log};
use super::fault::{Fault, Faults, Operation, SECTOR, Unreadable};
use super::pages::PAGE;
use super::state::{FileState, State};
use super::{Dice, SimDisk, mix};
use crate::error::{Error, Kind, Result, size};
use crate::explore::Mutex;
use crate::io::mmap::WriteObserver;
use crate::io::{Access, Directory, Map, Storage};

/// Addresses reserved for each file.
pub(super) const MAP_CAPACITY: u64 = 64 << 20;

thread_local! {
    /// What a store into a map means on this thread just now.
    static STORING: Cell<Storing> = const { Cell::new(Storing::Mapped) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Storing {
    /// The engine stores.
    Mapped,
    /// `write_at` does.
    Written,
    /// The disk does: no event.
    Unheard,
}

fn storing<T>(how: Storing, act: impl FnOnce() -> T) -> T {
    let before = STORING.replace(how);
    let done = act();
    STORING.set(before);
    done
}

/// What clones of a disk share.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) seed: u64,
    pub(super) start: State,
    pub(super) log: Arc<Log>,
    pub(super) faults: Faults,
    pub(super) capacity: AtomicU64,
    live: Mutex<Live>,
}

#[derive(Debug)]
struct Live {
    names: BTreeMap<PathBuf, FileId>,
    files: BTreeMap<FileId, Arc<SimFile>>,
    next_file: FileId,
}

impl Live {
    fn is_free(&self, name: &Path) -> Result<()> {
        if self.names.contains_key(name) {
            return Err(Error::new(Kind::Invalid, "there is already a file of that name").at(name));
        }
        Ok(())
    }
}

/// A file that was opened.
#[derive(Debug)]
struct SimFile {
    id: FileId,
    map: Arc<Map>,
    shape: Arc<Shape>,
    has_writer: AtomicBool,
    unreadable: Unreadable,
}

/// What the observer of a file checks against.
#[derive(Debug, Default)]
struct Shape {
    size: AtomicU64,
    /// Whole pages that were discarded and not allocated since.
    holes: Mutex<BTreeSet<u64>>,
}

impl Shape {
    fn fill(&self, offset: u64, len: u64) {
        let mut holes = self.holes.lock();
        if !holes.is_empty() {
            (offset / PAGE..(offset + len).div_ceil(PAGE)).for_each(|page| {
                holes.remove(&page);
            });
        }
    }

    fn allocated(&self) -> u64 {
        let pages = self.size.load(Ordering::Relaxed).div_ceil(PAGE);
        (pages - self.holes.lock().range(..pages).count() as u64) * PAGE
    }
}

struct Recorder {
    log: Arc<Log>,
    file: FileId,
    shape: Arc<Shape>,
}

impl WriteObserver for Recorder {
    fn stored(&self, offset: u64, bytes: &[u8]) {
        let storing = STORING.get();
        if storing == Storing::Unheard || bytes.is_empty() {
            return;
        }
        let mapped = storing == Storing::Mapped;
        if mapped {
            let (end, size) = (
                offset + bytes.len() as u64,
                self.shape.size.load(Ordering::Relaxed),
            );
            assert!(
                end <= size,
                "store at {offset:#x} beyond the size {size:#x}: a bus error"
            );
            let holes = self.shape.holes.lock();
            let mut hit = holes.range(offset / PAGE..end.div_ceil(PAGE));
            assert!(
                hit.next().is_none(),
                "store at {offset:#x} into discarded space: allocate it"
            );
        }
        self.log.add(Event::Write {
            file: self.file,
            offset,
            bytes: bytes.into(),
            mapped,
        });
    }
}

impl Disk {
    pub(super) fn new(seed: u64, start: State) -> Arc<Self> {
        let live = Live {
            names: start.visible_names(),
            files: BTreeMap::new(),
            next_file: start.files.len(),
        };
        Arc::new(Self {
            seed,
            log: Log::new(start.next),
            start,
            faults: Faults::default(),
            capacity: AtomicU64::new(u64::MAX),
            live: Mutex::new(live),
        })
    }

    /// The disk as it is now.
    fn state(&self) -> State {
        Replay::new(self.seed, self.start.clone(), self.log.snapshot()).into_state()
    }

    fn file(&self, live: &mut Live, id: FileId) -> Result<Arc<SimFile>> {
        if let Some(file) = live.files.get(&id) {
            return Ok(Arc::clone(file));
        }
        let shape = Arc::new(Shape::default());
        let recorder = Recorder {
            log: Arc::clone(&self.log),
            file: id,
            shape: Arc::clone(&shape),
        };
        let map = Map::anonymous(MAP_CAPACITY, Some(Arc::new(recorder)))?;
        if id < self.start.files.len() {
            let (pages, size) = self.start.visible(id);
            shape.size.store(size, Ordering::Relaxed);
            storing(Storing::Unheard, || {
                pages
                    .iter()
                    .for_each(|(offset, page)| map.write(offset, page));
            });
        }
        let file = Arc::new(SimFile {
            id,
            map,
            shape,
            has_writer: AtomicBool::new(false),
            unreadable: Unreadable::default(),
        });
        live.files.insert(id, Arc::clone(&file));
        Ok(file)
    }

    fn name(&self, live: &mut Live, name: &Path, file: FileId) {
        live.names.insert(name.to_path_buf(), file);
        let name = name.to_path_buf();
        self.log.add(Event::Create { name, file });
    }

    fn allocated(&self) -> u64 {
        let live = self.live.lock();
        let opened = live
            .files
            .values()
            .map(|file| file.shape.allocated())
            .sum::<u64>();
        let unopened = live
            .names
            .values()
            .filter(|id| !live.files.contains_key(id));
        opened + unopened.map(|id| self.start.visible(*id).1).sum::<u64>()
    }

    pub(super) fn evict_all(&self) {
        let state = self.state();
        let live = self.live.lock();
        live.files
            .values()
            .for_each(|file| self.evict(&state, file));
    }

    /// Shows what the device has where a failed sync left cache and device apart: some prefix.
    fn evict(&self, state: &State, file: &SimFile) {
        let doomed = if file.id < state.files.len() {
            state.doomed(file.id)
        } else {
            Vec::new()
        };
        if doomed.is_empty() {
            return;
        }
        let mut dice = Dice(self.seed ^ mix(state.next));
        let shown = doomed
            .into_iter()
            .map(|(index, changes)| (index, dice.below(changes as u64 + 1)));
        let shown: Vec<_> = shown
            .map(|(index, prefix)| (index, prefix as usize))
            .collect();
        self.log.add(Event::Evict {
            file: file.id,
            shown: shown.clone(),
        });
        let (pages, _) = self.state().visible(file.id);
        for (index, _) in shown {
            let span = FileState::span(state.atom, index);
            let (offset, len) = (span.start, span.end - span.start);
            storing(Storing::Unheard, || match pages.get(span) {
                Some(bytes) => file.map.write(offset, bytes),
                None => file.map.zero(offset, len),
            });
        }
    }

    /// The file of this name, laid out.
    fn named(&self, name: &Path) -> Arc<SimFile> {
        let mut live = self.live.lock();
        let id = *live
            .names
            .get(name)
            .unwrap_or_else(|| panic!("no file {}", name.display()));
        self.file(&mut live, id)
            .expect("a file of a simulated disk opens")
    }

    pub(super) fn make_unreadable(&self, name: &Path, range: Range<u64>) {
        let file = self.named(name);
        let size = file.shape.size.load(Ordering::Relaxed);
        assert!(range.end <= size, "unreadable within the file");
        let end = range.end.next_multiple_of(SECTOR).min(MAP_CAPACITY);
        let mut dice = Dice(self.seed ^ mix(range.start));
        file.unreadable.add(range.clone());
        storing(Storing::Unheard, || {
            for offset in (range.start / SECTOR * SECTOR..end).step_by(8) {
                file.map.write(offset, &dice.u64().to_le_bytes());
            }
        });
    }

    pub(super) fn rot(&self, name: &Path, offset: u64, mask: u8) {
        let file = self.named(name);
        assert!(
            offset < file.shape.size.load(Ordering::Relaxed),
            "rot within the file"
        );
        let seen = load(&file.map, offset) ^ mask;
        storing(Storing::Unheard, || file.map.write(offset, &[seen]));
        self.log.add(Event::Rot {
            file: file.id,
            offset,
            mask,
            seen,
        });
    }

    /// The error of a call that fails by plan.
    fn strike(&self, operation: Operation, path: &Path) -> Result<Option<Fault>> {
        let fault = self.faults.strike(operation);
        match fault {
            None | Some(Fault::Short(_) | Fault::Torn | Fault::Flip) => Ok(fault),
            Some(Fault::Error) => Err(failure(operation, libc::EIO, path)),
            Some(Fault::Full) => Err(failure(operation, libc::ENOSPC, path)),
        }
    }

    fn strike_all_or_nothing(&self, operation: Operation, path: &Path) -> Result<()> {
        match self.strike(operation, path)? {
            None | Some(Fault::Flip) => Ok(()),
            Some(_) => Err(failure(operation, libc::EIO, path)),
        }
    }
}

fn failure(operation: Operation, code: i32, path: &Path) -> Error {
    let what = match operation {
        Operation::Read => "cannot read",
        Operation::ReadAhead => "cannot read ahead",
        Operation::Write => "cannot write",
        Operation::Resize => "cannot allocate",
        Operation::Discard => "cannot give space back",
        Operation::Sync => "cannot sync",
        Operation::Name => "cannot change the name",
        Operation::SyncNames => "cannot sync the folder",
    };
    Error::io(what, std::io::Error::from_raw_os_error(code)).at(path)
}

fn load(map: &Map, offset: u64) -> u8 {
    map.load_u64(offset & !7).to_le_bytes()[(offset & 7) as usize]
}

/// The folder of a [`SimDisk`].
#[derive(Clone, Debug)]
pub struct SimDirectory(Arc<Disk>);

impl SimDirectory {
    pub(super) fn new(disk: Arc<Disk>) -> Self {
        Self(disk)
    }

    /// The disk it is on.
    pub fn disk(&self) -> SimDisk {
        SimDisk(Arc::clone(&self.0))
    }

    fn make(&self, name: &Path, wanted: Wanted) -> Result<Arc<dyn Storage>> {
        self.0.strike_all_or_nothing(Operation::Name, name)?;
        let mut live = self.0.live.lock();
        if wanted != Wanted::Replacing {
            live.is_free(name)?;
        }
        let id = live.next_file;
        live.next_file += 1;
        if wanted == Wanted::Nothing {
            self.0.name(&mut live, name, id);
        } else {
            self.0.log.add(Event::CreateNameless { file: id });
        }
        let file = self.0.file(&mut live, id)?;
        self.storage(file, name, Access::Write, wanted)
    }

    fn storage(
        &self,
        file: Arc<SimFile>,
        name: &Path,
        access: Access,
        name_wanted: Wanted,
    ) -> Result<Arc<dyn Storage>> {
        if access == Access::Write && file.has_writer.swap(true, Ordering::Relaxed) {
            return Err(
                Error::new(Kind::Locked, "this process already has it open for writing")
                    .at(name)
                    .remedy("use that handle, or close it first"),
            );
        }
        let disk = Arc::clone(&self.0);
        Ok(Arc::new(SimStorage {
            disk,
            file,
            path: name.to_path_buf(),
            access,
            nameless: AtomicBool::new(name_wanted != Wanted::Nothing),
            replaces: name_wanted == Wanted::Replacing,
        }))
    }
}

/// What a new storage does with its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// It has it.
    Nothing,
    /// It takes it, if it is free.
    Free,
    /// It takes it from the holder.
    Replacing,
}

fn absent(name: &Path) -> Error {
    let source = std::io::Error::from_raw_os_error(libc::ENOENT);
    Error::io("there is no such file", source).at(name)
}

impl Directory for SimDirectory {
    fn create(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        self.make(name, Wanted::Nothing)
    }

    fn create_nameless(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        self.make(name, Wanted::Free)
    }

    fn create_replacing(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        self.make(name, Wanted::Replacing)
    }

    fn open(&self, name: &Path, access: Access) -> Result<Arc<dyn Storage>> {
        let mut live = self.0.live.lock();
        let id = *live.names.get(name).ok_or_else(|| absent(name))?;
        let file = self.0.file(&mut live, id)?;
        self.storage(file, name, access, Wanted::Nothing)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.strike_all_or_nothing(Operation::Name, from)?;
        let mut live = self.0.live.lock();
        let file = live.names.remove(from).ok_or_else(|| absent(from))?;
        live.names.insert(to.to_path_buf(), file);
        let (from, to) = (from.to_path_buf(), to.to_path_buf());
        self.0.log.add(Event::Rename { from, to, file });
        Ok(())
    }

    fn remove(&self, name: &Path) -> Result<()> {
        self.0.strike_all_or_nothing(Operation::Name, name)?;
        let mut live = self.0.live.lock();
        live.names.remove(name).ok_or_else(|| absent(name))?;
        self.0.log.add(Event::Remove {
            name: name.to_path_buf(),
        });
        Ok(())
    }

    fn exists(&self, name: &Path) -> Result<bool> {
        Ok(self.0.live.lock().names.contains_key(name))
    }

    fn list(&self) -> Result<Vec<PathBuf>> {
        Ok(self.0.live.lock().names.keys().cloned().collect())
    }

    fn sync(&self) -> Result<()> {
        let begin = self.0.log.add(Event::SyncNamesBegin);
        let done = self
            .0
            .strike_all_or_nothing(Operation::SyncNames, Path::new("."));
        self.0.log.add(Event::SyncNamesEnd {
            begin,
            ok: done.is_ok(),
        });
        done
    }
}

/// A file of a [`SimDisk`], open.
#[derive(Debug)]
pub struct SimStorage {
    disk: Arc<Disk>,
    file: Arc<SimFile>,
    path: PathBuf,
    access: Access,
    /// Whether it waits for `take_name`.
    nameless: AtomicBool,
    /// Whether it then takes the name from who has it.
    replaces: bool,
}

impl Drop for SimStorage {
    fn drop(&mut self) {
        if self.access == Access::Write {
            self.file.has_writer.store(false, Ordering::Relaxed);
        }
    }
}

impl SimStorage {
    fn present(&self) -> u64 {
        self.file.shape.size.load(Ordering::Relaxed)
    }

    fn writable(&self) -> Result<()> {
        if self.access == Access::Write {
            return Ok(());
        }
        Err(Error::new(Kind::Invalid, "the file is open for reading only").at(&self.path))
    }

    fn begin(&self, operation: Operation) -> Result<()> {
        self.writable()?;
        self.disk.strike_all_or_nothing(operation, &self.path)
    }

    fn within(&self, kind: Kind, offset: u64, len: u64) -> Result<()> {
        let present = self.present();
        if offset.checked_add(len).is_none_or(|end| end > present) {
            return Err(Error::new(kind, "the file ends too early")
                .at(&self.path)
                .offset(offset)
                .found(
                    format!("a size of {present:#x}"),
                    format!("{len:#x} bytes more"),
                ));
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.file.shape.fill(offset, bytes.len() as u64);
        storing(Storing::Written, || self.file.map.write(offset, bytes));
    }

    fn sync_of(&self, range: Option<(u64, u64)>) -> Result<()> {
        let file = self.file.id;
        let begin = self.disk.log.add(Event::SyncBegin { file });
        let done = self.disk.strike_all_or_nothing(Operation::Sync, &self.path);
        self.disk.log.add(Event::SyncEnd {
            file,
            begin,
            range,
            ok: done.is_ok(),
        });
        done
    }

    /// Refuses what the disk has no room for.
    fn room(&self, more: u64) -> Result<()> {
        let capacity = self.disk.capacity.load(Ordering::Relaxed);
        if more > 0 && capacity < u64::MAX && self.disk.allocated().saturating_add(more) > capacity
        {
            return Err(failure(Operation::Resize, libc::ENOSPC, &self.path)
                .detail(format!("a disk of {}", size(capacity))));
        }
        Ok(())
    }
}

impl Storage for SimStorage {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let fault = self.disk.strike(Operation::Read, &self.path)?;
        if matches!(fault, Some(Fault::Short(_) | Fault::Torn)) {
            return Err(failure(Operation::Read, libc::EIO, &self.path).offset(offset));
        }
        self.within(Kind::Corrupted, offset, buf.len() as u64)?;
        if let Some(bad) = self.file.unreadable.first_in(offset, buf.len() as u64) {
            return Err(failure(Operation::Read, libc::EIO, &self.path).offset(bad));
        }
        self.file.map.copy_out(offset, buf);
        if fault == Some(Fault::Flip) && !buf.is_empty() {
            let bit = mix(self.disk.seed ^ offset) % (buf.len() as u64 * 8);
            buf[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    /// Every second time, by the seed, the cache has it.
    fn read_at_once(&self, offset: u64, buf: &mut [u8]) -> Result<bool> {
        let faults = &self.disk.faults;
        let asked = faults.count(Operation::ReadAhead) << 32 | faults.count(Operation::Read);
        if mix(self.disk.seed ^ mix(offset ^ asked)).is_multiple_of(2) {
            return self.read_at(offset, buf).map(|()| true);
        }
        self.read_ahead(offset, buf.len() as u64);
        Ok(false)
    }

    fn read_ahead(&self, _offset: u64, _len: u64) {
        let _ = self.disk.faults.strike(Operation::ReadAhead);
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.writable()?;
        self.within(Kind::Invalid, offset, bytes.len() as u64)?;
        let fault = self.disk.strike(Operation::Write, &self.path)?;
        if let Some(bad) = self.file.unreadable.heal(offset, bytes.len() as u64) {
            return Err(failure(Operation::Write, libc::EIO, &self.path).offset(bad));
        }
        match fault {
            Some(Fault::Short(len)) => self.write(offset, &bytes[..len.min(bytes.len())]),
            Some(Fault::Torn) => {
                let parts: Vec<(usize, &[u8])> = bytes.chunks(512).enumerate().collect();
                for (at, part) in parts.into_iter().rev().step_by(2) {
                    self.write(offset + at as u64 * 512, part);
                }
            }
            _ => {
                self.write(offset, bytes);
                return Ok(());
            }
        }
        Err(failure(Operation::Write, libc::EIO, &self.path).offset(offset))
    }

    fn size(&self) -> Result<u64> {
        Ok(self.present())
    }

    fn resize(&self, wanted: u64) -> Result<()> {
        self.begin(Operation::Resize)?;
        let present = self.present();
        if wanted > MAP_CAPACITY {
            return Err(failure(Operation::Resize, libc::EFBIG, &self.path).offset(wanted));
        }
        if wanted == present {
            return Ok(());
        }
        self.room(wanted.saturating_sub(present))?;
        self.disk.log.add(Event::Resize {
            file: self.file.id,
            from: present,
            to: wanted,
        });
        self.file.shape.size.store(wanted, Ordering::Relaxed);
        if wanted < present {
            self.file
                .shape
                .holes
                .lock()
                .split_off(&wanted.div_ceil(PAGE));
            storing(Storing::Unheard, || {
                self.file.map.zero(wanted, present - wanted);
            });
        }
        Ok(())
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_at(offset, bytes)?;
        self.sync_of(Some((offset, bytes.len() as u64)))
    }

    fn sync(&self) -> Result<()> {
        self.sync_of(None)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.begin(Operation::Discard)?;
        let end = offset.saturating_add(len).min(self.present());
        if offset >= end {
            return Ok(());
        }
        self.disk.log.add(Event::Discard {
            file: self.file.id,
            offset,
            len: end - offset,
        });
        storing(Storing::Unheard, || {
            self.file.map.zero(offset, end - offset);
        });
        self.file
            .shape
            .holes
            .lock()
            .extend(offset.div_ceil(PAGE)..end / PAGE);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.begin(Operation::Resize)?;
        self.within(Kind::Invalid, offset, len)?;
        let pages = offset / PAGE..(offset + len).div_ceil(PAGE);
        let holes = self.file.shape.holes.lock().range(pages).count() as u64;
        self.room(holes * PAGE)?;
        self.file.shape.fill(offset, len);
        Ok(())
    }

    fn allocated(&self) -> Result<u64> {
        Ok(self.file.shape.allocated())
    }

    /// The capacity is [`SimDisk::FILE_SIZE_MAX`], whatever the caller passes.
    fn map(&self, _capacity: u64) -> Result<Arc<Map>> {
        Ok(Arc::clone(&self.file.map))
    }

    fn drop_cache(&self) -> Result<()> {
        self.disk.evict(&self.disk.state(), &self.file);
        Ok(())
    }

    fn boot_id(&self) -> [u8; 16] {
        let boot = mix(self.disk.seed ^ mix(self.disk.start.boot));
        let mut id = [0; 16];
        id[..8].copy_from_slice(&boot.to_le_bytes());
        id[8..].copy_from_slice(&self.disk.start.boot.to_le_bytes());
        id
    }

    fn entropy(&self) -> u64 {
        mix(self.disk.seed ^ (self.file.id as u64) << 32)
    }

    fn take_name(&self) -> Result<()> {
        if !self.nameless.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.disk
            .strike_all_or_nothing(Operation::Name, &self.path)?;
        let mut live = self.disk.live.lock();
        if self.replaces {
            // As in a real folder: another name first, which is then moved over the old one.
            let from = self.path.with_extension("new");
            let (to, file) = (self.path.clone(), self.file.id);
            let name = from.clone();
            self.disk.log.add(Event::Create { name, file });
            self.disk.log.add(Event::Rename { from, to, file });
            live.names.insert(self.path.clone(), file);
        } else {
            live.is_free(&self.path)?;
            self.disk.name(&mut live, &self.path, self.file.id);
        }
        self.nameless.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn has_writer(&self) -> bool {
        self.access == Access::Read && self.file.has_writer.load(Ordering::Relaxed)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
