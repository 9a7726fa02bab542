//! Fuzzes what the hash engine keeps besides its log: its part of the superblock, roots, and packed images.
//!
//! Any bytes are one of these or none. What is accepted encodes to bytes that state the same, and what
//! was made of any numbers comes back as it was made.
//! It does not know whether the numbers fit a file: `hash_open` tries that.

use std::sync::Arc;

use azekura::format::checksum::crc;
use azekura::format::superblock::Superblock;
use azekura::index::hash::PARTITIONS;
use azekura::io::memory::Memory;
use azekura::kernel::Payload;
use azekura::log::Segment;
use azekura::log::manifest::Extent;
use azekura::record::hash::image;
use azekura::record::hash::layout::{ENGINE, Image, Root, Super, image_seed};
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::Random;

/// Inputs to begin with, of a file that the engine writes: its part of the superblock, the root of the checkpoint, and an
/// image of a part of the index after its count.
pub fn seeds() -> Vec<Vec<u8>> {
    let memory = Memory::new(1 << 22).expect("memory");
    let options = CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(1 << 22);
    let db = HashDb::create_on(Arc::clone(&memory) as Arc<_>, &options).expect("a new store");
    for key in 0..40u8 {
        db.put(&[key], &[key; 50]).expect("a put");
    }
    db.checkpoint().expect("a checkpoint");
    let bytes = memory.to_vec();
    let part = |of: Extent| bytes[of.offset as usize..][..of.len as usize].to_vec();
    let payload = Superblock::current(&bytes, &ENGINE)
        .expect("a superblock")
        .payload;
    let own = Super::decode(&payload).expect("its part");
    let root = part(own.root.expect("a checkpoint"));
    let read = Root::decode(&root).expect("a root");
    let image = read.images.iter().find(|image| !image.is_empty());
    let image = image.expect("a part of the index");
    let packed = [&[image.count as u8], &part(image.extent)[..]].concat();
    vec![payload, root, packed]
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    if let Some(read) = Super::decode(bytes) {
        assert_eq!(Super::decode(&read.encode()), Some(read));
    }
    if let Some(mut read) = Root::decode(bytes) {
        let again = Root::decode(&read.encode()).expect("a root that was encoded is one");
        // An image without entries is the same wherever it states that it is.
        for image in read.images.iter_mut().filter(|image| image.is_empty()) {
            *image = Image::default();
        }
        assert_eq!(again, read);
    }

    if let Some((count, packed)) = bytes.split_first()
        && let Some(mut read) = image::decode(packed, u32::from(*count))
    {
        assert_eq!(read.len(), usize::from(*count));
        let again = image::decode(&image::encode(&mut read), u32::from(*count));
        assert_eq!(again, Some(read));
    }
    let words = bytes.chunks_exact(8).filter_map(<[u8]>::first_chunk::<8>);
    let mut entries: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
    let count = entries.len() as u32;
    let packed = image::encode(&mut entries);
    assert_eq!(image::decode(&packed, count), Some(entries));
    assert_eq!(
        image::decode(&packed, count + 1),
        None,
        "one entry too many"
    );

    let mut random = Random::from_bytes(bytes);
    let mut made = Root::new();
    for _ in 0..random.below(4) {
        let partition = random.index(PARTITIONS);
        made.images[partition] = Image {
            count: random.u64() as u32 | 1,
            extent: Extent {
                offset: random.u64(),
                len: u64::from(random.u64() as u32),
                crc: crc(image_seed(7, partition), bytes),
            },
        };
    }
    for _ in 0..random.below(4) {
        made.needed.log.push(Segment {
            index: random.u64() as u32,
            units: random.u64() as u32,
            sequence: random.u64(),
            // 40 bits of bytes, and 24 bits of words.
            dead: random.below(1 << 40),
            waste: random.below(1 << 24) * 8,
        });
        made.needed
            .other
            .push((random.u64() as u32, random.u64() as u32));
    }
    let encoded = made.encode();
    assert_eq!(Root::decode(&encoded), Some(made));
    let cut = random.index(encoded.len());
    assert_eq!(
        Root::decode(&encoded[..cut]),
        None,
        "a root that ends early"
    );
}
