//! The tour: on a small text it passes, reports its steps, and removes or keeps its files as its options state.
//! The kills in it are real.
//! That it would notice a lost write is tested next to its code.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use crate::program::{Place, lines};

#[test]
fn the_tour_of_a_small_file_passes_and_keeps_its_files_where_it_is_told() {
    let place = Place::new();
    let text = lines(500, |n| format!("{n:04};line number {n}\n"));
    place.write("text", text);
    let said = place.run(&["tour", "text", "--dir", "."]).ok();
    for part in [
        "A tour of azekura with 500 lines of text",
        "1. Import",
        "wrong answers          0\n",
        "lost updates           0\n",
        "kills                  3\n",
        "acknowledged, missing  0\n",
        "half written           0\n",
        "missing in the copy    0\n",
        "nothing was lost",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(place.names(), ["copy.azh", "text", "tour.azh"]);
    let line = place.run(&["get", "copy.azh", "0123"]).ok();
    assert_eq!(line, "0123;line number 123 | toured\n");
    let error = place.run(&["tour", "text", "--dir", "."]);
    assert_eq!(error.code, 3, "{error:?}");
}

#[test]
fn a_tour_without_text_says_so() {
    let place = Place::new();
    place.write("empty", "");
    let error = place.run(&["tour", "empty"]).error(3);
    assert_eq!(
        error,
        "invalid: there is no text in empty; name a text file: `azekura tour FILE`"
    );
    place.run(&["tour", "missing"]).error(9);
}

#[test]
fn the_folder_of_a_tour_is_made_or_named_in_the_error() {
    let place = Place::new();
    place.write("text", lines(50, |n| format!("{n:04};line number {n}\n")));
    place.run(&["tour", "text", "--dir", "made/here"]).ok();
    assert_eq!(place.names(), ["made", "text"]);
    let error = place.run(&["tour", "text", "--dir", "text/below"]);
    let error = error.error(9);
    assert!(
        error.starts_with("io: cannot make the folder of the tour at text/below: "),
        "{error}"
    );
}

#[test]
fn an_interrupted_tour_takes_its_files_with_it_and_ends_by_the_signal() {
    let place = Place::new();
    place.write("text", lines(20_000, |n| format!("{n:05};line {n}\n")));
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let mut tour = place.command(&["tour", "text"]);
        let mut tour = tour
            .env("TMPDIR", place.path("."))
            .spawn()
            .expect("it starts");
        let said = BufReader::new(tour.stdout.take().expect("a pipe"));
        // Its directory is there once it looks things up.
        let begun = said
            .lines()
            .map_while(std::result::Result::ok)
            .any(|line| line.starts_with("2. "));
        assert!(begun);
        let kill = Command::new("kill")
            .args([signal, &tour.id().to_string()])
            .status();
        assert!(kill.expect("it runs").success());
        let status = tour.wait().expect("it ends");
        assert_eq!(status.signal(), Some(number));
        assert_eq!(place.names(), ["text"]);
    }
}
