//! Requests carried by the kernel's ring (`io_uring`), for storages that are files of the system.
//!
//! Entries are gathered by `launch` and handed over by one call of the system in `land`, which waits in the same call.
//! The waker is an event counter, watched by a poll that is one entry more in the ring.
//!
//! 1. A slot's buffer is the kernel's from when its entry is made until its completion was seen. No thread reads or
//!    writes it meanwhile, and it is not freed: also where the flight is dropped, or the kernel refuses to be waited for.
//! 2. A slot has at most one entry, so the ring's queues, which have room for every slot and the poll, never overflow.
//! 3. A transfer that came short is continued, off a block's middle only where blocks need not be whole. One that was
//!    interrupted is tried again, a bounded number of times.
//!
//! It does not know in which order requests should be done.

#![expect(unsafe_code, reason = "entries give the kernel addresses")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::event::EventfdFlags;

use super::{Flight, Gate, Landed, Request, Work};
use crate::error::{Error, Kind, Result};
use crate::io::Storage;
use crate::io::file_lock::{FileLock, access_of, open_again};
use crate::room;

/// Most requests of a flight: no device has longer queues.
const DEPTH_MAX: usize = 4096;

/// What the completion of the waker's poll is known by; slots have their index.
const WAKEUP: u64 = u64::MAX;

/// The file in the ring's table.
const FILE: Fixed = Fixed(0);

/// Most bytes of one entry; a multiple of every alignment.
const PART_MAX: usize = 1 << 30;

/// How often in a row a request may come to nothing without an error of its own.
const TRIES_MAX: u32 = 1000;

/// How long to leave a kernel alone that has no memory for entries.
const PAUSE: Duration = Duration::from_millis(1);

/// A flight on a ring.
pub(super) struct Ring {
    gate: Gate,
    own: Option<Own>,
    queues: IoUring,
    /// Where the storage begins in the file.
    start: u64,
    slots: Box<[Option<Slot>]>,
    free: Vec<usize>,
    wakeup: Arc<Wakeup>,
    /// Whether the wake-up's poll is in the ring.
    is_armed: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("storage", &self.gate.storage)
            .field("depth", &self.gate.depth)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

/// The file opened for the ring alone. If the process is killed the system closes it when the last request has landed, some
/// time after all else of the process: the lock of the file's writer must not stay for so long.
struct Own {
    file: std::fs::File,
    lock: FileLock,
}

impl Own {
    /// `None` of what is no file, and where the system does not let us: then a killed process gives its files up later.
    fn of(file: &std::fs::File, path: &Path) -> Result<Option<Self>> {
        let opened = open_again(file).and_then(|own| Ok((own, access_of(file)?)));
        let (own, access) = match opened {
            Ok((Some(own), access)) => (own, access),
            Ok((None, _)) => return Ok(None),
            Err(why) => {
                tracing::debug!(file = %path.display(), %why, "a ring shares the file with its writer");
                return Ok(None);
            }
        };
        let lock = FileLock::of_flights(&own, access, path)?;
        Ok(Some(Self { file: own, lock }))
    }
}

/// Wakes the ring: an event counter, written once until it is taken.
#[derive(Debug)]
struct Wakeup {
    counter: OwnedFd,
    is_sent: AtomicBool,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_sent.swap(true, Ordering::AcqRel) {
            // Any number will do that is not 0, so the order of its bytes does not matter. It cannot be refused: the counter
            // is read before it is written again.
            let _ = rustix::io::write(&self.counter, &[1; 8]);
        }
    }
}

impl Wakeup {
    /// Takes it. A wake between the two lines is served by this one: what it wakes for was there before.
    fn take(&self) {
        let _ = rustix::io::read(&self.counter, &mut [0; 8]);
        self.is_sent.swap(false, Ordering::AcqRel);
    }
}

/// A request in flight.
#[derive(Debug)]
struct Slot {
    request: Request,
    /// Bytes of it that were transferred.
    done: usize,
    /// Completions in a row that brought nothing.
    tries: u32,
    begun: Instant,
}

impl Slot {
    /// Its next entry. The pointer in it is good as long as the slot stands.
    fn entry(&mut self, start: u64) -> squeue::Entry {
        let done = self.done;
        let part = |buf: &[u8]| (buf.len() - done).min(PART_MAX) as u32;
        let place = |offset: u64| start + offset + done as u64;
        let write = |offset: u64, buf: &[u8]| {
            opcode::Write::new(FILE, buf[done..].as_ptr(), part(buf)).offset(place(offset))
        };
        match &mut self.request.work {
            Work::Read { offset, buf } => {
                let len = part(buf);
                opcode::Read::new(FILE, buf[done..].as_mut_ptr(), len)
                    .offset(place(*offset))
                    .build()
            }
            Work::Write { offset, buf } => write(*offset, buf).build(),
            Work::WriteDurably { offset, buf } => {
                write(*offset, buf).rw_flags(libc::RWF_DSYNC).build()
            }
            Work::Sync => opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build(),
        }
    }

