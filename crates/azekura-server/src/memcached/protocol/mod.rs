//! What is on the wire: bytes to requests, and answers to bytes.
//!
//! ```text
//!   text  meta  binary   grammar: bytes to a command, borrowed from the buffer
//!   opcode               the operations of the binary protocol
//!   number               numbers, base64 and escaped keys, as the protocol writes them
//!   describe             command and key of a request, for the log
//! ```
//!
//! Nothing here knows a connection or the state of the server.

pub mod binary;
pub(crate) mod describe;
pub mod meta;
pub(crate) mod number;
pub(crate) mod opcode;
pub mod text;
