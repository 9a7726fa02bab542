//! Reads, writes and syncs of one storage, many at once.
//!
//! A [`Flight`] is handed [`Request`]s, each with a token and its buffer, and hands them back as [`Landed`], in the
//! order in which the device was done with them. Between the two the flight owns the buffer.
//!
//! 1. Requests in flight have no order. A sync covers what landed before it was launched, and nothing else; two
//!    requests of which one writes what the other touches are the caller's mistake.
//! 2. Everything launched lands, once. Short transfers are continued and interrupted ones tried again; a request
//!    that fails lands with an error that names place and path, and states nothing of the others.
//! 3. Dropping a flight waits until all that was launched is done. Its buffers are freed no sooner.
//!
//! | means | where | in flight at once |
//! |---|---|---|
//! | `ring` | files and devices, where the kernel has `io_uring` and lets us | as many as asked for, 4096 at most |
//! | `threads` | any storage | as many as asked for, 64 at most, each in a thread made when it is first needed |
//!
//! It does not know in which order requests should come, nor what their bytes mean.

mod ring;
#[cfg(test)]
mod tests;
mod threads;

use std::fmt::Debug;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::Storage;
use super::aligned::AlignedBuf;
use crate::error::{Error, Kind, Result};
use ring::Ring;
use threads::Threads;

/// What a request does. Offsets, lengths and addresses are multiples of [`Storage::alignment`].
#[derive(Debug)]
pub enum Work {
    /// Fills `buf` from `offset`.
    Read {
        /// Place in the storage.
        offset: u64,
        /// What is filled: all of it, or the request fails and leaves any bytes in it.
        buf: AlignedBuf,
    },
    /// Writes all of `buf` at `offset`.
    Write {
        /// Place in the storage, within its size with the whole buffer.
        offset: u64,
        /// What is written.
        buf: AlignedBuf,
    },
    /// As `Write`, and lands when these bytes survive loss of power. States nothing of any others.
    WriteDurably {
        /// Place in the storage, within its size with the whole buffer.
        offset: u64,
        /// What is written.
        buf: AlignedBuf,
    },
    /// Lands when everything that landed before survives loss of power.
    Sync,
}

impl Work {
    /// The buffer.
    pub fn into_buf(self) -> Option<AlignedBuf> {
        match self {
            Self::Read { buf, .. } | Self::Write { buf, .. } | Self::WriteDurably { buf, .. } => {
                Some(buf)
            }
            Self::Sync => None,
        }
    }

    /// Offset and buffer.
    fn place(&self) -> Option<(u64, &AlignedBuf)> {
        match self {
            Self::Read { offset, buf }
            | Self::Write { offset, buf }
            | Self::WriteDurably { offset, buf } => Some((*offset, buf)),
            Self::Sync => None,
        }
    }
}

/// Work, and a number by which its caller knows it again.
#[derive(Debug)]
pub struct Request {
    /// Comes back with it; any value, also one that is in flight already.
    pub token: u64,
    /// What to do.
    pub work: Work,
}

/// A request that is done, or failed.
#[derive(Debug)]
pub struct Landed {
    /// The request's.
    pub token: u64,
    /// The request's, with its buffer.
    pub work: Work,
    /// `Corrupted` if the storage ends within what was to be read, `Full` or `Io` as the system states.
    pub result: Result<()>,
    /// From when it was begun until it was found done.
    pub took: Duration,
}

/// Requests on their way to one storage and back.
pub trait Flight: Send + Debug {
    /// How many may be in flight: launched, and not handed back.
    fn depth_max(&self) -> usize;

    /// How many are.
    fn in_flight(&self) -> usize;

    /// By which means, in one word: `ring` or `threads`.
    fn means(&self) -> &'static str;

    /// Takes a request. It is begun at the next `land` at the latest. Errors: `Invalid` beyond the depth, outside the
    /// storage, or off its alignment; `Full` if no thread can be made. Then it was not taken.
    fn launch(&mut self, request: Request) -> Result<()>;

    /// Waits for at least one request to be done, for the waker, or as long as stated, and adds what is done. May come
    /// back with nothing. With nothing in flight it waits all the same. An error is the system's, not a request's:
    /// the flight is of no more use.
    fn land(&mut self, landed: &mut Vec<Landed>, wait: Option<Duration>) -> Result<()>;

    /// Ends a `land`, or the next one if there is none now: from any thread, at any time.
    fn waker(&self) -> Waker;
}

/// How requests are carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Means {
    /// By a ring where that can be, by threads elsewhere.
    #[default]
    Best,
    /// By a ring; `Invalid` where that cannot be.
    Ring,
    /// By threads.
    Threads,
}

/// A flight on `storage` with up to `depth` requests at once, or as many as the means can carry: see
/// [`Flight::depth_max`]. `Invalid` if `depth` is 0.
pub fn open(storage: &Arc<dyn Storage>, depth: usize, means: Means) -> Result<Box<dyn Flight>> {
    if depth == 0 {
        return Err(
            Error::new(Kind::Invalid, "a flight carries at least one request").at(storage.path()),
        );
    }
    if means == Means::Threads {
        return Ok(Box::new(Threads::new(storage, depth)?));
    }
    match Ring::new(storage, depth) {
        Ok(ring) => Ok(Box::new(ring)),
        Err(why) if means == Means::Ring => Err(Error::new(
            Kind::Invalid,
            "the kernel's ring cannot be used",
        )
        .at(storage.path())
        .detail(why.to_string())
        .remedy("use threads")),
        Err(why) => {
            tracing::debug!(storage = %storage.path().display(), %why, "threads carry its requests");
            Ok(Box::new(Threads::new(storage, depth)?))
        }
    }
}

/// Looks at requests before they are taken.
#[derive(Debug)]
struct Gate {
    storage: Arc<dyn Storage>,
    alignment: u64,
    depth: usize,
    /// The size when it was last asked for.
    size: u64,
}

impl Gate {
    fn new(storage: &Arc<dyn Storage>, depth: usize) -> Result<Self> {
        Ok(Self {
            storage: Arc::clone(storage),
            alignment: storage.alignment(),
            depth,
            size: storage.size()?,
        })
    }

    fn admit(&mut self, in_flight: usize, work: &Work) -> Result<()> {
        if in_flight >= self.depth {
            return Err(Error::new(Kind::Invalid, "too many requests are in flight")
                .at(self.storage.path())
                .found(in_flight + 1, format!("at most {}", self.depth)));
        }
        let Some((offset, buf)) = work.place() else {
            return Ok(());
        };
        let place = offset | buf.len() as u64 | buf.as_ptr().addr() as u64;
        if !place.is_multiple_of(self.alignment) {
            return Err(Error::new(Kind::Invalid, "the request is not aligned")
                .at(self.storage.path())
                .offset(offset)
                .detail(format!(
                    "{:#x} bytes, in blocks of {:#x}",
                    buf.len(),
                    self.alignment
                )));
        }
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            // It may have grown.
            self.size = self.storage.size()?;
        }
        if end.is_none_or(|end| end > self.size) {
            return Err(
                Error::new(Kind::Invalid, "the request lies outside the storage")
                    .at(self.storage.path())
                    .offset(offset)
                    .found(
                        format!("{:#x} bytes", buf.len()),
                        format!("an end within {:#x}", self.size),
                    ),
            );
        }
        Ok(())
    }
}
