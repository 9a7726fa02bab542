//! Fuzzes frames: any bytes at any place are a frame or none, and a frame lies within its bytes.
//!
//! The check is `fuzz/src/frame.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::frame::check(bytes));
