//! `RocksDB`, through its C interface.
//!
//! Set up for point lookups as its authors recommend (`optimize_for_point_lookup`: bloom filters,
//! hashed blocks, a block cache of 512 MiB), without compression. Lookups pin the value and do not copy
//! it; batches are write batches and `multi_get`. A cache that the plan states is one half block cache, one half memtables. A removal writes a mark and does not look, so its
//! answer is always yes. Durability `power` sets the write option `sync`.

#![expect(unsafe_code, reason = "calls a C library")]

use std::ffi::{CStr, CString, c_char, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

use azekura::engine::Durability;
use azekura::error::Result;
use azekura_bench::target::{Setup, Target, copy_found};

use super::{Called as _, failed};

const BLOCK_CACHE_MIB: u64 = 512;

type Handle = *mut c_void;
type Why = *mut c_char;

// SAFETY: declared as in rocksdb/c.h of RocksDB 7; opaque structures are `void`.
unsafe extern "C" {
    fn rocksdb_options_create() -> Handle;
    fn rocksdb_options_destroy(options: Handle);
    fn rocksdb_get_options_from_string(
        base: Handle,
        text: *const c_char,
        options: Handle,
        why: *mut Why,
    );
    fn rocksdb_options_optimize_for_point_lookup(options: Handle, block_cache_mib: u64);
    fn rocksdb_open(options: Handle, path: *const c_char, why: *mut Why) -> Handle;
    fn rocksdb_close(db: Handle);
    fn rocksdb_free(memory: *mut c_void);
    fn rocksdb_readoptions_create() -> Handle;
    fn rocksdb_readoptions_destroy(options: Handle);
    fn rocksdb_writeoptions_create() -> Handle;
    fn rocksdb_writeoptions_destroy(options: Handle);
    fn rocksdb_writeoptions_set_sync(options: Handle, yes: c_uchar);
    fn rocksdb_put(
        db: Handle,
        options: Handle,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        why: *mut Why,
    );
    fn rocksdb_delete(db: Handle, options: Handle, key: *const u8, len: usize, why: *mut Why);
    fn rocksdb_get_pinned(
        db: Handle,
        options: Handle,
        key: *const u8,
        len: usize,
        why: *mut Why,
    ) -> Handle;
    fn rocksdb_pinnableslice_value(slice: Handle, len: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(slice: Handle);
    fn rocksdb_multi_get(
        db: Handle,
        options: Handle,
        count: usize,
        keys: *const *const u8,
        key_lens: *const usize,
        values: *mut *mut u8,
        value_lens: *mut usize,
        whys: *mut Why,
    );
    fn rocksdb_writebatch_create() -> Handle;
    fn rocksdb_writebatch_destroy(batch: Handle);
    fn rocksdb_writebatch_put(
        batch: Handle,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    );
    fn rocksdb_writebatch_delete(batch: Handle, key: *const u8, len: usize);
    fn rocksdb_write(db: Handle, options: Handle, batch: Handle, why: *mut Why);
    fn rocksdb_flush_wal(db: Handle, sync: c_uchar, why: *mut Why);
    fn rocksdb_create_iterator(db: Handle, options: Handle) -> Handle;
    fn rocksdb_iter_seek(iterator: Handle, key: *const u8, len: usize);
    fn rocksdb_iter_seek_to_first(iterator: Handle);
    fn rocksdb_iter_next(iterator: Handle);
    fn rocksdb_iter_get_error(iterator: Handle, why: *mut Why);
    fn rocksdb_iter_valid(iterator: Handle) -> c_uchar;
    fn rocksdb_iter_key(iterator: Handle, len: *mut usize) -> *const u8;
    fn rocksdb_iter_value(iterator: Handle, len: *mut usize) -> *const u8;
    fn rocksdb_iter_destroy(iterator: Handle);
}

/// Calls `call` with a place for an error, and turns what it puts there into ours.
#[inline]
fn checked<R>(what: &str, call: impl FnOnce(*mut Why) -> R) -> Result<R> {
    let mut why = null_mut();
    let answer = call(&raw mut why);
    if why.is_null() {
        Ok(answer)
    } else {
        Err(refusal(what, why))
    }
}

#[cold]
fn refusal(what: &str, why: Why) -> azekura::error::Error {
    // SAFETY: the library hands over a string that ends in zero and is to be freed by its caller.
    unsafe {
        let error = failed(what, CStr::from_ptr(why).to_string_lossy());
        rocksdb_free(why.cast());
        error
    }
}

/// An open database with its options.
pub(crate) struct RocksDb {
    db: Handle,
    read: Handle,
    write: Handle,
}

// SAFETY: RocksDB documents a database as safe to be used by many threads at once; the two options
// are only read after they were made.
unsafe impl Sync for RocksDb {}

// SAFETY: no handle is bound to the thread that made it.
unsafe impl Send for RocksDb {}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: all three were made by `open` and are freed once; positions borrow `self`.
        unsafe {
            rocksdb_readoptions_destroy(self.read);
            rocksdb_writeoptions_destroy(self.write);
            rocksdb_close(self.db);
        }
    }
}

