//! Stores of several shards by the command line: made, filled, read, loaded, compacted and copied as one store, and what changed of
//! them brought to a copy. What is refused changes nothing.
//!
//! It does not test what a crash leaves: the library's own tests do.

use crate::program::{Place, lines};

fn shards_of(place: &Place, store: &str) -> usize {
    let prefix = format!("{store}.shard-");
    let names = place.names();
    names
        .iter()
        .filter(|name| name.starts_with(&prefix))
        .count()
}

#[test]
fn a_store_of_shards_is_made_and_used_as_one() {
    let place = Place::new();
    for (store, more) in [
        ("t.azt", &["--order", "decimal", "--page-size", "8KiB"][..]),
        ("h.azh", &["--compression", "lz4"]),
    ] {
        let create = ["create", store, "--shards", "3"];
        place.run(&[&create[..], more].concat()).ok();
        assert_eq!(shards_of(&place, store), 3);
        place.run(&["set", store, "9", "nine", "10", "ten"]).ok();
        place.run(&["append", store, "10", "th"]).ok();
        assert_eq!(place.run(&["get", store, "10"]).ok(), "tenth\n");
        let records = lines(3000, |n| format!("{}\tvalue {n}\n", 1000 + n * 7 % 3000));
        place.write("in", records);
        place.run(&["import", store, "tsv", "in"]).ok();
        assert_eq!(place.run(&["count", store]).ok(), "3002\n");
        let inspected = place.run(&["inspect", store]).ok();
        assert!(inspected.contains("shards") && inspected.contains('3'));
        let before = place.run(&["export", store, "tsv"]).ok();
        place.run(&["compact", store]).ok();
        assert!(place.run(&["export", store, "tsv"]).ok() == before);
        let checked = place.run(&["check", store]).ok();
        assert!(checked.contains("3002 records"), "{checked}");
        let ran = place.run(&["repair", store, "new"]);
        assert_eq!(ran.code, 7, "{}", ran.err);
        assert!(ran.err.contains("a shard's own file"), "{}", ran.err);
    }
    let listed = place.run(&["list", "t.azt", "--keys", "--items", "3"]);
    assert_eq!(String::from_utf8_lossy(&listed.out), "9\n10\n1000\n");
    let shard = place.run(&["inspect", "t.azt.shard-000"]).ok();
    assert!(
        shard.contains("8192") && shard.contains("decimal"),
        "{shard}"
    );
    for shards in ["0", "257"] {
        let ran = place.run(&["create", "n.azt", "--shards", shards]);
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.err.contains("1 to 256"), "{}", ran.err);
    }
    assert!(!place.names().iter().any(|name| name.starts_with("n.azt")));
}

/// Each file is a store by itself, and has another identity when it was written anew.
#[test]
fn a_store_of_shards_is_rebuilt_and_takes_in_what_was_repaired() {
    let place = Place::new();
    for store in ["t.azt", "h.azh"] {
        place.run(&["create", store, "--shards", "3"]).ok();
        place.write("in", lines(3000, |n| format!("{n:04}\tvalue {n}\n")));
        place.run(&["import", store, "tsv", "in"]).ok();
        let records = || {
            let all = place.run(&["list", store]).ok();
            let mut all: Vec<String> = all.lines().map(str::to_owned).collect();
            all.sort();
            all
        };
        let before = records();
        place.run(&["rebuild", store, "--compression", "zstd"]).ok();
        assert_eq!(records(), before);
        place.run(&["check", store]).ok();
        let shard = format!("{store}.shard-001");
        let inspected = place.run(&["inspect", &shard]).ok();
        assert!(inspected.contains("zstd"), "{inspected}");
        place.run(&["repair", &shard, "repaired"]).ok();
        std::fs::rename(place.path("repaired"), place.path(&shard)).unwrap();
        let ran = place.run(&["get", store, "0007"]);
        assert_eq!(ran.code, 7, "{}", ran.err);
        assert!(
            ran.err.contains("`azekura rebuild` of the store"),
            "{}",
            ran.err
        );
        place.run(&["rebuild", store]).ok();
        assert_eq!(records(), before);
        // Another shard's file is not taken in.
        let other = format!("{store}.shard-002");
        place.run(&["copy", &other, "copied"]).ok();
        std::fs::rename(place.path("copied"), place.path(&shard)).unwrap();
        let ran = place.run(&["rebuild", store]);
        assert_eq!(ran.code, 7, "{}", ran.err);
        assert!(ran.err.contains("belong into others"), "{}", ran.err);
    }
}

