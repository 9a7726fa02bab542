//! That the model says of `CannyLS` what the published run measured, where it can.
//!
//! And that the real store asks the drive for what it promises. Everything runs in virtual time, replays on the full geometry
//! with a part of the operations; expected figures are the published ones and the drives' turns. The seed is the plan's.

use azekura::io::sim::drive::Parameters;

use super::published::{ROWS, SIZES, rate, row_of, table};
use super::*;

/// All phases of `pattern` in the published geometry, with one operation of `scale`.
fn replay(size: u64, scale: u64, pattern: &mut dyn Pattern) -> Vec<Phase> {
    let mut phases = Vec::new();
    run(&Plan::published(size, scale), pattern, &mut |phase| {
        phases.push(phase);
        Ok(())
    })
    .unwrap();
    phases
}

fn median_ms(phase: &Phase) -> f64 {
    phase.latency_us.as_ref().unwrap().p50 / 1000.0
}

/// Whether a figure differs from the published one by less than `percent`.
fn near(found: f64, published: f64, percent: f64) -> bool {
    (found / published - 1.0).abs() * 100.0 < percent
}

#[test]
fn the_model_reproduces_the_published_gets_and_new_puts_of_cannyls() {
    for size in SIZES {
        let mut pattern = Cannyls::new(Parameters::published(), 4096);
        for phase in replay(size, 50, &mut pattern) {
            let row = row_of(&phase).unwrap();
            match phase.op.as_str() {
                "put new" => assert!(near(rate(&phase), row.rate, 15.0), "{}", phase.to_json()),
                "get" => {
                    assert!(
                        near(median_ms(&phase), row.median * 1000.0, 5.0),
                        "{}",
                        phase.to_json()
                    );
                    assert_eq!(
                        phase.cost.device.reads,
                        Some(phase.count),
                        "one access each"
                    );
                }
                "delete" => assert!(
                    near(median_ms(&phase), row.median * 1000.0, 5.0),
                    "{}",
                    phase.to_json()
                ),
                _ => {
                    let journals = phase.cost.device.writes.unwrap() - phase.count;
                    assert!(journals <= 1, "one write each: {}", phase.to_json());
                }
            }
        }
    }
}

#[test]
fn the_whole_phase_of_small_updates_overflows_the_cache_as_it_did() {
    let mut plan = Plan::published(SIZES[0], 1);
    plan.new = 200;
    let mut pattern = Cannyls::new(Parameters::published(), 4096);
    let mut seen = None;
    run(&plan, &mut pattern, &mut |phase| {
        if phase.op == "put update" {
            seen = Some(phase);
        }
        Ok(())
    })
    .unwrap();
    let update = seen.unwrap();
    let row = row_of(&update).unwrap();
    assert_eq!(update.count, 100_000);
    assert!(near(rate(&update), row.rate, 15.0), "{}", update.to_json());
    assert!(
        near(median_ms(&update), row.median * 1000.0, 15.0),
        "{}",
        update.to_json()
    );
}

