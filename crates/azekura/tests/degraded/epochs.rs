//! Headers and links of segments in files that were killed, opened, written to and killed again, with no checkpoint between.
//!
//! Each recovery ends the log within a segment, and continues in another one under a new epoch, so that the log is walked over the
//! ends of several processes. Values longer than a segment lie among short ones, in room that was used before: what follows a
//! segment may lie before it in the file. Then one header is lost, or a header with the link next to it.

use std::sync::Arc;

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::suite::{demand, third};
use azekura::testkit::{Random, round_seed, tried};

use super::{Made, ROOM, Repairs, cost, headers, judge};

/// A segment of the log, where it begins and what its header states.
#[derive(Clone, Copy, Debug)]
struct Segment {
    at: u64,
    sequence: u64,
}

impl Segment {
    fn epoch(&self) -> u64 {
        self.sequence >> 32
    }
}

/// A file, and the segments that an open walks, from the first to the last.
fn killed_often(seed: u64) -> (Made, Vec<Segment>) {
    let mut random = Random::new(seed);
    let options = CreateOptions::new()
        .segment_size(*random.choose(&[4096, 16 << 10, 64 << 10]))
        .background(false)
        .capacity(ROOM);
    let size = options.segment_size;
    let (mut made, mut memory, mut db) = Made::begin(seed, options.clone());
    let open = |memory: &Arc<Memory>| {
        HashDb::open_on(Arc::clone(memory) as Arc<dyn Storage>, &options.opening).expect("it opens")
    };
    let put = |made: &mut Made, db: &HashDb, random: &mut Random| {
        let key = format!("key-{}", random.below(60)).into_bytes();
        if random.one_in(8) {
            db.remove(&key).expect("a removal");
            made.remember(key, None);
            return;
        }
        let len = if random.one_in(12) {
            size as usize + random.index(2 * size as usize)
        } else {
            random.index(size as usize / 8)
        };
        let value = random.bytes(len);
        db.put(&key, &value).expect("a put");
        made.remember(key, Some(value));
    };
    // Room that is free again, with records between.
    for _ in 0..200 {
        put(&mut made, &db, &mut random);
    }
    for _ in 0..20 {
        db.maintain().expect("a step of upkeep");
    }
    db.checkpoint().expect("a checkpoint");
    let first = db.log().end().sequence();
    // Few enough segments that no checkpoint is due.
    for process in 0..2 + random.below(2) {
        if process > 0 {
            memory = Memory::from_bytes(&memory.to_vec(), ROOM).expect("memory");
            db = open(&memory);
            made.kills += 1;
        }
        let most = db.log().appended() + (2 + random.below(4)) * size;
        while db.log().appended() < most {
            put(&mut made, &db, &mut random);
        }
    }
    made.bytes = memory.to_vec();
    drop(db);
    let mut walked: Vec<Segment> = headers(&made.bytes, size)
        .map(|at| {
            let header = &made.bytes[at as usize..at as usize + 24];
            let sequence = u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"));
            Segment { at, sequence }
        })
        .filter(|segment| segment.sequence >= first)
        .collect();
    walked.sort_by_key(|segment| segment.sequence);
    (made, walked)
}

/// How a header is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// One bit of it is wrong.
    Bit,
    /// All but the link is.
    Header,
    /// The link, too.
    HeaderAndLink,
}

/// The sequence that a header states is known from the link that leads to it, also where that is the first segment after a
/// recovery. The link that was lost with it is known from the other headers, if no recovery came since.
#[test]
fn a_lost_header_costs_nothing_where_the_log_goes_on_after_a_recovery() {
    let files = third(60);
    let (mut cases, mut first_of_epoch, mut backward, mut unknown) = (0, 0, 0, 0);
    for file in 0..files {
        let seed = 0xe9_0c + round_seed() + file;
        let (made, walked) = killed_often(seed);
        let mut random = Random::new(!seed);
        let newest = walked.last().expect("a segment").epoch();
        for (number, segment) in walked.iter().enumerate() {
            for loss in [Loss::Bit, Loss::Header, Loss::HeaderAndLink] {
                let mut bytes = made.bytes.clone();
                let at = segment.at as usize;
                match loss {
                    Loss::Bit => bytes[at + random.index(24)] ^= 1 << random.below(8),
                    Loss::Header => bytes[at..at + 24].copy_from_slice(&random.bytes(24)),
                    Loss::HeaderAndLink => bytes[at..at + 64].fill(0),
                }
                let what = format!("{loss:?} of {segment:x?}, {number} of {walked:x?}");
                let cost = cost(&made, &what, &bytes, None);
                assert!(!cost.refused, "seed {seed}, {what}");
                cases += 1;
                let is_last = number + 1 == walked.len();
                let is_known = loss != Loss::HeaderAndLink || segment.epoch() == newest;
                let is_free_of_cost = cost.keys == 0 && !cost.read_only;
                assert!(
                    is_free_of_cost || !is_known,
                    "seed {seed}, {what}: {cost:?}, last {is_last}"
                );
                unknown += u64::from(!is_free_of_cost);
                let before = number.checked_sub(1).map(|before| walked[before]);
                if before.is_some_and(|before| before.epoch() < segment.epoch()) {
                    first_of_epoch += 1;
                }
                let after = walked.get(number + 1..).unwrap_or_default();
                if after.windows(2).any(|two| two[1].at < two[0].at) {
                    backward += 1;
                }
            }
        }
    }
    tried(&format!(
        "{cases} lost headers of {files} files, {unknown} of which cost something"
    ));
    demand(cases, files * 18, "lost headers");
    demand(
        first_of_epoch,
        files * 4,
        "of them of the first segment after a recovery",
    );
    demand(
        backward,
        files * 4,
        "of them before segments that lie in another order",
    );
}

/// A header states what its segment is, and a link alone which one follows, but one wrong bit of them is known by a checksum.
#[test]
fn a_repair_after_one_wrong_bit_of_any_header_or_link_loses_and_doubts_nothing() {
    let files = third(30);
    let place = Repairs::new();
    let mut cases = 0;
    for file in 0..files {
        let seed = 0x11_4b + round_seed() + file;
        let (made, walked) = killed_often(seed);
        let mut random = Random::new(!seed);
        for segment in &walked {
            let mut bytes = made.bytes.clone();
            bytes[segment.at as usize + random.index(32)] ^= 1 << random.below(8);
            let report = place.repair(&bytes);
            let what = format!("seed {seed}, {segment:x?} of {walked:x?}");
            assert_eq!(
                (report.doubtful, report.losses),
                (0, 0),
                "{what}: {report:?}"
            );
            let db = HashDb::open(&place.target, &made.options.opening)
                .expect("what was repaired opens");
            assert_eq!(judge(&made, &what, &db), 0);
            cases += 1;
        }
    }
    demand(
        cases,
        files * 6,
        "headers and links of which one bit is wrong",
    );
}
