//! One suite for every means, over every storage: what is launched lands, with what was asked for.
//!
//! Then what only one of them can show: how many are in flight at once, transfers that come short, requests that the
//! kernel holds while the flight is dropped. A pipe stands in for a device that answers when the test wants it to.

use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

use super::*;
use crate::error::refusal;
use crate::io::aligned::ALIGNMENT;
use crate::io::direct::DirectFile;
use crate::io::file::File;
use crate::io::file::loop_device::LoopDevice;
use crate::io::memory::Memory;
use crate::io::region::Region;
use crate::io::sim::{Fault, Operation, SimDisk};
use crate::io::{Access, Directory};
use crate::testkit::Random;

const BLOCK: usize = ALIGNMENT as usize;
const SIZE: u64 = 1 << 20;

/// A flight, and what it flies over.
struct Case {
    name: String,
    flight: Box<dyn Flight>,
    storage: Arc<dyn Storage>,
    _below: Below,
}

fn block(byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(BLOCK, ALIGNMENT).unwrap();
    buf.fill(byte);
    buf
}

fn write(offset: u64, byte: u8) -> Work {
    let buf = block(byte);
    Work::Write { offset, buf }
}

fn read(offset: u64) -> Work {
    let buf = block(0);
    Work::Read { offset, buf }
}

/// Waits for all that is in flight.
fn land_all(flight: &mut dyn Flight) -> Vec<Landed> {
    let mut landed = Vec::new();
    while flight.in_flight() > 0 {
        flight.land(&mut landed, None).unwrap();
    }
    landed
}

impl Case {
    fn launch(&mut self, token: u64, work: Work) {
        self.flight.launch(Request { token, work }).unwrap();
    }

    /// Waits for all that is in flight.
    fn land_all(&mut self) -> Vec<Landed> {
        land_all(self.flight.as_mut())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; SIZE as usize];
        self.storage.read_at(0, &mut bytes).unwrap();
        bytes
    }
}

/// Whether this kernel lets us have a ring. Reports it if it does not.
fn has_ring() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let file: Arc<dyn Storage> = Arc::new(File::create(folder.path().join("a")).unwrap());
    let ring = Ring::new(&file, 1);
    if let Err(error) = &ring {
        notice(&format!("no ring was tried: {error}"));
    }
    ring.is_ok()
}

#[expect(
    clippy::print_stderr,
    reason = "a test that could not be run must be seen"
)]
fn notice(text: &str) {
    eprintln!("notice: {text}");
}

/// What a storage stands on, until it is dropped.
type Below = Option<Box<dyn std::any::Any>>;

fn storages() -> Vec<(&'static str, Arc<dyn Storage>, Below)> {
    let mut all: Vec<(_, Arc<dyn Storage>, Below)> = Vec::new();
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("a")).unwrap();
    all.push(("file", Arc::new(file), Some(Box::new(folder))));
    let folder = tempfile::tempdir().unwrap();
    match DirectFile::create(folder.path().join("a")) {
        Ok(direct) => all.push(("direct", Arc::new(direct), Some(Box::new(folder)))),
        Err(error) => notice(&format!("no direct file was tried: {error}")),
    }
    all.push(("memory", Memory::new(SIZE).unwrap(), None));
    let sim = SimDisk::new(1).directory().create(Path::new("a"));
    all.push(("sim", sim.unwrap(), None));
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("a")).unwrap();
    file.resize(SIZE + 8192).unwrap();
    let region = Region::new(Arc::new(file), 4096, SIZE).unwrap();
    all.push(("region", Arc::new(region), Some(Box::new(folder))));
    if let Some(device) = LoopDevice::new(SIZE, 4096) {
        let direct = DirectFile::open(device.path(), Access::Write).unwrap();
        all.push(("device", Arc::new(direct), Some(Box::new(device))));
    }
    for (_, storage, _) in &all {
        storage.resize(SIZE).unwrap();
    }
    all
}

