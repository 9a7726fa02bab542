//! Fuzzes datagrams: any bytes are a request or none, and an answer is bounded and comes in datagrams that fit together.
//!
//! The check is `fuzz/src/memcached_datagram.rs`; `make test` runs it on seeded inputs.
//! A panic is a finding. This file only connects it to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| azekura_fuzz::memcached_datagram::check(bytes));
