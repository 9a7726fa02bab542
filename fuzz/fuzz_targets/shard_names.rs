//! Fuzzes the manifest that names the files of a store of shards, and what opens by it.
//!
//! The check is `fuzz/src/shard_names.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::shard_names::check(bytes));