/// Every means over every storage that it can carry.
fn cases(depth: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    let rings = has_ring();
    for means in [Means::Ring, Means::Threads] {
        for (name, storage, below) in storages() {
            if means == Means::Ring && (!rings || storage.backing_file().is_none()) {
                continue;
            }
            cases.push(Case {
                name: format!("{means:?} over {name}"),
                flight: open(&storage, depth, means).unwrap(),
                storage,
                _below: below,
            });
        }
    }
    cases
}

#[test]
fn what_was_written_in_flight_is_read_in_flight() {
    for mut case in cases(16) {
        let mut model = vec![0u8; SIZE as usize];
        let (mut dice, mut landed) = (Random::new(7), Vec::new());
        // Blocks that a request in flight touches.
        let mut busy: Vec<(u64, std::ops::Range<usize>)> = Vec::new();
        for token in 0..600u64 {
            let len = 1 + dice.index(5);
            let first = dice.index(256 - len);
            while busy.len() == 16
                || busy
                    .iter()
                    .any(|(_, range)| range.start < first + len && first < range.end)
            {
                case.flight.land(&mut landed, None).unwrap();
                for done in landed.drain(..) {
                    done.result.unwrap();
                    busy.retain(|(token, _)| *token != done.token);
                    if let Work::Read { offset, buf } = done.work {
                        let at = offset as usize;
                        assert!(
                            buf[..] == model[at..at + buf.len()],
                            "{}: {at:#x}",
                            case.name
                        );
                    }
                }
            }
            let (offset, at) = ((first * BLOCK) as u64, first * BLOCK);
            let mut buf = AlignedBuf::zeroed(len * BLOCK, ALIGNMENT).unwrap();
            busy.push((token, first..first + len));
            let work = if dice.one_in(3) {
                Work::Read { offset, buf }
            } else {
                buf.copy_from_slice(&dice.bytes(len * BLOCK));
                model[at..at + buf.len()].copy_from_slice(&buf);
                if token.is_multiple_of(50) {
                    Work::WriteDurably { offset, buf }
                } else {
                    Work::Write { offset, buf }
                }
            };
            case.launch(token, work);
        }
        for done in case.land_all() {
            done.result.unwrap();
        }
        assert!(case.bytes() == model, "{}", case.name);
    }
}

