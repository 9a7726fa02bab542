//! Fuzzes the object store against a map: each operation gives back what the map holds.
//!
//! The check is `fuzz/src/object_model.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::object_model::check(bytes));
