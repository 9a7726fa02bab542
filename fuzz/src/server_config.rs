//! Fuzzes the server's configuration: any text holds within its bounds, or is refused by one line.
//!
//! What holds is checked where `make test` tries it too, with texts that it makes itself.
//! It opens nothing, and looks up no names.

#[path = "../../crates/azekura-server/tests/anything/config.rs"]
mod config;

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    config::check(bytes);
}
