//! That a drive takes the time its physics state, for one request and for many.
//!
//! Expected times are those of the parameters' sources, not of the code: a mean of many random accesses, a rate over
//! a long run, an order between two policies. Every choice comes from a seed.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::error::refusal;
use crate::io::Storage;
use crate::io::memory::Memory;
use crate::io::sim::Dice;

const MIB: u64 = 1 << 20;
const KIB_100: u64 = 100 << 10;
const MS: u64 = 1_000_000;

fn sets() -> [Parameters; 3] {
    [
        Parameters::published(),
        Parameters::nominal_15k(),
        Parameters::sata_7200(),
    ]
}

/// Whether two numbers differ by less than `percent` of the second.
fn near(found: f64, wanted: f64, percent: f64) -> bool {
    (found / wanted - 1.0).abs() * 100.0 < percent
}

/// Milliseconds a read of `len` bytes takes on average, alone, at random sectors of the first `share` bytes.
fn read_mean_ms(parameters: Parameters, share: u64, len: u64, count: u64) -> f64 {
    let (mut drive, mut dice, mut now, mut sum) = (Drive::new(parameters), Dice(3), 0, 0);
    for _ in 0..count {
        // Somebody thinks in between, so that the angle is any.
        now += dice.below(20 * MS);
        let at = dice.below(share - len) / 4096 * 4096;
        let done = drive.run(now, Command::Read, at, len);
        sum += done - now;
        now = done;
    }
    sum as f64 / count as f64 / MS as f64
}

/// MiB a second of accesses of `len` bytes, one after the other, after a gigabyte that does not count.
fn stream_rate(parameters: Parameters, command: Command, from: u64, len: u64) -> f64 {
    let cached = parameters.cache.bytes;
    let (mut drive, mut now, mut at) = (Drive::new(parameters), 0, from);
    let mut run = |bytes: u64| {
        let (start, end) = (now, at + bytes);
        while at < end {
            now = drive.run(now, command, at, len);
            at += len;
        }
        now - start
    };
    run(cached + (1 << 30));
    let took = run(4 << 30);
    4096.0 / (took as f64 / 1e9)
}

#[test]
fn sequential_reads_reach_the_transfer_rate_of_their_zone() {
    for parameters in sets() {
        for (zone, rate) in parameters.zones.iter().enumerate() {
            let from = (parameters.capacity / parameters.zones.len() as u64 * zone as u64)
                .next_multiple_of(MIB);
            for len in [KIB_100, MIB] {
                let found = stream_rate(parameters.clone(), Command::Read, from, len);
                assert!(
                    near(found, *rate as f64 / MIB as f64, 3.0),
                    "zone {zone}, {len} bytes: {found} MiB/s"
                );
            }
        }
    }
}

#[test]
fn random_small_reads_take_the_average_access_time() {
    let published = read_mean_ms(Parameters::published(), 1_000_000_000_000, 4096, 20_000);
    assert!(near(published, 9.47, 3.0), "{published} ms");
    let nominal = Parameters::nominal_15k();
    let found = read_mean_ms(nominal.clone(), nominal.capacity, 4096, 20_000);
    assert!(near(found, 5.5, 3.0), "{found} ms");
    let sata = Parameters::sata_7200();
    let found = read_mean_ms(sata.clone(), sata.capacity, 4096, 20_000);
    // Average seek, half a turn, command.
    assert!(
        near(found, 8.5 + 60_000.0 / 7200.0 / 2.0 + 0.1, 3.0),
        "{found} ms"
    );
}

