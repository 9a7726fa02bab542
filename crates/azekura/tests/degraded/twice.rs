//! Damage that meets a crash, or other damage: headers of segments that follow each other, a hole with a page that cannot be read,
//! the mark of what is durable, a bit after a power cut. Also bytes that are made to cost time.
//!
//! Most of them an attack found: an older value was answered without an error, or the file was refused. `ends` states what is
//! demanded.

use std::sync::Mutex;

use azekura::format::frame::INNER;
use azekura::log::layout::{SegmentHeader, segment_seed};
use azekura::testkit::suite::demand;
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Persistent as _};

use super::ends::{judge_all, judge_on};
use super::heads::{Later, Putting, head, later};
use super::*;

/// Offset of the mark of what is durable, and its bytes that state something.
const MARK: (usize, usize) = (8192, 20);

/// Fills segments of 16 KiB until the log is in that one.
fn fill(store: &mut Putting, segment: u32) {
    let mut n = 0u64;
    while store.db.log().end().segment() < segment {
        n += 1;
        store.put(&n.to_le_bytes(), &[n as u8; 300]);
    }
}

/// Where the segments of a file of 16 KiB segments begin, in the order of the log.
fn segments_of(made: &Made) -> Vec<usize> {
    let mut all: Vec<usize> = headers(&made.bytes, 16 << 10)
        .map(|at| at as usize)
        .collect();
    all.sort_by_key(|at| made.bytes[at + 8..at + 16].to_vec());
    all
}

/// Of the last segments the first sectors are lost, with headers and links: frames of theirs state which segments they are.
#[test]
fn the_first_sectors_of_the_last_segments_cost_what_stood_in_them() {
    for lost in 1..4 {
        for is_synced in [false, true] {
            let mut store = Putting::new(0, 16 << 10);
            for key in 0..8u8 {
                store.put(&[key], b"older");
            }
            fill(&mut store, 3);
            // One newest value in each of the last two, after the first sector.
            store.put(&[0], b"in the last but one");
            fill(&mut store, 4);
            store.put(b"filler", &[9; 1000]);
            store.put(&[1], b"in the last");
            if is_synced {
                store.db.sync(Durability::Power).expect("a sync");
            }
            let made = store.killed();
            let mut bytes = made.bytes.clone();
            let all = segments_of(&made);
            for at in &all[all.len() - lost..] {
                bytes[*at..at + 512].fill(0);
            }
            let what = format!("{lost} segments, synced {is_synced}");
            judge_all(&made, &what, &bytes);
            // What stands after those sectors is read, and repaired.
            let place = Repairs::new();
            place.repair(&bytes);
            let db = HashDb::open(&place.target, &made.options.opening).expect("it opens");
            let newest = db.get(&[1]).expect("it is read");
            assert_eq!(newest.as_deref(), Some(&b"in the last"[..]), "{what}");
            let db =
                HashDb::open_on(storage(&bytes, None), &made.options.opening).expect("it opens");
            let newest = db.get(&[1]).expect("it is read");
            assert_eq!(newest.as_deref(), Some(&b"in the last"[..]), "{what}");
        }
    }
}

/// Two headers are lost, that of the last segment, too, which has one large value.
#[test]
fn a_large_value_after_two_lost_headers_is_found() {
    let mut store = Putting::new(0, 16 << 10);
    store.put(b"large", b"older");
    fill(&mut store, 1);
    store.put(b"large", &Random::new(1).bytes(100_000));
    let made = store.killed();
    let all = segments_of(&made);
    let mut bytes = made.bytes.clone();
    for at in &all[all.len() - 2..] {
        bytes[*at..at + 32].fill(0);
    }
    judge_all(&made, "large", &bytes);
}

/// A link is blank, and nothing is left of the segment that it led to. The mark states that more was synced than is found.
#[test]
fn a_repair_doubts_what_may_have_changed_in_a_segment_of_which_nothing_is_left() {
    let mut store = Putting::new(0, 16 << 10);
    store.put(b"one", b"older");
    fill(&mut store, 2);
    store.put(b"one", b"newer");
    store.db.sync(Durability::Power).expect("a sync");
    let made = store.killed();
    let mut bytes = made.bytes.clone();
    let all = segments_of(&made);
    bytes[all[1] + 24..all[1] + 32].fill(0);
    bytes[all[2]..].fill(0);
    let place = Repairs::new();
    let report = place.repair(&bytes);
    let doubted = report.doubted.iter().any(|of| of.key == b"one");
    assert!(doubted, "{report:?}");
}

