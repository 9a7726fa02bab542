//! The rules of the queue, each by its name, and all of them together against a model.
//!
//! A test sets the times, so nothing here waits. Each request has an object of its own, unless a test is about conflicts.
//! The model in `model` shares no code with the queue.

mod model;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn queue<T>(change: impl FnOnce(&mut Options)) -> Queue<T> {
    let mut options = Options::default();
    change(&mut options);
    Queue::new(options).unwrap()
}

/// A request for an object of its own.
fn ask(id: u128, place: u64, deadline: Deadline) -> Ask {
    Ask {
        touches: Touches::One(id),
        writes: false,
        place,
        deadline,
        bytes: 0,
        at_once: false,
        prioritized: false,
    }
}

#[test]
fn values_that_wait_are_bounded_by_bytes_and_one_that_is_larger_waits_alone() {
    let mut queue = queue(|options| options.limits.bytes_max = 100);
    let of = |id, bytes| Ask { bytes, ..write(id) };
    push(&mut queue, at(0), of(1, 1000), "large");
    let refused = queue.push(at(0), of(2, 1), "second").unwrap_err();
    assert_eq!(refused, (Failure::TooLarge, "second"));
    // What holds no value is bounded by number alone.
    push(&mut queue, at(0), of(3, 0), "none");
    assert_eq!(drain(&mut queue, at(1)), ["large", "none"]);
    for id in 4..8 {
        push(&mut queue, at(1), of(id, 25), "quarter");
    }
    assert!(queue.push(at(1), of(9, 1), "more").is_err());
    assert_eq!(queue.counters().refused, 2);
}

fn push<T: std::fmt::Debug>(queue: &mut Queue<T>, now: Duration, ask: Ask, request: T) {
    queue.push(now, ask, request).unwrap();
}

fn write(id: u128) -> Ask {
    Ask {
        writes: true,
        ..ask(id, 0, Deadline::Infinity)
    }
}

/// Everything that goes now, in its order, and done at once.
fn drain<T>(queue: &mut Queue<T>, now: Duration) -> Vec<T> {
    let mut gone = Vec::new();
    while let Some(next) = queue.pop(now) {
        match next {
            Next::Run(ticket, request) => {
                queue.done(now, ticket, Duration::ZERO, false);
                gone.push(request);
            }
            Next::Fails(_, request) => gone.push(request),
        }
    }
    gone
}

fn run<T>(queue: &mut Queue<T>, now: Duration) -> Option<(Ticket, T)> {
    match queue.pop(now)? {
        Next::Run(ticket, request) => Some((ticket, request)),
        Next::Fails(failure, _) => panic!("{failure:?}"),
    }
}

#[test]
fn immediate_goes_before_dated_and_dated_by_deadline_before_infinity() {
    let mut queue = queue(|_| {});
    let requests = [
        ("whenever", Deadline::Infinity),
        ("in a minute", Deadline::Within(60 * SECOND)),
        ("in a second", Deadline::Within(SECOND)),
        ("now", Deadline::Immediate),
        ("in no time", Deadline::Within(Duration::ZERO)),
        ("in all time", Deadline::Within(Duration::MAX)),
    ];
    for (id, (name, deadline)) in requests.into_iter().enumerate() {
        push(&mut queue, at(5), ask(id as u128, 0, deadline), name);
    }
    let wanted = [
        "now",
        "in no time",
        "in a second",
        "in a minute",
        "in all time",
        "whenever",
    ];
    assert_eq!(drain(&mut queue, at(9)), wanted);
}

#[test]
fn who_came_first_and_is_not_due_later_goes_first_without_sweeps() {
    let mut queue = queue(|options| options.breadth = 0);
    for (n, place) in [70, 10, 90, 20, 20].into_iter().enumerate() {
        let ask = ask(n as u128, place, Deadline::Within(SECOND));
        push(&mut queue, at(n as u64), ask, n);
    }
    // It came last, and is due first.
    let soon = Deadline::Within(SECOND / 2);
    push(&mut queue, at(9), ask(9, 0, soon), 9);
    assert_eq!(drain(&mut queue, at(9)), [9, 0, 1, 2, 3, 4]);
}

