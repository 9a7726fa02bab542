//! Fuzzes what an object store keeps: superblock, label, root, lists, records of the journal, extents.
//!
//! The check is `fuzz/src/object_layout.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::object_layout::check(bytes));
