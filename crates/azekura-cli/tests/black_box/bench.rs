//! `azekura bench`: what its own crate cannot test, since it takes the program to run: opens after a kill, pipes of
//! workloads and results, suites whose steps are processes.
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

#[test]
fn a_workload_is_piped_through_a_run_to_a_summary_and_to_plots() {
    let place = Place::new();
    let put = "bench object workload put --count 30 --population-size 40 --seed foo --shuffle bar --value-size 2KiB";
    let run = |command: &str, input: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        place.run_with(&words, input.as_bytes()).ok()
    };
    let workload = run(put, "");
    assert!(workload.starts_with("[{\"PUT\":{\"key\":\""), "{workload}");
    assert_eq!(workload.matches("\"value\":{\"size\":2048}").count(), 30);
    let results = run(
        "bench object --engine files --path s --workload - --results -",
        &workload,
    );
    assert_eq!(results.matches("\"method\":\"PUT\"").count(), 30);
    let gets = run(
        &put.replace("put", "get").replace(" --value-size 2KiB", ""),
        "",
    );
    let found = run(
        "bench object --engine files --path s --workload - --results - --depth 3",
        &gets,
    );
    assert_eq!(found.matches("\"exists\":true,\"error\":null").count(), 30);
    // How long keys and values of a workload are, it alone knows.
    let table = run("bench object --engine files --path s --workload -", &gets);
    let title = "30 workload of -, keys of -, durability ";
    assert!(table.contains(title), "{table}");
    let summary = run("bench object summary --value-size 2KiB", &found);
    for part in [
        "\"oks\": 30",
        "\"exists\": 30",
        "\"p9999\": ",
        "\"wall_mib_per_second\": ",
    ] {
        assert!(summary.contains(part), "{part} in {summary}");
    }
    let plot = run(
        "bench object plot text --y-max 0.000000001 --height 5",
        &found,
    );
    assert!(plot.contains("(30 of 30 over"), "{plot}");
    run(
        "bench object plot png p.png --logscale --title gets",
        &found,
    );
    assert!(place.read("p.png").starts_with(b"\x89PNG"));
    let error = place
        .run_with(&["bench", "object", "summary"], b"{}")
        .error(3);
    assert!(error.contains("an array is expected"), "{error}");
}

#[test]
fn the_suite_of_objects_prints_every_table_with_ratios() {
    let place = Place::new();
    let arguments = "bench object suite --stores files:process --scale 0.000001 --sizes 100KiB --warm --folder .";
    let words: Vec<&str> = arguments.split(' ').collect();
    let said = place.run(&words).ok();
    for part in [
        "PUT (new)",
        "PUT (update)",
        "GET",
        "DELETE",
        "LOAD",
        "| 1.00 | 9.367 |",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let rows = said
        .lines()
        .filter(|line| line.starts_with("| 100 KiB | files | process |"));
    // One in the table of each phase, and one in that of costs.
    assert_eq!(rows.count(), 6, "{said}");
    let said = place.run(&[&words[..], &["--json"]].concat()).ok();
    assert_eq!(said.matches("\"process_seconds\":").count(), 1, "{said}");
    let error = place
        .run(&["bench", "object", "suite", "--scale", "0"])
        .error(3);
    assert!(error.contains("scale"), "{error}");
}
