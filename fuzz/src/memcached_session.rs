//! Fuzzes a connection: any bytes, in any pieces, are answered the same, in whole answers, and little is kept of them.
//!
//! What holds is checked where `make test` tries it too, with bytes that it makes itself.
//! It knows no sockets.

#[path = "../../crates/azekura-server/tests/anything/session.rs"]
mod session;

/// Inputs to begin with: whole requests.
pub fn seeds() -> Vec<Vec<u8>> {
    session::WHOLE.iter().map(|whole| whole.to_vec()).collect()
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    session::check(bytes);
}
