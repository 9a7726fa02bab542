//! Records one by one and in lists: what is stored is what is shown, and the exit code distinguishes yes from
//! no. Text, hexadecimal digits and base64 mean the same bytes.
//! Files and formats have their own tests.

use std::collections::BTreeSet;

use crate::program::{Place, lines};

#[test]
fn what_was_set_is_got_alone_or_with_its_key() {
    let place = Place::with_store();
    place
        .run(&[
            "set",
            "s.azh",
            "anna",
            "Nara",
            "ben",
            "Uji",
            "",
            "empty key",
        ])
        .ok();
    assert_eq!(place.run(&["get", "s.azh", "anna"]).ok(), "Nara\n");
    assert_eq!(
        place.run(&["get", "s.azh", "ben", "anna"]).ok(),
        "ben\tUji\nanna\tNara\n"
    );
    assert_eq!(place.run(&["get", "s.azh", ""]).ok(), "empty key\n");
    let ran = place.run(&["get", "s.azh", "anna", "nobody"]);
    assert_eq!(ran.err, "azekura: absent: \"nobody\"\n");
    assert_eq!(ran.no(), "anna\tNara\n");
    assert_eq!(
        place
            .run(&["get", "--json", "s.azh", "anna", "nobody"])
            .no(),
        "{\"key\":\"anna\",\"value\":\"Nara\"}\n{\"key\":\"nobody\"}\n"
    );
}

#[test]
fn bytes_are_shown_escaped_and_come_in_by_escape_hex_and_base64() {
    let place = Place::with_store();
    place.run(&["set", "--hex", "s.azh", "6b00", "ff0a5c"]).ok();
    assert_eq!(
        place.run(&["get", "--escape", "s.azh", "k\\x00"]).ok(),
        "\\xff\\n\\\\\n"
    );
    assert_eq!(
        place.run(&["get", "--base64", "s.azh", "awA="]).ok(),
        "/wpc\n"
    );
    assert_eq!(
        place.run(&["get", "--hex", "--raw", "s.azh", "6B00"]).out,
        b"\xff\n\\"
    );
    assert_eq!(
        place.run(&["get", "--hex", "s.azh", "6b0"]).error(3),
        "invalid: an argument is not hexadecimal from byte 3 on (found \"6b0\")"
    );
    assert_eq!(
        place.run(&["get", "--hex", "--base64", "s.azh", "00"]).code,
        2
    );
}

#[test]
fn no_overwrite_stores_all_or_nothing_and_with_each_what_it_can() {
    let place = Place::with_store();
    place.run(&["set", "s.azh", "b", "old"]).ok();
    let ran = place.run(&[
        "set",
        "--no-overwrite",
        "s.azh",
        "a",
        "1",
        "b",
        "2",
        "c",
        "3",
    ]);
    assert_eq!(ran.err, "azekura: present already: \"b\"\n");
    ran.no();
    assert_eq!(place.run(&["list", "s.azh"]).ok(), "b\told\n");
    place
        .run(&[
            "set",
            "--no-overwrite",
            "--each",
            "s.azh",
            "a",
            "1",
            "b",
            "2",
            "c",
            "3",
        ])
        .no();
    assert_eq!(
        place.run(&["get", "s.azh", "a", "b", "c"]).ok(),
        "a\t1\nb\told\nc\t3\n"
    );
}

#[test]
fn keys_and_values_that_do_not_pair_up_are_refused() {
    let place = Place::with_store();
    assert_eq!(
        place.run(&["set", "s.azh", "a", "1", "b"]).error(3),
        "invalid: keys and values do not pair up (found 3 words, expected a value after each key)"
    );
    assert_eq!(place.run(&["set", "s.azh"]).code, 2);
    assert_eq!(place.run(&["list", "s.azh"]).ok(), "");
}

#[test]
fn a_value_comes_from_a_file_or_standard_input_as_it_is() {
    let place = Place::with_store();
    let bytes: Vec<u8> = (0..=255).collect();
    place.write("value", &bytes);
    place
        .run(&["set", "s.azh", "f", "--value-file", "value"])
        .ok();
    place
        .run_with(&["set", "s.azh", "i", "--value-file", "-"], &bytes)
        .ok();
    assert_eq!(place.run(&["get", "--raw", "s.azh", "f"]).out, bytes);
    assert_eq!(place.run(&["get", "--raw", "s.azh", "i"]).out, bytes);
}

