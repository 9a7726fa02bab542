//! Standard output: the only way results leave the program; and notes in addition, on standard error.
//!
//! Promises: every write of a result is checked, and a reader who has seen enough (`azekura list f | head`) ends
//! the program quietly instead of with an error. A note that cannot be written changes nothing: the exit code is the same.
//! It does not know what is printed.

use std::fmt;
use std::io::{self, Write};

use azekura::{Error, Result};
use serde::Serialize;

const WHAT: &str = "cannot write to the standard output";

/// Writes a line to standard error, if that takes it: a full disk or a closed pipe there ends no export of what can be rescued.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::output::write_note(format_args!($($text)*))
    };
}
pub(crate) use note;

/// As [`note!`].
pub(crate) fn write_note(text: fmt::Arguments<'_>) {
    // In one piece, so that lines of several processes do not mix.
    let _ = io::stderr()
        .lock()
        .write_all(format!("{text}\n").as_bytes());
}

/// A place for results.
pub(crate) struct Output<'o>(&'o mut dyn Write);

impl<'o> Output<'o> {
    /// Results go to `to`, which should buffer.
    pub(crate) fn new(to: &'o mut dyn Write) -> Self {
        Self(to)
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).map_err(failed)
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<()> {
        writeln!(self.0, "{text}").map_err(failed)
    }

    /// Writes how many of `count` were not named, if that is any.
    pub(crate) fn more(&mut self, what: &str, count: u64, named: usize) -> Result<()> {
        match count.saturating_sub(named as u64) {
            0 => Ok(()),
            more => self.line(format_args!("{what}: {more} more")),
        }
    }

    /// Writes a line at once, for commands that people watch.
    pub(crate) fn line_now(&mut self, text: impl fmt::Display) -> Result<()> {
        self.line(text)?;
        self.0.flush().map_err(failed)
    }

    /// Writes text at once, for commands that draw.
    pub(crate) fn text_now(&mut self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())?;
        self.0.flush().map_err(failed)
    }

    /// Writes the result of a change at once: an error states that the change was made, as `made` puts it.
    pub(crate) fn after_change(
        &mut self,
        text: impl fmt::Display,
        made: impl fmt::Display,
    ) -> Result<()> {
        self.line_now(text)
            .map_err(|error| error.remedy(format!("do not repeat the command: {made}")))
    }

    /// Writes one JSON document on one line.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut *self.0, value).map_err(|error| failed(error.into()))?;
        self.bytes(b"\n")
    }

    /// The writer below, for formats; its errors are for [`failed`].
    pub(crate) fn writer(&mut self) -> &mut dyn Write {
        self.0
    }
}

/// `1 record`, `2 records`.
pub(crate) fn counted(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// The error of a write to standard output.
pub(crate) fn failed(error: io::Error) -> Error {
    Error::io(WHAT, error)
}

/// Whether `error` only means that the reader of a pipe has gone.
pub(crate) fn reader_left(error: &Error) -> bool {
    error.path().is_none()
        && error
            .system()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
