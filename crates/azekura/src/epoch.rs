//! Who is inside: when memory and segments that were taken out of use may be used again.
//!
//! A reader pins itself before it follows an address and unpins after; it stores only to a line of its
//! own and executes no fence. Who takes something out of use asks for a [`stamp`] afterwards, and may
//! reuse it once [`is_past`] the stamp. The asymmetry is paid by the latter, with one `membarrier` call that
//! makes every thread of the process pass a barrier (idea: `membarrier`'s manual page and the seize
//! crate; fenced pins cost 3 to 8 % of the read rate).
//!
//! The same lines tell who is inside something brief - between reserving room in a log and publishing what it put
//! there, at what it owns by its number, in a short update ([`Pin::briefly`], `brief`) - and who is inside an update at
//! all ([`writing`]): two more things to wait for.
//!
//! Invariants:
//! 1. A thread's words are stored by that thread alone.
//! 2. A pin with epoch `e` holds everything whose stamp is greater than `e`.
//! 3. A stamp is taken after the thing can no longer be found.
//!
//! One domain serves the whole process. It does not know what is protected, but for [`Published`], which
//! needs to know nothing of it but how to drop it.

#![expect(unsafe_code, reason = "one system call, and a pointer that is swapped")]

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, compiler_fence, fence,
};
use std::time::Duration;

use crate::weave::{self, Mutex};

/// One thread's lines; reused by later threads.
#[repr(align(128))]
#[derive(Default)]
struct Participant {
    /// 0, or the epoch in which the thread pinned itself.
    pinned: AtomicU64,
    /// How many pins nest; only its thread looks.
    depth: AtomicU32,
    /// Odd while the thread is inside something brief.
    brief: AtomicU64,
    /// Odd while the thread is inside an update.
    writing: AtomicU64,
    /// Whether its thread has to execute fences, since the system makes no barrier for it.
    fences: AtomicBool,
    /// Whether a living thread owns it.
    taken: AtomicBool,
    /// Its place in the list: no two living threads share it.
    number: AtomicU32,
}

static EPOCH: AtomicU64 = AtomicU64::new(1);
static PARTICIPANTS: Mutex<Vec<&'static Participant>> = Mutex::new(Vec::new());

/// How the heavy side reaches the light ones: 0 not asked yet, 1 by fences on both sides, 2 by the system.
static BARRIER: AtomicU8 = AtomicU8::new(0);

thread_local! {
    static LOCAL: Cell<Option<&'static Participant>> = const { Cell::new(None) };
    static LEAVE: Leave = const { Leave };
}

/// Between two looks at a thread that stays inside for long.
const NAP: Duration = Duration::from_micros(100);

/// Gives the thread's lines back when it ends.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        leave();
    }
}

/// Gives the lines of this thread back, which holds no pin: at its end, or before it, in a schedule, where the order in which
/// threads take lines is to follow from the seed.
pub(crate) fn leave() {
    if let Some(participant) = LOCAL.take() {
        participant.taken.store(false, Ordering::Release);
    }
}

#[inline(always)]
fn local() -> &'static Participant {
    match LOCAL.get() {
        Some(participant) => participant,
        None => join(),
    }
}

#[cold]
fn join() -> &'static Participant {
    let mut participants = PARTICIPANTS.lock();
    if BARRIER.load(Ordering::Relaxed) == 0 {
        BARRIER.store(if register() { 2 } else { 1 }, Ordering::Relaxed);
    }
    let free = participants
        .iter()
        .find(|p| !p.taken.load(Ordering::Acquire))
        .copied();
    let participant = free.unwrap_or_else(|| {
        let new: &'static Participant = Box::leak(Box::default());
        new.number
            .store(participants.len() as u32, Ordering::Relaxed);
        participants.push(new);
        new
    });
    let fences = BARRIER.load(Ordering::Relaxed) != 2;
    participant.fences.store(fences, Ordering::Relaxed);
    participant.taken.store(true, Ordering::Relaxed);
    LOCAL.set(Some(participant));
    // A thread that is already ending keeps its lines: a leak of 128 bytes, and nothing unsafe.
    let _ = LEAVE.try_with(|_| ());
    participant
}

/// Asks the system whether it can make all threads pass a barrier.
fn register() -> bool {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
        // SAFETY: the call takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    false
}

/// Makes every thread's stores before this moment visible, and every thread's later loads new. Costs some microseconds.
pub fn heavy_barrier() {
    fence(Ordering::SeqCst);
    #[cfg(all(target_os = "linux", not(miri)))]
    if BARRIER.load(Ordering::Relaxed) == 2 {
        const PRIVATE_EXPEDITED: i32 = 1 << 3;
        // SAFETY: the call takes three integers and touches no memory of ours.
        let done = unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
        assert_eq!(done, 0, "membarrier was registered and cannot fail");
    }
}

