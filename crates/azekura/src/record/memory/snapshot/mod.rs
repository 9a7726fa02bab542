//! Snapshots: the records of an engine in a file, from which an engine of any kind is filled.
//!
//! [`save`] scans an engine while it is used, [`save_in_background`] in a thread of its own; [`Snapshot`] and
//! [`load`] bring the records back. A snapshot is whole or is not there: it is written without a name, synced,
//! and only then takes its name, from the snapshot that had it before. So a save that is stopped, that fails,
//! or whose process dies leaves the previous snapshot as it was. Anything but a snapshot is never replaced.
//!
//! It is not one moment: it holds what a scan of the engine shows, so each record that was there during the
//! whole of the save, once, with a value it had meanwhile. Nothing is loaded before all of it was verified.
//!
//! It knows engines by their contract only, and of the file's bytes what `layout` decodes. Times to live are
//! kept as the time by the system's clock at which a record expires.
//!
//! ```text
//!   save:  engine --scan--> block -> file without a name ... end mark, sync -> name -> sync of the folder
//!   load:  file -> verify all -> engine must be empty -> put_many ... -> done, or emptied again
//! ```

#[doc(hidden)]
pub mod layout;
mod load;
mod save;

use std::time::{SystemTime, UNIX_EPOCH};

pub use load::{Loaded, Snapshot, Summary, VisitRecord, load};
pub use save::{Progress, Saved, Saving, save, save_in_background, save_to};

/// How a snapshot is written and read. The defaults are right but for tests.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Milliseconds since 1970: what times to live are kept by.
    pub now_ms: fn() -> u64,
    /// A block is written when it has so many bytes; a record longer than that has one of its own.
    pub block_size: usize,
}

impl Default for Options {
    /// The system's clock; 256 KiB.
    fn default() -> Self {
        Self {
            now_ms,
            block_size: 256 << 10,
        }
    }
}

setters! { Options { now_ms: fn() -> u64, block_size: usize } }

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
