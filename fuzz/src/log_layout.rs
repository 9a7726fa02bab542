//! Fuzzes what a log keeps besides its frames: segment headers, links and the durable mark.
//!
//! Any bytes are one of these or none, and what is accepted encodes to the bytes it came from: two
//! readings of one place cannot differ.
//! It does not know which segments there are: a link leads to a segment of any sequence that a caller asks for.

use azekura::log::layout::{
    Link, LogPosition, Mark, Next, SegmentHeader, decode_link, encode_link,
};

const SALT: u32 = 7;

fn word(bytes: Option<&[u8]>) -> Option<u64> {
    bytes?
        .first_chunk::<8>()
        .map(|word| u64::from_le_bytes(*word))
}

/// Inputs to begin with: what a log writes besides its frames.
pub fn seeds() -> Vec<Vec<u8>> {
    let header = SegmentHeader {
        sequence: 9,
        units: 1,
    };
    let mark = Mark {
        durable: LogPosition {
            sequence: 9,
            offset: 4096,
        },
        sync_failed: false,
    };
    let link = encode_link(5, SALT, 9).to_le_bytes();
    vec![
        header.encode(SALT),
        mark.encode().to_vec(),
        [link, 9u64.to_le_bytes()].concat(),
    ]
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    if let Some(header) = SegmentHeader::decode(bytes, SALT) {
        assert_eq!(header.encode(SALT)[..20], bytes[..20]);
    }
    if let Some(mark) = Mark::decode(bytes) {
        assert_eq!(mark.encode()[..20], bytes[..20]);
    }
    let (Some(link), Some(sequence)) = (word(Some(bytes)), word(bytes.get(8..))) else {
        return;
    };
    let header = SegmentHeader {
        sequence,
        units: (link >> 32) as u32 | 1,
    };
    assert_eq!(
        SegmentHeader::decode(&header.encode(SALT), SALT),
        Some(header)
    );
    match decode_link(link, SALT, 0, |_| Some(header)) {
        Link::To(next) => {
            assert_eq!(next.sequence, sequence);
            assert_eq!(encode_link(next.index, SALT, sequence), link);
        }
        Link::None => assert_eq!(link, 0),
        Link::Damaged => assert_ne!(link, 0),
    }
    if sequence == 0 {
        return;
    }
    let index = link as u32 >> 2;
    let link = encode_link(index, SALT, sequence);
    let leads = |sequence| {
        decode_link(link, SALT, 0, |_| {
            Some(SegmentHeader { sequence, units: 1 })
        })
    };
    assert_eq!(leads(sequence), Link::To(Next { index, sequence }));
    assert_eq!(leads(sequence ^ 1 << (link & 63)), Link::Damaged);
}
