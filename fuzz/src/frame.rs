//! Fuzzes frames: any bytes at any place are a frame or none, and a frame lies within its bytes.
//!
//! The input is tried as it is, and again as the payload of a true frame of each kind, which gets
//! past the checksum to the lengths, to compressed values and to the inner frames of a batch.
//! It does not know segments or addresses.

use azekura::format::frame::{Frame, FrameKind, Header, INNER};
use azekura::record::hash::layout;

const SEED: u32 = 5;
const PLACE: u32 = 9;

/// A true frame with `payload` cut into a key and a value.
fn build(kind: FrameKind, flags: u8, key_len: usize, payload: &[u8]) -> Vec<u8> {
    let batch = kind == FrameKind::BATCH;
    let value_len = if batch {
        payload.len()
    } else {
        payload.len() - key_len
    };
    let header = Header::new(kind, flags, key_len, value_len);
    let mut rest: Vec<u8> = header
        .long_word()
        .map(u64::to_le_bytes)
        .into_iter()
        .flatten()
        .collect();
    rest.extend_from_slice(payload);
    rest.resize(header.frame_len() - 8, 0);
    let mut frame = header.word(SEED, PLACE, &rest).to_le_bytes().to_vec();
    frame.extend_from_slice(&rest);
    frame
}

/// Inputs to begin with: true frames, alone and in a batch, as `check` reads them.
pub fn seeds() -> Vec<Vec<u8>> {
    let inner = Header::new(layout::PUT, INNER, 0, 0).word(SEED, PLACE + 2, &[]);
    let batch = [&[0; 8], &inner.to_le_bytes()[..]].concat();
    [
        build(layout::PUT, 0, 3, b"keyvalue"),
        build(layout::INSERT, 0, 16, &[7; 100]),
        build(layout::PUT, 0, 3, &[1; 300]),
        build(layout::REMOVE, 0, 3, b"key"),
        build(FrameKind::BATCH, 0, 0, &batch),
        build(layout::CLEAR, 0, 0, b""),
        build(FrameKind::PAD, 0, 0, &[0; 24]),
        build(FrameKind::END, 0, 0, b""),
    ]
    .to_vec()
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    for place in [0, PLACE] {
        if let Ok(frame) = Frame::decode(bytes, SEED, place) {
            assert!(frame.len() <= bytes.len());
            assert!(frame.inner(SEED, place).count() * 8 <= bytes.len());
        }
    }

    let Some((first, payload)) = bytes.split_first() else {
        return;
    };
    let key_len = usize::from(*first).min(payload.len());
    for kind in [
        layout::PUT,
        layout::REMOVE,
        FrameKind::BATCH,
        FrameKind::END,
        layout::CLEAR,
        FrameKind::PAD,
    ] {
        let built = build(kind, INNER, key_len, payload);
        let frame = Frame::decode(&built, SEED, PLACE).expect("a true frame is one");
        assert_eq!((frame.len(), frame.header.kind), (built.len(), kind));
        if kind == FrameKind::BATCH {
            assert_eq!(frame.value, payload);
            assert!(frame.inner(SEED, PLACE).count() * 8 <= payload.len());
        } else {
            assert_eq!((frame.key, frame.value), payload.split_at(key_len));
        }
    }

    // A batch of one true inner frame in front of noise: the one is found, at its place.
    let inner_place = PLACE + 2;
    let header = Header::new(layout::PUT, INNER, 0, 0);
    let mut value = header.word(SEED, inner_place, &[]).to_le_bytes().to_vec();
    value.extend_from_slice(payload);
    let built = build(FrameKind::BATCH, 0, 1, &value);
    let batch = Frame::decode(&built, SEED, PLACE).expect("a true frame is one");
    assert_eq!(
        batch.inner(SEED, PLACE).next().map(|(place, _)| place),
        Some(inner_place)
    );
}
