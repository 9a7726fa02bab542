//! Per-object locks: changes of one object happen one after another, and a lock of a range excludes all of its ids.
//!
//! A lock is held over a device access, so a waiting thread parks. Locks of several ids are taken all at once: no thread holds one
//! and waits for another, so there is no deadlock.

use std::collections::HashSet;
use std::sync::Arc;

use crate::explore::{Condvar, Mutex};
use crate::object::id::ObjectId;

#[derive(Debug, Default)]
struct Held {
    ids: HashSet<ObjectId>,
    /// First and last id.
    ranges: Vec<(ObjectId, ObjectId)>,
}

impl Held {
    /// Whether any object from `first` to `last` is locked.
    fn meets(&self, first: ObjectId, last: ObjectId) -> bool {
        let is_id = if first == last {
            self.ids.contains(&first)
        } else {
            self.ids.iter().any(|id| (first..=last).contains(id))
        };
        let mut ranges = self.ranges.iter();
        is_id || ranges.any(|(from, to)| *from <= last && first <= *to)
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ObjectLocks {
    held: Mutex<Held>,
    ended: Condvar,
}

/// Locks of some objects; released when it is dropped, on any thread.
#[derive(Debug)]
pub(crate) struct ObjectGuard {
    locks: Arc<ObjectLocks>,
    ids: Vec<ObjectId>,
    range: Option<(ObjectId, ObjectId)>,
}

impl ObjectLocks {
    /// Locks all `ids` at once, each named once.
    pub(crate) fn lock_all(self: &Arc<Self>, ids: Vec<ObjectId>) -> ObjectGuard {
        self.lock_when_free(ids, None)
    }

    /// Locks one object.
    pub(crate) fn lock(self: &Arc<Self>, id: ObjectId) -> ObjectGuard {
        self.lock_all(vec![id])
    }

    /// Locks all objects from `first` to `last`.
    pub(crate) fn lock_range(self: &Arc<Self>, first: ObjectId, last: ObjectId) -> ObjectGuard {
        self.lock_when_free(Vec::new(), Some((first, last)))
    }

    fn lock_when_free(
        self: &Arc<Self>,
        ids: Vec<ObjectId>,
        range: Option<(ObjectId, ObjectId)>,
    ) -> ObjectGuard {
        let mut held = self.held.lock();
        while ids.iter().any(|id| held.meets(*id, *id))
            || range.is_some_and(|(first, last)| held.meets(first, last))
        {
            self.ended.wait(&mut held);
        }
        held.ids.extend(&ids);
        held.ranges.extend(range);
        let locks = Arc::clone(self);
        ObjectGuard { locks, ids, range }
    }
}

impl Drop for ObjectGuard {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock();
        for id in &self.ids {
            held.ids.remove(id);
        }
        if let Some(range) = self.range
            && let Some(at) = held.ranges.iter().position(|held| *held == range)
        {
            held.ranges.swap_remove(at);
        }
        drop(held);
        self.locks.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// The first that waits needs what is still held.
    #[test]
    fn the_end_of_a_lock_wakes_the_thread_that_waits_for_it() {
        let locks = Arc::new(ObjectLocks::default());
        let held = [1, 2].map(|id| locks.lock(ObjectId(id)));
        let (locked, order) = channel();
        for id in [1, 2] {
            let (locks, locked) = (Arc::clone(&locks), locked.clone());
            std::thread::spawn(move || {
                let _guard = locks.lock(ObjectId(id));
                locked.send(id).ok();
            });
            // So that it waits before the next one does.
            std::thread::sleep(Duration::from_millis(50));
        }
        let [first, second] = held;
        drop(second);
        assert_eq!(order.recv_timeout(Duration::from_secs(20)), Ok(2));
        drop(first);
        assert_eq!(order.recv_timeout(Duration::from_secs(20)), Ok(1));
    }

    #[test]
    fn nobody_is_inside_with_another_of_the_same_object_or_range() {
        let locks = Arc::new(ObjectLocks::default());
        let inside: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
        let work = |ids: &[u128]| {
            for id in ids {
                assert_eq!(inside[*id as usize].fetch_add(1, Ordering::SeqCst), 0);
            }
            std::thread::yield_now();
            for id in ids {
                inside[*id as usize].fetch_sub(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..4u128 {
                let (locks, work) = (&locks, &work);
                scope.spawn(move || {
                    for round in 0..500u128 {
                        let at = (round * 3 + thread) % 8;
                        match round % 3 {
                            0 => {
                                let _guard = locks.lock(ObjectId(at));
                                work(&[at]);
                            }
                            1 => {
                                let other = (at + 3) % 8;
                                let _guard = locks.lock_all(vec![ObjectId(at), ObjectId(other)]);
                                work(&[at, other]);
                            }
                            _ => {
                                let last = (at + 2).min(7);
                                let _guard = locks.lock_range(ObjectId(at), ObjectId(last));
                                work(&(at..=last).collect::<Vec<_>>());
                            }
                        }
                    }
                });
            }
        });
        assert!(locks.held.lock().ids.is_empty() && locks.held.lock().ranges.is_empty());
    }
}