/// A thread died before it published, and a page after its hole cannot be read: what stood in it was acknowledged.
#[test]
fn a_hole_does_not_take_a_page_that_cannot_be_read() {
    for is_followed in [false, true] {
        let mut store = Putting::new(0, 1 << 20);
        store.put(b"one", b"older");
        while store.end() % 4096 < 3000 {
            store.put(b"filler", &[1; 100]);
        }
        let hole = store.end();
        store.db.put(b"died", &[7; 400]).expect("a put");
        while store.end() % 4096 > 3000 {
            // It died, too: up to the page that follows nothing was published.
            store.db.put(b"died", &[7; 100]).expect("a put");
        }
        let page = store.end() & !4095;
        let died = store.end();
        store.put(b"one", b"newer");
        if is_followed {
            store.put(b"filler", &[2; 5000]);
            store.put(b"behind", b"x");
        }
        let made = store.killed();
        let mut bytes = made.bytes.clone();
        let mut at = hole;
        // All that died is unpublished.
        while at < died {
            let len = (bytes[at + 6] as usize | (bytes[at + 7] as usize) << 8) + 8 + 4;
            bytes[at..at + 8].fill(0);
            at += len.next_multiple_of(8);
        }
        let unreadable = Some((page as u64, page as u64 + 4096));
        let what = format!("followed {is_followed}");
        let cost = cost(&made, &what, &bytes, unreadable);
        assert!(cost.failed.contains(b"one".as_slice()), "{what}: {cost:?}");
    }
}

