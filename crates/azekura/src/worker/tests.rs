//! The pool with real threads: wake-ups, ends, panics, blocked steps, and what a step may do to other tasks.
//!
//! Orders of events are played in `schedule`, without threads; here is what needs them. Each test has a pool of its own, which is
//! never freed. A wait is bounded, so that a lost wake-up fails and does not hang.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::pool::{Notify, Pool, Worker, spawn};
use super::schedule::{Limits, ThreadIndex};
use super::{Next, Task};

const LONG: Duration = Duration::from_secs(20);

const LIMITS: Limits = Limits {
    at_once: 2,
    patience: Duration::from_millis(5),
    threads_max: 4,
    idle: Duration::from_millis(100),
};

impl<F: FnMut(bool) -> Next + Send> Task for F {
    fn step(&mut self, woken: bool) -> Next {
        self(woken)
    }
}

fn pool(limits: Limits) -> &'static Pool {
    Box::leak(Box::new(Pool::new(limits, spawn)))
}

fn start(
    pool: &'static Pool,
    step: impl FnMut(bool) -> Next + Send + 'static,
) -> (Worker, Arc<Notify>) {
    let notify = Arc::default();
    let worker = pool
        .start("test", Path::new("a"), &notify, Box::new(step))
        .unwrap();
    (worker, notify)
}

/// A step of which the test hears, and which the test ends.
fn guided() -> (
    impl FnMut(bool) -> Next + Send,
    Receiver<bool>,
    Sender<Next>,
) {
    let (began, begins) = channel();
    let (answer, answers) = channel();
    let step = move |woken| {
        _ = began.send(woken);
        answers.recv().unwrap_or(Next::Idle)
    };
    (step, begins, answer)
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_notification_during_a_step_and_one_before_the_start_are_each_taken_once() {
    let pool = pool(LIMITS);
    let (step, begins, answer) = guided();
    let notify = Arc::new(Notify::default());
    notify.notify();
    let worker = pool
        .start("test", Path::new("a"), &notify, Box::new(step))
        .unwrap();
    assert_eq!(begins.recv_timeout(LONG), Ok(true));
    notify.notify();
    notify.notify();
    answer.send(Next::Idle).unwrap();
    assert_eq!(begins.recv_timeout(LONG), Ok(true));
    answer.send(Next::Now).unwrap();
    assert_eq!(begins.recv_timeout(LONG), Ok(false));
    answer.send(Next::After(Duration::from_millis(1))).unwrap();
    assert_eq!(begins.recv_timeout(LONG), Ok(false));
    answer.send(Next::Idle).unwrap();
    assert!(begins.recv_timeout(Duration::from_millis(50)).is_err());
    worker.stop();
    notify.notify();
    assert!(begins.recv().is_err(), "stopped");
}

#[test]
fn no_wake_up_is_lost_and_no_task_runs_twice_at_once() {
    let pool = pool(LIMITS);
    let (posted, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let inside = Arc::new(AtomicBool::new(false));
    let (worker, notify) = start(pool, {
        let (posted, seen) = (Arc::clone(&posted), Arc::clone(&seen));
        move |_| {
            assert!(!inside.swap(true, Ordering::SeqCst));
            // The last one it sees may be posted by a notifier that finds the task notified already.
            seen.store(posted.load(Ordering::Relaxed), Ordering::Relaxed);
            inside.store(false, Ordering::SeqCst);
            Next::Idle
        }
    });
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..20_000_u32 {
                    let own = posted.fetch_add(1, Ordering::Relaxed) + 1;
                    notify.notify();
                    if round % 8 == 0 {
                        eventually("a wake-up was lost", || seen.load(Ordering::Relaxed) >= own);
                    }
                }
            });
        }
    });
    eventually("the last wake-up was lost", || {
        seen.load(Ordering::Relaxed) == 40_000
    });
    worker.stop();
}

