//! Tkrzw's flat records: blobs with their length before them, key and value in turn.
//!
//! ```text
//!   offset  size  meaning
//!   0       1     0xff: data; 0xfe: metadata, which stands outside the pairs
//!   1       1-10  length: groups of 7 bits, the highest first; the high bit states that more follow
//!   ..      len   the bytes
//! ```
//!
//! Promises: what Tkrzw's tools export is read, and what is written here they read; metadata is
//! skipped; memory is taken as bytes arrive, not as lengths announce. It does not know stores.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::io::{self, BufRead, Read as _, Write};
use std::path::PathBuf;

use azekura::{Error, Kind, Result};

use super::{Limits, ReadRecords, Record, check_len};

const DATA: u8 = 0xff;
const METADATA: u8 = 0xfe;
/// Bytes of the longest length: 64 bits in groups of seven.
const LENGTH_LEN_MAX: usize = 10;
/// Metadata is a few hundred bytes of settings; this bounds what is skipped as such.
const METADATA_LEN_MAX: u64 = 1 << 20;

/// Reads records from blobs.
pub(super) struct Reader<'i> {
    input: Box<dyn BufRead + 'i>,
    name: PathBuf,
    limits: Limits,
    consumed: u64,
}

/// What stands before the bytes of a blob.
struct Head {
    offset: u64,
    is_data: bool,
    len: u64,
}

impl<'i> Reader<'i> {
    /// Records of `input`, called `name`.
    pub(super) fn new(input: Box<dyn BufRead + 'i>, name: PathBuf, limits: Limits) -> Self {
        Self {
            input,
            name,
            limits,
            consumed: 0,
        }
    }

    fn broken(&self, what: impl Into<String>, offset: u64) -> Error {
        Error::new(Kind::Invalid, what)
            .at(&self.name)
            .offset(offset)
    }

    fn byte(&mut self) -> Result<Option<u8>> {
        let mut byte = [0];
        loop {
            match self.input.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => {
                    self.consumed += 1;
                    return Ok(Some(byte[0]));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("cannot read", error).at(&self.name)),
            }
        }
    }

    fn head(&mut self) -> Result<Option<Head>> {
        let offset = self.consumed;
        let is_data = match self.byte()? {
            None => return Ok(None),
            Some(DATA) => true,
            Some(METADATA) => false,
            Some(byte) => {
                return Err(self
                    .broken("no flat record", offset)
                    .found(format!("byte {byte:#04x}"), "0xff or 0xfe"));
            }
        };
        let mut len = 0_u64;
        for _ in 0..LENGTH_LEN_MAX {
            let Some(byte) = self.byte()? else {
                return Err(self
                    .broken("the stream ends inside a length", offset)
                    .found("the end", "more bytes"));
            };
            if len >> 57 != 0 {
                break;
            }
            len = len << 7 | u64::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                return Ok(Some(Head {
                    offset,
                    is_data,
                    len,
                }));
            }
        }
        Err(self
            .broken("a length does not end", offset)
            .found("more than 64 bits", "a 64-bit number"))
    }

    /// Reads the next blob of data into `bytes`, skipping metadata; `false` at the end.
    fn blob(&mut self, what: &str, bytes: &mut Vec<u8>) -> Result<bool> {
        loop {
            let Some(head) = self.head()? else {
                return Ok(false);
            };
            let (what, limit) = if head.is_data {
                (what, self.limits.of(what))
            } else {
                ("metadata", METADATA_LEN_MAX)
            };
            check_len(what, "a flat record", head.len, limit)
                .map_err(|error| error.at(&self.name).offset(head.offset))?;
            bytes.clear();
            let read = (&mut self.input)
                .take(head.len)
                .read_to_end(bytes)
                .map_err(|error| Error::io("cannot read", error).at(&self.name))?;
            self.consumed += read as u64;
            if (read as u64) < head.len {
                return Err(self
                    .broken(
                        format!("the stream ends inside a flat record's {what}"),
                        head.offset,
                    )
                    .found(format!("{read} bytes"), format!("{} bytes", head.len)));
            }
            if head.is_data {
                return Ok(true);
            }
        }
    }
}

impl ReadRecords for Reader<'_> {
    fn read(&mut self, record: &mut Record) -> Result<bool> {
        if !self.blob("key", &mut record.key)? {
            return Ok(false);
        }
        if !self.blob("value", &mut record.value)? {
            return Err(self
                .broken("the stream ends between a key and its value", self.consumed)
                .found("the end", "a value"));
        }
        Ok(true)
    }

    fn consumed(&self) -> u64 {
        self.consumed
    }
}

/// Writes metadata after the last record: Tkrzw's import takes an empty value at the very end of a
/// stream for a missing one.
pub(super) fn end(to: &mut dyn Write) -> io::Result<()> {
    to.write_all(&[METADATA, 7])?;
    to.write_all(b"azekura")
}

/// Writes a record as two blobs.
pub(super) fn write(to: &mut dyn Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    for bytes in [key, value] {
        // Lowest group first, then reversed after the kind.
        let mut len = bytes.len();
        let mut head = vec![(len & 0x7f) as u8];
        while len > 0x7f {
            len >>= 7;
            head.push((len & 0x7f) as u8 | 0x80);
        }
        head.push(DATA);
        head.reverse();
        to.write_all(&head)?;
        to.write_all(bytes)?;
    }
    Ok(())
}