#[test]
fn the_published_disk_reads_along_the_fitted_line_and_writes_at_the_fitted_rate() {
    for (len, published) in [(KIB_100, 9.848), (MIB, 15.778), (10 * MIB, 72.592)] {
        let found = read_mean_ms(Parameters::published(), 1_000_000_000_000, len, 20_000);
        let line = 9.47 + 6.31 * len as f64 / MIB as f64;
        assert!(
            near(found, line, 3.0) && near(found, published, 4.0),
            "{len} bytes: {found} ms"
        );
    }
    for len in [KIB_100, MIB, 10 * MIB] {
        let found = stream_rate(Parameters::published(), Command::Write, 0, len);
        assert!(near(found, 249.0, 3.0), "{len} bytes: {found} MiB/s");
    }
    let mut drive = Drive::new(Parameters::published());
    let written = drive.run(0, Command::Write, 0, 512);
    let flushed = drive.run(written, Command::Flush, 0, 0);
    assert!(
        (100_000..=200_000).contains(&flushed),
        "a sector and a flush: {flushed} ns"
    );
}

#[test]
fn a_flush_empties_a_volatile_cache_and_leaves_a_safe_one_alone() {
    for volatile in [true, false] {
        let mut parameters = Parameters::sata_7200();
        parameters.cache.volatile = volatile;
        let (command, flush) = (parameters.command_ns, parameters.flush_ns);
        let mut drive = Drive::new(parameters);
        let mut now = 0;
        for place in 1..=8 {
            let written = drive.run(now, Command::Write, place * 100_000_000_000, 4096);
            assert!(written - now < MS, "a cached write moves no arm");
            now = written;
        }
        let dirty = drive.dirty_bytes();
        assert!(dirty >= 7 * 4096);
        let took = drive.run(now, Command::Flush, 0, 0) - now;
        if volatile {
            assert_eq!(drive.dirty_bytes(), 0);
            assert!(took > 8 * MS && took < 8 * 25 * MS, "{took} ns");
        } else {
            assert!(drive.dirty_bytes() > 0);
            assert_eq!(took, command + flush);
        }
    }
}

#[test]
fn a_flush_waits_for_what_came_before_and_holds_up_what_comes_after() {
    let mut drive = Drive::new(Parameters::sata_7200());
    let read = drive.submit(0, Command::Read, 1 << 40, 4096);
    let flush = drive.submit(0, Command::Flush, 0, 0);
    let late = drive.submit(0, Command::Write, 4096, 4096);
    let order: Vec<_> = std::iter::from_fn(|| drive.next_completion())
        .map(|done| done.ticket)
        .collect();
    assert_eq!(order, [read, flush, late]);
}

#[test]
fn a_drive_without_a_cache_answers_when_the_platters_have_it() {
    let mut parameters = Parameters::sata_7200();
    parameters.cache.bytes = 0;
    let mut drive = Drive::new(parameters.clone());
    let turn = parameters.turn_ns;
    let mut now = drive.run(0, Command::Write, 0, 4096);
    for _ in 0..10 {
        // The place has just passed: a whole turn.
        let done = drive.run(now, Command::Write, 0, 4096);
        assert_eq!(done - now, turn);
        now = done;
    }
    assert_eq!(drive.dirty_bytes(), 0);
}

/// How long `count` random reads take of which `depth` are always there.
fn always(depth: u64, parameters: Parameters, count: u64) -> u64 {
    let (mut drive, mut dice, mut now) = (Drive::new(parameters), Dice(5), 0);
    for begun in 0..count {
        if begun >= depth {
            now = drive.next_completion().unwrap().at;
        }
        let offset = dice.below(drive.parameters().capacity / 4096 - 1) * 4096;
        drive.submit(now, Command::Read, offset, 4096);
    }
    now
}

#[test]
fn sixteen_in_flight_are_served_faster_than_in_order_of_arrival() {
    for parameters in sets() {
        let mut in_order = parameters.clone();
        in_order.depth = 1;
        let (in_order, nearest) = (always(16, in_order, 2000), always(16, parameters, 2000));
        assert!(nearest * 10 < in_order * 6, "{nearest} of {in_order} ns");
    }
}

