//! Creating and opening a store, and recovery after a crash.
//!
//! | file | what it holds |
//! |---|---|
//! | `paths` | stores by path: new files, old ones, devices |
//! | `open` | creating, opening, closing |
//! | `replay` | the journal after the last checkpoint, and the scan of the extents after that |
//! | `degraded` | a store with damage, opened for reading |
//!
//! Recovery loses nothing that was acknowledged; what may lose something is a repair (`care`).

pub(crate) mod degraded;
pub(crate) mod open;
pub(crate) mod paths;
pub(crate) mod replay;
