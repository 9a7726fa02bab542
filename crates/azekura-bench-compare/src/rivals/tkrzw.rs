//! Tkrzw's databases, through a shim of one C function per call: `HashDBM`, `TreeDBM`, `SkipDBM`, and those in memory.
//!
//! Settings are those of its published benchmark: the defaults; for `HashDBM`, `TinyDBM` and `StdHashDBM` as many
//! buckets as operations once these exceed the default of 1048583; for `CacheDBM` room for a tenth more records
//! than operations, once it would have to evict; for `TreeDBM` and `SkipDBM` beyond as many operations those of its table of 100
//! million random records as they stand (tree: aligned by 2^12, a million buckets, pages of 4080 bytes, 400,000 of them cached, or as
//! many as the plan's cache holds; skip: 1500 MiB to sort, 25 million cached records, the last value of a key counts). They have no batched calls that overlap memory accesses,
//! so batches are single calls. What `TreeDBM` and `SkipDBM` acknowledged survives no death of the process before the phase ends
//! (class `buffered`): they have nothing between that and a full sync, and are favoured by it. A removal of `SkipDBM` writes a
//! mark and does not look, so its answer is always yes. Durability `power` synchronises hard after every write.
//!
//! Those in memory are never opened, as its own tool does without a path, and stay between the phases.

#![expect(unsafe_code, reason = "calls a C library")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{NonNull, null};

use azekura::engine::Durability;
use azekura::error::Result;
use azekura_bench::phase::Class;
use azekura_bench::target::{Setup, Target};

use super::failed;

/// The library's default, and what is enough for so many records.
const BUCKETS: u64 = 1_048_583;
/// Memory that a page of 4080 bytes takes in its page cache, where each record is an allocation of its own.
const PAGE_BYTES: u64 = 8192;
/// What its cache holds by default, and not quite: each of its 32 parts holds a 32nd.
const CAPACITY: u64 = 1_000_000;

/// The classes, by the numbers of the shim.
pub(crate) mod class {
    pub(crate) const HASH: u8 = 0;
    pub(crate) const TINY: u8 = 1;
    pub(crate) const BABY: u8 = 2;
    pub(crate) const CACHE: u8 = 3;
    pub(crate) const STD_HASH: u8 = 4;
    pub(crate) const STD_TREE: u8 = 5;
    pub(crate) const TREE: u8 = 6;
    pub(crate) const SKIP: u8 = 7;
}

const NAMES: [&str; 8] = [
    "tkrzw-hash",
    "tkrzw-tiny",
    "tkrzw-baby",
    "tkrzw-cache",
    "tkrzw-std-hash",
    "tkrzw-std-tree",
    "tkrzw-tree",
    "tkrzw-skip",
];

/// What a scan calls for each record: context, key, value.
type Visit = extern "C" fn(*mut c_void, *const u8, usize, *const u8, usize);

// SAFETY: these are the functions of shim/tkrzw.cc, with its types.
unsafe extern "C" {
    fn tkrzw_version() -> *const c_char;
    fn tkrzw_open_hash(path: *const u8, len: usize, create: c_int, buckets: i64) -> *mut c_void;
    fn tkrzw_open_tree(
        path: *const u8,
        len: usize,
        create: c_int,
        align_pow: i32,
        buckets: i64,
        page_size: i32,
        cached_pages: i32,
    ) -> *mut c_void;
    fn tkrzw_open_skip(
        path: *const u8,
        len: usize,
        create: c_int,
        sort_mem_size: i64,
        cached_records: i32,
    ) -> *mut c_void;
    fn tkrzw_scan(dbm: *mut c_void, visit: Visit, context: *mut c_void) -> c_int;
    fn tkrzw_make(kind: c_int, size: i64) -> *mut c_void;
    fn tkrzw_count(dbm: *mut c_void) -> i64;
    fn tkrzw_close(dbm: *mut c_void) -> c_int;
    fn tkrzw_set(
        dbm: *mut c_void,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    ) -> c_int;
    fn tkrzw_has(dbm: *mut c_void, key: *const u8, key_len: usize) -> c_int;
    fn tkrzw_read(
        dbm: *mut c_void,
        key: *const u8,
        key_len: usize,
        value: *mut *const u8,
        value_len: *mut usize,
    ) -> c_int;
    fn tkrzw_remove(dbm: *mut c_void, key: *const u8, key_len: usize) -> c_int;
    fn tkrzw_sync(dbm: *mut c_void, hard: c_int) -> c_int;
    fn tkrzw_position(dbm: *mut c_void) -> *mut c_void;
    fn tkrzw_jump(
        at: *mut c_void,
        key: *const u8,
        key_len: usize,
        found: *mut *const u8,
        found_len: *mut usize,
        value: *mut *const u8,
        value_len: *mut usize,
    ) -> c_int;
    fn tkrzw_position_free(at: *mut c_void);
}