/// A thread died, and the last record has one wrong bit; its value ends with zeros, so it is longer than what is seen of it.
#[test]
fn a_hole_does_not_take_a_last_record_that_ends_with_zeros() {
    for value in [
        &[5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &[0; 40],
    ] {
        let mut store = Putting::new(0, 1 << 20);
        store.put(b"counter", b"older");
        let hole = store.end();
        store.db.put(b"died", &[7; 500]).expect("a put");
        let at = store.end();
        store.put(b"counter", value);
        let made = store.killed();
        for bit in [0, 3, 8 * 9] {
            let mut bytes = made.bytes.clone();
            bytes[hole..hole + 8].fill(0);
            bytes[at + bit / 8] ^= 1 << (bit % 8);
            judge_all(&made, &format!("bit {bit}"), &bytes);
        }
    }
}

/// A thread died within its value, and what it wrote last reads like a frame that anything may end, but for the bit that it had not
/// written: it is none. Such bytes come by chance, where a frame may end at any of thousands of places.
#[test]
fn what_was_written_in_part_is_no_frame_for_the_zeros_after_it() {
    for len in [20, 90, 700] {
        let mut store = Putting::new(0, 1 << 20);
        store.put(b"counter", b"older");
        let hole = store.end();
        store.db.put(b"died", &[7; 500]).expect("a put");
        let at = store.end();
        let mut value = vec![0; len];
        value[..10].copy_from_slice(b"its value\x01");
        store.db.put(b"in its value", &value).expect("a put");
        let made = store.killed();
        let mut bytes = made.bytes.clone();
        bytes[hole..hole + 8].fill(0);
        let last = (at..bytes.len()).rev().find(|at| bytes[*at] != 0);
        bytes[last.expect("a byte that is set")] = 0;
        let memory = Memory::from_bytes(&bytes, ROOM).expect("memory");
        let db = HashDb::open_on(memory, &made.options.opening).expect("it opens");
        assert!(db.damage().is_empty(), "{len}: {:?}", db.damage());
        assert_eq!(
            db.get(b"counter").expect("a get").as_deref(),
            Some(&b"older"[..])
        );
        db.put(b"counter", b"newer").expect("a put");
    }
}

/// Each bit of the mark, next to a synced record that was overwritten with zeros: there was no end.
#[test]
fn a_bit_of_the_mark_does_not_forget_what_was_synced() {
    let mut store = Putting::new(0, 1 << 20);
    store.put(b"one", b"older");
    let at = store.end();
    store.put(b"one", b"newer");
    store.db.sync(Durability::Power).expect("a sync");
    let made = store.killed();
    for bit in 0..8 * MARK.1 {
        let mut bytes = made.bytes.clone();
        bytes[MARK.0 + bit / 8] ^= 1 << (bit % 8);
        let what = format!("bit {bit} of the mark");
        let cost_of_it = cost(&made, &what, &bytes, None);
        assert!(cost_of_it.keys == 0 && !cost_of_it.read_only, "{what}");
        bytes[at..at + 64].fill(0);
        judge_on(&made, &what, &bytes, &|| later(&bytes));
    }
}

/// The power goes after a sync whose mark is not stored yet, and one bit of what it made durable rots.
#[test]
fn a_bit_after_a_power_cut_does_not_end_the_log() {
    for len in [20, 3000, 70_000, 140_000, 500_000] {
        for is_last in [false, true] {
            let mut store = Putting::new(0, 1 << 20);
            store.put(b"one", b"older");
            store.put(b"two", b"older");
            store.db.sync(Durability::Power).expect("a sync");
            let mark = store.memory.to_vec()[MARK.0..MARK.0 + 24].to_vec();
            let at = store.end();
            store.put(b"one", &Random::new(1).bytes(len));
            if !is_last {
                store.put(b"two", b"newer");
            }
            store.db.sync(Durability::Power).expect("a sync");
            let len = store.end() - at;
            let made = store.killed();
            for bit in [3, 40, 8 * 12 + 1, 8 * (len / 2) + 5] {
                let mut bytes = made.bytes.clone();
                bytes[MARK.0..MARK.0 + 24].copy_from_slice(&mark);
                bytes[at + bit / 8] ^= 1 << (bit % 8);
                let what = format!("bit {bit} of {len} bytes, last {is_last}");
                judge_on(&made, &what, &bytes, &|| later(&bytes));
                let memory = Memory::from_bytes(&bytes, ROOM).expect("memory");
                let db = HashDb::open_on(Arc::new(Later(memory)), &made.options.opening);
                let db = db.expect("it opens");
                assert_eq!(db.damage().len(), 1, "{what}: {:?}", db.damage());
            }
        }
    }
}

/// A recovery dropped a segment whose header the power cut took, and nothing was appended since. Then the header and the link of the
/// segment before it are lost.
#[test]
fn a_repair_brings_back_nothing_that_a_recovery_dropped_for_its_frames_alone() {
    for is_closed in [false, true] {
        let mut store = Putting::new(0, 16 << 10);
        store.put(b"put", b"kept");
        fill(&mut store, 1);
        store.db.sync(Durability::Power).expect("a sync");
        while store.db.log().end().segment() < 2 {
            store.db.put(b"filler", &[1; 100]).expect("a put");
        }
        store.db.put(b"filler", &[1; 1000]).expect("a put");
        store.db.put(b"put", b"dropped").expect("a put");
        let made = store.killed();
        let all = segments_of(&made);
        let mut bytes = made.bytes.clone();
        bytes[all[2]..all[2] + 512].fill(0);
        let second = Memory::from_bytes(&bytes, ROOM).expect("memory");
        let on = Arc::new(Later(Arc::clone(&second)));
        let db = HashDb::open_on(on, &made.options.opening).expect("it opens");
        assert_eq!(db.get(b"put").expect("read").as_deref(), Some(&b"kept"[..]));
        let mut bytes = second.to_vec();
        if is_closed {
            db.close().expect("it closes");
            bytes = second.to_vec();
        }
        bytes[all[1]..all[1] + 32].fill(0);
        let place = Repairs::new();
        let report = place.repair(&bytes);
        let db = HashDb::open(&place.target, &made.options.opening).expect("it opens");
        let found = db.get(b"put").expect("it is read");
        let is_doubted = report.doubted.iter().any(|of| of.key == b"put");
        assert!(
            is_doubted || found.as_deref() == Some(&b"kept"[..]),
            "closed {is_closed}: {found:?}, {report:?}"
        );
    }
}

/// A thread died whose frame ends with the segment, and the file with both.
#[test]
fn a_hole_up_to_the_end_of_the_file_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, copy) = (folder.path().join("a.azh"), folder.path().join("b.azh"));
    let options = of_segments(16 << 10);
    let db = HashDb::create(&path, &options).expect("a store");
    let end = || db.log().end().offset().unwrap_or_default() as usize;
    db.put(b"one", b"value").expect("a put");
    while end() < 15_000 {
        db.put(b"filler", &[1; 100]).expect("a put");
    }
    let at = end();
    let left = (16 << 10) - at;
    db.put(b"died", &vec![7; left - 8 - 4]).expect("a put");
    assert_eq!(db.log().end().segment(), 0);
    let mut bytes = std::fs::read(&path).expect("the file");
    bytes[16_384 + at..16_384 + at + 8].fill(0);
    bytes.truncate(2 * (16 << 10));
    std::fs::write(&copy, &bytes).expect("a file");
    let db = HashDb::open(&copy, &options.opening).expect("it opens");
    assert!(db.damage().is_empty(), "{:?}", db.damage());
    assert!(!db.log().map().has_unreadable());
    let one = db.get(b"one").expect("it is read");
    assert_eq!(one.as_deref(), Some(&b"value"[..]));
    db.put(b"two", b"value").expect("a put");
}

