//! The mechanics of epochs: what a pin holds, what is waited for, and what is not.
//!
//! Each test has domains of its own, so that no other test of the process holds what it retires. What needs an allocator that
//! refuses is in `crates/azekura/tests/refused.rs`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use super::*;

/// Runs `inside` in another thread and calls `then` while what that returned lives there.
fn concurrently<G>(inside: impl FnOnce() -> G + Send, then: impl FnOnce()) {
    let (begin, begun) = mpsc::channel::<()>();
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let guard = inside();
            begin.send(()).unwrap();
            let _ = ended.recv();
            drop(guard);
        });
        begun.recv().unwrap();
        then();
        drop(end);
    });
}

#[test]
fn a_grace_period_elapses_only_when_the_pins_before_it_have_ended() {
    let domain = Domain::new();
    let pins = || {
        let outer = domain.pin();
        let inner = domain.pin();
        drop(outer);
        inner
    };
    let mut epoch = 0;
    concurrently(pins, || {
        epoch = domain.retire_epoch();
        assert!(!domain.has_elapsed(epoch), "the inner pin holds it");
        concurrently(|| domain.pin(), || assert!(!domain.has_elapsed(epoch)));
    });
    assert!(domain.has_elapsed(epoch));
    concurrently(|| domain.pin(), || assert!(domain.has_elapsed(epoch)));
}

#[test]
fn a_pin_within_a_pinned_section_does_not_end_it() {
    let domain = Domain::new();
    let section = domain.pinned_section();
    drop(domain.pin());
    let epoch = domain.retire_epoch();
    assert!(!domain.has_elapsed(epoch));
    drop(section);
    assert!(domain.has_elapsed(epoch));
    // Nor does one end what is around it.
    let pin = domain.pin();
    let epoch = domain.retire_epoch();
    drop(domain.pinned_section());
    assert!(!domain.has_elapsed(epoch) && is_pinned());
    drop(pin);
    assert!(domain.has_elapsed(epoch));
}

/// Counts its drops.
struct Counted(u64, Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn what_is_replaced_stays_for_its_readers() {
    let drops = Arc::new(AtomicU64::new(0));
    let counted = |number| Counted(number, Arc::clone(&drops));
    let dropped = || drops.load(Ordering::SeqCst);
    let published = Published::new(Domain::new(), counted(0));
    let put = |number| published.replace(|_| Ok::<_, ()>(Some(counted(number))));
    let pin = published.pin();
    let first = published.get(&pin);
    put(1).unwrap();
    put(2).unwrap();
    assert_eq!((first.0, published.get(&pin).0, dropped()), (0, 2, 0));
    drop(pin);
    put(3).unwrap();
    assert_eq!(dropped(), 3, "all of them, with the next replacement");
    published.replace(|_| Ok::<_, ()>(None)).unwrap();
    assert_eq!(published.replace(|_| Err(())), Err(()));
    assert_eq!((published.get(&published.pin()).0, dropped()), (3, 3));
    drop(published);
    assert_eq!(dropped(), 4, "each is dropped once");
}

#[test]
fn a_reader_sees_a_whole_value_while_others_replace_it() {
    let published = Published::new(Domain::new(), vec![0_u64; 8]);
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
                let pin = published.pin();
                let seen = published.get(&pin);
                assert!(seen[0] >= last && seen.iter().all(|one| *one == seen[0]));
                last = seen[0];
            }
        });
    });
}

#[test]
fn critical_sections_are_waited_for() {
    let domain = Domain::new();
    let (has_begun, has_returned) = (AtomicBool::new(false), AtomicBool::new(false));
    let (begin, begun) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let section = domain.pin().critical_section();
            begin.send(()).unwrap();
            while !has_begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            // Time enough to return too early, even where many threads share a processor.
            let mut looks = 0;
            while looks < 20_000 && !has_returned.load(Ordering::SeqCst) {
                looks += 1;
                std::thread::yield_now();
            }
            let is_early = has_returned.load(Ordering::SeqCst);
            drop(section);
            is_early
        });
        begun.recv().unwrap();
        has_begun.store(true, Ordering::SeqCst);
        domain.wait_for_critical_sections();
        has_returned.store(true, Ordering::SeqCst);
        assert!(
            !thread.join().unwrap(),
            "it returned before the section had ended"
        );
    });
}

#[test]
fn no_thread_of_another_domain_is_waited_for() {
    let (own, other) = (Domain::new(), Domain::new());
    let inside = || (other.pin(), other.pin().critical_section(), other.update());
    concurrently(inside, || {
        assert!(own.has_elapsed(own.retire_epoch()));
        assert!(!other.has_elapsed(other.retire_epoch()));
        // Either would last as long as the other thread's guards, and those wait for this thread.
        own.wait_for_critical_sections();
        own.wait_for_updates();
    });
}

#[test]
fn domains_that_share_a_number_hold_what_either_holds() {
    let domains: Vec<Domain> = (0..3 * DOMAINS).map(|_| Domain::new()).collect();
    let numbers: HashSet<u8> = domains.iter().map(|domain| domain.number).collect();
    assert_eq!(numbers.len(), DOMAINS, "none is idle while others share");
    let same = |domain: &&Domain| domain.number == domains[0].number;
    let pin = domains[0].pin();
    assert!(domains.iter().filter(same).count() > 1);
    for domain in domains.iter().filter(same) {
        assert!(!domain.has_elapsed(domain.retire_epoch()));
    }
    drop(pin);
    let users = |number: u8| USERS.lock()[usize::from(number)];
    let before = users(domains[0].number);
    drop(domains[0].clone());
    assert_eq!(users(domains[0].number), before, "a clone is the same use");
}

