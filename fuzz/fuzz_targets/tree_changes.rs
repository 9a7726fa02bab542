//! Fuzzes what changed since a copy of a tree file: applied, it is all there, or nothing of it.
//!
//! The check is `fuzz/src/tree_changes.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::tree_changes::check(bytes));
