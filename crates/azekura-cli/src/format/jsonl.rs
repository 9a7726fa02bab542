//! JSON lines: an object per record, `{"key":"..","value":".."}`.
//!
//! Bytes that are not UTF-8 stand in `key_base64` or `value_base64` instead. Fields come in any
//! order; unknown, repeated and missing ones are refused. An object without a value means that the
//! record is absent: `get --json` answers so, and it cannot be imported.
//! It does not know stores.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::borrow::Cow;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use azekura::Result;
use azekura::error::quote;
use data_encoding::BASE64;
use serde::{Deserialize, Serialize};

use super::lines::Lines;
use super::{Limits, ReadRecords, Record};

/// `\u00HH` is six bytes for one.
const BYTES_PER_BYTE: u64 = 6;
/// The shape that messages ask for.
const SHAPE: &str = r#"{"key":..,"value":..}"#;

/// A record as JSON.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "an object with a key and a value")]
pub(crate) struct Line<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    key_base64: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    value_base64: Option<Cow<'a, str>>,
}

impl<'a> Line<'a> {
    /// The record `key`, absent without a `value`.
    pub(crate) fn new(key: &'a [u8], value: Option<&'a [u8]>) -> Self {
        let (key, key_base64) = split(Some(key));
        let (value, value_base64) = split(value);
        Self {
            key,
            key_base64,
            value,
            value_base64,
        }
    }
}

/// Bytes as text, or else as base64.
fn split(bytes: Option<&[u8]>) -> (Option<Cow<'_, str>>, Option<Cow<'_, str>>) {
    match bytes.map(|bytes| (bytes, str::from_utf8(bytes))) {
        None => (None, None),
        Some((_, Ok(text))) => (Some(text.into()), None),
        Some((bytes, Err(_))) => (None, Some(BASE64.encode(bytes).into())),
    }
}

/// Reads records from lines.
pub(super) struct Reader<'i>(Lines<'i>);

impl<'i> Reader<'i> {
    /// Records of `input`, called `name`.
    pub(super) fn new(input: Box<dyn BufRead + 'i>, name: PathBuf, limits: Limits) -> Self {
        Self(Lines::new(input, name, limits, BYTES_PER_BYTE))
    }

    fn field(
        &self,
        what: &str,
        text: Option<Cow<'_, str>>,
        base64: Option<Cow<'_, str>>,
    ) -> Result<Vec<u8>> {
        let bytes = match (text, base64) {
            (Some(text), None) => text.into_owned().into_bytes(),
            (None, Some(base64)) => BASE64.decode(base64.as_bytes()).map_err(|_| {
                self.0
                    .broken(&format!("has a {what}_base64 that is not base64"))
                    .found(quote(base64.as_bytes()), "padded base64")
            })?,
            (text, _) => {
                let what = if text.is_some() {
                    format!("has two {what}s")
                } else {
                    format!("has no {what}")
                };
                let line: Vec<u8> = self.0.line().iter().take(64).copied().collect();
                let shown = line.escape_ascii().to_string();
                return Err(self
                    .0
                    .broken(&what)
                    .found(shown.replace("\\\"", "\""), SHAPE));
            }
        };
        self.0.field(what, bytes)
    }
}

impl ReadRecords for Reader<'_> {
    fn read(&mut self, record: &mut Record) -> Result<bool> {
        while self.0.advance()? {
            if self.0.line().trim_ascii().is_empty() {
                continue;
            }
            // The decoder would take an array for the fields in their order.
            let start = self.0.line().trim_ascii_start().first();
            if start == Some(&b'[') {
                return Err(self
                    .0
                    .broken("is not a JSON record")
                    .found("an array", SHAPE));
            }
            let line: Line<'_> = serde_json::from_slice(self.0.line()).map_err(|error| {
                let text = error.to_string();
                let text = text.replace(&format!("at line {} column", error.line()), "at column");
                self.0.broken("is not a JSON record").detail(text)
            })?;
            record.key = self.field("key", line.key, line.key_base64)?;
            record.value = self.field("value", line.value, line.value_base64)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn consumed(&self) -> u64 {
        self.0.consumed()
    }
}

/// Writes a record as a line.
pub(super) fn write(to: &mut dyn Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    serde_json::to_writer(&mut *to, &Line::new(key, Some(value)))?;
    to.write_all(b"\n")
}
