//! Changes of objects: put, remove, apply, and what orders them.
//!
//! | file | what it holds |
//! |---|---|
//! | `put` | the life of a put; removals; batches |
//! | `draft` | a value that is written in pieces before it is put |
//! | `small` | small objects: into the journal first, later many into one extent |
//! | `locks` | per-object locks |
//!
//! Order and durability of a change are decided here; formats are not.

pub(crate) mod draft;
pub(crate) mod locks;
pub(crate) mod put;
pub(crate) mod small;
