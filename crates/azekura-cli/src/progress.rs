//! Progress bars on standard error, for anything long.
//!
//! Promises: nothing at all is drawn where standard error is not a terminal, a bar disappears when
//! it is dropped, and reporting often is cheap (the screen is redrawn a few times a second).
//! It does not know what is being done.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that lives as long as this value.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar over `total` things called `title`.
    pub(crate) fn new(title: &'static str, total: u64) -> Self {
        let template = "  {msg:<24} [{bar:32}] {percent:>3} %  {human_pos} of {human_len}  {eta}";
        Self::styled(title, total, template)
    }

    /// A bar over `total` bytes called `title`.
    pub(crate) fn bytes(title: &'static str, total: u64) -> Self {
        let template = "  {msg:<24} [{bar:32}] {percent:>3} %  {binary_bytes} of \
                        {binary_total_bytes}  {eta}";
        Self::styled(title, total, template)
    }

    /// A bar for work whose units are the library's own: `report` says how many there are.
    pub(crate) fn work(title: &'static str) -> Self {
        Self::styled(title, 1, "  {msg:<24} [{bar:32}] {percent:>3} %  {eta}")
    }

    fn styled(title: &'static str, total: u64, template: &str) -> Self {
        let style = ProgressStyle::with_template(template).expect("the templates are constants");
        let bar = ProgressBar::new(total).with_style(style.progress_chars("#- "));
        bar.set_message(title);
        Self(bar)
    }

    /// `done` of the total.
    pub(crate) fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    /// The shape the library reports in: (done, total).
    pub(crate) fn report(&self) -> impl FnMut(u64, u64) {
        |done, total| {
            self.0.set_length(total);
            self.0.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