#[test]
fn a_far_read_among_a_crowd_of_near_ones_waits_no_longer_than_the_bound() {
    let parameters = Parameters::sata_7200();
    let bound = parameters.age_max_ns;
    let far = parameters.capacity - 4096;
    let (mut drive, mut dice) = (Drive::new(parameters), Dice(7));
    for _ in 0..8 {
        drive.submit(0, Command::Read, dice.below(1000) * 4096, 4096);
    }
    let ticket = drive.submit(1, Command::Read, far, 4096);
    let mut served = 0;
    loop {
        let done = drive.next_completion().unwrap();
        if done.ticket == ticket {
            assert!(done.at > bound / 2, "the near ones are nearer: {}", done.at);
            assert!(done.at < bound + 60 * MS, "{}", done.at);
            break;
        }
        served += 1;
        drive.submit(done.at, Command::Read, dice.below(1000) * 4096, 4096);
    }
    assert!(served > 20, "{served}");
}

#[test]
fn a_write_that_waits_for_room_gets_it_among_endless_reads() {
    let mut parameters = Parameters::sata_7200();
    parameters.cache.bytes = MIB;
    let (mut drive, mut dice) = (Drive::new(parameters), Dice(8));
    let mut now = 0;
    for place in 0..16 {
        now = drive.run(now, Command::Write, place << 36, 65_536);
    }
    for _ in 0..8 {
        drive.submit(now, Command::Read, dice.below(1 << 28) * 4096, 4096);
    }
    let ticket = drive.submit(now, Command::Write, 1 << 41, MIB);
    loop {
        let done = drive.next_completion().unwrap();
        if done.ticket == ticket {
            assert!(done.at - now < 17 * 2 * 35 * MS, "{} ns", done.at - now);
            return;
        }
        drive.submit(done.at, Command::Read, dice.below(1 << 28) * 4096, 4096);
    }
}

#[test]
fn a_cache_full_of_random_writes_goes_to_the_platters_faster_than_they_would_alone() {
    let run = |bytes| {
        let mut parameters = Parameters::sata_7200();
        parameters.cache.bytes = bytes;
        let (mut drive, mut dice, mut now) = (Drive::new(parameters), Dice(9), 0);
        for _ in 0..4000 {
            now = drive.run(now, Command::Write, dice.below(900_000_000) * 4096, 4096);
        }
        drive.run(now, Command::Flush, 0, 0)
    };
    let (alone, sorted) = (run(0), run(8 * MIB));
    assert!(sorted * 3 < alone, "{sorted} of {alone} ns");
}

#[test]
fn what_is_in_the_cache_is_read_without_the_arm_and_written_over_without_room() {
    let mut parameters = Parameters::sata_7200();
    parameters.cache.volatile = false;
    let mut drive = Drive::new(parameters);
    // The arm is busy with the first while the others come.
    let mut now = 0;
    for (command, offset, len) in [
        (Command::Write, 0, MIB),
        (Command::Write, 1 << 41, 8192),
        (Command::Write, 1 << 41, 8192),
        (Command::Read, 1 << 41, 4096),
    ] {
        now = drive.run(now, command, offset, len);
    }
    assert!(now < 3 * MS, "{now} ns");
    assert_eq!(drive.dirty_bytes(), 8192);
}

#[test]
fn equal_requests_give_equal_times() {
    let run = || {
        let (mut drive, mut dice, mut times) =
            (Drive::new(Parameters::sata_7200()), Dice(11), Vec::new());
        let mut now = 0;
        for _ in 0..2000 {
            let command = match dice.below(4) {
                0 => Command::Read,
                1 | 2 => Command::Write,
                _ => Command::Flush,
            };
            let (at, len) = (dice.below(900_000_000) * 4096, dice.below(MIB));
            drive.submit(now, command, at, len);
            if dice.below(3) == 0 {
                let done = drive.next_completion().unwrap();
                assert!(done.at >= done.arrival && done.at >= now);
                now = done.at;
                times.push(done);
            }
        }
        times.extend(std::iter::from_fn(|| drive.next_completion()));
        assert!(times.is_sorted_by_key(|done| done.at) && times.len() == 2000);
        times
    };
    assert_eq!(run(), run());
}