#[test]
fn a_thread_that_ends_leaves_its_number_to_another() {
    let domain = Domain::new();
    let numbers: HashSet<usize> = (0..100)
        .map(|_| {
            let thread = || {
                std::thread::spawn({
                    let domain = domain.clone();
                    move || domain.pin().thread_number()
                })
            };
            thread().join().unwrap()
        })
        .collect();
    // Other tests of this process begin and end threads meanwhile.
    assert!(numbers.len() < 100, "{numbers:?}");
    assert!(domain.has_elapsed(domain.retire_epoch()));
}

#[test]
fn an_update_inside_an_update_is_not_marked_twice() {
    let (domain, other) = (Domain::new(), Domain::new());
    let outer = domain.update();
    assert!(outer.is_some() && is_within_update());
    assert!(domain.update().is_none() && other.update().is_none());
    domain.wait_for_updates();
    drop(outer);
    assert!(!is_within_update());
    assert!(other.update().is_some());
}

/// A list of counted items, `sealed` of which are sealed together, and the rest one by one.
fn retired(domain: &Domain, sealed: u64, rest: u64) -> (RetireList<Counted>, Arc<AtomicU64>) {
    let drops = Arc::new(AtomicU64::new(0));
    let mut list = RetireList::new(domain.clone());
    for number in 0..sealed + rest {
        assert!(list.retire(Counted(number, Arc::clone(&drops)), 10).is_ok());
        if number + 1 >= sealed {
            list.seal();
        }
    }
    (list, drops)
}

#[test]
fn a_retired_item_is_reclaimed_once_when_the_pins_before_its_seal_have_ended() {
    let domain = Domain::new();
    let (mut list, drops) = retired(&domain, 0, 0);
    assert!(list.retire(Counted(0, Arc::clone(&drops)), 10).is_ok());
    assert!(list.next_elapsed().is_none(), "it is not sealed");
    let inside = || domain.pin();
    concurrently(inside, || {
        assert_eq!((list.seal(), list.aging_weight()), (10, 10));
        assert!(list.next_elapsed().is_none(), "a thread holds it");
        // What this thread holds itself it waits for neither, however its pins nest.
        let _pin = domain.pin();
        assert!(list.retire(Counted(1, Arc::clone(&drops)), 5).is_ok());
        list.seal();
        assert!(list.next_elapsed().is_none());
    });
    for number in 0..2 {
        let batch = list.next_elapsed().expect("no thread holds it");
        let numbers: Vec<u64> = batch.items.iter().map(|item| item.0).collect();
        assert_eq!(numbers, [number], "in order, and each once");
    }
    assert!(list.next_elapsed().is_none());
    assert_eq!((drops.load(Ordering::SeqCst), list.seal()), (2, 0));
}

#[test]
fn a_pin_of_another_domain_holds_nothing_of_a_list() {
    let (domain, other) = (Domain::new(), Domain::new());
    let (mut list, _) = retired(&domain, 3, 2);
    concurrently(
        || other.pin(),
        || {
            let batches = std::iter::from_fn(|| list.next_elapsed());
            let lens: Vec<usize> = batches.map(|batch| batch.items.len()).collect();
            assert_eq!(lens, [3, 1, 1], "one seal is one batch");
        },
    );
}

#[test]
fn a_list_that_is_dropped_drops_each_item_once() {
    let domain = Domain::new();
    let pin = domain.pin();
    let (mut list, drops) = retired(&domain, 4, 3);
    assert!(list.retire(Counted(7, Arc::clone(&drops)), 10).is_ok());
    assert!(list.next_elapsed().is_none());
    assert_eq!((list.aging().count(), list.fresh_count()), (7, 1));
    drop(list);
    assert_eq!(drops.load(Ordering::SeqCst), 8);
    drop(pin);
}

#[test]
fn a_refused_note_costs_no_item() {
    let domain = Domain::new();
    let (mut list, drops) = retired(&domain, 2, 0);
    assert!(list.reserve_all(1) && !list.reserve_all(usize::MAX));
    assert_eq!(list.next_elapsed().map(|batch| batch.items.len()), Some(2));
    assert_eq!(drops.load(Ordering::SeqCst), 2);
    // As an owner drops what `retire` hands back.
    let refused = std::mem::ManuallyDrop::new(Counted(0, Arc::clone(&drops)));
    let _ = Err::<(), _>(refused);
    assert_eq!(drops.load(Ordering::SeqCst), 2, "a reader may hold it");
}

#[test]
fn what_is_swapped_out_is_retired_when_the_caller_is_done_with_it() {
    let drops = Arc::new(AtomicU64::new(0));
    let published = Published::new(Domain::new(), Counted(0, Arc::clone(&drops)));
    let old = published.swap(Counted(1, Arc::clone(&drops)));
    assert_eq!((old.0, published.get(&published.pin()).0), (0, 1));
    let pin = published.pin();
    drop(old);
    assert_eq!(drops.load(Ordering::SeqCst), 0, "this thread is pinned");
    drop(pin);
    drop(published.swap(Counted(2, Arc::clone(&drops))));
    assert_eq!(drops.load(Ordering::SeqCst), 2);
}
