//! Whose turn it is: changes of one object come one after another, and a range waits for all in it.
//!
//! A turn is held over a device access, so who waits parks. Turns of several ids are taken all at once: nobody holds one
//! and waits for another, so there is no circle of waiting.
//!
//! It knows ids only.

use std::collections::HashSet;
use std::sync::Arc;

use crate::object::id::ObjectId;
use crate::weave::{Condvar, Mutex};

#[derive(Debug, Default)]
struct Taken {
    ids: HashSet<ObjectId>,
    /// First and last id.
    ranges: Vec<(ObjectId, ObjectId)>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    taken: Mutex<Taken>,
    ended: Condvar,
}

/// The turn of some objects; ends when it is dropped. It may go to another thread.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    ids: Vec<ObjectId>,
    range: Option<(ObjectId, ObjectId)>,
}

impl Turns {
    /// Waits for the turn of all `ids` at once, each named once.
    pub(crate) fn take(self: &Arc<Self>, ids: Vec<ObjectId>) -> Turn {
        let mut taken = self.taken.lock();
        let blocked = |taken: &Taken| {
            ids.iter().any(|id| {
                let within = |(first, last): &(ObjectId, ObjectId)| (*first..=*last).contains(id);
                taken.ids.contains(id) || taken.ranges.iter().any(within)
            })
        };
        while blocked(&taken) {
            self.ended.wait(&mut taken);
        }
        taken.ids.extend(&ids);
        Turn {
            turns: Arc::clone(self),
            ids,
            range: None,
        }
    }

    /// Waits for the turn of one object.
    pub(crate) fn take_one(self: &Arc<Self>, id: ObjectId) -> Turn {
        self.take(vec![id])
    }

    /// Waits for the turn of all objects from `first` to `last`.
    pub(crate) fn take_range(self: &Arc<Self>, first: ObjectId, last: ObjectId) -> Turn {
        let mut taken = self.taken.lock();
        let blocked = |taken: &Taken| {
            let meets = |(from, to): &(ObjectId, ObjectId)| *from <= last && first <= *to;
            taken.ids.iter().any(|id| (first..=last).contains(id)) || taken.ranges.iter().any(meets)
        };
        while blocked(&taken) {
            self.ended.wait(&mut taken);
        }
        taken.ranges.push((first, last));
        Turn {
            turns: Arc::clone(self),
            ids: Vec::new(),
            range: Some((first, last)),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut taken = self.turns.taken.lock();
        for id in &self.ids {
            taken.ids.remove(id);
        }
        if let Some(range) = self.range
            && let Some(at) = taken.ranges.iter().position(|taken| *taken == range)
        {
            taken.ranges.swap_remove(at);
        }
        drop(taken);
        self.turns.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn nobody_is_inside_with_another_of_the_same_object_or_range() {
        let turns = Arc::new(Turns::default());
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
                let (turns, work) = (&turns, &work);
                scope.spawn(move || {
                    for round in 0..500u128 {
                        let at = (round * 3 + thread) % 8;
                        match round % 3 {
                            0 => {
                                let _turn = turns.take_one(ObjectId(at));
                                work(&[at]);
                            }
                            1 => {
                                let other = (at + 3) % 8;
                                let _turn = turns.take(vec![ObjectId(at), ObjectId(other)]);
                                work(&[at, other]);
                            }
                            _ => {
                                let last = (at + 2).min(7);
                                let _turn = turns.take_range(ObjectId(at), ObjectId(last));
                                work(&(at..=last).collect::<Vec<_>>());
                            }
                        }
                    }
                });
            }
        });
        assert!(turns.taken.lock().ids.is_empty() && turns.taken.lock().ranges.is_empty());
    }
}
