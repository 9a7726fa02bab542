//! Fuzzes the grammar of the meta commands.
//!
//! Any words are a key and flags, or an answer that refuses them.
//! Answers are one line, and name the client's mistake. It executes nothing: `memcached_session` does.

use azekura_server::memcached::meta::Line;

/// Inputs to begin with: a line of each command, without its end.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "mg a t f v s k O123",
        "ms key 2 T60 F3 I MA",
        "md a q C7",
        "ma a D2 N5 J9 b",
        "me a",
    ]
    .map(Into::into)
    .to_vec()
}

/// Checks one input; panics where a promise is broken.
pub fn check(words: &[u8]) {
    if let Some(line) = Line::cut(words) {
        assert!(!line.key.is_empty() && !line.key.contains(&b' '));
        if let Err(answer) = line.flags() {
            assert!(answer.starts_with("CLIENT_ERROR ") && !answer.contains('\n'));
        }
    }
}
