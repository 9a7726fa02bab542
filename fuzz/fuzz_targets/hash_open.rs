//! Fuzzes the whole way from a file's bytes to its records: opening, reading, checking, repairing.
//!
//! The check is `fuzz/src/hash_open.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::hash_open::check(bytes));