impl Participant {
    /// The light side of `heavy_barrier`.
    #[inline(always)]
    fn light_barrier(&self) {
        if self.fences.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        } else {
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// Notes the epoch in which its thread pins itself. A `light_barrier` comes before anything is followed.
    #[inline(always)]
    fn note_epoch(&self) {
        weave::point();
        let epoch = EPOCH.load(Ordering::Acquire);
        weave::point();
        // Release: who sees this pin and not the end of the one before knows that all looks under that are over.
        self.pinned.store(epoch, Ordering::Release);
    }
}

/// While it lives, nothing this thread can find is reused.
#[derive(Debug)]
pub struct Pin {
    participant: &'static Participant,
    /// Stays in its thread.
    _thread: PhantomData<*const ()>,
}

impl std::fmt::Debug for Participant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Participant")
    }
}

/// Pins this thread. Pins nest.
#[inline(always)]
pub fn pin() -> Pin {
    let participant = local();
    let depth = participant.depth.load(Ordering::Relaxed);
    participant.depth.store(depth + 1, Ordering::Relaxed);
    if depth == 0 {
        participant.note_epoch();
    }
    participant.light_barrier();
    Pin {
        participant,
        _thread: PhantomData,
    }
}

impl Pin {
    /// A small number that no other living thread has: a thread may own what it numbers.
    #[inline(always)]
    pub fn thread_number(&self) -> usize {
        self.participant.number.load(Ordering::Relaxed) as usize
    }

    /// Marks this thread as inside something brief, until the mark is dropped: room is reserved in a log, or what the thread
    /// owns by its number is being changed. No code of a user's runs under it, and nothing is waited for.
    #[inline(always)]
    pub fn briefly(&self) -> Mark {
        let mark = Mark::set(&self.participant.brief);
        self.participant.light_barrier();
        mark
    }
}

impl Drop for Pin {
    #[inline(always)]
    fn drop(&mut self) {
        let depth = self.participant.depth.load(Ordering::Relaxed) - 1;
        self.participant.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            weave::point();
            self.participant.pinned.store(0, Ordering::Release);
        }
    }
}

/// Whether this thread is pinned: what it waited for would not be let go while it waits.
pub fn is_pinned() -> bool {
    local().depth.load(Ordering::Relaxed) != 0
}

/// A stamp for what can no longer be found by anyone who pins from now on. Costs some microseconds.
pub fn stamp() -> u64 {
    heavy_barrier();
    weave::point();
    EPOCH.fetch_add(1, Ordering::SeqCst) + 1
}

/// Whether nobody can still hold what got `stamp`.
pub fn is_past(stamp: u64) -> bool {
    PARTICIPANTS.lock().iter().all(|participant| {
        weave::point();
        let pinned = participant.pinned.load(Ordering::Acquire);
        pinned == 0 || pinned >= stamp
    })
}

/// An odd number in one of the thread's words, until dropped. Marks nest.
#[derive(Debug)]
pub struct Mark {
    word: &'static AtomicU64,
    /// What stands there afterwards.
    after: u64,
    _thread: PhantomData<*const ()>,
}

impl Mark {
    #[inline(always)]
    fn set(word: &'static AtomicU64) -> Self {
        let value = word.load(Ordering::Relaxed);
        weave::point();
        // Release: who sees this mark and not the end of the one before knows what was done under that one.
        word.store(value | 1, Ordering::Release);
        Self {
            word,
            after: value + 2 * u64::from(value.is_multiple_of(2)),
            _thread: PhantomData,
        }
    }
}

impl Drop for Mark {
    #[inline(always)]
    fn drop(&mut self) {
        weave::point();
        self.word.store(self.after, Ordering::Release);
    }
}

/// Marks this thread as inside an update, or `None` if it already is (an update from inside an update's
/// closure, on another store).
#[inline(always)]
pub fn writing() -> Option<Mark> {
    let participant = local();
    let word = &participant.writing;
    let outermost = word.load(Ordering::Relaxed).is_multiple_of(2);
    let mark = outermost.then(|| Mark::set(word));
    participant.light_barrier();
    mark
}

/// Whether this thread is inside an update, in whose closure it may be at work on another store.
pub fn is_within_update() -> bool {
    !local().writing.load(Ordering::Relaxed).is_multiple_of(2)
}

