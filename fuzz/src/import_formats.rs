//! Fuzzes what `import` reads: any bytes are records or one error in each format, tsv with its escapes, flat, JSON lines.
//!
//! What is read is written and read again, and must be the same: a record that is read as another one would be
//! stored as another one. It does not know stores.

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    azekura_cli::read_streams(bytes);
}
