//! Progress bars on standard error, for anything long.
//!
//! Promises: nothing at all is drawn where standard error is not a terminal, a bar disappears when
//! it is dropped, and reporting often is cheap (the screen is redrawn a few times a second).
//! It does not know what is being done.

use std::cell::Cell;
use std::io::{IsTerminal as _, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is not that many bytes may be over at once: it shows no bar before `PATIENCE`.
const MANY: u64 = 256 << 20;
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a bar moves without reports.
const STEP: Duration = Duration::from_millis(200);

/// How far so many bytes are.
const OF_BYTES: &str =
    "  {msg:<24} [{bar:32}] {percent:>3} %  {binary_bytes} of {binary_total_bytes}  {eta}";

/// A bar that lives as long as this value.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Since when it waits to be drawn, if it does.
    waits: Cell<Option<Instant>>,
}

impl Progress {
    /// A bar over `total` things called `title`.
    pub(crate) fn new(title: &'static str, total: u64) -> Self {
        let template = "  {msg:<24} [{bar:32}] {percent:>3} %  {human_pos} of {human_len}  {eta}";
        Self::styled(title, total, template)
    }

    /// A bar over `total` bytes called `title`.
    pub(crate) fn bytes(title: &'static str, total: u64) -> Self {
        Self::styled(title, total, OF_BYTES)
    }

    /// A bar for work whose units are the library's own: `report` passes how many there are.
    pub(crate) fn work(title: &'static str) -> Self {
        Self::styled(title, 1, "  {msg:<24} [{bar:32}] {percent:>3} %  {eta}")
    }

    /// As `bytes`, of what may be over at once: drawn if that is much, or takes longer than a second.
    pub(crate) fn patient(title: &'static str, total: u64) -> Self {
        if is_due(total, Duration::ZERO) {
            return Self::bytes(title, total);
        }
        let progress = Self::drawn(title, total, OF_BYTES, ProgressDrawTarget::hidden());
        progress.waits.set(Some(Instant::now()));
        progress
    }

    fn styled(title: &'static str, total: u64, template: &str) -> Self {
        Self::drawn(title, total, template, ProgressDrawTarget::stderr())
    }

    fn drawn(title: &'static str, total: u64, template: &str, target: ProgressDrawTarget) -> Self {
        let style = ProgressStyle::with_template(template).expect("the templates are constants");
        let style = style.progress_chars("#- ").tick_chars("|/-\\ ");
        let bar = ProgressBar::with_draw_target(Some(total), target).with_style(style);
        bar.set_message(title);
        Self {
            bar,
            waits: Cell::new(None),
        }
    }

    /// `done` of the total.
    pub(crate) fn set(&self, done: u64) {
        if self
            .waits
            .get()
            .is_some_and(|since| is_due(done, since.elapsed()))
        {
            self.waits.set(None);
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(done);
    }

    /// The shape the library reports in: (done, total).
    pub(crate) fn report(&self) -> impl FnMut(u64, u64) {
        |done, total| {
            self.bar.set_length(total);
            self.bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Whether a bar is to be drawn for so many bytes, after so long.
fn is_due(bytes: u64, after: Duration) -> bool {
    bytes >= MANY || after >= PATIENCE
}

/// A sign of life for one long call, from which nothing is heard until it ends. Lives as long as this value.
pub(crate) struct Waiting(Option<(Sender<()>, JoinHandle<()>)>);

impl Waiting {
    /// For a call called `title` that moves so many `bytes`.
    pub(crate) fn new(title: &'static str, bytes: u64) -> Self {
        if !stderr().is_terminal() {
            return Self(None);
        }
        let (end, ended) = channel();
        let thread = std::thread::Builder::new().spawn(move || {
            let first = if is_due(bytes, Duration::ZERO) {
                Duration::ZERO
            } else {
                PATIENCE
            };
            let is_over = |after| ended.recv_timeout(after) != Err(RecvTimeoutError::Timeout);
            if is_over(first) {
                return;
            }
            let template = "  {msg:<24} {spinner} {binary_total_bytes}  {elapsed}";
            let progress = Progress::styled(title, bytes, template);
            progress.bar.tick();
            while !is_over(STEP) {
                progress.bar.tick();
            }
        });
        // Where the system refuses it, the call continues without.
        Self(thread.ok().map(|thread| (end, thread)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            // It panics nowhere, and owes nothing.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_and_over_at_once_shows_no_bar() {
        let (short, long) = (Duration::from_millis(900), Duration::from_millis(1100));
        assert!(!is_due(255 << 20, short));
        assert!(is_due(256 << 20, Duration::ZERO));
        assert!(is_due(1, long));
    }
}
