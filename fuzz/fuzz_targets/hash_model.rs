//! Fuzzes the hash engine against the model: each operation gives back what the model states.
//!
//! The check is `fuzz/src/hash_model.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::hash_model::check(bytes));