#[test]
fn remove_answers_whether_all_were_there() {
    let place = Place::with_store();
    place
        .run(&["set", "s.azh", "a", "1", "b", "2", "c", "3"])
        .ok();
    place.run(&["remove", "s.azh", "a"]).ok();
    let ran = place.run(&["remove", "s.azh", "a", "b"]);
    assert_eq!(ran.err, "azekura: absent: \"a\"\n");
    ran.no();
    assert_eq!(place.run(&["list", "s.azh"]).ok(), "c\t3\n");
}

#[test]
fn append_puts_the_delimiter_only_between() {
    let place = Place::with_store();
    for word in ["one", "two"] {
        place
            .run(&["append", "s.azh", "k", word, "--delimiter", ","])
            .ok();
    }
    assert_eq!(place.run(&["get", "s.azh", "k"]).ok(), "one,two\n");
}

#[test]
fn counters_count_up_and_down_and_other_values_are_left_alone() {
    let place = Place::with_store();
    assert_eq!(place.run(&["increment", "s.azh", "n"]).ok(), "1\n");
    assert_eq!(place.run(&["increment", "s.azh", "n", "-11"]).ok(), "-10\n");
    assert_eq!(
        place
            .run(&["increment", "s.azh", "m", "5", "--initial", "100"])
            .ok(),
        "105\n"
    );
    assert_eq!(
        place
            .run(&["increment", "s.azh", "f", "0.5", "--float"])
            .ok(),
        "0.5\n"
    );
    assert_eq!(
        place.run(&["get", "--hex", "s.azh", "6d"]).ok(),
        "0000000000000069\n"
    );
    place.run(&["set", "s.azh", "text", "41"]).ok();
    place.run(&["increment", "s.azh", "text"]).error(3);
    place.run(&["increment", "s.azh", "n", "many"]).error(3);
    assert_eq!(place.run(&["get", "s.azh", "text"]).ok(), "41\n");
}

/// They were stored, and the counter was lost: nothing that is added makes a number of it again.
#[test]
fn a_counter_never_becomes_infinite_or_no_number() {
    let place = Place::with_store();
    let add = |arguments: &[&str]| {
        let command = ["increment", "--float", "s.azh", "f"];
        place.run(&[&command, arguments].concat())
    };
    add(&["1e308"]).ok();
    let before = place.run(&["get", "--hex", "s.azh", "66"]).ok();
    for by in ["NaN", "inf", "-inf", "1e999"] {
        let error = add(&["--", by]).error(3);
        let expected = format!("invalid: \"{by}\" is not a finite number; give a number from ");
        assert!(error.starts_with(&expected), "{error}");
    }
    add(&["1", "--initial", "inf"]).error(3);
    let error = add(&["1e308"]).error(3);
    assert_eq!(
        error,
        "invalid: the counter would not be a finite number for key \"f\" (it is 1e308, to be added is 1e308); add a smaller amount"
    );
    assert_eq!(place.run(&["get", "--hex", "s.azh", "66"]).ok(), before);
    // A counter of before.
    place
        .run(&["set", "--hex", "s.azh", "66", "7ff0000000000000"])
        .ok();
    let error = add(&["1"]).error(3);
    assert!(
        error.ends_with("; remove the record, or use another key"),
        "{error}"
    );
}

#[test]
fn rekey_moves_copies_or_says_why_not() {
    let place = Place::with_store();
    place.run(&["set", "s.azh", "a", "1", "b", "2"]).ok();
    place
        .run(&["rekey", "--no-overwrite", "s.azh", "a", "b"])
        .no();
    place.run(&["rekey", "s.azh", "nobody", "c"]).no();
    assert_eq!(place.run(&["get", "s.azh", "a", "b"]).ok(), "a\t1\nb\t2\n");
    place.run(&["rekey", "s.azh", "a", "b"]).ok();
    place.run(&["get", "s.azh", "a"]).no();
    place.run(&["rekey", "--copy", "s.azh", "b", "c"]).ok();
    assert_eq!(place.run(&["get", "s.azh", "b", "c"]).ok(), "b\t1\nc\t1\n");
}

