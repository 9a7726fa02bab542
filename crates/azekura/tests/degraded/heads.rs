//! What the sum of a long frame's head proves, and what it must not be taken to prove: nothing of what stands after the frame, nothing
//! of a batch that was never written whole. Also damage that passes for one wrong bit elsewhere, and bytes made to cost time or stack.
//!
//! Found by an attack on the design; each of the first tests once gave a wrong answer without an error.

use azekura::format::checksum::crc;
use azekura::format::frame::FrameKind;
use azekura::log::layout::{SegmentHeader, segment_seed};
use azekura::testkit::suite::{case, demand, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Edit, Engine as _, Persistent as _, Verbs as _};

use super::*;

/// A store of which records are put, and remembered.
pub(super) struct Putting {
    pub(super) made: Made,
    pub(super) memory: Arc<Memory>,
    pub(super) db: HashDb,
}

impl Putting {
    pub(super) fn new(seed: u64, segment_size: u64) -> Self {
        let (made, memory, db) = Made::begin(seed, of_segments(segment_size));
        Self { made, memory, db }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.db.put(key, value).expect("a put");
        self.made.remember(key.to_vec(), Some(value.to_vec()));
    }

    pub(super) fn put_batch(&mut self, keys: &[&[u8]], values: &[Vec<u8>]) {
        let edit = |value: &Vec<u8>| Edit::Put(value.clone().into());
        self.db
            .update_many(keys, &mut |_| values.iter().map(edit).collect())
            .expect("a batch");
        for (key, value) in keys.iter().zip(values) {
            self.made.remember(key.to_vec(), Some(value.clone()));
        }
    }

    /// Where the log ends, as offset in the file.
    pub(super) fn end(&self) -> usize {
        let end = self.db.log().end();
        let segment = self.db.log().geometry().offset_of(end.segment());
        segment as usize + end.offset().expect("an open segment") as usize
    }

    /// As a killed process leaves it.
    pub(super) fn killed(mut self) -> Made {
        self.made.bytes = self.memory.to_vec();
        self.made
    }
}

/// Where a long value is, and from where to where it is blanked together with what stands after it.
fn blanked(is_before: bool, is_followed: bool) -> (Made, Vec<u8>) {
    let mut store = Putting::new(0, 1 << 20);
    for key in [b"r1", b"r2", b"r3"] {
        store.put(key, b"old");
    }
    store.put(b"long", &Random::new(3).bytes(70_000));
    if is_before {
        store.db.checkpoint().expect("a checkpoint");
    }
    let after = store.end();
    store.put(b"r1", b"new");
    store.put(b"r2", b"new");
    store.put(b"fresh", b"first");
    let until = store.end();
    if is_followed {
        store.put(b"r3", &[b'n'; 5000]);
    }
    let made = store.killed();
    let mut bytes = made.bytes.clone();
    bytes[after - 3000..until].fill(0);
    (made, bytes)
}

#[test]
fn what_blanked_the_end_of_a_long_value_may_have_blanked_what_followed() {
    let place = Repairs::new();
    for is_before in [false, true] {
        for is_followed in [false, true] {
            let (made, bytes) = blanked(is_before, is_followed);
            let what = format!("before the checkpoint {is_before}, followed {is_followed}");
            let cost = cost(&made, &what, &bytes, None);
            assert!(!cost.refused && cost.keys > 1, "{what}: {cost:?}");
            let report = place.repair(&bytes);
            let db = HashDb::open(&place.target, &made.options.opening).expect("it opens");
            for key in [&b"r1"[..], b"r2", b"fresh"] {
                let is_doubted = report.doubted.iter().any(|of| of.key == key);
                let found = db.get(key).expect("it is read");
                let is_unread = |line: &String| line.contains("cannot be read");
                let is_named = found.is_none() && report.lost.iter().any(is_unread);
                assert!(
                    is_doubted || is_named,
                    "{what}: {found:?} of {key:?}: {report:?}"
                );
            }
        }
    }
}

/// A reader that comes concurrently with the writer at work.
#[test]
fn a_reader_concurrent_with_a_writer_does_not_believe_it_either() {
    let mut store = Putting::new(0, 1 << 20);
    store.put(b"r1", b"old");
    store.put(b"long", &Random::new(3).bytes(70_000));
    let after = store.end();
    store.put(b"r1", b"new");
    store.put(b"fresh", b"new");
    let zeros = vec![0; store.end() - after + 3000];
    let storage = Arc::clone(&store.memory);
    storage
        .write_at(after as u64 - 3000, &zeros)
        .expect("it is blanked");
    let reader = HashReader::open_on(storage).expect("it opens");
    assert!(reader.get(b"r1").is_err() && reader.get(b"fresh").is_err());
}

