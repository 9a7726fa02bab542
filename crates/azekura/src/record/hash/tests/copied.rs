//! What a reader of another process is shown is a copy.
//!
//! The writer may reuse the segment at any moment, also after a frame was verified and before its key is used. Readers beside
//! a writer are tried by `tests/conformance.rs`; here it is seen what one frame becomes.

use super::*;
use crate::log::LogPosition;
use crate::log::recover::Trust;

/// Replay and following once lent the frames as they stood in the mapping, and took key and hash from there afterwards.
#[test]
fn a_frame_of_a_shared_log_does_not_change_while_it_is_used() {
    let memory = Memory::new(1 << 26).unwrap();
    let db = HashDb::create_on(memory.clone(), &small()).unwrap();
    let start = db.log().end();
    // A record alone, and two of a batch.
    db.put(b"one", &[1; 100]).unwrap();
    db.update_many(&[b"two", b"ten"], &mut |_| {
        vec![
            Edit::Put(vec![2; 100].into()),
            Edit::Put(vec![10; 100].into()),
        ]
    })
    .unwrap();
    let bytes = memory.to_vec();
    let trust = Trust {
        trusted: true,
        durable: LogPosition::default(),
        live: true,
        shared: true,
        epoch: 1,
    };
    let mut shown = Vec::new();
    let found = db.log().recover(start, trust, &mut |address, frame| {
        // What another process would store there, and then what stood there: the walk goes on.
        let (at, len) = (address.offset(), frame.len());
        memory.write_at(at, &vec![0xee; len]).unwrap();
        shown.push((frame.key.to_vec(), frame.value.to_vec()));
        let before = &bytes[at as usize..at as usize + len];
        memory.write_at(at, before).unwrap();
        Ok(())
    });
    assert_eq!(found.unwrap().end, db.log().end());
    let wanted = [
        (b"one".to_vec(), vec![1; 100]),
        (b"two".to_vec(), vec![2; 100]),
        (b"ten".to_vec(), vec![10; 100]),
    ];
    assert_eq!(shown, wanted);
}