/// A thread inside a short update: pinned, and marked as brief from beginning to end. Pins that begin meanwhile end before it:
/// what it found is put back, and not counted down, which costs a short update a fifth of its time.
#[derive(Debug)]
pub(crate) struct Brief {
    /// Not dropped: what it would undo is undone here.
    pin: ManuallyDrop<Pin>,
    mark: Mark,
    /// How many pins this thread held before, and what they stored, or 0.
    outer: (u32, u64),
}

impl Brief {
    /// Its pin.
    #[inline(always)]
    pub(crate) fn pin(&self) -> &Pin {
        &self.pin
    }

    /// Its mark.
    #[inline(always)]
    pub(crate) fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Drop for Brief {
    #[inline(always)]
    fn drop(&mut self) {
        let (depth, epoch) = self.outer;
        let participant = self.pin.participant;
        debug_assert_eq!(
            participant.depth.load(Ordering::Relaxed),
            depth + 1,
            "a pin that began in a short update ends before it"
        );
        participant.depth.store(depth, Ordering::Relaxed);
        weave::point();
        participant.pinned.store(epoch, Ordering::Release);
    }
}

/// As [`pin`] and [`Pin::briefly`] at once, in fewer instructions.
#[inline(always)]
pub(crate) fn brief() -> Brief {
    let participant = local();
    let mark = Mark::set(&participant.brief);
    let depth = participant.depth.load(Ordering::Relaxed);
    let epoch = participant.pinned.load(Ordering::Relaxed);
    participant.depth.store(depth + 1, Ordering::Relaxed);
    if epoch == 0 {
        participant.note_epoch();
    }
    participant.light_barrier();
    Brief {
        pin: ManuallyDrop::new(Pin {
            participant,
            _thread: PhantomData,
        }),
        mark,
        outer: (depth, epoch),
    }
}

/// Returns when everything brief of other threads that had begun before the call has ended: what they appended is
/// published.
pub fn wait_for_brief() {
    wait_for(|participant| &participant.brief);
}

/// Returns when every update of other threads that had begun before the call has ended, short ones included.
pub fn wait_for_updates() {
    wait_for(|participant| &participant.writing);
    wait_for(|participant| &participant.brief);
}

fn wait_for(word: impl Fn(&'static Participant) -> &'static AtomicU64) {
    heavy_barrier();
    let own = local();
    let participants = PARTICIPANTS.lock().clone();
    for participant in participants {
        weave::point();
        let value = word(participant).load(Ordering::Acquire);
        if value.is_multiple_of(2) || std::ptr::eq(participant, own) {
            continue;
        }
        let mut looks = 0u32;
        while word(participant).load(Ordering::Acquire) == value {
            if weave::wait() {
                continue;
            }
            looks = looks.saturating_add(1);
            match looks {
                0..100 => std::hint::spin_loop(),
                100..1000 => std::thread::yield_now(),
                // It runs a user's closure, which may take any time: nobody wakes us, as a mark wakes nobody.
                _ => std::thread::sleep(NAP),
            }
        }
    }
}

/// Something that is replaced as a whole while threads look at it. A look is one load, and stores nothing that
/// others see; what was replaced is dropped by a later replacement, once nobody looks at it.
#[derive(Debug)]
pub struct Published<T> {
    /// Made by `Box::into_raw`, as those in `past`. Replaced under the lock of `past`.
    current: AtomicPtr<T>,
    /// What was replaced, each with the stamp it got afterwards.
    past: Mutex<Vec<(u64, AtomicPtr<T>)>>,
}

impl<T: Send + Sync> Published<T> {
    /// Publishes the first one.
    pub fn new(first: T) -> Self {
        Self {
            current: AtomicPtr::new(Box::into_raw(Box::new(first))),
            past: Mutex::new(Vec::new()),
        }
    }

    /// The current one; it stays for as long as the pin, replaced or not.
    #[inline]
    pub fn get<'p>(&'p self, _pin: &'p Pin) -> &'p T {
        weave::point();
        // SAFETY: never null; what is replaced is dropped only behind a stamp that was taken after its
        // replacement and is past, or with `self`, which is borrowed.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Puts in its place what `next` makes in view of it, or leaves it at `None`. One thread at a time.
    ///
    /// Errors: those of `next`; the current one stays then.
    pub fn replace<E>(&self, next: impl FnOnce(&T) -> Result<Option<T>, E>) -> Result<(), E> {
        let mut past = self.past.lock();
        // SAFETY: never null, and nobody else replaces it while `past` is locked.
        let current = unsafe { &*self.current.load(Ordering::Acquire) };
        let Some(next) = next(current)? else {
            return Ok(());
        };
        let next = Box::into_raw(Box::new(next));
        let replaced = self.current.swap(next, Ordering::AcqRel);
        past.push((stamp(), AtomicPtr::new(replaced)));
        let gone: Vec<_> = past.extract_if(.., |(stamp, _)| is_past(*stamp)).collect();
        drop(past);
        for (_, one) in gone {
            Self::free(one);
        }
        Ok(())
    }
}

impl<T> Published<T> {
    fn free(one: AtomicPtr<T>) {
        // SAFETY: made by `Box::into_raw`, taken out of where it stood, and nobody looks at it: its stamp is
        // past, or all of it is dropped.
        drop(unsafe { Box::from_raw(one.into_inner()) });
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        for (_, one) in self.past.get_mut().drain(..) {
            Self::free(one);
        }
        Self::free(AtomicPtr::new(*self.current.get_mut()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_stamp_is_past_only_when_the_pins_before_it_are_gone() {
        let (tell, told) = mpsc::channel::<()>();
        let (ask, asked) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let outer = pin();
            let inner = pin();
            tell.send(()).unwrap();
            asked.recv().unwrap();
            drop(outer);
            tell.send(()).unwrap();
            asked.recv().unwrap();
            drop(inner);
            tell.send(()).unwrap();
        });
        told.recv().unwrap();
        let stamp = stamp();
        assert!(!is_past(stamp));
        ask.send(()).unwrap();
        told.recv().unwrap();
        assert!(!is_past(stamp), "the inner pin still holds it");
        ask.send(()).unwrap();
        told.recv().unwrap();
        // Other tests of this process pin for moments only.
        while !is_past(stamp) {
            std::thread::yield_now();
        }
        thread.join().unwrap();
    }

    /// Counts its drops.
    struct Counted(u64, std::sync::Arc<AtomicU64>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_is_replaced_stays_for_those_who_look_at_it() {
        let drops = std::sync::Arc::new(AtomicU64::new(0));
        let counted = |number| Counted(number, std::sync::Arc::clone(&drops));
        let dropped = || drops.load(Ordering::SeqCst);
        let published = Published::new(counted(0));
        let put = |number| published.replace(|_| Ok::<_, ()>(Some(counted(number))));
        let pin = pin();
        let first = published.get(&pin);
        put(1).unwrap();
        put(2).unwrap();
        assert_eq!((first.0, published.get(&pin).0, dropped()), (0, 2, 0));
        drop(pin);
        // Other tests of this process pin for moments only.
        let mut number = 2;
        while dropped() < 2 {
            number += 1;
            put(number).unwrap();
        }
        let before = dropped();
        published.replace(|_| Ok::<_, ()>(None)).unwrap();
        assert_eq!(published.replace(|_| Err(())), Err(()));
        assert_eq!(
            (published.get(&super::pin()).0, dropped()),
            (number, before)
        );
        drop(published);
        assert_eq!(dropped(), number + 1, "each is dropped once");
    }

    #[test]
    fn who_looks_sees_a_whole_one_while_others_replace_it() {
        let published = Published::new(vec![0_u64; 8]);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let next = |old: &Vec<u64>| Ok::<_, ()>(Some(vec![old[0] + 1; 8]));
                        published.replace(next).unwrap();
                    }
                });
            }
            scope.spawn(|| {
                let mut last = 0;
                while last < 400 {
                    let pin = pin();
                    let seen = published.get(&pin);
                    assert!(seen[0] >= last && seen.iter().all(|one| *one == seen[0]));
                    last = seen[0];
                }
            });
        });
    }

    #[test]
    fn what_is_brief_is_waited_for() {
        let (tell, told) = mpsc::channel::<()>();
        let flags = std::sync::Arc::new((AtomicBool::new(false), AtomicBool::new(false)));
        let shared = std::sync::Arc::clone(&flags);
        let thread = std::thread::spawn(move || {
            let (begun, returned) = &*shared;
            let mark = pin().briefly();
            tell.send(()).unwrap();
            while !begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            // Time enough to return too early, even where many threads share a processor.
            let mut looks = 0;
            while looks < 20_000 && !returned.load(Ordering::SeqCst) {
                looks += 1;
                std::thread::yield_now();
            }
            let is_early = returned.load(Ordering::SeqCst);
            drop(mark);
            is_early
        });
        told.recv().unwrap();
        let (begun, returned) = &*flags;
        begun.store(true, Ordering::SeqCst);
        wait_for_brief();
        returned.store(true, Ordering::SeqCst);
        assert!(
            !thread.join().unwrap(),
            "it returned before the mark was dropped"
        );
    }

    #[test]
    fn an_update_inside_an_update_is_not_marked_twice() {
        let outer = writing();
        assert!(outer.is_some());
        assert!(writing().is_none());
        wait_for_updates();
        drop(outer);
        assert!(writing().is_some());
    }
}
