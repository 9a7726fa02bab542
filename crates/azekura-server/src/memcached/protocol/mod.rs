//! What is on the wire: bytes to requests, and answers to bytes.
//!
//! ```text
//!   text  meta  binary   grammar: bytes to a command, borrowed from the buffer
//!   number               numbers, base64 and escaped keys, as the protocol writes them
//!   asked                a request in words, for people
//! ```
//!
//! Nothing here knows a connection or the state of the server.

pub(crate) mod asked;
pub mod binary;
pub mod meta;
pub(crate) mod number;
pub mod text;