/// Name and version of the library.
pub(crate) fn version() -> String {
    // SAFETY: the library hands out a string constant.
    let version = unsafe { CStr::from_ptr(tkrzw_version()) };
    format!("tkrzw {}", version.to_string_lossy())
}

/// An open database of a class.
pub(crate) struct Tkrzw<const CLASS: u8> {
    dbm: NonNull<c_void>,
    power: bool,
}

// SAFETY: each class documents that all its operations are thread-safe, and has no thread affinity.
unsafe impl<const CLASS: u8> Sync for Tkrzw<CLASS> {}

/// An iterator.
pub(crate) struct Position<'t> {
    at: *mut c_void,
    dbm: PhantomData<&'t ()>,
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `tkrzw_position`, freed once; the database is still open (lifetime).
        unsafe { tkrzw_position_free(self.at) };
    }
}

/// Done, absent, or an error.
#[inline]
fn answer(code: c_int, what: &str) -> Result<bool> {
    match code {
        0 => Ok(true),
        1 => Ok(false),
        _ => Err(failed(what, "tkrzw gives no reason")),
    }
}

/// Lends a record to the closure that `scan` made the context of.
extern "C" fn lend(
    context: *mut c_void,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
) {
    // SAFETY: the context is that of `scan`, which waits meanwhile; the record lives during the call.
    unsafe {
        let visit = context.cast::<&mut dyn FnMut(&[u8], &[u8])>();
        (*visit)(
            std::slice::from_raw_parts(key, key_len),
            std::slice::from_raw_parts(value, value_len),
        );
    }
}

impl<const CLASS: u8> Tkrzw<CLASS> {
    #[inline]
    fn written(&self) -> Result<()> {
        if self.power {
            self.sync(Durability::Power)
        } else {
            Ok(())
        }
    }
}

impl<const CLASS: u8> Target for Tkrzw<CLASS> {
    const NAME: &'static str = NAMES[CLASS as usize];
    const PERSISTENT: bool = matches!(CLASS, class::HASH | class::TREE | class::SKIP);
    const COUNTS_REMOVALS: bool = CLASS != class::SKIP;
    const ORDERED: bool = matches!(
        CLASS,
        class::TREE | class::SKIP | class::BABY | class::STD_TREE
    );
    type Position<'t> = Position<'t>;

    fn class(durability: Durability) -> Class {
        match durability {
            Durability::Process if matches!(CLASS, class::TREE | class::SKIP) => Class::Buffered,
            durability => durability.into(),
        }
    }