/// Every third record has one wrong bit, and a hole after it: what stands before each is looked at once.
#[test]
fn damage_before_each_of_many_holes_does_not_exhaust_time() {
    let mut store = Putting::new(0, 1 << 20);
    let mut places = Vec::new();
    for n in 0..5000u32 {
        places.push(store.end());
        store.put(&n.to_le_bytes(), b"damaged it is");
        places.push(store.end());
        store.db.put(b"died", b"").expect("a put");
        store.put(&(n + 5000).to_le_bytes(), b"fine");
    }
    let made = store.killed();
    let mut bytes = made.bytes.clone();
    for at in places.chunks(2) {
        bytes[at[0] + 12] ^= 1;
        bytes[at[1]..at[1] + 16].fill(0);
    }
    let db = HashDb::open_on(storage(&bytes, None), &made.options.opening).expect("it opens");
    assert_eq!(db.damage().len(), 5000);
    assert_eq!(judge(&made, "holes", &db), 5000);
}

/// A power cut that is no damage: of a value that was never synced a sector is not written of which one bit would be set.
#[test]
fn what_was_written_in_part_is_no_wrong_bit() {
    for (len, bit_at, set_last) in [
        (12_000, 6000, true),
        (12_000, 11_000, false),
        (300, 250, false),
    ] {
        for is_last in [false, true] {
            let mut store = Putting::new(0, 1 << 20);
            store.put(b"one", b"older");
            store.put(b"two", b"older");
            store.db.sync(Durability::Power).expect("a sync");
            let at = store.end();
            let mut value = vec![0; len];
            value[bit_at] = 1;
            if set_last {
                value[len - 1] = 0xff;
            }
            store.put(b"one", &value);
            if !is_last {
                store.put(b"two", &[7; 2000]);
            }
            let made = store.killed();
            let begin = made.bytes[at..].iter().position(|byte| *byte == b'o');
            let bit = at + begin.expect("the key") + 3 + bit_at;
            assert_eq!(made.bytes[bit], 1);
            // Lines are lost, too.
            for grain in [64, 512] {
                let mut bytes = made.bytes.clone();
                let from = bit & !(grain - 1);
                let has_more =
                    from < at || bytes[from..from + grain].iter().filter(|b| **b > 0).count() > 1;
                if has_more {
                    continue;
                }
                bytes[from..from + grain].fill(0);
                let db = HashDb::open_on(later(&bytes), &made.options.opening).expect("it opens");
                let what = format!("{len} bytes, {grain} lost, last {is_last}");
                assert_eq!(db.damage().len(), 0, "{what}: {:?}", db.damage());
                let one = db.get(b"one").expect("a power cut is no damage");
                assert_eq!(one.as_deref(), Some(&b"older"[..]), "{what}");
            }
        }
    }
}

