//! Storages over another one: each method that they do not define calls the storage below.
//!
//! A type that implements [`Over`] instead of [`Storage`] defines the methods that it changes, and is a storage. The
//! default methods pass each call to the storage below unchanged; so a type that changes writes also defines
//! `write_durably`.
//!
//! Reads that do not wait, and hints of reads, are not passed on by default: they are ordinary reads, and nothing.
//!
//! `backing_file` and `as_file` give access past a storage, so they return `None` by default: such accesses are not seen here.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use super::file::File;
use super::{Map, Storage};
use crate::error::Result;

macro_rules! over {
    ($(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) -> $result:ty;)*) => {
        /// See the module's text.
        pub trait Over: Send + Sync + Debug {
            /// The storage below.
            fn below(&self) -> &dyn Storage;

            $(
                #[doc = concat!("[`Storage::", stringify!($name), "`] of the one below.")]
                fn $name(&self $(, $argument: $kind)*) -> $result {
                    self.below().$name($($argument),*)
                }
            )*

            /// As it reads, which may wait: see the module's text.
            fn read_at_once(&self, offset: u64, buf: &mut [u8]) -> Result<bool> {
                self.read_at(offset, buf).map(|()| true)
            }

            /// Nothing: see the module's text.
            fn read_ahead(&self, _offset: u64, _len: u64) {}

            /// None: see the module's text.
            fn backing_file(&self) -> Option<(&std::fs::File, u64)> {
                None
            }

            /// None: see the module's text.
            fn as_file(&self) -> Option<&File> {
                None
            }
        }

        impl<T: Over> Storage for T {
            $(
                fn $name(&self $(, $argument: $kind)*) -> $result {
                    Over::$name(self $(, $argument)*)
                }
            )*

            fn read_at_once(&self, offset: u64, buf: &mut [u8]) -> Result<bool> {
                Over::read_at_once(self, offset, buf)
            }

            fn read_ahead(&self, offset: u64, len: u64) {
                Over::read_ahead(self, offset, len);
            }

            fn backing_file(&self) -> Option<(&std::fs::File, u64)> {
                Over::backing_file(self)
            }

            fn as_file(&self) -> Option<&File> {
                Over::as_file(self)
            }
        }
    };
}

over! {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    fn size(&self) -> Result<u64>;
    fn resize(&self, size: u64) -> Result<()>;
    fn sync(&self) -> Result<()>;
    fn discard(&self, offset: u64, len: u64) -> Result<()>;
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;
    fn allocated(&self) -> Result<u64>;
    fn map(&self, capacity: u64) -> Result<Arc<Map>>;
    fn copy_range_to(&self, offset: u64, len: u64, target: &dyn Storage) -> Result<()>;
    fn drop_cache(&self) -> Result<()>;
    fn boot_id(&self) -> [u8; 16];
    fn entropy(&self) -> u64;
    fn has_writer(&self) -> bool;
    fn take_name(&self) -> Result<()>;
    fn path(&self) -> &Path;
    fn alignment(&self) -> u64;
    fn passed_by(&self, is_read: bool, len: usize) -> ();
}
