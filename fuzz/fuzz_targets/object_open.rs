//! Fuzzes the whole way from a device's bytes to its objects: opening, reading, checking, repairing.
//!
//! The check is `fuzz/src/object_open.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::object_open::check(bytes));