#[test]
#[should_panic(expected = "of a drive of")]
fn an_access_beyond_the_drive_is_caught() {
    let mut drive = Drive::new(Parameters::sata_7200());
    drive.submit(0, Command::Read, drive.parameters().capacity - 4096, 4097);
}

fn counts(writes: u64, flushes: u64, reads: u64) -> Counts {
    Counts {
        reads,
        writes,
        flushes,
    }
}

#[test]
fn a_storage_on_a_machine_keeps_its_bytes_and_takes_the_drives_time() {
    let machine = Machine::new(Parameters::sata_7200().with_capacity(1 << 30));
    let memory = Memory::new(1 << 24).unwrap();
    let file = Clocked::new(memory, Arc::clone(&machine), 1 << 29);
    file.resize(1 << 24).unwrap();
    assert_eq!(machine.now_ns(), 0);
    file.write_at(4096, &[7; 8192]).unwrap();
    let written = machine.now_ns();
    assert!((100_000..MS).contains(&written), "{written} ns");
    file.sync().unwrap();
    let synced = machine.now_ns();
    assert!((MS..40 * MS).contains(&(synced - written)), "{synced} ns");
    let mut seen = [0; 8192];
    file.read_at(4096, &mut seen).unwrap();
    assert_eq!(seen, [7; 8192]);
    assert!(machine.now_ns() - synced > MS);
    file.write_durably(0, &[1; 10]).unwrap();
    assert_eq!(machine.counts(), counts(2, 2, 1));
    let before = machine.now_ns();
    machine.pass(5);
    assert_eq!(machine.now_ns(), before + 5);
    assert_eq!(file.path(), Path::new("memory"));
}

#[test]
fn what_was_stored_in_memory_is_written_with_the_next_sync() {
    const PAGE: u64 = 4096;
    let machine = Machine::new(Parameters::sata_7200().with_capacity(1 << 30));
    let sparse = Sparse::new(1 << 24, 16 * PAGE).unwrap();
    let file = Clocked::over(sparse, Arc::clone(&machine), 0);
    let map = file.map(16 * PAGE).unwrap();
    map.write(PAGE, &[7; PAGE as usize + 1]);
    file.write_at(9 * PAGE, &[7]).unwrap();
    file.read_at(PAGE, &mut [0; 9]).unwrap();
    assert_eq!((machine.now_ns(), machine.counts()), (0, Counts::default()));
    file.sync().unwrap();
    assert_eq!(machine.counts(), counts(2, 1, 0));
    file.sync().unwrap();
    assert_eq!(machine.counts(), counts(2, 2, 0));
    map.write(0, &[7]);
    file.write_durably(PAGE, &[7]).unwrap();
    assert_eq!(machine.counts(), counts(3, 3, 0));
    file.sync().unwrap();
    assert_eq!(machine.counts(), counts(4, 4, 0));
    file.write_at(16 * PAGE, &[7]).unwrap();
    file.read_at(16 * PAGE, &mut [0; 9]).unwrap();
    assert_eq!(machine.counts(), counts(5, 4, 1));
}

#[test]
fn a_storage_ends_where_its_drive_does_and_a_failed_call_takes_no_time() {
    let machine = Machine::new(Parameters::sata_7200().with_capacity(1 << 20));
    let memory = Memory::new(1 << 24).unwrap();
    let file = Clocked::new(memory, Arc::clone(&machine), 1 << 19);
    let error = refusal(file.resize((1 << 19) + 1), crate::error::Kind::Full);
    assert!(
        error.contains("the drive ends before the storage"),
        "{error}"
    );
    file.resize(1 << 19).unwrap();
    file.read_at((1 << 19) - 1, &mut [0; 2]).unwrap_err();
    assert_eq!(machine.now_ns(), 0);
}