#[test]
fn one_disk_and_the_pauses_of_the_tool_explain_the_published_rates_as_well() {
    let mut parameters = Parameters::published();
    parameters.write_gain = 1000;
    for size in SIZES {
        let mut plan = Plan::published(size, 50);
        plan.think_ns_per_mib = 1_950_000;
        let mut pattern = Cannyls::new(parameters.clone(), 4096);
        run(&plan, &mut pattern, &mut |phase| {
            let row = row_of(&phase).unwrap();
            assert!(
                phase.op != "put new" || near(rate(&phase), row.rate, 10.0),
                "{}",
                phase.to_json()
            );
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn a_synced_put_of_cannyls_costs_turns_where_the_cache_is_volatile() {
    let of = |parameters: Parameters| {
        let phases = replay(SIZES[0], 1000, &mut Cannyls::new(parameters, 0));
        assert_eq!(
            phases[0].cost.device.syncs,
            Some(2 * phases[0].count),
            "a flush on each side of the file system's journal"
        );
        assert_eq!(phases[1].cost.device.syncs, Some(phases[1].count));
        (median_ms(&phases[0]), median_ms(&phases[3]))
    };
    let (safe, volatile) = (of(Parameters::published()), of(Parameters::sata_7200()));
    // The published median, 0.519 ms, has a poll more or less.
    assert!((safe.0 - 0.519).abs() < 0.17 && safe.1 < 0.35, "{safe:?}");
    // Two accesses and a turn at least; a removal waits for a turn.
    assert!(
        volatile.0 > 15.0 && near(volatile.1, 60_000.0 / 7200.0, 3.0),
        "{volatile:?}"
    );
}

#[test]
fn in_place_updates_are_slower_than_new_puts_once_no_cache_hides_the_arm() {
    let mut parameters = Parameters::sata_7200();
    parameters.cache.bytes = 8 << 20;
    let phases = replay(SIZES[0], 100, &mut Cannyls::new(parameters, 4096));
    assert!(
        rate(&phases[0]) > 2.0 * rate(&phases[1]),
        "{} and {}",
        rate(&phases[0]),
        rate(&phases[1])
    );
}

#[test]
fn files_cost_three_reads_a_get_and_pause_who_writes_much() {
    let phases = replay(
        SIZES[0],
        1000,
        &mut Files::new(Parameters::published(), false),
    );
    let [new, update, get, delete] = phases.try_into().unwrap();
    let reads = |phase: &Phase| phase.cost.device.reads.unwrap() / phase.count;
    assert_eq!([&new, &update, &get, &delete].map(reads), [0, 3, 3, 2]);
    assert!(
        near(rate(&get), row_of(&get).unwrap().rate, 15.0),
        "{}",
        rate(&get)
    );
    let us = new.latency_us.unwrap();
    assert!(us.p50 < 150.0 && us.max > 200_000.0, "{us:?}");
    assert_eq!(new.cost.device.syncs, Some(0));
}

#[test]
fn files_that_are_synced_wait_for_their_journal_twice() {
    let phases = replay(
        SIZES[0],
        1000,
        &mut Files::new(Parameters::sata_7200(), true),
    );
    assert_eq!(phases[0].cost.device.syncs, Some(4 * phases[0].count));
    assert!(median_ms(&phases[0]) > 4.0 * 60_000.0 / 7200.0 / 2.0);
    assert_eq!(phases[0].durability, Some(Durability::Power.into()));
}

/// All phases of `pattern` on a part of the objects.
fn on_part(plan: &Plan, pattern: &mut dyn Pattern) -> Vec<Phase> {
    let mut phases = Vec::new();
    run(plan, pattern, &mut |phase| {
        phases.push(phase);
        Ok(())
    })
    .unwrap();
    phases
}

/// The geometry of a ten thousandth: a thousand objects of 100 KiB.
fn small(disk: &Parameters) -> (Parameters, u64, Plan) {
    let part = 10_000;
    let plan = Plan::of_part(SIZES[0], part, 100);
    let disk = disk.clone().with_capacity(disk.capacity / part);
    (disk, CAPACITY / part, plan)
}

#[test]
fn the_real_store_asks_for_one_access_an_operation() {
    for power in [false, true] {
        let (disk, capacity, plan) = small(&Parameters::published());
        let mut own = Azekura::new(disk, capacity, power).unwrap();
        let [new, update, get, delete] = on_part(&plan, &mut own).try_into().unwrap();
        let count = |phase: &Phase, of: Option<u64>| of.unwrap() as f64 / phase.count as f64;
        for put in [&new, &update] {
            assert_eq!(put.cost.device.reads, Some(0));
            let writes = count(put, put.cost.device.writes);
            // To survive power, the journal's page and the mark's are written with the value, and one flush is for all.
            let wanted = if power { 1.0..3.1 } else { 1.0..1.1 };
            assert!(wanted.contains(&writes), "{writes}: {}", put.to_json());
        }
        assert_eq!(get.cost.device.reads, Some(get.count));
        assert_eq!(
            (get.cost.device.writes, get.cost.device.syncs),
            (Some(0), Some(0))
        );
        // Updates go as far inward as there is room.
        assert!(near(median_ms(&get), 9.9, 15.0), "{}", get.to_json());
        let (puts, removals) = (
            count(&update, update.cost.device.syncs),
            count(&delete, delete.cost.device.syncs),
        );
        if power {
            assert!((1.0..1.1).contains(&puts), "{}", update.to_json());
            // A removal is a page of the journal and a flush.
            assert!((1.0..1.1).contains(&removals), "{}", delete.to_json());
        } else {
            assert!(puts < 0.1 && removals < 0.1, "{}", update.to_json());
        }
        assert_eq!(own.store().count(), plan.population - delete.count);
        own.store().check_room().unwrap();
    }
}

#[test]
fn updates_that_go_forward_are_as_fast_as_new_puts_and_twice_as_fast_as_those_in_place() {
    // So small a cache that what waits there cannot hide the arm.
    let mut disk = Parameters::sata_7200();
    disk.cache.bytes = 8 << 20;
    let (disk, capacity, plan) = small(&disk);
    let own = on_part(
        &plan,
        &mut Azekura::new(disk.clone(), capacity, false).unwrap(),
    );
    let theirs = on_part(&plan, &mut Cannyls::new(disk, 4096).direct(capacity));
    assert!(
        rate(&own[1]) > 0.9 * rate(&own[0]),
        "{} and {}",
        own[1].to_json(),
        own[0].to_json()
    );
    assert!(
        rate(&own[1]) > 2.0 * rate(&theirs[1]),
        "{} and {}",
        own[1].to_json(),
        theirs[1].to_json()
    );
}

#[test]
fn stores_side_by_side_have_one_class_and_show_what_ours_is_of_theirs() {
    let phases = beside::run_all(&Parameters::sata_7200(), 10_000, 1000, true).unwrap();
    assert_eq!(phases.len(), 3 * SIZES.len() * 4);
    assert!(
        phases
            .iter()
            .all(|phase| phase.durability == Some(Durability::Power.into()))
    );
    let text = beside::table(&phases);
    assert_eq!(text.lines().count(), 2 + phases.len());
    let ratios = text.lines().filter(|line| line.contains("x |")).count();
    assert_eq!(ratios, phases.len() * 2 / 3, "{text}");
}

#[test]
fn a_replay_gives_the_same_phases_each_time() {
    let once = || {
        let phases = replay(
            SIZES[1],
            1000,
            &mut Files::new(Parameters::nominal_15k(), true),
        );
        phases.iter().map(Phase::to_json).collect::<Vec<_>>()
    };
    assert_eq!(once(), once());
}

#[test]
fn the_table_shows_what_a_figure_is_of_the_published_one() {
    let phases = replay(
        SIZES[2],
        1000,
        &mut Cannyls::new(Parameters::published(), 4096),
    );
    let text = table(&phases);
    let get = text
        .lines()
        .find(|line| line.starts_with("| get | 10 MiB | cannyls | less |"))
        .unwrap();
    assert_eq!(get.matches("x)").count(), 3, "{get}");
    assert_eq!(text.lines().count(), 2 + 4);
    let text = table(&replay(
        SIZES[2],
        1000,
        &mut Files::new(Parameters::published(), true),
    ));
    assert!(!text.contains("x)") && text.contains("| power |"), "{text}");
}

#[test]
fn every_store_phase_and_size_has_one_published_row() {
    for engine in ["cannyls", "cannyls(sync)", "files"] {
        for op in ["put new", "put update", "get", "delete"] {
            for size in SIZES {
                let found = ROWS
                    .iter()
                    .filter(|row| (row.engine, row.op, row.size) == (engine, op, size));
                assert_eq!(found.count(), 1, "{engine}, {op}, {size}");
            }
        }
    }
}
