//! Which task runs next, on which thread, and when a thread starts, waits or ends.
//!
//! A state machine: it is called with the time, changes its state, and answers what its caller does. It starts no thread, waits for
//! nothing and runs no task: tests play every order of events. The invariants stand in the module around it.
//!
//! ```text
//!   task     waiting (with a time or without) -> running -> waiting | removed
//!   thread   unused -> starting -> running a step <-> waiting -> unused
//! ```
//!
//! Threads that wait are a stack: the last one that came is woken first, and alone watches the queue, so those at the bottom are
//! without work for long, and end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Next;

/// Of a task; never used again.
pub(super) type TaskId = u64;
/// Of a thread, below `Limits::threads_max`; used again.
pub(super) type ThreadIndex = usize;

/// How many threads there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Steps that run at once without further ado.
    pub(super) at_once: usize,
    /// Without a step that begins for so long, one more runs.
    pub(super) patience: Duration,
    pub(super) threads_max: usize,
    /// Without work for so long a thread ends.
    pub(super) idle: Duration,
}

/// When a task is due; of two that are due at once, which one was first.
type Due = (Instant, u64);

#[derive(Debug)]
enum State<T> {
    Waiting { task: T, due: Option<Due> },
    Running { is_stopped: bool },
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Schedule<T> {
    limits: Limits,
    tasks: BTreeMap<TaskId, State<T>>,
    /// Those that wait for a time, or are due.
    queue: BTreeMap<Due, TaskId>,
    /// Of tasks, and of their places in the queue.
    next_number: u64,
    unused: Vec<ThreadIndex>,
    starting: usize,
    /// Threads that wait, and since when.
    waiting: Vec<(ThreadIndex, Instant)>,
    running: usize,
    /// When the last step began.
    last_began: Option<Instant>,
}

/// What the caller does when it has released the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Call {
    Nothing,
    /// Wakes a waiting thread.
    Wake(ThreadIndex),
    /// Starts a thread, or reports that none can be had ([`Schedule::refused`]).
    Start(ThreadIndex),
}

/// What a thread does next.
#[derive(Debug)]
#[must_use]
pub(super) enum Turn<T> {
    /// The call, then a step of the task, then [`Schedule::ended`].
    Run(TaskId, T, Call),
    /// Waits until then, or until it is woken.
    Wait(Instant),
    /// The call, then its end.
    End(Call),
}

/// What became of a task that is stopped.
#[derive(Debug)]
#[must_use]
pub(super) enum Stopped<T> {
    /// It did not run. The caller drops it.
    Now(T),
    /// A step runs; the thread that runs it drops it.
    AfterStep,
    /// It had ended before.
    Before,
}

