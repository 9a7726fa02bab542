//! Fuzzes a connection: any bytes, in any pieces, are answered the same, in whole answers, and little is kept of them.
//!
//! The check is `fuzz/src/memcached_session.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::memcached_session::check(bytes));
