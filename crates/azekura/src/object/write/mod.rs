//! Changes of objects: put, remove, apply, and what orders them.
//!
//! | file | what it holds |
//! |---|---|
//! | `put` | the life of a put; removals; batches |
//! | `draft` | a value that is written in pieces before it is put |
//! | `small` | small objects: into the journal first, later many into one extent |
//! | `turns` | one change of an object at a time |
//! | `commit` | one sync for all threads that wait for one |
//!
//! Order and durability of a change are decided here; formats are not.

pub(crate) mod commit;
pub(crate) mod draft;
pub(crate) mod put;
pub(crate) mod small;
pub(crate) mod turns;
