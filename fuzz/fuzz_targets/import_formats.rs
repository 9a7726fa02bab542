//! Fuzzes what `import` reads: any bytes are records or one error in each format, tsv with its escapes, flat, JSON lines.
//!
//! The check is `fuzz/src/import_formats.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::import_formats::check(bytes));
