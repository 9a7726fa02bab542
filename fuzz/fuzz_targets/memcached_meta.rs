//! Fuzzes the grammar of the meta commands.
//!
//! The check is `fuzz/src/memcached_meta.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::memcached_meta::check(bytes));
