//! The care of an object store: what is damaged is reported, and restored; what is moved or grown stays what it was.
//!
//! | module | question |
//! |---|---|
//! | `upkeep` | do check, scrub, journal, stats, grow and copy do what they promise, while changes continue? |
//! | `cuts` | may the power go while a store is repaired, copied or grown? |
//! | `rot` | does any flipped bit, anywhere, give anything but the right bytes or a clear error, and does repair bring it back? |
//! | `defects` | do the twelve known defects of an older engine of this kind stay away? |
//! | `doubt` | does every way of reading refuse what may be older, or removed? |
//! | `emptied` | do removals find room in any full store, and is nothing let go that is needed? |
//! | `faults` | does a failing write, sync or read lose anything it must not? |
//! | `forged` | do impossible numbers under right checksums do any harm? |
//! | `formats` | are the bytes as they were, and do older files open? |
//! | `reads` | does opening after a crash read more than there is? |
//! | `words` | do refusals name object, file and place, and what would do? |
//! | `crowd` | threads, full stores, kills: do single objects stay single? |
//! | `killed` | do thousands of small objects survive kills of 16 threads? |
//!
//! Values are made of a version and a length, so that any mixture is seen.

mod crowd;
mod cuts;
mod defects;
mod doubt;
mod emptied;
mod faults;
mod forged;
mod formats;
mod killed;
mod reads;
mod rot;
mod upkeep;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::object::{CreateOptions, ObjectId, Store};
use azekura::testkit::Random;

/// The bytes of a version.
fn value(version: u64, len: usize) -> Vec<u8> {
    Random::new(version).bytes(len)
}

fn id(n: u64) -> ObjectId {
    ObjectId(u128::from(n) << 100 | 7)
}

fn options() -> CreateOptions {
    CreateOptions::new()
        .capacity(1 << 20)
        .journal_size(256 << 10)
        .group_size(128 << 10)
        .background(false)
}

/// A store in memory, of the options' capacity.
fn store_with(options: &CreateOptions) -> (Arc<Memory>, Store) {
    let memory = Memory::new(8 << 20).unwrap();
    memory.resize(options.capacity).unwrap();
    let storage = Arc::clone(&memory) as Arc<dyn Storage>;
    let store = Store::create_on(storage, None, options, &mut |_, _| {}).unwrap();
    (memory, store)
}

/// A storage with these bytes.
fn storage_of(bytes: &[u8]) -> Arc<dyn Storage> {
    Memory::from_bytes(bytes, 8 << 20).unwrap()
}

fn opened(bytes: &[u8]) -> Store {
    Store::open_on(storage_of(bytes), None, &options().opening).unwrap()
}

/// All objects.
fn contents(store: &Store) -> BTreeMap<ObjectId, Vec<u8>> {
    let ids = store.list(..).map(|listed| listed.unwrap().id);
    let get = |id| (id, store.get(id).unwrap().unwrap().into());
    ids.map(get).collect()
}
