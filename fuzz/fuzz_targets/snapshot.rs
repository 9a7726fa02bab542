//! Fuzzes snapshots: any file gives all records that were saved, or an error; never a panic.
//!
//! The check is `fuzz/src/snapshot.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::snapshot::check(bytes));