/// A frame of which one bit is wrong, past the end of a log that was closed: nothing was published there.
#[test]
fn a_wrong_bit_after_a_close_is_not_asked_after_a_power_cut() {
    let mut store = Putting::new(0, 1 << 20);
    store.put(b"one", b"kept");
    let at = store.end();
    store.db.put(b"one", &[3; 100]).expect("a put");
    let end = store.end();
    let after = store.memory.to_vec()[at..end].to_vec();
    let (mut made, memory, db) = Made::begin(0, of_segments(1 << 20));
    db.put(b"one", b"kept").expect("a put");
    db.close().expect("it closes");
    made.remember(b"one".to_vec(), Some(b"kept".to_vec()));
    let mut bytes = memory.to_vec();
    if bytes.len() < end {
        bytes.resize(end.next_multiple_of(4096), 0);
    }
    bytes[at..end].copy_from_slice(&after);
    bytes[at + 20] ^= 4;
    let db = HashDb::open_on(later(&bytes), &made.options.opening).expect("it opens");
    assert_eq!(db.damage().len(), 0, "{:?}", db.damage());
    judge(&made, "closed", &db);
}

/// After a power cut a batch of one wrong bit is followed by what was written in part, so the log ends with it. Of that recovery the
/// blank room is written, and not the end: the next one comes to the same end.
#[test]
fn a_recovery_that_is_cut_after_a_wrong_bit_comes_to_the_same_end() {
    #[derive(Debug)]
    struct Third(Arc<Memory>);

    impl Over for Third {
        fn below(&self) -> &dyn Storage {
            self.0.as_ref()
        }

        fn boot_id(&self) -> [u8; 16] {
            [3; 16]
        }
    }

    /// What is written durably, too.
    #[derive(Debug)]
    struct Written(Arc<Memory>, Mutex<Vec<(u64, Vec<u8>)>>);

    impl Over for Written {
        fn below(&self) -> &dyn Storage {
            self.0.as_ref()
        }

        fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            let mut all = self.1.lock().expect("no panic");
            all.push((offset, bytes.to_vec()));
            self.0.write_durably(offset, bytes)
        }

        fn boot_id(&self) -> [u8; 16] {
            [2; 16]
        }
    }

    let mut store = Putting::new(0, 1 << 20);
    for key in [&b"a"[..], b"b"] {
        store.put(key, b"older");
    }
    store.db.sync(Durability::Power).expect("a sync");
    let at = store.end();
    store.put_batch(&[b"a", b"b"], &[vec![3; 3000], vec![5; 3000]]);
    let after = store.end();
    store.put(b"torn", &Random::new(1).bytes(9000));
    let made = store.killed();
    let mut first = made.bytes.clone();
    first[at + 1000] ^= 4;
    let sector = (after + 3000) & !511;
    first[sector..sector + 512].fill(0);
    let second = Memory::from_bytes(&first, ROOM).expect("memory");
    let durable = Arc::new(Written(Arc::clone(&second), Mutex::default()));
    let on = Arc::clone(&durable) as Arc<dyn Storage>;
    let db = HashDb::open_on(on, &made.options.opening).expect("it opens");
    let lengths =
        |db: &HashDb| [&b"a"[..], b"b"].map(|key| db.get(key).map(|of| of.map(|of| of.len())).ok());
    let found = lengths(&db);
    // What was not waited for is written, but for the pages up to the one where the log ends.
    let mut bytes = second.to_vec();
    let from = at & !4095;
    bytes[from..after].copy_from_slice(&first[from..after]);
    for (offset, written) in durable.1.lock().expect("no panic").iter() {
        let at = *offset as usize;
        bytes[at..at + written.len()].copy_from_slice(written);
    }
    let third = Memory::from_bytes(&bytes, ROOM).expect("memory");
    let db = HashDb::open_on(Arc::new(Third(third)), &made.options.opening).expect("it opens");
    assert_eq!(lengths(&db), found);
}

/// The header of a segment is lost, and its first frame states a wrong length.
#[test]
fn a_lost_header_before_a_wrong_length_does_not_refuse_the_file() {
    for len in [20, 300, 9000, 20_000] {
        for byte in [5, 6, 7, 12, 15] {
            let mut store = Putting::new(0, 16 << 10);
            store.put(b"one", b"older");
            fill(&mut store, 1);
            store.db.checkpoint().expect("a checkpoint");
            let from = store.db.log().end().segment();
            fill(&mut store, from + 1);
            store.put(b"one", &Random::new(1).bytes(len));
            fill(&mut store, from + 4);
            let made = store.killed();
            for at in segments_of(&made) {
                let mut bytes = made.bytes.clone();
                bytes[at..at + 24].fill(0);
                bytes[at + 64 + byte] ^= 0xff;
                let what = format!("{len} bytes, byte {byte} of segment {at:#x}");
                judge_all(&made, &what, &bytes);
            }
        }
    }
}

