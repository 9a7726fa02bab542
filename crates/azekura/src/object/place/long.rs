//! Long transfers, in pieces.
//!
//! ```text
//! write:  fill 1 | fill 2         | fill 3         |
//!                [==== piece 1 ====][==== piece 2 ====][==== piece 3 ====]
//! read:   [==== piece 1 ====][==== piece 2 ====][==== piece 3 ====]
//!                            | use 1          | use 2          | use 3 |
//! ```
//! 1. Up to [`ONE_MAX`] bytes are one piece, which the caller moves itself: one access. A longer transfer moves in pieces of
//!    [`PIECE_LEN`], two in flight and in order, so that copying and checksumming overlap with the device, and an object of any
//!    length takes the memory of three pieces. The device sees one run of accesses, as it would for one long call, which the system
//!    splits, too.
//! 2. When a call returns, failed or not, none of it is in flight any more.
//!
//! The caller fills and reads the pieces; their contents are not interpreted here.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::explore::Mutex;
use crate::io::Storage;
use crate::io::aligned::AlignedBuf;
use crate::io::flight::{self, Flight, Landed, Means, Request, Work};
use crate::object::place::buffers::Buffers;

/// Bytes of a piece: whole chunks of an extent.
pub(crate) const PIECE_LEN: u64 = 1 << 20;
/// Longest transfer that is one piece.
pub(crate) const ONE_MAX: u64 = 2 * PIECE_LEN;
/// Pieces in flight.
const DEPTH: usize = 2;
/// Most idle flights that are kept for the next call.
const IDLE_MAX: usize = 4;

/// The flights of one device.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<Vec<Box<dyn Flight>>>);

/// A range of a device, moved in pieces.
pub(crate) struct Stretch<'s> {
    pub(crate) storage: &'s Arc<dyn Storage>,
    pub(crate) flights: &'s Flights,
    pub(crate) buffers: &'s Buffers,
    /// Bytes of the device.
    pub(crate) bytes: Range<u64>,
}

impl Stretch<'_> {
    /// Writes the range; `fill` gets each buffer with its offset in the range.
    pub(crate) fn write(&self, fill: &mut dyn FnMut(u64, &mut [u8])) -> Result<()> {
        self.carry(
            &mut |at, offset, mut buf| {
                fill(at, &mut buf);
                Work::Write { offset, buf }
            },
            &mut |_| (),
        )
    }

    /// Reads the range; `show` gets the pieces in order.
    pub(crate) fn read(&self, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.carry(&mut |_, offset, buf| Work::Read { offset, buf }, show)
    }

    /// Submits the pieces; `begin` makes a request of an offset in the range, its offset on the device, and a buffer.
    fn carry(
        &self,
        begin: &mut dyn FnMut(u64, u64, AlignedBuf) -> Work,
        end: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let idle = self.flights.0.lock().pop();
        let mut flight = match idle {
            Some(flight) => flight,
            None => flight::open(self.storage, DEPTH, Means::Best)?,
        };
        let len = self.bytes.end - self.bytes.start;
        let (mut begun, mut ended) = (0, 0);
        let mut result = Ok(());
        let mut landed: Vec<Landed> = Vec::new();
        loop {
            if result.is_ok() && begun < len && flight.in_flight() + landed.len() < DEPTH {
                let next = PIECE_LEN.min(len - begun);
                result = self.buffers.take(next as usize).and_then(|buf| {
                    let work = begin(begun, self.bytes.start + begun, buf);
                    flight.launch(Request { token: begun, work })
                });
                if result.is_ok() {
                    begun += next;
                    // It is in flight while the next one is prepared. Dropping the flight waits for all.
                    flight.land(&mut landed, Some(std::time::Duration::ZERO))?;
                }
                continue;
            }
            while let Some(at) = landed.iter().position(|landed| landed.token == ended) {
                let landed = landed.swap_remove(at);
                let Some(buf) = landed.work.into_buf() else {
                    unreachable!("every piece has a buffer")
                };
                ended += buf.len() as u64;
                result = result.and(landed.result);
                if result.is_ok() {
                    end(&buf);
                }
                self.buffers.give(buf);
            }
            if flight.in_flight() > 0 {
                flight.land(&mut landed, None)?;
            } else if landed.is_empty() && (result.is_err() || begun == len) {
                break;
            }
        }
        let mut idle = self.flights.0.lock();
        if idle.len() < IDLE_MAX {
            idle.push(flight);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::error::{Kind, refusal};
    use crate::io::sim::{Fault, Operation, SimDisk};
    use crate::object::{CreateOptions, ObjectId, Store};
    use crate::testkit::Random;

    fn options() -> CreateOptions {
        CreateOptions::new().capacity(64 << 20).background(false)
    }

    fn value(version: u64) -> Vec<u8> {
        Random::new(version).bytes(5_300_001)
    }

    #[test]
    fn long_objects_come_back_whole_and_in_part_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long.azo");
        let store = Store::create(&path, &options()).unwrap();
        for n in 1..4 {
            store.put(ObjectId(n), &value(n as u64)).unwrap();
        }
        let whole = value(2);
        for len in [
            0,
            1,
            65_464,
            65_465,
            2 << 20,
            2_097_153,
            4_000_000,
            5_300_001,
        ] {
            for from in [0, 70_000, 1_048_575, 5_300_001 - len.min(5_300_000)] {
                let end = (from + len).min(whole.len());
                let read = store
                    .get_range(ObjectId(2), from as u64..end as u64)
                    .unwrap();
                let wanted = whole.get(from..end).unwrap_or_default();
                assert!(read.as_deref() == Some(wanted), "{len} from {from}");
            }
        }
        let held: usize = store.core.buffers.held();
        assert!(held <= 8 << 20, "{held} bytes of buffers are kept");
    }

    #[test]
    fn a_piece_that_fails_fails_the_object_and_leaves_the_old_one() {
        let disk = SimDisk::new(8);
        let directory = disk.directory();
        let name = Path::new("long.azo");
        let store = Store::create_in(&directory, name, &options(), &mut |_, _| {}).unwrap();
        store.put(ObjectId(1), &value(1)).unwrap();
        for piece in 0..5 {
            let next = disk.faults().count(Operation::Write) + piece;
            disk.faults().fail(Operation::Write, next, Fault::Error);
            refusal(store.put(ObjectId(1), &value(2)), Kind::Io);
            assert!(store.get(ObjectId(1)).unwrap() == Some(value(1).into()));
            let next = disk.faults().count(Operation::Read) + piece;
            disk.faults().fail(Operation::Read, next, Fault::Error);
            assert!(store.get(ObjectId(1)).is_err());
        }
        assert!(store.put(ObjectId(1), &value(3)).unwrap().replaced);
        assert!(store.get(ObjectId(1)).unwrap() == Some(value(3).into()));
    }
}