#[test]
fn everything_launched_lands_once_with_its_own_buffer() {
    for mut case in cases(8) {
        let mut wanted = Vec::new();
        for token in 0..7u64 {
            let (offset, buf) = (token * ALIGNMENT, block(token as u8));
            wanted.push((token, buf.as_ptr().addr()));
            case.launch(token, Work::Write { offset, buf });
        }
        case.launch(7, Work::Sync);
        let mut seen = Vec::new();
        for done in case.land_all() {
            done.result.unwrap();
            if let Some(buf) = done.work.into_buf() {
                seen.push((done.token, buf.as_ptr().addr()));
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, wanted, "{}", case.name);
        assert_eq!(case.flight.in_flight(), 0);
    }
}

#[test]
fn what_may_not_fly_is_refused_and_the_rest_flies_on() {
    for mut case in cases(2) {
        assert_eq!(case.flight.depth_max(), 2);
        let refused = |case: &mut Case, work| {
            let error = case.flight.launch(Request { token: 9, work }).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{}", case.name);
            error.to_string()
        };
        let outside = refused(&mut case, write(SIZE, 1));
        assert!(outside.contains("outside the storage"), "{outside}");
        let beyond = refused(&mut case, read(u64::MAX - 4095));
        assert!(beyond.contains("offset 0xfffffffffffff000"), "{beyond}");
        if case.storage.alignment() > 1 {
            let off = refused(&mut case, read(512));
            assert!(off.contains("not aligned"), "{off}");
        }
        case.launch(0, write(0, 1));
        case.launch(1, Work::Sync);
        let third = refused(&mut case, Work::Sync);
        assert!(third.contains("(found 3, expected at most 2)"), "{third}");
        assert_eq!(case.land_all().len(), 2, "{}", case.name);
        // What has grown meanwhile may be used.
        if case.storage.resize(SIZE + 4096).is_ok() {
            case.launch(3, write(SIZE, 1));
            assert_eq!(case.land_all().len(), 1, "{}", case.name);
        }
    }
}

#[test]
fn landing_waits_no_longer_than_said_and_not_at_all_when_woken() {
    for mut case in cases(4) {
        let mut landed = Vec::new();
        case.flight.land(&mut landed, Some(Duration::ZERO)).unwrap();
        let begun = Instant::now();
        let pause = Duration::from_millis(20);
        case.flight.land(&mut landed, Some(pause)).unwrap();
        assert!(begun.elapsed() >= pause, "{}", case.name);
        // From another thread while it waits, or before it does; more often than an event counter can count.
        for _ in 0..300 {
            let waker = case.flight.waker();
            let thread = std::thread::spawn(move || waker.wake());
            case.flight.land(&mut landed, None).unwrap();
            thread.join().unwrap();
        }
        let waker = case.flight.waker();
        (0..600).for_each(|_| waker.wake_by_ref());
        case.flight.land(&mut landed, None).unwrap();
        assert!(landed.is_empty(), "{}", case.name);
        // A waker may outlive its flight.
        drop(case);
        waker.wake();
    }
}

#[test]
fn a_dropped_flight_has_done_what_was_launched() {
    for mut case in cases(16) {
        for token in 0..16u64 {
            case.launch(token, write(token * ALIGNMENT, token as u8 + 1));
        }
        let (storage, name) = (Arc::clone(&case.storage), case.name.clone());
        drop(case.flight);
        for token in 0..16u64 {
            let mut seen = [0; BLOCK];
            storage.read_at(token * ALIGNMENT, &mut seen).unwrap();
            assert!(seen == [token as u8 + 1; BLOCK], "{name}");
        }
    }
}

#[test]
fn a_storage_that_ends_too_early_is_damage() {
    for mut case in cases(2) {
        if !["file", "direct"]
            .iter()
            .any(|name| case.name.ends_with(name))
        {
            continue;
        }
        // Behind its back, as another program would.
        std::fs::File::options()
            .write(true)
            .open(case.storage.path())
            .and_then(|file| file.set_len(4096 + 100))
            .unwrap();
        for offset in [ALIGNMENT, 2 * ALIGNMENT] {
            // Who asks for the size each time refuses it at once.
            let work = read(offset);
            let launched = case.flight.launch(Request { token: 0, work });
            let landed = case.land_all().pop();
            let error = landed.map_or(launched, |landed| landed.result).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupted, "{}: {error}", case.name);
            assert_eq!(error.path(), Some(case.storage.path()));
        }
    }
}

#[test]
fn a_request_that_fails_says_where_and_the_others_land() {
    for (operation, kind) in [
        (Operation::Read, "cannot read"),
        (Operation::Write, "cannot write"),
        (Operation::Sync, "cannot sync"),
    ] {
        for nth in 0..4 {
            let disk = SimDisk::new(nth);
            let storage = disk.directory().create(Path::new("a")).unwrap();
            storage.resize(SIZE).unwrap();
            let mut flight = open(&storage, 16, Means::Best).unwrap();
            assert_eq!(flight.means(), "threads");
            disk.faults().fail(operation, nth, Fault::Error);
            for token in 0..12u64 {
                let work = match token % 3 {
                    0 => read(token * ALIGNMENT),
                    1 => write(token * ALIGNMENT, 0),
                    _ => Work::Sync,
                };
                flight.launch(Request { token, work }).unwrap();
            }
            let landed = land_all(flight.as_mut());
            let failed: Vec<_> = landed.iter().filter(|done| done.result.is_err()).collect();
            assert_eq!((landed.len(), failed.len()), (12, 1), "{kind} {nth}");
            refusal(failed[0].result.as_ref(), Kind::Io);
            assert_eq!(disk.faults().struck(), 1);
        }
    }
}

