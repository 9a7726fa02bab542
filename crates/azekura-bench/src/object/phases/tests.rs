//! Phases over every store, tiny: each finds what the ones before it put, accesses are counted, and a run that fails leaves no
//! store of its own behind. What an engine cannot do ends the run with an error.
//!
//! They state nothing about speed.

use super::*;
use crate::object::operation::{Method, RESULTS, read_array};
use crate::object::stores::Engine;
use crate::phase::{Class, collect};
use crate::words::read_flags;

fn plan(path: &Path, flags: &str) -> ObjectPlan {
    ObjectPlan {
        path: Some(path.to_path_buf()),
        ..read_flags(&format!("--json {flags}")).unwrap()
    }
}

fn phases(engine: Engine, path: &Path, flags: &str) -> Result<Vec<Phase>> {
    let plan = plan(path, &format!("--count 50 --value-size 4KiB {flags}"));
    let sample = Some(plan.sample.unwrap_or(20));
    let plan = ObjectPlan { sample, ..plan };
    collect(|emit| run("x", engine.open(), &plan, emit))
}

#[test]
fn stores_find_what_was_put_in_every_class_and_at_every_depth() {
    let ways = [
        (Engine::Azekura, "", Class::Process),
        (
            Engine::Azekura,
            "--durability buffered --depth 4 --cold",
            Class::Buffered,
        ),
        (Engine::Azekura, "--durability power --fill", Class::Power),
        (Engine::Files, "--depth 4 --cold", Class::Process),
        (Engine::Files, "--durability power", Class::Power),
        (Engine::Files, "--rate 100000 --depth 2", Class::Process),
    ];
    for (engine, flags, class) in ways {
        let folder = tempfile::tempdir().unwrap();
        let found = phases(engine, &folder.path().join("s"), flags).unwrap();
        let hits: Vec<_> = found.iter().map(|phase| phase.hits.unwrap()).collect();
        // A put into files does not report whether there was one; the delete may have removed what the load reads.
        let updated = if engine == Engine::Files { 0 } else { 20 };
        assert_eq!(hits[..4], [0, updated, 20, 20], "{flags}");
        let counts: Vec<_> = found.iter().map(|phase| phase.count).collect();
        assert_eq!(counts, [50, 20, 20, 20, 1]);
        assert!(found.iter().all(|phase| phase.durability == Some(class)));
        assert!(
            found[..4]
                .iter()
                .all(|phase| phase.summary().unwrap().errors == 0)
        );
        if engine == Engine::Files {
            assert_eq!(found[0].cost.file_bytes, Some(50 * 4096));
            assert_eq!(found[4].cost.file_bytes, Some(30 * 4096));
        }
        let cold = flags.contains("--cold");
        assert!(
            found[0].object().unwrap().cold.is_none()
                && found[1..]
                    .iter()
                    .all(|p| p.object().unwrap().cold.is_some() == cold)
        );
    }
}

#[test]
fn the_device_and_nothing_run_every_phase() {
    let folder = tempfile::tempdir().unwrap();
    let found = phases(Engine::None, &folder.path().join("n"), "--ops put,get").unwrap();
    assert_eq!(found[1].hits, Some(20));
    assert_eq!(found[1].durability, Some(Class::None));
    // A file system in memory has no direct access.
    let path = folder.path().join("d");
    if azekura::io::direct::DirectFile::create(folder.path().join("try")).is_ok() {
        let found = phases(Engine::Device, &path, "--durability power --depth 2").unwrap();
        let counted = |phase: &Phase| {
            phase
                .object()
                .unwrap()
                .store
                .map(|own| (own.reads, own.writes, own.syncs))
        };
        // A write and a sync each, and one sync at the end.
        assert_eq!(counted(&found[0]), Some((0, 50, 51)));
        assert_eq!(counted(&found[1]), Some((0, 20, 21)));
        assert_eq!(counted(&found[2]), Some((20, 0, 0)));
        // A superblock, and the values.
        assert_eq!(found[0].cost.file_bytes, Some(51 * 4096));
    }
}

#[test]
fn accesses_are_counted_for_every_store_and_are_one_for_each_operation_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    for (engine, flags) in [
        (Engine::Azekura, "--fill --value-size 40KiB"),
        (
            Engine::Azekura,
            "--fill --durability power --value-size 40KiB",
        ),
        (Engine::Files, ""),
        (Engine::Files, "--durability power"),
    ] {
        let path = folder.path().join(format!("{engine:?}{}", flags.len()));
        let plan = plan(&path, &format!("--count 50 --sample 20 {flags}"));
        let mut found = Vec::new();
        let mut emit = |phase: Phase| {
            found.push((
                phase.object().unwrap().store.unwrap(),
                phase.object().unwrap().calls,
            ));
            Ok(())
        };
        run("x", engine.open(), &plan, &mut emit).unwrap();
        let [put, update, get, delete, load] = &found[..] else {
            panic!("{} phases", found.len());
        };
        assert!(
            put.0.writes >= 50 && update.0.writes >= 20,
            "{flags}: {put:?} {update:?}"
        );
        // Leaves of the index come in with the first of their objects.
        let leaves = u64::from(engine == Engine::Azekura);
        assert!(
            (20..=20 + 3 * leaves).contains(&get.0.reads),
            "{flags}: {get:?}"
        );
        assert_eq!((get.0.writes, get.0.syncs), (0, 0), "{flags}");
        assert!(delete.0.reads <= 3 * leaves, "{flags}: {delete:?}");
        assert!(load.0.reads >= 1, "{flags}");
        let synced = flags.contains("power");
        assert_eq!(put.0.syncs > 50, synced, "{flags}: {put:?}");
        if engine == Engine::Azekura {
            // The journal's segments are small compared with the values.
            assert!(
                put.0.writes < 60 && update.0.writes < 30,
                "{flags}: {put:?}"
            );
            assert!(put.0.syncs < 60, "{flags}: {put:?}");
        }
        assert!(found.iter().all(|(_, calls)| calls.is_some()), "{flags}");
    }
}