#[test]
fn a_stop_waits_for_the_running_step_and_the_task_is_dropped_then() {
    let pool = pool(LIMITS);
    let held = Arc::new(());
    let has_ended = Arc::new(AtomicBool::new(false));
    let (began, begins) = channel();
    let (worker, _notify) = start(pool, {
        let (held, has_ended) = (Arc::clone(&held), Arc::clone(&has_ended));
        move |_| {
            assert!(Arc::strong_count(&held) > 1);
            began.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            has_ended.store(true, Ordering::SeqCst);
            Next::Now
        }
    });
    begins.recv_timeout(LONG).unwrap();
    worker.stop();
    assert!(has_ended.load(Ordering::SeqCst));
    assert_eq!(Arc::strong_count(&held), 1);
    // One that waits for its time.
    let own = Arc::clone(&held);
    let (worker, _notify) = start(pool, move |_| {
        assert!(Arc::strong_count(&own) > 1);
        Next::After(LONG)
    });
    worker.stop();
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn the_end_of_a_task_wakes_the_thread_that_waits_for_it() {
    let pool = pool(LIMITS);
    let (stopped, stops) = channel();
    let mut answers = Vec::new();
    for number in [1, 2] {
        let (step, begins, answer) = guided();
        let (worker, notify) = start(pool, step);
        notify.notify();
        begins.recv_timeout(LONG).unwrap();
        answers.push((answer, begins));
        let stopped = stopped.clone();
        std::thread::spawn(move || {
            worker.stop();
            stopped.send(number).ok();
        });
        // So that it waits before the next one does.
        std::thread::sleep(Duration::from_millis(50));
    }
    for number in [2, 1] {
        let (answer, _begins) = answers.pop().unwrap();
        answer.send(Next::Idle).unwrap();
        assert_eq!(stops.recv_timeout(LONG), Ok(number));
    }
}

#[test]
fn a_task_that_always_has_more_to_do_leaves_another_its_steps() {
    let limits = Limits {
        at_once: 1,
        threads_max: 1,
        ..LIMITS
    };
    let pool = pool(limits);
    let (greedy, _notify) = start(pool, |_| Next::Now);
    let (step, begins, answer) = guided();
    let (worker, notify) = start(pool, step);
    for woken in [false, true, true] {
        assert_eq!(begins.recv_timeout(LONG), Ok(woken));
        notify.notify();
        answer.send(Next::Idle).unwrap();
    }
    drop(answer);
    worker.stop();
    greedy.stop();
}

#[test]
fn blocked_steps_do_not_delay_others_and_surplus_threads_end() {
    let pool = pool(LIMITS);
    let (blocked, others): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let (step, begins, answer) = guided();
            (start(pool, step), (begins, answer))
        })
        .unzip();
    for (begins, _) in &others {
        begins.recv_timeout(LONG).unwrap();
    }
    let (step, begins, answer) = guided();
    let (worker, notify) = start(pool, step);
    begins.recv_timeout(LONG).unwrap();
    answer.send(Next::Idle).unwrap();
    notify.notify();
    begins.recv_timeout(LONG).unwrap();
    assert_eq!(pool.threads(), 4);
    drop((others, answer));
    eventually("threads without work stay", || pool.threads() == 0);
    notify.notify();
    begins.recv_timeout(LONG).unwrap();
    worker.stop();
    drop(blocked);
}

#[test]
fn a_panic_ends_its_task_only() {
    let pool = pool(LIMITS);
    let held = Arc::new(());
    let own = Arc::clone(&held);
    let (broken, notify) = start(pool, move |_| {
        assert!(Arc::strong_count(&own) > 1);
        panic!("planned by a test")
    });
    eventually("the task is kept", || Arc::strong_count(&held) == 1);
    notify.notify();
    let (step, begins, answer) = guided();
    let (worker, _notify) = start(pool, step);
    begins.recv_timeout(LONG).unwrap();
    drop(answer);
    worker.stop();
    let (stopped, stops) = channel();
    std::thread::spawn(move || {
        broken.stop();
        stopped.send(()).unwrap();
    });
    stops.recv_timeout(LONG).unwrap();
}

#[test]
fn a_step_starts_notifies_and_stops_tasks_its_own_included() {
    let pool = pool(LIMITS);
    let own: Arc<Mutex<Option<Worker>>> = Arc::default();
    let (done, ends) = channel();
    let (step, begins, answer) = guided();
    let (outer, outer_notify) = start(self::pool(LIMITS), step);
    begins.recv_timeout(LONG).unwrap();
    let (inside, mut outer) = (Arc::clone(&own), Some((outer, answer)));
    let (worker, notify) = start(pool, move |woken| {
        if !woken {
            return Next::Idle;
        }
        let (inner, inner_notify) = start(pool, |_| Next::Idle);
        inner_notify.notify();
        inner.stop();
        // One of another pool, which runs.
        outer_notify.notify();
        if let Some((outer, answer)) = outer.take() {
            drop(answer);
            outer.stop();
        }
        // Itself: this returns at once.
        drop(inside.lock().unwrap().take());
        done.send(()).unwrap();
        Next::Now
    });
    *own.lock().unwrap() = Some(worker);
    notify.notify();
    ends.recv_timeout(LONG).unwrap();
    // It was dropped after that step, and did not run again.
    assert!(ends.recv_timeout(LONG).is_err());
    eventually("the stopped task is kept", || Arc::strong_count(&own) == 1);
}

#[test]
fn without_a_thread_a_start_is_an_error_and_a_notification_is_tried_again() {
    static REFUSES: AtomicBool = AtomicBool::new(false);
    fn refusing(pool: &'static Pool, thread: ThreadIndex) -> std::io::Result<()> {
        if REFUSES.load(Ordering::SeqCst) {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        spawn(pool, thread)
    }
    let pool: &'static Pool = Box::leak(Box::new(Pool::new(LIMITS, refusing)));
    let (step, begins, answer) = guided();
    let (worker, notify) = start(pool, step);
    begins.recv_timeout(LONG).unwrap();
    REFUSES.store(true, Ordering::SeqCst);
    // The only thread runs a step: the second task waits for it.
    let (step, others, second) = guided();
    let (other, _other_notify) = start(pool, step);
    answer.send(Next::Idle).unwrap();
    others.recv_timeout(LONG).unwrap();
    second.send(Next::Idle).unwrap();
    eventually("threads without work stay", || pool.threads() == 0);
    let unused = Arc::default();
    let refused = pool.start("test", Path::new("b"), &unused, Box::new(|_| Next::Idle));
    let message = refused.unwrap_err().to_string();
    assert!(
        message.contains("cannot start the background worker"),
        "{message}"
    );
    notify.notify();
    assert!(!notify.is_notified());
    REFUSES.store(false, Ordering::SeqCst);
    notify.notify();
    assert_eq!(begins.recv_timeout(LONG), Ok(true));
    drop((answer, second));
    worker.stop();
    other.stop();
}
