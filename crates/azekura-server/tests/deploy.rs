//! What `deploy/` contains of the server: the example of a configuration is read, and the commands of the unit and of the
//! container are understood.
//!
//! It does not know whether systemd or a builder of containers understands the rest.

use std::path::{Path, PathBuf};

use azekura_server::config::{Address, Config, DurabilityLevel, Engine, RawConfig};
use clap::Parser;

/// The command `serve`, as the command line has it.
#[derive(Parser)]
struct Serve {
    #[arg(long)]
    config: Option<PathBuf>,
    #[command(flatten)]
    said: RawConfig,
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

#[test]
fn the_example_of_a_configuration_is_read() {
    let config = Config::read(Some(&path("azekura.toml")), RawConfig::default()).unwrap();
    assert_eq!((config.engine, config.threads), (Engine::Hash, 2));
    assert_eq!(config.durability, DurabilityLevel::Process);
    assert_eq!(config.unix_mode, 0o770);
    assert_eq!(config.limits.connections_max, 4096);
    let [Address::Tcp(_), Address::Unix(socket)] = &config.listen[..] else {
        panic!("{:?}", config.listen);
    };
    // What the unit lets it write.
    let unit = text("azekura.service");
    assert!(
        unit.contains("StateDirectory=azekura\n") && unit.contains("RuntimeDirectory=azekura\n")
    );
    assert!(config.data.starts_with("/var/lib/azekura") && socket.starts_with("/run/azekura"));
}

#[test]
fn what_is_commented_out_in_the_example_is_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let all = folder.path().join("all.toml");
    let example = text("azekura.toml");
    let is_key = |line: &str| {
        let name = line.split(" = ").next().unwrap_or_default();
        line.contains(" = ") && !name.contains(' ')
    };
    let (mut lines, mut count) = (Vec::new(), 0);
    for line in example.lines() {
        match line.strip_prefix("# ").filter(|line| is_key(line)) {
            // It stands in place of the one above.
            Some(line) if line.starts_with("listen") => {
                lines.retain(|line: &&str| !line.starts_with("listen"));
                lines.push(line);
                count += 1;
            }
            Some(line) => {
                lines.push(line);
                count += 1;
            }
            None => lines.push(line),
        }
    }
    assert_eq!(count, 4);
    std::fs::write(&all, lines.join("\n")).unwrap();
    let config = Config::read(Some(&all), RawConfig::default()).unwrap();
    assert!(config.certificate.is_some() && config.passwords.is_some());
    assert!(matches!(config.listen[..], [Address::Tls(_)]));
}

#[test]
fn the_commands_of_the_unit_and_the_container_are_understood() {
    let unit = text("azekura.service");
    let starts = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let words = starts.unwrap().split(' ').map(str::to_owned).collect();
    let file = text("Dockerfile");
    // JSON lists of words without a quotation mark in them.
    let listed = |instruction: &str| -> Vec<String> {
        let line = file.lines().find_map(|line| line.strip_prefix(instruction));
        line.unwrap()
            .split('"')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let container = [listed("ENTRYPOINT "), listed("CMD ")].concat();
    let commands: [Vec<String>; 2] = [words, container];
    for words in commands {
        assert!(
            words[0].ends_with("azekura") && words[1] == "serve",
            "{words:?}"
        );
        let understood = Serve::try_parse_from(&words[1..]).unwrap();
        Config::read(None, understood.said).unwrap();
        assert!(
            understood
                .config
                .is_none_or(|at| at.starts_with("/etc/azekura")),
            "{words:?}"
        );
    }
    assert!(file.contains("VOLUME /var/lib/azekura\n"));
}
