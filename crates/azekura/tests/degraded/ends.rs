//! Damage where the log ends, or once ended: blank room, holes and end frames that are not to be believed.
//!
//! Each test makes the file that a third attack found wrong, and damages it; a writer, a reader and a repair of it then answer with
//! the newest value, an error, or, of a repair, one that is in doubt. What stands elsewhere is in `heads` and `regions`.

use azekura::testkit::Random;
use azekura::{Durability, Edit, Engine as _, Persistent as _, Verbs as _};

use super::heads::{Later, Putting, later};
use super::*;

/// Opens a file for reading and for writing, again after a write, and repairs it: what is read is the newest, or an error.
pub(super) fn judge_all(made: &Made, what: &str, bytes: &[u8]) {
    judge_on(made, what, bytes, &|| storage(bytes, None));
}

/// As `judge_all`, of a file that is opened `on` this storage.
pub(super) fn judge_on(made: &Made, what: &str, bytes: &[u8], on: &dyn Fn() -> Arc<dyn Storage>) {
    if let Ok(reader) = HashReader::open_on(on()) {
        judge(made, &format!("{what}, read"), &reader);
    }
    let store = on();
    let db = HashDb::open_on(Arc::clone(&store), &made.options.opening).expect("it opens");
    judge(made, &format!("{what}, written"), &db);
    let known = made
        .now
        .iter()
        .find_map(|(key, value)| Some((key, value.as_ref()?)));
    let (key, value) = known.expect("a record");
    if db.put(key, value).is_ok() {
        let mut again = vec![0; store.size().expect("a size") as usize];
        store.read_at(0, &mut again).expect("it is read");
        drop(db);
        let db = HashDb::open_on(storage(&again, None), &made.options.opening).expect("it opens");
        judge(made, &format!("{what}, opened again"), &db);
    }
    let place = Repairs::new();
    let report = place.repair(bytes);
    let options = made.options.clone().segment_size(0);
    let db = HashDb::open(&place.target, &options.opening).expect("it opens");
    for (key, newest) in &made.now {
        let found = db.get(key).expect("it is read");
        let is_named = report.doubted.iter().any(|of| &of.key == key);
        let is_in_doubt = is_named || report.doubtful > report.doubted.len() as u64;
        let is_lost = found.is_none() && report.losses > 0;
        let name = String::from_utf8_lossy(key);
        assert!(
            &found == newest || is_in_doubt || is_lost,
            "{what}, repaired: {name} is {found:?}"
        );
    }
}

/// A zeroed sector over the end of a record whose bytes there have one bit, and over those that follow.
#[test]
fn a_blanked_end_of_one_bit_is_not_one_wrong_bit() {
    for is_before in [false, true] {
        for is_followed in [false, true] {
            let mut store = Putting::new(0, 1 << 20);
            for key in [b"counter1", b"counter2", b"counter3"] {
                store.put(key, &7u64.to_le_bytes());
            }
            // Frames of 24 bytes, until one has its value after a sector's end.
            let mut n = 0u64;
            while !(store.end() + 16).is_multiple_of(512) {
                n += 1;
                store.put(&n.to_le_bytes(), &n.to_le_bytes());
            }
            store.put(b"counter1", &8u64.to_le_bytes());
            if is_before {
                store.db.checkpoint().expect("a checkpoint");
            }
            let sector = store.end() & !511;
            store.put(b"counter2", &9u64.to_le_bytes());
            store.put(b"counter3", &10u64.to_le_bytes());
            store.put(b"fresh", b"first");
            store.db.remove(&1u64.to_le_bytes()).expect("a removal");
            store.made.remember(1u64.to_le_bytes().to_vec(), None);
            if is_followed {
                while store.end() < sector + 512 {
                    store.put(b"filler", b"twelve bytes");
                }
                store.put(b"behind", &[3; 600]);
            }
            let made = store.killed();
            let mut bytes = made.bytes.clone();
            bytes[sector..sector + 512].fill(0);
            let what = format!("before {is_before}, followed {is_followed}");
            judge_all(&made, &what, &bytes);
        }
    }
}

/// As if another process wrote it.
#[derive(Debug)]
struct Held(Arc<dyn Storage>);

impl Over for Held {
    fn below(&self) -> &dyn Storage {
        self.0.as_ref()
    }

    fn has_writer(&self) -> bool {
        true
    }
}

/// A reader concurrent with a writer that opened the damaged file, and doubts.
#[test]
fn a_reader_concurrent_with_a_writer_in_doubt_doubts_too() {
    let mut store = Putting::new(0, 1 << 20);
    for key in 0..64u64 {
        store.put(&key.to_le_bytes(), &[1; 50]);
    }
    store.db.checkpoint().expect("a checkpoint");
    let from = store.end();
    for key in 0..8u64 {
        store.put(&key.to_le_bytes(), &[2; 50]);
    }
    let end = store.end();
    let made = store.killed();
    let mut bytes = made.bytes.clone();
    bytes[from - 20..end].fill(0);
    let base = storage(&bytes, None);
    let db = HashDb::open_on(Arc::clone(&base), &made.options.opening).expect("it opens");
    assert!(db.get(&0u64.to_le_bytes()).is_err());
    let reader = HashReader::open_on(Arc::new(Held(base))).expect("it opens");
    for key in 0..8u64 {
        let found = reader.get(&key.to_le_bytes());
        assert!(found.is_err(), "{key}: {found:?}");
    }
}

