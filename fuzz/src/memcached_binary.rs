//! Fuzzes headers of the binary protocol.
//!
//! Any bytes are one or none, and its lengths add up or contradict one another.
//! Nothing is read behind them. It executes nothing: `memcached_session` does.

use azekura_server::memcached::binary::{HEADER_LEN, Header, REQUEST};

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
