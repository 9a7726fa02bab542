//! Values from bytes: the rules of every file azekura writes.
//!
//! 1. Little-endian, explicit offsets, reserved bytes zero.
//! 2. Decoding is total: bytes from outside are never indexed or unwrapped, every length is checked
//!    against what remains before it is used, and nothing is allocated on a length's word alone.
//! 3. Everything carries a CRC32C that is seeded with where it belongs, so that right bytes in a wrong
//!    place do not pass.
//! 4. A file begins with a [`superblock`] of two slots; the newer valid one counts.
//!
//! It does not read or write: it turns bytes into values and back.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

#[doc(hidden)]
pub mod bytes;
#[doc(hidden)]
pub mod checksum;
#[doc(hidden)]
pub mod flipped;
#[doc(hidden)]
pub mod frame;
#[doc(hidden)]
pub mod superblock;
