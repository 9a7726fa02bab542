//! Fuzzes the grammar of the text protocol: any line is a command, or an answer that refuses it.
//!
//! What a command borrows lies in its line; keys are as long as keys may be. It executes nothing:
//! `memcached_session` does.

use azekura_server::memcached::text::{Command, KEY_LEN_MAX, parse};

/// Inputs to begin with: a line of each kind, without its end.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "get a bb ccc",
        "gat 100 a b",
        "set key 1 0 5",
        "cas key 1 -1 2 77 noreply",
        "incr n 18446744073709551615",
        "delete a 0",
        "touch a 100",
        "flush_all 10 noreply",
        "stats slabs",
        "lru_crawler metadump all",
    ]
    .map(Into::into)
    .to_vec()
}

/// Checks one input; panics where a promise is broken.
pub fn check(line: &[u8]) {
    let key = match parse(line) {
        Command::Store(asked) => asked.key,
        Command::Delete { key, .. } | Command::Count { key, .. } | Command::Touch { key, .. } => {
            key
        }
        Command::Read { keys, .. } => {
            assert!(line.ends_with(keys));
            let mut words = keys
                .split(|byte| *byte == b' ')
                .filter(|word| !word.is_empty());
            assert!(words.clone().all(|key| key.len() <= KEY_LEN_MAX));
            words.next().expect("a read has a key")
        }
        Command::Refused(Some(answer)) => {
            assert!(!answer.contains('\n'));
            return;
        }
        _ => return,
    };
    assert!((1..=KEY_LEN_MAX).contains(&key.len()) && !key.contains(&b' '));
}