impl<T> Schedule<T> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            tasks: BTreeMap::new(),
            queue: BTreeMap::new(),
            next_number: 0,
            unused: (0..limits.threads_max).rev().collect(),
            starting: 0,
            waiting: Vec::new(),
            running: 0,
            last_began: None,
        }
    }

    /// Threads that there are, those that start included.
    pub(super) fn threads(&self) -> usize {
        self.limits.threads_max - self.unused.len()
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// A new task's identity.
    pub(super) fn new_id(&mut self) -> TaskId {
        self.number()
    }

    /// Adds a task that is due now.
    pub(super) fn add(&mut self, id: TaskId, task: T, now: Instant) -> Call {
        let due = (now, self.number());
        self.queue.insert(due, id);
        let due = Some(due);
        self.tasks.insert(id, State::Waiting { task, due });
        self.watch()
    }

    /// Makes a task due, unless it runs: then its notification is found when its step has ended.
    pub(super) fn notified(&mut self, id: TaskId, now: Instant) -> Call {
        let at = (now, self.number());
        let Some(State::Waiting { due, .. }) = self.tasks.get_mut(&id) else {
            return Call::Nothing;
        };
        match due {
            // It keeps its place.
            Some((time, _)) if *time <= now => {}
            _ => {
                if let Some(later) = due.replace(at) {
                    self.queue.remove(&later);
                }
                self.queue.insert(at, id);
            }
        }
        self.watch()
    }

    /// Has a thread watch the queue, if anything is in it.
    fn watch(&mut self) -> Call {
        if self.queue.is_empty() {
            return Call::Nothing;
        }
        if let Some((thread, _)) = self.waiting.last() {
            return Call::Wake(*thread);
        }
        // One that starts will.
        if self.starting > 0 {
            return Call::Nothing;
        }
        let Some(thread) = self.unused.pop() else {
            return Call::Nothing;
        };
        self.starting += 1;
        Call::Start(thread)
    }

    /// The system gave no thread; whether there is another.
    pub(super) fn refused(&mut self, thread: ThreadIndex) -> bool {
        self.starting -= 1;
        self.unused.push(thread);
        self.threads() > 0
    }

    /// A thread runs that a call started.
    pub(super) const fn started(&mut self) {
        self.starting -= 1;
    }

    /// When a task that is due at `due` may begin.
    fn may_begin(&self, due: Instant) -> Instant {
        match self.last_began {
            Some(began) if self.running >= self.limits.at_once => {
                due.max(began) + self.limits.patience
            }
            _ => due,
        }
    }

    /// What a thread does that runs no step.
    pub(super) fn turn(&mut self, thread: ThreadIndex, now: Instant) -> Turn<T> {
        let was_waiting = self.waiting.iter().position(|(other, _)| *other == thread);
        let since = was_waiting.map_or(now, |at| self.waiting.remove(at).1);
        let first = self.queue.first_key_value();
        let first = first.map(|(&due, &id)| (due, id, self.may_begin(due.0)));
        if let Some((due, id, begins)) = first
            && begins <= now
            && let Some(state) = self.tasks.get_mut(&id)
        {
            self.queue.remove(&due);
            let running = State::Running { is_stopped: false };
            if let State::Waiting { task, .. } = std::mem::replace(state, running) {
                self.running += 1;
                self.last_began = Some(now);
                return Turn::Run(id, task, self.watch());
            }
        }
        let ends = since + self.limits.idle;
        let is_needed = first.is_some() && self.waiting.is_empty() && self.starting == 0;
        if ends <= now && !is_needed {
            self.unused.push(thread);
            return Turn::End(self.watch());
        }
        let at = was_waiting.unwrap_or(self.waiting.len());
        self.waiting.insert(at, (thread, since));
        let is_last = at + 1 == self.waiting.len();
        let begins = first.map(|(.., begins)| begins).filter(|_| is_last);
        Turn::Wait(match begins {
            Some(begins) if ends <= now => begins,
            Some(begins) => begins.min(ends),
            None => ends,
        })
    }

    /// A step has ended. What this returns is to be dropped, before [`removed`](Self::removed); `is_notified`: a notification
    /// came since the step began.
    pub(super) fn ended(
        &mut self,
        id: TaskId,
        task: T,
        next: Next,
        is_notified: bool,
        now: Instant,
    ) -> Option<T> {
        let is_stopped = matches!(
            self.tasks.get(&id),
            None | Some(State::Running { is_stopped: true })
        );
        let time = match next {
            _ if is_stopped => return Some(task),
            Next::Done => return Some(task),
            _ if is_notified => Some(now),
            Next::Now => Some(now),
            // Later than any clock: never.
            Next::After(time) => now.checked_add(time),
            Next::Idle => None,
        };
        self.running -= 1;
        let due = time.map(|time| (time, self.number()));
        if let Some(due) = due {
            self.queue.insert(due, id);
        }
        self.tasks.insert(id, State::Waiting { task, due });
        None
    }

    /// A task that `ended` returned is dropped.
    pub(super) fn removed(&mut self, id: TaskId) {
        self.running -= 1;
        self.tasks.remove(&id);
    }

    /// Whether a task is registered.
    pub(super) fn contains(&self, id: TaskId) -> bool {
        self.tasks.contains_key(&id)
    }

    /// No step of the task begins any more.
    pub(super) fn stop(&mut self, id: TaskId) -> Stopped<T> {
        if let Some(State::Running { is_stopped }) = self.tasks.get_mut(&id) {
            *is_stopped = true;
            return Stopped::AfterStep;
        }
        match self.tasks.remove(&id) {
            Some(State::Waiting { task, due }) => {
                if let Some(due) = due {
                    self.queue.remove(&due);
                }
                Stopped::Now(task)
            }
            _ => Stopped::Before,
        }
    }
}