/// An iterator; it borrows the database through `Target::Position`.
pub(crate) struct Position<'t> {
    iterator: Handle,
    _db: &'t RocksDb,
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `position`, freed once, before the database (it is borrowed).
        unsafe { rocksdb_iter_destroy(self.iterator) };
    }
}

/// A value that is pinned, in the database it borrows.
pub(crate) struct Pinned<'t> {
    slice: Handle,
    _db: &'t RocksDb,
}

impl AsRef<[u8]> for Pinned<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the slice is live, and pins `len` bytes until it is destroyed with `self`.
        unsafe {
            let value = rocksdb_pinnableslice_value(self.slice, &raw mut len);
            std::slice::from_raw_parts(value, len)
        }
    }
}

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: handed over by `pin`, freed once, before the database (it is borrowed).
        unsafe { rocksdb_pinnableslice_destroy(self.slice) };
    }
}

/// A write batch, freed at the end.
struct Batch(Handle);

impl Batch {
    fn new() -> Self {
        // SAFETY: no precondition.
        Self(unsafe { rocksdb_writebatch_create() })
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { rocksdb_writebatch_destroy(self.0) };
    }
}

impl RocksDb {
    fn write(&self, batch: &Batch) -> Result<()> {
        // SAFETY: all handles are live.
        checked("write", |why| unsafe {
            rocksdb_write(self.db, self.write, batch.0, why);
        })
    }

    /// Opens or makes a database without compression, for point lookups with a block cache of so many MiB or by the library's defaults, with these options
    /// besides, as its own files of options have them.
    pub(crate) fn with_options(
        path: &Path,
        create: bool,
        power: bool,
        point_lookups: Option<u64>,
        options: &str,
    ) -> Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).or_failed("open")?;
        let text = format!(
            "create_if_missing={create};error_if_exists={create};compression=kNoCompression;\
             info_log_level=ERROR_LEVEL;{options}"
        );
        let text = CString::new(text).or_failed("open")?;
        // SAFETY: both options are live until destroyed; path and text end in zero.
        let db = unsafe {
            let (base, options) = (rocksdb_options_create(), rocksdb_options_create());
            if let Some(block_cache_mib) = point_lookups {
                rocksdb_options_optimize_for_point_lookup(base, block_cache_mib);
            }
            let db = checked("set up", |why| {
                rocksdb_get_options_from_string(base, text.as_ptr(), options, why);
            })
            .and_then(|()| checked("open", |why| rocksdb_open(options, path.as_ptr(), why)));
            rocksdb_options_destroy(base);
            rocksdb_options_destroy(options);
            db?
        };
        // SAFETY: no precondition but a live handle.
        unsafe {
            let write = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(write, c_uchar::from(power));
            Ok(Self {
                db,
                read: rocksdb_readoptions_create(),
                write,
            })
        }
    }

    /// The pinned value, or `None`.
    #[inline]
    pub(crate) fn pin(&self, key: &[u8]) -> Result<Option<Pinned<'_>>> {
        // SAFETY: all handles are live; the key is valid during the call.
        let slice = checked("get", |why| unsafe {
            rocksdb_get_pinned(self.db, self.read, key.as_ptr(), key.len(), why)
        })?;
        Ok((!slice.is_null()).then_some(Pinned { slice, _db: self }))
    }

    /// Lends the pinned value, or `None`.
    #[inline]
    fn pinned<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let found = self.pin(key)?;
        Ok(visit(found.as_ref().map(AsRef::as_ref)))
    }
}

impl Target for RocksDb {
    const NAME: &'static str = "rocksdb";
    const PERSISTENT: bool = true;
    const COUNTS_REMOVALS: bool = false;
    const ORDERED: bool = true;
    type Position<'t> = Position<'t>;

