//! Fuzzes the server's configuration: any text holds within its bounds, or is refused by one line.
//!
//! What holds is checked where `make test` tries it too, with texts that it makes itself.
//! It opens nothing, and looks up no names.

#[path = "../../crates/azekura-server/tests/anything/config.rs"]
mod config;

/// Inputs to begin with: whole configurations, and the one that is installed.
pub fn seeds() -> Vec<Vec<u8>> {
    let installed: &[u8] = include_bytes!("../../deploy/azekura.toml");
    let whole = config::WHOLE.iter().chain([&installed]);
    whole.map(|whole| whole.to_vec()).collect()
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    config::check(bytes);
}