    fn open(setup: &Setup) -> Result<Self> {
        let buckets = if setup.records > BUCKETS {
            setup.records.cast_signed()
        } else {
            0
        };
        let dbm = if Self::PERSISTENT {
            let path = setup.require_path()?.as_os_str().as_bytes();
            let create = c_int::from(setup.create);
            let (path, len) = (path.as_ptr(), path.len());
            let is_large = setup.records > BUCKETS || setup.cache.is_some();
            // SAFETY: the path is copied before the call returns.
            unsafe {
                match CLASS {
                    class::TREE if is_large => {
                        let pages = setup.cache.map_or(400_000, |cache| cache / PAGE_BYTES);
                        let pages = i32::try_from(pages).unwrap_or(i32::MAX);
                        tkrzw_open_tree(path, len, create, 12, 1_000_000, 4080, pages)
                    }
                    class::TREE => tkrzw_open_tree(path, len, create, 0, 0, 0, 0),
                    class::SKIP if is_large => {
                        tkrzw_open_skip(path, len, create, 1500 << 20, 25_000_000)
                    }
                    class::SKIP => tkrzw_open_skip(path, len, create, 0, 0),
                    _ => tkrzw_open_hash(path, len, create, buckets),
                }
            }
        } else {
            let size = match CLASS {
                class::TINY | class::STD_HASH => buckets,
                class::CACHE if setup.records > CAPACITY => {
                    (setup.records + setup.records / 10).cast_signed()
                }
                _ => 0,
            };
            // SAFETY: it takes numbers only, and makes an object that no other code has.
            unsafe { tkrzw_make(c_int::from(CLASS), size) }
        };
        let dbm = NonNull::new(dbm).ok_or_else(|| failed("open", "tkrzw gives no reason"))?;
        Ok(Self {
            dbm,
            power: setup.durability == Durability::Power,
        })
    }
    fn close(self) -> Result<()> {
        // SAFETY: made by `open`; `self` is consumed, and positions cannot outlive it.
        answer(unsafe { tkrzw_close(self.dbm.as_ptr()) }, "close").map(drop)
    }
    #[inline]
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: the database is open; both slices are valid during the call.
        let code = unsafe {
            tkrzw_set(
                self.dbm.as_ptr(),
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
            )
        };
        answer(code, "set")?;
        self.written()
    }
    #[inline]
    fn has(&self, key: &[u8]) -> Result<bool> {
        // SAFETY: the database is open; the key is valid during the call.
        answer(
            unsafe { tkrzw_has(self.dbm.as_ptr(), key.as_ptr(), key.len()) },
            "get",
        )
    }
    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let (mut text, mut len) = (null(), 0);
        // SAFETY: the database is open; the key and the two places are valid during the call.
        let code = unsafe {
            tkrzw_read(
                self.dbm.as_ptr(),
                key.as_ptr(),
                key.len(),
                &raw mut text,
                &raw mut len,
            )
        };
        let found = answer(code, "get")?;
        if found {
            value.clear();
            // SAFETY: the shim's buffer of this thread holds `len` bytes until the next read.
            value.extend_from_slice(unsafe { std::slice::from_raw_parts(text, len) });
        }
        Ok(found)
    }
    #[inline]
    fn remove(&self, key: &[u8]) -> Result<bool> {
        // SAFETY: the database is open; the key is valid during the call.
        let code = unsafe { tkrzw_remove(self.dbm.as_ptr(), key.as_ptr(), key.len()) };
        let found = answer(code, "remove")?;
        self.written()?;
        Ok(found)
    }
    fn position(&self) -> Result<Position<'_>> {
        // SAFETY: the database is open; the position borrows it.
        let at = unsafe { tkrzw_position(self.dbm.as_ptr()) };
        Ok(Position {
            at,
            dbm: PhantomData,
        })
    }
    #[inline]
    fn jump(
        &self,
        position: &mut Position<'_>,
        key: &[u8],
        visit: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let (mut found, mut found_len, mut value, mut value_len) = (null(), 0, null(), 0);
        // SAFETY: the position is live and borrowed exclusively; all places are valid.
        let code = unsafe {
            tkrzw_jump(
                position.at,
                key.as_ptr(),
                key.len(),
                &raw mut found,
                &raw mut found_len,
                &raw mut value,
                &raw mut value_len,
            )
        };
        if answer(code, "jump")? {
            // SAFETY: the position's two buffers hold so many bytes until its next jump.
            let (found, value) = unsafe {
                (
                    std::slice::from_raw_parts(found, found_len),
                    std::slice::from_raw_parts(value, value_len),
                )
            };
            visit(found, value);
        }
        Ok(())
    }
    fn records(&self) -> Option<u64> {
        // SAFETY: the database is open.
        u64::try_from(unsafe { tkrzw_count(self.dbm.as_ptr()) }).ok()
    }
    fn scan(&self, visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        if !Self::ORDERED {
            return Err(failed("scan", "this class has no order"));
        }
        let mut visit: &mut dyn FnMut(&[u8], &[u8]) = visit;
        let context = (&raw mut visit).cast();
        // SAFETY: the database is open; the context is the closure's, which outlives the call.
        answer(
            unsafe { tkrzw_scan(self.dbm.as_ptr(), lend, context) },
            "scan",
        )
        .map(drop)
    }
    fn sync(&self, durability: Durability) -> Result<()> {
        if !Self::PERSISTENT {
            return Ok(());
        }
        let hard = c_int::from(durability == Durability::Power);
        // SAFETY: the database is open.
        answer(
            unsafe { tkrzw_sync(self.dbm.as_ptr(), hard) },
            "synchronise",
        )
        .map(drop)
    }
}