    fn open(setup: &Setup) -> Result<Self> {
        let power = setup.durability == Durability::Power;
        let (block_cache, options) = match setup.cache {
            None => (BLOCK_CACHE_MIB, String::new()),
            Some(cache) => (
                (cache / 2).div_ceil(1 << 20),
                format!(
                    "write_buffer_size={};db_write_buffer_size={}",
                    cache / 4,
                    cache / 2
                ),
            ),
        };
        let path = setup.require_path()?;
        Self::with_options(path, setup.create, power, Some(block_cache), &options)
    }
    fn close(self) -> Result<()> {
        Ok(())
    }
    #[inline]
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: all handles are live; both slices are valid during the call.
        checked("put", |why| unsafe {
            rocksdb_put(
                self.db,
                self.write,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                why,
            );
        })
    }
    #[inline]
    fn has(&self, key: &[u8]) -> Result<bool> {
        self.pinned(key, |value| value.is_some())
    }
    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.pinned(key, |found| copy_found(found, value))
    }
    #[inline]
    fn remove(&self, key: &[u8]) -> Result<bool> {
        // SAFETY: all handles are live; the key is valid during the call.
        checked("delete", |why| unsafe {
            rocksdb_delete(self.db, self.write, key.as_ptr(), key.len(), why);
        })?;
        Ok(true)
    }
    fn set_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let batch = Batch::new();
        for (key, value) in records {
            // SAFETY: the batch is live and copies both slices.
            unsafe {
                rocksdb_writebatch_put(
                    batch.0,
                    key.as_ptr(),
                    key.len(),
                    value.as_ptr(),
                    value.len(),
                );
            }
        }
        self.write(&batch)
    }
    fn has_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize)) -> Result<()> {
        self.get_many(keys, &mut |index, _| hit(index))
    }
    fn get_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize, &[u8])) -> Result<()> {
        let pointers: Vec<_> = keys.iter().map(|key| key.as_ptr()).collect();
        let lens: Vec<_> = keys.iter().map(|key| key.len()).collect();
        let mut values = vec![null_mut(); keys.len()];
        let mut value_lens = vec![0; keys.len()];
        let mut whys: Vec<Why> = vec![null_mut(); keys.len()];
        // SAFETY: all handles are live; the five arrays have `keys.len()` elements.
        unsafe {
            rocksdb_multi_get(
                self.db,
                self.read,
                keys.len(),
                pointers.as_ptr(),
                lens.as_ptr(),
                values.as_mut_ptr(),
                value_lens.as_mut_ptr(),
                whys.as_mut_ptr(),
            );
        }
        let mut failure = None;
        for (index, ((&value, &len), &why)) in values.iter().zip(&value_lens).zip(&whys).enumerate()
        {
            if !why.is_null() {
                failure = Some(refusal("multi_get", why));
            } else if !value.is_null() {
                // SAFETY: the library allocated `len` bytes there, to be freed by its caller.
                unsafe {
                    hit(index, std::slice::from_raw_parts(value, len));
                    rocksdb_free(value.cast());
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }
    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        let batch = Batch::new();
        for key in keys {
            // SAFETY: the batch is live and copies the key.
            unsafe { rocksdb_writebatch_delete(batch.0, key.as_ptr(), key.len()) };
        }
        self.write(&batch)?;
        Ok(keys.len() as u64)
    }
    fn position(&self) -> Result<Position<'_>> {
        // SAFETY: both handles are live; the position borrows `self`.
        let iterator = unsafe { rocksdb_create_iterator(self.db, self.read) };
        Ok(Position {
            iterator,
            _db: self,
        })
    }
    #[inline]
    fn jump(
        &self,
        position: &mut Position<'_>,
        key: &[u8],
        visit: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let iterator = position.iterator;
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: the iterator is live and borrowed exclusively; while it is valid and not moved,
        // it holds so many bytes at the two places.
        unsafe {
            rocksdb_iter_seek(iterator, key.as_ptr(), key.len());
            if rocksdb_iter_valid(iterator) != 0 {
                let found = rocksdb_iter_key(iterator, &raw mut key_len);
                let value = rocksdb_iter_value(iterator, &raw mut value_len);
                visit(
                    std::slice::from_raw_parts(found, key_len),
                    std::slice::from_raw_parts(value, value_len),
                );
            }
        }
        Ok(())
    }
    fn scan(&self, visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        let position = self.position()?;
        let iterator = position.iterator;
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: the iterator is live and this call's own; while it is valid and not moved, it holds so many bytes at the
        // two places.
        unsafe {
            rocksdb_iter_seek_to_first(iterator);
            while rocksdb_iter_valid(iterator) != 0 {
                let key = rocksdb_iter_key(iterator, &raw mut key_len);
                let value = rocksdb_iter_value(iterator, &raw mut value_len);
                visit(
                    std::slice::from_raw_parts(key, key_len),
                    std::slice::from_raw_parts(value, value_len),
                );
                rocksdb_iter_next(iterator);
            }
        }
        checked("scan", |why| {
            // SAFETY: the iterator is live.
            unsafe { rocksdb_iter_get_error(iterator, why) };
        })
    }
    fn sync(&self, durability: Durability) -> Result<()> {
        let hard = c_uchar::from(durability == Durability::Power);
        // SAFETY: the handle is live.
        checked("flush", |why| unsafe {
            rocksdb_flush_wal(self.db, hard, why);
        })
    }
}