/// After a hole two records, each with one wrong bit.
#[test]
fn a_hole_takes_none_of_two_damaged_records() {
    for is_followed in [false, true] {
        let mut store = Putting::new(0, 1 << 20);
        store.put(b"one", b"older");
        store.put(b"two", b"older");
        let hole = store.end();
        store.db.put(b"died", &[7; 500]).expect("a put");
        let first = store.end();
        store.put(b"one", &[1; 200]);
        let second = store.end();
        store.put(b"two", &[2; 200]);
        if is_followed {
            store.put(b"behind", b"x");
        }
        let made = store.killed();
        let mut bytes = made.bytes.clone();
        bytes[hole..hole + 8].fill(0);
        bytes[first + 100] ^= 4;
        bytes[second + 100] ^= 4;
        judge_all(&made, &format!("followed {is_followed}"), &bytes);
    }
}

const WAYS: u32 = 5;

/// Damages the end frame at `at`: two bits, the rest of its sector overwritten or blanked, the frame blanked, also with the end of
/// the one before.
fn damage_end(bytes: &mut [u8], at: usize, way: u32) {
    let end = (at & !511) + 512;
    match way {
        0 => {
            bytes[at] ^= 1;
            bytes[at + 1] ^= 1;
        }
        1 => bytes[at..end].copy_from_slice(&Random::new(1).bytes(end - at)),
        2 => bytes[at..end].fill(0),
        3 => bytes[at..at + 8].fill(0),
        _ => bytes[at - 8..end].fill(0),
    }
}

/// A recovery after a power cut ended the log within a segment, after which frames stood that it dropped. Then that end is
/// damaged.
#[test]
fn what_a_recovery_dropped_does_not_come_back() {
    for way in 0..WAYS {
        // The last is rolled into the next segment before the power went: its own end frame stands after what was dropped.
        for (is_synced, is_rolled) in [(false, false), (true, false), (true, true)] {
            let mut store = Putting::new(0, if is_rolled { 16 << 10 } else { 1 << 20 });
            store.put(b"put", b"kept");
            store.put(b"removed", b"kept");
            store.put(b"other", b"kept");
            store.db.sync(Durability::Power).expect("a sync");
            let at = store.end();
            store.db.put(b"lost", &[7; 3000]).expect("a put");
            store.db.put(b"put", b"dropped").expect("a put");
            store.db.remove(b"removed").expect("a removal");
            while is_rolled && store.db.log().end().segment() == 0 {
                store.db.put(b"filler", &[8; 600]).expect("a put");
            }
            let mut made = store.killed();
            let mut bytes = made.bytes.clone();
            // The power went before this sector was written.
            let sector = (at + 1024) & !511;
            bytes[sector..sector + 512].fill(0);
            let second = Memory::from_bytes(&bytes, ROOM).expect("memory");
            let cut = Arc::new(Later(Arc::clone(&second)));
            let db = HashDb::open_on(cut, &made.options.opening).expect("it opens");
            assert_eq!(db.get(b"put").expect("read").as_deref(), Some(&b"kept"[..]));
            db.put(b"next", b"after the recovery").expect("a put");
            made.remember(b"next".to_vec(), Some(b"after the recovery".to_vec()));
            if is_synced {
                db.sync(Durability::Power).expect("a sync");
            }
            let mut bytes = second.to_vec();
            damage_end(&mut bytes, at, way);
            let what = format!("way {way}, synced {is_synced}, rolled {is_rolled}");
            judge_on(&made, &what, &bytes, &|| later(&bytes));
        }
    }
}

/// As `a_repair_has_no_half_of_a_batch_that_was_never_synced_without_doubt`, with a removal in it.
#[test]
fn a_repair_does_not_remove_by_half_of_a_batch() {
    let mut store = Putting::new(0, 1 << 20);
    let keys: [&[u8]; 2] = [b"from", b"to"];
    for key in keys {
        store.put(key, b"older");
    }
    store.db.sync(Durability::Power).expect("a sync");
    let at = store.end();
    store
        .db
        .update_many(&keys, &mut |_| {
            vec![Edit::Put(vec![b'f'; 70_000].into()), Edit::Remove]
        })
        .expect("a batch");
    store.put(b"behind", b"x");
    let made = store.killed();
    let mut bytes = made.bytes.clone();
    let page = (at + 20_000) & !4095;
    bytes[page..page + 4096].fill(0);
    let db = HashDb::open_on(later(&bytes), &made.options.opening).expect("it opens");
    let older = |key| db.get(key).expect("it is read").expect("a record");
    assert_eq!(keys.map(older), [b"older", b"older"]);
    drop(db);
    let place = Repairs::new();
    let report = place.repair(&bytes);
    let db = HashDb::open(&place.target, &made.options.opening).expect("it opens");
    let to = db.get(b"to").expect("it is read");
    let is_named = report.doubted.iter().any(|of| of.key == b"to");
    assert!(to.is_some() || is_named, "{report:?}");
}

/// The end of a synced log is blank, and one bit stands after it: the file opens as it does without that bit.
#[test]
fn a_bit_after_a_blank_end_that_was_synced_does_not_keep_the_file_from_being_opened() {
    for is_bit in [false, true] {
        let mut store = Putting::new(0, 1 << 20);
        for key in 0..64u64 {
            store.put(&key.to_le_bytes(), &[1; 48]);
        }
        store.db.sync(Durability::Power).expect("a sync");
        let end = store.end();
        let made = store.killed();
        let mut bytes = made.bytes.clone();
        bytes[(end - 1) & !511..end].fill(0);
        if is_bit {
            bytes[end + 5000] = 1;
        }
        HashDb::open_on(storage(&bytes, None), &made.options.opening).expect("it opens");
        HashReader::open_on(storage(&bytes, None)).expect("it opens for reading");
    }
}
