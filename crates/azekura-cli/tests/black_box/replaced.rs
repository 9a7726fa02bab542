//! Which existing files a command may write over: results replace results, and never a store.
//!
//! A store is recognised by either of its superblock slots, so that one that is damaged, of which the rest can be read, is
//! not replaced. The device under measurement writes to the files that it made itself. It does not know what results hold.

use crate::program::Place;

fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

/// `--engine device` wrote over whatever file there was.
#[test]
fn the_device_under_measurement_writes_to_its_own_files_only() {
    let place = Place::with_store();
    place.run(&["set", "s.azh", "k", "v"]).ok();
    place
        .run(&["object", "create", "s.azo", "--capacity", "16MiB"])
        .ok();
    place.write("text", "a text of one line\n".repeat(5000));
    place.write("short", "short");
    place.write("empty", "");
    let puts = "bench object workload put --count 3 --value-size 4KiB";
    let puts = place.run(&words(puts)).ok();
    let phases = "--ops update --count 3 --value-size 4KiB";
    for name in ["s.azh", "s.azo", "text", "short", "empty"] {
        let before = place.read(name);
        let run = format!("bench object --engine device --path {name}");
        let error = place.run(&words(&format!("{run} {phases}"))).error(7);
        assert!(error.starts_with("mismatch: "), "{error}");
        assert!(error.contains(name), "{error}");
        let workload = format!("{run} --value-size 4KiB --workload -");
        let ran = place.run_with(&words(&workload), puts.as_bytes());
        assert_eq!(ran.error(7), error);
        assert!(place.read(name) == before, "{name} was written to");
    }
    let own = "bench object --engine device --path own --count 3 --value-size 4KiB --json --ops";
    place.run(&words(&format!("{own} put"))).ok();
    place.run(&words(&format!("{own} update,get,delete"))).ok();
    assert_eq!(place.read("own").len(), 4 * 4096, "a superblock and values");
}

/// The check looked at the first slot only, and results of the bench were not checked at all.
#[test]
fn no_file_of_results_replaces_a_store_whichever_slot_of_it_is_damaged() {
    let place = Place::with_store();
    place.run(&["set", "s.azh", "k", "v"]).ok();
    place
        .run(&["object", "create", "s.azo", "--capacity", "16MiB"])
        .ok();
    place
        .run(&["object", "put", "s.azo", "1", "--value", "x"])
        .ok();
    let results = "bench object --engine files --path o --count 2 --value-size 1KiB --ops put";
    let results = place.run(&words(&format!("{results} --results -"))).ok();
    for store in ["s.azh", "s.azo"] {
        let whole = place.read(store);
        // The magic of either slot, and no damage.
        for damaged in [Some(0), Some(4096), None] {
            let mut bytes = whole.clone();
            if let Some(offset) = damaged {
                bytes[offset] ^= 1;
            }
            place.write("there", &bytes);
            for command in [
                "export s.azh tsv there",
                "object get s.azo 1 --output there",
                "bench object --engine files --path p --count 2 --value-size 1KiB --results there",
                "bench object plot svg there",
            ] {
                let error = place.run_with(&words(command), results.as_bytes()).error(3);
                let expected = "invalid: the target is a store at there";
                assert!(error.starts_with(expected), "{command}: {error}");
                assert!(place.read("there") == bytes, "{command}: {damaged:?}");
            }
        }
    }
    // Zeros are no store.
    place.write("there", [0; 16_384]);
    place.run(&["export", "s.azh", "tsv", "there"]).ok();
    assert_eq!(place.read("there"), b"k\tv\n");
}
