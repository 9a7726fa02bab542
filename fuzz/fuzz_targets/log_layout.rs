//! Fuzzes what a log keeps beside its frames: segment headers, links and the durable mark.
//!
//! Any bytes are one of these or none, and what is accepted encodes to the bytes it came from: two
//! readings of one place cannot differ.
//! It does not know which segments there are.

#![no_main]

use azekura::log::layout::{Link, Mark, SegmentHeader, decode_link, encode_link};
use libfuzzer_sys::fuzz_target;

const SALT: u32 = 7;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = SegmentHeader::decode(bytes, SALT) {
        assert_eq!(header.encode(SALT)[..20], bytes[..20]);
    }
    if let Some(mark) = Mark::decode(bytes) {
        assert_eq!(mark.encode()[..20], bytes[..20]);
    }
    let Some(word) = bytes
        .first_chunk::<8>()
        .map(|word| u64::from_le_bytes(*word))
    else {
        return;
    };
    match decode_link(word, SALT) {
        Link::To(next) => assert_eq!(encode_link(next, SALT), word),
        Link::None => assert_eq!(word, 0),
        Link::Damaged => assert_ne!(word, 0),
    }

    let header = SegmentHeader {
        sequence: word,
        units: (word >> 32) as u32 | 1,
    };
    assert_eq!(
        SegmentHeader::decode(&header.encode(SALT), SALT),
        Some(header)
    );
    let next = word as u32 >> 1;
    assert_eq!(decode_link(encode_link(next, SALT), SALT), Link::To(next));
});