/// A storage of which reads wait for one another.
#[derive(Debug)]
struct Meeting(Arc<Memory>, Barrier);

/// A storage whose reads and writes are a pipe's: done when somebody is at the other end.
#[derive(Debug)]
struct Pipe(Arc<Memory>, std::fs::File);

impl crate::io::over::Over for Meeting {
    fn below(&self) -> &dyn Storage {
        self.0.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        assert!(offset > 0, "the first block is not to be read");
        self.1.wait();
        self.0.read_at(offset, buf)
    }
}

impl crate::io::over::Over for Pipe {
    fn below(&self) -> &dyn Storage {
        self.0.as_ref()
    }

    fn backing_file(&self) -> Option<(&std::fs::File, u64)> {
        Some((&self.1, 0))
    }
}

fn memory() -> Arc<Memory> {
    Memory::from_bytes(&vec![3; SIZE as usize], SIZE).unwrap()
}

/// A ring over one end of a pipe, and the other end.
fn ring_over_pipe(depth: usize, reads: bool) -> Option<(Ring, std::fs::File)> {
    if !has_ring() {
        return None;
    }
    let (from, to) = std::io::pipe().unwrap();
    let (from, to) = (
        std::os::fd::OwnedFd::from(from),
        std::os::fd::OwnedFd::from(to),
    );
    let (ours, other) = if reads { (from, to) } else { (to, from) };
    let pipe: Arc<dyn Storage> = Arc::new(Pipe(memory(), ours.into()));
    Some((Ring::new(&pipe, depth).unwrap(), other.into()))
}

fn request(token: u64, len: usize) -> Request {
    let buf = AlignedBuf::zeroed(len, ALIGNMENT).unwrap();
    Request {
        token,
        work: Work::Read { offset: 0, buf },
    }
}

#[test]
fn sixteen_threads_carry_sixteen_requests_at_once() {
    // Nobody comes out of the barrier before sixteen are in it.
    let storage: Arc<dyn Storage> = Arc::new(Meeting(memory(), Barrier::new(16)));
    let mut flight = open(&storage, 16, Means::Best).unwrap();
    for _ in 0..3 {
        for token in 0..16 {
            let work = read(ALIGNMENT);
            flight.launch(Request { token, work }).unwrap();
        }
        assert_eq!(land_all(flight.as_mut()).len(), 16);
    }
}

#[test]
fn a_storage_that_panics_fails_the_request_alone() {
    let storage: Arc<dyn Storage> = Arc::new(Meeting(memory(), Barrier::new(1)));
    let mut flight = open(&storage, 2, Means::Threads).unwrap();
    for token in 0..2 {
        let work = read(token * ALIGNMENT);
        flight.launch(Request { token, work }).unwrap();
    }
    let mut landed = land_all(flight.as_mut());
    landed.sort_by_key(|done| done.token);
    let kinds: Vec<_> = landed
        .iter()
        .map(|done| done.result.as_ref().map_err(Error::kind))
        .collect();
    assert_eq!(kinds, [Err(Kind::Poisoned), Ok(&())]);
}

#[test]
fn the_kernel_holds_sixteen_requests_at_once() {
    use std::io::Write;
    let Some((mut ring, mut to)) = ring_over_pipe(16, true) else {
        return;
    };
    let mut landed = Vec::new();
    (0..16).for_each(|token| ring.launch(request(token, 100)).unwrap());
    assert!(ring.launch(request(16, 100)).is_err());
    ring.land(&mut landed, Some(Duration::ZERO)).unwrap();
    // It took every entry, and completed none: nobody has written.
    assert!(landed.is_empty());
    assert_eq!((ring.in_flight(), ring.untaken()), (16, 0));
    to.write_all(&[7; 1600]).unwrap();
    landed.extend(land_all(&mut ring));
    let mut tokens: Vec<u64> = landed.iter().map(|done| done.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..16).collect::<Vec<u64>>());
    for done in landed {
        done.result.unwrap();
        assert_eq!(done.work.into_buf().unwrap()[..], [7; 100]);
    }
}

