//! Where bytes stand on the device that holds the data.
//!
//! | file | what it holds |
//! |---|---|
//! | `extent` | one object on storage: header, chunks, checksums |
//! | `space` | allocation groups: which units are free |
//! | `runs`, `list` | the free runs of one group, and their image on storage |
//! | `span` | where units stand, and how many |
//! | `limbo` | freed extents that must not be reused before the free is durable |
//! | `long` | values that move in several accesses |
//! | `buffers` | aligned buffers that are reused |
//!
//! Nothing here knows the index, the journal, or the store.

pub(crate) mod buffers;
pub mod extent;
pub(crate) mod limbo;
pub(crate) mod list;
pub(crate) mod long;
pub(crate) mod runs;
pub(crate) mod space;
pub(crate) mod span;
