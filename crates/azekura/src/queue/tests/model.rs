//! Random requests, held against an obvious model of the queue.
//!
//! The model keeps every request in one list, and looks through all of it for every question: who conflicts with whom, who
//! is as urgent as whom, who is nearest. So it shares no idea with the queue but its rules.

use super::*;
use crate::testkit::Random;

/// A request as the model has it.
#[derive(Clone, Debug)]
struct Known {
    number: u64,
    ask: Ask,
    /// Class and deadline, as urgent as who waits for it.
    due: (u8, Duration),
    deadline: Option<Duration>,
    state: State,
    overtaken: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waits,
    Flies,
    /// It failed, or was cancelled, while it waited.
    Gone,
}

fn conflict(a: &Known, b: &Known) -> bool {
    let ids = |known: &Known| match &known.ask.touches {
        Touches::One(id) => vec![*id],
        Touches::Many(ids) => ids.clone(),
        Touches::Range(range) => range.clone().collect(),
    };
    let (first, second) = (ids(a), ids(b));
    (a.ask.writes || b.ask.writes) && first.iter().any(|id| second.contains(id))
}

/// All that is not done. What failed stays until nothing before it is left that it conflicts with.
#[derive(Default)]
struct Model(Vec<Known>);

impl Model {
    fn is_blocked(&self, at: usize) -> bool {
        self.0[..at]
            .iter()
            .any(|before| conflict(before, &self.0[at]))
    }

    fn push(&mut self, known: Known) {
        let due = known.due;
        self.0.push(known);
        let mut urgent = vec![self.0.len() - 1];
        while let Some(at) = urgent.pop() {
            for before in 0..at {
                if conflict(&self.0[before], &self.0[at]) && self.0[before].due > due {
                    self.0[before].due = due;
                    urgent.push(before);
                } else if conflict(&self.0[before], &self.0[at])
                    && self.0[before].state == State::Gone
                {
                    urgent.push(before);
                }
            }
        }
    }

    fn mark_dead(&mut self) {
        while let Some(at) =
            (0..self.0.len()).find(|at| self.0[*at].state == State::Gone && !self.is_blocked(*at))
        {
            self.0.remove(at);
        }
    }

    /// Who has to be next while the device takes nothing.
    fn next_at_once(&self) -> Option<u64> {
        let may = |at: &usize| {
            let known = &self.0[*at];
            known.state == State::Waits && known.ask.at_once && !self.is_blocked(*at)
        };
        let next = (0..self.0.len()).filter(may);
        let next = next.min_by_key(|at| (self.0[*at].due, self.0[*at].number));
        next.map(|at| self.0[at].number)
    }

    /// Who has to be next: by looking at all.
    fn next(&mut self, head: u64, options: &Options) -> Option<u64> {
        let free = |at: &usize| self.0[*at].state == State::Waits && !self.is_blocked(*at);
        let mut order: Vec<usize> = (0..self.0.len()).filter(free).collect();
        order.sort_by_key(|at| (self.0[*at].due, self.0[*at].number));
        let (class, deadline) = self.0[*order.first()?].due;
        let until = deadline.saturating_add(options.window);
        let mut candidates: Vec<usize> = Vec::new();
        for at in order.iter().take(options.breadth) {
            if self.0[*at].due.0 != class || self.0[*at].due.1 > until {
                break;
            }
            candidates.push(*at);
            if self.0[*at].overtaken == options.overtakes_max {
                break;
            }
        }
        let above = candidates
            .iter()
            .filter(|at| self.0[**at].ask.place >= head);
        let chosen = above
            .min_by_key(|at| self.0[**at].ask.place)
            .or(candidates.iter().min_by_key(|at| self.0[**at].ask.place))
            .copied()?;
        for at in order.into_iter().take_while(|at| *at != chosen) {
            self.0[at].overtaken += 1;
            assert!(self.0[at].overtaken <= options.overtakes_max);
        }
        Some(self.0[chosen].number)
    }
}

fn random_ask(dice: &mut Random) -> Ask {
    let id = u128::from(dice.below(12));
    let touches = match dice.below(10) {
        0 => Touches::Range(id..=id + u128::from(dice.below(4))),
        1 => Touches::Many((0..3).map(|_| u128::from(dice.below(12))).collect()),
        _ => Touches::One(id),
    };
    let deadline = match dice.below(4) {
        0 => Deadline::Immediate,
        1 => Deadline::Infinity,
        _ => Deadline::Within(at(dice.below(200))),
    };
    Ask {
        touches,
        writes: dice.below(3) == 0,
        place: dice.below(100),
        deadline,
        bytes: 0,
        at_once: dice.below(4) == 0,
        prioritized: false,
    }
}

