//! The engine alone, with all kinds of records.
//!
//! The contract is tested in `tests/tiny.rs`, with threads; what room it takes in `tests/room.rs`, in a process of
//! its own.

use super::*;
use crate::error::Kind;
use crate::verbs::Verbs as _;

#[test]
fn verbs_work_on_it() {
    let db = TinyDb::new().unwrap();
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