/// Bits of 32 from `from` on that change the sum of a frame of `len` bytes as the bit `like` does.
fn passing_for(len: usize, from: usize, like: usize) -> Vec<usize> {
    let none = crc(0, &vec![0; len]);
    let delta = |bit: usize| {
        let mut bytes = vec![0; len];
        bytes[bit / 8] ^= 1 << (bit % 8);
        crc(0, &bytes) ^ none
    };
    // Elimination: which of the rows add up to what is wanted.
    let mut rows: Vec<(u32, u32)> = (0..32).map(|row| (delta(from + row), 1 << row)).collect();
    let (mut wanted, mut done) = ((delta(like), 0), 0);
    for column in 0..32 {
        let has = |of: &(u32, u32)| of.0 >> column & 1 == 1;
        let Some(pivot) = (done..32).find(|row| has(&rows[*row])) else {
            continue;
        };
        rows.swap(done, pivot);
        let pivot = rows[done];
        for (row, of) in rows.iter_mut().enumerate() {
            if row != done && has(of) {
                *of = (of.0 ^ pivot.0, of.1 ^ pivot.1);
            }
        }
        if has(&wanted) {
            wanted = (wanted.0 ^ pivot.0, wanted.1 ^ pivot.1);
        }
        done += 1;
    }
    assert_eq!(wanted.0, 0);
    let is_one = |row: &usize| wanted.1 >> row & 1 == 1;
    (0..32).filter(is_one).map(|row| from + row).collect()
}

