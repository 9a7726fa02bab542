//! The classic text protocol, as transcripts.
//!
//! Where memcached 1.6.45 and 1.6.18 differ, these are the answers of 1.6.45. Each test is a feature of the protocol.
//! What needs a clock or two connections is a conversation with a session instead of a transcript.

mod connections;
mod figures;
mod lengths;
mod operators;
mod refusals;
mod storing;
mod times;
mod walks;
mod watchers;
#[path = "../wire/mod.rs"]
mod wire;
