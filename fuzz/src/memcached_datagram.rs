//! Fuzzes datagrams: any bytes are a request or none, and an answer is bounded and comes in datagrams that fit together.
//!
//! What holds is checked where `make test` tries it too, with bytes that it makes itself.
//! It knows no sockets.

#[path = "../../crates/azekura-server/tests/anything/datagram.rs"]
mod datagram;

/// Inputs to begin with: whole requests.
pub fn seeds() -> Vec<Vec<u8>> {
    datagram::WHOLE.iter().map(|whole| whole.to_vec()).collect()
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    datagram::check(bytes);
}
