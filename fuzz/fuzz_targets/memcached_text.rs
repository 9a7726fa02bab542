//! Fuzzes the grammar of the text protocol: any line is a command, or an answer that refuses it.
//!
//! The check is `fuzz/src/memcached_text.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::memcached_text::check(bytes));