#[test]
fn sorted_records_are_loaded_into_an_empty_tree_or_shards_of_trees() {
    let place = Place::new();
    place.write("in", lines(5000, |n| format!("{n:05}\tvalue {n}\n")));
    let all = String::from_utf8(place.read("in")).unwrap();
    let load = |store: &str, source: &str| place.run(&["import", store, "tsv", source, "--sorted"]);
    place.write("twice", format!("{all}04999\tagain\n"));
    place.write("broken", format!("{all}no tab\n"));
    for (store, more) in [("one.azt", &[][..]), ("four.azt", &["--shards", "4"])] {
        place.run(&[&["create", store], more].concat()).ok();
        for (source, shown) in [("twice", "record 5001"), ("broken", "line 5001")] {
            let ran = load(store, source);
            assert_eq!(ran.code, 3, "{}", ran.err);
            assert!(ran.err.contains(shown), "{}", ran.err);
            assert_eq!(place.run(&["count", store]).ok(), "0\n", "nothing stays");
        }
        assert_eq!(load(store, "in").ok(), "5000 records stored\n");
        assert!(place.run(&["export", store, "tsv"]).ok() == all);
        place.run(&["check", store]).ok();
        let ran = load(store, "in");
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.err.contains("empty store only"), "{}", ran.err);
    }
    place.run(&["create", "h.azh"]).ok();
    let ran = load("h.azh", "in");
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("no order of keys"), "{}", ran.err);
    for with in ["--partial", "--keep-existing", "--order=decimal"] {
        let ran = place.run(&["import", "one.azt", "tsv", "in", "--sorted", with]);
        assert_eq!(ran.code, 2, "{}", ran.err);
    }
}

#[test]
fn a_copy_of_shards_is_brought_forward_by_what_changed_since() {
    let place = Place::new();
    place.run(&["create", "t.azt", "--shards", "3"]).ok();
    place.write("in", lines(3000, |n| format!("{n:04}\tvalue {n}\n")));
    place.run(&["import", "t.azt", "tsv", "in"]).ok();
    place.run(&["copy", "t.azt", "c.azt"]).ok();
    place
        .run(&["set", "t.azt", "0007", "changed", "more", "1"])
        .ok();
    let since = |since: &str, name: &str| place.run(&["copy", "t.azt", name, "--since", since]);
    let apply = |name: &str| place.run(&["apply", "c.azt", name]);
    since("c.azt", "one").ok();
    assert_eq!(shards_of(&place, "one"), 3);
    let applied = apply("one").ok();
    let ids = applied.trim().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(ids.split(',').count(), 3, "{applied}");
    let inspected = place.run(&["inspect", "c.azt"]).ok();
    assert!(inspected.contains(&ids), "{inspected}");
    place.run(&["remove-range", "t.azt", "--to", "1000"]).ok();
    since(&ids, "two").ok();
    apply("one").ok();
    let now = place.run(&["export", "t.azt", "tsv"]).ok();
    // One file of the changes is not there: no shard is written.
    std::fs::rename(place.path("two.shard-002"), place.path("kept")).unwrap();
    let before = place.read("c.azt.shard-000");
    let ran = apply("two");
    assert_eq!(ran.code, 7, "{}", ran.err);
    assert!(ran.err.contains("two.shard-002"), "{}", ran.err);
    assert!(place.read("c.azt.shard-000") == before);
    std::fs::rename(place.path("kept"), place.path("two.shard-002")).unwrap();
    apply("two").ok();
    assert!(place.run(&["export", "c.azt", "tsv"]).ok() == now);
    place.run(&["check", "c.azt"]).ok();
    // Changes are no store; a store is no changes; what there is stays; hash files have none.
    let ran = place.run(&["get", "two", "more"]);
    assert!(
        ran.code == 7 && ran.err.contains("azekura apply COPY CHANGES"),
        "{}",
        ran.err
    );
    assert_eq!(apply("t.azt").code, 7);
    assert_eq!(since("c.azt", "two").code, 3);
    assert_eq!(since(ids.split(',').next().unwrap(), "none").code, 3);
    place.run(&["create", "h.azh", "--shards", "2"]).ok();
    let ran = place.run(&["copy", "h.azh", "none", "--since", "c.azt"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("without --since"), "{}", ran.err);
    assert!(!place.names().iter().any(|name| name.starts_with("none")));
}
