//! The answer to a request, before it exists.
//!
//! A [`Pending`] is a future of the standard library, bound to no runtime; a thread can also wait for it. Dropping it cancels a request
//! that waits in the queue. A `Reply` gives the answer once; if it is dropped before, the answer is an error, so no caller waits for ever.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use super::Shared;
use crate::error::{Error, Kind, Result};

#[derive(Debug)]
enum State<T> {
    /// No answer yet; the waker of its future.
    Open(Option<Waker>),
    There(Result<T>),
    Taken,
}

#[derive(Debug)]
struct Answer<T> {
    state: Mutex<State<T>>,
    came: Condvar,
}

/// An answer, present or future. Poll it, or [`wait`](Self::wait).
///
/// Dropping it cancels its request if that has not begun: nothing of it happens, and its place in the queue is free. A request that
/// has begun ends as if its answer were awaited: a change happens as a whole, or not at all if it fails. The caller that drops an
/// answer does not learn which of these it was.
#[derive(Debug)]
#[must_use = "the answer may be an error, and dropping it cancels the request"]
pub struct Pending<T> {
    answer: Arc<Answer<T>>,
    /// The request's number in the queue, once it is sent.
    queued: Option<(Arc<Shared>, u64)>,
}

/// Gives the answer.
#[derive(Debug)]
pub(super) struct Reply<T>(Option<Arc<Answer<T>>>);

/// Both halves of an answer.
pub(super) fn pair<T>() -> (Reply<T>, Pending<T>) {
    let answer = Arc::new(Answer {
        state: Mutex::new(State::Open(None)),
        came: Condvar::new(),
    });
    let reply = Reply(Some(Arc::clone(&answer)));
    let queued = None;
    (reply, Pending { answer, queued })
}

impl<T> Pending<T> {
    /// Blocks this thread until the answer exists.
    pub fn wait(self) -> Result<T> {
        let mut state = self.answer.state.lock();
        while matches!(*state, State::Open(_)) {
            self.answer.came.wait(&mut state);
        }
        taken(&mut state)
    }

    /// Whether the answer exists.
    pub fn is_there(&self) -> bool {
        !matches!(*self.answer.state.lock(), State::Open(_))
    }

    /// Records where the request waits.
    pub(super) fn queued(&mut self, shared: &Arc<Shared>, number: u64) {
        self.queued = Some((Arc::clone(shared), number));
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if let Some((shared, number)) = self.queued.take()
            && !self.is_there()
        {
            shared.cancel(number);
        }
    }
}

fn taken<T>(state: &mut State<T>) -> Result<T> {
    match std::mem::replace(state, State::Taken) {
        State::There(result) => result,
        _ => unreachable!("an answer is taken once: a future that was ready is not polled again"),
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let mut state = self.answer.state.lock();
        if let State::Open(waker) = &mut *state {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        Poll::Ready(taken(&mut state))
    }
}

impl<T> Reply<T> {
    /// Gives the answer.
    pub(super) fn keep(mut self, result: Result<T>) {
        if let Some(answer) = self.0.take() {
            answer.give(result);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            let error = Error::new(Kind::Poisoned, "the request was abandoned")
                .remedy("reopen the store, and look what is there");
            answer.give(Err(error));
        }
    }
}

impl<T> Answer<T> {
    fn give(&self, result: Result<T>) {
        let before = std::mem::replace(&mut *self.state.lock(), State::There(result));
        self.came.notify_all();
        if let State::Open(Some(waker)) = before {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::error::refusal;

    #[derive(Debug, Default)]
    struct Counted(AtomicU32);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_last_who_polled_is_woken_once() {
        let wakers = [Arc::new(Counted::default()), Arc::new(Counted::default())];
        let (reply, mut pending) = pair();
        for waker in &wakers {
            let waker = Waker::from(Arc::clone(waker));
            let polled = Pin::new(&mut pending).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        assert!(!pending.is_there());
        reply.keep(Ok(7));
        assert!(pending.is_there());
        let woken = wakers.map(|waker| waker.0.load(Ordering::SeqCst));
        assert_eq!(woken, [0, 1]);
        assert_eq!(pending.wait().unwrap(), 7);
    }

    #[test]
    fn a_promise_that_is_dropped_is_an_error() {
        let (reply, pending) = pair::<()>();
        let waits = std::thread::spawn(|| pending.wait());
        drop(reply);
        refusal(waits.join().unwrap(), Kind::Poisoned);
    }
}
