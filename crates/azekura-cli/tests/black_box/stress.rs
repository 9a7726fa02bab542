//! `azekura stress`: every engine for a bounded count, those in files with kills, and what it states of what it tried.
//!
//! Each run takes another seed with another shape, capacity included, so some of the stores become full; a violation prints
//! what repeats it. That a lie is caught is tested in the crate of the benchmarks, with engines that lie.

use azekura::testkit::suite::{share, tried_at_least};

use crate::program::Place;

/// A figure of the summary.
fn figure(summary: &str, name: &str) -> u64 {
    let text = summary.split(&format!("\"{name}\":")).nth(1);
    let text = text.unwrap_or_else(|| panic!("{name} in {summary}"));
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// Runs an engine for some rounds; its summary.
fn run(engine: &str, count: u64, seed: u64, more: &[&str]) -> String {
    let place = Place::new();
    let (count, seed) = (count.to_string(), seed.to_string());
    let flags = [
        "stress", "--engine", engine, "--count", &count, "--seed", &seed,
    ];
    let places = ["--path", ".", "--json"];
    place.run(&[&flags[..], &places, more].concat()).ok()
}

#[test]
fn engines_in_memory_keep_every_promise_under_stress() {
    let mut reads = 0;
    for engine in ["tiny", "baby", "cache", "std-hash", "std-tree"] {
        let summary = run(engine, share(20), 1, &[]);
        assert!(
            summary.contains(&format!("\"engine\":\"{engine}\"")),
            "{summary}"
        );
        assert_eq!(figure(&summary, "kills"), 0);
        reads += figure(&summary, "reads");
    }
    tried_at_least(reads, 50_000, "reads of engines in memory under stress");
}

#[test]
fn stores_in_files_keep_every_promise_without_kills() {
    let (mut rounds, mut refused) = (0, 0);
    for engine in ["hash", "object"] {
        // A store lives for up to eight rounds: several seeds draw several capacities.
        for seed in 0..4 {
            let count = share(20) / 2;
            let summary = run(engine, count, 2 + seed, &[]);
            assert_eq!(figure(&summary, "rounds"), count, "{summary}");
            assert!(figure(&summary, "operations") > 0, "{summary}");
            rounds += count;
            refused += figure(&summary, "refused");
        }
    }
    let what = format!("rounds on files under stress, {refused} changes refused as full");
    tried_at_least(rounds, 80, &what);
}

#[test]
fn stores_in_files_keep_every_acknowledged_change_through_kills() {
    let (mut kills, mut refused) = (0, 0);
    for engine in ["hash", "object"] {
        for seed in 0..share(20) {
            let summary = run(engine, 2, seed, &["--kill"]);
            kills += figure(&summary, "kills");
            refused += figure(&summary, "refused");
        }
    }
    let what = format!("processes killed under stress, {refused} changes refused as full");
    tried_at_least(kills, 40, &what);
}

/// A value of 8 MiB, an edge, for a store of 2 MB was refused as too large, and that was taken for a violation.
#[test]
fn values_that_a_small_store_cannot_hold_are_no_violation() {
    let mut refused = 0;
    for seed in [1, 6] {
        let small = ["--capacity", "2000000", "--journal-size", "147456"];
        let summary = run(
            "object",
            2,
            seed,
            &[&small[..], &["--small-max", "65464"]].concat(),
        );
        refused += figure(&summary, "refused");
    }
    assert!(refused > 0, "the stores never became full");
}

#[test]
fn kills_of_an_engine_in_memory_and_senseless_flags_are_refused() {
    let place = Place::new();
    let refused = place.run(&["stress", "--engine", "tiny", "--kill", "--path", "."]);
    let said = refused.error(3);
    assert!(
        said.contains("in memory") && said.contains("leave --kill out"),
        "{said}"
    );
    place.run(&["stress", "--threads", "0"]).error(3);
    place.run(&["stress", "--keys", "0"]).error(3);
    place.run(&["stress", "--count", "0"]).error(3);
    assert_eq!(place.run(&["stress", "--engine", "nonsense"]).code, 2);
    // No violation: the flags cannot be.
    let senseless = [
        ["--engine=hash", "--capacity=1"],
        ["--engine=hash", "--segment-size=5000"],
        ["--engine=hash", "--space-ratio=0.1"],
        ["--engine=object", "--journal-size=1"],
        ["--engine=hash", "--value-size=99999999999"],
        ["--engine=object --capacity=4000000", "--value-size=2000000"],
    ];
    for flags in senseless {
        for kill in [&[][..], &["--kill"]] {
            let flags = flags.iter().flat_map(|flag| flag.split(' '));
            let flags: Vec<&str> = flags.chain(kill.iter().copied()).collect();
            let all = [&["stress", "--count=1", "--path=stores"], &flags[..]].concat();
            place.run(&all).error(3);
            let left = std::fs::read_dir(place.path("stores"));
            assert_eq!(left.map_or(0, Iterator::count), 0, "{flags:?}");
        }
    }
    // These did nothing, without a word.
    for (flags, engines) in [
        ("--engine=tiny --durability=power", "hash or object"),
        ("--engine=cache --capacity=1GiB", "hash or object"),
        ("--engine=std-tree --background=true", "hash or object"),
        ("--engine=baby --segment-size=64KiB", "hash"),
        ("--engine=object --compression=lz4", "hash"),
        ("--engine=object --space-ratio=2", "hash"),
        ("--engine=hash --devices=2", "object"),
        ("--engine=hash --small-max=1KiB", "object"),
        ("--engine=hash --journal-size=1MiB", "object"),
    ] {
        let flags: Vec<&str> = flags.split(' ').collect();
        let error = place
            .run(&[&["stress", "--count=1", "--path=stores"], &flags[..]].concat())
            .error(3);
        let (engine, flag) = (flags[0].split('=').nth(1), flags[1].split('=').next());
        let expected = format!(
            "invalid: {} does nothing for the engine {}; leave it out, or choose --engine {engines}",
            flag.unwrap_or_default(),
            engine.unwrap_or_default()
        );
        assert_eq!(error, expected);
    }
    let error = place
        .run(&["stress", "--engine=object", "--small-max=99999999"])
        .error(3);
    assert!(error.contains("0 to 65464"), "{error}");
    run("hash", 1, 1, &["--segment-size=64KiB", "--value-size=1KiB"]);
    let help = place.run(&["stress", "--help"]).ok();
    assert!(
        help.contains("azekura stress --engine hash --kill"),
        "{help}"
    );
}
