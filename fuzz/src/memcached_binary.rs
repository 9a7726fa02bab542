//! Fuzzes headers of the binary protocol.
//!
//! Any bytes are one or none, and its lengths add up or contradict one another.
//! Nothing is read after them. It executes nothing: `memcached_session` does.

use azekura_server::memcached::binary::{HEADER_LEN, Header, REQUEST};

/// Inputs to begin with: a get, a set with its extras, and a noop.
pub fn seeds() -> Vec<Vec<u8>> {
    let packet = |opcode: u8, extras: &[u8], key: &[u8], value: &[u8]| {
        let body = extras.len() + key.len() + value.len();
        let mut bytes = vec![
            REQUEST,
            opcode,
            0,
            key.len() as u8,
            extras.len() as u8,
            0,
            0,
            0,
        ];
        // The most significant byte first.
        bytes.extend((body as u32).to_le_bytes().iter().rev());
        bytes.extend([0; 12]);
        bytes.extend([extras, key, value].concat());
        bytes
    };
    vec![
        packet(0, &[], b"key", &[]),
        packet(1, &[0; 8], b"key", b"value"),
        packet(10, &[], &[], &[]),
    ]
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    let header = Header::decode(bytes);
    let is_one = bytes.len() >= HEADER_LEN && bytes.first() == Some(&REQUEST);
    assert_eq!(header.is_some(), is_one);
    if let Some(header) = header
        && let Some(len) = header.value_len()
    {
        assert_eq!(header.front_len() + len, HEADER_LEN + header.body_len);
    }
}
