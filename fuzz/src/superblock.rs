//! Fuzzes the superblock: the head of any file is understood or refused, never a panic.
//!
//! Random bytes hardly ever carry a right checksum, so the payload is also wrapped in a true slot:
//! what was encoded must decode to itself, also where the other slot is noise.
//! It does not know what engines put into the payload.

use azekura::format::superblock::{SLOT_SIZE, Superblock};

const ENGINE: [u8; 8] = *b"hash\0\0\0\0";
/// Room for a payload in a slot.
const PAYLOAD_LEN_MAX: usize = SLOT_SIZE as usize - 32;

/// Inputs to begin with: a slot as an engine writes it, and one that was cut.
pub fn seeds() -> Vec<Vec<u8>> {
    let slot = Superblock {
        engine: ENGINE,
        sequence: 7,
        payload: (0..104).collect(),
    };
    let bytes = slot.encode();
    vec![bytes[..100].to_vec(), bytes]
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    let _ = Superblock::current(bytes, &ENGINE);

    let payload = &bytes[..bytes.len().min(PAYLOAD_LEN_MAX)];
    let made = Superblock {
        engine: ENGINE,
        sequence: 2,
        payload: payload.to_vec(),
    };
    let mut head = made.encode();
    head.extend_from_slice(bytes);
    let read =
        Superblock::current(&head, &ENGINE).expect("a true slot next to noise is understood");
    assert!(read == made || read.sequence > made.sequence);
}
