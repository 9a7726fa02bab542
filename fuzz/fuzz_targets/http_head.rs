//! Fuzzes heads of requests by HTTP: any bytes are open, refused or a request, and stay what they are.
//!
//! The check is `fuzz/src/http_head.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::http_head::check(bytes));
