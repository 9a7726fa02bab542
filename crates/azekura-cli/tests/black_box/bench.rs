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
fn a_workload_is_piped_through_a_run_to_a_summary_and_to_a_plot() {
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
    assert!(
        table.contains("files         workload")
            && table.contains("  count 30  durability process"),
        "{table}"
    );
    let summary = run("bench object summary --value-size 2KiB", &found);
    for part in [
        "\"oks\": 30",
        "\"exists\": 30",
        "\"p9999\": ",
        "\"wall_mib_per_second\": ",
    ] {
        assert!(summary.contains(part), "{part} in {summary}");
    }
    run(
        "bench object plot svg p.svg --logscale --y-max 0.000000001 --title gets",
        &found,
    );
    let plot = String::from_utf8(place.read("p.svg").clone()).expect("text");
    assert!(
        plot.starts_with("<svg ") && plot.contains("(30 of 30 over"),
        "{plot}"
    );
    let error = place
        .run_with(&["bench", "object", "summary"], b"{}")
        .error(3);
    assert!(error.contains("expected an array"), "{error}");
}

#[test]
fn the_suite_of_objects_prints_every_phase_and_ratios() {
    let place = Place::new();
    let arguments = "bench object suite --stores azekura:process,files:process --scale 0.000001 --sizes 100KiB --warm --quiet --folder .";
    let words: Vec<&str> = arguments.split(' ').collect();
    let said = place.run(&words).ok();
    for op in ["put", "update", "get", "load", "delete"] {
        let rows = |start: &str| {
            let rows = said.lines();
            rows.filter(|row| row.starts_with(&format!("{start}{op} ")))
                .count()
        };
        assert_eq!((rows("azekura       "), rows("files         ")), (1, 1));
        assert_eq!(rows("  "), 1, "a ratio of {op} in {said}");
    }
    for part in [
        "published for this store: put 9.367 MiB/s",
        "azekura over files, process, 100 KiB (1 pairs)",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let said = place.run(&[&words[..], &["--json"]].concat()).ok();
    assert_eq!(said.matches("\"process_seconds\":").count(), 2, "{said}");
    let error = place
        .run(&["bench", "object", "suite", "--scale", "0"])
        .error(3);
    assert!(error.contains("scale"), "{error}");
}

#[test]
fn the_suite_of_objects_tells_its_steps_and_ends_with_the_code_of_one_that_failed() {
    let place = Place::new();
    let suite = |stores: &str| {
        let arguments = format!(
            "bench object suite --stores {stores} --scale 0.000001 --sizes 100KiB --warm --folder ."
        );
        place.run(&arguments.split(' ').collect::<Vec<_>>())
    };
    let ran = suite("files:process");
    assert_eq!(ran.code, 0, "{ran:?}");
    let told: Vec<&str> = ran.err.lines().collect();
    assert_eq!(told.len(), 5, "{told:?}");
    assert_eq!(told[0], "step 1 of 5: files process 100 KiB put");
    assert_eq!(told[4], "step 5 of 5: files process 100 KiB delete");
    // A class that files do not have.
    let ran = suite("files:process,files:buffered");
    assert_eq!(ran.code, 3, "{ran:?}");
    let told = ran.err.lines().last().expect("an error");
    assert!(
        told.starts_with("azekura: invalid: the step put of files, durability buffered")
            && told.contains("exit status: 3"),
        "{told}"
    );
    assert!(ran.text().contains("put "), "what was done is told");
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn an_interrupted_suite_of_objects_ends_its_step_and_removes_its_folder() {
    let place = Place::new();
    // Steps that last until they are ended.
    let arguments =
        "bench object suite --stores files:process --scale 1 --sizes 1KiB --warm --folder .";
    let mut suite = place
        .command(&arguments.split(' ').collect::<Vec<_>>())
        .spawn()
        .expect("the program starts");
    let made = || {
        place
            .names()
            .iter()
            .any(|name| name.starts_with("azekura-objects-"))
    };
    let stored = || {
        let folders = std::fs::read_dir(place.path("."));
        let mut folders = folders.expect("the directory is listed").flatten();
        folders.any(|folder| folder.path().join("store").exists())
    };
    while !stored() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(made());
    let pid = suite.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status();
    assert!(sent.expect("a signal is sent").success());
    let status = suite.wait().expect("the program ends");
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(15),
        "{status}"
    );
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn what_should_have_been_found_or_put_makes_the_exit_code_and_leaves_no_store() {
    let place = Place::new();
    let run = |command: &str, input: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        place.run_with(&words, input.as_bytes())
    };
    let (put, get) = (
        "{\"PUT\":{\"key\":\"a\",\"value\":{\"size\":9}}}",
        "{\"GET\":{\"key\":\"a\"}}",
    );
    // Nothing is made for what is wrong, or looks before it puts.
    let wrong = format!("[{put},\n{put},\n oops]");
    let error = run("bench object --path s --workload -", &wrong).error(3);
    assert!(
        error.contains("line 3 column 2: element 2") && error.contains("standard input"),
        "{error}"
    );
    let error = run(
        "bench object --path s --workload - --results r",
        &format!("[{get},{put}]"),
    )
    .error(3);
    assert!(error.contains("begins with no put"), "{error}");
    let error = run("bench object --path s --key-size 1 --count 100", "").error(3);
    assert!(
        error.contains("100 keys of 1 character are not distinct"),
        "{error}"
    );
    // Puts that do not fit are reported, in the table and by the exit code.
    let full = run(
        "bench object --path s --count 2000 --value-size 64KiB --capacity 16MiB --ops put",
        "",
    );
    assert_eq!(full.code, 5, "{full:?}");
    assert!(full.err.contains("of 2000 times, first"), "{}", full.err);
    let table = full.text();
    assert!(
        !table.contains("  failed 0 ") && table.contains("  missing 0  failed "),
        "{table}"
    );
    assert!(place.names().is_empty(), "{:?}", place.names());
    // And so are gets of what is not there.
    run(
        "bench object --path s --count 20 --value-size 4KiB --ops put",
        "",
    )
    .ok();
    let ran = run(
        "bench object --path s --count 20 --value-size 4KiB --ops get --sample 20 --seed other",
        "",
    );
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.err.contains("there is no object") && ran.err.contains("20 of 20"),
        "{}",
        ran.err
    );
    let table = ran.text();
    assert!(table.contains("  missing 20  failed 0  "), "{table}");
    assert_eq!(place.names(), ["s"]);
}

#[test]
fn the_defaults_that_the_help_shows_are_taken_and_advice_names_what_is_wanted() {
    let place = Place::new();
    let help = place.run(&["bench", "memcache", "--help"]).ok();
    assert!(help.contains("[default: set,get]"), "{help}");
    let error = place.run(&["bench", "open", "--engine", "tiny"]).error(3);
    assert_eq!(
        error,
        "invalid: this engine has no file to open (found tiny, expected an engine in a file)"
    );
    let ran = place.run_with(&["bench", "object", "summary"], b"{}");
    let error = ran.error(3);
    assert!(
        error.ends_with("give a JSON array, as `azekura bench object --results` writes it"),
        "{error}"
    );
}
