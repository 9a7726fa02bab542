//! Sorted files by the command line: built, merged, read by every command that reads, damaged, and refused where they are wrong.
//! What is refused makes no file.
//!
//! It does not test what a building that is cut leaves: the library's own tests do.

use azekura::Verbs as _;
use azekura::record::skip::{EditOptions, Reducer, ReducingSkipDb, SkipDb};

use crate::program::{Place, Ran, lines};

fn out(ran: &Ran) -> String {
    String::from_utf8_lossy(&ran.out).into_owned()
}

fn built(place: &Place, count: u32, more: &[&str]) -> String {
    // Not in order: 7 is prime to any count that is drawn here.
    let records = lines(count, |n| format!("{:05}\tvalue {n}\n", n * 7 % count));
    place.write("in", records);
    place
        .run(&[&["skip", "build", "s.azs", "tsv", "in"], more].concat())
        .ok()
}

#[test]
fn a_sorted_file_is_built_and_read_by_every_command_that_reads() {
    let place = Place::new();
    let built = built(&place, 5000, &["--memory", "64KiB"]);
    assert_eq!(built, "5000 records stored, 5000 read\n");
    assert_eq!(place.run(&["get", "s.azs", "00007"]).ok(), "value 1\n");
    place.run(&["get", "s.azs", "5"]).no();
    let listed = place.run(&["list", "s.azs", "--from", "004", "--items", "2", "--keys"]);
    assert!(
        listed.err.contains("more with --bookmark"),
        "{}",
        listed.err
    );
    let bookmark = listed
        .err
        .trim_end()
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .to_owned();
    assert_eq!(out(&listed), "00400\n00401\n");
    let next = place.run(&[
        "list",
        "s.azs",
        "--bookmark",
        &bookmark,
        "--items",
        "1",
        "--keys",
    ]);
    assert_eq!(out(&next), "00402\n");
    let found = place
        .run(&["search", "s.azs", "0499", "--mode", "begins", "--keys"])
        .ok();
    assert_eq!(found.lines().count(), 10);
    let inspected = place.run(&["inspect", "s.azs"]).ok();
    for part in ["skip", "5000", "lexical"] {
        assert!(inspected.contains(part), "{inspected}");
    }
    place.run(&["check", "s.azs"]).ok();
    place.run(&["copy", "s.azs", "t.azs"]).ok();
    assert_eq!(place.read("s.azs"), place.read("t.azs"));
    // Through another engine and back it is the same.
    place.run(&["export", "s.azs", "flat", "out"]).ok();
    place
        .run(&["import", "--create", "s.azh", "flat", "out"])
        .ok();
    place.run(&["create", "m.azh"]).ok();
    place.run(&["merge", "m.azh", "s.azs"]).ok();
    place.run(&["export", "m.azh", "jsonl", "again"]).ok();
    place
        .run(&["skip", "build", "u.azs", "jsonl", "again"])
        .ok();
    let listed = |file| place.run(&["list", file]).ok();
    assert_eq!(listed("s.azs"), listed("u.azs"));
}

#[test]
fn values_of_a_key_become_what_the_reducer_makes_of_them() {
    let place = Place::new();
    place.write("in", "a\t1\nb\t5\na\t22\na\tx\n");
    for (reducer, value) in [
        ("last", "x"),
        ("first", "1"),
        ("second", "22"),
        ("all", "1"),
        ("concat", "122x"),
        ("concat-tab", "1\\t22\\tx"),
        ("total-decimal", "23"),
    ] {
        let file = format!("{reducer}.azs");
        let arguments = ["skip", "build", &file, "tsv", "in", "--reducer", reducer];
        place.run(&arguments).ok();
        assert_eq!(
            place.run(&["get", &file, "a"]).ok(),
            format!("{value}\n"),
            "{reducer}"
        );
    }
    assert_eq!(
        place.run(&["list", "all.azs"]).ok(),
        "a\t1\na\t22\na\tx\nb\t5\n"
    );
    // Later files come later.
    let merge = ["skip", "merge", "m.azs", "last.azs", "first.azs"];
    place
        .run(&[&merge[..], &["--reducer", "concat"]].concat())
        .ok();
    assert_eq!(place.run(&["list", "m.azs"]).ok(), "a\tx1\nb\t55\n");
    place.write("numbers", "10\tten\n9\tnine\n-1\tminus\n");
    let decimal = [
        "skip", "build", "d.azs", "tsv", "numbers", "--order", "decimal",
    ];
    place.run(&decimal).ok();
    assert_eq!(place.run(&["list", "d.azs", "--keys"]).ok(), "-1\n9\n10\n");
}