#[test]
fn a_sweep_goes_upwards_by_place_and_again_from_the_lowest() {
    let mut queue = queue(|options| options.breadth = 4);
    push(&mut queue, at(0), ask(0, 50, Deadline::Infinity), 50);
    let (ticket, _) = run(&mut queue, at(0)).unwrap();
    queue.done(at(0), ticket, Duration::ZERO, false);
    for (id, place) in [60, 10, 40, 55, 57, 5].into_iter().enumerate() {
        let ask = ask(id as u128, place, Deadline::Infinity);
        push(&mut queue, at(0), ask, place);
    }
    // 57 comes within the four that are looked at as 55 goes, 5 as 57 does.
    assert_eq!(drain(&mut queue, at(0)), [55, 57, 60, 5, 10, 40]);
}

#[test]
fn a_sweep_takes_deadlines_of_one_window_only() {
    let mut queue = queue(|options| options.window = at(50));
    for (place, millis, name) in [(9, 100, "a"), (8, 150, "b"), (1, 151, "c"), (7, 201, "d")] {
        let ask = ask(u128::from(place), place, Deadline::Within(at(millis)));
        push(&mut queue, at(0), ask, name);
    }
    // a and b are of one window, c and d of the next; then it goes up from 1.
    assert_eq!(drain(&mut queue, at(0)), ["b", "a", "c", "d"]);
}

#[test]
fn nobody_is_overtaken_more_often_than_may_be() {
    let mut queue = queue(|options| options.overtakes_max = 10);
    // The farthest waits, and nearer ones keep coming.
    push(&mut queue, at(0), ask(0, u64::MAX, Deadline::Immediate), 0);
    for n in 1..100u64 {
        let ask = ask(u128::from(n), 1, Deadline::Immediate);
        push(&mut queue, at(n), ask, n);
        let (ticket, gone) = run(&mut queue, at(n)).unwrap();
        queue.done(at(n), ticket, Duration::ZERO, false);
        if gone == 0 {
            assert_eq!(n, 11);
            return;
        }
    }
    panic!("it was never its turn");
}

#[test]
fn writes_and_reads_of_an_object_keep_their_order_and_are_not_in_flight_at_once() {
    let mut queue = queue(|_| {});
    let read = |deadline| ask(7, 0, deadline);
    push(&mut queue, at(0), write(7), "write 1");
    push(&mut queue, at(0), read(Deadline::Infinity), "read 1");
    push(&mut queue, at(0), read(Deadline::Immediate), "read 2");
    push(&mut queue, at(0), write(7), "write 2");
    push(&mut queue, at(0), read(Deadline::Immediate), "read 3");
    push(&mut queue, at(0), write(8), "other");

    let (write_1, name) = run(&mut queue, at(0)).unwrap();
    assert_eq!(name, "write 1");
    let (_other, name) = run(&mut queue, at(0)).unwrap();
    assert_eq!(name, "other");
    assert!(queue.pop(at(0)).is_none());
    queue.done(at(0), write_1, Duration::ZERO, false);
    // Reads go together; read 1 is in the way of an immediate one, after the write.
    let (first, one) = run(&mut queue, at(0)).unwrap();
    let (second, two) = run(&mut queue, at(0)).unwrap();
    assert_eq!((one, two), ("read 1", "read 2"));
    assert!(queue.pop(at(0)).is_none());
    queue.done(at(0), second, Duration::ZERO, false);
    assert!(queue.pop(at(0)).is_none());
    queue.done(at(0), first, Duration::ZERO, false);
    assert_eq!(drain(&mut queue, at(0)), ["write 2", "read 3"]);
}

