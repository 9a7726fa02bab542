//! Puts that were written and that the index refuses: room and journal are as if they had failed before.
//!
//! A leaf that a put needs is read before its write, and stays. So the index refuses only where memory ends: here a leaf that
//! cannot be read stands for that.

use std::sync::Arc;

use super::Reservation;
use crate::error::{Kind, refusal};
use crate::io::Storage;
use crate::io::memory::Memory;
use crate::object::checkpoint::tests::{leaves, without_small_objects};
use crate::object::{ObjectId, Store};

#[test]
fn a_put_that_the_index_refuses_leaves_its_room_and_is_never_found() {
    let (options, memory, store) = without_small_objects(1 << 20);
    let storage = Arc::clone(&memory) as Arc<dyn Storage>;
    for n in 0..60 {
        store.put(ObjectId(n), &[n as u8; 5000]).unwrap();
    }
    store.close().unwrap();
    let leaves = leaves(storage.as_ref());
    let (first, at) = *leaves.last().unwrap();
    assert!(leaves.len() > 1 && first > ObjectId(0));
    storage.write_at(at, &[0x5a; 24]).unwrap();
    let store = Store::open_on(storage, None, &options.opening).unwrap();
    let free = store.free();
    let reserved = store.core.reserve_extent(ObjectId(0), 9000).unwrap();
    let reserved = Reservation {
        id: first,
        ..reserved
    };
    let mut watch = super::Watch::start();
    let written = store
        .core
        .write_extent(&reserved, &[7; 9000], 0, &mut watch);
    refusal(store.core.finish_put(reserved, written), Kind::Corrupted);
    assert!(store.core.allocator.lock().puts().is_empty());
    // A death: the extent is there, whole.
    let killed = Memory::from_bytes(&memory.to_vec(), 8 << 20).unwrap();
    let after = Store::open_on(killed, None, &options.opening).unwrap();
    assert!(!after.is_read_only(), "{:?}", after.damage());
    assert_eq!(after.head(ObjectId(0)).unwrap(), Some(5000));
    assert_eq!(after.count(), 60);
    store.sync().unwrap();
    assert_eq!(store.free(), free);
}
