//! Fuzzes what `import` reads: any bytes are records or one error in each format, tsv with its escapes, flat, JSON lines.
//!
//! What is read is written and read again, and must be the same: a record that is read as another one would be
//! stored as another one. It does not know stores.

/// Inputs to begin with: two records in each format.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        &b"a\tb\nc\\t\\x00\td\n"[..],
        b"{\"key\":\"a\",\"value\":\"b\"}\n{\"key_base64\":\"/wA=\",\"value\":\"\"}\n",
        b"\x01\0\0\0a\x01\0\0\0b\x00\0\0\0\x02\0\0\0cd",
    ]
    .map(Into::into)
    .to_vec()
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    azekura_cli::read_streams(bytes);
}