    /// What a completion means: the request's result, or `None`: it is continued.
    fn complete(&mut self, completed: i32, alignment: u64) -> Option<Result<()>> {
        let what = match self.request.work {
            Work::Read { .. } => "cannot read",
            Work::Write { .. } | Work::WriteDurably { .. } => "cannot write",
            Work::Sync => "cannot sync",
        };
        let (offset, len) = self
            .request
            .work
            .place()
            .map_or((0, 0), |(offset, buf)| (offset, buf.len()));
        self.tries += 1;
        let Ok(count) = usize::try_from(completed) else {
            let again = [-libc::EINTR, -libc::EAGAIN, -libc::ECANCELED].contains(&completed);
            if again && self.tries < TRIES_MAX {
                return None;
            }
            let error = std::io::Error::from_raw_os_error(-completed);
            return Some(Err(Error::io(what, error).offset(offset)));
        };
        if len == 0 {
            return Some(Ok(()));
        }
        let reads = matches!(self.request.work, Work::Read { .. });
        // The kernel never reports more than the length of the entry.
        let done = (self.done + count).min(len);
        if done == len {
            return Some(Ok(()));
        }
        let whole = done - done % alignment as usize;
        if whole > self.done {
            self.done = whole;
            self.tries = 0;
        } else if reads && self.tries > 1 {
            // Less than a block comes where the storage ends. Read again, because an error may have ended it, too.
            return Some(Err(Error::new(
                Kind::Corrupted,
                "the storage ends too early",
            )
            .offset(offset + done as u64)
            .detail(format!("{:#x} bytes wanted", len - done))));
        }
        if self.tries < TRIES_MAX {
            return None;
        }
        Some(Err(Error::new(Kind::Io, what)
            .offset(offset + done as u64)
            .detail("the system transfers nothing, and gives no reason")))
    }
}