#[test]
fn random_requests_go_as_the_model_says() {
    for seed in 0..60u64 {
        let mut dice = Random::new(seed);
        let options = Options {
            breadth: 1 + dice.below(6) as usize,
            window: at(dice.below(100)),
            overtakes_max: dice.below(5) as u32,
            fail_late: seed % 2 == 0,
            ..Options::default()
        };
        let mut queue = Queue::new(options).unwrap();
        let mut model = Model::default();
        let (mut flying, mut now, mut head, mut number) = (Vec::new(), Duration::ZERO, 0, 0);
        for step in 0..600 {
            now += at(dice.below(20));
            let is_end = step >= 400;
            match dice.below(4) {
                3 => {
                    // As often one that does not wait.
                    let cancelled = dice.below(number + 1);
                    let mut known = model.0.iter_mut();
                    let waits = known.find(|of| of.number == cancelled && of.state == State::Waits);
                    let is_waiting = waits.map(|of| of.state = State::Gone).is_some();
                    let found = queue.cancel(cancelled);
                    assert_eq!(found, is_waiting.then_some(cancelled));
                    model.mark_dead();
                }
                0 if !is_end => {
                    let ask = random_ask(&mut dice);
                    assert_eq!(queue.push(now, ask.clone(), number).unwrap(), number);
                    let (class, deadline) = match ask.deadline {
                        Deadline::Immediate => (0, Duration::ZERO),
                        Deadline::Within(time) => (1, now + time),
                        Deadline::Infinity => (2, Duration::MAX),
                    };
                    model.push(Known {
                        number,
                        due: (class, deadline),
                        deadline: (class == 1).then_some(deadline),
                        ask,
                        state: State::Waits,
                        overtaken: 0,
                    });
                    number += 1;
                }
                1 => {
                    let takes = dice.below(3) > 0;
                    pop_both(&mut queue, &mut model, now, takes, &mut head, &mut flying);
                }
                _ if !flying.is_empty() => {
                    let at = dice.below(flying.len() as u64) as usize;
                    let (ticket, number) = flying.swap_remove(at);
                    queue.done(now, ticket, Duration::ZERO, false);
                    model.0.retain(|known| known.number != number);
                    model.mark_dead();
                }
                _ => {}
            }
            let waits = model
                .0
                .iter()
                .filter(|known| known.state == State::Waits)
                .count();
            assert_eq!((queue.len(), queue.in_flight()), (waits, flying.len()));
        }
        drain_flying(&mut queue, flying, now);
        let counters = queue.counters();
        assert_eq!(counters.enqueued, number);
        let left = counters.late + counters.cancelled;
        assert_eq!(counters.enqueued, counters.dequeued + left);
        assert!(queue.conflicts.is_empty() && queue.is_empty());
    }
}

fn pop_both(
    queue: &mut Queue<u64>,
    model: &mut Model,
    now: Duration,
    takes: bool,
    head: &mut u64,
    flying: &mut Vec<(Ticket, u64)>,
) {
    let options = queue.options;
    let pop = |queue: &mut Queue<u64>| {
        if takes {
            queue.pop(now)
        } else {
            queue.pop_at_once(now)
        }
    };
    let late = |known: &&mut Known| {
        let is_late = known.deadline.is_some_and(|deadline| deadline < now);
        options.fail_late && known.state == State::Waits && is_late
    };
    let late = model.0.iter_mut().filter(late);
    if let Some(late) = late.min_by_key(|known| (known.deadline, known.number)) {
        late.state = State::Gone;
        let number = late.number;
        let next = pop(queue);
        assert!(matches!(next, Some(Next::Fails(Failure::Late, told)) if told == number));
        model.mark_dead();
        return;
    }
    let wanted = if takes {
        model.next(*head, &options)
    } else {
        model.next_at_once()
    };
    let gone = pop(queue).map(|next| match next {
        Next::Run(ticket, number) => (ticket, number),
        Next::Fails(failure, _) => panic!("{failure:?}"),
    });
    assert_eq!(gone.as_ref().map(|(_, number)| *number), wanted);
    let Some((ticket, number)) = gone else {
        return;
    };
    let at = model
        .0
        .iter()
        .position(|known| known.number == number)
        .unwrap();
    if !model.0[at].ask.at_once {
        *head = model.0[at].ask.place;
    }
    model.0[at].state = State::Flies;
    let flies = &model.0[at];
    let others = model
        .0
        .iter()
        .filter(|known| known.state == State::Flies && known.number != number);
    assert!(others.into_iter().all(|other| !conflict(other, flies)));
    flying.push((ticket, number));
}

fn drain_flying(queue: &mut Queue<u64>, flying: Vec<(Ticket, u64)>, now: Duration) {
    for (ticket, _) in flying {
        queue.done(now, ticket, Duration::ZERO, false);
    }
    drain(queue, now);
}
