//! The engine alone: bounds, time, what is told, with all kinds of records.
//!
//! The contract is tested in `tests/cache.rs`, with threads.

use super::*;
use crate::verbs::Verbs as _;

#[test]
fn verbs_work_on_it() {
    let db = CacheDb::new(100).unwrap();
    db.append(b"list", b"a", b",").unwrap();
    db.append(b"list", b"b", b",").unwrap();
    assert_eq!(db.get(b"list").unwrap(), Some(b"a,b".to_vec()));
    let long = vec![9u8; 3 << 20];
    db.put(b"long", &long).unwrap();
    db.put(b"", b"").unwrap();
    assert_eq!(db.get(b"long").unwrap().as_ref(), Some(&long));
    assert_eq!(db.get(b"").unwrap(), Some(Vec::new()));
    assert_eq!(db.count(), 3);
    let key = vec![1u8; 8 << 20];
    assert_eq!(db.put(&key, b"").unwrap_err().kind(), Kind::TooLarge);
}
