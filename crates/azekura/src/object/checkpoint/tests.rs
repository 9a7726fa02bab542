//! Checkpoints without space: what they took as written is written by the next one.
//!
//! The segments of the journal are taken by images that no checkpoint needs, so that a refusal comes after leaves and lists were
//! marked as written. A refused checkpoint gives these segments back.

use std::sync::Arc;

use crate::error::{Kind, refusal};
use crate::io::Storage;
use crate::io::memory::Memory;
use crate::kernel::SuperblockPair;
use crate::log::parts::Parts;
use crate::object::checkpoint::images::read_root;
use crate::object::checkpoint::superblock::Super;
use crate::object::{CreateOptions, ObjectId, Store};

/// Objects of the store.
const COUNT: u128 = 600;

/// An empty store of so many bytes, which keeps no object in its journal, and what it stands on.
pub(in crate::object) fn without_small_objects(
    capacity: u64,
) -> (CreateOptions, Arc<Memory>, Store) {
    let options = CreateOptions::new()
        .capacity(capacity)
        .journal_size(256 << 10)
        .group_size(64 << 10)
        .small_max(0)
        .background(false);
    let (memory, store) = in_memory(&options);
    (options, memory, store)
}

/// An empty store in memory, and what it stands on.
pub(in crate::object) fn in_memory(options: &CreateOptions) -> (Arc<Memory>, Store) {
    let memory = Memory::new(64 << 20).unwrap();
    memory.resize(options.capacity).unwrap();
    let storage = Arc::clone(&memory) as Arc<dyn Storage>;
    let store = Store::create_on(storage, None, options, &mut |_, _| {}).unwrap();
    (memory, store)
}

/// Where the leaves of a closed store begin, and where their images stand.
pub(in crate::object) fn leaves(storage: &dyn Storage) -> Vec<(ObjectId, u64)> {
    let last = SuperblockPair::<Super>::read(storage).unwrap().payload;
    let leaves = read_root(storage, &last).unwrap().leaves.into_iter();
    let at = leaves.map(|(first, image)| (first, image.unwrap().extent.offset));
    at.collect()
}

#[test]
fn what_changed_before_a_refused_checkpoint_is_in_the_next_one() {
    let (options, memory, store) = without_small_objects(4 << 20);
    // Their images are longer than what is left of a segment.
    for n in 0..COUNT {
        store.put(ObjectId(n), &[n as u8; 3000]).unwrap();
    }
    store.checkpoint().unwrap();
    for n in 0..COUNT {
        if n % 3 == 0 {
            store.remove(ObjectId(n)).unwrap();
        } else if n % 7 == 0 {
            store.put(ObjectId(n), &[!(n as u8); 9000]).unwrap();
        }
    }
    // Nothing waits, so that the refusal comes after the moment of the checkpoint.
    store.sync().unwrap();
    let mut taken = Parts::default();
    while taken.write(&store.core.log, &[1; 3000], 7).is_ok() {}
    refusal(store.checkpoint(), Kind::Full);
    store.checkpoint().unwrap();
    let storage = Memory::from_bytes(&memory.to_vec(), 8 << 20).unwrap();
    let after = Store::open_on(storage, None, &options.opening).unwrap();
    after.check_room().unwrap();
    assert_eq!(after.count(), store.count());
    for n in 0..COUNT {
        let (found, wanted) = (after.get(ObjectId(n)), store.get(ObjectId(n)));
        assert_eq!(found.unwrap(), wanted.unwrap(), "object {n}");
    }
    // Space is handed out as the lists state it.
    while after
        .put(ObjectId(1000 + u128::from(after.free())), &[9; 4000])
        .is_ok()
    {}
    after.check_room().unwrap();
    assert!(after.check(true, &mut |_, _| {}).unwrap().is_sound());
}
