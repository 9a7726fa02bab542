//! Fuzzes what the hash engine keeps besides its log: its part of the superblock, roots, and packed images.
//!
//! The check is `fuzz/src/hash_layout.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::hash_layout::check(bytes));
