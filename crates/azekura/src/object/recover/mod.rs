//! Creating and opening a store, and recovery after a crash.
//!
//! | file | what it holds |
//! |---|---|
//! | `paths` | stores by path: new files, old ones, devices |
//! | `create` | the layout of a new store, and its first superblock |
//! | `open` | opening and closing |
//! | `build` | the parts of an open store |
//! | `replay` | the journal after the last checkpoint, and the scan of the extents after that |
//! | `probe` | which parts of the journal can be read |
//! | `degraded` | a store with damage, opened for reading |
//!
//! Recovery loses nothing that was acknowledged; what may lose something is a repair (`care`).

pub(crate) mod build;
pub(crate) mod create;
pub(crate) mod degraded;
pub(crate) mod open;
pub(crate) mod paths;
pub(crate) mod probe;
pub(crate) mod replay;
