//! `stats detail`: commands counted by key prefix, the part before the first colon.
//!
//! It counts while it is switched on, for 1,024 prefixes at most; unprintable bytes of a prefix are shown as `%XX`. It knows
//! no connection.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::memcached::protocol::number;

/// Prefixes counted at most.
const PREFIXES_MAX: usize = 1024;

/// What was done with keys of one prefix.
#[derive(Clone, Copy, Debug, Default)]
struct Prefix {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// Counts by prefix, while `stats detail` is on.
#[derive(Debug, Default)]
pub(crate) struct KeyStats {
    prefixes: Mutex<BTreeMap<Vec<u8>, Prefix>>,
}

/// What was done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Get { hit: bool },
    Set,
    Delete,
}

impl KeyStats {
    #[cold]
    pub(crate) fn note(&self, key: &[u8], done: Done) {
        let Some(len) = memchr::memchr(b':', key) else {
            return;
        };
        let prefix = key.get(..len).unwrap_or_default();
        let mut prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        if !prefixes.contains_key(prefix) {
            if prefixes.len() >= PREFIXES_MAX {
                return;
            }
            prefixes.insert(prefix.to_vec(), Prefix::default());
        }
        let Some(counts) = prefixes.get_mut(prefix) else {
            return;
        };
        match done {
            Done::Get { hit } => {
                counts.gets += 1;
                counts.hits += u64::from(hit);
            }
            Done::Set => counts.sets += 1,
            Done::Delete => counts.deletes += 1,
        }
    }

    pub(crate) fn dump(&self, output: &mut Vec<u8>) {
        let prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        for (prefix, counts) in &*prefixes {
            output.extend_from_slice(b"PREFIX ");
            number::push_key(output, prefix);
            for (word, count) in [
                ("get", counts.gets),
                ("hit", counts.hits),
                ("set", counts.sets),
                ("del", counts.deletes),
            ] {
                output.push(b' ');
                output.extend_from_slice(word.as_bytes());
                output.push(b' ');
                number::push(output, count);
            }
            output.extend_from_slice(b"\r\n");
        }
    }

    pub(crate) fn clear(&self) {
        let mut prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        prefixes.clear();
    }
}