#[cfg(test)]
#[expect(clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::testkit::Random;

    const MS: Duration = Duration::from_millis(1);

    const LIMITS: Limits = Limits {
        at_once: 2,
        patience: Duration::from_millis(5),
        threads_max: 4,
        idle: Duration::from_secs(1),
    };

    fn schedule(limits: Limits) -> (Schedule<&'static str>, Instant) {
        (Schedule::new(limits), Instant::now())
    }

    fn add(schedule: &mut Schedule<&'static str>, name: &'static str, now: Instant) -> (u64, Call) {
        let id = schedule.new_id();
        (id, schedule.add(id, name, now))
    }

    /// A schedule with tasks of these names, whose first thread has started, and their ids.
    fn started<const N: usize>(
        limits: Limits,
        names: [&'static str; N],
    ) -> (Schedule<&'static str>, [TaskId; N], Instant) {
        let (mut schedule, now) = schedule(limits);
        let ids = names.map(|name| add(&mut schedule, name, now).0);
        schedule.started();
        (schedule, ids, now)
    }

    fn run(turn: Turn<&'static str>) -> (TaskId, &'static str, Call) {
        match turn {
            Turn::Run(id, task, call) => (id, task, call),
            other => panic!("a step expected, not {other:?}"),
        }
    }

    fn wait(turn: Turn<&'static str>) -> Instant {
        match turn {
            Turn::Wait(until) => until,
            other => panic!("a wait expected, not {other:?}"),
        }
    }

    #[test]
    fn a_thread_starts_for_the_first_task_and_ends_without_work() {
        let (mut schedule, now) = schedule(LIMITS);
        let (a, call) = add(&mut schedule, "a", now);
        assert_eq!(call, Call::Start(0));
        // A second one is not started before the first has looked.
        assert_eq!(schedule.notified(a, now), Call::Nothing);
        schedule.started();
        let (id, task, call) = run(schedule.turn(0, now));
        assert_eq!((id, task, call), (a, "a", Call::Nothing));
        assert!(schedule.ended(a, task, Next::Idle, false, now).is_none());
        assert_eq!(wait(schedule.turn(0, now)), now + LIMITS.idle);
        let later = now + LIMITS.idle;
        assert!(matches!(schedule.turn(0, later), Turn::End(Call::Nothing)));
        assert_eq!(schedule.threads(), 0);
        assert_eq!(schedule.notified(a, later), Call::Start(0));
    }

    #[test]
    fn a_thread_stays_while_a_task_waits_for_a_time() {
        let (mut schedule, [a], now) = started(LIMITS, ["a"]);
        let (_, task, _) = run(schedule.turn(0, now));
        let hour = 3_600_000 * MS;
        let next = Next::After(hour);
        assert!(schedule.ended(a, task, next, false, now).is_none());
        assert_eq!(wait(schedule.turn(0, now)), now + LIMITS.idle);
        assert_eq!(wait(schedule.turn(0, now + LIMITS.idle)), now + hour);
        assert_eq!(run(schedule.turn(0, now + hour)).0, a);
    }

    #[test]
    fn a_notification_makes_a_waiting_task_due_and_during_a_step_the_next_one() {
        let (mut schedule, [a], now) = started(LIMITS, ["a"]);
        let (_, task, _) = run(schedule.turn(0, now));
        assert_eq!(schedule.notified(a, now), Call::Nothing);
        assert!(schedule.ended(a, task, Next::Idle, true, now).is_none());
        let (_, task, _) = run(schedule.turn(0, now));
        let next = Next::After(100 * MS);
        assert!(schedule.ended(a, task, next, false, now).is_none());
        assert_eq!(wait(schedule.turn(0, now)), now + 100 * MS);
        assert_eq!(schedule.notified(a, now + MS), Call::Wake(0));
        assert_eq!(run(schedule.turn(0, now + MS)).0, a);
        assert!(schedule.queue.is_empty(), "its later time is forgotten");
    }

    #[test]
    fn a_task_that_always_has_more_to_do_leaves_the_others_their_steps() {
        let limits = Limits {
            threads_max: 1,
            ..LIMITS
        };
        let (mut schedule, ids, now) = started(limits, ["greedy", "b", "c"]);
        let mut ran = Vec::new();
        for at in 0..6_u32 {
            // Each step takes a millisecond, and all are notified meanwhile.
            let (id, task, _) = run(schedule.turn(0, now + at * MS));
            ran.push(task);
            let end = now + (at + 1) * MS;
            for id in ids {
                _ = schedule.notified(id, end);
            }
            assert!(schedule.ended(id, task, Next::Now, false, end).is_none());
        }
        assert_eq!(ran, ["greedy", "b", "c", "greedy", "b", "c"]);
    }

    #[test]
    fn tasks_run_in_the_order_in_which_they_are_due() {
        let (mut schedule, ids, now) = started(LIMITS, ["a", "b", "c"]);
        for (id, after) in ids.into_iter().zip([30, 10, 20]) {
            let (_, task, _) = run(schedule.turn(0, now));
            let next = Next::After(after * MS);
            assert!(schedule.ended(id, task, next, false, now).is_none());
        }
        for (name, at) in [("b", 10), ("c", 20), ("a", 30)] {
            assert_eq!(wait(schedule.turn(0, now + (at - 1) * MS)), now + at * MS);
            let (id, task, _) = run(schedule.turn(0, now + at * MS));
            assert_eq!(task, name);
            let ended = schedule.ended(id, task, Next::Idle, false, now + at * MS);
            assert!(ended.is_none());
        }
    }

    #[test]
    fn steps_that_block_have_one_more_begin_after_a_while_up_to_the_bound() {
        let (mut schedule, ids, now) = started(LIMITS, ["a", "b", "c", "d", "e"]);
        let (_, a, call) = run(schedule.turn(0, now));
        assert_eq!(call, Call::Start(1));
        schedule.started();
        let (.., call) = run(schedule.turn(1, now));
        assert_eq!(call, Call::Start(2));
        schedule.started();
        // As many run as may at once.
        assert_eq!(wait(schedule.turn(2, now)), now + 5 * MS);
        let (id, _, call) = run(schedule.turn(2, now + 5 * MS));
        assert_eq!((id, call), (ids[2], Call::Start(3)));
        schedule.started();
        assert_eq!(wait(schedule.turn(3, now + 5 * MS)), now + 10 * MS);
        let (.., call) = run(schedule.turn(3, now + 10 * MS));
        // There are no more threads.
        assert_eq!((call, schedule.threads()), (Call::Nothing, 4));
        // One that ends its step continues with what is due.
        let later = now + 30 * MS;
        assert!(
            schedule
                .ended(ids[0], a, Next::Idle, false, later)
                .is_none()
        );
        assert_eq!(run(schedule.turn(0, later)).0, ids[4]);
    }

    #[test]
    fn steps_that_end_soon_start_no_thread_for_others_that_wait() {
        let (mut schedule, ids, now) = started(LIMITS, ["a", "b", "c", "d"]);
        _ = run(schedule.turn(0, now));
        schedule.started();
        let (_, b, _) = run(schedule.turn(1, now));
        schedule.started();
        assert_eq!(wait(schedule.turn(2, now)), now + 5 * MS);
        let at = now + 4 * MS;
        assert!(schedule.ended(ids[1], b, Next::Idle, false, at).is_none());
        assert_eq!(run(schedule.turn(1, at)).0, ids[2]);
        assert_eq!(wait(schedule.turn(2, now + 5 * MS)), at + 5 * MS);
    }

    #[test]
    fn a_task_is_stopped_in_the_queue_during_a_step_and_after_its_end() {
        let (mut schedule, now) = schedule(LIMITS);
        let (a, _) = add(&mut schedule, "a", now);
        let (b, _) = add(&mut schedule, "b", now);
        assert!(matches!(schedule.stop(a), Stopped::Now("a")));
        assert!(matches!(schedule.stop(a), Stopped::Before));
        assert_eq!(schedule.notified(a, now), Call::Nothing);
        schedule.started();
        let (_, task, _) = run(schedule.turn(0, now));
        assert!(matches!(schedule.stop(b), Stopped::AfterStep));
        // It is registered until it is dropped, whatever it answered.
        assert_eq!(schedule.ended(b, task, Next::Now, true, now), Some("b"));
        assert!(schedule.contains(b));
        schedule.removed(b);
        assert!(!schedule.contains(b) && schedule.queue.is_empty());
    }

    #[test]
    fn where_the_system_refuses_threads_those_there_are_do_all() {
        let (mut schedule, now) = schedule(LIMITS);
        let (a, _) = add(&mut schedule, "a", now);
        assert!(!schedule.refused(0), "there is none at all");
        assert_eq!(schedule.notified(a, now), Call::Start(0), "tried again");
        schedule.started();
        let (b, _) = add(&mut schedule, "b", now);
        let (_, task, call) = run(schedule.turn(0, now));
        assert_eq!(call, Call::Nothing, "already asked for");
        assert!(schedule.refused(1));
        assert!(schedule.ended(a, task, Next::Idle, false, now).is_none());
        assert_eq!(run(schedule.turn(0, now)).0, b);
    }

    /// A thread as the test plays it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Played {
        Unused,
        Starting,
        Waiting(Instant),
        Running(TaskId),
    }

    /// Random events: at any moment a thread starts, or waits for the time at which the next task begins, or there are no more
    /// threads. In every second play the system refuses some.
    #[test]
    fn whatever_happens_a_task_that_is_due_gets_a_step() {
        for seed in 0..200 {
            play(&mut Random::new(seed), seed % 2 == 1);
        }
    }

    fn play(random: &mut Random, is_refused: bool) {
        let (mut schedule, mut now) = schedule(LIMITS);
        let mut threads = [Played::Unused; 4];
        let mut ids = Vec::new();
        for _ in 0..300 {
            let call = match random.below(10) {
                0 if ids.len() < 8 => {
                    let (id, call) = add(&mut schedule, "task", now);
                    ids.push(id);
                    call
                }
                1 if !ids.is_empty() => {
                    let id = ids.swap_remove(random.below(ids.len() as u64) as usize);
                    _ = schedule.stop(id);
                    Call::Nothing
                }
                2..=4 if !ids.is_empty() => {
                    let id = ids[random.below(ids.len() as u64) as usize];
                    schedule.notified(id, now)
                }
                5 => {
                    now += random.below(20) as u32 * MS;
                    Call::Nothing
                }
                _ => {
                    let thread = random.below(4) as usize;
                    move_on(&mut schedule, &mut threads, thread, random, now)
                }
            };
            let refused = is_refused && random.below(8) == 0;
            follow(&mut schedule, &mut threads, call, refused, now);
            watched(&schedule, &threads, is_refused, now);
        }
        // Steps end, and time passes: all that is due gets its step, and threads end.
        for _ in 0..200 {
            for thread in 0..4 {
                if let Played::Running(id) = threads[thread] {
                    end(&mut schedule, id, Next::Idle, now);
                    threads[thread] = Played::Waiting(now);
                }
                let call = move_on(&mut schedule, &mut threads, thread, random, now);
                follow(&mut schedule, &mut threads, call, false, now);
            }
            now += 20 * MS;
        }
        let due = schedule.queue.keys().filter(|(time, _)| *time <= now);
        assert_eq!((due.count(), schedule.threads()), (0, 0), "{threads:?}");
    }

    /// Has a thread do what it does next: if it runs, its step ends.
    fn move_on(
        schedule: &mut Schedule<&'static str>,
        threads: &mut [Played; 4],
        thread: ThreadIndex,
        random: &mut Random,
        now: Instant,
    ) -> Call {
        match threads[thread] {
            Played::Unused => return Call::Nothing,
            Played::Waiting(until) if until > now => return Call::Nothing,
            Played::Waiting(_) => {}
            Played::Starting => schedule.started(),
            Played::Running(id) => {
                let next = match random.below(4) {
                    0 => Next::Idle,
                    1 => Next::Now,
                    2 => Next::After(random.below(30) as u32 * MS),
                    _ => Next::Done,
                };
                end(schedule, id, next, now);
            }
        }
        threads[thread] = Played::Unused;
        let (state, call) = match schedule.turn(thread, now) {
            Turn::Run(id, _, call) => {
                assert!(!threads.contains(&Played::Running(id)), "on two threads");
                (Played::Running(id), call)
            }
            Turn::Wait(until) => (Played::Waiting(until), Call::Nothing),
            Turn::End(call) => (Played::Unused, call),
        };
        threads[thread] = state;
        call
    }

    fn end(schedule: &mut Schedule<&'static str>, id: TaskId, next: Next, now: Instant) {
        if schedule.ended(id, "task", next, false, now).is_some() {
            schedule.removed(id);
        }
    }

    /// Does what is called for. The system never refuses the only thread.
    fn follow(
        schedule: &mut Schedule<&'static str>,
        threads: &mut [Played; 4],
        call: Call,
        is_refused: bool,
        now: Instant,
    ) {
        match call {
            Call::Nothing => {}
            Call::Wake(thread) => match &mut threads[thread] {
                Played::Waiting(until) => *until = now.min(*until),
                other => panic!("{other:?} is woken"),
            },
            Call::Start(thread) => {
                assert_eq!(threads[thread], Played::Unused);
                let is_only = threads.iter().all(|other| *other == Played::Unused);
                if is_refused && !is_only {
                    assert!(schedule.refused(thread));
                } else {
                    threads[thread] = Played::Starting;
                }
            }
        }
    }

    /// Whether a thread watches the queue, or all there are run.
    fn watched(
        schedule: &Schedule<&'static str>,
        threads: &[Played; 4],
        is_refused: bool,
        now: Instant,
    ) {
        let Some((&(due, _), _)) = schedule.queue.first_key_value() else {
            return;
        };
        let all_run = is_refused || !threads.contains(&Played::Unused);
        let is_watched = threads.iter().any(|thread| match *thread {
            Played::Unused => false,
            Played::Starting => true,
            Played::Waiting(until) => until <= schedule.may_begin(due).max(now),
            Played::Running(_) => all_run,
        });
        assert!(is_watched, "{due:?} {threads:?}");
    }
}