#[test]
fn a_list_continued_by_bookmarks_shows_every_record_once() {
    let place = Place::with_store();
    let expected: BTreeSet<String> = (0..23).map(|n| format!("key{n}")).collect();
    for key in &expected {
        place
            .run(&["set", "--durability", "process", "s.azh", key, "v"])
            .ok();
    }
    let (mut shown, mut bookmark) = (Vec::new(), String::new());
    loop {
        let mut arguments = vec!["list", "s.azh", "--items", "5", "--keys"];
        if !bookmark.is_empty() {
            arguments.extend(["--bookmark", &bookmark]);
        }
        let ran = place.run(&arguments);
        let next = ran
            .err
            .strip_prefix("azekura: more with --bookmark ")
            .map(str::to_string);
        shown.extend(ran.text().lines().map(str::to_string));
        match next {
            Some(next) => bookmark = next.trim_end().to_string(),
            None => break,
        }
    }
    assert_eq!(shown.len(), 23, "{shown:?}");
    assert_eq!(shown.into_iter().collect::<BTreeSet<_>>(), expected);
    let from = place
        .run(&["list", "s.azh", "--from", "key7", "--items", "1"])
        .text();
    assert_eq!(from, "key7\tv\n");
    assert_eq!(place.run(&["list", "s.azh", "--bookmark", "xyz"]).code, 3);
}

#[test]
fn searches_find_by_every_mode() {
    let place = Place::with_store();
    let words = ["apple", "Snapple", "maple", "apply", "a-b", "ab"];
    for word in words {
        place
            .run(&["set", "--durability", "process", "s.azh", word, "v"])
            .ok();
    }
    let search = |arguments: &[&str]| {
        let mut all = vec!["search", "s.azh", "--keys"];
        all.extend(arguments);
        let ran = place.run(&all);
        assert_eq!(
            (ran.code, ran.err.as_str()),
            (i32::from(ran.out.is_empty()), ""),
            "{ran:?}"
        );
        let mut found: Vec<String> = ran.text().lines().map(str::to_string).collect();
        found.sort();
        found.join(" ")
    };
    assert_eq!(search(&["ppl"]), "Snapple apple apply");
    assert_eq!(search(&["map", "ply"]), "apply maple");
    assert_eq!(search(&["app", "--mode", "begins"]), "apple apply");
    assert_eq!(search(&["ple", "--mode", "ends"]), "Snapple apple maple");
    assert_eq!(
        search(&["SNAPPLE", "--mode", "equals", "--ignore-case"]),
        "Snapple"
    );
    assert_eq!(search(&["a", "--words"]), "a-b");
    assert_eq!(search(&["^[am]+p", "--mode", "regex"]), "apple apply maple");
    assert_eq!(
        search(&["aple", "--mode", "edit", "--limit", "2"]),
        "apple maple"
    );
    // One character of four bytes is nearer to a letter than two letters are, and farther in bytes.
    for word in ["wxyz\u{1d11e}", "wxyz123"] {
        place
            .run(&["set", "--durability", "process", "s.azh", word, "v"])
            .ok();
    }
    let nearest = |mode| search(&["wxyz1", "--mode", mode, "--limit", "1"]);
    assert_eq!(
        (nearest("edit"), nearest("editbin")),
        ("wxyz\u{1d11e}".into(), "wxyz123".into())
    );
    assert_eq!(
        search(&["7778797a31", "--hex", "--mode", "editbin", "--limit", "1"]),
        "7778797a313233"
    );
    // Ten, if no limit is given.
    for key in 0..10 {
        let word = format!("z{key}");
        place
            .run(&["set", "--durability", "process", "s.azh", &word, "v"])
            .ok();
    }
    assert_eq!(search(&["z", "--mode", "editbin"]).split(' ').count(), 10);
    assert_eq!(search(&["no such key"]), "");
    assert_eq!(
        place
            .run(&["search", "s.azh", "p", "--limit", "2"])
            .ok()
            .lines()
            .count(),
        2
    );
    place
        .run(&["search", "s.azh", "(", "--mode", "regex"])
        .error(3);
    place
        .run(&["search", "s.azh", "a", "b", "--mode", "edit"])
        .error(3);
    let refused = place.run(&["search", "s.azh", "a", "-i", "--mode", "editbin"]);
    assert!(refused.error(3).contains("--mode editbin takes neither"));
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_program_quietly() {
    let place = Place::with_store();
    let lines = lines(50_000, |n| format!("key{n}\tvalue\n"));
    place
        .run_with(&["import", "s.azh", "tsv"], lines.as_bytes())
        .ok();
    let mut child = place
        .command(&["list", "s.azh"])
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}
