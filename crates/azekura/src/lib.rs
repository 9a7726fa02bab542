//! azekura: a storage system of log-structured stores.
//!
//! Two shapes of data, one direction of dependencies:
//!
//! | family | key | value | engines |
//! |---|---|---|---|
//! | record | bytes | bytes, small to medium | [`record::hash`] in a file; [`record::skip`] in a sorted one; [`record::memory`] and [`record::cache`] |
//! | object | 128-bit id | large, to 512 MiB | one store: [`object`] |
//!
//! ```text
//!   lib.rs  db.rs  parameters.rs range.rs     one store with every verb | options in its path, records between two keys
//!   multimap.rs shard/ open.rs                many values of a key | many stores as one | choose an engine from the superblock
//!   record/ | object/                         the engines
//!   kernel/                                   what every store with a log does, in which order
//!   engine.rs  verbs/                         the contract, and what is written once above it
//!     | log/ | index/ | slab/ | node/         logs | hash buckets | records in memory | nodes of trees
//!   format/ | io/ | epoch/ | order.rs         values from bytes | bytes at an offset | who looks | order of keys
//!                     counter.rs worker/        | what threads count together | background work
//!   damage.rs error.rs room.rs size.rs | explore.rs   what is damaged, went wrong, memory refused, sizes | where threads may be interleaved
//! ```
//!
//! A module imports only what lies below it. Modules that this page does not list are internal: they are hidden from the
//! documentation, may change at any time, and are public for this workspace's tests, fuzz targets and measurements only.

/// The methods with which options are built: `new`, and one that sets each field. Options of creating have those of opening in
/// their field `opening`, and the methods of both.
macro_rules! setters {
    ($open:ident { $($field:ident: $type:ty),* $(,)? } $create:ident $fields:tt) => {
        setters! { $open { $($field: $type),* } }
        setters! { $create $fields }

        impl $create {
            $(
                #[doc = concat!("Sets `", stringify!($field), "` of `opening`.")]
                #[must_use]
                pub fn $field(mut self, value: $type) -> Self {
                    self.opening.$field = value.into();
                    self
                }
            )*
        }
    };
    ($options:ident { $($field:ident: $type:ty),* $(,)? }) => {
        impl $options {
            /// The defaults.
            pub fn new() -> Self {
                Self::default()
            }

            $(
                #[doc = concat!("Sets `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, value: $type) -> Self {
                    self.$field = value.into();
                    self
                }
            )*
        }
    };
}

mod counter;
pub mod damage;
mod db;
pub mod engine;
#[doc(hidden)]
pub mod epoch;
pub mod error;
#[doc(hidden)]
pub mod explore;
#[doc(hidden)]
pub mod format;
#[doc(hidden)]
pub mod index;
pub mod io;
#[doc(hidden)]
pub mod kernel;
#[doc(hidden)]
pub mod log;
pub mod multimap;
#[doc(hidden)]
pub mod node;
pub mod object;
pub mod open;
pub mod order;
pub mod parameters;
#[doc(hidden)]
pub mod queue;
mod range;
pub mod record;
mod room;
pub mod shard;
#[doc(hidden)]
pub mod size;
#[doc(hidden)]
pub mod slab;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod verbs;
mod worker;

pub use damage::{Affects, Damage};
pub use db::{Db, Iter, create, open};
pub use engine::{Durability, Edit, Engine, Persistent, Reader};
pub use error::{Error, Kind, Result};
pub use range::Range;
pub use record::hash::{CreateOptions, OpenOptions};
pub use verbs::Verbs;
