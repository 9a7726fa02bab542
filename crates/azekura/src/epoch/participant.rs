//! What each thread publishes about itself: the lines that reclamation and synchronization read.
//!
//! ```text
//!   participant of a thread    | domain 0 | domain 1 | .. | domain 254 | update, taken |
//!                                    |
//!                                    `-> epoch of its pin, depth of its pins, its critical section
//! ```
//! A participant belongs to one thread at a time and is reused by a later one; it is never freed, so that readers of it need
//! no protection. A thread that stops while it is pinned (its pin was forgotten) holds its domain's items for ever.
//! After a fork the child has the participants of all threads of its parent, none of which runs: what those protected
//! stays protected, and the child waits forever for their critical sections. A child opens stores of its own only if
//! no other thread of its parent was in one.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
use std::time::Duration;

use super::barrier::{heavy_barrier, needs_fences};
use crate::explore::{self, Mutex};

/// How many domains have a number of their own: one less than a byte counts, which indexes [`PLACES`] without a check.
pub(super) const DOMAINS: usize = PLACES - 1;
/// Places of a participant, one for each domain and [`OWN`]: 8 KiB in all, the largest request that memory is expected for.
const PLACES: usize = 256;
/// The place of no domain: its words are about the thread as a whole.
const OWN: usize = PLACES - 1;

/// What one thread publishes about itself in one domain. The thread alone stores to it.
#[repr(C, align(32))]
pub(super) struct Presence {
    /// 0, or the epoch in which the thread pinned itself.
    pub(super) pinned: AtomicU64,
    /// Odd inside a critical section.
    pub(super) section: AtomicU64,
    /// How many pins nest. No other thread reads it.
    pub(super) depth: AtomicU32,
    /// The thread's place in the list of participants.
    pub(super) thread: u32,
    /// The domain.
    pub(super) domain: u8,
    /// Whether the thread has to execute fences, since the system makes no barrier for it.
    fences: bool,
}

/// What a thread publishes about itself.
#[repr(C, align(128))]
pub(super) struct Participant {
    presences: [Presence; PLACES],
}

const _: () = assert!(size_of::<Participant>() <= 8 << 10);

/// The lowest bit of a participant's word of updates: inside an update.
pub(super) const IS_UPDATING: u64 = 1;
/// Distance from one update's word to the next one's.
pub(super) const UPDATE_STEP: u64 = 2 * PLACES as u64;

static PARTICIPANTS: Mutex<Vec<&'static Participant>> = Mutex::new(Vec::new());

thread_local! {
    static LOCAL: Cell<Option<&'static Participant>> = const { Cell::new(None) };
    static LEAVE: Leave = const { Leave };
}

/// Between two probes of a thread that stays inside for long.
const NAP: Duration = Duration::from_micros(100);

/// Releases the thread's participant when it ends.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        leave();
    }
}

/// Releases the participant of this thread, which holds no pin: at its end, or before it, in a schedule, where the order in
/// which threads take participants is to follow from the seed.
pub(crate) fn leave() {
    if let Some(participant) = LOCAL.take() {
        participant.is_taken().store(0, Ordering::Release);
    }
}

/// The participant of this thread.
#[inline(always)]
pub(super) fn local() -> &'static Participant {
    match LOCAL.get() {
        Some(participant) => participant,
        None => join(),
    }
}

#[cold]
fn join() -> &'static Participant {
    let mut participants = PARTICIPANTS.lock();
    let free = participants
        .iter()
        .find(|p| p.is_taken().load(Ordering::Acquire) == 0)
        .copied();
    let participant = free.unwrap_or_else(|| {
        let new: &'static Participant = Box::leak(Participant::new(participants.len() as u32));
        participants.push(new);
        new
    });
    participant.is_taken().store(1, Ordering::Relaxed);
    LOCAL.set(Some(participant));
    // A thread that is already ending keeps its participant: a leak of some kibibytes, and nothing unsafe.
    let _ = LEAVE.try_with(|_| ());
    participant
}

/// All participants, those of ended threads included.
pub(super) fn all() -> Vec<&'static Participant> {
    PARTICIPANTS.lock().clone()
}

/// Whether `is_so` holds for what every thread publishes in this domain.
pub(super) fn all_in(domain: u8, is_so: impl Fn(&Presence) -> bool) -> bool {
    let participants = PARTICIPANTS.lock();
    participants.iter().all(|p| is_so(p.presence(domain)))
}

impl Participant {
    fn new(thread: u32) -> Box<Self> {
        let fences = needs_fences();
        let presence = |domain: usize| Presence {
            pinned: AtomicU64::new(0),
            section: AtomicU64::new(0),
            depth: AtomicU32::new(0),
            thread,
            domain: domain as u8,
            fences,
        };
        Box::new(Self {
            presences: std::array::from_fn(presence),
        })
    }

    /// The update that the thread is inside of, or an even number: a count from [`UPDATE_STEP`] on, the domain, and a one.
    #[inline(always)]
    pub(super) fn update(&self) -> &AtomicU64 {
        &self.presences[OWN].section
    }

    /// Not 0: a living thread owns it.
    fn is_taken(&self) -> &AtomicU32 {
        &self.presences[OWN].depth
    }

    /// What the thread publishes in a domain.
    #[inline(always)]
    pub(super) fn presence(&self, domain: u8) -> &Presence {
        &self.presences[usize::from(domain)]
    }

    /// Whether the thread is pinned in any domain.
    pub(super) fn is_pinned(&self) -> bool {
        let is_pinned = |presence: &Presence| presence.depth.load(Ordering::Relaxed) != 0;
        self.presences[..OWN].iter().any(is_pinned)
    }
}

impl Presence {
    /// The light side of `heavy_barrier`.
    #[inline(always)]
    pub(super) fn light_barrier(&self) {
        if self.fences {
            fence(Ordering::SeqCst);
        } else {
            compiler_fence(Ordering::SeqCst);
        }
    }
}

/// Returns when what every other thread published in the word, if `is_inside` holds for it, has changed.
pub(super) fn wait_for(
    word: impl Fn(&'static Participant) -> &'static AtomicU64,
    is_inside: impl Fn(u64) -> bool,
) {
    heavy_barrier();
    let own = local();
    for participant in all() {
        explore::yield_point();
        let value = word(participant).load(Ordering::Acquire);
        if !is_inside(value) || std::ptr::eq(participant, own) {
            continue;
        }
        let mut looks = 0u32;
        while word(participant).load(Ordering::Acquire) == value {
            if explore::wait() {
                continue;
            }
            looks = looks.saturating_add(1);
            match looks {
                0..100 => std::hint::spin_loop(),
                100..1000 => std::thread::yield_now(),
                // It runs a user's closure, which may take any time: no guard wakes a waiter when it is dropped.
                _ => std::thread::sleep(NAP),
            }
        }
    }
}
