//! Fuzzes heads of requests by HTTP: any bytes are open, refused or a request, and stay what they are.
//!
//! What holds is checked where `make test` tries it too, with bytes that it makes itself.
//! It knows no pages.

#[path = "../../crates/azekura-server/tests/anything/http.rs"]
mod http;

/// Inputs to begin with: whole requests.
pub fn seeds() -> Vec<Vec<u8>> {
    http::WHOLE.iter().map(|whole| whole.to_vec()).collect()
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    http::check(bytes);
}
