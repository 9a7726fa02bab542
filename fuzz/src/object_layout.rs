//! Fuzzes what an object store keeps: superblock, label, root, lists, records of the journal, extents.
//!
//! Any bytes are one of these or none. What is accepted encodes to bytes that state the same; what was made of any value comes
//! back, whole and in part, and under no other name or place.
//! It does not know whether the numbers fit a device: `object_open` tries that.

use std::sync::Arc;

use azekura::format::frame::{self, Frame, FrameKind, Header as FrameHeader};
use azekura::format::superblock::Superblock;
use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::kernel::Payload;
use azekura::log::Address;
use azekura::log::manifest::Extent;
use azekura::object::extent::{self, Header, PIECE, Seal, UNIT};
use azekura::object::index::{Entry, Leaf};
use azekura::object::layout::{
    ENGINE, Record, Root, Super, decode_label, decode_runs, encode_label, encode_runs,
};
use azekura::object::{CreateOptions, ObjectId, Store};
use azekura::testkit::Random;

/// A true frame, cut into a key and a value.
fn frame(kind: FrameKind, key: &[u8], value: &[u8]) -> Vec<u8> {
    let header = FrameHeader::new(kind, 0, key.len(), value.len());
    let mut rest: Vec<u8> = header
        .long_word()
        .map(u64::to_le_bytes)
        .into_iter()
        .flatten()
        .collect();
    rest.extend_from_slice(key);
    rest.extend_from_slice(value);
    rest.resize(header.frame_len() - 8, 0);
    let mut bytes = header.word(5, 9, &rest).to_le_bytes().to_vec();
    bytes.extend_from_slice(&rest);
    bytes
}

fn records(bytes: &[u8]) {
    let id = [7; 16];
    let keys: [&[u8]; 3] = [&id, b"", b"?"];
    let keyed = (0..frame::KEYED).map(FrameKind::keyed);
    for kind in keyed.chain((0..frame::WIDE).map(FrameKind::wide)) {
        for key in keys {
            let built = frame(kind, key, bytes);
            let read = Frame::decode(&built, 5, 9).expect("a true frame is one");
            let record = match Record::decode(Address(9), &read) {
                // Its value stands in the frame only.
                Some(Record::Small(..)) | None => continue,
                Some(record) => record,
            };
            let (kind, key, value) = record.encode();
            let again = frame(kind, &key, &value);
            let again = Frame::decode(&again, 5, 9).expect("a true frame is one");
            assert_eq!(Record::decode(Address(9), &again), Some(record));
        }
    }
}

fn extents(bytes: &[u8], random: &mut Random) {
    let (salt, place, id) = (random.u64() as u32, random.below(1 << 40), random.u64());
    if let Some(header) = Header::decode(bytes, salt, place) {
        assert!(header.units() * UNIT >= u64::from(header.len));
    }
    let seal = Seal::new(salt, place, ObjectId(id.into()));
    let len = bytes.len() as u64;
    let mut made = vec![0xee; (extent::units(len) * UNIT) as usize];
    seal.encode(&mut made, id >> 1, 0, bytes);
    let start = random.below(len + 1);
    let range = start..start + random.below(len - start + 1);
    let of = extent::bytes_of(len, &extent::chunks_of(len, &range));
    let read = || made[of.start as usize..of.end as usize].to_vec();
    let mut own = read();
    let (held, _) = seal.decode(&mut own, len, &range).expect("its own bytes");
    assert_eq!(own[held], bytes[range.start as usize..range.end as usize]);
    let other = Seal::new(salt, place, ObjectId(u128::from(id) + 1));
    assert!(other.decode(&mut read(), len, &range).is_err());
    // Any bytes, of any length.
    let claimed = random.below(1 << 20);
    assert!(
        seal.decode(&mut bytes.to_vec(), claimed, &(0..claimed))
            .is_err()
    );
}

/// Inputs to begin with, of a store that the engine writes: its part of the superblock, the root of the checkpoint, a leaf of
/// the index, and a label.
pub fn seeds() -> Vec<Vec<u8>> {
    let memory = Memory::new(1 << 20).expect("memory");
    memory.resize(512 << 10).expect("room");
    let options = CreateOptions::new()
        .capacity(512 << 10)
        .journal_size(144 << 10)
        .group_size(64 << 10)
        .background(false);
    let storage: Arc<dyn Storage> = memory.clone();
    let store = Store::create_on(storage, None, &options, &mut |_, _| ()).expect("a new store");
    for id in 0..12u8 {
        let value = vec![id; 700 * usize::from(id)];
        store.put(ObjectId(id.into()), &value).expect("a put");
    }
    store.checkpoint().expect("a checkpoint");
    let bytes = memory.to_vec();
    let part = |of: Extent| bytes[of.offset as usize..][..of.len as usize].to_vec();
    let payload = Superblock::current(&bytes, &ENGINE)
        .expect("a superblock")
        .payload;
    let own = Super::decode(&payload).expect("its part");
    let root = part(own.manifest.root.expect("a checkpoint"));
    let read = Root::decode(&root).expect("a root");
    let mut leaves = read.leaves.iter().filter_map(|(_, image)| image.as_ref());
    let leaf = part(leaves.next().expect("a leaf").extent);
    vec![payload, root, leaf, encode_label([7; 16], 100)]
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    if let Some(read) = Super::decode(bytes) {
        assert_eq!(Super::decode(&read.encode()), Some(read));
    }
    if let Some(read) = Root::decode(bytes) {
        let again = Root::decode(&read.encode());
        assert_eq!(again.map(|root| root.sequence), Some(read.sequence));
    }
    if let Some((identity, units)) = decode_label(bytes) {
        assert_eq!(
            decode_label(&encode_label(identity, units)),
            Some((identity, units))
        );
    }
    if let Some(Ok(runs)) = decode_runs(bytes, 1 << 18) {
        let again = decode_runs(&encode_runs(&runs, 1 << 18), 1 << 18);
        assert!(matches!(again, Some(Ok(same)) if same == runs));
    }
    if let Some(Ok(leaf)) = Leaf::of_image(bytes, ObjectId(0), None) {
        assert_eq!(leaf.as_bytes(), bytes);
        for (_, entry) in leaf.entries() {
            assert!(entry.place < 1 << 40 && entry.place * PIECE < 1 << 46);
            assert_eq!(Entry::from_bytes(&entry.to_bytes()), Some(entry));
        }
    }
    records(bytes);
    extents(bytes, &mut Random::from_bytes(bytes));
}
