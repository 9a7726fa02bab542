//! Fuzzes datagrams: any bytes are a request or none, and an answer is bounded and comes in datagrams that fit together.
//!
//! What holds is said where `make test` tries it too, with bytes that it makes itself.
//! It knows no sockets.

#![no_main]

#[path = "../../crates/azekura-server/tests/anything/datagram.rs"]
mod datagram;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    datagram::check(bytes);
});