impl Ring {
    /// Errors: `Invalid` if no file backs the storage, `Io` if the kernel refuses.
    pub(super) fn new(storage: &Arc<dyn Storage>, depth: usize) -> Result<Self> {
        let depth = depth.min(DEPTH_MAX);
        let Some((file, start)) = storage.backing_file() else {
            return Err(Error::new(Kind::Invalid, "no file backs the storage"));
        };
        let refused = |error| Error::io("no ring", error);
        let entries = (depth + 1).next_power_of_two() as u32;
        // A forked child does not get the queues: two processes cannot share them.
        let ring = IoUring::builder()
            .dontfork()
            .build(entries)
            .map_err(refused)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(Error::new(Kind::Invalid, "the kernel's ring is too old"));
        }
        let own = Own::of(file, storage.path())?;
        let registered = own.as_ref().map_or(file, |own| &own.file);
        ring.submitter()
            .register_files(&[registered.as_raw_fd()])
            .map_err(refused)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let counter = rustix::event::eventfd(0, flags)
            .map_err(|error| Error::io("no event counter", error))?;
        Ok(Self {
            gate: Gate::new(storage, depth)?,
            own,
            queues: ring,
            start,
            slots: room::collect((0..depth).map(|_| None))?.into_boxed_slice(),
            free: room::collect((0..depth).rev())?,
            wakeup: Arc::new(Wakeup {
                counter,
                is_sent: AtomicBool::new(false),
            }),
            is_armed: false,
        })
    }

    /// Makes the entry of a slot that has none in the ring.
    fn push(&mut self, index: usize) -> Result<()> {
        let Some(Some(slot)) = self.slots.get_mut(index) else {
            return Ok(());
        };
        let entry = slot.entry(self.start).user_data(index as u64);
        self.enqueue(&entry)
    }

    fn enqueue(&mut self, entry: &squeue::Entry) -> Result<()> {
        // SAFETY: the entry's file is in the ring's table, or is the wake-up's, which the ring owns. Its address is that
        // of a slot's buffer, with a length within it. The slot is emptied only in `reap`, when this entry's
        // completion was seen, and `slots` is dropped only when `drop` saw all of them, or else forgotten. The
        // buffer's bytes are on the heap and do not move; `complete` and `entry` do not touch them.
        let pushed = unsafe { self.queues.submission().push(entry) };
        pushed.map_err(|_| Error::new(Kind::Io, "the ring is full").at(self.gate.storage.path()))
    }

    fn arm(&mut self) -> Result<()> {
        if !self.is_armed {
            let counter = Fd(self.wakeup.counter.as_raw_fd());
            let poll = opcode::PollAdd::new(counter, libc::POLLIN as u32).build();
            self.enqueue(&poll.user_data(WAKEUP))?;
            self.is_armed = true;
        }
        Ok(())
    }

    /// Hands over what was gathered, and waits for a completion at most so long.
    fn enter(&mut self, wait: Option<Duration>) -> Result<()> {
        let submitter = self.queues.submitter();
        let entered = match wait {
            None => submitter.submit_and_wait(1),
            Some(Duration::ZERO) => submitter.submit(),
            Some(wait) => {
                let wait = Timespec::from(wait);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&wait))
            }
        };
        let Err(error) = entered else {
            return Ok(());
        };
        match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR) => Ok(()),
            Some(libc::EAGAIN | libc::EBUSY) => {
                std::thread::sleep(PAUSE);
                Ok(())
            }
            _ => Err(Error::io("the ring fails", error).at(self.gate.storage.path())),
        }
    }

    /// Takes the completions there are. Whether a wake-up came.
    fn reap(&mut self, landed: &mut Vec<Landed>) -> Result<bool> {
        let mut is_sent = false;
        loop {
            let Some(completion) = self.queues.completion().next() else {
                return Ok(is_sent);
            };
            if completion.user_data() == WAKEUP {
                self.wakeup.take();
                self.is_armed = false;
                is_sent = true;
                continue;
            }
            let index = completion.user_data() as usize;
            let slot = self.slots.get_mut(index).and_then(Option::as_mut);
            let Some(outcome) =
                slot.and_then(|slot| slot.complete(completion.result(), self.gate.alignment))
            else {
                self.push(index)?;
                continue;
            };
            let Some(slot) = self.slots[index].take() else {
                continue;
            };
            self.free.push(index);
            landed.push(Landed {
                token: slot.request.token,
                work: slot.request.work,
                result: outcome.map_err(|error| error.at(self.gate.storage.path())),
                took: slot.begun.elapsed(),
            });
        }
    }

    /// Entries that the kernel has not taken yet.
    #[cfg(test)]
    pub(super) fn untaken(&mut self) -> usize {
        self.queues.submission().len()
    }

    /// Whether no entry waits for submission, and some completion has arrived.
    fn has_landed(&mut self) -> bool {
        self.queues.submission().is_empty() && !self.queues.completion().is_empty()
    }
}

impl Flight for Ring {
    fn depth_max(&self) -> usize {
        self.gate.depth
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn means(&self) -> &'static str {
        "ring"
    }

    fn launch(&mut self, request: Request) -> Result<()> {
        self.gate.admit(self.in_flight(), &request.work)?;
        if let Some((_, buf)) = request.work.place() {
            let is_read = matches!(request.work, Work::Read { .. });
            self.gate.storage.passed_by(is_read, buf.len());
        }
        // There is one: fewer are in flight than there are slots.
        let index = self.free.pop().unwrap_or_default();
        self.slots[index] = Some(Slot {
            request,
            done: 0,
            tries: 0,
            begun: Instant::now(),
        });
        self.push(index).inspect_err(|_| {
            self.slots[index] = None;
            self.free.push(index);
        })
    }

    fn land(&mut self, landed: &mut Vec<Landed>, wait: Option<Duration>) -> Result<()> {
        room::more(landed, self.in_flight())?;
        let (begun, before) = (Instant::now(), landed.len());
        loop {
            self.arm()?;
            let left = wait.map(|wait| wait.saturating_sub(begun.elapsed()));
            if !self.has_landed() {
                self.enter(left)?;
            }
            let is_sent = self.reap(landed)?;
            if is_sent || landed.len() > before || left == Some(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        Arc::clone(&self.wakeup).into()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut landed = Vec::new();
        while self.in_flight() > 0 {
            let waited = self.enter(None).and_then(|()| self.reap(&mut landed));
            if waited.is_err() {
                // The kernel may still write into the buffers: they are never freed. The lock of its file stays as long.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
            landed.clear();
        }
        // Now, and not when the kernel comes to it: a device can be opened again at once.
        let _ = self.queues.submitter().unregister_files();
        if let Some(own) = &mut self.own {
            own.lock.release(&own.file);
        }
    }
}
