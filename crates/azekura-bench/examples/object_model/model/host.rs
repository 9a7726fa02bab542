//! One machine in virtual time: a drive, a clock, and what is on the way to the drive without anybody waiting for it.
//!
//! Patterns act on it. Nothing here sleeps or measures: an hour of a disk passes in seconds, and the same calls give
//! the same times everywhere. It knows no store.

use azekura::io::sim::drive::{Command, Completion, Counts, Drive, Parameters, Ticket};

/// A machine.
#[derive(Debug)]
pub(crate) struct Host {
    drive: Drive,
    now_ns: u64,
    /// Writes on the way in the background.
    flying: Vec<Ticket>,
}

impl Host {
    /// At time 0, with a drive at rest.
    pub(crate) fn new(parameters: Parameters) -> Self {
        let drive = Drive::new(parameters);
        Self {
            drive,
            now_ns: 0,
            flying: Vec::new(),
        }
    }

    /// Nanoseconds since it was made.
    pub(crate) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Commands to the drive so far.
    pub(crate) const fn counts(&self) -> Counts {
        self.drive.counts()
    }

    /// The drive's numbers.
    pub(crate) const fn parameters(&self) -> &Parameters {
        self.drive.parameters()
    }

    /// Lets time pass without a request.
    pub(crate) const fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
    }

    /// Moves the clock on so that what began at `start` took a multiple of `tick_ns`, at least one: who polls sees an end
    /// only then. 0 is nobody who polls.
    pub(crate) const fn poll(&mut self, start: u64, tick_ns: u64) {
        if tick_ns > 0 {
            let ticks = (self.now_ns - start).div_ceil(tick_ns);
            self.now_ns = start + if ticks == 0 { 1 } else { ticks } * tick_ns;
        }
    }

    /// Runs a command and waits for its end.
    pub(crate) fn wait(&mut self, command: Command, offset: u64, len: u64) {
        let ticket = self.drive.submit(self.now_ns, command, offset, len);
        while let Some(done) = self.drive.next_completion() {
            self.landed(done);
            if done.ticket == ticket {
                self.now_ns = self.now_ns.max(done.at);
                return;
            }
        }
    }

    /// Sends a write off and does not wait.
    pub(crate) fn start_write(&mut self, offset: u64, len: u64) {
        let ticket = self.drive.submit(self.now_ns, Command::Write, offset, len);
        self.flying.push(ticket);
    }

    /// How many writes are on the way in the background.
    pub(crate) const fn flying(&self) -> usize {
        self.flying.len()
    }

    /// Waits for one of them, if there are any.
    pub(crate) fn wait_for_write(&mut self) {
        if let Some(done) = self.drive.next_completion() {
            self.landed(done);
            self.now_ns = self.now_ns.max(done.at);
        }
    }

    fn landed(&mut self, done: Completion) {
        self.flying.retain(|ticket| *ticket != done.ticket);
    }
}
