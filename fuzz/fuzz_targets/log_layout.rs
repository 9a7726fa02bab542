//! Fuzzes what a log keeps besides its frames: segment headers, links and the durable mark.
//!
//! The check is `fuzz/src/log_layout.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::log_layout::check(bytes));
