//! Tree files by the command line: made, filled, read in order, copied, and refused by the commands that are of hash files. What is
//! refused makes no file, and changes none.
//!
//! It does not test what a crash leaves: the library's own tests do.

use crate::program::{Place, lines};

#[test]
fn a_tree_is_made_and_taken_by_every_command_that_takes_any_store() {
    let place = Place::new();
    place.run(&["create", "t.azt", "--order", "decimal"]).ok();
    place
        .run(&["set", "t.azt", "10", "ten", "9", "nine", "100", "more"])
        .ok();
    assert_eq!(place.run(&["get", "t.azt", "9"]).ok(), "nine\n");
    place.run(&["get", "t.azt", "8"]).no();
    let listed = place.run(&["export", "t.azt", "tsv"]).ok();
    assert_eq!(listed, "9\tnine\n10\tten\n100\tmore\n");
    place.run(&["remove", "t.azt", "9"]).ok();
    assert_eq!(place.run(&["increment", "t.azt", "1"]).ok(), "1\n");
    place.run(&["append", "t.azt", "10", "th"]).ok();
    assert_eq!(place.run(&["get", "t.azt", "10"]).ok(), "tenth\n");
    let records = lines(3000, |n| format!("{}\tvalue {n}\n", 1000 + n * 7 % 3000));
    place.write("in", records);
    place.run(&["import", "t.azt", "tsv", "in"]).ok();
    let checked = place.run(&["check", "t.azt"]).ok();
    assert!(checked.contains("3003 records"), "{checked}");
    place.run(&["copy", "t.azt", "c.azt"]).ok();
    let both = ["t.azt", "c.azt"].map(|file| place.run(&["export", file, "flat"]).out);
    assert!(both[0] == both[1] && !both[0].is_empty());
    let inspected = place.run(&["inspect", "c.azt"]).ok();
    for part in ["tree", "3003", "decimal", "levels"] {
        assert!(inspected.contains(part), "{inspected}");
    }
    // The other way round, by name and by engine.
    place.run(&["create", "x", "--engine", "tree"]).ok();
    place.run(&["merge", "x", "t.azt"]).ok();
    assert_eq!(place.run(&["get", "x", "10"]).ok(), "tenth\n");
    // Random places of many records are given back.
    let before = place.run(&["export", "t.azt", "flat"]).out;
    let compacted = place.run(&["compact", "t.azt"]);
    assert_eq!(compacted.code, 0, "{}", compacted.err);
    assert_eq!(place.run(&["export", "t.azt", "flat"]).out, before);
    place.run(&["create", "h.azt", "--engine", "hash"]).ok();
    place.run(&["compact", "h.azt"]).ok();
    // What was removed is given back, and what is there stays. The journal and the
    // checkpoints are some MiB by themselves: the records are many times that.
    let line = |number: u64| format!("{}\t{number:0>50}\n", number * 7919 % 200_017);
    let lines: Vec<String> = (0..200_000).map(line).collect();
    place.write("many.tsv", lines.concat());
    place.run(&["create", "m.azt"]).ok();
    place.run(&["import", "m.azt", "tsv", "many.tsv"]).ok();
    let all = place.run(&["count", "m.azt"]).ok();
    let before = std::fs::metadata(place.path("m.azt")).unwrap().len();
    place.run(&["remove-range", "m.azt", "--from", "11"]).ok();
    let left = place.run(&["export", "m.azt", "tsv"]).ok();
    let ran = place.run(&["compact", "m.azt"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let after = std::fs::metadata(place.path("m.azt")).unwrap().len();
    assert!(after * 2 < before, "{before} bytes, then {after}, of {all}");
    assert_eq!(place.run(&["export", "m.azt", "tsv"]).ok(), left);
    place.run(&["check", "m.azt"]).ok();
}

#[test]
fn an_import_makes_a_tree_by_the_name_whole_or_not_at_all() {
    let place = Place::new();
    let lexical = lines(3000, |n| format!("{n:05}\tvalue {n}\n"));
    let decimal = lines(3000, |n| format!("{n}\tvalue {n}\n"));
    let mixed = lines(3000, |n| {
        let n = n * 7 % 3000;
        format!("{n}\tvalue {n}\n")
    });
    place.write("lexical", &lexical);
    place.write("decimal", &decimal);
    place.write("mixed", &mixed);
    let order = "--order=decimal";
    for (more, source, all) in [
        (&[][..], "lexical", &lexical),
        (&["--partial"], "lexical", &lexical),
        (&["--sorted"], "lexical", &lexical),
        (&[order], "mixed", &decimal),
        (&["--partial", order], "mixed", &decimal),
        (&["--sorted", order], "decimal", &decimal),
    ] {
        let import = ["import", "--create", "t.azt", "tsv", source];
        let ran = place.run(&[&import, more].concat());
        assert_eq!(ran.ok(), "3000 records stored\n", "{more:?}");
        let shown = place.run(&["inspect", "t.azt"]).ok();
        let has = |name: &str, value: &str| {
            let mut lines = shown.lines().map(str::split_whitespace);
            lines.any(|line| line.eq([name, value]))
        };
        let order = if more.contains(&order) {
            "decimal"
        } else {
            "lexical"
        };
        assert!(
            has("engine", "tree") && has("order", order),
            "{more:?}: {shown}"
        );
        assert!(place.run(&["export", "t.azt", "tsv"]).ok() == *all);
        place.run(&["check", "t.azt"]).ok();
        let error = place.run(&[&import, more].concat()).error(3);
        assert!(error.contains("the target exists"), "{error}");
        std::fs::remove_file(place.path("t.azt")).expect("a file of ours");
    }
    // A broken record, and one out of order: there is no file, but for what --partial stored.
    place.write("broken", format!("{lexical}no tab\n"));
    place.write("twice", format!("{lexical}02999\tagain\n"));
    let names = ["broken", "decimal", "lexical", "mixed", "twice"];
    for (more, source, message) in [
        (&[][..], "broken", "line 3001"),
        (&["--sorted"], "broken", "line 3001"),
        (&["--sorted"], "twice", "record 3001"),
        (&["--sorted"], "mixed", "record 3"),
    ] {
        let import = ["import", "--create", "t.azt", "tsv", source];
        let error = place.run(&[&import, more].concat()).error(3);
        assert!(error.contains(message), "{error}");
        assert_eq!(place.names(), names, "{more:?}");
    }
    let ran = place.run(&["import", "--create", "--partial", "t.azt", "tsv", "broken"]);
    assert_eq!(
        (ran.code, ran.text().as_str()),
        (3, "3000 records stored\n")
    );
    assert_eq!(place.run(&["count", "t.azt"]).ok(), "3000\n");
    // What is of trees is refused of a hash file, before anything is read.
    for option in [order, "--sorted"] {
        let import = ["import", "--create", "h.azh", "tsv", "nowhere", option];
        let error = place.run(&import).error(3);
        let (option, _) = option.split_once('=').unwrap_or((option, ""));
        let what = format!("invalid: {option} is of a tree file; give a name that ends with .azt");
        assert!(error.starts_with(&what), "{error}");
    }
    let ran = place.run(&["import", "t.azt", "tsv", "lexical", order]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("--create"), "{}", ran.err);
}

#[test]
fn a_copy_is_brought_forward_by_what_changed_since() {
    let place = Place::new();
    place.run(&["create", "t.azt"]).ok();
    place.write("in", lines(3000, |n| format!("{n:04}\tvalue {n}\n")));
    place.run(&["import", "t.azt", "tsv", "in"]).ok();
    place.run(&["copy", "t.azt", "c.azt"]).ok();
    place
        .run(&["set", "t.azt", "0007", "changed", "more", "1"])
        .ok();
    let then = place.run(&["export", "t.azt", "tsv"]).ok();
    place
        .run(&["copy", "t.azt", "one", "--since", "c.azt"])
        .ok();
    place.run(&["remove-range", "t.azt", "--to", "1000"]).ok();
    let now = place.run(&["export", "t.azt", "tsv"]).ok();
    // The checkpoint of the copy, as it is after the first changes, from its own words.
    std::fs::copy(place.path("c.azt"), place.path("d.azt")).unwrap();
    let applied = place.run(&["apply", "d.azt", "one"]).ok();
    let id = applied.trim().rsplit(' ').next().unwrap().to_owned();
    let inspected = place.run(&["inspect", "d.azt"]).ok();
    assert!(inspected.contains(&id), "{inspected}");
    place.run(&["copy", "t.azt", "two", "--since", &id]).ok();
    let sizes = ["c.azt", "two"].map(|name| std::fs::metadata(place.path(name)).unwrap().len());
    assert!(sizes[1] < sizes[0], "{sizes:?}");
    // Before the first changes, the second ones are refused.
    let refused = place.run(&["apply", "c.azt", "two"]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(refused.err.contains(&id), "{}", refused.err);
    for _ in 0..2 {
        place.run(&["apply", "c.azt", "one"]).ok();
    }
    assert_eq!(place.run(&["export", "c.azt", "tsv"]).ok(), then);
    // It was looked at, and is the same copy.
    place.run(&["check", "c.azt"]).ok();
    place.run(&["apply", "c.azt", "two"]).ok();
    assert_eq!(place.run(&["export", "c.azt", "tsv"]).ok(), now);
    place.run(&["check", "c.azt"]).ok();
    // What was changed is a store of its own.
    place.run(&["set", "d.azt", "own", "1"]).ok();
    let refused = place.run(&["apply", "d.azt", "two"]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    for since in ["d.azt", "no-such-file"] {
        let ran = place.run(&["copy", "t.azt", "none", "--since", since]);
        assert_eq!(ran.code, 3, "{}", ran.err);
    }
    place.run(&["create", "h.azh"]).ok();
    let ran = place.run(&["copy", "h.azh", "none", "--since", "c.azt"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("without --since"), "{}", ran.err);
    assert!(!place.path("none").exists());
    let ran = place.run(&["get", "two", "more"]);
    assert!(
        ran.code != 0 && ran.err.contains("azekura apply COPY CHANGES"),
        "{}",
        ran.err
    );
}

#[test]
fn ranges_are_counted_and_removed() {
    let place = Place::new();
    place.run(&["create", "t.azt", "--order", "decimal"]).ok();
    place.write("in", lines(3000, |n| format!("{n}\tvalue {n}\n")));
    place.run(&["import", "t.azt", "tsv", "in"]).ok();
    let count = |ends: &[&str]| place.run(&[&["count", "t.azt"], ends].concat()).ok();
    assert_eq!(count(&[]), "3000\n");
    assert_eq!(count(&["--from", "90", "--to", "1100"]), "1010\n");
    assert_eq!(count(&["--from", "2999"]), "1\n");
    assert_eq!(count(&["--to", "-5"]), "0\n");
    let remove = |ends: &[&str]| place.run(&[&["remove-range", "t.azt"], ends].concat());
    let removed = remove(&["--from", "90", "--to", "1100"]).ok();
    assert_eq!(removed, "1010 records removed\n");
    let rest = count(&[]);
    assert_eq!(rest, "1990\n");
    let listed = place.run(&["list", "t.azt", "--keys", "--from", "88", "--to", "1102"]);
    assert_eq!(listed.ok(), "88\n89\n1100\n1101\n");
    assert_eq!(remove(&["--from", "90", "--to", "1100"]).code, 1);
    place.run(&["check", "t.azt"]).ok();
    for refused in [&[][..], &["--from", "2", "--to", "1"]] {
        let ran = remove(refused);
        assert_eq!(ran.code, 3, "{}", ran.err);
    }
    assert_eq!(remove(&["--all", "--from", "1"]).code, 2);
    assert_eq!(count(&[]), rest, "what is refused removes nothing");
    assert_eq!(remove(&["--all"]).ok(), "1990 records removed\n");
    assert_eq!(count(&[]), "0\n");
    place.run(&["create", "h.azh"]).ok();
    place.run(&["set", "h.azh", "a", "b"]).ok();
    assert_eq!(place.run(&["count", "h.azh"]).ok(), "1\n");
    for command in ["count", "remove-range"] {
        let ran = place.run(&[command, "h.azh", "--from", "a"]);
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.err.contains("order"), "{}", ran.err);
    }
    let all = place.run(&["remove-range", "h.azh", "--all"]).ok();
    assert_eq!(all, "1 record removed\n");
}

#[test]
fn a_damaged_page_costs_its_records_and_a_repair_saves_the_others() {
    let place = Place::new();
    place.run(&["create", "t.azt"]).ok();
    let records = lines(3000, |n| format!("{n:04}\tvalue {n}\n"));
    place.write("in", records);
    place.run(&["import", "t.azt", "tsv", "in"]).ok();
    place.run(&["repair", "t.azt", "whole.azt"]).ok();
    let all = place.run(&["export", "t.azt", "tsv"]).ok();
    assert_eq!(place.run(&["export", "whole.azt", "tsv"]).ok(), all);
    let mut bytes = std::fs::read(place.path("t.azt")).unwrap();
    let needle = b"value 1500";
    let found = |page: &[u8]| page.windows(needle.len()).any(|part| part == needle);
    // It may stand in the journal, too, and in images that are of no use any more.
    let pages = bytes.chunks_mut(4096).filter(|page| found(page));
    pages.for_each(|page| page[2000] ^= 4);
    place.write("t.azt", bytes);
    assert_eq!(place.run(&["get", "t.azt", "1500"]).code, 8);
    assert_eq!(place.run(&["get", "t.azt", "0007"]).ok(), "value 7\n");
    let checked = place.run(&["check", "t.azt"]);
    let shown = String::from_utf8_lossy(&checked.out);
    assert!(
        checked.code == 8 && shown.contains("azekura repair"),
        "{shown}"
    );
    let ran = place.run(&["repair", "t.azt", "new.azt"]);
    assert_eq!(ran.code, 8, "{}", ran.err);
    let shown = String::from_utf8_lossy(&ran.out);
    assert!(shown.contains("it costs the records from"), "{shown}");
    let saved = place.run(&["export", "new.azt", "tsv"]).ok();
    let saved: Vec<&str> = saved.lines().collect();
    assert!(saved.len() > 2000 && saved.len() < 3000);
    assert!(saved.iter().all(|line| all.contains(line)));
    assert!(saved.contains(&"0007\tvalue 7") && !saved.contains(&"1500\tvalue 1500"));
    let again = place.run(&["repair", "t.azt", "new.azt"]);
    assert_eq!(again.code, 3, "a file that is there is not written over");
}

#[test]
fn what_a_tree_does_not_do_is_refused_with_what_does() {
    let place = Place::new();
    place.run(&["create", "t.azt"]).ok();
    place.run(&["set", "t.azt", "a", "b"]).ok();
    for words in [
        &["create", "n.azh", "--order", "decimal"][..],
        &["create", "n.azh", "--page-size", "8KiB"],
        &["create", "n.azt", "--page-size", "5KiB"],
        &[
            "create",
            "n.azt",
            "--page-size",
            "4KiB",
            "--compression",
            "lz4",
        ],
        &["create", "n.azt", "--segment-size", "4KiB"],
        &["create", "n.azt", "--capacity", "64KiB"],
        &["create", "t.azt"],
    ] {
        let ran = place.run(words);
        assert_eq!(ran.code, 3, "{words:?}: {}", ran.err);
    }
    let ran = place.run(&["create", "n.azt", "--order", "upwards"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("case-folded"), "{}", ran.err);
    assert_eq!(place.run(&["get", "t.azt", "a"]).ok(), "b\n");
}

#[test]
fn a_tree_is_created_with_compressed_pages() {
    let place = Place::new();
    place
        .run(&[
            "create",
            "c.db",
            "--engine",
            "tree",
            "--compression",
            "zstd",
        ])
        .ok();
    place.run(&["set", "c.db", "a", "b"]).ok();
    let shown = place.run(&["inspect", "c.db"]).ok();
    assert!(shown.contains("zstd") && shown.contains("16384"), "{shown}");
    assert_eq!(place.run(&["get", "c.db", "a"]).ok(), "b\n");
    place.run(&["create", "p.azt", "--page-size", "8KiB"]).ok();
    let page_size = || {
        let shown = place.run(&["inspect", "p.azt", "--json"]).ok();
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("one JSON object");
        shown["page_bytes"].clone()
    };
    assert_eq!(page_size(), 8192);
    place
        .run(&["rebuild", "p.azt", "--page-size", "16KiB"])
        .ok();
    assert_eq!(page_size(), 16384);
    place.run(&["rebuild", "p.azt"]).ok();
    assert_eq!(page_size(), 16384, "it keeps it");
}

#[test]
fn a_rebuilt_tree_is_shorter_and_keeps_its_order_and_records() {
    let place = Place::new();
    place.run(&["create", "t.azt", "--order", "decimal"]).ok();
    let line = |number: u64| format!("{}\t{number:0100}\n", number * 7919 % 20_011);
    place.write("in", (0..20_000).map(line).collect::<String>());
    place.run(&["import", "t.azt", "tsv", "in"]).ok();
    let records = place.run(&["export", "t.azt", "tsv"]).ok();
    let properties = || {
        let shown = place.run(&["inspect", "t.azt", "--json"]).ok();
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("one JSON object");
        let figure = |name: &str| shown[name].as_u64().expect("a number");
        (figure("used_bytes"), shown["order"].clone())
    };
    let (before, _) = properties();
    place.run(&["rebuild", "t.azt"]).ok();
    let (after, order) = properties();
    assert!(
        after * 4 < before * 3,
        "{before} bytes before, {after} after"
    );
    assert_eq!(order, "decimal");
    assert!(place.run(&["export", "t.azt", "tsv"]).ok() == records);
    place.run(&["check", "t.azt"]).ok();
    place
        .run(&["rebuild", "t.azt", "--segment-size", "128KiB"])
        .ok();
    assert!(place.run(&["export", "t.azt", "tsv"]).ok() == records);
    let shape = || {
        let shown = place.run(&["inspect", "t.azt", "--json"]).ok();
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("one JSON object");
        (shown["compression"].clone(), shown["page_bytes"].clone())
    };
    assert_eq!(shape(), ("none".into(), 4096.into()));
    let (plain, _) = properties();
    place
        .run(&["rebuild", "t.azt", "--compression", "lz4"])
        .ok();
    assert_eq!(shape(), ("lz4".into(), 16384.into()));
    let (packed, _) = properties();
    assert!(packed * 2 < plain, "{plain} bytes, compressed {packed}");
    assert!(place.run(&["export", "t.azt", "tsv"]).ok() == records);
    place.run(&["rebuild", "t.azt"]).ok();
    assert_eq!(shape(), ("lz4".into(), 16384.into()), "it keeps them");
    place.run(&["check", "t.azt"]).ok();
    assert_eq!(place.names(), ["in", "t.azt"]);
}
