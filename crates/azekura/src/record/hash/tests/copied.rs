//! What a reader of another process is shown is a copy; and what a copy of the file states that was made concurrently with a writer.
//!
//! The writer may reuse the segment at any moment, also after a frame was verified and before its key is used. Readers concurrent with
//! a writer are tried by `tests/conformance.rs`; here it is seen what one frame becomes.

use std::sync::Arc;

use super::*;
use crate::format::superblock::SLOT_SIZE;
use crate::io::over::Over;
use crate::log::Use;

/// Replay and following once lent the frames as they stood in the mapping, and took key and hash from there afterwards.
#[test]
fn a_frame_of_a_shared_log_does_not_change_while_it_is_used() {
    let (memory, db) = empty();
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
    let prior = with_live_writer(true);
    let mut shown = Vec::new();
    let found = db.log().recover(start, prior, &mut |address, frame| {
        // What another process would store there, and then what stood there: the walk continues.
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

type Hook = Box<dyn FnOnce() + Send>;

/// A storage that does something once, after the second slot of the superblock was written.
struct Hooked {
    memory: Arc<Memory>,
    hook: std::sync::Mutex<Option<Hook>>,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

impl Over for Hooked {
    fn below(&self) -> &dyn Storage {
        self.memory.as_ref()
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.memory.write_durably(offset, bytes)?;
        if offset == SLOT_SIZE
            && let Some(hook) = self.hook.lock().unwrap().take()
        {
            hook();
        }
        Ok(())
    }
}

/// The copy has the superblock of its checkpoint, and the log to a later end: writers open segments in between, whose sequences
/// the copy must not give again.
#[test]
fn a_copy_made_concurrently_with_a_writer_goes_on_with_new_sequences() {
    let memory = Memory::new(1 << 26).unwrap();
    let storage = Arc::new(Hooked {
        memory,
        hook: std::sync::Mutex::default(),
    });
    let db = Arc::new(HashDb::create_on(storage.clone(), &small()).unwrap());
    db.checkpoint().unwrap();
    db.put(b"before", b"value").unwrap();
    let writer = Arc::clone(&db);
    *storage.hook.lock().unwrap() = Some(Box::new(move || {
        put_each(&writer, 0..40u32, &[1; 400]);
    }));
    let copied = Memory::new(1 << 26).unwrap();
    db.core.copy_onto(copied.as_ref(), &mut |_, _| ()).unwrap();
    assert!(storage.hook.lock().unwrap().is_none());
    let before = db.log().segments().in_use(Use::Log).len();
    assert!(before > 4, "{before} segments");
    let copy = HashDb::open_on(copied.clone(), &small().opening).unwrap();
    assert_eq!(copy.count(), 41);
    put_each(&copy, 40..200u32, &[2; 400]);
    let sequences = |db: &HashDb| {
        let in_use = db.log().segments().in_use(Use::Log);
        let all: Vec<u64> = in_use.iter().map(|segment| segment.sequence).collect();
        (all.len(), all.into_iter().collect::<HashSet<u64>>().len())
    };
    let (segments, distinct) = sequences(&copy);
    assert_eq!(segments, distinct, "each sequence is of one segment");
    let killed = copied.to_vec();
    drop(copy);
    let copy = opened(&killed);
    assert_eq!(copy.count(), 201);
    for i in 0..200u32 {
        let value = copy.get(&i.to_le_bytes()).unwrap();
        assert_eq!(value, Some(vec![if i < 40 { 1 } else { 2 }; 400]));
    }
}

/// Once the copy was made and its name is durable, a power cut leaves all of it.
#[test]
fn a_copy_that_was_made_survives_loss_of_power() {
    let db = empty().1;
    put_each(&db, 0..100u32, &[1; 400]);
    let name = Path::new("copy.azh");
    let disk = SimDisk::new(7);
    let storage = disk.directory().create(name).unwrap();
    db.core.copy_onto(storage.as_ref(), &mut |_, _| ()).unwrap();
    disk.directory().sync().unwrap();
    let mut states = 0;
    for cut in disk.crash_states(disk.events(), &Limits::default()) {
        let storage = cut.directory().open(name, Access::Write).unwrap();
        let copy = HashDb::open_on(storage, &small().opening).unwrap();
        assert_eq!((copy.count(), copy.damage()), (100, Vec::new()));
        for i in 0..100u32 {
            let value = copy.get(&i.to_le_bytes()).unwrap();
            assert_eq!(value, Some(vec![1; 400]));
        }
        states += 1;
    }
    assert!(states > 0);
}
