//! Fuzzes heads of requests by HTTP: any bytes are open, refused or a request, and stay what they are.
//!
//! What holds is said where `make test` tries it too, with bytes that it makes itself.
//! It knows no pages.

#![no_main]

#[path = "../../crates/azekura-server/tests/anything/http.rs"]
mod http;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    http::check(bytes);
});
