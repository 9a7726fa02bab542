//! Fuzzes the manifest that names the files of a store of shards: its bytes, the names, and what is done by it: opening, and changes
//! that are applied to a copy.
//!
//! Any bytes are a manifest or none, and what is accepted encodes to the bytes it came from. Stores of trees and of hash files are given
//! a manifest that is damaged, or of forged numbers with a true checksum, and files that are missing, exchanged or of another time. No
//! bytes may lead to a panic. A store whose checksums are true in all opens with the records that it had, or not at all; changes leave
//! every byte of a copy as it was, or bring it to the state that they lead to. It does not know which errors are the right ones.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;

use azekura::engine::{Persistent, Reader};
use azekura::format::superblock::Superblock;
use azekura::io::Directory;
use azekura::io::sim::SimDisk;
use azekura::record::hash::{self, HashDb};
use azekura::record::tree::{self, CACHE_MIN, TreeDb};
use azekura::shard::layout::{ManifestState, ShardManifest, shard_name};
use azekura::shard::{ENGINE, SHARDS_MAX, ShardFile, Sharded};
use azekura::testkit::Random;
use azekura::testkit::damage::{Image, read_all};
use azekura::{Engine, Verbs as _};

use super::{bytes_of, damaged, number, put_file};

const LIMIT: u64 = 12 << 20;
const KEYS: u32 = 60;
const SHARDS: usize = 3;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A manifest, and the files that it names.
#[derive(Clone, Debug)]
struct Files {
    manifest: Vec<u8>,
    shards: Vec<Vec<u8>>,
}

impl Files {
    fn read(directory: &dyn Directory, name: &str) -> Self {
        let shards = (0..SHARDS).map(|shard| bytes_of(directory, &named(name, shard)));
        Self {
            manifest: bytes_of(directory, name),
            shards: shards.collect(),
        }
    }

    fn write(&self, directory: &dyn Directory, name: &str) {
        put_file(directory, name, &self.manifest);
        for (shard, bytes) in self.shards.iter().enumerate() {
            put_file(directory, &named(name, shard), bytes);
        }
    }

    fn is_equal(&self, other: &Self) -> bool {
        self.manifest == other.manifest && self.shards == other.shards
    }
}

fn named(name: &str, shard: usize) -> String {
    let name = shard_name(Path::new(name), shard);
    name.to_str().expect("text").to_owned()
}

/// A store of hash files; a copy of one of trees, and after changes; these. With the records of each.
struct Sound {
    hash: (Files, Records),
    before: (Files, Records),
    after: (Files, Records),
    changes: Files,
}

fn of_tree() -> tree::CreateOptions {
    tree::CreateOptions::new()
        .segment_size(64 << 10)
        .background(false)
        .cache(SHARDS as u64 * CACHE_MIN)
        .capacity(LIMIT)
}

