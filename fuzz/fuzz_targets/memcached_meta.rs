//! Fuzzes the grammar of the meta commands: any words are a key and flags, or an answer that refuses them.
//!
//! It executes nothing.

#![no_main]

use azekura_server::memcached::meta::Line;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|words: &[u8]| {
    if let Some(line) = Line::cut(words) {
        assert!(!line.key.is_empty() && !line.key.contains(&b' '));
        if let Err(answer) = line.flags() {
            assert!(answer.starts_with("CLIENT_ERROR ") && !answer.contains('\n'));
        }
    }
});
