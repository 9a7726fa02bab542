//! How long keys and values may be, and the error that states it.
//!
//! Each engine has its limits, names whose they are, and asks before it changes anything. It does not know what the limits
//! are for.

use crate::error::{Error, Kind, Result, size};

pub(crate) struct Limits {
    /// Bytes of the longest key.
    pub(crate) key: u64,
    /// Bytes of the longest value.
    pub(crate) value: u64,
    /// Whose limits they are, as in "the 8.0 MiB limit of a hash file".
    pub(crate) whose: &'static str,
}

impl Limits {
    /// `TooLarge` if one of them is.
    #[inline(always)]
    pub(crate) fn check(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if key.len() as u64 > self.key {
            return Err(self.too_large("key", key.len(), self.key, key));
        }
        if value.len() as u64 > self.value {
            return Err(self.too_large("value", value.len(), self.value, key));
        }
        Ok(())
    }

    /// `TooLarge` if a value of so many bytes, which is not made yet, is.
    pub(crate) fn check_len(&self, key: &[u8], value_len: usize) -> Result<()> {
        if value_len as u64 > self.value {
            return Err(self.too_large("value", value_len, self.value, key));
        }
        Ok(())
    }

    #[cold]
    fn too_large(&self, what: &str, len: usize, limit: u64, key: &[u8]) -> Error {
        let message = format!(
            "{what} of {} exceeds the {} limit of {}",
            size(len as u64),
            size(limit),
            self.whose
        );
        Error::new(Kind::TooLarge, message)
            .key(key)
            .found(format!("{len} bytes"), format!("at most {limit}"))
            .remedy("split it, or keep it in files of its own")
    }
}
