//! Help, the manual page and the completions: generated, complete, and where the exit codes stand.
//! The document about the command line names every command.
//! What the commands do is tested elsewhere.

use crate::program::Place;

/// The commands that a help lists.
fn commands(help: &[&str]) -> Vec<String> {
    let help = Place::new().run(help).ok();
    let is_command = |line: &&str| {
        line.starts_with("  ") && line.as_bytes().get(2).is_some_and(u8::is_ascii_lowercase)
    };
    let names = help
        .lines()
        .take_while(|line| *line != "Options:")
        .filter(is_command);
    names
        .map(|line| {
            line.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_string()
        })
        .collect()
}

#[test]
fn help_lists_commands_examples_and_exit_codes() {
    let place = Place::new();
    let help = place.run(&["--help"]).ok();
    for part in [
        "Usage: azekura",
        "Look:",
        "Change:",
        "Examples:",
        "Exit codes:",
        "  6  locked: ",
    ] {
        assert!(help.contains(part), "{part} in {help}");
    }
    assert_eq!(place.run(&["-h"]).ok(), help);
    assert_eq!(
        place.run(&["--version"]).ok(),
        format!("azekura {}\n", env!("CARGO_PKG_VERSION"))
    );
    assert!(
        help.lines().all(|line| line.chars().count() <= 100),
        "{help}"
    );
}

#[test]
fn every_command_has_help_a_manual_page_and_a_place_in_the_document() {
    let place = Place::new();
    let document = include_str!("../../../../docs/cli.md");
    let commands = commands(&["--help"]);
    assert_eq!(commands.len(), 31, "{commands:?}");
    for command in &commands {
        let help = place.run(&[command, "--help"]).ok();
        assert!(
            help.contains(&format!("Usage: azekura {command}")),
            "{help}"
        );
        let page = place.run(&["man", command]).ok();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
        assert!(
            document.contains(&format!("azekura {command}")),
            "docs/cli.md lacks {command}"
        );
    }
    place.run(&["man", "nonsense"]).error(3);
    place.run(&["man", "object", "nonsense"]).error(3);
    let page = place.run(&["man"]).ok();
    assert!(
        page.contains(".TH azekura 1") && page.contains("Exit codes"),
        "{page}"
    );
}

#[test]
fn every_command_of_objects_has_an_example_its_exit_codes_and_a_manual_page() {
    let place = Place::new();
    let all = place.run(&["object", "--help"]).ok();
    for group in ["Look:", "Change:", "Move:", "Care:"] {
        assert!(all.contains(group), "{all}");
    }
    let names = commands(&["object", "--help"]);
    assert_eq!(names.len(), 15, "{all}");
    let main = place.run(&["--help"]).ok();
    assert!(main.contains("objects, large values"), "{main}");
    for name in &names {
        let help = place.run(&["object", name, "--help"]).ok();
        assert!(
            help.contains(&format!("azekura object {name} photos.azo")),
            "{help}"
        );
        assert!(
            help.contains("Example") && help.contains("Exit codes: "),
            "{help}"
        );
        assert!(
            help.contains(&format!("Usage: azekura object {name}")),
            "{help}"
        );
        let page = place.run(&["man", "object", name]).ok();
        assert!(
            page.contains(&format!("azekura\\-object\\-{}", name.replace('-', "\\-"))),
            "{page}"
        );
    }
    let help = place.run(&["object", "remove-range", "--help"]).ok();
    assert!(
        help.contains("give --first, --end or both, or --all"),
        "{help}"
    );
}

#[test]
fn every_option_of_the_server_states_its_default_and_no_help_is_too_wide() {
    let place = Place::new();
    let help = place.run(&["serve", "--help"]).ok();
    let (_, options) = help.split_once("Options:\n").expect("options");
    let (options, _) = options.split_once("\n  -h, --help").expect("an end");
    let options: Vec<&str> = options.split("\n      --").collect();
    assert!(options.len() > 25, "{help}");
    for option in options {
        let words: Vec<&str> = option.split_whitespace().collect();
        assert!(words.contains(&"[default:"), "{option}");
    }
    let mut helps: Vec<Vec<String>> = vec![vec!["--help".into()]];
    for command in commands(&["--help"]) {
        helps.push(vec![command, "--help".into()]);
    }
    for command in commands(&["object", "--help"]) {
        helps.push(vec!["object".into(), command, "--help".into()]);
    }
    for arguments in helps {
        let help = place.run(&arguments).ok();
        for line in help.lines() {
            assert!(line.chars().count() <= 130, "{arguments:?}: {line}");
        }
    }
}

#[test]
fn the_document_lists_the_exit_codes_of_the_program() {
    let document = include_str!("../../../../docs/cli.md");
    let help = Place::new().run(&["--help"]).ok();
    let table = help.split("Exit codes:\n").nth(1).expect("a table");
    let lines: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 13);
    for line in lines {
        let (code, meaning) = line.trim().split_once("  ").expect("code and meaning");
        assert!(
            document.contains(&format!("| {code} | {meaning} |")),
            "docs/cli.md lacks {line}"
        );
    }
}

#[test]
fn completions_know_every_command_in_every_shell() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).ok();
        for command in commands(&["--help"]) {
            assert!(script.contains(&command), "{command} in the {shell} script");
        }
    }
    assert_eq!(place.run(&["completions", "tcsh"]).code, 2);
}
