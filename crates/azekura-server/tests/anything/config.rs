//! What holds for a file of configuration, whatever is in it.
//!
//! It holds, and then everything is within its bounds; or it is refused by one line, which names the file. Names of hosts
//! are not looked up here: a text that may have one passes by. It opens nothing.

use std::path::Path;

use azekura::Kind;
use azekura_server::config::{Address, Config, DurabilityLevel, Engine, RawConfig};

/// Configurations.
#[allow(dead_code, reason = "a fuzzer has its own")]
pub(crate) const WHOLE: &[&[u8]] = &[
    b"listen = [\"127.0.0.1:0\", \"udp:[::1]:7\", \"unix:/x\"]\nthreads = 3\nitem-max = \"2MiB\"\n",
    b"engine = \"cache\"\nmemory-max = \"64MiB\"\nconnections-max = 9\nidle-s = 60\nunix-mode = 660\n",
    b"durability = \"power\"\nbuffers-max = 200000000\nslow-ms = 5\nlog = \"json\"\nlog-level = \"debug\"\n",
    b"certificate = \"c\"\nkey = \"k\"\nclient-authority = \"a\"\npasswords = \"p\"\nshutdown = true\n",
    b"data = \"d\"\nstall-s = 3\nflush = false\ndump = false\n",
];

/// Parts of configurations.
#[allow(dead_code, reason = "a fuzzer has its own")]
pub(crate) const WORDS: &[&[u8]] = &[
    b"\n",
    b"\n",
    b"\n",
    b" = ",
    b" = ",
    b"= ",
    b"engine",
    b"durability",
    b"memory-max",
    b"item-max",
    b"threads",
    b"connections-max",
    b"buffers-max",
    b"unix-mode",
    b"log",
    b"log-level",
    b"key",
    b"certificate",
    b"idle-s",
    b"\"",
    b"\"tiny\"",
    b"\"cache\"",
    b"\"hash\"",
    b"\"none\"",
    b"\"power\"",
    b"\"1GiB\"",
    b"\"5 MB\"",
    b"\"660\"",
    b"0",
    b"1",
    b"-1",
    b"1024",
    b"99999999999999999999",
    b"true",
    b"[",
    b"]",
    b"#",
    b"'",
    b"\\u0041",
    b"\xff",
    b"1.5",
    b"[table]\n",
    b"engine = \"tiny\"\n",
    b"threads = 2\n",
    b"item-max = 5000\n",
    b"memory-max = \"2MiB\"\n",
];

/// Whether it holds.
pub(crate) fn check(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    if may_name_hosts(text) {
        return false;
    }
    let path = Path::new("server.toml");
    let config = match Config::of_text(path, text, RawConfig::default()) {
        Ok(config) => config,
        Err(error) => {
            let line = error.to_string();
            assert_eq!(error.kind(), Kind::Invalid, "{line}");
            assert!(
                !line.contains('\n') && line.len() < 1000 + 2 * text.len(),
                "{line}"
            );
            return false;
        }
    };
    let limits = &config.limits;
    assert!((1..=1024).contains(&config.threads));
    assert!((1 << 10..=1 << 30).contains(&config.item_max));
    assert!(limits.connections_max > 0 && limits.buffers_max >= 1 << 20);
    assert!(config.unix_mode <= 0o777 && !config.listen.is_empty());
    assert_eq!(config.store().is_some(), config.engine == Engine::Hash);
    if config.engine == Engine::Hash {
        assert_eq!(config.memory_max, None);
    } else {
        assert_eq!(config.durability, DurabilityLevel::None);
    }
    let encrypted = config.listen.iter().any(|at| matches!(at, Address::Tls(_)));
    assert!(!encrypted || config.certificate.is_some());
    // A flag replaces what the file states, whatever that is.
    let flags = RawConfig {
        stall_s: Some(7),
        ..RawConfig::default()
    };
    let config = Config::of_text(path, text, flags).expect("it holds with another deadline");
    assert_eq!(config.limits.stall_s, 7);
    true
}

/// Whether an address in it may have a name instead of numbers.
fn may_name_hosts(text: &str) -> bool {
    if text.contains('\\') && text.contains(':') {
        return true;
    }
    ["listen", "metrics"].iter().any(|key| {
        text.split(key).skip(1).any(|rest| {
            let line = rest.lines().next().unwrap_or_default();
            let numbers = ["tls:", "udp:", "unix:/x"]
                .iter()
                .fold(line.to_owned(), |line, word| line.replace(word, ""));
            let is_plain = |c: char| c.is_ascii_digit() || " .:[]\"',=".contains(c);
            // What continues in the next line is not looked at.
            !numbers.chars().all(is_plain) || !line.ends_with([']', '"'])
        })
    })
}
