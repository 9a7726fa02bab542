//! How much memory the hash engine's index takes, while it grows and when it has grown.
//!
//! One test alone in its process: room that was given up is used again once no thread looks at it any
//! more, so other tests' threads would decide the figure. Sizes of the log are tested next to the engine.

use azekura::engine::Reader;
use azekura::io::memory::Memory;
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::suite::demand;

const RECORDS: u64 = 1_000_000;
/// Bytes per record, at any moment while it grows.
const GROWING_MAX: f64 = 18.0;
/// Bytes per record of a million.
const GROWN_MAX: f64 = 15.0;

#[test]
fn the_index_stays_dense_while_a_million_records_come() {
    let capacity = 1 << 28;
    let options = CreateOptions::new().background(false).capacity(capacity);
    let memory = Memory::new(capacity).expect("memory");
    let db = HashDb::create_on(memory, &options).expect("a new store");
    let (mut most, mut looks) = (0.0_f64, 0);
    for count in 1..=RECORDS {
        db.put(&count.to_le_bytes(), b"").expect("a put");
        if count > 50_000 && count % 10_000 == 0 {
            let per_record = db.stats().memory_bytes as f64 / count as f64;
            assert!(per_record < GROWING_MAX, "{per_record} bytes of {count}");
            most = most.max(per_record);
            looks += 1;
        }
    }
    let grown = db.stats().memory_bytes as f64 / RECORDS as f64;
    assert!(grown < GROWN_MAX, "{grown} bytes per record");
    let what = format!(
        "looks while {RECORDS} records came: at most {most:.1} bytes each, {grown:.1} then"
    );
    demand(looks, 95, &what);
}
