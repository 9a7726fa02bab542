//! `azekura bench`: what its own crate cannot test, since it takes the program to run: opens after a kill.
//! The kills are real; what the killed writers had reported is counted.
//! Figures are not judged: they are the machine's.

use crate::program::Place;

#[test]
fn opening_is_measured_after_closes_and_after_kills_and_loses_nothing() {
    let place = Place::new();
    let arguments = "bench open --path o.azh --count 30000 --repeat 2 --json";
    let said = place.run(&arguments.split(' ').collect::<Vec<_>>()).ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    for (line, op) in lines.iter().zip(["open", "open-cold", "open-killed"]) {
        let parts = [
            format!("\"op\":\"{op}\""),
            "\"count\":2".into(),
            "\"latency_us\":{\"p50\":".into(),
            "\"first_get_us\":{\"p50\":".into(),
        ];
        for part in parts {
            assert!(line.contains(&part), "{part} in {line}");
        }
    }
    // A lookup for each open, and what the killed writers had reported.
    let hits = |line: &str| -> u64 {
        let text = line.split("\"hits\":").nth(1).expect("hits are told");
        let digits = text.split(|c: char| !c.is_ascii_digit()).next();
        digits.expect("a number").parse().expect("a number")
    };
    assert_eq!(hits(lines[0]), 2);
    assert!(hits(lines[2]) > 2 + 30000 / 4, "{said}");
    let error = place.run(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(error.code, 3, "{error:?}");
}

#[test]
fn the_suite_of_servers_loads_ours_and_leaves_out_who_is_not_there() {
    let place = Place::new();
    let arguments =
        "bench memcache suite --records 3000 --pairs 1 --pin --memcached gone --redis gone";
    let words: Vec<&str> = arguments.split(' ').collect();
    let said = place.run(&[&words[..], &["--json"]].concat()).ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 5, "{said}");
    for line in &lines {
        for part in [
            "\"engine\":\"azekura\"",
            "\"server_cpu_seconds\":",
            "\"memory_bytes\":",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.contains("\"hits\":3000"))
            .count(),
        3
    );
    let said = place
        .run(&[&words[..], &["--only", "100 keys"]].concat())
        .ok();
    assert!(
        said.starts_with("memcached cannot be run and is left out\nredis cannot"),
        "{said}"
    );
    assert!(said.contains("get of 100 keys"), "{said}");
    let error = place
        .run(&["bench", "memcache", "suite", "--pairs", "0"])
        .error(3);
    assert!(error.contains("--pairs"), "{error}");
}
