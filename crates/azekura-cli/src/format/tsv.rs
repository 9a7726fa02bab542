//! Tab-separated lines: `key TAB value NEWLINE`, with escapes for what would disturb.
//!
//! Promises: written lines are printable UTF-8 and hold any bytes; lines are read as `text.rs` reads
//! escapes, so those of Tkrzw's `--escape` are understood, and empty lines are skipped (an
//! empty key with an empty value is a lone tab). A byte-order mark at the stream's head is skipped; one that a
//! record holds is written as an escape. It does not know stores.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use azekura::Result;
use azekura::error::quote;

use super::lines::Lines;
use super::{Limits, ReadRecords, Record};
use crate::text::{escape, unescape};

/// `\xHH` is four bytes for one.
const BYTES_PER_BYTE: u64 = 4;

/// Reads records from lines.
pub(super) struct Reader<'i>(Lines<'i>);

impl<'i> Reader<'i> {
    /// Records of `input`, called `name`.
    pub(super) fn new(input: Box<dyn BufRead + 'i>, name: PathBuf, limits: Limits) -> Self {
        Self(Lines::new(input, name, limits, BYTES_PER_BYTE))
    }

    fn field(&self, what: &str, text: &[u8]) -> Result<Vec<u8>> {
        let bytes = unescape(text).map_err(|position| {
            let found: Vec<u8> = text.iter().skip(position).take(2).copied().collect();
            self.0
                .broken(&format!("has an unknown escape in the {what}"))
                .found(quote(&found), r"\\ \t \n \r or \xHH")
        })?;
        self.0.field(what, bytes)
    }
}

impl ReadRecords for Reader<'_> {
    fn read(&mut self, record: &mut Record) -> Result<bool> {
        if !self.0.advance()? {
            return Ok(false);
        }
        let line = self.0.line();
        let mut fields = line.split(|byte| *byte == b'\t');
        let key = fields.next().unwrap_or_default();
        let Some(value) = fields.next() else {
            return Err(self
                .0
                .broken("has no tab")
                .found(quote(line), "key, tab, value"));
        };
        if fields.next().is_some() {
            let column = key.len() + value.len() + 2;
            return Err(self
                .0
                .broken("has a second tab")
                .found(format!("column {column}"), "key, tab, value")
                .remedy(r"write tabs inside a value as \t"));
        }
        record.key = self.field("key", key)?;
        record.value = self.field("value", value)?;
        Ok(true)
    }

    fn consumed(&self) -> u64 {
        self.0.consumed()
    }
}

/// Writes a record as a line.
pub(super) fn write(to: &mut dyn Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    writeln!(to, "{}\t{}", escape(key), escape(value))
}
