//! Fuzzes the whole way from a tree file's bytes to its records: opening, reading, checking, changing.
//!
//! The check is `fuzz/src/tree_open.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::tree_open::check(bytes));
