//! Work that is tried while something else runs.
//!
//! [`concurrently`] runs the one until the other is done, and ends both whatever happens: a test that fails reports why, and
//! does not hang. [`tried`] counts what it tried. It does not know what the two do.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `work`, and in another thread `unrest`, which ends soon after its flag is set: when `work` is done, or
/// panicked. Returns what both returned; a panic of either continues to the caller.
pub fn concurrently<R, U: Send>(
    unrest: impl FnOnce(&AtomicBool) -> U + Send,
    work: impl FnOnce() -> R,
) -> (R, U) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let unrest = scope.spawn(|| unrest(&stop));
        let done = catch_unwind(AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        let unrest = unrest.join().unwrap_or_else(|panic| resume_unwind(panic));
        (done.unwrap_or_else(|panic| resume_unwind(panic)), unrest)
    })
}

/// States on standard error how much a test tried, in a line that begins with `tried:`.
pub fn tried(what: &str) {
    writeln!(std::io::stderr(), "tried: {what}").expect("standard error");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(stop: &AtomicBool) -> u64 {
        while !stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        7
    }

    #[test]
    fn unrest_lasts_as_long_as_the_work_even_if_that_panics() {
        assert_eq!(concurrently(until, || "done"), ("done", 7));
        let panicked = catch_unwind(|| concurrently(until, || panic!("the work")));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"the work"));
        let panicked = catch_unwind(|| concurrently(|_| panic!("the unrest"), || ()));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"the unrest"));
    }
}
