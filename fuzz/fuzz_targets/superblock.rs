//! Fuzzes the superblock: the head of any file is understood or refused, never a panic.
//!
//! The check is `fuzz/src/superblock.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::superblock::check(bytes));
