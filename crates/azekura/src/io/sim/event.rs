//! What happened to a disk: one ordered list.
//!
//! Events are numbered over the life of a disk and its copies made by kills, so that a sync can state where
//! it began. The list only grows. It does not know what an event means for loss of power: see `state`.

use crate::explore::{self, Mutex};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A file for good, whatever its name.
pub(super) type FileId = usize;

/// One change, or one edge of a sync.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Write {
        file: FileId,
        offset: u64,
        bytes: Arc<[u8]>,
        mapped: bool,
    },
    Discard {
        file: FileId,
        offset: u64,
        len: u64,
    },
    Resize {
        file: FileId,
        from: u64,
        to: u64,
    },
    SyncBegin {
        file: FileId,
    },
    /// `begin` is the number of the beginning; `range`, offset and length, is all that was synced.
    SyncEnd {
        file: FileId,
        begin: u64,
        range: Option<(u64, u64)>,
        ok: bool,
    },
    Create {
        name: PathBuf,
        file: FileId,
    },
    /// A file that no name leads to; `Create` gives it one.
    CreateNameless {
        file: FileId,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        file: FileId,
    },
    Remove {
        name: PathBuf,
    },
    SyncNamesBegin,
    SyncNamesEnd {
        begin: u64,
        ok: bool,
    },
    /// Cached pages were dropped: these atoms now show what so many changes made of them.
    Evict {
        file: FileId,
        shown: Vec<(u64, usize)>,
    },
    /// One byte on the device changed by itself; the cache shows `seen`.
    Rot {
        file: FileId,
        offset: u64,
        mask: u8,
        seen: u8,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write {
                file,
                offset,
                bytes,
                mapped,
            } => {
                let how = if *mapped { "store" } else { "write" };
                write!(f, "{how} file {file} {offset:#x}+{:#x}", bytes.len())?;
                let shown = &bytes[..bytes.len().min(16)];
                shown.iter().enumerate().try_for_each(|(i, byte)| {
                    write!(f, "{}{byte:02x}", if i == 0 { ": " } else { "" })
                })
            }
            Self::Discard { file, offset, len } => {
                write!(f, "discard file {file} {offset:#x}+{len:#x}")
            }
            Self::Resize { file, from, to } => write!(f, "resize file {file} {from:#x} -> {to:#x}"),
            Self::SyncBegin { file } => write!(f, "sync file {file} begins"),
            Self::SyncEnd {
                file,
                begin,
                range,
                ok,
            } => {
                let how = if *ok { "returns" } else { "fails" };
                match range {
                    None => write!(f, "sync file {file} begun at {begin} {how}"),
                    Some((offset, len)) => write!(
                        f,
                        "sync file {file} {offset:#x}+{len:#x} begun at {begin} {how}"
                    ),
                }
            }
            Self::Create { name, file } => write!(f, "create {} as file {file}", name.display()),
            Self::CreateNameless { file } => write!(f, "create file {file} without a name"),
            Self::Rename { from, to, .. } => {
                write!(f, "rename {} -> {}", from.display(), to.display())
            }
            Self::Remove { name } => write!(f, "remove {}", name.display()),
            Self::SyncNamesBegin => write!(f, "sync of the names begins"),
            Self::SyncNamesEnd { begin, ok } => {
                let how = if *ok { "returns" } else { "fails" };
                write!(f, "sync of the names begun at {begin} {how}")
            }
            Self::Evict { file, shown } => {
                write!(f, "evict file {file}, {} atoms changed", shown.len())
            }
            Self::Rot {
                file, offset, mask, ..
            } => {
                write!(f, "rot file {file} {offset:#x} bits {mask:#04x}")
            }
        }
    }
}

/// The list, shared by a disk and the observers of its maps.
#[derive(Debug)]
pub(super) struct Log {
    /// The number of the first event.
    first: u64,
    events: Mutex<Vec<Event>>,
}

impl Log {
    pub(super) fn new(first: u64) -> Arc<Self> {
        Arc::new(Self {
            first,
            events: Mutex::default(),
        })
    }

    /// Adds an event and returns its number.
    pub(super) fn add(&self, event: Event) -> u64 {
        // Every change of the disk is a moment at which another thread may come in between.
        explore::yield_point();
        let mut events = self.events.lock();
        events.push(event);
        self.first + events.len() as u64 - 1
    }

    pub(super) fn len(&self) -> usize {
        self.events.lock().len()
    }

    pub(super) fn snapshot(&self) -> Vec<Event> {
        self.events.lock().clone()
    }
}
