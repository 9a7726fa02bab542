//! The rivals, quarantined.
fn main() {}
