//! Tkrzw's `HashDBM`, through a shim of one C function per call.
//!
//! Settings are those of its published benchmark: the defaults, and as many buckets as operations
//! once these exceed the default of 1048583. It has no batched calls that overlap memory accesses,
//! so batches are single calls. Durability `power` synchronises hard after every write.

#![expect(unsafe_code, reason = "calls a C library")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{NonNull, null};

use azekura::engine::Durability;
use azekura::error::Result;
use azekura_bench::target::{Setup, Target};

use super::failed;

/// The library's default, and what is enough for so many records.
const BUCKETS: u64 = 1_048_583;

// SAFETY: these are the functions of shim/tkrzw.cc, with its types.
unsafe extern "C" {
    fn tkrzw_version() -> *const c_char;
    fn tkrzw_hash_open(path: *const u8, len: usize, create: c_int, buckets: i64) -> *mut c_void;
    fn tkrzw_hash_close(dbm: *mut c_void) -> c_int;
    fn tkrzw_hash_set(
        dbm: *mut c_void,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    ) -> c_int;
    fn tkrzw_hash_has(dbm: *mut c_void, key: *const u8, key_len: usize) -> c_int;
    fn tkrzw_hash_read(
        dbm: *mut c_void,
        key: *const u8,
        key_len: usize,
        value: *mut *const u8,
        value_len: *mut usize,
    ) -> c_int;
    fn tkrzw_hash_remove(dbm: *mut c_void, key: *const u8, key_len: usize) -> c_int;
    fn tkrzw_hash_sync(dbm: *mut c_void, hard: c_int) -> c_int;
    fn tkrzw_hash_position(dbm: *mut c_void) -> *mut c_void;
    fn tkrzw_hash_jump(
        at: *mut c_void,
        key: *const u8,
        key_len: usize,
        found: *mut *const u8,
        found_len: *mut usize,
        value: *mut *const u8,
        value_len: *mut usize,
    ) -> c_int;
    fn tkrzw_hash_position_free(at: *mut c_void);
}

/// The version of the library.
pub(crate) fn version() -> String {
    // SAFETY: the library hands out a string constant.
    unsafe { CStr::from_ptr(tkrzw_version()) }
        .to_string_lossy()
        .into_owned()
}

/// An open database.
pub(crate) struct Tkrzw {
    dbm: NonNull<c_void>,
    power: bool,
}

// SAFETY: HashDBM documents that all its operations are thread-safe, and it has no thread affinity.
unsafe impl Sync for Tkrzw {}

/// An iterator.
pub(crate) struct Position<'t> {
    at: *mut c_void,
    dbm: PhantomData<&'t Tkrzw>,
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `tkrzw_hash_position`, freed once; the database is still open (lifetime).
        unsafe { tkrzw_hash_position_free(self.at) };
    }
}

/// Done, absent, or an error.
#[inline]
fn answer(code: c_int, what: &str) -> Result<bool> {
    match code {
        0 => Ok(true),
        1 => Ok(false),
        _ => Err(failed(what, "tkrzw does not say why")),
    }
}

impl Tkrzw {
    #[inline]
    fn written(&self) -> Result<()> {
        if self.power {
            self.sync(Durability::Power)
        } else {
            Ok(())
        }
    }
}

impl Target for Tkrzw {
    const NAME: &'static str = "tkrzw-hash";
    const PERSISTENT: bool = true;
    type Position<'t> = Position<'t>;

    fn open(setup: &Setup) -> Result<Self> {
        let path = setup.require_path()?.as_os_str().as_bytes();
        let buckets = if setup.records > BUCKETS {
            setup.records.cast_signed()
        } else {
            0
        };
        // SAFETY: the path is copied before the call returns.
        let dbm = unsafe {
            tkrzw_hash_open(
                path.as_ptr(),
                path.len(),
                c_int::from(setup.create),
                buckets,
            )
        };
        let dbm = NonNull::new(dbm).ok_or_else(|| failed("open", "tkrzw does not say why"))?;
        Ok(Self {
            dbm,
            power: setup.durability == Durability::Power,
        })
    }
    fn close(self) -> Result<()> {
        // SAFETY: made by `tkrzw_hash_open`; `self` is consumed, and positions cannot outlive it.
        answer(unsafe { tkrzw_hash_close(self.dbm.as_ptr()) }, "close").map(drop)
    }
    #[inline]
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: the database is open; both slices are valid during the call.
        let code = unsafe {
            tkrzw_hash_set(
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
            unsafe { tkrzw_hash_has(self.dbm.as_ptr(), key.as_ptr(), key.len()) },
            "get",
        )
    }
    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let (mut text, mut len) = (null(), 0);
        // SAFETY: the database is open; the key and the two places are valid during the call.
        let code = unsafe {
            tkrzw_hash_read(
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
        let code = unsafe { tkrzw_hash_remove(self.dbm.as_ptr(), key.as_ptr(), key.len()) };
        let found = answer(code, "remove")?;
        self.written()?;
        Ok(found)
    }
    fn position(&self) -> Result<Position<'_>> {
        // SAFETY: the database is open; the position borrows it.
        let at = unsafe { tkrzw_hash_position(self.dbm.as_ptr()) };
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
            tkrzw_hash_jump(
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
    fn sync(&self, durability: Durability) -> Result<()> {
        let hard = c_int::from(durability == Durability::Power);
        // SAFETY: the database is open.
        answer(
            unsafe { tkrzw_hash_sync(self.dbm.as_ptr(), hard) },
            "synchronise",
        )
        .map(drop)
    }
}