#[test]
fn what_is_wrong_is_refused_and_makes_no_file() {
    let place = Place::new();
    place.write("in", "b\t1\na\t2\n");
    place.write("broken", "a\t1\nno tab\n");
    let build = |more: &[&str]| place.run(&[&["skip", "build", "n.azs"], more].concat());
    let error = build(&["tsv", "in", "--sorted"]).error(3);
    for part in ["record 2", "\"a\"", "\"b\"", "sort the input"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(build(&["tsv", "broken"]).code != 0);
    assert!(build(&["tsv", "none"]).code != 0);
    assert!(
        build(&["tsv", "in", "--memory", "1KiB"])
            .error(3)
            .contains("too little memory")
    );
    for wrong in [
        &["tsv", "in", "--order", "sideways"][..],
        &["tsv", "in", "--reducer", "best"],
        &["csv", "in"],
    ] {
        let ran = build(wrong);
        assert_eq!(ran.code, 2, "{wrong:?}");
        assert!(ran.err.contains("possible values"), "{}", ran.err);
    }
    assert!(!place.path("n.azs").exists());

    place.run(&["skip", "build", "s.azs", "tsv", "in"]).ok();
    build(&["tsv", "in"]).ok();
    assert!(build(&["tsv", "in"]).error(3).contains("the target exists"));
    for change in [
        &["set", "s.azs", "a", "1"][..],
        &["remove", "s.azs", "a"],
        &["import", "s.azs", "tsv", "in"],
    ] {
        let error = place.run(change).error(7);
        assert!(error.contains("never changed"), "{change:?}: {error}");
    }
    place.run(&["create", "h.azh"]).ok();
    let merge = place.run(&["skip", "merge", "m.azs", "s.azs", "h.azh"]);
    assert!(merge.error(7).contains("found hash, expected skip"));
    let order = ["skip", "build", "d.azs", "tsv", "in", "--order", "decimal"];
    place.run(&order).ok();
    let merge = place.run(&["skip", "merge", "m.azs", "s.azs", "d.azs"]);
    assert!(merge.error(7).contains("found decimal, expected lexical"));
    assert!(!place.path("m.azs").exists());
}

#[test]
fn damage_costs_a_range_and_a_repair_takes_out_the_rest() {
    let place = Place::new();
    built(&place, 20_000, &[]);
    let mut bytes = place.read("s.azs");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    place.write("s.azs", &bytes);
    let check = place.run(&["check", "s.azs"]);
    assert_eq!(check.code, 8);
    assert!(out(&check).contains("affects keys from"), "{}", out(&check));
    let listed = place.run(&["list", "s.azs"]);
    assert_eq!(listed.code, 8);
    let left = out(&listed).lines().count();
    assert!((19_000..20_000).contains(&left), "{left}");
    let repair = place.run(&["repair", "s.azs", "r.azs"]);
    assert_eq!(repair.code, 8);
    let missing = 20_000 - left;
    let expected = format!("{left} records recovered, {missing} missing");
    assert!(out(&repair).contains(&expected), "{}", out(&repair));
    assert!(out(&repair).contains("lost: "), "{}", out(&repair));
    place.run(&["check", "r.azs"]).ok();
    assert_eq!(place.run(&["list", "r.azs"]).ok(), out(&listed));
}

#[test]
fn a_list_has_an_end_and_a_direction() {
    let place = Place::new();
    built(&place, 100, &[]);
    let list = |more: &[&str]| place.run(&[&["list", "s.azs", "--keys"], more].concat());
    let keys = |more: &[&str]| {
        let listed = list(more).ok();
        listed.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let range = ["--from", "00010", "--to", "00013"];
    assert_eq!(keys(&range), ["00010", "00011", "00012"]);
    let reversed = [&range[..], &["--reverse"]].concat();
    assert_eq!(keys(&reversed), ["00012", "00011", "00010"]);
    // Keys that are absent, and ends beyond the records.
    assert_eq!(keys(&["--from", "000095", "--to", "00011"]), ["00010"]);
    assert_eq!(keys(&["--to", "0"]), [""; 0]);
    assert_eq!(keys(&["--reverse", "--from", "00098"]), ["00099", "00098"]);
    assert_eq!(keys(&["--reverse", "--to", "x"]).len(), 100);
    assert_eq!(keys(&["--from", "00010", "--to", "00010"]), [""; 0]);
    let all = keys(&[]);
    let mut reversed = keys(&["--reverse"]);
    reversed.reverse();
    assert_eq!(reversed, all);
    // In parts, both ways.
    let part = list(&["--to", "00013", "--limit", "2", "--from", "00010"]);
    assert_eq!(out(&part), "00010\n00011\n");
    let bookmark = part.err.trim_end().rsplit(' ').next().unwrap_or_default();
    let rest = list(&["--to", "00013", "--bookmark", bookmark]);
    assert_eq!((&*out(&rest), &*rest.err), ("00012\n", ""));
    let part = list(&["--reverse", "--limit", "2", "--from", "00097"]);
    assert_eq!(out(&part), "00099\n00098\n");
    assert!(
        part.err.contains("more with --reverse --to 00098"),
        "{}",
        part.err
    );
    assert_eq!(
        keys(&["--reverse", "--from", "00097", "--to", "00098"]),
        ["00097"]
    );
    let whole = list(&["--reverse", "--limit", "3", "--from", "00097"]);
    assert_eq!(whole.err, "");
    // In the order of the file.
    place.write("numbers", "2\tb\n10\tc\n1\ta\n");
    let order = [
        "skip", "build", "d.azs", "tsv", "numbers", "--order", "decimal",
    ];
    place.run(&order).ok();
    let listed = place.run(&["list", "d.azs", "--from", "2", "--to", "11", "--keys"]);
    assert_eq!(listed.ok(), "2\n10\n");
    // Several records of a key.
    place.write("twice", "a\t1\nb\t2\nb\t3\n");
    place
        .run(&["skip", "build", "t.azs", "tsv", "twice", "--reducer", "all"])
        .ok();
    let listed = place.run(&["list", "t.azs", "--reverse", "--limit", "1"]);
    assert_eq!(out(&listed), "b\t3\n");
    assert!(listed.err.contains("of the same key"), "{}", listed.err);
}

#[test]
fn a_list_that_ends_before_it_begins_and_one_without_an_order_are_refused() {
    let place = Place::new();
    built(&place, 10, &[]);
    let error = place
        .run(&["list", "s.azs", "--from", "00005", "--to", "00004"])
        .error(3);
    for part in [
        "ends before it begins",
        "00005",
        "00004",
        "exchange the keys",
    ] {
        assert!(error.contains(part), "{error}");
    }
    place.run(&["create", "h.azh"]).ok();
    for option in [&["--reverse"][..], &["--to", "b"]] {
        let error = place.run(&[&["list", "h.azh"], option].concat()).error(3);
        for part in [
            option[0],
            "h.azh",
            "found a hash file, expected a sorted file",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
    let both = place.run(&["list", "s.azs", "--reverse", "--bookmark", "00"]);
    assert_eq!(both.code, 2);
}

/// Edits are made by the library; the program counts them, writes them into the file, or drops them.
#[test]
fn pending_edits_are_counted_merged_and_dropped() {
    let place = Place::new();
    built(&place, 100, &[]);
    let figure = |name: &str| {
        let shown = place.run(&["inspect", "s.azs", "--json"]).ok();
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("one JSON object");
        shown[name].clone()
    };
    let sync = || place.run(&["skip", "sync", "s.azs"]);
    let revert = |more: &[&str]| place.run(&[&["skip", "revert", "s.azs"], more].concat());
    assert_eq!(figure("pending_edits"), 0);
    assert_eq!(sync().ok(), "nothing is pending\n");
    assert_eq!(revert(&[]).code, 1);
    assert_eq!(place.names(), ["in", "s.azs"], "no pending file is made");
    let edit = |value: &[u8]| {
        let db = SkipDb::open(place.path("s.azs"), &EditOptions::new()).unwrap();
        db.put(b"00007", value).unwrap();
        db.put(b"new", value).unwrap();
        db.remove(b"00008").unwrap();
        db
    };
    edit(b"edited").close().unwrap();
    assert_eq!(figure("pending_edits"), 3);
    assert_eq!(figure("count"), 100, "as of the last merge");
    assert_eq!(sync().ok(), "3 edits merged, 100 records in the file\n");
    assert_eq!(figure("pending_edits"), 0);
    assert_eq!(place.run(&["get", "s.azs", "new"]).ok(), "edited\n");
    let merged = place.read("s.azs");
    // Another process holds it: it is looked at, and not changed.
    let db = edit(b"again");
    assert_eq!(figure("pending_edits"), 2);
    for ran in [sync(), revert(&["--yes"])] {
        assert_eq!(ran.code, 6, "{}", ran.err);
    }
    drop(db);
    let refused = revert(&[]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    for part in ["2 edits would be lost", "--yes", "azekura skip sync"] {
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    assert_eq!(figure("pending_edits"), 2);
    assert_eq!(revert(&["--yes"]).ok(), "2 edits dropped\n");
    assert_eq!(figure("pending_edits"), 0);
    assert_eq!(sync().ok(), "nothing is pending\n");
    assert!(place.read("s.azs") == merged);
    // Under the reducer of the edits.
    let reducer = Reducer::from_name("total-decimal").unwrap();
    let options = EditOptions::new();
    let path = place.path("sums.azs");
    let db = ReducingSkipDb::create_reducing(path, reducer, &options).unwrap();
    db.add(b"sum", b"3").unwrap();
    db.add(b"sum", b"4").unwrap();
    db.close().unwrap();
    let merged = place.run(&["skip", "sync", "sums.azs"]).ok();
    assert_eq!(merged, "1 edit merged, 1 record in the file\n");
    assert_eq!(place.run(&["get", "sums.azs", "sum"]).ok(), "7\n");
    place.run(&["create", "h.azh"]).ok();
    let ran = place.run(&["skip", "sync", "h.azh"]);
    assert_eq!(ran.code, 7, "{}", ran.err);
}