/// A large value has its segments for itself; its header alone is lost.
#[test]
fn a_repair_has_a_large_value_whose_segment_lost_its_header() {
    for (key, len) in [(&b"large"[..], 100_000), (b"short form", 15_000)] {
        let mut store = Putting::new(0, 16 << 10);
        store.put(b"one", b"value");
        let value = Random::new(1).bytes(len);
        store.put(key, &value);
        store.put(b"behind", b"x");
        let made = store.killed();
        let at = segments_of(&made)[1];
        let mut bytes = made.bytes.clone();
        bytes[at..at + 24].fill(0);
        let place = Repairs::new();
        let report = place.repair(&bytes);
        let db = HashDb::open(&place.target, &made.options.opening).expect("it opens");
        let found = db.get(key).expect("it is read");
        assert!(found.as_ref() == Some(&value), "{len}: {report:?}");
    }
}

/// Of each place the next frame is found that a search finds which sums each word anew; also parts of batches are none.
#[test]
fn the_next_frame_is_the_first_that_verifies_whatever_lengths_the_words_before_it_state() {
    let mut random = Random::new(round_seed());
    let mut tried = 0;
    for file in 0..4 {
        let mut store = Putting::new(file, 1 << 20);
        while store.end() < 300_000 {
            let len = *random.choose(&[0, 8, 40, 600, 5000, 66_000]);
            let value = random.bytes(len);
            match random.below(3) {
                0 => store.put_batch(&[b"one", b"two"], &[value.clone(), value]),
                _ => store.put(b"one", &value),
            }
        }
        let made = store.killed();
        let db =
            HashDb::open_on(storage(&made.bytes, None), &made.options.opening).expect("it opens");
        let (log, mut buf) = (db.log(), Vec::new());
        let index = log.end().segment();
        for _ in 0..40 {
            let from = 64 + 8 * random.below(300_000 / 8) as u32;
            let naive = (from + 8..1 << 20).step_by(8).find(|at| {
                let frame = log.copy_frame(log.address(index, *at), &mut buf);
                frame.is_ok_and(|frame| !frame.has(INNER))
            });
            assert_eq!(
                log.resume_after(index, from),
                naive,
                "file {file}, {from:#x}"
            );
            tried += u64::from(naive.is_some());
        }
    }
    demand(tried, 100, "places before a frame");
}

/// A put that was killed leaves a value of 1 MB whose words read like heads of frames, each of them long: a search that sums each
/// anew takes minutes.
#[test]
fn words_that_read_like_heads_in_a_hole_do_not_exhaust_time() {
    const PUT_LONG: u32 = 1 | 1 << 4;
    let mut store = Putting::new(0, 4 << 20);
    store.put(b"one", b"value");
    let hole = store.end();
    store.db.put(b"died", &vec![1; 1_900_000]).expect("a put");
    let end = store.end();
    store.put(b"behind", b"newest");
    let geometry = store.db.log().geometry();
    let begin = geometry.offset_of(store.db.log().end().segment()) as usize;
    let made = store.killed();
    let mut bytes = made.bytes.clone();
    let header = SegmentHeader::decode(&bytes[begin..begin + 64], geometry.salt);
    let seed = segment_seed(geometry.salt, header.expect("a header").sequence);
    // Words that are a first and a second one at once: `head` in turn states how long the next is.
    for at in (hole + 16..end - 16).step_by(16) {
        let len = (end - at - 24) as u32;
        let place = ((at - begin) / 8) as u32;
        bytes[at..at + 16].copy_from_slice(&head(seed, place, PUT_LONG, (4, len)));
    }
    bytes[hole..hole + 8].fill(0);
    judge_all(&made, "heads", &bytes);
    let db = HashDb::open_on(storage(&bytes, None), &made.options.opening).expect("it opens");
    assert_eq!(db.damage().len(), 0, "{:?}", db.damage());
}