#[test]
fn a_range_waits_for_all_in_it_and_all_in_it_wait_for_the_range() {
    let mut queue = queue(|_| {});
    let range = |range| Ask {
        touches: Touches::Range(range),
        ..write(0)
    };
    push(&mut queue, at(0), write(10), "10");
    push(&mut queue, at(0), ask(19, 0, Deadline::Infinity), "read 19");
    push(&mut queue, at(0), range(10..=19), "10..=19");
    push(&mut queue, at(0), write(20), "20");
    push(&mut queue, at(0), ask(15, 0, Deadline::Immediate), "15");
    push(&mut queue, at(0), range(12..=30), "12..=30");
    let many = Ask {
        touches: Touches::Many(vec![5, 30, 30, 5]),
        ..write(0)
    };
    push(&mut queue, at(0), many, "5 and 30");
    let mut empty = range(3..=3);
    #[expect(clippy::reversed_empty_ranges, reason = "what a caller may hand in")]
    {
        empty.touches = Touches::Range(9..=3);
    }
    push(&mut queue, at(0), empty, "none");
    let mut gone = Vec::new();
    let mut flying = Vec::new();
    while !queue.is_empty() {
        while let Some((ticket, name)) = run(&mut queue, at(0)) {
            flying.push(ticket);
            gone.push(name);
        }
        gone.push("|");
        for ticket in flying.drain(..) {
            queue.done(at(0), ticket, Duration::ZERO, false);
        }
    }
    assert_eq!(
        gone,
        [
            "10", "read 19", "20", "none", "|", "10..=19", "|", "15", "|", "12..=30", "|",
            "5 and 30", "|"
        ]
    );
    assert!(queue.conflicts.is_empty());
}

#[test]
fn what_an_urgent_request_waits_for_is_as_urgent() {
    let mut queue = queue(|_| {});
    let of = |id, deadline| ask(id, 0, deadline);
    push(&mut queue, at(0), of(1, Deadline::Infinity), "waits long");
    push(&mut queue, at(0), write(7), "first write");
    push(&mut queue, at(0), write(7), "second write");
    push(&mut queue, at(0), of(2, Deadline::Within(SECOND)), "dated");
    push(&mut queue, at(0), of(7, Deadline::Immediate), "read");
    let wanted = ["first write", "second write", "read", "dated", "waits long"];
    assert_eq!(drain(&mut queue, at(0)), wanted);
}

#[test]
fn late_requests_are_done_unless_late_ones_fail() {
    let dated = |id| ask(id, 0, Deadline::Within(SECOND));
    let mut patient = queue(|_| {});
    push(&mut patient, at(0), dated(1), "late");
    assert_eq!(patient.next_late(), None);
    assert!(matches!(patient.pop(at(5000)), Some(Next::Run(_, "late"))));

    let mut queue = queue(|options| options.fail_late = true);
    push(&mut queue, at(0), dated(1), "late");
    push(&mut queue, at(500), dated(2), "in time");
    let immediate = ask(3, 0, Deadline::Immediate);
    push(&mut queue, at(0), immediate, "immediate");
    push(&mut queue, at(0), ask(4, 0, Deadline::Infinity), "whenever");
    assert_eq!(queue.next_late(), Some(SECOND));
    let next = queue.pop(at(1001));
    assert!(matches!(next, Some(Next::Fails(Failure::Late, "late"))));
    assert_eq!(queue.next_late(), Some(at(1500)));
    let wanted = ["immediate", "in time", "whenever"];
    assert_eq!(drain(&mut queue, at(1500)), wanted);
    let counters = queue.counters();
    assert_eq!((counters.late, counters.dequeued), (1, 3));
}

