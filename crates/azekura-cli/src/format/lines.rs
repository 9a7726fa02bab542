//! Lines of a stream, counted, with a bound on their length.
//!
//! Promises: at most the bound is held in memory whatever the stream holds; the last line need not
//! end in a newline; a carriage return before the newline belongs to the line's end; a byte-order mark, which
//! some editors and spreadsheets put at the head of a file, belongs to no line.
//! It does not know what lines mean.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::io::{BufRead, Read as _};
use std::path::PathBuf;

use azekura::error::size;
use azekura::{Error, Kind, Result};

use super::{Limits, check_len};

/// Room in a line besides its key and value: punctuation, field names, spaces.
const ROOM: u64 = 1024;
/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads lines one by one.
pub(super) struct Lines<'i> {
    input: Box<dyn BufRead + 'i>,
    name: PathBuf,
    limits: Limits,
    line_len_max: u64,
    line: Vec<u8>,
    number: u64,
    consumed: u64,
}

impl<'i> Lines<'i> {
    /// Lines of `input`, called `name`; a byte of a record takes at most `bytes_per_byte` of a line.
    pub(super) fn new(
        input: Box<dyn BufRead + 'i>,
        name: PathBuf,
        limits: Limits,
        bytes_per_byte: u64,
    ) -> Self {
        let line_len_max = limits
            .key
            .saturating_add(limits.value)
            .saturating_mul(bytes_per_byte);
        let line_len_max = line_len_max.saturating_add(ROOM);
        Self {
            input,
            name,
            limits,
            line_len_max,
            line: Vec::new(),
            number: 0,
            consumed: 0,
        }
    }

    /// Moves to the next line that is not empty; `false` at the end.
    pub(super) fn advance(&mut self) -> Result<bool> {
        loop {
            self.line.clear();
            let bound = self.line_len_max.saturating_add(1);
            let read = (&mut self.input)
                .take(bound)
                .read_until(b'\n', &mut self.line)
                .map_err(|error| Error::io("cannot read", error).at(&self.name))?;
            if read == 0 {
                return Ok(false);
            }
            self.consumed += read as u64;
            self.number += 1;
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
                if self.line.last() == Some(&b'\r') {
                    self.line.pop();
                }
            } else if read as u64 == bound {
                return Err(Error::new(
                    Kind::TooLarge,
                    format!("line {} is too long", self.number),
                )
                .at(&self.name)
                .detail(format!("over {}", size(self.line_len_max))));
            }
            if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.drain(..BYTE_ORDER_MARK.len());
            }
            if !self.line.is_empty() {
                return Ok(true);
            }
        }
    }

    /// The line moved to.
    pub(super) fn line(&self) -> &[u8] {
        &self.line
    }

    /// An error about the line moved to.
    pub(super) fn broken(&self, what: &str) -> Error {
        Error::new(Kind::Invalid, format!("line {} {what}", self.number)).at(&self.name)
    }

    /// The `bytes` of a "key" or a "value" of the line moved to, if they are within the limit.
    pub(super) fn field(&self, what: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let (place, limit) = (format!("line {}", self.number), self.limits.of(what));
        check_len(what, &place, bytes.len() as u64, limit).map_err(|error| error.at(&self.name))?;
        Ok(bytes)
    }

    /// Bytes of the stream already read.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }
}