#[test]
fn transfers_that_come_short_are_continued() {
    use std::io::{Read, Write};
    let Some((mut ring, mut to)) = ring_over_pipe(1, true) else {
        return;
    };
    let mut landed = Vec::new();
    ring.launch(request(5, 1000)).unwrap();
    let sent: Vec<u8> = (0..1000u32).map(|at| at as u8).collect();
    // A pipe hands out what there is.
    for part in [&sent[..1], &sent[1..400], &sent[400..999]] {
        to.write_all(part).unwrap();
        ring.land(&mut landed, Some(Duration::from_millis(1)))
            .unwrap();
        assert!(landed.is_empty());
    }
    to.write_all(&sent[999..]).unwrap();
    ring.land(&mut landed, None).unwrap();
    let done = landed.pop().unwrap();
    done.result.unwrap();
    assert!(done.work.into_buf().unwrap()[..] == sent);
    // Its end is the end of the storage.
    to.write_all(&[1]).unwrap();
    drop(to);
    ring.launch(request(6, 1000)).unwrap();
    ring.land(&mut landed, None).unwrap();
    let error = landed.pop().unwrap().result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "corrupted: the storage ends too early at memory offset 0x1 (0x3e7 bytes wanted)"
    );

    let Some((mut ring, mut from)) = ring_over_pipe(1, false) else {
        return;
    };
    // More than a pipe holds.
    let mut buf = AlignedBuf::zeroed(SIZE as usize, ALIGNMENT).unwrap();
    buf.iter_mut()
        .zip(0u32..)
        .for_each(|(byte, at)| *byte = (at >> 7) as u8);
    let wanted = buf.to_vec();
    let work = Work::Write { offset: 0, buf };
    ring.launch(Request { token: 0, work }).unwrap();
    let reader = std::thread::spawn(move || {
        let mut seen = vec![0; SIZE as usize];
        from.read_exact(&mut seen).unwrap();
        seen
    });
    ring.land(&mut landed, None).unwrap();
    landed.pop().unwrap().result.unwrap();
    assert!(reader.join().unwrap() == wanted);
}

#[test]
fn a_ring_fails_what_the_system_fails() {
    if !has_ring() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    File::create(&path).unwrap().resize(SIZE).unwrap();
    let file: Arc<dyn Storage> = Arc::new(File::open(&path, Access::Read).unwrap());
    let mut ring = Ring::new(&file, 4).unwrap();
    let work = write(ALIGNMENT, 0);
    ring.launch(Request { token: 1, work }).unwrap();
    ring.launch(request(2, BLOCK)).unwrap();
    let mut landed = land_all(&mut ring);
    landed.sort_by_key(|done| done.token);
    let error = landed[0].result.as_ref().unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("io: cannot write at ") && text.contains("offset 0x1000"),
        "{text}"
    );
    assert!(landed[1].result.is_ok());
}

#[test]
fn what_has_no_file_after_it_is_carried_by_threads() {
    let storage: Arc<dyn Storage> = memory();
    let error = open(&storage, 4, Means::Ring).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid: the kernel's ring cannot be used at memory \
         (invalid: no file backs the storage); use threads"
    );
    assert_eq!(open(&storage, 4, Means::Best).unwrap().means(), "threads");
    assert_eq!(open(&storage, 1000, Means::Best).unwrap().depth_max(), 64);
    refusal(open(&storage, 0, Means::Best), Kind::Invalid);
    // Not aligned as the file below wants it.
    let folder = tempfile::tempdir().unwrap();
    if let Ok(direct) = DirectFile::create(folder.path().join("a")) {
        direct.resize(SIZE).unwrap();
        let region: Arc<dyn Storage> = Arc::new(Region::new(Arc::new(direct), 512, 4096).unwrap());
        assert_eq!(
            (region.alignment(), region.backing_file().is_none()),
            (1, true)
        );
    }
}
