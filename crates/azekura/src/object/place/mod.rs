//! Where bytes stand on the device that holds the data.
//!
//! | file | what it holds |
//! |---|---|
//! | `extent` | one object on storage: header, chunks, checksums |
//! | `space` | allocation groups: which units are free |
//! | `runs` | the free runs of one group |
//! | `limbo` | freed extents that must not be reused before the free is durable |
//! | `long` | values that move in several accesses |
//! | `buffers` | aligned buffers that are reused |
//!
//! Nothing here knows the index, the journal, or the store.

pub(crate) mod buffers;
pub mod extent;
pub mod limbo;
pub(crate) mod long;
pub mod runs;
pub mod space;