#[test]
fn a_workload_from_a_file_makes_the_store_and_its_results_can_be_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let (workload, results) = (folder.path().join("w"), folder.path().join("r"));
    let mut array = writer(&workload).unwrap();
    for key in ["a", "b"] {
        let key = key.to_owned();
        array
            .add(&Operation::Put {
                key: key.clone(),
                value: ValueOf { size: 9 },
            })
            .unwrap();
        array.add(&Operation::Get { key }).unwrap();
    }
    array.add(&Operation::Get { key: "c".into() }).unwrap();
    array.finish().unwrap();
    let plan = ObjectPlan {
        workload: Some(workload),
        results: Some(results.clone()),
        ..plan(&folder.path().join("s"), "")
    };
    let again = || collect(|emit| run("x", Engine::Files.open(), &plan, emit)).unwrap();
    let phases = [again(), again()].concat();
    let existence = phases[1].summary().unwrap().existence;
    assert_eq!(
        (existence.exists, existence.absents, existence.unknowns),
        (2, 1, 2)
    );
    let mut found = Vec::new();
    let mut keep = |outcome: Outcome| {
        found.push(outcome);
        Ok(())
    };
    read_array(File::open(&results).unwrap(), &results, RESULTS, &mut keep).unwrap();
    assert_eq!(found.len(), 5);
    assert_eq!(
        (found[1].method, found[1].exists),
        (Method::Get, Some(true))
    );
    assert_eq!((found[4].key.as_str(), found[4].exists), ("c", Some(false)));
}

#[test]
fn an_object_that_was_put_and_is_gone_is_reported_and_ends_the_run() {
    /// Files, of which every third goes when the store is opened again.
    fn forgetful(setup: &Setup) -> Result<Box<dyn crate::object::store::Objects>> {
        fn thin(folder: &Path, seen: &mut u32) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    thin(&path, seen);
                } else {
                    *seen += 1;
                    if seen.is_multiple_of(3) {
                        std::fs::remove_file(path).unwrap();
                    }
                }
            }
        }
        if !setup.create {
            thin(setup.path.as_ref().unwrap(), &mut 0);
        }
        crate::object::stores::files::open(setup)
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let plan = |ops| {
        let flags = format!("--count 60 --sample 60 --value-size 9 --ops {ops}");
        plan(&path, &flags)
    };
    let mut found = Vec::new();
    let mut emit = |phase| {
        found.push(phase);
        Ok(())
    };
    let error = run("x", forgetful, &plan("put,get"), &mut emit).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupted);
    let text = error.to_string();
    assert!(text.contains("no object where this run put one"), "{text}");
    assert!(
        text.contains("20 of 60 found none") && text.contains("kept"),
        "{text}"
    );
    assert!(path.exists());
    // In a store of an earlier run it is not known what removed it.
    let error = run("x", Engine::Files.open(), &plan("get"), &mut emit).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("--seed"), "{error}");
    let counts = |phase: &Phase| {
        let object = phase.object().unwrap();
        (
            phase.count,
            Some(object.missing),
            Some(object.failed),
            phase.hits,
        )
    };
    assert_eq!(counts(&found[1]), (60, Some(20), Some(0), Some(40)));
    assert_eq!(counts(&found[2]), counts(&found[1]));
    let summary = found[1].summary().unwrap();
    let rate = summary.done() as f64 / found[1].seconds;
    assert!((found[1].ops_per_second - rate).abs() < 1e-6 * rate);
    assert_eq!(summary.done(), 40);
}

#[test]
fn what_a_phase_removed_may_be_missed_in_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let flags = "--sample 50 --ops put,delete,get,load,update,get";
    let found = phases(Engine::Files, &folder.path().join("s"), flags).unwrap();
    let missing: Vec<_> = found
        .iter()
        .map(|phase| phase.object().unwrap().missing)
        .collect();
    assert_eq!(missing, [0, 0, 50, 1, 0, 0]);
    // A load reads one that is there, if any is.
    let flags = "--sample 49 --ops put,delete,load";
    let found = phases(Engine::Files, &folder.path().join("t"), flags).unwrap();
    assert_eq!(found[2].hits, Some(1));
}

#[test]
fn changed_bytes_of_a_file_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    phases(Engine::Files, &path, "--ops put").unwrap();
    let mut place = path.clone();
    while place.is_dir() {
        place = std::fs::read_dir(&place)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
    }
    std::fs::write(&place, [7; 4096]).unwrap();
    let error = phases(Engine::Files, &path, "--ops get --sample 50").unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupted);
    phases(Engine::Files, &path, "--ops get --sample 50 --no-verify").unwrap();
}
