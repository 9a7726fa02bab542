//! Reads of objects: get, head, list, and whole views of a store.
//!
//! | file | what it holds |
//! |---|---|
//! | `get` | one read of one object, verified |
//! | `list` | the objects of a range of ids, and their totals |
//! | `value` | the bytes that a read returns |
//! | `window` | the units of the data in order, for the scans of recovery and repair |
//! | `snapshot` | all objects as at one moment |
//! | `reader` | a store that another process may have open, without a change of it |
//!
//! Nothing here changes a store.

pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod reader;
pub(crate) mod snapshot;
pub(crate) mod value;
pub(crate) mod window;
