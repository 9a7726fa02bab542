//! Fuzzes the server's configuration: any text holds within its bounds, or is refused by one line.
//!
//! The check is `fuzz/src/server_config.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::server_config::check(bytes));