fn flip_all(bytes: &mut [u8], at: usize, bits: &[usize]) {
    for bit in bits {
        bytes[at + bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn damage_of_one_record_of_a_batch_that_passes_for_a_bit_of_another_loses_none() {
    let mut store = Putting::new(0, 1 << 20);
    let keys: [&[u8]; 4] = [b"k1", b"k2", b"k3", b"k4"];
    for key in keys {
        store.put(key, b"older");
    }
    let at = store.end();
    store.put_batch(
        &keys,
        &[b'a', b'b', b'c', b'd'].map(|byte| vec![byte; 1000]),
    );
    let end = store.end();
    let made = store.killed();
    let mut bytes = made.bytes.clone();
    let record = 8 + 2 + 1000 + 6;
    let bits = passing_for(end - at, (16 + 500) * 8, (16 + 2 * record + 500) * 8);
    flip_all(&mut bytes, at, &bits);
    let cost = cost(&made, "a batch", &bytes, None);
    assert!(cost.keys > 0, "{cost:?}");
}

#[test]
fn damage_of_a_value_that_passes_for_a_bit_of_its_key_is_not_of_another_key() {
    let mut store = Putting::new(0, 1 << 20);
    let key = [b'k'; 300];
    store.put(&key, b"older");
    let at = store.end();
    store.put(&key, &[b'v'; 5000]);
    let end = store.end();
    store.put(b"behind", b"x");
    let made = store.killed();
    let mut bytes = made.bytes.clone();
    let bits = passing_for(end - at, (16 + 300 + 2000) * 8, (16 + 100) * 8);
    flip_all(&mut bytes, at, &bits);
    let cost = cost(&made, "a key", &bytes, None);
    assert_eq!(cost.failed.into_iter().collect::<Vec<_>>(), [key.to_vec()]);
}

/// A thread died before it published, and the record of `len` bytes after its hole is damaged: the bit of its frame, or of its value.
/// What follows it: a record, nothing, or, where it ends with its segment, the next one.
fn after_a_hole(len: usize, bit: Option<usize>, is_followed: bool) -> (Made, Vec<u8>) {
    let mut store = Putting::new(0, if len > 60_000 { 1 << 20 } else { 64 << 10 });
    store.put(b"record", b"older");
    let hole = store.end();
    // It is not remembered.
    store.db.put(b"died", &[7; 500]).expect("a put");
    let at = store.end();
    let value = Random::new(3).bytes(len);
    store.put(b"record", &value);
    if is_followed {
        store.put(b"behind", b"x");
    }
    let made = store.killed();
    let mut bytes = made.bytes.clone();
    bytes[hole..hole + 8].fill(0);
    let value_bit = (bytes.windows(32).position(|of| of == &value[..32]))
        .map(|begins| (begins - at + 30) * 8 + 3);
    let bit = bit.or(value_bit).expect("values are stored as they are");
    bytes[at + bit / 8] ^= 1 << (bit % 8);
    (made, bytes)
}

/// Judges a file of which the record "record" is damaged, opened, and opened again after the next kill.
fn judge_after_a_hole(made: &Made, bytes: &[u8], what: &str) {
    let cost = cost(made, what, bytes, None);
    assert!(
        cost.failed.contains(b"record".as_slice()),
        "{what}: {cost:?}"
    );
    // The hole is filled when the file is opened, and what stands after it stays.
    let memory = Memory::from_bytes(bytes, ROOM).expect("memory");
    let db =
        HashDb::open_on(Arc::clone(&memory) as Arc<_>, &made.options.opening).expect("it opens");
    let _read_only = db.put(b"next", b"value");
    let again = memory.to_vec();
    drop(db);
    for db in [
        &made.open(&again, None).expect("it opens again") as &dyn Reader,
        &HashReader::open_on(storage(&again, None)).expect("it opens for reading"),
    ] {
        assert!(db.get(b"record").is_err(), "{what}, opened again");
    }
}

#[test]
fn a_hole_does_not_take_a_damaged_record_after_it() {
    // The longest one ends with its segment.
    let whole = (64 << 10) - 64 - 24 - 512 - 16;
    for len in [40, 3000, 70_000, whole] {
        for is_followed in [true, false] {
            let what = format!("{len} bytes, followed {is_followed}");
            let (made, bytes) = after_a_hole(len, None, is_followed);
            judge_after_a_hole(&made, &bytes, &what);
        }
    }
    // Each bit of the frame's first word.
    for bit in 0..64 {
        let (made, bytes) = after_a_hole(3000, Some(bit), true);
        judge_after_a_hole(&made, &bytes, &format!("bit {bit}"));
    }
}

/// What blanked the end of the log, and what stood before it, left one bit.
#[test]
fn one_bit_after_a_blanked_record_is_not_the_log_s_end() {
    for is_before in [true, false] {
        for bit in [None, Some(100)] {
            let mut store = Putting::new(0, 1 << 20);
            store.put(b"r1", b"old");
            store.put(b"last before", b"value");
            if is_before {
                store.db.checkpoint().expect("a checkpoint");
            }
            let after = store.end();
            store.put(b"r1", b"new");
            store.put(b"fresh", b"first");
            let until = store.end();
            let begin = store.db.log().geometry().offset_of(0) as usize;
            let made = store.killed();
            let mut bytes = made.bytes.clone();
            let from = if is_before { after - 8 } else { begin };
            bytes[from..until].fill(0);
            if let Some(more) = bit {
                bytes[until + more] = 1;
            }
            let what = format!("before a checkpoint {is_before}, bit {bit:?}");
            let cost = cost(&made, &what, &bytes, None);
            assert!(cost.keys > 1, "{what}: {cost:?}");
        }
    }
}

/// The memory of a machine that was started again.
#[derive(Debug)]
pub(super) struct Later(pub(super) Arc<Memory>);

impl Over for Later {
    fn below(&self) -> &dyn Storage {
        self.0.as_ref()
    }

    fn boot_id(&self) -> [u8; 16] {
        [2; 16]
    }
}

pub(super) fn later(bytes: &[u8]) -> Arc<dyn Storage> {
    let memory = Memory::from_bytes(bytes, ROOM).expect("memory");
    Arc::new(Later(memory))
}

/// The power takes one page of the long value of a batch that was not synced; the pages after it were written.
#[test]
fn a_repair_has_no_half_of_a_batch_that_was_never_synced_without_doubt() {
    let mut store = Putting::new(0, 1 << 20);
    let keys: [&[u8]; 2] = [b"from", b"to"];
    for key in keys {
        store.put(key, b"older");
    }
    store.db.sync(Durability::Power).expect("a sync");
    let at = store.end();
    store.put_batch(&keys, &[vec![b'f'; 70_000], b"newer".to_vec()]);
    store.put(b"behind", b"x");
    let made = store.killed();
    let mut bytes = made.bytes.clone();
    let page = (at + 20_000) & !4095;
    bytes[page..page + 4096].fill(0);
    let db = HashDb::open_on(later(&bytes), &made.options.opening).expect("it opens");
    let older = |key| db.get(key).expect("it is read").expect("a record");
    assert_eq!(keys.map(older), [b"older", b"older"]);
    drop(db);
    let report = Repairs::new().repair(&bytes);
    for key in keys {
        let is_doubted = report.doubted.iter().any(|of| of.key == key);
        assert!(is_doubted, "{key:?}: {report:?}");
    }
    let says_so = |line: &String| line.contains("nothing of them was acknowledged");
    assert!(report.lost.iter().any(says_so), "{report:?}");
}

/// A head of the long form whose own sum holds.
pub(super) fn head(
    seed: u32,
    place: u32,
    kind_flags: u32,
    (key_len, value_len): (u32, u32),
) -> [u8; 16] {
    let parts = [place, kind_flags, key_len, value_len].map(u32::to_le_bytes);
    let sum = crc(seed, &parts.concat()) & 0x00ff_ffff;
    let words = [0xdead_beef, kind_flags | sum << 8, key_len, value_len];
    let bytes = words.map(u32::to_le_bytes).concat();
    bytes.try_into().expect("two words")
}

/// Batches in batches, of heads that hold: anybody can make them, as the salt stands in the file.
#[test]
fn heads_within_heads_do_not_exhaust_the_stack() {
    const INNER: u32 = 4;
    const LONG: u32 = 1;
    const LEVELS: u32 = 8000;
    let mut store = Putting::new(0, 1 << 20);
    store.put(b"one", b"value");
    let at = store.end();
    let geometry = store.db.log().geometry();
    let begin = geometry.offset_of(store.db.log().end().segment()) as usize;
    let mut made = store.killed();
    let header = SegmentHeader::decode(&made.bytes[begin..begin + 64], geometry.salt);
    let seed = segment_seed(geometry.salt, header.expect("a header").sequence);
    made.bytes
        .resize(made.bytes.len().max(begin + (1 << 20)), 0);
    for level in 0..LEVELS {
        let here = at + 16 * level as usize;
        let flags = LONG | if level > 0 { INNER } else { 0 };
        let lens = (1, 16 * (LEVELS - level - 1));
        let place = ((here - begin) / 8) as u32;
        let kind = u32::from(FrameKind::BATCH.bits());
        let head = head(seed, place, kind | flags << 4, lens);
        made.bytes[here..here + 16].copy_from_slice(&head);
    }
    let db = HashDb::open_on(storage(&made.bytes, None), &made.options.opening).expect("it opens");
    assert_eq!(db.damage().len(), 1, "{:?}", db.damage());
}

/// Each record of a batch has a wrong bit: that many are not looked into, one by one.
#[test]
fn a_batch_of_many_damaged_records_is_given_up() {
    for count in [64, 65, 20_000u32] {
        let mut store = Putting::new(0, 1 << 20);
        store.put(b"one", b"value");
        let at = store.end();
        let keys: Vec<[u8; 4]> = (0..count).map(u32::to_le_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
        store.put_batch(&keys, &vec![b"v".to_vec(); keys.len()]);
        store.put(b"behind", b"value");
        let made = store.killed();
        let mut bytes = made.bytes.clone();
        for record in 0..count as usize {
            bytes[at + 16 + record * 16 + 8] ^= 0x10;
        }
        let db = HashDb::open_on(storage(&bytes, None), &made.options.opening).expect("it opens");
        let places = if count <= 64 { count } else { 1 };
        assert_eq!(db.damage().len(), places as usize, "{count} records");
    }
}

/// Puts, removals, batches, clears and checkpoints of few keys, short and long, with values of which many are long.
fn draw_long(random: &mut Random, seed: u64) -> (Made, usize) {
    let mut store = Putting::new(seed, *random.choose(&[64 << 10, 256 << 10, 1 << 20]));
    store.made.now.insert(b"never".to_vec(), None);
    let keys: Vec<Key> = (0..8)
        .map(|key| vec![b'a' + key; *random.choose(&[3, 8, 300, 2000])])
        .collect();
    store.put(&keys[0], b"first");
    let begin = store.end();
    for _ in 0..5 + random.index(30) {
        let key = random.choose(&keys).clone();
        let len = *random.choose(&[0, 5, 3000, 66_000, 90_000, 140_000]);
        let value = random.bytes(len);
        match random.below(12) {
            0..5 => store.put(&key, &value),
            5..8 => {
                store.db.remove(&key).expect("a removal");
                store.made.remember(key, None);
            }
            8..10 => {
                let other = keys.iter().find(|other| **other != key).expect("another");
                store.put_batch(&[&key, other], &[value, b"x".to_vec()]);
            }
            10 if random.one_in(3) => store.db.checkpoint().expect("a checkpoint"),
            _ if random.one_in(6) => {
                store.db.clear().expect("a clear");
                for key in &keys {
                    store.made.remember(key.clone(), None);
                }
            }
            _ => {}
        }
    }
    (store.killed(), begin)
}

/// Any bytes of such files are blanked or written over, or two bits of them are wrong.
#[test]
fn any_damage_of_files_of_long_records_is_an_error_or_costs_nothing() {
    let (mut tried, mut dear) = (0, 0);
    for seed in 0..share(300) {
        let seed = 0x4ead + round_seed() + seed;
        let mut random = Random::new(seed);
        let (made, begin) = draw_long(&mut random, seed);
        let end = made.bytes.iter().rposition(|byte| *byte != 0);
        let end = end.expect("a log").max(begin + 1);
        for _ in 0..4 {
            let mut bytes = made.bytes.clone();
            let len = *random.choose(&[2, 8, 64, 512, 4096, 8192]);
            let mut from = begin + random.index(end - begin + 1);
            if len >= 512 && random.one_in(2) {
                from &= !511;
            }
            let until = (from + len).min(bytes.len());
            let how = random.below(3);
            match how {
                0 => bytes[from..until].fill(0),
                1 => {
                    let other = random.bytes(until - from);
                    bytes[from..until].copy_from_slice(&other);
                }
                _ => {
                    bytes[from] ^= 1 << random.below(8);
                    bytes[until - 1] ^= 1 << random.below(8);
                }
            }
            let what = format!("{how}: {from:#x} to {until:#x} of {end:#x}");
            let _shown = case(seed, &what);
            let cost = cost(&made, &what, &bytes, None);
            dear += u64::from(cost.refused || cost.read_only);
            tried += 1;
        }
    }
    tried_at_least(tried, 1200, "damages of files of long records");
    demand(
        tried - dear,
        tried / 3,
        "of them that left the store writable",
    );
}

/// Any pages that were written after the last sync are on the device, and others are not. Then the machine is started again.
#[test]
fn a_power_cut_among_long_records_leaves_a_state_of_the_history() {
    type State = BTreeMap<Key, Vec<u8>>;
    let mut tried = 0;
    for seed in 0..share(100) {
        let seed = 0x90_3e7 + round_seed() + seed;
        let mut random = Random::new(seed);
        let mut store = Putting::new(seed, *random.choose(&[64 << 10, 256 << 10, 1 << 20]));
        let keys: Vec<Key> = (0..6)
            .map(|key| vec![b'a' + key; *random.choose(&[3, 300, 2000])])
            .collect();
        let state = |store: &Putting| -> State {
            let now = store.made.now.iter();
            now.filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
                .collect()
        };
        let (mut before, mut history) = (Vec::new(), Vec::new());
        let synced = random.index(10);
        for step in 0..=synced + random.index(12) {
            if step == synced {
                store.db.sync(Durability::Power).expect("a sync");
                before = store.memory.to_vec();
                history.push(state(&store));
            }
            let key = random.choose(&keys).clone();
            let len = *random.choose(&[5, 3000, 66_000, 90_000, 140_000]);
            let value = random.bytes(len);
            match random.below(8) {
                0..4 => store.put(&key, &value),
                4 => {
                    store.db.remove(&key).expect("a removal");
                    store.made.remember(key, None);
                }
                _ => {
                    let other = keys.iter().find(|other| **other != key).expect("another");
                    store.put_batch(&[&key, other], &[value, b"x".to_vec()]);
                }
            }
            if step >= synced {
                history.push(state(&store));
            }
        }
        let made = store.killed();
        // A checkpoint that came by itself has synced more.
        let is_as_synced = before[..2 * SLOT_SIZE as usize] == made.bytes[..2 * SLOT_SIZE as usize];
        for _ in 0..if is_as_synced { 4 } else { 0 } {
            let mut bytes = made.bytes.clone();
            let one_in = *random.choose(&[2, 5, 20]);
            for (page, bytes) in bytes.chunks_mut(4096).enumerate() {
                if random.one_in(one_in) {
                    let old = before.get(page * 4096..).unwrap_or_default();
                    let len = old.len().min(bytes.len());
                    bytes[..len].copy_from_slice(&old[..len]);
                    bytes[len..].fill(0);
                }
            }
            let _shown = case(seed, &one_in);
            let db = HashDb::open_on(later(&bytes), &made.options.opening).expect("it opens");
            let read = |key: &Key| Some((key.clone(), db.get(key).expect("it is read")?));
            let found: State = keys.iter().filter_map(read).collect();
            assert!(history.contains(&found), "no state of the history");
            assert!(db.damage().is_empty(), "{:?}", db.damage());
            tried += 1;
        }
    }
    tried_at_least(tried, 200, "power cuts among long records");
}
