//! Fuzzes the whole way from the bytes of a sorted file, and of its pending edits, to its records.
//!
//! The check is `fuzz/src/skip_open.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::skip_open::check(bytes));