#[test]
fn a_late_request_leaves_those_after_it_where_they_are() {
    let mut queue = queue(|options| options.fail_late = true);
    push(&mut queue, at(0), write(7), "flies");
    let (flies, _) = run(&mut queue, at(0)).unwrap();
    let dated = Ask {
        deadline: Deadline::Within(SECOND),
        ..write(7)
    };
    push(&mut queue, at(0), dated, "late");
    push(&mut queue, at(0), write(7), "after it");
    // It fails though it waits for another, and who waits for it waits on.
    let next = queue.pop(at(2000));
    assert!(matches!(next, Some(Next::Fails(Failure::Late, "late"))));
    assert!(queue.pop(at(2000)).is_none());
    // Also who comes only now.
    push(&mut queue, at(2000), write(7), "comes now");
    assert!(queue.pop(at(2000)).is_none());
    queue.done(at(2000), flies, Duration::ZERO, false);
    assert_eq!(drain(&mut queue, at(2000)), ["after it", "comes now"]);
    assert!(queue.conflicts.is_empty());
}

#[test]
fn while_the_device_takes_nothing_late_ones_fail_and_what_needs_none_goes() {
    let mut queue = queue(|options| options.fail_late = true);
    let at_once = |id, deadline| Ask {
        at_once: true,
        ..ask(id, 0, deadline)
    };
    push(&mut queue, at(0), write(7), "flies");
    let (flies, _) = run(&mut queue, at(0)).unwrap();
    let dated = Deadline::Within(SECOND);
    for (ask, name) in [
        (ask(1, 0, Deadline::Immediate), "needs it"),
        (at_once(2, Deadline::Infinity), "whenever"),
        (at_once(7, Deadline::Immediate), "behind what flies"),
        (at_once(3, dated), "dated"),
        (ask(4, 0, dated), "late"),
        (write(8), "a write"),
        (at_once(8, Deadline::Immediate), "after a write"),
    ] {
        push(&mut queue, at(0), ask, name);
    }
    let pop = |queue: &mut Queue<&'static str>, now| match queue.pop_at_once(now) {
        Some(Next::Run(ticket, request)) => {
            queue.done_without(ticket);
            Some((None, request))
        }
        Some(Next::Fails(failure, request)) => Some((Some(failure), request)),
        None => None,
    };
    assert_eq!(pop(&mut queue, at(0)), Some((None, "dated")));
    assert_eq!(pop(&mut queue, at(0)), Some((None, "whenever")));
    assert_eq!(pop(&mut queue, at(1000)), None);
    let late = Some((Some(Failure::Late), "late"));
    assert_eq!(pop(&mut queue, at(1001)), late);
    assert_eq!(pop(&mut queue, at(1001)), None);
    queue.done(at(1001), flies, Duration::ZERO, false);
    let freed = Some((None, "behind what flies"));
    assert_eq!(pop(&mut queue, at(1001)), freed);
    assert_eq!(pop(&mut queue, at(1001)), None);
    let mut left = drain(&mut queue, at(1001));
    left.sort_unstable();
    assert_eq!(left, ["a write", "after a write", "needs it"]);
    // A stopped queue gives all of it.
    push(&mut queue, at(1001), write(9), "stopped");
    queue.stop();
    let stopped = Some((Some(Failure::Stopped), "stopped"));
    assert_eq!(pop(&mut queue, at(1001)), stopped);
    assert!(queue.conflicts.is_empty());
}

/// A queue that has been busy with four requests for longer than it may be.
fn overloaded(policy: Policy) -> Queue<&'static str> {
    let mut queue = queue(|options| {
        options.limits = Limits {
            len_max: 8,
            bytes_max: u64::MAX,
            busy_threshold: 2,
            keep_busy_max: SECOND,
            policy,
        };
    });
    for id in 0..4 {
        push(&mut queue, at(0), ask(id, 0, Deadline::Infinity), "early");
    }
    assert_eq!(queue.busy_for(at(700)), Some(at(700)));
    queue
}

