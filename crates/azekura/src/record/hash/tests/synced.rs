//! A storage that panics while it syncs.
//!
//! The log takes that for a sync that failed, and no thread waits for it for ever. Storages that answer with an error are
//! tried by `tests/faults.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use super::*;
use crate::io::over::Over;

/// A storage whose next sync panics, when another thread is about to wait for it.
#[derive(Debug)]
struct Panicking {
    below: Arc<Memory>,
    is_armed: AtomicBool,
    begun: Barrier,
}

impl Over for Panicking {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn sync(&self) -> Result<()> {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.begun.wait();
            panic!("the device's driver panics");
        }
        Ok(())
    }

    fn path(&self) -> &Path {
        self.below.path()
    }
}

#[test]
fn a_sync_that_panics_is_one_that_failed_and_others_do_not_wait_for_it() {
    let storage = Arc::new(Panicking {
        below: Memory::new(1 << 26).unwrap(),
        is_armed: AtomicBool::new(false),
        begun: Barrier::new(2),
    });
    let db = HashDb::create_on(Arc::clone(&storage) as Arc<dyn Storage>, &small()).unwrap();
    let db = Arc::new(db);
    db.put(b"key", b"value").unwrap();
    storage.is_armed.store(true, Ordering::SeqCst);
    // Without a deadline the test would hang where the others wait for ever.
    let (sender, ended) = mpsc::channel();
    for is_leader in [true, false] {
        let (db, storage, sender) = (Arc::clone(&db), Arc::clone(&storage), sender.clone());
        std::thread::spawn(move || {
            if !is_leader {
                storage.begun.wait();
            }
            let sync = || db.sync(Durability::Power).map_err(|error| error.kind());
            sender.send(catch_unwind(AssertUnwindSafe(sync)).ok()).ok();
        });
    }
    let within = Duration::from_secs(60);
    let mut ends = [0; 2].map(|_| ended.recv_timeout(within).expect("no sync waits for ever"));
    ends.sort_by_key(Option::is_some);
    assert_eq!(ends, [None, Some(Err(Kind::Poisoned))]);
    // What the device has is unknown: nothing is promised after that, and the next start knows of it.
    assert_eq!(
        db.sync(Durability::Power).unwrap_err().kind(),
        Kind::Poisoned
    );
    assert_eq!(db.put(b"key", b"other").unwrap_err().kind(), Kind::Poisoned);
    assert!(db.log().mark().unwrap().sync_failed);
}
