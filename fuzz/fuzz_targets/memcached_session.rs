//! Fuzzes a connection: any bytes, in any pieces, are answered the same, in whole answers, and little is kept of them.
//!
//! What holds is said where `make test` tries it too, with bytes that it makes itself.
//! It knows no sockets.

#![no_main]

#[path = "../../crates/azekura-server/tests/anything/session.rs"]
mod session;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    session::check(bytes);
});
