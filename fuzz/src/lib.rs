//! The checks of the fuzz targets, one function each: from any bytes to a verdict.
//!
//! `fuzz_targets/` runs them on the inputs of a fuzzer, `crates/azekura-cli/tests/fuzz_targets.rs` on seeded ones, so that
//! each compiles and holds in every test run. It does not know who makes the inputs.

pub mod frame;
pub mod hash_layout;
pub mod hash_model;
pub mod hash_open;
pub mod http_head;
pub mod import_formats;
pub mod log_layout;
pub mod memcached_binary;
pub mod memcached_datagram;
pub mod memcached_meta;
pub mod memcached_session;
pub mod memcached_text;
pub mod object_layout;
pub mod object_model;
pub mod object_open;
pub mod server_config;
pub mod shard_names;
pub mod skip_open;
pub mod snapshot;
pub mod superblock;
pub mod tree_changes;
pub mod tree_open;

use std::path::Path;

use azekura::engine::Reader;
use azekura::io::{Access, Directory};
use azekura::testkit::Random;
use azekura::testkit::damage::{Image, Mutation, Verdict, read_all};

/// Inputs of a target for whole files, to begin with: each of `count` sound files as it is, with one mutation of each kind, and with
/// numbers that are forged. The first byte chooses that it is none of the input's own bytes, the second which, the third how many
/// mutations.
fn seeds_of_files(count: u8) -> Vec<Vec<u8>> {
    let whole = (0..count).map(|image| vec![1, image, 0, 1]);
    let mutated = (0..16).map(|kind| {
        let rest = Random::new(kind.into()).bytes(24);
        [&[1, kind % count, 1, kind], &rest[..]].concat()
    });
    let forged = (0..8).map(|seed| {
        let rest = Random::new(seed.into()).bytes(32);
        [&[1, seed % count, 0, 0], &rest[..]].concat()
    });
    whole.chain(mutated).chain(forged).collect()
}

/// A number for a forged field: small ones, those near a power of two, and any.
fn number(random: &mut Random) -> u64 {
    match random.below(3) {
        0 => random.below(256),
        1 => (1u64 << random.below(64)).wrapping_sub(random.below(3)),
        _ => random.u64(),
    }
}

/// Reads these keys and everything: each value that there is begins with its key.
fn judge<R: Reader + ?Sized>(reader: &R, keys: &[Vec<u8>]) {
    let Verdict::Read { answers, scan } = read_all(reader, keys) else {
        return;
    };
    for (key, answer) in answers {
        if let Ok(Some(value)) = answer {
            assert!(value.starts_with(&key), "a value that was never put");
        }
    }
    for (key, value) in scan.0 {
        assert!(value.starts_with(&key), "a record that was never put");
    }
}

/// A file that the input states: its own bytes, or one of these with some mutations.
fn file_of(bytes: &[u8], random: &mut Random, sound: &[Image]) -> Vec<u8> {
    if random.one_in(8) {
        return bytes.to_vec();
    }
    damaged(random.choose(sound), random)
}

/// A sound file with some mutations, or none.
fn damaged(sound: &Image, random: &mut Random) -> Vec<u8> {
    let mut image = sound.clone();
    for _ in 0..random.below(4) {
        image.bytes = Mutation::choose(&image, random).apply(&image);
    }
    image.bytes
}

/// Makes a file of these bytes.
fn put_file(directory: &dyn Directory, name: &str, bytes: &[u8]) {
    let file = directory.create(Path::new(name)).expect("a new file");
    file.resize(bytes.len() as u64).expect("its size");
    file.write_at(0, bytes).expect("its bytes");
}

/// The bytes of a file, which may be open.
fn bytes_of(directory: &dyn Directory, name: &str) -> Vec<u8> {
    let file = directory.open(Path::new(name), Access::Read);
    let file = file.expect("a file");
    let mut bytes = vec![0; file.size().expect("its size") as usize];
    file.read_at(0, &mut bytes).expect("its bytes");
    bytes
}
