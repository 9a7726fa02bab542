//! Records: a byte key and a byte value, small to medium.
//!
//! Every engine here keeps the contract of `engine.rs` and says in its `Promise` how much of it; one
//! conformance suite (`testkit`) tests exactly that. Engines do not import each other: what two of them need
//! lies below, in `log`, `index`, `format` and `io`.

pub mod hash;
pub mod memory;