fn of_hash() -> hash::CreateOptions {
    hash::CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(LIMIT)
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn fill(store: &impl Engine, turn: u32) {
    for number in (0..KEYS).step_by(1 + 6 * turn as usize) {
        let value = [&key(number)[..], &[turn as u8; 40]].concat();
        store.put(&key(number), &value).expect("a put");
    }
}

fn records_of(store: &impl Reader) -> azekura::Result<Records> {
    let mut records = Records::new();
    store.scan(None, &mut |key, value| {
        records.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(records)
}

fn sound() -> &'static Sound {
    static SOUND: OnceLock<Sound> = OnceLock::new();
    SOUND.get_or_init(|| {
        let disk = SimDisk::new(3);
        let directory = disk.directory();
        let store = Sharded::<HashDb>::create_in(&directory, Path::new("h"), SHARDS, &of_hash());
        let store = store.expect("a new store");
        fill(&store, 0);
        let hash = records_of(&store).expect("its records");
        store.close().expect("a close");
        let store = Sharded::<TreeDb>::create_in(&directory, Path::new("t"), SHARDS, &of_tree());
        let store = store.expect("a new store");
        fill(&store, 0);
        let before = records_of(&store).expect("its records");
        let ids = store.copy_in(&directory, Path::new("before"), &mut |_, _| ());
        fill(&store, 1);
        let after = records_of(&store).expect("its records");
        let changes = Path::new("changes");
        let ids = ids.expect("a copy");
        store
            .copy_changes_in(&ids, &directory, changes, &mut |_, _| ())
            .expect("changes");
        store
            .copy_in(&directory, Path::new("after"), &mut |_, _| ())
            .expect("a copy");
        Sound {
            hash: (Files::read(&directory, "h"), hash),
            before: (Files::read(&directory, "before"), before),
            after: (Files::read(&directory, "after"), after),
            changes: Files::read(&directory, "changes"),
        }
    })
}

/// The payload of a manifest's superblock.
fn payload(manifest: &[u8]) -> Option<Vec<u8>> {
    let block = Superblock::current(manifest, &ENGINE).ok()?;
    Some(block.payload)
}

/// Gives a manifest this payload, in the slot that counts.
fn with_payload(manifest: &[u8], payload: Vec<u8>) -> Option<Vec<u8>> {
    let mut block = Superblock::current(manifest, &ENGINE).ok()?;
    block.payload = payload;
    let (at, slot) = (block.slot_offset() as usize, block.encode());
    let mut manifest = manifest.to_vec();
    manifest
        .get_mut(at..at + slot.len())?
        .copy_from_slice(&slot);
    Some(manifest)
}

/// The same with other numbers, under a true checksum.
fn forged(manifest: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut payload = payload(manifest)?;
    for _ in 0..=random.below(2) {
        match random.below(8) {
            0 => payload.truncate(random.index(payload.len().max(1))),
            1 => {
                let len = random.index(40);
                payload.extend(random.bytes(len));
            }
            _ => {
                let fields = [
                    (0, 2),
                    (0, 1),
                    (2, 1),
                    (3, 5),
                    (8, 8),
                    (16, 8),
                    (24, 4),
                    (32, 4),
                ];
                let (at, len) = *random.choose(&fields);
                let number = number(random).to_le_bytes();
                if let Some(place) = payload.get_mut(at..at + len) {
                    place.copy_from_slice(&number[..len]);
                }
            }
        }
    }
    with_payload(manifest, payload)
}

/// The manifest of a copy to which changes are being applied.
fn applying(manifest: &[u8]) -> Option<Vec<u8>> {
    let mut read = ShardManifest::decode(&payload(manifest)?)?;
    read.state = ManifestState::Applying("changes".into());
    with_payload(manifest, read.encode())
}

fn image(bytes: &[u8], older: &[u8]) -> Image {
    Image {
        bytes: bytes.to_vec(),
        older: older.to_vec(),
        ..Image::default()
    }
}

/// Inputs to begin with: of a store's manifest, of changes; a payload each; and for files.
pub fn seeds() -> Vec<Vec<u8>> {
    let sound = sound();
    let manifests = [&sound.hash.0, &sound.before.0, &sound.changes];
    let payloads = manifests.map(|files| payload(&files.manifest).expect("a manifest"));
    let applying = applying(&sound.before.0.manifest).expect("a manifest");
    let applying = payload(&applying).expect("a manifest");
    let files = super::seeds_of_files(3);
    payloads
        .into_iter()
        .chain([applying])
        .chain(files)
        .collect()
}

/// The bytes as a payload, and payloads of any numbers.
fn check_layout(bytes: &[u8], random: &mut Random) {
    if let Some(read) = ShardManifest::decode(bytes) {
        assert_eq!(read.encode(), bytes);
    }
    let name = String::from_utf8_lossy(bytes).chars().take(60).collect();
    let states = [
        ManifestState::Whole,
        ManifestState::Clearing,
        ManifestState::Applying(name),
        ManifestState::Changes,
    ];
    let shards = 1 + random.index(SHARDS_MAX);
    let made = ShardManifest {
        state: random.choose(&states).clone(),
        engine: random.u64().to_le_bytes(),
        seed: random.u64(),
        salts: (0..shards).map(|_| random.u64() as u32).collect(),
    };
    let mut encoded = made.encode();
    assert_eq!(ShardManifest::decode(&encoded).as_ref(), Some(&made));
    let cut = random.index(encoded.len());
    assert_eq!(ShardManifest::decode(&encoded[..cut]), None, "an end");
    encoded.push(random.u64() as u8);
    assert_eq!(ShardManifest::decode(&encoded), None, "a byte too many");
}

fn check_names(bytes: &[u8], random: &mut Random) {
    let path = Path::new(OsStr::from_bytes(bytes));
    if path.file_name().is_none() || bytes.ends_with(b"/") || bytes.ends_with(b"/.") {
        return;
    }
    let [one, other] = [0; 2].map(|_| random.index(SHARDS_MAX));
    let (first, second) = (shard_name(path, one), shard_name(path, other));
    assert_eq!(first == second, one == other, "a name for each shard");
    assert_eq!(first.parent(), path.parent(), "next to the manifest");
    assert!(first.as_os_str().as_bytes().starts_with(bytes));
}

/// Whatever opens by a manifest is read and changed.
fn live<E: ShardFile + Engine>(store: &Sharded<E>) {
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let _ = read_all(store, &keys);
    let _ = store.check(&mut |_, _| ());
    let _ = store.put(&keys[1], b"1");
    let _ = store.get(&keys[1]);
    let _ = store.inspect();
}

/// Opens `files` as both engines.
fn check_opening(files: &Files, records: Option<&Records>) {
    let disk = SimDisk::new(1);
    let (directory, name) = (disk.directory(), Path::new("s"));
    files.write(&directory, "s");
    let right = |found: azekura::Result<Records>| {
        if let (Ok(found), Some(records)) = (found, records) {
            assert!(
                found == *records,
                "records that the store never had at once"
            );
        }
    };
    let _ = Sharded::<TreeDb>::checkpoints_in(&directory, name);
    if let Ok(store) = Sharded::<hash::HashReader>::open_in(&directory, name, &()) {
        right(records_of(&store));
    }
    if let Ok(store) = Sharded::<HashDb>::open_in(&directory, name, &of_hash().opening) {
        right(records_of(&store));
        live(&store);
        let _ = store.close();
    }
    if let Ok(store) = Sharded::<TreeDb>::open_in(&directory, name, &of_tree().opening) {
        right(records_of(&store));
        live(&store);
        let _ = store.close();
    }
}

/// Applies changes to a copy, which is a state of the history, or marked.
fn check_changes(copy: &Files, changes: &Files) {
    let disk = SimDisk::new(2);
    let directory = disk.directory();
    copy.write(&directory, "copy");
    changes.write(&directory, "changes");
    let (to, from) = (Path::new("copy"), Path::new("changes"));
    let apply = || {
        let (to, from) = ((&directory as &dyn Directory, to), (&directory as _, from));
        Sharded::<TreeDb>::apply_changes_in(to, from, &mut |done, total| {
            assert!(done <= total, "more is done than there is");
        })
    };
    if let Err(error) = apply() {
        let left = Files::read(&directory, "copy");
        assert!(left.is_equal(copy), "half of it is done: {error}");
        return;
    }
    let done = Files::read(&directory, "copy");
    apply().expect("applied once more");
    let left = Files::read(&directory, "copy");
    assert!(left.is_equal(&done), "nothing is left to do");
    let store = Sharded::<TreeDb>::open_in(&directory, to, &of_tree().opening);
    let store = store.expect("a copy that opens");
    let records = records_of(&store).expect("its records");
    assert!(
        records == sound().after.1,
        "not the state that they lead to"
    );
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    let mut random = Random::from_bytes(bytes);
    check_layout(bytes, &mut Random::from_bytes(bytes));
    check_names(bytes, &mut Random::from_bytes(bytes));
    let sound = sound();
    let is_own = random.one_in(8);
    let all = [&sound.before, &sound.after, &sound.hash];
    let which = random.index(3);
    let (mut files, records) = all[which].clone();
    let older = &all[(which + 1) % 3].0.manifest;
    let manifest = image(&files.manifest, older);
    files.manifest = if is_own {
        with_payload(&manifest.bytes, bytes[..bytes.len().min(2000)].to_vec()).expect("a manifest")
    } else {
        damaged(&manifest, &mut random)
    };
    let is_forged = random.one_in(2);
    if is_forged && let Some(forged) = forged(&files.manifest, &mut random) {
        files.manifest = forged;
    }
    let mut is_of_a_time = true;
    match random.below(6) {
        // Exchanged; of another store, or of another time; missing.
        0 => files.shards.swap(random.index(SHARDS), 0),
        1 => {
            let other = all[(which + 2) % 3].0.shards[0].clone();
            files.shards[random.index(SHARDS)] = other;
            is_of_a_time = which != 1;
        }
        2 => drop(files.shards.pop()),
        _ => {}
    }
    let is_sound = is_of_a_time && !is_own && !is_forged;
    check_opening(&files, is_sound.then_some(&records));

    let (mut copy, mut changes) = (sound.before.0.clone(), sound.changes.clone());
    // One that was cut short: some shards are after the changes.
    if random.one_in(3) {
        copy.manifest = applying(&copy.manifest).expect("a manifest");
        for shard in 0..SHARDS {
            if random.one_in(2) {
                copy.shards[shard].clone_from(&sound.after.0.shards[shard]);
            }
        }
    }
    let of = if random.one_in(3) {
        &mut copy.manifest
    } else {
        &mut changes.manifest
    };
    let manifest = image(of, &sound.before.0.manifest);
    *of = damaged(&manifest, &mut random);
    if random.one_in(2)
        && let Some(forged) = forged(of, &mut random)
    {
        *of = forged;
    }
    if random.one_in(2) {
        let shard = random.index(SHARDS);
        let (own, other) = (
            &changes.shards[shard],
            &changes.shards[(shard + 1) % SHARDS],
        );
        changes.shards[shard] = damaged(&image(own, other), &mut random);
    }
    check_changes(&copy, &changes);
}