#[test]
fn an_overloaded_queue_refuses_a_part_of_what_comes() {
    let mut queue = overloaded(Policy::Refuse { ratio: 0.5 });
    let comes = |queue: &mut Queue<_>, prioritized| {
        let ask = Ask {
            prioritized,
            ..ask(99, 0, Deadline::Infinity)
        };
        let refused = queue.push(at(1001), ask, "comes").err();
        refused.map(|(failure, _)| failure)
    };
    assert_eq!(comes(&mut queue, false), None);
    assert_eq!(comes(&mut queue, true), None);
    assert_eq!(comes(&mut queue, false), Some(Failure::Refused));
    assert_eq!(comes(&mut queue, false), None);
    assert_eq!(comes(&mut queue, true), None);
    // The limit is everybody's.
    assert_eq!(comes(&mut queue, true), Some(Failure::TooLong));
    assert_eq!((queue.len(), queue.counters().refused), (8, 2));
    assert_eq!(drain(&mut queue, at(1001)).len(), 8);
    assert_eq!(queue.counters().dequeued, 8);
}

#[test]
fn an_overloaded_queue_drops_a_part_of_what_goes() {
    let mut queue = overloaded(Policy::Drop { ratio: 0.5 });
    let failures: Vec<_> = std::iter::from_fn(|| queue.pop(at(1001)))
        .map(|next| match next {
            Next::Run(..) => None,
            Next::Fails(failure, _) => Some(failure),
        })
        .collect();
    // With one other left it is not long any more.
    assert_eq!(failures, [None, Some(Failure::Dropped), None, None]);
    assert_eq!(queue.counters().dropped, 1);
}

#[test]
fn an_overloaded_queue_stops_and_a_stopped_one_fails_everything() {
    for stop in [true, false] {
        let mut queue = overloaded(Policy::Stop);
        if stop {
            queue.stop();
        } else {
            let (failure, _) = queue.push(at(1001), write(9), "comes").unwrap_err();
            assert_eq!(failure, Failure::Stopped);
        }
        assert!(queue.is_stopped());
        assert!(queue.push(at(0), write(9), "comes").is_err());
        for _ in 0..4 {
            let next = queue.pop(at(0));
            assert!(matches!(next, Some(Next::Fails(Failure::Stopped, "early"))));
        }
        assert!(queue.pop(at(0)).is_none() && queue.conflicts.is_empty());
        assert_eq!(queue.counters().stopped, 4);
    }
}

#[test]
fn a_failing_device_stops_the_queue_where_it_should() {
    let mut queue = queue(|options| options.signs.remedy = Remedy::Stop);
    for id in 0..3 {
        push(&mut queue, at(0), write(id), "write");
    }
    let health = [at(1), at(2)].map(|now| {
        let (ticket, _) = run(&mut queue, now).unwrap();
        queue.done(now, ticket, SECOND, true)
    });
    assert_eq!(health, [Health::Good, Health::Stop]);
    let next = queue.pop(at(3));
    assert!(matches!(next, Some(Next::Fails(Failure::Stopped, _))));
    assert_eq!((queue.counters().failed, queue.findings()), (2, 1));
}

#[test]
fn waiting_and_the_devices_time_are_counted_apart() {
    let mut queue = queue(|_| {});
    push(&mut queue, at(100), write(1), "write");
    let (ticket, _) = run(&mut queue, at(350)).unwrap();
    assert_eq!((queue.len(), queue.in_flight()), (0, 1));
    queue.done(at(400), ticket, at(49), false);
    let (waits, times) = (queue.waits(), queue.times());
    assert_eq!((waits.max(), times.max()), (at(250), at(49)));
    assert_eq!((waits.count(), times.count()), (1, 1));
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn failures_are_errors_that_say_what_to_do() {
    assert_eq!(
        Failure::Refused.error().to_string(),
        "full: the device is overloaded, and refused the request; ask again later, or prioritize it"
    );
    let all = [
        Failure::TooLong,
        Failure::Dropped,
        Failure::Late,
        Failure::Stopped,
    ];
    let kinds = all.map(|failure| failure.error().kind());
    assert_eq!(kinds, [Kind::Full, Kind::Full, Kind::Full, Kind::Poisoned]);
}
