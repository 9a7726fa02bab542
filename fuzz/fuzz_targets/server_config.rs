//! Fuzzes the server's configuration: any text holds within its bounds, or is refused by one line.
//!
//! What holds is said where `make test` tries it too, with texts that it makes itself.
//! It opens nothing, and looks up no names.

#![no_main]

#[path = "../../crates/azekura-server/tests/anything/config.rs"]
mod config;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    config::check(bytes);
});
